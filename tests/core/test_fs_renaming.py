"""The rest of a rename that a mount has begun between shards, and could not end: the poll loop takes it back, or ends it."""

from __future__ import annotations

import errno

import pytest
from fs_cluster import Cluster, Real
from fs_steps import owner, refused, write

from amfs._native import Meta
from amfs.vocabulary.attr import ROOT, Attr
from amfs.vocabulary.fs_requests import RENAMING_MADE, RENAMING_NOT_MADE, RENAMING_UNKNOWN

MOUNT = 0
LOCK = (MOUNT + 1) << 40 | 1 << 39 | 3
FILE = 0o100000


def shard_of(cluster: Cluster, name: bytes) -> Meta:
    return cluster.nodes[owner(cluster, cluster.nodes[MOUNT].meta.name_partition(ROOT, name))].meta


def begun(cluster: Cluster, name: bytes) -> int:
    """The file; its old name is locked, and its record counts a link more."""
    write(cluster, 1, b"/" + name, b"content")
    cluster.settle()
    meta = shard_of(cluster, name)
    ino: int = meta.lookup(ROOT, name, MOUNT)[0]
    meta.lock(ROOT, name, LOCK)
    meta.link(ino, 1, 5, MOUNT)
    return ino


def links(cluster: Cluster, path: bytes) -> int:
    return Attr(*cluster.call(2, "walk", path, True)[0]).nlink


@pytest.mark.parametrize("number", range(4))
def test_it_is_taken_back_and_done_in_another_way(number: int) -> None:
    cluster = Cluster(3, number)
    name = b"f%d" % number
    ino = begun(cluster, name)
    cluster.call(MOUNT, "renaming", ROOT, name, ROOT, b"to", 0, ino, LOCK, 0, RENAMING_NOT_MADE)
    cluster.settle()
    assert Real(cluster).read(b"/to") == b"content"
    assert links(cluster, b"/to") == 1
    assert refused(cluster, 2, "walk", b"/" + name, True) == errno.ENOENT
    cluster.check()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("replaces", [False, True])
def test_it_is_ended(number: int, replaces: bool) -> None:
    cluster = Cluster(3, number)
    name, old = b"f%d" % number, 0
    ino = begun(cluster, name)
    shard = shard_of(cluster, b"to")
    if replaces:
        write(cluster, 2, b"/to", b"old")
        cluster.settle()
        old = shard.lookup(ROOT, b"to", MOUNT)[0]
    shard.insert(ROOT, b"to", 0, ino, FILE, replaces)
    cluster.call(MOUNT, "renaming", ROOT, name, ROOT, b"to", 0, ino, LOCK, old, RENAMING_MADE)
    cluster.settle()
    assert Real(cluster).read(b"/to") == b"content"
    assert links(cluster, b"/to") == 1
    assert refused(cluster, 2, "walk", b"/" + name, True) == errno.ENOENT
    assert not any(old in node.parts for node in cluster.nodes.values())
    write(cluster, 1, b"/" + name, b"another")  # the lock has gone, too
    cluster.settle()
    cluster.check()


def test_if_nobody_knows_how_far_it_went_that_is_said_and_nothing_is_lost() -> None:
    cluster = Cluster(3, 1)
    ino = begun(cluster, b"f")
    assert refused(cluster, MOUNT, "renaming", ROOT, b"f", ROOT, b"to", 0, ino, LOCK, 0, RENAMING_UNKNOWN) == errno.EIO
    cluster.settle()
    assert Real(cluster).read(b"/f") == b"content"
    assert refused(cluster, 1, "unlink_path", b"/f") == 0  # not locked any more
    cluster.settle()
    assert any(ino in node.parts for node in cluster.nodes.values())  # it may have another name
