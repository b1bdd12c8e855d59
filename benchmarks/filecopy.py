"""``benchmarks filecopy``: Hercules's file copy (data locality paper, §V-A): one write task and one read task for each file.

Owns the four configurations: data placement by hashing or informed (dealt evenly), task placement that ignores or follows the data. They
are run in two ways. Mounted, a file's node is set before it is written, and tasks run where the configuration says, through the mounts of
their nodes, as with Hercules. Staged, whole files lie where they are written, so that the write task runs where its file shall be and only
the read task's place differs. Beside them, in the same turn, the same tasks on a disk directory, in the part of the paper's shared file
system, and on tmpfs.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench.dispatch import Bench, machine
from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.errors import AmfsError
from amfs.vocabulary.partition import PartitionTable
from benchmarks import programs
from benchmarks.directories import warm_up, workplace
from benchmarks.envelope_table import aligned
from benchmarks.mounts import NAME, Session

_MIB = 1 << 20
WAYS = ("staged", "mounted")


class Settings(NamedTuple):
    """``ways``: some of WAYS. ``nodes``: sizes of the session, one after the other. ``files`` for each node: the problem grows with the
    nodes. ``size`` of a file and ``chunk`` of a call in MiB."""

    ways: tuple[str, ...] = WAYS
    nodes: tuple[int, ...] = (1, 2, 4)
    files: int = 4
    size: int = 64
    chunk: int = 8
    repeat: int = 3


class Configuration(NamedTuple):
    """``informed``: files are dealt evenly over the nodes, else hashed. ``aware``: tasks run where their file is or shall be."""

    name: str
    informed: bool
    aware: bool


CONFIGURATIONS = (
    Configuration("DP-def TP-loc-ag", False, False),
    Configuration("DP-inf TP-loc-ag", True, False),
    Configuration("DP-def TP-loc-aw", False, True),
    Configuration("DP-inf TP-loc-aw", True, True),
)


class Placed(NamedTuple):
    """The nodes of a file: where its data is, where its write task and its read task run."""

    data: int
    writer: int
    reader: int


class Sample(msgspec.Struct, frozen=True):
    """One run, in bytes a second: the mean of the write tasks and of the read tasks by their own clocks; and the whole, all bytes written
    and read over the time of the command, its start and end included."""

    write: float
    read: float
    whole: float


class Result(msgspec.Struct, frozen=True):
    """Medians of a configuration. ``way``: one of WAYS, "disk" or "tmpfs". ``fullest``: files on the node with most over the mean;
    ``remote``: share of the tasks that run elsewhere than their file is."""

    way: str
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


def plan(configuration: Configuration, way: str, nodes: int, files: int, seed: int) -> list[Placed]:
    """Where everything of each file is."""
    table = PartitionTable.even(range(nodes))
    chance = random.Random(seed)

    def anywhere() -> list[int]:
        """Even, as a scheduler that knows nothing of the data would."""
        found = [number % nodes for number in range(files)]
        chance.shuffle(found)
        return found

    data = [number % nodes if configuration.informed else table.node_of(f"file{number}") for number in range(files)]
    writers = data if configuration.aware or way == "staged" else anywhere()
    return [Placed(*each) for each in zip(data, writers, data if configuration.aware else anywhere(), strict=True)]


class Experiment:
    """All configurations on a session of so many nodes. ``log``: the file in which the tasks leave their times."""

    def __init__(self, bench: Bench, settings: Settings, nodes: int, session: Session, log: Path) -> None:
        self.bench, self.settings, self.nodes, self.session, self.log = bench, settings, nodes, session, log
        self.program = programs.build()["filecopy"]
        self.files = settings.files * nodes
        self.mounts = [session.mount(node) for node in range(nodes)] if "mounted" in settings.ways else []
        self._count = itertools.count()

    def _words(self, what: str, name: str | Path) -> str:
        return f"-a {what} {name} {self.settings.size * _MIB} {self.settings.chunk * _MIB} {self.log}\n"

    def _run(self, lines: Iterator[str], *options: str, cwd: Path) -> Sample:
        """``amfs run`` on a list of these lines. Raises Failed."""
        self.log.unlink(missing_ok=True)
        (cwd / "tasks.txt").write_text("".join(lines))
        words = ("run", "tasks.txt", *options, "--quiet", "--no-journal")
        seconds = self.bench.amfs(*words, cwd=cwd, env=self.session.env).seconds
        return sample(self.settings, self.log, self.files, seconds)

    def staged(self, configuration: Configuration, turn: int) -> Sample:

        def lines() -> Iterator[str]:
            for number, placed in enumerate(plan(configuration, "staged", self.nodes, self.files, turn)):
                name = f"file{number}"
                yield f"w{number} -b {self.program} -o {name} -node {placed.writer} {self._words('write', name)}"
                yield f"r{number} -b {self.program} -i {name} -node {placed.reader} {self._words('read', name)}"

        with self.bench.directory() as place:
            return self._run(lines(), "--session", NAME, cwd=place)

    def mounted(self, configuration: Configuration, turn: int) -> Sample:
        directory = f"filecopy{next(self._count)}"
        placed = plan(configuration, "mounted", self.nodes, self.files, turn)

        def lines() -> Iterator[str]:
            for number, each in enumerate(placed):
                there = [self.mounts[node] / directory / f"file{number}" for node in (each.writer, each.reader)]
                yield f"w{number} -b {self.program} -unstaged -node {each.writer} {self._words('write', there[0])}"
                yield f"r{number} -b {self.program} -unstaged -node {each.reader} -after w{number} {self._words('read', there[1])}"

        with Files(self.session.file) as files, self.bench.directory() as place:
            files.mkdir(f"/{directory}")
            try:
                for number, each in enumerate(placed):
                    files.set_rank(f"/{directory}/file{number}", each.data)
                return self._run(lines(), "--session", NAME, cwd=place)
            finally:
                files.rmtree(f"/{directory}")

    def beside(self, place: Path) -> Sample:
        """The same tasks in a directory, without amfs's own store."""

        def lines() -> Iterator[str]:
            for number in range(self.files):
                name = f"file{number}"
                yield f"w{number} -b {self.program} -o {name} -unstaged {self._words('write', name)}"
                yield f"r{number} -b {self.program} -i {name} -unstaged {self._words('read', name)}"

        with workplace(place) as inner:
            return self._run(lines(), "--local", "--slots", str(self.nodes), cwd=inner)


