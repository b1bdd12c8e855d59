"""Files that clients of this node have open by handle, and files that are taken or given as a whole. Pure."""

from __future__ import annotations

import errno
import stat
from contextlib import suppress
from typing import Any, NamedTuple

from amfs.fs.openflags import O_ACCMODE, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_TRUNC, O_WRONLY
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Calls, Operation, failure, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.namespace import Namespace, RecordLost
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import STRIPE_BYTES
from amfs.fs.vfs.paths import Paths
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOCAL, REMOTE, STRIPED, STRIPES, WHOLE, Attr, Facts, Opened

ATTEMPTS = 20  # at a file that is replaced, or changes hands, while it is opened
READ_MAX = 1 << 20
ANY_LAYOUT = -1


def _replaces(flags: int) -> bool:
    """Is whatever there is replaced by new content?"""
    return bool(flags & O_TRUNC) and not flags & O_EXCL


class _Handle(NamedTuple):
    endpoint: object
    ino: int
    kind: int
    writing: bool


class Handles:
    """Opens, reads, writes and closes for clients."""

    def __init__(self, calls: Calls, members: Members, namespace: Namespace, paths: Paths, files: OpenFiles) -> None:
        self._calls = calls
        self._members = members
        self._namespace = namespace
        self._paths = paths
        self._files = files
        self._handles: dict[int, _Handle] = {}  # by the number that the I/O has given them

    # ── opening ────────────────────────────────────────────────────────────────────────────────────

    def open(
        self, caller: Caller, path: bytes, flags: int, mode: int, layout: int = ANY_LAYOUT, stripe: int = 0, rank: int = -1,
        put: bool = False,
    ) -> Operation[q.OpenedFile]:  # fmt: skip
        """A handle, and the attributes. ``put``: for ``fill``."""
        attempts = ATTEMPTS
        while True:
            attempts -= 1
            handle: int | None = None
            opened: Opened | None = None
            try:
                attr, opened = yield from self._reach(caller, path, flags, mode, layout, stripe, rank, put)
                handle = yield from self._new(caller, attr.ino, opened, bool(flags & (O_ACCMODE | O_TRUNC)))
                break
            except _Replaced as replaced:
                if attempts < 0:
                    raise replaced.error from None
            except OSError as error:
                if error.errno != errno.ESTALE or opened is None or opened.kind != REMOTE or attempts < 0:
                    raise
                flags &= ~O_EXCL  # the node that was to let us in has closed it by now
        if flags & O_TRUNC and opened.kind == REMOTE:  # it is cut where it is written
            try:
                yield from self.truncate(caller, handle, 0)
            except OSError:
                yield from self.close(caller, handle)
                raise
            attr = attr._replace(size=0)
        return q.OpenedFile(handle, attr)

    def _reach(
        self, caller: Caller, path: bytes, flags: int, mode: int, layout: int, stripe: int, rank: int, put: bool
    ) -> Operation[tuple[Attr, Opened]]:
        """One attempt to open it, or to make it."""
        try:
            attr = yield from self._paths.walk(path, not flags & O_NOFOLLOW)
        except OSError as error:
            if not flags & O_CREAT or error.errno not in (errno.ENOENT, errno.EIO):
                raise
            if error.errno == errno.EIO and not (_replaces(flags) and (yield from self._is_lost(caller, path))):
                raise
            return (yield from self._make(caller, path, flags, mode, layout, stripe, rank))
        if flags & O_CREAT and flags & O_EXCL:
            raise failure(errno.EEXIST)
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EISDIR)
        if stat.S_ISLNK(attr.mode):
            raise failure(errno.ELOOP)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.ENXIO)
        try:
            opened = yield from self._files.open(caller.endpoint, attr.ino, flags, put)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            raise _Replaced(error) from None  # by a rename, since we looked
        return attr._replace(size=opened.size), opened

    def _is_lost(self, caller: Caller, path: bytes) -> Operation[bool]:
        """May the name itself have been lost with its nodes, or has its record been? Then nobody can read it, and it can be replaced."""
        try:
            yield from self._paths.walk(path, False)
        except RecordLost:
            yield from self._paths.unlink(caller, path)
        except OSError as error:
            return error.errno == errno.EIO
        else:
            return False  # a symbolic link to something that is lost
        return True

    def _make(
        self, caller: Caller, path: bytes, flags: int, mode: int, layout: int, stripe: int, rank: int
    ) -> Operation[tuple[Attr, Opened]]:
        dir, name = yield from self._paths.parent(path)
        wanted = self._namespace.new_file(caller, dir, mode)._replace(rank=rank)
        if layout in (WHOLE, STRIPED):
            wanted = wanted._replace(layout=layout, stripe=(stripe or STRIPE_BYTES) if layout == STRIPED else 0)
        if rank >= 0 and rank != self._members.node:
            yield from self._paths.set_rank(caller, path, rank)
            attr = yield from self._paths.walk(path, True)
            return attr, (yield from self._files.open(caller.endpoint, attr.ino, flags & ~O_TRUNC))
        try:
            return (yield from self._namespace.create_new(caller, dir, name, wanted, _replaces(flags)))
        except OSError as error:
            if error.errno != errno.EEXIST or flags & O_EXCL:
                raise
            raise _Replaced(error) from None  # made by another since we looked

    def _new(self, caller: Caller, ino: int, opened: Opened, writing: bool) -> Operation[int]:
        try:
            handle = yield from work(w.OpenHandle(ino, opened, writing, writing))
        except OSError:
            yield from self._files.close(caller.endpoint, ino, writing)
            raise
        self._handles[handle] = _Handle(caller.endpoint, ino, opened.kind, writing)
        return handle

    # ── with a handle ──────────────────────────────────────────────────────────────────────────────

    def _of(self, caller: Caller, handle: int, writing: bool = False) -> _Handle:
        found = self._handles.get(handle)
        if found is None or found.endpoint != caller.endpoint or (writing and not found.writing):
            raise failure(errno.EBADF)
        return found

    def is_local(self, handle: int) -> bool:
        """Does all of it lie here, as a whole?"""
        return self._handles[handle].kind == LOCAL

    def read(self, caller: Caller, handle: int, offset: int, count: int) -> Operation[bytes]:
        self._of(caller, handle)
        return (yield from work(w.Read(handle, offset, min(count, READ_MAX))))

    def seek(self, caller: Caller, handle: int, offset: int) -> Operation[int]:
        self._of(caller, handle)
        return (yield from work(w.Seek(handle, offset)))

    def write(self, caller: Caller, handle: int, offset: int, data: bytes) -> Operation[int]:
        self._of(caller, handle, writing=True)
        return (yield from work(w.Write(handle, offset, data)))

    def truncate(self, caller: Caller, handle: int, size: int) -> Operation[None]:
        self._of(caller, handle, writing=True)
        yield from work(w.TruncateHandle(handle, size))

    def flush(self, caller: Caller, handle: int) -> Operation[None]:
        self._of(caller, handle)
        yield from work(w.Flush(handle))

    def stat(self, caller: Caller, handle: int) -> Operation[Attr]:
        return (yield from self._namespace.inode(self._of(caller, handle).ino))

    def close(self, caller: Caller, handle: int, origin: bytes = b"") -> Operation[None]:
        """``origin``: of what it contains now, if a task has made it."""
        _, ino, _, writing = self._of(caller, handle)
        del self._handles[handle]
        failed: OSError | None = None
        facts: Facts | None = None
        try:
            facts = yield from work(w.CloseHandle(handle))
        except OSError as error:
            failed = error
        if writing:
            caller.inodes.append(ino)
        yield from self._files.close(caller.endpoint, ino, writing, facts, origin if failed is None else b"")
        if failed is not None:
            raise failed

    def close_all(self, endpoint: object) -> None:
        """A client is gone: close what it had open."""
        for number in [number for number, handle in self._handles.items() if handle.endpoint == endpoint]:
            self._calls.spawn(self.close(Caller(endpoint, 0, 0, self._calls.wall), number))

    # ── whole files ────────────────────────────────────────────────────────────────────────────────

    def export(self, path: bytes) -> Operation[tuple[str, Attr]]:
        """The file of this node's store that has the whole content, and the attributes."""
        attempts = ATTEMPTS
        while True:
            attr = yield from self._paths.walk(path, True)
            if stat.S_ISDIR(attr.mode):
                raise failure(errno.EISDIR)
            endpoint = "export", attr.ino
            try:
                opened = yield from self._files.open(endpoint, attr.ino, O_RDONLY)
                break
            except OSError as error:
                attempts -= 1
                if error.errno != errno.ENOENT or attempts < 0:
                    raise
        yield from self._files.close(endpoint, attr.ino, False)
        if opened.kind in (REMOTE, STRIPES):
            raise failure(errno.EFBIG)
        return (yield from work(w.PartPath(attr.ino))), attr

    def adopt(self, caller: Caller, scratch: bytes, path: bytes, mode: int, exclusive: bool) -> Operation[Attr]:
        """Make a scratch file of this node's store the content of ``path``."""
        flags = O_WRONLY | O_CREAT | O_TRUNC | (O_EXCL if exclusive else 0)
        handle, attr = yield from self.open(caller, path, flags, mode, WHOLE, put=True)
        yield from self.fill(caller, handle, path, w.Adopt(handle, scratch, attr.ino) if self.is_local(handle) else w.Pour(handle, scratch))
        return (yield from self._namespace.inode(attr.ino))

    def put_new(self, caller: Caller, scratch: bytes, dir: int, name: bytes, mode: int) -> Operation[None]:
        """A scratch file of this node's store becomes a new file. EEXIST. Mostly nobody opens it for that: the part is put there, and the
        file is closed."""
        wanted = self._namespace.new_file(caller, dir, mode)
        attr, opened = yield from self._namespace.create_new(caller, dir, name, wanted, part=False)
        how: w.WorkOrder[None]
        if opened.kind == LOCAL:
            caller.inodes.append(attr.ino)
            how, closing = w.Adopt(0, scratch, attr.ino), self._files.close(caller.endpoint, attr.ino, True)
        else:
            handle = yield from self._new(caller, attr.ino, opened, True)
            how, closing = w.Pour(handle, scratch), self.close(caller, handle)
        yield from self._fill(how, closing, self._namespace.unlink(caller, dir, name))

    def fill(self, caller: Caller, handle: int, path: bytes, how: w.WorkOrder[Any], origin: bytes = b"") -> Operation[int]:
        """Give a new file its content by a work, and close it; the result of that work."""
        return (yield from self._fill(how, self.close(caller, handle, origin), self._paths.unlink(caller, path)))

    def _fill(self, how: w.WorkOrder[Any], closing: Operation[None], removing: Operation[None]) -> Operation[int]:
        """If that fails there is no file: an empty one, or half of it, would pass for it."""
        failed: OSError | None = None
        done = 0
        try:
            done = yield from work(how)
        except OSError as error:
            failed = error
        try:
            yield from closing
        except OSError as error:
            failed = failed or error
        if failed is not None:
            with suppress(OSError):
                yield from removing
            raise failed
        return done or 0


class _Replaced(Exception):
    """Another process has made the file, or put another in its place, since we looked: look again."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error
