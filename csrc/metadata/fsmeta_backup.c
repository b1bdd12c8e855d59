/* The metadata shard: backups. Every partition of here has another node that is told of each change of its entries and records before the change is
 * answered, and that inherits it.
 *
 * The owner keeps for each such node (a stream) what that is to be told, in the order in which it happened, until it has said that it has it. Whoever
 * carries the bytes (peer_meta_backup.c, a simulator) takes a batch at a time. A change has a ticket; meta_backed_up says up to which ticket
 * everybody has everything. Nobody is told of watchers, locks and of files that the owner itself reads: they end with it.
 *
 * A node that becomes the backup of a partition is told all of it, and then of changes. It knows that it is in step when it has been told so, and believes so
 * until it is released: so the owner answers no change of which one that may believe it has not heard.
 *
 * A batch, little-endian: u32 magic, u64 version of the table, u64 number of its first item, u32 items; of each: u32 bytes that follow, u8 kind, u16 partition,
 * u64 ticket, and
 *   S  u64 last serial number given out, u8 unsure: forget the partition, all of it follows
 *   E  I  as in fsmeta_moving.c, without watchers       e  u64 directory, name: no such entry       i  u64 number: no such record
 *   M  in step from here on                             A  whose records are there in step: they are the asker's now
 *   R  it need not know it any more                     F  no name is unsure any more
 * Its answer: a u16 for each partition that it cannot keep in step. */
#include "fsmeta_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = 24,
    ITEM_HEAD = 15,
    SNAPSHOT_BYTES = 32 << 10, /* while no more than this waits, another partition is put in step */
};

struct stream {
    struct stream *next;
    int32_t node;
    struct out items; /* those that are not answered yet begin at `start` */
    size_t start, item; /* item: where the one begins that is being written */
    uint64_t number; /* of the first */
    uint64_t flying; /* items of the batch that is under way */
    size_t flying_bytes, waiting; /* partitions that it is to be told of */
    bool busy;
};

static _Thread_local uint64_t thread_ticket;

uint64_t meta_take_ticket(void) {
    uint64_t ticket = thread_ticket;
    thread_ticket = 0;
    return ticket;
}

bool fsmeta_is_shadow(const struct meta *meta, size_t partition) { return meta->shadows[partition].state != SHADOW_NONE; }

/* ── the table of states ── that of engine/states.py */

int meta_backup_move(int state, int event) {
    enum { NEVER = -1 };
    static const int8_t next[META_BACKUP_STATES][META_BACKUP_EVENTS] = {
        /* TOLD, ANSWERED, REPLACED, INHERITED, CHOSEN */
        [META_BACKUP_NONE] = {NEVER, NEVER, NEVER, META_BACKUP_IN_STEP, META_BACKUP_WAITING},
        [META_BACKUP_WAITING] = {META_BACKUP_SYNCING, NEVER, META_BACKUP_NONE, NEVER, NEVER},
        [META_BACKUP_SYNCING] = {NEVER, META_BACKUP_IN_STEP, META_BACKUP_RELEASING, NEVER, NEVER},
        [META_BACKUP_IN_STEP] = {NEVER, NEVER, META_BACKUP_RELEASING, NEVER, NEVER},
        [META_BACKUP_RELEASING] = {NEVER, META_BACKUP_NONE, NEVER, NEVER, NEVER},
    };
    if (state < 0 || state >= META_BACKUP_STATES || event < 0 || event >= META_BACKUP_EVENTS) return NEVER;
    return next[state][event];
}

static void move(struct target *target, enum meta_backup_event event) {
    int next = meta_backup_move(target->state, event);
    if (next < 0) abort(); /* no caller lets it come to that */
    target->state = (uint8_t)next;
}

static bool is_told(const struct target *target) {
    return target->state == META_BACKUP_SYNCING || target->state == META_BACKUP_IN_STEP || target->state == META_BACKUP_RELEASING;
}

