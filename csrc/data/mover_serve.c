/* The data port: tickets, and one thread for each transfer under way. Who shows a known ticket on the porch gets one. */
#include "mover_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "listener.h"

enum {
    BUCKETS = 4096,
    SERVING_MAX = 64,       /* transfers at once; more wait */
    PENDING_MAX = 256,      /* connections that have not shown a ticket yet, or wait */
    REQUEST_MS = 10000,     /* to show it */
    SEND_BYTES = 256 << 10, /* stays in the processor's cache between reading and sending */
};

struct ticket {
    struct ticket *next_in_bucket;
    struct ticket *older, *newer; /* by age, for expiry */
    uint8_t secret[MOVER_TICKET_BYTES];
    int64_t expires_ms;
    char path[];
};

struct port {
    struct mover *mover;
    int listen_fd, number;
    int wake_fd; /* eventfd: a serving thread has ended */
    pthread_t acceptor;
    uint64_t acceptor_us; /* of its CPU time, accounted for */
    bool started;
    pthread_mutex_t lock; /* for the rest */
    pthread_cond_t idle;
    int serving;
    struct ticket *buckets[BUCKETS];
    struct ticket *oldest, *newest;
};

struct transfer {
    struct port *port;
    int fd;
    uint8_t request[REQUEST_BYTES];
};

/* ── tickets (all with the lock held) ── */

static struct ticket **bucket_of(struct port *port, const uint8_t *secret) { return &port->buckets[get_le(secret, 8) % BUCKETS]; }

/* Equal in a time that tells nothing of where they differ. */
static bool same_secret(const uint8_t *a, const uint8_t *b) {
    uint8_t difference = 0;
    for (int i = 0; i < MOVER_TICKET_BYTES; i++) difference |= (uint8_t)(a[i] ^ b[i]);
    return difference == 0;
}

static void forget_ticket(struct port *port, struct ticket *ticket) {
    struct ticket **link = bucket_of(port, ticket->secret);
    while (*link != ticket) link = &(*link)->next_in_bucket;
    *link = ticket->next_in_bucket;
    *(ticket->older != NULL ? &ticket->older->newer : &port->oldest) = ticket->newer;
    *(ticket->newer != NULL ? &ticket->newer->older : &port->newest) = ticket->older;
    free(ticket);
}

static void expire_tickets(struct port *port) {
    int64_t now = now_ms();
    while (port->oldest != NULL && port->oldest->expires_ms <= now) forget_ticket(port, port->oldest);
}

static struct ticket *find_ticket(struct port *port, const uint8_t *secret) {
    expire_tickets(port);
    struct ticket *ticket = *bucket_of(port, secret);
    while (ticket != NULL && !same_secret(ticket->secret, secret)) ticket = ticket->next_in_bucket;
    return ticket;
}

/* Use a ticket up. The path, to be freed; NULL: no such ticket (any more). */
static char *claim_ticket(struct port *port, const uint8_t *secret) {
    struct ticket *ticket = find_ticket(port, secret);
    if (ticket == NULL) return NULL;
    char *path = strdup(ticket->path);
    if (path != NULL) forget_ticket(port, ticket);
    return path;
}

int port_offer(struct port *port, const char *path, uint8_t secret[MOVER_TICKET_BYTES]) {
    size_t length = strlen(path) + 1;
    struct ticket *ticket = calloc(1, sizeof *ticket + length);
    if (ticket == NULL) return ENOMEM;
    if (getrandom(ticket->secret, MOVER_TICKET_BYTES, 0) != MOVER_TICKET_BYTES) {
        free(ticket);
        return errno != 0 ? errno : EIO;
    }
    memcpy(ticket->path, path, length);
    memcpy(secret, ticket->secret, MOVER_TICKET_BYTES);
    pthread_mutex_lock(&port->lock);
    expire_tickets(port);
    ticket->expires_ms = now_ms() + MOVER_TICKET_SECONDS * 1000;
    struct ticket **bucket = bucket_of(port, secret);
    ticket->next_in_bucket = *bucket;
    *bucket = ticket;
    ticket->older = port->newest;
    *(port->newest != NULL ? &port->newest->newer : &port->oldest) = ticket;
    port->newest = ticket;
    pthread_mutex_unlock(&port->lock);
    return 0;
}

