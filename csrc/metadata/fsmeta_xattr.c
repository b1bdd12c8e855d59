/* The metadata shard: calls about extended attributes of files and directories (the lists are fsmeta_xattrs.c). */
#include "fsmeta_internal.h"

#include <errno.h>
#include <string.h>

/* Where the attributes of a file of here, or of any directory, hang. */
static int attributes_of(struct meta *meta, uint64_t ino, struct xattr ***list, int64_t **ctime) {
    struct dir *dir = fsmeta_find_dir(meta, ino);
    struct inode *inode = dir != NULL ? NULL : fsmeta_find_inode(meta, ino);
    if (dir == NULL && !fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino))) return META_NOT_MINE;
    if (dir == NULL && inode == NULL) return ENOENT;
    *list = dir != NULL ? &dir->xattrs : &inode->xattrs;
    *ctime = dir != NULL ? &dir->ctime : &inode->ctime;
    return 0;
}

static void log_attributes(struct meta *meta, uint64_t ino) {
    struct inode *inode = fsmeta_find_inode(meta, ino);
    if (inode != NULL) fsmeta_log_inode(meta, inode);
}

int meta_set_xattr(struct meta *meta, uint64_t ino, const char *name, const void *value, size_t size, int flags, int64_t now) {
    struct xattr **list;
    int64_t *ctime;
    enter(meta);
    int error = attributes_of(meta, ino, &list, &ctime);
    if (error == 0) error = fsmeta_set_one_xattr(meta, list, name, value, size, flags);
    if (error == 0) *ctime = now;
    if (error == 0) log_attributes(meta, ino);
    return leave(meta, error);
}

int meta_get_xattr(struct meta *meta, uint64_t ino, const char *name, void *value, size_t room, size_t *size) {
    struct xattr **list;
    int64_t *ctime;
    enter(meta);
    int error = attributes_of(meta, ino, &list, &ctime);
    if (error != 0) return leave(meta, error);
    const struct xattr *xattr = *fsmeta_find_xattr(list, name, strlen(name));
    if (xattr == NULL) return leave(meta, ENODATA);
    *size = xattr->size;
    if (room == 0) return leave(meta, 0);
    if (room < xattr->size) return leave(meta, ERANGE);
    memcpy(value, xattr->bytes + xattr->length + 1, xattr->size);
    return leave(meta, 0);
}

int meta_list_xattr(struct meta *meta, uint64_t ino, char *to, size_t room, size_t *size) {
    struct xattr **list;
    int64_t *ctime;
    enter(meta);
    int error = attributes_of(meta, ino, &list, &ctime);
    if (error != 0) return leave(meta, error);
    *size = 0;
    for (const struct xattr *xattr = *list; xattr != NULL; xattr = xattr->next)
        if (!fsmeta_is_origin(xattr)) *size += xattr->length + 1u; /* a copy of a file with its attributes goes without that */
    if (room == 0) return leave(meta, 0);
    if (room < *size) return leave(meta, ERANGE);
    for (const struct xattr *xattr = *list; xattr != NULL; xattr = xattr->next) {
        if (fsmeta_is_origin(xattr)) continue;
        memcpy(to, xattr->bytes, xattr->length + 1u);
        to += xattr->length + 1u;
    }
    return leave(meta, 0);
}

int meta_remove_xattr(struct meta *meta, uint64_t ino, const char *name, int64_t now) {
    struct xattr **list;
    int64_t *ctime;
    enter(meta);
    int error = attributes_of(meta, ino, &list, &ctime);
    if (error != 0) return leave(meta, error);
    struct xattr **at = fsmeta_find_xattr(list, name, strlen(name)), *xattr = *at;
    if (xattr == NULL) return leave(meta, ENODATA);
    *at = xattr->next;
    fsmeta_free_xattr(meta, xattr);
    *ctime = now;
    log_attributes(meta, ino);
    return leave(meta, 0);
}
