"""The C extension: hashes, launcher, copier, data connections, the file system and its mounts.

Contracts; the C headers repeat them for C readers.
"""

import builtins
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

from typing_extensions import Buffer

def xxh64(data: Buffer | str, seed: int = 0) -> int:
    """XXH64 of the bytes (str: its UTF-8), bit-identical to xxhash.xxh64_intdigest."""

def xxh3(data: Buffer, /) -> bytes:
    """XXH3 with 128 bits, as xxhash.xxh3_128_digest."""

def digest_of_content(data: Buffer, /) -> bytes:
    """By which this process knows a finished file of that content: as ``xxh3``, but that runs of zeros count by their length."""

def check_file(fd: int, /) -> int:
    """Of a file in a store or a spill directory: 0: no digest of it is known, 1: it has it, 2: it is damaged (csrc/common/digests.h)."""

def watched(longer_than_ms: int, /) -> list[tuple[str, int, int]]:
    """(what, number, milliseconds) that threads of C are at for longer."""

def digest_later(path: str, /) -> None:
    """Take the digest of a finished file in the background, if this process has anybody who wants it."""

def forget_digest(device: int, inode: int, /) -> None:
    """The file has gone."""

def hmac_sha256(key: bytes, parts: Sequence[bytes], /) -> bytes:
    """HMAC-SHA-256 of the bytes of all parts, one after the other (csrc/common/sha256.h)."""

def digest(from_: int, to: int = -1, /) -> tuple[bytes, int]:
    """(digest, size) of all that can be read from a descriptor, which is written to ``to`` as well (csrc/common/digest.h). Raises OSError,
    whose filename is "from" or "to", as the fault is."""

def partitions(names: Sequence[str], count: int) -> list[int]:
    """xxh64(name) % count for each name."""

@final
class Launcher:
    """Starts processes from packed records (amfs/vocabulary/records.py) on a thread of its own, without the GIL.

    First come, first run, while the running tasks' cores fit in ``slots`` and their memory in ``memory`` (a task larger than the whole
    runs alone). Each task is a process group of its own. All its processes end with it, and with this process.
    """

    fd: int  # eventfd, readable while completions wait

    def __init__(self, slots: int, *, memory: int = 0, sandbox_dir: str, log_dir: str, mount_dir: str = ..., watcher: str = ...,
                 kills: str = ..., last_words: str = ...) -> None:
        """``memory`` bytes, 0: not accounted. Sandboxes are made in ``sandbox_dir`` (must be on the store's file system).
        ``mount_dir``: where the session's file system is for blind tasks, which cannot run without. ``watcher``: the
        program amfs-watcher, which ends what tasks have left when this process is killed. It says ``last_words`` if the kernel has killed
        processes meanwhile because memory had run out, of which ``kills`` tells (the file of a memory cgroup, or /proc/vmstat)."""
    def set_context(
        self, context: int, base: str, env: Sequence[str], umask: int = -1, nice: int | None = None, limits: Sequence[int] = (),
    ) -> None:
        """Base directory and whole environment ("K=V") shared by the records that name this context. Replaces. PWD and OLDPWD in ``env``
        do not count: the PWD of a task is where it starts. ``umask`` (-1: that of this process), ``nice`` (None: likewise, else as far as
        it is allowed) and soft ``limits`` by number (``caller_limits``; up to the hard ones here) are for its processes."""
    def drop_context(self, context: int) -> None: ...
    def enter(self, pid: int) -> None:
        """Blind tasks that start from now on enter the user and mount namespaces of this process, which must not be collected before the
        next call; 0: they stay in those of this process."""
    def submit(self, records: Sequence[bytes]) -> None:
        """Queue records (copied). Raises ValueError naming the fault if one is malformed; then none is queued."""
    def completions(
        self,
    ) -> list[tuple[Any, ...]]:
        """Tasks that ended since the last call, oldest first:

        (serial, outcome, code, slot, start_us, end_us, cpu_us, maxrss_kib, ((size, mtime_ns) per output), stdout, stderr, detail, facts)

        (of an output with holes: size, mtime_ns, bytes of the holes)

        where ``facts`` is None, or (places of the inputs in the record that were changed, path of the file with more of stdout than fits,
        bytes of stdout in all, path of the kept sandbox, processes that the task left running and that were ended).

        A blind task has one field more, as csrc/launcher/attempts.h has it: (number of the attempt, ((kind, directory, name, inode) per
        file that it made, ...), ((directory, name) per name that it looked for in vain, ...)).

        ``outcome`` is a states.Outcome: 0 OK, 1 EXIT (code = status), 2 SIGNAL (code = number), 3 TIME_LIMIT, 4 MISSING_OUTPUT (or a
        process left running had one open for writing), 5 INPUT_CHANGED, 6 SETUP (code = errno), 7 CANCELLED (never started, or killed by
        kill()). Times are microseconds since the epoch. ``maxrss_kib`` 0: less than this process had, which the kernel counts in, so not
        known. stdout, stderr: captured tails (stdout empty for a successful task unless WANT_OUTPUT: then its first ``capture`` bytes, and
        if there were more, up to 16 MiB are in a file in ``log_dir``). ``detail`` is for people only.
        """
    def kill(self, serials: Sequence[int]) -> None:
        """Withdraw those not started, SIGTERM then (after 1 s) SIGKILL all processes of the others."""
    def withdraw(self, count: int) -> list[int]:
        """Take up to ``count`` records back from the tail of the queue, at once; returns their serials (no completion follows)."""
    def queued(self) -> int: ...
    def running(self) -> int: ...
    def at_work(self) -> list[tuple[int, int, int, int]]:
        """The tasks that run now: (serial, start in microseconds since the epoch, slot, number of the first process)."""
    def cpu_us(self) -> int:
        """CPU time of the launcher thread so far."""
    def stop(self) -> None:
        """Kill everything (SIGKILL), remove sandboxes, join the thread. Repeatable."""

