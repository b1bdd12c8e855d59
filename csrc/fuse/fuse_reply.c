/* Answers of the poll loop, and of other nodes, to requests that wait (fuse_slow.c). */
#include "fuse_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* A file that is being opened for a request. */
struct opened {
    struct amfs_fuse_request *request;
    struct opening opening;
    struct meta_attr attr; /* of one that was made */
    bool made;
};

enum { LATE_MOST = 50 };

/* Other mounts of this node learn what this one's request changed. */
static void tell_others(struct amfs_fuse *mount, const struct amfs_fuse_request *request) {
    switch (request->op) {
    case FUSE_OP_CREATE:
    case FUSE_OP_MKNOD:
    case FUSE_OP_MKDIR:
    case FUSE_OP_SYMLINK:
    case FUSE_OP_UNLINK:
    case FUSE_OP_UNNAMED:
    case FUSE_OP_RMDIR:
        fuse_notify_others(mount, request->ino, false);
        fuse_notify_others_entry(mount, request->ino, request->name, request->name_length);
        break;
    case FUSE_OP_RENAME:
    case FUSE_OP_RENAMING:
        fuse_notify_others(mount, request->ino, false);
        fuse_notify_others(mount, request->other, false);
        fuse_notify_others_entry(mount, request->ino, request->name, request->name_length);
        fuse_notify_others_entry(mount, request->other, request->value, request->value_length);
        break;
    case FUSE_OP_LINK:
        fuse_notify_others(mount, request->ino, false);
        fuse_notify_others_entry(mount, request->other, request->name, request->name_length);
        break;
    case FUSE_OP_SETATTR: fuse_notify_others(mount, request->ino, (request->flags & META_SET_SIZE) != 0); break;
    default: break;
    }
}

static int finish(struct amfs_fuse *mount, struct amfs_fuse_request *request, int error, const void *data, size_t size) {
    if (error == 0 && request->has_attr && (request->op == FUSE_OP_RMDIR || request->op == FUSE_OP_RENAME))
        fuse_removed_add(mount, &request->attr);
    if (error == 0 && request->op == FUSE_OP_SETATTR) fuse_notify_editions(mount, request->ino);
    int failed = fuse_answer(mount, request->unique, error, data, size);
    if (error == 0) tell_others(mount, request);
    amfs_fuse_request_free(request);
    return failed;
}

static int looked_up(struct amfs_fuse *mount, const struct amfs_fuse_request *r, int error, const struct meta_attr *attr) {
    return fuse_tasks_looked_up(mount, &(struct fuse_looked){r->attempt, r->ino, r->stray, r->name, r->name_length}, error, attr);
}

int amfs_fuse_reply_error(struct amfs_fuse *mount, uint64_t unique, int error) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    if (request == NULL) return ENOENT;
    if (error < 0 || error > 511) error = EIO;
    if (request->op == FUSE_OP_GETATTR || request->op == FUSE_OP_SETATTR || request->op == FUSE_OP_OPEN) error = gone_by_now(error);
    if (request->op == FUSE_OP_LOOKUP) error = looked_up(mount, request, error, NULL);
    else if (error == 0) fuse_tasks_done(mount, request, NULL);
    finish(mount, request, error, NULL, 0);
    return 0;
}

/* That an answer is old may be heard before the answer: then the kernel does not keep it, and if it was heard just now it forgets it. */
static bool is_fresh(const struct amfs_fuse *mount, uint64_t moment, const struct meta_attr *attr) {
    return S_ISDIR(attr->mode) || meta_fresh(mount->node->meta, moment, attr->ino);
}

int amfs_fuse_reply_entry(struct amfs_fuse *mount, uint64_t unique, const struct meta_attr *attr, bool cache) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    struct wire_entry_out out;
    if (request == NULL) return ENOENT;
    int hidden = request->op == FUSE_OP_LOOKUP ? looked_up(mount, request, 0, attr) : 0;
    if (hidden != 0) {
        finish(mount, request, hidden, NULL, 0);
        return 0;
    }
    fuse_tasks_done(mount, request, attr);
    uint64_t moment = request->moment;
    cache = cache && is_fresh(mount, moment, attr);
    cache = fuse_put_entry(mount, request->noticed, &out, attr, cache);
    if (!cache && !S_ISDIR(attr->mode)) out.entry_s = out.entry_ns = 0;
    finish(mount, request, 0, &out, sizeof out);
    if (cache && !is_fresh(mount, moment, attr)) amfs_fuse_invalidate_inode(mount, attr->ino, false);
    return 0;
}

