/* amfs-partition: the two kinds of tasks of which a shuffle consists.
 *
 *   amfs-partition [-k COLUMN] [-d BYTE] -n PARTS PREFIX PATH...    the lines of the files at and below PATH into PREFIX0, PREFIX1, …, by the
 *                                                                  hash of their key (csrc/data/line_partitioner.h); all PARTS files are made
 *   amfs-partition -j OUTPUT PIECE...                               the pieces, one after the other
 *   amfs-partition -t [-k COLUMN] [-d BYTE] -n PARTS PATH...        only time it, in memory: prints bytes, seconds, and seconds of memcpy
 *
 * BYTE is one byte as it is. Without -d columns are separated by blanks. -c: as -t, but print only how many bytes each part would get.
 * Exit status: 0; 1 a file cannot be read or written (one line on stderr); 2 wrong usage. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "data/line_partitioner.h"

static int complain(const char *path, int error) {
    fprintf(stderr, "amfs-partition: %s: %s\n", path, strerror(error));
    return 1;
}

static int usage(const char *what) {
    fprintf(stderr, "amfs-partition: %s\n", what);
    return 2;
}

static int write_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t count = write(fd, at, size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        at += count;
        size -= (size_t)count;
    }
    return 0;
}

/* ── parts ── */

struct outputs {
    int *fds;
    uint64_t *sizes;
};

static int put(void *context, unsigned part, const void *bytes, size_t size) {
    struct outputs *outputs = context;
    outputs->sizes[part] += size;
    return outputs->fds != NULL ? write_all(outputs->fds[part], bytes, size) : 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Call `each` for the regular files at and below `path`, by name; anything but files and directories is left out. 0, or the exit status. */
static int for_files(const char *path, int (*each)(void *context, const char *path), void *context) {
    struct stat facts;
    if (stat(path, &facts) != 0) return complain(path, errno);
    if (S_ISREG(facts.st_mode)) return each(context, path);
    if (!S_ISDIR(facts.st_mode)) return 0;
    struct dirent **found;
    int count = scandir(path, &found, NULL, NULL), status = 0;
    if (count < 0) return complain(path, errno);
    char **names = calloc((size_t)count + 1, sizeof *names);
    for (int i = 0; i < count; i++) {
        const char *name = found[i]->d_name;
        bool skip = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (names != NULL && asprintf(&names[i], "%s%s%s", skip ? "" : path, skip ? "" : "/", skip ? "" : name) < 0) names[i] = NULL;
        if (names == NULL || names[i] == NULL) status = complain(path, ENOMEM);
        free(found[i]);
    }
    free(found);
    if (status == 0) qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; names != NULL && i < count; i++) {
        if (status == 0 && names[i][0] != '\0') status = for_files(names[i], each, context);
        free(names[i]);
    }
    free(names);
    return status;
}

static const char *writing = ""; /* the file of which an error of the sink tells */

static int partition_file(void *context, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return complain(path, errno);
    int error = line_partitioner_read(context, fd);
    close(fd);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) return complain(writing, error);
    return error == 0 ? 0 : complain(path, error);
}

static int open_parts(const char *prefix, unsigned parts, int *fds) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* if it is refused, opening says so */
    }
    for (unsigned part = 0; part < parts; part++) {
        char *path;
        if (asprintf(&path, "%s%u", prefix, part) < 0) return complain(prefix, ENOMEM);
        fds[part] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        int status = fds[part] < 0 ? complain(path, errno) : 0;
        free(path);
        if (status != 0) return status;
    }
    return 0;
}

static int partition(const struct partition_rule *rule, const char *prefix, char **paths) {
    struct outputs outputs = {calloc(rule->parts, sizeof(int)), calloc(rule->parts, sizeof(uint64_t))};
    struct line_partitioner *partitioner = line_partitioner_new(rule, put, &outputs);
    if (partitioner == NULL || outputs.fds == NULL || outputs.sizes == NULL) return complain("not enough memory", ENOMEM);
    writing = prefix;
    int status = open_parts(prefix, rule->parts, outputs.fds);
    for (; status == 0 && *paths != NULL; paths++) status = for_files(*paths, partition_file, partitioner);
    if (status == 0) {
        int error = line_partitioner_flush(partitioner);
        if (error != 0) status = complain(prefix, error);
    }
    for (unsigned part = 0; status == 0 && part < rule->parts; part++)
        if (close(outputs.fds[part]) != 0) status = complain(prefix, errno);
    return status;
}

/* ── pieces ── */

