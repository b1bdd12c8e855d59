/* The metadata shard: the partition of a name or number, its owner, the watchers of a record. Stands on the tables. */
#include "fsmeta_internal.h"

#include "common/stripe_partition.h"
#include "common/xxh64.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

uint64_t fsmeta_name_key(uint64_t dir, const char *name, size_t length) { return amfs_xxh64(name, length, dir); }

size_t fsmeta_partition_of_key(const struct meta *meta, uint64_t key) {
    size_t partitions = atomic_load(&meta->partitions);
    return partitions == 0 ? 0 : key % partitions;
}

size_t fsmeta_partition_of_ino(const struct meta *meta, uint64_t ino) { return fsmeta_partition_of_key(meta, ino >> META_INO_SHIFT); }

struct table *fsmeta_entries_of(const struct meta *meta, uint64_t key) {
    return atomic_load(&meta->partitions) == 0 ? NULL : &meta->entries[fsmeta_partition_of_key(meta, key)];
}

struct table *fsmeta_inodes_of(const struct meta *meta, uint64_t ino) {
    return atomic_load(&meta->partitions) == 0 ? NULL : &meta->inodes[fsmeta_partition_of_ino(meta, ino)];
}

bool fsmeta_is_ready(struct meta *meta, struct table *table) { return table->segments != NULL || fsmeta_table_init(table, &meta->slabs); }

void fsmeta_sift_partitions(struct meta *meta, struct table *tables, bool (*visit)(void *context, struct link *link), void *context) {
    for (size_t i = 0; i < atomic_load(&meta->partitions); i++) fsmeta_table_sift(&tables[i], visit, context);
}

size_t fsmeta_count_partitions(const struct meta *meta, const struct table *tables) {
    size_t count = 0;
    for (size_t i = 0; i < atomic_load(&meta->partitions); i++) count += fsmeta_is_shadow(meta, i) ? 0 : tables[i].count;
    return count;
}

bool fsmeta_owned_by_table(const struct meta *meta, size_t partition) {
    return partition < atomic_load(&meta->partitions) && meta->owners[partition] == meta->node;
}

bool fsmeta_is_mine(const struct meta *meta, size_t partition) {
    return fsmeta_owned_by_table(meta, partition) && !meta->moving[partition] && !fsmeta_is_shadow(meta, partition);
}

bool fsmeta_is_alone(const struct meta *meta) {
    size_t partitions = atomic_load(&meta->partitions);
    return partitions > 0 && meta->mine_count == partitions && meta->moving_count == 0;
}

int meta_set_moving(struct meta *meta, const uint32_t *partitions, size_t count, bool moving) {
    enter(meta);
    for (size_t i = 0; i < count; i++)
        if (partitions[i] >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    for (size_t i = 0; i < count; i++) {
        if (meta->moving[partitions[i]] == moving) continue;
        meta->moving[partitions[i]] = moving;
        if (moving) meta->moving_count++;
        else meta->moving_count--;
    }
    return leave(meta, 0);
}

uint32_t meta_name_partition(const struct meta *meta, uint64_t dir, const char *name, size_t length) {
    return (uint32_t)fsmeta_partition_of_key(meta, fsmeta_name_key(dir, name, length));
}

uint32_t meta_ino_partition(const struct meta *meta, uint64_t ino) { return (uint32_t)fsmeta_partition_of_ino(meta, ino); }

uint32_t meta_stripe_partition(const struct meta *meta, uint64_t ino, uint64_t index) {
    size_t partitions = atomic_load(&meta->partitions);
    return partitions == 0 ? 0 : (uint32_t)amfs_stripe_partition(ino, index, partitions);
}

int32_t meta_owner(const struct meta *meta, uint32_t partition) {
    struct meta *locked = (struct meta *)(uintptr_t)meta;
    enter(locked);
    return leave(locked, partition < atomic_load(&meta->partitions) ? meta->owners[partition] : -1);
}

/* Numbers of a partition that came here without its records (its node died) must not be given out again. So every version of the table has
 * a range of its own, and a node gives out no number beyond the range of the version that it knows. After 65,535 versions the last range is
 * used up: such a partition gives out no numbers (ENOSPC) rather than old ones. */
uint64_t fsmeta_first_serial(uint64_t version) {
    enum { RANGE_BITS = 24 };
    uint64_t last = ((uint64_t)1 << META_INO_SHIFT) - 1;
    if (version <= 1) return 1;
    return version - 1 <= last >> RANGE_BITS ? (version - 1) << RANGE_BITS : last;
}

uint64_t fsmeta_next_number(struct meta *meta, size_t partition) {
    if (meta->serials[partition] + 1 >= fsmeta_first_serial(meta->version + 1)) return 0;
    return (uint64_t)partition << META_INO_SHIFT | ++meta->serials[partition];
}

void fsmeta_number_is_used(struct meta *meta, uint64_t ino) {
    uint64_t partition = ino >> META_INO_SHIFT, serial = ino & (((uint64_t)1 << META_INO_SHIFT) - 1);
    if (partition < atomic_load(&meta->partitions) && meta->serials[partition] < serial) meta->serials[partition] = serial;
}

uint64_t meta_new_number(struct meta *meta, uint32_t partition) {
    enter(meta);
    uint64_t number = fsmeta_is_mine(meta, partition) ? fsmeta_next_number(meta, partition) : 0;
    pthread_mutex_unlock(&meta->lock);
    return number;
}

int fsmeta_name_fault(const char *name, size_t length) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    if (length == 0 || memchr(name, '/', length) != NULL || memchr(name, '\0', length) != NULL) return EINVAL;
    return name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')) ? EINVAL : 0;
}

