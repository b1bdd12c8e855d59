/* The copier's queue, threads, completions and copies. Contract in copier.h. */
#include "copier.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digests.h"
#include "common/extents.h"
#include "common/thread.h"
#include "common/watch.h"
#include "newfile.h"

enum {
    ERROR_BYTES = 9216,     /* two paths and a reason */
    BUFFER_BYTES = 2 << 20, /* a huge page: written whole, it is not zeroed first */
    DIRECT_BLOCK = 4096,    /* a write past the page cache is a multiple of this */
    COPY_CHUNK = 8 << 20,   /* one copy_file_range: small enough that a stop is noticed soon on a slow disk */
};

struct job {
    struct job *next;
    struct copier_done *done; /* allocated with the job: a completion cannot fail for lack of memory */
    bool directories;
    unsigned mode;
    char *source, *destination;
};

struct copier {
    pthread_mutex_t lock; /* queue, done list, stopped */
    pthread_cond_t work;
    struct job *queue_head, **queue_tail;
    struct copier_done *done_head, **done_tail;
    bool stopped;
    atomic_bool stopping;
    int event_fd;
    int threads;
    pthread_t workers[COPIER_THREADS_MAX];
};

/* Kept by one worker thread from job to job. */
struct worker {
    struct copier *copier;
    char *buffer; /* BUFFER_BYTES, made when first needed */
};

static const char *reason_of(int error) {
    static _Thread_local char text[128];
    return strerror_r(error, text, sizeof text); /* the GNU one */
}

/* ── copies ── */

static char *worker_buffer(struct worker *worker) {
    if (worker->buffer == NULL) worker->buffer = aligned_alloc(BUFFER_BYTES, BUFFER_BYTES);
    return worker->buffer;
}

static int write_all(int fd, const char *from, size_t count) {
    while (count > 0) {
        ssize_t put = write(fd, from, count);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        from += put;
        count -= (size_t)put;
    }
    return 0;
}

/* The next piece of `in` into `out`, at most so long: bytes, 0 at the end, or a negative errno. `*plain`: copy_file_range is of no use here. */
static ssize_t copy_piece(struct worker *worker, int in, int out, uint64_t most, bool *plain, bool first) {
    if (!*plain) {
        ssize_t moved = copy_file_range(in, NULL, out, NULL, most < COPY_CHUNK ? (size_t)most : COPY_CHUNK, 0);
        if (moved > 0 || (moved == 0 && !first)) return moved;
        if (moved < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO || errno == EINTR)) return -errno;
        *plain = true; /* other file system (EXDEV), an old kernel, or a file of /proc that claims to be empty */
    }
    char *buffer = worker_buffer(worker);
    if (buffer == NULL) return -ENOMEM;
    ssize_t got = read(in, buffer, most < BUFFER_BYTES ? (size_t)most : BUFFER_BYTES);
    if (got < 0) return -errno;
    int failed = write_all(out, buffer, (size_t)got);
    return failed != 0 ? -failed : got;
}

