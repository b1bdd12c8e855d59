/* Does the shard contradict itself? For tests and for doubters. */
#include "fsmeta_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check {
    struct meta *meta;
    char *what;
    size_t room, shelved, listed;
    bool failed;
};

__attribute__((format(printf, 3, 4))) static void expect(struct check *check, bool truth, const char *format, ...) {
    if (truth || check->failed) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->what, check->room, format, arguments);
    va_end(arguments);
    check->failed = true;
}

static bool check_entry(void *context, struct link *link) {
    struct check *check = context;
    const struct entry *entry = RECORD(struct entry, link, link);
    const char *name = entry->name;
    int length = entry->length;
    expect(check, entry->link.key == fsmeta_name_key(entry->dir, name, entry->length), "entry %.*s has the key of another name", length,
           name);
    expect(check, fsmeta_name_fault(name, entry->length) == 0, "entry %.*s has a name that no entry may have", length, name);
    const struct entry *found = fsmeta_find_entry(check->meta, entry->link.key, entry->dir, name, entry->length);
    expect(check, found == entry, "entry %.*s exists twice", length, name);
    check->listed += entry->cursor != 0;
    bool shadow = fsmeta_is_shadow(check->meta, fsmeta_partition_of_key(check->meta, entry->link.key));
    expect(check, entry->cursor != 0 || shadow, "entry %.*s is not listed", length, name);
    expect(check, fsmeta_set_sound(entry->watchers), "the watchers of entry %.*s are out of order", length, name);
    expect(check, entry->cursor <= check->meta->last_cursor, "entry %.*s has a cursor that was not given out", length, name);
    return false;
}

static bool check_shelf(void *context, struct link *link) {
    struct check *check = context;
    const struct shelf *shelf = RECORD(struct shelf, link, link);
    check->shelved += shelf->count;
    expect(check, fsmeta_shelf_is_sound(shelf), "the entries of directory %#llx are out of order", (unsigned long long)shelf->link.key);
    return false;
}

static bool check_inode(void *context, struct link *link) {
    struct check *check = context;
    const struct inode *inode = RECORD(struct inode, link, link);
    unsigned long long ino = inode->link.key;
    expect(check, fsmeta_find_inode(check->meta, ino) == inode, "inode %#llx exists twice", ino);
    bool sets = fsmeta_set_sound(inode->holders) && fsmeta_set_sound(inode->users) && fsmeta_set_sound(inode->watchers);
    expect(check, sets, "the nodes of inode %#llx are out of order", ino);
    expect(check, inode->nlink > 0 || inode->users != 0, "inode %#llx has neither links nor users", ino);
    expect(check, inode->writer < 0 || fsmeta_set_has(inode->users, inode->writer), "the writer of inode %#llx does not use it", ino);
    expect(check, (inode->writer < 0) == (inode->finished != 0), "inode %#llx is finished and being written", ino);
    expect(check, S_ISREG(inode->mode) || (inode->holders == 0 && inode->writer < 0), "inode %#llx has content but is no file", ino);
    expect(check, inode->layout == META_WHOLE || inode->holders == 0, "striped inode %#llx has holders", ino);
    expect(check, S_ISLNK(inode->mode) == (inode->target != NULL), "inode %#llx has a target and is no link, or the other way round", ino);
    expect(check, inode->target == NULL || strlen(inode->target) == inode->size, "link %#llx has another size than its target", ino);
    expect(check, !S_ISDIR(inode->mode), "directory %#llx lies among the files", ino);
    uint64_t partition = ino >> META_INO_SHIFT, serial = ino & ((1ull << META_INO_SHIFT) - 1);
    bool old = partition >= atomic_load(&check->meta->partitions) || serial <= check->meta->serials[partition];
    expect(check, old, "the number of inode %#llx would be given out again", ino);
    return false;
}

static bool check_dir(void *context, struct link *link) {
    struct check *check = context;
    struct dir *dir = RECORD(struct dir, link, link);
    unsigned long long ino = dir->link.key;
    size_t children = 0, steps = 0;
    const struct dir *previous = NULL;
    for (const struct dir *child = dir->child; child != NULL && children <= check->meta->dirs.count; child = child->next, children++) {
        expect(check, child->parent == dir && child->previous == previous, "the children of directory %#llx are linked wrongly", ino);
        previous = child;
    }
    expect(check, children == dir->children, "directory %#llx counts %u children and has %zu", ino, dir->children, children);
    const struct dir *up = dir;
    while (up->parent != up && steps++ <= check->meta->dirs.count) up = up->parent;
    expect(check, up->link.key == META_ROOT, "directory %#llx is not below the root", ino);
    expect(check, fsmeta_find_dir(check->meta, ino) == dir, "directory %#llx exists twice", ino);
    expect(check, ino == META_ROOT || fsmeta_find_child(check->meta, dir->parent->link.key, dir->name, dir->length) == dir,
           "directory %#llx is not found by its name", ino);
    expect(check, fsmeta_find_inode(check->meta, ino) == NULL, "directory %#llx is a file, too", ino);
    expect(check, fsmeta_set_sound(dir->watchers), "the watchers of directory %#llx are out of order", ino);
    return false;
}

static bool check_lock(void *context, struct link *link) {
    struct check *check = context;
    const struct name_lock *lock = RECORD(struct name_lock, link, link);
    expect(check, lock->owner != 0 && fsmeta_find_lock(check->meta, lock->link.key, lock->dir, lock->name, lock->length) == lock,
           "the lock of %.*s exists twice or has no owner", (int)lock->length, lock->name);
    return false;
}

int meta_check(struct meta *meta, char *what, size_t room) {
    struct check check = {.meta = meta, .what = what, .room = room};
    if (room > 0) what[0] = '\0';
    enter(meta);
    fsmeta_sift_partitions(meta, meta->entries, check_entry, &check);
    fsmeta_table_sift(&meta->shelves, check_shelf, &check);
    fsmeta_sift_partitions(meta, meta->inodes, check_inode, &check);
    fsmeta_table_sift(&meta->dirs, check_dir, &check);
    fsmeta_table_sift(&meta->locks, check_lock, &check);
    size_t partitions = atomic_load(&meta->partitions), mine = 0, moving = 0;
    for (size_t i = 0; i < partitions; i++) {
        mine += meta->owners[i] == meta->node;
        moving += meta->moving[i];
    }
    expect(&check, mine == meta->mine_count && moving == meta->moving_count, "the counts of partitions are wrong");
    expect(&check, check.shelved == check.listed, "%zu entries are listed, %zu should be", check.shelved, check.listed);
    expect(&check, meta->dirs.count == meta->dir_names.count + (partitions > 0), "directories are not all in the table of names");
    return leave(meta, check.failed ? EINVAL : 0);
}
