/* The metadata shard: calls that it may make at once for another node that asks directly (`..._for`). Notes that this node keeps while it asks are fsmeta_uses.c. */
#include "fsmeta_internal.h"

#include <errno.h>

/* ── for another node ── */

/* Is nobody in it but this node and that one? Other nodes in it would have to be told, which takes the long way. */
bool fsmeta_only_us(const struct meta *meta, node_set set, int32_t asker) {
    for (size_t i = 0; i < fsmeta_set_count(set); i++)
        if (fsmeta_set_at(set, i) != meta->node && fsmeta_set_at(set, i) != asker) return false;
    return true;
}

int meta_getattr_for(struct meta *meta, uint64_t ino, int32_t asker, struct meta_attr *attr, bool *holds) {
    node_set *watchers;
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    if (!fsmeta_attr_of(meta, ino, attr, &watchers)) return leave(meta, ENOENT);
    const struct inode *inode = fsmeta_find_inode(meta, ino);
    *holds = inode != NULL && fsmeta_set_has(inode->holders, asker) && inode->closing == 0 && !inode->lost;
    return leave(meta, fsmeta_watch(meta, watchers, asker));
}

/* An empty file that is finished: the asker holds all of it from now on. */
int meta_hold_for(struct meta *meta, uint64_t ino, int32_t asker, struct meta_attr *attr) {
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    struct inode *inode = fsmeta_find_inode(meta, ino);
    if (inode == NULL) return leave(meta, ENOENT);
    bool good = S_ISREG(inode->mode) && inode->finished && !inode->lost && inode->closing == 0 && inode->layout == META_WHOLE &&
                (inode->size == 0 || fsmeta_set_has(inode->holders, asker));
    int error = good && inode->nlink > 0 ? fsmeta_watch(meta, &inode->watchers, asker) : META_BUSY;
    bool held = fsmeta_set_has(inode->holders, asker);
    if (error == 0) error = fsmeta_set_add(&inode->holders, asker);
    if (error == 0 && !held) fsmeta_log_inode(meta, inode);
    if (error == 0) fsmeta_inode_attr(inode, attr);
    return leave(meta, error);
}

static bool is_spared(const struct meta_spares *spares, int32_t node) {
    for (size_t i = 0; spares != NULL && i < spares->count; i++)
        if (spares->each[i].node == node) return true;
    return false;
}

/* They have forgotten it, and have asked for nothing since. */
bool fsmeta_are_spared_still(const struct meta *meta, const struct meta_spares *spares) {
    for (size_t i = 0; spares != NULL && i < spares->count; i++)
        if (fsmeta_stamp(meta, spares->each[i].node) != spares->each[i].stamp) return false;
    return true;
}

bool fsmeta_finds_third(const struct meta *meta, node_set set, int32_t asker, const struct meta_spares *spares, struct meta_unlinked *how) {
    for (size_t i = 0; how->third < 0 && i < fsmeta_set_count(set); i++) {
        int32_t node = fsmeta_set_at(set, i);
        if (node == meta->node || node == asker || is_spared(spares, node)) continue;
        how->third = node;
        how->stamp = fsmeta_stamp(meta, node);
    }
    return how->third >= 0;
}

void fsmeta_drop_spared(const struct meta_spares *spares, node_set *watchers) {
    for (size_t i = 0; spares != NULL && i < spares->count; i++) fsmeta_set_remove(watchers, spares->each[i].node);
}

/* 0: the record concerns nobody but us, and nodes that are spared, when it counts a link less; names of it that go are watched by `names`. */
static int count_fault(const struct meta *meta, const struct inode *inode, node_set names, int32_t asker, const struct meta_spares *spares,
                       struct meta_unlinked *how) {
    bool ours = inode->writer < 0 || inode->writer == meta->node || inode->writer == asker;
    how->ino = inode->link.key;
    if (!ours || (inode->layout == META_STRIPED && inode->nlink <= 1) || !fsmeta_are_spared_still(meta, spares)) return META_BUSY;
    bool third = fsmeta_finds_third(meta, names, asker, spares, how) || fsmeta_finds_third(meta, inode->watchers, asker, spares, how) ||
                 fsmeta_finds_third(meta, inode->holders, asker, spares, how);
    if (third && (!S_ISREG(inode->mode) || inode->closing > 0)) how->third = -1;
    return third ? META_BUSY : 0;
}

