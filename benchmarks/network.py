"""``benchmarks network``: how fast a file gets from each node of a session to each other one, and how long the smallest takes.

Owns the pairs, the samples and the table. The nodes move the files themselves, as for a task or a mount that needs one: a client asks the
node that is to have a file to fetch it from the node that has it. One pair at a time, so that pairs do not disturb each other. Each node is
also asked for nothing at all: that is the cost of the question alone.
"""

from __future__ import annotations

import datetime
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.vocabulary import fs_requests as q
from benchmarks.envelope_table import aligned
from benchmarks.heatmap import heat
from benchmarks.plots import document
from benchmarks.samples import no_head, read_lines
from benchmarks.storage import quartiles, size_words

NODES_MAX = 64


class Settings(NamedTuple):
    """``size``: bytes of the large file; the small one has one."""

    size: int = 64_000_000
    repeat: int = 5


class Head(msgspec.Struct, frozen=True, tag="head"):
    """The measurements, where and when; ``load``: programs that wanted a CPU in the minute before."""

    machine: str
    date: str
    nodes: list[int]
    size: int
    repeat: int
    load: float


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """One file of ``size`` bytes fetched by ``target``. Size 0: ``target`` was asked for nothing, and ``source`` is the same node."""

    source: int
    target: int
    size: int
    turn: int
    seconds: float


class Pair(msgspec.Struct, frozen=True):
    """``rate``: bytes a second; ``latency_s``: until a file of one byte is there. Medians, with the quartiles of the rate."""

    source: int
    target: int
    rate: float
    quartiles: tuple[float, float, float]
    latency_s: float


class Report(msgspec.Struct, frozen=True):
    head: Head
    samples: list[Sample]

    def seconds(self, source: int, target: int, size: int) -> list[float]:
        return [one.seconds for one in self.samples if (one.source, one.target, one.size) == (source, target, size)]

    def pairs(self) -> list[Pair]:
        """In the order of sources and targets; without those that were not measured."""
        found = []
        for source, target in sorted(pairs_of(self.head.nodes)):
            large, small = (self.seconds(source, target, size) for size in (self.head.size, 1))
            if large and small:
                rates = quartiles([self.head.size / max(each, 1e-9) for each in large])
                found.append(Pair(source, target, rates[1], rates, statistics.median(small)))
        return found

    def questions(self) -> dict[int, float]:
        """Node -> median of the seconds of a question that moves nothing."""
        found = {node: self.seconds(node, node, 0) for node in self.head.nodes}
        return {node: statistics.median(each) for node, each in found.items() if each}


