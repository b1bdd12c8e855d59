/* The handshake of data connections without Python, for the sanitisers: both sides as bytes, and a data server with strangers at its port. */
#include "check.h"
#include "common/bytes.h"
#include "data/fsio.h"
#include "data/peers/client.h"
#include "data/peers/handshake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t key[HANDSHAKE_KEY_BYTES] = "thirty-two bytes that are secret", other_key[HANDSHAKE_KEY_BYTES] = "others";

/* ── bytes ── */

static struct handshake begun(void) {
    struct handshake shake;
    struct handshake_hello hello = {.lane = 1, .id = 3, .incarnation = 33, .server_id = 4, .server_incarnation = 44}, read;
    CHECK(handshake_write_hello(&shake, &hello) == 0 && handshake_read_hello(&shake, &read));
    CHECK(read.lane == 1 && read.id == 3 && read.incarnation == 33 && read.server_id == 4 && read.server_incarnation == 44);
    return shake;
}

static void test_both_sides_prove_themselves(void) {
    struct handshake shake = begun(), again = begun();
    uint8_t proof[HANDSHAKE_PROOF_BYTES];
    CHECK(memcmp(shake.hello + 40, again.hello + 40, HANDSHAKE_NONCE_BYTES) != 0); /* nonces are used once */
    CHECK(handshake_write_challenge(&shake, key) == 0);
    CHECK(handshake_check_challenge(&shake, other_key, proof) == HANDSHAKE_WRONG_KEY);
    CHECK(handshake_check_challenge(&shake, key, proof) == HANDSHAKE_OK && handshake_check_proof(&shake, key, proof));
    CHECK(!handshake_check_proof(&shake, other_key, proof));
    CHECK(!handshake_check_proof(&shake, key, shake.challenge + 40)); /* the server's proof is not the connector's */
    for (size_t bit = 0; bit < 8 * sizeof shake.hello; bit += 5) { /* all that was said is part of it */
        struct handshake changed = shake;
        changed.hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(!handshake_check_proof(&changed, key, proof));
        CHECK(handshake_check_challenge(&changed, key, changed.challenge) != HANDSHAKE_OK);
    }
    for (size_t byte = 0; byte < 40; byte++) {
        struct handshake changed = shake;
        changed.challenge[byte] ^= 1;
        CHECK(!handshake_check_proof(&changed, key, proof));
    }
    CHECK(handshake_write_challenge(&shake, key) == 0 && !handshake_check_proof(&shake, key, proof)); /* a proof that was heard before */
    handshake_write_refusal(shake.challenge, HANDSHAKE_WRONG_VERSION);
    CHECK(handshake_check_challenge(&shake, key, proof) == HANDSHAKE_WRONG_VERSION);
    memset(shake.challenge, 0xff, sizeof shake.challenge);
    CHECK(handshake_check_challenge(&shake, key, proof) == -1);
}

/* ── a server ── */

static struct fsio *serve(int32_t node, const uint8_t *its_key) {
    char error[256], root[256];
    snprintf(root, sizeof root, "%s/%d", top, node);
    mkdir(root, 0700);
    struct fsio_options options = {
        .node = node, .incarnation = 40, .root = root, .store = top, .listen = "127.0.0.1", .key = its_key, .threads = 1};
    struct fsio *io = fsio_new(&options, error, sizeof error);
    CHECK(io != NULL);
    return io;
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    data_socket_options(fd, 20000);
    return fd;
}

/* Read the stored file with a client of its own; 0 or an errno. */
static int read_as(int port, uint64_t id, uint64_t incarnation, const uint8_t *its_key, int32_t node, uint64_t node_incarnation,
                   const char *path) {
    struct data_client client = {0};
    char content[16];
    data_client_begin(&client, id, incarnation, its_key);
    data_set_peer(&client, node, node_incarnation, "127.0.0.1", port);
    int error = data_read_stored(&client, node, path, content, 6);
    CHECK(error != 0 || memcmp(content, "stored", 6) == 0);
    data_client_end(&client);
    return error;
}

