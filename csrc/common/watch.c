#include "watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PLACES = 512 }; /* threads beyond that are not watched */

static struct place {
    atomic_bool taken;
    const char *_Atomic what;
    _Atomic uint64_t number;
    _Atomic int64_t since_ms;
} places[PLACES];

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct place *mine;
static _Thread_local bool none;

static void leave(void *place) {
    struct place *left = place;
    atomic_store(&left->since_ms, 0);
    atomic_store(&left->taken, false);
}

static void make_key(void) { (void)pthread_key_create(&key, leave); }

static struct place *take_place(void) {
    if (mine != NULL || none) return mine;
    pthread_once(&once, make_key);
    for (int i = 0; i < PLACES && mine == NULL; i++)
        if (!atomic_exchange(&places[i].taken, true)) mine = &places[i];
    none = mine == NULL;
    if (mine != NULL) pthread_setspecific(key, mine);
    return mine;
}

static int64_t coarse_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void put(struct place *place, struct watch_entry entry) {
    atomic_store_explicit(&place->since_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&place->what, entry.what, memory_order_relaxed);
    atomic_store_explicit(&place->number, entry.number, memory_order_relaxed);
    atomic_store_explicit(&place->since_ms, entry.since_ms, memory_order_release);
}

struct watch_entry amfs_watch_begin(const char *what, uint64_t number) {
    struct place *place = take_place();
    if (place == NULL) return (struct watch_entry){0};
    struct watch_entry before = {place->what, place->number, place->since_ms};
    put(place, (struct watch_entry){what, number, coarse_ms()});
    return before;
}

void amfs_watch_end(struct watch_entry before) {
    if (mine != NULL) put(mine, before);
}

size_t amfs_watch_look(int64_t longer_than_ms, struct watch_entry *found, size_t room) {
    int64_t now = coarse_ms();
    size_t count = 0;
    for (int i = 0; i < PLACES && count < room; i++) {
        int64_t since = atomic_load_explicit(&places[i].since_ms, memory_order_acquire);
        struct watch_entry entry = {places[i].what, places[i].number, since};
        if (since == 0 || now - since < longer_than_ms || entry.what == NULL) continue;
        if (atomic_load(&places[i].since_ms) == since) found[count++] = entry; /* else it was something else meanwhile */
    }
    return count;
}
