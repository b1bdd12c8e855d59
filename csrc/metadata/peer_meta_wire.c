/* Questions and answers as bytes. Stands on nothing but their declarations. */
#include "peer_meta_wire.h"

#include <string.h>

void peer_meta_put_record(uint8_t *to, const struct meta_attr *a) {
    put_le(to, a->ino, 8);
    put_le(to + 8, a->mode, 4);
    put_le(to + 12, a->nlink, 4);
    put_le(to + 16, a->uid, 4);
    put_le(to + 20, a->gid, 4);
    put_le(to + 24, a->rdev, 4);
    put_le(to + 28, a->stripe, 4);
    put_le(to + 32, a->layout, 1);
    put_le(to + 33, a->finished, 1);
    put_le(to + 34, a->copies, 1);
    put_le(to + 35, 0, 1);
    put_le(to + 36, (uint32_t)a->writer, 4);
    put_le(to + 40, (uint32_t)a->rank, 4);
    put_le(to + 44, a->size, 8);
    put_le(to + 52, a->blocks, 8);
    put_le(to + 60, (uint64_t)a->atime, 8);
    put_le(to + 68, (uint64_t)a->mtime, 8);
    put_le(to + 76, (uint64_t)a->ctime, 8);
    put_le(to + 84, a->pending, 8);
}

static void get_record(const uint8_t *from, struct meta_attr *a) {
    *a = (struct meta_attr){
        .ino = get_le(from, 8),
        .mode = (uint32_t)get_le(from + 8, 4),
        .nlink = (uint32_t)get_le(from + 12, 4),
        .uid = (uint32_t)get_le(from + 16, 4),
        .gid = (uint32_t)get_le(from + 20, 4),
        .rdev = (uint32_t)get_le(from + 24, 4),
        .stripe = (uint32_t)get_le(from + 28, 4),
        .layout = from[32],
        .finished = from[33],
        .copies = from[34],
        .writer = (int32_t)(uint32_t)get_le(from + 36, 4),
        .rank = (int32_t)(uint32_t)get_le(from + 40, 4),
        .size = get_le(from + 44, 8),
        .blocks = get_le(from + 52, 8),
        .atime = (int64_t)get_le(from + 60, 8),
        .mtime = (int64_t)get_le(from + 68, 8),
        .ctime = (int64_t)get_le(from + 76, 8),
        .pending = get_le(from + 84, 8),
    };
}

bool peer_meta_bytes_come(enum peer_meta_op op) {
    switch (op) {
    case PEER_META_READLINK:
    case PEER_META_GET_XATTR:
    case PEER_META_CONTENT:
    case PEER_META_BACKUP:
    case PEER_META_SPREAD:
    case PEER_META_RESERVE:
    case PEER_META_LIST: return true;
    default: return false;
    }
}

size_t peer_meta_write_question(const struct peer_meta_question *q, uint32_t serial, uint8_t *to) {
    size_t heard = q->heard != 0 ? HEARD_BYTES : 0, record = q->attr != NULL ? ATTR_BYTES : 0;
    size_t size = QUESTION_HEAD + heard + record + q->name_length + q->value_length;
    size_t most = q->op == PEER_META_BACKUP ? PEER_META_BATCH_MAX : PEER_META_QUESTION_MAX;
    if (size > most || q->name_length > META_NAME_MAX) return 0;
    put_le(to, size, 4);
    put_le(to + 4, serial, 4);
    put_le(to + 8, (uint64_t)q->op, 1);
    put_le(to + 9, q->flags | (record > 0 ? PEER_META_HAS_ATTR : 0) | (heard > 0 ? PEER_META_HEARD : 0), 1);
    put_le(to + 10, q->name_length, 2);
    put_le(to + 12, q->value_length, 4);
    put_le(to + 16, q->ino, 8);
    put_le(to + 24, (uint64_t)q->now, 8);
    to += QUESTION_HEAD;
    if (heard > 0) put_le(to, q->heard, 8);
    to += heard;
    if (record > 0) peer_meta_put_record(to, q->attr);
    if (q->name_length > 0) memcpy(to + record, q->name, q->name_length);
    if (q->value_length > 0) memcpy(to + record + q->name_length, q->value, q->value_length);
    return size;
}

