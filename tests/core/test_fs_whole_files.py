"""Files that are finished from the start, on several nodes: the remains when the entry cannot be made, or its node dies meanwhile."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fs_cluster import Cluster
from fs_steps import listed, name_at, read, write

from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import Attr, Facts
from amfs.vocabulary.url_moves import LOAD, Secret, UrlEnd, UrlFile, UrlsMoved

CONTENT = b"of the object"
FACTS = Facts(len(CONTENT), 8, 5_000_000_000, 7_000_000_000)
STORAGE = Secret(b"", ("s3://bucket/",))
LOADER, OTHER = 1, 2


class Loading:
    """Three nodes, of which one loads."""

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(3, seed)
        self.files: tuple[UrlFile, ...] = ()
        node = self.cluster.nodes[LOADER]
        node.serve(
            (w.OpenStorages, lambda order: None),
            (w.CloseStorages, lambda order: None),
            (w.CountMoved, lambda order: 0),
            (w.DropScratch, lambda order: None),
            (w.FetchUrl, lambda order: w.FetchedUrl(UrlEnd(order.file.number, len(CONTENT)), b"/scratch", FACTS)),
            (w.Adopt, lambda order: node.parts.update({order.ino: bytearray(CONTENT)})),
        )

    def begin(self, path: bytes) -> object:
        self.files = (UrlFile(7, 0, "key", path, size=len(CONTENT), mode=0o644),)
        return self.cluster.start(LOADER, "move_urls", LOADER, "move", LOAD, STORAGE, self.files, 0, False)

    def ended(self, token: Any) -> UrlEnd:
        while not (ends := UrlsMoved(*self.cluster.finish(token)).ends):
            token = self.cluster.start(LOADER, "move_urls", LOADER, "move", LOAD, STORAGE, self.files, 0, False)
        return UrlEnd(*ends[0])

    def check(self) -> None:
        """Each record has a name, too."""
        self.cluster.settle()
        self.cluster.check()


@pytest.mark.parametrize("at", [0, LOADER, OTHER])
@pytest.mark.parametrize("seed", range(5))
def test_the_entry_may_lie_on_any_node(seed: int, at: int) -> None:
    loading = Loading(seed)
    name = name_at(loading.cluster, at)
    assert loading.ended(loading.begin(b"/" + name)) == UrlEnd(7, len(CONTENT))
    for node in range(3):
        assert read(loading.cluster, node, b"/" + name) == CONTENT
        attr = Attr(*loading.cluster.call(node, "walk", b"/" + name, True)[0])
        assert (attr.size, attr.mtime, attr.finished, attr.nlink) == (len(CONTENT), FACTS.mtime, 1, 1)
    loading.check()
    loading.cluster.call(0, "unlink_path", b"/" + name)
    loading.check()
    assert not any(loading.cluster.nodes[LOADER].parts)


@pytest.mark.parametrize("at", [0, LOADER])
@pytest.mark.parametrize("steps", range(1, 41, 2))
def test_a_file_that_somebody_makes_meanwhile_is_replaced(at: int, steps: int) -> None:
    loading = Loading(steps)
    name = name_at(loading.cluster, at)
    token = loading.begin(b"/" + name)
    loading.cluster.wander(steps)
    made = write(loading.cluster, 0, b"/" + name, b"another's", flags=os.O_CREAT | os.O_TRUNC)
    assert loading.ended(token) == UrlEnd(7, len(CONTENT))
    now = Attr(*loading.cluster.call(0, "walk", b"/" + name, True)[0]).ino
    assert read(loading.cluster, 0, b"/" + name) == (b"another's" if now == made else CONTENT)  # written to what was loaded, or replaced
    loading.check()


@pytest.mark.parametrize("steps", range(60))
def test_the_node_of_the_entry_dies(steps: int) -> None:
    loading = Loading(steps)
    name = name_at(loading.cluster, OTHER)
    loading.cluster.settle()
    token = loading.begin(b"/" + name)
    loading.cluster.wander(1 + steps % 20)
    loading.cluster.kill(OTHER)
    end = loading.ended(token)
    there = listed(loading.cluster, 0)
    assert set(there) <= {name}
    if not end.kind:
        assert there == [name]
    if there:
        assert read(loading.cluster, 0, b"/" + name) == CONTENT
    loading.check()
