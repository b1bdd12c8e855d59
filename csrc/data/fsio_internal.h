/* What the files of fsio share. fsio.c: life. state/events.c: events. state/table.c: owners. state/workers.c: threads in the background.
 * state/files.c: the table of open files. store/parts.c: parts. store/count.c: the memory that they take. handle.c: handles. store/local.c, remote.c, striped/striped.c: reading and writing whole files here, files that another node has open,
 * striped files. striped/pieces.c: reading ahead and writing behind. state/ends.c: sizes that the record does not have yet. striped/spread.c: from one
 * layout to the other. users.c: other nodes' use of files that are open here. jobs.c: work in the background. store/room.c: making room. state/lost.c: stripes that went with a node. striped/copies.c: copies of
 * stripes. store/part_digests.c: digests of parts. store/spill.c: whole parts on a disk.
 * client.c: connections to others. server.c: connections from others. answer.c: the requests on them.
 *
 * Locks, in the order in which they may be taken: a file's gate, files_lock, a file's lock, then any of stripes_lock, table_lock, the client's,
 * spill_lock, room_lock (before the next), events_lock (leaves). Nobody waits for the network with any but a gate held, and one of passing_on (after the gates), which
 * waits for the lane of copies only. Of passing_on and taking nobody holds two. */
#ifndef AMFS_FSIO_INTERNAL_H
#define AMFS_FSIO_INTERNAL_H

#include "common/bytes.h"
#include "common/digests.h"
#include "common/thread.h"
#include "fsio.h"
#include "peers/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    FSIO_FILE_BUCKETS = 4096,
    FSIO_OPEN_MAX = 512,        /* descriptors kept for open local files; more are closed and opened again as needed */
    FSIO_THREADS_MAX = 64,
    FSIO_STRIPE_BYTES = 512 << 10, /* where nobody said how long a stripe is */
    FSIO_NAME_BYTES = 64,       /* a part's path below root */
    FSIO_TARGET_BYTES = 112,    /* likewise of a spilled one */
    FSIO_RESCAN_SECONDS = 30,
    FSIO_COPY_LOCKS = 64,
    FSIO_CHANGING = 4096, /* stripes that share one are taken for one: a digest is taken later then */
    FSIO_WRITTEN = 1 << 16, /* likewise whole parts, which may be open for long */
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

/* Some bytes of one stripe, and where they go. */
struct fsio_segment {
    uint64_t index, at;
    char *to;
    size_t count;
};

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
    _Atomic uint64_t since; /* STRIPED: nothing of it was lost up to this version of the table */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int readers, writers; /* handles of this node */
    bool told_reading, told_writing; /* REMOTE: what its node knows of that; under the gate */
    struct fsio_users *users;
    _Atomic uint64_t size; /* STRIPED: the size; LOCAL: the highest end accounted for */
    int fd; /* LOCAL; -1: not open at the moment */
    bool fd_writes;
    int busy; /* uses of fd under way */
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

/* Which inodes have stripes here, so that deleting a file of one part does not read a directory. Open addressing, 0: free. */
struct fsio_stripes {
    struct fsio_stripes_slot {
        uint64_t ino;
        uint64_t end; /* highest index + 1 */
        bool copied;
    } *slots;
    size_t room, count;
};

struct fsio {
    int32_t node;
    int root_fd;
    int store_fd; /* where the runs keep their files; -1: there are none */
    char *spill;  /* where symbolic links of the store may lead: the node's spill directory, absolute; NULL: there is none */
    uint64_t spill_above, spill_most; /* bytes in memory above which parts are spilled (0: none are), and how many may be (0: any) */
    pthread_mutex_t spill_lock; /* a part and the link that stands for it change places, or one of them is removed or replaced */
    atomic_llong spilled; /* bytes */
    atomic_uint spill_count;
    atomic_bool pressed; /* somebody is at it */
    _Atomic int64_t press_vain_until_ms;
    bool (*_Atomic used_elsewhere)(struct fsio *io, uint64_t ino);
    int event_fd;
    atomic_bool stopping;

    pthread_mutex_t files_lock;
    struct fsio_file *files[FSIO_FILE_BUCKETS];
    pthread_mutex_t ends_lock; /* after all others */
    struct fsio_end *ends;
    atomic_bool keeps_ends;
    atomic_int open_fds;
    void (*leave_file)(struct fsio_file *file); /* nobody has it open any more, and it is about to be freed */

