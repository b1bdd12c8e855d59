/* The data plane without Python, for the sanitisers: several nodes in one process, many threads. Prints "ok N checks"; a failed check ends it. */
#include "check.h"
#include "data/fsio.h"
#include "data/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 3, PARTITIONS = 48, STRIPE = 16384, THREADS = 6 };

static struct fsio *node[NODES];

static const uint8_t key[FSIO_KEY_BYTES] = "thirty-two bytes that are secret";

static void introduce(int at, int of) { fsio_set_peer(node[of], at, 0, "127.0.0.1", fsio_port(node[at])); }

static void start(uint64_t limit) {
    int32_t owners[PARTITIONS];
    char path[256], error[256];
    static int generation;
    generation++;
    for (int i = 0; i < PARTITIONS; i++) owners[i] = i % NODES;
    for (int i = 0; i < NODES; i++) {
        snprintf(path, sizeof path, "%s/%d-%d", top, generation, i);
        CHECK(mkdir(path, 0700) == 0);
        struct fsio_options options = {
            .node = i, .root = path, .store = top, .listen = "127.0.0.1", .key = key, .threads = 2, .limit = limit};
        node[i] = fsio_new(&options, error, sizeof error);
        CHECK(node[i] != NULL && fsio_port(node[i]) > 0);
        fsio_set_stall_ms(node[i], 5000);
        fsio_set_table(node[i], owners, PARTITIONS, NULL, 0);
    }
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < NODES; j++)
            if (i != j) introduce(i, j);
}

static void end(void) {
    for (int i = 0; i < NODES; i++) fsio_free(node[i]);
}

static unsigned char byte_at(uint64_t ino, uint64_t i) { return (unsigned char)((ino * 7 + i * 31 + (i >> 11)) | 1); }

static void fill(unsigned char *to, uint64_t ino, uint64_t offset, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = byte_at(ino, offset + i);
}

static bool is_filled(const unsigned char *from, uint64_t ino, uint64_t offset, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (from[i] != byte_at(ino, offset + i)) return false;
    return true;
}

static struct fsio_event *wait_event(struct fsio *io) {
    struct pollfd set = {.fd = fsio_event_fd(io), .events = POLLIN};
    CHECK(poll(&set, 1, 30000) == 1);
    struct fsio_event *event = fsio_take(io);
    CHECK(event != NULL && event->next == NULL);
    return event;
}

static void expect_done(struct fsio *io, uint64_t serial, int error) {
    struct fsio_event *event = wait_event(io);
    if (event->error != error) fprintf(stderr, "job %llu: %s\n", (unsigned long long)serial, strerror(event->error));
    CHECK(event->kind == FSIO_EVENT_DONE && event->serial == serial && event->error == error);
    free(event);
}

/* ── one thing after another ── */

static struct fsio_handle *must_open(struct fsio *io, uint64_t ino, enum fsio_kind kind, int32_t at, uint64_t size, bool writing) {
    struct fsio_handle *handle = NULL;
    int error = fsio_open(io, ino, kind, at, STRIPE, size, writing, kind == FSIO_LOCAL && writing, &handle);
    if (error != 0) fprintf(stderr, "open: %s\n", strerror(error));
    CHECK(error == 0);
    return handle;
}

static void write_file(struct fsio *io, uint64_t ino, enum fsio_kind kind, size_t size) {
    unsigned char *bytes = malloc(size + 1);
    struct fsio_handle *handle = must_open(io, ino, kind, -1, 0, true);
    fill(bytes, ino, 0, size);
    CHECK(fsio_write(handle, bytes, size, 0) == 0 && fsio_close(handle) == 0);
    free(bytes);
}

static void read_file(struct fsio *io, uint64_t ino, enum fsio_kind kind, size_t size) {
    unsigned char *bytes = malloc(size + 100);
    struct fsio_handle *handle = must_open(io, ino, kind, -1, size, false);
    size_t got;
    CHECK(fsio_read(handle, bytes, size + 100, 0, &got) == 0 && got == size && is_filled(bytes, ino, 0, size));
    CHECK(fsio_close(handle) == 0);
    free(bytes);
}

