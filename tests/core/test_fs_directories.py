"""Directories that are changed by several nodes at the same time."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from fs_cluster import Cluster, Node, Real

from amfs.sim import asking
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import messages as m
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import Attr
from amfs.vocabulary.events import FsWork, FsWorked, Received
from amfs.vocabulary.fs_requests import received


class Counted(Cluster):
    """Counts the spreads of the manager, and knows the nodes that are asked for entries."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.spreads = 0
        self.works: dict[type, int] = {}
        self.lists: set[int] = set()
        super().__init__(nodes, seed)

    def tell(self, node: Node, event: Any) -> None:
        if isinstance(event, Received) and isinstance(event.message, m.PeerRequest):
            call = received(event.message.call, p.BY_TAG)
            if isinstance(call, p.List):
                self.lists.add(node.number)
        super().tell(node, event)

    def work(self, node: Node, effect: FsWork) -> FsWorked:
        self.spreads += isinstance(effect.order, w.SpreadTo)
        self.works[type(effect.order)] = self.works.get(type(effect.order), 0) + 1
        return super().work(node, effect)


def error_of(cluster: Cluster, token: object) -> int:
    try:
        cluster.finish(token)
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.mark.parametrize("seed", range(10))
def test_changes_at_the_same_time_go_to_all_nodes_together(seed: int) -> None:
    cluster = Counted(4, seed)
    names = [(node, b"%d-%d" % (node, i)) for i in range(5) for node in cluster.nodes]
    tokens = [cluster.start(node, "mkdir", 1, name, 0o755) for node, name in names]
    assert [error_of(cluster, token) for token in tokens] == [0] * len(names)
    assert 0 < cluster.spreads <= len(names) / 2
    cluster.spreads = 0
    tokens = [cluster.start(node, "rmdir", 1, name) for node, name in names]
    assert [error_of(cluster, token) for token in tokens] == [0] * len(names)
    assert 0 < cluster.spreads <= len(names)
    cluster.settle()
    cluster.check()
    assert not Real(cluster).list(b"/")


@pytest.mark.parametrize("seed", range(10))
def test_a_change_alone_takes_one_work(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no question is lost."""
    monkeypatch.setattr(asking, "UNASKED", 0.0)
    monkeypatch.setattr(asking, "LOST", 0.0)
    cluster = Counted(4, seed)
    meta = cluster.nodes[0].meta
    names = [name for name in (b"%d" % n for n in range(60)) if meta.owner(meta.name_partition(1, name)) != 0][:20]
    for what, order in (("mkdir", w.MakeAt), ("rmdir", w.RemoveAt)):
        cluster.works.clear()
        for i, name in enumerate(names):
            cluster.call(i % 4, what, 1, name, *((0o755,) if what == "mkdir" else ()))
        assert cluster.works[order] == len(names)
        assert not any(cluster.works.get(other) for other in (w.ReserveAt, w.StrikeAt, w.SpreadTo))
    cluster.settle()
    cluster.check()
    assert not Real(cluster).list(b"/")


@pytest.mark.parametrize("seed", range(10))
def test_one_of_all_that_remove_a_directory_removes_it(seed: int) -> None:
    cluster = Cluster(4, seed)
    cluster.call(0, "mkdir", 1, b"d", 0o755)
    tokens = [cluster.start(node, "rmdir", 1, b"d") for node in cluster.nodes]
    assert sorted(error_of(cluster, token) for token in tokens) == [0, *[errno.ENOENT] * 3]
    cluster.settle()
    cluster.check()


def test_a_directory_is_made_moved_and_removed_by_all_at_once() -> None:
    """In any order: each change is made whole or refused."""
    seen = set()
    for seed in range(80):
        cluster = Cluster(4, seed)
        made = cluster.start(0, "mkdir", 1, b"d", 0o755)
        cluster.wander(1 + 2 * seed)
        moved = cluster.start(1, "rename", 1, b"d", 1, b"e", 0)
        gone = cluster.start(2, "rmdir", 1, b"d")
        other = cluster.start(3, "mkdir", 1, b"e", 0o755)
        errors = [error_of(cluster, token) for token in (made, moved, gone, other)]
        assert errors[0] == 0 and errors[1] in (0, errno.ENOENT)
        assert errors[2] in (0, errno.ENOENT) and errors[3] in (0, errno.EEXIST)
        cluster.settle()
        cluster.check()
        seen.add(errors[1])
    assert seen == {0, errno.ENOENT}


def test_a_directory_that_is_being_removed_takes_no_new_ones() -> None:
    seen = set()
    for seed in range(60):
        cluster = Cluster(4, seed)
        above = Attr(*cluster.call(0, "mkdir", 1, b"d", 0o755)[0]).ino
        gone = cluster.start(1, "rmdir", 1, b"d")
        cluster.wander(1 + seed % 20)
        made = cluster.start(2, "mkdir", above, b"below", 0o755)
        errors = error_of(cluster, gone), error_of(cluster, made)
        assert errors in ((0, errno.ENOENT), (errno.ENOTEMPTY, 0))
        cluster.settle()
        cluster.check()
        seen.add(errors)
    assert len(seen) == 2


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("files", [0, 40])
def test_a_listing_by_pages_has_every_name_once(limit: int, files: int) -> None:
    cluster = Cluster(11)
    names = [b"f%d" % i for i in range(files)]
    for i, name in enumerate(names):
        cluster.call(i % 11, "symlink", 1, name, b"x")
    found: list[bytes] = []
    cursor = 0
    while page := cluster.call(3, "list", 1, cursor, limit):
        assert len(page) <= limit
        found += [entry[0] for entry in page]
        cursor = page[-1][3]
    assert sorted(found) == sorted(names)


def test_shards_are_asked_for_a_page_at_the_same_time() -> None:
    cluster = Counted(7, 0)
    cluster.held_links.add((2, 0))
    token = cluster.start(0, "list", 1, 0, 100)
    while cluster.lists != {1, 2}:
        assert cluster.step()
    assert token not in cluster.answers
    cluster.held_links.clear()
    assert cluster.finish(token) == []
    assert cluster.lists == {1, 2, 3, 4, 5, 6}
