/* Threads in the background, and what they have to do. */
#ifndef AMFS_DATA_WORKERS_H
#define AMFS_DATA_WORKERS_H

#include "data/fsio.h"

#include <pthread.h>

enum { FSIO_THREADS_MAX = 64 };

/* Something to do for a worker. */
struct fsio_job {
    struct fsio_job *next;
    const char *name; /* for who asks what is being done, with the number of the file */
    uint64_t ino;
    void (*run)(struct fsio *io, struct fsio_job *job, bool stopped); /* frees it. `stopped`: there is no time for it any more */
};

/* Threads, and what they have to do. */
struct fsio_workers {
    struct fsio *io;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread[FSIO_THREADS_MAX];
    int threads;
    struct fsio_job *jobs, **tail;
};

/* workers.c */
void fsio_workers_begin(struct fsio *io);
int fsio_workers_start(struct fsio_workers *workers, int threads); /* as many as that in all. 0 or errno */
void fsio_workers_stop(struct fsio *io);
void fsio_workers_end(struct fsio *io);
bool fsio_works(struct fsio *io); /* there are workers */
bool fsio_enqueue(struct fsio_workers *workers, struct fsio_job *job); /* false: fsio has been stopped */
int fsio_later(struct fsio *io, void (*act)(void *context), void *context); /* by a worker, unless fsio is stopped first. 0 or errno */

#endif
