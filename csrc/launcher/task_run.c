/* One task from its start to its completion. Thread side; launcher_loop.c decides when. */
#include "attempts.h"
#include "launcher_loop.h"
#include "leftover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOGS_MAX = 1 << 30, PATIENCE_US = 10000000, LINGER_FIRST_US = 1000 };

static int64_t epoch_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static bool is_staged(const amfs_task *task) { return (task->flags & AMFS_STAGED) != 0; }

/* ------------------------------------------------------------------------------------------------------------------ start */

/* Open a declared stdin, stdout or stderr file. Never waits: a FIFO without a partner is an error or empty. */
static int open_stream(amfs_loop *loop, const amfs_task *task, const char *name, int flags) {
    int at = amfs_files_at(&loop->files, task, task->context->base, name);
    if (at == -ENAMETOOLONG) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = openat(at, loop->files.path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd >= 0) fcntl(fd, F_SETFL, flags & O_APPEND);
    return fd;
}

/* The three descriptors of the child. Those to close afterwards are also in `opened` (-1: none). */
static int open_streams(amfs_loop *loop, amfs_slot *slot, const amfs_task *task, amfs_command *command, int opened[3], amfs_text *detail) {
    const char *name = task->in, *what = "open";

    command->in = loop->null_fd;
    if (*task->in != '\0' && (command->in = opened[0] = open_stream(loop, task, task->in, O_RDONLY)) < 0) goto failed;
    name = task->out;
    if (*task->out != '\0')
        command->out = opened[1] =
            open_stream(loop, task, task->out, O_WRONLY | O_CREAT | O_TRUNC | (strcmp(task->out, task->err) ? 0 : O_APPEND));
    else command->out = amfs_catch(&slot->out);
    if (command->out < 0) goto failed;
    name = task->err;
    if (*task->err == '\0') command->err = amfs_catch(&slot->err);
    else if (strcmp(task->out, task->err) == 0) command->err = command->out;
    else command->err = opened[2] = open_stream(loop, task, task->err, O_WRONLY | O_CREAT | O_TRUNC);
    if (command->err >= 0) return 0;
failed:;
    int failed = errno;
    if (*name == '\0') amfs_text_add(detail, "cannot make a place to catch the output: %s", strerror(failed));
    else amfs_text_add(detail, "cannot %s '%s': %s", what, name, strerror(failed));
    return failed;
}

/* The context's environment with the task's own entries ("K=V" sets, "K" unsets), and with `pwd`. NULL without memory. */
static const char **make_environment(const amfs_task *task, const char *pwd) {
    size_t count = task->context->env_count;
    const char **env = malloc((count + task->envc + 2) * sizeof *env);
    if (env == NULL) return NULL;
    memcpy(env, task->context->env, count * sizeof *env);
    for (uint32_t i = 0; i < task->envc; i++) {
        const char *entry = task->env[i];
        size_t length = strcspn(entry, "="), kept = 0;
        for (size_t j = 0; j < count; j++)
            if (strncmp(env[j], entry, length) != 0 || env[j][length] != '=') env[kept++] = env[j];
        count = kept;
        if (entry[length] == '=' && strncmp(entry, pwd, AMFS_PWD) != 0) env[count++] = entry;
    }
    env[count++] = pwd;
    env[count] = NULL;
    return env;
}

/* Have files->path as PWD may say it: without a slash at its end, without "." and "..". */
static void tidy_path(amfs_files *files) {
    size_t length = strlen(files->path);

    while (length > 1 && files->path[length - 1] == '/') files->path[--length] = '\0';
    bool dots = false;
    for (const char *at = files->path; !dots && (at = strstr(at, "/.")) != NULL; at++)
        dots = at[2 + (at[2] == '.')] == '/' || at[2 + (at[2] == '.')] == '\0';
    if (dots && realpath(files->path, files->other) != NULL) memcpy(files->path, files->other, strlen(files->other) + 1);
}

static void explain_too_big(const amfs_command *command, amfs_text *detail) {
    enum { ONE_STRING = 131072 }; /* MAX_ARG_STRLEN: 32 pages */
    size_t total = 0, longest = 0;
    for (int list = 0; list < 2; list++)
        for (const char *const *at = list ? command->env : command->argv; *at != NULL; at++) {
            size_t size = strlen(*at) + 1;
            total += size + sizeof(char *);
            if (size > longest) longest = size;
        }
    if (longest > ONE_STRING)
        amfs_text_add(detail, " (one argument or environment value has %zu bytes; Linux allows %d)", longest - 1, ONE_STRING - 1);
    else amfs_text_add(detail, " (arguments and environment take %zu bytes; this system allows about %ld)", total, sysconf(_SC_ARG_MAX));
}

