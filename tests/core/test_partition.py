"""The partition table and the paths of files: partitions that move when nodes come and go, and where things lie."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.vocabulary.partition import PARTITIONS, PartitionTable
from amfs.vocabulary.paths import sandbox_name, scope_of, shared_path, store_path

quickly = settings(max_examples=60, deadline=None)
node_sets = st.lists(st.integers(0, 500), min_size=1, max_size=20, unique=True)
keys = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=30)


@st.composite
def tables(draw: st.DrawFn) -> PartitionTable:
    """A table after some coming and going."""
    table = PartitionTable.even(draw(node_sets), draw(st.sampled_from([0, 7, 64, 100])))
    for node in draw(st.lists(st.integers(0, 20), max_size=4)):
        if node not in table.owners:
            table = table.with_nodes([node])
        elif table.single is None:
            table = table.without(node)
    return table


def spread(table: PartitionTable) -> int:
    """By how many partitions the richest node has more than the poorest."""
    loads = Counter(table.owners).values()
    return max(loads) - min(loads)


@quickly
@given(node_sets)
def test_an_even_table_is_even_and_large_enough(nodes: list[int]) -> None:
    table = PartitionTable.even(nodes)
    assert set(table.owners) == set(nodes)
    assert spread(table) <= 1
    assert len(table.owners) >= max(PARTITIONS, 20 * len(nodes))


@pytest.mark.parametrize(
    "nodes, partitions", [(1, 1024), (51, 1024), (52, 2048), (256, 8192), (819, 16384), (1000, 16384), (4096, 16384), (4097, 32768)]
)
def test_large_sessions_get_more_partitions(nodes: int, partitions: int) -> None:
    assert len(PartitionTable.even(range(nodes)).owners) == partitions


@quickly
@given(tables(), st.integers(1000, 2000))
def test_a_new_node_takes_its_share_and_nothing_else_moves(table: PartitionTable, node: int) -> None:
    after = table.with_nodes([node])
    moved = table.moved(after)
    assert moved == {part for part, owner in enumerate(after.owners) if owner == node}
    nodes = len(set(table.owners)) + 1
    assert len(moved) == len(table.owners) // nodes
    assert len(moved) <= -(-len(table.owners) // nodes)
    assert after.version == table.version + 1
    assert spread(after) <= max(spread(table), 1), "it takes from those who have most"


@pytest.mark.parametrize("nodes", range(2, 9))
def test_neighbouring_partitions_lie_on_different_nodes(nodes: int) -> None:
    """They hold neighbouring stripes: a file of few stripes is to lie on all nodes, and on each as much."""
    table = PartitionTable.even([0])
    for node in range(1, nodes):
        table = table.with_nodes([node])
    runs = [len(list(run)) for _, run in itertools.groupby(table.owners)]
    assert max(runs) <= (1 if nodes == 2 else 3)
    for first in range(len(table.owners) - 6 * nodes):
        assert max(Counter(table.owners[first : first + 6 * nodes]).values()) <= 12  # 6 would be even


@quickly
@given(tables())
def test_a_node_that_is_in_already_changes_nothing(table: PartitionTable) -> None:
    assert table.with_nodes([table.owners[0]]) is table


@quickly
@given(tables(), st.data())
def test_only_the_partitions_of_a_lost_node_move(table: PartitionTable, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(sorted(set(table.owners))))
    if table.single is not None:
        with pytest.raises(ValueError, match="the last node"):
            table.without(node)
        return
    after = table.without(node)
    assert table.moved(after) == {part for part, owner in enumerate(table.owners) if owner == node}
    assert set(after.owners) == set(table.owners) - {node}
    assert after.version == table.version + 1
    for part in table.moved(after):
        assert after.owners[part] == table.backup_of(part), "somebody inherits of whose names nobody has told it"


@quickly
@given(tables(), st.data())
def test_a_backup_is_another_node_and_stays_one_as_others_come_and_go(table: PartitionTable, data: st.DataObject) -> None:
    before = [table.backup_of(part) for part in range(len(table.owners))]
    if table.single is not None:
        assert set(before) == {None}
        return
    assert all(backup in table.nodes - {owner} for owner, backup in zip(table.owners, before, strict=True))
    node = data.draw(st.sampled_from(sorted(table.nodes)))
    after = table.without(node)
    for part, (owner, backup) in enumerate(zip(table.owners, before, strict=True)):
        if node not in (owner, backup):
            assert after.backup_of(part) == backup
    more = table.with_nodes([1000])
    for part, (owner, backup) in enumerate(zip(table.owners, before, strict=True)):
        if more.owners[part] == owner:
            assert more.backup_of(part) in (backup, 1000)


@quickly
@given(tables(), st.data())
def test_nodes_that_die_together_leave_what_they_leave_one_by_one(table: PartitionTable, data: st.DataObject) -> None:
    dead = data.draw(st.lists(st.sampled_from(sorted(table.nodes)), unique=True, max_size=len(table.nodes) - 1))
    after = table.without(*dead)
    assert after.nodes <= table.nodes - set(dead)
    assert table.moved(after) == {part for part, owner in enumerate(table.owners) if owner in dead}


@pytest.mark.parametrize("nodes", [3, 8, 40])
def test_each_node_is_the_backup_of_about_as_many_partitions(nodes: int) -> None:
    table = PartitionTable.even(range(nodes))
    counts = Counter(table.backup_of(part) for part in range(len(table.owners)))
    share = len(table.owners) / nodes
    assert all(0.3 * share < counts[node] < 2 * share for node in range(nodes))


@quickly
@given(tables(), keys)
def test_group_is_node_of_for_many(table: PartitionTable, names: list[str]) -> None:
    grouped = table.group(names)
    assert Counter(name for part in grouped.values() for name in part) == Counter(names)
    for node, part in grouped.items():
        assert part, "nobody is to be told about no files"
        assert {table.node_of(name) for name in part} == {node}
        assert part == [name for name in names if table.node_of(name) == node], "in their order"


@quickly
@given(st.integers(1, 40), keys)
def test_as_many_partitions_as_nodes_is_ames_hash_of_the_name_modulo_the_servers(nodes: int, names: list[str]) -> None:
    table = PartitionTable.even(range(nodes), nodes)
    assert table.owners == tuple(range(nodes))
    for name in names:
        assert table.node_of(name) == xxhash.xxh64_intdigest(name.encode()) % nodes


def test_keys_spread_evenly() -> None:
    table = PartitionTable.even(range(8))
    loads = Counter(table.node_of(f"7/dir/file{i:05}.fits") for i in range(8000))
    assert min(loads.values()) > 800
    assert max(loads.values()) < 1200


def test_a_table_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        PartitionTable.even([])


def test_one_node_needs_no_hashing() -> None:
    table = PartitionTable.even([5])
    assert table.single == 5
    assert table.node_of("anything") == 5
    assert table.with_nodes([6]).single is None
    assert table.with_nodes([6]).without(5).single == 6


# ── paths ──────────────────────────────────────────────────────────────────────────────────────────


def test_names_in_the_store_do_not_meet() -> None:
    scope = scope_of(7)
    relative, absolute, other = (store_path("/store", scope, key) for key in ("7/a/b", "7//a/b", "8/a/b"))
    assert relative == "/store/7/a/b"
    assert absolute == "/store/7/%abs/a/b"
    assert len({relative, absolute, store_path("/store", scope_of(8), "8/a/b")}) == 3
    assert other == "/store/8/a/b"


def test_finals_lie_where_the_user_stands_or_where_the_name_says() -> None:
    assert shared_path("/home/u", "out/a") == "/home/u/out/a"
    assert shared_path("/home/u", "/elsewhere/a", 256) == "/elsewhere/a"


@quickly
@given(st.text("abc/.", min_size=1, max_size=10).filter(lambda name: "//" not in name and name.strip("./")), st.integers(1, 5000))
def test_hashed_directories_lie_between_directory_and_file(name: str, hashed: int) -> None:
    name = name.strip("/")
    head, _, tail = name.rpartition("/")
    path = shared_path("/home/u", name, hashed)
    assert path.startswith("/home/u/" + (head + "/" if head else ""))
    middle, last = path.rsplit("/", 2)[1:]
    assert last == tail
    assert int(middle, 16) == xxhash.xxh64_intdigest(name.encode()) % hashed
    assert len(middle) == len(f"{hashed - 1:x}"), "all directories have names of one length"


def test_names_that_climb_are_seen_from_the_sandbox() -> None:
    assert sandbox_name("/home/x", "/home/u") == "../x"
    assert sandbox_name("a/b", "/home/u") == "a/b"
