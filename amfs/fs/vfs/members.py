"""Which nodes are in, what the table of partitions says, and of which losses this node has heard. Pure.

Changed by the machine (``set_view``) and by the mover of partitions; read by everybody.
"""

from __future__ import annotations

LOSSES_BITS = 16


def version_of(known: int) -> int:
    """The version of the table that goes with ``Members.known``."""
    return known >> LOSSES_BITS


class Members:
    """What this node knows of the session."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.live: frozenset[int] = frozenset((node,))
        self.manager = node
        self.owners: tuple[int, ...] = ()
        self.version = 0  # of the partition table
        self.losses = 0  # how often stripes were lost since that was set, on their way from a node that died
        self.lost: dict[int, int] = {}  # partition -> what was ``known`` when its stripes were lost
        self.lost_copies: dict[int, int] = {}  # likewise, of files that have copies: with these
        self.introduced = False  # knows the directories
        self.dead: list[int] = []  # nodes that died since this one came in

    @property
    def known(self) -> int:
        """Of which losses this node has heard: grows with each. Those with a version of the table are the same everywhere."""
        return self.version << LOSSES_BITS | self.losses

    def is_behind(self, known: int) -> bool:
        """Does a node that has ``known`` this have an older table? Then it has not heard of the nodes that have died since."""
        return version_of(known) < self.version

    def who_died(self) -> str:
        """With whom content may have been lost, in words."""
        if len(self.dead) == 1:
            return f"node {self.dead[0]}, which died"
        return f"one of nodes {', '.join(map(str, sorted(self.dead)))}, which died" if self.dead else "a node that died"

    def note_lost(self, partitions: list[int], copies: bool) -> None:
        """The stripes of these are lost, as of what is ``known`` by now; ``copies``: of files that have copies, else of the others."""
        (self.lost_copies if copies else self.lost).update((part, self.known) for part in partitions)
