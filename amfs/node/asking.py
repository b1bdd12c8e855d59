"""Questions of the poll loop to the shards of other nodes that go from C to C (csrc/metadata/peer_meta.h).

Owns their bytes and those of the answers. The machine that ordered a question (fs/vfs/direct.py) decides what follows when it is not
answered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from amfs._native import Io
from amfs.vocabulary import fs_works as w

#: Of enum peer_meta_op.
_TOUCH, _SPREAD, _RESERVE, _STRIKE = 7, 14, 15, 16
_NODE, _NUMBER = struct.Struct("<i"), struct.Struct("<Q")

Read = Callable[[list[tuple[int, bytes]]], tuple[int, Any]]


class Asking:
    """The questions of one node."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._read: dict[int, Read] = {}  # serial of what is under way -> what its answer says

    def works(self) -> dict[type, Callable[[int, Any], None]]:
        return {w.SpreadTo: self._spread, w.ReserveAt: self._reserve, w.StrikeAt: self._strike, w.TouchAt: self._touch}

    def answer(self, serial: int, error: int, value: Any) -> tuple[int, Any]:
        """With which error and value the job ``serial`` ended. ``value``: if it is none of these."""
        read = self._read.pop(serial, None)
        return (error, value) if read is None or error else read(self._io.answers(serial))

    def _spread(self, serial: int, o: w.SpreadTo) -> None:
        self._ask(serial, _of_all, o.nodes, _SPREAD, o.number, value=_NODE.pack(o.manager) + o.changes)

    def _reserve(self, serial: int, o: w.ReserveAt) -> None:
        self._ask(serial, _number, (o.node,), _RESERVE, o.dir, o.name, now=o.number)

    def _strike(self, serial: int, o: w.StrikeAt) -> None:
        self._ask(serial, _nothing, (o.node,), _STRIKE, o.dir, o.name, _NUMBER.pack(o.ino), o.number)

    def _touch(self, serial: int, o: w.TouchAt) -> None:
        self._ask(serial, _nothing, (o.node,), _TOUCH, o.dir, now=o.now)

    def _ask(
        self, serial: int, read: Read, nodes: tuple[int, ...], op: int, ino: int, name: bytes = b"", value: bytes = b"", now: int = 0
    ) -> None:
        self._read[serial] = read
        try:
            self._io.ask(serial, nodes, op, ino, now, name, value)
        except OSError:
            del self._read[serial]
            raise


def _of_all(answers: list[tuple[int, bytes]]) -> tuple[int, list[list[int] | None]]:
    return 0, [None if error else list(struct.unpack(f"<{len(data) // 8}q", data)) for error, data in answers]


def _number(answers: list[tuple[int, bytes]]) -> tuple[int, int]:
    ((error, data),) = answers
    return error, 0 if error else _NUMBER.unpack(data)[0]


def _nothing(answers: list[tuple[int, bytes]]) -> tuple[int, None]:
    ((error, _),) = answers
    return error, None
