"""``benchmarks collective``: collective file movement between local nodes, beside MPI, with a fit of the cost model (AMFS Shell §5.1).

S is the bytes of all files together: one file for a multicast, else one for each node. The simulator goes on with the fitted costs.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.display.progress import size_text
from amfs.engine.collectives import ALGORITHMS, ALLGATHER, KINDS, MST, MULTICAST, SCATTER, rounds_of
from amfs.errors import AmfsError
from amfs.operations.collective import move
from amfs.sim.movement import Network, predict
from benchmarks.envelope_table import aligned
from benchmarks.fitting import fit
from benchmarks.mounts import Session

ROOM_BYTES = 4 << 30  # of all copies on this machine together
_MPI_SECONDS = 120.0
ALLGATHER_MAX = 256  # nodes, simulated

#: The program of each rank: buffers of the same bytes, the median of the slowest rank's times.
_MPI = """
import json, statistics, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, count = world.Get_rank(), world.Get_size()
found = {}
for size in map(int, sys.argv[2:]):
    for kind in ("multicast", "gather"):
        part = size if kind == "multicast" else max(1, size // count)
        mine, all_of_them = bytearray(part), bytearray(part * count if kind == "gather" and rank == 0 else 0)
        times = []
        for _ in range(int(sys.argv[1]) + 1):
            world.Barrier()
            began = MPI.Wtime()
            if kind == "multicast":
                world.Bcast([mine, MPI.BYTE], root=0)
            else:
                world.Gather([mine, MPI.BYTE], [all_of_them, MPI.BYTE] if rank == 0 else None, root=0)
            times.append(world.allreduce(MPI.Wtime() - began, op=MPI.MAX))
        found[f"{kind} {size}"] = statistics.median(times[1:])
if rank == 0:
    print(json.dumps(found))
"""


class Settings(NamedTuple):
    nodes: tuple[int, ...] = (2, 4, 8, 16)
    sizes: tuple[int, ...] = (1_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
    repeat: int = 3
    simulated: tuple[int, ...] = (16, 64, 256, 1024)
    kinds: tuple[str, ...] = KINDS
    mpi: bool = True


class Row(msgspec.Struct, frozen=True):
    """One measurement, the median; ``mpi_s``: the same bytes by MPI, None: not measured."""

    kind: str
    algorithm: str
    nodes: int
    size: int
    files: int
    rounds: int
    seconds: float
    mpi_s: float | None = None


class Fit(msgspec.Struct, frozen=True):
    """Seconds of a round (α) and of a byte (β), from one kind and algorithm; ``error``: median relative, of ``points`` measurements."""

    kind: str
    algorithm: str
    alpha_s: float
    beta_s: float
    error: float
    points: int


class Predicted(msgspec.Struct, frozen=True):
    kind: str
    algorithm: str
    nodes: int
    size: int
    seconds: float


class Report(msgspec.Struct, frozen=True):
    machine: str
    rows: list[Row]
    fits: list[Fit]
    predicted: list[Predicted]
    remarks: list[str]
    errors: dict[str, str]


def model(kind: str, algorithm: str, nodes: int, size: int) -> tuple[float, float]:
    """(rounds, bytes one after the other) of the paper's formulas; sequential: every copy waits for the one before."""
    share = (nodes - 1) / nodes * size
    tree, line = rounds_of(nodes), nodes - 1
    once, moved = (tree, float(tree * size)) if algorithm == MST else (line, float(line * size))
    if kind == MULTICAST:
        return once, moved
    if kind == ALLGATHER:
        return 2 * once, moved + share
    return once, share


def run_collective(settings: Settings, say: Callable[[str], None] = lambda text: None) -> Report:
    """Measure. A measurement that fails is reported with its reason."""
    rows: list[Row] = []
    errors: dict[str, str] = {}
    remarks: list[str] = []
    for nodes in settings.nodes:
        mpi: dict[str, float] = {}
        if settings.mpi:
            say(f"MPI with {nodes} ranks")
            mpi = _mpi(nodes, settings, remarks)
        say(f"{nodes} nodes")
        try:
            rows += _measured(nodes, settings, mpi, remarks, say)
        except (AmfsError, OSError, Failed) as error:
            errors[f"{nodes} nodes"] = str(error)
            say(f"{nodes} nodes failed: {error}")
    fits = _fits(rows, settings)
    return Report(machine(), rows, fits, _predicted(fits, settings), sorted(set(remarks)), errors)


def _measured(nodes: int, settings: Settings, mpi: dict[str, float], remarks: list[str], say: Callable[[str], None]) -> list[Row]:
    rows = []
    with Session(nodes) as session:
        os.environ["AMFS_RUN_DIR"], before = session.env["AMFS_RUN_DIR"], os.environ.get("AMFS_RUN_DIR")
        try:
            with Files(session.file, node=0) as files:
                for size in settings.sizes:
                    for kind in settings.kinds:
                        if size * nodes > ROOM_BYTES:
                            remarks.append(f"left out: {size_text(size)} on {nodes} nodes (more than {size_text(ROOM_BYTES)} of copies)")
                            continue
                        rows += [_one(files, kind, each, nodes, size, settings.repeat, mpi) for each in ALGORITHMS]
                    say(f"{nodes} nodes, {size_text(size)} done")
        finally:
            if before is None:
                del os.environ["AMFS_RUN_DIR"]
            else:
                os.environ["AMFS_RUN_DIR"] = before
    return rows


def _one(files: Files, kind: str, algorithm: str, nodes: int, size: int, repeat: int, mpi: dict[str, float]) -> Row:
    count = 1 if kind == MULTICAST else nodes
    data = os.urandom(max(1, size // count))
    times, rounds = [], 0
    for turn in range(repeat + 1):
        files.mkdir("/bench")
        for number in range(count):
            files.write_bytes(f"/bench/{number:04d}", data, rank=0 if kind in (MULTICAST, SCATTER) else number)
        done = move(files, kind, ["/bench"], root=None if kind == MULTICAST else 0, algorithm=algorithm)
        if not done.ok:
            raise Failed(f"{kind} by {algorithm}: {next(iter(done.failed.values()))}")
        if turn:  # the first one opens the connections between the nodes
            times.append(done.seconds)
        rounds = done.rounds
        files.rmtree("/bench")
    return Row(kind, algorithm, nodes, size, count, rounds, statistics.median(times), mpi.get(f"{kind} {size}"))


def _mpi(nodes: int, settings: Settings, remarks: list[str]) -> dict[str, float]:
    """Median seconds of Bcast ("multicast SIZE") and Gather."""
    own = Path(sys.executable).with_name("mpiexec")  # of the mpich wheel
    starter = str(own) if own.exists() else shutil.which("mpiexec") or shutil.which("mpirun")
    if starter is None:
        remarks.append("not beside MPI: there is no mpiexec")
        return {}
    words = [starter, "-n", str(nodes), sys.executable, "-c", _MPI, str(settings.repeat), *map(str, settings.sizes)]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=_MPI_SECONDS, env=env)
        return {str(key): float(value) for key, value in json.loads(ran.stdout).items()}
    except subprocess.TimeoutExpired:
        remarks.append(f"not beside MPI with {nodes} ranks: not done after {_MPI_SECONDS:.0f} s")
    except ValueError:
        last = (ran.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        remarks.append(f"not beside MPI with {nodes} ranks: {last}")
    return {}


def _fits(rows: Sequence[Row], settings: Settings) -> list[Fit]:
    found = []
    for kind in settings.kinds:
        for algorithm in ALGORITHMS:
            mine = [row for row in rows if (row.kind, row.algorithm) == (kind, algorithm)]
            if len(mine) >= 3:
                amounts = [model(kind, algorithm, row.nodes, row.size) for row in mine]
                (alpha, beta), error = fit(amounts, [row.seconds for row in mine])
                found.append(Fit(kind, algorithm, alpha, beta, error, len(mine)))
    return found


def _predicted(fits: Sequence[Fit], settings: Settings) -> list[Predicted]:
    found = []
    for each in fits:
        network = Network(each.alpha_s, 1 / each.beta_s if each.beta_s else 1e12, 0.0)
        for nodes in settings.simulated:
            for size in sorted({settings.sizes[0], settings.sizes[-1]}):
                if each.kind == ALLGATHER and nodes > ALLGATHER_MAX:
                    continue  # a million copies: half a minute of computing each
                count = 1 if each.kind == MULTICAST else nodes
                seconds = predict(each.kind, nodes, max(1, size // count), files=count, algorithm=each.algorithm, network=network)
                found.append(Predicted(each.kind, each.algorithm, nodes, size, seconds))
    return found


# ── text and picture ───────────────────────────────────────────────────────────────────────────────


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.1f}" if seconds < 10 else f"{seconds * 1000:.0f}"


def report_text(report: Report) -> str:
    """The report as people read it."""
    head = ("milliseconds", "nodes", "bytes", *ALGORITHMS, "MPI")
    cells: list[Sequence[str]] = [head]
    groups: dict[tuple[str, int, int], dict[str, Row]] = {}
    for row in report.rows:
        groups.setdefault((row.kind, row.nodes, row.size), {})[row.algorithm] = row
    for (kind, nodes, size), mine in sorted(groups.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1:])):
        any_row = next(iter(mine.values()))
        times = [_milliseconds(mine[each].seconds) if each in mine else "" for each in ALGORITHMS]
        cells.append((kind, str(nodes), size_text(size), *times, _milliseconds(any_row.mpi_s)))
    parts = [report.machine, "", aligned(cells, (1, 2, 3, 4, 5))]
    if report.fits:
        fitted: list[Sequence[str]] = [("fit of the cost model", "", "α, ms a round", "1/β, MB/s", "median error", "points")]
        for each in report.fits:
            rate = f"{1e-6 / each.beta_s:.0f}" if each.beta_s else "no limit"
            fitted.append((each.kind, each.algorithm, f"{each.alpha_s * 1e3:.2f}", rate, f"{each.error:.0%}", str(each.points)))
        parts += ["", aligned(fitted, (2, 3, 4, 5))]
    if report.predicted:
        simulated: list[Sequence[str]] = [("simulated with these costs, ms", "", "nodes", "bytes", "time")]
        for one in report.predicted:
            simulated.append((one.kind, one.algorithm, str(one.nodes), size_text(one.size), _milliseconds(one.seconds)))
        parts += ["", aligned(simulated, (2, 3, 4))]
    notes = [*report.remarks, *(f"{what}: not measured: {why}" for what, why in report.errors.items())]
    return "\n".join([*parts, *([""] if notes else []), *notes])


def picture(report: Report) -> str:
    """Times by size at the largest number of nodes, one panel a kind; then times by nodes of the smallest and the largest size."""
    from benchmarks.plots import document, lines

    panels = []
    most = max((row.nodes for row in report.rows), default=0)
    for kind in KINDS:
        mine = [row for row in report.rows if row.kind == kind and row.nodes == most]
        if mine:
            series = {each: [(float(row.size), row.seconds * 1e3) for row in mine if row.algorithm == each] for each in ALGORITHMS}
            mpi = {(float(row.size), row.mpi_s * 1e3) for row in mine if row.mpi_s}
            if mpi:
                series["MPI"] = sorted(mpi)
            panels.append(lines(f"{kind}, {most} nodes: milliseconds", {float(row.size): size_text(row.size) for row in mine}, series))
    for size in sorted({one.size for one in report.predicted}):
        found = [one for one in report.predicted if one.size == size and one.kind == MULTICAST]
        real = [row for row in report.rows if row.size == size and row.kind == MULTICAST]
        where = {float(n): str(n) for n in sorted({one.nodes for one in found} | {row.nodes for row in real})}
        series = {}
        for name in ALGORITHMS:
            series[f"{name}, measured"] = [(float(row.nodes), row.seconds * 1e3) for row in real if row.algorithm == name]
            series[f"{name}, simulated"] = [(float(one.nodes), one.seconds * 1e3) for one in found if one.algorithm == name]
        panels.append(lines(f"multicast of {size_text(size)} by nodes: milliseconds", where, series))
    return document(panels)