bool fsmeta_nobody_else(const struct meta *meta, node_set watchers) { return fsmeta_set_only(watchers, meta->node); }

int fsmeta_prepare_tell(const struct meta *meta, struct meta_nodes *tell, node_set a, node_set b) {
    if (tell == NULL) return fsmeta_nobody_else(meta, a) && fsmeta_nobody_else(meta, b) ? 0 : META_BUSY;
    return fsmeta_nodes_reserve(tell, fsmeta_set_count(a) + fsmeta_set_count(b));
}

void fsmeta_tell_all(const struct meta *meta, struct meta_nodes *tell, node_set *watchers, int32_t except) {
    bool stays = except >= 0 && fsmeta_set_has(*watchers, except);
    for (size_t i = 0; i < fsmeta_set_count(*watchers); i++) {
        int32_t node = fsmeta_set_at(*watchers, i);
        if (node != meta->node && node != except) fsmeta_nodes_add(tell, node);
    }
    fsmeta_set_clear(watchers);
    if (stays) fsmeta_set_add(watchers, except); /* into an empty set: needs no memory */
}

void fsmeta_node_asks(struct meta *meta, int32_t node) { meta->asked[(uint32_t)node % ASKING_SLOTS]++; }

uint64_t fsmeta_stamp(const struct meta *meta, int32_t node) { return (meta->version << 40) + meta->asked[(uint32_t)node % ASKING_SLOTS]; }

int fsmeta_watch(struct meta *meta, node_set *watchers, int32_t asker) {
    if (asker >= 0) fsmeta_node_asks(meta, asker);
    return asker < 0 || asker == meta->node ? 0 : fsmeta_set_add(watchers, asker);
}

uint32_t fsmeta_without_setid(uint32_t mode) { return mode & ~(uint32_t)(mode & S_IXGRP ? S_ISUID | S_ISGID : S_ISUID); }

void fsmeta_set_owned(struct owned it, unsigned mask, const struct meta_attr *in, int64_t now) {
    if (mask & META_SET_UID) *it.uid = in->uid;
    if (mask & META_SET_GID) *it.gid = in->gid;
    if (mask & META_SET_MODE) *it.mode = (*it.mode & S_IFMT) | (in->mode & 07777);
    else if (mask & (META_SET_UID | META_SET_GID) && !S_ISDIR(*it.mode)) *it.mode = fsmeta_without_setid(*it.mode);
    if (mask & META_SET_ATIME) *it.atime = in->atime;
    if (mask & META_SET_MTIME) *it.mtime = in->mtime;
    *it.ctime = mask & META_SET_CTIME ? in->ctime : now;
}

bool fsmeta_is_shadow(const struct meta *meta, size_t partition) { return meta->shadows[partition].state != SHADOW_NONE; }

void fsmeta_note_copies(struct meta *meta, uint8_t copies) {
    if (copies > 1) atomic_store_explicit(&meta->copies_wanted, true, memory_order_relaxed);
}
