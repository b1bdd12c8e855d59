/* The callers' side of the launcher: its start and end, and what callers put in and take out. Stands on the thread's side, launcher_loop.c. */
#include "common/thread.h"
#include "launcher_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { FILES_OF_A_TASK = 4, FILES_OF_OTHERS = 512 };

/* ------------------------------------------------------------------------------------------------------------ under the lock */

static amfs_context *find_context(amfs_launcher *launcher, uint32_t id) {
    amfs_context *context = launcher->contexts;
    while (context != NULL && context->id != id) context = context->next;
    return context;
}

static void forget_context(amfs_launcher *launcher, uint32_t id) {
    for (amfs_context **at = &launcher->contexts; *at != NULL; at = &(*at)->next)
        if ((*at)->id == id) {
            amfs_context *old = *at;
            *at = old->next;
            amfs_context_release(old);
            return;
        }
}

static void drop_queue(amfs_launcher *launcher) {
    while (launcher->head != NULL) {
        amfs_task *task = launcher->head;
        amfs_launcher_unlink(launcher, task);
        amfs_context_release(task->context);
        amfs_task_free(task);
    }
}

/* ------------------------------------------------------------------------------------------------------------------- calls */

static void wake(amfs_launcher *launcher) {
    static const uint64_t one = 1;
    while (write(launcher->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {}
}

bool amfs_launcher_is_ours(const amfs_launcher *launcher) { return launcher->owner == getpid(); }

int amfs_launcher_fd(const amfs_launcher *launcher) { return launcher->done_fd; }

/* A child whose SIGCHLD is ignored leaves no status. Shells may start us so; nobody can want it of a program that waits for children. */
static void want_children(void) {
    struct sigaction action;
    if (sigaction(SIGCHLD, NULL, &action) == 0 && action.sa_handler == SIG_IGN) {
        memset(&action, 0, sizeof action);
        action.sa_handler = SIG_DFL;
        sigaction(SIGCHLD, &action, NULL);
    }
}

/* An eventfd above the standard descriptors, which a daemon may have closed and the thread makes /dev/null. */
static int event_descriptor(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || fd > 2) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return higher;
}

static int start_thread(amfs_launcher *launcher) {
    want_children();
    /* The thread takes no signals, from its first instruction: children inherit that until they have put away our handlers. */
    int failed = new_thread(&launcher->thread, amfs_launcher_thread, launcher);
    if (failed) {
        snprintf(launcher->start_fault, sizeof launcher->start_fault, "cannot start the launcher's thread");
        launcher->joined = true;
        return failed;
    }
    pthread_mutex_lock(&launcher->lock);
    while (!launcher->ready) pthread_cond_wait(&launcher->ready_change, &launcher->lock);
    failed = launcher->start_error;
    pthread_mutex_unlock(&launcher->lock);
    return failed;
}

int amfs_launcher_new(const amfs_launcher_options *options, amfs_launcher **result, char *fault, size_t fault_size) {
    int failed;
    amfs_launcher *launcher = calloc(1, sizeof *launcher);

    snprintf(fault, fault_size, "no memory for a launcher");
    if (launcher == NULL) return ENOMEM;
    launcher->slots = options->slots;
    struct rlimit files;
    amfs_files_limit(&files);
    if (files.rlim_cur < FILES_OF_OTHERS + (rlim_t)options->slots * FILES_OF_A_TASK) amfs_files_raise();
    launcher->memory = options->memory;
    launcher->owner = getpid();
    launcher->joined = true;
    pthread_mutex_init(&launcher->lock, NULL);
    pthread_cond_init(&launcher->ready_change, NULL);
    launcher->wake_fd = event_descriptor();
    launcher->done_fd = event_descriptor();
    launcher->sandbox_dir = realpath(options->sandbox_dir, NULL);
    failed = launcher->sandbox_dir == NULL ? errno : 0;
    launcher->log_dir = strdup(options->log_dir);
    launcher->watcher = options->watcher != NULL ? strdup(options->watcher) : NULL;
    launcher->kills_file = options->kills_file != NULL ? strdup(options->kills_file) : NULL;
    launcher->last_words = options->last_words != NULL ? strdup(options->last_words) : NULL;
    launcher->mount_dir = options->mount_dir != NULL ? strdup(options->mount_dir) : NULL;
    launcher->shown = calloc(options->slots, sizeof *launcher->shown);
    if (failed) {
        snprintf(fault, fault_size, "cannot use the sandbox directory '%s'", options->sandbox_dir);
    } else if (launcher->shown == NULL || launcher->log_dir == NULL || (options->watcher != NULL && launcher->watcher == NULL) ||
               (options->mount_dir != NULL && launcher->mount_dir == NULL)) {
        failed = ENOMEM;
    } else if (launcher->wake_fd < 0 || launcher->done_fd < 0) {
        failed = EMFILE;
        snprintf(fault, fault_size, "cannot make the launcher's event descriptors");
    } else {
        launcher->joined = false;
        failed = start_thread(launcher);
        if (failed) snprintf(fault, fault_size, "%s", launcher->start_fault);
    }
    if (failed) {
        amfs_launcher_free(launcher);
        return failed;
    }
    *result = launcher;
    return 0;
}

static bool is_directory_entry(const char *entry) { return strncmp(entry, "PWD=", 4) == 0 || strncmp(entry, "OLDPWD=", 7) == 0; }

int amfs_launcher_set_context(amfs_launcher *launcher, uint32_t id, const char *base, const char *const *env, size_t env_count,
                              const amfs_customs *customs) {
    size_t size = (env_count + 1) * sizeof(char *), length = strlen(base);
    for (size_t i = 0; i < env_count; i++) size += strlen(env[i]) + 1;
    amfs_context *context = calloc(1, sizeof *context);
    if (context == NULL) return ENOMEM;
    context->id = id;
    context->references = 1;
    context->base = malloc(length + 2);
    context->env = malloc(size);
    if (context->base == NULL || context->env == NULL) {
        amfs_context_release(context);
        return ENOMEM;
    }
    memcpy(context->base, base, length + 1);
    if (length == 0 || base[length - 1] != '/') strcpy(context->base + length, "/");
    context->customs = customs != NULL ? *customs : (amfs_customs){.umask = -1};
    char *text = (char *)(context->env + env_count + 1);
    for (size_t i = 0; i < env_count; i++) {
        if (is_directory_entry(env[i])) continue;
        size_t part = strlen(env[i]) + 1;
        memcpy(text, env[i], part);
        context->env[context->env_count++] = text;
        text += part;
    }

    pthread_mutex_lock(&launcher->lock);
    forget_context(launcher, id);
    context->next = launcher->contexts;
    launcher->contexts = context;
    launcher->look = true; /* a new run: a good time to see which signals are ignored by now */
    pthread_mutex_unlock(&launcher->lock);
    return 0;
}

void amfs_launcher_drop_context(amfs_launcher *launcher, uint32_t id) {
    pthread_mutex_lock(&launcher->lock);
    forget_context(launcher, id);
    pthread_mutex_unlock(&launcher->lock);
}

void amfs_launcher_enter(amfs_launcher *launcher, pid_t keeper) {
    pthread_mutex_lock(&launcher->lock);
    uint64_t changes = atomic_load(&launcher->keeper) >> 32;
    atomic_store(&launcher->keeper, (changes + 1) << 32 | (uint32_t)keeper);
    pthread_mutex_unlock(&launcher->lock);
}

int amfs_launcher_submit(amfs_launcher *launcher, amfs_task *const *tasks, size_t count, uint64_t *odd) {
    int failed = 0;

    pthread_mutex_lock(&launcher->lock);
    if (launcher->stopping) failed = ESHUTDOWN;
    amfs_context *context = NULL;
    for (size_t i = 0; i < count && !failed; i++) {
        if (context == NULL || context->id != tasks[i]->context_id) context = find_context(launcher, tasks[i]->context_id);
        if (context == NULL) {
            *odd = tasks[i]->serial;
            failed = ENOKEY;
        }
        tasks[i]->context = context;
    }
    /* The thread looks at the queue before it sleeps and whenever a task ends: only one that may sleep over an empty queue is woken. */
    bool sleeping = launcher->head == NULL && count > 0 && !failed;
    for (size_t i = 0; i < count && !failed; i++) {
        amfs_task *task = tasks[i];
        task->context->references++;
        task->next = NULL;
        task->previous = launcher->tail;
        if (launcher->tail != NULL) launcher->tail->next = task;
        else launcher->head = task;
        launcher->tail = task;
        launcher->queued++;
    }
    pthread_mutex_unlock(&launcher->lock);
    if (sleeping) wake(launcher);
    return failed;
}

amfs_completion *amfs_launcher_take(amfs_launcher *launcher) {
    uint64_t count;

    pthread_mutex_lock(&launcher->lock);
    if (launcher->signalled) {
        launcher->signalled = false;
        while (read(launcher->done_fd, &count, sizeof count) < 0 && errno == EINTR) {}
    }
    amfs_completion *first = launcher->done_head;
    launcher->done_head = launcher->done_tail = NULL;
    launcher->done_count = 0;
    pthread_mutex_unlock(&launcher->lock);
    return first;
}

int amfs_launcher_kill(amfs_launcher *launcher, const uint64_t *serials, size_t count) {
    if (count == 0) return 0;
    uint64_t *sorted = malloc(count * sizeof *sorted);
    bool *queued = calloc(count, sizeof *queued);
    if (sorted == NULL || queued == NULL) {
        free(sorted);
        free(queued);
        return ENOMEM;
    }
    memcpy(sorted, serials, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, amfs_compare_serials);

    pthread_mutex_lock(&launcher->lock);
    /* Room for the thread's part first, so that a kill is done whole or not at all. */
    uint64_t *kills = realloc(launcher->kills, (launcher->kill_count + count) * sizeof *kills);
    if (kills == NULL) {
        pthread_mutex_unlock(&launcher->lock);
        free(sorted);
        free(queued);
        return ENOMEM;
    }
    launcher->kills = kills;
    for (amfs_task *task = launcher->head, *next; task != NULL; task = next) {
        next = task->next;
        uint64_t *found = bsearch(&task->serial, sorted, count, sizeof *sorted, amfs_compare_serials);
        if (found == NULL) continue;
        queued[found - sorted] = true;
        amfs_launcher_unlink(launcher, task);
        task->completion->outcome = AMFS_CANCELLED;
        task->completion->slot = -1;
        task->completion->detail = strdup("cancelled before it started");
        amfs_launcher_append(launcher, task->completion);
        task->completion = NULL;
        amfs_context_release(task->context);
        amfs_task_free(task);
        amfs_launcher_signal(launcher);
    }
    /* The others run or are over: the thread knows. */
    for (size_t i = 0; i < count; i++)
        if (!queued[i]) kills[launcher->kill_count++] = sorted[i];
    pthread_mutex_unlock(&launcher->lock);
    free(sorted);
    free(queued);
    wake(launcher);
    return 0;
}

size_t amfs_launcher_withdraw(amfs_launcher *launcher, size_t count, uint64_t *serials) {
    pthread_mutex_lock(&launcher->lock);
    if (count > launcher->queued) count = launcher->queued;
    for (size_t i = count; i-- > 0;) {
        amfs_task *task = launcher->tail;
        serials[i] = task->serial;
        amfs_launcher_unlink(launcher, task);
        amfs_context_release(task->context);
        amfs_task_free(task);
    }
    pthread_mutex_unlock(&launcher->lock);
    if (count > 0) wake(launcher); /* completions held back for a long queue may be due now */
    return count;
}

size_t amfs_launcher_at_work(amfs_launcher *launcher, amfs_at_work *tasks) {
    size_t count = 0;

    for (uint32_t i = 0; i < launcher->slots; i++) {
        amfs_shown_slot *slot = &launcher->shown[i];
        amfs_at_work task = {.serial = atomic_load(&slot->serial), .slot = i};
        if (task.serial == 0) continue;
        task.start_us = atomic_load(&slot->start_us);
        task.pid = atomic_load(&slot->pid);
        if (atomic_load(&slot->serial) == task.serial) tasks[count++] = task; /* else it has ended meanwhile */
    }
    return count;
}

uint32_t amfs_launcher_slots(const amfs_launcher *launcher) { return launcher->slots; }

size_t amfs_launcher_queued(amfs_launcher *launcher) {
    pthread_mutex_lock(&launcher->lock);
    size_t queued = launcher->queued;
    pthread_mutex_unlock(&launcher->lock);
    return queued;
}

size_t amfs_launcher_running(amfs_launcher *launcher) {
    pthread_mutex_lock(&launcher->lock);
    size_t running = launcher->running;
    pthread_mutex_unlock(&launcher->lock);
    return running;
}

int64_t amfs_launcher_cpu_us(amfs_launcher *launcher) {
    clockid_t clock;
    struct timespec used;

    if (launcher->joined) return launcher->cpu_us;
    if (pthread_getcpuclockid(launcher->thread, &clock) != 0 || clock_gettime(clock, &used) < 0) return launcher->cpu_us;
    return (int64_t)used.tv_sec * 1000000 + used.tv_nsec / 1000;
}

void amfs_launcher_stop(amfs_launcher *launcher) {
    if (launcher->joined || !amfs_launcher_is_ours(launcher)) return;
    pthread_mutex_lock(&launcher->lock);
    launcher->stopping = true;
    drop_queue(launcher);
    pthread_mutex_unlock(&launcher->lock);
    wake(launcher);
    pthread_join(launcher->thread, NULL);
    launcher->joined = true;
}

void amfs_launcher_free(amfs_launcher *launcher) {
    if (launcher == NULL) return;
    if (amfs_launcher_is_ours(launcher)) {
        amfs_launcher_stop(launcher);
        while (launcher->contexts != NULL) forget_context(launcher, launcher->contexts->id);
        for (amfs_completion *at = amfs_launcher_take(launcher), *next; at != NULL; at = next) {
            next = at->next;
            amfs_completion_free(at);
        }
        pthread_cond_destroy(&launcher->ready_change);
        pthread_mutex_destroy(&launcher->lock);
        free(launcher->kills);
    } /* else a fork's copy: its lists may have been in the middle of a change, so they are left alone */
    if (launcher->wake_fd >= 0) close(launcher->wake_fd);
    if (launcher->done_fd >= 0) close(launcher->done_fd);
    free(launcher->shown);
    free(launcher->sandbox_dir);
    free(launcher->log_dir);
    free(launcher->mount_dir);
    free(launcher->watcher);
    free(launcher->kills_file);
    free(launcher->last_words);
    free(launcher);
}
