/* The metadata shard: records of files, who uses them, who has their content; copies of other nodes' records. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct inode *find_inode(const struct meta *meta, uint64_t ino) {
    const struct table *table = inodes_of(meta, ino);
    struct link *link = table == NULL ? NULL : table_first(table, ino);
    return link == NULL ? NULL : RECORD(struct inode, link, link);
}

struct inode *new_inode(struct meta *meta, uint64_t ino) {
    struct inode *inode = is_ready(meta, inodes_of(meta, ino)) ? slab_take(&meta->slabs, sizeof *inode) : NULL;
    if (inode != NULL) *inode = (struct inode){.link.key = ino, .writer = -1, .rank = -1, .finished = 1};
    return inode;
}

int set_target(struct meta *meta, struct inode *inode, const char *target, size_t length) {
    inode->target = malloc(length + 1);
    if (inode->target == NULL) return ENOMEM;
    memcpy(inode->target, target, length);
    inode->target[length] = '\0';
    inode->size = length;
    meta->other_bytes += length + 1;
    return 0;
}

void free_inode(struct meta *meta, struct inode *inode) {
    set_clear(&inode->holders);
    set_clear(&inode->users);
    set_clear(&inode->watchers);
    free_xattrs(meta, &inode->xattrs);
    if (inode->target != NULL) meta->other_bytes -= inode->size + 1;
    free(inode->target);
    slab_give(&meta->slabs, inode);
}

void inode_attr(const struct inode *inode, struct meta_attr *attr) {
    *attr = (struct meta_attr){
        .ino = inode->link.key,
        .mode = inode->mode,
        .nlink = inode->nlink,
        .uid = inode->uid,
        .gid = inode->gid,
        .rdev = inode->rdev,
        .stripe = inode->stripe,
        .layout = inode->layout,
        .finished = inode->finished && inode->lost ? META_LOST : inode->finished,
        .writer = inode->writer,
        .rank = inode->rank,
        .size = inode->size,
        .blocks = inode->blocks,
        .atime = inode->atime,
        .mtime = inode->mtime,
        .ctime = inode->ctime,
    };
}

bool attr_of(const struct meta *meta, uint64_t ino, struct meta_attr *attr, node_set **watchers) {
    if (!is_mine(meta, partition_of_ino(meta, ino))) return false;
    struct inode *inode = find_inode(meta, ino);
    struct dir *dir = inode != NULL ? NULL : find_dir(meta, ino);
    if (inode != NULL) {
        inode_attr(inode, attr);
        *watchers = &inode->watchers;
    } else if (dir != NULL) {
        dir_attr(dir, attr);
        *watchers = &dir->watchers;
    }
    return inode != NULL || dir != NULL;
}

bool delete_if_gone(struct meta *meta, struct inode *inode) {
    if (inode->nlink > 0 || inode->users != 0) return false;
    table_remove(inodes_of(meta, inode->link.key), &inode->link);
    free_inode(meta, inode);
    return true;
}

/* The record of a file of here. 0, META_NOT_MINE, ENOENT, EISDIR. */
static int file_here(const struct meta *meta, uint64_t ino, struct inode **inode) {
    if (!is_mine(meta, partition_of_ino(meta, ino))) return META_NOT_MINE;
    *inode = find_inode(meta, ino);
    return *inode != NULL ? 0 : find_dir(meta, ino) != NULL ? EISDIR : ENOENT;
}

/* Likewise of one with content. EINVAL: it is a link, a pipe, a device. */
static int content_here(const struct meta *meta, uint64_t ino, struct inode **inode) {
    int error = file_here(meta, ino, inode);
    return error == 0 && !S_ISREG((*inode)->mode) ? EINVAL : error;
}

