/* A file that is open on this node, for all its users: its record, and the table of all of them. state.h says in which order locks are taken. */
#ifndef AMFS_DATA_FILE_H
#define AMFS_DATA_FILE_H

#include "data/fsio.h"
#include "data/peers/client.h"
#include "open/opens.h"

#include <pthread.h>
#include <stdatomic.h>

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
    struct open_record *open; /* its counts of handles and of other nodes change with `lock` held */
    int references; /* under files_lock: handles, other nodes, requests on their way, and an end that is kept */
    int64_t ended_ms; /* STRIPED, under files_lock: when its end was kept last (ends.c); 0: its record knows it */

    pthread_rwlock_t gate; /* shared: reads and writes; alone: kind and stripe change, truncation */
    _Atomic enum fsio_kind kind; /* changed with the gate held alone, as known, node and stripe */
    bool known; /* false: just made, the fields below say nothing yet */
    atomic_bool serves; /* other nodes may use it through us: known and not REMOTE */
    int32_t node;
    _Atomic uint32_t stripe;
    atomic_bool copied; /* its stripes have copies, or would have */
    atomic_bool torn; /* STRIPED: some of it was lost with a node, and cannot be told from a hole any more */
    _Atomic uint64_t since; /* STRIPED: nothing of it was lost up to this number of losses */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool told_reading, told_writing; /* REMOTE: the uses that its node knows of; under the gate */
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

/* Where a reader has come to: reading ahead follows those that go through a file in order. Unlocked: a lost update costs speed only. */
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

/* files.c */
bool fsio_has_writers(const struct fsio_file *file); /* here or through here; with its lock held */
void fsio_count(struct fsio_file *file, enum open_user user, bool writing, int by); /* likewise */
struct fsio_file *fsio_file_look(struct fsio *io, uint64_t ino); /* with files_lock held: an active file without a reference, or NULL */
struct fsio_file *fsio_file_find(struct fsio *io, uint64_t ino); /* a reference to an active file, or NULL */
struct fsio_file *fsio_file_make(struct fsio *io, uint64_t ino); /* likewise; one without a kind if there is none. NULL: no memory */
void fsio_file_drop(struct fsio_file *file);
bool fsio_file_unlink(
    struct fsio_file *file); /* with files_lock held: a reference less. True: it was the last, and fsio_free_later is due */
void fsio_free_later(struct fsio_file *file); /* by a worker: this can mean to wait for other nodes */
void fsio_drop_later(struct fsio_file *file); /* likewise */
struct fsio_file *fsio_file_enter(struct fsio *io, uint64_t ino); /* with its gate held alone; NULL: somebody has it open */
void fsio_file_exit(struct fsio_file *file);
bool fsio_file_written(struct fsio_file *file);
int64_t fsio_deleted_bytes(struct fsio *io); /* of files that are open, but have no name any more */

/* lost.c */
bool fsio_stripes_lost(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t from, uint64_t end,
                       uint64_t since); /* of those bytes, after that version */
bool fsio_file_lost(struct fsio_file *file);
void fsio_not_lost(struct fsio_file *file, uint64_t since, bool lost); /* the state that is known from now on */

/* ends.c */
void fsio_end_keep(struct fsio_file *file); /* with files_lock held */
bool fsio_file_ended(const struct fsio_file *file); /* likewise: and its record does not know it */
/* A program opens it. True: this node knows its end, and nobody has written it since. `elsewhere`: it is opened through another node, which knows its end
 * from now on. */
bool fsio_end_holds(struct fsio_file *file, bool elsewhere);
void fsio_ends_forget(struct fsio *io, bool all); /* else those of which nobody is going to say that the record knows them */

#endif
