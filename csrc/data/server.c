/* The data server: connections from other nodes and from clients, and the threads that answer them.
 *
 * The listener keeps a connection until its other side has proved that it has the session's key, and is a member or a client. From then on
 * the connection waits in the epoll set of its lane until something is asked. Each lane has threads of its own, as many as are busy at
 * once up to a limit. */
#include "common/watch.h"
#include "fsio_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers/listener.h"

enum {
    LANE_THREADS_MAX = 32,
    CONNECTIONS_MAX = 2048,
    STRANGERS_MAX = 256,
    STRANGER_MS = 5000,
    THREAD_IDLE_MS = 10000,
    TURN_REQUESTS = 64, /* answered in a row before others have their turn */
};

struct connection {
    struct connection *next, **back;
    uint64_t peer; /* a node, or a client */
    int lane, fd;
    struct data_rpc *rpc; /* not NULL: a connection of ours, on which the rpc handler hears answers */
};

struct data_rpc {
    struct connection connection;
    struct data_link *link;
    void *context; /* the rpc handler's name for it */
};

struct lane {
    struct data_server *server;
    int number, epoll_fd;
    int threads, idle; /* under the server's lock */
};

struct data_server {
    struct fsio *io;
    int listen_fd, port, stop_fd;
    pthread_t acceptor;
    bool accepting;
    pthread_mutex_t lock;
    pthread_cond_t empty; /* no thread left */
    struct connection *connections;
    int count;
    struct lane lanes[LANES];
};

/* ── connections ── */

static void end_rpc(struct fsio *io, struct data_rpc *rpc) {
    io->rpc_handler.ended(io->rpc_handler.context, rpc->context);
    data_link_put(&io->client, rpc->link, true);
    free(rpc);
}

static void part_with(struct data_server *server, struct connection *connection) {
    pthread_mutex_lock(&server->lock);
    *connection->back = connection->next;
    if (connection->next != NULL) connection->next->back = connection->back;
    server->count--;
    if (connection->rpc == NULL) close(connection->fd); /* under the lock: dismiss must not meet another file's number */
    pthread_mutex_unlock(&server->lock);
    if (connection->rpc == NULL) free(connection);
    else end_rpc(server->io, connection->rpc);
}

void data_server_dismiss(struct fsio *io, int32_t node) {
    struct data_server *server = io->server;
    if (server == NULL) return;
    pthread_mutex_lock(&server->lock);
    for (struct connection *connection = server->connections; connection != NULL; connection = connection->next)
        if (connection->peer == (uint64_t)node) shutdown(connection->fd, SHUT_RDWR); /* its thread, or the next one, lets it go */
    pthread_mutex_unlock(&server->lock);
}

/* ── answering ── */