/* ── items ── */

static void begin_item(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition) {
    stream->item = stream->items.size;
    stream->items.meta = meta;
    stream->items.partition = partition;
    meta->ticket++;
    fsmeta_put(&stream->items, 0, 4);
    fsmeta_put(&stream->items, kind, 1);
    fsmeta_put(&stream->items, partition, 2);
    fsmeta_put(&stream->items, meta->ticket, 8);
}

/* Without memory the stream stays as it is for ever: nothing more is answered before its node is taken out, which is no loss. */
static void end_item(struct stream *stream) {
    struct out *out = &stream->items;
    if (out->failed) return;
    size_t size = out->size - stream->item - 4;
    for (int i = 0; i < 4; i++) out->bytes[stream->item + (size_t)i] = (uint8_t)(size >> (8 * i));
}

static void put_item(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition) {
    begin_item(meta, stream, kind, partition);
    end_item(stream);
}

struct snapshot {
    struct meta *meta;
    struct stream *stream;
    size_t partition;
};

/* A record as an item; the visitors of fsmeta_records.c put its letter before it, which is that of the item here. */
static void put_record(struct snapshot *to, bool (*put)(void *context, struct link *link), struct link *link) {
    struct out *out = &to->stream->items;
    begin_item(to->meta, to->stream, 0, to->partition);
    size_t at = out->size;
    put(out, link);
    if (!out->failed) {
        out->bytes[to->stream->item + 4] = out->bytes[at];
        memmove(out->bytes + at, out->bytes + at + 1, out->size - at - 1);
        out->size--;
    }
    end_item(to->stream);
}

static bool snap_entry(void *context, struct link *link) {
    put_record(context, fsmeta_put_entry, link);
    return false;
}

static bool snap_inode(void *context, struct link *link) {
    put_record(context, fsmeta_put_inode, link);
    return false;
}

static void put_partition(struct meta *meta, struct stream *stream, size_t partition) {
    struct snapshot to = {meta, stream, partition};
    begin_item(meta, stream, 'S', partition);
    fsmeta_put(&stream->items, meta->serials[partition], 8);
    fsmeta_put(&stream->items, meta->unsure[partition], 1);
    end_item(stream);
    fsmeta_table_sift(&meta->inodes[partition], snap_inode, &to);
    fsmeta_table_sift(&meta->entries[partition], snap_entry, &to);
    put_item(meta, stream, 'M', partition);
}

/* ── what changed ── */

static void log_record(struct meta *meta, size_t partition, bool (*put)(void *context, struct link *link), struct link *link) {
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next)
        if (is_told(target)) {
            put_record(&(struct snapshot){meta, target->stream, partition}, put, link);
            thread_ticket = meta->ticket;
        }
}

void fsmeta_log_entry(struct meta *meta, const struct entry *entry) {
    struct entry *it = (struct entry *)(uintptr_t)entry;
    log_record(meta, fsmeta_partition_of_key(meta, entry->link.key), fsmeta_put_entry, &it->link);
}

void fsmeta_log_inode(struct meta *meta, struct inode *inode) {
    if (inode->nlink == 0 && inode->users == 0) return; /* it is about to go */
    log_record(meta, fsmeta_partition_of_ino(meta, inode->link.key), fsmeta_put_inode, &inode->link);
}

void fsmeta_log_entry_gone(struct meta *meta, const struct entry *entry) {
    size_t partition = fsmeta_partition_of_key(meta, entry->link.key);
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next) {
        if (!is_told(target)) continue;
        begin_item(meta, target->stream, 'e', partition);
        fsmeta_put(&target->stream->items, entry->dir, 8);
        fsmeta_put_name(&target->stream->items, entry->name, entry->length);
        end_item(target->stream);
        thread_ticket = meta->ticket;
    }
}

