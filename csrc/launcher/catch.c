#include "catch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

int amfs_catch(amfs_catcher *catcher) {
    catcher->seen = 0;
    if (catcher->fd < 0) {
        catcher->fd = memfd_create("output", MFD_CLOEXEC);
        if (catcher->fd >= 0) fcntl(catcher->fd, F_SETFL, O_APPEND);
    }
    catcher->used = catcher->fd >= 0;
    return catcher->fd;
}

/* Without content again. The position matters only if a task took O_APPEND off the description that all of them share. */
static bool empty(int fd) { return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && fcntl(fd, F_SETFL, O_APPEND) == 0; }

void amfs_catch_end(amfs_catcher *catcher, bool written, bool alone) {
    if (catcher->used && (!alone || (written && !empty(catcher->fd)))) {
        close(catcher->fd);
        catcher->fd = -1;
    }
    catcher->used = false;
}

size_t amfs_caught(const amfs_catcher *catcher, size_t limit, bool beginning, bool wanted, char **data, size_t *length) {
    struct stat status;

    if (!catcher->used || fstat(catcher->fd, &status) < 0 || status.st_size <= 0) return 0;
    size_t size = (size_t)status.st_size, count = size < limit ? size : limit;
    if (!wanted || count == 0 || (*data = malloc(count)) == NULL) return size;
    ssize_t got = pread(catcher->fd, *data, count, beginning ? 0 : (off_t)(size - count));
    *length = got > 0 ? (size_t)got : 0;
    return size;
}

int64_t amfs_catch_trim(amfs_catcher *catcher, int64_t limit, bool beginning) {
    enum { SLACK = 1 << 20, PAGE = 4096 };
    struct stat status;

    if (!catcher->used || fstat(catcher->fd, &status) < 0) return 0;
    int64_t grown = status.st_size - catcher->seen;
    catcher->seen = status.st_size;
    int64_t excess = (status.st_size - limit) & ~(int64_t)(PAGE - 1), first = beginning ? (limit + PAGE - 1) & ~(int64_t)(PAGE - 1) : 0;
    if (excess > SLACK && (int64_t)status.st_blocks * 512 > limit + SLACK)
        fallocate(catcher->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, excess);
    return grown;
}

int amfs_catch_save(const amfs_catcher *catcher, int to) {
    off_t at = 0;

    while (at < AMFS_OUTPUT_MAX) {
        ssize_t done = sendfile(to, catcher->fd, &at, (size_t)(AMFS_OUTPUT_MAX - at));
        if (done < 0 && errno != EINTR) return errno;
        if (done == 0) break;
    }
    return 0;
}
