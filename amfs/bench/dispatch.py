"""``amfs bench dispatch``: rates of the engine, each row beside its reference, in one run.

Owns the rows: the command, its reference, and the target. Drives the real ``amfs run`` as a user would, with task lists in AME's format. A
row's reference runs right before or right after it, in turn, since only ratios within one run mean anything on a machine that others use,
too. docs/benchmarks.md explains every row.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from amfs.bench import process, programs
from amfs.errors import AmfsError, SystemSetupError

LARGE_BYTES = 100_000_000
T = TypeVar("T")


class Line(NamedTuple):
    """One line of the table. ``at_least``: the ratio (without a reference, the value) must reach ``target``; else stay below it."""

    key: str
    title: str
    unit: str
    reference: str  # the measure to compare it with, "": none
    at_least: bool
    target: float


class Sample(msgspec.Struct, frozen=True):
    """One measurement. ``engine_us``: CPU (user + system) of all amfs processes for each task, without the tasks' own."""

    value: float
    reference: float | None = None
    engine_us: float | None = None
    note: str = ""

    @property
    def judged(self) -> float:
        """The number that the target is about."""
        return self.value if self.reference is None else self.value / self.reference


class Result(msgspec.Struct, frozen=True):
    """A line of the table with its medians. ``ratio`` is the median of the ratios, each within one turn."""

    key: str
    title: str
    unit: str
    compared_with: str
    relation: str
    target: float
    value: float | None = None
    reference: float | None = None
    ratio: float | None = None
    engine_us: float | None = None
    passed: bool = False
    error: str = ""
    note: str = ""
    samples: list[Sample] = []


class Report(msgspec.Struct, frozen=True):
    machine: str
    repeat: int
    quick: bool
    rows: list[Result]


