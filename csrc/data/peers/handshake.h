/* How a data connection begins: both sides prove that they have the session's key, before a request is read. Bytes only, no sockets.
 *
 *   hello      connector   u32 magic, u16 version, u16 lane, u64 id, u64 incarnation, u64 id and u64 incarnation that it wants, nonce[32]
 *   challenge  server      u32 magic, u16 version, u16 status, nonce[32], proof[32]
 *   answer     connector   proof[32]
 *   welcome    server      u32 magic, u16 version, u16 status
 *
 * Little-endian. A proof is HMAC-SHA-256 with the key over the role that proves, the hello, and the challenge up to its nonce. Both nonces
 * are random and used once, so that nothing that was heard is of use again; the role keeps one side's proof from being the other's. An
 * incarnation is 0 where it is not known. With a status that is not OK the server closes, and what follows it in the challenge is zero. */
#ifndef AMFS_HANDSHAKE_H
#define AMFS_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HANDSHAKE_KEY_BYTES = 32,
    HANDSHAKE_NONCE_BYTES = 32,
    HANDSHAKE_PROOF_BYTES = 32,
    HANDSHAKE_MAGIC = 0x44464d41, /* "AMFD" */
    HANDSHAKE_VERSION = 3,
    HANDSHAKE_HELLO_BYTES = 72,
    HANDSHAKE_CHALLENGE_BYTES = 72,
    HANDSHAKE_WELCOME_BYTES = 8,
};

enum handshake_status {
    HANDSHAKE_OK = 0,
    HANDSHAKE_WRONG_VERSION = 1, /* or a lane that there is not */
    HANDSHAKE_WRONG_KEY = 2,
    HANDSHAKE_NOT_MEMBER = 3, /* the server does not know the connector for a member, or not yet */
    HANDSHAKE_NOT_ME = 4,     /* the server is not whom the connector wants */
    HANDSHAKE_STATUSES,
};

struct handshake_hello {
    int lane;
    uint64_t id, incarnation;               /* of the connector */
    uint64_t server_id, server_incarnation; /* of whom it wants */
};

/* The words of both sides: a proof is made of them. */
struct handshake {
    uint8_t hello[HANDSHAKE_HELLO_BYTES];
    uint8_t challenge[HANDSHAKE_CHALLENGE_BYTES];
};

/* ── the connector ── */
int handshake_write_hello(struct handshake *shake, const struct handshake_hello *hello); /* 0, or an errno: no random bytes */
/* The challenge has come. OK: the server has proved itself, and `proof` is to be sent. WRONG_KEY: it has not. -1: that is no challenge. */
int handshake_check_challenge(const struct handshake *shake, const uint8_t *key, uint8_t proof[HANDSHAKE_PROOF_BYTES]);
int handshake_read_welcome(const uint8_t welcome[HANDSHAKE_WELCOME_BYTES]); /* a status, or -1: it is no welcome */

/* ── the server ── */
bool handshake_read_hello(const struct handshake *shake, struct handshake_hello *hello); /* false: another version */
int handshake_write_challenge(struct handshake *shake, const uint8_t *key);                /* 0, or an errno: no random bytes */
void handshake_write_refusal(uint8_t challenge[HANDSHAKE_CHALLENGE_BYTES], enum handshake_status status); /* in place of a challenge */
bool handshake_check_proof(const struct handshake *shake, const uint8_t *key, const uint8_t proof[HANDSHAKE_PROOF_BYTES]);
void handshake_write_welcome(uint8_t welcome[HANDSHAKE_WELCOME_BYTES], enum handshake_status status);

#endif
