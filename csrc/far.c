/* What this node answers to others who ask its shard directly. The decisions are the shard's; here they get their bytes, and the caches of this node's
 * mounts are told what the shard cannot know of. */
#include "far_wire.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ── bytes ── */

size_t far_write_question(const struct far_question *q, uint32_t serial, uint8_t *to) {
    size_t record = q->attr != NULL ? ATTR_BYTES : 0, size = QUESTION_HEAD + record + q->name_length + q->value_length;
    if (size > FAR_QUESTION_MAX || q->name_length > META_NAME_MAX) return 0;
    put_le(to, size, 4);
    put_le(to + 4, serial, 4);
    put_le(to + 8, (uint64_t)q->op, 1);
    put_le(to + 9, q->flags | (record > 0 ? FAR_HAS_ATTR : 0), 1);
    put_le(to + 10, q->name_length, 2);
    put_le(to + 12, q->value_length, 4);
    put_le(to + 16, q->ino, 8);
    put_le(to + 24, (uint64_t)q->now, 8);
    to += QUESTION_HEAD;
    if (record > 0) put_record(to, q->attr);
    if (q->name_length > 0) memcpy(to + record, q->name, q->name_length);
    if (q->value_length > 0) memcpy(to + record + q->name_length, q->value, q->value_length);
    return size;
}

/* The parts of a question point into its bytes. False: it is none. */
static bool read_question(const uint8_t *bytes, size_t size, struct far_question *q, struct meta_attr *attr, uint32_t *serial) {
    if (size < QUESTION_HEAD || size > FAR_QUESTION_MAX || get_le(bytes, 4) != size) return false;
    *serial = (uint32_t)get_le(bytes + 4, 4);
    *q = (struct far_question){
        .op = (enum far_op)bytes[8],
        .flags = bytes[9],
        .name_length = (size_t)get_le(bytes + 10, 2),
        .value_length = (size_t)get_le(bytes + 12, 4),
        .ino = get_le(bytes + 16, 8),
        .now = (int64_t)get_le(bytes + 24, 8),
    };
    size_t record = (q->flags & FAR_HAS_ATTR) != 0 ? ATTR_BYTES : 0;
    if (q->op < FAR_LOOKUP || q->op >= FAR_OPS || q->ino == 0 || q->name_length > META_NAME_MAX) return false;
    if (size - QUESTION_HEAD < record || size - QUESTION_HEAD - record < q->name_length) return false;
    if (size - QUESTION_HEAD - record - q->name_length != q->value_length) return false;
    const uint8_t *rest = bytes + QUESTION_HEAD;
    if (record > 0) {
        get_record(rest, attr);
        q->attr = attr;
    }
    q->name = (const char *)rest + record;
    q->value = rest + record + q->name_length;
    return true;
}

bool far_read_answer(const uint8_t *bytes, size_t size, uint32_t *serial, struct far_answer *answer) {
    if (size < ANSWER_HEAD || size > FAR_ANSWER_MAX || get_le(bytes, 4) != size || get_le(bytes + 12, 4) >> 8 != 0) return false;
    *serial = (uint32_t)get_le(bytes + 4, 4);
    *answer = (struct far_answer){.error = (int)(int32_t)(uint32_t)get_le(bytes + 8, 4), .flags = bytes[12]};
    size_t record = (answer->flags & FAR_HAS_ATTR) != 0 ? ATTR_BYTES : 0;
    if (size - ANSWER_HEAD < record || answer->error < 0) return false;
    if (record > 0) get_record(bytes + ANSWER_HEAD, &answer->attr);
    answer->bytes = bytes + ANSWER_HEAD + record;
    answer->count = size - ANSWER_HEAD - record;
    return true;
}

/* ── one question ── */

struct reply {
    int error;
    unsigned flags;
    struct meta_attr attr;
    uint8_t *bytes; /* where they go */
    size_t count;
};

static int lookup(struct far *far, int32_t node, const struct far_question *q, struct reply *reply) {
    struct meta_attr dir;
    uint64_t ino, parent;
    uint32_t type;
    int error = meta_lookup(far->meta, q->ino, q->name, q->name_length, node, &ino, &type, &reply->attr);
    if (error == ENOENT && meta_dir_get(far->meta, q->ino, &dir, &parent) != 0) return META_BUSY; /* we may not have heard of the directory yet */
    if (error == 0 && reply->attr.mode == 0) return META_NOT_MINE;
    return error;
}

