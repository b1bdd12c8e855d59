"""Data that only one node has goes to others before it leaves: whole files, stripes, names; whatever the order of messages."""

from __future__ import annotations

import errno
import os

import pytest
from fs_cluster import Cluster
from test_fs_replicas import holders, read, refused, write

from amfs.vocabulary.attr import STRIPED, Attr
from amfs.vocabulary.events import Kept, MoveAway
from amfs.vocabulary.partition import PartitionTable

REPLICAS = b"user.amfs.replicas"


def fill(cluster: Cluster) -> dict[bytes, bytes]:
    """Whole files, files with a copy and files in stripes, written on each node."""
    nodes = range(len(cluster.nodes))
    contents = {b"/%d-%d" % (node, kind): os.urandom(50 + 40 * kind + node) for node in nodes for kind in range(3)}
    for path, data in contents.items():
        node, kind = map(int, path[1:].split(b"-"))
        write(cluster, node, path, data, STRIPED if kind == 2 else -1)
        if kind == 1:
            cluster.call(node, "set_xattr_path", path, REPLICAS, b"2", 0)
    return contents


def drained(cluster: Cluster, *numbers: int) -> None:
    """The table says that they have nothing any more."""
    cluster.table = cluster.table.without(*numbers)
    cluster.view()


def move_away(cluster: Cluster, number: int, last: bool = False) -> tuple[Kept, ...]:
    cluster.moved.clear()
    cluster.tell(cluster.nodes[number], MoveAway(last))
    while not cluster.moved:
        assert cluster.step()
    return cluster.moved[0].kept


def leave(cluster: Cluster, number: int) -> None:
    cluster.table = PartitionTable(cluster.table.owners, cluster.table.version + 1)
    cluster.kill(number)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_with_nodes_that_have_moved_all_away(seed: int, together: bool) -> None:
    """``together``: in one table; else the second begins while partitions move away from the first."""
    cluster = Cluster(4, seed)
    contents = fill(cluster)
    gone = [seed % 4, (seed + 1) % 4]
    for each in [gone] if together else [gone[:1], gone[1:]]:
        drained(cluster, *each)
    for number in gone:
        for _ in range(200):
            if not (kept := move_away(cluster, number)):
                break
            cluster.wander(50)
        assert not kept
    for number in gone:
        leave(cluster, number)
    cluster.settle()
    left = min(set(range(4)) - set(gone))
    assert {path: read(cluster, left, path) for path in contents} == contents
    for path in contents:
        if path.endswith(b"-1"):
            assert len(holders(cluster, Attr(*cluster.call(left, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)[1]).ino)) >= 2


def test_what_is_being_written_stays_and_is_said_to() -> None:
    cluster = Cluster(2, 1)
    handle, _ = cluster.call(1, "open_path", b"/f", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    cluster.call(1, "write", handle, 0, b"half")
    drained(cluster, 1)
    cluster.settle()
    [kept] = move_away(cluster, 1)
    assert kept.why == "it is being written"
    cluster.call(1, "close", handle)
    cluster.settle()
    assert not move_away(cluster, 1)
    leave(cluster, 1)
    cluster.settle()
    assert not refused(cluster, 0, "open_path", b"/f", os.O_RDONLY, 0, -1, 0, -1)


def test_a_file_that_is_written_in_stripes_keeps_the_node() -> None:
    """Nothing of it lies there; yet only that node knows how long it is."""
    cluster = Cluster(3, 1)
    handle, _ = cluster.call(1, "open_path", b"/f", os.O_WRONLY | os.O_CREAT, 0o644, STRIPED, 64, -1)
    cluster.call(1, "write", handle, 0, bytes(200))
    drained(cluster, 1)
    cluster.settle()
    assert [kept.why for kept in move_away(cluster, 1)] == ["it is being written"]
    cluster.call(1, "close", handle)
    cluster.settle()
    assert not move_away(cluster, 1)
    leave(cluster, 1)
    cluster.settle()
    assert read(cluster, 0, b"/f") == bytes(200)


def made_and_closed_meanwhile(seed: int) -> bool:
    """False: the node has left before the file was made."""
    cluster = Cluster(2, seed)
    drained(cluster, 1)
    cluster.settle()
    cluster.moved.clear()
    cluster.tell(cluster.nodes[1], MoveAway())
    cluster.wander(5)
    token = cluster.start(1, "open_path", b"/f", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    while token not in cluster.answers:
        if cluster.moved and not cluster.moved[0].kept:
            leave(cluster, 1)
            cluster.settle()
            assert refused(cluster, 0, "open_path", b"/f", os.O_RDONLY, 0, -1, 0, -1) == errno.ENOENT
            return False
        assert cluster.step()
    handle, _ = cluster.finish(token)
    cluster.call(1, "write", handle, 0, b"all")
    cluster.call(1, "close", handle)
    while not cluster.moved:
        assert cluster.step()
    kept = cluster.moved[0].kept
    while kept:
        kept = move_away(cluster, 1)
    leave(cluster, 1)
    cluster.settle()
    assert read(cluster, 0, b"/f") == b"all"
    return True


def test_a_file_made_and_closed_while_others_move_is_not_left_behind() -> None:
    """Nor is there a file that was lost before it was open, as the node left while its record was made."""
    assert sum(made_and_closed_meanwhile(seed) for seed in range(60)) > 2


def test_nobody_begins_to_write_on_a_node_that_is_about_to_leave() -> None:
    cluster = Cluster(2, 3)
    write(cluster, 1, b"/old", b"old")
    drained(cluster, 1)
    cluster.settle()
    move_away(cluster, 1, last=True)
    made = cluster.start(1, "open_path", b"/new", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    opened = cluster.start(1, "open_path", b"/old", os.O_WRONLY | os.O_TRUNC, 0, -1, 0, -1)
    assert read(cluster, 1, b"/old") == b"old"
    cluster.settle()
    while move_away(cluster, 1, last=True):
        pass
    assert made not in cluster.answers and opened not in cluster.answers
    leave(cluster, 1)
    cluster.settle()
    assert read(cluster, 0, b"/old") == b"old"
    assert refused(cluster, 0, "open_path", b"/new", os.O_RDONLY, 0, -1, 0, -1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gone", [(1,), (1, 2)], ids=str)
def test_the_last_copy_on_a_node_that_stays_is_not_evicted_while_the_others_leave(seed: int, gone: tuple[int, ...]) -> None:
    cluster = Cluster(4, seed)
    write(cluster, 1, b"/f", b"all")
    for node in (2, 3):
        assert read(cluster, node, b"/f") == b"all"
    cluster.settle()
    drained(cluster, *gone)
    cluster.settle()
    for number in gone:
        assert not move_away(cluster, number), "node 3 has it"
    if gone == (1,):
        cluster.fill(2)
        cluster.settle()
    cluster.fill(3)
    cluster.settle()
    for number in gone:
        leave(cluster, number)
    cluster.settle()
    assert read(cluster, 0, b"/f") == b"all"


def test_copies_that_are_asked_for_go_to_nodes_that_stay() -> None:
    cluster = Cluster(4, 2)
    drained(cluster, 1, 2)
    cluster.settle()
    cluster.call(0, "set_xattr_path", b"/", REPLICAS, b"2", 0)
    for number in range(12):
        assert set(holders(cluster, write(cluster, 0, b"/%d" % number, b"data"))) == {0, 3}
