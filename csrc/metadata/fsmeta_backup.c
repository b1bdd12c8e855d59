/* The metadata shard: backups. Every partition of here has another node that is told of each change of its entries and records before the change is
 * answered, and that inherits it.
 *
 * The owner keeps for each such node (a stream) the changes that it is to be told, in their order, until it has said that it has them. The carrier
 * of the bytes (peer_meta_backup.c, a simulator) takes a batch at a time. A change has a ticket; meta_backed_up says up to which ticket
 * everybody has everything. Nobody is told of watchers, locks and of files that the owner itself reads: they end with it.
 *
 * A node that becomes the backup of a partition is told all of it, and then of changes. It knows that it is in step when it has been told so, and believes so
 * until it is released: so the owner answers no change of which one that may believe it has not heard. */
#include "fsmeta_backup.h"

#include <errno.h>
#include <stdlib.h>

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

static struct target *add_target(struct meta *meta, size_t partition, int32_t node, enum meta_backup_event event) {
    struct stream *stream = stream_to(meta, node);
    struct target *target = stream == NULL ? NULL : fsmeta_slab_take(&meta->slabs, sizeof *target);
    if (target == NULL) return NULL;
    *target = (struct target){meta->targets[partition], stream, META_BACKUP_NONE};
    fsmeta_move_target(target, event);
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
    if (meta->backups[partition] >= 0 && fsmeta_find_target(meta, partition, meta->backups[partition]) == NULL)
        (void)add_target(meta, partition, meta->backups[partition],
                         META_BACKUP_CHOSEN); /* no memory: there is no backup until the next table */
}

/* The one that is to stay is in step: the others may go. */
static void release_others(struct meta *meta, size_t partition) {
    for (struct target *target = meta->targets[partition]; target != NULL; target = target->next) {
        if (target->stream->node == meta->backups[partition] || target->state == META_BACKUP_RELEASING) continue;
        if (target->state == META_BACKUP_WAITING) target->stream->waiting--;
        else fsmeta_put_item(meta, target->stream, 'R', partition);
        fsmeta_move_target(target, META_BACKUP_REPLACED);
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
        const struct target *stays = fsmeta_find_target(meta, i, meta->backups[i]);
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
    meta->burying = false;
    return leave(meta, 0);
}

int meta_inherit_backups(struct meta *meta, uint32_t partition, const int32_t *nodes, size_t count) {
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] == meta->node || fsmeta_find_target(meta, partition, nodes[i]) != NULL) continue;
        struct target *target = add_target(meta, partition, nodes[i], META_BACKUP_INHERITED);
        if (target == NULL) return leave(meta, ENOMEM);
        fsmeta_put_item(meta, target->stream, 'A', partition);
    }
    return leave(meta, 0);
}

int meta_backups_of(struct meta *meta, uint32_t partition, struct meta_nodes *nodes) {
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    int error = 0;
    for (const struct target *target = meta->targets[partition]; error == 0 && target != NULL; target = target->next)
        if (fsmeta_is_told(target) && (error = fsmeta_nodes_reserve(nodes, 1)) == 0) fsmeta_nodes_add(nodes, target->stream->node);
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

/* ── what they answer ── */

/* Of the items that are answered only these change who is told of what. */
void fsmeta_backup_settled(struct meta *meta, struct stream *stream, uint8_t kind, size_t partition) {
    struct target *target = fsmeta_find_target(meta, partition, stream->node);
    if (target == NULL) return;
    if (kind == 'M' && target->state == META_BACKUP_SYNCING) {
        fsmeta_move_target(target, META_BACKUP_ANSWERED);
        if (meta->backups[partition] == stream->node) release_others(meta, partition);
    } else if (kind == 'A' && target->state == META_BACKUP_IN_STEP) {
        if (meta->backups[partition] == stream->node) release_others(meta, partition);
    } else if (kind == 'R' && target->state == META_BACKUP_RELEASING) {
        fsmeta_move_target(target, META_BACKUP_ANSWERED);
        sweep(meta, partition, NULL, 0, false);
        if (meta->backups[partition] == stream->node) want(meta, partition); /* it was to stay after all */
    }
}

/* It is not in step, but news on its way may make it believe so: it is released first, and then begun with again. True: it has refused to begin, for want
 * of memory or as its table is that of another session, and would do so again. */
bool fsmeta_backup_refused(struct meta *meta, struct stream *stream, size_t partition) {
    struct target *target = fsmeta_find_target(meta, partition, stream->node);
    if (target == NULL || target->state == META_BACKUP_WAITING || target->state == META_BACKUP_RELEASING) return false;
    bool began = target->state == META_BACKUP_SYNCING;
    fsmeta_move_target(target, META_BACKUP_REPLACED);
    fsmeta_put_item(meta, stream, 'R', partition);
    return began;
}

int meta_set_unsure(struct meta *meta, const uint32_t *partitions, size_t count, bool unsure) {
    enter(meta);
    for (size_t i = 0; i < count; i++) {
        if (partitions[i] >= atomic_load(&meta->partitions)) continue;
        meta->unsure[partitions[i]] = unsure;
        for (struct target *target = meta->targets[partitions[i]]; !unsure && target != NULL; target = target->next)
            if (fsmeta_is_told(target)) fsmeta_put_item(meta, target->stream, 'F', partitions[i]);
    }
    return leave(meta, 0);
}

/* ── the end ── */

static void free_teller(struct teller *teller) {
    free(teller->refusals);
    free(teller);
}

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
        free_teller(teller);
    }
}
