/* The kernel's FUSE protocol (7.x), as far as amfs speaks it: the messages on /dev/fuse. Written down here rather than taken
 * from the system's header, because the header of the machine that builds may be older than the kernel of the one that mounts. */
#ifndef AMFS_FUSE_WIRE_H
#define AMFS_FUSE_WIRE_H

#include <stdint.h>
#include <sys/ioctl.h>

enum { WIRE_MAJOR = 7, WIRE_MINOR_MIN = 31, WIRE_MINOR = 40, WIRE_MIN_BUFFER = 8192 };

/* clang-format off */
enum wire_opcode {
    WIRE_LOOKUP = 1, WIRE_FORGET = 2, WIRE_GETATTR = 3, WIRE_SETATTR = 4, WIRE_READLINK = 5, WIRE_SYMLINK = 6, WIRE_MKNOD = 8,
    WIRE_MKDIR = 9, WIRE_UNLINK = 10, WIRE_RMDIR = 11, WIRE_RENAME = 12, WIRE_LINK = 13, WIRE_OPEN = 14, WIRE_READ = 15,
    WIRE_WRITE = 16, WIRE_STATFS = 17, WIRE_RELEASE = 18, WIRE_FSYNC = 20, WIRE_SETXATTR = 21, WIRE_GETXATTR = 22,
    WIRE_LISTXATTR = 23, WIRE_REMOVEXATTR = 24, WIRE_FLUSH = 25, WIRE_INIT = 26, WIRE_OPENDIR = 27, WIRE_READDIR = 28,
    WIRE_RELEASEDIR = 29, WIRE_FSYNCDIR = 30, WIRE_CREATE = 35, WIRE_INTERRUPT = 36, WIRE_DESTROY = 38, WIRE_BATCH_FORGET = 42,
    WIRE_FALLOCATE = 43, WIRE_READDIRPLUS = 44, WIRE_RENAME2 = 45, WIRE_LSEEK = 46, WIRE_COPY_FILE_RANGE = 47, WIRE_OPCODES = 64,
};
/* clang-format on */

struct wire_in {
    uint32_t length, opcode;
    uint64_t unique, ino;
    uint32_t uid, gid, pid;
    uint16_t extensions, edition; /* the kernel sets 0; see fuse_inodes.c */
};
struct wire_out {
    uint32_t length;
    int32_t error; /* negative errno; of a notification: its code */
    uint64_t unique; /* 0: a notification */
};

struct wire_attr {
    uint64_t ino, size, blocks, atime, mtime, ctime;
    uint32_t atime_ns, mtime_ns, ctime_ns, mode, nlink, uid, gid, rdev, blksize, flags;
};
struct wire_entry_out {
    uint64_t ino, generation, entry_s, attr_s;
    uint32_t entry_ns, attr_ns;
    struct wire_attr attr;
};
struct wire_attr_out {
    uint64_t attr_s;
    uint32_t attr_ns, padding;
    struct wire_attr attr;
};

/* INIT. Flags of both words as one number. */
#define WIRE_CAN(bit) (UINT64_C(1) << (bit))
enum {
    CAN_ASYNC_READ = 0,
    CAN_ATOMIC_O_TRUNC = 3,
    CAN_BIG_WRITES = 5,
    CAN_READDIRPLUS = 13,
    CAN_READDIRPLUS_AUTO = 14,
    CAN_ASYNC_DIO = 15,
    CAN_NO_OPEN = 17,
    CAN_PARALLEL_DIROPS = 18,
    CAN_MAX_PAGES = 22,
    CAN_CACHE_SYMLINKS = 23,
    CAN_KILLPRIV_V2 = 28,
    CAN_INIT_EXT = 30,
    CAN_EXPIRE_ONLY = 35,
    CAN_DIRECT_IO_MMAP = 36,
    CAN_PASSTHROUGH = 37,
};
struct wire_init_in {
    uint32_t major, minor, max_readahead, flags, flags2, unused[11];
};
struct wire_init_out {
    uint32_t major, minor, max_readahead, flags;
    uint16_t max_background, congestion_threshold;
    uint32_t max_write, time_gran;
    uint16_t max_pages, map_alignment;
    uint32_t flags2, max_stack_depth, unused[6];
};

enum { GETATTR_FH = 1 };
struct wire_getattr_in {
    uint32_t flags, padding;
    uint64_t fh;
};
enum {
    FATTR_MODE = 1,
    FATTR_UID = 2,
    FATTR_GID = 4,
    FATTR_SIZE = 8,
    FATTR_ATIME = 16,
    FATTR_MTIME = 32,
    FATTR_FH = 64,
    FATTR_ATIME_NOW = 128,
    FATTR_MTIME_NOW = 256,
    FATTR_CTIME = 1024,
    FATTR_KILL_SUIDGID = 2048,
};
struct wire_setattr_in {
    uint32_t valid, padding;
    uint64_t fh, size, lock_owner, atime, mtime, ctime;
    uint32_t atime_ns, mtime_ns, ctime_ns, mode, unused, uid, gid, unused2;
};

