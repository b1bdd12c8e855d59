/* The client side of the data connections: a pool of connections to each other node, for each lane, and questions on them.
 *
 * Every connection begins with the handshake (handshake.h). Any thread may call. Nothing here knows of parts or of open files: a node has
 * one of these in its fsio, and a process that is no node (amfs.Session.read) has one alone.
 *
 * Every wait ends: after `stall_ms` without progress, when the peer is forgotten, or when the client is stopped. */
#ifndef AMFS_DATA_CLIENT_H
#define AMFS_DATA_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/xxh3.h"
#include "handshake.h"
#include "wire.h"

enum { DATA_STALL_MS = 30000 };

struct data_peer;

struct data_client {
    uint64_t id, incarnation;
    bool has_key; /* else there are no others */
    uint8_t key[HANDSHAKE_KEY_BYTES];
    int stall_ms;
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct data_peer *peers;
};

/* A connection to another node, used by one thread at a time. */
struct data_link {
    struct data_link *next; /* of the peer's */
    struct data_peer *peer;
    int lane, fd;
    bool idle, used; /* used: has carried a request before, so that the other side may have closed it meanwhile */
    int64_t since_ms;
};

void data_client_begin(struct data_client *client, uint64_t id, uint64_t incarnation, const uint8_t *key); /* `key` NULL: there is none */
void data_client_stop(struct data_client *client); /* wakes everybody who waits for a peer; repeatable */
void data_client_end(struct data_client *client);  /* nobody is in its functions any more */

/* A member, and where it listens (`port` 0: nowhere). Connections to what it was before are ended. An incarnation of 0 is not looked at. */
void data_set_peer(struct data_client *client, int32_t node, uint64_t incarnation, const char *host, int port);
void data_forget_peer(struct data_client *client, int32_t node); /* it is no member any more: callers that wait for it get EIO at once */
bool data_is_member(struct data_client *client, uint64_t id, uint64_t incarnation);
void data_reap(struct data_client *client); /* close what has not been used for long */

int data_link_get(struct data_client *client, int32_t node, int lane, bool fresh, struct data_link **link);
void data_link_put(struct data_client *client, struct data_link *link, bool broken);
/* The following answer 0, DATA_BROKEN or an errno: after both the connection is of no use any more. */
int data_ask(struct data_link *link, const struct data_request *request, const void *bytes);
int data_hear(struct data_link *link, struct data_reply *reply);
/* Ask and hear on any connection. Of an answer's bytes at most `room` go to `to`. Returns an errno, the other side's included. */
int data_call(struct data_client *client, int32_t node, int lane, const struct data_request *request, const void *bytes,
              struct data_reply *reply, void *to, size_t room);
int data_call_stat(struct data_client *client, int32_t node, int lane, const struct data_request *request, struct data_stat *stat);
int data_result(struct data_client *client, int error); /* what callers are told: no DATA_BROKEN, ECANCELED once stopped */

/* Read a file, or some of it, into a descriptor. */
struct data_fetch {
    struct data_request request; /* OP_READ */
    int file;
    uint64_t size; /* of all of it (READ_HOLES); UINT64_MAX: not known before, but then */
    bool checked; /* afterwards: the bytes have this digest, here and there */
    uint8_t digest[XXH3_BYTES];
    bool (*room)(void *context, uint64_t bytes); /* is there room for so many; NULL: do not ask */
    void *context;
};
/* 0 or an errno; ESTALE: it is another version of it; EBADMSG: that node's copy is damaged (it knows). Bytes damaged on their way are fetched again. */
int data_fetch(struct data_client *client, int32_t node, struct data_fetch *fetch);
/* Of what the request of a fetch asks for: its digest; or, for who has received something else, 0, EBADMSG, or ESTALE: nobody can say. */
int data_fetch_digest(struct data_client *client, int32_t node, const struct data_request *request, uint8_t digest[XXH3_BYTES]);
int data_fetch_suspect(struct data_client *client, int32_t node, const struct data_request *request);
/* All of a file of the runs' store, which has `size` bytes, into a file (`digest`: of what has come, if *checked) or into memory. 0 or an errno,
 * likewise. */
int data_fetch_stored(struct data_client *client, int32_t node, const char *path, int file, uint64_t size, uint8_t digest[XXH3_BYTES],
                      bool *checked);
int data_read_stored(struct data_client *client, int32_t node, const char *path, void *to, uint64_t size);

#endif
