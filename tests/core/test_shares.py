"""The partition table of unequal nodes: how even it is, and how little moves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.vocabulary.partition import PARTITIONS_PER_NODE, PartitionTable, enough_for
from amfs.vocabulary.shares import alike, ceilings, quotas, weights

LIMIT = 1.05
quickly = settings(max_examples=60, deadline=None)
weighed = st.lists(st.integers(1, 16), min_size=2, max_size=40).map(lambda each: dict(enumerate(each)))
wild = st.dictionaries(st.integers(0, 500), st.sampled_from([1, 3, 1000, 10**12]), min_size=2, max_size=40)


def imbalance(loads: Mapping[int, int], weigh: Mapping[int, int]) -> float:
    """The highest load over the mean."""
    mean = sum(loads.values()) / sum(weigh.values())
    return max(loads[node] / weight for node, weight in weigh.items()) / mean


def share(weigh: Mapping[int, int], node: int, count: int) -> float:
    return count * weigh[node] / sum(weigh.values())


def founded(weigh: Mapping[int, int]) -> PartitionTable:
    """The table of a session whose nodes came one after the other."""
    first, *others = weigh
    table = PartitionTable.even([first], enough_for(len(weigh)))
    for at, node in enumerate(others):
        table = table.with_nodes([node], {each: weigh[each] for each in [first, *others][: at + 2]})
    return table


# ── what each is to have ───────────────────────────────────────────────────────────────────────────


def test_10_000_random_clusters_are_balanced() -> None:
    lot = random.Random(30)
    for _ in range(10_000):
        weigh = {node: lot.randint(1, 16) for node in range(lot.randint(2, 256))}
        count = PARTITIONS_PER_NODE * len(weigh)
        quota = quotas(weigh, count)
        assert sum(quota.values()) == count
        assert imbalance(quota, weigh) <= LIMIT, weigh


@quickly
@given(st.lists(st.integers(1, 9), min_size=2, max_size=4).map(lambda each: dict(enumerate(each))), st.integers(4, 12))
def test_no_table_has_a_smaller_highest_load(weigh: dict[int, int], count: int) -> None:
    def tables(nodes: list[int], left: int) -> list[dict[int, int]]:
        if len(nodes) == 1:
            return [{nodes[0]: left}]
        return [{nodes[0]: mine} | rest for mine in range(1, left - len(nodes) + 2) for rest in tables(nodes[1:], left - mine)]

    assert imbalance(quotas(weigh, count), weigh) == min(imbalance(each, weigh) for each in tables(list(weigh), count))


@quickly
@given(wild, st.integers(40, 2000))
def test_each_node_has_a_partition_or_it_would_be_nobodys_backup(weigh: dict[int, int], count: int) -> None:
    quota = quotas(weigh, count)
    assert sum(quota.values()) == count
    assert min(quota.values()) >= 1
    limits = ceilings(weigh, count)
    assert all(limits[node] >= quota[node] for node in weigh), "the most that nodes may have is enough for all partitions"


@quickly
@given(st.lists(st.integers(0, 500), min_size=1, max_size=20, unique=True), st.sampled_from([0, 7, 64, 100]), st.integers(1, 1 << 40))
def test_equal_nodes_are_dealt_to_as_ever(nodes: list[int], count: int, weight: int) -> None:
    assert PartitionTable.dealt(dict.fromkeys(nodes, weight), count).owners == PartitionTable.even(nodes, count).owners


def test_a_capacity_that_is_not_known_counts_as_the_mean() -> None:
    assert weights({1: 0, 2: -5}) == {1: 1, 2: 1}
    assert weights({1: 10, 2: 0, 3: 30}) == {1: 10, 2: 20, 3: 30}


def test_what_hardly_differs_is_one_capacity() -> None:
    assert alike(1000, [970, 2000]) == 970
    assert alike(1000, [900, 2000, 0]) == 1000
    assert alike(1000, []) == 1000


# ── nodes come and go ──────────────────────────────────────────────────────────────────────────────


@quickly
@given(weighed)
def test_a_session_whose_nodes_join_is_balanced(weigh: dict[int, int]) -> None:
    table = founded(weigh)
    assert imbalance(Counter(table.owners), weigh) <= LIMIT
    assert table.balanced(weigh, 64) is table


@quickly
@given(weighed, st.lists(st.integers(1, 16), min_size=1, max_size=5))
def test_new_nodes_take_their_shares_and_nothing_else_moves(weigh: dict[int, int], joined: list[int]) -> None:
    table = founded(weigh)
    new = {1000 + at: weight for at, weight in enumerate(joined)}
    after = table.with_nodes(list(new), weigh | new)
    assert table.moved(after) == {part for part, owner in enumerate(after.owners) if owner in new}
    loads = Counter(after.owners)
    for node in new:
        assert loads[node] == max(1, int(share(weigh | new, node, len(table.owners))))
    assert imbalance(loads, weigh | new) <= imbalance(Counter(table.owners), weigh) * sum((weigh | new).values()) / sum(weigh.values())


@quickly
@given(wild, st.lists(st.sampled_from([1, 1000, 10**12]), min_size=1, max_size=5))
def test_who_joins_leaves_each_node_a_partition(weigh: dict[int, int], joined: list[int]) -> None:
    new = {1000 + at: weight for at, weight in enumerate(joined)}
    assert PartitionTable.dealt(weigh).with_nodes(list(new), weigh | new).nodes == (weigh | new).keys()


@quickly
@given(weighed, st.data())
def test_what_a_node_leaves_goes_to_the_least_loaded_and_nothing_else_moves(weigh: dict[int, int], data: st.DataObject) -> None:
    table = founded(weigh)
    gone = data.draw(st.lists(st.sampled_from(sorted(weigh)), min_size=1, max_size=len(weigh) - 1, unique=True))
    left = {node: weight for node, weight in weigh.items() if node not in gone}
    after = table.handed_over(gone, left)
    assert table.moved(after) == {part for part, owner in enumerate(table.owners) if owner in gone}
    assert after.nodes == left.keys()
    assert after.version == table.version + len(gone)
    assert imbalance(Counter(after.owners), left) <= LIMIT


def test_what_a_node_leaves_goes_to_backups_where_these_have_room() -> None:
    weigh = dict.fromkeys(range(8), 1)
    table = PartitionTable.even(range(8))
    after = table.handed_over([3], weigh)
    moved = table.moved(after)
    heirs = sum(after.owners[part] == table.backup_of(part) for part in moved)
    assert 0.8 * len(moved) < heirs < len(moved)


def test_the_last_node_cannot_hand_over() -> None:
    with pytest.raises(ValueError, match="the last node"):
        PartitionTable.even([3]).handed_over([3], {3: 1})
    with pytest.raises(ValueError, match="at least one node"):
        PartitionTable.dealt({})


@pytest.mark.parametrize("nodes", [4, 16, 40, 160])
@pytest.mark.parametrize("seed", range(3))
def test_200_joins_and_leaves_in_a_row(nodes: int, seed: int) -> None:
    lot = random.Random(seed)
    most = max(nodes * 5 // 4, 5)
    weigh = {node: lot.randint(1, 16) for node in range(nodes)}
    table = PartitionTable.dealt(weigh, enough_for(most))
    moved, needed = 0, 0.0
    for number in range(nodes, nodes + 200):
        if (lot.random() < 0.5 and len(weigh) > 2) or len(weigh) == most:
            node = lot.choice(sorted(weigh))
            needed += share(weigh, node, len(table.owners))
            del weigh[node]
            after = table.handed_over([node], weigh)
        else:
            weigh[number] = lot.randint(1, 16)
            needed += share(weigh, number, len(table.owners))
            after = table.with_nodes([number], weigh)
        moved += len(table.moved(after))
        table = after
        assert imbalance(Counter(table.owners), weigh) <= LIMIT
    assert moved / needed <= LIMIT


# ── after a death ──────────────────────────────────────────────────────────────────────────────────


@quickly
@given(weighed, st.data(), st.integers(1, 64))
def test_loads_are_brought_back_after_a_death_by_as_few_moves_as_can_be(weigh: dict[int, int], data: st.DataObject, most: int) -> None:
    table = founded(weigh)
    dead = data.draw(st.sampled_from(sorted(weigh)))
    left = {node: weight for node, weight in weigh.items() if node != dead}
    after_death = table = table.without(dead)
    limits = ceilings(left, len(table.owners))
    surplus = sum(max(0, load - limits[node]) for node, load in Counter(table.owners).items())
    steps = 0
    while (after := table.balanced(left, most)) is not table:
        assert 0 < len(table.moved(after)) <= most
        assert after.version == table.version + 1
        table = after
        steps += 1
    assert steps == -(-surplus // most)
    assert len(after_death.moved(table)) == surplus, "nothing moves twice, or for nothing"
    assert imbalance(Counter(table.owners), left) <= LIMIT


def test_nodes_that_may_have_none_give_all_away() -> None:
    table = PartitionTable.even([1, 2, 3])
    assert table.balanced({1: 1, 2: 1}, 1 << 20).nodes == {1, 2}
