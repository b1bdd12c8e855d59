#include "digests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/thread.h"

enum {
    BUCKETS = 1 << 16,
    KEPT_MAX = 1 << 20,
    QUEUED_MAX = 1 << 18,
    MOMENTS = 4096,
    READ_BYTES = 128 << 10, /* stays in the cache of a core */
    PAUSE_MS = 20,          /* after which what was queued is taken: a file that is written again at once is not taken twice */
    YOUNG_NS = 20000000,    /* a time of modification so close to now says nothing: a write after it may get the same */
};

struct entry {
    struct entry *next;          /* in its bucket */
    struct entry *older, *newer; /* all of them */
    struct digests_key key;
    uint64_t inode, size;
    int64_t mtime;
    uint8_t digest[XXH3_BYTES];
};

struct job {
    struct job *next;
    void (*act)(void *context, uint64_t number, int64_t index); /* NULL: the file `path` */
    void *context;
    uint64_t number;
    int64_t index;
    char path[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *buckets[BUCKETS], *oldest, *newest;
static size_t kept;
static _Atomic uint64_t moments[MOMENTS];

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_changed = PTHREAD_COND_INITIALIZER;
static struct job *queue_head, **queue_tail = &queue_head;
static size_t queued;
static const void *working_for; /* the context of the job under way */
static atomic_int wanted;
static bool runs;
static pthread_t thread;

/* ── what is kept ── */

static uint64_t hash_of(struct digests_key key) { return (key.number ^ key.space << 32) * 0x9E3779B97F4A7C15u; }

static int64_t ns_of(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

struct digests_key digests_key_of(const struct stat *found) {
    return (struct digests_key){(uint64_t)found->st_dev, (uint64_t)found->st_ino};
}

uint64_t digests_space(void) {
    static _Atomic uint64_t last;
    return UINT64_C(1) << 63 | atomic_fetch_add(&last, 1); /* no device has such a number */
}

static _Atomic uint64_t *moment_of(struct digests_key key) { return &moments[hash_of(key) >> 40 & (MOMENTS - 1)]; }

uint64_t digests_moment(struct digests_key key) { return atomic_load(moment_of(key)); }

/* With the lock held: the place where the entry stands, or would. */
static struct entry **find(struct digests_key key) {
    struct entry **at = &buckets[hash_of(key) >> 40 & (BUCKETS - 1)];
    while (*at != NULL && ((*at)->key.number != key.number || (*at)->key.space != key.space)) at = &(*at)->next;
    return at;
}

static void unlink_entry(struct entry **at) {
    struct entry *entry = *at;
    *at = entry->next;
    *(entry->older != NULL ? &entry->older->newer : &oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &newest) = entry->older;
    kept--;
    free(entry);
}

static bool counts(const struct entry *entry, const struct stat *found) {
    return entry->inode == (uint64_t)found->st_ino && entry->size == (uint64_t)found->st_size && entry->mtime == ns_of(found->st_mtim);
}

bool digests_get(struct digests_key key, const struct stat *found, uint8_t digest[XXH3_BYTES]) {
    pthread_mutex_lock(&lock);
    const struct entry *entry = *find(key);
    bool known = entry != NULL && counts(entry, found);
    if (known) memcpy(digest, entry->digest, XXH3_BYTES);
    pthread_mutex_unlock(&lock);
    return known;
}

void digests_forget(struct digests_key key) {
    pthread_mutex_lock(&lock);
    atomic_fetch_add(moment_of(key), 1);
    struct entry **at = find(key);
    if (*at != NULL) unlink_entry(at);
    pthread_mutex_unlock(&lock);
}

void digests_put(struct digests_key key, const struct stat *found, const uint8_t digest[XXH3_BYTES], uint64_t moment) {
    struct entry *made = malloc(sizeof *made);
    if (made == NULL) return; /* one digest less */
    *made = (struct entry){.key = key, .inode = (uint64_t)found->st_ino, .size = (uint64_t)found->st_size, .mtime = ns_of(found->st_mtim)};
    memcpy(made->digest, digest, XXH3_BYTES);
    pthread_mutex_lock(&lock);
    if (atomic_load(moment_of(key)) != moment) {
        free(made);
    } else {
        struct entry **at = find(key);
        if (*at != NULL) unlink_entry(at);
        if (kept >= KEPT_MAX) unlink_entry(find(oldest->key));
        at = find(key);
        made->older = newest;
        *(newest != NULL ? &newest->newer : &oldest) = made;
        newest = *at = made;
        kept++;
    }
    pthread_mutex_unlock(&lock);
}

void digests_retime(struct digests_key key, uint64_t inode, int64_t was_ns, int64_t is_ns) {
    pthread_mutex_lock(&lock);
    struct entry *entry = *find(key);
    if (entry != NULL && entry->inode == inode && entry->mtime == was_ns) entry->mtime = is_ns;
    pthread_mutex_unlock(&lock);
}

/* ── taking them ── */

int digests_take(int fd, uint8_t digest[XXH3_BYTES]) {
    struct xxh3 state;
    char *buffer = malloc(READ_BYTES);
    int error = buffer == NULL ? ENOMEM : 0;
    xxh3_begin(&state);
    for (off_t at = 0; error == 0;) {
        ssize_t got = pread(fd, buffer, READ_BYTES, at);
        if (got < 0 && errno != EINTR) error = errno;
        if (got == 0) break;
        if (got > 0) xxh3_add(&state, buffer, (size_t)got);
        if (got > 0) at += got;
    }
    free(buffer);
    if (error == 0) xxh3_end(&state, digest);
    return error;
}

static bool is_young(struct digests_key key, const struct stat *found) {
    struct timespec now;
    if (key.space >> 63) return false; /* a part: writers are told of */
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = ns_of(now) - ns_of(found->st_mtim);
    return age > -YOUNG_NS && age < YOUNG_NS;
}

/* A read lease is given only on a file that nobody has open for writing; a mapping keeps open what it was made of. A process that opens
 * the file in this moment waits until the lease is given back, and this one is sent SIGURG, which it ignores. */
int digests_writers(int fd) {
    (void)fcntl(fd, F_SETSIG, SIGURG);
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0) return errno;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return 0;
}

int digests_learn(struct digests_key key, int fd, uint8_t digest[XXH3_BYTES]) {
    struct stat before, after;
    uint64_t moment = digests_moment(key);
    if (fstat(fd, &before) != 0) return errno;
    if (digests_get(key, &before, digest)) return 0;
    bool stays = !is_young(key, &before) && digests_writers(fd) != EAGAIN;
    int error = digests_take(fd, digest);
    if (error != 0) return error;
    if (fstat(fd, &after) != 0) return errno;
    if (before.st_size != after.st_size || ns_of(before.st_mtim) != ns_of(after.st_mtim)) return EAGAIN;
    if (stays) digests_put(key, &before, digest, moment);
    return 0;
}

enum digests_verdict digests_check(struct digests_key key, int fd) {
    struct stat found;
    uint8_t known[XXH3_BYTES], taken[XXH3_BYTES];
    if (fstat(fd, &found) != 0 || !digests_get(key, &found, known) || digests_take(fd, taken) != 0) return DIGESTS_UNKNOWN;
    if (memcmp(known, taken, sizeof known) == 0) return DIGESTS_FINE;
    /* It may have been changed meanwhile, or be writable without a word. */
    if (digests_writers(fd) == EAGAIN) return DIGESTS_UNKNOWN;
    return fstat(fd, &found) == 0 && digests_get(key, &found, taken) && memcmp(known, taken, sizeof known) == 0 ? DIGESTS_DAMAGED
                                                                                                                : DIGESTS_UNKNOWN;
}

/* ── in the background ── */

static void learn_file(const char *path) {
    uint8_t digest[XXH3_BYTES];
    struct stat found;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) (void)digests_learn(digests_key_of(&found), fd, digest);
    close(fd);
}

/* With the queue's lock held. */
static void pause_ms(long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += milliseconds * 1000000;
    if (until.tv_nsec >= 1000000000) until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
    while (atomic_load(&wanted) > 0 && pthread_cond_timedwait(&queue_changed, &queue_lock, &until) == 0) {}
}

static void *work(void *unused) {
    (void)unused;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* of this thread alone */
    pthread_mutex_lock(&queue_lock);
    while (atomic_load(&wanted) > 0) {
        if (queue_head == NULL) {
            pthread_cond_wait(&queue_changed, &queue_lock);
            continue;
        }
        pause_ms(PAUSE_MS + 5);
        for (size_t batch = queued; batch > 0 && queue_head != NULL && atomic_load(&wanted) > 0; batch--) {
            struct job *job = queue_head;
            queue_head = job->next;
            if (queue_head == NULL) queue_tail = &queue_head;
            queued--;
            working_for = job->context;
            pthread_mutex_unlock(&queue_lock);
            if (job->act != NULL) job->act(job->context, job->number, job->index);
            else learn_file(job->path);
            free(job);
            pthread_mutex_lock(&queue_lock);
            working_for = NULL;
            pthread_cond_broadcast(&queue_changed);
        }
    }
    pthread_mutex_unlock(&queue_lock);
    return NULL;
}

static void enqueue(const struct job *wish, const char *path) {
    if (atomic_load(&wanted) <= 0) return;
    size_t length = path == NULL ? 0 : strlen(path) + 1;
    struct job *job = malloc(sizeof *job + length);
    if (job == NULL) return;
    *job = *wish;
    if (length > 0) memcpy(job->path, path, length);
    pthread_mutex_lock(&queue_lock);
    if (queued >= QUEUED_MAX) {
        free(job); /* taken when it is asked for */
    } else {
        bool first = queue_head == NULL;
        *queue_tail = job;
        queue_tail = &job->next;
        queued++;
        if (first) pthread_cond_broadcast(&queue_changed);
    }
    pthread_mutex_unlock(&queue_lock);
}

void digests_later_file(const char *path) { enqueue(&(struct job){.act = NULL}, path); }

void digests_later(void (*act)(void *context, uint64_t number, int64_t index), void *context, uint64_t number, int64_t index) {
    enqueue(&(struct job){.act = act, .context = context, .number = number, .index = index}, NULL);
}

void digests_leave(const void *context) {
    pthread_mutex_lock(&queue_lock);
    for (struct job **at = &queue_head; *at != NULL;) {
        struct job *job = *at;
        if (job->act == NULL || job->context != context) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        if (*at == NULL) queue_tail = at;
        queued--;
        free(job);
    }
    while (working_for == context) pthread_cond_wait(&queue_changed, &queue_lock);
    pthread_mutex_unlock(&queue_lock);
}

void digests_want(int by) {
    pthread_mutex_lock(&queue_lock);
    int now = atomic_fetch_add(&wanted, by) + by;
    bool end = now == 0 && runs;
    if (now > 0 && !runs) runs = new_thread(&thread, work, NULL) == 0;
    if (end) runs = false;
    pthread_t ending = thread;
    pthread_cond_broadcast(&queue_changed);
    pthread_mutex_unlock(&queue_lock);
    if (!end) return;
    pthread_join(ending, NULL);
    pthread_mutex_lock(&queue_lock);
    for (struct job *job = queue_head, *next; job != NULL; job = next) {
        next = job->next;
        free(job);
    }
    queue_head = NULL;
    queue_tail = &queue_head;
    queued = 0;
    pthread_mutex_unlock(&queue_lock);
}
