/* The files of one task: its sandbox, its inputs, the check and the publication of its outputs. Knows no process.
 *
 * A staged task's sandbox is <sandbox_dir>/<serial hex>, its working directory `depth` directories below that (d0/d1/...), so that names
 * beginning with "../" stay inside. Inputs are hard links (or symbolic links, when read in place). Nothing here is thread-safe: one
 * amfs_files belongs to one launcher thread.
 */
#ifndef AMFS_SANDBOX_H
#define AMFS_SANDBOX_H

#include <limits.h>

#include "common/bytes.h"
#include "record.h"

typedef struct {
    int directory_fd;      /* the sandbox directory, O_PATH */
    const char *directory; /* and its absolute path */
    char path[PATH_MAX];
    char other[3 * PATH_MAX];
} amfs_files;

/* The directory that `task`'s names are relative to: returns the descriptor for the *at calls and writes the path of `name` below it
 * into files->path. `base` is the context's base with a slash at its end (unstaged). Returns -ENAMETOOLONG when it does not fit. */
int amfs_files_at(amfs_files *files, const amfs_task *task, const char *base, const char *name);

/* Write the absolute path of the directory in which the process starts into files->path: 0 or -ENAMETOOLONG. */
int amfs_files_cwd(amfs_files *files, const amfs_task *task, const char *base);

/* Make the sandbox and its links. Returns 0, or an errno after writing what failed to `detail` (the sandbox is then half made: remove it). */
int amfs_files_prepare(amfs_files *files, amfs_task *task, amfs_text *detail);

/* Were inputs changed since they were stamped? AMFS_OK if not. Else AMFS_INPUT_LOST if all of them lie in the spill directory, or
 * AMFS_INPUT_CHANGED; notes them in the completion, and writes their names to `detail`. */
int amfs_files_inputs_changed(amfs_files *files, const amfs_task *task, amfs_text *detail);

/* Are all outputs there and publishable? Writes what is wrong to `detail` if not. Fills in the stamps of the completion. */
bool amfs_files_check_outputs(amfs_files *files, amfs_task *task, const char *base, amfs_text *detail);

/* Move the checked outputs of a staged task to their destinations, all or none. A destination that has a file keeps it, and the completion
 * gets that one's stamp: tasks may have been started with it. Returns 0, or an errno with `detail` written. */
int amfs_files_publish(amfs_files *files, amfs_task *task, const char *base, amfs_text *detail);

/* Remove the sandbox. Silent: files that cannot be removed stay for the session's own clean-up. */
void amfs_files_remove(amfs_files *files, const amfs_task *task);

/* Make the missing parent directories of an absolute path (which is restored): 0 or an errno. */
int amfs_make_parents(char *path);

#endif
