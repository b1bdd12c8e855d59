/* Directories that others move. The kernel has one place in its tree for each directory; when it finds one at a new place while something open or
 * somebody's working directory holds it at the old one, it must move it, and in the middle of a rename it cannot: ESTALE. So a directory that
 * is found where this kernel has not put it is given to it under another number, an alias, as if it were another directory: the inode's
 * number with a count in its upper eight bits. What is held at the old place goes on under the old number, and both are the same to us. */
#include "fuse_private.h"

enum { ALIASES = 256 };

uint8_t alias_give(struct amfs_fuse *mount, struct known *known, uint64_t place) {
    if (known->place != place && alias_in(known->ino) == 0) { /* after the last comes the first: long forgotten, in all likelihood */
        known->place = place;
        known->alias = (uint8_t)((known->alias + 1u) % ALIASES);
        known->turned = known->turned || known->alias == 0;
        atomic_store(&mount->aliased, true);
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
