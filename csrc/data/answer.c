/* Questions of other nodes, and the answers. A question that makes no sense closes the connection. */
#include "common/extents.h"
#include "fsio_internal.h"
#include "peers/transfer.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct asking { /* one request on its way through here */
    struct fsio *io;
    int fd;
    uint64_t peer; /* a node, or a client */
    char *buffer; /* DATA_CHUNK */
    struct data_request request;
    bool checked, holes; /* READ_CHECKED, READ_HOLES, which are not in the request any more */
};

static bool reply(struct asking *asking, int error, uint64_t value, const void *bytes, size_t count) {
    uint8_t head[REPLY_BYTES] = {0};
    put_le(head, (uint64_t)error, 4);
    put_le(head + 8, count, 8);
    put_le(head + 16, value, 8);
    return data_send(asking->fd, head, sizeof head, bytes, count, false) == 0;
}

static bool reply_stat(struct asking *asking, int error, const struct data_stat *stat) {
    uint8_t bytes[STAT_BYTES];
    put_le(bytes, stat->size, 8);
    put_le(bytes + 8, stat->blocks, 8);
    put_le(bytes + 16, (uint64_t)stat->atime, 8);
    put_le(bytes + 24, (uint64_t)stat->mtime, 8);
    put_le(bytes + 32, (uint64_t)stat->ctime, 8);
    return reply(asking, error, 0, bytes, error == 0 ? sizeof bytes : 0);
}

/* ── parts ── */

/* Of what is asked for: a whole part, or a file of the store. */
static int learn(struct asking *asking, int file, const struct stat *found, uint8_t digest[XXH3_BYTES]) {
    if (asking->request.ino != 0) return fsio_digest_learn(asking->io, asking->request.ino, asking->request.index, file, digest);
    return digests_learn(digests_key_of(found), file, &asking->io->stopping, digest);
}

/* Of a part, or of a file of the store; its digest goes before all of it, if it is asked for and there is one. */
static bool send_file(struct asking *asking, int part, const struct stat *found) {
    uint8_t head[REPLY_BYTES] = {0};
    uint64_t size = (uint64_t)found->st_size, offset = asking->request.offset, there = offset < size ? size - offset : 0;
    uint64_t count = there < asking->request.length ? there : asking->request.length;
    uint8_t digest[XXH3_BYTES];
    bool all = offset == 0 && count == size, holes = all && asking->holes && amfs_has_holes(found);
    bool checked = all && asking->checked && learn(asking, part, found, digest) == 0;
    put_le(head + 4, (found->st_mode & 07777) | (checked ? MODE_CHECKED : 0) | (holes ? MODE_HOLES : 0), 4);
    put_le(head + 8, holes ? (uint64_t)found->st_blocks * 512 : count, 8);
    put_le(head + 16, size, 8);
    if (data_send(asking->fd, head, sizeof head, digest, checked ? sizeof digest : 0, count > 0) != 0) return false;
    return (holes ? data_send_extents(asking->fd, part, size) : data_send_range(asking->fd, part, offset, count)) == 0;
}

/* The digest; or, if it is asked for that, whether the file is damaged. */
static bool answer_digest(struct asking *asking, int file, const struct stat *found, const char *path) {
    uint8_t digest[XXH3_BYTES];
    uint64_t ino = asking->request.ino;
    if (asking->request.flag == 0) {
        int error = learn(asking, file, found, digest);
        return reply(asking, error, 0, digest, error == 0 ? sizeof digest : 0);
    }
    enum digests_verdict verdict = fsio_check(asking->io, file, ino, asking->request.index, path);
    return reply(asking, verdict == DIGESTS_DAMAGED ? EBADMSG : 0, verdict == DIGESTS_FINE, NULL, 0);
}

