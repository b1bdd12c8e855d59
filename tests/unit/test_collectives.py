"""Plans of collective file movement: every node ends with exactly what it should hold, in no more rounds than promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.engine.collectives import (
    ALGORITHMS,
    ALLGATHER,
    GATHER,
    KINDS,
    MST,
    MULTICAST,
    SCATTER,
    SEQUENTIAL,
    Round,
    deal,
    goals,
    plan,
    rounds_of,
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[set[int], dict[int, set[int]], int]:
    """Nodes with gaps in their numbers, their files, and a root."""
    nodes = draw(st.sets(st.integers(0, 60), min_size=1, max_size=20))
    some = st.sets(st.sampled_from(sorted(nodes)), min_size=1, max_size=4)
    count = draw(st.integers(0, 12))
    return nodes, {file: draw(some) for file in range(count)}, draw(st.sampled_from(sorted(nodes)))


def carried_out(rounds: list[Round], holders: dict[int, set[int]]) -> dict[int, set[int]]:
    held = {file: set(there) for file, there in holders.items()}
    for transfers in rounds:
        before = {file: set(there) for file, there in held.items()}
        for transfer in transfers:
            assert transfer.files and transfer.source != transfer.target
            for file in transfer.files:
                assert transfer.source in before[file], "it sends what it has not got"
                assert transfer.target not in held[file], "it is sent what it has"
                held[file].add(transfer.target)
    return held


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
@given(situation=situations())
def test_every_node_ends_with_what_it_should_hold(kind: str, algorithm: str, situation: tuple[set[int], dict[int, set[int]], int]) -> None:
    nodes, holders, root = situation
    places = deal(sorted(holders), nodes, root)
    rounds = plan(kind, nodes, holders, root, places, algorithm)
    held = carried_out(rounds, holders)
    goal = goals(kind, nodes, root, places)
    for file, there in held.items():
        assert goal(file) <= there
        if kind in (MULTICAST, ALLGATHER):
            assert there == nodes
    if algorithm == SEQUENTIAL:
        assert all(len(transfers) == 1 for transfers in rounds)
        if kind == GATHER:
            assert {transfer.target for transfers in rounds for transfer in transfers} <= {root}
    else:
        assert len(rounds) <= rounds_of(len(nodes)) * (2 if kind == ALLGATHER else 1)


@given(nodes=st.integers(1, 300))
def test_a_tree_has_exactly_log2_rounds_and_as_many_transfers_as_needed(nodes: int) -> None:
    rounds = plan(MULTICAST, set(range(nodes)), {0: {0}}, 0, {}, MST)
    assert len(rounds) == rounds_of(nodes)
    assert sum(map(len, rounds)) == nodes - 1
    for transfers in rounds:
        ends = [end for transfer in transfers for end in (transfer.source, transfer.target)]
        assert len(set(ends)) == len(ends), "a node has two connections in one round"
    everything = {file: {file} for file in range(nodes)}
    assert len(plan(GATHER, set(range(nodes)), everything, 0, {}, MST)) == rounds_of(nodes)
    places = deal(range(nodes), range(nodes), 0)
    scattered = plan(SCATTER, set(range(nodes)), {file: {0} for file in range(nodes)}, 0, places, MST)
    assert len(scattered) == rounds_of(nodes)
    assert len(plan(MULTICAST, set(range(nodes)), {0: {0}}, 0, {}, SEQUENTIAL)) == nodes - 1


def test_rounds() -> None:
    assert [rounds_of(nodes) for nodes in (1, 2, 3, 4, 5, 8, 9, 16, 1024)] == [0, 1, 2, 2, 3, 3, 4, 4, 10]
