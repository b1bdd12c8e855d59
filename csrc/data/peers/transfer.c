#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/extents.h"
#include "wire.h"

enum { SEND_CHUNK = 4 << 20, ZERO_BYTES = 64 << 10, RECEIVE_CHUNK = 2 << 20, EXTENT_BYTES = 16 };

int data_send_range(int socket, int file, uint64_t offset, uint64_t count) {
    static const char zeros[ZERO_BYTES];
    off_t at = (off_t)offset, end = (off_t)(offset + count);
    while (at < end) {
        ssize_t sent = sendfile(socket, file, &at, end - at < SEND_CHUNK ? (size_t)(end - at) : SEND_CHUNK);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return DATA_BROKEN;
        if (sent == 0) break; /* it became shorter meanwhile: zeros were promised */
    }
    int error = 0;
    for (; error == 0 && at < end; at += ZERO_BYTES)
        error = data_send(socket, zeros, end - at < ZERO_BYTES ? (size_t)(end - at) : ZERO_BYTES, NULL, 0, false);
    return error;
}

static int send_head(int socket, uint64_t offset, uint64_t count) {
    uint8_t head[EXTENT_BYTES];
    put_le(head, offset, 8);
    put_le(head + 8, count, 8);
    return data_send(socket, head, sizeof head, NULL, 0, count > 0);
}

int data_send_extents(int socket, int file, uint64_t size) {
    uint64_t from, to;
    int error = 0;
    for (uint64_t at = 0; error == 0 && at < size; at = to) {
        error = amfs_next_extent(file, at, size, &from, &to);
        if (error == 0 && from == size) break;
        if (error == 0) error = send_head(socket, from, to - from);
        if (error == 0) error = data_send_range(socket, file, from, to - from);
    }
    return error == 0 ? send_head(socket, size, 0) : error;
}

/* Measured for 100 MB onto huge pages, CPU of the receiving side: 11-16 ms so (a whole page is not zeroed before it is written), 40 by half a
 * megabyte, 20-60 through a pipe with splice; on small pages every way takes 65-80. */
int data_receive_range(int socket, const struct data_sink *sink, uint64_t offset, uint64_t count) {
    size_t room = count < RECEIVE_CHUNK ? (size_t)count : RECEIVE_CHUNK;
    char *buffer = malloc(room + 1);
    int error = buffer == NULL ? ENOMEM : 0, failed = sink->failed == NULL ? 0 : *sink->failed;
    for (uint64_t moved = 0; moved < count && error == 0;) {
        size_t piece = count - moved < room ? (size_t)(count - moved) : room;
        error = data_receive(socket, buffer, piece);
        if (error == 0 && sink->digest != NULL) digests_add(sink->digest, buffer, piece);
        for (size_t done = 0; error == 0 && failed == 0 && done < piece;) {
            ssize_t put = pwrite(sink->file, buffer + done, piece - done, (off_t)(offset + moved + done));
            if (put < 0 && errno != EINTR) failed = errno;
            if (put > 0) done += (size_t)put;
        }
        if (sink->failed != NULL) *sink->failed = failed;
        else if (failed != 0) error = failed;
        moved += piece;
    }
    free(buffer);
    return error;
}

int data_receive_extents(int socket, const struct data_sink *sink, uint64_t size) {
    uint8_t head[EXTENT_BYTES];
    uint64_t at = 0, offset, count;
    do {
        int error = data_receive(socket, head, sizeof head);
        if (error != 0) return error;
        offset = get_le(head, 8);
        count = get_le(head + 8, 8);
        if (offset < at || offset > size || count > size - offset || (count == 0 && offset != size)) return EPROTO;
        if (sink->digest != NULL) digests_add_zeros(sink->digest, offset - at);
        error = data_receive_range(socket, sink, offset, count);
        if (error != 0) return error;
        at = offset + count;
    } while (count > 0);
    return 0;
}
