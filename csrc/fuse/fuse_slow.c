/* Requests that the poll loop answers: the queue to it, and those that wait. Its answers are fuse_reply.c. */
#include "common/watch.h"
#include "fuse_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *amfs_fuse_op_name(enum amfs_fuse_op op) {
    static const char *const names[] = {
        [FUSE_OP_LOOKUP] = "lookup",
        [FUSE_OP_GETATTR] = "getattr",
        [FUSE_OP_SETATTR] = "setattr",
        [FUSE_OP_READLINK] = "readlink",
        [FUSE_OP_CREATE] = "create",
        [FUSE_OP_MKNOD] = "mknod",
        [FUSE_OP_MKDIR] = "mkdir",
        [FUSE_OP_SYMLINK] = "symlink",
        [FUSE_OP_OPEN] = "open",
        [FUSE_OP_UNLINK] = "unlink",
        [FUSE_OP_RMDIR] = "rmdir",
        [FUSE_OP_RENAME] = "rename",
        [FUSE_OP_LINK] = "link",
        [FUSE_OP_LIST] = "list",
        [FUSE_OP_STATFS] = "statfs",
        [FUSE_OP_SET_XATTR] = "set_xattr",
        [FUSE_OP_GET_XATTR] = "get_xattr",
        [FUSE_OP_LIST_XATTR] = "list_xattr",
        [FUSE_OP_REMOVE_XATTR] = "remove_xattr",
        [FUSE_OP_ENSURE] = "ensure",
        [FUSE_OP_SECURE] = "secure",
        [FUSE_OP_PERHAPS_MADE] = "perhaps_made",
        [FUSE_OP_UNNAMED] = "unnamed",
        [FUSE_OP_RENAMING] = "renaming",
        [FUSE_OP_CLOSED] = "closed",
        [FUSE_OP_TOUCHED] = "touched",
    };
    return names[op];
}

/* ── asking ── */

static struct amfs_fuse_request *make(enum amfs_fuse_op op, const char *name, size_t length, const void *value, size_t value_length) {
    struct amfs_fuse_request *request = calloc(1, sizeof *request + length + value_length + 2);
    if (request == NULL) return NULL;
    request->op = op;
    request->name_length = length;
    request->value_length = value_length;
    request->value = request->name + length + 1;
    if (length > 0) memcpy(request->name, name, length);
    if (value_length > 0) memcpy(request->value, value, value_length);
    return request;
}

struct amfs_fuse_request *fuse_slow_new(const struct call *call, enum amfs_fuse_op op, const char *name, size_t length, const void *value,
                                        size_t value_length) {
    struct amfs_fuse_request *request = make(op, name, length, value, value_length);
    if (request == NULL) {
        refuse(call, ENOMEM);
        return NULL;
    }
    request->unique = call->in->unique;
    request->opcode = call->in->opcode;
    request->uid = call->in->uid;
    request->gid = call->in->gid;
    request->pid = call->in->pid;
    request->ino = call->in->ino;
    request->edition = edition_of(call);
    request->noticed = call->since;
    request->attempt = call->attempt;
    request->owned = fuse_tasks_pending(call->mount->node, call->attempt);
    request->stray = call->stray;
    return request;
}

void amfs_fuse_request_free(struct amfs_fuse_request *request) {
    if (request == NULL) return;
    free(request->message);
    free(request);
}

struct amfs_fuse_request **fuse_slow_pending_at(struct amfs_fuse *mount, uint64_t unique) {
    struct amfs_fuse_request **at = &mount->pending[(unique >> 1) % PENDING_BUCKETS];
    while (*at != NULL && (*at)->unique != unique) at = &(*at)->pending;
    return at;
}

/* With the lock held. */
static void append(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    request->next = NULL;
    *mount->queue_tail = request;
    mount->queue_tail = &request->next;
}

