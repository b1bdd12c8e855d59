/* Questions to other nodes' shards: one connection to each, the questions under way on it, their answers. */
#include "far_wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    CALL_BUCKETS = 256,
    UNDER_WAY_MAX = 192,        /* questions on one connection */
    OUTSTANDING_MAX = 192 << 10, /* bytes of them and of their answers: less than a socket takes, so that nobody waits to send */
    SOCKET_BYTES = 512 << 10,
    AGAIN_MS = 500, /* after a connection could not be made */
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_UP };

struct far_link {
    struct far_link *next;
    struct far *far;
    int32_t node;
    pthread_mutex_t lock;
    pthread_cond_t ran; /* a `done` has returned */
    enum link_state state;
    int64_t again_ms;
    struct fsio_line *line;
    int fd;
    uint32_t serial;
    unsigned under_way;
    size_t outstanding;
    struct far_call *calls[CALL_BUCKETS];
    const void *running; /* owner of the call whose `done` is being run */
};

/* ── calls under way ── with the link's lock held */

static void add_call(struct far_link *link, struct far_call *call) {
    struct far_call **at = &link->calls[call->serial % CALL_BUCKETS];
    call->next = *at;
    *at = call;
    link->under_way++;
    link->outstanding += call->cost;
}

static struct far_call *take_call(struct far_link *link, struct far_call **at) {
    struct far_call *call = *at;
    *at = call->next;
    link->under_way--;
    link->outstanding -= call->cost;
    return call;
}

static struct far_call *find_call(struct far_link *link, uint32_t serial) {
    struct far_call **at = &link->calls[serial % CALL_BUCKETS];
    while (*at != NULL && (*at)->serial != serial) at = &(*at)->next;
    return *at == NULL ? NULL : take_call(link, at);
}

/* All of an owner's, linked by `next`. */
static struct far_call *take_calls(struct far_link *link, const void *owner) {
    struct far_call *taken = NULL;
    for (size_t i = 0; i < CALL_BUCKETS; i++) {
        for (struct far_call **at = &link->calls[i]; *at != NULL;) {
            if ((*at)->owner != owner) {
                at = &(*at)->next;
                continue;
            }
            struct far_call *call = take_call(link, at);
            call->next = taken;
            taken = call;
        }
    }
    return taken;
}

/* With the lock held, given up meanwhile. */
static void run_done(struct far_link *link, struct far_call *call, const struct far_answer *answer) {
    link->running = call->owner;
    pthread_mutex_unlock(&link->lock);
    call->done(call, answer);
    pthread_mutex_lock(&link->lock);
    link->running = NULL;
    pthread_cond_broadcast(&link->ran);
}

/* ── links ── */

static struct far_link *link_to(struct far *far, int32_t node) {
    pthread_mutex_lock(&far->lock);
    struct far_link *link = far->links;
    while (link != NULL && link->node != node) link = link->next;
    if (link == NULL && (link = calloc(1, sizeof *link)) != NULL) {
        link->far = far;
        link->node = node;
        link->fd = -1;
        pthread_mutex_init(&link->lock, NULL);
        pthread_cond_init(&link->ran, NULL);
        link->next = far->links;
        far->links = link;
    }
    pthread_mutex_unlock(&far->lock);
    return link;
}

/* By a worker of fsio's. */
static void connect_link(void *context) {
    struct far_link *link = context;
    struct fsio_line *line = NULL;
    int fd = -1, error = fsio_line_open(link->far->io, link->node, link, &line, &fd);
    pthread_mutex_lock(&link->lock);
    if (error == 0) {
        int bytes = SOCKET_BYTES;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        link->line = line;
        link->fd = fd;
        link->state = LINK_UP;
    } else {
        link->state = LINK_DOWN;
        link->again_ms = now_ms() + AGAIN_MS;
    }
    pthread_mutex_unlock(&link->lock);
    if (error == 0) fsio_line_listen(link->far->io, line); /* from now on it may end */
}

/* With the lock held. */
static void begin_connecting(struct far_link *link) {
    if (link->state != LINK_DOWN || now_ms() < link->again_ms) return;
    link->state = LINK_CONNECTING;
    if (fsio_later(link->far->io, connect_link, link) == 0) return;
    link->state = LINK_DOWN;
    link->again_ms = now_ms() + AGAIN_MS;
}

void far_link_ended(struct far_link *link) {
    struct far_answer lost = {.error = FAR_LOST};
    pthread_mutex_lock(&link->lock);
    link->state = LINK_DOWN;
    link->again_ms = now_ms() + AGAIN_MS;
    link->line = NULL;
    link->fd = -1;
    for (size_t i = 0; i < CALL_BUCKETS; i++) /* one by one: far_cancel must find the others */
        while (link->calls[i] != NULL) run_done(link, take_call(link, &link->calls[i]), &lost);
    pthread_mutex_unlock(&link->lock);
}

