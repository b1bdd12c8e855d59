"""Which of two views of the session counts, and which one follows from a change. Pure.

Views of one line of managers are counted by their epoch. After a cut network, or when a manager was stopped for so long that the others
took it for dead, two managers go on, each with the nodes that it reaches. Neither is a member of the view of the other, and their epochs
cannot be compared. Of two such views the one with more members counts, so that submitters do not follow a manager that has lost its nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from amfs.vocabulary.messages import Member, View, ViewChange
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.shares import weights


def overtakes(new: View, old: View) -> bool:
    """Whether those who go by ``old`` and can reach both managers are to go by ``new``."""
    if are_rivals(new, old) and len(new.members) != len(old.members):
        return len(new.members) > len(old.members)
    return (new.epoch, -new.manager) > (old.epoch, -old.manager)


def are_rivals(one: View, other: View) -> bool:
    """Whether each of the two managers has left the other out."""
    return not _has(one, other.manager) and not _has(other, one.manager)


def _has(view: View, node: int) -> bool:
    return any(member.node == node for member in view.members)


#: Views that were followed last, the change and the next view: nodes of one process, of which a simulation has thousands, share them.
_followed: deque[tuple[View, ViewChange, View]] = deque(maxlen=8)


def follow(view: View, change: ViewChange) -> View:
    """The view after ``change``. The manager and all members of ``view`` work it out for themselves, with the same result."""
    for before, known, after in _followed:
        if before is view and known == change:
            return after
    left, joined = set(change.left), {member.node for member in change.joined}
    members = [
        msgspec.structs.replace(member, draining=True) if member.node in change.draining else member
        for member in view.members if member.node not in left and member.node not in joined
    ]  # fmt: skip
    weigh = weigh_all((*view.members, *change.joined))
    staying = {member.node: weigh[member.node] for member in members if not member.draining}
    table = PartitionTable(view.table, view.epoch)
    if gone := left.union(change.draining):
        if table.nodes <= gone:  # where only nodes that drain are left, none of them has partitions
            table = PartitionTable.dealt(staying or {member.node: weigh[member.node] for member in members}, len(view.table))
        else:
            table = table.without(*left)
            table = table.handed_over(change.draining, staying) if change.draining else table
    if joined:
        table = table.with_nodes(sorted(joined), weigh)
    if change.moves:
        table = table.balanced(staying, change.moves)
    members = sorted((*members, *change.joined), key=lambda member: member.node)
    after = View(view.epoch + 1, change.manager, tuple(members), table.owners, view.unit_size, change.in_order)
    _followed.append((view, change, after))
    return after


def weigh_all(members: Iterable[Member]) -> dict[int, int]:
    """The weights of members, by which they share the partitions."""
    return weights({member.node: member.capacity for member in members})


def follows(change: ViewChange, view: View) -> bool:
    """Whether ``change`` is one of ``view``."""
    return (change.base_epoch, change.base_manager) == (view.epoch, view.manager)
