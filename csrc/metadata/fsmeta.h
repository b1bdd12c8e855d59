/* The metadata of the file system that this node keeps: one shard. Pure: no I/O, no clock (the caller says what time it is), no Python.
 *
 * Three tables, one lock around all of them (every function may be called from any thread):
 *   inodes    the records of the partitions this node owns, and copies (`cached`) of records that others own
 *   entries   (directory, name) -> inode, for the partitions this node owns
 *   dirs      every directory of the file system, on every node: parent, name, mode, owner, layout rule
 *
 * Names and numbers. An inode's number is (partition << 40) | serial, so its record's place follows from the number; the root directory is
 * number 1. An entry's partition is that of (directory number, name): renaming a directory moves nothing. A file's inode is born in the
 * partition of its first entry, so that creating and looking up concern one shard. Stripe i of a file lies at partition
 * (hash(ino) + i) mod P. Partition -> node is the table (MemFS's second layer).
 *
 * Watchers are the other nodes that may have a copy of an inode or entry in a cache. A change answers with the watchers to be told, and
 * forgets them: they come back when they ask again.
 *
 * All functions return 0, an errno, or one of the two codes below. `tell` may be NULL where somebody has to be told: then it is
 * META_BUSY, and nothing changes, if there is anybody. Lists of nodes are added to. */
#ifndef AMFS_FSMETA_H
#define AMFS_FSMETA_H

#include "open/opens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    META_NOT_MINE = 1001, /* the partition belongs to another node (or is moving): the caller has an old table, or must take the long way */
    META_BUSY = 1002, /* locked by an operation over several shards, or somebody else must be told first: the long way */
    META_NAME_MAX = 255,
    META_ROOT = 1,
    META_INO_SHIFT = 40,
};

enum meta_layout { META_WHOLE = 0, META_STRIPED = 1 };
enum { META_STRIPE_COPIES = 2 }; /* of a file in stripes, at most */
enum { META_LOST = 2 }; /* meta_attr.finished: not being written, and some of its content was lost with a node: nobody may read it */

struct meta;

/* An inode, as far as it is known. Times in nanoseconds since 1970. */
struct meta_attr {
    uint64_t ino;
    uint32_t mode; /* with the type */
    uint32_t nlink;
    uint32_t uid, gid, rdev;
    uint32_t stripe; /* bytes; of striped files */
    uint8_t layout; /* enum meta_layout */
    uint8_t finished; /* 0: being written; size may be old. 1: finished. META_LOST */
    int32_t writer; /* node that has it open for writing, or -1 */
    int32_t rank; /* node it was pinned to by set_rank, or -1 */
    uint64_t size, blocks;
    int64_t atime, mtime, ctime;
    uint64_t pending; /* the blind attempt (launcher/attempts.h) that made it and has not ended well yet; 0: it is everybody's */
    uint8_t copies; /* how many nodes shall have its content; of a directory: of files made in it. On creating, 0: as its directory says */
};

/* A growing list of node numbers that the caller frees (free(list.nodes)). */
struct meta_nodes {
    int32_t *nodes;
    size_t count, room;
};

struct meta *meta_new(int32_t node);
void meta_free(struct meta *meta);
struct opens *meta_opens(struct meta *meta); /* of its node: of all files, wherever they are recorded */

/* ── places ── */
/* The first call makes the root. EINVAL: another number of partitions than before; ESTALE: an older version. Numbers of partitions that
 * come here begin at a serial of the table's version, so that those which a dead node gave out are not given out again. */
int meta_set_table(struct meta *meta, const int32_t *owners, size_t partitions, uint64_t version);
/* The nodes that have partitions by the table, in order of their numbers: `room` of them from the place `from` on. Returns how many there are in all. */
size_t meta_shards(struct meta *meta, size_t from, int32_t *nodes, size_t room, uint64_t *version);
/* Partitions that are on their way to or from here: functions answer META_NOT_MINE for what lies in them. */
int meta_set_moving(struct meta *meta, const uint32_t *partitions, size_t count, bool moving);
uint32_t meta_name_partition(const struct meta *meta, uint64_t dir, const char *name, size_t length);
uint32_t meta_ino_partition(const struct meta *meta, uint64_t ino); /* mod P, so any number has one */
uint32_t meta_stripe_partition(const struct meta *meta, uint64_t ino, uint64_t index);
int32_t meta_owner(const struct meta *meta, uint32_t partition);
uint64_t meta_new_number(struct meta *meta, uint32_t partition); /* an unused inode number of a partition; 0: it is not here */

/* ── entries (partition of dir and name) ── `asker`: node that asks; if it is another one it becomes a watcher */

