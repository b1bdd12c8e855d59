/* Reading and writing striped files: pieces of them in memory that are being read ahead or written behind.
 *
 * A piece lies in one stripe and is at most PIECE_MAX long. A file has few of them at a time, in a list. Those of reading ahead are whole;
 * one that is written has the bytes from..to, contiguous, and goes to its owner when it is full, when others need the room, or on a flush. The
 * carriers, a few threads, do both. Under the file's lock but for the copying itself, during which a piece is pinned. */
#include "striped.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE_MAX = 1 << 20,
    AHEAD_BYTES = 8 << 20,   /* read ahead of one file */
    BEHIND_BYTES = 16 << 20, /* written behind of one file */
    ALL_BYTES = 128 << 20,   /* of all files of this node */
    SPARE_MAX = 32,          /* buffers kept for the next piece */
    CARRIERS_MAX = 8,
    CLEAN_MS = 2000,         /* pieces read ahead are believed for so long */
    NEAR_BYTES = 2 << 20,    /* a kernel that reads ahead asks a little out of order */
};

static const int64_t DAY_NS = INT64_C(86400) * 1000000000;

enum state { READING, CLEAN, DIRTY, WRITING };

struct fsio_piece {
    struct fsio_piece *next;  /* of the file's, newest first */
    struct fsio_piece *after; /* in the carriers' queue */
    struct fsio_file *file;
    uint64_t number;
    size_t length; /* as long as it can be */
    size_t from, to;
    enum state state;
    bool queued, consumed, unlinked;
    int pins;
    int64_t since_ms;
    char *data;
};

struct spare {
    struct spare *next;
    size_t size;
};

/* ── geometry ── */

static uint64_t pieces_per_stripe(const struct fsio_file *file) { return ((uint64_t)file->stripe + PIECE_MAX - 1) / PIECE_MAX; }

static uint64_t number_at(const struct fsio_file *file, uint64_t offset) {
    return offset / file->stripe * pieces_per_stripe(file) + offset % file->stripe / PIECE_MAX;
}

static uint64_t start_of(const struct fsio_file *file, uint64_t number) {
    return number / pieces_per_stripe(file) * file->stripe + number % pieces_per_stripe(file) * PIECE_MAX;
}

static size_t length_of(const struct fsio_file *file, uint64_t number) {
    uint64_t left = file->stripe - number % pieces_per_stripe(file) * PIECE_MAX;
    return left < PIECE_MAX ? (size_t)left : PIECE_MAX;
}

static size_t pieces_most(const struct fsio_file *file, size_t bytes) {
    size_t most = bytes / length_of(file, 0);
    return most < 4 ? 4 : most > 256 ? 256 : most; /* they are in a list */
}

/* ── buffers ── */

static char *get_buffer(struct fsio *io, size_t size) {
    if (atomic_fetch_add(&io->striped->piece_bytes, (int64_t)size) + (int64_t)size > ALL_BYTES) {
        atomic_fetch_sub(&io->striped->piece_bytes, (int64_t)size);
        return NULL;
    }
    pthread_mutex_lock(&io->striped->carriers_lock);
    struct spare **at = &io->striped->spares;
    while (*at != NULL && (*at)->size != size) at = &(*at)->next;
    struct spare *found = *at;
    if (found != NULL) {
        *at = found->next;
        io->striped->spare_count--;
    }
    pthread_mutex_unlock(&io->striped->carriers_lock);
    char *buffer = found != NULL ? (char *)found : malloc(size < sizeof(struct spare) ? sizeof(struct spare) : size);
    if (buffer == NULL) atomic_fetch_sub(&io->striped->piece_bytes, (int64_t)size);
    return buffer;
}

static void put_buffer(struct fsio *io, char *buffer, size_t size) {
    struct spare *spare = (struct spare *)(void *)buffer;
    atomic_fetch_sub(&io->striped->piece_bytes, (int64_t)size);
    pthread_mutex_lock(&io->striped->carriers_lock);
    bool keep = io->striped->spare_count < SPARE_MAX;
    if (keep) {
        *spare = (struct spare){io->striped->spares, size};
        io->striped->spares = spare;
        io->striped->spare_count++;
    }
    pthread_mutex_unlock(&io->striped->carriers_lock);
    if (!keep) free(buffer);
}

