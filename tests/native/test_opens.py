"""The record of what is open on a node: mounts, handles, other nodes and the poll loop count themselves in one place."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from fsio_nodes import KEY, LOCAL, REMOTE
from peer_meta_nodes import Cluster, Node, connected
from waiting import until

from amfs._native import Io, Meta

NOBODY = (0, 0, 0, 0)


def closed(node: Node, ino: int) -> None:
    until(lambda: node.meta.direct_uses(ino) == (0, 0, False), "its shard has not answered")


def test_handles_of_this_node_and_of_others_through_it_are_told_apart(cluster: Cluster) -> None:
    here, there = cluster.nodes
    ino = 1 << 40
    own = here.io.open(ino, LOCAL, writing=True, create=True)
    assert here.meta.uses(ino) == (0, 1, 0, 0)
    reader = there.io.open(ino, REMOTE, 0)
    writer = there.io.open(ino, REMOTE, 0, writing=True)
    assert here.meta.uses(ino) == (1, 2, 2, 0) and there.meta.uses(ino) == (1, 1, 0, 0)
    writer.close()
    assert here.meta.uses(ino) == (1, 1, 1, 0)
    reader.close()
    assert here.meta.uses(ino) == (0, 1, 0, 0) and there.meta.uses(ino) == NOBODY, "a handle of this node is none of another's"
    own.close()
    assert here.meta.uses(ino) == NOBODY


def test_a_node_that_dies_uses_nothing_any_more(cluster: Cluster) -> None:
    here, there = cluster.nodes
    ino = 1 << 40
    own = here.io.open(ino, LOCAL, writing=True, create=True)
    handle = there.io.open(ino, REMOTE, 0, writing=True)
    assert here.meta.uses(ino) == (0, 2, 1, 0)
    here.io.forget_peer(1)
    until(lambda: here.meta.uses(ino) == (0, 1, 0, 0), "it counts still")
    own.close()
    with suppress(OSError):
        handle.close()
    assert here.meta.uses(ino) == NOBODY


def test_a_mount_that_was_seen_tells_the_loop_when_it_closes_the_file(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    for seen in (False, True):
        kernel.asked()
        _, ino, handle = kernel.create(name)
        if seen:
            assert here.meta.uses(ino)[1:] == (2, 0, 1), "the opening, and the handle of its data"
        kernel.release(ino, handle)
        closed(here, ino)
        assert ("closed" in (kernel.until_asked() if seen else kernel.asked())) == seen
        assert here.meta.uses(ino) == NOBODY and bool(there.meta.getattr(ino, 1)[8]) != seen
        assert kernel.unlink(name) == 0


def test_what_the_loop_saw_of_an_earlier_opening_is_forgotten(cluster: Cluster) -> None:
    here, _ = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    _, ino, handle = kernel.create(name)
    kernel.release(ino, handle)
    closed(here, ino)
    kernel.asked()
    own = here.io.open(ino, LOCAL)
    assert here.meta.uses(ino) == (1, 0, 0, 0), "there is a record, and no mount in it"
    error, data = kernel.call(14, ino, struct.pack("<II", os.O_RDONLY, 0))
    own.close()
    kernel.release(ino, struct.unpack_from("<Q", data)[0])
    assert not error and here.meta.uses(ino) == NOBODY and "closed" not in kernel.asked()


def test_many_files_are_open_at_once(tmp_path: Path) -> None:
    meta = Meta(0)
    io = Io(0, str(tmp_path), "", meta=meta)
    handles = {1 << 40 | number: io.open(1 << 40 | number, LOCAL, writing=bool(number % 2), create=True) for number in range(700)}
    for ino in handles:
        meta.claim(ino, True)
    assert all(meta.uses(ino) == (1 - ino % 2, ino % 2, 0, 0) for ino in handles)
    for handle in handles.values():
        handle.close()
    assert not any(any(meta.uses(ino)) for ino in handles)


def test_the_data_of_a_node_counts_in_the_records_of_its_shard(tmp_path: Path) -> None:
    io = Io(0, str(tmp_path), "", key=KEY)
    with pytest.raises(ValueError, match="another shard"):
        io.serve(Meta(0))
