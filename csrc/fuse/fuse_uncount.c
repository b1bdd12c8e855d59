/* Unlinking a name whose record is on another node: the file was renamed, or it is a hard link. The name goes first, at its owner. Then the owner of the
 * record counts a link less, and the request is answered. Each step waits until the backups know of the one before: nobody inherits a name that the record
 * does not count. If this node dies in between, the record counts a name too many, and the content stays.
 *
 * If a third node watches or holds the file the owner says which, and how often that one has asked for anything so far (a stamp). That node is asked to
 * forget the file, and to say that it does not use it. Then the owner is asked again, and refuses if the node has asked for something since.
 *
 * What the owner of the record cannot do (a third node writes or uses the file) the poll loop does, as for every other request. */
#include "common/bytes.h"
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct uncounting {
    struct peer_meta_call call;
    struct peer_meta_held held; /* until the backups of the name know that it has gone */
    struct amfs_fuse *mount;
    uint64_t unique;
    struct fuse_unnamed what;
    char name[];
};

unsigned fuse_perhaps_used(const struct node *node) {
    bool unseen = atomic_load_explicit(&node->unseen, memory_order_relaxed);
    return unseen || atomic_load_explicit(&node->copied, memory_order_relaxed) > 0 ? PEER_META_USED : 0;
}

void fuse_unlinked(struct amfs_fuse *mount, uint64_t unique, uint64_t dir, uint64_t ino, unsigned flags) {
    struct node *node = mount->node;
    bool replica;
    meta_uncache(node->meta, ino, &replica);
    fuse_touch(mount, dir);
    amfs_fuse_reply_error(mount, unique, 0);
    if ((flags & PEER_META_GONE) != 0) fsio_part_delete(node->io, ino);
    if ((flags & PEER_META_USED) != 0 && !amfs_fuse_keep(mount, ino)) fuse_slow_unused(mount, ino);
    fuse_notify_others(mount, ino, false);
}

/* The name has gone, and nobody knows more than that. A kernel that is told of an error keeps the name. */
static void fail(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what) {
    bool replica;
    meta_uncache(mount->node->meta, what->ino, &replica);
    fuse_touch(mount, what->dir);
    amfs_fuse_reply_error(mount, unique, EIO);
    amfs_fuse_invalidate_entry(mount, what->dir, what->name, what->length);
    fuse_notify_others_entry(mount, what->dir, what->name, what->length);
}

/* ── third nodes that must forget the file first ── */

struct sparing {
    struct peer_meta_call call;
    struct amfs_fuse *mount;
    uint64_t unique;
    struct fuse_unnamed what;
    bool named; /* the name has not gone yet: PEER_META_UNLINK, else PEER_META_UNCOUNT */
    int32_t owner; /* of the name, or of the record */
    size_t count;
    int32_t nodes[META_SPARED_MAX];
    uint8_t value[META_SPARED_MAX * PEER_META_SPARED_BYTES];
    char name[];
};

static void give_way(struct sparing *it) {
    if (it->named) fuse_slow_again(it->mount, it->unique);
    else fuse_slow_uncount(it->mount, it->unique, &it->what);
    free(it);
}

static bool ask_peer(struct sparing *it, int32_t node, const struct peer_meta_question *question,
                     void (*done)(struct peer_meta_call *call, const struct peer_meta_answer *answer)) {
    struct peer_meta *peer_meta = atomic_load(&it->mount->stopping) ? NULL : peer_meta_of(it->mount->node->io);
    it->call = (struct peer_meta_call){.owner = it->mount, .done = done};
    return peer_meta != NULL && peer_meta_ask(peer_meta, node, question, &it->call) == 0;
}

static void heard_dropped(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    (void)answer; /* if it is lost, the content there takes room until the session ends */
    free(call);
}

/* The file has gone: so may what the spared nodes have of it. */
static void drop_there(const struct sparing *it) {
    struct peer_meta_question question = {.op = PEER_META_SPARE, .flags = PEER_META_GONE, .ino = it->what.ino};
    for (size_t i = 0; i < it->count; i++) {
        struct peer_meta_call *call = malloc(sizeof *call);
        if (call == NULL) return;
        *call = (struct peer_meta_call){.owner = it->mount, .done = heard_dropped};
        if (peer_meta_ask(peer_meta_of(it->mount->node->io), it->nodes[i], &question, call) != 0) free(call);
    }
}

static bool ask_third(struct sparing *it, int32_t third, uint64_t stamp, uint64_t ino);

