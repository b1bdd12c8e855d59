"""Removed files are gone: memory and descriptors are as before."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torture
from mounting import BY_HAND

PATIENCE_S = 20.0


def used_bytes(top: Path) -> int:
    told = os.statvfs(top)
    return (told.f_blocks - told.f_bfree) * told.f_frsize


def node_processes() -> dict[int, int]:
    """Process → number of its open descriptors, of the node servers below this test."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                if b"amfs" in command and f"posix-{os.getpid()}-".encode() in environment + command:
                    found[int(name)] = len(os.listdir(f"/proc/{name}/fd"))
            except OSError:
                continue
    return found


def fill(top: Path, count: int) -> None:
    top.mkdir()
    for number in range(count):
        (top / f"f{number}").write_bytes(b"x" * (number % 7 * 10_000))
        if number % 5 == 0:
            os.link(top / f"f{number}", top / f"link{number}")


def test_memory_comes_back(mounts: list[Path]) -> None:
    top = mounts[0] / "filled"
    fill(top, 300)
    shutil.rmtree(top)
    time.sleep(0.5)
    before = used_bytes(mounts[0])
    fill(top, 300)
    with open(mounts[-1] / "filled" / "big", "wb") as big:
        big.write(bytes(1 << 20) * 24)
    held = os.open(mounts[0] / "filled" / "big", os.O_RDONLY)
    if not os.environ.get(BY_HAND):  # a directory given by hand may be on a busy file system
        assert used_bytes(mounts[0]) - before > 24 << 20
    shutil.rmtree(mounts[-1] / "filled")
    assert os.pread(held, 10, 20 << 20) == bytes(10)
    os.close(held)
    end = time.monotonic() + PATIENCE_S
    while (left := used_bytes(mounts[0]) - before) > 1 << 20 and time.monotonic() < end:
        time.sleep(0.1)
    assert left <= 1 << 20, f"{left:,} bytes did not come back"


def test_descriptors_come_back(mounts: list[Path], oracle: Path) -> None:
    if os.environ.get(BY_HAND):
        pytest.skip("the servers of a directory given by hand are not known")
    torture.explore(oracle, mounts, random.Random("warm"), 300)
    before = node_processes()
    assert len(before) >= len(mounts), "the node servers were not found"
    for seed in range(3):
        torture.explore(oracle, mounts, random.Random(f"descriptors {seed}"), 500)
    end = time.monotonic() + PATIENCE_S
    while True:
        after = node_processes()
        more = {pid: after[pid] - count for pid, count in before.items() if after.get(pid, 0) > count + 4}
        if not more or time.monotonic() > end:
            break
        time.sleep(0.1)
    assert set(before) <= set(after), "a node server is gone"
    assert not more, f"descriptors kept: {more}"
