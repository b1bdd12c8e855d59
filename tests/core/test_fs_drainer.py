"""What only one node has goes to others before it leaves: whole files, stripes, names; whatever the order of messages."""

from __future__ import annotations

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


def move_away(cluster: Cluster, number: int) -> tuple[Kept, ...]:
    cluster.moved.clear()
    cluster.tell(cluster.nodes[number], MoveAway())
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
