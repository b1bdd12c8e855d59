/* The metadata shard: partitions that move to another node, and all directories for a node that joins.
 *
 * What is exported, little-endian:
 *   u32 magic, u16 format, u16 kind, u64 XXH64 of the rest; for a partition: u64 partition, u64 last serial number given out in it,
 *   u8 1: names of it were lost with their nodes
 *   records, each begun by a byte that says which, and a zero byte:
 *     E  entry       u64 directory, u64 inode, u32 type, name, nodes (watchers)
 *     L  lock        u64 directory, u64 owner, name
 *     I  inode       u64 number, u32 mode, links, uid, gid, rdev, stripe, u8 layout, u8 lost, u8 copies, i32 writer, rank, u64 size, blocks,
 *                    i64 atime, mtime, ctime, u64 pending,
 *                    nodes (holders, users, watchers), u32 length and target, attributes
 *     D  directory   u64 number, parent, u32 mode, uid, gid, i32 rank, u64 size, blocks, i64 atime, mtime, ctime, u8 layout, u8 copies, u32 stripe,
 *                    u8 frozen, name, attributes; parents before their children
 *   name: u16 length, bytes. nodes: u32 count, i32 each, ascending. attributes: u32 count; of each: name, u32 size, value.
 *
 * The exporting node becomes a watcher of all that it gives away: it may have it in its caches. */
#include "fsmeta_records.h"

#include "common/xxh64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC = 0x4d464d41, /* "AMFM" */
    FORMAT = 5,
    KIND_PARTITION = 1,
    KIND_DIRS = 2,
    HEADER_BYTES = 16,
};

/* ── writing ── */

static void put_dir(struct out *out, const struct dir *dir) {
    fsmeta_put(out, 'D', 1);
    fsmeta_put(out, dir->link.key, 8);
    fsmeta_put(out, dir->parent->link.key, 8);
    fsmeta_put(out, dir->mode, 4);
    fsmeta_put(out, dir->uid, 4);
    fsmeta_put(out, dir->gid, 4);
    fsmeta_put(out, (uint32_t)dir->rank, 4);
    const uint64_t longs[] = {dir->size, dir->blocks, (uint64_t)dir->atime, (uint64_t)dir->mtime, (uint64_t)dir->ctime};
    for (size_t i = 0; i < 5; i++) fsmeta_put(out, longs[i], 8);
    fsmeta_put(out, dir->layout, 1);
    fsmeta_put(out, dir->copies, 1);
    fsmeta_put(out, dir->stripe, 4);
    fsmeta_put(out, dir->frozen, 1);
    fsmeta_put_name(out, dir->name, dir->length);
    fsmeta_put_xattrs(out, dir->xattrs);
}

static void begin(struct out *out, unsigned kind) {
    fsmeta_put(out, MAGIC, 4);
    fsmeta_put(out, FORMAT, 2);
    fsmeta_put(out, kind, 2);
    fsmeta_put(out, 0, 8); /* the checksum, when all is there */
}

static int finish(struct out *out, uint8_t **bytes, size_t *size) {
    fsmeta_put(out, 0, 1);
    if (out->failed) {
        free(out->bytes);
        return ENOMEM;
    }
    uint64_t sum = amfs_xxh64(out->bytes + HEADER_BYTES, out->size - HEADER_BYTES, 0);
    for (int i = 0; i < 8; i++) out->bytes[8 + i] = (uint8_t)(sum >> (8 * i));
    *bytes = out->bytes;
    *size = out->size;
    return 0;
}

int meta_export(struct meta *meta, uint32_t partition, uint8_t **bytes, size_t *size) {
    struct out out = {.meta = meta, .partition = partition};
    enter(meta);
    if (partition >= atomic_load(&meta->partitions)) return leave(meta, EINVAL);
    begin(&out, KIND_PARTITION);
    fsmeta_put(&out, partition, 8);
    fsmeta_put(&out, meta->serials[partition], 8);
    fsmeta_put(&out, meta->unsure[partition], 1);
    fsmeta_table_sift(&meta->inodes[partition], fsmeta_put_inode, &out);
    fsmeta_table_sift(&meta->entries[partition], fsmeta_put_entry, &out);
    fsmeta_table_sift(&meta->locks, fsmeta_put_lock, &out);
    return leave(meta, finish(&out, bytes, size));
}

int meta_export_dirs(struct meta *meta, uint8_t **bytes, size_t *size) {
    struct out out = {.meta = meta};
    enter(meta);
    const struct dir *dir = fsmeta_find_dir(meta, META_ROOT);
    if (dir == NULL) return leave(meta, EINVAL);
    begin(&out, KIND_DIRS);
    while (dir != NULL) {
        put_dir(&out, dir);
        if (dir->child != NULL) {
            dir = dir->child;
            continue;
        }
        while (dir->parent != dir && dir->next == NULL) dir = dir->parent;
        dir = dir->parent == dir ? NULL : dir->next;
    }
    return leave(meta, finish(&out, bytes, size));
}

