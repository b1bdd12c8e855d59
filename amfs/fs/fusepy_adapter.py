"""The portable mount: the same operations through libfuse, by fusepy (libfuse 2) or its fork mfusepy (libfuse 3). I/O.

The only module that imports either. libfuse runs in a thread of its own, one request at a time, and knows paths; here they are walked to
inodes, so that hard links are one file. What concerns only this node is done in that thread with Meta and Io; for the rest it asks the
machine through the poll loop and waits. What other nodes change is seen after the time-outs of the kernel's caches: libfuse's simple
interface has no way to invalidate them.
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
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from amfs._native import Io, IoHandle, Meta
from amfs.engine.events import FsReplied, FsRequested
from amfs.errors import SystemSetupError
from amfs.fs.attr import (
    META_BUSY,
    META_NOT_MINE,
    META_SET_ATIME,
    META_SET_GID,
    META_SET_MODE,
    META_SET_MTIME,
    META_SET_SIZE,
    META_SET_UID,
    NAME_MAX,
    NO_LAYOUT,
    ROOT,
    WHOLE,
    Attr,
)

log = logging.getLogger("amfs.fs")

LOCAL = 0
ANSWER_S = 60.0  # the machine's own time-outs end sooner
_LIST = 4096
_NO_ID = 0xFFFFFFFF
_SLOW = (META_NOT_MINE, META_BUSY)
T = TypeVar("T")


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
    raise SystemSetupError("--fuse fusepy needs fusepy or mfusepy (pip install 'amfs[fs]') and its libfuse: " + "; ".join(reasons))


class Open(NamedTuple):
    ino: int
    handle: IoHandle
    writing: bool


class Portable:
    """One mount through libfuse: the face ``("fusepy", number)``. ``fd`` is readable when there are requests, or it has ended."""

    adapter = "fusepy"

    def __init__(self, number: int, path: str, session: str, node: int, meta: Meta, io: Io, alone: bool) -> None:
        self.number = number
        self.path = path
        self.node = node
        self.meta = meta
        self.io = io
        self.alone = alone
        self.shared = True  # other mounts of this node keep caches, which only the machine tells of changes
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
        self._counts: dict[int, list[int]] = {}  # inode -> readers, writers
        self._foreign: set[int] = set()  # inodes that the machine opened: it must be told when they are closed
        self._dirs: dict[str, int] = {"/": ROOT}
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
        calls = _calls(self, self._binding)
        try:
            # latin-1: bytes as they are, for names need not be UTF-8
            self._binding.FUSE(calls, os.fsencode(self.path).decode("latin-1"), encoding="latin-1", **options)
        except RuntimeError as error:
            self.failure = f"libfuse could not mount or serve {self.path} (error {error})"
        except Exception as error:
            log.exception("the portable mount at %s", self.path)
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
        self._dirs = {"/": ROOT}

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, op: str, *args: object) -> None:
        self._asked.append(FsRequested(("fusepy", self.number, 0), op, args))
        os.eventfd_write(self.fd, 1)

    def ask(self, op: str, *args: object) -> Any:
        """Have the machine do it. Raises OSError."""
        uid, gid, _ = self._binding.fuse_get_context()
        serial = next(self._serials)
        waiting: tuple[threading.Event, list[FsReplied]] = (threading.Event(), [])
        self._answers[serial] = waiting
        self._asked.append(FsRequested(("fusepy", self.number, serial), op, args, uid, gid))
        os.eventfd_write(self.fd, 1)
        answered = waiting[0].wait(ANSWER_S)
        del self._answers[serial]
        if not answered:
            raise OSError(errno.EIO, "no answer")
        effect = waiting[1][0]
        if effect.error:
            number = errno.EIO if effect.error in (errno.EHOSTDOWN, errno.ETIMEDOUT) else effect.error
            raise OSError(number, os.strerror(number))
        return effect.value

    def _here(self, act: Callable[[], T], changes: bool = False) -> T | None:
        """What ``act`` gives, if it concerns only this node; else None."""
        if not self.alone or (changes and self.shared):
            return None
        try:
            return act()
        except OSError as error:
            if error.errno in _SLOW:
                return None
            raise

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def place(self, path: str) -> tuple[int, bytes]:
        """The directory of a path, and the last name."""
        above, _, name = path.rpartition("/")
        if len(name) > NAME_MAX:
            raise OSError(errno.ENAMETOOLONG, path)
        return self.directory(above or "/"), name.encode("latin-1")

    def directory(self, path: str) -> int:
        known = self._dirs.get(path)
        if known is None:
            attr = self.look(path)
            if not stat.S_ISDIR(attr.mode):
                raise OSError(errno.ENOTDIR, path)
            known = attr.ino
            if len(self._dirs) > 100_000:
                self.forget()
            self._dirs[path] = known
        return known

    def look(self, path: str) -> Attr:
        """The attributes of a path. Raises OSError."""
        if path == "/":
            return self.about(ROOT)
        parent, name = self.place(path)

        def here() -> Attr | None:
            ino, kind, attr = self.meta.lookup(parent, name, self.node)
            if kind == stat.S_IFDIR:
                return Attr(*self.meta.dir_get(ino)[0])
            if attr is None or (not attr[8] and attr[9] not in (-1, self.node)):
                return None
            return self._live(Attr(*attr))

        return self._here(here) or Attr(*self.ask("lookup", parent, name)[0])

    def about(self, ino: int) -> Attr:
        def here() -> Attr | None:
            attr = Attr(*self.meta.getattr(ino, self.node))
            return self._live(attr) if attr.finished or attr.writer in (-1, self.node) else None

        return self._here(here) or Attr(*self.ask("getattr", ino)[0])

    def _live(self, attr: Attr) -> Attr:
        """A file that is written here is what its data is."""
        if attr.finished or not stat.S_ISREG(attr.mode):
            return attr
        try:
            size, blocks, atime, mtime, ctime = self.io.part_stat(attr.ino, -1)
        except FileNotFoundError:
            return attr
        return attr._replace(size=size, blocks=blocks, atime=atime, mtime=mtime, ctime=max(ctime, attr.ctime))

    # ── open files ─────────────────────────────────────────────────────────────────────────────────

    def _keep(self, ino: int, how: tuple[int, int, int, int], writing: bool, create: bool) -> int:
        kind, node, stripe, size = how
        handle = self.io.open(ino, kind, node, stripe, size, writing, create)
        self._counts.setdefault(ino, [0, 0])[writing] += 1
        number = next(self._numbers)
        self._files[number] = Open(ino, handle, writing)
        return number

    def open(self, path: str, flags: int) -> int:
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        attr = self.look(path)
        found = self._here(lambda: self.meta.open_here(attr.ino, writing))
        if found is not None:
            return self._keep(attr.ino, (LOCAL, -1, 0, found[11]), writing, found[11] == 0)
        kind, node, stripe, size = self.ask("open", attr.ino, flags & ~os.O_TRUNC)
        self._foreign.add(attr.ino)
        return self._keep(attr.ino, (kind, node, stripe, size), writing, size == 0)

    def create(self, path: str, mode: int) -> int:
        parent, name = self.place(path)
        uid, gid, _ = self._binding.fuse_get_context()

        def here() -> Any:
            if self.meta.dir_layout(parent)[0] not in (WHOLE, NO_LAYOUT):
                return None
            now = time.time_ns()
            wanted = Attr(mode=stat.S_IFREG | stat.S_IMODE(mode), uid=uid, gid=gid, writer=self.node)
            made = self.meta.create(parent, name, now, self.node, None, wanted)
            self.meta.dir_touch(parent, now)
            return made

        made = self._here(here, changes=True)
        if made is not None:
            return self._keep(made[0], (LOCAL, -1, 0, 0), True, True)
        attr, kind, node, stripe, size = self.ask("create", parent, name, stat.S_IMODE(mode), os.O_RDWR | os.O_CREAT)
        self._foreign.add(attr[0])
        return self._keep(attr[0], (kind, node, stripe, size), True, size == 0)

    def handle(self, number: int) -> IoHandle:
        return self._files[number].handle

    def release(self, number: int) -> None:
        file = self._files.pop(number)
        file.handle.flush()
        size, blocks, atime, mtime, ctime = file.handle.stat()
        file.handle.close()
        counts = self._counts[file.ino]
        counts[file.writing] -= 1
        attr = Attr(ino=file.ino, size=size, blocks=blocks, atime=atime, mtime=mtime, ctime=ctime)
        last = not any(counts)
        if last:
            del self._counts[file.ino]
        foreign = file.ino in self._foreign
        if foreign and last:
            self._foreign.discard(file.ino)
        if foreign or self._here(lambda: self._closed(attr, file.writing and not counts[1], last), changes=True) is None:
            if file.writing and not counts[1]:
                self._tell("closed", file.ino, True, tuple(attr))
            if last:
                self._tell("closed", file.ino, False, None)

    def _closed(self, attr: Attr, wrote: bool, last: bool) -> bool:
        """Tell the record here what became of the file."""
        with contextlib.suppress(FileNotFoundError):
            readers, writers = self.io.open_count(attr.ino)
            if wrote and not writers:
                self.meta.wrote(attr.ino, self.node, attr)
            if last and not readers + writers and self.meta.unused(attr.ino, self.node):
                self.io.part_delete(attr.ino)
        return True

    def unlink(self, path: str) -> None:
        parent, name = self.place(path)

        def here() -> bool:
            now = time.time_ns()
            left, gone, _ = self.meta.unlink(parent, name, now)
            self.meta.dir_touch(parent, now)
            if gone:
                with contextlib.suppress(FileNotFoundError):
                    self.io.part_delete(left[0])
            return True

        if self._here(here, changes=True) is None:
            self.ask("unlink", parent, name)

    # ── attributes ─────────────────────────────────────────────────────────────────────────────────

    def change(self, path: str, mask: int, **wanted: int) -> None:
        self.ask("setattr", self.look(path).ino, mask, tuple(Attr(**wanted)))


def _facts(attr: Attr) -> dict[str, int]:
    return {
        "st_ino": attr.ino, "st_mode": attr.mode, "st_nlink": attr.nlink, "st_uid": attr.uid, "st_gid": attr.gid, "st_rdev": attr.rdev,
        "st_size": attr.size, "st_blocks": attr.blocks, "st_blksize": 4096,
        "st_atime": attr.atime, "st_mtime": attr.mtime, "st_ctime": attr.ctime,
    }  # fmt: skip


def _calls(face: Portable, binding: Any) -> Any:
    """libfuse's calls, by path."""

    class Calls(binding.Operations):  # type: ignore[misc]
        use_ns = True

        def init(self, path: str) -> None:
            face.started = True
            os.eventfd_write(face.fd, 1)

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            face.served += 1
            return _facts(face.about(face._files[fh].ino) if fh is not None and fh in face._files else face.look(path))

        def readdir(self, path: str, fh: int) -> list[str]:
            directory, cursor, names = face.directory(path), 0, [".", ".."]
            while True:
                page = face.ask("list", directory, cursor, _LIST)
                names += [bytes(entry[0]).decode("latin-1") for entry in page]
                if not page:
                    return names
                cursor = page[-1][3]

        def open(self, path: str, flags: int) -> int:
            face.served += 1
            return face.open(path, flags)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            face.served += 1
            return face.create(path, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return face.handle(fh).read(size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            face.handle(fh).write(data, offset)
            return len(data)

        def flush(self, path: str, fh: int) -> int:
            face.handle(fh).flush()
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            face.handle(fh).flush()
            return 0

        def release(self, path: str, fh: int) -> int:
            face.release(fh)
            return 0

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            if fh is not None and fh in face._files and face._files[fh].writing:
                face.handle(fh).truncate(length)
            else:
                face.change(path, META_SET_SIZE, size=length)
            return 0

        def unlink(self, path: str) -> int:
            face.unlink(path)
            return 0

        def mkdir(self, path: str, mode: int) -> int:
            face.ask("mkdir", *face.place(path), stat.S_IFDIR | mode)
            return 0

        def rmdir(self, path: str) -> int:
            face.ask("rmdir", *face.place(path))
            face.forget()
            return 0

        def mknod(self, path: str, mode: int, dev: int) -> int:
            face.ask("mknod", *face.place(path), mode, dev)
            return 0

        def symlink(self, target: str, source: str) -> int:
            face.ask("symlink", *face.place(target), source.encode("latin-1"))
            return 0

        def readlink(self, path: str) -> str:
            return bytes(face.ask("readlink", face.look(path).ino)).decode("latin-1")

        def link(self, target: str, source: str) -> int:
            face.ask("link", face.look(source).ino, *face.place(target))
            return 0

        def rename(self, old: str, new: str) -> int:
            face.ask("rename", *face.place(old), *face.place(new), 0)
            face.forget()
            return 0

        def chmod(self, path: str, mode: int) -> int:
            face.change(path, META_SET_MODE, mode=stat.S_IMODE(mode))
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            mask = (META_SET_UID if uid & _NO_ID != _NO_ID else 0) | (META_SET_GID if gid & _NO_ID != _NO_ID else 0)
            face.change(path, mask, uid=uid & _NO_ID, gid=gid & _NO_ID)
            return 0

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
            atime, mtime = times if times is not None else (time.time_ns(), time.time_ns())
            face.change(path, META_SET_ATIME | META_SET_MTIME, atime=atime, mtime=mtime)
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            bsize, blocks, bfree, bavail, files, ffree = face.ask("statfs")
            return {
                "f_bsize": bsize, "f_frsize": bsize, "f_blocks": blocks, "f_bfree": bfree, "f_bavail": bavail, "f_files": files,
                "f_ffree": ffree, "f_namemax": NAME_MAX,
            }  # fmt: skip

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            if name.startswith("system."):
                raise OSError(errno.EOPNOTSUPP, name)
            return bytes(face.ask("get_xattr", face.look(path).ino, name.encode("latin-1")))

        def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
            if not name.startswith(("user.", "trusted.", "security.")):
                raise OSError(errno.EOPNOTSUPP, name)
            face.ask("set_xattr", face.look(path).ino, name.encode("latin-1"), bytes(value), options)
            return 0

        def listxattr(self, path: str) -> list[str]:
            return [name.decode("latin-1") for name in bytes(face.ask("list_xattr", face.look(path).ino)).split(b"\0") if name]

        def removexattr(self, path: str, name: str) -> int:
            face.ask("remove_xattr", face.look(path).ino, name.encode("latin-1"))
            return 0

    return Calls()
