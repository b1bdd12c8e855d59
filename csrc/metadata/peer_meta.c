/* Answers of this node to others that ask its shard directly, and the life of all that. The decisions are the shard's; the caches of this node's mounts are
 * told of the rest. Stands on peer_meta_backup.c, that on peer_meta_ask.c, that on peer_meta_wire.c. */
#include "peer_meta_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ── one question ── */

struct reply {
    int error;
    unsigned flags;
    struct meta_attr attr;
    int32_t holder;
    uint8_t *bytes; /* where they go */
    size_t count;
    bool third; /* no record, but whom to ask */
};

/* The asker may bring the content of a small file by itself: say from where. */
static void say_small(struct peer_meta *peer_meta, int32_t node, struct reply *reply) {
    struct meta_small small;
    if (!S_ISREG(reply->attr.mode) || reply->attr.size == 0 || reply->attr.size > META_SMALL_MAX) return;
    if (!meta_small_for(peer_meta->meta, reply->attr.ino, node, &small)) return;
    reply->flags |= PEER_META_SMALL;
    reply->attr = small.attr;
    reply->holder = small.holder;
}

static int lookup(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    struct meta_attr dir;
    uint64_t ino, parent;
    uint32_t type;
    int error = meta_lookup(peer_meta->meta, q->ino, q->name, q->name_length, node, &ino, &type, &reply->attr);
    if (error == ENOENT && meta_dir_get(peer_meta->meta, q->ino, &dir, &parent) != 0)
        return META_BUSY; /* we may not have heard of the directory yet */
    if (error == 0 && reply->attr.mode == 0) { /* the record is on another node: the asker asks that for it */
        if (S_ISDIR(type)) return META_NOT_MINE;
        reply->attr = (struct meta_attr){.ino = ino, .mode = type, .writer = -1, .rank = -1};
        reply->flags |= PEER_META_ELSEWHERE;
        return 0;
    }
    if (error == 0) say_small(peer_meta, node, reply);
    return error;
}

static int getattr(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    bool holds = false;
    int error = meta_getattr_for(peer_meta->meta, q->ino, node, &reply->attr, &holds);
    if (error == 0 && q->op == PEER_META_OPEN && !holds && S_ISREG(reply->attr.mode) && reply->attr.size == 0) {
        error = meta_hold_for(peer_meta->meta, q->ino, node, &reply->attr);
        holds = error == 0;
    }
    if (holds) reply->flags |= PEER_META_HOLDS;
    else if (error == 0) say_small(peer_meta, node, reply);
    return error == ENOENT ? META_BUSY : error;
}

static int create(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    if (q->attr == NULL || (q->attr->writer != -1 && q->attr->writer != node) || q->attr->rank != -1) return EINVAL;
    char target[PEER_META_QUESTION_MAX + 1];
    bool link = S_ISLNK(q->attr->mode);
    if (link) {
        if (memchr(q->value, '\0', q->value_length) != NULL) return EINVAL;
        memcpy(target, q->value, q->value_length);
        target[q->value_length] = '\0';
    }
    reply->attr = *q->attr;
    int error = meta_create(peer_meta->meta, q->ino, q->name, q->name_length, q->now, node, link ? target : NULL, false, &reply->attr);
    return error == ENOENT || error == ENOTDIR ? META_BUSY : error; /* we may not have heard of the directory yet */
}

/* This node knows which of its mounts has heard of a file, and of nothing else. */
static bool may_know(const struct peer_meta *peer_meta, const struct meta_attr *attr) {
    return peer_meta->has_kernel && (!S_ISREG(attr->mode) || peer_meta->kernel.knows(peer_meta->kernel.context, attr->ino));
}

/* Do kernels open files here without a word? Then a name of a file may be its last while it is in use. */
static bool opens_unseen(const struct peer_meta *peer_meta) {
    return peer_meta->has_kernel && peer_meta->kernel.unseen(peer_meta->kernel.context);
}

static void say_unlinked(struct peer_meta *peer_meta, const struct meta_unlinked *how, struct reply *reply) {
    if (how->gone && how->here) fsio_part_delete(peer_meta->io, reply->attr.ino);
    if (how->gone && how->there) reply->flags |= PEER_META_GONE;
    if (how->gone) reply->flags |= PEER_META_HOLDS;
    if (how->used) reply->flags |= PEER_META_USED;
}

