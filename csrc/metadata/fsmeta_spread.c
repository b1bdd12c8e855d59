/* The metadata shard: changes of directories as the manager spreads them to all nodes. A node makes those of one spread once, however often and by whichever
 * way it is asked, and gives the same answers. Stands on fsmeta_dirs.c and fsmeta_entries.c. */
#include "common/bytes.h"
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGE_HEAD = 48 };

/* u8 kind, u8 flag, u16 bytes of the name, i32 asker, u64 ino, u64 dir, u32 mode, u32 uid, u32 gid, i32 rank, i64 now; name. Little-endian. */
bool meta_next_change(const uint8_t **at, const uint8_t *end, struct meta_change *change) {
    const uint8_t *from = *at;
    if (end - from < CHANGE_HEAD) return false;
    size_t length = (size_t)get_le(from + 2, 2);
    if ((size_t)(end - from) - CHANGE_HEAD < length || from[0] < META_CHANGE_ADD || from[0] > META_CHANGE_THAW) return false;
    *change = (struct meta_change){
        .kind = (enum meta_change_kind)from[0],
        .keep_entry = from[1] != 0,
        .asker = (int32_t)(uint32_t)get_le(from + 4, 4),
        .ino = get_le(from + 8, 8),
        .dir = get_le(from + 16, 8),
        .mode = (uint32_t)get_le(from + 24, 4),
        .uid = (uint32_t)get_le(from + 28, 4),
        .gid = (uint32_t)get_le(from + 32, 4),
        .rank = (int32_t)(uint32_t)get_le(from + 36, 4),
        .now = (int64_t)get_le(from + 40, 8),
        .name = (const char *)from + CHANGE_HEAD,
        .length = length,
    };
    *at = from + CHANGE_HEAD + length;
    return true;
}

bool meta_count_changes(const uint8_t *changes, size_t size, size_t *count) {
    const uint8_t *at = changes, *end = changes + size;
    struct meta_change change;
    for (*count = 0; at < end; ++*count)
        if (!meta_next_change(&at, end, &change)) return false;
    return true;
}

void meta_set_manager(struct meta *meta, int32_t manager) {
    pthread_mutex_lock(&meta->spread_lock);
    if (meta->manager != manager) meta->refused = 0;
    meta->manager = manager;
    pthread_mutex_unlock(&meta->spread_lock);
}

/* The kernel of the node that makes a directory keeps its times from then on, so it is to hear of others. */
static void watch(struct meta *meta, uint64_t ino, int32_t asker) {
    enter(meta);
    struct dir *dir = fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, ino)) ? fsmeta_find_dir(meta, ino) : NULL;
    if (dir != NULL) (void)fsmeta_watch(meta, &dir->watchers, asker);
    leave(meta, 0);
}

/* The entry was made before the directory; unless its partition came here without it, since the node that had it died. */
static int add(struct meta *meta, const struct meta_change *c) {
    struct meta_attr attr = {
        .mode = c->mode, .uid = c->uid, .gid = c->gid, .rank = c->rank, .atime = c->now, .mtime = c->now, .ctime = c->now};
    uint64_t old;
    uint32_t old_type;
    int error = meta_dir_add(meta, c->ino, c->dir, c->name, c->length, &attr);
    if (error == 0) watch(meta, c->ino, c->asker);
    if (error == 0) meta_insert(meta, c->dir, c->name, c->length, 0, c->ino, S_IFDIR, false, &old, &old_type, NULL);
    return error;
}

/* Likewise it was removed before, unless it was made again from what we knew. */
static int drop(struct meta *meta, const struct meta_change *c) {
    struct meta_nodes tell = {NULL, 0, 0};
    uint64_t was;
    uint32_t type;
    int error = meta_dir_remove(meta, c->ino);
    if (error == 0 && !c->keep_entry) meta_remove(meta, c->dir, c->name, c->length, 0, c->ino, &was, &type, &tell);
    free(tell.nodes);
    return error;
}

/* All nodes hear of the change. But who has asked this one for the times of the directory since it heard of that must be told that they are others now. */
static int64_t touched(struct meta *meta, const struct meta_change *c, int error) {
    return error != 0 ? -error : meta_dir_touch_for(meta, c->dir, c->now, c->asker) == 0;
}