def sample(settings: Settings, log: Path, files: int, seconds: float) -> Sample:
    """Times that the tasks of ``files`` files wrote into ``log``, with the clock's. Raises Failed if a task is missing."""
    took: dict[str, list[float]] = {"write": [], "read": []}
    for line in log.read_text().splitlines() if log.exists() else ():
        word, value = line.split()
        took[word].append(float(value))
    log.unlink(missing_ok=True)
    if not len(took["write"]) == len(took["read"]) == files:
        raise Failed(f"{len(took['write'])} write and {len(took['read'])} read tasks of {files} each left their times")
    size = settings.size * _MIB
    write, read = (statistics.mean(size / max(value, 1e-9) for value in took[word]) for word in ("write", "read"))
    return Sample(write, read, 2 * size * files / seconds)


def run_filecopy(settings: Settings, disk: Path, memory: Path, say: Callable[[str], None] = lambda text: None) -> Report:
    """Measure all configurations, ``settings.repeat`` times in turn. One that fails is reported as such and not tried again.

    Raises SystemSetupError if the programs cannot be made, Failed if no session can be had.
    """
    samples: dict[tuple[str, str, int], list[Sample]] = {}
    errors: dict[str, str] = {}

    def attempt(way: str, name: str, nodes: int, turn: int, once: Callable[[], Sample]) -> None:
        title = f"{way} {name}, {nodes} nodes".replace(" ,", ",")
        if title in errors:
            return
        say(f"{title}, {turn + 1} of {settings.repeat}")
        try:
            samples.setdefault((way, name, nodes), []).append(once())
        except (AmfsError, OSError) as error:
            errors[title] = str(error)
            say(f"{title} failed: {error}")

    def all_turns(experiment: Experiment) -> None:
        measures = {"staged": experiment.staged, "mounted": experiment.mounted}
        nodes = experiment.nodes
        for turn in range(settings.repeat):
            for configuration in CONFIGURATIONS if turn % 2 == 0 else reversed(CONFIGURATIONS):
                for way in settings.ways:
                    attempt(way, configuration.name, nodes, turn, lambda c=configuration, t=turn, w=way: measures[w](c, t))  # type: ignore[misc]
            for way, place in (("disk", disk), ("tmpfs", memory)):
                attempt(way, "", nodes, turn, lambda p=place: experiment.beside(p))  # type: ignore[misc]

    with workplace(memory) as work:
        bench = Bench(work, quick=False)
        warm_up(memory, max(settings.nodes) * settings.files * settings.size * _MIB)
        for nodes in settings.nodes:
            with Session(nodes) as session:
                all_turns(Experiment(bench, settings, nodes, session, work / "log"))
    results = [
        summarise(settings, way, name, nodes, known)
        for nodes in settings.nodes
        for way in ("disk", "tmpfs", *settings.ways)
        for name in (("",) if way in ("disk", "tmpfs") else [configuration.name for configuration in CONFIGURATIONS])
        if (known := samples.get((way, name, nodes)))
    ]
    return Report(machine(), settings.repeat, settings.size, settings.chunk, results, errors)


def summarise(settings: Settings, way: str, name: str, nodes: int, samples: Sequence[Sample]) -> Result:
    """The medians, and what the plans of the turns say of them."""
    files = settings.files * nodes
    fullest = remote = None
    for configuration in CONFIGURATIONS:
        if configuration.name == name:
            plans = [plan(configuration, way, nodes, files, turn) for turn in range(len(samples))]
            fullest = statistics.median(max(Counter(each.data for each in placed).values()) * nodes / files for placed in plans)
            remote = statistics.mean(each.data != node for placed in plans for each in placed for node in each[1:])
    write, read, whole = (statistics.median(values) for values in zip(*((s.write, s.read, s.whole) for s in samples), strict=True))
    return Result(way, name, nodes, files, write, read, whole, fullest, remote, list(samples))


def report_text(report: Report) -> str:
    """The report as people read it."""
    head = ("nodes", "files", "", "", "write task GB/s", "read task GB/s", "whole GB/s", "x disk", "fullest node", "tasks elsewhere")
    rows: list[Sequence[str]] = [head]
    for result in report.results:
        disk = next((r.whole for r in report.results if r.way == "disk" and r.nodes == result.nodes), None)
        rows.append(
            (
                str(result.nodes),
                str(result.files),
                result.way,
                result.name,
                *(f"{value / 1e9:.2f}" for value in (result.write, result.read, result.whole)),
                f"{result.whole / disk:.2f}" if disk else "",
                "" if result.fullest is None else f"{result.fullest:.2f}",
                "" if result.remote is None else f"{100 * result.remote:.0f} %",
            )
        )
    title = f"{report.machine} (median of {report.repeat}; files of {report.size_mib} MiB, {report.chunk_mib} MiB a call)"
    failed = [f"{name}: not measured: {why}" for name, why in report.errors.items()]
    return "\n\n".join([title, aligned(rows, (0, 1, 4, 5, 6, 7, 8, 9)), *failed])
