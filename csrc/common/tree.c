#include "tree.h"

#include "extents.h"
#include "xxh64.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Remove one entry that may be a non-empty directory: 0, or an errno (ENOTEMPTY, EEXIST: go into it first). */
static int remove_entry(int directory, const char *name, unsigned char type) {
    if (type != DT_DIR) {
        if (unlinkat(directory, name, 0) == 0 || errno == ENOENT) return 0;
        if (errno != EISDIR && errno != EPERM) return errno;
    }
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
    return errno == EEXIST ? ENOTEMPTY : errno;
}

static int open_directory(int directory, const char *name) {
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(directory, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(directory, name, 0700, 0) == 0) fd = openat(directory, name, flags);
    return fd;
}

/* Empty `top` without recursion: a directory found inside is moved up to the top first, so no path grows and no descriptor stays open. */
int amfs_remove_tree(int directory, const char *name) {
    int failed = remove_entry(directory, name, DT_UNKNOWN);
    if (failed != ENOTEMPTY && failed != EACCES) return failed;
    int top = open_directory(directory, name);
    if (top < 0) return errno;
    fchmod(top, 0700);

    unsigned long moved = 0;
    bool progress = true;
    failed = 0;
    while (progress) {
        progress = false;
        failed = 0;
        DIR *listing = fdopendir(openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (listing == NULL) {
            failed = errno;
            break;
        }
        for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            int problem = remove_entry(top, entry->d_name, entry->d_type);
            if (problem == 0) {
                progress = true;
                continue;
            }
            if (problem != ENOTEMPTY && problem != EACCES) {
                failed = problem;
                continue;
            }
            int inner = open_directory(top, entry->d_name);
            if (inner < 0) {
                failed = errno;
                continue;
            }
            fchmod(inner, 0700);
            DIR *children = fdopendir(inner);
            if (children == NULL) {
                failed = errno;
                close(inner);
                continue;
            }
            for (struct dirent *child; (child = readdir(children)) != NULL;) {
                if (strcmp(child->d_name, ".") == 0 || strcmp(child->d_name, "..") == 0) continue;
                problem = remove_entry(inner, child->d_name, child->d_type);
                if (problem == ENOTEMPTY || problem == EACCES) {
                    char unique[48];
                    /* Renaming a directory writes its "..", so it has to be writable itself. */
                    fchmodat(inner, child->d_name, 0700, 0);
                    do snprintf(unique, sizeof unique, ".amfs-removed-%lu", moved++);
                    while (faccessat(top, unique, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
                    problem = renameat(inner, child->d_name, top, unique) < 0 ? errno : 0;
                }
                if (problem == 0) progress = true;
                else failed = problem;
            }
            closedir(children);
            problem = remove_entry(top, entry->d_name, DT_DIR);
            if (problem == 0) progress = true;
            else failed = problem;
        }
        closedir(listing);
        if (unlinkat(directory, name, AT_REMOVEDIR) == 0) {
            close(top);
            return 0;
        }
    }
    close(top);
    if (unlinkat(directory, name, AT_REMOVEDIR) < 0) return failed ? failed : errno;
    return 0;
}

static void set_time(const char *path, const struct stat *source) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, source->st_mtim};
    (void)!utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW); /* a file system without times loses nothing else */
}

/* The mode is less the umask, as everywhere. */
static int copy_regular(const char *from, const char *to, const struct stat *status) {
    int source = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (source < 0) return errno;
    int target = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status->st_mode & 0777);
    int failed = target < 0 ? errno : amfs_copy_descriptor(source, target);
    if (target >= 0 && close(target) < 0 && !failed) failed = errno;
    close(source);
    return failed;
}

static int copy_link(const char *from, const char *to) {
    char text[PATH_MAX];
    ssize_t length = readlink(from, text, sizeof text - 1);
    if (length < 0) return errno;
    text[length] = '\0';
    return symlink(text, to) < 0 ? errno : 0;
}

