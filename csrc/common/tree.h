/* Directories and names: removing and copying a tree, taking a name that is free. */
#ifndef AMFS_TREE_H
#define AMFS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Remove `name` (file or directory tree) below `directory`; symbolic links are removed, not followed. Directories that forbid it are made
 * writable first. Any depth, with three descriptors open at most. Returns 0 or the first errno; removes what it can. */
int amfs_remove_tree(int directory, const char *name);

/* Copy the directory `from` with everything in it to `to`, which may exist: files there under other names stay, those of the same names
 * are replaced. Symbolic links are copied as such. Without recursion. Returns 0 or the first errno, EINVAL for a device, pipe or socket. */
int amfs_copy_tree(const char *from, const char *to);

/* Rename `path` (below `directory`) to the absolute `destination` unless that name is taken: 0 or an errno, EEXIST when it is. */
int amfs_rename_to_free(int directory, const char *path, const char *destination);

/* The content of a directory that was made ready to be kept (amfs_tree_settle), in numbers. */
struct amfs_tree_facts {
    uint64_t files, size, holes; /* holes: so many bytes of the size take no room */
    uint64_t names; /* the sum of XXH64("NAME\\0SIZE") over all files, NAME below the directory; amfs/remote/trees.py is the other half */
};

/* Have a directory hold nothing but files, readable and not writable, and directories that are not empty. A link to a file becomes a copy of
 * it; empty directories are removed. Repeatable. Returns 0, or an errno with what is wrong in words ("has a link to a directory: x"). */
int amfs_tree_settle(const char *path, struct amfs_tree_facts *facts, char *wrong, size_t room);

/* The state of the files of a directory: a mark for each of at most AMFS_TREE_MARKS, at any depth. */
enum { AMFS_TREE_MARKS = 4096 };
struct amfs_tree_marks;

/* Of a directory (links in it are not followed); freed by the caller with free. NULL: it has more files, or cannot be read. */
struct amfs_tree_marks *amfs_tree_marks_of(const char *path);

/* Has a file of then another size or time now, or is it gone? New files do not count: programs put caches and indices beside what they read. */
bool amfs_tree_has_changed(const char *path, const struct amfs_tree_marks *then);

#endif
