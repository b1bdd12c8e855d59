/* Making room: copies that lie here only to be near give way to data that has no other place. This file does not know which may go; it asks the poll loop
 * (FSIO_EVENT_FULL), which says when it is done. */
#include "store.h"

#include <time.h>

enum {
    ROOM_TRIES = 64, /* others take what was made for us; each time something was made, else it ends at once */
    VAIN_MS = 100, /* when there was nothing to be had, nobody asks again for so long at most, */
    VAIN_TIMES = 4, /* nor for more than so many times as long as it took to find that out */
};

void fsio_expect_room(struct fsio *io, int patience_ms) { io->store->room_patience_ms = patience_ms; }

static struct timespec after_ms(int milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)milliseconds * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return until;
}

/* Bytes that must go before `more` fits in. Where there is no limit the kernel has refused, and `more` bytes are missing. */
static uint64_t missing(struct fsio *io, uint64_t more) {
    uint64_t used, limit, parts;
    if (io->store->limit == 0) return more;
    fsio_usage(io, &used, &limit, &parts);
    return used + more > limit ? used + more - limit : 1;
}

/* With the lock held: for how long nobody is to ask. */
static int64_t vain_ms(const struct fsio *io) { return io->store->room_vain_until_ms == 0 ? 0 : io->store->room_vain_until_ms - now_ms(); }

/* With the lock held: ask, or have part in the answer that somebody waits for. */
static void ask_for_room(struct fsio *io, uint64_t more, const struct timespec *until) {
    if (io->store->room_asked == io->store->room_answered) {
        io->store->room_asked++;
        io->store->room_asked_ms = now_ms();
        fsio_tell(io, FSIO_EVENT_FULL, io->store->room_asked, 0, more, 0);
    }
    int waited = 0;
    for (uint64_t mine = io->store->room_asked; io->store->room_answered < mine && waited == 0 && !atomic_load(&io->stopping);)
        waited = pthread_cond_timedwait(&io->store->room_changed, &io->store->room_lock, until);
    if (waited != 0) io->store->room_vain_until_ms = now_ms() + VAIN_MS;
}

void fsio_removing(struct fsio *io, int by) {
    pthread_mutex_lock(&io->store->room_lock);
    io->store->removing += (unsigned)by;
    if (by < 0) atomic_fetch_add(&io->store->room_made, 1);
    if (by < 0) pthread_cond_broadcast(&io->store->room_changed);
    pthread_mutex_unlock(&io->store->room_lock);
}

void fsio_look_begins(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->store->room_lock);
    io->store->looked_at = ino;
    pthread_mutex_unlock(&io->store->room_lock);
}

void fsio_look_goes(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->store->room_lock);
    bool goes = io->store->looked_at == ino && !io->store->looked_at_goes;
    if (goes) io->store->looked_at_goes = true;
    if (goes) io->store->removing++;
    pthread_mutex_unlock(&io->store->room_lock);
}

void fsio_look_ends(struct fsio *io) {
    pthread_mutex_lock(&io->store->room_lock);
    bool gone = io->store->looked_at_goes;
    io->store->looked_at = 0;
    io->store->looked_at_goes = false;
    pthread_mutex_unlock(&io->store->room_lock);
    if (gone) fsio_removing(io, -1);
}

bool fsio_make_room(struct fsio *io, uint64_t more, uint64_t since, bool patient) {
    if (io->store->room_patience_ms == 0 || (io->store->limit != 0 && more > io->store->limit)) return false;
    struct timespec until = after_ms(io->store->room_patience_ms);
    uint64_t wanted = missing(io, more);
    pthread_mutex_lock(&io->store->room_lock);
    for (int waited = 0;
         io->store->removing > 0 && atomic_load(&io->store->room_made) == since && waited == 0 && !atomic_load(&io->stopping);)
        waited = pthread_cond_timedwait(&io->store->room_changed, &io->store->room_lock, &until);
    int64_t left = vain_ms(io);
    bool heard = io->store->room_asked == io->store->room_answered; /* else nobody makes room, or not in time */
    if (patient && heard && left > 0 && !atomic_load(&io->stopping)) { /* or until there is news */
        struct timespec then = after_ms((int)left);
        pthread_cond_timedwait(&io->store->room_changed, &io->store->room_lock, &then);
    }
    if (atomic_load(&io->store->room_made) == since && vain_ms(io) <= 0 && !atomic_load(&io->stopping)) ask_for_room(io, wanted, &until);
    pthread_mutex_unlock(&io->store->room_lock);
    return atomic_load(&io->store->room_made) != since;
}

void fsio_room_made(struct fsio *io, uint64_t serial, uint64_t freed) {
    if (serial == 0) { /* nobody waits: above the mark, but below the limit */
        fsio_press_ended(io, freed);
        return;
    }
    pthread_mutex_lock(&io->store->room_lock);
    if (serial > io->store->room_answered && serial <= io->store->room_asked) io->store->room_answered = serial;
    int64_t now = now_ms(), took = now - io->store->room_asked_ms + 1;
    if (freed > 0) atomic_fetch_add(&io->store->room_made, 1);
    io->store->room_vain_until_ms = freed > 0 ? 0 : now + (took < VAIN_MS / VAIN_TIMES ? took * VAIN_TIMES : VAIN_MS);
    pthread_cond_broadcast(&io->store->room_changed);
    pthread_mutex_unlock(&io->store->room_lock);
}

bool fsio_reserve_or_make(struct fsio *io, uint64_t more) {
    uint64_t since = atomic_load(&io->store->room_made);
    for (int tries = 0; !fsio_reserve(io, more); tries++) {
        if (tries == ROOM_TRIES || !fsio_make_room(io, more, since, true)) return false;
        since = atomic_load(&io->store->room_made);
    }
    return true;
}

static bool reserve_fresh(struct fsio *io, uint64_t more) {
    fsio_change_begins(io); /* a count in between would have it in one sum, and not in the other */
    bool room = fsio_reserve(io, more);
    if (room) atomic_fetch_add(&io->store->fresh, (int64_t)more);
    fsio_change_ends(io);
    return room;
}

bool fsio_fresh_room(struct fsio_fresh *fresh, uint64_t bytes, enum fsio_asking how) {
    struct fsio *io = fresh->io;
    uint64_t more = bytes > fresh->reserved ? bytes - fresh->reserved : 0, since = atomic_load(&io->store->room_made);
    for (int tries = 0; !reserve_fresh(io, more); tries++) {
        if (how == ROOM_AT_ONCE || tries == ROOM_TRIES || !fsio_make_room(io, more, since, how == ROOM_PATIENT)) return false;
        since = atomic_load(&io->store->room_made);
    }
    fresh->reserved += more;
    return true;
}

/* With a limit room was made before. Without one it is the kernel that refuses, with some of it written. */
int fsio_refused(struct fsio *io, int error, uint64_t more, uint64_t since) {
    return error == ENOSPC && io->store->limit == 0 && fsio_make_room(io, more, since, true) ? ESTALE : error;
}

void fsio_room_stop(struct fsio *io) {
    pthread_mutex_lock(&io->store->room_lock);
    pthread_cond_broadcast(&io->store->room_changed);
    pthread_mutex_unlock(&io->store->room_lock);
}
