/* Questions of a mount to the shards of other nodes, asked directly; and the effect of other nodes' changes here on the caches of this node's mounts. A
 * question that cannot be answered so goes to the poll loop, as if it had not been asked. */
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_WORDS_MS = 500 }; /* for what a mount that ends has asked: a file that was made must be closed */

/* ── what is asked for the kernel ── */

struct fuse_asking {
    struct peer_meta_call call;
    struct amfs_fuse *mount;
    uint64_t unique, ino, since; /* ino: inode, or the directory; since: the changes that the shard has heard of by now */
    enum amfs_fuse_op op;
    uint32_t flags;
    bool attempt; /* it is a blind task's */
    bool record; /* the node of the name has answered; that of the record is asked */
    bool content; /* it asks for the content of a small file, to be opened */
    struct meta_attr brings; /* its record */
    size_t name_length;
    char name[];
};

static int32_t owner_of_name(const struct node *node, uint64_t dir, const char *name, size_t length) {
    return meta_owner(node->meta, meta_name_partition(node->meta, dir, name, length));
}

/* Is it one of those that a new file of this kind can be made by? In a directory whose files are striped it takes the poll loop. */
static bool read_making(const struct node *node, const struct amfs_fuse_request *request, struct meta_attr *attr) {
    bool created = request->op == FUSE_OP_CREATE, symlink = request->op == FUSE_OP_SYMLINK;
    uint32_t mode = symlink ? S_IFLNK | 0777 : request->mode;
    if ((mode & S_IFMT) == 0 || created) mode = S_IFREG | (mode & 07777);
    *attr = (struct meta_attr){.mode = mode,
                               .uid = request->uid,
                               .gid = request->gid,
                               .rdev = request->op == FUSE_OP_MKNOD ? request->rdev : 0,
                               .pending = request->owned,
                               .writer = created ? node->id : -1,
                               .rank = -1,
                               .finished = !created};
    if (!S_ISREG(mode)) return true;
    meta_dir_layout(node->meta, request->ino, &attr->layout, &attr->stripe);
    bool whole = attr->layout != META_STRIPED;
    attr->layout = META_WHOLE;
    attr->stripe = 0;
    return whole;
}

/* The question that stands for a request, and whom to ask. False: there is none. */
static bool put_question(struct node *node, const struct amfs_fuse_request *request, struct peer_meta_question *question,
                         struct meta_attr *attr, int32_t *owner) {
    uint64_t parent;
    *question = (struct peer_meta_question){.ino = request->ino, .now = fuse_now_of(node)};
    switch (request->op) {
    case FUSE_OP_LOOKUP: question->op = PEER_META_LOOKUP; break;
    case FUSE_OP_UNLINK:
        question->op = PEER_META_UNLINK;
        question->flags = fuse_perhaps_used(node);
        break;
    case FUSE_OP_CREATE:
    case FUSE_OP_MKNOD:
    case FUSE_OP_SYMLINK:
        question->op = PEER_META_CREATE;
        question->attr = attr;
        question->value = request->value;
        question->value_length = request->op == FUSE_OP_SYMLINK ? request->value_length : 0;
        if (!read_making(node, request, attr)) return false;
        break;
    case FUSE_OP_GETATTR: question->op = PEER_META_GETATTR; break;
    case FUSE_OP_SETATTR:
        question->op = PEER_META_SETATTR;
        question->now = request->attr.ctime;
        question->attr = &request->attr;
        question->value = request->value;
        question->value_length = request->value_length;
        if ((request->flags & ~(uint32_t)META_SET_DIRECTLY) != 0 || meta_dir_get(node->meta, request->ino, attr, &parent) == 0)
            return false;
        break;
    case FUSE_OP_READLINK: question->op = PEER_META_READLINK; break;
    case FUSE_OP_GET_XATTR:
        question->op = PEER_META_GET_XATTR;
        question->name = request->name;
        question->name_length = request->name_length;
        if (strncmp(request->name, "user.amfs.", 10) == 0) return false;
        break;
    case FUSE_OP_OPEN:
        question->op = PEER_META_OPEN;
        if ((request->flags & O_ACCMODE) != O_RDONLY || (request->flags & O_TRUNC) != 0) return false;
        break;
    case FUSE_OP_ENSURE:
        question->op = PEER_META_OPEN;
        if (request->wrote) return false;
        break;
    default: return false;
    }
    bool named = question->op == PEER_META_LOOKUP || question->op == PEER_META_UNLINK || question->op == PEER_META_CREATE;
    if (named) {
        question->name = request->name;
        question->name_length = request->name_length;
    }
    *owner = named ? owner_of_name(node, request->ino, request->name, request->name_length) : fuse_owner_of(node, request->ino);
    return *owner >= 0 && *owner != node->id;
}

