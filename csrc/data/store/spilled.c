/* Parts that were spilled (store/spill.c): the links that stand for them, and when there is too much in memory. */
#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    AHEAD_BYTES = 8 << 20, /* asked of the disk when a part is opened; the kernel's read-ahead goes on from there */
    UNLINK_BYTES = 64 << 20, /* a larger file is deleted by a worker: a disk may take long for that */
    VAIN_MS = 1000, /* when nothing could be spilled nobody is asked to for so long */
};

int fsio_set_spill(struct fsio *io, const char *directory) {
    free(io->store->spill);
    io->store->spill = strdup(directory);
    return io->store->spill == NULL ? ENOMEM : 0;
}

void fsio_spill_above(struct fsio *io, uint64_t mark, uint64_t most) {
    unlinkat(io->store->root_fd, "spill", 0);
    bool leads = io->store->spill != NULL && symlinkat(io->store->spill, io->store->root_fd, "spill") == 0;
    io->store->spill_above = io->store->limit == 0 || !leads ? 0 : mark;
    io->store->spill_most = most;
}

bool fsio_spills(const struct fsio *io) { return io->store->spill != NULL && io->store->spill_above != 0; }

uint64_t fsio_spilled(struct fsio *io) {
    int64_t bytes = atomic_load(&io->store->spilled);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

void fsio_spill_lock(struct fsio *io) {
    if (fsio_spills(io)) pthread_mutex_lock(&io->store->spill_lock);
}

void fsio_spill_unlock(struct fsio *io) {
    if (fsio_spills(io)) pthread_mutex_unlock(&io->store->spill_lock);
}

void fsio_pressed(struct fsio *io, uint64_t used) {
    if (!fsio_spills(io) || used <= io->store->spill_above || now_ms() < atomic_load(&io->store->press_vain_until_ms)) return;
    if (!atomic_exchange(&io->store->pressed, true)) fsio_tell(io, FSIO_EVENT_FULL, 0, 0, used - io->store->spill_above, 0);
}

void fsio_press_ended(struct fsio *io, uint64_t freed) {
    if (freed == 0) atomic_store(&io->store->press_vain_until_ms, now_ms() + VAIN_MS);
    atomic_store(&io->store->pressed, false);
}

/* ── files in the spill directory ── */

struct removal {
    struct fsio *io;
    char name[FSIO_TARGET_BYTES];
};

static void remove_one(void *context) {
    struct removal *removal = context;
    unlinkat(removal->io->store->root_fd, removal->name, 0);
    free(removal);
}

bool fsio_spilled_to(struct fsio *io, const char *name, char *target) {
    char link[FSIO_TARGET_BYTES + 3];
    ssize_t length = readlinkat(io->store->root_fd, name, link, sizeof link - 1);
    if (length < 3) return false;
    link[length] = '\0';
    memcpy(target, link + 3, (size_t)length - 2); /* as seen from the root */
    return true;
}

void fsio_spilled_drop(struct fsio *io, const char *target) {
    struct stat found;
    if (fstatat(io->store->root_fd, target, &found, AT_SYMLINK_NOFOLLOW) != 0) return;
    atomic_fetch_sub(&io->store->spilled, (int64_t)found.st_size);
    struct removal *removal = found.st_size > UNLINK_BYTES ? malloc(sizeof *removal) : NULL;
    if (removal != NULL) {
        removal->io = io;
        snprintf(removal->name, sizeof removal->name, "%s", target);
        if (fsio_later(io, remove_one, removal) == 0) return;
        free(removal);
    }
    unlinkat(io->store->root_fd, target, 0);
}

int fsio_spilled_open(struct fsio *io, const char *name) {
    char target[FSIO_TARGET_BYTES];
    if (!fsio_spilled_to(io, name, target)) return -errno;
    int fd = openat(io->store->root_fd, target, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return -errno;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    (void)posix_fadvise(fd, 0, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    return fd;
}
