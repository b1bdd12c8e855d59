/* The metadata shard: records from bytes, damaged ones too, put where they belong. The way there is fsmeta_records.c. */
#include "fsmeta_records.h"

#include <errno.h>
#include <string.h>

/* Nodes as they lie in the bytes. */
struct listed {
    const uint8_t *at;
    size_t count;
};

const uint8_t *fsmeta_get_bytes(struct in *in, size_t count) {
    static const uint8_t nothing[8];
    if (in->failed || (size_t)(in->end - in->at) < count) {
        in->failed = true;
        return count <= sizeof nothing ? nothing : NULL;
    }
    in->at += count;
    return in->at - count;
}

uint64_t fsmeta_get(struct in *in, size_t count) {
    const uint8_t *bytes = fsmeta_get_bytes(in, count);
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

void fsmeta_demand(struct in *in, bool truth) { in->failed = in->failed || !truth; }

struct text fsmeta_get_name(struct in *in) {
    struct text name = {NULL, (size_t)fsmeta_get(in, 2)};
    name.at = (const char *)fsmeta_get_bytes(in, name.length);
    return name;
}

static int32_t listed_at(struct listed nodes, size_t index) {
    const uint8_t *at = nodes.at + 4 * index;
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

static struct listed get_nodes(struct in *in) {
    struct listed nodes = {NULL, (size_t)fsmeta_get(in, 4)};
    fsmeta_demand(in, nodes.count <= (size_t)(in->end - in->at) / 4);
    if (!in->failed) nodes.at = fsmeta_get_bytes(in, 4 * nodes.count);
    for (size_t i = 0; !in->failed && i < nodes.count; i++)
        fsmeta_demand(in, listed_at(nodes, i) >= 0 && (i == 0 || listed_at(nodes, i - 1) < listed_at(nodes, i)));
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
int fsmeta_get_xattrs(struct in *in, struct xattr **list) {
    struct xattr *scratch = NULL, **to = list != NULL ? list : &scratch;
    size_t count = (size_t)fsmeta_get(in, 4);
    char name[256];
    int error = 0;
    for (size_t i = 0; error == 0 && !in->failed && i < count; i++) {
        struct text text = fsmeta_get_name(in);
        size_t size = (size_t)fsmeta_get(in, 4);
        const uint8_t *value = fsmeta_get_bytes(in, size);
        fsmeta_demand(in, text.length < sizeof name);
        if (in->failed) break;
        memcpy(name, text.at, text.length);
        name[text.length] = '\0';
        fsmeta_demand(in, strlen(name) == text.length);
        error = fsmeta_set_one_xattr(in->meta, to, name, value, size, META_XATTR_CREATE);
    }
    fsmeta_free_xattrs(in->meta, &scratch);
    fsmeta_demand(in, error == 0 || error == ENOMEM); /* twice the same name, too long, too many */
    return error == ENOMEM ? error : 0;
}

int fsmeta_get_entry(struct in *in, bool apply) {
    uint64_t dir = fsmeta_get(in, 8), ino = fsmeta_get(in, 8);
    uint32_t type = (uint32_t)fsmeta_get(in, 4);
    struct text name = fsmeta_get_name(in);
    struct listed watchers = get_nodes(in);
    if (in->failed) return 0;
    fsmeta_demand(in, fsmeta_name_fault(name.at, name.length) == 0 && ino != 0 && fsmeta_is_type(type));
    if (in->failed) return 0;
    uint64_t key = fsmeta_name_key(dir, name.at, name.length);
    fsmeta_demand(in, fsmeta_partition_of_key(in->meta, key) == in->partition);
    if (in->failed || !apply) return 0;
    struct entry *old = fsmeta_find_entry(in->meta, key, dir, name.at, name.length);
    if (old != NULL) fsmeta_delete_entry(in->meta, old);
    struct entry *entry = fsmeta_add_entry(in->meta, key, dir, name.at, name.length, ino, type);
    return entry == NULL ? ENOMEM : take_nodes(watchers, in->meta->node, &entry->watchers);
}

int fsmeta_get_lock(struct in *in, bool apply) {
    uint64_t dir = fsmeta_get(in, 8), owner = fsmeta_get(in, 8);
    struct text name = fsmeta_get_name(in);
    if (in->failed) return 0;
    fsmeta_demand(in, owner != 0 && fsmeta_name_fault(name.at, name.length) == 0);
    if (in->failed) return 0;
    uint64_t key = fsmeta_name_key(dir, name.at, name.length);
    fsmeta_demand(in, fsmeta_partition_of_key(in->meta, key) == in->partition);
    if (in->failed || !apply || fsmeta_find_lock(in->meta, key, dir, name.at, name.length) != NULL) return 0;
    return fsmeta_add_lock(in->meta, key, dir, name.at, name.length, owner);
}

int fsmeta_get_inode(struct in *in, bool apply) {
    struct meta *meta = in->meta;
    struct inode got = {.link.key = fsmeta_get(in, 8)};
    uint32_t *words[] = {&got.mode, &got.nlink, &got.uid, &got.gid, &got.rdev, &got.stripe};
    for (size_t i = 0; i < 6; i++) *words[i] = (uint32_t)fsmeta_get(in, 4);
    got.layout = (uint8_t)fsmeta_get(in, 1);
    uint64_t lost = fsmeta_get(in, 1);
    got.lost = (lost & 1) != 0;
    got.secured = (lost & 2) != 0;
    got.copies = (uint8_t)fsmeta_get(in, 1);
    got.writer = (int32_t)(uint32_t)fsmeta_get(in, 4);
    got.rank = (int32_t)(uint32_t)fsmeta_get(in, 4);
    got.finished = got.writer < 0;
    uint64_t *longs[] = {&got.size, &got.blocks};
    int64_t *times[] = {&got.atime, &got.mtime, &got.ctime};
    for (size_t i = 0; i < 2; i++) *longs[i] = fsmeta_get(in, 8);
    for (size_t i = 0; i < 3; i++) *times[i] = (int64_t)fsmeta_get(in, 8);
    got.pending = fsmeta_get(in, 8);
    struct listed holders = get_nodes(in), users = get_nodes(in), watchers = get_nodes(in);
    struct text target = {NULL, (size_t)fsmeta_get(in, 4)};
    target.at = (const char *)fsmeta_get_bytes(in, target.length);
    if (in->failed) return 0;
    bool regular = S_ISREG(got.mode);
    fsmeta_demand(in, got.copies > 0 && got.copies <= (regular ? META_COPIES_MAX : 1));
    fsmeta_demand(in, lost <= 3 && (regular || lost == 0));
    fsmeta_demand(in, fsmeta_is_type(got.mode & S_IFMT) && !S_ISDIR(got.mode) && (got.mode & ~(uint32_t)(S_IFMT | 07777)) == 0);
    fsmeta_demand(in, got.nlink > 0 || users.count > 0);
    fsmeta_demand(in, got.writer < 0 ? got.writer == -1 : regular && listed_has(users, got.writer));
    fsmeta_demand(in, got.layout == META_WHOLE || (got.layout == META_STRIPED && regular && got.stripe > 0 && holders.count == 0));
    fsmeta_demand(in, regular || holders.count == 0);
    fsmeta_demand(in, S_ISLNK(got.mode) ? target.length > 0 && target.length == got.size && memchr(target.at, 0, target.length) == NULL
                                        : target.length == 0);
    fsmeta_demand(in, fsmeta_partition_of_ino(meta, got.link.key) == in->partition && fsmeta_find_dir(meta, got.link.key) == NULL);
    fsmeta_demand(in, got.link.key >> META_INO_SHIFT == in->partition && got.link.key != 0);
    if (in->failed || !apply) return fsmeta_get_xattrs(in, NULL);
    struct inode *old = fsmeta_find_inode(meta, got.link.key), *inode = fsmeta_new_inode(meta, got.link.key);
    if (inode == NULL) return ENOMEM;
    *inode = got;
    fsmeta_note_copies(meta, got.copies);
    int error = take_nodes(holders, -1, &inode->holders);
    if (error == 0) error = take_nodes(users, -1, &inode->users);
    if (error == 0) error = take_nodes(watchers, meta->node, &inode->watchers);
    if (error == 0) error = fsmeta_get_xattrs(in, &inode->xattrs);
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