@final
class Copier:
    """Copies files between shared storage and the store, on threads of its own, without the GIL.

    All jobs end in a completion; partial files never appear under their name.
    """

    fd: int  # eventfd, readable while completions wait

    def __init__(self, threads: int = 2) -> None: ...
    def copy(self, serial: int, source: str, destination: str, mode: int, *, directories: bool = True) -> None:
        """Copy a regular file: written beside the destination under a temporary name, given ``mode``, renamed. Missing parent
        directories are made when ``directories``. Bits of ``mode`` beyond its permissions: csrc/data/copier.h."""
    def completions(self) -> list[tuple[int, str, int, int]]:
        """(serial, error ("" = fine), bytes copied, code), oldest first. ``error`` is for people; ``code`` is 0 or an errno, EBADMSG for a
        source that is not what was written."""
    def stop(self) -> None:
        """End the threads; unfinished jobs complete with error "stopped". Repeatable."""

def caller_limits() -> tuple[int, ...]:
    """The soft limits of this process by number (-1: none, -2: not known); that of open files is what it was before amfs raised it."""

def raise_files_limit() -> None:
    """Raise the soft limit of open files to the hard one, for this process. Tasks get what it was."""

def read_stored(key: bytes, id: int, node: int, incarnation: int, host: str, port: int, path: str, size: int) -> bytes:
    """For a client: the file at ``path`` (relative to its store) of ``node``, whose data server listens there. Raises OSError, ESTALE if it
    has not ``size`` bytes. ``id``: of the client, 2^32 or more."""

def write_new(path: bytes, data: Buffer, mtime: int, /) -> tuple[int, int, int, int]:
    """Make a file that was not there; its size, blocks of 512 bytes, atime and mtime. ``mtime``: of both in nanoseconds, 0: now."""

