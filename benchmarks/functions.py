"""``benchmarks functions``: Python functions on local workers, beside the executor of Python, Dask and Ray, in one run.

Owns the lines of the table, the order of the turns and the medians. Each contestant runs in a process of its own (``function_peers``),
one after the other, and who begins changes from turn to turn. One that is not installed is left out with a remark.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import msgspec

from amfs.bench.dispatch import machine
from amfs.errors import AmfsError
from benchmarks.function_peers import NAMES

CALLS, CALLS_QUICK = 20_000, 2_000
SLOTS = 2
LINES = {
    "start": ("start, to the first result", "s"),
    "calls": ("no-op, each a call", "calls/s"),
    "chunks": ("no-op, 100 in a call", "calls/s"),
    "trip": ("one call and its result", "µs"),
    "arrays": ("10 MB array there and back", "MB/s"),
}
TITLES = {"amfs": "amfs", "processes": "ProcessPoolExecutor", "dask": "Dask", "ray": "Ray"}
_PATIENCE_S = 600.0


class FunctionReport(msgspec.Struct, frozen=True):
    """``values``: medians by contestant and line; ``missing``: why a contestant is not there."""

    machine: str
    repeat: int
    calls: int
    slots: int
    values: dict[str, dict[str, float]]
    missing: dict[str, str]
    samples: dict[str, list[dict[str, float]]]


def run(
    *, repeat: int = 3, quick: bool = False, only: tuple[str, ...] = (), say: Callable[[str], None] = lambda text: None
) -> FunctionReport:
    """Measure. A contestant that fails is reported with its last words and not tried again."""
    calls = CALLS_QUICK if quick else CALLS
    names = [name for name in NAMES if not only or name in only]
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    missing: dict[str, str] = {}
    for turn in range(repeat):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name in missing:
                continue
            say(f"{TITLES[name]}, {turn + 1} of {repeat}")
            try:
                samples[name].append(_measured(name, calls))
            except AmfsError as error:
                missing[name] = str(error)
                say(f"{TITLES[name]} is left out: {error}")
    values = {
        name: {key: statistics.median(sample[key] for sample in known) for key in LINES if key in known[0]}
        for name, known in samples.items()
        if known
    }
    return FunctionReport(machine(), repeat, calls, SLOTS, values, missing, samples)


def _measured(name: str, calls: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.function_peers", name, str(calls), str(SLOTS)]
    try:
        ran = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise AmfsError(f"not ready after {_PATIENCE_S:g} s") from None
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not lines:
        raise AmfsError((ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1])
    found: dict[str, float] = json.loads(lines[-1])
    if "missing" in found:
        raise AmfsError(str(found["missing"]))
    return found
