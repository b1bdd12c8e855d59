/* Life of fsio, its events, the table of owners. Contract in fsio.h. */
#include "fsio_internal.h"

#include "common/stripe_partition.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int64_t fsio_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void fsio_fair_lock(pthread_rwlock_t *lock) {
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP); /* readers in a row must not keep a writer out */
    pthread_rwlock_init(lock, &fair);
    pthread_rwlockattr_destroy(&fair);
}

/* ── events ── */

void fsio_tell(struct fsio *io, enum fsio_event_kind kind, uint64_t serial, uint64_t ino, uint64_t size, int error) {
    struct fsio_event *event = malloc(sizeof *event);
    uint64_t one = 1;
    if (event == NULL) return; /* out of memory: whoever waits has a time-out of his own */
    *event = (struct fsio_event){.kind = kind, .serial = serial, .ino = ino, .size = size, .error = error};
    pthread_mutex_lock(&io->events_lock);
    *io->events_tail = event;
    io->events_tail = &event->next;
    ssize_t put = write(io->event_fd, &one, sizeof one);
    (void)put; /* full: it is readable, which is all that is wanted */
    pthread_mutex_unlock(&io->events_lock);
}

void fsio_tell_done(struct fsio *io, uint64_t serial, int error) { fsio_tell(io, FSIO_EVENT_DONE, serial, 0, 0, error); }

struct fsio_event *fsio_take(struct fsio *io) {
    uint64_t count;
    pthread_mutex_lock(&io->events_lock);
    ssize_t got = read(io->event_fd, &count, sizeof count);
    (void)got; /* nothing to read: nothing to take */
    struct fsio_event *list = io->events;
    io->events = NULL;
    io->events_tail = &io->events;
    pthread_mutex_unlock(&io->events_lock);
    return list;
}

int fsio_event_fd(const struct fsio *io) { return io->event_fd; }

/* ── places ── */

void fsio_set_table(struct fsio *io, const int32_t *owners, size_t partitions) {
    int32_t *copy = malloc((partitions + 1) * sizeof *copy);
    bool others = false, *moving = calloc(partitions + 1, sizeof *moving);
    if (copy == NULL || moving == NULL) { /* the old one stays; stripes are looked for at their old owners, who answer */
        free(copy);
        free(moving);
        return;
    }
    memcpy(copy, owners, partitions * sizeof *copy);
    for (size_t i = 0; i < partitions; i++) others |= owners[i] != io->node && owners[i] >= 0;
    pthread_mutex_lock(&io->table_lock);
    free(io->owners);
    free(io->moving);
    io->owners = copy;
    io->moving = moving;
    io->partitions = partitions;
    io->others = others;
    pthread_mutex_unlock(&io->table_lock);
}

void fsio_set_moving(struct fsio *io, const uint32_t *partitions, size_t count, bool moving) {
    pthread_mutex_lock(&io->table_lock);
    for (size_t i = 0; i < count; i++)
        if (partitions[i] < io->partitions) io->moving[partitions[i]] = moving;
    pthread_mutex_unlock(&io->table_lock);
}

bool fsio_any_moving(struct fsio *io) {
    bool any = false;
    pthread_mutex_lock(&io->table_lock);
    for (size_t i = 0; i < io->partitions && !any; i++) any = io->moving[i];
    pthread_mutex_unlock(&io->table_lock);
    return any;
}

size_t fsio_partition_of(const struct fsio *io, uint64_t ino, uint64_t index) { return amfs_stripe_partition(ino, index, io->partitions); }

int32_t fsio_stripe_owner(struct fsio *io, uint64_t ino, uint64_t index) {
    pthread_mutex_lock(&io->table_lock);
    int32_t owner = io->partitions == 0 ? -1 : io->owners[fsio_partition_of(io, ino, index)];
    pthread_mutex_unlock(&io->table_lock);
    return owner;
}