    pthread_mutex_t stripes_lock;
    struct fsio_stripes stripes;

    bool own_mount; /* root, or the directory above it, is a mount of its own: the kernel counts for us */
    uint64_t limit;
    atomic_llong used, parts; /* own_mount: used when last asked */
    atomic_llong since; /* own_mount: bytes added since */
    atomic_llong held; /* otherwise: bytes of the limit that are not parts (fsio_hold), */
    atomic_llong held_spilled; /* and those of the spill directory */
    _Atomic int64_t asked_ms; /* own_mount: when */
    pthread_mutex_t rescan_lock;
    _Atomic int64_t scanned_ms, scan_took_ms, exact_ms; /* when last; for how long; when last without anything accounted for meanwhile */
    _Atomic uint64_t accounts; /* how often something was */
    atomic_int changing; /* how many are at what is not accounted for yet, or not there yet */

    pthread_mutex_t room_lock;
    pthread_cond_t room_changed;
    int room_patience_ms; /* 0: nobody makes room */
    uint64_t room_asked, room_answered;
    _Atomic uint64_t room_made; /* how often something went */
    _Atomic int64_t removed_since_ms;
    _Atomic uint64_t removed; /* bytes that were deleted while somebody waited, since then */
    unsigned removing; /* large parts whose names have gone, and whose bytes go */
    int64_t room_asked_ms; /* when that was last asked */
    int64_t room_vain_until_ms; /* nothing could go, and so soon nothing will; 0: the last time something could */

    pthread_mutex_t table_lock;
    int32_t *owners;
    bool *moving;
    size_t partitions;
    bool others; /* a partition belongs to another node */
    uint64_t *lost; /* of each partition: the version of the table with which its stripes were lost; 0: never */
    uint64_t *lost_copies; /* likewise: those that have copies, too */
    struct fsio_copies *copies; /* of each partition; NULL: nothing has been said of them */
    _Atomic uint64_t lost_version; /* the last of them */

    pthread_mutex_t passing_on[FSIO_COPY_LOCKS]; /* by stripe: its owner changes it and its copies */
    pthread_mutex_t taking[FSIO_COPY_LOCKS];     /* by stripe: a copy of it here changes */

    pthread_rwlock_t writes; /* shared: a stripe here is being written; alone: wait until none is that began before */

    struct data_client client;
    struct data_server *server; /* NULL: not listening */
    struct data_rpc_handler rpc_handler; /* attend NULL: there is none */

    pthread_mutex_t events_lock;
    struct fsio_event *events, **events_tail;

    pthread_mutex_t carriers_lock;
    pthread_cond_t carriers_work;
    pthread_t carrier[8];
    int carriers, carriers_idle, carry_count;
    struct fsio_piece *carry_head, **carry_tail;
    struct spare *spares;
    int spare_count;
    atomic_llong piece_bytes;

    struct fsio_workers workers, fetchers; /* fetchers: for the runs, so that neither has to wait for the other's */
    atomic_uint fresh_count;

    uint64_t digests, stripe_digests; /* the numbers of its whole parts and of its stripes among all whose digests are kept */
    bool checks;                      /* digests of parts are taken: there are other nodes, or there may be */
    atomic_int stripe_changes[FSIO_CHANGING]; /* by stripe: so many are under way here */
    atomic_int writing[FSIO_WRITTEN]; /* by who has no handle here */
    _Atomic uint64_t stripes_queued[FSIO_CHANGING]; /* numbers (fsio_digests_key) of stripes whose digest will be taken */
    struct fsio_damage *damages; /* under events_lock */

    pthread_mutex_t keeper_lock;
    pthread_cond_t keeper_wake;
    pthread_t keeper;
    bool keeper_runs;
};

/* state/events.c */
int64_t fsio_now_ns(void); /* since 1970 */
void fsio_fair_lock(pthread_rwlock_t *lock);
void fsio_tell(struct fsio *io, enum fsio_event_kind kind, uint64_t serial, uint64_t ino, uint64_t size, int error);
int fsio_result(struct fsio *io, int error); /* what the caller of fsio is told: no DATA_BROKEN, ECANCELED once stopped */

