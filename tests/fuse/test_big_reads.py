"""Reads of 128 KiB and more of parts that are here go through a pipe: the same bytes, also while somebody cuts the file."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KIB = 1 << 10
MIB = 1 << 20
READ_AHEAD_KIB = 1020  # as amfs mount sets it
ROOM = 2 * MIB
PIPE = 255 * 4096  # bytes that go through a pipe beside the header
WAYS: dict[str, dict[str, Any]] = {
    "copied": {"passthrough": False},
    "opened by the kernel": {"no_open": True},
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def mounted(serve: Any, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Any]]:
    served = serve()
    path, _ = served.mount(**request.param)
    device = os.stat(path).st_dev
    Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text(str(READ_AHEAD_KIB))
    yield path, served


@pytest.fixture
def room() -> Iterator[memoryview]:
    """Memory for reads past the kernel's pages, which go to pages of ours."""
    with mmap.mmap(-1, ROOM) as memory, memoryview(memory) as view:
        yield view


def write_with_holes(path: Path, size: int) -> bytes:
    """Random bytes with holes, some of whole pages, some not, and one at the end."""
    chance = random.Random(size)
    content = bytearray(size)
    with open(path, "wb", buffering=0) as file:
        for at in range(0, size - 200_000, 300_000):
            piece = chance.randbytes(chance.choice((1, 4096, 100_001, 250_000)))[: size - at]
            os.pwrite(file.fileno(), piece, at)
            content[at : at + len(piece)] = piece
        file.truncate(size)
    return bytes(content)


def asked(served: Any) -> int:
    number: int = served.node.mounts[0].active()["requests"]
    return number


def test_every_offset_and_length_reads_as_on_tmpfs(mounted: tuple[Path, Any], room: memoryview) -> None:
    path, served = mounted
    size = 5 * MIB + 4321
    content = write_with_holes(path / "f", size)
    chance = random.Random(1)
    lengths = (131_071, 131_072, 131_073, PIPE, PIPE + 1, MIB, MIB + 1)
    places = [(0, size), (size, 200_000), (size + 5, 200_000), (size - 1, 200_000), (size - 131_073, 131_073), (1, MIB), (4095, PIPE)]
    places += [(chance.randrange(size), chance.choice(lengths)) for _ in range(60)]
    for flags in (0, os.O_DIRECT):
        file = os.open(path / "f", os.O_RDONLY | flags)
        try:
            for offset, length in places:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                length = min(length, ROOM)
                before = asked(served)
                got = os.preadv(file, [room[:length]], offset)
                assert room[:got] == content[offset : offset + length], (flags, offset, length)
                assert asked(served) > before or offset >= size, "the kernel had it: nothing was tested"
        finally:
            os.close(file)


def test_a_big_file_reads_the_same_again_after_its_pages_are_dropped(mounted: tuple[Path, Any]) -> None:
    path, _ = mounted
    content = b"".join(number.to_bytes(8, "little") * 512 for number in range(32 * 256))
    (path / "f").write_bytes(content)
    for _ in range(3):
        with open(path / "f", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.readall() == content


def test_reading_while_another_mount_cuts_the_file(serve: Any, room: memoryview) -> None:
    """The bytes read are of the file, or none are read; and every answer has the length that it says, or the kernel would refuse it."""
    served = serve()
    path, _ = served.mount(**WAYS["copied"])
    other, _ = served.mount(**WAYS["copied"])
    content = bytes(range(1, 252)) * (4 * MIB // 251)
    (path / "f").write_bytes(content)
    stop = threading.Event()

    def cut() -> None:
        chance = random.Random(2)
        with open(other / "f", "r+b", buffering=0) as file:
            while not stop.is_set():
                file.truncate(chance.randrange(len(content)))
                os.pwrite(file.fileno(), content, 0)

    thread = threading.Thread(target=cut)
    thread.start()
    short = 0
    try:
        file = os.open(path / "f", os.O_RDONLY | os.O_DIRECT)
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            for offset in range(0, len(content), 512 * KIB):
                got = os.preadv(file, [room[: 512 * KIB]], offset)
                short += got < min(512 * KIB, len(content) - offset)
                wanted = content[offset : offset + got]
                if room[:got] != wanted:  # zeros where it was cut meanwhile
                    assert all(mine in (0, theirs) for mine, theirs in zip(room[:got], wanted, strict=True))
        os.close(file)
    finally:
        stop.set()
        thread.join()
    assert short > 0, "nothing was cut under a read"
    assert (path / "f").read_bytes() == content and sorted(os.listdir(path)) == ["f"]


def pipes() -> int:
    """How many descriptors of this process are ends of pipes."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            count += os.readlink(f"/proc/self/fd/{each}").startswith("pipe:")
    return count


def test_pipes_are_kept_while_mounted_and_closed_then(serve: Any) -> None:
    served = serve()
    path, fuse = served.mount(**WAYS["opened by the kernel"])
    before = pipes()
    (path / "f").write_bytes(bytes(4 * MIB))
    for _ in range(50):
        with open(path / "f", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert len(file.readall()) == 4 * MIB
    assert before < pipes() <= before + 2 * 9  # one for each thread that reads at a time: the reader, and at most eight workers
    fuse.stop()
    assert pipes() == before
