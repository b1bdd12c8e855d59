"""``amfs bench filecopy``: Hercules's file copy (data locality paper, §V-A): one write task and one read task for each file.

Owns the four configurations: data placement by hashing or informed (dealt evenly), task placement that ignores or follows the data; all
tasks are pinned. Whole files lie where they are written, so a write task runs where its file shall be. Beside them, in the same turn, the
same tasks on a disk directory, in the part of the paper's shared file system, and on tmpfs.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench.directories import warm_up, workplace
from amfs.bench.dispatch import Bench, machine, session
from amfs.bench.envelope_table import aligned
from amfs.bench.process import Failed
from amfs.errors import AmfsError
from amfs.fs.partition import PartitionTable

_MIB = 1 << 20


class Settings(NamedTuple):
    """``nodes``: sizes of the session, one after the other. ``files`` for each node: the problem grows with the nodes. ``size`` of a
    file and ``chunk`` of a call in MiB."""

    nodes: tuple[int, ...] = (1, 2, 4)
    files: int = 4
    size: int = 64
    chunk: int = 8
    repeat: int = 3


class Configuration(NamedTuple):
    """``informed``: files are dealt evenly over the nodes, else hashed. ``aware``: a read task runs where its file is."""

    name: str
    informed: bool
    aware: bool


CONFIGURATIONS = (
    Configuration("DP-def TP-loc-ag", False, False),
    Configuration("DP-inf TP-loc-ag", True, False),
    Configuration("DP-def TP-loc-aw", False, True),
    Configuration("DP-inf TP-loc-aw", True, True),
)


class Sample(msgspec.Struct, frozen=True):
    """One run, in bytes a second: the mean of the write tasks and of the read tasks by their own clocks; and the whole, all bytes written
    and read over the time of the command, its start and end included."""

    write: float
    read: float
    whole: float


class Result(msgspec.Struct, frozen=True):
    """Medians of a configuration. ``fullest``: bytes on the node with most over the mean; ``remote``: share of the files read elsewhere."""

    name: str
    nodes: int
    files: int
    write: float
    read: float
    whole: float
    fullest: float | None
    remote: float | None
    samples: list[Sample]


class Report(msgspec.Struct, frozen=True):
    machine: str
    repeat: int
    size_mib: int
    chunk_mib: int
    results: list[Result]
    errors: dict[str, str]


def plan(configuration: Configuration, nodes: int, files: int, seed: int) -> list[tuple[int, int]]:
    """(node of the file and its write task, node of its read task) for each file."""
    table = PartitionTable.even(range(nodes))
    data = [number % nodes if configuration.informed else table.node_of(f"file{number}") for number in range(files)]
    readers = [number % nodes for number in range(files)]
    random.Random(seed).shuffle(readers)  # even, as a scheduler that knows nothing of the data would
    return list(zip(data, data if configuration.aware else readers, strict=True))


def task_lines(program: Path, settings: Settings, placed: Sequence[tuple[int, int] | None], log: Path) -> Iterator[str]:
    """The task list. Where ``placed`` is None the tasks run unstaged, in the directory of the run."""
    sizes = f"{settings.size * _MIB} {settings.chunk * _MIB} {log}"
    for number, nodes in enumerate(placed):
        name = f"file{number}"
        first, second = (f" -node {nodes[0]}", f" -node {nodes[1]}") if nodes else (" -unstaged", " -unstaged")
        yield f"w{number} -b {program} -o {name}{first} -a write {name} {sizes}\n"
        yield f"r{number} -b {program} -i {name}{second} -a read {name} {sizes}\n"


def sample(settings: Settings, log: Path, files: int, seconds: float) -> Sample:
    """What the tasks wrote into ``log`` and the clock said. Raises Failed if a task is missing."""
    took: dict[str, list[float]] = {"write": [], "read": []}
    for line in log.read_text().splitlines():
        word, value = line.split()
        took[word].append(float(value))
    log.unlink()
    if not len(took["write"]) == len(took["read"]) == files:
        raise Failed(f"{len(took['write'])} write and {len(took['read'])} read tasks of {files} each left their times")
    size = settings.size * _MIB
    write, read = (statistics.mean(size / max(value, 1e-9) for value in took[word]) for word in ("write", "read"))
    return Sample(write, read, 2 * size * files / seconds)


def run_filecopy(settings: Settings, disk: Path, memory: Path, say: Callable[[str], None] = lambda text: None) -> Report:
    """Measure all configurations, ``settings.repeat`` times in turn. What fails is reported as such and not tried again.

    Raises SystemSetupError if the programs cannot be made, Failed if no session can be had.
    """
    samples: dict[tuple[str, int], list[Sample]] = {}
    errors: dict[str, str] = {}

    def attempt(name: str, nodes: int, turn: int, once: Callable[[], Sample]) -> None:
        title = f"{name}, {nodes} nodes"
        if title in errors:
            return
        say(f"{title}, {turn + 1} of {settings.repeat}")
        try:
            samples.setdefault((name, nodes), []).append(once())
        except AmfsError as error:
            errors[title] = str(error)
            say(f"{title} failed: {error}")

    with workplace(memory) as work, workplace(disk) as on_disk, workplace(memory) as in_memory:
        bench = Bench(work, quick=False)
        warm_up(memory, max(settings.nodes) * settings.files * settings.size * _MIB)
        log = work / "log"
        for nodes in settings.nodes:
            files = settings.files * nodes

            def staged(configuration: Configuration, turn: int, env: dict[str, str], files: int = files, nodes: int = nodes) -> Sample:
                lines = task_lines(bench.programs["filecopy"], settings, plan(configuration, nodes, files, turn), log)
                return sample(settings, log, files, bench.run_list(lines, "--session", "bench", env=env).seconds)

            def beside(place: Path, files: int = files, nodes: int = nodes) -> Sample:
                (place / "tasks.txt").write_text("".join(task_lines(bench.programs["filecopy"], settings, [None] * files, log)))
                options = ("--local", "--slots", str(nodes), "--quiet", "--no-journal")
                try:
                    return sample(settings, log, files, bench.amfs("run", "tasks.txt", *options, cwd=place).seconds)
                finally:
                    for path in place.iterdir():
                        path.unlink()

            with session(bench, nodes) as (env, _pids):
                for turn in range(settings.repeat):
                    for configuration in CONFIGURATIONS if turn % 2 == 0 else reversed(CONFIGURATIONS):
                        attempt(configuration.name, nodes, turn, lambda c=configuration, t=turn, e=env: staged(c, t, e))  # type: ignore[misc]
                    attempt("disk", nodes, turn, lambda: beside(on_disk))
                    attempt("tmpfs", nodes, turn, lambda: beside(in_memory))
    results = [
        summarise(settings, name, nodes, known)
        for nodes in settings.nodes
        for name in ("disk", "tmpfs", *(configuration.name for configuration in CONFIGURATIONS))
        if (known := samples.get((name, nodes)))
    ]
    return Report(machine(), settings.repeat, settings.size, settings.chunk, results, errors)


def summarise(settings: Settings, name: str, nodes: int, samples: Sequence[Sample]) -> Result:
    files = settings.files * nodes
    fullest = remote = None
    for configuration in CONFIGURATIONS:
        if configuration.name == name:
            plans = [plan(configuration, nodes, files, turn) for turn in range(len(samples))]
            fullest = statistics.median(max(Counter(data for data, _ in placed).values()) * nodes / files for placed in plans)
            remote = statistics.mean(data != reader for placed in plans for data, reader in placed)

    def middle(values: Iterable[float]) -> float:
        return statistics.median(values)

    return Result(
        name, nodes, files,
        middle(s.write for s in samples), middle(s.read for s in samples), middle(s.whole for s in samples),
        fullest, remote, list(samples),
    )  # fmt: skip


def report_text(report: Report) -> str:
    """The report as people read it."""
    head = ("nodes", "files", "", "write task GB/s", "read task GB/s", "whole GB/s", "x disk", "fullest node", "read elsewhere")
    rows: list[Sequence[str]] = [head]
    for result in report.results:
        disk = next((r.whole for r in report.results if r.name == "disk" and r.nodes == result.nodes), None)
        rows.append(
            (
                str(result.nodes),
                str(result.files),
                result.name,
                *(f"{value / 1e9:.2f}" for value in (result.write, result.read, result.whole)),
                f"{result.whole / disk:.2f}" if disk else "",
                "" if result.fullest is None else f"{result.fullest:.2f}",
                "" if result.remote is None else f"{100 * result.remote:.0f} %",
            )
        )
    title = f"{report.machine} (median of {report.repeat}; files of {report.size_mib} MiB, {report.chunk_mib} MiB a call)"
    failed = [f"{name}: not measured: {why}" for name, why in report.errors.items()]
    return "\n\n".join([title, aligned(rows, (0, 1, 3, 4, 5, 6, 7, 8)), *failed])
