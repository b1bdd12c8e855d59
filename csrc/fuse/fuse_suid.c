/* Setuid and setgid bits go when a file is written, cut or given away. The kernel leaves that to us. Mounts are nosuid, so the bits are for show here.
 * Where the record is this node's it is done as tmpfs does it. The shard of another node does it when the file is opened to be written and when it is
 * given away (meta_open, meta_setattr): it is not asked for each write. */
#include "fuse_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is the caller in a group? Only asked of files that have a setgid bit. */
static bool is_member(const struct wire_in *caller, uint32_t group) {
    char path[32], line[512];
    bool found = caller->gid == group;
    snprintf(path, sizeof path, "/proc/%u/status", caller->pid);
    FILE *status = found ? NULL : fopen(path, "re");
    while (status != NULL && !found && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "Groups:", 7) != 0) continue;
        for (char *at = line + 7, *end = NULL; !found; at = end) {
            unsigned long one = strtoul(at, &end, 10);
            if (end == at) break;
            found = one == group;
        }
        break;
    }
    if (status != NULL) fclose(status);
    return found;
}

/* Has it such bits, and are they to go? *mode: the mode without them. */
static bool is_to_lose(const struct wire_in *caller, const struct meta_attr *attr, uint32_t *mode) {
    *mode = attr->mode & 07777 & ~(uint32_t)S_ISUID;
    if ((*mode & S_ISGID) != 0 && ((*mode & S_IXGRP) != 0 || (caller->uid != 0 && !is_member(caller, attr->gid))))
        *mode &= ~(uint32_t)S_ISGID;
    return *mode != (attr->mode & 07777) && !S_ISDIR(attr->mode);
}

/* May somebody have it open to write? Where opening is not told, anybody. */
static bool may_be_written(const struct amfs_fuse *mount, uint64_t ino) {
    struct node *node = mount->node;
    if (atomic_load_explicit(&mount->no_open, memory_order_relaxed)) return true;
    pthread_mutex_lock(node->lock);
    const struct file *file = fuse_files_find(node, ino);
    bool written = file != NULL && fuse_writers(file) > 0;
    pthread_mutex_unlock(node->lock);
    return written;
}

/* A request to set nothing at all means just that: a process writes (the kernel asks before it does), or said chown without an owner. */
int fuse_suid_set(const struct call *call, const struct wire_setattr_in *in, unsigned *mask, struct meta_attr *want) {
    struct node *node = call->mount->node;
    struct meta_attr old;
    uint32_t uid = call->in->uid, mode;
    bool chown = (*mask & (META_SET_UID | META_SET_GID)) != 0, nothing = *mask == 0;
    if ((*mask & META_SET_MODE) != 0 || (!chown && !nothing && (in->valid & FATTR_KILL_SUIDGID) == 0)) return 0;
    if (meta_getattr(node->meta, call->in->ino, node->id, &old) != 0 || !is_to_lose(call->in, &old, &mode)) return 0;
    if (nothing && uid != 0 && uid != old.uid && !may_be_written(call->mount, old.ino)) return EPERM;
    want->mode = mode;
    *mask |= META_SET_MODE;
    return 0;
}

void fuse_suid_written(const struct call *call) {
    struct node *node = call->mount->node;
    struct meta_attr attr;
    uint32_t mode;
    if (meta_getattr(node->meta, call->in->ino, node->id, &attr) != 0 || !is_to_lose(call->in, &attr, &mode)) return;
    meta_set_mode(node->meta, attr.ino, mode, fuse_now_of(node)); /* other nodes hear of it when the file is closed */
    fuse_notify_others(call->mount, attr.ino, false);
}
