/* Directories whose entries lie on several nodes: their shards are asked side by side (peer_meta.h). If one of them cannot say, because partitions move or
 * it is not connected, the page is the poll loop's. The cursors are the same on both ways: a directory may be read on either. Stands on fuse_reply.c. */
#include "fuse_internal.h"

#include "common/bytes.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)LISTED_BYTES >= (int)PEER_META_BYTES_MAX, "an answer has room");

struct asking {
    struct peer_meta_call call;
    struct gathering *gathering;
    size_t which;
};

/* A page on its way. It is its answers' once the last question has been sent: the last answer ends it. */
struct gathering {
    struct amfs_fuse *mount;
    uint64_t unique, dir, offset, cursor;
    bool plus;
    size_t room;
    struct fuse_round round;
    atomic_size_t missing; /* answers */
    struct asking asking[LIST_SIDE_BY_SIDE];
    struct fuse_listed listed[LIST_SIDE_BY_SIDE];
};

enum asked { ASKED, NOBODY_TO_ASK, NOT_ASKED };

static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer);

/* NOT_ASKED, NOBODY_TO_ASK: the gathering is still the caller's. */
static enum asked ask(struct gathering *gathering) {
    struct node *node = gathering->mount->node;
    struct peer_meta *peer_meta = atomic_load(&gathering->mount->stopping) ? NULL : peer_meta_of(node->io);
    struct fuse_round *round = &gathering->round;
    uint8_t cursor[PEER_META_CURSOR_BYTES];
    if (peer_meta == NULL) return NOT_ASKED;
    fuse_list_round(node, gathering->cursor, round);
    fuse_list_here(node, gathering->dir, round, gathering->listed);
    if (round->others == 0) return NOBODY_TO_ASK;
    size_t others = round->others;
    atomic_store(&gathering->missing, others);
    for (size_t i = 0; others > 0; i++) { /* once the last is asked the gathering is the answers' */
        if (round->nodes[i] == node->id) continue;
        struct asking *asking = &gathering->asking[i];
        *asking = (struct asking){.call = {.owner = gathering->mount, .done = answered}, .gathering = gathering, .which = i};
        put_le(cursor, i == 0 ? round->inside : 0, sizeof cursor);
        struct peer_meta_question question = {
            .op = PEER_META_LIST, .ino = gathering->dir, .now = (int64_t)round->version, .value = cursor, .value_length = sizeof cursor};
        int error = peer_meta_ask(peer_meta, round->nodes[i], &question, &asking->call);
        if (error != 0) {
            gathering->listed[i].error = error;
            return atomic_fetch_sub(&gathering->missing, others) == others ? NOT_ASKED : ASKED;
        }
        others--;
    }
    return ASKED;
}

/* All of a round have answered. */
static void go_on(struct gathering *gathering) {
    struct fuse_listing listing = {
        gathering->mount, gathering->dir, gathering->plus, 0, malloc(gathering->room + 1), 0, gathering->room, NULL};
    enum fuse_page page = PAGE_FAILED;
    if (listing.to != NULL) page = PAGE_GOES_ON;
    if (page == PAGE_GOES_ON && !fuse_list_dots(&listing, gathering->dir, gathering->offset)) page = PAGE_DONE;
    while (page == PAGE_GOES_ON) {
        page = fuse_list_take(&listing, &gathering->round, gathering->listed, &gathering->cursor);
        if (page != PAGE_GOES_ON) break;
        enum asked asked = ask(gathering);
        if (asked == NOT_ASKED) page = PAGE_FAILED;
        if (asked != ASKED) continue;
        free(listing.to);
        return;
    }
    if (page == PAGE_DONE) amfs_fuse_reply_bytes(gathering->mount, gathering->unique, listing.to, listing.used);
    else fuse_slow_again(gathering->mount, gathering->unique);
    free(listing.to);
    free(gathering);
}

static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct asking *asking = (struct asking *)(void *)call;
    struct gathering *gathering = asking->gathering;
    struct fuse_listed *listed = &gathering->listed[asking->which];
    listed->error = answer->error;
    listed->more = (answer->flags & PEER_META_MORE) != 0;
    listed->size = answer->error == 0 ? answer->count : 0;
    if (listed->size > 0) memcpy(listed->bytes, answer->bytes, listed->size);
    if (atomic_fetch_sub(&gathering->missing, 1) == 1) go_on(gathering);
}

bool fuse_list_ask(struct amfs_fuse *mount, const struct amfs_fuse_request *request) {
    struct meta_attr attr;
    uint64_t parent;
    if (meta_dir_get(mount->node->meta, request->ino, &attr, &parent) != 0) return false;
    struct gathering *gathering = malloc(sizeof *gathering);
    if (gathering == NULL) return false;
    *gathering = (struct gathering){.mount = mount,
                                    .unique = request->unique,
                                    .dir = request->ino,
                                    .offset = request->cursor,
                                    .cursor = request->cursor > DOTS ? request->cursor - DOTS : 0,
                                    .plus = request->opcode == WIRE_READDIRPLUS,
                                    .room = request->room};
    if (ask(gathering) == ASKED) return true;
    free(gathering); /* if there is nobody to ask, partitions have moved just now */
    return false;
}
