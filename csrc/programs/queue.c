/* AMFS_queue: adds one task to the queue of a session. One record in the spool (amfs/queueing/spool.py says its form), one write(2), no answer to
 * wait for: the task is recorded when this program has ended with status 0.
 *
 *   AMFS_queue [-C DIR] [--data-arg N] [--even] [--to DIR] [--] PROGRAM [ARGUMENT]... [-if FILE...] [-of FILE...]
 *
 * AMFS_SPOOL names the spool, AMFS_MOUNT the mount in which the caller stands. Where one of them does not help, `amfs queue` is run instead,
 * which finds out. amfs/queueing/words.py says what the options mean; this program only checks that they are well-formed.
 *
 * Exit status: 0; 1 it could not be written; 2 wrong usage; 4 the session is gone. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/xxh64.h"

extern char **environ;

static int fail(int status, const char *what, const char *why) {
    fprintf(stderr, "AMFS_queue: %s%s%s\n", what, why ? ": " : "", why ? why : "");
    return status;
}

static bool is(const char *word, const char *other) { return strcmp(word, other) == 0; }

static bool is_number(const char *word) {
    size_t digits = strspn(word, "0123456789");
    return digits > 0 && digits < 10 && !word[digits] && strspn(word, "0") < digits;
}

/* The fault of the words, NULL if there is none; *placed: they name the directory. */
static const char *fault(int argc, char **argv, bool *placed) {
    int at = 1;
    bool plain = false;
    for (; at < argc && argv[at][0] == '-' && !plain; at++) {
        const char *option = argv[at];
        if (is(option, "--")) plain = true;
        else if (is(option, "--even")) continue;
        else if (is(option, "-C") || is(option, "--directory") || is(option, "--to") || is(option, "--data-arg")) {
            if (++at >= argc) return "an option is without its value";
            if (is(option, "--data-arg") && !is_number(argv[at])) return "--data-arg takes the number of an argument, from 1 on";
            if (is(option, "-C") || is(option, "--directory")) *placed = true;
        } else
            return "no such option; usage: AMFS_queue [-C DIR] [--data-arg N] [--even] [--to DIR] [--] PROGRAM [ARGUMENT]... [-if FILE...] "
                   "[-of FILE...]";
    }
    if (at >= argc || !argv[at][0]) return "no program to run";
    for (at++; !plain && at < argc; at++)
        if ((is(argv[at], "-if") || is(argv[at], "-of")) && (at + 1 == argc || is(argv[at + 1], "-if") || is(argv[at + 1], "-of")))
            return "-if and -of take names of files (after -- they are words of the program)";
    return NULL;
}

typedef struct {
    char *bytes;
    size_t used, room;
} buffer;

static void put(buffer *into, const char *bytes, size_t length) {
    if (into->used + length > into->room) {
        into->room = 2 * (into->used + length) + 4096;
        into->bytes = realloc(into->bytes, into->room);
        if (!into->bytes) exit(fail(1, "out of memory", NULL));
    }
    memcpy(into->bytes + into->used, bytes, length);
    into->used += length;
}

static void put_word(buffer *into, const char *word) {
    put(into, "=", 1);
    put(into, word, strlen(word) + 1);
}

static bool starts(const char *entry, const char *name) { return strncmp(entry, name, strlen(name)) == 0; }

/* Keep the environment in the spool, once; its name is its hash. */
static int keep_environment(const char *spool, char name[17]) {
    char path[PATH_MAX + 64], temporary[PATH_MAX + 64];
    buffer env = {0};
    struct stat facts;
    for (char **entry = environ; *entry; entry++)
        if (strchr(*entry, '=') && !starts(*entry, "PWD=") && !starts(*entry, "OLDPWD=") && !starts(*entry, "_="))
            put(&env, *entry, strlen(*entry) + 1);
    snprintf(name, 17, "%016" PRIx64, amfs_xxh64(env.bytes, env.used, 0));
    snprintf(path, sizeof path, "%s/env/%s", spool, name);
    if (stat(path, &facts) == 0) return 0;
    snprintf(temporary, sizeof temporary, "%s/env/.%s-%ld", spool, name, (long)getpid());
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return errno;
    ssize_t written = env.used ? write(file, env.bytes, env.used) : 0;
    int error = written < 0 ? errno : (size_t)written < env.used ? ENOSPC : 0;
    if (close(file) != 0 && !error) error = errno;
    if (!error && rename(temporary, path) != 0) error = errno;
    if (error) unlink(temporary);
    return error;
}

int main(int argc, char **argv) {
    const char *spool = getenv("AMFS_SPOOL"), *mount = getenv("AMFS_MOUNT");
    char here[PATH_MAX], path[PATH_MAX + 64], name[17];
    bool placed = false;
    const char *why = fault(argc, argv, &placed);
    if (why) return fail(2, why, NULL);
    if (!mount) mount = "";
    if (!getcwd(here, sizeof here)) here[0] = 0;
    size_t length = strlen(mount);
    bool inside = length > 0 && strncmp(here, mount, length) == 0 && (here[length] == '/' || !here[length]);
    if (!spool || !*spool || strlen(spool) >= PATH_MAX || !(inside || placed)) {
        char **words = calloc((size_t)argc + 2, sizeof *words);
        if (!words) return fail(1, "out of memory", NULL);
        words[0] = (char *)"amfs";
        words[1] = (char *)"queue";
        for (int i = 1; i < argc; i++) words[i + 1] = argv[i];
        execvp("amfs", words);
        return fail(4, "this shell knows no session (AMFS_SPOOL), and amfs cannot be run", strerror(errno));
    }

    int error = keep_environment(spool, name);
    buffer record = {0};
    put(&record, "\0q1", 4);
    put_word(&record, here);
    put_word(&record, mount);
    put_word(&record, name);
    for (int i = 1; i < argc; i++) put_word(&record, argv[i]);
    put(&record, ".", 2);
    snprintf(path, sizeof path, "%s/program", spool);
    int file = error ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        if (!error) error = errno;
        return fail(error == ENOENT ? 4 : 1, error == ENOENT ? "the session is gone" : "cannot record the task", strerror(error));
    }
    ssize_t written = write(file, record.bytes, record.used);
    if (written < 0 || (size_t)written < record.used) return fail(1, "cannot record the task", strerror(written < 0 ? errno : ENOSPC));
    return 0;
}
