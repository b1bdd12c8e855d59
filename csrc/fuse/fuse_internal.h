/* Shared by the files of a mount, in floors; each calls only those before it.
 *   fuse_mount.c, fuse_splice.c, fuse_tasks.c, fuse_small.c, fuse_inodes.c (what the kernel knows), fuse_answer.c (times, answers)
 *   fuse_work.c (workers), fuse_slow.c (the queue to the poll loop), fuse_notify.c (what the kernel must forget)
 *   fuse_tell_shard.c (what other shards are told), fuse_files.c (the table of open files), fuse_secure.c (copies of what is written),
 *   fuse_release.c (closing), fuse_opening.c (opening), fuse_tellers.c (threads that tell the kernel), fuse_forget.c, fuse_suid.c
 *   requests: fuse_attrs.c, fuse_names.c, fuse_list.c, fuse_xattr.c, fuse_closing.c (open, release), fuse_data.c
 *   fuse_reply.c (answers of the poll loop), fuse_list_peers.c, fuse_uncount.c (names whose record is on another node), fuse_rename.c, fuse_peer.c (asking other shards),
 *   fuse.c (life, loop, greeting)
 *
 * Locks: node->lock (open files; that of the mounts in open/opens.h) before any other, then node->mounts_lock; meta's; fsio's, and the mount's own, which are leaves. Every request takes
 * node->lock: with it held nobody waits for another node, for the gate of a file in fsio, or for the poll loop. */
#ifndef AMFS_FUSE_PRIVATE_H
#define AMFS_FUSE_PRIVATE_H

#include "common/thread.h"
#include "common/xxh3.h"
#include "fuse.h"
#include "fuse_wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum {
    MAX_WRITE = 1 << 20,
    MESSAGE_BYTES = MAX_WRITE + 8192,
    BULK_BYTES = 128 << 10, /* a read or write of so much is worth a thread of its own */
    SPLICE_BYTES = 128 << 10, /* and a read a pipe */
    LIFE_NS = 1000000000, /* so long a kernel believes a name that cannot be made to look up all of them again */
    IDLE_NS = 250000000, /* handles that no open stands for are closed when unused for so long */
};

/* One mount's use of an open file. */
struct view {
    struct view *next;
    struct amfs_fuse *mount;
    uint8_t edition; /* the number under which the kernel has it open */
    uint32_t readers, writers;
    bool passes; /* the kernel has the part itself */
    bool implicit, implicit_writing; /* one of the readers or writers stands for reads or writes without an open */
    bool mappable; /* passed to who may have mapped it to write */
    bool mapped; /* one of the writers stands for mappings that have outlived their descriptors */
    int32_t backing;
    ino_t part; /* which file of the store that is */
    enum fsio_kind kind;
    struct fsio_handle *reader, *writer;
    uint32_t busy; /* readings and writings under way */
    int64_t used_ns;
};

struct fuse_secured { /* the part of a small file that lay here when another node took it, too, without the poll loop */
    bool known;
    uint64_t size;
    int64_t mtime;
    uint8_t digest[XXH3_BYTES];
};

struct file {
    struct file *next;
    uint64_t ino;
    struct open_record *open; /* with the counts of all mounts */
    bool copied; /* it was opened from what is here without asking its shard, which lies elsewhere */
    bool direct, direct_writing, told; /* its shard was asked directly; for writing, and still so; it knows that all is closed */
    uint32_t closing; /* closings that have begun and not ended: it stays, and a request that opens it again waits */
    struct fuse_secured secured;
    int64_t atime; /* of the record, as far as known */
    struct view *views;
};

/* An inode that the kernel knows: how often it was given it, and what it may remember of it. */
struct kernel_inode {
    struct kernel_inode *next;
    uint64_t ino, lookups;
    uint64_t changed; /* the last change of which it was not told (mount->changes): it remembered nothing */
    uint32_t rights; /* mode and owner that it was given last, mixed into one number; 0: none yet */
    uint8_t edition; /* the last one it was given */
    bool all_editions; /* it was given all of them */
    bool held; /* unlinked since: kept as long as the kernel may use it */
    bool timed; /* it may use the attributes that it was given without asking again */
    bool paged; /* it may have pages of it */
};

/* A directory, pipe, device or link that was removed and may still be open, or somebody's working directory. */
struct removed_inode {
    struct removed_inode *next;
    struct meta_attr attr;
};

