"""Two-layer hashing (MemFS §II): key → xxh64 mod P → partition → node, by a versioned table. Pure.

P is constant for a session; only the table changes when nodes come or go, and then only the partitions move that must. AME's
``Hash(File_Name) % Server_Num`` (§3.3) is the case P = N with the identity table, which ``PartitionTable.even(nodes, len(nodes))`` is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from heapq import heapify, heapreplace
from itertools import cycle

from amfs._native import partitions as _partitions
from amfs._native import xxh64

PARTITIONS = 1024  # at least
PARTITIONS_PER_NODE = 4  # at least, of as many nodes as are expected: or some would have twice as many as others


def enough_for(nodes: int) -> int:
    """How many partitions a session has that is to have so many nodes. A power of two."""
    return max(PARTITIONS, 1 << (PARTITIONS_PER_NODE * nodes - 1).bit_length())


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

    def node_of(self, key: str) -> int:
        """The node that keeps the record of ``key``."""
        if self.single is not None:
            return self.single
        return self.owners[xxh64(key) % len(self.owners)]

    def group(self, keys: Sequence[str]) -> dict[int, list[str]]:
        """``keys`` by the node that keeps their record."""
        if self.single is not None:
            return {self.single: list(keys)} if keys else {}
        owners = self.owners
        out: dict[int, list[str]] = {}
        for key, part in zip(keys, _partitions(keys, len(owners)), strict=True):
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
        return max(nodes, key=lambda node: (xxh64(f"{part} {node}"), node))

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

    def with_nodes(self, nodes: Sequence[int]) -> PartitionTable:
        """``nodes`` are new: each takes its even share from those that have most; nothing else moves."""
        loads = Counter(self.owners)
        new = [node for node in nodes if node not in loads]
        if not new:
            return self
        heap = [(-load, -node) for node, load in loads.items()]
        heapify(heap)
        given = Counter[int]()
        for _ in range(len(self.owners) // (len(loads) + len(new)) * len(new)):
            load, donor = heap[0]
            heapreplace(heap, (load + 1, donor))
            given[-donor] += 1
        # Neighbouring partitions hold neighbouring stripes of a file, so what is given is spread: with two nodes every second one.
        owners = list(self.owners)
        takers = cycle(new)
        for part in _scattered(len(owners)):
            part = (part + new[0]) % len(owners)
            if given[owners[part]] > 0:
                given[owners[part]] -= 1
                owners[part] = next(takers)
        return PartitionTable(owners, self.version + len(new))

    def moved(self, other: PartitionTable) -> set[int]:
        """Partitions that have another owner in ``other``."""
        if self.owners is other.owners:
            return set()
        return {part for part, (a, b) in enumerate(zip(self.owners, other.owners, strict=True)) if a != b}
