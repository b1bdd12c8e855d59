/* Parts of files on this node. Lower files first:
 * names.c: their names, which stripes are here. spilled.c: links that stand for what was spilled. count.c: the memory that parts take. room.c: making room.
 * parts.c: opening them. part_digests.c: their digests. fds.c: descriptors of open files. removal.c: parts that go, or take the place of others.
 * spill.c: whole parts to a disk, and back. local.c: reading and writing. small.c: parts of a few KiB. */
#ifndef AMFS_DATA_STORE_H
#define AMFS_DATA_STORE_H

#include "data/state/state.h"

enum {
    FSIO_OPEN_MAX = 512,        /* descriptors kept for open local files; more are closed and opened again as needed */
    FSIO_NAME_BYTES = 64,       /* a part's path below root */
    FSIO_TARGET_BYTES = 112,    /* likewise of a spilled one */
    FSIO_CHANGING = 4096, /* stripes that share one are taken for one: a digest is taken later then */
    FSIO_WRITTEN = 1 << 16, /* likewise whole parts, which may be open for long */
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

/* A part that grows under another name, which no count finds. Its room is reserved until it ends. */
struct fsio_fresh {
    struct fsio *io;
    uint64_t ino;
    int fd;
    uint64_t reserved; /* bytes of `used`, and of `fresh`, that are its own */
    char name[FSIO_NAME_BYTES];
};

struct fsio_store {
    int root_fd;
    int store_fd; /* where the runs keep their files; -1: there are none */
    char *spill;  /* where symbolic links of the store may lead: the node's spill directory, absolute; NULL: there is none */
    uint64_t spill_above, spill_most; /* bytes in memory above which parts are spilled (0: none are), and how many may be (0: any) */
    pthread_mutex_t spill_lock; /* a part and the link that stands for it change places, or one of them is removed or replaced */
    atomic_llong spilled; /* bytes */
    atomic_uint spill_count;
    atomic_bool pressed; /* somebody is at it */
    _Atomic int64_t press_vain_until_ms;
    atomic_int open_fds;
    atomic_uint fresh_count;

    pthread_mutex_t stripes_lock;
    struct fsio_stripes stripes;

    bool own_mount; /* root, or the directory above it, is a mount of its own: the kernel counts for us */
    uint64_t limit;
    atomic_llong used, parts; /* own_mount: used when last asked */
    atomic_llong since; /* own_mount: bytes added since */
    atomic_llong fresh; /* bytes of `used` that are reserved for parts that grow under other names */
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
    uint64_t looked_at; /* the file of which the thread that takes digests has a part open, 0: none */
    bool looked_at_goes; /* it was removed meanwhile, and counts as `removing` */
    int64_t room_asked_ms; /* when that was last asked */
    int64_t room_vain_until_ms; /* nothing could go, and so soon nothing will; 0: the last time something could */

