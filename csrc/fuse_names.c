/* Names and attributes: what the metadata of this node can answer. The rest goes to the poll loop. */
#include "fuse_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { BLOCK = 4096, NEGATIVE_S = 3600, JUST_MADE_NS = 20000000 };

/* ── attributes ── */

static uint64_t seconds_of(int64_t time, uint32_t *ns) {
    int64_t seconds = time / 1000000000, rest = time % 1000000000;
    if (rest < 0) {
        rest += 1000000000;
        seconds--;
    }
    *ns = (uint32_t)rest;
    return (uint64_t)seconds;
}

void put_attr(struct wire_attr *to, const struct meta_attr *from) {
    to->ino = from->ino;
    to->size = from->size;
    to->blocks = from->blocks;
    to->atime = seconds_of(from->atime, &to->atime_ns);
    to->mtime = seconds_of(from->mtime, &to->mtime_ns);
    to->ctime = seconds_of(from->ctime, &to->ctime_ns);
    to->mode = from->mode;
    to->nlink = from->nlink;
    to->uid = from->uid;
    to->gid = from->gid;
    to->rdev = from->rdev;
    to->blksize = BLOCK;
    to->flags = 0;
}

void put_entry(struct amfs_fuse *mount, struct wire_entry_out *to, const struct meta_attr *attr, uint64_t place, bool cache) {
    bool counts = S_ISREG(attr->mode) || S_ISDIR(attr->mode);
    to->ino = counts ? count_lookup(mount, attr->ino, S_ISDIR(attr->mode) ? place : 0) : attr->ino;
    to->generation = 0;
    to->entry_s = seconds_of(mount->options.entry_ns, &to->entry_ns);
    to->attr_s = cache ? seconds_of(mount->options.attr_ns, &to->attr_ns) : 0;
    if (!cache) to->attr_ns = 0;
    put_attr(&to->attr, attr);
}

void put_attr_out(struct amfs_fuse *mount, struct wire_attr_out *to, const struct meta_attr *attr, bool cache) {
    to->attr_s = cache ? seconds_of(mount->options.attr_ns, &to->attr_ns) : 0;
    if (!cache) to->attr_ns = 0;
    to->padding = 0;
    put_attr(&to->attr, attr);
}

enum { WAIT = -1 }; /* instead of an errno: a worker has to do it */

/* Complete a record by what only the data knows. 0, WAIT, or META_NOT_MINE: another node has to be asked. *cache: may the kernel keep it. */
static int complete(struct node *node, struct meta_attr *attr, bool *cache, bool waiting) {
    *cache = true;
    if (S_ISDIR(attr->mode)) {
        *cache = is_alone(node) || meta_owner(node->meta, meta_ino_partition(node->meta, attr->ino)) == node->id;
        return 0; /* everything but its times is the same everywhere */
    }
    if (!S_ISREG(attr->mode)) return 0;
    int written = files_overlay(node, attr, waiting);
    if (written < 0) return WAIT;
    *cache = written == 0 && attr->finished;
    return written || attr->finished || attr->writer == node->id || attr->writer < 0 ? 0 : META_NOT_MINE;
}

/* The record of an inode, completed. 0, an errno, or META_NOT_MINE. */
static int attr_of(struct node *node, uint64_t ino, struct meta_attr *attr, bool *cache, bool waiting) {
    bool replica;
    int error = meta_getattr(node->meta, ino, node->id, attr);
    if (error == META_NOT_MINE) error = meta_cached(node->meta, ino, attr, &replica) == 0 && (attr->finished || S_ISREG(attr->mode) == 0) ? 0 : error;
    if (error != 0) return error;
    return complete(node, attr, cache, waiting);
}

/* Is it being written here in stripes? Then only who may wait can say how large it is, and answers to the kernel always say so. */
static bool handed_on(const struct call *call, uint64_t ino) {
    struct node *node = call->mount->node;
    struct meta_attr attr;
    if (may_wait(call) || meta_getattr(node->meta, ino, node->id, &attr) != 0 || !S_ISREG(attr.mode)) return false;
    enum fsio_kind kind = files_written_as(node, &attr);
    if (kind != FSIO_STRIPED && !(kind == FSIO_LOCAL && node->limited)) return false; /* with a limit it may have grown into stripes */
    work_copy(call);
    return true;
}

static bool goes_slow(int error) { return error == META_NOT_MINE || error == META_BUSY; }

