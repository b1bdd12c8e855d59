#include "handshake.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "common/bytes.h"
#include "common/sha256.h"

enum { NONCE_AT = 40, PROOF_AT = 8 + HANDSHAKE_NONCE_BYTES }; /* in a hello; in a challenge */

static const char server_role[16] = "amfs data server";
static const char connector_role[16] = "amfs data client";

static int random_bytes(uint8_t *to, size_t count) {
    ssize_t got;
    do got = getrandom(to, count, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)count ? 0 : got < 0 ? errno : EIO;
}

static void prove(const struct handshake *shake, const uint8_t *key, const char role[16], uint8_t proof[HANDSHAKE_PROOF_BYTES]) {
    struct amfs_hmac mac;
    amfs_hmac_begin(&mac, key, HANDSHAKE_KEY_BYTES);
    amfs_hmac_add(&mac, role, 16);
    amfs_hmac_add(&mac, shake->hello, sizeof shake->hello);
    amfs_hmac_add(&mac, shake->challenge, PROOF_AT);
    amfs_hmac_end(&mac, proof);
}

static void write_head(uint8_t *to, unsigned last) {
    put_le(to, HANDSHAKE_MAGIC, 4);
    put_le(to + 4, HANDSHAKE_VERSION, 2);
    put_le(to + 6, last, 2);
}

static int read_status(const uint8_t *head) {
    int status = (int)get_le(head + 6, 2);
    if (get_le(head, 4) != HANDSHAKE_MAGIC || status >= HANDSHAKE_STATUSES) return -1;
    return get_le(head + 4, 2) == HANDSHAKE_VERSION ? status : HANDSHAKE_WRONG_VERSION;
}

/* ── the connector ── */

int handshake_write_hello(struct handshake *shake, const struct handshake_hello *hello) {
    write_head(shake->hello, (unsigned)hello->lane);
    put_le(shake->hello + 8, hello->id, 8);
    put_le(shake->hello + 16, hello->incarnation, 8);
    put_le(shake->hello + 24, hello->server_id, 8);
    put_le(shake->hello + 32, hello->server_incarnation, 8);
    return random_bytes(shake->hello + NONCE_AT, HANDSHAKE_NONCE_BYTES);
}

int handshake_check_challenge(const struct handshake *shake, const uint8_t *key, uint8_t proof[HANDSHAKE_PROOF_BYTES]) {
    int status = read_status(shake->challenge);
    if (status != HANDSHAKE_OK) return status;
    prove(shake, key, server_role, proof);
    if (!amfs_same_bytes(proof, shake->challenge + PROOF_AT, HANDSHAKE_PROOF_BYTES)) return HANDSHAKE_WRONG_KEY;
    prove(shake, key, connector_role, proof);
    return HANDSHAKE_OK;
}

int handshake_read_welcome(const uint8_t welcome[HANDSHAKE_WELCOME_BYTES]) { return read_status(welcome); }

/* ── the server ── */

bool handshake_read_hello(const struct handshake *shake, struct handshake_hello *hello) {
    if (get_le(shake->hello, 4) != HANDSHAKE_MAGIC || get_le(shake->hello + 4, 2) != HANDSHAKE_VERSION) return false;
    *hello = (struct handshake_hello){
        .lane = (int)get_le(shake->hello + 6, 2),
        .id = get_le(shake->hello + 8, 8),
        .incarnation = get_le(shake->hello + 16, 8),
        .server_id = get_le(shake->hello + 24, 8),
        .server_incarnation = get_le(shake->hello + 32, 8),
    };
    return true;
}

int handshake_write_challenge(struct handshake *shake, const uint8_t *key) {
    write_head(shake->challenge, HANDSHAKE_OK);
    int error = random_bytes(shake->challenge + 8, HANDSHAKE_NONCE_BYTES);
    if (error == 0) prove(shake, key, server_role, shake->challenge + PROOF_AT);
    return error;
}

void handshake_write_refusal(uint8_t challenge[HANDSHAKE_CHALLENGE_BYTES], enum handshake_status status) {
    memset(challenge, 0, HANDSHAKE_CHALLENGE_BYTES);
    write_head(challenge, status);
}

bool handshake_check_proof(const struct handshake *shake, const uint8_t *key, const uint8_t proof[HANDSHAKE_PROOF_BYTES]) {
    uint8_t right[HANDSHAKE_PROOF_BYTES];
    prove(shake, key, connector_role, right);
    bool same = amfs_same_bytes(right, proof, sizeof right);
    amfs_wipe(right, sizeof right);
    return same;
}

void handshake_write_welcome(uint8_t welcome[HANDSHAKE_WELCOME_BYTES], enum handshake_status status) { write_head(welcome, status); }
