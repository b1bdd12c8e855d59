/* The mover's queue, threads, completions and local copies. Contract in mover.h. */
#include "mover_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/tree.h"

/* One copy_file_range: small enough that a stop is noticed soon on a slow disk. */
enum { COPY_CHUNK = 8 << 20 };

const char *mover_reason(int error) {
    static _Thread_local char text[128];
    switch (error) {
    case ECANCELED: return "stopped";
    case ETIMEDOUT: return "no progress for too long";
    default: return strerror_r(error, text, sizeof text); /* the GNU one */
    }
}

void mover_account_cpu(struct mover *mover, uint64_t *seen_us) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    uint64_t now_us = (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000;
    atomic_fetch_add(&mover->cpu_us, now_us - *seen_us);
    *seen_us = now_us;
}

int mover_wait(struct mover *mover, int fd, short events) {
    struct pollfd set[2] = {{.fd = fd, .events = events}, {.fd = mover->stop_fd, .events = POLLIN}};
    int64_t until = now_ms() + mover->stall_ms;
    for (;;) {
        int64_t left = until - now_ms();
        int ready = poll(set, 2, left > 0 ? (int)left : 0);
        if (ready < 0 && errno != EINTR) return errno;
        if (set[1].revents != 0 && ready > 0) return ECANCELED;
        if (ready > 0) return 0;
        if (ready == 0) return ETIMEDOUT;
    }
}

/* ── temporary files ── */

static bool make_parents(const char *path, char *error) {
    char prefix[PART_BYTES];
    size_t length = strlen(path);
    if (length >= sizeof prefix) {
        snprintf(error, ERROR_BYTES, "cannot make the directories of %s: %s", path, mover_reason(ENAMETOOLONG));
        return false;
    }
    memcpy(prefix, path, length + 1);
    for (char *slash = strchr(prefix + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(prefix, 0777) != 0 && errno != EEXIST) {
            int reason = errno;
            struct stat found; /* a read-only or foreign directory above that is there is no fault */
            if (stat(prefix, &found) != 0 || !S_ISDIR(found.st_mode)) {
                snprintf(error, ERROR_BYTES, "cannot make directory %s: %s", prefix, mover_reason(reason));
                return false;
            }
        }
        *slash = '/';
    }
    return true;
}

int mover_part_open(struct mover *mover, const char *destination, bool directories, char *part, char *error) {
    const char *slash = strrchr(destination, '/');
    int directory = slash == NULL ? 0 : (int)(slash - destination) + 1;
    unsigned count = atomic_fetch_add(&mover->part_count, 1);
    /* The mover's address tells two movers of one process apart, the pid two processes; O_EXCL guards against the rest. */
    int length = snprintf(part, PART_BYTES, "%.*s.amfs-part-%x-%x-%x", directory, destination, (unsigned)getpid(),
                          (unsigned)((uintptr_t)mover >> 4), count);
    if (length >= PART_BYTES) {
        snprintf(error, ERROR_BYTES, "cannot create %s: %s", destination, mover_reason(ENAMETOOLONG));
        return -1;
    }
    int fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && directories) {
        if (!make_parents(destination, error)) return -1;
        fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd < 0) snprintf(error, ERROR_BYTES, "cannot create %s: %s", destination, mover_reason(errno));
    return fd;
}

void mover_part_drop(int fd, const char *part) {
    close(fd);
    unlink(part);
}

bool mover_part_finish(int fd, const char *part, const char *destination, unsigned mode, bool keep_first, char *error) {
    const char *step = "set the mode of";
    if (fchmod(fd, mode & 07777) == 0) {
        step = "write"; /* network file systems report a full disk here */
        if (close(fd) == 0) {
            step = "rename to";
            int failed = keep_first ? amfs_rename_to_free(AT_FDCWD, part, destination) : rename(part, destination) == 0 ? 0 : errno;
            if (failed == EEXIST && keep_first) failed = unlink(part) == 0 ? 0 : errno;
            if (failed == 0) return true;
            errno = failed;
        }
    } else {
        int reason = errno;
        close(fd);
        errno = reason;
    }
    snprintf(error, ERROR_BYTES, "cannot %s %s: %s", step, destination, mover_reason(errno));
    unlink(part);
    return false;
}

/* ── copies ── */

static char *worker_buffer(struct worker *worker) {
    if (worker->buffer == NULL) worker->buffer = malloc(BUFFER_BYTES);
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

/* The next piece of `in` into `out`: bytes, 0 at the end, or a negative errno. `*plain`: copy_file_range is of no use here. */
static ssize_t copy_piece(struct worker *worker, int in, int out, bool *plain, bool first) {
    if (!*plain) {
        ssize_t moved = copy_file_range(in, NULL, out, NULL, COPY_CHUNK, 0);
        if (moved > 0 || (moved == 0 && !first)) return moved;
        if (moved < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO || errno == EINTR)) return -errno;
        *plain = true; /* other file system (EXDEV), an old kernel, or a file of /proc that claims to be empty */
    }
    char *buffer = worker_buffer(worker);
    if (buffer == NULL) return -ENOMEM;
    ssize_t got = read(in, buffer, BUFFER_BYTES);
    if (got < 0) return -errno;
    int failed = write_all(out, buffer, (size_t)got);
    return failed != 0 ? -failed : got;
}

