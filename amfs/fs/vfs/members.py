"""The members of the session, the table of partitions, and the losses of which this node has heard. Pure.

Changed by the machine (``set_view``) and by the mover of partitions; read by everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BRANCHES = 4  # of the tree of nodes: the last of five hears of a change in one step, the last of a thousand in five


class Members:
    """The session, as this node knows it."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.live: frozenset[int] = frozenset((node,))
        self.manager = node
        self.owners: tuple[int, ...] = ()
        self.version = 0  # of the partition table
        #: of stripes on their way from a node that died, told with this version of the table: the heir, and its number for it
        self.told: set[tuple[int, int]] = set()
        self.losses_seen = 0  # losses of which this node has heard, counted here: compared with nothing of another node
        self.lost: dict[int, int] = {}  # partition -> ``losses_seen`` when its stripes were lost
        self.lost_copies: dict[int, int] = {}  # likewise, of files that have copies: with these
        self.introduced = False  # knows the directories
        self.dead: list[int] = []  # nodes that died since this one came in

    @property
    def losses(self) -> tuple[int, ...]:
        """Of which losses this node has heard, as other nodes would say it: the version of the table, which tells of the nodes that died,
        and what was told with it."""
        return self.version, *(number for told in sorted(self.told) for number in told)

    @property
    def staying(self) -> frozenset[int]:
        """Living nodes that have partitions: those that drain have none, and take their content with them."""
        return self.live.intersection(self.owners)

    def set_version(self, version: int) -> None:
        """A new table has come. Nodes that tell of losses tell everybody again."""
        self.version = version
        self.told.clear()

    def who_died(self) -> str:
        """With whom content may have been lost, in words."""
        if len(self.dead) == 1:
            return f"node {self.dead[0]}, which died"
        return f"one of nodes {', '.join(map(str, sorted(self.dead)))}, which died" if self.dead else "a node that died"

    def note_lost(self, partitions: Sequence[int], copies: bool) -> None:
        """The stripes of these are lost; ``copies``: of files that have copies, else of the others."""
        self.losses_seen += 1
        (self.lost_copies if copies else self.lost).update(dict.fromkeys(partitions, self.losses_seen))

    def was_lost(self, partitions: Iterable[int], copies: bool, since: int) -> bool:
        """Were stripes of one of these lost since ``losses_seen`` was that?"""
        lost = self.lost_copies if copies else self.lost
        return any(lost.get(part, 0) > since for part in partitions)


def below(place: int, count: int) -> list[int]:
    """The places below one in a tree of ``count`` nodes."""
    return [child for child in range(BRANCHES * place + 1, BRANCHES * place + BRANCHES + 1) if child < count]