/* `attr->mode` 0: the inode's record is elsewhere (only ino and the type bits in *type). */
int meta_lookup(struct meta *meta, uint64_t dir, const char *name, size_t length, int32_t asker, uint64_t *ino, uint32_t *type,
                struct meta_attr *attr);

/* A new inode with its first entry; `attr` in: mode, uid, gid, rdev, layout, stripe, writer, rank, pending, copies; out: all of it. Times and nlink are set.
 * `target`: of a symbolic link, else NULL. EEXIST, ENOTDIR/ENOENT if dir is no (longer a) directory, ENAMETOOLONG, EINVAL.
 * In a setgid directory the file gets the directory's group (mkdir, which is not done here, also inherits the bit). `attr->writer` has
 * it open from the start; without one it is finished and empty, and `asker` holds what there is of it. `although_lost`: names of the
 * partition were lost with their nodes, and the caller replaces whatever this one was; else EIO.
 * Touches nothing of the directory itself: see meta_dir_touch. */
int meta_create(struct meta *meta, uint64_t dir, const char *name, size_t length, int64_t now, int32_t asker, const char *target,
                bool although_lost, struct meta_attr *attr);

/* A new inode of `partition`, a file that is finished and of which this node holds the content. It counts one link, for which the caller
 * must make the entry. `attr` in: also size, blocks, atime, mtime. `dir`: where the entry will be. META_BUSY, ENOTDIR, ENOENT: it takes none. */
int meta_create_unnamed(struct meta *meta, uint64_t dir, uint32_t partition, int64_t now, struct meta_attr *attr);

/* An entry for an inode that exists (link, rename, mkdir). `replace`: an entry that is there is replaced, *old is its inode number,
 * *old_type its type; else EEXIST, and EIO if names of the partition were lost. `tell`: the watchers of the old entry. `owner`: the holder of the lock of this name, 0: nobody. */
int meta_insert(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, uint64_t ino, uint32_t type, bool replace,
                uint64_t *old, uint32_t *old_type, struct meta_nodes *tell);

/* Take an entry out; `ino` 0: whatever it is. ENOENT if it is not there or another inode. `owner` as for meta_insert. */
int meta_remove(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, uint64_t ino, uint64_t *was,
                uint32_t *type, struct meta_nodes *tell);

/* unlink where entry and inode are both here: removes the entry, counts the link down. EISDIR for a directory. META_NOT_MINE if the inode's
 * record is elsewhere. *left: the record that remains, as after meta_link. `tell`: watchers of both; NULL: META_BUSY also if others hold the content.
 * If the record was lost with a node the name goes all the same; then *left has only number and type, and *gone is false. */
int meta_unlink(struct meta *meta, uint64_t dir, const char *name, size_t length, int64_t now, struct meta_attr *left, bool *gone,
                struct meta_nodes *tell);

/* rename of one non-directory entry to another when both entries and both inodes are all here, nothing locked, and no other node
 * watches anything of it or holds what is replaced; else META_NOT_MINE or META_BUSY. `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE.
 * *replaced/gone as for unlink; replaced->ino 0: nothing was there. Same inode under both names: 0, nothing changes. */
int meta_rename(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t to_dir, const char *to_name, size_t to_length,
                unsigned flags, int64_t now, struct meta_attr *moved, struct meta_attr *replaced, bool *gone);

/* Lock an entry (existing or not) for an operation over several shards. While locked: every change of it is META_BUSY but those by
 * meta_insert and meta_remove for its owner; looking up is not. META_BUSY if it is locked by another `owner` (0 is none). Repeatable by
 * the same owner. Locks move with their partition. Unlocking: ENOENT if it is not locked, META_BUSY if by another. A lock of an owner with META_LOCK_ENDS
 * ends after META_LOCK_MS, if it is not unlocked before. */
#define META_LOCK_ENDS (UINT64_C(1) << 39)
enum { META_LOCK_MS = 60000 };
int meta_lock(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner);
int meta_unlock(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner);
/* Locks of operations that a node began (owner >> 40 == node + 1) are given up: it died. */
int meta_unlock_node(struct meta *meta, int32_t node);

/* Entries of a directory that are here, in order of `cursor` (0: from the start; opaque, below 2^48, stable under changes of other entries;
 * imported entries come at the end). While a partition moves, only the node that the table names lists its entries. */
struct meta_entry {
    uint64_t ino, cursor; /* cursor: pass it to go on after this one */
    uint32_t type; /* S_IFMT bits */
    uint16_t length;
    const char *name; /* valid until the callback returns */
};
/* Calls `each` until it returns false or there are no more. The lock is held meanwhile: `each` must not call back. */
int meta_list(struct meta *meta, uint64_t dir, uint64_t cursor,
              bool (*each)(void *context, const struct meta_entry *entry, const struct meta_attr *attr /* NULL if elsewhere */),
              void *context);