static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer);

/* Ask for the content of a file that is to be read, if it is small and known to lie on another node. */
static bool ask_content(struct amfs_fuse *mount, uint64_t unique, uint64_t ino, enum amfs_fuse_op op) {
    struct node *node = mount->node;
    struct peer_meta *peer_meta = peer_meta_of(node->io);
    struct meta_small small;
    if (peer_meta == NULL || !meta_small_of(node->meta, ino, &small)) return false;
    struct fuse_asking *asking = malloc(sizeof *asking);
    if (asking == NULL) return false;
    *asking = (struct fuse_asking){.call = {.owner = mount, .done = answered},
                                   .mount = mount,
                                   .unique = unique,
                                   .ino = ino,
                                   .op = op,
                                   .content = true,
                                   .brings = small.attr};
    struct peer_meta_question question = {.op = PEER_META_CONTENT, .ino = ino, .attr = &asking->brings};
    if (peer_meta_ask(peer_meta, small.holder, &question, &asking->call) == 0) return true;
    free(asking);
    return false;
}

static bool found(const struct fuse_asking *asking, const struct peer_meta_answer *answer);

/* The name is known, and of which file it is; the record is on another node than the name. Whatever changes one of them meanwhile makes the answer old. */
static bool find_record(const struct fuse_asking *asking, uint64_t ino) {
    struct node *node = asking->mount->node;
    int32_t owner = fuse_owner_of(node, ino);
    if (owner == node->id) {
        struct peer_meta_answer here = {.flags = PEER_META_HAS_ATTR};
        atomic_fetch_add(&asking->mount->looking, 1); /* nodes that change it meanwhile tell our kernels */
        bool done = meta_getattr(node->meta, ino, node->id, &here.attr) == 0 && found(asking, &here);
        atomic_fetch_sub(&asking->mount->looking, 1);
        return done;
    }
    struct fuse_asking *next = malloc(sizeof *next + asking->name_length);
    if (next == NULL) return false;
    memcpy(next, asking, sizeof *next + asking->name_length);
    next->record = true;
    struct peer_meta_question question = {.op = PEER_META_GETATTR, .ino = ino};
    if (peer_meta_ask(peer_meta_of(node->io), owner, &question, &next->call) == 0) return true;
    free(next);
    return false;
}

bool peer_meta_begin(struct amfs_fuse *mount, struct amfs_fuse_request *request) {
    struct node *node = mount->node;
    struct peer_meta *peer_meta = is_alone(node) ? NULL : peer_meta_of(node->io);
    struct peer_meta_question question;
    struct meta_attr attr;
    int32_t owner;
    if (peer_meta == NULL) return false;
    if (request->op == FUSE_OP_LIST) return request->direct = fuse_list_ask(mount, request);
    if (request->op == FUSE_OP_SECURE) return request->direct = fuse_secure(mount, request);
    if (request->op == FUSE_OP_RENAME) return request->direct = fuse_rename(mount, request);
    bool reads = (request->op == FUSE_OP_OPEN && (request->flags & O_ACCMODE) == O_RDONLY && (request->flags & O_TRUNC) == 0) ||
                 (request->op == FUSE_OP_ENSURE && !request->wrote);
    request->direct = true;
    if (reads && request->again == 0 && ask_content(mount, request->unique, request->ino, request->op)) return true;
    request->direct = false;
    if (request->op == FUSE_OP_UNLINK && owner_of_name(node, request->ino, request->name, request->name_length) == node->id)
        return fuse_unname_here(mount, request);
    if (!put_question(node, request, &question, &attr, &owner)) return false;
    struct fuse_asking *asking = malloc(sizeof *asking + request->name_length);
    if (asking == NULL) return false;
    *asking = (struct fuse_asking){.call = {.owner = mount, .done = answered},
                                   .mount = mount,
                                   .unique = request->unique,
                                   .ino = request->ino,
                                   .since = meta_moment(node->meta),
                                   .op = request->op,
                                   .flags = request->flags,
                                   .attempt = request->attempt != 0,
                                   .name_length = request->name_length};
    memcpy(asking->name, request->name, request->name_length);
    bool makes = request->op == FUSE_OP_CREATE, defers = false;
    if (makes) {
        opens_begin_making(node->opens);
        defers = atomic_load(&node->defers);
    }
    request->direct = true;
    if (!defers && peer_meta_ask(peer_meta, owner, &question, &asking->call) == 0) return true;
    request->direct = false;
    if (makes) opens_end_making(node->opens);
    free(asking);
    return false;
}

