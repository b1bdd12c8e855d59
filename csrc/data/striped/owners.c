/* Stripes at their owners, this node among them: one, many at once, all of a file. */
#include "striped.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    STALE_WAIT_MS = 20, /* the owner has a newer table than we, or we than it, or the partition moves */
    MEND_MS = 3000, /* so long a reader waits until a damaged stripe has been mended by its copy */
    BATCH = 64, /* segments asked for at once */
    BATCH_OWNERS = 16,
};

/* False: it has taken stall_ms since it was called first (`since_ms`; 0: it was not). To try again may take long, too, so the pauses alone do not count. */
static bool wait_for_table(struct fsio *io, int64_t *since_ms) {
    struct timespec pause = {.tv_nsec = STALE_WAIT_MS * 1000000};
    if (*since_ms == 0) *since_ms = now_ms();
    if (atomic_load(&io->stopping) || now_ms() - *since_ms > io->client.stall_ms) return false;
    nanosleep(&pause, NULL);
    return true;
}

/* ── one stripe ── */

static int read_here(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, char *to, size_t count, size_t *got) {
    *got = 0;
    if (!fsio_stripe_served(io, ino, index)) return ESTALE; /* since we looked who owns it */
    int part = fsio_part_open(io, ino, (int64_t)index, PART_READ), error = 0;
    if (part == -ENOENT) return fsio_stripe_served(io, ino, index) ? 0 : ESTALE; /* a hole, or it has been fetched away since */
    if (part < 0) return -part;
    while (*got < count) {
        ssize_t more = pread(part, to + *got, count - *got, (off_t)(at + *got));
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) error = errno;
        if (more <= 0) break;
        *got += (size_t)more;
    }
    close(part);
    return error;
}

/* One attempt, zeros for what is not there. */
static int read_stripe_once(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, char *to, size_t count) {
    struct data_request request = {.op = OP_READ, .ino = ino, .index = (int64_t)index, .offset = at, .length = count};
    int32_t owner = fsio_stripe_owner(io, ino, index);
    struct data_reply reply = {0};
    size_t got = 0;
    int error;
    if (owner < 0) return EIO;
    if (owner == io->node) {
        error = read_here(io, ino, index, at, to, count, &got);
    } else {
        error = data_call(&io->client, owner, LANE_PARTS, &request, NULL, &reply, to, count);
        got = reply.length;
    }
    if (error == 0) memset(to + got, 0, count - got);
    return error;
}

/* A node that cannot be reached may have died: its heir, by the next table, has the stripes with copies that it had. */
static int until_next_table(const struct fsio *io, int32_t owner, bool copied, int error) {
    return copied && error == EIO && owner >= 0 && owner != io->node ? ESTALE : error;
}

int fsio_stripe_read(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, char *to, size_t count) {
    int64_t since = 0;
    int error;
    do {
        int32_t owner = fsio_stripe_owner(io, ino, index);
        error = until_next_table(io, owner, copied, read_stripe_once(io, ino, index, at, to, count));
        if (error == EBADMSG && copied && (since == 0 || now_ms() - since < MEND_MS)) error = ESTALE;
    } while (error == ESTALE && wait_for_table(io, &since));
    return error == ESTALE || error == EBADMSG ? EIO : error;
}

int fsio_stripe_write(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from, size_t count) {
    struct data_request request = {.op = OP_WRITE, .flag = copied, .ino = ino, .index = (int64_t)index, .offset = at, .length = count};
    struct data_reply reply;
    int64_t since = 0;
    int error;
    do {
        int32_t owner = fsio_stripe_owner(io, ino, index);
        if (owner < 0) error = EIO;
        else if (owner == io->node) error = fsio_stripe_put(io, ino, index, copied, at, from, count);
        else error = data_call(&io->client, owner, LANE_PARTS, &request, from, &reply, NULL, 0);
        error = until_next_table(io, owner, copied, error);
    } while (error == ESTALE && wait_for_table(io, &since));
    return error == ESTALE ? EIO : error;
}

/* ── many segments ── from all owners at once: all are asked before the first is heard */

struct lane_of_owner {
    int32_t owner;
    struct data_link *link;
    int error;
};

static int by_owner(const void *left, const void *right) {
    const struct lane_of_owner *a = left, *b = right;
    return a->owner < b->owner ? -1 : a->owner > b->owner;
}

