#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digests.h"
#include "common/extents.h"
#include "common/tree.h"

/* ------------------------------------------------------------------------------------------------------------------ paths */

int amfs_files_at(amfs_files *files, const amfs_task *task, const char *base, const char *name) {
    bool staged = (task->flags & AMFS_STAGED) != 0;
    const char *prefix = staged ? task->prefix : base;
    size_t prefix_length = staged ? task->prefix_length : strlen(base), length = strlen(name);

    if (name[0] == '/') prefix_length = 0;
    if (prefix_length + length >= PATH_MAX) return -ENAMETOOLONG;
    memcpy(files->path, prefix, prefix_length);
    memcpy(files->path + prefix_length, name, length + 1);
    return staged ? files->directory_fd : AT_FDCWD;
}

int amfs_files_cwd(amfs_files *files, const amfs_task *task, const char *base) {
    int length;

    if (task->flags & AMFS_BLIND) length = snprintf(files->path, sizeof files->path, "%s%s", base, task->cwd);
    else if (task->cwd[0] == '/') length = snprintf(files->path, sizeof files->path, "%s", task->cwd);
    else if (task->flags & AMFS_STAGED)
        length = snprintf(files->path, sizeof files->path, "%s/%s%s", files->directory, task->prefix, task->cwd);
    else length = snprintf(files->path, sizeof files->path, "%s%s", base, task->cwd);
    return length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Make the directories of `path` (below `directory`) from its character `from` on; with `whole` the last component as well. */
static int make_directories(int directory, char *path, size_t from, bool whole) {
    for (char *slash = strchr(path + from, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        if (slash == path) continue;
        *slash = '\0';
        int failed = mkdirat(directory, path, 0777) < 0 && errno != EEXIST ? errno : 0;
        *slash = '/';
        /* A directory on the way may exist and not be ours to make another in (EACCES, EROFS): only what comes after tells. */
        if (failed && failed != EACCES && failed != EROFS && failed != EPERM) return failed;
    }
    if (whole && mkdirat(directory, path, 0777) < 0 && errno != EEXIST) return errno;
    return 0;
}

int amfs_make_parents(char *path) { return make_directories(AT_FDCWD, path, 1, false); }

static amfs_stamp stamp_of(const struct stat *status) {
    uint64_t size = (uint64_t)status->st_size, holes = amfs_has_holes(status) ? size - (uint64_t)status->st_blocks * 512 : 0;
    return (amfs_stamp){size, (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec, holes};
}

/* ---------------------------------------------------------------------------------------------------------------- copying */

enum { AS_INPUT = 1 << 30 }; /* for a mode: that of the source, to be read and executed only */

/* Copy the file `name` at `directory` with its time to `path` at `to_directory`, which must not exist. */
static int copy_file(int directory, const char *name, int to_directory, const char *path, mode_t mode) {
    int from = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0) return errno;
    struct stat status;
    int wrong = fstat(from, &status) < 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : S_ISREG(status.st_mode) ? 0 : EINVAL;
    if (wrong) {
        close(from);
        return wrong;
    }
    int to = openat(to_directory, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0) {
        int failed = errno;
        close(from);
        return failed;
    }
    int failed = amfs_copy_descriptor(from, to);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, status.st_mtim};
    if (!failed && (futimens(to, times) < 0 || fchmod(to, mode == AS_INPUT ? (status.st_mode & 0555) | 0400 : mode) < 0)) failed = errno;
    close(from);
    if (close(to) < 0 && !failed) failed = errno;
    if (failed) unlinkat(to_directory, path, 0);
    return failed;
}

/* ---------------------------------------------------------------------------------------------------------------- prepare */

/* A task has removed the directory of all sandboxes (rm -rf ../../..): make it again, or no task would ever run here again. */
static int make_directory_again(amfs_files *files) {
    snprintf(files->other, sizeof files->other, "%s/", files->directory);
    int failed = amfs_make_parents(files->other);
    int fd = failed ? -1 : open(files->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return failed ? failed : errno;
    close(files->directory_fd);
    files->directory_fd = fd;
    return 0;
}

static int make_top(amfs_files *files, amfs_task *task) {
    char *prefix = task->prefix;
    int failed = 0;

    prefix[task->top_length] = '\0';
    if (mkdirat(files->directory_fd, prefix, 0700) < 0) {
        failed = errno;
        if (failed == ENOENT && (failed = make_directory_again(files)) == 0)
            failed = mkdirat(files->directory_fd, prefix, 0700) < 0 ? errno : 0;
        if (failed == EEXIST) { /* kept from an earlier attempt, or left behind by a crash */
            amfs_remove_tree(files->directory_fd, prefix);
            failed = mkdirat(files->directory_fd, prefix, 0700) < 0 ? errno : 0;
        }
    }
    prefix[task->top_length] = '/';
    if (!failed && task->depth > 0) failed = make_directories(files->directory_fd, prefix, task->top_length + 1, false);
    return failed;
}

static bool is_real_directory(int directory, const char *path) {
    struct stat status;
    return fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

static int place_input(amfs_files *files, amfs_task *task, amfs_input *input) {
    bool in_place = input->source[0] == '@';
    const char *source = input->source + in_place;
    int directory = files->directory_fd, failed;
    struct stat status;

    for (int attempt = 0;; attempt++) {
        if (in_place) failed = symlinkat(source, directory, files->path) < 0 ? errno : 0;
        else failed = linkat(AT_FDCWD, source, directory, files->path, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
        if (failed == EEXIST) /* declared twice: the sandbox was empty. A directory stands there for other inputs, and hides this one */
            return in_place && is_real_directory(directory, files->path) ? ENOTEMPTY : 0;
        if (failed == EPERM && !in_place && stat(source, &status) == 0 && S_ISDIR(status.st_mode)) { /* hard links are for files */
            in_place = true;
            continue;
        }
        if (failed != ENOENT || attempt > 0) break;
        task->nested = true;
        failed = make_directories(directory, files->path, task->prefix_length, false);
        if (failed) return failed;
    }
    if (failed == EXDEV || failed == EMLINK || failed == EPERM)
        /* Another file system, too many links, or a file system or security setting without hard links: a copy protects as well. */
        failed = copy_file(AT_FDCWD, source, directory, files->path, AS_INPUT);
    return failed;
}

static int prepare_input(amfs_files *files, amfs_task *task, amfs_input *input, amfs_text *detail) {
    const char *source = input->source + (input->source[0] == '@');
    struct stat status;
    int failed = 0;

    if (!input->watched) {
        if (stat(source, &status) < 0) failed = errno;
        input->stamp = stamp_of(&status);
        input->watched = !failed && S_ISREG(status.st_mode);
        if (!failed && S_ISDIR(status.st_mode) && (task->flags & AMFS_STAGED)) input->tree = amfs_tree_marks_of(source);
    }
    if (!failed && input->name[0] != '/') {
        failed = amfs_files_at(files, task, "", input->name);
        failed = failed < 0 ? -failed : place_input(files, task, input);
    }
    if (failed == EISDIR) amfs_text_add(detail, "cannot stage input '%s': '%s' is a directory", input->name, source);
    else if (failed) amfs_text_add(detail, "cannot stage input '%s' from '%s': %s", input->name, source, strerror(failed));
    return failed;
}

/* Make the directories that the task expects for a file that it will write. */
static int prepare_parents(amfs_files *files, amfs_task *task, const char *name, amfs_text *detail) {
    if (strchr(name, '/') == NULL || name[0] == '/') return 0;
    int failed = amfs_files_at(files, task, "", name);
    task->nested = true;
    failed = failed < 0 ? -failed : make_directories(files->directory_fd, files->path, task->prefix_length, false);
    if (failed) amfs_text_add(detail, "cannot make the directory for '%s': %s", name, strerror(failed));
    return failed;
}

int amfs_files_prepare(amfs_files *files, amfs_task *task, amfs_text *detail) {
    int failed = make_top(files, task);

    if (failed) {
        amfs_text_add(detail, "cannot make a sandbox in '%s': %s", files->directory, strerror(failed));
        return failed;
    }
    for (uint32_t i = 0; i < task->input_count && !failed; i++) failed = prepare_input(files, task, &task->inputs[i], detail);
    for (uint32_t i = 0; i < task->output_count && !failed; i++) failed = prepare_parents(files, task, task->outputs[i].name, detail);
    if (!failed) failed = prepare_parents(files, task, task->out, detail);
    if (!failed) failed = prepare_parents(files, task, task->err, detail);
    if (!failed && task->cwd[0] != '\0' && task->cwd[0] != '/') {
        task->nested = true;
        failed = amfs_files_at(files, task, "", task->cwd);
        failed = failed < 0 ? -failed : make_directories(files->directory_fd, files->path, task->prefix_length, true);
        if (failed) amfs_text_add(detail, "cannot make the working directory '%s': %s", task->cwd, strerror(failed));
    }
    return failed;
}

/* ------------------------------------------------------------------------------------------------------------- afterwards */

static bool same_stamp(const struct stat *status, const amfs_stamp *stamp) {
    amfs_stamp now = stamp_of(status);
    return now.size == stamp->size && now.mtime_ns == stamp->mtime_ns;
}

/* Is another file at the input's place by now (`source`), while that which the task was given is still in its sandbox, unchanged? */
static bool own_link_is_as_it_was(amfs_files *files, const amfs_task *task, const amfs_input *input, const struct stat *source) {
    struct stat own;

    if (input->name[0] == '/') return false;
    int at = amfs_files_at(files, task, "", input->name);
    return at != -ENAMETOOLONG && fstatat(at, files->path, &own, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(own.st_mode) &&
           (own.st_ino != source->st_ino || own.st_dev != source->st_dev) && same_stamp(&own, &input->stamp);
}

static void note_changed(const amfs_task *task, uint32_t place) {
    amfs_completion *completion = task->completion;

    completion->changed[completion->changed_count++] = place;
}

/* Losses and changes on the disk are not the task's doing, unless it changed others, too. */
static int name_changed(const amfs_task *task, amfs_text *detail) {
    const amfs_completion *completion = task->completion;
    int outcome = AMFS_INPUT_LOST;

    for (uint32_t i = 0; i < completion->changed_count; i++)
        if (!task->inputs[completion->changed[i]].spilled) outcome = AMFS_INPUT_CHANGED;
    const char *what = outcome == AMFS_INPUT_LOST ? "lost or changed in the spill directory: " : "changed its input: ";
    for (uint32_t i = 0; i < completion->changed_count; i++)
        amfs_text_add(detail, "%s%s", i == 0 ? what : ", ", task->inputs[completion->changed[i]].name);
    return outcome;
}

int amfs_files_inputs_changed(amfs_files *files, const amfs_task *task, amfs_text *detail) {
    for (uint32_t i = 0; i < task->input_count; i++) {
        const amfs_input *input = &task->inputs[i];
        struct stat status;
        if (input->tree != NULL && amfs_tree_has_changed(input->source + (input->source[0] == '@'), input->tree)) {
            note_changed(task, i);
            continue;
        }
        if (!input->watched) continue;
        if (stat(input->source + (input->source[0] == '@'), &status) < 0) {
            if (input->spilled) {
                note_changed(task, i);
                continue;
            }
            /* Dropped by its owner, perhaps because another task wrote on it: this task's copy is its own link. */
            int at = input->name[0] == '/' ? -ENAMETOOLONG : amfs_files_at(files, task, "", input->name);
            if (at == -ENAMETOOLONG || fstatat(at, files->path, &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
        }
        if (!S_ISREG(status.st_mode)) continue;
        if (same_stamp(&status, &input->stamp) || own_link_is_as_it_was(files, task, input, &status)) continue;
        note_changed(task, i);
    }
    return task->completion->changed_count > 0 ? name_changed(task, detail) : AMFS_OK;
}

/* Does the output lie in a directory that is an input read in place, so that the task has written it there itself? */
static bool lies_in_place(const amfs_task *task, const char *name) {
    if (strchr(name, '/') == NULL) return false;
    for (uint32_t i = 0; i < task->input_count; i++) {
        const amfs_input *input = &task->inputs[i];
        size_t length = strlen(input->name);
        if (input->source[0] == '@' && strncmp(name, input->name, length) == 0 && name[length] == '/') return true;
    }
    return false;
}

/* Make a directory, which goes to a URL, one that the store can keep; says what is wrong with it in words. */
static void settle_output(amfs_files *files, amfs_output *output, amfs_stamp *stamp, amfs_text *wrong) {
    struct amfs_tree_facts facts;
    char words[PATH_MAX + 100] = "is a link to a directory";

    if (!output->followed) {
        snprintf(files->other, sizeof files->other, "%s/%s", files->directory, files->path);
        if (amfs_tree_settle(files->other, &facts, words, sizeof words) == 0) {
            output->tree = true;
            *stamp = (amfs_stamp){facts.size, AMFS_TREE_TIME(facts.names), facts.holes};
            return;
        }
    }
    amfs_text_add(wrong, "%soutput %s %s", wrong->length ? "; " : "", output->name, words);
}

bool amfs_files_check_outputs(amfs_files *files, amfs_task *task, const char *base, amfs_text *detail) {
    bool staged = (task->flags & AMFS_STAGED) != 0, missing = false;
    amfs_text wrong = {0};

    for (uint32_t i = 0; i < task->output_count; i++) {
        amfs_output *output = &task->outputs[i];
        struct stat status = {0};
        int at = amfs_files_at(files, task, base, output->name);
        bool there = at != -ENAMETOOLONG && fstatat(at, files->path, &status, AT_SYMLINK_NOFOLLOW) == 0;
        output->followed = output->name[0] == '/' || (there && S_ISLNK(status.st_mode)) || lies_in_place(task, output->name);
        if (there && output->followed) there = fstatat(at, files->path, &status, 0) == 0;
        if (!there) {
            amfs_text_add(detail, missing ? ", %s" : "did not make: %s", output->name);
            missing = true;
        } else if (staged && output->may_be_tree && S_ISDIR(status.st_mode)) {
            settle_output(files, output, &task->completion->outputs[i], &wrong);
        } else if (staged && (task->flags & AMFS_DIRECTORIES) && S_ISDIR(status.st_mode) && output->destination[0] != '\0' &&
                   output->name[0] != '/' && strncmp(output->name, "amfs:/", 6) != 0) {
            output->directory = true;
            task->completion->outputs[i] = (amfs_stamp){0, AMFS_IS_DIRECTORY, 0};
        } else if (staged && output->destination[0] != '\0' && !S_ISREG(status.st_mode)) {
            amfs_text_add(&wrong, "%soutput %s is %s, not a regular file", wrong.length ? "; " : "", output->name,
                          S_ISDIR(status.st_mode) ? "a directory" : "a special file");
        } else {
            output->mode = status.st_mode & 07777;
            task->completion->outputs[i] = stamp_of(&status);
        }
    }
    bool fine = !missing && wrong.length == 0;
    if (wrong.length) amfs_text_add(detail, "%s%s", missing ? "; " : "", wrong.data);
    amfs_text_clear(&wrong);
    if (!fine && task->output_count > 0) memset(task->completion->outputs, 0, task->output_count * sizeof(amfs_stamp));
    return fine;
}

/* Is files->path, a symbolic link or an absolute name, in the end a file inside this sandbox, which nobody will miss? */
static bool ends_inside(amfs_files *files, const amfs_task *task, const amfs_output *output) {
    char *target = NULL, *top = NULL;
    bool inside = false;

    if (output->name[0] == '/') return false;
    snprintf(files->other, sizeof files->other, "%s/%s", files->directory, files->path);
    target = realpath(files->other, NULL);
    snprintf(files->other, sizeof files->other, "%s/%.*s/", files->directory, (int)task->top_length, task->prefix);
    top = realpath(files->other, NULL);
    if (target != NULL && top != NULL) {
        size_t length = strlen(top);
        inside = strncmp(target, top, length) == 0 && target[length] == '/';
    }
    free(target);
    free(top);
    return inside;
}

/* Publish what cannot simply be renamed: a symbolic link's target, a file elsewhere, or across file systems. files->path is the file. */
static int publish_otherwise(amfs_files *files, const amfs_task *task, const amfs_output *output, mode_t mode) {
    bool inside = output->followed && ends_inside(files, task, output);
    int directory = files->directory_fd, failed = EXDEV;

    int length = snprintf(files->other, sizeof files->other, "%s.amfs-%.*s", output->destination, (int)task->top_length, task->prefix);
    if (length >= PATH_MAX) return ENAMETOOLONG;
    unlink(files->other);
    if (inside) failed = linkat(directory, files->path, AT_FDCWD, files->other, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
    if (failed == ENOENT) /* the caller makes the directories and comes back */
        return failed;
    if (failed) failed = copy_file(directory, files->path, AT_FDCWD, files->other, mode);
    else if (chmod(files->other, mode) < 0) failed = errno;
    if (!failed) failed = amfs_rename_to_free(AT_FDCWD, files->other, output->destination);
    struct stat status;
    if (failed) unlink(files->other);
    else if (stat(output->destination, &status) == 0) /* not every file system keeps a time as exactly */
        task->completion->outputs[output - task->outputs] = stamp_of(&status);
    return failed;
}

/* The earlier output stays: tasks were started with it. */
static int keep_first(const amfs_task *task, amfs_output *output) {
    struct stat status;

    if (stat(output->destination, &status) < 0) return errno;
    amfs_stamp *stamp = &task->completion->outputs[output - task->outputs];
    if (S_ISDIR(status.st_mode)) { /* whole if it has the mark of one; else something else was put into the store below this name */
        struct amfs_tree_facts facts;
        char words[PATH_MAX + 100];
        if (!(status.st_mode & S_ISVTX) || amfs_tree_settle(output->destination, &facts, words, sizeof words) != 0) return EEXIST;
        *stamp = (amfs_stamp){facts.size, AMFS_TREE_TIME(facts.names), facts.holes};
    } else {
        *stamp = stamp_of(&status);
    }
    output->kept_first = true;
    return 0;
}

/* Is it a copy of an input (cp, gzip), from which only the store has taken the owner's right to write? */
static bool has_mode_of_an_input(const amfs_task *task, mode_t mode) {
    struct stat status;

    for (uint32_t i = 0; i < task->input_count; i++) {
        const char *source = task->inputs[i].source;
        if (stat(source + (source[0] == '@'), &status) == 0 && (status.st_mode & 01200) == 0 && (status.st_mode & 0555) == (mode & 0555))
            return true;
    }
    return false;
}

/* How a store keeps a mode. Its directories are closed to others, so their bits and those of the group stay as the task left them: a copy
 * out of the store needs them. The owner reads and does not write, for the file is an input of other tasks. The sticky bit, which means nothing on
 * a file, says that the owner was not to write anyhow. amfs/node/store.py is the other half. */
static mode_t stored_mode(const amfs_task *task, mode_t mode) {
    bool closed = (mode & 0200) == 0 && !has_mode_of_an_input(task, mode);
    return (mode & 0577) | 0400 | (closed ? 01000 : 0);
}

/* Give a directory, marked as a whole one, its name in the store. */
static int rename_tree(int directory, const char *path, const char *destination) {
    struct stat status;
    if (fstatat(directory, path, &status, 0) < 0 || fchmodat(directory, path, (status.st_mode & 0777) | S_ISVTX, 0) < 0) return errno;
    int failed = amfs_rename_to_free(directory, path, destination);
    if (failed == EPERM)
        failed = renameat(directory, path, AT_FDCWD, destination) < 0 ? errno : 0; /* on NFS; it replaces no file of a tree */
    return failed == ENOTEMPTY ? EEXIST : failed;
}

/* Across file systems. */
static int copy_tree_to(amfs_files *files, const amfs_task *task, const char *destination) {
    char copy[PATH_MAX];
    if (snprintf(copy, sizeof copy, "%s.amfs-%.*s", destination, (int)task->top_length, task->prefix) >= (int)sizeof copy)
        return ENAMETOOLONG;
    snprintf(files->other, sizeof files->other, "%s/%s", files->directory, files->path);
    amfs_remove_tree(AT_FDCWD, copy);
    int failed = amfs_copy_tree(files->other, copy);
    if (!failed) failed = rename_tree(AT_FDCWD, copy, destination);
    if (failed) amfs_remove_tree(AT_FDCWD, copy);
    return failed;
}

static int publish_one(amfs_files *files, const amfs_task *task, amfs_output *output) {
    mode_t mode = stored_mode(task, output->mode);
    int at = amfs_files_at(files, task, "", output->name), failed;

    if (at == -ENAMETOOLONG) return ENAMETOOLONG;
    if (!output->tree && !output->followed && output->mode != mode && fchmodat(at, files->path, mode, 0) < 0) return errno;
    for (int attempt = 0;; attempt++) {
        if (output->tree) failed = rename_tree(at, files->path, output->destination);
        else if (output->followed) failed = EXDEV;
        else failed = amfs_rename_to_free(at, files->path, output->destination);
        if (failed == EXDEV)
            failed = output->tree ? copy_tree_to(files, task, output->destination) : publish_otherwise(files, task, output, mode);
        if (failed == EEXIST) failed = keep_first(task, output);
        if (failed != ENOENT || attempt > 0) return failed;
        int length = snprintf(files->other, sizeof files->other, "%s", output->destination);
        failed = length < (int)sizeof files->other ? amfs_make_parents(files->other) : ENAMETOOLONG;
        if (failed) return failed;
    }
}

/* A directory does not go through the store: it is copied whole to where it belongs, and read there. */
static int publish_directory(amfs_files *files, amfs_task *task, const char *name, const char *base) {
    char to[PATH_MAX];
    int at = amfs_files_at(files, task, "", name);
    if (at == -ENAMETOOLONG || snprintf(files->other, sizeof files->other, "%s/%s", files->directory, files->path) >= PATH_MAX ||
        snprintf(to, sizeof to, "%s/%s", base, name) >= PATH_MAX)
        return ENAMETOOLONG;
    int failed = amfs_make_parents(to);
    return failed ? failed : amfs_copy_tree(files->other, to);
}

int amfs_files_publish(amfs_files *files, amfs_task *task, const char *base, amfs_text *detail) {
    for (uint32_t i = 0; i < task->output_count; i++) { /* before files that are also named by themselves are taken out of them */
        const amfs_output *output = &task->outputs[i];
        int failed = output->directory ? publish_directory(files, task, output->name, base) : 0;
        if (failed) {
            amfs_text_add(detail, "cannot copy the directory '%s' to '%s': %s", output->name, base, strerror(failed));
            memset(task->completion->outputs, 0, task->output_count * sizeof(amfs_stamp));
            return failed;
        }
    }
    for (uint32_t i = 0; i < task->output_count; i++) {
        amfs_output *output = &task->outputs[i];
        if (output->destination[0] == '\0' || output->directory) continue;
        output->kept_first = false;
        int failed = publish_one(files, task, output);
        if (!failed) continue;
        amfs_text_add(detail, "cannot publish '%s' as '%s': %s", output->name, output->destination, strerror(failed));
        while (i-- > 0)
            if (task->outputs[i].destination[0] != '\0' && !task->outputs[i].kept_first && !task->outputs[i].directory)
                amfs_remove_tree(AT_FDCWD, task->outputs[i].destination);
        memset(task->completion->outputs, 0, task->output_count * sizeof(amfs_stamp));
        return failed;
    }
    for (uint32_t i = 0; i < task->output_count; i++)
        if (task->outputs[i].destination[0] != '\0' && !task->outputs[i].directory && !task->outputs[i].tree)
            digests_later_file(task->outputs[i].destination);
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------------- remove */

static void unlink_name(amfs_files *files, const amfs_task *task, const char *name) {
    if (name[0] != '\0' && name[0] != '/') {
        int at = amfs_files_at(files, task, "", name);
        if (at != -ENAMETOOLONG) unlinkat(at, files->path, 0);
    }
}

/* The names we know, then the directories: no directory needs to be read. False when something else is in there. */
static bool remove_known(amfs_files *files, const amfs_task *task) {
    for (uint32_t i = 0; i < task->input_count; i++) unlink_name(files, task, task->inputs[i].name);
    if (task->completion->outcome != AMFS_OK)
        for (uint32_t i = 0; i < task->output_count; i++) unlink_name(files, task, task->outputs[i].name);
    else
        for (uint32_t i = 0; i < task->output_count; i++)
            if (task->outputs[i].destination[0] == '\0' || task->outputs[i].followed) unlink_name(files, task, task->outputs[i].name);
    unlink_name(files, task, task->out);
    unlink_name(files, task, task->err);
    memcpy(files->path, task->prefix, task->prefix_length + 1);
    for (size_t end = task->prefix_length; end > 0;) {
        files->path[--end] = '\0';
        if (unlinkat(files->directory_fd, files->path, AT_REMOVEDIR) < 0) return false;
        while (end > 0 && files->path[end - 1] != '/') end--;
    }
    return true;
}

void amfs_files_remove(amfs_files *files, const amfs_task *task) {
    if (!task->nested && remove_known(files, task)) return;
    memcpy(files->path, task->prefix, task->top_length);
    files->path[task->top_length] = '\0';
    amfs_remove_tree(files->directory_fd, files->path);
}