static uint64_t run_copy(struct worker *worker, const struct job *job, char *error) {
    char part[PART_BYTES];
    struct stat found;
    uint64_t total = 0;
    int in = open(job->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block us */
    if (in < 0 || fstat(in, &found) != 0) {
        snprintf(error, ERROR_BYTES, "cannot read %s: %s", job->source, mover_reason(errno));
        if (in >= 0) close(in);
        return 0;
    }
    if (!S_ISREG(found.st_mode)) {
        snprintf(error, ERROR_BYTES, "cannot copy %s: it is %s", job->source,
                 S_ISDIR(found.st_mode) ? "a directory" : "not a regular file");
        close(in);
        return 0;
    }
    int out = mover_part_open(worker->mover, job->destination, job->directories, part, error);
    if (out < 0) {
        close(in);
        return 0;
    }
    bool plain = false;
    int failed = 0;
    while (failed == 0) {
        ssize_t moved = atomic_load(&worker->mover->stopping) ? -ECANCELED : copy_piece(worker, in, out, &plain, total == 0);
        if (moved == 0) break;
        if (moved > 0) total += (uint64_t)moved;
        else if (moved != -EINTR) failed = (int)-moved;
    }
    close(in);
    if (failed == ECANCELED) {
        snprintf(error, ERROR_BYTES, "stopped");
    } else if (failed != 0) {
        snprintf(error, ERROR_BYTES, "cannot copy %s to %s: %s (after %llu of %llu bytes)", job->source, job->destination,
                 mover_reason(failed), (unsigned long long)total, (unsigned long long)found.st_size);
    } else if (found.st_size > 0 && total != (uint64_t)found.st_size) {
        snprintf(error, ERROR_BYTES, "cannot copy %s: its size changed from %llu to %llu bytes meanwhile", job->source,
                 (unsigned long long)found.st_size, (unsigned long long)total);
    }
    if (error[0] != '\0') mover_part_drop(out, part);
    else mover_part_finish(out, part, job->destination, job->mode, false, error);
    atomic_fetch_add(&worker->mover->bytes_copied, total);
    return total;
}

/* ── queue and completions ── */

static void wake_reader(struct mover *mover) {
    uint64_t one = 1;
    ssize_t put = write(mover->event_fd, &one, sizeof one);
    (void)put; /* full: then it is readable, which is all that is wanted */
}

static char no_memory[] = "failed, and no memory to say why";

/* With the lock held. */
static void complete(struct mover *mover, struct job *job, uint64_t bytes, const char *error) {
    struct mover_done *done = job->done;
    done->bytes = bytes;
    if (error[0] != '\0') {
        done->error = strdup(error);
        if (done->error == NULL) done->error = no_memory;
    }
    *mover->done_tail = done;
    mover->done_tail = &done->next;
    wake_reader(mover);
    free(job);
}

void mover_done_free(struct mover_done *list) {
    while (list != NULL) {
        struct mover_done *next = list->next;
        if (list->error != no_memory) free(list->error);
        free(list);
        list = next;
    }
}

static void *work(void *argument) {
    struct worker worker = {.mover = argument};
    struct mover *mover = argument;
    pthread_mutex_lock(&mover->lock);
    for (;;) {
        while (mover->queue_head == NULL && !atomic_load(&mover->stopping)) pthread_cond_wait(&mover->work, &mover->lock);
        struct job *job = mover->queue_head;
        if (job == NULL || atomic_load(&mover->stopping)) break; /* mover_stop completes what is queued */
        mover->queue_head = job->next;
        if (mover->queue_head == NULL) mover->queue_tail = &mover->queue_head;
        pthread_mutex_unlock(&mover->lock);
        char error[ERROR_BYTES];
        error[0] = '\0';
        uint64_t bytes = job->is_fetch ? mover_run_fetch(&worker, job, error) : run_copy(&worker, job, error);
        mover_account_cpu(mover, &worker.cpu_us);
        pthread_mutex_lock(&mover->lock);
        complete(mover, job, bytes, error);
    }
    pthread_mutex_unlock(&mover->lock);
    free(worker.buffer);
    return NULL;
}

static int enqueue(struct mover *mover, uint64_t serial, const struct job *wish, const char *source, const char *destination) {
    size_t first = strlen(source) + 1, second = strlen(destination) + 1;
    struct job *job = malloc(sizeof *job + first + second); /* the strings live behind it */
    struct mover_done *done = calloc(1, sizeof *done);
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
    pthread_mutex_lock(&mover->lock);
    if (mover->stopped || atomic_load(&mover->stopping)) {
        complete(mover, job, 0, "stopped");
    } else {
        *mover->queue_tail = job;
        mover->queue_tail = &job->next;
        pthread_cond_signal(&mover->work);
    }
    pthread_mutex_unlock(&mover->lock);
    return 0;
}

int mover_copy(struct mover *mover, uint64_t serial, const char *source, const char *destination, unsigned mode, int directories) {
    struct job wish = {.mode = mode, .directories = directories != 0};
    return enqueue(mover, serial, &wish, source, destination);
}

int mover_fetch(struct mover *mover, uint64_t serial, const char *host, int port, const uint8_t ticket[MOVER_TICKET_BYTES], uint64_t size,
                const char *destination, unsigned mode) {
    struct job wish = {.is_fetch = true, .directories = true, .mode = mode, .port = port, .size = size};
    memcpy(wish.ticket, ticket, MOVER_TICKET_BYTES);
    return enqueue(mover, serial, &wish, host, destination);
}

int mover_offer(struct mover *mover, const char *path, uint8_t ticket[MOVER_TICKET_BYTES]) {
    return mover->port == NULL ? ENOTCONN : port_offer(mover->port, path, ticket);
}

struct mover_done *mover_take(struct mover *mover) {
    uint64_t count;
    pthread_mutex_lock(&mover->lock);
    ssize_t got = read(mover->event_fd, &count, sizeof count);
    (void)got; /* nothing to read: nothing to take */
    struct mover_done *list = mover->done_head;
    mover->done_head = NULL;
    mover->done_tail = &mover->done_head;
    pthread_mutex_unlock(&mover->lock);
    return list;
}

void mover_read_counters(struct mover *mover, struct mover_counters *counters) {
    counters->bytes_copied = atomic_load(&mover->bytes_copied);
    counters->bytes_fetched = atomic_load(&mover->bytes_fetched);
    counters->bytes_served = atomic_load(&mover->bytes_served);
    counters->cpu_us = atomic_load(&mover->cpu_us);
}

/* ── life ── */

int mover_fd(const struct mover *mover) { return mover->event_fd; }

int mover_port(const struct mover *mover) { return mover->port == NULL ? 0 : port_number(mover->port); }

void mover_set_stall_ms(struct mover *mover, int milliseconds) { mover->stall_ms = milliseconds; }

struct mover *mover_new(int threads, const char *listen_address, char *error, size_t error_size) {
    if (threads < 1 || threads > MOVER_THREADS_MAX) {
        snprintf(error, error_size, "the mover takes 1 to %d threads, not %d", MOVER_THREADS_MAX, threads);
        return NULL;
    }
    struct mover *mover = calloc(1, sizeof *mover);
    if (mover == NULL) {
        snprintf(error, error_size, "%s", mover_reason(ENOMEM));
        return NULL;
    }
    pthread_mutex_init(&mover->lock, NULL);
    pthread_cond_init(&mover->work, NULL);
    mover->queue_tail = &mover->queue_head;
    mover->done_tail = &mover->done_head;
    mover->stall_ms = MOVER_STALL_MS;
    mover->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mover->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mover->event_fd < 0 || mover->stop_fd < 0) {
        snprintf(error, error_size, "cannot make an eventfd: %s", mover_reason(errno));
        mover_free(mover);
        return NULL;
    }
    if (listen_address != NULL && listen_address[0] != '\0') {
        mover->port = port_open(mover, listen_address, error, error_size);
        if (mover->port == NULL) {
            mover_free(mover);
            return NULL;
        }
    }
    for (; mover->threads < threads; mover->threads++) {
        int failed = new_thread(&mover->workers[mover->threads], work, mover);
        if (failed != 0) {
            snprintf(error, error_size, "cannot start a thread: %s", mover_reason(failed));
            mover_free(mover);
            return NULL;
        }
    }
    return mover;
}

