/* The bytes after the handshake on a data connection, little-endian.
 *
 * Requests               u8 op, u8 flag, u16 zero, u32 stripe, u64 ino, i64 index, u64 offset, u64 length, u64 extra; of WRITEs: the bytes
 * and, in order, answers u32 errno, u32 mode, u64 bytes that follow, u64 value; the bytes
 * A READ with READ_CHECKED of all of a file, or of a stripe, is answered with MODE_CHECKED in the mode, and its digest (digests.h) before its
 * bytes. A READ with READ_HOLES of all of a file that has holes is answered with MODE_HOLES: `bytes that follow` is what it takes, and what follows
 * are extents (transfer.h).
 *
 * Files are asked for on the first lane: parts of files, and files of the runs' store by their path (then ino is 0, and `extra` bytes of
 * the path follow the request). Files that are open for writing at a node are asked for on the second: the first never waits for a third
 * node, so nobody waits in a circle. The third lane is the rpc handler's (metadata: peer_meta_wire.h), and so is the fourth, for what the third
 * may wait for. Copies of stripes come on the fifth, from the owners of their partitions: they wait for no third node, and what they answer to the
 * first lane may wait for them. */
#ifndef AMFS_DATA_WIRE_H
#define AMFS_DATA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REQUEST_BYTES = 48,
    REPLY_BYTES = 24,
    STAT_BYTES = 40,
    WRITE_MAX = 16 << 20, /* bytes of one WRITE */
    PATH_BYTES_MAX = 4095, /* of a path in the store */
    LANES = 5,
    LANE_PARTS = 0,
    LANE_FILES = 1,
    LANE_RPC = 2,
    LANE_BACKUP = 3,
    LANE_COPIES = 4,
    DATA_BROKEN = -1,      /* beside errnos: the connection ended; on another one it may go better */
    DATA_CHUNK = 512 << 10, /* through a buffer: stays in the cache of a core */
};

/* Nodes have numbers below that; clients draw theirs above, and may read files of the runs' store only. */
#define DATA_CLIENTS_FROM ((uint64_t)1 << 32)

enum data_op {
    /* Part, or file of the store: offset, length; answers its mode, and its size as value. Of a part, flag 1: a stripe that is not there is
     * ENOENT, else it is zeros. */
    OP_READ = 1,
    OP_WRITE, /* stripe: offset, length, bytes; flag 1: its copies, too */
    OP_STAT, /* part */
    OP_TRIM, /* stripes of a file that has now `offset` bytes, `stripe` each */
    OP_PUNCH, /* stripe: offset, length */
    OP_SEEK, /* stripe: offset, flag: whence */
    OP_DELETE, /* flag: enum data_what; index */
    /* Part, or file of the store: its digest. With a flag of 1 the node looks whether what it has is damaged: EBADMSG; value 1: it is not, 0:
     * nobody can say. */
    OP_DIGEST,
    OP_SUM, /* all stripes there: count in size, blocks, newest times */
    OP_NEXT, /* the lowest index of a stripe there, from index on; value: it, UINT64_MAX: there is none */
    OP_COPY, /* stripe: offset, length, bytes, flag: enum data_copy */
    OP_USE = 32, /* file: this node has from now on so many readers (offset) and writers (length) of it */
    OP_FILE_READ, /* offset, length */
    OP_FILE_WRITE, /* offset, length, bytes */
    OP_FILE_TRUNCATE, /* offset: size */
    OP_FILE_ALLOCATE, /* offset, length, extra: mode */
    OP_FILE_SEEK, /* offset, flag: whence */
    OP_FILE_STAT,
    OP_FILE_FLUSH,
};

enum { READ_ANY = 0, READ_THERE = 1, READ_HOLES = 0x40, READ_CHECKED = 0x80 }; /* flags of OP_READ; the last two beside the others */
#define MODE_CHECKED 0x80000000u
#define MODE_HOLES 0x40000000u

/* Of OP_COPY: a change of a stripe that may not be there (then ENODATA), one where all stripes are, all of a stripe (as extents, `length` is its
 * size). Before all of one its
 * digest comes with an `extra` of COPY_CHECKED (EBADMSG if what comes after it is something else) or COPY_DAMAGED (it is). */
enum data_copy { COPY_CHANGE = 0, COPY_IN_STEP, COPY_WHOLE };

enum { COPY_CHECKED = 1, COPY_DAMAGED };

enum data_what { WHAT_ALL = 0, WHAT_STRIPES, WHAT_PART };

struct data_request {
    uint8_t op, flag;
    uint32_t stripe;
    uint64_t ino;
    int64_t index;
    uint64_t offset, length, extra;
    const char *path; /* of `extra` bytes; NULL: ino and index say what is meant */
};

struct data_reply {
    int error;
    unsigned mode; /* of READ */
    uint64_t length, value;
};

struct data_stat {
    uint64_t size, blocks;
    int64_t atime, mtime, ctime;
};

/* The following answer 0, DATA_BROKEN or an errno: after both the connection is of no use any more. */
int data_receive(int fd, void *to, size_t count);
int data_send(int fd, const void *head, size_t head_size, const void *bytes, size_t count, bool more);
void data_socket_options(int fd, int stall_ms); /* time-outs, no delay */

#endif