static void test_travels(void) {
    uint64_t sizes[] = {0, 1, STRIPE, 3 * STRIPE + 5, 2000001}, used, limit, parts;
    int32_t all[] = {0, 1, 2};
    start(0);
    for (uint64_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t ino = 1000 + i;
        write_file(node[0], ino, FSIO_LOCAL, sizes[i]);
        CHECK(fsio_fetch(node[1], 1, ino, 0, sizes[i]) == 0);
        expect_done(node[1], 1, 0);
        read_file(node[1], ino, FSIO_LOCAL, sizes[i]);
        CHECK(fsio_restripe(node[1], 2, ino, STRIPE) == 0);
        expect_done(node[1], 2, 0);
        for (int n = 0; n < NODES; n++) read_file(node[n], ino, n == 0 ? FSIO_LOCAL : FSIO_STRIPED, sizes[i]);
        CHECK(fsio_gather(node[2], 3, ino, STRIPE, sizes[i]) == 0);
        expect_done(node[2], 3, 0);
        read_file(node[2], ino, FSIO_LOCAL, sizes[i]);
        CHECK(fsio_delete_everywhere(node[1], 4, ino, all, 3) == 0);
        expect_done(node[1], 4, 0);
    }
    for (int n = 0; n < NODES; n++) {
        fsio_usage(node[n], &used, &limit, &parts);
        CHECK(used == 0 && parts == 0);
    }
    CHECK(fsio_fetch(node[1], 9, 77, 0, 5) == 0);
    expect_done(node[1], 9, ENOENT);
    end();
}

static void test_growth(void) {
    enum { MIB = 1 << 20 };
    unsigned char *bytes = malloc(MIB), *found = malloc(MIB);
    size_t got;
    start(8 * MIB);
    struct fsio_handle *handle = must_open(node[1], 5, FSIO_LOCAL, -1, 0, true), *other = must_open(node[1], 5, FSIO_LOCAL, -1, 0, false);
    struct fsio_handle *remote = must_open(node[2], 5, FSIO_REMOTE, 1, 0, true);
    for (uint64_t at = 0; at < 16 * MIB; at += MIB) {
        fill(bytes, 5, at, MIB);
        CHECK(fsio_write(at / MIB % 2 == 0 ? handle : remote, bytes, MIB, at) == 0);
        CHECK(fsio_read(at / MIB % 3 == 0 ? other : remote, found, MIB, at, &got) == 0 && got == MIB && memcmp(bytes, found, MIB) == 0);
    }
    CHECK(fsio_close(remote) == 0 && fsio_close(handle) == 0 && fsio_close(other) == 0);
    bool grew = false;
    for (struct fsio_event *event = fsio_take(node[1]), *next; event != NULL; event = next) {
        next = event->next;
        grew |= event->kind == FSIO_EVENT_STRIPED && event->ino == 5 && event->serial == STRIPE;
        free(event);
    }
    CHECK(grew);
    read_file(node[0], 5, FSIO_STRIPED, 16 * MIB);
    end();
    free(bytes);
    free(found);
}

static bool is_lent(const struct fsio_lent *lent, uint64_t ino, uint64_t offset, size_t count) {
    bool right = lent->bytes == count;
    for (int i = 0; i < lent->count; offset += lent->parts[i++].iov_len)
        right &= is_filled(lent->parts[i].iov_base, ino, offset, lent->parts[i].iov_len);
    return right;
}

static void test_lent(void) {
    enum { SIZE = 80 * STRIPE + 5, STEP = 3 * STRIPE };
    struct fsio_lent lent, last;
    size_t most = 70 * STRIPE, memory = 0;
    unsigned char *bytes = malloc(most);
    start(0);
    write_file(node[0], 31, FSIO_STRIPED, SIZE);
    struct fsio_handle *handle = must_open(node[1], 31, FSIO_STRIPED, -1, SIZE, false);
    for (uint64_t at = 0; at + STEP < SIZE; at += STEP) {
        CHECK(fsio_read_in_place(handle, bytes, STEP, at, &lent) == 0 && is_lent(&lent, 31, at, STEP));
        for (int i = 0; i < lent.count; i++) memory += lent.pieces[i] != NULL;
        fsio_return(&lent);
    }
    CHECK(memory > 20); /* of 80 pieces, a third of which lies here: most of the rest was read ahead */
    CHECK(fsio_read_in_place(handle, bytes, most, 0, &lent) == EOPNOTSUPP &&
          fsio_read_in_place(handle, bytes, 1 << 30, 0, &lent) == EOPNOTSUPP);
    CHECK(fsio_read_in_place(handle, bytes, STEP, SIZE - 5, &lent) == 0 && is_lent(&lent, 31, SIZE - 5, 5));
    fsio_return(&lent);
    CHECK(fsio_read_in_place(handle, bytes, STEP, SIZE, &lent) == 0 && lent.bytes == 0 && lent.count == 0);
    fsio_return(&lent);
    CHECK(fsio_read_in_place(handle, bytes, STEP, 0, &last) == 0 &&
          fsio_close(handle) == 0); /* the caller that is answered may close it before we are through */
    read_file(node[1], 31, FSIO_STRIPED, SIZE);
    CHECK(is_lent(&last, 31, 0, STEP));
    fsio_return(&last);
    write_file(node[1], 32, FSIO_LOCAL, 5);
    handle = must_open(node[1], 32, FSIO_LOCAL, -1, 5, false);
    CHECK(fsio_read_in_place(handle, bytes, 5, 0, &lent) == EOPNOTSUPP && fsio_close(handle) == 0);
    end();
    free(bytes);
}

