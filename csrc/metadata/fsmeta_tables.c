/* Memory of the metadata shard: slabs, hash tables, sets of nodes. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

/* ── slabs ── each at a multiple of SLAB_BYTES, so a block's slab follows from its address */

struct slab {
    struct slab *next, *previous; /* of those with free blocks */
    void *free;                   /* given back, linked through their first word */
    uint32_t size, used, fresh, capacity; /* blocks from `fresh` on were never used: their pages are not touched yet */
};

enum { SLAB_HEADER = 64 };

static struct slab *map_slab(void) {
    char *region = mmap(NULL, 2 * SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) return NULL;
    size_t before = (SLAB_BYTES - (uintptr_t)region % SLAB_BYTES) % SLAB_BYTES;
    if (before > 0) munmap(region, before);
    munmap(region + before + SLAB_BYTES, SLAB_BYTES - before);
    return (struct slab *)(void *)(region + before);
}

static void open_slab(struct slabs *slabs, struct slab *slab) {
    struct slab **head = &slabs->open[slab->size / SLAB_STEP - 1];
    slab->previous = NULL;
    slab->next = *head;
    if (*head != NULL) (*head)->previous = slab;
    *head = slab;
}

static void close_slab(struct slabs *slabs, struct slab *slab) {
    if (slab->next != NULL) slab->next->previous = slab->previous;
    *(slab->previous != NULL ? &slab->previous->next : &slabs->open[slab->size / SLAB_STEP - 1]) = slab->next;
}

void *slab_take(struct slabs *slabs, size_t size) {
    size_t class = (size + SLAB_STEP - 1) / SLAB_STEP - 1;
    struct slab *slab = slabs->open[class];
    if (slab == NULL) {
        slab = map_slab();
        if (slab == NULL) return NULL;
        slab->free = NULL;
        slab->size = (uint32_t)(class + 1) * SLAB_STEP;
        slab->used = slab->fresh = 0;
        slab->capacity = (SLAB_BYTES - SLAB_HEADER) / slab->size;
        slabs->bytes += SLAB_BYTES;
        ASAN_POISON_MEMORY_REGION((char *)slab + SLAB_HEADER, SLAB_BYTES - SLAB_HEADER);
        open_slab(slabs, slab);
    }
    char *block = slab->free;
    if (block != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(block, slab->size);
        memcpy(&slab->free, block, sizeof slab->free);
    } else {
        block = (char *)slab + SLAB_HEADER + (size_t)slab->fresh++ * slab->size;
        ASAN_UNPOISON_MEMORY_REGION(block, slab->size);
    }
    if (++slab->used == slab->capacity) close_slab(slabs, slab);
    return block;
}

void slab_give(struct slabs *slabs, void *block) {
    struct slab *slab = (struct slab *)((uintptr_t)block & ~(uintptr_t)(SLAB_BYTES - 1));
    memcpy(block, &slab->free, sizeof slab->free);
    slab->free = block;
    ASAN_POISON_MEMORY_REGION(block, slab->size);
    if (slab->used-- == slab->capacity) open_slab(slabs, slab);
    /* the last one of its size stays: it will be wanted again */
    if (slab->used > 0 || (slab->next == NULL && slab->previous == NULL)) return;
    close_slab(slabs, slab);
    slabs->bytes -= SLAB_BYTES;
    ASAN_UNPOISON_MEMORY_REGION(slab, SLAB_BYTES);
    munmap(slab, SLAB_BYTES);
}

void slabs_free(struct slabs *slabs) {
    for (int class = 0; class < SLAB_CLASSES; class++) {
        struct slab *slab = slabs->open[class];
        if (slab == NULL) continue;
        ASAN_UNPOISON_MEMORY_REGION(slab, SLAB_BYTES);
        munmap(slab, SLAB_BYTES);
    }
}

/* ── tables ── linear hashing: bucket n, once it exists, takes its share of bucket n - (the power of two below) */

enum { SEGMENT = SLAB_LARGEST / sizeof(struct link *), BUCKETS_MIN = 16 };

static size_t power_below(size_t count) { /* the largest power of two that is at most count */
    return (size_t)1 << (63 - __builtin_clzll((unsigned long long)count));
}

