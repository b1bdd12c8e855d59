/* The bytes of open files that the kernel does not get at by itself. */
#include "fuse_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ── handles ── */

struct fuse_use {
    struct view *view;
    struct fsio_handle *handle; /* NULL: there is none */
    enum fsio_kind kind;
    bool passes;
};

static struct fuse_use use_handle(const struct call *call, bool writing) {
    struct node *node = call->mount->node;
    struct fuse_use use = {NULL, NULL, FSIO_LOCAL, false};
    pthread_mutex_lock(node->lock);
    struct file *file = fuse_files_find(node, call->in->ino);
    struct view *view = file == NULL ? NULL : fuse_files_view(file, call->mount, edition_of(call));
    if (view != NULL) {
        use.handle = writing || view->reader == NULL ? view->writer : view->reader;
        use.kind = use.handle != NULL ? fsio_kind(use.handle) : view->kind;
        use.passes = view->passes;
        if (use.handle != NULL) {
            use.view = view;
            view->busy++;
            view->used_ns = fuse_monotonic_ns();
        }
    }
    pthread_mutex_unlock(node->lock);
    return use;
}

static void use_end(const struct call *call, const struct fuse_use *use) {
    if (use->view == NULL) return;
    pthread_mutex_lock(call->mount->node->lock);
    use->view->busy--;
    pthread_mutex_unlock(call->mount->node->lock);
}

/* Should another thread do it? Then one does. */
static bool passed_on(const struct call *call, const struct fuse_use *use, size_t bytes) {
    if (may_wait(call)) return false;
    /* Is somebody else waiting? Then much work is better done by another thread. */
    bool disk = use->handle != NULL && fsio_reads_disk(use->handle);
    if (use->kind == FSIO_LOCAL && !disk && (bytes < BULK_BYTES || !fuse_requests_wait(call->mount))) return false;
    use_end(call, use);
    fuse_work_copy(call);
    return true;
}

static int open_part(const struct node *node, uint64_t ino, int flags) {
    char path[64];
    if (fsio_part_path(node->io, ino, FSIO_WHOLE, path, sizeof path) != 0) return -1;
    return openat(node->root, path, flags | O_CLOEXEC | (flags == O_RDONLY ? 0 : O_NOFOLLOW)); /* a spilled part is only read */
}

/* Have the poll loop open it, and then come back to this request. */
static void ensure(const struct call *call, bool writing) {
    struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_ENSURE, NULL, 0, NULL, 0);
    struct message *message = request == NULL ? NULL : fuse_message_take(call->mount);
    if (message == NULL) {
        if (request != NULL) refuse(call, ENOMEM);
        amfs_fuse_request_free(request);
        return;
    }
    message->size = call->in->length;
    message->since = call->since;
    memcpy(message->bytes, call->in, message->size);
    request->message = message;
    request->wrote = writing;
    fuse_slow_add(call->mount, request);
}

/* ── reading ── */

static struct conduit *splice_from_handle(const struct call *call, struct fsio_handle *handle, size_t size, uint64_t offset) {
    int fd;
    if (fsio_lend(handle, &fd) != 0) return NULL;
    struct conduit *conduit = fuse_splice_from(call, fd, size, offset);
    fsio_lend_end(handle);
    return conduit;
}

/* Without a handle: the content is here, and stays while this node is among its users. 0, an errno, META_NOT_MINE, META_BUSY. `conduit`: NULL, or
 * where to put it rather than in call->out if that can be. */
static int read_part(const struct call *call, size_t size, uint64_t offset, size_t *got, struct conduit **conduit) {
    struct node *node = call->mount->node;
    struct meta_attr attr;
    int error = meta_open_here(node->meta, call->in->ino, false, &attr);
    if (error != 0) return error;
    int fd = open_part(node, call->in->ino, O_RDONLY);
    if (fd < 0 && !(errno == ENOENT && attr.size == 0)) error = EIO;
    if (conduit != NULL && fd >= 0) *conduit = fuse_splice_from(call, fd, size, offset);
    while (fd >= 0 && (conduit == NULL || *conduit == NULL) && *got < size) {
        ssize_t more = pread(fd, call->out + *got, size - *got, (off_t)(offset + *got));
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) error = errno;
        if (more <= 0) break;
        *got += (size_t)more;
    }
    if (fd >= 0) close(fd);
    fuse_forget_unused(call->mount, call->in->ino);
    return error;
}

