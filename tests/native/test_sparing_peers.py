"""Files that a third node knows, removed from C to C (fuse_uncount.c): that node forgets them first, and says that it uses none."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer_meta_nodes import (
    GONE,
    HOLDS,
    META_BUSY,
    PARTITIONS,
    ROOT,
    SMALL,
    UNCOUNT,
    UNLINK,
    Answer,
    Cluster,
    Kernel,
    Line,
    connected,
    exists,
    record,
)
from test_small_files import open_to_read, read, write
from waiting import until

from amfs.vocabulary.attr import Attr

SPARE = 20
BYTES = b"hello" * 100


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


def mounted(cluster: Cluster, number: int) -> Kernel:
    kernel = cluster.mount(number)
    for other in range(4):
        if other != number:
            connected(kernel, cluster.nodes[number], cluster.name_at(other, "x"))
    kernel.asked()
    return kernel


def spared(answer: Answer, node: int) -> bytes:
    """The message to the owner after that node was asked."""
    assert (answer.error, answer.flags, len(answer.rest)) == (0, SMALL, 20)
    assert answer.rest[:4] == struct.pack("<I", node)
    return answer.rest[:12]


# ── mounts: at node 0, and at node 1, which reads; the file is node 2's ───────────────────────────────


def read_elsewhere(cluster: Cluster, writer: Kernel, readers: list[Kernel], owner: int) -> tuple[bytes, int]:
    name = cluster.name_at(owner)
    ino = write(writer, cluster.nodes[owner], name, BYTES)
    for reader in readers:
        assert reader.lookup(name)[0] == 0
        assert read(reader, ino) == BYTES
    until(lambda: len(cluster.nodes[owner].meta.holders(ino)) == 1 + len(readers), "it is not recorded who has it")
    # A mount answers the kernel's last close before it has told its node.
    until(lambda: all(node.meta.direct_uses(ino) == (0, 0, False) for node in cluster.nodes), "a node still takes the file for open")
    return name, ino


def rename(cluster: Cluster, name: bytes, to: bytes, ino: int) -> None:
    """As the poll loops do it."""
    meta = cluster.nodes[0].meta
    old, new = (cluster.nodes[meta.owner(meta.name_partition(ROOT, one))].meta for one in (name, to))
    new.insert(ROOT, to, 0, ino, 0o100000, False)
    new.lookup(ROOT, to, 0)
    old.remove(ROOT, name, 0, ino)


@pytest.mark.parametrize("owner", [0, 2])
@pytest.mark.parametrize("others", [(1,), (1, 3)])
def test_nodes_that_have_read_a_file_forget_it_and_its_content_goes_everywhere(
    cluster: Cluster, others: tuple[int, ...], owner: int
) -> None:
    writer, readers = mounted(cluster, 0), [mounted(cluster, other) for other in others]
    name, ino = read_elsewhere(cluster, writer, readers, owner)
    for reader in readers:
        reader.asked()
    writer.asked()
    assert writer.unlink(name) == 0
    for other in others:
        with pytest.raises(FileNotFoundError):
            cluster.nodes[other].meta.cached(ino)
    if owner == 0:  # a file that its own kernel may still use is kept; then the poll loop has the others drop it
        assert Attr(*cluster.nodes[0].meta.getattr(ino, 0)).nlink == 0
    else:
        assert not exists(cluster.nodes[owner].meta, ino)
        until(lambda: not any(node.parts() for node in cluster.nodes), "its content stays")
    assert all(reader.lookup(name)[0] == errno.ENOENT for reader in readers)
    assert not [op for kernel in (writer, *readers) for op in kernel.asked() if op not in ("touched", "closed")]


@pytest.mark.parametrize("place", [(3, 2), (0, 2), (2, 0)])  # of the name, of the record
def test_so_does_a_renamed_file(cluster: Cluster, place: tuple[int, int]) -> None:
    writer, reader = mounted(cluster, 0), mounted(cluster, 1)
    first, ino = read_elsewhere(cluster, writer, [reader], place[1])
    name = cluster.name_at(place[0], "renamed")
    rename(cluster, first, name, ino)
    writer.asked()
    assert writer.unlink(name) == 0
    assert not [op for op in writer.asked() if op not in ("touched", "closed")]
    if place[1] != 0:  # a file that its own kernel may still use is kept until that has forgotten it
        assert not exists(cluster.nodes[place[1]].meta, ino)
        until(lambda: not any(node.parts() for node in cluster.nodes), "its content stays")


def test_another_name_keeps_the_content_on_all_nodes(cluster: Cluster) -> None:
    writer, reader = mounted(cluster, 0), mounted(cluster, 1)
    name, ino = read_elsewhere(cluster, writer, [reader], 2)
    cluster.nodes[2].meta.link(ino, 1, 5, 0)
    assert writer.unlink(name) == 0
    assert Attr(*cluster.nodes[2].meta.getattr(ino, 2)).nlink == 1
    assert cluster.nodes[2].meta.holders(ino) == (0, 1)
    assert [node.parts() for node in cluster.nodes] == [1, 1, 0, 0]


def use(cluster: Cluster, reader: Kernel, ino: int, how: str) -> object:
    """In use as long as this is kept."""
    if how == "mount":
        return open_to_read(reader, ino)
    if how == "client":
        return cluster.nodes[1].meta.claim(ino, True)
    return cluster.nodes[1].io.open(ino, 0, size=len(BYTES))


@pytest.mark.parametrize("how", ["mount", "client", "handle"])
def test_a_file_that_a_third_node_uses_takes_the_long_way(cluster: Cluster, how: str) -> None:
    writer, reader = mounted(cluster, 0), mounted(cluster, 1)
    name, ino = read_elsewhere(cluster, writer, [reader], 2)
    used = use(cluster, reader, ino, how)
    unique = writer.send(10, ROOT, name + b"\0")
    assert "unlink" in writer.until_asked()
    assert Attr(*cluster.nodes[2].meta.getattr(ino, 2)).nlink == 1
    assert cluster.nodes[1].parts() == 1
    writer.fuse.reply_error(unique, 0)
    assert writer.wait(unique)[0] == 0
    del used


def test_a_third_node_that_is_gone_takes_the_long_way(cluster: Cluster) -> None:
    writer, reader = mounted(cluster, 0), mounted(cluster, 1)
    name, ino = read_elsewhere(cluster, writer, [reader], 2)
    cluster.nodes[1].io.forget_peer(0)
    cluster.nodes[0].io.forget_peer(1)
    unique = writer.send(10, ROOT, name + b"\0")
    assert "unlink" in writer.until_asked()
    assert Attr(*cluster.nodes[2].meta.getattr(ino, 2)).nlink == 1
    writer.fuse.reply_error(unique, 0)
    assert writer.wait(unique)[0] == 0


# ── what a shard answers, and a third node ───────────────────────────────────────────────────────────


def watched(cluster: Cluster, *nodes: int) -> tuple[bytes, int]:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino: int = meta.create(ROOT, name, 1, 1, None, tuple(record(writer=1, finished=0)))[0]
    meta.wrote(ino, 1, tuple(record(size=9)))
    meta.unused(ino, 1)
    for node in nodes:
        meta.lookup(ROOT, name, node)
    return name, ino


@pytest.mark.parametrize("op", [UNLINK, UNCOUNT])
def test_one_third_node_after_the_other(cluster: Cluster, line: Line, op: int) -> None:
    name, ino = watched(cluster, 2, 3)
    ask = lambda value: line.ask(op, ROOT if op == UNLINK else ino, name=name if op == UNLINK else b"", value=value, now=5)  # noqa: E731
    both = b""
    for node in (2, 3):
        answer = ask(both)
        assert answer.rest[12:] == struct.pack("<Q", ino)
        both += spared(answer, node)
        assert exists(cluster.nodes[0].meta, ino)
    answer = ask(both)
    assert (answer.error, answer.flags & (HOLDS | GONE)) == (0, HOLDS | GONE)
    assert not exists(cluster.nodes[0].meta, ino)


@pytest.mark.parametrize("asks", ["lookup", "getattr", "open", "table"])
def test_a_node_that_has_asked_since_takes_the_long_way(cluster: Cluster, line: Line, asks: str) -> None:
    meta = cluster.nodes[0].meta
    name, ino = watched(cluster, 2)
    value = spared(line.ask(UNLINK, ROOT, name=name), 2)
    if asks == "lookup":
        meta.lookup(ROOT, name, 2)
    elif asks == "getattr":
        meta.getattr(ino, 2)
    elif asks == "open":
        meta.open(ino, 2, False)
    else:
        cluster.set_table([part % 4 for part in range(PARTITIONS)])
    assert line.ask(UNLINK, ROOT, name=name, value=value).error == META_BUSY
    assert exists(meta, ino)


def test_what_is_no_list_of_nodes(cluster: Cluster, line: Line) -> None:
    name, ino = watched(cluster, 2)
    for value in (b"x", bytes(5 * 12)):
        assert line.ask(UNLINK, ROOT, name=name, value=value).error == errno.EINVAL
        assert line.ask(UNCOUNT, ino, value=value).error == errno.EINVAL


def test_a_file_that_a_third_node_writes(cluster: Cluster, line: Line) -> None:
    name, ino = watched(cluster)
    cluster.nodes[0].meta.open(ino, 2, True)
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY
    assert line.ask(UNCOUNT, ino).error == META_BUSY


def test_who_is_asked_forgets_the_record_and_then_the_content(cluster: Cluster, line: Line) -> None:
    """Node 1 asks node 0 for the file of another."""
    node, ino = cluster.nodes[0], 2 << 40 | 5
    node.meta.cache(tuple(record(ino=ino, size=9)), True)
    path = node.io.part_path(ino, -1)
    (node.root / path).parent.mkdir(parents=True, exist_ok=True)
    (node.root / path).write_bytes(b"123456789")
    where = struct.pack("<Q", ROOT)
    assert line.ask(SPARE, ino, name=b"n").error == errno.EINVAL
    assert line.ask(SPARE, ino, value=where).error == errno.EINVAL
    assert line.ask(SPARE, ino, name=b"n", value=where).error == 0
    with pytest.raises(FileNotFoundError):
        node.meta.cached(ino)
    assert (node.root / path).exists(), "the file may have another name"
    node.meta.claim(ino, True)
    assert line.ask(SPARE, ino).error == META_BUSY
    node.meta.claim(ino, False)
    assert line.ask(SPARE, ino, flags=GONE).error == 0
    assert not (node.root / path).exists()
