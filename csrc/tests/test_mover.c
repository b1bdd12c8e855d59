/* The data mover without Python, for the sanitisers: real files, sockets and threads. Prints "ok N checks"; a failed check ends it. */
#include "check.h"
#include "data/mover.h"
#include "data/mover_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned char byte_at(uint64_t i) { return (unsigned char)(i * 31 + (i >> 13)); }

static void make_file(const char *path, uint64_t size) {
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    for (uint64_t i = 0; i < size; i++) putc(byte_at(i), file);
    CHECK(fclose(file) == 0);
}

static bool holds(const char *path, uint64_t size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    uint64_t i = 0;
    int c;
    while ((c = getc(file)) != EOF && c == byte_at(i)) i++;
    fclose(file);
    return c == EOF && i == size;
}

static int open_descriptors(void) { return entries("/proc/self/fd"); }

/* The next completion, alone. */
static struct mover_done *wait_one(struct mover *mover) {
    struct pollfd set = {.fd = mover_fd(mover), .events = POLLIN};
    CHECK(poll(&set, 1, 60000) == 1);
    struct mover_done *done = mover_take(mover);
    CHECK(done != NULL && done->next == NULL);
    return done;
}

static void expect_fine(struct mover *mover, uint64_t serial, uint64_t bytes) {
    struct mover_done *done = wait_one(mover);
    if (done->error != NULL) fprintf(stderr, "unexpected: %s\n", done->error);
    CHECK(done->serial == serial && done->error == NULL && done->bytes == bytes);
    mover_done_free(done);
}

static void expect_error(struct mover *mover, uint64_t serial, const char *part) {
    struct mover_done *done = wait_one(mover);
    if (done->error == NULL || strstr(done->error, part) == NULL) fprintf(stderr, "got: %s\n", done->error ? done->error : "(fine)");
    CHECK(done->serial == serial && done->error != NULL && strstr(done->error, part) != NULL);
    mover_done_free(done);
}

static struct mover *start(const char *address) {
    char error[256];
    struct mover *mover = mover_new(2, address, error, sizeof error);
    CHECK(mover != NULL);
    return mover;
}

static void test_copies(void) {
    struct mover *mover = start("");
    struct stat found;
    uint64_t sizes[] = {0, 1, 4095, 4096, 1 << 20, (9 << 20) + 7};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make_file(at("source"), sizes[i]);
        CHECK(mover_copy(mover, i, at("source"), at("a/b/copy"), 0440, 1) == 0);
        expect_fine(mover, i, sizes[i]);
        CHECK(holds(at("a/b/copy"), sizes[i]) && stat(at("a/b/copy"), &found) == 0 && (found.st_mode & 07777) == 0440);
    }
    CHECK(entries(at("a/b")) == 1);
    mover_copy(mover, 1, "/proc/self/status", at("a/status"), 0644, 1); /* says it is empty and is not */
    struct mover_done *done = wait_one(mover);
    CHECK(done->error == NULL && done->bytes > 100);
    mover_done_free(done);
    mover_copy(mover, 2, at("absent"), at("a/x"), 0644, 1);
    expect_error(mover, 2, "absent: No such file");
    mover_copy(mover, 3, at("a"), at("a/x"), 0644, 1);
    expect_error(mover, 3, "is a directory");
    CHECK(mkfifo(at("pipe"), 0600) == 0);
    mover_copy(mover, 4, at("pipe"), at("a/x"), 0644, 1);
    expect_error(mover, 4, "not a regular file");
    mover_copy(mover, 5, at("source"), at("nodir/x"), 0644, 0);
    expect_error(mover, 5, "nodir/x: No such file");
    mover_copy(mover, 6, at("source"), at("source/x"), 0644, 1);
    expect_error(mover, 6, "source");
    mover_copy(mover, 7, at("source"), at("a/b"), 0644, 1);
    expect_error(mover, 7, "rename");
    CHECK(entries(at("a")) == 2);
    mover_free(mover);
}