static int getattr(struct far *far, int32_t node, const struct far_question *q, struct reply *reply) {
    bool holds = false;
    int error = meta_getattr_for(far->meta, q->ino, node, &reply->attr, &holds);
    if (error == 0 && q->op == FAR_OPEN && !holds && S_ISREG(reply->attr.mode) && reply->attr.size == 0) {
        error = meta_hold_for(far->meta, q->ino, node, &reply->attr);
        holds = error == 0;
    }
    if (holds) reply->flags |= FAR_HOLDS;
    return error == ENOENT ? META_BUSY : error;
}

static int create(struct far *far, int32_t node, const struct far_question *q, struct reply *reply) {
    if (q->attr == NULL || (q->attr->writer != -1 && q->attr->writer != node) || q->attr->rank != -1) return EINVAL;
    char target[FAR_QUESTION_MAX + 1];
    bool link = S_ISLNK(q->attr->mode);
    if (link) {
        if (memchr(q->value, '\0', q->value_length) != NULL) return EINVAL;
        memcpy(target, q->value, q->value_length);
        target[q->value_length] = '\0';
    }
    reply->attr = *q->attr;
    int error = meta_create(far->meta, q->ino, q->name, q->name_length, q->now, node, link ? target : NULL, &reply->attr);
    return error == ENOENT || error == ENOTDIR ? META_BUSY : error; /* we may not have heard of the directory yet */
}

static int unlink_name(struct far *far, int32_t node, const struct far_question *q, struct reply *reply) {
    struct meta_unlinked how;
    if (far->has_kernel && far->kernel.unseen(far->kernel.context)) return META_BUSY;
    int error = meta_unlink_for(far->meta, q->ino, q->name, q->name_length, q->now, node, (q->flags & FAR_USED) != 0, &reply->attr, &how);
    if (error != 0) return error;
    /* It knows of files who of its mounts has heard of them, of nothing else. */
    if (far->has_kernel && (!S_ISREG(reply->attr.mode) || far->kernel.knows(far->kernel.context, reply->attr.ino)))
        far->kernel.forget(far->kernel.context, reply->attr.ino, q->ino, q->name, q->name_length);
    if (how.gone && how.here) fsio_part_delete(far->io, reply->attr.ino);
    if (how.gone && how.there) reply->flags |= FAR_GONE;
    if (how.used) reply->flags |= FAR_USED;
    return 0;
}

static int closed(struct far *far, int32_t node, const struct far_question *q, struct reply *reply) {
    int error = meta_closed_for(far->meta, q->ino, node, q->attr, (q->flags & FAR_USED) != 0, &reply->attr);
    if (error == 0 && q->attr != NULL && far->has_kernel && far->kernel.knows(far->kernel.context, q->ino))
        far->kernel.forget(far->kernel.context, q->ino, 0, NULL, 0);
    return error;
}

static int touch(struct far *far, int32_t node, const struct far_question *q) {
    int error = meta_dir_touch_for(far->meta, q->ino, q->now, node);
    if (error == 0 && far->has_kernel) far->kernel.touched(far->kernel.context, q->ino);
    return error;
}

static int get_xattr(struct far *far, const struct far_question *q, struct reply *reply) {
    char name[META_NAME_MAX + 1];
    memcpy(name, q->name, q->name_length);
    name[q->name_length] = '\0';
    int error = meta_get_xattr(far->meta, q->ino, name, reply->bytes, FAR_BYTES_MAX, &reply->count);
    return error == ERANGE || error == ENOENT ? META_BUSY : error;
}

static int act(struct far *far, int32_t node, const struct far_question *q, struct reply *reply) {
    bool changes = q->op == FAR_CREATE || q->op == FAR_UNLINK || q->op == FAR_CLOSED || q->op == FAR_TOUCH;
    if (changes && atomic_load_explicit(&far->shy, memory_order_relaxed)) return META_BUSY;
    switch (q->op) {
    case FAR_LOOKUP: return lookup(far, node, q, reply);
    case FAR_GETATTR:
    case FAR_OPEN: return getattr(far, node, q, reply);
    case FAR_CREATE: return create(far, node, q, reply);
    case FAR_UNLINK: return unlink_name(far, node, q, reply);
    case FAR_CLOSED: return closed(far, node, q, reply);
    case FAR_TOUCH: return touch(far, node, q);
    case FAR_READLINK: return meta_readlink(far->meta, q->ino, (char *)reply->bytes, FAR_BYTES_MAX, &reply->count);
    case FAR_GET_XATTR: return get_xattr(far, q, reply);
    default: return EINVAL;
    }
}

