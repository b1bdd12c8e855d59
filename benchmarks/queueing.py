"""``benchmarks queue``: the cost of queueing a task, beside ``/bin/true`` in the same loop of the same shell.

Owns the loops. They run in a directory of shared memory that looks like a session to the program and the functions: to queue a task is to
write a record, and no session takes part in it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.bench.dispatch import work_parent
from amfs.errors import AmfsError
from amfs.libexec import program
from amfs.queueing import spool
from amfs.queueing.shell_functions import script

PROGRAM_TARGET = 1.5  # times /bin/true, at most
FUNCTION_TARGET = 0.1

#: How each shell runs a command COUNT times and says how many seconds that took.
_LOOPS = {
    "bash": "TIMEFORMAT=%R; time for ((i = 0; i < COUNT; i++)); do COMMAND input/$i temp/$i; done",
    "zsh": "typeset -F SECONDS=0; for ((i = 0; i < COUNT; i++)); do COMMAND input/$i temp/$i; done; print -u2 $SECONDS",
    "fish": "set begin (date +%s.%N); for i in (seq COUNT); COMMAND input/$i temp/$i; end; math (date +%s.%N) - $begin >&2",
}


class Row(msgspec.Struct):
    """One way to queue a task, in one shell. Times in microseconds for each task, medians."""

    shell: str
    way: str  # true, program, function
    task_us: float
    ratio: float  # to /bin/true
    target: float | None = None

    @property
    def passed(self) -> bool:
        return self.target is None or self.ratio <= self.target


class Report(msgspec.Struct):
    rows: list[Row]
    tasks: int
    repeat: int


def measure(*, tasks: int, repeat: int, say: Callable[[str], None]) -> Report:
    """Measure all shells that are here, the ways in turn. Raises AmfsError."""
    rows: list[Row] = []
    for shell in [name for name in _LOOPS if shutil.which(name)]:
        say(shell)
        times: dict[str, list[float]] = {"true": [], "program": [], "function": []}
        for _ in range(repeat):
            for way, found in times.items():
                found.append(_once(shell, way, tasks))
        base = statistics.median(times["true"])
        for way, found in times.items():
            middle = statistics.median(found)
            target = {"program": PROGRAM_TARGET, "function": FUNCTION_TARGET}.get(way)
            rows.append(Row(shell, way, middle / tasks * 1e6, middle / base, target))
    return Report(rows, tasks, repeat)


def _once(shell: str, way: str, tasks: int) -> float:
    """Seconds for so many tasks; the records are counted."""
    with tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent()) as work:
        place = spool.make(Path(work))
        mount = os.path.realpath(Path(work) / "mount")
        os.mkdir(mount)
        variables = {"AMFS_SPOOL": str(place), "AMFS_MOUNT": mount}
        init = script(shell, program("AMFS_queue"), variables, work)
        commands = {"true": "/bin/true stage", "program": f"{program('AMFS_queue')} stage", "function": "AMFS_queue stage"}
        text = f"{init}\n{_LOOPS[shell].replace('COUNT', str(tasks)).replace('COMMAND', commands[way])}"
        done = subprocess.run([shell, "-c", text], cwd=mount, capture_output=True, text=True, check=False)
        try:
            seconds = float(done.stderr.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise AmfsError(f"{shell} could not be measured: {done.stderr.strip()[:300]}") from None
        found, _ = spool.collect(place, {})
        if way != "true" and len(found) != tasks:
            raise AmfsError(f"{shell} has recorded {len(found)} of {tasks} tasks")
        return seconds
