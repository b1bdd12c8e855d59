"""Digests of what a node keeps: taken when a file is finished, gone when it is written again, compared by whoever fetches it."""

from __future__ import annotations

import errno
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import xxhash
from fsio_nodes import DONE, LOCAL, STRIPED, WHOLE, Nodes, content
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from amfs._native import Copier, Io, check_file, digest_of_content, xxh3

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
    until(lambda: nodes.io[0].take_damaged() == [(ino, WHOLE, "")], "its node has not heard of it")


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


@pytest.mark.parametrize("zeros", ["", "all", "first", "last", "middle", "short"])
def test_the_digest_of_content_is_that_of_a_file_which_has_it(nodes: Nodes, zeros: str) -> None:
    """Zeros that a file has are known by their number."""
    data, block = bytearray(content(4 << 16)), bytes(1 << 16)
    if zeros:
        at = {"all": 0, "first": 0, "last": 3 << 16, "middle": 1 << 16, "short": (1 << 16) + 1}[zeros]
        data[at:] = bytes(len(data)) if zeros == "all" else block + data[at + len(block) :]
    ino = nodes.write(0, bytes(data))
    assert nodes.io[0].part_digest(ino) == digest_of_content(data)
    assert (digest_of_content(data) == xxh3(data)) == (zeros in ("", "short"))


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


def test_no_digest_is_taken_while_somebody_can_write_it_by_a_mapping(nodes: Nodes) -> None:
    """Also if nobody has said that he opens it, and its descriptor is closed."""
    ino = nodes.write(0, content(SIZE))
    learned(nodes, 0, ino)
    with open(path_of(nodes, 0, ino), "r+b") as file:
        file.write(b"new")  # the digest counts no more
        mapped = mmap.mmap(file.fileno(), 0)
    for _ in range(2):
        assert nodes.io[0].check_part(ino)[0] == UNKNOWN
        mapped[7] ^= 1
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EBUSY):
        nodes.io[0].part_digest(ino)
    nodes.io[1].fetch(5, ino, 0, SIZE)
    assert nodes.done(1)[4] == 0
    mapped.close()
    learned(nodes, 0, ino)
    assert nodes.io[0].part_digest(ino) == xxh3(path_of(nodes, 0, ino).read_bytes())
    assert nodes.io[0].take_damaged() == []


def test_a_file_with_holes_is_copied_while_it_is_written(nodes: Nodes) -> None:
    ino = nodes.new()
    handle = nodes.io[0].open(ino, LOCAL, writing=True, create=True)
    handle.write(b"end", 3 << 20)
    size = (3 << 20) + 3
    nodes.io[1].fetch(5, ino, 0, size)
    assert nodes.done(1)[4] == 0
    assert nodes.read(1, ino, LOCAL, size) == bytes(3 << 20) + b"end"
    handle.close()


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


# ── stripes ────────────────────────────────────────────────────────────────────────────────────────

STRIPE = 64 << 10


def stripe_path(nodes: Nodes, node: int, ino: int, index: int) -> Path:
    return nodes.root / str(node) / nodes.io[node].part_path(ino, index)


def looked_at(nodes: Nodes, node: int, ino: int) -> tuple[int, int, int, int, int]:
    """(stripes, of unknown digest, bytes, a damaged one, where to go on) when all have one."""
    until(lambda: nodes.io[node].check_stripes(ino, 0)[1] == 0, "their digests were never taken")
    return nodes.io[node].check_stripes(ino, 0)


def damaged_at_node_1(nodes: Nodes, data: bytes) -> tuple[int, int]:
    """A file of these bytes in stripes, and one of them that was damaged on node 1 after its digest had been taken."""
    ino = nodes.write(0, data, stripe=STRIPE)
    bad = min(nodes.parts(1, ino))
    looked_at(nodes, 1, ino)
    flip(stripe_path(nodes, 1, ino, bad), 1)
    return ino, bad


