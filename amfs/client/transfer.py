"""Bulk copies between local files and the session's file system. Used by ``amfs.client.files``.

On the host of the gateway the kernel copies a file once, between its path and the store of the gateway; no content passes the connection.
From other hosts, and for striped files, the client sends calls of 1 MiB, several at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from amfs.client.connection import Call, GatewayLost, NodeConnection, Pending, failure
from amfs.client.verifying import WORDS, digests, drop_damaged, fault_of
from amfs.host.extents import all_zero, extents
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import META_SET_MTIME, Attr

Progress = Callable[[int], None]  # told the bytes of each piece that is done

CHUNK = 1 << 20
IN_FLIGHT = 8
BATCH = 64  # files of a tree in one go
BATCH_BYTES = 64 << 20  # the same, but of one that is larger
_KERNEL_PIECE = 16 << 20  # between two signs of progress
_NOT_HERE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _nothing(count: int) -> None:
    pass


class Layout(NamedTuple):
    """Where the bytes of new files go. ``kind`` -1: by the directory's rule; 0 whole, 1 striped. ``rank``: the node, -1: the gateway."""

    kind: int = -1
    stripe: int = 0
    rank: int = -1

    @property
    def chosen(self) -> bool:
        return self.kind > 0 or self.rank >= 0


class Source(NamedTuple):
    """A local file to be put. ``mode``: permissions of the new file; ``mtime``: its time, in ns."""

    local: str
    path: bytes
    mode: int
    size: int
    mtime: int


# ── between descriptors ────────────────────────────────────────────────────────────────────────────


def copy_descriptor(source: int, target: int, progress: Progress = _nothing) -> int:
    """Copy a regular file from its start, holes as holes, by the cheapest way that the kernel has; returns the size.

    ``target`` is empty and at its start. Raises OSError.
    """
    at = size = os.fstat(source).st_size
    for start, end in extents(source, size):
        stopped = _copy_range(source, target, start, end, progress)
        if stopped < end:
            at = stopped
            break
    os.lseek(source, at, os.SEEK_SET)
    os.lseek(target, at, os.SEEK_SET)
    while data := os.read(source, CHUNK):  # bytes that the kernel would not copy, or came meanwhile; and files of /proc, which have no size
        at += _write_all(target, data)
        progress(len(data))
    os.ftruncate(target, at)
    return at


def _copy_range(source: int, target: int, start: int, end: int, progress: Progress) -> int:
    """Returns where it stopped: ``end``, or the end of the source, or where the kernel would not go on."""
    at = _by_kernel(lambda at, count: os.copy_file_range(source, target, count, at, at), start, end, progress)
    if at < end:
        os.lseek(target, at, os.SEEK_SET)
        at = _by_kernel(lambda at, count: os.sendfile(target, source, at, count), at, end, progress)
    return at


def _by_kernel(copy: Callable[[int, int], int], at: int, end: int, progress: Progress) -> int:
    """Call ``copy(at, bytes)`` until it has copied up to ``end``, or nothing more, or this pair of files cannot be copied so."""
    try:
        while at < end and (done := copy(at, min(_KERNEL_PIECE, end - at))):
            at += done
            progress(done)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    return at


