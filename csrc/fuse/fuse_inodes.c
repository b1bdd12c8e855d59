/* The inodes that the kernel knows: what it remembers of each, so that it is told of changes of that; and files that it may still use although their name
 * is gone, until it forgets them. A file whose last name goes while the kernel knows it is kept as a user of it would keep it: the kernel may have looked
 * it up to open it, or opened it without telling. Of directories, pipes and the like the attributes are remembered here: nobody else has them.
 *
 * Editions of a file. With passthrough the kernel takes one part for all that have a file open. A process that keeps a file open keeps the content that
 * it had before another node wrote it. A process that opens the file afterwards must see the new content, so it is made to look the file up once more
 * (ESTALE), and the kernel is given the file under another number: the inode's, with a count in the upper eight bits. To us it is the same file. */
#include "fuse_internal.h"

#include <errno.h>
#include <stdlib.h>

/* The partition is in the bits of a number from 40 on: lower ones of the product know nothing of it. */
static size_t mixed(uint64_t ino) { return (size_t)(ino * 0x9E3779B97F4A7C15u >> 40); }

/* ── removed, and no file ── */

static struct removed_inode **removed_place(struct amfs_fuse *mount, uint64_t ino) {
    struct removed_inode **at = &mount->removed[mixed(ino) % REMOVED_BUCKETS];
    while (*at != NULL && (*at)->attr.ino != ino) at = &(*at)->next;
    return at;
}

void fuse_removed_add(struct amfs_fuse *mount, const struct meta_attr *attr) {
    struct removed_inode *removed = malloc(sizeof *removed);
    if (removed == NULL) return;
    *removed = (struct removed_inode){.attr = *attr};
    removed->attr.nlink = 0;
    removed->attr.size = 0;
    pthread_mutex_lock(&mount->inodes_lock);
    struct removed_inode **at = removed_place(mount, attr->ino);
    if (*at != NULL) {
        free(removed);
    } else {
        *at = removed;
        atomic_fetch_add(&mount->removed_count, 1);
    }
    pthread_mutex_unlock(&mount->inodes_lock);
}

bool fuse_removed_find(struct amfs_fuse *mount, uint64_t ino, struct meta_attr *attr) {
    if (atomic_load(&mount->removed_count) == 0) return false;
    pthread_mutex_lock(&mount->inodes_lock);
    const struct removed_inode *removed = *removed_place(mount, ino);
    if (removed != NULL) *attr = removed->attr;
    pthread_mutex_unlock(&mount->inodes_lock);
    return removed != NULL;
}

bool fuse_removed_set(struct amfs_fuse *mount, uint64_t ino, unsigned mask, const struct meta_attr *want, int64_t now,
                      struct meta_attr *done) {
    if (atomic_load(&mount->removed_count) == 0) return false;
    pthread_mutex_lock(&mount->inodes_lock);
    struct removed_inode *removed = *removed_place(mount, ino);
    if (removed != NULL) {
        struct meta_attr *attr = &removed->attr;
        if (mask & META_SET_MODE) attr->mode = (attr->mode & S_IFMT) | (want->mode & 07777);
        if (mask & META_SET_UID) attr->uid = want->uid;
        if (mask & META_SET_GID) attr->gid = want->gid;
        if (mask & META_SET_ATIME) attr->atime = want->atime;
        if (mask & META_SET_MTIME) attr->mtime = want->mtime;
        attr->ctime = now;
        *done = *attr;
    }
    pthread_mutex_unlock(&mount->inodes_lock);
    return removed != NULL;
}

void fuse_removed_forget(struct amfs_fuse *mount, uint64_t ino) {
    if (atomic_load(&mount->removed_count) == 0) return;
    pthread_mutex_lock(&mount->inodes_lock);
    struct removed_inode **at = removed_place(mount, ino), *removed = *at;
    if (removed != NULL) {
        *at = removed->next;
        free(removed);
        atomic_fetch_sub(&mount->removed_count, 1);
    }
    pthread_mutex_unlock(&mount->inodes_lock);
}

/* ── the table ── */

struct kernel_inode **fuse_inode_place(const struct amfs_fuse *mount, uint64_t ino) {
    struct kernel_inode **at = &mount->inodes[mixed(ino) & (mount->inode_buckets - 1)];
    while (*at != NULL && (*at)->ino != ino) at = &(*at)->next;
    return at;
}

/* Twice as many buckets, in one go: rare, and a matter of milliseconds where there are millions. */
static void grow(struct amfs_fuse *mount) {
    size_t before = mount->inode_buckets;
    struct kernel_inode **old = mount->inodes, **larger = calloc(before * 2, sizeof *larger);
    if (larger == NULL) return;
    mount->inodes = larger;
    mount->inode_buckets = before * 2;
    for (size_t i = 0; i < before; i++) {
        for (struct kernel_inode *next, *inode = old[i]; inode != NULL; inode = next) {
            struct kernel_inode **at = &larger[mixed(inode->ino) & (mount->inode_buckets - 1)];
            next = inode->next;
            inode->next = *at;
            *at = inode;
        }
    }
    free(old);
}

static struct kernel_inode *add(struct amfs_fuse *mount, uint64_t ino) {
    if (mount->inode_count > mount->inode_buckets) grow(mount);
    struct kernel_inode **at = fuse_inode_place(mount, ino), *inode = *at;
    if (inode != NULL) return inode;
    inode = mount->spare_inodes;
    if (inode != NULL) mount->spare_inodes = inode->next;
    else if ((inode = malloc(sizeof *inode)) == NULL) return NULL;
    *inode = (struct kernel_inode){.ino = ino};
    *at = inode;
    mount->inode_count++;
    return inode;
}

