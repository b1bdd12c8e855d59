/* The metadata shard as a whole: making and freeing it, its table of owners, counting. Stands on all that it holds; nothing here stands on it. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct meta *meta_new(int32_t node) {
    struct meta *meta = calloc(1, sizeof *meta);
    if (meta == NULL) return NULL;
    meta->node = node;
    meta->grants = (uint64_t)(node + 1) << 48; /* another node that has had a partition counts elsewhere */
    atomic_store(&meta->fewest, UINT_MAX);
    pthread_mutex_init(&meta->lock, NULL);
    pthread_mutex_init(&meta->spread_lock, NULL);
    meta->manager = meta->spread.manager = -1;
    struct table *tables[] = {&meta->shelves, &meta->copies, &meta->dirs, &meta->dir_names, &meta->locks};
    bool made = (meta->opens = opens_new()) != NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) made = fsmeta_table_init(tables[i], &meta->slabs) && made;
    if (made) return meta;
    meta_free(meta);
    return NULL;
}

struct opens *meta_opens(struct meta *meta) { return meta->opens; }

static bool free_entry_link(void *context, struct link *link) {
    fsmeta_free_entry(context, RECORD(struct entry, link, link));
    return true;
}

static bool free_inode_link(void *context, struct link *link) {
    fsmeta_free_inode(context, RECORD(struct inode, link, link));
    return true;
}

static bool free_copy_link(void *context, struct link *link) {
    struct meta *meta = context;
    fsmeta_slab_give(&meta->slabs, RECORD(struct copy, link, link));
    return true;
}

static bool free_lock_link(void *context, struct link *link) {
    fsmeta_free_lock(context, RECORD(struct name_lock, link, link));
    return true;
}

static void free_places(struct meta *meta) {
    free(meta->owners);
    free(meta->serials);
    free(meta->moving);
    free(meta->unsure);
    free(meta->shadows);
    free(meta->targets);
    free(meta->backups);
    free(meta->entries);
    free(meta->inodes);
    meta->owners = NULL;
    meta->serials = NULL;
    meta->moving = meta->unsure = NULL;
    meta->shadows = NULL;
    meta->targets = NULL;
    meta->backups = NULL;
    meta->entries = meta->inodes = NULL;
}

static bool make_places(struct meta *meta, size_t partitions) {
    meta->owners = malloc(partitions * sizeof *meta->owners);
    meta->serials = calloc(partitions, sizeof *meta->serials);
    meta->moving = calloc(partitions, sizeof *meta->moving);
    meta->unsure = calloc(partitions, sizeof *meta->unsure);
    meta->shadows = calloc(partitions, sizeof *meta->shadows);
    meta->targets = calloc(partitions, sizeof(struct target *));
    meta->backups = malloc(partitions * sizeof *meta->backups);
    meta->entries = calloc(partitions, sizeof *meta->entries);
    meta->inodes = calloc(partitions, sizeof *meta->inodes);
    bool made = meta->owners != NULL && meta->serials != NULL && meta->moving != NULL && meta->unsure != NULL && meta->shadows != NULL &&
                meta->targets != NULL && meta->backups != NULL && meta->entries != NULL && meta->inodes != NULL;
    if (!made) {
        free_places(meta);
        return false;
    }
    for (size_t i = 0; i < partitions; i++) meta->owners[i] = meta->backups[i] = -1;
    atomic_store(&meta->partitions, partitions);
    return true;
}

void meta_free(struct meta *meta) {
    if (meta == NULL) return;
    fsmeta_free_backups(meta);
    fsmeta_sift_partitions(meta, meta->entries, free_entry_link, meta);
    fsmeta_sift_partitions(meta, meta->inodes, free_inode_link, meta);
    fsmeta_table_sift(&meta->copies, free_copy_link, meta);
    fsmeta_table_sift(&meta->locks, free_lock_link, meta);
    fsmeta_free_dirs(meta);
    struct table *tables[] = {&meta->shelves, &meta->copies, &meta->dirs, &meta->dir_names, &meta->locks};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) fsmeta_table_free(tables[i]);
    for (size_t i = 0; i < atomic_load(&meta->partitions); i++) {
        fsmeta_table_free(&meta->entries[i]);
        fsmeta_table_free(&meta->inodes[i]);
    }
    fsmeta_slabs_free(&meta->slabs);
    opens_drop(meta->opens);
    free(meta->small);
    free_places(meta);
    free(meta->shards);
    free(meta->spread.answers);
    pthread_mutex_destroy(&meta->spread_lock);
    pthread_mutex_destroy(&meta->lock);
    free(meta);
}

