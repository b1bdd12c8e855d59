#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

#if defined(__SANITIZE_THREAD__)
/* The thread sanitizer replaces clone by one that sets up the child as after fork: wrong for a child in our memory. */
int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);
#define clone __clone
#endif

enum { NEST = 64 * 1024, SIGNALS = 64, KERNEL_SIGSET = 8 };

/* The child runs in our memory until execve, with no stack protector or shadow memory of ours to keep up to date. */
#define CHILD_CODE __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

/* The kernel's own structure: only its first word (the handler) matters, and a zeroed one means "default" on every processor. */
typedef struct {
    void *handler;
    uint64_t rest[7];
} kernel_sigaction;

/* A child's system calls. It shares our thread's errno, which must not change under us, so it leaves errno alone: result or -errno. Where
 * we cannot call the kernel so, we stand still until the child is out of our memory. */
#if defined(__x86_64__)
enum { WAIT_FOR_CHILD = 0 };

CHILD_CODE static long call(long number, long a, long b, long c, long d, long e) {
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
    return number;
}
#elif defined(__aarch64__)
enum { WAIT_FOR_CHILD = 0 };

CHILD_CODE static long call(long number, long a, long b, long c, long d, long e) {
    register long what __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    __asm__ volatile("svc #0" : "+r"(first) : "r"(what), "r"(second), "r"(third), "r"(fourth), "r"(fifth) : "memory");
    return first;
}
#else
enum { WAIT_FOR_CHILD = CLONE_VFORK };

CHILD_CODE static long call(long number, long a, long b, long c, long d, long e) {
    long result = syscall(number, a, b, c, d, e);
    return result < 0 ? -errno : result;
}
#endif

/* The content of a file of /proc/PID, as far as it fits. */
static const char *read_proc(pid_t pid, const char *name, char *text, size_t size) {
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

static void yield(pid_t pid, int score, int generations) {
    char text[1024];

    snprintf(text, sizeof text, "/proc/%d/oom_score_adj", pid);
    int fd = open(text, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    dprintf(fd, "%d", score);
    close(fd);
    if (generations == 0) return;
    char children[32];
    snprintf(children, sizeof children, "task/%d/children", pid);
    char *rest = text;
    read_proc(pid, children, text, sizeof text);
    for (pid_t child; (child = (pid_t)strtol(rest, &rest, 10)) > 0;) yield(child, score, generations - 1);
}

void amfs_spawn_yield(const amfs_spawner *spawner, pid_t pid) {
    enum { MORE = 500, MOST = 1000, GENERATIONS = 4 };
    yield(pid, spawner->oom_score + MORE < MOST ? spawner->oom_score + MORE : MOST, GENERATIONS);
}

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rlimit files_given, files_raised; /* under the lock; the second zero: not raised */

static bool is_raised(const struct rlimit *now) { return files_raised.rlim_cur != 0 && now->rlim_cur == files_raised.rlim_cur; }

void amfs_files_limit(struct rlimit *limit) {
    pthread_mutex_lock(&files_lock);
    if (getrlimit(RLIMIT_NOFILE, limit) != 0) *limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    if (is_raised(limit)) *limit = files_given;
    pthread_mutex_unlock(&files_lock);
}

void amfs_files_raise(void) {
    struct rlimit now;

    pthread_mutex_lock(&files_lock);
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && !is_raised(&now) && now.rlim_cur < now.rlim_max) {
        struct rlimit most = {now.rlim_max, now.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &most) == 0) {
            files_given = now;
            files_raised = most;
        }
    }
    pthread_mutex_unlock(&files_lock);
}

void amfs_customs_set(amfs_customs *customs, int mask, bool niced, int nice, const uint64_t *soft, const bool *given, unsigned count) {
    struct rlimit own;

    *customs = (amfs_customs){.umask = mask, .niced = niced && getpriority(PRIO_PROCESS, 0) != nice, .nice = nice};
    for (unsigned i = 0; i < count && i < RLIM_NLIMITS; i++) {
        if (!given[i] || i == RLIMIT_RTTIME || getrlimit((int)i, &own) != 0) continue; /* that one has the mark */
        uint64_t wanted = soft[i] < own.rlim_max ? soft[i] : own.rlim_max;
        if (wanted == own.rlim_cur && i != RLIMIT_NOFILE) continue;
        customs->limits[i][0] = wanted;
        customs->limits[i][1] = own.rlim_max;
        customs->limited |= UINT32_C(1) << i;
    }
}

void amfs_spawner_init(amfs_spawner *spawner) {
    struct rlimit limit = {0};
    char text[32];

    spawner->oom_score = atoi(read_proc(getpid(), "oom_score_adj", text, sizeof text));
    spawner->parent = getpid();
    getrlimit(RLIMIT_RTTIME, &limit);
    spawner->most_rttime = limit.rlim_max;
    amfs_files_limit(&limit);
    spawner->files[0] = limit.rlim_cur;
    spawner->files[1] = limit.rlim_max;
    amfs_spawner_look(spawner);
}

_Static_assert(sizeof(amfs_nest) < NEST / 2, "the child's stack is the upper end of the nest");