static int64_t apply(struct meta *meta, const struct meta_change *c) {
    switch (c->kind) {
    case META_CHANGE_ADD: return touched(meta, c, add(meta, c));
    case META_CHANGE_DROP: return touched(meta, c, drop(meta, c));
    default: {
        int error = meta_dir_freeze(meta, c->ino, c->kind == META_CHANGE_FREEZE);
        return error != 0 ? -error : (int64_t)meta_count(meta, c->ino);
    }
    }
}

/* With spread_lock held. */
static int make(struct meta *meta, const uint8_t *changes, size_t size, size_t count) {
    struct spread *spread = &meta->spread;
    int64_t *answers = realloc(spread->answers, (count + 1) * sizeof *answers);
    if (answers == NULL) return ENOMEM;
    spread->answers = answers;
    spread->count = count;
    struct meta_change change;
    for (const uint8_t *at = changes; meta_next_change(&at, changes + size, &change); answers++) *answers = apply(meta, &change);
    return 0;
}

/* ── what the manager asks the shard of a directory's name ── */

void meta_refuse(struct meta *meta, int32_t manager, uint64_t number) {
    pthread_mutex_lock(&meta->spread_lock);
    if (meta->manager == manager && meta->refused < number) meta->refused = number;
    pthread_mutex_unlock(&meta->spread_lock);
}

/* With spread_lock held. */
static bool is_heard(const struct meta *meta, int32_t manager, uint64_t number) {
    return meta->manager == manager && number > meta->refused;
}

int meta_reserve_for(struct meta *meta, int32_t manager, uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t *ino) {
    uint64_t old;
    uint32_t old_type;
    pthread_mutex_lock(&meta->spread_lock);
    int error = is_heard(meta, manager, number) ? 0 : META_BUSY;
    if (error == 0 && (*ino = meta_new_number(meta, meta_name_partition(meta, dir, name, length))) == 0) error = META_NOT_MINE;
    if (error == 0) error = meta_insert(meta, dir, name, length, 0, *ino, S_IFDIR, false, &old, &old_type, NULL);
    pthread_mutex_unlock(&meta->spread_lock);
    return error == ENOENT ? META_BUSY : error; /* we may not have heard of the directory yet */
}

int meta_strike_for(struct meta *meta, int32_t manager, uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t ino) {
    if (length > META_NAME_MAX) return ENAMETOOLONG;
    uint64_t key = fsmeta_name_key(dir, name, length);
    pthread_mutex_lock(&meta->spread_lock);
    bool may = is_heard(meta, manager, number);
    enter(meta);
    struct entry *entry = may ? fsmeta_find_entry(meta, key, dir, name, length) : NULL;
    int error = !fsmeta_is_mine(meta, fsmeta_partition_of_key(meta, key)) ? META_NOT_MINE : 0;
    bool there = entry != NULL && entry->ino == ino && entry->type == S_IFDIR && fsmeta_find_lock(meta, key, dir, name, length) == NULL;
    if (error == 0 && !there) error = META_BUSY;
    if (error == 0) {
        fsmeta_set_clear(&entry->watchers); /* the kernels of all nodes are told by the manager */
        fsmeta_delete_entry(meta, entry);
    }
    leave(meta, error);
    pthread_mutex_unlock(&meta->spread_lock);
    return error;
}

/* ── the changes of one spread ── */

int meta_spread(struct meta *meta, int32_t manager, uint64_t number, bool directly, const uint8_t *changes, size_t size, int64_t *answers) {
    struct spread *spread = &meta->spread;
    size_t count;
    if (!meta_count_changes(changes, size, &count)) return EINVAL;
    pthread_mutex_lock(&meta->spread_lock);
    bool same = spread->manager == manager, known = same && spread->number == number && spread->count == count;
    int error = directly && (meta->manager != manager || (same && number < spread->number)) ? META_BUSY : 0;
    if (error == 0 && !known) {
        error = make(meta, changes, size, count);
        if (error == 0) {
            spread->manager = manager;
            spread->number = number;
        }
    }
    if (error == 0 && count > 0) memcpy(answers, spread->answers, count * sizeof *answers);
    pthread_mutex_unlock(&meta->spread_lock);
    return error;
}
