"""Copies that are brought and deleted by order, and digests, while files are written, read and removed: no node keeps what is old."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

import pytest
from fs_cluster import Cluster

from amfs.host.digests import Digest
from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOST, STRIPED, Attr

NODES = 3


def write(cluster: Cluster, node: int, path: bytes, data: bytes, layout: int = 0) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    handle, attr = cluster.call(node, "open_path", path, flags, 0o644, layout, STRIPE if layout else 0, -1)
    cluster.call(node, "write", handle, 0, data)
    cluster.call(node, "close", handle)
    return Attr(*attr).ino


def holders(cluster: Cluster, ino: int) -> set[int]:
    live, [(_, _, nodes)] = cluster.call(0, "where", (ino,))
    assert set(live) == set(cluster.nodes) - cluster.dead
    return set(nodes)


def digest(data: bytes) -> bytes:
    taken = Digest()
    taken.add(data)
    return taken.value()


def test_a_copy_is_brought_from_who_is_named_and_deleted_while_another_has_it() -> None:
    cluster = Cluster(NODES)
    ino = write(cluster, 0, b"/a", b"content")
    assert holders(cluster, ino) == {0}
    assert cluster.call(0, "bring", 1, 2, (ino,)) == [errno.ESTALE], "node 2 has nothing of it"
    assert cluster.call(2, "bring", 1, 0, (ino,)) == [0]
    assert cluster.call(2, "bring", 1, 0, (ino,)) == [0], "again: it is there"
    assert holders(cluster, ino) == {0, 1} and cluster.nodes[1].parts[ino] == b"content"
    assert cluster.call(1, "spare", 0, (ino,)) == 1
    assert holders(cluster, ino) == {1} and ino not in cluster.nodes[0].parts
    assert cluster.call(1, "spare", 1, (ino,)) == 0, "the last copy stays"
    empty = write(cluster, 2, b"/empty", b"")
    assert cluster.call(0, "bring", 0, 2, (empty, ino)) == [0, errno.ESTALE]
    cluster.settle()
    cluster.check()


def test_who_has_a_copy_open_reads_and_closes_it_after_another_node_has_changed_the_file() -> None:
    """Seed 705852: the simulated store had nothing left for a reader whose copy was removed when another node wrote the file, and the
    reader's closing was told \"no such file\". A part that is open stays until it is closed, as in the store of a node."""
    cluster = Cluster(NODES)
    ino = write(cluster, 0, b"/a", b"old content")
    assert cluster.call(1, "bring", 1, 0, (ino,)) == [0]
    first, _ = cluster.call(1, "open_path", b"/a", os.O_RDONLY, 0, -1, 0, -1)
    assert write(cluster, 0, b"/a", b"new") == ino
    cluster.settle()
    assert ino not in cluster.nodes[1].parts and holders(cluster, ino) == {0}
    second, _ = cluster.call(1, "open_path", b"/a", os.O_RDONLY, 0, -1, 0, -1)
    assert ino in cluster.nodes[1].parts, "the new content was brought"
    assert cluster.call(1, "read", first, 0, 100) == b"old content"
    assert cluster.call(1, "read", second, 0, 100) == b"new"
    assert write(cluster, 0, b"/a", b"newest") == ino
    cluster.settle()
    assert ino not in cluster.nodes[1].parts
    for handle in (first, second):
        cluster.call(1, "close", handle)
    assert not cluster.nodes[1].kept
    cluster.settle()
    cluster.check()


