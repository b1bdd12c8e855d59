/* Opening and closing. Closing what lies on other nodes takes a while, and the kernel does not wait for it: who opens the file again, or sets its size, must
 * not overtake the news of what was written to it. */
#include "fuse_internal.h"

#include <fcntl.h>
#include <stdlib.h>

struct leaving {
    struct leaving *next;
    uint64_t ino;
    unsigned count;
};

/* With the lock held. */
static struct leaving **place(struct node *node, uint64_t ino) {
    struct leaving **at = &node->leaving;
    while (*at != NULL && (*at)->ino != ino) at = &(*at)->next;
    return at;
}

bool leaving_begin(struct node *node, uint64_t ino) {
    struct leaving **at = place(node, ino);
    if (*at == NULL && (*at = malloc(sizeof **at)) != NULL) **at = (struct leaving){.ino = ino};
    if (*at != NULL) (*at)->count++;
    return *at != NULL;
}

void leaving_end(struct node *node, uint64_t ino) {
    struct leaving **at = place(node, ino), *leaving = *at;
    if (leaving == NULL || --leaving->count > 0) return;
    *at = leaving->next;
    free(leaving);
    pthread_cond_broadcast(&node->left);
}

/* Workers take requests in the order in which they came: one that waits here waits for others that have begun. */
bool leaving_awaited(const struct call *call) {
    struct node *node = call->mount->node;
    uint64_t ino = call->in->ino;
    pthread_mutex_lock(&node->lock);
    bool another = *place(node, ino) != NULL && !may_wait(call);
    while (!another && *place(node, ino) != NULL) pthread_cond_wait(&node->left, &node->lock);
    pthread_mutex_unlock(&node->lock);
    if (another) work_copy(call);
    return another;
}

static void leave(struct amfs_fuse *mount, uint64_t ino, uint8_t alias, bool writing) {
    files_close(mount, ino, alias, writing);
    pthread_mutex_lock(&mount->node->lock);
    leaving_end(mount->node, ino);
    pthread_mutex_unlock(&mount->node->lock);
}

void do_release(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_release_in *in = (const void *)call->body;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    uint8_t alias = alias_of(call);
    bool writing = (in->fh & FH_WRITING) != 0;
    if ((in->fh & FH_EXPLICIT) != 0 && !may_wait(call)) {
        pthread_mutex_lock(&mount->node->lock);
        const struct file *file = files_find(mount->node, call->in->ino);
        const struct view *view = file == NULL ? NULL : files_view(file, mount, alias);
        bool peer = view != NULL && files_peer(view) && leaving_begin(mount->node, call->in->ino);
        pthread_mutex_unlock(&mount->node->lock);
        if (peer) {
            if (!work_copy(call))
                leave(mount, call->in->ino, alias, writing); /* nobody else can: who opens it again must not wait for ever */
            return;
        }
    }
    if (may_wait(call)) leave(mount, call->in->ino, alias, writing);
    else if ((in->fh & FH_EXPLICIT) != 0) files_close(mount, call->in->ino, alias, writing);
    if ((in->fh & FH_EXPLICIT) == 0) files_forget(mount, call->in->ino);
    refuse(call, 0);
}

/* ── opening ── */

void do_open(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_open_in *in = (const void *)call->body;
    struct meta_attr attr;
    struct wire_open_out out;
    if (call->size < sizeof *in) {
        refuse(call, EINVAL);
        return;
    }
    if (atomic_load_explicit(&mount->no_open, memory_order_relaxed)) {
        refuse(call, ENOSYS); /* from now on the kernel opens by itself */
        return;
    }
    if (leaving_awaited(call)) return;
    bool truncate = (in->flags & O_TRUNC) != 0, writing = (in->flags & O_ACCMODE) != O_RDONLY || truncate;
    if (!may_wait(call) && fsio_open_waits(mount->node->io, call->in->ino, truncate)) {
        work_copy(call);
        return;
    }
    pthread_mutex_lock(&mount->node->lock); /* nobody is to find it unused in between, and say that it is finished */
    int error = meta_open_here(mount->node->meta, call->in->ino, writing, &attr);
    bool here = error == 0;
    if (here) {
        struct opening opening = {.ino = attr.ino,
                                  .alias = alias_of(call),
                                  .node = -1,
                                  .size = attr.size,
                                  .atime = attr.atime,
                                  .mtime = attr.mtime,
                                  .writing = writing,
                                  .truncate = truncate,
                                  .create = attr.size == 0 || truncate,
                                  .stamp = attr.size == 0 && !truncate,
                                  .appends = writing && (in->flags & O_APPEND) != 0,
                                  .copied =
                                      meta_owner(mount->node->meta, meta_ino_partition(mount->node->meta, attr.ino)) != mount->node->id};
        error = files_open(mount, &opening, &out);
    }
    pthread_mutex_unlock(&mount->node->lock);
    if (here) {
        if (error != 0) {
            forget_unused(mount, attr.ino);
        } else {
            bool kills = truncate && (in->open_flags & OPEN_KILL_SUIDGID) != 0;
            int given = kills ? suid_clear_and_give(call, &out, sizeof out) : give(call, &out, sizeof out);
            if (given == ENOENT) files_close(mount, attr.ino, alias_of(call), writing); /* whoever asked was killed meanwhile */
            if (truncate) notify_others(mount, attr.ino, true);
            return;
        }
    }
    if (error == META_NOT_MINE || error == META_BUSY) {
        struct amfs_fuse_request *request = slow_new(call, FUSE_OP_OPEN, NULL, 0, NULL, 0);
        if (request != NULL) request->flags = in->flags;
        if (request != NULL) request->looks = truncate && (in->open_flags & OPEN_KILL_SUIDGID) != 0;
        slow_add(mount, request);
    } else {
        refuse(call, gone_by_now(error));
    }
}
