/* The metadata shard: calls about names (the entry is fsmeta_entry.c). Those of files stand on fsmeta_inodes.c. */
#include "fsmeta_internal.h"

#include "common/bytes.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

enum { TARGET_MAX = 4095 };

/* A name that is not there. If names of its partition were lost with their nodes, nobody can say that it never was. */
int fsmeta_absent(const struct meta *meta, uint64_t key) { return meta->unsure[fsmeta_partition_of_key(meta, key)] ? EIO : ENOENT; }

/* ── locks ── */

static bool locked_by_another(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, uint64_t owner) {
    const struct name_lock *lock = fsmeta_find_lock(meta, key, dir, name, length);
    return lock != NULL && lock->owner != owner;
}

int meta_lock(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner) {
    int error = fsmeta_name_fault(name, length);
    if (error != 0 || owner == 0) return error != 0 ? error : EINVAL;
    uint64_t key = fsmeta_name_key(dir, name, length);
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return leave(meta, META_NOT_MINE);
    const struct name_lock *lock = fsmeta_find_lock(meta, key, dir, name, length);
    if (lock != NULL) return leave(meta, lock->owner == owner ? 0 : META_BUSY);
    return leave(meta, fsmeta_add_lock(meta, key, dir, name, length, owner));
}

int meta_unlock(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner) {
    uint64_t key = fsmeta_name_key(dir, name, length);
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key)))
        return leave(meta, META_NOT_MINE); /* it is where the partition is now, or goes */
    struct name_lock *lock = fsmeta_find_lock(meta, key, dir, name, length);
    if (lock == NULL || lock->owner != owner) return leave(meta, lock == NULL ? ENOENT : META_BUSY);
    fsmeta_table_remove(&meta->locks, &lock->link);
    fsmeta_free_lock(meta, lock);
    return leave(meta, 0);
}

struct of_node {
    struct meta *meta;
    int32_t node;
};

static bool unlock_if_of(void *context, struct link *link) {
    struct of_node *of = context;
    struct name_lock *lock = RECORD(struct name_lock, link, link);
    if (lock->owner >> META_INO_SHIFT != (uint64_t)of->node + 1) return false;
    fsmeta_free_lock(of->meta, lock);
    return true;
}

int meta_unlock_node(struct meta *meta, int32_t node) {
    struct of_node of = {meta, node};
    enter(meta);
    fsmeta_table_sift(&meta->locks, unlock_if_of, &of);
    return leave(meta, 0);
}

/* ── looking up, listing ── */

int meta_lookup(struct meta *meta, uint64_t dir, const char *name, size_t length, int32_t asker, uint64_t *ino, uint32_t *type,
                struct meta_attr *attr) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    node_set *watchers;
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return leave(meta, META_NOT_MINE);
    struct entry *entry = fsmeta_find_entry(meta, key, dir, name, length);
    if (entry == NULL) return leave(meta, fsmeta_absent(meta, key));
    int error = fsmeta_watch(meta, &entry->watchers, asker);
    *ino = entry->ino;
    *type = entry->type;
    if (!fsmeta_attr_of(meta, entry->ino, attr, &watchers)) *attr = (struct meta_attr){.mode = 0};
    else if (error == 0) error = fsmeta_watch(meta, watchers, asker);
    return leave(meta, error);
}

/* With the lock held. */
static void list_entries(const struct meta *meta, uint64_t dir, uint64_t cursor, bool (*each)(void *context, const struct entry *entry),
                         void *context) {
    const struct shelf *shelf = fsmeta_find_shelf(meta, dir);
    bool more = shelf != NULL;
    for (size_t i = more ? fsmeta_slot_after(shelf, cursor) : 0; more && i < shelf->used; i++) {
        const struct entry *entry = shelf->slots[i].entry;
        /* While a partition moves it is in two places: the table says which of them lists it. */
        if (entry == NULL || !fsmeta_owned_by_table(meta, fsmeta_partition_of_key(meta, entry->link.key))) continue;
        more = each(context, entry);
    }
}

struct showing {
    struct meta *meta;
    bool (*each)(void *context, const struct meta_entry *entry, const struct meta_attr *attr);
    void *context;
};

