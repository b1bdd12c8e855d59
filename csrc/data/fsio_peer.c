/* Connections to other nodes: a small pool for each and lane, questions and answers on them. */
#include "fsio_internal.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    LINKS_MAX = 8,      /* to a peer, for each lane */
    CONNECT_TRIES = 4,
    IDLE_MS = 10000,    /* after which a connection is closed */
    RECEIVE_BYTES = 1 << 20, /* a time-out counts for so many */
};

struct fsio_peer {
    struct fsio_peer *next;
    int32_t node;
    bool known; /* has an address, and is not dead */
    char *host;
    int port;
    uint8_t token[FSIO_TOKEN_BYTES];   /* that we show it */
    bool granted;
    uint8_t entrance[FSIO_TOKEN_BYTES]; /* that it must show us */
    uint64_t life;                      /* counts set_peer and forget_peer: links of an earlier life are closed, not kept */
    struct fsio_link *links;
    int count[LANES];
};

int fsio_result(struct fsio *io, int error) {
    if (error == 0) return 0;
    if (atomic_load(&io->stopping)) return ECANCELED;
    return error == FSIO_BROKEN ? EIO : error;
}

/* ── who they are ── with peers_lock held */

static struct fsio_peer *find_peer(struct fsio *io, int32_t node) {
    struct fsio_peer *peer = io->peers;
    while (peer != NULL && peer->node != node) peer = peer->next;
    return peer;
}

static struct fsio_peer *make_peer(struct fsio *io, int32_t node) {
    struct fsio_peer *peer = find_peer(io, node);
    if (peer != NULL) return peer;
    peer = calloc(1, sizeof *peer);
    if (peer == NULL) return NULL;
    peer->node = node;
    peer->next = io->peers;
    io->peers = peer;
    return peer;
}

/* Take a link out of its peer's list and close it. */
static void end_link(struct fsio_link *link) {
    struct fsio_link **at = &link->peer->links;
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    link->peer->count[link->lane]--;
    close(link->fd);
    free(link);
}

/* Those under way end with an error where they wait, the idle ones here. */
static void cut_links(struct fsio_peer *peer) {
    for (struct fsio_link *link = peer->links, *next; link != NULL; link = next) {
        next = link->next;
        if (link->idle) end_link(link);
        else shutdown(link->fd, SHUT_RDWR);
    }
}

void fsio_set_peer(struct fsio *io, int32_t node, const char *host, int port, const uint8_t token[FSIO_TOKEN_BYTES]) {
    char *name = strdup(host);
    pthread_mutex_lock(&io->peers_lock);
    struct fsio_peer *peer = name == NULL ? NULL : make_peer(io, node);
    if (peer != NULL) {
        cut_links(peer);
        free(peer->host);
        peer->host = name;
        name = NULL;
        peer->port = port;
        peer->known = true;
        peer->life++;
        memcpy(peer->token, token, FSIO_TOKEN_BYTES);
    }
    pthread_mutex_unlock(&io->peers_lock);
    free(name);
}

void fsio_grant(struct fsio *io, int32_t node, const uint8_t token[FSIO_TOKEN_BYTES]) {
    pthread_mutex_lock(&io->peers_lock);
    struct fsio_peer *peer = make_peer(io, node);
    if (peer != NULL) {
        memcpy(peer->entrance, token, FSIO_TOKEN_BYTES);
        peer->granted = true;
    }
    pthread_mutex_unlock(&io->peers_lock);
}

bool fsio_may_enter(struct fsio *io, int32_t node, const uint8_t *token) {
    unsigned difference = 1;
    pthread_mutex_lock(&io->peers_lock);
    struct fsio_peer *peer = find_peer(io, node);
    if (peer != NULL && peer->granted) {
        difference = 0; /* the time does not tell how much of it was right */
        for (int i = 0; i < FSIO_TOKEN_BYTES; i++) difference |= (unsigned)(peer->entrance[i] ^ token[i]);
    }
    pthread_mutex_unlock(&io->peers_lock);
    return difference == 0;
}

