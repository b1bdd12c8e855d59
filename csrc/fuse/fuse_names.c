/* Names: requests that the metadata of this node can answer. The rest goes to the poll loop. */
#include "fuse_internal.h"
#include "launcher/attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

enum { NEGATIVE_S = 3600, JUST_MADE_NS = 20000000 };

const char *fuse_name_in(const struct call *call, size_t offset, size_t *length) {
    if (offset >= call->size) return NULL;
    const char *name = call->body + offset, *end = memchr(name, '\0', call->size - offset);
    if (end == NULL) return NULL;
    *length = (size_t)(end - name);
    return name;
}

static int give_entry(const struct call *call, const struct meta_attr *attr, bool cache) {
    struct wire_entry_out out;
    fuse_put_entry(call->mount, call->since, &out, attr, cache);
    return give(call, &out, sizeof out);
}

/* Look a name up here. As attr_of. */
static int lookup(struct node *node, uint64_t dir, const char *name, size_t length, struct meta_attr *attr, bool *cache, bool waiting) {
    uint64_t ino, parent;
    uint32_t type;
    bool replica;
    int error = meta_lookup(node->meta, dir, name, length, node->id, &ino, &type, attr);
    if (error == META_NOT_MINE) { /* directories are known everywhere */
        if (meta_dir_find(node->meta, dir, name, length, attr) != 0) return error;
    } else if (error != 0) {
        return error;
    } else if (attr->mode == 0) {
        if (S_ISDIR(type)) error = meta_dir_get(node->meta, ino, attr, &parent);
        else if (meta_cached(node->meta, ino, attr, &replica) != 0 || (S_ISREG(attr->mode) && !attr->finished)) error = META_NOT_MINE;
        if (error != 0) return META_NOT_MINE;
    }
    return fuse_complete_attr(node, attr, cache, waiting);
}

static void look_up(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct meta_attr attr;
    size_t length;
    bool cache;
    const char *name = fuse_name_in(call, 0, &length);
    int error = name == NULL             ? EINVAL
                : length > META_NAME_MAX ? ENAMETOOLONG
                                         : lookup(mount->node, call->in->ino, name, length, &attr, &cache, may_wait(call));
    if (error == 0 || error == ENOENT)
        error = fuse_tasks_looked_up(mount, &(struct fuse_looked){call->attempt, call->in->ino, call->stray, name, length}, error, &attr);
    if (error == 0) {
        give_entry(call, &attr, cache);
    } else if (error == WAIT) {
        fuse_work_copy(call);
    } else if (error == ENOENT && is_alone(mount->node) && mount->options.entry_ns > 0 && has_epochs(mount) && !mount->options.tasks) {
        struct wire_entry_out none = {.entry_s = NEGATIVE_S}; /* a node that makes it tells this mount */
        give(call, &none, sizeof none);
    } else if (goes_slow(error)) {
        fuse_ask_slowly(call, FUSE_OP_LOOKUP, name, length);
    } else {
        refuse(call, error);
    }
}

/* The kernel must be told of changes that another node makes to it meanwhile, although it does not know it yet. */
void fuse_do_lookup(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    atomic_fetch_add(&mount->looking, 1);
    look_up(call);
    atomic_fetch_sub(&mount->looking, 1);
}

void fuse_do_readlink(struct call *call) {
    size_t length;
    int error = meta_readlink(call->mount->node->meta, call->in->ino, call->out, MESSAGE_BYTES, &length);
    if (error == 0) give(call, call->out, length);
    else if (goes_slow(error)) fuse_ask_slowly(call, FUSE_OP_READLINK, NULL, 0);
    else refuse(call, gone_by_now(error));
}

/* ── making ── */

struct making {
    enum amfs_fuse_op op;
    const char *name, *target;
    size_t length, target_length;
    uint32_t mode, rdev, flags;
};

static bool read_making(const struct call *call, struct making *it) {
    size_t offset = 0;
    switch (call->in->opcode) {
    case WIRE_MKNOD: {
        const struct wire_mknod_in *in = (const void *)call->body;
        if (call->size < (offset = sizeof *in)) return false;
        *it = (struct making){.op = FUSE_OP_MKNOD, .mode = in->mode, .rdev = in->rdev};
        break;
    }
    case WIRE_MKDIR: {
        const struct wire_mkdir_in *in = (const void *)call->body;
        if (call->size < (offset = sizeof *in)) return false;
        *it = (struct making){.op = FUSE_OP_MKDIR, .mode = S_IFDIR | (in->mode & 07777)};
        break;
    }
    case WIRE_CREATE: {
        const struct wire_create_in *in = (const void *)call->body;
        if (call->size < (offset = sizeof *in)) return false;
        *it = (struct making){.op = FUSE_OP_CREATE, .mode = S_IFREG | (in->mode & 07777), .flags = in->flags};
        break;
    }
    default: *it = (struct making){.op = FUSE_OP_SYMLINK, .mode = S_IFLNK | 0777};
    }
    it->name = fuse_name_in(call, offset, &it->length);
    if (it->name == NULL) return false;
    if (it->op == FUSE_OP_SYMLINK) it->target = fuse_name_in(call, offset + it->length + 1, &it->target_length);
    return it->op != FUSE_OP_SYMLINK || it->target != NULL;
}

