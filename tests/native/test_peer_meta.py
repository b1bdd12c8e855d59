"""Shards that are asked directly (peer_meta.h): answers at once, questions that take the long way, bad bytes and dead peers.

The nodes are in this process; their mounts are served over a socket instead of /dev/fuse.
"""

from __future__ import annotations

import errno
import random
import socket
import stat
import threading
import time

import pytest
from data_handshake import CLIENT, KEY, NOT_MEMBER, WRONG_KEY
from peer_meta_nodes import (
    CLOSED,
    CREATE,
    GET_XATTR,
    GETATTR,
    GONE,
    HOLDS,
    LOOKUP,
    META_BUSY,
    META_NOT_MINE,
    OPEN,
    READLINK,
    ROOT,
    SETATTR,
    SMALL,
    TOUCH,
    UNLINK,
    Cluster,
    Line,
    question,
    record,
)

from amfs._native import Meta
from amfs.vocabulary.attr import LOST, META_SET_ATIME, META_SET_GID, META_SET_MODE, META_SET_MTIME, META_SET_SIZE, META_SET_UID, Attr

# ── what a shard answers ───────────────────────────────────────────────────────────────────────────


def test_life_of_a_file(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    assert line.ask(LOOKUP, ROOT, name=name).error == errno.ENOENT
    made = line.ask(CREATE, ROOT, 5, name=name, attr=record(writer=1, finished=0), now=100)
    assert (made.serial, made.error) == (5, 0)
    assert made.attr is not None
    ino = made.attr.ino
    assert meta.getattr(ino, 0) == tuple(made.attr)
    assert (made.attr.writer, made.attr.finished, made.attr.uid, made.attr.mtime) == (1, 0, 7, 100)
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == errno.EEXIST
    done = line.ask(CLOSED, ino, attr=made.attr._replace(size=5, blocks=8, mtime=200, ctime=200))
    assert done.attr is not None
    assert (done.attr.size, done.attr.finished, done.attr.writer) == (5, 1, -1)
    assert meta.holders(ino) == (1,)
    found = line.ask(LOOKUP, ROOT, name=name)
    assert found.attr == done.attr
    assert line.ask(OPEN, ino).flags & HOLDS
    gone = line.ask(UNLINK, ROOT, name=name, now=300)
    assert gone.error == 0
    assert gone.flags & GONE
    assert meta.counts()["inodes"] == 0


def test_who_asks_is_told_of_changes_afterwards(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    assert line.ask(LOOKUP, ROOT, name=name).error == 0
    assert meta.setattr(ino, 1, tuple(record(mode=0o600)), 2, 0)[1] == (1,)
    assert line.ask(GETATTR, ino).error == 0
    assert meta.setattr(ino, 1, tuple(record(mode=0o640)), 3, 0)[1] == (1,)


def test_links_and_attributes(cluster: Cluster, line: Line) -> None:
    name = cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(mode=stat.S_IFLNK | 0o777), value=b"to/somewhere")
    assert made.attr is not None
    assert line.ask(READLINK, made.attr.ino).rest == b"to/somewhere"
    cluster.nodes[0].meta.set_xattr(made.attr.ino, b"user.a", b"value", 0, 1)
    assert line.ask(GET_XATTR, made.attr.ino, name=b"user.a").rest == b"value"
    assert line.ask(GET_XATTR, made.attr.ino, name=b"security.capability").error == errno.ENODATA
    cluster.nodes[0].meta.set_xattr(made.attr.ino, b"user.long", bytes(20000), 0, 1)
    assert line.ask(GET_XATTR, made.attr.ino, name=b"user.long").error == META_BUSY


def mask(bits: int) -> bytes:
    return bits.to_bytes(4, "little")


def test_attributes_are_set_as_by_the_long_way(cluster: Cluster, line: Line) -> None:
    """Whatever is asked, of files of all kinds: the record afterwards equals its twin after Meta.setattr."""
    meta, twin = cluster.nodes[0].meta, Meta(0)
    twin.set_table([0, 1] * 4, 1)
    rng = random.Random(7)
    for number in range(200):
        name = cluster.name_at(0, f"{number}-")
        kind = rng.choice((stat.S_IFREG, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO))
        link = b"x" if kind == stat.S_IFLNK else None
        made = record(mode=kind | 0o2755, **({"writer": 1, "finished": 0} if kind == stat.S_IFREG and rng.random() < 0.5 else {}))
        inodes = [each.create(ROOT, name, 1, 1, link, tuple(made))[0] for each in (meta, twin)]
        wanted = record(mode=rng.randrange(0o10000), uid=rng.randrange(9), gid=rng.randrange(9), atime=rng.randrange(99), mtime=5)
        bits = rng.choice((META_SET_MODE, META_SET_UID, META_SET_GID, META_SET_ATIME | META_SET_MTIME, META_SET_MTIME, 0b110111))
        answer = line.ask(SETATTR, inodes[0], attr=wanted, value=mask(bits), now=100 + number)
        out, _ = twin.setattr(inodes[1], bits, tuple(wanted), 100 + number, 1)
        assert answer.error == 0
        assert answer.attr == Attr(*out)._replace(ino=inodes[0])
        assert meta.getattr(inodes[0], 0)[1:] == twin.getattr(inodes[1], 0)[1:]


def test_attributes_that_concern_others_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    wanted = record(mode=0o600, mtime=5)
    before = meta.getattr(ino, 0)
    assert line.ask(SETATTR, ino, attr=wanted, value=mask(META_SET_MTIME)).error == META_BUSY, "node 0 has a copy, and that has times"
    assert line.ask(SETATTR, ino, attr=wanted, value=mask(META_SET_SIZE)).error == META_BUSY
    assert line.ask(SETATTR, ROOT, attr=wanted, value=mask(META_SET_MODE)).error in (META_BUSY, META_NOT_MINE)
    assert line.ask(SETATTR, ino + 1, attr=wanted, value=mask(META_SET_MODE)).error == META_BUSY, "there is none"
    assert line.ask(SETATTR, ino, attr=wanted, value=b"abc").error == errno.EINVAL
    assert line.ask(SETATTR, ino, value=mask(META_SET_MODE)).error == errno.EINVAL
    assert meta.getattr(ino, 0) == before
    assert line.ask(SETATTR, ino, attr=wanted, value=mask(META_SET_MODE)).error == 0
    meta.getattr(ino, 2)
    assert line.ask(SETATTR, ino, attr=wanted, value=mask(META_SET_MODE)).error == META_BUSY, "node 2 must be told"
    written = meta.create(ROOT, cluster.name_at(0, "w"), 1, 0, None, tuple(record(writer=0, finished=0)))[0]
    assert line.ask(SETATTR, written, attr=wanted, value=mask(META_SET_MODE)).error == META_BUSY, "its writer knows more of it"


def test_empty_files_are_held_at_once(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    assert line.ask(OPEN, ino).flags & HOLDS
    assert meta.holders(ino) == (0, 1)


def test_a_lost_file_is_not_opened_at_once_where_its_older_content_lies(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record(writer=1, finished=0)))[0]
    meta.wrote(ino, 1, tuple(record(size=9)))
    assert line.ask(OPEN, ino).flags & HOLDS
    meta.open(ino, 2, True)
    meta.forget_node(2)
    answer = line.ask(OPEN, ino)
    assert meta.holders(ino) == (1,)
    assert answer.attr is not None
    assert answer.attr.finished == LOST
    assert not answer.flags & (HOLDS | SMALL)


def test_contents_elsewhere_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record(writer=0, finished=0)))[0]
    meta.wrote(ino, 0, tuple(record(size=9)))
    answer = line.ask(OPEN, ino)
    assert answer.error == 0
    assert not answer.flags & HOLDS
    assert meta.holders(ino) == (0,)


