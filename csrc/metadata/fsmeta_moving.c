/* The metadata shard: partitions that move to another node, and all directories for a node that joins.
 *
 * What is exported, little-endian:
 *   u32 magic, u16 format, u16 kind, u64 XXH64 of the rest; for a partition: u64 partition, u64 last serial number given out in it
 *   records, each begun by a byte that says which, and a zero byte:
 *     E  entry       u64 directory, u64 inode, u32 type, name, nodes (watchers)
 *     L  lock        u64 directory, u64 owner, name
 *     I  inode       u64 number, u32 mode, links, uid, gid, rdev, stripe, u8 layout, u8 lost, i32 writer, rank, u64 size, blocks,
 *                    i64 atime, mtime, ctime, u64 pending,
 *                    nodes (holders, users, watchers), u32 length and target, attributes
 *     D  directory   u64 number, parent, u32 mode, uid, gid, i32 rank, u64 size, blocks, i64 atime, mtime, ctime, u8 layout, u32 stripe,
 *                    u8 frozen, name, attributes; parents before their children
 *   name: u16 length, bytes. nodes: u32 count, i32 each, ascending. attributes: u32 count; of each: name, u32 size, value.
 *
 * The exporting node becomes a watcher of all that it gives away: it may have it in its caches. */
#include "fsmeta_internal.h"

#include "common/xxh64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC = 0x4d464d41, /* "AMFM" */
    FORMAT = 3,
    KIND_PARTITION = 1,
    KIND_DIRS = 2,
    HEADER_BYTES = 16,
};

/* ── writing ── */

struct out {
    struct meta *meta;
    size_t partition;
    uint8_t *bytes;
    size_t size, room;
    bool failed; /* no memory */
};

static void put_bytes(struct out *out, const void *from, size_t count) {
    if (!out->failed && out->room - out->size < count) {
        size_t room = 2 * out->room + count + 4096;
        uint8_t *larger = realloc(out->bytes, room);
        if (larger == NULL) {
            out->failed = true;
        } else {
            out->bytes = larger;
            out->room = room;
        }
    }
    if (out->failed || count == 0) return;
    memcpy(out->bytes + out->size, from, count);
    out->size += count;
}

static void put(struct out *out, uint64_t value, size_t count) {
    uint8_t bytes[8];
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    put_bytes(out, bytes, count);
}

static void put_name(struct out *out, const char *name, size_t length) {
    put(out, length, 2);
    put_bytes(out, name, length);
}

/* The nodes of a set, and `also` if it is not negative. */
static void put_nodes(struct out *out, node_set set, int32_t also) {
    size_t count = fsmeta_set_count(set);
    bool more = also >= 0 && !fsmeta_set_has(set, also);
    put(out, count + more, 4);
    for (size_t i = 0; i < count; i++) {
        int32_t node = fsmeta_set_at(set, i);
        if (more && node > also) {
            put(out, (uint32_t)also, 4);
            more = false;
        }
        put(out, (uint32_t)node, 4);
    }
    if (more) put(out, (uint32_t)also, 4);
}

static void put_xattrs(struct out *out, const struct xattr *list) {
    size_t count = 0;
    for (const struct xattr *xattr = list; xattr != NULL; xattr = xattr->next) count++;
    put(out, count, 4);
    for (const struct xattr *xattr = list; xattr != NULL; xattr = xattr->next) {
        put_name(out, xattr->bytes, xattr->length);
        put(out, xattr->size, 4);
        put_bytes(out, xattr->bytes + xattr->length + 1, xattr->size);
    }
}

static bool put_entry(void *context, struct link *link) {
    struct out *out = context;
    const struct entry *entry = RECORD(struct entry, link, link);
    put(out, 'E', 1);
    put(out, entry->dir, 8);
    put(out, entry->ino, 8);
    put(out, entry->type, 4);
    put_name(out, entry->name, entry->length);
    put_nodes(out, entry->watchers, out->meta->node);
    return false;
}

