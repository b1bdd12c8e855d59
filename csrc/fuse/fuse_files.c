/* Open files: who has what open, how the kernel gets at the bytes, and what the record is told at the end. */
#include "fuse_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ── the table ── with the node's lock held */

static struct file **bucket_of(struct node *node, uint64_t ino) { return &node->files[(ino * 0x9E3779B97F4A7C15u >> 40) % FILE_BUCKETS]; }

struct file *fuse_files_find(struct node *node, uint64_t ino) {
    struct file *file = *bucket_of(node, ino);
    while (file != NULL && file->ino != ino) file = file->next;
    return file;
}

struct view *fuse_files_view(const struct file *file, const struct amfs_fuse *mount, uint8_t edition) {
    struct view *view = file->views;
    while (view != NULL && (view->mount != mount || view->edition != edition)) view = view->next;
    return view;
}

static struct file *add_file(struct node *node, uint64_t ino) {
    struct file *file = node->spare_files;
    if (file != NULL) node->spare_files = file->next;
    else if ((file = malloc(sizeof *file)) == NULL) return NULL;
    struct file **at = bucket_of(node, ino);
    *file = (struct file){.next = *at, .ino = ino};
    *at = file;
    return file;
}

static void drop_file(struct node *node, struct file *file) {
    if (file->copied) atomic_fetch_sub_explicit(&node->copied, 1, memory_order_relaxed);
    struct file **at = bucket_of(node, file->ino);
    while (*at != file) at = &(*at)->next;
    *at = file->next;
    file->next = node->spare_files;
    node->spare_files = file;
}

static struct view *implicit_view(const struct file *file, const struct amfs_fuse *mount) {
    struct view *view = file->views;
    while (view != NULL && (view->mount != mount || !view->implicit)) view = view->next;
    return view;
}

static struct view *add_view(struct file *file, struct amfs_fuse *mount, uint8_t edition) {
    struct node *node = mount->node;
    struct view *view = node->spare_views;
    if (view != NULL) node->spare_views = view->next;
    else if ((view = malloc(sizeof *view)) == NULL) return NULL;
    *view = (struct view){.next = file->views, .mount = mount, .edition = edition};
    file->views = view;
    return view;
}

static void drop_view(struct node *node, struct file *file, struct view *view) {
    struct view **at = &file->views;
    while (*at != view) at = &(*at)->next;
    *at = view->next;
    view->next = node->spare_views;
    node->spare_views = view;
}

static bool is_unused(const struct view *view) { return view->readers == 0 && view->writers == 0; }

/* ── parts ── */

int fuse_files_part_stat(struct node *node, uint64_t ino, struct stat *found) {
    char path[64];
    int error = fsio_part_path(node->io, ino, FSIO_WHOLE, path, sizeof path);
    if (error == 0 && fstatat(node->root, path, found, 0) != 0) error = errno;
    return error;
}

void fuse_files_put_stat(struct node *node, struct meta_attr *attr, const struct stat *found) {
    attr->size = (uint64_t)found->st_size;
    attr->blocks = (uint64_t)found->st_blocks;
    attr->atime = ns_of(found->st_atim);
    attr->mtime = ns_of(found->st_mtim);
    if (ns_of(found->st_ctim) > attr->ctime) attr->ctime = ns_of(found->st_ctim);
    fuse_seen_time(node, attr->ctime);
}

/* What it is by now: since it was opened it may have grown into stripes, or been opened once more when another node did not write it any longer. */
static enum fsio_kind kind_of(const struct view *view) {
    return view->writer != NULL ? fsio_kind(view->writer) : view->reader != NULL ? fsio_kind(view->reader) : view->kind;
}