/* ── names ── */

const char *name_in(const struct call *call, size_t offset, size_t *length) {
    if (offset >= call->size) return NULL;
    const char *name = call->body + offset, *end = memchr(name, '\0', call->size - offset);
    if (end == NULL) return NULL;
    *length = (size_t)(end - name);
    return name;
}

static int give_entry(const struct call *call, const char *name, size_t length, const struct meta_attr *attr, bool cache) {
    struct wire_entry_out out;
    put_entry(call->mount, &out, attr, place_of(call->in->ino, call->in->alias, name, length), cache);
    return give(call, &out, sizeof out);
}

static void ask_slowly(struct call *call, enum amfs_fuse_op op, const char *name, size_t length) {
    slow_add(call->mount, slow_new(call, op, name, length, NULL, 0));
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
    return complete(node, attr, cache, waiting);
}

static void look_up(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct meta_attr attr;
    size_t length;
    bool cache;
    const char *name = name_in(call, 0, &length);
    int error = name == NULL             ? EINVAL
                : length > META_NAME_MAX ? ENAMETOOLONG
                                         : lookup(mount->node, call->in->ino, name, length, &attr, &cache, may_wait(call));
    if (error == 0) {
        give_entry(call, name, length, &attr, cache);
    } else if (error == WAIT) {
        work_copy(call);
    } else if (error == ENOENT && is_alone(mount->node) && mount->options.entry_ns > 0 && mount->minor >= WIRE_MINOR_EPOCH) {
        struct wire_entry_out none = {.entry_s = NEGATIVE_S}; /* whoever makes it tells this mount */
        give(call, &none, sizeof none);
    } else if (goes_slow(error)) {
        ask_slowly(call, FUSE_OP_LOOKUP, name, length);
    } else {
        refuse(call, error);
    }
}

/* What another node changes of it meanwhile the kernel must be told, although it does not know it yet. */
void do_lookup(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    atomic_fetch_add(&mount->looking, 1);
    look_up(call);
    atomic_fetch_sub(&mount->looking, 1);
}

void do_getattr(struct call *call) {
    struct wire_attr_out out;
    struct meta_attr attr;
    bool cache;
    if (ghost_find(call->mount, call->in->ino, &attr)) {
        put_attr_out(call->mount, &out, &attr, true);
        give(call, &out, sizeof out);
        return;
    }
    int error = attr_of(call->mount->node, call->in->ino, &attr, &cache, may_wait(call));
    if (error == 0 && S_ISDIR(attr.mode) && !cache) error = META_NOT_MINE; /* its times are elsewhere */
    if (error == WAIT) {
        work_copy(call);
    } else if (error == 0) {
        put_attr_out(call->mount, &out, &attr, cache);
        give(call, &out, sizeof out);
    } else if (goes_slow(error)) {
        ask_slowly(call, FUSE_OP_GETATTR, NULL, 0);
    } else {
        refuse(call, gone_by_now(error));
    }
}

/* ── changing attributes ── */

/* The part of a file here has the same times as the record: what is written later starts from them. Looked at before and after, the part is stamped by
 * the kernel's finest clock: its change comes after whatever was written before, and before whatever is written later. */
int64_t stamp_whole(struct node *node, uint64_t ino, unsigned mask, const struct meta_attr *attr) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    struct stat looked;
    uint32_t ns;
    char path[64];
    if (mask & META_SET_ATIME) {
        times[0].tv_sec = (time_t)seconds_of(attr->atime, &ns);
        times[0].tv_nsec = ns;
    }
    if (mask & META_SET_MTIME) {
        times[1].tv_sec = (time_t)seconds_of(attr->mtime, &ns);
        times[1].tv_nsec = ns;
    }
    bool stamped = fsio_part_path(node->io, ino, FSIO_WHOLE, path, sizeof path) == 0 &&
                   fstatat(node->root, path, &looked, AT_SYMLINK_NOFOLLOW) == 0 && utimensat(node->root, path, times, AT_SYMLINK_NOFOLLOW) == 0 &&
                   fstatat(node->root, path, &looked, AT_SYMLINK_NOFOLLOW) == 0;
    return stamped ? span(looked.st_ctim) : 0;
}

