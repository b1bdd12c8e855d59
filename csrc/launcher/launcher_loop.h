/* Private to the launcher's thread: launcher_loop.c (queue, waiting, timers) and task_run.c (one task from start to completion). */
#ifndef AMFS_LOOP_H
#define AMFS_LOOP_H

#include "catch.h"
#include "common/clock.h"
#include "launcher_internal.h"
#include "mark.h"
#include "sandbox.h"
#include "spawn.h"

/* Why a running task is being killed. */
enum { AMFS_NOT_KILLED, AMFS_KILLED_BY_LIMIT, AMFS_KILLED_ON_REQUEST };

typedef struct {
    amfs_task *task; /* NULL: free */
    amfs_nest *nest; /* made when first needed, then used again */
    const char **env; /* made for the task that runs now; NULL: its context's */
    pid_t pid;
    int pidfd;
    uint64_t mark; /* of its processes; 0: none runs */
    uint64_t attempt; /* of a blind task: attempts.h; 0: it is none */
    uint64_t forks; /* of others, when it was started: see loop.forks */
    int64_t started_us; /* monotonic */
    int killed;          /* AMFS_KILLED_... */
    bool killed_hard;    /* SIGKILL is sent */
    bool hurries;        /* processes that it left are not waited for */
    bool yields;         /* the kernel kills it before us */
    int64_t deadline_us; /* monotonic; INT64_MAX: none */
    int64_t lingers_since_us; /* its first process is over, and others have a moment to end by themselves; 0: it is not so */
    amfs_catcher out, err;
} amfs_slot;

enum { AMFS_RESERVE = 3 }; /* for /proc, a process, and what that has open */

typedef struct {
    amfs_launcher *launcher;
    int epoll_fd, null_fd;
    int reserve[AMFS_RESERVE]; /* descriptors kept to be closed when what a task has left is looked for: tasks may have all others */
    amfs_files files;
    amfs_spawner spawner;
    amfs_slot *slots;
    uint32_t *free_slots, free_count;
    uint32_t running, cores_used;
    uint64_t memory_used;
    int64_t next_deadline_us, last_signal_us, next_trim_us;
    int64_t trim_interval_us;
    int64_t own_rss_kib; /* the most this process had, as far as looked */
    uint64_t mark;      /* the launcher's; 0: there are no marks here */
    uint64_t started;   /* tasks so far: numbers their marks */
    uint64_t forks;     /* how often, as far as is known, a process was started by somebody else than this loop */
    pid_t last_pid;     /* of the process that this loop started last */
    int last_pid_fd;    /* /proc/loadavg, which tells the number given to a process last; -1: not here */
    int64_t most_pids;  /* numbers of processes begin again after so many */
    bool hopeless;      /* a task has waited in vain for what it takes to start it; nothing has been started since */
    int64_t again_us, pause_us; /* of a task that could not be started: not to be tried again before, and how long that was */
    bool unswept;       /* tasks have ended since the last look for what they left */
    int64_t sweep_at_us; /* not to look again before */
    uint32_t lingering;  /* slots with lingers_since_us */
    int64_t linger_at_us; /* to look at them again */
    uint64_t keeper;    /* launcher.keeper, as of keeper_fd */
    int keeper_fd;      /* its pidfd; 0: none */
    amfs_nest *watcher; /* NULL: none */
    int watcher_pipe;   /* the watcher acts when this is closed */
} amfs_loop;

/* RUNS: the slot holds the task. ENDED: its completion is filled in, the slot is free, and the task the caller's. WANTS: so it is, but
 * nothing has happened: this process, or this machine, has not what it takes to start another one just now. */
typedef enum { AMFS_RUNS, AMFS_ENDED, AMFS_WANTS } amfs_run_state;

/* Start `task` in a slot. When it ends at once, its outcome is SETUP. */
amfs_run_state amfs_run_start(amfs_loop *loop, amfs_slot *slot, amfs_task *task);

/* The first process of the slot's task has ended: kill what is left, collect, check and publish, clean up, fill in the completion. `*task` is
 * then the caller's. ENDED or WANTS. */
amfs_run_state amfs_run_finish(amfs_loop *loop, amfs_slot *slot, amfs_task **task);

/* Signal the slot's process group, and all other processes of its task. */
void amfs_run_signal(const amfs_loop *loop, const amfs_slot *slot, int number);

/* Try again to end what is left of tasks that have ended, and did not end at once. Takes a walk through /proc. */
void amfs_run_sweep(amfs_loop *loop);

/* Give back the memory of captured output beyond what will be kept. Returns by how much the output has grown. If memory runs out the kernel
 * is to kill the task and not us: that takes some system calls, so it is for tasks that run for longer than a moment. */
int64_t amfs_run_trim(const amfs_loop *loop, amfs_slot *slot);

#endif
