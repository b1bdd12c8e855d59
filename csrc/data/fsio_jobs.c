/* Work in the background: copies from other nodes, changes of layout, deletion everywhere. Each job ends in one event. */
#include "fsio_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum job_kind { JOB_FETCH, JOB_FETCH_PART, JOB_RESTRIPE, JOB_GATHER, JOB_DELETE, JOB_DROP_STRIPES, JOB_DROP_FILE, JOB_CALL, JOB_REMOVE };

struct fsio_job {
    struct fsio_job *next;
    enum job_kind kind;
    uint64_t serial, ino, size, since;
    int64_t index;
    int32_t from;
    uint32_t stripe;
    struct fsio_file *file;       /* of DROP_FILE */
    void (*act)(void *context);   /* of CALL */
    void *context;
    size_t count;
    int32_t nodes[];
};

/* Received and written at once. Measured for 100 MB onto huge pages, CPU of the receiving side: 11-16 ms so (a whole page is not zeroed before it
 * is written), 40 by half a megabyte, 20-60 through a pipe with splice; on small pages every way takes 65-80. */
enum { COPY_BYTES = 2 << 20 };

/* ── copying a part here ── */

/* The bytes that follow an answer, into a part of `size` bytes, from `offset` on. */
static int receive_part(struct fsio *io, int socket, int part, uint64_t size, uint64_t offset, uint64_t count) {
    size_t room = count < COPY_BYTES ? (size_t)count : COPY_BYTES;
    char *buffer = malloc(room + 1);
    int error = buffer == NULL ? ENOMEM : 0;
    if (error == 0 && ftruncate(part, (off_t)size) != 0) error = errno; /* known to be long, it gets large pages */
    for (uint64_t moved = 0; moved < count && error == 0;) {
        size_t piece = count - moved < room ? (size_t)(count - moved) : room;
        error = fsio_receive(io, socket, buffer, piece);
        for (size_t done = 0; error == 0 && done < piece;) {
            ssize_t put = pwrite(part, buffer + done, piece - done, (off_t)(offset + moved + done));
            if (put < 0 && errno != EINTR) error = errno;
            if (put > 0) done += (size_t)put;
        }
        moved += piece;
    }
    free(buffer);
    return error;
}

/* `size`: of the part, UINT64_MAX: not known before; then it is known. *holes: no bytes have come, for it has holes. */
static int fetch_into(struct fsio *io, int32_t from, const struct fsio_request *request, int part, uint64_t *size, bool *holes) {
    struct fsio_link *link;
    struct fsio_reply reply;
    int error = FSIO_BROKEN;
    for (int tries = 0; error == FSIO_BROKEN && tries < 2; tries++) {
        error = fsio_link_get(io, from, LANE_PARTS, tries > 0, &link);
        if (error != 0) break;
        bool used = link->used, asked = false;
        error = fsio_ask(io, link, request, NULL);
        if (error == 0) error = fsio_hear(io, link, &reply);
        int fault = error == 0 ? reply.error : 0;
        if (error == 0 && fault == 0) {
            bool all = request->flag == READ_DENSE;
            *holes = all && reply.length == 0 && reply.value != 0;
            uint64_t whole = *holes ? reply.value : all ? reply.length : *size;
            if (reply.length > request->length || whole > INT64_MAX) error = EPROTO;
            else if (!fsio_room_or_make(io, reply.length)) error = ENOSPC;
            else if (all ? *size != UINT64_MAX && whole != *size : reply.length != request->length)
                error = ESTALE; /* it is another version of it */
            asked = true;
            if (error == 0) error = receive_part(io, link->fd, part, whole, request->offset, reply.length);
            if (error == 0) *size = whole;
        }
        fsio_link_put(io, link, error != 0);
        if (error == 0) error = fault;
        if (!used || asked) break;
    }
    return fsio_result(io, error);
}

/* What there is between its holes. */
static int fetch_pieces(struct fsio *io, const struct fsio_job *job, int part, uint64_t size) {
    struct fsio_reply reply;
    int error = 0;
    for (uint64_t at = 0; at < size && error == 0;) {
        struct fsio_request seek = {.op = OP_SEEK, .flag = SEEK_DATA, .ino = job->ino, .index = job->index, .offset = at};
        error = fsio_call(io, job->from, LANE_PARTS, &seek, NULL, &reply, NULL, 0);
        if (error == ENXIO) return 0; /* nothing but a hole is left */
        if (error != 0) break;
        struct fsio_request read = {.op = OP_READ, .flag = READ_THERE, .ino = job->ino, .index = job->index, .offset = reply.value};
        seek.flag = SEEK_HOLE;
        seek.offset = reply.value;
        error = fsio_call(io, job->from, LANE_PARTS, &seek, NULL, &reply, NULL, 0);
        if (error == 0 && (reply.value <= read.offset || reply.value > size)) error = ESTALE;
        if (error != 0) break;
        read.length = reply.value - read.offset;
        at = reply.value;
        bool holes;
        error = fetch_into(io, job->from, &read, part, &size, &holes);
    }
    return error;
}

