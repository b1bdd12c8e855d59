"""Where a striped file ends that was written here, until its record knows: an opener in between may bring an older end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsio_nodes import LOCAL, REMOTE, STRIPED, Nodes

STRIPE = 4096
INO = 77


@pytest.fixture
def nodes(root: Path) -> Iterator[Nodes]:
    it = Nodes(root, 2)
    it.io[0].keep_ends()
    yield it
    it.stop()


def written(nodes: Nodes, size: int, data: bytes) -> None:
    """By who believes that the file has ``size`` bytes, at its end as far as node 0 knows."""
    handle = nodes.io[0].open(INO, STRIPED, stripe=STRIPE, size=size, writing=True, create=True)
    handle.write(data, handle.stat()[0])
    handle.close()


def test_an_older_end_is_not_believed_until_the_record_knows_the_last_one(nodes: Nodes) -> None:
    io = nodes.io[0]
    assert io.end(INO) is None
    written(nodes, 0, b"a" * 5000)
    written(nodes, 0, b"b" * 5000)
    kept = io.end(INO)
    assert kept is not None and kept[0] == 10_000 and kept[1] > 0
    io.end_recorded(INO)
    assert io.end(INO) is None
    written(nodes, 7000, b"c")
    assert io.end(INO) is not None and io.end(INO)[0] == 7001  # type: ignore[index]


def test_the_end_stays_when_it_was_another_node_that_wrote_last(nodes: Nodes) -> None:
    here = nodes.io[0].open(INO, STRIPED, stripe=STRIPE, size=0, writing=True, create=True)
    there = nodes.io[1].open(INO, REMOTE, 0, writing=True)
    here.close()
    there.write(b"x" * 6000, 0)
    there.close()
    assert nodes.io[0].end(INO) is not None and nodes.io[0].end(INO)[0] == 6000  # type: ignore[index]
    with pytest.raises(OSError) as refused:
        nodes.io[1].open(INO, REMOTE, 0, writing=True)
    assert refused.value.errno == errno.ESTALE


def test_no_end_is_believed_once_another_node_has_written_the_file(nodes: Nodes) -> None:
    """Though nobody has said here that the record knew it."""
    written(nodes, 0, b"a" * 5000)
    there = nodes.io[1].open(INO, STRIPED, stripe=STRIPE, size=5000, writing=True)
    here = nodes.io[0].open(INO, REMOTE, 1)
    there.write(b"b" * 5000, 5000)
    here.close()
    there.close()
    assert nodes.io[0].end(INO) is None
    again = nodes.io[0].open(INO, STRIPED, stripe=STRIPE, size=10_000)
    assert again.stat()[0] == 10_000 and again.read(10, 9_990) == b"b" * 10
    again.close()


def test_the_time_that_is_set_meanwhile_is_that_of_the_end(nodes: Nodes) -> None:
    written(nodes, 0, b"a" * 5000)
    nodes.io[0].set_times(INO, None, 10**18)
    assert nodes.io[0].end(INO) == (5000, 10**18)
    reader = nodes.io[0].open(INO, STRIPED, stripe=STRIPE, size=0)
    assert reader.stat()[0] == 5000 and reader.stat()[3] == 10**18
    nodes.io[0].end_recorded(INO)
    assert reader.read(5000, 0) == b"a" * 5000, "it is open still"
    reader.close()


def test_of_whole_files_nothing_is_kept(nodes: Nodes) -> None:
    ino = nodes.write(0, b"content")
    handle = nodes.io[0].open(ino, LOCAL, writing=True)
    handle.write(b"more", 7)
    handle.close()
    assert nodes.io[0].end(ino) is None


def test_what_has_grown_into_stripes_is_no_whole_file_to_who_opens_it_as_its_record_has_it(root: Path) -> None:
    nodes = Nodes(root, 2, limits=(1 << 20, 4 << 20))
    io = nodes.io[0]
    io.keep_ends()
    content = bytes(range(256)) * 6000
    handle = io.open(INO, LOCAL, stripe=64 << 10, writing=True, create=True)
    handle.write(content, 0)
    handle.close()
    assert io.grown(INO)
    for writing in (False, True):  # its record says still that it is whole, and empty
        handle = io.open(INO, LOCAL, writing=writing, create=writing)
        assert handle.stat()[0] == len(content) and handle.read(9, 1 << 20) == content[1 << 20 :][:9]
        handle.close()
    io.end_recorded(INO)
    assert not io.grown(INO)
    nodes.stop()
