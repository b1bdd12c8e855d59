#include "extents.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/sendfile.h>
#include <unistd.h>

int amfs_next_extent(int fd, uint64_t at, uint64_t size, uint64_t *from, uint64_t *to) {
    *from = at;
    *to = size;
    if (at >= size) return 0;
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) *from = size; /* or it is shorter by now: callers compare its size if it matters */
    if (data < 0) return errno == ENXIO || errno == EINVAL || errno == EOPNOTSUPP ? 0 : errno;
    *from = (uint64_t)data < size ? (uint64_t)data : size;
    off_t hole = lseek(fd, data, SEEK_HOLE);
    if (hole > data && (uint64_t)hole < size) *to = (uint64_t)hole;
    return 0;
}

/* As far as `most` bytes, or the end. */
static int copy_bytes(int from, int to, uint64_t most, bool *clone) {
    enum { CHUNK = 1 << 30 };
    while (most > 0) {
        size_t count = most < CHUNK ? (size_t)most : CHUNK;
        ssize_t done = *clone ? copy_file_range(from, NULL, to, NULL, count, 0) : sendfile(to, from, NULL, count);
        if (done > 0) most -= (uint64_t)done;
        if (done > 0) continue;
        if (done == 0 && !*clone) return 0;
        /* Some file systems give 0 or an error where reading works (pseudo files, different devices): sendfile decides. */
        if (done < 0 && errno == EINTR) continue;
        if (!*clone) return errno;
        if (done < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG)) return errno;
        *clone = false;
    }
    return 0;
}

int amfs_copy_descriptor(int from, int to) {
    struct stat found;
    bool clone = true;
    uint64_t start, end;
    if (fstat(from, &found) != 0 || !S_ISREG(found.st_mode) || !amfs_has_holes(&found)) return copy_bytes(from, to, UINT64_MAX, &clone);
    uint64_t size = (uint64_t)found.st_size;
    for (uint64_t at = 0; at < size; at = end) {
        int failed = amfs_next_extent(from, at, size, &start, &end);
        if (failed == 0 && (lseek(from, (off_t)start, SEEK_SET) < 0 || lseek(to, (off_t)start, SEEK_SET) < 0)) failed = errno;
        if (failed == 0) failed = copy_bytes(from, to, end - start, &clone);
        if (failed) return failed;
    }
    return ftruncate(to, found.st_size) != 0 ? errno : 0;
}