int64_t stamp_part(struct node *node, uint64_t ino, unsigned mask, const struct meta_attr *attr) {
    int64_t stamped = stamp_whole(node, ino, mask, attr);
    if (stamped == 0) fsio_set_times(node->io, ino, mask & META_SET_ATIME ? &attr->atime : NULL, mask & META_SET_MTIME ? &attr->mtime : NULL); /* in stripes */
    return stamped;
}

/* As on tmpfs: by its name a file without data that has that size already is left as it is; otherwise it counts as written. */
static int cut_part(struct node *node, uint64_t ino, uint64_t size, bool by_name, bool *changed) {
    struct fsio_handle *handle;
    struct stat found;
    bool there = files_part_stat(node, ino, &found) == 0, grown = !there && fsio_grown(node->io, ino);
    if (!there) found = (struct stat){.st_size = 0}; /* nothing was ever written to it, or it has grown into stripes */
    *changed = !by_name || grown || (uint64_t)found.st_size != size || found.st_blocks > 0;
    if (!*changed) return 0;
    int error = fsio_open_passing(node->io, ino, FSIO_LOCAL, 0, size, true, true, &handle);
    if (error != 0) return error;
    error = fsio_truncate(handle, size);
    fsio_close(handle);
    return error;
}

/* Nanoseconds since 1970 reach from 1678 to 2262: what lies beyond is the end of that. */
static int64_t time_from(uint64_t seconds, uint32_t ns) {
    int64_t whole = (int64_t)seconds, most = INT64_MAX / 1000000000 - 1;
    if (whole > most) return INT64_MAX;
    return whole < -most ? INT64_MIN : whole * 1000000000 + (ns < 1000000000 ? ns : 999999999);
}

static unsigned read_setattr(const struct wire_setattr_in *in, int64_t now, struct meta_attr *want) {
    unsigned mask = 0;
    *want = (struct meta_attr){.mode = in->mode & 07777, .uid = in->uid, .gid = in->gid, .size = in->size, .writer = -1, .rank = -1};
    want->atime = in->valid & FATTR_ATIME_NOW ? now : time_from(in->atime, in->atime_ns);
    want->mtime = in->valid & FATTR_MTIME_NOW ? now : time_from(in->mtime, in->mtime_ns);
    if (in->valid & FATTR_MODE) mask |= META_SET_MODE;
    if (in->valid & FATTR_UID) mask |= META_SET_UID;
    if (in->valid & FATTR_GID) mask |= META_SET_GID;
    if (in->valid & FATTR_SIZE) mask |= META_SET_SIZE;
    if (in->valid & FATTR_ATIME) mask |= META_SET_ATIME;
    if (in->valid & FATTR_MTIME) mask |= META_SET_MTIME;
    return mask;
}

/* By way of the poll loop; `looks`: its mode decides what is to be done. */
static void set_slowly(const struct call *call, unsigned mask, bool by_name, const struct meta_attr *want, bool looks) {
    struct amfs_fuse *mount = call->mount;
    /* If the part is here: it is what is believed while it is written. */
    if (mask & (META_SET_ATIME | META_SET_MTIME)) stamp_part(mount->node, call->in->ino, mask, want);
    struct amfs_fuse_request *request = slow_new(call, looks ? FUSE_OP_GETATTR : FUSE_OP_SETATTR, NULL, 0, NULL, 0);
    if (request != NULL) {
        request->attr = *want;
        request->has_attr = true;
        request->looks = looks;
        request->since = atomic_load(&mount->node->changes);
        request->flags = mask | (by_name && mask & META_SET_SIZE ? SETATTR_BY_NAME : 0);
    }
    slow_add(mount, request);
}

