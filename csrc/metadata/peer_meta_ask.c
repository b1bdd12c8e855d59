/* Questions to other nodes' shards: one connection to each, the questions under way on it, their answers. */
#include "peer_meta_wire.h"

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
    BACKUP_AGAIN_MS = 50, /* likewise, if answers wait for it */
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_UP };

struct peer_meta_link {
    struct peer_meta_link *next;
    struct peer_meta *peer_meta;
    int32_t node;
    int lane;
    pthread_mutex_t lock;
    pthread_cond_t ran; /* a `done` has returned */
    enum link_state state;
    int64_t again_ms;
    struct data_rpc *rpc;
    int fd;
    uint32_t serial;
    unsigned under_way;
    size_t outstanding;
    uint64_t heard; /* told with the next question: news up to here the node need not tell this one as a backup any more */
    struct peer_meta_call *calls[CALL_BUCKETS];
    const void *running; /* owner of the call whose `done` is being run */
};

/* ── calls under way ── with the link's lock held */

static void add_call(struct peer_meta_link *link, struct peer_meta_call *call) {
    struct peer_meta_call **at = &link->calls[call->serial % CALL_BUCKETS];
    call->next = *at;
    *at = call;
    link->under_way++;
    link->outstanding += call->cost;
}

static struct peer_meta_call *take_call(struct peer_meta_link *link, struct peer_meta_call **at) {
    struct peer_meta_call *call = *at;
    *at = call->next;
    link->under_way--;
    link->outstanding -= call->cost;
    return call;
}

static struct peer_meta_call *find_call(struct peer_meta_link *link, uint32_t serial) {
    struct peer_meta_call **at = &link->calls[serial % CALL_BUCKETS];
    while (*at != NULL && (*at)->serial != serial) at = &(*at)->next;
    return *at == NULL ? NULL : take_call(link, at);
}

/* All of an owner's, linked by `next`. */
static struct peer_meta_call *take_calls(struct peer_meta_link *link, const void *owner) {
    struct peer_meta_call *taken = NULL;
    for (size_t i = 0; i < CALL_BUCKETS; i++) {
        for (struct peer_meta_call **at = &link->calls[i]; *at != NULL;) {
            if ((*at)->owner != owner) {
                at = &(*at)->next;
                continue;
            }
            struct peer_meta_call *call = take_call(link, at);
            call->next = taken;
            taken = call;
        }
    }
    return taken;
}

/* Called with the lock held; unlocks it meanwhile. */
static void run_done(struct peer_meta_link *link, struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    link->running = call->owner;
    pthread_mutex_unlock(&link->lock);
    call->done(call, answer);
    pthread_mutex_lock(&link->lock);
    link->running = NULL;
    pthread_cond_broadcast(&link->ran);
}

/* ── links ── */

static struct peer_meta_link *link_to(struct peer_meta *peer_meta, int32_t node, int lane) {
    pthread_mutex_lock(&peer_meta->lock);
    struct peer_meta_link *link = peer_meta->links;
    while (link != NULL && (link->node != node || link->lane != lane)) link = link->next;
    if (link == NULL && (link = calloc(1, sizeof *link)) != NULL) {
        link->peer_meta = peer_meta;
        link->node = node;
        link->lane = lane;
        link->fd = -1;
        pthread_mutex_init(&link->lock, NULL);
        pthread_cond_init(&link->ran, NULL);
        link->next = peer_meta->links;
        peer_meta->links = link;
    }
    pthread_mutex_unlock(&peer_meta->lock);
    return link;
}

/* By a worker of fsio's. */
static void connect_link(void *context) {
    struct peer_meta_link *link = context;
    struct data_rpc *rpc = NULL;
    int fd = -1, error = data_rpc_open(link->peer_meta->io, link->node, link->lane, link, &rpc, &fd);
    pthread_mutex_lock(&link->lock);
    if (error == 0) {
        int bytes = SOCKET_BYTES;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        link->rpc = rpc;
        link->fd = fd;
        link->state = LINK_UP;
    } else {
        link->state = LINK_DOWN;
        link->again_ms = now_ms() + (link->lane == LANE_BACKUP ? BACKUP_AGAIN_MS : AGAIN_MS);
    }
    pthread_mutex_unlock(&link->lock);
    if (error != 0 && link->lane == LANE_BACKUP && !atomic_load(&link->peer_meta->io->stopping)) {
        nanosleep(&(struct timespec){.tv_nsec = (BACKUP_AGAIN_MS + 1) * 1000000L}, NULL);
        link->peer_meta->connected(link->peer_meta);
    }
    if (error == 0) data_rpc_listen(link->peer_meta->io, rpc); /* from now on it may end */
    if (error == 0 && link->lane == LANE_BACKUP) link->peer_meta->connected(link->peer_meta);
}

/* With the lock held. */
static void begin_connecting(struct peer_meta_link *link) {
    if (link->state != LINK_DOWN || now_ms() < link->again_ms) return;
    link->state = LINK_CONNECTING;
    if (fsio_later(link->peer_meta->io, connect_link, link) == 0) return;
    link->state = LINK_DOWN;
    link->again_ms = now_ms() + (link->lane == LANE_BACKUP ? BACKUP_AGAIN_MS : AGAIN_MS);
}

void peer_meta_link_ended(struct peer_meta_link *link) {
    struct peer_meta_answer lost = {.error = PEER_META_LOST};
    pthread_mutex_lock(&link->lock);
    link->state = LINK_DOWN;
    link->again_ms = now_ms() + (link->lane == LANE_BACKUP ? 0 : AGAIN_MS);
    link->rpc = NULL;
    link->fd = -1;
    for (size_t i = 0; i < CALL_BUCKETS; i++) /* one by one: peer_meta_cancel must find the others */
        while (link->calls[i] != NULL) run_done(link, take_call(link, &link->calls[i]), &lost);
    if (link->lane == LANE_BACKUP) begin_connecting(link);
    pthread_mutex_unlock(&link->lock);
}

