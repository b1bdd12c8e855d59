/* The launcher's thread: starts what fits, waits, obeys timers. It holds the lock only to look at the lists, never while it works.
 *
 * Its file table is its own: descriptors of the rest of the process are closed here, so tasks cannot inherit them, starting a process
 * copies a table of a few entries, and a fork elsewhere in the process takes none of the launcher's along.
 */
#include "attempts.h"
#include "common/thread.h"
#include "leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    SIGNAL_INTERVAL_US = 3000,
    LINGER_EVERY_US = 10000,
    TRIM_SOON_US = 20000,      /* while a task that has just started or that writes much is running */
    TRIM_INTERVAL_US = 200000,
    TRIM_MUCH = 1 << 20,
    FIRST_PAUSE_US = 10000, /* before a task that could not be started is tried again */
    LAST_PAUSE_US = 1000000,
    GRACE_US = 1000000,     /* between SIGTERM and SIGKILL */
    STOP_WAIT_US = 5000000, /* for processes that the kernel does not let go (a dead network file system) */
};

static const uint64_t WAKE = UINT64_MAX;

static int64_t earliest(int64_t a, int64_t b) { return a < b ? a : b; }

/* ------------------------------------------------------------------------------------------------------------------ set-up */

/* Leave the process's file table and keep only the two event descriptors (both above 2) and three harmless standard ones. */
static int own_file_table(const amfs_launcher *launcher) {
    int error = own_descriptors(launcher->wake_fd, launcher->done_fd);
    if (error != 0) return error;
    /* A copy of the terminal's or a pipe's end kept here would keep its other side waiting after the process has let go of it. */
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0) return errno;
#ifdef __SANITIZE_ADDRESS__
    int last = 1; /* the sanitiser reports on 2 */
#else
    int last = 2;
#endif
    for (int fd = 0; fd <= last; fd++)
        if (fd != null_fd && dup2(null_fd, fd) < 0) return errno;
    if (null_fd > 2) close(null_fd);
    return 0;
}

/* Use the kernel's word on the number given last only where it knows of the process `pid` that we have just started: some containers have a
 * /proc/loadavg that is not theirs. */
static void know_last_pid(amfs_loop *loop, pid_t pid) {
    enum { SINCE = 1000 };

    loop->last_pid_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    pid_t last = amfs_last_pid(loop);
    if (loop->last_pid_fd >= 0 && (last < pid || last > pid + SINCE)) {
        close(loop->last_pid_fd);
        loop->last_pid_fd = -1;
    }
}

/* The process that ends what is left of our tasks when this one is killed. */
static int start_watcher(amfs_loop *loop, char *fault, size_t fault_size) {
    const char *program = loop->launcher->watcher;
    char mark[20];
    const char *words = loop->launcher->kills_file != NULL ? loop->launcher->last_words : NULL;
    const char *arguments[] = {NULL, program, mark, words, loop->launcher->kills_file, NULL}, *const no_environment[] = {NULL};
    int ends[2];

    if (program == NULL || loop->mark == 0) return 0;
    snprintf(fault, fault_size, "cannot start the process that ends what tasks leave behind, '%.150s'", program);
    if (pipe2(ends, O_CLOEXEC) < 0) return errno;
    loop->watcher_pipe = ends[1];
    loop->watcher = amfs_nest_new();
    if (loop->watcher == NULL) {
        close(ends[0]);
        return ENOMEM;
    }
    snprintf(mark, sizeof mark, "%" PRIx64, loop->mark);
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const amfs_command command = {
        .directory = "/",
        .program = program,
        .argv = arguments + 1,
        .env = no_environment,
        .in = ends[0],
        .out = null_fd,
        .err = null_fd,
        .outlives = true,
    };
    int failed = null_fd < 0 ? errno : amfs_spawn(&loop->spawner, &command, loop->watcher);
    close(ends[0]);
    if (null_fd >= 0) close(null_fd);
    if (failed) {
        amfs_nest_free(loop->watcher);
        loop->watcher = NULL;
    }
    if (failed || loop->watcher->error) return failed ? failed : loop->watcher->error;
    know_last_pid(loop, loop->watcher->pid);
    return 0;
}

