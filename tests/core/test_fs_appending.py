"""Clients and mounts on several nodes that append to one file, each closing it after its line: whatever becomes of the file meanwhile, and
in whatever order things happen, no line is lost."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from daily import daily
from fs_cluster import Cluster, Real

from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOCAL, Attr, Opened
from amfs.vocabulary.events import FsRequested


class Appender:
    """Opens a file, appends a line and closes it, a step at a time; others do the same at other nodes."""

    def __init__(self, cluster: Cluster, path: bytes, node: int, endpoint: int, line: bytes) -> None:
        self.cluster, self.node, self.endpoint, self.line = cluster, node, endpoint, line
        self.token = cluster.start(node, "open_path", path, os.O_RDWR | os.O_CREAT, 0o644, -1, 0, -1, endpoint=endpoint, kind="client")
        self.steps = iter(self.work())

    def work(self) -> Iterator[None]:
        handle: int
        handle, _ = yield from self.answer()
        node = self.cluster.nodes[self.node]
        node.write(w.Write(handle, len(node.content(*node.handles[handle])), self.line))
        yield
        self.token = self.cluster.start(self.node, "close", handle, endpoint=self.endpoint, kind="client")
        yield from self.answer()

    def answer(self) -> Iterator[Any]:
        while self.token not in self.cluster.answers:
            yield
        return self.cluster.finish(self.token)


class MountAppender(Appender):
    """The same through a mount: it opens a file here by itself if the shard is here, too; else as soon as it is answered. That the last
    of its handles is closed is heard later, and that nobody uses the file only if nobody does."""

    def __init__(self, cluster: Cluster, ino: int, node: int, endpoint: int, line: bytes) -> None:
        self.cluster, self.node, self.endpoint, self.line, self.ino = cluster, node, endpoint, line, ino
        self.number, self.failed = 0, 0
        self.steps = iter(self.work())

    def work(self) -> Iterator[None]:
        node, open_here = self.cluster.nodes[self.node], self.cluster.mounted.setdefault((self.node, self.endpoint, self.ino), set())
        with suppress(OSError):
            size = node.meta.open_here(self.ino, True)[11]
            node.make(self.ino)
            self.number = node.open_handle(w.OpenHandle(self.ino, Opened(LOCAL, self.node, 0, size, 0), True, True))
            open_here.add(self.number)
        while not self.number:
            self.token = self.cluster.start(self.node, "open", self.ino, os.O_WRONLY, endpoint=self.endpoint)
            self.cluster.on_answer[self.token] = self.opened
            if self.token in self.cluster.answers:  # at once
                self.cluster.on_answer.pop(self.token)()
            yield from self.answer()
        node.write(w.Write(self.number, len(node.content(*node.handles[self.number])), self.line))
        yield
        open_here.discard(self.number)
        size, blocks, atime, mtime = node.close(self.number)
        if not open_here:
            self.tell_closed(not node.is_used(self.ino), Attr(ino=self.ino, size=size, blocks=blocks, atime=atime, mtime=mtime))

    def opened(self) -> None:
        error, value = self.cluster.answers[self.token]
        if error:
            return
        try:
            self.number = self.cluster.nodes[self.node].open_handle(w.OpenHandle(self.ino, value, True, True))
        except OSError as late:
            assert late.errno == errno.ESTALE
            self.tell_closed(True, None)
        else:
            self.cluster.mounted[self.node, self.endpoint, self.ino].add(self.number)

    def tell_closed(self, last: bool, said: Any) -> None:
        self.cluster.nodes[self.node].meta.closing(self.ino)
        self.cluster.serial += 1
        token = ("fuse", self.endpoint, self.cluster.serial)
        self.cluster.on_answer[token] = lambda: self.cluster.answers.pop(token) and None
        self.cluster.worked.setdefault(self.node, deque()).append(FsRequested(token, q.Closed(self.ino, True, last, said)))


@pytest.mark.parametrize("kind", ["plain", "full", "grows", "restriped", "moved"])
@pytest.mark.parametrize("seed", daily(range(25), *range(8)))
def test_what_is_appended_on_several_nodes_is_kept_wherever_the_file_is_laid_meanwhile(kind: str, seed: int) -> None:
    """Where there is no room, a file is laid in stripes, by who writes it or by who has it; or somebody wishes it elsewhere."""
    cluster = Cluster(3, seed)
    real, rng = Real(cluster), cluster.random
    path = b"/f%d" % seed
    cluster.contents.growth = 0.05 if kind == "grows" else 0.0
    for number in rng.sample(range(3), 2) if kind == "full" else ():
        cluster.nodes[number].limit = rng.randrange(0, 120)
    pins = [(b"placement", b"%d" % n) for n in (-1, 0, 1, 2)]
    wishes = {"restriped": [(b"layout", b"striped:4096"), (b"layout", b"whole")], "moved": pins}
    handle, _ = real.do("open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1, node=0)
    real.do("close", handle, node=0)
    ino = real.do("walk", path, True)[0][0]
    clients = rng.choice((0.0, 0.5, 1.0))  # the others are mounts
    places, most = rng.choice(((0, 1, 2), (0, 1))), rng.choice((3, 6))
    active: list[Appender] = []
    asked: list[object] = []
    lines = [b"%04d\n" % n for n in range(40)]
    begun = 0
    while begun < len(lines) or active:
        if begun < len(lines) and len(active) < most and rng.random() < 0.3:
            client = rng.random() < clients
            where = rng.choice(places), 2 if client else 1, lines[begun]
            active.append(Appender(cluster, path, *where) if client else MountAppender(cluster, ino, *where))
            begun += 1
        if kind in wishes and begun and rng.random() < 0.05:
            name, value = rng.choice(wishes[kind])
            asked.append(cluster.start(rng.randrange(3), "set_xattr_path", path, b"user.amfs." + name, value, 0))
        for appender in list(active):
            if rng.random() < 0.5 and next(appender.steps, "done") == "done":
                active.remove(appender)
        cluster.step()
    cluster.settle()
    refused = [error for error in (cluster.answers.pop(token)[0] for token in asked) if error]
    assert set(refused) <= {errno.EBUSY, errno.EOPNOTSUPP}, refused
    assert sorted(real.read(path).splitlines(True)) == lines
    found = real.do("walk", path, True)[0]
    assert found[8] == 1, "it is finished"
    cluster.settle()
    cluster.check()
    shard = cluster.nodes[cluster.table.owners[cluster.nodes[0].meta.ino_partition(found[0])]]
    copies = {node.number for node in cluster.nodes.values() if found[0] in node.parts}
    assert copies <= set(shard.meta.holders(found[0])), "forgotten ones"


@pytest.mark.parametrize("seed", range(25))
def test_who_is_to_be_written_through_while_it_brings_the_content_lets_nobody_in_before(seed: int) -> None:
    """Whatever it had open of the file before."""
    cluster = Cluster(2, seed)
    real, path = Real(cluster), b"/f%d" % seed
    handle, _ = real.do("open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1, node=0)
    real.do("close", handle, node=0)
    ino = real.do("walk", path, True)[0][0]
    for node in range(2):
        real.do("open_path", path, os.O_RDONLY, 0, -1, 0, -1, node=node)  # and has it open all the time
    lines = [b"%04d\n" % n for n in range(60)]
    left = {node: lines[node::2] for node in range(2)}
    active: dict[int, MountAppender] = {}
    while active or any(left.values()):
        for node, mine in left.items():
            if node not in active and mine and cluster.random.random() < 0.1:
                active[node] = MountAppender(cluster, ino, node, 1, mine.pop())
            if node in active and cluster.random.random() < 0.5 and next(active[node].steps, "done") == "done":
                del active[node]
        cluster.step()
    assert sorted(real.read(path).splitlines(True)) == lines
    cluster.settle()
    cluster.check()


def test_a_mount_that_closes_its_reader_before_it_knows_of_its_writer_takes_back_no_writing() -> None:
    """The handle was given out while the news was on its way that the mount has none. It writes, and is closed: that news comes later."""
    cluster = Cluster(2, 1)
    real = Real(cluster)
    handle, _ = real.do("open_path", b"/f", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1, node=0)
    real.do("close", handle, node=0)
    cluster.settle()
    ino, node = real.do("walk", b"/f", True)[0][0], cluster.nodes[0]
    token = cluster.start(0, "open", ino, os.O_WRONLY, endpoint=5)
    cluster.settle()
    error, opened = cluster.answers.pop(token)
    assert not error
    number = node.open_handle(w.OpenHandle(ino, opened, True, True))
    node.write(w.Write(number, 0, b"kept"))
    size, blocks, atime, mtime = node.close(number)
    for wrote, said in ((False, None), (True, Attr(ino=ino, size=size, blocks=blocks, atime=atime, mtime=mtime))):
        node.meta.closing(ino)
        cluster.serial += 1
        told = ("fuse", 5, cluster.serial)
        cluster.worked.setdefault(0, deque()).append(FsRequested(told, q.Closed(ino, wrote, True, said)))
        cluster.settle()
    attr = Attr(*real.do("walk", b"/f", True)[0])
    assert (attr.finished, attr.size) == (1, 4) and real.read(b"/f") == b"kept"


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_fetched_the_content_before_an_append_does_not_go_on_from_it(seed: int) -> None:
    """Its reader fetches the content; another node appends; then a look makes the first a watcher again, before it says that it has all."""
    cluster = Cluster(2, seed)
    real, path = Real(cluster), b"/f%d" % seed

    def append(node: int, data: bytes) -> None:
        handle, attr = real.do("open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1, node=node)
        real.do("write", handle, Attr(*attr).size, data, node=node)
        real.do("close", handle, node=node)

    append(0, b"old")
    cluster.settle()
    cluster.held_works.add(w.Fetch)
    token = cluster.start(1, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)
    while not cluster.slow.get(1):
        assert cluster.step()
    fetched = cluster.work(cluster.nodes[1], cluster.slow[1].popleft())
    append(0, b" new")
    real.do("walk", path, True, node=1)
    cluster.held_works.discard(w.Fetch)
    cluster.worked.setdefault(1, deque()).append(fetched)
    handle, _ = cluster.finish(token)
    real.do("close", handle, node=1)
    append(1, b" end")
    cluster.settle()
    for node in (0, 1):
        handle, _ = real.do("open_path", path, os.O_RDONLY, 0, -1, 0, -1, node=node)
        assert real.do("read", handle, 0, 100, node=node) == b"old new end"
