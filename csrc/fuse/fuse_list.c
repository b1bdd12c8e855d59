/* Directories: at once where this node has all that is asked for, else fuse_list_peers.c asks other shards, or the poll loop does. */
#include "fuse_internal.h"

#include "common/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool fuse_list_add(struct fuse_listing *listing, const char *name, size_t length, uint64_t ino, uint32_t type, uint64_t cursor,
                   const struct meta_attr *attr) {
    size_t before = listing->plus ? sizeof(struct wire_entry_out) : 0, size = (before + WIRE_DIRENT + length + 7) / 8 * 8;
    if (size > listing->room - listing->used) return false;
    char *at = listing->to + listing->used;
    memset(at, 0, size < before + WIRE_DIRENT ? size : before + WIRE_DIRENT);
    if (listing->plus && attr != NULL) /* else number 0: nothing to keep */
        fuse_put_entry(listing->mount, listing->since, (void *)at, attr, true);
    struct wire_dirent *entry = (void *)(at + before);
    entry->ino = ino;
    entry->offset = cursor;
    listing->last = &entry->offset;
    entry->length = (uint32_t)length;
    entry->type = type >> 12;
    memcpy(entry->name, name, length);
    memset(entry->name + length, 0, size - before - WIRE_DIRENT - length);
    listing->used += size;
    return true;
}

bool fuse_list_dots(struct fuse_listing *listing, uint64_t dir, uint64_t offset) {
    struct meta_attr attr;
    uint64_t parent = dir;
    if (offset < DOTS) meta_dir_get(listing->mount->node->meta, dir, &attr, &parent);
    if (offset < 1 && !fuse_list_add(listing, ".", 1, dir, S_IFDIR, 1, NULL)) return false;
    return offset >= DOTS || fuse_list_add(listing, "..", 2, parent, S_IFDIR, DOTS, NULL);
}

static bool each(void *context, const struct meta_entry *entry, const struct meta_attr *attr) {
    if (attr != NULL && S_ISREG(attr->mode) && !attr->finished) attr = NULL; /* being written: the record is old */
    return fuse_list_add(context, entry->name, entry->length, entry->ino, entry->type, entry->cursor + DOTS, attr);
}

enum { INSIDE_BITS = 48, END_PLACE = 0x7FFF }; /* no shard is in that place */

static uint64_t cursor_of(size_t place, uint64_t inside) { return (uint64_t)place << INSIDE_BITS | inside; }

/* A page that begins where a shard does is likely to be that of a small directory, with a few entries in each shard: several are asked. Else the shard has many. */
void fuse_list_round(const struct node *node, uint64_t cursor, struct fuse_round *round) {
    round->place = cursor >> INSIDE_BITS;
    round->inside = cursor & (((uint64_t)1 << INSIDE_BITS) - 1);
    size_t most = round->inside == 0 ? LIST_SIDE_BY_SIDE : 1;
    round->of = meta_shards(node->meta, round->place, round->nodes, most, &round->version);
    size_t left = round->place < round->of ? round->of - round->place : 0;
    round->count = left < most ? left : most;
    round->others = 0;
    for (size_t i = 0; i < round->count; i++) round->others += round->nodes[i] != node->id;
}

void fuse_list_here(const struct node *node, uint64_t dir, const struct fuse_round *round, struct fuse_listed *listed) {
    for (size_t i = 0; i < round->count; i++)
        if (round->nodes[i] == node->id)
            listed[i].error = meta_list_for(node->meta, dir, round->version, i == 0 ? round->inside : 0, listed[i].bytes, LISTED_BYTES,
                                            &listed[i].size, &listed[i].more);
}

