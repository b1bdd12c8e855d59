#include "client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/sha256.h"
#include "common/thread.h"
#include "transfer.h"

enum {
    LINKS_MAX = 8, /* to a peer, for each lane */
    CONNECT_TRIES = 4,
    PAUSE_MS = 20,          /* before the second try, then twice as long each time */
    MEMBER_WAIT_MS = 5000,  /* for a node that has not heard yet that we are members */
    IDLE_MS = 10000,        /* after which a connection is closed */
    NOT_YET = -2, /* beside errnos and DATA_BROKEN: it does not take us for a member, or not yet */
};

struct data_peer {
    struct data_peer *next;
    int32_t node;
    bool known; /* it is a member */
    uint64_t incarnation;
    char *host;
    int port;
    uint64_t life; /* counts data_set_peer and data_forget_peer: links of an earlier life are closed, not kept */
    struct data_link *links;
    int count[LANES];
};

int data_result(struct data_client *client, int error) {
    if (error == 0) return 0;
    if (atomic_load(&client->stopping)) return ECANCELED;
    return error == DATA_BROKEN ? EIO : error;
}

/* ── peers ── with the lock held */

static struct data_peer *find_peer(struct data_client *client, int32_t node) {
    struct data_peer *peer = client->peers;
    while (peer != NULL && peer->node != node) peer = peer->next;
    return peer;
}

static struct data_peer *make_peer(struct data_client *client, int32_t node) {
    struct data_peer *peer = find_peer(client, node);
    if (peer != NULL) return peer;
    peer = calloc(1, sizeof *peer);
    if (peer == NULL) return NULL;
    peer->node = node;
    peer->next = client->peers;
    client->peers = peer;
    return peer;
}

/* Take a link out of its peer's list and close it. */
static void end_link(struct data_link *link) {
    struct data_link **at = &link->peer->links;
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    link->peer->count[link->lane]--;
    close(link->fd);
    free(link);
}

/* Those under way end with an error where they wait, the idle ones here. */
static void cut_links(struct data_peer *peer) {
    for (struct data_link *link = peer->links, *next; link != NULL; link = next) {
        next = link->next;
        if (link->idle) end_link(link);
        else shutdown(link->fd, SHUT_RDWR);
    }
}

void data_set_peer(struct data_client *client, int32_t node, uint64_t incarnation, const char *host, int port) {
    char *name = strdup(host);
    pthread_mutex_lock(&client->lock);
    struct data_peer *peer = name == NULL ? NULL : make_peer(client, node);
    if (peer != NULL) {
        cut_links(peer);
        free(peer->host);
        peer->host = name;
        name = NULL;
        peer->port = port;
        peer->incarnation = incarnation;
        peer->known = true;
        peer->life++;
    }
    pthread_mutex_unlock(&client->lock);
    free(name);
}

bool data_is_member(struct data_client *client, uint64_t id, uint64_t incarnation) {
    if (id > INT32_MAX) return false;
    pthread_mutex_lock(&client->lock);
    const struct data_peer *peer = find_peer(client, (int32_t)id);
    bool is = peer != NULL && peer->known && (peer->incarnation == 0 || peer->incarnation == incarnation);
    pthread_mutex_unlock(&client->lock);
    return is;
}

void data_forget_peer(struct data_client *client, int32_t node) {
    pthread_mutex_lock(&client->lock);
    struct data_peer *peer = find_peer(client, node);
    if (peer != NULL) {
        peer->known = false;
        peer->life++;
        cut_links(peer);
        pthread_cond_broadcast(&client->changed);
    }
    pthread_mutex_unlock(&client->lock);
}

void data_reap(struct data_client *client) {
    int64_t now = now_ms();
    pthread_mutex_lock(&client->lock);
    for (struct data_peer *peer = client->peers; peer != NULL; peer = peer->next) {
        for (struct data_link *link = peer->links, *next; link != NULL; link = next) {
            next = link->next;
            if (link->idle && now - link->since_ms > IDLE_MS) end_link(link);
        }
    }
    pthread_mutex_unlock(&client->lock);
}

