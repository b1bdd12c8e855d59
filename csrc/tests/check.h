/* Shared by the C tests: a check that ends the test, and a directory for its files. */
#ifndef AMFS_TESTS_CHECK_H
#define AMFS_TESTS_CHECK_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic long checks; /* threads check, too */
static char top[64];        /* of make_top */

#define CHECK(what)                                                                                                                        \
    do {                                                                                                                                   \
        checks++;                                                                                                                          \
        if (!(what)) {                                                                                                                     \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #what);                                                             \
            exit(1);                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

static inline void make_top(const char *where, const char *test) {
    snprintf(top, sizeof top, "%s/amfs-test-%s-XXXXXX", where, test);
    CHECK(mkdtemp(top) != NULL);
}

static inline void remove_top(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    CHECK(system(command) == 0);
}

/* The path of `name` in that directory; good for the next fifteen calls. */
static inline const char *at(const char *name) {
    static char paths[16][256];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", top, name);
    return path;
}

static inline int entries(const char *path) {
    DIR *directory = opendir(path);
    int count = 0;
    CHECK(directory != NULL);
    while (readdir(directory) != NULL) count++;
    closedir(directory);
    return count - 2;
}

/* The end of main. */
static inline int passed(void) {
    printf("ok %ld checks\n", (long)checks);
    return 0;
}

#endif