void fsio_forget_peer(struct fsio *io, int32_t node) {
    pthread_mutex_lock(&io->peers_lock);
    struct fsio_peer *peer = find_peer(io, node);
    if (peer != NULL) {
        peer->known = peer->granted = false;
        peer->life++;
        cut_links(peer);
        pthread_cond_broadcast(&io->peers_changed);
    }
    pthread_mutex_unlock(&io->peers_lock);
    fsio_door_dismiss(io, node);
    fsio_files_forget(io, node);
}

void fsio_links_stop(struct fsio *io) {
    pthread_mutex_lock(&io->peers_lock);
    for (struct fsio_peer *peer = io->peers; peer != NULL; peer = peer->next) cut_links(peer);
    pthread_cond_broadcast(&io->peers_changed);
    pthread_mutex_unlock(&io->peers_lock);
}

void fsio_links_reap(struct fsio *io) {
    int64_t now = now_ms();
    pthread_mutex_lock(&io->peers_lock);
    for (struct fsio_peer *peer = io->peers; peer != NULL; peer = peer->next) {
        for (struct fsio_link *link = peer->links, *next; link != NULL; link = next) {
            next = link->next;
            if (link->idle && now - link->since_ms > IDLE_MS) end_link(link);
        }
    }
    pthread_mutex_unlock(&io->peers_lock);
}

void fsio_links_free(struct fsio *io) {
    while (io->peers != NULL) {
        struct fsio_peer *peer = io->peers;
        io->peers = peer->next;
        while (peer->links != NULL) end_link(peer->links);
        free(peer->host);
        free(peer);
    }
}

/* ── bytes ── sockets block, with time-outs of their own */

int fsio_receive(struct fsio *io, int fd, void *to, size_t count) {
    char *at = to;
    (void)io;
    while (count > 0) {
        ssize_t got = recv(fd, at, count < RECEIVE_BYTES ? count : RECEIVE_BYTES, MSG_WAITALL);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == ETIMEDOUT)) return EIO; /* nothing came for stall_ms */
        if (got <= 0) return FSIO_BROKEN;
        at += got;
        count -= (size_t)got;
    }
    return 0;
}

int fsio_send(struct fsio *io, int fd, const void *head, size_t head_size, const void *bytes, size_t count, bool more) {
    struct iovec pieces[2] = {{(void *)(uintptr_t)head, head_size}, {(void *)(uintptr_t)bytes, count}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    (void)io;
    while (pieces[0].iov_len + pieces[1].iov_len > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == ETIMEDOUT)) return EIO;
        if (sent < 0) return FSIO_BROKEN;
        for (int i = 0; i < 2; i++) {
            size_t part = (size_t)sent < pieces[i].iov_len ? (size_t)sent : pieces[i].iov_len;
            pieces[i].iov_base = (char *)pieces[i].iov_base + part;
            pieces[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
    return 0;
}

/* ── connecting ── */

/* Look up where the peer is. 0 or an errno; the caller frees. */
static int resolve(const char *host, int port, struct addrinfo **found) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int looked = getaddrinfo(host, service, &hints, found); /* first without a resolver, which cannot be interrupted */
    if (looked == EAI_NONAME) {
        hints.ai_flags = AI_NUMERICSERV;
        looked = getaddrinfo(host, service, &hints, found);
    }
    return looked == 0 ? 0 : looked == EAI_SYSTEM ? errno : EHOSTUNREACH;
}

static void set_timeouts(int fd, int milliseconds) {
    struct timeval limit = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    unsigned user = (unsigned)milliseconds;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user, sizeof user); /* a host without power sends no reset */
}

void fsio_socket_options(struct fsio *io, int fd) { set_timeouts(fd, io->stall_ms); }

