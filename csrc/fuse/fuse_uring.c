/* FUSE over io_uring, where the host has it on. The kernel keeps a queue for each of its CPUs; here a thread sits on each CPU and serves its queue,
 * so that nobody has to be woken on another one for a request. What /dev/fuse alone carries (the greeting, FORGET) still comes to the reader.
 *
 * An entry is room for one request and its answer. Only the thread of its ring may give it back to the kernel: answers of other threads are
 * listed, and that thread is woken.
 *
 * The host's switch may have been turned off since the kernel offered this: then it refuses all entries, and goes on with /dev/fuse. But what it
 * has once taken a request with it must take back: if it does not, nobody can be answered any more, and the mount ends. */
#include "common/uring.h"
#include "fuse_internal.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { THREADS_MAX = 64, FEW_CPUS = 8, DEPTH = 16, DEPTH_MANY_CPUS = 4, HEADROOM = 4096, SMALL_BYTES = 128 << 10, FRONT = 256 };

struct entry {
    struct rings *rings;
    struct ring *ring;
    struct wire_ring_headers *headers;
    char *payload; /* MESSAGE_BYTES, and HEADROOM before it where the headers are */
    uint16_t queue;
    _Atomic uint64_t unique; /* of the request that wants an answer; 0: none */
    struct entry *next; /* of those that others answered */
};

struct ring {
    struct rings *rings;
    pthread_t thread;
    bool runs, served, broken; /* broken: who waits for an answer would wait for ever; or it was unmounted */
    int error, event_fd;
    struct uring uring;
    struct entry **entries;
    size_t count, live;
    char *inbox; /* a small request in one piece */
    struct entry *answered; /* by other threads; with the lock held */
    pthread_mutex_t lock;
};

