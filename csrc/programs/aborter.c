/* amfs-aborter: ends the requests of the mounts of a node that was killed. The kernel ends them when /dev/fuse is closed, but that does not happen while a
 * thread of the node waits for pages, or for the lock of a directory, which a process holds that waits for the node's answer (fuse/fuse_tellers.c).
 *
 * Standard input: a line "+NUMBER" for each mount that the node serves, "-NUMBER" when it does not any more. NUMBER is that of the kernel's connection.
 * When the input ends the rest is aborted: that needs root, or a mount of one's own and fusectl in its usual place. Mounts beyond MOUNTS_MAX are not
 * looked after. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

enum { MOUNTS_MAX = 256 };

static bool abort_in(const char *connections, unsigned long number) {
    char path[80];
    snprintf(path, sizeof path, "%s/%lu/abort", connections, number);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = write(fd, "1", 1) == 1;
    close(fd);
    return done;
}

/* In a mount namespace of our own any directory will do. */
static bool mount_control(const char *place) {
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("amfs", place, "fusectl", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

int main(void) {
    static const int IGNORED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};
    unsigned long served[MOUNTS_MAX], number;
    size_t count = 0;
    char sign;

    for (size_t i = 0; i < sizeof IGNORED / sizeof *IGNORED; i++) signal(IGNORED[i], SIG_IGN);
    setsid(); /* so that neither a terminal's Ctrl-C nor the end of its session is meant for us */
    while (scanf(" %c%lu", &sign, &number) == 2) {
        size_t at = 0;
        while (at < count && served[at] != number) at++;
        if (sign == '+' && at == count && count < MOUNTS_MAX) served[count++] = number;
        else if (sign == '-' && at < count) served[at] = served[--count];
    }
    bool all = true;
    for (size_t i = 0; i < count; i++) all = abort_in("/sys/fs/fuse/connections", served[i]) && all;
    if (all || !mount_control("/proc")) return 0;
    for (size_t i = 0; i < count; i++) (void)abort_in("/proc", served[i]); /* of those that have ended there is nothing */
    return 0;
}