int amfs_fuse_reply_attr(struct amfs_fuse *mount, uint64_t unique, const struct meta_attr *attr, bool cache) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    struct wire_attr_out out;
    if (request == NULL) return ENOENT;
    struct meta_attr old;
    uint64_t moment = request->moment;
    bool replica;
    cache = cache && is_fresh(mount, moment, attr);
    if (request->op == FUSE_OP_SETATTR && cache && meta_cached(mount->node->meta, attr->ino, &old, &replica) == 0)
        meta_cache(mount->node->meta, attr,
                   replica && attr->finished && (request->flags & META_SET_SIZE) == 0); /* our copy is as old as that */
    struct meta_attr latest = *attr;
    if (S_ISDIR(attr->mode)) meta_dir_latest(mount->node->meta, &latest);
    fuse_put_attr_out(mount, request->noticed, &out, &latest, cache);
    finish(mount, request, 0, &out, sizeof out);
    if (cache && !is_fresh(mount, moment, attr)) amfs_fuse_invalidate_inode(mount, attr->ino, false);
    return 0;
}

static struct opening opening_of(const struct amfs_fuse_request *request, uint64_t ino, enum fsio_kind kind, int32_t node, uint32_t stripe,
                                 uint64_t size) {
    bool truncate = request->op == FUSE_OP_OPEN && (request->flags & O_TRUNC) != 0;
    bool writing = request->op == FUSE_OP_CREATE || request->wrote || truncate ||
                   (request->op == FUSE_OP_OPEN && (request->flags & O_ACCMODE) != O_RDONLY);
    bool appends = writing && (request->op == FUSE_OP_OPEN || request->op == FUSE_OP_CREATE) && (request->flags & O_APPEND) != 0;
    return (struct opening){.ino = ino,
                            .edition = request->edition,
                            .kind = kind,
                            .node = node,
                            .stripe = stripe,
                            .size = size,
                            .writing = writing,
                            .truncate = truncate,
                            .appends = appends,
                            .create = size == 0 || truncate,
                            .foreign = !request->direct,
                            .direct = request->direct && writing,
                            .copied = request->direct && !writing};
}

/* The poll loop counts a handle that is not open after all. Only closings of writers have it forget one that writes. */
static void tell_not_open(struct amfs_fuse *mount, const struct opening *opening) {
    if (opening->writing && opening->foreign) fuse_slow_wrote(mount, opening->ino, true, NULL);
    else fuse_slow_unused(mount, opening->ino);
}

/* Ask once more. */
static void ask_again(struct amfs_fuse *mount, struct amfs_fuse_request *request, const struct opening *opening) {
    tell_not_open(mount, opening);
    request->again++;
    fuse_slow_add(mount, request);
}

/* The node through which it is written has closed it again before we came; or the copy that was brought here has gone again, for it was old. */
static bool is_late(const struct amfs_fuse_request *request, const struct opening *opening, int error) {
    bool closed = error == ESTALE && opening->kind == FSIO_REMOTE, gone = error == ENOENT && opening->kind == FSIO_LOCAL && opening->copied;
    return (closed || gone) && request->again < LATE_MOST;
}

static void answer_made(struct amfs_fuse *mount, struct opened *it, int error, const struct wire_open_out *open) {
    struct {
        struct wire_entry_out entry;
        struct wire_open_out open;
    } out = {.open = *open};
    const struct opening *opening = &it->opening;
    if (error == 0 || it->attr.pending == it->request->owned)
        fuse_tasks_done(mount, it->request, &it->attr); /* made, if perhaps not open */
    if (error != 0) tell_not_open(mount, opening);
    else fuse_put_entry(mount, it->request->noticed, &out.entry, &it->attr, false);
    out.entry.ino = fuse_node_id(it->attr.ino, opening->edition); /* whatever it is found under by now */
    if (finish(mount, it->request, gone_by_now(error), &out, error == 0 ? sizeof out : 0) == ENOENT && error == 0 && !opening->implicit)
        fuse_files_close(mount, it->attr.ino, opening->edition, true, false, false);
}

