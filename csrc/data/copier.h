/* Copies files between shared storage and this node's store, on threads of its own.
 *
 * Plain C, knows nothing of Python. Every function may be called from any thread. A job ends in exactly one completion, in whatever way it
 * ends; a file appears under its name whole or not at all (newfile.h). */
#ifndef AMFS_COPIER_H
#define AMFS_COPIER_H

#include <stddef.h>
#include <stdint.h>

enum { COPIER_THREADS_MAX = 64 };

#define COPIER_EXACT 0x80000000u /* in place of a mode: the mode and the times of the source, past the page cache where that can be */
#define COPIER_CHECKED                                                                                                                     \
    0x40000000u /* with a mode: the copy is read back, and compared with the digest of its source, before it gets its name */
/* An EXACT copy has the digest of its source (digests.h). A source that has another than it had is not copied; its code is EBADMSG. */
#define COPIER_DAMAGED "is damaged: its content is not what was written"

struct copier;

struct copier_done {
    struct copier_done *next;
    uint64_t serial;
    uint64_t bytes; /* copied, also when it failed on the way */
    char *error; /* for people; NULL: fine */
    int code; /* why it failed, an errno; EBADMSG: the source is not what was written (DAMAGED) */
};

struct copier *copier_new(int threads, char *error, size_t error_size); /* NULL and a text in `error` if it fails */
int copier_fd(const struct copier *copier); /* eventfd, readable while completions wait; valid until copier_free */

/* Queue a copy, which takes the place of what the destination had. 0, or an errno (then no completion follows). Strings are copied. After
 * copier_stop: completes as "stopped". */
int copier_copy(struct copier *copier, uint64_t serial, const char *source, const char *destination, unsigned mode, int directories);

/* All completions so far, oldest first; the caller frees the list. */
struct copier_done *copier_take(struct copier *copier);
void copier_done_free(struct copier_done *list);

/* End the threads; copies queued or under way complete as "stopped". Repeatable. */
void copier_stop(struct copier *copier);
void copier_free(struct copier *copier);

#endif