/* ── what the kernel remembers ── */

static uint32_t rights_of(const struct meta_attr *attr) { return ((attr->mode * 31u + attr->uid) * 0x9E3779B1u + attr->gid) | 1; }

/* The kernel may keep an answer only if nothing has changed since the question came. Nor if it gives other rights than the answer before: then the
 * kernel need not be told of the next change, which would make it lose this answer and judge the process that asked by the old rights. With the
 * lock held. */
static bool may_keep(struct kernel_inode *inode, const struct meta_attr *attr, uint64_t since, bool cache) {
    uint32_t rights = rights_of(attr);
    cache = cache && inode->changed <= since && (inode->rights == 0 || inode->rights == rights);
    inode->rights = rights;
    inode->timed = inode->timed || cache;
    return cache;
}

uint64_t fuse_inode_looked_up(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t since, bool *cache) {
    uint8_t edition = 0;
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode *inode = add(mount, attr->ino);
    if (inode != NULL) {
        inode->lookups++;
        edition = inode->edition;
        *cache = may_keep(inode, attr, since, *cache);
    }
    pthread_mutex_unlock(&mount->inodes_lock);
    return fuse_node_id(attr->ino, edition);
}

bool fuse_inode_asked(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t since, bool cache) {
    if (!S_ISREG(attr->mode) && !S_ISDIR(attr->mode)) return cache;
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode *inode = *fuse_inode_place(mount, attr->ino);
    if (inode != NULL) cache = may_keep(inode, attr, since, cache);
    pthread_mutex_unlock(&mount->inodes_lock);
    return cache;
}

void fuse_inode_paged(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    if (inode != NULL) inode->paged = true;
    pthread_mutex_unlock(&mount->inodes_lock);
}

bool fuse_inode_has_pages(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->inodes_lock);
    const struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    bool paged = inode != NULL && inode->paged;
    pthread_mutex_unlock(&mount->inodes_lock);
    return paged;
}

/* The kernel is not told of changes of what it does not remember. That is not only cheaper: attributes that it has asked for are lost on it when it is
 * told meanwhile that they changed, and the process that asked to learn what it may do goes on by what was so before. */
bool fuse_inode_changed(struct amfs_fuse *mount, uint64_t ino, bool data) {
    bool tells = true;
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    if (inode != NULL) {
        tells = inode->timed || (data && inode->paged);
        if (!tells) inode->changed = atomic_fetch_add(&mount->changes, 1) + 1;
        inode->timed = false;
    }
    pthread_mutex_unlock(&mount->inodes_lock);
    return tells;
}

size_t fuse_inodes_remembered(struct amfs_fuse *mount, uint64_t **inos) {
    size_t count = 0;
    pthread_mutex_lock(&mount->inodes_lock);
    *inos = malloc((mount->inode_count + 1) * sizeof **inos);
    for (size_t i = 0; *inos != NULL && i < mount->inode_buckets; i++)
        for (const struct kernel_inode *inode = mount->inodes[i]; inode != NULL && count < mount->inode_count; inode = inode->next)
            if (inode->timed || inode->paged) (*inos)[count++] = inode->ino;
    pthread_mutex_unlock(&mount->inodes_lock);
    return count;
}

bool fuse_inode_is_known(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->inodes_lock);
    bool known = *fuse_inode_place(mount, ino) != NULL;
    pthread_mutex_unlock(&mount->inodes_lock);
    return known;
}

/* ── editions ── */

uint8_t fuse_inode_edition(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->inodes_lock);
    const struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    uint8_t edition = inode == NULL ? 0 : inode->edition;
    pthread_mutex_unlock(&mount->inodes_lock);
    return edition;
}

void fuse_inode_next_edition(struct amfs_fuse *mount, uint64_t ino, uint8_t edition) {
    pthread_mutex_lock(&mount->inodes_lock);
    struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    if (inode != NULL && inode->edition == edition) { /* after the last comes the first: long forgotten, in all likelihood */
        inode->edition = (uint8_t)((edition + 1u) % EDITIONS);
        inode->all_editions = inode->all_editions || inode->edition == 0;
    }
    pthread_mutex_unlock(&mount->inodes_lock);
}

unsigned fuse_inode_last_edition(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->inodes_lock);
    const struct kernel_inode *inode = *fuse_inode_place(mount, ino);
    unsigned last = inode == NULL ? 0 : inode->all_editions ? EDITIONS - 1 : inode->edition;
    pthread_mutex_unlock(&mount->inodes_lock);
    return last;
}

/* ── files whose last name goes ── */

bool fuse_inodes_keep(struct node *node, uint64_t ino) {
    bool kept = false;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL; mount = mount->next) {
        if (!atomic_load(&mount->no_open)) continue;
        pthread_mutex_lock(&mount->inodes_lock);
        struct kernel_inode *inode = *fuse_inode_place(mount, ino);
        if (inode != NULL) inode->held = kept = true;
        pthread_mutex_unlock(&mount->inodes_lock);
    }
    pthread_mutex_unlock(&node->mounts_lock);
    return kept;
}

bool fuse_inodes_held(struct node *node, uint64_t ino) {
    bool held = false;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL && !held; mount = mount->next) {
        pthread_mutex_lock(&mount->inodes_lock);
        const struct kernel_inode *inode = *fuse_inode_place(mount, ino);
        held = inode != NULL && inode->held;
        pthread_mutex_unlock(&mount->inodes_lock);
    }
    pthread_mutex_unlock(&node->mounts_lock);
    return held;
}