void fsmeta_log_inode_gone(struct meta *meta, uint64_t ino) {
    size_t partition = fsmeta_partition_of_ino(meta, ino);
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next) {
        if (!is_told(target)) continue;
        begin_item(meta, target->stream, 'i', partition);
        fsmeta_put(&target->stream->items, ino, 8);
        end_item(target->stream);
        thread_ticket = meta->ticket;
    }
}

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

/* ── who is told ── */

static struct stream *stream_to(struct meta *meta, int32_t node) {
    struct stream *stream = meta->streams;
    while (stream != NULL && stream->node != node) stream = stream->next;
    if (stream != NULL || (stream = calloc(1, sizeof *stream)) == NULL) return stream;
    stream->node = node;
    stream->items.bare = true;
    stream->next = meta->streams;
    meta->streams = stream;
    return stream;
}

static struct target *target_of(struct meta *meta, size_t partition, int32_t node) {
    struct target *target = meta->targets[partition];
    while (target != NULL && target->stream->node != node) target = target->next;
    return target;
}

static struct target *add_target(struct meta *meta, size_t partition, int32_t node, enum meta_backup_event event) {
    struct stream *stream = stream_to(meta, node);
    struct target *target = stream == NULL ? NULL : fsmeta_slab_take(&meta->slabs, sizeof *target);
    if (target == NULL) return NULL;
    *target = (struct target){meta->targets[partition], stream, META_BACKUP_NONE};
    move(target, event);
    meta->targets[partition] = target;
    if (target->state == META_BACKUP_WAITING) stream->waiting++;
    return target;
}

/* Those that are NONE, or whose node is gone. */
static void sweep(struct meta *meta, size_t partition, const int32_t *live, size_t count, bool all) {
    for (struct target **at = &meta->targets[partition]; *at != NULL;) {
        struct target *target = *at;
        bool lives = live == NULL;
        for (size_t i = 0; i < count; i++) lives = lives || live[i] == target->stream->node;
        if (lives && !all && target->state != META_BACKUP_NONE) {
            at = &target->next;
            continue;
        }
        if (target->state == META_BACKUP_WAITING) target->stream->waiting--;
        *at = target->next;
        fsmeta_slab_give(&meta->slabs, target);
    }
}

static void want(struct meta *meta, size_t partition) {
    if (meta->backups[partition] >= 0 && target_of(meta, partition, meta->backups[partition]) == NULL)
        (void)add_target(meta, partition, meta->backups[partition],
                         META_BACKUP_CHOSEN); /* no memory: there is no backup until the next table */
}

/* The one that is to stay is in step: the others may go. */
static void release_others(struct meta *meta, size_t partition) {
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next) {
        if (target->stream->node == meta->backups[partition] || target->state == META_BACKUP_RELEASING) continue;
        if (target->state == META_BACKUP_WAITING) target->stream->waiting--;
        else put_item(meta, target->stream, 'R', partition);
        move(target, META_BACKUP_REPLACED);
    }
    sweep(meta, partition, NULL, 0, false);
}

static void free_stream(struct stream *stream) {
    free(stream->items.bytes);
    free(stream);
}

int meta_set_backups(struct meta *meta, const int32_t *backups, size_t partitions, const int32_t *live, size_t count) {
    enter(meta);
    if (partitions != atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    for (size_t i = 0; i < atomic_load(&meta->partitions); i++) {
        bool mine = fsmeta_is_mine(meta, i);
        meta->backups[i] = mine ? backups[i] : -1;
        sweep(meta, i, live, count, false);
        if (!mine) continue;
        want(meta, i);
        const struct target *stays = target_of(meta, i, meta->backups[i]);
        if (stays != NULL && stays->state == META_BACKUP_IN_STEP) release_others(meta, i);
    }
    for (struct stream **at = &meta->streams; *at != NULL;) {
        struct stream *stream = *at;
        bool lives = false;
        for (size_t i = 0; i < count; i++) lives = lives || live[i] == stream->node;
        if (lives) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        free_stream(stream);
    }
    meta->telling = true;
    return leave(meta, 0);
}

int meta_inherit_backups(struct meta *meta, uint32_t partition, const int32_t *nodes, size_t count) {
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] == meta->node || target_of(meta, partition, nodes[i]) != NULL) continue;
        struct target *target = add_target(meta, partition, nodes[i], META_BACKUP_INHERITED);
        if (target == NULL) return leave(meta, ENOMEM);
        put_item(meta, target->stream, 'A', partition);
    }
    return leave(meta, 0);
}

