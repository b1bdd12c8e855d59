/* Reading a part that is here without a buffer of ours: its pages go through a pipe to /dev/fuse, and the kernel copies them once, to where they
 * belong. That took a fifth less CPU time than reading and writing; with SPLICE_F_MOVE it took more, for the pages stay the part's. */
#include "fuse_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20, PAGE = 4096 }; /* as much as users may give a pipe; each of its places holds at most one page */

/* A pipe, and the header of the answer: in the pipe first, but the pipe holds its page rather than what is in it, so that the length is said when it
 * is known. The page is shared memory: a private one would be another one after a fork. */
struct conduit {
    struct conduit *next;
    int from, to;
    size_t places;
    struct wire_out *out;
};

static void conduit_free(struct conduit *conduit) {
    if (conduit->from >= 0) close(conduit->from);
    if (conduit->to >= 0) close(conduit->to);
    if (conduit->out != NULL) munmap(conduit->out, PAGE);
    free(conduit);
}

static struct conduit *conduit_new(void) {
    struct conduit *conduit = malloc(sizeof *conduit);
    int ends[2];
    if (conduit == NULL) return NULL;
    *conduit = (struct conduit){.from = -1, .to = -1};
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) conduit->out = page;
    if (page == MAP_FAILED || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        conduit_free(conduit);
        return NULL;
    }
    conduit->from = ends[0];
    conduit->to = ends[1];
    int size = fcntl(conduit->to, F_SETPIPE_SZ, PIPE_BYTES); /* refused to users who have many: then it serves for less */
    if (size < 0) size = fcntl(conduit->to, F_GETPIPE_SZ);
    conduit->places = size > 0 ? (size_t)size / PAGE : 0;
    return conduit;
}

static struct conduit *conduit_take(struct amfs_fuse *mount) {
    pthread_mutex_lock(&mount->work_lock);
    struct conduit *conduit = mount->conduits;
    if (conduit != NULL) mount->conduits = conduit->next;
    pthread_mutex_unlock(&mount->work_lock);
    return conduit != NULL ? conduit : conduit_new();
}

static void conduit_give(struct amfs_fuse *mount, struct conduit *conduit) {
    pthread_mutex_lock(&mount->work_lock);
    conduit->next = mount->conduits;
    mount->conduits = conduit;
    pthread_mutex_unlock(&mount->work_lock);
}

void conduits_end(struct amfs_fuse *mount) {
    for (struct conduit *next, *conduit = mount->conduits; conduit != NULL; conduit = next) {
        next = conduit->next;
        conduit_free(conduit);
    }
    mount->conduits = NULL;
}

static bool fill(struct conduit *conduit, uint64_t unique, int fd, size_t size, uint64_t offset) {
    struct iovec head = {conduit->out, sizeof *conduit->out};
    loff_t at = (loff_t)offset;
    size_t got = 0;
    if (vmsplice(conduit->to, &head, 1, SPLICE_F_NONBLOCK) != (ssize_t)sizeof *conduit->out) return false;
    while (got < size) {
        ssize_t more = splice(fd, &at, conduit->to, NULL, size - got, SPLICE_F_NONBLOCK);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return false;
        if (more == 0) break; /* the end, which may have come nearer since somebody asked */
        got += (size_t)more;
    }
    *conduit->out = (struct wire_out){.length = (uint32_t)(sizeof *conduit->out + got), .unique = unique};
    return true;
}

struct conduit *splice_from(const struct call *call, int fd, size_t size, uint64_t offset) {
    struct conduit *conduit = conduit_take(call->mount);
    if (conduit == NULL) return NULL;
    if (1 + (offset % PAGE + size + PAGE - 1) / PAGE > conduit->places) {
        conduit_give(call->mount, conduit);
        return NULL;
    }
    if (fill(conduit, call->in->unique, fd, size, offset)) return conduit;
    conduit_free(conduit); /* something may be left in it */
    return NULL;
}

bool splice_give(const struct call *call, struct conduit *conduit) {
    ssize_t length = (ssize_t)conduit->out->length, sent;
    while ((sent = splice(conduit->from, NULL, call->mount->fd, NULL, (size_t)length, 0)) < 0 && errno == EINTR) {}
    bool answered = sent == length || (sent < 0 && errno == ENOENT); /* ENOENT: nobody waits any more */
    if (sent == length) conduit_give(call->mount, conduit);
    else conduit_free(conduit);
    return answered;
}
