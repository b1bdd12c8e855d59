/* Renaming a file whose names lie on two nodes, or both on another one, without the poll loops. The old name is locked, and the record counts a link more.
 * Then the new name is made at its owner, or taken from another file, then the old name goes, and the record counts a link less. Each step waits until the
 * backups know of the one before. So whichever node dies, the file has a name, and the record counts no name too few. The file that the new name was of counts a link
 * less in the end, as when it is unlinked (fuse_uncount.c).
 *
 * Third nodes that know the name or the file forget both before it begins, as when it is unlinked; but they may use the file.
 *
 * What a shard refuses when this has begun is ended by the poll loop: it takes the first step back, or does the last. */
#include "common/bytes.h"
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

enum how_far { NOT_MADE, MADE, UNKNOWN }; /* the new name: as `mode` of FUSE_OP_RENAMING */

struct renaming {
    struct peer_meta_call call;
    struct peer_meta_held held;
    struct amfs_fuse *mount;
    uint64_t unique;
    int32_t old_owner, new_owner; /* of the names, as the table said; if it has changed since they refuse */
    struct fuse_renaming what;
    size_t spared; /* nodes that have forgotten the old name and the file */
    uint8_t value[PEER_META_RENAME_BYTES + META_SPARED_MAX * PEER_META_SPARED_BYTES]; /* the owner of the lock, then those nodes */
    char names[]; /* the old one, the new one */
};

static int32_t owner_of(const struct node *node, uint64_t dir, const char *name, size_t length) {
    return meta_owner(node->meta, meta_name_partition(node->meta, dir, name, length));
}

static void leave(struct renaming *it, enum how_far how_far) {
    it->what.how_far = how_far;
    fuse_slow_rename(it->mount, it->unique, &it->what);
    free(it);
}

static bool ask(struct renaming *it, int32_t node, const struct peer_meta_question *question,
                void (*done)(struct peer_meta_call *call, const struct peer_meta_answer *answer)) {
    struct peer_meta *peer_meta = atomic_load(&it->mount->stopping) ? NULL : peer_meta_of(it->mount->node->io);
    it->call = (struct peer_meta_call){.owner = it->mount, .done = done};
    return peer_meta != NULL && peer_meta_ask(peer_meta, node, question, &it->call) == 0;
}

/* This node has done a step. False: the backups know of it; else `ready` is called when they do. */
static bool await_backups(struct renaming *it, void (*ready)(struct peer_meta_held *held, int error)) {
    struct peer_meta *peer_meta = peer_meta_of(it->mount->node->io);
    it->held = (struct peer_meta_held){.ticket = meta_take_ticket(), .owner = it->mount, .ready = ready};
    if (it->held.ticket == 0) return false;
    peer_meta_send_backups(peer_meta);
    return peer_meta_hold(peer_meta, &it->held);
}

static struct renaming *renaming_of(struct peer_meta_held *held) {
    return (struct renaming *)(void *)((char *)held - offsetof(struct renaming, held));
}

/* ── the old name goes ── */

static void finish(struct renaming *it) {
    struct amfs_fuse *mount = it->mount;
    const struct fuse_renaming *what = &it->what;
    bool replica;
    meta_uncache(mount->node->meta, what->ino, &replica);
    fuse_touch(mount, what->dir);
    if (what->to_dir != what->dir) fuse_touch(mount, what->to_dir);
    if (what->old != 0) {
        fuse_notify_others_entry(mount, what->to_dir, what->to_name, what->to_length);
        fuse_uncount(mount, it->unique, &(struct fuse_unnamed){what->to_dir, what->old, what->to_name, what->to_length});
    } else {
        amfs_fuse_reply_error(mount, it->unique, 0);
    }
    fuse_notify_others_entry(mount, what->dir, what->name, what->length);
    fuse_notify_others(mount, what->ino, false);
    free(it);
}

static void ended(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct renaming *it = (struct renaming *)(void *)call;
    if (answer->error == 0) finish(it);
    else leave(it, answer->error == PEER_META_LOST ? UNKNOWN : MADE);
}

static void old_gone(struct peer_meta_held *held, int error) {
    struct renaming *it = renaming_of(held);
    if (error == 0) finish(it);
    else leave(it, UNKNOWN);
}

