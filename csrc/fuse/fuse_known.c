/* What the kernel knows: what it remembers of a file or directory, so that it is told of changes; and what it may still use although its name is gone,
 * until it forgets it. A file whose last name goes while the kernel knows it is kept as
 * a user of it would keep it: the kernel may have looked it up to open it, or opened it without telling. Of directories, pipes and the like
 * the attributes are remembered here: there are no others any more. */
#include "fuse_internal.h"

#include <errno.h>
#include <stdlib.h>

enum { SETTLE_NS = 40000000 }; /* so long who was answered may wait for a processor */

/* The partition is in the bits of a number from 40 on: lower ones of the product know nothing of it. */
static size_t mixed(uint64_t ino) { return (size_t)(ino * 0x9E3779B97F4A7C15u >> 40); }

/* ── what is no file ── */

static struct ghost **ghost_place(struct amfs_fuse *mount, uint64_t ino) {
    struct ghost **at = &mount->ghosts[mixed(ino) % GHOST_BUCKETS];
    while (*at != NULL && (*at)->attr.ino != ino) at = &(*at)->next;
    return at;
}

void ghost_add(struct amfs_fuse *mount, const struct meta_attr *attr) {
    struct ghost *ghost = malloc(sizeof *ghost);
    if (ghost == NULL) return;
    *ghost = (struct ghost){.attr = *attr};
    ghost->attr.nlink = 0;
    ghost->attr.size = 0;
    pthread_mutex_lock(&mount->known_lock);
    struct ghost **at = ghost_place(mount, attr->ino);
    if (*at != NULL) {
        free(ghost);
    } else {
        *at = ghost;
        atomic_fetch_add(&mount->ghost_count, 1);
    }
    pthread_mutex_unlock(&mount->known_lock);
}

bool ghost_find(struct amfs_fuse *mount, uint64_t ino, struct meta_attr *attr) {
    if (atomic_load(&mount->ghost_count) == 0) return false;
    pthread_mutex_lock(&mount->known_lock);
    const struct ghost *ghost = *ghost_place(mount, ino);
    if (ghost != NULL) *attr = ghost->attr;
    pthread_mutex_unlock(&mount->known_lock);
    return ghost != NULL;
}

bool ghost_set(struct amfs_fuse *mount, uint64_t ino, unsigned mask, const struct meta_attr *want, int64_t now, struct meta_attr *done) {
    if (atomic_load(&mount->ghost_count) == 0) return false;
    pthread_mutex_lock(&mount->known_lock);
    struct ghost *ghost = *ghost_place(mount, ino);
    if (ghost != NULL) {
        struct meta_attr *attr = &ghost->attr;
        if (mask & META_SET_MODE) attr->mode = (attr->mode & S_IFMT) | (want->mode & 07777);
        if (mask & META_SET_UID) attr->uid = want->uid;
        if (mask & META_SET_GID) attr->gid = want->gid;
        if (mask & META_SET_ATIME) attr->atime = want->atime;
        if (mask & META_SET_MTIME) attr->mtime = want->mtime;
        attr->ctime = now;
        *done = *attr;
    }
    pthread_mutex_unlock(&mount->known_lock);
    return ghost != NULL;
}

static void ghost_forget(struct amfs_fuse *mount, uint64_t ino) {
    if (atomic_load(&mount->ghost_count) == 0) return;
    pthread_mutex_lock(&mount->known_lock);
    struct ghost **at = ghost_place(mount, ino), *ghost = *at;
    if (ghost != NULL) {
        *at = ghost->next;
        free(ghost);
        atomic_fetch_sub(&mount->ghost_count, 1);
    }
    pthread_mutex_unlock(&mount->known_lock);
}

/* ── files ── */

static struct known **place(const struct amfs_fuse *mount, uint64_t ino) {
    struct known **at = &mount->known[mixed(ino) & (mount->known_buckets - 1)];
    while (*at != NULL && (*at)->ino != ino) at = &(*at)->next;
    return at;
}

/* Twice as many buckets, in one go: rare, and a matter of milliseconds where there are millions. */
static void grow(struct amfs_fuse *mount) {
    size_t before = mount->known_buckets;
    struct known **old = mount->known, **larger = calloc(before * 2, sizeof *larger);
    if (larger == NULL) return;
    mount->known = larger;
    mount->known_buckets = before * 2;
    for (size_t i = 0; i < before; i++) {
        for (struct known *next, *known = old[i]; known != NULL; known = next) {
            struct known **at = &larger[mixed(known->ino) & (mount->known_buckets - 1)];
            next = known->next;
            known->next = *at;
            *at = known;
        }
    }
    free(old);
}

