/* The metadata shard without Python, for the sanitisers: many threads at once, a crowded directory, lies in what is imported. The
 * answers of calls are checked by tests/native/test_meta_model.py. Prints "ok N checks"; a failed check ends it. */
#include "check.h"
#include "common/xxh64.h"
#include "metadata/fsmeta.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PARTITIONS = 8, THREADS = 4, ROUNDS = 20000, NAMES = 40, CROWD = 30000, LIES = 4000 };

static void check_sound(struct meta *meta) {
    char what[256];
    if (meta_check(meta, what, sizeof what) != 0) {
        fprintf(stderr, "unsound: %s\n", what);
        exit(1);
    }
    checks++;
}

static struct meta *start(int32_t node, int32_t owner) {
    struct meta *meta = meta_new(node);
    int32_t owners[PARTITIONS];
    CHECK(meta != NULL);
    for (int i = 0; i < PARTITIONS; i++) owners[i] = owner;
    CHECK(meta_set_table(meta, owners, PARTITIONS, 1) == 0);
    return meta;
}

static struct meta_attr wanted(uint32_t mode, int32_t writer) {
    return (struct meta_attr){.mode = mode, .uid = 1, .gid = 2, .writer = writer, .rank = -1};
}

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* ── many threads ── all of them on the same few names */

struct hammer {
    struct meta *meta;
    uint64_t seed;
    uint64_t dirs[2];
    atomic_bool *over;
};

static bool count_entry(void *context, const struct meta_entry *entry, const struct meta_attr *attr) {
    int *count = context;
    CHECK(entry->length > 0 && (attr == NULL || attr->ino == entry->ino));
    return ++*count < 20;
}

static void forget_lost(void *context, uint64_t ino) {
    (void)context;
    CHECK(ino != 0);
}

/* An errno that this may answer with while others do what they like. */
static bool is_calm(int error) {
    static const int calm[] = {0,      ENOENT, EEXIST, META_BUSY, META_NOT_MINE, EISDIR, EINVAL,
                               EAGAIN, EPERM,  EBUSY,  ENOTDIR,   ENOTEMPTY,     ENODATA};
    for (size_t i = 0; i < sizeof calm / sizeof *calm; i++)
        if (calm[i] == error) return true;
    return false;
}

static void act(struct hammer *hammer, uint64_t *state) {
    struct meta *meta = hammer->meta;
    struct meta_attr attr, other;
    struct meta_nodes tell = {NULL, 0, 0}, holders = {NULL, 0, 0};
    char name[32], to[32];
    uint64_t ino = 0, dir = hammer->dirs[next_random(state) % 2], to_dir = hammer->dirs[next_random(state) % 2];
    uint32_t type;
    bool gone;
    int64_t now = (int64_t)next_random(state);
    int32_t node = (int32_t)(next_random(state) % 3);
    size_t length = (size_t)snprintf(name, sizeof name, "name %u", next_random(state) % NAMES);
    size_t to_length = (size_t)snprintf(to, sizeof to, "name %u", next_random(state) % NAMES);
    int count = 0, error = meta_lookup(meta, dir, name, length, node, &ino, &type, &attr);
    CHECK(is_calm(error));
    switch (next_random(state) % 18) {
    case 0:
    case 1:
    case 2:
    case 3:
        attr = wanted(S_IFREG | 0644, next_random(state) % 2 ? node : -1);
        error = meta_create(meta, dir, name, length, now, node, NULL, false, &attr);
        break;
    case 4:
        attr = wanted(S_IFLNK | 0777, -1);
        error = meta_create(meta, dir, name, length, now, node, "where it leads", false, &attr);
        break;
    case 5:
    case 6: error = meta_unlink(meta, dir, name, length, now, &attr, &gone, &tell); break;
    case 7: error = meta_rename(meta, dir, name, length, to_dir, to, to_length, next_random(state) % 3, now, &attr, &other, &gone); break;
    case 8: error = meta_list(meta, dir, next_random(state) % 1000, count_entry, &count); break;
    case 9:
        attr = (struct meta_attr){.mode = 0600, .uid = 3, .size = 5};
        error = meta_setattr(meta, ino, META_SET_MODE | META_SET_UID, &attr, now, node, &other, &tell);
        break;
    case 10:
    case 11: error = meta_open(meta, ino, node, next_random(state) % 2, &attr, &holders, &tell); break;
    case 12:
        attr = (struct meta_attr){.size = 7, .blocks = 8, .mtime = now, .atime = now, .ctime = now};
        error = meta_wrote(meta, ino, node, &attr, &other, &tell);
        break;
    case 13: error = meta_unused(meta, ino, node, &gone); break;
    case 14: error = meta_add_holder(meta, ino, node, meta_grant(meta, ino)); break;
    case 15: error = meta_set_xattr(meta, ino, "user.thread", name, length, 0, now); break;
    case 16: error = meta_forget_node(meta, 2, forget_lost, NULL); break;
    case 17: error = meta_dir_set(meta, dir, META_SET_MODE, &(struct meta_attr){.mode = 0700}, now); break;
    default: break;
    }
    CHECK(is_calm(error));
    free(tell.nodes);
    free(holders.nodes);
}

