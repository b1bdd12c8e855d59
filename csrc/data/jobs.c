/* Work in the background: copies from other nodes, changes of layout, deletion everywhere. Each job ends in one event. */
#include "fsio_internal.h"
#include "newfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum job_kind {
    JOB_FETCH,
    JOB_FETCH_PART,
    JOB_FETCH_COPY,
    JOB_MEND,
    JOB_PUSH,
    JOB_RESTRIPE,
    JOB_GATHER,
    JOB_DELETE,
    JOB_DROP_STRIPES,
    JOB_FETCH_STORED
};

struct job {
    struct fsio_job job;
    enum job_kind kind;
    uint64_t serial, ino, size, since;
    int64_t index;
    int32_t from;
    uint32_t stripe;
    char *path;       /* of FETCH_STORED, in one allocation with the destination */
    char *destination;
    unsigned mode;
    uint64_t mtime_ns;
    size_t count;
    int32_t nodes[];
};

static const char *const names[] = {
    [JOB_FETCH] = "a copy here of file",
    [JOB_FETCH_PART] = "a stripe moving here of file",
    [JOB_FETCH_COPY] = "a copy here of a stripe of file",
    [JOB_MEND] = "the mending of a stripe of file",
    [JOB_PUSH] = "a copy elsewhere of a stripe of file",
    [JOB_RESTRIPE] = "the laying in stripes of file",
    [JOB_GATHER] = "the gathering of file",
    [JOB_DELETE] = "the deletion everywhere of file",
    [JOB_DROP_STRIPES] = "the deletion of the stripes of file",
    [JOB_FETCH_STORED] = "a fetch of a file of a run",
};

enum { FETCHERS = 2 };

/* ── copying a part here ── */

static bool make_room(void *context, uint64_t bytes) { return fsio_fresh_room(context, bytes, ROOM_MADE); }

/* `size`: of the part, UINT64_MAX: not known before; then it is known. */
static int fetch_into(struct fsio_fresh *fresh, int32_t from, const struct data_request *request, uint64_t *size,
                      struct data_fetch *fetch) {
    *fetch = (struct data_fetch){.request = *request, .file = fresh->fd, .size = *size, .room = make_room, .context = fresh};
    int error = data_fetch(&fresh->io->client, from, fetch);
    *size = fetch->size;
    return error;
}

/* A stripe that is damaged there moves all the same, with the digest that it should have. So the damage is known here, too. */
static int fetch_damaged(struct fsio_fresh *fresh, struct job *job, struct data_request request, struct data_fetch *fetch) {
    uint8_t digest[XXH3_BYTES];
    request.flag &= (uint8_t)~READ_CHECKED;
    job->size = UINT64_MAX;
    int error = data_fetch_digest(&fresh->io->client, job->from, &request, digest);
    if (error == 0) error = fetch_into(fresh, job->from, &request, &job->size, fetch);
    memcpy(fetch->digest, digest, sizeof digest);
    fetch->checked = true;
    return error;
}

static int run_fetch(struct fsio *io, struct job *job) {
    uint8_t flag = READ_THERE | READ_HOLES | READ_CHECKED;
    struct data_request request = {.op = OP_READ, .flag = flag, .ino = job->ino, .index = job->index, .length = INT64_MAX};
    struct data_reply reply;
    struct fsio_fresh fresh;
    struct data_fetch fetch;
    int error = fsio_fresh_open(io, job->ino, &fresh);
    if (error != 0) return error;
    error = fetch_into(&fresh, job->from, &request, &job->size, &fetch);
    if (error == EBADMSG && job->index != FSIO_WHOLE && job->kind != JOB_MEND) error = fetch_damaged(&fresh, job, request, &fetch);
    error = fsio_fresh_end(&fresh, job->index, fetch.checked ? fetch.digest : NULL, error);
    if (error == 0 && (job->kind == JOB_FETCH_COPY || job->kind == JOB_MEND)) return fsio_mark_copied(io, job->ino, (uint64_t)job->index);
    if (error != 0 || job->kind == JOB_FETCH) return error;
    request = (struct data_request){.op = OP_DELETE, .flag = WHAT_PART, .ino = job->ino, .index = job->index};
    error = data_call(&io->client, job->from, LANE_PARTS, &request, NULL, &reply, NULL, 0);
    return error == ENOENT ? 0 : error;
}

