/* Files whose content is here: reading and writing. */
#include "store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int fsio_local_read(struct fsio_file *file, char *to, size_t count, uint64_t offset, size_t *got) {
    int fd, error = fsio_fd_get(file, PART_READ, &fd);
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
        if (!fsio_reserve(file->io, more)) return false;
        if (atomic_compare_exchange_weak(&file->size, &size, end)) {
            atomic_fetch_add(&file->accounted, (int64_t)more);
            return true;
        }
        fsio_account(file->io, -(int64_t)more);
    }
    return true;
}

static void recount(struct fsio_file *file, int fd) {
    struct stat found;
    if (fstat(fd, &found) != 0) return;
    int64_t now = (int64_t)found.st_blocks * 512;
    atomic_store(&file->size, (uint64_t)found.st_size);
    fsio_account(file->io, now - atomic_exchange(&file->accounted, now));
}

/* Would a write that begins inside the file fill holes for which there is no room? */
static bool fills_too_much(struct fsio_file *file, int fd, uint64_t offset, size_t count) {
    if (file->io->store->limit == 0 || fsio_room(file->io, count)) return false;
    off_t hole = lseek(fd, (off_t)offset, SEEK_HOLE);
    return hole >= 0 && (uint64_t)hole < offset + count;
}

/* `*done` says how far it came. */
int fsio_local_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset, size_t *done) {
    int fd, error = fsio_fd_get(file, PART_WRITE, &fd);
    bool append = offset == FSIO_APPEND;
    if (error != 0) return error;
    fsio_change_begins(file->io);
    uint64_t size = atomic_load(&file->size), from_here = append ? size : offset + *done, end = from_here + (count - *done);
    if ((from_here < size && fills_too_much(file, fd, from_here, count - *done)) || !local_grow(file, from_here, end)) error = ENOSPC;
    while (error == 0 && *done < count) {
        struct iovec piece = {(void *)(uintptr_t)(from + *done), count - *done};
        ssize_t put = append ? pwritev2(fd, &piece, 1, -1, RWF_APPEND) : pwrite(fd, piece.iov_base, piece.iov_len, (off_t)(offset + *done));
        if (put < 0 && errno != EINTR) error = errno;
        if (put > 0) *done += (size_t)put;
    }
    if (file->io->store->limit != 0) recount(file, fd); /* what filled holes, and what was reserved and not written */
    fsio_change_ends(file->io);
    fsio_fd_put(file);
    return error;
}

int fsio_local_truncate(struct fsio_file *file, uint64_t size) {
    int fd, error = atomic_load(&file->spilled) ? fsio_bring_back(file, size == 0) : 0;
    if (error == 0) error = fsio_fd_get(file, PART_WRITE, &fd);
    if (error != 0) return error;
    fsio_change_begins(file->io);
    if (ftruncate(fd, (off_t)size) != 0) error = errno;
    recount(file, fd);
    fsio_change_ends(file->io);
    fsio_fd_put(file);
    return error;
}

int fsio_local_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length) {
    int fd, error = atomic_load(&file->spilled) ? fsio_bring_back(file, false) : 0;
    if (error == 0) error = fsio_fd_get(file, PART_WRITE, &fd);
    if (error != 0) return error;
    fsio_change_begins(file->io);
    if ((mode & FALLOC_FL_PUNCH_HOLE) == 0 && !fsio_room(file->io, length)) error = ENOSPC;
    else if (fallocate(fd, mode, (off_t)offset, (off_t)length) != 0) error = errno;
    recount(file, fd);
    fsio_change_ends(file->io);
    fsio_fd_put(file);
    return error;
}

int fsio_local_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found) {
    int fd, error = fsio_fd_get(file, PART_READ, &fd);
    if (error != 0) return error;
    off_t at = lseek(fd, (off_t)offset, whence); /* the descriptor's own position is used by nobody */
    if (at < 0) error = errno;
    else *found = (uint64_t)at;
    fsio_fd_put(file);
    return error;
}

int fsio_local_stat(struct fsio_file *file, struct data_stat *stat) {
    struct stat found;
    int fd, error = fsio_fd_get(file, PART_READ, &fd);
    if (error != 0) return error;
    if (fstat(fd, &found) != 0) error = errno;
    else fsio_to_stat(&found, stat);
    fsio_fd_put(file);
    return error;
}
