/* Which files the kernel may still use, where it opens them without telling. A file whose last name goes while the kernel knows it is kept, as a
 * user of it would keep it, until the kernel forgets it. */
#include "fuse_private.h"

#include <errno.h>
#include <stdlib.h>

static struct known **place(const struct amfs_fuse *mount, uint64_t ino) {
    struct known **at = &mount->known[(ino * 0x9E3779B97F4A7C15u >> 40) % KNOWN_BUCKETS];
    while (*at != NULL && (*at)->ino != ino) at = &(*at)->next;
    return at;
}

void count_lookup(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(&mount->known_lock);
    struct known **at = place(mount, ino), *known = *at;
    if (known == NULL && (known = calloc(1, sizeof *known)) != NULL) {
        known->ino = ino;
        *at = known;
    }
    if (known != NULL) known->lookups++;
    pthread_mutex_unlock(&mount->known_lock);
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

bool is_held(struct node *node, uint64_t ino) {
    bool held = false;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL && !held; mount = mount->next) {
        if (mount->known == NULL) continue;
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
    pthread_mutex_lock(&mount->known_lock);
    struct known **at = place(mount, ino), *known = *at;
    if (known != NULL) {
        known->lookups = known->lookups > lookups ? known->lookups - lookups : 0;
        if ((away = known->lookups == 0)) {
            *at = known->next;
            held = known->held;
            free(known);
        }
    }
    pthread_mutex_unlock(&mount->known_lock);
    if (away) files_forget(mount, ino);
    if (held) forget_unused(mount, ino);
}

/* The kernel is gone: so are its claims. */
void known_end(struct amfs_fuse *mount) {
    for (size_t i = 0; mount->known != NULL && i < KNOWN_BUCKETS; i++) {
        while (mount->known[i] != NULL) {
            struct known *known = mount->known[i];
            forget(mount, known->ino, known->lookups);
        }
    }
}

void do_forget(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    if (mount->known == NULL) return; /* nothing is answered to this request */
    if (call->in->opcode == WIRE_FORGET) {
        const struct wire_forget_in *in = (const void *)call->body;
        if (call->size >= sizeof *in) forget(mount, call->in->ino, in->lookups);
        return;
    }
    const struct wire_batch_forget_in *in = (const void *)call->body;
    if (call->size < sizeof *in) return;
    const struct wire_forget_one *one = (const void *)(in + 1);
    size_t count = (call->size - sizeof *in) / sizeof *one;
    for (size_t i = 0; i < count && i < in->count; i++) forget(mount, one[i].ino, one[i].lookups);
}
