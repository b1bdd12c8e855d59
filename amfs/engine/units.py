"""Which node dispatches for which workers (AME §3: an AME-unit is a dispatcher with its workers). Pure."""

from __future__ import annotations

from collections.abc import Mapping


def units(slots: Mapping[int, int], unit_size: int) -> dict[int, list[int]]:
    """dispatcher -> its workers, from the live nodes and their slots. A node without slots is in no unit: it only keeps files and names.
    A node that drains (slots below 0) works no more, and goes on dispatching until it leaves: its tasks need not begin anew before.

    Node ``i`` belongs to unit ``i // unit_size`` for as long as it lives; the lowest live node of a unit dispatches for it.
    ``unit_size`` 0: all nodes are one unit, which is AME's centralized variant (§4.1).
    """
    members: dict[int, list[int]] = {}
    for node in sorted(node for node in slots if slots[node]):
        members.setdefault(node // unit_size if unit_size else 0, []).append(node)
    return {nodes[0]: [node for node in nodes if slots[node] > 0] for nodes in members.values()}


def ring(node: int, workers: list[int]) -> list[int]:
    """The other workers of the unit, starting with the right-hand neighbour."""
    if node not in workers:
        return workers
    at = workers.index(node)
    return workers[at + 1 :] + workers[:at]