/* ── pieces of a file ── with its lock held */

static struct fsio_piece *find_piece(const struct fsio_file *file, uint64_t number) {
    struct fsio_piece *piece = file->pieces;
    while (piece != NULL && piece->number != number) piece = piece->next;
    return piece;
}

static struct fsio_piece *new_piece(struct fsio_file *file, uint64_t number, enum state state) {
    struct fsio_piece *piece = calloc(1, sizeof *piece);
    size_t length = length_of(file, number);
    char *data = piece == NULL ? NULL : get_buffer(file->io, length);
    if (data == NULL) {
        free(piece);
        return NULL;
    }
    *piece = (struct fsio_piece){.next = file->pieces, .file = file, .number = number, .length = length, .state = state, .data = data};
    file->pieces = piece;
    file->piece_count++;
    return piece;
}

static void free_piece(struct fsio *io, struct fsio_piece *piece) {
    put_buffer(io, piece->data, piece->length);
    free(piece);
}

/* Nobody finds it any more; the last thread that has it pinned frees it. */
static void drop_piece(struct fsio_piece *piece) {
    struct fsio_file *file = piece->file;
    struct fsio_piece **at = &file->pieces;
    while (*at != piece) at = &(*at)->next;
    *at = piece->next;
    file->piece_count--;
    piece->unlinked = true;
    if (piece->pins == 0) free_piece(file->io, piece);
    pthread_cond_broadcast(&file->changed);
}

static void unpin(struct fsio_piece *piece) {
    piece->pins--;
    if (piece->unlinked && piece->pins == 0) free_piece(piece->file->io, piece);
}

/* ── the carriers ── */

static void carry_read(struct fsio *io, struct fsio_piece *piece) {
    struct fsio_file *file = piece->file;
    uint64_t start = start_of(file, piece->number);
    int error = fsio_stripe_read(io, file->ino, start / file->stripe, file->copied, start % file->stripe, piece->data, piece->length);
    pthread_mutex_lock(&file->lock);
    piece->queued = false;
    piece->state = CLEAN;
    piece->to = piece->length;
    piece->since_ms = now_ms();
    if (error != 0) drop_piece(piece); /* a reader that needs it asks itself and is told why not */
    else pthread_cond_broadcast(&file->changed);
    file->carried--; /* the last use of the file */
    pthread_mutex_unlock(&file->lock);
}

static void carry_write(struct fsio *io, struct fsio_piece *piece) {
    struct fsio_file *file = piece->file;
    uint64_t at = start_of(file, piece->number) + piece->from;
    int error = fsio_stripe_write(io, file->ino, at / file->stripe, file->copied, at % file->stripe, piece->data + piece->from,
                                  piece->to - piece->from);
    pthread_mutex_lock(&file->lock);
    if (error != 0) {
        file->error = error;
        file->error_count++;
    }
    drop_piece(piece);
    file->carried--;
    pthread_mutex_unlock(&file->lock);
}

static void *carry(void *argument) {
    struct fsio *io = argument;
    pthread_mutex_lock(&io->striped->carriers_lock);
    for (;;) {
        while (io->striped->carry_head == NULL && !atomic_load(&io->stopping)) {
            io->striped->carriers_idle++;
            pthread_cond_wait(&io->striped->carriers_work, &io->striped->carriers_lock);
            io->striped->carriers_idle--;
        }
        struct fsio_piece *piece = io->striped->carry_head;
        if (piece == NULL) break; /* stopping: queued pieces fail quickly, and are still given back in order */
        io->striped->carry_head = piece->after;
        if (io->striped->carry_head == NULL) io->striped->carry_tail = &io->striped->carry_head;
        io->striped->carry_count--;
        pthread_mutex_unlock(&io->striped->carriers_lock);
        if (piece->state == READING) carry_read(io, piece);
        else carry_write(io, piece);
        pthread_mutex_lock(&io->striped->carriers_lock);
    }
    pthread_mutex_unlock(&io->striped->carriers_lock);
    return NULL;
}