/* ── one transfer ── */

static bool send_all(struct port *port, int fd, const uint8_t *from, size_t count) {
    while (count > 0) {
        ssize_t sent = send(fd, from, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN && mover_wait(port->mover, fd, POLLOUT) == 0) continue;
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        from += sent;
        count -= (size_t)sent;
    }
    return true;
}

static bool send_reply(struct port *port, int fd, int status, int error, uint64_t size) {
    uint8_t reply[REPLY_BYTES] = {0};
    put_le(reply, DATA_MAGIC, 4);
    put_le(reply + 4, DATA_VERSION, 2);
    put_le(reply + 6, (uint64_t)status, 2);
    put_le(reply + 8, (uint64_t)error, 4);
    put_le(reply + 16, size, 8);
    return send_all(port, fd, reply, sizeof reply);
}

/* The bytes. Ends early if the peer goes, stalls or we stop: the peer sees a short file. Over loopback, read and send cost both sides less
 * than sendfile, which puts every page on the wire by itself. */
static void send_file(struct port *port, int fd, int file, uint64_t size, uint8_t *buffer) {
    for (uint64_t at = 0; at < size && !atomic_load(&port->mover->stopping);) {
        uint64_t left = size - at;
        ssize_t got = pread(file, buffer, left < SEND_BYTES ? (size_t)left : SEND_BYTES, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || !send_all(port, fd, buffer, (size_t)got)) break; /* 0: the file became shorter */
        at += (uint64_t)got;
        atomic_fetch_add(&port->mover->bytes_served, (uint64_t)got);
    }
}

