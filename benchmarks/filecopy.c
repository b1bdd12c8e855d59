/* filecopy write|read FILE BYTES CHUNK LOG: the tasks of Hercules's file copy.
 *
 * Writes FILE from beginning to end, or reads it and checks it, CHUNK bytes a call, and appends "write SECONDS" or "read SECONDS" to LOG:
 * from before the open to after the close, without the start of the program and without what happens before or after the task. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what, const char *name) {
    fprintf(stderr, "filecopy: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The first bytes of each chunk are its offset. */
static void put(char *chunk, int64_t offset, size_t length) { memcpy(chunk, &offset, length < sizeof offset ? length : sizeof offset); }

static void write_all(const char *name, char *chunk, int64_t bytes, int64_t step) {
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0) die("cannot create", name);
    for (int64_t offset = 0; offset < bytes; offset += step) {
        size_t length = (size_t)(bytes - offset < step ? bytes - offset : step);
        put(chunk, offset, length);
        for (size_t at = 0; at < length;) {
            ssize_t wrote = write(file, chunk + at, length - at);
            if (wrote <= 0) die("cannot write", name);
            at += (size_t)wrote;
        }
    }
    if (close(file) != 0) die("cannot close", name);
}

static void read_all(const char *name, char *chunk, int64_t bytes, int64_t step) {
    int file = open(name, O_RDONLY | O_CLOEXEC);
    char wanted[sizeof(int64_t)] = {0};
    int64_t offset = 0;
    if (file < 0) die("cannot open", name);
    for (;;) {
        size_t length = 0;
        for (ssize_t got; length < (size_t)step && (got = read(file, chunk + length, (size_t)step - length)) != 0;) {
            if (got < 0) die("cannot read", name);
            length += (size_t)got;
        }
        if (length == 0) break;
        put(wanted, offset, length);
        if (memcmp(chunk, wanted, length < sizeof wanted ? length : sizeof wanted) != 0) {
            errno = EBADMSG;
            die("wrong content in", name);
        }
        offset += (int64_t)length;
    }
    if (offset != bytes) {
        errno = EBADMSG;
        die("wrong length of", name);
    }
    if (close(file) != 0) die("cannot close", name);
}

int main(int argc, char **argv) {
    int64_t bytes = argc == 6 ? atoll(argv[3]) : -1, step = argc == 6 ? atoll(argv[4]) : 0;
    if (bytes < 0 || step < 1 || (strcmp(argv[1], "write") != 0 && strcmp(argv[1], "read") != 0)) {
        fputs("usage: filecopy write|read FILE BYTES CHUNK LOG\n", stderr);
        return 2;
    }
    char *chunk = malloc((size_t)step), line[64];
    if (chunk == NULL) die("no memory for", argv[4]);
    memset(chunk, 'z', (size_t)step); /* touched: no page faults while the clock runs */
    double started = now();
    if (argv[1][0] == 'w') write_all(argv[2], chunk, bytes, step);
    else read_all(argv[2], chunk, bytes, step);
    free(chunk);
    int length = snprintf(line, sizeof line, "%s %.9f\n", argv[1], now() - started);
    int log = open(argv[5], O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0666);
    if (log < 0 || write(log, line, (size_t)length) != length || close(log) != 0) die("cannot write", argv[5]);
    return 0;
}
