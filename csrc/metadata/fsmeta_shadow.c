/* The metadata shard: the backups here of partitions of other nodes. fsmeta_backup.c says how and when they are told. */
#include "fsmeta_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ── the node that is told ── */

static bool drop_entry(void *context, struct link *link) {
    fsmeta_free_entry(context, RECORD(struct entry, link, link));
    return true;
}

static bool drop_inode(void *context, struct link *link) {
    fsmeta_free_inode(context, RECORD(struct inode, link, link));
    return true;
}

static void forget(struct meta *meta, size_t partition) {
    fsmeta_table_sift(&meta->entries[partition], drop_entry, meta);
    fsmeta_table_sift(&meta->inodes[partition], drop_inode, meta);
    fsmeta_table_free(&meta->entries[partition]);
    fsmeta_table_free(&meta->inodes[partition]);
    meta->shadows[partition] = (struct shadow){-1, SHADOW_NONE};
    meta->unsure[partition] = false;
}

static bool unshelve(void *context, struct link *link) {
    fsmeta_unshelve(context, RECORD(struct entry, link, link));
    return false;
}

static int apply_gone(struct meta *meta, struct in *in, uint8_t kind) {
    if (kind == 'i') {
        uint64_t ino = fsmeta_get(in, 8);
        struct inode *inode = in->failed || fsmeta_partition_of_ino(meta, ino) != in->partition ? NULL : fsmeta_find_inode(meta, ino);
        if (inode == NULL) return 0;
        fsmeta_table_remove(&meta->inodes[in->partition], &inode->link);
        fsmeta_free_inode(meta, inode);
        return 0;
    }
    uint64_t dir = fsmeta_get(in, 8);
    struct text name = fsmeta_get_name(in);
    if (in->failed) return 0;
    uint64_t key = fsmeta_name_key(dir, name.at, name.length);
    if (fsmeta_partition_of_key(meta, key) != in->partition) return 0;
    struct entry *entry = fsmeta_find_entry(meta, key, dir, name.at, name.length);
    if (entry == NULL) return 0;
    fsmeta_table_remove(&meta->entries[in->partition], &entry->link);
    fsmeta_free_entry(meta, entry);
    return 0;
}

/* 0; EAGAIN: this partition cannot be kept in step. */
static int apply(struct meta *meta, int32_t source, struct in *in, uint8_t kind) {
    struct shadow *shadow = &meta->shadows[in->partition];
    bool owner = meta->owners[in->partition] == source, fed = shadow->state != SHADOW_NONE && shadow->source == source;
    if (fsmeta_owned_by_table(meta, in->partition)) return EAGAIN;
    switch (kind) {
    case 'S':
        if (!owner) return EAGAIN;
        forget(meta, in->partition);
        *shadow = (struct shadow){source, SHADOW_SYNCING};
        meta->serials[in->partition] = fsmeta_get(in, 8);
        meta->unsure[in->partition] = fsmeta_get(in, 1) != 0;
        return 0;
    case 'A':
        if (!owner || shadow->state != SHADOW_IN_STEP) return EAGAIN;
        fsmeta_table_sift(&meta->entries[in->partition], unshelve, meta);
        shadow->source = source;
        return 0;
    case 'R':
        /* Of an earlier owner, too, if none since has begun to tell: it refused to hear that one out, and would stay in step with nobody. */
        if (!owner && !fed && (shadow->state == SHADOW_NONE || shadow->source == meta->owners[in->partition])) return EAGAIN;
        forget(meta, in->partition);
        return 0;
    default: break;
    }
    if (!fed) return EAGAIN;
    switch (kind) {
    case 'E': return fsmeta_get_entry(in, true);
    case 'I': return fsmeta_get_inode(in, true);
    case 'e':
    case 'i': return apply_gone(meta, in, kind);
    case 'M': shadow->state = SHADOW_IN_STEP; return 0;
    case 'F': meta->unsure[in->partition] = false; return 0;
    default: in->failed = true; return 0;
    }
}