/* One of its names has gone. The asker is a user of it already, if it may be. */
static void count_down(struct meta *meta, struct inode *inode, int64_t now, int32_t asker, const struct meta_spares *spares,
                       struct meta_attr *left, struct meta_unlinked *how) {
    fsmeta_drop_spared(spares, &inode->watchers);
    fsmeta_tell_all(meta, NULL, &inode->watchers, asker);
    if (inode->nlink > 0) inode->nlink--;
    inode->ctime = now;
    fsmeta_log_inode(meta, inode);
    fsmeta_inode_attr(inode, left);
    how->here = fsmeta_set_has(inode->holders, meta->node);
    how->there = fsmeta_set_has(inode->holders, asker);
    how->gone = fsmeta_delete_if_gone(meta, inode);
}

int meta_unlink_for(struct meta *meta, uint64_t dir, const char *name, size_t length, int64_t now, int32_t asker, bool used,
                    const struct meta_spares *spares, struct meta_attr *left, struct meta_unlinked *how) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    *how = (struct meta_unlinked){.third = -1};
    struct entry *entry;
    struct inode *inode;
    enter(meta);
    int error = fsmeta_find_to_unlink(meta, key, dir, name, length, &entry, &inode);
    if (error == 0) error = inode == NULL ? META_BUSY : count_fault(meta, inode, entry->watchers, asker, spares, how);
    if (error != 0) return leave(meta, error);
    how->used = used && inode->nlink <= 1;
    if (how->used && fsmeta_set_add(&inode->users, asker) != 0) return leave(meta, ENOMEM);
    fsmeta_set_clear(&entry->watchers);
    fsmeta_delete_entry(meta, entry);
    count_down(meta, inode, now, asker, spares, left, how);
    return leave(meta, 0);
}

bool meta_unlink_asks(struct meta *meta, uint64_t dir, const char *name, size_t length, struct meta_unlinked *how) {
    struct entry *entry;
    struct inode *inode;
    *how = (struct meta_unlinked){.third = -1};
    if (length > META_NAME_MAX) return false;
    enter(meta);
    int error = fsmeta_find_to_unlink(meta, fsmeta_name_key(dir, name, length), dir, name, length, &entry, &inode);
    if (error == 0 && inode != NULL) error = count_fault(meta, inode, entry->watchers, meta->node, NULL, how);
    pthread_mutex_unlock(&meta->lock);
    return error == META_BUSY && how->third >= 0;
}

/* ── unlinking a name whose record is on another node: first the name, then a link less ── */

int meta_unname_for(struct meta *meta, uint64_t dir, const char *name, size_t length, int32_t asker, uint64_t *ino, uint32_t *type) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    struct entry *entry;
    struct inode *inode;
    enter(meta);
    int error = fsmeta_find_to_unlink(meta, key, dir, name, length, &entry, &inode);
    if (error != META_NOT_MINE) return leave(meta, error == 0 ? META_BUSY : error);
    /* The name is not here, or the record is, or either is on its way. */
    bool here = fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key));
    if (!here || fsmeta_owned_by_table(meta, fsmeta_partition_of_ino(meta, entry->ino))) return leave(meta, META_NOT_MINE);
    if (!fsmeta_only_us(meta, entry->watchers, asker)) return leave(meta, META_BUSY);
    *ino = entry->ino;
    *type = entry->type;
    fsmeta_set_clear(&entry->watchers);
    fsmeta_delete_entry(meta, entry);
    return leave(meta, 0);
}

