/* Shared by the files of the metadata shard, in floors; each calls only those before it.
 *   fsmeta_tables.c (memory, hash tables, sets of nodes), fsmeta_places.c (partitions, owners, watchers), fsmeta_xattrs.c, fsmeta_uses.c
 *   the records: fsmeta_entry.c, fsmeta_inode.c, fsmeta_dirs.c; as bytes: fsmeta_records.c; changes, for backups: fsmeta_items.c
 *   fsmeta_read.c (bytes to records), fsmeta_backup.c (who is told), fsmeta_batches.c (of what), fsmeta_shadow.c (being told)
 *   calls: fsmeta_inodes.c, fsmeta_entries.c, fsmeta_xattr.c, fsmeta_copies.c, fsmeta_secure.c, fsmeta_small.c, fsmeta_peer.c (for nodes that ask directly),
 *   fsmeta_rename.c (likewise), fsmeta_moving.c (partitions that come and go), fsmeta_gone.c (partitions and nodes that are gone)
 *   fsmeta.c (making, the table of owners, freeing), fsmeta_check.c
 *
 * Everything below a public function runs with the lock held. */
#ifndef AMFS_FSMETA_INTERNAL_H
#define AMFS_FSMETA_INTERNAL_H

#include "fsmeta.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* ── memory: blocks of up to SLAB_LARGEST bytes from slabs that go back to the system when the last block of one is given back ── */
enum { SLAB_BYTES = 1 << 18, SLAB_STEP = 16, SLAB_CLASSES = 32, SLAB_LARGEST = SLAB_STEP * SLAB_CLASSES };

struct slab;
struct slabs {
    struct slab *open[SLAB_CLASSES]; /* with free blocks, by size */
    uint64_t bytes;                  /* of all slabs */
};

void *fsmeta_slab_take(struct slabs *slabs, size_t size); /* not cleared; NULL: no memory */
void fsmeta_slab_give(struct slabs *slabs, void *block);
void fsmeta_slabs_free(struct slabs *slabs); /* all blocks have been given back */

/* ── hash tables that grow and shrink by one bucket at a time, so that no operation waits for a rehash ── */
struct link {
    struct link *next;
    uint64_t key;
};
struct table {
    struct slabs *slabs;
    struct link ***segments; /* of SEGMENT buckets each */
    size_t segment_room, buckets, count;
};

bool fsmeta_table_init(struct table *table, struct slabs *slabs); /* false: no memory; then it is as if cleared */
void fsmeta_table_free(struct table *table); /* and cleared; the records in it are the caller's */
/* In a cleared table there is nothing to be found, and nothing may be added. */
struct link *fsmeta_table_first(const struct table *table, uint64_t key); /* the first of that key; fsmeta_table_next: the others */
struct link *fsmeta_table_next(const struct link *link);
void fsmeta_table_add(struct table *table, struct link *link); /* cannot fail: without memory for more buckets the chains get longer */
void fsmeta_table_remove(struct table *table, struct link *link);
/* Visits all in no order; those for which `visit` says true are taken out (it may have freed them). */
void fsmeta_table_sift(struct table *table, bool (*visit)(void *context, struct link *link), void *context);
uint64_t fsmeta_table_bytes(const struct table *table); /* beside those in slabs */

/* ── sets of nodes: 0 is the empty one; most hold one node and are no more than this number ── */
typedef uint64_t node_set;

size_t fsmeta_set_count(node_set set);
int32_t fsmeta_set_at(node_set set, size_t index); /* in ascending order */
bool fsmeta_set_has(node_set set, int32_t node);
bool fsmeta_set_only(node_set set, int32_t node); /* nobody else is in it */
int fsmeta_set_add(node_set *set, int32_t node); /* 0 or ENOMEM */
void fsmeta_set_remove(node_set *set, int32_t node);
void fsmeta_set_clear(node_set *set);
bool fsmeta_set_sound(node_set set);

int fsmeta_nodes_reserve(struct meta_nodes *nodes, size_t more);
void fsmeta_nodes_add(struct meta_nodes *nodes, int32_t node); /* once; the room was reserved */