/* ── life ── */

void data_client_begin(struct data_client *client, uint64_t id, uint64_t incarnation, const uint8_t *key) {
    client->id = id;
    client->incarnation = incarnation;
    client->has_key = key != NULL;
    if (key != NULL) memcpy(client->key, key, sizeof client->key);
    client->stall_ms = DATA_STALL_MS;
    pthread_mutex_init(&client->lock, NULL);
    new_monotonic_cond(&client->changed);
}

void data_client_stop(struct data_client *client) {
    pthread_mutex_lock(&client->lock);
    atomic_store(&client->stopping, true);
    for (struct data_peer *peer = client->peers; peer != NULL; peer = peer->next) cut_links(peer);
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

void data_client_end(struct data_client *client) {
    while (client->peers != NULL) {
        struct data_peer *peer = client->peers;
        client->peers = peer->next;
        while (peer->links != NULL) end_link(peer->links);
        free(peer->host);
        free(peer);
    }
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->lock);
    amfs_wipe(client->key, sizeof client->key);
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

static int shake_hands(struct data_client *client, int fd, const struct handshake_hello *hello) {
    struct handshake shake;
    uint8_t proof[HANDSHAKE_PROOF_BYTES], welcome[HANDSHAKE_WELCOME_BYTES];
    int status = HANDSHAKE_WRONG_KEY, error = client->has_key ? handshake_write_hello(&shake, hello) : EACCES;
    if (error == 0) error = data_send(fd, shake.hello, sizeof shake.hello, NULL, 0, false);
    if (error == 0) error = data_receive(fd, shake.challenge, sizeof shake.challenge);
    if (error == 0) status = handshake_check_challenge(&shake, client->key, proof);
    if (error != 0) return error;
    if (status == HANDSHAKE_OK) {
        error = data_send(fd, proof, sizeof proof, NULL, 0, false);
        if (error == 0) error = data_receive(fd, welcome, sizeof welcome);
        if (error != 0) return error;
        status = handshake_read_welcome(welcome);
    }
    switch (status) {
    case HANDSHAKE_OK: return 0;
    case HANDSHAKE_WRONG_KEY: return EACCES;
    case HANDSHAKE_NOT_MEMBER: return NOT_YET;
    case HANDSHAKE_NOT_ME: return EIO;
    default: return EPROTO;
    }
}

/* One attempt: a link in the peer's list that is connected, or 0 links and an error. Called with the lock held; unlocks it while connecting. */
static int connect_link(struct data_client *client, struct data_peer *peer, int lane, const struct addrinfo *address,
                        struct data_link **made) {
    uint64_t life = peer->life;
    struct handshake_hello hello = {.lane = lane,
                                    .id = client->id,
                                    .incarnation = client->incarnation,
                                    .server_id = (uint64_t)peer->node,
                                    .server_incarnation = peer->incarnation};
    struct data_link *link = calloc(1, sizeof *link);
    int fd = link == NULL ? -1 : socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        int error = link == NULL ? ENOMEM : errno;
        free(link);
        return error;
    }
    *link = (struct data_link){.next = peer->links, .peer = peer, .lane = lane, .fd = fd};
    peer->links = link; /* from now on forget_peer finds it */
    peer->count[lane]++;
    pthread_mutex_unlock(&client->lock);
    data_socket_options(fd, client->stall_ms);
    int error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno == EINPROGRESS ? ETIMEDOUT : errno;
    if (error == 0) error = shake_hands(client, fd, &hello);
    pthread_mutex_lock(&client->lock);
    if (error == 0 && (peer->life != life || atomic_load(&client->stopping))) error = EIO;
    if (error != 0) end_link(link);
    else *made = link;
    return error;
}

