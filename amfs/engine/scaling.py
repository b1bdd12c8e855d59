"""The steps that bring a session to a number of nodes: jobs or processes more, jobs that wait no more, or nodes that drain. Pure.

Those that run nothing and have the least to hand over drain first. The node that founded a session of jobs has no slots, and does not
count. Must not know: how nodes are started or told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Plan(NamedTuple):
    """``start``: more nodes, jobs or processes here. ``cancel``: so many jobs that wait. ``drain``: so many nodes leave."""

    start: int
    cancel: int
    drain: int


def plan(wanted: int, there: int, waiting: int) -> Plan:
    """``there`` nodes are members, ``waiting`` jobs may still become nodes. Jobs that wait are cancelled before a node drains."""
    return Plan(max(0, wanted - there - waiting), min(waiting, max(0, there + waiting - wanted)), max(0, there - wanted))


class Standing(NamedTuple):
    """A node that could drain."""

    node: int
    held: int  # bytes of files that it would have to hand over
    running: int  # tasks
    manages: bool = False


def to_drain(nodes: Iterable[Standing], count: int) -> list[int]:
    """``count`` of them, at least one is left: those that run no task first, since a drain waits for tasks; then the fewest bytes, the
    fewest tasks, the newest. The manager last, since another one must take its place first."""
    order = sorted(nodes, key=lambda one: (one.manages, one.running > 0, one.held, one.running, -one.node))
    return [one.node for one in order[: max(0, min(count, len(order) - 1))]]
