/* Reads, writes and other calls on files that are open here, whatever their kind, and the handles on them. */
#include "fsio_internal.h"

#include <stdlib.h>
#include <unistd.h>

void fsio_file_leave(struct fsio_file *file) {
    fsio_striped_leave(file);
    fsio_local_leave(file);
}

/* Without the gate. Once in stripes it stays so while it is written. */
bool fsio_grown(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = fsio_file_look(io, ino);
    bool grown =
        file != NULL && file->kind == FSIO_STRIPED && (fsio_file_ended(file) || (atomic_load(&file->serves) && fsio_file_written(file)));
    pthread_mutex_unlock(&io->files_lock);
    return grown;
}

bool fsio_open_waits(struct fsio *io, uint64_t ino, bool cuts) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = fsio_file_look(io, ino);
    bool waits = file != NULL && (cuts || (file->known && file->kind != FSIO_LOCAL) || file->spreading);
    pthread_mutex_unlock(&io->files_lock);
    return waits;
}

/* Without the gate, which may be held by who waits for another node. Of what is not in stripes nobody looks at them. */
void fsio_set_times(struct fsio *io, uint64_t ino, const int64_t *atime, const int64_t *mtime) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = fsio_file_look(io, ino);
    if (file != NULL && atime != NULL) atomic_store(&file->read_ns, *atime);
    if (file != NULL && mtime != NULL) atomic_store(&file->written_ns, *mtime);
    if (file != NULL) atomic_store(&file->changed_ns, fsio_now_ns());
    pthread_mutex_unlock(&io->files_lock);
}

/* ── opening and closing ── */

/* With the gate held alone: make the file what the one who opens it says it is. While it is written through this node we know better, and until its
 * record knows what was written. */
static int become(struct fsio_file *file, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size, enum part_use use) {
    bool copied = (stripe & FSIO_COPIED) != 0;
    if (file->known && file->kind != FSIO_REMOTE && fsio_file_written(file)) return 0;
    if (fsio_end_holds(file, kind == FSIO_REMOTE)) {
        if (copied) atomic_store(&file->copied, true);
        fsio_striped_leave(file); /* pieces that were read ahead may be old by now */
        return 0;
    }
    stripe &= ~FSIO_COPIED;
    if (file->known && (file->kind != kind || (kind == FSIO_REMOTE && file->node != node))) {
        if (file->kind == FSIO_LOCAL) fsio_local_leave(file);
        if (file->kind == FSIO_REMOTE) fsio_remote_leave(file);
    }
    if (file->known && file->kind == FSIO_LOCAL && kind == FSIO_LOCAL && fsio_local_replaced(file)) {
        if (use != PART_MAKE && !fsio_local_there(file))
            return ENOENT; /* those who have open what was deleted keep it until they close it */
        fsio_local_leave(file);
    }
    fsio_striped_leave(file);
    file->kind = kind;
    file->node = node;
    file->stripe = stripe != 0 ? stripe : FSIO_STRIPE_BYTES;
    file->known = true;
    atomic_store(&file->copied, copied);
    int error = kind == FSIO_LOCAL ? fsio_local_open(file, use) : 0;
    if (kind == FSIO_STRIPED) {
        atomic_store(&file->size, size);
        fsio_striped_begin(file);
        fsio_not_lost(file, atomic_load(&file->io->lost_version), false);
    }
    atomic_store(&file->serves, error == 0 && kind != FSIO_REMOTE);
    return error;
}

static void count_handle(struct fsio_file *file, bool writing, int by) {
    pthread_mutex_lock(&file->lock);
    fsio_count(file, OPEN_HANDLES, writing, by);
    pthread_mutex_unlock(&file->lock);
}

/* A file that is written through this node, or laid in stripes, is known already: a handle on it does not wait for the gate, which is held for long
 * while stripes are sent to other nodes. */
static bool join(struct fsio_file *file, bool writing, bool passing, uint64_t *errors_seen) {
    pthread_mutex_lock(&file->lock);
    bool joined = atomic_load(&file->serves) && !file->lost && (file->spreading || fsio_has_writers(file));
    if (joined && !passing) fsio_count(file, OPEN_HANDLES, writing, 1);
    *errors_seen = file->error_count;
    pthread_mutex_unlock(&file->lock);
    return joined;
}

/* With the gate held alone. */
static int begin_use(struct fsio_file *file, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size, bool writing, bool create,
                     bool passing) {
    int error = become(file, kind, node, stripe, size, create ? PART_MAKE : writing ? PART_WRITE : PART_READ);
    if (error != 0 || passing) return error;
    count_handle(file, writing, 1);
    if (file->kind == FSIO_REMOTE) error = fsio_remote_use(file, true);
    if (error != 0) count_handle(file, writing, -1);
    return error;
}

