/* Digests (XXH3, 128 bits) of the files that this process keeps: of whole parts (fsio) and of files in the stores and spill directories of runs.
 *
 * A digest is taken when a file is finished, while nobody can write it, and stands for it until it is written again. A caller that opens
 * a part for writing, or changes a stripe, says so first (digests_forget). Besides, a digest counts only as long as the file has the inode
 * number, size and time of modification that it had. (The time alone would not do: a store to a page that is mapped already does not move
 * it.) The last million are kept, in memory.
 *
 * Holes cost nothing: of each run of blocks (64 KiB, from the start of the file) that are all zeros only the length goes into the digest. So a hole
 * and zeros that were written have the same digest, and that of a file without such a block is what xxh128sum prints.
 *
 * Any thread may call. Nothing here decides what becomes of a damaged file. */
#ifndef AMFS_DIGESTS_H
#define AMFS_DIGESTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "xxh3.h"

/* Of which file. Parts: a number of their fsio (digests_space), and that of the part. Others: device and inode number. */
struct digests_key {
    uint64_t space, number;
};
struct digests_key digests_key_of(const struct stat *found); /* of a file that is no part */
uint64_t digests_space(void);

enum digests_verdict { DIGESTS_UNKNOWN, DIGESTS_FINE, DIGESTS_DAMAGED };

bool digests_get(struct digests_key key, const struct stat *found, uint8_t digest[XXH3_BYTES]); /* false: none that counts */
void digests_forget(struct digests_key key);
/* Before the content is looked at, and when its digest is kept: it is not if it was forgotten in between. */
uint64_t digests_moment(struct digests_key key);
void digests_put(struct digests_key key, const struct stat *found, const uint8_t digest[XXH3_BYTES], uint64_t moment);
/* The time of modification was set by hand; the content is what it was. */
void digests_retime(struct digests_key key, uint64_t inode, int64_t was_ns, int64_t is_ns);

/* Can anybody write the file: by an open descriptor, or by a mapping that has outlived its descriptor? 0: nobody can; EAGAIN: somebody can;
 * another errno: the kernel does not say. `fd`: one that only reads. */
int digests_writers(int fd);

/* A digest that is being taken, of content that comes in order, in pieces of any size. */
struct digests_run {
    struct xxh3 hash;
    uint64_t zeros; /* that came last and are not in the hash yet: whole blocks, and the start of this one */
    size_t at; /* in this block */
    bool other; /* something else than zeros has come of this block */
};
void digests_begin(struct digests_run *run);
void digests_add(struct digests_run *run, const void *bytes, size_t count);
void digests_add_zeros(struct digests_run *run, uint64_t count);
void digests_end(struct digests_run *run, uint8_t digest[XXH3_BYTES]);

/* Of all of a file. 0 or an errno; EAGAIN: it changes; ENOENT: it has no name any more; ECANCELED: *stop (NULL: nobody can stop it). */
int digests_take(int fd, const atomic_bool *stop, uint8_t digest[XXH3_BYTES]);
/* The one that is known, or is taken now and kept. 0 or an errno, likewise. */
int digests_learn(struct digests_key key, int fd, const atomic_bool *stop, uint8_t digest[XXH3_BYTES]);
enum digests_verdict digests_check(struct digests_key key, int fd, const atomic_bool *stop);

/* In the background, in a thread of low priority, while somebody wants it so. */
void digests_want(int by); /* + 1, or - 1: the last one ends the thread */
void digests_later_file(const char *path);
void digests_later(void (*act)(void *context, uint64_t number, int64_t index), void *context, uint64_t number, int64_t index);
void digests_leave(const void *context); /* nothing of it is queued or under way any more */

#endif
