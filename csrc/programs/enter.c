/* amfs-enter KEEPER NAMESPACE DIRECTORY [PROGRAM [ARGUMENT]...]: run a program in the namespaces of a keeper (keeper.c), in a directory there.
 * Without PROGRAM it only says by its exit status whether that can be done: 0, or 1: there is no such directory, or 125: it may not be entered.
 *
 * KEEPER is the number of an open pidfd, which the program does not get. NAMESPACE is the number of the keeper's mount namespace: a process that is in it
 * already may not enter it again. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NO_DIRECTORY = 1, USAGE = 2, NOT_ENTERED = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

static int failed(const char *what, const char *name, int status) {
    fprintf(stderr, "amfs-enter: %s %s: %s\n", what, name, strerror(errno));
    return status;
}

int main(int argc, char **argv) {
    struct stat own;

    if (argc < 4) {
        fprintf(stderr, "usage: amfs-enter KEEPER NAMESPACE DIRECTORY [PROGRAM [ARGUMENT]...] (amfs starts it)\n");
        return USAGE;
    }
    int keeper = atoi(argv[1]);
    bool inside = stat("/proc/self/ns/mnt", &own) == 0 && own.st_ino == strtoull(argv[2], NULL, 10);
    if (!inside && setns(keeper, CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return failed("cannot enter the namespaces of", "the node's mounts", NOT_ENTERED);
    if (chdir(argv[3]) != 0) return failed("cannot enter", argv[3], NO_DIRECTORY);
    if (argc == 4) return 0;
    fcntl(keeper, F_SETFD, FD_CLOEXEC);
    execvp(argv[4], argv + 4);
    return failed("cannot start", argv[4], errno == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
}
