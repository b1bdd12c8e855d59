/* Descriptors of files whose content is here, and what these files account for. There is not one descriptor for each that is
 * open: the limit can be low. */
#include "store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void close_fd(struct fsio_file *file) {
    close(file->fd);
    file->fd = -1;
    file->fd_writes = false;
    atomic_fetch_sub(&file->io->store->open_fds, 1);
}

/* Close what is not in use until there are few enough. With no lock held but files_lock. */
static void close_some(struct fsio *io) {
    for (int i = 0; i < FSIO_FILE_BUCKETS && atomic_load(&io->store->open_fds) > FSIO_OPEN_MAX / 2; i++) {
        for (struct fsio_file *file = io->files[i]; file != NULL; file = file->next) {
            if (pthread_mutex_trylock(&file->lock) != 0) continue;
            if (file->fd >= 0 && file->busy == 0 && !file->gone) close_fd(file);
            pthread_mutex_unlock(&file->lock);
        }
    }
}

/* With the lock held. A descriptor for reading becomes one for writing under the same number: a read under way has the old one. */
static int open_fd(struct fsio_file *file, enum part_use use) {
    bool spilled = false, again = file->fd >= 0;
    int opened = file->lost ? -EIO : file->gone ? -ENOENT : fsio_whole_open(file->io, file->ino, use, &spilled);
    if (opened < 0) {
        if (!again) atomic_store(&file->spilled, false);
        return -opened;
    }
    int error = again && dup3(opened, file->fd, O_CLOEXEC) < 0 ? errno : 0;
    if (again) close(opened);
    else file->fd = opened;
    if (!again) atomic_fetch_add(&file->io->store->open_fds, 1);
    if (error != 0) return error;
    atomic_store(&file->spilled, spilled);
    file->fd_writes = use != PART_READ && !spilled;
    return 0;
}

int fsio_fd_get(struct fsio_file *file, enum part_use use, int *fd) {
    struct fsio *io = file->io;
    int error = 0;
    pthread_mutex_lock(&file->lock);
    bool reads_only = use != PART_READ && !file->fd_writes && !atomic_load(&file->spilled);
    if (file->fd < 0 || reads_only) error = open_fd(file, use);
    if (error == 0) {
        file->busy++;
        *fd = file->fd;
    }
    pthread_mutex_unlock(&file->lock);
    if (error == 0 && atomic_load(&io->store->open_fds) > FSIO_OPEN_MAX) {
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
    bool held = file->kind == FSIO_LOCAL && fsio_fd_get(file, PART_WRITE, &fd) == 0; /* it cannot be opened once more */
    if (held) {
        pthread_mutex_lock(&file->lock);
        file->gone = true;
        file->busy--;
        held = file->counted;
        pthread_mutex_unlock(&file->lock);
    }
    fsio_drop_later(file); /* the caller that deletes does not wait for bytes written behind */
    return held;
}

int fsio_local_open(struct fsio_file *file, enum part_use use) {
    struct stat found;
    int fd, error = fsio_fd_get(file, use, &fd);
    if (error != 0) return error;
    pthread_mutex_lock(&file->lock);
    if (!file->counted && fstat(fd, &found) == 0) {
        atomic_store(&file->size, (uint64_t)found.st_size);
        atomic_store(&file->accounted, atomic_load(&file->spilled) ? 0 : (int64_t)found.st_blocks * 512);
        file->counted = true;
    }
    pthread_mutex_unlock(&file->lock);
    fsio_fd_put(file);
    return 0;
}

void fsio_local_written(struct fsio_file *file) {
    pthread_mutex_lock(&file->lock);
    if (file->fd >= 0 && file->fd_writes && file->busy == 0 && !file->gone && !atomic_load(&file->spilled)) close_fd(file);
    pthread_mutex_unlock(&file->lock);
}

void fsio_local_lose(struct fsio_file *file) {
    file->gone = true; /* its part was removed */
    fsio_local_leave(file);
    pthread_mutex_lock(&file->lock);
    file->lost = true;
    pthread_mutex_unlock(&file->lock);
}

bool fsio_local_replaced(struct fsio_file *file) {
    char name[FSIO_NAME_BYTES];
    struct stat named, opened;
    fsio_part_name(file->ino, FSIO_WHOLE, name);
    pthread_mutex_lock(&file->lock);
    int how = atomic_load(&file->spilled) ? 0 : AT_SYMLINK_NOFOLLOW;
    bool replaced = file->gone || (file->fd >= 0 && fstatat(file->io->store->root_fd, name, &named, how) == 0 &&
                                   fstat(file->fd, &opened) == 0 && (named.st_ino != opened.st_ino || named.st_dev != opened.st_dev));
    pthread_mutex_unlock(&file->lock);
    return replaced;
}

bool fsio_local_there(const struct fsio_file *file) {
    char name[FSIO_NAME_BYTES];
    fsio_part_name(file->ino, FSIO_WHOLE, name);
    return faccessat(file->io->store->root_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void fsio_local_adopted(struct fsio *io, uint64_t ino, int64_t bytes) {
    struct fsio_file *file = fsio_file_find(io, ino);
    if (file == NULL) return;
    pthread_mutex_lock(&file->lock);
    if (file->counted) atomic_store(&file->accounted, bytes);
    pthread_mutex_unlock(&file->lock);
    fsio_file_drop(file);
}

void fsio_local_leave(struct fsio_file *file) {
    char name[FSIO_NAME_BYTES];
    struct stat found;
    int64_t now = 0;
    fsio_part_name(file->ino, FSIO_WHOLE, name);
    fsio_change_begins(file->io);
    pthread_mutex_lock(&file->lock);
    if (file->counted && !file->gone && !atomic_load(&file->spilled)) {
        bool is_part = file->fd >= 0 && fstat(file->fd, &found) == 0 && found.st_nlink > 0; /* else another has taken its place */
        if (is_part || fstatat(file->io->store->root_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0) now = (int64_t)found.st_blocks * 512;
    }
    if (file->counted) fsio_account(file->io, now - atomic_load(&file->accounted));
    file->counted = file->gone = false;
    atomic_store(&file->spilled, false);
    if (file->fd >= 0) close_fd(file);
    pthread_mutex_unlock(&file->lock);
    fsio_change_ends(file->io);
}