/* `piped`: without a copy of ours, if that can be. False: it could, but then was not taken; nothing was answered. */
static bool read_and_answer(struct call *call, size_t size, uint64_t offset, bool piped) {
    size_t got = 0;
    int error = 0;
    struct conduit *conduit = NULL;
    struct fuse_use use = use_handle(call, false);
    if (use.handle == NULL && fuse_closing_awaited(call)) return true;
    if (passed_on(call, &use, size)) return true;
    if (use.handle != NULL) {
        struct fsio_lent lent;
        bool lends = use.kind == FSIO_STRIPED && fsio_read_in_place(use.handle, call->out, size, offset, &lent) == 0;
        if (piped && use.kind == FSIO_LOCAL) conduit = splice_from_handle(call, use.handle, size, offset);
        if (conduit == NULL && !lends) error = fsio_read(use.handle, call->out, size, offset, &got);
        use_end(call, &use);
        if (lends) { /* the process that gets the answer may close it at once */
            fuse_give_parts(call, lent.parts, lent.count, lent.bytes);
            fsio_return(&lent);
            return true;
        }
    } else {
        error = read_part(call, size, offset, &got, piped ? &conduit : NULL);
    }
    if (conduit != NULL) return fuse_splice_give(call, conduit);
    if (error == META_NOT_MINE || error == META_BUSY) ensure(call, false);
    else if (error != 0) refuse(call, error);
    else give(call, call->out, got);
    return true;
}

void fuse_do_read(struct call *call) {
    const struct wire_read_in *in = (const void *)call->body;
    if (call->size < sizeof *in || in->offset > INT64_MAX) {
        refuse(call, EINVAL);
        return;
    }
    size_t size = in->size < MAX_WRITE ? in->size : MAX_WRITE;
    fuse_inode_paged(call->mount, call->in->ino);
    if (!read_and_answer(call, size, in->offset, splice_suits(call, size))) read_and_answer(call, size, in->offset, false);
}

/* ── writing ── */

/* A handle for a write that no open stands for. */
static int open_implicitly(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct meta_attr attr;
    pthread_mutex_lock(mount->node->lock);
    int error = atomic_load(&mount->node->defers) ? META_BUSY : meta_open_here(mount->node->meta, call->in->ino, true, &attr);
    bool here = error == 0;
    if (here) {
        struct opening opening = {.ino = attr.ino,
                                  .edition = edition_of(call),
                                  .node = -1,
                                  .stripe = attr.copies > 1 ? FSIO_COPIED : 0,
                                  .size = attr.size,
                                  .atime = attr.atime,
                                  .writing = true,
                                  .create = attr.size == 0,
                                  .implicit = true};
        error = fuse_files_open(mount, &opening, NULL);
    }
    pthread_mutex_unlock(mount->node->lock);
    if (here && error != 0) fuse_forget_unused(mount, attr.ino);
    return error;
}

/* False: there is no handle yet, or none to be had, and the request is seen to. */
static bool begin_writing(struct call *call, struct fuse_use *use) {
    if (fuse_closing_awaited(call)) return false;
    if (!may_wait(call) && fsio_open_waits(call->mount->node->io, call->in->ino, false)) {
        fuse_work_copy(call);
        return false;
    }
    int error = open_implicitly(call);
    if (error == META_NOT_MINE || error == META_BUSY) {
        ensure(call, true);
        return false;
    }
    if (error == 0) *use = use_handle(call, true);
    if (use->handle == NULL) refuse(call, error != 0 ? error : EBADF);
    return use->handle != NULL;
}

void fuse_do_write(struct call *call) {
    const struct wire_read_in *in = (const void *)call->body;
    if (call->size < sizeof *in || call->size - sizeof *in < in->size) {
        refuse(call, EINVAL);
        return;
    }
    fuse_inode_paged(call->mount, call->in->ino);
    struct fuse_use use = use_handle(call, true);
    if (use.handle == NULL && !begin_writing(call, &use)) return;
    if (passed_on(call, &use, in->size)) return;
    bool append = (in->flags & O_APPEND) != 0; /* the kernel knows only where the end was */
    int error = fsio_write(use.handle, in + 1, in->size, append ? FSIO_APPEND : in->offset);
    bool moved = append && error == 0 && use.kind != FSIO_REMOTE && fsio_size(use.handle) != in->offset + in->size;
    use_end(call, &use);
    if (moved) amfs_fuse_invalidate_inode(call->mount, call->in->ino, true); /* it has put it elsewhere in its pages, if it has any */
    if (error != 0) {
        refuse(call, error);
        return;
    }
    struct wire_write_out out = {.size = in->size};
    if ((in->io_flags & WRITE_KILL_SUIDGID) != 0) fuse_suid_written(call);
    give(call, &out, sizeof out);
}

/* ── the rest ── */