/* state/table.c */
int32_t fsio_stripe_owner(struct fsio *io, uint64_t ino, uint64_t index); /* -1: no table */
bool fsio_stripe_ours(struct fsio *io, uint64_t ino, uint64_t index, bool *moving); /* by our table */
bool fsio_any_moving(struct fsio *io);
size_t fsio_partition_of(const struct fsio *io, uint64_t ino, uint64_t index); /* with table_lock held and a table there */
bool fsio_has_others(struct fsio *io);

/* state/lost.c */
bool fsio_stripes_lost(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t from, uint64_t end,
                       uint64_t since); /* of those bytes, after that version */
bool fsio_file_lost(struct fsio_file *file);
void fsio_not_lost(struct fsio_file *file, uint64_t since, bool lost); /* what is known of it from now on */

/* store/count.c */
void fsio_count_begin(struct fsio *io);
bool fsio_room(struct fsio *io, uint64_t more); /* is there room for so many more bytes */
bool fsio_reserve(struct fsio *io, uint64_t more); /* likewise, and accounts for them */
void fsio_account(struct fsio *io, int64_t bytes);
/* Around what changes how much is there and accounts for it: a count that is made meanwhile is not exact. */
void fsio_change_begins(struct fsio *io);
void fsio_change_ends(struct fsio *io);
void fsio_rescan(struct fsio *io); /* count again what is there; nothing to do where the kernel counts */
int64_t fsio_allocated(int fd); /* bytes */

/* store/part_digests.c */
struct digests_key fsio_digests_key(const struct fsio *io, uint64_t ino, int64_t index);
void fsio_digest_later(struct fsio *io, uint64_t ino, int64_t index); /* it is finished here */
/* EBUSY: it is being written; EAGAIN: was */
int fsio_digest_learn(struct fsio *io, uint64_t ino, int64_t index, int part, uint8_t digest[XXH3_BYTES]);
void fsio_digest_forget(struct fsio *io, uint64_t ino); /* it is written from now on, or has gone */
void fsio_digest_closed(struct fsio *io, uint64_t ino); /* somebody writes it no longer */
/* Around each change of a stripe: its digest is forgotten before, and taken later. */
void fsio_stripe_changes(struct fsio *io, uint64_t ino, uint64_t index);
void fsio_stripe_changed(struct fsio *io, uint64_t ino, uint64_t index);
/* Is what lies here damaged? Then the poll loop is told. `path`: of a file of the store; NULL: it is a part. */
enum digests_verdict fsio_check(struct fsio *io, int file, uint64_t ino, int64_t index, const char *path);
void fsio_tell_damage(struct fsio *io, uint64_t ino, int64_t index, const char *path); /* ino 0: of that file of the store */

/* store/spilled.c */
bool fsio_spills(const struct fsio *io);
void fsio_spill_lock(struct fsio *io); /* where parts are spilled */
void fsio_spill_unlock(struct fsio *io);
void fsio_pressed(struct fsio *io, uint64_t used); /* so much is in memory: too much? */
void fsio_press_ended(struct fsio *io, uint64_t freed);
bool fsio_spilled_to(struct fsio *io, const char *name, char *target); /* FSIO_TARGET_BYTES, below root; false: no link stands there */
void fsio_spilled_drop(struct fsio *io, const char *target); /* nothing leads there any more */
int fsio_spilled_open(struct fsio *io, const char *name); /* to be read; or a negative errno */
/* store/spill.c */
int fsio_bring_back(struct fsio_file *file,
                    bool empty); /* with the gate held alone. `empty`: without its content. ENOSPC; EIO: it cannot be read */

/* store/names.c */
typedef bool (*fsio_visitor)(void *context, int directory, const char *name, uint64_t ino, int64_t index);
void fsio_walk(struct fsio *io, fsio_visitor visit, void *context); /* until a directory's visit answers false */
bool fsio_walk_directory(struct fsio *io, unsigned number, fsio_visitor visit,
                         void *context); /* one of 256. False: it has answered false */