static bool show(void *context, const struct entry *entry) {
    const struct showing *showing = context;
    struct meta_attr attr;
    node_set *watchers;
    struct meta_entry shown = {entry->ino, entry->cursor, entry->type, entry->length, entry->name};
    return showing->each(showing->context, &shown, fsmeta_attr_of(showing->meta, entry->ino, &attr, &watchers) ? &attr : NULL);
}

int meta_list(struct meta *meta, uint64_t dir, uint64_t cursor,
              bool (*each)(void *context, const struct meta_entry *entry, const struct meta_attr *attr), void *context) {
    enter(meta);
    list_entries(meta, dir, cursor, show, &(struct showing){meta, each, context});
    return leave(meta, 0);
}

struct packing {
    uint8_t *to;
    size_t room, size;
    bool more;
};

static bool pack(void *context, const struct entry *entry) {
    struct packing *packing = context;
    packing->more = packing->room - packing->size < META_LISTED_HEAD + (size_t)entry->length;
    if (packing->more) return false;
    uint8_t *at = packing->to + packing->size;
    put_le(at, entry->ino, 8);
    put_le(at + 8, entry->cursor, 8);
    put_le(at + 16, entry->type >> 12, 1);
    put_le(at + 17, entry->length, 1);
    memcpy(at + META_LISTED_HEAD, entry->name, entry->length);
    packing->size += META_LISTED_HEAD + entry->length;
    return true;
}

int meta_list_for(struct meta *meta, uint64_t dir, uint64_t version, uint64_t cursor, uint8_t *to, size_t room, size_t *size, bool *more) {
    struct packing packing = {.to = to, .room = room};
    enter(meta);
    if (atomic_load(&meta->partitions) == 0 || meta->version != version || meta->moving_count > 0) return leave(meta, META_NOT_MINE);
    list_entries(meta, dir, cursor, pack, &packing);
    *size = packing.size;
    *more = packing.more;
    return leave(meta, 0);
}

uint64_t meta_count(struct meta *meta, uint64_t dir) {
    enter(meta);
    const struct shelf *shelf = fsmeta_find_shelf(meta, dir);
    uint64_t count = shelf == NULL ? 0 : shelf->count;
    pthread_mutex_unlock(&meta->lock);
    return count;
}

/* ── changing ── */

/* May there be new entries in it? */
int fsmeta_room_in(const struct meta *meta, uint64_t ino) {
    const struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return fsmeta_find_inode(meta, ino) != NULL ? ENOTDIR : ENOENT;
    return dir->frozen ? META_BUSY : 0;
}

static int new_fault(const struct meta_attr *attr, const char *target) {
    switch (attr->mode & S_IFMT) {
    case S_IFLNK: {
        size_t length = target == NULL ? 0 : strlen(target);
        return target == NULL ? EINVAL : length == 0 ? ENOENT : length > TARGET_MAX ? ENAMETOOLONG : 0;
    }
    case S_IFREG:
        if (attr->layout > META_STRIPED || (attr->layout == META_STRIPED && attr->stripe == 0)) return EINVAL;
        return target != NULL || attr->copies > META_COPIES_MAX ? EINVAL : 0;
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK: return target != NULL || attr->writer >= 0 ? EINVAL : 0;
    default: return EINVAL;
    }
}

/* A record for a new file, in no table yet. NULL: no memory. */
static struct inode *make_inode(struct meta *meta, uint64_t ino, const struct dir *parent, int64_t now, int32_t asker, const char *target,
                                const struct meta_attr *attr) {
    struct inode *inode = fsmeta_new_inode(meta, ino);
    if (inode == NULL) return NULL;
    bool regular = S_ISREG(attr->mode), setgid = parent->mode & S_ISGID;
    inode->mode = attr->mode & (S_IFMT | 07777);
    inode->nlink = 1;
    inode->uid = attr->uid;
    inode->gid = setgid ? parent->gid : attr->gid;
    inode->rdev = attr->rdev;
    inode->layout = regular ? attr->layout : META_WHOLE;
    inode->stripe = regular ? attr->stripe : 0;
    inode->rank = attr->rank;
    inode->copies = !regular ? 1 : attr->copies != 0 ? attr->copies : fsmeta_copies_in(parent);
    fsmeta_note_copies(meta, inode->copies);
    inode->pending = attr->pending;
    inode->writer = regular ? attr->writer : -1;
    inode->finished = inode->writer < 0;
    inode->fresh = inode->writer >= 0;
    inode->atime = inode->mtime = inode->ctime = now;
    int error = fsmeta_watch(meta, &inode->watchers, asker);
    if (error == 0 && inode->writer >= 0 && (error = fsmeta_set_add(&inode->users, inode->writer)) == 0)
        error = fsmeta_set_add(&inode->watchers, inode->writer);
    if (error == 0 && regular && inode->writer < 0 && inode->layout == META_WHOLE && asker >= 0)
        error = fsmeta_set_add(&inode->holders, asker); /* of nothing: the asker may have it as well as another */
    if (error == 0 && target != NULL) error = fsmeta_set_target(meta, inode, target, strlen(target));
    if (error == 0) return inode;
    fsmeta_free_inode(meta, inode);
    return NULL;
}

