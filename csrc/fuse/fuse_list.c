/* Directories: at once where this node is alone, else by the poll loop, which asks all nodes for their entries. */
#include "fuse_internal.h"

#include <errno.h>
#include <string.h>

bool list_add(struct listing *listing, const char *name, size_t length, uint64_t ino, uint32_t type, uint64_t cursor,
              const struct meta_attr *attr) {
    size_t before = listing->plus ? sizeof(struct wire_entry_out) : 0, size = (before + WIRE_DIRENT + length + 7) / 8 * 8;
    if (size > listing->room - listing->used) return false;
    char *at = listing->to + listing->used;
    memset(at, 0, size < before + WIRE_DIRENT ? size : before + WIRE_DIRENT);
    if (listing->plus && attr != NULL && !known_lost(listing->mount, attr, listing->since, false)) /* else number 0: nothing to keep */
        put_entry(listing->mount, listing->since, (void *)at, attr, place_of(listing->dir, listing->alias, name, length), true);
    struct wire_dirent *entry = (void *)(at + before);
    entry->ino = ino;
    entry->offset = cursor;
    entry->length = (uint32_t)length;
    entry->type = type >> 12;
    memcpy(entry->name, name, length);
    memset(entry->name + length, 0, size - before - WIRE_DIRENT - length);
    listing->used += size;
    return true;
}

bool list_dots(struct listing *listing, uint64_t dir, uint64_t offset) {
    struct meta_attr attr;
    uint64_t parent = dir;
    if (offset < DOTS) meta_dir_get(listing->mount->node->meta, dir, &attr, &parent);
    if (offset < 1 && !list_add(listing, ".", 1, dir, S_IFDIR, 1, NULL)) return false;
    return offset >= DOTS || list_add(listing, "..", 2, parent, S_IFDIR, DOTS, NULL);
}

static bool each(void *context, const struct meta_entry *entry, const struct meta_attr *attr) {
    if (attr != NULL && S_ISREG(attr->mode) && !attr->finished) attr = NULL; /* being written: the record is old */
    return list_add(context, entry->name, entry->length, entry->ino, entry->type, entry->cursor + DOTS, attr);
}

void do_open_dir(struct call *call) {
    struct wire_open_out out = {.fh = 0};
    give(call, &out, sizeof out);
}

void do_list(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_read_in *in = (const void *)call->body;
    struct meta_attr attr;
    uint64_t parent;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    bool plus = call->in->opcode == WIRE_READDIRPLUS;
    struct listing listing = {
        mount, call->in->ino, call->in->alias, plus, call->since, call->out, 0, in->size < MAX_WRITE ? in->size : MAX_WRITE};
    uint64_t cursor = in->offset > DOTS ? in->offset - DOTS : 0;
    if (ghost_find(mount, call->in->ino, &attr)) {
        refuse(call, ENOENT); /* removed, and open still */
        return;
    }
    if (is_alone(mount->node)) {
        int error = meta_dir_get(mount->node->meta, call->in->ino, &attr, &parent);
        if (error != 0) {
            refuse(call, error == ENOTDIR ? ENOENT : error); /* removed, and open still */
            return;
        }
        if (list_dots(&listing, call->in->ino, in->offset)) meta_list(mount->node->meta, call->in->ino, cursor, each, &listing);
        give(call, call->out, listing.used);
        return;
    }
    struct amfs_fuse_request *request = slow_new(call, FUSE_OP_LIST, NULL, 0, NULL, 0);
    if (request != NULL) {
        size_t one = (plus ? sizeof(struct wire_entry_out) : 0) + WIRE_DIRENT + 8;
        request->cursor = in->offset;
        request->room = listing.room;
        request->flags = (uint32_t)(listing.room / one + 1);
    }
    slow_add(mount, request);
}
