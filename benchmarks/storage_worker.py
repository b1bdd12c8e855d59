"""One client of ``benchmarks storage``. ``python -m benchmarks.storage_worker`` takes orders from standard input, a line of JSON each.

It knows two kinds of places: directories, and whatever fsspec has a file system for. Data comes from memory and goes there, so that only
the storage is measured. All clients begin together: each answers an order with "ready", and begins when it reads "go".
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from amfs.errors import AmfsError, UsageError

_CHUNK = 1 << 20
_MARK = 8  # bytes at the start of a file that say which it is


class Order(msgspec.Struct, frozen=True):
    """``what``: "write", "read", "raw" (each file written and at once read), "prepare" (make the directory), "remove" (with all in it)."""

    what: str
    place: str
    numbers: list[int] = []
    size: int = 0


class Times(msgspec.Struct, frozen=True):
    """Seconds of the monotonic clock, which all processes of a machine share. ``error``: what went wrong, if anything."""

    begun: float
    ended: float
    error: str = ""


class Storage(Protocol):
    """Files by number in one directory. ``read`` gives the file's first chunk first."""

    def write(self, number: int, chunks: Iterator[memoryview]) -> None: ...

    def read(self, number: int) -> Iterator[memoryview]: ...

    def prepare(self) -> None: ...

    def remove(self) -> None: ...


class Directory:
    def __init__(self, place: str) -> None:
        self.place = place
        self._buffer = memoryview(bytearray(_CHUNK))

    def write(self, number: int, chunks: Iterator[memoryview]) -> None:
        fd = os.open(f"{self.place}/file{number}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            for chunk in chunks:
                left = chunk
                while left:
                    left = left[os.write(fd, left) :]
        finally:
            os.close(fd)

    def read(self, number: int) -> Iterator[memoryview]:
        fd = os.open(f"{self.place}/file{number}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while got := os.readv(fd, [self._buffer]):
                yield self._buffer[:got]
        finally:
            os.close(fd)

    def prepare(self) -> None:
        os.makedirs(self.place, exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.place)


class Url:
    """A directory in anything that fsspec knows."""

    def __init__(self, place: str) -> None:
        try:
            core: Any = importlib.import_module("fsspec.core")
        except ImportError:
            raise UsageError(f"{place} needs fsspec, which is not installed") from None
        self.fs: Any
        self.fs, self.place = core.url_to_fs(place)

    def write(self, number: int, chunks: Iterator[memoryview]) -> None:
        with self.fs.open(f"{self.place}/file{number}", "wb") as file:
            for chunk in chunks:
                file.write(chunk)

    def read(self, number: int) -> Iterator[memoryview]:
        with self.fs.open(f"{self.place}/file{number}", "rb") as file:
            while got := file.read(_CHUNK):
                yield memoryview(got)

    def prepare(self) -> None:
        self.fs.makedirs(self.place, exist_ok=True)

    def remove(self) -> None:
        self.fs.rm(self.place, recursive=True)


def is_url(place: str) -> bool:
    return "://" in place or "::" in place


def storage_of(place: str) -> Storage:
    return Url(place) if is_url(place) else Directory(place)


class Worker:
    """Carries out orders. The content of a file is its number and then the same bytes for all."""

    def __init__(self) -> None:
        self._block = memoryview(bytes(range(256)) * (_CHUNK // 256))
        self._first = memoryview(bytearray(self._block))
        self._known: dict[str, Storage] = {}

    def storage(self, place: str) -> Storage:
        if place not in self._known:
            self._known[place] = storage_of(place)
        return self._known[place]

    def content(self, number: int, size: int) -> Iterator[memoryview]:
        self._first[:_MARK] = number.to_bytes(_MARK, "little")
        for at in range(0, size, _CHUNK):
            yield (self._block if at else self._first)[: min(_CHUNK, size - at)]

    def check(self, storage: Storage, number: int, size: int) -> None:
        """Read all of it. Raises AmfsError if it is not what was written."""
        length = 0
        mark = number.to_bytes(_MARK, "little")[:size]
        for chunk in storage.read(number):
            if length == 0 and chunk[: len(mark)] != mark[: len(chunk)]:
                raise AmfsError(f"file {number} has wrong content")
            length += len(chunk)
        if length != size:
            raise AmfsError(f"file {number} has {length} bytes instead of {size}")

    def carry_out(self, order: Order) -> None:
        storage = self.storage(order.place)
        if order.what == "prepare":
            storage.prepare()
        elif order.what == "remove":
            storage.remove()
        for number in order.numbers:
            if order.what in ("write", "raw"):
                storage.write(number, self.content(number, order.size))
            if order.what in ("read", "raw"):
                self.check(storage, number, order.size)


def serve() -> None:
    """Until standard input ends."""
    worker = Worker()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print; what we say must stay clean
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        error = ""
        try:
            worker.storage(order.place)  # importing its library is not what is measured
        except Exception as problem:  # whatever a library raises is what the person is told
            error = str(problem) or type(problem).__name__
        print("ready", file=out, flush=True)
        if sys.stdin.readline().strip() != "go":
            break
        begun = time.monotonic()
        try:
            if not error:
                worker.carry_out(order)
        except Exception as problem:
            error = str(problem) or type(problem).__name__
        print(msgspec.json.encode(Times(begun, time.monotonic(), error)).decode(), file=out, flush=True)


if __name__ == "__main__":
    serve()