/* Nodes that have forgotten it, as the asker says. False: it says something else. */
static bool read_spares(const struct peer_meta_question *q, size_t before, struct meta_spares *spares) {
    return q->value_length >= before && peer_meta_read_spares((const uint8_t *)q->value + before, q->value_length - before, spares);
}

/* Nothing is done yet: the asker is to ask a third node. */
static int say_third(int error, const struct meta_unlinked *how, struct reply *reply) {
    if (error != META_BUSY || how->third < 0) return error;
    reply->flags = PEER_META_THIRD;
    reply->holder = how->third;
    put_le(reply->bytes + HOLDER_BYTES, how->stamp, 8);
    put_le(reply->bytes + HOLDER_BYTES + 8, how->ino, 8);
    reply->count = PEER_META_THIRD_BYTES;
    reply->third = true;
    return 0;
}

static int unlink_name(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    struct meta_unlinked how;
    struct meta_spares spares;
    if (opens_unseen(peer_meta)) return META_BUSY;
    if (!read_spares(q, 0, &spares)) return EINVAL;
    int error = meta_unlink_for(peer_meta->meta, q->ino, q->name, q->name_length, q->now, node, (q->flags & PEER_META_USED) != 0, &spares,
                                &reply->attr, &how);
    if (error == META_BUSY) return say_third(error, &how, reply);
    if (error == META_NOT_MINE) {
        reply->attr = (struct meta_attr){.writer = -1, .rank = -1};
        error = meta_unname_for(peer_meta->meta, q->ino, q->name, q->name_length, node, &reply->attr.ino, &reply->attr.mode);
        if (error == 0) reply->flags |= PEER_META_ELSEWHERE;
    }
    if (error != 0) return error;
    if (may_know(peer_meta, &reply->attr))
        peer_meta->kernel.forget(peer_meta->kernel.context, reply->attr.ino, q->ino, q->name, q->name_length);
    if ((reply->flags & PEER_META_ELSEWHERE) == 0) say_unlinked(peer_meta, &how, reply);
    return 0;
}

static int uncount(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    struct meta_unlinked how;
    struct meta_spares spares;
    if (opens_unseen(peer_meta)) return META_BUSY;
    if (!read_spares(q, 0, &spares)) return EINVAL;
    int error = meta_uncount_for(peer_meta->meta, q->ino, q->now, node, (q->flags & PEER_META_USED) != 0, &spares, &reply->attr, &how);
    if (error != 0) return say_third(error, &how, reply);
    if (may_know(peer_meta, &reply->attr)) peer_meta->kernel.forget(peer_meta->kernel.context, q->ino, 0, NULL, 0);
    say_unlinked(peer_meta, &how, reply);
    return 0;
}

/* This node knows nothing of the file any more, and asks before it opens it again. Does nobody here use it, if that matters? A user of whom the poll loop alone knows has claimed it. */
static int spare(struct peer_meta *peer_meta, const struct peer_meta_question *q) {
    bool replica;
    if (q->value_length != (q->name_length > 0 ? PEER_META_CURSOR_BYTES : 0)) return EINVAL;
    if ((q->flags & PEER_META_GONE) != 0) {
        fsio_part_delete(peer_meta->io, q->ino);
        return 0;
    }
    uint64_t dir = q->name_length > 0 ? get_le(q->value, PEER_META_CURSOR_BYTES) : 0;
    bool may_use = (q->flags & PEER_META_USED) != 0;
    if (!may_use && opens_unseen(peer_meta)) return META_BUSY;
    meta_uncache(peer_meta->meta, q->ino, &replica);
    meta_stale(peer_meta->meta, q->ino);
    if (dir != 0) meta_stale(peer_meta->meta, meta_name_mark(dir, q->name, q->name_length));
    if (may_know(peer_meta, &(struct meta_attr){.ino = q->ino, .mode = S_IFREG}))
        peer_meta->kernel.forget(peer_meta->kernel.context, q->ino, dir, dir != 0 ? q->name : NULL, q->name_length);
    if (may_use) return 0;
    bool used = peer_meta->has_kernel && peer_meta->kernel.uses(peer_meta->kernel.context, q->ino);
    return used || opens_is_used(meta_opens(peer_meta->meta), q->ino) ? META_BUSY : 0;
}