static void test_fetches(void) {
    struct mover *server = start("127.0.0.1"), *client = start("");
    uint8_t ticket[MOVER_TICKET_BYTES];
    uint64_t sizes[] = {0, 1, 65536, 256 << 10, (256 << 10) + 1, 2 << 20, (2 << 20) + 1, (5 << 20) + 3};
    int port = mover_port(server);
    CHECK(port > 0 && mover_port(client) == 0 && mover_offer(client, "/x", ticket) != 0);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make_file(at("source"), sizes[i]);
        CHECK(mover_offer(server, at("source"), ticket) == 0);
        CHECK(mover_fetch(client, i, "127.0.0.1", port, ticket, sizes[i], at("got/here/file"), 0444) == 0);
        expect_fine(client, i, sizes[i]);
        CHECK(holds(at("got/here/file"), sizes[i]) && entries(at("got/here")) == 1);
        CHECK(unlink(at("got/here/file")) == 0); /* a file that is there would stay */
    }
    mover_fetch(client, 10, "127.0.0.1", port, ticket, 1, at("got/again"), 0444); /* a used ticket */
    expect_error(client, 10, "unknown, used or expired");
    mover_offer(server, at("source"), ticket);
    mover_fetch(client, 11, "127.0.0.1", port, ticket, 5, at("got/again"), 0444);
    expect_error(client, 11, "5242883 bytes there, not 5");
    mover_offer(server, at("absent"), ticket);
    mover_fetch(client, 12, "127.0.0.1", port, ticket, 5, at("got/again"), 0444);
    expect_error(client, 12, "gone there: No such file");
    mover_fetch(client, 13, "127.0.0.1", 1, ticket, 5, at("got/again"), 0444);
    expect_error(client, 13, "refused");
    CHECK(entries(at("got")) == 1);
    struct mover_counters counters;
    mover_read_counters(client, &counters);
    CHECK(counters.bytes_fetched == 1 + 65536 + (256 << 10) + (256 << 10) + 1 + (2 << 20) + (2 << 20) + 1 + (5 << 20) + 3);
    mover_free(client);
    mover_free(server);
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* Strangers who send nonsense, a part of a request, a wrong version, or nothing, in hundreds: the next fetch works. */
static void test_garbage(void) {
    struct mover *server = start("127.0.0.1"), *client = start("");
    uint8_t ticket[MOVER_TICKET_BYTES], junk[300], request[REQUEST_BYTES] = {0};
    int silent[300], port = mover_port(server);
    for (int i = 0; i < 300; i++) silent[i] = dial(port);
    for (int i = 0; i < 50; i++) {
        int fd = dial(port);
        for (unsigned j = 0; j < sizeof junk; j++) junk[j] = (unsigned char)rand();
        if (i % 2) put_le(junk, DATA_MAGIC, 4);
        if (i % 4 == 3) put_le(junk + 4, DATA_VERSION, 2);
        (void)!send(fd, junk, (size_t)(i * 6 + 1), MSG_NOSIGNAL);
        close(fd);
    }
    int fd = dial(port);
    uint8_t reply[REPLY_BYTES];
    put_le(request, DATA_MAGIC, 4);
    put_le(request + 4, 99, 2);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request);
    CHECK(recv(fd, reply, sizeof reply, MSG_WAITALL) == REPLY_BYTES && get_le(reply + 6, 2) == STATUS_WRONG_VERSION);
    close(fd);
    make_file(at("source"), 3 << 20);
    mover_offer(server, at("source"), ticket);
    mover_fetch(client, 1, "127.0.0.1", port, ticket, 3 << 20, at("after"), 0444);
    expect_fine(client, 1, 3 << 20);
    for (int i = 0; i < 300; i++) close(silent[i]);
    mover_free(client);
    mover_free(server);
}

struct liar {
    int listener, port;
    const char *say; /* bytes to answer with */
    size_t length, extra;
    bool hang;
};

/* A data port that lies: answers what it is told, then closes or stays silent until the client gives up. */
static void *lie(void *argument) {
    struct liar *liar = argument;
    uint8_t request[REQUEST_BYTES], byte;
    int fd = accept(liar->listener, NULL, NULL);
    CHECK(fd >= 0 && recv(fd, request, sizeof request, MSG_WAITALL) == REQUEST_BYTES);
    (void)!send(fd, liar->say, liar->length, MSG_NOSIGNAL);
    char *zeros = calloc(1, liar->extra + 1);
    (void)!send(fd, zeros, liar->extra, MSG_NOSIGNAL);
    free(zeros);
    while (liar->hang && recv(fd, &byte, 1, 0) > 0) continue;
    close(fd);
    return NULL;
}

static void fetch_from_liar(const char *say, size_t length, size_t extra, bool hang, bool stop, const char *expected) {
    struct liar liar = {.listener = socket(AF_INET, SOCK_STREAM, 0), .say = say, .length = length, .extra = extra, .hang = hang};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    uint8_t ticket[MOVER_TICKET_BYTES] = {0};
    CHECK(bind(liar.listener, (struct sockaddr *)&address, size) == 0 && listen(liar.listener, 1) == 0);
    getsockname(liar.listener, (struct sockaddr *)&address, &size);
    pthread_t thread;
    pthread_create(&thread, NULL, lie, &liar);
    struct mover *client = start("");
    mover_set_stall_ms(client, stop ? 60000 : 200);
    mover_fetch(client, 7, "127.0.0.1", ntohs(address.sin_port), ticket, 1 << 20, at("lies/file"), 0444);
    if (stop) {
        poll(NULL, 0, 100);
        mover_stop(client);
    }
    expect_error(client, 7, expected);
    CHECK(entries(at("lies")) == 0);
    mover_free(client);
    pthread_join(thread, NULL);
    close(liar.listener);
}

