/* A mount without a kernel, for the sanitisers: requests come over a socket pair, as they would be and damaged. Metadata and data are real. */
#include "check.h"
#include "fuse/fuse.h"
#include "fuse/fuse_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTITIONS = 8, BYTES = 1 << 17 };

struct bench {
    struct meta *meta;
    struct fsio *io;
    struct amfs_fuse *mount;
    int fd; /* the kernel's end */
    uint64_t unique;
};

static struct bench start(bool no_open) {
    struct bench it = {.unique = 2};
    int32_t owners[PARTITIONS] = {0};
    int ends[2], size = 1 << 20;
    char error[256];
    struct amfs_fuse_options options = {.passthrough = true, .no_open = no_open, .entry_ns = 1000000000, .attr_ns = 1000000000};
    it.meta = meta_new(0);
    CHECK(it.meta != NULL && meta_set_table(it.meta, owners, PARTITIONS, 1) == 0);
    it.io = fsio_new(&(struct fsio_options){.root = top, .threads = 1, .opens = meta_opens(it.meta)}, error, sizeof error);
    CHECK(it.io != NULL);
    fsio_set_table(it.io, owners, PARTITIONS, NULL, 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    it.fd = ends[0];
    it.mount = amfs_fuse_new(ends[1], it.meta, it.io, 0, &options, error, sizeof error);
    CHECK(it.mount != NULL);
    amfs_fuse_set_alone(it.mount, true);
    return it;
}

static void end(struct bench *it) {
    amfs_fuse_free(it->mount);
    close(it->fd);
    char what[256] = "";
    int sound = meta_check(it->meta, what, sizeof what);
    if (sound != 0) fprintf(stderr, "%s\n", what);
    CHECK(sound == 0);
    fsio_stop(it->io);
    fsio_free(it->io);
    meta_free(it->meta);
}

/* ── requests ── */

static char request[BYTES], reply[BYTES];

static size_t pack(struct bench *it, uint32_t opcode, uint64_t ino, const void *body, size_t size, const void *more, size_t more_size) {
    struct wire_in header = {
        .length = (uint32_t)(sizeof header + size + more_size), .opcode = opcode, .unique = it->unique += 2, .ino = ino};
    memcpy(request, &header, sizeof header);
    if (size > 0) memcpy(request + sizeof header, body, size);
    if (more_size > 0) memcpy(request + sizeof header + size, more, more_size);
    return header.length;
}

/* The answer's error (positive) and body; -1: none within the time. */
static int await(struct bench *it, int patience_ms, size_t *size) {
    struct pollfd wait = {.fd = it->fd, .events = POLLIN};
    struct wire_out *out = (void *)reply;
    for (;;) {
        if (poll(&wait, 1, patience_ms) != 1) return -1;
        ssize_t got = recv(it->fd, reply, sizeof reply, MSG_TRUNC); /* a damaged read may ask for more than there is room for */
        CHECK(got >= (ssize_t)sizeof *out && out->length == (uint32_t)got);
        if (out->unique != it->unique) continue; /* of an earlier one that was not waited for */
        *size = (size_t)got - sizeof *out;
        return -out->error;
    }
}

static int ask(struct bench *it, uint32_t opcode, uint64_t ino, const void *body, size_t size, const void *more, size_t more_size) {
    size_t length = pack(it, opcode, ino, body, size, more, more_size), got;
    CHECK(send(it->fd, request, length, 0) == (ssize_t)length);
    int error = await(it, 20000, &got);
    CHECK(error >= 0);
    return error;
}

static const void *body_of(void) { return reply + sizeof(struct wire_out); }

static void greet(struct bench *it) {
    struct wire_init_in hello = {.major = 7, .minor = 45, .max_readahead = 131072, .flags = 0xffffffff, .flags2 = 0xffffffff};
    CHECK(ask(it, WIRE_GETATTR, 1, "", 0, NULL, 0) == ENOSYS); /* nothing before the greeting */
    CHECK(ask(it, WIRE_INIT, 0, &hello, sizeof hello, NULL, 0) == 0);
    const struct wire_init_out *out = body_of();
    CHECK(out->major == 7 && out->max_write == 1 << 20 && out->max_stack_depth <= 1);
}

static uint64_t create(struct bench *it, const char *name, uint64_t *fh) {
    struct wire_create_in in = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0644};
    CHECK(ask(it, WIRE_CREATE, 1, &in, sizeof in, name, strlen(name) + 1) == 0);
    const struct wire_entry_out *entry = body_of();
    const struct wire_open_out *open = (const void *)(entry + 1);
    CHECK((open->flags & OPENED_PASSTHROUGH) == 0); /* a socket grants none */
    *fh = open->fh;
    return entry->ino;
}

