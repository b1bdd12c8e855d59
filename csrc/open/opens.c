/* The records of the files that are open on this node. */
#include "opens.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BUCKETS_MIN = 64 };

struct opens {
    atomic_int owners;
    atomic_uint making;
    pthread_mutex_t mounts_lock, lock;
    struct open_record **buckets, *spare;
    size_t bucket_count, count;
};

struct opens *opens_new(void) {
    struct opens *opens = calloc(1, sizeof *opens);
    if (opens != NULL) opens->buckets = calloc(BUCKETS_MIN, sizeof(struct open_record *));
    if (opens == NULL || opens->buckets == NULL) {
        free(opens);
        return NULL;
    }
    opens->bucket_count = BUCKETS_MIN;
    atomic_init(&opens->owners, 1);
    atomic_init(&opens->making, 0);
    pthread_mutex_init(&opens->mounts_lock, NULL);
    pthread_mutex_init(&opens->lock, NULL);
    return opens;
}

struct opens *opens_share(struct opens *opens) {
    atomic_fetch_add(&opens->owners, 1);
    return opens;
}

static void free_list(struct open_record *record) {
    for (struct open_record *next; record != NULL; record = next) {
        next = record->next;
        free(record);
    }
}

void opens_drop(struct opens *opens) {
    if (opens == NULL || atomic_fetch_sub(&opens->owners, 1) > 1) return;
    for (size_t i = 0; i < opens->bucket_count; i++) free_list(opens->buckets[i]);
    free_list(opens->spare);
    free(opens->buckets);
    pthread_mutex_destroy(&opens->mounts_lock);
    pthread_mutex_destroy(&opens->lock);
    free(opens);
}

pthread_mutex_t *opens_mounts_lock(struct opens *opens) { return &opens->mounts_lock; }

/* ── the table ── with the lock held */

static struct open_record **place_of(const struct opens *opens, uint64_t ino) {
    struct open_record **at = &opens->buckets[ino * 0x9E3779B97F4A7C15u >> 32 & (opens->bucket_count - 1)];
    while (*at != NULL && (*at)->ino != ino) at = &(*at)->next;
    return at;
}

/* Without memory the chains get longer. */
static void grow(struct opens *opens) {
    size_t before = opens->bucket_count;
    struct open_record **old = opens->buckets, **buckets = calloc(2 * before, sizeof(struct open_record *));
    if (buckets == NULL) return;
    opens->buckets = buckets;
    opens->bucket_count = 2 * before;
    for (size_t i = 0; i < before; i++)
        for (struct open_record *next, *record = old[i]; record != NULL; record = next) {
            next = record->next;
            record->next = NULL;
            *place_of(opens, record->ino) = record;
        }
    free(old);
}

static struct open_record *find_or_make(struct opens *opens, uint64_t ino) {
    struct open_record *record = *place_of(opens, ino);
    if (record != NULL) return record;
    if (opens->count >= opens->bucket_count) grow(opens);
    if ((record = opens->spare) != NULL) opens->spare = record->next;
    else if ((record = malloc(sizeof *record)) == NULL) return NULL;
    *record = (struct open_record){.ino = ino};
    *place_of(opens, ino) = record;
    opens->count++;
    return record;
}

static bool says_something(const struct open_record *record) {
    int used = open_count(record, OPEN_MOUNTS) + open_count(record, OPEN_HANDLES) + open_count(record, OPEN_NODES);
    return used > 0 || record->direct > 0 || record->direct_writers > 0 || record->telling > 0 || record->claimed;
}

static void forget_if_empty(struct opens *opens, struct open_record *record) {
    if (record->references > 0 || says_something(record)) return;
    struct open_record **at = place_of(opens, record->ino);
    *at = record->next;
    record->next = opens->spare;
    opens->spare = record;
    opens->count--;
}

/* ── uses ── */

static struct open_record *hold(struct opens *opens, uint64_t ino, bool mounts) {
    pthread_mutex_lock(&opens->lock);
    struct open_record *record = find_or_make(opens, ino);
    if (record != NULL) record->references++;
    if (record != NULL && mounts) {
        record->mounted = true;
        record->tell_loop = false; /* the poll loop saw another opening */
    }
    pthread_mutex_unlock(&opens->lock);
    return record;
}

