/* From one layout to the other: a whole file to stripes at their owners, stripes to a whole file here. */
#include "common/extents.h"
#include "striped.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    COPY_BYTES = 1 << 20,
    GATHER_BYTES = 8 << 20, /* asked of all owners at once */
    FULL_PATIENCE_MS = 20000, /* for room that we have freed and another writer took, in all */
    GATHER_TRIES = 100,     /* likewise, where nothing is lost if there is none */
    FULL_WAIT_MS = 10,
};

/* ── spreading ── */

struct stripes {
    uint64_t *index;
    size_t count, room;
};

struct spread {
    struct fsio_file *file;
    int whole;
    uint64_t size;
    struct stripes sent, kept; /* that have data: those that another node has, by the table as it was then, and the others */
    size_t freed; /* of those sent take no room here any more */
    char *buffer;   /* COPY_BYTES */
    int64_t give_up_ms; /* when nothing is to be waited for any more; 0: nothing was yet */
    uint64_t since; /* losses that are known when it begins */
};

static int add_stripe(struct stripes *stripes, uint64_t index) {
    if (stripes->count == stripes->room) {
        size_t room = stripes->room == 0 ? 64 : 2 * stripes->room;
        uint64_t *larger = realloc(stripes->index, room * sizeof *larger);
        if (larger == NULL) return ENOMEM;
        stripes->index = larger;
        stripes->room = room;
    }
    stripes->index[stripes->count++] = index;
    return 0;
}

/* Whose each stripe is that has data. Those of holes, however many, are nobody's. */
static int deal(struct spread *spread) {
    const struct fsio_file *file = spread->file;
    uint64_t from, to;
    int error = 0;
    for (uint64_t at = 0; error == 0 && at < spread->size;) {
        error = amfs_next_extent(spread->whole, at, spread->size, &from, &to);
        if (error != 0 || from >= spread->size) break;
        at = from;
        while (error == 0 && at < to) {
            uint64_t index = at / file->stripe;
            bool ours = fsio_stripe_owner(file->io, file->ino, index) == file->io->node;
            error = add_stripe(ours ? &spread->kept : &spread->sent, index);
            at = (index + 1) * file->stripe;
        }
    }
    return error;
}

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

/* Have `act` see to each piece of stripe `index` that holds data, which is in the buffer then. */
static int each_piece(struct spread *spread, uint64_t index, int (*act)(struct spread *, uint64_t index, uint64_t at, size_t count)) {
    uint64_t at = 0;
    size_t count;
    int error = 0;
    while (error == 0 && at < spread->file->stripe && next_piece(spread, index, &at, &count)) {
        error = read_piece(spread, index * spread->file->stripe + at, count);
        if (error == 0) error = act(spread, index, at, count);
        at += count;
    }
    return error;
}

static int send_piece(struct spread *spread, uint64_t index, uint64_t at, size_t count) {
    const struct fsio_file *file = spread->file;
    return fsio_stripe_write(file->io, file->ino, index, file->copied, at, spread->buffer, count);
}

/* The copy of a piece that stays here: its room is found while there still is a way back. */
static int prepare_piece(struct spread *spread, uint64_t index, uint64_t at, size_t count) {
    int error = fsio_copied_prepare(spread->file->io, spread->file->ino, index, at, spread->buffer, count);
    return error == ESTALE || error == ENODATA ? 0 : error; /* the table changes: keep_piece sees to it */
}

static void punch(const struct spread *spread, uint64_t offset, uint64_t count) {
    (void)fallocate(spread->whole, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)count);
}

static void pause_a_moment(void) {
    struct timespec pause = {.tv_nsec = FULL_WAIT_MS * 1000000};
    nanosleep(&pause, NULL);
}

/* The room of one more stripe that another node has. False: all of it was given back. */
static bool free_sent(struct spread *spread) {
    if (spread->freed == spread->sent.count) return false;
    punch(spread, spread->sent.index[spread->freed++] * spread->file->stripe, spread->file->stripe);
    return true;
}

/* The piece in the buffer goes to its stripe here. It leaves the whole file only when it is there: others may take the room that we free. Once
 * nothing else can be freed it has to make its own room, and is in the buffer alone until it has found some. No limit is asked. */