static void remove_old(struct renaming *it) {
    const struct fuse_renaming *what = &it->what;
    struct node *node = it->mount->node;
    int32_t owner = it->old_owner;
    uint8_t value[PEER_META_RENAMED_BYTES];
    struct meta_attr attr;
    put_le(value, what->owner, 8);
    put_le(value + 8, what->ino, 8);
    struct peer_meta_question question = {.op = PEER_META_RENAMED,
                                          .ino = what->dir,
                                          .now = fuse_now_of(node),
                                          .name = what->name,
                                          .name_length = what->length,
                                          .value = value,
                                          .value_length = sizeof value};
    if (owner != node->id) {
        if (!ask(it, owner, &question, ended)) leave(it, MADE);
    } else if (meta_rename_end_for(node->meta, what->dir, what->name, what->length, what->owner, what->ino, question.now, node->id,
                                   &attr) != 0) {
        leave(it, MADE);
    } else if (!await_backups(it, old_gone)) {
        finish(it);
    }
}

/* ── the new name ── */

static void inserted(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct renaming *it = (struct renaming *)(void *)call;
    it->what.old = answer->attr.ino;
    if (answer->error == 0) remove_old(it);
    else leave(it, answer->error == PEER_META_LOST ? UNKNOWN : NOT_MADE);
}

static void new_made(struct peer_meta_held *held, int error) {
    struct renaming *it = renaming_of(held);
    if (error == 0) remove_old(it);
    else leave(it, UNKNOWN);
}

/* False: nothing was done. */
static bool insert(struct renaming *it) {
    struct fuse_renaming *what = &it->what;
    struct node *node = it->mount->node;
    int32_t owner = it->new_owner;
    uint8_t value[PEER_META_INSERT_BYTES];
    uint32_t type;
    bool replace = (what->flags & RENAME_NOREPLACE) == 0;
    put_le(value, what->ino, 8);
    put_le(value + 8, what->type, 4);
    struct peer_meta_question question = {.op = PEER_META_INSERT,
                                          .flags = replace ? PEER_META_HOLDS : 0,
                                          .ino = what->to_dir,
                                          .name = what->to_name,
                                          .name_length = what->to_length,
                                          .value = value,
                                          .value_length = sizeof value};
    if (owner != node->id) return ask(it, owner, &question, inserted);
    if (meta_insert_for(node->meta, what->to_dir, what->to_name, what->to_length, what->ino, what->type, replace, node->id, &what->old,
                        &type) != 0)
        return false;
    if (!await_backups(it, new_made)) remove_old(it);
    return true;
}

static void insert_or_leave(struct renaming *it) {
    if (!insert(it)) leave(it, NOT_MADE);
}

/* ── the beginning ── */

/* Nothing was done. */
static void give_way(struct renaming *it) {
    fuse_slow_again(it->mount, it->unique);
    free(it);
}

static void spared(struct peer_meta_call *call, const struct peer_meta_answer *answer);

/* The owner of the old name says that this node must forget it first. False: it is not being asked. */
static bool spare(struct renaming *it, int32_t third, uint64_t stamp, uint64_t ino) {
    uint8_t *to = it->value + PEER_META_RENAME_BYTES + it->spared * PEER_META_SPARED_BYTES, dir[PEER_META_CURSOR_BYTES];
    if (it->spared == META_SPARED_MAX) return false;
    it->spared++;
    put_le(to, (uint32_t)third, 4);
    put_le(to + 4, stamp, 8);
    put_le(dir, it->what.dir, sizeof dir);
    return ask(it, third,
               &(struct peer_meta_question){.op = PEER_META_SPARE,
                                            .flags = PEER_META_USED,
                                            .ino = ino,
                                            .name = it->what.name,
                                            .name_length = it->what.length,
                                            .value = dir,
                                            .value_length = sizeof dir},
               spared);
}

static void began(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct renaming *it = (struct renaming *)(void *)call;
    if (answer->error == 0 && (answer->flags & PEER_META_THIRD) != 0) {
        bool told = answer->count >= PEER_META_THIRD_BYTES;
        if (!told || !spare(it, answer->holder, get_le(answer->bytes, 8), get_le(answer->bytes + 8, 8))) give_way(it);
        return;
    }
    it->what.ino = answer->attr.ino;
    it->what.type = answer->attr.mode & S_IFMT;
    if (answer->error == 0) {
        insert_or_leave(it);
    } else if (answer->error == PEER_META_LOST) {
        leave(it, UNKNOWN);
    } else {
        give_way(it);
    }
}