/* A node that has been silent for too long is as good as dead. */
void peer_meta_links_tick(struct peer_meta *peer_meta) {
    int64_t oldest = now_ms() - peer_meta->io->client.stall_ms;
    pthread_mutex_lock(&peer_meta->lock);
    for (struct peer_meta_link *link = peer_meta->links; link != NULL; link = link->next) {
        bool stuck = false;
        pthread_mutex_lock(&link->lock);
        for (size_t i = 0; i < CALL_BUCKETS && link->under_way > 0; i++)
            for (const struct peer_meta_call *call = link->calls[i]; call != NULL; call = call->next)
                stuck = stuck || call->asked_ms < oldest;
        if (stuck && link->fd >= 0) shutdown(link->fd, SHUT_RDWR);
        pthread_mutex_unlock(&link->lock);
    }
    pthread_mutex_unlock(&peer_meta->lock);
}

void peer_meta_links_free(struct peer_meta *peer_meta) {
    while (peer_meta->links != NULL) {
        struct peer_meta_link *link = peer_meta->links;
        peer_meta->links = link->next;
        pthread_cond_destroy(&link->ran);
        pthread_mutex_destroy(&link->lock);
        free(link);
    }
}

bool peer_meta_is_up(struct peer_meta *peer_meta, int32_t node) {
    struct peer_meta_link *link = link_to(peer_meta, node, LANE_BACKUP);
    if (link == NULL) return false;
    pthread_mutex_lock(&link->lock);
    bool up = link->state == LINK_UP;
    pthread_mutex_unlock(&link->lock);
    return up;
}

/* ── asking, hearing ── */

int peer_meta_ask(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *question, struct peer_meta_call *call) {
    uint8_t small[PEER_META_QUESTION_MAX], *bytes = small;
    bool batch = question->op == PEER_META_BACKUP;
    struct peer_meta_link *link = node < 0 || node == peer_meta->node ? NULL : link_to(peer_meta, node, batch ? LANE_BACKUP : LANE_RPC);
    if (link == NULL) return ENOTCONN;
    if (batch && (bytes = malloc(QUESTION_HEAD + HEARD_BYTES + question->value_length)) == NULL) return ENOMEM;
    size_t answer = peer_meta_bytes_come(question->op) ? PEER_META_ANSWER_MAX : ANSWER_HEAD + ATTR_BYTES + HOLDER_BYTES;
    pthread_mutex_lock(&link->lock);
    struct peer_meta_question asked = *question;
    asked.heard = link->heard;
    if (++link->serial == 0) link->serial = 1; /* 0 is that of batches */
    size_t size = peer_meta_write_question(&asked, link->serial, bytes);
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
    if (error == 0) link->heard = 0;
    pthread_mutex_unlock(&link->lock);
    if (batch) free(bytes);
    if (error == 0 && !batch) atomic_fetch_add_explicit(&peer_meta->asked, 1, memory_order_relaxed);
    return error;
}

void peer_meta_link_heard(struct peer_meta_link *link) {
    pthread_mutex_lock(&link->lock);
    link->heard = meta_backup_has(link->peer_meta->meta, link->node);
    pthread_mutex_unlock(&link->lock);
}

void peer_meta_answer_came(struct peer_meta_link *link, uint32_t serial, const struct peer_meta_answer *answer) {
    pthread_mutex_lock(&link->lock);
    struct peer_meta_call *call = find_call(link, serial);
    if (call != NULL) run_done(link, call, answer); /* else its asker has gone */
    pthread_mutex_unlock(&link->lock);
}

static bool asks(const struct peer_meta_link *link, const void *owner) {
    for (size_t i = 0; i < CALL_BUCKETS; i++)
        for (const struct peer_meta_call *call = link->calls[i]; call != NULL; call = call->next)
            if (call->owner == owner) return true;
    return false;
}

/* With the lock held. */
static void await_answers(struct peer_meta_link *link, const void *owner, int patience_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += patience_ms % 1000 * 1000000L;
    until.tv_sec += patience_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (link->under_way > 0 && asks(link, owner))
        if (pthread_cond_timedwait(&link->ran, &link->lock, &until) != 0) break;
    while (link->running == owner) pthread_cond_wait(&link->ran, &link->lock);
}

/* True: there was something of the owner's to be done. */
static bool cancel_on(struct peer_meta_link *link, const void *owner, int patience_ms) {
    struct peer_meta_answer lost = {.error = PEER_META_LOST};
    pthread_mutex_lock(&link->lock);
    bool had = link->running == owner || asks(link, owner);
    await_answers(link, owner, patience_ms);
    struct peer_meta_call *taken = take_calls(link, owner);
    pthread_mutex_unlock(&link->lock);
    for (struct peer_meta_call *next; taken != NULL; taken = next) {
        next = taken->next;
        taken->done(taken, &lost);
    }
    return had;
}

/* An answer may have led to a question to another node, on a link that had been looked at by then: so all of them are looked at again. */
void peer_meta_cancel(struct peer_meta *peer_meta, const void *owner, int patience_ms) {
    for (bool again = true; again;) {
        pthread_mutex_lock(&peer_meta->lock);
        struct peer_meta_link *link = peer_meta->links; /* links are only added, in front */
        pthread_mutex_unlock(&peer_meta->lock);
        again = false;
        for (; link != NULL; link = link->next) again = cancel_on(link, owner, patience_ms) || again;
    }
}
