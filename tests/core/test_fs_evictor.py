"""The acts of a full node, in their order: copies that others hold go, single files are spilled, and only then is the write refused."""

from __future__ import annotations

import errno
import math
import os

import pytest
from fs_cluster import Cluster, Real

from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import Attr
from amfs.vocabulary.events import FsFull, RoomWanted


def write(real: Real, path: bytes, node: int) -> int:
    handle, attr = real.do("open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1, node=node)
    real.do("write", handle, 0, path * 500, node=node)
    real.do("close", handle, node=node)
    return Attr(*attr).ino


def read(real: Real, path: bytes, node: int) -> bytes:
    handle, _ = real.do("open_path", path, os.O_RDONLY, 0, -1, 0, -1, node=node)
    data = real.do("read", handle, 0, 1 << 20, node=node)
    real.do("close", handle, node=node)
    return bytes(data)


def full(cluster: Cluster, node: int, wanted: int, serial: int = 1) -> list[int]:
    """Its answer."""
    cluster.nodes[node].freed.clear()
    cluster.tell(cluster.nodes[node], FsFull(serial, wanted))
    cluster.settle()
    return cluster.nodes[node].freed


def test_copies_go_first_and_no_more_is_spilled_than_was_wanted() -> None:
    cluster = Cluster(2, 3)
    real = Real(cluster)
    node = cluster.nodes[0]
    node.spilled = set()
    first, second = write(real, b"/a", 0), write(real, b"/b", 0)
    copy = write(real, b"/c", 1)
    assert read(real, b"/c", 0) == b"/c" * 500
    assert copy in node.parts
    assert full(cluster, 0, 1000) == [1000] and copy not in node.parts and not node.spilled
    assert full(cluster, 0, 1) == [1000] and node.spilled == {first}
    assert full(cluster, 0, 1) == [1000] and node.spilled == {first, second}
    assert full(cluster, 0, 1) == [0], "there is nothing more"
    assert read(real, b"/a", 1) == b"/a" * 500 and read(real, b"/b", 0) == b"/b" * 500, "it holds them as before"
    assert set(real.do("locate", b"/a")[0][2]) == {0, 1}
    cluster.check()


def test_a_file_that_is_open_stays_and_goes_when_it_is_closed() -> None:
    cluster = Cluster(1, 5)
    real = Real(cluster)
    cluster.nodes[0].spilled = set()
    ino = write(real, b"/a", 0)
    kept, _ = real.do("open_path", b"/a", os.O_RDONLY, 0, -1, 0, -1, node=0)
    assert full(cluster, 0, 1) == [0] and not cluster.nodes[0].spilled
    real.do("close", kept, node=0)
    assert full(cluster, 0, 1) == [1000] and cluster.nodes[0].spilled == {ino}


@pytest.mark.parametrize(("error", "tries"), [(errno.ENOSPC, 3), (errno.EIO, 2), (errno.EOPNOTSUPP, 1)])
def test_a_disk_that_is_full_is_tried_again_and_one_that_fails_is_not(error: int, tries: int) -> None:
    cluster = Cluster(1, 5)
    real = Real(cluster)
    write(real, b"/a", 0)
    tried = []

    def spill(order: w.Spill) -> int:
        tried.append(order.ino)
        raise OSError(error, "the disk")

    cluster.nodes[0].serve(w.Spill.by(spill))
    assert full(cluster, 0, 1) == [0] and full(cluster, 0, 1, 2) == [0], "the write is refused"
    assert len(tried) == tries, "the first try asks whether anything is spilled at all"
    assert real.read(b"/a") == b"/a" * 500


def test_files_of_runs_have_one_order_with_files_of_the_session() -> None:
    """Spare copies of runs go first, then by age; those that are needed only where a write would be refused."""
    cluster = Cluster(1, 5)
    real = Real(cluster)
    node = cluster.nodes[0]
    node.spilled = set()
    write(real, b"/a", 0)
    asked: list[float] = []
    has = {math.inf: 100, 0.0: 200, -1.0: 5000}

    def give_way(order: w.RunsGiveWay) -> int:
        asked.append(order.idle_s)
        return has[order.idle_s]

    node.serve(w.RunsGiveWay.by(give_way))
    assert full(cluster, 0, 50) == [100] and asked == [math.inf] and not node.spilled
    asked.clear()
    assert full(cluster, 0, 250) == [300] and asked == [math.inf, 0.0] and not node.spilled
    asked.clear()
    assert full(cluster, 0, 2000) == [6300] and asked == [math.inf, 0.0, -1.0] and len(node.spilled) == 1
    asked.clear()
    has[-1.0] = 0
    assert full(cluster, 0, 2000, serial=0) == [100] and asked == [math.inf], "no write waits: what tasks need stays"


def test_the_worker_of_the_node_gets_what_was_used_longer_ago() -> None:
    cluster = Cluster(1, 5)
    real = Real(cluster)
    node = cluster.nodes[0]
    node.spilled = set()
    first, second = write(real, b"/a", 0), write(real, b"/b", 0)
    ages = {first: 20.0, second: 5.0}
    node.serve(w.ListEvictable.by(lambda o: [(ino, 1000, age) for ino, age in ages.items() if ino not in (node.spilled or ())]))
    cluster.tell(node, RoomWanted(5000, 10.0))
    cluster.settle()
    assert cluster.given == [1000] and node.spilled == {first}