int amfs_copy_tree(const char *from, const char *to) {
    char root[PATH_MAX], path[PATH_MAX];
    char *roots[] = {root, NULL};
    size_t skip = strlen(from);
    int failed = 0;

    if (skip >= sizeof root) return ENAMETOOLONG;
    memcpy(root, from, skip + 1);
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    if (walk == NULL) return errno;
    for (FTSENT *entry; !failed && (errno = 0, entry = fts_read(walk)) != NULL;) {
        if (snprintf(path, sizeof path, "%s%s", to, entry->fts_path + skip) >= (int)sizeof path) {
            failed = ENAMETOOLONG;
        } else if (entry->fts_info == FTS_DP) {
            set_time(path, entry->fts_statp);
        } else if (entry->fts_info == FTS_D) {
            if (mkdir(path, (entry->fts_statp->st_mode & 0777) | 0700) < 0 && errno != EEXIST) failed = errno;
        } else if (entry->fts_info == FTS_F || entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE) {
            if (unlink(path) < 0 && errno != ENOENT) failed = errno;
            else
                failed = entry->fts_info == FTS_F ? copy_regular(entry->fts_accpath, path, entry->fts_statp)
                                                  : copy_link(entry->fts_accpath, path);
            if (!failed) set_time(path, entry->fts_statp);
        } else {
            failed = entry->fts_info != FTS_DEFAULT && entry->fts_errno ? entry->fts_errno : EINVAL;
        }
    }
    if (!failed) failed = errno;
    fts_close(walk);
    return failed;
}

int amfs_rename_to_free(int directory, const char *path, const char *destination) {
    if (renameat2(directory, path, AT_FDCWD, destination, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL) return errno;
    /* NFS does not know the flag. A hard link fails as well when the name is taken. */
    if (linkat(directory, path, AT_FDCWD, destination, 0) < 0) return errno;
    unlinkat(directory, path, 0);
    return 0;
}

/* ── settling ── */

/* Put a copy of what a link leads to in the link's place. EISDIR, ENOENT: it leads to a directory, or nowhere; EINVAL: to what is no file. */
static int replace_link(const char *path, struct stat *status) {
    char copy[PATH_MAX];
    if (stat(path, status) < 0) return errno;
    if (!S_ISREG(status->st_mode)) return S_ISDIR(status->st_mode) ? EISDIR : EINVAL;
    if (snprintf(copy, sizeof copy, "%s.amfs-part", path) >= (int)sizeof copy) return ENAMETOOLONG;
    int source = open(path, O_RDONLY | O_CLOEXEC);
    if (source < 0) return errno;
    int target = open(copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status->st_mode & 0777);
    int failed = target < 0 ? errno : amfs_copy_descriptor(source, target);
    close(source);
    if (target < 0) return failed;
    if (!failed && fstat(target, status) < 0) failed = errno;
    if (close(target) < 0 && !failed) failed = errno;
    if (!failed && rename(copy, path) < 0) failed = errno;
    if (failed) unlink(copy);
    return failed;
}

/* Count a file, which nobody is to write any more. A file without the owner's right to write is left: it may be an input under another name. */
static int settle_file(const char *path, const char *name, const struct stat *status, struct amfs_tree_facts *facts) {
    char text[PATH_MAX + 24];
    uint64_t size = (uint64_t)status->st_size;
    int length = snprintf(text, sizeof text, "%s%c%llu", name, 0, (unsigned long long)size);
    facts->files++;
    facts->size += size;
    facts->holes += amfs_has_holes(status) ? size - (uint64_t)status->st_blocks * 512 : 0;
    facts->names += amfs_xxh64(text, (size_t)length, 0);
    mode_t mode = status->st_mode & 07777;
    return (mode & 0600) != 0400 && chmod(path, (mode & 0555) | 0400) < 0 ? errno : 0;
}

int amfs_tree_settle(const char *path, struct amfs_tree_facts *facts, char *wrong, size_t room) {
    char root[PATH_MAX];
    char *roots[] = {root, NULL};
    size_t skip = strlen(path) + 1;
    int failed = 0;

    *facts = (struct amfs_tree_facts){0};
    *wrong = '\0';
    if (skip >= sizeof root) return ENAMETOOLONG;
    memcpy(root, path, skip);
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL) return errno;
    for (FTSENT *entry; !failed && (errno = 0, entry = fts_read(walk)) != NULL;) {
        const char *name = entry->fts_level > 0 ? entry->fts_path + skip : "", *why = NULL;
        struct stat status = *entry->fts_statp;
        if (entry->fts_level > 0 && strncmp(entry->fts_name, ".amfs-", 6) == 0) {
            why = "has a name that begins with .amfs-, as those of amfs itself do", failed = EINVAL;
        } else if (entry->fts_info == FTS_D) { /* it is read after this */
            if ((status.st_mode & 0700) != 0700 && chmod(entry->fts_path, (status.st_mode & 07777) | 0700) < 0) failed = errno;
        } else if (entry->fts_info == FTS_DP) {
            if (entry->fts_level > 0 && rmdir(entry->fts_path) < 0 && errno != ENOTEMPTY && errno != EEXIST) failed = errno;
        } else if (entry->fts_info == FTS_F) {
            failed = settle_file(entry->fts_path, name, &status, facts);
        } else if (entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE) {
            failed = replace_link(entry->fts_path, &status);
            if (!failed) failed = settle_file(entry->fts_path, name, &status, facts);
            else why = failed == EISDIR ? "has a link to a directory" : failed == ENOENT ? "has a link that leads nowhere" : NULL;
        } else {
            failed = entry->fts_info != FTS_DEFAULT && entry->fts_errno ? entry->fts_errno : EINVAL;
        }
        if (failed && why == NULL) why = failed == EINVAL ? "has what is no file and no directory" : strerror(failed);
        if (failed) snprintf(wrong, room, *name ? "%s: %s" : "%s", why, name);
    }
    if (!failed && errno) snprintf(wrong, room, "%s", strerror(failed = errno));
    fts_close(walk);
    if (!failed && facts->files == 0) snprintf(wrong, room, "has no file in it: no storage keeps an empty directory"), failed = ENODATA;
    return failed;
}

