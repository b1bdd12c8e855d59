/* The work of each thread of this process, and its beginning: for one look a second, which finds work that takes too long. Each thread has a place of its
 * own; to note what it begins costs some stores and a look at a coarse clock. */
#ifndef AMFS_WATCH_H
#define AMFS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watch_entry {
    const char *what; /* a constant */
    uint64_t number; /* of an inode, say */
    int64_t since_ms; /* of CLOCK_MONOTONIC; 0: nothing */
};

/* Returns the work that the thread did before, to which amfs_watch_end goes back. */
struct watch_entry amfs_watch_begin(const char *what, uint64_t number);
void amfs_watch_end(struct watch_entry before);

size_t amfs_watch_look(int64_t longer_than_ms, struct watch_entry *found, size_t room); /* how many were found */

#endif
