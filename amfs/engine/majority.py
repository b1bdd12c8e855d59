"""Whether the nodes that are heard may go on without those that are not: a part of the membership. Pure.

They may if they are more than half of the members, or just half and the lowest id is theirs. Members that are known to have ended do not
count. So of two sides of a cut one goes on at most. Must not know: who is manager, what is announced.
"""

from __future__ import annotations

import math
from collections.abc import Collection


class Majority:
    """What node ``node`` heard of the others. ``lately_s``: how long ago a node may have been heard last that counts as reached."""

    def __init__(self, node: int, lately_s: float, members: list[int]) -> None:
        self.node = node
        self.lately_s = lately_s
        self.members = members
        self.gone: set[int] = set()  # members whose process has ended, as their hosts say
        self._heard: dict[int, float] = {}

    def follow(self, members: list[int]) -> None:
        self.members = members
        self.gone.intersection_update(members)
        self._heard = {node: at for node, at in self._heard.items() if node in members}

    def hear(self, node: int, at: float) -> None:
        if at > self._heard.get(node, -math.inf):
            self._heard[node] = at

    def allow_for_pause(self, late: float, now: float) -> None:
        self._heard = {node: min(at + late, now) for node, at in self._heard.items()}

    def heard(self, node: int, now: float) -> bool:
        return now - self._heard.get(node, -math.inf) <= self.lately_s

    def successors(self, manager: int) -> list[int]:
        """Who may take the manager's place, the first first."""
        return [node for node in self.members if node != manager and node not in self.gone]

    def without(self, lost: Collection[int], now: float) -> bool:
        """May those who are heard take ``lost`` for dead?"""
        count = [node for node in self.members if node not in self.gone]
        ours = [node for node in count if node not in lost and (node == self.node or self.heard(node, now))]
        return 2 * len(ours) > len(count) or (2 * len(ours) == len(count) and bool(ours) and ours[0] == count[0])