/* Entries of dir that are here, those of partitions on their way included: a directory that is counted empty everywhere is empty. */
uint64_t meta_count(struct meta *meta, uint64_t dir);

/* ── inodes (partition of the number) ── */

int meta_getattr(struct meta *meta, uint64_t ino, int32_t asker, struct meta_attr *attr);
enum {
    META_SET_MODE = 1,
    META_SET_UID = 2,
    META_SET_GID = 4,
    META_SET_SIZE = 8,
    META_SET_ATIME = 16,
    META_SET_MTIME = 32,
    META_SET_CTIME = 64,
    META_SET_LAYOUT = 128,
    META_SET_RANK = 256,
    META_SET_BLOCKS = 512,
    META_SET_COPIES = 1024,
    META_SET_DIRECTLY = META_SET_MODE | META_SET_UID | META_SET_GID | META_SET_ATIME |
        META_SET_MTIME, /* another node may ask for these so */
};
/* Sets what `mask` says from `in`; ctime becomes `now` unless META_SET_CTIME. As on tmpfs chown of what is no directory clears suid (and
 * sgid if group x) unless META_SET_MODE, and another size sets mtime unless META_SET_MTIME. Another size or layout of a finished file
 * leaves `asker` as its only holder (of a size: if it was one; of whole to striped: nobody). *out: the record afterwards. EISDIR: see
 * meta_dir_set. `tell`: watchers but `asker`, which stays one. */
int meta_setattr(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker,
                 struct meta_attr *out, struct meta_nodes *tell);
/* Setuid and setgid bits go while it is written. Nobody is told before it is closed. */
int meta_set_mode(struct meta *meta, uint64_t ino, uint32_t mode, int64_t now);
/* A blind attempt has ended well (`pending` 0), or another takes the file over: from `was` (0: any but 0) to `pending`. EAGAIN: it is not `was`. `tell` as
 * for meta_setattr. */
int meta_set_pending(struct meta *meta, uint64_t ino, uint64_t was, uint64_t pending, int32_t asker, struct meta_attr *out,
                     struct meta_nodes *tell);
/* Count links up (ENOENT if there are none left) or down. *gone: the record is away: no links and nobody uses it; its data can go. With
 * links 0 but users left it stays. */
int meta_link(struct meta *meta, uint64_t ino, int delta, int64_t now, int32_t asker, struct meta_attr *out, bool *gone,
              struct meta_nodes *tell);

/* `node` opens it. Reading: `holders` gets who has the whole content. Writing: allowed always; out->writer is the node through which to
 * write: it becomes `node` if nobody has it. `node` becomes a user, and a watcher if it is not this node. `tell` (writing, newly
 * granted): watchers. */
int meta_open(struct meta *meta, uint64_t ino, int32_t node, bool writing, struct meta_attr *out, struct meta_nodes *holders,
              struct meta_nodes *tell);
/* The writer is done: size, blocks, mtime, atime are what its data file says; finished (META_LOST if `in` says so); writer -1; holders of a whole file = {node}. If
 * size or mtime differ from what was known, ctime is that of `in` if later. EPERM: `node` is not its writer. `tell` NULL: META_BUSY also if others
 * have old content, the file is claimed, or other nodes shall have its content. */
int meta_wrote(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, struct meta_attr *out, struct meta_nodes *tell);
/* Likewise, and a task has made what it contains now: its `origin` is kept with it (META_ORIGIN), as long as nobody writes it. Size 0: none has. */
int meta_made(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, const void *origin, size_t size,
              struct meta_attr *out, struct meta_nodes *tell);
/* Size and times, by its data, of a file that `node` writes, before it closes it: until meta_wrote those who ask get that size. Times of 0 are not known. */
void meta_said(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in);
/* This node has closed it, and the poll loop is going to say so: until it has done so as often, it is META_BUSY to meta_open_here: an opening
 * meanwhile must not be taken for the one that was closed. */
void meta_closing(struct meta *meta, uint64_t ino);
void meta_closed(struct meta *meta, uint64_t ino);
/* `node` has no handle on it any more; if it was the writer, the record stands. *gone as for meta_link. */
int meta_unused(struct meta *meta, uint64_t ino, int32_t node, bool *gone);
/* `node` opened it to copy it and now has it all. `grant`: of meta_grant before that opening. EAGAIN: it has been written since, is being written, is
 * striped, or `node` was told of a change since (it is no watcher any more): drop the copy. A node that is a holder already stays one. */
int meta_add_holder(struct meta *meta, uint64_t ino, int32_t node, uint64_t grant);
uint64_t meta_grant(struct meta *meta, uint64_t ino); /* 0: no such file here */
/* `node` needs the room of its copy: enough others have one too, or it is old, for the file is being written elsewhere or lies in stripes.
 * EBUSY: no. */