/* ── the records ── */
struct xattr {
    struct xattr *next;
    uint32_t size;
    uint16_t length; /* of the name */
    char bytes[];    /* name, NUL, value */
};

struct entry {
    struct link link; /* key: hash of directory and name */
    uint64_t dir, ino, cursor;
    node_set watchers;
    uint32_t type;
    uint16_t length;
    char name[];
};

/* The entries of one directory that are here, by cursor. Removed ones leave holes until half of it is holes. */
struct slot {
    uint64_t cursor;
    struct entry *entry;
};
struct shelf {
    struct link link; /* key: directory */
    struct slot *slots;
    size_t first, used, room, count; /* slots before `first` are holes; `count` are none */
};

struct inode {
    struct link link; /* key: number */
    uint64_t size, blocks;
    int64_t atime, mtime, ctime;
    int64_t timed, atimed; /* when somebody set mtime and atime while it was being written; 0: nobody did */
    uint32_t mode, nlink, uid, gid, rdev, stripe;
    int32_t writer, rank;
    uint64_t pending;
    uint8_t layout, finished, copies;
    bool lost;    /* META_LOST when nobody writes it: its content was lost with a node */
    bool secured; /* in stripes with copies, or empty: content that a program has closed is recorded while it is written on */
    bool fresh;   /* nobody but its writer has been let in since it was made here, or had anything of it */
    bool copying; /* its writer, this node, has another one keep the content, and waits for the answer */
    uint64_t grant; /* number of the last permission to write it: while it stays the same, the content of a finished file does */
    uint16_t closing; /* times that the poll loop is yet to hear that it was closed here: until it has, nothing is opened past it */
    /* Each node that opened it is a watcher, this node too: it tells whether a copy made since is still good. Nobody tells ourselves. */
    node_set holders, users, watchers;
    struct xattr *xattrs;
    char *target;
};

struct copy {
    struct link link; /* key: number */
    struct meta_attr attr;
    bool replica;
};

struct dir {
    struct link link; /* key: number */
    struct link named; /* key: hash of parent and name */
    struct dir *parent, *child, *next, *previous; /* first child; brothers */
    uint32_t children, mode, uid, gid;
    uint32_t stripe; /* of the rule for new files below it */
    uint8_t layout; /* 255: no rule */
    uint8_t copies; /* of new files below it; 0: no rule */
    bool frozen;
    bool by_hand; /* mtime was set, and nothing is known to have changed since: the next change counts, even if it is earlier */
    int32_t rank;
    uint64_t size, blocks;
    int64_t atime, mtime, ctime;
    int64_t touched; /* when this node last changed entries of it: its home may not have heard of that yet */
    int64_t timed; /* when its times were set last: news of what was changed before that does not change them */
    node_set watchers;
    struct xattr *xattrs;
    uint16_t length;
    char *name;
};

struct name_lock {
    struct link link; /* key: as of the entry */
    uint64_t dir, owner;
    int64_t until_ms; /* 0: its owner unlocks it, or dies */
    uint16_t length;
    char name[];
};

/* ── backups ── the states are those of vocabulary/states.py */
enum shadow_state { SHADOW_NONE, SHADOW_SYNCING, SHADOW_IN_STEP };
struct shadow {
    int32_t source; /* the node that tells of its changes */
    uint8_t state;
};
struct refusal {
    uint64_t number; /* of the item because of which the node that told it is to know */
    uint16_t partition;
};
struct teller {
    struct teller *next;
    int32_t node;
    bool dead; /* nothing of it is taken any more */
    uint64_t number; /* of the next item of it */
    struct refusal *refusals; /* that it may not have heard of */
    size_t refused, room;
};
struct stream;
struct target {
    struct target *next;
    struct stream *stream;
    uint8_t state; /* enum meta_backup_state */
};

enum { STALE_MARKS = 256, ASKING_SLOTS = 256 };

/* The last one that was made here. */
struct spread {
    int32_t manager;
    uint64_t number; /* there */
    size_t count;
    int64_t *answers;
};