/* ── reading ── */

static int get_partition(struct in *in, uint64_t serial, bool apply) {
    int error = 0;
    for (uint8_t kind = 1; error == 0 && kind != 0 && !in->failed;) {
        kind = (uint8_t)fsmeta_get(in, 1);
        if (kind == 'E') error = fsmeta_get_entry(in, apply);
        else if (kind == 'L') error = fsmeta_get_lock(in, apply);
        else if (kind == 'I') error = fsmeta_get_inode(in, apply);
        else fsmeta_demand(in, kind == 0 && in->at == in->end);
    }
    if (error == 0 && apply && in->meta->serials[in->partition] < serial) in->meta->serials[in->partition] = serial;
    return error;
}

/* ── directories ── */

/* A directory of the import that is being read: its parent must have come before it, its number and name must be its own. */
struct seen {
    struct link link, named;
    uint64_t parent;
    struct text name;
};
struct seen_tables {
    struct table numbers, names;
};

static bool free_seen(void *context, struct link *link) {
    (void)context;
    free(RECORD(struct seen, link, link));
    return true;
}

static bool name_is_seen(const struct seen_tables *tables, uint64_t key, uint64_t parent, struct text name) {
    for (struct link *link = fsmeta_table_first(&tables->names, key); link != NULL; link = fsmeta_table_next(link)) {
        const struct seen *seen = RECORD(struct seen, named, link);
        if (seen->parent == parent && seen->name.length == name.length && memcmp(seen->name.at, name.at, name.length) == 0) return true;
    }
    return false;
}

static int note_dir(struct in *in, struct seen_tables *tables, uint64_t ino, uint64_t parent, struct text name) {
    uint64_t key = fsmeta_name_key(parent, name.at, name.length);
    if (ino == META_ROOT) fsmeta_demand(in, parent == META_ROOT && name.length == 0 && tables->numbers.count == 0);
    else fsmeta_demand(in, fsmeta_name_fault(name.at, name.length) == 0 && fsmeta_table_first(&tables->numbers, parent) != NULL);
    fsmeta_demand(in, fsmeta_table_first(&tables->numbers, ino) == NULL && !name_is_seen(tables, key, parent, name));
    fsmeta_demand(in, ino != 0 && ino >> META_INO_SHIFT < atomic_load(&in->meta->partitions) && fsmeta_find_inode(in->meta, ino) == NULL);
    if (in->failed) return 0;
    struct seen *seen = malloc(sizeof *seen);
    if (seen == NULL) return ENOMEM;
    *seen = (struct seen){.link.key = ino, .named.key = key, .parent = parent, .name = name};
    fsmeta_table_add(&tables->numbers, &seen->link);
    fsmeta_table_add(&tables->names, &seen->named);
    return 0;
}

static int get_dir(struct in *in, struct seen_tables *tables, bool apply) {
    struct meta *meta = in->meta;
    struct meta_attr attr = {.ino = fsmeta_get(in, 8)};
    uint64_t parent = fsmeta_get(in, 8);
    attr.mode = (uint32_t)fsmeta_get(in, 4);
    attr.uid = (uint32_t)fsmeta_get(in, 4);
    attr.gid = (uint32_t)fsmeta_get(in, 4);
    attr.rank = (int32_t)(uint32_t)fsmeta_get(in, 4);
    attr.size = fsmeta_get(in, 8);
    attr.blocks = fsmeta_get(in, 8);
    attr.atime = (int64_t)fsmeta_get(in, 8);
    attr.mtime = (int64_t)fsmeta_get(in, 8);
    attr.ctime = (int64_t)fsmeta_get(in, 8);
    uint8_t layout = (uint8_t)fsmeta_get(in, 1), copies = (uint8_t)fsmeta_get(in, 1);
    uint32_t stripe = (uint32_t)fsmeta_get(in, 4);
    uint64_t frozen = fsmeta_get(in, 1);
    struct text name = fsmeta_get_name(in);
    if (in->failed) return 0;
    fsmeta_demand(in, frozen <= 1 && (attr.mode & ~(uint32_t)07777) == S_IFDIR);
    fsmeta_demand(in, copies <= META_COPIES_MAX);
    fsmeta_demand(in, layout == NO_RULE || layout == META_WHOLE || (layout == META_STRIPED && stripe > 0));
    if (!apply) {
        int error = in->failed ? 0 : note_dir(in, tables, attr.ino, parent, name);
        return error != 0 ? error : fsmeta_get_xattrs(in, NULL);
    }
    struct dir *dir = fsmeta_find_dir(meta, attr.ino);
    int error = 0;
    if (dir == NULL) {
        error = fsmeta_add_dir(meta, attr.ino, parent, name.at, name.length, &attr, &dir);
    } else {
        bool home = fsmeta_is_mine(meta, fsmeta_partition_of_ino(meta, attr.ino)); /* then nobody knows its times better */
        if (attr.ino != META_ROOT) error = fsmeta_move_dir(meta, dir, fsmeta_find_dir(meta, parent), name.at, name.length);
        struct meta_attr times = {.mode = attr.mode, .uid = attr.uid, .gid = attr.gid, .rank = attr.rank};
        times.atime = home ? dir->atime : attr.atime;
        times.mtime = home ? dir->mtime : attr.mtime;
        times.ctime = home ? dir->ctime : attr.ctime;
        const unsigned what = META_SET_MODE | META_SET_UID | META_SET_GID | META_SET_RANK, when = META_SET_ATIME | META_SET_MTIME;
        fsmeta_set_dir(dir, what | when | META_SET_CTIME, &times, 0);
        dir->size = attr.size;
        dir->blocks = attr.blocks;
        fsmeta_free_xattrs(meta, &dir->xattrs);
    }
    if (error != 0) return error;
    dir->layout = layout;
    dir->copies = copies;
    fsmeta_note_copies(meta, copies);
    dir->stripe = stripe;
    dir->frozen = frozen;
    return fsmeta_get_xattrs(in, &dir->xattrs);
}