/* Entries of a directory changed whose home is elsewhere, and has not answered yet. */
struct touch {
    uint64_t dir; /* 0: unused */
    int64_t last, told;
};

enum { TOUCHES = 16, REMOVED_BUCKETS = 1 << 8, FILE_BUCKETS = 1 << 12, PENDING_BUCKETS = 1 << 8, INODE_BUCKETS = 1 << 10 };

struct node {
    struct node *next;
    int references;
    struct meta *meta;
    struct fsio *io;
    int32_t id;
    int root;
    bool limited; /* writes must be counted: the kernel may not do them by itself */
    struct opens *opens;
    pthread_mutex_t *lock; /* opens_mounts_lock */
    pthread_mutex_t mounts_lock;
    pthread_cond_t unawaited; /* a mount is */
    struct amfs_fuse *mounts;
    atomic_int mount_count;
    struct file *files[FILE_BUCKETS];
    struct file *spare_files;
    struct view *spare_views;
    struct message *waiting; /* requests that must not overtake the closing of their file, in the order in which they came */
    atomic_uint writing; /* files that are open for writing */
    atomic_uint copied; /* files of which a copy is open here and their shards do not know */
    atomic_bool unseen; /* a mount here opens files without a word */
    atomic_bool alone;
    atomic_bool defers; /* a file that is opened or made to be written takes the poll loop; set with the lock held */
    _Atomic int64_t floor; /* no time that we give is before this one */
    pthread_mutex_t touch_lock;
    struct touch touches[TOUCHES];
};

struct message { /* a request with its data, or room for one */
    struct message *next;
    struct amfs_fuse *mount;
    size_t size;
    uint64_t since; /* mount->changes before it was read */
    void (*run)(struct amfs_fuse *mount, void *bytes); /* NULL: a request of the kernel's */
    _Alignas(8) char bytes[];
};

struct notice {
    struct notice *next;
    uint64_t number, ino;
    int64_t not_before_ns;
    uint64_t covers; /* all names are to be looked up again: up to this number none has to be told any more */
    bool data;
    bool leaves; /* handles that no open stands for are closed before the kernel is told */
    bool looked, stays; /* that was tried; not all of it could be closed yet */
    uint32_t code;
    size_t length;
    char name[];
};

enum fuse_lane_name { NAMES, INODES, LANES };
enum { TELLERS = 4, LEAVER = TELLERS, NOTIFIERS }; /* threads: those that tell the kernel, and one that closes what no open stands for */

struct fuse_lane {
    struct notice *queue, **tail, *telling;
    uint64_t last, covered;
    pthread_cond_t wake;
};

struct teller {
    pthread_t thread;
    struct amfs_fuse *mount;
    struct fuse_lane *lane;
    int fd; /* in the teller's own table of descriptors */
    bool runs;
};

/* Calls of lower files to higher ones, given at the beginning. */
struct fuse_above {
    void (*serve)(struct amfs_fuse *mount, char *bytes, size_t size, uint64_t since, char *out, bool waits); /* by a worker */
    void (*in_vain)(struct amfs_fuse *mount, uint64_t ino); /* it was made and opened, and nobody waits for the answer */
    bool (*ask)(struct amfs_fuse *mount, struct amfs_fuse_request *request); /* peer_meta_begin */
};

struct amfs_fuse {
    struct amfs_fuse *next; /* of its node */
    const struct fuse_above *above;
    struct node *node;
    int fd, event_fd, wake_fd;
    struct amfs_fuse_options options;
    bool socket; /* a test, not the kernel */

    /* Written by the reader when the kernel says hello. */
    int64_t untold_ms; /* the reader's: since when backups are not told of a change for which nobody waits; 0: of none */
    atomic_bool started, ended, stopping, halting; /* stopping: nothing new is begun; halting: nothing is read any more */
    uint32_t minor, max_write;
    uint64_t granted;
    atomic_bool passes, no_open;
    atomic_ullong requests, slow;
    atomic_int looking; /* names being looked up or made here, of which the kernel is going to know */

    pthread_t reader;
    bool reader_runs;
    struct message *inbox; /* the reader reads into it */
    char *outbox; /* MESSAGE_BYTES for answers of the reader */

    pthread_mutex_t slow_lock;
    struct amfs_fuse_request *queue, **queue_tail, *pending[PENDING_BUCKETS];

    pthread_mutex_t notice_lock;
    pthread_cond_t notice_done;
    struct fuse_lane lanes[LANES];
    struct teller tellers[NOTIFIERS];
    pthread_cond_t leaver_wake;
    atomic_int mapped; /* files that mappings alone keep open */
    bool newly_mapped;
    int awaited; /* waited for by threads that found it in its node's list; under mounts_lock */

