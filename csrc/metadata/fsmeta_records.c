/* The metadata shard: one record as bytes, for partitions that move (fsmeta_moving.c) and for backups (fsmeta_batches.c). The bytes are drawn in
 * fsmeta_moving.c. */
#include "fsmeta_records.h"

#include <stdlib.h>
#include <string.h>

/* ── writing ── */

void fsmeta_put_bytes(struct out *out, const void *from, size_t count) {
    if (!out->failed && out->room - out->size < count) {
        size_t room = 2 * out->room + count + 4096;
        uint8_t *larger = realloc(out->bytes, room);
        if (larger == NULL) {
            out->failed = true;
        } else {
            out->bytes = larger;
            out->room = room;
        }
    }
    if (out->failed || count == 0) return;
    memcpy(out->bytes + out->size, from, count);
    out->size += count;
}

void fsmeta_put(struct out *out, uint64_t value, size_t count) {
    uint8_t bytes[8];
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    fsmeta_put_bytes(out, bytes, count);
}

void fsmeta_put_name(struct out *out, const char *name, size_t length) {
    fsmeta_put(out, length, 2);
    fsmeta_put_bytes(out, name, length);
}

/* The nodes of a set, and `also` if it is not negative. */
static void put_nodes(struct out *out, node_set set, int32_t also) {
    size_t count = fsmeta_set_count(set);
    bool more = also >= 0 && !fsmeta_set_has(set, also);
    fsmeta_put(out, count + more, 4);
    for (size_t i = 0; i < count; i++) {
        int32_t node = fsmeta_set_at(set, i);
        if (more && node > also) {
            fsmeta_put(out, (uint32_t)also, 4);
            more = false;
        }
        fsmeta_put(out, (uint32_t)node, 4);
    }
    if (more) fsmeta_put(out, (uint32_t)also, 4);
}

void fsmeta_put_xattrs(struct out *out, const struct xattr *list) {
    size_t count = 0;
    for (const struct xattr *xattr = list; xattr != NULL; xattr = xattr->next) count++;
    fsmeta_put(out, count, 4);
    for (const struct xattr *xattr = list; xattr != NULL; xattr = xattr->next) {
        fsmeta_put_name(out, xattr->bytes, xattr->length);
        fsmeta_put(out, xattr->size, 4);
        fsmeta_put_bytes(out, xattr->bytes + xattr->length + 1, xattr->size);
    }
}

bool fsmeta_put_entry(void *context, struct link *link) {
    struct out *out = context;
    const struct entry *entry = RECORD(struct entry, link, link);
    fsmeta_put(out, 'E', 1);
    fsmeta_put(out, entry->dir, 8);
    fsmeta_put(out, entry->ino, 8);
    fsmeta_put(out, entry->type, 4);
    fsmeta_put_name(out, entry->name, entry->length);
    put_nodes(out, out->bare ? 0 : entry->watchers, out->bare ? -1 : out->meta->node);
    return false;
}

bool fsmeta_put_lock(void *context, struct link *link) {
    struct out *out = context;
    const struct name_lock *lock = RECORD(struct name_lock, link, link);
    if (fsmeta_partition_of_key(out->meta, lock->link.key) != out->partition) return false;
    fsmeta_put(out, 'L', 1);
    fsmeta_put(out, lock->dir, 8);
    fsmeta_put(out, lock->owner, 8);
    fsmeta_put_name(out, lock->name, lock->length);
    return false;
}

bool fsmeta_put_inode(void *context, struct link *link) {
    struct out *out = context;
    const struct inode *inode = RECORD(struct inode, link, link);
    fsmeta_put(out, 'I', 1);
    fsmeta_put(out, inode->link.key, 8);
    const uint32_t words[] = {inode->mode, inode->nlink, inode->uid, inode->gid, inode->rdev, inode->stripe};
    for (size_t i = 0; i < 6; i++) fsmeta_put(out, words[i], 4);
    fsmeta_put(out, inode->layout, 1);
    fsmeta_put(out, inode->lost | inode->secured << 1, 1);
    fsmeta_put(out, inode->copies, 1);
    fsmeta_put(out, (uint32_t)inode->writer, 4);
    fsmeta_put(out, (uint32_t)inode->rank, 4);
    const uint64_t longs[] = {inode->size,   inode->blocks, (uint64_t)inode->atime, (uint64_t)inode->mtime, (uint64_t)inode->ctime,
                              inode->pending};
    for (size_t i = 0; i < 6; i++) fsmeta_put(out, longs[i], 8);
    put_nodes(out, inode->holders, -1);
    put_nodes(out, inode->users, -1);
    put_nodes(out, out->bare ? 0 : inode->watchers, out->bare ? -1 : out->meta->node);
    fsmeta_put(out, inode->target == NULL ? 0 : inode->size, 4);
    if (inode->target != NULL) fsmeta_put_bytes(out, inode->target, inode->size);
    fsmeta_put_xattrs(out, inode->xattrs);
    return false;
}