static void make_slowly(struct call *call, const struct making *it) {
    struct amfs_fuse_request *request = fuse_slow_new(call, it->op, it->name, it->length, it->target, it->target_length);
    if (request != NULL) {
        request->mode = it->mode;
        request->rdev = it->rdev;
        request->flags = it->flags;
    }
    fuse_slow_add(call->mount, request);
}

struct created {
    struct wire_entry_out entry;
    struct wire_open_out open;
};

/* The file was made, its record says that this node writes it. With the lock held since before that: nobody is to find it unused in between. */
static int open_created(struct amfs_fuse *mount, const struct meta_attr *attr, const struct making *it, struct created *out) {
    struct opening opening = {.ino = attr->ino,
                              .node = -1,
                              .stripe = attr->copies > 1 ? FSIO_COPIED : 0,
                              .writing = true,
                              .create = true,
                              .atime = attr->atime,
                              .appends = (it->flags & O_APPEND) != 0};
    bool told = !atomic_load_explicit(&mount->no_open, memory_order_relaxed); /* else closing it is not told either */
    out->open = (struct wire_open_out){.flags = OPENED_KEEP_CACHE | OPENED_NOFLUSH};
    opening.implicit = !told;
    return fuse_files_open(mount, &opening, &out->open);
}

static void give_created(struct call *call, const struct making *it, struct meta_attr *attr, int error, struct created *out) {
    struct amfs_fuse *mount = call->mount;
    bool told = !atomic_load_explicit(&mount->no_open, memory_order_relaxed);
    if (error != 0) {
        struct meta_attr left;
        bool gone;
        meta_unused(mount->node->meta, attr->ino, mount->node->id, &gone);
        if (meta_unlink(mount->node->meta, call->in->ino, it->name, it->length, attr->ctime, &left, &gone, NULL) == 0 && gone)
            fsio_part_delete(mount->node->io, attr->ino);
        refuse(call, error);
        return;
    }
    if (fuse_put_entry(mount, call->since, &out->entry, attr, true)) {
        out->entry.attr_s = 0;
        out->entry.attr_ns = JUST_MADE_NS; /* the kernel looks at them once more before it has opened the file: no need to ask us */
    }
    if (told) fuse_created(attr->ino);
    if (give(call, out, sizeof *out) == ENOENT && told)
        fuse_files_close(mount, attr->ino, 0, true, false, false); /* the process that asked was killed */
    fuse_notify_others_entry(mount, call->in->ino, it->name, it->length);
}

void fuse_do_make(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    struct making it;
    if (!read_making(call, &it)) {
        refuse(call, EINVAL);
        return;
    }
    if (it.length > META_NAME_MAX) {
        refuse(call, ENAMETOOLONG);
        return;
    }
    int64_t now = fuse_now_of(node);
    struct meta_attr attr = {.mode = it.mode, .uid = call->in->uid, .gid = call->in->gid, .rdev = it.rdev, .writer = -1, .rank = -1};
    if ((attr.mode & S_IFMT) == 0) attr.mode |= S_IFREG;
    attr.pending = fuse_tasks_pending(node, call->attempt);
    bool regular = S_ISREG(attr.mode);
    if (regular) {
        meta_dir_layout(node->meta, call->in->ino, &attr.layout, &attr.stripe);
        if (attr.layout == 255) attr.layout = META_WHOLE;
        attr.finished = it.op != FUSE_OP_CREATE;
        if (it.op == FUSE_OP_CREATE) attr.writer = node->id;
    }
    if (it.op == FUSE_OP_MKDIR || (regular && attr.layout != META_WHOLE)) {
        make_slowly(call, &it);
        return;
    }
    atomic_fetch_add(&mount->looking, 1);
    bool opens = it.op == FUSE_OP_CREATE;
    struct created out;
    int opened = 0;
    if (opens) pthread_mutex_lock(node->lock);
    int error = opens && atomic_load(&node->defers)
                    ? META_BUSY
                    : meta_create(node->meta, call->in->ino, it.name, it.length, now, node->id, it.target, false, &attr);
    if (error == 0) fuse_backups_early(mount); /* it is on its way while the file is opened */
    if (opens && error == 0) opened = open_created(mount, &attr, &it, &out);
    if (opens) pthread_mutex_unlock(node->lock);
    if (error == 0) {
        fuse_touch(mount, call->in->ino);
        if (call->attempt != 0) amfs_attempt_made(call->attempt, AMFS_MADE_FILE, call->in->ino, it.name, it.length, attr.ino);
        if (opens) {
            give_created(call, &it, &attr, opened, &out);
        } else {
            give_entry(call, &attr, true);
            fuse_notify_others_entry(mount, call->in->ino, it.name, it.length);
        }
        atomic_fetch_sub(&mount->looking, 1);
        return;
    }
    atomic_fetch_sub(&mount->looking, 1);
    if (goes_slow(error) || (error == EEXIST && it.op == FUSE_OP_CREATE && ((it.flags & O_EXCL) == 0 || call->attempt != 0))) {
        make_slowly(call, &it);
    } else {
        refuse(call, error);
    }
}