static size_t mix(uint64_t key) {
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
    key *= 0xd6e8feb86659fd93u;
    return (size_t)(key ^ key >> 32);
}

static struct link **bucket_at(const struct table *table, size_t bucket) { return &table->segments[bucket / SEGMENT][bucket % SEGMENT]; }

static struct link **bucket_of(const struct table *table, uint64_t key) {
    size_t low = power_below(table->buckets), bucket = mix(key) & (2 * low - 1);
    return bucket_at(table, bucket < table->buckets ? bucket : bucket & (low - 1));
}

/* Empty buckets, or NULL. From the slabs, whose memory goes back to the system where malloc would keep it. */
static struct link **new_segment(struct table *table) {
    struct link **segment = slab_take(table->slabs, SEGMENT * sizeof *segment);
    if (segment != NULL) memset(segment, 0, SEGMENT * sizeof *segment);
    return segment;
}

bool table_init(struct table *table, struct slabs *slabs) {
    *table = (struct table){.slabs = slabs, .segment_room = 8, .buckets = BUCKETS_MIN};
    table->segments = malloc(table->segment_room * sizeof *table->segments);
    if (table->segments != NULL) table->segments[0] = new_segment(table);
    if (table->segments != NULL && table->segments[0] != NULL) return true;
    table->buckets = 0;
    table_free(table);
    return false;
}

void table_free(struct table *table) {
    for (size_t i = 0; i * SEGMENT < table->buckets; i++) slab_give(table->slabs, table->segments[i]);
    free(table->segments);
    *table = (struct table){.segments = NULL};
}

static struct link *same_key(struct link *link, uint64_t key) {
    while (link != NULL && link->key != key) link = link->next;
    return link;
}

struct link *table_first(const struct table *table, uint64_t key) {
    return table->count == 0 ? NULL : same_key(*bucket_of(table, key), key);
}
struct link *table_next(const struct link *link) { return same_key(link->next, link->key); }

static bool grow(struct table *table) {
    size_t segment = table->buckets / SEGMENT;
    if (table->buckets % SEGMENT == 0) {
        if (segment == table->segment_room) {
            struct link ***more = realloc(table->segments, 2 * table->segment_room * sizeof *more);
            if (more == NULL) return false;
            table->segments = more;
            table->segment_room *= 2;
        }
        table->segments[segment] = new_segment(table);
        if (table->segments[segment] == NULL) return false;
    }
    size_t added = table->buckets, low = power_below(added);
    struct link **from = bucket_at(table, added - low), **to = bucket_at(table, added);
    while (*from != NULL) {
        struct link *link = *from;
        if ((mix(link->key) & (2 * low - 1)) != added) {
            from = &link->next;
            continue;
        }
        *from = link->next;
        link->next = *to;
        *to = link;
    }
    table->buckets++;
    return true;
}

static void shrink(struct table *table) {
    size_t last = table->buckets - 1;
    struct link **from = bucket_at(table, last), **to = bucket_at(table, last - power_below(last));
    while (*to != NULL) to = &(*to)->next;
    *to = *from;
    *from = NULL;
    table->buckets = last;
    if (last % SEGMENT == 0) slab_give(table->slabs, table->segments[last / SEGMENT]);
    if (last % SEGMENT != 0 || table->segment_room <= 8 || last / SEGMENT > table->segment_room / 4) return;
    struct link ***fewer = realloc(table->segments, table->segment_room / 2 * sizeof *fewer);
    if (fewer == NULL) return;
    table->segments = fewer;
    table->segment_room /= 2;
}

void table_add(struct table *table, struct link *link) {
    if (table->count >= table->buckets) grow(table);
    struct link **bucket = bucket_of(table, link->key);
    link->next = *bucket;
    *bucket = link;
    table->count++;
}

void table_remove(struct table *table, struct link *link) {
    struct link **at = bucket_of(table, link->key);
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    table->count--;
    for (int i = 0; i < 4 && table->buckets > BUCKETS_MIN && table->count < table->buckets / 4; i++) shrink(table);
}

