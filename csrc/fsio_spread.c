/* From one layout to the other: a whole file to stripes at their owners, stripes to a whole file here. */
#include "fsio_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    COPY_BYTES = 1 << 20,
    GATHER_BYTES = 8 << 20, /* asked of all owners at once */
    FULL_TRIES = 100,       /* for room that we have just made ourselves, and somebody else took: a second in all */
    FULL_WAIT_MS = 10,
};

/* ── spreading ── */

struct spread {
    struct fsio_file *file;
    int whole;
    uint64_t size;
    char *buffer; /* COPY_BYTES */
};

/* The next piece of stripe `index` that holds data, from `*at` on. False: there is none any more. */
static bool next_piece(const struct spread *spread, uint64_t index, uint64_t *at, size_t *count) {
    uint64_t base = index * spread->file->stripe, end = base + spread->file->stripe;
    if (end > spread->size) end = spread->size;
    off_t data = lseek(spread->whole, (off_t)(base + *at), SEEK_DATA);
    if (data < 0 || (uint64_t)data >= end) return false;
    *at = (uint64_t)data - base;
    *count = end - (uint64_t)data < COPY_BYTES ? (size_t)(end - (uint64_t)data) : COPY_BYTES;
    return true;
}

static int read_piece(const struct spread *spread, uint64_t offset, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t got = pread(spread->whole, spread->buffer + done, count - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : EIO;
        done += (size_t)got;
    }
    return 0;
}

static int send_stripe(const struct spread *spread, uint64_t index) {
    struct fsio_file *file = spread->file;
    uint64_t at = 0;
    size_t count;
    int error = 0;
    while (error == 0 && at < file->stripe && next_piece(spread, index, &at, &count)) {
        error = read_piece(spread, index * file->stripe + at, count);
        if (error == 0) error = fsio_stripe_write(file->io, file->ino, index, at, spread->buffer, count);
        at += count;
    }
    return error;
}

static void punch(const struct spread *spread, uint64_t offset, uint64_t count) {
    (void)fallocate(spread->whole, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)count);
}

