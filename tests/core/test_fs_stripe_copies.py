"""Copies of stripes, by machines of several nodes: stripes that a death takes along, and those that stay."""

from __future__ import annotations

import errno
from random import Random

import pytest
from fs_cluster import Cluster, Node
from hypothesis import given
from hypothesis import strategies as st
from test_fs_replicas import living, read, refused, session, write

from amfs.fs.vfs import mover
from amfs.fs.vfs.batches import bounded
from amfs.fs.vfs.stripe_copies import BYTES_AT_ONCE, STRIPES_AT_ONCE
from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import messages as m
from amfs.vocabulary.attr import STRIPED, WHOLE
from amfs.vocabulary.partition import PartitionTable

COUNT = 24


def content(number: int) -> bytes:
    return bytes([65 + number]) * (STRIPE * (1 + number % 5))


def check_pairs(cluster: Cluster) -> None:
    """Every partition has its backup in step, and nobody else believes to be."""
    table: PartitionTable = cluster.table
    for number in living(cluster):
        mine = {part for part, owner in enumerate(table.owners) if table.backup_of(part) == number}
        assert {part for part in range(len(table.owners)) if cluster.nodes[number].fs.keeps_stripes(part)} == mine


def keepers(cluster: Cluster, part: int) -> set[int]:
    return {number for number in living(cluster) if cluster.nodes[number].fs.keeps_stripes(part)}


def is_asked_to_hand_over(cluster: Cluster) -> bool:
    messages = [message for queue in cluster.links.values() for message in queue]
    return any(isinstance(message, m.PeerRequest) and "HandOver" in repr(message.call) for message in messages)


@given(st.lists(st.integers(0, BYTES_AT_ONCE * 2), max_size=300))
def test_what_is_copied_side_by_side_is_bounded(sizes: list[int]) -> None:
    stripes = [((1, index), size) for index, size in enumerate(sizes)]
    batches = list(bounded(stripes, BYTES_AT_ONCE, STRIPES_AT_ONCE))
    assert [stripe for batch in batches for stripe in batch] == [stripe for stripe, _ in stripes]
    for batch in batches:
        assert len(batch) <= STRIPES_AT_ONCE
        assert len(batch) == 1 or sum(sizes[index] for _, index in batch) <= BYTES_AT_ONCE


@pytest.mark.parametrize("seed", range(4))
def test_one_death_after_the_other_takes_nothing_along(seed: int) -> None:
    cluster = session(4, seed)
    for number in range(COUNT):
        write(cluster, number % 4, b"/%d" % number, content(number), STRIPED)
    for dead in (seed % 4, (seed + 1) % 4, (seed + 2) % 4):
        cluster.settle()
        check_pairs(cluster)
        cluster.kill(dead)
        cluster.settle()
        for number in range(COUNT):
            assert read(cluster, living(cluster)[0], b"/%d" % number) == content(number)


@pytest.mark.parametrize("seed", range(4))
def test_a_second_death_before_copies_are_made_again_loses_what_had_no_other_copy(seed: int) -> None:
    cluster = session(4, seed)
    inodes = {number: write(cluster, number % 4, b"/%d" % number, content(number), STRIPED) for number in range(COUNT)}
    cluster.settle()
    first, second = seed % 4, (seed + 1) % 4
    before: PartitionTable = cluster.table
    pair = {first, second}
    gone = [{owner, before.backup_of(part)} == pair for part, owner in enumerate(before.owners)]
    partition = cluster.nodes[0].meta.stripe_partition
    lost = {number for number, ino in inodes.items() if any(gone[partition(ino, index)] for index in range(1 + number % 5))}
    assert 0 < len(lost) < COUNT
    cluster.held_works.add(w.ListCopied)  # no node gets any further in bringing others in step
    cluster.kill(first)
    cluster.settle()
    assert sum(node.fs.short_of_copies()[0] for number, node in cluster.nodes.items() if number not in cluster.dead)
    cluster.kill(second)
    cluster.settle()
    node = living(cluster)[0]
    for number in range(COUNT):
        path = b"/%d" % number
        if number in lost:
            assert refused(cluster, node, "open_path", path, 0, 0, -1, 0, -1) == errno.EIO
        else:
            assert read(cluster, node, path) == content(number)


def short(cluster: Cluster) -> bool:
    """Does any node know of names or files that lack copies?"""
    systems = [cluster.nodes[number].fs for number in living(cluster)]
    return any(fs.short_of_copies()[0] or (len(systems) > 1 and fs.backups()[0] != fs.backups()[1]) for fs in systems)


