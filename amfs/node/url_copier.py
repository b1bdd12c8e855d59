"""Copies between a node's store and storage at URLs, for the tasks of runs. I/O.

Owns the tasks' side; ``url_threads`` has the threads. Must not know: tasks, who wants a file. The end of a copy is a completion
with its serial, as that of the copier in C.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from amfs._native import check_file
from amfs.errors import AmfsError
from amfs.host.digests import CHECKED_DAMAGED
from amfs.host.trees import remove_tree
from amfs.node.url_threads import UrlThreads
from amfs.remote.place import Found, RemoteError

if TYPE_CHECKING:
    from amfs.remote.opening import Place

_PIECE = 4 << 20


class Completion(NamedTuple):
    serial: int
    error: str
    size: int
    code: int  # errno of the error
    directory: bool = False


class UrlCopier:
    """Nothing is started before a run says how its storage is reached."""

    def __init__(self) -> None:
        self.fd = -1
        self._threads = UrlThreads()
        self._done: list[Completion] = []
        self._lock = threading.Lock()
        self._trees: dict[str, set[str]] = {}  # directories that were brought, by scope

    def open(self, scope: str, packed: bytes) -> None:
        """A run begins."""
        if self.fd < 0:
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads.open(scope, packed)

    def close(self, scope: str) -> None:
        """A run has ended."""
        with self._lock:
            self._trees.pop(scope, None)
        self._threads.close(scope)

    def fetch(self, serial: int, scope: str, url: str, into: str) -> None:
        """Begin to copy an object into the store, or a directory with all that is in it."""
        self._begin(serial, scope, url, lambda place: self._fetch(place, scope, into))

    def store(self, serial: int, scope: str, source: str, url: str) -> None:
        """Begin to copy a file of the store to where it is seen when it is whole."""
        self._begin(serial, scope, url, lambda place: (_store(place, source), False))

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
        self._threads.stop()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _fetch(self, place: Place, scope: str, into: str) -> tuple[int, bool]:
        """Its size, and whether it is a directory."""
        from amfs.remote import trees  # few runs meet a URL

        found = trees.look(place)
        temporary = f"{into}.amfs-part-url"
        with self._lock:  # a list that grows may name a directory and, later, what lies in it: nothing is put into one that tasks read
            known = self._trees.setdefault(scope, set())
            if any(into.startswith(f"{tree}/") for tree in known):
                raise OSError(errno.EEXIST, "lies in a directory that is an input, too; give one of them another name by '#amfs path'")
            os.makedirs(os.path.dirname(into), exist_ok=True)
            if not isinstance(found, Found):
                known.add(into)
        if isinstance(found, Found):
            _fetch_object(place, found, into, temporary)
            return found.size, False
        remove_tree(temporary)  # of a try before
        try:
            os.mkdir(temporary, 0o755)
            trees.fetch(place, found, temporary, lambda one, path: _fetch_object(place, one, path, f"{path}.amfs-part-url"))
            if os.path.isdir(into):  # made for a file below it
                raise OSError(errno.EEXIST, "another input lies in this directory; give one of them another name by '#amfs path'")
            os.rename(temporary, into)
        except BaseException:
            remove_tree(temporary)
            raise
        return found.size, True

    def _begin(self, serial: int, scope: str, url: str, copy: Callable[[Place], tuple[int, bool]]) -> None:
        self._threads.begin(scope, url, copy, lambda result: self._ended(serial, url, result))

    def _ended(self, serial: int, url: str, result: tuple[int, bool] | BaseException) -> None:
        """In any thread."""
        if isinstance(result, tuple):
            done = Completion(serial, "", result[0], 0, result[1])
        elif isinstance(result, OSError):
            where = result.filename if isinstance(result, RemoteError) else url
            done = Completion(serial, f"{where}: {result.strerror or result}", 0, result.errno or errno.EIO)
        else:
            words = str(result) if isinstance(result, AmfsError) else f"{url}: {type(result).__name__}: {result}"
            done = Completion(serial, words, 0, errno.EIO)
        with self._lock:
            self._done.append(done)
        with contextlib.suppress(OSError):  # the node ends
            os.eventfd_write(self.fd, 1)


def _fetch_object(place: Place, found: Found, into: str, temporary: str) -> None:
    try:
        with open(temporary, "w+b", buffering=0) as file:
            place.remote.fetch(found, file.fileno(), lambda count: None)
            os.fchmod(file.fileno(), 0o444)
            if found.mtime:
                os.utime(file.fileno(), ns=(found.mtime, found.mtime))
        os.rename(temporary, into)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _store(place: Place, source: str) -> int:
    remote, key = place
    with open(source, "rb", buffering=0) as file:
        if check_file(file.fileno()) == CHECKED_DAMAGED:
            raise OSError(errno.EBADMSG, "its content is damaged")
        size = os.fstat(file.fileno()).st_size

        def pieces() -> Iterator[bytes]:
            while data := file.read(max(size, 1) if size <= remote.whole_max else _PIECE):
                yield data

        made = remote.write(key, pieces(), size)
    if made.size != size:
        raise OSError(errno.EIO, f"{made.size} bytes arrived of {size}")
    return size