static void serve_request(struct port *port, int fd, const uint8_t *request) {
    uint64_t size = get_le(request + 24, 8);
    struct stat found;
    uint8_t *buffer = NULL;
    pthread_mutex_lock(&port->lock);
    char *path = claim_ticket(port, request + 8);
    pthread_mutex_unlock(&port->lock);
    if (path == NULL) {
        send_reply(port, fd, STATUS_NO_TICKET, 0, 0);
        return;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int error = file < 0 || fstat(file, &found) != 0 ? errno : S_ISREG(found.st_mode) ? 0 : EISDIR;
    free(path);
    if (error == 0 && (buffer = malloc(size < SEND_BYTES ? (size_t)size + 1 : SEND_BYTES)) == NULL) error = ENOMEM;
    if (error != 0) send_reply(port, fd, STATUS_NO_FILE, error, 0);
    else if ((uint64_t)found.st_size != size) send_reply(port, fd, STATUS_WRONG_SIZE, 0, (uint64_t)found.st_size);
    else if (send_reply(port, fd, STATUS_OK, 0, size)) send_file(port, fd, file, size, buffer);
    free(buffer);
    if (file >= 0) close(file);
}

static void *serve(void *argument) {
    struct transfer *transfer = argument;
    struct port *port = transfer->port;
    uint64_t seen = 0, one = 1;
    serve_request(port, transfer->fd, transfer->request);
    close(transfer->fd);
    free(transfer);
    mover_account_cpu(port->mover, &seen);
    pthread_mutex_lock(&port->lock);
    port->serving--;
    ssize_t put = write(port->wake_fd, &one, sizeof one);
    (void)put;
    if (port->serving == 0) pthread_cond_signal(&port->idle); /* the last use of port: port_close waits for it */
    pthread_mutex_unlock(&port->lock);
    return NULL;
}

/* Hand a connection to a thread of its own. False: not now. */
static bool start_transfer(struct port *port, int fd, const uint8_t *request) {
    struct transfer *transfer = malloc(sizeof *transfer);
    int one = 1;
    if (transfer == NULL) return false;
    *transfer = (struct transfer){.port = port, .fd = fd};
    memcpy(transfer->request, request, REQUEST_BYTES);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_mutex_lock(&port->lock);
    bool room = port->serving < SERVING_MAX;
    if (room) port->serving++;
    pthread_mutex_unlock(&port->lock);
    pthread_t thread;
    if (room && new_thread(&thread, serve, transfer) == 0) {
        pthread_detach(thread);
        return true;
    }
    free(transfer);
    if (room) {
        pthread_mutex_lock(&port->lock);
        port->serving--;
        pthread_mutex_unlock(&port->lock);
    }
    return false;
}

/* ── coming in ── */

static enum listener_verdict judge(void *context, int fd, const uint8_t *request) {
    struct port *port = context;
    int status = STATUS_WRONG_VERSION;
    mover_account_cpu(port->mover, &port->acceptor_us);
    if (get_le(request + 4, 2) == DATA_VERSION) {
        pthread_mutex_lock(&port->lock);
        status = find_ticket(port, request + 8) != NULL ? STATUS_OK : STATUS_NO_TICKET;
        pthread_mutex_unlock(&port->lock);
    }
    if (status == STATUS_OK) return start_transfer(port, fd, request) ? LISTENER_IN : LISTENER_LATER;
    send_reply(port, fd, status, 0, 0); /* 24 bytes into an empty buffer: does not wait */
    return LISTENER_AWAY;
}

static void *accept_all(void *argument) {
    struct port *port = argument;
    const struct listener listener = {.listen_fd = port->listen_fd,
                                      .stop_fd = port->mover->stop_fd,
                                      .wake_fd = port->wake_fd,
                                      .accept_flags = SOCK_NONBLOCK,
                                      .places = PENDING_MAX,
                                      .patience_ms = REQUEST_MS,
                                      .hello_bytes = REQUEST_BYTES,
                                      .magic = DATA_MAGIC,
                                      .judge = judge,
                                      .context = port};
    listener_run(&listener);
    mover_account_cpu(port->mover, &port->acceptor_us);
    return NULL;
}

/* ── life ── */

struct port *port_open(struct mover *mover, const char *address, char *error, size_t error_size) {
    struct port *port = calloc(1, sizeof *port);
    if (port == NULL) {
        snprintf(error, error_size, "%s", mover_reason(ENOMEM));
        return NULL;
    }
    port->mover = mover;
    pthread_mutex_init(&port->lock, NULL);
    pthread_cond_init(&port->idle, NULL);
    port->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    port->listen_fd = listener_listen(address, &port->number);
    int failed = port->listen_fd < 0 || port->wake_fd < 0 ? errno : new_thread(&port->acceptor, accept_all, port);
    port->started = failed == 0;
    if (failed != 0) {
        snprintf(error, error_size, "cannot listen on %s: %s", address, failed == EINVAL ? "not a numeric address" : mover_reason(failed));
        port_free(port);
        return NULL;
    }
    return port;
}

int port_number(const struct port *port) { return port->number; }

void port_close(struct port *port) {
    if (port->started) pthread_join(port->acceptor, NULL);
    port->started = false;
    pthread_mutex_lock(&port->lock);
    while (port->serving > 0) pthread_cond_wait(&port->idle, &port->lock);
    while (port->oldest != NULL) forget_ticket(port, port->oldest);
    pthread_mutex_unlock(&port->lock);
    if (port->listen_fd >= 0) close(port->listen_fd);
    port->listen_fd = -1;
}

void port_free(struct port *port) {
    port_close(port);
    if (port->wake_fd >= 0) close(port->wake_fd);
    pthread_cond_destroy(&port->idle);
    pthread_mutex_destroy(&port->lock);
    free(port);
}
