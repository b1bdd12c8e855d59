/* The kernel forgets inodes, and names go that it may still use. Stands on the inodes and the open files. */
#include "fuse_internal.h"

void fuse_inode_hold(struct amfs_fuse *mount, uint64_t ino) {
    struct meta_attr attr;
    pthread_mutex_lock(&mount->inodes_lock);
    const struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    bool wanted = inode != NULL && !inode->held;
    pthread_mutex_unlock(&mount->inodes_lock); /* its owner may hold meta's lock while it counts a lookup: not the other way round */
    if (!wanted || meta_open_here(mount->node->meta, ino, false, &attr) != 0) return;
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode *still = *fuse_inode_place(mount, ino);
    if (still != NULL) still->held = true;
    pthread_mutex_unlock(&mount->inodes_lock);
    if (still == NULL) fuse_forget_unused(mount, ino);
}

static void forget(struct amfs_fuse *mount, uint64_t ino, uint64_t lookups) {
    bool held = false, away = false;
    fuse_removed_forget(mount, ino);
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode **at = fuse_inode_place(mount, ino), *inode = *at;
    if (inode != NULL) {
        inode->lookups = inode->lookups > lookups ? inode->lookups - lookups : 0;
        if ((away = inode->lookups == 0)) {
            *at = inode->next;
            held = inode->held;
            inode->next = mount->spare_inodes;
            mount->spare_inodes = inode;
            mount->inode_count--;
        }
    }
    pthread_mutex_unlock(&mount->inodes_lock);
    if (away) fuse_notice_forgotten(mount, ino);
    if (away && atomic_load(&mount->no_open)) fuse_files_forget(mount, ino);
    if (held) fuse_forget_unused(mount, ino);
}

/* The kernel is gone: so are its claims. */
void fuse_inodes_end(struct amfs_fuse *mount) {
    for (size_t i = 0; i < REMOVED_BUCKETS; i++)
        while (mount->removed[i] != NULL) fuse_removed_forget(mount, mount->removed[i]->attr.ino);
    for (size_t i = 0; mount->inodes != NULL && i < mount->inode_buckets; i++) {
        while (mount->inodes[i] != NULL) {
            struct kernel_inode *inode = mount->inodes[i];
            forget(mount, inode->ino, inode->lookups);
        }
    }
}

void fuse_do_forget(struct call *call) { /* nothing is answered to this request */
    struct amfs_fuse *mount = call->mount;
    if (call->in->opcode == WIRE_FORGET) {
        const struct wire_forget_in *in = (const void *)call->body;
        if (call->size >= sizeof *in) forget(mount, call->in->ino, in->lookups);
        return;
    }
    const struct wire_batch_forget_in *in = (const void *)call->body;
    if (call->size < sizeof *in) return;
    const struct wire_forget_one *one = (const void *)(in + 1);
    size_t count = (call->size - sizeof *in) / sizeof *one;
    for (size_t i = 0; i < count && i < in->count; i++) forget(mount, fuse_plain_ino(one[i].ino), one[i].lookups);
}
