"""``benchmarks montage``: the Montage example by amfs, GNU make and Makeflow in turn, all on tmpfs, with the same programs.

Owns the rules that make and Makeflow read, which are made of the task list, and the clock. The ideal is what the tasks themselves took by
the joblog of amfs, divided by the slots. That cannot be reached: some tasks have to wait for all others, and beside them slots are empty.
So there is a second one: how long those tasks take by an engine that starts each when its inputs are there and a slot is free.
"""

from __future__ import annotations

import compileall
import heapq
import os
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

import amfs
from amfs.bench import process
from amfs.bench.dispatch import machine
from amfs.errors import SystemSetupError
from amfs.translate.detect import load
from amfs.workflow.workflow import Task
from benchmarks.directories import memory_directory, workplace

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "montage"
MOSAIC = "mosaic.fits"
HANG_S = 1800.0


class Row(msgspec.Struct, frozen=True):
    """``seconds``: median of the whole command; ``ideal_s``: time of the tasks, divided by the slots; ``over``: median of the ratios.
    ``least_s``: the shortest time that the dependencies allow in the order of the list; ``engine_cpu_s``: CPU of the engine's own process;
    ``tasks_cpu_s``: of the processes that it started."""

    images: int
    tasks: int
    engine: str
    seconds: float
    ideal_s: float
    over: float
    least_s: float
    over_least: float
    engine_cpu_s: float
    tasks_cpu_s: float


class Report(msgspec.Struct, frozen=True):
    machine: str
    slots: int
    size: int
    rows: list[Row]
    absent: list[str]


class Turn(NamedTuple):
    """One run, with the ideals of the run of amfs in the same turn."""

    seconds: float
    ideal_s: float
    least_s: float
    engine_cpu_s: float
    tasks_cpu_s: float


def command_of(task: Task) -> str:
    words: list[str] = []
    for word in task.argv:
        words += task.inputs if word == "{in}" else task.outputs if word == "{out}" else (word,)
    return shlex.join(words) + "".join(f" {sign} {shlex.quote(name)}" for sign, name in (("<", task.stdin), (">", task.stdout)) if name)


def rules_of(tasks: Sequence[Task], colon: str) -> Iterator[str]:
    """Of a Makefile or a Makeflow. ``colon``: between outputs and inputs."""
    for task in tasks:
        yield f"{' '.join(task.outputs)}{colon} {' '.join(task.inputs)}\n\t{command_of(task).replace('$', '$$')}\n\n"


def measure(*, grids: Sequence[int], size: int, slots: int, repeat: int, tools: str, say: Callable[[str], None]) -> Report:
    """``grids``: images a side of the sky; ``size``: pixels a side of an image. Raises SystemSetupError without Montage or a tmpfs, Failed
    if a run fails, or if two engines do not make the same mosaic."""
    engines = {"amfs": [sys.executable, "-m", "amfs", "run", "--local", "-q", "-j", str(slots), "--joblog", "joblog", "list"]}
    for name, command in (("make", ["make", f"-j{slots}", "-f", "makefile"]), ("makeflow", ["makeflow", "-j", str(slots), "makeflow"])):
        if shutil.which(name):
            engines[name] = command
    compileall.compile_dir(os.path.dirname(amfs.__file__), quiet=2)  # as when a package is installed
    rows: list[Row] = []
    for grid in grids:
        with workplace(memory_directory()) as place:
            sky = place / "sky"
            script([EXAMPLE / "make_sky.py", sky, "--grid", grid, "--size", size], place)
            listed = script([EXAMPLE / "write_workflow.py", ".", "--tools", tools, "--arity", 10_000], sky)
            (sky / "list").write_text(listed)
            tasks = load(str(sky / "list")).tasks
            targets = [name for task in tasks for name in task.outputs]
            (sky / "makefile").write_text(f"all: {' '.join(targets)}\n\n{''.join(rules_of(tasks, ' &:'))}")
            (sky / "makeflow").write_text("".join(rules_of(tasks, ":")))
            taken: dict[str, list[Turn]] = {name: [] for name in engines}
            mosaics: set[bytes] = set()
            ideal = least = 0.0
            for turn in range(repeat):
                for name, command in engines.items():
                    say(f"{grid * grid} images, {name}, {turn + 1} of {repeat} ...")
                    work = place / "work"
                    shutil.copytree(sky, work)
                    for folder in {os.path.dirname(name) for name in targets} - {""}:
                        (work / folder).mkdir(exist_ok=True)
                    ran = process.run(command, work, hang_seconds=HANG_S)
                    if name == "amfs":
                        runtimes = runtimes_of(work / "joblog", len(tasks))
                        ideal, least = sum(runtimes) / slots, least_time(tasks, runtimes, slots)
                    mosaics.add((work / MOSAIC).read_bytes())
                    taken[name].append(Turn(ran.seconds, ideal, least, ran.cpu_s, ran.children_cpu_s))
                    shutil.rmtree(work)
            if len(mosaics) != 1:
                raise process.Failed("the engines made different mosaics")
            for name, found in taken.items():
                median: Callable[[Callable[[Turn], float]], float] = lambda of: statistics.median(map(of, found))  # noqa: B023, E731
                rows.append(Row(
                    grid * grid, len(tasks), name, median(lambda turn: turn.seconds),
                    median(lambda turn: turn.ideal_s), median(lambda turn: turn.seconds / turn.ideal_s),
                    median(lambda turn: turn.least_s), median(lambda turn: turn.seconds / turn.least_s),
                    median(lambda turn: turn.engine_cpu_s), median(lambda turn: turn.tasks_cpu_s),
                ))  # fmt: skip
    return Report(machine(), slots, size, rows, [name for name in ("make", "makeflow") if name not in engines])


def script(command: Sequence[object], cwd: Path) -> str:
    try:
        return process.run([sys.executable, *map(str, command)], cwd).stdout
    except process.Failed as error:
        raise SystemSetupError(str(error)) from None


def runtimes_of(joblog: Path, count: int) -> list[float]:
    """Seconds that each of ``count`` tasks took, in the order of the list."""
    lines = [line.split("\t") for line in joblog.read_text(encoding="utf-8", errors="replace").splitlines()]
    number, seconds = lines[0].index("Seq"), lines[0].index("JobRuntime")
    found = [0.0] * count
    for line in lines[1:]:
        found[int(line[number]) - 1] = float(line[seconds])
    return found


def least_time(tasks: Sequence[Task], runtimes: Sequence[float], slots: int) -> float:
    """How long the tasks take if each starts when its inputs are there and a slot is free: of those that could, the first of the list."""
    writer = {name: tid for tid, task in enumerate(tasks) for name in task.outputs}
    readers: list[list[int]] = [[] for _ in tasks]
    lacking = [0] * len(tasks)
    for tid, task in enumerate(tasks):
        for maker in {writer[name] for name in task.inputs if name in writer}:
            readers[maker].append(tid)
            lacking[tid] += 1
    ready = [tid for tid, count in enumerate(lacking) if not count]  # sorted, and so a heap
    running: list[tuple[float, int]] = []
    time_now = 0.0
    while ready or running:
        while ready and len(running) < slots:
            tid = heapq.heappop(ready)
            heapq.heappush(running, (time_now + runtimes[tid], tid))
        time_now, tid = heapq.heappop(running)
        for reader in readers[tid]:
            lacking[reader] -= 1
            if not lacking[reader]:
                heapq.heappush(ready, reader)
    return time_now
