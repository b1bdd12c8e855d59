/* Times that a mount gives, and answers to the kernel. Stands on the mount and its node only. */
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* An answer that waits until the backup of what was changed knows it. */
struct held_answer {
    struct peer_meta_held held;
    struct amfs_fuse *mount;
    uint64_t created; /* open, if somebody still waits for the answer */
    size_t size;
    _Alignas(8) char bytes[];
};

static _Thread_local struct {
    bool changes; /* the request that is being served: names, or attributes */
    uint64_t created;
} serving;

int64_t fuse_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return ns_of(now);
}

int64_t fuse_exact_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ns_of(now);
}

int64_t fuse_now_of(struct node *node) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    int64_t floor = atomic_load_explicit(&node->floor, memory_order_relaxed);
    return ns_of(now) > floor ? ns_of(now) : floor;
}

/* tmpfs stamps a file that somebody has looked at with a finer clock than ours: a later change must not seem to come before it. */
void fuse_seen_time(struct node *node, int64_t time) {
    struct timespec now;
    int64_t floor = atomic_load_explicit(&node->floor, memory_order_relaxed);
    if (time <= floor) return;
    clock_gettime(CLOCK_REALTIME, &now);
    if (time > ns_of(now)) return; /* somebody set it */
    while (time > floor && !atomic_compare_exchange_weak(&node->floor, &floor, time)) {}
}

int64_t fuse_exact_now_of(struct node *node) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fuse_seen_time(node, ns_of(now));
    return fuse_now_of(node);
}

/* The header comes before the parts. 0 or an errno. */
static int write_answer(const struct amfs_fuse *mount, const struct iovec *parts, int count) {
    for (;;) {
        if (writev(mount->fd, parts, count) >= 0) return 0;
        if (errno == EAGAIN && mount->socket) {
            struct pollfd wait = {.fd = mount->fd, .events = POLLOUT};
            if (poll(&wait, 1, 1000) != 1) return EIO;
        } else if (errno != EINTR) {
            return errno;
        }
    }
}

static void give_held(struct peer_meta_held *held, int unknown) {
    struct held_answer *answer = (struct held_answer *)(void *)((char *)held - offsetof(struct held_answer, held));
    struct wire_out *header = (void *)answer->bytes;
    if (unknown != 0) {
        *header = (struct wire_out){.length = sizeof *header, .error = -unknown, .unique = header->unique};
        answer->size = sizeof *header;
    }
    int error = write_answer(answer->mount, &(struct iovec){answer->bytes, answer->size}, 1);
    if ((error == ENOENT || unknown != 0) && answer->created != 0) answer->mount->above->in_vain(answer->mount, answer->created);
    free(answer);
}

/* -1: it waits. 0: it can be given at once; EIO: nobody knows whether it is so. */
static int hold_answer(struct amfs_fuse *mount, const struct wire_out *header, const void *data, size_t size) {
    uint64_t ticket = serving.changes ? meta_take_ticket() : 0;
    struct peer_meta *peer_meta = ticket == 0 ? NULL : peer_meta_of(mount->node->io);
    if (peer_meta == NULL) return 0;
    peer_meta_send_backups(peer_meta);
    struct held_answer *answer = malloc(sizeof *answer + header->length);
    if (answer == NULL) return peer_meta_await_backups(peer_meta, ticket) ? 0 : EIO;
    *answer = (struct held_answer){
        .held = {.ticket = ticket, .owner = mount, .ready = give_held}, .mount = mount, .created = serving.created, .size = header->length};
    memcpy(answer->bytes, header, sizeof *header);
    if (size > 0) memcpy(answer->bytes + sizeof *header, data, size);
    if (peer_meta_hold(peer_meta, &answer->held)) return -1;
    free(answer);
    return 0;
}

int fuse_answer(struct amfs_fuse *mount, uint64_t unique, int error, const void *data, size_t size) {
    struct wire_out header = {.length = (uint32_t)(sizeof header + size), .error = -error, .unique = unique};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)(uintptr_t)data, size}};
    int unknown = hold_answer(mount, &header, data, size);
    if (unknown < 0) return 0;
    if (unknown != 0) header = (struct wire_out){.length = sizeof header, .error = -unknown, .unique = unique};
    return write_answer(mount, parts, size != 0 && unknown == 0 ? 2 : 1);
}

int fuse_give_parts(const struct call *call, const struct iovec *parts, int count, size_t size) {
    struct wire_out header = {.length = (uint32_t)(sizeof header + size), .unique = call->in->unique};
    struct iovec all[1 + FSIO_LENT_MAX] = {{&header, sizeof header}};
    memcpy(all + 1, parts, (size_t)count * sizeof *parts);
    return write_answer(call->mount, all, 1 + count);
}

void fuse_wake_loop(struct amfs_fuse *mount) {
    uint64_t one = 1;
    if (write(mount->event_fd, &one, sizeof one) < 0) return; /* it is full: then it is readable */
}

void fuse_backups_early(const struct amfs_fuse *mount) {
    struct peer_meta *peer_meta = is_alone(mount->node) ? NULL : peer_meta_of(mount->node->io);
    if (peer_meta != NULL) peer_meta_send_backups(peer_meta);
}

void fuse_created(uint64_t ino) { serving.created = ino; }

void fuse_answers_to(bool changes) {
    serving.changes = changes;
    serving.created = 0;
}

bool fuse_requests_wait(const struct amfs_fuse *mount) {
    struct pollfd requests = {.fd = mount->fd, .events = POLLIN};
    return poll(&requests, 1, 0) == 1;
}

uint64_t fuse_seconds_of(int64_t time, uint32_t *ns) {
    int64_t seconds = time / 1000000000, rest = time % 1000000000;
    if (rest < 0) {
        rest += 1000000000;
        seconds--;
    }
    *ns = (uint32_t)rest;
    return (uint64_t)seconds;
}
