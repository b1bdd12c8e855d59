"""One client of ``benchmarks storage``. ``python -m benchmarks.storage_worker`` takes orders from standard input, a line of JSON each.

All clients begin together: each answers an order with "ready", and begins when it reads "go". It copies files of the local disk,
which it made before; the bytes read are compared with those written afterwards, in an order of its own, so that this is not measured.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import msgspec

from amfs.errors import AmfsError
from benchmarks.storage_clients import CHUNK, Spot, Store, store_of, write

_MARK = 8  # bytes at the start of a file that say which it is


class Order(msgspec.Struct, frozen=True):
    """``what``: "make" (the files of ``numbers`` on the local disk), "write", "read", "raw" (each file written and at once read), "check"
    (what was read, which is removed then), "prepare" (make the directory in the store), "remove" (with all in it).

    ``local``: a directory of the local disk, which all clients of a machine share."""

    what: str
    spot: Spot
    local: str = ""
    numbers: list[int] = []
    size: int = 0


class Timed(msgspec.Struct, frozen=True):
    """One file. ``begun``: seconds of the monotonic clock, which all processes of a machine share."""

    number: int
    begun: float
    seconds: float


class Done(msgspec.Struct, frozen=True):
    """``error``: the fault, if there is one."""

    files: list[Timed] = []
    error: str = ""


class Worker:
    """Carries out orders. The content of a file is its number and then the same bytes for all."""

    def __init__(self) -> None:
        self._block = memoryview(bytes(range(256)) * (CHUNK // 256))
        self._first = memoryview(bytearray(self._block))
        self._known: dict[bytes, Store] = {}

    def store(self, spot: Spot) -> Store:
        key = msgspec.json.encode(spot)
        if key not in self._known:
            self._known[key] = store_of(spot)
        return self._known[key]

    def content(self, number: int, size: int) -> Iterator[memoryview]:
        self._first[:_MARK] = number.to_bytes(_MARK, "little")
        for at in range(0, size, CHUNK):
            yield (self._block if at else self._first)[: min(CHUNK, size - at)]

    def make(self, path: str, number: int, size: int) -> None:
        fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            for piece in self.content(number, size):
                write(fd, piece)
        finally:
            os.close(fd)

    def check(self, path: str, number: int, size: int) -> None:
        """Raises AmfsError if the file is not what was written."""
        length = os.path.getsize(path)
        if length != size:
            raise AmfsError(f"file {number} has {length} bytes instead of {size}")
        with open(path, "rb", buffering=0) as file:
            for piece in self.content(number, size):
                if file.read(len(piece)) != piece:
                    raise AmfsError(f"file {number} has wrong content")

    def carry_out(self, order: Order) -> list[Timed]:
        store = self.store(order.spot)
        if order.what == "prepare":
            store.prepare()
        elif order.what == "remove":
            store.remove()
        found = []
        for number in order.numbers:
            source, target = f"{order.local}/file{number}", f"{order.local}/read{number}"
            begun = time.monotonic()
            if order.what in ("write", "raw"):
                store.put(f"file{number}", source)
            if order.what in ("read", "raw"):
                store.get(f"file{number}", target)
            found.append(Timed(number, begun, time.monotonic() - begun))
            if order.what == "make":
                self.make(source, number, order.size)
            elif order.what == "check":
                self.check(target, number, order.size)
                os.unlink(target)
        return found


def serve() -> None:
    """Until standard input ends."""
    worker = Worker()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print; our output must stay clean
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        error, files = "", []
        try:
            worker.store(order.spot)  # importing its library and connecting is not what is measured
        except Exception as problem:  # whatever a library raises is what the person is told
            error = str(problem) or type(problem).__name__
        print("ready", file=out, flush=True)
        if sys.stdin.readline().strip() != "go":
            break
        try:
            if not error:
                files = worker.carry_out(order)
        except Exception as problem:
            error = str(problem) or type(problem).__name__
        print(msgspec.json.encode(Done(files, error)).decode(), file=out, flush=True)


if __name__ == "__main__":
    serve()
