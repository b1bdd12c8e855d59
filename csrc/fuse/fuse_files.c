/* The table of open files: users of each, and sizes and times of their parts. Opening is fuse_opening.c, closing fuse_release.c. */
#include "fuse_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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

struct file *fuse_files_add(struct node *node, uint64_t ino) {
    struct open_record *open = opens_mount(node->opens, ino);
    if (open == NULL) return NULL;
    struct file *file = node->spare_files;
    if (file != NULL) {
        node->spare_files = file->next;
    } else if ((file = malloc(sizeof *file)) == NULL) {
        opens_unmount(node->opens, open);
        return NULL;
    }
    struct file **at = bucket_of(node, ino);
    *file = (struct file){.next = *at, .ino = ino, .open = open};
    *at = file;
    return file;
}

void fuse_files_drop(struct node *node, struct file *file) {
    if (file->copied) atomic_fetch_sub_explicit(&node->copied, 1, memory_order_relaxed);
    struct file **at = bucket_of(node, file->ino);
    while (*at != file) at = &(*at)->next;
    *at = file->next;
    opens_unmount(node->opens, file->open);
    file->next = node->spare_files;
    node->spare_files = file;
}

struct view *fuse_view_implicit(const struct file *file, const struct amfs_fuse *mount) {
    struct view *view = file->views;
    while (view != NULL && (view->mount != mount || !view->implicit)) view = view->next;
    return view;
}

struct view *fuse_view_add(struct file *file, struct amfs_fuse *mount, uint8_t edition) {
    struct node *node = mount->node;
    struct view *view = node->spare_views;
    if (view != NULL) node->spare_views = view->next;
    else if ((view = malloc(sizeof *view)) == NULL) return NULL;
    *view = (struct view){.next = file->views, .mount = mount, .edition = edition};
    file->views = view;
    return view;
}

void fuse_view_drop(struct node *node, struct file *file, struct view *view) {
    struct view **at = &file->views;
    while (*at != view) at = &(*at)->next;
    *at = view->next;
    view->next = node->spare_views;
    node->spare_views = view;
}

bool fuse_view_is_unused(const struct view *view) { return view->readers == 0 && view->writers == 0; }

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

/* The present kind: since it was opened it may have grown into stripes, or been opened once more when another node did not write it any longer. */
enum fsio_kind fuse_view_kind(const struct view *view) {
    return view->writer != NULL ? fsio_kind(view->writer) : view->reader != NULL ? fsio_kind(view->reader) : view->kind;
}

