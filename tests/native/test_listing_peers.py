"""Directories of several nodes, read from C to C (fuse_list_peers.c): every name once, and what is left to the poll loop."""

from __future__ import annotations

import errno
import random
import select
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from data_handshake import exactly
from peer_meta_nodes import ANSWER, GUARD_S, META_NOT_MINE, PARTITIONS, QUESTION, ROOT, Cluster, Kernel, Line, connected, lied_to, record

OPEN_DIR, READDIR, READDIRPLUS = 27, 28, 44
LIST, MORE = 18, 128
END = (0x7FFF << 48) + 2


class Entry(NamedTuple):
    ino: int
    offset: int
    type: int
    name: bytes


def page(kernel: Kernel, offset: int, room: int, *, plus: bool = False, dir: int = ROOT) -> tuple[int, list[Entry]]:
    """(errno, entries) as the kernel reads them."""
    body = struct.pack("<QQIIQII", 0, offset, room, 0, 0, 0, 0)
    error, data = kernel.call(READDIRPLUS if plus else READDIR, dir, body)
    assert len(data) <= room
    entries, at = [], 0
    while at < len(data):
        at += 128 if plus else 0
        ino, after, length, type = struct.unpack_from("<QQII", data, at)
        entries.append(Entry(ino, after, type, data[at + 24 : at + 24 + length]))
        at += (24 + length + 7) // 8 * 8
    return error, entries


def listing(kernel: Kernel, room: int, *, plus: bool = False) -> list[Entry]:
    found: list[Entry] = []
    while True:
        error, entries = page(kernel, found[-1].offset if found else 0, room, plus=plus)
        assert error == 0
        if not entries:
            return found
        found += entries


