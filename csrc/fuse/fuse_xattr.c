/* Extended attributes. Those in "user.amfs." tell and set where data lies, and are the poll loop's. */
#include "fuse_internal.h"

#include <errno.h>
#include <string.h>

enum { ROOM = 64 << 10, NAMES_MAX = 64 << 10 };

static bool ours(const char *name) { return strncmp(name, "user.amfs.", 10) == 0; }

/* As tmpfs without access control lists; and as NFS without capabilities of files. Those would have no effect, since mounts are nosuid. The kernel
 * asks for them before the first write to each file, so the answer must be known here. */
static int name_fault(const char *name, size_t length, int no_capability) {
    static const char *const spaces[] = {"user.", "trusted.", "security."};
    if (length > META_NAME_MAX) return ERANGE;
    if (strcmp(name, "security.capability") == 0) return no_capability;
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        size_t prefix = strlen(spaces[i]);
        if (strncmp(name, spaces[i], prefix) == 0) return length > prefix ? 0 : EINVAL;
    }
    return EOPNOTSUPP;
}

size_t fuse_hide_trusted(char *names, size_t size) {
    size_t kept = 0;
    for (size_t at = 0, length; at < size; at += length) {
        length = strnlen(names + at, size - at) + 1;
        if (at + length > size) length = size - at;
        if (strncmp(names + at, "trusted.", 8) == 0) continue;
        memmove(names + kept, names + at, length);
        kept += length;
    }
    return kept;
}

static void give_value(const struct call *call, uint32_t room, const void *value, size_t size) {
    struct wire_getxattr_out out = {.size = (uint32_t)size};
    if (room == 0) give(call, &out, sizeof out);
    else if (size > room) refuse(call, ERANGE);
    else give(call, value, size);
}

static void set(struct call *call) {
    const struct wire_setxattr_in *in = (const void *)call->body;
    struct node *node = call->mount->node;
    struct meta_attr attr;
    uint64_t parent;
    size_t length;
    const char *name = fuse_name_in(call, sizeof *in, &length);
    if (name == NULL || call->size - sizeof *in - length - 1 < in->size) {
        refuse(call, EINVAL);
        return;
    }
    const char *value = name + length + 1;
    int error = name_fault(name, length, EOPNOTSUPP);
    bool everywhere = !is_alone(node) && meta_dir_get(node->meta, call->in->ino, &attr, &parent) == 0;
    if (error == 0 && !ours(name) && !everywhere)
        error = meta_set_xattr(node->meta, call->in->ino, name, value, in->size, (int)in->flags, fuse_now_of(node));
    else if (error == 0) error = META_BUSY;
    if (error == META_NOT_MINE || error == META_BUSY) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_SET_XATTR, name, length, value, in->size);
        if (request != NULL) request->flags = in->flags;
        fuse_slow_add(call->mount, request);
    } else {
        refuse(call, error);
        if (error == 0) fuse_notify_others(call->mount, call->in->ino, false);
    }
}

static void get(struct call *call) {
    const struct wire_getxattr_in *in = (const void *)call->body;
    size_t length, size = 0;
    const char *name = fuse_name_in(call, sizeof *in, &length);
    if (name == NULL) {
        refuse(call, EINVAL);
        return;
    }
    int error = name_fault(name, length, ENODATA);
    if (error == 0) error = ours(name) ? META_BUSY : meta_get_xattr(call->mount->node->meta, call->in->ino, name, call->out, ROOM, &size);
    if (error == META_NOT_MINE || error == META_BUSY) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_GET_XATTR, name, length, NULL, 0);
        if (request != NULL) request->room = in->size;
        fuse_slow_add(call->mount, request);
    } else if (error != 0) {
        refuse(call, error);
    } else {
        give_value(call, in->size, call->out, size);
    }
}

static void list(struct call *call) {
    const struct wire_getxattr_in *in = (const void *)call->body;
    size_t size = 0;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    int error = meta_list_xattr(call->mount->node->meta, call->in->ino, call->out, NAMES_MAX, &size);
    if (error == META_NOT_MINE || error == META_BUSY) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_LIST_XATTR, NULL, 0, NULL, 0);
        if (request != NULL) request->room = in->size;
        fuse_slow_add(call->mount, request);
    } else if (error != 0) {
        refuse(call, gone_by_now(error));
    } else {
        if (call->in->uid != 0) size = fuse_hide_trusted(call->out, size);
        give_value(call, in->size, call->out, size);
    }
}

static void take_away(struct call *call) {
    struct node *node = call->mount->node;
    struct meta_attr attr;
    uint64_t parent;
    size_t length;
    const char *name = fuse_name_in(call, 0, &length);
    if (name == NULL) {
        refuse(call, EINVAL);
        return;
    }
    int error = name_fault(name, length, ENODATA);
    bool everywhere = !is_alone(node) && meta_dir_get(node->meta, call->in->ino, &attr, &parent) == 0;
    if (error == 0) error = ours(name) || everywhere ? META_BUSY : meta_remove_xattr(node->meta, call->in->ino, name, fuse_now_of(node));
    if (error == META_NOT_MINE || error == META_BUSY) {
        fuse_slow_add(call->mount, fuse_slow_new(call, FUSE_OP_REMOVE_XATTR, name, length, NULL, 0));
    } else {
        refuse(call, error);
        if (error == 0) fuse_notify_others(call->mount, call->in->ino, false);
    }
}

void fuse_do_xattr(struct call *call) {
    switch (call->in->opcode) {
    case WIRE_SETXATTR: set(call); break;
    case WIRE_GETXATTR: get(call); break;
    case WIRE_LISTXATTR: list(call); break;
    default: take_away(call);
    }
}
