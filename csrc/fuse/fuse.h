/* A mount: the loop on one /dev/fuse descriptor, in the node's own process.
 *
 * A thread reads the kernel's requests. It answers those that concern only this node at once, from its metadata (fsmeta.h) and its parts (fsio.h);
 * it queues those that need other nodes for the poll loop (amfs_fuse_take), which answers later with one of the reply functions. A FUSE node id is
 * an inode number (of files that others have written with more: fuse_inodes.c). Where the kernel allows it (passthrough), it reads and writes the parts of open files itself.
 *
 * Mounts of one node share a table of open files: an inode is open on a node, not on a mount. A change that one mount makes at once is invalidated in
 * the caches of the others here; the poll loop tells them of all other changes.
 *
 * Threads: one that reads, some that tell the kernel what it must forget (which may have to wait for a lock of a process that waits for us),
 * and workers, started when first needed, for what waits for the network or copies much. Any thread may call any function. */
#ifndef AMFS_FUSE_H
#define AMFS_FUSE_H

#include "data/fsio.h"
#include "metadata/fsmeta.h"

struct amfs_fuse;

struct amfs_fuse_options {
    bool passthrough; /* where the kernel grants it */
    bool no_open;     /* open is answered "not needed": files are opened and read from the kernel's caches; no passthrough then */
    int workers;      /* at most; 0: as many as seem right */
    bool tasks;       /* blind tasks run in it, and nobody else uses it: fuse_tasks.c */
    bool no_epochs;   /* as with a kernel that cannot be made to look up every name again */
    int64_t entry_ns, attr_ns; /* how long the kernel may believe what it was told, unless it is told otherwise */
};

/* Requests for the poll loop. Names of the operations as Python sees them: amfs_fuse_op_name. */
enum amfs_fuse_op {
    FUSE_OP_LOOKUP,
    FUSE_OP_GETATTR,
    FUSE_OP_SETATTR,
    FUSE_OP_READLINK,
    FUSE_OP_CREATE,
    FUSE_OP_MKNOD,
    FUSE_OP_MKDIR,
    FUSE_OP_SYMLINK,
    FUSE_OP_OPEN,
    FUSE_OP_UNLINK,
    FUSE_OP_RMDIR,
    FUSE_OP_RENAME,
    FUSE_OP_LINK,
    FUSE_OP_LIST,
    FUSE_OP_STATFS,
    FUSE_OP_SET_XATTR,
    FUSE_OP_GET_XATTR,
    FUSE_OP_LIST_XATTR,
    FUSE_OP_REMOVE_XATTR,
    FUSE_OP_ENSURE,
    FUSE_OP_SECURE,  /* the bytes written are to survive: answered when as many nodes have them as shall */
    FUSE_OP_PERHAPS_MADE, /* no answer came to making a file in directory `ino`, to be written here; the process that asked for it was told EIO */
    FUSE_OP_UNNAMED, /* the name in directory `ino` has gone; the record of its file, `other`, which is on another node, is to count a link less */
    /* a rename that has begun between other shards: of the file attr.ino, its old name locked by `cursor`. `mode`: 0: it has no new name, 1: it has, of which the
     * file `room` is to count a link less, 2: nobody knows; else as FUSE_OP_RENAME */
    FUSE_OP_RENAMING,
    FUSE_OP_CLOSED, /* no answer: the last writing handle here (wrote), the last handle of any kind (last), or one that was both, was closed */
    FUSE_OP_TOUCHED, /* no answer: entries of directory `ino` changed here, its times are kept elsewhere or watched */
};

/* In the mask of SETATTR: to cut a file, by its name, to the size that it has is nothing (if it holds no data). */
enum { SETATTR_BY_NAME = 1 << 16 };

struct amfs_fuse_request {
    struct amfs_fuse_request *next; /* of what amfs_fuse_take gave */
    struct amfs_fuse_request *pending; /* private */
    uint64_t unique; /* 0: wants no answer */
    enum amfs_fuse_op op;
    uint32_t opcode; /* the kernel's */
    uint32_t uid, gid, pid;
    uint8_t edition; /* private: fuse_inodes.c */
    uint64_t ino, other; /* inode, or the directory of the name; rename: the other directory; link: the directory; unnamed: the file */
    uint32_t mode, rdev, flags; /* flags: of open, rename, xattr; setattr: the mask; list: the limit */
    uint64_t cursor, room; /* room: bytes that the answer may take */
    bool wrote, last, has_attr;
    int again; /* private: how often it was asked once more */
    int64_t since_ms; /* private: when it was first asked */
    uint64_t moment, noticed; /* private; moment: when it was asked (meta_moment); noticed: changes of the mount then */
    struct meta_attr attr;
    size_t name_length, value_length; /* value: other name, target, value */
    uint64_t attempt, owned; /* private: the attempt at a blind task whose process asks; the mark of what it makes; 0: none */
    bool stray; /* private: a process of a task that has ended */
    bool direct; /* private: another node's shard is being asked, or has answered */
    void *message; /* private: a copy of the request */
    char *value;
    char name[];
};