struct wire_mknod_in {
    uint32_t mode, rdev, umask, padding;
}; /* then the name */
struct wire_mkdir_in {
    uint32_t mode, umask;
}; /* then the name */
struct wire_rename_in {
    uint64_t to_dir;
}; /* then both names */
struct wire_rename2_in {
    uint64_t to_dir;
    uint32_t flags, padding;
};
struct wire_link_in {
    uint64_t ino;
};
struct wire_create_in {
    uint32_t flags, mode, umask, open_flags;
};

enum { OPEN_KILL_SUIDGID = 1 };
struct wire_open_in {
    uint32_t flags, open_flags;
};
enum { OPENED_DIRECT_IO = 1, OPENED_KEEP_CACHE = 2, OPENED_NOFLUSH = 32, OPENED_PASSTHROUGH = 128 };
struct wire_open_out {
    uint64_t fh;
    uint32_t flags;
    int32_t backing;
};
struct wire_release_in {
    uint64_t fh;
    uint32_t flags, release_flags;
    uint64_t lock_owner;
};
struct wire_flush_in {
    uint64_t fh;
    uint32_t unused, padding;
    uint64_t lock_owner;
};
struct wire_fsync_in {
    uint64_t fh;
    uint32_t flags, padding;
};

enum { WRITE_KILL_SUIDGID = 4 };
struct wire_read_in { /* READ, WRITE (then the data), READDIR, READDIRPLUS */
    uint64_t fh, offset;
    uint32_t size, io_flags;
    uint64_t lock_owner;
    uint32_t flags, padding;
};
struct wire_write_out {
    uint32_t size, padding;
};

struct wire_statfs_out {
    uint64_t blocks, bfree, bavail, files, ffree;
    uint32_t bsize, namelen, frsize, padding, spare[6];
};
struct wire_setxattr_in {
    uint32_t size, flags;
}; /* then name, value */
struct wire_getxattr_in {
    uint32_t size, padding;
}; /* then the name */
struct wire_getxattr_out {
    uint32_t size, padding;
};

struct wire_fallocate_in {
    uint64_t fh, offset, length;
    uint32_t mode, padding;
};
struct wire_lseek_in {
    uint64_t fh, offset;
    uint32_t whence, padding;
};
struct wire_lseek_out {
    uint64_t offset;
};
struct wire_copy_in {
    uint64_t fh, offset, to_ino, to_fh, to_offset, length, flags;
};

struct wire_forget_in {
    uint64_t lookups;
};
struct wire_batch_forget_in {
    uint32_t count, padding;
};
struct wire_forget_one {
    uint64_t ino, lookups;
};

struct wire_dirent {
    uint64_t ino, offset;
    uint32_t length, type;
    char name[];
};
enum { WIRE_DIRENT = 24, WIRE_DIRENTPLUS = 128 + 24 };

enum { NOTIFY_INVAL_INODE = 2, NOTIFY_INVAL_ENTRY = 3, NOTIFY_EPOCH = 8, INVAL_EXPIRE_ONLY = 1 };
enum { WIRE_MINOR_EPOCH = 44 }; /* from here on the kernel can be told to look up every name again */
struct wire_inval_inode {
    uint64_t ino;
    int64_t offset, length;
};
struct wire_inval_entry {
    uint64_t dir;
    uint32_t length, flags;
}; /* then the name and a NUL */

struct wire_backing {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
#define WIRE_DEVICE_CLONE _IOR(229, 0, uint32_t)
#define WIRE_BACKING_OPEN _IOW(229, 1, struct wire_backing)
#define WIRE_BACKING_CLOSE _IOW(229, 2, uint32_t)

_Static_assert(sizeof(struct wire_in) == 40 && sizeof(struct wire_out) == 16 && sizeof(struct wire_attr) == 88, "headers");
_Static_assert(sizeof(struct wire_entry_out) == 128 && sizeof(struct wire_attr_out) == 104, "entries");
_Static_assert(sizeof(struct wire_init_in) == 64 && sizeof(struct wire_init_out) == 64 && sizeof(struct wire_setattr_in) == 88, "init");
_Static_assert(sizeof(struct wire_read_in) == 40 && sizeof(struct wire_statfs_out) == 80 && sizeof(struct wire_open_out) == 16, "data");

#endif