/* ── unlinking, renaming, linking ── */

/* A name is about to go. Has its file data on other nodes, which they must be told to delete? Else *attr is its record (ino 0: not here), and
 * content that the kernel may go on to use is kept. */
static bool lies_elsewhere(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length, struct meta_attr *attr) {
    struct node *node = mount->node;
    uint64_t ino;
    uint32_t type;
    if (meta_lookup(node->meta, dir, name, length, node->id, &ino, &type, attr) != 0) *attr = (struct meta_attr){.ino = 0};
    if (!S_ISREG(attr->mode) || attr->nlink > 1) return false;
    if (attr->layout == META_STRIPED && !is_alone(node)) return true;
    fuse_inode_hold(mount, attr->ino);
    return false;
}

/* It has gone: no file, and for the kernel perhaps still there. */
static void remember(struct amfs_fuse *mount, const struct meta_attr *was, int64_t now) {
    struct meta_attr attr = *was;
    if (was->ino == 0 || S_ISREG(was->mode) || was->nlink > 1) return;
    attr.ctime = now;
    fuse_removed_add(mount, &attr);
}

void fuse_do_unlink(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    struct meta_attr left, was;
    size_t length;
    bool gone;
    const char *name = fuse_name_in(call, 0, &length);
    if (name == NULL || length > META_NAME_MAX) {
        refuse(call, name == NULL ? EINVAL : ENAMETOOLONG);
        return;
    }
    if (call->in->opcode == WIRE_RMDIR) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_RMDIR, name, length, NULL, 0);
        if (request != NULL) request->has_attr = meta_dir_find(node->meta, call->in->ino, name, length, &request->attr) == 0;
        fuse_slow_add(mount, request);
        return;
    }
    int64_t now = fuse_now_of(node);
    int error = lies_elsewhere(mount, call->in->ino, name, length, &was)
                    ? META_BUSY
                    : meta_unlink(node->meta, call->in->ino, name, length, now, &left, &gone, NULL);
    if (error == 0) {
        fuse_touch(mount, call->in->ino);
        remember(mount, &was, now);
        if (call->attempt != 0) amfs_attempt_removed(call->attempt, call->in->ino, name, length);
        refuse(call, 0);
        if (gone) fsio_part_delete(node->io, left.ino);
        fuse_notify_others_entry(mount, call->in->ino, name, length);
        fuse_notify_others(mount, left.ino, false);
    } else if (goes_slow(error)) {
        fuse_ask_slowly(call, FUSE_OP_UNLINK, name, length);
    } else {
        refuse(call, error);
    }
}

