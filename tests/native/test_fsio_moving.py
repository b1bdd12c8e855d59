"""Stripes of partitions that move to a node: one that has not come is waited for, never read as zeros or written to."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from fsio_nodes import DONE, PARTITIONS, STRIPED, Nodes

STRIPE = 4096
COUNT = 8
DATA = bytes(range(1, 129)) * (COUNT * STRIPE // 128)
AWAITED = 6
BEFORE, AFTER = [0] * PARTITIONS, [1] * PARTITIONS


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path, 2)
    made.set_table(BEFORE)
    return made


def move(nodes: Nodes) -> int:
    """A file in stripes whose new owner, node 1, has none of them yet."""
    ino = nodes.write(0, DATA, stripe=STRIPE)
    nodes.io[0].set_table(AFTER, range(PARTITIONS))
    nodes.io[1].set_table(AFTER, range(PARTITIONS))
    return ino


def bring(nodes: Nodes, ino: int, index: int) -> None:
    nodes.io[1].fetch_part(1, ino, index, 0)
    assert nodes.done(1)[::4] == (DONE, 0)


def awaited(nodes: Nodes) -> list[int]:
    return [serial for kind, serial, *_ in nodes.io[1].take() if kind == AWAITED]


@pytest.mark.parametrize("node", [0, 1])
def test_what_has_not_come_by_a_new_table_is_no_hole(nodes: Nodes, node: int) -> None:
    ino = move(nodes)
    for io in nodes.io:
        io.set_stall_ms(50)
    with pytest.raises(OSError) as failed:
        nodes.read(node, ino, STRIPED, len(DATA), stripe=STRIPE)
    assert failed.value.errno == errno.EIO
    writer = nodes.io[node].open(ino, STRIPED, stripe=STRIPE, size=len(DATA), writing=True)
    with pytest.raises(OSError):
        writer.write(b"x" * STRIPE, 0)
        writer.flush()
    assert not nodes.parts(1, ino)


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_hears_once_for_which_partition_somebody_waits(nodes: Nodes, node: int) -> None:
    ino = move(nodes)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(nodes.read(node, ino, STRIPED, STRIPE, stripe=STRIPE)[:STRIPE]))
    assert not awaited(nodes)
    reader.start()
    (event,) = [nodes.done(1)]
    assert event[0] == AWAITED
    partition = event[1]
    nodes.io[1].set_moving([part for part in range(PARTITIONS) if part != partition], False)
    nodes.io[1].set_moving([partition], True)  # said again, and nothing new
    bring(nodes, ino, 0)
    assert not found
    nodes.io[1].set_moving([partition], False)
    reader.join(10)
    assert found == [DATA[:STRIPE]]
    assert not awaited(nodes)


def test_a_table_that_says_that_a_partition_still_moves_serves_it_no_earlier(nodes: Nodes) -> None:
    ino = move(nodes)
    nodes.io[1].set_stall_ms(50)
    nodes.io[1].set_table(AFTER, range(PARTITIONS))
    with pytest.raises(OSError):
        nodes.read(1, ino, STRIPED, STRIPE, stripe=STRIPE)
    for index in range(COUNT):
        nodes.io[1].take()
        bring(nodes, ino, index)
    nodes.io[1].set_table(AFTER)
    assert nodes.read(1, ino, STRIPED, len(DATA), stripe=STRIPE) == DATA
