/* Catching what tasks write to stdout and stderr: a memfd per running task and stream, kept within bounds while it is written.
 *
 * A memfd serves one task after another, but only once it is known that nobody is left who could still write to it: a task gives it back as
 * "used", and amfs_catchers_clean makes the used ones free again after the launcher has looked for what tasks have left behind. */
#ifndef AMFS_CATCH_H
#define AMFS_CATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMFS_CATCHERS_MAX = 512, AMFS_OUTPUT_MAX = 16 << 20 };

/* One stream of a running task; fd -1: none is caught. */
typedef struct {
    int fd;
    int64_t seen; /* its size when last looked at */
} amfs_catcher;

typedef struct {
    int free[AMFS_CATCHERS_MAX], used[AMFS_CATCHERS_MAX];
    unsigned free_count, used_count;
} amfs_catchers;

/* Catch a stream: the descriptor for the child, or -1 with errno. */
int amfs_catch(amfs_catchers *catchers, amfs_catcher *catcher);

/* The task is over. `written`: something was caught. */
void amfs_catch_end(amfs_catchers *catchers, amfs_catcher *catcher, bool written);

/* No more fit in. */
bool amfs_catchers_full(const amfs_catchers *catchers);

/* `nothing_left`: no task that has ended has a process left. Keeps at most `keep` for later. */
void amfs_catchers_clean(amfs_catchers *catchers, bool nothing_left, unsigned keep);
void amfs_catchers_close(amfs_catchers *catchers);

/* Read the end (or the beginning) of what was caught, if `wanted`. Returns how much there was. */
size_t amfs_caught(const amfs_catcher *catcher, size_t limit, bool beginning, bool wanted, char **data, size_t *length);

/* Give back the memory of all but the end (or the beginning) of what was caught. Returns by how much it grew since the last call. */
int64_t amfs_catch_trim(amfs_catcher *catcher, int64_t limit, bool beginning);

/* Copy the beginning of what was caught, at most AMFS_OUTPUT_MAX bytes, to `to`: 0 or an errno. */
int amfs_catch_save(const amfs_catcher *catcher, int to);

#endif
