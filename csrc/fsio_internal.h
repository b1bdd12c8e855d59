/* What the files of fsio share. fsio.c: life, events, table. fsio_parts.c: parts and what they take. fsio_handle.c: handles, local files.
 * fsio_peer.c: connections to others. fsio_serve.c: connections from others. fsio_pieces.c: striped files. fsio_spread.c: from one layout to
 * the other. fsio_jobs.c: work in the background.
 *
 * Locks, in the order in which they may be taken: a file's gate, files_lock, a file's lock, then any of stripes_lock, table_lock, peers_lock,
 * events_lock (leaves). Nobody waits for the network with any but a gate held. */
#ifndef AMFS_FSIO_INTERNAL_H
#define AMFS_FSIO_INTERNAL_H

#include "fsio.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    FSIO_STALL_MS = 30000,
    FSIO_FILE_BUCKETS = 4096,
    FSIO_OPEN_MAX = 512,        /* descriptors kept for open local files; more are closed and opened again as needed */
    FSIO_THREADS_MAX = 64,
    FSIO_STRIPE_BYTES = 512 << 10, /* where nobody said how long a stripe is */
    FSIO_NAME_BYTES = 64,       /* a part's path below root */
    FSIO_RESCAN_SECONDS = 30,
};

struct fsio_users { /* one other node's use of a file through this one */
    struct fsio_users *next;
    int32_t peer;
    int readers, writers;
    uint64_t turn; /* of the message that said so: a later one wins */
};

struct fsio_file {
    struct fsio_file *next; /* in its bucket */
    struct fsio *io;
    uint64_t ino;
    int references; /* under files_lock: handles, other nodes, requests on their way */

    pthread_rwlock_t gate; /* shared: reads and writes; alone: kind and stripe change, truncation */
    enum fsio_kind kind;   /* under the gate, as node and stripe */
    int32_t node;
    uint32_t stripe;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int readers, writers; /* handles of this node */
    struct fsio_users *users;
    _Atomic uint64_t size; /* STRIPED: the size; LOCAL: the highest end accounted for */
    int fd;                /* LOCAL; -1: not open at the moment */
    int busy;              /* uses of fd under way */
    bool counted;          /* size and accounted are what its part says */
    bool gone;             /* deleted while open: the descriptor is all that is left of it */
    atomic_llong accounted; /* bytes of it that `used` contains */
    int error;             /* the last failure of writing behind, and how many there were */
    uint64_t error_count;
};

struct fsio_stat {
    uint64_t size, blocks;
    int64_t atime, mtime, ctime;
};

struct fsio_handle {
    struct fsio_file *file;
    bool writing;
    uint64_t errors_seen;
};

/* Which inodes have stripes here, so that deleting a file of one part does not read a directory. Open addressing, 0: free. */
struct fsio_stripes {
    struct fsio_stripes_slot {
        uint64_t ino;
        uint64_t end; /* highest index + 1 */
    } *slots;
    size_t room, count;
};

struct fsio {
    int32_t node;
    int root_fd;
    int event_fd;
    int stall_ms;
    atomic_bool stopping;

    pthread_mutex_t files_lock;
    struct fsio_file *files[FSIO_FILE_BUCKETS];
    atomic_int open_fds;

    pthread_mutex_t stripes_lock;
    struct fsio_stripes stripes;

    bool own_mount; /* root is a mount of its own: the kernel counts for us */
    uint64_t limit;
    atomic_llong used, parts;      /* own_mount: used when last asked */
    atomic_llong since;            /* own_mount: bytes added since */
    _Atomic int64_t asked_ms;      /* own_mount: when */

    pthread_mutex_t table_lock;
    int32_t *owners;
    size_t partitions;
    bool others; /* a partition belongs to another node */

    pthread_mutex_t events_lock;
    struct fsio_event *events, **events_tail;

    pthread_mutex_t keeper_lock;
    pthread_cond_t keeper_wake;
    pthread_t keeper;
    bool keeper_runs;
};

/* fsio.c */
int64_t fsio_now_ms(void);
int64_t fsio_now_ns(void); /* since 1970 */
int fsio_thread(pthread_t *thread, void *(*body)(void *), void *argument); /* with all signals blocked; 0 or errno */
void fsio_tell(struct fsio *io, enum fsio_event_kind kind, uint64_t serial, uint64_t ino, uint64_t size, int error);
int32_t fsio_stripe_owner(struct fsio *io, uint64_t ino, uint64_t index); /* -1: no table */
bool fsio_has_others(struct fsio *io);

/* fsio_parts.c */
int fsio_parts_begin(struct fsio *io, const char *root, char *error, size_t error_size); /* opens root, makes its directories, counts */
void fsio_parts_end(struct fsio *io);
void fsio_part_name(uint64_t ino, int64_t index, char *to); /* FSIO_NAME_BYTES */
int fsio_part_open(struct fsio *io, uint64_t ino, int64_t index, bool create); /* descriptor, or a negative errno */
bool fsio_room(struct fsio *io, uint64_t more); /* is there room for so many more bytes */
void fsio_account(struct fsio *io, int64_t bytes);
void fsio_rescan(struct fsio *io); /* count again what is there; nothing to do where the kernel counts */
int64_t fsio_allocated(int fd);    /* bytes */
uint64_t fsio_stripes_end(struct fsio *io, uint64_t ino);                   /* highest index of a stripe that may be here, + 1 */
int fsio_stripes_delete(struct fsio *io, uint64_t ino, uint64_t from);      /* stripes here from that index on */
int fsio_part_remove(struct fsio *io, uint64_t ino, int64_t index);         /* one part of a file that is not open */

/* fsio_handle.c */
struct fsio_file *fsio_file_find(struct fsio *io, uint64_t ino); /* a reference to an active file, or NULL */
void fsio_file_drop(struct fsio_file *file);
bool fsio_file_deleted(struct fsio *io, uint64_t ino); /* its part goes: an open file holds on to its descriptor. Was it open? */
int fsio_fd_get(struct fsio_file *file, bool create, int *fd); /* of a LOCAL file; give it back with fsio_fd_put */
void fsio_fd_put(struct fsio_file *file);

#endif
