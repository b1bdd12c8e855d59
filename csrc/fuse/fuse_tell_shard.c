/* News for the shards of other nodes for which nobody waits: files that are closed, directories that are touched. Stands on the queue to the poll loop. */
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <stdlib.h>

struct closing {
    struct peer_meta_call call;
    struct amfs_fuse *mount;
    uint64_t ino, since;
    bool wrote, used;
    struct meta_attr said;
};

/* Changes of a directory's entries while its home has not answered the last word of them are told together. */
struct touching {
    struct peer_meta_call call;
    struct amfs_fuse *mount;
    int slot;
};

static void heard_touched(struct peer_meta_call *call, const struct peer_meta_answer *answer);

int32_t fuse_owner_of(const struct node *node, uint64_t ino) { return meta_owner(node->meta, meta_ino_partition(node->meta, ino)); }

static void heard_closed(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct closing *closing = (struct closing *)(void *)call;
    struct amfs_fuse *mount = closing->mount;
    struct meta *meta = mount->node->meta;
    const struct meta_attr *attr = &answer->attr;
    if (answer->error == 0 && closing->wrote && attr->ino == closing->ino && attr->finished && attr->layout == META_WHOLE &&
        attr->nlink > 0)
        meta_cache_fresh(meta, closing->since, attr, true);
    if (answer->error != 0 && answer->error != ENOENT) { /* ENOENT: it is gone, with all that could be said of it */
        if (closing->wrote) fuse_slow_wrote(mount, closing->ino, !closing->used, &closing->said);
        else if (!closing->used) fuse_slow_unused(mount, closing->ino);
    }
    opens_told_directly(meta_opens(meta), closing->ino);
    free(closing);
}

bool peer_meta_closed(struct amfs_fuse *mount, uint64_t ino, const struct meta_attr *said, bool same, bool used) {
    struct node *node = mount->node;
    struct peer_meta *peer_meta = atomic_load(&mount->stopping) ? NULL : peer_meta_of(node->io);
    int32_t owner = fuse_owner_of(node, ino);
    if (peer_meta == NULL || owner < 0 || owner == node->id || !opens_tell_directly(node->opens, ino)) return false;
    struct closing *closing = malloc(sizeof *closing);
    if (closing != NULL) {
        *closing = (struct closing){.call = {.owner = mount, .done = heard_closed},
                                    .mount = mount,
                                    .ino = ino,
                                    .since = meta_moment(node->meta),
                                    .wrote = said != NULL,
                                    .used = used};
        if (said != NULL) closing->said = *said;
        unsigned flags = (used ? PEER_META_USED : 0) | (same ? PEER_META_HOLDS : 0);
        struct peer_meta_question question = {.op = PEER_META_CLOSED, .flags = flags, .ino = ino, .attr = said};
        if (peer_meta_ask(peer_meta, owner, &question, &closing->call) == 0) return true;
    }
    free(closing);
    opens_told_directly(node->opens, ino);
    return false;
}

/* With the lock held. */
static bool tell_touched(struct amfs_fuse *mount, int slot) {
    struct node *node = mount->node;
    struct touch *touch = &node->touches[slot];
    struct peer_meta *peer_meta = atomic_load(&mount->stopping) ? NULL : peer_meta_of(node->io);
    struct touching *touching = peer_meta == NULL ? NULL : malloc(sizeof *touching);
    if (touching == NULL) return false;
    *touching = (struct touching){.call = {.owner = mount, .done = heard_touched}, .mount = mount, .slot = slot};
    struct peer_meta_question question = {.op = PEER_META_TOUCH, .ino = touch->dir, .now = touch->last};
    touch->told = touch->last;
    if (peer_meta_ask(peer_meta, fuse_owner_of(node, touch->dir), &question, &touching->call) == 0) return true;
    free(touching);
    return false;
}

static void heard_touched(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct touching *touching = (struct touching *)(void *)call;
    struct amfs_fuse *mount = touching->mount;
    struct node *node = mount->node;
    struct touch *touch = &node->touches[touching->slot];
    bool more = false, slowly = answer->error != 0;
    pthread_mutex_lock(&node->touch_lock);
    uint64_t dir = touch->dir;
    if (!slowly && touch->last > touch->told) {
        more = tell_touched(mount, touching->slot);
        slowly = !more;
    }
    if (!more) touch->dir = 0;
    pthread_mutex_unlock(&node->touch_lock);
    if (slowly) fuse_slow_touched(mount, dir);
    free(touching);
}

bool peer_meta_touch(struct amfs_fuse *mount, uint64_t dir, int64_t now) {
    struct node *node = mount->node;
    int32_t owner = fuse_owner_of(node, dir);
    int unused = -1;
    bool told = false;
    if (owner < 0 || owner == node->id) return false;
    pthread_mutex_lock(&node->touch_lock);
    for (int i = 0; i < TOUCHES && !told; i++) {
        struct touch *touch = &node->touches[i];
        if (touch->dir == 0) unused = i;
        if (touch->dir != dir) continue;
        if (touch->last < now) touch->last = now;
        told = true;
    }
    if (!told && unused >= 0) {
        node->touches[unused] = (struct touch){.dir = dir, .last = now};
        told = tell_touched(mount, unused);
        if (!told) node->touches[unused].dir = 0;
    }
    pthread_mutex_unlock(&node->touch_lock);
    return told;
}

void fuse_touch(struct amfs_fuse *mount, uint64_t dir) {
    int64_t now = fuse_exact_now_of(mount->node); /* times of it may have been set just before, by the exact clock */
    if (meta_dir_touch(mount->node->meta, dir, now, NULL) != 0 && !peer_meta_touch(mount, dir, now)) fuse_slow_touched(mount, dir);
    fuse_notify_others(mount, dir, false);
}
