/* Files open on this node: one record each for all their users. A user counts its use in the record when it begins and when it ends, so each sees whether
 * another one uses the file, and nobody has to be asked.
 *
 * A record is there while it says something, or somebody holds it. Two locks: that of the mounts (opens_mounts_lock), which a mount holds while it opens or
 * closes a file, is taken before any other; that of the records is a leaf. */
#ifndef AMFS_OPENS_H
#define AMFS_OPENS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum open_user {
    OPEN_MOUNTS, /* openings by the kernels of all mounts of this node */
    OPEN_HANDLES, /* handles of this node's data: of mounts to which the kernel does not pass the file, of clients, of tasks, and the one for other nodes */
    OPEN_NODES, /* other nodes through this one */
    OPEN_USERS
};

struct open_record {
    struct open_record *next; /* in its bucket */
    uint64_t ino;
    int references;
    /* To read and to write. A user changes its own with a lock of its own held, too (mounts: theirs; the data: that of its file): with that it may look. */
    int counts[OPEN_USERS][2];
    bool mounted; /* a mount has it open, or is about to; changed with the mounts' lock held, as what follows */
    bool tell_loop; /* the mounts tell the poll loop when they close it: it has opened it for them, or has seen that it is open */
    /* The file is recorded elsewhere, and mounts have opened it there without the poll loop: their files, and those to write. Their mounts tell its shard
     * when they close them, unless the poll loop uses it, too: each must know of the other, for the last one tells. */
    int direct, direct_writers;
    int telling; /* closings that the shard has not answered */
    bool claimed; /* the poll loop has it open, or is about to */
};

struct opens; /* all of them */

struct opens *opens_new(void); /* NULL: no memory */
struct opens *opens_share(struct opens *opens); /* one more owner, which drops it */
void opens_drop(struct opens *opens);
pthread_mutex_t *opens_mounts_lock(struct opens *opens);

struct open_record *opens_hold(struct opens *opens, uint64_t ino); /* until opens_release; NULL: no memory */
void opens_release(struct opens *opens, struct open_record *record);
struct open_record *opens_mount(struct opens *opens, uint64_t ino); /* likewise for mounts: a file is open in them, until opens_unmount */
void opens_unmount(struct opens *opens, struct open_record *record);
void opens_count(struct opens *opens, struct open_record *record, enum open_user user, bool writing, int by);
void opens_tell_loop(struct opens *opens, struct open_record *record); /* with the mounts' lock held */

/* The record of a file, at one moment. The second is for the poll loop: from then on mounts tell it when they close the file. */
struct open_record opens_look(struct opens *opens, uint64_t ino);
struct open_record opens_look_for_loop(struct opens *opens, uint64_t ino);
bool opens_is_used(struct opens *opens, uint64_t ino); /* by anybody, or about to be */
static inline int open_count(const struct open_record *record, enum open_user user) {
    return record->counts[user][false] + record->counts[user][true];
}
static inline bool open_data_writes(const struct open_record *record) {
    return record->counts[OPEN_HANDLES][true] + record->counts[OPEN_NODES][true] > 0;
}
static inline bool open_data_uses(const struct open_record *record) {
    return open_count(record, OPEN_HANDLES) + open_count(record, OPEN_NODES) > 0;
}

/* ── files that are recorded elsewhere ── */
int opens_use_directly(struct opens *opens, uint64_t ino, int files, int writers); /* more or fewer; 0 or ENOMEM */
/* A mount has the shard make a file, to be written here: its record may be there before the file counts as open. */
void opens_begin_making(struct opens *opens);
void opens_end_making(struct opens *opens); /* by now it counts as open, or is closed, or was not made */
unsigned opens_making(const struct opens *opens); /* how many are under way */
bool opens_tell_directly(struct opens *opens, uint64_t ino); /* begin; false: the poll loop must tell, it uses it, too */
/* Nobody else on this node brings, opens or closes the file by another way until opens_told_directly. False: somebody is about to. */
bool opens_bring_directly(struct opens *opens, uint64_t ino);
void opens_told_directly(struct opens *opens, uint64_t ino); /* the question that was begun is answered */
int opens_claim(struct opens *opens, uint64_t ino, bool claimed); /* 0 or ENOMEM */

#endif
