"""How a node that drains leaves in order: it goes when all others have heard what it said, and it what they said to it. Pure.

A part of the drain. Owns which nodes and submitters have answered the question (``Farewell``) so far. A node that goes without this counts
as lost: messages from it or to it may be missing, so runs at work trust no count of readers any more. Each that answers goes by
a view in which this node drains. In that view this node has no partitions, so messages to it by the views before have come before the
answer. If this node says something because of an answer, it asks again.

Must not know the contents of messages. It counts those that leave the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from amfs.vocabulary import messages as m


class Rest(NamedTuple):
    """Runs that a node still has. ``runs``: those that it knows, with their submitters. ``at_rest``: it has no task, no file that
    others lack, and nothing to tell shards. ``said``: how much it has said so far that counts."""

    runs: Callable[[], Mapping[int, int]]
    at_rest: Callable[[], bool]
    said: Callable[[], int]


class Asking:
    """The question of one node. ``number`` tells the answers to this one from those to earlier ones."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.number = 0
        self._nodes: set[int] = set()  # that have not answered
        self._submitters: set[int] = set()  # likewise
        self._runs: Mapping[int, int] = {}
        self._said = -1

    def begin(self, nodes: Iterable[int]) -> None:
        """Ask anew."""
        self.number += 1
        self._runs = dict(self.rest.runs())
        self._nodes, self._submitters = set(nodes), {*self._runs.values()}
        self._said = self.rest.said()

    def is_old(self) -> bool:
        """Has this node said something since it asked, or heard of another run?"""
        return self._said != self.rest.said() or self._runs != self.rest.runs()

    def to_ask(self) -> Iterator[tuple[int, m.Farewell]]:
        """Those that have not answered, with the question."""
        for to in sorted(self._nodes | self._submitters):
            yield to, m.Farewell(self.number)

    def answered(self, peer: int, number: int) -> bool:
        """Has anybody new answered?"""
        if number != self.number or peer not in self._nodes | self._submitters:
            return False
        self._nodes.discard(peer)
        self._submitters.discard(peer)
        return True

    def heard(self, patient: bool) -> tuple[int, ...] | None:
        """The runs of which all is heard; None: of none yet. ``patient``: a submitter may still answer."""
        if self._nodes or (patient and self._submitters) or self.is_old() or not self.rest.at_rest():
            return None
        return tuple(sorted(run for run, submitter in self._runs.items() if submitter not in self._submitters))