/* ── what must work ── */

static void test_life(bool no_open) {
    struct bench it = start(no_open);
    uint64_t fh, ino;
    greet(&it);
    ino = create(&it, "a", &fh);
    struct wire_read_in io = {.fh = fh, .offset = 3, .size = 5};
    CHECK(ask(&it, WIRE_WRITE, ino, &io, sizeof io, "hello", 5) == 0 && ((const struct wire_write_out *)body_of())->size == 5);
    struct wire_getattr_in about = {0};
    CHECK(ask(&it, WIRE_GETATTR, ino, &about, sizeof about, NULL, 0) == 0);
    CHECK(((const struct wire_attr_out *)body_of())->attr.size == 8 && ((const struct wire_attr_out *)body_of())->attr_s == 0);
    io.offset = 0;
    io.size = 100;
    CHECK(ask(&it, WIRE_READ, ino, &io, sizeof io, NULL, 0) == 0 && memcmp(body_of(), "\0\0\0hello", 8) == 0);
    struct wire_setattr_in cut = {.valid = FATTR_SIZE, .size = 4};
    CHECK(ask(&it, WIRE_SETATTR, ino, &cut, sizeof cut, NULL, 0) == 0 && ((const struct wire_attr_out *)body_of())->attr.size == 4);
    CHECK(ask(&it, WIRE_UNLINK, 1, "a", 2, NULL, 0) == 0);
    CHECK(ask(&it, WIRE_READ, ino, &io, sizeof io, NULL, 0) == 0 && memcmp(body_of(), "\0\0\0h", 4) == 0); /* open still */
    struct wire_release_in release = {.fh = fh};
    CHECK(ask(&it, WIRE_RELEASE, ino, &release, sizeof release, NULL, 0) == 0);
    struct wire_forget_in forget = {.lookups = 1};
    size_t length = pack(&it, WIRE_FORGET, ino, &forget, sizeof forget, NULL, 0);
    CHECK(send(it.fd, request, length, 0) == (ssize_t)length);
    CHECK(ask(&it, WIRE_GETATTR, ino, &about, sizeof about, NULL, 0) == ESTALE);
    uint64_t used, limit, parts;
    fsio_usage(it.io, &used, &limit, &parts);
    CHECK(parts == 0);
    CHECK(ask(&it, WIRE_LOOKUP, 1, "a", 2, NULL, 0) == 0 &&
          ((const struct wire_entry_out *)body_of())->ino == 0); /* known not to be there */
    CHECK(ask(&it, 63, 1, "", 0, NULL, 0) == ENOSYS && ask(&it, 4000000000u, 1, "", 0, NULL, 0) == ENOSYS);
    end(&it);
}

/* Entries of every length, listed through buffers of every size. */
static void test_listing(void) {
    struct bench it = start(false);
    char name[300];
    greet(&it);
    struct wire_mknod_in in = {.mode = S_IFREG | 0600};
    for (size_t length = 1; length <= 255; length += 2) {
        memset(name, 'n', length);
        name[length] = '\0';
        CHECK(ask(&it, WIRE_MKNOD, 1, &in, sizeof in, name, length + 1) == 0);
    }
    memset(name, 'n', 256);
    name[256] = '\0';
    CHECK(ask(&it, WIRE_MKNOD, 1, &in, sizeof in, name, 257) == ENAMETOOLONG);
    for (uint32_t room = 512; room < 70000; room = room * 2 + 13) {
        for (int plus = 0; plus < 2; plus++) {
            struct wire_read_in list = {.size = room};
            int seen = 0;
            for (;;) {
                size_t length = pack(&it, plus ? WIRE_READDIRPLUS : WIRE_READDIR, 1, &list, sizeof list, NULL, 0), got;
                CHECK(send(it.fd, request, length, 0) == (ssize_t)length && await(&it, 20000, &got) == 0 && got <= room);
                if (got == 0) break;
                const char *at = body_of(), *last = at + got;
                while (at < last) {
                    const struct wire_dirent *entry = (const void *)(at + (plus ? sizeof(struct wire_entry_out) : 0));
                    list.offset = entry->offset;
                    at += ((plus ? sizeof(struct wire_entry_out) : 0) + WIRE_DIRENT + entry->length + 7) / 8 * 8;
                    seen++;
                }
                CHECK(at == last);
            }
            CHECK(seen == 128 + 2);
        }
    }
    end(&it);
}

