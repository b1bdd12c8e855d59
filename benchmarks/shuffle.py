"""``benchmarks shuffle``: the partitioner beside memcpy and other programs that do the same, and whole shuffles with a fit of the cost
model (AMFS Shell §5.1)."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.display.progress import size_text
from amfs.errors import AmfsError
from amfs.libexec import program
from amfs.operations.shuffle import shuffle
from benchmarks import directories as d
from benchmarks.envelope_table import aligned
from benchmarks.fitting import fit
from benchmarks.mounts import Session

MEMCPY_TARGET, AWK_TARGET = 0.25, 10.0
_SECONDS = 600.0

#: The same work in awk: a hash of the first column's letters, and the line to the file of that part.
_AWK = """
BEGIN { for (i = 0; i < 256; i++) ord[sprintf("%c", i)] = i }
{ h = 0; n = length($1); for (i = 1; i <= n; i++) h = (h * 31 + ord[substr($1, i, 1)]) % 1000003; print > (to "/p" (h % parts)) }
"""
_POLARS = """
import sys, polars as pl
source, to, parts = sys.argv[1], sys.argv[2], int(sys.argv[3])
lines = pl.read_csv(source, has_header=False, separator="\\x01", quote_char=None, new_columns=["line"], schema={"line": pl.String})
key = pl.col("line").str.split_exact(" ", 1).struct.field("field_0")
for (part,), mine in lines.with_columns((key.hash() % parts).alias("part")).partition_by("part", as_dict=True).items():
    mine.select("line").write_csv(f"{to}/p{part}", include_header=False, quote_style="never")
