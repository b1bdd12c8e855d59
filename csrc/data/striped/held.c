/* Changes of the stripes that lie here, without a look at their copies. */
#include "striped.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

bool fsio_takes_writes(struct fsio *io, uint64_t ino, uint64_t index) { return fsio_stripe_served(io, ino, index); }

void fsio_writes_settle(struct fsio *io) {
    pthread_rwlock_wrlock(&io->striped->writes);
    pthread_rwlock_unlock(&io->striped->writes);
}

uint64_t fsio_part_growth(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, size_t count) {
    struct data_stat stat = {0};
    if (fsio_part_stat(io, ino, (int64_t)index, &stat.size, &stat.blocks, &stat.atime, &stat.mtime, &stat.ctime) != 0) stat.size = 0;
    uint64_t low = at > stat.size ? at : stat.size;
    return at + count > low ? at + count - low : 0;
}

int fsio_part_write(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count, int64_t *grown) {
    int error = 0, part = fsio_part_open(io, ino, (int64_t)index, PART_MAKE);
    if (part < 0) return -part;
    int64_t before = fsio_allocated(part);
    fsio_stripe_changes(io, ino, index);
    for (size_t done = 0; error == 0 && done < count;) {
        ssize_t put = pwrite(part, from + done, count - done, (off_t)(at + done));
        if (put < 0 && errno != EINTR) error = errno;
        if (put > 0) done += (size_t)put;
    }
    fsio_stripe_changed(io, ino, index);
    *grown = fsio_allocated(part) - before;
    close(part);
    return error;
}

int fsio_stripe_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count) {
    int64_t grown = 0;
    pthread_rwlock_rdlock(&io->striped->writes);
    int error = fsio_takes_writes(io, ino, index) ? fsio_part_write(io, ino, index, at, from, count, &grown) : ESTALE;
    pthread_rwlock_unlock(&io->striped->writes);
    fsio_account(io, grown);
    return error;
}

int fsio_part_punch(struct fsio *io, uint64_t ino, int64_t index, uint64_t offset, uint64_t length) {
    bool moving;
    if (!fsio_stripe_ours(io, ino, (uint64_t)index, &moving) || moving) return ESTALE;
    int part = fsio_part_open(io, ino, index, PART_WRITE), error = 0;
    if (part < 0) return -part == ENOENT ? 0 : -part;
    fsio_change_begins(io);
    int64_t before = fsio_allocated(part);
    fsio_stripe_changes(io, ino, (uint64_t)index);
    if (fallocate(part, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length) != 0) error = errno;
    fsio_stripe_changed(io, ino, (uint64_t)index);
    fsio_account(io, fsio_allocated(part) - before);
    fsio_change_ends(io);
    close(part);
    return error;
}

int fsio_part_cut(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size) {
    uint64_t last = size / stripe, keep = size % stripe;
    struct stat found = {0};
    int error = fsio_stripes_delete(io, ino, keep > 0 ? last + 1 : last);
    int part = keep > 0 ? fsio_part_open(io, ino, (int64_t)last, PART_WRITE) : -ENOENT;
    if (part < 0) return error != 0 ? error : -part == ENOENT ? 0 : -part;
    fsio_change_begins(io);
    fsio_stripe_changes(io, ino, last);
    if (fstat(part, &found) != 0) error = errno;
    else if ((uint64_t)found.st_size > keep && ftruncate(part, (off_t)keep) != 0) error = errno;
    fsio_stripe_changed(io, ino, last);
    fsio_account(io, fsio_allocated(part) - (int64_t)found.st_blocks * 512);
    fsio_change_ends(io);
    close(part);
    return error;
}
