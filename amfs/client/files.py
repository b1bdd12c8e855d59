"""The file system of a session from Python: the functions of ``os``, ``open`` and ``shutil``, through one node of the session.

::

    with Files() as files:                       # the newest session; Files("lab"): by name
        files.makedirs("/data", exist_ok=True)
        with files.open("/data/a.txt", "w") as file:
            print("hello", file=file)
        files.listdir("/data")

Errors are OSError and its subclasses with errno, strerror and filename, as Python's own functions raise them; SessionError when the session
is gone. Every wait ends: a node that does not answer is a TimeoutError that names it. If the gateway dies, another node takes its place.
Calls that only read are repeated there. A change that was on its way fails with EIO, and so does a file that was open for writing.

Paths are absolute, text or bytes. All threads of a process may use one ``Files``; a forked child needs its own.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, overload

from amfs.client import transfer, tree
from amfs.client.connection import ANSWER_S, Call, NodeConnection, failure
from amfs.client.keyvalue import KeyValue
from amfs.client.keywords import OpenKeywords
from amfs.client.open_file import RawFile, flags_of, wrap
from amfs.client.paths import clean, join
from amfs.client.transfer import Layout, Progress, Source
from amfs.client.tree import Entry
from amfs.errors import SessionError
from amfs.host.extents import all_zero
from amfs.host.umask import umask
from amfs.vocabulary import attr as a
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenTextMode

StrPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

LAYOUTS = {"whole": 0, "striped": 1}
_SMALL = 256 << 10  # a value that is put in one go

T = TypeVar("T")


class Usage(NamedTuple):
    """The bytes of one node. ``capacity`` 0: not limited but by its memory."""

    node: int
    capacity: int
    used: int
    files: int


class Extent(NamedTuple):
    """Where a part of a file is."""

    offset: int
    length: int
    nodes: tuple[int, ...]


def stat_result(attr: Attr) -> os.stat_result:
    """The attributes as ``os.stat`` gives them. The device number means nothing."""
    times = attr.atime, attr.mtime, attr.ctime
    fields = (attr.mode, attr.ino, 0, attr.nlink, attr.uid, attr.gid, attr.size, *(int(each // 10**9) for each in times))
    more: dict[str, Any] = {"st_blksize": 4096, "st_blocks": attr.blocks, "st_rdev": attr.rdev}
    for name, each in zip(("atime", "mtime", "ctime"), times, strict=True):
        more[f"st_{name}"], more[f"st_{name}_ns"] = each // 10**9 + 1e-9 * (each % 10**9), each
    return os.stat_result(fields, more)


def layout_of(layout: str | None, stripe: int = 0, rank: int | None = None) -> Layout:
    """The wish for new files that these say. Raises ValueError."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"a layout is {' or '.join(LAYOUTS)}, not {layout!r}")
    if stripe < 0 or (stripe and layout == "whole"):
        raise ValueError("a stripe size belongs to the layout striped, and is positive")
    return Layout(LAYOUTS[layout] if layout else 1 if stripe else -1, stripe, -1 if rank is None else rank)


def _close_all(connection: NodeConnection, opened: weakref.WeakSet[Any]) -> None:
    """Open files are written out, as at the end of a program with local files; then the connection is closed."""
    if not connection.closed and connection.pid == os.getpid():
        for file in list(opened):
            try:
                file.close()
            except (OSError, ValueError, SessionError):
                continue
    connection.close()