int meta_give_up(struct meta *meta, uint64_t ino, int32_t node);
/* The copy of `node` is damaged, and goes. *lost: nobody else has one, and so it is lost. EAGAIN: `node` is no holder, or it is being written: nothing
 * is changed. `stripe`: a stripe of it is damaged, and has no other copy. */
int meta_damaged(struct meta *meta, uint64_t ino, int32_t node, bool stripe, bool *lost);
int meta_concerned(struct meta *meta, uint64_t ino, struct meta_nodes *nodes); /* its holders, and other nodes that watch it */
int meta_holders(struct meta *meta, uint64_t ino, struct meta_nodes *holders); /* none if it is no regular file */
int meta_readlink(struct meta *meta, uint64_t ino, char *to, size_t room, size_t *length);

/* ── more than one node has the content (fsmeta_copies.c) ── */
enum { META_COPIES_MAX = 16 };
/* Does a file or a directory that this node knows want more than one, or did one since it was started? Until then nobody need ask. */
bool meta_copies_wanted(const struct meta *meta);
void meta_expect_copies(struct meta *meta); /* one does */
/* `node` goes on writing it. `node` has the content so far, of which `in` tells, and so have `copies`, other nodes; nobody else. *old: nodes that had
 * the content before and are not among them. EPERM: `node` is not its writer; EAGAIN: it lies in stripes. */
int meta_checkpoint(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, const int32_t *copies, size_t count,
                    struct meta_nodes *old);
/* Before others copy what is being written, by messages of the poll loops. False: not yet, for the mount's answer to meta_secure_begin is outstanding. */
bool meta_copies_begin(struct meta *meta, uint64_t ino);
/* ── small files, two copies, without the poll loops (fsmeta_secure.c) ── `in`: as for meta_checkpoint. 0, too, if the file wants one copy. META_BUSY: the
 * long way. The file is of here, and `asker`, another node, writes it: `put` brings its content here, with the lock held; 0 or an errno. Not if it is empty. */
int meta_secure_for(struct meta *meta, uint64_t ino, int32_t asker, const struct meta_attr *in, int (*put)(void *context), void *context);
/* This node writes it: `keeper` is asked to take the content, unless it is -1, then it is done. meta_secure_end follows: `in` NULL: it has not taken it. */
int meta_secure_begin(struct meta *meta, uint64_t ino, const struct meta_attr *in, int32_t *keeper);
int meta_secure_end(struct meta *meta, uint64_t ino, int32_t keeper, const struct meta_attr *in);
/* This node is done writing, and has written nothing since meta_secure_begin: the holders stay. */
int meta_wrote_secured(struct meta *meta, uint64_t ino, const struct meta_attr *in, struct meta_attr *out);
/* The writer is done, and has written nothing since that: the holders stay. As meta_made else. */
int meta_wrote_same(struct meta *meta, uint64_t ino, int32_t node, const void *origin, size_t size, struct meta_attr *out,
                    struct meta_nodes *tell);
/* Finished files with content recorded here that fewer nodes have than shall, of which `most` live. Striped ones have one copy.
 * Calls `each` with the lock held. */
/* Has a change since the last question left a file with fewer copies than it asks for, though there are `most` nodes? */
bool meta_fell_short(struct meta *meta, unsigned most);
int meta_short_of_copies(struct meta *meta, unsigned most, void (*each)(void *context, const struct meta_attr *attr), void *context);
int meta_dir_set_copies(struct meta *meta, uint64_t ino, uint8_t copies); /* 0: as the directory above. EINVAL, ENOTDIR */
uint8_t meta_dir_copies(struct meta *meta, uint64_t ino); /* of what is made in it; at least 1 */

enum { META_XATTR_CREATE = 1, META_XATTR_REPLACE = 2 };
#define META_ORIGIN "user.amfs.origin" /* the task that made a file; it goes when the file is written or cut, and is not listed */
/* On directories too: their record is everywhere, so the caller broadcasts. Nobody is told: nobody caches them. ENODATA, EEXIST,
 * ERANGE/E2BIG (64 KiB a value, 64 KiB an inode: ENOSPC) */
int meta_set_xattr(struct meta *meta, uint64_t ino, const char *name, const void *value, size_t size, int flags, int64_t now);
int meta_get_xattr(struct meta *meta, uint64_t ino, const char *name, void *value, size_t room, size_t *size); /* room 0: only the size */
int meta_list_xattr(struct meta *meta, uint64_t ino, char *to, size_t room, size_t *size); /* names ended by NUL */
int meta_remove_xattr(struct meta *meta, uint64_t ino, const char *name, int64_t now);

