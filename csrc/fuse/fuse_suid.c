/* Setuid and setgid bits go when a file is written, cut or given away. The kernel leaves that to us, and it is done as tmpfs does it. Where the
 * record is another node's, a request looks at it first and changes it then, both by way of the poll loop, and is answered at the end. */
#include "fuse_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct caller {
    uint32_t uid, gid, pid;
};

static struct caller caller_of(const struct call *call) { return (struct caller){call->in->uid, call->in->gid, call->in->pid}; }

/* Is the caller in a group? Only asked of files that have a setgid bit. */
static bool is_member(const struct caller *caller, uint32_t group) {
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

/* What is left of a mode. */
static uint32_t without_suid(const struct caller *caller, const struct meta_attr *attr) {
    uint32_t mode = attr->mode & 07777 & ~(uint32_t)S_ISUID;
    if ((mode & S_ISGID) != 0 && ((mode & S_IXGRP) != 0 || (caller->uid != 0 && !is_member(caller, attr->gid)))) mode &= ~(uint32_t)S_ISGID;
    return mode;
}

/* May somebody have it open to write? Where opening is not told, anybody. */
static bool may_be_written(const struct amfs_fuse *mount, uint64_t ino) {
    struct node *node = mount->node;
    if (atomic_load_explicit(&mount->no_open, memory_order_relaxed)) return true;
    pthread_mutex_lock(&node->lock);
    const struct file *file = files_find(node, ino);
    bool written = file != NULL && file->writers > 0;
    pthread_mutex_unlock(&node->lock);
    return written;
}

/* The record as far as this node knows it. 0, an errno, or META_NOT_MINE. */
static int record_of(struct node *node, uint64_t ino, struct meta_attr *attr) {
    bool replica;
    int error = meta_getattr(node->meta, ino, node->id, attr);
    return error == META_NOT_MINE && meta_cached(node->meta, ino, attr, &replica) == 0 ? 0 : error;
}

/* ── a file whose mode was seen to have nothing to lose ── so that not every write looks at a record far away. It is so until anything is told
 * to have changed: whoever hears that may hold locks, so there is one count for all files. */

void suid_changed(struct node *node) { atomic_fetch_add(&node->changes, 1); }

static bool is_plain(struct node *node, uint64_t ino) {
    pthread_mutex_lock(&node->lock);
    const struct file *file = files_find(node, ino);
    bool plain = file != NULL && file->plain != 0 && file->plain == atomic_load(&node->changes) + 1;
    pthread_mutex_unlock(&node->lock);
    return plain;
}

/* `since`: the count when the record was asked for. */
static void is_plain_now(struct node *node, uint64_t ino, uint64_t since) {
    pthread_mutex_lock(&node->lock);
    struct file *file = files_find(node, ino);
    if (file != NULL) file->plain = since + 1;
    pthread_mutex_unlock(&node->lock);
}

/* ── changing attributes ── */

/* What a request with this mask takes away of `old`. A request to set nothing at all means just that: somebody writes (the kernel asks before it
 * does), or said chown without an owner. 0 or EPERM. */
static int kill(const struct amfs_fuse *mount, const struct caller *caller, const struct meta_attr *old, unsigned *mask,
                struct meta_attr *want) {
    if (S_ISDIR(old->mode)) return 0;
    uint32_t mode = without_suid(caller, old);
    if (mode == (old->mode & 07777)) return 0;
    if (*mask == 0 && caller->uid != 0 && caller->uid != old->uid && !may_be_written(mount, old->ino)) return EPERM;
    want->mode = mode;
    *mask |= META_SET_MODE;
    return 0;
}

int suid_kill(const struct call *call, const struct wire_setattr_in *in, unsigned *mask, struct meta_attr *want) {
    struct node *node = call->mount->node;
    struct caller caller = caller_of(call);
    struct meta_attr old;
    bool chown = (*mask & (META_SET_UID | META_SET_GID)) != 0;
    if ((*mask & META_SET_MODE) != 0) {
        if ((want->mode & (S_ISUID | S_ISGID)) != 0) suid_changed(node);
        return 0;
    }
    if (!chown && *mask != 0 && (in->valid & FATTR_KILL_SUIDGID) == 0) return 0;
    int error = record_of(node, call->in->ino, &old);
    if (error == META_NOT_MINE) return is_plain(node, call->in->ino) ? 0 : error;
    return error != 0 ? 0 : kill(call->mount, &caller, &old, mask, want);
}

/* ── writing ── */

int suid_clear_and_give(const struct call *call, const void *data, size_t size) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    struct caller caller = caller_of(call);
    struct meta_attr attr, out;
    uint64_t ino = call->in->ino, since = atomic_load(&node->changes);
    int error = record_of(node, ino, &attr);
    if (error == META_NOT_MINE && is_plain(node, ino)) error = ENOENT;
    if (error == 0) {
        uint32_t mode = without_suid(&caller, &attr);
        bool same = mode == (attr.mode & 07777);
        attr.mode = mode;
        error = same ? 0 : meta_setattr_here(node->meta, ino, META_SET_MODE, &attr, now_of(node), &out);
        if (!same && error == 0) notify_others(mount, ino, false);
    }
    if (error != META_NOT_MINE && error != META_BUSY) return give(call, data, size);
    struct amfs_fuse_request *request = slow_new(call, error == META_BUSY ? FUSE_OP_SETATTR : FUSE_OP_GETATTR, NULL, 0, data, size);
    if (request != NULL) {
        request->kept = true;
        request->looks = error == META_NOT_MINE;
        request->since = since;
        request->attr = attr;
        request->flags = META_SET_MODE;
    }
    slow_add(mount, request);
    return 0;
}

int suid_decide(struct amfs_fuse *mount, struct amfs_fuse_request *request, const struct meta_attr *old) {
    struct caller caller = {request->uid, request->gid, request->pid};
    unsigned mask = request->kept ? 0 : request->flags;
    request->looks = false;
    if (!request->kept) {
        int error = kill(mount, &caller, old, &mask, &request->attr);
        if (error != 0) return error;
    } else {
        request->attr.mode = without_suid(&caller, old);
        if (request->attr.mode != (old->mode & 07777)) mask = META_SET_MODE;
    }
    if ((mask & META_SET_MODE) == 0) is_plain_now(mount->node, request->ino, request->since);
    request->flags = mask;
    request->op = FUSE_OP_SETATTR;
    return mask == 0 ? 0 : META_BUSY;
}
