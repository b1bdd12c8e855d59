/* The metadata shard: changes of partitions as batches for the nodes that are told of them (fsmeta_backup.c).
 *
 * A batch begins with the first item that is not known to be there, so that none is missed, and whatever comes twice is passed over by its number.
 * What a node asks for and must be told as the backup goes with the answer (meta_backup_for_asker); its next question says that it has it.
 *
 * A batch, little-endian: u32 magic, u64 version of the table, u64 number of its first item, u32 items; of each: u32 bytes that follow, u8 kind, u16 partition,
 * u64 ticket, and
 *   S  u64 last serial number given out, u8 unsure: forget the partition, all of it follows
 *   E  I  as in fsmeta_moving.c, without watchers       e  u64 directory, name: no such entry       i  u64 number: no such record
 *   M  in step from here on                             A  whose records are there in step: they are the asker's now
 *   R  it need not know it any more                     F  no name is unsure any more
 * Its answer: a u16 for each partition that it cannot keep in step. */
#include "fsmeta_backup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = 24,
    SNAPSHOT_BYTES = 32 << 10, /* while no more than this waits, another partition is put in step */
};

uint64_t meta_version(struct meta *meta) {
    enter(meta);
    uint64_t version = meta->version;
    pthread_mutex_unlock(&meta->lock);
    return version;
}

uint64_t meta_ticket(struct meta *meta) {
    enter(meta);
    uint64_t ticket = meta->ticket;
    pthread_mutex_unlock(&meta->lock);
    return ticket;
}

uint64_t meta_backed_up(struct meta *meta) {
    enter(meta);
    uint64_t until = meta->ticket;
    for (const struct stream *stream = meta->streams; stream != NULL; stream = stream->next) {
        if (stream->items.failed) until = 0;
        else if (stream->items.size > stream->start && until >= fsmeta_number_at(stream->items.bytes + stream->start + 7, 8))
            until = fsmeta_number_at(stream->items.bytes + stream->start + 7, 8) - 1;
    }
    pthread_mutex_unlock(&meta->lock);
    return until;
}

/* ── batches ── */

int meta_backup_nodes(struct meta *meta, struct meta_nodes *nodes) {
    int error = 0;
    enter(meta);
    for (const struct stream *stream = meta->streams; error == 0 && stream != NULL; stream = stream->next) {
        if (stream->busy || (stream->waiting == 0 && stream->items.size == stream->start)) continue;
        if ((error = fsmeta_nodes_reserve(nodes, 1)) == 0) fsmeta_nodes_add(nodes, stream->node);
    }
    return leave(meta, error);
}

static void tell_partitions(struct meta *meta, struct stream *stream) {
    for (size_t i = 0; i < atomic_load(&meta->partitions) && stream->waiting > 0 && stream->items.size - stream->start < SNAPSHOT_BYTES;
         i++) {
        struct target *target = fsmeta_find_target(meta, i, stream->node);
        if (target == NULL || target->state != META_BACKUP_WAITING || !fsmeta_is_mine(meta, i)) continue;
        stream->waiting--;
        fsmeta_move_target(target, META_BACKUP_TOLD);
        fsmeta_put_partition(meta, stream, i);
    }
}

/* How many bytes of items, from the first, go into a batch of at most `room`; at least one item, and no more than can be refused in an answer. */
static size_t measure(const struct stream *stream, size_t room, uint64_t *count) {
    size_t end = stream->start;
    *count = 0;
    while (end < stream->items.size && *count < META_REFUSED_MAX / 2) {
        size_t next = end + 4 + (size_t)fsmeta_number_at(stream->items.bytes + end, 4);
        if (*count > 0 && next - stream->start > room - HEAD_BYTES) break;
        end = next;
        ++*count;
    }
    return end - stream->start;
}

static void write_batch(const struct meta *meta, const struct stream *stream, uint64_t count, size_t body, uint8_t *to) {
    const uint64_t head[] = {FSMETA_BATCH, meta->version, stream->number, count};
    const size_t widths[] = {4, 8, 8, 4};
    for (size_t i = 0, at = 0; i < 4; at += widths[i++])
        for (size_t j = 0; j < widths[i]; j++) to[at + j] = (uint8_t)(head[i] >> (8 * j));
    memcpy(to + HEAD_BYTES, stream->items.bytes + stream->start, body);
}

