/* Parts that go, and parts that take the place of others. */
#include "store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    AT_ONCE_BYTES = 64
        << 20, /* within a second, so much is deleted while the caller waits, perhaps the poll loop: the kernel frees some GB a second. */
    SMALL_BYTES = 64 << 10, /* Of a part that is no larger, the name is all the work. */
};

struct late_removal {
    struct fsio_job job;
    unsigned number;
};

static void remove_aside(struct fsio *io, struct fsio_job *job, bool stopped) {
    char aside[FSIO_NAME_BYTES];
    (void)stopped;
    fsio_aside_name(job->ino, ((const struct late_removal *)(void *)job)->number, aside);
    unlinkat(io->store->root_fd, aside, 0);
    free(job);
    fsio_removing(io, -1);
}

/* Its name goes at once, its bytes by another thread: until they have gone, callers that find no room wait for it. False: they have to go here. */
static bool remove_later(struct fsio *io, const char *name, uint64_t ino) {
    char aside[FSIO_NAME_BYTES];
    unsigned number = atomic_fetch_add(&io->store->fresh_count, 1);
    struct late_removal *removal = fsio_works(io) ? malloc(sizeof *removal) : NULL;
    fsio_aside_name(ino, number, aside);
    if (removal == NULL || renameat(io->store->root_fd, name, io->store->root_fd, aside) != 0) {
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
    if (now - atomic_load(&io->store->removed_since_ms) > 1000) {
        atomic_store(&io->store->removed_since_ms, now);
        atomic_store(&io->store->removed, 0);
    }
    return atomic_fetch_add(&io->store->removed, bytes) + bytes > AT_ONCE_BYTES && bytes > SMALL_BYTES;
}

/* Remove a part's name; its room is given back unless a file that is open goes on taking it. */
static int remove_part(struct fsio *io, const char *name, uint64_t ino, bool counted) {
    struct stat found;
    char target[FSIO_TARGET_BYTES];
    int error = 0;
    fsio_change_begins(io);
    fsio_spill_lock(io);
    bool there = fstatat(io->store->root_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    bool spilled = there && S_ISLNK(found.st_mode) && fsio_spilled_to(io, name, target);
    uint64_t bytes = there ? (uint64_t)found.st_blocks * 512 : 0;
    bool aside = there && takes_long(io, bytes) && remove_later(io, name, ino);
    if (!aside && unlinkat(io->store->root_fd, name, 0) != 0) error = errno;
    fsio_spill_unlock(io);
    if (error == 0 && spilled) fsio_spilled_drop(io, target);
    if (error == 0) fsio_look_goes(io, ino);
    if (error == 0 && counted && there && !io->store->own_mount) fsio_account(io, -(int64_t)bytes);
    fsio_change_ends(io);
    if (error == 0) atomic_fetch_sub(&io->store->parts, 1);
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
    if (end - from > FSIO_PROBE_MAX) fsio_walk_directory(io, (unsigned)(ino & 0xff), remove_one, &removal);
    for (uint64_t i = from; end - from <= FSIO_PROBE_MAX && i < end; i++) {
        fsio_part_name(ino, (int64_t)i, name);
        int error = remove_part(io, name, ino, true);
        if (error != 0 && error != ENOENT) removal.error = error;
    }
    if (removal.error == 0) fsio_stripes_cut(io, ino, from);
    return removal.error;
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

/* The file `from` takes the place of the part `name` in one step: a reader finds the old part or the new one, at any moment. */
static int replace_part(struct fsio *io, int directory, const char *from, const char *name) {
    struct stat before;
    char target[FSIO_TARGET_BYTES];
    fsio_spill_lock(io);
    bool there = fstatat(io->store->root_fd, name, &before, AT_SYMLINK_NOFOLLOW) == 0;
    bool spilled = there && S_ISLNK(before.st_mode) && fsio_spilled_to(io, name, target);
    int error = renameat(directory, from, io->store->root_fd, name) != 0 ? errno : 0;
    fsio_spill_unlock(io);
    if (error != 0) return error;
    if (spilled) fsio_spilled_drop(io, target);
    if (!there) atomic_fetch_add(&io->store->parts, 1);
    else if (!io->store->own_mount) fsio_account(io, -(int64_t)before.st_blocks * 512);
    return 0;
}

int fsio_fresh_end(struct fsio_fresh *fresh, int64_t index, const uint8_t *digest, int error) {
    struct fsio *io = fresh->io;
    uint64_t ino = fresh->ino;
    char final[FSIO_NAME_BYTES];
    int64_t bytes = fsio_allocated(fresh->fd), reserved = (int64_t)fresh->reserved;
    struct stat found;
    struct digests_key key = fsio_digests_key(io, ino, index);
    if (error == 0 && index != FSIO_WHOLE && io->store->checks) digests_forget(key);
    uint64_t moment = digests_moment(key);
    bool known = digest != NULL && fstat(fresh->fd, &found) == 0;
    close(fresh->fd);
    fsio_change_begins(io);
    fsio_part_name(ino, index, final);
    if (error == 0 && index >= 0) error = fsio_note_stripe(io, ino, (uint64_t)index);
    if (error == 0) error = replace_part(io, io->store->root_fd, fresh->name, final);
    if (error != 0) unlinkat(io->store->root_fd, fresh->name, 0); /* before others get its room */
    atomic_fetch_sub(&io->store->fresh, reserved);
    atomic_fetch_add(&io->store->accounts, 1); /* also if it took exactly what was reserved: a count may have found both, or neither */
    fsio_account(io, (error == 0 ? bytes : 0) - reserved);
    fsio_change_ends(io);
    if (error != 0) return error;
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
