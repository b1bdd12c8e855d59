"""``benchmarks envelope``: the MTC Envelope (Zhang et al.; AMFS Shell §5.2) of places in the file system, each beside raw tmpfs.

Owns the metrics, the targets, and the order in which things are measured. A place is measured in two short groups of phases, operations
and bandwidth; within a group tmpfs is measured right before it in one turn and right after it in the
next, as only ratios within seconds mean anything on a machine that others use, too. How the places come about is not known here.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench import dispatch
from amfs.errors import AmfsError
from benchmarks import programs
from benchmarks.clients import Client, Done

JUDGED_CLIENTS = 4  # the targets are for so many clients on one node
_MIB = 1 << 20
_FILES_MAX = 20_000  # of each kind and client; a directory of more says nothing new and fills the memory
_BIG_SECONDS_MAX = 3.0  # a slow file system writes a shorter file


class Metric(NamedTuple):
    """``paper``: the name in Table 1 of AMFS Shell, "": not one of the eight. ``unit`` "ops/s" or "GB/s"."""

    key: str
    title: str
    unit: str
    paper: str = ""


METRICS = (
    Metric("create", "create", "ops/s", "Create tput"),
    Metric("open", "open", "ops/s", "Open tput"),
    Metric("read", "1-1 read 1 KiB", "ops/s", "1-1 read tput"),
    Metric("read_bw", "1-1 read, after write", "GB/s", "1-1 read bw"),
    Metric("readn1", "N-1 read 1 KiB", "ops/s", "N-1 read tput"),
    Metric("readn1_bw", "N-1 read", "GB/s", "N-1 read bw"),
    Metric("write", "write 1 KiB", "ops/s", "Write tput"),
    Metric("write_bw", "write", "GB/s", "Write bw"),
    Metric("read_bw_cold", "1-1 read, pages dropped", "GB/s"),
    Metric("read_bw_again", "1-1 read, again", "GB/s"),
    Metric("stat", "stat", "ops/s"),
    Metric("unlink", "unlink", "ops/s"),
)
EIGHT = tuple(metric for metric in METRICS if metric.paper)
_OPERATIONS = tuple(metric.key for metric in METRICS if metric.unit == "ops/s")
_BANDWIDTHS = tuple(metric.key for metric in METRICS if metric.unit == "GB/s")

#: The goal of each kind of place, as a share of raw tmpfs, with JUDGED_CLIENTS clients on one node.
TARGETS: dict[str, dict[str, float]] = {
    "passthrough": {
        "create": 0.045, "write": 0.03, "open": 0.5, "read": 0.4, "stat": 0.9,
        "write_bw": 0.8, "read_bw": 0.9, "read_bw_cold": 0.9, "read_bw_again": 0.9,
    },
    "copy": {
        "create": 0.045, "write": 0.03, "open": 0.5, "read": 0.4, "stat": 0.9,
        "write_bw": 0.25, "read_bw": 0.5, "read_bw_cold": 0.5, "read_bw_again": 0.9,
    },
    "staged": dict.fromkeys((*_OPERATIONS, *_BANDWIDTHS), 0.97),
    "staged-huge": {**dict.fromkeys(_OPERATIONS, 0.97), **dict.fromkeys(_BANDWIDTHS, 1.5)},
}  # fmt: skip


class Settings(NamedTuple):
    """``seconds`` of each phase of small operations, ``mib`` of a big file (one a client)."""

    clients: tuple[int, ...] = (1, 4, 8)
    repeat: int = 3
    seconds: float = 0.25
    mib: int = 100


class Place(NamedTuple):
    """Somewhere to measure. ``directories``: mounts of one file system, dealt to the clients. ``judged_as``: a key of TARGETS or "".
    ``command`` as in Client. ``nodes`` it is made of, 0: none.
    ``broken``: why there is nothing to measure."""

    key: str
    title: str
    directories: tuple[str, ...]
    judged_as: str = ""
    command: Callable[[list[str]], list[str]] = list
    nodes: int = 0
    broken: str = ""


class Sample(msgspec.Struct, frozen=True):
    """One metric in one turn: here, and on tmpfs beside it. In operations or bytes a second."""

    value: float
    tmpfs: float

    @property
    def ratio(self) -> float:
        return self.value / self.tmpfs


class Result(msgspec.Struct, frozen=True):
    """One metric of one place with so many clients: medians. ``ratio`` to tmpfs."""

    place: str
    clients: int
    metric: str
    unit: str
    value: float
    tmpfs: float
    ratio: float
    target: float | None
    passed: bool | None
    samples: list[Sample]


class Described(msgspec.Struct, frozen=True):
    """A place as the report names it."""

    key: str
    title: str
    nodes: int
    judged_as: str
    error: str = ""


class Report(msgspec.Struct, frozen=True):
    """``remote``: the rows of ``bench.remote``, if measured."""

    machine: str
    repeat: int
    seconds: float
    mib: int
    clients: list[int]
    places: list[Described]
    results: list[Result]
    remote: list[dispatch.Result] = []

    def find(self, place: str, clients: int, metric: str) -> Result | None:
        return next((r for r in self.results if (r.place, r.clients, r.metric) == (place, clients, metric)), None)


Rates = dict[str, float]


class Runner:
    """Measures places. ``program`` is the client's."""

    def __init__(self, settings: Settings, program: Path | None = None) -> None:
        self.settings = settings
        self.program = program or programs.build()["envelope"]
        self._count = itertools.count()

    def operations(self, place: Place, clients: int) -> Rates:
        """Rates of small operations, in operations a second. Raises Failed."""
        seconds = self.settings.seconds

        def rate(name: str, count: int = 0) -> float:
            return client.phase(name, seconds=seconds, count=count, shift=1).rate

        with self._client(place, clients) as client:
            found = {"create": rate("create", _FILES_MAX), "write": rate("write", _FILES_MAX)}
            found |= {name: rate(name) for name in ("stat", "open", "read", "readn1")}
            found["unlink"] = client.phase("unlink").rate
            client.phase("clean")
        return found

    def bandwidths(self, place: Place, clients: int) -> Rates:
        """Rates of big files, in bytes a second. Raises Failed."""

        def rate(done: Done) -> float:
            return done.rate * _MIB

        with self._client(place, clients) as client:
            # Once without counting: on virtual machines, memory that was never touched, or not for long, is slow the first time.
            client.phase("bigwrite", seconds=_BIG_SECONDS_MAX, count=self.settings.mib)
            client.phase("clean")
            found = {"write_bw": rate(client.phase("bigwrite", seconds=_BIG_SECONDS_MAX, count=self.settings.mib))}
            found["read_bw"] = rate(client.phase("bigread", shift=1))
            client.phase("drop", shift=1)
            found["read_bw_cold"] = rate(client.phase("bigread", shift=1))
            found["read_bw_again"] = rate(client.phase("bigread", seconds=self.settings.seconds, shift=1))
            found["readn1_bw"] = rate(client.phase("bigreadn1", seconds=self.settings.seconds))
            client.phase("clean")
        return found

    def _client(self, place: Place, clients: int) -> Client:
        return Client(self.program, clients, f"envelope{next(self._count)}", place.directories, command=place.command)