/* A fine answer, and then the file in drops: each is progress, though the whole takes longer than a stall. */
static void *drip(void *argument) {
    struct liar *slow = argument;
    uint8_t request[REQUEST_BYTES];
    char drop[1000] = {0};
    int fd = accept(slow->listener, NULL, NULL);
    CHECK(fd >= 0 && recv(fd, request, sizeof request, MSG_WAITALL) == REQUEST_BYTES);
    (void)!send(fd, slow->say, slow->length, MSG_NOSIGNAL);
    for (size_t sent = 0; sent < slow->extra; sent += sizeof drop) {
        poll(NULL, 0, 100);
        (void)!send(fd, drop, sizeof drop, MSG_NOSIGNAL);
    }
    (void)!recv(fd, drop, 1, 0); /* the other side ends it: it must not take our end for the file's */
    close(fd);
    return NULL;
}

static void test_slow_peer(const char *say, size_t length) {
    struct liar slow = {.listener = socket(AF_INET, SOCK_STREAM, 0), .say = say, .length = length, .extra = 15000};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    uint8_t ticket[MOVER_TICKET_BYTES] = {0};
    CHECK(bind(slow.listener, (struct sockaddr *)&address, size) == 0 && listen(slow.listener, 1) == 0);
    getsockname(slow.listener, (struct sockaddr *)&address, &size);
    pthread_t thread;
    pthread_create(&thread, NULL, drip, &slow);
    struct mover *client = start("");
    mover_set_stall_ms(client, 800);
    mover_fetch(client, 8, "127.0.0.1", ntohs(address.sin_port), ticket, slow.extra, at("slow"), 0444);
    expect_fine(client, 8, slow.extra);
    mover_free(client);
    pthread_join(thread, NULL);
    close(slow.listener);
}

static void test_liars(void) {
    uint8_t fine[REPLY_BYTES] = {0}, odd[REPLY_BYTES] = {0};
    put_le(fine, DATA_MAGIC, 4);
    put_le(fine + 4, DATA_VERSION, 2);
    memcpy(odd, fine, sizeof odd);
    put_le(odd + 6, 77, 2);
    mkdir(at("lies"), 0755);
    fetch_from_liar("", 0, 0, false, false, "without an answer");
    fetch_from_liar("HTTP/1.1 400 Bad Request\r\n\r\n", 28, 0, false, false, "not an amfs data port");
    fetch_from_liar((char *)odd, sizeof odd, 0, false, false, "unknown status 77");
    fetch_from_liar((char *)fine, sizeof fine, 300000, false, false, "after 300000 of 1048576 bytes");
    fetch_from_liar((char *)fine, sizeof fine, 1000, true, false, "no progress for too long");
    test_slow_peer((char *)fine, sizeof fine);
    fetch_from_liar("", 0, 0, true, true, "stopped");
}

static void test_stop(void) {
    struct mover *mover = start("127.0.0.1");
    make_file(at("source"), 1 << 20);
    for (uint64_t i = 0; i < 200; i++) mover_copy(mover, i, at("source"), at("stopped/copy"), 0644, 1);
    mover_stop(mover);
    mover_stop(mover);
    mover_copy(mover, 200, at("source"), at("stopped/copy"), 0644, 1);
    int count = 0, stopped = 0;
    struct mover_done *list = mover_take(mover);
    for (struct mover_done *done = list; done != NULL; done = done->next, count++) {
        CHECK(done->error == NULL || strcmp(done->error, "stopped") == 0);
        stopped += done->error != NULL;
    }
    mover_done_free(list);
    CHECK(count == 201 && stopped >= 1);
    mover_free(mover);
}

int main(void) {
    make_top("/tmp", "mover");
    int before = open_descriptors();
    test_copies();
    test_fetches();
    test_garbage();
    test_liars();
    test_stop();
    char error[256];
    CHECK(mover_new(0, "", error, sizeof error) == NULL && mover_new(1, "not.an.address", error, sizeof error) == NULL);
    CHECK(strstr(error, "not a numeric address") != NULL);
    CHECK(open_descriptors() == before);
    remove_top();
    return passed();
}
