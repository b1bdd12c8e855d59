"""Copies between a node's store and storage at URLs, for the tasks of runs. I/O.

Owns the tasks' side; ``url_threads`` has the threads. Must not know: tasks, who wants a file. The end of a copy is a completion
with its serial, as that of the copier in C.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from amfs._native import check_file
from amfs.errors import AmfsError
from amfs.host.digests import CHECKED_DAMAGED
from amfs.host.trees import remove_tree
from amfs.node.url_threads import UrlThreads
from amfs.remote.place import Found, Kind, RemoteError

if TYPE_CHECKING:
    from amfs.remote.opening import Place
    from amfs.remote.place import Remote
    from amfs.vocabulary.object_versions import ObjectVersion

_PIECE = 4 << 20
_CHANGED = "has changed since the run looked at it; --resume reads what is there now"


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
        self._trees: dict[str, set[str]] = {}  # directories that were brought, or made by tasks, by scope
        self._open: set[str] = set()  # scopes

    def open(self, scope: str, packed: bytes) -> None:
        """A run begins."""
        if self.fd < 0:
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open.add(scope)
        self._threads.open(scope, packed)

    def close(self, scope: str) -> None:
        """A run has ended."""
        self._open.discard(scope)
        with self._lock:
            self._trees.pop(scope, None)
        self._threads.close(scope)

    def fetch(self, serial: int, scope: str, url: str, into: str, listing: int = 0, version: ObjectVersion | None = None) -> None:
        """Begin to copy an object into the store, or a directory with all that is in it. ``listing``: it is one that a task has made.
        ``version``: the one that the run saw there, and wants to read."""
        self._begin(serial, scope, url, lambda place: self._fetch(place, scope, into, listing, version))

    def store(self, serial: int, scope: str, source: str, url: str) -> None:
        """Begin to copy a file of the store to where it is seen when it is whole; of a directory each file so."""
        self._begin(serial, scope, url, lambda place: (self._store(place, scope, source), False))

    def completions(self) -> list[Completion]:
        """Copies that have ended since the last call. Never blocks."""
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

    def _fetch(self, place: Place, scope: str, into: str, listing: int, version: ObjectVersion | None) -> tuple[int, bool]:
        """Its size, and whether it is a directory."""
        from amfs.remote import trees  # few runs meet a URL

        again: Callable[[Place], trees.Tree] | None = (lambda place: trees.made(place, listing)) if listing else trees.tree
        if listing:
            found: Found | trees.Tree = trees.made(place, listing)
        elif version is None or not place.remote.conditional:
            found, version = trees.look(place), None
        elif not version.directory:
            found = Found(place.key, version.size, version.identity, version.mtime)
        else:
            found, again = trees.tree(place), None
            if found.identity != version.identity:
                raise OSError(errno.ESTALE, _CHANGED)
        temporary = f"{into}.amfs-part-url"
        with self._lock:  # a list that grows may name a directory and, later, files in it: nothing is put into one that tasks read
            known = self._trees.setdefault(scope, set())
            if any(into.startswith(f"{tree}/") for tree in known):
                raise OSError(errno.EEXIST, "lies in a directory that is an input, too; give one of them another name by '#amfs path'")
            os.makedirs(os.path.dirname(into), exist_ok=True)
            if not isinstance(found, Found):
                known.add(into)
        if isinstance(found, Found):
            try:
                _fetch_object(place, found, into, temporary)
            except RemoteError as error:
                if error.kind is Kind.CHANGED and version is not None:
                    raise OSError(errno.ESTALE, _CHANGED) from None
                raise
            return found.size, False
        remove_tree(temporary)  # of a try before
        try:
            os.mkdir(temporary, 0o755)
            trees.fetch(place, found, temporary, lambda one, path: _fetch_object(place, one, path, f"{path}.amfs-part-url"), again)
            os.chmod(temporary, stat.S_ISVTX | 0o755)  # it is whole: see csrc/launcher/sandbox.c
            if os.path.isdir(into):  # made for a file below it
                raise OSError(errno.EEXIST, "another input lies in this directory; give one of them another name by '#amfs path'")
            os.rename(temporary, into)
        except BaseException:
            remove_tree(temporary)
            raise
        return found.size, True

    def _store(self, place: Place, scope: str, source: str) -> int:
        """Its size."""
        if not os.path.isdir(source):
            if place.key.endswith("/"):
                raise OSError(errno.ENOTDIR, "it names a directory, and the task has made a file")
            return _store_object(place.remote, source, place.key).size
        from amfs.remote import trees

        def stored(path: str, key: str) -> Found:
            if scope not in self._open:
                raise OSError(errno.ECANCELED, "the run has ended")
            return _store_object(place.remote, path, key)

        with self._lock:
            self._trees.setdefault(scope, set()).add(source)
        return trees.publish(place, source, stored)

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


def _store_object(remote: Remote, source: str, key: str) -> Found:
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
    return made