    pthread_mutex_t work_lock;
    pthread_cond_t work_wake;
    struct message *work, **work_tail, *spare;
    struct conduit *conduits; /* that nobody uses */
    int workers, idle, work_count, spares; /* idle: they wait, or were woken and have not taken their work yet */
    pthread_t worker_threads[16];

    pthread_mutex_t inodes_lock;
    struct kernel_inode **inodes, *spare_inodes;
    size_t inode_count, inode_buckets;
    atomic_uint removed_count;
    struct removed_inode *removed[REMOVED_BUCKETS];
    atomic_ullong changes; /* counted: of which the kernel was not told */
};

/* A request being served. */
struct call {
    struct amfs_fuse *mount;
    const struct wire_in *in;
    const char *body;
    size_t size; /* of the body */
    char *out; /* MESSAGE_BYTES */
    bool waits; /* it is a worker's, which may wait for other nodes */
    uint64_t since; /* mount->changes when it came */
    uint64_t attempt; /* the attempt at a blind task whose process asks; 0: none */
    bool stray; /* a process of a task that has ended */
};
static inline uint8_t edition_of(const struct call *call) { return (uint8_t)call->in->edition; }

static inline bool is_alone(const struct node *node) { return atomic_load_explicit(&node->alone, memory_order_relaxed); }

/* fuse_answer.c */
int64_t fuse_now_of(struct node *node); /* for records: as the kernel stamps files, never backwards */
int64_t fuse_exact_now_of(struct node *node); /* later than whatever was written before, and nothing later is given before it */
void fuse_seen_time(struct node *node, int64_t time);
int64_t fuse_monotonic_ns(void); /* to some milliseconds */
int64_t fuse_exact_ns(void);
int fuse_answer(struct amfs_fuse *mount, uint64_t unique, int error, const void *data,
                size_t size); /* 0 or errno; ENOENT: nobody waits any more */
static inline int refuse(const struct call *call, int error) { return fuse_answer(call->mount, call->in->unique, error, NULL, 0); }
int fuse_give_parts(const struct call *call, const struct iovec *parts, int count, size_t size); /* up to FSIO_LENT_MAX; as answer */
static inline int give(const struct call *call, const void *data, size_t size) {
    return fuse_answer(call->mount, call->in->unique, 0, data, size);
}
void fuse_created(uint64_t ino); /* by the request that is being served: closed again if nobody waits for its answer any more */
void fuse_backups_early(const struct amfs_fuse *mount); /* a change is told at once whose answer will wait for that */
void fuse_wake_loop(struct amfs_fuse *mount);

/* fuse_attrs.c */
enum { BLOCK_BYTES = 4096, WAIT = -1 /* instead of an errno: a worker has to do it */ };
/* `since`: changes of the mount before any of this was looked at; `cache`: may the kernel keep it, unless it has changed since. True: it may. */
bool fuse_put_entry(struct amfs_fuse *mount, uint64_t since, struct wire_entry_out *to, const struct meta_attr *attr, bool cache);
void fuse_put_attr_out(struct amfs_fuse *mount, uint64_t since, struct wire_attr_out *to, const struct meta_attr *attr, bool cache);
int fuse_complete_attr(struct node *node, struct meta_attr *attr, bool *cache, bool waiting);
bool fuse_handed_on(const struct call *call, uint64_t ino);
int64_t fuse_stamp_whole(struct node *node, uint64_t ino, unsigned mask,
                         const struct meta_attr *attr); /* when; 0: there is no whole part */
void fuse_do_getattr(struct call *call);
void fuse_do_setattr(struct call *call);
static inline bool goes_slow(int error) { return error == META_NOT_MINE || error == META_BUSY; }
/* An inode that is no more was found under a name a moment ago, which another may have by now: the kernel looks again if it is told so. */
enum {
    FILE_HAS_OLD = 2000
}; /* the kernel has older content of a file under this number, and shall look for it once more: it finds it under another */
static inline int gone_by_now(int error) { return error == ENOENT || error == ENOTDIR || error == FILE_HAS_OLD ? ESTALE : error; }