static void answer_found(struct amfs_fuse *mount, struct opened *it, int error, const struct wire_open_out *out) {
    struct amfs_fuse_request *request = it->request;
    const struct opening *opening = &it->opening;
    if (error != 0) tell_not_open(mount, opening);
    if (opening->implicit && error == 0) {
        fuse_work_add(mount, request->message);
        request->message = NULL;
        amfs_fuse_request_free(request);
    } else if (finish(mount, request, gone_by_now(error), out, error == 0 ? sizeof *out : 0) == ENOENT && error == 0) {
        fuse_files_close(mount, opening->ino, opening->edition, opening->writing, false, false); /* the process that asked was killed */
    }
}

static void answer_opened(struct amfs_fuse *mount, struct opened *it, int error, const struct wire_open_out *out) {
    if (is_late(it->request, &it->opening, error)) ask_again(mount, it->request, &it->opening);
    else if (it->made) answer_made(mount, it, error, out);
    else answer_found(mount, it, error, out);
}

static void end_opening(struct amfs_fuse *mount, void *opened) {
    struct opened *it = opened;
    struct wire_open_out out = {.flags = OPENED_KEEP_CACHE | OPENED_NOFLUSH};
    pthread_mutex_lock(mount->node->lock);
    int error = fuse_files_finish(mount, &it->opening, &out);
    pthread_mutex_unlock(mount->node->lock);
    answer_opened(mount, it, error, &out);
}

/* It counts as open, or there was an error. */
static void begun(struct amfs_fuse *mount, struct opened *it, int error, bool waits) {
    struct wire_open_out none = {0};
    if (error != 0) answer_opened(mount, it, error, &none);
    else if (!waits || !fuse_work_do(mount, end_opening, it, sizeof *it)) end_opening(mount, it);
}

/* The file counts as open when this returns. The poll loop does not wait for other nodes: a worker does. */
static void open_and_answer(struct amfs_fuse *mount, struct opened *it) {
    struct opening *opening = &it->opening;
    int error = FILE_HAS_OLD;
    pthread_mutex_lock(mount->node->lock);
    for (int tries = 0; error == FILE_HAS_OLD && tries < (it->made ? (int)EDITIONS : 1); tries++) {
        if (it->made)
            opening->edition = fuse_inode_edition(mount, opening->ino); /* somebody else may have made it, and others have written it */
        error = fuse_files_begin(mount, opening);
    }
    bool waits = error == 0 && fuse_files_wait(mount, opening);
    pthread_mutex_unlock(mount->node->lock);
    begun(mount, it, error, waits);
}

bool fuse_slow_open_here(struct amfs_fuse *mount, uint64_t unique) {
    struct node *node = mount->node;
    struct meta_attr attr;
    pthread_mutex_lock(node->lock); /* nobody is to find it unused in between */
    pthread_mutex_lock(&mount->slow_lock);
    const struct amfs_fuse_request *waiting = *fuse_slow_pending_at(mount, unique);
    uint64_t ino = waiting == NULL ? 0 : waiting->ino;
    pthread_mutex_unlock(&mount->slow_lock);
    int error = ino == 0 ? ENOENT : meta_open_here(node->meta, ino, false, &attr);
    struct opened it = {.request = error == 0 ? fuse_slow_claim(mount, unique) : NULL};
    bool begins = it.request != NULL, waits = false;
    if (begins) {
        it.opening = opening_of(it.request, ino, FSIO_LOCAL, -1, 0, attr.size);
        it.opening.atime = attr.atime;
        it.opening.copied = meta_owner(node->meta, meta_ino_partition(node->meta, ino)) != node->id;
        it.opening.implicit = it.request->op == FUSE_OP_ENSURE;
        error = fuse_files_begin(mount, &it.opening);
        waits = error == 0 && fuse_files_wait(mount, &it.opening);
    }
    pthread_mutex_unlock(node->lock);
    if (begins) begun(mount, &it, error, waits);
    else if (error == 0) fuse_forget_unused(mount, ino); /* nobody waits any more */
    return begins || ino == 0;
}

