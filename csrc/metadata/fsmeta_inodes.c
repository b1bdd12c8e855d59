/* The metadata shard: calls about files (the record is fsmeta_inode.c): their users, holders of their content; copies of other nodes' records. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool fsmeta_attr_of(const struct meta *meta, uint64_t ino, struct meta_attr *attr, node_set **watchers) {
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return false;
    struct inode *inode = fsmeta_find_inode(meta, ino);
    struct dir *dir = inode != NULL ? NULL : fsmeta_find_dir(meta, ino);
    if (inode != NULL) {
        fsmeta_inode_attr(inode, attr);
        *watchers = &inode->watchers;
    } else if (dir != NULL) {
        fsmeta_dir_attr(dir, attr);
        *watchers = &dir->watchers;
    }
    return inode != NULL || dir != NULL;
}

/* The record of a file of here. 0, META_NOT_MINE, ENOENT, EISDIR. */
static int file_here(const struct meta *meta, uint64_t ino, struct inode **inode) {
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return META_NOT_MINE;
    *inode = fsmeta_find_inode(meta, ino);
    return *inode != NULL ? 0 : fsmeta_find_dir(meta, ino) != NULL ? EISDIR : ENOENT;
}

/* Likewise of one with content. EINVAL: it is a link, a pipe, a device. */
int fsmeta_content_here(const struct meta *meta, uint64_t ino, struct inode **inode) {
    int error = file_here(meta, ino, inode);
    return error == 0 && !S_ISREG((*inode)->mode) ? EINVAL : error;
}

int meta_getattr(struct meta *meta, uint64_t ino, int32_t asker, struct meta_attr *attr) {
    node_set *watchers;
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    if (!fsmeta_attr_of(meta, ino, attr, &watchers)) return leave(meta, ENOENT);
    return leave(meta, fsmeta_watch(meta, watchers, asker));
}

/* ── changing ── */

static int set_fault(const struct inode *inode, unsigned mask, const struct meta_attr *in) {
    if (mask & META_SET_LAYOUT && (!S_ISREG(inode->mode) || in->layout > META_STRIPED || (in->layout == META_STRIPED && in->stripe == 0)))
        return EINVAL;
    if (mask & META_SET_COPIES && (!S_ISREG(inode->mode) || in->copies == 0 || in->copies > META_COPIES_MAX)) return EINVAL;
    return mask & META_SET_SIZE && !S_ISREG(inode->mode) ? EINVAL : 0;
}

void fsmeta_set_inode(struct meta *meta, struct inode *inode, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker) {
    fsmeta_set_owned((struct owned){&inode->mode, &inode->uid, &inode->gid, &inode->atime, &inode->mtime, &inode->ctime}, mask, in, now);
    if (mask & META_SET_ATIME && inode->writer >= 0) inode->atimed = now;
    if (mask & META_SET_MTIME && inode->writer >= 0) inode->timed = now;
    if (mask & META_SET_RANK) inode->rank = in->rank;
    if (mask & META_SET_SIZE && inode->size != in->size) {
        fsmeta_set_origin(meta, inode, NULL, 0);
        inode->size = in->size;
        if (in->size == 0) inode->blocks = 0;
        if (!(mask & META_SET_MTIME)) inode->mtime = now;
        /* Copies of the old length are worth nothing now; that of the node which cut it is. */
        if (inode->finished && fsmeta_set_has(inode->holders, asker)) fsmeta_set_holder(inode, asker);
    }
    if (mask & META_SET_BLOCKS) inode->blocks = in->blocks;
    if (mask & META_SET_COPIES) inode->copies = in->copies;
    if (mask & META_SET_LAYOUT && (inode->layout != in->layout || inode->stripe != in->stripe)) {
        inode->layout = in->layout;
        inode->stripe = in->stripe;
        fsmeta_set_holder(inode, inode->finished ? asker : -1);
    }
}

int meta_setattr(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker,
                 struct meta_attr *out, struct meta_nodes *tell) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0) error = set_fault(inode, mask, in);
    if (error == 0) error = fsmeta_prepare_tell(meta, tell, inode->watchers, 0);
    if (error == 0) error = fsmeta_watch(meta, &inode->watchers, asker);
    if (error != 0) return leave(meta, error);
    fsmeta_set_inode(meta, inode, mask, in, now, asker);
    fsmeta_note_copies(meta, inode->copies);
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, tell, &inode->watchers, asker);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_set_mode(struct meta *meta, uint64_t ino, uint32_t mode, int64_t now) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    fsmeta_set_inode(meta, inode, META_SET_MODE, &(struct meta_attr){.mode = mode}, now, meta->node);
    fsmeta_log_inode(meta, inode);
    return leave(meta, 0);
}

