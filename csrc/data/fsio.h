/* The data of the file system: parts of files in this node's tmpfs and on other nodes. Plain C, no Python; any thread may call.
 *
 * A part is what one node keeps of a file: the whole of it (index -1), or one stripe. It is an ordinary file below `root`:
 *   root/XX/<ino as 16 hexadecimal digits>            the whole content        (XX: last two digits)
 *   root/XX/<ino>.<index in decimal>                  a stripe, at most `stripe` bytes; bytes that are not there are zeros
 * Local parts are never copied through a buffer where the kernel can do it; other nodes' parts are read and written over data connections
 * (client.h, server.c), with sendfile for bulk, and read-ahead and write-behind for handles that go through a file in order. The same
 * connections carry the files of the runs from one node's store to another's.
 *
 * The server answers only connectors that prove that they have the session's key (handshake.h), and are members (fsio_set_peer) or clients.
 * Nothing is encrypted (docs/protocol.md).
 *
 * Every wait ends: a peer without progress for `stall_ms` (default 30000) is EIO, a stopped fsio is ECANCELED. */
#ifndef AMFS_FSIO_H
#define AMFS_FSIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { FSIO_KEY_BYTES = 32, FSIO_WHOLE = -1 };

enum fsio_kind {
    FSIO_LOCAL = 0,   /* the whole content is this node's part */
    FSIO_REMOTE = 1,  /* another node has it open for writing, or there is no room for a copy: all goes through a handle of that node */
    FSIO_STRIPED = 2, /* stripes at their partitions */
};

struct fsio;
struct fsio_handle;

struct fsio_options {
    int32_t node;
    uint64_t incarnation;
    const char *root;   /* of the parts; must exist */
    const char *store;  /* where the runs keep their files, for other nodes to fetch; NULL: nowhere. It must exist */
    const char *listen; /* numeric address; NULL or "": others cannot reach this node */
    const uint8_t *key; /* the session's, FSIO_KEY_BYTES; NULL: there are no other nodes */
    int threads;
    uint64_t limit; /* bytes that this node may keep in parts; 0: none */
    struct opens *opens; /* where the handles are counted; NULL: nobody else looks */
};
struct fsio *fsio_new(const struct fsio_options *options, char *error, size_t error_size); /* NULL, with a text in `error` */
int fsio_set_spill(struct fsio *io, const char *directory); /* absolute; before the first connection. 0 or ENOMEM */
void fsio_set_stall_ms(struct fsio *io, int milliseconds); /* before the first connection; tests cannot wait for half a minute */
struct opens *fsio_opens(const struct fsio *io);
int fsio_port(const struct fsio *io);
int fsio_event_fd(const struct fsio *io); /* readable while fsio_take has something */
int fsio_root_fd(const struct fsio *io);
/* Stripe (hash(ino)+i)%P -> node, as fsmeta.h. `moves`: those that move here or away by it, or still do; the others do not. */
void fsio_set_table(struct fsio *io, const int32_t *owners, size_t partitions, const uint32_t *moves, size_t count);
/* The owner of these partitions has died, and their stripes with it: to be called before the table of that version, which names heirs that have none of
 * them, is set. A file that has a stripe there is lost: every call on it is EIO but cutting it to nothing. A file that is opened from now on has been
 * written since then, unless fsio_known_since says otherwise. */
void fsio_lose(struct fsio *io, const uint32_t *partitions, size_t count, uint64_t version,
               bool copies); /* of files whose stripes have copies; else of the others */
/* Where the stripes of a file have copies its stripe length has this bit, in whatever is opened, and in fsio_restripe. */
#define FSIO_COPIED (UINT32_C(1) << 31)
/* Of one partition of this node: the nodes that keep copies of its stripes, and are told of each change; in_step: they have all of them. */
enum { FSIO_COPIES_MAX = 8 };
struct fsio_copies {
    bool known; /* false: writers wait */
    int count;
    int32_t nodes[FSIO_COPIES_MAX];
    bool in_step[FSIO_COPIES_MAX];
};
void fsio_set_copies(struct fsio *io, struct fsio_copies *all); /* of all partitions of the table; takes it over */
void fsio_writes_settle(struct fsio *io); /* writes of stripes here that did not know the table set last, or what moves, have been made */
void fsio_copies_settle(struct fsio *io); /* changes that did not know the copies set last have been made; waits for other nodes */
bool fsio_is_copied(struct fsio *io, uint64_t ino); /* do its stripes here have copies */
int fsio_copied(struct fsio *io, uint64_t ino); /* from now on they have */
/* While a partition moves nobody reads or writes its stripes here: a thread that wants to waits until that has ended, up to stall_ms. The first one at the
 * node that is to have it is told as FSIO_EVENT_AWAITED. The order is: a table by which it moves, at the old owner and at the new one;
 * fsio_fetch_part of each part at the new one; there it moves no more. */