static void explain_spawn(const amfs_task *task, const amfs_nest *nest, amfs_text *detail) {
    const char *why = strerror(nest->error);

    switch (nest->failed_at) {
    case AMFS_SPAWN_CLONE: amfs_text_add(detail, "cannot start a process for '%s': %s", task->program, why); break;
    case AMFS_SPAWN_NAMESPACES: amfs_text_add(detail, "cannot enter the namespaces of the mount for blind tasks: %s", why); break;
    case AMFS_SPAWN_DIRECTORY: amfs_text_add(detail, "cannot enter the working directory '%s': %s", nest->command.directory, why); break;
    case AMFS_SPAWN_STREAMS: amfs_text_add(detail, "cannot set up stdin, stdout and stderr of '%s': %s", task->program, why); break;
    default:
        amfs_text_add(detail, "cannot start '%s': %s", task->program, why);
        if (nest->error == E2BIG) explain_too_big(&nest->command, detail);
        else if (nest->error == ENOENT && task->program[0] == '/' && access(task->program, F_OK) == 0)
            amfs_text_add(detail, " (the file exists; the interpreter that it asks for does not)");
    }
}

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Have loop->keeper_fd be of the keeper that there is now. The descriptor is opened here, for this thread has a file table of its own. 0 or an errno. */
static int follow_keeper(amfs_loop *loop, amfs_text *detail) {
    uint64_t keeper = atomic_load(&loop->launcher->keeper);
    if (keeper == loop->keeper) return 0;
    if (loop->keeper_fd > 0) close(loop->keeper_fd);
    loop->keeper = 0;
    loop->keeper_fd = 0;
    int fd = (uint32_t)keeper == 0 ? 0 : (int)syscall(SYS_pidfd_open, (pid_t)(uint32_t)keeper, 0);
    if (fd < 0) {
        int failed = errno;
        amfs_text_add(detail, "cannot reach the process that keeps the mount for blind tasks: %s", strerror(failed));
        return failed;
    }
    loop->keeper = keeper;
    loop->keeper_fd = fd;
    return 0;
}

/* From now on the mount knows whose its processes are. 0 or an errno. */
static int begin_attempt(amfs_loop *loop, amfs_slot *slot, amfs_command *command, amfs_text *detail) {
    if (loop->launcher->mount_dir == NULL) {
        amfs_text_add(detail, "a blind task runs in the file system of a session: start one with 'amfs up'");
        return ENODEV;
    }
    if (slot->mark == 0) {
        amfs_text_add(detail,
                      "a blind task needs a mark, which the hard limit on real-time CPU time forbids here (ulimit -H -R unlimited)");
        return EPERM;
    }
    int failed = follow_keeper(loop, detail);
    if (failed) return failed;
    command->keeper = loop->keeper_fd;
    slot->attempt = amfs_attempt_begin(slot->mark);
    if (slot->attempt == 0) amfs_text_add(detail, "no memory for a blind task");
    return slot->attempt == 0 ? ENOMEM : 0;
}

/* None of its processes does anything in the file system any more: those still alive are refused there. */
static void end_attempt(amfs_slot *slot, amfs_completion *completion) {
    if (slot->attempt != 0) completion->traces = amfs_attempt_end(slot->attempt);
    slot->attempt = 0;
}

/* The process is over, or never was. */
static void forget(amfs_slot *slot) {
    free(slot->env);
    slot->env = NULL;
    slot->task = NULL;
    slot->pidfd = -1;
    slot->mark = 0;
}

static void end_sandbox(amfs_loop *loop, amfs_task *task) {
    amfs_completion *completion = task->completion;

    if (!is_staged(task)) return;
    bool keep = (task->flags & AMFS_KEEP_FAILED) && completion->outcome != AMFS_OK && completion->outcome != AMFS_CANCELLED;
    if (!keep) amfs_files_remove(&loop->files, task);
    else if (asprintf(&completion->sandbox, "%s/%.*s", loop->files.directory, (int)task->top_length, task->prefix) < 0)
        completion->sandbox = NULL;
}

/* Is this something that this process or this machine has too little of just now, which has nothing to do with the task? */
static bool is_want(int error) { return error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM; }