bool peer_meta_read_question(const uint8_t *bytes, size_t size, struct peer_meta_question *q, struct meta_attr *attr, uint32_t *serial) {
    if (size < QUESTION_HEAD || size > PEER_META_BATCH_MAX || get_le(bytes, 4) != size) return false;
    if (size > PEER_META_QUESTION_MAX && bytes[8] != PEER_META_BACKUP) return false;
    *serial = (uint32_t)get_le(bytes + 4, 4);
    *q = (struct peer_meta_question){
        .op = (enum peer_meta_op)bytes[8],
        .flags = bytes[9],
        .name_length = (size_t)get_le(bytes + 10, 2),
        .value_length = (size_t)get_le(bytes + 12, 4),
        .ino = get_le(bytes + 16, 8),
        .now = (int64_t)get_le(bytes + 24, 8),
    };
    size_t record = (q->flags & PEER_META_HAS_ATTR) != 0 ? ATTR_BYTES : 0, heard = (q->flags & PEER_META_HEARD) != 0 ? HEARD_BYTES : 0;
    size_t left = size - QUESTION_HEAD;
    if (q->op < PEER_META_LOOKUP || q->op >= PEER_META_OPS || q->ino == 0 || q->name_length > META_NAME_MAX) return false;
    if (left < heard + record || left - heard - record < q->name_length) return false;
    if (left - heard - record - q->name_length != q->value_length) return false;
    const uint8_t *rest = bytes + QUESTION_HEAD;
    if (heard > 0) q->heard = get_le(rest, 8);
    rest += heard;
    if (record > 0) {
        get_record(rest, attr);
        q->attr = attr;
    }
    q->name = (const char *)rest + record;
    q->value = rest + record + q->name_length;
    return true;
}

bool peer_meta_read_spares(const uint8_t *from, size_t size, struct meta_spares *spares) {
    spares->count = size / PEER_META_SPARED_BYTES;
    if (spares->count * PEER_META_SPARED_BYTES != size || spares->count > META_SPARED_MAX) return false;
    for (size_t i = 0; i < spares->count; i++, from += PEER_META_SPARED_BYTES)
        spares->each[i] = (struct meta_spared){(int32_t)(uint32_t)get_le(from, 4), get_le(from + 4, 8)};
    return true;
}

bool peer_meta_read_answer(const uint8_t *bytes, size_t size, uint32_t *serial, struct peer_meta_answer *answer) {
    if (size < ANSWER_HEAD || size > PEER_META_ANSWER_MAX || get_le(bytes, 4) != size || get_le(bytes + 12, 4) >> 8 != 0) return false;
    *serial = (uint32_t)get_le(bytes + 4, 4);
    *answer = (struct peer_meta_answer){.error = (int)(int32_t)(uint32_t)get_le(bytes + 8, 4), .flags = bytes[12]};
    size_t record = (answer->flags & PEER_META_HAS_ATTR) != 0 ? ATTR_BYTES : 0;
    if (size - ANSWER_HEAD < record || answer->error < 0) return false;
    if (record > 0) get_record(bytes + ANSWER_HEAD, &answer->attr);
    size_t holder = (answer->flags & PEER_META_SMALL) != 0 ? HOLDER_BYTES : 0;
    if (size - ANSWER_HEAD - record < holder) return false;
    if (holder > 0) answer->holder = (int32_t)(uint32_t)get_le(bytes + ANSWER_HEAD + record, HOLDER_BYTES);
    answer->bytes = bytes + ANSWER_HEAD + record + holder;
    answer->count = size - ANSWER_HEAD - record - holder;
    return true;
}