static int greet(struct fsio *io, int fd, int lane, const uint8_t *token) {
    uint8_t hello[HELLO_BYTES] = {0}, welcome[WELCOME_BYTES];
    put_le(hello, WIRE_MAGIC, 4);
    put_le(hello + 4, WIRE_VERSION, 2);
    put_le(hello + 6, (uint64_t)lane, 2);
    put_le(hello + 8, (uint32_t)io->node, 4);
    memcpy(hello + 16, token, FSIO_TOKEN_BYTES);
    int error = fsio_send(io, fd, hello, sizeof hello, NULL, 0, false);
    if (error == 0) error = fsio_receive(io, fd, welcome, sizeof welcome);
    if (error != 0) return error;
    if (get_le(welcome, 4) != WIRE_MAGIC) return EPROTO;
    switch (get_le(welcome + 6, 2)) {
    case WELCOME_OK: return 0;
    case WELCOME_NO_TOKEN: return EACCES;
    default: return EPROTO;
    }
}

/* One attempt: a link in the peer's list that is connected, or 0 links and an error. With peers_lock held, given up meanwhile. */
static int connect_link(struct fsio *io, struct fsio_peer *peer, int lane, const struct addrinfo *address, struct fsio_link **made) {
    uint64_t life = peer->life;
    uint8_t token[FSIO_TOKEN_BYTES];
    struct fsio_link *link = calloc(1, sizeof *link);
    int fd = link == NULL ? -1 : socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        int error = link == NULL ? ENOMEM : errno;
        free(link);
        return error;
    }
    *link = (struct fsio_link){.next = peer->links, .peer = peer, .lane = lane, .fd = fd};
    peer->links = link; /* from now on forget_peer finds it */
    peer->count[lane]++;
    memcpy(token, peer->token, sizeof token);
    pthread_mutex_unlock(&io->peers_lock);
    set_timeouts(fd, io->stall_ms);
    int error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno == EINPROGRESS ? ETIMEDOUT : errno;
    if (error == 0) error = greet(io, fd, lane, token);
    pthread_mutex_lock(&io->peers_lock);
    if (error == 0 && (peer->life != life || atomic_load(&io->stopping))) error = EIO;
    if (error != 0) end_link(link);
    else *made = link;
    return error;
}

static int connect_peer(struct fsio *io, struct fsio_peer *peer, int lane, struct fsio_link **made) {
    struct addrinfo *found = NULL;
    uint64_t life = peer->life;
    char *host = strdup(peer->host);
    int port = peer->port, error = ENOMEM;
    int64_t deadline = now_ms() + io->stall_ms;
    if (host == NULL) return error;
    pthread_mutex_unlock(&io->peers_lock);
    error = resolve(host, port, &found);
    free(host);
    pthread_mutex_lock(&io->peers_lock);
    if (error == 0) error = EIO;
    for (int tries = 0; found != NULL && tries < CONNECT_TRIES && peer->known && peer->life == life && !atomic_load(&io->stopping);
         tries++) {
        for (const struct addrinfo *next = found; next != NULL; next = next->ai_next) {
            error = connect_link(io, peer, lane, next, made);
            if (error == 0) break;
        }
        if ((error != ECONNREFUSED && error != FSIO_BROKEN) || now_ms() > deadline) break;
        struct timespec until; /* it may be starting; anything that changes wakes us */
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 20000000L << tries;
        if (until.tv_nsec >= 1000000000) until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
        pthread_cond_timedwait(&io->peers_changed, &io->peers_lock, &until);
    }
    if (found != NULL) freeaddrinfo(found);
    return error == 0 ? 0 : error == EACCES || error == EPROTO || error == ENOMEM || error == EMFILE || error == ENFILE ? error : EIO;
}

