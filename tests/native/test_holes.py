"""Holes are not read, sent or written, however large they are; and they are holes again where they have been carried to."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fsio_nodes import DONE, LOCAL, STRIPED, Nodes

from amfs._native import Copier, digest
from amfs.host.digests import BLOCK, Digest, of_file
from amfs.host.extents import pieces

HUGE = 999_999_999_999_999
MIB = 1 << 20
STRIPE = 64 << 10


def sparse(path: Path, size: int, *data: tuple[int, bytes]) -> None:
    with path.open("wb") as file:
        for at, some in data:
            file.seek(at)
            file.write(some)
        file.truncate(size)


def test_a_digest_of_zeros_and_one_of_a_hole_are_the_same(tmp_path: Path) -> None:
    for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 77):
        for at in {0, size // 2, max(0, size - 3)}:
            data = bytearray(size)
            data[at : at + 3] = b"abc"[: size - at]
            dense, holes, made = tmp_path / "dense", tmp_path / "holes", tmp_path / "made"
            dense.write_bytes(data)
            sparse(holes, size, (at, bytes(data[at : at + 3])))
            taken = Digest()
            taken.add_zeros(at)
            taken.add(data[at : at + 3])
            taken.add_zeros(size - taken.size)
            with holes.open("rb") as source, made.open("w+b") as target:
                assert digest(source.fileno(), target.fileno()) == of_file(str(dense)) == of_file(str(holes)) == (taken.value(), taken.size)
            assert made.read_bytes() == data


def test_a_huge_hole_has_a_digest(root: Path) -> None:
    sparse(root / "x", HUGE, (HUGE - 5, b"abc"))
    sparse(root / "y", HUGE, (HUGE - 5, b"abx"))
    assert of_file(str(root / "x"))[1] == HUGE
    assert of_file(str(root / "x")) != of_file(str(root / "y"))


def test_a_copier_keeps_holes(root: Path) -> None:
    source, target = root / "source", root / "target"
    sparse(source, HUGE, (3 * MIB + 5, b"abc"))
    copier = Copier(1)
    copier.copy(1, str(source), str(target), 0o600)
    while not (done := copier.completions()):
        time.sleep(0.001)
    assert done == [(1, "", HUGE, 0)]
    assert target.stat().st_size == HUGE
    assert target.stat().st_blocks * 512 <= 4 * MIB
    with target.open("rb") as file:
        assert os.pread(file.fileno(), 8, 3 * MIB + 3) == b"\0\0abc\0\0\0"


def huge(nodes: Nodes, node: int, stripe: int) -> int:
    """A file with a few bytes at its start, in its middle and at its end."""
    ino = nodes.new()
    handle = nodes.io[node].open(ino, STRIPED if stripe else LOCAL, stripe=stripe, writing=True, create=True)
    for at in (0, HUGE // 2, HUGE - 3):
        handle.write(b"abc", at)
    handle.close()
    return ino


def is_huge(nodes: Nodes, node: int, ino: int, stripe: int = 0) -> None:
    handle = nodes.io[node].open(ino, STRIPED if stripe else LOCAL, -1, stripe, HUGE)
    try:
        assert [(at, data.strip(b"\0")) for at, data in pieces(handle)][-1] == (HUGE, b"")
        assert b"".join(data.strip(b"\0") for _, data in pieces(handle)) == b"abcabcabc"
        assert handle.read(9, HUGE // 2 - 3) == b"\0\0\0abc\0\0\0"
        assert handle.stat()[0] == HUGE
        assert handle.stat()[1] * 512 <= 8 * MIB
    finally:
        handle.close()


def test_a_huge_file_is_copied_to_another_node(root: Path) -> None:
    nodes = Nodes(root, 2)
    ino = huge(nodes, 0, 0)
    nodes.io[1].fetch(7, ino, 0, HUGE)
    assert nodes.done(1) == (DONE, 7, ino, HUGE, 0)
    is_huge(nodes, 1, ino)
    nodes.stop()


def test_a_huge_file_goes_into_stripes_and_back(root: Path) -> None:
    nodes = Nodes(root, 3)
    ino = huge(nodes, 0, 0)
    nodes.io[0].restripe(7, ino, STRIPE)
    assert nodes.done(0)[:3] == (DONE, 7, ino)
    is_huge(nodes, 2, ino, STRIPE)
    nodes.io[1].gather(8, ino, STRIPE, HUGE)
    assert nodes.done(1) == (DONE, 8, ino, HUGE, 0)
    is_huge(nodes, 1, ino)
    nodes.stop()


def test_a_huge_striped_file_is_checked_punched_and_cut(root: Path) -> None:
    nodes = Nodes(root, 3)
    ino = huge(nodes, 0, STRIPE)
    is_huge(nodes, 1, ino, STRIPE)
    for io in nodes.io:
        seen, at = 0, 0
        while at >= 0:
            stripes, _, _, bad, at = io.check_stripes(ino, at)
            assert bad < 0
            seen += stripes
        assert seen == len(nodes.parts(nodes.io.index(io), ino))
    handle = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, size=HUGE, writing=True)
    handle.fallocate(3, 10, HUGE - 20)
    assert handle.seek(10, os.SEEK_DATA) // STRIPE == (HUGE - 3) // STRIPE
    handle.truncate(0)
    handle.truncate(HUGE)
    handle.close()
    assert not any(nodes.parts(node, ino) for node in range(3))
    nodes.stop()