void fsio_set_moving(struct fsio *io, const uint32_t *partitions, size_t count, bool moving);
/* A member of the session, that may connect from now on, and where it listens (`port` 0: nowhere). An incarnation of 0 is not looked at. */
void fsio_set_peer(struct fsio *io, int32_t peer, uint64_t incarnation, const char *host, int port);
void fsio_forget_peer(struct fsio *io,
                      int32_t peer); /* it is dead: callers that wait for it get EIO at once, and it may not connect any more */

/* ── parts of this node ── */
int fsio_part_path(const struct fsio *io, uint64_t ino, int64_t index, char *to, size_t room); /* relative to root */
int fsio_part_stat(struct fsio *io, uint64_t ino, int64_t index, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime,
                   int64_t *ctime);
int fsio_part_delete(struct fsio *io, uint64_t ino); /* everything of it that is here, stripes too */
int fsio_whole_delete(struct fsio *io, uint64_t ino); /* the whole part only */
int fsio_stripes_delete(struct fsio *io, uint64_t ino, uint64_t from); /* stripes from that index on */
/* A whole part of at most a few KiB, at once: 0 or an errno. To get it: ESTALE: it has another size, EBADMSG: it is not what was written, or is being
 * written. To make it, with these times: EEXIST: there is one; ENOSPC: nothing gives way for it. */
int fsio_small_get(struct fsio *io, uint64_t ino, uint8_t *to, size_t size);
int fsio_small_put(struct fsio *io, uint64_t ino, const uint8_t *from, size_t size, int64_t atime, int64_t mtime);
/* The file at `path` (on the same file system) becomes the whole part of `ino`, in place of one that is there. ENOSPC: over the limit. */
int fsio_part_adopt(struct fsio *io, uint64_t ino, const char *path);
/* `used`: of the limit, by parts and by what is held. */
void fsio_usage(struct fsio *io, uint64_t *used, uint64_t *limit, uint64_t *parts);
/* Files of runs take `bytes` of the same limit from now on, and `spilled` of the bytes that may be spilled. Returns what parts take; 0 where the store is
 * a mount of its own, of which the kernel counts all files together. */
uint64_t fsio_hold(struct fsio *io, uint64_t bytes, uint64_t spilled);
/* From now on a write that finds no room is told as FSIO_EVENT_FULL (size: bytes that must go), and waits for fsio_room_made with its serial, so long
 * at most, before it is ENOSPC. `freed` 0: there was nothing that could go. */
void fsio_expect_room(struct fsio *io, int patience_ms);

/* From now on the end of a file in stripes that nobody writes here any more is kept, for who opens it again, until fsio_end_recorded.
 * fsio_end: false: there is none. */
void fsio_keep_ends(struct fsio *io);
bool fsio_end(struct fsio *io, uint64_t ino, uint64_t *size, int64_t *written_ns);
void fsio_end_recorded(struct fsio *io, uint64_t ino);
bool fsio_lost(struct fsio *io, uint64_t ino); /* of what is open here in stripes, or was written here and is not recorded yet */
void fsio_room_made(struct fsio *io, uint64_t serial, uint64_t freed);
/* Once parts take more than `mark` bytes FSIO_EVENT_FULL is told with serial 0, and a write that finds no room waits for some even where there are no other
 * nodes. `most`: bytes that may be spilled, 0: any number. Only with a limit, and a spill directory. */
void fsio_spill_above(struct fsio *io, uint64_t mark, uint64_t most);
/* A whole part that nobody has open goes to the spill directory; fsio_room_made is not called by that. EALREADY: it is there; EBUSY, EAGAIN, ENOENT: it is
 * in use, or is changing; EDQUOT: as much as may be is there; EBADMSG: it is damaged; EOPNOTSUPP: nothing is spilled. Else the disk has failed: the part
 * is as it was. */
int fsio_spill(struct fsio *io, uint64_t ino, uint64_t *freed);
uint64_t fsio_spilled(struct fsio *io); /* bytes */

/* ── handles ──
 * A file that is written through this node stays what it is here, whatever later calls of fsio_open say; else the last one is believed, also for the
 * handles that are open already (a reader of stripes becomes one through the writer's node, and back). `size` is the size before O_TRUNC: open,
 * then truncate. REMOTE where that node knows nothing of the file is ESTALE (after a second: it may be about to open it).
 * Several handles of one ino share one `file` inside (kind, size, dirty state), so that what one writes the other reads. The size of a
 * striped file is known by its writer: `size` on opening, then grown by writes. */
int fsio_open(struct fsio *io, uint64_t ino, enum fsio_kind kind, int32_t node /* of REMOTE */, uint32_t stripe, uint64_t size,
              bool writing, bool create, struct fsio_handle **handle);
