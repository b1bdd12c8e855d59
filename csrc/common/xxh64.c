#include "xxh64.h"

#include "bytes.h"

/* Written from the algorithm's description (XXH64, version 0.1.1): four lanes of 64 bits over stripes of 32 bytes, then the rest. */

static const uint64_t P1 = 0x9E3779B185EBCA87u;
static const uint64_t P2 = 0xC2B2AE3D27D4EB4Fu;
static const uint64_t P3 = 0x165667B19E3779F9u;
static const uint64_t P4 = 0x85EBCA77C2B2AE63u;
static const uint64_t P5 = 0x27D4EB2F165667C5u;

static inline uint64_t rotate(uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }

static inline uint64_t round_lane(uint64_t lane, uint64_t input) { return rotate(lane + input * P2, 31) * P1; }

static inline uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round_lane(0, lane)) * P1 + P4; }

uint64_t amfs_xxh64(const void *data, size_t length, uint64_t seed) {
    static const unsigned char nothing[1];
    const unsigned char *at = data != NULL ? data : nothing;
    size_t left = length;
    uint64_t hash;

    if (left >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        do {
            a = round_lane(a, amfs_load64(at));
            b = round_lane(b, amfs_load64(at + 8));
            c = round_lane(c, amfs_load64(at + 16));
            d = round_lane(d, amfs_load64(at + 24));
            at += 32;
            left -= 32;
        } while (left >= 32);
        hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        hash = merge(merge(merge(merge(hash, a), b), c), d);
    } else {
        hash = seed + P5;
    }
    hash += (uint64_t)length;

    for (; left >= 8; at += 8, left -= 8) hash = rotate(hash ^ round_lane(0, amfs_load64(at)), 27) * P1 + P4;
    if (left >= 4) {
        hash = rotate(hash ^ (uint64_t)amfs_load32(at) * P1, 23) * P2 + P3;
        at += 4;
        left -= 4;
    }
    for (; left > 0; at++, left--) hash = rotate(hash ^ *at * P5, 11) * P1;

    hash = (hash ^ (hash >> 33)) * P2;
    hash = (hash ^ (hash >> 29)) * P3;
    return hash ^ (hash >> 32);
}
