#include "attempts.h"

#include "mark.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct attempt {
    struct attempt *next;
    uint64_t mark;
    size_t made_room;
    struct amfs_traces traces;
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

/* From the end: what was made last is renamed and removed first. */
static struct amfs_made *find_made(const struct amfs_traces *traces, uint64_t dir, const char *name, size_t length) {
    for (size_t i = traces->made_count; i-- > 0;) {
        struct amfs_made *made = &traces->made[i];
        if (is_name(dir, name, length, made->dir, made->name, made->length)) return made;
    }
    return NULL;
}

static void drop_made(struct amfs_traces *traces, struct amfs_made *made) {
    size_t index = (size_t)(made - traces->made);
    free(made->name);
    traces->made_count--;
    memmove(made, made + 1, (traces->made_count - index) * sizeof *made);
}

static void add_made(struct attempt *attempt, enum amfs_made_kind kind, uint64_t dir, const char *name, size_t length, uint64_t ino) {
    struct amfs_traces *traces = &attempt->traces;
    if (traces->made_count == attempt->made_room) {
        size_t room = attempt->made_room == 0 ? 16 : 2 * attempt->made_room;
        struct amfs_made *made = realloc(traces->made, room * sizeof *made);
        if (made == NULL) return;
        traces->made = made;
        attempt->made_room = room;
    }
    char *copy = copy_of(name, length);
    if (copy == NULL) return;
    forget_missed(traces, dir, name, length);
    traces->made[traces->made_count++] = (struct amfs_made){kind, dir, ino, length, copy};
}

void amfs_attempt_made(uint64_t number, enum amfs_made_kind kind, uint64_t dir, const char *name, size_t length, uint64_t ino) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    if (attempt != NULL) add_made(attempt, kind, dir, name, length, ino);
    pthread_mutex_unlock(&lock);
}

void amfs_attempt_removed(uint64_t number, uint64_t dir, const char *name, size_t length) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    struct amfs_made *made = attempt == NULL ? NULL : find_made(&attempt->traces, dir, name, length);
    if (made != NULL) drop_made(&attempt->traces, made);
    pthread_mutex_unlock(&lock);
}

static void rename_made(struct amfs_made *made, uint64_t dir, const char *name, size_t length) {
    char *copy = copy_of(name, length);
    if (copy == NULL) return;
    free(made->name);
    made->name = copy;
    made->dir = dir;
    made->length = length;
}

void amfs_attempt_renamed(uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t to_dir, const char *to_name,
                          size_t to_length, bool exchanged) {
    pthread_mutex_lock(&lock);
    struct attempt *attempt = find(number);
    if (attempt != NULL) {
        struct amfs_traces *traces = &attempt->traces;
        struct amfs_made *moved = find_made(traces, dir, name, length), *replaced = find_made(traces, to_dir, to_name, to_length);
        if (replaced != NULL && exchanged) rename_made(replaced, dir, name, length);
        else if (replaced != NULL) drop_made(traces, replaced);
        if (replaced != NULL && !exchanged) moved = find_made(traces, dir, name, length); /* they have moved up */
        forget_missed(traces, to_dir, to_name, to_length);
        if (moved != NULL) rename_made(moved, to_dir, to_name, to_length);
        else if (!exchanged) add_made(attempt, AMFS_MADE_RENAMED, to_dir, to_name, to_length, 0);
    }
    pthread_mutex_unlock(&lock);
}