static bool put_lock(void *context, struct link *link) {
    struct out *out = context;
    const struct name_lock *lock = RECORD(struct name_lock, link, link);
    if (fsmeta_partition_of_key(out->meta, lock->link.key) != out->partition) return false;
    put(out, 'L', 1);
    put(out, lock->dir, 8);
    put(out, lock->owner, 8);
    put_name(out, lock->name, lock->length);
    return false;
}

static bool put_inode(void *context, struct link *link) {
    struct out *out = context;
    const struct inode *inode = RECORD(struct inode, link, link);
    put(out, 'I', 1);
    put(out, inode->link.key, 8);
    const uint32_t words[] = {inode->mode, inode->nlink, inode->uid, inode->gid, inode->rdev, inode->stripe};
    for (size_t i = 0; i < 6; i++) put(out, words[i], 4);
    put(out, inode->layout, 1);
    put(out, inode->lost, 1);
    put(out, (uint32_t)inode->writer, 4);
    put(out, (uint32_t)inode->rank, 4);
    const uint64_t longs[] = {inode->size,           inode->blocks,          (uint64_t)inode->atime,
                              (uint64_t)inode->mtime, (uint64_t)inode->ctime, inode->pending};
    for (size_t i = 0; i < 6; i++) put(out, longs[i], 8);
    put_nodes(out, inode->holders, -1);
    put_nodes(out, inode->users, -1);
    put_nodes(out, inode->watchers, out->meta->node);
    put(out, inode->target == NULL ? 0 : inode->size, 4);
    if (inode->target != NULL) put_bytes(out, inode->target, inode->size);
    put_xattrs(out, inode->xattrs);
    return false;
}

static void put_dir(struct out *out, const struct dir *dir) {
    put(out, 'D', 1);
    put(out, dir->link.key, 8);
    put(out, dir->parent->link.key, 8);
    put(out, dir->mode, 4);
    put(out, dir->uid, 4);
    put(out, dir->gid, 4);
    put(out, (uint32_t)dir->rank, 4);
    const uint64_t longs[] = {dir->size, dir->blocks, (uint64_t)dir->atime, (uint64_t)dir->mtime, (uint64_t)dir->ctime};
    for (size_t i = 0; i < 5; i++) put(out, longs[i], 8);
    put(out, dir->layout, 1);
    put(out, dir->stripe, 4);
    put(out, dir->frozen, 1);
    put_name(out, dir->name, dir->length);
    put_xattrs(out, dir->xattrs);
}

static void begin(struct out *out, unsigned kind) {
    put(out, MAGIC, 4);
    put(out, FORMAT, 2);
    put(out, kind, 2);
    put(out, 0, 8); /* the checksum, when all is there */
}