/* ── for another node, which asks this one directly and waits for nobody else ──
 * As their namesakes above. META_BUSY whenever a third node is concerned (it watches, holds or writes), or data lies on others: the asker takes the
 * long way then. `asker` is not told, and stays a watcher. */
struct meta_unlinked {
    bool gone, here, there; /* gone: as for meta_unlink; then its data can go where it is: at this node, at the asker */
    bool used; /* the asker is a user of it now, and says so when it is not */
    int32_t third; /* with META_BUSY: a node that must first forget it, and say that it does not use it; -1: that would not do */
    uint64_t stamp, ino; /* for struct meta_spared; the file */
};
/* Nodes that have forgotten a file, or the name, and do not use it. A stamp: they have not asked for anything since. */
enum { META_SPARED_MAX = 4 };
struct meta_spares {
    size_t count;
    struct meta_spared {
        int32_t node;
        uint64_t stamp;
    } each[META_SPARED_MAX];
};
int meta_getattr_for(struct meta *meta, uint64_t ino, int32_t asker, struct meta_attr *attr, bool *holds); /* holds: all of its content */
int meta_hold_for(struct meta *meta, uint64_t ino, int32_t asker,
                  struct meta_attr *attr); /* of a finished file that is empty or held already */
/* `used`: the asker has opened copies without saying so, perhaps this one. */
int meta_unlink_for(struct meta *meta, uint64_t dir, const char *name, size_t length, int64_t now, int32_t asker, bool used,
                    const struct meta_spares *spares, struct meta_attr *left, struct meta_unlinked *how);
/* Would it be META_BUSY for this node because of a third one, *how, that is to be asked? */
bool meta_unlink_asks(struct meta *meta, uint64_t dir, const char *name, size_t length, struct meta_unlinked *how);
/* The name alone, of a file whose record is on another node, which then counts a link less by the second of these. META_NOT_MINE: the name is not here, or
 * the record is. ENOENT of the second: there is no such record; it may have been lost with a node. */
int meta_unname_for(struct meta *meta, uint64_t dir, const char *name, size_t length, int32_t asker, uint64_t *ino, uint32_t *type);
int meta_uncount_for(struct meta *meta, uint64_t ino, int64_t now, int32_t asker, bool used, const struct meta_spares *spares,
                     struct meta_attr *left, struct meta_unlinked *how);
/* Renaming a file, its old name and its record here, in steps (fsmeta_rename.c). `owner`: of the lock on the old name, with META_LOCK_ENDS: it is not
 * unlocked if a connection breaks, and ends by itself. META_BUSY: the long way sees to what is begun. *attr: the record. `spares`: nodes that have forgotten
 * the name and the file, which they may use; *how: META_BUSY because of a third one, that is to do so first. */
int meta_rename_begin_for(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, int32_t asker,
                          const struct meta_spares *spares, struct meta_attr *attr, struct meta_unlinked *how);
bool meta_rename_asks(struct meta *meta, uint64_t dir, const char *name, size_t length,
                      struct meta_unlinked *how); /* as meta_unlink_asks */
/* The new name. *old: the file whose name it was, which is to count a link less; 0: nobody's. EEXIST: it is a directory's, or this file's; not `replace`. */
int meta_insert_for(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t ino, uint32_t type, bool replace,
                    int32_t asker, uint64_t *old, uint32_t *old_type);
int meta_rename_end_for(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, uint64_t ino, int64_t now,
                        int32_t asker, struct meta_attr *attr);
/* `node` has closed it: `written` as for meta_wrote, NULL: it wrote nothing, or is no longer its writer; unless `used`, meta_unused. `same`: it has written
 * nothing since meta_secure_for. */
int meta_closed_for(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *written, bool same, bool used,
                    struct meta_attr *out);
/* Of a file. What META_SET_DIRECTLY names alone; times that the asker has given to its copy already. If this node has the only other copy `stamp` gives them to
 * that (0: it has), with the lock held. */
int meta_setattr_for(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker,
                     int (*stamp)(void *context), void *context, struct meta_attr *out);
int meta_dir_touch_for(struct meta *meta, uint64_t ino, int64_t now, int32_t asker);
/* Entries of a directory that are here, as meta_list has them, in `room` bytes: of each u64 inode, u64 cursor, u8 type (S_IFMT bits >> 12), u8 bytes of the
 * name, the name. *more: there are further ones. META_NOT_MINE: the table has another version than the asker's, or partitions are on their way to or from
 * here: an entry could be on its way from a shard that was not asked yet to one that was. */
enum { META_LISTED_HEAD = 18 };
int meta_list_for(struct meta *meta, uint64_t dir, uint64_t version, uint64_t cursor, uint8_t *to, size_t room, size_t *size, bool *more);

