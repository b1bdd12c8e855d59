/* The parts of this node: names, deletion, listing. */
#include "fsio_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PROBE_MAX = 4096, /* stripes of a file that are looked for one by one; with more its directory is read */
    AT_ONCE_BYTES = 64
        << 20, /* within a second, so much is deleted while the caller waits, who may be the poll loop: the kernel frees some GB a second. */
    SMALL_BYTES = 64 << 10, /* Of what is no larger, the names are all the work. */
};

void fsio_part_name(uint64_t ino, int64_t index, char *to) {
    unsigned last = (unsigned)(ino & 0xff);
    if (index < 0) snprintf(to, FSIO_NAME_BYTES, "%02x/%016llx", last, (unsigned long long)ino);
    else snprintf(to, FSIO_NAME_BYTES, "%02x/%016llx.%lld", last, (unsigned long long)ino, (long long)index);
}

int fsio_part_path(const struct fsio *io, uint64_t ino, int64_t index, char *to, size_t room) {
    char name[FSIO_NAME_BYTES];
    (void)io;
    fsio_part_name(ino, index, name);
    if (strlen(name) >= room) return ENAMETOOLONG;
    memcpy(to, name, strlen(name) + 1);
    return 0;
}

/* ── which inodes have stripes here ── with stripes_lock held */

static struct fsio_stripes_slot *find_slot(const struct fsio_stripes *stripes, uint64_t ino) {
    size_t at = (size_t)(ino * 0x9E3779B97F4A7C15u >> 40) & (stripes->room - 1);
    while (stripes->slots[at].ino != 0 && stripes->slots[at].ino != ino) at = (at + 1) & (stripes->room - 1);
    return &stripes->slots[at];
}

static int grow_stripes(struct fsio_stripes *stripes) {
    struct fsio_stripes larger = {.room = stripes->room == 0 ? 64 : stripes->room * 2, .count = stripes->count};
    larger.slots = calloc(larger.room, sizeof *larger.slots);
    if (larger.slots == NULL) return ENOMEM;
    for (size_t i = 0; i < stripes->room; i++)
        if (stripes->slots[i].ino != 0) *find_slot(&larger, stripes->slots[i].ino) = stripes->slots[i];
    free(stripes->slots);
    *stripes = larger;
    return 0;
}

int fsio_note_stripe(struct fsio *io, uint64_t ino, uint64_t index) {
    pthread_mutex_lock(&io->stripes_lock);
    int error = (io->stripes.count + 1) * 4 > io->stripes.room * 3 ? grow_stripes(&io->stripes) : 0;
    if (error == 0) {
        struct fsio_stripes_slot *slot = find_slot(&io->stripes, ino);
        if (slot->ino == 0) io->stripes.count++;
        slot->ino = ino;
        if (slot->end < index + 1) slot->end = index + 1;
    }
    pthread_mutex_unlock(&io->stripes_lock);
    return error;
}

int fsio_mark_copied(struct fsio *io, uint64_t ino, uint64_t index) {
    int error = fsio_note_stripe(io, ino, index);
    pthread_mutex_lock(&io->stripes_lock);
    if (error == 0) find_slot(&io->stripes, ino)->copied = true;
    pthread_mutex_unlock(&io->stripes_lock);
    return error;
}

bool fsio_is_copied(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->stripes_lock);
    bool copied = io->stripes.room > 0 && find_slot(&io->stripes, ino)->copied;
    pthread_mutex_unlock(&io->stripes_lock);
    return copied;
}

uint64_t fsio_stripes_end(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->stripes_lock);
    uint64_t end = io->stripes.room == 0 ? 0 : find_slot(&io->stripes, ino)->end;
    pthread_mutex_unlock(&io->stripes_lock);
    return end;
}