/* ── answers for the kernel ── */

/* Complete the record of a file by what only its data here knows. False: another node must be asked. *cache: may the kernel keep it. */
static bool complete(struct node *node, struct meta_attr *attr, bool *cache) {
    struct stat found;
    *cache = true;
    if (!S_ISREG(attr->mode)) return true;
    int written = fuse_files_overlay(node, attr, false);
    *cache = written == 0 && attr->finished;
    if (written != 0 || attr->finished) return written >= 0;
    /* Not written here any more, and its shard has not heard of that yet. */
    if (attr->writer != node->id || attr->layout != META_WHOLE || fuse_files_part_stat(node, attr->ino, &found) != 0) return false;
    fuse_files_put_stat(node, attr, &found);
    return true;
}

static bool is_fresh(const struct fuse_asking *asking, uint64_t ino) {
    struct meta *meta = asking->mount->node->meta;
    return meta_fresh(meta, asking->since, ino) &&
           (asking->name_length == 0 || meta_fresh(meta, asking->since, meta_name_mark(asking->ino, asking->name, asking->name_length)));
}

/* The kernel may have been given an answer that was old already: the change that made it so has come between. */
static void tell_if_old(const struct fuse_asking *asking, uint64_t ino) {
    if (is_fresh(asking, ino)) return;
    if (asking->name_length > 0) amfs_fuse_invalidate_entry(asking->mount, asking->ino, asking->name, asking->name_length);
    amfs_fuse_invalidate_inode(asking->mount, ino, true);
}

/* The following answer whether the request is done; else it takes the long way. */

static void note_small(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct meta_small small = {.attr = answer->attr, .holder = answer->holder};
    if ((answer->flags & PEER_META_SMALL) != 0) meta_note_small(asking->mount->node->meta, asking->since, &small);
}

static bool found(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct amfs_fuse *mount = asking->mount;
    struct node *node = mount->node;
    struct meta_attr attr = answer->attr;
    uint64_t parent;
    bool cache, name = asking->op == FUSE_OP_LOOKUP;
    if (!is_fresh(asking, attr.ino)) return false;
    if ((answer->flags & PEER_META_ELSEWHERE) != 0) return name && !asking->record && find_record(asking, attr.ino);
    note_small(asking, answer);
    if (S_ISDIR(attr.mode) && name) {
        if (meta_dir_get(node->meta, attr.ino, &attr, &parent) != 0) return false; /* it is being made, or removed */
        cache = false;
    } else if (S_ISDIR(attr.mode)) {
        cache = true;
    } else if (!complete(node, &attr, &cache)) {
        return false;
    }
    if (name) amfs_fuse_reply_entry(mount, asking->unique, &attr, cache);
    else amfs_fuse_reply_attr(mount, asking->unique, &attr, cache);
    tell_if_old(asking, attr.ino);
    return true;
}

static bool opened(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct amfs_fuse *mount = asking->mount;
    const struct meta_attr *attr = &answer->attr;
    bool here = (answer->flags & PEER_META_HOLDS) != 0 && attr->finished && attr->layout == META_WHOLE && S_ISREG(attr->mode);
    note_small(asking, answer);
    if (!here && ask_content(mount, asking->unique, asking->ino, asking->op)) return true;
    /* The old content may lie here still: the order to remove it is on its way. */
    if (here && attr->size == 0 && !fuse_files_have_empty(mount->node, attr)) here = false;
    if (!here || meta_cache_fresh(mount->node->meta, asking->since, attr, true) != 0) return false;
    amfs_fuse_reply_open(mount, asking->unique, FSIO_LOCAL, -1, 0, attr->size, fsio_losses(mount->node->io));
    return true;
}

