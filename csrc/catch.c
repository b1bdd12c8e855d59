#include "catch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

int amfs_catch(amfs_catchers *catchers, amfs_catcher *catcher)
{
    catcher->seen = 0;
    if (catchers->free_count > 0)
        return catcher->fd = catchers->free[--catchers->free_count];
    catcher->fd = memfd_create("output", MFD_CLOEXEC);
    if (catcher->fd >= 0)
        fcntl(catcher->fd, F_SETFL, O_APPEND);
    return catcher->fd;
}

/* Without content again. The position matters only if a task took O_APPEND off the description that all of them share. */
static bool empty(int fd)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return false;
    return status.st_size == 0 || (ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && fcntl(fd, F_SETFL, O_APPEND) == 0);
}

void amfs_catch_end(amfs_catchers *catchers, amfs_catcher *catcher, bool written)
{
    if (catcher->fd < 0)
        return;
    if (catchers->used_count < AMFS_CATCHERS_MAX && (!written || empty(catcher->fd)))
        catchers->used[catchers->used_count++] = catcher->fd;
    else
        close(catcher->fd);
    catcher->fd = -1;
}

bool amfs_catchers_full(const amfs_catchers *catchers)
{
    return catchers->used_count + 2 > AMFS_CATCHERS_MAX;
}

void amfs_catchers_clean(amfs_catchers *catchers, bool nothing_left, unsigned keep)
{
    if (keep > AMFS_CATCHERS_MAX)
        keep = AMFS_CATCHERS_MAX;
    while (catchers->used_count > 0) {
        int fd = catchers->used[--catchers->used_count];
        /* Whoever was left may have written after the task's own end. */
        if (nothing_left && catchers->free_count < keep && empty(fd))
            catchers->free[catchers->free_count++] = fd;
        else
            close(fd);
    }
    while (catchers->free_count > keep)
        close(catchers->free[--catchers->free_count]);
}

void amfs_catchers_close(amfs_catchers *catchers)
{
    amfs_catchers_clean(catchers, false, 0);
}

size_t amfs_caught(const amfs_catcher *catcher, size_t limit, bool beginning, bool wanted, char **data, size_t *length)
{
    struct stat status;

    if (catcher->fd < 0 || fstat(catcher->fd, &status) < 0 || status.st_size <= 0)
        return 0;
    size_t size = (size_t)status.st_size, count = size < limit ? size : limit;
    if (!wanted || count == 0 || (*data = malloc(count)) == NULL)
        return size;
    ssize_t got = pread(catcher->fd, *data, count, beginning ? 0 : (off_t)(size - count));
    *length = got > 0 ? (size_t)got : 0;
    return size;
}

int64_t amfs_catch_trim(amfs_catcher *catcher, int64_t limit, bool beginning)
{
    enum { SLACK = 1 << 20, PAGE = 4096 };
    struct stat status;

    if (catcher->fd < 0 || fstat(catcher->fd, &status) < 0)
        return 0;
    int64_t grown = status.st_size - catcher->seen;
    catcher->seen = status.st_size;
    int64_t excess = (status.st_size - limit) & ~(int64_t)(PAGE - 1), first = beginning ? (limit + PAGE - 1) & ~(int64_t)(PAGE - 1) : 0;
    if (excess > SLACK && (int64_t)status.st_blocks * 512 > limit + SLACK)
        fallocate(catcher->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, excess);
    return grown;
}

int amfs_catch_save(const amfs_catcher *catcher, int to)
{
    off_t at = 0;

    while (at < AMFS_OUTPUT_MAX) {
        ssize_t done = sendfile(to, catcher->fd, &at, (size_t)(AMFS_OUTPUT_MAX - at));
        if (done < 0 && errno != EINTR)
            return errno;
        if (done == 0)
            break;
    }
    return 0;
}