/* The same for a moment's work of our own, on what is LOCAL or STRIPED: it is not counted, so that nobody who asks meanwhile
 * whether the file is in use waits for a closing that is told to no one. */
int fsio_open_passing(struct fsio *io, uint64_t ino, enum fsio_kind kind, uint32_t stripe, uint64_t size, bool writing, bool create,
                      struct fsio_handle **handle);
/* The handle was opened by the record as it was at this version of the table: stripes that were lost later are lost to it. */
void fsio_known_since(struct fsio_handle *handle, uint64_t version);
uint64_t fsio_losses(const struct fsio *io); /* of the last fsio_lose */
/* Read at most `count` bytes; *got < count only at the end. Holes are zeros. */
int fsio_read(struct fsio_handle *handle, void *to, size_t count, uint64_t offset, size_t *got);
/* The same of a STRIPED file without copying what lies in memory already: `parts` say where the bytes are, in order, either at their place in `to` or in
 * that memory, where they stay until fsio_return, to be called if this is 0, though the handle be closed meanwhile. `bytes` < count only at the
 * end. EOPNOTSUPP: it is not STRIPED, or that would be too much at once. */
enum { FSIO_LENT_MAX = 64 };
struct fsio_lent {
    struct fsio_file *file;
    struct iovec parts[FSIO_LENT_MAX];
    struct fsio_piece *pieces[FSIO_LENT_MAX]; /* NULL: in `to` */
    int count;
    size_t bytes;
};
int fsio_read_in_place(struct fsio_handle *handle, void *to, size_t count, uint64_t offset, struct fsio_lent *lent);
void fsio_return(struct fsio_lent *lent);
#define FSIO_APPEND UINT64_MAX /* as offset of a write: at the end, wherever it is by then */
/* Write all. A LOCAL file that would take the node over its limit (or meets ENOSPC) becomes STRIPED under the writer's hands if there are other
 * nodes: the content goes to the stripes' owners, FSIO_EVENT_STRIPED is told, and writing goes on. ENOSPC when all are full. */
int fsio_write(struct fsio_handle *handle, const void *from, size_t count, uint64_t offset);
int fsio_truncate(struct fsio_handle *handle, uint64_t size);
int fsio_fallocate(struct fsio_handle *handle, int mode, uint64_t offset, uint64_t length);
int fsio_seek(struct fsio_handle *handle, uint64_t offset, int whence /* SEEK_DATA, SEEK_HOLE */, uint64_t *found);
int fsio_flush(struct fsio_handle *handle); /* write-behind is with its owners; reports what failed */
void fsio_write_through(struct fsio_handle *handle); /* each of its writes does that: for a face that is not told when a file is closed */
int fsio_stat(struct fsio_handle *handle, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime, int64_t *ctime);
/* The descriptor of a LOCAL file until fsio_lend_end, to be called if this is 0; meanwhile nobody truncates it through here. EOPNOTSUPP: it is not LOCAL. */
int fsio_lend(struct fsio_handle *handle, int *fd);
void fsio_lend_end(struct fsio_handle *handle);
uint64_t fsio_size(struct fsio_handle *handle); /* as far as this node knows: of what it writes itself, all */
bool fsio_reads_disk(const struct fsio_handle *handle); /* its content is spilled: reading may take as long as a disk does */
bool fsio_is_local(struct fsio_handle *handle); /* the whole content is this node's part still */
enum fsio_kind fsio_kind(const struct fsio_handle *handle); /* what its file is by now, without waiting for a change that is under way */
int fsio_close(struct fsio_handle *handle); /* flushes; the error of the flush */
/* fsio_stat of a file that is being written through this node. ENOENT: none is. Times that are not known here are 0: those of the record stand. */
int fsio_live(struct fsio *io, uint64_t ino, uint64_t *size, uint64_t *blocks, int64_t *atime, int64_t *mtime, int64_t *ctime);
/* Can opening it here (and then truncating it, if `cuts`) take as long as another node takes to answer? */
bool fsio_open_waits(struct fsio *io, uint64_t ino, bool cuts);
bool fsio_grown(struct fsio *io, uint64_t ino); /* it is, or was, written through this node in stripes, whatever its record says still */
/* Times were set by hand of a file that is open here in stripes: they are what fsio_stat says until it is read, or written. NULL: that one stays. */
void fsio_set_times(struct fsio *io, uint64_t ino, const int64_t *atime, const int64_t *mtime);

/* ── work in the background, completed through fsio_take ── (used by the Python side; serials are its own) */
int fsio_fetch(struct fsio *io, uint64_t serial, uint64_t ino, int32_t from,
               uint64_t size); /* make a whole part here from `from`'s whole part */
