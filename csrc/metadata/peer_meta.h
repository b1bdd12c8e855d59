/* Metadata of other nodes, asked directly: a mount that needs one record of another shard asks that node's C side over a connection of its own and
 * is answered from the shard there, without the poll loop of either. A question that the shard cannot answer at once (META_BUSY, META_NOT_MINE: an old
 * table, a third node to be told, several steps) is refused so, and takes the long way over the poll loops. peer_meta.c: life, answers of this node.
 * peer_meta_ask.c: questions to others. peer_meta_wire.h: the bytes.
 *
 * One connection to each node, on the third lane of the data connections, with many questions under way. A node answers them in their order.
 *
 * Any thread may call. Nothing here waits for the network: questions are sent only as far as the socket takes them, answers are given to
 * `done` by a thread of the data server. A peer that is dead, or silent for stall_ms, ends the connection and all questions on it. */
#ifndef AMFS_PEER_META_H
#define AMFS_PEER_META_H

#include "data/fsio.h"
#include "fsmeta.h"

enum peer_meta_op {
    PEER_META_LOOKUP = 1, /* ino: directory, name; answers attr; with PEER_META_ELSEWHERE only the number and the type */
    PEER_META_GETATTR, /* ino */
    PEER_META_OPEN, /* ino: to read it; PEER_META_HOLDS: all of its content is at the asker (of an empty file: from now on) */
    PEER_META_CREATE, /* ino: directory, name, attr, value: target of a symbolic link */
    /* ino: directory, name; PEER_META_USED: perhaps it is open there. Answers PEER_META_HOLDS: the file has gone; PEER_META_GONE: so the asker's data can go; PEER_META_USED: not yet;
     * PEER_META_ELSEWHERE: the record, of which attr says the number and the type, is on another node. Only the name has gone; PEER_META_UNCOUNT is next.
     * PEER_META_THIRD: nothing is done; `holder` is to be asked by PEER_META_SPARE first, bytes: u64 stamp, u64 inode. value: of each node that was asked so,
     * u32 node, u64 stamp */
    PEER_META_UNLINK,
    PEER_META_CLOSED, /* ino, attr if it was written; PEER_META_HOLDS: nothing since PEER_META_SECURE; PEER_META_USED: still open there */
    PEER_META_TOUCH, /* ino: directory */
    PEER_META_READLINK, /* ino; answers bytes */
    PEER_META_GET_XATTR, /* ino, name; answers bytes */
    PEER_META_CONTENT, /* ino, attr: of a small file that lies at the node that is asked; answers bytes */
    PEER_META_HOLD, /* ino, attr: the asker has brought what this record tells of */
    PEER_META_BACKUP, /* value: a batch of fsmeta_batches.c; answers bytes */
    PEER_META_SETATTR, /* ino: a file, attr, value: u32 the mask (META_SET_DIRECTLY) */
    PEER_META_SPREAD, /* ino: number of the spread, value: u32 manager, changes (fsmeta_spread.c); answers an i64 for each, as bytes */
    PEER_META_RESERVE, /* ino: directory, name, now: number of this question; by the manager; answers u64, the number, as bytes */
    PEER_META_STRIKE, /* likewise; value: u64 the number of the directory of that name */
    PEER_META_UNCOUNT, /* ino: a file of which the asker has taken a name; as PEER_META_UNLINK else */
    PEER_META_LIST, /* ino: directory, now: the asker's version of the table, value: u64 cursor; answers entries (meta_list_for) as bytes; PEER_META_MORE */
    /* ino, attr: of a small file that the asker writes, value: its content, which is to be kept and recorded; PEER_META_HOLDS: the asker records it */
    PEER_META_SECURE,
    /* ino: a file, name, value: u64 its directory, or neither: forget them, and say (0) that you do not use the file. PEER_META_GONE: it has gone, with what
     * lies of it at the node that is asked. PEER_META_USED: it may be used */
    PEER_META_SPARE,
    /* ino: directory, name, value: u64 owner of the lock, and nodes that have been asked by PEER_META_SPARE, as for PEER_META_UNLINK; answers as that if a third
     * node must be. The record counts two names from then on */
    PEER_META_RENAME,
    /* ino: directory, name, value: u64 inode, u32 its type; PEER_META_HOLDS: it may be another's name, of which attr says the number and the type then */
    PEER_META_INSERT,
    PEER_META_RENAMED, /* as PEER_META_RENAME, value: also u64 inode: the name goes */
    PEER_META_OPS,
};

enum {
    PEER_META_HAS_ATTR = 1,
    PEER_META_HOLDS = 2,
    PEER_META_GONE = 4,
    PEER_META_USED = 8,
    PEER_META_HEARD = 16,
    PEER_META_BATCH = 32,
    PEER_META_SMALL = 64,
    PEER_META_THIRD = 64, /* in the answers to PEER_META_UNLINK, PEER_META_UNCOUNT and PEER_META_RENAME */
    PEER_META_MORE = 128, /* in the answer to PEER_META_LIST */
    PEER_META_ELSEWHERE = 128 /* in those to PEER_META_LOOKUP and PEER_META_UNLINK */
};

struct peer_meta_question {
    enum peer_meta_op op;
    unsigned flags;
    uint64_t ino;
    int64_t now;
    const struct meta_attr *attr; /* or NULL */
    const char *name;
    size_t name_length;
    const void *value;
    size_t value_length;
    uint64_t heard; /* the asker has all before this item of what is told to it as a backup; 0: nothing new */
};

