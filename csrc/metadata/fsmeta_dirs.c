/* The metadata shard: directories, which every node knows. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dir *fsmeta_find_dir(const struct meta *meta, uint64_t ino) {
    struct link *link = fsmeta_table_first(&meta->dirs, ino);
    return link == NULL ? NULL : RECORD(struct dir, link, link);
}

struct dir *fsmeta_find_child(const struct meta *meta, uint64_t parent, const char *name, size_t length) {
    for (struct link *link = fsmeta_table_first(&meta->dir_names, fsmeta_name_key(parent, name, length)); link != NULL;
         link = fsmeta_table_next(link)) {
        struct dir *dir = RECORD(struct dir, named, link);
        if (dir->parent->link.key == parent && dir->length == length && memcmp(dir->name, name, length) == 0) return dir;
    }
    return NULL;
}

void fsmeta_dir_attr(const struct dir *dir, struct meta_attr *attr) {
    *attr = (struct meta_attr){
        .ino = dir->link.key,
        .mode = dir->mode,
        .nlink = 2 + dir->children,
        .uid = dir->uid,
        .gid = dir->gid,
        .stripe = dir->stripe,
        .layout = dir->layout,
        .finished = 1,
        .writer = -1,
        .rank = dir->rank,
        .size = dir->size,
        .blocks = dir->blocks,
        .atime = dir->atime,
        .mtime = dir->mtime,
        .ctime = dir->ctime,
        .copies = fsmeta_copies_in(dir),
    };
}

/* ── linking ── */

static void adopt(struct dir *parent, struct dir *dir) {
    dir->parent = parent;
    dir->previous = NULL;
    dir->next = parent->child;
    if (parent->child != NULL) parent->child->previous = dir;
    parent->child = dir;
    parent->children++;
}

static void abandon(struct dir *dir) {
    if (dir->next != NULL) dir->next->previous = dir->previous;
    *(dir->previous != NULL ? &dir->previous->next : &dir->parent->child) = dir->next;
    dir->parent->children--;
}

static struct dir *new_dir(struct meta *meta, uint64_t ino, const char *name, size_t length) {
    struct dir *dir = fsmeta_slab_take(&meta->slabs, sizeof *dir);
    if (dir == NULL) return NULL;
    *dir = (struct dir){.link.key = ino, .mode = S_IFDIR, .layout = NO_RULE, .rank = -1, .length = (uint16_t)length};
    dir->name = malloc(length + 1);
    if (dir->name == NULL) {
        fsmeta_slab_give(&meta->slabs, dir);
        return NULL;
    }
    memcpy(dir->name, name, length);
    dir->name[length] = '\0';
    meta->other_bytes += length + 1;
    return dir;
}

static void free_dir(struct meta *meta, struct dir *dir) {
    fsmeta_set_clear(&dir->watchers);
    fsmeta_free_xattrs(meta, &dir->xattrs);
    meta->other_bytes -= dir->length + 1u;
    free(dir->name);
    fsmeta_slab_give(&meta->slabs, dir);
}

static bool free_dir_link(void *context, struct link *link) {
    free_dir(context, RECORD(struct dir, link, link));
    return true;
}

void fsmeta_free_dirs(struct meta *meta) { fsmeta_table_sift(&meta->dirs, free_dir_link, meta); }

int fsmeta_make_root(struct meta *meta) {
    if (fsmeta_find_dir(meta, META_ROOT) != NULL) return 0;
    struct dir *root = new_dir(meta, META_ROOT, "", 0);
    if (root == NULL) return ENOMEM;
    root->mode = S_IFDIR | 0755;
    root->parent = root;
    fsmeta_table_add(&meta->dirs, &root->link);
    return 0;
}

int fsmeta_add_dir(struct meta *meta, uint64_t ino, uint64_t parent, const char *name, size_t length, const struct meta_attr *attr,
                   struct dir **made) {
    struct dir *above = fsmeta_find_dir(meta, parent);
    if (above == NULL) return ENOENT;
    if (fsmeta_find_dir(meta, ino) != NULL || fsmeta_find_inode(meta, ino) != NULL) return EEXIST;
    struct dir *dir = new_dir(meta, ino, name, length);
    if (dir == NULL) return ENOMEM;
    if (attr != NULL) {
        dir->mode = S_IFDIR | (attr->mode & 07777);
        dir->uid = attr->uid;
        dir->gid = attr->gid;
        dir->rank = attr->rank;
        dir->size = attr->size;
        dir->blocks = attr->blocks;
        dir->atime = attr->atime;
        dir->mtime = attr->mtime;
        dir->ctime = attr->ctime;
    }
    dir->named.key = fsmeta_name_key(parent, name, length);
    adopt(above, dir);
    fsmeta_table_add(&meta->dirs, &dir->link);
    fsmeta_table_add(&meta->dir_names, &dir->named);
    fsmeta_number_is_used(meta, ino);
    *made = dir;
    return 0;
}

