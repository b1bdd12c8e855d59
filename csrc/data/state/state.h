/* What a node has in memory of its data, and what all files of data/ stand on. Lower files first:
 * events.c: events, the clock. table.c: owners of partitions. workers.c: threads in the background. files.c: the table of open files. lost.c: stripes that
 * went with a node. ends.c: sizes that the record does not have yet.
 *
 * Locks, in the order in which they may be taken: a file's gate, files_lock, a file's lock, then any of stripes_lock, table_lock, the client's,
 * spill_lock, room_lock (before the next), events_lock (leaves). Nobody waits for the network with any but a gate held, and one of passing_on (after the gates), which
 * waits for the lane of copies only. Of passing_on and taking nobody holds two. */
#ifndef AMFS_DATA_STATE_H
#define AMFS_DATA_STATE_H

#include "common/bytes.h"
#include "common/digests.h"
#include "common/thread.h"
#include "data/fsio.h"
#include "data/peers/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    FSIO_FILE_BUCKETS = 4096,
    FSIO_THREADS_MAX = 64,
    FSIO_STRIPE_BYTES = 512 << 10, /* where nobody said how long a stripe is */
    FSIO_RESCAN_SECONDS = 30,
};

struct data_server;

/* Whoever uses the third lane. Its connections are used in one direction: questions by who made them, answers by the other. All functions are called
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

struct fsio_piece;

struct fsio_users { /* one other node's use of a file through this one */
    struct fsio_users *next;
    int32_t peer;
    int readers, writers;
    uint64_t errors_seen;
};

struct fsio_file {
    struct fsio_file *next; /* in its bucket */
    struct fsio *io;
    uint64_t ino;
    int references; /* under files_lock: handles, other nodes, requests on their way */

    pthread_rwlock_t gate; /* shared: reads and writes; alone: kind and stripe change, truncation */
    _Atomic enum fsio_kind kind; /* changed with the gate held alone, as known, node and stripe */
    bool known; /* false: just made, what follows says nothing yet */
    atomic_bool serves; /* other nodes may use it through us: known and not REMOTE */
    int32_t node;
    _Atomic uint32_t stripe;
    atomic_bool copied; /* its stripes have copies, or would have */
    atomic_bool torn; /* STRIPED: some of it was lost with a node, and cannot be told from a hole any more */
    _Atomic uint64_t since; /* STRIPED: nothing of it was lost up to this number of losses */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int readers, writers; /* handles of this node */
    bool told_reading, told_writing; /* REMOTE: what its node knows of that; under the gate */
    struct fsio_users *users;
    _Atomic uint64_t size; /* STRIPED: the size; LOCAL: the highest end accounted for */
    int fd; /* LOCAL; -1: not open at the moment */
    bool fd_writes;
    int busy; /* uses of fd under way */
    int writes; /* LOCAL, under lock: under way, each of which may have reserved what it has not written */
    atomic_bool counted; /* size and accounted are what its part says */
    atomic_bool gone; /* deleted while open: the descriptor is all that is left of it */
    bool spreading; /* LOCAL, under lock: it is being laid in stripes, with the gate held for long */
    bool lost; /* LOCAL, under lock: its content is nowhere: EIO */
    atomic_bool spilled; /* LOCAL: fd is that of a copy on a disk, which is only read */
    atomic_llong accounted; /* bytes of it that `used` contains */
    int error; /* the last failure of writing behind, and how many there were */
    uint64_t error_count;

    struct fsio_piece *pieces; /* STRIPED: striped/pieces.c */
    size_t piece_count, carried;
    _Atomic int64_t read_ns, written_ns, changed_ns; /* STRIPED: atime, mtime, ctime as far as they come from here; 0: not known */
    struct data_stat sum; /* and what its owners said last */
    int64_t sum_ms;
};

/* Where a reader has come to: reading ahead follows those that go through a file in order. Unlocked: what is lost costs speed only. */
struct fsio_stream {
    _Atomic uint64_t next;
    atomic_uint run;
};

