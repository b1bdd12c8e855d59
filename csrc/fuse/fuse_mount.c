/* Mounting and unmounting, as root or as somebody who may mount in his own namespace. */
#include "fuse_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int amfs_fuse_mount(const char *path, const char *source, bool allow_other, int *fd) {
    struct stat root;
    char options[128];
    if (stat(path, &root) != 0) return errno;
    *fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (*fd < 0) return errno;
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=%u,group_id=%u,default_permissions%s", *fd,
             (unsigned)(root.st_mode & S_IFMT), (unsigned)geteuid(), (unsigned)getegid(), allow_other ? ",allow_other" : "");
    if (mount(source, path, "fuse.amfs", MS_NOSUID | MS_NODEV, options) == 0) return 0;
    int error = errno;
    close(*fd);
    *fd = -1;
    return error;
}

static int unmount(const char *path, int flags) {
    return umount2(path, UMOUNT_NOFOLLOW | (flags & (MNT_DETACH | MNT_FORCE))) == 0 ? 0 : errno;
}

int amfs_fuse_unmount(const char *path, int flags, int namespace_fd) {
    int status;
    if (namespace_fd < 0) return unmount(path, flags);
    pid_t child = fork(); /* a process with threads cannot enter another namespace; its child has one thread */
    if (child < 0) return errno;
    if (child == 0) {
        if (setns(namespace_fd, CLONE_NEWNS) != 0) _exit(errno);
        _exit(unmount(path, flags));
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}