void table_sift(struct table *table, bool (*visit)(void *context, struct link *link), void *context) {
    for (size_t i = 0; i < table->buckets; i++)
        for (struct link **at = bucket_at(table, i); *at != NULL;) {
            struct link *link = *at, *next = link->next;
            if (visit(context, link)) {
                *at = next;
                table->count--;
            } else {
                at = &link->next;
            }
        }
    while (table->buckets > BUCKETS_MIN && table->count < table->buckets / 4) shrink(table);
}

uint64_t table_bytes(const struct table *table) { return table->segment_room * sizeof *table->segments; }

/* ── sets of nodes ── a number: 0; node << 1 | 1; or the address of these, two or more */

struct many {
    uint32_t count, room;
    int32_t nodes[]; /* ascending */
};

static struct many *many_of(node_set set) { return (struct many *)(uintptr_t)set; }
static int32_t single_of(node_set set) { return (int32_t)(set >> 1); }
static node_set single(int32_t node) { return (node_set)(uint32_t)node << 1 | 1; }

size_t set_count(node_set set) { return set == 0 ? 0 : set & 1 ? 1 : many_of(set)->count; }
int32_t set_at(node_set set, size_t index) { return set & 1 ? single_of(set) : many_of(set)->nodes[index]; }

/* Index of the first that is not below `node`. */
static uint32_t place(const struct many *many, int32_t node) {
    uint32_t low = 0, high = many->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (many->nodes[middle] < node) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool set_has(node_set set, int32_t node) {
    if (set == 0 || set & 1) return set != 0 && single_of(set) == node;
    uint32_t at = place(many_of(set), node);
    return at < many_of(set)->count && many_of(set)->nodes[at] == node;
}

bool set_only(node_set set, int32_t node) { return set == 0 || (set_count(set) == 1 && set_at(set, 0) == node); }

int set_add(node_set *set, int32_t node) {
    if (set_has(*set, node)) return 0;
    if (*set == 0) {
        *set = single(node);
        return 0;
    }
    struct many *many = *set & 1 ? NULL : many_of(*set);
    if (many == NULL || many->count == many->room) {
        uint32_t room = many == NULL ? 4 : 2 * many->room;
        struct many *larger = realloc(many, sizeof *many + room * sizeof *many->nodes);
        if (larger == NULL) return ENOMEM;
        if (many == NULL) {
            larger->count = 1;
            larger->nodes[0] = single_of(*set);
        }
        larger->room = room;
        many = larger;
        *set = (node_set)(uintptr_t)many;
    }
    uint32_t at = place(many, node);
    memmove(&many->nodes[at + 1], &many->nodes[at], (many->count - at) * sizeof *many->nodes);
    many->nodes[at] = node;
    many->count++;
    return 0;
}

void set_remove(node_set *set, int32_t node) {
    if (!set_has(*set, node)) return;
    if (*set & 1) {
        *set = 0;
        return;
    }
    struct many *many = many_of(*set);
    uint32_t at = place(many, node);
    memmove(&many->nodes[at], &many->nodes[at + 1], (many->count - at - 1) * sizeof *many->nodes);
    if (--many->count > 1) return;
    *set = single(many->nodes[0]);
    free(many);
}

void set_clear(node_set *set) {
    if (*set != 0 && !(*set & 1)) free(many_of(*set));
    *set = 0;
}

bool set_sound(node_set set) {
    if (set == 0 || set & 1) return true;
    const struct many *many = many_of(set);
    bool sound = many->count >= 2 && many->count <= many->room;
    for (uint32_t i = 1; sound && i < many->count; i++) sound = many->nodes[i - 1] < many->nodes[i];
    return sound;
}

int nodes_reserve(struct meta_nodes *nodes, size_t more) {
    if (nodes->room - nodes->count >= more) return 0;
    size_t room = nodes->count + more < 8 ? 8 : 2 * (nodes->count + more);
    int32_t *larger = realloc(nodes->nodes, room * sizeof *larger);
    if (larger == NULL) return ENOMEM;
    nodes->nodes = larger;
    nodes->room = room;
    return 0;
}

void nodes_add(struct meta_nodes *nodes, int32_t node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->nodes[i] == node) return;
    nodes->nodes[nodes->count++] = node;
}