/* Have a file bypass the page cache, or not. Where that is impossible (a tmpfs, some network file systems) nothing changes. */
static void set_direct(int fd, bool direct) {
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

/* As copy_piece, between memory and a disk that takes what memory cannot hold: the page cache would only take more memory. */
static ssize_t copy_piece_direct(struct worker *worker, int in, int out, uint64_t most, struct digests_run *run) {
    char *buffer = worker_buffer(worker);
    size_t count = most < BUFFER_BYTES ? (size_t)most : BUFFER_BYTES;
    if (buffer == NULL) return -ENOMEM;
    ssize_t got = read(in, buffer, count);
    if (got < 0 && errno == EINVAL) {
        set_direct(in, false);
        got = read(in, buffer, count);
    }
    if (got < 0) return -errno;
    digests_add(run, buffer, (size_t)got);
    if (got % DIRECT_BLOCK != 0) set_direct(out, false); /* the end of the file */
    off_t at = lseek(out, 0, SEEK_CUR);
    int failed = write_all(out, buffer, (size_t)got);
    if (failed == EINVAL) { /* the file system wants larger blocks, or has written half a one */
        set_direct(out, false);
        failed = lseek(out, at, SEEK_SET) != at ? errno : write_all(out, buffer, (size_t)got);
    }
    return failed != 0 ? -failed : got;
}

/* The copy is whole: has it the digest of what it was made of? 0, or why it failed. */
static int check_copy(const struct worker *worker, const struct job *job, struct digests_key key, int in, int out,
                      const uint8_t digest[XXH3_BYTES], char *error) {
    uint8_t taken[XXH3_BYTES];
    const atomic_bool *stop = &worker->copier->stopping;
    int failed = digests_take(out, stop, taken);
    if (failed == ECANCELED) snprintf(error, ERROR_BYTES, "stopped");
    else if (failed != 0)
        snprintf(error, ERROR_BYTES, "cannot read back the copy of %s to %s: %s", job->source, job->destination, reason_of(failed));
    if (failed != 0 || memcmp(taken, digest, sizeof taken) == 0) return failed;
    if (digests_check(key, in, stop) == DIGESTS_DAMAGED) {
        snprintf(error, ERROR_BYTES, "%s " COPIER_DAMAGED, job->source);
        return EBADMSG;
    }
    snprintf(error, ERROR_BYTES, "cannot copy %s to %s: what was written there is not what was read", job->source, job->destination);
    return EIO;
}

struct copying {
    struct worker *worker;
    int in, out;
    bool plain, exact;
    uint64_t total; /* holes, too */
    struct digests_run run;
};

/* As far as `most` bytes, or the end of the file. 0 or an errno. */
static int copy_bytes(struct copying *copy, uint64_t most) {
    while (most > 0) {
        if (atomic_load(&copy->worker->copier->stopping)) return ECANCELED;
        ssize_t moved = copy->exact ? copy_piece_direct(copy->worker, copy->in, copy->out, most, &copy->run)
                                    : copy_piece(copy->worker, copy->in, copy->out, most, &copy->plain, copy->total == 0);
        if (moved == 0) break;
        if (moved < 0 && moved != -EINTR) return (int)-moved;
        if (moved > 0) copy->total += (uint64_t)moved;
        if (moved > 0) most -= (uint64_t)moved;
    }
    return 0;
}

/* Holes stay holes. */
static int copy_between_holes(struct copying *copy, uint64_t size) {
    uint64_t from, to;
    int error = 0;
    for (uint64_t at = 0; error == 0 && at < size; at = to) {
        error = amfs_next_extent(copy->in, at, size, &from, &to);
        if (error != 0) break;
        digests_add_zeros(&copy->run, from - at);
        copy->total += from - at;
        if (lseek(copy->in, (off_t)from, SEEK_SET) < 0 || lseek(copy->out, (off_t)from, SEEK_SET) < 0) error = errno;
        else error = copy_bytes(copy, to == size ? UINT64_MAX : to - from); /* to the end: blocks, and what grew meanwhile */
    }
    struct stat now;
    if (error == 0 && (ftruncate(copy->out, (off_t)copy->total) != 0 || fstat(copy->in, &now) != 0)) error = errno;
    if (error == 0 && (uint64_t)now.st_size != size) copy->total = (uint64_t)now.st_size; /* which the caller tells */
    return error;
}

/* The number of bytes copied; `*code` is 0, or why it failed, and `error` says that in words. */
static uint64_t run_copy(struct worker *worker, const struct job *job, char *error, int *code) {
    struct newfile file;
    struct stat found;
    int in = open(job->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block us */
    if (in < 0 || fstat(in, &found) != 0) {
        snprintf(error, ERROR_BYTES, "cannot read %s: %s", job->source, reason_of(*code = errno));
        if (in >= 0) close(in);
        return 0;
    }
    if (!S_ISREG(found.st_mode)) {
        *code = EINVAL;
        snprintf(error, ERROR_BYTES, "cannot copy %s: it is %s", job->source,
                 S_ISDIR(found.st_mode) ? "a directory" : "not a regular file");
        close(in);
        return 0;
    }
    if ((*code = newfile_open(&file, job->destination, job->directories)) != 0) {
        snprintf(error, ERROR_BYTES, "%s", file.error);
        close(in);
        return 0;
    }
    uint8_t digest[XXH3_BYTES], known[XXH3_BYTES];
    bool exact = (job->mode & COPIER_EXACT) != 0;
    struct copying copy = {.worker = worker, .in = in, .out = file.fd, .exact = exact};
    digests_begin(&copy.run);
    bool checked = (job->mode & COPIER_CHECKED) != 0 && digests_learn(digests_key_of(&found), in, &worker->copier->stopping, digest) == 0;
    if (exact) {
        set_direct(in, true);
        set_direct(file.fd, true);
    }
    int failed = lseek(in, 0, SEEK_SET) != 0 ? errno : 0;
    if (failed == 0) failed = amfs_has_holes(&found) ? copy_between_holes(&copy, (uint64_t)found.st_size) : copy_bytes(&copy, UINT64_MAX);
    uint64_t total = copy.total;
    *code = failed;
    if (failed == ECANCELED) {
        snprintf(error, ERROR_BYTES, "stopped");
    } else if (failed != 0) {
        snprintf(error, ERROR_BYTES, "cannot copy %s to %s: %s (after %llu of %llu bytes)", job->source, job->destination,
                 reason_of(failed), (unsigned long long)total, (unsigned long long)found.st_size);
    } else if (found.st_size > 0 && total != (uint64_t)found.st_size) {
        *code = EIO;
        snprintf(error, ERROR_BYTES, "cannot copy %s: its size changed from %llu to %llu bytes meanwhile", job->source,
                 (unsigned long long)found.st_size, (unsigned long long)total);
    }
    if (checked && *code == 0) *code = check_copy(worker, job, digests_key_of(&found), in, file.fd, digest, error);
    close(in);
    unsigned mode = job->mode;
    if (exact) {
        struct timespec times[2] = {found.st_atim, found.st_mtim};
        mode = found.st_mode;
        digests_end(&copy.run, digest);
        if (*code == 0 && digests_get(digests_key_of(&found), &found, known) && memcmp(known, digest, sizeof known) != 0) {
            *code = EBADMSG;
            snprintf(error, ERROR_BYTES, "%s " COPIER_DAMAGED, job->source);
        }
        if (*code == 0 && futimens(file.fd, times) != 0)
            snprintf(error, ERROR_BYTES, "cannot set the times of %s: %s", job->destination, reason_of(*code = errno));
    }
    struct timespec time[2] = {{.tv_nsec = UTIME_OMIT}, found.st_mtim};
    if (!exact && error[0] == '\0') (void)!futimens(file.fd, time); /* a file system without times loses nothing else */
    bool keep = exact && fstat(file.fd, &found) == 0;
    if (*code != 0) newfile_drop(&file);
    else if ((*code = newfile_finish(&file, mode, false)) != 0) snprintf(error, ERROR_BYTES, "%s", file.error);
    else if (keep) digests_put(digests_key_of(&found), &found, digest, digests_moment(digests_key_of(&found)));
    return total;
}

/* ── queue and completions ── */

static void wake_reader(struct copier *copier) {
    uint64_t one = 1;
    ssize_t put = write(copier->event_fd, &one, sizeof one);
    (void)put; /* full: then it is readable, which is all that is wanted */
}

static char no_memory[] = "failed, and no memory to say why";

/* With the lock held. */
static void complete(struct copier *copier, struct job *job, uint64_t bytes, const char *error, int code) {
    struct copier_done *done = job->done;
    done->bytes = bytes;
    done->code = code;
    if (code != 0) {
        done->error = strdup(error);
        if (done->error == NULL) done->error = no_memory;
    }
    *copier->done_tail = done;
    copier->done_tail = &done->next;
    wake_reader(copier);
    free(job);
}

void copier_done_free(struct copier_done *list) {
    while (list != NULL) {
        struct copier_done *next = list->next;
        if (list->error != no_memory) free(list->error);
        free(list);
        list = next;
    }
}

static void *work(void *argument) {
    struct worker worker = {.copier = argument};
    struct copier *copier = argument;
    pthread_mutex_lock(&copier->lock);
    for (;;) {
        while (copier->queue_head == NULL && !atomic_load(&copier->stopping)) pthread_cond_wait(&copier->work, &copier->lock);
        struct job *job = copier->queue_head;
        if (job == NULL || atomic_load(&copier->stopping)) break; /* copier_stop completes what is queued */
        copier->queue_head = job->next;
        if (copier->queue_head == NULL) copier->queue_tail = &copier->queue_head;
        pthread_mutex_unlock(&copier->lock);
        char error[ERROR_BYTES];
        error[0] = '\0';
        int code = 0;
        struct watch_entry watched = amfs_watch_begin("copy number", job->done->serial);
        uint64_t bytes = run_copy(&worker, job, error, &code);
        amfs_watch_end(watched);
        pthread_mutex_lock(&copier->lock);
        complete(copier, job, bytes, error, code);
    }
    pthread_mutex_unlock(&copier->lock);
    free(worker.buffer);
    return NULL;
}

static int enqueue(struct copier *copier, uint64_t serial, const struct job *wish, const char *source, const char *destination) {
    size_t first = strlen(source) + 1, second = strlen(destination) + 1;
    struct job *job = malloc(sizeof *job + first + second); /* the strings live behind it */
    struct copier_done *done = calloc(1, sizeof *done);
    if (job == NULL || done == NULL) {
        free(job);
        free(done);
        return ENOMEM;
    }
    *job = *wish;
    job->done = done;
    job->next = NULL;
    job->source = memcpy((char *)(job + 1), source, first);
    job->destination = memcpy((char *)(job + 1) + first, destination, second);
    done->serial = serial;
    pthread_mutex_lock(&copier->lock);
    if (copier->stopped || atomic_load(&copier->stopping)) {
        complete(copier, job, 0, "stopped", ECANCELED);
    } else {
        *copier->queue_tail = job;
        copier->queue_tail = &job->next;
        pthread_cond_signal(&copier->work);
    }
    pthread_mutex_unlock(&copier->lock);
    return 0;
}

int copier_copy(struct copier *copier, uint64_t serial, const char *source, const char *destination, unsigned mode, int directories) {
    struct job wish = {.mode = mode, .directories = directories != 0};
    return enqueue(copier, serial, &wish, source, destination);
}

struct copier_done *copier_take(struct copier *copier) {
    uint64_t count;
    pthread_mutex_lock(&copier->lock);
    ssize_t got = read(copier->event_fd, &count, sizeof count);
    (void)got; /* nothing to read: nothing to take */
    struct copier_done *list = copier->done_head;
    copier->done_head = NULL;
    copier->done_tail = &copier->done_head;
    pthread_mutex_unlock(&copier->lock);
    return list;
}

/* ── life ── */

int copier_fd(const struct copier *copier) { return copier->event_fd; }

struct copier *copier_new(int threads, char *error, size_t error_size) {
    if (threads < 1 || threads > COPIER_THREADS_MAX) {
        snprintf(error, error_size, "the copier takes 1 to %d threads, not %d", COPIER_THREADS_MAX, threads);
        return NULL;
    }
    struct copier *copier = calloc(1, sizeof *copier);
    if (copier == NULL) {
        snprintf(error, error_size, "%s", reason_of(ENOMEM));
        return NULL;
    }
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->work, NULL);
    copier->queue_tail = &copier->queue_head;
    copier->done_tail = &copier->done_head;
    copier->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (copier->event_fd < 0) {
        snprintf(error, error_size, "cannot make an eventfd: %s", reason_of(errno));
        copier_free(copier);
        return NULL;
    }
    for (; copier->threads < threads; copier->threads++) {
        int failed = new_thread(&copier->workers[copier->threads], work, copier);
        if (failed != 0) {
            snprintf(error, error_size, "cannot start a thread: %s", reason_of(failed));
            copier_free(copier);
            return NULL;
        }
    }
    return copier;
}

void copier_stop(struct copier *copier) {
    pthread_mutex_lock(&copier->lock);
    bool already = atomic_exchange(&copier->stopping, true);
    pthread_cond_broadcast(&copier->work);
    pthread_mutex_unlock(&copier->lock);
    if (already) return;
    for (int i = 0; i < copier->threads; i++) pthread_join(copier->workers[i], NULL);
    pthread_mutex_lock(&copier->lock);
    while (copier->queue_head != NULL) {
        struct job *job = copier->queue_head;
        copier->queue_head = job->next;
        complete(copier, job, 0, "stopped", ECANCELED);
    }
    copier->queue_tail = &copier->queue_head;
    copier->stopped = true;
    pthread_mutex_unlock(&copier->lock);
}

void copier_free(struct copier *copier) {
    copier_stop(copier);
    copier_done_free(copier_take(copier));
    if (copier->event_fd >= 0) close(copier->event_fd);
    pthread_cond_destroy(&copier->work);
    pthread_mutex_destroy(&copier->lock);
    free(copier);
}