/* Who has been silent for too long is as good as dead. */
void far_links_tick(struct far *far) {
    int64_t oldest = now_ms() - far->io->stall_ms;
    pthread_mutex_lock(&far->lock);
    for (struct far_link *link = far->links; link != NULL; link = link->next) {
        bool stuck = false;
        pthread_mutex_lock(&link->lock);
        for (size_t i = 0; i < CALL_BUCKETS && link->under_way > 0; i++)
            for (const struct far_call *call = link->calls[i]; call != NULL; call = call->next) stuck = stuck || call->asked_ms < oldest;
        if (stuck && link->fd >= 0) shutdown(link->fd, SHUT_RDWR);
        pthread_mutex_unlock(&link->lock);
    }
    pthread_mutex_unlock(&far->lock);
}

void far_links_free(struct far *far) {
    while (far->links != NULL) {
        struct far_link *link = far->links;
        far->links = link->next;
        pthread_cond_destroy(&link->ran);
        pthread_mutex_destroy(&link->lock);
        free(link);
    }
}

/* ── asking, hearing ── */

int far_ask(struct far *far, int32_t node, const struct far_question *question, struct far_call *call) {
    uint8_t bytes[FAR_QUESTION_MAX];
    struct far_link *link = node < 0 || node == far->node ? NULL : link_to(far, node);
    if (link == NULL) return ENOTCONN;
    size_t answer = question->op == FAR_READLINK || question->op == FAR_GET_XATTR ? FAR_ANSWER_MAX : ANSWER_HEAD + ATTR_BYTES;
    pthread_mutex_lock(&link->lock);
    size_t size = far_write_question(question, ++link->serial, bytes);
    int error = size == 0 ? EINVAL : 0;
    call->serial = link->serial;
    call->cost = size + answer;
    call->asked_ms = now_ms();
    if (error == 0 && link->state != LINK_UP) {
        begin_connecting(link);
        error = ENOTCONN;
    }
    if (error == 0 && (link->under_way >= UNDER_WAY_MAX || link->outstanding + call->cost > OUTSTANDING_MAX)) error = EBUSY;
    if (error == 0) {
        ssize_t sent = send(link->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0 && sent != (ssize_t)size) shutdown(link->fd, SHUT_RDWR); /* half a question is none: the other side does nothing */
        if (sent != (ssize_t)size) error = EPIPE;
    }
    if (error == 0) add_call(link, call);
    pthread_mutex_unlock(&link->lock);
    if (error == 0) atomic_fetch_add_explicit(&far->asked, 1, memory_order_relaxed);
    return error;
}

bool far_answers_came(struct far_link *link, const uint8_t *bytes, size_t size) {
    struct far_answer answer;
    uint32_t serial;
    if (!far_read_answer(bytes, size, &serial, &answer)) return false;
    pthread_mutex_lock(&link->lock);
    struct far_call *call = find_call(link, serial);
    if (call != NULL) run_done(link, call, &answer); /* else its asker has gone */
    pthread_mutex_unlock(&link->lock);
    return true;
}

static bool asks(const struct far_link *link, const void *owner) {
    for (size_t i = 0; i < CALL_BUCKETS; i++)
        for (const struct far_call *call = link->calls[i]; call != NULL; call = call->next)
            if (call->owner == owner) return true;
    return false;
}

/* With the lock held. */
static void await_answers(struct far_link *link, const void *owner, int patience_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += patience_ms % 1000 * 1000000L;
    until.tv_sec += patience_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (link->under_way > 0 && asks(link, owner))
        if (pthread_cond_timedwait(&link->ran, &link->lock, &until) != 0) break;
    while (link->running == owner) pthread_cond_wait(&link->ran, &link->lock);
}

void far_cancel(struct far *far, const void *owner, int patience_ms) {
    struct far_answer lost = {.error = FAR_LOST};
    pthread_mutex_lock(&far->lock);
    struct far_link *link = far->links;
    pthread_mutex_unlock(&far->lock);
    for (; link != NULL; link = link->next) { /* links are only added, in front */
        pthread_mutex_lock(&link->lock);
        await_answers(link, owner, patience_ms);
        struct far_call *taken = take_calls(link, owner);
        pthread_mutex_unlock(&link->lock);
        for (struct far_call *next; taken != NULL; taken = next) {
            next = taken->next;
            taken->done(taken, &lost);
        }
    }
}
