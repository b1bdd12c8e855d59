/* Getting a file from another mover's data port: connect, show the ticket, bytes from the socket into the file.
 *
 * The bytes are gathered in a buffer, two MiB of them, and written at once: a huge page of a tmpfs that is written whole is neither zeroed
 * first nor asked for in smaller pieces. Until so much is there the thread sleeps (SO_RCVLOWAT), which also opens the window of a new
 * connection at once. A page at a time, by splice, costs more, and many times as much as soon as somebody else wants the processor.
 *
 * Two threads on one file, a mapping, and space allocated beforehand were all slower or no faster. On 4 KiB pages every way spends most of
 * its time on making the pages, which the inode's lock serialises: huge pages are the store's to choose. */
#include "mover_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct fetch {
    struct mover *mover;
    const struct job *job;
    char *error;
    char *buffer; /* BUFFER_BYTES */
    int socket, file;
    uint64_t moved;
};

/* Say in `error` what went wrong. Always false. */
__attribute__((format(printf, 2, 3))) static bool fail(struct fetch *fetch, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(fetch->error, ERROR_BYTES, "cannot fetch %s from %s port %d: %s", fetch->job->destination, fetch->job->source,
             fetch->job->port, text);
    return false;
}

/* Likewise with an errno; ECANCELED is our own stop and no fault of the file. */
static bool fail_errno(struct fetch *fetch, const char *what, int error) {
    if (error != ECANCELED) return fail(fetch, "%s%s", what, mover_reason(error));
    snprintf(fetch->error, ERROR_BYTES, "%s", mover_reason(error));
    return false;
}

/* ── the connection ── */

static int connect_address(struct fetch *fetch, const struct addrinfo *address) {
    int one = 1, error = 0;
    socklen_t size = sizeof error;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            error = mover_wait(fetch->mover, fd, POLLOUT);
            if (error == 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        }
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fetch->socket = fd;
    return 0;
}

static bool connect_peer(struct fetch *fetch) {
    struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[16];
    snprintf(service, sizeof service, "%d", fetch->job->port);
    hints.ai_flags |= AI_NUMERICHOST; /* first without a resolver, which cannot be interrupted */
    int looked = getaddrinfo(fetch->job->source, service, &hints, &found);
    if (looked == EAI_NONAME) {
        hints.ai_flags &= ~AI_NUMERICHOST;
        looked = getaddrinfo(fetch->job->source, service, &hints, &found);
    }
    if (looked != 0) return fail(fetch, "%s", looked == EAI_SYSTEM ? mover_reason(errno) : gai_strerror(looked));
    int error = EHOSTUNREACH;
    for (const struct addrinfo *next = found; next != NULL; next = next->ai_next) {
        error = connect_address(fetch, next);
        if (error == 0 || error == ECANCELED) break;
    }
    freeaddrinfo(found);
    return error == 0 || fail_errno(fetch, "", error);
}

static bool send_request(struct fetch *fetch) {
    uint8_t request[REQUEST_BYTES] = {0};
    put_le(request, DATA_MAGIC, 4);
    put_le(request + 4, DATA_VERSION, 2);
    memcpy(request + 8, fetch->job->ticket, MOVER_TICKET_BYTES);
    put_le(request + 24, fetch->job->size, 8);
    /* 32 bytes into the empty buffer of a new connection: all or an error */
    ssize_t sent = send(fetch->socket, request, sizeof request, MSG_NOSIGNAL);
    if (sent == (ssize_t)sizeof request) return true;
    return fail_errno(fetch, "cannot send the request: ", sent < 0 ? errno : EIO);
}

