/* The line partitioner without Python: every line in the part of its key, in order, with blocks that end anywhere and lines longer than them. */
#include "check.h"
#include "common/xxh64.h"
#include "data/line_partitioner.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 16 << 20, PARTS = 7 };

struct text {
    char *bytes;
    size_t size;
};

static struct text got[PARTS], wanted[PARTS], input;

static void add(struct text *text, const void *bytes, size_t size) {
    CHECK(text->size + size <= ROOM);
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

static int take(void *context, unsigned part, const void *bytes, size_t size) {
    (void)context;
    add(&got[part], bytes, size);
    return 0;
}

static void clear(void) {
    for (int part = 0; part < PARTS; part++) got[part].size = wanted[part].size = 0;
    input.size = 0;
}

/* One line of the input, and where it belongs. */
static void line(const char *before, size_t key, size_t after, bool ended) {
    static char text[6 << 20];
    size_t size = strlen(before);
    memcpy(text, before, size);
    for (size_t i = 0; i < key; i++) text[size + i] = (char)('a' + rand() % 26);
    uint64_t part = amfs_xxh64(text + size, key, 0) % PARTS;
    size += key;
    if (after > 0) text[size] = rand() % 2 ? ' ' : '\t';
    for (size_t i = 1; i < after; i++) text[size + i] = (char)(rand() % 10 ? rand() % 250 + 11 : ' ');
    size += after;
    text[size++] = '\n';
    add(&wanted[part], text, size);
    add(&input, text, ended ? size : size - 1);
}

static void compare(bool by_descriptor) {
    struct line_partitioner *p = line_partitioner_new(&(struct partition_rule){1, PARTITION_BLANKS, PARTS}, take, NULL);
    CHECK(p != NULL);
    if (by_descriptor) {
        int fd = open(at("lines"), O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0 && write(fd, input.bytes, input.size) == (ssize_t)input.size && lseek(fd, 0, SEEK_SET) == 0);
        CHECK(line_partitioner_read(p, fd) == 0);
        close(fd);
    } else {
        CHECK(line_partitioner_bytes(p, input.bytes, input.size) == 0);
    }
    CHECK(line_partitioner_flush(p) == 0);
    for (int part = 0; part < PARTS; part++) {
        CHECK(got[part].size == wanted[part].size);
        CHECK(memcmp(got[part].bytes, wanted[part].bytes, got[part].size) == 0);
    }
    line_partitioner_free(p);
    clear();
}

static int refuse(void *context, unsigned part, const void *bytes, size_t size) {
    (void)context, (void)part, (void)bytes, (void)size;
    return 28;
}

int main(void) {
    make_top("/tmp", "partitioner");
    for (int part = 0; part < PARTS; part++) CHECK((got[part].bytes = malloc(ROOM)) && (wanted[part].bytes = malloc(ROOM)));
    CHECK((input.bytes = malloc(ROOM)) != NULL);
    compare(false); /* nothing */
    line("", 3, 0, false);
    compare(false);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 5000; i++) line(rand() % 20 ? "" : " \t ", (size_t)(1 + rand() % 40), (size_t)(rand() % 200), true);
        if (round % 2) line("", 5, 5, false);
        compare(round % 3 == 0);
    }
    line("", 5, 5, true);
    line("", 4, 5 << 20, true); /* much longer than a block: not held */
    line("", 1 << 20, 3, true); /* its key is */
    line("", 0, 0, true);
    line("", 9, 1 << 20, false);
    compare(true);
    struct line_partitioner *p = line_partitioner_new(&(struct partition_rule){1, ',', 1}, refuse, NULL);
    line("", 5, 3 << 20, true);
    CHECK(line_partitioner_bytes(p, input.bytes, input.size) == 28);
    line_partitioner_free(p);
    for (int part = 0; part < PARTS; part++) free(got[part].bytes), free(wanted[part].bytes);
    free(input.bytes);
    remove_top();
    printf("%ld checks\n", checks);
    return 0;
}
