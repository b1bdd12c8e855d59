"""Loads of the nodes are brought back, at leisure: the manager's decision when partitions are to move, and how many. Pure.

A node that dies is succeeded by the backups of its partitions, also if one of them is small. Nodes that joined or left one after the other
may have a partition more or less than their share. A while after the last change some partitions move from nodes that have too many, then
more of them, so that a session that works is never busy with all of them at once. Also decides what the capacity of a new node is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from amfs.engine.views import weigh_all
from amfs.vocabulary.messages import Member, View
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.shares import alike

PART = 32  # of a table moves at once: one partition in so many


class Balance:
    """``pause_s``: from a change of the members, or from the last move, to the next move."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self._even: View | None = None  # in which nobody has too many partitions

    def moves(self, view: View, unchanged_s: float) -> int:
        """How many partitions are to move now, at most. ``unchanged_s``: for how long the view has been as it is."""
        if unchanged_s < self.pause_s or view is self._even:
            return 0
        weigh = weigh_all(view.members)
        staying = {member.node: weigh[member.node] for member in view.members if not member.draining}
        table = PartitionTable(view.table, view.epoch)
        most = max(1, len(view.table) // PART)
        if not staying or table.balanced(staying, most) is table:
            self._even = view
            return 0
        return most


def admitted(joined: Sequence[Member], members: Sequence[Member]) -> tuple[Member, ...]:
    """``joined`` as the members are to know them. Free memory that was measured is not divided by who measures first: nodes of one host of
    which nobody has said the capacity have the same, and if it hardly differs from that of another node it is equal."""
    capacities = {member.capacity for member in members}
    hosts = {member.host: member.capacity for member in reversed(members) if member.measured and member.host and member.capacity > 0}
    out: list[Member] = []
    for new in joined:
        capacity = new.capacity
        if capacity > 0:
            capacity = hosts[new.host] if new.measured and new.host in hosts else alike(capacity, capacities)
            capacities.add(capacity)
            if new.measured and new.host:
                hosts.setdefault(new.host, capacity)
        out.append(new if capacity == new.capacity else msgspec.structs.replace(new, capacity=capacity))
    return tuple(out)
