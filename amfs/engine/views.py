"""Which of two views of the session counts. Pure.

Views of one line of managers are counted by their epoch. After a cut network, or when a manager was stopped for so long that the others
took it for dead, two managers go on, each with the nodes that it reaches. Neither is a member of the view of the other, and their epochs
cannot be compared. Of two such views the one with more members counts, so that submitters do not follow a manager that has lost its nodes.
"""

from __future__ import annotations

from amfs.engine.messages import View


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