void fsmeta_forget_dir(struct meta *meta, struct dir *dir) {
    fsmeta_table_remove(&meta->dir_names, &dir->named);
    abandon(dir);
    free_dir(meta, dir);
}

static bool below(const struct dir *dir, const struct dir *ancestor) {
    while (dir != ancestor && dir->parent != dir) dir = dir->parent;
    return dir == ancestor;
}

int fsmeta_move_dir(struct meta *meta, struct dir *dir, struct dir *parent, const char *name, size_t length) {
    char *copy = malloc(length + 1);
    if (copy == NULL) return ENOMEM;
    memcpy(copy, name, length);
    copy[length] = '\0';
    meta->other_bytes += length;
    meta->other_bytes -= dir->length;
    fsmeta_table_remove(&meta->dir_names, &dir->named);
    abandon(dir);
    free(dir->name);
    dir->name = copy;
    dir->length = (uint16_t)length;
    dir->named.key = fsmeta_name_key(parent->link.key, name, length);
    adopt(parent, dir);
    fsmeta_table_add(&meta->dir_names, &dir->named);
    return 0;
}

void fsmeta_set_dir(struct dir *dir, unsigned mask, const struct meta_attr *in, int64_t now) {
    fsmeta_set_owned((struct owned){&dir->mode, &dir->uid, &dir->gid, &dir->atime, &dir->mtime, &dir->ctime}, mask, in, now);
    if (mask & META_SET_MTIME) {
        dir->touched = 0;
        dir->by_hand = now > 0;
        if (dir->timed < now) dir->timed = now;
    }
    if (mask & META_SET_RANK) dir->rank = in->rank;
}

void fsmeta_touch_dir(struct dir *dir, int64_t now) {
    if (dir->timed <= now && (dir->by_hand || dir->mtime < now)) {
        dir->mtime = now;
        dir->by_hand = false;
    }
    if (dir->ctime < now) dir->ctime = now;
}

/* ── the interface ── */

int meta_dir_add(struct meta *meta, uint64_t ino, uint64_t parent, const char *name, size_t length, const struct meta_attr *attr) {
    struct dir *made;
    int error = fsmeta_name_fault(name, length);
    if (error != 0 || ino == 0) return error != 0 ? error : EINVAL;
    enter(meta);
    if (fsmeta_find_child(meta, parent, name, length) != NULL) return leave(meta, EEXIST);
    return leave(meta, fsmeta_add_dir(meta, ino, parent, name, length, attr, &made));
}

int meta_dir_remove(struct meta *meta, uint64_t ino) {
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return leave(meta, ENOTDIR);
    if (dir->parent == dir) return leave(meta, EBUSY);
    if (dir->children > 0) return leave(meta, ENOTEMPTY);
    fsmeta_table_remove(&meta->dirs, &dir->link);
    fsmeta_forget_dir(meta, dir);
    return leave(meta, 0);
}

int meta_dir_move(struct meta *meta, uint64_t ino, uint64_t parent, const char *name, size_t length, int64_t now) {
    int error = fsmeta_name_fault(name, length);
    if (error != 0) return error;
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino), *above = fsmeta_find_dir(meta, parent);
    if (dir == NULL || above == NULL) return leave(meta, dir == NULL ? ENOTDIR : ENOENT);
    if (dir->parent == dir) return leave(meta, EBUSY);
    if (below(above, dir)) return leave(meta, EINVAL);
    const struct dir *there = fsmeta_find_child(meta, parent, name, length);
    if (there != NULL && there != dir) return leave(meta, EEXIST);
    error = there == dir ? 0 : fsmeta_move_dir(meta, dir, above, name, length);
    if (error == 0) dir->ctime = now;
    return leave(meta, error);
}

