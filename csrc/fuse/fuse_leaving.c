/* Files that are being closed. That takes a while if they lie on other nodes, and the kernel does not wait for it: a request that opens the file again, or sets
 * its size, waits here, as it must not overtake the news of what was written. Stands on the workers. */
#include "fuse_internal.h"

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

bool fuse_closing_begin(struct node *node, uint64_t ino) {
    struct leaving **at = place(node, ino);
    if (*at == NULL && (*at = malloc(sizeof **at)) != NULL) **at = (struct leaving){.ino = ino};
    if (*at != NULL) (*at)->count++;
    return *at != NULL;
}

void fuse_closing_end(struct node *node, uint64_t ino) {
    struct leaving **at = place(node, ino), *leaving = *at;
    if (leaving == NULL || --leaving->count > 0) return;
    *at = leaving->next;
    free(leaving);
    pthread_cond_broadcast(&node->left);
}

/* Workers take requests in the order in which they came: one that waits here waits for others that have begun. */
bool fuse_closing_awaited(const struct call *call) {
    struct node *node = call->mount->node;
    uint64_t ino = call->in->ino;
    pthread_mutex_lock(&node->lock);
    bool another = *place(node, ino) != NULL && !may_wait(call);
    while (!another && *place(node, ino) != NULL) pthread_cond_wait(&node->left, &node->lock);
    pthread_mutex_unlock(&node->lock);
    if (another) fuse_work_copy(call);
    return another;
}
