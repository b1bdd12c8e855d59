"""Copies between a node's store and storage at URLs, for the tasks of runs. I/O.

Owns the threads, and the storages of each run while it lasts. Must not know: tasks, who wants a file. The end of a copy is a completion
with its serial, as that of the copier in C.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amfs._native import check_file
from amfs.errors import AmfsError, UsageError
from amfs.host.digests import CHECKED_DAMAGED
from amfs.remote.place import RemoteError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from amfs.remote.opening import Place, Storages
    from amfs.remote.transfers import Transfers

THREADS = 16
_PIECE = 4 << 20

Completion = tuple[int, str, int, int]  # serial, error, size, errno of it


class _Storages:
    """Those of one run. Each is opened once, and has as many threads as its library allows."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._lock = threading.Lock()
        self._opened: dict[int, tuple[Transfers, ThreadPoolExecutor]] = {}
        self._closed = False

    def at(self, url: str) -> tuple[Place, Transfers, ThreadPoolExecutor]:
        """Raises AmfsError. May take as long as a login."""
        from concurrent.futures import ThreadPoolExecutor

        from amfs.remote.transfers import Transfers

        with self._lock:
            if self._closed:
                raise UsageError(f"{url}: its run has ended")
            place = self._storages.place(url)
            opened = self._opened.get(id(place.remote))
            if opened is None:
                together = min(THREADS, place.remote.at_once)
                opened = self._opened[id(place.remote)] = Transfers(together), ThreadPoolExecutor(together, "amfs-urls")
            return place, *opened

    def close(self, wait: bool) -> None:
        """Leave what has not begun."""
        with self._lock:
            self._closed = True
            for _, pool in self._opened.values():
                pool.shutdown(wait=wait, cancel_futures=True)


class UrlCopier:
    """Nothing is started before a run says how its storage is reached."""

    def __init__(self) -> None:
        self.fd = -1
        self._runs: dict[str, _Storages] = {}
        self._opener: ThreadPoolExecutor | None = None
        self._done: list[Completion] = []
        self._lock = threading.Lock()

    def open(self, scope: str, packed: bytes) -> None:
        """A run begins."""
        from concurrent.futures import ThreadPoolExecutor  # few runs meet a URL

        from amfs.remote import settings
        from amfs.remote.opening import Storages

        if self.fd < 0:
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._opener = ThreadPoolExecutor(1, "amfs-urls-opener")
        self._runs[scope] = _Storages(Storages(settings.unpack(packed)))

    def close(self, scope: str) -> None:
        """A run has ended."""
        if (run := self._runs.pop(scope, None)) is not None:
            run.close(wait=False)

    def fetch(self, serial: int, scope: str, url: str, into: str) -> None:
        """Begin to copy an object into the store."""
        self._begin(serial, scope, url, lambda place: _fetch(place, into))

    def store(self, serial: int, scope: str, source: str, url: str) -> None:
        """Begin to copy a file of the store to where it is seen when it is whole."""
        self._begin(serial, scope, url, lambda place: _store(place, source))

    def completions(self) -> list[Completion]:
        """What has ended since the last call. Never blocks."""
        if self.fd < 0:
            return []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        with self._lock:
            done, self._done = self._done, []
        return done

    def stop(self) -> None:
        """Wait for what is under way, and leave the rest. Repeatable."""
        if self._opener is not None:
            self._opener.shutdown(wait=True, cancel_futures=True)
            self._opener = None
            for run in self._runs.values():
                run.close(wait=True)
            os.close(self.fd)
            self.fd = -1

    def _begin(self, serial: int, scope: str, url: str, copy: Callable[[Place], int]) -> None:
        run = self._runs.get(scope)
        if run is None or self._opener is None:
            self._ended(serial, url, OSError(errno.EIO, "this node was not told how to reach it"))
            return

        def open_and_copy() -> None:
            try:
                place, transfers, pool = run.at(url)
                pool.submit(work, place, transfers)
            except Exception as error:  # the run has ended meanwhile, or a library's: whoever waits must hear of it
                self._ended(serial, url, error)

        def work(place: Place, transfers: Transfers) -> None:
            try:
                self._ended(serial, url, transfers.patiently(lambda: copy(place)))
            except Exception as error:
                self._ended(serial, url, error)

        self._opener.submit(open_and_copy)

    def _ended(self, serial: int, url: str, result: int | Exception) -> None:
        """In any thread."""
        done: Completion
        if isinstance(result, int):
            done = serial, "", result, 0
        elif isinstance(result, OSError):
            where = result.filename if isinstance(result, RemoteError) else url
            done = serial, f"{where}: {result.strerror or result}", 0, result.errno or errno.EIO
        else:
            words = str(result) if isinstance(result, AmfsError) else f"{url}: {type(result).__name__}: {result}"
            done = serial, words, 0, errno.EIO
        with self._lock:
            self._done.append(done)
        with contextlib.suppress(OSError):  # the node ends
            os.eventfd_write(self.fd, 1)


def _fetch(place: Place, into: str) -> int:
    remote, key = place
    found = remote.stat(key)
    temporary = f"{into}.amfs-part-url"
    os.makedirs(os.path.dirname(into), exist_ok=True)
    try:
        with open(temporary, "wb", buffering=0) as file:
            for piece in remote.read(found):
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            os.fchmod(file.fileno(), 0o444)
            if found.mtime:
                os.utime(file.fileno(), ns=(found.mtime, found.mtime))
        os.rename(temporary, into)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return found.size


def _store(place: Place, source: str) -> int:
    remote, key = place
    with open(source, "rb", buffering=0) as file:
        if check_file(file.fileno()) == CHECKED_DAMAGED:
            raise OSError(errno.EBADMSG, "its content is damaged")
        size = os.fstat(file.fileno()).st_size

        def pieces() -> Iterator[bytes]:
            while data := file.read(max(size, 1) if size <= remote.whole_max else _PIECE):
                yield data

        made = remote.write(key, pieces())
    if made.size != size:
        raise OSError(errno.EIO, f"{made.size} bytes arrived of {size}")
    return size
