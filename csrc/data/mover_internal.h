/* What the three files of the mover share: mover.c (queue, local copies), mover_fetch.c (getting), mover_serve.c (giving). */
#ifndef AMFS_MOVER_INTERNAL_H
#define AMFS_MOVER_INTERNAL_H

#include "common/bytes.h"
#include "common/thread.h"
#include "mover.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    ERROR_BYTES = 9216,       /* two paths and a reason */
    PART_BYTES = 4096 + 64,   /* a path and the temporary name */
    BUFFER_BYTES = 2 << 20,   /* a huge page: see mover_fetch.c */
};

struct port;

struct job {
    struct job *next;
    struct mover_done *done; /* allocated with the job: a completion cannot fail for lack of memory */
    bool is_fetch, directories;
    unsigned mode;
    int port;
    uint64_t size;
    uint8_t ticket[MOVER_TICKET_BYTES];
    char *source; /* path, or host */
    char *destination;
};

struct mover {
    pthread_mutex_t lock; /* queue, done list, stopped */
    pthread_cond_t work;
    struct job *queue_head, **queue_tail;
    struct mover_done *done_head, **done_tail;
    bool stopped;
    atomic_bool stopping;
    int event_fd;
    int stop_fd; /* eventfd, readable for ever once stopping: every poll of the mover includes it */
    int stall_ms;
    int threads;
    pthread_t workers[MOVER_THREADS_MAX];
    struct port *port;
    atomic_uint part_count;
    _Atomic uint64_t bytes_copied, bytes_fetched, bytes_served, cpu_us;
};

/* What one worker thread keeps from job to job. */
struct worker {
    struct mover *mover;
    char *buffer; /* BUFFER_BYTES, made when first needed */
    uint64_t cpu_us;
};

/* mover.c */
void mover_account_cpu(struct mover *mover, uint64_t *seen_us);             /* add this thread's CPU time since `*seen_us` */
int mover_wait(struct mover *mover, int fd, short events); /* 0, ETIMEDOUT after stall_ms, ECANCELED when stopping, errno */
const char *mover_reason(int error); /* strerror in a buffer of this thread, and words for our own uses of some errnos */

/* Open a temporary file beside `destination` (its name in `part`). Descriptor, or -1 with the reason in `error`. */
int mover_part_open(struct mover *mover, const char *destination, bool directories, char *part, char *error);
/* Mode, close, rename; true if a file stands under the name: this one, or with `keep_first` that which was there. Else `error` says why and
 * nothing is left. */
bool mover_part_finish(int fd, const char *part, const char *destination, unsigned mode, bool keep_first, char *error);
void mover_part_drop(int fd, const char *part);

/* mover_fetch.c: bytes moved; `error` empty if it went well. */
uint64_t mover_run_fetch(struct worker *worker, const struct job *job, char *error);

/* mover_serve.c */
struct port *port_open(struct mover *mover, const char *address, char *error, size_t error_size);
int port_number(const struct port *port);
int port_offer(struct port *port, const char *path, uint8_t ticket[MOVER_TICKET_BYTES]);
void port_close(struct port *port); /* after `stopping` is set: waits for its threads */
void port_free(struct port *port);

/* ── the data port's protocol, little-endian ──
 * request:  u32 magic, u16 version, u16 zero, ticket[16], u64 size of the file as announced
 * reply:    u32 magic, u16 version, u16 status, u32 errno, u32 zero, u64 size found; then, if OK, the file's bytes; then both close
 */
enum {
    DATA_MAGIC = 0x44464d41, /* "AMFD" */
    DATA_VERSION = 1,
    REQUEST_BYTES = 32,
    REPLY_BYTES = 24,
    STATUS_OK = 0,
    STATUS_NO_TICKET = 1,
    STATUS_NO_FILE = 2,
    STATUS_WRONG_SIZE = 3,
    STATUS_WRONG_VERSION = 4,
};

#endif
