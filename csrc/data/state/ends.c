/* Where files in stripes end that were written here, from when the last of their writers has gone until their record knows. Whoever opens one
 * in between brings the end that the record had before, and would write over what lies behind that; or takes it for a whole file still, if it has grown
 * into stripes meanwhile. */
#include "state.h"

#include <stdlib.h>

enum { END_MS = 10000 }; /* nobody has said by then that the record knows: it is not going to happen, and others may write */

struct fsio_end {
    struct fsio_end *next;
    uint64_t ino, size;
    int64_t written_ns, since_ms;
    uint64_t since; /* as of the file */
    uint32_t stripe;
    bool lost, copied;
};

void fsio_keep_ends(struct fsio *io) { atomic_store(&io->keeps_ends, true); }

/* With ends_lock held: where it is, or would be. What is too old goes. */
static struct fsio_end **find(struct fsio *io, uint64_t ino) {
    struct fsio_end **at = &io->ends;
    int64_t oldest = now_ms() - END_MS;
    while (*at != NULL && (*at)->ino != ino) {
        struct fsio_end *end = *at;
        if (end->since_ms >= oldest) {
            at = &end->next;
        } else {
            *at = end->next;
            free(end);
        }
    }
    return at;
}

void fsio_end_keep(struct fsio_file *file) {
    struct fsio *io = file->io;
    if (!atomic_load(&io->keeps_ends)) return;
    pthread_mutex_lock(&io->ends_lock);
    struct fsio_end **at = find(io, file->ino);
    if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL) (*at)->ino = file->ino;
    if (*at != NULL) {
        (*at)->size = atomic_load(&file->size);
        (*at)->written_ns = atomic_load(&file->written_ns);
        (*at)->since_ms = now_ms();
        (*at)->stripe = file->stripe;
        (*at)->since = atomic_load(&file->since);
        (*at)->lost = atomic_load(&file->torn);
        (*at)->copied = atomic_load(&file->copied);
    }
    pthread_mutex_unlock(&io->ends_lock);
}

bool fsio_end(struct fsio *io, uint64_t ino, uint64_t *size, int64_t *written_ns, uint32_t *stripe) {
    pthread_mutex_lock(&io->ends_lock);
    const struct fsio_end *end = *find(io, ino);
    bool known = end != NULL && now_ms() - end->since_ms < END_MS;
    if (known) {
        *size = end->size;
        *written_ns = end->written_ns;
        *stripe = end->stripe | (end->copied ? FSIO_COPIED : 0);
    }
    pthread_mutex_unlock(&io->ends_lock);
    return known;
}

bool fsio_end_lost(struct fsio *io, uint64_t ino, uint64_t *since, bool *lost) {
    pthread_mutex_lock(&io->ends_lock);
    const struct fsio_end *end = *find(io, ino);
    bool known = end != NULL && now_ms() - end->since_ms < END_MS;
    struct fsio_end copy = known ? *end : (struct fsio_end){0};
    pthread_mutex_unlock(&io->ends_lock);
    if (!known) return false;
    *since = copy.since;
    *lost = copy.lost || fsio_stripes_lost(io, ino, copy.stripe, copy.copied, 0, copy.size, copy.since);
    return true;
}

void fsio_end_written(struct fsio *io, uint64_t ino, int64_t written_ns) {
    pthread_mutex_lock(&io->ends_lock);
    struct fsio_end *end = *find(io, ino);
    if (end != NULL) end->written_ns = written_ns;
    pthread_mutex_unlock(&io->ends_lock);
}

void fsio_end_recorded(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->ends_lock);
    struct fsio_end **at = find(io, ino), *end = *at;
    if (end != NULL) *at = end->next;
    pthread_mutex_unlock(&io->ends_lock);
    free(end);
}

void fsio_ends_free(struct fsio *io) {
    while (io->ends != NULL) {
        struct fsio_end *end = io->ends;
        io->ends = end->next;
        free(end);
    }
}

bool fsio_lost(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = fsio_file_find(io, ino);
    uint64_t since;
    bool lost = false;
    if (file != NULL) {
        lost = fsio_file_lost(file);
        fsio_drop_later(file);
    }
    if (!lost) (void)fsio_end_lost(io, ino, &since, &lost);
    return lost;
}
