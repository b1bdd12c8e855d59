/* Stripes that were lost with a node. Their partitions have new owners, which have none of these stripes and cannot tell a lost one from a hole. So the
 * node on which a file is open decides: the node numbers the losses of which it hears (`version`), and knows with which number each partition was
 * lost last, and up to which number nothing of the file was lost. The numbers count for this node only. */
#include "state.h"

#include "common/stripe_partition.h"

#include <stdlib.h>

/* With table_lock held. */
static void note(struct fsio *io, uint64_t **lost, const uint32_t *partitions, size_t count, uint64_t version) {
    if (*lost == NULL && io->partitions > 0) *lost = calloc(io->partitions, sizeof **lost);
    for (size_t i = 0; *lost != NULL && i < count; i++)
        if (partitions[i] < io->partitions) (*lost)[partitions[i]] = version;
}

void fsio_lose(struct fsio *io, const uint32_t *partitions, size_t count, uint64_t version, bool copies) {
    pthread_mutex_lock(&io->table_lock);
    note(io, &io->lost, partitions, copies ? 0 : count, version);
    note(io, &io->lost_copies, partitions, copies ? count : 0, version);
    if (count > 0) atomic_store(&io->lost_version, version); /* without memory for more: every file that was open then */
    pthread_mutex_unlock(&io->table_lock);
}

uint64_t fsio_losses(const struct fsio *io) { return atomic_load(&io->lost_version); }

bool fsio_stripes_lost(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t from, uint64_t end, uint64_t since) {
    if (from >= end || atomic_load(&io->lost_version) <= since) return false;
    uint64_t first = from / stripe, count = (end - 1) / stripe - first + 1;
    pthread_mutex_lock(&io->table_lock);
    const uint64_t *versions = copied ? io->lost_copies : io->lost;
    bool lost = versions == NULL;
    for (uint64_t i = 0; !lost && i < count && i < io->partitions; i++)
        lost = versions[amfs_stripe_partition(ino, first + i, io->partitions)] > since;
    pthread_mutex_unlock(&io->table_lock);
    return lost;
}

void fsio_not_lost(struct fsio_file *file, uint64_t since, bool lost) {
    atomic_store(&file->since, since);
    atomic_store(&file->torn, lost);
}

/* Asked at the beginning of whatever is done with a file, so that what is written later, to the heirs, is not taken for lost. */
bool fsio_file_lost(struct fsio_file *file) {
    uint64_t since = atomic_load(&file->since), latest = atomic_load(&file->io->lost_version);
    if (file->kind != FSIO_STRIPED) return false;
    if (atomic_load(&file->torn)) return true;
    if (latest <= since) return false;
    if (fsio_stripes_lost(file->io, file->ino, atomic_load(&file->stripe), atomic_load(&file->copied), 0, atomic_load(&file->size), since))
        atomic_store(&file->torn, true);
    else atomic_compare_exchange_strong(&file->since, &since, latest);
    return atomic_load(&file->torn);
}

void fsio_known_since(struct fsio_handle *handle, uint64_t version) {
    uint64_t since = atomic_load(&handle->file->since);
    while (version < since && !atomic_compare_exchange_weak(&handle->file->since, &since, version)) continue;
}
