/* The porch of a server: where those stand who have connected and not shown yet that they may come in.
 *
 * One thread accepts and hears what each says first, its hello: strangers who say nothing, or nonsense, cost a place in a bounded table and no
 * thread, and the oldest of them goes when the table is full. What a hello says is for the server to judge. */
#ifndef AMFS_PORCH_H
#define AMFS_PORCH_H

#include <stdint.h>

enum { PORCH_PLACES_MAX = 256, PORCH_HELLO_MAX = 32 };

enum porch_verdict {
    PORCH_IN,    /* the descriptor is the server's now */
    PORCH_AWAY,  /* close it; whatever there is to say has been said */
    PORCH_LATER, /* it may come in, but there is no room: ask again */
};

struct porch {
    int listen_fd;    /* of porch_listen */
    int stop_fd;      /* readable for ever: it is over */
    int wake_fd;      /* eventfd: there may be room again; -1: none, time will tell */
    int accept_flags; /* for accept4, beside SOCK_CLOEXEC */
    int places;       /* at most PORCH_PLACES_MAX */
    int patience_ms;  /* for a whole hello */
    unsigned hello_bytes; /* at most PORCH_HELLO_MAX */
    uint32_t magic;       /* with which it begins, little-endian; who begins otherwise gets no answer */
    enum porch_verdict (*judge)(void *context, int fd, const uint8_t *hello); /* must not wait */
    void *context;
};

/* A socket that listens on a numeric address, and its port. -1 with errno set; EINVAL: not a numeric address. */
int porch_listen(const char *address, int *port);
void porch_run(const struct porch *porch); /* on the caller's thread, until stop_fd is readable; closes whoever stands there then */

#endif
