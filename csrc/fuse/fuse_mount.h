/* Mounting and unmounting, as root or as somebody who may mount in his own namespace. Others do it through fusermount3. */
#ifndef AMFS_FUSE_MOUNT_H
#define AMFS_FUSE_MOUNT_H

#include <stdbool.h>

/* Mount a file system of type fuse.amfs at `path` (absolute); *fd is the device to be served, at once: programs that touch the mount wait. 0 or errno. */
int amfs_fuse_mount(const char *path, const char *source, bool allow_other, int *fd);
/* `flags`: MNT_DETACH (2): out of sight at once, gone when nobody uses it; MNT_FORCE (1): the connection ends first, programs that wait get an error.
 * `namespace_fd`: a mount namespace other than ours in which `path` is meant, or -1. */
int amfs_fuse_unmount(const char *path, int flags, int namespace_fd);

#endif
