/* Attributes: answers and changes for which the metadata of this node and its parts suffice. The rest goes to the poll loop. */
#include "common/bytes.h"
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static void put_attr(struct wire_attr *to, const struct meta_attr *from) {
    to->ino = from->ino;
    to->size = from->size;
    to->blocks = from->blocks;
    to->atime = fuse_seconds_of(from->atime, &to->atime_ns);
    to->mtime = fuse_seconds_of(from->mtime, &to->mtime_ns);
    to->ctime = fuse_seconds_of(from->ctime, &to->ctime_ns);
    to->mode = from->mode;
    to->nlink = from->nlink;
    to->uid = from->uid;
    to->gid = from->gid;
    to->rdev = from->rdev;
    to->blksize = BLOCK_BYTES;
    to->flags = 0;
}

bool fuse_put_entry(struct amfs_fuse *mount, uint64_t since, struct wire_entry_out *to, const struct meta_attr *attr, bool cache) {
    bool counts = S_ISREG(attr->mode) || S_ISDIR(attr->mode);
    to->ino = counts ? fuse_inode_looked_up(mount, attr, since, &cache) : attr->ino;
    to->generation = 0;
    to->entry_s = fuse_seconds_of(mount->options.entry_ns, &to->entry_ns);
    to->attr_s = cache ? fuse_seconds_of(mount->options.attr_ns, &to->attr_ns) : 0;
    if (!cache) to->attr_ns = 0;
    if (mount->options.tasks && attr->pending != 0) to->entry_s = to->entry_ns = 0;
    put_attr(&to->attr, attr);
    return cache;
}

void fuse_put_attr_out(struct amfs_fuse *mount, uint64_t since, struct wire_attr_out *to, const struct meta_attr *attr, bool cache) {
    cache = fuse_inode_asked(mount, attr, since, cache);
    to->attr_s = cache ? fuse_seconds_of(mount->options.attr_ns, &to->attr_ns) : 0;
    if (!cache) to->attr_ns = 0;
    to->padding = 0;
    put_attr(&to->attr, attr);
}

/* Complete a record by what only the data knows. 0, WAIT, or META_NOT_MINE: another node has to be asked. *cache: may the kernel keep it. */
int fuse_complete_attr(struct node *node, struct meta_attr *attr, bool *cache, bool waiting) {
    *cache = true;
    if (S_ISDIR(attr->mode)) {
        *cache = is_alone(node) || meta_owner(node->meta, meta_ino_partition(node->meta, attr->ino)) == node->id;
        return 0; /* everything but its times is the same everywhere */
    }
    if (!S_ISREG(attr->mode)) return 0;
    int written = fuse_files_overlay(node, attr, waiting);
    if (written < 0) return WAIT;
    *cache = written == 0 && attr->finished;
    return written || attr->finished || attr->writer == node->id || attr->writer < 0 ? 0 : META_NOT_MINE;
}

/* The record of an inode, completed. 0, an errno, or META_NOT_MINE. A cached record of another node is good until that node says that it is old. While a
 * file is not finished only the node that made it and writes it believes that: it knows the size and the times itself. */
static int attr_of(struct node *node, uint64_t ino, struct meta_attr *attr, bool *cache, bool waiting) {
    bool replica;
    int error = meta_getattr(node->meta, ino, node->id, attr);
    if (error == META_NOT_MINE && meta_cached(node->meta, ino, attr, &replica) == 0) {
        *cache = false;
        if (!attr->finished && S_ISREG(attr->mode))
            return fuse_files_made(node, ino) && fuse_files_overlay(node, attr, false) == 1 ? 0 : META_NOT_MINE;
        error = 0;
    }
    if (error != 0) return error;
    return fuse_complete_attr(node, attr, cache, waiting);
}

/* Is it being written here in stripes? Then only who may wait can say how large it is, and answers to the kernel always say so. */
bool fuse_handed_on(const struct call *call, uint64_t ino) {
    struct node *node = call->mount->node;
    struct meta_attr attr;
    if (may_wait(call) || meta_getattr(node->meta, ino, node->id, &attr) != 0 || !S_ISREG(attr.mode)) return false;
    enum fsio_kind kind = fuse_files_written_as(node, &attr);
    if (kind != FSIO_STRIPED && !(kind == FSIO_LOCAL && node->limited)) return false; /* with a limit it may have grown into stripes */
    fuse_work_copy(call);
    return true;
}

void fuse_do_getattr(struct call *call) {
    struct wire_attr_out out;
    struct meta_attr attr;
    bool cache;
    if (fuse_removed_find(call->mount, call->in->ino, &attr)) {
        fuse_put_attr_out(call->mount, call->since, &out, &attr, true);
        give(call, &out, sizeof out);
        return;
    }
    int error = attr_of(call->mount->node, call->in->ino, &attr, &cache, may_wait(call));
    if (error == 0 && S_ISDIR(attr.mode) && !cache) error = META_NOT_MINE; /* its times are elsewhere */
    if (error == WAIT) {
        fuse_work_copy(call);
    } else if (error == 0) {
        fuse_put_attr_out(call->mount, call->since, &out, &attr, cache);
        give(call, &out, sizeof out);
    } else if (goes_slow(error)) {
        fuse_ask_slowly(call, FUSE_OP_GETATTR, NULL, 0);
    } else {
        refuse(call, gone_by_now(error));
    }
}

