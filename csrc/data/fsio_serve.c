/* The door: connections from other nodes, who may come in, and the threads that answer them.
 *
 * Who shows a token on the porch comes in, and waits in the epoll set of its lane until something is asked. Each lane has threads of its own, as
 * many as are busy at once up to a limit. */
#include "fsio_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listener.h"

enum {
    LANE_THREADS_MAX = 32,
    GUESTS_MAX = 2048,
    GREETINGS_MAX = 64,
    GREETING_MS = 5000,
    THREAD_IDLE_MS = 10000,
    TURN_REQUESTS = 64, /* answered in a row before others have their turn */
};

struct guest {
    struct guest *next, **back;
    int32_t node;
    int lane, fd;
    struct fsio_line *line; /* not NULL: a connection of ours, on which the speaker hears answers */
};

struct fsio_line {
    struct guest guest;
    struct fsio_link *link;
    void *context; /* the speaker's name for it */
};

struct lane {
    struct fsio_door *door;
    int number, epoll_fd;
    int threads, idle; /* under the door's lock */
};

struct fsio_door {
    struct fsio *io;
    int listen_fd, port, stop_fd;
    pthread_t acceptor;
    bool accepting;
    pthread_mutex_t lock;
    pthread_cond_t empty; /* no thread left */
    struct guest *guests;
    int count;
    struct lane lanes[LANES];
};

/* ── guests ── */

static void end_line(struct fsio *io, struct fsio_line *line) {
    io->speaker.ended(io->speaker.context, line->context);
    fsio_link_put(io, line->link, true);
    free(line);
}

static void part_with(struct fsio_door *door, struct guest *guest) {
    pthread_mutex_lock(&door->lock);
    *guest->back = guest->next;
    if (guest->next != NULL) guest->next->back = guest->back;
    door->count--;
    if (guest->line == NULL) close(guest->fd); /* under the lock: dismiss must not meet another file's number */
    pthread_mutex_unlock(&door->lock);
    if (guest->line == NULL) free(guest);
    else end_line(door->io, guest->line);
}

void fsio_door_dismiss(struct fsio *io, int32_t node) {
    struct fsio_door *door = io->door;
    if (door == NULL) return;
    pthread_mutex_lock(&door->lock);
    for (struct guest *guest = door->guests; guest != NULL; guest = guest->next)
        if (guest->node == node) shutdown(guest->fd, SHUT_RDWR); /* its thread, or the next one, lets it go */
    pthread_mutex_unlock(&door->lock);
}

/* ── answering ── */

