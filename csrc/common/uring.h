/* io_uring by hand: one ring of 128-byte submissions, used by the thread that opened it. Layouts and numbers are written down here, since the
 * header of the machine that builds may be older than the kernel of the one that runs. */
#ifndef AMFS_URING_H
#define AMFS_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum uring_op { URING_POLL_ADD = 6, URING_CMD = 46 };

struct uring_submission {
    uint8_t op, flags;
    uint16_t priority;
    int32_t fd;
    uint64_t command; /* of URING_CMD: its number */
    uint64_t address;
    uint32_t length, events;
    uint64_t tag;
    uint16_t buffer, personality;
    int32_t other_fd;
    uint8_t bytes[80]; /* of URING_CMD: what belongs to it */
};
_Static_assert(sizeof(struct uring_submission) == 128, "as the kernel has it");

struct uring_completion {
    uint64_t tag;
    int32_t result;
    uint32_t flags;
};

struct uring {
    int fd; /* -1: not open */
    void *queues, *submissions;
    size_t queues_size, submissions_size;
    unsigned *tail, *completed_head, *completed_tail, mask, completed_mask;
    struct uring_completion *completions;
    unsigned filled, unsent; /* the tail as it will be; what the kernel has not been given yet */
};

/* Room for `entries` submissions at a time. 0 or an errno. By the thread that will use it: no other may. */
int uring_open(struct uring *ring, unsigned entries);
void uring_close(struct uring *ring);
/* The next submission, zeroed, to be filled in: uring_wait or uring_send hands it over. NULL: there is no room. */
struct uring_submission *uring_next(struct uring *ring);
/* Hand over what was filled in, and wait until something has ended. 0 or an errno (EINTR among them). */
int uring_wait(struct uring *ring);
int uring_send(struct uring *ring); /* without waiting */
bool uring_take(struct uring *ring, struct uring_completion *completion);

#endif