size_t far_serve(struct far *far, int32_t node, const uint8_t *question, size_t size, uint8_t *to) {
    struct far_question q;
    struct meta_attr attr;
    uint32_t serial;
    if (!read_question(question, size, &q, &attr, &serial)) return 0;
    bool record = q.op != FAR_TOUCH && q.op != FAR_READLINK && q.op != FAR_GET_XATTR;
    struct reply reply = {.bytes = to + ANSWER_HEAD};
    pthread_rwlock_rdlock(&far->kernel_lock);
    reply.error = act(far, node, &q, &reply);
    pthread_rwlock_unlock(&far->kernel_lock);
    atomic_fetch_add_explicit(&far->served, 1, memory_order_relaxed);
    if (reply.error != 0) reply.count = 0;
    else if (record) reply.flags |= FAR_HAS_ATTR;
    if ((reply.flags & FAR_HAS_ATTR) != 0) {
        put_record(to + ANSWER_HEAD, &reply.attr);
        reply.count = ATTR_BYTES;
    }
    put_le(to, ANSWER_HEAD + reply.count, 4);
    put_le(to + 4, serial, 4);
    put_le(to + 8, (uint32_t)reply.error, 4);
    put_le(to + 12, reply.error == 0 ? reply.flags : 0, 4);
    return ANSWER_HEAD + reply.count;
}

/* ── a connection on which something has come ── */

/* One message: an answer on a connection of ours, a question on another's. */
static bool take(struct far *far, int32_t node, struct far_link *link, const uint8_t *message, size_t size, uint8_t *out, size_t *filled) {
    if (link != NULL) return far_answers_came(link, message, size);
    size_t answer = far_serve(far, node, message, size, out + *filled);
    *filled += answer;
    return answer > 0;
}

/* Everything that has come, in its order; answers leave together. `buffer`: FSIO_CHUNK bytes. */
static bool attend(void *context, int32_t node, void *link, int fd, char *buffer) {
    struct far *far = context;
    uint8_t *in = (uint8_t *)buffer, *out = in + IN_BYTES;
    size_t most = link != NULL ? FAR_ANSWER_MAX : FAR_QUESTION_MAX, room = FSIO_CHUNK - IN_BYTES;
    ssize_t got = recv(fd, in, IN_BYTES - most, MSG_DONTWAIT); /* room for the rest of a message that has come in part */
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    size_t have = (size_t)got, at = 0, filled = 0;
    while (at < have) {
        if (have - at < 4) { /* the rest of a message is on its way */
            if (fsio_receive(far->io, fd, in + have, 4 - (have - at)) != 0) return false;
            have = at + 4;
        }
        size_t size = (size_t)get_le(in + at, 4);
        if (size < ANSWER_HEAD || size > most) return false;
        if (have - at < size) {
            if (fsio_receive(far->io, fd, in + have, size - (have - at)) != 0) return false;
            have = at + size;
        }
        if (!take(far, node, link, in + at, size, out, &filled)) return false;
        at += size;
        if (filled > 0 && (room - filled < FAR_ANSWER_MAX || at == have)) {
            if (fsio_send(far->io, fd, out, filled, NULL, 0, false) != 0) return false;
            filled = 0;
        }
    }
    return true;
}

/* ── life ── */

static void ended(void *context, void *link) {
    (void)context;
    far_link_ended(link);
}

static void changed(void *context, uint64_t ino) {
    struct far *far = context;
    pthread_rwlock_rdlock(&far->kernel_lock);
    if (far->has_kernel) far->kernel.written(far->kernel.context, ino);
    pthread_rwlock_unlock(&far->kernel_lock);
}

static void tick(void *context) { far_links_tick(context); }

static void let_go(void *context) {
    struct far *far = context;
    far_links_free(far);
    pthread_mutex_destroy(&far->lock);
    pthread_rwlock_destroy(&far->kernel_lock);
    free(far);
}

struct far *far_new(struct meta *meta, struct fsio *io) {
    struct far *far = fsio_speaker_of(io) == NULL ? calloc(1, sizeof *far) : NULL;
    if (far == NULL) return NULL;
    far->meta = meta;
    far->io = io;
    far->node = io->node;
    pthread_mutex_init(&far->lock, NULL);
    fsio_fair_lock(&far->kernel_lock);
    fsio_set_speaker(io, &(struct fsio_speaker){far, attend, ended, changed, tick, let_go});
    return far;
}

struct far *far_of(struct fsio *io) { return fsio_speaker_of(io); }

void far_set_kernel(struct far *far, const struct far_kernel *kernel) {
    pthread_rwlock_wrlock(&far->kernel_lock);
    far->has_kernel = kernel != NULL;
    if (kernel != NULL) far->kernel = *kernel;
    pthread_rwlock_unlock(&far->kernel_lock);
}

void far_set_shy(struct far *far, bool shy) { atomic_store(&far->shy, shy); }

uint64_t far_asked(const struct far *far) { return atomic_load(&far->asked); }

uint64_t far_served(const struct far *far) { return atomic_load(&far->served); }