static int open_file(struct fsio *io, uint64_t ino, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size, bool writing,
                     bool create, bool passing, struct fsio_handle **handle) {
    struct fsio_handle *made = calloc(1, sizeof *made);
    struct fsio_file *file = made == NULL ? NULL : fsio_file_make(io, ino);
    if (file == NULL || atomic_load(&io->stopping)) {
        if (file != NULL) fsio_file_drop(file);
        free(made);
        return file == NULL ? ENOMEM : ECANCELED;
    }
    if (kind == FSIO_REMOTE && node == io->node) kind = FSIO_LOCAL; /* then its file is open here, and knows its kind */
    int error = 0;
    if (join(file, writing, passing, &made->errors_seen)) {
        if ((stripe & FSIO_COPIED) != 0) atomic_store(&file->copied, true);
    } else {
        pthread_rwlock_wrlock(&file->gate);
        error = begin_use(file, kind, node, stripe, size, writing, create, passing);
        made->errors_seen = file->error_count;
        pthread_rwlock_unlock(&file->gate);
    }
    if (error != 0) {
        fsio_file_drop(file);
        free(made);
        return error;
    }
    if (writing) fsio_digest_forget(io, ino); /* it is counted by now */
    made->file = file;
    made->writing = writing;
    made->passing = passing;
    *handle = made;
    return 0;
}

int fsio_open(struct fsio *io, uint64_t ino, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size, bool writing, bool create,
              struct fsio_handle **handle) {
    return open_file(io, ino, kind, node, stripe, size, writing, create, false, handle);
}

int fsio_open_passing(struct fsio *io, uint64_t ino, enum fsio_kind kind, uint32_t stripe, uint64_t size, bool writing, bool create,
                      struct fsio_handle **handle) {
    return open_file(io, ino, kind, -1, stripe, size, writing, create, true, handle);
}

int fsio_close(struct fsio_handle *handle) {
    struct fsio_file *file = handle->file;
    int error = 0;
    pthread_rwlock_wrlock(&file->gate);
    if (handle->writing && file->kind == FSIO_STRIPED) error = fsio_file_flush(file, &handle->errors_seen);
    if (!handle->passing) count_handle(file, handle->writing, -1);
    if (handle->writing && file->kind == FSIO_STRIPED && !fsio_file_written(file)) {
        pthread_mutex_lock(&file->io->files_lock);
        fsio_end_keep(file);
        pthread_mutex_unlock(&file->io->files_lock);
    }
    if (file->kind == FSIO_REMOTE && !handle->passing) {
        int told = fsio_remote_use(file, false); /* which flushes there if that was the last writer */
        if (error == 0 && handle->writing) error = told;
    }
    bool wrote = handle->writing && file->kind == FSIO_LOCAL;
    if (wrote && !fsio_file_written(file)) fsio_local_written(file);
    pthread_rwlock_unlock(&file->gate);
    if (wrote) fsio_digest_closed(file->io, file->ino);
    fsio_file_drop(file);
    free(handle);
    return error;
}

/* ── what files do ── with their gate held: alone to truncate and allocate, else shared */

int fsio_file_read(struct fsio_file *file, struct fsio_stream *stream, void *to, size_t count, uint64_t offset, size_t *got) {
    int error;
    *got = 0;
    if (offset > INT64_MAX || count > INT64_MAX - offset) return EINVAL;
    pthread_rwlock_rdlock(&file->gate);
    switch (file->kind) {
    case FSIO_LOCAL: error = fsio_local_read(file, to, count, offset, got); break;
    case FSIO_REMOTE: error = fsio_remote_read(file, to, count, offset, got); break;
    default: error = fsio_striped_read(file, stream, to, count, offset, got); break;
    }
    if (error == 0 && fsio_file_lost(file)) error = EIO; /* perhaps meanwhile: then these are no bytes of it */
    pthread_rwlock_unlock(&file->gate);
    return error;
}

