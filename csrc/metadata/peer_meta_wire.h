/* Questions and answers between peer_meta.c and peer_meta_ask.c of two nodes, as bytes, little-endian. Both begin with their size.
 *   question  u32 size, u32 serial, u8 op, u8 flags, u16 bytes of the name, u32 bytes of the value, u64 ino, i64 now;
 *             u64 number if PEER_META_HEARD: the asker has all before this item of what it is told as a backup; the record if PEER_META_HAS_ATTR; name; value
 *   answer    u32 size, u32 serial, i32 error, u8 flags, u8[3] zero; the record if PEER_META_HAS_ATTR; u32 node if PEER_META_SMALL; bytes. With PEER_META_BATCH
 *             (serial 0) it answers nothing: the bytes are a batch for the asker as a backup, which it takes before it goes by any answer that follows */
#ifndef AMFS_PEER_META_WIRE_H
#define AMFS_PEER_META_WIRE_H

#include "data/fsio_internal.h"
#include "peer_meta.h"

enum { QUESTION_HEAD = 32, HEARD_BYTES = 8, ANSWER_HEAD = 16, ATTR_BYTES = 92, HOLDER_BYTES = 4, IN_BYTES = 256 << 10 };

struct peer_meta_link;

struct peer_meta {
    struct meta *meta;
    struct fsio *io;
    int32_t node;
    pthread_rwlock_t kernel_lock;
    struct peer_meta_kernel kernel;
    bool has_kernel;
    atomic_bool shy;
    atomic_ullong asked, served;
    pthread_mutex_t lock; /* the list of links; a link's own comes after it */
    struct peer_meta_link *links;
    pthread_mutex_t held_lock;
    pthread_cond_t settled; /* backups know more, there is another table, or somebody's `ready` has returned */
    struct peer_meta_held *held, **held_tail;
    uint64_t known; /* the last ticket that was seen to be known to backups */
    int giving;
    void (*connected)(struct peer_meta *peer_meta); /* the connection for backups is there, or is to be tried again */
};

/* peer_meta_wire.c */
void peer_meta_put_record(uint8_t *to, const struct meta_attr *attr);
bool peer_meta_bytes_come(enum peer_meta_op op); /* is that the answer to such a question */
/* The parts of a question point into its bytes. False: it is none. */
bool peer_meta_read_question(const uint8_t *bytes, size_t size, struct peer_meta_question *question, struct meta_attr *attr,
                             uint32_t *serial);

/* peer_meta_backup.c, for peer_meta.c */
void peer_meta_held_tick(struct peer_meta *peer_meta);
int peer_meta_take_backup(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *question, uint8_t *answer,
                          size_t *count);
enum { BATCH_ROOM = ANSWER_HEAD + PEER_META_BYTES_MAX };
/* Before answers to `node` go out, by which something was changed: *size bytes that go before them, ending at `to` (BATCH_ROOM before it); else it waits
 * until backups know of it. False: that took too long, and nobody can be answered. */
bool peer_meta_before_answers(struct peer_meta *peer_meta, int32_t node, uint8_t *to, size_t *size);
/* A batch that came before answers on a connection. False: it is not taken, and what follows must not be gone by. */
bool peer_meta_batch_came(struct peer_meta *peer_meta, int32_t node, int fd, const struct peer_meta_answer *answer);

/* peer_meta_dirs.c, for peer_meta.c */
int peer_meta_take_spread(struct peer_meta *peer_meta, const struct peer_meta_question *question, uint8_t *answer, size_t *count);
int peer_meta_reserve(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *question, uint8_t *answer, size_t *count);
int peer_meta_strike(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *question);

/* peer_meta_ask.c, for peer_meta.c */
bool peer_meta_is_up(struct peer_meta *peer_meta, int32_t node); /* the connection for backups */
void peer_meta_answer_came(struct peer_meta_link *link, uint32_t serial, const struct peer_meta_answer *answer);
void peer_meta_link_heard(struct peer_meta_link *link); /* a batch of that node was taken */
void peer_meta_link_ended(struct peer_meta_link *link);
void peer_meta_links_tick(struct peer_meta *peer_meta);
void peer_meta_links_free(struct peer_meta *peer_meta);

#endif
