/* Files that are open here and that other nodes use through this one: the other side of remote.c. */
#include "fsio_internal.h"

#include <stdlib.h>

/* With the file's lock held. */
static struct fsio_users **find_user(struct fsio_file *file, int32_t node) {
    struct fsio_users **at = &file->users;
    while (*at != NULL && (*at)->peer != node) at = &(*at)->next;
    return at;
}

/* Set the uses that a node has of the file through this one. With the file's lock held. */
static void count_use(struct fsio_file *file, struct fsio_users *user, int readers, int writers) {
    fsio_count(file, OPEN_NODES, false, readers - user->readers);
    fsio_count(file, OPEN_NODES, true, writers - user->writers);
    user->readers = readers;
    user->writers = writers;
}

/* Take a node's use away. True: it was the last of any node. With the file's lock held. */
static bool end_use(struct fsio_file *file, int32_t node, bool *had) {
    struct fsio_users **at = find_user(file, node), *user = *at;
    *had = user != NULL;
    if (user == NULL) return false;
    *at = user->next;
    count_use(file, user, 0, 0);
    free(user);
    return file->users == NULL;
}

static void tell_closed(struct fsio_file *file) {
    fsio_tell(file->io, FSIO_EVENT_REMOTE_CLOSED, 0, file->ino, atomic_load(&file->size), 0);
}

/* A file for a node that wants to use it through us: active, or its whole content lies here. */
static struct fsio_file *file_for_use(struct fsio *io, uint64_t ino) {
    struct fsio_handle *handle;
    struct fsio_file *file = fsio_file_find(io, ino);
    if (file != NULL) return file;
    if (fsio_open(io, ino, FSIO_LOCAL, -1, 0, 0, false, false, &handle) != 0) return NULL;
    file = fsio_file_find(io, ino);
    fsio_close(handle);
    return file;
}

/* A node that wants to write is let in by a user that writes here already, whose closing then takes notice. The file was opened for that, but it may have
 * been closed again since. ESTALE: then. */
int fsio_file_used(struct fsio *io, int32_t node, uint64_t ino, int readers, int writers) {
    struct fsio_file *file = readers > 0 && writers == 0 ? file_for_use(io, ino) : fsio_file_find(io, ino);
    bool had = false, last = false, fewer = false;
    int error = 0;
    if (file == NULL) return readers + writers > 0 ? ESTALE : 0;
    /* Passing on what a third node has would go in circles; so would waiting for the gate, if that node opens it through us at this moment. */
    if (!atomic_load(&file->serves) && readers + writers > 0) {
        fsio_file_drop(file);
        return ESTALE;
    }
    pthread_mutex_lock(&io->files_lock);
    pthread_mutex_lock(&file->lock);
    struct fsio_users *user = *find_user(file, node);
    uint64_t seen = user != NULL ? user->errors_seen : file->error_count;
    if (user != NULL) fewer = writers < user->writers;
    if (fewer && writers == 0 && file->kind == FSIO_STRIPED) fsio_end_keep(file); /* before it has gone: somebody may open it right then */
    if (readers + writers == 0) {
        last = end_use(file, node, &had);
    } else if (writers > 0 && !fsio_has_writers(file)) {
        error = ESTALE;
    } else {
        if (user == NULL && (user = calloc(1, sizeof *user)) != NULL) {
            *user = (struct fsio_users){.next = file->users, .peer = node, .errors_seen = seen};
            file->users = user;
            had = true;
        }
        if (user == NULL) {
            error = ENOMEM;
        } else {
            count_use(file, user, readers, writers);
        }
    }
    pthread_mutex_unlock(&file->lock);
    pthread_mutex_unlock(&io->files_lock);
    if (writers > 0 && error == 0) fsio_digest_forget(io, ino);
    if (fewer) fsio_digest_closed(io, ino);
    if (fewer && atomic_load(&file->serves)) {
        pthread_rwlock_rdlock(&file->gate);
        error = fsio_file_flush(file, &seen);
        pthread_rwlock_unlock(&file->gate);
    }
    if (last) tell_closed(file);
    bool begins = error == 0 && readers + writers > 0 &&
                  had; /* a user holds a reference as a handle does: the one just found, or the one it gives back */
    if (!begins) fsio_file_drop(file);
    if (readers + writers == 0 && had) fsio_file_drop(file);
    return error;
}

/* Does that node use the file; if it writes, *error is a failure of writing behind that is news to it. */
bool fsio_file_uses(struct fsio_file *file, int32_t node, int *error) {
    pthread_mutex_lock(&file->lock);
    struct fsio_users *user = *find_user(file, node);
    if (user != NULL && user->writers > 0 && user->errors_seen != file->error_count) {
        user->errors_seen = file->error_count;
        *error = file->error;
    }
    pthread_mutex_unlock(&file->lock);
    return user != NULL;
}

int fsio_file_used_flush(struct fsio_file *file, int32_t node) {
    int error = 0;
    pthread_rwlock_rdlock(&file->gate);
    if (file->kind == FSIO_STRIPED) fsio_striped_settle(file);
    bool lost = fsio_file_lost(file);
    pthread_rwlock_unlock(&file->gate);
    if (!fsio_file_uses(file, node, &error)) return ESTALE;
    return error == 0 && lost ? EIO : error;
}

/* A node is gone. The files are found again for each: the table may change as they are dropped. */
void fsio_files_forget(struct fsio *io, int32_t node) {
    for (int i = 0; i < FSIO_FILE_BUCKETS; i++) {
        for (;;) {
            struct fsio_file *found = NULL;
            bool had = false;
            pthread_mutex_lock(&io->files_lock);
            for (struct fsio_file *file = io->files[i]; file != NULL && found == NULL; file = file->next) {
                pthread_mutex_lock(&file->lock);
                if (*find_user(file, node) != NULL) found = file;
                pthread_mutex_unlock(&file->lock);
            }
            if (found != NULL) found->references++;
            pthread_mutex_unlock(&io->files_lock);
            if (found == NULL) break;
            pthread_mutex_lock(&found->lock);
            bool last = end_use(found, node, &had);
            pthread_mutex_unlock(&found->lock);
            if (last) tell_closed(found);
            if (had) fsio_drop_later(found);
            fsio_drop_later(found);
        }
    }
}
