/* Bytes on the socket of a data connection. Sockets block, with time-outs of their own. */
#include "wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { RECEIVE_BYTES = 1 << 20 }; /* a time-out counts for so many */

int data_receive(int fd, void *to, size_t count) {
    char *at = to;
    while (count > 0) {
        ssize_t got = recv(fd, at, count < RECEIVE_BYTES ? count : RECEIVE_BYTES, MSG_WAITALL);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == ETIMEDOUT)) return EIO; /* nothing came for stall_ms */
        if (got <= 0) return DATA_BROKEN;
        at += got;
        count -= (size_t)got;
    }
    return 0;
}

int data_send(int fd, const void *head, size_t head_size, const void *bytes, size_t count, bool more) {
    struct iovec pieces[2] = {{(void *)(uintptr_t)head, head_size}, {(void *)(uintptr_t)bytes, count}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    while (pieces[0].iov_len + pieces[1].iov_len > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == ETIMEDOUT)) return EIO;
        if (sent < 0) return DATA_BROKEN;
        for (int i = 0; i < 2; i++) {
            size_t part = (size_t)sent < pieces[i].iov_len ? (size_t)sent : pieces[i].iov_len;
            pieces[i].iov_base = (char *)pieces[i].iov_base + part;
            pieces[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
    return 0;
}

void data_socket_options(int fd, int milliseconds) {
    struct timeval limit = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    unsigned user = (unsigned)milliseconds;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user, sizeof user); /* a host without power sends no reset */
}
