/* The metadata shard: extended attributes of files and directories. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { XATTR_NAME_MAX = 255, XATTR_SIZE_MAX = 65536, XATTR_ALL_MAX = 65536 };

static size_t bytes_of(size_t length, size_t size) { return sizeof(struct xattr) + length + 1 + size; }

static struct xattr **find(struct xattr **list, const char *name, size_t length) {
    while (*list != NULL && ((*list)->length != length || memcmp((*list)->bytes, name, length) != 0)) list = &(*list)->next;
    return list;
}

static void free_one(struct meta *meta, struct xattr *xattr) {
    meta->other_bytes -= bytes_of(xattr->length, xattr->size);
    free(xattr);
}

void fsmeta_free_xattrs(struct meta *meta, struct xattr **list) {
    while (*list != NULL) {
        struct xattr *next = (*list)->next;
        free_one(meta, *list);
        *list = next;
    }
}

int fsmeta_set_one_xattr(struct meta *meta, struct xattr **list, const char *name, const void *value, size_t size, int flags) {
    size_t length = strlen(name), all = length + 1 + size;
    if (length == 0 || length > XATTR_NAME_MAX) return ERANGE;
    if (size > XATTR_SIZE_MAX) return E2BIG;
    struct xattr **at = find(list, name, length), *old = *at;
    if (flags & META_XATTR_CREATE && old != NULL) return EEXIST;
    if (flags & META_XATTR_REPLACE && old == NULL) return ENODATA;
    for (const struct xattr *other = *list; other != NULL; other = other->next)
        if (other != old) all += other->length + 1u + other->size;
    if (all > XATTR_ALL_MAX) return ENOSPC;
    struct xattr *xattr = malloc(bytes_of(length, size));
    if (xattr == NULL) return ENOMEM;
    xattr->size = (uint32_t)size;
    xattr->length = (uint16_t)length;
    memcpy(xattr->bytes, name, length + 1);
    if (size > 0) memcpy(xattr->bytes + length + 1, value, size);
    xattr->next = old == NULL ? NULL : old->next;
    *at = xattr;
    if (old != NULL) free_one(meta, old);
    meta->other_bytes += bytes_of(length, size);
    return 0;
}

static bool is_origin(const struct xattr *xattr) {
    return xattr->length == sizeof META_ORIGIN - 1 && memcmp(xattr->bytes, META_ORIGIN, sizeof META_ORIGIN - 1) == 0;
}

void fsmeta_set_origin(struct meta *meta, struct inode *inode, const void *origin, size_t size) {
    struct xattr **at = find(&inode->xattrs, META_ORIGIN, sizeof META_ORIGIN - 1), *old = *at;
    if (old != NULL) {
        *at = old->next;
        free_one(meta, old);
    }
    if (size > 0) fsmeta_set_one_xattr(meta, &inode->xattrs, META_ORIGIN, origin, size, 0);
}

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
    const struct xattr *xattr = *find(list, name, strlen(name));
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
        if (!is_origin(xattr)) *size += xattr->length + 1u; /* who copies a file with its attributes does not copy that */
    if (room == 0) return leave(meta, 0);
    if (room < *size) return leave(meta, ERANGE);
    for (const struct xattr *xattr = *list; xattr != NULL; xattr = xattr->next) {
        if (is_origin(xattr)) continue;
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
    struct xattr **at = find(list, name, strlen(name)), *xattr = *at;
    if (xattr == NULL) return leave(meta, ENODATA);
    *at = xattr->next;
    free_one(meta, xattr);
    *ctime = now;
    log_attributes(meta, ino);
    return leave(meta, 0);
}