static bool brought(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    if (fuse_slow_open_here(asking->mount, asking->unique)) return true; /* another process was faster */
    return answer->error == 0 && fuse_small_bring(asking->mount, &asking->brings, answer->bytes, answer->count) &&
           fuse_slow_open_here(asking->mount, asking->unique);
}

static bool made(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct amfs_fuse *mount = asking->mount;
    struct node *node = mount->node;
    fuse_touch(mount, asking->ino); /* before the process that asked can look */
    if (asking->op == FUSE_OP_CREATE) {
        opens_use_directly(node->opens, answer->attr.ino, 1, 1);
        meta_cache_fresh(node->meta, asking->since, &answer->attr, false); /* while it is written here; its owner knows that we know it */
        if (amfs_fuse_reply_created(mount, asking->unique, &answer->attr, FSIO_LOCAL, -1, 0, 0, fsio_losses(mount->node->io)) !=
            0) { /* nobody waits any more */
            opens_use_directly(node->opens, answer->attr.ino, -1, -1);
            meta_uncache_unfinished(node->meta, answer->attr.ino);
            fuse_slow_unused(mount, answer->attr.ino);
        }
    } else {
        amfs_fuse_reply_entry(mount, asking->unique, &answer->attr, true);
        tell_if_old(asking, answer->attr.ino);
    }
    return true;
}

/* The kernel asks anew. This node keeps the record, of which it hears when others change it. */
static bool changed(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct amfs_fuse *mount = asking->mount;
    struct meta_attr attr = answer->attr;
    bool cache;
    meta_cache_changed(mount->node->meta, asking->since, &attr);
    if (!complete(mount->node, &attr, &cache)) attr = answer->attr; /* nothing has been written yet */
    amfs_fuse_reply_attr(mount, asking->unique, &attr, false);
    return true;
}

static bool unlinked(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct fuse_unnamed what = {asking->ino, answer->attr.ino, asking->name, asking->name_length};
    if ((answer->flags & PEER_META_THIRD) != 0) {
        int32_t owner = owner_of_name(asking->mount->node, asking->ino, asking->name, asking->name_length);
        return fuse_spare(asking->mount, asking->unique, &what, true, owner, answer);
    }
    if ((answer->flags & PEER_META_ELSEWHERE) != 0) fuse_uncount(asking->mount, asking->unique, &what);
    else fuse_unlinked(asking->mount, asking->unique, what.dir, what.ino, answer->flags);
    return true;
}

static bool take_answer(const struct fuse_asking *asking, const struct peer_meta_answer *answer) {
    struct amfs_fuse *mount = asking->mount;
    bool record = (answer->flags & PEER_META_HAS_ATTR) != 0 && answer->attr.ino != 0;
    bool changes = asking->op == FUSE_OP_CREATE || asking->op == FUSE_OP_MKNOD || asking->op == FUSE_OP_SYMLINK ||
                   asking->op == FUSE_OP_UNLINK || asking->op == FUSE_OP_SETATTR;
    int error = answer->error;
    if (asking->content) return brought(asking, answer);
    if (error == PEER_META_LOST) { /* a change may have been made: to make it once more could only lie about it */
        if (changes) amfs_fuse_reply_error(mount, asking->unique, EIO);
        if (asking->op == FUSE_OP_CREATE) fuse_slow_perhaps_made(mount, asking->ino, asking->name, asking->name_length);
        return changes;
    }
    if (error == META_BUSY || error == META_NOT_MINE) return false;
    if (error == EEXIST && asking->op == FUSE_OP_CREATE && ((asking->flags & O_EXCL) == 0 || asking->attempt))
        return false; /* it is opened then, or was left by an attempt on a node that died */
    if (error != 0) {
        amfs_fuse_reply_error(mount, asking->unique, error);
        return true;
    }
    if (asking->op == FUSE_OP_READLINK || asking->op == FUSE_OP_GET_XATTR)
        return amfs_fuse_reply_bytes(mount, asking->unique, answer->bytes, answer->count), true;
    if (asking->op == FUSE_OP_UNLINK && error == 0 && (answer->flags & PEER_META_THIRD) != 0) return unlinked(asking, answer);
    if (!record) return false;
    switch (asking->op) {
    case FUSE_OP_LOOKUP:
    case FUSE_OP_GETATTR: return found(asking, answer);
    case FUSE_OP_OPEN:
    case FUSE_OP_ENSURE: return opened(asking, answer);
    case FUSE_OP_UNLINK: return unlinked(asking, answer);
    case FUSE_OP_SETATTR: return changed(asking, answer);
    default: return made(asking, answer);
    }
}

