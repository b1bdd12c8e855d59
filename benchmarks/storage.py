"""``benchmarks storage``: many files of growing size written to a store, read, and read after they were written (cloud storage paper, §6).

Owns the patterns, the clients, the samples and the tables. Files come from a local disk and go to one. Every copy of a file is a sample.
All that is said is computed of the samples, so that it can be said again of those that were kept.
"""

from __future__ import annotations

import datetime
import os
import secrets
import select
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.errors import AmfsError
from benchmarks.distributions import dots
from benchmarks.envelope_table import aligned, share
from benchmarks.plots import document
from benchmarks.samples import no_head, read_lines
from benchmarks.storage_clients import Spot
from benchmarks.storage_worker import Done, Order, Timed

PATTERNS = ("read", "write", "raw")  # as the paper's figures 3, 4 and 6 follow each other
TITLES = {"write": "concurrent write", "read": "concurrent read", "raw": "read after write"}
_HANG_SECONDS = 600.0
_START_SECONDS = 60.0
_WARM = 10_000  # bytes of the files that each client copies before anything is measured


class Settings(NamedTuple):
    """``files`` of each of ``sizes`` (bytes), by ``clients`` processes at a time. Of a size whose files would have more than ``most`` bytes
    together there are as many as fit, at least one."""

    files: int = 40
    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    clients: int = 4
    repeat: int = 3
    most: int = 4_000_000_000

    def count(self, size: int) -> int:
        return max(1, min(self.files, self.most // size))


class Place(NamedTuple):
    """A store, and where its clients find it: client i at spot i, and again from the first."""

    title: str
    spots: tuple[Spot, ...]


class Head(msgspec.Struct, frozen=True, tag="head"):
    """The measurements, where and when."""

    machine: str
    date: str
    files: int
    clients: int
    repeat: int
    places: list[str]
    sizes: list[int]


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """One file copied by one client. ``begun``: seconds, comparable within a turn; of "raw" ``seconds`` is the write and the read."""

    place: str
    pattern: str
    size: int
    turn: int
    client: int
    number: int
    begun: float
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second; of "raw" the file counts once."""
        return self.size / max(self.seconds, 1e-9)


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """A store that could not be measured, or not to the end."""

    place: str
    why: str


class Result(msgspec.Struct, frozen=True):
    """``rate``: the median over the turns of the bytes of the files over the time from the first beginning to the last end; ``ratio`` of it
    to the first place's. ``quartiles``: of the rates of single files. ``files``: so many samples."""

    place: str
    pattern: str
    size: int
    rate: float
    ratio: float
    quartiles: tuple[float, float, float]
    files: int


class Report(msgspec.Struct, frozen=True):
    head: Head
    samples: list[Sample]
    errors: dict[str, str]

    def results(self) -> list[Result]:
        """In the order of places, patterns and sizes; without what was not measured."""
        known: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
        for one in self.samples:
            known[one.place, one.pattern, one.size].append(one)
        found = []
        for place in self.head.places:
            for pattern in PATTERNS:
                for size in self.head.sizes:
                    mine = known.get((place, pattern, size))
                    if mine:
                        theirs = known.get((self.head.places[0], pattern, size))
                        rate = together(mine)
                        cuts = quartiles([one.rate for one in mine])
                        found.append(Result(place, pattern, size, rate, rate / together(theirs) if theirs else 0.0, cuts, len(mine)))
        return found


def together(samples: Iterable[Sample]) -> float:
    """Bytes a second of all clients: the median over the turns."""
    turns: dict[int, list[Sample]] = defaultdict(list)
    for one in samples:
        turns[one.turn].append(one)
    rates = []
    for each in turns.values():
        seconds = max(one.begun + one.seconds for one in each) - min(one.begun for one in each)
        rates.append(sum(one.size for one in each) / max(seconds, 1e-9))
    return statistics.median(rates)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


class Clients:
    """The processes, kept for the whole benchmark. ``env``: their environment, None: ours."""

    def __init__(self, count: int, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.storage_worker"]
        self._processes = [
            subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) for _ in range(count)
        ]

    def run(self, orders: Sequence[Order]) -> list[list[Timed]]:
        """One order for each process (or for as many as there are orders), begun together; the files of each. Raises Failed."""
        used = self._processes[: len(orders)]
        for process, order in zip(used, orders, strict=True):
            self._tell(process, msgspec.json.encode(order))
        limit = time.monotonic() + _START_SECONDS
        for process in used:
            if self._line(process, limit) != b"ready\n":
                raise Failed("a client did not get ready")
        for process in used:
            self._tell(process, b"go")
        limit = time.monotonic() + _HANG_SECONDS
        done = [msgspec.json.decode(self._line(process, limit), type=Done) for process in used]
        for each in done:
            if each.error:
                raise Failed(each.error)
        return [each.files for each in done]

    def _tell(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        stdin: IO[bytes] | None = process.stdin
        assert stdin is not None
        try:
            stdin.write(line + b"\n")
            stdin.flush()
        except OSError:
            raise Failed("a client has ended") from None

    def _line(self, process: subprocess.Popen[bytes], limit: float) -> bytes:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], max(0.0, limit - time.monotonic()))[0]:
            raise Failed("a client gave no answer in time")
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
                    continue  # a file that was not written is for nobody

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_storage(
    places: Sequence[Place],
    settings: Settings,
    local: Path,
    say: Callable[[str], None] = lambda text: None,
    env: Mapping[str, str] | None = None,
    keep: Callable[[Head | Sample | Missed], None] = lambda line: None,
) -> Report:
    """Measure all places, ``settings.repeat`` times in turn, by clients with the environment ``env`` (None: ours).

    ``local``: a directory of the local disk. Failures are reported as such and not tried again. ``keep`` is told all when it is known."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    titles = [place.title for place in places]
    head = Head(machine(), today, settings.files, settings.clients, settings.repeat, titles, list(settings.sizes))
    keep(head)
    samples: list[Sample] = []
    errors: dict[str, str] = {}
    name = f"amfs-bench-{os.getpid()}-{secrets.token_hex(4)}"  # nobody else's: it is removed with all that is in it
    clients = Clients(settings.clients, env)

    def attempt(place: Place, files: int, size: int, turn: int | None) -> None:
        """``turn`` None: the samples are not kept."""
        nonlocal clients
        try:
            shares = dealt(files, settings.clients)
            for one in measure(clients, place, f"{name}-{'warm' if turn is None else turn}-{size}", local, shares, size, turn or 0):
                if turn is not None:
                    samples.append(one)
                    keep(one)
        except AmfsError as error:
            errors[place.title] = str(error)
            keep(Missed(place.title, str(error)))
            say(f"{place.title} failed: {error}")
            clients.close()  # they may be anywhere in what they were told
            clients = Clients(settings.clients, env)

    try:
        make(clients, local, dealt(settings.clients, settings.clients), _WARM)
        for place in places:  # work that a server or client does only once, such as loading its code, is not measured
            attempt(place, settings.clients, _WARM, None)
        for turn in range(settings.repeat):
            for size in settings.sizes:
                files = settings.count(size)
                make(clients, local, dealt(files, settings.clients), size)
                for place in places if turn % 2 == 0 else list(reversed(places)):
                    if place.title not in errors:
                        say(f"{place.title}, {files} files of {size_words(size)}, {turn + 1} of {settings.repeat}")
                        attempt(place, files, size, turn)
    finally:
        clients.close()
    return Report(head, samples, errors)


def dealt(files: int, clients: int) -> list[list[int]]:
    """The numbers of the files of each client; no client without any."""
    return [found for start in range(clients) if (found := list(range(start, files, clients)))]


def make(clients: Clients, local: Path, shares: Sequence[list[int]], size: int) -> None:
    """The files on the local disk, over those of another size."""
    clients.run([Order("make", Spot("directory", str(local)), str(local), numbers, size) for numbers in shares])


def measure(clients: Clients, place: Place, name: str, local: Path, shares: Sequence[list[int]], size: int, turn: int) -> list[Sample]:
    """All patterns in a new directory of the store, which is removed afterwards. Raises Failed."""
    spots = [place.spots[client % len(place.spots)].below(name) for client in range(len(shares))]

    def all_do(what: str, whose: Sequence[list[int]]) -> list[list[Timed]]:
        return clients.run([Order(what, spot, str(local), numbers, size) for spot, numbers in zip(spots, whose, strict=True)])

    found = []
    clients.run([Order("prepare", spots[0])])
    try:
        for what in ("write", "read", "raw"):
            whose = [*shares[1:], shares[0]] if what == "read" else shares  # a client reads what another has written
            for client, files in enumerate(all_do(what, whose)):
                found += [Sample(place.title, what, size, turn, client, one.number, one.begun, one.seconds) for one in files]
            if what != "write":
                all_do("check", whose)
    finally:
        clients.run([Order("remove", spots[0])])
    return found


# ── samples that were kept ──


def read_samples(path: Path) -> Report:
    """The report of what was kept, one line of JSON for each. Raises UsageError."""
    head: Head | None = None
    samples: list[Sample] = []
    errors: dict[str, str] = {}
    for one in read_lines(path, Head | Sample | Missed):
        if isinstance(one, Head):
            head = one
        elif isinstance(one, Sample):
            samples.append(one)
        else:
            errors[one.place] = one.why
    if head is None:
        raise no_head(path, "storage")
    return Report(head, samples, errors)


# ── for people ──


def size_words(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def report_text(report: Report) -> str:
    """The report as people read it: MB/s of all clients together, in brackets the ratio to the first place; then the quartiles of files."""
    head, results = report.head, report.results()
    known = {(one.place, one.pattern, one.size): one for one in results}
    places = [place for place in head.places if any(one.place == place for one in results)]
    how = f"{head.files} files, {head.clients} clients, median of {head.repeat}; MB/s"
    parts = [f"{head.machine}, {head.date} ({how} together, in brackets the ratio to {head.places[0]}; below: quartiles of single files)"]
    for pattern in PATTERNS:
        rows = [[TITLES[pattern], *places]]
        for size in head.sizes:
            found = [known.get((place, pattern, size)) for place in places]
            rows.append([size_words(size), *("" if r is None else f"{r.rate / 1e6:,.1f} ({share(r.ratio)})" for r in found)])
            rows.append(["", *("" if r is None else " ".join(f"{cut / 1e6:,.3g}" for cut in r.quartiles) for r in found)])
        parts.append(aligned(rows, range(1, len(rows[0]))))
    return "\n\n".join([*parts, *(f"{place}: not measured: {why}" for place, why in report.errors.items())])


def picture(report: Report) -> str:
    """A panel for each pattern: the rate of each single file, by size."""
    head, panels = report.head, []
    for pattern in PATTERNS:
        series: dict[str, dict[str, list[float]]] = {}
        for place in head.places:
            found: dict[str, list[float]] = defaultdict(list)
            for one in report.samples:
                if one.place == place and one.pattern == pattern:
                    found[size_words(one.size)].append(one.rate / 1e6)
            if found:
                series[place] = found
        if series:
            title = f"{TITLES[pattern]} of {head.files} files, {head.clients} clients: MB/s of each file; the bars are medians"
            panels.append(dots(title, [size_words(size) for size in head.sizes], series))
    return document(panels)
