/* The workers of a mount: threads that may wait. They call the mount's `serve` for each request. Stands on the answers. */
#include "fuse_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MAX = 16, SPARES_MAX = 4 };

struct message *fuse_message_take(struct amfs_fuse *mount) {
    pthread_mutex_lock(&mount->work_lock);
    struct message *message = mount->spare;
    if (message != NULL) {
        mount->spare = message->next;
        mount->spares--;
    }
    pthread_mutex_unlock(&mount->work_lock);
    if (message == NULL) message = malloc(sizeof *message + MESSAGE_BYTES);
    if (message != NULL) message->mount = mount;
    if (message != NULL) message->run = NULL;
    return message;
}

static void message_give(struct amfs_fuse *mount, struct message *message) {
    pthread_mutex_lock(&mount->work_lock);
    bool keep = mount->spares < SPARES_MAX;
    if (keep) {
        message->next = mount->spare;
        mount->spare = message;
        mount->spares++;
    }
    pthread_mutex_unlock(&mount->work_lock);
    if (!keep) free(message);
}

static void *work(void *argument) {
    struct amfs_fuse *mount = argument;
    char *out = malloc(MESSAGE_BYTES);
    pthread_mutex_lock(&mount->work_lock);
    while (!atomic_load(&mount->halting) || mount->work != NULL) {
        struct message *message = mount->work;
        if (message == NULL) {
            mount->idle++;
            pthread_cond_wait(&mount->work_wake, &mount->work_lock);
            mount->idle--;
            continue;
        }
        mount->work = message->next;
        if (mount->work == NULL) mount->work_tail = &mount->work;
        mount->work_count--;
        pthread_mutex_unlock(&mount->work_lock);
        const struct wire_in *in = (const void *)message->bytes;
        if (message->run != NULL) message->run(mount, message->bytes);
        else if (out == NULL) fuse_answer(mount, in->unique, ENOMEM, NULL, 0);
        else mount->above->serve(mount, message->bytes, message->size, message->since, out, true);
        if (message->run != NULL) free(message);
        else message_give(mount, message);
        pthread_mutex_lock(&mount->work_lock);
    }
    pthread_mutex_unlock(&mount->work_lock);
    free(out);
    return NULL;
}

void fuse_work_refuse(struct message *message, int error) {
    struct amfs_fuse *mount = message->mount;
    fuse_answer(mount, ((const struct wire_in *)(const void *)message->bytes)->unique, error, NULL, 0);
    message_give(mount, message);
}

bool fuse_work_add(struct amfs_fuse *mount, struct message *message) {
    pthread_mutex_lock(&mount->work_lock);
    message->next = NULL;
    *mount->work_tail = message;
    mount->work_tail = &message->next;
    mount->work_count++;
    int most = mount->options.workers > 0 && mount->options.workers < WORKERS_MAX ? mount->options.workers : WORKERS_MAX / 2;
    if (mount->work_count > mount->idle && mount->workers < most && new_thread(&mount->worker_threads[mount->workers], work, mount) == 0)
        mount->workers++;
    bool nobody = mount->workers == 0;
    if (nobody) { /* no thread to be had, not even one */
        mount->work = NULL;
        mount->work_tail = &mount->work;
        mount->work_count = 0;
    }
    pthread_cond_signal(&mount->work_wake);
    pthread_mutex_unlock(&mount->work_lock);
    if (nobody && message->run == NULL) fuse_work_refuse(message, EAGAIN);
    return !nobody;
}

bool fuse_work_do(struct amfs_fuse *mount, void (*run)(struct amfs_fuse *mount, void *bytes), const void *bytes, size_t size) {
    struct message *message = malloc(sizeof *message + size);
    if (message == NULL) return false;
    message->run = run;
    memcpy(message->bytes, bytes, size);
    bool added = fuse_work_add(mount, message);
    if (!added) free(message);
    return added;
}

struct message *fuse_work_message(const struct call *call) {
    struct amfs_fuse *mount = call->mount;
    size_t size = call->in->length;
    struct message *message = fuse_message_take(mount);
    if (message == NULL) {
        refuse(call, ENOMEM);
        return NULL;
    }
    if (size >= BULK_BYTES &&
        (const void *)call->in == (const void *)mount->inbox->bytes) { /* rather than copy much, read on into the new one */
        struct message *old = mount->inbox;
        mount->inbox = message;
        message = old;
    } else {
        memcpy(message->bytes, call->in, size);
    }
    message->size = size;
    message->since = call->since;
    return message;
}

bool fuse_work_copy(const struct call *call) {
    struct message *message = fuse_work_message(call);
    return message != NULL && fuse_work_add(call->mount, message);
}

void fuse_work_end(struct amfs_fuse *mount) {
    pthread_mutex_lock(&mount->work_lock);
    pthread_cond_broadcast(&mount->work_wake);
    pthread_mutex_unlock(&mount->work_lock);
    for (int i = 0; i < mount->workers; i++) pthread_join(mount->worker_threads[i], NULL);
    mount->workers = 0;
    while (mount->spare != NULL) {
        struct message *message = mount->spare;
        mount->spare = message->next;
        free(message);
    }
    mount->spares = 0;
    fuse_conduits_end(mount);
}
