/* The metadata shard: an entry, the shelf of its directory, and the lock of a name. Stands on places; tells nobody. */
#include "fsmeta_internal.h"

#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_MIN = 4 };

struct shelf *fsmeta_find_shelf(const struct meta *meta, uint64_t dir) {
    struct link *link = fsmeta_table_first(&meta->shelves, dir);
    return link == NULL ? NULL : RECORD(struct shelf, link, link);
}

static void close_holes(struct shelf *shelf) {
    size_t to = 0;
    for (size_t i = shelf->first; i < shelf->used; i++)
        if (shelf->slots[i].entry != NULL) shelf->slots[to++] = shelf->slots[i];
    shelf->first = 0;
    shelf->used = to;
}

static bool resize_slots(struct meta *meta, struct shelf *shelf, size_t room) {
    struct slot *slots = realloc(shelf->slots, room * sizeof *slots);
    if (slots == NULL) return false;
    meta->other_bytes += room * sizeof *slots;
    meta->other_bytes -= shelf->room * sizeof *slots;
    shelf->slots = slots;
    shelf->room = room;
    return true;
}

bool fsmeta_shelve(struct meta *meta, struct entry *entry) {
    if (entry->cursor != 0) return true;
    struct shelf *shelf = fsmeta_find_shelf(meta, entry->dir);
    if (shelf == NULL) {
        shelf = fsmeta_slab_take(&meta->slabs, sizeof *shelf);
        if (shelf == NULL) return false;
        *shelf = (struct shelf){.link.key = entry->dir};
        if (!resize_slots(meta, shelf, SLOTS_MIN)) {
            fsmeta_slab_give(&meta->slabs, shelf);
            return false;
        }
        fsmeta_table_add(&meta->shelves, &shelf->link);
    }
    if (shelf->used == shelf->room) {
        if (shelf->count <= shelf->used / 4 * 3) close_holes(shelf);
        else if (!resize_slots(meta, shelf, shelf->room + shelf->room / 2)) return false;
    }
    entry->cursor = ++meta->last_cursor;
    shelf->slots[shelf->used++] = (struct slot){entry->cursor, entry};
    shelf->count++;
    return true;
}

/* Index of the first slot after `cursor`, hole or not. */
size_t fsmeta_slot_after(const struct shelf *shelf, uint64_t cursor) {
    size_t low = shelf->first, high = shelf->used;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shelf->slots[middle].cursor <= cursor) low = middle + 1;
        else high = middle;
    }
    return low;
}

void fsmeta_unshelve(struct meta *meta, struct entry *entry) {
    uint64_t cursor = entry->cursor;
    if (cursor == 0) return;
    entry->cursor = 0;
    struct shelf *shelf = fsmeta_find_shelf(meta, entry->dir);
    if (--shelf->count == 0) {
        fsmeta_table_remove(&meta->shelves, &shelf->link);
        meta->other_bytes -= shelf->room * sizeof *shelf->slots;
        free(shelf->slots);
        fsmeta_slab_give(&meta->slabs, shelf);
        return;
    }
    shelf->slots[fsmeta_slot_after(shelf, cursor - 1)].entry = NULL;
    while (shelf->slots[shelf->first].entry == NULL) shelf->first++;
    if (shelf->used >= 64 && shelf->count < shelf->used / 2) {
        close_holes(shelf);
        resize_slots(meta, shelf, shelf->used + shelf->used / 4);
    }
}

bool fsmeta_shelf_is_sound(const struct shelf *shelf) {
    size_t count = 0;
    for (size_t i = shelf->first; i < shelf->used; i++) {
        const struct slot *slot = &shelf->slots[i];
        if (i > shelf->first && slot->cursor <= slot[-1].cursor) return false;
        if (slot->entry == NULL) continue;
        count++;
        if (slot->entry->cursor != slot->cursor || slot->entry->dir != shelf->link.key) return false;
    }
    return count == shelf->count && count > 0 && shelf->used <= shelf->room && shelf->slots[shelf->first].entry != NULL;
}

struct entry *fsmeta_find_entry(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length) {
    const struct table *table = fsmeta_entries_of(meta, key);
    for (struct link *link = table == NULL ? NULL : fsmeta_table_first(table, key); link != NULL; link = fsmeta_table_next(link)) {
        struct entry *entry = RECORD(struct entry, link, link);
        if (entry->dir == dir && entry->length == length && memcmp(entry->name, name, length) == 0) return entry;
    }
    return NULL;
}

struct entry *fsmeta_add_entry(struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, uint64_t ino,
                               uint32_t type) {
    struct table *table = fsmeta_entries_of(meta, key);
    struct entry *entry = fsmeta_is_ready(meta, table) ? fsmeta_slab_take(&meta->slabs, offsetof(struct entry, name) + length) : NULL;
    if (entry == NULL) return NULL;
    entry->link.key = key;
    entry->dir = dir;
    entry->ino = ino;
    entry->cursor = 0;
    entry->watchers = 0;
    entry->type = type & S_IFMT;
    entry->length = (uint16_t)length;
    memcpy(entry->name, name, length);
    if (!fsmeta_is_shadow(meta, fsmeta_partition_of_key(meta, key)) && !fsmeta_shelve(meta, entry)) {
        fsmeta_slab_give(&meta->slabs, entry);
        return NULL;
    }
    fsmeta_table_add(table, &entry->link);
    return entry;
}

void fsmeta_free_entry(struct meta *meta, struct entry *entry) {
    fsmeta_unshelve(meta, entry);
    fsmeta_set_clear(&entry->watchers);
    fsmeta_slab_give(&meta->slabs, entry);
}

static bool has_ended(const struct name_lock *lock) { return lock->until_ms != 0 && now_ms() >= lock->until_ms; }

struct name_lock *fsmeta_find_lock(const struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length) {
    if (meta->locks.count == 0) return NULL;
    for (struct link *link = fsmeta_table_first(&meta->locks, key); link != NULL; link = fsmeta_table_next(link)) {
        struct name_lock *lock = RECORD(struct name_lock, link, link);
        if (lock->dir == dir && lock->length == length && memcmp(lock->name, name, length) == 0 && !has_ended(lock)) return lock;
    }
    return NULL;
}

static bool free_ended(void *context, struct link *link) {
    struct name_lock *lock = RECORD(struct name_lock, link, link);
    bool ended = has_ended(lock);
    if (ended) fsmeta_free_lock(context, lock);
    return ended;
}

int fsmeta_add_lock(struct meta *meta, uint64_t key, uint64_t dir, const char *name, size_t length, uint64_t owner) {
    struct name_lock *lock = fsmeta_slab_take(&meta->slabs, offsetof(struct name_lock, name) + length);
    if (lock == NULL) return ENOMEM;
    fsmeta_table_sift(&meta->locks, free_ended, meta);
    lock->link.key = key;
    lock->dir = dir;
    lock->owner = owner;
    lock->until_ms = (owner & META_LOCK_ENDS) != 0 ? now_ms() + META_LOCK_MS : 0;
    lock->length = (uint16_t)length;
    memcpy(lock->name, name, length);
    fsmeta_table_add(&meta->locks, &lock->link);
    return 0;
}

void fsmeta_free_lock(struct meta *meta, struct name_lock *lock) { fsmeta_slab_give(&meta->slabs, lock); }

bool fsmeta_is_type(uint32_t type) {
    switch (type) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK: return true;
    default: return false;
    }
}