/* ── renaming ── */

static int rename_begin(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    struct meta_spares spares;
    struct meta_unlinked how;
    if (!read_spares(q, PEER_META_RENAME_BYTES, &spares)) return EINVAL;
    uint64_t owner = get_le(q->value, 8);
    if (owner >> META_INO_SHIFT != (uint64_t)node + 1) return EINVAL; /* else the lock would stay when its owner dies */
    int error = meta_rename_begin_for(peer_meta->meta, q->ino, q->name, q->name_length, owner, node, &spares, &reply->attr, &how);
    return say_third(error, &how, reply);
}

static int insert(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    const uint8_t *value = q->value;
    bool replace = (q->flags & PEER_META_HOLDS) != 0;
    uint64_t old;
    uint32_t type;
    if (q->value_length != PEER_META_INSERT_BYTES) return EINVAL;
    if (replace && opens_unseen(peer_meta)) return META_BUSY;
    int error = meta_insert_for(peer_meta->meta, q->ino, q->name, q->name_length, get_le(value, 8), (uint32_t)get_le(value + 8, 4), replace,
                                node, &old, &type);
    if (error != 0) return error == ENOENT || error == ENOTDIR ? META_BUSY : error; /* we may not have heard of the directory yet */
    reply->attr = (struct meta_attr){.ino = old, .mode = type, .writer = -1, .rank = -1};
    if (old != 0 && may_know(peer_meta, &reply->attr))
        peer_meta->kernel.forget(peer_meta->kernel.context, old, q->ino, q->name, q->name_length);
    return 0;
}

static int rename_end(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    const uint8_t *value = q->value;
    if (q->value_length != PEER_META_RENAMED_BYTES) return EINVAL;
    uint64_t ino = get_le(value + 8, 8);
    int error = meta_rename_end_for(peer_meta->meta, q->ino, q->name, q->name_length, get_le(value, 8), ino, q->now, node, &reply->attr);
    if (error == 0 && may_know(peer_meta, &reply->attr))
        peer_meta->kernel.forget(peer_meta->kernel.context, ino, q->ino, q->name, q->name_length);
    return error;
}

static int closed(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    int error = meta_closed_for(peer_meta->meta, q->ino, node, q->attr, (q->flags & PEER_META_HOLDS) != 0, (q->flags & PEER_META_USED) != 0,
                                &reply->attr);
    if (error == 0 && q->attr != NULL && peer_meta->has_kernel && peer_meta->kernel.knows(peer_meta->kernel.context, q->ino))
        peer_meta->kernel.forget(peer_meta->kernel.context, q->ino, 0, NULL, 0);
    return error;
}

/* For meta_setattr_for. */
struct stamping {
    struct fsio *io;
    const struct peer_meta_question *q;
    unsigned mask;
};

static int stamp(void *context) {
    const struct stamping *it = context;
    return fsio_part_stamp(it->io, it->q->ino, it->mask & META_SET_ATIME ? &it->q->attr->atime : NULL,
                           it->mask & META_SET_MTIME ? &it->q->attr->mtime : NULL);
}

static int setattr(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    if (q->attr == NULL || q->value_length != PEER_META_MASK_BYTES) return EINVAL;
    unsigned mask = (unsigned)get_le(q->value, PEER_META_MASK_BYTES);
    struct stamping stamping = {peer_meta->io, q, mask};
    int error = meta_setattr_for(peer_meta->meta, q->ino, mask, q->attr, q->now, node, stamp, &stamping, &reply->attr);
    if (error == 0 && may_know(peer_meta, &reply->attr)) peer_meta->kernel.forget(peer_meta->kernel.context, q->ino, 0, NULL, 0);
    return error;
}

static int touch(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q) {
    int error = meta_dir_touch_for(peer_meta->meta, q->ino, q->now, node);
    if (error == 0 && peer_meta->has_kernel) peer_meta->kernel.touched(peer_meta->kernel.context, q->ino);
    return error;
}

static int get_xattr(struct peer_meta *peer_meta, const struct peer_meta_question *q, struct reply *reply) {
    char name[META_NAME_MAX + 1];
    memcpy(name, q->name, q->name_length);
    name[q->name_length] = '\0';
    int error = meta_get_xattr(peer_meta->meta, q->ino, name, reply->bytes, PEER_META_BYTES_MAX, &reply->count);
    return error == ERANGE || error == ENOENT ? META_BUSY : error;
}