static int keep_piece(struct spread *spread, uint64_t index, uint64_t at, size_t count) {
    struct fsio *io = spread->file->io;
    uint64_t ino = spread->file->ino, place = index * spread->file->stripe + at;
    bool only_here = false;
    int error;
    while ((error = (spread->file->copied ? fsio_copied_keep : fsio_stripe_keep)(io, ino, index, at, spread->buffer, count)) == ENOSPC) {
        if (free_sent(spread)) continue;
        if (spread->give_up_ms == 0) spread->give_up_ms = now_ms() + FULL_PATIENCE_MS;
        if (!only_here) punch(spread, place, count);
        else if (now_ms() >= spread->give_up_ms || atomic_load(&io->stopping)) break;
        else pause_a_moment();
        only_here = true;
    }
    if (error == ESTALE)
        error = fsio_stripe_write(io, ino, index, spread->file->copied, at, spread->buffer,
                                  count); /* its partition has gone elsewhere meanwhile */
    if (error == 0 && !only_here) punch(spread, place, count);
    return error;
}

/* First the pieces for other nodes. If they do not all get there, the file remains whole. */
static int send_all(struct spread *spread) {
    struct fsio_file *file = spread->file;
    int error = 0;
    for (size_t i = 0; i < spread->sent.count && error == 0; i++) error = each_piece(spread, spread->sent.index[i], send_piece);
    for (size_t i = 0; file->copied && i < spread->kept.count && error == 0; i++)
        error = each_piece(spread, spread->kept.index[i], prepare_piece);
    if (error == 0 && fsio_stripes_lost(file->io, file->ino, file->stripe, file->copied, 0, spread->size, spread->since))
        error = EIO; /* with a node that had taken some */
    if (error != 0) (void)fsio_stripes_trim(file->io, file->ino, file->stripe, file->copied, 0, spread->size);
    return error;
}

/* There is no way back once some of the whole file has given room. If a piece cannot be kept then, the file is lost, and every reader is told so. */
static int keep_all(struct spread *spread) {
    struct fsio_file *file = spread->file;
    int error = 0;
    for (size_t i = 0; i < spread->kept.count && error == 0; i++) error = each_piece(spread, spread->kept.index[i], keep_piece);
    if (error == 0) return 0;
    fsio_whole_remove(file->io, file->ino);
    fsio_local_lose(file);
    (void)fsio_stripes_trim(file->io, file->ino, file->stripe, file->copied, 0, spread->size);
    return EIO;
}

static int spread_open(struct spread *spread, struct stat *found) {
    struct fsio_file *file = spread->file;
    if (fstat(spread->whole, found) != 0) return errno;
    spread->since = atomic_load(&file->io->lost_version);
    spread->size = (uint64_t)found->st_size;
    spread->buffer = malloc(COPY_BYTES);
    int error = spread->buffer == NULL ? ENOMEM : deal(spread);
    if (error == 0) error = send_all(spread);
    if (error == 0) error = keep_all(spread);
    free(spread->buffer);
    free(spread->sent.index);
    free(spread->kept.index);
    return error;
}

/* Meanwhile a handle is made without the gate (fsio_open). */
static void set_spreading(struct fsio_file *file, bool spreading) {
    pthread_mutex_lock(&file->lock);
    file->spreading = spreading;
    pthread_mutex_unlock(&file->lock);
}

static void become_striped(struct fsio_file *file, const struct spread *spread, const struct stat *found) {
    struct data_stat stat;
    fsio_to_stat(found, &stat);
    file->kind = FSIO_STRIPED;
    atomic_store(&file->size, spread->size);
    fsio_not_lost(file, spread->since, false);
    atomic_store(&file->read_ns, stat.atime);
    atomic_store(&file->written_ns, stat.mtime);
    atomic_store(&file->changed_ns, stat.ctime);
}