static struct teller *teller_of(struct meta *meta, int32_t node) {
    struct teller *teller = meta->tellers;
    while (teller != NULL && teller->node != node) teller = teller->next;
    if (teller != NULL || (teller = calloc(1, sizeof *teller)) == NULL) return teller;
    teller->node = node;
    teller->next = meta->tellers;
    meta->tellers = teller;
    return teller;
}

/* It may go on for a while, and its own table may get the version of the table without it. So versions do not keep its batches out. No other node
 * ever gets its id. */
bool fsmeta_bury_teller(struct meta *meta, int32_t node) {
    struct teller *teller = teller_of(meta, node);
    if (teller == NULL) return false;
    free(teller->refusals);
    *teller = (struct teller){.next = teller->next, .node = node, .dead = true};
    return true;
}

/* The teller hears of the refusal with the answer to a batch; a later batch begins after that, so it has heard of it. */
static bool note_refused(struct teller *teller, uint64_t number, size_t partition) {
    for (size_t i = 0; i < teller->refused; i++)
        if (teller->refusals[i].partition == partition) return true;
    if (teller->refused == META_REFUSED_MAX / 2) return false;
    if (teller->refused == teller->room) {
        size_t room = 2 * teller->room + 16;
        struct refusal *larger = realloc(teller->refusals, room * sizeof *larger);
        if (larger == NULL) return false;
        teller->refusals = larger;
        teller->room = room;
    }
    teller->refusals[teller->refused++] = (struct refusal){number, (uint16_t)partition};
    return true;
}

static void forget_refusals(struct teller *teller, uint64_t before) {
    size_t kept = 0;
    for (size_t i = 0; i < teller->refused; i++)
        if (teller->refusals[i].number >= before) teller->refusals[kept++] = teller->refusals[i];
    teller->refused = kept;
}

static size_t write_refusals(const struct teller *teller, uint8_t *answer) {
    for (size_t i = 0; i < teller->refused; i++) {
        answer[2 * i] = (uint8_t)teller->refusals[i].partition;
        answer[2 * i + 1] = (uint8_t)(teller->refusals[i].partition >> 8);
    }
    return 2 * teller->refused;
}

uint64_t meta_backup_has(struct meta *meta, int32_t source) {
    enter(meta);
    const struct teller *teller = meta->tellers;
    while (teller != NULL && teller->node != source) teller = teller->next;
    uint64_t number = teller == NULL ? 0 : teller->number;
    for (size_t i = 0; teller != NULL && i < teller->refused; i++)
        if (teller->refusals[i].number < number) number = teller->refusals[i].number;
    pthread_mutex_unlock(&meta->lock);
    return number;
}

int meta_backup_take(struct meta *meta, int32_t source, const uint8_t *bytes, size_t size, uint8_t *answer, size_t *count) {
    struct in in = {.meta = meta, .at = bytes, .end = bytes + size};
    uint64_t magic = fsmeta_get(&in, 4), version = fsmeta_get(&in, 8), number = fsmeta_get(&in, 8), items = fsmeta_get(&in, 4);
    *count = 0;
    if (in.failed || magic != FSMETA_BATCH || source < 0) return EPROTO;
    enter(meta);
    struct teller *teller = teller_of(meta, source);
    if (teller == NULL) return leave(meta, ENOMEM);
    bool known = number + items <= teller->number; /* then it has come another way, and this node may have a later table by now */
    if (!known && (version != meta->version || !meta->telling || meta->burying))
        return leave(meta, version < meta->version ? META_NOT_MINE : META_BUSY);
    if (teller->dead) return leave(meta, META_NOT_MINE);
    if (number > teller->number) return leave(meta, EPROTO); /* none is ever left out */
    forget_refusals(teller, number);
    for (; items > 0; items--, number++) {
        size_t length = (size_t)fsmeta_get(&in, 4);
        const uint8_t *body = fsmeta_get_bytes(&in, length);
        struct in item = {.meta = meta, .at = body, .end = body == NULL ? NULL : body + length};
        uint8_t kind = (uint8_t)fsmeta_get(&item, 1);
        item.partition = (size_t)fsmeta_get(&item, 2);
        fsmeta_get(&item, 8);
        if (in.failed || item.failed || item.partition >= atomic_load(&meta->partitions)) return leave(meta, EPROTO);
        if (number < teller->number) continue; /* it came before */
        int error = apply(meta, source, &item, kind);
        if (error != 0 || item.failed) {
            if (error != EAGAIN && meta->shadows[item.partition].source == source) forget(meta, item.partition);
            if (!note_refused(teller, number, item.partition)) return leave(meta, ENOMEM); /* it is said again */
        }
        teller->number = number + 1;
    }
    if (answer != NULL) *count = write_refusals(teller, answer);
    return leave(meta, in.at == in.end ? 0 : EPROTO);
}

