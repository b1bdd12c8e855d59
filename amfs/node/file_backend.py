"""What a node does in the world for the file system: the works that ``fs.vfs`` asks for, with parts, handles and data connections. I/O.

The files of the runs come from other nodes over the same connections (``fetch_data``).

Decides nothing. Work that may wait (for a disk, a peer, a large unlink) runs in a few threads; ``collect`` returns what has ended.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from amfs._native import Io, IoHandle, Meta
from amfs.engine.events import Event, FetchData, FsFull, FsHandlesClosed, FsStriped, FsWork, FsWorked, JobDone
from amfs.engine.paths import stored_as
from amfs.fs.attr import Attr
from amfs.host.trees import make_directories
from amfs.node import bulk

log = logging.getLogger("amfs.fs")

THREADS = 4
ROOM_MS = 2000  # a write that finds no room waits so long for others' copies to go
DONE, STRIPED_NOW, REMOTE_CLOSED, FULL, FETCHED = range(5)  # kinds of Io.take()
_COPY_BYTES = 1 << 20
_REMOTE = 1  # kind of a handle, as csrc/data/fsio.h
#: A part must be writable to its node, a task's input must not be to the task: of one user they cannot be one file. Root may write anyway,
#: and is found out (the input's size and time are compared after the task).
_MAY_LINK = os.geteuid() == 0
#: Works that never wait and are done at once, in the loop's thread.
_AT_ONCE = frozenset((
    "make", "drop", "drop_whole", "path", "scratch", "usage", "peer", "forget_peer", "table", "moving", "set_times", "uses",
    "room_made", "end", "end_recorded", "lose", "lost",
))  # fmt: skip
#: What went wrong where a file was to be written, not where it came from.
_OWN_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.EFBIG, errno.EROFS)
#: Works that ``Io`` does in threads of its own.
_BY_IO = frozenset(("fetch", "fetch_part", "restripe", "gather"))
#: Works on whole files.
_BULK = frozenset(("digest", "digest_outside", "seen_outside", "copy_in", "copy_out"))


class Address(NamedTuple):
    """Where a member is reached for data."""

    host: str
    port: int
    incarnation: int


class Caches(Protocol):
    """The kernel caches of this node's mounts."""

    def forget(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], but: object = None) -> Any: ...
    def await_forgotten(self, begun: Any) -> None: ...
    def open_count(self, ino: int) -> tuple[int, int]: ...
    def keep(self, ino: int) -> bool: ...