/* ── marks ── */

struct mark {
    uint64_t name, state;
};

struct amfs_tree_marks {
    size_t count;
    struct mark marks[];
};

static int by_name(const void *first, const void *second) {
    uint64_t a = ((const struct mark *)first)->name, b = ((const struct mark *)second)->name;
    return a < b ? -1 : a > b;
}

/* The marks of up to `most` files, sorted; NULL with errno, E2BIG: there are more. */
static struct amfs_tree_marks *marks_of(const char *path, size_t most) {
    char root[PATH_MAX];
    char *roots[] = {root, NULL};
    size_t skip = strlen(path), room = 0;
    struct amfs_tree_marks *found = calloc(1, sizeof *found);
    int failed = skip < sizeof root ? 0 : ENAMETOOLONG;
    if (found == NULL || failed) {
        free(found);
        errno = failed ? failed : ENOMEM;
        return NULL;
    }
    memcpy(root, path, skip + 1);
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    if (walk == NULL) failed = errno;
    for (FTSENT *entry; !failed && (errno = 0, entry = fts_read(walk)) != NULL;) {
        const struct stat *status = entry->fts_statp;
        if (entry->fts_info != FTS_F && entry->fts_info != FTS_SL && entry->fts_info != FTS_SLNONE) continue;
        if (found->count >= most) failed = E2BIG;
        if (!failed && found->count == room) {
            room = room ? 2 * room : 64;
            struct amfs_tree_marks *more = realloc(found, sizeof *found + room * sizeof(struct mark));
            if (more == NULL) failed = ENOMEM;
            else found = more;
        }
        if (failed) break;
        const char *name = entry->fts_path + skip;
        uint64_t state[3] = {(uint64_t)status->st_size, (uint64_t)status->st_mtim.tv_sec, (uint64_t)status->st_mtim.tv_nsec};
        found->marks[found->count++] = (struct mark){amfs_xxh64(name, strlen(name), 0), amfs_xxh64(state, sizeof state, 0)};
    }
    if (!failed) failed = errno;
    if (walk != NULL) fts_close(walk);
    if (failed) {
        free(found);
        errno = failed;
        return NULL;
    }
    qsort(found->marks, found->count, sizeof(struct mark), by_name);
    return found;
}

struct amfs_tree_marks *amfs_tree_marks_of(const char *path) { return marks_of(path, AMFS_TREE_MARKS); }

bool amfs_tree_has_changed(const char *path, const struct amfs_tree_marks *then) {
    /* As many again may have come: where there are still more, nothing is said. */
    struct amfs_tree_marks *now = marks_of(path, 2 * AMFS_TREE_MARKS);
    if (now == NULL) return errno == ENOENT || errno == ENOTDIR;
    size_t at = 0;
    bool changed = false;
    for (size_t i = 0; i < then->count && !changed; i++) {
        while (at < now->count && now->marks[at].name < then->marks[i].name) at++;
        changed = at == now->count || now->marks[at].name != then->marks[i].name || now->marks[at].state != then->marks[i].state;
    }
    free(now);
    return changed;
}
