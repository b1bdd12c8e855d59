/* Catching what tasks write to stdout and stderr: a memfd per slot and stream, kept within bounds while it is written. It serves one task after
 * another, but only where it is known that nobody is left who could still write to it. */
#ifndef AMFS_CATCH_H
#define AMFS_CATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMFS_OUTPUT_MAX = 16 << 20 };

typedef struct {
    int fd; /* -1: there is none yet */
    bool used; /* by the task that runs now */
    int64_t seen; /* its size when last looked at */
} amfs_catcher;

/* Catch a stream: the descriptor for the child, or -1 with errno. */
int amfs_catch(amfs_catcher *catcher);

/* The task is over. `written`: something was caught; `alone`: no process of it is left. */
void amfs_catch_end(amfs_catcher *catcher, bool written, bool alone);

/* Read the end (or the beginning) of what was caught, if `wanted`. Returns how much there was. */
size_t amfs_caught(const amfs_catcher *catcher, size_t limit, bool beginning, bool wanted, char **data, size_t *length);

/* Give back the memory of all but the end (or the beginning) of what was caught. Returns by how much it grew since the last call. */
int64_t amfs_catch_trim(amfs_catcher *catcher, int64_t limit, bool beginning);

/* Copy the beginning of what was caught, at most AMFS_OUTPUT_MAX bytes, to `to`: 0 or an errno. */
int amfs_catch_save(const amfs_catcher *catcher, int to);

#endif
