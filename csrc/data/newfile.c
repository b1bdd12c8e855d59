#include "newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/tree.h"

static int fail(struct newfile *file, int error, const char *step, const char *path) {
    char reason[128];
    snprintf(file->error, sizeof file->error, "cannot %s %s: %s", step, path, strerror_r(error, reason, sizeof reason)); /* the GNU one */
    return error;
}

static int make_parents(struct newfile *file) {
    const char *path = file->destination;
    char prefix[NEWFILE_PATH_BYTES];
    size_t length = strlen(path);
    if (length >= sizeof prefix) return fail(file, ENAMETOOLONG, "make the directories of", path);
    memcpy(prefix, path, length + 1);
    for (char *slash = strchr(prefix + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(prefix, 0777) != 0 && errno != EEXIST) {
            int reason = errno;
            struct stat found; /* a read-only or foreign directory above that is there is no fault */
            if (stat(prefix, &found) != 0 || !S_ISDIR(found.st_mode)) return fail(file, reason, "make directory", prefix);
        }
        *slash = '/';
    }
    return 0;
}

int newfile_open(struct newfile *file, const char *destination, bool directories) {
    static atomic_uint count;
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    const char *slash = strrchr(destination, '/');
    int directory = slash == NULL ? 0 : (int)(slash - destination) + 1, error = 0;
    uint32_t chance = 0; /* two hosts may have a process of this number, and one directory between them; O_EXCL guards against the rest */
    (void)!getrandom(&chance, sizeof chance, GRND_NONBLOCK);
    file->destination = destination;
    file->error[0] = '\0';
    int length = snprintf(file->part, sizeof file->part, "%.*s.amfs-part-%x-%x-%x", directory, destination, (unsigned)getpid(),
                          (unsigned)chance, atomic_fetch_add(&count, 1));
    if (length >= (int)sizeof file->part) return fail(file, ENAMETOOLONG, "create", destination);
    file->fd = open(file->part, flags, 0600);
    if (file->fd < 0 && errno == ENOENT && directories) {
        error = make_parents(file);
        if (error != 0) return error;
        file->fd = open(file->part, flags, 0600);
    }
    return file->fd < 0 ? fail(file, errno, "create", destination) : 0;
}

void newfile_drop(struct newfile *file) {
    close(file->fd);
    unlink(file->part);
}

/* Never over a device or a pipe: root could, and nobody means that. */
static int put_in_place(const struct newfile *file) {
    struct stat there;
    bool special = lstat(file->destination, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode) && !S_ISDIR(there.st_mode);
    return special ? EEXIST : rename(file->part, file->destination) == 0 ? 0 : errno;
}

int newfile_finish(struct newfile *file, unsigned mode, bool keep_first) {
    if (fchmod(file->fd, mode & 07777) != 0) {
        int error = fail(file, errno, "set the mode of", file->destination);
        newfile_drop(file);
        return error;
    }
    const char *step = "write"; /* network file systems report a full disk when it is closed */
    int error = close(file->fd) == 0 ? 0 : errno;
    if (error == 0) {
        step = "rename to";
        error = keep_first ? amfs_rename_to_free(AT_FDCWD, file->part, file->destination) : put_in_place(file);
        if (error == EEXIST && keep_first) error = unlink(file->part) == 0 ? 0 : errno;
    }
    if (error == 0) return 0;
    unlink(file->part);
    return fail(file, error, step, file->destination);
}
