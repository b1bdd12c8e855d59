"""A node's limit: what is counted, who is asked to make room, and how long a write waits for it."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fsio_nodes import STRIPED, Nodes

STRIPE = 4096
FULL = 3


def content(size: int) -> bytes:
    return random.Random(1).randbytes(size)


class Maker:
    """Answers, in a thread, what a node asks who has no room: by deleting what is given to it."""

    def __init__(self, nodes: Nodes, node: int, spare: list[int]) -> None:
        self.io = nodes.io[node]
        self.spare = spare
        self.asked: list[int] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.ended.is_set():
            if select.select([self.io.fd], [], [], 0.01)[0]:
                for kind, serial, _, wanted, _ in self.io.take():
                    if kind == FULL:
                        self.asked.append(wanted)
                        used = self.io.usage()[0]
                        if self.spare:
                            self.io.whole_delete(self.spare.pop())
                        self.io.room_made(serial, used - self.io.usage()[0])

    def __enter__(self) -> Maker:
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()


def test_who_finds_no_room_waits_until_room_was_made_and_is_refused_when_there_is_none(root: Path) -> None:
    nodes = Nodes(root, 2, limits=(1 << 20, 1 << 20))
    try:
        spare = [nodes.write(1, content(300_000)) for _ in range(3)]
        nodes.io[1].expect_room(5000)
        with Maker(nodes, 1, spare) as maker:
            ino = nodes.new()
            handle = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, writing=True)
            data = content(1 << 20)
            handle.write(data, 0)
            handle.flush()
            assert maker.asked and 0 < len(maker.asked) <= 4 and min(maker.asked) > 0
            assert handle.read(1 << 20, 0) == data
            before = len(spare)
            with pytest.raises(OSError) as refused:
                for at in range(1 << 20, 4 << 20, 1 << 16):
                    handle.write(data[: 1 << 16], at)
                    handle.flush()
            assert refused.value.errno == errno.ENOSPC and before >= len(spare) == 0, "not before all of it has gone"
            with contextlib.suppress(OSError):
                handle.close()
    finally:
        nodes.stop()


def test_nobody_who_makes_room_is_waited_for_too_long(root: Path) -> None:
    nodes = Nodes(root, 1, limits=(1 << 20,))
    try:
        nodes.io[0].expect_room(200)
        handle = nodes.io[0].open(nodes.new(), STRIPED, stripe=STRIPE, writing=True)
        handle.write(bytes(1 << 20), 0)
        for longest_s in (2.0, 0.1):  # the second does not even ask
            began = time.monotonic()
            with pytest.raises(OSError) as refused:
                handle.write(b"x", 2 << 20)
            assert refused.value.errno == errno.ENOSPC and time.monotonic() - began < longest_s
        handle.close()
    finally:
        nodes.stop()


def test_what_a_file_took_is_given_back_when_its_whole_part_or_its_stripes_go(root: Path) -> None:
    nodes = Nodes(root, 1, limits=(1 << 20,))
    try:
        io = nodes.io[0]
        whole, striped = nodes.write(0, content(100_000)), nodes.write(0, content(100_000), stripe=STRIPE)
        used = io.usage()[0]
        io.whole_delete(whole)
        assert nodes.parts(0, whole) == {} and io.usage()[0] <= used - 100_000
        io.stripes_delete(striped)
        assert nodes.parts(0, striped) == {} and io.usage()[0] == 0
    finally:
        nodes.stop()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_without_a_limit_room_is_made_when_the_kernel_refuses(root: Path) -> None:
    command = ["unshare", "--mount", sys.executable, __file__, str(root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr


def fill_two_mounts(root: Path) -> None:
    """On tmpfs of 32 MiB each."""
    nodes = Nodes(root, 2, mounts=True)
    spare = [nodes.write(node, content(12 << 20)) for node in (0, 1)]
    for io in nodes.io:
        io.expect_room(5000)
    data = content(48 << 20)  # half of it fits on each, but not beside what is there
    with Maker(nodes, 0, spare[:1]) as mine, Maker(nodes, 1, spare[1:]) as theirs:
        handle = nodes.io[0].open(nodes.new(), STRIPED, stripe=1 << 19, writing=True)
        handle.write(data, 0)
        handle.flush()
        assert handle.read(len(data), 0) == data
        assert not mine.spare and not theirs.spare
        handle.close()
    nodes.stop()


if __name__ == "__main__":
    fill_two_mounts(Path(sys.argv[1]))
    print("fine")
