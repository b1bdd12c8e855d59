/* Threads that leave signals to the program. */
#ifndef AMFS_THREAD_H
#define AMFS_THREAD_H

#include "common/clock.h"

#include <pthread.h>

/* With all signals blocked: a write to a closed socket must give EPIPE, and no handler of the program may run there. 0 or errno. */
int new_thread(pthread_t *thread, void *(*body)(void *), void *argument);
void new_monotonic_cond(pthread_cond_t *cond); /* whose waits end by CLOCK_MONOTONIC */

#endif