enum fsio_kind fuse_files_written_as(struct node *node, const struct meta_attr *attr) {
    bool ours =
        !attr->finished && attr->writer == node->id; /* others may write it through here, or the news that it was closed is on its way */
    if (!ours && atomic_load_explicit(&node->writing, memory_order_relaxed) == 0) return FSIO_REMOTE;
    pthread_mutex_lock(&node->lock);
    const struct file *file = fuse_files_find(node, attr->ino);
    const struct view *view = file == NULL || file->writers == 0 ? NULL : file->views;
    while (view != NULL && view->writers == 0) view = view->next;
    bool written = view != NULL;
    enum fsio_kind kind = written ? kind_of(view) : FSIO_LOCAL;
    pthread_mutex_unlock(&node->lock);
    if (written) return kind;
    return !ours ? FSIO_REMOTE : attr->layout == META_STRIPED ? FSIO_STRIPED : FSIO_LOCAL;
}

int fuse_files_overlay(struct node *node, struct meta_attr *attr, bool waiting) {
    struct stat found;
    int64_t ctime = attr->ctime;
    enum fsio_kind kind = fuse_files_written_as(node, attr);
    if (kind == FSIO_REMOTE) return 0;
    if (kind == FSIO_LOCAL && fuse_files_part_stat(node, attr->ino, &found) == 0) {
        fuse_files_put_stat(node, attr, &found);
        return 1;
    }
    if (!waiting) return -1; /* in stripes, perhaps since a moment ago */
    int64_t atime = 0, mtime = 0;
    int error = fsio_live(node->io, attr->ino, &attr->size, &attr->blocks, &atime, &mtime, &ctime);
    if (error == ENOENT) { /* closed by now: the record has been told what was written, and still says that it is not finished */
        meta_getattr(node->meta, attr->ino, node->id, attr);
        return 0;
    }
    if (error != 0) return 0;
    if (atime != 0) attr->atime = atime;
    if (mtime != 0) attr->mtime = mtime;
    if (ctime > attr->ctime) attr->ctime = ctime;
    return 1;
}

/* ── opening ── */

/* Has the kernel a part of it that is not, or not any more, what is to be opened? It takes no other, and nothing but that, while somebody has it. */
static bool has_old(struct node *node, const struct view *view, const struct opening *opening) {
    struct stat found;
    char path[64];
    return view->backing > 0 &&
           (opening->kind != FSIO_LOCAL || fsio_part_path(node->io, opening->ino, FSIO_WHOLE, path, sizeof path) != 0 ||
            fstatat(node->root, path, &found, AT_SYMLINK_NOFOLLOW) != 0 || found.st_ino != view->part);
}