static int put_piece(int part, const char *from, size_t count, uint64_t at) {
    int tries = 0;
    for (size_t done = 0; done < count;) {
        ssize_t put = pwrite(part, from + done, count - done, (off_t)(at + done));
        if (put > 0) done += (size_t)put;
        if (put >= 0 || errno == EINTR) continue;
        if (errno != ENOSPC || ++tries > FULL_TRIES) return errno;
        struct timespec pause = {.tv_nsec = FULL_WAIT_MS * 1000000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* A stripe of our own out of the whole: piece by piece, each given back before it is put, so that it needs no room. No limit asked. */
static int keep_stripe(const struct spread *spread, uint64_t index) {
    struct fsio_file *file = spread->file;
    uint64_t at = 0, base = index * file->stripe;
    size_t count;
    int part = -1, error = 0;
    while (error == 0 && at < file->stripe && next_piece(spread, index, &at, &count)) {
        if (part < 0) part = fsio_part_open(file->io, file->ino, (int64_t)index, true);
        error = part < 0 ? -part : read_piece(spread, base + at, count);
        if (error == 0) {
            punch(spread, base + at, count); /* it is in the buffer */
            error = put_piece(part, spread->buffer, count, at);
        }
        at += count;
    }
    if (part >= 0) {
        fsio_account(file->io, fsio_allocated(part));
        close(part);
    }
    return error;
}

/* The stripes at others do not stay: it remains a whole file. */
static void take_back(struct fsio_file *file, uint64_t size) {
    (void)fsio_stripes_trim(file->io, file->ino, file->stripe, 0, size);
}

int fsio_spread(struct fsio_file *file, bool tell) {
    struct fsio *io = file->io;
    struct spread spread = {.file = file, .buffer = malloc(COPY_BYTES)};
    struct stat found;
    int error = spread.buffer == NULL ? ENOMEM : fsio_fd_get(file, false, &spread.whole);
    if (error != 0) {
        free(spread.buffer);
        return error;
    }
    fsio_change_begins(io);
    if (fstat(spread.whole, &found) != 0) error = errno;
    spread.size = error == 0 ? (uint64_t)found.st_size : 0;
    uint64_t stripes = (spread.size + file->stripe - 1) / file->stripe;
    for (uint64_t i = 0; i < stripes && error == 0; i++)
        if (fsio_stripe_owner(io, file->ino, i) != io->node) error = send_stripe(&spread, i);
    if (error != 0) {
        take_back(file, spread.size);
    } else {
        for (uint64_t i = 0; i < stripes; i++) /* all is safe there: now there is room for what stays */
            if (fsio_stripe_owner(io, file->ino, i) != io->node) punch(&spread, i * file->stripe, file->stripe);
        for (uint64_t i = 0; i < stripes && error == 0; i++)
            if (fsio_stripe_owner(io, file->ino, i) == io->node) error = keep_stripe(&spread, i);
    }
    free(spread.buffer);
    fsio_fd_put(file);
    if (error == 0) {
        fsio_whole_remove(io, file->ino);
        file->gone = true; /* the descriptor's blocks go with it */
        fsio_local_leave(file);
    }
    fsio_change_ends(io);
    if (error != 0) return error;
    file->kind = FSIO_STRIPED;
    atomic_store(&file->size, spread.size);
    struct fsio_stat stat;
    fsio_to_stat(&found, &stat);
    atomic_store(&file->read_ns, stat.atime);
    atomic_store(&file->written_ns, stat.mtime);
    atomic_store(&file->changed_ns, stat.ctime);
    if (tell) fsio_tell(io, FSIO_EVENT_STRIPED, file->stripe, file->ino, spread.size, 0);
    return 0;
}

/* ── gathering ── */

static bool all_zero(const char *bytes, size_t count) { return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0); }

static int gather_into(struct fsio *io, int whole, char *buffer, uint64_t ino, uint32_t stripe, uint64_t size) {
    enum { SEGMENTS = 256 };
    struct fsio_segment segments[SEGMENTS];
    for (uint64_t offset = 0; offset < size;) {
        size_t used = 0, filled = 0;
        if (atomic_load(&io->stopping)) return ECANCELED;
        while (used < SEGMENTS && filled < GATHER_BYTES && offset + filled < size) {
            uint64_t place = offset + filled, left = stripe - place % stripe;
            size_t count = left < GATHER_BYTES - filled ? (size_t)left : GATHER_BYTES - filled;
            if (count > size - place) count = (size_t)(size - place);
            segments[used++] = (struct fsio_segment){place / stripe, place % stripe, buffer + filled, count};
            filled += count;
        }
        int error = fsio_segments_read(io, ino, segments, used);
        for (size_t i = 0; i < used && error == 0; i++) { /* holes stay holes */
            uint64_t place = segments[i].index * stripe + segments[i].at;
            if (!all_zero(segments[i].to, segments[i].count)) error = put_piece(whole, segments[i].to, segments[i].count, place);
        }
        if (error != 0) return error;
        offset += filled;
    }
    return 0;
}

int fsio_gather_now(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size) {
    char name[FSIO_NAME_BYTES];
    if (stripe == 0) return EINVAL;
    if (!fsio_room(io, size)) return ENOSPC;
    char *buffer = malloc(GATHER_BYTES);
    int whole = buffer == NULL ? -ENOMEM : fsio_fresh_open(io, ino, name);
    int error = whole < 0 ? -whole : gather_into(io, whole, buffer, ino, stripe, size);
    if (error == 0 && ftruncate(whole, (off_t)size) != 0) error = errno;
    free(buffer);
    return whole < 0 ? error : fsio_fresh_end(io, whole, name, ino, FSIO_WHOLE, error);
}
