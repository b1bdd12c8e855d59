/* Life of fsio. Contract in fsio.h. */
#include "fsio_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ── the keeper: work of every few seconds ── */

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
        fsio_ends_forget(io, false);
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

struct opens *fsio_opens(const struct fsio *io) { return io->opens; }

static void free_all(struct fsio *io) {
    data_server_free(io);
    if (io->rpc_handler.attend != NULL) io->rpc_handler.let_go(io->rpc_handler.context);
    data_client_end(&io->client);
    fsio_workers_end(io);
    fsio_striped_free(io);
    fsio_store_free(io);
    if (io->event_fd >= 0) close(io->event_fd);
    opens_drop(io->opens);
    free(io->owners);
    free(io->moving);
    free(io->lost);
    free(io->lost_copies);
    pthread_cond_destroy(&io->keeper_wake);
    pthread_mutex_destroy(&io->keeper_lock);
    pthread_mutex_destroy(&io->events_lock);
    pthread_mutex_destroy(&io->table_lock);
    pthread_mutex_destroy(&io->files_lock);
    free(io);
}

struct fsio *fsio_new(const struct fsio_options *options, char *error, size_t error_size) {
    struct fsio *io = calloc(1, sizeof *io);
    bool listens = options->listen != NULL && options->listen[0] != '\0';
    if (io != NULL) io->opens = options->opens != NULL ? opens_share(options->opens) : opens_new();
    if (io == NULL || io->opens == NULL || !fsio_store_make(io, options->limit, options->key != NULL) || !fsio_striped_make(io)) {
        snprintf(error, error_size, "%s", strerror(ENOMEM));
        if (io != NULL) opens_drop(io->opens);
        if (io != NULL) fsio_store_free(io);
        free(io);
        return NULL;
    }
    io->node = options->node;
    io->events_tail = &io->events;
    io->leave_file = fsio_file_leave;
    data_client_begin(&io->client, (uint64_t)io->node, options->incarnation, options->key);
    fsio_workers_begin(io);
    pthread_mutex_init(&io->files_lock, NULL);
    pthread_mutex_init(&io->table_lock, NULL);
    pthread_mutex_init(&io->events_lock, NULL);
    pthread_mutex_init(&io->keeper_lock, NULL);
    new_monotonic_cond(&io->keeper_wake);
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
    if (fsio_store_open(io, options->root, options->store, error, error_size) != 0) {
        free_all(io);
        return NULL;
    }
    failed = new_thread(&io->keeper, keep, io);
    io->keeper_runs = failed == 0;
    if (failed == 0) failed = fsio_workers_start(&io->workers, options->threads);
    if (failed != 0) snprintf(error, error_size, "cannot start a thread: %s", strerror(failed));
    if (failed == 0 && listens) failed = data_server_open(io, options->listen, error, error_size);
    if (failed == 0 && io->store->checks) digests_want(1);
    if (failed == 0) return io;
    io->store->checks = false;
    fsio_stop(io);
    free_all(io);
    return NULL;
}

void fsio_set_peer(struct fsio *io, int32_t node, uint64_t incarnation, const char *host, int port) {
    data_set_peer(&io->client, node, incarnation, host, port);
}

void fsio_forget_peer(struct fsio *io, int32_t node) {
    data_forget_peer(&io->client, node);
    data_server_dismiss(io, node);
    fsio_files_forget(io, node);
}

void fsio_set_stall_ms(struct fsio *io, int milliseconds) { io->client.stall_ms = milliseconds; }

void fsio_stop(struct fsio *io) {
    pthread_mutex_lock(&io->keeper_lock);
    atomic_store(&io->stopping, true);
    pthread_cond_signal(&io->keeper_wake);
    bool join = io->keeper_runs;
    io->keeper_runs = false;
    pthread_mutex_unlock(&io->keeper_lock);
    if (!join) return; /* has been stopped before */
    pthread_join(io->keeper, NULL);
    if (io->store->checks) {
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
    fsio_ends_forget(io, true);
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
