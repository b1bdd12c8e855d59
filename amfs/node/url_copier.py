"""Copies between a node's store and storage at URLs, for the tasks of runs. I/O.

Owns the threads, and the settings of each run while it lasts. Must not know: tasks, who wants a file. The end of a copy is a completion
with its serial, as that of the copier in C.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amfs.errors import AmfsError
from amfs.remote.place import RemoteError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from amfs.remote.opening import Storages
    from amfs.remote.transfers import Transfers

THREADS = 16
_PIECE = 4 << 20

Completion = tuple[int, str, int, int]  # serial, error, size, errno of it


class UrlCopier:
    """Nothing is started before a run says how its storage is reached."""

    def __init__(self) -> None:
        self.fd = -1
        self._runs: dict[str, tuple[Storages, Transfers]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._done: list[Completion] = []
        self._lock = threading.Lock()

    def open(self, scope: str, packed: bytes) -> None:
        """A run begins."""
        from concurrent.futures import ThreadPoolExecutor  # few runs meet a URL

        from amfs.remote import settings
        from amfs.remote.opening import Storages
        from amfs.remote.transfers import Transfers

        if self.fd < 0:
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._pool = ThreadPoolExecutor(THREADS, "amfs-urls")
        self._runs[scope] = Storages(settings.unpack(packed)), Transfers(THREADS)

    def close(self, scope: str) -> None:
        """A run has ended."""
        self._runs.pop(scope, None)

    def fetch(self, serial: int, scope: str, url: str, into: str) -> None:
        """Begin to copy an object into the store."""
        self._begin(serial, scope, url, lambda storages: _fetch(storages, url, into))

    def store(self, serial: int, scope: str, source: str, url: str) -> None:
        """Begin to copy a file of the store to where it is seen when it is whole."""
        self._begin(serial, scope, url, lambda storages: _store(storages, source, url))

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
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            os.close(self.fd)
            self.fd = -1

    def _begin(self, serial: int, scope: str, url: str, copy: Callable[[Storages], int]) -> None:
        if scope not in self._runs or self._pool is None:
            with self._lock:
                self._done.append((serial, f"{url}: this node was not told how to reach it", 0, errno.EIO))
            return
        storages, transfers = self._runs[scope]

        def work() -> None:
            try:
                done: Completion = (serial, "", transfers.patiently(lambda: copy(storages)), 0)
            except OSError as error:
                where = error.filename if isinstance(error, RemoteError) else url
                done = serial, f"{where}: {error.strerror or error}", 0, error.errno or errno.EIO
            except AmfsError as error:
                done = serial, str(error), 0, errno.EIO
            except Exception as error:  # a library's: this thread must say that it has ended
                done = serial, f"{url}: {type(error).__name__}: {error}", 0, errno.EIO
            with self._lock:
                self._done.append(done)
            with contextlib.suppress(OSError):  # the node ends
                os.eventfd_write(self.fd, 1)

        self._pool.submit(work)


def _fetch(storages: Storages, url: str, into: str) -> int:
    remote, key = storages.place(url)
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


def _store(storages: Storages, source: str, url: str) -> int:
    remote, key = storages.place(url)
    with open(source, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size

        def pieces() -> Iterator[bytes]:
            while data := file.read(max(size, 1) if size <= remote.whole_max else _PIECE):
                yield data

        made = remote.write(key, pieces())
    if made.size != size:
        raise OSError(errno.EIO, f"{made.size} bytes arrived of {size}")
    return size