static int connect_peer(struct data_client *client, struct data_peer *peer, int lane, struct data_link **made) {
    struct addrinfo *found = NULL;
    uint64_t life = peer->life;
    char *host = strdup(peer->host);
    int port = peer->port, error = ENOMEM;
    int64_t deadline = now_ms() + client->stall_ms;
    if (host == NULL) return error;
    pthread_mutex_unlock(&client->lock);
    error = resolve(host, port, &found);
    free(host);
    pthread_mutex_lock(&client->lock);
    if (error == 0) error = EIO;
    int64_t not_yet_until = now_ms() + MEMBER_WAIT_MS;
    for (int tries = 0; found != NULL && peer->known && peer->life == life && !atomic_load(&client->stopping); tries++) {
        for (const struct addrinfo *next = found; next != NULL; next = next->ai_next) {
            error = connect_link(client, peer, lane, next, made);
            if (error == 0) break;
        }
        bool again =
            error == NOT_YET ? now_ms() < not_yet_until : (error == ECONNREFUSED || error == DATA_BROKEN) && tries + 1 < CONNECT_TRIES;
        if (!again || now_ms() > deadline) break;
        struct timespec until; /* it may be starting; anything that changes wakes us */
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (PAUSE_MS * 1000000L) << (tries < CONNECT_TRIES ? tries : CONNECT_TRIES);
        if (until.tv_nsec >= 1000000000) until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
        pthread_cond_timedwait(&client->changed, &client->lock, &until);
    }
    if (found != NULL) freeaddrinfo(found);
    if (error == NOT_YET) return EACCES;
    return error == 0 || error == EACCES || error == EPROTO || error == ENOMEM || error == EMFILE || error == ENFILE ? error : EIO;
}

int data_link_get(struct data_client *client, int32_t node, int lane, bool fresh, struct data_link **link) {
    int64_t deadline = now_ms() + client->stall_ms;
    int error = 0;
    *link = NULL;
    pthread_mutex_lock(&client->lock);
    struct data_peer *peer = find_peer(client, node);
    while (*link == NULL && error == 0) {
        if (atomic_load(&client->stopping)) error = ECANCELED;
        else if (peer == NULL || !peer->known) error = EIO;
        if (error != 0) break;
        struct data_link *idle = peer->links;
        while (idle != NULL && !(idle->idle && idle->lane == lane)) idle = idle->next;
        if (idle != NULL && fresh) {
            end_link(idle); /* the one before it was dead, so this one is likely to be */
        } else if (idle != NULL) {
            idle->idle = false;
            *link = idle;
        } else if (peer->count[lane] < LINKS_MAX) {
            error = connect_peer(client, peer, lane, link);
        } else {
            struct timespec until;
            int64_t left = deadline - now_ms();
            if (left <= 0) {
                error = EIO;
                break;
            }
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += left / 1000 + 1;
            pthread_cond_timedwait(&client->changed, &client->lock, &until);
        }
    }
    pthread_mutex_unlock(&client->lock);
    return error;
}

