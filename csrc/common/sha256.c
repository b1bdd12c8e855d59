#include "sha256.h"

#include <string.h>

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t big_endian(const uint8_t *from) {
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void take_block(uint32_t state[8], const uint8_t *block) {
    uint32_t words[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++) words[i] = big_endian(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t low = words[i - 15], high = words[i - 2];
        words[i] =
            words[i - 16] + (turn(low, 7) ^ turn(low, 18) ^ low >> 3) + words[i - 7] + (turn(high, 17) ^ turn(high, 19) ^ high >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + rounds[i] + words[i];
        uint32_t second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void amfs_sha256_begin(struct amfs_sha256 *hash) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, first, sizeof first);
    hash->length = 0;
}

void amfs_sha256_add(struct amfs_sha256 *hash, const void *data, size_t length) {
    const uint8_t *from = data;
    size_t filled = hash->length % AMFS_SHA256_BLOCK;
    hash->length += length;
    if (filled > 0) {
        size_t part = length < AMFS_SHA256_BLOCK - filled ? length : AMFS_SHA256_BLOCK - filled;
        if (part > 0) memcpy(hash->block + filled, from, part);
        if (filled + part < AMFS_SHA256_BLOCK) return;
        take_block(hash->state, hash->block);
        from += part;
        length -= part;
    }
    for (; length >= AMFS_SHA256_BLOCK; from += AMFS_SHA256_BLOCK, length -= AMFS_SHA256_BLOCK) take_block(hash->state, from);
    if (length > 0) memcpy(hash->block, from, length);
}

void amfs_sha256_end(struct amfs_sha256 *hash, uint8_t digest[AMFS_SHA256_BYTES]) {
    uint8_t padding[AMFS_SHA256_BLOCK] = {0x80}, size[8];
    uint64_t bits = hash->length * 8;
    size_t filled = hash->length % AMFS_SHA256_BLOCK;
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)(bits >> (56 - 8 * i));
    amfs_sha256_add(hash, padding, filled < 56 ? 56 - filled : 120 - filled);
    amfs_sha256_add(hash, size, sizeof size);
    for (int i = 0; i < AMFS_SHA256_BYTES; i++) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void amfs_hmac_begin(struct amfs_hmac *mac, const void *key, size_t length) {
    uint8_t block[AMFS_SHA256_BLOCK] = {0};
    if (length > sizeof block) { /* as the standard says: a long key is hashed */
        amfs_sha256_begin(&mac->inner);
        amfs_sha256_add(&mac->inner, key, length);
        amfs_sha256_end(&mac->inner, block);
    } else if (length > 0) {
        memcpy(block, key, length);
    }
    for (size_t i = 0; i < sizeof block; i++) block[i] ^= 0x36;
    amfs_sha256_begin(&mac->inner);
    amfs_sha256_add(&mac->inner, block, sizeof block);
    for (size_t i = 0; i < sizeof block; i++) block[i] ^= 0x36 ^ 0x5c;
    amfs_sha256_begin(&mac->outer);
    amfs_sha256_add(&mac->outer, block, sizeof block);
    amfs_wipe(block, sizeof block);
}

void amfs_hmac_add(struct amfs_hmac *mac, const void *data, size_t length) { amfs_sha256_add(&mac->inner, data, length); }

void amfs_hmac_end(struct amfs_hmac *mac, uint8_t digest[AMFS_SHA256_BYTES]) {
    amfs_sha256_end(&mac->inner, digest);
    amfs_sha256_add(&mac->outer, digest, AMFS_SHA256_BYTES);
    amfs_sha256_end(&mac->outer, digest);
    amfs_wipe(mac, sizeof *mac);
}

bool amfs_same_bytes(const uint8_t *a, const uint8_t *b, size_t length) {
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < length; i++) difference = (uint8_t)(difference | (a[i] ^ b[i]));
    return difference == 0;
}

void amfs_wipe(void *secret, size_t length) {
    memset(secret, 0, length);
    __asm__ volatile("" : : "r"(secret) : "memory");
}