/* May a task that could not be started for want of something be tried again later? Ours that run will end, and give something back. With none,
 * and where it may be the program that asks for too much, there is an end to it. */
static bool may_try_again(const amfs_loop *loop, amfs_task *task, bool program) {
    int64_t now = now_us();

    if (task->wants_since_us == 0) task->wants_since_us = now;
    if (loop->running > 1 && !program) return true; /* it counts as one that runs itself */
    return !loop->hopeless && now - task->wants_since_us < PATIENCE_US;
}

static amfs_run_state try_again(amfs_loop *loop, amfs_slot *slot, amfs_task *task, amfs_text *detail) {
    amfs_completion *completion = task->completion;

    amfs_text_clear(detail);
    end_attempt(slot, completion);
    amfs_traces_free(completion->traces);
    completion->traces = NULL;
    completion->start_us = completion->end_us = 0;
    if (is_staged(task)) amfs_files_remove(&loop->files, task);
    amfs_catch_end(&slot->out, false, false);
    amfs_catch_end(&slot->err, false, false);
    forget(slot);
    return AMFS_WANTS;
}

static void explain_want(amfs_loop *loop, int error, amfs_text *detail) {
    const char *more = error == EAGAIN   ? "raise the limit of processes (ulimit -u, or pids.max of a control group)"
                       : error == EMFILE ? "raise the limit of open files (ulimit -n)"
                       : error == ENFILE ? "raise the limit of open files of this machine (fs.file-max)"
                                         : "give it more memory";

    amfs_text_add(detail, ": tried for %d s, and no task of this run was running here that could end; %s, or use fewer slots (-j)",
                  PATIENCE_US / 1000000, more);
    loop->hopeless = true;
}

static amfs_run_state end_setup(amfs_loop *loop, amfs_slot *slot, amfs_task *task, int failed, amfs_text *detail) {
    amfs_completion *completion = task->completion;

    if (is_want(failed)) {
        if (may_try_again(loop, task, false)) return try_again(loop, slot, task, detail);
        explain_want(loop, failed, detail);
    }
    completion->outcome = AMFS_SETUP;
    completion->code = failed;
    if (completion->start_us == 0) completion->start_us = epoch_us();
    completion->end_us = epoch_us();
    end_sandbox(loop, task);
    completion->detail = detail->data;
    end_attempt(slot, completion);
    amfs_catch_end(&slot->out, false, false);
    amfs_catch_end(&slot->err, false, false);
    forget(slot);
    return AMFS_ENDED;
}

/* Watch the process for its end: 0 or an errno. */
static int watch(amfs_loop *loop, const amfs_slot *slot) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    event.data.u64 = (uint64_t)(uint32_t)slot->pid << 32 | (uint32_t)(slot - loop->slots);
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, slot->pidfd, &event) < 0 ? errno : 0;
}

/* To what the working directory is relative. */
static const char *cwd_base(const amfs_loop *loop, const amfs_task *task) {
    return (task->flags & AMFS_BLIND) != 0 ? loop->launcher->mount_dir : task->context->base;
}

