/* Processes of a task that run on when its first one has ended. Knows the slot, no queue. */
#ifndef AMFS_LEFTOVER_H
#define AMFS_LEFTOVER_H

#include "launcher_loop.h"

/* The number that the kernel has given to a process last; 0: not known. */
pid_t amfs_last_pid(const amfs_loop *loop);

/* Close the descriptors that are kept for a look at /proc, and have them again (as far as there are any). Repeatable. */
void amfs_reserve_give(amfs_loop *loop);
void amfs_reserve_take(amfs_loop *loop);

typedef struct {
    uint32_t count;        /* processes that were found, and ended */
    const char *unfinished; /* the name of an output that one of them had open for writing; NULL: none had */
    bool lingers;          /* nothing was ended: they are to be looked at again, since they may end by themselves */
    bool clean;            /* nothing is left */
} amfs_left;

/* Look for the other processes of the slot's task, whose first process is over but not collected, and end them. Those that end by themselves
 * within a moment do not count: of a pipeline somebody is always the last, and programs end before the helpers that share their standard
 * output. `waited_us`: since the first process ended; -1: nobody waits. */
amfs_left amfs_left_end(amfs_loop *loop, const amfs_slot *slot, int64_t waited_us);

#endif
