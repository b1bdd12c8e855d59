/* The metadata shard: changes and removals as items in the streams to those that are told (fsmeta_backup.c). Stands on the records, and on
 * their form as bytes. */
#include "fsmeta_backup.h"

#include <stdlib.h>
#include <string.h>

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

void fsmeta_move_target(struct target *target, enum meta_backup_event event) {
    int next = meta_backup_move(target->state, event);
    if (next < 0) abort(); /* no caller lets it come to that */
    target->state = (uint8_t)next;
}

bool fsmeta_is_told(const struct target *target) {
    return target->state == META_BACKUP_SYNCING || target->state == META_BACKUP_IN_STEP || target->state == META_BACKUP_RELEASING;
}

struct stream *fsmeta_find_stream(const struct meta *meta, int32_t node) {
    struct stream *stream = meta->streams;
    while (stream != NULL && stream->node != node) stream = stream->next;
    return stream;
}

struct target *fsmeta_find_target(const struct meta *meta, size_t partition, int32_t node) {
    struct target *target = meta->targets[partition];
    while (target != NULL && target->stream->node != node) target = target->next;
    return target;
}

static _Thread_local uint64_t thread_ticket;

struct snapshot {
    struct meta *meta;
    struct stream *stream;
    size_t partition;
};

uint64_t meta_take_ticket(void) {
    uint64_t ticket = thread_ticket;
    thread_ticket = 0;
    return ticket;
}

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

void fsmeta_put_item(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition) {
    begin_item(meta, stream, kind, partition);
    end_item(stream);
}

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

void fsmeta_put_partition(struct meta *meta, struct stream *stream, size_t partition) {
    struct snapshot to = {meta, stream, partition};
    begin_item(meta, stream, 'S', partition);
    fsmeta_put(&stream->items, meta->serials[partition], 8);
    fsmeta_put(&stream->items, meta->unsure[partition], 1);
    end_item(stream);
    fsmeta_table_sift(&meta->inodes[partition], snap_inode, &to);
    fsmeta_table_sift(&meta->entries[partition], snap_entry, &to);
    fsmeta_put_item(meta, stream, 'M', partition);
}

static void log_record(struct meta *meta, size_t partition, bool (*put)(void *context, struct link *link), struct link *link) {
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next)
        if (fsmeta_is_told(target)) {
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
    fsmeta_note_short(meta, inode);
    log_record(meta, fsmeta_partition_of_ino(meta, inode->link.key), fsmeta_put_inode, &inode->link);
}

void fsmeta_log_inode_later(struct meta *meta, struct inode *inode) {
    uint64_t awaited = thread_ticket;
    fsmeta_log_inode(meta, inode);
    thread_ticket = awaited;
}

void fsmeta_log_entry_gone(struct meta *meta, const struct entry *entry) {
    size_t partition = fsmeta_partition_of_key(meta, entry->link.key);
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next) {
        if (!fsmeta_is_told(target)) continue;
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
        if (!fsmeta_is_told(target)) continue;
        begin_item(meta, target->stream, 'i', partition);
        fsmeta_put(&target->stream->items, ino, 8);
        end_item(target->stream);
        thread_ticket = meta->ticket;
    }
}

bool fsmeta_delete_if_gone(struct meta *meta, struct inode *inode) {
    if (inode->nlink > 0 || inode->users != 0) return false;
    fsmeta_log_inode_gone(meta, inode->link.key);
    fsmeta_table_remove(fsmeta_inodes_of(meta, inode->link.key), &inode->link);
    fsmeta_free_inode(meta, inode);
    return true;
}

void fsmeta_delete_entry(struct meta *meta, struct entry *entry) {
    fsmeta_log_entry_gone(meta, entry);
    fsmeta_table_remove(fsmeta_entries_of(meta, entry->link.key), &entry->link);
    fsmeta_free_entry(meta, entry);
}
