/* The metadata shard: files of which more than one node shall have the content. Which nodes, and how it gets there, others decide (fs/vfs/replicas.py). */
#include "fsmeta_internal.h"

#include <errno.h>
#include <limits.h>

/* ── how many ── */

bool meta_copies_wanted(const struct meta *meta) { return atomic_load_explicit(&meta->copies_wanted, memory_order_relaxed); }

void meta_expect_copies(struct meta *meta) { fsmeta_note_copies(meta, META_COPIES_MAX); }

int meta_dir_set_copies(struct meta *meta, uint64_t ino, uint8_t copies) {
    if (copies > META_COPIES_MAX) return EINVAL;
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return leave(meta, ENOTDIR);
    dir->copies = copies;
    fsmeta_note_copies(meta, copies);
    return leave(meta, 0);
}

uint8_t meta_dir_copies(struct meta *meta, uint64_t ino) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, ino);
    uint8_t copies = dir == NULL ? 1 : fsmeta_copies_in(dir);
    pthread_mutex_unlock(&meta->lock);
    return copies;
}

/* ── who has it ── */

static bool is_among(int32_t node, const int32_t *nodes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == node) return true;
    return false;
}

int meta_checkpoint(struct meta *meta, uint64_t ino, int32_t node, const struct meta_attr *in, const int32_t *copies, size_t count,
                    struct meta_nodes *old) {
    struct inode *inode;
    node_set holders = 0;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error == 0 && (node < 0 || inode->writer != node)) error = EPERM;
    if (error == 0 && inode->layout != META_WHOLE) { /* each change of a stripe is on two nodes before it is answered */
        fsmeta_record_content(meta, inode, in);
        inode->secured = true;
        fsmeta_log_inode(meta, inode);
        return leave(meta, 0);
    }
    if (error == 0) error = fsmeta_nodes_reserve(old, fsmeta_set_count(inode->holders));
    if (error == 0) error = fsmeta_set_add(&holders, node);
    for (size_t i = 0; error == 0 && i < count; i++) error = copies[i] < 0 ? EINVAL : fsmeta_set_add(&holders, copies[i]);
    if (error != 0) {
        fsmeta_set_clear(&holders);
        return leave(meta, error);
    }
    for (size_t i = 0; i < fsmeta_set_count(inode->holders); i++) {
        int32_t holder = fsmeta_set_at(inode->holders, i);
        if (holder != node && !is_among(holder, copies, count)) fsmeta_nodes_add(old, holder);
    }
    fsmeta_record_content(meta, inode, in);
    fsmeta_set_clear(&inode->holders);
    inode->holders = holders;
    inode->lost = false;
    inode->secured = in->size == 0; /* an empty file has no copies, and needs none */
    fsmeta_log_inode(meta, inode);
    return leave(meta, 0);
}

int meta_wrote_same(struct meta *meta, uint64_t ino, int32_t node, const void *origin, size_t size, struct meta_attr *out,
                    struct meta_nodes *tell) {
    struct inode *inode;
    enter(meta);
    int error = fsmeta_content_here(meta, ino, &inode);
    if (error == 0 && (node < 0 || inode->writer != node)) error = EPERM;
    if (error == 0 && !fsmeta_set_has(inode->holders, node)) error = EAGAIN;
    if (error == 0) error = fsmeta_prepare_tell(meta, tell, inode->watchers, 0);
    if (error != 0) return leave(meta, error);
    fsmeta_end_writing(inode);
    if (size > 0) fsmeta_set_origin(meta, inode, origin, size);
    fsmeta_log_inode(meta, inode);
    fsmeta_tell_all(meta, tell, &inode->watchers, node);
    fsmeta_inode_attr(inode, out);
    return leave(meta, 0);
}

/* ── who should ── */

struct shortage {
    struct meta *meta;
    unsigned most;
    void (*each)(void *context, const struct meta_attr *attr);
    void *context;
};

bool meta_fell_short(struct meta *meta, unsigned most) {
    if (atomic_load_explicit(&meta->fewest, memory_order_relaxed) == UINT_MAX) return false;
    return atomic_exchange(&meta->fewest, UINT_MAX) < most;
}

static bool look(void *context, struct link *link) {
    const struct shortage *shortage = context;
    const struct inode *inode = RECORD(struct inode, link, link);
    struct meta_attr attr;
    size_t there;
    if (!fsmeta_is_short(inode, shortage->most, &there) ||
        !fsmeta_is_mine(shortage->meta, fsmeta_partition_of_ino(shortage->meta, link->key)))
        return false;
    fsmeta_inode_attr(inode, &attr);
    shortage->each(shortage->context, &attr);
    return false;
}

int meta_short_of_copies(struct meta *meta, unsigned most, void (*each)(void *context, const struct meta_attr *attr), void *context) {
    if (!meta_copies_wanted(meta)) return 0;
    enter(meta);
    fsmeta_sift_partitions(meta, meta->inodes, look, &(struct shortage){meta, most, each, context});
    return leave(meta, 0);
}
