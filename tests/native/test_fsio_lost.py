"""Stripes that went with a node: nobody takes them for holes, whenever a file was opened."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from fsio_nodes import PARTITIONS, STRIPED, Nodes

from amfs._native import IoHandle

STRIPE = 4096
SIZE = 8 * STRIPE
DATA = bytes(range(1, 129)) * (SIZE // 128)


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, 3)


def die(nodes: Nodes, dead: int, known: int = 2) -> None:
    """As the nodes that live hear of it."""
    owners = [p % 3 if p % 3 != dead else (dead + 1 + p // 3 % 2) % 3 for p in range(PARTITIONS)]
    nodes.io[dead].stop()
    for number, io in enumerate(nodes.io):
        if number != dead:
            io.lose([p for p in range(PARTITIONS) if p % 3 == dead], known, False)
            io.set_table(owners)
            io.forget_peer(dead)


def fails(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or 0
    return 0


def open_(nodes: Nodes, node: int, ino: int, writing: bool = False, size: int = SIZE, since: int = 2) -> IoHandle:
    return nodes.io[node].open(ino, STRIPED, stripe=STRIPE, size=size, writing=writing, since=since)


def test_what_was_open_when_a_node_died_is_an_error_for_readers_and_writers(nodes: Nodes) -> None:
    ino = nodes.write(0, DATA, stripe=STRIPE)
    reader, writer = open_(nodes, 0, ino, since=1), open_(nodes, 1, ino, True, since=1)
    assert reader.read(SIZE, 0) == DATA
    die(nodes, 2)
    assert fails(lambda: reader.read(STRIPE, 0)) == errno.EIO
    assert fails(lambda: reader.seek(0, 3)) == errno.EIO
    for act in (lambda: writer.write(b"x", 0), lambda: writer.truncate(STRIPE), writer.flush):
        assert fails(act) == errno.EIO
    assert nodes.io[1].lost(ino)
    assert fails(writer.close) == errno.EIO


def test_who_asked_the_record_before_the_node_died_and_opens_after_it_meets_an_error(nodes: Nodes) -> None:
    ino = nodes.write(0, DATA, stripe=STRIPE)
    die(nodes, 2)
    late = open_(nodes, 0, ino, since=1)
    assert fails(lambda: late.read(STRIPE, 0)) == errno.EIO


def test_what_is_written_after_that_is_whole(nodes: Nodes) -> None:
    old = nodes.write(0, DATA, stripe=STRIPE)
    die(nodes, 2)
    new = open_(nodes, 0, nodes.new(), True, 0)
    new.write(DATA, 0)
    new.flush()
    assert new.read(SIZE, 0) == DATA
    cut = open_(nodes, 0, old, True)
    cut.truncate(0)
    cut.write(DATA[::-1], 0)
    cut.flush()
    assert cut.read(SIZE, 0) == DATA[::-1]
    for handle in (new, cut):
        handle.close()
    assert nodes.read(1, old, STRIPED, SIZE, stripe=STRIPE) == DATA[::-1]


def test_a_file_that_had_nothing_there_goes_on_and_grows_to_the_heirs(nodes: Nodes) -> None:
    ino = next(ino for ino in iter(nodes.new, 0) if owner_of_first(nodes, ino) == 0)
    handle = open_(nodes, 1, ino, True, 0, since=1)
    handle.write(b"a" * STRIPE, 0)
    handle.flush()
    die(nodes, 2)
    assert handle.read(STRIPE, 0) == b"a" * STRIPE
    for index in range(1, 8):
        handle.write(b"b" * STRIPE, index * STRIPE)
    handle.flush()
    assert not nodes.io[1].lost(ino)
    assert handle.read(SIZE, 0) == b"a" * STRIPE + b"b" * 7 * STRIPE
    handle.close()


def owner_of_first(nodes: Nodes, ino: int) -> int:
    handle = open_(nodes, 0, ino, True, 0)
    handle.write(b"?", 0)
    handle.close()
    owner = next(number for number in range(3) if nodes.parts(number, ino))
    for io in nodes.io:
        io.stripes_delete(ino)
    return owner


def test_the_end_that_is_kept_knows_of_it_and_no_file_grows_past_it(nodes: Nodes) -> None:
    for io in nodes.io:
        io.keep_ends()
    before, after = nodes.write(0, DATA, stripe=STRIPE), nodes.write(0, DATA, stripe=STRIPE)
    nodes.io[0].end_recorded(after)
    die(nodes, 2)
    assert nodes.io[0].lost(before) and not nodes.io[0].lost(after)
    handle = open_(nodes, 0, before)  # the record has not heard of the end, and nobody else knows what was written
    assert fails(lambda: handle.read(1, 0)) == errno.EIO
    handle.close()
    nodes.io[0].end_recorded(before)
    assert not nodes.io[0].lost(before)