@pytest.mark.parametrize("seed", range(8))
def test_the_next_node_may_die_as_soon_as_no_node_knows_of_missing_copies(seed: int) -> None:
    """That a backup is to be brought in step counts from the table on, while it drops what is old, until it knows."""
    cluster = session(4, seed)
    for number in range(COUNT):
        write(cluster, number % 4, b"/%d" % number, content(number), STRIPED)
    cluster.settle()
    assert not short(cluster)
    for dead in ((seed + place) % 4 for place in range(3)):
        cluster.kill(dead)
        while short(cluster):
            assert cluster.step()
        table: PartitionTable = cluster.table
        for part in range(len(table.owners)):
            heir = table.backup_of(part)
            assert heir is None or heir in keepers(cluster, part)
    for number in range(COUNT):
        assert read(cluster, living(cluster)[0], b"/%d" % number) == content(number)


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_joins_takes_no_copy_away(seed: int) -> None:
    """A node dies while the new one is being brought in step: all is whole."""
    for dead in range(3):
        cluster = session(3, seed)
        for number in range(COUNT):
            write(cluster, number % 3, b"/%d" % number, content(number), STRIPED)
        cluster.settle()
        cluster.nodes[3] = Node(cluster, 3)
        cluster.table = cluster.table.with_nodes((3,))
        cluster.view()
        for _ in range(cluster.random.randrange(700, 1500)):
            cluster.step()
        cluster.kill(dead)
        cluster.settle()
        for number in range(COUNT):
            assert read(cluster, living(cluster)[0], b"/%d" % number) == content(number)
        check_pairs(cluster)


@pytest.mark.parametrize("seed", range(30))
def test_nodes_that_join_one_after_the_other_take_no_copy_away(seed: int) -> None:
    """Each while partitions are on their way to the one before it, and one node dies meanwhile; and once all is quiet, another."""
    rng = Random(seed)
    nodes = rng.choice((1, 2, 3))
    cluster = session(nodes, seed)
    for number in range(6):
        write(cluster, number % nodes, b"/%d" % number, content(number), STRIPED)
    if rng.random() < 0.5:
        cluster.settle()
    for new in range(nodes, nodes + 3):
        if rng.random() < 0.3 and len(living(cluster)) > 2:
            cluster.settle()
            cluster.kill(rng.choice(living(cluster)))
        cluster.nodes[new] = Node(cluster, new)
        cluster.table = cluster.table.with_nodes((new,))
        cluster.view()
        for _ in range(rng.choice((3, 30, 100, 400, 1000))):
            cluster.step()
    for dead in (None, rng.choice(living(cluster))):
        if dead is not None:
            cluster.kill(dead)
        cluster.settle()
        check_pairs(cluster)
        for number in range(6):
            assert read(cluster, living(cluster)[0], b"/%d" % number) == content(number)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 7, 8, 10])
def test_records_that_a_backup_hands_over_go_with_the_names_of_all_keepers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heir has asked all nodes for them, and is the owner no more when the records leave: the next one released the backup alone, and
    others went on as keepers without hearing of changes (seed 723292)."""
    cluster = session(4, seed, partitions=512)
    for number in range(6):
        write(cluster, number % 4, b"/%d" % number, content(number), STRIPED)
    cluster.settle()
    for new in range(4, 7):
        monkeypatch.setattr(mover, "JOIN_S", 0.0 if new < 6 else 30.0)  # the last owner is sent the records before it asks for them
        cluster.nodes[new] = Node(cluster, new)
        cluster.table = cluster.table.with_nodes((new,))
        cluster.view()
        if new == 4:
            while not any(len(keepers(cluster, part)) > 1 for part, owner in enumerate(cluster.table.owners) if owner == 4):
                assert cluster.step()
        if new == 5:
            cluster.kill(4)
            while not is_asked_to_hand_over(cluster):
                assert cluster.step()
            cluster.held_links.update((number, 5) for number in range(4))  # no records come to node 5
            for _ in range(cluster.random.randrange(100)):
                cluster.step()
    cluster.held_links.clear()
    cluster.settle()
    check_pairs(cluster)
    for number in range(6):
        assert read(cluster, living(cluster)[0], b"/%d" % number) == content(number)


def test_a_whole_file_with_copies_is_laid_in_stripes_with_copies() -> None:
    cluster = session(3, 1)
    write(cluster, 0, b"/f", content(4), WHOLE)
    cluster.call(0, "set_xattr_path", b"/f", b"user.amfs.layout", b"striped:%d" % STRIPE, 0)
    cluster.settle()
    cluster.kill(0)
    cluster.settle()
    assert read(cluster, 1, b"/f") == content(4)
