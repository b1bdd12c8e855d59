/* Striped files but for reading and writing, which is in striped/pieces.c: truncation, holes, the room that they take. */
#include "striped.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SUM_MS = 1000, /* how old the sum of a file's blocks may be */
    BATCH = 64, /* stripes after which it is asked again where the next one is */
};

/* ── all of it ── with the gate held alone, or for reading where it says so */

int fsio_striped_truncate(struct fsio_file *file, uint64_t size) {
    fsio_striped_leave(file);
    uint64_t old = atomic_load(&file->size), since = atomic_load(&file->io->lost_version);
    int error = fsio_stripes_trim(file->io, file->ino, file->stripe, file->copied, size, old);
    if (error != 0) return error;
    atomic_store(&file->size, size);
    if (size == 0) fsio_not_lost(file, since, false); /* the lost stripes are not part of it any more */
    fsio_striped_touch(file);
    return 0;
}

/* Of the stripes that are there, few as they may be. */
static int punch(struct fsio_file *file, uint64_t offset, uint64_t end) {
    uint64_t stripe = file->stripe, last = end == 0 ? 0 : (end - 1) / stripe;
    int error = 0;
    for (unsigned turn = 0; error == 0 && offset < end; turn++) {
        uint64_t index = offset / stripe;
        if (turn % BATCH == 0) error = fsio_next_stripe(file->io, file->ino, index, last, file->copied, &index);
        if (error != 0 || index > last) break;
        if (offset < index * stripe) offset = index * stripe;
        uint64_t at = offset % stripe, count = stripe - at < end - offset ? stripe - at : end - offset;
        error = fsio_stripe_punch(file, index, at, count);
        offset += count;
    }
    return error;
}

int fsio_striped_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length) {
    uint64_t size = atomic_load(&file->size), end = offset + length;
    if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
        fsio_striped_leave(file);
        int error = punch(file, offset, end < size ? end : size);
        fsio_striped_touch(file);
        return error;
    }
    if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0) return EOPNOTSUPP;
    if (mode == 0 && end > size) atomic_store(&file->size, end); /* nothing can be set aside at so many owners */
    fsio_striped_touch(file);
    return 0;
}

/* Where in a stripe data or a hole begins, from `at` on. ENXIO: no data / it is a hole. */
static int seek_stripe(struct fsio_file *file, uint64_t index, uint64_t at, int whence, uint64_t *found) {
    struct fsio *io = file->io;
    struct data_request request = {.op = OP_SEEK, .flag = (uint8_t)whence, .ino = file->ino, .index = (int64_t)index, .offset = at};
    struct data_reply reply;
    int32_t owner = fsio_stripe_owner(io, file->ino, index);
    if (owner < 0) return EIO;
    if (owner != io->node) {
        int error = data_call(&io->client, owner, LANE_PARTS, &request, NULL, &reply, NULL, 0);
        *found = reply.value;
        return error;
    }
    int part = fsio_part_open(io, file->ino, (int64_t)index, PART_READ);
    if (part < 0) return -part == ENOENT ? ENXIO : -part;
    off_t position = lseek(part, (off_t)at, whence);
    int error = position < 0 ? errno : 0;
    close(part);
    *found = (uint64_t)position;
    return error;
}

int fsio_striped_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found) {
    fsio_striped_settle(file);
    uint64_t size = atomic_load(&file->size), index, position = 0;
    if (offset >= size) return ENXIO;
    while (offset < size) {
        index = offset / file->stripe;
        int error = seek_stripe(file, index, offset % file->stripe, whence, &position);
        if (error != 0 && error != ENXIO) return error;
        if (whence == SEEK_HOLE && error == ENXIO) position = offset % file->stripe;
        if ((error == 0 || whence == SEEK_HOLE) && position < file->stripe) {
            position += index * file->stripe;
            if (position >= size && whence == SEEK_DATA) return ENXIO;
            *found = position < size ? position : size;
            return 0;
        }
        uint64_t last = (size - 1) / file->stripe;
        if (whence == SEEK_HOLE) index++;
        else if ((error = fsio_next_stripe(file->io, file->ino, index + 1, last, file->copied, &index)) != 0) return error;
        offset = index > last ? size : index * file->stripe;
    }
    *found = size;
    return whence == SEEK_HOLE ? 0 : ENXIO;
}

int fsio_striped_stat(struct fsio_file *file, struct data_stat *stat) {
    struct data_stat sum = {0};
    pthread_mutex_lock(&file->lock);
    bool fresh = file->sum_ms != 0 && now_ms() - file->sum_ms < SUM_MS;
    if (fresh) sum = file->sum;
    pthread_mutex_unlock(&file->lock);
    if (!fresh) {
        int error = fsio_stripes_total(file, &sum);
        if (error != 0) sum.blocks = (atomic_load(&file->size) + 511) / 512; /* an owner is away: a guess is better than no answer */
        pthread_mutex_lock(&file->lock);
        file->sum = sum;
        file->sum_ms = error == 0 ? now_ms() : 0;
        pthread_mutex_unlock(&file->lock);
    }
    *stat = (struct data_stat){.size = atomic_load(&file->size), .blocks = sum.blocks};
    stat->atime = atomic_load(&file->read_ns);
    stat->mtime = atomic_load(&file->written_ns);
    stat->ctime = atomic_load(&file->changed_ns);
    return 0;
}

/* ── life ── */

bool fsio_striped_make(struct fsio *io) {
    struct fsio_striped *striped = io->striped = calloc(1, sizeof *striped);
    if (striped == NULL) return false;
    for (int i = 0; i < FSIO_COPY_LOCKS; i++) {
        pthread_mutex_init(&striped->passing_on[i], NULL);
        pthread_mutex_init(&striped->taking[i], NULL);
    }
    fsio_fair_lock(&striped->writes);
    pthread_mutex_init(&striped->carriers_lock, NULL);
    pthread_cond_init(&striped->carriers_work, NULL);
    striped->carry_tail = &striped->carry_head;
    return true;
}

void fsio_striped_free(struct fsio *io) {
    struct fsio_striped *striped = io->striped;
    fsio_spares_free(io);
    for (int i = 0; i < FSIO_COPY_LOCKS; i++) {
        pthread_mutex_destroy(&striped->passing_on[i]);
        pthread_mutex_destroy(&striped->taking[i]);
    }
    pthread_rwlock_destroy(&striped->writes);
    pthread_mutex_destroy(&striped->carriers_lock);
    pthread_cond_destroy(&striped->carriers_work);
    free(striped->copies);
    free(striped);
}