int amfs_fuse_reply_open(struct amfs_fuse *mount, uint64_t unique, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size,
                         uint64_t losses) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    if (request == NULL) return ENOENT;
    struct opened it = {.request = request, .opening = opening_of(request, request->ino, kind, node, stripe, size)};
    it.opening.implicit = request->op == FUSE_OP_ENSURE;
    it.opening.answered = true;
    it.opening.losses = losses;
    open_and_answer(mount, &it);
    return 0;
}

int amfs_fuse_reply_created(struct amfs_fuse *mount, uint64_t unique, const struct meta_attr *attr, enum fsio_kind kind, int32_t node,
                            uint32_t stripe, uint64_t size, uint64_t losses) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    if (request == NULL) return ENOENT;
    struct opened it = {
        .request = request, .opening = opening_of(request, attr->ino, kind, node, stripe, size), .attr = *attr, .made = true};
    it.opening.truncate = (request->flags & O_TRUNC) != 0 && size != 0;
    it.opening.implicit = atomic_load(&mount->no_open);
    it.opening.answered = true;
    it.opening.losses = losses;
    open_and_answer(mount, &it);
    return 0;
}

int amfs_fuse_reply_bytes(struct amfs_fuse *mount, uint64_t unique, const void *data, size_t size) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    if (request == NULL) return ENOENT;
    struct wire_getxattr_out out = {.size = (uint32_t)size};
    bool attribute = request->op == FUSE_OP_GET_XATTR || request->op == FUSE_OP_LIST_XATTR;
    bool hides = request->op == FUSE_OP_LIST_XATTR && request->uid != 0;
    char *names = hides ? malloc(size + 1) : NULL;
    if (hides && names == NULL) {
        finish(mount, request, ENOMEM, NULL, 0);
        return 0;
    }
    if (hides) {
        memcpy(names, data, size);
        size = fuse_hide_trusted(names, size);
        data = names;
    }
    if (attribute && request->room == 0) finish(mount, request, 0, &out, sizeof out);
    else if (attribute && size > request->room) finish(mount, request, ERANGE, NULL, 0);
    else finish(mount, request, 0, data, size);
    free(names);
    return 0;
}

int amfs_fuse_reply_dir(struct amfs_fuse *mount, uint64_t unique, const struct amfs_fuse_entry *entries, size_t count) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    if (request == NULL) return ENOENT;
    struct fuse_listing listing = {mount,         request->ino, request->opcode == WIRE_READDIRPLUS, request->noticed, NULL, 0,
                                   request->room, NULL};
    listing.to = malloc(listing.room + 1);
    if (listing.to == NULL) {
        finish(mount, request, ENOMEM, NULL, 0);
        return 0;
    }
    bool room = fuse_list_dots(&listing, request->ino, request->cursor);
    for (size_t i = 0; room && i < count; i++) {
        const struct amfs_fuse_entry *entry = &entries[i];
        const struct meta_attr *attr = entry->attr;
        if (attr != NULL && S_ISREG(attr->mode) && !attr->finished) attr = NULL;
        room = fuse_list_add(&listing, entry->name, entry->length, entry->ino, entry->type, entry->cursor + DOTS, attr);
    }
    finish(mount, request, 0, listing.to, listing.used);
    free(listing.to);
    return 0;
}

int amfs_fuse_reply_statfs(struct amfs_fuse *mount, uint64_t unique, uint32_t bsize, uint64_t blocks, uint64_t bfree, uint64_t bavail,
                           uint64_t files, uint64_t ffree) {
    struct amfs_fuse_request *request = fuse_slow_claim(mount, unique);
    struct wire_statfs_out out = {.bsize = bsize,
                                  .frsize = bsize,
                                  .blocks = blocks,
                                  .bfree = bfree,
                                  .bavail = bavail,
                                  .files = files,
                                  .ffree = ffree,
                                  .namelen = META_NAME_MAX};
    if (request == NULL) return ENOENT;
    finish(mount, request, 0, &out, sizeof out);
    return 0;
}