int meta_set_pending(struct meta *meta, uint64_t ino, uint64_t was, uint64_t pending, int32_t asker, struct meta_attr *out,
                     struct meta_nodes *tell) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0 && (inode->pending == 0 || (was != 0 && inode->pending != was))) error = EAGAIN;
    if (error == 0) error = fsmeta_prepare_tell(meta, tell, inode->watchers, 0);
    if (error == 0) error = fsmeta_watch(meta, &inode->watchers, asker);
    if (error != 0) return leave(meta, error);
    inode->pending = pending;
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, tell, &inode->watchers, asker);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_link(struct meta *meta, uint64_t ino, int delta, int64_t now, int32_t asker, struct meta_attr *out, bool *gone,
              struct meta_nodes *tell) {
    struct inode *inode;
    *gone = false;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0 && delta < 0 && inode->nlink < (uint32_t)-(int64_t)delta) error = EINVAL;
    if (error == 0 && delta > 0 && inode->nlink == 0) error = ENOENT; /* its last name is gone: it is only open still */
    if (error == 0 && delta > 0 && inode->nlink > UINT32_MAX - (uint32_t)delta) error = EMLINK;
    if (error == 0) error = fsmeta_prepare_tell(meta, tell, inode->watchers, 0);
    if (error == 0) error = fsmeta_watch(meta, &inode->watchers, asker); /* it goes on with what its kernel has of the file */
    if (error != 0) return leave(meta, error);
    inode->nlink = (uint32_t)((int64_t)inode->nlink + delta);
    inode->ctime = now;
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, tell, &inode->watchers, asker);
    fsmeta_inode_attr(inode, out);
    *gone = fsmeta_delete_if_gone(meta, inode);
    return leave(meta, 0);
}

/* ── opening, writing, copies of the content ── */

int fsmeta_list_nodes(node_set set, struct meta_nodes *nodes) {
    int error = fsmeta_nodes_reserve(nodes, fsmeta_set_count(set));
    for (size_t i = 0; error == 0 && i < fsmeta_set_count(set); i++) fsmeta_nodes_add(nodes, fsmeta_set_at(set, i));
    return error;
}

/* `node` uses it from now on, and will be told of changes. */
static int use(struct meta *meta, struct inode *inode, int32_t node) {
    fsmeta_node_asks(meta, node);
    int error = fsmeta_set_add(&inode->watchers, node);
    return error != 0 ? error : fsmeta_set_add(&inode->users, node);
}

static void grant_writing(struct meta *meta, struct inode *inode, int32_t node) {
    inode->writer = node;
    inode->grant = ++meta->grants;
    inode->secured = inode->fresh = false;
    inode->finished = 0;
    inode->timed = inode->atimed = 0;
}

int meta_open(struct meta *meta, uint64_t ino, int32_t node, bool writing, struct meta_attr *out, struct meta_nodes *holders,
              struct meta_nodes *tell) {
    struct inode *inode;
    if (node < 0) return EINVAL;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    bool grant = error == 0 && writing && inode->writer < 0;
    if (error == 0) error = fsmeta_list_nodes(inode->holders, holders);
    if (error == 0 && grant) error = fsmeta_prepare_tell(meta, tell, inode->watchers, 0);
    if (error == 0) error = use(meta, inode, node);
    if (error != 0) return leave(meta, error);
    inode->fresh = false;
    if (writing && node != meta->node) inode->mode = fsmeta_without_setid(inode->mode); /* it will not ask for each write */
    if (grant) {
        fsmeta_tell_all(meta, tell, &inode->watchers, node);
        grant_writing(meta, inode, node);
    }
    if (grant || node != meta->node) fsmeta_log_inode(meta, inode); /* that this node reads it is over when it dies */
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_wrote(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, struct meta_attr *out, struct meta_nodes *tell) {
    return meta_made(meta, ino, node, in, NULL, 0, out, tell);
}

int meta_made(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, const void *origin, size_t size,
              struct meta_attr *out, struct meta_nodes *tell) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error == 0 && (node < 0 || inode->writer != node)) error = EPERM;
    if (error == 0 && tell == NULL && (opens_look(meta->opens, ino).claimed || inode->copies > 1))
        error = META_BUSY; /* others may be about to write it through this node, or shall have it */
    if (error == 0) error = fsmeta_prepare_tell(meta, tell, inode->watchers, tell == NULL ? inode->holders : 0);
    if (error != 0) return leave(meta, error);
    fsmeta_record_written(meta, inode, node, in);
    if (size > 0) fsmeta_set_origin(meta, inode, origin, size);
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, tell, &inode->watchers, node);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