/* How many numbers of processes there are; 0: not known. */
static int64_t most_pids(void) {
    char text[24] = "";
    int fd = open("/proc/sys/kernel/pid_max", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0) text[0] = '\0';
    if (fd >= 0) close(fd);
    return strtoll(text, NULL, 10);
}

static int prepare(amfs_loop *loop, char *fault, size_t fault_size) {
    amfs_launcher *launcher = loop->launcher;
    int failed = own_file_table(launcher);

    snprintf(fault, fault_size, failed == ENOSYS ? "amfs needs Linux 5.9 or later (close_range)" : "cannot set the launcher up");
    if (failed) return failed;
    loop->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (loop->null_fd < 0) return errno;
    amfs_reserve_take(loop);
    loop->files.directory = launcher->sandbox_dir;
    loop->files.directory_fd = open(launcher->sandbox_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (loop->files.directory_fd < 0) {
        failed = errno;
        snprintf(fault, fault_size, "cannot use the sandbox directory '%.200s'", launcher->sandbox_dir);
        return failed;
    }
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = WAKE};
    if (loop->epoll_fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, launcher->wake_fd, &event) < 0) return errno;
    loop->slots = calloc(launcher->slots, sizeof *loop->slots);
    loop->free_slots = calloc(launcher->slots, sizeof *loop->free_slots);
    if (loop->slots == NULL || loop->free_slots == NULL) return ENOMEM;
    for (uint32_t i = 0; i < launcher->slots; i++) {
        loop->slots[i] = (amfs_slot){.pidfd = -1, .out.fd = -1, .err.fd = -1};
        loop->free_slots[i] = launcher->slots - 1 - i; /* a stack, slot 0 on top: the slot used last has the warmest memory */
    }
    loop->free_count = launcher->slots;
    loop->next_deadline_us = INT64_MAX;
    struct rusage own;
    if (getrusage(RUSAGE_SELF, &own) == 0) loop->own_rss_kib = own.ru_maxrss;
    amfs_spawner_init(&loop->spawner);
    loop->mark = amfs_mark_new();
    loop->most_pids = most_pids();
    return start_watcher(loop, fault, fault_size);
}

/* Nothing is left for it to do, or else it goes on trying by itself when its pipe is closed. */
static void end_watcher(amfs_loop *loop) {
    amfs_ending ending;

    if (loop->watcher != NULL) {
        if (!loop->unswept) syscall(SYS_pidfd_send_signal, loop->watcher->pidfd, SIGKILL, NULL, 0);
        else if (write(loop->watcher_pipe, "", 1) < 0) {} /* we have not died, it is only to end what is left */
        amfs_collect(loop->watcher->pidfd, !loop->unswept, &ending);
        close(loop->watcher->pidfd);
        amfs_nest_free(loop->watcher);
    }
    if (loop->watcher_pipe >= 0) close(loop->watcher_pipe);
}

static void dismantle(amfs_loop *loop) {
    for (uint32_t i = 0; loop->slots != NULL && i < loop->launcher->slots; i++) {
        if (loop->slots[i].out.fd >= 0) close(loop->slots[i].out.fd);
        if (loop->slots[i].err.fd >= 0) close(loop->slots[i].err.fd);
        free(loop->slots[i].env);
        amfs_nest_free(loop->slots[i].nest);
    }
    if (loop->last_pid_fd >= 0) close(loop->last_pid_fd);
    end_watcher(loop);
    if (loop->epoll_fd >= 0) close(loop->epoll_fd);
    if (loop->files.directory_fd >= 0) close(loop->files.directory_fd);
    if (loop->keeper_fd > 0) close(loop->keeper_fd);
    amfs_reserve_give(loop);
    if (loop->null_fd >= 0) close(loop->null_fd);
    free(loop->slots);
    free(loop->free_slots);
    free(loop);
}

/* ------------------------------------------------------------------------------------------------------------- resources */

static uint32_t cores_of(const amfs_loop *loop, const amfs_task *task) {
    return task->cores < loop->launcher->slots ? task->cores : loop->launcher->slots;
}

static uint64_t memory_of(const amfs_loop *loop, const amfs_task *task) {
    return task->memory < loop->launcher->memory ? task->memory : loop->launcher->memory;
}

static bool fits(const amfs_loop *loop, const amfs_task *task) {
    return loop->free_count > 0 && cores_of(loop, task) <= loop->launcher->slots - loop->cores_used &&
           memory_of(loop, task) <= loop->launcher->memory - loop->memory_used;
}

