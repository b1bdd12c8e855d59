/* Making room: what lies here only so that it is near gives way to data that has no other place. What may go is not known here; somebody else is asked
 * (FSIO_EVENT_FULL) and says when it is done. */
#include "fsio_internal.h"

#include <time.h>

enum {
    ROOM_TRIES = 64,    /* others take what was made for us; each time something was made, else it ends at once */
    ROOM_VAIN_MS = 100, /* when there was nothing to be had, nobody asks again for so long */
};

void fsio_expect_room(struct fsio *io, int patience_ms) { io->room_patience_ms = patience_ms; }

static struct timespec after_ms(int milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)milliseconds * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return until;
}

/* What must go before `more` fits in. Where there is no limit the kernel has refused, and `more` is what is missing. */
static uint64_t missing(struct fsio *io, uint64_t more) {
    uint64_t used, limit, parts;
    if (io->limit == 0) return more;
    fsio_usage(io, &used, &limit, &parts);
    return used + more > limit ? used + more - limit : 1;
}

bool fsio_make_room(struct fsio *io, uint64_t more) {
    if (io->room_patience_ms == 0 || (io->limit != 0 && more > io->limit)) return false;
    struct timespec until = after_ms(io->room_patience_ms);
    uint64_t wanted = missing(io, more);
    pthread_mutex_lock(&io->room_lock);
    if (atomic_load(&io->stopping) || (io->room_vain_ms != 0 && now_ms() - io->room_vain_ms < ROOM_VAIN_MS)) {
        pthread_mutex_unlock(&io->room_lock);
        return false;
    }
    bool ask = io->room_asked == io->room_answered; /* else somebody is at it, and we see what that gives */
    if (ask) io->room_asked++;
    uint64_t mine = io->room_asked;
    if (ask) fsio_tell(io, FSIO_EVENT_FULL, mine, 0, wanted, 0);
    int waited = 0;
    while (io->room_answered < mine && waited == 0 && !atomic_load(&io->stopping)) waited = pthread_cond_timedwait(&io->room_changed, &io->room_lock, &until);
    if (waited != 0) io->room_vain_ms = now_ms();
    bool made = io->room_answered >= mine && io->room_vain_ms == 0;
    pthread_mutex_unlock(&io->room_lock);
    return made;
}

void fsio_room_made(struct fsio *io, uint64_t serial, uint64_t freed) {
    pthread_mutex_lock(&io->room_lock);
    if (serial > io->room_answered && serial <= io->room_asked) io->room_answered = serial;
    io->room_vain_ms = freed > 0 ? 0 : now_ms();
    pthread_cond_broadcast(&io->room_changed);
    pthread_mutex_unlock(&io->room_lock);
}

bool fsio_reserve_or_make(struct fsio *io, uint64_t more) {
    for (int tries = 0; !fsio_reserve(io, more); tries++)
        if (tries == ROOM_TRIES || !fsio_make_room(io, more)) return false;
    return true;
}

bool fsio_room_or_make(struct fsio *io, uint64_t more) {
    for (int tries = 0; !fsio_room(io, more); tries++)
        if (tries == ROOM_TRIES || !fsio_make_room(io, more)) return false;
    return true;
}

/* With a limit room was made before. Without one it is the kernel that refuses, with some of it written. */
int fsio_refused(struct fsio *io, int error, uint64_t more) {
    return error == ENOSPC && io->limit == 0 && fsio_make_room(io, more) ? ESTALE : error;
}

void fsio_room_stop(struct fsio *io) {
    pthread_mutex_lock(&io->room_lock);
    pthread_cond_broadcast(&io->room_changed);
    pthread_mutex_unlock(&io->room_lock);
}