amfs_run_state amfs_run_start(amfs_loop *loop, amfs_slot *slot, amfs_task *task) {
    amfs_text detail = {0};
    amfs_command command = {.program = task->program, .argv = task->argv, .customs = &task->context->customs};
    int opened[3] = {-1, -1, -1}, failed = 0;

    task->completion->slot = (int)(slot - loop->slots);
    if (slot->nest == NULL && (slot->nest = amfs_nest_new()) == NULL)
        amfs_text_add(&detail, "cannot make room for a process: %s", strerror(failed = ENOMEM));
    if (!failed && is_staged(task)) failed = amfs_files_prepare(&loop->files, task, &detail);
    if (!failed) failed = open_streams(loop, slot, task, &command, opened, &detail);
    if (!failed) {
        command.env = slot->env = make_environment(task, slot->nest->pwd);
        if (slot->env == NULL) amfs_text_add(&detail, "cannot make the environment: %s", strerror(failed = ENOMEM));
    }
    if (loop->mark != 0) slot->mark = loop->mark | (loop->started++ & ((UINT64_C(1) << AMFS_MARK_TASK_BITS) - 1));
    if (!failed && (task->flags & AMFS_BLIND) != 0) failed = begin_attempt(loop, slot, &command, &detail);
    if (!failed && amfs_files_cwd(&loop->files, task, cwd_base(loop, task)) < 0)
        amfs_text_add(&detail, "cannot enter the working directory '%s': %s", task->cwd, strerror(failed = ENAMETOOLONG));
    if (!failed) {
        tidy_path(&loop->files);
        command.directory = loop->files.path;
        command.mark = slot->mark;
        task->completion->start_us = epoch_us();
        failed = amfs_spawn(&loop->spawner, &command, slot->nest);
        if (failed) explain_spawn(task, slot->nest, &detail);
        loop->forks += failed || slot->nest->pid != loop->last_pid + 1;
        if (!failed) loop->last_pid = slot->nest->pid;
        slot->forks = loop->forks;
    }
    for (int i = 0; i < 3; i++)
        if (opened[i] >= 0) close(opened[i]);
    if (!failed) {
        slot->task = task;
        slot->pid = slot->nest->pid;
        slot->pidfd = slot->nest->pidfd;
        slot->killed = AMFS_NOT_KILLED;
        slot->killed_hard = slot->hurries = slot->yields = false;
        slot->lingers_since_us = 0;
        slot->deadline_us = INT64_MAX;
        failed = watch(loop, slot);
        if (failed) { /* the limit on epoll watches; not a state to run in */
            amfs_ending ending;
            amfs_run_signal(loop, slot, SIGKILL);
            amfs_collect(slot->pidfd, true, &ending);
            close(slot->pidfd);
            loop->unswept = true; /* it may have started others */
            amfs_text_add(&detail, "cannot wait for '%s': %s", task->program, strerror(failed));
        }
    }
    if (failed) return end_setup(loop, slot, task, failed, &detail);
    loop->hopeless = false;
    slot->started_us = now_us();
    if (task->time_limit_ms > 0) {
        slot->deadline_us = slot->started_us + (int64_t)task->time_limit_ms * 1000;
        if (slot->deadline_us < loop->next_deadline_us) loop->next_deadline_us = slot->deadline_us;
    }
    return AMFS_RUNS;
}

/* -------------------------------------------------------------------------------------------------------------------- end */

static bool is_another(const void *mark, uint64_t other) { return *(const uint64_t *)mark != other; }

/* Those that have left the group. */
static void signal_others(const amfs_loop *loop, const amfs_slot *slot, int number) {
    if (slot->mark != 0) amfs_mark_signal(loop->mark, number, is_another, &slot->mark);
}

void amfs_run_signal(const amfs_loop *loop, const amfs_slot *slot, int number) {
    int unheard = kill(-slot->pid, number);
    /* A task that left its group (setsid) or has yet to make it would not have heard; others need not be told twice before the end. */
    if (unheard < 0 || number == SIGKILL || getpgid(slot->pid) != slot->pid) syscall(SYS_pidfd_send_signal, slot->pidfd, number, NULL, 0);
    if (number != SIGKILL) /* what SIGKILL leaves is swept up when the first process has ended */
        signal_others(loop, slot, number);
}

static bool is_running(const void *context, uint64_t mark) {
    const amfs_loop *loop = context;

    for (uint32_t i = 0; i < loop->launcher->slots; i++)
        if (loop->slots[i].mark == mark) return true;
    return false;
}

void amfs_run_sweep(amfs_loop *loop) {
    enum { SWEEP_US = 300000, PAUSE_PER_COST = 100 };
    int64_t start = now_us();

    amfs_reserve_give(loop);
    loop->unswept = !amfs_mark_end(loop->mark, SWEEP_US, is_running, loop, NULL);
    amfs_reserve_take(loop);
    int64_t end = now_us();
    loop->sweep_at_us = end + PAUSE_PER_COST * (end - start);
}

/* Numbers are given to processes in order. If none has been given to any but ours since this task was started, it has started no other
 * process (nor has anybody else on this machine), and nothing of it can be left. That is soon found out, and true of many short tasks. */
static bool was_alone(amfs_loop *loop, const amfs_slot *slot) {
    return slot->forks == loop->forks && amfs_last_pid(loop) == loop->last_pid;
}

/* The first process of the slot's task is gone, but not collected: see to the others. */
static amfs_left end_others(amfs_loop *loop, amfs_slot *slot, int64_t waited_us) {
    amfs_left left = {.clean = true};

    if (!was_alone(loop, slot)) {
        left = amfs_left_end(loop, slot, waited_us);
        if (left.lingers) return left;
        /* Not yet collected, the process keeps its number, so the group cannot be anybody else's. Where there are no marks, this is all. */
        kill(-slot->pid, SIGKILL);
        loop->unswept |= !left.clean;
        if (slot->killed != AMFS_NOT_KILLED) left.count = 0; /* processes that we have ended were not left by the task */
    }
    slot->mark = 0;
    return left;
}

