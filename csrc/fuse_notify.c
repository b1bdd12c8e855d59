/* What the kernel must forget. Telling it takes the lock of a directory, which a process may hold that waits for our answer: so a thread of its
 * own does it, later if it is seen that somebody waits there, and whoever asked for it waits no longer than NOTIFY_PATIENCE_MS from when that
 * thread could first tell it (on a busy machine it may not run for a while: that is no reason to go on without). The thread must not be caught waiting
 * when this process is killed: nobody could take it away then but amfs umount --force. */
#include "fuse_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    SWEEP_MS = 125,
    LATER_MS = 2,
    LOOK_MS = 10, /* whether it has been tried for long enough; that it is done is told */
    NOTIFY_LEAVE = 1 << 16, /* not for the kernel: close what no open stands for */
};

static void tell_kernel(struct amfs_fuse *mount, const struct notice *notice, unsigned alias) {
    uint64_t id = node_id(notice->ino, alias);
    struct wire_inval_inode inode = {.ino = id, .offset = notice->data ? 0 : -1};
    struct wire_inval_entry entry = {.dir = id, .length = (uint32_t)notice->length};
    struct wire_out header = {.error = (int32_t)notice->code};
    struct iovec parts[3] = {{&header, sizeof header}, {&inode, sizeof inode}, {(void *)(uintptr_t)notice->name, 0}};
    int count = 2;
    if (notice->code == NOTIFY_INVAL_ENTRY) {
        /* Looked up again where it is, what is in use stays what it is. But a directory that has gone from here must really go. */
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
    while (writev(mount->fd, parts, count) < 0 && errno == EINTR) {} /* ENOENT: it kept nothing of that */
}

static bool may_tell(struct amfs_fuse *mount, const struct notice *notice) {
    if (notice->code == NOTIFY_INVAL_ENTRY) return !slow_busy(mount, notice->ino);
    return notice->code != NOTIFY_INVAL_INODE || known_telling(mount, notice->ino);
}

/* The first that can be told without waiting for the poll loop, taken out. With the lock held. */
static struct notice *next_notice(struct amfs_fuse *mount) {
    struct notice **at = &mount->notices, *notice;
    while ((notice = *at) != NULL) {
        bool now = may_tell(mount, notice);
        if (notice->tried_ns == 0 && (now || notice->code == NOTIFY_INVAL_ENTRY)) notice->tried_ns = exact_ns(); /* what must settle first always does */
        if (now) break;
        at = &notice->next;
    }
    if (notice == NULL) return NULL;
    *at = notice->next;
    if (mount->notices_tail == &notice->next) mount->notices_tail = at;
    return notice;
}

static void wait_for(struct amfs_fuse *mount, pthread_cond_t *change, long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(change, &mount->notice_lock, &until);
}

static void *notify(void *argument) {
    struct amfs_fuse *mount = argument;
    pthread_mutex_lock(&mount->notice_lock);
    while (!atomic_load(&mount->stopping)) {
        struct notice *notice = mount->telling = next_notice(mount);
        if (notice != NULL) {
            pthread_mutex_unlock(&mount->notice_lock);
            if (notice->code == NOTIFY_LEAVE) files_forget(mount, notice->ino);
            else
                for (unsigned alias = 0, last = alias_last(mount, notice->ino); alias <= last; alias++) tell_kernel(mount, notice, alias);
            if (notice->code == NOTIFY_INVAL_INODE) known_told_all(mount, notice->ino);
            pthread_mutex_lock(&mount->notice_lock);
            mount->telling = NULL;
            free(notice);
            pthread_cond_broadcast(&mount->notice_done);
        } else if (mount->notices != NULL) {
            wait_for(mount, &mount->notice_wake, LATER_MS);
        } else if (mount->options.no_open) { /* nobody says when files are closed here: look */
            wait_for(mount, &mount->notice_wake, SWEEP_MS);
            if (mount->notices == NULL && atomic_load(&mount->node->writing) > 0) {
                pthread_mutex_unlock(&mount->notice_lock);
                files_sweep(mount);
                pthread_mutex_lock(&mount->notice_lock);
            }
        } else {
            pthread_cond_wait(&mount->notice_wake, &mount->notice_lock);
        }
    }
    pthread_mutex_unlock(&mount->notice_lock);
    return NULL;
}

int notify_begin(struct amfs_fuse *mount) {
    int error = new_thread(&mount->notifier, notify, mount);
    mount->notifier_runs = error == 0;
    return error;
}

void notify_end(struct amfs_fuse *mount) {
    if (!mount->notifier_runs) return;
    pthread_mutex_lock(&mount->notice_lock);
    pthread_cond_broadcast(&mount->notice_wake);
    pthread_mutex_unlock(&mount->notice_lock);
    pthread_join(mount->notifier, NULL);
    mount->notifier_runs = false;
    mount->notices_tail = &mount->notices;
    while (mount->notices != NULL) {
        struct notice *notice = mount->notices;
        mount->notices = notice->next;
        free(notice);
    }
}

static uint64_t add(struct amfs_fuse *mount, uint32_t code, bool data, uint64_t ino, const char *name, size_t length) {
    if (!atomic_load(&mount->started) || atomic_load(&mount->ended) || atomic_load(&mount->stopping) || mount->socket) return 0;
    struct notice *notice = malloc(sizeof *notice + length + 1);
    if (notice == NULL) return 0;
    *notice = (struct notice){.ino = ino, .code = code, .data = data, .length = length, .born_ns = exact_ns()};
    if (length > 0) memcpy(notice->name, name, length);
    notice->name[length] = '\0';
    pthread_mutex_lock(&mount->notice_lock);
    uint64_t number = notice->number = ++mount->last_number;
    *mount->notices_tail = notice;
    mount->notices_tail = &notice->next;
    pthread_cond_signal(&mount->notice_wake);
    pthread_mutex_unlock(&mount->notice_lock);
    return number;
}

/* What the kernel does not remember it need not forget; but it may still have to be told of a change before. */
static uint64_t invalidate_inode(struct amfs_fuse *mount, uint64_t ino, bool data) {
    if (known_to_tell(mount, ino, data)) return add(mount, NOTIFY_INVAL_INODE, data, ino, NULL, 0);
    pthread_mutex_lock(&mount->notice_lock);
    uint64_t number = mount->last_number;
    pthread_mutex_unlock(&mount->notice_lock);
    return number;
}

uint64_t amfs_fuse_invalidate_inode(struct amfs_fuse *mount, uint64_t ino, bool data) {
    suid_changed(mount->node);
    return invalidate_inode(mount, ino, data);
}

uint64_t amfs_fuse_stale(struct amfs_fuse *mount, uint64_t ino) {
    if (atomic_load(&mount->no_open) && files_implicit(mount, ino)) add(mount, NOTIFY_LEAVE, false, ino, NULL, 0);
    return amfs_fuse_invalidate_inode(mount, ino, true);
}

uint64_t amfs_fuse_invalidate_entry(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length) {
    if (dir == 0) return notify_epoch(mount);
    meta_stale(mount->node->meta, meta_name_mark(dir, name, length));
    return length > META_NAME_MAX ? 0 : add(mount, NOTIFY_INVAL_ENTRY, false, dir, name, length);
}

uint64_t notify_epoch(struct amfs_fuse *mount) {
    return mount->minor >= WIRE_MINOR_EPOCH ? add(mount, NOTIFY_EPOCH, false, 0, NULL, 0) : 0;
}

static bool tried_enough(const struct notice *notice) {
    int64_t now = exact_ns();
    if (notice->tried_ns != 0 && now - notice->tried_ns > (int64_t)NOTIFY_PATIENCE_MS * 1000000) return true;
    return now - notice->born_ns > (int64_t)NOTIFY_LIMIT_MS * 1000000;
}

/* Up to which number all is done, or has been tried for long enough. With the lock held. */
static uint64_t done_number(const struct amfs_fuse *mount) {
    const struct notice *oldest = mount->notices;
    if (mount->telling != NULL && (oldest == NULL || mount->telling->number < oldest->number)) oldest = mount->telling;
    if (oldest == NULL || atomic_load(&mount->ended) || atomic_load(&mount->stopping)) return mount->last_number;
    return tried_enough(oldest) ? mount->last_number : oldest->number - 1;
}

uint64_t amfs_fuse_invalidated(struct amfs_fuse *mount) {
    pthread_mutex_lock(&mount->notice_lock);
    uint64_t number = done_number(mount);
    pthread_mutex_unlock(&mount->notice_lock);
    return number;
}

void amfs_fuse_await_invalidated(struct amfs_fuse *mount, uint64_t number) {
    pthread_mutex_lock(&mount->notice_lock);
    while (done_number(mount) < number) wait_for(mount, &mount->notice_done, LOOK_MS);
    pthread_mutex_unlock(&mount->notice_lock);
}

/* ── mounts of one node tell each other ── */

static void others(struct amfs_fuse *mount, uint32_t code, bool data, uint64_t ino, const char *name, size_t length) {
    struct node *node = mount->node;
    if (atomic_load_explicit(&node->mount_count, memory_order_relaxed) < 2) return; /* the usual case; a mount that comes now keeps nothing yet */
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *other = node->mounts; other != NULL; other = other->next) {
        if (other == mount) continue;
        if (code == NOTIFY_INVAL_INODE) invalidate_inode(other, ino, data);
        else add(other, code, data, ino, name, length);
    }
    pthread_mutex_unlock(&node->mounts_lock);
}

/* At once: a directory has no pages that somebody could wait for. */
void notify_aliases(struct amfs_fuse *mount, uint64_t dir) {
    struct notice notice = {.ino = dir, .code = NOTIFY_INVAL_INODE};
    unsigned last = atomic_load_explicit(&mount->aliased, memory_order_relaxed) && !mount->socket ? alias_last(mount, dir) : 0;
    for (unsigned alias = 0; last > 0 && alias <= last; alias++) tell_kernel(mount, &notice, alias);
}

void notify_others(struct amfs_fuse *mount, uint64_t ino, bool data) { others(mount, NOTIFY_INVAL_INODE, data, ino, NULL, 0); }

void notify_others_names(struct amfs_fuse *mount) {
    if (mount->minor >= WIRE_MINOR_EPOCH) others(mount, NOTIFY_EPOCH, false, 0, NULL, 0);
}

void notify_others_entry(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length) { others(mount, NOTIFY_INVAL_ENTRY, false, dir, name, length); }