struct meta {
    pthread_mutex_t lock;
    pthread_mutex_t spread_lock; /* of the next three; taken before `lock` */
    uint64_t refused; /* questions of it up to this one are too late */
    int32_t manager; /* whose changes of directories are made; -1: nobody's, this node does not know the directories */
    struct spread spread;
    int32_t node;
    atomic_size_t partitions; /* 0 until there is a table; then constant */
    int32_t *owners;
    uint64_t *serials; /* last number given out, by partition */
    bool *moving;
    bool *unsure; /* names of it were lost with their nodes: one that is not there may have been */
    struct shadow *shadows; /* the backups here of the partitions of others */
    struct target **targets; /* nodes that are told of changes of those of here */
    int32_t *backups; /* the one of them that is to stay; -1: nobody */
    struct stream *streams; /* the news for them */
    struct teller *tellers; /* nodes that tell this one */
    bool telling; /* false: between a table and what is to be done by it */
    bool burying; /* between the death of a node and the table without it: nothing is taken as a backup */
    uint64_t ticket; /* of the last change that is told */
    size_t moving_count, mine_count;
    uint64_t version, last_cursor, grants;
    int32_t *shards; /* nodes that have partitions by the table, in order */
    size_t shard_count;
    struct opens *opens;
    struct slabs slabs;
    struct table *entries, *inodes; /* one for each partition, so that one can go without a look at the others; made when first needed */
    struct table shelves, copies, dirs, dir_names, locks;
    atomic_bool copies_wanted;
    atomic_uint fewest; /* holders of a file that was left with too few, since somebody asked; UINT_MAX: none was */
    uint64_t asked[ASKING_SLOTS]; /* how often a node of this slot has begun to watch or use something; the least bits of its number */
    uint64_t stale[STALE_MARKS], stale_count; /* the last marks that became old */
    struct meta_small *small; /* META_SMALL_NOTES, by number; made when first needed */
    uint64_t other_bytes; /* malloc'ed for records: slots, names, targets, attributes */
};

#define RECORD(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))

static inline void enter(struct meta *meta) { pthread_mutex_lock(&meta->lock); }

static inline int leave(struct meta *meta, int result) {
    pthread_mutex_unlock(&meta->lock);
    return result;
}

enum { NO_RULE = 255 };

/* ── fsmeta_places.c ── */
uint64_t fsmeta_name_key(uint64_t dir, const char *name, size_t length);
size_t fsmeta_partition_of_key(const struct meta *meta, uint64_t key);
size_t fsmeta_partition_of_ino(const struct meta *meta, uint64_t ino);
struct table *fsmeta_entries_of(const struct meta *meta, uint64_t key);
struct table *fsmeta_inodes_of(const struct meta *meta, uint64_t ino);
bool fsmeta_is_ready(struct meta *meta, struct table *table); /* it can be added to; false: no memory */
void fsmeta_sift_partitions(struct meta *meta, struct table *tables, bool (*visit)(void *context, struct link *link), void *context);
size_t fsmeta_count_partitions(const struct meta *meta, const struct table *tables); /* records in all of them */
bool fsmeta_owned_by_table(const struct meta *meta, size_t partition); /* moving or not */
bool fsmeta_is_mine(const struct meta *meta, size_t partition);
bool fsmeta_is_alone(const struct meta *meta); /* every partition is here and none is moving */
void fsmeta_number_is_used(struct meta *meta, uint64_t ino); /* never give it out again */
uint64_t fsmeta_first_serial(uint64_t version);
uint64_t fsmeta_next_number(struct meta *meta, size_t partition); /* 0: all used */
int fsmeta_name_fault(const char *name, size_t length); /* 0, EINVAL, ENAMETOOLONG */
/* Make room in `tell` for two sets. `tell` NULL: META_BUSY if there is anybody to be told. */
int fsmeta_prepare_tell(const struct meta *meta, struct meta_nodes *tell, node_set a, node_set b);
/* The watchers except ourselves and `except` go to `tell` and are forgotten, ourselves too; `except` stays if it was one. */
void fsmeta_tell_all(const struct meta *meta, struct meta_nodes *tell, node_set *watchers, int32_t except);
bool fsmeta_nobody_else(const struct meta *meta, node_set watchers);
int fsmeta_watch(struct meta *meta, node_set *watchers, int32_t asker); /* 0 or ENOMEM */
/* The same stamp as before: the node has not begun to watch or use anything of here since, nor has the table changed. */
uint64_t fsmeta_stamp(const struct meta *meta, int32_t node);
/* fsmeta_peer.c. The nodes of `spares` have forgotten a file, and have asked for nothing since. */
bool fsmeta_are_spared_still(const struct meta *meta, const struct meta_spares *spares);
/* Is any other node in the set, but this one and the asker? *how says which. */
bool fsmeta_finds_third(const struct meta *meta, node_set set, int32_t asker, const struct meta_spares *spares, struct meta_unlinked *how);
void fsmeta_drop_spared(const struct meta_spares *spares, node_set *watchers);
void fsmeta_node_asks(struct meta *meta, int32_t node);
/* setattr on owner, mode, times. ctime becomes `now` unless given. */
struct owned {
    uint32_t *mode, *uid, *gid;
    int64_t *atime, *mtime, *ctime;
};
uint32_t fsmeta_without_setid(uint32_t mode); /* as the kernel leaves it when somebody writes */
void fsmeta_set_owned(struct owned it, unsigned mask, const struct meta_attr *in, int64_t now);

