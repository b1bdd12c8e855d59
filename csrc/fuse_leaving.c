/* Files that workers are closing. Closing what lies on other nodes takes a while, and the kernel does not wait for it: who opens the file again,
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
    pthread_mutex_lock(&node->lock);
    struct leaving **at = place(node, ino);
    if (*at == NULL && (*at = malloc(sizeof **at)) != NULL) **at = (struct leaving){.ino = ino};
    bool noted = *at != NULL;
    if (noted) (*at)->count++;
    pthread_mutex_unlock(&node->lock);
    return noted;
}

void leaving_end(struct node *node, uint64_t ino) {
    pthread_mutex_lock(&node->lock);
    struct leaving **at = place(node, ino), *leaving = *at;
    if (leaving != NULL && --leaving->count == 0) {
        *at = leaving->next;
        free(leaving);
        pthread_cond_broadcast(&node->left);
    }
    pthread_mutex_unlock(&node->lock);
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
