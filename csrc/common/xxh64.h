/* XXH64, the non-cryptographic 64-bit hash that places names (docs/architecture.md, "Placement of records"). */
#ifndef AMFS_XXH64_H
#define AMFS_XXH64_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 of `length` bytes at `data` (may be NULL when length is 0): bit-identical to the reference, on any byte order and alignment. */
uint64_t amfs_xxh64(const void *data, size_t length, uint64_t seed);

#endif
