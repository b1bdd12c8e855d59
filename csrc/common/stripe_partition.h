/* The place of a stripe: the partition in which stripe `index` of the file `ino` lies, when there are `partitions` (> 0). The hash of the file is
 * the place of stripe 0, and stripe i lies i partitions further (MemFS §II), so that neighbours are on different nodes. The session's table says
 * which node has a partition (amfs/vocabulary/partition.py). */
#ifndef AMFS_STRIPE_PARTITION_H
#define AMFS_STRIPE_PARTITION_H

#include <stddef.h>
#include <stdint.h>

#include "xxh64.h"

static inline size_t amfs_stripe_partition(uint64_t ino, uint64_t index, size_t partitions) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(ino >> (8 * i));
    return (size_t)((amfs_xxh64(bytes, sizeof bytes, 0) % partitions + index % partitions) % partitions);
}

#endif
