"""Names whose record is on another node (peer_meta.h): looked up (LOOKUP, then GETATTR) and unlinked (UNLINK, then UNCOUNT)."""

from __future__ import annotations

import errno
import select
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from data_handshake import accept, exactly
from peer_meta_nodes import (
    ANSWER,
    CREATE,
    ELSEWHERE,
    GETATTR,
    GONE,
    GUARD_S,
    HAS_ATTR,
    LOOKUP,
    META_BUSY,
    META_NOT_MINE,
    PARTITIONS,
    QUESTION,
    RECORD,
    ROOT,
    SMALL,
    UNCOUNT,
    UNLINK,
    USED,
    Answer,
    Cluster,
    Kernel,
    Line,
    connected,
    exists,
    pack_record,
    record,
)
from waiting import until

from amfs.vocabulary.attr import STRIPED, Attr

FILE = stat.S_IFREG
IN_STEP_PARTITIONS = PARTITIONS // 2


def third(answer: Answer) -> int:
    """Nothing is done: this node is to be asked first."""
    assert (answer.error, answer.flags, answer.attr, len(answer.rest)) == (0, SMALL, None, 20)
    return int.from_bytes(answer.rest[:4], "little")


def names(cluster: Cluster) -> set[bytes]:
    return {name for node in cluster.nodes for name, *_ in node.meta.list(ROOT, 0, 100)}


# ── what a shard answers: node 1 asks node 0 ───────────────────────────────────────────────────────


def named_here(cluster: Cluster, kind: int = FILE) -> tuple[bytes, int]:
    """A name at node 0; the record is at node 1."""
    name, there = cluster.name_at(0), cluster.nodes[1].meta
    ino = there.new_number(1)
    cluster.nodes[0].meta.insert(ROOT, name, 0, ino, kind, False)
    return name, ino


@pytest.mark.parametrize("kind", [FILE, stat.S_IFLNK])
def test_the_name_goes_and_the_asker_hears_of_which_file_it_was(cluster: Cluster, line: Line, kind: int) -> None:
    name, ino = named_here(cluster, kind)
    answer = line.ask(UNLINK, ROOT, name=name, now=5)
    assert (answer.error, answer.flags & (ELSEWHERE | GONE | USED)) == (0, ELSEWHERE)
    assert answer.attr is not None
    assert (answer.attr.ino, answer.attr.mode, answer.attr.nlink) == (ino, kind, 0)
    assert not names(cluster)
    assert line.ask(UNLINK, ROOT, name=name).error == errno.ENOENT


def test_who_looks_a_name_up_hears_of_which_file_it_is_and_is_told_when_it_changes(cluster: Cluster, line: Line) -> None:
    name, ino = named_here(cluster)
    answer = line.ask(LOOKUP, ROOT, name=name)
    assert (answer.error, answer.flags & ELSEWHERE) == (0, ELSEWHERE)
    assert answer.attr is not None
    assert (answer.attr.ino, answer.attr.mode) == (ino, FILE)
    assert cluster.nodes[0].meta.remove(ROOT, name, 0, ino)[2] == (1,)
    directory = cluster.name_at(0, "d")
    cluster.nodes[0].meta.insert(ROOT, directory, 0, cluster.nodes[1].meta.new_number(1), stat.S_IFDIR, False)
    assert line.ask(LOOKUP, ROOT, name=directory).error == META_NOT_MINE, "every node knows directories"


