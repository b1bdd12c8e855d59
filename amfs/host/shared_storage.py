"""Shared storage: where a workflow's inputs come from and its final outputs go. Paths that all nodes see, for now.

``SharedStorage`` is all that amfs asks of it; the engine knows paths as strings only. Owns every look at such paths. Must not know: runs,
tasks, the store. Calls may take long on a busy file system: none of them belongs into a poll loop, but for ``fetch`` and ``store``, which
only start a copy. Paths are absolute.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple, Protocol

#: Fewer names than this in one directory are looked at one by one; for more the directory is listed once. On a shared file system a
#: listing costs about as much as some dozens of single looks, and a directory may hold far more than the names in question.
_LIST_FROM = 32
CHECKED = 1 << 30  # for the copier, with a mode: the copy is read back and compared with the digest of its source


class Facts(NamedTuple):
    """Facts about a file."""

    size: int
    rights: int
    directory: bool
    mtime_ns: int


class Copier(Protocol):
    """The threads of a node that copy (``_native.Copier``): the end of a copy is a completion with its ``serial``."""

    def copy(self, serial: int, source: str, destination: str, mode: int, /) -> None: ...


class SharedStorage(Protocol):
    """A place for files that outlives the nodes."""

    def stat(self, path: str) -> Facts:
        """Raises OSError."""

    def list(self, directory: str) -> dict[str, bool]:
        """The names in a directory, each with whether it may lead nowhere (a symbolic link). Raises OSError."""

    def read(self, path: str) -> bytes:
        """A small file, whole. Raises OSError."""

    def unwritable(self, directory: str) -> str:
        """Why no file can be made in this directory, in words; '' if it can, or will be when the directory is made."""

    def fetch(self, copier: Copier, serial: int, path: str, into: str) -> None:
        """Begin to copy ``path`` to the local path ``into``, readable and not writable. Raises OSError if it is not there."""

    def store(self, copier: Copier, serial: int, source: str, path: str, rights: int) -> None:
        """Begin to copy the local file ``source`` to ``path``, whole or not at all; directories are made as needed."""


class LocalPaths:
    """Shared storage that is mounted at the same place on every node. Copies are made in C."""

    def stat(self, path: str) -> Facts:
        found = os.stat(path)
        return Facts(found.st_size, stat.S_IMODE(found.st_mode), stat.S_ISDIR(found.st_mode), found.st_mtime_ns)

    def list(self, directory: str) -> dict[str, bool]:
        with os.scandir(directory) as entries:
            return {entry.name: entry.is_symlink() for entry in entries}

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def unwritable(self, directory: str) -> str:
        path = directory
        while True:
            try:
                facts = self.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                parent = os.path.dirname(path)
                if parent == path:
                    return f"{path} does not exist"
                path = parent
                continue
            except OSError as error:
                return f"{path}: {error.strerror}"
            if not facts.directory:
                return f"{path} is not a directory"
            return "" if os.access(path, os.W_OK | os.X_OK) else f"directory {path} is not writable"

    def fetch(self, copier: Copier, serial: int, path: str, into: str) -> None:
        copier.copy(serial, path, into, self.stat(path).rights & 0o555 | 0o400)

    def store(self, copier: Copier, serial: int, source: str, path: str, rights: int) -> None:
        copier.copy(serial, source, path, rights | CHECKED)


def size_of(storage: SharedStorage, path: str) -> int:
    """The size of a file, -1 if there is none."""
    try:
        return storage.stat(path).size
    except OSError:
        return -1


#: In what a file system may count times, in ns.
_TICKS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)


def size_as_left(storage: SharedStorage, path: str, mtime_ns: int) -> int:
    """The size of a file, -1 if there is none or somebody has changed it since it had this time (0: not known)."""
    try:
        found = storage.stat(path)
    except OSError:
        return -1
    return found.size if not mtime_ns or any(found.mtime_ns == mtime_ns // tick * tick for tick in _TICKS) else -1


def exists(storage: SharedStorage, path: str) -> bool:
    try:
        storage.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL character in its name
        return False
    return True


def missing(storage: SharedStorage, directory: str, names: Sequence[str]) -> set[str]:
    """Those of the names in one directory that are not there."""
    if len(names) >= _LIST_FROM:
        try:
            present = storage.list(directory)
        except OSError:
            pass  # it cannot be listed; its files may be there all the same
        else:
            return {name for name in names if name not in present or (present[name] and not _in(storage, directory, name))}
    return {name for name in names if not _in(storage, directory, name)}


def _in(storage: SharedStorage, directory: str, name: str) -> bool:
    return exists(storage, os.path.join(directory, name))
