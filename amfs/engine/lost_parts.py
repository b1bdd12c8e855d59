"""Partitions whose records may be gone, for those who tell shards of files: they tell again what is in these. Pure.

A shard that lives hands over what it knew (``shard_moves``), so nothing is told again when partitions move. When a node dies, the records
are gone of the partitions that it had, and may be of those that it had before and was still to hand over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set

from amfs.vocabulary.partition import Moves, PartitionTable, moves_between

_LATE = 64  # views of which the moves are kept as they are, since nodes of one process share them


class LostParts:
    """Of one worker, or one submitter."""

    def __init__(self) -> None:
        self._moves: deque[Moves] = deque()  # of the last views
        self._given: dict[int, set[int]] = {}  # of those before: node -> partitions that moved from it to others

    def after(self, before: PartitionTable, table: PartitionTable, dead: Iterable[int]) -> Set[int]:
        """There is a new view. To be asked at each, since it remembers what moved."""
        if table.version != before.version + 1 or len(table.owners) != len(before.owners):
            self._moves.clear()
            self._given.clear()
            return frozenset(range(len(table.owners)))  # nobody knows what has moved in the views that were missed
        if before.owners != table.owners:
            self._moves.append(moves_between(before, table))
        lost = self.given_by(dead)
        while len(self._moves) > _LATE:
            for node, left in self._moves.popleft().left.items():
                self._given.setdefault(node, set()).update(left)
        return lost

    def given_by(self, nodes: Iterable[int]) -> set[int]:
        """Partitions that these nodes had."""
        given: set[int] = set()
        for node in nodes:
            given.update(self._given.pop(node, ()), *[moves.left.get(node, ()) for moves in self._moves])
        return given
