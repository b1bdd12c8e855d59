#include "extents.h"

#include <errno.h>
#include <unistd.h>

int amfs_next_extent(int fd, uint64_t at, uint64_t size, uint64_t *from, uint64_t *to) {
    *from = at;
    *to = size;
    if (at >= size) return 0;
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) *from = size; /* or it is shorter by now: who needs to know compares its size */
    if (data < 0) return errno == ENXIO || errno == EINVAL || errno == EOPNOTSUPP ? 0 : errno;
    *from = (uint64_t)data < size ? (uint64_t)data : size;
    off_t hole = lseek(fd, data, SEEK_HOLE);
    if (hole > data && (uint64_t)hole < size) *to = (uint64_t)hole;
    return 0;
}
