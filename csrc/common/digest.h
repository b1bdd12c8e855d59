/* A digest of the content of a file: 128 bits, made of XXH64, to tell whether two files are the same. Not a signature: two files
 * with one digest can be made on purpose.
 *
 * Of every block of 1 MiB (the last may be shorter) two hashes are taken, with the seeds 0 and DIGEST_SEED. The digest is the same two hashes of all
 * of them in order, followed by the size; all numbers are 8 bytes, lowest first. In place of the hashes of full blocks that are all zeros stand, for
 * each run of them, a zero and how many there are: so holes are not read. It can be taken block by block, by anybody who reads the file
 * (amfs/host/digests.py does). */
#ifndef AMFS_DIGEST_H
#define AMFS_DIGEST_H

#include <stdint.h>

#define DIGEST_SEED UINT64_C(0x9E3779B97F4A7C15)
enum { DIGEST_BYTES = 16, DIGEST_BLOCK = 1 << 20 };

/* Of all that can be read from `from`, from where it stands. The bytes are also written to `to`, an empty file, unless that is -1: blocks of zeros
 * become holes. 0, or an errno (ESTALE: it has no name any more); *writing then says whether it is about `to`. */
int amfs_digest(int from, int to, uint8_t digest[DIGEST_BYTES], uint64_t *size, int *writing);

#endif
