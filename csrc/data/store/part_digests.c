/* Digests of parts: taken when nobody writes the part here any more, and looked at again when somebody doubts it.
 *
 * A whole part is written by who has it open, here or by a mount to which the kernel passes it (fsio_writing_begins), or has it mapped.
 * Stripes are changed piece by piece, for writers anywhere: each change says when it begins, which forgets the digest, and when it ends. A
 * digest is taken between changes: the moment is noted first, then nobody may be changing the part, and a change that begins later moves
 * the moment on, so that the digest is not kept. So while a digest stands nothing has changed since. */
#include "store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHECKED_BYTES = 64 << 20 }; /* in one call, about */
static const int64_t YOUNG_NS = 500000000;

struct fsio_damage {
    struct fsio_damage *next;
    uint64_t ino; /* 0: of a file of the store */
    int64_t index;
    char path[];
};

/* A number that two stripes share is no harm: a digest counts only for a file of the same inode number, size and time. */
struct digests_key fsio_digests_key(const struct fsio *io, uint64_t ino, int64_t index) {
    if (index == FSIO_WHOLE) return (struct digests_key){io->store->digests, ino};
    return (struct digests_key){io->store->stripe_digests, ino * 0x9E3779B97F4A7C15u + (uint64_t)index};
}

static size_t place_of(const struct fsio *io, uint64_t ino, int64_t index) {
    return fsio_digests_key(io, ino, index).number * 0x9E3779B97F4A7C15u >> 40 & (FSIO_CHANGING - 1);
}

static atomic_int *changing(struct fsio *io, uint64_t ino, int64_t index) {
    if (index == FSIO_WHOLE) return &io->store->writing[ino * 0x9E3779B97F4A7C15u >> 40 & (FSIO_WRITTEN - 1)];
    return &io->store->stripe_changes[place_of(io, ino, index)];
}

static bool is_written(struct fsio *io, uint64_t ino, int64_t index) {
    if (atomic_load(changing(io, ino, index)) > 0) return true;
    if (index != FSIO_WHOLE) return false;
    struct open_record record = opens_look(io->opens, ino);
    return open_data_writes(&record);
}

/* The moment is before the look at the writers: one that comes later makes it forgotten. */
int fsio_digest_learn(struct fsio *io, uint64_t ino, int64_t index, int part, uint8_t digest[XXH3_BYTES]) {
    struct digests_key key = fsio_digests_key(io, ino, index);
    struct stat before, after;
    uint64_t moment = digests_moment(key);
    if (is_written(io, ino, index)) return EBUSY;
    if (fstat(part, &before) != 0) return errno;
    if (digests_get(key, &before, digest)) return 0;
    if (index == FSIO_WHOLE && digests_writers(part) != 0) return EBUSY;
    int error = digests_take(part, &io->stopping, digest);
    if (error != 0) return error;
    if (fstat(part, &after) != 0) return errno;
    bool same =
        before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec;
    if (same) digests_put(key, &before, digest, moment);
    return same ? 0 : EAGAIN;
}

static bool is_young(int part) {
    struct stat found;
    struct data_stat stat;
    if (fstat(part, &found) != 0) return false;
    fsio_to_stat(&found, &stat);
    int64_t age = fsio_now_ns() - stat.mtime;
    return age >= 0 && age < YOUNG_NS;
}

/* A stripe may be changed again and again: it is left alone until that has been over for a while. */
static void learn_later(void *context, uint64_t ino, int64_t index) {
    struct fsio *io = context;
    uint8_t digest[XXH3_BYTES];
    uint64_t number = fsio_digests_key(io, ino, index).number;
    if (index != FSIO_WHOLE) (void)atomic_compare_exchange_strong(&io->store->stripes_queued[place_of(io, ino, index)], &number, 0);
    if (atomic_load(&io->stopping)) return;
    fsio_look_begins(io, ino);
    int part = fsio_part_open(io, ino, index, PART_READ);
    bool young = part >= 0 && index != FSIO_WHOLE && is_young(part);
    bool again = young || (part >= 0 && fsio_digest_learn(io, ino, index, part, digest) == EBUSY && index != FSIO_WHOLE);
    if (part >= 0) close(part);
    fsio_look_ends(io);
    if (again) fsio_digest_later(io, ino, index);
}

void fsio_digest_later(struct fsio *io, uint64_t ino, int64_t index) {
    uint64_t number = fsio_digests_key(io, ino, index).number;
    if (!io->store->checks) return;
    if (index != FSIO_WHOLE && atomic_exchange(&io->store->stripes_queued[place_of(io, ino, index)], number) == number) return;
    digests_later(learn_later, io, ino, index);
}

void fsio_digest_forget(struct fsio *io, uint64_t ino) {
    if (io->store->checks) digests_forget(fsio_digests_key(io, ino, FSIO_WHOLE));
}

void fsio_digest_closed(struct fsio *io, uint64_t ino) {
    if (io->store->checks && !is_written(io, ino, FSIO_WHOLE)) fsio_digest_later(io, ino, FSIO_WHOLE);
}

void fsio_writing_begins(struct fsio *io, uint64_t ino) {
    if (!io->store->checks) return;
    atomic_fetch_add(changing(io, ino, FSIO_WHOLE), 1);
    fsio_digest_forget(io, ino);
}

void fsio_writing_ends(struct fsio *io, uint64_t ino) {
    if (!io->store->checks) return;
    fsio_digest_forget(io, ino);
    atomic_fetch_sub(changing(io, ino, FSIO_WHOLE), 1);
    fsio_digest_closed(io, ino);
}

