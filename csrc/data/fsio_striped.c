/* Striped files: single stripes and many of them at their owners, truncation, holes. Reading ahead and writing behind is in fsio_pieces.c. */
#include "fsio_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    STALE_WAIT_MS = 20, /* the owner has a newer table than we, or we than it, or the partition moves */
    MEND_MS = 3000, /* so long a reader waits until a damaged stripe has been mended by its copy */
    SUM_MS = 1000, /* how old the sum of a file's blocks may be */
    BATCH = 64, /* segments asked for at once */
    BATCH_OWNERS = 16,
};

static const int64_t DAY_NS = INT64_C(86400) * 1000000000;

/* False: it has taken stall_ms. */
static bool wait_for_table(struct fsio *io, int *waited_ms) {
    struct timespec pause = {.tv_nsec = STALE_WAIT_MS * 1000000};
    if (atomic_load(&io->stopping) || (*waited_ms += STALE_WAIT_MS) > io->client.stall_ms) return false;
    nanosleep(&pause, NULL);
    return true;
}

/* ── one stripe ── */

static int read_here(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, char *to, size_t count, size_t *got) {
    bool moving;
    int part = fsio_part_open(io, ino, (int64_t)index, PART_READ), error = 0;
    *got = 0;
    if (!fsio_stripe_ours(io, ino, index, &moving) || moving) { /* since we looked who owns it */
        if (part >= 0) close(part);
        return ESTALE;
    }
    if (part < 0) return -part == ENOENT ? 0 : -part;
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

static bool takes_writes(struct fsio *io, uint64_t ino, uint64_t index) {
    bool moving;
    return fsio_stripe_ours(io, ino, index, &moving) && !moving;
}

uint64_t fsio_part_growth(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, size_t count) {
    struct data_stat stat = {0};
    if (fsio_part_stat(io, ino, (int64_t)index, &stat.size, &stat.blocks, &stat.atime, &stat.mtime, &stat.ctime) != 0) stat.size = 0;
    uint64_t low = at > stat.size ? at : stat.size;
    return at + count > low ? at + count - low : 0;
}

int fsio_part_write(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count, int64_t *grown) {
    int error = 0, part = fsio_part_open(io, ino, (int64_t)index, PART_MAKE);
    if (part < 0) return -part;
    int64_t before = fsio_allocated(part);
    fsio_stripe_changes(io, ino, index);
    for (size_t done = 0; error == 0 && done < count;) {
        ssize_t put = pwrite(part, from + done, count - done, (off_t)(at + done));
        if (put < 0 && errno != EINTR) error = errno;
        if (put > 0) done += (size_t)put;
    }
    fsio_stripe_changed(io, ino, index);
    *grown = fsio_allocated(part) - before;
    close(part);
    return error;
}

int fsio_stripe_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count) {
    int64_t grown = 0;
    pthread_rwlock_rdlock(&io->writes);
    int error = takes_writes(io, ino, index) ? fsio_part_write(io, ino, index, at, from, count, &grown) : ESTALE;
    pthread_rwlock_unlock(&io->writes);
    fsio_account(io, grown);
    return error;
}