static void release(struct opens *opens, struct open_record *record, bool mounts) {
    pthread_mutex_lock(&opens->lock);
    record->references--;
    if (mounts) record->mounted = false;
    forget_if_empty(opens, record);
    pthread_mutex_unlock(&opens->lock);
}

struct open_record *opens_hold(struct opens *opens, uint64_t ino) { return hold(opens, ino, false); }

void opens_release(struct opens *opens, struct open_record *record) { release(opens, record, false); }

struct open_record *opens_mount(struct opens *opens, uint64_t ino) { return hold(opens, ino, true); }

void opens_unmount(struct opens *opens, struct open_record *record) { release(opens, record, true); }

void opens_count(struct opens *opens, struct open_record *record, enum open_user user, bool writing, int by) {
    pthread_mutex_lock(&opens->lock);
    record->counts[user][writing] += by;
    pthread_mutex_unlock(&opens->lock);
}

void opens_tell_loop(struct opens *opens, struct open_record *record) {
    pthread_mutex_lock(&opens->lock);
    record->tell_loop = true;
    pthread_mutex_unlock(&opens->lock);
}

struct open_record opens_look(struct opens *opens, uint64_t ino) {
    pthread_mutex_lock(&opens->lock);
    const struct open_record *record = *place_of(opens, ino);
    struct open_record seen = record == NULL ? (struct open_record){.ino = ino} : *record;
    pthread_mutex_unlock(&opens->lock);
    return seen;
}

bool opens_is_used(struct opens *opens, uint64_t ino) {
    struct open_record record = opens_look(opens, ino);
    return says_something(&record);
}

struct open_record opens_look_for_loop(struct opens *opens, uint64_t ino) {
    pthread_mutex_lock(&opens->mounts_lock); /* no mount is in the middle of opening or closing it */
    pthread_mutex_lock(&opens->lock);
    struct open_record *record = *place_of(opens, ino);
    if (record != NULL && record->mounted) record->tell_loop = true;
    struct open_record seen = record == NULL ? (struct open_record){.ino = ino} : *record;
    pthread_mutex_unlock(&opens->lock);
    pthread_mutex_unlock(&opens->mounts_lock);
    return seen;
}

/* ── files that are recorded elsewhere ── */

int opens_use_directly(struct opens *opens, uint64_t ino, int files, int writers) {
    pthread_mutex_lock(&opens->lock);
    struct open_record *record = find_or_make(opens, ino);
    if (record != NULL) {
        record->direct += files;
        record->direct_writers += writers;
        forget_if_empty(opens, record);
    }
    pthread_mutex_unlock(&opens->lock);
    return record == NULL ? ENOMEM : 0;
}

void opens_begin_making(struct opens *opens) { atomic_fetch_add(&opens->making, 1); }

void opens_end_making(struct opens *opens) { atomic_fetch_sub(&opens->making, 1); }

unsigned opens_making(const struct opens *opens) { return atomic_load(&opens->making); }

/* `alone`: unless another closing is being told, or the file is written. */
static bool begin_telling(struct opens *opens, uint64_t ino, bool alone) {
    pthread_mutex_lock(&opens->lock);
    struct open_record *record = find_or_make(opens, ino);
    bool may = record != NULL && !record->claimed && !(alone && (record->telling > 0 || record->direct_writers > 0));
    if (may) record->telling++;
    else if (record != NULL) forget_if_empty(opens, record);
    pthread_mutex_unlock(&opens->lock);
    return may;
}

bool opens_tell_directly(struct opens *opens, uint64_t ino) { return begin_telling(opens, ino, false); }

bool opens_bring_directly(struct opens *opens, uint64_t ino) { return begin_telling(opens, ino, true); }

void opens_told_directly(struct opens *opens, uint64_t ino) {
    pthread_mutex_lock(&opens->lock);
    struct open_record *record = *place_of(opens, ino);
    if (record != NULL && record->telling > 0) {
        record->telling--;
        forget_if_empty(opens, record);
    }
    pthread_mutex_unlock(&opens->lock);
}

int opens_claim(struct opens *opens, uint64_t ino, bool claimed) {
    pthread_mutex_lock(&opens->lock);
    struct open_record *record = claimed ? find_or_make(opens, ino) : *place_of(opens, ino);
    if (record != NULL) {
        record->claimed = claimed;
        forget_if_empty(opens, record);
    }
    pthread_mutex_unlock(&opens->lock);
    return claimed && record == NULL ? ENOMEM : 0;
}