@pytest.fixture(params=[2, 3, 11])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Eleven: more than are asked side by side. Some of them have no partition."""
    it = Cluster(tmp_path, request.param)
    yield it
    it.stop()


def mounted(cluster: Cluster, number: int = 0) -> Kernel:
    kernel = cluster.mount(number)
    for other in cluster.nodes:
        if other.number != number and other.number < PARTITIONS:
            connected(kernel, cluster.nodes[number], cluster.name_at(other.number, "nothing"))
    kernel.asked()
    return kernel


def fill(cluster: Cluster, count: int, length: int = 0) -> set[bytes]:
    names = {f"{i}-".encode() + b"n" * length for i in range(count)}
    for name in names:
        meta = cluster.nodes[0].meta
        owner = cluster.nodes[meta.owner(meta.name_partition(ROOT, name))].meta
        if name.startswith(b"7"):
            owner.create(ROOT, name, 1, 0, b"target", record(mode=stat.S_IFLNK | 0o777))
        else:
            owner.create(ROOT, name, 1, 0, None, record())
    return names


@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize(
    ("count", "room", "length"), [(0, 4096, 0), (1, 4096, 0), (5, 4096, 200), (300, 4096, 3), (3000, 32768, 0), (60, 512, 200)]
)
def test_every_name_comes_once(nodes: Cluster, count: int, room: int, length: int, plus: bool) -> None:
    names = fill(nodes, count, length)
    kernel = mounted(nodes)
    found = listing(kernel, room, plus=plus)
    assert [entry.name for entry in found[:2]] == [b".", b".."]
    assert sorted(entry.name for entry in found[2:]) == sorted(names)
    for entry in found[2:]:
        assert entry.type == (stat.S_IFLNK if entry.name.startswith(b"7") else stat.S_IFREG) >> 12
    assert not kernel.asked(), "the poll loop was asked"


def test_a_small_directory_is_asked_for_once(cluster: Cluster) -> None:
    fill(cluster, 20)
    kernel = mounted(cluster)
    before = cluster.nodes[0].io.questions[0]
    assert len(listing(kernel, 4096)) == 22
    assert cluster.nodes[0].io.questions[0] - before == 1, "that there is nothing more is known"
    assert page(kernel, END, 4096) == (0, [])


def test_names_that_come_and_go_do_not_move_the_others(nodes: Cluster) -> None:
    stay = fill(nodes, 400)
    kernel, owners = mounted(nodes), nodes.nodes
    meta, chance = owners[0].meta, random.Random(1)
    gone: set[bytes] = set()
    new = 0
    found: list[Entry] = []
    while True:
        error, entries = page(kernel, found[-1].offset if found else 0, 600)
        assert error == 0
        if not entries:
            break
        found += entries
        for name in chance.sample(sorted(stay - gone), 3):
            owners[meta.owner(meta.name_partition(ROOT, name))].meta.unlink(ROOT, name, 1)
            gone.add(name)
        name, new = b"new%d" % new, new + 1
        owners[meta.owner(meta.name_partition(ROOT, name))].meta.create(ROOT, name, 1, 0, None, record())
    seen = [entry.name for entry in found]
    assert len(set(seen)) == len(seen)
    assert stay - gone <= set(seen)


def read_by_either_way(kernel: Kernel) -> bool:
    """A page; True: it came to the poll loop, which answers EIO."""
    unique = kernel.send(READDIR, ROOT, struct.pack("<QQIIQII", 0, 0, 4096, 0, 0, 0, 0))
    slowly, end = False, time.monotonic() + GUARD_S
    while not select.select([kernel.socket], [], [], 0.005)[0]:
        assert time.monotonic() < end, "the request hangs"
        for request in kernel.fuse.requests():
            slowly = slowly or request[1] == "list"
            kernel.fuse.reply_error(request[0], errno.EIO)
    assert kernel.wait(unique)[0] == (errno.EIO if slowly else 0)
    return slowly


def test_partitions_on_their_way_and_old_tables_are_left_to_the_poll_loop(cluster: Cluster) -> None:
    here, there = cluster.nodes
    fill(cluster, 20)
    kernel = mounted(cluster)
    owners = [p % 2 for p in range(PARTITIONS)]
    assert not read_by_either_way(kernel)
    for node in (here, there):
        node.meta.set_moving([3], True)
        assert read_by_either_way(kernel)
        node.meta.set_moving([3], False)
        assert not read_by_either_way(kernel)
    there.meta.set_table(owners, cluster.version + 1)
    assert read_by_either_way(kernel)
    here.meta.set_table(owners, cluster.version + 1)
    assert not read_by_either_way(kernel)


def test_a_shard_says_what_it_has_and_whether_there_is_more(cluster: Cluster, line: Line) -> None:
    here = cluster.nodes[0]
    names = {name for name in fill(cluster, 400, 20) if here.meta.owner(here.meta.name_partition(ROOT, name)) == 0}
    found: list[bytes] = []
    cursor, flags = 0, MORE
    while flags & MORE:
        answer = line.ask(LIST, ROOT, now=cluster.version, value=struct.pack("<Q", cursor))
        assert answer.error == 0
        flags, at = answer.flags, 0
        while at < len(answer.rest):
            _, cursor, _, length = struct.unpack_from("<QQBB", answer.rest, at)
            found.append(answer.rest[at + 18 : at + 18 + length])
            at += 18 + length
    assert sorted(found) == sorted(names)
    assert line.ask(LIST, ROOT, now=cluster.version + 1, value=bytes(8)).error == META_NOT_MINE
    assert line.ask(LIST, ROOT, now=cluster.version).error == errno.EINVAL
    assert line.ask(LIST, 999, now=cluster.version, value=bytes(8)).rest == b""


@pytest.mark.parametrize(
    ("flags", "entries"),
    [
        pytest.param(MORE, b"", id="more, and nothing"),
        pytest.param(0, bytes(5), id="half a head"),
        pytest.param(0, struct.pack("<QQBB", 5, 1, 8, 0), id="no name"),
        pytest.param(0, struct.pack("<QQBB", 5, 1, 8, 9) + b"short", id="half a name"),
    ],
)
def test_a_shard_that_answers_nonsense_is_not_believed(tmp_path: Path, flags: int, entries: bytes) -> None:
    def act(line: socket.socket) -> None:
        while True:
            try:
                size, serial, op, *_ = QUESTION.unpack(exactly(line, QUESTION.size))
                exactly(line, size - QUESTION.size)
            except (EOFError, OSError):
                return
            rest = entries if op == LIST else b""
            error = 0 if op == LIST else errno.ENOENT
            line.sendall(ANSWER.pack(ANSWER.size + len(rest), serial, error, flags if op == LIST else 0) + rest)

    with lied_to(tmp_path, act, 5000) as cluster:
        kernel = cluster.mount(0)
        connected(kernel, cluster.nodes[0], cluster.name_at(1))
        assert read_by_either_way(kernel)