def run_places(tmpfs: Place, places: Sequence[Place], settings: Settings, say: Callable[[str], None] = lambda text: None) -> Report:
    """Measure every place beside ``tmpfs``, ``settings.repeat`` times in turn. One that fails is reported as such and not tried again.

    Raises SystemSetupError if the client cannot be made.
    """
    runner = Runner(settings)
    samples: dict[tuple[str, int, str], list[Sample]] = {}
    errors = {place.key: place.broken for place in places if place.broken}

    def attempt(place: Place, what: str, once: Callable[[], None]) -> None:
        if place.key not in errors:
            say(f"{place.title}, {what}")
            try:
                once()
            except AmfsError as error:
                errors[place.key] = str(error)
                say(f"{place.title} failed: {error}")

    def one_turn(place: Place, clients: int, turn: int) -> None:
        for metric, sample in measure(runner, tmpfs, place, clients, turn).items():
            samples.setdefault((place.key, clients, metric), []).append(sample)

    for turn in range(settings.repeat):
        for clients in settings.clients:
            for place in places if turn % 2 == 0 else reversed(places):
                attempt(place, f"{clients} clients, {turn + 1} of {settings.repeat}", partial(one_turn, place, clients, turn))
    results = [
        summarise(place, clients, metric, known)
        for clients in settings.clients
        for place in places
        for metric in METRICS
        if (known := samples.get((place.key, clients, metric.key)))
    ]
    if references := reference_results(tmpfs, results):
        places = [tmpfs, *places]
        results = [*references, *results]
    described = [Described(p.key, p.title, p.nodes, p.judged_as, errors.get(p.key, "")) for p in places]
    return Report(dispatch.machine(), settings.repeat, settings.seconds, settings.mib, list(settings.clients), described, results)


def measure(runner: Runner, tmpfs: Place, place: Place, clients: int, turn: int) -> dict[str, Sample]:
    """One turn: tmpfs and the place, group by group; the order changes from turn to turn. Raises Failed."""
    chain = [tmpfs, place]
    if turn % 2:
        chain.reverse()
    found: dict[str, Sample] = {}
    for group in (runner.operations, runner.bandwidths):
        rates = {each.key: group(each, clients) for each in chain}
        for metric, value in rates[place.key].items():
            found[metric] = Sample(value, rates[tmpfs.key][metric])
    return found


def summarise(place: Place, clients: int, metric: Metric, samples: Sequence[Sample]) -> Result:
    """The medians of a metric, and whether they are good enough."""
    target = TARGETS[place.judged_as].get(metric.key) if place.judged_as and clients == JUDGED_CLIENTS and place.nodes <= 1 else None
    ratio = _median(sample.ratio for sample in samples)
    return Result(
        place.key,
        clients,
        metric.key,
        metric.unit,
        value=_median(sample.value for sample in samples),
        tmpfs=_median(sample.tmpfs for sample in samples),
        ratio=ratio,
        target=target,
        passed=None if target is None else ratio >= target,
        samples=list(samples),
    )


def reference_results(tmpfs: Place, results: Iterable[Result]) -> list[Result]:
    """tmpfs itself as a place: all that was measured of it beside the others."""
    seen: dict[tuple[int, str], list[float]] = {}
    units = {metric.key: metric.unit for metric in METRICS}
    for result in results:
        seen.setdefault((result.clients, result.metric), []).extend(sample.tmpfs for sample in result.samples)
    return [
        Result(tmpfs.key, clients, metric, units[metric], middle, middle, 1.0, None, None, [Sample(v, v) for v in values])
        for (clients, metric), values in seen.items()
        for middle in [_median(values)]
    ]


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
