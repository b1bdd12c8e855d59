"""Programs on several nodes that append to one file and close it after each line, as ``echo line >> log`` does: no line may be lost."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import mounting
import pytest
from daily import daily

NODES = 3
ROUNDS = 2  # without readers, and with them


@pytest.fixture(scope="module", params=["", "--layout striped"], ids=["whole", "striped"])
def shared(request: pytest.FixtureRequest) -> Iterator[list[Path]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mounting.LAYOUT, request.param)
        patch.delenv(mounting.BY_HAND, raising=False)
        with mounting.mounted(NODES) as directories:
            yield directories


def line(who: int, number: int) -> bytes:
    return f"{who} {number} {'x' * (5 + number % 40)}\n".encode()


def append(path: Path, who: int, lines: int) -> None:
    for number in range(lines):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        data = line(who, number)
        assert os.write(fd, data) == len(data)
        os.close(fd)


@pytest.mark.parametrize(
    ("nodes", "each", "lines"),
    daily([(2, 1, 100), (2, 2, 60), (3, 2, 40)], (3, 2, 40), several=True),
)
def test_no_line_is_lost(shared: list[Path], nodes: int, each: int, lines: int) -> None:
    """Whether or not every node has it open for reading, as ``tail -f log`` has."""
    start = multiprocessing.get_context("forkserver")
    for turn in range(ROUNDS):
        name = f"log-{nodes}-{each}-{turn}"
        followers = [os.open(mount / name, os.O_RDONLY | os.O_CREAT, 0o644) for mount in shared if turn % 2]
        writers = [
            start.Process(target=append, args=(shared[who % nodes] / name, who, lines), daemon=True) for who in range(nodes * each)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(mounting.PATIENCE_S)
        assert [writer.exitcode for writer in writers] == [0] * len(writers)
        wanted = sorted(line(who, number) for who in range(nodes * each) for number in range(lines))
        for mount in shared:
            assert sorted((mount / name).read_bytes().splitlines(keepends=True)) == wanted
        for follower in followers:
            os.close(follower)
