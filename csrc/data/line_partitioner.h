/* Lines into parts by the hash of their key: the step of a shuffle on the files of one node.
 *
 * A line goes as a whole, and in the order read, to part xxh64(key) mod parts. Its key is one column: columns are separated by blanks (spaces
 * and tabs; those at the start of a line are skipped, several are one, as awk has it), or each by one byte, as cut has it. The key of a line
 * with fewer columns is empty. A last line without a newline gets one. All other bytes are as they come.
 *
 * Memory: one buffer a part, one block of input, and the longest key with what stands before it; never a whole file. */
#ifndef AMFS_LINE_PARTITIONER_H
#define AMFS_LINE_PARTITIONER_H

#include <stddef.h>
#include <stdint.h>

enum { PARTITION_BLANKS = -1, PARTITION_PARTS_MAX = 4096 };

struct partition_rule {
    unsigned column; /* of the key, from 1 */
    int delimiter; /* a byte, or PARTITION_BLANKS */
    unsigned parts; /* 1 to PARTITION_PARTS_MAX */
};

/* Takes bytes of a part, whole lines or not, in order. 0, or an errno, which ends everything. */
typedef int (*partition_sink)(void *context, unsigned part, const void *bytes, size_t size);

struct line_partitioner;

/* NULL: no memory. */
struct line_partitioner *line_partitioner_new(const struct partition_rule *rule, partition_sink sink, void *context);
void line_partitioner_free(struct line_partitioner *partitioner);

/* Take all that can be read from a descriptor. 0, or an errno: of reading, of the sink, ENOMEM. */
int line_partitioner_read(struct line_partitioner *partitioner, int fd);

/* The same with bytes in memory that are a whole file. */
int line_partitioner_bytes(struct line_partitioner *partitioner, const void *bytes, size_t size);

/* Hand everything to the sink. 0, or its errno. */
int line_partitioner_flush(struct line_partitioner *partitioner);

#endif
