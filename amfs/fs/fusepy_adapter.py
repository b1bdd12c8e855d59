"""The portable mount of the file system: the same operations through libfuse, by fusepy (libfuse 2) or mfusepy (libfuse 3). I/O.

The only module that imports either; they call ``fusepy_calls``, which comes from above as ``serve``. libfuse runs in a thread of its
own, one request at a time, and knows paths; here they are walked to inodes, so that hard links are one file. Bytes of open files are read
and written in that thread with Io; for all else it asks the machine through the poll loop and waits. Changes by other nodes are seen
after the time-outs of the kernel's caches: libfuse's simple interface has no way to invalidate them. Paths are bytes; attributes are
tuples as ``Attr``, but bare.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from amfs._native import Io, IoHandle, Meta
from amfs.errors import SystemSetupError
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import (
    META_SET_ATIME,
    META_SET_MTIME,
    META_SET_SIZE,
    NAME_MAX,
    ROOT,
    Attr,
)
from amfs.vocabulary.events import FsReplied, FsRequested

log = logging.getLogger("amfs.fs")

T = TypeVar("T")

LOCAL = 0
ANSWER_S = 60.0  # the machine's own time-outs end sooner
_LIST = 4096
_COARSE = 5  # CLOCK_REALTIME_COARSE
_DIRS_MAX = 100_000
_TIMES = META_SET_ATIME | META_SET_MTIME
#: Places in an attribute tuple.
_INO, _MODE, _SIZE = map(Attr._fields.index, ("ino", "mode", "size"))
Facts = tuple[int, ...]


def now() -> int:
    """In nanoseconds, as the kernel stamps files."""
    return time.clock_gettime_ns(_COARSE)


def library() -> tuple[Any, str]:
    """The binding to use, and its name for people. Raises SystemSetupError."""
    reasons = []
    for name, words in (("fuse", "fusepy, libfuse 2"), ("mfusepy", "mfusepy, libfuse 3")):
        if name == "mfusepy":
            os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")
        try:
            return importlib.import_module(name), words
        except (ImportError, OSError) as error:
            reasons.append(f"{words}: {error}")
    raise SystemSetupError("--fuse fusepy needs fusepy or mfusepy (pip install 'amfs-hpc[fs]') and its libfuse: " + "; ".join(reasons))


class Open(NamedTuple):
    """An open file, which libfuse knows by a number."""

    ino: int
    handle: IoHandle
    writing: bool
    local: bool  # all of it in one part here: writes are there at once


class Using:
    """The handles of this mount on one inode."""

    __slots__ = ("numbers", "readers", "writers")

    def __init__(self) -> None:
        self.readers = self.writers = 0
        self.numbers: set[int] = set()


class FusepyAdapter:
    """One mount through libfuse: the endpoint ``("fusepy", number)``. ``fd`` is readable when there are requests, or it has ended."""

    adapter = "fusepy"

    def __init__(
        self, number: int, path: str, session: str, meta: Meta, io: Io, alone: bool, serve: Callable[..., None]
    ) -> None:
        """``alone``: this node is the whole session now. ``serve``: ``fusepy_calls.serve``. Raises SystemSetupError."""
        self.number = number
        self.path = path
        self.meta = meta
        self.io = io
        self.writes_through = alone  # nothing is left to be done when a file is closed
        self.started = False
        self.ended = False
        self.failure = ""
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.served = 0
        self._asked: deque[FsRequested] = deque()
        self._answers: dict[int, tuple[threading.Event, list[FsReplied]]] = {}
        self._serials = itertools.count(1)
        self._files: dict[int, Open] = {}
        self._numbers = itertools.count(1)
        self._using: dict[int, Using] = {}  # by inode
        self._dirs: dict[bytes, int] = {b"/": ROOT}
        self._serve = serve
        self._binding, self.library = library()
        timeout = 1.0 if alone else 0.0
        options = {
            "foreground": True, "nothreads": True, "use_ino": True, "default_permissions": True, "fsname": f"amfs:{session}",
            "subtype": "amfspy", "entry_timeout": timeout, "attr_timeout": timeout, "negative_timeout": 0, "auto_cache": True,
        }  # fmt: skip
        if os.geteuid() == 0:
            options["allow_other"] = True
        if self._binding.__name__ == "fuse":
            options.update(big_writes=True, nonempty=True, max_read=131072)
        self._thread = threading.Thread(target=self._run, args=(options,), name=f"amfs-fusepy-{number}", daemon=True)
        self._thread.start()

    def _run(self, options: dict[str, Any]) -> None:
        try:
            # latin-1: bytes as they are, for names need not be UTF-8
            self._serve(self, self._binding, os.fsencode(self.path).decode("latin-1"), encoding="latin-1", **options)
        except RuntimeError as error:
            self.failure = f"libfuse could not mount or serve {self.path} (error {error})"
        except Exception as error:
            log.exception("the mount through libfuse at %s", self.path)
            self.failure = str(error)
        for number in list(self._files):
            with contextlib.suppress(OSError):
                self.release(number)
        self.ended = True
        os.eventfd_write(self.fd, 1)

    # ── the loop's side ────────────────────────────────────────────────────────────────────────────

    def requests(self) -> list[FsRequested]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        found = []
        while self._asked:
            found.append(self._asked.popleft())
        return found

    def reply(self, effect: FsReplied) -> None:
        assert isinstance(effect.token, tuple)
        waiting = self._answers.get(effect.token[2])
        if waiting is not None:
            waiting[1].append(effect)
            waiting[0].set()

    def forget(self) -> None:
        """Some names or directories changed elsewhere."""
        self._dirs = {b"/": ROOT}

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, request: q.Request[Any]) -> None:
        self._asked.append(FsRequested(("fusepy", self.number, 0), request))
        os.eventfd_write(self.fd, 1)

    def ask(self, request: q.Request[T]) -> T:
        """Have the machine do it. Raises OSError."""
        uid, gid, _ = self._binding.fuse_get_context()
        serial = next(self._serials)
        waiting: tuple[threading.Event, list[FsReplied]] = (threading.Event(), [])
        self._answers[serial] = waiting
        self._asked.append(FsRequested(("fusepy", self.number, serial), request, uid, gid))
        os.eventfd_write(self.fd, 1)
        answered = waiting[0].wait(ANSWER_S)
        del self._answers[serial]
        if not answered:
            raise OSError(errno.EIO, "no answer")
        effect = waiting[1][0]
        if effect.error:
            number = errno.EIO if effect.error in (errno.EHOSTDOWN, errno.ETIMEDOUT) else effect.error
            raise OSError(number, os.strerror(number))
        value: T = effect.value  # type: ignore[assignment]
        return value

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def place(self, path: bytes) -> tuple[int, bytes]:
        """The directory of a path, and the last name."""
        above, _, name = path.rpartition(b"/")
        if len(name) > NAME_MAX:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        known = self._dirs.get(above or b"/")
        return known if known is not None else self.directory(above), name

    def directory(self, path: bytes) -> int:
        """The inode of a directory, found from the nearest above it that is known."""
        unknown = []
        while (known := self._dirs.get(path)) is None:
            unknown.append(path)
            path = path.rpartition(b"/")[0] or b"/"
        if len(self._dirs) > _DIRS_MAX:
            self.forget()
        for below in reversed(unknown):
            attr = self._look_in(known, below.rpartition(b"/")[2])
            if not stat.S_ISDIR(attr[_MODE]):
                raise OSError(errno.ENOTDIR, "not a directory")
            known = self._dirs[below] = attr[_INO]
        return known

    def look(self, path: bytes) -> Facts:
        """The attributes of a path. Raises OSError."""
        known = self._dirs.get(path)
        if known is not None:
            return self.about(known)
        return self._look_in(*self.place(path))

    def _look_in(self, parent: int, name: bytes) -> Facts:
        answer: Facts = self.ask(q.Lookup(parent, name))[0]
        return answer

    def about(self, ino: int) -> Facts:
        """The attributes of an inode."""
        answer: Facts = self.ask(q.Getattr(ino))[0]
        return answer

    def about_open(self, number: int) -> Facts:
        return self.about(self._files[number].ino)

    def list(self, directory: int) -> list[tuple[bytes, int, int]]:
        """(name, inode, kind) of all that is in it."""
        above = self.meta.dir_get(directory)[1]
        found: list[tuple[bytes, int, int]] = [(b".", directory, stat.S_IFDIR), (b"..", above, stat.S_IFDIR)]
        cursor = 0
        while page := self.ask(q.List(directory, cursor, _LIST)):
            found += [(bytes(entry[0]), entry[1], entry[2]) for entry in page]
            cursor = page[-1][3]
        return found

    # ── open files ─────────────────────────────────────────────────────────────────────────────────

    def _keep(self, ino: int, how: Sequence[int], writing: bool, create: bool) -> int:
        """``how``: kind, node, stripe, size, and, if the machine said so, which losses were known then."""
        kind, node, stripe, size, *known = how
        since: dict[str, Any] = {"since": known[0]} if known else {}
        handle = self.io.open(ino, kind, node, stripe, size, writing, create, **since)
        using = self._using.get(ino)
        if using is None:
            using = self._using[ino] = Using()
        number = next(self._numbers)
        using.numbers.add(number)
        if writing:
            using.writers += 1
        else:
            using.readers += 1
        self._files[number] = Open(ino, handle, writing, kind == LOCAL)
        return number

    def open(self, path: bytes, flags: int) -> int:
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        ino = self.look(path)[_INO]
        how = self.ask(q.Open(ino, flags & ~os.O_TRUNC))
        return self._keep(ino, how, writing, how[3] == 0)

    def create(self, path: bytes, mode: int) -> int:
        parent, name = self.place(path)
        attr, *how = self.ask(q.Create(parent, name, stat.S_IMODE(mode), os.O_RDWR | os.O_CREAT))
        return self._keep(attr[_INO], how, True, how[3] == 0)

    def handle(self, number: int) -> IoHandle:
        return self._files[number].handle

    def write(self, number: int, data: bytes, offset: int) -> None:
        file = self._files[number]
        file.handle.write(data, offset)
        if self.writes_through and not file.local:
            file.handle.flush()

    def flush(self, number: int) -> None:
        """A descriptor is closed: as many nodes as shall have the bytes that were written through it."""
        file = self._files[number]
        file.handle.flush()
        if file.writing and self.meta.copies_wanted():
            self.ask(q.Secure(file.ino))

    def truncate(self, path: bytes | None, length: int, number: int | None) -> None:
        file = self._files.get(number) if number is not None else None
        if file is not None and file.writing:
            file.handle.truncate(length)
        elif path is None:
            raise OSError(errno.EINVAL, "not open for writing")
        else:
            self.change(path, META_SET_SIZE, size=length)

    def release(self, number: int) -> None:
        ino, handle, writing, _ = self._files.pop(number)
        using = self._using[ino]
        using.numbers.discard(number)
        said: Facts | None = None
        wrote = False
        if writing:
            using.writers -= 1
            if not using.writers:
                wrote = True
                said = handle.stat()
        else:
            using.readers -= 1
        try:
            handle.close()
        finally:
            last = not using.numbers
            if last:
                del self._using[ino]
            attr = None if said is None else (ino, *(0,) * (_SIZE - 1), *said)
            if wrote or last:
                self._closed(ino, wrote, attr, last)

    def _closed(self, ino: int, wrote: bool, attr: Facts | None, last: bool) -> None:
        """Tell the record what became of the file: ``wrote`` and ``attr`` if it was the last writer, ``last`` if nobody uses it here any
        more."""
        self.meta.closing(ino)
        self._tell(q.Closed(ino, wrote, last, None if attr is None else Attr(*attr)))

    def unlink(self, path: bytes) -> None:
        self.ask(q.Unlink(*self.place(path)))

    # ── attributes ─────────────────────────────────────────────────────────────────────────────────

    def change(self, path: bytes, mask: int, **wanted: int) -> None:
        ino, want = self.look(path)[_INO], Attr(**wanted)
        if mask & _TIMES:
            self._stamp(ino, mask, want)  # if it is here: it is what is believed while written
        self.ask(q.Setattr(ino, mask, want))

    def _stamp(self, ino: int, mask: int, want: Attr) -> None:
        """The part of a file here has the same times as the record."""
        path = self.io.part_path(ino, -1)
        atime = want.atime if mask & META_SET_ATIME else None
        mtime = want.mtime if mask & META_SET_MTIME else None
        try:
            found = os.stat(path, dir_fd=self.io.root_fd)
            times = found.st_atime_ns if atime is None else atime, found.st_mtime_ns if mtime is None else mtime
            os.utime(path, ns=times, dir_fd=self.io.root_fd)
        except FileNotFoundError:  # in stripes
            self.io.set_times(ino, atime, mtime)

    def xattr(self, path: bytes, name: bytes) -> bytes:
        return bytes(self.ask(q.GetXattr(self.look(path)[_INO], name)))
