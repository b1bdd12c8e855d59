"""One contestant of ``benchmarks functions`` in a process of its own: ``python -m benchmarks.function_peers NAME CALLS SLOTS``.

Prints one JSON object: its results, by key of ``functions.LINES``; or ``{"missing": why}``. Everything is imported when it is needed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

ROUND_TRIPS = 200
ARRAY_BYTES = 10_000_000
ARRAYS = 10
CHUNK = 100
NAMES = ("amfs", "processes", "dask", "ray")


class Contestant(NamedTuple):
    """``many``: execute a function for each of these, as calls of their own. ``chunks``: the same, many at a time; None where that is not
    offered. ``one``: execute it once and wait."""

    many: Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]
    one: Callable[[Callable[[Any], Any], Any], Any]
    chunks: Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]] | None = None


def same(value: Any) -> Any:
    """The no-op."""
    return value


def doubled(value: Any) -> Any:
    return value * 2


@contextmanager
def amfs(slots: int) -> Iterator[Contestant]:
    from amfs.cluster import Cluster

    with Cluster(nodes=1, slots=slots) as cluster, cluster.executor() as executor:
        yield Contestant(
            lambda f, values: list(executor.map(f, values)),
            lambda f, value: executor.submit(f, value).result(),
            lambda f, values: list(executor.map(f, values, chunksize=CHUNK)),
        )


@contextmanager
def processes(slots: int) -> Iterator[Contestant]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(slots) as executor:
        yield Contestant(
            lambda f, values: list(executor.map(f, values)),
            lambda f, value: executor.submit(f, value).result(),
            lambda f, values: list(executor.map(f, values, chunksize=CHUNK)),
        )


@contextmanager
def dask(slots: int) -> Iterator[Contestant]:
    library: Any = import_module("distributed")
    with (
        library.LocalCluster(n_workers=slots, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        library.Client(cluster) as client,
    ):
        yield Contestant(
            lambda f, values: client.gather(client.map(f, values, pure=False)),
            lambda f, value: client.submit(f, value, pure=False).result(),
        )


@contextmanager
def ray(slots: int) -> Iterator[Contestant]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    library: Any = import_module("ray")
    library.init(num_cpus=slots, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        remote: dict[Any, Any] = {function: library.remote(function) for function in (same, doubled)}
        yield Contestant(
            lambda f, values: library.get([remote[f].remote(value) for value in values]),
            lambda f, value: library.get(remote[f].remote(value)),
        )
    finally:
        library.shutdown()


def measure(contestant: Contestant, calls: int) -> dict[str, float]:
    """Rates and times of a contestant whose workers run and are warm."""
    values = list(range(calls))

    def per_second(execute: Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]) -> float:
        execute(same, values[: calls // 10])
        started = time.perf_counter()
        if list(execute(same, values)) != values:
            raise RuntimeError("wrong results")
        return calls / (time.perf_counter() - started)

    found = {"calls": per_second(contestant.many)}
    if contestant.chunks is not None:
        found["chunks"] = per_second(contestant.chunks)
    times = []
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        contestant.one(same, 1)
        times.append(time.perf_counter() - started)
    found["trip"] = statistics.median(times) * 1e6
    if find_spec("numpy") is not None:
        import numpy

        array = numpy.arange(ARRAY_BYTES // 8, dtype="float64")
        contestant.one(doubled, array)
        started = time.perf_counter()
        for _ in range(ARRAYS):
            if contestant.one(doubled, array)[-1] != array[-1] * 2:
                raise RuntimeError("wrong results")
        found["arrays"] = 2 * ARRAYS * ARRAY_BYTES / (time.perf_counter() - started) / 1e6
    return found


def main() -> None:
    name, calls, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    contestants: dict[str, Callable[[int], Any]] = {"amfs": amfs, "processes": processes, "dask": dask, "ray": ray}
    needed = {"amfs": "cloudpickle", "dask": "distributed", "ray": "ray"}.get(name)
    if needed is not None and find_spec(needed) is None:
        print(json.dumps({"missing": f"{needed} is not installed"}))
        return
    started = time.perf_counter()
    with contestants[name](slots) as contestant:
        if contestant.one(same, 5) != 5:
            raise RuntimeError("wrong results")
        first = time.perf_counter() - started
        print(json.dumps({"start": first, **measure(contestant, calls)}))


if __name__ == "__main__":
    from benchmarks import function_peers  # so that functions are found by their module's name

    function_peers.main()
