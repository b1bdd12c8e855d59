/* Whole parts of a few KiB, read and made in one go by threads that must not wait. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_BLOCK = 4096 }; /* a part takes room in such steps */

static void digest_of(const uint8_t *bytes, size_t size, uint8_t digest[XXH3_BYTES]) {
    struct digests_run run;
    digests_begin(&run);
    digests_add(&run, bytes, size);
    digests_end(&run, digest);
}

/* Are these not the bytes that were written? Then there is damage, or a writer has come: the long way finds out. */
static bool differs(const struct fsio *io, uint64_t ino, const struct stat *found, const uint8_t *bytes) {
    uint8_t known[XXH3_BYTES], taken[XXH3_BYTES];
    if (!io->store->checks || !digests_get(fsio_digests_key(io, ino, FSIO_WHOLE), found, known)) return false;
    digest_of(bytes, (size_t)found->st_size, taken);
    return memcmp(known, taken, sizeof known) != 0;
}

/* Of a copy that was just made, from what it was made of. */
static void keep_digest(const struct fsio *io, uint64_t ino, int fd, const uint8_t *from, size_t size, uint64_t moment) {
    struct stat made;
    uint8_t digest[XXH3_BYTES];
    if (!io->store->checks || fstat(fd, &made) != 0) return;
    digest_of(from, size, digest);
    digests_put(fsio_digests_key(io, ino, FSIO_WHOLE), &made, digest, moment);
}

int fsio_small_get(struct fsio *io, uint64_t ino, uint8_t *to, size_t size) {
    char name[FSIO_NAME_BYTES];
    struct stat found;
    fsio_part_name(ino, FSIO_WHOLE, name);
    int fd = openat(io->store->root_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME);
    if (fd < 0) return errno;
    int error = fstat(fd, &found) != 0 ? errno : (uint64_t)found.st_size != size ? ESTALE : 0;
    if (error == 0 && pread(fd, to, size, 0) != (ssize_t)size) error = EIO;
    if (error == 0 && differs(io, ino, &found, to)) error = EBADMSG;
    close(fd);
    return error;
}

static void set_time(struct timespec *time, const int64_t *from) {
    if (from == NULL) return;
    int64_t rest = *from % 1000000000;
    time->tv_sec = (time_t)(*from / 1000000000 - (rest < 0));
    time->tv_nsec = (long)(rest < 0 ? rest + 1000000000 : rest);
}

int fsio_part_stamp(struct fsio *io, uint64_t ino, const int64_t *atime, const int64_t *mtime) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    struct stat was, is;
    char name[FSIO_NAME_BYTES];
    set_time(&times[0], atime);
    set_time(&times[1], mtime);
    fsio_part_name(ino, FSIO_WHOLE, name);
    if (fstatat(io->store->root_fd, name, &was, 0) != 0 || utimensat(io->store->root_fd, name, times, 0) != 0 ||
        fstatat(io->store->root_fd, name, &is, 0) != 0)
        return errno;
    if (was.st_ino == is.st_ino) fsio_part_retimed(io, ino, (uint64_t)was.st_ino, ns_of(was.st_mtim), ns_of(is.st_mtim));
    return 0;
}

int fsio_small_put(struct fsio *io, uint64_t ino, const uint8_t *from, size_t size, int64_t atime, int64_t mtime) {
    char name[FSIO_NAME_BYTES];
    struct timespec times[2] = {{.tv_sec = atime / 1000000000, .tv_nsec = atime % 1000000000},
                                {.tv_sec = mtime / 1000000000, .tv_nsec = mtime % 1000000000}};
    uint64_t taken = (size + SMALL_BLOCK - 1) / SMALL_BLOCK * SMALL_BLOCK;
    fsio_part_name(ino, FSIO_WHOLE, name);
    fsio_change_begins(io);
    uint64_t moment = digests_moment(fsio_digests_key(io, ino, FSIO_WHOLE));
    int error = fsio_reserve(io, taken) ? 0 : ENOSPC;
    bool reserved = error == 0;
    int fd = reserved ? openat(io->store->root_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (reserved && fd < 0) error = errno;
    if (fd >= 0 && (pwrite(fd, from, size, 0) != (ssize_t)size || futimens(fd, times) != 0)) error = ENOSPC;
    if (fd >= 0 && error == 0) keep_digest(io, ino, fd, from, size, moment);
    if (fd >= 0) close(fd);
    if (fd >= 0 && error != 0) unlinkat(io->store->root_fd, name, 0);
    if (error == 0) atomic_fetch_add(&io->store->parts, 1);
    else if (reserved) fsio_account(io, -(int64_t)taken);
    fsio_change_ends(io);
    return error;
}
