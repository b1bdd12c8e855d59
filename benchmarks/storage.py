"""``benchmarks storage``: concurrent reads, writes and reads after writes of many files of growing size (cloud storage paper, §6).

Owns the patterns, the clients and the tables. A place is a directory or a URL of fsspec.
"""

from __future__ import annotations

import itertools
import os
import secrets
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.errors import AmfsError
from benchmarks.envelope_table import aligned, share
from benchmarks.plots import document, lines
from benchmarks.storage_worker import Order, Times

PATTERNS = ("write", "read", "raw")
TITLES = {"write": "concurrent write", "read": "concurrent read", "raw": "read after write"}
_HANG_SECONDS = 300.0
_START_SECONDS = 30.0


class Settings(NamedTuple):
    """``files`` of each of ``sizes`` (bytes), by ``clients`` processes at a time."""

    files: int = 40
    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    clients: int = 4
    repeat: int = 3


class Place(NamedTuple):
    """``where``: a directory of ours or a URL; below it the files go."""

    title: str
    where: str


class Result(msgspec.Struct, frozen=True):
    """Medians. ``rate``: bytes of the files over the time from the first beginning to the last end; of "raw", files written and read count
    once. ``ratio`` to the first place, from the turns."""

    place: str
    pattern: str
    size: int
    rate: float
    ratio: float
    samples: list[float]


class Report(msgspec.Struct, frozen=True):
    machine: str
    files: int
    clients: int
    repeat: int
    places: list[str]
    sizes: list[int]
    results: list[Result]
    errors: dict[str, str]

    def find(self, place: str, pattern: str, size: int) -> Result | None:
        return next((r for r in self.results if (r.place, r.pattern, r.size) == (place, pattern, size)), None)


class Clients:
    """The processes, kept for the whole benchmark. ``env``: their environment, None: ours."""

    def __init__(self, count: int, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.storage_worker"]
        self._processes = [
            subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) for _ in range(count)
        ]

    def run(self, orders: Sequence[Order]) -> float:
        """One order for each process (or for as many as there are orders), begun together; seconds. Raises Failed."""
        used = self._processes[: len(orders)]
        for process, order in zip(used, orders, strict=True):
            self._tell(process, msgspec.json.encode(order))
        for process in used:
            if self._line(process, _START_SECONDS) != b"ready\n":
                raise Failed("a client did not get ready")
        for process in used:
            self._tell(process, b"go")
        limit = time.monotonic() + _HANG_SECONDS
        answers = [self._line(process, limit - time.monotonic()) for process in used]
        times = [msgspec.json.decode(answer, type=Times) for answer in answers]
        for found in times:
            if found.error:
                raise Failed(found.error)
        return max(found.ended for found in times) - min(found.begun for found in times)

    def _tell(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        stdin: IO[bytes] | None = process.stdin
        assert stdin is not None
        try:
            stdin.write(line + b"\n")
            stdin.flush()
        except OSError:
            raise Failed("a client has ended") from None

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], max(0.0, seconds))[0]:
            raise Failed(f"a client gave no answer within {_HANG_SECONDS:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise Failed("a client has ended")
        return line

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except OSError:
                    continue  # what was not written is for nobody

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_storage(
    places: Sequence[Place], settings: Settings, say: Callable[[str], None] = lambda text: None, env: Mapping[str, str] | None = None
) -> Report:
    """Measure all places, ``settings.repeat`` times in turn, by clients with the environment ``env`` (None: ours).

    What fails is reported as such and not tried again."""
    rates: dict[tuple[str, str, int], list[float]] = {}
    errors: dict[str, str] = {}
    count = itertools.count()
    name = f"amfs-bench-{os.getpid()}-{secrets.token_hex(4)}"  # nobody else's: it is removed with all that is in it
    clients = Clients(settings.clients, env)
    try:
        for turn in range(settings.repeat):
            for size in settings.sizes:
                for place in places if turn % 2 == 0 else list(reversed(places)):
                    if place.title in errors:
                        continue
                    say(f"{place.title}, {settings.files} files of {size_words(size)}, {turn + 1} of {settings.repeat}")
                    where = f"{place.where}{'' if place.where.endswith('/') else '/'}{name}-{next(count)}"
                    try:
                        found = measure(clients, where, settings, size)
                    except AmfsError as error:
                        errors[place.title] = str(error)
                        say(f"{place.title} failed: {error}")
                        clients.close()  # they may be anywhere in what they were told
                        clients = Clients(settings.clients, env)
                        continue
                    for pattern, rate in found.items():
                        rates.setdefault((place.title, pattern, size), []).append(rate)
    finally:
        clients.close()
    results = []
    for (title, pattern, size), samples in rates.items():
        first = rates.get((places[0].title, pattern, size), [])
        ratios = [mine / theirs for mine, theirs in zip(samples, first, strict=False)]
        results.append(
            Result(title, pattern, size, statistics.median(samples), statistics.median(ratios) if ratios else 0.0, samples)
        )
    titles = [place.title for place in places]
    return Report(
        machine(), settings.files, settings.clients, settings.repeat, titles, list(settings.sizes), results, errors
    )


def measure(clients: Clients, where: str, settings: Settings, size: int) -> dict[str, float]:
    """Bytes a second of each pattern in a new directory ``where``, removed afterwards. Raises Failed."""

    def together(what: str) -> float:
        shares = [list(range(start, settings.files, settings.clients)) for start in range(settings.clients)]
        if what == "read":  # what another client wrote
            shares = [*shares[1:], shares[0]]
        seconds = clients.run([Order(what, where, numbers, size) for numbers in shares if numbers])
        return size * settings.files / max(seconds, 1e-9)

    clients.run([Order("prepare", where)])
    try:
        return {pattern: together(pattern) for pattern in PATTERNS}
    finally:
        clients.run([Order("remove", where)])


def size_words(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def report_text(report: Report) -> str:
    """The report as people read it: MB/s, in brackets the ratio to the first place."""
    how = f"{report.files} files, {report.clients} clients, median of {report.repeat}; MB/s, in brackets the ratio to {report.places[0]}"
    parts = [f"{report.machine} ({how})"]
    for pattern in PATTERNS:
        rows = [[TITLES[pattern], *report.places]]
        for size in report.sizes:
            found = [report.find(place, pattern, size) for place in report.places]
            cells = ["" if r is None else f"{r.rate / 1e6:,.1f} ({share(r.ratio)})" for r in found]
            rows.append([size_words(size), *cells])
        parts.append(aligned(rows, range(1, len(rows[0]))))
    return "\n\n".join([*parts, *(f"{place}: not measured: {why}" for place, why in report.errors.items())])


def picture(report: Report) -> str:
    """A panel for each pattern: rate over the size of the files."""
    panels = []
    for pattern in PATTERNS:
        series = {}
        for place in report.places:
            found = [(size, r.rate / 1e6) for size in report.sizes if (r := report.find(place, pattern, size))]
            if found:
                series[place] = found
        if series:
            title = f"{TITLES[pattern]} of {report.files} files, {report.clients} clients: MB/s"
            panels.append(lines(title, {size: size_words(size) for size in report.sizes}, series))
    return document(panels)
