/* XXH3 with 128 bits, of a stream: the digest by which damage to the content of a file is found. A checksum, not a signature. */
#ifndef AMFS_XXH3_H
#define AMFS_XXH3_H

#include <stddef.h>
#include <stdint.h>

enum { XXH3_BYTES = 16, XXH3_BUFFER = 1024 };

struct xxh3 {
    uint64_t lanes[8];
    uint64_t total;
    unsigned stripe; /* of the block, that comes next */
    size_t held;     /* bytes at the start of `buffer` that are in no lane yet */
    unsigned char buffer[XXH3_BUFFER];
    unsigned char tail[64]; /* the last 64 bytes that are in the lanes */
};

void xxh3_begin(struct xxh3 *state);
void xxh3_add(struct xxh3 *state, const void *bytes, size_t count);
void xxh3_end(const struct xxh3 *state, uint8_t digest[XXH3_BYTES]); /* as xxh128sum prints it */

#endif