void fuse_slow_add(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    if (request == NULL) return;
    request->moment = meta_moment(mount->node->meta);
    request->since_ms = now_ms();
    pthread_mutex_lock(&mount->slow_lock);
    bool first = mount->queue == NULL;
    struct amfs_fuse_request **at = fuse_slow_pending_at(mount, request->unique);
    bool refused = atomic_load(&mount->stopping), direct = false;
    if (*at == NULL && !refused) { /* the kernel never repeats a number that is unanswered */
        *at = request;
        direct = mount->above->ask(mount, request);
        if (!direct) append(mount, request);
    } else {
        if (refused) fuse_answer(mount, request->unique, EIO, NULL, 0);
        amfs_fuse_request_free(request);
    }
    pthread_mutex_unlock(&mount->slow_lock);
    if (direct) return;
    atomic_fetch_add_explicit(&mount->slow, 1, memory_order_relaxed);
    if (first) fuse_wake_loop(mount);
}

/* A request that waits is the poll loop's from now on, as `put` makes it of `what`. False: nobody waits any more. */
static bool hand_over(struct amfs_fuse *mount, uint64_t unique, void (*put)(struct amfs_fuse_request *request, const void *what),
                      const void *what) {
    pthread_mutex_lock(&mount->slow_lock);
    bool first = mount->queue == NULL;
    struct amfs_fuse_request *request = *fuse_slow_pending_at(mount, unique);
    if (request != NULL) {
        if (put != NULL) put(request, what);
        request->direct = false;
        append(mount, request);
    }
    pthread_mutex_unlock(&mount->slow_lock);
    if (request == NULL) return false;
    atomic_fetch_add_explicit(&mount->slow, 1, memory_order_relaxed);
    if (first) fuse_wake_loop(mount);
    return true;
}

void fuse_slow_again(struct amfs_fuse *mount, uint64_t unique) { hand_over(mount, unique, NULL, NULL); }

/* A request that wants no answer. NULL, which is out of memory, is not told. */
static void tell(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    if (request == NULL) return;
    pthread_mutex_lock(&mount->slow_lock);
    bool first = mount->queue == NULL, known = false;
    for (struct amfs_fuse_request *other = mount->queue; request->op == FUSE_OP_TOUCHED && other != NULL && !known; other = other->next)
        known = other->op == FUSE_OP_TOUCHED && other->ino == request->ino; /* once is enough */
    if (!known) append(mount, request);
    pthread_mutex_unlock(&mount->slow_lock);
    if (known) amfs_fuse_request_free(request);
    if (first) fuse_wake_loop(mount);
}

static void put_unnamed(struct amfs_fuse_request *request, const void *context) {
    const struct fuse_unnamed *what = context;
    request->op = FUSE_OP_UNNAMED;
    request->other = what->ino;
}

/* It is done even if nobody waits any more: else the record would count a name too many for ever. */
void fuse_slow_uncount(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what) {
    if (hand_over(mount, unique, put_unnamed, what)) return;
    struct amfs_fuse_request *request = make(FUSE_OP_UNNAMED, what->name, what->length, NULL, 0);
    if (request != NULL) {
        request->ino = what->dir;
        put_unnamed(request, what);
    }
    tell(mount, request);
}

static void put_renaming(struct amfs_fuse_request *request, const void *context) {
    const struct fuse_renaming *what = context;
    request->op = FUSE_OP_RENAMING;
    request->ino = what->dir;
    request->other = what->to_dir;
    request->flags = what->flags;
    request->attr.ino = what->ino;
    request->cursor = what->owner;
    request->room = what->old;
    request->mode = what->how_far;
    request->has_attr = false;
    request->direct = false;
}

void fuse_put_renaming(struct amfs_fuse_request *request, const struct fuse_renaming *what) { put_renaming(request, what); }

/* As fuse_slow_uncount: it is done even if nobody waits any more. */
void fuse_slow_rename(struct amfs_fuse *mount, uint64_t unique, const struct fuse_renaming *what) {
    if (hand_over(mount, unique, put_renaming, what)) return;
    struct amfs_fuse_request *request = make(FUSE_OP_RENAMING, what->name, what->length, what->to_name, what->to_length);
    if (request != NULL) put_renaming(request, what);
    tell(mount, request);
}

void fuse_slow_perhaps_made(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length) {
    struct amfs_fuse_request *request = make(FUSE_OP_PERHAPS_MADE, name, length, NULL, 0);
    if (request != NULL) request->ino = dir;
    tell(mount, request);
}

void fuse_slow_touched(struct amfs_fuse *mount, uint64_t dir) {
    struct amfs_fuse_request *request = make(FUSE_OP_TOUCHED, NULL, 0, NULL, 0);
    if (request != NULL) request->ino = dir;
    tell(mount, request);
}