def test_a_name_that_concerns_others_stays(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    name, ino = named_here(cluster)
    meta.lock(ROOT, name, 1 << 40)
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY, "an operation of several steps has it"
    meta.unlock(ROOT, name, 1 << 40)
    meta.lookup(ROOT, name, 2)
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY, "node 2 must be told"
    cluster.nodes[0].io.set_shy(True)
    meta.insert(ROOT, name, 0, ino, FILE, True)
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY
    cluster.nodes[0].io.set_shy(False)
    assert names(cluster) == {name}
    assert line.ask(UNLINK, ROOT, name=name).error == 0
    directory = cluster.name_at(0, "d")
    meta.insert(ROOT, directory, 0, cluster.nodes[1].meta.new_number(1), stat.S_IFDIR, False)
    assert line.ask(UNLINK, ROOT, name=directory).error == errno.EISDIR


def test_a_name_whose_record_is_on_its_way_stays(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    other = next(n for i in range(1000) if meta.name_partition(ROOT, n := f"o{i}".encode()) not in (meta.ino_partition(ino), 1, 3, 5, 7))
    meta.insert(ROOT, other, 0, ino, FILE, False)
    meta.set_moving([meta.ino_partition(ino)], True)
    assert line.ask(UNLINK, ROOT, name=other).error == META_NOT_MINE
    assert other in names(cluster)


def made(cluster: Cluster, **more: int) -> int:
    """A file whose record is at node 0; questions about it disregard its name."""
    return cluster.nodes[0].meta.create(ROOT, cluster.name_at(0), 1, -1, None, tuple(record(**more)))[0]


def test_a_record_counts_a_link_less(cluster: Cluster, line: Line) -> None:
    meta, ino = cluster.nodes[0].meta, made(cluster)
    meta.link(ino, 1, 2, 1)
    answer = line.ask(UNCOUNT, ino, now=9)
    assert (answer.error, answer.flags & (GONE | USED)) == (0, 0)
    assert answer.attr is not None
    assert (answer.attr.nlink, answer.attr.ctime) == (1, 9)
    assert line.ask(UNCOUNT, ino, now=10).error == 0
    assert not exists(meta, ino)
    assert line.ask(UNCOUNT, ino, now=11).error == errno.ENOENT


def test_the_asker_hears_that_its_content_can_go(cluster: Cluster, line: Line) -> None:
    meta, ino = cluster.nodes[0].meta, made(cluster, writer=1, finished=0)
    meta.wrote(ino, 1, tuple(record(size=9)))
    meta.unused(ino, 1)
    assert line.ask(UNCOUNT, ino).flags & GONE
    assert not exists(meta, ino)


@pytest.mark.parametrize("links", [1, 2])
def test_who_perhaps_uses_it_is_a_user_once_its_last_name_has_gone(cluster: Cluster, line: Line, links: int) -> None:
    meta, ino = cluster.nodes[0].meta, made(cluster)
    if links > 1:
        meta.link(ino, 1, 2, 1)
    answer = line.ask(UNCOUNT, ino, flags=USED)
    assert (answer.error, bool(answer.flags & USED), bool(answer.flags & GONE)) == (0, links == 1, False)
    assert exists(meta, ino)
    if links == 1:
        assert meta.unused(ino, 1), "that was its last user"


def test_what_concerns_a_third_node_is_not_counted(cluster: Cluster, line: Line) -> None:
    meta, ino = cluster.nodes[0].meta, made(cluster, writer=1, finished=0)
    meta.wrote(ino, 1, tuple(record(size=9)))
    before = meta.getattr(ino, 2)
    assert third(line.ask(UNCOUNT, ino)) == 2, "it watches it"
    meta.add_holder(ino, 2, meta.grant(ino))
    meta.setattr(ino, 1, tuple(record(mode=0o600)), 2, 1)
    assert third(line.ask(UNCOUNT, ino)) == 2, "it has content of it"
    assert meta.getattr(ino, 0)[2] == before[2]
    written = meta.create(ROOT, cluster.name_at(0, "w"), 1, -1, None, tuple(record(writer=2, finished=0)))[0]
    meta.setattr(written, 1, tuple(record(mode=0o600)), 2, 1)
    assert line.ask(UNCOUNT, written).error == META_BUSY, "node 2 writes it"
    striped = meta.create(ROOT, cluster.name_at(0, "s"), 1, -1, None, tuple(record(layout=STRIPED, stripe=4096)))[0]
    assert line.ask(UNCOUNT, striped).error == META_BUSY, "its stripes are on all nodes"
    cluster.nodes[0].io.set_shy(True)
    assert line.ask(UNCOUNT, striped).error == META_BUSY
    assert line.ask(UNCOUNT, cluster.nodes[1].meta.new_number(1)).error in (META_BUSY, META_NOT_MINE)
    assert exists(meta, written)
    assert exists(meta, striped)


# ── mounts that ask ────────────────────────────────────────────────────────────────────────────────

PLACES = [(0, 1), (1, 0), (1, 2), (2, 1)]  # of the name, of the record; the mount is at node 0


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    it = Cluster(tmp_path, 3)
    yield it
    it.stop()


def mounted(cluster: Cluster) -> Kernel:
    kernel = cluster.mount(0)
    for number in range(1, len(cluster.nodes)):
        connected(kernel, cluster.nodes[0], cluster.name_at(number, "x"))
    kernel.asked()
    return kernel


def closed_file(cluster: Cluster, kernel: Kernel, name: bytes, data: bytes = b"hello") -> int:
    error, ino, handle = kernel.create(name)
    assert error == 0
    assert kernel.write(ino, handle, data) == 0
    kernel.release(ino, handle)
    owner = cluster.nodes[0].meta.owner(cluster.nodes[0].meta.ino_partition(ino))
    until(lambda: cluster.nodes[owner].meta.getattr(ino, owner)[8] == 1, "its shard has not heard that it is closed")
    return ino


def rename(cluster: Cluster, name: bytes, to: bytes, ino: int) -> None:
    """As the poll loops do it: the node of the mount hears of later changes of the name."""
    meta = cluster.nodes[0].meta
    old, new = (cluster.nodes[meta.owner(meta.name_partition(ROOT, one))].meta for one in (name, to))
    new.insert(ROOT, to, 0, ino, FILE, False)
    new.lookup(ROOT, to, 0)
    if name != to:
        old.remove(ROOT, name, 0, ino)


def renamed_file(cluster: Cluster, kernel: Kernel, place: tuple[int, int], keep: bool = False) -> tuple[bytes, bytes, int]:
    """(the name that it was made by, the one that it has, its number)"""
    first, last = cluster.name_at(place[1]), cluster.name_at(place[0], "renamed")
    ino = closed_file(cluster, kernel, first)
    if keep:
        cluster.nodes[place[1]].meta.link(ino, 1, 5, 0)
        new = cluster.nodes[place[0]].meta
        new.insert(ROOT, last, 0, ino, FILE, False)
        new.lookup(ROOT, last, 0)
    else:
        rename(cluster, first, last, ino)
    return first, last, ino


def forgets(kernel: Kernel, ino: int) -> None:
    """A file that a kernel knows may still be opened where the record is. This is not answered."""
    kernel.send(2, ino, struct.pack("<Q", 1))


@pytest.mark.parametrize("place", PLACES)
def test_a_renamed_file_is_unlinked_without_the_poll_loop(three: Cluster, place: tuple[int, int]) -> None:
    kernel = mounted(three)
    _, name, ino = renamed_file(three, kernel, place)
    assert three.nodes[0].parts() == 1
    assert kernel.unlink(name) == 0
    assert not names(three)
    forgets(kernel, ino)
    until(lambda: not exists(three.nodes[place[1]].meta, ino), "its record stays")
    until(lambda: three.nodes[0].parts() == 0, "its content stays")
    assert kernel.lookup(name)[0] == errno.ENOENT
    assert not [op for op in kernel.asked() if op != "touched"]


@pytest.mark.parametrize("place", [(1, 0), (1, 2), (2, 1)])
def test_a_renamed_file_is_looked_up_without_the_poll_loop(three: Cluster, place: tuple[int, int]) -> None:
    """Its node hears of later changes of it."""
    kernel, owner = mounted(three), three.nodes[place[1]].meta
    name, ino = three.name_at(place[0]), owner.create(ROOT, three.name_at(place[1]), 1, -1, None, tuple(record()))[0]
    three.nodes[place[0]].meta.insert(ROOT, name, 0, ino, FILE, False)
    owner.link(ino, 1, 7 * 10**9, -1)
    error, data = kernel.lookup(name)
    assert (error, *struct.unpack_from("<Q", data)) == (0, ino)
    assert struct.unpack_from("<I", data, 40 + 64) == (2,), "links"
    assert not kernel.asked()
    assert owner.link(ino, -1, 8, -1)[2] == ((0,) if place[1] else ())


@pytest.mark.parametrize("kind", ["gone", "moving"])
def test_a_record_that_is_not_there_is_looked_up_by_the_poll_loop(three: Cluster, kind: str) -> None:
    kernel, owner = mounted(three), three.nodes[2].meta
    name, ino = three.name_at(1), owner.create(ROOT, three.name_at(2), 1, -1, None, tuple(record()))[0]
    three.nodes[1].meta.insert(ROOT, name, 0, ino if kind == "moving" else 2 << 40 | 77, FILE, False)
    owner.set_moving([owner.ino_partition(ino)], kind == "moving")
    unique = kernel.send(1, ROOT, name + b"\0")
    assert kernel.until_asked() == ["lookup"]
    kernel.fuse.reply_error(unique, errno.EIO)
    assert kernel.wait(unique)[0] == errno.EIO


@pytest.mark.parametrize("place", PLACES)
def test_a_hard_link_goes_and_the_file_stays(three: Cluster, place: tuple[int, int]) -> None:
    kernel = mounted(three)
    first, second, ino = renamed_file(three, kernel, place, keep=True)
    assert kernel.unlink(second) == 0
    assert names(three) == {first}
    assert three.nodes[place[1]].meta.getattr(ino, place[1])[2] == 1
    assert three.nodes[0].parts() == 1
    assert kernel.unlink(first) == 0
    forgets(kernel, ino)
    until(lambda: three.nodes[0].parts() == 0, "its content stays")
    assert not [op for op in kernel.asked() if op != "touched"]


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_is_open_keeps_its_content_until_it_is_closed(three: Cluster, place: tuple[int, int]) -> None:
    kernel = mounted(three)
    first, name = three.name_at(place[1]), three.name_at(place[0], "renamed")
    error, ino, handle = kernel.create(first)
    assert error == 0
    assert kernel.write(ino, handle, b"hello") == 0
    rename(three, first, name, ino)
    assert kernel.unlink(name) == 0
    assert not names(three)
    assert Attr(*three.nodes[place[1]].meta.getattr(ino, place[1])).nlink == 0
    error, data = kernel.call(15, ino, struct.pack("<QQIIQII", handle, 0, 100, 0, 0, 0, 0))
    assert (error, data) == (0, b"hello")
    kernel.release(ino, handle)
    if place[1] == 0:
        forgets(kernel, ino)
        until(lambda: three.nodes[0].parts() == 0, "its content stays")
    else:
        assert "closed" in kernel.until_asked(), "its last user is gone: that many must hear of"


def test_what_a_third_node_uses_the_poll_loop_counts(three: Cluster) -> None:
    """Of the record. The name has gone by then."""
    kernel = mounted(three)
    _, name, ino = renamed_file(three, kernel, (1, 2))
    three.nodes[2].meta.getattr(ino, 1)
    three.nodes[1].meta.claim(ino, True)
    unique = kernel.send(10, ROOT, name + b"\0")
    (request,) = [each for each in until_requested(kernel) if each[1] != "touched"]
    assert request[:3] == (unique, "unnamed", (ROOT, name, ino))
    assert not names(three)
    assert three.nodes[2].meta.getattr(ino, 2)[2] == 1
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0


def until_requested(kernel: Kernel) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    while not [request for request in found if request[1] != "touched"]:
        ready, _, _ = select.select([kernel.fuse.fd], [], [], GUARD_S)
        assert ready, "nothing comes to the poll loop"
        found += kernel.fuse.requests()
    return found


def test_a_name_that_a_third_node_knows_the_poll_loop_unlinks(three: Cluster) -> None:
    kernel = mounted(three)
    for place in ((0, 1), (1, 2)):
        _, name, ino = renamed_file(three, kernel, place)
        three.nodes[place[0]].meta.lookup(ROOT, name, 3 - place[0] - place[1] or 2)
        unique = kernel.send(10, ROOT, name + b"\0")
        assert "unlink" in kernel.until_asked()
        assert name in names(three)
        kernel.fuse.reply_error(unique, 0)
        assert kernel.wait(unique)[0] == 0
        assert three.nodes[place[1]].meta.getattr(ino, place[1])[2] == 1


def test_a_table_that_changes_in_between_leads_to_the_poll_loop(three: Cluster) -> None:
    kernel = mounted(three)
    _, name, ino = renamed_file(three, kernel, (1, 2))
    three.nodes[2].meta.set_moving([three.nodes[2].meta.ino_partition(ino)], True)
    unique = kernel.send(10, ROOT, name + b"\0")
    assert "unnamed" in kernel.until_asked()
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0


def test_a_record_that_was_lost_with_its_node_does_not_hold_up_its_name(three: Cluster) -> None:
    kernel = mounted(three)
    for name, ino in ((three.name_at(1), 2 << 40 | 77), (three.name_at(0), 2 << 40 | 78), (three.name_at(2), 3 << 40 | 77)):
        rename(three, name, name, ino)
        assert kernel.unlink(name) == 0
    assert not names(three)
    assert not [op for op in kernel.asked() if op != "touched"]


class Deaf:
    """A peer that lets a node in and answers nothing."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.line: socket.socket | None = None

    def is_called(self) -> bool:
        return bool(select.select([self.socket], [], [], 0)[0])

    def serve(self) -> None:
        self.line, _ = self.socket.accept()
        accept(self.line)

    def close(self) -> None:
        for one in (self.socket, self.line):
            if one is not None:
                one.close()


def look_up(kernel: Kernel, name: bytes) -> None:
    """Begin to; the poll loop, if it is asked, finds nothing."""
    kernel.send(1, ROOT, name + b"\0")
    for request in kernel.fuse.requests():
        if request[0]:
            kernel.fuse.reply_error(request[0], errno.ENOENT)


@contextmanager
def deaf_node(three: Cluster, kernel: Kernel) -> Iterator[Deaf]:
    """Node 0 takes a deaf peer for node 2, and is connected with it."""
    here, deaf = three.nodes[0], Deaf()
    try:
        here.io.forget_peer(2)
        here.io.set_peer(2, "127.0.0.1", deaf.socket.getsockname()[1])
        asked = here.io.questions[0]
        until(lambda: look_up(kernel, three.name_at(2, "y")) or deaf.is_called(), "it does not connect")
        deaf.serve()
        until(lambda: look_up(kernel, three.name_at(2, "y")) or here.io.questions[0] > asked, "it does not ask")
        yield deaf
    finally:
        deaf.close()


def await_question(line: socket.socket | None, op: int, ino: int) -> int:
    """The serial number of this question; others are left as they are."""
    assert line is not None
    while True:
        size, serial, asked, _, _, _, about, _ = QUESTION.unpack(head := exactly(line, QUESTION.size))
        exactly(line, size - len(head))
        if (asked, about) == (op, ino):
            return int(serial)


@pytest.mark.parametrize("changes", [False, True])
def test_a_name_that_changes_before_the_record_comes_is_looked_up_again(three: Cluster, changes: bool) -> None:
    kernel, name, ino = mounted(three), three.name_at(1), 2 << 40 | 77
    three.nodes[1].meta.insert(ROOT, name, 0, ino, FILE, False)
    with deaf_node(three, kernel) as deaf:
        unique = kernel.send(1, ROOT, name + b"\0")
        serial = await_question(deaf.line, GETATTR, ino)
        if changes:
            kernel.fuse.invalidate_entry(ROOT, name)
        kernel.asked()
        assert deaf.line is not None
        deaf.line.sendall(ANSWER.pack(ANSWER.size + RECORD.size, serial, 0, HAS_ATTR) + pack_record(record(ino=ino, nlink=1)))
        if changes:
            assert "lookup" in kernel.until_asked()
            kernel.fuse.reply_error(unique, errno.ENOENT)
        assert kernel.wait(unique)[0] == (errno.ENOENT if changes else 0)


def test_a_count_of_which_nobody_knows_is_an_error_and_not_asked_again(three: Cluster) -> None:
    """A link less once too often could take content along that has another name."""
    kernel, here = mounted(three), three.nodes[0]
    _, name, ino = renamed_file(three, kernel, (1, 2))
    until(lambda: here.meta.direct_uses(ino) == (0, 0, False), "its shard has not answered")
    assert here.meta.cached(ino)
    with deaf_node(three, kernel) as deaf:
        unlinking = kernel.send(10, ROOT, name + b"\0")
        await_question(deaf.line, UNCOUNT, ino)
        assert name not in names(three)
        assert deaf.line is not None
        deaf.line.close()
        assert kernel.wait(unlinking)[0] == errno.EIO
        assert "unnamed" not in kernel.asked()
        with pytest.raises(OSError):
            here.meta.cached(ino)
        assert three.nodes[2].meta.getattr(ino, 2)[2] == 1


def test_a_making_that_is_not_answered_is_looked_after_by_the_poll_loop(three: Cluster) -> None:
    """The record may be there, and say that this node writes the file."""
    kernel, here, name = mounted(three), three.nodes[0], three.name_at(2, "made")
    with deaf_node(three, kernel) as deaf:
        kernel.asked()
        making = kernel.send(35, ROOT, kernel.create_body(name))
        await_question(deaf.line, CREATE, ROOT)
        assert here.meta.making() == 1, "till then the record is not to be taken for one that nobody writes"
        assert deaf.line is not None
        deaf.line.close()
        assert kernel.wait(making)[0] == errno.EIO
        until(lambda: here.meta.making() == 0, "it counts as being made")
        told = [request[:3] for request in kernel.fuse.requests() if request[1] == "perhaps_made"]
        assert told == [(0, "perhaps_made", (ROOT, name))]


# ── backups hear of the name first ─────────────────────────────────────────────────────────────────


class Backed(Cluster):
    """Two nodes, each the backup of the other."""

    def set_table(self, owners: list[int]) -> None:
        self.version += 1
        for node in self.nodes:
            node.meta.set_table(owners, self.version)
            node.meta.set_backups([1 - owner if owner == node.number else -1 for owner in owners], [1 - node.number])
            node.io.backups_changed()


def test_a_mount_that_ends_before_the_backup_knows_leaves_the_count_to_the_poll_loop(tmp_path: Path) -> None:
    pair = Backed(tmp_path)
    (here, there), nowhere = pair.nodes, socket.create_server(("127.0.0.1", 0))
    try:
        until(lambda: all(node.meta.count_backups()[1] == IN_STEP_PARTITIONS for node in pair.nodes), "the backups are not in step")
        kernel = mounted(pair)
        name, ino = pair.name_at(0), there.meta.create(ROOT, pair.name_at(1), 1, 1, None, tuple(record()))[0]
        rename(pair, name, name, ino)
        until(lambda: here.meta.backed_up() == here.meta.ticket())
        here.io.forget_peer(1)
        here.io.set_peer(1, "127.0.0.1", nowhere.getsockname()[1])
        kernel.send(10, ROOT, name + b"\0")
        until(lambda: name not in names(pair), "the name stays")
        assert not select.select([kernel.socket], [], [], 0.1)[0], "it was answered before the backup knows"
        assert there.meta.getattr(ino, 1)[2] == 1, "it was counted before the backup knows"
        kernel.fuse.stop()
        assert [request[:3] for request in kernel.fuse.requests() if request[1] == "unnamed"] == [(0, "unnamed", (ROOT, name, ino))]
    finally:
        nowhere.close()
        pair.stop()


@pytest.mark.parametrize("heir", [0, 1])
def test_all_that_was_answered_is_inherited(tmp_path: Path, heir: int) -> None:
    pair = Backed(tmp_path)
    try:
        until(lambda: all(node.meta.count_backups()[1] == IN_STEP_PARTITIONS for node in pair.nodes), "the backups are not in step")
        kernel = mounted(pair)
        for place in ((0, 1), (1, 0)):
            for number in range(20):
                owner = pair.nodes[place[1]].meta
                ino = owner.create(ROOT, pair.name_at(place[1], f"{place}{number}"), 1, -1, None, tuple(record()))[0]
                owner.remove(ROOT, pair.name_at(place[1], f"{place}{number}"), 0, ino)
                name = pair.name_at(place[0], f"r{place}{number}")
                rename(pair, name, name, ino)
                assert kernel.unlink(name) == 0
        meta = pair.nodes[heir].meta
        meta.forget_node(1 - heir)
        meta.set_table([heir] * PARTITIONS, pair.version + 1)
        for part in range(PARTITIONS):
            meta.promote(part)
        meta.check()
        assert (meta.list(ROOT, 0, 100), meta.counts()["inodes"]) == ([], 0)
    finally:
        pair.stop()
