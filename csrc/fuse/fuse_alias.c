/* What the kernel knows by several numbers, as if it were several inodes: the inode's number with a count in its upper eight bits. To us they are the
 * same.
 *
 * Directories that others move. The kernel has one place in its tree for each directory; when it finds one at a new place while something open or
 * somebody's working directory holds it at the old one, it must move it, and in the middle of a rename it cannot: ESTALE. So a directory that
 * is found where this kernel has not put it is given to it under another number. What is held at the old place goes on under the old one.
 *
 * Files that others write. The kernel takes one part for all that have a file open (passthrough), and who keeps it open keeps what it contained before
 * another node wrote it. Who opens it then shall look for it once more (ESTALE makes the kernel do that), and finds it under another number. */
#include "fuse_internal.h"

static void turn(struct amfs_fuse *mount, struct known *known) { /* after the last comes the first: long forgotten, in all likelihood */
    known->alias = (uint8_t)((known->alias + 1u) % ALIASES);
    known->turned = known->turned || known->alias == 0;
    atomic_store(&mount->aliased, true);
}

uint8_t alias_give(struct amfs_fuse *mount, struct known *known, uint64_t place) {
    if (place != 0 && known->place != place && alias_in(known->ino) == 0) {
        known->place = place;
        turn(mount, known);
    }
    return known->alias;
}

static void put_at(struct amfs_fuse *mount, uint64_t dir, unsigned alias, const char *name, size_t length) {
    struct meta_attr attr;
    if (meta_dir_find(mount->node->meta, dir, name, length, &attr) != 0) return;
    pthread_mutex_lock(&mount->known_lock);
    struct known *known = known_find(mount, attr.ino);
    if (known != NULL) known->place = place_of(dir, alias, name, length);
    pthread_mutex_unlock(&mount->known_lock);
}

void alias_moved(struct amfs_fuse *mount, const struct amfs_fuse_request *rename) {
    put_at(mount, rename->other, rename->other_alias, rename->value, rename->value_length);
    put_at(mount, rename->ino, rename->alias, rename->name, rename->name_length); /* an exchange */
}

unsigned alias_last(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->known_lock);
    const struct known *known = known_find(mount, ino);
    unsigned last = known == NULL ? 0 : known->turned ? ALIASES - 1 : known->alias;
    pthread_mutex_unlock(&mount->known_lock);
    return last;
}

/* ── files ── */

uint8_t alias_now(struct amfs_fuse *mount, uint64_t ino) {
    if (!atomic_load_explicit(&mount->aliased, memory_order_relaxed)) return 0;
    pthread_mutex_lock(&mount->known_lock);
    const struct known *known = known_find(mount, ino);
    uint8_t alias = known == NULL ? 0 : known->alias;
    pthread_mutex_unlock(&mount->known_lock);
    return alias;
}

void alias_turn(struct amfs_fuse *mount, uint64_t ino, uint8_t alias) {
    pthread_mutex_lock(&mount->known_lock);
    struct known *known = known_find(mount, ino);
    if (known != NULL && known->alias == alias && alias_in(known->ino) == 0) turn(mount, known);
    pthread_mutex_unlock(&mount->known_lock);
}
