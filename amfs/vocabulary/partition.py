"""Two-layer hashing (MemFS §II): key → xxh64 mod P → partition → node, by a versioned table. Pure.

P is constant for a session; only the table changes when nodes come or go, and then only the partitions move that must. AME's
``Hash(File_Name) % Server_Num`` (§3.3) is the case P = N with the identity table, which ``PartitionTable.even(nodes, len(nodes))`` is.

Nodes get partitions by their weights (``vocabulary.shares``): a new node takes its share from the most loaded ones, the least loaded ones
take from a node that leaves. A node that dies is succeeded by the backups of its partitions, whatever their loads: only these have the
names. ``balanced`` then brings the loads back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from xxhash import xxh64_intdigest

from amfs._native import partitions as _partitions
from amfs.vocabulary.shares import ceilings, deal, quotas

PARTITIONS = 1024  # at least
PARTITIONS_PER_NODE = 20  # at least, of as many nodes as are expected: or loads would differ by more than a twentieth
MANY = 1 << 14  # a table is sent to each new node: more partitions only where nodes would have less than FEW_PER_NODE each
FEW_PER_NODE = 4


def enough_for(nodes: int) -> int:
    """How many partitions a session has that is to have so many nodes. A power of two."""
    wanted, least = (1 << (each * nodes - 1).bit_length() for each in (PARTITIONS_PER_NODE, FEW_PER_NODE))
    return max(PARTITIONS, min(wanted, MANY), least)


@cache
def _scattered(count: int) -> tuple[int, ...]:
    """The numbers below ``count`` with their bits in reverse order: however many are taken, they lie evenly apart."""
    bits = (count - 1).bit_length()
    places = (int(f"{number:0{bits}b}"[::-1], 2) if bits else 0 for number in range(1 << bits))
    return tuple(place for place in places if place < count)


class PartitionTable:
    """``owners[partition]`` is a node id. Immutable; ``version`` grows with every change."""

    __slots__ = ("nodes", "owners", "single", "version")

    def __init__(self, owners: Sequence[int], version: int = 1) -> None:
        self.owners = tuple(owners)
        self.version = version
        self.nodes = frozenset(self.owners)
        #: the only node there is, or None; saves hashing on one node
        self.single: int | None = self.owners[0] if len(self.nodes) == 1 else None

    @classmethod
    def even(cls, nodes: Sequence[int], count: int = 0) -> PartitionTable:
        """Partitions dealt round-robin to ``nodes``; ``count`` 0: enough for a good balance."""
        if not nodes:
            raise ValueError("a partition table needs at least one node")
        count = count or enough_for(len(nodes))
        return cls([nodes[i % len(nodes)] for i in range(count)])

    @classmethod
    def dealt(cls, weigh: Mapping[int, int], count: int = 0) -> PartitionTable:
        """Partitions dealt to nodes by their weights (above 0); to nodes of equal weights as ``even`` does."""
        if not weigh:
            raise ValueError("a partition table needs at least one node")
        count = count or enough_for(len(weigh))
        return cls(deal(weigh, quotas(weigh, count), {}, count))

    def node_of(self, key: str) -> int:
        """The node that keeps the record of ``key``."""
        if self.single is not None:
            return self.single
        return self.owners[xxh64_intdigest(key.encode("utf-8", "surrogateescape")) % len(self.owners)]

    def parts(self, keys: Sequence[str]) -> list[int]:
        """The partition of each."""
        return _partitions(keys, len(self.owners))

    def group(self, keys: Sequence[str]) -> dict[int, list[str]]:
        """``keys`` by the node that keeps their record."""
        if self.single is not None:
            return {self.single: list(keys)} if keys else {}
        owners = self.owners
        out: dict[int, list[str]] = {}
        for key, part in zip(keys, self.parts(keys), strict=True):
            node = owners[part]
            if node in out:
                out[node].append(key)
            else:
                out[node] = [key]
        return out

    def backup_of(self, part: int) -> int | None:
        """The node that is told of every change of the names and inodes of ``part``, and inherits it: of all but its owner the one of the
        highest hash with it (rendezvous hashing). So a node that comes or goes changes the backups of few partitions, and each node is the
        backup of about as many. None: the owner is alone."""
        return self._highest(part, self.nodes - {self.owners[part]})

    @staticmethod
    def _highest(part: int, nodes: frozenset[int]) -> int | None:
        if len(nodes) < 2:
            return next(iter(nodes), None)
        return max(nodes, key=lambda node: (xxh64_intdigest(b"%d %d" % (part, node)), node))

    def without(self, *dead: int) -> PartitionTable:
        """These nodes are gone: each of their partitions, and no other, goes to its backup, or if that is gone, too, to the next."""
        left = self.nodes - set(dead)
        if not left:
            raise ValueError("the last node cannot be taken out of the table")
        owners = list(self.owners)
        for part, owner in enumerate(owners):
            if owner not in left:
                heir = self._highest(part, left)
                assert heir is not None
                owners[part] = heir
        return PartitionTable(owners, self.version + len(set(dead) & self.nodes))

    def with_nodes(self, nodes: Sequence[int], weigh: Mapping[int, int] | None = None) -> PartitionTable:
        """``nodes`` are new: each takes its share, rounded down but at least one, from those that are most loaded; nothing else moves.
        ``weigh``: weights of all nodes that have partitions, and of the new ones; None: they are equal."""
        loads = Counter(self.owners)
        new = [node for node in nodes if node not in loads]
        if not new:
            return self
        weights = {node: weigh[node] if weigh is not None else 1 for node in (*loads, *new)}
        count, total = len(self.owners), sum(weights.values())
        least = count >= len(weights)
        shares = {node: max(least, count * weights[node] // total) for node in new}
        if (lacking := sum(shares.values()) - sum(max(0, load - least) for load in loads.values())) > 0:
            largest = max(new, key=lambda node: shares[node])  # others have one partition each, and keep it
            shares[largest] = max(least, shares[largest] - lacking)
        takers = deal({node: weights[node] for node in new}, shares, {}, sum(shares.values()))
        heap = [(-load / weights[node], -node) for node, load in loads.items() if load > least]
        heapify(heap)
        given = Counter[int]()
        while heap and given.total() < len(takers):
            donor = -heap[0][1]
            given[donor] += 1
            left = loads[donor] - given[donor]
            if left > least:
                heapreplace(heap, (-left / weights[donor], -donor))
            else:
                heappop(heap)
        return PartitionTable(self._spread(given, takers, new[0]), self.version + len(new))

    def handed_over(self, nodes: Iterable[int], weigh: Mapping[int, int]) -> PartitionTable:
        """``nodes`` live, and are to have no partition any more: each of theirs, and no other, goes to one of ``weigh``, so that these are
        loaded as evenly as can be. As many as possible go to their backups. Raises ValueError if nobody is left."""
        gone = set(nodes)
        takers = {node: weight for node, weight in weigh.items() if node not in gone}
        if not takers:
            raise ValueError("the last node cannot be taken out of the table")
        parts = [part for part, owner in enumerate(self.owners) if owner in gone]
        wanted = Counter(deal(takers, {}, Counter(self.owners), len(parts)))
        owners, backups = list(self.owners), self.nodes - gone
        others: list[int] = []
        for part in parts:
            heir = self._highest(part, backups)
            if heir is not None and wanted[heir] > 0:
                owners[part] = heir
                wanted[heir] -= 1
            else:
                others.append(part)
        for part, node in zip(others, deal({node: takers[node] for node in +wanted}, wanted, {}, len(others)), strict=True):
            owners[part] = node
        return PartitionTable(owners, self.version + len(gone & self.nodes))

    def balanced(self, weigh: Mapping[int, int], most: int) -> PartitionTable:
        """The table after at most ``most`` partitions have moved from nodes that have more than they may (``shares.ceilings``) to the least
        loaded ones. Nodes that are not in ``weigh`` may have none. The table itself if there is nothing to do."""
        loads = Counter(self.owners)
        limits = ceilings(weigh, len(self.owners))
        over = {node: load - limits.get(node, 0) for node, load in loads.items() if load > limits.get(node, 0)}
        takers = deal({node: weight for node, weight in weigh.items() if node not in over}, limits, loads, min(most, sum(over.values())))
        if not takers:
            return self
        # By turns, so that each has given its part when there is more to move than ``most``.
        given = Counter(deal(over, over, {}, len(takers)))
        return PartitionTable(self._spread(given, takers, takers[0]), self.version + 1)

    def _spread(self, given: Counter[int], takers: Sequence[int], first: int) -> list[int]:
        """The owners, when of each node so many partitions as are ``given`` go to the ``takers``, one to each. Neighbouring partitions hold
        neighbouring stripes of a file, so the given ones lie evenly apart: with two nodes it is every second one."""
        owners = list(self.owners)
        left, turns = given.copy(), iter(takers)
        for part in _scattered(len(owners)):
            part = (part + first) % len(owners)
            if left[owners[part]] > 0:
                left[owners[part]] -= 1
                owners[part] = next(turns)
        return owners

    def moved(self, other: PartitionTable) -> set[int]:
        """Partitions that have another owner in ``other``."""
        if self.owners is other.owners:
            return set()
        return {part for part, (a, b) in enumerate(zip(self.owners, other.owners, strict=True)) if a != b}


class Moves(NamedTuple):
    """Partitions that have another owner in one table than in the one before. Not to be changed."""

    left: dict[int, list[int]]  # by the owner before
    came: dict[int, list[int]]  # by the owner after


#: The last ones: nodes of one process, of which a simulation has thousands, ask for the same.
_moves: deque[tuple[PartitionTable, PartitionTable, Moves]] = deque(maxlen=2)


def moves_between(before: PartitionTable, after: PartitionTable) -> Moves:
    """The moves between two tables with as many partitions."""
    for one, other, known in _moves:
        if one is before and other is after:
            return known
    moves = Moves({}, {})
    for part in sorted(before.moved(after)):
        moves.left.setdefault(before.owners[part], []).append(part)
        moves.came.setdefault(after.owners[part], []).append(part)
    _moves.append((before, after, moves))
    return moves