/* fuse_names.c */
const char *fuse_name_in(const struct call *call, size_t offset, size_t *length); /* NULL: there is none that ends */
void fuse_ask_slowly(struct call *call, enum amfs_fuse_op op, const char *name, size_t length);
void fuse_do_lookup(struct call *call);
void fuse_do_readlink(struct call *call);
void fuse_do_make(struct call *call); /* MKNOD, MKDIR, SYMLINK, CREATE */
void fuse_do_unlink(struct call *call);
void fuse_do_rename(struct call *call);
void fuse_do_link(struct call *call);
void fuse_do_statfs(struct call *call);

/* fuse_suid.c */
/* Add to a request to set attributes that setuid and setgid bits go. 0 or EPERM. */
int fuse_suid_set(const struct call *call, const struct wire_setattr_in *in, unsigned *mask, struct meta_attr *want);
void fuse_suid_written(const struct call *call); /* before who wrote is answered */

/* fuse_xattr.c */
void fuse_do_xattr(struct call *call);
size_t fuse_hide_trusted(char *names, size_t size); /* those in "trusted." are root's business. Returns the size of what is left */

/* fuse_inodes.c, fuse_forget.c: inodes that the kernel knows, and files that it may still use although their name is gone */
void fuse_removed_add(struct amfs_fuse *mount, const struct meta_attr *attr);
bool fuse_removed_set(struct amfs_fuse *mount, uint64_t ino, unsigned mask, const struct meta_attr *want, int64_t now,
                      struct meta_attr *done);
bool fuse_removed_find(struct amfs_fuse *mount, uint64_t ino, struct meta_attr *attr);
void fuse_do_forget(struct call *call);
/* The kernel is given a name's inode and attributes: the number to give it under. *cache: may it keep the attributes; it may not if they have changed since
 * `since` (mount->changes). */
uint64_t fuse_inode_looked_up(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t since, bool *cache);
bool fuse_inode_asked(struct amfs_fuse *mount, const struct meta_attr *attr, uint64_t since, bool cache); /* likewise, attributes only */
bool fuse_inode_changed(struct amfs_fuse *mount, uint64_t ino, bool data); /* must the kernel be told, for it remembers some of it? */
void fuse_inode_paged(struct amfs_fuse *mount, uint64_t ino);
bool fuse_inode_has_pages(struct amfs_fuse *mount, uint64_t ino); /* may the kernel have pages of it? */
bool fuse_inode_is_known(struct amfs_fuse *mount, uint64_t ino);
void fuse_inode_hold(struct amfs_fuse *mount, uint64_t ino); /* its last name goes: if the kernel knows it, it stays */
bool fuse_inodes_held(struct node *node, uint64_t ino); /* by any mount of the node; with its lock held */
bool fuse_inodes_keep(struct node *node, uint64_t ino); /* kernels that open files without telling are to keep it: has any seen it? */
void fuse_inodes_end(struct amfs_fuse *mount);
enum { EDITION_SHIFT = 56, EDITIONS = 256 };
static inline uint64_t fuse_plain_ino(uint64_t id) { return id & (((uint64_t)1 << EDITION_SHIFT) - 1); }
static inline uint8_t fuse_edition_in(uint64_t id) { return (uint8_t)(id >> EDITION_SHIFT); }
static inline uint64_t fuse_node_id(uint64_t ino, unsigned edition) { return ino | (uint64_t)edition << EDITION_SHIFT; }
uint8_t fuse_inode_edition(struct amfs_fuse *mount, uint64_t ino); /* that is given from now on */
void fuse_inode_next_edition(struct amfs_fuse *mount, uint64_t ino, uint8_t edition); /* no more that one */
unsigned fuse_inode_last_edition(struct amfs_fuse *mount, uint64_t ino); /* 0: there is one only */

/* fuse_files.c, fuse_opening.c, fuse_release.c */
struct opening {
    uint64_t ino;
    uint8_t edition;
    enum fsio_kind kind;
    int32_t node;
    uint32_t stripe;
    uint64_t size;
    int64_t atime, mtime;
    bool writing, truncate, create, foreign, direct, copied;
    bool appends; /* at an end that others may have moved: no pages of the kernel's stand for that */
    bool stamp; /* a part that has to be made gets these times */
    bool implicit; /* for reads or writes without an open */
    bool answered; /* `losses` is that of the shard's answer, else fuse_files_begin sets it */
    uint64_t losses; /* as fsio_losses when the file was whole */
    /* by fuse_files_begin */
    struct file *file;
    struct view *view;
    bool fresh, copies, beside; /* copies: through a handle of this process; beside: others here wrote it then */
};
enum { FH_WRITING = 1, FH_EXPLICIT = 2 };
/* All with the lock held. After fuse_files_begin the file counts as open: the news that its record had before stands until it is closed. 0, an
 * errno, FILE_HAS_OLD. fuse_files_finish makes the handle, and gives the lock up meanwhile: if it fails, that counts no more. `out` NULL: implicit. */