/* Making room waits for the poll loop, so it comes before the lock: under that one only memory is written. */
int fsio_stripe_put(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from, size_t count) {
    uint64_t since = atomic_load(&io->room_made);
    if (!takes_writes(io, ino, index)) return ESTALE;
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

/* A node that cannot be reached may have died: what it had of stripes with copies has its heir, by the next table. */
static int until_next_table(const struct fsio *io, int32_t owner, bool copied, int error) {
    return copied && error == EIO && owner >= 0 && owner != io->node ? ESTALE : error;
}

int fsio_stripe_read(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, char *to, size_t count) {
    int waited = 0, error;
    do {
        int32_t owner = fsio_stripe_owner(io, ino, index);
        error = until_next_table(io, owner, copied, read_stripe_once(io, ino, index, at, to, count));
        if (error == EBADMSG && copied && waited < MEND_MS) error = ESTALE;
    } while (error == ESTALE && wait_for_table(io, &waited));
    return error == ESTALE || error == EBADMSG ? EIO : error;
}

int fsio_stripe_write(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from, size_t count) {
    struct data_request request = {.op = OP_WRITE, .flag = copied, .ino = ino, .index = (int64_t)index, .offset = at, .length = count};
    struct data_reply reply;
    int waited = 0, error;
    do {
        int32_t owner = fsio_stripe_owner(io, ino, index);
        if (owner < 0) error = EIO;
        else if (owner == io->node) error = fsio_stripe_put(io, ino, index, copied, at, from, count);
        else error = data_call(&io->client, owner, LANE_PARTS, &request, from, &reply, NULL, 0);
        error = until_next_table(io, owner, copied, error);
    } while (error == ESTALE && wait_for_table(io, &waited));
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

/* ── all of it ── with the gate held alone, or for reading where it says so */

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
    int waited = 0, error = 0;
    *next = UINT64_MAX;
    if (index > last) return 0;
    do error = next_once(io, ino, index, last, copied, next);
    while (error == ESTALE && wait_for_table(io, &waited));
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
    int waited = 0, error;
    if (size >= old) return 0;
    for (int round = copied ? 2 : 1; round > 0; round--) {
        do error = trim_once(io, ino, stripe, copied, size, old);
        while (error == ESTALE && wait_for_table(io, &waited));
        if (error != 0) break;
    }
    return error == ESTALE ? EIO : error;
}

int fsio_striped_truncate(struct fsio_file *file, uint64_t size) {
    fsio_striped_leave(file);
    uint64_t old = atomic_load(&file->size), since = atomic_load(&file->io->lost_version);
    int error = fsio_stripes_trim(file->io, file->ino, file->stripe, file->copied, size, old);
    if (error != 0) return error;
    atomic_store(&file->size, size);
    if (size == 0) fsio_not_lost(file, since, false); /* what was lost is not part of it any more */
    fsio_striped_touch(file);
    return 0;
}

static int punch_stripe(struct fsio_file *file, uint64_t index, uint64_t at, uint64_t count) {
    struct fsio *io = file->io;
    struct data_request request = {.op = OP_PUNCH, .ino = file->ino, .index = (int64_t)index, .offset = at, .length = count};
    struct data_reply reply;
    int error, waited = 0;
    do {
        int32_t owner = fsio_stripe_owner(io, file->ino, index);
        if (owner < 0) error = EIO;
        else if (owner == io->node) error = fsio_copied_punch(io, file->ino, (int64_t)index, at, count);
        else error = data_call(&io->client, owner, LANE_PARTS, &request, NULL, &reply, NULL, 0);
        error = until_next_table(io, owner, file->copied, error);
    } while (error == ESTALE && wait_for_table(io, &waited));
    return error == ESTALE ? EIO : error;
}

/* Of the stripes that are there, few as they may be. */
static int punch(struct fsio_file *file, uint64_t offset, uint64_t end) {
    uint64_t stripe = file->stripe, last = end == 0 ? 0 : (end - 1) / stripe;
    int error = 0;
    for (unsigned turn = 0; error == 0 && offset < end; turn++) {
        uint64_t index = offset / stripe;
        if (turn % BATCH == 0) error = fsio_next_stripe(file->io, file->ino, index, last, file->copied, &index);
        if (error != 0 || index > last) break;
        if (offset < index * stripe) offset = index * stripe;
        uint64_t at = offset % stripe, count = stripe - at < end - offset ? stripe - at : end - offset;
        error = punch_stripe(file, index, at, count);
        offset += count;
    }
    return error;
}

int fsio_striped_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length) {
    uint64_t size = atomic_load(&file->size), end = offset + length;
    if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
        fsio_striped_leave(file);
        int error = punch(file, offset, end < size ? end : size);
        fsio_striped_touch(file);
        return error;
    }
    if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0) return EOPNOTSUPP;
    if (mode == 0 && end > size) atomic_store(&file->size, end); /* nothing can be set aside at so many owners */
    fsio_striped_touch(file);
    return 0;
}