static int run_fetch(struct fsio *io, struct fsio_job *job) {
    struct fsio_request request = {.op = OP_READ, .flag = READ_DENSE, .ino = job->ino, .index = job->index, .length = INT64_MAX};
    struct fsio_reply reply;
    char name[FSIO_NAME_BYTES];
    int part = fsio_fresh_open(io, job->ino, name);
    if (part < 0) return -part;
    bool holes = false;
    int error = fetch_into(io, job->from, &request, part, &job->size, &holes);
    if (error == 0 && holes) error = fetch_pieces(io, job, part, job->size);
    error = fsio_fresh_end(io, part, name, job->ino, job->index, error);
    if (error != 0 || job->kind == JOB_FETCH) return error;
    request = (struct fsio_request){.op = OP_DELETE, .flag = WHAT_PART, .ino = job->ino, .index = job->index};
    error = fsio_call(io, job->from, LANE_PARTS, &request, NULL, &reply, NULL, 0);
    return error == ENOENT ? 0 : error;
}

/* ── the rest ── */

static int run_restripe(struct fsio *io, struct fsio_job *job) {
    struct fsio_handle *handle;
    int error = fsio_open(io, job->ino, FSIO_LOCAL, -1, job->stripe, 0, false, false, &handle);
    if (error != 0) return error;
    struct fsio_file *file = handle->file;
    pthread_rwlock_wrlock(&file->gate);
    if (file->kind == FSIO_LOCAL) {
        if (job->stripe != 0) file->stripe = job->stripe;
        error = fsio_spread(file, false);
        job->size = atomic_load(&file->size);
    }
    pthread_rwlock_unlock(&file->gate);
    int closed = fsio_close(handle);
    return error != 0 ? error : closed;
}

/* Everywhere it says, as far as that can be reached; the first failure is told. */
static int run_delete(struct fsio *io, const struct fsio_job *job) {
    uint8_t what = job->kind == JOB_DELETE ? WHAT_ALL : WHAT_STRIPES;
    struct fsio_request request = {.op = OP_DELETE, .flag = what, .ino = job->ino, .index = FSIO_WHOLE};
    struct fsio_reply reply;
    int error = 0;
    for (size_t i = 0; i < job->count; i++) {
        int failed;
        if (job->nodes[i] != io->node) failed = fsio_call(io, job->nodes[i], LANE_PARTS, &request, NULL, &reply, NULL, 0);
        else failed = what == WHAT_ALL ? fsio_part_delete(io, job->ino) : fsio_stripes_delete(io, job->ino, 0);
        if (error == 0) error = failed;
    }
    return error;
}

static int run(struct fsio *io, struct fsio_job *job) {
    switch (job->kind) {
    case JOB_FETCH:
    case JOB_FETCH_PART: return run_fetch(io, job);
    case JOB_RESTRIPE: return run_restripe(io, job);
    case JOB_GATHER: return fsio_gather_now(io, job->ino, job->stripe, job->size, job->since);
    default: return run_delete(io, job);
    }
}

/* ── the queue ── */

static bool is_silent(const struct fsio_job *job) { return job->kind == JOB_DROP_FILE || job->kind == JOB_CALL || job->kind == JOB_REMOVE; }

static void finish(struct fsio *io, struct fsio_job *job, int error) {
    if (job->kind == JOB_REMOVE) fsio_removing(io, -1);
    if (!is_silent(job)) fsio_tell(io, FSIO_EVENT_DONE, job->serial, job->ino, job->size == UINT64_MAX ? 0 : job->size, error);
    free(job);
}

static void *work(void *argument) {
    struct fsio *io = argument;
    pthread_mutex_lock(&io->jobs_lock);
    for (;;) {
        while (io->jobs == NULL && !atomic_load(&io->stopping)) pthread_cond_wait(&io->jobs_work, &io->jobs_lock);
        struct fsio_job *job = io->jobs;
        if (job == NULL) break;
        io->jobs = job->next;
        if (io->jobs == NULL) io->jobs_tail = &io->jobs;
        pthread_mutex_unlock(&io->jobs_lock);
        bool stopped = atomic_load(&io->stopping);
        if (job->kind == JOB_DROP_FILE) fsio_file_drop(job->file);
        if (job->kind == JOB_CALL && !stopped) job->act(job->context);
        if (job->kind == JOB_REMOVE) fsio_removed_later(io, job->ino, (unsigned)job->index);
        finish(io, job, stopped || is_silent(job) ? ECANCELED : run(io, job));
        pthread_mutex_lock(&io->jobs_lock);
    }
    pthread_mutex_unlock(&io->jobs_lock);
    return NULL;
}

