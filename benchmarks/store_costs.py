"""The cost of a store to its clients: small and large files put there and got from there, one at a time and several. I/O.

Owns the measurement, and the costs that a model takes from it. Must not know: the files that are staged, the number of nodes.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.storage import Place
from benchmarks.storage_clients import store_of

SMALL, LARGE = 10_000, 8_000_000  # bytes
AT_ONCE = {SMALL: (1, 2, 4, 8, 16), LARGE: (1, 4)}
FILES = {SMALL: 48, LARGE: 8}
PASSES = 3


class Access(NamedTuple):
    """The cost of one file that is put there, or got: ``latency_s`` passes whatever else is under way; the store does the rest one at a
    time, ``request_s`` for each and ``bytes_s`` bytes a second."""

    latency_s: float
    request_s: float
    bytes_s: float

    def of_store_s(self, size: int) -> float:
        return self.request_s + size / self.bytes_s


class Point(msgspec.Struct, frozen=True):
    """Files of one size, ``at_once`` under way: seconds of the clock over the number of files, the median of the passes."""

    size: int
    at_once: int
    put_s: float
    get_s: float


class StoreCosts(msgspec.Struct, frozen=True, tag="costs"):
    """``load``: programs that wanted a CPU in the minute before."""

    store: str
    load: float
    points: list[Point]

    def get(self) -> Access:
        return self._access(lambda point: point.get_s)

    def put(self) -> Access:
        return self._access(lambda point: point.put_s)

    def _access(self, seconds: Callable[[Point], float]) -> Access:
        small = [point for point in self.points if point.size == min(one.size for one in self.points)]
        large = [point for point in self.points if point.size == max(one.size for one in self.points)]
        request = min(map(seconds, small))
        alone = next(seconds(point) for point in small if point.at_once == 1)
        moving = max(min(map(seconds, large)) - request, 1e-9)
        return Access(max(0.0, alone - request), request, large[0].size / moving)


def measure_store(place: Place, local: Path) -> StoreCosts:
    """``local``: a directory for the files of the client."""
    load = round(os.getloadavg()[0], 1)
    points = []
    for size, counts in AT_ONCE.items():
        local.mkdir(exist_ok=True)
        (local / "source").write_bytes(os.urandom(size))
        passes: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
        for turn in range(-1, PASSES):  # the first one is not kept: connections are made in it
            for count in counts if turn % 2 else reversed(counts):
                seconds = _once(place, local, count, FILES[size], f"costs-{size}-{count}-{turn + 1}")
                if turn >= 0:
                    passes[count].append(seconds)
        for count, each in passes.items():
            put, get = (statistics.median(one[at] for one in each) for at in (0, 1))
            points.append(Point(size, count, put, get))
    return StoreCosts(place.title, load, points)


def _once(place: Place, local: Path, at_once: int, files: int, name: str) -> tuple[float, float]:
    """Seconds for one file, put and got."""
    store = store_of(place.spots[0].below(name))
    store.prepare()
    names = [f"f{number}" for number in range(files)]
    try:
        with ThreadPoolExecutor(at_once) as pool:
            put = _timed(pool, lambda one: store.put(one, str(local / "source")), names)
            get = _timed(pool, lambda one: store.get(one, str(local / one)), names)
    finally:
        store.remove()
    return put / files, get / files


def _timed(pool: ThreadPoolExecutor, act: Callable[[str], None], names: Sequence[str]) -> float:
    begun = time.perf_counter()
    for _ in pool.map(act, names):
        pass
    return time.perf_counter() - begun