static void begun_here(struct peer_meta_held *held, int error) {
    struct renaming *it = renaming_of(held);
    if (error == 0) insert_or_leave(it);
    else leave(it, NOT_MADE);
}

/* The old name, and its record, are here. 0: it has begun; else nothing was done. */
static int begin_here(struct renaming *it, struct meta_unlinked *how) {
    struct fuse_renaming *what = &it->what;
    struct meta *meta = it->mount->node->meta;
    struct meta_spares spares;
    struct meta_attr attr;
    peer_meta_read_spares(it->value + PEER_META_RENAME_BYTES, it->spared * PEER_META_SPARED_BYTES, &spares);
    int32_t id = it->mount->node->id;
    int error = meta_rename_begin_for(meta, what->dir, what->name, what->length, what->owner, id, &spares, &attr, how);
    if (error != 0) return error;
    what->ino = attr.ino;
    what->type = attr.mode & S_IFMT;
    return 0;
}

/* False: it is not being asked. */
static bool ask_to_begin(struct renaming *it) {
    return ask(it, it->old_owner,
               &(struct peer_meta_question){.op = PEER_META_RENAME,
                                            .ino = it->what.dir,
                                            .name = it->what.name,
                                            .name_length = it->what.length,
                                            .value = it->value,
                                            .value_length = PEER_META_RENAME_BYTES + it->spared * PEER_META_SPARED_BYTES},
               began);
}

static void spared(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct renaming *it = (struct renaming *)(void *)call;
    struct meta_unlinked how = {.third = -1};
    bool here = it->old_owner == it->mount->node->id;
    int error = answer->error != 0 ? META_BUSY : here ? begin_here(it, &how) : ask_to_begin(it) ? 0 : META_BUSY;
    if (error != 0 && (how.third < 0 || !spare(it, how.third, how.stamp, how.ino))) give_way(it);
    else if (error == 0 && here && !await_backups(it, begun_here)) insert_or_leave(it);
}

/* With the lock of what waits held: the request cannot be answered yet. False: the poll loop is to do what is left of it. */
static bool start(struct renaming *it, struct amfs_fuse_request *request) {
    const struct fuse_renaming *what = &it->what;
    struct node *node = it->mount->node;
    struct meta_unlinked how = {.third = -1};
    if (it->old_owner != node->id) return ask_to_begin(it);
    if (it->new_owner == node->id) /* nobody else's name: there is another reason why the shard has not done it at once */
        return meta_rename_asks(node->meta, what->dir, what->name, what->length, &how) && spare(it, how.third, how.stamp, how.ino);
    if (begin_here(it, &how) != 0) return how.third >= 0 && spare(it, how.third, how.stamp, how.ino);
    if (await_backups(it, begun_here) || insert(it)) return true;
    fuse_put_renaming(request, what);
    return false;
}

bool fuse_rename(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    static _Atomic uint64_t count;
    struct node *node = mount->node;
    struct meta_attr attr;
    uint64_t dir = request->ino, to_dir = request->other;
    size_t length = request->name_length, to_length = request->value_length;
    if (request->attempt != 0 || (request->flags & ~(uint32_t)RENAME_NOREPLACE) != 0 || request->again > 0) return false;
    if (meta_dir_find(node->meta, dir, request->name, length, &attr) == 0) return false;
    if (meta_dir_find(node->meta, to_dir, request->value, to_length, &attr) == 0) return false;
    struct renaming *it = malloc(sizeof *it + length + to_length);
    if (it == NULL) return false;
    uint64_t owner = ((uint64_t)node->id + 1) << META_INO_SHIFT | META_LOCK_ENDS | (atomic_fetch_add(&count, 1) & (META_LOCK_ENDS - 1));
    *it = (struct renaming){.mount = mount,
                            .unique = request->unique,
                            .what = {.dir = dir,
                                     .to_dir = to_dir,
                                     .owner = owner,
                                     .flags = request->flags,
                                     .name = it->names,
                                     .to_name = it->names + length,
                                     .length = length,
                                     .to_length = to_length}};
    memcpy(it->names, request->name, length);
    memcpy(it->names + length, request->value, to_length);
    it->old_owner = owner_of(node, dir, request->name, length);
    it->new_owner = owner_of(node, to_dir, request->value, to_length);
    put_le(it->value, owner, PEER_META_RENAME_BYTES);
    if (it->old_owner >= 0 && it->new_owner >= 0 && start(it, request)) return true;
    free(it);
    return false;
}