/* The links to these owners, in order of their numbers: threads that need several do not wait in a circle. */
static int open_lanes(struct fsio *io, const int32_t *owners, size_t count, struct lane_of_owner *lanes) {
    int used = 0;
    for (size_t i = 0; i < count; i++) {
        int at = 0;
        if (owners[i] == io->node || owners[i] < 0) continue;
        while (at < used && lanes[at].owner != owners[i]) at++;
        if (at == used && used < BATCH_OWNERS) lanes[used++] = (struct lane_of_owner){.owner = owners[i]};
    }
    qsort(lanes, (size_t)used, sizeof *lanes, by_owner);
    for (int i = 0; i < used; i++) lanes[i].error = data_link_get(&io->client, lanes[i].owner, LANE_PARTS, false, &lanes[i].link);
    return used;
}

static struct lane_of_owner *lane_for(struct lane_of_owner *lanes, int used, int32_t owner) {
    for (int i = 0; i < used; i++)
        if (lanes[i].owner == owner) return &lanes[i];
    return NULL;
}

static int hear_segment(struct lane_of_owner *lane, const struct fsio_segment *segment) {
    struct data_reply reply;
    int error = data_hear(lane->link, &reply);
    if (error == 0 && reply.length > segment->count) error = EPROTO;
    if (error == 0) error = data_receive(lane->link->fd, segment->to, reply.length);
    if (error != 0) {
        lane->error = error; /* of the connection: those after it on it are asked for again */
        return error;
    }
    if (reply.error == 0) memset(segment->to + reply.length, 0, segment->count - reply.length);
    return reply.error;
}

static int read_batch(struct fsio *io, uint64_t ino, bool copied, const struct fsio_segment *segments, size_t count) {
    struct lane_of_owner lanes[BATCH_OWNERS];
    int32_t owners[BATCH];
    bool done[BATCH] = {false};
    for (size_t i = 0; i < count; i++) owners[i] = fsio_stripe_owner(io, ino, segments[i].index);
    int used = open_lanes(io, owners, count, lanes);
    for (size_t i = 0; i < count; i++) {
        struct lane_of_owner *lane = lane_for(lanes, used, owners[i]);
        struct data_request request = {
            .op = OP_READ, .ino = ino, .index = (int64_t)segments[i].index, .offset = segments[i].at, .length = segments[i].count};
        if (lane != NULL && lane->error == 0) lane->error = data_ask(lane->link, &request, NULL);
    }
    for (size_t i = 0; i < count; i++) { /* ours while theirs are on their way */
        if (owners[i] != io->node) continue;
        done[i] = read_stripe_once(io, ino, segments[i].index, segments[i].at, segments[i].to, segments[i].count) == 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct lane_of_owner *lane = lane_for(lanes, used, owners[i]);
        if (lane != NULL && lane->error == 0) done[i] = hear_segment(lane, &segments[i]) == 0;
    }
    for (int i = 0; i < used; i++)
        if (lanes[i].link != NULL) data_link_put(&io->client, lanes[i].link, lanes[i].error != 0);
    int error = 0; /* whatever went wrong: once more alone, and then it is said why */
    for (size_t i = 0; i < count && error == 0; i++)
        if (!done[i]) error = fsio_stripe_read(io, ino, segments[i].index, copied, segments[i].at, segments[i].to, segments[i].count);
    return error;
}

int fsio_segments_read(struct fsio *io, uint64_t ino, bool copied, const struct fsio_segment *segments, size_t count) {
    int error = 0;
    for (size_t at = 0; at < count && error == 0; at += BATCH) {
        size_t piece = count - at < BATCH ? count - at : BATCH;
        error = piece == 1 ? fsio_stripe_read(io, ino, segments[at].index, copied, segments[at].at, segments[at].to, segments[at].count)
                           : read_batch(io, ino, copied, segments + at, piece);
    }
    return error;
}

/* ── all of a file ── */

/* The distinct owners of stripes first..last of a file. Malloc'd; NULL: no memory or no table. */
static int32_t *owners_of(struct fsio *io, uint64_t ino, uint64_t first, uint64_t last, size_t *count) {
    pthread_mutex_lock(&io->table_lock);
    size_t partitions = io->partitions;
    pthread_mutex_unlock(&io->table_lock);
    uint64_t most = last - first < partitions ? last - first + 1 : partitions; /* then every partition has its turn */
    int32_t *owners = malloc((most + 1) * sizeof *owners);
    *count = 0;
    for (uint64_t i = 0; owners != NULL && i < most; i++) {
        int32_t owner = fsio_stripe_owner(io, ino, first + i);
        size_t at = 0;
        while (at < *count && owners[at] != owner) at++;
        if (at == *count && owner >= 0) owners[(*count)++] = owner;
    }
    return owners;
}

