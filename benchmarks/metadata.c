/* The steps of mdtest by one process: COUNT files and directories in a new directory of DIR. Prints the microseconds of one of each step.
 *
 *     metadata COUNT DIR [SEEN]
 *
 * SEEN: another directory in which the same files are seen, as on the mount of another node; they are read there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 3901 }; /* as in mdtest -w 3901 */

struct place {
    char file[512], seen[512], renamed[512], directory[512];
};

static void must(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void create(const struct place *at) {
    static char bytes[BYTES];
    int fd = open(at->file, O_CREAT | O_EXCL | O_WRONLY, 0644);
    must(fd >= 0 && write(fd, bytes, BYTES) == BYTES && close(fd) == 0, at->file);
}

static void look(const struct place *at) {
    struct stat found;
    must(stat(at->file, &found) == 0 && found.st_size == BYTES, at->file);
}

static void get(const struct place *at) {
    char bytes[BYTES + 1];
    int fd = open(at->seen, O_RDONLY);
    must(fd >= 0 && read(fd, bytes, sizeof bytes) == BYTES && close(fd) == 0, at->seen);
}

static void make_directory(const struct place *at) { must(mkdir(at->directory, 0755) == 0, at->directory); }
static void remove_directory(const struct place *at) { must(rmdir(at->directory) == 0, at->directory); }
static void change_name(const struct place *at) { must(rename(at->file, at->renamed) == 0, at->file); }
static void remove_file(const struct place *at) { must(unlink(at->renamed) == 0, at->renamed); }

static const struct step {
    const char *name;
    void (*run)(const struct place *at);
} steps[] = {
    {"create", create},          {"stat", look},          {"read", get},           {"mkdir", make_directory},
    {"rmdir", remove_directory}, {"rename", change_name}, {"remove", remove_file},
};

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long count = atol(argv[1]);
    char top[256], seen[256];
    snprintf(top, sizeof top, "%s/md-%ld", argv[2], (long)getpid());
    snprintf(seen, sizeof seen, "%s/md-%ld", argv[argc > 3 ? 3 : 2], (long)getpid());
    must(count > 0 && mkdir(top, 0755) == 0, top);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (long number = 0; number < count; number++) {
            struct place at;
            snprintf(at.file, sizeof at.file, "%s/f%ld", top, number);
            snprintf(at.seen, sizeof at.seen, "%s/f%ld", seen, number);
            snprintf(at.renamed, sizeof at.renamed, "%s/g%ld", top, number);
            snprintf(at.directory, sizeof at.directory, "%s/d%ld", top, number);
            steps[i].run(&at);
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%s %.3f\n", steps[i].name,
               ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / (double)count);
    }
    must(rmdir(top) == 0, top);
    return 0;
}