void do_setattr(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    const struct wire_setattr_in *in = (const void *)call->body;
    struct meta_attr want, done;
    uint64_t ino = call->in->ino;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    if (((in->valid & FATTR_SIZE) != 0 && leaving_awaited(call)) || handed_on(call, ino)) return;
    bool timed = (in->valid & (FATTR_ATIME | FATTR_MTIME)) != 0;
    int64_t now = timed ? exact_now_of(node) : now_of(node), stamped;
    unsigned mask = read_setattr(in, now, &want);
    if (ghost_set(mount, ino, mask, &want, now, &done)) {
        struct wire_attr_out out;
        put_attr_out(mount, &out, &done, true);
        give(call, &out, sizeof out);
        return;
    }
    bool cut = false, no_open = atomic_load_explicit(&mount->no_open, memory_order_relaxed);
    bool by_name = (in->valid & FATTR_FH) == 0 && (!no_open || want.size > 0); /* to nothing may be O_TRUNC, of which we hear only this */
    int killed = suid_kill(call, in, &mask, &want);
    if (goes_slow(killed)) set_slowly(call, mask, by_name, &want, true);
    else if (killed != 0) refuse(call, killed);
    if (killed != 0) return;
    if (timed && (stamped = stamp_part(node, ino, mask, &want)) != 0) { /* then the record knows what was written before this, and what later */
        seen_time(node, stamped);
        now = stamped;
    }
    int error = meta_setattr_here(node->meta, ino, mask, &want, now, &done);
    if (error == 0 && mask & META_SET_SIZE) error = cut_part(node, ino, want.size, by_name, &cut);
    if (error == 0) {
        struct wire_attr_out out;
        bool cache;
        if (mask & META_SET_SIZE && files_overlay(node, &done, false) == 0) { /* nobody writes it: what is recorded is what the part says now */
            struct stat found;
            struct meta_attr sized = {.blocks = 0, .mtime = now};
            unsigned more = META_SET_BLOCKS | (cut && (mask & META_SET_MTIME) == 0 ? META_SET_MTIME : 0);
            if (files_part_stat(node, ino, &found) == 0) sized.blocks = (uint64_t)found.st_blocks;
            meta_setattr_here(node->meta, ino, more, &sized, done.ctime, &done);
            stamp_part(node, ino, META_SET_MTIME, &done);
        }
        complete(node, &done, &cache, true);
        put_attr_out(mount, &out, &done, cache);
        give(call, &out, sizeof out);
        notify_others(mount, ino, (mask & META_SET_SIZE) != 0);
        if (mask & (META_SET_UID | META_SET_GID)) notify_others_names(mount);
    } else if (goes_slow(error)) {
        set_slowly(call, mask, by_name, &want, false);
    } else {
        refuse(call, gone_by_now(error));
    }
}

void do_readlink(struct call *call) {
    size_t length;
    int error = meta_readlink(call->mount->node->meta, call->in->ino, call->out, MESSAGE_BYTES, &length);
    if (error == 0) give(call, call->out, length);
    else if (goes_slow(error)) ask_slowly(call, FUSE_OP_READLINK, NULL, 0);
    else refuse(call, gone_by_now(error));
}

/* ── making ── */

void touch(struct amfs_fuse *mount, uint64_t dir, int64_t now) {
    if (meta_dir_touch(mount->node->meta, dir, now, NULL) != 0 && !far_touch(mount, dir, now)) slow_tell(mount, FUSE_OP_TOUCHED, dir, false, NULL);
    notify_others(mount, dir, false);
}

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
    default:
        *it = (struct making){.op = FUSE_OP_SYMLINK, .mode = S_IFLNK | 0777};
    }
    it->name = name_in(call, offset, &it->length);
    if (it->name == NULL) return false;
    if (it->op == FUSE_OP_SYMLINK) it->target = name_in(call, offset + it->length + 1, &it->target_length);
    return it->op != FUSE_OP_SYMLINK || it->target != NULL;
}

static void make_slowly(struct call *call, const struct making *it) {
    struct amfs_fuse_request *request = slow_new(call, it->op, it->name, it->length, it->target, it->target_length);
    if (request != NULL) {
        request->mode = it->mode;
        request->rdev = it->rdev;
        request->flags = it->flags;
    }
    slow_add(call->mount, request);
}

/* The file was made, its record says that this node writes it: open it and answer. */
static void give_created(struct call *call, const struct making *it, struct meta_attr *attr) {
    struct amfs_fuse *mount = call->mount;
    struct {
        struct wire_entry_out entry;
        struct wire_open_out open;
    } out;
    struct opening opening = {.ino = attr->ino, .node = -1, .writing = true, .create = true, .atime = attr->atime};
    bool told = !atomic_load_explicit(&mount->no_open, memory_order_relaxed); /* else closing it is not told either */
    out.open = (struct wire_open_out){.flags = OPENED_KEEP_CACHE | OPENED_NOFLUSH};
    int error = told ? files_open(mount, &opening, &out.open) : files_open_implicit(mount, &opening);
    if (error != 0) {
        struct meta_attr left;
        bool gone;
        meta_unused(mount->node->meta, attr->ino, mount->node->id, &gone);
        if (meta_unlink(mount->node->meta, call->in->ino, it->name, it->length, attr->ctime, &left, &gone, NULL) == 0 && gone)
            fsio_part_delete(mount->node->io, attr->ino);
        refuse(call, error);
        return;
    }
    put_entry(mount, &out.entry, attr, 0, false);
    out.entry.attr_ns = JUST_MADE_NS; /* the kernel looks at them once more before it has opened the file: no need to ask us */
    if (give(call, &out, sizeof out) == ENOENT && told) files_close(mount, attr->ino, true); /* whoever asked was killed meanwhile */
    notify_others_entry(mount, call->in->ino, it->name, it->length);
}

