/* The table of owners: on which node each stripe lies. */
#include "state.h"

#include "common/stripe_partition.h"

#include <stdlib.h>
#include <string.h>

void fsio_set_table(struct fsio *io, const int32_t *owners, size_t partitions) {
    int32_t *copy = malloc((partitions + 1) * sizeof *copy);
    bool others = false, *moving = calloc(partitions + 1, sizeof *moving);
    if (copy == NULL || moving == NULL) { /* the old one stays; stripes are looked for at their old owners, who answer */
        free(copy);
        free(moving);
        return;
    }
    memcpy(copy, owners, partitions * sizeof *copy);
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
    for (size_t i = 0; i < count; i++)
        if (partitions[i] < io->partitions) io->moving[partitions[i]] = moving;
    pthread_mutex_unlock(&io->table_lock);
}

bool fsio_any_moving(struct fsio *io) {
    bool any = false;
    pthread_mutex_lock(&io->table_lock);
    for (size_t i = 0; i < io->partitions && !any; i++) any = io->moving[i];
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
        *moving = io->moving[partition];
    }
    pthread_mutex_unlock(&io->table_lock);
    return ours;
}

bool fsio_has_others(struct fsio *io) {
    pthread_mutex_lock(&io->table_lock);
    bool others = io->others;
    pthread_mutex_unlock(&io->table_lock);
    return others;
}
