/* Files with holes: where their data lies, and copies that keep them. */
#ifndef AMFS_EXTENTS_H
#define AMFS_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

/* The next data of a file of `size` bytes, from `at` on: *from to *to (both `size`: only a hole is left). The position of the descriptor changes.
 * Where the file system knows of no holes, all is data. 0 or an errno. */
int amfs_next_extent(int fd, uint64_t at, uint64_t size, uint64_t *from, uint64_t *to);

/* Copy everything from `from` (at its offset) to `to`: 0 or an errno. */
int amfs_copy_descriptor(int from, int to);

static inline bool amfs_has_holes(const struct stat *found) { return (uint64_t)found->st_blocks * 512 < (uint64_t)found->st_size; }

static inline bool amfs_all_zero(const void *bytes, size_t count) {
    const unsigned char *first = bytes;
    return count == 0 || (first[0] == 0 && memcmp(first, first + 1, count - 1) == 0);
}

#endif
