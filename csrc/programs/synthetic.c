/* amfs-synthetic: takes the place of a program that is not here. Reads its inputs in full and checks them, takes as long as it is told,
 * and writes outputs of exact sizes whose content follows from their names, so that a reader can check them in turn.
 *
 *   amfs-synthetic [-b] SECONDS [-i NAME SIZE]... [-o NAME SIZE]...    one task; -b: busy, not asleep
 *   amfs-synthetic --check FILE NAME SIZE                              is FILE what a task would have written as NAME?
 *
 * The content of NAME: word number n (8 bytes, little-endian) is splitmix64 of XXH64(NAME) + n times the golden gamma. So every byte is known
 * by its place alone, names that differ in one letter have nothing in common, and no file looks compressed or empty to a file system.
 *
 * Exit status: 0; 1 an input or output is not as it should be (one line on stderr); 2 wrong usage. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/xxh64.h"

enum { WORD = 8, BLOCK = 1 << 17 };

static const uint64_t GAMMA = UINT64_C(0x9E3779B97F4A7C15);
static unsigned char expected[BLOCK], found[BLOCK];

static void store_word(unsigned char *at, uint64_t word) {
    for (int i = 0; i < WORD; i++) at[i] = (unsigned char)(word >> (8 * i));
}

/* The block of a file that begins at word `first`. */
static void fill(unsigned char *block, uint64_t seed, uint64_t first, size_t words) {
    uint64_t state = seed + first * GAMMA;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = state += GAMMA;
        word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
        store_word(block + i * WORD, word ^ (word >> 31));
    }
}

static uint64_t seed_of(const char *name) { return amfs_xxh64(name, strlen(name), 0); }

static int complain(const char *path, const char *why) {
    fprintf(stderr, "amfs-synthetic: %s: %s\n", path, why);
    return 1;
}

static ssize_t read_fully(int fd, unsigned char *block, size_t size) {
    size_t got = 0;
    while (got < size) {
        ssize_t count = read(fd, block + got, size - got);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -1;
        if (count == 0) break;
        got += (size_t)count;
    }
    return (ssize_t)got;
}

static int check_content(int fd, const char *path, const char *name, uint64_t size) {
    uint64_t seed = seed_of(name), at = 0;
    char why[96];

    for (;;) {
        ssize_t got = read_fully(fd, found, BLOCK);
        if (got < 0) return complain(path, strerror(errno));
        size_t wanted = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        size_t count = (size_t)got < wanted ? (size_t)got : wanted;
        fill(expected, seed, at / WORD, (count + WORD - 1) / WORD);
        if (memcmp(expected, found, count) != 0) {
            size_t i = 0;
            while (expected[i] == found[i]) i++;
            snprintf(why, sizeof why, "byte %" PRIu64 " is %d, not %d", at + i, found[i], expected[i]);
            return complain(path, why);
        }
        if ((size_t)got != wanted || got == 0) {
            if (at + (uint64_t)got == size) return 0;
            snprintf(why, sizeof why, "%s than the %" PRIu64 " bytes it should have", at + (uint64_t)got < size ? "shorter" : "longer",
                     size);
            return complain(path, why);
        }
        at += (uint64_t)got;
    }
}

static int check(const char *path, const char *name, uint64_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return complain(path, strerror(errno));
    int status = check_content(fd, path, name, size);
    close(fd);
    return status;
}

/* The directories above `path`. */
static int make_parents(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int failed = mkdir(path, 0777) < 0 && errno != EEXIST;
        *slash = '/';
        if (failed) return -1;
    }
    return 0;
}

static int make(char *name, uint64_t size) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT && make_parents(name) == 0) fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return complain(name, strerror(errno));
    uint64_t seed = seed_of(name);
    for (uint64_t at = 0; at < size;) {
        size_t count = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        fill(expected, seed, at / WORD, (count + WORD - 1) / WORD);
        for (size_t done = 0; done < count;) {
            ssize_t wrote = write(fd, expected + done, count - done);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote < 0) {
                int failed = errno;
                close(fd);
                return complain(name, strerror(failed));
            }
            done += (size_t)wrote;
        }
        at += count;
    }
    return close(fd) < 0 ? complain(name, strerror(errno)) : 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Reading and writing count towards the time: only what is left of it is slept or burnt. */
static void wait_until(double end, bool busy) {
    volatile uint64_t work = 0;
    double left;
    while ((left = end - now()) > 0) {
        if (busy) {
            for (int i = 0; i < 100000; i++) work += (uint64_t)i * GAMMA;
        } else {
            struct timespec pause = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
            nanosleep(&pause, NULL);
        }
    }
}

static int usage(const char *why) {
    fprintf(stderr,
            "amfs-synthetic: %s\nusage: amfs-synthetic [-b] SECONDS [-i NAME SIZE]... [-o NAME SIZE]...\n"
            "       amfs-synthetic --check FILE NAME SIZE\n",
            why);
    return 2;
}

static bool parse_size(const char *text, uint64_t *size) {
    char *end;
    errno = 0;
    *size = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *size < UINT64_C(1) << 62;
}

int main(int argc, char **argv) {
    double begin = now(), seconds;
    uint64_t size;
    char *end;
    int at = 1;

    if (argc > 1 && strcmp(argv[1], "--check") == 0) {
        if (argc != 5 || !parse_size(argv[4], &size)) return usage("--check needs a file, the name that it was written as, and a size");
        return check(argv[2], argv[3], size);
    }
    bool busy = argc > 1 && strcmp(argv[1], "-b") == 0;
    at += busy;
    if (at >= argc) return usage("no time to take");
    seconds = strtod(argv[at], &end);
    if (end == argv[at] || *end != '\0' || !isfinite(seconds) || seconds < 0 || seconds > 1e9)
        return usage("the time must be a number of seconds from 0 on");
    for (int i = ++at; i < argc; i += 3)
        if (i + 2 >= argc || (strcmp(argv[i], "-i") != 0 && strcmp(argv[i], "-o") != 0) || *argv[i + 1] == '\0' ||
            !parse_size(argv[i + 2], &size))
            return usage("files are named -i NAME SIZE or -o NAME SIZE");
    for (int i = at; i < argc; i += 3) {
        parse_size(argv[i + 2], &size);
        if (argv[i][1] == 'i' && check(argv[i + 1], argv[i + 1], size)) return 1;
    }
    for (int i = at; i < argc; i += 3) {
        parse_size(argv[i + 2], &size);
        if (argv[i][1] == 'o' && make(argv[i + 1], size)) return 1;
    }
    wait_until(begin + seconds, busy);
    return 0;
}