/* ── becoming an owner, becoming a backup ── */

int meta_shadow_state(struct meta *meta, uint32_t partition) {
    enter(meta);
    int state = partition < atomic_load(&meta->partitions) ? meta->shadows[partition].state : SHADOW_NONE;
    return leave(meta, state);
}

int meta_demote(struct meta *meta, uint32_t partition, int32_t source) {
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    meta->shadows[partition] = (struct shadow){source, SHADOW_IN_STEP};
    return leave(meta, 0);
}

struct promotion {
    struct meta *meta;
    int error;
};

static bool shelve(void *context, struct link *link) {
    struct promotion *promotion = context;
    if (!fsmeta_shelve(promotion->meta, RECORD(struct entry, link, link))) promotion->error = ENOMEM;
    return false;
}

/* Nobody knows its watchers any more: caches have been told to forget it, but its users and the holders of its content must be told when it changes. */
static bool watch_users(void *context, struct link *link) {
    struct promotion *promotion = context;
    struct inode *inode = RECORD(struct inode, link, link);
    const node_set sets[] = {inode->users, inode->holders};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < fsmeta_set_count(sets[i]); j++)
            if (fsmeta_watch(promotion->meta, &inode->watchers, fsmeta_set_at(sets[i], j)) != 0) promotion->error = ENOMEM;
    return false;
}

int meta_promote(struct meta *meta, uint32_t partition) {
    struct promotion promotion = {meta, 0};
    enter(meta);
    if (partition >= atomic_load(&meta->partitions) || meta->shadows[partition].state == SHADOW_SYNCING) return leave(meta, EINVAL);
    if (meta->shadows[partition].state == SHADOW_NONE) return leave(meta, 0);
    meta->shadows[partition] = (struct shadow){-1, SHADOW_NONE};
    fsmeta_table_sift(&meta->entries[partition], shelve, &promotion);
    fsmeta_table_sift(&meta->inodes[partition], watch_users, &promotion);
    return leave(meta, promotion.error);
}

struct unknown {
    struct meta *meta;
    void (*each)(void *context, uint64_t dir, const char *name, size_t length, uint64_t ino);
    void *context;
};

static bool show_unknown(void *context, struct link *link) {
    const struct unknown *unknown = context;
    const struct entry *entry = RECORD(struct entry, link, link);
    const struct dir *dir = entry->type == S_IFDIR ? fsmeta_find_child(unknown->meta, entry->dir, entry->name, entry->length) : NULL;
    if (entry->type == S_IFDIR && (dir == NULL || dir->link.key != entry->ino))
        unknown->each(unknown->context, entry->dir, entry->name, entry->length, entry->ino);
    return false;
}

int meta_unknown_dirs(struct meta *meta, uint32_t partition,
                      void (*each)(void *context, uint64_t dir, const char *name, size_t length, uint64_t ino), void *context) {
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    fsmeta_table_sift(&meta->entries[partition], show_unknown, &(struct unknown){meta, each, context});
    return leave(meta, 0);
}

void fsmeta_forget_shadow(struct meta *meta, size_t partition) { forget(meta, partition); }