/* The record is here, and the name if that has not gone yet (`it`, named). 0: the request is answered; else what meta_uncount_for has. */
static int count_here(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what, const struct sparing *it,
                      struct meta_unlinked *how) {
    struct node *node = mount->node;
    struct meta_attr attr;
    struct meta_spares spares = {.count = 0};
    bool named = it != NULL && it->named;
    int64_t now = fuse_now_of(node);
    if (it != NULL) peer_meta_read_spares(it->value, it->count * PEER_META_SPARED_BYTES, &spares);
    if (meta_getattr(node->meta, what->ino, node->id, &attr) == 0 && S_ISREG(attr.mode) && attr.nlink <= 1)
        fuse_inode_hold(mount, what->ino);
    int error = named ? meta_unlink_for(node->meta, what->dir, what->name, what->length, now, node->id, false, &spares, &attr, how)
                      : meta_uncount_for(node->meta, what->ino, now, node->id, false, &spares, &attr, how);
    if (error != 0 && (named || error != ENOENT)) return error;
    if (it != NULL && error == 0 && how->gone) drop_there(it);
    fuse_answers_to(true);
    fuse_unlinked(mount, unique, what->dir, named ? attr.ino : what->ino, how->gone && how->here ? PEER_META_GONE : 0);
    fuse_answers_to(false);
    if (named) fuse_notify_others_entry(mount, what->dir, what->name, what->length);
    return 0;
}

static void owner_answered(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct sparing *it = (struct sparing *)(void *)call;
    bool third = answer->error == 0 && (answer->flags & PEER_META_THIRD) != 0;
    if (third && answer->count >= PEER_META_THIRD_BYTES &&
        ask_third(it, answer->holder, get_le(answer->bytes, 8), get_le(answer->bytes + 8, 8)))
        return;
    if (third || answer->error == META_BUSY || answer->error == META_NOT_MINE) {
        give_way(it);
        return;
    }
    if (answer->error == PEER_META_LOST) {
        if (it->named) amfs_fuse_reply_error(it->mount, it->unique, EIO); /* as fuse_peer.c has it */
        else fail(it->mount, it->unique, &it->what);
    } else if (answer->error != 0 && it->named) {
        amfs_fuse_reply_error(it->mount, it->unique, answer->error);
    } else {
        if (it->named) it->what.ino = answer->attr.ino;
        if ((answer->flags & PEER_META_HOLDS) != 0) drop_there(it);
        if ((answer->flags & PEER_META_ELSEWHERE) != 0) fuse_uncount(it->mount, it->unique, &it->what);
        else fuse_unlinked(it->mount, it->unique, it->what.dir, it->what.ino, answer->flags);
    }
    free(it);
}

static void third_answered(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct sparing *it = (struct sparing *)(void *)call;
    struct node *node = it->mount->node;
    struct peer_meta_question question = {.op = it->named ? PEER_META_UNLINK : PEER_META_UNCOUNT,
                                          .flags = fuse_perhaps_used(node),
                                          .ino = it->named ? it->what.dir : it->what.ino,
                                          .now = fuse_now_of(node),
                                          .name = it->named ? it->what.name : NULL,
                                          .name_length = it->named ? it->what.length : 0,
                                          .value = it->value,
                                          .value_length = it->count * PEER_META_SPARED_BYTES};
    struct meta_unlinked how;
    if (answer->error == 0 && it->owner != node->id && ask_peer(it, it->owner, &question, owner_answered)) return;
    if (answer->error == 0 && it->owner == node->id) {
        int error = count_here(it->mount, it->unique, &it->what, it, &how);
        if (error == META_BUSY && how.third >= 0 && ask_third(it, how.third, how.stamp, how.ino)) return;
        if (error == 0) {
            free(it);
            return;
        }
    }
    give_way(it);
}

/* False: it is not being asked. */
static bool ask_third(struct sparing *it, int32_t third, uint64_t stamp, uint64_t ino) {
    uint8_t dir[PEER_META_CURSOR_BYTES];
    if (it->count == META_SPARED_MAX) return false;
    uint8_t *spared = it->value + it->count * PEER_META_SPARED_BYTES;
    put_le(spared, (uint32_t)third, 4);
    put_le(spared + 4, stamp, 8);
    it->what.ino = ino;
    it->nodes[it->count++] = third;
    put_le(dir, it->what.dir, PEER_META_CURSOR_BYTES);
    struct peer_meta_question question = {.op = PEER_META_SPARE,
                                          .ino = it->what.ino,
                                          .name = it->what.name,
                                          .name_length = it->what.length,
                                          .value = dir,
                                          .value_length = sizeof dir};
    return ask_peer(it, third, &question, third_answered);
}

/* The owner of the name (`named`), or of the record, says that this node must forget the file first. False: it is not being asked. */
static bool spare(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what, bool named, int32_t owner, int32_t third,
                  uint64_t stamp, uint64_t ino) {
    struct sparing *it = malloc(sizeof *it + what->length);
    if (it == NULL) return false;
    *it = (struct sparing){.mount = mount, .unique = unique, .what = *what, .named = named, .owner = owner};
    memcpy(it->name, what->name, what->length);
    it->what.name = it->name;
    if (ask_third(it, third, stamp, ino)) return true;
    free(it);
    return false;
}