def _write_all(target: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return len(data)


# ── into the file system ───────────────────────────────────────────────────────────────────────────


def put(connection: NodeConnection, source: Source, layout: Layout, *, exclusive: bool = False, progress: Progress = _nothing) -> Attr:
    """Copy one local file. Raises OSError, with the name of the side at fault."""
    result = put_many(connection, [source], layout, exclusive=exclusive, progress=progress)[0]
    if isinstance(result, OSError):
        raise result
    return result


def put_many(
    connection: NodeConnection, sources: Sequence[Source], layout: Layout, *, exclusive: bool = False, progress: Progress = _nothing
) -> list[Attr | OSError]:
    """Copy local files, ``BATCH`` of them at a time; returns what became of each."""
    results: list[Attr | OSError] = []
    start = 0
    while start < len(sources):
        end, size = start + 1, sources[start].size
        while end < min(start + BATCH, len(sources)) and size + sources[end].size <= BATCH_BYTES:
            size += sources[end].size
            end += 1
        results += _put_batch(connection, sources[start:end], layout, exclusive, progress)
        start = end
    return results


def _put_batch(
    connection: NodeConnection, sources: Sequence[Source], layout: Layout, exclusive: bool, progress: Progress
) -> list[Attr | OSError]:
    done: dict[int, Attr | OSError] = {}
    if connection.same_host and not layout.chosen:
        done = _adopt_batch(connection, sources, layout, exclusive, progress)
    for index, source in enumerate(sources):
        if index not in done:
            try:
                done[index] = _write(connection, source, layout, exclusive, progress)
            except OSError as error:
                done[index] = error
    return [done[index] for index in range(len(sources))]


def _adopt_batch(
    connection: NodeConnection, sources: Sequence[Source], layout: Layout, exclusive: bool, progress: Progress
) -> dict[int, Attr | OSError]:
    """Copy files into the gateway's store and have them adopted. Those that are not in the answer must go the long way."""
    done: dict[int, Attr | OSError] = {}
    generation = connection.generation
    above = [source.path.rpartition(b"/")[0] or b"/" for source in sources]
    elsewhere = _striped_by_rule(connection, set(above)) if layout.kind < 0 else set()
    chosen = [index for index, source in enumerate(sources) if above[index] not in elsewhere and _has_room(connection, source.size)]
    found = connection.call_many([Call(q.Scratch(), (sources[index].path,)) for index in chosen], generation=generation)
    places = {index: os.fsencode(place) for index, place in zip(chosen, found, strict=True) if not isinstance(place, OSError)}
    try:
        filled = []
        for index, place in places.items():
            outcome = _fill(place, sources[index], progress)
            if outcome is None:
                filled.append(index)
            elif outcome.errno not in _FULL and outcome.filename != place:  # which is not seen in another mount namespace
                done[index] = outcome
        wanted = [(index, sources[index]) for index in filled]
        calls = [Call(q.Adopt(places[index], each.path, each.mode, exclusive), (each.path,)) for index, each in wanted]
        answers = connection.call_many(calls, generation=generation)
        for index, answer in zip(filled, answers, strict=True):
            if not isinstance(answer, OSError):
                del places[index]
                done[index] = answer
            elif answer.errno in _FULL or isinstance(answer, GatewayLost):
                progress(-sources[index].size)  # it is told again on the long way
            else:
                done[index] = answer
        return done
    finally:
        for place in places.values():
            _remove(place)


def _has_room(connection: NodeConnection, size: int) -> bool:
    """Whether a file of this size may go to the gateway as a whole: only asked for large ones."""
    if size <= BATCH_BYTES:
        return True
    usage = {node: (capacity, used) for node, capacity, used, *_ in connection.call(q.Df(), about=(connection.session.name,))}
    capacity, used = usage.get(connection.gateway, (0, 0))
    return not capacity or size <= capacity - used


def _striped_by_rule(connection: NodeConnection, directories: set[bytes]) -> set[bytes]:
    paths = list(directories)
    answers = connection.call_many(Call(q.GetXattrPath(path, b"user.amfs.layout"), (path,)) for path in paths)
    return {path for path, answer in zip(paths, answers, strict=True) if not isinstance(answer, OSError) and answer.startswith(b"striped")}


def _fill(place: bytes, source: Source, progress: Progress) -> OSError | None:
    """Copy a local file into a new file of the gateway's store; returns what went wrong."""
    told = 0

    def tell(count: int) -> None:
        nonlocal told
        told += count
        progress(count)

    try:
        with open(source.local, "rb", buffering=0) as file:
            target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                copy_descriptor(file.fileno(), target, tell)
                os.utime(target, ns=(source.mtime, source.mtime))
            finally:
                os.close(target)
    except OSError as error:
        progress(-told)
        if error.filename is None:
            return failure(error.errno or errno.EIO, (source.local,), error.strerror or "")
        return error
    return None


def _remove(place: bytes) -> None:
    try:
        os.unlink(place)
    except OSError:
        return


def _write(connection: NodeConnection, source: Source, layout: Layout, exclusive: bool, progress: Progress) -> Attr:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    with open(source.local, "rb", buffering=0) as file:
        about = (source.path,)
        handle, _ = connection.call(q.OpenPath(source.path, flags, source.mode, layout.kind, layout.stripe, layout.rank), about=about)
        generation = connection.generation
        out: deque[Pending] = deque()
        at = 0
        size = os.fstat(file.fileno()).st_size
        try:
            for start, end in extents(file.fileno(), size):
                at = start
                while at < end and (data := os.pread(file.fileno(), min(CHUNK, end - at), at)):
                    out.append(connection.submit(Call(q.Write(handle, at, data), about), generation))
                    at += len(data)
                    progress(len(data))
                    if len(out) >= IN_FLIGHT:
                        connection.wait(out.popleft())
            size = min(size, os.fstat(file.fileno()).st_size)
            while data := os.pread(file.fileno(), CHUNK, max(at, size)):  # bytes that came meanwhile; files of /proc, which have no size
                at = max(at, size)
                connection.wait(connection.submit(Call(q.Write(handle, at, data), about), generation))
                at += len(data)
                progress(len(data))
            while out:
                connection.wait(out.popleft())
            if at < size:  # it ends in a hole
                connection.wait(connection.submit(Call(q.Truncate(handle, size), about), generation))
            attr = Attr(*connection.wait(connection.submit(Call(q.Stat(handle), about), generation)))
            connection.wait(connection.submit(Call(q.Close(handle), about), generation))
            with contextlib.suppress(OSError):  # somebody has removed or replaced it by now
                connection.call(q.SetattrPath(source.path, META_SET_MTIME, attr._replace(mtime=source.mtime), True), about=about)
            return attr
        except BaseException as error:
            if connection.generation == generation and connection.gateway >= 0 and not connection.closed:
                connection.settle(out)
                left = [Call(q.Close(handle), about)]
                if isinstance(error, OSError):  # half of a file is none: a reader would take it for all
                    left.append(Call(q.UnlinkPath(source.path), about))
                for call in left:
                    with contextlib.suppress(OSError):
                        connection.wait(connection.submit(call, generation))
            raise


# ── out of the file system ─────────────────────────────────────────────────────────────────────────


def get(connection: NodeConnection, path: bytes, local: str, *, exclusive: bool = False, progress: Progress = _nothing) -> Attr:
    """Copy one file to a local one, which is replaced in place if it is there. Raises OSError."""
    result = get_many(connection, [(path, local)], exclusive=exclusive, progress=progress)[0]
    if isinstance(result, OSError):
        raise result
    return result


def get_many(
    connection: NodeConnection, pairs: Sequence[tuple[bytes, str]], *, exclusive: bool = False, progress: Progress = _nothing
) -> list[Attr | OSError]:
    """Copy files to local ones; returns what became of each. Each copy is compared with the digest that a node has of the file."""
    results: list[Attr | OSError] = []
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        new = [not os.path.lexists(local) for _, local in batch]
        exports: list[Any] = [None] * len(batch)
        if connection.same_host:
            exports = connection.call_many(Call(q.Export(path), (path,)) for path, _ in batch)
        copied: list[Attr | OSError] = []
        for (path, local), exported in zip(batch, exports, strict=True):
            try:
                copied.append(_get(connection, path, local, exported, exclusive, progress))
            except OSError as error:
                copied.append(error)
        results += _verified(connection, batch, new, copied, progress)
    return results


def _verified(
    connection: NodeConnection, batch: Sequence[tuple[bytes, str]], new: Sequence[bool], copied: list[Attr | OSError], progress: Progress
) -> list[Attr | OSError]:
    """Compare all copies; one that is not right is made once more, from another node if one has it."""
    done = [(at, attr.ino) for at, attr in enumerate(copied) if not isinstance(attr, OSError)]
    for (at, _), found in zip(done, digests(connection, [ino for _, ino in done]), strict=True):
        try:
            if fault_of(batch[at][1], found):
                if new[at]:
                    os.unlink(batch[at][1])  # it may be read-only
                copied[at] = _get_again(connection, *batch[at], copied[at], progress)
        except OSError as error:
            _discard(batch[at][1], new[at])
            copied[at] = error
    return copied


def _get_again(connection: NodeConnection, path: bytes, local: str, attr: Attr | OSError, progress: Progress) -> Attr:
    assert isinstance(attr, Attr)
    drop_damaged(connection, attr.ino)
    progress(-attr.size)
    [exported] = connection.call_many([Call(q.Export(path), (path,))]) if connection.same_host else [None]
    try:
        attr = _get(connection, path, local, exported, False, progress)
    except OSError as error:
        raise _named(errno.EBADMSG, path) if error.errno == errno.EIO else error from None
    [found] = digests(connection, [attr.ino])
    if fault := fault_of(local, found):
        raise _named(fault, path)
    return attr


def _named(number: int, path: bytes) -> OSError:
    return failure(number, (b"amfs:" + path,), WORDS.get(number, ""))


def _discard(local: str, new: bool) -> None:
    """The bytes written are not the file. A new one goes; one that was there (and may have other names) is left empty."""
    with contextlib.suppress(OSError):
        if new:
            os.unlink(local)
        elif os.path.isfile(local):
            os.truncate(local, 0)


def _get(connection: NodeConnection, path: bytes, local: str, exported: object, exclusive: bool, progress: Progress) -> Attr:
    if isinstance(exported, OSError) and not (exported.errno in _FULL or isinstance(exported, GatewayLost)):
        raise exported
    opened = open_exported(exported)
    if opened is None:
        return _read(connection, path, local, exclusive, progress)
    source, attr = opened
    try:
        with _Local(local, exclusive, attr) as target:
            copy_descriptor(source, target, progress)
        return attr
    finally:
        os.close(source)


class _Local:
    """A local file that is written, or not at all; errors bear its name. A new one has the mode of its original, less the umask,
    from the beginning; the time is the original's. A context manager; gives a descriptor."""

    def __init__(self, local: str, exclusive: bool, attr: Attr) -> None:
        self._local = local
        self._mtime = attr.mtime
        self._new = not os.path.lexists(local)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if exclusive else os.O_TRUNC)
        self._descriptor = os.open(local, flags, attr.mode & 0o777)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            with contextlib.suppress(OSError):  # of another user, whose mode lets us write it
                os.utime(self._descriptor, ns=(self._mtime, self._mtime))
        os.close(self._descriptor)
        if error is not None:
            _discard(self._local, self._new)
        if isinstance(error, OSError) and error.filename is None:
            raise failure(error.errno or errno.EIO, (self._local,), error.strerror or "") from None


