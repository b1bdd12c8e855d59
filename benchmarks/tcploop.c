/* tcploop BYTES TIMES: send BYTES from one process's memory to another's over TCP loopback, 1 MiB a write, TIMES times over one
 * connection. Prints the seconds of each round: from the receiver's "go" to its last byte. Compared with a file transfer. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

static void die(const char *what) {
    fprintf(stderr, "tcploop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static char *buffer(void) {
    char *memory = malloc(CHUNK);
    if (memory == NULL) die("malloc");
    memset(memory, 'x', CHUNK); /* touched: no page faults while the clock runs */
    return memory;
}

static void send_all(const struct sockaddr_in *address, long bytes, long times) {
    char go, *memory = buffer();
    int one = 1, peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer < 0 || connect(peer, (const struct sockaddr *)address, sizeof *address) != 0) die("connect");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (long i = 0; i < times; i++) {
        if (read(peer, &go, 1) != 1) die("read");
        for (long left = bytes; left > 0;) {
            ssize_t sent = write(peer, memory, left < CHUNK ? (size_t)left : CHUNK);
            if (sent <= 0) die("write");
            left -= sent;
        }
    }
    exit(0);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (argc != 3) {
        fputs("usage: tcploop BYTES TIMES\n", stderr);
        return 2;
    }
    long bytes = atol(argv[1]), times = atol(argv[2]);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (door < 0 || bind(door, (struct sockaddr *)&address, sizeof address) != 0 || listen(door, 1) != 0) die("listen");
    if (getsockname(door, (struct sockaddr *)&address, &length) != 0) die("getsockname");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) send_all(&address, bytes, times);
    int peer = accept(door, NULL, NULL);
    if (peer < 0) die("accept");
    char *memory = buffer();
    for (long i = 0; i < times; i++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        if (write(peer, "g", 1) != 1) die("write");
        for (long left = bytes; left > 0;) {
            ssize_t got = read(peer, memory, left < CHUNK ? (size_t)left : CHUNK);
            if (got <= 0) die("read");
            left -= got;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.9f\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
    }
    int status;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
}
