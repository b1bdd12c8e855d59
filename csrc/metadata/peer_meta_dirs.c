/* The answers of this node to the manager, and to nodes that pass its changes of directories on. Stands on the bytes alone. */
#include "peer_meta_wire.h"

#include <errno.h>

enum { MANAGER_BYTES = 4, ANSWER_BYTES = 8, ANSWERS_MAX = PEER_META_BYTES_MAX / ANSWER_BYTES };

/* As amfs/fs/vfs/directories.py. The kernel of the node that wants a change makes it in its own names, and holds the directory until it is answered. No kernel
 * remembers a name that is not there. */
static void tell_kernels(const struct peer_meta *peer_meta, const struct meta_change *c) {
    const struct peer_meta_kernel *kernel = &peer_meta->kernel;
    if (c->kind == META_CHANGE_DROP) meta_stale(peer_meta->meta, meta_name_mark(c->dir, c->name, c->length));
    if (!peer_meta->has_kernel || (c->kind != META_CHANGE_ADD && c->kind != META_CHANGE_DROP)) return;
    bool drops = c->kind == META_CHANGE_DROP;
    if (c->asker == peer_meta->node) {
        kernel->touched(kernel->context, c->dir);
        if (drops) kernel->touched(kernel->context, c->ino);
        return;
    }
    if (drops && kernel->knows(kernel->context, c->ino)) kernel->forget(kernel->context, c->ino, c->dir, c->name, c->length);
    if (kernel->knows(kernel->context, c->dir)) kernel->forget(kernel->context, c->dir, 0, NULL, 0);
}

int peer_meta_take_spread(struct peer_meta *peer_meta, const struct peer_meta_question *q, uint8_t *answer, size_t *count) {
    const uint8_t *at = q->value, *end = at + q->value_length;
    int64_t answers[ANSWERS_MAX];
    size_t changes;
    if (q->value_length < MANAGER_BYTES) return EINVAL;
    int32_t manager = (int32_t)(uint32_t)get_le(at, MANAGER_BYTES);
    at += MANAGER_BYTES;
    if (!meta_count_changes(at, (size_t)(end - at), &changes) || changes > ANSWERS_MAX) return EINVAL;
    int error = meta_spread(peer_meta->meta, manager, q->ino, true, at, (size_t)(end - at), answers);
    if (error != 0) return error;
    struct meta_change change;
    for (size_t i = 0; meta_next_change(&at, end, &change); i++) {
        put_le(answer + i * ANSWER_BYTES, (uint64_t)answers[i], ANSWER_BYTES);
        if (answers[i] >= 0) tell_kernels(peer_meta, &change);
    }
    *count = changes * ANSWER_BYTES;
    return 0;
}

int peer_meta_reserve(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q, uint8_t *answer, size_t *count) {
    uint64_t ino;
    int error = meta_reserve_for(peer_meta->meta, node, (uint64_t)q->now, q->ino, q->name, q->name_length, &ino);
    if (error != 0) return error;
    put_le(answer, ino, ANSWER_BYTES);
    *count = ANSWER_BYTES;
    return 0;
}

int peer_meta_strike(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *q) {
    if (q->value_length != ANSWER_BYTES) return EINVAL;
    return meta_strike_for(peer_meta->meta, node, (uint64_t)q->now, q->ino, q->name, q->name_length, get_le(q->value, ANSWER_BYTES));
}