int meta_getattr(struct meta *meta, uint64_t ino, int32_t asker, struct meta_attr *attr) {
    node_set *watchers;
    enter(meta);
    if (!is_mine(meta, partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    if (!attr_of(meta, ino, attr, &watchers)) return leave(meta, ENOENT);
    return leave(meta, watch(meta, watchers, asker));
}

/* ── changing ── */

static int set_holder(struct inode *inode, int32_t node) {
    set_clear(&inode->holders);
    return inode->layout == META_WHOLE && node >= 0 ? set_add(&inode->holders, node) : 0; /* into an empty set: needs no memory */
}

static int set_fault(const struct inode *inode, unsigned mask, const struct meta_attr *in) {
    if (mask & META_SET_LAYOUT && (!S_ISREG(inode->mode) || in->layout > META_STRIPED || (in->layout == META_STRIPED && in->stripe == 0)))
        return EINVAL;
    return mask & META_SET_SIZE && !S_ISREG(inode->mode) ? EINVAL : 0;
}

static void set_inode(struct inode *inode, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker) {
    set_owned((struct owned){&inode->mode, &inode->uid, &inode->gid, &inode->atime, &inode->mtime, &inode->ctime}, mask, in, now);
    if (mask & META_SET_ATIME && inode->writer >= 0) inode->atimed = now;
    if (mask & META_SET_MTIME && inode->writer >= 0) inode->timed = now;
    if (mask & META_SET_RANK) inode->rank = in->rank;
    if (mask & META_SET_SIZE && inode->size != in->size) {
        inode->size = in->size;
        if (in->size == 0) inode->blocks = 0;
        if (!(mask & META_SET_MTIME)) inode->mtime = now;
        /* Copies of the old length are worth nothing now; that of the node which cut it is. */
        if (inode->finished && set_has(inode->holders, asker)) set_holder(inode, asker);
    }
    if (mask & META_SET_BLOCKS) inode->blocks = in->blocks;
    if (mask & META_SET_LAYOUT && (inode->layout != in->layout || inode->stripe != in->stripe)) {
        inode->layout = in->layout;
        inode->stripe = in->stripe;
        set_holder(inode, inode->finished ? asker : -1);
    }
}

void tell_watchers(const struct meta *meta, struct meta_nodes *tell, struct inode *inode, int32_t except) {
    for (size_t i = 0; i < set_count(inode->watchers) && !inode->dropped; i++)
        inode->dropped = set_at(inode->watchers, i) != meta->node && set_at(inode->watchers, i) != except;
    tell_all(meta, tell, &inode->watchers, except);
}

bool meta_dropped(struct meta *meta, uint64_t ino) {
    enter(meta);
    const struct inode *inode = find_inode(meta, ino);
    return leave(meta, inode != NULL && inode->dropped) != 0;
}

int meta_setattr(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, int32_t asker,
                 struct meta_attr *out, struct meta_nodes *tell) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0) error = set_fault(inode, mask, in);
    if (error == 0) error = prepare_tell(meta, tell, inode->watchers, 0);
    if (error == 0) error = watch(meta, &inode->watchers, asker);
    if (error != 0) return leave(meta, error);
    set_inode(inode, mask, in, now, asker);
    tell_watchers(meta, tell, inode, asker);
    inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_link(struct meta *meta, uint64_t ino, int delta, int64_t now, struct meta_attr *out, bool *gone, struct meta_nodes *tell) {
    struct inode *inode;
    *gone = false;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0 && delta < 0 && inode->nlink < (uint32_t)-(int64_t)delta) error = EINVAL;
    if (error == 0 && delta > 0 && inode->nlink == 0) error = ENOENT; /* its last name is gone: it is only open still */
    if (error == 0 && delta > 0 && inode->nlink > UINT32_MAX - (uint32_t)delta) error = EMLINK;
    if (error == 0) error = prepare_tell(meta, tell, inode->watchers, 0);
    if (error != 0) return leave(meta, error);
    inode->nlink = (uint32_t)((int64_t)inode->nlink + delta);
    inode->ctime = now;
    tell_watchers(meta, tell, inode, -1);
    inode_attr(inode, out);
    *gone = delete_if_gone(meta, inode);
    return leave(meta, 0);
}

/* ── opening, writing, copies of the content ── */

static int list_nodes(node_set set, struct meta_nodes *nodes) {
    int error = nodes_reserve(nodes, set_count(set));
    for (size_t i = 0; error == 0 && i < set_count(set); i++) nodes_add(nodes, set_at(set, i));
    return error;
}

/* `node` uses it from now on, and will be told of changes. */
static int use(struct inode *inode, int32_t node) {
    int error = set_add(&inode->watchers, node);
    return error != 0 ? error : set_add(&inode->users, node);
}

static void grant_writing(struct inode *inode, int32_t node) {
    inode->writer = node;
    inode->finished = 0;
    inode->timed = inode->atimed = 0;
}

int meta_open(struct meta *meta, uint64_t ino, int32_t node, bool writing, struct meta_attr *out, struct meta_nodes *holders,
              struct meta_nodes *tell) {
    struct inode *inode;
    if (node < 0) return EINVAL;
    enter(meta);
    int error = content_here(meta, ino, &inode);
    bool grant = error == 0 && writing && inode->writer < 0;
    if (error == 0) error = list_nodes(inode->holders, holders);
    if (error == 0 && grant) error = prepare_tell(meta, tell, inode->watchers, 0);
    if (error == 0) error = use(inode, node);
    if (error != 0) return leave(meta, error);
    if (grant) {
        tell_watchers(meta, tell, inode, node);
        grant_writing(inode, node);
    }
    inode_attr(inode, out);
    return leave(meta, 0);
}

