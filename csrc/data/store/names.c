/* The names of the parts of this node, which inodes have stripes here, and listing. */
#include "store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fsio_part_name(uint64_t ino, int64_t index, char *to) {
    unsigned last = (unsigned)(ino & 0xff);
    if (index < 0) snprintf(to, FSIO_NAME_BYTES, "%02x/%016llx", last, (unsigned long long)ino);
    else snprintf(to, FSIO_NAME_BYTES, "%02x/%016llx.%lld", last, (unsigned long long)ino, (long long)index);
}

int fsio_part_path(const struct fsio *io, uint64_t ino, int64_t index, char *to, size_t room) {
    char name[FSIO_NAME_BYTES];
    (void)io;
    fsio_part_name(ino, index, name);
    if (strlen(name) >= room) return ENAMETOOLONG;
    memcpy(to, name, strlen(name) + 1);
    return 0;
}

/* ── which inodes have stripes here ── with stripes_lock held */

static struct fsio_stripes_slot *find_slot(const struct fsio_stripes *stripes, uint64_t ino) {
    size_t at = (size_t)(ino * 0x9E3779B97F4A7C15u >> 40) & (stripes->room - 1);
    while (stripes->slots[at].ino != 0 && stripes->slots[at].ino != ino) at = (at + 1) & (stripes->room - 1);
    return &stripes->slots[at];
}

static int grow_stripes(struct fsio_stripes *stripes) {
    struct fsio_stripes larger = {.room = stripes->room == 0 ? 64 : stripes->room * 2, .count = stripes->count};
    larger.slots = calloc(larger.room, sizeof *larger.slots);
    if (larger.slots == NULL) return ENOMEM;
    for (size_t i = 0; i < stripes->room; i++)
        if (stripes->slots[i].ino != 0) *find_slot(&larger, stripes->slots[i].ino) = stripes->slots[i];
    free(stripes->slots);
    *stripes = larger;
    return 0;
}

int fsio_note_stripe(struct fsio *io, uint64_t ino, uint64_t index) {
    pthread_mutex_lock(&io->store->stripes_lock);
    int error = (io->store->stripes.count + 1) * 4 > io->store->stripes.room * 3 ? grow_stripes(&io->store->stripes) : 0;
    if (error == 0) {
        struct fsio_stripes_slot *slot = find_slot(&io->store->stripes, ino);
        if (slot->ino == 0) io->store->stripes.count++;
        slot->ino = ino;
        if (slot->end < index + 1) slot->end = index + 1;
    }
    pthread_mutex_unlock(&io->store->stripes_lock);
    return error;
}

int fsio_mark_copied(struct fsio *io, uint64_t ino, uint64_t index) {
    int error = fsio_note_stripe(io, ino, index);
    pthread_mutex_lock(&io->store->stripes_lock);
    if (error == 0) find_slot(&io->store->stripes, ino)->copied = true;
    pthread_mutex_unlock(&io->store->stripes_lock);
    return error;
}

bool fsio_is_copied(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->store->stripes_lock);
    bool copied = io->store->stripes.room > 0 && find_slot(&io->store->stripes, ino)->copied;
    pthread_mutex_unlock(&io->store->stripes_lock);
    return copied;
}

uint64_t fsio_stripes_end(struct fsio *io, uint64_t ino) {
    pthread_mutex_lock(&io->store->stripes_lock);
    uint64_t end = io->store->stripes.room == 0 ? 0 : find_slot(&io->store->stripes, ino)->end;
    pthread_mutex_unlock(&io->store->stripes_lock);
    return end;
}

void fsio_stripes_cut(struct fsio *io, uint64_t ino, uint64_t end) {
    pthread_mutex_lock(&io->store->stripes_lock);
    struct fsio_stripes *all = &io->store->stripes;
    struct fsio_stripes_slot *slot = all->room == 0 ? NULL : find_slot(all, ino);
    if (slot != NULL && slot->ino != 0 && slot->end > end) slot->end = end;
    if (slot != NULL && slot->ino != 0 && slot->end == 0) {
        *slot = (struct fsio_stripes_slot){0};
        all->count--;
        for (size_t at = (size_t)(slot - all->slots + 1) & (all->room - 1); all->slots[at].ino != 0; at = (at + 1) & (all->room - 1)) {
            struct fsio_stripes_slot moved = all->slots[at]; /* close the gap: slots after it may have been displaced by it */
            all->slots[at] = (struct fsio_stripes_slot){0};
            *find_slot(all, moved.ino) = moved;
        }
    }
    pthread_mutex_unlock(&io->store->stripes_lock);
}

/* ── listing ── */

/* The file or stripe of a name in one of the directories; false: nothing of ours. */
static bool read_name(const char *name, uint64_t *ino, int64_t *index) {
    char *end;
    for (int i = 0; i < 16; i++)
        if (strchr("0123456789abcdef", name[i]) == NULL || name[i] == '\0') return false;
    char digits[17];
    memcpy(digits, name, 16);
    digits[16] = '\0';
    *ino = strtoull(digits, NULL, 16);
    *index = FSIO_WHOLE;
    if (name[16] == '\0') return true;
    if (name[16] != '.' || name[17] < '0' || name[17] > '9') return false;
    *index = strtoll(name + 17, &end, 10);
    return *end == '\0';
}

bool fsio_walk_directory(struct fsio *io, unsigned number, fsio_visitor visit, void *context) {
    char name[8];
    uint64_t ino;
    int64_t index;
    bool go_on = true;
    snprintf(name, sizeof name, "%02x", number);
    int fd = openat(io->store->root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        if (fd >= 0) close(fd);
        return true;
    }
    for (struct dirent *entry; go_on && (entry = readdir(directory)) != NULL;)
        if (read_name(entry->d_name, &ino, &index)) go_on = visit(context, fd, entry->d_name, ino, index);
    closedir(directory);
    return go_on;
}

void fsio_walk(struct fsio *io, fsio_visitor visit, void *context) {
    for (unsigned i = 0; i < 256; i++)
        if (!fsio_walk_directory(io, i, visit, context)) return;
}

struct listing {
    bool (*each)(void *context, uint64_t ino, int64_t index, uint64_t size, uint64_t blocks);
    void *context;
};

static bool list_one(void *context, int directory, const char *name, uint64_t ino, int64_t index) {
    struct listing *listing = context;
    struct stat found;
    if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0) return true; /* gone meanwhile */
    return listing->each(listing->context, ino, index, (uint64_t)found.st_size, (uint64_t)found.st_blocks);
}

int fsio_list_parts(struct fsio *io, bool (*each)(void *context, uint64_t ino, int64_t index, uint64_t size, uint64_t blocks),
                    void *context) {
    struct listing listing = {each, context};
    fsio_walk(io, list_one, &listing);
    return 0;
}

void fsio_to_stat(const struct stat *found, struct data_stat *stat) {
    *stat = (struct data_stat){(uint64_t)found->st_size, (uint64_t)found->st_blocks, ns_of(found->st_atim), ns_of(found->st_mtim),
                               ns_of(found->st_ctim)};
}

void fsio_aside_name(uint64_t ino, unsigned number, char *to) {
    snprintf(to, FSIO_NAME_BYTES, "%02x/.%016llx-%x", (unsigned)(ino & 0xff), (unsigned long long)ino, number);
}
