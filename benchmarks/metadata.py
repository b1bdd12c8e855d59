"""``benchmarks metadata``: the steps of mdtest by one client on a mount, beside the same on tmpfs.

Owns the rows and their targets. Sessions of local nodes are started and ended; files are read through the mount of another node than the
one that made them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.bench import process
from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.errors import AmfsError
from benchmarks import programs
from benchmarks.directories import memory_directory, workplace
from benchmarks.mounts import Session

#: Session -> (nodes, options of amfs up, how many times the time on tmpfs a step may take).
SESSIONS: dict[str, tuple[int, tuple[str, ...], dict[str, float]]] = {
    "1 node": (1, (), {}),
    "4 nodes": (4, (), {"create": 25, "read": 60, "mkdir": 60, "rename": 80, "remove": 80}),
    "4 nodes, 2 replicas": (4, ("--replicas", "2"), {"create": 60}),
}


class Row(msgspec.Struct, frozen=True):
    """Medians of microseconds for one of each step; ``times``: of the same step on tmpfs in the same turn."""

    session: str
    step: str
    tmpfs_us: float
    amfs_us: float
    times: float
    target: float | None


class Report(msgspec.Struct, frozen=True):
    machine: str
    files: int
    repeat: int
    rows: list[Row]
    errors: dict[str, str]


def measure(*, files: int, repeat: int, say: Callable[[str], None]) -> Report:
    """Raises SystemSetupError where there is no compiler or no tmpfs. A session that cannot be measured is reported as such."""
    program = str(programs.build()["metadata"])
    rows: list[Row] = []
    errors: dict[str, str] = {}

    def run(*places: Path) -> dict[str, float]:
        lines = process.run([program, str(files), *map(str, places)], "/", hang_seconds=300.0).stdout.splitlines()
        return {step: float(us) for step, us in map(str.split, lines)}

    for name, (nodes, options, targets) in SESSIONS.items():
        say(f"{name} ...")
        theirs, ours = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        try:
            with Session(nodes, options=options) as session, workplace(memory_directory()) as plain:
                mounts = [session.mount(0), session.mount(nodes - 1)]
                for _ in range(repeat):
                    for found, times in ((run(plain), theirs), (run(*mounts), ours)):
                        for step, us in found.items():
                            times[step].append(us)
        except (Failed, AmfsError) as error:
            errors[name] = str(error)
            continue
        for step, taken in ours.items():
            ratio = statistics.median(mine / other for mine, other in zip(taken, theirs[step], strict=True))
            rows.append(Row(name, step, statistics.median(theirs[step]), statistics.median(taken), ratio, targets.get(step)))
    return Report(machine(), files, repeat, rows, errors)