/* Back to the head of the queue, with a pause before the next try; a task that ends makes that shorter. */
static void put_back(amfs_loop *loop, amfs_task *task) {
    amfs_launcher *launcher = loop->launcher;

    task->next = launcher->head;
    if (launcher->head != NULL) launcher->head->previous = task;
    else launcher->tail = task;
    launcher->head = task;
    launcher->queued++;
    loop->pause_us = loop->pause_us == 0 ? FIRST_PAUSE_US : earliest(2 * loop->pause_us, LAST_PAUSE_US);
    loop->again_us = now_us() + loop->pause_us;
}

static void release(amfs_loop *loop, amfs_slot *slot, amfs_task *task, bool wants) {
    amfs_launcher *launcher = loop->launcher;

    loop->again_us = 0;
    atomic_store(&launcher->shown[slot - loop->slots].serial, 0);
    loop->cores_used -= cores_of(loop, task);
    loop->memory_used -= memory_of(loop, task);
    loop->free_slots[loop->free_count++] = (uint32_t)(slot - loop->slots);
    loop->running--;
    pthread_mutex_lock(&launcher->lock);
    launcher->running--;
    if (wants && !launcher->stopping) {
        put_back(loop, task);
        pthread_mutex_unlock(&launcher->lock);
        return;
    }
    if (wants) task->completion->outcome = AMFS_CANCELLED;
    amfs_context_release(task->context);
    amfs_launcher_append(launcher, task->completion);
    pthread_mutex_unlock(&launcher->lock);
    task->completion = NULL;
    amfs_task_free(task);
}

/* --------------------------------------------------------------------------------------------------------------- killing */

static void terminate(amfs_loop *loop, amfs_slot *slot, int reason, int64_t now) {
    if (slot->killed != AMFS_NOT_KILLED) return;
    slot->killed = reason;
    slot->deadline_us = now + GRACE_US;
    amfs_run_signal(loop, slot, SIGTERM);
    if (slot->deadline_us < loop->next_deadline_us) loop->next_deadline_us = slot->deadline_us;
}

static void kill_hard(amfs_loop *loop, amfs_slot *slot) {
    if (slot->killed_hard) return;
    slot->killed_hard = true;
    slot->deadline_us = INT64_MAX;
    amfs_run_signal(loop, slot, SIGKILL);
}

static void obey_kills(amfs_loop *loop, uint64_t *kills, size_t count) {
    int64_t now = now_us();

    qsort(kills, count, sizeof *kills, amfs_compare_serials);
    for (uint32_t i = 0; i < loop->launcher->slots; i++) {
        amfs_slot *slot = &loop->slots[i];
        if (slot->task != NULL && bsearch(&slot->task->serial, kills, count, sizeof *kills, amfs_compare_serials) != NULL)
            terminate(loop, slot, AMFS_KILLED_ON_REQUEST, now);
    }
    free(kills);
}

static void finish(amfs_loop *loop, amfs_slot *slot) {
    amfs_task *task;
    amfs_run_state state = amfs_run_finish(loop, slot, &task);
    if (state != AMFS_RUNS) release(loop, slot, task, state == AMFS_WANTS);
}

static void check_deadlines(amfs_loop *loop, int64_t now) {
    if (now < loop->next_deadline_us) return;
    loop->next_deadline_us = INT64_MAX;
    for (uint32_t i = 0; i < loop->launcher->slots; i++) {
        amfs_slot *slot = &loop->slots[i];
        if (slot->task == NULL) continue;
        if (slot->deadline_us > now) {
            if (slot->deadline_us < loop->next_deadline_us) loop->next_deadline_us = slot->deadline_us;
        } else if (slot->lingers_since_us != 0) { /* its program has kept to the limit: only what it left has no time any more */
            slot->deadline_us = INT64_MAX;
            slot->hurries = true;
            finish(loop, slot);
        } else if (slot->killed == AMFS_NOT_KILLED) {
            terminate(loop, slot, AMFS_KILLED_BY_LIMIT, now);
        } else {
            kill_hard(loop, slot);
        }
    }
}

