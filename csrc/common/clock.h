/* The monotonic clock, and times as one number. */
#ifndef AMFS_CLOCK_H
#define AMFS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t ns_of(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

static inline int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ns_of(now) / 1000;
}

static inline int64_t now_ms(void) { return now_us() / 1000; }

#endif