void fuse_do_rename(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    const struct wire_rename2_in *in = (const void *)call->body;
    bool second = call->in->opcode == WIRE_RENAME2;
    size_t start = second ? sizeof(struct wire_rename2_in) : sizeof(struct wire_rename_in), length, to_length;
    const char *name = fuse_name_in(call, start, &length),
               *to_name = name == NULL ? NULL : fuse_name_in(call, start + length + 1, &to_length);
    struct meta_attr moved, was, replaced = {0};
    bool gone = false;
    if (to_name == NULL) {
        refuse(call, EINVAL);
        return;
    }
    if (length > META_NAME_MAX || to_length > META_NAME_MAX) {
        refuse(call, ENAMETOOLONG);
        return;
    }
    uint64_t from = call->in->ino, to = fuse_plain_ino(in->to_dir);
    unsigned flags = second ? in->flags : 0;
    int64_t now = fuse_now_of(node);
    int error = flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) ? EINVAL
                : lies_elsewhere(mount, to, to_name, to_length, &was)
                    ? META_BUSY
                    : meta_rename(node->meta, from, name, length, to, to_name, to_length, flags, now, &moved, &replaced, &gone);
    if (error == 0) {
        fuse_touch(mount, from);
        if (to != from) fuse_touch(mount, to);
        if (replaced.ino != 0 && (flags & RENAME_EXCHANGE) == 0) remember(mount, &was, now);
        if (call->attempt != 0)
            amfs_attempt_renamed(call->attempt, from, name, length, to, to_name, to_length, (flags & RENAME_EXCHANGE) != 0);
        refuse(call, 0);
        if (gone) fsio_part_delete(node->io, replaced.ino);
        fuse_notify_others_entry(mount, from, name, length);
        fuse_notify_others_entry(mount, to, to_name, to_length);
        fuse_notify_others(mount, moved.ino, false);
        if (replaced.ino != 0) fuse_notify_others(mount, replaced.ino, false);
    } else if (goes_slow(error)) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_RENAME, name, length, to_name, to_length);
        if (request != NULL) {
            request->other = to;
            request->flags = flags;
            request->has_attr = (flags & RENAME_EXCHANGE) == 0 && meta_dir_find(node->meta, to, to_name, to_length, &request->attr) == 0;
        }
        fuse_slow_add(mount, request);
    } else {
        refuse(call, error);
    }
}

void fuse_do_link(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    const struct wire_link_in *in = (const void *)call->body;
    size_t length;
    const char *name = fuse_name_in(call, sizeof *in, &length);
    struct meta_attr attr;
    uint64_t file, old;
    uint32_t old_type;
    bool gone, cache;
    if (name == NULL || length > META_NAME_MAX) {
        refuse(call, name == NULL ? EINVAL : ENAMETOOLONG);
        return;
    }
    file = fuse_plain_ino(in->ino);
    if (fuse_handed_on(call, file)) return;
    int64_t now = fuse_now_of(node);
    int error = is_alone(node) ? meta_link(node->meta, file, 1, now, -1, &attr, &gone, NULL) : META_BUSY;
    if (error == 0) {
        error = meta_insert(node->meta, call->in->ino, name, length, 0, file, attr.mode & S_IFMT, false, &old, &old_type, NULL);
        if (error != 0) meta_link(node->meta, file, -1, now, -1, &attr, &gone, NULL);
    }
    if (error == 0) {
        fuse_complete_attr(node, &attr, &cache, true);
        fuse_touch(mount, call->in->ino);
        if (call->attempt != 0) amfs_attempt_made(call->attempt, AMFS_MADE_LINK, call->in->ino, name, length, file);
        give_entry(call, &attr, cache);
        fuse_notify_others_entry(mount, call->in->ino, name, length);
        fuse_notify_others(mount, file, false);
    } else if (goes_slow(error)) {
        struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_LINK, name, length, NULL, 0);
        if (request != NULL) {
            request->ino = file;
            request->other = call->in->ino;
        }
        fuse_slow_add(mount, request);
    } else {
        refuse(call, error == EISDIR ? EPERM : gone_by_now(error));
    }
}

/* ── what the file system as a whole has ── */

void fuse_do_statfs(struct call *call) {
    struct node *node = call->mount->node;
    struct wire_statfs_out out = {.bsize = BLOCK_BYTES, .frsize = BLOCK_BYTES, .namelen = META_NAME_MAX};
    struct statvfs found;
    struct meta_counts counts;
    uint64_t used, limit, parts;
    if (!is_alone(node) || fstatvfs(node->root, &found) != 0) {
        fuse_ask_slowly(call, FUSE_OP_STATFS, NULL, 0);
        return;
    }
    fsio_usage(node->io, &used, &limit, &parts);
    meta_counts(node->meta, &counts);
    out.blocks = (limit != 0 ? limit : (uint64_t)found.f_blocks * found.f_frsize) / BLOCK_BYTES;
    out.bfree = limit != 0 ? (limit > used ? (limit - used) / BLOCK_BYTES : 0) : (uint64_t)found.f_bfree * found.f_frsize / BLOCK_BYTES;
    out.bavail = out.bfree;
    out.ffree = found.f_ffree;
    out.files = counts.inodes + counts.dirs + out.ffree;
    give(call, &out, sizeof out);
}