def test_another_partition_takes_the_long_way(cluster: Cluster, line: Line) -> None:
    name = cluster.name_at(1)
    for op in (LOOKUP, UNLINK):
        assert line.ask(op, ROOT, name=name).error == META_NOT_MINE
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == META_NOT_MINE
    meta = cluster.nodes[0].meta
    partition = meta.name_partition(ROOT, cluster.name_at(0))
    meta.set_moving([partition], True)
    assert line.ask(LOOKUP, ROOT, name=cluster.name_at(0)).error == META_NOT_MINE


def test_third_nodes_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(writer=1, finished=0))
    assert made.attr is not None
    meta.lookup(ROOT, name, 2)  # node 2 has it in its cache from now on
    assert line.ask(CLOSED, made.attr.ino, attr=made.attr).error == META_BUSY
    answer = line.ask(UNLINK, ROOT, name=name)
    assert (answer.error, answer.flags, answer.rest[:4]) == (0, SMALL, b"\2\0\0\0"), "node 2 is to be asked first"
    assert meta.getattr(made.attr.ino, 0)[9] == 1, "and nothing was changed"
    meta.getattr(ROOT, 2)
    assert line.ask(TOUCH, ROOT, now=5).error == META_BUSY


def test_locked_names_and_unlinked_files_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(writer=1, finished=0))
    assert made.attr is not None
    meta.lock(ROOT, name, 1 << 40)
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY
    meta.unlock(ROOT, name, 1 << 40)
    assert line.ask(UNLINK, ROOT, name=name).error == 0
    assert line.ask(CLOSED, made.attr.ino).error == META_BUSY, "with its last user its data goes, which many must be told"