void mover_stop(struct mover *mover) {
    uint64_t one = 1;
    pthread_mutex_lock(&mover->lock);
    bool already = atomic_exchange(&mover->stopping, true);
    ssize_t put = mover->stop_fd >= 0 ? write(mover->stop_fd, &one, sizeof one) : 0;
    (void)put;
    pthread_cond_broadcast(&mover->work);
    pthread_mutex_unlock(&mover->lock);
    if (already) return;
    for (int i = 0; i < mover->threads; i++) pthread_join(mover->workers[i], NULL);
    if (mover->port != NULL) port_close(mover->port);
    pthread_mutex_lock(&mover->lock);
    while (mover->queue_head != NULL) {
        struct job *job = mover->queue_head;
        mover->queue_head = job->next;
        complete(mover, job, 0, "stopped");
    }
    mover->queue_tail = &mover->queue_head;
    mover->stopped = true;
    pthread_mutex_unlock(&mover->lock);
}

void mover_free(struct mover *mover) {
    mover_stop(mover);
    if (mover->port != NULL) port_free(mover->port);
    mover_done_free(mover_take(mover));
    if (mover->event_fd >= 0) close(mover->event_fd);
    if (mover->stop_fd >= 0) close(mover->stop_fd);
    pthread_cond_destroy(&mover->work);
    pthread_mutex_destroy(&mover->lock);
    free(mover);
}