static int content(struct peer_meta *peer_meta, const struct peer_meta_question *q, struct reply *reply) {
    if (q->attr == NULL || q->attr->size == 0 || q->attr->size > META_SMALL_MAX) return EINVAL;
    reply->count = (size_t)q->attr->size;
    return fsio_small_get(peer_meta->io, q->ino, reply->bytes, reply->count) == 0 ? 0 : META_BUSY;
}

/* For meta_secure_for. */
struct keeping {
    struct fsio *io;
    const struct peer_meta_question *q;
};

static int keep(void *context) {
    const struct keeping *keeping = context;
    const struct peer_meta_question *q = keeping->q;
    uint8_t there[META_SMALL_MAX];
    int error = fsio_small_put(keeping->io, q->ino, q->value, q->value_length, q->attr->atime, q->attr->mtime);
    if (error == EEXIST && fsio_small_get(keeping->io, q->ino, there, q->value_length) == 0 &&
        memcmp(there, q->value, q->value_length) == 0)
        error = 0;
    return error;
}

static int secure(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q) {
    struct keeping keeping = {peer_meta->io, q};
    if (q->attr == NULL || q->attr->size != q->value_length || q->value_length > META_SMALL_MAX) return EINVAL;
    if ((q->flags & PEER_META_HOLDS) == 0) return meta_secure_for(peer_meta->meta, q->ino, node, q->attr, keep, &keeping);
    return q->value_length > 0 && keep(&keeping) == 0 ? 0 : META_BUSY;
}

static int list(struct peer_meta *peer_meta, const struct peer_meta_question *q, struct reply *reply) {
    bool more;
    if (q->value_length != PEER_META_CURSOR_BYTES) return EINVAL;
    uint64_t cursor = get_le(q->value, PEER_META_CURSOR_BYTES), version = (uint64_t)q->now;
    int error = meta_list_for(peer_meta->meta, q->ino, version, cursor, reply->bytes, PEER_META_BYTES_MAX, &reply->count, &more);
    if (error == 0 && more) reply->flags |= PEER_META_MORE;
    return error;
}

static bool changes(enum peer_meta_op op) {
    switch (op) {
    case PEER_META_CREATE:
    case PEER_META_UNLINK:
    case PEER_META_UNCOUNT:
    case PEER_META_CLOSED:
    case PEER_META_SECURE:
    case PEER_META_SPARE:
    case PEER_META_RENAME:
    case PEER_META_INSERT:
    case PEER_META_RENAMED:
    case PEER_META_TOUCH:
    case PEER_META_SETATTR:
    case PEER_META_SPREAD:
    case PEER_META_RESERVE:
    case PEER_META_STRIKE: return true;
    default: return false;
    }
}

static int act(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, struct reply *reply) {
    if (changes(q->op) && atomic_load_explicit(&peer_meta->shy, memory_order_relaxed)) return META_BUSY;
    switch (q->op) {
    case PEER_META_LOOKUP: return lookup(peer_meta, node, q, reply);
    case PEER_META_GETATTR:
    case PEER_META_OPEN: return getattr(peer_meta, node, q, reply);
    case PEER_META_CREATE: return create(peer_meta, node, q, reply);
    case PEER_META_UNLINK: return unlink_name(peer_meta, node, q, reply);
    case PEER_META_UNCOUNT: return uncount(peer_meta, node, q, reply);
    case PEER_META_CLOSED: return closed(peer_meta, node, q, reply);
    case PEER_META_SECURE: return secure(peer_meta, node, q);
    case PEER_META_SPARE: return spare(peer_meta, q);
    case PEER_META_RENAME: return rename_begin(peer_meta, node, q, reply);
    case PEER_META_INSERT: return insert(peer_meta, node, q, reply);
    case PEER_META_RENAMED: return rename_end(peer_meta, node, q, reply);
    case PEER_META_TOUCH: return touch(peer_meta, node, q);
    case PEER_META_SETATTR: return setattr(peer_meta, node, q, reply);
    case PEER_META_READLINK: return meta_readlink(peer_meta->meta, q->ino, (char *)reply->bytes, PEER_META_BYTES_MAX, &reply->count);
    case PEER_META_GET_XATTR: return get_xattr(peer_meta, q, reply);
    case PEER_META_CONTENT: return content(peer_meta, q, reply);
    case PEER_META_LIST: return list(peer_meta, q, reply);
    case PEER_META_HOLD: return q->attr == NULL ? EINVAL : meta_hold_small_for(peer_meta->meta, q->ino, node, q->attr);
    case PEER_META_SPREAD: return peer_meta_take_spread(peer_meta, q, reply->bytes, &reply->count);
    case PEER_META_RESERVE: return peer_meta_reserve(peer_meta, node, q, reply->bytes, &reply->count);
    case PEER_META_STRIKE: return peer_meta_strike(peer_meta, node, q);
    case PEER_META_BACKUP: return peer_meta_take_backup(peer_meta, node, q, reply->bytes, &reply->count);
    default: return EINVAL;
    }
}