/* With the file's lock held: hand it to the carriers. False: there are none, and none can be started. */
static bool enqueue(struct fsio_piece *piece) {
    struct fsio *io = piece->file->io;
    pthread_mutex_lock(&io->striped->carriers_lock);
    if (io->striped->carriers_idle <= io->striped->carry_count && io->striped->carriers < CARRIERS_MAX && !atomic_load(&io->stopping) &&
        new_thread(&io->striped->carrier[io->striped->carriers], carry, io) == 0)
        io->striped->carriers++;
    bool possible = io->striped->carriers > 0 && !atomic_load(&io->stopping);
    if (possible) {
        piece->queued = true;
        piece->after = NULL;
        piece->file->carried++;
        *io->striped->carry_tail = piece;
        io->striped->carry_tail = &piece->after;
        io->striped->carry_count++;
        pthread_cond_signal(&io->striped->carriers_work);
    }
    pthread_mutex_unlock(&io->striped->carriers_lock);
    return possible;
}

void fsio_carriers_stop(struct fsio *io) {
    pthread_mutex_lock(&io->striped->carriers_lock);
    int count = io->striped->carriers;
    pthread_cond_broadcast(&io->striped->carriers_work);
    pthread_mutex_unlock(&io->striped->carriers_lock);
    for (int i = 0; i < count; i++) pthread_join(io->striped->carrier[i], NULL);
    pthread_mutex_lock(&io->striped->carriers_lock);
    io->striped->carriers = 0;
    pthread_mutex_unlock(&io->striped->carriers_lock);
}

void fsio_spares_free(struct fsio *io) {
    while (io->striped->spares != NULL) {
        struct spare *next = io->striped->spares->next;
        free(io->striped->spares);
        io->striped->spares = next;
    }
}

/* ── sending what is written ── with the file's lock held */

static void send_off(struct fsio_piece *piece) {
    piece->state = WRITING;
    if (enqueue(piece)) return;
    struct fsio_file *file = piece->file; /* stopped, or no thread to be had */
    file->error = atomic_load(&file->io->stopping) ? ECANCELED : EAGAIN;
    file->error_count++;
    drop_piece(piece);
}

static void settle(struct fsio_file *file) {
    for (;;) {
        struct fsio_piece *piece = file->pieces;
        while (piece != NULL && piece->state != DIRTY) piece = piece->next;
        if (piece == NULL) break;
        send_off(piece);
    }
    for (;;) {
        struct fsio_piece *piece = file->pieces;
        while (piece != NULL && piece->state != WRITING) piece = piece->next;
        if (piece == NULL) return;
        pthread_cond_wait(&file->changed, &file->lock);
    }
}

void fsio_striped_settle(struct fsio_file *file) {
    pthread_mutex_lock(&file->lock);
    settle(file);
    file->sum_ms = 0;
    pthread_mutex_unlock(&file->lock);
}

/* Take back reads ahead that have not begun: nobody wants them any more. */
static void withdraw(struct fsio_file *file) {
    struct fsio *io = file->io;
    struct fsio_piece *taken = NULL;
    pthread_mutex_lock(&io->striped->carriers_lock);
    for (struct fsio_piece **at = &io->striped->carry_head; *at != NULL;) {
        struct fsio_piece *piece = *at;
        if (piece->file == file && piece->state == READING) {
            *at = piece->after;
            piece->after = taken;
            taken = piece;
            io->striped->carry_count--;
        } else {
            at = &piece->after;
        }
    }
    io->striped->carry_tail = &io->striped->carry_head;
    while (*io->striped->carry_tail != NULL) io->striped->carry_tail = &(*io->striped->carry_tail)->after;
    pthread_mutex_unlock(&io->striped->carriers_lock);
    while (taken != NULL) {
        struct fsio_piece *piece = taken;
        taken = piece->after;
        file->carried--;
        drop_piece(piece);
    }
}