static void *hammer_body(void *argument) {
    struct hammer *hammer = argument;
    uint64_t state = hammer->seed;
    for (int i = 0; i < ROUNDS; i++) act(hammer, &state);
    return NULL;
}

/* Beside them: exports, counts and checks, as a node does whose partitions move. */
static void *walker_body(void *argument) {
    struct hammer *hammer = argument;
    struct meta *other = start(1, 1);
    for (uint32_t i = 0; !atomic_load(hammer->over); i++) {
        struct meta_counts counts;
        uint8_t *bytes;
        size_t size;
        uint32_t partition = i % PARTITIONS;
        meta_counts(hammer->meta, &counts);
        CHECK(counts.dirs == 3);
        CHECK(meta_export(hammer->meta, partition, &bytes, &size) == 0);
        CHECK(meta_import(other, bytes, size) == 0);
        free(bytes);
        check_sound(hammer->meta);
        check_sound(other);
        CHECK(meta_drop(other, partition) == 0);
        CHECK(meta_export_dirs(hammer->meta, &bytes, &size) == 0);
        CHECK(meta_import(other, bytes, size) == 0);
        free(bytes);
    }
    meta_free(other);
    return NULL;
}

/* And the backup of it all, which is told while they work; now and then an answer is lost, or a batch is damaged on its way to a third node. */
struct telling {
    struct meta *from, *to;
    atomic_bool *over;
};

static bool tell_once(const struct telling *telling, uint64_t *state) {
    uint8_t *batch = NULL, answer[META_REFUSED_MAX];
    size_t size, count = 0;
    CHECK(meta_backup_next(telling->from, 1, &batch, &size) == 0);
    if (size == 0) return false;
    if (next_random(state) % 16 == 0) {
        struct meta *third = start(1, 0);
        int32_t nobody[PARTITIONS], owner = 0;
        uint8_t *copy = malloc(size);
        CHECK(copy != NULL);
        memcpy(copy, batch, size);
        for (int i = 0; i < PARTITIONS; i++) nobody[i] = -1;
        memset(copy + 12, 0, 8); /* it has heard of nothing yet, and takes no later batch */
        for (int i = 0; i < 3; i++) copy[24 + next_random(state) % (size - 24)] = (uint8_t)next_random(state);
        CHECK(meta_set_backups(third, nobody, PARTITIONS, &owner, 1) == 0);
        meta_backup_take(third, 0, copy, size, answer, &count);
        check_sound(third);
        meta_free(third);
        free(copy);
    }
    if (next_random(state) % 4 == 0) { /* as if the backup had asked for the last change */
        uint8_t early[4096];
        size_t bytes;
        if (meta_backup_for_asker(telling->from, 1, meta_ticket(telling->from), early, sizeof early, &bytes) && bytes > 0)
            CHECK(meta_backup_take(telling->to, 0, early, bytes, NULL, &count) == 0 && count == 0);
        if (next_random(state) % 2 == 0) meta_backup_heard(telling->from, 1, meta_backup_has(telling->to, 0));
    }
    int error = meta_backup_take(telling->to, 0, batch, size, answer, &count);
    CHECK(error == 0 && count == 0);
    free(batch);
    bool lost = next_random(state) % 8 == 0;
    CHECK(meta_backup_answered(telling->from, 1, lost ? EIO : 0, answer, count) == !lost);
    return true;
}

static void *teller_body(void *argument) {
    const struct telling *telling = argument;
    uint64_t state = 99;
    while (!atomic_load(telling->over)) tell_once(telling, &state);
    while (tell_once(telling, &state)) {}
    return NULL;
}