struct rings {
    struct amfs_fuse *mount;
    struct ring ring[THREADS_MAX];
    struct entry *entries;
    size_t threads, queues, depth, opened;
    atomic_bool declined;
    enum { PREPARING, SERVING, QUITTING } state;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static _Thread_local struct entry *serving; /* whose request this thread is at */

/* CPUs that the kernel reckons with, as "0-3,5". */
static size_t possible_cpus(void) {
    FILE *file = fopen("/sys/devices/system/cpu/possible", "re");
    size_t count = 0;
    unsigned first, last;
    if (file == NULL) return 0;
    while (fscanf(file, "%u", &first) == 1) {
        int separator = fgetc(file);
        last = first;
        if (separator == '-' && fscanf(file, "%u", &last) == 1) separator = fgetc(file);
        count += last >= first ? last - first + 1 : 0;
        if (separator != ',') break;
    }
    fclose(file);
    return count;
}

/* ── to the kernel ── */

/* NULL: there is no room, which does not happen with one more place than there are entries. */
static struct uring_submission *submit(struct entry *entry, enum wire_ring_command command) {
    struct ring *ring = entry->ring;
    struct uring_submission *next = uring_next(&ring->uring);
    if (next == NULL) return NULL;
    struct wire_ring_command_in in = {.commit_id = entry->headers->entry.commit_id, .queue = entry->queue};
    next->op = URING_CMD;
    next->fd = ring->rings->mount->fd;
    next->command = command;
    next->tag = (uint64_t)(uintptr_t)entry;
    memcpy(next->bytes, &in, sizeof in);
    return next;
}

static bool watch_events(struct ring *ring) {
    struct uring_submission *next = uring_next(&ring->uring);
    if (next == NULL) return false;
    next->op = URING_POLL_ADD;
    next->fd = ring->event_fd;
    next->events = POLLIN;
    return true;
}

static void wake(struct ring *ring) {
    uint64_t one = 1;
    if (write(ring->event_fd, &one, sizeof one) < 0) return; /* it is full: then it is readable */
}

static struct entry *find(struct rings *rings, uint64_t unique) {
    for (size_t i = 0; i < rings->queues * rings->depth; i++)
        if (atomic_load(&rings->entries[i].unique) == unique) return &rings->entries[i];
    return NULL;
}

bool rings_answer(struct amfs_fuse *mount, uint64_t unique, int error, const void *data, size_t size) {
    struct rings *rings = mount->rings;
    struct entry *entry = serving;
    if (entry == NULL || entry->rings != rings || atomic_load(&entry->unique) != unique) entry = find(rings, unique);
    if (entry == NULL || !atomic_compare_exchange_strong(&entry->unique, &unique, 0)) return false;
    struct wire_out out = {.length = (uint32_t)(sizeof out + size), .error = -error, .unique = unique};
    memcpy(entry->headers->in_out, &out, sizeof out);
    if (size > 0 && data != entry->payload) memcpy(entry->payload, data, size);
    entry->headers->entry.payload_size = (uint32_t)size;
    if (entry == serving) {
        submit(entry, RING_COMMIT_AND_FETCH);
        return true;
    }
    struct ring *ring = entry->ring;
    pthread_mutex_lock(&ring->lock);
    bool first = ring->answered == NULL;
    entry->next = ring->answered;
    ring->answered = entry;
    pthread_mutex_unlock(&ring->lock);
    if (first) wake(ring);
    return true;
}

void rings_send(void) {
    if (serving != NULL) uring_send(&serving->ring->uring);
}

/* ── from the kernel ── */

/* The request as /dev/fuse would give it: header, first argument, the rest. What is big stays where it is, with the others put before it. */
static void handle(struct entry *entry) {
    struct ring *ring = entry->ring;
    struct wire_in in;
    size_t rest = entry->headers->entry.payload_size;
    memcpy(&in, entry->headers->in_out, sizeof in);
    if (in.length < sizeof in + rest || in.length - sizeof in - rest > sizeof entry->headers->op_in || rest > MESSAGE_BYTES) {
        atomic_store(&entry->unique, in.unique);
        rings_answer(ring->rings->mount, in.unique, EPROTO, NULL, 0);
        return;
    }
    size_t front = in.length - rest;
    char *message = rest <= SMALL_BYTES ? ring->inbox : entry->payload - front;
    memcpy(message, &in, sizeof in);
    memcpy(message + sizeof in, entry->headers->op_in, front - sizeof in);
    if (rest <= SMALL_BYTES) memcpy(message + front, entry->payload, rest);
    atomic_store(&entry->unique, in.unique);
    serving = entry;
    serve(ring->rings->mount, message, in.length, atomic_load(&ring->rings->mount->changes), entry->payload, false);
    serving = NULL;
}

static void take_answered(struct ring *ring) {
    pthread_mutex_lock(&ring->lock);
    struct entry *entry = ring->answered;
    ring->answered = NULL;
    pthread_mutex_unlock(&ring->lock);
    for (struct entry *next; entry != NULL; entry = next) {
        next = entry->next;
        submit(entry, RING_COMMIT_AND_FETCH);
    }
}

static bool register_entries(struct ring *ring) {
    for (size_t i = 0; i < ring->count; i++) {
        struct entry *entry = ring->entries[i];
        struct iovec room[2] = {{entry->headers, sizeof *entry->headers}, {entry->payload, MESSAGE_BYTES}};
        struct uring_submission *submission = submit(entry, RING_REGISTER);
        if (submission == NULL) return false;
        submission->address = (uint64_t)(uintptr_t)room;
        submission->length = 2;
        if (uring_send(&ring->uring) != 0) return false; /* `room` is read now */
        ring->live++;
    }
    return watch_events(ring);
}

/* Until the mount has ended, or the kernel has refused all entries. */
static void serve_ring(struct ring *ring) {
    struct rings *rings = ring->rings;
    struct uring_completion done;
    bool quitting = false;
    ring->broken = !register_entries(ring);
    while (!quitting && !ring->broken) {
        int error = uring_wait(&ring->uring);
        ring->broken = error != 0 && error != EINTR && error != EAGAIN && error != EBUSY;
        while (!ring->broken && uring_take(&ring->uring, &done)) {
            if (done.tag == 0) {
                uint64_t count;
                if (read(ring->event_fd, &count, sizeof count) < 0) {} /* it was not us */
                pthread_mutex_lock(&rings->lock);
                quitting = rings->state == QUITTING;
                pthread_mutex_unlock(&rings->lock);
                take_answered(ring);
                watch_events(ring);
            } else if (done.result == 0) {
                ring->served = true;
                handle((struct entry *)(uintptr_t)done.tag);
            } else {
                bool last = --ring->live == 0;
                ring->broken = ring->served && (last || done.result == -EOPNOTSUPP);
                if (last && !ring->served) atomic_store(&rings->declined, true);
                quitting = quitting || last;
            }
        }
    }
}

static void *run(void *argument) {
    struct ring *ring = argument;
    struct rings *rings = ring->rings;
    if (rings->threads == rings->queues) {
        size_t cpu = (size_t)(ring - rings->ring);
        cpu_set_t ours, own;
        CPU_ZERO(&own);
        CPU_SET(cpu, &own);
        if (sched_getaffinity(0, sizeof ours, &ours) == 0 && CPU_ISSET(cpu, &ours)) sched_setaffinity(0, sizeof own, &own);
    }
    int error = uring_open(&ring->uring, (unsigned)ring->count + 2);
    pthread_mutex_lock(&rings->lock);
    ring->error = error;
    rings->opened++;
    pthread_cond_broadcast(&rings->changed);
    while (rings->state == PREPARING) pthread_cond_wait(&rings->changed, &rings->lock);
    bool go = rings->state == SERVING && error == 0;
    pthread_mutex_unlock(&rings->lock);
    if (go) serve_ring(ring);
    uring_close(&ring->uring);
    if (ring->broken) {
        atomic_store(&rings->mount->halting, true);
        uint64_t one = 1;
        if (write(rings->mount->wake_fd, &one, sizeof one) < 0) {}
    }
    return NULL;
}

/* ── life ── */

static void set_state(struct rings *rings, int state) {
    pthread_mutex_lock(&rings->lock);
    rings->state = state;
    pthread_cond_broadcast(&rings->changed);
    pthread_mutex_unlock(&rings->lock);
    for (size_t i = 0; i < rings->threads; i++)
        if (rings->ring[i].event_fd >= 0) wake(&rings->ring[i]);
}

static bool make_entries(struct rings *rings) {
    size_t count = rings->queues * rings->depth;
    rings->entries = calloc(count, sizeof *rings->entries);
    if (rings->entries == NULL) return false;
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = &rings->entries[i];
        char *room = mmap(NULL, HEADROOM + MESSAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) return false;
        entry->rings = rings;
        entry->ring = &rings->ring[i / rings->depth % rings->threads];
        entry->headers = (void *)room;
        entry->payload = room + HEADROOM;
        entry->queue = (uint16_t)(i / rings->depth);
        entry->ring->entries[entry->ring->count++] = entry;
    }
    return true;
}

