"""Mounts whose requests come by io_uring. The host's switch is turned on for these tests and put back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from amfs.bench.modes import IO_URING, io_uring_on

WAYS: dict[str, dict[str, Any]] = {"passed": {}, "copied": {"passthrough": False}, "opened by the kernel": {"no_open": True}}

#: Makes, fills, renames and removes files, and checks what is read; the sizes are those at which ways of carrying data change.
BUSY = """
import os, random, sys
top, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
kept = {}
for n in range(150):
    name = f"{top}/{seed}-{n}"
    data = rng.randbytes(rng.choice((0, 1, 4095, 131072, 131073, 1048576, 2500000)))
    with open(name, "xb") as file:
        file.write(data)
    assert os.stat(name).st_size == len(data)
    if n % 3 == 0:
        os.rename(name, name + "x")
        name += "x"
    kept[name] = data
    if len(kept) > 5:
        name, data = kept.popitem() if n % 2 else (first := next(iter(kept)), kept.pop(first))
        with open(name, "rb") as file:
            assert file.read() == data, name
        os.unlink(name)
for name, data in kept.items():
    with open(name, "rb") as file:
        assert file.read() == data, name
"""


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    if not IO_URING.exists():
        pytest.skip("this kernel has no FUSE over io_uring")
    with io_uring_on():
        yield


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_many_at_once(serve: Any, way: dict[str, Any]) -> None:
    path, fuse = serve().mount(io_uring=True, **way)
    assert fuse.active()["io_uring"]
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(path), str(seed)]) for seed in range(4)]
    assert [process.wait(100) for process in busy] == [0, 0, 0, 0]
    assert len(os.listdir(path)) == 4 * 5


def test_it_can_be_declined(serve: Any) -> None:
    assert not serve().mount(io_uring=False)[1].active()["io_uring"]


def test_the_switch_goes_off_while_a_mount_is_made(serve: Any) -> None:
    """The kernel has offered io_uring, and refuses it when it is taken: requests come the other way then."""
    path, fuse = serve().mount(lambda: IO_URING.write_text("N"), io_uring=True)
    assert subprocess.run([sys.executable, "-c", BUSY, str(path), "1"], timeout=60).returncode == 0
    assert not fuse.active()["io_uring"]


def test_long_names_lists_and_values(serve: Any) -> None:
    path, fuse = serve().mount(io_uring=True)
    names = sorted(f"{n:05}" + "n" * 250 for n in range(3000))
    for name in names:
        (path / name).touch()
    assert sorted(os.listdir(path)) == names
    value = os.urandom(60_000)
    os.setxattr(path / names[0], "user.much", value)
    assert os.getxattr(path / names[0], "user.much") == value
    os.symlink("to" * 2000, path / "link")
    assert os.readlink(path / "link") == "to" * 2000
    assert fuse.active()["io_uring"]


def test_more_wait_than_there_is_room_for(serve: Any) -> None:
    """Answers of the poll loop come when all entries of the rings are in use; nothing is lost, and nothing waits for ever."""
    served = serve()
    path, _ = served.mount(io_uring=True)
    makers = [threading.Thread(target=lambda n=n: (path / f"d{n}").mkdir()) for n in range(100)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert sum(entry.is_dir() for entry in path.iterdir()) == 100
    assert served.node.slow.count("mkdir") == 100


def test_waiting_requests_end_with_the_mount(serve: Any) -> None:
    served = serve()
    path, fuse = served.mount(io_uring=True)
    served.ending = True
    served.thread.join()  # nobody answers what comes the long way
    waiting = subprocess.Popen(["mkdir", str(path / "never")], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while fuse.active()["slow"] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    fuse.stop()
    assert waiting.wait(20) != 0
    assert fuse.ended