void fsio_striped_leave(struct fsio_file *file) {
    pthread_mutex_lock(&file->lock);
    settle(file);
    withdraw(file);
    while (file->pieces != NULL || file->carried > 0) { /* the rest was read ahead */
        struct fsio_piece *piece = file->pieces;
        while (piece != NULL && piece->state != CLEAN) piece = piece->next;
        if (piece != NULL) drop_piece(piece);
        else pthread_cond_wait(&file->changed, &file->lock);
    }
    pthread_mutex_unlock(&file->lock);
}

/* ── writing ── */

static int write_piece(struct fsio_file *file, uint64_t number, size_t from, const char *bytes, size_t count) {
    bool taken = false;
    pthread_mutex_lock(&file->lock);
    while (!taken) {
        struct fsio_piece *piece = find_piece(file, number);
        if (piece != NULL && (piece->state == READING || piece->state == WRITING || piece->pins > 0)) {
            pthread_cond_wait(&file->changed, &file->lock);
        } else if (piece != NULL && piece->state == CLEAN) {
            drop_piece(piece);
        } else if (piece != NULL && (from > piece->to || from + count < piece->from)) {
            send_off(piece); /* a gap between them: the one before goes first */
        } else if (piece != NULL) {
            memcpy(piece->data + from, bytes, count);
            if (from < piece->from) piece->from = from;
            if (from + count > piece->to) piece->to = from + count;
            if (piece->from == 0 && piece->to == piece->length) send_off(piece);
            taken = true;
        } else if (fsio_stripe_owner(file->io, file->ino, start_of(file, number) / file->stripe) == file->io->node) {
            break; /* ours: nothing is faster than the part itself */
        } else if (file->piece_count >= pieces_most(file, BEHIND_BYTES)) {
            struct fsio_piece *oldest = NULL, *any = NULL; /* make room: something read ahead, or the oldest that is not on its way */
            for (struct fsio_piece *other = file->pieces; other != NULL; other = other->next) {
                if (other->state == CLEAN && other->pins == 0) any = other;
                if (other->state == DIRTY && other->pins == 0) oldest = other;
            }
            if (any != NULL) drop_piece(any);
            else if (oldest != NULL) send_off(oldest);
            else pthread_cond_wait(&file->changed, &file->lock);
        } else if ((piece = new_piece(file, number, DIRTY)) != NULL) {
            piece->from = piece->to = from;
        } else {
            break; /* no memory for it: without delay */
        }
    }
    pthread_mutex_unlock(&file->lock);
    if (taken) return 0;
    uint64_t at = start_of(file, number) + from;
    return fsio_stripe_write(file->io, file->ino, at / file->stripe, file->copied, at % file->stripe, bytes, count);
}

static void grow(struct fsio_file *file, uint64_t end) {
    uint64_t size = atomic_load(&file->size);
    while (end > size && !atomic_compare_exchange_weak(&file->size, &size, end)) continue;
}

int fsio_striped_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset) {
    uint64_t before = atomic_load(&file->io->lost_version);
    int error = 0;
    if (offset == FSIO_APPEND)
        offset = atomic_fetch_add(&file->size, count); /* the place is ours; until the bytes are there it reads as zeros */
    if (offset > INT64_MAX - count) return EFBIG;
    fsio_striped_touch(file);
    while (count > 0 && error == 0) {
        uint64_t number = number_at(file, offset);
        size_t at = (size_t)(offset - start_of(file, number)), left = length_of(file, number) - at;
        size_t piece = count < left ? count : left;
        error = write_piece(file, number, at, from, piece);
        if (error != 0) break;
        from += piece;
        offset += piece;
        count -= piece;
        grow(file, offset);
        /* It may have been taken by a node that has died since: nobody has counted that as a part of the file yet. */
        if (fsio_stripes_lost(file->io, file->ino, file->stripe, file->copied, offset - piece, offset, before)) {
            atomic_store(&file->torn, true);
            error = EIO;
        }
    }
    return error;
}

