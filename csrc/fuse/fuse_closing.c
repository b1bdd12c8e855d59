/* The requests to open and to close. The work is in fuse_opening.c and fuse_release.c. */
#include "fuse_internal.h"

#include <fcntl.h>

/* ── closing ── */

void fuse_do_release(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_release_in *in = (const void *)call->body;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    uint8_t edition = edition_of(call);
    bool writing = (in->fh & FH_WRITING) != 0, mappable = writing && (in->flags & O_ACCMODE) == O_RDWR;
    bool explicit = (in->fh & FH_EXPLICIT) != 0, begun = may_wait(call); /* by the thread that has read the request */
    if (explicit && !begun) {
        pthread_mutex_lock(mount->node->lock);
        struct file *file = fuse_files_find(mount->node, call->in->ino);
        const struct view *view = file == NULL ? NULL : fuse_files_view(file, mount, edition);
        begun = view != NULL && fuse_files_peer(view);
        if (begun) file->closing++;
        pthread_mutex_unlock(mount->node->lock);
        if (begun) { /* by this thread if no worker can: a request that opens it again must not wait for ever */
            if (!fuse_work_copy(call)) fuse_files_close(mount, call->in->ino, edition, writing, mappable, true);
            return;
        }
    }
    if (explicit) fuse_files_close(mount, call->in->ino, edition, writing, mappable, begun);
    else fuse_files_forget(mount, call->in->ino);
    refuse(call, 0);
}

/* ── opening ── */

void fuse_do_open(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_open_in *in = (const void *)call->body;
    struct meta_attr attr;
    struct wire_open_out out;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    if (atomic_load_explicit(&mount->no_open, memory_order_relaxed)) {
        refuse(call, ENOSYS); /* from now on the kernel opens by itself */
        return;
    }
    if (fuse_closing_awaited(call)) return;
    bool truncate = (in->flags & O_TRUNC) != 0, writing = (in->flags & O_ACCMODE) != O_RDONLY || truncate;
    if (!may_wait(call) && fsio_open_waits(mount->node->io, call->in->ino, truncate)) {
        fuse_work_copy(call);
        return;
    }
    pthread_mutex_lock(mount->node->lock); /* nobody is to find it unused in between, and say that it is finished */
    int error = writing && atomic_load(&mount->node->defers) ? META_BUSY : meta_open_here(mount->node->meta, call->in->ino, writing, &attr);
    bool here = error == 0;
    if (here) {
        struct opening opening = {.ino = attr.ino,
                                  .edition = edition_of(call),
                                  .node = -1,
                                  .stripe = attr.copies > 1 ? FSIO_COPIED : 0,
                                  .size = attr.size,
                                  .atime = attr.atime,
                                  .mtime = attr.mtime,
                                  .writing = writing,
                                  .truncate = truncate,
                                  .create = attr.size == 0 || truncate,
                                  .stamp = attr.size == 0 && !truncate,
                                  .appends = writing && (in->flags & O_APPEND) != 0,
                                  .copied =
                                      meta_owner(mount->node->meta, meta_ino_partition(mount->node->meta, attr.ino)) != mount->node->id};
        error = fuse_files_open(mount, &opening, &out);
    }
    pthread_mutex_unlock(mount->node->lock);
    if (here) {
        if (error != 0) {
            fuse_forget_unused(mount, attr.ino);
        } else {
            if (truncate && (in->open_flags & OPEN_KILL_SUIDGID) != 0) fuse_suid_written(call);
            if (give(call, &out, sizeof out) == ENOENT)
                fuse_files_close(mount, attr.ino, edition_of(call), writing, false, false); /* the process that asked was killed */
            if (truncate) fuse_notify_others(mount, attr.ino, true);
            return;
        }
    }
    if (error == META_NOT_MINE || error == META_BUSY) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_OPEN, NULL, 0, NULL, 0);
        if (request != NULL) request->flags = in->flags;
        fuse_slow_add(mount, request);
    } else {
        refuse(call, gone_by_now(error));
    }
}
