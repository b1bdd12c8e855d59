/* The copier without Python, for the sanitisers: real files and threads. Prints "ok N checks"; a failed check ends it. */
#include "check.h"
#include "data/copier.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static struct copier_done *wait_one(struct copier *copier) {
    struct pollfd set = {.fd = copier_fd(copier), .events = POLLIN};
    CHECK(poll(&set, 1, 60000) == 1);
    struct copier_done *done = copier_take(copier);
    CHECK(done != NULL && done->next == NULL);
    return done;
}

static void expect_fine(struct copier *copier, uint64_t serial, uint64_t bytes) {
    struct copier_done *done = wait_one(copier);
    if (done->error != NULL) fprintf(stderr, "unexpected: %s\n", done->error);
    CHECK(done->serial == serial && done->error == NULL && done->bytes == bytes);
    copier_done_free(done);
}

static void expect_error(struct copier *copier, uint64_t serial, const char *part) {
    struct copier_done *done = wait_one(copier);
    if (done->error == NULL || strstr(done->error, part) == NULL) fprintf(stderr, "got: %s\n", done->error ? done->error : "(fine)");
    CHECK(done->serial == serial && done->error != NULL && strstr(done->error, part) != NULL);
    copier_done_free(done);
}

static struct copier *start(void) {
    char error[256];
    struct copier *copier = copier_new(2, error, sizeof error);
    CHECK(copier != NULL);
    return copier;
}

static void test_copies(void) {
    struct copier *copier = start();
    struct stat found;
    uint64_t sizes[] = {0, 1, 4095, 4096, 1 << 20, (9 << 20) + 7};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make_file(at("source"), sizes[i]);
        CHECK(copier_copy(copier, i, at("source"), at("a/b/copy"), 0440, 1) == 0);
        expect_fine(copier, i, sizes[i]);
        CHECK(holds(at("a/b/copy"), sizes[i]) && stat(at("a/b/copy"), &found) == 0 && (found.st_mode & 07777) == 0440);
    }
    CHECK(entries(at("a/b")) == 1);
    copier_copy(copier, 1, "/proc/self/status", at("a/status"), 0644, 1); /* says it is empty and is not */
    struct copier_done *done = wait_one(copier);
    CHECK(done->error == NULL && done->bytes > 100);
    copier_done_free(done);
    copier_copy(copier, 2, at("absent"), at("a/x"), 0644, 1);
    expect_error(copier, 2, "absent: No such file");
    copier_copy(copier, 3, at("a"), at("a/x"), 0644, 1);
    expect_error(copier, 3, "is a directory");
    CHECK(mkfifo(at("pipe"), 0600) == 0);
    copier_copy(copier, 4, at("pipe"), at("a/x"), 0644, 1);
    expect_error(copier, 4, "not a regular file");
    copier_copy(copier, 5, at("source"), at("nodir/x"), 0644, 0);
    expect_error(copier, 5, "nodir/x: No such file");
    copier_copy(copier, 6, at("source"), at("source/x"), 0644, 1);
    expect_error(copier, 6, "source");
    copier_copy(copier, 7, at("source"), at("a/b"), 0644, 1);
    expect_error(copier, 7, "rename");
    CHECK(entries(at("a")) == 2);
    copier_free(copier);
}

static void test_stop(void) {
    struct copier *copier = start();
    make_file(at("source"), 1 << 20);
    for (uint64_t i = 0; i < 200; i++) copier_copy(copier, i, at("source"), at("stopped/copy"), 0644, 1);
    copier_stop(copier);
    copier_stop(copier);
    copier_copy(copier, 200, at("source"), at("stopped/copy"), 0644, 1);
    int count = 0, stopped = 0;
    struct copier_done *list = copier_take(copier);
    for (struct copier_done *done = list; done != NULL; done = done->next, count++) {
        CHECK(done->error == NULL || strcmp(done->error, "stopped") == 0);
        stopped += done->error != NULL;
    }
    copier_done_free(list);
    CHECK(count == 201 && stopped >= 1);
    copier_free(copier);
}

int main(void) {
    make_top("/tmp", "copier");
    int before = open_descriptors();
    test_copies();
    test_stop();
    char error[256];
    CHECK(copier_new(0, error, sizeof error) == NULL && strstr(error, "1 to 64 threads") != NULL);
    CHECK(open_descriptors() == before);
    remove_top();
    return passed();
}