/* A file of `from`'s store, `size` bytes, to `destination` (a whole path; directories are made),
 * with a mode and a time (0: now). If that has a file by then, it stays. Ends in
 * FSIO_EVENT_FETCHED; ESTALE: it has another size there. */
int fsio_fetch_stored(struct fsio *io, uint64_t serial, int32_t from, const char *path, uint64_t size, const char *destination,
                      unsigned mode, uint64_t mtime_ns);
int fsio_fetch_part(
    struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from,
    bool keep); /* a part that is moving: copied, then deleted there; `keep`: a stripe with copies, that stays there as one */
int fsio_push_stripe(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index,
                     int32_t node); /* a copy of a stripe of here to that node */
int fsio_part_drop(struct fsio *io, uint64_t ino, int64_t index); /* one part of a file that is not open */
int fsio_restripe(struct fsio *io, uint64_t serial, uint64_t ino, uint32_t stripe); /* whole part here -> stripes at their owners */
int fsio_gather(struct fsio *io, uint64_t serial, uint64_t ino, uint32_t stripe, uint64_t size); /* stripes -> whole part here; they stay */
int fsio_delete_everywhere(struct fsio *io, uint64_t serial, uint64_t ino, const int32_t *nodes, size_t count);
int fsio_drop_stripes(struct fsio *io, uint64_t serial, uint64_t ino, const int32_t *nodes,
                      size_t count); /* likewise, but whole parts stay */
int fsio_list_parts(struct fsio *io, bool (*each)(void *context, uint64_t ino, int64_t index, uint64_t size, uint64_t blocks),
                    void *context);

enum fsio_event_kind {
    FSIO_EVENT_DONE,
    FSIO_EVENT_STRIPED,
    FSIO_EVENT_REMOTE_CLOSED, /* last handle through us on ino was closed */
    FSIO_EVENT_FULL, /* fsio_room_made is awaited; serial 0: by nobody, the mark was passed */
    FSIO_EVENT_FETCHED, /* fsio_fetch_stored has ended; size: bytes */
    FSIO_EVENT_DAMAGED, /* fsio_take_damage has something */
    FSIO_EVENT_AWAITED, /* somebody waits for stripes of a partition that moves here; serial: the partition */
};
struct fsio;
void fsio_tell_done(struct fsio *io, uint64_t serial, int error); /* FSIO_EVENT_DONE of something that is done elsewhere */
struct fsio_event {
    struct fsio_event *next;
    enum fsio_event_kind kind;
    uint64_t serial, ino, size; /* serial of STRIPED: the length of a stripe */
    int error;
};
struct fsio_event *fsio_take(struct fsio *io); /* oldest first; the caller frees each */

/* ── damage ── (digests.h) */
#include "common/digests.h"
/* Look whether a part is what it was; if nobody can say, it is what it should be from now on. That a whole part is damaged is told as well. */
enum digests_verdict fsio_check_part(struct fsio *io, uint64_t ino, int64_t index, uint64_t *size);
int fsio_part_digest(struct fsio *io, uint64_t ino, uint8_t digest[XXH3_BYTES]); /* of a whole part. EBUSY: somebody can write it, or has */
struct fsio_checked {
    uint64_t stripes, unknown, size, next; /* next: where to go on, if there may be `more` */
    int64_t bad; /* a damaged stripe, at which the look ended; -1: none */
    bool more;
};
/* Of the stripes that lie here, some at a time. Nobody is told. */
struct fsio_checked fsio_check_stripes(struct fsio *io, uint64_t ino, uint64_t from);
/* The owner of a stripe brings it anew from a node that has a copy; nobody changes it meanwhile. */
int fsio_mend_stripe(struct fsio *io, uint64_t serial, uint64_t ino, int64_t index, int32_t from);
/* Around the writing of a whole part by who has no handle of fsio: its digest counts no more, and none is taken. */
void fsio_writing_begins(struct fsio *io, uint64_t ino);
void fsio_writing_ends(struct fsio *io, uint64_t ino);
bool fsio_is_writable(struct fsio *io, uint64_t ino); /* has anybody the whole part open for writing, or mapped so? */
int fsio_part_stamp(struct fsio *io, uint64_t ino, const int64_t *atime, const int64_t *mtime); /* of a whole part here; NULL: that stays */
void fsio_part_retimed(struct fsio *io, uint64_t ino, uint64_t inode, int64_t was_ns, int64_t is_ns); /* its mtime was set by hand */
/* One damaged part (*ino, *index), or (*ino 0) file of the store, by its path below the store, which the caller frees. False: no more. */
bool fsio_take_damage(struct fsio *io, uint64_t *ino, int64_t *index, char **path);

void fsio_stop(struct fsio *io); /* ends the threads; repeatable */
void fsio_free(struct fsio *io);

#endif