@final
class Io:
    """The data of the file system: parts of files in this node's store and on other nodes (csrc/data/fsio.h). Any thread may call.

    A part is the whole content of a file (index -1) or one stripe. Errors are OSError. Kinds of open files: 0 whole content here, 1 through
    another node that has it open for writing, 2 stripes at their owners.
    """

    fd: int  # eventfd, readable while take() has something
    port: int  # for other nodes; 0: not listening
    root_fd: int
    questions: tuple[int, int]  # between shards that went directly: asked, answered

    def __init__(
        self, node: int, root: str | bytes, listen: str, threads: int = 2, limit: int = 0,
        *, key: bytes = b"", incarnation: int = 0, store: str | bytes = "", meta: Meta = ...,
    ) -> None:
        """``root`` must exist; ``listen``: numeric address, "": other nodes cannot reach this one; ``limit``: bytes, 0: none; ``key``: 32
        bytes, the session's, without which there are no other nodes; ``store``: where the runs keep their files, "": nowhere. ``meta``:
        the shard in whose records open files are counted; ``serve`` and mounts take no other one."""
    def set_table(self, owners: Sequence[int], moves: Sequence[int] = ()) -> None:
        """``moves``: partitions that move here or away by it, or still do; the others do not."""
    def lose(self, partitions: Sequence[int], version: int, copies: bool) -> None:
        """Their owner has died, and their stripes with it; before the table is set that names the heirs. ``version``: this node's number of
        the loss, which grows with each. ``copies``: of files whose stripes have copies, else of the others."""
    def lost(self, ino: int) -> bool:
        """Was some of it lost with a node? Of what is open here in stripes, or was written here and is not recorded yet."""
    def set_moving(self, partitions: Sequence[int], moving: bool) -> None:
        """Nobody reads or writes stripes of these here meanwhile; fetch_part them at their new owners. There an event says for
        which of them somebody waits."""
    def set_peer(self, peer: int, host: str, port: int, incarnation: int = 0) -> None:
        """A member, which may connect from now on, and where it listens (port 0: nowhere). An incarnation of 0 is not looked at."""
    def forget_peer(self, peer: int) -> None:
        """It is dead: calls that wait for it fail with EIO at once, its use of files here ends, and it may not connect any more."""
    def part_path(self, ino: int, index: int) -> str:
        """Relative to the root."""
    def part_stat(self, ino: int, index: int) -> tuple[int, int, int, int, int]:
        """(size, blocks, atime, mtime, ctime)"""
    def part_adopt(self, ino: int, path: str | bytes) -> None:
        """The file at ``path`` (on the same file system) becomes the whole part, in place of one that is there. ENOSPC: over the limit."""
    def part_delete(self, ino: int) -> None:
        """Every part of it that is here."""
    def whole_delete(self, ino: int) -> None: ...
    def stripes_delete(self, ino: int) -> None: ...
    def keep_ends(self) -> None:
        """Of files in stripes, from when nobody writes them here any more until ``end_recorded``."""
    def end(self, ino: int) -> tuple[int, int] | None:
        """(size, when it was written last)."""
    def end_recorded(self, ino: int) -> None: ...
    def expect_room(self, patience_ms: int) -> None:
        """From now on a write that finds no room is (3, serial, 0, bytes, 0) from take(), and waits so long at most for ``room_made``."""
    def room_made(self, serial: int, freed: int) -> None: ...
    def spill_above(self, mark: int, most: int) -> None:
        """With a limit and a directory (``set_spill``): (3, 0, 0, bytes, 0) comes from take() when parts take more than ``mark``. ``most``:
        bytes that may be spilled, 0: any."""
    def spill(self, ino: int) -> int:
        """Have a whole part that nobody has open go to the spill directory; bytes that are free now. Raises OSError."""
    @property
    def spilled(self) -> int:
        """Bytes of parts in the spill directory."""
    def hold(self, bytes: int, spilled: int, /) -> int:
        """Files of runs take so many bytes of the same limit from now on, and of what may be ``spilled``; the bytes that parts take. 0
        where the store is a mount of its own: the kernel counts both."""
    def usage(self) -> tuple[int, int, int]:
        """(used, limit, parts); used: by parts and by what is held."""
    def open(
        self,
        ino: int,
        kind: int,
        node: int = -1,
        stripe: int = 0,
        size: int = 0,
        writing: bool = False,
        create: bool = False,
        *,
        passing: bool = False,
        since: int = ...,
    ) -> IoHandle:
        """``passing``: for a moment, open_count does not count it. ``since``: the losses that were known when its record was asked for (a
        version as of ``lose``); later ones are losses to it."""
    def open_count(self, ino: int) -> tuple[int, int]:
        """(readers, writers) through this node, other nodes' included."""
    def grown(self, ino: int) -> bool:
        """Is it written through this node in stripes, whatever its record says still?"""
    def set_times(self, ino: int, atime: int | None, mtime: int | None) -> None:
        """Of a file that is open here in stripes: the times that ``stat`` says until it is read, or written. None: that one stays."""
    def await_backups(self, serial: int, ticket: int) -> None:
        """Ends, as a job, when backups know all changes of the shard up to the ticket."""
    def ask(self, serial: int, steps: tuple[tuple[tuple[int, ...], int, int, int, bytes, bytes, int], ...], /) -> None:
        """Ask the shards of other nodes directly (csrc/metadata/peer_meta.h). A step: nodes, op, inode, now, name, value, and where in
        the value eight bytes are replaced by what the step before was answered; -1: by nothing, but that must have been zeros. A step
        begins when all nodes have answered the one before so. Ends as a job when none begins any more."""
    def answers(self, serial: int, /) -> list[list[tuple[int, bytes]]]:
        """Of such a job that has ended, for each step that began and each of its nodes: errno, ECONNABORTED if nobody knows whether it was
        done, and bytes. Once."""
    def backups_changed(self) -> None:
        """The shard was told of other backups, or has something to tell them."""
    def set_spill(self, directory: str) -> None:
        """The node's spill directory, absolute: where symbolic links at the end of a path in the store may lead."""
    def set_stall_ms(self, milliseconds: int) -> None:
        """How long a peer may make no progress (30 s unless said); before the first connection."""
    def fetch(self, serial: int, ino: int, from_: int, size: int, /) -> None:
        """In the background, as all with a serial; ends as (0, serial, ino, size, error) from take(). ESTALE: it has another size there."""
    def fetch_stored(self, serial: int, from_: int, path: str, size: int, destination: str, mode: int, mtime_ns: int = 0, /) -> None:
        """The file at ``path`` of another node's store, of ``size`` bytes, to a whole path; if that has a file by then, it stays. Ends as
        (4, serial, 0, size, error) from take(). ESTALE: it has another size there."""
    def fetch_part(self, serial: int, ino: int, index: int, from_: int, keep: bool = False, /) -> None: ...
    def set_copies(self, partitions: int, copies: Mapping[int, tuple[tuple[int, bool], ...]], /) -> None: ...
    def settle_writes(self) -> None: ...
    def settle_copies(self) -> None: ...
    def push_stripe(self, serial: int, ino: int, index: int, to: int, /) -> None: ...
    def mend_stripe(self, serial: int, ino: int, index: int, from_: int, /) -> None:
        """The owner of a stripe brings it anew from a node that has a copy."""

    def is_copied(self, ino: int, /) -> bool: ...
    def copied(self, ino: int, /) -> None: ...
    def part_drop(self, ino: int, index: int, /) -> None: ...
    def restripe(self, serial: int, ino: int, stripe: int, /) -> None: ...
    def gather(self, serial: int, ino: int, stripe: int, size: int, /) -> None:
        """The stripes stay: drop_stripes when nobody reads them any more."""
    def delete_everywhere(self, serial: int, ino: int, nodes: Sequence[int], /) -> None: ...
    def drop_stripes(self, serial: int, ino: int, nodes: Sequence[int], /) -> None: ...
    def list_parts(self) -> list[tuple[int, int, int, int]]:
        """(ino, index, size, blocks)"""
    def take_damaged(self) -> list[tuple[int, int, str]]:
        """(inode, index, "") of parts and (0, -1, path below the store) of files of the store found damaged since the last call."""
    def check_part(self, ino: int, index: int = -1, /) -> tuple[int, int]:
        """Of a part: 0: nobody can say, 1: it is what it was, 2: it is damaged, which is told as well if it is whole; and its size."""
    def part_digest(self, ino: int, /) -> bytes:
        """Of the whole part of a file, b"": none is here. EBUSY: somebody can write it, or has meanwhile."""
    def check_stripes(self, ino: int, from_: int, /) -> tuple[int, int, int, int, int]:
        """Some stripes of here, from that one on: how many, of how many nobody can say, bytes, one that is damaged or -1, where to go on
        or -1."""
    def part_retimed(self, ino: int, inode: int, was: int, is_: int, /) -> None:
        """The time of modification of a whole part, which is the file ``inode``, was set by hand."""
    def take(self) -> list[tuple[int, int, int, int, int]]:
        """(kind, serial, ino, size, error) of what happened since, oldest first."""
    def serve(self, meta: Meta) -> None:
        """Let other nodes ask this shard directly, and the mounts of this node ask theirs (csrc/metadata/peer_meta.h). Once."""
    def set_shy(self, shy: bool) -> None:
        """This node has caches that cannot be told of changes made directly: they take the long way."""
    def stop(self) -> None: ...

