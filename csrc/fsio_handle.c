/* Handles and the files behind them; files whose content is here. */
#include "fsio_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* ── the table of active files ── */

static struct fsio_file **bucket_of(struct fsio *io, uint64_t ino) {
    return &io->files[(ino * 0x9E3779B97F4A7C15u >> 40) % FSIO_FILE_BUCKETS];
}

/* With files_lock held. */
static struct fsio_file *look(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = *bucket_of(io, ino);
    while (file != NULL && file->ino != ino) file = file->next;
    return file;
}

struct fsio_file *fsio_file_find(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = look(io, ino);
    if (file != NULL) file->references++;
    pthread_mutex_unlock(&io->files_lock);
    return file;
}

static struct fsio_file *new_file(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = calloc(1, sizeof *file);
    pthread_rwlockattr_t fair;
    if (file == NULL) return NULL;
    file->io = io;
    file->ino = ino;
    file->fd = -1;
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP); /* readers in a row must not keep a truncation out */
    pthread_rwlock_init(&file->gate, &fair);
    pthread_rwlockattr_destroy(&fair);
    pthread_mutex_init(&file->lock, NULL);
    pthread_cond_init(&file->changed, NULL);
    return file;
}

static void close_fd(struct fsio_file *file) {
    close(file->fd);
    file->fd = -1;
    atomic_fetch_sub(&file->io->open_fds, 1);
}

static void free_file(struct fsio_file *file) {
    struct fsio *io = file->io;
    if (file->counted) {
        int64_t now = 0;
        char name[FSIO_NAME_BYTES];
        struct stat found;
        fsio_part_name(file->ino, FSIO_WHOLE, name);
        if (!file->gone && file->fd >= 0) now = fsio_allocated(file->fd);
        else if (!file->gone && fstatat(io->root_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0) now = (int64_t)found.st_blocks * 512;
        fsio_account(io, now - atomic_load(&file->accounted));
    }
    if (file->fd >= 0) close_fd(file);
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->lock);
    pthread_rwlock_destroy(&file->gate);
    free(file);
}

void fsio_file_drop(struct fsio_file *file) {
    struct fsio *io = file->io;
    pthread_mutex_lock(&io->files_lock);
    bool last = --file->references == 0;
    if (last) {
        struct fsio_file **at = bucket_of(io, file->ino);
        while (*at != file) at = &(*at)->next;
        *at = file->next;
    }
    pthread_mutex_unlock(&io->files_lock);
    if (last) free_file(file);
}

/* ── descriptors of local files ── not one for each that is open: the limit can be low */

/* Close what is not in use until there are few enough. With no lock held but files_lock. */
static void close_some(struct fsio *io) {
    for (int i = 0; i < FSIO_FILE_BUCKETS && atomic_load(&io->open_fds) > FSIO_OPEN_MAX / 2; i++) {
        for (struct fsio_file *file = io->files[i]; file != NULL; file = file->next) {
            if (pthread_mutex_trylock(&file->lock) != 0) continue;
            if (file->fd >= 0 && file->busy == 0 && !file->gone) close_fd(file);
            pthread_mutex_unlock(&file->lock);
        }
    }
}

int fsio_fd_get(struct fsio_file *file, bool create, int *fd) {
    struct fsio *io = file->io;
    int error = 0;
    pthread_mutex_lock(&file->lock);
    if (file->fd < 0) {
        int opened = file->gone ? -ENOENT : fsio_part_open(io, file->ino, FSIO_WHOLE, create);
        if (opened < 0) {
            error = -opened;
        } else {
            file->fd = opened;
            atomic_fetch_add(&io->open_fds, 1);
        }
    }
    if (error == 0) {
        file->busy++;
        *fd = file->fd;
    }
    pthread_mutex_unlock(&file->lock);
    if (error == 0 && atomic_load(&io->open_fds) > FSIO_OPEN_MAX) {
        pthread_mutex_lock(&io->files_lock);
        close_some(io);
        pthread_mutex_unlock(&io->files_lock);
    }
    return error;
}

void fsio_fd_put(struct fsio_file *file) {
    pthread_mutex_lock(&file->lock);
    file->busy--;
    pthread_mutex_unlock(&file->lock);
}

bool fsio_file_deleted(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = fsio_file_find(io, ino);
    int fd;
    if (file == NULL) return false;
    if (file->kind == FSIO_LOCAL && fsio_fd_get(file, false, &fd) == 0) {
        pthread_mutex_lock(&file->lock);
        file->gone = true;
        file->busy--;
        pthread_mutex_unlock(&file->lock);
    }
    fsio_file_drop(file);
    return true;
}

/* ── local files ── */