static int copy_by_hand(int from, int to) {
    static char block[1 << 18];
    for (;;) {
        ssize_t count = read(from, block, sizeof block);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return count < 0 ? errno : 0;
        int error = write_all(to, block, (size_t)count);
        if (error != 0) return error;
    }
}

static int join(const char *output, char **pieces) {
    int to = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (to < 0) return complain(output, errno);
    for (; *pieces != NULL; pieces++) {
        int from = open(*pieces, O_RDONLY | O_CLOEXEC);
        if (from < 0) return complain(*pieces, errno);
        ssize_t count;
        do count = copy_file_range(from, NULL, to, NULL, (size_t)1 << 30, 0);
        while (count > 0 || (count < 0 && errno == EINTR));
        int error = 0; /* bytes that the kernel has not copied, for whatever reason, are copied by hand, or fail again there */
        if (count < 0) error = copy_by_hand(from, to);
        close(from);
        if (error != 0) return complain(error == EIO ? *pieces : output, error);
    }
    return close(to) != 0 ? complain(output, errno) : 0;
}

/* ── times ── */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* In memory: from the bytes of the files to the buffers of the parts, which are thrown away when they are full. */
static int timed(const struct partition_rule *rule, char **paths, bool counts_only) {
    struct outputs outputs = {NULL, calloc(rule->parts, sizeof(uint64_t))};
    struct line_partitioner *partitioner = line_partitioner_new(rule, put, &outputs);
    if (partitioner == NULL || outputs.sizes == NULL) return complain("not enough memory", ENOMEM);
    uint64_t total = 0;
    double spent = 0.0, copied = 0.0;
    for (; *paths != NULL; paths++) {
        int fd = open(*paths, O_RDONLY | O_CLOEXEC);
        struct stat facts;
        if (fd < 0 || fstat(fd, &facts) != 0) return complain(*paths, errno);
        size_t size = (size_t)facts.st_size;
        char *bytes = malloc(size + 1), *other = malloc(size + 1);
        if (bytes == NULL || other == NULL) return complain(*paths, ENOMEM);
        for (size_t at = 0; at < size;) {
            ssize_t count = read(fd, bytes + at, size - at);
            if (count <= 0) return complain(*paths, count < 0 ? errno : EIO);
            at += (size_t)count;
        }
        close(fd);
        memset(other, 1, size);
        double began = seconds();
        int error = line_partitioner_bytes(partitioner, bytes, size);
        double middle = seconds();
        memcpy(other, bytes, size);
        copied += seconds() - middle;
        spent += middle - began;
        if (error != 0) return complain(*paths, error);
        volatile char kept = other[size / 2]; /* the copy is wanted */
        (void)kept;
        total += size;
        free(bytes);
        free(other);
    }
    (void)line_partitioner_flush(partitioner);
    if (counts_only)
        for (unsigned part = 0; part < rule->parts; part++) printf("%u %" PRIu64 "\n", part, outputs.sizes[part]);
    else printf("%" PRIu64 " %.9f %.9f\n", total, spent, copied);
    return 0;
}

static bool number(const char *text, long low, long high, unsigned *value) {
    char *end;
    errno = 0;
    long found = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || found < low || found > high) return false;
    *value = (unsigned)found;
    return true;
}

int main(int argc, char **argv) {
    struct partition_rule rule = {1, PARTITION_BLANKS, 0};
    const char *output = NULL;
    bool times = false, counts = false;
    int option;
    while ((option = getopt(argc, argv, "+k:d:n:j:tc")) != -1) switch (option) {
        case 'k':
            if (!number(optarg, 1, 1 << 30, &rule.column)) return usage("-k: columns are counted from 1");
            break;
        case 'd':
            if (optarg[0] == '\0' || optarg[1] != '\0' || optarg[0] == '\n') return usage("-d: one byte that is no newline");
            rule.delimiter = (unsigned char)optarg[0];
            break;
        case 'n':
            if (!number(optarg, 1, PARTITION_PARTS_MAX, &rule.parts)) return usage("-n: 1 to 4096 parts");
            break;
        case 'j': output = optarg; break;
        case 't': times = true; break;
        case 'c': counts = true; break;
        default: return 2;
        }
    if (output != NULL) return join(output, argv + optind);
    if (rule.parts == 0) return usage("how many parts? -n PARTS");
    if (times || counts) return timed(&rule, argv + optind, counts);
    if (optind >= argc) return usage("what to call the parts? PREFIX PATH...");
    return partition(&rule, argv[optind], argv + optind + 1);
}