/* Give the part to the kernel. The descriptor is needed only for a moment. */
static int pass(struct amfs_fuse *mount, struct view *view, const struct opening *opening) {
    char path[64];
    struct stat found;
    int error = fsio_part_path(mount->node->io, opening->ino, FSIO_WHOLE, path, sizeof path);
    if (error != 0) return error;
    if (view->backing > 0 && !opening->truncate) return 0;
    if (opening->create && fsio_grown(mount->node->io, opening->ino)) return EAGAIN;
    /* To be read, whatever the kernel opens it for: who writes it is to be seen by that (digests_writers). O_TRUNC cuts it all the same. */
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

static void give_back(struct amfs_fuse *mount, struct view *view) {
    uint32_t backing = (uint32_t)view->backing;
    if (view->backing > 0) ioctl(mount->fd, WIRE_BACKING_CLOSE, &backing);
    view->backing = 0;
}

/* An empty file may have no part yet: what is made for it has the times of the record. */
static bool lacks_part(struct node *node, const struct opening *opening) {
    struct stat found;
    return opening->stamp && fuse_files_part_stat(node, opening->ino, &found) == ENOENT;
}

bool fuse_files_have_empty(struct node *node, const struct meta_attr *attr) {
    struct stat found;
    char path[64];
    if (fsio_part_path(node->io, attr->ino, FSIO_WHOLE, path, sizeof path) != 0) return false;
    int fd = openat(node->root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return errno == EEXIST && fuse_files_part_stat(node, attr->ino, &found) == 0 && found.st_size == 0;
    close(fd);
    fuse_stamp_whole(node, attr->ino, META_SET_ATIME | META_SET_MTIME, attr);
    return true;
}

static void stamp_fresh(struct node *node, const struct opening *opening) {
    struct meta_attr attr = {.atime = opening->atime, .mtime = opening->mtime};
    fuse_stamp_whole(node, opening->ino, META_SET_ATIME | META_SET_MTIME, &attr);
}

static void count(struct node *node, struct file *file, struct view *view, bool writing, int by) {
    *(writing ? &view->writers : &view->readers) += (uint32_t)by;
    *(writing ? &file->writers : &file->readers) += (uint32_t)by;
    if (!writing) return;
    atomic_fetch_add_explicit(&node->writing, (unsigned)by, memory_order_relaxed);
    if (by > 0) fsio_writing_begins(node->io, file->ino);
    else fsio_writing_ends(node->io, file->ino);
}

int fuse_files_begin(struct amfs_fuse *mount, struct opening *opening) {
    struct node *node = mount->node;
    int error = ENOMEM;
    struct file *file = fuse_files_find(node, opening->ino);
    if (file == NULL && (file = add_file(node, opening->ino)) != NULL) file->atime = opening->atime;
    struct view *view = file == NULL ? NULL : fuse_files_view(file, mount, opening->edition);
    if (view != NULL && !opening->implicit && has_old(node, view, opening)) {
        fuse_inode_next_edition(mount, opening->ino, opening->edition);
        return FILE_HAS_OLD;
    }
    if (view == NULL && file != NULL) view = add_view(file, mount, opening->edition);
    if (view != NULL) {
        if (is_unused(view)) {
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
        opening->beside = opening->writing && file->writers > 0;
        opening->losses = fsio_losses(node->io);
        count(node, file, view, opening->writing, 1);
        view->busy++; /* it stays, whoever closes what */
    } else if (view != NULL && is_unused(view)) {
        give_back(mount, view);
        drop_view(node, file, view);
    }
    if (error != 0 && file != NULL && file->views == NULL && file->pins == 0) drop_file(node, file);
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
    pthread_mutex_unlock(&node->lock);
    /* Who reads learns where the content is by now: another node may have written it since the first. */
    if (stands == NULL)
        error = fsio_open(node->io, opening->ino, opening->kind, opening->node, opening->stripe, opening->size, opening->writing,
                          opening->create, &made);
    if (made != NULL && fsio_losses(node->io) != opening->losses) fsio_known_since(made, opening->losses); /* a node has died meanwhile */
    if (made != NULL && opening->writing && !flushes(mount, fsio_kind(made))) fsio_write_through(made);
    if (error == 0 && opening->truncate && opening->writing) error = fsio_truncate(made != NULL ? made : stands, 0);
    pthread_mutex_lock(&node->lock);
    struct fsio_handle **handle = opening->writing ? &view->writer : &view->reader;
    if (error == 0 && *handle == NULL) {
        *handle = made;
        made = NULL;
    }
    if (made != NULL) {
        pthread_mutex_unlock(&node->lock);
        fsio_close(made);
        pthread_mutex_lock(&node->lock);
    }
    return error;
}

/* What stands for reads and writes without an open is counted once. */
static void count_implicit(struct node *node, struct file *file, struct view *view, bool writing) {
    if (view->implicit && (!writing || view->implicit_writing)) count(node, file, view, writing, -1);
    else if (view->implicit) count(node, file, view, false, -1); /* the reader becomes a writer */
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
    } else if (kind_of(view) == FSIO_REMOTE || opening->appends || (written_elsewhere(opening->file, view) && !opening->writing)) {
        out->flags = OPENED_DIRECT_IO; /* what others write must be seen */
    } else {
        out->flags = OPENED_KEEP_CACHE | (secured || (opening->writing && flushes(mount, kind_of(view))) ? 0 : OPENED_NOFLUSH);
    }
}

int fuse_files_finish(struct amfs_fuse *mount, struct opening *opening, struct wire_open_out *out) {
    struct node *node = mount->node;
    struct file *file = opening->file;
    int error = opening->copies ? make_handle(mount, opening) : 0;
    opening->view->busy--;
    if (error != 0) {
        /* Another writer here may have been closed meanwhile and have left it to us to say what was written. */
        bool owed = opening->beside && file->writers == 1 && opening->view->writer == NULL;
        fuse_files_close_one(mount, file, opening->view, opening->writing);
        if (owed) fuse_slow_tell(mount, FUSE_OP_CLOSED, opening->ino, true, NULL);
        return error;
    }
    if (opening->fresh) stamp_fresh(node, opening);
    if (opening->foreign) file->foreign = true;
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

/* ── closing ── */

/* Is nobody left on this node who uses it? */
static bool is_unused_here(struct node *node, uint64_t ino) {
    int readers, writers;
    if (fuse_inodes_held(node, ino)) return false;
    fsio_open_count(node->io, ino, &readers, &writers);
    return readers + writers == 0;
}

/* The last handle of a writer is closed: the record is told what the data says. With the lock held. */
static void finish_writing(struct amfs_fuse *mount, struct file *file, struct meta_attr *said, bool direct) {
    struct node *node = mount->node;
    struct meta_attr out;
    struct stat found;
    int readers, writers, error = META_NOT_MINE;
    fsio_open_count(node->io, file->ino, &readers, &writers);
    if (writers > 0) { /* other nodes or faces write it still, and finish later: the poll loop sees to it that one of us does */
        fuse_slow_tell(mount, FUSE_OP_CLOSED, file->ino, true, said);
        file->foreign = true;
        return;
    }
    /* Another node may have come while our handle was open, have written and have gone since its end was looked at. */
    if (direct && fuse_files_part_stat(node, file->ino, &found) == 0) fuse_files_put_stat(node, said, &found);
    file->atime = said->atime;
    if (fsio_losses(node->io) > 0 && fsio_lost(node->io, file->ino)) said->finished = META_LOST; /* with a node that had some of it */
    meta_closing(node->meta, file->ino); /* nobody opens it between this and what is told */
    if (direct) error = meta_wrote(node->meta, file->ino, node->id, said, &out, NULL);
    if (error == 0) fsio_end_recorded(node->io, file->ino);
    if (error == META_NOT_MINE && direct && file->direct && !file->foreign) {
        bool last = file->views == NULL && file->pins == 0 && is_unused_here(node, file->ino);
        if (peer_meta_closed(mount, file->ino, said, !last)) {
            file->told = last;
            error = 0;
        }
    }
    if (error == META_NOT_MINE || error == META_BUSY || error == EPERM) {
        fuse_slow_tell(mount, FUSE_OP_CLOSED, file->ino, true, said);
        file->foreign = true; /* that it is not used any more must be told on the same way, not before */
    }
    meta_closed(node->meta, file->ino);
    fuse_notify_others(mount, file->ino, true);
}

/* Reading has left its mark on the part: the record gets it when nobody uses the part any more. */
static void note_atime(struct node *node, struct file *file) {
    struct stat found;
    struct meta_attr attr, out;
    if (fuse_files_part_stat(node, file->ino, &found) != 0 || ns_of(found.st_atim) == file->atime) return;
    if (meta_getattr(node->meta, file->ino, node->id, &attr) != 0) return;
    attr.atime = ns_of(found.st_atim);
    meta_setattr_here(node->meta, file->ino, META_SET_ATIME | META_SET_CTIME, &attr, attr.ctime, &out);
}

/* Must the poll loop say that nobody here uses it? If nobody has said what was written here, or the file has no name and others hold its content. */
static bool concerns_others(struct node *node, uint64_t ino) {
    struct meta_attr attr;
    struct meta_nodes holders = {NULL, 0, 0};
    bool elsewhere = false;
    if (meta_getattr(node->meta, ino, node->id, &attr) != 0) return false;
    if (attr.writer == node->id) return true;
    if (attr.nlink > 0 || is_alone(node)) return false;
    if (attr.layout == META_STRIPED) return true;
    if (meta_holders(node->meta, ino, &holders) == 0)
        for (size_t i = 0; i < holders.count; i++) elsewhere = elsewhere || holders.nodes[i] != node->id;
    free(holders.nodes);
    return elsewhere;
}

/* With the lock held. `direct`: its shard was asked directly. */
static void unused(struct amfs_fuse *mount, uint64_t ino, bool foreign, bool direct) {
    struct node *node = mount->node;
    bool gone = false;
    if (!is_unused_here(node, ino)) return;
    foreign = foreign || concerns_others(node, ino);
    int error = foreign ? META_NOT_MINE : meta_unused(node->meta, ino, node->id, &gone);
    if (error == 0 && gone) fsio_part_delete(node->io, ino);
    if (foreign || (direct && error == META_NOT_MINE && !peer_meta_closed(mount, ino, NULL, false)))
        fuse_slow_tell(mount, FUSE_OP_CLOSED, ino, false, NULL);
}

void fuse_forget_unused(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->node->lock);
    bool here = meta_owner(mount->node->meta, meta_ino_partition(mount->node->meta, ino)) == mount->node->id;
    if (fuse_files_find(mount->node, ino) == NULL) unused(mount, ino, !here, false);
    pthread_mutex_unlock(&mount->node->lock);
}

void fuse_files_close_one(struct amfs_fuse *mount, struct file *file, struct view *view, bool writing) {
    struct node *node = mount->node;
    struct meta_attr said = {.ino = file->ino};
    struct stat found;
    bool known = false, passed = view->passes, stayed = kind_of(view) == FSIO_LOCAL; /* stayed: it was not laid in stripes meanwhile */
    count(node, file, view, writing, -1);
    if (writing && passed && file->writers == 0 && fuse_files_part_stat(node, file->ino, &found) == 0) {
        fuse_files_put_stat(node, &said, &found);
        known = true;
    }
    struct fsio_handle *writer = NULL, *reader = NULL;
    if (view->writers == 0) {
        writer = view->writer;
        view->writer = NULL;
    }
    if (is_unused(view)) {
        reader = view->reader;
        view->reader = NULL;
        give_back(mount, view);
        drop_view(node, file, view);
    }
    if (writer != NULL || reader != NULL) {
        file->pins++;
        pthread_mutex_unlock(&node->lock);
        if (writer != NULL) {
            known = fsio_stat(writer, &said.size, &said.blocks, &said.atime, &said.mtime, &said.ctime) == 0;
            stayed = stayed && fsio_is_local(writer);
            if (known && !stayed) meta_said(node->meta, file->ino, node->id, &said); /* from here on nobody else knows */
            fsio_close(writer);
        }
        if (reader != NULL) fsio_close(reader);
        pthread_mutex_lock(&node->lock);
        file->pins--;
    }
    if (file->direct_writing && file->writers == 0) {
        meta_use_directly(node->meta, file->ino, 0, -1);
        file->direct_writing = false;
    }
    if (writing && file->writers == 0 && known) finish_writing(mount, file, &said, passed || stayed || is_alone(node));
    if (file->views == NULL && file->pins == 0) {
        if (!writing) note_atime(node, file);
        bool foreign = file->foreign, direct = file->direct, told = file->told;
        uint64_t ino = file->ino;
        drop_file(node, file);
        if (direct) meta_use_directly(node->meta, ino, -1, 0);
        if (!told) unused(mount, ino, foreign, direct);
    }
}

bool fuse_files_pass(struct amfs_fuse *mount, uint64_t ino, uint8_t edition) {
    struct node *node = mount->node;
    pthread_mutex_lock(&node->lock);
    struct file *file = fuse_files_find(node, ino);
    const struct view *view = file == NULL ? NULL : fuse_files_view(file, mount, edition);
    bool passes =
        view != NULL && view->kind == FSIO_LOCAL && view->passes && !has_old(node, view, &(struct opening){.ino = ino, .kind = FSIO_LOCAL});
    pthread_mutex_unlock(&node->lock);
    return passes;
}

bool fuse_files_peer(const struct view *view) { return kind_of(view) != FSIO_LOCAL; }

/* Close the implicit handles of a view, with the lock held. */
static void close_implicit(struct amfs_fuse *mount, struct file *file, struct view *view) {
    uint64_t ino = file->ino;
    bool writing = view->implicit_writing, noted = fuse_files_peer(view) && fuse_closing_begin(mount->node, ino);
    view->implicit = view->implicit_writing = false;
    fuse_files_close_one(mount, file, view, writing);
    if (noted) fuse_closing_end(mount->node, ino);
}

bool fuse_files_implicit(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->node->lock);
    struct file *file = fuse_files_find(mount->node, ino);
    bool implicit = file != NULL && (implicit_view(file, mount) != NULL || fuse_mapped_view(file, mount) != NULL);
    pthread_mutex_unlock(&mount->node->lock);
    return implicit;
}

bool fuse_files_forget(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->node->lock);
    struct file *file = fuse_files_find(mount->node, ino);
    struct view *view = file == NULL ? NULL : implicit_view(file, mount);
    bool idle = view == NULL || view->busy == 0;
    if (view != NULL && idle) close_implicit(mount, file, view);
    file = fuse_files_find(mount->node, ino);
    if (file != NULL && (view = fuse_mapped_view(file, mount)) != NULL) fuse_mapped_close(mount, file, view);
    pthread_mutex_unlock(&mount->node->lock);
    return idle;
}