int meta_uncount_for(struct meta *meta, uint64_t ino, int64_t now, int32_t asker, bool used, const struct meta_spares *spares,
                     struct meta_attr *left, struct meta_unlinked *how) {
    *how = (struct meta_unlinked){.third = -1};
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    struct inode *inode = fsmeta_find_inode(meta, ino);
    if (inode == NULL || inode->nlink == 0) return leave(meta, ENOENT);
    int error = count_fault(meta, inode, 0, asker, spares, how);
    if (error != 0) return leave(meta, error);
    how->used = used && inode->nlink <= 1;
    if (how->used && fsmeta_set_add(&inode->users, asker) != 0) return leave(meta, ENOMEM);
    count_down(meta, inode, now, asker, spares, left, how);
    return leave(meta, 0);
}

int meta_closed_for(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *written, bool same, bool used,
                    struct meta_attr *out) {
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    struct inode *inode = fsmeta_find_inode(meta, ino);
    if (inode == NULL) return leave(meta, ENOENT);
    bool wrote = written != NULL && inode->writer == node;
    if (!S_ISREG(inode->mode) || inode->nlink == 0) return leave(meta, META_BUSY); /* with its last user it goes, and its data everywhere */
    same = wrote && same && inode->copies > 1;
    bool sole = inode->copies <= 1 && fsmeta_set_only(inode->holders, node);
    if (wrote && (inode->layout != META_WHOLE || !fsmeta_only_us(meta, inode->watchers, node))) return leave(meta, META_BUSY);
    if (wrote && !(same ? fsmeta_is_secured(inode, node, written) : sole)) return leave(meta, META_BUSY);
    if (wrote && fsmeta_watch(meta, &inode->watchers, node) != 0) return leave(meta, META_BUSY); /* it keeps our answer */
    if (wrote) {
        if (same) fsmeta_end_writing(inode);
        else fsmeta_record_written(meta, inode, node, written);
        fsmeta_tell_all(meta, NULL, &inode->watchers, node);
    }
    if (!used) fsmeta_stop_using(inode, node);
    if (wrote || !used) fsmeta_log_inode(meta, inode);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

/* While a file is written, its writer knows its size and times best. Copies of the content have times of their own, so no node may have one but the asker, which has
 * set those of its copy, and this one, if the file is not being written. */
int meta_setattr_for(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker,
                     int (*stamp)(void *context), void *context, struct meta_attr *out) {
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    struct inode *inode = fsmeta_find_inode(meta, ino);
    if (inode == NULL || (mask & ~(unsigned)META_SET_DIRECTLY) != 0 || !fsmeta_only_us(meta, inode->watchers, asker))
        return leave(meta, META_BUSY);
    bool timed = (mask & (META_SET_ATIME | META_SET_MTIME)) != 0 && S_ISREG(inode->mode);
    bool ours = inode->layout == META_WHOLE && (inode->writer < 0 || inode->writer == asker);
    bool stamps = timed && inode->holders != 0 && !fsmeta_set_only(inode->holders, asker);
    if (!ours || (stamps && (inode->writer >= 0 || !fsmeta_only_us(meta, inode->holders, asker)))) return leave(meta, META_BUSY);
    int error = fsmeta_watch(meta, &inode->watchers, asker);
    if (error != 0) return leave(meta, error);
    if (stamps && stamp(context) != 0) return leave(meta, META_BUSY);
    fsmeta_set_inode(meta, inode, mask, in, now, asker);
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, NULL, &inode->watchers, asker);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_dir_touch_for(struct meta *meta, uint64_t ino, int64_t now, int32_t asker) {
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL || !fsmeta_only_us(meta, dir->watchers, asker)) return leave(meta, META_BUSY);
    fsmeta_touch_dir(dir, now);
    return leave(meta, 0);
}

/* ── old answers ── */

int meta_cache_fresh(struct meta *meta, uint64_t since, const struct meta_attr *attr, bool replica) {
    if (attr->ino == 0) return EINVAL;
    enter(meta);
    return leave(meta, fsmeta_is_fresh(meta, since, attr->ino) ? fsmeta_put_copy(meta, attr, replica) : ESTALE);
}
