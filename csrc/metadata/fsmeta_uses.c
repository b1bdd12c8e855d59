/* The metadata shard: what this node must keep in mind while it asks others directly: answers that are old when they come, files that are open here and
 * recorded elsewhere, small files whose content lies elsewhere. Stands on the tables. */
#include "fsmeta_internal.h"

#include <errno.h>

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

static struct fsmeta_use *find_use(const struct meta *meta, uint64_t ino) {
    struct link *link = fsmeta_table_first(&meta->uses, ino);
    return link == NULL ? NULL : RECORD(struct fsmeta_use, link, link);
}

bool fsmeta_is_claimed(const struct meta *meta, uint64_t ino) {
    const struct fsmeta_use *use = find_use(meta, ino);
    return use != NULL && use->claimed;
}

struct fsmeta_use *fsmeta_the_use(struct meta *meta, uint64_t ino) {
    struct fsmeta_use *use = find_use(meta, ino);
    if (use != NULL) return use;
    use = fsmeta_slab_take(&meta->slabs, sizeof *use);
    if (use == NULL) return NULL;
    *use = (struct fsmeta_use){.link.key = ino};
    fsmeta_table_add(&meta->uses, &use->link);
    return use;
}

static void drop_if_empty(struct meta *meta, struct fsmeta_use *use) {
    if (use->files > 0 || use->writers > 0 || use->telling > 0 || use->claimed) return;
    fsmeta_table_remove(&meta->uses, &use->link);
    fsmeta_slab_give(&meta->slabs, use);
}

int meta_use_directly(struct meta *meta, uint64_t ino, int files, int writers) {
    enter(meta);
    struct fsmeta_use *use = fsmeta_the_use(meta, ino);
    if (use == NULL) return leave(meta, ENOMEM);
    use->files += files;
    use->writers += writers;
    drop_if_empty(meta, use);
    return leave(meta, 0);
}

bool meta_tell_directly(struct meta *meta, uint64_t ino) {
    enter(meta);
    struct fsmeta_use *use = fsmeta_the_use(meta, ino);
    bool may = use != NULL && !use->claimed;
    if (may) use->telling++;
    pthread_mutex_unlock(&meta->lock);
    return may;
}

void meta_told_directly(struct meta *meta, uint64_t ino) {
    enter(meta);
    struct fsmeta_use *use = find_use(meta, ino);
    if (use != NULL && use->telling > 0) {
        use->telling--;
        drop_if_empty(meta, use);
    }
    pthread_mutex_unlock(&meta->lock);
}

int meta_claim(struct meta *meta, uint64_t ino, bool claimed) {
    enter(meta);
    struct fsmeta_use *use = claimed ? fsmeta_the_use(meta, ino) : find_use(meta, ino);
    if (use != NULL) {
        use->claimed = claimed;
        drop_if_empty(meta, use);
    }
    return leave(meta, claimed && use == NULL ? ENOMEM : 0);
}

void meta_direct_uses(struct meta *meta, uint64_t ino, int *files, int *writers, bool *telling) {
    enter(meta);
    const struct fsmeta_use *use = find_use(meta, ino);
    *files = use == NULL ? 0 : use->files;
    *writers = use == NULL ? 0 : use->writers;
    *telling = use != NULL && use->telling > 0;
    pthread_mutex_unlock(&meta->lock);
}

bool meta_is_unused(struct meta *meta, uint64_t ino) {
    enter(meta);
    bool unused = find_use(meta, ino) == NULL;
    pthread_mutex_unlock(&meta->lock);
    return unused;
}

bool fsmeta_free_use_link(void *context, struct link *link) {
    struct meta *meta = context;
    fsmeta_slab_give(&meta->slabs, RECORD(struct fsmeta_use, link, link));
    return true;
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