static int get_dirs(struct in *in, struct seen_tables *tables, bool apply) {
    int error = 0;
    for (uint8_t kind = 1; error == 0 && kind != 0 && !in->failed;) {
        kind = (uint8_t)fsmeta_get(in, 1);
        if (kind == 'D') error = get_dir(in, tables, apply);
        else fsmeta_demand(in, kind == 0 && in->at == in->end && tables->numbers.count > 0);
    }
    return error;
}

/* Directories that are not part of the import go: those above others are left until these have gone, or moved away. */
struct surplus {
    struct meta *meta;
    const struct seen_tables *tables;
    bool gone;
};

static bool drop_surplus(void *context, struct link *link) {
    struct surplus *surplus = context;
    struct dir *dir = RECORD(struct dir, link, link);
    if (dir->parent == dir || dir->children > 0 || fsmeta_table_first(&surplus->tables->numbers, link->key) != NULL) return false;
    fsmeta_forget_dir(surplus->meta, dir);
    surplus->gone = true;
    return true;
}

static void drop_all_surplus(struct meta *meta, const struct seen_tables *tables) {
    struct surplus surplus = {meta, tables, true};
    while (surplus.gone) {
        surplus.gone = false;
        fsmeta_table_sift(&meta->dirs, drop_surplus, &surplus);
    }
}

static int import_dirs(struct in *in) {
    struct in again = *in;
    struct seen_tables tables = {{NULL, NULL, 0, 0, 0}, {NULL, NULL, 0, 0, 0}};
    bool made = fsmeta_table_init(&tables.numbers, &in->meta->slabs);
    int error = fsmeta_table_init(&tables.names, &in->meta->slabs) && made ? get_dirs(in, &tables, false) : ENOMEM;
    if (error == 0 && in->failed) error = EPROTO;
    if (error == 0) {
        drop_all_surplus(in->meta, &tables); /* nobody has their names then */
        error = get_dirs(&again, &tables, true);
        drop_all_surplus(in->meta, &tables); /* those that others were moved out of */
    }
    fsmeta_table_sift(&tables.numbers, free_seen, NULL);
    fsmeta_table_free(&tables.numbers);
    fsmeta_table_free(&tables.names);
    return error;
}

static int import_partition(struct in *in) {
    uint64_t partition = fsmeta_get(in, 8), serial = fsmeta_get(in, 8), unsure = fsmeta_get(in, 1);
    if (in->failed || partition >= atomic_load(&in->meta->partitions) || serial >> META_INO_SHIFT != 0 || unsure > 1) return EPROTO;
    in->partition = (size_t)partition;
    struct in again = *in;
    int error = get_partition(in, serial, false);
    if (error != 0 || in->failed) return error != 0 ? error : EPROTO;
    in->meta->unsure[in->partition] = unsure != 0;
    return get_partition(&again, serial, true);
}

int meta_import(struct meta *meta, const uint8_t *bytes, size_t size) {
    struct in in = {.meta = meta, .at = bytes, .end = bytes + size};
    uint64_t magic = fsmeta_get(&in, 4), format = fsmeta_get(&in, 2), kind = fsmeta_get(&in, 2), sum = fsmeta_get(&in, 8);
    if (in.failed || magic != MAGIC || format != FORMAT || sum != amfs_xxh64(in.at, (size_t)(in.end - in.at), 0)) return EPROTO;
    if (kind != KIND_PARTITION && kind != KIND_DIRS) return EPROTO;
    enter(meta);
    if (atomic_load(&meta->partitions) == 0) return leave(meta, EINVAL);
    return leave(meta, kind == KIND_PARTITION ? import_partition(&in) : import_dirs(&in));
}
