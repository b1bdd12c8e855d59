"""``benchmarks montage``: the Montage example by amfs, GNU make and Makeflow in turn, all on tmpfs, with the same programs.

Owns the rules that make and Makeflow read, which are made of the task list, and the clock. The ideal is what the tasks themselves took by
the joblog of amfs, divided by the slots: more is waiting for predecessors, and the engine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

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
    """``seconds``: median of the whole command; ``ideal_s``: what the tasks took, divided by the slots; ``over``: median of the ratios."""

    images: int
    tasks: int
    engine: str
    seconds: float
    ideal_s: float
    over: float


class Report(msgspec.Struct, frozen=True):
    machine: str
    slots: int
    size: int
    rows: list[Row]
    absent: list[str]


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
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
            mosaics: set[bytes] = set()
            ideal = 0.0
            for turn in range(repeat):
                for name, command in engines.items():
                    say(f"{grid * grid} images, {name}, {turn + 1} of {repeat} ...")
                    work = place / "work"
                    shutil.copytree(sky, work)
                    for folder in {os.path.dirname(name) for name in targets} - {""}:
                        (work / folder).mkdir(exist_ok=True)
                    seconds = process.run(command, work, hang_seconds=HANG_S).seconds
                    if name == "amfs":
                        ideal = runtime_of(work / "joblog") / slots
                    mosaics.add((work / MOSAIC).read_bytes())
                    taken[name].append((seconds, ideal))
                    shutil.rmtree(work)
            if len(mosaics) != 1:
                raise process.Failed("the engines made different mosaics")
            for name, found in taken.items():
                rows.append(Row(
                    grid * grid, len(tasks), name, statistics.median(seconds for seconds, _ in found),
                    statistics.median(ideal for _, ideal in found), statistics.median(seconds / ideal for seconds, ideal in found),
                ))  # fmt: skip
    return Report(machine(), slots, size, rows, [name for name in ("make", "makeflow") if name not in engines])


def script(command: Sequence[object], cwd: Path) -> str:
    try:
        return process.run([sys.executable, *map(str, command)], cwd).stdout
    except process.Failed as error:
        raise SystemSetupError(str(error)) from None


def runtime_of(joblog: Path) -> float:
    """Seconds of all tasks together."""
    lines = joblog.read_text(encoding="utf-8", errors="replace").splitlines()
    column = lines[0].split("\t").index("JobRuntime")
    return sum(float(line.split("\t")[column]) for line in lines[1:])
