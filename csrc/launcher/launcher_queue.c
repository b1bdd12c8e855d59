/* The lists of the launcher, which its callers and its thread share under one lock: tasks that wait, completions, contexts. */
#include "launcher_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void amfs_launcher_signal(amfs_launcher *launcher) {
    static const uint64_t one = 1;
    if (launcher->signalled) return;
    launcher->signalled = true;
    while (write(launcher->done_fd, &one, sizeof one) < 0 && errno == EINTR) {}
}

void amfs_launcher_append(amfs_launcher *launcher, amfs_completion *completion) {
    completion->next = NULL;
    if (launcher->done_tail != NULL) launcher->done_tail->next = completion;
    else launcher->done_head = completion;
    launcher->done_tail = completion;
    launcher->done_count++;
}

void amfs_launcher_unlink(amfs_launcher *launcher, amfs_task *task) {
    if (task->previous != NULL) task->previous->next = task->next;
    else launcher->head = task->next;
    if (task->next != NULL) task->next->previous = task->previous;
    else launcher->tail = task->previous;
    task->next = task->previous = NULL;
    launcher->queued--;
}

void amfs_context_release(amfs_context *context) {
    if (context != NULL && --context->references == 0) {
        free(context->base);
        free(context->env);
        free(context);
    }
}

int amfs_compare_serials(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}