/* Answer what has come on a connection. False: it is to be closed. */
static bool attend(struct fsio_door *door, const struct guest *guest, char *buffer) {
    struct fsio *io = door->io;
    uint8_t request[REQUEST_BYTES];
    if (guest->lane == LANE_SPOKEN) {
        void *link = guest->line == NULL ? NULL : guest->line->context;
        return io->speaker.attend != NULL && io->speaker.attend(io->speaker.context, guest->node, link, guest->fd, buffer);
    }
    for (int turn = 0; turn < TURN_REQUESTS; turn++) {
        ssize_t got = recv(guest->fd, request, sizeof request, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (got <= 0) return false;
        if (got < (ssize_t)sizeof request && fsio_receive(io, guest->fd, request + got, sizeof request - (size_t)got) != 0) return false;
        if (atomic_load(&io->stopping) || !fsio_answer(io, guest->fd, guest->node, guest->lane, request, buffer)) return false;
    }
    return true;
}

static void *serve(void *argument);

static int all_threads(const struct fsio_door *door) {
    int threads = 0;
    for (int i = 0; i < LANES; i++) threads += door->lanes[i].threads;
    return threads;
}

/* With the door's lock held: one more thread if all are busy. */
static void staff(struct lane *lane) {
    pthread_t thread;
    if (lane->idle > 0 || lane->threads >= LANE_THREADS_MAX || atomic_load(&lane->door->io->stopping)) return;
    lane->threads++;
    lane->idle++;
    if (new_thread(&thread, serve, lane) == 0) {
        pthread_detach(thread);
    } else {
        lane->threads--;
        lane->idle--;
    }
}

/* With the door's lock held: into the list, and somebody for it. */
static void seat(struct fsio_door *door, struct guest *guest) {
    guest->next = door->guests;
    guest->back = &door->guests;
    if (guest->next != NULL) guest->next->back = &guest->next;
    door->guests = guest;
    door->count++;
    staff(&door->lanes[guest->lane]);
}

static void *serve(void *argument) {
    struct lane *lane = argument;
    struct fsio_door *door = lane->door;
    char *buffer = malloc(FSIO_CHUNK);
    bool stay = buffer != NULL, waits = true; /* counted among the idle */
    while (stay) {
        struct epoll_event event;
        int ready = epoll_wait(lane->epoll_fd, &event, 1, THREAD_IDLE_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (atomic_load(&door->io->stopping) || ready < 0) break;
        pthread_mutex_lock(&door->lock);
        if (ready == 0) {
            stay = lane->idle <= 1; /* one stays: who goes is none of them from now on */
            waits = stay;
            if (!stay) lane->idle--;
            pthread_mutex_unlock(&door->lock);
            continue;
        }
        lane->idle--;
        staff(lane);
        pthread_mutex_unlock(&door->lock);
        struct guest *guest = event.data.ptr;
        event.events = EPOLLIN | EPOLLONESHOT;
        bool keep = attend(door, guest, buffer);
        pthread_mutex_lock(&door->lock);
        lane->idle++; /* and from the end of the lock on it is another thread's guest */
        if (keep) keep = epoll_ctl(lane->epoll_fd, EPOLL_CTL_MOD, guest->fd, &event) == 0;
        pthread_mutex_unlock(&door->lock);
        if (!keep) part_with(door, guest);
    }
    free(buffer);
    pthread_mutex_lock(&door->lock);
    if (waits) lane->idle--;
    lane->threads--;
    if (all_threads(door) == 0) pthread_cond_signal(&door->empty);
    pthread_mutex_unlock(&door->lock);
    return NULL;
}

/* ── the third lane ── */

void fsio_set_speaker(struct fsio *io, const struct fsio_speaker *speaker) {
    pthread_mutex_lock(&io->keeper_lock); /* the keeper runs already */
    io->speaker = *speaker;
    pthread_mutex_unlock(&io->keeper_lock);
}

void *fsio_speaker_of(struct fsio *io) { return io->speaker.attend == NULL ? NULL : io->speaker.context; }

int fsio_line_open(struct fsio *io, int32_t node, void *context, struct fsio_line **line, int *fd) {
    struct fsio_line *made = calloc(1, sizeof *made);
    int error = made == NULL ? ENOMEM : io->door == NULL ? ENOTCONN : fsio_link_get(io, node, LANE_SPOKEN, false, &made->link);
    if (error != 0) {
        free(made);
        return error;
    }
    *fd = made->link->fd;
    made->context = context;
    made->guest = (struct guest){.node = node, .lane = LANE_SPOKEN, .fd = *fd, .line = made};
    *line = made;
    return 0;
}

void fsio_line_listen(struct fsio *io, struct fsio_line *line) {
    struct guest *guest = &line->guest;
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = guest};
    pthread_mutex_lock(&io->door->lock);
    bool welcome = !atomic_load(&io->stopping);
    if (welcome) seat(io->door, guest);
    pthread_mutex_unlock(&io->door->lock);
    if (!welcome) end_line(io, line);
    else if (epoll_ctl(io->door->lanes[guest->lane].epoll_fd, EPOLL_CTL_ADD, guest->fd, &event) != 0) part_with(io->door, guest);
}

/* ── coming in ── */

static bool send_welcome(int fd, int status) {
    uint8_t welcome[WELCOME_BYTES];
    put_le(welcome, WIRE_MAGIC, 4);
    put_le(welcome + 4, WIRE_VERSION, 2);
    put_le(welcome + 6, (uint64_t)status, 2);
    return send(fd, welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof welcome;
}

static bool full(struct fsio_door *door) {
    pthread_mutex_lock(&door->lock);
    bool is = door->count >= GUESTS_MAX;
    pthread_mutex_unlock(&door->lock);
    return is;
}

/* Let a connection in that has shown its token. */
static enum listener_verdict welcome_guest(struct fsio_door *door, int fd, int32_t node, int number) {
    struct guest *guest = full(door) ? NULL : calloc(1, sizeof *guest);
    struct lane *lane = &door->lanes[number];
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = guest};
    if (guest == NULL) return LISTENER_LATER;
    *guest = (struct guest){.node = node, .lane = number, .fd = fd};
    fsio_socket_options(door->io, fd);
    pthread_mutex_lock(&door->lock);
    seat(door, guest);
    pthread_mutex_unlock(&door->lock);
    /* the other side waits for the welcome before it asks; once it is in the set a thread may end it at any time */
    if (!send_welcome(fd, WELCOME_OK) || epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) part_with(door, guest);
    return LISTENER_IN;
}

static enum listener_verdict judge(void *context, int fd, const uint8_t *hello) {
    struct fsio_door *door = context;
    int32_t node = (int32_t)(uint32_t)get_le(hello + 8, 4);
    int lane = (int)get_le(hello + 6, 2);
    bool understood = get_le(hello + 4, 2) == WIRE_VERSION && lane < LANES;
    if (understood && fsio_may_enter(door->io, node, hello + 16)) return welcome_guest(door, fd, node, lane);
    send_welcome(fd, understood ? WELCOME_NO_TOKEN : WELCOME_WRONG_VERSION);
    return LISTENER_AWAY;
}

static void *accept_all(void *argument) {
    struct fsio_door *door = argument;
    const struct listener listener = {.listen_fd = door->listen_fd,
                                      .stop_fd = door->stop_fd,
                                      .wake_fd = -1,
                                      .places = GREETINGS_MAX,
                                      .patience_ms = GREETING_MS,
                                      .hello_bytes = HELLO_BYTES,
                                      .magic = WIRE_MAGIC,
                                      .judge = judge,
                                      .context = door};
    listener_run(&listener);
    return NULL;
}

/* ── life ── */

int fsio_port(const struct fsio *io) { return io->door == NULL ? 0 : io->door->port; }

static void free_door(struct fsio_door *door) {
    for (int i = 0; i < LANES; i++)
        if (door->lanes[i].epoll_fd >= 0) close(door->lanes[i].epoll_fd);
    if (door->listen_fd >= 0) close(door->listen_fd);
    if (door->stop_fd >= 0) close(door->stop_fd);
    pthread_cond_destroy(&door->empty);
    pthread_mutex_destroy(&door->lock);
    free(door);
}

int fsio_door_open(struct fsio *io, const char *address, char *error, size_t error_size) {
    struct fsio_door *door = calloc(1, sizeof *door);
    if (door == NULL) {
        snprintf(error, error_size, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    door->io = io;
    pthread_mutex_init(&door->lock, NULL);
    pthread_cond_init(&door->empty, NULL);
    door->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    door->listen_fd = listener_listen(address, &door->port);
    int failed = door->listen_fd < 0 || door->stop_fd < 0 ? errno : 0;
    for (int i = 0; i < LANES; i++) {
        struct epoll_event event = {.events = EPOLLIN}; /* the stop: readable for ever, wakes every thread */
        door->lanes[i] = (struct lane){.door = door, .number = i, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
        if (failed == 0 && (door->lanes[i].epoll_fd < 0 || epoll_ctl(door->lanes[i].epoll_fd, EPOLL_CTL_ADD, door->stop_fd, &event) != 0))
            failed = errno;
    }
    io->door = door;
    if (failed == 0) failed = new_thread(&door->acceptor, accept_all, door);
    if (failed == 0) {
        door->accepting = true;
        return 0;
    }
    snprintf(error, error_size, "cannot listen on %s: %s", address, failed == EINVAL ? "not a numeric address" : strerror(failed));
    io->door = NULL;
    free_door(door);
    return failed;
}

void fsio_door_stop(struct fsio *io) {
    struct fsio_door *door = io->door;
    uint64_t one = 1;
    if (door == NULL || !door->accepting) return;
    door->accepting = false;
    (void)!write(door->stop_fd, &one, sizeof one);
    pthread_join(door->acceptor, NULL);
    pthread_mutex_lock(&door->lock);
    for (struct guest *guest = door->guests; guest != NULL; guest = guest->next) shutdown(guest->fd, SHUT_RDWR);
    while (all_threads(door) > 0) pthread_cond_wait(&door->empty, &door->lock);
    pthread_mutex_unlock(&door->lock);
    while (door->guests != NULL) part_with(door, door->guests);
    close(door->listen_fd);
    door->listen_fd = -1;
}

void fsio_door_free(struct fsio *io) {
    if (io->door != NULL) free_door(io->door);
    io->door = NULL;
}