static int next_once(struct fsio *io, uint64_t ino, uint64_t index, uint64_t last, bool copied, uint64_t *next) {
    struct data_request request = {.op = OP_NEXT, .ino = ino, .index = (int64_t)index};
    struct data_reply reply;
    size_t count;
    int error = 0;
    int32_t *owners = owners_of(io, ino, index, last, &count);
    if (owners == NULL) return ENOMEM;
    *next = UINT64_MAX;
    for (size_t i = 0; i < count && error == 0; i++) {
        if (owners[i] == io->node) {
            if (fsio_any_moving(io)) error = ESTALE;
            else reply.value = fsio_stripes_next(io, ino, index);
        } else {
            error = data_call(&io->client, owners[i], LANE_PARTS, &request, NULL, &reply, NULL, 0);
        }
        error = until_next_table(io, owners[i], copied, error);
        if (error == 0 && reply.value < *next) *next = reply.value;
    }
    free(owners);
    return error;
}

int fsio_next_stripe(struct fsio *io, uint64_t ino, uint64_t index, uint64_t last, bool copied, uint64_t *next) {
    int64_t since = 0;
    int error = 0;
    *next = UINT64_MAX;
    if (index > last) return 0;
    do error = next_once(io, ino, index, last, copied, next);
    while (error == ESTALE && wait_for_table(io, &since));
    return error == ESTALE ? EIO : error;
}

static int trim_once(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t size, uint64_t old) {
    struct data_request request = {.op = OP_TRIM, .ino = ino, .index = FSIO_WHOLE, .stripe = stripe, .offset = size};
    struct data_reply reply;
    size_t count;
    int error = 0;
    int32_t *owners = copied ? owners_of(io, ino, 0, UINT64_MAX, &count) /* any node may keep copies of it */
                             : owners_of(io, ino, size / stripe, (old - 1) / stripe, &count);
    if (owners == NULL) return ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int failed = owners[i] != io->node ? data_call(&io->client, owners[i], LANE_PARTS, &request, NULL, &reply, NULL, 0)
                     : fsio_any_moving(io) ? ESTALE
                                           : fsio_part_trim(io, ino, stripe, size);
        failed = until_next_table(io, owners[i], copied, failed);
        if (error == 0 || failed == ESTALE) error = failed;
    }
    free(owners);
    return error;
}

/* Those of stripes that move are cut when they have arrived. Copies that were on their way when the owner cut its stripes have come when it answers, and
 * are cut in a second round. */
int fsio_stripes_trim(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t size, uint64_t old) {
    int64_t since = 0;
    int error;
    if (size >= old) return 0;
    for (int round = copied ? 2 : 1; round > 0; round--) {
        do error = trim_once(io, ino, stripe, copied, size, old);
        while (error == ESTALE && wait_for_table(io, &since));
        if (error != 0) break;
    }
    return error == ESTALE ? EIO : error;
}

int fsio_stripe_punch(struct fsio_file *file, uint64_t index, uint64_t at, uint64_t count) {
    struct fsio *io = file->io;
    struct data_request request = {.op = OP_PUNCH, .ino = file->ino, .index = (int64_t)index, .offset = at, .length = count};
    struct data_reply reply;
    int64_t since = 0;
    int error;
    do {
        int32_t owner = fsio_stripe_owner(io, file->ino, index);
        if (owner < 0) error = EIO;
        else if (owner == io->node) error = fsio_copied_punch(io, file->ino, (int64_t)index, at, count);
        else error = data_call(&io->client, owner, LANE_PARTS, &request, NULL, &reply, NULL, 0);
        error = until_next_table(io, owner, file->copied, error);
    } while (error == ESTALE && wait_for_table(io, &since));
    return error == ESTALE ? EIO : error;
}

int fsio_stripes_total(struct fsio_file *file, struct data_stat *sum) {
    struct fsio *io = file->io;
    struct data_request request = {.op = OP_SUM, .ino = file->ino, .index = FSIO_WHOLE};
    uint64_t size = atomic_load(&file->size);
    size_t count;
    int error = 0;
    int32_t *owners = owners_of(io, file->ino, 0, size == 0 ? 0 : (size - 1) / file->stripe, &count);
    if (owners == NULL) return ENOMEM;
    for (size_t i = 0; i < count && error == 0; i++) {
        struct data_stat one = {0};
        if (owners[i] == io->node) error = fsio_stripes_sum(io, file->ino, &one);
        else error = data_call_stat(&io->client, owners[i], LANE_PARTS, &request, &one);
        sum->blocks += one.blocks;
        if (sum->atime < one.atime) sum->atime = one.atime;
        if (sum->mtime < one.mtime) sum->mtime = one.mtime;
        if (sum->ctime < one.ctime) sum->ctime = one.ctime;
    }
    free(owners);
    return error;
}