struct fsio_handle {
    struct fsio_file *file;
    struct fsio_stream stream;
    bool writing, passing; /* passing: it is not counted */
    bool through; /* nobody flushes: every write does */
    uint64_t errors_seen;
};

/* Something to do for a worker. */
struct fsio_job {
    struct fsio_job *next;
    const char *name; /* for who asks what is being done, with the number of the file */
    uint64_t ino;
    void (*run)(struct fsio *io, struct fsio_job *job, bool stopped); /* frees it. `stopped`: there is no time for it any more */
};

/* Threads, and what they have to do. */
struct fsio_workers {
    struct fsio *io;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread[FSIO_THREADS_MAX];
    int threads;
    struct fsio_job *jobs, **tail;
};

struct fsio {
    int32_t node;
    struct fsio_store *store;     /* store/store.h */
    struct fsio_striped *striped; /* striped/striped.h */
    int event_fd;
    atomic_bool stopping;

    pthread_mutex_t files_lock;
    struct fsio_file *files[FSIO_FILE_BUCKETS];
    pthread_mutex_t ends_lock; /* after all others */
    struct fsio_end *ends;
    atomic_bool keeps_ends;
    void (*leave_file)(struct fsio_file *file); /* nobody has it open any more, and it is about to be freed */

    pthread_mutex_t table_lock;
    int32_t *owners;
    bool *moving;
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
int32_t fsio_stripe_owner(struct fsio *io, uint64_t ino, uint64_t index); /* -1: no table */
bool fsio_stripe_ours(struct fsio *io, uint64_t ino, uint64_t index, bool *moving); /* by our table */
bool fsio_any_moving(struct fsio *io);
size_t fsio_partition_of(const struct fsio *io, uint64_t ino, uint64_t index); /* with table_lock held and a table there */
bool fsio_has_others(struct fsio *io);

/* workers.c */
void fsio_workers_begin(struct fsio *io);
int fsio_workers_start(struct fsio_workers *workers, int threads); /* as many as that in all. 0 or errno */
void fsio_workers_stop(struct fsio *io);
void fsio_workers_end(struct fsio *io);
bool fsio_works(struct fsio *io); /* there are workers */
bool fsio_enqueue(struct fsio_workers *workers, struct fsio_job *job); /* false: fsio has been stopped */
int fsio_later(struct fsio *io, void (*act)(void *context), void *context); /* by a worker, unless fsio is stopped first. 0 or errno */

/* files.c */
struct fsio_file *fsio_file_look(struct fsio *io, uint64_t ino); /* with files_lock held: an active file without a reference, or NULL */
struct fsio_file *fsio_file_find(struct fsio *io, uint64_t ino); /* a reference to an active file, or NULL */
struct fsio_file *fsio_file_make(struct fsio *io, uint64_t ino); /* likewise; one without a kind if there is none. NULL: no memory */
void fsio_file_drop(struct fsio_file *file);
void fsio_drop_later(struct fsio_file *file); /* by a worker: to drop the last reference can mean to wait for other nodes */
struct fsio_file *fsio_file_enter(struct fsio *io, uint64_t ino); /* with its gate held alone; NULL: somebody has it open */
void fsio_file_exit(struct fsio_file *file);
bool fsio_has_writers(const struct fsio_file *file); /* here or through here; with its lock held */
bool fsio_file_written(struct fsio_file *file);
int64_t fsio_deleted_bytes(struct fsio *io); /* of files that are open, but have no name any more */

/* lost.c */
bool fsio_stripes_lost(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t from, uint64_t end,
                       uint64_t since); /* of those bytes, after that version */
bool fsio_file_lost(struct fsio_file *file);
void fsio_not_lost(struct fsio_file *file, uint64_t since, bool lost); /* what is known of it from now on */

/* ends.c */
void fsio_end_keep(struct fsio_file *file);
bool fsio_end_lost(struct fsio *io, uint64_t ino, uint64_t *since, bool *lost); /* of a kept end; false: there is none */
void fsio_end_written(struct fsio *io, uint64_t ino, int64_t written_ns); /* its time was set by hand since */
void fsio_ends_free(struct fsio *io);

#endif
