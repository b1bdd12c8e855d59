"""Keys and values over the session's file system: ``put``, ``get``, ``delete``, ``exists``. Used by ``amfs.client.files``.

A key is any bytes or text. Its value is a file below ``/.kv``, so mounts and commands see it: the key with each byte outside
``A-Z a-z 0-9 . _ - + = , @`` written as ``%XX``, a dot at the front, too; every 240 characters a directory whose name ends in ``%+``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from amfs.client.connection import NodeConnection
from amfs.client.paths import join
from amfs.client.tree import walk

ROOT = b"/.kv"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-+=,@")
_PIECE = 240
_MORE = b"%+"
_TEMPORARY = b"%~"  # no key begins so
KEY_MAX = 4096
_TRIES = 2  # again, for what seems not to be there


def path_of(key: str | bytes) -> bytes:
    """Where the value of ``key`` lies. Raises ValueError for an empty or too long key."""
    raw = os.fsencode(key)
    if not 0 < len(raw) <= KEY_MAX:
        raise ValueError(f"a key has 1 to {KEY_MAX} bytes, not {len(raw)}")
    coded = b"".join(bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in raw)
    pieces = []
    while True:
        if coded.startswith(b"."):
            coded = b"%2E" + coded[1:]  # neither hidden nor one of the two names that mean a directory
        if len(coded) <= _PIECE:
            break
        # Not between a % and its digits, or the name would be another key's.
        cut = next(at for at in (_PIECE, _PIECE - 1, _PIECE - 2) if b"%" not in coded[at - 2 : at])
        pieces.append(coded[:cut] + _MORE)
        coded = coded[cut:]
    return b"/".join([ROOT, *pieces, coded])


def key_of(path: bytes) -> bytes:
    """The key whose value lies at ``path``."""
    coded = b"".join(piece.removesuffix(_MORE) for piece in path.removeprefix(ROOT + b"/").split(b"/"))
    first, *others = coded.split(b"%")
    return first + b"".join(bytes((int(other[:2], 16),)) + other[2:] for other in others)


class Files(Protocol):
    """The calls of ``amfs.client.files.Files`` that values need."""

    connection: NodeConnection

    @property
    def client(self) -> int: ...
    def isfile(self, path: bytes) -> bool: ...
    def makedirs(self, path: bytes, mode: int = ..., exist_ok: bool = ...) -> None: ...
    def read_many(self, paths: Sequence[bytes]) -> list[bytes | OSError]: ...
    def unlink(self, path: bytes) -> None: ...
    def write_atomic(
        self, path: bytes, data: bytes | bytearray | memoryview, *, temporary: bytes | None = ..., mode: int = ...
    ) -> None: ...


class KeyValue:
    """The keys of one session. Every value is there as a whole or not at all, also for who reads while it is replaced."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._count = 0

    def put(self, key: str | bytes, value: bytes | bytearray | memoryview) -> None:
        """Set ``key`` to ``value``, whatever it was."""
        path = path_of(key)
        self._count += 1
        temporary = join(ROOT, b"%s%x-%d" % (_TEMPORARY, self._files.client, self._count))
        try:
            self._files.write_atomic(path, value, temporary=temporary, mode=0o600)
        except FileNotFoundError:
            self._files.makedirs(path.rpartition(b"/")[0], 0o700, exist_ok=True)
            self._files.write_atomic(path, value, temporary=temporary, mode=0o600)

    def get(self, key: str | bytes) -> bytes:
        """The value. Raises KeyError."""
        (value,) = self.get_many([key])
        if value is None:
            raise KeyError(key)
        return value

    def delete(self, key: str | bytes) -> None:
        """Forget the key. Raises KeyError if there is none."""
        try:
            self._files.unlink(path_of(key))
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(key) from None

    def exists(self, key: str | bytes) -> bool:
        """Is there such a key?"""
        return self._files.isfile(path_of(key))

    def keys(self) -> Iterator[bytes]:
        """All keys, in no particular order."""

        def tell(error: OSError) -> None:
            if error.errno != errno.ENOENT:
                raise error

        for _, entries in walk(self._files.connection, ROOT, tell):
            for entry in entries:
                if entry.is_file() and not entry.name.startswith(_TEMPORARY):
                    yield key_of(entry.path)

    def get_many(self, keys: Iterable[str | bytes]) -> list[bytes | None]:
        """The values of many keys, None for those that there are not, in much less time than one by one. Raises OSError."""
        paths = [path_of(key) for key in keys]
        values = self._files.read_many(paths)
        for _ in range(_TRIES):
            missing = [at for at, value in enumerate(values) if isinstance(value, FileNotFoundError)]
            if not missing:
                break
            # A value that is being replaced may be gone between its name and its content.
            for at, value in zip(missing, self._files.read_many([paths[at] for at in missing]), strict=True):
                values[at] = value
        found: list[bytes | None] = []
        for value in values:
            if isinstance(value, OSError) and not isinstance(value, (FileNotFoundError, NotADirectoryError)):
                raise value
            found.append(None if isinstance(value, OSError) else value)
        return found