enum fsio_kind fuse_files_written_as(struct node *node, const struct meta_attr *attr) {
    bool ours =
        !attr->finished && attr->writer == node->id; /* others may write it through here, or the news that it was closed is on its way */
    if (!ours && atomic_load_explicit(&node->writing, memory_order_relaxed) == 0) return FSIO_REMOTE;
    pthread_mutex_lock(node->lock);
    const struct file *file = fuse_files_find(node, attr->ino);
    const struct view *view = file == NULL || fuse_writers(file) == 0 ? NULL : file->views;
    while (view != NULL && view->writers == 0) view = view->next;
    bool written = view != NULL;
    enum fsio_kind kind = written ? fuse_view_kind(view) : FSIO_LOCAL;
    pthread_mutex_unlock(node->lock);
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
bool fuse_view_has_old(struct node *node, const struct view *view, const struct opening *opening) {
    struct stat found;
    char path[64];
    return view->backing > 0 &&
           (opening->kind != FSIO_LOCAL || fsio_part_path(node->io, opening->ino, FSIO_WHOLE, path, sizeof path) != 0 ||
            fstatat(node->root, path, &found, AT_SYMLINK_NOFOLLOW) != 0 || found.st_ino != view->part);
}

void fuse_view_give_back(struct amfs_fuse *mount, struct view *view) {
    uint32_t backing = (uint32_t)view->backing;
    if (view->backing > 0) ioctl(mount->fd, WIRE_BACKING_CLOSE, &backing);
    view->backing = 0;
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

void fuse_files_count(struct node *node, struct file *file, struct view *view, bool writing, int by) {
    *(writing ? &view->writers : &view->readers) += (uint32_t)by;
    opens_count(node->opens, file->open, OPEN_MOUNTS, writing, by);
    if (!writing) return;
    atomic_fetch_add_explicit(&node->writing, (unsigned)by, memory_order_relaxed);
    if (by > 0) fsio_writing_begins(node->io, file->ino);
    else fsio_writing_ends(node->io, file->ino);
}

void fuse_files_tell_loop(struct node *node, struct file *file) { opens_tell_loop(node->opens, file->open); }

/* ── closing ── */

bool fuse_files_pass(struct amfs_fuse *mount, uint64_t ino, uint8_t edition) {
    struct node *node = mount->node;
    pthread_mutex_lock(node->lock);
    struct file *file = fuse_files_find(node, ino);
    const struct view *view = file == NULL ? NULL : fuse_files_view(file, mount, edition);
    bool passes = view != NULL && view->kind == FSIO_LOCAL && view->passes &&
                  !fuse_view_has_old(node, view, &(struct opening){.ino = ino, .kind = FSIO_LOCAL});
    pthread_mutex_unlock(node->lock);
    return passes;
}

bool fuse_files_peer(const struct view *view) { return fuse_view_kind(view) != FSIO_LOCAL; }

bool amfs_fuse_keep(struct amfs_fuse *mount, uint64_t ino) {
    struct node *node = mount->node;
    pthread_mutex_lock(node->lock);
    struct file *file = fuse_files_find(node, ino);
    if (file != NULL) fuse_files_tell_loop(node, file);
    pthread_mutex_unlock(node->lock);
    return fuse_inodes_keep(node, ino) || file != NULL;
}

bool fuse_files_made(struct node *node, uint64_t ino) {
    if (atomic_load_explicit(&node->writing, memory_order_relaxed) == 0) return false;
    pthread_mutex_lock(node->lock);
    const struct file *file = fuse_files_find(node, ino);
    bool made = file != NULL && file->direct_writing;
    pthread_mutex_unlock(node->lock);
    return made;
}

bool fuse_files_known(struct node *node, uint64_t ino) {
    struct timespec pause = {.tv_nsec = 100000};
    for (int tries = 0; tries < 100; tries++, nanosleep(&pause, NULL)) { /* the holder of the lock may wait for the caller */
        if (pthread_mutex_trylock(node->lock) != 0) continue;
        bool known = fuse_files_find(node, ino) != NULL;
        pthread_mutex_unlock(node->lock);
        return known;
    }
    return true;
}

/* The part of a file here has the same times as the record: later writes start from them. Looked at before and after, the part is stamped by
 * the kernel's finest clock: its change comes after whatever was written before, and before whatever is written later. */
int64_t fuse_stamp_whole(struct node *node, uint64_t ino, unsigned mask, const struct meta_attr *attr) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    struct stat looked;
    uint32_t ns;
    char path[64];
    if (mask & META_SET_ATIME) {
        times[0].tv_sec = (time_t)fuse_seconds_of(attr->atime, &ns);
        times[0].tv_nsec = ns;
    }
    if (mask & META_SET_MTIME) {
        times[1].tv_sec = (time_t)fuse_seconds_of(attr->mtime, &ns);
        times[1].tv_nsec = ns;
    }
    bool stamped = fsio_part_path(node->io, ino, FSIO_WHOLE, path, sizeof path) == 0 && fstatat(node->root, path, &looked, 0) == 0 &&
                   utimensat(node->root, path, times, 0) == 0 &&
                   fstatat(node->root, path, &looked, 0) == 0; /* where it lies, if it is spilled */
    return stamped ? ns_of(looked.st_ctim) : 0;
}
