/* The metadata shard: a small file of which two nodes shall have the content, as its writer's node says it without the poll loops. One more node takes
 * the content: this one, if the writer is elsewhere, else the backup of the record. The longer way is fsmeta_copies.c. */
#include "fsmeta_internal.h"

#include <errno.h>

/* What `node` wrote, of which `in` tells, is recorded, and as many nodes have it as shall. */
bool fsmeta_is_secured(const struct inode *inode, int32_t node, const struct meta_attr *in) {
    if (inode->layout != META_WHOLE || inode->lost || inode->size != in->size || inode->mtime != in->mtime) return false;
    size_t holders = fsmeta_set_count(inode->holders);
    return fsmeta_set_has(inode->holders, node) && (in->size == 0 ? inode->secured && holders == 1 : holders >= inode->copies);
}

/* May `keeper` have what `node` has written? Nobody but the writer was let in since the file was made, nor had anything of it: so no content of it lies
 * elsewhere that is about to go, or to be brought. Or the keeper has this very content. */
static int may_secure(const struct inode *inode, int32_t node, const struct meta_attr *in, int32_t keeper) {
    bool whole = S_ISREG(inode->mode) && inode->layout == META_WHOLE && !inode->lost && inode->closing == 0;
    if (!whole || inode->writer != node || inode->copies != 2 || inode->copying) return META_BUSY;
    return inode->fresh || (fsmeta_is_secured(inode, node, in) && fsmeta_set_has(inode->holders, keeper)) ? 0 : META_BUSY;
}

static bool wants_copies(const struct inode *inode) { return inode->copies > 1 && inode->nlink > 0; }

/* `keeper` -1: it is empty, and needs none. `put` NULL: the keeper has the content already. */
static int secure(struct meta *meta, struct inode *inode, int32_t node, const struct meta_attr *in, int32_t keeper,
                  int (*put)(void *context), void *context) {
    node_set holders = 0;
    int error = fsmeta_set_add(&holders, node);
    if (error == 0 && keeper >= 0) error = fsmeta_set_add(&holders, keeper);
    if (error == 0 && keeper >= 0 && put != NULL && put(context) != 0) error = META_BUSY;
    if (error != 0 || fsmeta_is_secured(inode, node, in)) {
        fsmeta_set_clear(&holders);
        return error;
    }
    fsmeta_record_content(meta, inode, in);
    fsmeta_set_clear(&inode->holders);
    inode->holders = holders;
    inode->secured = in->size == 0;
    inode->fresh = inode->fresh && in->size == 0;
    fsmeta_log_inode(meta, inode);
    return 0;
}

int meta_secure_for(struct meta *meta, uint64_t ino, int32_t asker, const struct meta_attr *in, int (*put)(void *context), void *context) {
    struct inode *inode;
    int32_t keeper = in->size == 0 ? -1 : meta->node;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    bool wanted = error == 0 && wants_copies(inode);
    if (wanted) error = asker < 0 || asker == meta->node ? EINVAL : may_secure(inode, asker, in, keeper);
    if (wanted && error == 0) error = secure(meta, inode, asker, in, keeper, put, context);
    return leave(meta, error == 0 || error == META_NOT_MINE ? error : META_BUSY);
}

int meta_secure_begin(struct meta *meta, uint64_t ino, const struct meta_attr *in, int32_t *keeper) {
    struct inode *inode;
    *keeper = -1;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error != 0 || !wants_copies(inode)) return leave(meta, error);
    int32_t backup = in->size == 0 ? -1 : meta->backups[fsmeta_partition_of_ino(meta, ino)];
    if (in->size > 0 && (backup < 0 || backup == meta->node)) return leave(meta, META_BUSY);
    error = may_secure(inode, meta->node, in, backup);
    if (error == 0 && backup < 0) error = secure(meta, inode, meta->node, in, -1, NULL, NULL);
    else if (error == 0) inode->copying = true;
    *keeper = error == 0 ? backup : -1;
    return leave(meta, error);
}

int meta_secure_end(struct meta *meta, uint64_t ino, int32_t keeper, const struct meta_attr *in) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error != 0) return leave(meta, error); /* it has gone to another node, where nobody knows of this */
    inode->copying = false;
    if (in == NULL) return leave(meta, 0);
    if (meta->backups[fsmeta_partition_of_ino(meta, ino)] != keeper) return leave(meta, META_BUSY); /* it may have died */
    error = may_secure(inode, meta->node, in, keeper);
    if (error == 0) error = secure(meta, inode, meta->node, in, keeper, NULL, NULL);
    return leave(meta, error);
}

bool meta_copies_begin(struct meta *meta, uint64_t ino) {
    struct inode *inode;
    enter(meta);
    bool known = fsmeta_content_here(meta, ino, &inode) == 0, may = !known || !inode->copying;
    if (known && may) inode->fresh = false;
    pthread_mutex_unlock(&meta->lock);
    return may;
}

int meta_wrote_secured(struct meta *meta, uint64_t ino, const struct meta_attr *in, struct meta_attr *out) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error == 0 && inode->writer != meta->node) error = EPERM;
    if (error == 0 &&
        (opens_look(meta->opens, ino).claimed || inode->copying || !wants_copies(inode) || !fsmeta_is_secured(inode, meta->node, in)))
        error = META_BUSY;
    if (error == 0) error = fsmeta_prepare_tell(meta, NULL, inode->watchers, 0);
    if (error != 0) return leave(meta, error);
    fsmeta_end_writing(inode);
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, NULL, &inode->watchers, meta->node);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}
