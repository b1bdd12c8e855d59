/* amfs-watcher MARK [WORDS KILLS]: waits until its standard input ends, which is when the launcher that started it has ended or was killed, and ends what
 * that launcher's tasks have left: the kernel kills only their first processes (mark.h).
 *
 * A process that the kernel kills because memory has run out can say nothing. If the file KILLS counts more of that than in the beginning, the
 * watcher says WORDS, where its parent's standard error went; unless there was a byte on its standard input: its parent has ended in order. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launcher/mark.h"

static long count(const char *path) {
    char line[128];
    long found = 0;
    FILE *file = path != NULL ? fopen(path, "re") : NULL;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "oom_kill %ld", &found) == 1) break;
    if (file != NULL) fclose(file);
    return found;
}

int main(int argc, char **argv) {
    static const int IGNORED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};
    enum { PATIENCE_S = 60 };
    struct rlimit limit;
    char byte, parents_errors[40];
    bool in_order = false;

    if (argc < 2) {
        fprintf(stderr, "usage: amfs-watcher MARK [WORDS KILLS] <PIPE (amfs starts it)\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof IGNORED / sizeof *IGNORED; i++) signal(IGNORED[i], SIG_IGN);
    setsid(); /* so that neither a terminal's Ctrl-C nor the end of its session is meant for us */
    /* Our launcher may run in a task itself. When that task is ended we have to outlive it, to end what our launcher's tasks have left. */
    if (getrlimit(RLIMIT_RTTIME, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_RTTIME, &limit);
    }
    const char *words = argc > 3 ? argv[2] : "", *kills = argc > 3 ? argv[3] : NULL;
    long before = count(kills);
    snprintf(parents_errors, sizeof parents_errors, "/proc/%d/fd/2", getppid());
    int errors = kills != NULL ? open(parents_errors, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY) : -1;
    for (ssize_t got; (got = read(0, &byte, 1)) > 0 || errno == EINTR; errno = 0) in_order |= got > 0;
    if (errors >= 0 && !in_order && count(kills) > before && write(errors, words, strlen(words)) < 0) {} /* nobody listens */
    if (errors >= 0) close(errors); /* its reader need not wait for the rest */
    return amfs_mark_end(strtoull(argv[1], NULL, 16), PATIENCE_S * INT64_C(1000000), NULL, NULL, NULL) ? 0 : 1;
}
