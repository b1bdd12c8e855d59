/* Striped files. Lower files first:
 * held.c: stripes here. copies.c: stripes here, with their copies on other nodes. owners.c: stripes at their owners. pieces.c: reading ahead and writing
 * behind. striped.c: the rest of what striped files do. spread.c: from one layout to the other. */
#ifndef AMFS_DATA_STRIPED_H
#define AMFS_DATA_STRIPED_H

#include "data/store/store.h"

enum { FSIO_COPY_LOCKS = 64 };

struct fsio_striped {
    struct fsio_copies *copies; /* of each partition, under table_lock; NULL: nothing has been said of them */
    pthread_mutex_t passing_on[FSIO_COPY_LOCKS]; /* by stripe: its owner changes it and its copies */
    pthread_mutex_t taking[FSIO_COPY_LOCKS];     /* by stripe: a copy of it here changes */

    pthread_rwlock_t writes; /* shared: a stripe here is being written; alone: wait until none is that began before */

    pthread_mutex_t carriers_lock;
    pthread_cond_t carriers_work;
    pthread_t carrier[8];
    int carriers, carriers_idle, carry_count;
    struct fsio_piece *carry_head, **carry_tail;
    struct spare *spares;
    int spare_count;
    atomic_llong piece_bytes;
};

/* Some bytes of one stripe, and where they go. */
struct fsio_segment {
    uint64_t index, at;
    char *to;
    size_t count;
};

/* held.c */
bool fsio_takes_writes(struct fsio *io, uint64_t ino, uint64_t index); /* by our table the stripe is of this node, and stays here */
uint64_t fsio_part_growth(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, size_t count); /* how many bytes longer it becomes */
int fsio_part_write(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count,
                    int64_t *grown); /* bytes that it takes beyond before */
int fsio_stripe_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from,
                     size_t count); /* of this node; asks for no limit. ESTALE: it is not */
int fsio_part_punch(struct fsio *io, uint64_t ino, int64_t index, uint64_t offset, uint64_t length);
int fsio_part_cut(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size); /* stripes of a file that has now `size` bytes */

/* copies.c */
bool fsio_has_copies(struct fsio *io); /* has anything been said of copies */
int fsio_stripe_put(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from,
                    size_t count); /* of this node, with its copies if it has any, and as the limit allows; ESTALE: it is not */
int fsio_part_trim(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size); /* stripes here of a file that has now `size` bytes */
int fsio_copied_keep(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from,
                     size_t count); /* as fsio_stripe_keep, after its copies */
/* Its copies alone, before there is anything here. ESTALE, ENODATA: a backup is not in step. */
int fsio_copied_prepare(struct fsio *io, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count);
int fsio_copied_punch(struct fsio *io, uint64_t ino, int64_t index, uint64_t offset, uint64_t length);
int fsio_push_now(struct fsio *io, uint64_t ino, uint64_t index, int32_t node);
/* For `owner`, which sends it. ESTALE: by our table it is not. ENODATA: there is nothing of the stripe that could be changed. */
int fsio_copy_change(struct fsio *io, int32_t owner, uint64_t ino, uint64_t index, uint64_t at, const char *from, size_t count,
                     bool in_step);
int fsio_copy_whole(struct fsio_fresh *fresh, int32_t owner, uint64_t index, const uint8_t *digest, int error); /* as fsio_fresh_end */
/* While the owner does that with a stripe nobody changes it. ESTALE: by our table it is not the owner. */
int fsio_undisturbed(struct fsio *io, uint64_t ino, uint64_t index, int (*act)(struct fsio *io, void *context), void *context);

/* owners.c */
/* `copied`: if its owner dies its heir has it. Zeros where nothing is. */
int fsio_stripe_read(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, char *to, size_t count);
int fsio_stripe_write(struct fsio *io, uint64_t ino, uint64_t index, bool copied, uint64_t at, const char *from, size_t count);
/* The lowest index of a stripe that is anywhere, from `index` on, as far as `last`; above that: there is none. 0 or an errno. */
int fsio_next_stripe(struct fsio *io, uint64_t ino, uint64_t index, uint64_t last, bool copied, uint64_t *next);
int fsio_segments_read(struct fsio *io, uint64_t ino, bool copied, const struct fsio_segment *segments, size_t count);
int fsio_stripes_trim(struct fsio *io, uint64_t ino, uint32_t stripe, bool copied, uint64_t size, uint64_t old);
int fsio_stripe_punch(struct fsio_file *file, uint64_t index, uint64_t at, uint64_t count);
int fsio_stripes_total(struct fsio_file *file, struct data_stat *sum); /* blocks and times. Shared, the gate is enough */

/* pieces.c, striped.c: with the gate held */
void fsio_striped_touch(struct fsio_file *file); /* it is written now */
void fsio_striped_looked_at(struct fsio_file *file); /* it is read now */
void fsio_striped_begin(struct fsio_file *file); /* its record knows its times */
bool fsio_striped_make(struct fsio *io); /* false: no memory */
void fsio_striped_free(struct fsio *io);
void fsio_carriers_stop(struct fsio *io);
void fsio_spares_free(struct fsio *io);
bool fsio_striped_lends(const struct fsio_file *file, size_t count); /* all of so much at once */
int fsio_striped_lend(struct fsio_file *file, struct fsio_stream *stream, char *to, size_t count, uint64_t offset, struct fsio_lent *lent);
void fsio_striped_return(struct fsio_file *file, struct fsio_lent *lent);
int fsio_striped_read(struct fsio_file *file, struct fsio_stream *stream, char *to, size_t count, uint64_t offset, size_t *got);
int fsio_striped_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset);
int fsio_striped_truncate(struct fsio_file *file, uint64_t size);
int fsio_striped_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_striped_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_striped_stat(struct fsio_file *file, struct data_stat *stat);
void fsio_striped_settle(struct fsio_file *file); /* bytes written behind have reached their owners, or failed */
void fsio_striped_leave(struct fsio_file *file); /* settle, and forget pieces read ahead */

/* spread.c */
int fsio_spread(struct fsio_file *file, bool tell); /* LOCAL -> STRIPED, with the gate held alone */
int fsio_gather_now(struct fsio *io, uint64_t ino, uint32_t stripe, uint64_t size,
                    uint64_t since); /* EIO if some of it was lost after that version */

#endif
