/* News that make the kernel forget. A change is answered when the kernels of all nodes that may have the old state have been told here, so two
 * kinds of news go on two lanes, and each is waited for by itself:
 *
 * Inodes. The kernel drops attributes at once; for pages it waits until reads of them that are under way are answered. An inode that it has just been given
 * for the first time it has only when the process that asked for it has run: it is told again then. Several threads tell it, so that one such file holds up no other.
 *
 * Names. The kernel takes the lock of the directory, which a process may hold that waits for our answer, which may have to wait for the node that made the
 * change. So a directory in which somebody waits for us is left for later. A thread that has waited for PATIENCE_MS has the kernel look all names up
 * again instead, which takes no lock. Kernels that cannot do that (before Linux 6.16) believe a name no longer than LIFE_NS, and that is waited for. */
#include "fuse_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

enum {
    PATIENCE_MS = 50,
    PAGES_MS = 2000, /* a read that takes longer than that keeps the pages that it waits for */
};

/* False: the kernel has none of that number. */
static bool tell_kernel(struct amfs_fuse *mount, int fd, const struct notice *notice, unsigned edition) {
    uint64_t id = fuse_node_id(notice->ino, edition);
    struct wire_inval_inode inode = {.ino = id, .offset = notice->data ? 0 : -1};
    struct wire_inval_entry entry = {.dir = id, .length = (uint32_t)notice->length};
    struct wire_out header = {.error = (int32_t)notice->code};
    struct iovec parts[3] = {{&header, sizeof header}, {&inode, sizeof inode}, {(void *)(uintptr_t)notice->name, 0}};
    int count = 2;
    if (notice->code == NOTIFY_INVAL_ENTRY) {
        /* A name that is looked up again where it is leaves the inode in use as it is. But a directory that has gone from here must really go. */
        struct meta_attr attr;
        bool stays = meta_dir_find(mount->node->meta, notice->ino, notice->name, notice->length, &attr) == 0;
        if (stays && (mount->granted & WIRE_CAN(CAN_EXPIRE_ONLY)) != 0) entry.flags = INVAL_EXPIRE_ONLY;
        parts[1] = (struct iovec){&entry, sizeof entry};
        parts[2].iov_len = notice->length + 1;
        count = 3;
    } else if (notice->code == NOTIFY_EPOCH) {
        parts[1].iov_len = 0;
        count = 1;
    }
    header.length = (uint32_t)(sizeof header + parts[1].iov_len + parts[2].iov_len);
    ssize_t told;
    do told = writev(fd, parts, count);
    while (told < 0 && errno == EINTR);
    return told >= 0 || errno != ENOENT;
}

