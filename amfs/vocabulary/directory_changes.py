"""Changes of directories that every node makes by itself, as the bytes that the shard takes (csrc/metadata/fsmeta_spread.c). Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from amfs.vocabulary.peer_requests import AddDirectory, AnyChange, DropDirectory, FreezeDirectory

_HEAD = struct.Struct("<BBHiQQIIIiq")
_ADD, _DROP, _FREEZE, _THAW = 1, 2, 3, 4
NUMBER_AT = 8  # where in a change the number of the directory is


def pack(changes: Sequence[AnyChange], askers: Sequence[int]) -> bytes | None:
    """None: one of them is of another kind."""
    parts: list[bytes] = []
    for change, asker in zip(changes, askers, strict=True):
        match change:
            case AddDirectory(ino, dir, name, attr):
                parts.append(_HEAD.pack(_ADD, 0, len(name), asker, ino, dir, attr.mode, attr.uid, attr.gid, attr.rank, attr.mtime) + name)
            case DropDirectory(ino, dir, name, keep_entry, now):
                parts.append(_HEAD.pack(_DROP, keep_entry, len(name), asker, ino, dir, 0, 0, 0, 0, now) + name)
            case FreezeDirectory(ino, frozen):
                parts.append(_HEAD.pack(_FREEZE if frozen else _THAW, 0, 0, asker, ino, 0, 0, 0, 0, 0, 0))
            case _:
                return None
    return b"".join(parts)


def numbered(change: bytes, ino: int) -> bytes:
    """The same change, of the directory of this number."""
    return change[:NUMBER_AT] + struct.pack("<Q", ino) + change[NUMBER_AT + 8 :]


def made_old(data: bytes) -> Iterator[tuple[int, int, int, bytes, bool]]:
    """Of each change that makes records old: the node that wants it, the directory, the one above, its name there, and whether it goes."""
    at = 0
    while at < len(data):
        kind, _, length, asker, ino, dir, *_ = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        if kind in (_ADD, _DROP):
            yield asker, ino, dir, data[at - length : at], kind == _DROP