static bool make_rings(struct rings *rings) {
    bool fine = true;
    for (size_t i = 0; i < rings->threads; i++) rings->ring[i] = (struct ring){.rings = rings, .event_fd = -1, .uring = {.fd = -1}};
    for (size_t i = 0; i < rings->threads; i++) {
        struct ring *ring = &rings->ring[i];
        pthread_mutex_init(&ring->lock, NULL);
        ring->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        ring->entries = calloc((rings->queues / rings->threads + 1) * rings->depth, sizeof *ring->entries);
        ring->inbox = malloc(FRONT + SMALL_BYTES);
        fine = fine && ring->event_fd >= 0 && ring->entries != NULL && ring->inbox != NULL;
    }
    fine = fine && make_entries(rings);
    for (size_t i = 0; fine && i < rings->threads; i++) {
        fine = new_thread(&rings->ring[i].thread, run, &rings->ring[i]) == 0;
        rings->ring[i].runs = fine;
    }
    pthread_mutex_lock(&rings->lock);
    while (fine && rings->opened < rings->threads) pthread_cond_wait(&rings->changed, &rings->lock);
    for (size_t i = 0; i < rings->threads; i++) fine = fine && rings->ring[i].error == 0;
    pthread_mutex_unlock(&rings->lock);
    return fine;
}

bool rings_prepare(struct amfs_fuse *mount) {
    struct rings *rings = calloc(1, sizeof *rings);
    if (rings == NULL) return false;
    rings->mount = mount;
    rings->queues = possible_cpus();
    rings->threads = rings->queues < THREADS_MAX ? rings->queues : THREADS_MAX;
    rings->depth = rings->queues <= FEW_CPUS ? DEPTH : DEPTH_MANY_CPUS;
    pthread_mutex_init(&rings->lock, NULL);
    pthread_cond_init(&rings->changed, NULL);
    mount->rings = rings;
    if (rings->queues > 0 && rings->queues <= UINT16_MAX && make_rings(rings)) return true;
    rings_end(mount);
    rings_free(mount);
    return false;
}

bool rings_declined(const struct amfs_fuse *mount) { return mount->rings != NULL && atomic_load(&mount->rings->declined); }

void rings_begin(struct amfs_fuse *mount) { set_state(mount->rings, SERVING); }

void rings_end(struct amfs_fuse *mount) {
    struct rings *rings = mount->rings;
    if (rings == NULL) return;
    set_state(rings, QUITTING);
    for (size_t i = 0; i < rings->threads; i++) {
        if (!rings->ring[i].runs) continue;
        pthread_join(rings->ring[i].thread, NULL);
        rings->ring[i].runs = false;
    }
}

void rings_free(struct amfs_fuse *mount) {
    struct rings *rings = mount->rings;
    if (rings == NULL) return;
    for (size_t i = 0; rings->entries != NULL && i < rings->queues * rings->depth; i++)
        if (rings->entries[i].headers != NULL) munmap(rings->entries[i].headers, HEADROOM + MESSAGE_BYTES);
    for (size_t i = 0; i < rings->threads; i++) {
        struct ring *ring = &rings->ring[i];
        if (ring->event_fd >= 0) close(ring->event_fd);
        free(ring->entries);
        free(ring->inbox);
        pthread_mutex_destroy(&ring->lock);
    }
    pthread_mutex_destroy(&rings->lock);
    pthread_cond_destroy(&rings->changed);
    free(rings->entries);
    free(rings);
    mount->rings = NULL;
}
