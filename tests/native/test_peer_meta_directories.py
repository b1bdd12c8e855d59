"""Changes of directories that go from C to C (peer_meta_dirs.c, py_fsio_asking.c): those heard, and those left to poll loops.

News of them for kernels: csrc/tests/test_peer_meta.c."""

from __future__ import annotations

import errno
import select
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer_meta_nodes import GUARD_S, META_BUSY, META_NOT_MINE, RESERVE, ROOT, SPREAD, STRIKE, Cluster, Line, Node, record

from amfs.vocabulary.attr import Attr
from amfs.vocabulary.directory_changes import pack
from amfs.vocabulary.peer_requests import AddDirectory, AnyChange, DropDirectory, FreezeDirectory

MANAGER = 1


def changes_of(*changes: AnyChange, asker: int = MANAGER, manager: int = MANAGER) -> bytes:
    packed = pack(changes, [asker] * len(changes))
    assert packed is not None
    return struct.pack("<i", manager) + packed


def directory(ino: int, name: bytes = b"d", now: int = 50) -> AddDirectory:
    return AddDirectory(ino, ROOT, name, Attr(mode=stat.S_IFDIR | 0o750, uid=3, gid=4, atime=now, mtime=now, ctime=now))


def answers(rest: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(rest) // 8}q", rest))


def test_a_spread_is_made_once(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    meta.set_manager(MANAGER)
    ino = meta.new_number(0)
    name = cluster.name_at(0)
    both = changes_of(directory(ino, name), FreezeDirectory(ino, True))
    for _ in range(2):
        heard = line.ask(SPREAD, 7, value=both)
        assert (heard.error, answers(heard.rest)) == (0, [1, 0]), "the home of the topmost directory has seen to its times"
    attr, above = meta.dir_get(ino)
    assert (above, Attr(*attr)[:5]) == (ROOT, (ino, stat.S_IFDIR | 0o750, 2, 3, 4))
    assert meta.lookup(ROOT, name, 0)[:2] == (ino, stat.S_IFDIR)
    assert Attr(*meta.dir_get(ROOT)[0]).mtime == 50
    assert meta.spread(MANAGER, 7, both[4:]) == [1, 0], "nor by way of the poll loop once more"
    heard = line.ask(SPREAD, 8, value=changes_of(FreezeDirectory(ino, False), DropDirectory(ino, ROOT, name, False, 60)))
    assert answers(heard.rest) == [0, 1]
    assert answers(line.ask(SPREAD, 9, value=changes_of(DropDirectory(ino, ROOT, name, False, 60))).rest) == [-errno.ENOTDIR]
    with pytest.raises(FileNotFoundError):
        meta.lookup(ROOT, name, 0)


def test_what_is_too_late_or_not_of_the_manager_is_not_heard(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    ino, name = meta.new_number(0), cluster.name_at(0)
    add = changes_of(directory(ino, name))
    assert line.ask(SPREAD, 7, value=add).error == META_BUSY, "it does not know the directories yet"
    meta.set_manager(0)
    assert line.ask(SPREAD, 7, value=add).error == META_BUSY
    assert line.ask(RESERVE, ROOT, name=name, now=1).error == META_BUSY
    assert line.ask(STRIKE, ROOT, name=name, now=1, value=bytes(8)).error == META_BUSY
    meta.set_manager(MANAGER)
    assert meta.spread(MANAGER, 8, b"") == []
    assert line.ask(SPREAD, 7, value=add).error == META_BUSY, "a later one has been made"
    for wrong in (b"", add[:-1], add[:20], add[:4] + b"\xff" + add[5:]):
        assert line.ask(SPREAD, 9, value=wrong).error == errno.EINVAL
    assert meta.counts()["dirs"] == 1


def test_names_of_directories_are_reserved_and_struck(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    meta.set_manager(MANAGER)
    name = cluster.name_at(0)
    heard = line.ask(RESERVE, ROOT, name=name, now=1)
    (ino,) = struct.unpack("<Q", heard.rest)
    assert meta.lookup(ROOT, name, 0) == (ino, stat.S_IFDIR, None)
    assert line.ask(RESERVE, ROOT, name=name, now=2).error == errno.EEXIST
    assert line.ask(RESERVE, ROOT, name=cluster.name_at(1), now=3).error == META_NOT_MINE
    assert line.ask(STRIKE, ROOT, name=name, now=4, value=struct.pack("<Q", ino + 1)).error == META_BUSY, "of another directory"
    assert line.ask(STRIKE, ROOT, name=name, now=5, value=b"abc").error == errno.EINVAL
    meta.refuse(MANAGER, 6)
    assert line.ask(STRIKE, ROOT, name=name, now=6, value=struct.pack("<Q", ino)).error == META_BUSY, "nobody waits for that any more"
    assert line.ask(RESERVE, ROOT, name=b"other" + name, now=6).error in (META_BUSY, META_NOT_MINE)
    assert line.ask(STRIKE, ROOT, name=name, now=7, value=struct.pack("<Q", ino)).error == 0
    with pytest.raises(FileNotFoundError):
        meta.lookup(ROOT, name, 0)


Step = tuple[tuple[int, ...], int, int, int, bytes, bytes, int]


def ask_all(node: Node, nodes: tuple[int, ...], number: int, value: bytes) -> list[tuple[int, bytes]]:
    (heard,) = ask_steps(node, number, spread(nodes, number, value))
    return heard


def spread(nodes: tuple[int, ...], number: int, value: bytes, fill: int = -1) -> Step:
    return nodes, SPREAD, number, 0, b"", value, fill


def ask_steps(node: Node, number: int, *steps: Step) -> list[list[tuple[int, bytes]]]:
    node.io.ask(number, steps)
    while True:
        assert select.select([node.io.fd], [], [], GUARD_S)[0]
        if number in (serial for _, serial, *_ in node.io.take()):
            return node.io.answers(number)


def test_all_are_asked_at_once_and_heard_together(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 4)
    try:
        manager, *others = cluster.nodes
        manager.io.forget_peer(3)  # it cannot be reached
        for node in others:
            node.meta.set_manager(0)
        number, heard = 1, ask_all(manager, (1, 2), 1, changes_of(manager=0))
        while any(error for error, _ in heard):  # the first questions connect
            number += 1
            heard = ask_all(manager, (1, 2), number, changes_of(manager=0))
        assert heard == [(0, b""), (0, b"")]
        others[1].meta.set_manager(3)
        ino = next(n for p in range(8) if (n := p << 40 | 900))
        heard = ask_all(manager, (1, 2, 3), number + 1, changes_of(directory(ino), manager=0))
        assert [error for error, _ in heard[:2]] == [0, META_BUSY]
        assert len(answers(heard[0][1])) == 1
        assert heard[2][0] not in (0, errno.ECONNABORTED), "it was not asked"
        assert [node.meta.counts()["dirs"] for node in others] == [2, 1, 1]
        with pytest.raises(FileNotFoundError):
            manager.io.answers(number + 1)
        others[0].io.stop()
        error, _ = ask_all(manager, (1,), number + 2, changes_of(directory(ino), manager=0))[0]
        assert error != 0
    finally:
        cluster.stop()


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Cluster]:
    """Node 0 is the manager, and has asked the others already."""
    cluster = Cluster(tmp_path, 3)
    for node in cluster.nodes:
        node.meta.set_manager(0)
    number = 1
    while any(error for error, _ in ask_all(cluster.nodes[0], (1, 2), number, changes_of(manager=0))):
        number += 1
    yield cluster
    cluster.stop()


LATER = 1000  # numbers of spreads after those


def reserve(cluster: Cluster, name: bytes, node: int = 1) -> Step:
    return (node,), RESERVE, ROOT, 1, name, b"", -1


def add_unnumbered(cluster: Cluster, name: bytes) -> Step:
    return spread((1, 2), LATER, changes_of(directory(0, name), manager=0), 4 + 8)


def test_a_directory_gets_the_number_that_was_reserved(connected: Cluster) -> None:
    name = connected.name_at(1)
    (reserved,), added = ask_steps(connected.nodes[0], LATER, reserve(connected, name), add_unnumbered(connected, name))
    (ino,) = struct.unpack("<Q", reserved[1])
    assert [error for error, _ in (reserved, *added)] == [0, 0, 0]
    assert [node.meta.dir_find(ROOT, name)[0] for node in connected.nodes[1:]] == [ino, ino]


def test_no_directory_is_made_whose_name_is_not_reserved(connected: Cluster) -> None:
    name = connected.name_at(1)
    connected.nodes[1].meta.create(ROOT, name, 1, 0, None, tuple(record()))
    steps = ask_steps(connected.nodes[0], LATER, reserve(connected, name), add_unnumbered(connected, name))
    assert [[error for error, _ in step] for step in steps] == [[errno.EEXIST]]
    assert [node.meta.counts()["dirs"] for node in connected.nodes] == [1, 1, 1]


@pytest.mark.parametrize("empty", [True, False])
def test_a_directory_is_dropped_if_it_is_empty_everywhere(connected: Cluster, empty: bool) -> None:
    name, manager = connected.name_at(1), connected.nodes[0]
    (reserved,), _ = ask_steps(manager, LATER, reserve(connected, name), add_unnumbered(connected, name))
    (ino,) = struct.unpack("<Q", reserved[1])
    if not empty:
        place = next(n for n in range(1000) if manager.meta.owner(manager.meta.name_partition(ino, b"%d" % n)) == 2)
        connected.nodes[2].meta.create(ino, b"%d" % place, 1, 0, None, tuple(record()))
    freeze = spread((1, 2), LATER + 1, changes_of(FreezeDirectory(ino, True), manager=0))
    strike = (1,), STRIKE, ROOT, 2, name, struct.pack("<Q", ino), -1
    drop = spread((1, 2), LATER + 2, changes_of(DropDirectory(ino, ROOT, name, False, 60), manager=0))
    steps = ask_steps(manager, LATER + 2, freeze, strike, drop)
    assert [len(step) for step in steps] == ([2, 1, 2] if empty else [2])
    assert [node.meta.counts()["dirs"] for node in connected.nodes[1:]] == [1 if empty else 2] * 2


def test_what_is_no_step(connected: Cluster) -> None:
    cases: list[Any] = [(), ((),), (spread((1,), 1, b"1234567", 0),)]
    for wrong in cases:
        with pytest.raises((ValueError, TypeError)):
            connected.nodes[0].io.ask(1, wrong)
