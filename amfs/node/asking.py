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
from amfs.vocabulary.directory_changes import NUMBER_AT

#: Of enum peer_meta_op.
_TOUCH, _SPREAD, _RESERVE, _STRIKE = 7, 14, 15, 16
_NODE, _NUMBER = struct.Struct("<i"), struct.Struct("<Q")

_Answers = list[tuple[int, bytes]]  # of each node: errno, bytes
_Step = tuple[tuple[int, ...], int, int, int, bytes, bytes, int]
_Read = Callable[[list[_Answers]], tuple[int, Any]]


class Asking:
    """The questions of one node."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._read: dict[int, _Read] = {}  # serial of what is under way -> what its answer says

    def works(self) -> dict[type, Callable[[int, Any], None]]:
        return {
            w.SpreadTo: self._spread, w.ReserveAt: self._reserve, w.StrikeAt: self._strike, w.TouchAt: self._touch,
            w.MakeAt: self._make, w.RemoveAt: self._remove,
        }  # fmt: skip

    def answer(self, serial: int, error: int, value: Any) -> tuple[int, Any]:
        """With which error and value the job ``serial`` ended. ``value``: if it is none of these."""
        read = self._read.pop(serial, None)
        return (error, value) if read is None or error else read(self._io.answers(serial))

    def _spread(self, serial: int, o: w.SpreadTo) -> None:
        self._ask(serial, lambda steps: (0, _of_all(steps[0])), _spread_of(o))

    def _reserve(self, serial: int, o: w.ReserveAt) -> None:
        self._ask(serial, _number, _reserve_of(o))

    def _strike(self, serial: int, o: w.StrikeAt) -> None:
        self._ask(serial, _nothing, _strike_of(o))

    def _touch(self, serial: int, o: w.TouchAt) -> None:
        self._ask(serial, _nothing, ((o.node,), _TOUCH, o.dir, o.now, b"", b"", -1))

    def _make(self, serial: int, o: w.MakeAt) -> None:
        self._ask(serial, _made, _reserve_of(o.reserve), _spread_of(o.add, _NODE.size + NUMBER_AT))

    def _remove(self, serial: int, o: w.RemoveAt) -> None:
        self._ask(serial, _removed, _spread_of(o.freeze), _strike_of(o.strike), _spread_of(o.drop))

    def _ask(self, serial: int, read: _Read, *steps: _Step) -> None:
        self._read[serial] = read
        try:
            self._io.ask(serial, steps)
        except OSError:
            del self._read[serial]
            raise


def _spread_of(o: w.SpreadTo, number_at: int = -1) -> _Step:
    return o.nodes, _SPREAD, o.number, 0, b"", _NODE.pack(o.manager) + o.changes, number_at


def _reserve_of(o: w.ReserveAt) -> _Step:
    return (o.node,), _RESERVE, o.dir, o.number, o.name, b"", -1


def _strike_of(o: w.StrikeAt) -> _Step:
    return (o.node,), _STRIKE, o.dir, o.number, o.name, _NUMBER.pack(o.ino), -1


def _of_all(answers: _Answers) -> list[list[int] | None]:
    return [None if error else list(struct.unpack(f"<{len(data) // 8}q", data)) for error, data in answers]


def _number(steps: list[_Answers]) -> tuple[int, int]:
    (((error, data),),) = steps
    return error, 0 if error else _NUMBER.unpack(data)[0]


def _nothing(steps: list[_Answers]) -> tuple[int, None]:
    (((error, _),),) = steps
    return error, None


def _made(steps: list[_Answers]) -> tuple[int, w.Made]:
    error, number = _number(steps[:1])
    return 0, w.Made(error, number, _of_all(steps[1]) if len(steps) > 1 else None)


def _removed(steps: list[_Answers]) -> tuple[int, w.Removed]:
    struck = steps[1][0][0] if len(steps) > 1 else None
    return 0, w.Removed(_of_all(steps[0]), struck, _of_all(steps[2]) if len(steps) > 2 else None)