size_t peer_meta_serve(struct peer_meta *peer_meta, int32_t node, const uint8_t *question, size_t size, uint8_t *to) {
    struct peer_meta_question q;
    struct meta_attr attr;
    uint32_t serial;
    if (!peer_meta_read_question(question, size, &q, &attr, &serial)) return 0;
    bool record = !peer_meta_bytes_come(q.op) && q.op != PEER_META_TOUCH && q.op != PEER_META_HOLD && q.op != PEER_META_STRIKE &&
                  q.op != PEER_META_SECURE && q.op != PEER_META_SPARE;
    struct reply reply = {.bytes = to + ANSWER_HEAD};
    if (q.heard != 0) meta_backup_heard(peer_meta->meta, node, q.heard);
    if (q.op != PEER_META_BACKUP) pthread_rwlock_rdlock(&peer_meta->kernel_lock); /* a batch may wait for a table */
    reply.error = act(peer_meta, node, &q, &reply);
    if (q.op != PEER_META_BACKUP) pthread_rwlock_unlock(&peer_meta->kernel_lock);
    atomic_fetch_add_explicit(&peer_meta->served, 1, memory_order_relaxed);
    if (reply.error != 0) reply.count = 0;
    else if (record && !reply.third) reply.flags |= PEER_META_HAS_ATTR;
    if ((reply.flags & PEER_META_HAS_ATTR) != 0) {
        peer_meta_put_record(to + ANSWER_HEAD, &reply.attr);
        reply.count = ATTR_BYTES;
    }
    if (reply.error == 0 && (reply.flags & PEER_META_SMALL) != 0) {
        put_le(to + ANSWER_HEAD + ((reply.flags & PEER_META_HAS_ATTR) != 0 ? ATTR_BYTES : 0), (uint32_t)reply.holder, HOLDER_BYTES);
        reply.count += HOLDER_BYTES;
    }
    put_le(to, ANSWER_HEAD + reply.count, 4);
    put_le(to + 4, serial, 4);
    put_le(to + 8, (uint32_t)reply.error, 4);
    put_le(to + 12, reply.error == 0 ? reply.flags : 0, 4);
    return ANSWER_HEAD + reply.count;
}

/* ── a connection on which something has come ── */

/* A message on a connection of ours: an answer, or a batch before answers. False: it is neither, or a batch that is not taken. */
static bool take_answer(struct peer_meta *peer_meta, int32_t node, struct peer_meta_link *link, int fd, const uint8_t *message,
                        size_t size) {
    struct peer_meta_answer answer;
    uint32_t serial;
    if (!peer_meta_read_answer(message, size, &serial, &answer)) return false;
    if ((answer.flags & PEER_META_BATCH) == 0) peer_meta_answer_came(link, serial, &answer);
    else if (peer_meta_batch_came(peer_meta, node, fd, &answer)) peer_meta_link_heard(link);
    else return false;
    return true;
}

/* One message: an answer on a connection of ours, a question on another's. */
static bool take(struct peer_meta *peer_meta, int32_t node, struct peer_meta_link *link, int fd, const uint8_t *message, size_t size,
                 uint8_t *out, size_t *filled) {
    if (link != NULL) return take_answer(peer_meta, node, link, fd, message, size);
    size_t answer = peer_meta_serve(peer_meta, node, message, size, out + *filled);
    *filled += answer;
    return answer > 0;
}