void meta_said(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in) {
    struct inode *inode;
    enter(meta);
    if (fsmeta_content_here(meta, ino, &inode) == 0 && inode->writer == node) fsmeta_record_content(meta, inode, in);
    leave(meta, 0);
}

int meta_unused(struct meta *meta, uint64_t ino, int32_t node, bool *gone) {
    struct inode *inode;
    *gone = false;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    bool told = node != meta->node || inode->writer == node;
    fsmeta_stop_using(inode, node);
    *gone = fsmeta_delete_if_gone(meta, inode);
    if (told && !*gone) fsmeta_log_inode(meta, inode);
    return leave(meta, 0);
}

void meta_closing(struct meta *meta, uint64_t ino) {
    struct inode *inode;
    enter(meta);
    if (file_here(meta, ino, &inode) == 0 && inode->closing < UINT16_MAX) inode->closing++;
    leave(meta, 0);
}

void meta_closed(struct meta *meta, uint64_t ino) {
    struct inode *inode;
    enter(meta);
    if (file_here(meta, ino, &inode) == 0 && inode->closing > 0) inode->closing--;
    leave(meta, 0);
}

uint64_t meta_grant(struct meta *meta, uint64_t ino) {
    enter(meta);
    const struct inode *inode = fsmeta_find_inode(meta, ino);
    uint64_t grant = inode == NULL ? 0 : inode->grant;
    pthread_mutex_unlock(&meta->lock);
    return grant;
}

int meta_add_holder(struct meta *meta, uint64_t ino, int32_t node, uint64_t grant) {
    struct inode *inode;
    if (node < 0) return EINVAL;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    bool whole = inode->finished && !inode->lost && inode->layout == META_WHOLE;
    if (whole && fsmeta_set_has(inode->holders, node))
        return leave(meta, 0); /* its question came once already, to a node that has died since */
    /* A node that is no watcher any more was told of a change since it opened the file to copy it. Since then it may have become one again: by a look, or
     * another opening. */
    bool good = whole && inode->grant == grant && fsmeta_set_has(inode->watchers, node);
    if (good) error = fsmeta_set_add(&inode->holders, node);
    if (good && error == 0) fsmeta_log_inode(meta, inode);
    return leave(meta, good ? error : EAGAIN);
}

int meta_give_up(struct meta *meta, uint64_t ino, int32_t node) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    /* With more copies what lies here may be what its writer's node had copied last. */
    bool old = inode->layout != META_WHOLE || (inode->writer >= 0 && inode->copies <= 1);
    bool holds = inode->holders == 0 || fsmeta_set_has(inode->holders, node);
    bool needed = !old && inode->size > 0 && holds && fsmeta_set_count(inode->holders) <= inode->copies;
    if (needed || inode->copying || inode->writer == node || fsmeta_set_has(inode->users, node)) return leave(meta, EBUSY);
    fsmeta_set_remove(&inode->holders, node);
    fsmeta_log_inode(meta, inode);
    return leave(meta, 0);
}

int meta_damaged(struct meta *meta, uint64_t ino, int32_t node, bool stripe, bool *lost) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    bool holds = stripe ? inode->layout == META_STRIPED : inode->layout == META_WHOLE && fsmeta_set_has(inode->holders, node);
    if (!holds || !inode->finished || inode->writer >= 0) return leave(meta, EAGAIN);
    if (!stripe) fsmeta_set_remove(&inode->holders, node);
    *lost = stripe || (inode->holders == 0 && inode->size > 0);
    inode->lost = inode->lost || *lost;
    fsmeta_log_inode(meta, inode);
    return leave(meta, 0);
}

