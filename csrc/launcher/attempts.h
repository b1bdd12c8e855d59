/* Attempts at blind tasks: names that each has looked up in vain, and files that it has made, in the session's file system.
 *
 * The launcher begins an attempt before it starts the program, and ends it when no process of it is left. Its mount for tasks (csrc/fuse/) knows
 * by the mark of a process (mark.h) to which attempt it belongs, and writes down what it does. One table for the whole process. Any thread may
 * call. */
#ifndef AMFS_ATTEMPTS_H
#define AMFS_ATTEMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AMFS_MISSED_MAX = 256, /* names in vain that are kept of an attempt: the last ones, for a program ends by what it missed last */
    AMFS_ATTEMPT_NODE_SHIFT = 40,
};

enum amfs_made_kind {
    AMFS_MADE_FILE = 1, /* an inode of its own */
    AMFS_MADE_LINK,     /* another name of an inode */
    AMFS_MADE_DIRECTORY,
    AMFS_MADE_RENAMED, /* another name for what was there before: it stays, whatever becomes of the attempt */
};

struct amfs_made {
    enum amfs_made_kind kind;
    uint64_t dir, ino;
    size_t length;
    char *name;
};

struct amfs_missed {
    uint64_t dir;
    size_t length;
    char *name;
};

/* All that is known of one attempt, oldest first. */
struct amfs_traces {
    uint64_t number;
    struct amfs_made *made;
    size_t made_count;
    struct amfs_missed *missed;
    size_t missed_count;
};

/* The number of the attempt whose processes bear this mark: below 2^40, never given twice in a process. 0: no memory. */
uint64_t amfs_attempt_begin(uint64_t mark);
/* It writes nothing down any more. Freed with amfs_traces_free. NULL: there is no such attempt. */
struct amfs_traces *amfs_attempt_end(uint64_t number);
void amfs_traces_free(struct amfs_traces *traces);

/* Whose process is that? 0: of no attempt that is under way. *stray: its task has ended, or is none of ours. */
uint64_t amfs_attempt_of_process(int pid, bool *stray);

/* Its acts; nothing is written down of an attempt that is not under way. Without memory something is forgotten: then a file that it made stays pending. */
void amfs_attempt_missed(uint64_t number, uint64_t dir, const char *name, size_t length);
void amfs_attempt_found(uint64_t number, uint64_t dir, const char *name, size_t length); /* in vain before: not any more */
void amfs_attempt_made(uint64_t number, enum amfs_made_kind kind, uint64_t dir, const char *name, size_t length, uint64_t ino);
void amfs_attempt_removed(uint64_t number, uint64_t dir, const char *name, size_t length);
void amfs_attempt_renamed(uint64_t number, uint64_t dir, const char *name, size_t length, uint64_t to_dir, const char *to_name,
                          size_t to_length, bool exchanged);

#endif