/* `count` bytes, or those before the peer closed; -1 after fail(). Any byte within the time of a stall is progress. */
static ssize_t receive(struct fetch *fetch, char *to, size_t count) {
    size_t have = 0;
    bool waited_in_vain = false;
    while (have < count) {
        ssize_t got = recv(fetch->socket, to + have, count - have, 0);
        if (got == 0) break;
        if (got > 0) {
            have += (size_t)got;
            waited_in_vain = false;
            continue;
        }
        int error = errno;
        if (error == EAGAIN && waited_in_vain) error = ETIMEDOUT;
        if (error == EAGAIN) {
            int enough = (int)(count - have);
            (void)setsockopt(fetch->socket, SOL_SOCKET, SO_RCVLOWAT, &enough, sizeof enough); /* refused: woken more often */
            error = mover_wait(fetch->mover, fetch->socket, POLLIN);
            waited_in_vain = error == ETIMEDOUT; /* for all of it; some may have come */
            if (waited_in_vain) error = 0;
        }
        if (error != 0 && error != EINTR) {
            fail_errno(fetch, "", error);
            return -1;
        }
    }
    return (ssize_t)have;
}

static bool read_reply(struct fetch *fetch) {
    uint8_t reply[REPLY_BYTES];
    ssize_t got = receive(fetch, (char *)reply, sizeof reply);
    if (got < 0) return false;
    if (got < (ssize_t)sizeof reply) return fail(fetch, "the other side closed the connection without an answer");
    if (get_le(reply, 4) != DATA_MAGIC) return fail(fetch, "whatever listens there is not an amfs data port");
    int status = (int)get_le(reply + 6, 2);
    switch (status) {
    case STATUS_OK: return true;
    case STATUS_NO_TICKET: return fail(fetch, "the ticket is unknown, used or expired");
    case STATUS_NO_FILE: return fail(fetch, "the file is gone there: %s", mover_reason((int)get_le(reply + 8, 4)));
    case STATUS_WRONG_SIZE:
        return fail(fetch, "the file has %llu bytes there, not %llu", (unsigned long long)get_le(reply + 16, 8),
                    (unsigned long long)fetch->job->size);
    case STATUS_WRONG_VERSION:
        return fail(fetch, "it speaks version %d of the data protocol, not %d", (int)get_le(reply + 4, 2), DATA_VERSION);
    default: return fail(fetch, "it answered with the unknown status %d", status);
    }
}

/* ── the bytes ── */

static bool put_at(struct fetch *fetch, const char *from, size_t count) {
    while (count > 0) {
        ssize_t put = pwrite(fetch->file, from, count, (off_t)(fetch->moved));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno(fetch, "cannot write it: ", errno);
        from += put;
        count -= (size_t)put;
        fetch->moved += (uint64_t)put;
    }
    return true;
}

static bool receive_file(struct fetch *fetch) {
    for (bool open = true; open && fetch->moved < fetch->job->size;) {
        if (atomic_load(&fetch->mover->stopping)) return fail_errno(fetch, "", ECANCELED);
        uint64_t left = fetch->job->size - fetch->moved;
        size_t wanted = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        ssize_t got = receive(fetch, fetch->buffer, wanted);
        if (got < 0 || !put_at(fetch, fetch->buffer, (size_t)got)) return false;
        open = (size_t)got == wanted;
    }
    if (fetch->moved == fetch->job->size) return true;
    return fail(fetch, "the connection ended after %llu of %llu bytes", (unsigned long long)fetch->moved,
                (unsigned long long)fetch->job->size);
}

uint64_t mover_run_fetch(struct worker *worker, const struct job *job, char *error) {
    char part[PART_BYTES];
    struct fetch fetch = {.mover = worker->mover, .job = job, .error = error, .socket = -1};
    if (worker->buffer == NULL) worker->buffer = malloc(BUFFER_BYTES);
    fetch.buffer = worker->buffer;
    if (fetch.buffer == NULL) {
        fail_errno(&fetch, "", ENOMEM);
        return 0;
    }
    fetch.file = mover_part_open(worker->mover, job->destination, job->directories, part, error);
    if (fetch.file < 0) return 0;
    bool fine = connect_peer(&fetch) && send_request(&fetch) && read_reply(&fetch) && receive_file(&fetch);
    if (fetch.socket >= 0) close(fetch.socket);
    if (fine) mover_part_finish(fetch.file, part, job->destination, job->mode, true, error);
    else mover_part_drop(fetch.file, part);
    atomic_fetch_add(&worker->mover->bytes_fetched, fetch.moved);
    return fetch.moved;
}
