#include "xxh3.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bytes.h"

/* Written from the algorithm's description (XXH3, version 0.2.0), with its secret and without a seed. Up to 240 bytes are mixed at once; more go as
 * stripes of 64 bytes into eight lanes, 16 stripes to a block, after which the lanes are scrambled. The last 64 bytes are a stripe of their own,
 * so the last of the stream stays in the buffer until its end. */

enum { STRIPE = 64, STRIPES = 16, SECRET = 192, SHORT_MAX = 240 };

static const unsigned char secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90,
    0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d,
    0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28,
    0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e,
    0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b,
    0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83,
    0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16,
    0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u, P4 = 0x85EBCA77C2B2AE63u,
                      P5 = 0x27D4EB2F165667C5u, M1 = 0x165667919E3779F9u, M2 = 0x9FB21C651E98DF25u;
static const uint32_t Q1 = 0x9E3779B1u, Q2 = 0x85EBCA77u, Q3 = 0xC2B2AE3Du;

struct pair {
    uint64_t low, high;
};

static inline uint64_t key(size_t at) { return amfs_load64(secret + at); }

static inline struct pair multiply(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (struct pair){(uint64_t)product, (uint64_t)(product >> 64)};
}

static inline uint64_t fold(uint64_t a, uint64_t b) {
    struct pair product = multiply(a, b);
    return product.low ^ product.high;
}

static inline uint64_t avalanche(uint64_t hash) {
    hash = (hash ^ (hash >> 37)) * M1;
    return hash ^ (hash >> 32);
}

static inline uint64_t avalanche64(uint64_t hash) {
    hash = (hash ^ (hash >> 33)) * P2;
    hash = (hash ^ (hash >> 29)) * P3;
    return hash ^ (hash >> 32);
}

/* ── short ones ── */

static struct pair of_few(const unsigned char *in, size_t length) {
    if (length > 8) {
        uint64_t low = amfs_load64(in), high = amfs_load64(in + length - 8);
        struct pair mixed = multiply(low ^ high ^ key(32) ^ key(40), P1);
        mixed.low += (uint64_t)(length - 1) << 54;
        high ^= key(48) ^ key(56);
        mixed.high += high + (uint64_t)(uint32_t)high * (Q2 - 1);
        mixed.low ^= __builtin_bswap64(mixed.high);
        struct pair out = multiply(mixed.low, P2);
        return (struct pair){avalanche(out.low), avalanche(out.high + mixed.high * P2)};
    }
    if (length > 3) {
        uint64_t both = amfs_load32(in) + ((uint64_t)amfs_load32(in + length - 4) << 32);
        struct pair mixed = multiply(both ^ key(16) ^ key(24), P1 + (length << 2));
        mixed.high += mixed.low << 1;
        mixed.low ^= mixed.high >> 3;
        mixed.low = (mixed.low ^ (mixed.low >> 35)) * M2;
        return (struct pair){mixed.low ^ (mixed.low >> 28), avalanche(mixed.high)};
    }
    if (length > 0) {
        uint32_t low = (uint32_t)in[0] << 16 | (uint32_t)in[length >> 1] << 24 | in[length - 1] | (uint32_t)length << 8;
        uint32_t swapped = __builtin_bswap32(low), high = swapped << 13 | swapped >> 19;
        return (struct pair){avalanche64(low ^ (uint64_t)(amfs_load32(secret) ^ amfs_load32(secret + 4))),
                             avalanche64(high ^ (uint64_t)(amfs_load32(secret + 8) ^ amfs_load32(secret + 12)))};
    }
    return (struct pair){avalanche64(key(64) ^ key(72)), avalanche64(key(80) ^ key(88))};
}

static inline uint64_t mix16(const unsigned char *in, size_t at) {
    return fold(amfs_load64(in) ^ key(at), amfs_load64(in + 8) ^ key(at + 8));
}

static inline void mix32(struct pair *sum, const unsigned char *first, const unsigned char *second, size_t at) {
    sum->low += mix16(first, at);
    sum->low ^= amfs_load64(second) + amfs_load64(second + 8);
    sum->high += mix16(second, at + 16);
    sum->high ^= amfs_load64(first) + amfs_load64(first + 8);
}

static struct pair of_short(const unsigned char *in, size_t length) {
    struct pair sum = {length * P1, 0};
    if (length <= 16) return of_few(in, length);
    if (length <= 128) {
        for (size_t i = (length - 1) / 32 + 1; i-- > 0;) mix32(&sum, in + 16 * i, in + length - 16 * (i + 1), 32 * i);
    } else {
        for (size_t i = 32; i < 160; i += 32) mix32(&sum, in + i - 32, in + i - 16, i - 32);
        sum = (struct pair){avalanche(sum.low), avalanche(sum.high)};
        for (size_t i = 160; i <= length; i += 32) mix32(&sum, in + i - 32, in + i - 16, 3 + i - 160);
        mix32(&sum, in + length - 16, in + length - 32, 136 - 17 - 16);
    }
    return (struct pair){avalanche(sum.low + sum.high), 0 - avalanche(sum.low * P1 + sum.high * P4 + length * P2)};
}