int fsio_workers_start(struct fsio *io, int threads) {
    for (; io->workers < threads; io->workers++) {
        int error = new_thread(&io->worker[io->workers], work, io);
        if (error != 0) return error;
    }
    return 0;
}

void fsio_workers_stop(struct fsio *io) {
    pthread_mutex_lock(&io->jobs_lock);
    pthread_cond_broadcast(&io->jobs_work);
    pthread_mutex_unlock(&io->jobs_lock);
    for (int i = 0; i < io->workers; i++) pthread_join(io->worker[i], NULL);
    io->workers = 0;
}

static int queue(struct fsio *io, const struct fsio_job *wish, const int32_t *nodes, size_t count) {
    struct fsio_job *job = malloc(sizeof *job + count * sizeof *nodes);
    if (job == NULL) return ENOMEM;
    *job = *wish;
    job->count = count;
    if (count > 0) memcpy(job->nodes, nodes, count * sizeof *nodes);
    pthread_mutex_lock(&io->jobs_lock);
    bool stopped = atomic_load(&io->stopping);
    if (!stopped) {
        *io->jobs_tail = job;
        io->jobs_tail = &job->next;
        pthread_cond_signal(&io->jobs_work);
    }
    pthread_mutex_unlock(&io->jobs_lock);
    if (stopped) finish(io, job, ECANCELED);
    return 0;
}

int fsio_later(struct fsio *io, void (*act)(void *context), void *context) {
    struct fsio_job job = {.kind = JOB_CALL, .act = act, .context = context};
    return io->workers == 0 || atomic_load(&io->stopping) ? ECANCELED : queue(io, &job, NULL, 0);
}

bool fsio_can_remove_later(struct fsio *io) { return io->workers > 0 && !atomic_load(&io->stopping); }

int fsio_remove_later(struct fsio *io, uint64_t ino, unsigned number) {
    struct fsio_job job = {.kind = JOB_REMOVE, .ino = ino, .index = number};
    fsio_removing(io, 1);
    int error = queue(io, &job, NULL, 0);
    if (error != 0) fsio_removing(io, -1);
    return error;
}

void fsio_drop_later(struct fsio_file *file) {
    struct fsio_job *job = malloc(sizeof *job);
    struct fsio *io = file->io;
    bool queued = false;
    pthread_mutex_lock(&io->jobs_lock);
    if (job != NULL && io->workers > 0 && !atomic_load(&io->stopping)) {
        *job = (struct fsio_job){.kind = JOB_DROP_FILE, .file = file};
        *io->jobs_tail = job;
        io->jobs_tail = &job->next;
        pthread_cond_signal(&io->jobs_work);
        queued = true;
    }
    pthread_mutex_unlock(&io->jobs_lock);
    if (queued) return;
    free(job);
    fsio_file_drop(file);
}

int fsio_fetch(struct fsio *io, uint64_t serial, uint64_t ino, int32_t from, uint64_t size) {
    struct fsio_job job = {.kind = JOB_FETCH, .serial = serial, .ino = ino, .index = FSIO_WHOLE, .from = from, .size = size};
    return queue(io, &job, NULL, 0);
}

int fsio_fetch_part(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from) {
    struct fsio_job job = {.kind = JOB_FETCH_PART, .serial = serial, .ino = ino, .index = index, .from = from, .size = UINT64_MAX};
    return index < FSIO_WHOLE ? EINVAL : queue(io, &job, NULL, 0);
}

int fsio_restripe(struct fsio *io, uint64_t serial, uint64_t ino, uint32_t stripe) {
    struct fsio_job job = {.kind = JOB_RESTRIPE, .serial = serial, .ino = ino, .stripe = stripe};
    return queue(io, &job, NULL, 0);
}

int fsio_gather(struct fsio *io, uint64_t serial, uint64_t ino, uint32_t stripe, uint64_t size) {
    struct fsio_job job = {
        .kind = JOB_GATHER, .serial = serial, .ino = ino, .stripe = stripe, .size = size, .since = atomic_load(&io->lost_version)};
    return queue(io, &job, NULL, 0);
}

int fsio_delete_everywhere(struct fsio *io, uint64_t serial, uint64_t ino, const int32_t *nodes, size_t count) {
    struct fsio_job job = {.kind = JOB_DELETE, .serial = serial, .ino = ino};
    return queue(io, &job, nodes, count);
}

int fsio_drop_stripes(struct fsio *io, uint64_t serial, uint64_t ino, const int32_t *nodes, size_t count) {
    struct fsio_job job = {.kind = JOB_DROP_STRIPES, .serial = serial, .ino = ino};
    return queue(io, &job, nodes, count);
}
