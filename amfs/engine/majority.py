"""Whether the nodes that are heard may go on without those that are not: a part of the membership. Pure.

They may if they are more than half of the members, or just half and the lowest id is theirs. Members that ended while this
node heard of them do not count. Nor do members that have joined, until the majority of the others knows them: else a manager that
has been cut off could have more join than it has lost. Nor does a manager count members that may not hear it, and so follow another.
So of two sides of a cut one goes on at most.

A node that was stopped for long may have been left out meanwhile, by others that have ended since. So an end counts only if this node heard
enough of the one that ended after it went on, or if that one said that it leaves (``end``). Must not know: views.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from amfs.config import MemberLimits


class Majority:
    """The news that node ``node`` heard of the others."""

    def __init__(self, node: int, limits: MemberLimits) -> None:
        self.node = node
        self.limits = limits
        self.lately_s = limits.suspect_s  # how long ago a node may have been heard last that counts as reached
        self.members: list[int] = []
        self._manages = False  # this node is the manager
        self.gone: set[int] = set()  # members whose process has ended, as their hosts say
        self._ended: set[int] = set()  # members whose process has ended, too, but that may have left this node out before
        self._refused: dict[int, float] = {}  # node that lives and has lately given up on this one -> when it said so
        self._woke = -math.inf  # when this process went on last after it had been stopped for long
        self._heard: dict[int, float] = {}
        self._deaf: set[int] = set()  # members that do not hear this node, as they said last, or may not
        self._voted: dict[int, float] = {}  # when a member said last that it does not hear the manager
        self._joined: dict[int, int] = {}  # member that does not count yet -> the epoch in which it joined
        self._known: dict[int, int] = {}  # the epoch that a member knew last

    def follow(self, members: list[int], epoch: int, manages: bool, now: float) -> None:
        """These are the members. One that is new has just asked to be let in, or was started together with this node. ``manages``: this
        node lets members in. Others count all of a view, for they have it from its manager."""
        for node in set(members).difference(self.members):
            self.hear(node, now, False)
            if manages and self.node in self.members:
                self._joined[node] = epoch
        self._joined = {node: at for node, at in self._joined.items() if manages and node in members}
        self._known = {node: at for node, at in self._known.items() if node in members}
        self.members, self._manages = members, manages
        self.gone.intersection_update(members)
        self._ended.intersection_update(members)
        known = set(members)
        self._heard = {node: at for node, at in self._heard.items() if node in known}
        self._deaf &= known
        self._voted.clear()
        self._count_known()

    def hear(self, node: int, at: float, deaf: bool | None = None) -> None:
        """``deaf``: it does not hear this node, its manager; None: it said nothing of that. Then one that was silent for long may have
        agreed to another manager meanwhile."""
        before = self._heard.get(node, -math.inf)
        if deaf is None and at - before > self.lately_s:
            deaf = True
        if at > before:
            self._heard[node] = at
        if deaf is not None:
            (self._deaf.add if deaf else self._deaf.discard)(node)

    def wake(self, now: float, stopped_s: float) -> None:
        """This process was stopped for so long. The others look for another manager after ``dead_s`` of silence. They had not heard this
        node for some time before it was stopped: up to two beats, and the time of a message."""
        if stopped_s > self.limits.dead_s - self.limits.suspect_s:
            self._woke = now

    def end(self, node: int, witness: int, now: float, said: bool = False) -> bool:
        """The process of this member has ended. It does not count any more if ``witness`` was heard lately enough: the node itself, or its
        manager if that is another. A message that arrives just after this process was stopped may be old. But if the member ``said`` that
        it leaves, this is the last of its messages, which come in order: it neither left this node out nor said that it is deaf to it."""
        heard = self._heard.get(witness, -math.inf)
        sure = now - heard <= self.limits.dead_s and (said or heard > self._woke + self.limits.heartbeat_s)
        if sure and not (self._manages and node in self._deaf):
            self.gone.add(node)
        else:
            self._ended.add(node)
        return node in self.gone

    def refuse(self, node: int, now: float) -> None:
        """It lives, and has given up on this node."""
        self._refused[node] = now
        self._refused = {node: at for node, at in self._refused.items() if now - at < self.limits.dead_s}

    def is_given_up(self) -> bool:
        """Those that have given up on this node have gone on without it: nobody is left with whom it would be the majority."""
        others = self._ended.union(self._refused)
        return bool(self._refused) and 2 * len(others) >= len(others.union(self.members))

    def knows(self, node: int, epoch: int) -> None:
        """It has the view of this epoch."""
        self._known[node] = epoch
        self._count_known()

    def vote(self, node: int, now: float) -> None:
        """It does not hear the manager, either."""
        self._voted[node] = now

    def heard(self, node: int, now: float) -> bool:
        return now - self._heard.get(node, -math.inf) <= self.lately_s

    def successors(self, manager: int) -> list[int]:
        """The nodes that may take the manager's place, the first first."""
        return [node for node in self.members if node != manager and node not in self.gone]

    def without(self, lost: Collection[int], now: float) -> bool:
        """May the manager and those that it hears, and that hear it, take ``lost`` for dead? The others may follow another manager."""
        return self._is_majority({node for node in self.members if node not in lost and node not in self._deaf and self.heard(node, now)})

    def hears(self, now: float) -> bool:
        """Does the majority speak to this node, whether it hears it or not?"""
        return self._is_majority({node for node in self.members if self.heard(node, now)})

    def agrees(self, now: float) -> bool:
        """May this node take the place of a manager that the majority does not hear?"""
        return self._is_majority({node for node, at in self._voted.items() if now - at <= self.lately_s})

    def _count_known(self) -> None:
        """Those that have joined count from when the majority of the others knows them."""
        for epoch in sorted(set(self._joined.values())):
            if not self._is_majority({node for node, known in self._known.items() if known >= epoch}):
                break
            self._joined = {node: at for node, at in self._joined.items() if at > epoch}

    def _is_majority(self, others: set[int]) -> bool:
        count = [node for node in self.members if node not in self.gone and node not in self._joined]
        ours = [node for node in count if node == self.node or node in others]
        return 2 * len(ours) > len(count) or (2 * len(ours) == len(count) and bool(ours) and ours[0] == count[0])