/* No stripe of it from index `end` on is here any more. */
static void cut_stripes(struct fsio *io, uint64_t ino, uint64_t end) {
    pthread_mutex_lock(&io->stripes_lock);
    struct fsio_stripes *all = &io->stripes;
    struct fsio_stripes_slot *slot = all->room == 0 ? NULL : find_slot(all, ino);
    if (slot != NULL && slot->ino != 0 && slot->end > end) slot->end = end;
    if (slot != NULL && slot->ino != 0 && slot->end == 0) {
        *slot = (struct fsio_stripes_slot){0};
        all->count--;
        for (size_t at = (size_t)(slot - all->slots + 1) & (all->room - 1); all->slots[at].ino != 0; at = (at + 1) & (all->room - 1)) {
            struct fsio_stripes_slot moved = all->slots[at]; /* close the gap: what stands after it may have been displaced by it */
            all->slots[at] = (struct fsio_stripes_slot){0};
            *find_slot(all, moved.ino) = moved;
        }
    }
    pthread_mutex_unlock(&io->stripes_lock);
}

/* ── listing ── */

/* What a name in one of the directories stands for; false: nothing of ours. */
static bool read_name(const char *name, uint64_t *ino, int64_t *index) {
    char *end;
    for (int i = 0; i < 16; i++)
        if (strchr("0123456789abcdef", name[i]) == NULL || name[i] == '\0') return false;
    char digits[17];
    memcpy(digits, name, 16);
    digits[16] = '\0';
    *ino = strtoull(digits, NULL, 16);
    *index = FSIO_WHOLE;
    if (name[16] == '\0') return true;
    if (name[16] != '.' || name[17] < '0' || name[17] > '9') return false;
    *index = strtoll(name + 17, &end, 10);
    return *end == '\0';
}

/* Call `visit` for each part of one of the 256 directories. False: it said so. */
static bool walk_directory(struct fsio *io, unsigned number, fsio_visitor visit, void *context) {
    char name[8];
    uint64_t ino;
    int64_t index;
    bool go_on = true;
    snprintf(name, sizeof name, "%02x", number);
    int fd = openat(io->root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        if (fd >= 0) close(fd);
        return true;
    }
    for (struct dirent *entry; go_on && (entry = readdir(directory)) != NULL;)
        if (read_name(entry->d_name, &ino, &index)) go_on = visit(context, fd, entry->d_name, ino, index);
    closedir(directory);
    return go_on;
}

void fsio_walk(struct fsio *io, fsio_visitor visit, void *context) {
    for (unsigned i = 0; i < 256; i++)
        if (!walk_directory(io, i, visit, context)) return;
}

struct listing {
    bool (*each)(void *context, uint64_t ino, int64_t index, uint64_t size, uint64_t blocks);
    void *context;
};

static bool list_one(void *context, int directory, const char *name, uint64_t ino, int64_t index) {
    struct listing *listing = context;
    struct stat found;
    if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0) return true; /* gone meanwhile */
    return listing->each(listing->context, ino, index, (uint64_t)found.st_size, (uint64_t)found.st_blocks);
}

int fsio_list_parts(struct fsio *io, bool (*each)(void *context, uint64_t ino, int64_t index, uint64_t size, uint64_t blocks),
                    void *context) {
    struct listing listing = {each, context};
    fsio_walk(io, list_one, &listing);
    return 0;
}

/* ── single parts ── */