int fuse_files_begin(struct amfs_fuse *mount, struct opening *opening);
bool fuse_files_wait(struct amfs_fuse *mount, const struct opening *opening); /* may fuse_files_finish have to wait for another node? */
int fuse_files_finish(struct amfs_fuse *mount, struct opening *opening, struct wire_open_out *out);
int fuse_files_open(struct amfs_fuse *mount, struct opening *opening, struct wire_open_out *out); /* the two after one another */
void fuse_files_close_one(struct amfs_fuse *mount, struct file *file, struct view *view,
                          bool writing); /* gives the lock up while it waits for other nodes */
struct file *fuse_files_find(struct node *node, uint64_t ino); /* with the lock held */
bool fuse_files_made(struct node *node, uint64_t ino); /* another node was asked directly to make it, and it is written here since then */
bool fuse_files_known(struct node *node, uint64_t ino); /* likewise without it; true if it is not to be had */
struct view *fuse_files_view(const struct file *file, const struct amfs_fuse *mount, uint8_t edition);
/* How a file is being written here; FSIO_REMOTE: it is not, or through another node, which knows its size. */
enum fsio_kind fuse_files_written_as(struct node *node, const struct meta_attr *attr);
/* Size and times, by the data, of a file that is written here: 0: it is not; 1: done; -1: only by waiting for other nodes. */
int fuse_files_overlay(struct node *node, struct meta_attr *attr, bool may_wait);
int fuse_files_part_stat(struct node *node, uint64_t ino, struct stat *found);
bool fuse_files_forget(struct amfs_fuse *mount,
                       uint64_t ino); /* close what no open stands for; false: it is being read or written just now */
bool fuse_files_implicit(struct amfs_fuse *mount, uint64_t ino); /* is there any of that? */
bool fuse_files_pass(struct amfs_fuse *mount, uint64_t ino,
                     uint8_t edition); /* has the kernel the content itself, and is that what the file contains? */
bool fuse_files_peer(const struct view *view); /* does closing it wait until other nodes have what was written? */
bool fuse_files_have_empty(struct node *node,
                           const struct meta_attr *attr); /* a part without content, made with the record's times if there is none */
void fuse_files_put_stat(struct node *node, struct meta_attr *attr, const struct stat *found);
void fuse_files_sweep(struct amfs_fuse *mount); /* the same where it is idle */
void fuse_files_end(struct amfs_fuse *mount); /* close what the kernel cannot close any more */
void fuse_forget_unused(struct amfs_fuse *mount, uint64_t ino); /* perhaps this node has no handle on it any more */

/* fuse_closing.c */
void fuse_do_open(struct call *call);
void fuse_do_release(struct call *call);

/* fuse_release.c */
/* `mappable`: the process that closes it may have mapped it to write. Such a mapping counts as a writer until it has gone.
 * `begun`: it counts as closing already. */
void fuse_files_close(struct amfs_fuse *mount, uint64_t ino, uint8_t edition, bool writing, bool mappable, bool begun);
bool fuse_closing_awaited(const struct call *call); /* true: the request waits, and is served when its file is closed */
void fuse_waiting_refuse(struct amfs_fuse *mount); /* the requests of this mount that wait so: the mount ends */
/* With the lock held. Of a mount's files that mappings alone keep open: is there one, and is it closed (it is not mapped any more)? */
struct view *fuse_mapped_view(const struct file *file, const struct amfs_fuse *mount);
bool fuse_mapped_close(struct amfs_fuse *mount, struct file *file, struct view *view);

/* fuse_data.c */
bool fuse_requests_wait(const struct amfs_fuse *mount); /* does a request lie there that nobody has read? */
void fuse_do_read(struct call *call);
void fuse_do_write(struct call *call);
void fuse_do_seek(struct call *call);
void fuse_do_allocate(struct call *call);
void fuse_do_copy(struct call *call);
void fuse_do_flush(struct call *call);
struct message *fuse_message_take(struct amfs_fuse *mount);
bool fuse_work_add(struct amfs_fuse *mount, struct message *message); /* false: there are no workers; the request was refused */
/* Have a worker do this with a copy of those bytes. False: there is none, or no memory. */
bool fuse_work_do(struct amfs_fuse *mount, void (*run)(struct amfs_fuse *mount, void *bytes), const void *bytes, size_t size);
struct message *fuse_work_message(const struct call *call); /* this request, to be served by a worker; NULL: it was refused */
bool fuse_work_copy(const struct call *call); /* have a worker serve it; false: it was refused */
void fuse_work_refuse(struct message *message, int error); /* instead of having it served */
void fuse_work_end(struct amfs_fuse *mount);
static inline bool may_wait(const struct call *call) { return call->waits; }

