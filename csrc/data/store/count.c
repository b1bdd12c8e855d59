/* How much memory the parts of this node take, and whether there is room for more. Where the store is a mount of its own the kernel counts. Else what
 * is written and deleted is accounted for, and all parts are counted now and then, for files come and go through other hands, too: tasks', and the
 * kernel's for those that it passes through. */
#include "store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
    SCAN_MS = 10, /* a count of all parts that takes no longer may be made by who wants to know */
    SCAN_EVERY_MS = 200,
    DRIFT_MS =
        2000, /* a count during which something changed may have it twice, or not at all: taken only if there was none better for so long */
    ASK_MS = 20, /* how old the kernel's count may be */
    ASK_BYTES = 4 << 20, /* and how much may have been added since */
};

int64_t fsio_allocated(int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 ? (int64_t)found.st_blocks * 512 : 0;
}

void fsio_change_begins(struct fsio *io) { atomic_fetch_add(&io->store->changing, 1); }

void fsio_change_ends(struct fsio *io) { atomic_fetch_sub(&io->store->changing, 1); }

static uint64_t used_so_far(struct fsio *io) {
    int64_t used = atomic_load(&io->store->used) + atomic_load(io->store->own_mount ? &io->store->since : &io->store->held);
    return used > 0 ? (uint64_t)used : 0;
}

void fsio_account(struct fsio *io, int64_t bytes) {
    if (bytes == 0) return;
    atomic_fetch_add(&io->store->accounts, 1);
    if (io->store->own_mount) {
        if (bytes > 0) atomic_fetch_add(&io->store->since, bytes);
    } else {
        long long used = atomic_fetch_add(&io->store->used, bytes) + bytes; /* not int64_t: clang compares the types */
        /* Files came that nobody told us of; the next count puts it right. Reservations that others make meanwhile stay. */
        while (used < 0 && !atomic_compare_exchange_weak(&io->store->used, &used, 0)) {}
    }
    if (bytes > 0) fsio_pressed(io, used_so_far(io));
}

uint64_t fsio_hold(struct fsio *io, uint64_t bytes, uint64_t spilled) {
    atomic_store(&io->store->held_spilled, (int64_t)spilled);
    int64_t before = atomic_exchange(&io->store->held, (int64_t)bytes), parts = atomic_load(&io->store->used);
    if ((int64_t)bytes < before) atomic_fetch_add(&io->store->room_made, 1);
    if (io->store->own_mount) return 0;
    if ((int64_t)bytes > before) fsio_pressed(io, used_so_far(io));
    return parts > 0 ? (uint64_t)parts : 0;
}

static void ask_kernel(struct fsio *io) {
    struct statvfs found;
    atomic_store(&io->store->asked_ms, now_ms());
    if (fstatvfs(io->store->root_fd, &found) != 0) return;
    atomic_store(&io->store->since, 0);
    atomic_store(&io->store->used, (int64_t)((found.f_blocks - found.f_bfree) * found.f_frsize));
}

static uint64_t used_now(struct fsio *io) {
    if (io->store->own_mount && (now_ms() - atomic_load(&io->store->asked_ms) > ASK_MS || atomic_load(&io->store->since) > ASK_BYTES))
        ask_kernel(io);
    return used_so_far(io);
}

bool fsio_room(struct fsio *io, uint64_t more) {
    if (io->store->limit == 0 || more == 0) return true;
    if (used_now(io) + more <= io->store->limit) return true;
    if (!io->store->own_mount) return false;
    ask_kernel(io);
    return used_now(io) + more <= io->store->limit;
}

bool fsio_reserve(struct fsio *io, uint64_t more) {
    if (more == 0) return true;
    if (io->store->limit == 0) {
        fsio_account(io, (int64_t)more);
        return true;
    }
    if (io->store->own_mount) {
        bool room = fsio_room(io, more);
        if (room) fsio_account(io, (int64_t)more);
        return room;
    }
    atomic_fetch_add(&io->store->accounts, 1);
    long long used = atomic_load(&io->store->used), all;
    do { /* nothing is taken in vain: a count of the parts would subtract it */
        all = used + (int64_t)more + atomic_load(&io->store->held);
        if (all > (int64_t)io->store->limit) return false;
    } while (!atomic_compare_exchange_weak(&io->store->used, &used, used + (int64_t)more));
    fsio_pressed(io, (uint64_t)(all < 0 ? 0 : all));
    return true;
}