int meta_holders(struct meta *meta, uint64_t ino, struct meta_nodes *holders) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    return leave(meta, error != 0 ? error : fsmeta_list_nodes(inode->holders, holders));
}

int meta_concerned(struct meta *meta, uint64_t ino, struct meta_nodes *nodes) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0) error = fsmeta_nodes_reserve(nodes, fsmeta_set_count(inode->holders) + fsmeta_set_count(inode->watchers));
    for (size_t i = 0; error == 0 && i < fsmeta_set_count(inode->holders); i++) fsmeta_nodes_add(nodes, fsmeta_set_at(inode->holders, i));
    for (size_t i = 0; error == 0 && i < fsmeta_set_count(inode->watchers); i++) fsmeta_nodes_add(nodes, fsmeta_set_at(inode->watchers, i));
    return leave(meta, error);
}

int meta_readlink(struct meta *meta, uint64_t ino, char *to, size_t room, size_t *length) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0 && inode->target == NULL) error = EINVAL;
    if (error == 0 && room < inode->size) error = ERANGE;
    if (error != 0) return leave(meta, error == EISDIR ? EINVAL : error);
    *length = inode->size;
    memcpy(to, inode->target, inode->size);
    return leave(meta, 0);
}

/* ── copies of records that others own ── */

static struct copy *find_copy(const struct meta *meta, uint64_t ino) {
    struct link *link = fsmeta_table_first(&meta->copies, ino);
    return link == NULL ? NULL : RECORD(struct copy, link, link);
}

int fsmeta_put_copy(struct meta *meta, const struct meta_attr *attr, bool replica) {
    struct copy *copy = find_copy(meta, attr->ino);
    if (copy == NULL) {
        copy = fsmeta_slab_take(&meta->slabs, sizeof *copy);
        if (copy == NULL) return ENOMEM;
        copy->link.key = attr->ino;
        copy->replica = false;
        fsmeta_table_add(&meta->copies, &copy->link);
    } else if (copy->attr.size != attr->size || copy->attr.mtime != attr->mtime || copy->attr.layout != attr->layout || !attr->finished) {
        copy->replica = false; /* it was one of what the file contained before */
    }
    copy->attr = *attr;
    copy->replica = (copy->replica || replica) && attr->finished != META_LOST;
    fsmeta_number_is_used(meta, attr->ino);
    return 0;
}

int meta_cache(struct meta *meta, const struct meta_attr *attr, bool replica) {
    if (attr->ino == 0) return EINVAL;
    enter(meta);
    return leave(meta, fsmeta_put_copy(meta, attr, replica));
}

int meta_cached(struct meta *meta, uint64_t ino, struct meta_attr *attr, bool *replica) {
    enter(meta);
    const struct copy *copy = find_copy(meta, ino);
    if (copy == NULL) return leave(meta, ENOENT);
    *attr = copy->attr;
    *replica = copy->replica;
    return leave(meta, 0);
}

struct uncache {
    struct meta *meta;
    const bool *partitions;
};

static void drop(struct meta *meta, struct copy *copy) {
    fsmeta_table_remove(&meta->copies, &copy->link);
    fsmeta_slab_give(&meta->slabs, copy);
}

int meta_uncache(struct meta *meta, uint64_t ino, bool *replica) {
    enter(meta);
    fsmeta_mark_stale(meta, ino);
    struct copy *copy = find_copy(meta, ino);
    if (copy == NULL) return leave(meta, ENOENT);
    *replica = copy->replica;
    drop(meta, copy);
    return leave(meta, 0);
}

/* Answers may come in another order than they were given. One that was asked for before another came may be older than that, or newer: neither is kept. */
void meta_cache_changed(struct meta *meta, uint64_t since, const struct meta_attr *attr) {
    enter(meta);
    bool fresh = fsmeta_is_fresh(meta, since, attr->ino);
    fsmeta_mark_stale(meta, attr->ino);
    struct copy *copy = find_copy(meta, attr->ino);
    if (copy != NULL && fresh) fsmeta_put_copy(meta, attr, copy->replica && attr->finished);
    else if (copy != NULL) drop(meta, copy);
    pthread_mutex_unlock(&meta->lock);
}

void meta_uncache_unfinished(struct meta *meta, uint64_t ino) {
    enter(meta);
    struct copy *copy = find_copy(meta, ino);
    if (copy != NULL && !copy->attr.finished) drop(meta, copy);
    pthread_mutex_unlock(&meta->lock);
}