int fsio_note_stripe(struct fsio *io, uint64_t ino, uint64_t index); /* known before it is there: a deletion must find it */
int fsio_mark_copied(struct fsio *io, uint64_t ino, uint64_t index); /* likewise: it has copies, or is one */
enum { FSIO_PROBE_MAX = 4096 }; /* stripes of a file that are looked for one by one; with more its directory is read */
uint64_t fsio_stripes_end(struct fsio *io, uint64_t ino); /* highest index of a stripe that may be here, + 1 */
void fsio_stripes_cut(struct fsio *io, uint64_t ino, uint64_t end); /* no stripe of it from that index on is here any more */
void fsio_part_name(uint64_t ino, int64_t index, char *to); /* FSIO_NAME_BYTES */
void fsio_aside_name(uint64_t ino, unsigned number, char *to); /* likewise: that is no part's, for what comes or goes */
struct stat;
void fsio_to_stat(const struct stat *found, struct data_stat *stat);

/* store/parts.c */
int fsio_parts_begin(struct fsio *io, const char *root, char *error, size_t error_size); /* opens root, makes its directories, counts */
void fsio_parts_end(struct fsio *io);
/* A descriptor that writes keeps digests from being taken. */
enum part_use { PART_READ, PART_WRITE, PART_MAKE /* to be written, and made if it is not there */ };
int fsio_part_open(struct fsio *io, uint64_t ino, int64_t index,
                   enum part_use use); /* descriptor, or a negative errno; of what is spilled: to be read */
int fsio_whole_open(struct fsio *io, uint64_t ino, enum part_use use, bool *spilled);
void fsio_fresh_name(struct fsio *io, uint64_t ino, char *to); /* that is no part's */
uint64_t fsio_stripes_next(struct fsio *io, uint64_t ino,
                           uint64_t from); /* lowest index of one here, from that on; UINT64_MAX: there is none */
int fsio_stripes_sum(struct fsio *io, uint64_t ino, struct data_stat *sum); /* of those here: how many in size, blocks, newest times */
/* A part that grows under another name, and its end (fsio_fresh_end). */
int fsio_fresh_open(struct fsio *io, uint64_t ino, char *name); /* descriptor, or a negative errno; name: FSIO_NAME_BYTES */

/* store/removal.c */
void fsio_whole_remove(struct fsio *io, uint64_t ino); /* of a file that is open, which accounts for it */
/* It gets the part's name, or is gone if `error` is not 0. Answers errors. */
/* `digest`: of its content; NULL: it is taken later */
int fsio_fresh_end(struct fsio *io, int part, const char *name, uint64_t ino, int64_t index, const uint8_t *digest, int error);
int fsio_part_remove(struct fsio *io, uint64_t ino, int64_t index); /* one part of a file that is not open */

/* store/room.c: may wait, for the poll loop of this node */
void fsio_removing(struct fsio *io, int by); /* so many more large parts whose bytes go, for which it waits */
/* For who found none, though `room_made` was `since` before he tried. False: there is nothing here that could go. If it was so a moment ago: who is patient
 * asks again a little later, others take it for the answer. */
bool fsio_make_room(struct fsio *io, uint64_t more, uint64_t since, bool patient);
bool fsio_reserve_or_make(struct fsio *io, uint64_t more);
bool fsio_room_or_make(struct fsio *io, uint64_t more);
int fsio_refused(struct fsio *io, int error, uint64_t more,
                 uint64_t since); /* a stripe was not written: ESTALE if it is worth another try by now, else `error` */
void fsio_room_stop(struct fsio *io);

/* state/files.c */
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

/* state/ends.c */
void fsio_end_keep(struct fsio_file *file);
bool fsio_end_lost(struct fsio *io, uint64_t ino, uint64_t *since, bool *lost); /* of a kept end; false: there is none */
void fsio_end_written(struct fsio *io, uint64_t ino, int64_t written_ns); /* its time was set by hand since */
void fsio_ends_free(struct fsio *io);

/* handle.c */
void fsio_file_leave(struct fsio_file *file); /* fsio.leave_file */
int fsio_file_read(struct fsio_file *file, struct fsio_stream *stream, void *to, size_t count, uint64_t offset, size_t *got);
int fsio_file_write(struct fsio_file *file, const void *from, size_t count, uint64_t offset);
int fsio_file_truncate(struct fsio_file *file, uint64_t size);
int fsio_file_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_file_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_file_stat(struct fsio_file *file, struct data_stat *stat);
int fsio_file_flush(struct fsio_file *file, uint64_t *seen);
int fsio_file_error(struct fsio_file *file, uint64_t *seen); /* a failure of writing behind that is news to the asker */

