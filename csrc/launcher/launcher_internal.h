/* Shared by launcher.c (the callers' side) and launcher_loop.c (the thread's side). */
#ifndef AMFS_LAUNCHER_PRIVATE_H
#define AMFS_LAUNCHER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "launcher.h"
#include "spawn.h"

enum { AMFS_BATCH = 64 };

/* Base directory and environment shared by many tasks. Immutable; freed with its last reference (counted under the launcher's lock). */
typedef struct amfs_context {
    struct amfs_context *next;
    uint32_t id;
    size_t references;
    char *base; /* with a slash at its end */
    size_t env_count;
    const char **env; /* without PWD and OLDPWD, which each task has of its own */
    amfs_customs customs;
} amfs_context;

/* The task of a slot, for those that look: written by the launcher's thread, `serial` last at the start and first at the end. */
typedef struct {
    _Atomic uint64_t serial; /* 0: nothing */
    _Atomic int64_t start_us;
    _Atomic int pid;
} amfs_shown_slot;

struct amfs_launcher {
    /* Constant while the thread runs. */
    uint32_t slots;
    uint64_t memory;
    char *sandbox_dir, *log_dir, *mount_dir, *watcher, *kills_file, *last_words; /* the last four: NULL: none */
    pid_t owner;
    pthread_t thread;
    int wake_fd; /* eventfd to the thread, edge-triggered there and never read */
    amfs_shown_slot *shown; /* one for each slot */
    int done_fd; /* eventfd to the caller: readable exactly while `signalled` */
    _Atomic uint64_t keeper; /* whose namespaces blind tasks enter: how often it has changed, and in the lower half its number or 0 */

    pthread_mutex_t lock;
    /* All below under the lock. */
    pthread_cond_t ready_change;
    bool ready; /* the thread is up, or has given up with start_error */
    int start_error;
    char start_fault[256];
    amfs_context *contexts;
    amfs_task *head, *tail;
    size_t queued, running;
    amfs_completion *done_head, *done_tail;
    size_t done_count;
    bool signalled, stopping, look;
    uint64_t *kills;
    size_t kill_count;
    bool joined;
    int64_t cpu_us; /* of the thread, once joined */
};

void *amfs_launcher_thread(void *launcher); /* launcher_loop.c */

/* launcher_queue.c. Under the lock. */
void amfs_launcher_signal(amfs_launcher *launcher);
void amfs_launcher_append(amfs_launcher *launcher, amfs_completion *completion);
void amfs_launcher_unlink(amfs_launcher *launcher, amfs_task *task);
void amfs_context_release(amfs_context *context);

int amfs_compare_serials(const void *left, const void *right);

#endif