def test_directories_nobody_has_heard_of_take_the_long_way(cluster: Cluster, line: Line) -> None:
    unknown = 5 << 40 | 3
    meta = cluster.nodes[0].meta
    name = next(n for i in range(1000) if meta.owner(meta.name_partition(unknown, n := b"%d" % i)) == 0)
    assert line.ask(LOOKUP, unknown, name=name).error == META_BUSY
    assert line.ask(CREATE, unknown, name=name, attr=record()).error == META_BUSY


def test_only_for_oneself(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    assert line.ask(CREATE, ROOT, name=name, attr=record(writer=3, finished=0)).error == errno.EINVAL
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record(writer=0, finished=0)))[0]
    done = line.ask(CLOSED, ino, attr=record(size=77))
    assert done.attr is not None
    assert (done.attr.writer, done.attr.size) == (0, 0), "it is not its writer"


def test_times_set_while_it_was_written_stand(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(writer=1, finished=0), now=10)
    assert made.attr is not None
    meta.setattr(made.attr.ino, 16 | 32, tuple(record(atime=3, mtime=4)), 50, 1)
    done = line.ask(CLOSED, made.attr.ino, attr=made.attr._replace(size=1, mtime=40))
    assert done.attr is not None
    assert (done.attr.atime, done.attr.mtime) == (3, 4)


def test_touch(cluster: Cluster, line: Line) -> None:
    assert line.ask(TOUCH, ROOT, now=1 << 62).error == 0
    assert cluster.nodes[0].meta.dir_get(ROOT)[0][14] == 1 << 62


def test_shy_nodes_change_nothing(cluster: Cluster, line: Line) -> None:
    name = cluster.name_at(0)
    cluster.nodes[0].io.set_shy(True)
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == META_BUSY
    assert line.ask(LOOKUP, ROOT, name=name).error == errno.ENOENT
    cluster.nodes[0].io.set_shy(False)
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == 0


def test_many_at_once_are_answered_in_their_order(cluster: Cluster, line: Line) -> None:
    names = [n for i in range(2000) if cluster.nodes[0].meta.owner(cluster.nodes[0].meta.name_partition(ROOT, n := b"m%d" % i)) == 0]
    sender = threading.Thread(
        target=lambda: line.socket.sendall(b"".join(question(CREATE, ROOT, i, name=name, attr=record()) for i, name in enumerate(names)))
    )
    sender.start()
    answers = [line.hear() for _ in names]
    sender.join()
    assert [answer.serial for answer in answers] == list(range(len(names)))
    assert not any(answer.error for answer in answers)
    assert cluster.nodes[0].meta.counts()["entries"] == len(names)


# ── bad bytes ──────────────────────────────────────────────────────────────────────────────────────


def test_strangers_stay_outside(cluster: Cluster) -> None:
    for node, key, status in ((1, bytes(32), WRONG_KEY), (5, KEY, NOT_MEMBER), (CLIENT, KEY, NOT_MEMBER)):
        stranger = Line(cluster.nodes[0].io.port, node, key=key)
        stranger.close()
        assert stranger.status == status


@pytest.mark.parametrize("seed", range(40))
def test_garbage_ends_the_connection_and_nothing_else(cluster: Cluster, seed: int) -> None:
    random.seed(seed)
    name = cluster.name_at(0)
    good = question(CREATE, ROOT, 1, name=name, attr=record(mode=stat.S_IFIFO | 0o600))
    bad = bytearray(good if seed % 2 else random.randbytes(random.randrange(1, 200)))
    for _ in range(seed % 7):
        bad[random.randrange(len(bad))] = random.randrange(256)
    one = Line(cluster.nodes[0].io.port, 1)
    one.socket.sendall(bad)
    one.socket.shutdown(socket.SHUT_WR)
    while one.socket.recv(4096):
        pass
    one.close()
    two = Line(cluster.nodes[0].io.port, 1)
    assert two.ask(LOOKUP, ROOT, name=b"x" + name).error in (errno.ENOENT, META_NOT_MINE)
    two.close()
    cluster.nodes[0].meta.check()


def test_a_question_cut_anywhere_is_none(cluster: Cluster) -> None:
    good = question(CREATE, ROOT, 1, name=cluster.name_at(0), attr=record())
    for end in range(1, len(good), 3):
        one = Line(cluster.nodes[0].io.port, 1)
        one.socket.sendall(good[:end])
        one.close()
    time.sleep(0.05)
    assert cluster.nodes[0].meta.counts()["entries"] == 0


def test_a_question_in_pieces_is_one(cluster: Cluster, line: Line) -> None:
    for byte in question(CREATE, ROOT, 8, name=cluster.name_at(0), attr=record()):
        line.socket.sendall(bytes([byte]))
        time.sleep(0.0005)
    assert line.hear()[:2] == (8, 0)