/* fuse_splice.c: reads that are answered without a copy of ours */
static inline bool splice_suits(const struct call *call, size_t size) { return size >= SPLICE_BYTES && !call->mount->socket; }
/* An answer with what is in the file, on its way: to be given before anything else. NULL: not this one, or not now: copy it. */
struct conduit *fuse_splice_from(const struct call *call, int fd, size_t size, uint64_t offset);
bool fuse_splice_give(const struct call *call, struct conduit *conduit); /* false: it was not taken: copy it */
void fuse_conduits_end(struct amfs_fuse *mount);

/* fuse_list_peers.c */
bool fuse_list_ask(struct amfs_fuse *mount, const struct amfs_fuse_request *request); /* as peer_meta_begin */

/* fuse_peer.c */
bool peer_meta_begin(struct amfs_fuse *mount,
                     struct amfs_fuse_request *request); /* it is asked elsewhere, and answered from there, or fuse_slow_again is called */
bool peer_meta_closed(struct amfs_fuse *mount, uint64_t ino, const struct meta_attr *said, bool same,
                      bool used); /* `said` NULL: nothing was written; `same`: nothing since it was secured */
bool peer_meta_touch(struct amfs_fuse *mount, uint64_t dir, int64_t now);
void peer_meta_mounts_begin(struct node *node); /* the first mount of a node comes */
void peer_meta_mounts_end(struct node *node);
void peer_meta_end(struct amfs_fuse *mount); /* nothing is asked for it any more */

/* fuse_rename.c */
struct fuse_renaming { /* a rename that has begun */
    uint64_t dir, to_dir, ino, owner, old; /* owner: of the lock on the old name; old: the file whose name the new one was, 0: nobody's */
    uint32_t type, flags;
    uint32_t how_far; /* FUSE_OP_RENAMING */
    const char *name, *to_name;
    size_t length, to_length;
};
bool fuse_rename(struct amfs_fuse *mount, struct amfs_fuse_request *request); /* as fuse_unname_here */

/* fuse_uncount.c */
struct fuse_unnamed { /* a name that has gone, or is about to, and the file that it was of */
    uint64_t dir, ino;
    const char *name;
    size_t length;
};
/* A request to unlink a name that is here: if its record is on another node the name goes, and that node is asked to count a link less. False: the poll loop is to
 * do what is left of the request, which says what that is. */
bool fuse_unname_here(struct amfs_fuse *mount, struct amfs_fuse_request *request);
void fuse_uncount(struct amfs_fuse *mount, uint64_t unique,
                  const struct fuse_unnamed *what); /* the name has gone: the request is answered in any case */
/* The owner of the name (`named`), or of the record, has answered that a third node must forget the file first. False: it is not being asked. */
struct peer_meta_answer;
bool fuse_spare(struct amfs_fuse *mount, uint64_t unique, const struct fuse_unnamed *what, bool named, int32_t owner,
                const struct peer_meta_answer *answer);
/* A shard has answered that it counts a link less: answer the request. `flags`: PEER_META_GONE, PEER_META_USED. */
void fuse_unlinked(struct amfs_fuse *mount, uint64_t unique, uint64_t dir, uint64_t ino, unsigned flags);
unsigned fuse_perhaps_used(
    const struct node *node); /* PEER_META_USED, or 0: no mount of the node can have it open without having said so */

/* fuse_small.c */
/* The content of a small file has come from another node: it is here from now on, and its shard is told. False: it is not to be gone by, or what lies here
 * already may be old, and on its way out. */
bool fuse_small_bring(struct amfs_fuse *mount, const struct meta_attr *attr, const uint8_t *bytes, size_t count);

/* fuse_secure.c */
void fuse_do_secure(const struct call *call); /* it is answered when as many nodes have what was written as shall */
bool fuse_secure(struct amfs_fuse *mount, const struct amfs_fuse_request *request); /* as peer_meta_begin */
/* With the lock held: is what another node took all that is here, of which `said` tells? */
bool fuse_still_secured(struct node *node, const struct file *file, const struct meta_attr *said);