static bool answer_part_digest(struct asking *asking) {
    struct stat found;
    if (asking->request.flag > 1) return false;
    int part = fsio_part_open(asking->io, asking->request.ino, asking->request.index, PART_READ);
    if (part < 0) return reply(asking, -part, 0, NULL, 0);
    bool fine = fstat(part, &found) != 0 ? reply(asking, errno, 0, NULL, 0) : answer_digest(asking, part, &found, NULL);
    close(part);
    return fine;
}

static bool answer_read(struct asking *asking) {
    const struct data_request *request = &asking->request;
    struct stat found = {0};
    bool moving = false, ours = true, exact = request->flag != 0;
    if (request->offset > INT64_MAX || request->length > INT64_MAX - request->offset) return false;
    if (request->index >= 0) ours = fsio_stripe_ours(asking->io, request->ino, (uint64_t)request->index, &moving);
    if (moving && !exact) {
        (void)fsio_stripe_served(asking->io, request->ino, (uint64_t)request->index); /* the poll loop hears that somebody waits */
        return reply(asking, ESTALE, 0, NULL, 0);
    }
    if (moving || !ours) fsio_writes_settle(asking->io); /* it is fetched away: writes that had begun before are in it */
    int part = fsio_part_open(asking->io, request->ino, request->index, PART_READ);
    if (part == -ENOENT && request->index >= 0 && !exact) { /* zeros, or it has been fetched away since we looked */
        bool hole = ours && fsio_stripe_served(asking->io, request->ino, (uint64_t)request->index);
        return reply(asking, hole ? 0 : ESTALE, 0, NULL, 0);
    }
    if (part < 0) return reply(asking, -part, 0, NULL, 0);
    bool fine = false, looked_at = request->index >= 0 && !exact && request->offset == 0 && asking->io->store->checks;
    if (looked_at && fsio_check(asking->io, part, request->ino, request->index, NULL) == DIGESTS_DAMAGED) {
        fine = reply(asking, EBADMSG, 0, NULL, 0);
    } else if (fstat(part, &found) == 0) {
        fine = send_file(asking, part, &found);
    }
    close(part);
    return fine;
}

