"""When the last name of a file has gone, and the last program has closed it, no node has its content or its record any more."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fs_session import fine, running
from waiting import until

from amfs.client.files import Files

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]

CONTENT = b"what it contains" * 1000
FILES = 8  # enough that records lie on both nodes


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Of node 0, of node 1, and a second one of node 0."""
    with running(2), ExitStack() as stack:
        places = [tmp_path_factory.mktemp(f"m{number}") for number in range(3)]
        for place, node in zip(places, "010", strict=True):
            fine("mount", str(place), "--node", node)
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False, capture_output=True)
        yield places


def expect_nothing_left() -> None:
    with Files() as files:
        until(lambda: all(used == 0 and count == 0 for _, _, used, count in files.df()), "something is left")


@pytest.mark.parametrize("mode", ["rb", "r+b"])
def test_another_node_reads_or_writes_it_through_its_writer(mounts: list[Path], mode: str) -> None:
    """The mount closes its file first. Its node tells the shard when the other node has closed it, too."""
    for number in range(FILES):
        path, there = (place / f"{mode}{number}" for place in mounts[:2])
        there.write_bytes(CONTENT)  # so the poll loop lets the next writer in
        with path.open("r+b", buffering=0) as writer:
            writer.write(CONTENT)
            with there.open(mode, buffering=0) as other:
                assert other.read(8) == CONTENT[:8]
                writer.close()
        path.unlink()
    expect_nothing_left()


@pytest.mark.parametrize("first", [0, 2])
def test_two_mounts_of_a_node_write_it(mounts: list[Path], first: int) -> None:
    """The one that closes it last says that neither has it open."""
    for number in range(FILES):
        name = f"two{number}"
        (mounts[1] / name).write_bytes(CONTENT)
        with (mounts[first] / name).open("r+b", buffering=0) as one, (mounts[2 - first] / name).open("r+b", buffering=0) as other:
            one.write(b"one")
            other.write(b"two")
            one.close()
        (mounts[0] / name).unlink()
    expect_nothing_left()