static void record_content(struct inode *inode, const struct meta_attr *in) {
    /* Times that were set after the last writing, but before we heard of that, stand; so do ours if there is no data that could tell (0). */
    bool timed = in->mtime == 0 || inode->timed > in->mtime;
    int64_t mtime = timed ? inode->mtime : in->mtime;
    if ((inode->size != in->size || inode->mtime != mtime) && inode->ctime < in->ctime) inode->ctime = in->ctime;
    inode->size = in->size;
    inode->blocks = in->blocks;
    inode->mtime = mtime;
    if (in->mtime != 0 && in->atime != 0 && inode->atimed <= in->mtime) inode->atime = in->atime;
}

void record_written(struct inode *inode, int32_t node, const struct meta_attr *in) {
    record_content(inode, in);
    inode->timed = inode->atimed = 0;
    inode->finished = 1;
    inode->lost = in->finished == META_LOST;
    inode->writer = -1;
    set_holder(inode, node);
}

int meta_wrote(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, struct meta_attr *out, struct meta_nodes *tell) {
    struct inode *inode;
    enter(meta);
    int error = content_here(meta, ino, &inode);
    if (error == 0 && (node < 0 || inode->writer != node)) error = EPERM;
    if (error == 0 && tell == NULL && is_claimed(meta, ino)) error = META_BUSY; /* others may be about to write it through this node */
    if (error == 0) error = prepare_tell(meta, tell, inode->watchers, tell == NULL ? inode->holders : 0);
    if (error != 0) return leave(meta, error);
    record_written(inode, node, in);
    tell_watchers(meta, tell, inode, node);
    inode_attr(inode, out);
    return leave(meta, 0);
}

void meta_said(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in) {
    struct inode *inode;
    enter(meta);
    if (content_here(meta, ino, &inode) == 0 && inode->writer == node) record_content(inode, in);
    leave(meta, 0);
}

/* A writer that goes without a word leaves what is recorded of the content. If that has no holder any more, it went with a node before this one had
 * fetched it. */
void stop_using(struct inode *inode, int32_t node) {
    if (inode->writer >= 0 && inode->writer == node) {
        inode->writer = -1;
        inode->finished = 1;
        if (inode->layout == META_WHOLE && inode->holders == 0 && inode->size > 0) inode->lost = true;
        if (inode->holders == 0 && !inode->lost) set_holder(inode, node);
    }
    set_remove(&inode->users, node);
}

int meta_unused(struct meta *meta, uint64_t ino, int32_t node, bool *gone) {
    struct inode *inode;
    *gone = false;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    stop_using(inode, node);
    *gone = delete_if_gone(meta, inode);
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

int meta_add_holder(struct meta *meta, uint64_t ino, int32_t node) {
    struct inode *inode;
    if (node < 0) return EINVAL;
    enter(meta);
    int error = content_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    /* Whoever is no watcher any more was told of a change since it opened the file to copy it. */
    bool good = inode->finished && !inode->lost && inode->layout == META_WHOLE && set_has(inode->watchers, node);
    return leave(meta, good ? set_add(&inode->holders, node) : EAGAIN);
}

int meta_give_up(struct meta *meta, uint64_t ino, int32_t node) {
    struct inode *inode;
    enter(meta);
    int error = content_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error);
    bool only = inode->layout == META_WHOLE && inode->writer < 0 && inode->size > 0 && set_only(inode->holders, node);
    if (only || inode->writer == node || set_has(inode->users, node)) return leave(meta, EBUSY);
    set_remove(&inode->holders, node);
    return leave(meta, 0);
}

int meta_holders(struct meta *meta, uint64_t ino, struct meta_nodes *holders) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    return leave(meta, error != 0 ? error : list_nodes(inode->holders, holders));
}

int meta_concerned(struct meta *meta, uint64_t ino, struct meta_nodes *nodes) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == 0) error = nodes_reserve(nodes, set_count(inode->holders) + set_count(inode->watchers));
    for (size_t i = 0; error == 0 && i < set_count(inode->holders); i++) nodes_add(nodes, set_at(inode->holders, i));
    for (size_t i = 0; error == 0 && i < set_count(inode->watchers); i++) nodes_add(nodes, set_at(inode->watchers, i));
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
    struct link *link = table_first(&meta->copies, ino);
    return link == NULL ? NULL : RECORD(struct copy, link, link);
}

