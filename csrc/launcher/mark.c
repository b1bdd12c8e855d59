#include "mark.h"
#include "common/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TID_BITS = 22,
    CHANCE_BITS = 12,
    AT_ONCE = 256,        /* processes whose end is awaited together */
    DEATH_WAIT_MS = 100,  /* for one round of them: SIGKILL is heard at once, unless the kernel holds the process */
    NEXT_ROUND_US = 1000, /* after a round whose processes did not end */
    SHORT = -2,
};

static const uint64_t TAG = UINT64_C(1) << (TID_BITS + CHANCE_BITS + AMFS_MARK_TASK_BITS);
static const uint64_t TASK_MASK = (UINT64_C(1) << AMFS_MARK_TASK_BITS) - 1;

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

uint64_t amfs_mark_new(void) {
    struct rlimit limit;
    uint64_t chance = 0;

    /* The thread's number is nobody else's while it lives; the random part keeps apart what a number was used for earlier, or in another
     * PID namespace. */
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0) chance = (uint64_t)now_us();
    chance &= (UINT64_C(1) << CHANCE_BITS) - 1;
    uint64_t thread = (uint64_t)syscall(SYS_gettid) & ((UINT64_C(1) << TID_BITS) - 1);
    uint64_t mark = TAG | (thread << CHANCE_BITS | chance) << AMFS_MARK_TASK_BITS;
    return getrlimit(RLIMIT_RTTIME, &limit) == 0 && limit.rlim_max > (mark | TASK_MASK) ? mark : 0;
}

/* The limits of a process that changed its group or privileges are told in /proc only. */
static uint64_t read_limits(pid_t pid) {
    char path[40], text[4096];

    snprintf(path, sizeof path, "/proc/%d/limits", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    static const char NAME[] = "Max realtime timeout";
    const char *line = strstr(text, NAME);
    return line == NULL ? 0 : strtoull(line + sizeof NAME - 1, NULL, 10);
}

static uint64_t mark_of(pid_t pid) {
    struct rlimit limit;

    if (prlimit(pid, RLIMIT_RTTIME, NULL, &limit) == 0) return limit.rlim_cur;
    return errno == EPERM && kill(pid, 0) == 0 ? read_limits(pid) : 0;
}

uint64_t amfs_mark_of(int pid) {
    uint64_t mark = pid > 0 ? mark_of(pid) : 0;
    return (mark & TAG) != 0 && mark < 2 * TAG ? mark : 0;
}

/* A pidfd of this process if its mark is the launcher's and is not spared, else -1, or SHORT: descriptors are. A zombie counts as gone. */
static int hold(pid_t pid, uint64_t launcher, amfs_mark_spare *spare, const void *context) {
    uint64_t mark = mark_of(pid);

    if ((mark & ~TASK_MASK) != launcher || (spare != NULL && spare(context, mark))) return -1;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) return errno == EMFILE || errno == ENFILE ? SHORT : -1;
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    /* With the pidfd in hand, ask again whose it is: the number may have passed to another process. */
    if (mark_of(pid) == mark && poll(&ended, 1, 0) == 0) return pidfd;
    close(pidfd);
    return -1;
}

unsigned amfs_mark_await(amfs_marked *found, unsigned count, int patience_ms) {
    int64_t until = now_us() + (int64_t)patience_ms * 1000;
    unsigned still = 0;

    for (unsigned i = 0; i < count; i++) {
        struct pollfd ended = {.fd = found[i].pidfd, .events = POLLIN};
        int64_t left = (until - now_us() + 999) / 1000;
        if (poll(&ended, 1, left > 0 ? (int)left : 0) == 0) found[still++] = found[i];
        else close(found[i].pidfd);
    }
    return still;
}

/* Wait until they are gone; closes their pidfds. */
static void await(amfs_marked *found, unsigned count) {
    count = amfs_mark_await(found, count, DEATH_WAIT_MS);
    while (count > 0) close(found[--count].pidfd);
}

void amfs_mark_kill(amfs_marked *found, unsigned count) {
    unsigned held = 0;

    for (unsigned i = 0; i < count; i++)
        if (found[i].pidfd >= 0) found[held++] = found[i];
    for (unsigned i = 0; i < held; i++) syscall(SYS_pidfd_send_signal, found[i].pidfd, SIGKILL, NULL, 0);
    await(found, held);
}

static bool is_another(const void *mark, uint64_t other) { return *(const uint64_t *)mark != other; }

/* The number of the next process in an open /proc; 0: there is no other. */
static pid_t next_process(DIR *processes) {
    struct dirent *entry;

    while ((entry = readdir(processes)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0])) return atoi(entry->d_name);
    return 0;
}

/* Close the pidfd of the last one that has any. */
static void release(amfs_marked *found, unsigned count, unsigned *held) {
    while (count > 0 && found[--count].pidfd < 0) {}
    close(found[count].pidfd);
    found[count].pidfd = -1;
    --*held;
}

unsigned amfs_mark_find(uint64_t mark, pid_t after, pid_t last, amfs_marked *found, unsigned most) {
    DIR *processes = last == 0 ? opendir("/proc") : NULL;
    unsigned count = 0, held = 0;
    bool is_short = false;

    if (last == 0 && processes == NULL) return 0;
    while (count < most) {
        pid_t pid = processes != NULL ? next_process(processes) : after < last ? ++after : 0;
        if (pid == 0) break;
        int pidfd = hold(pid, mark & ~TASK_MASK, is_another, &mark);
        if (pidfd == SHORT && held > 0) { /* one descriptor is enough to look at each of them in turn */
            is_short = true;
            release(found, count, &held);
            pidfd = hold(pid, mark & ~TASK_MASK, is_another, &mark);
        }
        if (pidfd >= 0) held++;
        if (pidfd != -1) found[count++] = (amfs_marked){pid, pidfd == SHORT ? -1 : pidfd};
    }
    if (is_short && held > 1) release(found, count, &held); /* for the caller to look at what they do */
    if (processes != NULL) closedir(processes);
    return count;
}

static unsigned round_of_signals(uint64_t launcher, int number, amfs_mark_spare *spare, const void *context, bool wait) {
    amfs_marked ended[AT_ONCE];
    unsigned count = 0, held = 0;
    DIR *processes = launcher != 0 ? opendir("/proc") : NULL;

    for (pid_t pid; processes != NULL && (pid = next_process(processes)) != 0;) {
        int pidfd = hold(pid, launcher, spare, context);
        if (pidfd < 0) continue;
        count++;
        syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
        if (wait && held < AT_ONCE) ended[held++] = (amfs_marked){pid, pidfd};
        else close(pidfd);
    }
    if (processes != NULL) closedir(processes);
    await(ended, held);
    return count;
}

unsigned amfs_mark_signal(uint64_t launcher, int number, amfs_mark_spare *spare, const void *context) {
    return round_of_signals(launcher, number, spare, context, false);
}

bool amfs_mark_end(uint64_t launcher, int64_t patience_us, amfs_mark_spare *spare, const void *context, bool *found) {
    int64_t give_up = now_us() + patience_us;
    bool any = false;

    /* Another round after each that found some: they may have made more meanwhile. */
    while (round_of_signals(launcher, SIGKILL, spare, context, true) > 0) {
        any = true;
        if (found != NULL) *found = true;
        if (now_us() >= give_up) return false;
        usleep(NEXT_ROUND_US);
    }
    if (found != NULL) *found = any;
    return true;
}