"""
_DUCKDB = """
import sys, duckdb
source, to, parts = sys.argv[1], sys.argv[2], int(sys.argv[3])
duckdb.sql("SET threads = 1")
read = f"read_csv('{source}', header = false, sep = '\\x01', quote = '', escape = '', columns = {{'line': 'VARCHAR'}})"
how = "FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\\x01', PARTITION_BY (part), OVERWRITE_OR_IGNORE"
duckdb.sql(f"COPY (SELECT line, hash(split_part(line, ' ', 1)) % {parts} AS part FROM {read}) TO '{to}' ({how})")
"""


class Settings(NamedTuple):
    """``size`` of the file that is partitioned, ``parts`` of it; ``lines``: bytes of one, about; whole shuffles of ``total`` bytes."""

    size: int = 200_000_000
    lines: tuple[int, ...] = (20, 60, 200, 1000)
    parts: int = 16
    nodes: tuple[int, ...] = (1, 2, 4, 8)
    total: tuple[int, ...] = (20_000_000, 200_000_000)
    repeat: int = 3


class Kernel(msgspec.Struct, frozen=True):
    """The partitioner from memory to memory, on one core, beside memcpy of the same bytes; bytes a second."""

    line: int
    rate: float
    memcpy: float
    ratio: float
    target: float
    passed: bool


class Program(msgspec.Struct, frozen=True):
    """A program that partitions a file in memory into files in memory. ``times``: how often faster amfs-partition is."""

    name: str
    line: int
    seconds: float
    rate: float
    times: float
    target: float | None
    passed: bool | None


class Whole(msgspec.Struct, frozen=True):
    """A shuffle on local nodes, with one file and one slot a node."""

    nodes: int
    size: int
    seconds: float
    rate: float


class Report(msgspec.Struct, frozen=True):
    """``alpha_s`` of each further node, ``beta_s`` of each byte on one node (b + d of the paper), ``start_s``: of the run; ``error``:
    median, relative, of the fit."""

    machine: str
    parts: int
    kernels: list[Kernel]
    programs: list[Program]
    wholes: list[Whole]
    start_s: float
    alpha_s: float
    beta_s: float
    error: float | None
    remarks: list[str]
    errors: dict[str, str]


def make_lines(path: Path, size: int, line: int, seed: int = 1) -> None:
    """A file of about ``size`` bytes: keys like k123456, then other columns up to ``line`` bytes, more or less."""
    rng = random.Random(seed)
    block: list[bytes] = []
    made = 0
    while made < min(size, 4 << 20):
        text = b"k%d " % rng.randrange(1_000_000)
        text += b"x" * max(0, rng.randrange(line // 2, line + line // 2 + 1) - len(text) - 1) + b"\n"
        block.append(text)
        made += len(text)
    once = b"".join(block)
    with path.open("wb") as file:
        for _ in range(max(1, round(size / len(once)))):
            file.write(once)


def run_shuffle(settings: Settings, say: Callable[[str], None] = lambda text: None) -> Report:
    """Measure. A measurement that fails is reported with its reason."""
    errors: dict[str, str] = {}
    remarks: list[str] = []
    kernels: list[Kernel] = []
    programs: list[Program] = []
    with d.workplace(d.memory_directory()) as place:
        for line in settings.lines:
            say(f"lines of {line} bytes")
            source = Path(place) / "lines"
            make_lines(source, settings.size, line)
            try:
                kernels.append(_kernel(source, line, settings))
                programs += _programs(source, Path(place), line, settings, remarks)
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                errors[f"lines of {line} bytes"] = str(error)
    wholes: list[Whole] = []
    for nodes in settings.nodes:
        for size in settings.total:
            say(f"{size_text(size)} on {nodes} nodes")
            try:
                wholes.append(_whole(nodes, size, settings))
            except (AmfsError, OSError, Failed) as error:
                errors[f"{size_text(size)} on {nodes} nodes"] = str(error)
    costs, error_of_fit = [0.0, 0.0, 0.0], None
    if len(wholes) >= 4:
        costs, error_of_fit = fit([(1.0, each.nodes - 1.0, each.size / each.nodes) for each in wholes], [each.seconds for each in wholes])
    return Report(
        machine(), settings.parts, kernels, programs, wholes, costs[0], costs[1], costs[2], error_of_fit, sorted(set(remarks)), errors
    )


def _kernel(source: Path, line: int, settings: Settings) -> Kernel:
    rates, copies = [], []
    for _ in range(max(3, settings.repeat)):
        words = [program("amfs-partition"), "-t", "-n", str(settings.parts), str(source)]
        size, spent, copied = subprocess.run(words, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout.split()
        rates.append(int(size) / float(spent))
        copies.append(int(size) / float(copied))
    rate, memcpy = statistics.median(rates), statistics.median(copies)
    return Kernel(line, rate, memcpy, rate / memcpy, MEMCPY_TARGET, rate / memcpy >= MEMCPY_TARGET)


def _programs(source: Path, place: Path, line: int, settings: Settings, remarks: list[str]) -> list[Program]:
    target, parts = place / "parts", str(settings.parts)
    words = {
        "amfs-partition": [program("amfs-partition"), "-n", parts, f"{target}/p", str(source)],
        "awk": ["awk", "-v", f"to={target}", "-v", f"parts={parts}", _AWK, str(source)],
        "sort": ["sort", "-s", "-k1,1", "-o", f"{target}/p", str(source)],
        "polars": [sys.executable, "-c", _POLARS, str(source), str(target), parts],
        "duckdb": [sys.executable, "-c", _DUCKDB, str(source), str(target), parts],
    }
    found: dict[str, float] = {}
    for name, command in words.items():
        if name in ("awk", "sort") and shutil.which(name) is None:
            remarks.append(f"not beside {name}: it is not installed")
            continue
        if name in ("polars", "duckdb") and subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode:
            remarks.append(f"not beside {name}: the Python package is not installed")
            continue
        times = []
        for _ in range(settings.repeat if name == "amfs-partition" else 1):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            began = time.perf_counter()
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env={**os.environ, "LC_ALL": "C"})
            times.append(time.perf_counter() - began)
            if ran.returncode:
                remarks.append(f"not beside {name}: {(ran.stderr.strip().splitlines() or ['it failed'])[-1]}")
                times = []
                break
        if times:
            found[name] = statistics.median(times)
    shutil.rmtree(target, ignore_errors=True)
    ours, size = found["amfs-partition"], source.stat().st_size
    rows = []
    for name, seconds in found.items():
        times_of, wanted = seconds / ours, AWK_TARGET if name == "awk" else None
        rows.append(Program(name, line, seconds, size / seconds, times_of, wanted, None if wanted is None else times_of >= wanted))
    return rows


def _whole(nodes: int, size: int, settings: Settings) -> Whole:
    with Session(nodes) as session, d.workplace(d.memory_directory()) as place:
        before = os.environ.get("AMFS_RUN_DIR")
        os.environ["AMFS_RUN_DIR"] = session.env["AMFS_RUN_DIR"]
        try:
            with Files(session.file, node=0) as files:
                files.mkdir("/in")
                for node in range(nodes):
                    make_lines(Path(place) / "lines", size // nodes, 60, node)
                    files.put_file(f"{place}/lines", f"/in/{node}", rank=node)
                times = []
                for turn in range(settings.repeat + 1):
                    began = time.perf_counter()
                    done = shuffle(files, "/in", f"/out{turn}")
                    if not done.run.ok:
                        raise Failed(str(done.run))
                    if turn:  # the first one opens the connections between the nodes
                        times.append(time.perf_counter() - began)
                    files.rmtree(f"/out{turn}")
        finally:
            if before is None:
                del os.environ["AMFS_RUN_DIR"]
            else:
                os.environ["AMFS_RUN_DIR"] = before
    seconds = statistics.median(times)
    return Whole(nodes, done.size, seconds, done.size / seconds)


# ── text and picture ───────────────────────────────────────────────────────────────────────────────


def _verdict(passed: bool | None) -> str:
    return "" if passed is None else "PASS" if passed else "miss"


def report_text(report: Report) -> str:
    """The report as people read it."""
    parts = [report.machine]
    if report.kernels:
        cells: list[Sequence[str]] = [("one core, memory to memory", "GB/s", "memcpy", "ratio", "target", "")]
        for row in report.kernels:
            rates = f"{row.rate / 1e9:.2f}", f"{row.memcpy / 1e9:.2f}"
            cells.append((f"lines of {row.line} bytes", *rates, f"{row.ratio:.2f}", f"≥ {row.target:g}", _verdict(row.passed)))
        parts += ["", aligned(cells, (1, 2, 3, 4))]
    if report.programs:
        cells = [(f"one file into {report.parts}", "line", "s", "MB/s", "amfs faster by", "target", "")]
        for one in report.programs:
            target = "" if one.target is None else f"≥ {one.target:g}"
            facts = str(one.line), f"{one.seconds:.2f}", f"{one.rate / 1e6:.0f}", f"{one.times:.1f}"
            cells.append((one.name, *facts, target, _verdict(one.passed)))
        parts += ["", aligned(cells, (1, 2, 3, 4, 5))]
    if report.wholes:
        cells = [("amfs shuffle", "nodes", "s", "MB/s")]
        cells += [(size_text(each.size), str(each.nodes), f"{each.seconds:.3f}", f"{each.rate / 1e6:.0f}") for each in report.wholes]
        parts += ["", aligned(cells, (1, 2, 3))]
    if report.error is not None:
        rate = f"{1e-6 / report.beta_s:.0f} MB/s a node" if report.beta_s else "no cost of bytes seen"
        costs = f"{report.start_s * 1e3:.0f} ms + {report.alpha_s * 1e3:.1f} ms a further node + bytes at {rate}"
        parts += ["", f"fit of the cost model: {costs}; median error {report.error:.0%}"]
    notes = [*report.remarks, *(f"{what}: not measured: {why}" for what, why in report.errors.items())]
    return "\n".join([*parts, *([""] if notes else []), *notes])


def picture(report: Report) -> str:
    """Rates by line length; times of whole shuffles by nodes."""
    from benchmarks.plots import document, lines

    panels = []
    if report.kernels:
        series = {"amfs-partition, in memory": [(float(row.line), row.rate / 1e6) for row in report.kernels]}
        series["memcpy"] = [(float(row.line), row.memcpy / 1e6) for row in report.kernels]
        for one in report.programs:
            series.setdefault(f"{one.name}, file to files", []).append((float(one.line), one.rate / 1e6))
        panels.append(lines("MB/s by bytes of a line", {float(row.line): str(row.line) for row in report.kernels}, series))
    if report.wholes:
        sizes = sorted({each.size for each in report.wholes})
        by_size = {size_text(size): [(float(each.nodes), each.seconds) for each in report.wholes if each.size == size] for size in sizes}
        panels.append(lines("amfs shuffle: seconds by nodes", {float(each.nodes): str(each.nodes) for each in report.wholes}, by_size))
    return document(panels)