/* The symbolic link `name` stands for a file that was spilled: open that. Only a file that lies in the spill directory itself, no link. */
static int open_spilled(const char *spill, int directory, const char *name) {
    char target[PATH_MAX];
    ssize_t length = spill == NULL ? -1 : readlinkat(directory, name, target, sizeof target - 1);
    size_t top = spill == NULL ? 0 : strlen(spill);
    if (length < 0) return -ELOOP;
    target[length] = '\0';
    if (strncmp(target, spill, top) != 0 || target[top] != '/' || strchr(target + top + 1, '/') != NULL) return -ELOOP;
    int file = open(target, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    return file < 0 ? -errno : file;
}

/* Open a file of the store. Its path leads through directories only, and downwards: a symbolic link is ELOOP or ENOTDIR, but for one at its
 * end that leads to what was spilled. The descriptor, or a negative errno. */
static int open_stored(int store, const char *spill, const char *path) {
    int at = -1, next = -EINVAL;
    for (const char *end; path[0] != '\0'; path = end) {
        char name[NAME_MAX + 1];
        end = strchrnul(path, '/');
        size_t length = (size_t)(end - path);
        bool fits = length > 0 && length <= NAME_MAX;
        if (fits) memcpy(name, path, length);
        name[fits ? length : 0] = '\0';
        if (!fits || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
            next = -EINVAL;
        } else {
            int how = *end == '/' ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK | O_NOCTTY;
            next = openat(at < 0 ? store : at, name, how | O_NOFOLLOW | O_CLOEXEC);
            if (next < 0) next = -errno;
            if (next == -ELOOP && *end == '\0') {
                next = open_spilled(spill, at < 0 ? store : at, name);
                if (next == -ELOOP) /* it may have come back meanwhile */
                    next = openat(at < 0 ? store : at, name, how | O_NOFOLLOW | O_CLOEXEC);
                if (next == -1) next = -errno;
            }
        }
        if (at >= 0) close(at);
        at = next;
        if (next < 0) return next;
        if (*end == '/' && *++end == '\0') { /* it ends with a slash */
            close(at);
            return -EINVAL;
        }
    }
    return next;
}

static bool answer_stored(struct asking *asking) {
    const struct data_request *request = &asking->request;
    char *path = asking->buffer; /* free again once it is open */
    struct stat found;
    if ((request->op != OP_READ && request->op != OP_DIGEST) || request->extra == 0 || request->extra > PATH_BYTES_MAX) return false;
    if (request->index != FSIO_WHOLE || request->flag > (request->op == OP_DIGEST) || request->stripe != 0) return false;
    if (request->offset > INT64_MAX || request->length > INT64_MAX - request->offset) return false;
    if (data_receive(asking->fd, path, request->extra) != 0) return false;
    path[request->extra] = '\0';
    if (strlen(path) != request->extra) return false;
    int file = asking->io->store->store_fd < 0 ? -ENOENT : open_stored(asking->io->store->store_fd, asking->io->store->spill, path);
    if (file < 0) return reply(asking, -file, 0, NULL, 0);
    int error = fstat(file, &found) != 0 ? errno : S_ISREG(found.st_mode) ? 0 : EISDIR;
    bool fine;
    if (error != 0) fine = reply(asking, error, 0, NULL, 0);
    else if (request->op == OP_DIGEST) fine = answer_digest(asking, file, &found, path);
    else fine = send_file(asking, file, &found);
    close(file);
    return fine;
}

/* The bytes are taken from the connection before any lock: another node may send them slowly. An error of the part does not end the connection. */
static bool answer_write(struct asking *asking) {
    const struct data_request *request = &asking->request;
    if (request->index < 0 || request->flag > 1 || request->length > WRITE_MAX || request->offset > INT64_MAX - WRITE_MAX) return false;
    int error = 0;
    for (uint64_t done = 0; done < request->length;) {
        size_t piece = request->length - done < DATA_CHUNK ? (size_t)(request->length - done) : DATA_CHUNK;
        if (data_receive(asking->fd, asking->buffer, piece) != 0) return false;
        if (error == 0)
            error = fsio_stripe_put(asking->io, request->ino, (uint64_t)request->index, request->flag != 0, request->offset + done,
                                    asking->buffer, piece);
        done += piece;
    }
    return reply(asking, error, 0, NULL, 0);
}

static bool answer_seek(struct asking *asking) {
    const struct data_request *request = &asking->request;
    if (request->offset > INT64_MAX || (request->flag != SEEK_DATA && request->flag != SEEK_HOLE)) return false;
    int part = fsio_part_open(asking->io, request->ino, request->index, PART_READ);
    if (part < 0) return reply(asking, -part == ENOENT ? ENXIO : -part, 0, NULL, 0);
    off_t at = lseek(part, (off_t)request->offset, request->flag);
    int error = at < 0 ? errno : 0;
    close(part);
    return reply(asking, error, (uint64_t)at, NULL, 0);
}

static int delete_part(struct fsio *io, const struct data_request *request) {
    switch (request->flag) {
    case WHAT_ALL: return fsio_part_delete(io, request->ino);
    case WHAT_STRIPES: return fsio_stripes_delete(io, request->ino, 0);
    default: return fsio_part_remove(io, request->ino, request->index);
    }
}

static bool answer_part(struct asking *asking) {
    const struct data_request *request = &asking->request;
    struct data_stat stat = {0};
    int error;
    if (request->index < FSIO_WHOLE) return false;
    switch (request->op) {
    case OP_READ: return answer_read(asking);
    case OP_WRITE: return answer_write(asking);
    case OP_SEEK: return answer_seek(asking);
    case OP_STAT:
        error = fsio_part_stat(asking->io, request->ino, request->index, &stat.size, &stat.blocks, &stat.atime, &stat.mtime, &stat.ctime);
        return reply_stat(asking, error, &stat);
    case OP_DIGEST: return answer_part_digest(asking);
    case OP_SUM: error = fsio_stripes_sum(asking->io, request->ino, &stat); return reply_stat(asking, error, &stat);
    case OP_NEXT:
        if (request->index < 0) return false;
        if (fsio_any_moving(asking->io)) return reply(asking, ESTALE, 0, NULL, 0);
        return reply(asking, 0, fsio_stripes_next(asking->io, request->ino, (uint64_t)request->index), NULL, 0);
    case OP_TRIM:
        if (request->stripe == 0) return false;
        if (fsio_any_moving(asking->io)) return reply(asking, ESTALE, 0, NULL, 0);
        return reply(asking, fsio_part_trim(asking->io, request->ino, request->stripe, request->offset), 0, NULL, 0);
    case OP_PUNCH:
        if (request->index < 0 || request->offset > INT64_MAX || request->length == 0 || request->length > INT64_MAX - request->offset)
            return false;
        return reply(asking, fsio_copied_punch(asking->io, request->ino, request->index, request->offset, request->length), 0, NULL, 0);
    case OP_DELETE: return request->flag <= WHAT_PART && reply(asking, delete_part(asking->io, request), 0, NULL, 0);
    default: return false;
    }
}

/* ── copies of stripes ── */

/* It grows beside the copy that is there, and takes its place when all of it has come. */
static bool answer_whole_copy(struct asking *asking) {
    const struct data_request *request = &asking->request;
    struct fsio *io = asking->io;
    struct fsio_fresh fresh;
    int error = fsio_fresh_open(io, request->ino, &fresh);
    bool opened = error == 0;
    uint8_t told[XXH3_BYTES], taken[XXH3_BYTES];
    struct digests_run run;
    bool digest = request->extra != 0, checked = request->extra == COPY_CHECKED;
    const struct data_sink sink = {.file = fresh.fd, .digest = checked ? &run : NULL, .failed = &error};
    bool came = !digest || data_receive(asking->fd, told, sizeof told) == 0;
    digests_begin(&run);
    if (error == 0 && !fsio_fresh_room(&fresh, request->offset, ROOM_MADE)) error = ENOSPC;
    if (came) came = data_receive_extents(asking->fd, &sink, request->length) == 0;
    digests_end(&run, taken);
    if (came && checked && error == 0 && memcmp(told, taken, sizeof told) != 0) error = EBADMSG;
    if (error == 0 && ftruncate(fresh.fd, (off_t)request->length) != 0) error = errno;
    if (opened) error = fsio_copy_whole(&fresh, (int32_t)asking->peer, (uint64_t)request->index, digest ? told : NULL, came ? error : EIO);
    return came && reply(asking, error, 0, NULL, 0);
}

static bool answer_copy(struct asking *asking) {
    const struct data_request *request = &asking->request;
    uint64_t most = request->flag == COPY_WHOLE ? UINT32_MAX : DATA_CHUNK;
    if (request->op != OP_COPY || request->index < 0 || request->flag > COPY_WHOLE || request->length > most) return false;
    if (request->extra > (request->flag == COPY_WHOLE ? COPY_DAMAGED : 0)) return false;
    if (request->offset > INT64_MAX - request->length) return false;
    if (request->flag == COPY_WHOLE) return answer_whole_copy(asking);
    if (data_receive(asking->fd, asking->buffer, request->length) != 0) return false;
    int error = fsio_copy_change(asking->io, (int32_t)asking->peer, request->ino, (uint64_t)request->index, request->offset, asking->buffer,
                                 request->length, request->flag == COPY_IN_STEP);
    return reply(asking, error, 0, NULL, 0);
}

/* ── files that are open here ── */

static bool answer_file_read(struct asking *asking, struct fsio_file *file) {
    static struct fsio_stream unknown; /* the file is being written: reading ahead would be in vain */
    size_t got = 0;
    int error = fsio_file_read(file, &unknown, asking->buffer, asking->request.length, asking->request.offset, &got);
    return reply(asking, error, 0, asking->buffer, error == 0 ? got : 0);
}

/* It is to be seen here as soon as it is answered there. */
static int changed(const struct asking *asking, int error) {
    const struct data_rpc_handler *handler = &asking->io->rpc_handler;
    if (error == 0 && handler->changed != NULL) handler->changed(handler->context, asking->request.ino);
    return error;
}

static bool answer_file(struct asking *asking) {
    const struct data_request *request = &asking->request;
    struct data_stat stat = {0};
    uint64_t found = 0;
    int error = 0;
    bool fine = false;
    if (request->op == OP_USE) {
        if (request->offset > 1 || request->length > 1) return false;
        error = fsio_file_used(asking->io, (int32_t)asking->peer, request->ino, (int)request->offset, (int)request->length);
        return reply(asking, error, 0, NULL, 0);
    }
    if (request->op < OP_USE || request->op > OP_FILE_FLUSH) return false;
    bool bytes = request->op == OP_FILE_READ || request->op == OP_FILE_WRITE;
    if (bytes && request->length > DATA_CHUNK) return false;
    if (request->op == OP_FILE_WRITE && data_receive(asking->fd, asking->buffer, request->length) != 0) return false;
    struct fsio_file *file = fsio_file_find(asking->io, request->ino);
    bool may = file != NULL && fsio_file_uses(file, (int32_t)asking->peer, &error);
    if (!may) {
        if (file != NULL) fsio_file_drop(file);
        return reply(asking, ESTALE, 0, NULL, 0);
    }
    switch (request->op) {
    case OP_FILE_READ: fine = answer_file_read(asking, file); break;
    case OP_FILE_WRITE:
        if (error == 0) error = changed(asking, fsio_file_write(file, asking->buffer, request->length, request->offset));
        fine = reply(asking, error, 0, NULL, 0);
        break;
    case OP_FILE_TRUNCATE: fine = reply(asking, changed(asking, fsio_file_truncate(file, request->offset)), 0, NULL, 0); break;
    case OP_FILE_ALLOCATE:
        fine = reply(asking, changed(asking, fsio_file_fallocate(file, (int)request->extra, request->offset, request->length)), 0, NULL, 0);
        break;
    case OP_FILE_SEEK:
        error = fsio_file_seek(file, request->offset, request->flag, &found);
        fine = reply(asking, error, found, NULL, 0);
        break;
    case OP_FILE_STAT:
        error = fsio_file_stat(file, &stat);
        fine = reply_stat(asking, error, &stat);
        break;
    case OP_FILE_FLUSH: fine = reply(asking, fsio_file_used_flush(file, (int32_t)asking->peer), 0, NULL, 0); break;
    default: break;
    }
    fsio_file_drop(file);
    return fine;
}

bool fsio_answer(struct fsio *io, int fd, uint64_t peer, int lane, const uint8_t *head, char *buffer) {
    struct asking asking = {.io = io, .fd = fd, .peer = peer, .buffer = buffer};
    asking.request = (struct data_request){
        .op = head[0],
        .flag = head[1],
        .stripe = (uint32_t)get_le(head + 4, 4),
        .ino = get_le(head + 8, 8),
        .index = (int64_t)get_le(head + 16, 8),
        .offset = get_le(head + 24, 8),
        .length = get_le(head + 32, 8),
        .extra = get_le(head + 40, 8),
    };
    if (get_le(head + 2, 2) != 0) return false;
    if (asking.request.op == OP_READ) {
        asking.checked = (asking.request.flag & READ_CHECKED) != 0;
        asking.holes = (asking.request.flag & READ_HOLES) != 0;
        asking.request.flag &= (uint8_t)~(READ_CHECKED | READ_HOLES);
    }
    if (asking.request.ino == 0) return lane == LANE_PARTS && answer_stored(&asking);
    if (peer >= DATA_CLIENTS_FROM) return false; /* parts and open files are for nodes */
    if (lane == LANE_COPIES) return answer_copy(&asking);
    return lane == LANE_PARTS ? answer_part(&asking) : answer_file(&asking);
}