static int mend(struct fsio *io, void *job) { return run_fetch(io, job); }

/* ── the rest ── */

static int run_restripe(struct fsio *io, struct job *job) {
    struct fsio_handle *handle;
    int error = fsio_open(io, job->ino, FSIO_LOCAL, -1, job->stripe, 0, false, false, &handle);
    if (error != 0) return error;
    struct fsio_file *file = handle->file;
    pthread_rwlock_wrlock(&file->gate);
    if (file->kind == FSIO_LOCAL) {
        if (job->stripe != 0) file->stripe = job->stripe & ~FSIO_COPIED;
        atomic_store(&file->copied, (job->stripe & FSIO_COPIED) != 0);
        error = fsio_spread(file, false);
        job->size = atomic_load(&file->size);
    }
    pthread_rwlock_unlock(&file->gate);
    int closed = fsio_close(handle);
    return error != 0 ? error : closed;
}

/* Everywhere it says, as far as that can be reached; the first failure is told. */
static int run_delete(struct fsio *io, const struct job *job) {
    uint8_t what = job->kind == JOB_DELETE ? WHAT_ALL : WHAT_STRIPES;
    struct data_request request = {.op = OP_DELETE, .flag = what, .ino = job->ino, .index = FSIO_WHOLE};
    struct data_reply reply;
    int error = 0;
    for (size_t i = 0; i < job->count; i++) {
        int failed;
        if (job->nodes[i] != io->node) failed = data_call(&io->client, job->nodes[i], LANE_PARTS, &request, NULL, &reply, NULL, 0);
        else failed = what == WHAT_ALL ? fsio_part_delete(io, job->ino) : fsio_stripes_delete(io, job->ino, 0);
        if (error == 0) error = failed;
    }
    return error;
}

/* A file of another node's store, for a run. */
static int run_fetch_stored(struct fsio *io, const struct job *job) {
    struct newfile file;
    int error = newfile_open(&file, job->destination, true);
    if (error != 0) return error;
    uint8_t digest[XXH3_BYTES];
    struct stat found;
    bool checked;
    error = data_fetch_stored(&io->client, job->from, job->path, file.fd, job->size, digest, &checked);
    if (error != 0) {
        newfile_drop(&file);
        return error;
    }
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {(time_t)(job->mtime_ns / 1000000000), (long)(job->mtime_ns % 1000000000)}};
    if (job->mtime_ns != 0) (void)!futimens(file.fd, times);
    checked = checked && fstat(file.fd, &found) == 0;
    error = newfile_finish(&file, job->mode, true);
    if (error == 0 && checked) digests_put(digests_key_of(&found), &found, digest, digests_moment(digests_key_of(&found)));
    return error;
}

static int run(struct fsio *io, struct job *job) {
    switch (job->kind) {
    case JOB_FETCH_STORED: return run_fetch_stored(io, job);
    case JOB_FETCH:
    case JOB_FETCH_PART:
    case JOB_FETCH_COPY: return run_fetch(io, job);
    case JOB_MEND: return fsio_undisturbed(io, job->ino, (uint64_t)job->index, mend, job);
    case JOB_PUSH: return fsio_push_now(io, job->ino, (uint64_t)job->index, job->from);
    case JOB_RESTRIPE: return run_restripe(io, job);
    case JOB_GATHER: return fsio_gather_now(io, job->ino, job->stripe, job->size, job->since);
    default: return run_delete(io, job);
    }
}

/* ── the queue ── */

static void finish(struct fsio *io, struct job *job, int error) {
    enum fsio_event_kind kind = job->kind == JOB_FETCH_STORED ? FSIO_EVENT_FETCHED : FSIO_EVENT_DONE;
    fsio_tell(io, kind, job->serial, job->ino, job->size == UINT64_MAX ? 0 : job->size, error);
    free(job->path);
    free(job);
}

static void work(struct fsio *io, struct fsio_job *job, bool stopped) {
    struct job *mine = (struct job *)(void *)job;
    finish(io, mine, stopped ? ECANCELED : run(io, mine));
}

