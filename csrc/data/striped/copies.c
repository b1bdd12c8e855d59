/* Copies of stripes. The owner of a partition keeps the first copy of its stripes, and its backup by the table the second. All changes of a stripe go by
 * the owner: it holds the stripe's lock while it passes a change on and makes it, so that every copy sees the same changes in the same order. It passes
 * a change on before it makes it: a change for which a backup has no room is made nowhere. Which nodes have copies, and when one that was empty has got all
 * stripes (is in step), is decided elsewhere (fs/vfs/stripe_copies.py).
 *
 * A node takes copies from the owner by its own table only, on a lane of their own: a node that takes one waits for no other node. */
#include "data/peers/transfer.h"
#include "striped.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t *lock_in(pthread_mutex_t *locks, uint64_t ino, uint64_t index) {
    return &locks[((ino * 0x9E3779B97F4A7C15u >> 32) + index) % FSIO_COPY_LOCKS];
}

void fsio_set_copies(struct fsio *io, struct fsio_copies *all) {
    pthread_mutex_lock(&io->table_lock);
    struct fsio_copies *before = io->striped->copies;
    io->striped->copies = all;
    pthread_mutex_unlock(&io->table_lock);
    free(before);
}

void fsio_copies_settle(struct fsio *io) {
    for (int i = 0; i < FSIO_COPY_LOCKS; i++) {
        pthread_mutex_lock(&io->striped->passing_on[i]);
        pthread_mutex_unlock(&io->striped->passing_on[i]);
    }
}

bool fsio_has_copies(struct fsio *io) {
    pthread_mutex_lock(&io->table_lock);
    bool has = io->striped->copies != NULL;
    pthread_mutex_unlock(&io->table_lock);
    return has;
}

/* False: nobody has said yet. */
static bool copies_of(struct fsio *io, uint64_t ino, uint64_t index, struct fsio_copies *found) {
    pthread_mutex_lock(&io->table_lock);
    bool known = io->striped->copies != NULL && io->partitions > 0;
    if (known) *found = io->striped->copies[fsio_partition_of(io, ino, index)];
    pthread_mutex_unlock(&io->table_lock);
    return known && found->known;
}

/* ── the owner ── */

/* The error for the owner's caller. A backup that cannot be reached, or has another table: the next table says who has the copies then. */
static int passed(int error) { return error == 0 || error == ENOSPC || error == ECANCELED || error == ENODATA ? error : ESTALE; }

/* All of a stripe, as it is here, in place of what is there. With its lock held. */
static int send_whole(struct fsio *io, int32_t node, uint64_t ino, uint64_t index) {
    struct stat found = {0};
    struct data_reply reply = {0};
    uint8_t digest[XXH3_BYTES];
    int error = DATA_BROKEN, part = fsio_part_open(io, ino, (int64_t)index, PART_READ);
    if (part < 0 && part != -ENOENT) return -part;
    if (part >= 0 && fstat(part, &found) != 0) error = errno;
    bool known = part >= 0 && io->store->checks && fsio_digest_learn(io, ino, (int64_t)index, part, digest) == 0;
    bool damaged = known && fsio_check(io, part, ino, (int64_t)index, NULL) == DIGESTS_DAMAGED; /* then it is known there, too */
    struct data_request request = {.op = OP_COPY,
                                   .flag = COPY_WHOLE,
                                   .ino = ino,
                                   .index = (int64_t)index,
                                   .offset = (uint64_t)found.st_blocks * 512, /* that it takes */
                                   .length = (uint64_t)found.st_size,
                                   .extra = damaged ? COPY_DAMAGED
                                            : known ? COPY_CHECKED
                                                    : 0};
    for (int tries = 0; error == DATA_BROKEN && tries < 2; tries++) {
        struct data_link *link;
        error = data_link_get(&io->client, node, LANE_COPIES, tries > 0, &link);
        if (error != 0) break;
        bool used = link->used;
        error = data_ask(link, &request, NULL);
        if (error == 0 && known) error = data_send(link->fd, digest, sizeof digest, NULL, 0, true);
        if (error == 0) error = data_send_extents(link->fd, part, request.length);
        if (error == 0) error = data_hear(link, &reply);
        if (error == 0 && reply.length != 0) error = EPROTO;
        data_link_put(&io->client, link, error != 0);
        if (!used) break;
    }
    if (part >= 0) close(part);
    return passed(error != 0 ? data_result(&io->client, error) : reply.error);
}