int put_copy(struct meta *meta, const struct meta_attr *attr, bool replica) {
    struct copy *copy = find_copy(meta, attr->ino);
    if (copy == NULL) {
        copy = slab_take(&meta->slabs, sizeof *copy);
        if (copy == NULL) return ENOMEM;
        copy->link.key = attr->ino;
        copy->replica = false;
        table_add(&meta->copies, &copy->link);
    } else if (copy->attr.size != attr->size || copy->attr.mtime != attr->mtime || copy->attr.layout != attr->layout || !attr->finished) {
        copy->replica = false; /* it was one of what the file contained before */
    }
    copy->attr = *attr;
    copy->replica = copy->replica || replica;
    number_is_used(meta, attr->ino);
    return 0;
}

int meta_cache(struct meta *meta, const struct meta_attr *attr, bool replica) {
    if (attr->ino == 0) return EINVAL;
    enter(meta);
    return leave(meta, put_copy(meta, attr, replica));
}

int meta_cached(struct meta *meta, uint64_t ino, struct meta_attr *attr, bool *replica) {
    enter(meta);
    const struct copy *copy = find_copy(meta, ino);
    if (copy == NULL) return leave(meta, ENOENT);
    *attr = copy->attr;
    *replica = copy->replica;
    return leave(meta, 0);
}

int meta_uncache(struct meta *meta, uint64_t ino, bool *replica) {
    enter(meta);
    mark_stale(meta, ino);
    struct copy *copy = find_copy(meta, ino);
    if (copy == NULL) return leave(meta, ENOENT);
    *replica = copy->replica;
    table_remove(&meta->copies, &copy->link);
    slab_give(&meta->slabs, copy);
    return leave(meta, 0);
}

/* ── what concerns nobody else ── */

/* Reading: the content must be here. Writing: nobody else may have any view of it. A writer that holds nothing yet may still be bringing it here, and
 * one that is opening an empty file clears away first what lies here. */
static int may_open(const struct meta *meta, const struct inode *inode, bool writing) {
    bool holds = set_has(inode->holders, meta->node);
    if (inode->lost || inode->closing > 0 || inode->layout != META_WHOLE || (inode->writer >= 0 && inode->writer != meta->node))
        return META_BUSY;
    if (!holds && (inode->holders != 0 || (inode->writer < 0 && inode->size > 0) || is_claimed(meta, inode->link.key))) return META_BUSY;
    return !writing || inode->writer >= 0 || nobody_else(meta, inode->watchers) ? 0 : META_BUSY;
}

int meta_open_here(struct meta *meta, uint64_t ino, bool writing, struct meta_attr *out) {
    struct inode *inode;
    enter(meta);
    int error = content_here(meta, ino, &inode);
    if (error == META_NOT_MINE && !writing && !is_mine(meta, partition_of_ino(meta, ino))) {
        const struct copy *copy = find_copy(meta, ino);
        if (copy == NULL || !copy->replica || !copy->attr.finished) return leave(meta, META_NOT_MINE);
        *out = copy->attr;
        return leave(meta, 0);
    }
    if (error == 0) error = may_open(meta, inode, writing);
    if (error == 0) error = use(inode, meta->node);
    if (error != 0) return leave(meta, error);
    if (writing && inode->writer < 0) grant_writing(inode, meta->node);
    inode_attr(inode, out);
    return leave(meta, 0);
}

int meta_setattr_here(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now, struct meta_attr *out) {
    struct inode *inode;
    enter(meta);
    int error = file_here(meta, ino, &inode);
    if (error == EISDIR) {
        struct dir *dir = find_dir(meta, ino);
        if (mask & (META_SET_SIZE | META_SET_BLOCKS | META_SET_LAYOUT)) return leave(meta, EISDIR);
        if (!is_alone(meta) || !nobody_else(meta, dir->watchers)) return leave(meta, META_BUSY); /* every node has a record of it */
        set_dir(dir, mask, in, now);
        dir_attr(dir, out);
        return leave(meta, 0);
    }
    if (error == 0) error = set_fault(inode, mask, in);
    if (error == 0 && (mask & (META_SET_LAYOUT | META_SET_RANK) || !nobody_else(meta, inode->watchers))) error = META_BUSY;
    if (error == 0 && mask & (META_SET_UID | META_SET_GID) && inode->dropped && !is_alone(meta)) error = META_BUSY;
    if (error == 0 && mask & (META_SET_ATIME | META_SET_MTIME) && !nobody_else(meta, inode->holders))
        error = META_BUSY; /* their copies have times, too */
    if (error == 0 && mask & META_SET_SIZE) {
        error = may_open(meta, inode, true);
        if (error == 0 && inode->writer < 0 && !set_only(inode->holders, meta->node)) error = META_BUSY; /* their copies are too long now */
    }
    if (error != 0) return leave(meta, error);
    set_inode(inode, mask, in, now, meta->node);
    inode_attr(inode, out);
    return leave(meta, 0);
}
