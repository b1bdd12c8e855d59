/* Records of the shard as bytes, little-endian: see fsmeta_moving.c. */
#ifndef AMFS_FSMETA_RECORDS_H
#define AMFS_FSMETA_RECORDS_H

#include "fsmeta_internal.h"

enum { FSMETA_BATCH = 0x42464d41 }; /* "AMFB": a batch of changes begins so */

static inline uint64_t fsmeta_number_at(const uint8_t *at, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

struct out {
    struct meta *meta;
    size_t partition;
    uint8_t *bytes;
    size_t size, room;
    bool bare;   /* without watchers */
    bool failed; /* no memory */
};

void fsmeta_put_bytes(struct out *out, const void *from, size_t count);
void fsmeta_put(struct out *out, uint64_t value, size_t count);
void fsmeta_put_name(struct out *out, const char *name, size_t length);
void fsmeta_put_xattrs(struct out *out, const struct xattr *list);
/* Visitors of tables; the context is a struct out. */
bool fsmeta_put_entry(void *context, struct link *link);
bool fsmeta_put_lock(void *context, struct link *link); /* only of the partition */
bool fsmeta_put_inode(void *context, struct link *link);

struct in {
    struct meta *meta;
    size_t partition;
    const uint8_t *at, *end;
    bool failed; /* damaged */
};

struct text {
    const char *at;
    size_t length;
};

const uint8_t *fsmeta_get_bytes(struct in *in, size_t count);
uint64_t fsmeta_get(struct in *in, size_t count);
void fsmeta_demand(struct in *in, bool truth);
struct text fsmeta_get_name(struct in *in);
int fsmeta_get_xattrs(struct in *in, struct xattr **list); /* into `list`, or only past them if it is NULL */
/* Each of these reads one record without its first byte and, if `apply`, puts it where it belongs. They return 0 or ENOMEM; damage is in->failed. */
int fsmeta_get_entry(struct in *in, bool apply);
int fsmeta_get_lock(struct in *in, bool apply);
int fsmeta_get_inode(struct in *in, bool apply);

#endif
