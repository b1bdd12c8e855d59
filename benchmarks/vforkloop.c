/* vforkloop N W PROGRAM [ARG...]: run PROGRAM N times, W at a time, with nothing but vfork, exec and wait: the limit of this machine.
 *
 * Prints one line: seconds, own CPU seconds, the children's CPU seconds. W = 1 is the "one after the other" of the chain row. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double cpu_of(int who) {
    struct rusage use;
    getrusage(who, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("usage: vforkloop N W PROGRAM [ARG...]\n", stderr);
        return 2;
    }
    long total = atol(argv[1]), width = atol(argv[2]), started = 0, running = 0, bad = 0;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (started < total || running > 0) {
        while (started < total && running < width) {
            pid_t child = vfork();
            if (child == 0) {
                execv(argv[3], argv + 3);
                _exit(127);
            }
            if (child < 0) {
                fprintf(stderr, "vforkloop: vfork: %s\n", strerror(errno));
                return 1;
            }
            started++;
            running++;
        }
        int status;
        if (waitpid(-1, &status, 0) < 0) {
            fprintf(stderr, "vforkloop: waitpid: %s\n", strerror(errno));
            return 1;
        }
        running--;
        bad += status != 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (bad != 0) {
        fprintf(stderr, "vforkloop: %ld of %ld runs of %s failed\n", bad, total, argv[3]);
        return 1;
    }
    printf("%.9f %.6f %.6f\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9, cpu_of(RUSAGE_SELF),
           cpu_of(RUSAGE_CHILDREN));
    return 0;
}