/* ── places ── */

/* The owners, each once, in order, and how many that are. NULL: no memory. */
static int32_t *in_order(const int32_t *owners, size_t partitions, size_t *count) {
    int32_t *nodes = malloc(partitions * sizeof *nodes);
    *count = 0;
    for (size_t i = 0; nodes != NULL && i < partitions; i++) {
        size_t low = 0, high = *count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (nodes[middle] < owners[i]) low = middle + 1;
            else high = middle;
        }
        if (low < *count && nodes[low] == owners[i]) continue;
        memmove(nodes + low + 1, nodes + low, (*count - low) * sizeof *nodes);
        nodes[low] = owners[i];
        ++*count;
    }
    return nodes;
}

int meta_set_table(struct meta *meta, const int32_t *owners, size_t partitions, uint64_t version) {
    if (partitions == 0 || partitions >= (size_t)1 << 16) return EINVAL;
    enter(meta);
    size_t had = atomic_load(&meta->partitions);
    if (had != 0 && had != partitions) return leave(meta, EINVAL);
    if (had != 0 && version < meta->version) return leave(meta, ESTALE);
    if (had == 0) {
        int error = fsmeta_make_root(meta);
        if (error != 0) return leave(meta, error);
        if (!make_places(meta, partitions)) return leave(meta, ENOMEM);
    }
    size_t count;
    int32_t *shards = in_order(owners, partitions, &count);
    if (shards == NULL) return leave(meta, ENOMEM);
    free(meta->shards);
    meta->shards = shards;
    meta->shard_count = count;
    if (meta->version != version) meta->telling = false; /* until meta_set_backups has been told what follows from it */
    meta->version = version;
    meta->mine_count = 0;
    for (size_t i = 0; i < partitions; i++) {
        if (owners[i] == meta->node && meta->owners[i] != meta->node && meta->serials[i] < fsmeta_first_serial(version))
            meta->serials[i] = fsmeta_first_serial(version);
        meta->owners[i] = owners[i];
        meta->mine_count += owners[i] == meta->node;
    }
    return leave(meta, 0);
}

size_t meta_shards(struct meta *meta, size_t from, int32_t *nodes, size_t room, uint64_t *version) {
    enter(meta);
    size_t count = meta->shard_count;
    for (size_t i = from; i < count && i - from < room; i++) nodes[i - from] = meta->shards[i];
    *version = meta->version;
    pthread_mutex_unlock(&meta->lock);
    return count;
}

/* ── counting and checking ── */

void meta_counts(struct meta *meta, struct meta_counts *counts) {
    enter(meta);
    const struct table *tables[] = {&meta->shelves, &meta->copies, &meta->dirs, &meta->dir_names, &meta->locks};
    size_t partitions = atomic_load(&meta->partitions), of_each = sizeof *meta->shadows + sizeof *meta->targets + sizeof *meta->backups +
                                                                  sizeof *meta->unsure + sizeof *meta->owners + sizeof *meta->serials +
                                                                  sizeof *meta->moving + sizeof *meta->entries + sizeof *meta->inodes;
    *counts = (struct meta_counts){
        .inodes = fsmeta_count_partitions(meta, meta->inodes),
        .entries = fsmeta_count_partitions(meta, meta->entries),
        .dirs = meta->dirs.count,
        .cached = meta->copies.count,
        .bytes = sizeof *meta + meta->slabs.bytes + meta->other_bytes + partitions * of_each,
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) counts->bytes += fsmeta_table_bytes(tables[i]);
    for (size_t i = 0; i < partitions; i++) counts->bytes += fsmeta_table_bytes(&meta->entries[i]) + fsmeta_table_bytes(&meta->inodes[i]);
    pthread_mutex_unlock(&meta->lock);
}