int meta_create(struct meta *meta, uint64_t dir, const char *name, size_t length, int64_t now, int32_t asker, const char *target,
                bool although_lost, struct meta_attr *attr) {
    int error = fsmeta_name_fault(name, length);
    if (error == 0) error = new_fault(attr, target);
    if (error != 0) return error;
    uint64_t key = fsmeta_name_key(dir, name, length);
    enter(meta);
    size_t partition = fsmeta_partition_of_key(meta, key);
    if (!fsmeta_is_mine(meta, partition)) return leave(meta, META_NOT_MINE);
    if (fsmeta_find_lock(meta, key, dir, name, length) != NULL) return leave(meta, META_BUSY);
    error = fsmeta_room_in(meta, dir);
    if (error == 0 || error == META_BUSY) error = fsmeta_find_entry(meta, key, dir, name, length) != NULL ? EEXIST : error;
    if (error == 0 && !although_lost && fsmeta_absent(meta, key) == EIO) error = EIO;
    if (error != 0) return leave(meta, error);
    uint64_t ino = fsmeta_next_number(meta, partition);
    if (ino == 0) return leave(meta, ENOSPC);
    struct inode *inode = make_inode(meta, ino, fsmeta_find_dir(meta, dir), now, asker, target, attr);
    if (inode == NULL) return leave(meta, ENOMEM);
    struct entry *entry = fsmeta_add_entry(meta, key, dir, name, length, ino, attr->mode);
    if (entry != NULL && fsmeta_watch(meta, &entry->watchers, asker) != 0) {
        fsmeta_delete_entry(meta, entry);
        entry = NULL;
    }
    if (entry == NULL) {
        fsmeta_free_inode(meta, inode);
        return leave(meta, ENOMEM);
    }
    fsmeta_table_add(fsmeta_inodes_of(meta, ino), &inode->link);
    fsmeta_log_inode(meta, inode);
    fsmeta_log_entry(meta, entry);
    fsmeta_inode_attr(inode, attr);
    return leave(meta, 0);
}

int meta_create_unnamed(struct meta *meta, uint64_t dir, uint32_t partition, int64_t now, struct meta_attr *attr) {
    if (!S_ISREG(attr->mode) || attr->layout != META_WHOLE || attr->writer >= 0) return EINVAL;
    enter(meta);
    if (!fsmeta_is_mine(meta, partition)) return leave(meta, META_NOT_MINE);
    int error = fsmeta_room_in(meta, dir);
    if (error != 0) return leave(meta, error);
    uint64_t ino = fsmeta_next_number(meta, partition);
    if (ino == 0) return leave(meta, ENOSPC);
    struct inode *inode = make_inode(meta, ino, fsmeta_find_dir(meta, dir), now, meta->node, NULL, attr);
    if (inode == NULL) return leave(meta, ENOMEM);
    inode->size = attr->size;
    inode->blocks = attr->blocks;
    inode->atime = attr->atime;
    inode->mtime = attr->mtime;
    fsmeta_table_add(fsmeta_inodes_of(meta, ino), &inode->link);
    fsmeta_log_inode(meta, inode);
    fsmeta_inode_attr(inode, attr);
    return leave(meta, 0);
}