static int send_change(struct fsio *io, int32_t node, bool in_step, uint64_t ino, uint64_t index, uint64_t at, const char *from,
                       size_t count) {
    struct data_reply reply;
    for (size_t done = 0; done < count;) {
        size_t piece = count - done < DATA_CHUNK ? count - done : DATA_CHUNK;
        struct data_request request = {.op = OP_COPY,
                                       .flag = in_step ? COPY_IN_STEP : COPY_CHANGE,
                                       .ino = ino,
                                       .index = (int64_t)index,
                                       .offset = at + done,
                                       .length = piece};
        int error = passed(data_call(&io->client, node, LANE_COPIES, &request, from + done, &reply, NULL, 0));
        if (error != 0) return error;
        done += piece;
    }
    return 0;
}

static int pass_on(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count) {
    struct fsio_copies copies;
    int error = copies_of(io, ino, index, &copies) ? 0 : ESTALE;
    for (int i = 0; error == 0 && i < copies.count; i++) {
        int32_t node = copies.nodes[i];
        error = send_change(io, node, copies.in_step[i], ino, index, at, from, count);
        if (error != ENODATA) continue;
        error = send_whole(io, node, ino, index); /* it had nothing of the stripe yet */
        if (error == 0) error = send_change(io, node, copies.in_step[i], ino, index, at, from, count);
        if (error == ENODATA) error = ESTALE; /* it has gone again: with another table, or cut. Nothing that a program could make of it */
    }
    return error;
}

static int keep_copies(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count, bool here) {
    pthread_mutex_t *lock = lock_in(io->striped->passing_on, ino, index);
    bool moving;
    pthread_mutex_lock(lock);
    int error = !fsio_stripe_ours(io, ino, index, &moving) || moving ? ESTALE : fsio_mark_copied(io, ino, index);
    if (error == 0) error = pass_on(io, ino, index, at, from, count);
    if (error == 0 && here) error = fsio_stripe_keep(io, ino, index, at, from, count);
    pthread_mutex_unlock(lock);
    return error;
}

int fsio_copied_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count) {
    return keep_copies(io, ino, index, at, from, count, true);
}

int fsio_copied_prepare(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count) {
    return keep_copies(io, ino, index, at, from, count, false);
}

int fsio_copied_punch(struct fsio *io, uint64_t ino, int64_t index, uint64_t offset, uint64_t length) {
    if (!fsio_is_copied(io, ino)) return fsio_part_punch(io, ino, index, offset, length);
    pthread_mutex_t *lock = lock_in(io->striped->passing_on, ino, (uint64_t)index);
    struct fsio_copies copies;
    pthread_mutex_lock(lock);
    int error = copies_of(io, ino, (uint64_t)index, &copies) ? fsio_part_punch(io, ino, index, offset, length) : ESTALE;
    for (int i = 0; error == 0 && i < copies.count; i++) error = send_whole(io, copies.nodes[i], ino, (uint64_t)index);
    pthread_mutex_unlock(lock);
    return error;
}

static bool is_here(struct fsio *io, uint64_t ino, uint64_t index) {
    struct data_stat stat;
    return fsio_part_stat(io, ino, (int64_t)index, &stat.size, &stat.blocks, &stat.atime, &stat.mtime, &stat.ctime) == 0;
}

int fsio_undisturbed(struct fsio *io, uint64_t ino, uint64_t index, int (*act)(struct fsio *io, void *context), void *context) {
    pthread_mutex_t *lock = lock_in(io->striped->passing_on, ino, index);
    bool moving;
    pthread_mutex_lock(lock);
    int error = !fsio_stripe_ours(io, ino, index, &moving) || moving ? ESTALE : is_here(io, ino, index) ? act(io, context) : ENOENT;
    pthread_mutex_unlock(lock);
    return error;
}