void do_make(struct call *call) {
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
    int64_t now = now_of(node);
    struct meta_attr attr = {.mode = it.mode, .uid = call->in->uid, .gid = call->in->gid, .rdev = it.rdev, .writer = -1, .rank = -1};
    if ((attr.mode & S_IFMT) == 0) attr.mode |= S_IFREG;
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
    int error = meta_create(node->meta, call->in->ino, it.name, it.length, now, node->id, it.target, &attr);
    if (error == 0) {
        if (it.op == FUSE_OP_CREATE) {
            give_created(call, &it, &attr);
        } else {
            give_entry(call, it.name, it.length, &attr, true);
            notify_others_entry(mount, call->in->ino, it.name, it.length);
        }
        touch(mount, call->in->ino, now);
        atomic_fetch_sub(&mount->looking, 1);
        return;
    }
    atomic_fetch_sub(&mount->looking, 1);
    if (goes_slow(error) || (error == EEXIST && it.op == FUSE_OP_CREATE && (it.flags & O_EXCL) == 0)) {
        make_slowly(call, &it);
    } else {
        refuse(call, error);
    }
}

/* ── unlinking, renaming, linking ── */

/* A name is about to go. Has its file data on other nodes, which they must be told to delete? Else *attr is its record (ino 0: not here), and
 * what the kernel may go on to use is kept. */
static bool lies_elsewhere(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length, struct meta_attr *attr) {
    struct node *node = mount->node;
    uint64_t ino;
    uint32_t type;
    if (meta_lookup(node->meta, dir, name, length, node->id, &ino, &type, attr) != 0) *attr = (struct meta_attr){.ino = 0};
    if (!S_ISREG(attr->mode) || attr->nlink > 1) return false;
    if (attr->layout == META_STRIPED && !is_alone(node)) return true;
    hold_known(mount, attr->ino);
    return false;
}

/* It has gone: no file, and for the kernel perhaps still there. */
static void remember(struct amfs_fuse *mount, const struct meta_attr *was, int64_t now) {
    struct meta_attr attr = *was;
    if (was->ino == 0 || S_ISREG(was->mode) || was->nlink > 1) return;
    attr.ctime = now;
    ghost_add(mount, &attr);
}

void do_unlink(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    struct meta_attr left, was;
    size_t length;
    bool gone;
    const char *name = name_in(call, 0, &length);
    if (name == NULL || length > META_NAME_MAX) {
        refuse(call, name == NULL ? EINVAL : ENAMETOOLONG);
        return;
    }
    if (call->in->opcode == WIRE_RMDIR) {
        struct amfs_fuse_request *request = slow_new(call, FUSE_OP_RMDIR, name, length, NULL, 0);
        if (request != NULL) request->has_attr = meta_dir_find(node->meta, call->in->ino, name, length, &request->attr) == 0;
        slow_add(mount, request);
        return;
    }
    int64_t now = now_of(node);
    int error = lies_elsewhere(mount, call->in->ino, name, length, &was)
                    ? META_BUSY
                    : meta_unlink(node->meta, call->in->ino, name, length, now, &left, &gone, NULL);
    if (error == 0) {
        touch(mount, call->in->ino, now);
        remember(mount, &was, now);
        refuse(call, 0);
        rings_send(); /* to delete much takes a while */
        if (gone) fsio_part_delete(node->io, left.ino);
        notify_others_entry(mount, call->in->ino, name, length);
        notify_others(mount, left.ino, false);
    } else if (goes_slow(error)) {
        ask_slowly(call, FUSE_OP_UNLINK, name, length);
    } else {
        refuse(call, error);
    }
}

