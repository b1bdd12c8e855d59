"""Content that changes without moving its time, as a store through a mapping does: its next writer begins with the present content."""

from __future__ import annotations

import os

import pytest
from fs_cluster import Cluster
from fs_steps import names_at
from test_fs_replicas import write

from amfs.vocabulary import fs_works as w

WRITER, OTHER = 1, 2


def store(cluster: Cluster, ino: int, path: bytes, data: bytes) -> None:
    """At the node that has the content: open, store by a mapping of which the page was read before, close."""
    handle, _ = cluster.call(OTHER, "open_path", path, os.O_RDWR, 0, -1, 0, -1)
    cluster.nodes[OTHER].parts[ino][:] = data
    cluster.call(OTHER, "close", handle)


@pytest.mark.parametrize("shard", range(3))
@pytest.mark.parametrize("seed", range(8))
def test_who_fetches_a_file_to_write_it_sees_what_is_stored_before_it_may_write(seed: int, shard: int) -> None:
    cluster = Cluster(3, seed)
    path = b"/" + names_at(cluster, shard)[0]
    ino = write(cluster, OTHER, path, b"old")
    cluster.settle()
    cluster.held_works = {w.Fetch}
    token = cluster.start(WRITER, "open_path", path, os.O_RDWR, 0, -1, 0, -1)
    while not (queue := cluster.slow.get(WRITER)):
        assert cluster.step()
    fetched = cluster.nodes[WRITER].do(queue.popleft())  # it has come, which the machine learns later
    store(cluster, ino, path, b"new")
    cluster.held_works = set()
    cluster.tell(cluster.nodes[WRITER], fetched)
    handle, _ = cluster.finish(token)
    assert cluster.call(WRITER, "read", handle, 0, 10) == b"new"
    cluster.call(WRITER, "close", handle)
    cluster.settle()