static struct meta *start_backup(struct meta *meta) {
    struct meta *backup = start(1, 0);
    int32_t first[PARTITIONS], nobody[PARTITIONS], owner = 0, other = 1;
    for (int i = 0; i < PARTITIONS; i++) {
        first[i] = 1;
        nobody[i] = -1;
    }
    CHECK(meta_set_backups(meta, first, PARTITIONS, &other, 1) == 0 && meta_set_backups(backup, nobody, PARTITIONS, &owner, 1) == 0);
    return backup;
}

static void check_inherits(struct meta *meta, struct meta *backup) {
    struct meta_counts had, has;
    int32_t owners[PARTITIONS];
    CHECK(meta_backed_up(meta) == meta_ticket(meta));
    check_sound(backup);
    for (int i = 0; i < PARTITIONS; i++) owners[i] = 1;
    CHECK(meta_set_table(backup, owners, PARTITIONS, 2) == 0);
    for (uint32_t i = 0; i < PARTITIONS; i++) CHECK(meta_shadow_state(backup, i) == 2 && meta_promote(backup, i) == 0);
    check_sound(backup);
    meta_counts(meta, &had);
    meta_counts(backup, &has);
    CHECK(had.inodes == has.inodes && had.entries == has.entries);
}

static void test_threads(void) {
    struct meta *meta = start(0, 0);
    uint64_t dirs[2];
    for (int i = 0; i < 2; i++) {
        struct meta_attr attr = wanted(S_IFDIR | 0755, -1);
        dirs[i] = meta_new_number(meta, (uint32_t)i);
        CHECK(meta_dir_add(meta, dirs[i], META_ROOT, i == 0 ? "left" : "right", i == 0 ? 4 : 5, &attr) == 0);
    }
    pthread_t threads[THREADS], walker, teller;
    struct hammer hammers[THREADS];
    atomic_bool over = false;
    struct telling telling = {meta, start_backup(meta), &over};
    CHECK(pthread_create(&teller, NULL, teller_body, &telling) == 0);
    for (int i = 0; i < THREADS; i++) {
        hammers[i] = (struct hammer){meta, (uint64_t)i + 1, {dirs[0], dirs[1]}, &over};
        CHECK(pthread_create(&threads[i], NULL, hammer_body, &hammers[i]) == 0);
    }
    CHECK(pthread_create(&walker, NULL, walker_body, &hammers[0]) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&over, true);
    pthread_join(walker, NULL);
    pthread_join(teller, NULL);
    check_sound(meta);
    check_inherits(meta, telling.to);
    meta_free(telling.to);
    meta_free(meta);
}

/* ── a crowded directory, emptied page by page while it is listed ── */

struct page {
    struct meta_entry entries[100];
    char names[100][16];
    int count;
    uint64_t last;
};

static bool keep_entry(void *context, const struct meta_entry *entry, const struct meta_attr *attr) {
    struct page *page = context;
    CHECK(entry->cursor > page->last && entry->cursor < (uint64_t)1 << 48);
    CHECK(attr != NULL && attr->ino == entry->ino && attr->nlink == 1);
    page->last = entry->cursor;
    page->entries[page->count] = *entry;
    memcpy(page->names[page->count], entry->name, entry->length);
    return ++page->count < 100;
}

static void test_crowd(void) {
    struct meta *meta = start(0, 0);
    struct meta_counts before, full, after;
    meta_counts(meta, &before);
    char name[16];
    for (int i = 0; i < CROWD; i++) {
        struct meta_attr attr = wanted(S_IFREG | 0644, -1);
        size_t length = (size_t)snprintf(name, sizeof name, "%d", i);
        CHECK(meta_create(meta, META_ROOT, name, length, i, 0, NULL, false, &attr) == 0);
    }
    meta_counts(meta, &full);
    CHECK(full.inodes == CROWD && full.entries == CROWD && meta_count(meta, META_ROOT) == CROWD);
    CHECK((full.bytes - before.bytes) / CROWD < 350); /* entry and inode together */
    check_sound(meta);
    /* Twice: of every other entry, then of the rest, so that the second walk goes over holes. */
    for (int turn = 0; turn < 2; turn++) {
        struct page page = {.count = 0, .last = 0};
        int seen = 0;
        for (;;) {
            page.count = 0;
            CHECK(meta_list(meta, META_ROOT, page.last, keep_entry, &page) == 0);
            if (page.count == 0) break;
            for (int i = 0; i < page.count; i++, seen++) {
                struct meta_attr left;
                struct meta_nodes tell = {NULL, 0, 0};
                bool gone;
                if (turn == 0 && seen % 2) continue;
                CHECK(meta_unlink(meta, META_ROOT, page.names[i], page.entries[i].length, 1, &left, &gone, &tell) == 0);
                CHECK(gone && left.ino == page.entries[i].ino && tell.count == 0);
                free(tell.nodes);
            }
        }
        CHECK(seen == (turn == 0 ? CROWD : CROWD / 2));
        check_sound(meta);
    }
    meta_counts(meta, &after);
    CHECK(after.inodes == 0 && after.entries == 0 && meta_count(meta, META_ROOT) == 0);
    CHECK(after.bytes < before.bytes + (1 << 20));
    meta_free(meta);
}

