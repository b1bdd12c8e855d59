/* Mounting and unmounting, as root. Ordinary users do it through fusermount3. */
#ifndef AMFS_FUSE_MOUNT_H
#define AMFS_FUSE_MOUNT_H

#include <stdbool.h>

/* Mount a file system of type fuse.amfs at `path` (absolute); *fd is what must be served, at once: whoever touches the mount waits. 0 or errno. */
int amfs_fuse_mount(const char *path, const char *source, bool allow_other, int *fd);
/* `lazy`: out of sight at once, gone when nobody uses it. `namespace_fd`: a mount namespace other than ours in which `path` is meant, or -1. */
int amfs_fuse_unmount(const char *path, bool lazy, int namespace_fd);

#endif
