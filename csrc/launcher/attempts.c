#include "attempts.h"

#include "common/xxh64.h"
#include "mark.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = UINT32_MAX };

/* Files and directories made, in that order, and by their names: a task may make, rename and remove very many. */
struct attempt {
    struct attempt *next;
    uint64_t mark;
    size_t made_room; /* of traces.made and of next_made; a power of two */
    uint32_t *buckets, *next_made; /* as many buckets: indices into traces.made, or NOBODY */
    struct amfs_traces traces; /* among those made: names of NULL, removed since */
};

/* As many as there are slots: a list will do. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct attempt *attempts;
static uint64_t last;

static struct attempt *find(uint64_t number) {
    struct attempt *attempt = attempts;
    while (attempt != NULL && attempt->traces.number != number) attempt = attempt->next;
    return attempt;
}

uint64_t amfs_attempt_begin(uint64_t mark) {
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (attempt == NULL) return 0;
    attempt->mark = mark;
    pthread_mutex_lock(&lock);
    attempt->traces.number = ++last;
    attempt->next = attempts;
    attempts = attempt;
    pthread_mutex_unlock(&lock);
    return attempt->traces.number;
}

/* Removed ones go; the others keep their order. */
static void close_gaps(struct amfs_traces *traces) {
    size_t to = 0;
    for (size_t i = 0; i < traces->made_count; i++)
        if (traces->made[i].name != NULL) traces->made[to++] = traces->made[i];
    traces->made_count = to;
}

struct amfs_traces *amfs_attempt_end(uint64_t number) {
    struct amfs_traces *traces = malloc(sizeof *traces);
    if (traces == NULL) return NULL;
    pthread_mutex_lock(&lock);
    struct attempt **at = &attempts;
    while (*at != NULL && (*at)->traces.number != number) at = &(*at)->next;
    struct attempt *attempt = *at;
    if (attempt != NULL) *at = attempt->next;
    pthread_mutex_unlock(&lock);
    if (attempt == NULL) {
        free(traces);
        return NULL;
    }
    *traces = attempt->traces;
    close_gaps(traces);
    free(attempt->buckets);
    free(attempt->next_made);
    free(attempt);
    return traces;
}

void amfs_traces_free(struct amfs_traces *traces) {
    if (traces == NULL) return;
    for (size_t i = 0; i < traces->made_count; i++) free(traces->made[i].name);
    for (size_t i = 0; i < traces->missed_count; i++) free(traces->missed[i].name);
    free(traces->made);
    free(traces->missed);
    free(traces);
}

uint64_t amfs_attempt_of_process(int pid, bool *stray) {
    uint64_t mark = amfs_mark_of(pid), number = 0;
    *stray = false;
    if (mark == 0) return 0;
    pthread_mutex_lock(&lock);
    for (const struct attempt *attempt = attempts; attempt != NULL && number == 0; attempt = attempt->next)
        if (attempt->mark == mark) number = attempt->traces.number;
    pthread_mutex_unlock(&lock);
    *stray = number == 0;
    return number;
}

/* ── what it looked for ── */

static bool is_name(uint64_t dir, const char *name, size_t length, uint64_t other_dir, const char *other, size_t other_length) {
    return dir == other_dir && length == other_length && memcmp(name, other, length) == 0;
}

static char *copy_of(const char *name, size_t length) {
    char *copy = malloc(length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, name, length);
    copy[length] = '\0';
    return copy;
}

static void drop_missed(struct amfs_traces *traces, size_t index) {
    free(traces->missed[index].name);
    traces->missed_count--;
    memmove(&traces->missed[index], &traces->missed[index + 1], (traces->missed_count - index) * sizeof *traces->missed);
}

static void forget_missed(struct amfs_traces *traces, uint64_t dir, const char *name, size_t length) {
    for (size_t i = traces->missed_count; i-- > 0;)
        if (is_name(dir, name, length, traces->missed[i].dir, traces->missed[i].name, traces->missed[i].length)) drop_missed(traces, i);
}

void amfs_attempt_missed(uint64_t number, uint64_t dir, const char *name, size_t length) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    struct amfs_traces *traces = attempt == NULL ? NULL : &attempt->traces;
    if (traces != NULL && traces->missed == NULL) traces->missed = calloc(AMFS_MISSED_MAX, sizeof *traces->missed);
    if (traces != NULL && traces->missed != NULL) {
        forget_missed(traces, dir, name, length); /* it was missed last now */
        if (traces->missed_count == AMFS_MISSED_MAX) drop_missed(traces, 0);
        char *copy = copy_of(name, length);
        if (copy != NULL) traces->missed[traces->missed_count++] = (struct amfs_missed){dir, length, copy};
    }
    pthread_mutex_unlock(&lock);
}

void amfs_attempt_found(uint64_t number, uint64_t dir, const char *name, size_t length) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    if (attempt != NULL) forget_missed(&attempt->traces, dir, name, length);
    pthread_mutex_unlock(&lock);
}

/* ── what it made ── */

