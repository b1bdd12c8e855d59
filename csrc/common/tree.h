/* Directories and names: removing and copying a tree, taking a name that is free. */
#ifndef AMFS_TREE_H
#define AMFS_TREE_H

/* Remove `name` (file or directory tree) below `directory`; symbolic links are removed, not followed. Directories that forbid it are made
 * writable first. Any depth, with three descriptors open at most. Returns 0 or the first errno; removes what it can. */
int amfs_remove_tree(int directory, const char *name);

/* Copy the directory `from` with everything in it to `to`, which may exist: what is there under other names stays, files of the same names
 * are replaced. Symbolic links are copied as such. Without recursion. Returns 0 or the first errno, EINVAL for a device, pipe or socket. */
int amfs_copy_tree(const char *from, const char *to);

/* Rename `path` (below `directory`) to the absolute `destination` unless that name is taken: 0 or an errno, EEXIST when it is. */
int amfs_rename_to_free(int directory, const char *path, const char *destination);

#endif