def test_a_damaged_stripe_is_not_read_by_other_nodes(nodes: Nodes) -> None:
    data = content(12 * STRIPE + 77)
    ino = nodes.write(0, data, stripe=STRIPE)
    for node in range(3):
        mine = nodes.parts(node, ino)
        assert looked_at(nodes, node, ino) == (len(mine), 0, sum(mine.values()), -1, -1)
    assert nodes.read(0, ino, STRIPED, len(data), stripe=STRIPE) == data
    bad = min(nodes.parts(1, ino))
    flip(stripe_path(nodes, 1, ino, bad), 333)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        nodes.read(0, ino, STRIPED, len(data), stripe=STRIPE)
    assert set(nodes.io[1].take_damaged()) == {(ino, bad, "")}
    seen = nodes.io[1].check_stripes(ino, 0)
    assert seen[3:] == (bad, bad + 1), "the look ends there, and goes on after it"
    assert nodes.io[1].check_stripes(ino, bad + 1)[3:] == (-1, -1)
    handle = nodes.io[2].open(ino, STRIPED, stripe=STRIPE, size=len(data), writing=True)
    handle.write(data[bad * STRIPE : (bad + 1) * STRIPE], bad * STRIPE)
    handle.close()
    assert nodes.read(0, ino, STRIPED, len(data), stripe=STRIPE) == data, "it was written anew"
    assert looked_at(nodes, 1, ino)[3] == -1


def test_a_damaged_stripe_does_not_become_a_part_of_a_whole_file(nodes: Nodes) -> None:
    data = content(7 * STRIPE)
    ino, _bad = damaged_at_node_1(nodes, data)
    ended: list[int] = []  # the errors with which it ends; damage is told of as well

    def ends(io: Io) -> bool:
        ended.extend(event[4] for event in io.take() if event[1] == 3)
        return bool(ended)

    for node in (0, 1):  # from another node, and its own
        nodes.io[node].gather(3, ino, STRIPE, len(data))
        until(partial(ends, nodes.io[node]), "it never ended")
        assert ended.pop() == errno.EIO
        assert WHOLE not in nodes.parts(node, ino)


def test_damage_travels_with_a_stripe_that_moves(nodes: Nodes) -> None:
    """Its proper digest travels along. So the damage is found at its new owner, too, and no partition waits for ever for a stripe."""
    ino, bad = damaged_at_node_1(nodes, content(3 * STRIPE))
    nodes.io[2].fetch_part(7, ino, bad, 1)
    assert nodes.done(2) == (DONE, 7, ino, STRIPE, 0)
    assert bad not in nodes.parts(1, ino) and bad in nodes.parts(2, ino)
    until(lambda: nodes.io[2].check_part(ino, bad) == (DAMAGED, STRIPE), "it counts as good")


def test_a_stripe_that_is_changed_all_the_time_is_never_called_damaged(nodes: Nodes) -> None:
    """Small writes by two nodes, while a third looks and the digests are taken: a false alarm would lose the file."""
    ino = nodes.write(0, content(2 * STRIPE), stripe=STRIPE)
    ends = time.monotonic() + 2.0
    told: list[tuple[int, int, str]] = []

    def write(node: int) -> None:
        handle = nodes.io[node].open(ino, STRIPED, stripe=STRIPE, size=2 * STRIPE, writing=True)
        rng = random.Random(node)
        while time.monotonic() < ends:
            handle.write(rng.randbytes(rng.choice((1, 100, 5000))), rng.randrange(2 * STRIPE - 5000))
            if rng.random() < 0.01:
                time.sleep(0.03)  # long enough for a digest to be taken
        handle.close()

    writers = [threading.Thread(target=write, args=(node,)) for node in (0, 1)]
    for writer in writers:
        writer.start()
    fine = 0
    while time.monotonic() < ends:
        for node in range(3):
            stripes, unknown, _, bad, _ = nodes.io[node].check_stripes(ino, 0)
            assert bad == -1
            fine += stripes - unknown
            told += nodes.io[node].take_damaged()
    for writer in writers:
        writer.join()
    assert told == []
    assert fine, "no digest was ever compared: the test tests nothing"


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
        ended: list[tuple[int, str, int, int]] = []
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
