/* Shared by the files of the shard that keep backups: fsmeta_items.c (the news for them, and which get it),
 * above it fsmeta_backup.c (which nodes are told of which partition), above that fsmeta_batches.c (the bytes on their way).
 *
 * Everything runs with the lock held. */
#ifndef AMFS_FSMETA_BACKUP_H
#define AMFS_FSMETA_BACKUP_H

#include "fsmeta_records.h"

/* News for one node that it has not yet said to have. */
struct stream {
    struct stream *next;
    int32_t node;
    struct out items; /* those that are not answered yet begin at `start` */
    size_t start, item; /* item: where the one begins that is being written */
    uint64_t number; /* of the first */
    uint64_t flying, sent; /* numbers after the last one of the batch that is under way, and of all that were */
    size_t waiting; /* partitions that it is to be told of */
    bool busy;
};

/* ── fsmeta_items.c ── */
struct stream *fsmeta_find_stream(const struct meta *meta, int32_t node); /* or NULL */
struct target *fsmeta_find_target(const struct meta *meta, size_t partition, int32_t node); /* or NULL */
void fsmeta_move_target(struct target *target, enum meta_backup_event event);
bool fsmeta_is_told(const struct target *target);
void fsmeta_put_item(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition);
void fsmeta_put_partition(struct meta *meta, struct stream *stream, size_t partition); /* all of it */

/* ── fsmeta_backup.c ── */
void fsmeta_backup_settled(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition); /* it has an item of this kind */
bool fsmeta_backup_refused(struct meta *meta, struct stream *stream, size_t partition);

#endif
