/* A file that appears under its name whole or not at all: it is written beside it as `.amfs-part-...` and renamed. */
#ifndef AMFS_NEWFILE_H
#define AMFS_NEWFILE_H

#include <stdbool.h>

enum {
    NEWFILE_PATH_BYTES = 4096 + 64,  /* a path and the temporary name */
    NEWFILE_ERROR_BYTES = 4096 + 256, /* a path and a reason */
};

struct newfile {
    int fd; /* write here */
    const char *destination;
    char part[NEWFILE_PATH_BYTES];
    char error[NEWFILE_ERROR_BYTES]; /* what failed, for people */
};

/* 0 or an errno, with `error` set. `directories`: make those that are missing above it. The destination is not copied. */
int newfile_open(struct newfile *file, const char *destination, bool directories);
/* Mode, close, rename: 0, or an errno with `error` set, and nothing is left. `keep_first`: a file that has the name by now stays. */
int newfile_finish(struct newfile *file, unsigned mode, bool keep_first);
void newfile_drop(struct newfile *file);

#endif
