/* The metadata shard: notes that this node keeps while it asks others directly: answers that are old when they come, small files whose content lies
 * elsewhere. Stands on the tables. */
#include "fsmeta_internal.h"

uint64_t meta_name_mark(uint64_t dir, const char *name, size_t length) { return fsmeta_name_key(dir, name, length); }

void fsmeta_mark_stale(struct meta *meta, uint64_t mark) {
    meta->stale[meta->stale_count++ % STALE_MARKS] = mark;
    fsmeta_forget_small(meta, mark);
}

void meta_stale(struct meta *meta, uint64_t mark) {
    enter(meta);
    fsmeta_mark_stale(meta, mark);
    pthread_mutex_unlock(&meta->lock);
}

uint64_t meta_moment(struct meta *meta) {
    enter(meta);
    uint64_t moment = meta->stale_count;
    pthread_mutex_unlock(&meta->lock);
    return moment;
}

bool fsmeta_is_fresh(const struct meta *meta, uint64_t since, uint64_t mark) {
    if (meta->stale_count - since > STALE_MARKS) return false; /* more than is remembered */
    for (uint64_t i = since; i < meta->stale_count; i++)
        if (meta->stale[i % STALE_MARKS] == mark) return false;
    return true;
}

bool meta_fresh(struct meta *meta, uint64_t since, uint64_t mark) {
    enter(meta);
    bool fresh = fsmeta_is_fresh(meta, since, mark);
    pthread_mutex_unlock(&meta->lock);
    return fresh;
}

struct meta_small *fsmeta_small_slot(const struct meta *meta, uint64_t ino) {
    return meta->small == NULL ? NULL : &meta->small[(ino * 0x9E3779B97F4A7C15u >> 40) % META_SMALL_NOTES];
}

void fsmeta_forget_small(struct meta *meta, uint64_t ino) {
    struct meta_small *slot = fsmeta_small_slot(meta, ino);
    if (slot == NULL) return;
    if (ino == 0)
        for (size_t i = 0; i < META_SMALL_NOTES; i++) meta->small[i].attr.ino = 0;
    else if (slot->attr.ino == ino) slot->attr.ino = 0;
}
