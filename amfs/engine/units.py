"""Which node dispatches for which workers (AME §3: an AME-unit is a dispatcher with its workers). Pure."""

from __future__ import annotations

from collections.abc import Mapping


def units(slots: Mapping[int, int], unit_size: int) -> dict[int, list[int]]:
    """dispatcher -> its workers, from the live nodes and their slots. A node without slots is in no unit: it only keeps files and names.

    Node ``i`` belongs to unit ``i // unit_size`` for as long as it lives; the lowest live node of a unit dispatches for it.
    ``unit_size`` 0: all nodes are one unit, which is AME's centralized variant (§4.1).
    """
    members: dict[int, list[int]] = {}
    for node in sorted(node for node in slots if slots[node] > 0):
        members.setdefault(node // unit_size if unit_size else 0, []).append(node)
    return {workers[0]: workers for workers in members.values()}


def ring(node: int, workers: list[int]) -> list[int]:
    """The other workers of the unit, starting with the right-hand neighbour."""
    if node not in workers:
        return []
    at = workers.index(node)
    return workers[at + 1 :] + workers[:at]
