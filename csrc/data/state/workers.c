/* Threads that do jobs in the background, one after the other. Each job says what it does. */
#include "common/watch.h"
#include "state.h"

#include <stdlib.h>

static void *work(void *argument) {
    struct fsio_workers *workers = argument;
    struct fsio *io = workers->io;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (workers->jobs == NULL && !atomic_load(&io->stopping)) pthread_cond_wait(&workers->work, &workers->lock);
        struct fsio_job *job = workers->jobs;
        if (job == NULL) break;
        workers->jobs = job->next;
        if (workers->jobs == NULL) workers->tail = &workers->jobs;
        pthread_mutex_unlock(&workers->lock);
        struct watch_entry watched = amfs_watch_begin(job->name, job->ino);
        job->run(io, job, atomic_load(&io->stopping));
        amfs_watch_end(watched);
        pthread_mutex_lock(&workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static void begin(struct fsio *io, struct fsio_workers *workers) {
    workers->io = io;
    workers->tail = &workers->jobs;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->work, NULL);
}

void fsio_workers_begin(struct fsio *io) {
    begin(io, &io->workers);
    begin(io, &io->fetchers);
}

int fsio_workers_start(struct fsio_workers *workers, int threads) {
    int error = 0;
    pthread_mutex_lock(&workers->lock);
    for (; error == 0 && workers->threads < threads && !atomic_load(&workers->io->stopping); workers->threads += error == 0)
        error = new_thread(&workers->thread[workers->threads], work, workers);
    pthread_mutex_unlock(&workers->lock);
    return error;
}

static void stop(struct fsio_workers *workers) {
    pthread_mutex_lock(&workers->lock);
    int threads = workers->threads;
    workers->threads = 0;
    pthread_cond_broadcast(&workers->work);
    pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < threads; i++) pthread_join(workers->thread[i], NULL);
}

void fsio_workers_stop(struct fsio *io) {
    stop(&io->workers);
    stop(&io->fetchers);
}

static void end(struct fsio_workers *workers) {
    pthread_cond_destroy(&workers->work);
    pthread_mutex_destroy(&workers->lock);
}

void fsio_workers_end(struct fsio *io) {
    end(&io->workers);
    end(&io->fetchers);
}

bool fsio_enqueue(struct fsio_workers *workers, struct fsio_job *job) {
    pthread_mutex_lock(&workers->lock);
    bool taken = workers->threads > 0 && !atomic_load(&workers->io->stopping);
    if (taken) {
        job->next = NULL;
        *workers->tail = job;
        workers->tail = &job->next;
        pthread_cond_signal(&workers->work);
    }
    pthread_mutex_unlock(&workers->lock);
    return taken;
}

bool fsio_works(struct fsio *io) {
    pthread_mutex_lock(&io->workers.lock);
    bool works = io->workers.threads > 0 && !atomic_load(&io->stopping);
    pthread_mutex_unlock(&io->workers.lock);
    return works;
}

struct call {
    struct fsio_job job;
    void (*act)(void *context);
    void *context;
};

static void make_call(struct fsio *io, struct fsio_job *job, bool stopped) {
    const struct call *call = (const struct call *)(void *)job;
    (void)io;
    if (!stopped) call->act(call->context);
    free(job);
}

int fsio_later(struct fsio *io, void (*act)(void *context), void *context) {
    struct call *call = malloc(sizeof *call);
    if (call == NULL) return ENOMEM;
    *call = (struct call){.job = {.name = "work in the background", .run = make_call}, .act = act, .context = context};
    if (fsio_enqueue(&io->workers, &call->job)) return 0;
    free(call);
    return ECANCELED;
}