def open_exported(exported: object) -> tuple[int, Attr] | None:
    """A descriptor of the store's file that ``export`` named; None if it is not there any more, or not what was told."""
    if exported is None or isinstance(exported, OSError):
        return None
    assert isinstance(exported, (list, tuple))
    attr = Attr(*exported[1])
    try:
        descriptor = os.open(exported[0], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or (attr.finished and facts.st_size != attr.size):
        os.close(descriptor)
        return None
    return descriptor, attr


def _read(connection: NodeConnection, path: bytes, local: str, exclusive: bool, progress: Progress) -> Attr:
    about = (path,)
    handle, fields = connection.call(q.OpenPath(path, os.O_RDONLY, 0, -1, 0, -1), about=about)
    generation = connection.generation
    out: deque[Pending] = deque()
    asked = at = 0
    try:
        with _Local(local, exclusive, Attr(*fields)) as target:
            while True:
                while len(out) < IN_FLIGHT:
                    out.append(connection.submit(Call(q.Read(handle, asked, CHUNK), about), generation))
                    asked += CHUNK
                data = connection.wait(out.popleft())
                if len(data) == CHUNK and all_zero(data):
                    at += CHUNK
                    found = connection.wait(connection.submit(Call(q.Seek(handle, at), about), generation))
                    if found > at:  # a hole
                        connection.settle(out)
                        out.clear()
                        at = asked = found
                    continue
                if data:
                    os.lseek(target, at, os.SEEK_SET)
                _write_all(target, data)
                at += len(data)
                progress(len(data))
                if len(data) < CHUNK:
                    os.ftruncate(target, at)
                    return Attr(*fields)
    finally:
        if connection.generation == generation and connection.gateway >= 0 and not connection.closed:
            connection.settle(out)
            connection.discard([connection.submit(Call(q.Close(handle), about), generation)])