bool fsio_is_writable(struct fsio *io, uint64_t ino) {
    char name[FSIO_NAME_BYTES];
    fsio_part_name(ino, FSIO_WHOLE, name);
    int part = openat(io->store->root_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool writable = part >= 0 && digests_writers(part) == EAGAIN;
    if (part >= 0) close(part);
    return writable;
}

void fsio_stripe_changes(struct fsio *io, uint64_t ino, uint64_t index) {
    if (!io->store->checks) return;
    atomic_fetch_add(changing(io, ino, (int64_t)index), 1);
    digests_forget(fsio_digests_key(io, ino, (int64_t)index));
}

void fsio_stripe_changed(struct fsio *io, uint64_t ino, uint64_t index) {
    if (!io->store->checks) return;
    atomic_fetch_sub(changing(io, ino, (int64_t)index), 1);
    fsio_digest_later(io, ino, (int64_t)index);
}

void fsio_part_retimed(struct fsio *io, uint64_t ino, uint64_t inode, int64_t was_ns, int64_t is_ns) {
    digests_retime(fsio_digests_key(io, ino, FSIO_WHOLE), inode, was_ns, is_ns);
}

/* ── damage ── */

void fsio_tell_damage(struct fsio *io, uint64_t ino, int64_t index, const char *path) {
    size_t length = path == NULL ? 1 : strlen(path) + 1;
    struct fsio_damage *damage = malloc(sizeof *damage + length);
    if (damage == NULL) return; /* the next look finds it again */
    damage->ino = ino;
    damage->index = index;
    memcpy(damage->path, path == NULL ? "" : path, length);
    pthread_mutex_lock(&io->events_lock);
    damage->next = io->store->damages;
    io->store->damages = damage;
    pthread_mutex_unlock(&io->events_lock);
    fsio_tell(io, FSIO_EVENT_DAMAGED, 0, ino, 0, EBADMSG);
}

static enum digests_verdict look_at(struct fsio *io, int file, uint64_t ino, int64_t index, const char *path) {
    struct stat found;
    if (path == NULL && is_written(io, ino, index)) return DIGESTS_UNKNOWN;
    if (path != NULL && fstat(file, &found) != 0) return DIGESTS_UNKNOWN;
    enum digests_verdict verdict =
        digests_check(path == NULL ? fsio_digests_key(io, ino, index) : digests_key_of(&found), file, &io->stopping);
    if (verdict == DIGESTS_DAMAGED && path == NULL && is_written(io, ino, index)) return DIGESTS_UNKNOWN;
    return verdict;
}

enum digests_verdict fsio_check(struct fsio *io, int file, uint64_t ino, int64_t index, const char *path) {
    enum digests_verdict verdict = look_at(io, file, ino, index, path);
    if (verdict == DIGESTS_DAMAGED) fsio_tell_damage(io, path == NULL ? ino : 0, index, path);
    return verdict;
}

enum digests_verdict fsio_check_part(struct fsio *io, uint64_t ino, int64_t index, uint64_t *size) {
    struct stat found;
    uint8_t digest[XXH3_BYTES];
    int part = fsio_part_open(io, ino, index, PART_READ);
    *size = 0;
    if (part < 0) return DIGESTS_UNKNOWN;
    if (fstat(part, &found) == 0) *size = (uint64_t)found.st_size;
    enum digests_verdict verdict = (index == FSIO_WHOLE ? fsio_check : look_at)(io, part, ino, index, NULL);
    if (verdict == DIGESTS_UNKNOWN && io->store->checks)
        (void)fsio_digest_learn(io, ino, index, part, digest); /* from now on it can be told */
    close(part);
    return verdict;
}

int fsio_part_digest(struct fsio *io, uint64_t ino, uint8_t digest[XXH3_BYTES]) {
    int part = fsio_part_open(io, ino, FSIO_WHOLE, PART_READ);
    if (part < 0) return -part;
    int error = fsio_digest_learn(io, ino, FSIO_WHOLE, part, digest);
    close(part);
    return error == EAGAIN ? EBUSY : error;
}

struct fsio_checked fsio_check_stripes(struct fsio *io, uint64_t ino, uint64_t from) {
    uint64_t end = fsio_stripes_end(io, ino), size;
    struct fsio_checked found = {.next = from, .bad = -1};
    while (found.next < end && found.size < CHECKED_BYTES && found.bad < 0) {
        uint64_t index = fsio_stripes_next(io, ino, found.next);
        found.next = index < end ? index + 1 : end;
        if (index >= end) break;
        enum digests_verdict verdict = fsio_check_part(io, ino, (int64_t)index, &size);
        found.stripes++;
        found.size += size;
        found.unknown += verdict == DIGESTS_UNKNOWN;
        if (verdict == DIGESTS_DAMAGED) found.bad = (int64_t)index;
    }
    found.more = found.next < end;
    return found;
}

bool fsio_take_damage(struct fsio *io, uint64_t *ino, int64_t *index, char **path) {
    pthread_mutex_lock(&io->events_lock);
    struct fsio_damage *damage = io->store->damages;
    if (damage != NULL) io->store->damages = damage->next;
    pthread_mutex_unlock(&io->events_lock);
    if (damage == NULL) return false;
    *ino = damage->ino;
    *index = damage->index;
    *path = strdup(damage->path);
    free(damage);
    return true;
}
