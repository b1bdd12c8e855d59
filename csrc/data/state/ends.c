/* Files in stripes that were written here stay in the table from when the last of their writers has gone until their record knows where they end. An
 * opener in between brings the end that the record had before, and would write over bytes behind that; or takes it for a whole file still, if it
 * has grown into stripes meanwhile. */
#include "state.h"

enum { END_MS = 10000 }; /* nobody has said by then that the record knows: it is not going to happen, and others may write */

void fsio_keep_ends(struct fsio *io) { atomic_store(&io->keeps_ends, true); }

void fsio_end_keep(struct fsio_file *file) {
    if (!atomic_load(&file->io->keeps_ends)) return;
    if (file->ended_ms == 0) file->references++;
    file->ended_ms = now_ms();
}

bool fsio_file_ended(const struct fsio_file *file) {
    return file->kind == FSIO_STRIPED && file->ended_ms != 0 && now_ms() - file->ended_ms < END_MS;
}

bool fsio_end_holds(struct fsio_file *file, bool elsewhere) {
    pthread_mutex_lock(&file->io->files_lock);
    bool holds = fsio_file_ended(file) && !elsewhere;
    if (!holds && file->ended_ms != 0) file->references--; /* never the last: the one who opens it has another */
    if (!holds) file->ended_ms = 0;
    pthread_mutex_unlock(&file->io->files_lock);
    return holds;
}

bool fsio_end(struct fsio *io, uint64_t ino, uint64_t *size, int64_t *written_ns) {
    pthread_mutex_lock(&io->files_lock);
    const struct fsio_file *file = fsio_file_look(io, ino);
    bool ended = file != NULL && fsio_file_ended(file);
    if (ended) {
        *size = atomic_load(&file->size);
        *written_ns = atomic_load(&file->written_ns);
    }
    pthread_mutex_unlock(&io->files_lock);
    return ended;
}

/* With files_lock held, which is given up. */
static void end(struct fsio_file *file) {
    struct fsio *io = file->io;
    file->ended_ms = 0;
    bool last = fsio_file_unlink(file);
    pthread_mutex_unlock(&io->files_lock);
    if (last) fsio_free_later(file);
}

void fsio_end_recorded(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = fsio_file_look(io, ino);
    if (file != NULL && file->ended_ms != 0) end(file);
    else pthread_mutex_unlock(&io->files_lock);
}

void fsio_ends_forget(struct fsio *io, bool all) {
    int64_t oldest = now_ms() - (all ? 0 : END_MS);
    for (int i = 0; i < FSIO_FILE_BUCKETS; i++) {
        pthread_mutex_lock(&io->files_lock);
        struct fsio_file *file = io->files[i];
        while (file != NULL && (file->ended_ms == 0 || file->ended_ms > oldest)) file = file->next;
        if (file == NULL) {
            pthread_mutex_unlock(&io->files_lock);
            continue;
        }
        end(file);
        i--; /* once more: the table may have changed */
    }
}

bool fsio_lost(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = fsio_file_look(io, ino);
    bool lost = file != NULL && fsio_file_lost(file);
    pthread_mutex_unlock(&io->files_lock);
    return lost;
}
