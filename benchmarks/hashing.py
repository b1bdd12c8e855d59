"""``benchmarks hashing``: how evenly nodes share the partitions by their capacities, and what moves when one comes or goes.

Owns the schemes, which are given the nodes with their weights and say who has each partition, and the rows. Nothing is measured on nodes.
Schemes that have no memory choose anew after every change. Virtual nodes of consistent hashing are called points.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import NamedTuple

import msgspec

from amfs._native import xxh64
from amfs.vocabulary.partition import PartitionTable, enough_for
from amfs.vocabulary.shares import weights
from benchmarks.envelope_table import aligned

Weights = Mapping[int, int]
Owners = Sequence[int]

RING = 1 << 64
Y0_LIMIT = 3.6  # that Godfrey & Stoica give for the most loaded node
Y0_PARTITIONS = 8192
_MASK = RING - 1


class Change(NamedTuple):
    """``came`` or ``went``: the node; the other is None. ``before``: the owners; ``weights``: of all nodes afterwards."""

    before: Owners
    weights: Weights
    came: int | None = None
    went: int | None = None


class Row(msgspec.Struct, frozen=True):
    """``imbalance``: the highest load over the mean. ``came``, ``went``: partitions that moved over the share of the node. Means."""

    scheme: str
    capacities: str
    nodes: int
    partitions: int
    imbalance: float
    came: float
    went: float


class Spread(msgspec.Struct, frozen=True):
    """The imbalance of many random clusters; ``above``: in how many parts of 1 it is above the limit of Y0."""

    scheme: str
    mean: float
    most_of_99: float
    worst: float
    above: float


class Report(msgspec.Struct, frozen=True):
    seeds: int
    clusters: int
    rows: list[Row]
    spreads: list[Spread]


def _hash(*parts: object) -> int:
    return xxh64(" ".join(map(str, parts)))


# ── rings ──────────────────────────────────────────────────────────────────────────────────────────


def on_ring(points: list[tuple[int, int]], count: int) -> Owners:
    """Each partition belongs to the node of the first point, as (place, node), at or after its place."""
    points.sort()
    places = [place for place, _ in points]
    return [points[bisect_left(places, place) % len(places)][1] for place in _places(count)]


@cache
def _places(count: int) -> list[int]:
    return [_hash("partition", part) for part in range(count)]


def ring(each: int) -> Callable[[Weights, int], Owners]:
    """Consistent hashing (Karger and others) with so many points for each unit of capacity."""

    def owners(weigh: Weights, count: int) -> Owners:
        return on_ring([(_point(node, at), node) for node, weight in weigh.items() for at in range(weight * each)], count)

    return owners


@cache
def _point(node: int, at: int) -> int:
    return _hash("point", node, at)


def y0(weigh: Weights, count: int) -> Owners:
    """Y0 (Godfrey & Stoica 2005): a node has points by its capacity, each at random in one of as many intervals that lie side by side, of
    some 1/n of the ring each. Nodes below half of the mean capacity have none. n and the mean are known exactly here."""
    nodes = len(weigh)
    mean = sum(weigh.values()) / nodes
    each = 2 * math.log2(nodes) if nodes > 1 else 1.0
    width = RING >> math.floor(0.5 + math.log2(nodes))
    points: list[tuple[int, int]] = []
    for node, weight in weigh.items():
        if weight / mean >= 0.5:
            first = _hash("start", node)
            for at in range(math.floor(0.5 + each * weight / mean)):
                points.append(((first + at * width + _point(node, at) * width // RING) & _MASK, node))
    return on_ring(points, count)


# ── hashes without a ring ──────────────────────────────────────────────────────────────────────────


def rendezvous(weigh: Weights, count: int) -> Owners:
    """Rendezvous hashing with weights: the node with the highest score for the partition."""
    best, owners = [-math.inf] * count, [-1] * count
    for node, weight in weigh.items():
        for part, distance in enumerate(_distances(node, count)):
            score = -distance / weight
            if score > best[part]:
                best[part], owners[part] = score, node
    return owners


@cache
def _distances(node: int, count: int) -> list[float]:
    return [-math.log((_hash(part, node) + 1) / RING) for part in range(count)]


def jump(weigh: Weights, count: int) -> Owners:
    """Jump consistent hashing (Lamping & Veach) to a bucket for each unit of capacity. Buckets have no gaps: behind those of a node that
    goes all get new numbers."""
    buckets = [node for node, weight in weigh.items() for _ in range(weight)]
    return [buckets[jump_bucket(place, len(buckets))] for place in _places(count)]


def jump_bucket(key: int, buckets: int) -> int:
    """The bucket of a key of 64 bits. Grows by one bucket: one key in so many moves, and to the new one."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & _MASK
        following = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket


def even(weigh: Weights, count: int) -> Owners:
    """Dealt by turns: the capacities do not count."""
    return PartitionTable.even(sorted(weigh), count).owners


def changed_table(change: Change) -> Owners:
    """amfs's table after the change: it is made from the one before."""
    table = PartitionTable(change.before)
    if change.came is not None:
        return table.with_nodes([change.came], weights(change.weights)).owners
    assert change.went is not None
    return table.handed_over([change.went], weights(change.weights)).owners


def dealt_table(weigh: Weights, count: int) -> Owners:
    return PartitionTable.dealt(weigh, count).owners


def _anew(scheme: Callable[[Weights, int], Owners]) -> Callable[[Change], Owners]:
    return lambda change: scheme(change.weights, len(change.before))


