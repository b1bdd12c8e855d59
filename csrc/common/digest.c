#include "digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "xxh64.h"

/* The hashes of the blocks so far. */
struct hashes {
    uint8_t *bytes;
    size_t used, room;
};

static void two_hashes(const void *data, size_t size, uint8_t to[DIGEST_BYTES]) {
    put_le(to, amfs_xxh64(data, size, 0), 8);
    put_le(to + 8, amfs_xxh64(data, size, DIGEST_SEED), 8);
}

/* For one more block, and the size. */
static int make_room(struct hashes *hashes) {
    if (hashes->room - hashes->used >= 2 * DIGEST_BYTES) return 0;
    size_t room = hashes->room > 0 ? 2 * hashes->room : 1024;
    uint8_t *larger = realloc(hashes->bytes, room);
    if (larger == NULL) return ENOMEM;
    hashes->bytes = larger;
    hashes->room = room;
    return 0;
}

/* Fills a block unless the file ends before. */
static int read_block(int fd, uint8_t *block, size_t *got) {
    *got = 0;
    while (*got < DIGEST_BLOCK) {
        ssize_t count = read(fd, block + *got, DIGEST_BLOCK - *got);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        if (count == 0) break;
        *got += (size_t)count;
    }
    return 0;
}

static int write_block(int fd, const uint8_t *block, size_t size) {
    while (size > 0) {
        ssize_t count = write(fd, block, size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        block += count;
        size -= (size_t)count;
    }
    return 0;
}

int amfs_digest(int from, int to, uint8_t digest[DIGEST_BYTES], uint64_t *size, int *writing) {
    struct hashes hashes = {0};
    uint8_t *block = malloc(DIGEST_BLOCK);
    size_t got = DIGEST_BLOCK;
    int error = block != NULL ? 0 : ENOMEM;
    *size = 0;
    *writing = 0;
    while (error == 0 && got == DIGEST_BLOCK) {
        error = read_block(from, block, &got);
        if (error == 0) error = make_room(&hashes);
        if (error != 0 || got == 0) break;
        two_hashes(block, got, hashes.bytes + hashes.used);
        hashes.used += DIGEST_BYTES;
        *size += got;
        if (to >= 0 && (error = write_block(to, block, got)) != 0) *writing = 1;
    }
    if (error == 0) {
        put_le(hashes.bytes + hashes.used, *size, 8);
        two_hashes(hashes.bytes, hashes.used + 8, digest);
    }
    free(hashes.bytes);
    free(block);
    return error;
}
