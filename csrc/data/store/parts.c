/* The parts of this node: opening them, new ones, which stripes there are. */
#include "store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ── single parts ── */

static int open_part(struct fsio *io, uint64_t ino, int64_t index, enum part_use use, bool *spilled) {
    char name[FSIO_NAME_BYTES];
    fsio_part_name(ino, index, name);
    for (int tries = 0; tries < 16; tries++) {
        int fd = openat(io->store->root_fd, name, (use == PART_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW);
        *spilled = fd < 0 && errno == ELOOP;
        if (*spilled) {
            fd = fsio_spilled_open(io, name);
            if (fd == -ENOENT || fd == -EINVAL) continue; /* it has come back, or was deleted; else the disk has lost it */
            return fd;
        }
        if (fd >= 0) return fd;
        if (errno != ENOENT || use != PART_MAKE) return -errno;
        if (index >= 0) { /* known before it is there: a deletion must find it */
            int error = fsio_note_stripe(io, ino, (uint64_t)index);
            if (error != 0) return -error;
        }
        fd = openat(io->store->root_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0) {
            atomic_fetch_add(&io->store->parts, 1);
            return fd;
        }
        if (errno != EEXIST) return -errno;
    }
    return *spilled ? -EIO : -EAGAIN;
}

int fsio_part_open(struct fsio *io, uint64_t ino, int64_t index, enum part_use use) {
    bool spilled;
    return open_part(io, ino, index, use, &spilled);
}

int fsio_whole_open(struct fsio *io, uint64_t ino, enum part_use use, bool *spilled) {
    return open_part(io, ino, FSIO_WHOLE, use, spilled);
}

int fsio_part_stat(struct fsio *io, uint64_t ino, int64_t index, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime,
                   int64_t *ctime) {
    char name[FSIO_NAME_BYTES];
    struct stat found;
    struct data_stat stat;
    fsio_part_name(ino, index, name);
    if (fstatat(io->store->root_fd, name, &found, 0) != 0) return errno;
    fsio_to_stat(&found, &stat);
    *size = stat.size;
    *blocks = stat.blocks;
    *atime = stat.atime;
    *mtime = stat.mtime;
    *ctime = stat.ctime;
    return 0;
}

void fsio_fresh_name(struct fsio *io, uint64_t ino, char *to) { fsio_aside_name(ino, atomic_fetch_add(&io->store->fresh_count, 1), to); }

struct nearest {
    uint64_t ino, from, found;
};

static bool come_near(void *context, int directory, const char *name, uint64_t ino, int64_t index) {
    struct nearest *nearest = context;
    (void)directory;
    (void)name;
    uint64_t here = (uint64_t)index;
    if (ino == nearest->ino && index >= 0 && here >= nearest->from && here < nearest->found) nearest->found = here;
    return true;
}

uint64_t fsio_stripes_next(struct fsio *io, uint64_t ino, uint64_t from) {
    uint64_t end = fsio_stripes_end(io, ino), probed = end > from && end - from > FSIO_PROBE_MAX ? from + FSIO_PROBE_MAX : end;
    char name[FSIO_NAME_BYTES];
    for (uint64_t i = from; i < probed; i++) {
        fsio_part_name(ino, (int64_t)i, name);
        if (faccessat(io->store->root_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return i;
    }
    struct nearest nearest = {ino, probed, UINT64_MAX};
    if (probed < end) fsio_walk_directory(io, (unsigned)(ino & 0xff), come_near, &nearest);
    return nearest.found;
}

static void sum_one(struct data_stat *sum, int directory, const char *name) {
    struct data_stat one;
    struct stat found;
    if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0) return;
    fsio_to_stat(&found, &one);
    sum->size++;
    sum->blocks += one.blocks;
    if (sum->atime < one.atime) sum->atime = one.atime;
    if (sum->mtime < one.mtime) sum->mtime = one.mtime;
    if (sum->ctime < one.ctime) sum->ctime = one.ctime;
}

struct summing {
    struct fsio *io;
    uint64_t ino;
    struct data_stat *sum;
    bool copied;
};

/* Each stripe counts where it lies first. */
static bool counts(const struct summing *summing, uint64_t index) {
    bool moving;
    return !summing->copied || fsio_stripe_ours(summing->io, summing->ino, index, &moving);
}

static bool sum_if(void *context, int directory, const char *name, uint64_t ino, int64_t index) {
    struct summing *summing = context;
    if (ino == summing->ino && index >= 0 && counts(summing, (uint64_t)index)) sum_one(summing->sum, directory, name);
    return true;
}

int fsio_stripes_sum(struct fsio *io, uint64_t ino, struct data_stat *sum) {
    uint64_t end = fsio_stripes_end(io, ino);
    char name[FSIO_NAME_BYTES];
    struct summing summing = {io, ino, sum, fsio_is_copied(io, ino)};
    if (end > FSIO_PROBE_MAX) fsio_walk_directory(io, (unsigned)(ino & 0xff), sum_if, &summing);
    for (uint64_t i = 0; end <= FSIO_PROBE_MAX && i < end; i++) {
        fsio_part_name(ino, (int64_t)i, name);
        if (counts(&summing, i)) sum_one(sum, io->store->root_fd, name);
    }
    return 0;
}

int fsio_fresh_open(struct fsio *io, uint64_t ino, struct fsio_fresh *fresh) {
    *fresh = (struct fsio_fresh){.io = io, .ino = ino};
    fsio_fresh_name(io, ino, fresh->name);
    fresh->fd = openat(io->store->root_fd, fresh->name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fresh->fd >= 0 ? 0 : errno;
}

/* ── life ── */

/* Copies that a process before us did not end. */
static void sweep_fresh(struct fsio *io) {
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "%02x", i);
        int fd = openat(io->store->root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        if (directory == NULL && fd >= 0) close(fd);
        if (directory == NULL) continue;
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
            if (entry->d_name[0] == '.' && strlen(entry->d_name) > 2) unlinkat(fd, entry->d_name, 0);
        closedir(directory);
    }
}

bool fsio_store_make(struct fsio *io, uint64_t limit, bool checks) {
    struct fsio_store *store = io->store = calloc(1, sizeof *store);
    if (store == NULL) return false;
    store->limit = limit;
    store->checks = checks;
    store->root_fd = store->store_fd = -1;
    store->digests = digests_space();
    store->stripe_digests = digests_space();
    pthread_mutex_init(&store->rescan_lock, NULL);
    pthread_mutex_init(&store->stripes_lock, NULL);
    pthread_mutex_init(&store->spill_lock, NULL);
    pthread_mutex_init(&store->room_lock, NULL);
    new_monotonic_cond(&store->room_changed);
    return true;
}

int fsio_store_open(struct fsio *io, const char *root, const char *of_runs, char *error, size_t error_size) {
    struct stat here, above;
    if (of_runs != NULL && (io->store->store_fd = open(of_runs, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
        snprintf(error, error_size, "cannot open %s: %s", of_runs, strerror(errno));
        return -1;
    }
    io->store->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (io->store->root_fd < 0 || fstat(io->store->root_fd, &here) != 0 || fstatat(io->store->root_fd, "../..", &above, 0) != 0) {
        snprintf(error, error_size, "cannot open the store's directory %s: %s", root, strerror(errno));
        return -1;
    }
    io->store->own_mount = here.st_dev != above.st_dev;
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "%02x", i);
        if (mkdirat(io->store->root_fd, name, 0700) != 0 && errno != EEXIST) {
            snprintf(error, error_size, "cannot make a directory in %s: %s", root, strerror(errno));
            return -1;
        }
    }
    sweep_fresh(io);
    fsio_count_begin(io);
    return 0;
}

void fsio_store_free(struct fsio *io) {
    struct fsio_store *store = io->store;
    if (store == NULL) return;
    if (store->root_fd >= 0) close(store->root_fd);
    if (store->store_fd >= 0) close(store->store_fd);
    free(store->stripes.slots);
    free(store->spill);
    pthread_cond_destroy(&store->room_changed);
    pthread_mutex_destroy(&store->room_lock);
    pthread_mutex_destroy(&store->spill_lock);
    pthread_mutex_destroy(&store->stripes_lock);
    pthread_mutex_destroy(&store->rescan_lock);
    free(store);
}

int fsio_root_fd(const struct fsio *io) { return io->store->root_fd; }