static uint32_t *bucket_of(const struct attempt *attempt, uint64_t dir, const char *name, size_t length) {
    return &attempt->buckets[amfs_xxh64(name, length, dir) & (attempt->made_room - 1)];
}

/* Its index, or NOBODY. */
static uint32_t find_made(const struct attempt *attempt, uint64_t dir, const char *name, size_t length) {
    if (attempt->made_room == 0) return NOBODY;
    uint32_t at = *bucket_of(attempt, dir, name, length);
    for (; at != NOBODY; at = attempt->next_made[at]) {
        const struct amfs_made *made = &attempt->traces.made[at];
        if (is_name(dir, name, length, made->dir, made->name, made->length)) break;
    }
    return at;
}

static void index_made(struct attempt *attempt, uint32_t at) {
    const struct amfs_made *made = &attempt->traces.made[at];
    uint32_t *bucket = bucket_of(attempt, made->dir, made->name, made->length);
    attempt->next_made[at] = *bucket;
    *bucket = at;
}

static void forget_index(struct attempt *attempt, uint32_t at) {
    const struct amfs_made *made = &attempt->traces.made[at];
    uint32_t *link = bucket_of(attempt, made->dir, made->name, made->length);
    while (*link != at) link = &attempt->next_made[*link];
    *link = attempt->next_made[at];
}

/* Room for one more. False: no memory. */
static bool reserve_made(struct attempt *attempt) {
    struct amfs_traces *traces = &attempt->traces;
    if (traces->made_count < attempt->made_room) return true;
    close_gaps(traces);
    size_t room = attempt->made_room == 0 ? 16 : traces->made_count > attempt->made_room / 2 ? 2 * attempt->made_room : attempt->made_room;
    if (room >= NOBODY) return false;
    struct amfs_made *made = realloc(traces->made, room * sizeof *made);
    if (made != NULL) traces->made = made;
    uint32_t *next = realloc(attempt->next_made, room * sizeof *next);
    if (next != NULL) attempt->next_made = next;
    uint32_t *buckets = realloc(attempt->buckets, room * sizeof *buckets);
    if (buckets != NULL) attempt->buckets = buckets;
    bool grown = made != NULL && next != NULL && buckets != NULL;
    if (grown) attempt->made_room = room;
    for (size_t i = 0; i < attempt->made_room; i++) attempt->buckets[i] = NOBODY;
    for (size_t i = 0; i < traces->made_count; i++) index_made(attempt, (uint32_t)i);
    return traces->made_count < attempt->made_room;
}

static void drop_made(struct attempt *attempt, uint32_t at) {
    struct amfs_made *made = &attempt->traces.made[at];
    forget_index(attempt, at);
    free(made->name);
    made->name = NULL;
}

static void add_made(struct attempt *attempt, const struct amfs_made *made) {
    forget_missed(&attempt->traces, made->dir, made->name, made->length);
    char *copy = reserve_made(attempt) ? copy_of(made->name, made->length) : NULL;
    if (copy == NULL) return;
    uint32_t at = (uint32_t)attempt->traces.made_count++;
    attempt->traces.made[at] = *made;
    attempt->traces.made[at].name = copy;
    index_made(attempt, at);
}

void amfs_attempt_made(uint64_t number, enum amfs_made_kind kind, uint64_t dir, const char *name, size_t length, uint64_t ino) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    if (attempt != NULL) add_made(attempt, &(struct amfs_made){kind, dir, ino, length, (char *)(uintptr_t)name});
    pthread_mutex_unlock(&lock);
}

void amfs_attempt_removed(uint64_t number, uint64_t dir, const char *name, size_t length) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    uint32_t at = attempt == NULL ? NOBODY : find_made(attempt, dir, name, length);
    if (at != NOBODY) drop_made(attempt, at);
    pthread_mutex_unlock(&lock);
}

static void rename_made(struct attempt *attempt, uint32_t at, uint64_t dir, const char *name, size_t length) {
    struct amfs_made *made = &attempt->traces.made[at];
    char *copy = copy_of(name, length);
    if (copy == NULL) return;
    forget_index(attempt, at);
    free(made->name);
    made->name = copy;
    made->dir = dir;
    made->length = length;
    index_made(attempt, at);
}

void amfs_attempt_renamed(uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t to_dir, const char *to_name,
                          size_t to_length, bool exchanged) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    if (attempt != NULL) {
        uint32_t moved = find_made(attempt, dir, name, length), replaced = find_made(attempt, to_dir, to_name, to_length);
        forget_missed(&attempt->traces, to_dir, to_name, to_length);
        if (replaced != NOBODY && replaced != moved && exchanged) rename_made(attempt, replaced, dir, name, length);
        else if (replaced != NOBODY && replaced != moved) drop_made(attempt, replaced);
        if (moved != NOBODY) rename_made(attempt, moved, to_dir, to_name, to_length);
        else if (!exchanged) add_made(attempt, &(struct amfs_made){AMFS_MADE_RENAMED, to_dir, 0, to_length, (char *)(uintptr_t)to_name});
    }
    pthread_mutex_unlock(&lock);
}