void fuse_do_seek(struct call *call) {
    const struct wire_lseek_in *in = (const void *)call->body;
    struct wire_lseek_out out = {0};
    int error = 0;
    if (call->size < sizeof *in || in->offset > INT64_MAX || (in->whence != SEEK_DATA && in->whence != SEEK_HOLE)) {
        refuse(call, EINVAL);
        return;
    }
    struct fuse_use use = use_handle(call, false);
    if (passed_on(call, &use, 0)) return;
    if (use.handle != NULL) {
        error = fsio_seek(use.handle, in->offset, (int)in->whence, &out.offset);
        use_end(call, &use);
    } else {
        int fd = open_part(call->mount->node, call->in->ino, O_RDONLY);
        off_t found = fd < 0 ? -1 : lseek(fd, (off_t)in->offset, (int)in->whence);
        if (found < 0) error = fd < 0 ? EOPNOTSUPP : errno;
        out.offset = (uint64_t)found;
        if (fd >= 0) close(fd);
    }
    if (error != 0) refuse(call, error);
    else give(call, &out, sizeof out);
}

void fuse_do_allocate(struct call *call) {
    const struct wire_fallocate_in *in = (const void *)call->body;
    struct fsio_handle *handle = NULL;
    if (call->size < sizeof *in || in->offset > INT64_MAX || in->length > INT64_MAX) {
        refuse(call, EINVAL);
        return;
    }
    struct fuse_use use = use_handle(call, true);
    if (use.handle == NULL && !use.passes && !begin_writing(call, &use)) return; /* no open stands for it */
    if (passed_on(call, &use, in->length)) return;
    int error = 0;
    bool own = use.handle == NULL;
    if (own) error = fsio_open(call->mount->node->io, call->in->ino, FSIO_LOCAL, -1, 0, 0, true, false, &handle);
    else handle = use.handle;
    if (error == 0) error = fsio_fallocate(handle, (int)in->mode, in->offset, in->length);
    if (own && handle != NULL) fsio_close(handle);
    use_end(call, &use);
    if (error == 0 && call->in->uid != 0) fuse_suid_written(call);
    refuse(call, error);
}

void fuse_do_copy(struct call *call) {
    const struct wire_copy_in *in = (const void *)call->body;
    struct node *node = call->mount->node;
    struct wire_write_out out = {0};
    int error = 0;
    if (call->size < sizeof *in || in->offset > INT64_MAX || in->to_offset > INT64_MAX) {
        refuse(call, EINVAL);
        return;
    }
    uint64_t source = call->in->ino, target = fuse_plain_ino(in->to_ino);
    bool both = fuse_files_pass(call->mount, source, edition_of(call)) && fuse_files_pass(call->mount, target, fuse_edition_in(in->to_ino));
    if (!both || node->limited) {
        refuse(call, EOPNOTSUPP); /* the kernel reads and writes then */
        return;
    }
    if (!may_wait(call) && in->length >= BULK_BYTES) {
        fuse_work_copy(call);
        return;
    }
    int from = open_part(node, source, O_RDONLY), to = open_part(node, target, O_WRONLY);
    off_t at = (off_t)in->offset, to_at = (off_t)in->to_offset;
    size_t length = in->length < (1u << 30) ? (size_t)in->length : 1u << 30;
    ssize_t copied = from < 0 || to < 0 ? -1 : copy_file_range(from, &at, to, &to_at, length, 0);
    if (copied < 0) error = from < 0 || to < 0 || errno == EXDEV || errno == ENOSYS ? EOPNOTSUPP : errno;
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    if (error != 0) {
        refuse(call, error);
        return;
    }
    out.size = (uint32_t)copied;
    give(call, &out, sizeof out);
}

/* Have the poll loop say when as many nodes have what was written as shall. False: one is enough, or nothing was written. */
static bool is_to_be_secured(const struct call *call) {
    struct meta *meta = call->mount->node->meta;
    const struct wire_flush_in *in = (const void *)call->body;
    struct meta_attr attr;
    if (!meta_copies_wanted(meta) || call->size < sizeof in->fh) return false;
    if (call->in->opcode == WIRE_FLUSH && (in->fh & FH_WRITING) == 0) return false;
    return meta_getattr(meta, call->in->ino, call->mount->node->id, &attr) != 0 || (S_ISREG(attr.mode) && attr.copies > 1);
}

static void end_flush(const struct call *call, int error) {
    if (error != 0 || !is_to_be_secured(call)) refuse(call, error);
    else fuse_do_secure(call);
}

void fuse_do_flush(struct call *call) {
    if (call->in->opcode == WIRE_FLUSH && atomic_load(&call->mount->no_open)) {
        refuse(call, ENOSYS); /* the kernel does not ask again */
        return;
    }
    struct fuse_use use = use_handle(call, true);
    if (use.handle == NULL || use.kind == FSIO_LOCAL) { /* nothing is held back */
        use_end(call, &use);
        end_flush(call, 0);
        return;
    }
    if (passed_on(call, &use, 0)) return;
    int error = fsio_flush(use.handle);
    use_end(call, &use);
    end_flush(call, error);
}