/* ── reading ── */

/* With the file's lock held. Start reading that piece if it is not there. False: no more now. */
static bool read_ahead(struct fsio_file *file, uint64_t number, size_t most) {
    if (find_piece(file, number) != NULL) return true;
    if (fsio_stripe_owner(file->io, file->ino, start_of(file, number) / file->stripe) == file->io->node) return true; /* near enough */
    while (file->piece_count >= most) {
        struct fsio_piece *oldest = NULL;
        for (struct fsio_piece *piece = file->pieces; piece != NULL; piece = piece->next)
            if (piece->state == CLEAN && piece->pins == 0 && piece->consumed) oldest = piece;
        if (oldest == NULL) return false;
        drop_piece(oldest);
    }
    struct fsio_piece *piece = new_piece(file, number, READING);
    if (piece == NULL) return false;
    if (enqueue(piece)) return true;
    piece->state = CLEAN;
    drop_piece(piece);
    return false;
}

/* Plan the reads ahead after a read of offset..offset+count. */
static void plan_ahead(struct fsio_file *file, struct fsio_stream *stream, uint64_t offset, size_t count, uint64_t size) {
    uint64_t next = atomic_load(&stream->next), end = offset + count;
    unsigned run = atomic_load(&stream->run);
    bool near = offset <= next + NEAR_BYTES && next <= end + NEAR_BYTES;
    run = near ? (run < 16 ? run + 1 : run) : 0;
    atomic_store(&stream->run, run);
    if (!near || end > next) atomic_store(&stream->next, end);
    if (run == 0 || end >= size || (run == 1 && count < 4096)) return;
    uint64_t ahead = (uint64_t)length_of(file, 0) << (run < 8 ? run : 8);
    uint64_t last = end + (ahead < AHEAD_BYTES ? ahead : AHEAD_BYTES);
    size_t most = pieces_most(file, 2 * AHEAD_BYTES);
    if (last > size) last = size;
    /* a small read's own piece too: the next read wants the rest of it */
    uint64_t first = count < length_of(file, 0) / 2 ? number_at(file, offset) : number_at(file, end - 1) + 1;
    pthread_mutex_lock(&file->lock);
    for (uint64_t number = first; number <= number_at(file, last - 1) && read_ahead(file, number, most);) number++;
    pthread_mutex_unlock(&file->lock);
}

/* The piece of bytes at..at+count if they are in memory, pinned. Waits for one on its way. */
static struct fsio_piece *pin(struct fsio_file *file, uint64_t number, size_t at, size_t count) {
    struct fsio_piece *piece;
    pthread_mutex_lock(&file->lock);
    while ((piece = find_piece(file, number)) != NULL) {
        if (piece->state == READING) {
            pthread_cond_wait(&file->changed, &file->lock);
            continue;
        }
        if (piece->state == CLEAN && now_ms() - piece->since_ms > CLEAN_MS) {
            drop_piece(piece);
            piece = NULL;
            break;
        }
        if (at >= piece->from && at + count <= piece->to) {
            if (at + count == piece->length) piece->consumed = true;
            piece->pins++;
            break;
        }
        /* some of it was written: to its owner, and from there */
        if (piece->state == DIRTY && piece->pins == 0) send_off(piece);
        else pthread_cond_wait(&file->changed, &file->lock);
    }
    pthread_mutex_unlock(&file->lock);
    return piece;
}

void fsio_striped_return(struct fsio_file *file, struct fsio_lent *lent) {
    int first = 0;
    while (first < lent->count && lent->pieces[first] == NULL) first++;
    if (first == lent->count) return;
    pthread_mutex_lock(&file->lock);
    for (int i = first; i < lent->count; i++)
        if (lent->pieces[i] != NULL) unpin(lent->pieces[i]);
    pthread_cond_broadcast(&file->changed);
    pthread_mutex_unlock(&file->lock);
}