void fsio_usage(struct fsio *io, uint64_t *used, uint64_t *limit, uint64_t *parts) {
    /* Files come and go through other hands, too: the kernel writes those that it passes through. Counted while that is quick. */
    if (atomic_load(&io->store->scan_took_ms) <= SCAN_MS && now_ms() - atomic_load(&io->store->scanned_ms) > SCAN_EVERY_MS) fsio_rescan(io);
    int64_t count = atomic_load(&io->store->parts);
    if (io->store->own_mount) ask_kernel(io);
    *used = used_now(io);
    *limit = io->store->limit;
    *parts = count > 0 ? (uint64_t)count : 0;
}

/* ── counting ── */

struct open_file {
    uint64_t ino;
    int64_t more; /* than is accounted for: the kernel writes those that it passes through */
};

struct count {
    struct fsio *io;
    int64_t bytes, parts;
    bool with_stripes;
    struct open_file *open;
    size_t open_count, open_room;
};

static void count_open(struct count *count, uint64_t ino, int64_t bytes) {
    struct fsio_file *file = fsio_file_find(count->io, ino);
    if (file == NULL) return;
    pthread_mutex_lock(&file->lock);
    int64_t more = file->counted ? bytes - atomic_load(&file->accounted) : 0;
    if (more < 0 && file->writes > 0) { /* reserved, and not yet written */
        count->bytes -= more;
        more = 0;
    }
    pthread_mutex_unlock(&file->lock);
    fsio_file_drop(file);
    if (more == 0) return;
    if (count->open_count == count->open_room) {
        size_t room = count->open_room == 0 ? 16 : count->open_room * 2;
        struct open_file *open = realloc(count->open, room * sizeof *open);
        if (open == NULL) return; /* it is put right when it is closed, or by the next count */
        count->open = open;
        count->open_room = room;
    }
    count->open[count->open_count++] = (struct open_file){ino, more};
}

/* The count holds: the differences that open files settle when they are closed begin there. */
static void take_count(struct count *count, int64_t used) {
    atomic_fetch_add(&count->io->store->used, count->bytes - used);
    for (size_t i = 0; i < count->open_count; i++) {
        struct fsio_file *file = fsio_file_find(count->io, count->open[i].ino);
        if (file == NULL) continue;
        if (file->counted) atomic_fetch_add(&file->accounted, count->open[i].more);
        fsio_file_drop(file);
    }
}

static bool count_one(void *context, int directory, const char *name, uint64_t ino, int64_t index) {
    struct count *count = context;
    struct stat found;
    count->parts++;
    if (count->with_stripes && index >= 0) fsio_note_stripe(count->io, ino, (uint64_t)index);
    if (!count->io->store->own_mount && fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0) {
        int64_t bytes = (int64_t)found.st_blocks * 512;
        count->bytes += bytes;
        if (index < 0) count_open(count, ino, bytes);
    }
    return !atomic_load(&count->io->stopping);
}

void fsio_rescan(struct fsio *io) {
    struct count count = {.io = io};
    if (pthread_mutex_trylock(&io->store->rescan_lock) != 0) return; /* somebody is at it */
    uint64_t accounts = atomic_load(&io->store->accounts); /* first: changes that begin after this are seen in it */
    bool quiet = atomic_load(&io->store->changing) == 0; /* then changes that have ended are in `used` */
    int64_t used = atomic_load(&io->store->used), parts = atomic_load(&io->store->parts), began = now_ms();
    fsio_walk(io, count_one, &count);
    count.bytes += fsio_deleted_bytes(io) + atomic_load(&io->store->fresh);
    if (!atomic_load(&io->stopping)) {
        atomic_fetch_add(&io->store->parts, count.parts - parts); /* differences: parts that came and went meanwhile stay counted */
        bool exact = quiet && atomic_load(&io->store->changing) == 0 && accounts == atomic_load(&io->store->accounts);
        bool first = began - atomic_load(&io->store->scanned_ms) > DRIFT_MS; /* nobody has counted lately: a better count may come soon */
        if (exact || first) atomic_store(&io->store->exact_ms, began);
        if (!io->store->own_mount && (exact || io->store->limit == 0 || began - atomic_load(&io->store->exact_ms) > DRIFT_MS))
            take_count(&count, used);
    }
    free(count.open);
    int64_t ended = now_ms();
    atomic_store(&io->store->scanned_ms, ended);
    atomic_store(&io->store->scan_took_ms, ended - began);
    pthread_mutex_unlock(&io->store->rescan_lock);
}

void fsio_count_begin(struct fsio *io) {
    struct count count = {.io = io, .with_stripes = true};
    fsio_walk(io, count_one, &count);
    free(count.open);
    atomic_store(&io->store->parts, count.parts);
    atomic_store(&io->store->used, count.bytes);
    atomic_store(&io->store->exact_ms, now_ms());
    if (io->store->own_mount) ask_kernel(io);
}
