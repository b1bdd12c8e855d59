/* The metadata shard: the record of a file, and its moves. Stands on places and lists of extended attributes; tells nobody. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct inode *fsmeta_find_inode(const struct meta *meta, uint64_t ino) {
    const struct table *table = fsmeta_inodes_of(meta, ino);
    struct link *link = table == NULL ? NULL : fsmeta_table_first(table, ino);
    return link == NULL ? NULL : RECORD(struct inode, link, link);
}

struct inode *fsmeta_new_inode(struct meta *meta, uint64_t ino) {
    struct inode *inode = fsmeta_is_ready(meta, fsmeta_inodes_of(meta, ino)) ? fsmeta_slab_take(&meta->slabs, sizeof *inode) : NULL;
    if (inode != NULL)
        *inode = (struct inode){.link.key = ino, .writer = -1, .rank = -1, .finished = 1, .copies = 1, .grant = ++meta->grants};
    return inode;
}

int fsmeta_set_target(struct meta *meta, struct inode *inode, const char *target, size_t length) {
    inode->target = malloc(length + 1);
    if (inode->target == NULL) return ENOMEM;
    memcpy(inode->target, target, length);
    inode->target[length] = '\0';
    inode->size = length;
    meta->other_bytes += length + 1;
    return 0;
}

void fsmeta_free_inode(struct meta *meta, struct inode *inode) {
    fsmeta_set_clear(&inode->holders);
    fsmeta_set_clear(&inode->users);
    fsmeta_set_clear(&inode->watchers);
    fsmeta_free_xattrs(meta, &inode->xattrs);
    if (inode->target != NULL) meta->other_bytes -= inode->size + 1;
    free(inode->target);
    fsmeta_slab_give(&meta->slabs, inode);
}

void fsmeta_inode_attr(const struct inode *inode, struct meta_attr *attr) {
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
        .pending = inode->pending,
        .copies = inode->copies,
    };
}

int fsmeta_set_holder(struct inode *inode, int32_t node) {
    fsmeta_set_clear(&inode->holders);
    return inode->layout == META_WHOLE && node >= 0 ? fsmeta_set_add(&inode->holders, node) : 0; /* into an empty set: needs no memory */
}

void fsmeta_record_content(struct meta *meta, struct inode *inode, const struct meta_attr *in) {
    if (in->mtime != 0) fsmeta_set_origin(meta, inode, NULL, 0); /* it is not known whether anything was written */
    /* Times that were set after the last writing, but before we heard of that, stand; so do ours if there is no data that could tell (0). */
    bool timed = in->mtime == 0 || inode->timed > in->mtime;
    int64_t mtime = timed ? inode->mtime : in->mtime;
    if ((inode->size != in->size || inode->mtime != mtime) && inode->ctime < in->ctime) inode->ctime = in->ctime;
    inode->size = in->size;
    inode->blocks = in->blocks;
    inode->mtime = mtime;
    if (in->mtime != 0 && in->atime != 0 && inode->atimed <= in->mtime) inode->atime = in->atime;
}

void fsmeta_record_written(struct meta *meta, struct inode *inode, int32_t node, const struct meta_attr *in) {
    fsmeta_record_content(meta, inode, in);
    fsmeta_end_writing(inode);
    inode->lost = in->finished == META_LOST;
    fsmeta_set_holder(inode, node);
}

void fsmeta_end_writing(struct inode *inode) {
    inode->timed = inode->atimed = 0;
    inode->finished = 1;
    inode->lost = false;
    inode->writer = -1;
}

/* A writer that goes without a word leaves what is recorded of the content. If that has no holder any more, it went with a node before this one had
 * fetched it. */
void fsmeta_stop_using(struct inode *inode, int32_t node) {
    if (inode->writer >= 0 && inode->writer == node) {
        inode->writer = -1;
        inode->finished = 1;
        if (inode->layout == META_WHOLE && inode->holders == 0 && inode->size > 0) inode->lost = true;
        if (inode->holders == 0 && !inode->lost) fsmeta_set_holder(inode, node);
    }
    fsmeta_set_remove(&inode->users, node);
}

bool fsmeta_is_short(const struct inode *inode, size_t most, size_t *there) {
    if (inode->copies <= 1 || !inode->finished || inode->lost || inode->size == 0 || inode->nlink == 0) return false;
    *there = inode->layout == META_WHOLE ? fsmeta_set_count(inode->holders) : META_STRIPE_COPIES;
    return *there < (inode->copies < most ? inode->copies : most);
}

void fsmeta_note_short(struct meta *meta, const struct inode *inode) {
    size_t there;
    if (fsmeta_is_short(inode, SIZE_MAX, &there) && there < atomic_load_explicit(&meta->fewest, memory_order_relaxed))
        atomic_store_explicit(&meta->fewest, (unsigned)there, memory_order_relaxed);
}