/* Bytes that are not in memory are asked for, into `to`. Ends before `count` when it would be in too many parts. */
static int read_some(struct fsio_file *file, char *to, size_t count, uint64_t offset, struct fsio_lent *lent) {
    struct fsio_segment segments[FSIO_LENT_MAX];
    size_t waiting = 0, done = 0;
    while (done < count && lent->count < FSIO_LENT_MAX) { /* in order, so that two who pin what both want do not wait for each other */
        uint64_t number = number_at(file, offset + done);
        size_t at = (size_t)(offset + done - start_of(file, number)), left = length_of(file, number) - at;
        size_t part = count - done < left ? count - done : left;
        struct fsio_piece *piece = pin(file, number, at, part);
        lent->parts[lent->count] = (struct iovec){piece != NULL ? piece->data + at : to + done, part};
        lent->pieces[lent->count++] = piece;
        if (piece == NULL) {
            uint64_t place = offset + done;
            segments[waiting++] = (struct fsio_segment){place / file->stripe, place % file->stripe, to + done, part};
        }
        done += part;
    }
    lent->bytes = done;
    int error = waiting > 0 ? fsio_segments_read(file->io, file->ino, file->copied, segments, waiting) : 0;
    if (error != 0) fsio_striped_return(file, lent);
    return error;
}

bool fsio_striped_lends(const struct fsio_file *file, size_t count) {
    return count <= AHEAD_BYTES && count / length_of(file, 0) + 2 <= FSIO_LENT_MAX;
}

int fsio_striped_lend(struct fsio_file *file, struct fsio_stream *stream, char *to, size_t count, uint64_t offset, struct fsio_lent *lent) {
    uint64_t size = atomic_load(&file->size);
    lent->count = 0;
    lent->bytes = 0;
    if (offset >= size) return 0;
    fsio_striped_looked_at(file);
    if (count > size - offset) count = (size_t)(size - offset);
    if (count > AHEAD_BYTES) count = AHEAD_BYTES; /* a large one in steps, so that the carriers have their part in it */
    plan_ahead(file, stream, offset, count, size);
    return read_some(file, to, count, offset, lent);
}

int fsio_striped_read(struct fsio_file *file, struct fsio_stream *stream, char *to, size_t count, uint64_t offset, size_t *got) {
    struct fsio_lent lent;
    while (*got < count) {
        int error = fsio_striped_lend(file, stream, to + *got, count - *got, offset + *got, &lent);
        if (error != 0) return error;
        if (lent.bytes == 0) break;
        for (int i = 0; i < lent.count; i++) {
            if (lent.pieces[i] != NULL) memcpy(to + *got, lent.parts[i].iov_base, lent.parts[i].iov_len);
            *got += lent.parts[i].iov_len;
        }
        fsio_striped_return(file, &lent);
    }
    return 0;
}

/* ── times ── those of the stripes say nothing: they were written when they were, whatever was set by hand since */

void fsio_striped_begin(struct fsio_file *file) {
    atomic_store(&file->read_ns, 0);
    atomic_store(&file->written_ns, 0);
    atomic_store(&file->changed_ns, 0);
}

void fsio_striped_touch(struct fsio_file *file) {
    int64_t now = fsio_now_ns();
    atomic_store(&file->written_ns, now);
    atomic_store(&file->changed_ns, now);
    pthread_mutex_lock(&file->lock);
    file->sum_ms = 0;
    pthread_mutex_unlock(&file->lock);
}

/* As on tmpfs (relatime): once after each writing, and once a day. */
void fsio_striped_looked_at(struct fsio_file *file) {
    int64_t now = fsio_now_ns(), read = atomic_load(&file->read_ns), written = atomic_load(&file->written_ns);
    if (written == 0 && read == 0) return; /* when it was read before, and when written, its record knows */
    if (read <= written || read <= atomic_load(&file->changed_ns) || now - read > DAY_NS) atomic_store(&file->read_ns, now);
}