void data_link_put(struct data_client *client, struct data_link *link, bool broken) {
    pthread_mutex_lock(&client->lock);
    if (broken || !link->peer->known || atomic_load(&client->stopping)) {
        end_link(link);
    } else {
        link->idle = link->used = true;
        link->since_ms = now_ms();
    }
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

/* ── questions and answers ── */

int data_ask(struct data_link *link, const struct data_request *request, const void *bytes) {
    uint8_t head[REQUEST_BYTES] = {0};
    head[0] = request->op;
    head[1] = request->flag;
    put_le(head + 4, request->stripe, 4);
    put_le(head + 8, request->ino, 8);
    put_le(head + 16, (uint64_t)request->index, 8);
    put_le(head + 24, request->offset, 8);
    put_le(head + 32, request->length, 8);
    put_le(head + 40, request->extra, 8);
    if (request->path != NULL) return data_send(link->fd, head, sizeof head, request->path, request->extra, false);
    return data_send(link->fd, head, sizeof head, bytes, bytes == NULL ? 0 : request->length, false);
}

int data_hear(struct data_link *link, struct data_reply *reply) {
    uint8_t head[REPLY_BYTES];
    int error = data_receive(link->fd, head, sizeof head);
    if (error != 0) return error;
    reply->error = (int)(get_le(head, 4) & INT32_MAX);
    reply->mode = (unsigned)get_le(head + 4, 4);
    reply->length = get_le(head + 8, 8);
    reply->value = get_le(head + 16, 8);
    return 0;
}

int data_call(struct data_client *client, int32_t node, int lane, const struct data_request *request, const void *bytes,
              struct data_reply *reply, void *to, size_t room) {
    struct data_link *link;
    int error = DATA_BROKEN;
    for (int tries = 0; error == DATA_BROKEN && tries < 2; tries++) {
        bool used;
        error = data_link_get(client, node, lane, tries > 0, &link);
        if (error != 0) break;
        used = link->used;
        error = data_ask(link, request, bytes);
        if (error == 0) error = data_hear(link, reply);
        if (error == 0 && reply->length > room) error = EPROTO;
        if (error == 0 && reply->length > 0) error = data_receive(link->fd, to, reply->length);
        data_link_put(client, link, error != 0);
        if (!used) break; /* a new connection that breaks is no accident of time */
    }
    return error != 0 ? data_result(client, error) : reply->error;
}

int data_call_stat(struct data_client *client, int32_t node, int lane, const struct data_request *request, struct data_stat *stat) {
    uint8_t bytes[STAT_BYTES];
    struct data_reply reply;
    int error = data_call(client, node, lane, request, NULL, &reply, bytes, sizeof bytes);
    if (error == 0 && reply.length != sizeof bytes) error = EPROTO;
    if (error == 0)
        *stat = (struct data_stat){get_le(bytes, 8), get_le(bytes + 8, 8), (int64_t)get_le(bytes + 16, 8), (int64_t)get_le(bytes + 24, 8),
                                   (int64_t)get_le(bytes + 32, 8)};
    return error;
}

/* ── files ── */

/* All that follows an answer: the digest if there is one, and the bytes. EBADMSG: they do not belong together. */
static int receive_file(int socket, struct data_fetch *fetch, uint64_t size, const struct data_reply *reply) {
    struct digests_run run;
    uint8_t told[XXH3_BYTES];
    fetch->checked = (reply->mode & MODE_CHECKED) != 0;
    const struct data_sink sink = {.file = fetch->file, .digest = fetch->checked ? &run : NULL};
    digests_begin(&run);
    int error = fetch->checked ? data_receive(socket, told, sizeof told) : 0;
    bool holes = (reply->mode & MODE_HOLES) != 0;
    if (error == 0 && holes && ftruncate(fetch->file, 0) != 0) error = errno; /* of an attempt before nothing may be left in the holes */
    if (error == 0 && ftruncate(fetch->file, (off_t)size) != 0) error = errno; /* known to be long, it gets large pages */
    if (error != 0) return error;
    if (holes) error = data_receive_extents(socket, &sink, size);
    else error = data_receive_range(socket, &sink, fetch->request.offset, reply->length);
    digests_end(&run, fetch->digest);
    return error == 0 && fetch->checked && memcmp(told, fetch->digest, sizeof told) != 0 ? EBADMSG : error;
}

static int fetch_once(struct data_client *client, int32_t node, struct data_fetch *fetch) {
    const struct data_request *request = &fetch->request;
    bool all = (request->flag & READ_HOLES) != 0;
    struct data_link *link;
    struct data_reply reply;
    int error = DATA_BROKEN;
    for (int tries = 0; error == DATA_BROKEN && tries < 2; tries++) {
        error = data_link_get(client, node, LANE_PARTS, tries > 0, &link);
        if (error != 0) break;
        bool used = link->used, asked = false;
        error = data_ask(link, request, NULL);
        if (error == 0) error = data_hear(link, &reply);
        int fault = error == 0 ? reply.error : 0;
        if (error == 0 && fault == 0) {
            uint64_t size = all ? reply.value : fetch->size;
            bool holes = all && (reply.mode & MODE_HOLES) != 0;
            if (size > INT64_MAX || (!holes && reply.length > request->length)) error = EPROTO;
            else if (all ? fetch->size != UINT64_MAX && size != fetch->size : reply.length != request->length) error = ESTALE;
            else if (all && !holes && reply.length != size) error = EPROTO;
            else if (fetch->room != NULL && !fetch->room(fetch->context, reply.length)) error = ENOSPC;
            asked = true;
            if (error == 0) error = receive_file(link->fd, fetch, size, &reply);
            if (error == 0) fetch->size = size;
        }
        data_link_put(client, link, error != 0 && error != EBADMSG);
        if (error == 0) error = fault;
        if (!used || asked) break;
    }
    return data_result(client, error);
}

static struct data_request about(const struct data_request *request, uint8_t flag) {
    return (struct data_request){
        .op = OP_DIGEST, .flag = flag, .ino = request->ino, .index = request->index, .path = request->path, .extra = request->extra};
}

int data_fetch_digest(struct data_client *client, int32_t node, const struct data_request *request, uint8_t digest[XXH3_BYTES]) {
    const struct data_request question = about(request, 0);
    struct data_reply reply;
    int error = data_call(client, node, LANE_PARTS, &question, NULL, &reply, digest, XXH3_BYTES);
    return error == 0 && reply.length != XXH3_BYTES ? EPROTO : error;
}

int data_fetch_suspect(struct data_client *client, int32_t node, const struct data_request *request) {
    const struct data_request question = about(request, 1);
    struct data_reply reply;
    int error = data_call(client, node, LANE_PARTS, &question, NULL, &reply, NULL, 0);
    return error == 0 && reply.value == 0 ? ESTALE : error;
}

int data_fetch(struct data_client *client, int32_t node, struct data_fetch *fetch) {
    uint64_t size = fetch->size;
    int error = fetch_once(client, node, fetch);
    if (error != EBADMSG || !fetch->checked) return error;
    error = data_fetch_suspect(client, node, &fetch->request);
    if (error != 0) return error;
    fetch->size = size; /* it was damaged on its way */
    error = fetch_once(client, node, fetch);
    return error == EBADMSG ? EIO : error;
}

static struct data_request read_stored(const char *path, uint64_t size) {
    return (struct data_request){
        .op = OP_READ, .flag = READ_CHECKED | READ_HOLES, .index = -1, .length = size, .path = path, .extra = strlen(path)};
}

int data_fetch_stored(struct data_client *client, int32_t node, const char *path, int file, uint64_t size, uint8_t digest[XXH3_BYTES],
                      bool *checked) {
    struct data_fetch fetch = {.request = read_stored(path, size), .file = file, .size = size};
    int error = data_fetch(client, node, &fetch);
    *checked = error == 0 && fetch.checked;
    memcpy(digest, fetch.digest, XXH3_BYTES);
    return error;
}

int data_read_stored(struct data_client *client, int32_t node, const char *path, void *to, uint64_t size) {
    struct data_request request = read_stored(path, size);
    struct data_reply reply;
    uint8_t told[XXH3_BYTES], taken[XXH3_BYTES];
    struct digests_run run;
    request.flag = READ_ANY; /* and its digest by itself */
    for (int tries = 0; tries < 2; tries++) {
        int error = data_fetch_digest(client, node, &request, told);
        if (error == 0) error = data_call(client, node, LANE_PARTS, &request, NULL, &reply, to, size);
        if (error == 0 && (reply.value != size || reply.length != size)) error = ESTALE;
        if (error != 0) return error;
        digests_begin(&run);
        digests_add(&run, to, size);
        digests_end(&run, taken);
        if (memcmp(told, taken, sizeof told) == 0) return 0;
        error = data_fetch_suspect(client, node, &request);
        if (error != 0) return error;
    }
    return EIO;
}