/* ── asking others directly ──
 * What says that something is old may overtake an answer that was given before. So: a moment is taken before the question is sent, and the answer is
 * believed for longer than a moment only if it is still fresh. A mark is an inode's number or that of a name. */
uint64_t meta_name_mark(uint64_t dir, const char *name, size_t length);
void meta_stale(struct meta *meta, uint64_t mark); /* somebody says so; meta_uncache does it for an inode */
uint64_t meta_moment(struct meta *meta);
bool meta_fresh(struct meta *meta, uint64_t since, uint64_t mark);
int meta_cache_fresh(struct meta *meta, uint64_t since, const struct meta_attr *attr, bool replica); /* meta_cache, or ESTALE */

/* ── small files ── news of a finished whole file whose content, at most META_SMALL_MAX bytes, lies on another node: the record, and one node that
 * has the content. It is good until this node is told of a change of the file; nodes that ask for the record are told of it. */
enum { META_SMALL_MAX = 4096, META_SMALL_NOTES = 1024 };
struct meta_small {
    struct meta_attr attr;
    int32_t holder;
};
/* One of here, for `asker`, which is a watcher: false: it is none, or `asker` has the content. */
bool meta_small_for(struct meta *meta, uint64_t ino, int32_t asker, struct meta_small *small);
/* An answer said so to a question of the moment `since`. Few are remembered. */
void meta_note_small(struct meta *meta, uint64_t since, const struct meta_small *small);
bool meta_small_of(struct meta *meta, uint64_t ino, struct meta_small *small); /* as far as it is known; of a file of here, the record */
/* The content is here: the mount may open it. ESTALE: the file has changed. *tell: its shard, on another node, is to hear of it (meta_hold_small_for). */
int meta_brought_small(struct meta *meta, const struct meta_attr *attr, bool *tell);
/* `asker` has brought what this record tells of. EAGAIN: it has changed since. */
int meta_hold_small_for(struct meta *meta, uint64_t ino, int32_t asker, const struct meta_attr *brought);

/* ── copies of records that others own ── */
/* `replica`: the whole content lies in this node's store, as of this record. Dropped by meta_uncache when the owner says it changed;
 * until then a record of the same size, mtime and layout does not take it back. */
int meta_cache(struct meta *meta, const struct meta_attr *attr, bool replica);
int meta_cached(struct meta *meta, uint64_t ino, struct meta_attr *attr, bool *replica); /* ENOENT: not */
int meta_uncache(struct meta *meta, uint64_t ino, bool *replica);
/* This node had another one change attributes of a file, not its content, and heard `attr`; it asked at `since`. The cached record becomes that, or goes
 * if something may have changed since. Answers that were under way are old from now on. */
void meta_cache_changed(struct meta *meta, uint64_t since, const struct meta_attr *attr);
void meta_uncache_unfinished(struct meta *meta,
                             uint64_t ino); /* this node has closed a file that it made on another one: that knows best from now on */

/* ── directories (everywhere) ── nlink is 2 + subdirectories. META_ROOT always exists (mode 0755 at first), its own parent. */
/* EEXIST: number or name; ENOENT: no such parent */
int meta_dir_add(struct meta *meta, uint64_t ino, uint64_t parent, const char *name, size_t length, const struct meta_attr *attr);
/* ENOTDIR, EBUSY: the root, ENOTEMPTY: has directories (entries are the caller's to count) */
int meta_dir_remove(struct meta *meta, uint64_t ino);
int meta_dir_move(struct meta *meta, uint64_t ino, uint64_t parent, const char *name, size_t length, int64_t now);
int meta_dir_set(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now); /* as meta_setattr */
int meta_dir_get(struct meta *meta, uint64_t ino, struct meta_attr *attr, uint64_t *parent); /* ENOTDIR: no directory */
int meta_dir_find(struct meta *meta, uint64_t parent, const char *name, size_t length, struct meta_attr *attr); /* ENOENT */
int meta_dir_name(struct meta *meta, uint64_t ino, char *to, size_t room);
bool meta_dir_below(struct meta *meta, uint64_t ino, uint64_t ancestor); /* is `ino` that or below it */
/* No new entries in it from now on (rmdir looks whether it is empty everywhere): creating there answers META_BUSY. */
int meta_dir_freeze(struct meta *meta, uint64_t ino, bool frozen);