struct push {
    uint64_t ino, index;
    int32_t node;
};

static int push(struct fsio *io, void *context) {
    const struct push *push = context;
    return send_whole(io, push->node, push->ino, push->index);
}

int fsio_push_now(struct fsio *io, uint64_t ino, uint64_t index, int32_t node) {
    struct data_reply reply;
    int error = fsio_undisturbed(io, ino, index, push, &(struct push){ino, index, node});
    if (error == 0 && !is_here(io, ino, index)) { /* deleted meanwhile, there perhaps before it came */
        struct data_request request = {.op = OP_DELETE, .flag = WHAT_PART, .ino = ino, .index = (int64_t)index};
        (void)data_call(&io->client, node, LANE_PARTS, &request, NULL, &reply, NULL, 0);
    }
    return error;
}

/* ── a node that keeps copies for others ── */

int fsio_copy_change(struct fsio *io, int32_t owner, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count,
                     bool in_step) {
    pthread_mutex_t *lock = lock_in(io->striped->taking, ino, index);
    uint64_t more = fsio_part_growth(io, ino, index, at, count);
    int64_t grown = 0;
    fsio_change_begins(io);
    int error = fsio_reserve_or_make(io, more) ? 0 : ENOSPC;
    if (error == 0) {
        pthread_mutex_lock(lock);
        if (fsio_stripe_owner(io, ino, index) != owner) error = ESTALE;
        else if (!in_step && !is_here(io, ino, index)) error = ENODATA;
        else error = fsio_mark_copied(io, ino, index);
        if (error == 0) error = fsio_part_write(io, ino, index, at, from, count, &grown);
        pthread_mutex_unlock(lock);
        fsio_account(io, grown - (int64_t)more);
    }
    fsio_change_ends(io);
    return error;
}

int fsio_copy_whole(struct fsio_fresh *fresh, int32_t owner, uint64_t index, const uint8_t *digest, int error) {
    pthread_mutex_t *lock = lock_in(fresh->io->striped->taking, fresh->ino, index);
    pthread_mutex_lock(lock);
    if (error == 0 && fsio_stripe_owner(fresh->io, fresh->ino, index) != owner) error = ESTALE;
    if (error == 0) error = fsio_mark_copied(fresh->io, fresh->ino, index);
    error = fsio_fresh_end(fresh, (int64_t)index, digest, error);
    pthread_mutex_unlock(lock);
    return error;
}

/* ── a file that shall have copies from now on ── */

int fsio_copied(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = fsio_file_find(io, ino);
    if (file != NULL) atomic_store(&file->copied, true);
    if (file != NULL) fsio_drop_later(file);
    uint64_t end = fsio_stripes_end(io, ino);
    return end == 0 ? 0 : fsio_mark_copied(io, ino, end - 1);
}

/* ── stripes of this node, with their copies if they have any ── */

int fsio_part_trim(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size) {
    int error = fsio_part_cut(io, ino, stripe, size);
    if (fsio_has_copies(io)) fsio_copies_settle(io); /* copies of what was here before have come where they went */
    return error;
}

/* Making room waits for the poll loop, so it comes before the lock: under that one only memory is written. */
int fsio_stripe_put(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from, size_t count) {
    uint64_t since = atomic_load(&io->store->room_made);
    if (!fsio_takes_writes(io, ino, index)) return ESTALE;
    uint64_t more = fsio_part_growth(io, ino, index, at, count);
    fsio_change_begins(io);
    int error = fsio_reserve_or_make(io, more) ? 0 : ENOSPC;
    if (error == 0) {
        error = (copied ? fsio_copied_keep : fsio_stripe_keep)(io, ino, index, at, from, count);
        fsio_account(io, -(int64_t)more);
    }
    fsio_change_ends(io);
    return fsio_refused(io, error, count, since);
}