/* ── fsmeta_items.c ── changes are told, if the partition has backups */
void fsmeta_log_entry(struct meta *meta, const struct entry *entry);
void fsmeta_log_entry_gone(struct meta *meta, const struct entry *entry);
void fsmeta_log_inode(struct meta *meta, struct inode *inode);
void fsmeta_log_inode_later(struct meta *meta, struct inode *inode); /* nobody waits for that: it is told with what comes next */
void fsmeta_log_inode_gone(struct meta *meta, uint64_t ino);
void fsmeta_forget_shadow(struct meta *meta, size_t partition); /* all that is here of it */
bool fsmeta_bury_teller(struct meta *meta, int32_t node); /* false: no memory */
void fsmeta_free_backups(struct meta *meta);
bool fsmeta_is_shadow(const struct meta *meta, size_t partition);

/* ── fsmeta_entry.c, fsmeta_entries.c ── */
bool fsmeta_shelve(struct meta *meta, struct entry *entry); /* entries of shadows are on no shelf; false: no memory */
void fsmeta_unshelve(struct meta *meta, struct entry *entry);
struct shelf *fsmeta_find_shelf(const struct meta *meta, uint64_t dir);
size_t fsmeta_slot_after(const struct shelf *shelf, uint64_t cursor); /* hole or not */
struct entry *fsmeta_find_entry(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length);
/* An entry of a file whose record is here, too; *inode NULL: the record was lost. 0 or why it cannot be unlinked here and now. */
int fsmeta_absent(const struct meta *meta, uint64_t key); /* of a name that is not there: ENOENT, or EIO: perhaps it was lost */
int fsmeta_room_in(const struct meta *meta, uint64_t ino); /* 0: there may be new entries in this directory */
bool fsmeta_only_us(const struct meta *meta, node_set set, int32_t asker); /* nobody but this node and that one is in it */
int fsmeta_find_to_unlink(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, struct entry **entry,
                          struct inode **inode);
/* NULL: ENOMEM */
struct entry *fsmeta_add_entry(struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, uint64_t ino, uint32_t type);
void fsmeta_delete_entry(struct meta *meta, struct entry *entry);
void fsmeta_free_entry(struct meta *meta, struct entry *entry); /* one that is in the shelf but no longer in the table */
bool fsmeta_is_type(uint32_t type); /* S_IFMT bits that an inode may have */
bool fsmeta_shelf_is_sound(const struct shelf *shelf);
struct name_lock *fsmeta_find_lock(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length);
int fsmeta_add_lock(struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, uint64_t owner);
void fsmeta_free_lock(struct meta *meta, struct name_lock *lock);

