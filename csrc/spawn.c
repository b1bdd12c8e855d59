#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
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

enum { STACK = 64 * 1024, SIGNALS = 64, KERNEL_SIGSET = 8 };

/* The child runs in our memory until execve, with no stack protector or shadow memory of ours to keep up to date. */
#define CHILD_CODE __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

/* The kernel's own structure: only its first word (the handler) matters, and a zeroed one means "default" on every processor. */
typedef struct {
    void *handler;
    uint64_t rest[7];
} kernel_sigaction;

typedef struct {
    const amfs_spawner *spawner;
    const amfs_command *command;
    int failed_at, error;
} child_world;

int amfs_spawner_init(amfs_spawner *spawner)
{
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return errno;
    spawner->stack = stack;
    spawner->parent = getpid();
    amfs_spawner_look(spawner);
    return 0;
}

void amfs_spawner_free(amfs_spawner *spawner)
{
    if (spawner->stack != NULL)
        munmap(spawner->stack, STACK);
    spawner->stack = NULL;
}

void amfs_spawner_look(amfs_spawner *spawner)
{
    uint64_t odd = 0;

    for (int number = 1; number <= SIGNALS; number++) {
        kernel_sigaction action = {0};
        if (syscall(SYS_rt_sigaction, number, NULL, &action, KERNEL_SIGSET) == 0 && action.handler != NULL)
            odd |= (uint64_t)1 << (number - 1);
    }
    spawner->odd_signals = odd;
}

CHILD_CODE static int child(void *argument)
{
    child_world *world = argument;
    const amfs_command *command = world->command;
    static const kernel_sigaction standard; /* SIG_DFL */
    uint64_t none = 0;

    /* Handlers of this process must never run in here, so they go before any signal may come in. */
    for (uint64_t odd = world->spawner->odd_signals; odd != 0; odd &= odd - 1)
        syscall(SYS_rt_sigaction, __builtin_ctzll(odd) + 1, &standard, NULL, KERNEL_SIGSET);
    syscall(SYS_setpgid, 0, 0);
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (syscall(SYS_getppid) != world->spawner->parent) /* it died before we could ask to be told */
        goto out;

    world->failed_at = AMFS_SPAWN_DIRECTORY;
    if (syscall(SYS_chdir, command->directory) < 0)
        goto failed;
    world->failed_at = AMFS_SPAWN_STREAMS;
    if (syscall(SYS_dup3, command->in, 0, 0) < 0 || syscall(SYS_dup3, command->out, 1, 0) < 0 ||
        syscall(SYS_dup3, command->err, 2, 0) < 0)
        goto failed;
    world->failed_at = AMFS_SPAWN_PROGRAM;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, KERNEL_SIGSET);
    syscall(SYS_execve, command->program, command->argv, command->env);
    if (errno == ENOEXEC) {
        /* A script without "#!": every shell and execvp(3) give it to sh. */
        const char **shell = (const char **)(uintptr_t)(command->argv - 1);
        shell[0] = "/bin/sh";
        shell[1] = command->program;
        syscall(SYS_execve, shell[0], shell, command->env);
    }
failed:
    world->error = errno;
out:
    syscall(SYS_exit_group, 127);
    __builtin_unreachable();
}

void amfs_spawn(amfs_spawner *spawner, const amfs_command *command, amfs_process *process)
{
    /* volatile by address: the child writes it before we go on */
    child_world world = {spawner, command, AMFS_SPAWN_CLONE, 0};
    int pidfd = -1;

    process->pidfd = -1;
    process->error = 0;
    process->pid = clone(child, spawner->stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &world, &pidfd);
    if (process->pid < 0) {
        process->failed_at = AMFS_SPAWN_CLONE;
        process->error = errno;
        return;
    }
    process->pidfd = pidfd;
    __asm__ volatile("" ::: "memory");
    if (world.error == 0)
        return;
    process->failed_at = world.failed_at;
    process->error = world.error;
    amfs_ending ending;
    amfs_collect(pidfd, true, &ending);
    close(pidfd);
    process->pidfd = -1;
}

int amfs_collect(int pidfd, bool wait, amfs_ending *ending)
{
    siginfo_t info;
    struct rusage usage;
    long done;

    info.si_pid = 0;
    do /* the library's waitid() does not pass the usage on */
        done = syscall(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED | (wait ? 0 : WNOHANG), &usage);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return ECHILD;
    if (info.si_pid == 0)
        return EAGAIN;
    ending->signalled = info.si_code != CLD_EXITED;
    ending->dumped = info.si_code == CLD_DUMPED;
    ending->code = info.si_status;
    ending->cpu_us = (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    ending->maxrss_kib = usage.ru_maxrss;
    return 0;
}