struct known *known_find(struct amfs_fuse *mount, uint64_t ino) { return *place(mount, ino); }

static uint32_t rights_of(const struct meta_attr *attr) { return ((attr->mode * 31u + attr->uid) * 0x9E3779B1u + attr->gid) | 1; }

static struct spot *spot_of(struct amfs_fuse *mount, uint64_t ino) { return &mount->spots[mixed(ino) % SPOTS]; }

static bool is_settled(const struct spot *spot) { return exact_ns() - spot->turned_ns > SETTLE_NS; }

bool known_telling(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->known_lock);
    struct spot *spot = spot_of(mount, ino);
    bool telling = is_settled(spot);
    spot->telling += telling;
    pthread_mutex_unlock(&mount->known_lock);
    return telling;
}

void known_told_all(struct amfs_fuse *mount, uint64_t ino) {
    bool unread = requests_wait(mount);
    pthread_mutex_lock(&mount->known_lock);
    struct spot *spot = spot_of(mount, ino);
    spot->telling--;
    spot->told = atomic_fetch_add(&mount->changes, 1) + 1;
    if (unread) spot->unread = atomic_fetch_add(&mount->unread, 1) + 1;
    pthread_mutex_unlock(&mount->known_lock);
}

void known_all_read(struct amfs_fuse *mount, uint64_t unread) {
    pthread_mutex_lock(&mount->known_lock);
    uint64_t change = atomic_fetch_add(&mount->changes, 1) + 1;
    for (struct spot *spot = mount->spots; spot < mount->spots + SPOTS; spot++) {
        if (spot->unread == 0 || spot->unread > unread) continue;
        spot->unread = 0;
        spot->told = change;
    }
    pthread_mutex_unlock(&mount->known_lock);
}

/* It may also have to be told because of the file's pages. Who looks the file up is then sent to look again, if that matters to him: once, for the
 * second time in a row his call would fail. Not for directories: they would be taken out of their places meanwhile. Not without need either: calls
 * that make a name do not look again where there is one. */
bool known_lost(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t since, bool looks) {
    if (!S_ISREG(attr->mode)) return false;
    pthread_mutex_lock(&mount->known_lock);
    struct known *known = *place(mount, attr->ino);
    bool turns = known != NULL && known->rights != 0 && known->rights != rights_of(attr);
    struct spot *spot = spot_of(mount, attr->ino);
    if (turns) spot->turned_ns = exact_ns();
    bool lost = turns && !(looks && known->again) && (spot->telling > 0 || spot->unread != 0 || spot->told > since);
    if (lost && looks) known->again = true;
    pthread_mutex_unlock(&mount->known_lock);
    return lost;
}

/* The kernel is not told of a change of what it does not remember. That is not only cheaper: attributes that it has asked for are lost on it when it
 * is told meanwhile that they changed, and whoever asked to learn what is allowed goes on by what was known before. So whatever is answered may be
 * kept only if nothing changed since the question came. With the lock held. */
static bool tell(struct amfs_fuse *mount, struct known *known, const struct meta_attr *attr, uint64_t since, bool cache) {
    uint32_t rights = rights_of(attr);
    if (known->rights != 0 && known->rights != rights) spot_of(mount, known->ino)->turned_ns = exact_ns();
    known->rights = rights;
    known->again = false;
    cache = cache && known->changed <= since;
    known->timed = known->timed || cache;
    return cache;
}

bool known_told(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t since, bool cache) {
    if (!S_ISREG(attr->mode) && !S_ISDIR(attr->mode)) return cache;
    pthread_mutex_lock(&mount->known_lock);
    struct known *known = *place(mount, attr->ino);
    if (known != NULL) cache = tell(mount, known, attr, since, cache);
    pthread_mutex_unlock(&mount->known_lock);
    return cache;
}

void known_paged(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->known_lock);
    struct known *known = *place(mount, ino);
    if (known != NULL) known->paged = true;
    pthread_mutex_unlock(&mount->known_lock);
}

bool is_paged(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->known_lock);
    const struct known *known = *place(mount, ino);
    bool paged = known != NULL && known->paged;
    pthread_mutex_unlock(&mount->known_lock);
    return paged;
}

bool known_to_tell(struct amfs_fuse *mount, uint64_t ino, bool data) {
    bool tells = true;
    pthread_mutex_lock(&mount->known_lock);
    struct known *known = *place(mount, ino);
    if (known != NULL) {
        tells = known->timed || (data && known->paged);
        if (!tells) known->changed = atomic_fetch_add(&mount->changes, 1) + 1;
        known->timed = false;
    }
    pthread_mutex_unlock(&mount->known_lock);
    return tells;
}

