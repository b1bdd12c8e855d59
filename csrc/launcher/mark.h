/* Which processes belong to which task, whatever became of their parents, process groups, sessions, environments and descriptors.
 *
 * The first process of a task is given a number of ours as its soft limit on real-time CPU time (RLIMIT_RTTIME, microseconds). As a limit
 * it means nothing: it is above 140,000 years. But fork and exec hand it on, no program has a reason to change it, and everybody may read it.
 * Linux has control groups for this purpose; an ordinary user on a cluster is seldom given one.
 *
 * A mark is bit 62, 34 bits that name the launcher, and 28 bits that name the task. */
#ifndef AMFS_MARK_H
#define AMFS_MARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { AMFS_MARK_TASK_BITS = 28 };

/* A mark for the launcher that runs in the calling thread, with a zero for the task. 0: the hard limit of this process allows no marks. */
uint64_t amfs_mark_new(void);

/* The mark of a process (or of the one to which a thread belongs); 0: it has none of anybody's. */
uint64_t amfs_mark_of(int pid);

/* Is the task with this mark to be left alone? */
typedef bool amfs_mark_spare(const void *context, uint64_t mark);

/* A living process of a task; the pidfd is the holder's to close. -1: descriptors were short. */
typedef struct {
    pid_t pid;
    int pidfd;
} amfs_marked;

/* The living processes with this very mark, at most `most` of them: those with numbers in (after, last], or with `last` 0 all (reads
 * /proc). Returns how many. */
unsigned amfs_mark_find(uint64_t mark, pid_t after, pid_t last, amfs_marked *found, unsigned most);

/* Wait for at most `patience_ms` until they are gone by themselves; those still there move to the front. Returns how many. Those without
 * a pidfd count as still there. */
unsigned amfs_mark_await(amfs_marked *found, unsigned count, int patience_ms);

/* SIGKILL those that have a pidfd, and wait a moment until they are gone; closes the pidfds. */
void amfs_mark_kill(amfs_marked *found, unsigned count);

/* Signal each living process with a mark of `launcher` that is not spared (NULL: none is). Reads /proc once. Returns how many there were. */
unsigned amfs_mark_signal(uint64_t launcher, int number, amfs_mark_spare *spare, const void *context);

/* SIGKILL them until none is left, for at most `patience_us`. Returns whether none is left. `found`, if given, says whether there were any. */
bool amfs_mark_end(uint64_t launcher, int64_t patience_us, amfs_mark_spare *spare, const void *context, bool *found);

#endif
