#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

int new_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int own_descriptors(int one, int other) {
    unsigned low = (unsigned)(one < other ? one : other), high = (unsigned)(one < other ? other : one);
    if (syscall(SYS_close_range, high + 1, ~0U, CLOSE_RANGE_UNSHARE) < 0) return errno;
    if (low > 3) syscall(SYS_close_range, 3, low - 1, 0);
    if (low + 1 < high) syscall(SYS_close_range, low + 1, high - 1, 0);
    return 0;
}

void new_monotonic_cond(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
