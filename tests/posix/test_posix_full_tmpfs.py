"""Nodes without a limit, each on a small tmpfs of its own: the kernel says when there is no room."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import mounting
import pytest

PATIENCE_S = 30.0
SIZES = (32 << 20, 20 << 20)  # so that it is the other node that refuses first


@pytest.fixture(params=["", "--no-passthrough", "--cache open"])
def mounts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """A mount on each of two nodes."""
    try:
        mounting.needed()
    except mounting.NotHere as missing:
        pytest.fail(f"{missing} (or set {mounting.NO_FUSE}=1 to leave this out)", pytrace=False)
    with ExitStack() as ending:
        base = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="amfs-full-", dir="/tmp")))
        stores, paths = [[base / f"{what}{node}" for node in (0, 1)] for what in ("store", "mount")]
        for path in [*stores, *paths]:
            path.mkdir()
        for store, size in zip(stores, SIZES, strict=True):
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(store)], check=True)
            ending.callback(subprocess.run, ["umount", str(store)], check=True)
        monkeypatch.setenv(mounting.SESSION_OPTIONS, f"--store {stores[0]}")
        monkeypatch.setenv(mounting.OPTIONS, request.param)
        session = mounting.start_session(1)
        ending.callback(mounting.stop_session, session)
        session.amfs("node", "--join", session.name, "--detach", "--slots", "1", "--store", str(stores[1]))
        for node, path in enumerate(paths):
            mounting.mount(session, node, path)
            ending.callback(mounting.umount, session, path)
        yield paths


def test_what_was_written_is_there_and_what_has_no_place_is_refused_by_the_write(
    mounts: list[Path], request: pytest.FixtureRequest
) -> None:
    """A whole file goes on in stripes when its node is full, but where the kernel writes it by itself; nobody waits for ``close`` to learn
    that all nodes are."""
    here, there = (mount / "file" for mount in mounts)
    step = random.Random(1).randbytes(300_000)
    written = 0
    with open(here, "wb", buffering=0) as file:
        with pytest.raises(OSError) as refused:
            while written < 2 * sum(SIZES):
                written += file.write(step)
        assert refused.value.errno == errno.ENOSPC
    limit = SIZES[0] if request.node.callspec.params["mounts"] == "" else 2 * SIZES[1]
    assert 0.9 * limit < written < 1.1 * limit
    for path in (here, there):
        with open(path, "rb") as file:
            for at in range(0, written, len(step)):
                assert file.read(min(len(step), written - at)) == step[: written - at], at
    os.unlink(there)
    end = time.monotonic() + PATIENCE_S
    while os.statvfs(mounts[0]).f_bavail * os.statvfs(mounts[0]).f_bsize < 0.9 * sum(SIZES):  # its stripes go after the answer
        assert time.monotonic() < end, "the room of a deleted file is not free"
        time.sleep(0.01)
    (mounts[1] / "again").write_bytes(step * 60)
    assert (mounts[0] / "again").read_bytes() == step * 60