bool fuse_spare(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what, bool named, int32_t owner,
                const struct peer_meta_answer *answer) {
    return answer->count >= PEER_META_THIRD_BYTES &&
           spare(mount, unique, what, named, owner, answer->holder, get_le(answer->bytes, 8), get_le(answer->bytes + 8, 8));
}

/* ── the record's owner is asked ── */

static void counted(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct uncounting *it = (struct uncounting *)(void *)call;
    if (answer->error == PEER_META_LOST) { /* a link less once too often could take content along that has a name */
        fail(it->mount, it->unique, &it->what);
    } else if (answer->error == 0 && (answer->flags & PEER_META_THIRD) != 0) {
        int32_t owner = fuse_owner_of(it->mount->node, it->what.ino);
        if (!fuse_spare(it->mount, it->unique, &it->what, false, owner, answer)) fuse_slow_uncount(it->mount, it->unique, &it->what);
    } else if (answer->error == 0 || answer->error == ENOENT) { /* ENOENT: the record was lost with a node */
        fuse_unlinked(it->mount, it->unique, it->what.dir, it->what.ino, answer->flags);
    } else {
        fuse_slow_uncount(it->mount, it->unique, &it->what);
    }
    free(it);
}

static struct uncounting *begin(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what) {
    struct uncounting *it = malloc(sizeof *it + what->length);
    if (it == NULL) return NULL;
    *it = (struct uncounting){.call = {.owner = mount, .done = counted}, .mount = mount, .unique = unique, .what = *what};
    memcpy(it->name, what->name, what->length);
    it->what.name = it->name;
    return it;
}

/* The record is on another node. False: it is not being asked. */
static bool ask(struct uncounting *it) {
    struct node *node = it->mount->node;
    struct peer_meta *peer_meta = atomic_load(&it->mount->stopping) ? NULL : peer_meta_of(node->io);
    struct peer_meta_question question = {
        .op = PEER_META_UNCOUNT, .flags = fuse_perhaps_used(node), .ino = it->what.ino, .now = fuse_now_of(node)};
    return peer_meta != NULL && peer_meta_ask(peer_meta, fuse_owner_of(node, it->what.ino), &question, &it->call) == 0;
}

void fuse_uncount(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what) {
    struct meta_unlinked how = {.third = -1};
    int32_t id = mount->node->id;
    bool here = fuse_owner_of(mount->node, what->ino) == id;
    if (here) {
        int error = count_here(mount, unique, what, NULL, &how);
        if (error == 0 || (error == META_BUSY && how.third >= 0 && spare(mount, unique, what, false, id, how.third, how.stamp, how.ino)))
            return;
    }
    struct uncounting *it = here ? NULL : begin(mount, unique, what);
    if (it != NULL && ask(it)) return;
    free(it);
    fuse_slow_uncount(mount, unique, what);
}

static void known(struct peer_meta_held *held, int error) {
    struct uncounting *it = (struct uncounting *)(void *)((char *)held - offsetof(struct uncounting, held));
    if (error == 0 && ask(it)) return;
    if (error != 0) fail(it->mount, it->unique, &it->what); /* the poll loop waits on, and counts then */
    fuse_slow_uncount(it->mount, it->unique, &it->what);
    free(it);
}

bool fuse_unname_here(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    struct node *node = mount->node;
    struct peer_meta *peer_meta = peer_meta_of(node->io);
    uint32_t type;
    struct meta_unlinked how;
    if (meta_unlink_asks(node->meta, request->ino, request->name, request->name_length, &how)) {
        struct fuse_unnamed what = {request->ino, how.ino, request->name, request->name_length};
        return request->direct = spare(mount, request->unique, &what, true, node->id, how.third, how.stamp, how.ino);
    }
    struct uncounting *it = begin(mount, request->unique, &(struct fuse_unnamed){request->ino, 0, request->name, request->name_length});
    if (it == NULL) return false;
    int error = meta_unname_for(node->meta, request->ino, request->name, request->name_length, node->id, &it->what.ino, &type);
    if (error != 0) {
        free(it);
        return false;
    }
    request->direct = true;
    request->other = it->what.ino;
    it->held = (struct peer_meta_held){.ticket = meta_take_ticket(), .owner = mount, .ready = known};
    if (it->held.ticket != 0) peer_meta_send_backups(peer_meta);
    if (it->held.ticket != 0 && peer_meta_hold(peer_meta, &it->held)) return true;
    if (ask(it)) return true;
    free(it);
    request->direct = false;
    request->op = FUSE_OP_UNNAMED;
    return false;
}
