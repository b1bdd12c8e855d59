"""Digests of the content of files, block by block: as csrc/common/digest.h says, for content that no descriptor leads to."""

from __future__ import annotations

import os

from xxhash import xxh64_digest

from amfs._native import digest

CHECKED_DAMAGED = 2  # of ``_native.check_file``: the content is not what was finished
BLOCK = 1 << 20
SEED = 0x9E3779B97F4A7C15
_ZEROS = bytes(BLOCK)


def _two(data: bytes | bytearray | memoryview) -> bytes:
    return xxh64_digest(data)[::-1] + xxh64_digest(data, SEED)[::-1]  # little-endian, as in C


class Digest:
    """Of bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self.size = 0
        self._rest = bytearray()
        self._hashes = bytearray()
        self._zeros = 0  # blocks of them that came last

    def add(self, data: bytes | bytearray | memoryview) -> None:
        self.size += len(data)
        self._rest += data
        at = 0
        while len(self._rest) - at >= BLOCK:
            with memoryview(self._rest) as view:
                if self._rest[at] == 0 and view[at : at + BLOCK] == _ZEROS:
                    self._zeros += 1
                else:
                    self._hashes += self._run() + _two(view[at : at + BLOCK])
                    self._zeros = 0
            at += BLOCK
        del self._rest[:at]

    def add_zeros(self, count: int) -> None:
        """As many bytes of zeros."""
        if self._rest:
            first = min(count, BLOCK - len(self._rest))
            self.add(bytes(first))
            count -= first
        self._zeros += count // BLOCK
        self.size += count - count % BLOCK
        self.add(bytes(count % BLOCK))

    def _run(self) -> bytes:
        return bytes(8) + self._zeros.to_bytes(8, "little") if self._zeros else b""

    def value(self) -> bytes:
        """Of all that was added so far."""
        last = _two(self._rest) if self._rest else b""
        return _two(bytes(self._hashes) + self._run() + last + self.size.to_bytes(8, "little"))


def of_file(path: str | bytes) -> tuple[bytes, int]:
    """(digest, size) of a local file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return digest(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None
    finally:
        os.close(descriptor)