static struct amfs_fuse_request *closed(struct amfs_fuse *mount, uint64_t ino, bool wrote, bool last) {
    struct amfs_fuse_request *request = make(FUSE_OP_CLOSED, NULL, 0, NULL, 0);
    if (request == NULL) return NULL;
    request->ino = ino;
    request->wrote = wrote;
    request->last = last;
    meta_closing(mount->node->meta, ino); /* op_closed counts it off */
    return request;
}

void fuse_slow_unused(struct amfs_fuse *mount, uint64_t ino) { tell(mount, closed(mount, ino, false, true)); }

void fuse_slow_wrote(struct amfs_fuse *mount, uint64_t ino, bool last, const struct meta_attr *said) {
    struct amfs_fuse_request *request = closed(mount, ino, true, last);
    if (request != NULL && said != NULL) {
        request->has_attr = true;
        request->attr = *said;
    }
    tell(mount, request);
}

struct amfs_fuse_request *amfs_fuse_take(struct amfs_fuse *mount) {
    uint64_t count;
    if (read(mount->event_fd, &count, sizeof count) < 0) {} /* nothing new: look all the same */
    pthread_mutex_lock(&mount->slow_lock);
    struct amfs_fuse_request *first = mount->queue;
    mount->queue = NULL;
    mount->queue_tail = &mount->queue;
    pthread_mutex_unlock(&mount->slow_lock);
    return first;
}

void fuse_slow_end(struct amfs_fuse *mount) {
    pthread_mutex_lock(&mount->slow_lock);
    struct amfs_fuse_request **at = &mount->queue;
    while (*at != NULL) { /* requests that want an answer get it here; mere news can still be taken */
        if ((*at)->unique != 0) *at = (*at)->next;
        else at = &(*at)->next;
    }
    mount->queue_tail = at;
    for (size_t i = 0; i < PENDING_BUCKETS; i++) {
        while (mount->pending[i] != NULL) {
            struct amfs_fuse_request *request = mount->pending[i];
            mount->pending[i] = request->pending;
            if (mount->fd >= 0) fuse_answer(mount, request->unique, EIO, NULL, 0);
            amfs_fuse_request_free(request);
        }
    }
    pthread_mutex_unlock(&mount->slow_lock);
}

bool fuse_slow_busy(struct amfs_fuse *mount, uint64_t dir) {
    bool busy = false;
    pthread_mutex_lock(&mount->slow_lock);
    for (size_t i = 0; i < PENDING_BUCKETS && !busy; i++)
        for (const struct amfs_fuse_request *request = mount->pending[i]; request != NULL && !busy; request = request->pending)
            busy = request->ino == dir || request->other == dir;
    pthread_mutex_unlock(&mount->slow_lock);
    return busy;
}

size_t amfs_fuse_overdue(struct amfs_fuse *mount, int64_t longer_than_ms, struct watch_entry *found, size_t room) {
    int64_t now = now_ms();
    size_t count = 0;
    pthread_mutex_lock(&mount->slow_lock);
    for (size_t i = 0; i < PENDING_BUCKETS; i++) {
        for (const struct amfs_fuse_request *request = mount->pending[i]; request != NULL && count < room; request = request->pending) {
            if (now - request->since_ms < longer_than_ms) continue;
            found[count++] = (struct watch_entry){amfs_fuse_op_name(request->op), request->ino, request->since_ms};
        }
    }
    pthread_mutex_unlock(&mount->slow_lock);
    return count;
}

/* The request that waits, taken out. NULL: none does. */
struct amfs_fuse_request *fuse_slow_claim(struct amfs_fuse *mount, uint64_t unique) {
    if (unique == 0) return NULL;
    pthread_mutex_lock(&mount->slow_lock);
    struct amfs_fuse_request **at = fuse_slow_pending_at(mount, unique), *request = *at;
    if (request != NULL) *at = request->pending;
    pthread_mutex_unlock(&mount->slow_lock);
    return request;
}

void fuse_ask_slowly(struct call *call, enum amfs_fuse_op op, const char *name, size_t length) {
    fuse_slow_add(call->mount, fuse_slow_new(call, op, name, length, NULL, 0));
}
