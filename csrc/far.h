/* Metadata of other nodes, asked directly: a mount that needs one record of another shard asks that node's C side over a connection of its own and
 * is answered from the shard there, without the poll loop of either. What the shard cannot do at once (META_BUSY, META_NOT_MINE: an old table,
 * a third node to be told, several steps) is answered so, and takes the long way over the poll loops. far.c: life, answers of this node.
 * far_ask.c: questions to others. far_wire.h: the bytes.
 *
 * One connection to each node, on fsio's third lane, with many questions under way. What is asked of a node is answered in its order.
 *
 * Any thread may call. Nothing here waits for the network: questions are sent only as far as the socket takes them, answers are given to
 * `done` by a thread of fsio's door. A peer that is dead, or silent for stall_ms, ends the connection and all questions on it. */
#ifndef AMFS_FAR_H
#define AMFS_FAR_H

#include "fsio.h"
#include "fsmeta.h"

enum far_op {
    FAR_LOOKUP = 1, /* ino: directory, name; answers attr */
    FAR_GETATTR,    /* ino */
    FAR_OPEN,       /* ino: to read it; FAR_HOLDS: all of its content is at the asker (of an empty file: from now on) */
    FAR_CREATE,     /* ino: directory, name, attr, value: target of a symbolic link */
    FAR_UNLINK,     /* ino: directory, name; FAR_USED: perhaps it is open there. Answers FAR_GONE: the asker's data can go; FAR_USED: not yet */
    FAR_CLOSED,     /* ino, attr if it was written; FAR_USED: still open there */
    FAR_TOUCH,      /* ino: directory */
    FAR_READLINK,   /* ino; answers bytes */
    FAR_GET_XATTR,  /* ino, name; answers bytes */
    FAR_OPS,
};

enum { FAR_HAS_ATTR = 1, FAR_HOLDS = 2, FAR_GONE = 4, FAR_USED = 8 };

struct far_question {
    enum far_op op;
    unsigned flags;
    uint64_t ino;
    int64_t now;
    const struct meta_attr *attr; /* or NULL */
    const char *name;
    size_t name_length;
    const void *value;
    size_t value_length;
};

struct far_answer {
    int error; /* 0, an errno, META_BUSY, META_NOT_MINE; FAR_LOST */
    unsigned flags;
    struct meta_attr attr;
    const uint8_t *bytes; /* until `done` returns */
    size_t count;
};

enum { FAR_LOST = -1 }; /* the connection ended, or the asker: nobody knows whether it was done */

/* A question under way; part of something of the asker's. */
struct far_call {
    struct far_call *next; /* private */
    uint32_t serial;
    size_t cost;
    int64_t asked_ms;
    const void *owner; /* for far_cancel */
    void (*done)(struct far_call *call, const struct far_answer *answer); /* exactly once, by any thread, with no lock held */
};

/* The kernel caches of this node's mounts, as far as they concern changes that others make here. */
struct far_kernel {
    void *context;
    bool (*knows)(void *context, uint64_t ino);                                                   /* or may be about to */
    bool (*unseen)(void *context); /* do they open files without saying so */
    void (*forget)(void *context, uint64_t ino, uint64_t dir, const char *name, size_t length); /* `name` NULL: the inode alone. Waits, but not for long */
    void (*written)(void *context, uint64_t ino); /* through this node, by another. Waits, but not for long */
    void (*touched)(void *context, uint64_t dir);                                                 /* does not wait */
};

struct far;

/* Serves `meta` over `io`, which keeps it until it is freed. NULL: no memory, or it has one. */
struct far *far_new(struct meta *meta, struct fsio *io);
struct far *far_of(struct fsio *io); /* or NULL */
void far_set_kernel(struct far *far, const struct far_kernel *kernel); /* NULL: there are no mounts (any more); nobody is in its functions then */
void far_set_shy(struct far *far, bool shy); /* this node has caches that far_kernel does not reach: all changes take the long way */

/* Ask `node`. 0: `done` will be called; else an errno, and it will not: not connected (it is begun), too much under way. */
int far_ask(struct far *far, int32_t node, const struct far_question *question, struct far_call *call);
/* Have all questions of an owner done: for `patience_ms` as they are answered, then with FAR_LOST. When this returns nobody is in their `done` any
 * more. The owner asks nothing new. */
void far_cancel(struct far *far, const void *owner, int patience_ms);
uint64_t far_asked(const struct far *far); /* how many questions went out */
uint64_t far_served(const struct far *far); /* how many were answered here, the long way included */

/* Answer one question that came as bytes; for tests, too. The size of the answer in `to` (FAR_ANSWER_MAX bytes), 0: it is no question. */
enum { FAR_QUESTION_MAX = 5120, FAR_BYTES_MAX = 4096, FAR_ANSWER_MAX = FAR_BYTES_MAX + 128 }; /* a value that is longer takes the long way */
size_t far_serve(struct far *far, int32_t node, const uint8_t *question, size_t size, uint8_t *to);
/* A question as bytes, at most FAR_QUESTION_MAX; 0: too long. */
size_t far_write_question(const struct far_question *question, uint32_t serial, uint8_t *to);
bool far_read_answer(const uint8_t *bytes, size_t size, uint32_t *serial, struct far_answer *answer);

#endif
