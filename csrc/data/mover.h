/* The data mover: copies files on threads of its own, on this node and between nodes over TCP.
 *
 * Plain C, knows nothing of Python. Every function may be called from any thread. A job ends in exactly one completion, in whatever
 * way it ends; a file appears under its name whole or not at all (it is written beside it as `.amfs-part-...` and renamed).
 *
 * The data port answers only to tickets: 16 random bytes, good for one fetch of one file within MOVER_TICKET_SECONDS. Whoever connects
 * without one gets a short refusal or nothing. Data is not encrypted; the ticket travels over the authenticated control connection.
 */
#ifndef AMFS_MOVER_H
#define AMFS_MOVER_H

#include <stddef.h>
#include <stdint.h>

enum {
    MOVER_TICKET_BYTES = 16,
    MOVER_TICKET_SECONDS = 60,
    MOVER_STALL_MS = 30000, /* a transfer without progress for so long has failed */
    MOVER_THREADS_MAX = 64,
};

struct mover;

struct mover_done {
    struct mover_done *next;
    uint64_t serial;
    uint64_t bytes; /* moved, also when it failed on the way */
    char *error;    /* NULL: fine */
};

struct mover_counters {
    uint64_t bytes_copied, bytes_fetched, bytes_served;
    uint64_t cpu_us; /* of the mover's threads */
};

/* `listen_address`: numeric address to serve on, "" or NULL: do not serve. NULL and a text in `error` if it fails. */
struct mover *mover_new(int threads, const char *listen_address, char *error, size_t error_size);
int mover_fd(const struct mover *mover);   /* eventfd, readable while completions wait; valid until mover_free */
int mover_port(const struct mover *mover); /* 0: not listening */

/* Queue a job. 0, or an errno (then no completion follows). Strings are copied. After mover_stop: completes as "stopped". A copy takes the
 * place of what the destination had; a fetch leaves it and completes well, because the file may be in use there. */
int mover_copy(struct mover *mover, uint64_t serial, const char *source, const char *destination, unsigned mode, int directories);
int mover_fetch(struct mover *mover, uint64_t serial, const char *host, int port, const uint8_t ticket[MOVER_TICKET_BYTES], uint64_t size,
                const char *destination, unsigned mode);

/* A new ticket for `path`. 0 or an errno. */
int mover_offer(struct mover *mover, const char *path, uint8_t ticket[MOVER_TICKET_BYTES]);

/* All completions so far, oldest first; the caller frees the list. */
struct mover_done *mover_take(struct mover *mover);
void mover_done_free(struct mover_done *list);

void mover_read_counters(struct mover *mover, struct mover_counters *counters);
void mover_set_stall_ms(struct mover *mover, int milliseconds); /* before the first job; tests cannot wait for half a minute */

/* End the threads, close the sockets; what is queued or under way completes as "stopped". Repeatable. */
void mover_stop(struct mover *mover);
void mover_free(struct mover *mover);

#endif