/* ── changing attributes ── */

static int64_t stamp_part(struct node *node, uint64_t ino, unsigned mask, const struct meta_attr *attr) {
    int64_t stamped = fuse_stamp_whole(node, ino, mask, attr);
    if (stamped == 0)
        fsio_set_times(node->io, ino, mask & META_SET_ATIME ? &attr->atime : NULL,
                       mask & META_SET_MTIME ? &attr->mtime : NULL); /* in stripes */
    return stamped;
}

/* As on tmpfs: by its name a file without data that has that size already is left as it is; otherwise it counts as written. */
static int cut_part(struct node *node, uint64_t ino, uint64_t size, bool by_name, bool *changed) {
    struct fsio_handle *handle;
    struct stat found;
    bool there = fuse_files_part_stat(node, ino, &found) == 0, grown = !there && fsio_grown(node->io, ino);
    if (!there) found = (struct stat){.st_size = 0}; /* nothing was ever written to it, or it has grown into stripes */
    *changed = !by_name || grown || (uint64_t)found.st_size != size || found.st_blocks > 0;
    if (!*changed) return 0;
    int error = fsio_open_passing(node->io, ino, FSIO_LOCAL, 0, size, true, true, &handle);
    if (error != 0) return error;
    error = fsio_truncate(handle, size);
    fsio_close(handle);
    return error;
}

/* Nanoseconds since 1970 reach from 1678 to 2262: times beyond become the end of that. */
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

/* By its shard on another node, or the poll loop. `now`: when the part that lies here was changed, which is what is believed while it is written. */
static void set_slowly(const struct call *call, unsigned mask, bool by_name, const struct meta_attr *want, int64_t now) {
    struct amfs_fuse *mount = call->mount;
    uint8_t asked[PEER_META_MASK_BYTES];
    put_le(asked, mask, sizeof asked);
    struct amfs_fuse_request *request = fuse_slow_new(call, FUSE_OP_SETATTR, NULL, 0, asked, sizeof asked);
    if (request != NULL) {
        request->attr = *want;
        request->attr.ctime = now;
        request->has_attr = true;
        request->flags = mask | (by_name && mask & META_SET_SIZE ? SETATTR_BY_NAME : 0);
    }
    fuse_slow_add(mount, request);
}

void fuse_do_setattr(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    struct node *node = mount->node;
    const struct wire_setattr_in *in = (const void *)call->body;
    struct meta_attr want, done;
    uint64_t ino = call->in->ino;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    if (((in->valid & FATTR_SIZE) != 0 && fuse_closing_awaited(call)) || fuse_handed_on(call, ino)) return;
    bool timed = (in->valid & (FATTR_ATIME | FATTR_MTIME)) != 0;
    int64_t now = timed ? fuse_exact_now_of(node) : fuse_now_of(node), stamped;
    unsigned mask = read_setattr(in, now, &want);
    if (fuse_removed_set(mount, ino, mask, &want, now, &done)) {
        struct wire_attr_out out;
        fuse_put_attr_out(mount, call->since, &out, &done, true);
        give(call, &out, sizeof out);
        return;
    }
    bool cut = false, no_open = atomic_load_explicit(&mount->no_open, memory_order_relaxed);
    bool by_name = (in->valid & FATTR_FH) == 0 && (!no_open || want.size > 0); /* to nothing may be O_TRUNC, of which we hear only this */
    if (fuse_suid_set(call, in, &mask, &want) != 0) {
        refuse(call, EPERM);
        return;
    }
    if (timed &&
        (stamped = stamp_part(node, ino, mask, &want)) != 0) { /* then the record knows what was written before this, and what later */
        fuse_seen_time(node, stamped);
        now = stamped;
    }
    int error = meta_setattr_here(node->meta, ino, mask, &want, now, &done);
    if (error == 0 && mask & META_SET_SIZE) error = cut_part(node, ino, want.size, by_name, &cut);
    if (error == 0) {
        struct wire_attr_out out;
        bool cache;
        if (mask & META_SET_SIZE &&
            fuse_files_overlay(node, &done, false) == 0) { /* nobody writes it: the record gets what the part says now */
            struct stat found;
            struct meta_attr sized = {.blocks = 0, .mtime = now};
            unsigned more = META_SET_BLOCKS | (cut && (mask & META_SET_MTIME) == 0 ? META_SET_MTIME : 0);
            if (fuse_files_part_stat(node, ino, &found) == 0) sized.blocks = (uint64_t)found.st_blocks;
            meta_setattr_here(node->meta, ino, more, &sized, done.ctime, &done);
            stamp_part(node, ino, META_SET_MTIME, &done);
        }
        fuse_complete_attr(node, &done, &cache, true);
        fuse_put_attr_out(mount, call->since, &out, &done, cache);
        fuse_notify_editions(mount, ino);
        give(call, &out, sizeof out);
        fuse_notify_others(mount, ino, (mask & META_SET_SIZE) != 0);
    } else if (goes_slow(error)) {
        set_slowly(call, mask, by_name, &want, now);
    } else {
        refuse(call, gone_by_now(error));
    }
}