/* ── fsmeta_inode.c, fsmeta_inodes.c ── */
struct inode *fsmeta_find_inode(const struct meta *meta, uint64_t ino);
struct inode *fsmeta_new_inode(struct meta *meta, uint64_t ino); /* cleared, not in its table, which is ready; NULL: no memory */
void fsmeta_free_inode(struct meta *meta, struct inode *inode); /* not in the table (any more) */
void fsmeta_inode_attr(const struct inode *inode, struct meta_attr *attr);
bool fsmeta_delete_if_gone(struct meta *meta, struct inode *inode); /* without links and users: true, and it is away */
/* of a file or directory whose home is here */
bool fsmeta_attr_of(const struct meta *meta, uint64_t ino, struct meta_attr *attr, node_set **watchers);
int fsmeta_set_target(struct meta *meta, struct inode *inode, const char *target, size_t length);
void fsmeta_record_written(struct meta *meta, struct inode *inode, int32_t node, const struct meta_attr *in); /* its writer is done */
void fsmeta_stop_using(struct inode *inode, int32_t node);
int fsmeta_put_copy(struct meta *meta, const struct meta_attr *attr, bool replica); /* 0 or ENOMEM */

void fsmeta_set_inode(struct meta *meta, struct inode *inode, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker);
int fsmeta_content_here(const struct meta *meta, uint64_t ino,
                        struct inode **inode); /* META_NOT_MINE, ENOENT, EISDIR, EINVAL: no content */
bool fsmeta_is_short(const struct inode *inode, size_t most, size_t *there); /* of copies of its content */
int fsmeta_set_holder(struct inode *inode, int32_t node);
int fsmeta_list_nodes(node_set set, struct meta_nodes *nodes);
void fsmeta_record_content(struct meta *meta, struct inode *inode, const struct meta_attr *in);
void fsmeta_end_writing(struct inode *inode);

/* ── copies of content: fsmeta_dirs.c, fsmeta_inode.c, fsmeta_places.c ── */
uint8_t fsmeta_copies_in(const struct dir *dir); /* of what is made in it */
void fsmeta_note_short(struct meta *meta, const struct inode *inode); /* after each change of it */
void fsmeta_note_copies(struct meta *meta, uint8_t copies); /* a record says so */

/* ── fsmeta_secure.c ── */
bool fsmeta_is_secured(const struct inode *inode, int32_t node, const struct meta_attr *in);

/* ── fsmeta_uses.c ── */
void fsmeta_mark_stale(struct meta *meta, uint64_t mark);
bool fsmeta_is_fresh(const struct meta *meta, uint64_t since, uint64_t mark);
struct meta_small *fsmeta_small_slot(const struct meta *meta, uint64_t ino); /* NULL: nothing is noted */
void fsmeta_forget_small(struct meta *meta, uint64_t ino); /* 0: all */

/* ── fsmeta_xattrs.c ── */
struct xattr **fsmeta_find_xattr(struct xattr **list, const char *name, size_t length);
void fsmeta_free_xattr(struct meta *meta, struct xattr *xattr);
bool fsmeta_is_origin(const struct xattr *xattr);
int fsmeta_set_one_xattr(struct meta *meta, struct xattr **list, const char *name, const void *value, size_t size, int flags);
void fsmeta_free_xattrs(struct meta *meta, struct xattr **list);
void fsmeta_set_origin(struct meta *meta, struct inode *inode, const void *origin, size_t size); /* size 0, or no room for it: none */

/* ── fsmeta_dirs.c ── */
struct dir *fsmeta_find_dir(const struct meta *meta, uint64_t ino);
void fsmeta_dir_attr(const struct dir *dir, struct meta_attr *attr);
int fsmeta_make_root(struct meta *meta);
/* Without asking whether the name is free. `attr` may be NULL: all zero. 0, EEXIST (the number), ENOENT (no such parent), ENOMEM. */
int fsmeta_add_dir(struct meta *meta, uint64_t ino, uint64_t parent, const char *name, size_t length, const struct meta_attr *attr,
                   struct dir **made);
int fsmeta_move_dir(struct meta *meta, struct dir *dir, struct dir *parent, const char *name, size_t length);
struct dir *fsmeta_find_child(const struct meta *meta, uint64_t parent, const char *name, size_t length);
void fsmeta_touch_dir(struct dir *dir, int64_t now);
void fsmeta_set_dir(struct dir *dir, unsigned mask, const struct meta_attr *in, int64_t now);
void fsmeta_free_dirs(struct meta *meta);
void fsmeta_forget_dir(struct meta *meta, struct dir *dir); /* one without children that is not in the table of numbers any more */

#endif