amfs_nest *amfs_nest_new(void) {
    void *memory = mmap(NULL, NEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void amfs_nest_free(amfs_nest *nest) {
    if (nest != NULL) munmap(nest, NEST);
}

void amfs_spawner_look(amfs_spawner *spawner) {
    uint64_t odd = 0;

    for (int number = 1; number <= SIGNALS; number++) {
        kernel_sigaction action = {0};
        if (syscall(SYS_rt_sigaction, number, NULL, &action, KERNEL_SIGSET) == 0 && action.handler != NULL)
            odd |= (uint64_t)1 << (number - 1);
    }
    spawner->odd_signals = odd;
}

CHILD_CODE static void take_customs(const amfs_customs *customs) {
    for (uint32_t left = customs->limited; left != 0; left &= left - 1) {
        int resource = __builtin_ctz(left);
        call(SYS_prlimit64, 0, resource, (long)customs->limits[resource], 0, 0);
    }
    if (customs->umask >= 0) call(SYS_umask, customs->umask, 0, 0, 0, 0);
    if (customs->niced) call(SYS_setpriority, PRIO_PROCESS, 0, customs->nice, 0, 0); /* as far as it is allowed */
}

CHILD_CODE static int child(void *argument) {
    amfs_nest *nest = argument;
    const amfs_command *command = &nest->command;
    static const kernel_sigaction standard; /* SIG_DFL */
    uint64_t none = 0;
    long failed;

    /* Handlers of this process must never run in here, so they go before any signal may come in. */
    for (uint64_t odd = nest->spawner->odd_signals; odd != 0; odd &= odd - 1)
        call(SYS_rt_sigaction, __builtin_ctzll(odd) + 1, (long)&standard, 0, KERNEL_SIGSET, 0);
    call(SYS_setpgid, 0, 0, 0, 0, 0);
    if (!command->outlives) call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (command->mark != 0) call(SYS_prlimit64, 0, RLIMIT_RTTIME, (long)nest->rttime, 0, 0);
    call(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)nest->spawner->files, 0, 0); /* programs with select() need the usual one */
    if (command->customs != NULL) take_customs(command->customs);
    if (call(SYS_getppid, 0, 0, 0, 0, 0) != nest->spawner->parent) /* it died before we could ask to be told */
        goto out;

    if (command->keeper > 0) {
        nest->failed_at = AMFS_SPAWN_NAMESPACES;
        failed = call(SYS_setns, command->keeper, CLONE_NEWUSER | CLONE_NEWNS, 0, 0, 0);
        if (failed < 0) goto failed;
    }
    nest->failed_at = AMFS_SPAWN_DIRECTORY;
    failed = call(SYS_chdir, (long)(nest->pwd + AMFS_PWD), 0, 0, 0, 0);
    if (failed < 0) goto failed;
    nest->failed_at = AMFS_SPAWN_STREAMS;
    if ((failed = call(SYS_dup3, command->in, 0, 0, 0, 0)) < 0 || (failed = call(SYS_dup3, command->out, 1, 0, 0, 0)) < 0 ||
        (failed = call(SYS_dup3, command->err, 2, 0, 0, 0)) < 0)
        goto failed;
    nest->failed_at = AMFS_SPAWN_PROGRAM;
    call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, KERNEL_SIGSET, 0);
    failed = call(SYS_execve, (long)command->program, (long)command->argv, (long)command->env, 0, 0);
    if (failed == -ENOEXEC) {
        /* A script without "#!": every shell and execvp(3) give it to sh. */
        const char **shell = (const char **)(uintptr_t)(command->argv - 1);
        shell[0] = "/bin/sh";
        shell[1] = command->program;
        failed = call(SYS_execve, (long)shell[0], (long)shell, (long)command->env, 0, 0);
    }
failed:
    nest->error = (int)-failed;
out:
    call(SYS_exit_group, 127, 0, 0, 0, 0);
    __builtin_unreachable();
}

int amfs_spawn(const amfs_spawner *spawner, const amfs_command *command, amfs_nest *nest) {
    nest->spawner = spawner;
    nest->command = *command;
    snprintf(nest->pwd, sizeof nest->pwd, "PWD=%s", command->directory);
    nest->command.directory = nest->pwd + AMFS_PWD;
    nest->rttime[0] = command->mark;
    nest->rttime[1] = spawner->most_rttime;
    nest->failed_at = AMFS_SPAWN_CLONE;
    nest->error = 0;
    int pidfd = -1;
    int wait = command->outlives ? CLONE_VFORK : WAIT_FOR_CHILD;
    nest->pid = clone(child, (char *)nest + NEST, CLONE_VM | wait | CLONE_PIDFD | SIGCHLD, nest, &pidfd);
    nest->pidfd = pidfd;
    return nest->pid < 0 ? nest->error = errno : 0;
}

int amfs_collect(int pidfd, bool wait, amfs_ending *ending) {
    siginfo_t info;
    struct rusage usage;
    long done;

    info.si_pid = 0;
    do /* the library's waitid() does not pass the usage on */
        done = syscall(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED | (wait ? 0 : WNOHANG), &usage);
    while (done < 0 && errno == EINTR);
    if (done < 0) return ECHILD;
    if (info.si_pid == 0) return EAGAIN;
    ending->signalled = info.si_code != CLD_EXITED;
    ending->dumped = info.si_code == CLD_DUMPED;
    ending->code = info.si_status;
    ending->cpu_us = (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    ending->maxrss_kib = usage.ru_maxrss;
    return 0;
}