/* ── at once ── */

static atomic_bool going;
static _Atomic int failures;

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Makes files of its own, striped or local, and reads, writes and truncates them here or through another node. */
static void *hammer(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument, state = me * 77 + 1;
    size_t most = 300000, got;
    unsigned char *bytes = malloc(most), *found = malloc(most);
    for (int turn = 0; turn < 25; turn++) {
        uint64_t ino = (me + 1) * 100000 + (uint64_t)turn * 256;
        int home = (int)(next_random(&state) % NODES), guest = (int)(next_random(&state) % NODES);
        enum fsio_kind kind = turn % 2 == 0 ? FSIO_STRIPED : FSIO_LOCAL;
        struct fsio_handle *handle = must_open(node[home], ino, kind, -1, 0, true), *through;
        through = must_open(node[guest], ino, guest == home ? kind : FSIO_REMOTE, home, 0, true);
        size_t size = 0;
        for (int step = 0; step < 12; step++) {
            size_t at = next_random(&state) % (size + 1), count = next_random(&state) % (most - at) + 1;
            struct fsio_handle *one = next_random(&state) % 2 ? handle : through;
            switch (next_random(&state) % 4) {
            case 0:
                CHECK(fsio_truncate(one, at) == 0);
                size = at;
                break;
            case 1:
                fill(bytes, ino, at, count);
                CHECK(fsio_write(one, bytes, count, at) == 0);
                if (at + count > size) size = at + count;
                break;
            default:
                CHECK(fsio_read(one, found, count, at, &got) == 0);
                CHECK(got == (count < size - at ? count : size - at) && is_filled(found, ino, at, got));
            }
        }
        CHECK(fsio_close(through) == 0 && fsio_close(handle) == 0);
        if (kind == FSIO_STRIPED)
            for (int n = 0; n < NODES; n++) read_file(node[n], ino, FSIO_STRIPED, size);
        for (int n = 0; n < NODES; n++) CHECK(fsio_part_delete(node[n], ino) == 0);
    }
    free(bytes);
    free(found);
    return NULL;
}

/* Readers and writers of the same striped file, appending and overwriting with what stands there anyway. */
static void *share(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument, state = me + 5;
    enum { SIZE = 40 * STRIPE };
    unsigned char *bytes = malloc(SIZE);
    size_t got;
    int at = (int)(me % NODES);
    struct fsio_handle *handle = must_open(node[at], 424242, at == 0 ? FSIO_STRIPED : FSIO_REMOTE, 0, SIZE, true);
    for (int turn = 0; turn < 150; turn++) {
        uint64_t offset = next_random(&state) % SIZE;
        size_t count = next_random(&state) % (SIZE - offset) + 1;
        struct fsio_lent lent;
        if (turn % 5 == 1 && fsio_read_in_place(handle, bytes, count, offset, &lent) == 0) {
            CHECK(is_lent(&lent, 424242, offset, count));
            fsio_return(&lent);
        } else if (turn % 5 == 0) {
            fill(bytes, 424242, offset, count);
            CHECK(fsio_write(handle, bytes, count, offset) == 0);
        } else {
            CHECK(fsio_read(handle, bytes, count, offset, &got) == 0 && got == count && is_filled(bytes, 424242, offset, count));
        }
        if (turn % 50 == 0) CHECK(fsio_flush(handle) == 0);
    }
    CHECK(fsio_close(handle) == 0);
    free(bytes);
    return NULL;
}