static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct fuse_asking *asking = (struct fuse_asking *)(void *)call;
    struct node *node = asking->mount->node;
    bool makes = asking->op == FUSE_OP_CREATE;
    if (!take_answer(asking, answer)) fuse_slow_again(asking->mount, asking->unique);
    if (makes) opens_end_making(node->opens);
    free(asking);
}

/* ── what others change here ── */

static bool kernels_open_unseen(void *context) {
    const struct node *node = context;
    return atomic_load_explicit(&node->unseen, memory_order_relaxed);
}

static bool kernels_know(void *context, uint64_t ino) {
    struct node *node = context;
    bool known = false;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL && !known; mount = mount->next)
        known = atomic_load(&mount->looking) > 0 || fuse_inode_is_known(mount, ino);
    pthread_mutex_unlock(&node->mounts_lock);
    return known;
}

static bool kernels_use(void *context, uint64_t ino) { return fuse_files_known(context, ino); }

struct forgetting {
    uint64_t ino, dir;
    const char *name;
    size_t length;
    bool written; /* only what has pages of it */
};

static void forget_and_await(struct amfs_fuse *mount, const struct forgetting *what) {
    uint64_t name = what->name == NULL ? 0 : amfs_fuse_invalidate_entry(mount, what->dir, what->name, what->length);
    uint64_t inode = what->written && !fuse_inode_has_pages(mount, what->ino) ? 0 : amfs_fuse_invalidate_inode(mount, what->ino, true);
    if (name != 0) amfs_fuse_await_invalidated(mount, name);
    if (inode != 0) amfs_fuse_await_invalidated(mount, inode);
}

/* Without the lock while it waits: requests that the kernel wants answered first may need it. A mount that ends stays until we have done with it. */
static void all_forget(struct node *node, const struct forgetting *what) {
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL; mount = mount->next) {
        mount->awaited++;
        pthread_mutex_unlock(&node->mounts_lock);
        forget_and_await(mount, what);
        pthread_mutex_lock(&node->mounts_lock);
        if (--mount->awaited == 0) pthread_cond_broadcast(&node->unawaited);
    }
    pthread_mutex_unlock(&node->mounts_lock);
}

static void kernels_forget(void *context, uint64_t ino, uint64_t dir, const char *name, size_t length) {
    all_forget(context, &(struct forgetting){.ino = ino, .dir = dir, .name = name, .length = length});
}

static void kernels_written(void *context, uint64_t ino) { all_forget(context, &(struct forgetting){.ino = ino, .written = true}); }

static void kernels_touched(void *context, uint64_t dir) {
    struct node *node = context;
    pthread_mutex_lock(&node->mounts_lock);
    for (struct amfs_fuse *mount = node->mounts; mount != NULL; mount = mount->next) amfs_fuse_invalidate_inode(mount, dir, true);
    pthread_mutex_unlock(&node->mounts_lock);
}

void peer_meta_mounts_begin(struct node *node) {
    struct peer_meta *peer_meta = peer_meta_of(node->io);
    pthread_mutex_init(&node->touch_lock, NULL);
    if (peer_meta != NULL)
        peer_meta_set_kernel(peer_meta, &(struct peer_meta_kernel){node, kernels_know, kernels_open_unseen, kernels_use, kernels_forget,
                                                                   kernels_written, kernels_touched});
}

void peer_meta_mounts_end(struct node *node) {
    struct peer_meta *peer_meta = peer_meta_of(node->io);
    if (peer_meta != NULL) peer_meta_set_kernel(peer_meta, NULL);
    pthread_mutex_destroy(&node->touch_lock);
}

void peer_meta_end(struct amfs_fuse *mount) {
    struct peer_meta *peer_meta = mount->node == NULL ? NULL : peer_meta_of(mount->node->io);
    if (peer_meta != NULL) peer_meta_cancel(peer_meta, mount, LAST_WORDS_MS);
}
