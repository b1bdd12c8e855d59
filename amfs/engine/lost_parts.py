"""Partitions whose records may be gone, for those who tell shards of files: they tell again what is in these. Pure.

A shard that lives hands over what it knew (``shard_moves``), so nothing is told again when partitions move. When a node dies, the records
are gone of the partitions that it had, and may be of those that it had before and was still to hand over.
"""

from __future__ import annotations

from collections.abc import Set

from amfs.vocabulary.partition import PartitionTable, moves_between


class LostParts:
    """Of one worker, or one submitter."""

    def __init__(self) -> None:
        self._given: dict[int, set[int]] = {}  # node -> partitions that moved from it to others

    def after(self, before: PartitionTable, table: PartitionTable, dead: Set[int]) -> Set[int]:
        """There is a new view. To be asked at each, since it remembers what moved."""
        if table.version != before.version + 1 or len(table.owners) != len(before.owners):
            self._given.clear()
            return frozenset(range(len(table.owners)))  # nobody knows what has moved in the views that were missed
        lost: set[int] = set()
        for node, left in moves_between(before, table).left.items():
            if node in dead:
                lost.update(left)
            else:
                self._given.setdefault(node, set()).update(left)
        for node in dead:
            lost.update(self._given.pop(node, ()))
        return lost
