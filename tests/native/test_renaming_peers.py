"""Renaming from C to C (fuse_rename.c, fsmeta_rename.c): the old name is locked, the new one made, the old one removed."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer_meta_nodes import FILE, HOLDS, META_BUSY, PARTITIONS, ROOT, SMALL, UNLINK, Cluster, Kernel, Line, connected, exists, record
from test_small_files import open_to_read, read
from test_sparing_peers import BYTES, read_elsewhere
from waiting import until

from amfs.vocabulary.attr import Attr

SPARE, RENAME, INSERT, RENAMED = 20, 21, 22, 23
USED = 8
OWNER = 2 << 40 | 1 << 39 | 5  # of node 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    it = Cluster(tmp_path, 4)
    yield it
    it.stop()


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    """Node 1 asks node 0."""
    it = Line(cluster.nodes[0].io.port, 1, server=0)
    yield it
    it.close()


def file(cluster: Cluster, node: int, end: str = "") -> tuple[bytes, int]:
    meta, name = cluster.nodes[node].meta, cluster.name_at(node, end or "file")
    ino: int = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    return name, ino


def links(cluster: Cluster, node: int, ino: int) -> int:
    return Attr(*cluster.nodes[node].meta.getattr(ino, node)).nlink


def ends(ino: int, owner: int = OWNER) -> bytes:
    return struct.pack("<QQ", owner, ino)


def begin(line: Line, name: bytes, owner: int = OWNER) -> tuple[int, Attr | None]:
    answer = line.ask(RENAME, ROOT, name=name, value=struct.pack("<Q", owner), now=5)
    return answer.error, answer.attr


def test_the_record_counts_both_names_until_the_old_one_goes(cluster: Cluster, line: Line) -> None:
    name, ino = file(cluster, 0)
    error, attr = begin(line, name)
    assert attr is not None
    assert (error, attr.ino, attr.nlink) == (0, ino, 2)
    assert line.ask(UNLINK, ROOT, name=name, now=6).error == META_BUSY  # locked
    assert begin(line, name, OWNER + 1)[0] == META_BUSY
    assert line.ask(RENAMED, ROOT, name=name, value=ends(ino, OWNER + 1), now=7).error == META_BUSY
    answer = line.ask(RENAMED, ROOT, name=name, value=ends(ino), now=7)
    assert answer.attr is not None
    assert (answer.error, answer.attr.nlink, answer.attr.ctime) == (0, 1, 7)
    with pytest.raises(FileNotFoundError):
        cluster.nodes[0].meta.lookup(ROOT, name, 0)
    cluster.nodes[0].meta.create(ROOT, name, 1, 0, None, tuple(record()))  # the lock has gone, too


def test_a_lock_is_of_the_asker(cluster: Cluster, line: Line) -> None:
    """It goes when that node dies."""
    name, ino = file(cluster, 0)
    assert begin(line, name, 3 << 40 | 5)[0] == errno.EINVAL
    assert begin(line, name)[0] == 0
    cluster.nodes[0].meta.unlock_node(1)
    assert cluster.nodes[0].meta.unlink(ROOT, name, 6)[1] is False
    assert links(cluster, 0, ino) == 1


def spared(line: Line, name: bytes, before: bytes = b"") -> bytes:
    """The message to the shard after the node that it names was asked, and those before."""
    answer = line.ask(RENAME, ROOT, name=name, value=struct.pack("<Q", OWNER) + before)
    assert (answer.error, answer.flags, len(answer.rest)) == (0, SMALL, 20)
    return before + answer.rest[:12]


def test_third_nodes_forget_it_one_after_the_other(cluster: Cluster, line: Line) -> None:
    name, ino = file(cluster, 0)
    meta = cluster.nodes[0].meta
    for node in (2, 3):
        meta.lookup(ROOT, name, node)
    value = spared(line, name, spared(line, name))
    assert [value[at : at + 4] for at in (0, 12)] == [struct.pack("<I", node) for node in (2, 3)]
    assert links(cluster, 0, ino) == 1
    answer = line.ask(RENAME, ROOT, name=name, value=struct.pack("<Q", OWNER) + value)
    assert answer.attr is not None
    assert (answer.error, answer.attr.nlink) == (0, 2)
    assert line.ask(RENAMED, ROOT, name=name, value=ends(ino), now=7).error == 0  # nobody is left who knows it


@pytest.mark.parametrize("asks", ["lookup", "getattr", "table"])
def test_a_third_node_that_has_asked_since_takes_the_long_way(cluster: Cluster, line: Line, asks: str) -> None:
    name, ino = file(cluster, 0)
    meta = cluster.nodes[0].meta
    meta.lookup(ROOT, name, 2)
    value = spared(line, name)
    if asks == "lookup":
        meta.lookup(ROOT, name, 2)
    elif asks == "getattr":
        meta.getattr(ino, 2)
    else:
        cluster.set_table([part % 4 for part in range(PARTITIONS)])
    assert line.ask(RENAME, ROOT, name=name, value=struct.pack("<Q", OWNER) + value).error == META_BUSY
    assert links(cluster, 0, ino) == 1


def test_a_file_that_a_third_node_writes_takes_the_long_way(cluster: Cluster, line: Line) -> None:
    name, ino = file(cluster, 0)
    cluster.nodes[0].meta.open(ino, 2, True)
    assert begin(line, name)[0] == META_BUSY
    assert links(cluster, 0, ino) == 1


def test_what_is_no_owner_and_nodes(cluster: Cluster, line: Line) -> None:
    name, _ = file(cluster, 0)
    for value in (b"x", bytes(8 + 1), bytes(8 + 5 * 12)):
        assert line.ask(RENAME, ROOT, name=name, value=value).error == errno.EINVAL


def test_who_is_asked_to_forget_may_use_it(cluster: Cluster, line: Line) -> None:
    node, ino = cluster.nodes[0], 2 << 40 | 5
    node.meta.cache(tuple(record(ino=ino, size=9)), True)
    node.meta.claim(ino, True)
    where = struct.pack("<Q", ROOT)
    assert line.ask(SPARE, ino, name=b"n", value=where).error == META_BUSY
    assert line.ask(SPARE, ino, name=b"n", value=where, flags=USED).error == 0
    with pytest.raises(FileNotFoundError):
        node.meta.cached(ino)


def test_a_third_node_that_looks_in_between_takes_the_long_way(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    other, number = file(cluster, 0, "other")
    assert begin(line, other)[0] == 0
    meta.lookup(ROOT, other, 3)
    assert line.ask(RENAMED, ROOT, name=other, value=ends(number), now=7).error == META_BUSY
    assert links(cluster, 0, number) == 2
    meta.lookup(ROOT, other, 3)


def test_a_record_elsewhere_and_directories_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0, "elsewhere")
    _, ino = file(cluster, 2)
    meta.insert(ROOT, name, 0, ino, FILE & 0o170000, False)
    assert begin(line, name)[0] in (META_BUSY, 1001)
    place = cluster.name_at(0, "directory")
    meta.insert(ROOT, place, 0, 1 << 41 | 7, 0o040000, False)
    assert begin(line, place)[0] == META_BUSY
    assert line.ask(INSERT, ROOT, name=place, value=struct.pack("<QI", ino, 0o100000), flags=HOLDS).error == errno.EEXIST


def test_a_new_name_is_made_or_taken(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    name, old = cluster.name_at(0, "new"), file(cluster, 0)
    value = struct.pack("<QI", 7 << 40 | 9, 0o100000)
    answer = line.ask(INSERT, ROOT, name=name, value=value)
    assert answer.attr is not None
    assert (answer.error, answer.attr.ino) == (0, 0)
    assert meta.lookup(ROOT, name, 0)[0] == 7 << 40 | 9
    assert line.ask(INSERT, ROOT, name=name, value=value, flags=HOLDS).error == errno.EEXIST  # it is this file's
    assert line.ask(INSERT, ROOT, name=old[0], value=value).error == errno.EEXIST
    meta.lookup(ROOT, old[0], 2)
    assert line.ask(INSERT, ROOT, name=old[0], value=value, flags=HOLDS).error == META_BUSY  # node 2 knows it
    name, ino = file(cluster, 0, "taken")
    answer = line.ask(INSERT, ROOT, name=name, value=value, flags=HOLDS)
    assert answer.attr is not None
    assert (answer.error, answer.attr.ino, answer.attr.mode) == (0, ino, 0o100000)
    assert meta.lookup(ROOT, name, 0)[0] == 7 << 40 | 9
    assert links(cluster, 0, ino) == 1  # until its shard is told


# ── mounts: at node 0 ────────────────────────────────────────────────────────────────────────────────


def mounted(cluster: Cluster, number: int = 0) -> Kernel:
    kernel = cluster.mount(number)
    for other in range(4):
        if other != number:
            connected(kernel, cluster.nodes[number], cluster.name_at(other, "x"))
    kernel.asked()
    return kernel


def send(kernel: Kernel, name: bytes, to: bytes) -> int:
    return kernel.send(12, ROOT, struct.pack("<Q", ROOT) + name + b"\0" + to + b"\0")


@pytest.mark.parametrize("places", [(0, 2), (2, 0), (2, 3), (2, 2)])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_mount_renames(cluster: Cluster, places: tuple[int, int], replaces: bool) -> None:
    kernel = mounted(cluster)
    name, ino = file(cluster, places[0])
    to, old = file(cluster, places[1], "to") if replaces else (cluster.name_at(places[1], "to"), 0)
    assert kernel.wait(send(kernel, name, to)) == (0, b"")
    assert cluster.nodes[places[1]].meta.lookup(ROOT, to, 0)[0] == ino
    with pytest.raises(FileNotFoundError):
        cluster.nodes[places[0]].meta.lookup(ROOT, name, 0)
    assert links(cluster, places[0], ino) == 1
    if replaces and places[1]:
        assert not exists(cluster.nodes[places[1]].meta, old)
    assert not [op for op in kernel.asked() if op not in ("touched", "closed")]


@pytest.mark.parametrize("uses", [False, True])
@pytest.mark.parametrize("others", [(1,), (1, 3)])
@pytest.mark.parametrize("places", [(0, 0), (0, 2), (2, 0), (2, 3)])
def test_a_mount_renames_what_other_mounts_have_read(
    cluster: Cluster, places: tuple[int, int], others: tuple[int, ...], uses: bool
) -> None:
    kernel, readers = mounted(cluster), [mounted(cluster, other) for other in others]
    name, ino = read_elsewhere(cluster, kernel, readers, places[0])
    used = [open_to_read(reader, ino) for reader in readers] if uses else []
    for one in (kernel, *readers):
        one.asked()
    to = cluster.name_at(places[1], "to")
    assert kernel.wait(send(kernel, name, to)) == (0, b"")
    for other, reader in zip(others, readers, strict=True):
        assert reader.lookup(name)[0] == errno.ENOENT
        assert other == places[1] or reader.lookup(to)[0] == 0  # a name that is here, of a record elsewhere, its poll loop looks up
        assert read(reader, ino) == BYTES
    assert links(cluster, places[0], ino) == 1
    assert not [op for one in (kernel, *readers) for op in one.asked() if op not in ("touched", "closed")]
    del used


def test_a_third_node_that_is_gone_takes_the_long_way(cluster: Cluster) -> None:
    kernel, reader = mounted(cluster), mounted(cluster, 1)
    name, ino = read_elsewhere(cluster, kernel, [reader], 2)
    cluster.nodes[1].io.forget_peer(0)
    cluster.nodes[0].io.forget_peer(1)
    unique = send(kernel, name, cluster.name_at(3, "to"))
    assert "rename" in kernel.until_asked()
    assert links(cluster, 2, ino) == 1
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0


def test_what_is_refused_in_the_middle_is_left_to_the_poll_loop(cluster: Cluster) -> None:
    kernel = mounted(cluster)
    name, ino = file(cluster, 2)
    to = cluster.name_at(3, "to")
    cluster.nodes[3].meta.lock(ROOT, to, 4 << 40 | 1)
    unique = send(kernel, name, to)
    requests: list[tuple[object, ...]] = []
    until(lambda: requests.extend(each for each in kernel.fuse.requests() if each[1] == "renaming") or requests, "the loop is not asked")
    arguments = requests[0][2]
    assert isinstance(arguments, tuple)
    assert arguments[:6] == (ROOT, name, ROOT, to, 0, ino)
    assert arguments[6] >> 40 == 1  # a lock of this node
    assert arguments[7:] == (0, 0)
    assert links(cluster, 2, ino) == 2
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0