void do_rename(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    const struct wire_rename2_in *in = (const void *)call->body;
    bool second = call->in->opcode == WIRE_RENAME2;
    size_t start = second ? sizeof(struct wire_rename2_in) : sizeof(struct wire_rename_in), length, to_length;
    const char *name = name_in(call, start, &length), *to_name = name == NULL ? NULL : name_in(call, start + length + 1, &to_length);
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
    uint64_t from = call->in->ino, to = plain_ino(in->to_dir);
    unsigned flags = second ? in->flags : 0;
    int64_t now = now_of(node);
    int error = flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) ? EINVAL
                : lies_elsewhere(mount, to, to_name, to_length, &was)     ? META_BUSY
                                                                          : meta_rename(node->meta, from, name, length, to, to_name, to_length, flags, now, &moved, &replaced, &gone);
    if (error == 0) {
        touch(mount, from, now);
        if (to != from) touch(mount, to, now);
        if (replaced.ino != 0 && (flags & RENAME_EXCHANGE) == 0) remember(mount, &was, now);
        refuse(call, 0);
        if (gone) fsio_part_delete(node->io, replaced.ino);
        notify_others_entry(mount, from, name, length);
        notify_others_entry(mount, to, to_name, to_length);
        notify_others(mount, moved.ino, false);
        if (replaced.ino != 0) notify_others(mount, replaced.ino, false);
    } else if (goes_slow(error)) {
        struct amfs_fuse_request *request = slow_new(call, FUSE_OP_RENAME, name, length, to_name, to_length);
        if (request != NULL) {
            request->other = to;
            request->other_alias = alias_in(in->to_dir);
            request->flags = flags;
            request->has_attr = (flags & RENAME_EXCHANGE) == 0 && meta_dir_find(node->meta, to, to_name, to_length, &request->attr) == 0;
        }
        slow_add(mount, request);
    } else {
        refuse(call, error);
    }
}

void do_link(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    const struct wire_link_in *in = (const void *)call->body;
    size_t length;
    const char *name = name_in(call, sizeof *in, &length);
    struct meta_attr attr;
    uint64_t old;
    uint32_t old_type;
    bool gone, cache;
    if (name == NULL || length > META_NAME_MAX) {
        refuse(call, name == NULL ? EINVAL : ENAMETOOLONG);
        return;
    }
    if (handed_on(call, in->ino)) return;
    int64_t now = now_of(node);
    int error = is_alone(node) ? meta_link(node->meta, in->ino, 1, now, &attr, &gone, NULL) : META_BUSY;
    if (error == 0) {
        error = meta_insert(node->meta, call->in->ino, name, length, 0, in->ino, attr.mode & S_IFMT, false, &old, &old_type, NULL);
        if (error != 0) meta_link(node->meta, in->ino, -1, now, &attr, &gone, NULL);
    }
    if (error == 0) {
        complete(node, &attr, &cache, true);
        give_entry(call, name, length, &attr, cache);
        touch(mount, call->in->ino, now);
        notify_others_entry(mount, call->in->ino, name, length);
        notify_others(mount, in->ino, false);
    } else if (goes_slow(error)) {
        struct amfs_fuse_request *request = slow_new(call, FUSE_OP_LINK, name, length, NULL, 0);
        if (request != NULL) {
            request->ino = in->ino;
            request->other = call->in->ino;
        }
        slow_add(mount, request);
    } else {
        refuse(call, error == EISDIR ? EPERM : gone_by_now(error));
    }
}

/* ── what the file system as a whole has ── */

void do_statfs(struct call *call) {
    struct node *node = call->mount->node;
    struct wire_statfs_out out = {.bsize = BLOCK, .frsize = BLOCK, .namelen = META_NAME_MAX};
    struct statvfs found;
    struct meta_counts counts;
    uint64_t used, limit, parts;
    if (!is_alone(node) || fstatvfs(node->root, &found) != 0) {
        ask_slowly(call, FUSE_OP_STATFS, NULL, 0);
        return;
    }
    fsio_usage(node->io, &used, &limit, &parts);
    meta_counts(node->meta, &counts);
    out.blocks = (limit != 0 ? limit : (uint64_t)found.f_blocks * found.f_frsize) / BLOCK;
    out.bfree = limit != 0 ? (limit > used ? (limit - used) / BLOCK : 0) : (uint64_t)found.f_bfree * found.f_frsize / BLOCK;
    out.bavail = out.bfree;
    out.ffree = found.f_ffree;
    out.files = counts.inodes + counts.dirs + out.ffree;
    give(call, &out, sizeof out);
}