/* Requests that need the poll loop are queued, answered once, and given up at the end. */
static void test_slow(void) {
    struct bench it = start(false);
    size_t size;
    greet(&it);
    struct wire_mkdir_in in = {.mode = 0755};
    size_t length = pack(&it, WIRE_MKDIR, 1, &in, sizeof in, "d", 2);
    CHECK(send(it.fd, request, length, 0) == (ssize_t)length);
    struct pollfd wait = {.fd = amfs_fuse_event_fd(it.mount), .events = POLLIN};
    struct amfs_fuse_request *taken = NULL;
    while (taken == NULL) {
        CHECK(poll(&wait, 1, 20000) == 1);
        taken = amfs_fuse_take(it.mount);
    }
    CHECK(taken->next == NULL && taken->op == FUSE_OP_MKDIR && strcmp(taken->name, "d") == 0 && taken->mode == (S_IFDIR | 0755));
    struct meta_attr attr = {.ino = 77, .mode = S_IFDIR | 0755, .nlink = 2};
    uint64_t unique = taken->unique;
    CHECK(amfs_fuse_reply_entry(it.mount, unique, &attr, true) == 0 && amfs_fuse_reply_entry(it.mount, unique, &attr, true) == ENOENT);
    CHECK(await(&it, 20000, &size) == 0 && size == sizeof(struct wire_entry_out) && ((const struct wire_entry_out *)body_of())->ino == 77);
    length = pack(&it, WIRE_MKDIR, 1, &in, sizeof in, "e", 2);
    CHECK(send(it.fd, request, length, 0) == (ssize_t)length);
    CHECK(poll(&wait, 1, 20000) == 1);
    amfs_fuse_stop(it.mount);
    CHECK(await(&it, 20000, &size) == EIO);
    amfs_fuse_stop(it.mount);
    end(&it);
}

/* ── damage ── */

static uint32_t seed = 1;
static uint32_t chance(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* Requests of every kind with bytes changed and ends cut off, in quick succession: the mount stays alive and its tables sound. Requests for the
 * poll loop are answered with an error. */
static void test_damage(bool no_open, int rounds) {
    struct bench it = start(no_open);
    uint64_t fh, ino;
    greet(&it);
    ino = create(&it, "f", &fh);
    for (int round = 0; round < rounds; round++) {
        char body[256];
        uint32_t opcode = 1 + chance(52);
        if (opcode == WIRE_INIT || opcode == WIRE_DESTROY) continue;
        for (size_t i = 0; i < sizeof body; i++) body[i] = (char)(chance(3) ? 0 : chance(256));
        uint64_t fhs[] = {0, fh, fh ^ 1, chance(1u << 20)};
        memcpy(body, &fhs[chance(4)], 8);
        if (chance(2)) memcpy(body + chance(9) * 8, "f\0g", 4);
        size_t size = chance(2) ? chance(sizeof body) : 8 * chance(12);
        uint64_t inos[] = {1, ino, ino + 1, chance(1u << 30)};
        size_t length = pack(&it, opcode, inos[chance(4)], body, size, NULL, 0);
        if (chance(50) == 0) memset(request + 38, 0xff, 2); /* more extensions than there are bytes */
        if (chance(50) == 0) length -= chance((uint32_t)length); /* not as long as it says */
        if (length == 0 || send(it.fd, request, length, MSG_DONTWAIT) < 0) CHECK(length == 0 || errno == EAGAIN);
        while (recv(it.fd, reply, sizeof reply, MSG_DONTWAIT) > 0) {}
        for (struct amfs_fuse_request *next, *one = amfs_fuse_take(it.mount); one != NULL; one = next) {
            next = one->next;
            if (one->unique != 0) amfs_fuse_reply_error(it.mount, one->unique, EIO);
            else amfs_fuse_request_free(one);
        }
    }
    while (recv(it.fd, reply, sizeof reply, MSG_DONTWAIT) > 0) {}
    struct wire_getattr_in about = {0};
    int error = ask(&it, WIRE_GETATTR, 1, &about, sizeof about, NULL, 0);
    CHECK(error == 0 && S_ISDIR(((const struct wire_attr_out *)body_of())->attr.mode));
    end(&it);
}

int main(void) {
    make_top("/tmp", "fuse");
    test_life(false);
    test_life(true);
    test_listing();
    test_slow();
    test_damage(false, 60000);
    test_damage(true, 60000);
    remove_top();
    return passed();
}
