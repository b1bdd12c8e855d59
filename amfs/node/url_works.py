"""Works of the file system that move whole files between this node and storage at URLs. I/O.

Owns how an object becomes a scratch file and an open file an object, and how many bytes each move has moved. Must not know: why.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from hashlib import md5
from typing import TYPE_CHECKING, Any, TypeVar

from amfs._native import digest, digest_of_content, write_new
from amfs.errors import AmfsError
from amfs.host.digests import Digest
from amfs.host.extents import Handle
from amfs.node.url_threads import UrlThreads
from amfs.remote.place import Found, Kind, RemoteError
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import Facts, Opened
from amfs.vocabulary.url_moves import GONE, Secret, UrlEnd, UrlFile

if TYPE_CHECKING:
    from amfs.remote.opening import Place

log = logging.getLogger("amfs.urls")

_PIECE = 8 << 20

T = TypeVar("T")
Reading = Callable[[int, Opened, Callable[[Handle | None], UrlEnd]], UrlEnd]


class UrlWorks:
    """``finish``: (serial, errno, value) of a work that has ended. ``reading``: calls with a file open, None if it lies here as a whole;
    ``path``: where that is. ``check``: raises EBADMSG if the content here is damaged. ``known``: by what digest this node knows what lies
    here. ``scratch``: the path of a new scratch file."""

    def __init__(
        self,
        finish: Callable[[int, int, Any], None],
        reading: Reading,
        path: Callable[[int], str],
        check: Callable[[int, Opened], None],
        known: Callable[[int], bytes],
        scratch: Callable[[], str],
    ) -> None:
        self._finish = finish
        self._reading = reading
        self._path = path
        self._check = check
        self._known = known
        self._scratch = scratch
        self._threads = UrlThreads()
        self._moved: dict[str, int] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def at_once(self) -> tuple[w.WorkHandler, ...]:
        """The works that never wait."""
        return (
            w.OpenStorages.by(lambda o: self._open(o.move, o.storage)), w.CloseStorages.by(lambda o: self._close(o.move)),
            w.CountMoved.by(lambda o: self._moved.get(o.move, 0)),
        )  # fmt: skip

    def long(self) -> dict[type, Callable[[int, Any], None]]:
        """The works that a thread does."""
        return {w.FetchUrl: self._fetch, w.ReadUrl: self._read, w.StoreUrl: self._store}

    def stop(self) -> None:
        self._threads.stop()

    def _open(self, move: str, storage: Secret) -> None:
        self._moved[move] = 0
        self._sources[move] = storage.sources
        self._threads.open(move, storage.packed)

    def _close(self, move: str) -> None:
        with self._lock:
            self._moved.pop(move, None)
        self._sources.pop(move, None)
        self._threads.close(move)

    def _begin(self, serial: int, move: str, file: UrlFile, act: Callable[[Place], T], failed: Callable[[UrlEnd], T]) -> None:
        """``failed``: gives the result of the work if the storage has told a fault."""
        source = self._sources[move][file.source] if move in self._sources else ""

        def ended(result: T | BaseException) -> None:
            if not isinstance(result, BaseException):
                self._finish(serial, 0, result)
            elif isinstance(result, OSError) and not isinstance(result, RemoteError):
                self._finish(serial, result.errno or errno.EIO, None)
            else:
                self._finish(serial, 0, failed(_end_of(file, source, result)))

        self._threads.begin(move, source, act, ended)

    def _told(self, move: str) -> Callable[[int], None]:
        def told(count: int) -> None:
            with self._lock:
                if move not in self._moved:
                    raise OSError(errno.ECANCELED, "whoever wanted it has ended")
                self._moved[move] += count

        return told

    # ── in ─────────────────────────────────────────────────────────────────────────────────────────

    def _fetch(self, serial: int, order: w.FetchUrl) -> None:
        def fetch(place: Place) -> w.FetchedUrl:
            file, scratch = order.file, self._scratch()
            if file.size <= place.remote.small_max:
                return self._fetched_small(place, order, scratch)
            descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                place.remote.fetch(_seen(file), descriptor, self._told(order.move))
                taken = digest(descriptor)[0] if order.digest else b""  # ``fetch`` does not move the descriptor's position
                if file.mtime:
                    os.utime(descriptor, ns=(file.mtime, file.mtime))
                found = os.fstat(descriptor)
            except BaseException:
                os.unlink(scratch)
                raise
            finally:
                os.close(descriptor)
            facts = Facts(found.st_size, found.st_blocks, found.st_atime_ns, found.st_mtime_ns)
            return w.FetchedUrl(UrlEnd(file.number, file.size, digest=taken), os.fsencode(scratch), facts)

        self._begin(serial, order.move, order.file, fetch, lambda end: w.FetchedUrl(end, b"", None))

    def _fetched_small(self, place: Place, order: w.FetchUrl, scratch: str) -> w.FetchedUrl:
        file, path = order.file, os.fsencode(scratch)
        content = place.remote.get(_seen(file))
        self._told(order.move)(file.size)
        taken = b""
        if order.digest:
            both = Digest()
            both.add(content)
            taken = both.value()
        return w.FetchedUrl(UrlEnd(file.number, file.size, digest=taken), path, Facts(*write_new(path, content, file.mtime)))

    def _read(self, serial: int, order: w.ReadUrl) -> None:
        def read(place: Place) -> UrlEnd:
            size, taken = self._digest_of(place, _seen(order.file), order.move)
            return UrlEnd(order.file.number, size, digest=taken)

        self._begin(serial, order.move, order.file, read, _itself)

    def _digest_of(self, place: Place, found: Found, move: str) -> tuple[int, bytes]:
        told = self._told(move)
        taken = Digest()
        for piece in place.remote.read(found):
            taken.add(piece)
            told(len(piece))
        return taken.size, taken.value()

    # ── out ────────────────────────────────────────────────────────────────────────────────────────

    def _store(self, serial: int, order: w.StoreUrl) -> None:
        def store(place: Place) -> UrlEnd:
            put = self._store_open if order.digest else self._store_small
            return self._reading(order.file.ino, order.opened, lambda handle: put(place, order, handle))

        self._begin(serial, order.move, order.file, store, _itself)

    def _store_small(self, place: Place, order: w.StoreUrl, handle: Handle | None) -> UrlEnd:
        """Read the file once, and send it if it has the digest by which this node knows it."""
        ino, size = order.file.ino, order.size
        known = self._known(ino) if handle is None and size <= place.remote.whole_max else b""
        if not known:
            raise OSError(errno.ENODATA, "its digest is to be taken")
        descriptor = os.open(self._path(ino), os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.pread(descriptor, size + 1, 0)
        finally:
            os.close(descriptor)
        if len(content) != size or digest_of_content(content) != known:
            self._check(ino, order.opened)
            raise OSError(errno.EILSEQ, "its digest differs")
        self._told(order.move)(size)
        place.remote.write(order.file.key, (content,), size)
        return UrlEnd(order.file.number, size)

    def _store_open(self, place: Place, order: w.StoreUrl, handle: Handle | None) -> UrlEnd:
        end = UrlEnd(order.file.number, order.size)
        with contextlib.ExitStack() as stack:
            descriptor = -1
            if handle is None:
                descriptor = os.open(self._path(order.file.ino), os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
            if order.file.size == order.size and self._is_there(place, order, handle, descriptor):
                return end._replace(same=True)
            told = self._told(order.move)
            place.remote.write(order.file.key, self._pieces(order, handle, descriptor, place.remote.whole_max, told), order.size)
        return end

    def _pieces(
        self, order: w.StoreUrl, handle: Handle | None, descriptor: int, whole_max: int, told: Callable[[int], None]
    ) -> Iterator[bytes]:
        """The file. The last piece comes when all that was read is known to be right: EILSEQ, EBADMSG."""
        taken = Digest()
        piece = max(order.size, 1) if order.size <= whole_max else _PIECE
        held, at = b"", 0
        while data := handle.read(piece, at) if handle is not None else os.pread(descriptor, piece, at):
            if held:
                told(len(held))
                yield held
            if handle is not None:
                taken.add(data)
            held, at = data, at + len(data)
        found = (taken.value(), taken.size) if handle is not None else _digest_at(descriptor)
        if found != (order.digest, order.size):
            self._check(order.file.ino, order.opened)
            raise OSError(errno.EILSEQ, "its digest differs")
        told(len(held))
        yield held

    def _is_there(self, place: Place, order: w.StoreUrl, handle: Handle | None, descriptor: int) -> bool:
        """Has the object that is there the same content?"""
        old = _seen(order.file)
        sum = old.identity.strip('"')
        if len(sum) == 32 and old.size <= place.remote.whole_max:  # as object stores say of what came in one piece
            content = b"".join(self._pieces(order, handle, descriptor, order.size, lambda count: None))
            return md5(content, usedforsecurity=False).hexdigest() == sum
        try:
            return self._digest_of(place, old, order.move) == (order.size, order.digest)
        except RemoteError as error:
            if error.kind in (Kind.CHANGED, Kind.MISSING):  # a dump that was killed may end what it had begun
                return False
            raise


def _itself(end: UrlEnd) -> UrlEnd:
    return end


def _seen(file: UrlFile) -> Found:
    return Found(file.key, file.size, file.identity, file.mtime)


def _digest_at(descriptor: int) -> tuple[bytes, int]:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return digest(descriptor)


def _end_of(file: UrlFile, source: str, error: BaseException) -> UrlEnd:
    """A fault that the storage, or its library, has told."""
    from amfs.remote.transfers import GoneError

    if isinstance(error, RemoteError):
        if isinstance(error, GoneError):
            return UrlEnd(file.number, kind=GONE, words=error.kind.value)
        return UrlEnd(file.number, kind=error.kind.name, words=error.strerror or error.kind.value)
    if isinstance(error, AmfsError):
        return UrlEnd(file.number, kind=Kind.OTHER.name, words=str(error).removeprefix(f"{source}: "))
    log.error("%s", file.key, exc_info=error)
    return UrlEnd(file.number, kind=Kind.OTHER.name, words=f"{type(error).__name__}: {error}")