struct peer_meta_answer {
    int error; /* 0, an errno, META_BUSY, META_NOT_MINE; PEER_META_LOST */
    unsigned flags;
    struct meta_attr attr;
    int32_t
        holder; /* with PEER_META_SMALL: a node that has the content, which the asker has not; with PEER_META_THIRD: the node to be asked first */
    const uint8_t *bytes; /* until `done` returns */
    size_t count;
};

enum { PEER_META_MASK_BYTES = 4, PEER_META_CURSOR_BYTES = 8, PEER_META_SPARED_BYTES = 12, PEER_META_THIRD_BYTES = 16 };
enum { PEER_META_RENAME_BYTES = 8, PEER_META_INSERT_BYTES = 12, PEER_META_RENAMED_BYTES = 16 };
enum { PEER_META_LOST = -1 }; /* the connection ended, or the asker: nobody knows whether it was done */

/* A question under way; part of something of the asker's. */
struct peer_meta_call {
    struct peer_meta_call *next; /* private */
    uint32_t serial;
    size_t cost;
    int64_t asked_ms;
    const void *owner; /* for peer_meta_cancel */
    void (*done)(struct peer_meta_call *call, const struct peer_meta_answer *answer); /* exactly once, by any thread, with no lock held */
};

/* The kernel caches of this node's mounts, as far as they concern changes that others make here. */
struct peer_meta_kernel {
    void *context;
    bool (*knows)(void *context, uint64_t ino); /* or may be about to */
    bool (*unseen)(void *context); /* do they open files without saying so */
    bool (*uses)(void *context, uint64_t ino); /* or may be about to */
    void (*forget)(void *context, uint64_t ino, uint64_t dir, const char *name,
                   size_t length); /* `name` NULL: the inode alone. Waits, but not for long */
    void (*written)(void *context, uint64_t ino); /* through this node, by another. Waits, but not for long */
    void (*touched)(void *context, uint64_t dir); /* does not wait */
};

struct peer_meta;

/* Serves `meta` over `io`, which keeps it until it is freed. NULL: no memory, or it has one. */
struct peer_meta *peer_meta_new(struct meta *meta, struct fsio *io);
struct peer_meta *peer_meta_of(struct fsio *io); /* or NULL */
void peer_meta_set_kernel(
    struct peer_meta *peer_meta,
    const struct peer_meta_kernel *kernel); /* NULL: there are no mounts (any more); nobody is in its functions then */
void peer_meta_set_shy(struct peer_meta *peer_meta,
                       bool shy); /* this node has caches that peer_meta_kernel does not reach: all changes take the long way */

/* Ask `node`. 0: `done` will be called; else an errno, and it will not: not connected (it is begun), too much under way. */
int peer_meta_ask(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *question, struct peer_meta_call *call);
/* Have all questions of an owner done: for `patience_ms` as they are answered, then with PEER_META_LOST. When this returns nobody is in their `done` any
 * more. The owner asks nothing new. */
void peer_meta_cancel(struct peer_meta *peer_meta, const void *owner, int patience_ms);
uint64_t peer_meta_asked(const struct peer_meta *peer_meta); /* how many questions went out */
uint64_t peer_meta_served(const struct peer_meta *peer_meta); /* how many were answered here, the long way included */

/* ── answers that wait until backups know what was changed ── */
struct peer_meta_held {
    struct peer_meta_held *next; /* private */
    int64_t since_ms; /* private */
    uint64_t ticket;
    const void *owner;
    /* By any thread, with no lock held; it frees it. EIO: a backup has not said for stall_ms that it knows, and nobody waits any longer. */
    void (*ready)(struct peer_meta_held *held, int error);
};
bool peer_meta_hold(struct peer_meta *peer_meta, struct peer_meta_held *held); /* false: it may be answered now */
bool peer_meta_await_backups(struct peer_meta *peer_meta, uint64_t ticket); /* waits. False: it took longer than stall_ms */
void peer_meta_let_go_held(struct peer_meta *peer_meta,
                           const void *owner); /* all of an owner's are ready; when this returns nobody is in `ready` */
void peer_meta_send_backups(struct peer_meta *peer_meta); /* something was changed */
void peer_meta_backups_changed(struct peer_meta *peer_meta); /* the shard was told of other backups */

/* Answer one question that came as bytes; for tests, too. The size of the answer in `to` (PEER_META_ANSWER_MAX bytes), 0: it is no question. */
enum {
    PEER_META_QUESTION_MAX = 5120,
    PEER_META_BATCH_MAX = 128 << 10, /* a question of PEER_META_BACKUP */
    PEER_META_BYTES_MAX = 4096,
    PEER_META_ANSWER_MAX = PEER_META_BYTES_MAX + 128
}; /* a value that is longer takes the long way */
size_t peer_meta_serve(struct peer_meta *peer_meta, int32_t node, const uint8_t *question, size_t size, uint8_t *to);
/* Nodes that have forgotten a file, as a question says it. False: it says something else. */
bool peer_meta_read_spares(const uint8_t *from, size_t size, struct meta_spares *spares);
/* A question as bytes, at most PEER_META_QUESTION_MAX; 0: too long. */
size_t peer_meta_write_question(const struct peer_meta_question *question, uint32_t serial, uint8_t *to);
bool peer_meta_read_answer(const uint8_t *bytes, size_t size, uint32_t *serial, struct peer_meta_answer *answer);

#endif