/* ── lies ── what is imported may say anything: it is taken whole or not at all, and leaves a sound shard */

static void test_lies(void) {
    struct meta *meta = start(0, 0);
    uint8_t *bytes[2];
    size_t sizes[2];
    uint64_t state = 99;
    struct hammer hammer = {.meta = meta, .dirs = {META_ROOT, META_ROOT}};
    uint64_t below = meta_new_number(meta, 1), deeper = meta_new_number(meta, 1);
    struct meta_attr attr = wanted(S_IFDIR | 0755, -1);
    CHECK(meta_dir_add(meta, below, META_ROOT, "below", 5, &attr) == 0 && meta_dir_add(meta, deeper, below, "deeper", 6, &attr) == 0);
    CHECK(meta_set_xattr(meta, below, "user.x", "value", 5, 0, 1) == 0);
    for (int i = 0; i < 3000; i++) act(&hammer, &state);
    CHECK(meta_lock(meta, META_ROOT, "locked", 6, 7) == 0);
    CHECK(meta_export(meta, meta_name_partition(meta, META_ROOT, "locked", 6), &bytes[0], &sizes[0]) == 0);
    CHECK(meta_export_dirs(meta, &bytes[1], &sizes[1]) == 0);
    for (int i = 0; i < LIES; i++) {
        int kind = i % 2;
        struct meta *heir = start(1, 1);
        uint8_t *lie = malloc(sizes[kind]); /* its own block: a read past the end is seen */
        CHECK(lie != NULL);
        memcpy(lie, bytes[kind], sizes[kind]);
        for (uint32_t changes = next_random(&state) % 3; changes != UINT32_MAX; changes--)
            lie[16 + next_random(&state) % (sizes[kind] - 16)] ^= (uint8_t)(1u << next_random(&state) % 8);
        CHECK(meta_import(heir, lie, sizes[kind]) == EPROTO); /* the checksum */
        uint64_t sum = amfs_xxh64(lie + 16, sizes[kind] - 16, 0);
        for (int b = 0; b < 8; b++) lie[8 + b] = (uint8_t)(sum >> (8 * b));
        int error = meta_import(heir, lie, sizes[kind]);
        CHECK(error == 0 || error == EPROTO);
        if (error != 0) {
            struct meta_counts counts;
            meta_counts(heir, &counts);
            CHECK(counts.inodes == 0 && counts.entries == 0 && counts.dirs == 1);
        }
        check_sound(heir);
        meta_free(heir);
        free(lie);
    }
    free(bytes[0]);
    free(bytes[1]);
    meta_free(meta);
}

/* A node that takes over a partition without its records gives out none of the numbers that the nodes before it gave out. */
static void test_numbers(void) {
    enum { VERSIONS = 6 };
    const uint64_t version[VERSIONS] = {2, 3, 4097, 4098, 65535, 65536};
    int32_t others[PARTITIONS], mine[PARTITIONS];
    uint64_t found[VERSIONS];
    for (int i = 0; i < PARTITIONS; i++) {
        others[i] = 7;
        mine[i] = 1;
    }
    for (int i = 0; i < VERSIONS; i++) {
        struct meta *heir = start(1, 7);
        CHECK(meta_set_table(heir, others, PARTITIONS, version[i] - 1) == 0 && meta_set_table(heir, mine, PARTITIONS, version[i]) == 0);
        found[i] = meta_new_number(heir, 0);
        CHECK(found[i] != 0 && (i == 0 || found[i] > found[i - 1]));
        meta_free(heir);
    }
    struct meta *late = start(1, 7); /* all ranges are used up: no number rather than an old one */
    CHECK(meta_set_table(late, mine, PARTITIONS, 70000) == 0 && meta_new_number(late, 0) == 0);
    meta_free(late);
}

int main(void) {
    test_threads();
    test_crowd();
    test_lies();
    test_numbers();
    return passed();
}
