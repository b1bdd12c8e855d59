/* Files that are being closed. Closing what lies on other nodes takes a while, and the kernel does not wait for it: who opens the file again,
 * or sets its size, must not overtake the news of what was written to it. */
#include "fuse_private.h"

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
        bool far = view != NULL && files_far(view) && leaving_begin(mount->node, call->in->ino);
        pthread_mutex_unlock(&mount->node->lock);
        if (far) {
            if (!work_copy(call)) leave(mount, call->in->ino, alias, writing); /* nobody else can: who opens it again must not wait for ever */
            return;
        }
    }
    if (may_wait(call)) leave(mount, call->in->ino, alias, writing);
    else if ((in->fh & FH_EXPLICIT) != 0) files_close(mount, call->in->ino, alias, writing);
    if ((in->fh & FH_EXPLICIT) == 0) files_forget(mount, call->in->ino);
    refuse(call, 0);
}