def test_what_is_being_written_removed_or_striped_is_not_brought() -> None:
    cluster = Cluster(NODES)
    handle, attr = cluster.call(0, "open_path", b"/a", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    ino = Attr(*attr).ino
    assert cluster.call(1, "where", (ino,))[1] == [errno.EBUSY]
    assert cluster.call(1, "bring", 1, 0, (ino,)) == [errno.EBUSY]
    assert cluster.call(1, "digests", (ino,)) == [errno.EBUSY]
    cluster.call(0, "close", handle)
    cluster.call(1, "unlink_path", b"/a")
    assert cluster.call(1, "bring", 1, 0, (ino,)) == [errno.ENOENT]
    wide = write(cluster, 0, b"/wide", b"x" * 3 * STRIPE, STRIPED)
    assert cluster.call(1, "bring", 1, 0, (wide,)) == [0] and wide not in cluster.nodes[1].parts
    assert cluster.call(1, "digests", (wide,)) == [(3 * STRIPE, digest(b"x" * 3 * STRIPE))]
    cluster.settle()
    cluster.check()


def test_no_room_is_said_and_leaves_nothing() -> None:
    cluster = Cluster(NODES)
    ino = write(cluster, 0, b"/a", b"content")
    cluster.nodes[1].limit = 3
    assert cluster.call(0, "bring", 1, 0, (ino,)) == [errno.ENOSPC]
    assert holders(cluster, ino) == {0} and ino not in cluster.nodes[1].parts
    cluster.settle()
    cluster.check()


def test_a_digest_is_remembered_until_the_file_changes() -> None:
    cluster = Cluster(NODES)
    ino = write(cluster, 1, b"/a", b"one")
    works: list[type] = []
    work = cluster.work
    cluster.work = lambda node, effect: works.append(type(effect.order)) or work(node, effect)  # type: ignore[func-returns-value, method-assign]
    for _ in range(3):
        assert cluster.call(0, "digests", (ino,)) == [(3, digest(b"one"))]
    assert works.count(w.Digest) == 1
    write(cluster, 2, b"/a", b"two!")
    assert cluster.call(0, "digests", (ino,)) == [(4, digest(b"two!"))]
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("seed", [*range(25), 177, 195, 389, 446])
def test_copies_are_those_of_the_last_content_whatever_happens_meanwhile(seed: int) -> None:
    cluster = Cluster(NODES, seed)
    draw = cluster.random
    names = [b"/a", b"/b"]
    last = {name: b"first " + name for name in names}
    inodes = {name: write(cluster, draw.randrange(NODES), name, data) for name, data in last.items()}
    tokens: list[object] = []
    for turn in range(25):
        name, node = draw.choice(names), draw.randrange(NODES)
        ino = inodes[name]
        what = draw.choice(("bring", "bring", "spare", "digests", "write", "read"))
        if what == "bring":
            tokens.append(cluster.start(node, "bring", draw.randrange(NODES), draw.randrange(NODES), (ino,)))
        elif what == "spare":
            tokens.append(cluster.start(node, "spare", draw.randrange(NODES), (ino,)))
        elif what == "digests":
            tokens.append(cluster.start(node, "digests", (ino,)))
        elif what == "write":
            last[name] = b"turn %d of " % turn + name
            write(cluster, node, name, last[name])
            [answer] = cluster.call(draw.randrange(NODES), "digests", (ino,))
            assert list(answer) == [len(last[name]), digest(last[name])]
        else:
            handle, _ = cluster.call(node, "open_path", name, os.O_RDONLY, 0, -1, 0, -1)
            assert cluster.call(node, "read", handle, 0, 100) == last[name]
            cluster.call(node, "close", handle)
        cluster.wander(8)
    for token in tokens:
        with suppress(OSError):
            cluster.finish(token)
    cluster.settle()
    for name, ino in inodes.items():
        for node in holders(cluster, ino):
            assert cluster.nodes[node].parts[ino] == last[name]
    cluster.check()


@pytest.mark.parametrize("dies", [False, True])
def test_the_last_old_content_stays_while_the_new_writer_fetches_it(dies: bool) -> None:
    cluster = Cluster(4, 1)
    ino = write(cluster, 1, b"/a", b"first")
    home = cluster.table.owners[cluster.nodes[0].meta.ino_partition(ino)]
    record = cluster.nodes[home].meta
    writer, last = (node for node in range(4) if node not in (1, home))
    cluster.held_works.add(w.Fetch)
    token = cluster.start(writer, "open_path", b"/a", os.O_RDWR, 0, -1, 0, -1)
    while not cluster.slow.get(writer):
        assert cluster.step()
    cluster.held_links.add((writer, home))
    cluster.held_works.clear()
    while ino not in cluster.nodes[writer].parts:
        assert cluster.step()
    write(cluster, last, b"/a", b"second")  # so the other one becomes the writer with the wrong content, and fetches this
    cluster.held_works.add(w.Fetch)
    cluster.held_links.clear()
    while not cluster.slow.get(writer):
        assert cluster.step()
    assert Attr(*record.getattr(ino, -1)).writer == writer
    cluster.fill(last)
    for _ in range(1000):
        cluster.step()
    assert token not in cluster.answers and cluster.nodes[last].parts[ino] == b"second"
    if dies:
        cluster.kill(writer)
    cluster.held_works.clear()
    if not dies:
        cluster.call(writer, "close", cluster.finish(token)[0])
    cluster.settle()
    if dies:  # nobody knows whether a program has written meanwhile
        assert Attr(*record.getattr(ino, -1)).finished == LOST
        with pytest.raises(OSError, match="EIO"):
            cluster.call(home, "open_path", b"/a", os.O_RDONLY, 0, -1, 0, -1)
        cluster.settle()
        cluster.check()
        return
    handle, _ = cluster.call(home, "open_path", b"/a", os.O_RDONLY, 0, -1, 0, -1)
    assert cluster.call(home, "read", handle, 0, 100) == b"second"
    cluster.call(home, "close", handle)
    cluster.settle()
    cluster.check()