/* ── changes of directories that go to all nodes ── */
enum meta_change_kind { META_CHANGE_ADD = 1, META_CHANGE_DROP, META_CHANGE_FREEZE, META_CHANGE_THAW };
struct meta_change {
    enum meta_change_kind kind;
    bool keep_entry; /* drop: its entry is another's already */
    int32_t asker; /* the node that wants it */
    uint64_t ino, dir;
    uint32_t mode, uid, gid; /* add; likewise the next two */
    int32_t rank;
    int64_t now;
    const char *name; /* of add and drop; points into the bytes */
    size_t length;
};
/* The changes in bytes (fsmeta_spread.c), one by one. False: no whole one is there. */
bool meta_next_change(const uint8_t **at, const uint8_t *end, struct meta_change *change);
bool meta_count_changes(const uint8_t *changes, size_t size, size_t *count); /* false: these bytes are no changes */
/* Whose changes are made here from now on; -1: nobody's. When it returns none of those before is being made. */
void meta_set_manager(struct meta *meta, int32_t manager);
/* Make the changes of one spread, if that has not been done. An answer for each: the number of entries that a directory has here which is frozen or thawed,
 * minus an errno; else 1 if here is the home of the directory above, and its times are of now for everybody, else 0. `directly`: META_BUSY if `manager` is not whose changes are made here, or if a later spread of it has been made. */
int meta_spread(struct meta *meta, int32_t manager, uint64_t number, bool directly, const uint8_t *changes, size_t size, int64_t *answers);
/* For the manager, which is about to make a directory, or to drop it: its entry is made, or goes. `number`: of this question among its questions; those up to the
 * one that is refused are not heard. META_BUSY: the long way says what is so. */
void meta_refuse(struct meta *meta, int32_t manager, uint64_t number);
int meta_reserve_for(struct meta *meta, int32_t manager, uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t *ino);
int meta_strike_for(struct meta *meta, int32_t manager, uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t ino);
/* Entries of it changed: mtime and ctime, at the home of its number. `tell`: watchers. Later times win. Any node remembers when it called this last.
 * META_BUSY (`tell` is NULL and there are some): it is changed here, and they have to be told by another call. */
int meta_dir_touch(struct meta *meta, uint64_t ino, int64_t now, struct meta_nodes *tell);
int64_t meta_dir_touched(struct meta *meta, uint64_t ino); /* the time remembered of that; 0: none since its times were set */
void meta_dir_latest(struct meta *meta, struct meta_attr *attr); /* its home's answer, and this node's own changes since */
/* Default layout of new files below it (nearest ancestor that has one): layout, stripe. stripe 0 and layout 255: none. */
int meta_dir_set_layout(struct meta *meta, uint64_t ino, uint8_t layout, uint32_t stripe);
void meta_dir_layout(struct meta *meta, uint64_t ino, uint8_t *layout, uint32_t *stripe);

/* ── moving partitions, and all of it ── a portable byte string; import adds what it holds, in the place of what has the same name or
 * number. The exporting node becomes a watcher of what it gave. */
int meta_export(struct meta *meta, uint32_t partition, uint8_t **bytes, size_t *size); /* malloc'd: entries and inodes of it */
int meta_export_dirs(struct meta *meta, uint8_t **bytes, size_t *size);
/* EPROTO: damaged; then nothing was taken. ENOMEM: some of it may have been. Of directories: those that are not among them go. */
int meta_import(struct meta *meta, const uint8_t *bytes, size_t size);
int meta_drop(struct meta *meta, uint32_t partition);
/* A node is gone: no holder, user, watcher, writer any more. To be called before the table that names the heirs of its partitions. Files of here are
 * META_LOST from then on if it had their last whole copy, if a stripe of theirs lay in one of its partitions, or if it wrote them and no copies of them
 * are asked for (others may hold what they contained before); until they are written anew. Calls `lost` (which must not call back) for each of them, and
 * for each orphan that only it used: its record is away. */
int meta_forget_node(struct meta *meta, int32_t node, void (*lost)(void *context, uint64_t ino), void *context);

/* Stripes of these partitions are lost, whichever node had them: of all files of here that have one there. */
int meta_lose(struct meta *meta, const uint32_t *partitions, size_t count,
              bool copies); /* of files whose stripes have copies; else of the others */
/* The names of directories have entries in the partitions that are here: those that went with a node are made again. `anew`: the directories came from
 * a new manager: entries of those that it does not know go, and none is frozen by the one before it. */
int meta_mend_dirs(struct meta *meta, bool anew);

