"""``benchmarks simulate``: how long the simulator says that a workflow takes, beside how long its replay really takes.

Owns the comparison: real sessions of local nodes run ``amfs run --synthetic``, and the simulator runs the same workflow with as many nodes
and slots. Both sides are asked through the same commands that a user has.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from benchmarks.mounts import NAME, Session


class Settings(msgspec.Struct, frozen=True):
    """``nodes``: sizes of the session, one after the other. ``slots`` per node. The scales multiply recorded run times and sizes."""

    nodes: tuple[int, ...] = (1, 2, 4)
    slots: int = 4
    time_scale: float = 1.0
    size_scale: float = 1.0
    repeat: int = 3


class Row(msgspec.Struct, frozen=True):
    """One workflow on so many nodes. ``real_s``: median of the runs. ``error``: (simulated - real) / real; None if not measured."""

    workflow: str
    tasks: int
    nodes: int
    real_s: float
    simulated_s: float
    error: float | None = None
    failed: str = ""  # why it could not be measured


class Report(msgspec.Struct, frozen=True):
    machine: str
    settings: Settings
    rows: list[Row]


def measure(workflows: Sequence[Path], settings: Settings, *, say: Callable[[str], None] = lambda text: None) -> Report:
    """Compare for each workflow and each number of nodes. A workflow that cannot be run has a row that says why."""
    rows = []
    for count in settings.nodes:
        say(f"starting a session of {count} nodes")
        with Session(count, settings.slots) as session:
            for path in workflows:
                say(f"{path.name} on {count} nodes")
                try:
                    rows.append(_compare(session, path, count, settings))
                except Failed as error:
                    rows.append(Row(path.name, 0, count, 0.0, 0.0, failed=str(error)))
    rows.sort(key=lambda row: row.workflow)
    return Report(machine(), settings, rows)


def _compare(session: Session, path: Path, count: int, settings: Settings) -> Row:
    scales = ("--time-scale", str(settings.time_scale), "--size-scale", str(settings.size_scale))
    cluster = ("--nodes", str(count), "--slots", str(settings.slots), "--unit-size", "0")
    simulated = json.loads(session.amfs("simulate", str(path), *scales, *cluster, "--output", "json").stdout)
    seconds = []
    for _ in range(settings.repeat):
        words = ("run", "--synthetic", *scales, "--session", NAME, "--output", "json", str(path))
        lines = session.amfs(*words, cwd=session.directory).stdout.splitlines()
        summary = json.loads(lines[-1])
        seconds.append(float(summary["wall_seconds"]))
    real = statistics.median(seconds)
    return Row(path.name, simulated["tasks"], count, real, simulated["makespan_s"], simulated["makespan_s"] / real - 1)