/* Everything that has come, in its order; answers leave together. `buffer`: DATA_CHUNK bytes. */
static bool attend(void *context, int32_t node, void *link, int fd, char *buffer) {
    struct peer_meta *peer_meta = context;
    uint8_t *in = (uint8_t *)buffer, *out = in + IN_BYTES + BATCH_ROOM;
    size_t most = link != NULL ? PEER_META_ANSWER_MAX : PEER_META_BATCH_MAX, room = DATA_CHUNK - IN_BYTES - BATCH_ROOM;
    ssize_t got = recv(fd, in, IN_BYTES - most, MSG_DONTWAIT); /* room for the rest of a message that has come in part */
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    size_t have = (size_t)got, at = 0, filled = 0;
    while (at < have) {
        if (have - at < 4) { /* the rest of a message is on its way */
            if (data_receive(fd, in + have, 4 - (have - at)) != 0) return false;
            have = at + 4;
        }
        size_t size = (size_t)get_le(in + at, 4);
        if (size < ANSWER_HEAD || size > most) return false;
        if (have - at < size) {
            if (data_receive(fd, in + have, size - (have - at)) != 0) return false;
            have = at + size;
        }
        if (!take(peer_meta, node, link, fd, in + at, size, out, &filled)) return false;
        at += size;
        if (filled > 0 && (room - filled < PEER_META_ANSWER_MAX || at == have)) {
            size_t before;
            if (!peer_meta_before_answers(peer_meta, node, out, &before)) return false;
            if (data_send(fd, out - before, before + filled, NULL, 0, false) != 0) return false;
            filled = 0;
        }
    }
    return true;
}

/* ── life ── */

static void ended(void *context, void *link) {
    (void)context;
    peer_meta_link_ended(link);
}

static void changed(void *context, uint64_t ino) {
    struct peer_meta *peer_meta = context;
    pthread_rwlock_rdlock(&peer_meta->kernel_lock);
    if (peer_meta->has_kernel) peer_meta->kernel.written(peer_meta->kernel.context, ino);
    pthread_rwlock_unlock(&peer_meta->kernel_lock);
}

static void tick(void *context) {
    peer_meta_links_tick(context);
    peer_meta_backups_changed(context);
    peer_meta_held_tick(context);
}

static void let_go(void *context) {
    struct peer_meta *peer_meta = context;
    peer_meta_links_free(peer_meta);
    pthread_mutex_destroy(&peer_meta->lock);
    pthread_mutex_destroy(&peer_meta->held_lock);
    pthread_cond_destroy(&peer_meta->settled);
    pthread_rwlock_destroy(&peer_meta->kernel_lock);
    free(peer_meta);
}

struct peer_meta *peer_meta_new(struct meta *meta, struct fsio *io) {
    struct peer_meta *peer_meta = data_rpc_context(io) == NULL ? calloc(1, sizeof *peer_meta) : NULL;
    if (peer_meta == NULL) return NULL;
    peer_meta->meta = meta;
    peer_meta->io = io;
    peer_meta->node = io->node;
    pthread_mutex_init(&peer_meta->lock, NULL);
    pthread_mutex_init(&peer_meta->held_lock, NULL);
    pthread_cond_init(&peer_meta->settled, NULL);
    peer_meta->held_tail = &peer_meta->held;
    peer_meta->connected = peer_meta_send_backups;
    fsio_fair_lock(&peer_meta->kernel_lock);
    data_set_rpc_handler(io, &(struct data_rpc_handler){peer_meta, attend, ended, changed, tick, let_go});
    return peer_meta;
}

struct peer_meta *peer_meta_of(struct fsio *io) { return data_rpc_context(io); }

void peer_meta_set_kernel(struct peer_meta *peer_meta, const struct peer_meta_kernel *kernel) {
    pthread_rwlock_wrlock(&peer_meta->kernel_lock);
    peer_meta->has_kernel = kernel != NULL;
    if (kernel != NULL) peer_meta->kernel = *kernel;
    pthread_rwlock_unlock(&peer_meta->kernel_lock);
}

void peer_meta_set_shy(struct peer_meta *peer_meta, bool shy) { atomic_store(&peer_meta->shy, shy); }

uint64_t peer_meta_asked(const struct peer_meta *peer_meta) { return atomic_load(&peer_meta->asked); }

uint64_t peer_meta_served(const struct peer_meta *peer_meta) { return atomic_load(&peer_meta->served); }
