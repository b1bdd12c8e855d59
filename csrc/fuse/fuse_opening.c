/* Opening a file for a mount: it counts as open, then it has a handle, and perhaps the kernel has the part itself. Stands on the open files and on closing. */
#include "fuse_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Give the part to the kernel. The descriptor is needed only for a moment. */
static int pass(struct amfs_fuse *mount, struct view *view, const struct opening *opening) {
    char path[64];
    struct stat found;
    int error = fsio_part_path(mount->node->io, opening->ino, FSIO_WHOLE, path, sizeof path);
    if (error != 0) return error;
    if (view->backing > 0 && !opening->truncate) return 0;
    if (opening->create && fsio_grown(mount->node->io, opening->ino)) return EAGAIN;
    /* To be read, whatever the kernel opens it for: digests_writers tells writers by that. O_TRUNC cuts it all the same. */
    int also = (opening->create ? O_CREAT : 0) | (opening->truncate ? O_TRUNC : 0);
    int fd = openat(mount->node->root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | also, 0600);
    if (fd < 0) error = errno;
    if (error == ELOOP) return EAGAIN; /* it is spilled */
    if (fd < 0) return error == ENOENT && fsio_grown(mount->node->io, opening->ino) ? EAGAIN : error;
    if (error == 0 && view->backing <= 0 && fstat(fd, &found) != 0) error = errno;
    if (error == 0 && view->backing <= 0) {
        struct wire_backing backing = {.fd = fd};
        view->part = found.st_ino;
        int number = ioctl(mount->fd, WIRE_BACKING_OPEN, &backing);
        if (number > 0) view->backing = number;
        else error = number < 0 ? errno : EIO;
        if (error == EPERM || error == ENOTTY || error == EOPNOTSUPP) {
            atomic_store(&mount->passes, false); /* not for us: from now on through this process */
            error = EAGAIN;
        }
    }
    close(fd);
    return error;
}

/* Does the kernel say when a file that was written is closed? Only where a node may have refused some of it: not what is whole on a node without limit. */
static bool flushes(const struct amfs_fuse *mount, enum fsio_kind kind) {
    return !atomic_load_explicit(&mount->no_open, memory_order_relaxed) && (kind != FSIO_LOCAL || mount->node->limited);
}

static bool written_elsewhere(const struct file *file, const struct view *here) {
    for (const struct view *view = file->views; view != NULL; view = view->next)
        if (view != here && view->writers > 0) return true;
    return false;
}

/* An empty file may have no part yet: the one made for it gets the times of the record. */
static bool lacks_part(struct node *node, const struct opening *opening) {
    struct stat found;
    return opening->stamp && fuse_files_part_stat(node, opening->ino, &found) == ENOENT;
}

static void stamp_fresh(struct node *node, const struct opening *opening) {
    struct meta_attr attr = {.atime = opening->atime, .mtime = opening->mtime};
    fuse_stamp_whole(node, opening->ino, META_SET_ATIME | META_SET_MTIME, &attr);
}

int fuse_files_begin(struct amfs_fuse *mount, struct opening *opening) {
    struct node *node = mount->node;
    int error = ENOMEM;
    struct file *file = fuse_files_find(node, opening->ino);
    if (file == NULL && (file = fuse_files_add(node, opening->ino)) != NULL) file->atime = opening->atime;
    struct view *view = file == NULL ? NULL : fuse_files_view(file, mount, opening->edition);
    if (view != NULL && !opening->implicit && fuse_view_has_old(node, view, opening)) {
        fuse_inode_next_edition(mount, opening->ino, opening->edition);
        return FILE_HAS_OLD;
    }
    if (view == NULL && file != NULL) view = fuse_view_add(file, mount, opening->edition);
    if (view != NULL) {
        if (fuse_view_is_unused(view)) {
            view->kind = opening->kind;
            view->passes = !opening->implicit && atomic_load_explicit(&mount->passes, memory_order_relaxed) &&
                           opening->kind == FSIO_LOCAL && !(opening->writing && node->limited);
        }
        opening->fresh = lacks_part(node, opening);
        error = view->passes && !opening->implicit ? pass(mount, view, opening) : EAGAIN;
        opening->copies = error == EAGAIN;
        if (opening->copies) error = 0;
        if (opening->copies && !opening->implicit) view->passes = false;
    }
    if (error == 0) {
        opening->file = file;
        opening->view = view;
        opening->beside = opening->writing && fuse_writers(file) > 0;
        if (!opening->answered) opening->losses = fsio_losses(node->io);
        fuse_files_count(node, file, view, opening->writing, 1);
        view->busy++; /* it stays, whatever others close */
    } else if (view != NULL && fuse_view_is_unused(view)) {
        fuse_view_give_back(mount, view);
        fuse_view_drop(node, file, view);
    }
    if (error != 0 && file != NULL && file->views == NULL && file->closing == 0) fuse_files_drop(node, file);
    return error;
}