static int open_part(struct fsio *io, uint64_t ino, int64_t index, enum part_use use, bool *spilled) {
    char name[FSIO_NAME_BYTES];
    fsio_part_name(ino, index, name);
    for (int tries = 0; tries < 16; tries++) {
        int fd = openat(io->root_fd, name, (use == PART_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW);
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
        fd = openat(io->root_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0) {
            atomic_fetch_add(&io->parts, 1);
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

void fsio_to_stat(const struct stat *found, struct data_stat *stat) {
    *stat = (struct data_stat){(uint64_t)found->st_size, (uint64_t)found->st_blocks, ns_of(found->st_atim), ns_of(found->st_mtim),
                               ns_of(found->st_ctim)};
}

int fsio_part_stat(struct fsio *io, uint64_t ino, int64_t index, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime,
                   int64_t *ctime) {
    char name[FSIO_NAME_BYTES];
    struct stat found;
    struct data_stat stat;
    fsio_part_name(ino, index, name);
    if (fstatat(io->root_fd, name, &found, 0) != 0) return errno;
    fsio_to_stat(&found, &stat);
    *size = stat.size;
    *blocks = stat.blocks;
    *atime = stat.atime;
    *mtime = stat.mtime;
    *ctime = stat.ctime;
    return 0;
}

/* A name that is no part's, for what is on its way. */
static void fresh_name(uint64_t ino, unsigned number, char *to) {
    snprintf(to, FSIO_NAME_BYTES, "%02x/.%016llx-%x", (unsigned)(ino & 0xff), (unsigned long long)ino, number);
}

void fsio_fresh_name(struct fsio *io, uint64_t ino, char *to) { fresh_name(ino, atomic_fetch_add(&io->fresh_count, 1), to); }

struct late_removal {
    struct fsio_job job;
    unsigned number;
};

static void remove_aside(struct fsio *io, struct fsio_job *job, bool stopped) {
    char aside[FSIO_NAME_BYTES];
    (void)stopped;
    fresh_name(job->ino, ((const struct late_removal *)(void *)job)->number, aside);
    unlinkat(io->root_fd, aside, 0);
    free(job);
    fsio_removing(io, -1);
}

/* Its name goes at once, its bytes by another thread: until they have gone, who finds no room waits for it. False: they have to go here. */
static bool remove_later(struct fsio *io, const char *name, uint64_t ino) {
    char aside[FSIO_NAME_BYTES];
    unsigned number = atomic_fetch_add(&io->fresh_count, 1);
    struct late_removal *removal = fsio_works(io) ? malloc(sizeof *removal) : NULL;
    fresh_name(ino, number, aside);
    if (removal == NULL || renameat(io->root_fd, name, io->root_fd, aside) != 0) {
        free(removal);
        return false;
    }
    *removal =
        (struct late_removal){.job = {.name = "the removal of the bytes of file", .ino = ino, .run = remove_aside}, .number = number};
    fsio_removing(io, 1);
    if (!fsio_enqueue(&io->workers, &removal->job)) remove_aside(io, &removal->job, true); /* stopped in between */
    return true;
}

static bool takes_long(struct fsio *io, uint64_t bytes) {
    int64_t now = now_ms();
    if (now - atomic_load(&io->removed_since_ms) > 1000) {
        atomic_store(&io->removed_since_ms, now);
        atomic_store(&io->removed, 0);
    }
    return atomic_fetch_add(&io->removed, bytes) + bytes > AT_ONCE_BYTES && bytes > SMALL_BYTES;
}

/* Remove a part's name; what it took is given back unless a file that is open goes on taking it. */
static int remove_part(struct fsio *io, const char *name, uint64_t ino, bool counted) {
    struct stat found;
    char target[FSIO_TARGET_BYTES];
    int error = 0;
    fsio_change_begins(io);
    fsio_spill_lock(io);
    bool there = fstatat(io->root_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    bool spilled = there && S_ISLNK(found.st_mode) && fsio_spilled_to(io, name, target);
    uint64_t bytes = there ? (uint64_t)found.st_blocks * 512 : 0;
    bool aside = there && takes_long(io, bytes) && remove_later(io, name, ino);
    if (!aside && unlinkat(io->root_fd, name, 0) != 0) error = errno;
    fsio_spill_unlock(io);
    if (error == 0 && spilled) fsio_spilled_drop(io, target);
    if (error == 0 && counted && there && !io->own_mount) fsio_account(io, -(int64_t)bytes);
    fsio_change_ends(io);
    if (error == 0) atomic_fetch_sub(&io->parts, 1);
    return error;
}

struct removal {
    struct fsio *io;
    uint64_t ino, from;
    int error;
};

static bool remove_one(void *context, int directory, const char *name, uint64_t ino, int64_t index) {
    struct removal *removal = context;
    char path[FSIO_NAME_BYTES];
    (void)directory;
    (void)name;
    if (ino != removal->ino || index < 0 || (uint64_t)index < removal->from) return true;
    fsio_part_name(ino, index, path);
    int error = remove_part(removal->io, path, ino, true);
    if (error != 0 && error != ENOENT) removal->error = error;
    return true;
}

int fsio_stripes_delete(struct fsio *io, uint64_t ino, uint64_t from) {
    uint64_t end = fsio_stripes_end(io, ino);
    struct removal removal = {.io = io, .ino = ino, .from = from};
    char name[FSIO_NAME_BYTES];
    if (end <= from) return 0;
    if (end - from > PROBE_MAX) walk_directory(io, (unsigned)(ino & 0xff), remove_one, &removal);
    for (uint64_t i = from; end - from <= PROBE_MAX && i < end; i++) {
        fsio_part_name(ino, (int64_t)i, name);
        int error = remove_part(io, name, ino, true);
        if (error != 0 && error != ENOENT) removal.error = error;
    }
    if (removal.error == 0) cut_stripes(io, ino, from);
    return removal.error;
}

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
    uint64_t end = fsio_stripes_end(io, ino), probed = end > from && end - from > PROBE_MAX ? from + PROBE_MAX : end;
    char name[FSIO_NAME_BYTES];
    for (uint64_t i = from; i < probed; i++) {
        fsio_part_name(ino, (int64_t)i, name);
        if (faccessat(io->root_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return i;
    }
    struct nearest nearest = {ino, probed, UINT64_MAX};
    if (probed < end) walk_directory(io, (unsigned)(ino & 0xff), come_near, &nearest);
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
    if (end > PROBE_MAX) walk_directory(io, (unsigned)(ino & 0xff), sum_if, &summing);
    for (uint64_t i = 0; end <= PROBE_MAX && i < end; i++) {
        fsio_part_name(ino, (int64_t)i, name);
        if (counts(&summing, i)) sum_one(sum, io->root_fd, name);
    }
    return 0;
}

int fsio_part_remove(struct fsio *io, uint64_t ino, int64_t index) {
    char name[FSIO_NAME_BYTES];
    if (index == FSIO_WHOLE) fsio_digest_forget(io, ino);
    fsio_part_name(ino, index, name);
    return remove_part(io, name, ino, true);
}

int fsio_part_drop(struct fsio *io, uint64_t ino, int64_t index) { return fsio_part_remove(io, ino, index); }

void fsio_whole_remove(struct fsio *io, uint64_t ino) {
    char name[FSIO_NAME_BYTES];
    fsio_digest_forget(io, ino);
    fsio_part_name(ino, FSIO_WHOLE, name);
    remove_part(io, name, ino, false);
}

int fsio_fresh_open(struct fsio *io, uint64_t ino, char *name) {
    fresh_name(ino, atomic_fetch_add(&io->fresh_count, 1), name);
    int fd = openat(io->root_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd >= 0 ? fd : -errno;
}

/* The file `from` takes the place of the part `name` in one step: a reader finds the old part or the new one, at any moment. */
static int replace_part(struct fsio *io, int directory, const char *from, const char *name) {
    struct stat before;
    char target[FSIO_TARGET_BYTES];
    fsio_spill_lock(io);
    bool there = fstatat(io->root_fd, name, &before, AT_SYMLINK_NOFOLLOW) == 0;
    bool spilled = there && S_ISLNK(before.st_mode) && fsio_spilled_to(io, name, target);
    int error = renameat(directory, from, io->root_fd, name) != 0 ? errno : 0;
    fsio_spill_unlock(io);
    if (error != 0) return error;
    if (spilled) fsio_spilled_drop(io, target);
    if (!there) atomic_fetch_add(&io->parts, 1);
    else if (!io->own_mount) fsio_account(io, -(int64_t)before.st_blocks * 512);
    return 0;
}

int fsio_fresh_end(struct fsio *io, int part, const char *name, uint64_t ino, int64_t index, const uint8_t *digest, int error) {
    char final[FSIO_NAME_BYTES];
    int64_t bytes = fsio_allocated(part);
    struct stat found;
    struct digests_key key = fsio_digests_key(io, ino, index);
    if (error == 0 && index != FSIO_WHOLE && io->checks) digests_forget(key);
    uint64_t moment = digests_moment(key);
    bool known = digest != NULL && fstat(part, &found) == 0;
    close(part);
    fsio_change_begins(io);
    fsio_part_name(ino, index, final);
    if (error == 0 && index >= 0) error = fsio_note_stripe(io, ino, (uint64_t)index);
    if (error == 0) error = replace_part(io, io->root_fd, name, final);
    if (error == 0) fsio_account(io, bytes);
    fsio_change_ends(io);
    if (error != 0) {
        unlinkat(io->root_fd, name, 0);
        return error;
    }
    if (index == FSIO_WHOLE) fsio_end_recorded(io, ino);
    if (known) digests_put(key, &found, digest, moment);
    else fsio_digest_later(io, ino, index);
    return 0;
}

int fsio_part_adopt(struct fsio *io, uint64_t ino, const char *path) {
    struct stat found;
    char name[FSIO_NAME_BYTES];
    int error = 0;
    fsio_part_name(ino, FSIO_WHOLE, name);
    if (fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) != 0) return errno;
    if (!S_ISREG(found.st_mode)) return EINVAL;
    bool room =
        fsio_spills(io) ? fsio_reserve_or_make(io, (uint64_t)found.st_blocks * 512) : fsio_reserve(io, (uint64_t)found.st_blocks * 512);
    fsio_change_begins(io);
    if (!room) {
        error = ENOSPC;
    } else {
        error = replace_part(io, AT_FDCWD, path, name);
        if (error != 0) fsio_account(io, -(int64_t)found.st_blocks * 512);
        else fsio_local_adopted(io, ino, (int64_t)found.st_blocks * 512);
    }
    fsio_change_ends(io);
    fsio_digest_forget(io, ino);
    if (error == 0) fsio_digest_closed(io, ino); /* else the closing of the handle through which it comes sees to it */
    return error;
}

int fsio_whole_delete(struct fsio *io, uint64_t ino) {
    char name[FSIO_NAME_BYTES];
    fsio_digest_forget(io, ino);
    fsio_part_name(ino, FSIO_WHOLE, name);
    fsio_change_begins(io);
    bool open = fsio_file_deleted(io, ino); /* it gives back what it takes when it is closed */
    int error = remove_part(io, name, ino, !open);
    fsio_change_ends(io);
    return error;
}

int fsio_part_delete(struct fsio *io, uint64_t ino) {
    int error = fsio_whole_delete(io, ino);
    int stripes = fsio_stripes_delete(io, ino, 0);
    fsio_end_recorded(io, ino);
    if (error != 0 && error != ENOENT) return error;
    return stripes;
}

/* ── life ── */

/* Copies that a process before us did not end. */
static void sweep_fresh(struct fsio *io) {
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "%02x", i);
        int fd = openat(io->root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        if (directory == NULL && fd >= 0) close(fd);
        if (directory == NULL) continue;
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
            if (entry->d_name[0] == '.' && strlen(entry->d_name) > 2) unlinkat(fd, entry->d_name, 0);
        closedir(directory);
    }
}

int fsio_parts_begin(struct fsio *io, const char *root, char *error, size_t error_size) {
    struct stat here, above;
    io->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (io->root_fd < 0 || fstat(io->root_fd, &here) != 0 || fstatat(io->root_fd, "../..", &above, 0) != 0) {
        snprintf(error, error_size, "cannot open the store's directory %s: %s", root, strerror(errno));
        return -1;
    }
    io->own_mount = here.st_dev != above.st_dev;
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "%02x", i);
        if (mkdirat(io->root_fd, name, 0700) != 0 && errno != EEXIST) {
            snprintf(error, error_size, "cannot make a directory in %s: %s", root, strerror(errno));
            return -1;
        }
    }
    sweep_fresh(io);
    fsio_count_begin(io);
    return 0;
}

void fsio_parts_end(struct fsio *io) {
    if (io->root_fd >= 0) close(io->root_fd);
    free(io->stripes.slots);
}
