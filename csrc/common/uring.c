#include "uring.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SETUP_NUMBER = 425, ENTER_NUMBER = 426 };
enum { SETUP_CLAMP = 1 << 4, SETUP_LONG_SUBMISSIONS = 1 << 10, SETUP_ONE_THREAD = 1 << 12, SETUP_WORK_WHEN_WAITING = 1 << 13 };
enum { FEATURE_ONE_MAP = 1 << 0, ENTER_GET = 1 << 0 };
enum { OFFSET_QUEUES = 0, OFFSET_SUBMISSIONS = 0x10000000 };

struct params {
    uint32_t submissions, completions, flags, thread_cpu, thread_idle, features, workers_fd, reserved[3];
    struct {
        uint32_t head, tail, mask, entries, flags, dropped, array, reserved;
        uint64_t address;
    } sq;
    struct {
        uint32_t head, tail, mask, entries, overflow, completions, flags, reserved;
        uint64_t address;
    } cq;
};
_Static_assert(sizeof(struct params) == 120, "as the kernel has it");

static unsigned *at(const struct uring *ring, uint32_t offset) { return (unsigned *)(void *)((char *)ring->queues + offset); }

int uring_open(struct uring *ring, unsigned entries) {
    struct params params = {.flags = SETUP_CLAMP | SETUP_LONG_SUBMISSIONS | SETUP_ONE_THREAD | SETUP_WORK_WHEN_WAITING};
    *ring = (struct uring){.fd = (int)syscall(SETUP_NUMBER, entries, &params)};
    if (ring->fd < 0) return errno;
    int error = (params.features & FEATURE_ONE_MAP) == 0 || params.submissions < entries ? ENOSYS : 0;
    size_t sq = params.sq.array + params.submissions * sizeof(uint32_t);
    size_t cq = params.cq.completions + params.completions * sizeof(struct uring_completion);
    if (error == 0) {
        ring->queues_size = sq > cq ? sq : cq;
        ring->queues = mmap(NULL, ring->queues_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, OFFSET_QUEUES);
        if (ring->queues == MAP_FAILED) error = errno;
    }
    if (error == 0) {
        ring->submissions_size = params.submissions * sizeof(struct uring_submission);
        ring->submissions =
            mmap(NULL, ring->submissions_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, OFFSET_SUBMISSIONS);
        if (ring->submissions == MAP_FAILED) error = errno;
    }
    if (error != 0) {
        uring_close(ring);
        return error;
    }
    ring->tail = at(ring, params.sq.tail);
    ring->mask = *at(ring, params.sq.mask);
    ring->completed_head = at(ring, params.cq.head);
    ring->completed_tail = at(ring, params.cq.tail);
    ring->completed_mask = *at(ring, params.cq.mask);
    ring->completions = (void *)((char *)ring->queues + params.cq.completions);
    for (unsigned i = 0; i < params.submissions; i++) at(ring, params.sq.array)[i] = i;
    return 0;
}

void uring_close(struct uring *ring) {
    if (ring->queues != NULL && ring->queues != MAP_FAILED) munmap(ring->queues, ring->queues_size);
    if (ring->submissions != NULL && ring->submissions != MAP_FAILED) munmap(ring->submissions, ring->submissions_size);
    if (ring->fd >= 0) close(ring->fd);
    *ring = (struct uring){.fd = -1};
}

struct uring_submission *uring_next(struct uring *ring) {
    if (ring->unsent > ring->mask) return NULL;
    struct uring_submission *next = (struct uring_submission *)ring->submissions + (ring->filled & ring->mask);
    memset(next, 0, sizeof *next);
    ring->filled++;
    ring->unsent++;
    return next;
}

static int enter(struct uring *ring, unsigned least) {
    atomic_store_explicit((_Atomic unsigned *)(void *)ring->tail, ring->filled, memory_order_release);
    long sent = syscall(ENTER_NUMBER, ring->fd, ring->unsent, least, least > 0 ? ENTER_GET : 0, NULL, 0);
    if (sent < 0) return errno;
    ring->unsent -= (unsigned)sent;
    return 0;
}

int uring_wait(struct uring *ring) { return enter(ring, 1); }

int uring_send(struct uring *ring) { return ring->unsent == 0 ? 0 : enter(ring, 0); }

bool uring_take(struct uring *ring, struct uring_completion *completion) {
    unsigned head = *ring->completed_head;
    if (head == atomic_load_explicit((_Atomic unsigned *)(void *)ring->completed_tail, memory_order_acquire)) return false;
    *completion = ring->completions[head & ring->completed_mask];
    atomic_store_explicit((_Atomic unsigned *)(void *)ring->completed_head, head + 1, memory_order_release);
    return true;
}