bool fsio_stripe_ours(struct fsio *io, uint64_t ino, uint64_t index, bool *moving) {
    bool ours = true;
    *moving = false;
    pthread_mutex_lock(&io->table_lock);
    if (io->partitions > 0) {
        size_t partition = fsio_partition_of(io, ino, index);
        ours = io->owners[partition] == io->node;
        *moving = io->moving[partition];
    }
    pthread_mutex_unlock(&io->table_lock);
    return ours;
}

bool fsio_has_others(struct fsio *io) {
    pthread_mutex_lock(&io->table_lock);
    bool others = io->others;
    pthread_mutex_unlock(&io->table_lock);
    return others;
}

/* ── the keeper: what is done every few seconds ── */

static void *keep(void *argument) {
    struct fsio *io = argument;
    int64_t rescan_ms = now_ms() + FSIO_RESCAN_SECONDS * 1000;
    pthread_mutex_lock(&io->keeper_lock);
    while (!atomic_load(&io->stopping)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 2;
        pthread_cond_timedwait(&io->keeper_wake, &io->keeper_lock, &until);
        if (atomic_load(&io->stopping)) break;
        const struct data_rpc_handler handler = io->rpc_handler; /* it may be set while this thread runs */
        pthread_mutex_unlock(&io->keeper_lock);
        data_reap(&io->client);
        if (handler.attend != NULL) handler.tick(handler.context);
        int64_t began = now_ms();
        if (began >= rescan_ms) {
            fsio_rescan(io);
            int64_t ended = now_ms(); /* with very many parts less often: at most 2 % of a core */
            rescan_ms = ended + FSIO_RESCAN_SECONDS * 1000 + 50 * (ended - began);
        }
        pthread_mutex_lock(&io->keeper_lock);
    }
    pthread_mutex_unlock(&io->keeper_lock);
    return NULL;
}

/* ── life ── */

static void free_all(struct fsio *io) {
    data_server_free(io);
    if (io->rpc_handler.attend != NULL) io->rpc_handler.let_go(io->rpc_handler.context);
    data_client_end(&io->client);
    fsio_workers_end(io);
    fsio_spares_free(io);
    fsio_parts_end(io);
    if (io->store_fd >= 0) close(io->store_fd);
    free(io->spill);
    if (io->event_fd >= 0) close(io->event_fd);
    free(io->owners);
    free(io->moving);
    free(io->lost);
    free(io->lost_copies);
    fsio_copies_end(io);
    pthread_rwlock_destroy(&io->writes);
    pthread_cond_destroy(&io->carriers_work);
    pthread_mutex_destroy(&io->carriers_lock);
    pthread_cond_destroy(&io->keeper_wake);
    pthread_mutex_destroy(&io->keeper_lock);
    pthread_cond_destroy(&io->room_changed);
    pthread_mutex_destroy(&io->room_lock);
    pthread_mutex_destroy(&io->spill_lock);
    pthread_mutex_destroy(&io->events_lock);
    pthread_mutex_destroy(&io->table_lock);
    pthread_mutex_destroy(&io->stripes_lock);
    fsio_ends_free(io);
    pthread_mutex_destroy(&io->files_lock);
    pthread_mutex_destroy(&io->ends_lock);
    pthread_mutex_destroy(&io->rescan_lock);
    free(io);
}