const char *amfs_fuse_op_name(enum amfs_fuse_op op);

/* Serve `fd` (taken over) for node `node`. NULL with a sentence in `error`. */
struct amfs_fuse *amfs_fuse_new(int fd, struct meta *meta, struct fsio *io, int32_t node, const struct amfs_fuse_options *options,
                                char *error, size_t error_size);
int amfs_fuse_event_fd(const struct amfs_fuse *mount); /* readable when something can be taken, or the mount has ended */
bool amfs_fuse_ended(const struct amfs_fuse *mount); /* unmounted, or the connection was aborted */
/* Whether this node is the only one of the session: then nobody else can change anything, and directories are listed at once. Shared by all
 * mounts of the node. */
void amfs_fuse_set_alone(struct amfs_fuse *mount, bool alone);

/* From now on the poll loop decides of each opening to write, and so knows of it: the node drains. How many files are open in the mounts of the node and
 * written to its store or to stripes, or are being made. For all mounts of the node, and for good. */
unsigned amfs_fuse_defer(struct amfs_fuse *mount);

struct amfs_fuse_request *amfs_fuse_take(struct amfs_fuse *mount); /* oldest first; those with unique 0 are the caller's to free */
void amfs_fuse_request_free(struct amfs_fuse_request *request);

/* Requests that wait for an answer of the poll loop longer than that. How many were found. */
struct watch_entry;
size_t amfs_fuse_overdue(struct amfs_fuse *mount, int64_t longer_than_ms, struct watch_entry *found, size_t room);

/* Answers, each good for one request. ENOENT: no such request waits. */
int amfs_fuse_reply_error(struct amfs_fuse *mount, uint64_t unique, int error);
int amfs_fuse_reply_entry(struct amfs_fuse *mount, uint64_t unique, const struct meta_attr *attr, bool cache);
int amfs_fuse_reply_attr(struct amfs_fuse *mount, uint64_t unique, const struct meta_attr *attr, bool cache);
/* losses: of which this node had heard when it asked the shard. One of which it has heard since may have taken stripes of the file. */
int amfs_fuse_reply_open(struct amfs_fuse *mount, uint64_t unique, enum fsio_kind kind, int32_t node, uint32_t stripe, uint64_t size,
                         uint64_t losses);
int amfs_fuse_reply_created(struct amfs_fuse *mount, uint64_t unique, const struct meta_attr *attr, enum fsio_kind kind, int32_t node,
                            uint32_t stripe, uint64_t size, uint64_t losses);
int amfs_fuse_reply_bytes(struct amfs_fuse *mount, uint64_t unique, const void *data, size_t size);
struct amfs_fuse_entry {
    const char *name;
    size_t length;
    uint64_t ino, cursor;
    uint32_t type;
    const struct meta_attr *attr; /* or NULL */
};
int amfs_fuse_reply_dir(struct amfs_fuse *mount, uint64_t unique, const struct amfs_fuse_entry *entries, size_t count);
int amfs_fuse_reply_statfs(struct amfs_fuse *mount, uint64_t unique, uint32_t bsize, uint64_t blocks, uint64_t bfree, uint64_t bavail,
                           uint64_t files, uint64_t ffree);

/* Have the kernel forget what it keeps of an inode (`data`: its pages too) or an entry (`dir` 0: look all names up again). Returns at once a number to be
 * waited for by amfs_fuse_await_invalidated. 0: nothing to do. */
uint64_t amfs_fuse_invalidate_inode(struct amfs_fuse *mount, uint64_t ino, bool data);
/* Likewise, and what no open stands for is closed: another node has changed it, or wants to. */
uint64_t amfs_fuse_stale(struct amfs_fuse *mount, uint64_t ino); /* 0: of all inodes */
uint64_t amfs_fuse_invalidate_entry(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length);
/* The same of the name of a directory that was removed, `gone`; 0: of whatever it is. A kernel that does not know that inode has no such name, and need not
 * be told: to be told a name it takes the lock of the directory, which a process may hold that waits for us. */
uint64_t amfs_fuse_invalidate_entry_of(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length, uint64_t gone);
void amfs_fuse_await_invalidated(struct amfs_fuse *mount, uint64_t number);

/* The last name of a file is about to go. Does a mount of this node use it, or may the kernel open it without a word? Then FUSE_OP_CLOSED says when that
 * is over. */
bool amfs_fuse_keep(struct amfs_fuse *mount, uint64_t ino);

struct amfs_fuse_active {
    bool started; /* the kernel has said hello */
    uint32_t minor, max_write;
    bool passthrough, no_open, readdirplus, parallel_dirops, cache_symlinks, killpriv, expire_only;
    uint64_t requests, slow;
};
void amfs_fuse_active(struct amfs_fuse *mount, struct amfs_fuse_active *active);

/* End the threads; the connection ends, and with it the mount if nobody unmounted it. Repeatable. */
void amfs_fuse_stop(struct amfs_fuse *mount);
void amfs_fuse_free(struct amfs_fuse *mount);

#endif
