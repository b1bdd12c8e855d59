/* amfs-keeper: a user and a mount namespace, in which an ordinary user may mount, and the mounts in it. It ends when its standard input ends, which is
 * when the node that started it has ended or was killed. The namespaces, and with them the mounts, are gone when nobody is left in them.
 *
 * It is asked over its standard input, a Unix socket that keeps messages apart (SOCK_SEQPACKET). A request is "SOURCE\0PATH": mount at PATH. Each
 * answer is a struct answer. The first comes by itself and says whether there are namespaces (number: that of the mount namespace). A request has
 * an answer that says whether it is mounted, with the descriptor that is to be served; and if it is, a second one when the holder of the descriptor
 * serves it (number: the device of the mount). A request without a SOURCE is to unmount, also while programs use the mount; it has no answer.
 *
 * When its input ends the node has ended, and the keeper has the kernel end all requests of the first MOUNTS_MAX mounts: a thread of the killed node may wait in the kernel
 * for such a request, and then the kernel does not end it by itself (fuse/fuse_tellers.c). The mounts stay, for the programs that are left in the namespaces. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse/fuse_mount.h"

/* The subjects of answers. amfs/node/keeper.py has the same numbers. */
enum { NAMESPACES = 1, NUMBERS, MOUNT, SERVED };

struct answer {
    int32_t about, error; /* error: errno, or 0 */
    uint64_t number;
};

static void tell(int about, int error, uint64_t number, int fd) {
    struct answer answer = {about, error, number};
    struct iovec part = {&answer, sizeof answer};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    if (sendmsg(0, &message, MSG_NOSIGNAL) < 0) _exit(0); /* nobody is there any more */
}

static int write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC), error = 0;
    if (fd < 0) return errno;
    if (write(fd, text, strlen(text)) < 0) error = errno;
    close(fd);
    return error;
}

/* The user and his group keep their numbers; those of others have none in there. The kernel wants setgroups forbidden first. */
static int take_numbers(unsigned user, unsigned group) {
    char text[64];

    int error = write_file("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "%u %u 1", user, user);
    if (error == 0) error = write_file("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%u %u 1", group, group);
    if (error == 0) error = write_file("/proc/self/gid_map", text);
    return error;
}

enum { MOUNTS_MAX = 64 };

/* Without its descriptor a mount that nobody uses would be taken away where it shall only end. */
static struct kept {
    char *path; /* NULL: free */
    int root;
} mounts[MOUNTS_MAX];

static void keep(const char *path) {
    struct kept *kept = mounts;
    while (kept < mounts + MOUNTS_MAX && kept->path != NULL) kept++;
    if (kept == mounts + MOUNTS_MAX) return;
    kept->root = open(path, O_PATH | O_CLOEXEC);
    if (kept->root >= 0) kept->path = strdup(path);
}

static void take_away(const char *path) {
    for (struct kept *kept = mounts; kept < mounts + MOUNTS_MAX; kept++) {
        if (kept->path == NULL || strcmp(kept->path, path) != 0) continue;
        close(kept->root);
        free(kept->path);
        kept->path = NULL;
    }
    umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

static void end_requests(void) {
    for (struct kept *kept = mounts; kept < mounts + MOUNTS_MAX; kept++)
        if (kept->path != NULL) umount2(kept->path, MNT_FORCE | UMOUNT_NOFOLLOW); /* EBUSY, but they have ended */
}

static void serve(const char *source, const char *path) {
    struct stat root = {0};
    int fd = -1;

    if (stat(path, &root) != 0 && errno == ENOTCONN) umount2(path, MNT_DETACH); /* a mount that was there before and is dead */
    int error = amfs_fuse_mount(path, source, false, &fd);
    tell(MOUNT, error, 0, fd);
    if (error != 0) return;
    close(fd); /* else the mount would outlive its server */
    /* Until the kernel has asked for the owner of the topmost directory, it takes it for user 0, which has no number in here, and refuses to make files in it. */
    error = stat(path, &root) == 0 ? 0 : errno;
    if (error == 0) keep(path);
    tell(SERVED, error, root.st_dev, -1);
}

int main(void) {
    static const int IGNORED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};
    static char request[2 * PATH_MAX];
    unsigned user = geteuid(), group = getegid();
    struct stat space;

    for (size_t i = 0; i < sizeof IGNORED / sizeof *IGNORED; i++) signal(IGNORED[i], SIG_IGN);
    setsid(); /* so that neither a terminal's Ctrl-C nor the end of its session is meant for us */
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        tell(NAMESPACES, errno, 0, -1);
        return 1;
    }
    int error = take_numbers(user, group);
    if (error == 0 && stat("/proc/self/ns/mnt", &space) != 0) error = errno;
    if (error != 0) {
        tell(NUMBERS, error, 0, -1);
        return 1;
    }
    tell(NAMESPACES, 0, space.st_ino, -1);
    for (;;) {
        ssize_t length = recv(0, request, sizeof request - 1, 0);
        if (length == 0 || (length < 0 && errno != EINTR)) break;
        if (length < 0) continue;
        request[length] = '\0';
        const char *path = memchr(request, '\0', (size_t)length);
        if (path != NULL && path == request) take_away(path + 1);
        else if (path != NULL) serve(request, path + 1);
    }
    end_requests();
    return 0;
}