TABLE = "table, greedy (amfs)"
Y0 = "Y0, 2 log2 n points"
#: Name -> (owners at first, owners after a change).
SCHEMES: dict[str, tuple[Callable[[Weights, int], Owners], Callable[[Change], Owners]]] = {
    TABLE: (dealt_table, changed_table),
    **{
        name: (scheme, _anew(scheme))
        for name, scheme in {
            "rendezvous, weighted": rendezvous,
            "ring, 100 points a unit": ring(100),
            "ring, 1 point a unit": ring(1),
            "jump, a bucket a unit": jump,
            Y0: y0,
            "dealt, capacity ignored": even,
        }.items()
    },
}
CAPACITIES = {"equal": (1, 1), "1 to 16": (1, 16)}


# ── what comes of it ───────────────────────────────────────────────────────────────────────────────


def imbalance(owners: Owners, weigh: Weights) -> float:
    """The highest load (partitions by unit of capacity) over the mean."""
    loads = Counter(owners)
    return max(loads[node] / weight for node, weight in weigh.items()) * sum(weigh.values()) / len(owners)


def moved(before: Owners, after: Owners) -> int:
    """Partitions that have another owner."""
    return sum(a != b for a, b in zip(before, after, strict=True))


def one(scheme: str, weigh: Weights, lot: random.Random, largest: int, count: int) -> tuple[float, float, float]:
    """(imbalance, moved over needed when a node comes, the same when one goes)."""
    first, follow = SCHEMES[scheme]
    before = first(weigh, count)
    total = sum(weigh.values())
    weight = lot.randint(1, largest)
    came = follow(Change(before, {**weigh, len(weigh): weight}, came=len(weigh)))
    going = lot.choice(sorted(weigh))
    went = follow(Change(before, {node: each for node, each in weigh.items() if node != going}, went=going))
    return (
        imbalance(before, weigh),
        moved(before, came) / (count * weight / (total + weight)),
        moved(before, went) / (count * weigh[going] / total),
    )


def spread(scheme: str, clusters: int) -> Spread:
    """The imbalance of random clusters of 2 to 256 nodes with capacities of 1 to 16."""
    lot = random.Random(30)
    found: list[float] = []
    for _ in range(clusters):
        weigh = {node: lot.randint(1, 16) for node in range(lot.randint(2, 256))}
        found.append(imbalance(SCHEMES[scheme][0](weigh, Y0_PARTITIONS), weigh))
    found.sort()
    above = sum(each > Y0_LIMIT for each in found) / clusters
    return Spread(scheme, fmean(found), found[min(clusters - 1, clusters * 99 // 100)], found[-1], above)


def run_hashing(nodes: Sequence[int], seeds: int, clusters: int, say: Callable[[str], None] = lambda text: None) -> Report:
    """Every scheme at every size, as means of so many random clusters; then many clusters of random size, 0: none."""
    rows: list[Row] = []
    for number in nodes:
        count = enough_for(number)
        for capacities, (least, largest) in CAPACITIES.items():
            say(f"{number} nodes, {count} partitions, capacities {capacities}")
            for scheme in SCHEMES:
                each: list[tuple[float, float, float]] = []
                for seed in range(seeds):
                    lot = random.Random(f"{seed} {number}")
                    weigh = {node: lot.randint(least, largest) for node in range(number)}
                    each.append(one(scheme, weigh, lot, largest, count))
                even_, came, went = (fmean(column) for column in zip(*each, strict=True))
                rows.append(Row(scheme, capacities, number, count, even_, came, went))
    spreads = []
    for scheme in (TABLE, Y0) if clusters else ():
        say(f"{scheme}: {clusters} random clusters")
        spreads.append(spread(scheme, clusters))
    return Report(seeds, clusters, rows, spreads)


def report_text(report: Report) -> str:
    """The report as people read it: a table for each kind of capacities, and one of the random clusters."""
    out: list[str] = []
    sizes = list(dict.fromkeys((row.nodes, row.partitions) for row in report.rows))
    for capacities in CAPACITIES:
        head = [f"capacities {capacities}", *(f"{nodes} nodes, P={partitions}" for nodes, partitions in sizes)]
        lines: list[Sequence[str]] = [head]
        for scheme in SCHEMES:
            own = {row.nodes: row for row in report.rows if (row.scheme, row.capacities) == (scheme, capacities)}
            cells = [f"{row.imbalance:.3f}  {_ratio(row.came)} {_ratio(row.went)}" for row in (own[nodes] for nodes, _ in sizes)]
            lines.append([scheme, *cells])
        out.append(aligned(lines, tuple(range(1, len(head)))))
    out.append(
        "Each cell: the highest load over the mean, then partitions that move over the share of the node, when a node comes and when one "
        f"goes.\nMeans of {report.seeds} random clusters."
    )
    if report.spreads:
        lines = [(f"{report.clusters} clusters, 2 to 256 nodes", "mean", "99 %", "worst", f"above {Y0_LIMIT}")]
        lines += [
            (each.scheme, f"{each.mean:.3f}", f"{each.most_of_99:.3f}", f"{each.worst:.3f}", f"{each.above:.1%}") for each in report.spreads
        ]
        out.append(aligned(lines, (1, 2, 3, 4)))
    return "\n\n".join(out)


def _ratio(value: float) -> str:
    return f"{value:5.2f}" if value < 100 else f"{value:5.0f}"