void fuse_files_sweep(struct amfs_fuse *mount) {
    struct node *node = mount->node;
    int64_t now = fuse_monotonic_ns();
    pthread_mutex_lock(&node->lock);
    for (size_t i = 0; i < FILE_BUCKETS; i++) {
        for (struct file *next, *file = node->files[i]; file != NULL; file = next) {
            struct view *view = fuse_mapped_view(file, mount);
            next = file->next;
            if (view != NULL && fuse_mapped_close(mount, file, view)) break;
            view = implicit_view(file, mount);
            if (view == NULL || view->busy > 0 || now - view->used_ns < IDLE_NS) continue;
            close_implicit(mount, file, view);
            break; /* the lock may have been given up: the chain may be another one now. What is left is for the next time */
        }
    }
    pthread_mutex_unlock(&node->lock);
}

void fuse_files_end(struct amfs_fuse *mount) {
    struct node *node = mount->node;
    pthread_mutex_lock(&node->lock);
    for (size_t i = 0; i < FILE_BUCKETS; i++) {
        for (struct file *file = node->files[i]; file != NULL;) {
            struct view *view = file->views;
            while (view != NULL && view->mount != mount) view = view->next;
            if (view == NULL) {
                file = file->next;
                continue;
            }
            if (view->mapped) fuse_notify_mapped(mount, -1);
            view->implicit = view->implicit_writing = view->mapped = false;
            fuse_files_close_one(mount, file, view, view->writers > 0);
            file = node->files[i];
        }
    }
    pthread_mutex_unlock(&node->lock);
}