int fsio_link_get(struct fsio *io, int32_t node, int lane, bool fresh, struct fsio_link **link) {
    int64_t deadline = now_ms() + io->stall_ms;
    int error = 0;
    *link = NULL;
    pthread_mutex_lock(&io->peers_lock);
    struct fsio_peer *peer = find_peer(io, node);
    while (*link == NULL && error == 0) {
        if (atomic_load(&io->stopping)) error = ECANCELED;
        else if (peer == NULL || !peer->known) error = EIO;
        if (error != 0) break;
        struct fsio_link *idle = peer->links;
        while (idle != NULL && !(idle->idle && idle->lane == lane)) idle = idle->next;
        if (idle != NULL && fresh) {
            end_link(idle); /* the one before it was dead, so this one is likely to be */
        } else if (idle != NULL) {
            idle->idle = false;
            *link = idle;
        } else if (peer->count[lane] < LINKS_MAX) {
            error = connect_peer(io, peer, lane, link);
        } else {
            struct timespec until;
            int64_t left = deadline - now_ms();
            if (left <= 0) {
                error = EIO;
                break;
            }
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += left / 1000 + 1;
            pthread_cond_timedwait(&io->peers_changed, &io->peers_lock, &until);
        }
    }
    pthread_mutex_unlock(&io->peers_lock);
    return error;
}

void fsio_link_put(struct fsio *io, struct fsio_link *link, bool broken) {
    pthread_mutex_lock(&io->peers_lock);
    if (broken || !link->peer->known || atomic_load(&io->stopping)) {
        end_link(link);
    } else {
        link->idle = link->used = true;
        link->since_ms = now_ms();
    }
    pthread_cond_broadcast(&io->peers_changed);
    pthread_mutex_unlock(&io->peers_lock);
}

/* ── questions and answers ── */

int fsio_ask(struct fsio *io, struct fsio_link *link, const struct fsio_request *request, const void *bytes) {
    uint8_t head[REQUEST_BYTES] = {0};
    head[0] = request->op;
    head[1] = request->flag;
    put_le(head + 4, request->stripe, 4);
    put_le(head + 8, request->ino, 8);
    put_le(head + 16, (uint64_t)request->index, 8);
    put_le(head + 24, request->offset, 8);
    put_le(head + 32, request->length, 8);
    put_le(head + 40, request->extra, 8);
    return fsio_send(io, link->fd, head, sizeof head, bytes, bytes == NULL ? 0 : request->length, false);
}

int fsio_hear(struct fsio *io, struct fsio_link *link, struct fsio_reply *reply) {
    uint8_t head[REPLY_BYTES];
    int error = fsio_receive(io, link->fd, head, sizeof head);
    if (error != 0) return error;
    reply->error = (int)get_le(head, 4);
    reply->length = get_le(head + 8, 8);
    reply->value = get_le(head + 16, 8);
    return 0;
}

int fsio_call(struct fsio *io, int32_t node, int lane, const struct fsio_request *request, const void *bytes, struct fsio_reply *reply,
              void *to, size_t room) {
    struct fsio_link *link;
    int error = FSIO_BROKEN;
    for (int tries = 0; error == FSIO_BROKEN && tries < 2; tries++) {
        bool used;
        error = fsio_link_get(io, node, lane, tries > 0, &link);
        if (error != 0) break;
        used = link->used;
        error = fsio_ask(io, link, request, bytes);
        if (error == 0) error = fsio_hear(io, link, reply);
        if (error == 0 && reply->length > room) error = EPROTO;
        if (error == 0 && reply->length > 0) error = fsio_receive(io, link->fd, to, reply->length);
        fsio_link_put(io, link, error != 0);
        if (!used) break; /* a new connection that breaks is no accident of time */
    }
    return error != 0 ? fsio_result(io, error) : reply->error;
}

int fsio_call_stat(struct fsio *io, int32_t node, int lane, const struct fsio_request *request, struct fsio_stat *stat) {
    uint8_t bytes[STAT_BYTES];
    struct fsio_reply reply;
    int error = fsio_call(io, node, lane, request, NULL, &reply, bytes, sizeof bytes);
    if (error == 0 && reply.length != sizeof bytes) error = EPROTO;
    if (error == 0)
        *stat = (struct fsio_stat){get_le(bytes, 8), get_le(bytes + 8, 8), (int64_t)get_le(bytes + 16, 8), (int64_t)get_le(bytes + 24, 8),
                                   (int64_t)get_le(bytes + 32, 8)};
    return error;
}