/* Answer what has come on a connection. False: it is to be closed. */
static bool attend(struct data_server *server, const struct connection *connection, char *buffer) {
    struct fsio *io = server->io;
    uint8_t request[REQUEST_BYTES];
    if (connection->lane == LANE_RPC || connection->lane == LANE_BACKUP) {
        void *link = connection->rpc == NULL ? NULL : connection->rpc->context;
        return io->rpc_handler.attend != NULL &&
               io->rpc_handler.attend(io->rpc_handler.context, (int32_t)connection->peer, link, connection->fd, buffer);
    }
    for (int turn = 0; turn < TURN_REQUESTS; turn++) {
        ssize_t got = recv(connection->fd, request, sizeof request, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (got <= 0) return false;
        if (got < (ssize_t)sizeof request && data_receive(connection->fd, request + got, sizeof request - (size_t)got) != 0) return false;
        if (atomic_load(&io->stopping)) return false;
        struct watch_entry watched = amfs_watch_begin("an answer to another node about file", get_le(request + 8, 8));
        bool fine = fsio_answer(io, connection->fd, connection->peer, connection->lane, request, buffer);
        amfs_watch_end(watched);
        if (!fine) return false;
    }
    return true;
}

static void *serve(void *argument);

static int all_threads(const struct data_server *server) {
    int threads = 0;
    for (int i = 0; i < LANES; i++) threads += server->lanes[i].threads;
    return threads;
}

/* With the lock held: one more thread if all are busy. */
static void staff(struct lane *lane) {
    pthread_t thread;
    if (lane->idle > 0 || lane->threads >= LANE_THREADS_MAX || atomic_load(&lane->server->io->stopping)) return;
    lane->threads++;
    lane->idle++;
    if (new_thread(&thread, serve, lane) == 0) {
        pthread_detach(thread);
    } else {
        lane->threads--;
        lane->idle--;
    }
}

/* With the lock held: into the list, and somebody for it. */
static void seat(struct data_server *server, struct connection *connection) {
    connection->next = server->connections;
    connection->back = &server->connections;
    if (connection->next != NULL) connection->next->back = &connection->next;
    server->connections = connection;
    server->count++;
    staff(&server->lanes[connection->lane]);
}

static void *serve(void *argument) {
    struct lane *lane = argument;
    struct data_server *server = lane->server;
    char *buffer = malloc(DATA_CHUNK);
    bool stay = buffer != NULL, waits = true; /* counted among the idle */
    while (stay) {
        struct epoll_event event;
        int ready = epoll_wait(lane->epoll_fd, &event, 1, THREAD_IDLE_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (atomic_load(&server->io->stopping) || ready < 0) break;
        pthread_mutex_lock(&server->lock);
        if (ready == 0) {
            stay = lane->idle <= 1; /* one stays; a thread that ends is not idle any more */
            waits = stay;
            if (!stay) lane->idle--;
            pthread_mutex_unlock(&server->lock);
            continue;
        }
        lane->idle--;
        staff(lane);
        pthread_mutex_unlock(&server->lock);
        struct connection *connection = event.data.ptr;
        event.events = EPOLLIN | EPOLLONESHOT;
        bool keep = attend(server, connection, buffer);
        pthread_mutex_lock(&server->lock);
        lane->idle++; /* and from the end of the lock on it is another thread's connection */
        if (keep) keep = epoll_ctl(lane->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) == 0;
        pthread_mutex_unlock(&server->lock);
        if (!keep) part_with(server, connection);
    }
    free(buffer);
    pthread_mutex_lock(&server->lock);
    if (waits) lane->idle--;
    lane->threads--;
    if (all_threads(server) == 0) pthread_cond_signal(&server->empty);
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* ── the third lane ── */

void data_set_rpc_handler(struct fsio *io, const struct data_rpc_handler *rpc_handler) {
    pthread_mutex_lock(&io->keeper_lock); /* the keeper runs already */
    io->rpc_handler = *rpc_handler;
    pthread_mutex_unlock(&io->keeper_lock);
}

void *data_rpc_context(struct fsio *io) { return io->rpc_handler.attend == NULL ? NULL : io->rpc_handler.context; }

int data_rpc_open(struct fsio *io, int32_t node, int lane, void *context, struct data_rpc **rpc, int *fd) {
    struct data_rpc *made = calloc(1, sizeof *made);
    int error = made == NULL ? ENOMEM : io->server == NULL ? ENOTCONN : data_link_get(&io->client, node, lane, false, &made->link);
    if (error != 0) {
        free(made);
        return error;
    }
    *fd = made->link->fd;
    made->context = context;
    made->connection = (struct connection){.peer = (uint64_t)node, .lane = lane, .fd = *fd, .rpc = made};
    *rpc = made;
    return 0;
}

void data_rpc_listen(struct fsio *io, struct data_rpc *rpc) {
    struct connection *connection = &rpc->connection;
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = connection};
    pthread_mutex_lock(&io->server->lock);
    bool welcome = !atomic_load(&io->stopping);
    if (welcome) seat(io->server, connection);
    pthread_mutex_unlock(&io->server->lock);
    if (!welcome) end_rpc(io, rpc);
    else if (epoll_ctl(io->server->lanes[connection->lane].epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        part_with(io->server, connection);
}

/* ── coming in ── */

static bool send_all(int fd, const uint8_t *bytes, size_t count) { /* into the empty buffer of a new connection: does not wait */
    return send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

static bool send_welcome(int fd, enum handshake_status status) {
    uint8_t welcome[HANDSHAKE_WELCOME_BYTES];
    handshake_write_welcome(welcome, status);
    return send_all(fd, welcome, sizeof welcome);
}

static bool full(struct data_server *server) {
    pthread_mutex_lock(&server->lock);
    bool is = server->count >= CONNECTIONS_MAX;
    pthread_mutex_unlock(&server->lock);
    return is;
}

/* Let a connection in that has proved that it has the key. */
static enum listener_verdict let_in(struct data_server *server, int fd, const struct handshake_hello *hello) {
    struct connection *connection = full(server) ? NULL : calloc(1, sizeof *connection);
    struct lane *lane = &server->lanes[hello->lane];
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = connection};
    if (connection == NULL) return LISTENER_LATER;
    *connection = (struct connection){.peer = hello->id, .lane = hello->lane, .fd = fd};
    data_socket_options(fd, server->io->client.stall_ms);
    pthread_mutex_lock(&server->lock);
    seat(server, connection);
    pthread_mutex_unlock(&server->lock);
    /* It may have been forgotten since it was judged: from now on the thread that forgets it finds this connection. */
    bool may = hello->id >= DATA_CLIENTS_FROM || data_is_member(&server->io->client, hello->id, hello->incarnation);
    /* the other side waits for the welcome before it asks; once it is in the set a thread may end it at any time */
    if (!may || !send_welcome(fd, HANDSHAKE_OK) || epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) part_with(server, connection);
    return LISTENER_IN;
}

/* Is it meant for this node, and from one that may ask it something? */
static enum handshake_status judge_hello(struct data_server *server, const struct handshake_hello *hello) {
    struct data_client *client = &server->io->client;
    if (hello->server_id != client->id || (hello->server_incarnation != 0 && hello->server_incarnation != client->incarnation))
        return HANDSHAKE_NOT_ME;
    if (hello->id >= DATA_CLIENTS_FROM) return hello->lane == LANE_PARTS ? HANDSHAKE_OK : HANDSHAKE_NOT_MEMBER;
    return data_is_member(client, hello->id, hello->incarnation) ? HANDSHAKE_OK : HANDSHAKE_NOT_MEMBER;
}

/* First the hello, which is answered by the challenge; then the proof. Before the proof the connector does not learn who is a member. */
static enum listener_verdict judge(void *context, int fd, struct listener_talk *talk) {
    struct data_server *server = context;
    const uint8_t *key = server->io->client.key;
    struct handshake shake;
    struct handshake_hello hello;
    memcpy(shake.hello, talk->said, sizeof shake.hello);
    if (!handshake_read_hello(&shake, &hello) || hello.lane >= LANES) {
        handshake_write_refusal(shake.challenge, HANDSHAKE_WRONG_VERSION);
        send_all(fd, shake.challenge, sizeof shake.challenge);
        return LISTENER_AWAY;
    }
    if (talk->want == HANDSHAKE_HELLO_BYTES) {
        if (handshake_write_challenge(&shake, key) != 0 || !send_all(fd, shake.challenge, sizeof shake.challenge)) return LISTENER_AWAY;
        memcpy(talk->notes, shake.challenge, sizeof shake.challenge);
        talk->want += HANDSHAKE_PROOF_BYTES;
        return LISTENER_MORE;
    }
    memcpy(shake.challenge, talk->notes, sizeof shake.challenge);
    enum handshake_status status = HANDSHAKE_WRONG_KEY;
    if (handshake_check_proof(&shake, key, talk->said + HANDSHAKE_HELLO_BYTES)) status = judge_hello(server, &hello);
    if (status == HANDSHAKE_OK) return let_in(server, fd, &hello);
    send_welcome(fd, status);
    return LISTENER_AWAY;
}

static void *accept_all(void *argument) {
    struct data_server *server = argument;
    const struct listener listener = {.listen_fd = server->listen_fd,
                                      .stop_fd = server->stop_fd,
                                      .places = STRANGERS_MAX,
                                      .patience_ms = STRANGER_MS,
                                      .first_bytes = HANDSHAKE_HELLO_BYTES,
                                      .magic = HANDSHAKE_MAGIC,
                                      .judge = judge,
                                      .context = server};
    listener_run(&listener);
    return NULL;
}

_Static_assert((int)HANDSHAKE_HELLO_BYTES + (int)HANDSHAKE_PROOF_BYTES <= (int)LISTENER_SAID_MAX, "a talk holds all that a connector says");
_Static_assert((int)HANDSHAKE_CHALLENGE_BYTES <= (int)LISTENER_NOTES_MAX, "and what was answered");

/* ── life ── */

int fsio_port(const struct fsio *io) { return io->server == NULL ? 0 : io->server->port; }

static void free_server(struct data_server *server) {
    for (int i = 0; i < LANES; i++)
        if (server->lanes[i].epoll_fd >= 0) close(server->lanes[i].epoll_fd);
    if (server->listen_fd >= 0) close(server->listen_fd);
    if (server->stop_fd >= 0) close(server->stop_fd);
    pthread_cond_destroy(&server->empty);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

int data_server_open(struct fsio *io, const char *address, char *error, size_t error_size) {
    struct data_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        snprintf(error, error_size, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    server->io = io;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->empty, NULL);
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->listen_fd = listener_listen(address, &server->port);
    int failed = server->listen_fd < 0 || server->stop_fd < 0 ? errno : 0;
    for (int i = 0; i < LANES; i++) {
        struct epoll_event event = {.events = EPOLLIN}; /* the stop: readable for ever, wakes every thread */
        server->lanes[i] = (struct lane){.server = server, .number = i, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
        if (failed == 0 &&
            (server->lanes[i].epoll_fd < 0 || epoll_ctl(server->lanes[i].epoll_fd, EPOLL_CTL_ADD, server->stop_fd, &event) != 0))
            failed = errno;
    }
    io->server = server;
    if (failed == 0) failed = new_thread(&server->acceptor, accept_all, server);
    if (failed == 0) {
        server->accepting = true;
        return 0;
    }
    snprintf(error, error_size, "cannot listen on %s: %s", address, failed == EINVAL ? "not a numeric address" : strerror(failed));
    io->server = NULL;
    free_server(server);
    return failed;
}

void data_server_stop(struct fsio *io) {
    struct data_server *server = io->server;
    uint64_t one = 1;
    if (server == NULL || !server->accepting) return;
    server->accepting = false;
    (void)!write(server->stop_fd, &one, sizeof one);
    pthread_join(server->acceptor, NULL);
    pthread_mutex_lock(&server->lock);
    for (struct connection *connection = server->connections; connection != NULL; connection = connection->next)
        shutdown(connection->fd, SHUT_RDWR);
    while (all_threads(server) > 0) pthread_cond_wait(&server->empty, &server->lock);
    pthread_mutex_unlock(&server->lock);
    while (server->connections != NULL) part_with(server, server->connections);
    close(server->listen_fd);
    server->listen_fd = -1;
}

void data_server_free(struct fsio *io) {
    if (io->server != NULL) free_server(io->server);
    io->server = NULL;
}
