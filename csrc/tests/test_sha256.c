/* SHA-256 and HMAC-SHA-256 without Python: vectors of FIPS 180-2 and RFC 4231, and every way to cut what is hashed. */
#include "check.h"
#include "common/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(const uint8_t digest[AMFS_SHA256_BYTES], const char *wanted) {
    char got[2 * AMFS_SHA256_BYTES + 1];
    for (int i = 0; i < AMFS_SHA256_BYTES; i++) snprintf(got + 2 * i, 3, "%02x", digest[i]);
    if (strcmp(got, wanted) != 0) fprintf(stderr, "%s, not %s\n", got, wanted);
    CHECK(strcmp(got, wanted) == 0);
}

static void hash_of(const char *text, size_t length, uint8_t digest[AMFS_SHA256_BYTES]) {
    struct amfs_sha256 hash;
    amfs_sha256_begin(&hash);
    amfs_sha256_add(&hash, text, length);
    amfs_sha256_end(&hash, digest);
}

static void mac_of(const char *key, size_t key_length, const char *text, size_t length, uint8_t digest[AMFS_SHA256_BYTES]) {
    struct amfs_hmac mac;
    amfs_hmac_begin(&mac, key, key_length);
    amfs_hmac_add(&mac, text, length);
    amfs_hmac_end(&mac, digest);
}

static void test_vectors(void) {
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const char larger[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t digest[AMFS_SHA256_BYTES];
    char key[131], *million = malloc(1000000);
    hash_of("", 0, digest);
    expect(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_of("abc", 3, digest);
    expect(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_of(two, sizeof two - 1, digest);
    expect(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', 1000000);
    hash_of(million, 1000000, digest);
    expect(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
    mac_of("Jefe", 4, "what do ya want for nothing?", 28, digest);
    expect(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    mac_of(key, sizeof key, larger, sizeof larger - 1, digest);
    expect(digest, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void test_cuts(void) {
    char text[200];
    uint8_t whole[AMFS_SHA256_BYTES], cut[AMFS_SHA256_BYTES];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 37);
    for (size_t length = 0; length <= sizeof text; length++) {
        hash_of(text, length, whole);
        for (size_t first = 0; first <= length; first += 7) {
            struct amfs_sha256 hash;
            amfs_sha256_begin(&hash);
            amfs_sha256_add(&hash, text, first);
            amfs_sha256_add(&hash, text + first, length - first);
            amfs_sha256_end(&hash, cut);
            CHECK(amfs_same_bytes(whole, cut, sizeof cut));
        }
    }
    cut[31] ^= 1;
    CHECK(!amfs_same_bytes(whole, cut, sizeof cut));
    amfs_wipe(cut, sizeof cut);
    CHECK(cut[0] == 0 && cut[31] == 0);
}

int main(void) {
    test_vectors();
    test_cuts();
    return passed();
}
