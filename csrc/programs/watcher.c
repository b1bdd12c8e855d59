/* amfs-watcher MARK: waits until its standard input ends, which is when the launcher that started it has ended or was killed, and ends what
 * that launcher's tasks have left: the kernel kills only their first processes (mark.h). */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launcher/mark.h"

int main(int argc, char **argv) {
    static const int IGNORED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};
    enum { PATIENCE_S = 60 };
    struct rlimit limit;
    char byte;

    if (argc != 2) {
        fprintf(stderr, "usage: amfs-watcher MARK <PIPE (amfs starts it)\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof IGNORED / sizeof *IGNORED; i++) signal(IGNORED[i], SIG_IGN);
    setsid(); /* so that neither a terminal's Ctrl-C nor the end of its session is meant for us */
    /* Our launcher may run in a task itself. When that task is ended we have to outlive it, to end what our launcher's tasks have left. */
    if (getrlimit(RLIMIT_RTTIME, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_RTTIME, &limit);
    }
    while (read(0, &byte, 1) > 0 || errno == EINTR) errno = 0;
    return amfs_mark_end(strtoull(argv[1], NULL, 16), PATIENCE_S * INT64_C(1000000), NULL, NULL, NULL) ? 0 : 1;
}
