/* Connections whose other side has not proved yet that it may come in.
 *
 * One thread accepts connections and reads what comes on each, as far as the server wants it. A stranger that says nothing, or nonsense,
 * costs a place in a bounded table for a bounded time, and no thread; when the table is full, the oldest stranger goes. The server judges
 * what was said: it may answer, and wait for more. */
#ifndef AMFS_LISTENER_H
#define AMFS_LISTENER_H

#include <stdint.h>

enum { LISTENER_PLACES_MAX = 256, LISTENER_SAID_MAX = 128, LISTENER_NOTES_MAX = 128 };

enum listener_verdict {
    LISTENER_IN,    /* the descriptor is the server's now */
    LISTENER_AWAY,  /* close it; whatever there is to say has been said */
    LISTENER_LATER, /* it may come in, but there is no room: judge it again in a moment */
    LISTENER_MORE,  /* the server has raised `want` */
};

struct listener_talk {
    uint8_t said[LISTENER_SAID_MAX]; /* by the connector, all of it so far */
    unsigned have, want;             /* bytes of it; it is judged when it has said as many as wanted */
    uint8_t notes[LISTENER_NOTES_MAX]; /* the server's */
};

struct listener {
    int listen_fd;        /* of listener_listen */
    int stop_fd;          /* readable for ever: it is over */
    int places;           /* at most LISTENER_PLACES_MAX */
    int patience_ms;      /* for all that one has to say */
    unsigned first_bytes; /* wanted before it is judged for the first time */
    uint32_t magic;       /* with which it begins, little-endian; another beginning gets no answer */
    enum listener_verdict (*judge)(void *context, int fd, struct listener_talk *talk); /* must not wait */
    void *context;
};

/* A socket that listens on a numeric address, and its port. -1 with errno set; EINVAL: not a numeric address. */
int listener_listen(const char *address, int *port);
/* On the caller's thread, until stop_fd is readable; closes the connections that it still has then. */
void listener_run(const struct listener *listener);

#endif
