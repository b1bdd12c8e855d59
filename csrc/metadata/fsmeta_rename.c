/* The metadata shard: a file is renamed whose names lie on two nodes, in three steps that the node of the asker leads (fuse_rename.c). First the old name is
 * locked, and the record counts a link more. Then the new name is made, or taken from another file, at its own node. Then the old name goes, the record
 * counts a link less, and the lock goes. A step begins when the backups know of the one before: no name leads to a file that does not count it.
 * A request that is refused here takes the long way. */
#include "fsmeta_internal.h"

#include <errno.h>

/* 0: it may begin. *how: as meta_rename_begin_for has it. */
static int begin_fault(struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, int32_t asker,
                       const struct meta_spares *spares, struct entry **entry, struct inode **found, struct meta_unlinked *how) {
    int error = fsmeta_find_to_unlink(meta, key, dir, name, length, entry, found);
    if (error != 0) return error == EISDIR ? META_BUSY : error; /* of a directory everybody must know */
    const struct inode *inode = *found;
    /* The record and the name have one backup, which is told of both in the order of the changes, if they are of one partition. */
    bool together = inode != NULL && fsmeta_partition_of_ino(meta, (*entry)->ino) == fsmeta_partition_of_key(meta, key);
    if (!together || inode->nlink == 0 || inode->nlink == UINT32_MAX || inode->pending != 0) return META_BUSY;
    how->ino = inode->link.key;
    bool third =
        fsmeta_finds_third(meta, (*entry)->watchers, asker, spares, how) || fsmeta_finds_third(meta, inode->watchers, asker, spares, how);
    bool ours = inode->writer < 0 || inode->writer == meta->node || inode->writer == asker, still = fsmeta_are_spared_still(meta, spares);
    /* Kernels count what they know of files, and of nothing else. */
    if (third && (!still || !ours || !S_ISREG(inode->mode))) how->third = -1;
    return third || !still ? META_BUSY : 0;
}

int meta_rename_begin_for(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, int32_t asker,
                          const struct meta_spares *spares, struct meta_attr *attr, struct meta_unlinked *how) {
    int error = fsmeta_name_fault(name, length);
    *how = (struct meta_unlinked){.third = -1};
    if (error != 0 || owner == 0) return error != 0 ? error : EINVAL;
    uint64_t key = fsmeta_name_key(dir, name, length);
    struct entry *entry;
    struct inode *inode;
    enter(meta);
    error = begin_fault(meta, key, dir, name, length, asker, spares, &entry, &inode, how);
    if (error == 0) error = fsmeta_add_lock(meta, key, dir, name, length, owner);
    if (error != 0) return leave(meta, error);
    fsmeta_drop_spared(spares, &entry->watchers);
    fsmeta_drop_spared(spares, &inode->watchers);
    inode->nlink++;
    fsmeta_log_inode(meta, inode);
    fsmeta_inode_attr(inode, attr);
    return leave(meta, 0);
}

bool meta_rename_asks(struct meta *meta, uint64_t dir, const char *name, size_t length, struct meta_unlinked *how) {
    struct entry *entry;
    struct inode *inode;
    *how = (struct meta_unlinked){.third = -1};
    if (fsmeta_name_fault(name, length) != 0) return false;
    enter(meta);
    int error = begin_fault(meta, fsmeta_name_key(dir, name, length), dir, name, length, meta->node, NULL, &entry, &inode, how);
    pthread_mutex_unlock(&meta->lock);
    return error == META_BUSY && how->third >= 0;
}

int meta_insert_for(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t ino, uint32_t type, bool replace,
                    int32_t asker, uint64_t *old, uint32_t *old_type) {
    int error = fsmeta_name_fault(name, length);
    if (error == 0 && (!fsmeta_is_type(type) || S_ISDIR(type) || ino == 0)) error = EINVAL;
    if (error != 0) return error;
    uint64_t key = fsmeta_name_key(dir, name, length);
    *old = 0;
    *old_type = 0;
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return leave(meta, META_NOT_MINE);
    if (fsmeta_find_lock(meta, key, dir, name, length) != NULL) return leave(meta, META_BUSY);
    struct entry *entry = fsmeta_find_entry(meta, key, dir, name, length);
    if (entry != NULL && (!replace || entry->ino == ino || S_ISDIR(entry->type))) return leave(meta, EEXIST);
    if (entry != NULL && !fsmeta_only_us(meta, entry->watchers, asker)) return leave(meta, META_BUSY);
    if ((error = fsmeta_room_in(meta, dir)) != 0) return leave(meta, error);
    if (entry == NULL) {
        if (fsmeta_absent(meta, key) == EIO) return leave(meta, EIO);
        entry = fsmeta_add_entry(meta, key, dir, name, length, ino, type);
        if (entry == NULL) return leave(meta, ENOMEM);
        if (fsmeta_watch(meta, &entry->watchers, asker) != 0) { /* it was nowhere yet */
            fsmeta_table_remove(fsmeta_entries_of(meta, key), &entry->link);
            fsmeta_free_entry(meta, entry);
            return leave(meta, ENOMEM);
        }
    } else {
        if (fsmeta_watch(meta, &entry->watchers, asker) != 0) return leave(meta, ENOMEM);
        *old = entry->ino;
        *old_type = entry->type;
        entry->ino = ino;
        entry->type = type & S_IFMT;
    }
    fsmeta_log_entry(meta, entry);
    return leave(meta, 0);
}

int meta_rename_end_for(struct meta *meta, uint64_t dir, const char *name, size_t length, uint64_t owner, uint64_t ino, int64_t now,
                        int32_t asker, struct meta_attr *attr) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key))) return leave(meta, META_NOT_MINE);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    struct name_lock *lock = fsmeta_find_lock(meta, key, dir, name, length);
    struct entry *entry = fsmeta_find_entry(meta, key, dir, name, length);
    struct inode *inode = fsmeta_find_inode(meta, ino);
    bool there = entry != NULL && entry->ino == ino && inode != NULL && inode->nlink > 1;
    if (!there || (lock != NULL && lock->owner != owner)) return leave(meta, META_BUSY);
    if (!fsmeta_only_us(meta, entry->watchers, asker) || !fsmeta_only_us(meta, inode->watchers, asker)) return leave(meta, META_BUSY);
    fsmeta_set_clear(&entry->watchers);
    fsmeta_delete_entry(meta, entry); /* first: a backup that knows of one of the two knows of this */
    inode->nlink--;
    inode->ctime = now;
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, NULL, &inode->watchers, asker);
    fsmeta_inode_attr(inode, attr);
    if (lock != NULL) {
        fsmeta_table_remove(&meta->locks, &lock->link);
        fsmeta_free_lock(meta, lock);
    }
    return leave(meta, 0);
}
