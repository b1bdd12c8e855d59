/* Digests of whole parts: taken when nobody writes the file here any more, and looked at again when somebody doubts it. */
#include "fsio_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fsio_damage {
    struct fsio_damage *next;
    uint64_t ino; /* 0: of a file of the store */
    char path[];
};

struct digests_key fsio_digests_key(const struct fsio *io, uint64_t ino) { return (struct digests_key){io->digests, ino}; }

static bool is_written(struct fsio *io, uint64_t ino) {
    int readers, writers;
    fsio_open_count(io, ino, &readers, &writers);
    return writers > 0;
}

/* The moment is before the look at the writers: one that comes later makes it forgotten. */
static int learn(struct fsio *io, uint64_t ino, int part, uint8_t digest[XXH3_BYTES]) {
    struct digests_key key = fsio_digests_key(io, ino);
    struct stat before, after;
    uint64_t moment = digests_moment(key);
    if (is_written(io, ino)) return EBUSY;
    if (fstat(part, &before) != 0) return errno;
    if (digests_get(key, &before, digest)) return 0;
    int error = digests_take(part, digest);
    if (error != 0) return error;
    if (fstat(part, &after) != 0) return errno;
    bool same =
        before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec;
    if (same) digests_put(key, &before, digest, moment);
    return same ? 0 : EAGAIN;
}

static void learn_later(void *context, uint64_t ino) {
    struct fsio *io = context;
    uint8_t digest[XXH3_BYTES];
    int part = atomic_load(&io->stopping) ? -1 : fsio_part_open(io, ino, FSIO_WHOLE, false);
    if (part < 0) return;
    (void)learn(io, ino, part, digest);
    close(part);
}

void fsio_digest_later(struct fsio *io, uint64_t ino) {
    if (io->checks) digests_later(learn_later, io, ino);
}

int fsio_digest_learn(struct fsio *io, uint64_t ino, int part, uint8_t digest[XXH3_BYTES]) { return learn(io, ino, part, digest); }

void fsio_digest_forget(struct fsio *io, uint64_t ino) {
    if (io->checks) digests_forget(fsio_digests_key(io, ino));
}

void fsio_digest_closed(struct fsio *io, uint64_t ino) {
    if (io->checks && !is_written(io, ino)) fsio_digest_later(io, ino);
}

void fsio_part_retimed(struct fsio *io, uint64_t ino, uint64_t inode, int64_t was_ns, int64_t is_ns) {
    digests_retime(fsio_digests_key(io, ino), inode, was_ns, is_ns);
}

/* ── damage ── */

static void tell_damage(struct fsio *io, uint64_t ino, const char *path) {
    size_t length = path == NULL ? 1 : strlen(path) + 1;
    struct fsio_damage *damage = malloc(sizeof *damage + length);
    if (damage == NULL) return; /* the next look finds it again */
    damage->ino = ino;
    memcpy(damage->path, path == NULL ? "" : path, length);
    pthread_mutex_lock(&io->events_lock);
    damage->next = io->damages;
    io->damages = damage;
    pthread_mutex_unlock(&io->events_lock);
    fsio_tell(io, FSIO_EVENT_DAMAGED, 0, ino, 0, EBADMSG);
}

enum digests_verdict fsio_check(struct fsio *io, struct digests_key key, int file, uint64_t ino, const char *path) {
    if (path == NULL && is_written(io, ino)) return DIGESTS_UNKNOWN;
    enum digests_verdict verdict = digests_check(key, file);
    if (verdict == DIGESTS_DAMAGED && path == NULL && is_written(io, ino)) return DIGESTS_UNKNOWN;
    if (verdict == DIGESTS_DAMAGED) tell_damage(io, path == NULL ? ino : 0, path);
    return verdict;
}

enum digests_verdict fsio_check_part(struct fsio *io, uint64_t ino, uint64_t *size) {
    struct stat found;
    uint8_t digest[XXH3_BYTES];
    int part = fsio_part_open(io, ino, FSIO_WHOLE, false);
    *size = 0;
    if (part < 0) return DIGESTS_UNKNOWN;
    if (fstat(part, &found) == 0) *size = (uint64_t)found.st_size;
    enum digests_verdict verdict = fsio_check(io, fsio_digests_key(io, ino), part, ino, NULL);
    if (verdict == DIGESTS_UNKNOWN) (void)learn(io, ino, part, digest); /* from now on it can be told */
    close(part);
    return verdict;
}

bool fsio_take_damage(struct fsio *io, uint64_t *ino, char **path) {
    pthread_mutex_lock(&io->events_lock);
    struct fsio_damage *damage = io->damages;
    if (damage != NULL) io->damages = damage->next;
    pthread_mutex_unlock(&io->events_lock);
    if (damage == NULL) return false;
    *ino = damage->ino;
    *path = strdup(damage->path);
    free(damage);
    return true;
}
