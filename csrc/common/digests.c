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

#include "bytes.h"
#include "extents.h"
#include "thread.h"
#include "watch.h"

enum {
    BUCKETS = 1 << 16,
    KEPT_MAX = 1 << 20,
    QUEUED_MAX = 1 << 18,
    MOMENTS = 4096,
    ZEROS_BLOCK = 64 << 10,
    ZERO_BYTES = 4096,
    READ_BYTES = 128 << 10, /* stays in the cache of a core */
    LOOK_BYTES = 8 << 20,   /* after so many read, is it worth to go on? */
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
static atomic_bool unwanted; /* the digest that is being taken in the background is not needed any more */
static bool runs;
static pthread_t thread;

/* ── what is kept ── */

static uint64_t hash_of(struct digests_key key) { return (key.number ^ key.space << 32) * 0x9E3779B97F4A7C15u; }

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

/* Something that content hardly ever is, and how many bytes of zeros stand in its place. */
static void add_run_of_zeros(struct digests_run *run, uint64_t count) {
    uint8_t words[16] = "zeros\xff\xfe\xfd";
    put_le(words + 8, count, 8);
    xxh3_add(&run->hash, words, sizeof words);
}

static void add_zeros(struct digests_run *run, size_t count) {
    static const uint8_t zeros[ZERO_BYTES];
    for (size_t done = 0; done < count; done += ZERO_BYTES)
        xxh3_add(&run->hash, zeros, count - done < ZERO_BYTES ? count - done : ZERO_BYTES);
}

void digests_begin(struct digests_run *run) {
    *run = (struct digests_run){.zeros = 0};
    xxh3_begin(&run->hash);
}

/* Of one block. */
static void add_piece(struct digests_run *run, const uint8_t *bytes, size_t count) {
    bool zeros = !run->other && amfs_all_zero(bytes, count);
    if (zeros) run->zeros += count;
    if (!zeros && !run->other) { /* the first that is something else: the zeros at the start of this block count as they are */
        if (run->zeros > run->at) add_run_of_zeros(run, run->zeros - run->at);
        add_zeros(run, run->at);
        run->zeros = 0;
        run->other = true;
    }
    if (!zeros) xxh3_add(&run->hash, bytes, count);
    run->at += count;
    if (run->at < ZEROS_BLOCK) return;
    run->at = 0;
    run->other = false;
}

void digests_add(struct digests_run *run, const void *from, size_t count) {
    const uint8_t *bytes = from;
    for (size_t piece; count > 0; count -= piece, bytes += piece) {
        piece = count < ZEROS_BLOCK - run->at ? count : ZEROS_BLOCK - run->at;
        add_piece(run, bytes, piece);
    }
}

void digests_add_zeros(struct digests_run *run, uint64_t count) {
    if (run->other) { /* the rest of its block */
        size_t rest = count < ZEROS_BLOCK - run->at ? (size_t)count : ZEROS_BLOCK - run->at;
        add_zeros(run, rest);
        count -= rest;
        run->at = (run->at + rest) % ZEROS_BLOCK;
        run->other = run->at > 0;
    }
    run->zeros += count;
    run->at = (size_t)((run->at + count) % ZEROS_BLOCK);
}

void digests_end(struct digests_run *run, uint8_t digest[XXH3_BYTES]) {
    if (run->zeros > 0) add_run_of_zeros(run, run->zeros);
    run->zeros = 0;
    xxh3_end(&run->hash, digest);
}

/* Is there reason not to go on? */
static int look_again(int fd, const struct stat *before, const atomic_bool *stop) {
    struct stat now;
    if (stop != NULL && atomic_load(stop)) return ECANCELED;
    if (fstat(fd, &now) != 0) return errno;
    if (now.st_nlink == 0) return ENOENT;
    return now.st_size == before->st_size && ns_of(now.st_mtim) == ns_of(before->st_mtim) ? 0 : EAGAIN;
}

int digests_take(int fd, const atomic_bool *stop, uint8_t digest[XXH3_BYTES]) {
    struct digests_run run;
    struct stat before;
    uint64_t from, to, looked = 0;
    if (fstat(fd, &before) != 0) return errno;
    uint64_t size = (uint64_t)before.st_size;
    char *buffer = malloc(READ_BYTES);
    int error = buffer == NULL ? ENOMEM : 0;
    bool whole = !amfs_has_holes(&before);
    digests_begin(&run);
    for (uint64_t at = 0; error == 0 && at < size; at = to) {
        from = at;
        to = size;
        if (!whole) error = amfs_next_extent(fd, at, size, &from, &to);
        digests_add_zeros(&run, from - at);
        for (uint64_t place = from; error == 0 && place < to;) {
            ssize_t got = pread(fd, buffer, to - place < READ_BYTES ? (size_t)(to - place) : READ_BYTES, (off_t)place);
            if (got < 0 && errno != EINTR) error = errno;
            if (got == 0) error = EAGAIN; /* it has become shorter */
            if (got > 0) digests_add(&run, buffer, (size_t)got);
            if (got > 0) place += (uint64_t)got;
            looked += READ_BYTES;
            if (error == 0 && looked % LOOK_BYTES == 0) error = look_again(fd, &before, stop);
        }
    }
    free(buffer);
    if (error == 0) digests_end(&run, digest);
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

int digests_learn(struct digests_key key, int fd, const atomic_bool *stop, uint8_t digest[XXH3_BYTES]) {
    struct stat before, after;
    uint64_t moment = digests_moment(key);
    if (fstat(fd, &before) != 0) return errno;
    if (digests_get(key, &before, digest)) return 0;
    bool stays = !is_young(key, &before) && digests_writers(fd) != EAGAIN;
    int error = digests_take(fd, stop, digest);
    if (error != 0) return error;
    if (fstat(fd, &after) != 0) return errno;
    if (before.st_size != after.st_size || ns_of(before.st_mtim) != ns_of(after.st_mtim)) return EAGAIN;
    if (stays) digests_put(key, &before, digest, moment);
    return 0;
}

enum digests_verdict digests_check(struct digests_key key, int fd, const atomic_bool *stop) {
    struct stat found;
    uint8_t known[XXH3_BYTES], taken[XXH3_BYTES];
    if (fstat(fd, &found) != 0 || !digests_get(key, &found, known) || digests_take(fd, stop, taken) != 0) return DIGESTS_UNKNOWN;
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
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) (void)digests_learn(digests_key_of(&found), fd, &unwanted, digest);
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
            struct watch_entry watched = amfs_watch_begin("a digest of file", job->number);
            if (job->act != NULL) job->act(job->context, job->number, job->index);
            else learn_file(job->path);
            amfs_watch_end(watched);
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
    atomic_store(&unwanted, now == 0);
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
