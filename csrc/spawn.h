/* Starting one process and collecting it: vfork semantics with a pidfd. Knows no queue and no sandbox. */
#ifndef AMFS_SPAWN_H
#define AMFS_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What a launcher thread needs to start children; one per thread. */
typedef struct {
    char *stack;         /* the child runs on this until it executes its program */
    pid_t parent;        /* this process */
    uint64_t odd_signals; /* bit n: signal n+1 is ignored or handled in this process and has to be reset in children */
} amfs_spawner;

typedef struct {
    const char *directory; /* absolute */
    const char *program;
    const char *const *argv; /* argv[-1] is overwritten when the program is a script without an interpreter line */
    const char *const *env;
    int in, out, err;
} amfs_command;

/* Where a start failed, for the message. */
enum { AMFS_SPAWN_CLONE, AMFS_SPAWN_DIRECTORY, AMFS_SPAWN_STREAMS, AMFS_SPAWN_PROGRAM };

typedef struct {
    pid_t pid;
    int pidfd;
    int failed_at, error; /* error 0: the program runs */
} amfs_process;

typedef struct {
    bool signalled;
    int code; /* exit status or signal number */
    bool dumped;
    int64_t cpu_us, maxrss_kib;
} amfs_ending;

/* 0 or an errno. The calling thread must have all signals blocked, and a file table without descriptors that children must not get. */
int amfs_spawner_init(amfs_spawner *spawner);
void amfs_spawner_free(amfs_spawner *spawner);

/* See again which signals are ignored or handled; cheap, to be called now and then. */
void amfs_spawner_look(amfs_spawner *spawner);

/* Start a process in a group of its own that dies with this thread. On error nothing is left behind. */
void amfs_spawn(amfs_spawner *spawner, const amfs_command *command, amfs_process *process);

/* Collect a process. Returns 0, EAGAIN when it still runs, or ECHILD when somebody else took its status. */
int amfs_collect(int pidfd, bool wait, amfs_ending *ending);

#endif