def pairs_of(nodes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """All (source, target) of two nodes, each node in turn a source: neighbours first."""
    count = len(nodes)
    for step in range(1, count):
        for at, source in enumerate(nodes):
            yield source, nodes[(at + step) % count]


def run_network(
    session: str,
    settings: Settings,
    say: Callable[[str], None] = lambda text: None,
    keep: Callable[[Head | Sample], None] = lambda line: None,
) -> Report:
    """Measure all pairs of the live nodes of ``session``. Raises Failed, OSError, SessionError."""
    with ExitStack() as stack:
        first = stack.enter_context(Files(session))
        nodes = sorted(usage.node for usage in first.df())
        if not 2 <= len(nodes) <= NODES_MAX:
            raise Failed(f"the session has {len(nodes)} nodes; pairs need 2 to {NODES_MAX}")
        clients = {node: stack.enter_context(Files(session, node=node)) for node in nodes}
        for node, client in clients.items():
            if client.gateway != node:
                raise Failed(f"node {node} does not answer")
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        head = Head(machine(), today, nodes, settings.size, settings.repeat, round(os.getloadavg()[0], 1))
        keep(head)
        samples: list[Sample] = []
        place = f"/amfs-bench-{os.getpid()}-{secrets.token_hex(4)}"
        first.mkdir(place)
        stack.callback(first.rmtree, place)
        inodes = _make(first, place, nodes, settings.size)
        for turn in range(-1, settings.repeat):  # the first one opens connections and touches memory; it is not kept
            say(f"turn {turn + 1} of {settings.repeat}" if turn >= 0 else "opening connections")
            for one in _turn(clients, inodes, turn):
                if turn >= 0:
                    samples.append(one)
                    keep(one)
    return Report(head, samples)


def _make(files: Files, place: str, nodes: Sequence[int], size: int) -> dict[tuple[int, int], int]:
    """(node, size) -> the inode of a file that only this node has."""
    found = {}
    block = os.urandom(1 << 20)
    for node in nodes:
        for length in (1, size):
            path = f"{place}/{node}-{length}"
            with files.open(path, "wb", layout="whole", rank=node) as file:
                for at in range(0, length, len(block)):
                    file.write(block[: min(len(block), length - at)])
            found[node, length] = files.info(path).ino
    return found


def _turn(clients: dict[int, Files], inodes: dict[tuple[int, int], int], turn: int) -> Iterator[Sample]:
    sizes = sorted({size for _, size in inodes})
    for source, target in pairs_of(list(clients)):
        for size in sizes:
            yield Sample(source, target, size, turn, fetch(clients[target], source, inodes[source, size]))
    for node, client in clients.items():
        began = time.perf_counter()
        client.connection.call(q.Bring(node, node, ()))
        yield Sample(node, node, 0, turn, time.perf_counter() - began)


def fetch(files: Files, source: int, inode: int) -> float:
    """Seconds until the gateway of ``files`` has the file, which it then gives up again. Raises Failed."""
    node, connection = files.gateway, files.connection
    began = time.perf_counter()
    (error,) = connection.call(q.Bring(node, source, (inode,)))
    seconds = time.perf_counter() - began
    if error:
        raise Failed(f"node {node} could not fetch from node {source}: {os.strerror(error)}")
    (facts,) = connection.call(q.Where((inode,)))[1]
    if isinstance(facts, int) or set(facts.holders) != {source, node}:
        raise Failed(f"node {node} says that it has the file of node {source}, which is at {facts}")
    if connection.call(q.Spare(node, (inode,))) != 1:
        raise Failed(f"node {node} keeps its copy, so nothing would be fetched the next time")
    return seconds


def read_samples(path: Path) -> Report:
    """The report of what was kept. Raises UsageError."""
    head: Head | None = None
    samples: list[Sample] = []
    for one in read_lines(path, Head | Sample):
        if isinstance(one, Head):
            head = one
        else:
            samples.append(one)
    if head is None:
        raise no_head(path, "network")
    return Report(head, samples)


# ── for people ──


def report_text(report: Report) -> str:
    head, pairs = report.head, report.pairs()
    known = {(pair.source, pair.target): pair for pair in pairs}
    lines = [f"{head.machine}, {head.date}, load {head.load:g} ({len(head.nodes)} nodes, medians of {head.repeat})"]
    rates = {pair: f"{found.rate / 1e6:,.0f}" for pair, found in known.items()}
    lines.append(_matrix(f"{size_words(head.size)}, MB/s", head.nodes, rates))
    times = {pair: f"{found.latency_s * 1e3:.2f}" for pair, found in known.items()}
    times |= {(node, node): f"({seconds * 1e3:.2f})" for node, seconds in report.questions().items()}
    lines.append(_matrix("1 B, ms", head.nodes, times))
    lines.append("In brackets: a question to the node that moves nothing.")
    if pairs:
        between = max(pair.rate for pair in pairs) / min(pair.rate for pair in pairs)
        times_of = (report.seconds(pair.source, pair.target, head.size) for pair in pairs)
        within = statistics.median(max(each) / min(each) for each in times_of)
        lines.append(f"Fastest over slowest: {between:.2f} of the pairs, {within:.2f} of the transfers of one pair (median of the pairs).")
    return "\n\n".join(lines)


def _matrix(title: str, nodes: Sequence[int], cells: Mapping[tuple[int, int], str]) -> str:
    rows = [[title, *(f"to {node}" for node in nodes)]]
    rows += [[f"from {source}", *(cells.get((source, target), "") for target in nodes)] for source in nodes]
    return aligned(rows, range(1, len(nodes) + 1))


def picture(report: Report) -> str:
    """The paper's figures 1 and 2: a heat map of rates, one of latencies."""
    head, pairs = report.head, report.pairs()
    names = [f"node {node}" for node in head.nodes]
    at = {node: number for number, node in enumerate(head.nodes)}
    rates = {(at[pair.source], at[pair.target]): pair.rate / 1e6 for pair in pairs}
    times = {(at[pair.source], at[pair.target]): pair.latency_s * 1e3 for pair in pairs}
    what = f"medians of {head.repeat}; rows: from, columns: to"
    return document([
        heat(f"MB/s of a file of {size_words(head.size)} from node to node ({what})", names, rates),
        heat(f"ms until a file of one byte is there ({what})", names, times, less_is_better=True),
    ])  # fmt: skip
