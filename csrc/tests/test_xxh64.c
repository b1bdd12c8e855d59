/* XXH64 without Python: golden vectors, and every alignment and tail length in buffers that end where the data ends. */
#include "common/xxh64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(uint64_t got, uint64_t wanted, const char *what) {
    if (got == wanted) return;
    fprintf(stderr, "%s: %016llx, not %016llx\n", what, (unsigned long long)got, (unsigned long long)wanted);
    exit(1);
}

int main(void) {
    static const char spam[] = "Nobody inspects the spammish repetition";

    check(amfs_xxh64(NULL, 0, 0), 0xEF46DB3751D8E999u, "nothing");
    check(amfs_xxh64("a", 1, 0), 0xD24EC4F1A98C6E5Bu, "a");
    check(amfs_xxh64("abc", 3, 0), 0x44BC2CF5AD770999u, "abc");
    check(amfs_xxh64(spam, sizeof spam - 1, 0), 0xFBCEA83C8A378BF1u, spam);
    check(amfs_xxh64("xxhash", 6, 20141025), 0xB559B98D844E0635u, "seeded");
    for (size_t length = 0; length < 300; length++) {
        unsigned char *reference = malloc(length + 1);
        for (size_t i = 0; i < length; i++) reference[i] = (unsigned char)(i * 37 + length);
        uint64_t hash = amfs_xxh64(reference, length, length);
        for (size_t shift = 0; shift < 8; shift++) {
            unsigned char *shifted = malloc(length + shift);
            if (length) memcpy(shifted + shift, reference, length);
            check(amfs_xxh64(shifted + shift, length, length), hash, "another alignment");
            free(shifted);
        }
        free(reference);
    }
    puts("ok");
    return 0;
}
