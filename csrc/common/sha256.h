/* SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for proofs that are made once a connection. No state, nothing that can fail. */
#ifndef AMFS_SHA256_H
#define AMFS_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMFS_SHA256_BYTES = 32, AMFS_SHA256_BLOCK = 64 };

struct amfs_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[AMFS_SHA256_BLOCK];
};

void amfs_sha256_begin(struct amfs_sha256 *hash);
void amfs_sha256_add(struct amfs_sha256 *hash, const void *data, size_t length);
void amfs_sha256_end(struct amfs_sha256 *hash, uint8_t digest[AMFS_SHA256_BYTES]);

struct amfs_hmac {
    struct amfs_sha256 inner, outer;
};

void amfs_hmac_begin(struct amfs_hmac *mac, const void *key, size_t length);
void amfs_hmac_add(struct amfs_hmac *mac, const void *data, size_t length);
void amfs_hmac_end(struct amfs_hmac *mac, uint8_t digest[AMFS_SHA256_BYTES]);

/* Compares in a time that says nothing of where they differ. */
bool amfs_same_bytes(const uint8_t *a, const uint8_t *b, size_t length);
/* Overwrites a secret; the compiler may not leave it out. */
void amfs_wipe(void *secret, size_t length);

#endif