static void test_members_and_clients(struct fsio *io, int port) {
    const uint64_t client = DATA_CLIENTS_FROM + 5;
    CHECK(read_as(port, client, 0, key, 4, 40, "a/file") == 0);
    CHECK(read_as(port, client, 0, key, 4, 0, "a/file") == 0);
    CHECK(read_as(port, client, 0, other_key, 4, 40, "a/file") == EACCES);
    CHECK(read_as(port, client, 0, NULL, 4, 40, "a/file") == EACCES);
    CHECK(read_as(port, client, 0, key, 5, 40, "a/file") == EIO); /* another node is wanted */
    CHECK(read_as(port, client, 0, key, 4, 39, "a/file") == EIO); /* or its earlier life */
    const char *bad[] = {"../4", "a/../../x", "/etc/passwd", "a//file", "a/./file", "a/file/", "a", "link", "dirlink/file", "absent", "."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(read_as(port, client, 0, key, 4, 40, bad[i]) != 0);
    CHECK(read_as(port, client, 0, key, 4, 40, "a/longer") == ESTALE);
    fsio_set_peer(io, 3, 33, "127.0.0.1", 0);
    CHECK(read_as(port, 3, 33, key, 4, 40, "a/file") == 0);
    CHECK(read_as(port, 3, 32, key, 4, 40, "a/file") == EACCES); /* an incarnation that is dead */
    fsio_forget_peer(io, 3);
    CHECK(read_as(port, 3, 33, key, 4, 40, "a/file") == EACCES);
}

/* The words of a connector are of no use to a listener that repeats them; nor are the server's own to itself. */
static void test_replays(struct fsio *io, int port) {
    struct handshake shake, second;
    struct handshake_hello hello = {.lane = 0, .id = 3, .incarnation = 33, .server_id = 4};
    uint8_t proof[HANDSHAKE_PROOF_BYTES], welcome[HANDSHAKE_WELCOME_BYTES], byte;
    fsio_set_peer(io, 3, 33, "127.0.0.1", 0);
    int fd = dial(port);
    CHECK(handshake_write_hello(&shake, &hello) == 0 && data_send(fd, shake.hello, sizeof shake.hello, NULL, 0, false) == 0);
    CHECK(data_receive(fd, shake.challenge, sizeof shake.challenge) == 0);
    CHECK(handshake_check_challenge(&shake, key, proof) == HANDSHAKE_OK && data_send(fd, proof, sizeof proof, NULL, 0, false) == 0);
    CHECK(data_receive(fd, welcome, sizeof welcome) == 0 && handshake_read_welcome(welcome) == HANDSHAKE_OK);
    close(fd);
    fd = dial(port); /* the same bytes again */
    CHECK(data_send(fd, shake.hello, sizeof shake.hello, proof, sizeof proof, false) == 0);
    CHECK(data_receive(fd, second.challenge, sizeof second.challenge) == 0);
    CHECK(data_receive(fd, welcome, sizeof welcome) == 0 && handshake_read_welcome(welcome) == HANDSHAKE_WRONG_KEY);
    CHECK(recv(fd, &byte, 1, 0) == 0);
    close(fd);
    fd = dial(port); /* the server's own proof, given back to it; and a request behind it that nobody reads */
    int mirror = dial(port);
    CHECK(data_send(fd, shake.hello, sizeof shake.hello, NULL, 0, false) == 0);
    CHECK(data_receive(fd, second.challenge, sizeof second.challenge) == 0);
    CHECK(data_send(mirror, second.challenge, sizeof second.challenge, NULL, 0, false) == 0);
    CHECK(data_receive(mirror, &byte, 1) != 0 || byte == 'A');
    CHECK(data_send(fd, second.challenge + 40, HANDSHAKE_PROOF_BYTES, second.challenge, 48, false) == 0);
    CHECK(data_receive(fd, welcome, sizeof welcome) == 0 && handshake_read_welcome(welcome) == HANDSHAKE_WRONG_KEY);
    close(fd);
    close(mirror);
    fsio_forget_peer(io, 3);
}

/* Strangers who send nonsense, a part of a hello, a wrong version, or nothing, in hundreds: the next read works. */
static void test_garbage(int port) {
    uint8_t junk[300];
    int silent[600];
    struct handshake shake;
    for (int i = 0; i < 600; i++) silent[i] = dial(port);
    for (int i = 0; i < 60; i++) {
        int fd = dial(port);
        for (unsigned j = 0; j < sizeof junk; j++) junk[j] = (unsigned char)rand();
        if (i % 2) put_le(junk, HANDSHAKE_MAGIC, 4);
        if (i % 4 == 3) put_le(junk + 4, HANDSHAKE_VERSION, 2);
        if (i % 8 == 7) put_le(junk + 6, (uint64_t)(i % 3), 2);
        (void)!send(fd, junk, (size_t)(i * 5 + 1), MSG_NOSIGNAL);
        close(fd);
    }
    int fd = dial(port);
    struct handshake_hello hello = {.lane = 9};
    CHECK(handshake_write_hello(&shake, &hello) == 0 && data_send(fd, shake.hello, sizeof shake.hello, NULL, 0, false) == 0);
    CHECK(data_receive(fd, shake.challenge, sizeof shake.challenge) == 0);
    CHECK(handshake_check_challenge(&shake, key, junk) == HANDSHAKE_WRONG_VERSION);
    close(fd);
    CHECK(read_as(port, DATA_CLIENTS_FROM, 0, key, 4, 40, "a/file") == 0);
    for (int i = 0; i < 600; i++) close(silent[i]);
}

/* A server without the key is found out before a request is sent. */
static void test_false_server(void) {
    struct fsio *liar = serve(6, other_key);
    CHECK(read_as(fsio_port(liar), DATA_CLIENTS_FROM, 0, key, 6, 40, "a/file") == EACCES);
    fsio_free(liar);
}

static void test_fetches(struct fsio *io) {
    struct fsio *there = serve(7, key);
    fsio_set_peer(io, 7, 0, "127.0.0.1", fsio_port(there));
    fsio_set_peer(there, 4, 40, "127.0.0.1", 0);
    const char *paths[] = {"a/file", "absent"};
    for (uint64_t i = 0; i < 2; i++) {
        struct pollfd set = {.fd = fsio_event_fd(io), .events = POLLIN};
        CHECK(fsio_fetch_stored(io, i, 7, paths[i], 6, at("got/here/file"), 0440, 0) == 0 && poll(&set, 1, 30000) == 1);
        struct fsio_event *event = fsio_take(io);
        CHECK(event->kind == FSIO_EVENT_FETCHED && event->serial == i && event->error == (i == 0 ? 0 : ENOENT) && event->next == NULL);
        free(event);
    }
    struct stat found;
    CHECK(entries(at("got/here")) == 1 && stat(at("got/here/file"), &found) == 0 && found.st_size == 6 && (found.st_mode & 0777) == 0440);
    CHECK(fsio_fetch_stored(io, 9, 7, "", 6, at("x"), 0440, 0) == EINVAL);
    fsio_free(there);
}

int main(void) {
    make_top(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", "handshake");
    int before = entries("/proc/self/fd");
    char error[256];
    CHECK(mkdir(at("a"), 0700) == 0 && symlink(at("a/file"), at("link")) == 0 && symlink(at("a"), at("dirlink")) == 0);
    const char *files[] = {"a/file", "a/longer"}, *contents[] = {"stored", "stored and more"};
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(at(files[i]), "w");
        CHECK(file != NULL && fputs(contents[i], file) >= 0 && fclose(file) == 0);
    }
    test_both_sides_prove_themselves();
    struct fsio *io = serve(4, key);
    int port = fsio_port(io);
    CHECK(port > 0);
    test_members_and_clients(io, port);
    test_replays(io, port);
    test_garbage(port);
    test_false_server();
    test_fetches(io);
    fsio_free(io);
    struct fsio_options keyless = {.root = top, .listen = "127.0.0.1", .threads = 1};
    CHECK(fsio_new(&keyless, error, sizeof error) == NULL && strstr(error, "key") != NULL);
    CHECK(entries("/proc/self/fd") == before);
    remove_top();
    return passed();
}
