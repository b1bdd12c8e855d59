/* Starting one process and collecting it, with a pidfd. Knows no queue and no sandbox.
 *
 * A child shares our memory until it executes its program, so nothing is copied for it, and we do not wait for that: its orders lie in
 * a nest, which is its own until the process has ended. Only then is known whether its program was started. */
#ifndef AMFS_SPAWN_H
#define AMFS_SPAWN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Facts with which a launcher thread starts children; one per thread. */
typedef struct {
    pid_t parent;         /* this process */
    uint64_t most_rttime; /* hard limit that goes with a mark */
    uint64_t files[2];    /* soft and hard limit of open files, of our caller: we may have raised ours */
    int oom_score;        /* of this process: which one the kernel kills when memory has run out */
    uint64_t odd_signals; /* bit n: signal n+1 is ignored or handled in this process and has to be reset in children */
} amfs_spawner;

/* Settings that the children of one run take from the process that wants the run, as far as this process has others. */
typedef struct {
    int umask;                          /* -1: as here */
    bool niced;
    int nice;
    uint32_t limited;                   /* bit n: limits[n] is to be set */
    uint64_t limits[RLIM_NLIMITS][2]; /* soft and hard */
} amfs_customs;

typedef struct {
    const char *directory; /* absolute */
    const char *program;
    const char *const *argv; /* argv[-1] is overwritten when the program is a script without an interpreter line */
    const char *const *env;
    int in, out, err;
    uint64_t mark; /* mark.h; 0: none */
    const amfs_customs *customs; /* NULL: none */
    int keeper; /* pidfd of a process whose user and mount namespaces it enters, and where `directory` and `program` are meant; 0: none */
    bool outlives; /* our death is not its own. Such a start is waited for: its result is in the nest then */
} amfs_command;

/* Where a start failed, for the message. */
enum { AMFS_SPAWN_CLONE, AMFS_SPAWN_NAMESPACES, AMFS_SPAWN_DIRECTORY, AMFS_SPAWN_STREAMS, AMFS_SPAWN_PROGRAM };

/* The memory that one child reads, and runs on. `error` is final when the process has been collected; 0: its program was started. */
typedef struct {
    const amfs_spawner *spawner;
    amfs_command command; /* all that it points to must stay */
    char pwd[sizeof "PWD=" + PATH_MAX]; /* where it starts, as an entry of its environment */
    uint64_t rttime[2]; /* soft and hard limit */
    int failed_at, error;
    pid_t pid;
    int pidfd;
} amfs_nest;

typedef struct {
    bool signalled;
    int code; /* exit status or signal number */
    bool dumped;
    int64_t cpu_us, maxrss_kib;
} amfs_ending;

enum { AMFS_PWD = 4 }; /* the length of "PWD=" */

/* Raise this process's soft limit of open files to the hard one, and remember what it was. Any thread. */
void amfs_files_raise(void);

/* The limit of open files that our caller gave us. */
void amfs_files_limit(struct rlimit *limit);

/* Note the soft limits (indexed by resource; UINT64_MAX: none, and so at most our own hard one) and the rest that differ from ours. */
void amfs_customs_set(amfs_customs *customs, int umask, bool niced, int nice, const uint64_t *soft, const bool *given, unsigned count);

/* The calling thread must have all signals blocked, and a file table without descriptors that children must not get. */
void amfs_spawner_init(amfs_spawner *spawner);

/* A nest for one child at a time. NULL without memory. */
amfs_nest *amfs_nest_new(void);
void amfs_nest_free(amfs_nest *nest); /* NULL does nothing; a child still in there must have been sent SIGKILL */

/* See again which signals are ignored or handled; cheap, to be called now and then. */
void amfs_spawner_look(amfs_spawner *spawner);

/* Start a process in a group of its own that dies with this thread unless it is to outlive it: 0 or an errno, also in the nest. The command's
 * directory is copied. */
int amfs_spawn(const amfs_spawner *spawner, const amfs_command *command, amfs_nest *nest);

/* Have the kernel kill this process, and those that it has started, rather than ours when memory has run out: files that they have written into a
 * store in memory are freed when we clean up after them. For a process that has executed its program: before that the kernel takes it for
 * a part of ours. */
void amfs_spawn_yield(const amfs_spawner *spawner, pid_t pid);

/* Collect a process. Returns 0, EAGAIN when it still runs, or ECHILD when somebody else took its status. */
int amfs_collect(int pidfd, bool wait, amfs_ending *ending);

#endif
