/* Files that another node has open for writing: everything goes through that node. Its side of that is in
 * users.c. */
#include "fsio_internal.h"

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
    bool reading = file->open->counts[OPEN_HANDLES][false] > 0, writing = file->open->counts[OPEN_HANDLES][true] > 0;
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
            end |= reply.length < piece; /* replies that are still on their way are heard, and do not count */
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