static void trim(amfs_loop *loop, int64_t now) {
    bool much = false;

    if (now < loop->next_trim_us) return;
    for (uint32_t i = 0; i < loop->launcher->slots; i++)
        if (loop->slots[i].task != NULL) much |= amfs_run_trim(loop, &loop->slots[i]) > TRIM_MUCH;
    loop->trim_interval_us = much ? TRIM_SOON_US : earliest(2 * loop->trim_interval_us, TRIM_INTERVAL_US);
    loop->next_trim_us = now + loop->trim_interval_us;
}

/* ------------------------------------------------------------------------------------------------------------------ loop */

/* Let those who look know what the slot runs. */
static void show(const amfs_loop *loop, const amfs_slot *slot) {
    amfs_shown_slot *shown = &loop->launcher->shown[slot - loop->slots];

    atomic_store(&shown->start_us, slot->task->completion->start_us);
    atomic_store(&shown->pid, slot->pid);
    atomic_store(&shown->serial, slot->task->serial);
}

/* Start what fits. Returns false when the launcher is to stop. */
static bool fill(amfs_loop *loop) {
    amfs_launcher *launcher = loop->launcher;

    for (;;) {
        pthread_mutex_lock(&launcher->lock);
        uint64_t *kills = launcher->kills;
        size_t kill_count = launcher->kill_count;
        bool stopping = launcher->stopping, look = launcher->look;
        amfs_task *task = launcher->head;
        launcher->kills = NULL;
        launcher->kill_count = 0;
        launcher->look = false;
        if (stopping || kill_count > 0 || task == NULL || !fits(loop, task) || (loop->again_us != 0 && now_us() < loop->again_us)) {
            task = NULL;
        } else {
            amfs_launcher_unlink(launcher, task);
            launcher->running++;
        }
        pthread_mutex_unlock(&launcher->lock);

        if (look) amfs_spawner_look(&loop->spawner);
        if (kill_count > 0) {
            obey_kills(loop, kills, kill_count);
            continue;
        }
        free(kills);
        if (stopping) return false;
        if (task == NULL) return true;
        amfs_slot *slot = &loop->slots[loop->free_slots[--loop->free_count]];
        int64_t soon = now_us() + TRIM_SOON_US;
        if (loop->running++ == 0) {
            loop->trim_interval_us = TRIM_SOON_US;
            loop->next_trim_us = soon;
        }
        loop->next_trim_us = earliest(loop->next_trim_us, soon);
        loop->cores_used += cores_of(loop, task);
        loop->memory_used += memory_of(loop, task);
        amfs_run_state state = amfs_run_start(loop, slot, task);
        if (state != AMFS_RUNS) {
            release(loop, slot, task, state == AMFS_WANTS);
        } else {
            loop->pause_us = 0;
            show(loop, slot);
        }
    }
}

/* Tell the caller of completions, or hold back while there is other work and the last time is less than a millisecond ago. Returns when
 * to try again (monotonic microseconds). */
static int64_t notify(amfs_loop *loop, bool at_once) {
    amfs_launcher *launcher = loop->launcher;
    int64_t again = INT64_MAX;

    pthread_mutex_lock(&launcher->lock);
    if (launcher->done_count > 0 && !launcher->signalled) {
        int64_t now = now_us();
        if (at_once || launcher->queued < launcher->slots || launcher->done_count >= AMFS_BATCH ||
            now - loop->last_signal_us >= SIGNAL_INTERVAL_US) {
            amfs_launcher_signal(launcher);
            loop->last_signal_us = now;
        } else {
            again = loop->last_signal_us + SIGNAL_INTERVAL_US;
        }
    }
    pthread_mutex_unlock(&launcher->lock);
    return again;
}

static void end_process(amfs_loop *loop, uint64_t data) {
    amfs_slot *slot = &loop->slots[(uint32_t)data];

    /* A process starting at that moment may have held the descriptor a little longer than we: an event for a slot's earlier task. */
    if (slot->task != NULL && (uint32_t)slot->pid == (uint32_t)(data >> 32)) finish(loop, slot);
}

static void look_at_lingering(amfs_loop *loop) {
    if (loop->lingering == 0 || now_us() < loop->linger_at_us) return;
    loop->linger_at_us = now_us() + LINGER_EVERY_US;
    for (uint32_t i = 0; i < loop->launcher->slots; i++)
        if (loop->slots[i].task != NULL && loop->slots[i].lingers_since_us != 0) finish(loop, &loop->slots[i]);
}