class Files:
    """The file system of the session ``session``: a name, the path of a session file, or None for $AMFS_SESSION or the newest one.

    ``node``: the gateway to prefer. ``answer_s``: how long one call may take. Raises SessionError. A context manager.
    """

    def __init__(self, session: str | None = None, *, node: int | None = None, answer_s: float = ANSWER_S) -> None:
        self.connection = NodeConnection(session, node=node, answer_s=answer_s)
        self.session = self.connection.session.name
        self.kv = KeyValue(self)
        self._opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self._finalizer = weakref.finalize(self, _close_all, self.connection, self._opened)

    def close(self) -> None:
        """Close what is open here and hang up. Repeatable."""
        self._finalizer()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def gateway(self) -> int:
        """The node that serves us."""
        return self.connection.gateway

    @property
    def client(self) -> int:
        """The number by which the nodes know us."""
        return self.connection.transport.own_id

    def call_many(self, calls: Iterable[Call[T]]) -> list[T | OSError]:
        """Make many calls of the file system's own (see ``connection.Call``) at a time; value or OSError of each."""
        return self.connection.call_many(calls)

    def _ask(self, request: q.Request[T], *about: StrPath) -> T:
        return self.connection.call(request, about=tuple(os.fspath(name) for name in about))

    # ── what is there ──────────────────────────────────────────────────────────────────────────────

    def info(self, path: StrPath, *, follow: bool = True) -> Attr:
        """All that is known of what is at ``path``: layout, writer and rank too."""
        return self._ask(q.Walk(clean(path), follow), path).attr

    def info_many(self, paths: Sequence[StrPath], *, follow: bool = True) -> list[Attr | OSError]:
        """The same for many paths at a time."""
        answers = self.connection.call_many(Call(q.Walk(clean(path), follow), (os.fspath(path),)) for path in paths)
        return [answer if isinstance(answer, OSError) else answer.attr for answer in answers]

    def stat(self, path: StrPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """As ``os.stat``."""
        return stat_result(self.info(path, follow=follow_symlinks))

    def lstat(self, path: StrPath) -> os.stat_result:
        """As ``os.lstat``."""
        return self.stat(path, follow_symlinks=False)

    def _kind(self, path: StrPath, follow: bool = True) -> int:
        attr = tree.lookup(self.connection, clean(path), follow)
        return stat.S_IFMT(attr.mode) if attr is not None else 0

    def exists(self, path: StrPath) -> bool:
        """Is there something, symbolic links followed?"""
        return self._kind(path) != 0

    def lexists(self, path: StrPath) -> bool:
        """Is there something, be it a broken symbolic link?"""
        return self._kind(path, False) != 0

    def isdir(self, path: StrPath) -> bool:
        return self._kind(path) == stat.S_IFDIR

    def isfile(self, path: StrPath) -> bool:
        return self._kind(path) == stat.S_IFREG

    def islink(self, path: StrPath) -> bool:
        return self._kind(path, False) == stat.S_IFLNK

    def scandir(self, path: StrPath = "/") -> Iterator[Entry]:
        """The entries of a directory with what they are like, in no particular order."""
        for page in tree.pages(self.connection, clean(path)):
            yield from page

    @overload
    def listdir(self, path: str | os.PathLike[str] = "/") -> list[str]: ...

    @overload
    def listdir(self, path: bytes | os.PathLike[bytes]) -> list[bytes]: ...

    def listdir(self, path: StrPath = "/") -> list[str] | list[bytes]:
        """The names in a directory, of the kind that ``path`` is: text or bytes."""
        names = [entry.name for entry in self.scandir(path)]
        return names if isinstance(os.fspath(path), bytes) else [os.fsdecode(name) for name in names]

    def walk(self, top: StrPath = "/", on_error: Callable[[OSError], None] | None = None) -> Iterator[tuple[bytes, list[Entry]]]:
        """Directories from ``top`` down with their entries; see ``tree.walk``. Without ``on_error`` the first error is raised."""

        def stop(error: OSError) -> None:
            raise error

        return tree.walk(self.connection, clean(top), on_error or stop)

    def glob(self, pattern: StrPath) -> list[bytes]:
        """The paths that match; see ``tree.expand``."""
        return tree.expand(self.connection, clean(pattern))

    @overload
    def readlink(self, path: str | os.PathLike[str]) -> str: ...

    @overload
    def readlink(self, path: bytes | os.PathLike[bytes]) -> bytes: ...

    def readlink(self, path: StrPath) -> str | bytes:
        """As ``os.readlink``."""
        target: bytes = self._ask(q.ReadlinkPath(clean(path)), path)
        return target if isinstance(os.fspath(path), bytes) else os.fsdecode(target)

    # ── changing the tree ──────────────────────────────────────────────────────────────────────────

    def mkdir(self, path: StrPath, mode: int = 0o777) -> None:
        """As ``os.mkdir``."""
        self._refuse_root(path)
        self._ask(q.MkdirPath(clean(path), mode & ~umask(), False), path)

    def _refuse_root(self, path: StrPath) -> None:
        if clean(path) == b"/":
            raise failure(errno.EEXIST, (os.fspath(path),))

    def makedirs(self, path: StrPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        """As ``os.makedirs``."""
        mode &= ~umask()
        try:
            self._refuse_root(path)
            self._ask(q.MkdirPath(clean(path), mode, False), path)  # most often all but the last are there
        except FileNotFoundError:
            self._ask(q.MkdirPath(clean(path), mode, True), path)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: StrPath) -> None:
        """As ``os.rmdir``."""
        self._ask(q.RmdirPath(clean(path)), path)

    def unlink(self, path: StrPath) -> None:
        """As ``os.unlink``."""
        self._ask(q.UnlinkPath(clean(path)), path)

    remove = unlink

    def rmtree(self, path: StrPath, on_error: Callable[[OSError], None] | None = None) -> None:
        """As ``shutil.rmtree``. ``on_error`` is told what could not be removed; without it the first such error is raised."""
        first: list[OSError] = []
        if not stat.S_ISDIR(self.info(path, follow=False).mode):
            raise failure(errno.ENOTDIR, (os.fspath(path),))
        tree.remove_tree(self.connection, clean(path), on_error or first.append)
        if first:
            raise first[0]

    def rename(self, source: StrPath, target: StrPath, *, replace: bool = True) -> None:
        """As ``os.rename``; without ``replace`` FileExistsError if there is something already."""
        self._ask(q.RenamePath(clean(source), clean(target), 0 if replace else 1), source, target)

    replace = rename

    def link(self, source: StrPath, target: StrPath) -> None:
        """As ``os.link``."""
        self._ask(q.LinkPath(clean(source), clean(target)), source, target)

    def symlink(self, target: StrPath, path: StrPath) -> None:
        """As ``os.symlink``."""
        self.connection.call(q.SymlinkPath(os.fsencode(os.fspath(target)), clean(path)), about=(os.fspath(target), os.fspath(path)))

    # ── attributes ─────────────────────────────────────────────────────────────────────────────────

    def _setattr(self, path: StrPath, mask: int, follow: bool, **fields: int) -> None:
        self._ask(q.SetattrPath(clean(path), mask, Attr(*[0] * 16)._replace(**fields), follow), path)

    def chmod(self, path: StrPath, mode: int) -> None:
        """As ``os.chmod``."""
        self._setattr(path, a.META_SET_MODE, True, mode=mode & 0o7777)

    def chown(self, path: StrPath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """As ``os.chown``: -1 leaves one as it is."""
        mask = (a.META_SET_UID if uid >= 0 else 0) | (a.META_SET_GID if gid >= 0 else 0)
        self._setattr(path, mask, follow_symlinks, uid=max(uid, 0), gid=max(gid, 0))

    def utime(
        self,
        path: StrPath,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """As ``os.utime``: access and modification time, in seconds or nanoseconds; neither: now."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = round(times[0] * 1e9), round(times[1] * 1e9)
        atime, mtime = ns or (time.time_ns(),) * 2
        self._setattr(path, a.META_SET_ATIME | a.META_SET_MTIME, follow_symlinks, atime=atime, mtime=mtime)

    def truncate(self, path: StrPath, size: int) -> None:
        """As ``os.truncate``."""
        if size < 0:
            raise failure(errno.EINVAL, (os.fspath(path),))
        self._setattr(path, a.META_SET_SIZE, True, size=size)

    def getxattr(self, path: StrPath, name: str | bytes) -> bytes:
        """As ``os.getxattr``. ``user.amfs.location``, ``user.amfs.layout`` and ``user.amfs.placement`` say where a file is and why."""
        return bytes(self._ask(q.GetXattrPath(clean(path), os.fsencode(name)), path))

    def setxattr(self, path: StrPath, name: str | bytes, value: bytes, flags: int = 0) -> None:
        """As ``os.setxattr``."""
        self._ask(q.SetXattrPath(clean(path), os.fsencode(name), bytes(value), flags), path)

    def listxattr(self, path: StrPath) -> list[str]:
        """As ``os.listxattr``."""
        names = self._ask(q.ListXattrPath(clean(path)), path)
        parts = names.split(b"\0") if isinstance(names, bytes) else names
        return [os.fsdecode(name) for name in parts if name]

    def removexattr(self, path: StrPath, name: str | bytes) -> None:
        """As ``os.removexattr``."""
        self._ask(q.RemoveXattrPath(clean(path), os.fsencode(name)), path)

    # ── placement ──────────────────────────────────────────────────────────────────────────────────

    def set_rank(self, path: StrPath, node: int) -> None:
        """Have the file at ``path`` on this node: one that is there goes there, one that is not there yet will."""
        self._ask(q.SetRank(clean(path), node), path)

    def get_rank(self, path: StrPath) -> int:
        """The node that has the file's bytes, or its first ones."""
        return int(self._ask(q.GetRank(clean(path)), path))

    def locate(self, path: StrPath) -> list[Extent]:
        """Which nodes have which parts of a file."""
        return [Extent(offset, length, tuple(nodes)) for offset, length, nodes in self._ask(q.Locate(clean(path)), path)]

    def set_layout(self, path: StrPath, layout: str | None, stripe: int = 0) -> None:
        """Change a file's layout to "whole" or "striped" (``stripe`` bytes each), or say it for all new files in a directory and below it;
        None: a directory has no rule of its own any more."""
        if layout is None:
            self.removexattr(path, "user.amfs.layout")
        else:
            layout_of(layout, stripe)
            self.setxattr(path, "user.amfs.layout", f"{layout}:{stripe}".encode() if stripe else layout.encode())

    def get_layout(self, path: StrPath) -> tuple[str, int] | None:
        """Layout and stripe size: a file's own, or what new files in a directory get; None: no rule."""
        try:
            layout, _, stripe = self.getxattr(path, "user.amfs.layout").partition(b":")
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise
        return layout.decode(), int(stripe or 0)

    def df(self) -> list[Usage]:
        """The usage of each node."""
        return [Usage(*each[:4]) for each in self.connection.call(q.Df(), about=(self.session,))]

    def du(self, path: StrPath) -> list[tuple[bytes, int, int]]:
        """(directory, bytes, files) of every directory at and below ``path`` with all that is below it; a hard link counts once."""
        return [(name, size, count) for name, size, count in self._ask(q.Du(clean(path)), path)]

    # ── content ────────────────────────────────────────────────────────────────────────────────────

    @overload
    def open(
        self, path: StrPath, mode: OpenTextMode = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, **how: Unpack[OpenKeywords],
    ) -> IO[str]: ...  # fmt: skip

    @overload
    def open(
        self, path: StrPath, mode: OpenBinaryMode, buffering: int = -1, encoding: None = None, errors: None = None,
        newline: None = None, **how: Unpack[OpenKeywords],
    ) -> IO[bytes]: ...  # fmt: skip

    @overload
    def open(
        self, path: StrPath, mode: str, buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, **how: Unpack[OpenKeywords],
    ) -> IO[str] | IO[bytes]: ...  # fmt: skip

    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o666,
        layout: str | None = None,
        stripe: int = 0,
        rank: int | None = None,
    ) -> IO[str] | IO[bytes]:
        """As Python's ``open``. For a file that is made: ``permissions`` before the umask, ``layout`` ("whole" or "striped", with
        ``stripe`` bytes each), ``rank``: the node that shall hold it. Without these the rule of its directory counts."""
        wish = layout_of(layout, stripe, rank)
        flags_of(mode)
        raw = RawFile(
            self.connection, clean(path), os.fsdecode(os.fspath(path)), mode, permissions=permissions & ~umask(), layout=wish.kind,
            stripe=wish.stripe, rank=wish.rank, **({"behind": 0} if buffering == 0 else {}),
        )  # fmt: skip
        try:
            file = wrap(raw, mode, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise
        self._opened.add(file)
        return file

    def read_bytes(self, path: StrPath) -> bytes:
        """The whole content."""
        result = self.read_many([path])[0]
        if isinstance(result, OSError):
            raise result
        return result

    def read_many(self, paths: Sequence[StrPath]) -> list[bytes | OSError]:
        """The contents of many files (which must fit in memory), or why not, in order."""
        results: list[bytes | OSError] = []
        for start in range(0, len(paths), transfer.BATCH):
            batch = paths[start : start + transfer.BATCH]
            calls = (Call(q.Export(clean(path)), (os.fspath(path),)) for path in batch)
            exports = self.connection.call_many(calls) if self.connection.same_host else [None] * len(batch)
            for path, exported in zip(batch, exports, strict=True):
                try:
                    results.append(self._content(path, exported))
                except OSError as error:
                    results.append(error)
        return results

    def _content(self, path: StrPath, exported: Any) -> bytes:
        opened = transfer.open_exported(exported)
        if opened is not None:
            with open(opened[0], "rb") as local:
                return local.read()
        with self.open(path, "rb", buffering=0) as file:
            return bytes(file.read())

    def write_bytes(self, path: StrPath, data: bytes | bytearray | memoryview, **how: Unpack[OpenKeywords]) -> int:
        """Make the file what ``data`` says; ``how`` as for ``open``."""
        with self.open(path, "wb", buffering=0, **how) as file:
            return file.write(data)

    def write_atomic(
        self, path: StrPath, data: bytes | bytearray | memoryview, *, temporary: bytes | None = None, mode: int = 0o666
    ) -> None:
        """The same, but readers meanwhile get the old content or the new one, nothing between. ``temporary``: a path beside it."""
        temporary = temporary or self.beside(path)
        try:
            with self.open(temporary, "xb", buffering=0, permissions=mode) as file:
                file.write(data)
            self.rename(temporary, path)
        except OSError as error:
            self.connection.call_many([Call(q.UnlinkPath(temporary))])
            raise failure(error.errno or errno.EIO, (os.fspath(path),), error.strerror or "") from None
        except BaseException:
            self.connection.call_many([Call(q.UnlinkPath(temporary))])
            raise

    def beside(self, path: StrPath) -> bytes:
        """A path in the same directory that nobody else uses."""
        return join(clean(path).rpartition(b"/")[0] or b"/", b".amfs-%x-%d" % (self.client, self.connection.number()))

    def put_file(
        self,
        local: str | os.PathLike[str],
        path: StrPath,
        *,
        layout: str | None = None,
        stripe: int = 0,
        rank: int | None = None,
        exclusive: bool = False,
        progress: Progress | None = None,
    ) -> Attr:
        """Copy a local file into the file system, by the shortest way; ``progress`` is told the bytes of each piece."""
        facts = os.stat(local)
        source = Source(os.fspath(local), clean(path), facts.st_mode & 0o777 & ~umask(), facts.st_size, facts.st_mtime_ns)
        wish = layout_of(layout, stripe, rank)
        return transfer.put(self.connection, source, wish, exclusive=exclusive, progress=progress or (lambda count: None))

    def get_file(
        self, path: StrPath, local: str | os.PathLike[str], *, exclusive: bool = False, progress: Progress | None = None
    ) -> Attr:
        """Copy a file out of the file system."""
        told = progress or (lambda count: None)
        return transfer.get(self.connection, clean(path), os.fspath(local), exclusive=exclusive, progress=told)

    def copy_file(
        self, source: StrPath, target: StrPath, *, layout: str | None = None, stripe: int = 0, progress: Progress | None = None
    ) -> None:
        """Copy a file within the file system. The bytes travel through this process."""
        attr = self.info(source)
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EISDIR, (os.fspath(source),))
        there = tree.lookup(self.connection, clean(target), True)
        if there is not None and there.ino == attr.ino:
            raise failure(errno.EINVAL, (os.fspath(source), os.fspath(target)), "they are the same file")
        how: dict[str, Any] = {"permissions": attr.mode & 0o777, "layout": layout, "stripe": stripe}
        with self.open(source, "rb", buffering=0) as old, self.open(target, "wb", buffering=0, **how) as new:
            assert isinstance(old, RawFile) and isinstance(new, RawFile)
            buffer = bytearray(min(transfer.IN_FLIGHT * transfer.CHUNK, attr.size + 1))  # all of it is asked for at once, there or not
            ends_in_hole = False
            while count := old.readinto(buffer):
                ends_in_hole = all_zero(buffer[:count])
                if ends_in_hole:
                    new.seek(old.seek_data())
                    old.seek(new.tell())
                else:
                    new.write(memoryview(buffer)[:count])
                if progress is not None:
                    progress(count)
            if ends_in_hole:
                new.truncate()


_of_process: dict[tuple[int, str], Files] = {}
_of_process_lock = threading.Lock()


def files(session: str | None = None) -> Files:
    """The file system of a session, over one connection that this process keeps: for the files of Python functions on nodes.

    ``session``: a name, or None: $AMFS_SESSION (which functions and tasks of a session have) or the newest one. Raises SessionError.
    """
    key = os.getpid(), session or os.environ.get("AMFS_SESSION", "")
    with _of_process_lock:
        found = _of_process.get(key)
        if found is None or found.connection.closed:
            found = _of_process[key] = Files(session)
        return found
