"""How many partitions each node is to have, by its capacity. Pure.

A node's share is to the whole as its capacity is to that of all. Shares are no whole numbers, so each partition goes to the node that is
the least loaded with it: no table of as many partitions has a smaller load on its most loaded node. A load is partitions by unit of
capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace

ALLOWED = 21, 20  # a load may be so many times the mean, as a fraction, or as large as the best table has it
ALIKE = 20  # capacities that differ by less than one part in so many are one


def weights(capacities: Mapping[int, int]) -> dict[int, int]:
    """By node, above 0. A capacity that is not known (0 or less) counts as much as the mean of those that are."""
    known = [capacity for capacity in capacities.values() if capacity > 0]
    mean = sum(known) // len(known) if known else 1
    return {node: capacity if capacity > 0 else mean for node, capacity in capacities.items()}


def alike(capacity: int, others: Iterable[int]) -> int:
    """The nearest of ``others`` if it hardly differs. Free memory is measured, and nodes of one kind are to have equal shares."""
    nearest = min((other for other in others if other > 0), key=lambda other: abs(other - capacity), default=capacity)
    return nearest if abs(nearest - capacity) * ALIKE < capacity else capacity


def deal(weigh: Mapping[int, int], most: Mapping[int, int], have: Mapping[int, int], count: int) -> list[int]:
    """``count`` times the node that is the least loaded with one more; of equal ones the first. None gets more than ``most`` says, beside
    its own (``have``). Shorter if all have their most."""
    heap = [((have.get(node, 0) + 1) / weight, at, node) for at, (node, weight) in enumerate(weigh.items())]
    heapify(heap)
    loads = dict.fromkeys(weigh, 0) | {node: load for node, load in have.items() if node in weigh}
    out: list[int] = []
    while heap and len(out) < count:
        _, at, node = heap[0]
        if node in most and loads[node] >= most[node]:
            heappop(heap)
            continue
        loads[node] += 1
        out.append(node)
        heapreplace(heap, ((loads[node] + 1) / weigh[node], at, node))
    return out


def quotas(weigh: Mapping[int, int], count: int) -> dict[int, int]:
    """How many of ``count`` partitions each node is to have: one at least, if there are enough, since only nodes with partitions are
    backups."""
    total = sum(weigh.values())
    # A node that gets partition by partition in this way has the whole part of its share in the end.
    out = {node: count * weight // total for node, weight in weigh.items()}
    if count >= len(out) and not all(out.values()):
        out = dict.fromkeys(out, 1)
    for node in deal(weigh, {}, out, count - sum(out.values())):
        out[node] += 1
    return out


def ceilings(weigh: Mapping[int, int], count: int) -> dict[int, int]:
    """How many partitions each node may have, before others are to take some of them. Their sum is at least ``count``."""
    best = quotas(weigh, count)
    load, unit = ALLOWED[0] * count, ALLOWED[1] * sum(weigh.values())
    for node, quota in best.items():
        if quota > 1 and quota * unit > load * weigh[node]:
            load, unit = quota, weigh[node]
    return {node: max(best[node], load * weight // unit) for node, weight in weigh.items()}