/* ── long ones ── */

static inline void accumulate(uint64_t lanes[8], const unsigned char *in, const unsigned char *with) {
#if defined(__SSE2__)
    __m128i *sums = (__m128i *)(void *)lanes;
    for (int i = 0; i < 4; i++) {
        __m128i data = _mm_loadu_si128((const __m128i *)(const void *)(in + 16 * i));
        __m128i keyed = _mm_xor_si128(data, _mm_loadu_si128((const __m128i *)(const void *)(with + 16 * i)));
        __m128i product = _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
        __m128i sum = _mm_add_epi64(_mm_loadu_si128(sums + i), _mm_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2)));
        _mm_storeu_si128(sums + i, _mm_add_epi64(sum, product));
    }
#else
    for (int i = 0; i < 8; i++) {
        uint64_t data = amfs_load64(in + 8 * i), keyed = data ^ amfs_load64(with + 8 * i);
        lanes[i ^ 1] += data;
        lanes[i] += (keyed & UINT32_MAX) * (keyed >> 32);
    }
#endif
}

static void add_stripes(uint64_t lanes[8], unsigned *stripe, const unsigned char *in, size_t count) {
    uint64_t own[8];
    memcpy(own, lanes, sizeof own);
    for (; count > 0; count--, in += STRIPE) {
        accumulate(own, in, secret + (size_t)8 * *stripe);
        if (++*stripe < STRIPES) continue;
        for (int i = 0; i < 8; i++) own[i] = (own[i] ^ (own[i] >> 47) ^ key(SECRET - STRIPE + (size_t)(8 * i))) * Q1;
        *stripe = 0;
    }
    memcpy(lanes, own, sizeof own);
}

static uint64_t merge(const uint64_t lanes[8], size_t at, uint64_t start) {
    for (size_t i = 0; i < 4; i++) start += fold(lanes[2 * i] ^ key(at + 16 * i), lanes[2 * i + 1] ^ key(at + 16 * i + 8));
    return avalanche(start);
}

static struct pair of_long(const struct xxh3 *state) {
    uint64_t lanes[8];
    unsigned stripe = state->stripe;
    unsigned char last[STRIPE];
    size_t whole = (state->held - 1) / STRIPE; /* one byte at least is in no lane: only then is it known that more follow a stripe */
    memcpy(lanes, state->lanes, sizeof lanes);
    add_stripes(lanes, &stripe, state->buffer, whole);
    size_t before = state->held < STRIPE ? STRIPE - state->held : 0;
    memcpy(last, state->tail + STRIPE - before, before);
    memcpy(last + before, state->buffer + state->held - (STRIPE - before), STRIPE - before);
    accumulate(lanes, last, secret + SECRET - STRIPE - 7);
    return (struct pair){merge(lanes, 11, state->total * P1), merge(lanes, SECRET - STRIPE - 11, ~(state->total * P2))};
}

void xxh3_begin(struct xxh3 *state) { *state = (struct xxh3){.lanes = {Q3, P1, P2, P3, P4, Q2, P5, Q1}}; }

void xxh3_add(struct xxh3 *state, const void *bytes, size_t count) {
    const unsigned char *in = bytes;
    state->total += count;
    while (count > 0) {
        if (state->held == 0 && count > XXH3_BUFFER) { /* past the buffer, all but a rest */
            size_t stripes = (count - 1) / STRIPE;
            add_stripes(state->lanes, &state->stripe, in, stripes);
            in += stripes * STRIPE;
            count -= stripes * STRIPE;
            memcpy(state->tail, in - STRIPE, STRIPE);
        }
        if (state->held == XXH3_BUFFER) {
            add_stripes(state->lanes, &state->stripe, state->buffer, XXH3_BUFFER / STRIPE);
            memcpy(state->tail, state->buffer + XXH3_BUFFER - STRIPE, STRIPE);
            state->held = 0;
            continue;
        }
        size_t piece = count < XXH3_BUFFER - state->held ? count : XXH3_BUFFER - state->held;
        memcpy(state->buffer + state->held, in, piece);
        state->held += piece;
        in += piece;
        count -= piece;
    }
}

void xxh3_end(const struct xxh3 *state, uint8_t digest[XXH3_BYTES]) {
    struct pair hash = state->total <= SHORT_MAX ? of_short(state->buffer, (size_t)state->total) : of_long(state);
    for (int i = 0; i < 8; i++) {
        digest[i] = (uint8_t)(hash.high >> (56 - 8 * i));
        digest[8 + i] = (uint8_t)(hash.low >> (56 - 8 * i));
    }
}
