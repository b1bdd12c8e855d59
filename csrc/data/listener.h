/* The porch of a server: where those stand who have connected and not shown yet that they may come in.
 *
 * One thread accepts and hears what each says first, its hello: strangers who say nothing, or nonsense, cost a place in a bounded table and no
 * thread, and the oldest of them goes when the table is full. What a hello says is for the server to judge. */
#ifndef AMFS_LISTENER_H
#define AMFS_LISTENER_H

#include <stdint.h>

enum { LISTENER_PLACES_MAX = 256, LISTENER_HELLO_MAX = 32 };

enum listener_verdict {
    LISTENER_IN,    /* the descriptor is the server's now */
    LISTENER_AWAY,  /* close it; whatever there is to say has been said */
    LISTENER_LATER, /* it may come in, but there is no room: ask again */
};

struct listener {
    int listen_fd;    /* of listener_listen */
    int stop_fd;      /* readable for ever: it is over */
    int wake_fd;      /* eventfd: there may be room again; -1: none, time will tell */
    int accept_flags; /* for accept4, beside SOCK_CLOEXEC */
    int places;       /* at most LISTENER_PLACES_MAX */
    int patience_ms;  /* for a whole hello */
    unsigned hello_bytes; /* at most LISTENER_HELLO_MAX */
    uint32_t magic;       /* with which it begins, little-endian; who begins otherwise gets no answer */
    enum listener_verdict (*judge)(void *context, int fd, const uint8_t *hello); /* must not wait */
    void *context;
};

/* A socket that listens on a numeric address, and its port. -1 with errno set; EINVAL: not a numeric address. */
int listener_listen(const char *address, int *port);
void listener_run(
    const struct listener *listener); /* on the caller's thread, until stop_fd is readable; closes whoever stands there then */

#endif