/* Where in a stripe data or a hole begins, from `at` on. ENXIO: no data / it is a hole. */
static int seek_stripe(struct fsio_file *file, uint64_t index, uint64_t at, int whence, uint64_t *found) {
    struct fsio *io = file->io;
    struct data_request request = {.op = OP_SEEK, .flag = (uint8_t)whence, .ino = file->ino, .index = (int64_t)index, .offset = at};
    struct data_reply reply;
    int32_t owner = fsio_stripe_owner(io, file->ino, index);
    if (owner < 0) return EIO;
    if (owner != io->node) {
        int error = data_call(&io->client, owner, LANE_PARTS, &request, NULL, &reply, NULL, 0);
        *found = reply.value;
        return error;
    }
    int part = fsio_part_open(io, file->ino, (int64_t)index, PART_READ);
    if (part < 0) return -part == ENOENT ? ENXIO : -part;
    off_t position = lseek(part, (off_t)at, whence);
    int error = position < 0 ? errno : 0;
    close(part);
    *found = (uint64_t)position;
    return error;
}

int fsio_striped_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found) {
    fsio_striped_settle(file);
    uint64_t size = atomic_load(&file->size), index, position = 0;
    if (offset >= size) return ENXIO;
    while (offset < size) {
        index = offset / file->stripe;
        int error = seek_stripe(file, index, offset % file->stripe, whence, &position);
        if (error != 0 && error != ENXIO) return error;
        if (whence == SEEK_HOLE && error == ENXIO) position = offset % file->stripe;
        if ((error == 0 || whence == SEEK_HOLE) && position < file->stripe) {
            position += index * file->stripe;
            if (position >= size && whence == SEEK_DATA) return ENXIO;
            *found = position < size ? position : size;
            return 0;
        }
        uint64_t last = (size - 1) / file->stripe;
        if (whence == SEEK_HOLE) index++;
        else if ((error = fsio_next_stripe(file->io, file->ino, index + 1, last, file->copied, &index)) != 0) return error;
        offset = index > last ? size : index * file->stripe;
    }
    *found = size;
    return whence == SEEK_HOLE ? 0 : ENXIO;
}

/* Blocks and times, from all owners. For reading the gate is enough. */
static int sum_stripes(struct fsio_file *file, struct data_stat *sum) {
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

int fsio_striped_stat(struct fsio_file *file, struct data_stat *stat) {
    struct data_stat sum = {0};
    pthread_mutex_lock(&file->lock);
    bool fresh = file->sum_ms != 0 && now_ms() - file->sum_ms < SUM_MS;
    if (fresh) sum = file->sum;
    pthread_mutex_unlock(&file->lock);
    if (!fresh) {
        int error = sum_stripes(file, &sum);
        if (error != 0) sum.blocks = (atomic_load(&file->size) + 511) / 512; /* an owner is away: a guess is better than no answer */
        pthread_mutex_lock(&file->lock);
        file->sum = sum;
        file->sum_ms = error == 0 ? now_ms() : 0;
        pthread_mutex_unlock(&file->lock);
    }
    *stat = (struct data_stat){.size = atomic_load(&file->size), .blocks = sum.blocks};
    stat->atime = atomic_load(&file->read_ns);
    stat->mtime = atomic_load(&file->written_ns);
    stat->ctime = atomic_load(&file->changed_ns);
    return 0;
}

/* ── times ── those of the stripes say nothing: they were written when they were, whatever was set by hand since */

void fsio_striped_begin(struct fsio_file *file, int64_t written_ns) {
    atomic_store(&file->read_ns, 0);
    atomic_store(&file->written_ns, written_ns);
    atomic_store(&file->changed_ns, written_ns);
}

void fsio_striped_touch(struct fsio_file *file) {
    int64_t now = fsio_now_ns();
    atomic_store(&file->written_ns, now);
    atomic_store(&file->changed_ns, now);
    pthread_mutex_lock(&file->lock);
    file->sum_ms = 0;
    pthread_mutex_unlock(&file->lock);
}

/* As on tmpfs (relatime): once after each writing, and once a day. */
void fsio_striped_looked_at(struct fsio_file *file) {
    int64_t now = fsio_now_ns(), read = atomic_load(&file->read_ns), written = atomic_load(&file->written_ns);
    if (written == 0 && read == 0) return; /* when it was read before, and when written, its record knows */
    if (read <= written || read <= atomic_load(&file->changed_ns) || now - read > DAY_NS) atomic_store(&file->read_ns, now);
}