@final
class IoHandle:
    """An open file's data, made by Io.open. Closed while calls are under way it goes when the last of them has ended."""

    def read(self, count: int, offset: int) -> bytes: ...
    def readinto(self, buffer: bytearray | memoryview, offset: int) -> int: ...
    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """All of it; offset 2**64-1: at the end."""
    def truncate(self, size: int) -> None: ...
    def fallocate(self, mode: int, offset: int, length: int) -> None: ...
    def seek(self, offset: int, whence: int) -> int: ...
    def flush(self) -> None: ...
    def stat(self) -> tuple[int, int, int, int, int]:
        """(size, blocks, atime, mtime, ctime)"""
    def close(self) -> None:
        """Flushes and raises what that meets. Repeatable."""

_Attr: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]

@final
class Meta:
    """The metadata of the file system that this node keeps (csrc/metadata/fsmeta.h says what each method means). Any thread may call.

    Names are bytes, times nanoseconds. An attr is a tuple as vocabulary.attr.Attr; lists of nodes are tuples. Errors are OSError; errno
    1001 (META_NOT_MINE): the partition is another node's or moving; 1002 (META_BUSY): locked, or others must be told first.
    """

    def __init__(self, node: int) -> None: ...
    def set_table(self, owners: Sequence[int], version: int) -> None:
        """The first call makes the root. EINVAL: another number of partitions than before; ESTALE: an older version."""
    def shards(self) -> tuple[int, ...]:
        """The nodes that have partitions by the table, in order of their numbers."""
    def set_moving(self, partitions: Sequence[int], moving: bool) -> None: ...
    def name_partition(self, dir: int, name: bytes) -> int: ...
    def ino_partition(self, ino: int) -> int: ...
    def stripe_partition(self, ino: int, index: int) -> int: ...
    def owner(self, partition: int) -> int:
        """-1: there is no such partition, or no table yet."""
    def new_number(self, partition: int) -> int: ...
    def lookup(self, dir: int, name: bytes, asker: int) -> tuple[int, int, _Attr | None]:
        """(ino, type, attr or None if the record is elsewhere)"""
    def create(
        self, dir: int, name: bytes, now: int, asker: int, target: bytes | None, attr: tuple[int, ...], although_lost: bool = False
    ) -> _Attr: ...
    def create_unnamed(self, dir: int, partition: int, now: int, attr: tuple[int, ...]) -> _Attr:
        """A finished file that this node holds, and that has no entry yet."""
    def insert(self, dir: int, name: bytes, owner: int, ino: int, type: int, replace: bool) -> tuple[int, int, tuple[int, ...]]:
        """(old inode or 0, its type, nodes to tell). ``owner``: the holder of the lock of this name, 0: nobody."""
    def remove(self, dir: int, name: bytes, owner: int, ino: int) -> tuple[int, int, tuple[int, ...]]:
        """(inode, its type, nodes to tell)"""
    def unlink(self, dir: int, name: bytes, now: int) -> tuple[_Attr, bool, tuple[int, ...]]:
        """(what is left, whether it is gone, nodes to tell)"""
    def rename(self, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int, now: int) -> tuple[_Attr, _Attr | None, bool]:
        """(the moved, the replaced or None, whether that is gone)"""
    def lock(self, dir: int, name: bytes, owner: int) -> None: ...
    def unlock(self, dir: int, name: bytes, owner: int) -> None: ...
    def unlock_node(self, node: int) -> None: ...
    def list(self, dir: int, cursor: int, limit: int) -> builtins.list[tuple[bytes, int, int, int, _Attr | None]]:
        """(name, ino, type, cursor, attr or None if the record is elsewhere); cursors are below 2**48."""
    def count(self, dir: int) -> int: ...
    def getattr(self, ino: int, asker: int) -> _Attr: ...
    def set_pending(self, ino: int, was: int, pending: int, asker: int) -> tuple[_Attr, tuple[int, ...]]:
        """A blind attempt has ended well (``pending`` 0), or another takes its file over: (record, whom to tell). ``was`` 0: any but none.
        EAGAIN: it was another's, or nobody's."""
    def setattr(self, ino: int, mask: int, attr: tuple[int, ...], now: int, asker: int) -> tuple[_Attr, tuple[int, ...]]:
        """(attr, nodes to tell)"""
    def link(self, ino: int, delta: int, now: int, asker: int) -> tuple[_Attr, bool, tuple[int, ...]]:
        """(attr, whether it is gone, nodes to tell)"""
    def open(self, ino: int, node: int, writing: bool) -> tuple[_Attr, tuple[int, ...], tuple[int, ...]]:
        """(attr, nodes that have the whole content, nodes to tell)"""
    def wrote(self, ino: int, node: int, attr: tuple[int, ...], origin: bytes = b"") -> tuple[_Attr, tuple[int, ...]]:
        """(attr, nodes to tell). EPERM: that node is not its writer."""
    def unused(self, ino: int, node: int) -> bool:
        """Whether it is gone."""
    def grant(self, ino: int) -> int:
        """The number of the last permission to write it, 0 if there is no such file. Before an opening, for ``add_holder``."""
    def add_holder(self, ino: int, node: int, grant: int) -> None:
        """It has the content. EAGAIN: it has changed since ``grant`` was asked, or is being changed."""
    def damaged(self, ino: int, node: int, stripe: bool, /) -> bool:
        """The content that ``node`` has of it is damaged, and goes. Is it lost now? EAGAIN: ``node`` is no holder, or it is being written.
        ``stripe``: one of its stripes is damaged, and has no other copy."""
    def give_up(self, ino: int, node: int) -> None:
        """``node`` may delete what lies there of it, and holds it no more. EBUSY: nobody else has it, or it is open there."""
    def holders(self, ino: int) -> tuple[int, ...]: ...
    def checkpoint(self, ino: int, node: int, attr: tuple[int, ...], copies: Sequence[int]) -> tuple[int, ...]:
        """Its writer goes on; it and ``copies`` have the content so far. Returns the nodes that had the content before it, and lack it.
        EPERM: not its writer; EAGAIN: it lies in stripes."""
    def begin_copies(self, ino: int) -> bool:
        """Before others copy what is being written. False: not yet, a mount of this node is having it copied."""
    def wrote_same(self, ino: int, node: int, origin: bytes = b"") -> tuple[_Attr, tuple[int, ...]]:
        """As ``wrote``, where nothing was written since ``checkpoint``."""
    def fell_short(self, most: int, /) -> bool:
        """Has a change since the last question left a file with fewer copies than it asks for, though there are ``most`` nodes?"""
    def short_of_copies(self, most: int) -> builtins.list[tuple[int, int, bool]]:
        """(inode, bytes, is it striped) of finished files of here that fewer nodes hold than shall, or than ``most`` if that
        is fewer."""
    def dir_set_copies(self, ino: int, copies: int) -> None:
        """0: as the directory above."""
    def dir_copies(self, ino: int) -> int:
        """Of what is made in it: by the nearest rule."""
    def copies_wanted(self) -> bool:
        """Does anything that this node knows want more than one copy, or did so since the node was started?"""
    def expect_copies(self) -> None: ...
    def concerned(self, ino: int) -> tuple[int, ...]:
        """The nodes that hold it, and others that watch it."""
    def readlink(self, ino: int) -> bytes: ...
    def set_xattr(self, ino: int, name: bytes, value: bytes, flags: int, now: int) -> None: ...
    def get_xattr(self, ino: int, name: bytes) -> bytes: ...
    def list_xattr(self, ino: int) -> builtins.list[bytes]: ...
    def remove_xattr(self, ino: int, name: bytes, now: int) -> None: ...
    def cache(self, attr: tuple[int, ...], replica: bool, since: int = ...) -> None:
        """``since``: the moment before it was asked for; nothing is kept if somebody has said since that it is old."""
    def moment(self) -> int: ...
    def is_fresh(self, since: int, ino: int) -> bool:
        """Has nobody said since that moment that its cached facts are old?"""
    def cached(self, ino: int) -> tuple[_Attr, bool]:
        """(attr, whether the whole content is here)"""
    def uncache(self, ino: int) -> bool:
        """Whether the whole content was here."""
    def closing(self, ino: int) -> None:
        """A mount has closed it, and the poll loop will hear of that: until ``closed`` as often, mounts do not open it themselves."""
    def closed(self, ino: int) -> None: ...
    def claim(self, ino: int, claimed: bool) -> None:
        """The poll loop has it open, or is about to: then mounts that opened it directly leave it to the loop to tell that it is closed."""
    def direct_uses(self, ino: int) -> tuple[int, int, bool]:
        """(files, writers, telling): how mounts have it open without the poll loop; whether its shard is just being told of a closing"""
    def making(self) -> int:
        """How many files mounts are having other shards make, to be written here: recorded ones among them may not count as open yet."""
    def uses(self, ino: int) -> tuple[int, int, int, int]:
        """Uses of the file on this node, at this moment: readers and writers of any kind; those of them that are other nodes through
        this one; and the files of ``direct_uses``. Mounts that have it open tell the poll loop from now on when they close it."""
    def count_handle(self, ino: int, by: int, writing: bool, other: bool) -> None:
        """So many more handles on it, for the simulator. ``other``: of another node through this one."""
    def dir_add(self, ino: int, parent: int, name: bytes, attr: tuple[int, ...]) -> None: ...
    def dir_remove(self, ino: int) -> None: ...
    def dir_move(self, ino: int, parent: int, name: bytes, now: int) -> None: ...
    def dir_set(self, ino: int, mask: int, attr: tuple[int, ...], now: int) -> None: ...
    def dir_get(self, ino: int) -> tuple[_Attr, int]:
        """(attr, parent)"""
    def dir_find(self, parent: int, name: bytes) -> _Attr: ...
    def dir_name(self, ino: int) -> bytes: ...
    def dir_below(self, ino: int, ancestor: int) -> bool: ...
    def dir_freeze(self, ino: int, frozen: bool) -> None: ...
    def set_manager(self, manager: int) -> None:
        """Whose changes of directories other nodes may bring here directly; -1: nobody's."""
    def spread(self, manager: int, number: int, changes: bytes, directly: bool = False) -> builtins.list[int]:
        """Make the changes (vocabulary/directory_changes.py) of one spread, if that has not been done: the answer of each."""
    def refuse(self, manager: int, number: int) -> None:
        """Questions of the manager up to this one are not heard any more; the next two are such."""
    def reserve_for(self, manager: int, number: int, dir: int, name: bytes) -> int: ...
    def strike_for(self, manager: int, number: int, dir: int, name: bytes, ino: int) -> None: ...
    def dir_touch_for(self, ino: int, now: int, asker: int) -> None: ...
    def dir_touched(self, ino: int) -> int:
        """When entries of a directory were last changed through this node (ns); 0: not since its times were set."""
    def dir_touch(self, ino: int, now: int) -> tuple[int, ...]:
        """Nodes to tell."""
    def dir_set_layout(self, ino: int, layout: int, stripe: int) -> None: ...
    def dir_layout(self, ino: int) -> tuple[int, int]:
        """(layout, stripe) of the nearest rule; (255, 0): none."""
    def export_partition(self, partition: int) -> bytes: ...
    def export_dirs(self) -> bytes: ...
    def import_(self, data: bytes | bytearray | memoryview) -> None:
        """EPROTO: damaged, nothing was taken."""
    def drop(self, partition: int) -> None: ...
    def forget_node(self, node: int) -> builtins.list[int]:
        """Before the table that names its heirs. Files of whose content it took some along, and orphans that only it used (their records
        are away)."""
    def lose(self, partitions: Sequence[int], copies: bool) -> None:
        """Stripes of these partitions are lost: files that have one there say so from now on; ``copies``: those that have copies, else the
        others."""
    def ticket(self) -> int:
        """Of the last change of which a backup is told."""
    def backed_up(self) -> int:
        """Changes with this ticket, or an earlier one, may be answered."""
    def backup_move(self, state: int, event: int) -> int:
        """The next state of a backup, by the table that the shard keeps; -1: there is no such move."""
    def set_backups(self, backups: Sequence[int], live: Sequence[int]) -> None: ...
    def inherit_backups(self, partition: int, nodes: Sequence[int]) -> None: ...
    def backups_of(self, partition: int) -> tuple[int, ...]: ...
    def drop_backups(self, partition: int) -> None: ...
    def count_backups(self) -> tuple[int, int, int]:
        """Partitions of this node, those in step with a backup, those of which names were lost."""
    def backup_next(self, node: int) -> bytes | None: ...
    def backup_answered(self, node: int, error: int, answer: bytes) -> bool:
        """Whether the next batch may go at once."""
    def backup_take(self, source: int, batch: bytes) -> bytes: ...
    def backup_for_asker(self, node: int, ticket: int) -> bytes | None:
        """Changes for a node to take before the answer of the call that made them. None: the answer waits for others, too."""
    def backup_heard(self, node: int, number: int) -> None: ...
    def backup_has(self, source: int) -> int:
        """All items before this one."""
    def shadow_state(self, partition: int) -> int:
        """0: nothing is here as a backup; 1: not all yet; 2: in step."""
    def demote(self, partition: int, source: int) -> None: ...
    def promote(self, partition: int) -> None: ...
    def unknown_dirs(self, partition: int) -> builtins.list[tuple[int, bytes, int]]:
        """Entries (directory, name, number) of directories that this node does not know."""
    def set_unsure(self, partitions: Sequence[int], unsure: bool) -> None: ...
    def uncache_partitions(self, partitions: Sequence[int]) -> None: ...
    def mend_dirs(self, anew: bool) -> None:
        """Entries of directories that went with a node are made again. ``anew``: those of directories that are not known go."""
    def open_here(self, ino: int, writing: bool) -> _Attr: ...
    def setattr_here(self, ino: int, mask: int, attr: tuple[int, ...], now: int) -> _Attr: ...
    def counts(self) -> dict[str, int]:
        """inodes, entries, dirs, cached, bytes (of memory, about)."""
    def check(self) -> None:
        """AssertionError: the tables contradict themselves; it says where."""