bool amfs_fuse_keep(struct amfs_fuse *mount, uint64_t ino) {
    struct node *node = mount->node;
    pthread_mutex_lock(&node->lock);
    struct file *file = fuse_files_find(node, ino);
    if (file != NULL) file->foreign = true;
    pthread_mutex_unlock(&node->lock);
    return fuse_inodes_keep(node, ino) || file != NULL;
}

bool fuse_files_known(struct node *node, uint64_t ino) {
    struct timespec pause = {.tv_nsec = 100000};
    for (int tries = 0; tries < 100; tries++, nanosleep(&pause, NULL)) { /* who has the lock may wait for who asks */
        if (pthread_mutex_trylock(&node->lock) != 0) continue;
        bool known = fuse_files_find(node, ino) != NULL;
        pthread_mutex_unlock(&node->lock);
        return known;
    }
    return true;
}

void amfs_fuse_open_count(struct amfs_fuse *mount, uint64_t ino, int *readers, int *writers) {
    pthread_mutex_lock(&mount->node->lock);
    struct file *file = fuse_files_find(mount->node, ino);
    *readers = *writers = 0;
    if (file != NULL) file->foreign = true;
    for (const struct view *view = file == NULL ? NULL : file->views; view != NULL; view = view->next) {
        if (view->reader == NULL) *readers += (int)view->readers; /* passed, or being opened */
        if (view->writer == NULL) *writers += (int)view->writers;
    }
    pthread_mutex_unlock(&mount->node->lock);
}
