/* Files that another node has open for writing: everything goes through that node. And its side of that: who uses files through this node. */
#include "fsio_internal.h"

#include <stdlib.h>
#include <time.h>

enum {
    WINDOW = 8, /* pieces of DATA_CHUNK asked for before the first is heard */
    OPEN_TRIES = 20, /* to read: that node may be about to open it itself: a second in all */
    OPEN_WAIT_MS = 50,
};

static struct data_request request_of(const struct fsio_file *file, enum data_op op) {
    return (struct data_request){.op = (uint8_t)op, .ino = file->ino, .index = FSIO_WHOLE};
}

static int call(struct fsio_file *file, const struct data_request *request, struct data_reply *reply) {
    return data_call(&file->io->client, file->node, LANE_FILES, request, NULL, reply, NULL, 0);
}

/* ── use ── with the gate held alone */

static int tell_use(struct fsio_file *file, bool reading, bool writing) {
    struct data_request request = request_of(file, OP_USE);
    struct data_reply reply;
    request.offset = reading;
    request.length = writing;
    return call(file, &request, &reply);
}

int fsio_remote_use(struct fsio_file *file, bool opening) {
    int error = 0;
    pthread_mutex_lock(&file->lock);
    bool reading = file->readers > 0, writing = file->writers > 0;
    pthread_mutex_unlock(&file->lock);
    if (reading == file->told_reading && writing == file->told_writing) return 0;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        error = tell_use(file, reading, writing);
        if (error != ESTALE || !opening || writing || atomic_load(&file->io->stopping)) break;
        struct timespec pause = {.tv_nsec = OPEN_WAIT_MS * 1000000};
        nanosleep(&pause, NULL);
    }
    if (error == 0 || !opening) {
        file->told_reading = reading;
        file->told_writing = writing;
    }
    return error;
}

void fsio_remote_leave(struct fsio_file *file) {
    if (file->told_reading || file->told_writing)
        tell_use(file, false, false); /* if it fails, that node is dead or will hear that we are */
    file->told_reading = file->told_writing = false;
}

/* ── reading and writing ── */

int fsio_remote_read(struct fsio_file *file, char *to, size_t count, uint64_t offset, size_t *got) {
    struct fsio *io = file->io;
    struct data_link *link;
    int error = DATA_BROKEN;
    for (int tries = 0; error == DATA_BROKEN && tries < 2; tries++) {
        size_t asked = 0, heard = 0; /* bytes */
        bool end = false;
        error = data_link_get(&io->client, file->node, LANE_FILES, tries > 0, &link);
        if (error != 0) break;
        bool used = link->used;
        *got = 0;
        int fault = 0;
        while (error == 0 && heard < count && (!end || heard < asked)) {
            if (!end && asked < count && asked - heard < WINDOW * (size_t)DATA_CHUNK) {
                struct data_request request = request_of(file, OP_FILE_READ);
                request.offset = offset + asked;
                request.length = count - asked < DATA_CHUNK ? count - asked : DATA_CHUNK;
                error = data_ask(link, &request, NULL);
                asked += request.length;
                continue;
            }
            struct data_reply reply;
            size_t piece = count - heard < DATA_CHUNK ? count - heard : DATA_CHUNK;
            error = data_hear(link, &reply);
            if (error == 0 && reply.length > piece) error = EPROTO;
            if (error == 0) error = data_receive(link->fd, to + heard, reply.length);
            if (error == 0 && !end) *got += reply.length;
            heard += piece;
            end |= reply.length < piece; /* what is still on its way is heard, and does not count */
            if (error == 0 && fault == 0) fault = reply.error;
        }
        data_link_put(&io->client, link, error != 0);
        if (error == 0) error = fault;
        if (!used) break;
    }
    return fsio_result(io, error);
}

int fsio_remote_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset) {
    struct fsio *io = file->io;
    struct data_link *link;
    int error = DATA_BROKEN;
    for (int tries = 0; error == DATA_BROKEN && tries < 2; tries++) {
        size_t asked = 0, heard = 0; /* bytes */
        error = data_link_get(&io->client, file->node, LANE_FILES, tries > 0, &link);
        if (error != 0) break;
        bool used = link->used;
        int fault = 0;
        while (error == 0 && heard < count) {
            if (asked < count && fault == 0 && asked - heard < WINDOW * (size_t)DATA_CHUNK) {
                struct data_request request = request_of(file, OP_FILE_WRITE);
                request.offset = offset == FSIO_APPEND ? offset : offset + asked;
                request.length = count - asked < DATA_CHUNK ? count - asked : DATA_CHUNK;
                error = data_ask(link, &request, from + asked);
                asked += request.length;
                continue;
            }
            if (heard >= asked) break; /* given up after a fault */
            struct data_reply reply;
            error = data_hear(link, &reply);
            if (error == 0 && reply.length > 0) error = EPROTO;
            if (error == 0 && fault == 0) fault = reply.error;
            heard += count - heard < DATA_CHUNK ? count - heard : DATA_CHUNK;
        }
        data_link_put(&io->client, link, error != 0);
        if (error == 0) error = fault;
        if (!used || (offset == FSIO_APPEND && heard > 0)) break; /* some of it may stand there already */
    }
    return fsio_result(io, error);
}

int fsio_remote_truncate(struct fsio_file *file, uint64_t size) {
    struct data_request request = request_of(file, OP_FILE_TRUNCATE);
    struct data_reply reply;
    request.offset = size;
    return call(file, &request, &reply);
}

int fsio_remote_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length) {
    struct data_request request = request_of(file, OP_FILE_ALLOCATE);
    struct data_reply reply;
    request.offset = offset;
    request.length = length;
    request.extra = (uint64_t)(unsigned)mode;
    return call(file, &request, &reply);
}

int fsio_remote_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found) {
    struct data_request request = request_of(file, OP_FILE_SEEK);
    struct data_reply reply;
    request.offset = offset;
    request.flag = (uint8_t)whence;
    int error = call(file, &request, &reply);
    if (error == 0) *found = reply.value;
    return error;
}

int fsio_remote_stat(struct fsio_file *file, struct data_stat *stat) {
    struct data_request request = request_of(file, OP_FILE_STAT);
    return data_call_stat(&file->io->client, file->node, LANE_FILES, &request, stat);
}

int fsio_remote_flush(struct fsio_file *file) {
    struct data_request request = request_of(file, OP_FILE_FLUSH);
    struct data_reply reply;
    return call(file, &request, &reply);
}

/* ── the other side: files of ours that others use ── */

/* With the file's lock held. */
static struct fsio_users **find_user(struct fsio_file *file, int32_t node) {
    struct fsio_users **at = &file->users;
    while (*at != NULL && (*at)->peer != node) at = &(*at)->next;
    return at;
}

/* Take a node's use away. True: it was the last of any node. With the file's lock held. */
static bool end_use(struct fsio_file *file, int32_t node, bool *had) {
    struct fsio_users **at = find_user(file, node), *user = *at;
    *had = user != NULL;
    if (user == NULL) return false;
    *at = user->next;
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

/* Who wants to write is let in by somebody who writes here already, and whose closing then takes notice. The file was opened for that, but it may have
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
            user->readers = readers;
            user->writers = writers;
        }
    }
    pthread_mutex_unlock(&file->lock);
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