@final
class Fuse:
    """A mount: serves one /dev/fuse descriptor on threads of its own (csrc/fuse/fuse.h). Any thread may call.

    Requests that concern only this node are answered without Python. Others come out of ``requests``, each answered exactly once by one of
    the ``reply_`` methods (LookupError: nobody waits for that). An attr is a tuple of 17 numbers, as Meta has them.
    """

    fd: int  # eventfd, readable while requests wait, when the kernel has said hello, and when the mount has ended
    ended: bool  # unmounted, or the connection was aborted: only stop() is left to do

    def __init__(
        self,
        fd: int,
        meta: Meta,
        io: Io,
        node: int = 0,
        *,
        passthrough: bool = True,
        no_open: bool = False,
        workers: int = 0,
        entry_s: float = 3600.0,
        attr_s: float = 3600.0,
        epochs: bool = True,
        tasks: bool = False,
    ) -> None:
        """Takes ``fd`` over. ``passthrough``: the kernel reads and writes the parts of open files itself, where it can and we may.
        ``no_open``: files are opened and read from the kernel's caches without asking; then there is no passthrough. ``workers``:
        threads at most, 0: as seems right. ``entry_s``, ``attr_s``: how long the kernel may believe what it was told. ``epochs``: False: as
        with a kernel before Linux 6.16, which cannot be made to look up every name again. ``tasks``: blind tasks run in it, and nobody else
        uses it; of what they make the requests say so with one more argument, the mark of what is pending."""
    def set_alone(self, alone: bool) -> None:
        """Whether this node is the whole session. For all mounts of the node."""
    def defer(self) -> int:
        """From now on the poll loop decides of each opening to write. How many files are open in the mounts of the node and written to its
        store or to stripes, or are being made."""
    def requests(self) -> list[tuple[int, str, tuple[Any, ...], int, int, int]]:
        """(unique, op, args, uid, gid, pid), oldest first; unique 0 wants no answer:

        closed(ino, wrote, attr or None)  the last writing handle of this node's mounts was closed (wrote, attr: size, blocks and times of
        the data), or the last of any kind (not wrote; comes last)    touched(dir)  its entries changed here, its times are kept elsewhere
        """
    def reply_error(self, unique: int, error: int) -> None: ...
    def reply_entry(self, unique: int, attr: tuple[int, ...], cache: bool) -> None: ...
    def reply_attr(self, unique: int, attr: tuple[int, ...], cache: bool) -> None: ...
    def reply_open(self, unique: int, kind: int, node: int, stripe: int, size: int, losses_seen: int) -> None: ...
    def reply_created(self, unique: int, attr: tuple[int, ...], kind: int, node: int, stripe: int, size: int, losses_seen: int) -> None: ...
    def reply_bytes(self, unique: int, data: bytes) -> None: ...
    def reply_dir(self, unique: int, entries: list[tuple[bytes, int, int, int, tuple[int, ...] | None]]) -> None:
        """(name, ino, type, cursor, attr or None); those that do not fit are asked for again."""
    def reply_statfs(self, unique: int, bsize: int, blocks: int, bfree: int, bavail: int, files: int, ffree: int) -> None: ...
    def stale(self, ino: int) -> int:
        """Have the kernel forget it, and close what no open stands for. Returns at once with a number; 0: nothing to do."""
    def invalidate_entry(self, dir: int, name: bytes, gone: int = 0) -> int: ...
    def await_invalidated(self, number: int) -> None:
        """Wait until the kernel has forgotten what such a number stands for."""
    def keep(self, ino: int) -> bool:
        """The last name of a file is about to go: is it in use, so that ``closed`` will say when it is not any more?"""
    def active(self) -> dict[str, Any]:
        """The kernel's grants (passthrough, no_open, max_write, …), the number of requests, and of those that came to Python."""
    def overdue(self, longer_than_ms: int, /) -> list[tuple[str, int, int]]:
        """(request, inode, milliseconds) of what the loop has not answered for longer."""
    def stop(self) -> None:
        """End the threads and the connection; open files are closed, and ``requests`` tells of it once more. Repeatable."""

def fuse_mount(path: str, source: str, allow_other: bool) -> int:
    """Mount at ``path``, as root or with CAP_SYS_ADMIN; returns the descriptor, to be served at once."""

def fuse_unmount(path: str, flags: int, namespace_fd: int = -1) -> None:
    """Unmount as root. ``flags``: 2: out of sight at once, gone when nobody uses it; 1: end the connection first. ``namespace_fd``: of the
    mount namespace in which ``path`` is meant; -1: ours."""
