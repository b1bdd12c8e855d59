/* The table of owners: on which node each stripe lies. */
#include "state.h"

#include "common/stripe_partition.h"

#include <stdlib.h>
#include <string.h>

static void mark(uint8_t *marks, size_t partitions, const uint32_t *which, size_t count, bool moving) {
    for (size_t i = 0; i < count; i++) {
        if (which[i] >= partitions) continue;
        if (!moving) marks[which[i]] = FSIO_SERVED;
        else if (marks[which[i]] == FSIO_SERVED) marks[which[i]] = FSIO_MOVES;
    }
}

/* Both at once: with the table alone a thread would take what has not come yet for a hole. */
void fsio_set_table(struct fsio *io, const int32_t *owners, size_t partitions, const uint32_t *moves, size_t count) {
    int32_t *copy = malloc((partitions + 1) * sizeof *copy);
    bool others = false;
    uint8_t *moving = calloc(partitions + 1, sizeof *moving);
    if (copy == NULL || moving == NULL) { /* the old one stays; stripes are looked for at their old owners, which answer */
        free(copy);
        free(moving);
        return;
    }
    memcpy(copy, owners, partitions * sizeof *copy);
    mark(moving, partitions, moves, count, true);
    for (size_t i = 0; i < partitions; i++) others |= owners[i] != io->node && owners[i] >= 0;
    pthread_mutex_lock(&io->table_lock);
    free(io->owners);
    free(io->moving);
    io->owners = copy;
    io->moving = moving;
    io->partitions = partitions;
    io->others = others;
    pthread_mutex_unlock(&io->table_lock);
}

void fsio_set_moving(struct fsio *io, const uint32_t *partitions, size_t count, bool moving) {
    pthread_mutex_lock(&io->table_lock);
    mark(io->moving, io->partitions, partitions, count, moving);
    pthread_mutex_unlock(&io->table_lock);
}

bool fsio_any_moving(struct fsio *io) {
    bool any = false;
    pthread_mutex_lock(&io->table_lock);
    for (size_t i = 0; i < io->partitions && !any; i++) any = io->moving[i] != FSIO_SERVED;
    pthread_mutex_unlock(&io->table_lock);
    return any;
}

size_t fsio_partition_of(const struct fsio *io, uint64_t ino, uint64_t index) { return amfs_stripe_partition(ino, index, io->partitions); }

int32_t fsio_stripe_owner(struct fsio *io, uint64_t ino, uint64_t index) {
    pthread_mutex_lock(&io->table_lock);
    int32_t owner = io->partitions == 0 ? -1 : io->owners[fsio_partition_of(io, ino, index)];
    pthread_mutex_unlock(&io->table_lock);
    return owner;
}

bool fsio_stripe_ours(struct fsio *io, uint64_t ino, uint64_t index, bool *moving) {
    bool ours = true;
    *moving = false;
    pthread_mutex_lock(&io->table_lock);
    if (io->partitions > 0) {
        size_t partition = fsio_partition_of(io, ino, index);
        ours = io->owners[partition] == io->node;
        *moving = io->moving[partition] != FSIO_SERVED;
    }
    pthread_mutex_unlock(&io->table_lock);
    return ours;
}

bool fsio_stripe_served(struct fsio *io, uint64_t ino, uint64_t index) {
    bool served = true, tells = false;
    size_t partition = 0;
    pthread_mutex_lock(&io->table_lock);
    if (io->partitions > 0) {
        partition = fsio_partition_of(io, ino, index);
        bool ours = io->owners[partition] == io->node;
        served = ours && io->moving[partition] == FSIO_SERVED;
        tells = ours && io->moving[partition] == FSIO_MOVES;
        if (tells) io->moving[partition] = FSIO_AWAITED;
    }
    pthread_mutex_unlock(&io->table_lock);
    if (tells) fsio_tell(io, FSIO_EVENT_AWAITED, partition, 0, 0, 0);
    return served;
}

bool fsio_has_others(struct fsio *io) {
    pthread_mutex_lock(&io->table_lock);
    bool others = io->others;
    pthread_mutex_unlock(&io->table_lock);
    return others;
}