static int local_open(struct fsio_file *file, bool create) {
    struct stat found;
    int fd, error = fsio_fd_get(file, create, &fd);
    if (error != 0) return error;
    pthread_mutex_lock(&file->lock);
    if (!file->counted && fstat(fd, &found) == 0) {
        atomic_store(&file->size, (uint64_t)found.st_size);
        atomic_store(&file->accounted, (int64_t)found.st_blocks * 512);
        file->counted = true;
    }
    pthread_mutex_unlock(&file->lock);
    fsio_fd_put(file);
    return 0;
}

static int local_read(struct fsio_file *file, char *to, size_t count, uint64_t offset, size_t *got) {
    int fd, error = fsio_fd_get(file, false, &fd);
    if (error != 0) return error;
    while (*got < count) {
        ssize_t more = pread(fd, to + *got, count - *got, (off_t)(offset + *got));
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) error = errno;
        if (more <= 0) break;
        *got += (size_t)more;
    }
    fsio_fd_put(file);
    return error;
}

/* Count what a write up to `end` may add. False: over the limit. */
static bool local_grow(struct fsio_file *file, uint64_t offset, uint64_t end) {
    uint64_t size = atomic_load(&file->size);
    while (end > size) {
        uint64_t more = end - (offset > size ? offset : size);
        if (!fsio_room(file->io, more)) return false;
        if (!atomic_compare_exchange_weak(&file->size, &size, end)) continue;
        atomic_fetch_add(&file->accounted, (int64_t)more);
        fsio_account(file->io, (int64_t)more);
        return true;
    }
    return true;
}

/* `*done` says how far it came. */
static int local_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset, size_t *done) {
    int fd, error = fsio_fd_get(file, false, &fd);
    bool append = offset == FSIO_APPEND;
    if (error != 0) return error;
    if (!local_grow(file, append ? atomic_load(&file->size) : offset + *done, (append ? atomic_load(&file->size) + count : offset + count)))
        error = ENOSPC;
    while (error == 0 && *done < count) {
        struct iovec piece = {(void *)(uintptr_t)(from + *done), count - *done};
        ssize_t put = append ? pwritev2(fd, &piece, 1, -1, RWF_APPEND) : pwrite(fd, piece.iov_base, piece.iov_len, (off_t)(offset + *done));
        if (put < 0 && errno != EINTR) error = errno;
        if (put > 0) *done += (size_t)put;
    }
    fsio_fd_put(file);
    return error;
}

static void recount(struct fsio_file *file, int fd) {
    struct stat found;
    if (fstat(fd, &found) != 0) return;
    int64_t now = (int64_t)found.st_blocks * 512;
    atomic_store(&file->size, (uint64_t)found.st_size);
    fsio_account(file->io, now - atomic_exchange(&file->accounted, now));
}

static int local_truncate(struct fsio_file *file, uint64_t size) {
    int fd, error = fsio_fd_get(file, false, &fd);
    if (error != 0) return error;
    if (ftruncate(fd, (off_t)size) != 0) error = errno;
    recount(file, fd);
    fsio_fd_put(file);
    return error;
}

static int local_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length) {
    int fd, error = fsio_fd_get(file, false, &fd);
    if (error != 0) return error;
    if ((mode & FALLOC_FL_PUNCH_HOLE) == 0 && !fsio_room(file->io, length)) error = ENOSPC;
    else if (fallocate(fd, mode, (off_t)offset, (off_t)length) != 0) error = errno;
    recount(file, fd);
    fsio_fd_put(file);
    return error;
}

static int local_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found) {
    int fd, error = fsio_fd_get(file, false, &fd);
    if (error != 0) return error;
    off_t at = lseek(fd, (off_t)offset, whence); /* the descriptor's own position is used by nobody */
    if (at < 0) error = errno;
    else *found = (uint64_t)at;
    fsio_fd_put(file);
    return error;
}