/* A user on another host cannot read such files, and nobody takes them away before the session ends. */
static int64_t size_of_logs(const amfs_loop *loop) {
    int64_t size = 0;
    struct dirent *entry;
    struct stat status;
    DIR *logs = opendir(loop->launcher->log_dir);

    while (logs != NULL && (entry = readdir(logs)) != NULL)
        if (fstatat(dirfd(logs), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode)) size += status.st_size;
    if (logs != NULL) closedir(logs);
    return size;
}

/* Output that a completion does not take along goes to a file, as far as the bound allows. */
static void save_output(amfs_loop *loop, const amfs_task *task, const amfs_catcher *catcher, size_t size, amfs_text *detail) {
    char *path = loop->files.other;
    int failed = ENAMETOOLONG, fd = -1;

    if (size_of_logs(loop) > LOGS_MAX) {
        amfs_text_add(detail, "%sstdout had %zu bytes; the rest is lost: this node holds too much output that nobody has fetched",
                      detail->length ? "; " : "", size);
        return;
    }
    task->completion->out_size = size;
    int length = snprintf(path, PATH_MAX, "%s/%.*s.stdout", loop->launcher->log_dir, (int)task->top_length, task->prefix);
    if (length < PATH_MAX) {
        failed = amfs_make_parents(path);
        if (!failed && (fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0) failed = errno;
    }
    if (!failed) failed = amfs_catch_save(catcher, fd);
    if (fd >= 0) close(fd);
    const char *separator = detail->length ? "; " : "";
    if (failed) amfs_text_add(detail, "%sstdout had %zu bytes; the rest is lost: '%s': %s", separator, size, path, strerror(failed));
    else task->completion->whole = strdup(path);
}

static void collect_output(amfs_loop *loop, amfs_slot *slot, amfs_task *task, bool alone, amfs_text *detail) {
    amfs_completion *completion = task->completion;
    bool want = (task->flags & AMFS_WANT_OUTPUT) != 0;

    size_t size =
        amfs_caught(&slot->out, task->capture, want, want || completion->outcome != AMFS_OK, &completion->out, &completion->out_length);
    if (want && size > task->capture) save_output(loop, task, &slot->out, size, detail);
    amfs_catch_end(&slot->out, size > 0, alone);
    size = amfs_caught(&slot->err, task->capture, false, true, &completion->err, &completion->err_length);
    amfs_catch_end(&slot->err, size > 0, alone);
}

int64_t amfs_run_trim(const amfs_loop *loop, amfs_slot *slot) {
    enum { MOMENT_US = 5000 };
    const amfs_task *task = slot->task;
    bool want = (task->flags & AMFS_WANT_OUTPUT) != 0;

    if (!slot->yields && epoch_us() - task->completion->start_us >= MOMENT_US) {
        amfs_spawn_yield(&loop->spawner, slot->pid);
        slot->yields = true;
    }
    return amfs_catch_trim(&slot->out, want ? AMFS_OUTPUT_MAX : (int64_t)task->capture, want) +
           amfs_catch_trim(&slot->err, (int64_t)task->capture, false);
}

static const char *signal_name(int number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
        {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
        {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},   {SIGIO, "SIGIO"},     {SIGPROF, "SIGPROF"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number) return names[i].name;
    return strsignal(number);
}

/* How the process itself ended, before its files are looked at. */
static void judge(const amfs_slot *slot, const amfs_task *task, const amfs_ending *ending, amfs_text *detail) {
    amfs_completion *completion = task->completion;

    if (slot->killed == AMFS_KILLED_BY_LIMIT) {
        completion->outcome = AMFS_TIME_LIMIT;
        amfs_text_add(detail, "exceeded its time limit of %g s", task->time_limit_ms / 1000.0);
    } else if (slot->killed == AMFS_KILLED_ON_REQUEST) {
        completion->outcome = AMFS_CANCELLED;
        amfs_text_add(detail, "cancelled");
    } else if (ending->signalled) {
        completion->outcome = AMFS_SIGNAL;
        completion->code = ending->code;
        amfs_text_add(detail, "killed by signal %d (%s)%s", ending->code, signal_name(ending->code), ending->dumped ? ", core dumped" : "");
    } else if (ending->code != 0) {
        completion->outcome = AMFS_EXIT;
        completion->code = ending->code;
        amfs_text_add(detail, "exit status %d", ending->code);
    }
}

/* Inputs first: whatever else happened, others must hear that a file they share was changed. */
static void judge_files(amfs_loop *loop, amfs_task *task, const amfs_left *left, amfs_text *detail) {
    amfs_completion *completion = task->completion;
    amfs_text changed = {0};

    int outcome = is_staged(task) ? amfs_files_inputs_changed(&loop->files, task, &changed) : AMFS_OK;
    if (outcome != AMFS_OK) {
        if (detail->length) amfs_text_add(&changed, "; %s", detail->data);
        amfs_text_clear(detail);
        *detail = changed;
        completion->outcome = outcome;
        completion->code = 0;
        return;
    }
    if (completion->outcome != AMFS_OK) return;
    if (!amfs_files_check_outputs(&loop->files, task, task->context->base, detail)) {
        completion->outcome = AMFS_MISSING_OUTPUT;
        return;
    }
    if (left->count > 0 && left->unfinished != NULL) {
        amfs_text_add(detail,
                      "did not finish: %s (a process that it left running in the background had it open for writing: let the command "
                      "wait for it)",
                      left->unfinished);
        memset(completion->outputs, 0, task->output_count * sizeof(amfs_stamp));
        completion->outcome = AMFS_MISSING_OUTPUT;
        return;
    }
    int failed = is_staged(task) ? amfs_files_publish(&loop->files, task, task->context->base, detail) : 0;
    if (failed) {
        completion->outcome = AMFS_SETUP;
        completion->code = failed;
    }
}

/* The kernel counts our own memory into a child that began its life in it: only what is above that is the task's. */
static int64_t peak_memory(amfs_loop *loop, int64_t maxrss_kib) {
    if (maxrss_kib <= loop->own_rss_kib) return 0;
    struct rusage own;
    if (getrusage(RUSAGE_SELF, &own) == 0) loop->own_rss_kib = own.ru_maxrss;
    return maxrss_kib > loop->own_rss_kib ? maxrss_kib : 0;
}

static amfs_run_state linger(amfs_loop *loop, amfs_slot *slot, int64_t now) {
    if (slot->lingers_since_us == 0) {
        slot->lingers_since_us = now;
        loop->lingering++;
        loop->linger_at_us = now + LINGER_FIRST_US;
        (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, slot->pidfd, NULL);
    }
    return AMFS_RUNS;
}

amfs_run_state amfs_run_finish(amfs_loop *loop, amfs_slot *slot, amfs_task **ended) {
    amfs_task *task = *ended = slot->task;
    amfs_completion *completion = task->completion;
    amfs_text detail = {0};
    amfs_ending ending = {0};

    completion->end_us = epoch_us();
    int64_t now = now_us();
    int64_t waited_us = slot->killed != AMFS_NOT_KILLED || slot->hurries ? -1
                        : slot->lingers_since_us == 0                    ? 0
                                                                         : now - slot->lingers_since_us;
    amfs_left left = end_others(loop, slot, waited_us);
    if (left.lingers) return linger(loop, slot, now);
    loop->lingering -= slot->lingers_since_us != 0;
    slot->lingers_since_us = 0;
    int failed = amfs_collect(slot->pidfd, false, &ending);
    close(slot->pidfd);
    int started = slot->nest->error; /* known for certain now */
    if (!failed && slot->killed == AMFS_NOT_KILLED && is_want(started)) {
        if (may_try_again(loop, task, true)) return try_again(loop, slot, task, &detail);
    }
    end_attempt(slot, completion);
    completion->left = left.count;
    completion->cpu_us = ending.cpu_us;
    completion->maxrss_kib = peak_memory(loop, ending.maxrss_kib);
    if (failed && slot->killed == AMFS_NOT_KILLED) {
        completion->outcome = AMFS_SETUP;
        completion->code = failed;
        amfs_text_add(&detail, "the exit status of '%s' is lost: another part of this process waits for all children", task->program);
    } else if (slot->killed == AMFS_NOT_KILLED && started != 0) {
        completion->outcome = AMFS_SETUP;
        completion->code = started;
        explain_spawn(task, slot->nest, &detail);
        if (is_want(started)) explain_want(loop, started, &detail);
    } else {
        judge(slot, task, &ending, &detail);
    }
    judge_files(loop, task, &left, &detail);
    collect_output(loop, slot, task, left.clean, &detail);
    end_sandbox(loop, task);
    completion->detail = detail.data;
    forget(slot);
    return AMFS_ENDED;
}
