#include "leftover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    AT_ONCE = 256,
    MOMENT_US = 100000,          /* for any process to end by itself, */
    WRITES_US = 2000000,         /* and for one that has an output open */
    PATIENCE_US = 300000,
    NUMBERS_MAX = 8192,          /* to ask one by one costs less than a walk through /proc */
    NUMBERS_PER_SECOND = 1 << 15, /* no machine gives so many to processes, so that they do not begin again meanwhile */
};

pid_t amfs_last_pid(const amfs_loop *loop) {
    char text[128];
    ssize_t length = loop->last_pid_fd < 0 ? 0 : pread(loop->last_pid_fd, text, sizeof text - 1, 0);

    text[length > 0 ? length : 0] = '\0';
    const char *last = strrchr(text, ' ');
    return last == NULL ? 0 : (pid_t)strtol(last, NULL, 10);
}

/* Numbers are given to processes in order: those of the task are above that of its first one, up to the last one given. 0: have all looked at,
 * since the numbers may have begun again, or are too many. */
static pid_t last_number(const amfs_loop *loop, const amfs_slot *slot) {
    pid_t last = amfs_last_pid(loop);
    int64_t us = now_us() - slot->started_us;

    if (last <= slot->pid || last - slot->pid > NUMBERS_MAX) return 0;
    return us * NUMBERS_PER_SECOND / 1000000 < loop->most_pids ? last : 0;
}

static bool is_output(amfs_loop *loop, const amfs_task *task, uint32_t i, const struct stat *file) {
    struct stat output;
    int at = amfs_files_at(&loop->files, task, task->context->base, task->outputs[i].name);
    return at != -ENAMETOOLONG && fstatat(at, loop->files.path, &output, 0) == 0 && output.st_ino == file->st_ino &&
           output.st_dev == file->st_dev;
}

/* An output that this process has open for writing. NULL: there is none. */
static const char *written_by(amfs_loop *loop, const amfs_task *task, pid_t pid) {
    char path[40];
    struct dirent *entry;
    struct stat link, file;
    const char *name = NULL;

    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *descriptors = opendir(path);
    while (name == NULL && descriptors != NULL && (entry = readdir(descriptors)) != NULL) {
        /* The mode of such a link says how the file was opened. */
        if (fstatat(dirfd(descriptors), entry->d_name, &link, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(link.st_mode) ||
            (link.st_mode & S_IWUSR) == 0 || fstatat(dirfd(descriptors), entry->d_name, &file, 0) != 0 || !S_ISREG(file.st_mode))
            continue;
        for (uint32_t i = 0; i < task->output_count && name == NULL; i++)
            if (is_output(loop, task, i, &file)) name = task->outputs[i].name;
    }
    if (descriptors != NULL) closedir(descriptors);
    return name;
}

void amfs_reserve_give(amfs_loop *loop) {
    for (int i = 0; i < AMFS_RESERVE; i++) {
        if (loop->reserve[i] >= 0) close(loop->reserve[i]);
        loop->reserve[i] = -1;
    }
}

void amfs_reserve_take(amfs_loop *loop) {
    for (int i = 0; i < AMFS_RESERVE; i++)
        if (loop->reserve[i] < 0) loop->reserve[i] = fcntl(loop->null_fd, F_DUPFD_CLOEXEC, 0);
}

static amfs_left look_and_end(amfs_loop *loop, const amfs_slot *slot, int64_t waited_us) {
    int64_t give_up = now_us() + PATIENCE_US;
    amfs_left left = {0};
    amfs_marked found[AT_ONCE];

    if (slot->mark == 0) return left;
    for (bool first = true;; first = false) {
        unsigned count = amfs_mark_find(slot->mark, slot->pid, last_number(loop, slot), found, AT_ONCE);
        left.clean = count == 0;
        if (left.clean) break;
        if (first) {
            left.count = count = amfs_mark_await(found, count, 0);
            for (unsigned i = 0; i < count && left.unfinished == NULL; i++) left.unfinished = written_by(loop, slot->task, found[i].pid);
            left.lingers = count > 0 && waited_us >= 0 && waited_us < (left.unfinished != NULL ? WRITES_US : MOMENT_US);
            while (left.lingers && count > 0) close(found[--count].pidfd);
            if (left.lingers) break;
        }
        amfs_mark_kill(found, count);
        if (now_us() >= give_up) break;
    }
    return left;
}

amfs_left amfs_left_end(amfs_loop *loop, const amfs_slot *slot, int64_t waited_us) {
    amfs_reserve_give(loop);
    amfs_left left = look_and_end(loop, slot, waited_us);
    amfs_reserve_take(loop);
    return left;
}
