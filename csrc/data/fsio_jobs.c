/* Work in the background: copies from other nodes, changes of layout, deletion everywhere. Each job ends in one event. */
#include "common/watch.h"
#include "fsio_internal.h"
#include "newfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    JOB_DROP_FILE,
    JOB_CALL,
    JOB_REMOVE,
    JOB_FETCH_STORED
};

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
    [JOB_DROP_FILE] = "the closing of file",
    [JOB_CALL] = "work in the background",
    [JOB_REMOVE] = "the removal of the bytes of file",
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
static int fetch_damaged(struct fsio_fresh *fresh, struct fsio_job *job, struct data_request request, struct data_fetch *fetch) {
    uint8_t digest[XXH3_BYTES];
    request.flag &= (uint8_t)~READ_CHECKED;
    job->size = UINT64_MAX;
    int error = data_fetch_digest(&fresh->io->client, job->from, &request, digest);
    if (error == 0) error = fetch_into(fresh, job->from, &request, &job->size, fetch);
    memcpy(fetch->digest, digest, sizeof digest);
    fetch->checked = true;
    return error;
}

static int run_fetch(struct fsio *io, struct fsio_job *job) {
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

static int run_restripe(struct fsio *io, struct fsio_job *job) {
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
static int run_delete(struct fsio *io, const struct fsio_job *job) {
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
static int run_fetch_stored(struct fsio *io, const struct fsio_job *job) {
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

static int run(struct fsio *io, struct fsio_job *job) {
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

static bool is_silent(const struct fsio_job *job) { return job->kind == JOB_DROP_FILE || job->kind == JOB_CALL || job->kind == JOB_REMOVE; }

static void finish(struct fsio *io, struct fsio_job *job, int error) {
    enum fsio_event_kind kind = job->kind == JOB_FETCH_STORED ? FSIO_EVENT_FETCHED : FSIO_EVENT_DONE;
    if (job->kind == JOB_REMOVE) fsio_removing(io, -1);
    if (!is_silent(job)) fsio_tell(io, kind, job->serial, job->ino, job->size == UINT64_MAX ? 0 : job->size, error);
    free(job->path);
    free(job);
}

static void *work(void *argument) {
    struct fsio_workers *workers = argument;
    struct fsio *io = workers->io;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (workers->jobs == NULL && !atomic_load(&io->stopping)) pthread_cond_wait(&workers->work, &workers->lock);
        struct fsio_job *job = workers->jobs;
        if (job == NULL) break;
        workers->jobs = job->next;
        if (workers->jobs == NULL) workers->tail = &workers->jobs;
        pthread_mutex_unlock(&workers->lock);
        bool stopped = atomic_load(&io->stopping);
        struct watch_entry watched = amfs_watch_begin(names[job->kind], job->ino);
        if (job->kind == JOB_DROP_FILE) fsio_file_drop(job->file);
        if (job->kind == JOB_CALL && !stopped) job->act(job->context);
        if (job->kind == JOB_REMOVE) fsio_removed_later(io, job->ino, (unsigned)job->index);
        finish(io, job, stopped || is_silent(job) ? ECANCELED : run(io, job));
        amfs_watch_end(watched);
        pthread_mutex_lock(&workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static void begin(struct fsio *io, struct fsio_workers *workers) {
    workers->io = io;
    workers->tail = &workers->jobs;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->work, NULL);
}

void fsio_workers_begin(struct fsio *io) {
    begin(io, &io->workers);
    begin(io, &io->fetchers);
}

int fsio_workers_start(struct fsio_workers *workers, int threads) {
    int error = 0;
    pthread_mutex_lock(&workers->lock);
    for (; error == 0 && workers->threads < threads && !atomic_load(&workers->io->stopping); workers->threads += error == 0)
        error = new_thread(&workers->thread[workers->threads], work, workers);
    pthread_mutex_unlock(&workers->lock);
    return error;
}

static void stop(struct fsio_workers *workers) {
    pthread_mutex_lock(&workers->lock);
    int threads = workers->threads;
    workers->threads = 0;
    pthread_cond_broadcast(&workers->work);
    pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < threads; i++) pthread_join(workers->thread[i], NULL);
}

void fsio_workers_stop(struct fsio *io) {
    stop(&io->workers);
    stop(&io->fetchers);
}

static void end(struct fsio_workers *workers) {
    pthread_cond_destroy(&workers->work);
    pthread_mutex_destroy(&workers->lock);
}

void fsio_workers_end(struct fsio *io) {
    end(&io->workers);
    end(&io->fetchers);
}

/* False: fsio has been stopped. */
static bool enqueue(struct fsio_workers *workers, struct fsio_job *job) {
    pthread_mutex_lock(&workers->lock);
    bool taken = workers->threads > 0 && !atomic_load(&workers->io->stopping);
    if (taken) {
        job->next = NULL;
        *workers->tail = job;
        workers->tail = &job->next;
        pthread_cond_signal(&workers->work);
    }
    pthread_mutex_unlock(&workers->lock);
    return taken;
}

static int queue(struct fsio *io, const struct fsio_job *wish, const int32_t *nodes, size_t count) {
    struct fsio_job *job = malloc(sizeof *job + count * sizeof *nodes);
    if (job == NULL) return ENOMEM;
    *job = *wish;
    job->count = count;
    if (count > 0) memcpy(job->nodes, nodes, count * sizeof *nodes);
    if (!enqueue(&io->workers, job)) finish(io, job, ECANCELED);
    return 0;
}

int fsio_later(struct fsio *io, void (*act)(void *context), void *context) {
    struct fsio_job job = {.kind = JOB_CALL, .act = act, .context = context};
    return !fsio_can_remove_later(io) ? ECANCELED : queue(io, &job, NULL, 0);
}

bool fsio_can_remove_later(struct fsio *io) {
    pthread_mutex_lock(&io->workers.lock);
    bool can = io->workers.threads > 0 && !atomic_load(&io->stopping);
    pthread_mutex_unlock(&io->workers.lock);
    return can;
}

int fsio_remove_later(struct fsio *io, uint64_t ino, unsigned number) {
    struct fsio_job job = {.kind = JOB_REMOVE, .ino = ino, .index = number};
    fsio_removing(io, 1);
    int error = queue(io, &job, NULL, 0);
    if (error != 0) fsio_removing(io, -1);
    return error;
}

void fsio_drop_later(struct fsio_file *file) {
    struct fsio_job *job = malloc(sizeof *job);
    if (job != NULL) *job = (struct fsio_job){.kind = JOB_DROP_FILE, .file = file};
    if (job != NULL && enqueue(&file->io->workers, job)) return;
    free(job);
    fsio_file_drop(file);
}

int fsio_fetch(struct fsio *io, uint64_t serial, uint64_t ino, int32_t from, uint64_t size) {
    struct fsio_job job = {.kind = JOB_FETCH, .serial = serial, .ino = ino, .index = FSIO_WHOLE, .from = from, .size = size};
    return queue(io, &job, NULL, 0);
}

int fsio_fetch_stored(struct fsio *io, uint64_t serial, int32_t from, const char *path, uint64_t size, const char *destination,
                      unsigned mode, uint64_t mtime_ns) {
    size_t first = strlen(path) + 1, second = strlen(destination) + 1;
    if (first == 1 || first - 1 > PATH_BYTES_MAX || size > INT64_MAX) return EINVAL;
    struct fsio_job *job = malloc(sizeof *job);
    char *both = malloc(first + second);
    if (job == NULL || both == NULL) {
        free(job);
        free(both);
        return ENOMEM;
    }
    *job = (struct fsio_job){.kind = JOB_FETCH_STORED, .serial = serial, .from = from, .size = size, .mode = mode, .mtime_ns = mtime_ns};
    job->path = memcpy(both, path, first);
    job->destination = memcpy(both + first, destination, second);
    int error = fsio_workers_start(&io->fetchers, FETCHERS); /* with fewer it is slower, and no error */
    if (!enqueue(&io->fetchers, job)) finish(io, job, error != 0 ? error : ECANCELED);
    return 0;
}

int fsio_fetch_part(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from, bool keep) {
    enum job_kind kind = keep ? JOB_FETCH_COPY : JOB_FETCH_PART;
    struct fsio_job job = {.kind = kind, .serial = serial, .ino = ino, .index = index, .from = from, .size = UINT64_MAX};
    return index < (keep ? 0 : FSIO_WHOLE) ? EINVAL : queue(io, &job, NULL, 0);
}

int fsio_mend_stripe(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from) {
    struct fsio_job job = {.kind = JOB_MEND, .serial = serial, .ino = ino, .index = index, .from = from, .size = UINT64_MAX};
    return index < 0 ? EINVAL : queue(io, &job, NULL, 0);
}

int fsio_push_stripe(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t node) {
    struct fsio_job job = {.kind = JOB_PUSH, .serial = serial, .ino = ino, .index = index, .from = node};
    return index < 0 ? EINVAL : queue(io, &job, NULL, 0);
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