/* store/local.c, store/fds.c: with the gate held */
bool fsio_file_deleted(struct fsio *io, uint64_t ino); /* its part goes. Does an open file hold on to it, and account for it? */
int fsio_fd_get(struct fsio_file *file, enum part_use use, int *fd); /* of a LOCAL file; give it back with fsio_fd_put */
void fsio_fd_put(struct fsio_file *file);
int fsio_local_open(struct fsio_file *file, enum part_use use);
void fsio_local_written(struct fsio_file *file); /* nobody writes it any more */
int fsio_local_read(struct fsio_file *file, char *to, size_t count, uint64_t offset, size_t *got);
int fsio_local_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset, size_t *done); /* *done: how far it came */
int fsio_local_truncate(struct fsio_file *file, uint64_t size);
int fsio_local_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_local_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_local_stat(struct fsio_file *file, struct data_stat *stat);
bool fsio_local_replaced(struct fsio_file *file); /* another file stands under its name by now: a newer copy */
void fsio_local_leave(struct fsio_file *file); /* it is no local file any more: descriptor and account */
void fsio_local_adopted(struct fsio *io, uint64_t ino, int64_t bytes); /* another file, of which `used` has so many, is its part by now */
void fsio_local_lose(struct fsio_file *file); /* its part was removed, and nothing stands for it */

/* remote.c: with the gate held */
int fsio_remote_use(struct fsio_file *file, bool opening); /* tell the node what use there is of it here, if that changed */
void fsio_remote_leave(struct fsio_file *file); /* there is none any more */
int fsio_remote_read(struct fsio_file *file, char *to, size_t count, uint64_t offset, size_t *got);
int fsio_remote_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset);
int fsio_remote_truncate(struct fsio_file *file, uint64_t size);
int fsio_remote_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_remote_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_remote_stat(struct fsio_file *file, struct data_stat *stat);
int fsio_remote_flush(struct fsio_file *file);
/* users.c */
int fsio_file_used(struct fsio *io, int32_t node, uint64_t ino, int readers, int writers); /* the other side of fsio_remote_use */
bool fsio_file_uses(struct fsio_file *file, int32_t node, int *error);
int fsio_file_used_flush(struct fsio_file *file, int32_t node);
void fsio_files_forget(struct fsio *io, int32_t node); /* it uses none any more */

/* striped/held.c */
bool fsio_takes_writes(struct fsio *io, uint64_t ino, uint64_t index); /* by our table the stripe is of this node, and stays here */
uint64_t fsio_part_growth(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, size_t count); /* how many bytes longer it becomes */
int fsio_part_write(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count,
                    int64_t *grown); /* bytes that it takes beyond before */
int fsio_stripe_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from,
                     size_t count); /* of this node; asks for no limit. ESTALE: it is not */
int fsio_part_punch(struct fsio *io, uint64_t ino, int64_t index, uint64_t offset, uint64_t length);
int fsio_part_cut(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size); /* stripes of a file that has now `size` bytes */

/* striped/owners.c */
/* `copied`: if its owner dies its heir has it. Zeros where nothing is. */
int fsio_stripe_read(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, char *to, size_t count);
int fsio_stripe_write(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from, size_t count);
/* The lowest index of a stripe that is anywhere, from `index` on, as far as `last`; above that: there is none. 0 or an errno. */
int fsio_next_stripe(struct fsio *io, uint64_t ino, uint64_t index, uint64_t last, bool copied, uint64_t *next);
int fsio_segments_read(struct fsio *io, uint64_t ino, bool copied, const struct fsio_segment *segments, size_t count);
int fsio_stripes_trim(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t size, uint64_t old);
int fsio_stripe_punch(struct fsio_file *file, uint64_t index, uint64_t at, uint64_t count);
int fsio_stripes_total(struct fsio_file *file, struct data_stat *sum); /* blocks and times. Shared, the gate is enough */