int meta_insert(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, uint64_t ino, uint32_t type, bool replace,
                uint64_t *old, uint32_t *old_type, struct meta_nodes *tell) {
    int error = fsmeta_name_fault(name, length);
    if (error == 0 && (!fsmeta_is_type(type) || ino == 0)) error = EINVAL;
    if (error != 0) return error;
    uint64_t key = fsmeta_name_key(dir, name, length);
    *old = 0;
    *old_type = 0;
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return leave(meta, META_NOT_MINE);
    if (locked_by_another(meta, key, dir, name, length, owner)) return leave(meta, META_BUSY);
    const struct inode *inode = fsmeta_find_inode(meta, ino);
    if (inode != NULL && (inode->mode & S_IFMT) != type) return leave(meta, EINVAL);
    struct entry *entry = fsmeta_find_entry(meta, key, dir, name, length);
    if (entry != NULL && !replace) return leave(meta, EEXIST);
    if ((error = fsmeta_room_in(meta, dir)) != 0) return leave(meta, error);
    if (entry == NULL) {
        if (!replace && fsmeta_absent(meta, key) == EIO) return leave(meta, EIO);
        entry = fsmeta_add_entry(meta, key, dir, name, length, ino, type);
        if (entry != NULL) fsmeta_log_entry(meta, entry);
        return leave(meta, entry == NULL ? ENOMEM : 0);
    }
    if ((error = fsmeta_prepare_tell(meta, tell, entry->watchers, 0)) != 0) return leave(meta, error);
    *old = entry->ino;
    *old_type = entry->type;
    fsmeta_tell_all(meta, tell, &entry->watchers, -1);
    entry->ino = ino;
    entry->type = type;
    fsmeta_log_entry(meta, entry);
    return leave(meta, 0);
}

int meta_remove(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, uint64_t ino, uint64_t *was,
                uint32_t *type, struct meta_nodes *tell) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return leave(meta, META_NOT_MINE);
    if (locked_by_another(meta, key, dir, name, length, owner)) return leave(meta, META_BUSY);
    struct entry *entry = fsmeta_find_entry(meta, key, dir, name, length);
    if (entry == NULL) return leave(meta, fsmeta_absent(meta, key));
    if (ino != 0 && entry->ino != ino) return leave(meta, ENOENT);
    int error = fsmeta_prepare_tell(meta, tell, entry->watchers, 0);
    if (error != 0) return leave(meta, error);
    *was = entry->ino;
    *type = entry->type;
    fsmeta_tell_all(meta, tell, &entry->watchers, -1);
    fsmeta_delete_entry(meta, entry);
    return leave(meta, 0);
}

int fsmeta_find_to_unlink(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, struct entry **entry,
                          struct inode **inode) {
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return META_NOT_MINE;
    if (fsmeta_find_lock(meta, key, dir, name, length) != NULL) return META_BUSY;
    if ((*entry = fsmeta_find_entry(meta, key, dir, name, length)) == NULL) return fsmeta_absent(meta, key);
    if ((*entry)->type == S_IFDIR) return EISDIR;
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, (*entry)->ino))) return META_NOT_MINE;
    *inode = fsmeta_find_inode(meta, (*entry)->ino);
    return 0;
}

int meta_unlink(struct meta *meta, uint64_t dir, const char *name, size_t length, int64_t now, struct meta_attr *left, bool *gone,
                struct meta_nodes *tell) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    struct entry *entry;
    struct inode *inode;
    enter(meta);
    int error = fsmeta_find_to_unlink(meta, key, dir, name, length, &entry, &inode);
    if (error == 0) error = fsmeta_prepare_tell(meta, tell, entry->watchers, inode == NULL ? 0 : inode->watchers);
    /* they must drop their copies */
    if (error == 0 && tell == NULL && inode != NULL && !fsmeta_nobody_else(meta, inode->holders)) error = META_BUSY;
    if (error != 0) return leave(meta, error);
    *left = (struct meta_attr){.ino = entry->ino, .mode = entry->type, .writer = -1, .rank = -1};
    *gone = false;
    fsmeta_tell_all(meta, tell, &entry->watchers, -1);
    fsmeta_delete_entry(meta, entry);
    if (inode == NULL) return leave(meta, 0); /* its record was lost with a node: the name goes all the same */
    fsmeta_tell_all(meta, tell, &inode->watchers, -1);
    if (inode->nlink > 0) inode->nlink--;
    inode->ctime = now;
    fsmeta_log_inode(meta, inode);
    fsmeta_inode_attr(inode, left);
    *gone = fsmeta_delete_if_gone(meta, inode);
    return leave(meta, 0);
}