static int64_t nanoseconds(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

static int local_stat(struct fsio_file *file, struct fsio_stat *stat) {
    struct stat found;
    int fd, error = fsio_fd_get(file, false, &fd);
    if (error != 0) return error;
    if (fstat(fd, &found) != 0) error = errno;
    else *stat = (struct fsio_stat){(uint64_t)found.st_size, (uint64_t)found.st_blocks, nanoseconds(found.st_atim),
                                    nanoseconds(found.st_mtim), nanoseconds(found.st_ctim)};
    fsio_fd_put(file);
    return error;
}

/* ── opening and closing ── */

int fsio_open(struct fsio *io, uint64_t ino, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size, bool writing, bool create,
              struct fsio_handle **handle) {
    struct fsio_handle *made = calloc(1, sizeof *made);
    struct fsio_file *fresh = new_file(io, ino);
    int error = 0;
    if (made == NULL || fresh == NULL || kind != FSIO_LOCAL) {
        free(made);
        if (fresh != NULL) free_file(fresh);
        return kind != FSIO_LOCAL ? EOPNOTSUPP : ENOMEM;
    }
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = look(io, ino);
    if (file == NULL) {
        file = fresh;
        fresh = NULL;
        file->kind = kind;
        file->node = node;
        file->stripe = stripe;
        file->next = *bucket_of(io, ino);
        *bucket_of(io, ino) = file;
        atomic_store(&file->size, size);
    }
    file->references++;
    pthread_mutex_unlock(&io->files_lock);
    if (fresh != NULL) free_file(fresh);
    error = local_open(file, create);
    if (error != 0) {
        fsio_file_drop(file);
        free(made);
        return error;
    }
    pthread_mutex_lock(&file->lock);
    *(writing ? &file->writers : &file->readers) += 1;
    pthread_mutex_unlock(&file->lock);
    *made = (struct fsio_handle){.file = file, .writing = writing, .errors_seen = file->error_count};
    *handle = made;
    return 0;
}

int fsio_close(struct fsio_handle *handle) {
    struct fsio_file *file = handle->file;
    int error = fsio_flush(handle);
    pthread_mutex_lock(&file->lock);
    *(handle->writing ? &file->writers : &file->readers) -= 1;
    pthread_mutex_unlock(&file->lock);
    fsio_file_drop(file);
    free(handle);
    return error;
}

int fsio_open_count(struct fsio *io, uint64_t ino, int *readers, int *writers) {
    struct fsio_file *file = fsio_file_find(io, ino);
    *readers = *writers = 0;
    if (file == NULL) return 0;
    pthread_mutex_lock(&file->lock);
    *readers = file->readers;
    *writers = file->writers;
    for (struct fsio_users *user = file->users; user != NULL; user = user->next) {
        *readers += user->readers;
        *writers += user->writers;
    }
    pthread_mutex_unlock(&file->lock);
    fsio_file_drop(file);
    return 0;
}

/* ── what handles do ── */

int fsio_read(struct fsio_handle *handle, void *to, size_t count, uint64_t offset, size_t *got) {
    struct fsio_file *file = handle->file;
    *got = 0;
    if (offset > INT64_MAX || count > INT64_MAX - offset) return EINVAL;
    pthread_rwlock_rdlock(&file->gate);
    int error = local_read(file, to, count, offset, got);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_write(struct fsio_handle *handle, const void *from, size_t count, uint64_t offset) {
    struct fsio_file *file = handle->file;
    size_t done = 0;
    if (!handle->writing) return EBADF;
    if (offset != FSIO_APPEND && (offset > INT64_MAX || count > INT64_MAX - offset)) return EFBIG;
    pthread_rwlock_rdlock(&file->gate);
    int error = local_write(file, from, count, offset, &done);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_truncate(struct fsio_handle *handle, uint64_t size) {
    struct fsio_file *file = handle->file;
    if (!handle->writing) return EBADF;
    if (size > INT64_MAX) return EFBIG;
    pthread_rwlock_wrlock(&file->gate);
    int error = local_truncate(file, size);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_fallocate(struct fsio_handle *handle, int mode, uint64_t offset, uint64_t length) {
    struct fsio_file *file = handle->file;
    if (!handle->writing) return EBADF;
    if (length == 0 || offset > INT64_MAX) return EINVAL;
    if (length > INT64_MAX - offset) return EFBIG;
    pthread_rwlock_wrlock(&file->gate);
    int error = local_fallocate(file, mode, offset, length);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_seek(struct fsio_handle *handle, uint64_t offset, int whence, uint64_t *found) {
    struct fsio_file *file = handle->file;
    if (whence != SEEK_DATA && whence != SEEK_HOLE) return EINVAL;
    if (offset > INT64_MAX) return ENXIO;
    pthread_rwlock_rdlock(&file->gate);
    int error = local_seek(file, offset, whence, found);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_flush(struct fsio_handle *handle) {
    (void)handle; /* nothing is held back of a local file */
    return 0;
}

int fsio_stat(struct fsio_handle *handle, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime, int64_t *ctime) {
    struct fsio_file *file = handle->file;
    struct fsio_stat stat = {0};
    pthread_rwlock_rdlock(&file->gate);
    int error = local_stat(file, &stat);
    pthread_rwlock_unlock(&file->gate);
    *size = stat.size;
    *blocks = stat.blocks;
    *atime = stat.atime;
    *mtime = stat.mtime;
    *ctime = stat.ctime;
    return error;
}
