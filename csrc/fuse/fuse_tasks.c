/* Blind tasks: the mount that a node has for them writes down what each attempt looks for in vain and what it makes (launcher/attempts.h), and hides what an
 * attempt has made until it has ended well.
 *
 * What it makes bears its number (meta_attr.pending). For processes of other attempts, on any node, it is not there. The kernel does not keep such a name,
 * nor one that is not there, so that each process asks for itself. Of directories all is seen at once: several attempts may make files in one. */
#include "fuse_internal.h"
#include "launcher/attempts.h"

#include <errno.h>
#include <stdio.h>

uint64_t fuse_tasks_pending(const struct node *node, uint64_t attempt) {
    return attempt == 0 ? 0 : ((uint64_t)node->id + 1) << AMFS_ATTEMPT_NODE_SHIFT | attempt;
}

static bool changes_names(uint32_t opcode) {
    switch (opcode) {
    case WIRE_CREATE:
    case WIRE_MKNOD:
    case WIRE_MKDIR:
    case WIRE_SYMLINK:
    case WIRE_LINK:
    case WIRE_RENAME:
    case WIRE_RENAME2:
    case WIRE_UNLINK:
    case WIRE_RMDIR: return true;
    default: return false;
    }
}

/* A process that its task has left behind is about to be ended: its requests belong to no attempt now. */
bool fuse_tasks_admit(struct call *call) {
    bool changes = changes_names(call->in->opcode);
    if (!changes && call->in->opcode != WIRE_LOOKUP) return true;
    call->attempt = amfs_attempt_of_process((int)call->in->pid, &call->stray);
    if (!changes || !call->stray) return true;
    refuse(call, EIO);
    return false;
}

int fuse_tasks_looked_up(struct amfs_fuse *mount, const struct fuse_looked *looked, int error, const struct meta_attr *attr) {
    bool task = looked->attempt != 0 || looked->stray;
    if (error == 0 && task && attr->pending != 0 && attr->pending != fuse_tasks_pending(mount->node, looked->attempt)) error = ENOENT;
    if (looked->attempt != 0 && error == ENOENT) amfs_attempt_missed(looked->attempt, looked->dir, looked->name, looked->length);
    if (looked->attempt != 0 && error == 0) amfs_attempt_found(looked->attempt, looked->dir, looked->name, looked->length);
    return error;
}

void fuse_tasks_done(struct amfs_fuse *mount, const struct amfs_fuse_request *r, const struct meta_attr *attr) {
    if (r->attempt == 0) return;
    switch (r->op) {
    case FUSE_OP_CREATE:
        if (attr->pending != fuse_tasks_pending(mount->node, r->attempt)) { /* it was there, and is shared with this attempt */
            amfs_attempt_found(r->attempt, r->ino, r->name, r->name_length);
            break;
        }
        /* fall through */
    case FUSE_OP_MKNOD:
    case FUSE_OP_SYMLINK: amfs_attempt_made(r->attempt, AMFS_MADE_FILE, r->ino, r->name, r->name_length, attr->ino); break;
    case FUSE_OP_MKDIR: amfs_attempt_made(r->attempt, AMFS_MADE_DIRECTORY, r->ino, r->name, r->name_length, attr->ino); break;
    case FUSE_OP_LINK: amfs_attempt_made(r->attempt, AMFS_MADE_LINK, r->other, r->name, r->name_length, attr->ino); break;
    case FUSE_OP_UNLINK:
    case FUSE_OP_UNNAMED:
    case FUSE_OP_RMDIR: amfs_attempt_removed(r->attempt, r->ino, r->name, r->name_length); break;
    case FUSE_OP_RENAME:
    case FUSE_OP_RENAMING:
        amfs_attempt_renamed(r->attempt, r->ino, r->name, r->name_length, r->other, r->value, r->value_length,
                             (r->flags & RENAME_EXCHANGE) != 0);
        break;
    default: break;
    }
}
