"""How long nodes go on: the batch system ends their jobs at a time that is known. Pure.

Decides whether a task may still begin on a node. Must not know how tasks are passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amfs.vocabulary import messages as m


class TimeLeft:
    """Of the nodes whose jobs have an end."""

    def __init__(self) -> None:
        self._ends: Mapping[int, float] = {}

    def learn(self, ends: Mapping[int, float]) -> None:
        """``ends``: node -> when its job ends, by the clock of the machines; nodes without an end are not in it."""
        self._ends = ends

    def has_end(self, node: int) -> bool:
        """Is it known when its job ends?"""
        return node in self._ends

    def is_enough(self, node: int, spec: m.TaskSpec, now: float) -> bool:
        """Can the task end there before the node's job does? It can if nobody knows how long either takes."""
        end = self._ends.get(node)
        limit_ms = spec.options.time_limit_ms if spec.options is not None else 0
        return end is None or not limit_ms or now + limit_ms / 1000 <= end

    def enough(self, nodes: Iterable[int], spec: m.TaskSpec, now: float) -> list[int]:
        """Those of ``nodes`` where it can."""
        return [node for node in nodes if self.is_enough(node, spec, now)]
