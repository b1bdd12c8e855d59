/* The metadata shard: partitions that went to another node, and nodes that died. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARTITIONS_AT_ONCE = 64 }; /* with the lock held: 4 ms of a million records */

/* ── partitions ── */

struct drop {
    struct meta *meta;
    size_t partition;
};

static bool drop_lock(void *context, struct link *link) {
    struct drop *drop = context;
    if (fsmeta_partition_of_key(drop->meta, link->key) != drop->partition) return false;
    fsmeta_free_lock(drop->meta, RECORD(struct name_lock, link, link));
    return true;
}

int meta_drop(struct meta *meta, uint32_t partition) {
    struct drop drop = {meta, partition};
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    fsmeta_table_sift(&meta->locks, drop_lock, &drop);
    fsmeta_forget_shadow(meta, partition);
    return leave(meta, 0);
}

/* ── nodes ── */

struct forget {
    struct meta *meta;
    int32_t node;
    const bool *partitions; /* whose stripes are gone */
    bool copies; /* of files that have copies */
    void (*lost)(void *context, uint64_t ino);
    void *context;
};

static bool forget_in_entry(void *context, struct link *link) {
    struct forget *forget = context;
    fsmeta_set_remove(&RECORD(struct entry, link, link)->watchers, forget->node);
    return false;
}

static bool forget_in_dir(void *context, struct link *link) {
    struct forget *forget = context;
    fsmeta_set_remove(&RECORD(struct dir, link, link)->watchers, forget->node);
    return false;
}

/* Did a stripe of it lie in those partitions, which had no copy? */
static bool had_stripe(const struct forget *forget, const struct inode *inode) {
    uint64_t stripes = inode->layout == META_STRIPED ? inode->size / inode->stripe + (inode->size % inode->stripe != 0) : 0;
    size_t partitions = atomic_load(&forget->meta->partitions);
    for (uint64_t i = 0; i < stripes && i < partitions; i++)
        if (forget->partitions[meta_stripe_partition(forget->meta, inode->link.key, i)]) return true;
    return false;
}

/* Here is the backup of its record, and its owner is dead. */
static bool is_orphan(const struct forget *forget, uint64_t ino) { return forget->partitions[fsmeta_partition_of_ino(forget->meta, ino)]; }

static bool forget_in_inode(void *context, struct link *link) {
    struct forget *forget = context;
    struct inode *inode = RECORD(struct inode, link, link);
    uint64_t ino = inode->link.key;
    bool wrote = inode->writer == forget->node, held = fsmeta_set_has(inode->holders, forget->node);
    bool told = wrote || held || fsmeta_set_has(inode->users, forget->node);
    bool striped = inode->layout == META_STRIPED;
    fsmeta_set_remove(&inode->watchers, forget->node);
    fsmeta_set_remove(&inode->users, forget->node);
    fsmeta_set_remove(&inode->holders, forget->node);
    if (wrote) {
        inode->writer = -1;
        inode->finished = 1;
    }
    bool gone = inode->nlink == 0 && inode->users == 0;
    /* A file that the dead node was writing is lost, even if nothing of it was recorded yet and others hold what it contained before: a program may have
     * closed it, of which the record hears a moment later. With copies a program's closing waits for the record: it stays what was closed last. In stripes
     * the old content was written over. If a living node writes a whole file, its closing says what the file contains, and fsmeta_stop_using decides if it
     * goes without closing. */
    bool copied = inode->copies > 1, closed_empty = inode->secured && copied && inode->size == 0;
    bool lost = striped ? (wrote && !(inode->secured && copied)) || (!copied && had_stripe(forget, inode))
                        : inode->writer < 0 &&
                              ((wrote && !copied) || (inode->holders == 0 && ((wrote && !closed_empty) || (held && inode->size > 0))));
    told = told || (lost && !inode->lost);
    inode->lost = inode->lost || lost;
    bool shadow = fsmeta_is_shadow(forget->meta, fsmeta_partition_of_ino(forget->meta, ino)); /* its owner speaks of it, or its heir will */
    if (gone) fsmeta_log_inode_gone(forget->meta, ino);
    else if (told) fsmeta_log_inode(forget->meta, inode);
    if (gone) fsmeta_free_inode(forget->meta, inode);
    if ((gone || lost) && forget->lost != NULL && (!shadow || is_orphan(forget, ino))) forget->lost(forget->context, ino);
    return gone;
}

