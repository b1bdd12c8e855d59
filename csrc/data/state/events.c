/* News of fsio for the poll loop of its node; and, for all files of fsio, the clock, and locks that let writers in. */
#include "state.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int64_t fsio_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void fsio_fair_lock(pthread_rwlock_t *lock) {
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP); /* readers in a row must not keep a writer out */
    pthread_rwlock_init(lock, &fair);
    pthread_rwlockattr_destroy(&fair);
}

void fsio_tell(struct fsio *io, enum fsio_event_kind kind, uint64_t serial, uint64_t ino, uint64_t size, int error) {
    struct fsio_event *event = malloc(sizeof *event);
    uint64_t one = 1;
    if (event == NULL) return; /* out of memory: a thread that waits has a time-out of its own */
    *event = (struct fsio_event){.kind = kind, .serial = serial, .ino = ino, .size = size, .error = error};
    pthread_mutex_lock(&io->events_lock);
    *io->events_tail = event;
    io->events_tail = &event->next;
    ssize_t put = write(io->event_fd, &one, sizeof one);
    (void)put; /* full: it is readable, which is all that is wanted */
    pthread_mutex_unlock(&io->events_lock);
}

void fsio_tell_done(struct fsio *io, uint64_t serial, int error) { fsio_tell(io, FSIO_EVENT_DONE, serial, 0, 0, error); }

struct fsio_event *fsio_take(struct fsio *io) {
    uint64_t count;
    pthread_mutex_lock(&io->events_lock);
    ssize_t got = read(io->event_fd, &count, sizeof count);
    (void)got; /* nothing to read: nothing to take */
    struct fsio_event *list = io->events;
    io->events = NULL;
    io->events_tail = &io->events;
    pthread_mutex_unlock(&io->events_lock);
    return list;
}

int fsio_event_fd(const struct fsio *io) { return io->event_fd; }

int fsio_result(struct fsio *io, int error) { return data_result(&io->client, error); }
