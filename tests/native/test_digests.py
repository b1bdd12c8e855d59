"""Digests of what a node keeps: taken when a file is finished, gone when it is written again, compared by whoever fetches it."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash
from fsio_nodes import LOCAL, WHOLE, Nodes, content
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from amfs._native import Copier, check_file, xxh3

UNKNOWN, FINE, DAMAGED = range(3)
SIZE = 1_000_003


@given(st.integers(0, 5000), st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_xxh3_is_that_of_the_package(size: int, seed: int) -> None:
    data = bytes((i * 131 + seed + (i >> 7)) & 255 for i in range(size))
    assert xxh3(data) == xxhash.xxh3_128_digest(data)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path, 3)
    yield made
    made.stop()


def path_of(nodes: Nodes, node: int, ino: int) -> Path:
    return nodes.root / str(node) / nodes.io[node].part_path(ino, WHOLE)


def flip(path: Path, at: int) -> None:
    """One bit, and nothing that could be seen from outside."""
    times = path.stat()
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 4,)))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def learned(nodes: Nodes, node: int, ino: int) -> None:
    until(lambda: nodes.io[node].check_part(ino)[0] == FINE, "its digest was never taken")


def test_damage_of_a_part_is_told_to_who_fetches_it_and_to_its_node(nodes: Nodes) -> None:
    ino = nodes.write(0, content(SIZE))
    learned(nodes, 0, ino)
    flip(path_of(nodes, 0, ino), 777)
    nodes.io[1].fetch(5, ino, 0, SIZE)
    assert nodes.done(1)[1:] == (5, ino, SIZE, errno.EBADMSG)
    assert nodes.parts(1, ino) == {}
    until(lambda: nodes.io[0].take_damaged() == [(ino, "")], "its node has not heard of it")


def test_a_copy_has_the_digest_of_what_it_was_made_of(nodes: Nodes) -> None:
    data = content(SIZE)
    ino = nodes.write(0, data)
    nodes.io[1].fetch(5, ino, 0, SIZE)
    assert nodes.done(1)[4] == 0
    assert nodes.io[1].check_part(ino) == (FINE, SIZE)
    flip(path_of(nodes, 1, ino), 0)
    assert nodes.io[1].check_part(ino) == (DAMAGED, SIZE)
    nodes.io[2].fetch(6, ino, 0, SIZE)
    assert nodes.done(2)[4] == 0
    assert nodes.read(2, ino, LOCAL, SIZE) == data


def test_what_is_written_again_is_not_damaged(nodes: Nodes) -> None:
    """By a mapping that leaves the time of modification as it was, which only the opening tells of."""
    ino = nodes.write(0, content(SIZE))
    learned(nodes, 0, ino)
    handle = nodes.io[0].open(ino, LOCAL, size=SIZE, writing=True)
    before = path_of(nodes, 0, ino).stat().st_mtime_ns
    with open(path_of(nodes, 0, ino), "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0] ^= 1
    os.utime(path_of(nodes, 0, ino), ns=(before, before))
    assert nodes.io[0].check_part(ino)[0] == UNKNOWN
    nodes.io[1].fetch(5, ino, 0, SIZE)  # while it is being written: as it is
    assert nodes.done(1)[4] == 0
    handle.close()
    learned(nodes, 0, ino)
    assert nodes.io[0].take_damaged() == []


def test_what_was_changed_without_a_word_is_not_damaged(nodes: Nodes) -> None:
    ino = nodes.write(0, content(SIZE))
    learned(nodes, 0, ino)
    with open(path_of(nodes, 0, ino), "r+b") as file:
        file.write(b"new")
    assert nodes.io[0].check_part(ino)[0] == UNKNOWN
    nodes.io[1].fetch(5, ino, 0, SIZE)
    assert nodes.done(1)[4] == 0
    assert nodes.read(1, ino, LOCAL, SIZE)[:3] == b"new"


def test_a_file_with_holes_is_compared_as_well(nodes: Nodes) -> None:
    ino = nodes.new()
    handle = nodes.io[0].open(ino, LOCAL, writing=True, create=True)
    handle.write(b"begin", 0)
    handle.write(b"end", 3 << 20)
    handle.close()
    size = (3 << 20) + 3
    learned(nodes, 0, ino)
    nodes.io[1].fetch(5, ino, 0, size)
    assert nodes.done(1)[4] == 0
    assert nodes.io[1].check_part(ino) == (FINE, size)
    flip(path_of(nodes, 0, ino), 3 << 20)
    nodes.io[2].fetch(6, ino, 0, size)
    assert nodes.done(2)[4] == errno.EBADMSG


def verdict(path: Path) -> int:
    with open(path, "rb") as file:
        return check_file(file.fileno())


def test_a_spilled_copy_has_a_digest_and_damage_is_not_copied(tmp_path: Path) -> None:
    """Both ways: nothing damaged goes to the disk, or comes back."""
    copier, exact, checked = Copier(1), 1 << 31, 0o644 | 1 << 30
    source, spilled, back = tmp_path / "source", tmp_path / "spilled", tmp_path / "back"
    source.write_bytes(content(SIZE))

    def copy(from_: Path, to: Path, how: int = exact) -> str:
        copier.copy(1, str(from_), str(to), how, directories=False)
        ended: list[tuple[int, str, int]] = []
        until(lambda: bool(ended.extend(copier.completions()) or ended), "the copy never ended")
        return ended[0][1]

    assert copy(source, spilled) == ""
    assert verdict(spilled) == FINE
    assert copy(spilled, back) == ""
    assert back.read_bytes() == content(SIZE)
    assert copy(spilled, tmp_path / "shared", checked) == "", "to shared storage"
    assert (tmp_path / "shared").read_bytes() == content(SIZE)
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o644
    flip(spilled, 4096)
    assert verdict(spilled) == DAMAGED
    assert "is damaged" in copy(spilled, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert copy(spilled, tmp_path / "shared", checked).endswith("is damaged: its content is not what was written")
    assert (tmp_path / "shared").read_bytes() == content(SIZE), "as it was"
    copier.stop()