/* fuse_tasks.c: acts of blind tasks in the mount that their node has for them */
bool fuse_tasks_admit(struct call *call); /* whose process asks; false: it was refused */
uint64_t fuse_tasks_pending(const struct node *node, uint64_t attempt); /* the mark of what it makes, in all of the session */
/* A name was looked up, `error` 0 or why not, and is written down. A file that another attempt is about to make is not there: 0 or an errno. */
struct fuse_looked {
    uint64_t attempt, dir;
    bool stray;
    const char *name;
    size_t length;
};
int fuse_tasks_looked_up(struct amfs_fuse *mount, const struct fuse_looked *looked, int error, const struct meta_attr *attr);
void fuse_tasks_done(struct amfs_fuse *mount, const struct amfs_fuse_request *request,
                     const struct meta_attr *attr); /* before it is answered */

/* fuse_list.c */
void fuse_do_open_dir(struct call *call);
void fuse_do_list(struct call *call);
struct fuse_listing { /* a directory's entries on their way into an answer */
    struct amfs_fuse *mount;
    uint64_t dir;
    bool plus;
    uint64_t since; /* as fuse_put_entry */
    char *to;
    size_t used, room;
    uint64_t *last; /* where the kernel goes on after the last entry; NULL: there is none yet */
};
/* `cursor`: where to go on after it. `attr` NULL: not known, or not to be kept. False: no room left. */
bool fuse_list_add(struct fuse_listing *listing, const char *name, size_t length, uint64_t ino, uint32_t type, uint64_t cursor,
                   const struct meta_attr *attr);
bool fuse_list_dots(struct fuse_listing *listing, uint64_t dir, uint64_t offset); /* "." and ".." */
enum { DOTS = 2 }; /* an offset of the kernel is a cursor and these */
/* Where several nodes have names, a cursor is the place of a shard among them (meta_shards), and a cursor of that shard. */
enum { LIST_SIDE_BY_SIDE = 8, LISTED_BYTES = 4096 };
struct fuse_round { /* shards that are asked at the same time for a page of a directory */
    uint64_t version, inside; /* of the table; where the first of them goes on */
    size_t place, count, of; /* which they are, of how many */
    size_t others; /* of them: on other nodes */
    int32_t nodes[LIST_SIDE_BY_SIDE];
};
struct fuse_listed { /* the answer of one of them */
    int error;
    bool more;
    size_t size;
    uint8_t bytes[LISTED_BYTES]; /* as of meta_list_for */
};
enum fuse_page { PAGE_DONE, PAGE_GOES_ON, PAGE_FAILED };
void fuse_list_round(const struct node *node, uint64_t cursor, struct fuse_round *round);
void fuse_list_here(const struct node *node, uint64_t dir, const struct fuse_round *round,
                    struct fuse_listed *listed); /* the answer of this node's shard, if it is one of them */
/* Put the answers into a page. PAGE_GOES_ON: there is nothing in these, but there may be in others, from *cursor on. PAGE_FAILED: one could not say. */
enum fuse_page fuse_list_take(struct fuse_listing *listing, const struct fuse_round *round, const struct fuse_listed *listed,
                              uint64_t *cursor);

/* fuse_slow.c, fuse_reply.c */
struct amfs_fuse_request *fuse_slow_new(const struct call *call, enum amfs_fuse_op op, const char *name, size_t length, const void *value,
                                        size_t value_length);
void fuse_slow_add(struct amfs_fuse *mount,
                   struct amfs_fuse_request *request); /* NULL: nothing (the call is refused with ENOMEM by fuse_slow_new) */
void fuse_slow_touched(struct amfs_fuse *mount, uint64_t dir);
void fuse_slow_perhaps_made(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length);
/* The last handle of any kind that this node had is closed, or (`wrote`) the last writing one, which says what it wrote if it knows. */
void fuse_slow_unused(struct amfs_fuse *mount, uint64_t ino);
void fuse_slow_wrote(struct amfs_fuse *mount, uint64_t ino, bool last, const struct meta_attr *said);
void fuse_touch(struct amfs_fuse *mount, uint64_t dir); /* entries of a directory changed */
/* Open, to read it, a file whose content this node has by now. False: it is not so, and the request still waits. */
bool fuse_slow_open_here(struct amfs_fuse *mount, uint64_t unique);
void fuse_slow_again(struct amfs_fuse *mount, uint64_t unique); /* one that was asked elsewhere in vain */
void fuse_slow_uncount(struct amfs_fuse *mount, uint64_t unique,
                       const struct fuse_unnamed *what); /* the poll loop is to do what is left of unlinking it */