/* One side of a rename. */
struct side {
    struct entry *entry;
    struct inode *inode;
};

/* Is all of it here, unlocked and unwatched? ENOENT: there is no such entry; EIO: it may have been lost. */
static int look_at(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, struct side *side) {
    *side = (struct side){NULL, NULL};
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return META_NOT_MINE;
    if (fsmeta_find_lock(meta, key, dir, name, length) != NULL) return META_BUSY;
    side->entry = fsmeta_find_entry(meta, key, dir, name, length);
    if (side->entry == NULL) return fsmeta_absent(meta, key);
    if (side->entry->type == S_IFDIR) return EISDIR;
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, side->entry->ino))) return META_NOT_MINE;
    side->inode = fsmeta_find_inode(meta, side->entry->ino);
    if (side->inode == NULL) return META_BUSY;
    return fsmeta_nobody_else(meta, side->entry->watchers) && fsmeta_nobody_else(meta, side->inode->watchers) ? 0 : META_BUSY;
}

int meta_rename(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t to_dir, const char *to_name, size_t to_length,
                unsigned flags, int64_t now, struct meta_attr *moved, struct meta_attr *replaced, bool *gone) {
    bool exchange = flags & RENAME_EXCHANGE;
    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) || (exchange && flags & RENAME_NOREPLACE)) return EINVAL;
    int error = fsmeta_name_fault(name, length);
    if (error == 0) error = fsmeta_name_fault(to_name, to_length);
    if (error != 0) return error;
    uint64_t key = fsmeta_name_key(dir, name, length), to_key = fsmeta_name_key(to_dir, to_name, to_length);
    struct side from, to;
    *replaced = (struct meta_attr){.ino = 0, .writer = -1, .rank = -1};
    *gone = false;
    enter(meta);
    error = look_at(meta, key, dir, name, length, &from);
    if (error != 0) return leave(meta, error == EISDIR ? META_BUSY : error); /* a directory: everybody must know */
    error = look_at(meta, to_key, to_dir, to_name, to_length, &to);
    if (to.entry != NULL && flags & RENAME_NOREPLACE) return leave(meta, EEXIST);
    if (error == EISDIR && exchange) error = META_BUSY;
    bool replaces = !exchange && !(flags & RENAME_NOREPLACE);
    if ((error == ENOENT && !exchange) || (error == EIO && replaces)) error = fsmeta_room_in(meta, to_dir);
    if (error != 0) return leave(meta, error);
    if (to.entry != NULL && to.inode == from.inode) {
        fsmeta_inode_attr(from.inode, moved);
        return leave(meta, 0);
    }
    /* they must drop their copies */
    if (to.inode != NULL && !exchange && !fsmeta_nobody_else(meta, to.inode->holders)) return leave(meta, META_BUSY);
    if (to.entry == NULL) {
        to.entry = fsmeta_add_entry(meta, to_key, to_dir, to_name, to_length, from.entry->ino, from.entry->type);
        if (to.entry == NULL) return leave(meta, ENOMEM);
        fsmeta_delete_entry(meta, from.entry);
    } else if (exchange) {
        from.entry->ino = to.inode->link.key;
        from.entry->type = to.inode->mode & S_IFMT;
        to.entry->ino = from.inode->link.key;
        to.entry->type = from.inode->mode & S_IFMT;
    } else {
        to.entry->ino = from.entry->ino;
        to.entry->type = from.entry->type;
        fsmeta_delete_entry(meta, from.entry);
        if (to.inode->nlink > 0) to.inode->nlink--;
    }
    from.inode->ctime = now;
    fsmeta_log_inode(meta, from.inode);
    fsmeta_log_entry(meta, to.entry);
    if (exchange) fsmeta_log_entry(meta, from.entry);
    fsmeta_inode_attr(from.inode, moved);
    if (to.inode == NULL) return leave(meta, 0);
    to.inode->ctime = now;
    fsmeta_log_inode(meta, to.inode);
    fsmeta_inode_attr(to.inode, replaced);
    *gone = fsmeta_delete_if_gone(meta, to.inode);
    return leave(meta, 0);
}