    uint64_t digests, stripe_digests; /* the numbers of its whole parts and of its stripes among all whose digests are kept */
    bool checks;                      /* digests of parts are taken: there are other nodes, or there may be */
    atomic_int stripe_changes[FSIO_CHANGING]; /* by stripe: so many are under way here */
    atomic_int writing[FSIO_WRITTEN]; /* by who has no handle here */
    _Atomic uint64_t stripes_queued[FSIO_CHANGING]; /* numbers (fsio_digests_key) of stripes whose digest will be taken */
    struct fsio_damage *damages; /* under events_lock */
};

/* names.c */
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

/* spilled.c */
bool fsio_spills(const struct fsio *io);
void fsio_spill_lock(struct fsio *io); /* where parts are spilled */
void fsio_spill_unlock(struct fsio *io);
void fsio_pressed(struct fsio *io, uint64_t used); /* so much is in memory: too much? */
void fsio_press_ended(struct fsio *io, uint64_t freed);
bool fsio_spilled_to(struct fsio *io, const char *name, char *target); /* FSIO_TARGET_BYTES, below root; false: no link stands there */
void fsio_spilled_drop(struct fsio *io, const char *target); /* nothing leads there any more */
int fsio_spilled_open(struct fsio *io, const char *name); /* to be read; or a negative errno */

/* count.c */
void fsio_count_begin(struct fsio *io);
bool fsio_room(struct fsio *io, uint64_t more); /* is there room for so many more bytes */
bool fsio_reserve(struct fsio *io, uint64_t more); /* likewise, and accounts for them */
void fsio_account(struct fsio *io, int64_t bytes);
/* Around what changes how much is there and accounts for it: a count that is made meanwhile is not exact. */
void fsio_change_begins(struct fsio *io);
void fsio_change_ends(struct fsio *io);
void fsio_rescan(struct fsio *io); /* count again what is there; nothing to do where the kernel counts */
int64_t fsio_allocated(int fd); /* bytes */

/* room.c: may wait, for the poll loop of this node */
void fsio_removing(struct fsio *io, int by); /* so many more large parts whose bytes go, for which it waits */
/* The thread that takes digests opens a part of this file, and has closed it. A part that is removed in between takes its bytes until then. */
void fsio_look_begins(struct fsio *io, uint64_t ino);
void fsio_look_ends(struct fsio *io);
void fsio_look_goes(struct fsio *io, uint64_t ino); /* a part of it was removed */
/* For a caller that found none, though `room_made` was `since` before it tried. False: there is nothing here that could go. If it was so a moment ago: a
 * patient caller asks again a little later, others take it for the answer. */
bool fsio_make_room(struct fsio *io, uint64_t more, uint64_t since, bool patient);
bool fsio_reserve_or_make(struct fsio *io, uint64_t more);

/* A caller that finds no room is refused, or room is made for it; one that is not patient has other ways. */
enum fsio_asking { ROOM_AT_ONCE, ROOM_MADE, ROOM_PATIENT };

bool fsio_fresh_room(struct fsio_fresh *fresh, uint64_t bytes, enum fsio_asking how); /* reserve for so many bytes in all */
int fsio_refused(struct fsio *io, int error, uint64_t more,
                 uint64_t since); /* a stripe was not written: ESTALE if it is worth another try by now, else `error` */
void fsio_room_stop(struct fsio *io);

/* parts.c */
bool fsio_store_make(struct fsio *io, uint64_t limit, bool checks); /* false: no memory */
void fsio_store_free(struct fsio *io);
/* Opens root, makes its directories, counts; and the store of the runs. 0 or -1, with a text. */
int fsio_store_open(struct fsio *io, const char *root, const char *of_runs, char *error, size_t error_size);
/* A descriptor that writes keeps digests from being taken. */
enum part_use { PART_READ, PART_WRITE, PART_MAKE /* to be written, and made if it is not there */ };
int fsio_part_open(struct fsio *io, uint64_t ino, int64_t index,
                   enum part_use use); /* descriptor, or a negative errno; of what is spilled: to be read */
int fsio_whole_open(struct fsio *io, uint64_t ino, enum part_use use, bool *spilled);
void fsio_fresh_name(struct fsio *io, uint64_t ino, char *to); /* that is no part's */
uint64_t fsio_stripes_next(struct fsio *io, uint64_t ino,
                           uint64_t from); /* lowest index of one here, from that on; UINT64_MAX: there is none */
int fsio_stripes_sum(struct fsio *io, uint64_t ino, struct data_stat *sum); /* of those here: how many in size, blocks, newest times */
int fsio_fresh_open(struct fsio *io, uint64_t ino, struct fsio_fresh *fresh); /* 0 or an errno: then nothing is to be ended */

/* part_digests.c */
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

/* removal.c */
void fsio_whole_remove(struct fsio *io, uint64_t ino); /* of a file that is open, which accounts for it */
/* It gets the part's name, or is gone if `error` is not 0. `digest`: of its content; NULL: it is taken later. Answers errors. */
int fsio_fresh_end(struct fsio_fresh *fresh, int64_t index, const uint8_t *digest, int error);
int fsio_part_remove(struct fsio *io, uint64_t ino, int64_t index); /* one part of a file that is not open */

/* local.c, fds.c: with the gate held */
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
bool fsio_local_there(const struct fsio_file *file); /* does any file stand under its name? */
void fsio_local_leave(struct fsio_file *file); /* it is no local file any more: descriptor and account */
void fsio_local_adopted(struct fsio *io, uint64_t ino, int64_t bytes); /* another file, of which `used` has so many, is its part by now */
void fsio_local_lose(struct fsio_file *file); /* its part was removed, and nothing stands for it */

/* spill.c */
int fsio_bring_back(struct fsio_file *file,
                    bool empty); /* with the gate held alone. `empty`: without its content. ENOSPC; EIO: it cannot be read */

#endif