static bool drop_copy(void *context, struct link *link) {
    const struct uncache *uncache = context;
    if (!uncache->partitions[fsmeta_partition_of_ino(uncache->meta, link->key)]) return false;
    fsmeta_slab_give(&uncache->meta->slabs, RECORD(struct copy, link, link));
    return true;
}

int meta_uncache_partitions(struct meta *meta, const uint32_t *partitions, size_t count) {
    enter(meta);
    size_t all = atomic_load(&meta->partitions);
    bool *which = calloc(all + 1, sizeof *which);
    if (which == NULL) return leave(meta, ENOMEM);
    for (size_t i = 0; i < count; i++)
        if (partitions[i] < all) which[partitions[i]] = true;
    meta->stale_count += STALE_MARKS + 1; /* more than is remembered: nothing that was asked before is fresh */
    fsmeta_forget_small(meta, 0);
    fsmeta_table_sift(&meta->copies, drop_copy, &(struct uncache){meta, which});
    free(which);
    return leave(meta, 0);
}

/* ── what concerns nobody else ── */

/* Reading: the content must be here. Writing: nobody else may have any view of it, nor hold it: then the backup must hear of the opening
 * first. A writer that holds nothing yet may still be bringing it here, and one that is opening an empty file clears away first what lies here. */
static int may_open(const struct meta *meta, const struct inode *inode, bool writing) {
    bool holds = fsmeta_set_has(inode->holders, meta->node);
    if (inode->lost || inode->closing > 0 || inode->layout != META_WHOLE || (inode->writer >= 0 && inode->writer != meta->node))
        return META_BUSY;
    if (!holds && (inode->holders != 0 || (inode->writer < 0 && inode->size > 0) || opens_look(meta->opens, inode->link.key).claimed))
        return META_BUSY;
    bool alone = fsmeta_nobody_else(meta, inode->watchers) && fsmeta_nobody_else(meta, inode->holders);
    return !writing || inode->writer >= 0 || alone ? 0 : META_BUSY;
}

int meta_open_here(struct meta *meta, uint64_t ino, bool writing, struct meta_attr *out) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error == META_NOT_MINE && !writing && !fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) {
        const struct copy *copy = find_copy(meta, ino);
        if (copy == NULL || !copy->replica || !copy->attr.finished) return leave(meta, META_NOT_MINE);
        *out = copy->attr;
        return leave(meta, 0);
    }
    if (error == 0) error = may_open(meta, inode, writing);
    if (error == 0) error = use(meta, inode, meta->node);
    if (error != 0) return leave(meta, error);
    if (writing && inode->writer < 0) {
        grant_writing(meta, inode, meta->node);
        fsmeta_log_inode(meta, inode);
    }
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_setattr_here(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, struct meta_attr *out) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == EISDIR) {
        struct dir *dir = fsmeta_find_dir(meta, ino);
        if (mask & (META_SET_SIZE | META_SET_BLOCKS | META_SET_LAYOUT | META_SET_COPIES)) return leave(meta, EISDIR);
        if (!fsmeta_is_alone(meta) || !fsmeta_nobody_else(meta, dir->watchers))
            return leave(meta, META_BUSY); /* every node has a record of it */
        fsmeta_set_dir(dir, mask, in, now);
        fsmeta_dir_attr(dir, out);
        return leave(meta, 0);
    }
    if (error == 0) error = set_fault(inode, mask, in);
    if (error == 0 && (mask & (META_SET_LAYOUT | META_SET_RANK | META_SET_COPIES) || !fsmeta_nobody_else(meta, inode->watchers)))
        error = META_BUSY;
    if (error == 0 && mask & (META_SET_ATIME | META_SET_MTIME) && !fsmeta_nobody_else(meta, inode->holders))
        error = META_BUSY; /* their copies have times, too */
    if (error == 0 && mask & META_SET_SIZE) {
        error = may_open(meta, inode, true);
        if (error == 0 && inode->writer < 0 && (inode->copies > 1 || !fsmeta_set_only(inode->holders, meta->node)))
            error = META_BUSY; /* others' copies are too long now, or they shall have some */
    }
    if (error != 0) return leave(meta, error);
    fsmeta_set_inode(meta, inode, mask, in, now, meta->node);
    fsmeta_log_inode(meta, inode);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}
