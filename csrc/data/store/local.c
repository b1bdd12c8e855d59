/* Files whose content is here: reading and writing. */
#include "store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILLING_BYTES = 16 << 20 }; /* so many may be on their way into holes that are not looked for */

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

/* Bytes from `at` up to `end` that take no room yet. */
static uint64_t bytes_in_holes(int fd, uint64_t at, uint64_t end) {
    uint64_t holes = 0;
    while (at < end) {
        off_t hole = lseek(fd, (off_t)at, SEEK_HOLE);
        if (hole < 0) return holes + (end - at); /* behind what was written: the end is another write's, which is under way */
        if ((uint64_t)hole >= end) break;
        off_t data = lseek(fd, hole, SEEK_DATA);
        uint64_t next = data >= 0 && (uint64_t)data < end ? (uint64_t)data : end;
        holes += next - (uint64_t)hole;
        at = next;
    }
    return holes;
}

/* Count the holes that a write inside the file fills. To find them takes long in a large file, so they are only looked for when room is short:
 * otherwise they are counted when they are filled. False: over the limit. */
static bool reserve_holes(struct fsio_file *file, int fd, uint64_t offset, uint64_t end) {
    if (file->io->store->limit == 0 || fsio_room(file->io, end - offset + FILLING_BYTES)) return true;
    uint64_t more = bytes_in_holes(fd, offset, end);
    if (!fsio_reserve(file->io, more)) return false;
    atomic_fetch_add(&file->accounted, (int64_t)more);
    return true;
}

static void settle(struct fsio_file *file, const struct stat *found) {
    int64_t now = (int64_t)found->st_blocks * 512;
    fsio_account(file->io, now - atomic_exchange(&file->accounted, now));
}

/* With the gate held alone: nobody writes. */
static void recount(struct fsio_file *file, int fd) {
    struct stat found;
    if (fstat(fd, &found) != 0) return;
    atomic_store(&file->size, (uint64_t)found.st_size);
    settle(file, &found);
}

/* Count what a write may add. Until it ends nobody gives back what it has reserved and not yet written. False: over the limit. */
static bool write_begins(struct fsio_file *file, int fd, uint64_t offset, uint64_t count) {
    fsio_change_begins(file->io);
    pthread_mutex_lock(&file->lock);
    file->writes++;
    uint64_t size = atomic_load(&file->size), at = offset == FSIO_APPEND ? size : offset, end = at + count;
    uint64_t more = end <= size ? 0 : at < size ? end - size : count;
    bool room = fsio_reserve(file->io, more);
    if (room && more > 0) {
        atomic_store(&file->size, end);
        atomic_fetch_add(&file->accounted, (int64_t)more);
    }
    pthread_mutex_unlock(&file->lock);
    return room && (at >= size || reserve_holes(file, fd, at, end < size ? end : size));
}

/* Room that was reserved and not written is given back when no other write is under way: the blocks do not tell whose reservation it is. A write that
 * takes more than was reserved (holes, a block that is begun) is counted at once. */
static void write_ends(struct fsio_file *file, int fd) {
    struct stat found;
    pthread_mutex_lock(&file->lock);
    bool quiet = --file->writes == 0;
    if (file->io->store->limit != 0 && fstat(fd, &found) == 0) {
        if (quiet) atomic_store(&file->size, (uint64_t)found.st_size);
        if (quiet || (int64_t)found.st_blocks * 512 > atomic_load(&file->accounted)) settle(file, &found);
    }
    pthread_mutex_unlock(&file->lock);
    fsio_change_ends(file->io);
}

/* `*done` says how far it came. */
int fsio_local_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset, size_t *done) {
    int fd, error = fsio_fd_get(file, PART_WRITE, &fd);
    bool append = offset == FSIO_APPEND;
    if (error != 0) return error;
    if (!write_begins(file, fd, append ? offset : offset + *done, count - *done)) error = ENOSPC;
    while (error == 0 && *done < count) {
        struct iovec piece = {(void *)(uintptr_t)(from + *done), count - *done};
        ssize_t put = append ? pwritev2(fd, &piece, 1, -1, RWF_APPEND) : pwrite(fd, piece.iov_base, piece.iov_len, (off_t)(offset + *done));
        if (put < 0 && errno != EINTR) error = errno;
        if (put > 0) *done += (size_t)put;
    }
    write_ends(file, fd);
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
