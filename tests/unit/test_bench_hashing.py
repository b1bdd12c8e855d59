"""``benchmarks hashing``: each scheme does what its name says, and the rows say what it does."""

from __future__ import annotations

import itertools
import random

import pytest
from click.testing import CliRunner

from benchmarks import hashing
from benchmarks.commands import files

COUNT = 1024
HASHES = [name for name in hashing.SCHEMES if name not in (hashing.TABLE, "dealt, capacity ignored")]


def cluster(seed: int, nodes: int = 12) -> dict[int, int]:
    lot = random.Random(seed)
    return {node: lot.randint(4, 16) for node in range(nodes)}


def loads(owners: hashing.Owners, weigh: hashing.Weights) -> list[int]:
    return [list(owners).count(node) for node in weigh]


@pytest.mark.parametrize("scheme", hashing.SCHEMES)
def test_each_partition_has_one_of_the_nodes_and_the_same_each_time(scheme: str) -> None:
    weigh = cluster(1)
    first, follow = hashing.SCHEMES[scheme]
    owners = first(weigh, COUNT)
    assert len(owners) == COUNT
    assert set(owners) <= weigh.keys()
    assert list(first(weigh, COUNT)) == list(owners)
    left = {node: weight for node, weight in weigh.items() if node != 5}
    assert set(follow(hashing.Change(owners, left, went=5))) <= left.keys()


@pytest.mark.parametrize("scheme", HASHES)
def test_large_nodes_have_more_than_small_ones(scheme: str) -> None:
    weigh = {node: 1 if node % 2 else 3 for node in range(40)}
    found = loads(hashing.SCHEMES[scheme][0](weigh, 8192), weigh)
    assert sum(found[0::2]) > 2 * sum(found[1::2])


@pytest.mark.parametrize("scheme", ["rendezvous, weighted", "ring, 100 points a unit", "ring, 1 point a unit", hashing.TABLE])
def test_a_consistent_scheme_moves_only_what_comes_to_a_node_or_was_there(scheme: str) -> None:
    weigh = cluster(2)
    first, follow = hashing.SCHEMES[scheme]
    before = first(weigh, COUNT)
    after = follow(hashing.Change(before, weigh | {12: 9}, came=12))
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {12}
    after = follow(hashing.Change(before, {node: weight for node, weight in weigh.items() if node != 3}, went=3))
    assert {old for old, new in zip(before, after, strict=True) if old != new} == {3}


def test_jump_moves_to_the_last_bucket_only() -> None:
    for key in range(0, hashing.RING, hashing.RING // 500):
        buckets = [hashing.jump_bucket(key, count) for count in range(1, 40)]
        assert buckets[0] == 0
        assert all(new in (old, count) for count, (old, new) in enumerate(itertools.pairwise(buckets), 1))


def test_y0_leaves_out_nodes_below_half_of_the_mean() -> None:
    owners = hashing.y0({0: 1, 1: 8, 2: 8, 3: 8}, COUNT)
    assert set(owners) == {1, 2, 3}


def test_y0_keeps_near_its_limit_and_the_table_is_even() -> None:
    table, y0 = (hashing.spread(scheme, 40) for scheme in (hashing.TABLE, hashing.Y0))
    assert table.worst <= 1.05
    assert table.above == 0
    assert 1.5 < y0.mean < hashing.Y0_LIMIT
    assert y0.worst < 8


def test_imbalance_and_moves_are_counted() -> None:
    assert hashing.imbalance([0, 0, 0, 1], {0: 1, 1: 1}) == 1.5
    assert hashing.imbalance([0, 0, 0, 1], {0: 3, 1: 1}) == 1.0
    assert hashing.moved([0, 1, 2], [0, 2, 2]) == 1


def test_the_command_shows_every_scheme_at_every_size() -> None:
    result = CliRunner().invoke(files.hashing, ["--nodes", "3,5", "--seeds", "1", "--clusters", "3"])
    assert result.exit_code == 0, result.output
    for scheme in hashing.SCHEMES:
        assert result.output.count(scheme) >= 2
    assert "3 nodes, P=1024" in result.output
    found = hashing.run_hashing([16], 2, 0)
    assert not found.spreads
    for row in found.rows:
        if row.scheme == hashing.TABLE:
            assert row.imbalance <= 1.05
            assert row.came <= 1
            assert row.went <= 1.05
