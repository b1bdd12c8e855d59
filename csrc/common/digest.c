#include "digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "extents.h"
#include "xxh64.h"

/* The hashes of the blocks so far. */
struct hashes {
    uint8_t *bytes;
    size_t used, room;
    uint64_t zeros; /* blocks of them that came last */
};

static void two_hashes(const void *data, size_t size, uint8_t to[DIGEST_BYTES]) {
    put_le(to, amfs_xxh64(data, size, 0), 8);
    put_le(to + 8, amfs_xxh64(data, size, DIGEST_SEED), 8);
}

/* For one more block, a run of zeros before it, and the size. */
static int make_room(struct hashes *hashes) {
    if (hashes->room - hashes->used >= 3 * DIGEST_BYTES) return 0;
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

static void end_zeros(struct hashes *hashes) {
    if (hashes->zeros == 0) return;
    put_le(hashes->bytes + hashes->used, 0, 8);
    put_le(hashes->bytes + hashes->used + 8, hashes->zeros, 8);
    hashes->used += DIGEST_BYTES;
    hashes->zeros = 0;
}

static void add_block(struct hashes *hashes, const uint8_t *block, size_t count) {
    end_zeros(hashes);
    two_hashes(block, count, hashes->bytes + hashes->used);
    hashes->used += DIGEST_BYTES;
}

/* Both files go on after the full blocks of a hole that comes next. */
static int pass_hole(struct hashes *hashes, int from, int to, uint64_t *size) {
    struct stat found;
    off_t at = lseek(from, 0, SEEK_CUR);
    uint64_t data, end;
    if (at < 0 || fstat(from, &found) != 0 || !S_ISREG(found.st_mode)) return 0;
    if (found.st_nlink == 0) return ESTALE;
    if (!amfs_has_holes(&found)) return 0;
    int error = amfs_next_extent(from, (uint64_t)at, (uint64_t)found.st_size, &data, &end);
    off_t passed = error == 0 && data > (uint64_t)at ? (off_t)((data - (uint64_t)at) / DIGEST_BLOCK * DIGEST_BLOCK) : 0;
    if (lseek(from, at + passed, SEEK_SET) < 0 || (to >= 0 && passed > 0 && lseek(to, passed, SEEK_CUR) < 0)) return errno;
    hashes->zeros += (uint64_t)passed / DIGEST_BLOCK;
    *size += (uint64_t)passed;
    return error;
}

int amfs_digest(int from, int to, uint8_t digest[DIGEST_BYTES], uint64_t *size, int *writing) {
    struct hashes hashes = {0};
    uint8_t *block = malloc(DIGEST_BLOCK);
    size_t got = DIGEST_BLOCK;
    int error = block != NULL ? make_room(&hashes) : ENOMEM;
    *size = 0;
    *writing = 0;
    while (error == 0 && got == DIGEST_BLOCK) {
        error = pass_hole(&hashes, from, to, size);
        if (error == 0) error = read_block(from, block, &got);
        if (error == 0) error = make_room(&hashes);
        if (error != 0 || got == 0) break;
        bool zeros = got == DIGEST_BLOCK && amfs_all_zero(block, got);
        if (zeros) hashes.zeros++;
        else add_block(&hashes, block, got);
        *size += got;
        if (to < 0 || (zeros && lseek(to, (off_t)got, SEEK_CUR) >= 0)) continue;
        if ((error = write_block(to, block, got)) != 0) *writing = 1;
    }
    if (error == 0 && hashes.zeros > 0 && to >= 0 && ftruncate(to, lseek(to, 0, SEEK_CUR)) != 0) error = *writing = errno;
    if (error == 0) {
        end_zeros(&hashes);
        put_le(hashes.bytes + hashes.used, *size, 8);
        two_hashes(hashes.bytes, hashes.used + 8, digest);
    }
    free(hashes.bytes);
    free(block);
    return error;
}
