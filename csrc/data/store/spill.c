/* Whole parts on a disk, when memory is full. In the place of such a part stands a symbolic link to a file in the spill directory, whose name ends in
 * the digest of its content. The link leads over another one in the root, and so is short: a long one takes a page of memory, or a huge one. A part goes there when nobody has it open, in one step: an opener finds the part or the link. It is read where it
 * lies, and comes back before it is changed. Which parts go is decided elsewhere. */
#include "common/extents.h"
#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    COPY_BYTES = 2 << 20,
    YOUNG_NS = 20000000, /* a part that was changed so short ago may be changed again without its times saying so */
};

static int put_all(int fd, const char *from, size_t count, off_t at) {
    while (count > 0) {
        ssize_t put = pwrite(fd, from, count, at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        from += put;
        at += put;
        count -= (size_t)put;
    }
    return 0;
}

/* All of it, with the digest of what was read, and its times. */
static int copy_all(struct fsio *io, int from, int to, const struct stat *found, uint8_t digest[XXH3_BYTES]) {
    struct timespec times[2] = {found->st_atim, found->st_mtim};
    struct digests_run run;
    off_t at = 0;
    int error = 0;
    char *buffer = malloc(COPY_BYTES);
    if (buffer == NULL) return ENOMEM;
    digests_begin(&run);
    while (error == 0) {
        ssize_t got = pread(from, buffer, COPY_BYTES, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) error = errno;
        if (got <= 0) break;
        if (atomic_load(&io->stopping)) error = ECANCELED;
        digests_add(&run, buffer, (size_t)got);
        if (error == 0) error = put_all(to, buffer, (size_t)got, at);
        at += got;
    }
    free(buffer);
    digests_end(&run, digest);
    if (error == 0 && at != found->st_size) error = EAGAIN; /* it is being changed, or the disk has lost some of it */
    if (error == 0 && futimens(to, times) != 0) error = errno;
    return error;
}

static void hex_of(const uint8_t digest[XXH3_BYTES], char *to) {
    for (int i = 0; i < XXH3_BYTES; i++) snprintf(to + 2 * i, 3, "%02x", digest[i]);
}

/* ── out ── */

static bool is_same(const struct stat *was, const struct stat *is) {
    return was->st_ino == is->st_ino && was->st_size == is->st_size && ns_of(was->st_mtim) == ns_of(is->st_mtim);
}

static bool may_go(const struct stat *found) {
    bool sparse = amfs_has_holes(found); /* the disk would have to hold its holes */
    return S_ISREG(found->st_mode) && found->st_nlink == 1 && !sparse && found->st_size > 0;
}

/* Until what changes the part changes its times, too. */
static void let_age(const struct stat *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = ns_of(now) - ns_of(found->st_ctim);
    struct timespec pause = {.tv_nsec = YOUNG_NS - age};
    if (age >= 0 && age < YOUNG_NS) nanosleep(&pause, NULL);
}

/* The copy, under its name in the spill directory. 0 or an errno: then nothing is left of it. */
static int copy_out(struct fsio *io, uint64_t ino, int part, const struct stat *found, char *target) {
    char fresh[FSIO_TARGET_BYTES], hex[2 * XXH3_BYTES + 1];
    uint8_t digest[XXH3_BYTES], known[XXH3_BYTES];
    struct stat made;
    struct digests_key key = fsio_digests_key(io, ino, FSIO_WHOLE);
    uint64_t moment = digests_moment(key);
    snprintf(fresh, sizeof fresh, "spill/part-%016llx-%x", (unsigned long long)ino, atomic_fetch_add(&io->store->spill_count, 1));
    int to = openat(io->store->root_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (to < 0) return errno == ENOENT ? EIO : errno;
    int error = copy_all(io, part, to, found, digest);
    if (error == 0 && fdatasync(to) != 0) error = errno; /* else a disk that is full or fails would say so to nobody */
    if (error == 0 && fstat(to, &made) != 0) error = errno;
    (void)posix_fadvise(to, 0, 0, POSIX_FADV_DONTNEED); /* it goes so that memory is free */
    close(to);
    if (error == 0 && digests_get(key, found, known) && memcmp(known, digest, sizeof known) != 0) {
        (void)fsio_check(io, part, ino, FSIO_WHOLE, NULL);
        error = EBADMSG;
    }
    hex_of(digest, hex);
    snprintf(target, FSIO_TARGET_BYTES, "%.60s-%s", fresh, hex);
    if (error == 0 && renameat(io->store->root_fd, fresh, io->store->root_fd, target) != 0) error = errno;
    if (error != 0) unlinkat(io->store->root_fd, fresh, 0);
    else if (io->store->checks) digests_put(key, &made, digest, moment);
    return error;
}

/* With spill_lock held: part and link change places, if the link stands for `target`, or (NULL) if the part is there. */
static int exchange(struct fsio *io, const char *aside, const char *name, const char *target) {
    char there[FSIO_TARGET_BYTES];
    if (target != NULL && !(fsio_spilled_to(io, name, there) && strcmp(there, target) == 0)) return ENOENT;
    return renameat2(io->store->root_fd, aside, io->store->root_fd, name, RENAME_EXCHANGE) == 0 ? 0 : errno;
}

/* With the gate held alone. The link takes the place of the part, unless somebody uses it or it is another by now. */
static int put_link(struct fsio *io, uint64_t ino, int part, const struct stat *was, const char *target) {
    char name[FSIO_NAME_BYTES], aside[FSIO_NAME_BYTES], link[FSIO_TARGET_BYTES + 3];
    struct stat is;
    fsio_part_name(ino, FSIO_WHOLE, name);
    fsio_fresh_name(io, ino, aside);
    if (opens_look(io->opens, ino).mounted) return EBUSY;
    if (fstat(part, &is) != 0 || !is_same(was, &is) || ns_of(was->st_ctim) != ns_of(is.st_ctim)) return EAGAIN;
    snprintf(link, sizeof link, "../%s", target);
    if (symlinkat(link, io->store->root_fd, aside) != 0) return errno;
    fsio_spill_lock(io);
    int error = exchange(io, aside, name, NULL);
    fsio_spill_unlock(io);
    if (error == 0) {
        /* A mount may have opened it in the last moment: then the kernel has the part, and all is as it was. */
        bool stays =
            fstatat(io->store->root_fd, aside, &is, AT_SYMLINK_NOFOLLOW) != 0 || !is_same(was, &is) || opens_look(io->opens, ino).mounted;
        fsio_spill_lock(io);
        if (stays && exchange(io, aside, name, target) == 0) error = EBUSY; /* else it was deleted meanwhile, with the copy */
        fsio_spill_unlock(io);
    }
    unlinkat(io->store->root_fd, aside, 0);
    return error;
}

int fsio_spill(struct fsio *io, uint64_t ino, uint64_t *freed) {
    char target[FSIO_TARGET_BYTES], name[FSIO_NAME_BYTES];
    struct stat found;
    *freed = 0;
    if (!fsio_spills(io)) return EOPNOTSUPP;
    fsio_part_name(ino, FSIO_WHOLE, name);
    int part = openat(io->store->root_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME);
    if (part < 0 && errno == EPERM) part = openat(io->store->root_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (part < 0) return errno == ELOOP ? EALREADY : errno;
    int error = fstat(part, &found) != 0 ? errno : may_go(&found) ? 0 : EBUSY;
    uint64_t spilled = fsio_spilled(io) + (uint64_t)atomic_load(&io->store->held_spilled);
    if (error == 0 && io->store->spill_most != 0 && spilled + (uint64_t)found.st_size > io->store->spill_most) error = EDQUOT;
    if (error == 0) let_age(&found);
    if (error == 0) error = copy_out(io, ino, part, &found, target);
    if (error == 0) {
        atomic_fetch_add(&io->store->spilled, (int64_t)found.st_size);
        fsio_change_begins(io);
        struct fsio_file *file = fsio_file_enter(io, ino); /* its gate, if nobody has it open */
        error = file == NULL ? EBUSY : put_link(io, ino, part, &found, target);
        if (file != NULL) fsio_file_exit(file);
        if (error == 0) *freed = (uint64_t)found.st_blocks * 512;
        if (error == 0 && !io->store->own_mount) fsio_account(io, -(int64_t)*freed);
        fsio_change_ends(io);
        if (error != 0) fsio_spilled_drop(io, target);
    }
    close(part);
    return error;
}

/* ── back ── */

int fsio_bring_back(struct fsio_file *file, bool empty) {
    struct fsio *io = file->io;
    char name[FSIO_NAME_BYTES], target[FSIO_TARGET_BYTES], hex[2 * XXH3_BYTES + 1];
    uint8_t digest[XXH3_BYTES];
    struct stat found;
    struct fsio_fresh part;
    fsio_part_name(file->ino, FSIO_WHOLE, name);
    if (!fsio_spilled_to(io, name, target)) return EIO;
    int from = openat(io->store->root_fd, target, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), error = 0;
    if (from < 0) return EIO;
    if (fstat(from, &found) != 0) error = errno;
    uint64_t size = empty || error != 0 ? 0 : (uint64_t)found.st_size;
    if (error == 0) error = fsio_fresh_open(io, file->ino, &part);
    bool opened = error == 0;
    if (opened && !fsio_fresh_room(&part, size, ROOM_PATIENT)) error = ENOSPC;
    (void)posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (error == 0 && size > 0) {
        error = copy_all(io, from, part.fd, &found, digest);
        hex_of(digest, hex);
        size_t length = strlen(target), digits = strlen(hex);
        if (error == EAGAIN || (error == 0 && (length < digits || strcmp(target + length - digits, hex) != 0)))
            error = EIO; /* the disk has lost it */
    }
    close(from);
    if (opened) error = fsio_fresh_end(&part, FSIO_WHOLE, NULL, error); /* which deletes the copy on the disk */
    if (error != 0) return error;
    fsio_local_leave(file);
    return fsio_local_open(file, PART_WRITE);
}