static int come_back(struct fsio_file *file) {
    pthread_rwlock_wrlock(&file->gate);
    int error = file->kind == FSIO_LOCAL && atomic_load(&file->spilled) ? fsio_bring_back(file, false) : 0;
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_file_write(struct fsio_file *file, const void *from, size_t count, uint64_t offset) {
    size_t done = 0;
    int error;
    if (offset != FSIO_APPEND && (offset > INT64_MAX || count > INT64_MAX - offset)) return EFBIG;
    for (;;) {
        uint64_t since = atomic_load(&file->io->store->room_made);
        int back = file->kind == FSIO_LOCAL && atomic_load(&file->spilled) ? come_back(file) : 0;
        if (back != 0 && back != ENOSPC) return back;
        pthread_rwlock_rdlock(&file->gate);
        enum fsio_kind kind = file->kind;
        switch (kind) {
        case FSIO_LOCAL: error = back != 0 ? back : fsio_local_write(file, from, count, offset, &done); break;
        case FSIO_REMOTE: error = fsio_remote_write(file, from, count, offset); break;
        default:
            error = fsio_file_lost(file)
                        ? EIO
                        : fsio_striped_write(file, (const char *)from + done, count - done, offset == FSIO_APPEND ? offset : offset + done);
        }
        pthread_rwlock_unlock(&file->gate);
        if (kind != FSIO_LOCAL || error != ENOSPC) return error;
        if (fsio_spills(file->io) && fsio_make_room(file->io, count - done, since, true)) continue;
        if (!fsio_has_others(file->io)) return error;
        pthread_rwlock_wrlock(&file->gate);
        error = file->kind == FSIO_LOCAL ? fsio_spread(file, true) : 0; /* another writer may have been here first */
        pthread_rwlock_unlock(&file->gate);
        if (error == ENOSPC && fsio_make_room(file->io, count - done, since, true)) continue; /* not there, but here */
        if (error != 0) return error;
    }
}

int fsio_file_truncate(struct fsio_file *file, uint64_t size) {
    int error;
    if (size > INT64_MAX) return EFBIG;
    pthread_rwlock_wrlock(&file->gate);
    switch (file->kind) {
    case FSIO_LOCAL: error = fsio_local_truncate(file, size); break;
    case FSIO_REMOTE: error = fsio_remote_truncate(file, size); break;
    default: error = size > 0 && fsio_file_lost(file) ? EIO : fsio_striped_truncate(file, size); break;
    }
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_file_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length) {
    int error;
    if (length == 0 || offset > INT64_MAX) return EINVAL;
    if (length > INT64_MAX - offset) return EFBIG;
    uint64_t since = atomic_load(&file->io->store->room_made);
    pthread_rwlock_wrlock(&file->gate);
    if (file->kind == FSIO_LOCAL) {
        error = fsio_local_fallocate(file, mode, offset, length);
        if (error == ENOSPC && fsio_spills(file->io) && fsio_make_room(file->io, length, since, true))
            error = fsio_local_fallocate(file, mode, offset, length);
        if (error == ENOSPC && fsio_has_others(file->io)) error = fsio_spread(file, true);
        if (error == ENOSPC && file->kind == FSIO_LOCAL && fsio_make_room(file->io, length, since, true))
            error = fsio_local_fallocate(file, mode, offset, length);
    } else {
        error = 0;
    }
    if (error == 0 && file->kind == FSIO_REMOTE) error = fsio_remote_fallocate(file, mode, offset, length);
    else if (error == 0 && file->kind == FSIO_STRIPED)
        error = fsio_file_lost(file) ? EIO : fsio_striped_fallocate(file, mode, offset, length);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_file_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found) {
    int error;
    if (whence != SEEK_DATA && whence != SEEK_HOLE) return EINVAL;
    if (offset > INT64_MAX) return ENXIO;
    pthread_rwlock_rdlock(&file->gate);
    switch (file->kind) {
    case FSIO_LOCAL: error = fsio_local_seek(file, offset, whence, found); break;
    case FSIO_REMOTE: error = fsio_remote_seek(file, offset, whence, found); break;
    default: error = fsio_file_lost(file) ? EIO : fsio_striped_seek(file, offset, whence, found); break;
    }
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_file_stat(struct fsio_file *file, struct data_stat *stat) {
    int error;
    pthread_rwlock_rdlock(&file->gate);
    switch (file->kind) {
    case FSIO_LOCAL: error = fsio_local_stat(file, stat); break;
    case FSIO_REMOTE: error = fsio_remote_stat(file, stat); break;
    default: error = fsio_striped_stat(file, stat); break;
    }
    pthread_rwlock_unlock(&file->gate);
    return error;
}

/* With the gate held in any way. `*seen`: failures of writing behind that the asker knows of. */
int fsio_file_flush(struct fsio_file *file, uint64_t *seen) {
    if (file->kind == FSIO_LOCAL) return 0;
    if (file->kind == FSIO_REMOTE) return fsio_remote_flush(file);
    fsio_striped_settle(file);
    int error = fsio_file_error(file, seen);
    return error == 0 && fsio_file_lost(file) ? EIO : error;
}

int fsio_file_error(struct fsio_file *file, uint64_t *seen) {
    int error = 0;
    pthread_mutex_lock(&file->lock);
    if (*seen != file->error_count) error = file->error;
    *seen = file->error_count;
    pthread_mutex_unlock(&file->lock);
    return error;
}

/* ── what handles do ── */

int fsio_read(struct fsio_handle *handle, void *to, size_t count, uint64_t offset, size_t *got) {
    return fsio_file_read(handle->file, &handle->stream, to, count, offset, got);
}

int fsio_read_in_place(struct fsio_handle *handle, void *to, size_t count, uint64_t offset, struct fsio_lent *lent) {
    struct fsio_file *file = handle->file;
    if (offset > INT64_MAX || count > INT64_MAX - offset) return EINVAL;
    pthread_rwlock_rdlock(&file->gate);
    bool lends = file->kind == FSIO_STRIPED && fsio_striped_lends(file, count);
    int error = lends ? fsio_striped_lend(file, &handle->stream, to, count, offset, lent) : EOPNOTSUPP;
    if (error == 0 && fsio_file_lost(file)) {
        fsio_striped_return(file, lent);
        error = EIO;
    }
    pthread_rwlock_unlock(&file->gate);
    if (error != 0) return error;
    pthread_mutex_lock(&file->io->files_lock);
    file->references++;
    pthread_mutex_unlock(&file->io->files_lock);
    lent->file = file;
    return 0;
}

void fsio_return(struct fsio_lent *lent) {
    fsio_striped_return(lent->file, lent);
    fsio_file_drop(lent->file);
}

int fsio_write(struct fsio_handle *handle, const void *from, size_t count, uint64_t offset) {
    if (!handle->writing) return EBADF;
    int error = fsio_file_error(handle->file, &handle->errors_seen);
    if (error == 0) error = fsio_file_write(handle->file, from, count, offset);
    return error == 0 && handle->through ? fsio_flush(handle) : error;
}

int fsio_truncate(struct fsio_handle *handle, uint64_t size) { return handle->writing ? fsio_file_truncate(handle->file, size) : EBADF; }

int fsio_fallocate(struct fsio_handle *handle, int mode, uint64_t offset, uint64_t length) {
    return handle->writing ? fsio_file_fallocate(handle->file, mode, offset, length) : EBADF;
}

int fsio_seek(struct fsio_handle *handle, uint64_t offset, int whence, uint64_t *found) {
    return fsio_file_seek(handle->file, offset, whence, found);
}

int fsio_flush(struct fsio_handle *handle) {
    struct fsio_file *file = handle->file;
    if (!handle->writing) return 0;
    pthread_rwlock_rdlock(&file->gate);
    int error = fsio_file_flush(file, &handle->errors_seen);
    pthread_rwlock_unlock(&file->gate);
    return error;
}

int fsio_lend(struct fsio_handle *handle, int *fd) {
    struct fsio_file *file = handle->file;
    pthread_rwlock_rdlock(&file->gate);
    int error = file->kind == FSIO_LOCAL ? fsio_fd_get(file, PART_READ, fd) : EOPNOTSUPP;
    if (error != 0) pthread_rwlock_unlock(&file->gate);
    return error;
}

void fsio_write_through(struct fsio_handle *handle) { handle->through = true; }

void fsio_lend_end(struct fsio_handle *handle) {
    fsio_fd_put(handle->file);
    pthread_rwlock_unlock(&handle->file->gate);
}

uint64_t fsio_size(struct fsio_handle *handle) { return atomic_load(&handle->file->size); }

enum fsio_kind fsio_kind(const struct fsio_handle *handle) { return handle->file->kind; }

bool fsio_reads_disk(const struct fsio_handle *handle) { return atomic_load(&handle->file->spilled); }

bool fsio_is_local(struct fsio_handle *handle) {
    struct fsio_file *file = handle->file;
    pthread_rwlock_rdlock(&file->gate);
    bool local = file->kind == FSIO_LOCAL;
    pthread_rwlock_unlock(&file->gate);
    return local;
}

static void give_stat(const struct data_stat *stat, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime, int64_t *ctime) {
    *size = stat->size;
    *blocks = stat->blocks;
    *atime = stat->atime;
    *mtime = stat->mtime;
    *ctime = stat->ctime;
}

int fsio_stat(struct fsio_handle *handle, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime, int64_t *ctime) {
    struct data_stat stat = {0};
    int error = fsio_file_stat(handle->file, &stat);
    give_stat(&stat, size, blocks, atime, mtime, ctime);
    return error;
}

int fsio_live(struct fsio *io, uint64_t ino, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime, int64_t *ctime) {
    struct fsio_file *file = fsio_file_find(io, ino);
    struct data_stat stat;
    int error = ENOENT;
    if (file == NULL) return error;
    if (atomic_load(&file->serves) && fsio_file_written(file)) error = fsio_file_stat(file, &stat);
    if (error == 0) give_stat(&stat, size, blocks, atime, mtime, ctime);
    fsio_file_drop(file);
    return error;
}