int meta_dir_set(struct meta *meta, uint64_t ino, unsigned mask, const struct meta_attr *in, int64_t now) {
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return leave(meta, ENOTDIR);
    if (mask & (META_SET_SIZE | META_SET_BLOCKS | META_SET_LAYOUT | META_SET_COPIES)) return leave(meta, EISDIR);
    fsmeta_set_dir(dir, mask, in, now);
    return leave(meta, 0);
}

int meta_dir_get(struct meta *meta, uint64_t ino, struct meta_attr *attr, uint64_t *parent) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return leave(meta, ENOTDIR);
    fsmeta_dir_attr(dir, attr);
    *parent = dir->parent->link.key;
    return leave(meta, 0);
}

int meta_dir_find(struct meta *meta, uint64_t parent, const char *name, size_t length, struct meta_attr *attr) {
    enter(meta);
    const struct dir *dir = fsmeta_find_child(meta, parent, name, length);
    if (dir != NULL) fsmeta_dir_attr(dir, attr);
    return leave(meta, dir != NULL ? 0 : ENOENT);
}

int meta_dir_name(struct meta *meta, uint64_t ino, char *to, size_t room) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return leave(meta, ENOTDIR);
    if (room <= dir->length) return leave(meta, ERANGE);
    memcpy(to, dir->name, dir->length + 1u);
    return leave(meta, 0);
}

bool meta_dir_below(struct meta *meta, uint64_t ino, uint64_t ancestor) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, ino), *above = fsmeta_find_dir(meta, ancestor);
    return leave(meta, dir != NULL && above != NULL && below(dir, above)) != 0;
}

int meta_dir_freeze(struct meta *meta, uint64_t ino, bool frozen) {
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir != NULL) dir->frozen = frozen;
    return leave(meta, dir != NULL ? 0 : ENOTDIR);
}

int meta_dir_touch(struct meta *meta, uint64_t ino, int64_t now, struct meta_nodes *tell) {
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir != NULL && dir->touched < now && dir->timed <= now) dir->touched = now;
    if (!fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return leave(meta, META_NOT_MINE);
    if (dir == NULL) return leave(meta, ENOTDIR);
    fsmeta_touch_dir(dir, now); /* processes on this node see it at once, whenever the others are told */
    int error = fsmeta_prepare_tell(meta, tell, dir->watchers, 0);
    if (error == 0) fsmeta_tell_all(meta, tell, &dir->watchers, -1);
    return leave(meta, error);
}

int64_t meta_dir_touched(struct meta *meta, uint64_t ino) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, ino);
    int64_t touched = dir == NULL ? 0 : dir->touched;
    pthread_mutex_unlock(&meta->lock);
    return touched;
}

void meta_dir_latest(struct meta *meta, struct meta_attr *attr) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, attr->ino);
    int64_t touched = dir == NULL ? 0 : dir->touched;
    bool unheard = touched != 0 && dir->by_hand && attr->mtime == dir->mtime; /* of what this node changed */
    if (unheard || (touched != 0 && attr->mtime < touched)) attr->mtime = touched;
    if (attr->ctime < touched) attr->ctime = touched;
    pthread_mutex_unlock(&meta->lock);
}

int meta_dir_set_layout(struct meta *meta, uint64_t ino, uint8_t layout, uint32_t stripe) {
    if (layout != NO_RULE && (layout > META_STRIPED || (layout == META_STRIPED && stripe == 0))) return EINVAL;
    enter(meta);
    struct dir *dir = fsmeta_find_dir(meta, ino);
    if (dir == NULL) return leave(meta, ENOTDIR);
    dir->layout = layout;
    dir->stripe = layout == NO_RULE ? 0 : stripe;
    return leave(meta, 0);
}

void meta_dir_layout(struct meta *meta, uint64_t ino, uint8_t *layout, uint32_t *stripe) {
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, ino);
    while (dir != NULL && dir->layout == NO_RULE && dir->parent != dir) dir = dir->parent;
    *layout = dir == NULL ? NO_RULE : dir->layout;
    *stripe = dir == NULL ? 0 : dir->stripe;
    pthread_mutex_unlock(&meta->lock);
}

uint8_t fsmeta_copies_in(const struct dir *dir) {
    while (dir->copies == 0 && dir->parent != dir) dir = dir->parent;
    return dir->copies == 0 ? 1 : dir->copies;
}