static void run_threads(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void test_hammer(void) {
    start(0);
    run_threads(hammer);
    write_file(node[0], 424242, FSIO_STRIPED, 40 * STRIPE);
    struct fsio_handle *home = must_open(node[0], 424242, FSIO_STRIPED, -1, 40 * STRIPE, true);
    run_threads(share);
    CHECK(fsio_close(home) == 0);
    read_file(node[1], 424242, FSIO_STRIPED, 40 * STRIPE);
    end();
}

/* Reads and writes while peers are forgotten and introduced again: right bytes or an error, nothing else. */
static void *endure(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument, state = me + 11, ino = 7000 + me * 256;
    enum { SIZE = 12 * STRIPE };
    unsigned char *bytes = malloc(SIZE);
    size_t got;
    while (atomic_load(&going)) {
        struct fsio_handle *handle;
        int at = (int)(next_random(&state) % NODES);
        if (fsio_open(node[at], ino, FSIO_STRIPED, -1, STRIPE, SIZE, true, false, &handle) != 0) {
            failures++;
            continue;
        }
        fill(bytes, ino, 0, SIZE);
        if (fsio_write(handle, bytes, SIZE, 0) != 0 || fsio_flush(handle) != 0) failures++;
        else if (fsio_read(handle, bytes, SIZE, 0, &got) != 0) failures++;
        else CHECK(got == SIZE && is_filled(bytes, ino, 0, SIZE));
        fsio_close(handle);
        checks++;
    }
    free(bytes);
    return NULL;
}

static void test_peers_come_and_go(bool stop) {
    pthread_t threads[THREADS];
    struct timespec pause = {.tv_nsec = 20000000};
    start(0);
    atomic_store(&going, true);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, endure, (void *)i) == 0);
    for (int turn = 0; turn < 20; turn++) {
        int at = turn % NODES, of = (turn + 1) % NODES;
        nanosleep(&pause, NULL);
        fsio_forget_peer(node[of], at);
        nanosleep(&pause, NULL);
        introduce(at, of);
        introduce(of, at);
    }
    for (int i = 0; i < NODES && stop; i++) fsio_stop(node[i]); /* under their hands */
    atomic_store(&going, false);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(failures > 0);
    for (int i = 0; i < NODES && !stop; i++) write_file(node[i], 9, FSIO_STRIPED, 9 * STRIPE);
    end();
}

/* ── a part that is replaced ── */

static void *adopt_again(void *argument) {
    char path[256];
    snprintf(path, sizeof path, "%s/adopted", top);
    for (int i = 0; i < 2000; i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0 && write(fd, "new", 3) == 3 && close(fd) == 0);
        CHECK(fsio_part_adopt(argument, 5, path) == 0);
    }
    going = false;
    return NULL;
}

static void test_replaced(void) {
    uint64_t size, blocks, used, limit, parts;
    int64_t atime, mtime, ctime;
    pthread_t thread;
    start(1 << 20);
    write_file(node[0], 5, FSIO_LOCAL, 3);
    going = true;
    CHECK(pthread_create(&thread, NULL, adopt_again, node[0]) == 0);
    while (going) CHECK(fsio_part_stat(node[0], 5, FSIO_WHOLE, &size, &blocks, &atime, &mtime, &ctime) == 0 && size == 3);
    pthread_join(thread, NULL);
    fsio_usage(node[0], &used, &limit, &parts);
    CHECK(parts == 1);
    end();
}

static void *want_room(void *argument) {
    struct fsio *io = argument;
    CHECK(fsio_make_room(io, 1, atomic_load(&io->store->room_made), true));
    return NULL;
}

/* A part that is removed while its digest is taken takes its bytes until then. The writer that finds no room waits for it, and asks nobody. */
static void test_removed_while_looked_at(void) {
    struct timespec moment = {.tv_nsec = 50000000};
    pthread_t writer;
    start(0);
    write_file(node[0], 5, FSIO_LOCAL, 3);
    fsio_expect_room(node[0], 30000);
    digests_leave(node[0]); /* the real one */
    fsio_look_begins(node[0], 5);
    CHECK(fsio_whole_delete(node[0], 5) == 0);
    CHECK(pthread_create(&writer, NULL, want_room, node[0]) == 0);
    nanosleep(&moment, NULL);
    CHECK(fsio_take(node[0]) == NULL);
    fsio_look_ends(node[0]);
    pthread_join(writer, NULL);
    CHECK(fsio_take(node[0]) == NULL);
    end();
}

int main(void) {
    make_top(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", "fsio");
    int before = entries("/proc/self/fd");
    test_travels();
    test_growth();
    test_lent();
    test_replaced();
    test_removed_while_looked_at();
    test_hammer();
    test_peers_come_and_go(false);
    test_peers_come_and_go(true);
    CHECK(entries("/proc/self/fd") == before);
    remove_top();
    return passed();
}