/* An event tells the caller of its end, in any case. */
static void hand_over(struct fsio *io, struct fsio_workers *workers, struct job *job, int error) {
    job->job = (struct fsio_job){.name = names[job->kind], .ino = job->ino, .run = work};
    if (!fsio_enqueue(workers, &job->job)) finish(io, job, error);
}

static int queue(struct fsio *io, const struct job *wish, const int32_t *nodes, size_t count) {
    struct job *job = malloc(sizeof *job + count * sizeof *nodes);
    if (job == NULL) return ENOMEM;
    *job = *wish;
    job->count = count;
    if (count > 0) memcpy(job->nodes, nodes, count * sizeof *nodes);
    hand_over(io, &io->workers, job, ECANCELED);
    return 0;
}

int fsio_fetch(struct fsio *io, uint64_t serial, uint64_t ino, int32_t from, uint64_t size) {
    struct job job = {.kind = JOB_FETCH, .serial = serial, .ino = ino, .index = FSIO_WHOLE, .from = from, .size = size};
    return queue(io, &job, NULL, 0);
}

int fsio_fetch_stored(struct fsio *io, uint64_t serial, int32_t from, const char *path, uint64_t size, const char *destination,
                      unsigned mode, uint64_t mtime_ns) {
    size_t first = strlen(path) + 1, second = strlen(destination) + 1;
    if (first == 1 || first - 1 > PATH_BYTES_MAX || size > INT64_MAX) return EINVAL;
    struct job *job = malloc(sizeof *job);
    char *both = malloc(first + second);
    if (job == NULL || both == NULL) {
        free(job);
        free(both);
        return ENOMEM;
    }
    *job = (struct job){.kind = JOB_FETCH_STORED, .serial = serial, .from = from, .size = size, .mode = mode, .mtime_ns = mtime_ns};
    job->path = memcpy(both, path, first);
    job->destination = memcpy(both + first, destination, second);
    int error = fsio_workers_start(&io->fetchers, FETCHERS); /* with fewer it is slower, and no error */
    hand_over(io, &io->fetchers, job, error != 0 ? error : ECANCELED);
    return 0;
}

int fsio_fetch_part(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from, bool keep) {
    enum job_kind kind = keep ? JOB_FETCH_COPY : JOB_FETCH_PART;
    struct job job = {.kind = kind, .serial = serial, .ino = ino, .index = index, .from = from, .size = UINT64_MAX};
    return index < (keep ? 0 : FSIO_WHOLE) ? EINVAL : queue(io, &job, NULL, 0);
}

int fsio_mend_stripe(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from) {
    struct job job = {.kind = JOB_MEND, .serial = serial, .ino = ino, .index = index, .from = from, .size = UINT64_MAX};
    return index < 0 ? EINVAL : queue(io, &job, NULL, 0);
}

int fsio_push_stripe(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t node) {
    struct job job = {.kind = JOB_PUSH, .serial = serial, .ino = ino, .index = index, .from = node};
    return index < 0 ? EINVAL : queue(io, &job, NULL, 0);
}

int fsio_restripe(struct fsio *io, uint64_t serial, uint64_t ino, uint32_t stripe) {
    struct job job = {.kind = JOB_RESTRIPE, .serial = serial, .ino = ino, .stripe = stripe};
    return queue(io, &job, NULL, 0);
}

int fsio_gather(struct fsio *io, uint64_t serial, uint64_t ino, uint32_t stripe, uint64_t size) {
    struct job job = {
        .kind = JOB_GATHER, .serial = serial, .ino = ino, .stripe = stripe, .size = size, .since = atomic_load(&io->lost_version)};
    return queue(io, &job, NULL, 0);
}

int fsio_delete_everywhere(struct fsio *io, uint64_t serial, uint64_t ino, const int32_t *nodes, size_t count) {
    struct job job = {.kind = JOB_DELETE, .serial = serial, .ino = ino};
    return queue(io, &job, nodes, count);
}

int fsio_drop_stripes(struct fsio *io, uint64_t serial, uint64_t ino, const int32_t *nodes, size_t count) {
    struct job job = {.kind = JOB_DROP_STRIPES, .serial = serial, .ino = ino};
    return queue(io, &job, nodes, count);
}