int meta_backup_next(struct meta *meta, int32_t node, uint8_t **bytes, size_t *size) {
    *size = 0;
    enter(meta);
    struct stream *stream = fsmeta_find_stream(meta, node);
    if (stream == NULL || stream->busy || !meta->telling) return leave(meta, 0);
    tell_partitions(meta, stream);
    if (stream->items.failed || stream->items.size == stream->start) return leave(meta, stream->items.failed ? ENOMEM : 0);
    uint64_t count;
    size_t body = measure(stream, META_BATCH_MAX, &count);
    uint8_t *batch = malloc(HEAD_BYTES + body);
    if (batch == NULL) return leave(meta, ENOMEM);
    write_batch(meta, stream, count, body, batch);
    stream->busy = true;
    stream->flying = stream->number + count;
    if (stream->sent < stream->flying) stream->sent = stream->flying;
    *bytes = batch;
    *size = HEAD_BYTES + body;
    return leave(meta, 0);
}

static bool is_told_until(const struct stream *stream, uint64_t ticket) {
    return !stream->items.failed &&
           (stream->items.size == stream->start || fsmeta_number_at(stream->items.bytes + stream->start + 7, 8) > ticket);
}

bool meta_backup_for_asker(struct meta *meta, int32_t node, uint64_t ticket, uint8_t *to, size_t room, size_t *size) {
    *size = 0;
    enter(meta);
    struct stream *asker = NULL;
    bool alone = meta->telling;
    for (struct stream *stream = meta->streams; alone && stream != NULL; stream = stream->next) {
        if (stream->node == node) asker = stream;
        else alone = is_told_until(stream, ticket);
    }
    if (alone && asker != NULL && !is_told_until(asker, ticket)) {
        size_t body = asker->items.size - asker->start;
        uint64_t count;
        alone = !asker->items.failed && body + HEAD_BYTES <= room && measure(asker, room, &count) == body;
        if (alone) {
            write_batch(meta, asker, count, body, to);
            *size = HEAD_BYTES + body;
            if (asker->sent < asker->number + count) asker->sent = asker->number + count;
        }
    }
    return leave(meta, alone);
}

/* It has all items before the one of this number. */
static void known_until(struct meta *meta, struct stream *stream, uint64_t number) {
    struct out *items = &stream->items;
    while (stream->number < number && stream->start < items->size) {
        size_t at = stream->start;
        uint8_t kind = items->bytes[at + 4];
        stream->start += 4 + (size_t)fsmeta_number_at(items->bytes + at, 4);
        stream->number++;
        if (kind < 'a' && kind != 'E' && kind != 'I' && kind != 'S')
            fsmeta_backup_settled(meta, stream, kind, (size_t)fsmeta_number_at(items->bytes + at + 5, 2));
    }
    if (stream->start == items->size) {
        stream->start = items->size = 0;
        if (items->room > 4 * META_BATCH_MAX) {
            free(items->bytes);
            items->bytes = NULL;
            items->room = 0;
        }
    } else if (stream->start > items->size / 2) {
        memmove(items->bytes, items->bytes + stream->start, items->size - stream->start);
        items->size -= stream->start;
        stream->start = 0;
    }
}

bool meta_backup_answered(struct meta *meta, int32_t node, int error, const uint8_t *answer, size_t count) {
    bool refused = error != 0;
    enter(meta);
    struct stream *stream = fsmeta_find_stream(meta, node);
    if (stream == NULL || !stream->busy) return leave(meta, !refused);
    stream->busy = false;
    if (error != 0) return leave(meta, false);
    for (size_t i = 0; i + 2 <= count; i += 2) {
        size_t partition = (size_t)fsmeta_number_at(answer + i, 2);
        if (partition < atomic_load(&meta->partitions) && fsmeta_backup_refused(meta, stream, partition)) refused = true;
    }
    known_until(meta, stream, stream->flying);
    return leave(meta, !refused);
}

void meta_backup_heard(struct meta *meta, int32_t node, uint64_t number) {
    enter(meta);
    struct stream *stream = fsmeta_find_stream(meta, node);
    if (stream != NULL) known_until(meta, stream, number < stream->sent ? number : stream->sent);
    pthread_mutex_unlock(&meta->lock);
}