class FileBackend:
    """Parts and handles of one node. ``root``: an existing directory of the store."""

    def __init__(
        self,
        node: int,
        meta: Meta,
        root: str,
        *,
        listen: str = "",
        limit: int = 0,
        key: bytes = b"",
        incarnation: int = 0,
        store: str = "",
        member_of: Callable[[int], Address] | None = None,
    ) -> None:
        """``store``: where the runs keep their files; ``member_of``: a member's address, or OSError."""
        self.meta = meta
        self.root = f"{root}/parts"
        self.scratch_root = f"{root}/scratch"
        for directory in (self.root, self.scratch_root):
            os.makedirs(directory, 0o700, exist_ok=True)
        self.member_of = member_of
        self.limit = limit
        self.io = Io(node, self.root, listen, limit=limit, key=key, incarnation=incarnation, store=store)
        self.io.serve(meta)
        self.io.expect_room(ROOM_MS)
        self.io.keep_ends()
        self.mounts: Caches | None = None
        self.store_path: Callable[[str], str] = lambda key: key  # where the store of the runs keeps a key
        self._fetches: dict[int, FetchData] = {}  # under way
        self.umask = 0o022  # of the run that began last, as ``NodeIO`` tells
        self.handles: dict[int, IoHandle] = {}
        self.inodes: dict[int, int] = {}  # of handles
        self._replaced: set[int] = set()  # handles whose part was put in their place
        self._numbers = itertools.count(1)
        self._threads = ThreadPoolExecutor(THREADS, "amfs-files")
        self._spare = ThreadPoolExecutor(1, "amfs-room")  # all of those may be waiting for room
        self._caches = ThreadPoolExecutor(THREADS, "amfs-caches")  # what waits for kernels is not to wait for anything else
        self._bulk = ThreadPoolExecutor(THREADS, "amfs-bulk")  # whole files, which may take minutes
        self._done: deque[FsWorked] = deque()
        self.heard: Callable[[FsWorked], None] = self._done.append  # takes the ends of works that are done at once
        self._after: dict[int, Callable[[], object]] = {}  # serial of an Io job -> what remains to be done when it has ended well
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fds(self) -> list[int]:
        return [self.io.fd, self._wake]

    def act(self, effect: FsWork) -> None:
        """Begin one work."""
        if effect.what in _BY_IO:
            try:
                getattr(self, effect.what)(effect.serial, *effect.args)
            except OSError as error:
                self._finish(effect.serial, error.errno or errno.EIO, None)
            except Exception:
                log.exception("%s%r", effect.what, effect.args)
                self._finish(effect.serial, errno.EIO, None)
        elif effect.what in _AT_ONCE:
            self._run(effect, True)
        elif effect.what == "invalidate":
            self.invalidate(effect)
        else:
            threads = self._spare if effect.what == "spare" else self._bulk if effect.what in _BULK else self._threads
            threads.submit(self._run, effect)

    def _run(self, effect: FsWork, at_once: bool = False) -> None:
        number, value = 0, None
        try:
            value = getattr(self, effect.what)(*effect.args)
        except OSError as error:
            number = error.errno or errno.EIO
        except Exception:
            log.exception("%s%r", effect.what, effect.args)
            number = errno.EIO
        self._finish(effect.serial, number, value, at_once)

    def _finish(self, serial: int, error: int, value: Any, at_once: bool = False) -> None:
        if serial and at_once:
            self.heard(FsWorked(serial, error, value))
        elif serial:
            self._done.append(FsWorked(serial, error, value))
            os.eventfd_write(self._wake, 1)

    def collect(self) -> list[Event]:
        """What ended since the last call. Never blocks."""
        events: list[Event] = []
        for kind, serial, ino, size, error in self.io.take():
            if kind == DONE:
                after = self._after.pop(serial, None)
                if after is not None and not error:
                    after()
                events.append(FsWorked(serial, error, size))
            elif kind == FETCHED:
                events.append(self._fetched(serial, size, error))
            elif kind == FULL:
                events.append(FsFull(serial, size))
            elif kind == STRIPED_NOW:
                events.append(FsStriped(ino, serial))  # there it is the stripe
            else:
                events.append(FsHandlesClosed(ino))
        if self._done:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            while self._done:
                events.append(self._done.popleft())
        return events

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────

    def path(self, ino: int) -> str:
        return f"{self.root}/{self.io.part_path(ino, -1)}"

    def make(self, ino: int, *times: int) -> None:
        """An empty part, if there is none; with these times of access and modification, else those of now."""
        if self.io.grown(ino):
            return
        path = self.path(ino)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            return
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            os.close(os.open(path, flags, 0o600))
        if times:
            os.utime(path, ns=(times[0], times[1]))

    def live(self, attr: Any) -> tuple[int, int, int, int]:
        """(size, blocks, atime, mtime) of a file that is open for writing here."""
        known = Attr(*attr)
        if self._is_written(known.ino):
            handle = self.io.open(known.ino, known.layout * 2, stripe=known.stripe, size=known.size, passing=True)
            try:
                facts = handle.stat()[:4]
                if self._is_written(known.ino):  # else it may have been opened as its record was, which knows more by now
                    return facts
            finally:
                handle.close()
        if known.layout:
            raise FileNotFoundError(errno.ENOENT, "in stripes, and not written any more")
        return tuple(self.io.part_stat(known.ino, -1)[:4])  # type: ignore[return-value]

    def _is_written(self, ino: int) -> bool:
        """Or was until a moment ago, and its record does not know it yet."""
        return any(self.io.open_count(ino)) or self.io.grown(ino)

    def set_times(self, ino: int, atime: int | None, mtime: int | None) -> int:
        """``None``: that one stays. When it was done, by the clock that stamps what is written (0: in stripes, or gone): looked at before
        and after, the part is stamped by the finest that the kernel has."""
        path = self.path(ino)
        try:
            was = os.stat(path)
            os.utime(path, ns=(was.st_atime_ns if atime is None else atime, was.st_mtime_ns if mtime is None else mtime))
            return os.stat(path).st_ctime_ns
        except FileNotFoundError:
            self.io.set_times(ino, atime, mtime)
            return 0

    def drop(self, inodes: tuple[int, ...]) -> None:
        """Everything of these that is here. The names go at once, so that what is brought here again afterwards is not taken for them."""
        for ino in inodes:
            try:
                self.io.part_delete(ino)
            except FileNotFoundError:
                continue

    def drop_whole(self, ino: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.io.whole_delete(ino)

    def drop_stripes(self, ino: int) -> None:
        self.io.stripes_delete(ino)

    def spare(self) -> list[tuple[int, int]]:
        """(inode, bytes) of the whole files that lie here and are not open through ``Io``, those first that were used last longest ago."""
        found = []
        for ino, index, _, blocks in self.io.list_parts():
            if index < 0 and blocks and not any(self.io.open_count(ino)):
                with contextlib.suppress(FileNotFoundError):
                    _, _, atime, mtime, _ = self.io.part_stat(ino, index)
                    found.append((max(atime, mtime), ino, blocks * 512))
        return [(ino, size) for _, ino, size in sorted(found)]

    def end(self, ino: int) -> tuple[int, int] | None:
        return self.io.end(ino)

    def end_recorded(self, ino: int) -> None:
        self.io.end_recorded(ino)

    def room_made(self, serial: int, freed: int) -> None:
        self.io.room_made(serial, freed)

    def truncate(self, ino: int, kind: int, node: int, stripe: int, size: int, known: int, to: int) -> tuple[int, int, int, int] | None:
        """(size, blocks, atime, mtime) afterwards; None: the node through which it was done knows."""
        handle = self.io.open(ino, kind, node, stripe, size, True, True, since=known)
        try:
            handle.truncate(to)
            return None if kind == _REMOTE else handle.stat()[:4]
        finally:
            handle.close()

    def fetch(self, serial: int, ino: int, node: int, size: int, atime: int, mtime: int) -> None:
        self._after[serial] = lambda: self.set_times(ino, atime, mtime)
        self.io.fetch(serial, ino, node, size)

    def restripe(self, serial: int, ino: int, stripe: int) -> None:
        self.io.restripe(serial, ino, stripe)

    def gather(self, serial: int, ino: int, stripe: int, size: int) -> None:
        self.io.gather(serial, ino, stripe, size)

    def stripes(self) -> list[tuple[int, int]]:
        """(inode, index) of every stripe that lies here."""
        return [(ino, index) for ino, index, *_ in self.io.list_parts() if index >= 0]

    def fetch_part(self, serial: int, ino: int, index: int, node: int) -> None:
        self.io.fetch_part(serial, ino, index, node)

    def usage(self) -> tuple[int, int, int]:
        """(bytes used, bytes that may be, parts)."""
        used, limit, parts = self.io.usage()
        if not limit:
            facts = os.statvfs(self.root)
            limit = used + facts.f_bavail * facts.f_frsize
        return used, limit, parts

    # ── files of the runs ──────────────────────────────────────────────────────────────────────────

    def fetch_data(self, effect: FetchData) -> None:
        """Begin to bring a file of another node's store here; ends as ``JobDone``."""
        destination = self.store_path(effect.name)
        self._fetches[effect.serial] = effect
        self.io.fetch_stored(effect.serial, effect.peer, stored_as(effect.name), effect.size, destination, effect.mode)

    def _fetched(self, serial: int, size: int, error: int) -> JobDone:
        effect = self._fetches.pop(serial)
        if not error:
            return JobDone(serial, "", size)
        why = "it has another size there" if error == errno.ESTALE else "stopped" if error == errno.ECANCELED else os.strerror(error)
        return JobDone(serial, f"cannot fetch {effect.name} from node {effect.peer}: {why}", 0, error in _OWN_FAULTS)

    # ── handles ────────────────────────────────────────────────────────────────────────────────────

    def handle(self, ino: int, kind: int, node: int, stripe: int, size: int, known: int, writing: bool, create: bool) -> int:
        handle = self.io.open(ino, kind, node, stripe, size, writing, create, since=known)
        number = next(self._numbers)
        self.handles[number] = handle
        self.inodes[number] = ino
        return number

    def read(self, number: int, offset: int, count: int) -> bytes:
        return self.handles[number].read(count, offset)

    def write(self, number: int, offset: int, data: bytes) -> int:
        self.handles[number].write(data, offset)
        return len(data)

    def handle_truncate(self, number: int, size: int) -> None:
        self.handles[number].truncate(size)

    def flush(self, number: int) -> None:
        self.handles[number].flush()

    def close(self, number: int) -> tuple[int, int, int, int] | None:
        """Close it; (size, blocks, atime, mtime) of what it is then."""
        handle = self.handles.pop(number)
        del self.inodes[number]
        replaced = number in self._replaced
        self._replaced.discard(number)
        try:
            facts = None if replaced else tuple(handle.stat()[:4])
        finally:
            handle.close()  # flushes, and raises what went wrong with that
        return facts  # type: ignore[return-value]

    def scratch(self, name: bytes) -> str:
        """The path of a new file from which ``adopt`` takes."""
        path = f"{self.scratch_root}/{os.urandom(8).hex()}"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return path

    def adopt(self, number: int, scratch: bytes, ino: int) -> None:
        self._adopt(number, self._scratch(scratch), ino)

    def _adopt(self, number: int, path: str, ino: int) -> None:
        try:
            self.io.part_adopt(ino, path)
        except OSError:
            os.unlink(path)
            raise
        self._replaced.add(number)

    def pour(self, number: int, scratch: bytes) -> None:
        path = self._scratch(scratch)
        self._fill(number, path)
        os.unlink(path)

    def _fill(self, number: int, path: str) -> None:
        """Write what is in a file here through handle ``number``."""
        with open(path, "rb", buffering=0) as file:
            offset = 0
            while data := file.read(_COPY_BYTES):
                self.handles[number].write(data, offset)
                offset += len(data)

    # ── whole files ────────────────────────────────────────────────────────────────────────────────

    def _reading(
        self, ino: int, kind: int, node: int, stripe: int, size: int, known: int, do: Callable[[Callable[[int, int], bytes] | None], Any]
    ) -> Any:
        """``do`` with what reads the file; None: it lies here as a whole."""
        if kind == 0:
            return do(None)
        handle = self.io.open(ino, kind, node, stripe, size, False, False, since=known)
        try:
            return do(handle.read)
        finally:
            handle.close()

    def digest(self, ino: int, kind: int, node: int, stripe: int, size: int, known: int) -> tuple[bytes, int]:
        """(digest, size) of a file."""
        return self._reading(ino, kind, node, stripe, size, known, lambda read: bulk.digest_of(self.path(ino), read))  # type: ignore[no-any-return]

    def digest_outside(self, path: bytes) -> tuple[bytes, int]:
        return bulk.digest_of(path, None)

    def seen_outside(self, path: bytes) -> tuple[int, int, int]:
        return bulk.seen(path)

    def copy_in(self, source: bytes, scratch: bytes) -> tuple[int, bytes]:
        return bulk.copy_in(source, os.fsencode(self._scratch(scratch)))

    def drop_scratch(self, scratch: bytes) -> None:
        os.unlink(self._scratch(scratch))

    def copy_out(
        self, ino: int, kind: int, node: int, stripe: int, size: int, known: int, target: bytes, mode: int
    ) -> tuple[int, bytes]:
        return self._reading(  # type: ignore[no-any-return]
            ino, kind, node, stripe, size, known, lambda read: bulk.copy_out(self.path(ino), read, target, mode)
        )

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────

    def to_store(self, ino: int, kind: int, node: int, stripe: int, size: int, known: int, mode: int, key: str) -> int:
        """The content of a file into the store of a run; returns its size."""
        target = self.store_path(key)
        make_directories(os.path.dirname(target))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        if kind == 0 and _MAY_LINK:
            os.link(self.path(ino), target)
            return os.stat(target).st_size
        handle = self.io.open(ino, kind, node, stripe, size, False, False, since=known)
        temporary = f"{target}.amfs-part"
        try:
            with open(temporary, "wb", buffering=0) as file:
                while data := handle.read(_COPY_BYTES, file.tell()):
                    file.write(data)
        finally:
            handle.close()
        os.chmod(temporary, 0o400 | (mode & 0o111))
        os.rename(temporary, target)
        return os.stat(target).st_size

    def owner_of_store(self, key: str) -> tuple[int, int, int, int]:
        """(uid, gid, mode, mode of directories above) for a file that is made of a task's output."""
        facts = os.stat(self.store_path(key))
        return facts.st_uid, facts.st_gid, (0o666 | facts.st_mode & 0o111) & ~self.umask, 0o777 & ~self.umask

    def from_store(self, number: int, key: str, ino: int) -> int:
        """A task's output becomes the content of the file that handle ``number`` has open; by a link if ``ino`` is given. The size."""
        source = self.store_path(key)
        size = os.stat(source).st_size
        if ino and _MAY_LINK:
            temporary = f"{self.scratch_root}/{os.urandom(8).hex()}"
            os.link(source, temporary)
            self._adopt(number, temporary, ino)
        else:
            self._fill(number, source)
        return size

    def _scratch(self, path: bytes) -> str:
        name = os.fsdecode(path)
        if os.path.dirname(name) != self.scratch_root:
            raise PermissionError(errno.EPERM, "not a scratch file of this node", name)
        return name

    def handles_of_others(self, ino: int) -> int:
        """Handles of other nodes that go through this one."""
        mine = sum(1 for handle in self.inodes.values() if handle == ino)
        return sum(self.io.open_count(ino)) - mine

    def uses(self, ino: int) -> tuple[int, int]:
        """Handles for reading and for writing on it, of this node and of others through it. Mounts say when they have closed theirs."""
        readers, writers = self.io.open_count(ino)
        more = self.mounts.open_count(ino) if self.mounts is not None else (0, 0)
        return readers + more[0], writers + more[1]

    def keep(self, ino: int) -> bool:
        """Its last name is about to go: is it in use on this node, so that its closing will be told?"""
        kept = self.mounts is not None and self.mounts.keep(ino)
        return kept or any(self.io.open_count(ino))

    # ── peers and caches ───────────────────────────────────────────────────────────────────────────

    def lose(self, partitions: tuple[int, ...], known: int) -> None:
        self.io.lose(partitions, known)

    def lost(self, ino: int) -> bool:
        """Was some of what was written here lost with a node, and its record does not know yet?"""
        return self.io.lost(ino)

    def table(self, owners: tuple[int, ...]) -> None:
        self.io.set_table(owners)

    def moving(self, partitions: int, away: list[int]) -> None:
        """Stripes of the partitions ``away`` are on their way from or to here: nobody reads or writes them until they have arrived."""
        self.io.set_moving(range(partitions), False)
        self.io.set_moving(away, True)

    def peer(self, node: int) -> None:
        """It is a member from now on."""
        if self.member_of is not None:
            self.io.set_peer(node, *self.member_of(node))

    def forget_peer(self, node: int) -> None:
        self.io.forget_peer(node)

    def invalidate(self, effect: FsWork) -> None:
        """Begun at once, so that the kernel forgets as soon as it can; only for who waits for the end there is a thread."""
        mounts = self.mounts
        arguments: tuple[Any, ...] = effect.args
        begun = mounts.forget(*arguments) if mounts is not None else None
        if not begun:
            self._finish(effect.serial, 0, None)
        elif effect.serial:
            assert mounts is not None
            self._caches.submit(self._await_forgotten, effect.serial, mounts, begun)

    def _await_forgotten(self, serial: int, mounts: Caches, begun: Any) -> None:
        mounts.await_forgotten(begun)
        self._finish(serial, 0, None)

    def stop(self) -> None:
        """End the threads; handles are closed."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._spare.shutdown(wait=False, cancel_futures=True)
        self._bulk.shutdown(wait=False, cancel_futures=True)
        self._caches.shutdown(wait=False, cancel_futures=True)
        self.io.stop()
        os.close(self._wake)
