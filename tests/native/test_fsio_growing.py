"""The data plane through Python: files that outgrow their node, and work in the background: travel, other layouts, other places."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from pathlib import Path

import pytest
from fsio_nodes import DONE, GREW, LOCAL, PARTITIONS, STRIPED, WHOLE, Nodes, content
from waiting import until

STRIPE = 4096


# ── growing ────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_outgrows_its_node_goes_on_striped(root: Path) -> None:
    mib = 1 << 20
    nodes = Nodes(root, 4, [20 * mib] * 4)
    ino, data = nodes.new(), content(64 * mib)
    writer = nodes.io[0].open(ino, LOCAL, stripe=512 << 10, writing=True, create=True)
    reader = nodes.io[0].open(ino, LOCAL)
    with pytest.raises(OSError) as caught:  # more than all have
        for at in range(0, 2 * len(data), mib):
            writer.write(data[at % len(data) : at % len(data) + mib], at)
        writer.flush()
    assert caught.value.errno == errno.ENOSPC
    kind, stripe, which, size, error = nodes.done(0)
    assert (kind, stripe, which, error) == (GREW, 512 << 10, ino, 0) and 0 < size <= 20 * mib
    writer.truncate(0)
    with contextlib.suppress(OSError):
        writer.flush()  # pieces that were on their way had failed, too
    for at in range(0, len(data), mib):
        writer.write(data[at : at + mib], at)
    writer.flush()
    assert reader.read(len(data) + 1, 0) == data
    writer.close()
    reader.close()
    assert nodes.read(3, ino, STRIPED, len(data), stripe=512 << 10) == data
    assert WHOLE not in nodes.parts(0, ino)
    for node in range(4):
        used, limit, _ = nodes.io[node].usage()
        assert used == nodes.bytes_on_disk(node) <= limit
    nodes.stop()


def test_alone_a_full_node_is_full(root: Path) -> None:
    nodes = Nodes(root, 1, [1 << 20])
    handle = nodes.io[0].open(7, LOCAL, writing=True, create=True)
    handle.write(bytes(1 << 19), 0)
    with pytest.raises(OSError) as caught:
        handle.write(bytes(1 << 20), 1 << 19)
    assert caught.value.errno == errno.ENOSPC
    handle.write(b"there is room for this", 1 << 19)
    handle.close()
    nodes.stop()


def test_growth_that_finds_no_room_leaves_the_file_whole(root: Path) -> None:
    nodes = Nodes(root, 2, [1 << 20, 64 << 10])
    data = content(1 << 20)
    handle = nodes.io[0].open(7, LOCAL, stripe=64 << 10, writing=True, create=True)
    handle.write(data, 0)
    with pytest.raises(OSError) as caught:
        handle.write(data, len(data))
    assert caught.value.errno == errno.ENOSPC
    assert handle.read(2 << 20, 0) == data and nodes.parts(0, 7) == {WHOLE: 1 << 20} and not nodes.parts(1, 7)
    handle.close()
    assert nodes.io[1].usage()[0] == 0
    nodes.stop()


# ── in the background ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 4096, 300_000, 5_000_001])
def test_whole_files_travel_and_change_their_layout(nodes: Nodes, size: int) -> None:
    data = content(size)
    ino = nodes.write(0, data)
    nodes.io[1].fetch(11, ino, 0, size)
    assert nodes.done(1) == (DONE, 11, ino, size, 0)
    assert nodes.read(1, ino, LOCAL, size) == data and nodes.parts(0, ino) == {WHOLE: size}
    nodes.io[1].restripe(12, ino, STRIPE)
    assert nodes.done(1) == (DONE, 12, ino, size, 0)
    assert WHOLE not in nodes.parts(1, ino) and nodes.read(2, ino, STRIPED, size, stripe=STRIPE) == data
    nodes.io[2].gather(13, ino, STRIPE, size)
    assert nodes.done(2) == (DONE, 13, ino, size, 0)
    assert nodes.read(2, ino, LOCAL, size) == data
    nodes.io[0].drop_stripes(14, ino, [0, 1, 2])
    assert nodes.done(0) == (DONE, 14, ino, 0, 0)
    assert [nodes.parts(node, ino) for node in range(3)] == [{WHOLE: size}, {}, {WHOLE: size}]
    nodes.io[1].delete_everywhere(15, ino, [0, 1, 2])
    assert nodes.done(1) == (DONE, 15, ino, 0, 0)
    assert [nodes.io[node].usage() for node in range(3)] == [(0, 0, 0)] * 3


def test_holes_survive_gathering(nodes: Nodes) -> None:
    ino = nodes.new()
    handle = nodes.io[0].open(ino, STRIPED, stripe=65536, writing=True)
    handle.write(b"end", 30 << 20)
    handle.close()
    nodes.io[1].gather(1, ino, 65536, (30 << 20) + 3)
    assert nodes.done(1)[4] == 0
    assert nodes.io[1].part_stat(ino, WHOLE)[:2] == ((30 << 20) + 3, 8)
    assert nodes.io[1].open(ino, LOCAL).read(9, 30 << 20) == b"end"


def test_a_part_moves(nodes: Nodes) -> None:
    data = content(4 * STRIPE)
    ino = nodes.write(0, data, stripe=STRIPE)
    node, index = next((node, index) for node in (1, 2) for index in nodes.parts(node, ino))
    nodes.io[0].fetch_part(5, ino, index, node)
    assert nodes.done(0) == (DONE, 5, ino, STRIPE, 0)
    assert index in nodes.parts(0, ino) and index not in nodes.parts(node, ino)
    nodes.io[0].fetch_part(6, ino, index, node)
    assert nodes.done(0)[4] == errno.ENOENT
    assert index in nodes.parts(0, ino)


def test_fetching_what_is_not_so_fails_and_leaves_nothing(nodes: Nodes) -> None:
    ino = nodes.write(0, b"12345")
    nodes.io[1].fetch(1, ino, 0, 4)
    assert nodes.done(1)[4] == errno.ESTALE
    nodes.io[1].fetch(2, ino + 1, 0, 4)
    assert nodes.done(1)[4] == errno.ENOENT
    nodes.io[1].gather(3, ino, 0, 4)
    assert nodes.done(1)[4] == errno.EINVAL
    nodes.io[1].restripe(4, ino, 4)
    assert nodes.done(1)[4] == errno.ENOENT
    assert not nodes.io[1].list_parts() and nodes.bytes_on_disk(1) == 0


def test_a_table_that_changes_is_waited_for_and_never_read_as_zeros(nodes: Nodes) -> None:
    """A node with an old table asks the old owner, which no longer has the stripe."""
    data = content(20 * STRIPE)
    ino = nodes.write(0, data, stripe=STRIPE)
    owners = [p % 3 if p % 3 < 2 else 0 for p in range(PARTITIONS)]  # node 2 gives all it has to node 0
    moving = nodes.parts(2, ino)
    assert moving
    nodes.io[2].set_moving([p for p in range(PARTITIONS) if p % 3 == 2], True)
    early = threading.Thread(target=lambda: found.append(nodes.read(2, ino, STRIPED, len(data), stripe=STRIPE)))
    found: list[bytes] = []
    early.start()
    for index in moving:
        nodes.io[0].fetch_part(1, ino, index, 2)
        assert nodes.done(0)[4] == 0
    nodes.io[0].set_table(owners)
    nodes.io[2].set_table(owners)
    late = threading.Timer(0.3, nodes.io[1].set_table, [owners])
    late.start()
    assert nodes.read(1, ino, STRIPED, len(data), stripe=STRIPE) == data
    late.join()
    early.join(10)
    assert found == [data]


# ── deleting ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("striped", [False, True])
def test_nobody_waits_until_large_parts_are_deleted(root: Path, striped: bool) -> None:
    """The poll loop may be the one who deletes: bytes go when a thread has time. The name and the room are free at once."""
    nodes = Nodes(root, 1, [100 << 20])
    io, ino = nodes.io[0], nodes.new()
    handle = io.open(ino, STRIPED if striped else LOCAL, stripe=128 << 20, writing=True, create=True)
    for at in range(0, 96, 32):
        handle.write(bytes(32 << 20), at << 20)
    handle.close()
    silent = socket.create_server(("127.0.0.1", 0))
    io.set_peer(1, "127.0.0.1", silent.getsockname()[1])
    for serial in (1, 2):  # both of its threads wait for that node
        io.fetch(serial, nodes.new(), 1, 1)
    until(lambda: _aside(root) == 2, "the threads have not begun")
    io.part_delete(ino)
    assert not io.list_parts()
    assert io.usage()[0] == 0
    assert _aside(root) == 3, "it was deleted while the caller waited"
    io.forget_peer(1)
    until(lambda: _aside(root) == 0, "it is not deleted at all")
    nodes.stop()
    silent.close()


def _aside(root: Path) -> int:
    return len([path for path in root.glob("0/*/.*") if path.is_file()])
