"""Which nodes of a session drain when it is to have fewer. Pure.

Those that have the least to hand over go first. The node that founded a session of jobs has no slots, and does not count. Must not know:
how nodes are started or told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Standing(NamedTuple):
    """A node that could drain."""

    node: int
    held: int  # bytes of files that it would have to hand over
    running: int  # tasks
    manages: bool = False


def to_drain(nodes: Iterable[Standing], count: int) -> list[int]:
    """``count`` of them, at least one is left: the fewest bytes first, then the fewest tasks, then the newest; the manager last, since
    another one must take its place first."""
    order = sorted(nodes, key=lambda one: (one.manages, one.held, one.running, -one.node))
    return [one.node for one in order[: max(0, min(count, len(order) - 1))]]