int meta_backups_of(struct meta *meta, uint32_t partition, struct meta_nodes *nodes) {
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    int error = 0;
    for (const struct target *target = meta->targets[partition]; error == 0 && target != NULL; target = target->next)
        if (is_told(target) && (error = fsmeta_nodes_reserve(nodes, 1)) == 0) fsmeta_nodes_add(nodes, target->stream->node);
    return leave(meta, error);
}

int meta_drop_backups(struct meta *meta, uint32_t partition) {
    enter(meta);
    if (partition < atomic_load(&meta->partitions)) sweep(meta, partition, NULL, 0, true);
    return leave(meta, 0);
}

void meta_count_backups(struct meta *meta, struct meta_backup_counts *counts) {
    *counts = (struct meta_backup_counts){.own = 0};
    enter(meta);
    for (size_t i = 0; i < atomic_load(&meta->partitions); i++) {
        counts->unsure += fsmeta_owned_by_table(meta, i) && meta->unsure[i];
        if (!fsmeta_owned_by_table(meta, i)) continue;
        bool backed = false;
        for (const struct target *target = meta->targets[i]; target != NULL; target = target->next)
            backed = backed || target->state == META_BACKUP_IN_STEP || target->state == META_BACKUP_RELEASING;
        counts->own++;
        counts->backed += backed;
    }
    pthread_mutex_unlock(&meta->lock);
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

static struct stream *find_stream(const struct meta *meta, int32_t node) {
    struct stream *stream = meta->streams;
    while (stream != NULL && stream->node != node) stream = stream->next;
    return stream;
}

static void tell_partitions(struct meta *meta, struct stream *stream) {
    for (size_t i = 0; i < atomic_load(&meta->partitions) && stream->waiting > 0 && stream->items.size - stream->start < SNAPSHOT_BYTES;
         i++) {
        struct target *target = target_of(meta, i, stream->node);
        if (target == NULL || target->state != META_BACKUP_WAITING || !fsmeta_is_mine(meta, i)) continue;
        stream->waiting--;
        move(target, META_BACKUP_TOLD);
        put_partition(meta, stream, i);
    }
}

int meta_backup_next(struct meta *meta, int32_t node, uint8_t **bytes, size_t *size) {
    *size = 0;
    enter(meta);
    struct stream *stream = find_stream(meta, node);
    if (stream == NULL || stream->busy || !meta->telling) return leave(meta, 0);
    tell_partitions(meta, stream);
    const struct out *items = &stream->items;
    if (items->failed || items->size == stream->start) return leave(meta, items->failed ? ENOMEM : 0);
    size_t end = stream->start;
    uint64_t count = 0;
    while (end < items->size) {
        size_t next = end + 4 + (size_t)fsmeta_number_at(items->bytes + end, 4);
        if (count > 0 && next - stream->start > META_BATCH_MAX - HEAD_BYTES) break;
        end = next;
        count++;
    }
    size_t body = end - stream->start;
    uint8_t *batch = malloc(HEAD_BYTES + body);
    if (batch == NULL) return leave(meta, ENOMEM);
    const uint64_t head[] = {FSMETA_BATCH, meta->version, stream->number, count};
    const size_t widths[] = {4, 8, 8, 4};
    for (size_t i = 0, at = 0; i < 4; at += widths[i++])
        for (size_t j = 0; j < widths[i]; j++) batch[at + j] = (uint8_t)(head[i] >> (8 * j));
    memcpy(batch + HEAD_BYTES, items->bytes + stream->start, body);
    stream->busy = true;
    stream->flying = count;
    stream->flying_bytes = body;
    *bytes = batch;
    *size = HEAD_BYTES + body;
    return leave(meta, 0);
}

/* Of the items that are answered only these change who is told of what. */
static void settle(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition) {
    struct target *target = target_of(meta, partition, stream->node);
    if (target == NULL) return;
    if (kind == 'M' && target->state == META_BACKUP_SYNCING) {
        move(target, META_BACKUP_ANSWERED);
        if (meta->backups[partition] == stream->node) release_others(meta, partition);
    } else if (kind == 'A' && target->state == META_BACKUP_IN_STEP) {
        if (meta->backups[partition] == stream->node) release_others(meta, partition);
    } else if (kind == 'R' && target->state == META_BACKUP_RELEASING) {
        move(target, META_BACKUP_ANSWERED);
        sweep(meta, partition, NULL, 0, false);
        if (meta->backups[partition] == stream->node) want(meta, partition); /* it was to stay after all */
    }
}

/* It is not in step, but what is on its way may make it believe so: it is released first, and then begun with again. */
static void refused(struct meta *meta, struct stream *stream, size_t partition) {
    struct target *target = target_of(meta, partition, stream->node);
    if (target == NULL || target->state == META_BACKUP_WAITING || target->state == META_BACKUP_RELEASING) return;
    move(target, META_BACKUP_REPLACED);
    put_item(meta, stream, 'R', partition);
}

int meta_backup_answered(struct meta *meta, int32_t node, int error, const uint8_t *answer, size_t count) {
    enter(meta);
    struct stream *stream = find_stream(meta, node);
    if (stream == NULL || !stream->busy) return leave(meta, 0);
    stream->busy = false;
    if (error != 0) return leave(meta, 0);
    for (size_t i = 0; i + 2 <= count; i += 2) {
        size_t partition = (size_t)fsmeta_number_at(answer + i, 2);
        if (partition < atomic_load(&meta->partitions)) refused(meta, stream, partition);
    }
    struct out *items = &stream->items;
    size_t end = stream->start + stream->flying_bytes;
    for (size_t at = stream->start; at < end; at += 4 + (size_t)fsmeta_number_at(items->bytes + at, 4)) {
        uint8_t kind = items->bytes[at + 4];
        if (kind < 'a' && kind != 'E' && kind != 'I' && kind != 'S')
            settle(meta, stream, kind, (size_t)fsmeta_number_at(items->bytes + at + 5, 2));
    }
    stream->start = end;
    stream->number += stream->flying;
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
    return leave(meta, 0);
}

int meta_set_unsure(struct meta *meta, const uint32_t *partitions, size_t count, bool unsure) {
    enter(meta);
    for (size_t i = 0; i < count; i++) {
        if (partitions[i] >= atomic_load(&meta->partitions)) continue;
        meta->unsure[partitions[i]] = unsure;
        for (struct target *target = meta->targets[partitions[i]]; !unsure && target != NULL; target = target->next)
            if (is_told(target)) put_item(meta, target->stream, 'F', partitions[i]);
    }
    return leave(meta, 0);
}

/* ── the end ── */

void fsmeta_free_backups(struct meta *meta) {
    for (size_t i = 0; i < atomic_load(&meta->partitions); i++) {
        for (struct target *target = meta->targets[i], *next; target != NULL; target = next) {
            next = target->next;
            fsmeta_slab_give(&meta->slabs, target);
        }
        meta->targets[i] = NULL;
    }
    for (struct stream *stream = meta->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        free_stream(stream);
    }
    for (struct teller *teller = meta->tellers, *next; teller != NULL; teller = next) {
        next = teller->next;
        free(teller);
    }
}