static int finish(struct out *out, uint8_t **bytes, size_t *size) {
    put(out, 0, 1);
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
    put(&out, partition, 8);
    put(&out, meta->serials[partition], 8);
    fsmeta_table_sift(&meta->inodes[partition], put_inode, &out);
    fsmeta_table_sift(&meta->entries[partition], put_entry, &out);
    fsmeta_table_sift(&meta->locks, put_lock, &out);
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

struct in {
    struct meta *meta;
    size_t partition;
    const uint8_t *at, *end;
    bool failed; /* damaged */
};

static const uint8_t *get_bytes(struct in *in, size_t count) {
    static const uint8_t nothing[8];
    if (in->failed || (size_t)(in->end - in->at) < count) {
        in->failed = true;
        return count <= sizeof nothing ? nothing : NULL;
    }
    in->at += count;
    return in->at - count;
}

static uint64_t get(struct in *in, size_t count) {
    const uint8_t *bytes = get_bytes(in, count);
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

struct text {
    const char *at;
    size_t length;
};

static void demand(struct in *in, bool truth) { in->failed = in->failed || !truth; }

static struct text get_name(struct in *in) {
    struct text name = {NULL, (size_t)get(in, 2)};
    name.at = (const char *)get_bytes(in, name.length);
    return name;
}

/* Nodes as they lie in the bytes. */
struct listed {
    const uint8_t *at;
    size_t count;
};

static int32_t listed_at(struct listed nodes, size_t index) {
    const uint8_t *at = nodes.at + 4 * index;
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

static struct listed get_nodes(struct in *in) {
    struct listed nodes = {NULL, (size_t)get(in, 4)};
    demand(in, nodes.count <= (size_t)(in->end - in->at) / 4);
    if (!in->failed) nodes.at = get_bytes(in, 4 * nodes.count);
    for (size_t i = 0; !in->failed && i < nodes.count; i++)
        demand(in, listed_at(nodes, i) >= 0 && (i == 0 || listed_at(nodes, i - 1) < listed_at(nodes, i)));
    return nodes;
}

static bool listed_has(struct listed nodes, int32_t node) {
    for (size_t i = 0; i < nodes.count; i++)
        if (listed_at(nodes, i) == node) return true;
    return false;
}

static int take_nodes(struct listed nodes, int32_t except, node_set *set) {
    int error = 0;
    for (size_t i = 0; error == 0 && i < nodes.count; i++)
        if (listed_at(nodes, i) != except) error = fsmeta_set_add(set, listed_at(nodes, i));
    return error;
}

/* Attributes into `list`, or only past them if it is NULL. */
static int get_xattrs(struct in *in, struct xattr **list) {
    struct xattr *scratch = NULL, **to = list != NULL ? list : &scratch;
    size_t count = (size_t)get(in, 4);
    char name[256];
    int error = 0;
    for (size_t i = 0; error == 0 && !in->failed && i < count; i++) {
        struct text text = get_name(in);
        size_t size = (size_t)get(in, 4);
        const uint8_t *value = get_bytes(in, size);
        demand(in, text.length < sizeof name);
        if (in->failed) break;
        memcpy(name, text.at, text.length);
        name[text.length] = '\0';
        demand(in, strlen(name) == text.length);
        error = fsmeta_set_one_xattr(in->meta, to, name, value, size, META_XATTR_CREATE);
    }
    fsmeta_free_xattrs(in->meta, &scratch);
    demand(in, error == 0 || error == ENOMEM); /* twice the same name, too long, too many */
    return error == ENOMEM ? error : 0;
}

/* Each of these reads one record and, if `apply`, puts it where it belongs. They return 0 or ENOMEM; damage is in->failed. */

static int get_entry(struct in *in, bool apply) {
    uint64_t dir = get(in, 8), ino = get(in, 8);
    uint32_t type = (uint32_t)get(in, 4);
    struct text name = get_name(in);
    struct listed watchers = get_nodes(in);
    if (in->failed) return 0;
    demand(in, fsmeta_name_fault(name.at, name.length) == 0 && ino != 0 && fsmeta_is_type(type));
    if (in->failed) return 0;
    uint64_t key = fsmeta_name_key(dir, name.at, name.length);
    demand(in, fsmeta_partition_of_key(in->meta, key) == in->partition);
    if (in->failed || !apply) return 0;
    struct entry *old = fsmeta_find_entry(in->meta, key, dir, name.at, name.length);
    if (old != NULL) fsmeta_delete_entry(in->meta, old);
    struct entry *entry = fsmeta_add_entry(in->meta, key, dir, name.at, name.length, ino, type);
    return entry == NULL ? ENOMEM : take_nodes(watchers, in->meta->node, &entry->watchers);
}

static int get_lock(struct in *in, bool apply) {
    uint64_t dir = get(in, 8), owner = get(in, 8);
    struct text name = get_name(in);
    if (in->failed) return 0;
    demand(in, owner != 0 && fsmeta_name_fault(name.at, name.length) == 0);
    if (in->failed) return 0;
    uint64_t key = fsmeta_name_key(dir, name.at, name.length);
    demand(in, fsmeta_partition_of_key(in->meta, key) == in->partition);
    if (in->failed || !apply || fsmeta_find_lock(in->meta, key, dir, name.at, name.length) != NULL) return 0;
    return fsmeta_add_lock(in->meta, key, dir, name.at, name.length, owner);
}

static int get_inode(struct in *in, bool apply) {
    struct meta *meta = in->meta;
    struct inode got = {.link.key = get(in, 8)};
    uint32_t *words[] = {&got.mode, &got.nlink, &got.uid, &got.gid, &got.rdev, &got.stripe};
    for (size_t i = 0; i < 6; i++) *words[i] = (uint32_t)get(in, 4);
    got.layout = (uint8_t)get(in, 1);
    uint64_t lost = get(in, 1);
    got.lost = lost != 0;
    got.writer = (int32_t)(uint32_t)get(in, 4);
    got.rank = (int32_t)(uint32_t)get(in, 4);
    got.finished = got.writer < 0;
    uint64_t *longs[] = {&got.size, &got.blocks};
    int64_t *times[] = {&got.atime, &got.mtime, &got.ctime};
    for (size_t i = 0; i < 2; i++) *longs[i] = get(in, 8);
    for (size_t i = 0; i < 3; i++) *times[i] = (int64_t)get(in, 8);
    got.pending = get(in, 8);
    struct listed holders = get_nodes(in), users = get_nodes(in), watchers = get_nodes(in);
    struct text target = {NULL, (size_t)get(in, 4)};
    target.at = (const char *)get_bytes(in, target.length);
    if (in->failed) return 0;
    bool regular = S_ISREG(got.mode);
    demand(in, lost <= 1 && (regular || !got.lost));
    demand(in, fsmeta_is_type(got.mode & S_IFMT) && !S_ISDIR(got.mode) && (got.mode & ~(uint32_t)(S_IFMT | 07777)) == 0);
    demand(in, got.nlink > 0 || users.count > 0);
    demand(in, got.writer < 0 ? got.writer == -1 : regular && listed_has(users, got.writer));
    demand(in, got.layout == META_WHOLE || (got.layout == META_STRIPED && regular && got.stripe > 0 && holders.count == 0));
    demand(in, regular || holders.count == 0);
    demand(in, S_ISLNK(got.mode) ? target.length > 0 && target.length == got.size && memchr(target.at, 0, target.length) == NULL
                                 : target.length == 0);
    demand(in, fsmeta_partition_of_ino(meta, got.link.key) == in->partition && fsmeta_find_dir(meta, got.link.key) == NULL);
    demand(in, got.link.key >> META_INO_SHIFT == in->partition && got.link.key != 0);
    if (in->failed || !apply) return get_xattrs(in, NULL);
    struct inode *old = fsmeta_find_inode(meta, got.link.key), *inode = fsmeta_new_inode(meta, got.link.key);
    if (inode == NULL) return ENOMEM;
    *inode = got;
    int error = take_nodes(holders, -1, &inode->holders);
    if (error == 0) error = take_nodes(users, -1, &inode->users);
    if (error == 0) error = take_nodes(watchers, meta->node, &inode->watchers);
    if (error == 0) error = get_xattrs(in, &inode->xattrs);
    if (error == 0 && target.length > 0) error = fsmeta_set_target(meta, inode, target.at, target.length);
    if (error != 0) {
        fsmeta_free_inode(meta, inode);
        return error;
    }
    if (old != NULL) {
        fsmeta_table_remove(fsmeta_inodes_of(meta, old->link.key), &old->link);
        fsmeta_free_inode(meta, old);
    }
    fsmeta_table_add(fsmeta_inodes_of(meta, inode->link.key), &inode->link);
    fsmeta_number_is_used(meta, inode->link.key);
    return 0;
}

static int get_partition(struct in *in, uint64_t serial, bool apply) {
    int error = 0;
    for (uint8_t kind = 1; error == 0 && kind != 0 && !in->failed;) {
        kind = (uint8_t)get(in, 1);
        if (kind == 'E') error = get_entry(in, apply);
        else if (kind == 'L') error = get_lock(in, apply);
        else if (kind == 'I') error = get_inode(in, apply);
        else demand(in, kind == 0 && in->at == in->end);
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
    if (ino == META_ROOT) demand(in, parent == META_ROOT && name.length == 0 && tables->numbers.count == 0);
    else demand(in, fsmeta_name_fault(name.at, name.length) == 0 && fsmeta_table_first(&tables->numbers, parent) != NULL);
    demand(in, fsmeta_table_first(&tables->numbers, ino) == NULL && !name_is_seen(tables, key, parent, name));
    demand(in, ino != 0 && ino >> META_INO_SHIFT < atomic_load(&in->meta->partitions) && fsmeta_find_inode(in->meta, ino) == NULL);
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
    struct meta_attr attr = {.ino = get(in, 8)};
    uint64_t parent = get(in, 8);
    attr.mode = (uint32_t)get(in, 4);
    attr.uid = (uint32_t)get(in, 4);
    attr.gid = (uint32_t)get(in, 4);
    attr.rank = (int32_t)(uint32_t)get(in, 4);
    attr.size = get(in, 8);
    attr.blocks = get(in, 8);
    attr.atime = (int64_t)get(in, 8);
    attr.mtime = (int64_t)get(in, 8);
    attr.ctime = (int64_t)get(in, 8);
    uint8_t layout = (uint8_t)get(in, 1);
    uint32_t stripe = (uint32_t)get(in, 4);
    uint64_t frozen = get(in, 1);
    struct text name = get_name(in);
    if (in->failed) return 0;
    demand(in, frozen <= 1 && (attr.mode & ~(uint32_t)07777) == S_IFDIR);
    demand(in, layout == NO_RULE || layout == META_WHOLE || (layout == META_STRIPED && stripe > 0));
    if (!apply) {
        int error = in->failed ? 0 : note_dir(in, tables, attr.ino, parent, name);
        return error != 0 ? error : get_xattrs(in, NULL);
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
    dir->stripe = stripe;
    dir->frozen = frozen;
    return get_xattrs(in, &dir->xattrs);
}

static int get_dirs(struct in *in, struct seen_tables *tables, bool apply) {
    int error = 0;
    for (uint8_t kind = 1; error == 0 && kind != 0 && !in->failed;) {
        kind = (uint8_t)get(in, 1);
        if (kind == 'D') error = get_dir(in, tables, apply);
        else demand(in, kind == 0 && in->at == in->end && tables->numbers.count > 0);
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
    uint64_t partition = get(in, 8), serial = get(in, 8);
    if (in->failed || partition >= atomic_load(&in->meta->partitions) || serial >> META_INO_SHIFT != 0) return EPROTO;
    in->partition = (size_t)partition;
    struct in again = *in;
    int error = get_partition(in, serial, false);
    if (error != 0 || in->failed) return error != 0 ? error : EPROTO;
    return get_partition(&again, serial, true);
}

int meta_import(struct meta *meta, const uint8_t *bytes, size_t size) {
    struct in in = {.meta = meta, .at = bytes, .end = bytes + size};
    uint64_t magic = get(&in, 4), format = get(&in, 2), kind = get(&in, 2), sum = get(&in, 8);
    if (in.failed || magic != MAGIC || format != FORMAT || sum != amfs_xxh64(in.at, (size_t)(in.end - in.at), 0)) return EPROTO;
    if (kind != KIND_PARTITION && kind != KIND_DIRS) return EPROTO;
    enter(meta);
    if (atomic_load(&meta->partitions) == 0) return leave(meta, EINVAL);
    return leave(meta, kind == KIND_PARTITION ? import_partition(&in) : import_dirs(&in));
}
