"""The works that ``fs.vfs`` asks of a node, done in the world: with parts, handles and data connections. I/O.

The files of the runs come from other nodes over the same connections (``fetch_data``).

Decides nothing. Work that may wait (for a disk, a peer, a large unlink) runs in a few threads; ``collect`` returns what has ended.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from amfs._native import Io, IoHandle, Meta
from amfs.config import MemoryLimits
from amfs.host.extents import Handle, next_data
from amfs.host.trees import make_directories
from amfs.node import bulk
from amfs.node.account import Account
from amfs.node.asking import Asking
from amfs.node.ends import Ends
from amfs.node.file_neighbours import Address, Caches
from amfs.node.store import mode_left, room
from amfs.node.url_works import UrlWorks
from amfs.node.watchdog import since
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOCAL, REMOTE, Facts, Opened, stripe_of
from amfs.vocabulary.events import (
    Event,
    FetchData,
    FileDamaged,
    FsAwaited,
    FsDamaged,
    FsFull,
    FsHandlesClosed,
    FsSpilled,
    FsStriped,
    FsWork,
    FsWorked,
    JobDone,
)
from amfs.vocabulary.fs_requests import CheckedStore
from amfs.vocabulary.paths import key_of, scope_in, stored_as
from amfs.vocabulary.peer_requests import Usage

log = logging.getLogger("amfs.fs")

T = TypeVar("T")

THREADS = 4
ROOM_MS = 2000  # a write that finds no room waits so long for others' copies to go
SPILL_ROOM_MS = 30000  # likewise where files are spilled: a disk is slow
DONE, STRIPED_NOW, REMOTE_CLOSED, FULL, FETCHED, DAMAGED, AWAITED = range(7)  # kinds of Io.take()
#: A part must be writable to its node, a task's input must not be to the task: of one user they cannot be one file. Root may write anyway,
#: and is found out (the input's size and time are compared after the task).
_MAY_LINK = os.geteuid() == 0
#: Faults at the place where a file was to be written, not where it came from.
_OWN_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.EFBIG, errno.EROFS)


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
        self._store_root = store
        self.limit = limit
        self.io = Io(node, self.root, listen, limit=limit, key=key, incarnation=incarnation, store=store, meta=meta)
        self.account = Account(self.io)
        self.io.serve(meta)
        self.io.expect_room(ROOM_MS)
        self.io.keep_ends()
        self.mounts: Caches | None = None
        self._spill_directory: Callable[[], None] | None = None
        self._spilled = 0  # bytes, as the poll loop knows
        self._waits_for_room = False  # works that take room may have to wait for a disk
        self.store_path: Callable[[str], str] = lambda key: key  # where the store of the runs keeps a key
        self._fetches: dict[int, FetchData] = {}  # under way
        self.umasks: dict[str, int] = {}  # of runs, by scope: those of ``NodeIO``
        self.handles: dict[int, IoHandle] = {}
        self._replaced: set[int] = set()  # handles whose part was put in their place
        self._numbers = itertools.count(1)
        self._threads = ThreadPoolExecutor(THREADS, "amfs-files")
        self._evicting = ThreadPoolExecutor(1, "amfs-room")  # all of those may be waiting for room
        self._caches = ThreadPoolExecutor(THREADS, "amfs-caches")  # works that wait for kernels are not to wait for anything else
        self._bulk = ThreadPoolExecutor(THREADS, "amfs-bulk")  # whole files, which may take minutes
        self._ends: Ends[FsWorked | FileDamaged] = Ends()
        self._working: dict[int, tuple[float, Any]] = {}  # when it began
        self.heard: Callable[[FsWorked], None] = self._ends.put  # takes the ends of works that are done at once
        self._after: dict[int, Callable[[], object]] = {}  # serial of an Io job -> what remains to be done when it has ended well
        self._asking = Asking(self.io)
        self.urls = UrlWorks(self._finish, self._reading, self.path, self._check, self.io.part_digest, self._new_scratch)
        self._begin = self._works()

    def fds(self) -> list[int]:
        return [self.io.fd, self._ends.fd]

    def _works(self) -> dict[type, tuple[Callable[[int, Any], None], Callable[[Any], Any]]]:
        """How each order is begun, and the function that does it."""
        pool, bulk_pool, evicting = self._in(self._threads), self._in(self._bulk), self._in(self._evicting)
        tables: tuple[tuple[Callable[[int, Any], None], tuple[w.WorkHandler, ...]], ...] = (
            (self._at_once, (
                w.MakePart.by(self.make), w.SetTimes.by(lambda o: self.set_times(o.ino, o.atime, o.mtime)),
                w.Drop.by(lambda o: self.drop(o.inodes)), w.DropWhole.by(lambda o: self.drop_whole(o.ino)),
                w.PartPath.by(lambda o: self.exported(o.ino)), w.Scratch.by(lambda o: self.scratch()),
                w.ReportUsage.by(lambda o: self.usage()),
                w.AddPeer.by(lambda o: self.add_peer(o.node)), w.ForgetPeer.by(lambda o: self.io.forget_peer(o.node)),
                w.SendBackups.by(lambda o: self.io.backups_changed()),
                w.SetStripeCopies.by(lambda o: self.io.set_copies(o.partitions, o.copies)),
                w.MarkCopied.by(lambda o: self.io.copied(o.ino)), w.DeferOpenings.by(lambda o: self.mounts.defer() if self.mounts else 0),
                w.SetTable.by(lambda o: self.io.set_table(o.owners, o.moves)),
                w.SetMoving.by(lambda o: self.io.set_moving(o.partitions, o.moving)),
                w.RoomMade.by(lambda o: self.io.room_made(o.serial, o.freed)),
                w.End.by(lambda o: self.io.end(o.ino)), w.EndRecorded.by(lambda o: self.io.end_recorded(o.ino)),
                w.Lose.by(lambda o: self.io.lose(o.partitions, o.losses_seen, o.copies)), w.IsLost.by(lambda o: self.io.lost(o.ino)),
                *self.urls.at_once(),
            )),
            (pool, (
                w.LiveFacts.by(self.live), w.DropStripes.by(lambda o: self.io.stripes_delete(o.ino)), w.Truncate.by(self.truncate),
                w.ListStripes.by(lambda o: self.stripes()), w.ListCopied.by(lambda o: self.copied()),
                w.ListWhole.by(lambda o: [(ino, blocks * 512) for ino, index, _, blocks in self.io.list_parts() if index < 0]),
                w.DropCopied.by(self.drop_copied), w.OpenHandle.by(self.open_handle), w.Read.by(self.read), w.Write.by(self.write),
                w.Seek.by(lambda o: next_data(self.handles[o.handle], o.offset)),
                w.TruncateHandle.by(lambda o: self.handles[o.handle].truncate(o.size)),
                w.Flush.by(lambda o: self.handles[o.handle].flush()), w.CloseHandle.by(lambda o: self.close(o.handle)),
                w.DropScratch.by(lambda o: os.unlink(self._scratch(o.scratch))), w.Adopt.by(self.adopt), w.Pour.by(self.pour),
                w.ToStore.by(self.to_store), w.OwnerOfStored.by(self.owner_of_stored), w.FromStore.by(self.from_store),
                w.Keep.by(lambda o: self.keep(o.ino)),
            )),
            (evicting, (w.ListEvictable.by(lambda o: self.evictable()), w.Spill.by(lambda o: self.spill(o.ino)))),
            (bulk_pool, (
                w.Digest.by(self.digest), w.PartDigest.by(lambda o: self.io.part_digest(o.ino)),
                w.CheckPart.by(lambda o: self.io.check_part(o.ino, o.index)),
                w.CheckStripes.by(lambda o: w.CheckedStripes(*self.io.check_stripes(o.ino, o.after))), w.CheckStore.by(self.check_store),
                w.DigestOutside.by(lambda o: bulk.digest_of(o.path, None)),
                w.SeenOutside.by(lambda o: bulk.seen(o.path)), w.ImportFile.by(self.copy_in), w.ExportFile.by(self.copy_out),
            )),
        )  # fmt: skip
        works = {kind: (begin, do) for begin, table in tables for kind, do in table}
        by_io: dict[type, Callable[[int, Any], None]] = {
            w.Fetch: self.fetch,
            w.Restripe: lambda serial, o: self.io.restripe(serial, o.ino, o.stripe),
            w.Gather: lambda serial, o: self.io.gather(serial, o.ino, o.stripe, o.size),
            w.FetchStripe: lambda serial, o: self.io.fetch_part(serial, o.ino, o.index, o.node, o.keep),
            w.MendStripe: lambda serial, o: self.io.mend_stripe(serial, o.ino, o.index, o.node),
            w.PushStripe: lambda serial, o: self.io.push_stripe(serial, o.ino, o.index, o.node),
            w.Invalidate: self.invalidate,
            w.AwaitBackup: lambda serial, o: self.io.await_backups(serial, o.ticket),
            **self._asking.works(),
            **self.urls.long(),
        }
        # Of a file that nobody has open for writing it is one look; a new file gets its content by a rename.
        works[w.Adopt] = lambda serial, o: (pool if o.handle or self._waits_for_room else self._at_once)(serial, o), self.adopt
        works[w.LiveFacts] = lambda serial, o: (pool if self._is_written(o.attr.ino) else self._at_once)(serial, o), self.live
        return works | {kind: (self._ended_by_io(begin), lambda o: None) for kind, begin in by_io.items()}

    def act(self, effect: FsWork) -> None:
        """Begin one work."""
        self._begin[type(effect.order)][0](effect.serial, effect.order)

    def _at_once(self, serial: int, order: Any) -> None:
        """Never waits: done in the loop's thread."""
        self._run(serial, order, True)

    def _in(self, threads: ThreadPoolExecutor) -> Callable[[int, Any], None]:
        def act(serial: int, order: Any) -> None:
            if serial:
                self._working[serial] = (time.monotonic(), order)
            threads.submit(self._run, serial, order)

        return act

    def overdue(self, longer_s: float) -> list[tuple[str, float]]:
        """Works of its threads that take longer. For any thread."""
        slow = ((serial, order, since(began)) for serial, (began, order) in tuple(self._working.items()))
        return [(f"work {serial} ({str(order)[:160]})", seconds) for serial, order, seconds in slow if seconds > longer_s]

    def _ended_by_io(self, begin: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
        """Works that ``begin`` begins say themselves when they have ended."""

        def act(serial: int, order: Any) -> None:
            try:
                begin(serial, order)
            except OSError as error:
                self._finish(serial, error.errno or errno.EIO, None)
            except Exception:
                log.exception("%r", order)
                self._finish(serial, errno.EIO, None)

        return act

    def _run(self, serial: int, order: Any, at_once: bool = False) -> None:
        number, value = 0, None
        try:
            value = self._begin[type(order)][1](order)
        except OSError as error:
            number = error.errno or errno.EIO
        except Exception:
            log.exception("%r", order)
            number = errno.EIO
        self._finish(serial, number, value, at_once)

    def _finish(self, serial: int, error: int, value: Any, at_once: bool = False) -> None:
        if serial and at_once:
            self.heard(FsWorked(serial, error, value))
        elif serial:
            self._working.pop(serial, None)
            self._ends.put(FsWorked(serial, error, value))

    def collect(self) -> list[Event]:
        """Works that ended since the last call. Never blocks."""
        events: list[Event] = []
        for kind, serial, ino, size, error in self.io.take():
            if kind == DONE:
                after = self._after.pop(serial, None)
                if after is not None and not error:
                    after()
                events.append(FsWorked(serial, *self._asking.answer(serial, error, size)))
            elif kind == FETCHED:
                events.append(self._fetched(serial, size, error))
            elif kind == FULL:
                events.append(FsFull(serial, size))
            elif kind == AWAITED:
                events.append(FsAwaited(serial))
            elif kind == DAMAGED:
                events.extend(FsDamaged(ino, at) if ino else FileDamaged(key_of(path)) for ino, at, path in self.io.take_damaged())
            elif kind == STRIPED_NOW:
                events.append(FsStriped(ino, serial))  # there it is the stripe
            else:
                events.append(FsHandlesClosed(ino))
        if self._spilled != (spilled := self.io.spilled):
            self._spilled = spilled
            events.append(FsSpilled(spilled))
        events += self._ends.take()
        return events

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────

    def path(self, ino: int) -> str:
        return f"{self.root}/{self.io.part_path(ino, -1)}"

    def exported(self, ino: int) -> str:
        """For a client of this host, which reads what is in memory itself."""
        path = self.path(ino)
        if os.path.islink(path):
            raise OSError(errno.EFBIG, "it is spilled")
        return path

    def spill_to(self, limits: MemoryLimits, directory: Callable[[], None]) -> None:
        """From now on parts are spilled. ``directory`` makes the spill directory when it is first needed, in any thread."""
        if limits.spill:
            self._waits_for_room = True
            self.io.set_spill(limits.spill)
        if limits.spill and self.limit:
            self._spill_directory = directory
            self.io.spill_above(int(self.limit * limits.high_water), limits.spill_limit)
            self.io.expect_room(SPILL_ROOM_MS)

    def spill(self, ino: int) -> int:
        if self._spill_directory is None:
            raise OSError(errno.EOPNOTSUPP, "nothing is spilled")
        self._spill_directory()
        return self.io.spill(ino)

    def make(self, order: w.MakePart) -> None:
        if self.io.grown(order.ino):
            return
        path = self.path(order.ino)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            return
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            os.close(os.open(path, flags, 0o600))
        if order.times is not None:
            os.utime(path, ns=order.times)

    def live(self, order: w.LiveFacts) -> Facts:
        known = order.attr
        if self._is_written(known.ino):
            handle = self.io.open(known.ino, known.layout * 2, stripe=stripe_of(known), size=known.size, passing=True)
            try:
                facts = handle.stat()
                if self._is_written(known.ino):  # else it may have been opened as its record was, which knows more by now
                    return Facts(*facts[:4])
            finally:
                handle.close()
        if known.layout:
            raise FileNotFoundError(errno.ENOENT, "in stripes, and not written any more")
        return Facts(*self.io.part_stat(known.ino, -1)[:4])

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
            now = os.stat(path)
            if now.st_ino == was.st_ino:
                self.io.part_retimed(ino, was.st_ino, was.st_mtime_ns, now.st_mtime_ns)
            return now.st_ctime_ns
        except FileNotFoundError:
            self.io.set_times(ino, atime, mtime)
            return 0

    def drop(self, inodes: tuple[int, ...]) -> None:
        """Everything of these that is here. The names go at once, so that content brought here again afterwards is not taken for them."""
        for ino in inodes:
            try:
                self.io.part_delete(ino)
            except FileNotFoundError:
                continue

    def drop_whole(self, ino: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.io.whole_delete(ino)

    def evictable(self) -> list[tuple[int, int, float]]:
        found, now = [], time.time_ns()
        for ino, index, _, blocks in self.io.list_parts():
            if index < 0 and blocks and not any(self.io.open_count(ino)):
                with contextlib.suppress(FileNotFoundError):
                    _, _, atime, mtime, _ = self.io.part_stat(ino, index)
                    found.append((max(atime, mtime), ino, blocks * 512))
        return [(ino, size, max(0.0, (now - used) / 1e9)) for used, ino, size in sorted(found)]

    def truncate(self, order: w.Truncate) -> Facts | None:
        ino, opened = order.ino, order.opened
        create = not (opened.size and order.size)  # a file that has data and is not here is not to become zeros
        handle = self.io.open(ino, opened.kind, opened.node, opened.stripe, opened.size, True, create, since=opened.losses_seen)
        try:
            handle.truncate(order.size)
            return None if opened.kind == REMOTE else Facts(*handle.stat()[:4])
        finally:
            handle.close()

    def fetch(self, serial: int, order: w.Fetch) -> None:
        self._after[serial] = lambda: self.set_times(order.ino, order.atime, order.mtime)
        self.io.fetch(serial, order.ino, order.node, order.size)

    def stripes(self) -> list[tuple[int, int]]:
        """(inode, index) of every stripe that lies here, and nowhere else. Also those of writes that had begun before it moved."""
        self.io.settle_writes()
        return [(ino, index) for ino, index, *_ in self.io.list_parts() if index >= 0 and not self.io.is_copied(ino)]

    def copied(self) -> list[tuple[int, int, int]]:
        """(inode, index, size) of every stripe here that has copies, or is one."""
        self.io.settle_copies()
        return [(ino, index, size) for ino, index, size, _ in self.io.list_parts() if index >= 0 and self.io.is_copied(ino)]

    def drop_copied(self, order: w.DropCopied) -> None:
        partitions = set(order.partitions)
        for ino, index, *_ in self.io.list_parts():
            if index >= 0 and self.meta.stripe_partition(ino, index) in partitions and self.io.is_copied(ino):
                with contextlib.suppress(FileNotFoundError):
                    self.io.part_drop(ino, index)

    def usage(self) -> Usage:
        used, limit, parts = self.io.usage()
        if not limit:
            limit = used + max(0, room(Path(self.root))[0])
        return Usage(used, limit, parts)

    # ── files of the runs ──────────────────────────────────────────────────────────────────────────

    def fetch_data(self, effect: FetchData, destination: str) -> None:
        """Begin to bring a file of another node's store to ``destination``; ends as ``JobDone``."""
        self._fetches[effect.serial] = effect
        self.io.fetch_stored(effect.serial, effect.peer, stored_as(effect.name), effect.size, destination, effect.mode, effect.mtime_ns)

    def _fetched(self, serial: int, size: int, error: int) -> JobDone:
        effect = self._fetches.pop(serial)
        if not error:
            return JobDone(serial, "", size)
        reasons = {errno.ESTALE: "it has changed there", errno.ECANCELED: "stopped", errno.EBADMSG: "it is damaged there"}
        why = reasons.get(error) or os.strerror(error)
        return JobDone(serial, f"cannot fetch {effect.name} from node {effect.peer}: {why}", 0, error in _OWN_FAULTS)

    def check_store(self, order: w.CheckStore) -> CheckedStore:
        """Some of the files, by name. Spilled files are looked at on their disk."""
        found, damaged = bulk.check_store(self._store_root, order.after)
        for path in damaged:
            self._ends.put(FileDamaged(key_of(path)))
        return found

    # ── handles ────────────────────────────────────────────────────────────────────────────────────

    def open_handle(self, order: w.OpenHandle) -> int:
        opened = order.opened
        handle = self.io.open(
            order.ino, opened.kind, opened.node, opened.stripe, opened.size, order.writing, order.create, since=opened.losses_seen
        )
        number = next(self._numbers)
        self.handles[number] = handle
        return number

    def read(self, order: w.Read) -> bytes:
        return self.handles[order.handle].read(order.count, order.offset)

    def write(self, order: w.Write) -> int:
        self.handles[order.handle].write(order.data, order.offset)
        return len(order.data)

    def close(self, number: int) -> Facts | None:
        """Close it; its facts then."""
        handle = self.handles.pop(number)
        replaced = number in self._replaced
        self._replaced.discard(number)
        try:
            facts = None if replaced else Facts(*handle.stat()[:4])
        finally:
            handle.close()  # flushes, and raises what went wrong with that
        return facts

    def scratch(self) -> str:
        path = self._new_scratch()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return path

    def _new_scratch(self) -> str:
        return f"{self.scratch_root}/{os.urandom(8).hex()}"

    def adopt(self, order: w.Adopt) -> None:
        self._adopt(order.handle, self._scratch(order.scratch), order.ino)

    def _adopt(self, number: int, path: str, ino: int) -> None:
        try:
            try:
                self.io.part_adopt(ino, path)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self.path(ino)), 0o700, exist_ok=True)
                self.io.part_adopt(ino, path)
        except OSError:
            os.unlink(path)
            raise
        if number:
            self._replaced.add(number)

    def pour(self, order: w.Pour) -> None:
        path = self._scratch(order.scratch)
        self._fill(order.handle, path)
        os.unlink(path)

    def _fill(self, number: int, path: str) -> None:
        """Write what is in a file here through handle ``number``, in place of what it contained."""
        bulk.fill(self.handles[number], path)

    # ── whole files ────────────────────────────────────────────────────────────────────────────────

    def _reading(self, ino: int, opened: Opened, do: Callable[[Handle | None], T]) -> T:
        """``do`` with the file, open; None: it lies here as a whole."""
        if opened.kind == LOCAL:
            return do(None)
        handle = self.io.open(ino, opened.kind, opened.node, opened.stripe, opened.size, False, False, since=opened.losses_seen)
        try:
            return do(handle)
        finally:
            handle.close()

    def _check(self, ino: int, opened: Opened) -> None:
        """After it was read, so that it was good while it was read. EBADMSG: the part here is damaged; this node is told, too."""
        if opened.kind == LOCAL and self.io.check_part(ino)[0] == w.PART_DAMAGED:
            raise OSError(errno.EBADMSG, "its content is damaged")

    def digest(self, order: w.Digest) -> tuple[bytes, int]:
        found = self._reading(order.ino, order.opened, lambda handle: bulk.digest_of(self.path(order.ino), handle))
        self._check(order.ino, order.opened)
        return found

    def copy_in(self, order: w.ImportFile) -> Facts:
        return bulk.copy_in(order.source, os.fsencode(self._scratch(order.scratch)))

    def copy_out(self, order: w.ExportFile) -> tuple[int, bytes]:
        path, check = self.path(order.ino), lambda: self._check(order.ino, order.opened)
        return self._reading(
            order.ino, order.opened, lambda handle: bulk.copy_out(path, handle, order.target, order.mode, order.mtime, check)
        )

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────

    def to_store(self, order: w.ToStore) -> int:
        opened = order.opened
        target = self.store_path(order.key)
        make_directories(os.path.dirname(target))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        if opened.kind == LOCAL and _MAY_LINK and not os.path.islink(self.path(order.ino)):
            os.link(self.path(order.ino), target)
            return self.account.linked(target)
        handle = self.io.open(order.ino, opened.kind, opened.node, opened.stripe, opened.size, False, False, since=opened.losses_seen)
        temporary = f"{target}.amfs-part"
        try:
            with open(temporary, "wb", buffering=0) as file:
                bulk.pour(handle, file.fileno())
        finally:
            handle.close()
        os.chmod(temporary, 0o400 | (order.mode & 0o111))
        os.rename(temporary, target)
        return os.stat(target).st_size

    def owner_of_stored(self, order: w.OwnerOfStored) -> tuple[int, int, int, int]:
        facts = os.stat(self.store_path(order.key))
        umask = self.umasks.get(scope_in(order.key), 0o022)
        return facts.st_uid, facts.st_gid, mode_left(facts.st_mode) & ~umask, 0o777 & ~umask

    def from_store(self, order: w.FromStore) -> int:
        source = self.store_path(order.key)
        size = os.stat(source).st_size
        if order.ino and _MAY_LINK:
            if os.path.samefile(source, self.path(order.ino)):  # the task has run here twice, and its first output stays
                self._replaced.add(order.handle)
                return size
            temporary = self._new_scratch()
            os.link(source, temporary)
            self._adopt(order.handle, temporary, order.ino)
            return self.account.linked(source)
        self._fill(order.handle, source)
        return size

    def _scratch(self, path: bytes) -> str:
        name = os.fsdecode(path)
        if os.path.dirname(name) != self.scratch_root:
            raise PermissionError(errno.EPERM, "not a scratch file of this node", name)
        return name

    def keep(self, ino: int) -> bool:
        kept = self.mounts is not None and self.mounts.keep(ino)
        return kept or any(self.io.open_count(ino))

    # ── peers and caches ───────────────────────────────────────────────────────────────────────────

    def add_peer(self, node: int) -> None:
        if self.member_of is not None:
            self.io.set_peer(node, *self.member_of(node))

    def invalidate(self, serial: int, order: w.Invalidate) -> None:
        """Begun at once, so that the kernel forgets as soon as it can; only for who waits for the end there is a thread."""
        mounts = self.mounts
        begun = mounts.forget(order.inodes, order.entries, order.but, order.gone) if mounts is not None else None
        if not begun:
            self._finish(serial, 0, None, at_once=True)
        elif serial:
            assert mounts is not None
            self._caches.submit(self._await_forgotten, serial, mounts, begun)

    def _await_forgotten(self, serial: int, mounts: Caches, begun: Any) -> None:
        mounts.await_forgotten(begun)
        self._finish(serial, 0, None)

    def stop(self) -> None:
        """End the threads; handles are closed."""
        for threads in (self._threads, self._evicting, self._bulk, self._caches):
            threads.shutdown(wait=False, cancel_futures=True)
        self.urls.stop()
        self.io.stop()
        self._ends.close()