/* Wait until `until` at the latest and deal with what ended. `refill` starts the next task as soon as a slot is free. */
static bool wait_and_finish(amfs_loop *loop, int64_t until, bool refill) {
    struct epoll_event events[EVENTS];
    int timeout = -1;
    bool go_on = true;

    if (loop->lingering > 0) until = earliest(until, loop->linger_at_us);
    if (until != INT64_MAX) {
        int64_t left = until - now_us();
        timeout = left <= 0 ? 0 : left > 3600000000 ? 3600000 : (int)((left + 999) / 1000);
    }
    int count = epoll_wait(loop->epoll_fd, events, EVENTS, timeout);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 == WAKE) continue;
        end_process(loop, events[i].data.u64);
        if (refill && go_on) {
            go_on = fill(loop);
            notify(loop, false);
        }
    }
    look_at_lingering(loop);
    return go_on;
}

static void stop_all(amfs_loop *loop) {
    int64_t give_up = now_us() + STOP_WAIT_US;

    for (uint32_t i = 0; i < loop->launcher->slots; i++) {
        amfs_slot *slot = &loop->slots[i];
        if (slot->task != NULL) {
            if (slot->killed == AMFS_NOT_KILLED) slot->killed = AMFS_KILLED_ON_REQUEST;
            amfs_run_signal(loop, slot, SIGKILL);
        }
    }
    while (loop->running > 0 && now_us() < give_up) wait_and_finish(loop, give_up, false);
    for (uint32_t i = 0; i < loop->launcher->slots; i++) {
        amfs_slot *slot = &loop->slots[i];
        if (slot->task == NULL) continue;
        amfs_task *task = slot->task;
        task->completion->outcome = AMFS_CANCELLED;
        task->completion->detail = strdup("cancelled; the kernel did not let its process end in time");
        if (task->flags & AMFS_STAGED) amfs_files_remove(&loop->files, task);
        close(slot->pidfd);
        slot->task = NULL;
        slot->mark = 0;
        if (slot->attempt != 0) task->completion->traces = amfs_attempt_end(slot->attempt);
        slot->attempt = 0;
        release(loop, slot, task, false);
    }
    amfs_run_sweep(loop);
    notify(loop, true);
}

void *amfs_launcher_thread(void *argument) {
    amfs_launcher *launcher = argument;
    amfs_loop *loop = calloc(1, sizeof *loop);
    char fault[sizeof launcher->start_fault] = "no memory for a launcher";
    int failed = ENOMEM;

    pthread_setname_np(pthread_self(), "amfs-launcher");
    if (loop != NULL) {
        loop->launcher = launcher;
        loop->epoll_fd = loop->null_fd = loop->files.directory_fd = loop->watcher_pipe = loop->last_pid_fd = -1;
        for (int i = 0; i < AMFS_RESERVE; i++) loop->reserve[i] = -1;
        failed = prepare(loop, fault, sizeof fault);
    }
    pthread_mutex_lock(&launcher->lock);
    launcher->start_error = failed;
    memcpy(launcher->start_fault, fault, sizeof fault);
    launcher->ready = true;
    pthread_cond_signal(&launcher->ready_change);
    pthread_mutex_unlock(&launcher->lock);

    while (!failed) {
        if (!fill(loop)) break;
        int64_t until = notify(loop, false);
        if (loop->running > 0) until = earliest(until, earliest(loop->next_deadline_us, loop->next_trim_us));
        else loop->next_deadline_us = INT64_MAX; /* the deadline in it is of a task that is over */
        if (loop->again_us != 0) until = earliest(until, loop->again_us);
        if (loop->unswept) until = earliest(until, loop->sweep_at_us);
        if (!wait_and_finish(loop, until, true)) break;
        if (loop->unswept && now_us() >= loop->sweep_at_us) amfs_run_sweep(loop);
        if (loop->running > 0) {
            int64_t now = now_us();
            check_deadlines(loop, now);
            trim(loop, now);
        }
    }
    if (!failed) stop_all(loop);
    if (loop != NULL) dismantle(loop);

    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    launcher->cpu_us = (int64_t)used.tv_sec * 1000000 + used.tv_nsec / 1000; /* read after the join */
    return NULL;
}