class Bench:
    """The means of the rows: programs, a place to work in, and how to run amfs."""

    def __init__(self, work: Path, quick: bool) -> None:
        self.work = work
        self.quick = quick
        self.programs = programs.build()
        self._count = itertools.count()

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def amfs(self, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> process.Ran:
        """``amfs ARGUMENTS`` to its end. Raises Failed."""
        return process.run([sys.executable, "-m", "amfs.cli.main", *map(str, arguments)], cwd or self.work, env=env)

    def run_list(self, lines: Iterable[str], *options: str, env: Mapping[str, str] | None = None) -> process.Ran:
        """``amfs run`` on a list of these lines, in a new directory that is removed afterwards. Raises Failed."""
        with self.directory() as place:
            tasks = place / "tasks.txt"
            tasks.write_text("".join(lines))
            where = options or ("--local", "--slots", "2")
            return self.amfs("run", tasks, *where, "--quiet", "--journal", place / "journal", cwd=place, env=env)

    def vforkloop(self, count: int, width: int, *command: str | Path) -> float:
        """Seconds for ``count`` runs of a program, ``width`` at a time, from C."""
        ran = process.run([str(self.programs["vforkloop"]), str(count), str(width), *map(str, command)], self.work)
        return float(ran.stdout.split()[0])

    def xargs(self, count: int) -> float:
        """Seconds for ``count`` times /bin/true under ``xargs -P2 -n1``, the whole command."""
        if shutil.which("xargs") is None:
            raise SystemSetupError("xargs is not installed; it comes with findutils")
        words = self.work / "words"
        words.write_text("".join(f"{number}\n" for number in range(count)))
        return process.run(["xargs", "-a", str(words), "-P2", "-n1", "/bin/true"], self.work).seconds

    @contextmanager
    def directory(self) -> Iterator[Path]:
        place = self.work / f"d{next(self._count)}"
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


class Row(NamedTuple):
    """Something that is measured in one go and gives one or more lines. ``measure`` takes the turn, from 0; lines that this machine does
    not allow are missing from what it returns."""

    key: str
    lines: tuple[Line, ...]
    measure: Callable[[Bench, int], dict[str, Sample]]


def both(turn: int, ours: Callable[[], T], reference: Callable[[], float]) -> tuple[T, float]:
    """Ours and the reference one right after the other; which is first changes from turn to turn."""
    if turn % 2:
        mine = ours()
        return mine, reference()
    theirs = reference()
    return ours(), theirs


# ── the rows ───────────────────────────────────────────────────────────────────────────────────────


def pair_lines(bench: Bench, count: int, nodes: int = 0) -> Iterator[str]:
    """``count`` times produce -> consume; with ``nodes``, the two always on different nodes, all of them in turn."""
    produce, consume = bench.programs["produce"], bench.programs["consume"]
    for number in range(count):
        first = f" -node {number % nodes}" if nodes else ""
        second = f" -node {(number + 1 + number // nodes % (nodes - 1)) % nodes}" if nodes else ""
        yield f"p{number} -b {produce} -o f{number}{first} -a f{number}\n"
        yield f"c{number} -b {consume} -i f{number}{second} -a f{number}\n"


def measure_true(bench: Bench, turn: int) -> dict[str, Sample]:
    count = bench.size(10_000, 1_000)
    ran, theirs = both(turn, lambda: bench.run_list(f"t{i} -b /bin/true\n" for i in range(count)), lambda: bench.xargs(count))
    return {"true": Sample(count / ran.seconds, count / theirs, ran.cpu_s / count * 1e6)}


def measure_noop(bench: Bench, turn: int) -> dict[str, Sample]:
    count = bench.size(50_000, 5_000)
    noop = bench.programs["noop"]
    ran, theirs = both(
        turn, lambda: bench.run_list(f"t{i} -b {noop}\n" for i in range(count)), lambda: bench.vforkloop(count, 2, noop)
    )
    return {"noop": Sample(count / ran.seconds, count / theirs, ran.cpu_s / count * 1e6)}


def measure_pairs(bench: Bench, turn: int) -> dict[str, Sample]:
    count = bench.size(5_000, 500)
    ran, theirs = both(turn, lambda: bench.run_list(pair_lines(bench, count)), lambda: bench.xargs(count))
    return {"pairs": Sample(count / ran.seconds, count / theirs, ran.cpu_s / (2 * count) * 1e6)}


def measure_chain(bench: Bench, turn: int) -> dict[str, Sample]:
    count = bench.size(2_000, 300)
    produce = bench.programs["produce"]

    def lines() -> Iterator[str]:
        yield f"s0 -b {produce} -o f0 -a f0\n"
        for i in range(1, count):
            yield f"s{i} -b {produce} -i f{i - 1} -o f{i} -a f{i} f{i - 1}\n"

    def theirs() -> float:
        with bench.directory() as place:
            process.run([str(produce), "before"], place)
            return bench.vforkloop(count, 1, produce, place / "after", place / "before")

    ran, seconds = both(turn, lambda: bench.run_list(lines()), theirs)
    return {"chain": Sample(ran.seconds, seconds, ran.cpu_s / count * 1e6)}


def measure_first(bench: Bench, turn: int) -> dict[str, Sample]:
    """The first task leaves a file; its time stamp says when it ran."""
    with bench.directory() as place:
        mark = place / "first-was-here"
        tasks = place / "tasks.txt"
        others = (f"t{i} -b /bin/true\n" for i in range(100))
        tasks.write_text(f"first -b {bench.programs['produce']} -a {mark}\n" + "".join(others))
        ran = bench.amfs("run", tasks, "--local", "--slots", "2", "--quiet", "--journal", place / "journal", cwd=place)
        return {"first": Sample(mark.stat().st_mtime - ran.started_s)}


def measure_load(bench: Bench, turn: int) -> dict[str, Sample]:
    sizes = (100_000, bench.size(1_000_000, 300_000))
    found = []
    with bench.directory() as place:
        for count in sizes:
            path = place / "list.txt"
            with path.open("w") as file:
                file.writelines(pair_lines(bench, count // 2))
            ran = process.run([sys.executable, "-m", "amfs.bench.loading", str(path)], place)
            seconds, grown, tasks = map(float, ran.stdout.split())
            if int(tasks) != count:
                raise process.Failed(f"{int(tasks)} of {count} tasks were loaded")
            found.append((seconds, grown / count))
    (short_s, short_bytes), (long_s, long_bytes) = found
    many = f"{sizes[1]:,} tasks"
    return {
        "load": Sample(short_s),
        "load-bytes": Sample(short_bytes),
        "load-many": Sample(long_s, short_s * sizes[1] / sizes[0], note=many),
        "load-many-bytes": Sample(long_bytes, note=many),
    }


@contextmanager
def session(bench: Bench, nodes: int) -> Iterator[tuple[dict[str, str], list[int]]]:
    """A session of local nodes with one slot each: the environment in which "bench" is its name, and the pids of the nodes."""
    from amfs.net.records import load

    sessions = tempfile.mkdtemp(prefix="amfs-bench-", dir="/tmp")  # short: sockets lie in it
    env = {**os.environ, "AMFS_RUN_DIR": sessions}
    try:
        bench.amfs("up", "--nodes", str(nodes), "--slots", "1", "--name", "bench", env=env)
        try:
            yield env, [node.pid for node in load(Path(sessions) / "bench" / "session.json").nodes]
        finally:
            with suppress(process.Failed):  # if it is gone already, the run in it says so
                bench.amfs("down", "bench", env=env)
    finally:
        shutil.rmtree(sessions, ignore_errors=True)


def measure_nodes(bench: Bench, turn: int) -> dict[str, Sample]:
    count, nodes = bench.size(3_000, 500), 4

    def four() -> tuple[float, float]:
        with session(bench, nodes) as (env, pids):
            before = sum(process.cpu_of(pid)[0] for pid in pids)
            ran = bench.run_list(pair_lines(bench, count, nodes), "--session", "bench", env=env)
            return ran.seconds, ran.cpu_s + sum(process.cpu_of(pid)[0] for pid in pids) - before

    (seconds, cpu_s), one_node = both(turn, four, lambda: bench.run_list(pair_lines(bench, count)).seconds)
    return {"nodes": Sample(count / seconds, count / one_node, cpu_s / (2 * count) * 1e6)}


def measure_transfer(bench: Bench, turn: int) -> dict[str, Sample]:
    """Once in a store as amfs makes it, once in a store on huge pages where we may mount them: the pages decide (docs/benchmarks.md)."""
    from amfs.bench.transfer import fetch_seconds, huge_pages
    from amfs.node.store import Store

    times = bench.size(9, 5)

    def ours(parent: str) -> float:
        store = Store("bench", 0, parent)
        try:
            return statistics.median(fetch_seconds(store.root, LARGE_BYTES, times))
        finally:
            store.close()

    def theirs() -> float:
        ran = process.run([str(bench.programs["tcploop"]), str(LARGE_BYTES), str(times)], bench.work)
        return statistics.median(map(float, ran.stdout.split()))

    mine, seconds = both(turn, lambda: ours(""), theirs)
    found = {"transfer": Sample(LARGE_BYTES / mine / 1e9, LARGE_BYTES / seconds / 1e9)}
    with bench.directory() as place, huge_pages(place) as mounted:
        if mounted:
            mine, seconds = both(turn, lambda: ours(str(place)), theirs)
            found["transfer-huge"] = Sample(LARGE_BYTES / mine / 1e9, LARGE_BYTES / seconds / 1e9)
    return found


ROWS = (
    Row("true", (Line("true", "/bin/true from a task list", "tasks/s", "xargs -P2 -n1", True, 1.2),), measure_true),
    Row("noop", (Line("noop", "no-op without C library", "tasks/s", "C vfork loop, 2 at a time", True, 0.6),), measure_noop),
    Row("pairs", (Line("pairs", "produce -> consume, staged", "pairs/s", "xargs -P2 -n1, tasks", True, 0.6),), measure_pairs),
    Row("chain", (Line("chain", "serial chain of tasks", "s", "C, one after the other", False, 1.5),), measure_chain),
    Row("first", (Line("first", "first task after `amfs run`", "s", "", False, 0.2),), measure_first),
    Row(
        "load",
        (
            Line("load", "load and check 100,000 tasks", "s", "", False, 1.0),
            Line("load-bytes", "  memory", "bytes a task", "", False, 1024.0),
            Line("load-many", "load and check many more", "s", "as long a task as above", False, 1.25),
            Line("load-many-bytes", "  memory", "bytes a task", "", False, 1024.0),
        ),
        measure_load,
    ),
    Row("nodes", (Line("nodes", "pairs over two of 4 local nodes", "pairs/s", "the same on one node", True, 0.6),), measure_nodes),
    Row(
        "transfer",
        (
            Line("transfer", "100 MB from node to node", "GB/s", "raw TCP loopback in C", True, 0.7),
            Line("transfer-huge", "  store on huge pages", "GB/s", "raw TCP loopback in C", True, 0.7),
        ),
        measure_transfer,
    ),
)


# ── running them ───────────────────────────────────────────────────────────────────────────────────


def work_parent() -> str | None:
    """Task lists, shared inputs and final outputs lie in memory, so that no disk is measured; None: the temporary directory."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def run_rows(
    only: Sequence[str] = (), *, repeat: int = 3, quick: bool = False, say: Callable[[str], None] = lambda text: None
) -> Report:
    """Measure the rows named (all if none), ``repeat`` times in turn. A row that fails is reported as such and not tried again.

    Raises SystemSetupError if the programs to compare with cannot be made.
    """
    rows = [row for row in ROWS if not only or row.key in only]
    samples: dict[str, list[dict[str, Sample]]] = {row.key: [] for row in rows}
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent(), ignore_cleanup_errors=True) as work:
        bench = Bench(Path(work), quick)
        for turn in range(repeat):
            for row in rows:
                if row.key in errors:
                    continue
                say(f"{row.key}, {turn + 1} of {repeat}")
                try:
                    samples[row.key].append(row.measure(bench, turn))
                except AmfsError as error:
                    errors[row.key] = str(error)
                    say(f"{row.key} failed: {error}")
    results = []
    for row in rows:
        for line in row.lines:
            known = [found[line.key] for found in samples[row.key] if line.key in found]
            if known or row.key in errors:
                results.append(summarise(line, known, errors.get(row.key, "")))
    return Report(machine(), repeat, quick, results)


def summarise(line: Line, samples: Sequence[Sample], error: str = "") -> Result:
    """The medians of a line, and whether they are good enough."""

    def median(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    relation = "at least" if line.at_least else "at most"
    base = (line.key, line.title, line.unit, line.reference, relation, line.target)
    if error:
        return Result(*base, error=error, samples=list(samples))
    judged = statistics.median(sample.judged for sample in samples)
    return Result(
        *base,
        value=median(sample.value for sample in samples),
        reference=median(sample.reference for sample in samples),
        ratio=judged if line.reference else None,
        engine_us=median(sample.engine_us for sample in samples),
        passed=judged >= line.target if line.at_least else judged <= line.target,
        note=samples[-1].note,
        samples=list(samples),
    )


def machine() -> str:
    """This machine in one line."""
    import platform

    cpus = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{cpus} CPUs, {memory:.0f} GiB, Linux {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
