/* The metadata shard: small files whose content lies on another node, which a mount brings by itself. A note of one is as good as what the kernel keeps
 * of its attributes: it goes when this node is told that the file has changed. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>

static bool is_small(const struct inode *inode) {
    return inode != NULL && S_ISREG(inode->mode) && inode->finished && !inode->lost && inode->closing == 0 && inode->layout == META_WHOLE &&
           inode->nlink > 0 && inode->size > 0 && inode->size <= META_SMALL_MAX;
}

/* With the lock held. */
static bool read_small(const struct meta *meta, const struct inode *inode, int32_t asker, struct meta_small *small) {
    size_t holders = is_small(inode) && !fsmeta_set_has(inode->holders, asker) ? fsmeta_set_count(inode->holders) : 0;
    if (holders == 0) return false;
    /* The owner of the record if it has the content; else readers are spread over those who have. */
    bool here = fsmeta_set_has(inode->holders, meta->node);
    small->holder = here ? meta->node : fsmeta_set_at(inode->holders, (size_t)asker % holders);
    fsmeta_inode_attr(inode, &small->attr);
    return true;
}

bool meta_small_for(struct meta *meta, uint64_t ino, int32_t asker, struct meta_small *small) {
    enter(meta);
    const struct inode *inode = fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino)) ? fsmeta_find_inode(meta, ino) : NULL;
    bool found = inode != NULL && fsmeta_set_has(inode->watchers, asker) && read_small(meta, inode, asker, small);
    pthread_mutex_unlock(&meta->lock);
    return found;
}

void meta_note_small(struct meta *meta, uint64_t since, const struct meta_small *small) {
    enter(meta);
    if (meta->small == NULL) meta->small = calloc(META_SMALL_NOTES, sizeof *meta->small);
    struct meta_small *slot = fsmeta_small_slot(meta, small->attr.ino);
    if (slot != NULL && fsmeta_is_fresh(meta, since, small->attr.ino)) *slot = *small;
    pthread_mutex_unlock(&meta->lock);
}

bool meta_small_of(struct meta *meta, uint64_t ino, struct meta_small *small) {
    bool found = false;
    enter(meta);
    if (fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) {
        struct inode *inode = fsmeta_find_inode(meta, ino);
        found = read_small(meta, inode, meta->node, small) && fsmeta_set_add(&inode->watchers, meta->node) == 0;
    } else {
        const struct meta_small *slot = fsmeta_small_slot(meta, ino);
        found = slot != NULL && slot->attr.ino == ino;
        if (found) *small = *slot;
    }
    pthread_mutex_unlock(&meta->lock);
    return found;
}

/* `node` is told of changes, and there was none. */
static int hold(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *brought) {
    struct inode *inode = fsmeta_find_inode(meta, ino);
    if (!is_small(inode) || !fsmeta_set_has(inode->watchers, node)) return EAGAIN;
    if (inode->size != brought->size || inode->mtime != brought->mtime) return EAGAIN;
    int error = fsmeta_set_add(&inode->holders, node);
    if (error == 0) fsmeta_log_inode_later(meta, inode);
    return error;
}

int meta_brought_small(struct meta *meta, const struct meta_attr *attr, bool *tell) {
    uint64_t ino = attr->ino;
    enter(meta);
    *tell = !fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino));
    if (!*tell) return leave(meta, hold(meta, ino, meta->node, attr) == 0 ? 0 : ESTALE);
    struct meta_small *slot = fsmeta_small_slot(meta, ino);
    if (slot == NULL || slot->attr.ino != ino || slot->attr.size != attr->size || slot->attr.mtime != attr->mtime)
        return leave(meta, ESTALE);
    int error = fsmeta_put_copy(meta, attr, true);
    if (error == 0) slot->attr.ino = 0;
    return leave(meta, error);
}

int meta_hold_small_for(struct meta *meta, uint64_t ino, int32_t asker, const struct meta_attr *brought) {
    enter(meta);
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    return leave(meta, hold(meta, ino, asker, brought));
}
