"""Founding a session, and deaths in it, cost a number of messages that grows with the number of nodes, not with its square."""

from __future__ import annotations

import pytest

from amfs.sim.membership import simulate_membership


@pytest.mark.parametrize("gap_s", [0.0, 0.002])
def test_messages_grow_with_the_nodes(gap_s: float) -> None:
    some, many = (simulate_membership(nodes, deaths=2, gap_s=gap_s) for nodes in (16, 128))
    assert [change.nodes for change in many] == [128, 127, 126]
    for few, more in zip(some, many, strict=True):
        assert more.messages < 12 * few.messages, (few, more)


def test_partitions_move_too() -> None:
    joins, death, manager = simulate_membership(12, deaths=2, files=True)
    assert (joins.nodes, death.nodes, manager.nodes) == (12, 11, 10)
    assert joins.messages > 12 * 2
