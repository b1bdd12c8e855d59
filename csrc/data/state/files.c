/* The table of the files that are open here, whatever their kind. */
#include "state.h"

#include <stdlib.h>

static struct fsio_file **bucket_of(struct fsio *io, uint64_t ino) {
    return &io->files[(ino * 0x9E3779B97F4A7C15u >> 40) % FSIO_FILE_BUCKETS];
}

struct fsio_file *fsio_file_look(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = *bucket_of(io, ino);
    while (file != NULL && file->ino != ino) file = file->next;
    return file;
}

struct fsio_file *fsio_file_find(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->files_lock);
    struct fsio_file *file = fsio_file_look(io, ino);
    if (file != NULL) file->references++;
    pthread_mutex_unlock(&io->files_lock);
    return file;
}

static struct fsio_file *new_file(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = calloc(1, sizeof *file);
    if (file != NULL) file->open = opens_hold(io->opens, ino);
    if (file == NULL || file->open == NULL) {
        free(file);
        return NULL;
    }
    file->io = io;
    file->ino = ino;
    file->fd = -1;
    fsio_fair_lock(&file->gate);
    pthread_mutex_init(&file->lock, NULL);
    pthread_cond_init(&file->changed, NULL);
    return file;
}

static void free_file(struct fsio_file *file) {
    file->io->leave_file(file);
    while (file->users != NULL) {
        struct fsio_users *next = file->users->next;
        fsio_count(file, OPEN_NODES, false, -file->users->readers);
        fsio_count(file, OPEN_NODES, true, -file->users->writers);
        free(file->users);
        file->users = next;
    }
    opens_release(file->io->opens, file->open);
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->lock);
    pthread_rwlock_destroy(&file->gate);
    free(file);
}

bool fsio_file_unlink(struct fsio_file *file) {
    if (--file->references > 0) return false;
    struct fsio_file **at = bucket_of(file->io, file->ino);
    while (*at != file) at = &(*at)->next;
    *at = file->next;
    return true;
}

void fsio_file_drop(struct fsio_file *file) {
    struct fsio *io = file->io;
    pthread_mutex_lock(&io->files_lock);
    bool last = fsio_file_unlink(file);
    pthread_mutex_unlock(&io->files_lock);
    if (last) free_file(file);
}

struct fsio_file *fsio_file_make(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = fsio_file_find(io, ino);
    if (file != NULL) return file;
    struct fsio_file *fresh = new_file(io, ino);
    if (fresh == NULL) return NULL;
    pthread_mutex_lock(&io->files_lock);
    file = fsio_file_look(io, ino);
    if (file == NULL) {
        file = fresh;
        file->next = *bucket_of(io, ino);
        *bucket_of(io, ino) = file;
        fresh = NULL;
    }
    file->references++;
    pthread_mutex_unlock(&io->files_lock);
    if (fresh != NULL) free_file(fresh);
    return file;
}

struct dropping {
    struct fsio_job job;
    struct fsio_file *file;
    void (*how)(struct fsio_file *file);
};

static void drop(struct fsio *io, struct fsio_job *job, bool stopped) {
    struct dropping *dropping = (struct dropping *)(void *)job;
    (void)io;
    (void)stopped;
    dropping->how(dropping->file);
    free(dropping);
}

static void do_later(struct fsio_file *file, void (*how)(struct fsio_file *file)) {
    struct dropping *dropping = malloc(sizeof *dropping);
    if (dropping != NULL)
        *dropping = (struct dropping){.job = {.name = "the closing of file", .ino = file->ino, .run = drop}, .file = file, .how = how};
    if (dropping != NULL && fsio_enqueue(&file->io->workers, &dropping->job)) return;
    free(dropping);
    how(file);
}

void fsio_drop_later(struct fsio_file *file) { do_later(file, fsio_file_drop); }

void fsio_free_later(struct fsio_file *file) { do_later(file, free_file); }

struct fsio_file *fsio_file_enter(struct fsio *io, uint64_t ino) {
    struct fsio_file *file = fsio_file_make(io, ino);
    if (file == NULL) return NULL;
    bool entered = pthread_rwlock_trywrlock(&file->gate) == 0;
    pthread_mutex_lock(&io->files_lock);
    bool alone = file->references == 1; /* threads that come from now on wait at the gate, or have not opened anything yet */
    pthread_mutex_unlock(&io->files_lock);
    if (entered && alone) return file;
    if (entered) pthread_rwlock_unlock(&file->gate);
    fsio_file_drop(file);
    return NULL;
}

void fsio_file_exit(struct fsio_file *file) {
    pthread_rwlock_unlock(&file->gate);
    fsio_file_drop(file);
}

bool fsio_has_writers(const struct fsio_file *file) { return open_data_writes(file->open); }

void fsio_count(struct fsio_file *file, enum open_user user, bool writing, int by) {
    opens_count(file->io->opens, file->open, user, writing, by);
}

bool fsio_file_written(struct fsio_file *file) {
    pthread_mutex_lock(&file->lock);
    bool written = fsio_has_writers(file);
    pthread_mutex_unlock(&file->lock);
    return written;
}

int64_t fsio_deleted_bytes(struct fsio *io) {
    int64_t bytes = 0;
    pthread_mutex_lock(&io->files_lock);
    for (int i = 0; i < FSIO_FILE_BUCKETS; i++)
        for (const struct fsio_file *file = io->files[i]; file != NULL; file = file->next)
            if (atomic_load(&file->gone) && atomic_load(&file->counted)) bytes += atomic_load(&file->accounted);
    pthread_mutex_unlock(&io->files_lock);
    return bytes;
}