/* ── backups ── another node is told of every change of a partition before the change is answered (fsmeta_backup.c) */
enum meta_backup_state {
    META_BACKUP_NONE,
    META_BACKUP_WAITING, /* for its turn to be told of all */
    META_BACKUP_SYNCING, /* that is under way; it is told of changes, too, and answers wait for it */
    META_BACKUP_IN_STEP,
    META_BACKUP_RELEASING, /* it is told that it need not know any more, and may believe that it is in step until it has heard of that */
    META_BACKUP_STATES,
};
enum meta_backup_event {
    META_BACKUP_TOLD,
    META_BACKUP_ANSWERED,
    META_BACKUP_REPLACED,
    META_BACKUP_INHERITED,
    META_BACKUP_CHOSEN,
    META_BACKUP_EVENTS
};
int meta_backup_move(int state, int event); /* the next state; -1: there is no such move */
enum { META_BATCH_MAX = 120 << 10, META_REFUSED_MAX = 4096 };
uint64_t meta_take_ticket(void); /* of the last change that this thread made and somebody is told of, since it asked last; 0: none */
uint64_t meta_version(struct meta *meta); /* of the table */
uint64_t meta_ticket(struct meta *meta); /* of the last change */
uint64_t meta_backed_up(struct meta *meta); /* changes with this ticket or an earlier one may be answered */
/* After meta_set_table: the node that is to be the backup of each partition (-1: nobody; counts only for those that are served here), and the other nodes that live. */
int meta_set_backups(struct meta *meta, const int32_t *backups, size_t partitions, const int32_t *live, size_t count);
/* A partition came here: these nodes have all of it, and are told of changes until the backup is in step. */
int meta_inherit_backups(struct meta *meta, uint32_t partition, const int32_t *nodes, size_t count);
int meta_backups_of(struct meta *meta, uint32_t partition, struct meta_nodes *nodes); /* those that may believe to be in step */
int meta_backup_nodes(struct meta *meta, struct meta_nodes *nodes); /* those that have something to be told, and are not being told */
int meta_drop_backups(struct meta *meta, uint32_t partition); /* it went: others tell them */
struct meta_backup_counts {
    uint64_t own, backed, unsure; /* partitions that are here by the table; those in step; those of which names were lost */
};
void meta_count_backups(struct meta *meta, struct meta_backup_counts *counts);
/* The next batch for `node`, which the caller frees; size 0: there is nothing, or one is under way. Then its answer; an error: it may have come or not, and
 * is said again. False: the caller waits before it takes another, since it would fare no better now. */
int meta_backup_next(struct meta *meta, int32_t node, uint8_t **bytes, size_t *size);
bool meta_backup_answered(struct meta *meta, int32_t node, int error, const uint8_t *answer, size_t count);
/* `node` has asked for a change with this ticket, and is answered next. True: nobody else has to know of it before that, if the asker takes this batch first
 * (size 0: it has it). */
bool meta_backup_for_asker(struct meta *meta, int32_t node, uint64_t ticket, uint8_t *to, size_t room, size_t *size);
void meta_backup_heard(struct meta *meta, int32_t node, uint64_t number); /* it has all before this number, and has refused none of it */
uint64_t meta_backup_has(struct meta *meta, int32_t source); /* this number, for what `source` tells */
/* A batch from `source`. META_NOT_MINE: it has an old table; META_BUSY: this node has, or is about to act on it. `answer`: META_REFUSED_MAX bytes, or NULL:
 * partitions that are refused are said with the next answer. */
int meta_backup_take(struct meta *meta, int32_t source, const uint8_t *bytes, size_t size, uint8_t *answer, size_t *count);
/* 0: nothing is here as a backup; 1: not all yet; 2: in step */
int meta_shadow_state(struct meta *meta, uint32_t partition);
int meta_demote(struct meta *meta, uint32_t partition, int32_t source); /* the records here go to that node, and stay as its backup */
int meta_promote(struct meta *meta, uint32_t partition); /* the backup here is the partition from now on */
/* Entries of directories that are not there, as far as this node knows, or not under this name: calls `each` with the lock held. */
int meta_unknown_dirs(struct meta *meta, uint32_t partition,
                      void (*each)(void *context, uint64_t dir, const char *name, size_t length, uint64_t ino), void *context);
/* Names of these were lost with their nodes: to look up one that is not there is EIO, and so is making it. */
int meta_set_unsure(struct meta *meta, const uint32_t *partitions, size_t count, bool unsure);
/* Copies of records of these partitions are forgotten, and all answers that are under way are old: their watchers are not known any more. */
int meta_uncache_partitions(struct meta *meta, const uint32_t *partitions, size_t count);

struct meta_counts {
    uint64_t inodes, entries, dirs, cached, bytes; /* of memory, about */
};
void meta_counts(struct meta *meta, struct meta_counts *counts);
int meta_check(struct meta *meta, char *what, size_t room); /* 0, or EINVAL and what contradicts itself */

/* ── for the FUSE loop: calls that it may make at once ──
 * These answer META_NOT_MINE or META_BUSY whenever anybody else is concerned: record elsewhere, partition moving, entry locked, directory
 * frozen, other watchers, content not here, another node writes, or holds a copy whose times are to be set. Attributes of directories: only
 * while every partition is here. */
/* whole, content here (own or replica), user = me */
int meta_open_here(struct meta *meta, uint64_t ino, bool writing, struct meta_attr *out);
int meta_setattr_here(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, struct meta_attr *out);

#endif