void fuse_slow_rename(struct amfs_fuse *mount, uint64_t unique, const struct fuse_renaming *what); /* likewise, the rest of renaming */
void fuse_put_renaming(struct amfs_fuse_request *request, const struct fuse_renaming *what); /* the request that it becomes so */
void fuse_slow_end(struct amfs_fuse *mount);
bool fuse_slow_busy(struct amfs_fuse *mount, uint64_t dir); /* does somebody wait for the poll loop, with a lock of that directory held */

/* fuse_notify.c */
static inline bool has_epochs(const struct amfs_fuse *mount) { return mount->minor >= WIRE_MINOR_EPOCH && !mount->options.no_epochs; }
int fuse_notify_begin(struct amfs_fuse *mount);
void fuse_notify_end(struct amfs_fuse *mount);
void fuse_notify_mapped(struct amfs_fuse *mount, int by); /* so many more files are to be looked at until their mappings have gone */
size_t fuse_inodes_remembered(struct amfs_fuse *mount, uint64_t **inos); /* that the kernel may use without asking; the caller frees them */
uint64_t fuse_notify_epoch(struct amfs_fuse *mount); /* every name the kernel keeps is to be looked up again */
void fuse_notify_others(struct amfs_fuse *mount, uint64_t ino, bool data);
void fuse_notify_editions(struct amfs_fuse *mount,
                          uint64_t ino); /* the kernel changes one of them: of the others it forgets the attributes */
void fuse_notify_others_entry(struct amfs_fuse *mount, uint64_t dir, const char *name, size_t length);

/* fuse_slow.c */
struct amfs_fuse_request *fuse_slow_claim(struct amfs_fuse *mount, uint64_t unique);
struct amfs_fuse_request **fuse_slow_pending_at(struct amfs_fuse *mount, uint64_t unique);

/* fuse_files.c */
static inline int fuse_writers(const struct file *file) { return file->open->counts[OPEN_MOUNTS][true]; } /* with the lock held */
void fuse_files_tell_loop(struct node *node, struct file *file); /* when it is closed; with the lock held */
bool fuse_view_has_old(struct node *node, const struct view *view, const struct opening *opening);
void fuse_files_count(struct node *node, struct file *file, struct view *view, bool writing, int by);
void fuse_files_drop(struct node *node, struct file *file);
void fuse_view_drop(struct node *node, struct file *file, struct view *view);
void fuse_view_give_back(struct amfs_fuse *mount, struct view *view);
struct view *fuse_view_implicit(const struct file *file, const struct amfs_fuse *mount);
bool fuse_view_is_unused(const struct view *view);
enum fsio_kind fuse_view_kind(const struct view *view);
struct file *fuse_files_add(struct node *node, uint64_t ino);
struct view *fuse_view_add(struct file *file, struct amfs_fuse *mount, uint8_t edition);

/* fuse_answer.c */
uint64_t fuse_seconds_of(int64_t time, uint32_t *ns);

/* fuse_tell_shard.c */
int32_t fuse_owner_of(const struct node *node, uint64_t ino);

/* fuse_inodes.c */
struct kernel_inode **fuse_inode_place(const struct amfs_fuse *mount, uint64_t ino);
void fuse_removed_forget(struct amfs_fuse *mount, uint64_t ino);

/* fuse_notify.c */
uint64_t fuse_notice_add(struct amfs_fuse *mount, struct notice said, const char *name);
void fuse_notice_carried_out(struct amfs_fuse *mount, struct fuse_lane *lane, struct notice *notice, bool done);
void fuse_notice_put_back(struct amfs_fuse *mount, struct fuse_lane *lane, struct notice *notice); /* with the lock held */
bool fuse_notice_carry_out(struct amfs_fuse *mount, int fd, const struct notice *notice);
void fuse_notice_forgotten(struct amfs_fuse *mount, uint64_t ino); /* the kernel has no inode of that number any more */
struct timespec fuse_notice_in_ms(long milliseconds);

/* fuse_answer.c */
void fuse_answers_to(bool changes); /* the next request: does it change what somebody relies on when it is answered? */
enum { LATER_MS = 2 }; /* news that could not be told yet */

#endif
