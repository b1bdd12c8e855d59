/* The threads that tell the kernel what it must forget (fuse_notify.c), and close for it what no open stands for. Stands on the notices and the open files. */
#include "fuse_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { SWEEP_MS = 125 };

/* A device of the same mount, in a table of descriptors of this thread's own. The kernel makes it wait: for the lock of a directory, for pages. A process that
 * has those may wait for an answer of this one. When the process is killed this thread goes on waiting, and the kernel closes no descriptor
 * that it could use. So it shares none with the threads that answer: their device is closed, and with it end the requests that they had taken. */
static int own_device(int shared) {
    uint32_t of = (uint32_t)shared;
    if (own_descriptors(shared, shared) != 0) return shared;
    int own = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (own >= 0 && ioctl(own, WIRE_DEVICE_CLONE, &of) == 0) {
        close(shared);
        return own;
    }
    if (own >= 0) close(own); /* mounted in another user namespace */
    return shared;
}

static bool may_tell(struct amfs_fuse *mount, const struct notice *notice) {
    if (notice->not_before_ns != 0 && fuse_exact_ns() < notice->not_before_ns) return false;
    return notice->code != NOTIFY_INVAL_ENTRY || !fuse_slow_busy(mount, notice->ino);
}

/* The first that can be told now, taken out of the queue and put among those under way. With the lock held. `leaves`: of which the leaver has to look first. */
static struct notice *next_notice(struct amfs_fuse *mount, struct fuse_lane *lane, bool leaves) {
    struct notice **at = &lane->queue, *notice;
    while ((notice = *at) != NULL && (leaves != (notice->leaves && !notice->looked) || !may_tell(mount, notice))) at = &notice->next;
    if (notice == NULL) return NULL;
    *at = notice->next;
    if (lane->tail == &notice->next) lane->tail = at;
    notice->next = lane->telling;
    lane->telling = notice;
    return notice;
}

static void *tell(void *argument) {
    struct teller *teller = argument;
    struct amfs_fuse *mount = teller->mount;
    struct fuse_lane *lane = teller->lane;
    teller->fd = mount->socket ? mount->fd : own_device(mount->fd);
    pthread_mutex_lock(&mount->notice_lock);
    while (!atomic_load(&mount->stopping)) {
        struct notice *notice = next_notice(mount, lane, false);
        if (notice != NULL) {
            pthread_mutex_unlock(&mount->notice_lock);
            bool done = fuse_notice_carry_out(mount, teller->fd, notice);
            pthread_mutex_lock(&mount->notice_lock);
            fuse_notice_carried_out(mount, lane, notice, done);
        } else if (lane->queue != NULL) {
            struct timespec until = fuse_notice_in_ms(LATER_MS);
            pthread_cond_timedwait(&lane->wake, &mount->notice_lock, &until);
        } else {
            pthread_cond_wait(&lane->wake, &mount->notice_lock);
        }
    }
    pthread_mutex_unlock(&mount->notice_lock);
    if (teller->fd != mount->fd) close(teller->fd);
    return NULL;
}

/* Reads under way go on in the handles of before; those stay until the next look. */
static void look(struct amfs_fuse *mount, struct fuse_lane *lane, struct notice *notice) {
    pthread_mutex_unlock(&mount->notice_lock);
    notice->stays = !fuse_files_forget(mount, notice->ino);
    pthread_mutex_lock(&mount->notice_lock);
    notice->looked = true;
    fuse_notice_put_back(mount, lane, notice);
}

/* The leaver uses the descriptors of the process, and so does not tell the kernel itself. */
static void *leave(void *argument) {
    struct teller *teller = argument;
    struct amfs_fuse *mount = teller->mount;
    struct fuse_lane *lane = teller->lane;
    pthread_mutex_lock(&mount->notice_lock);
    while (!atomic_load(&mount->stopping)) {
        /* Nobody says when files are closed there, or when mappings go: look. */
        bool sweeps = mount->options.no_open || atomic_load(&mount->mapped) > 0;
        struct notice *notice = next_notice(mount, lane, true);
        if (notice != NULL) {
            look(mount, lane, notice);
        } else if (lane->queue != NULL || sweeps) {
            struct timespec until = fuse_notice_in_ms(lane->queue != NULL || mount->newly_mapped ? LATER_MS : SWEEP_MS);
            mount->newly_mapped = false;
            pthread_cond_timedwait(&mount->leaver_wake, &mount->notice_lock, &until);
            if (sweeps && lane->queue == NULL && atomic_load(&mount->node->writing) > 0) {
                pthread_mutex_unlock(&mount->notice_lock);
                fuse_files_sweep(mount);
                pthread_mutex_lock(&mount->notice_lock);
            }
        } else {
            pthread_cond_wait(&mount->leaver_wake, &mount->notice_lock);
        }
    }
    pthread_mutex_unlock(&mount->notice_lock);
    return NULL;
}

int fuse_notify_begin(struct amfs_fuse *mount) {
    int error = 0;
    for (int i = 0; i < NOTIFIERS && error == 0; i++) { /* one for names, the others for inodes, the leaver with them */
        struct teller *teller = &mount->tellers[i];
        *teller = (struct teller){.mount = mount, .lane = &mount->lanes[i == NAMES ? NAMES : INODES]};
        error = new_thread(&teller->thread, i == LEAVER ? leave : tell, teller);
        teller->runs = error == 0;
    }
    return error;
}

void fuse_notify_end(struct amfs_fuse *mount) {
    pthread_mutex_lock(&mount->notice_lock);
    for (int i = 0; i < LANES; i++) pthread_cond_broadcast(&mount->lanes[i].wake);
    pthread_cond_signal(&mount->leaver_wake);
    pthread_cond_broadcast(&mount->notice_done);
    pthread_mutex_unlock(&mount->notice_lock);
    for (int i = 0; i < NOTIFIERS; i++) {
        if (mount->tellers[i].runs) pthread_join(mount->tellers[i].thread, NULL);
        mount->tellers[i].runs = false;
    }
    pthread_mutex_lock(&mount->notice_lock);
    for (int i = 0; i < LANES; i++) {
        struct fuse_lane *lane = &mount->lanes[i];
        lane->tail = &lane->queue;
        while (lane->queue != NULL) {
            struct notice *notice = lane->queue;
            lane->queue = notice->next;
            free(notice);
        }
    }
    pthread_mutex_unlock(&mount->notice_lock);
}

/* All that it may use without asking: nobody knows any more of what it would be told. */
static uint64_t stale_all(struct amfs_fuse *mount) {
    uint64_t *inos, last = 0;
    size_t count = fuse_inodes_remembered(mount, &inos);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = amfs_fuse_stale(mount, inos[i]);
        if (number != 0) last = number;
    }
    free(inos);
    return last;
}

uint64_t amfs_fuse_stale(struct amfs_fuse *mount, uint64_t ino) {
    if (ino == 0) return stale_all(mount);
    bool may_leave = atomic_load(&mount->no_open) || atomic_load(&mount->mapped) > 0;
    if (!may_leave || !fuse_files_implicit(mount, ino)) return amfs_fuse_invalidate_inode(mount, ino, true);
    fuse_inode_changed(mount, ino, true);
    return fuse_notice_add(mount, (struct notice){.code = NOTIFY_INVAL_INODE, .ino = ino, .data = true, .leaves = true}, NULL);
}