int meta_forget_node(struct meta *meta, int32_t node, void (*lost)(void *context, uint64_t ino), void *context) {
    if (node < 0) return EINVAL;
    enter(meta);
    size_t count = atomic_load(&meta->partitions);
    bool *partitions = calloc(count + 1, sizeof *partitions);
    struct forget forget = {.meta = meta, .node = node, .partitions = partitions, .lost = lost, .context = context};
    if (partitions == NULL || !fsmeta_bury_teller(meta, node)) {
        free(partitions);
        return leave(meta, ENOMEM);
    }
    meta->burying = true; /* no batch of it may come after this */
    for (size_t i = 0; i < count; i++) partitions[i] = meta->owners[i] == node;
    fsmeta_table_sift(&meta->dirs, forget_in_dir, &forget);
    for (size_t i = 0; i < count; i++) {
        fsmeta_table_sift(&meta->entries[i], forget_in_entry, &forget);
        fsmeta_table_sift(&meta->inodes[i], forget_in_inode, &forget);
        if (i % PARTITIONS_AT_ONCE != PARTITIONS_AT_ONCE - 1) continue;
        pthread_mutex_unlock(&meta->lock); /* mounts wait for it; without a pause nobody else would get it */
        nanosleep(&(struct timespec){.tv_nsec = 1}, NULL);
        pthread_mutex_lock(&meta->lock);
    }
    free(partitions);
    return leave(meta, 0);
}

static bool lose_in_inode(void *context, struct link *link) {
    struct inode *inode = RECORD(struct inode, link, link);
    const struct forget *forget = context;
    if (inode->lost || (inode->copies > 1) != forget->copies || !had_stripe(forget, inode)) return false;
    inode->lost = true;
    fsmeta_log_inode(forget->meta, inode);
    return false;
}

int meta_lose(struct meta *meta, const uint32_t *gone, size_t count, bool copies) {
    enter(meta);
    bool *partitions = calloc(atomic_load(&meta->partitions) + 1, sizeof *partitions);
    struct forget forget = {.meta = meta, .node = -1, .partitions = partitions, .copies = copies};
    if (partitions == NULL) return leave(meta, ENOMEM);
    for (size_t i = 0; i < count; i++)
        if (gone[i] < atomic_load(&meta->partitions)) partitions[gone[i]] = true;
    fsmeta_sift_partitions(meta, meta->inodes, lose_in_inode, &forget);
    free(partitions);
    return leave(meta, 0);
}

/* ── what every node knows, and so can be said again ── */

static bool restore_entry(void *context, struct link *link) {
    struct meta *meta = context;
    const struct dir *dir = RECORD(struct dir, link, link);
    if (dir->parent == dir || !fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, dir->named.key))) return false;
    uint64_t above = dir->parent->link.key;
    if (fsmeta_find_entry(meta, dir->named.key, above, dir->name, dir->length) != NULL) return false;
    if (fsmeta_find_lock(meta, dir->named.key, above, dir->name, dir->length) != NULL) return false; /* it gets another name just now */
    const struct entry *made = fsmeta_add_entry(meta, dir->named.key, above, dir->name, dir->length, dir->link.key, S_IFDIR);
    if (made != NULL) fsmeta_log_entry(meta, made); /* no memory: it is not listed */
    return false;
}

static bool thaw(void *context, struct link *link) {
    (void)context;
    RECORD(struct dir, link, link)->frozen = false;
    return false;
}

/* The entry of a directory that is not there, or has another name: a change that came to nothing was about to give it this one. */
static bool drop_untrue(void *context, struct link *link) {
    struct meta *meta = context;
    struct entry *entry = RECORD(struct entry, link, link);
    if (entry->type != S_IFDIR || fsmeta_is_shadow(meta, fsmeta_partition_of_key(meta, link->key))) return false;
    const struct dir *dir = fsmeta_find_dir(meta, entry->ino);
    if (dir != NULL && dir->parent->link.key == entry->dir && dir->length == entry->length &&
        memcmp(dir->name, entry->name, dir->length) == 0)
        return false;
    fsmeta_log_entry_gone(meta, entry);
    fsmeta_free_entry(meta, entry);
    return true;
}

int meta_mend_dirs(struct meta *meta, bool anew) {
    enter(meta);
    if (anew) fsmeta_table_sift(&meta->dirs, thaw, meta);
    if (anew) fsmeta_sift_partitions(meta, meta->entries, drop_untrue, meta);
    fsmeta_table_sift(&meta->dirs, restore_entry, meta);
    return leave(meta, 0);
}