int fsio_spread(struct fsio_file *file, bool tell) {
    struct fsio *io = file->io;
    struct spread spread = {.file = file};
    struct stat found;
    int error = fsio_fd_get(file, PART_WRITE, &spread.whole);
    if (error != 0) return error;
    set_spreading(file, true);
    fsio_change_begins(io);
    error = spread_open(&spread, &found);
    fsio_fd_put(file);
    if (error == 0) {
        fsio_whole_remove(io, file->ino);
        file->gone = true; /* the descriptor's blocks go with it */
        fsio_local_leave(file);
    }
    fsio_change_ends(io);
    if (error == 0) become_striped(file, &spread, &found);
    set_spreading(file, false);
    if (error == 0 && tell) fsio_tell(io, FSIO_EVENT_STRIPED, file->stripe, file->ino, spread.size, 0);
    return error;
}

/* ── gathering ── */

static int put_piece(struct fsio *io, int part, const char *from, size_t count, uint64_t at) {
    int tries = 0;
    for (size_t done = 0; done < count;) {
        ssize_t put = pwrite(part, from + done, count - done, (off_t)(at + done));
        if (put > 0) done += (size_t)put;
        if (put >= 0 || errno == EINTR) continue;
        if (errno != ENOSPC || ++tries > GATHER_TRIES || atomic_load(&io->stopping)) return errno;
        pause_a_moment();
    }
    return 0;
}

static int gather_into(struct fsio_fresh *whole, char *buffer, uint32_t stripe, uint64_t size) {
    struct fsio *io = whole->io;
    uint64_t ino = whole->ino;
    enum { SEGMENTS = 256 };
    struct fsio_segment segments[SEGMENTS];
    bool copied = fsio_is_copied(io, ino), sparse = true;
    for (uint64_t offset = 0; offset < size;) {
        uint64_t next = 0, last = (size - 1) / stripe;
        size_t used = 0, filled = 0;
        int error = sparse ? fsio_next_stripe(io, ino, offset / stripe, last, copied, &next) : 0;
        if (error != 0) return error;
        if (next > last) break; /* nothing but a hole is left */
        if (offset < next * stripe) offset = next * stripe;
        sparse = true;
        if (atomic_load(&io->stopping)) return ECANCELED;
        while (used < SEGMENTS && filled < GATHER_BYTES && offset + filled < size) {
            uint64_t place = offset + filled, left = stripe - place % stripe;
            size_t count = left < GATHER_BYTES - filled ? (size_t)left : GATHER_BYTES - filled;
            if (count > size - place) count = (size_t)(size - place);
            segments[used++] = (struct fsio_segment){place / stripe, place % stripe, buffer + filled, count};
            filled += count;
        }
        if (!fsio_fresh_room(whole, (uint64_t)fsio_allocated(whole->fd) + filled, ROOM_AT_ONCE)) return ENOSPC;
        error = fsio_segments_read(io, ino, copied, segments, used);
        for (size_t i = 0; i < used && error == 0; i++) { /* holes stay holes */
            uint64_t place = segments[i].index * stripe + segments[i].at;
            if (amfs_all_zero(segments[i].to, segments[i].count)) continue;
            error = put_piece(io, whole->fd, segments[i].to, segments[i].count, place);
            sparse = false;
        }
        if (error != 0) return error;
        offset += filled;
    }
    return 0;
}

/* Those of other nodes are compared when they are read. */
static bool own_stripes_are_fine(struct fsio *io, uint64_t ino) {
    struct fsio_checked found = {.more = true};
    while (found.more) {
        found = fsio_check_stripes(io, ino, found.next);
        if (found.bad < 0) continue;
        fsio_tell_damage(io, ino, found.bad, NULL);
        return false;
    }
    return true;
}

int fsio_gather_now(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size, uint64_t since) {
    struct fsio_fresh whole;
    if (stripe == 0) return EINVAL;
    char *buffer = malloc(GATHER_BYTES);
    int error = buffer == NULL ? ENOMEM : fsio_fresh_open(io, ino, &whole);
    bool opened = error == 0;
    if (opened) error = gather_into(&whole, buffer, stripe, size);
    if (error == 0 && fsio_stripes_lost(io, ino, stripe, fsio_is_copied(io, ino), 0, size, since)) error = EIO;
    if (error == 0 && !own_stripes_are_fine(io, ino)) error = EIO; /* it may go better when they have been mended */
    if (error == 0 && ftruncate(whole.fd, (off_t)size) != 0) error = errno;
    free(buffer);
    return opened ? fsio_fresh_end(&whole, FSIO_WHOLE, NULL, error) : error;
}
