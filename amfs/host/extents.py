"""Files with holes: where their data lie."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Protocol

PIECE = 1 << 20
_ZEROS = bytes(PIECE)


def all_zero(data: bytes | bytearray) -> bool:
    return data == (_ZEROS if len(data) == PIECE else bytes(len(data)))


def extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of what is data among the first ``size`` bytes of a local file. Moves the descriptor's position. Raises OSError."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            start, end = at, size
        if start >= size:
            return
        yield start, end
        at = end


class Handle(Protocol):
    """An open file of amfs:/ on its node."""

    def read(self, count: int, offset: int, /) -> bytes: ...
    def seek(self, offset: int, whence: int, /) -> int: ...
    def stat(self) -> tuple[int, int, int, int, int]: ...


def next_data(handle: Handle, at: int) -> int:
    """Where data begins in what is open, from ``at`` on; its size if nothing but a hole is left. Raises OSError."""
    try:
        return handle.seek(at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return max(at, handle.stat()[0])


def pieces(handle: Handle) -> Iterator[tuple[int, bytes]]:
    """(offset, data) of all of it that is not zeros, in order; at last its size and no bytes. Holes are asked for after zeros only."""
    at = 0
    while data := handle.read(PIECE, at):
        if not all_zero(data):
            yield at, data
            at += len(data)
        else:
            at = max(at + len(data), next_data(handle, at))
    yield at, b""