bool fuse_files_wait(struct amfs_fuse *mount, const struct opening *opening) {
    return opening->copies && (opening->kind != FSIO_LOCAL || fsio_open_waits(mount->node->io, opening->ino, opening->truncate));
}

/* Called with the lock held; unlocks it meanwhile: this may wait for another node. */
static int make_handle(struct amfs_fuse *mount, const struct opening *opening) {
    struct node *node = mount->node;
    struct view *view = opening->view;
    struct fsio_handle *made = NULL, *stands = opening->writing ? view->writer : NULL;
    int error = 0;
    pthread_mutex_unlock(node->lock);
    /* A reader learns where the content is by now: another node may have written it since the first. */
    if (stands == NULL)
        error = fsio_open(node->io, opening->ino, opening->kind, opening->node, opening->stripe, opening->size, opening->writing,
                          opening->create, &made);
    if (made != NULL && fsio_losses(node->io) != opening->losses) fsio_known_since(made, opening->losses); /* a node has died meanwhile */
    if (made != NULL && opening->writing && !flushes(mount, fsio_kind(made))) fsio_write_through(made);
    if (error == 0 && opening->truncate && opening->writing) error = fsio_truncate(made != NULL ? made : stands, 0);
    pthread_mutex_lock(node->lock);
    struct fsio_handle **handle = opening->writing ? &view->writer : &view->reader;
    if (error == 0 && *handle == NULL) {
        *handle = made;
        made = NULL;
    }
    if (made != NULL) {
        pthread_mutex_unlock(node->lock);
        fsio_close(made);
        pthread_mutex_lock(node->lock);
    }
    return error;
}

/* Reads and writes without an open are counted as one use. */
static void count_implicit(struct node *node, struct file *file, struct view *view, bool writing) {
    if (view->implicit && (!writing || view->implicit_writing)) fuse_files_count(node, file, view, writing, -1);
    else if (view->implicit) fuse_files_count(node, file, view, false, -1); /* the reader becomes a writer */
    view->implicit = true;
    view->implicit_writing = view->implicit_writing || writing;
    view->used_ns = fuse_monotonic_ns();
}

static void say_how(const struct amfs_fuse *mount, const struct opening *opening, struct wire_open_out *out) {
    const struct view *view = opening->view;
    bool secured = opening->writing && meta_copies_wanted(mount->node->meta); /* closing may have to wait for other nodes */
    out->fh = FH_EXPLICIT | (opening->writing ? FH_WRITING : 0);
    out->flags = 0;
    out->backing = 0;
    if (view->passes) {
        out->flags = OPENED_PASSTHROUGH | (secured ? 0 : OPENED_NOFLUSH);
        out->backing = view->backing;
    } else if (fuse_view_kind(view) == FSIO_REMOTE || opening->appends || (written_elsewhere(opening->file, view) && !opening->writing)) {
        out->flags = OPENED_DIRECT_IO; /* it must see the writes of others */
    } else {
        out->flags = OPENED_KEEP_CACHE | (secured || (opening->writing && flushes(mount, fuse_view_kind(view))) ? 0 : OPENED_NOFLUSH);
    }
}

int fuse_files_finish(struct amfs_fuse *mount, struct opening *opening, struct wire_open_out *out) {
    struct node *node = mount->node;
    struct file *file = opening->file;
    int error = opening->copies ? make_handle(mount, opening) : 0;
    opening->view->busy--;
    if (error != 0) {
        /* Another writer here may have been closed meanwhile and have left it to us to say what was written. */
        bool owed = opening->beside && fuse_writers(file) == 1 && opening->view->writer == NULL;
        fuse_files_close_one(mount, file, opening->view, opening->writing);
        if (owed) fuse_slow_wrote(mount, opening->ino, false, NULL);
        return error;
    }
    if (opening->fresh) stamp_fresh(node, opening);
    if (opening->foreign) fuse_files_tell_loop(node, file);
    if (opening->direct) file->direct = file->direct_writing = true;
    if (opening->copied && !file->copied) {
        file->copied = true;
        atomic_fetch_add_explicit(&node->copied, 1, memory_order_relaxed);
    }
    if (opening->implicit) count_implicit(node, file, opening->view, opening->writing);
    else say_how(mount, opening, out);
    return 0;
}

int fuse_files_open(struct amfs_fuse *mount, struct opening *opening, struct wire_open_out *out) {
    int error = fuse_files_begin(mount, opening);
    return error == 0 ? fuse_files_finish(mount, opening, out) : error;
}
