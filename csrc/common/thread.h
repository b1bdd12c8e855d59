/* Threads that leave signals to the program, and may have a table of descriptors of their own. */
#ifndef AMFS_THREAD_H
#define AMFS_THREAD_H

#include "common/clock.h"

#include <pthread.h>

/* With all signals blocked: a write to a closed socket must give EPIPE, and no handler of the program may run there. 0 or errno. */
int new_thread(pthread_t *thread, void *(*body)(void *), void *argument);
/* The calling thread gets a table of its own with copies of 0, 1, 2 and of these two, in which others can open and close nothing. 0 or errno: ENOSYS before
 * Linux 5.9. */
int own_descriptors(int one, int other);
void new_monotonic_cond(pthread_cond_t *cond); /* whose waits end by CLOCK_MONOTONIC */

#endif
