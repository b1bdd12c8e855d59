"""Loads from and dumps to storage at URLs, as a node's machine does them: how many works a file takes, and what it falls back to."""

from __future__ import annotations

import errno
from typing import Any

from fs_cluster import Cluster, Node
from fs_steps import read, write

from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import Attr, Facts
from amfs.vocabulary.events import FsWork, FsWorked
from amfs.vocabulary.url_moves import DUMP, LOAD, Secret, UrlEnd, UrlFile, UrlsMoved

CONTENT = b"of the object"
FACTS = Facts(len(CONTENT), 8, 5_000_000_000, 7_000_000_000)
STORAGE = Secret(b"", ("s3://bucket/",))


class Moving:
    """A session of one node, whose storage has what it is asked for."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, 1)
        self.node = node = self.cluster.nodes[0]
        self.orders: list[Any] = []
        self.stored: list[w.StoreUrl] = []
        node.serve(
            (w.OpenStorages, lambda order: None),
            (w.CloseStorages, lambda order: None),
            (w.CountMoved, lambda order: 0),
            (w.FetchUrl, lambda order: w.FetchedUrl(UrlEnd(order.file.number, len(CONTENT)), b"/scratch", FACTS)),
            (w.Adopt, lambda order: node.parts.update({order.ino: bytearray(CONTENT)})),
            (w.StoreUrl, self.store),
        )
        work = self.cluster.work

        def noted(node: Node, effect: FsWork) -> FsWorked:
            self.orders.append(effect.order)
            return work(node, effect)

        self.cluster.work = noted  # type: ignore[method-assign]
        self.renamed: list[Any] = []
        rename = node.fs.calls._handlers[p.RenameFile]
        node.fs.calls._handlers[p.RenameFile] = lambda peer, call: self.renamed.append(call) or rename(peer, call)
        self.refuses = 0

    def store(self, order: w.StoreUrl) -> UrlEnd:
        if not order.digest and self.refuses:
            raise OSError(self.refuses, "")
        self.stored.append(order)
        return UrlEnd(order.file.number, order.size)

    def move(self, what: int, file: UrlFile) -> list[UrlEnd]:
        self.orders.clear()
        moved = UrlsMoved(*self.cluster.call(0, "move_urls", 0, "move", what, STORAGE, (file,), 0, False))
        self.cluster.call(0, "move_urls", 0, "move", what, STORAGE, (), 0, True)
        return [UrlEnd(*end) for end in moved.ends]

    def count(self, *kinds: type) -> int:
        return sum(isinstance(order, kinds) for order in self.orders)


def test_a_loaded_file_is_put_there_without_a_handle_and_under_its_own_name() -> None:
    moving = Moving()
    asked = len(moving.renamed)
    assert moving.move(LOAD, UrlFile(7, 0, "key", b"/file", size=len(CONTENT), mode=0o644)) == [UrlEnd(7, len(CONTENT))]
    assert moving.count(w.FetchUrl) == moving.count(w.Adopt) == 1
    assert not moving.count(w.Scratch, w.MakePart, w.OpenHandle, w.CloseHandle, w.DropScratch)
    assert len(moving.renamed) == asked
    assert read(moving.cluster, 0, b"/file") == CONTENT
    attr = Attr(*moving.cluster.call(0, "walk", b"/file", True)[0])
    assert (attr.size, attr.blocks, attr.mtime, attr.finished, attr.nlink, attr.mode & 0o777) == (len(CONTENT), 8, FACTS.mtime, 1, 1, 0o644)
    moving.cluster.settle()
    moving.cluster.check()


def test_a_file_from_a_shared_path_is_made_under_its_own_name_too() -> None:
    moving = Moving()
    moving.node.serve((w.Scratch, lambda order: "/scratch"), (w.ImportFile, lambda order: FACTS))
    [answer] = moving.cluster.call(0, "load", 0, ((b"/outside/file", b"/file", 0o644),))
    assert tuple(answer) == (len(CONTENT), False) and not moving.renamed
    assert read(moving.cluster, 0, b"/file") == CONTENT
    assert Attr(*moving.cluster.call(0, "walk", b"/file", True)[0]).mtime == FACTS.mtime
    moving.cluster.settle()
    moving.cluster.check()


def test_a_file_that_is_there_is_replaced_when_the_new_one_is_whole() -> None:
    moving = Moving()
    old = write(moving.cluster, 0, b"/file", b"what was there")
    assert moving.move(LOAD, UrlFile(7, 0, "key", b"/file", size=len(CONTENT), mode=0o644)) == [UrlEnd(7, len(CONTENT))]
    assert read(moving.cluster, 0, b"/file") == CONTENT
    moving.cluster.settle()
    assert old not in moving.node.parts and [name for name, _ in moving.cluster.call(0, "list_path", b"/", 0, 100)[0]] == [b"file"]
    moving.cluster.check()


def test_a_file_that_cannot_be_put_there_leaves_nothing() -> None:
    moving = Moving()

    def full(order: w.Adopt) -> None:
        raise OSError(errno.ENOSPC, "")

    moving.node.serve((w.Adopt, full), (w.DropScratch, lambda order: None))
    [end] = moving.move(LOAD, UrlFile(7, 0, "key", b"/file", size=len(CONTENT), mode=0o644))
    assert end.error == errno.ENOSPC and moving.count(w.DropScratch) == 1
    moving.cluster.settle()
    assert not moving.cluster.call(0, "list_path", b"/", 0, 100)[0]
    moving.cluster.check()


def test_a_small_file_is_dumped_by_one_reading() -> None:
    moving = Moving()
    write(moving.cluster, 0, b"/file", CONTENT)
    ino = Attr(*moving.cluster.call(0, "walk", b"/file", True)[0]).ino
    file = UrlFile(3, 0, "key", b"/file", ino, -1)
    assert moving.move(DUMP, file) == [UrlEnd(3, len(CONTENT))]
    assert [order.digest for order in moving.stored] == [b""] and not moving.count(w.Digest, w.PartDigest)
    for moving.refuses in (errno.ENODATA, errno.EBUSY):  # it is not here as a whole, or somebody writes it
        assert moving.move(DUMP, file) == [UrlEnd(3, len(CONTENT))]
        assert moving.stored[-1].digest
    moving.refuses = 0
    moving.move(DUMP, file._replace(size=len(CONTENT)))  # the object there may be the same: a digest is needed
    assert moving.stored[-1].digest