enum fuse_page fuse_list_take(struct fuse_listing *listing, const struct fuse_round *round, const struct fuse_listed *listed,
                              uint64_t *cursor) {
    for (size_t i = 0; i < round->count; i++) {
        const uint8_t *at = listed[i].bytes, *end = at + listed[i].size;
        size_t place = round->place + i;
        if (listed[i].error != 0 || (at == end && listed[i].more)) return PAGE_FAILED;
        while (at < end) {
            size_t length = end - at > META_LISTED_HEAD ? at[META_LISTED_HEAD - 1] : 0;
            if (length == 0 || (size_t)(end - at) < META_LISTED_HEAD + length) return PAGE_FAILED;
            const uint8_t *next = at + META_LISTED_HEAD + length;
            uint64_t after = next < end || listed[i].more ? cursor_of(place, get_le(at + 8, 8)) : cursor_of(place + 1, 0);
            if (!fuse_list_add(listing, (const char *)at + META_LISTED_HEAD, length, get_le(at, 8), (uint32_t)get_le(at + 16, 1) << 12,
                               after + DOTS, NULL))
                return PAGE_DONE;
            at = next;
        }
        if (listed[i].more) return PAGE_DONE;
    }
    size_t next = round->place + round->count;
    *cursor = cursor_of(next < round->of ? next : END_PLACE, 0);
    if (listing->last != NULL) *listing->last = *cursor + DOTS; /* the kernel need not ask again for what is known to be empty */
    return next >= round->of || listing->used > 0 ? PAGE_DONE : PAGE_GOES_ON;
}

/* A page of which this node's shard has all. False: others must be asked. */
static bool list_here(const struct call *call, struct fuse_listing *listing, uint64_t offset) {
    const struct node *node = call->mount->node;
    struct fuse_round round;
    struct meta_attr attr;
    uint64_t parent, cursor = offset - DOTS;
    if (offset < DOTS || meta_dir_get(node->meta, listing->dir, &attr, &parent) != 0) return false;
    fuse_list_round(node, cursor, &round);
    if (round.others > 0) return false;
    struct fuse_listed *listed = malloc(LIST_SIDE_BY_SIDE * sizeof *listed);
    enum fuse_page page = listed == NULL ? PAGE_FAILED : PAGE_GOES_ON;
    while (page == PAGE_GOES_ON && round.others == 0) {
        fuse_list_here(node, listing->dir, &round, listed);
        page = fuse_list_take(listing, &round, listed, &cursor);
        if (page == PAGE_GOES_ON) fuse_list_round(node, cursor, &round);
    }
    free(listed);
    return page == PAGE_DONE;
}

void fuse_do_open_dir(struct call *call) {
    struct wire_open_out out = {.fh = 0};
    give(call, &out, sizeof out);
}

void fuse_do_list(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_read_in *in = (const void *)call->body;
    struct meta_attr attr;
    uint64_t parent;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    bool plus = call->in->opcode == WIRE_READDIRPLUS;
    struct fuse_listing listing = {mount, call->in->ino, plus, call->since, call->out, 0, in->size < MAX_WRITE ? in->size : MAX_WRITE,
                                   NULL};
    uint64_t cursor = in->offset > DOTS ? in->offset - DOTS : 0;
    if (fuse_removed_find(mount, call->in->ino, &attr)) {
        refuse(call, ENOENT); /* removed, and open still */
        return;
    }
    if (is_alone(mount->node)) {
        int error = meta_dir_get(mount->node->meta, call->in->ino, &attr, &parent);
        if (error != 0) {
            refuse(call, error == ENOTDIR ? ENOENT : error); /* removed, and open still */
            return;
        }
        if (fuse_list_dots(&listing, call->in->ino, in->offset)) meta_list(mount->node->meta, call->in->ino, cursor, each, &listing);
        give(call, call->out, listing.used);
        return;
    }
    if (list_here(call, &listing, in->offset)) {
        give(call, call->out, listing.used);
        return;
    }
    struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_LIST, NULL, 0, NULL, 0);
    if (request != NULL) {
        size_t one = (plus ? sizeof(struct wire_entry_out) : 0) + WIRE_DIRENT + 8;
        request->cursor = in->offset;
        request->room = listing.room;
        request->flags = (uint32_t)(listing.room / one + 1);
    }
    fuse_slow_add(mount, request);
}