struct timespec fuse_notice_in_ms(long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds % 1000 * 1000000;
    until.tv_sec += milliseconds / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

static bool tell_all_editions(struct amfs_fuse *mount, int fd, const struct notice *notice) {
    bool told = false;
    for (unsigned edition = 0, last = fuse_inode_last_edition(mount, notice->ino); edition <= last; edition++)
        told = tell_kernel(mount, fd, notice, edition) || told;
    return told;
}

/* Has an inode that the kernel does not have been given to it all the same? The process that looked it up has not run since the answer. */
static bool on_its_way(struct amfs_fuse *mount, uint64_t ino) {
    return atomic_load(&mount->looking) > 0 || fuse_inode_is_known(mount, ino);
}

/* False: not yet. */
bool fuse_notice_carry_out(struct amfs_fuse *mount, int fd, const struct notice *notice) {
    bool told = notice->code == NOTIFY_EPOCH ? tell_kernel(mount, fd, notice, 0) : tell_all_editions(mount, fd, notice);
    return notice->code != NOTIFY_INVAL_INODE || (!notice->stays && (told || !on_its_way(mount, notice->ino)));
}

/* With the lock held. */
static void put_last(struct fuse_lane *lane, struct notice *notice) {
    notice->next = NULL;
    *lane->tail = notice;
    lane->tail = &notice->next;
}

/* With the lock held. */
static void signal_for(struct amfs_fuse *mount, struct fuse_lane *lane, const struct notice *notice) {
    pthread_cond_signal(notice->leaves && !notice->looked ? &mount->leaver_wake : &lane->wake);
}

/* With the lock held. */
static void take_out(struct fuse_lane *lane, struct notice *notice) {
    struct notice **at = &lane->telling;
    while (*at != notice) at = &(*at)->next;
    *at = notice->next;
}

void fuse_notice_put_back(struct amfs_fuse *mount, struct fuse_lane *lane, struct notice *notice) {
    take_out(lane, notice);
    put_last(lane, notice);
    signal_for(mount, lane, notice);
}

/* With the lock held. */
void fuse_notice_carried_out(struct amfs_fuse *mount, struct fuse_lane *lane, struct notice *notice, bool done) {
    if (!done) {
        notice->looked = false;
        notice->not_before_ns = fuse_exact_ns() + LATER_MS * 1000000;
        fuse_notice_put_back(mount, lane, notice);
        return;
    }
    take_out(lane, notice);
    if (notice->code == NOTIFY_EPOCH && mount->lanes[NAMES].covered < notice->covers) mount->lanes[NAMES].covered = notice->covers;
    free(notice);
    pthread_cond_broadcast(&mount->notice_done);
}

/* The kernel evicts an inode, and then says so: in between it is told of one that it has no more, and that is taken for one which it does not have yet. */
void fuse_notice_forgotten(struct amfs_fuse *mount, uint64_t ino) {
    struct fuse_lane *lane = &mount->lanes[INODES];
    pthread_mutex_lock(&mount->notice_lock);
    for (struct notice *notice = lane->queue; notice != NULL; notice = notice->next) {
        if (notice->ino != ino || notice->not_before_ns == 0) continue;
        notice->not_before_ns = 0;
        signal_for(mount, lane, notice);
    }
    pthread_mutex_unlock(&mount->notice_lock);
}

/* The first look is soon: it may not be mapped at all, and the kernel about to close it. */
void fuse_notify_mapped(struct amfs_fuse *mount, int by) {
    pthread_mutex_lock(&mount->notice_lock);
    atomic_fetch_add(&mount->mapped, by);
    mount->newly_mapped = mount->newly_mapped || by > 0;
    if (by > 0) pthread_cond_signal(&mount->leaver_wake);
    pthread_mutex_unlock(&mount->notice_lock);
}

/* Numbers that are given out say on which lane. */
static uint64_t number_on(enum fuse_lane_name lane, uint64_t number) { return number * LANES + lane; }

/* With the lock held. */
static uint64_t append(struct amfs_fuse *mount, enum fuse_lane_name name, struct notice *notice) {
    struct fuse_lane *lane = &mount->lanes[name];
    notice->number = ++lane->last;
    notice->covers = notice->code == NOTIFY_EPOCH ? mount->lanes[NAMES].last : 0;
    put_last(lane, notice);
    signal_for(mount, lane, notice);
    return number_on(name, notice->number);
}

static struct notice *make(struct amfs_fuse *mount, struct notice said, const char *name) {
    if (!atomic_load(&mount->started) || atomic_load(&mount->ended) || atomic_load(&mount->stopping) || mount->socket) return NULL;
    struct notice *notice = malloc(sizeof *notice + said.length + 1);
    if (notice == NULL) return NULL;
    *notice = said;
    if (name != NULL) memcpy(notice->name, name, said.length);
    notice->name[said.length] = '\0';
    return notice;
}

uint64_t fuse_notice_add(struct amfs_fuse *mount, struct notice said, const char *name) {
    struct notice *notice = make(mount, said, name);
    if (notice == NULL) return 0;
    pthread_mutex_lock(&mount->notice_lock);
    uint64_t number = append(mount, said.code == NOTIFY_INVAL_ENTRY ? NAMES : INODES, notice);
    pthread_mutex_unlock(&mount->notice_lock);
    return number;
}

/* The latest news of an inode of which the kernel has still to be told; 0: none. With the lock held. */
static uint64_t latest_of(const struct fuse_lane *lane, uint64_t ino) {
    uint64_t latest = 0;
    const struct notice *both[] = {lane->telling, lane->queue};
    for (int i = 0; i < 2; i++)
        for (const struct notice *notice = both[i]; notice != NULL; notice = notice->next)
            if (notice->ino == ino && notice->number > latest) latest = notice->number;
    return latest;
}

static bool is_directory(const struct amfs_fuse *mount, uint64_t ino) {
    struct meta_attr attr;
    uint64_t parent;
    return meta_dir_get(mount->node->meta, ino, &attr, &parent) == 0;
}

/* Of a directory it has attributes only, which it drops without waiting for anything: no other thread need tell it. */
static uint64_t tell_at_once(struct amfs_fuse *mount, uint64_t ino) {
    struct notice *notice = make(mount, (struct notice){.code = NOTIFY_INVAL_INODE, .ino = ino}, NULL);
    if (notice == NULL) return 0;
    struct fuse_lane *lane = &mount->lanes[INODES];
    pthread_mutex_lock(&mount->notice_lock);
    uint64_t number = notice->number = ++lane->last;
    notice->next = lane->telling;
    lane->telling = notice;
    pthread_mutex_unlock(&mount->notice_lock);
    bool done = fuse_notice_carry_out(mount, mount->fd, notice);
    pthread_mutex_lock(&mount->notice_lock);
    fuse_notice_carried_out(mount, lane, notice, done);
    pthread_mutex_unlock(&mount->notice_lock);
    return done ? 0 : number_on(INODES, number);
}

/* The kernel need not forget an inode that it does not remember; but it may still have to be told of a change before. */
uint64_t amfs_fuse_invalidate_inode(struct amfs_fuse *mount, uint64_t ino, bool data) {
    if (fuse_inode_changed(mount, ino, data)) {
        if (is_directory(mount, ino)) return tell_at_once(mount, ino);
        return fuse_notice_add(mount, (struct notice){.code = NOTIFY_INVAL_INODE, .ino = ino, .data = data}, NULL);
    }
    pthread_mutex_lock(&mount->notice_lock);
    uint64_t number = latest_of(&mount->lanes[INODES], ino);
    pthread_mutex_unlock(&mount->notice_lock);
    return number == 0 ? 0 : number_on(INODES, number);
}

uint64_t amfs_fuse_invalidate_entry(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length) {
    if (dir == 0) return fuse_notify_epoch(mount);
    meta_stale(mount->node->meta, meta_name_mark(dir, name, length));
    return length > META_NAME_MAX ? 0
                                  : fuse_notice_add(mount, (struct notice){.code = NOTIFY_INVAL_ENTRY, .ino = dir, .length = length}, name);
}

uint64_t amfs_fuse_invalidate_entry_of(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length, uint64_t gone) {
    if (gone == 0) return amfs_fuse_invalidate_entry(mount, dir, name, length);
    meta_stale(mount->node->meta,
               meta_name_mark(dir, name, length)); /* before the look: a mount that is just getting the answer checks whether that is old */
    return on_its_way(mount, gone) ? amfs_fuse_invalidate_entry(mount, dir, name, length) : 0;
}

uint64_t fuse_notify_epoch(struct amfs_fuse *mount) {
    return has_epochs(mount) ? fuse_notice_add(mount, (struct notice){.code = NOTIFY_EPOCH}, NULL) : 0;
}

static bool has(const struct notice *notices, uint64_t number) {
    while (notices != NULL && notices->number != number) notices = notices->next;
    return notices != NULL;
}

/* Has the kernel been told that, or need nobody tell it any more? With the lock held. */
static bool is_done(const struct amfs_fuse *mount, const struct fuse_lane *lane, uint64_t number) {
    if (number <= lane->covered || atomic_load(&mount->ended) || atomic_load(&mount->stopping)) return true;
    return !has(lane->telling, number) && !has(lane->queue, number);
}

/* With the lock held. */
static void await(struct amfs_fuse *mount, const struct fuse_lane *lane, uint64_t number, long milliseconds) {
    struct timespec until = fuse_notice_in_ms(milliseconds);
    while (!is_done(mount, lane, number) && pthread_cond_timedwait(&mount->notice_done, &mount->notice_lock, &until) != ETIMEDOUT) {}
}

void amfs_fuse_await_invalidated(struct amfs_fuse *mount, uint64_t number) {
    const struct fuse_lane *names = &mount->lanes[NAMES], *lane = &mount->lanes[number % LANES];
    number /= LANES;
    pthread_mutex_lock(&mount->notice_lock);
    await(mount, lane, number, lane != names ? PAGES_MS : has_epochs(mount) ? PATIENCE_MS : LIFE_NS / 1000000);
    if (lane == names && has_epochs(mount) && !is_done(mount, names, number)) {
        struct notice *epoch = make(mount, (struct notice){.code = NOTIFY_EPOCH}, NULL);
        if (epoch != NULL) append(mount, INODES, epoch);
        await(mount, names, number, PAGES_MS);
    }
    pthread_mutex_unlock(&mount->notice_lock);
}

/* ── mounts of one node tell each other ── */

static void others(struct amfs_fuse *mount, uint32_t code, bool data, uint64_t ino, const char *name, size_t length) {
    struct node *node = mount->node;
    if (atomic_load_explicit(&node->mount_count, memory_order_relaxed) < 2)
        return; /* the usual case; a mount that comes now keeps nothing yet */
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *other = node->mounts; other != NULL; other = other->next) {
        if (other == mount) continue;
        if (code == NOTIFY_INVAL_INODE) amfs_fuse_invalidate_inode(other, ino, data);
        else fuse_notice_add(other, (struct notice){.code = code, .ino = ino, .length = length}, name);
    }
    pthread_mutex_unlock(&node->mounts_lock);
}

/* At once, and attributes only: nothing that could be waited for. */
void fuse_notify_editions(struct amfs_fuse *mount, uint64_t ino) {
    struct notice notice = {.ino = ino, .code = NOTIFY_INVAL_INODE};
    unsigned last = mount->socket ? 0 : fuse_inode_last_edition(mount, ino);
    for (unsigned edition = 0; last > 0 && edition <= last; edition++) tell_kernel(mount, mount->fd, &notice, edition);
}

void fuse_notify_others(struct amfs_fuse *mount, uint64_t ino, bool data) { others(mount, NOTIFY_INVAL_INODE, data, ino, NULL, 0); }

void fuse_notify_others_entry(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length) {
    others(mount, NOTIFY_INVAL_ENTRY, false, dir, name, length);
}
