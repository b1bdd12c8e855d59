/* The metadata shard: lists of extended attributes. Stands on nothing. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { XATTR_NAME_MAX = 255, XATTR_SIZE_MAX = 65536, XATTR_ALL_MAX = 65536 };

static size_t bytes_of(size_t length, size_t size) { return sizeof(struct xattr) + length + 1 + size; }

struct xattr **fsmeta_find_xattr(struct xattr **list, const char *name, size_t length) {
    while (*list != NULL && ((*list)->length != length || memcmp((*list)->bytes, name, length) != 0)) list = &(*list)->next;
    return list;
}

void fsmeta_free_xattr(struct meta *meta, struct xattr *xattr) {
    meta->other_bytes -= bytes_of(xattr->length, xattr->size);
    free(xattr);
}

void fsmeta_free_xattrs(struct meta *meta, struct xattr **list) {
    while (*list != NULL) {
        struct xattr *next = (*list)->next;
        fsmeta_free_xattr(meta, *list);
        *list = next;
    }
}

int fsmeta_set_one_xattr(struct meta *meta, struct xattr **list, const char *name, const void *value, size_t size, int flags) {
    size_t length = strlen(name), all = length + 1 + size;
    if (length == 0 || length > XATTR_NAME_MAX) return ERANGE;
    if (size > XATTR_SIZE_MAX) return E2BIG;
    struct xattr **at = fsmeta_find_xattr(list, name, length), *old = *at;
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
    if (old != NULL) fsmeta_free_xattr(meta, old);
    meta->other_bytes += bytes_of(length, size);
    return 0;
}

bool fsmeta_is_origin(const struct xattr *xattr) {
    return xattr->length == sizeof META_ORIGIN - 1 && memcmp(xattr->bytes, META_ORIGIN, sizeof META_ORIGIN - 1) == 0;
}

void fsmeta_set_origin(struct meta *meta, struct inode *inode, const void *origin, size_t size) {
    struct xattr **at = fsmeta_find_xattr(&inode->xattrs, META_ORIGIN, sizeof META_ORIGIN - 1), *old = *at;
    if (old != NULL) {
        *at = old->next;
        fsmeta_free_xattr(meta, old);
    }
    if (size > 0) fsmeta_set_one_xattr(meta, &inode->xattrs, META_ORIGIN, origin, size, 0);
}
