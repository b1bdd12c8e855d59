/* The launcher: starts processes from packed records (record.h) on a thread of its own. Contract for C readers; amfs/_native.pyi says the
 * same to Python.
 *
 * First come, first run, while the running tasks' cores fit in `slots` and their memory in `memory`; a task larger than the whole runs
 * alone. Every task is a process group of its own, and all its processes bear a mark (mark.h). When its first process ends, the rest of
 * the group is killed at once and other processes with its mark within milliseconds, before the outputs are looked at if tasks do not end
 * in quick succession. When this process dies, the kernel kills the first process of every task and the watcher the others.
 *
 * Threads: any thread may call any function, but amfs_launcher_stop and _free only once nobody else calls. A child made by fork() must
 * not use a launcher of its parent (amfs_launcher_is_ours tells); freeing it there only gives up its memory.
 *
 * A task that reaches its time limit (record.h) gets SIGTERM, and SIGKILL a second later.
 *
 * Captured stdout and stderr live in memory (catch.h). The tail is kept; of stdout with AMFS_WANT_OUTPUT the beginning, and if there is more
 * than `capture` bytes, all of it up to 16 MiB is written to <log_dir>/<serial hex>.stdout and `detail` says so. Output beyond these bounds
 * is given up while the task runs.
 *
 * The completion descriptor is signalled at once when the queue has fewer than `slots` records, when 32 completions wait, and otherwise at
 * most once in a millisecond, so that a busy consumer is woken for batches and an idle one without delay.
 */
#ifndef AMFS_LAUNCHER_H
#define AMFS_LAUNCHER_H

#include "record.h"
#include "spawn.h"

typedef struct amfs_launcher amfs_launcher;

typedef struct {
    uint32_t slots;          /* at least 1 */
    uint64_t memory;         /* 0: not accounted */
    const char *sandbox_dir; /* must exist, on the file system of the store */
    const char *log_dir;     /* made when first needed */
    const char *mount_dir;   /* where the session's file system is for blind tasks; NULL: they cannot run */
    const char *watcher;     /* the program amfs-watcher; NULL: processes that tasks leave behind survive the death of this one */
    const char *kills_file,
        *last_words; /* the watcher says them on our standard error when we have died and the count in this file has grown */
} amfs_launcher_options;

/* Start a launcher. Returns 0, or an errno with a sentence in `fault`. */
int amfs_launcher_new(const amfs_launcher_options *options, amfs_launcher **launcher, char *fault, size_t fault_size);

bool amfs_launcher_is_ours(const amfs_launcher *launcher);
int amfs_launcher_fd(const amfs_launcher *launcher);

/* Base directory (absolute), whole environment, and customs (NULL: those of this process) for the records queued from now on that name this
 * context. 0 or ENOMEM. */
int amfs_launcher_set_context(amfs_launcher *launcher, uint32_t id, const char *base, const char *const *env, size_t env_count,
                              const amfs_customs *customs);
void amfs_launcher_drop_context(amfs_launcher *launcher, uint32_t id);

/* Blind tasks that start from now on enter the user and mount namespaces of this process, which must not be collected before the next call; 0: they
 * stay in those of this process. */
void amfs_launcher_enter(amfs_launcher *launcher, pid_t keeper);

/* Queue tasks, which then belong to the launcher. Returns 0; ENOKEY when one names an unknown context (its serial in *odd) or ESHUTDOWN
 * after stop: then none is queued and all remain the caller's. */
int amfs_launcher_submit(amfs_launcher *launcher, amfs_task *const *tasks, size_t count, uint64_t *odd);

/* The tasks that ended since the last call, oldest first, now the caller's. */
amfs_completion *amfs_launcher_take(amfs_launcher *launcher);

/* Withdraw those not started (they complete as cancelled), SIGTERM and after 1 s SIGKILL all processes of the others. 0 or ENOMEM. */
int amfs_launcher_kill(amfs_launcher *launcher, const uint64_t *serials, size_t count);

/* Take up to `count` records back from the tail of the queue. Writes their serials, oldest first; returns how many. */
size_t amfs_launcher_withdraw(amfs_launcher *launcher, size_t count, uint64_t *serials);

/* A task that runs: since when (microseconds since the epoch), in which slot, and its first process. */
typedef struct {
    uint64_t serial;
    int64_t start_us;
    uint32_t slot;
    pid_t pid;
} amfs_at_work;

/* Write what runs now, at most `slots` entries (in order of slots); returns how many. The launcher's thread is not kept waiting. */
size_t amfs_launcher_at_work(amfs_launcher *launcher, amfs_at_work *tasks);
uint32_t amfs_launcher_slots(const amfs_launcher *launcher);

size_t amfs_launcher_queued(amfs_launcher *launcher);
size_t amfs_launcher_running(amfs_launcher *launcher);
int64_t amfs_launcher_cpu_us(amfs_launcher *launcher);

/* SIGKILL everything, drop the queue, remove sandboxes, join the thread. Running tasks complete as cancelled. Repeatable. */
void amfs_launcher_stop(amfs_launcher *launcher);
void amfs_launcher_free(amfs_launcher *launcher);

#endif