uint64_t count_lookup(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t spot, uint64_t since, bool *cache) {
    uint64_t ino = attr->ino;
    uint8_t alias = 0;
    pthread_mutex_lock(&mount->known_lock);
    if (mount->known_count > mount->known_buckets) grow(mount);
    struct known **at = place(mount, ino), *known = *at;
    if (known == NULL) {
        known = mount->spare_known;
        if (known != NULL) mount->spare_known = known->next;
        else known = malloc(sizeof *known);
        if (known != NULL) {
            *known = (struct known){.ino = ino, .place = spot};
            *at = known;
            mount->known_count++;
        }
    }
    if (known != NULL) known->lookups++;
    if (known != NULL) alias = alias_give(mount, known, spot);
    if (known != NULL) *cache = tell(mount, known, attr, since, *cache);
    pthread_mutex_unlock(&mount->known_lock);
    return node_id(ino, alias);
}

void hold_known(struct amfs_fuse *mount, uint64_t ino) {
    struct meta_attr attr;
    pthread_mutex_lock(&mount->known_lock);
    const struct known *known = *place(mount, ino);
    bool wanted = known != NULL && !known->held;
    pthread_mutex_unlock(&mount->known_lock); /* its owner may hold meta's lock while it counts a lookup: not the other way round */
    if (!wanted || meta_open_here(mount->node->meta, ino, false, &attr) != 0) return;
    pthread_mutex_lock(&mount->known_lock);
    struct known *still = *place(mount, ino);
    if (still != NULL) still->held = true;
    pthread_mutex_unlock(&mount->known_lock);
    if (still == NULL) forget_unused(mount, ino);
}

bool known_keep(struct node *node, uint64_t ino) {
    bool kept = false;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL; mount = mount->next) {
        if (!atomic_load(&mount->no_open)) continue;
        pthread_mutex_lock(&mount->known_lock);
        struct known *known = *place(mount, ino);
        if (known != NULL) known->held = kept = true;
        pthread_mutex_unlock(&mount->known_lock);
    }
    pthread_mutex_unlock(&node->mounts_lock);
    return kept;
}

bool is_known(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->known_lock);
    bool known = *place(mount, ino) != NULL;
    pthread_mutex_unlock(&mount->known_lock);
    return known;
}

bool is_held(struct node *node, uint64_t ino) {
    bool held = false;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL && !held; mount = mount->next) {
        pthread_mutex_lock(&mount->known_lock);
        const struct known *known = *place(mount, ino);
        held = known != NULL && known->held;
        pthread_mutex_unlock(&mount->known_lock);
    }
    pthread_mutex_unlock(&node->mounts_lock);
    return held;
}

static void forget(struct amfs_fuse *mount, uint64_t ino, uint64_t lookups) {
    bool held = false, away = false;
    ghost_forget(mount, ino);
    pthread_mutex_lock(&mount->known_lock);
    struct known **at = place(mount, ino), *known = *at;
    if (known != NULL) {
        known->lookups = known->lookups > lookups ? known->lookups - lookups : 0;
        if ((away = known->lookups == 0)) {
            *at = known->next;
            held = known->held;
            known->next = mount->spare_known;
            mount->spare_known = known;
            mount->known_count--;
        }
    }
    pthread_mutex_unlock(&mount->known_lock);
    if (away && atomic_load(&mount->no_open)) files_forget(mount, ino);
    if (held) forget_unused(mount, ino);
}

/* The kernel is gone: so are its claims. */
void known_end(struct amfs_fuse *mount) {
    for (size_t i = 0; i < GHOST_BUCKETS; i++)
        while (mount->ghosts[i] != NULL) ghost_forget(mount, mount->ghosts[i]->attr.ino);
    for (size_t i = 0; mount->known != NULL && i < mount->known_buckets; i++) {
        while (mount->known[i] != NULL) {
            struct known *known = mount->known[i];
            forget(mount, known->ino, known->lookups);
        }
    }
}

void do_forget(struct call *call) { /* nothing is answered to this request */
    struct amfs_fuse *mount = call->mount;
    if (call->in->opcode == WIRE_FORGET) {
        const struct wire_forget_in *in = (const void *)call->body;
        if (call->size >= sizeof *in) forget(mount, call->in->ino, in->lookups);
        return;
    }
    const struct wire_batch_forget_in *in = (const void *)call->body;
    if (call->size < sizeof *in) return;
    const struct wire_forget_one *one = (const void *)(in + 1);
    size_t count = (call->size - sizeof *in) / sizeof *one;
    for (size_t i = 0; i < count && i < in->count; i++) forget(mount, plain_ino(one[i].ino), one[i].lookups);
}
