/* Unlinking a name whose record is on another node: the file was renamed, or it is a hard link. The name goes first, at its owner. Then the owner of the
 * record counts a link less, and the request is answered. Each step waits until the backups know of the one before: nobody inherits a name that the record
 * does not count. If this node dies in between, the record counts a name too many, and the content stays.
 *
 * What the owner of the record cannot do at once (a third node watches, holds or writes the file) the poll loop does, as for every other request. */
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
static void fail(struct uncounting *it) {
    struct amfs_fuse *mount = it->mount;
    bool replica;
    meta_uncache(mount->node->meta, it->what.ino, &replica);
    fuse_touch(mount, it->what.dir);
    amfs_fuse_reply_error(mount, it->unique, EIO);
    amfs_fuse_invalidate_entry(mount, it->what.dir, it->what.name, it->what.length);
    fuse_notify_others_entry(mount, it->what.dir, it->what.name, it->what.length);
}

static void counted(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct uncounting *it = (struct uncounting *)(void *)call;
    if (answer->error == PEER_META_LOST) { /* a link less once too often could take content along that has a name */
        fail(it);
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

/* The record is here. False: it is not, or a third node is concerned. */
static bool count_here(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what) {
    struct node *node = mount->node;
    struct meta_attr attr;
    struct meta_unlinked how;
    if (meta_getattr(node->meta, what->ino, node->id, &attr) == 0 && S_ISREG(attr.mode) && attr.nlink <= 1)
        fuse_inode_hold(mount, what->ino);
    int error = meta_uncount_for(node->meta, what->ino, fuse_now_of(node), node->id, false, &attr, &how);
    if (error != 0 && error != ENOENT) return false;
    fuse_answers_to(true);
    fuse_unlinked(mount, unique, what->dir, what->ino, how.gone && how.here ? PEER_META_GONE : 0);
    fuse_answers_to(false);
    return true;
}

void fuse_uncount(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what) {
    bool here = fuse_owner_of(mount->node, what->ino) == mount->node->id;
    if (here && count_here(mount, unique, what)) return;
    struct uncounting *it = here ? NULL : begin(mount, unique, what);
    if (it != NULL && ask(it)) return;
    free(it);
    fuse_slow_uncount(mount, unique, what);
}

static void known(struct peer_meta_held *held, int error) {
    struct uncounting *it = (struct uncounting *)(void *)((char *)held - offsetof(struct uncounting, held));
    if (error == 0 && ask(it)) return;
    if (error != 0) fail(it); /* the poll loop waits on, and counts then */
    fuse_slow_uncount(it->mount, it->unique, &it->what);
    free(it);
}

bool fuse_unname_here(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    struct node *node = mount->node;
    struct peer_meta *peer_meta = peer_meta_of(node->io);
    uint32_t type;
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