struct fsio *fsio_new(const struct fsio_options *options, char *error, size_t error_size) {
    struct fsio *io = calloc(1, sizeof *io);
    pthread_condattr_t monotonic;
    bool listens = options->listen != NULL && options->listen[0] != '\0';
    if (io == NULL) {
        snprintf(error, error_size, "%s", strerror(ENOMEM));
        return NULL;
    }
    io->node = options->node;
    io->limit = options->limit;
    io->digests = digests_space();
    io->stripe_digests = digests_space();
    io->checks = options->key != NULL;
    io->root_fd = io->store_fd = -1;
    io->events_tail = &io->events;
    io->carry_tail = &io->carry_head;
    data_client_begin(&io->client, (uint64_t)io->node, options->incarnation, options->key);
    fsio_workers_begin(io);
    fsio_fair_lock(&io->writes);
    fsio_copies_begin(io);
    pthread_mutex_init(&io->carriers_lock, NULL);
    pthread_cond_init(&io->carriers_work, NULL);
    pthread_mutex_init(&io->files_lock, NULL);
    pthread_mutex_init(&io->ends_lock, NULL);
    pthread_mutex_init(&io->rescan_lock, NULL);
    pthread_mutex_init(&io->stripes_lock, NULL);
    pthread_mutex_init(&io->table_lock, NULL);
    pthread_mutex_init(&io->room_lock, NULL);
    pthread_mutex_init(&io->spill_lock, NULL);
    pthread_mutex_init(&io->events_lock, NULL);
    pthread_mutex_init(&io->keeper_lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&io->keeper_wake, &monotonic);
    pthread_cond_init(&io->room_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    io->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = io->event_fd < 0 ? errno : 0;
    if (options->threads < 1 || options->threads > FSIO_THREADS_MAX) {
        snprintf(error, error_size, "fsio takes 1 to %d threads, not %d", FSIO_THREADS_MAX, options->threads);
        free_all(io);
        return NULL;
    }
    if (listens && options->key == NULL) {
        snprintf(error, error_size, "a node that others reach needs the session's key");
        free_all(io);
        return NULL;
    }
    if (failed != 0) {
        snprintf(error, error_size, "cannot make an eventfd: %s", strerror(failed));
        free_all(io);
        return NULL;
    }
    if (options->store != NULL && (io->store_fd = open(options->store, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
        snprintf(error, error_size, "cannot open %s: %s", options->store, strerror(errno));
        free_all(io);
        return NULL;
    }
    if (fsio_parts_begin(io, options->root, error, error_size) != 0) {
        free_all(io);
        return NULL;
    }
    failed = new_thread(&io->keeper, keep, io);
    io->keeper_runs = failed == 0;
    if (failed == 0) failed = fsio_workers_start(&io->workers, options->threads);
    if (failed != 0) snprintf(error, error_size, "cannot start a thread: %s", strerror(failed));
    if (failed == 0 && listens) failed = data_server_open(io, options->listen, error, error_size);
    if (failed == 0 && io->checks) digests_want(1);
    if (failed == 0) return io;
    io->checks = false;
    fsio_stop(io);
    free_all(io);
    return NULL;
}

int fsio_result(struct fsio *io, int error) { return data_result(&io->client, error); }

void fsio_set_peer(struct fsio *io, int32_t node, uint64_t incarnation, const char *host, int port) {
    data_set_peer(&io->client, node, incarnation, host, port);
}

void fsio_forget_peer(struct fsio *io, int32_t node) {
    data_forget_peer(&io->client, node);
    data_server_dismiss(io, node);
    fsio_files_forget(io, node);
}

int fsio_set_spill(struct fsio *io, const char *directory) {
    free(io->spill);
    io->spill = strdup(directory);
    return io->spill == NULL ? ENOMEM : 0;
}

void fsio_set_stall_ms(struct fsio *io, int milliseconds) { io->client.stall_ms = milliseconds; }

int fsio_root_fd(const struct fsio *io) { return io->root_fd; }

void fsio_stop(struct fsio *io) {
    pthread_mutex_lock(&io->keeper_lock);
    atomic_store(&io->stopping, true);
    pthread_cond_signal(&io->keeper_wake);
    bool join = io->keeper_runs;
    io->keeper_runs = false;
    pthread_mutex_unlock(&io->keeper_lock);
    if (!join) return; /* has been stopped before */
    pthread_join(io->keeper, NULL);
    if (io->checks) {
        digests_leave(io);
        digests_want(-1);
    }
    fsio_room_stop(io);
    data_client_stop(&io->client);
    fsio_carriers_stop(io);
    data_server_stop(io);
    fsio_workers_stop(io);
}

void fsio_free(struct fsio *io) {
    fsio_stop(io);
    for (struct fsio_event *event = fsio_take(io), *next; event != NULL; event = next) {
        next = event->next;
        free(event);
    }
    digests_leave(io);
    uint64_t ino;
    int64_t index;
    for (char *path = NULL; fsio_take_damage(io, &ino, &index, &path);) free(path);
    free_all(io);
}
