/* A node's data as its memory has it; all files of data/ stand on this. Lower files first:
 * events.c: events, the clock. table.c: owners of partitions. workers.c (workers.h): threads in the background. file.h: files.c: the table of open
 * files; lost.c: stripes that went with a node; ends.c: files whose record does not know their end yet.
 *
 * Locks, in the order in which they may be taken: a file's gate, files_lock, a file's lock, then any of stripes_lock, table_lock, the client's,
 * spill_lock, room_lock (before the next), events_lock, that of open/opens.h (leaves). Nobody waits for the network with any but a gate held, and one of passing_on (after the gates), which
 * waits for the lane of copies only. Of passing_on and taking nobody holds two. */
#ifndef AMFS_DATA_STATE_H
#define AMFS_DATA_STATE_H

#include "common/bytes.h"
#include "common/digests.h"
#include "common/thread.h"
#include "data/fsio.h"
#include "data/peers/client.h"
#include "file.h"
#include "open/opens.h"
#include "workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    FSIO_FILE_BUCKETS = 4096,
    FSIO_STRIPE_BYTES = 512 << 10, /* where nobody said how long a stripe is */
    FSIO_RESCAN_SECONDS = 30,
};

struct data_server;

/* The user of the third lane. Its connections are used in one direction: the side that made one asks, the other answers. All functions are called
 * by threads of the server, but for one connection by one at a time. */
struct data_rpc;
struct data_rpc_handler {
    void *context;
    /* Something has come from `node`. `link`: of data_rpc_open, NULL on a connection that the other made. False: close it. `buffer`: DATA_CHUNK bytes. */
    bool (*attend)(void *context, int32_t node, void *link, int fd, char *buffer);
    void (*ended)(void *context, void *link); /* a connection of ours is about to be closed */
    void (*changed)(void *context, uint64_t ino); /* another node has written to a file through this one, and is not answered yet */
    void (*tick)(void *context); /* every two seconds */
    void (*let_go)(void *context); /* fsio is being freed */
};

struct fsio {
    int32_t node;
    struct fsio_store *store;     /* store/store.h */
    struct fsio_striped *striped; /* striped/striped.h */
    int event_fd;
    atomic_bool stopping;

    struct opens *opens;
    pthread_mutex_t files_lock;
    struct fsio_file *files[FSIO_FILE_BUCKETS];
    atomic_bool keeps_ends;
    void (*leave_file)(struct fsio_file *file); /* nobody has it open any more, and it is about to be freed */

    pthread_mutex_t table_lock;
    int32_t *owners;
    uint8_t *moving; /* of each partition, enum fsio_moving */
    size_t partitions;
    bool others; /* a partition belongs to another node */
    uint64_t *lost; /* of each partition: the number with which its stripes were lost last; 0: never */
    uint64_t *lost_copies; /* likewise: those that have copies, too */
    _Atomic uint64_t lost_version; /* the last of them */

    struct data_client client;
    struct data_server *server; /* NULL: not listening */
    struct data_rpc_handler rpc_handler; /* attend NULL: there is none */

    pthread_mutex_t events_lock;
    struct fsio_event *events, **events_tail;

    struct fsio_workers workers, fetchers; /* fetchers: for the runs, so that neither has to wait for the other's */

    pthread_mutex_t keeper_lock;
    pthread_cond_t keeper_wake;
    pthread_t keeper;
    bool keeper_runs;
};

/* events.c */
int64_t fsio_now_ns(void); /* since 1970 */
void fsio_fair_lock(pthread_rwlock_t *lock);
void fsio_tell(struct fsio *io, enum fsio_event_kind kind, uint64_t serial, uint64_t ino, uint64_t size, int error);
int fsio_result(struct fsio *io, int error); /* what the caller of fsio is told: no DATA_BROKEN, ECANCELED once stopped */

/* table.c */
enum fsio_moving {
    FSIO_SERVED,
    FSIO_MOVES,
    FSIO_AWAITED, /* likewise, and the poll loop has been told that somebody waits for it */
};
int32_t fsio_stripe_owner(struct fsio *io, uint64_t ino, uint64_t index); /* -1: no table */
bool fsio_stripe_ours(struct fsio *io, uint64_t ino, uint64_t index, bool *moving); /* by our table */
bool fsio_stripe_served(struct fsio *io, uint64_t ino,
                        uint64_t index); /* ours, and here. Else the asker waits, and the poll loop hears of it */
bool fsio_any_moving(struct fsio *io);
size_t fsio_partition_of(const struct fsio *io, uint64_t ino, uint64_t index); /* with table_lock held and a table there */
bool fsio_has_others(struct fsio *io);

#endif