/* striped/pieces.c, striped/striped.c: with the gate held */
void fsio_striped_touch(struct fsio_file *file); /* it is written now */
void fsio_striped_looked_at(struct fsio_file *file); /* it is read now */
void fsio_striped_begin(struct fsio_file *file, int64_t written_ns); /* when it was that its record has not heard of yet; 0: it has */
void fsio_carriers_stop(struct fsio *io);
void fsio_spares_free(struct fsio *io);
bool fsio_striped_lends(const struct fsio_file *file, size_t count); /* all of so much at once */
int fsio_striped_lend(struct fsio_file *file, struct fsio_stream *stream, char *to, size_t count, uint64_t offset, struct fsio_lent *lent);
void fsio_striped_return(struct fsio_file *file, struct fsio_lent *lent);
int fsio_striped_read(struct fsio_file *file, struct fsio_stream *stream, char *to, size_t count, uint64_t offset, size_t *got);
int fsio_striped_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset);
int fsio_striped_truncate(struct fsio_file *file, uint64_t size);
int fsio_striped_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_striped_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_striped_stat(struct fsio_file *file, struct data_stat *stat);
void fsio_striped_settle(struct fsio_file *file); /* what is written behind has reached its owners, or failed */
void fsio_striped_leave(struct fsio_file *file); /* settle, and forget what was read ahead */

/* striped/copies.c */
void fsio_copies_begin(struct fsio *io);
void fsio_copies_end(struct fsio *io);
bool fsio_has_copies(struct fsio *io); /* has anything been said of copies */
int fsio_stripe_put(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from,
                    size_t count); /* of this node, with its copies if it has any, and as the limit allows; ESTALE: it is not */
int fsio_part_trim(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size); /* stripes here of a file that has now `size` bytes */
int fsio_copied_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from,
                     size_t count); /* as fsio_stripe_keep, after its copies */
/* Its copies alone, before there is anything here. ESTALE, ENODATA: a backup is not in step. */
int fsio_copied_prepare(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count);
int fsio_copied_punch(struct fsio *io, uint64_t ino, int64_t index, uint64_t offset, uint64_t length);
int fsio_push_now(struct fsio *io, uint64_t ino, uint64_t index, int32_t node);
/* For `owner`, which sends it. ESTALE: by our table it is not. ENODATA: there is nothing of the stripe that could be changed. */
int fsio_copy_change(struct fsio *io, int32_t owner, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count,
                     bool in_step);
int fsio_copy_whole(struct fsio *io, int32_t owner, int part, const char *name, uint64_t ino, uint64_t index, const uint8_t *digest,
                    int error); /* as fsio_fresh_end */
/* While the owner does that with a stripe nobody changes it. ESTALE: by our table it is not the owner. */
int fsio_undisturbed(struct fsio *io, uint64_t ino, uint64_t index, int (*act)(struct fsio *io, void *context), void *context);

/* striped/spread.c */
int fsio_spread(struct fsio_file *file, bool tell); /* LOCAL -> STRIPED, with the gate held alone */
int fsio_gather_now(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size,
                    uint64_t since); /* EIO if some of it was lost after that version */

/* state/workers.c */
void fsio_workers_begin(struct fsio *io);
int fsio_workers_start(struct fsio_workers *workers, int threads); /* as many as that in all. 0 or errno */
void fsio_workers_stop(struct fsio *io);
void fsio_workers_end(struct fsio *io);
bool fsio_works(struct fsio *io); /* there are workers */
bool fsio_enqueue(struct fsio_workers *workers, struct fsio_job *job); /* false: fsio has been stopped */
int fsio_later(struct fsio *io, void (*act)(void *context), void *context); /* by a worker, unless fsio is stopped first. 0 or errno */

/* server.c: the third lane */
void data_set_rpc_handler(struct fsio *io, const struct data_rpc_handler *handler); /* before the first connection */
void *data_rpc_context(struct fsio *io); /* of the handler; NULL: there is none */
int data_rpc_open(struct fsio *io, int32_t node, int lane, void *link, struct data_rpc **rpc, int *fd); /* connects: waits. 0 or errno */
void data_rpc_listen(struct fsio *io, struct data_rpc *rpc); /* from now on answers are attended to, until it has ended; takes it over */

/* server.c */
int data_server_open(struct fsio *io, const char *address, char *error, size_t error_size);
void data_server_dismiss(struct fsio *io, int32_t node); /* close the connections from that node */
void data_server_stop(struct fsio *io); /* waits for its threads */
void data_server_free(struct fsio *io);

/* answer.c */
/* Answer one request that came on `fd` from a node or a client. False: close the connection. `buffer`: DATA_CHUNK bytes. */
bool fsio_answer(struct fsio *io, int fd, uint64_t peer, int lane, const uint8_t *request, char *buffer);

#endif
