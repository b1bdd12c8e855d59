#include "listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/thread.h"

enum { RETRY_MS = 100, IDLE_MS = 60000 };

struct caller {
    int fd; /* -1: a free place */
    int64_t deadline_ms;
    bool later; /* may come in when there is room */
    struct listener_talk talk;
};

static void turn_away(struct caller *caller) {
    close(caller->fd);
    caller->fd = -1;
}

static void judge(const struct listener *listener, struct caller *caller) {
    enum listener_verdict verdict = listener->judge(listener->context, caller->fd, &caller->talk);
    caller->later = verdict == LISTENER_LATER;
    if (verdict == LISTENER_IN) caller->fd = -1;
    if (verdict == LISTENER_AWAY) turn_away(caller);
}

/* Read what has come of it; judge it when it is whole. */
static void hear(const struct listener *listener, struct caller *caller) {
    struct listener_talk *talk = &caller->talk;
    ssize_t got = recv(caller->fd, talk->said + talk->have, talk->want - talk->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) talk->have += (unsigned)got;
    if (got <= 0 || (talk->have >= 4 && get_le(talk->said, 4) != listener->magic)) turn_away(caller); /* garbage deserves no answer */
    else if (talk->have == talk->want) judge(listener, caller);
}

/* A free place; when there is none, the stranger that is here for longest makes room. NULL: all may come in, later. */
static struct caller *make_room(struct caller *table, int places) {
    struct caller *oldest = NULL;
    for (int i = 0; i < places; i++) {
        if (table[i].fd < 0) return &table[i];
        if (!table[i].later && (oldest == NULL || table[i].deadline_ms < oldest->deadline_ms)) oldest = &table[i];
    }
    if (oldest != NULL) turn_away(oldest);
    return oldest;
}

/* Accept one, if there still is one. False: out of descriptors or memory. */
static bool receive(const struct listener *listener, struct caller *place) {
    int fd = accept4(listener->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    *place = (struct caller){.fd = fd, .deadline_ms = now_ms() + listener->patience_ms, .talk.want = listener->first_bytes};
    hear(listener, place); /* it is often there already */
    return true;
}

void listener_run(const struct listener *listener) {
    struct caller table[LISTENER_PLACES_MAX], *who[LISTENER_PLACES_MAX + 2];
    struct pollfd set[LISTENER_PLACES_MAX + 2];
    bool starved = false; /* out of descriptors: leave the listening socket alone for a moment */
    for (int i = 0; i < listener->places; i++) table[i].fd = -1;
    for (;;) {
        int used = 2, waiting = 0;
        int64_t now = now_ms(), next = now + IDLE_MS;
        for (struct caller *caller = table; caller < table + listener->places; caller++) {
            if (caller->fd >= 0 && !caller->later && caller->deadline_ms <= now) turn_away(caller);
            if (caller->fd < 0) continue;
            if (caller->later) {
                waiting++;
                continue;
            }
            if (caller->deadline_ms < next) next = caller->deadline_ms;
            who[used] = caller;
            set[used++] = (struct pollfd){.fd = caller->fd, .events = POLLIN};
        }
        if (starved || waiting > 0) next = now + RETRY_MS; /* a descriptor or room may be had then */
        set[0] = (struct pollfd){.fd = listener->stop_fd, .events = POLLIN};
        set[1] = (struct pollfd){.fd = starved || waiting == listener->places ? -1 : listener->listen_fd, .events = POLLIN};
        starved = false;
        if (poll(set, (nfds_t)used, (int)(next - now)) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if (set[0].revents != 0) break;
        for (int i = 0; waiting > 0 && i < listener->places; i++) {
            if (table[i].fd < 0 || !table[i].later) continue;
            judge(listener, &table[i]);
            if (table[i].later) break;
        }
        for (int i = 2; i < used; i++)
            if (set[i].revents != 0) hear(listener, who[i]);
        struct caller *place = set[1].revents == 0 ? NULL : make_room(table, listener->places);
        if (place != NULL) starved = !receive(listener, place);
    }
    for (int i = 0; i < listener->places; i++)
        if (table[i].fd >= 0) turn_away(&table[i]);
}

int listener_listen(const char *address, int *port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    struct sockaddr *name = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    socklen_t size = is_v4 ? sizeof v4 : sizeof v6;
    int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (bind(fd, name, size) != 0 || listen(fd, 1024) != 0 || getsockname(fd, name, &size) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *port = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
    return fd;
}
