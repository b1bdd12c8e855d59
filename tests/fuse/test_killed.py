"""A process that serves a mount is killed while the kernel, told of a change, waits for a request that the process has taken."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from waiting import until

from amfs._native import fuse_unmount
from amfs.vocabulary.attr import STRIPED, Attr

SERVER = """
import os, sys
sys.path.insert(0, {tests!r})
from onenode import PARTITIONS, OneNode
from amfs._native import fuse_mount
from amfs.host import fusemounts
from amfs.node.aborter import Aborter
from amfs.node.keeper import Keeper

node = OneNode(sys.argv[1])
node.io.set_peer(1, "127.0.0.1", int(sys.argv[3]))
node.io.set_table([1] * PARTITIONS)  # every stripe is at a node that never answers
ino = node.meta.create(1, b"f", 1, 0, None, {record})[0]
node.meta.open(ino, 0, True)
node.meta.wrote(ino, 0, {record})
node.meta.unused(ino, 0)
keeper = Keeper() if sys.argv[4] == "namespace" else None
mount = node.mount(keeper.mount(sys.argv[2], "amfs:test") if keeper else fuse_mount(sys.argv[2], "amfs:test", True), passthrough=False)
aborter = Aborter()
if not keeper:
    aborter.add(fusemounts.at(sys.argv[2]).device)
with open(sys.argv[1] + "/way", "w") as way:
    way.write(f"/proc/{{keeper.pid}}/root" if keeper else "/")  # by which others get there
told = False
while True:
    for unique, op, args, *_ in mount.requests():
        if op == "open":
            mount.reply_open(unique, 2, -1, 4096, 8192, 0)
        elif unique:
            mount.reply_error(unique, 95)
    node.poll.poll(0.05)
    if not told and os.path.exists(sys.argv[1] + "/tell"):
        told = bool(mount.stale(ino))
"""
RECORD = Attr(mode=0o100644, layout=STRIPED, stripe=4096, size=8192, finished=1)


class Server(NamedTuple):
    process: subprocess.Popen[bytes]
    silent: socket.socket  # the node that has all stripes
    file: Path


def states(pid: int) -> list[str]:
    """Of its threads, a letter each."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found


@pytest.fixture(params=["direct", "namespace"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    path, store = tmp_path / "mount", tmp_path / "store"
    path.mkdir()
    store.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        script = SERVER.format(tests=str(Path(__file__).parent), record=tuple(RECORD))
        arguments = [sys.executable, "-c", script, str(store), str(path), str(silent.getsockname()[1]), request.param]
        process = subprocess.Popen(arguments)
        try:
            until(lambda: (store / "way").exists() and (store / "way").read_text(), "it is not mounted")
            there = Path(f"{(store / 'way').read_text()}{path}")
            until(there.is_mount)
            yield Server(process, silent, there / "f")
        finally:
            process.kill()
            with contextlib.suppress(OSError):  # it may be gone with its namespace
                fuse_unmount(str(path), 3)
            process.wait()


def test_whoever_waits_for_it_is_told(server: Server, tmp_path: Path) -> None:
    """The thread that tells the kernel waits for the pages that are being read, and cannot be killed until they have been."""
    said: list[int | None] = []

    def read() -> None:
        try:
            server.file.read_bytes()
        except OSError as error:
            said.append(error.errno)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    server.silent.settimeout(20)
    with server.silent.accept()[0]:  # it has been asked for the pages
        (tmp_path / "store" / "tell").touch()
        until(lambda: "D" in states(server.process.pid), "the kernel does not wait")
        server.process.send_signal(signal.SIGKILL)
        reader.join(20)
    assert said and said[0] in (errno.ENOTCONN, errno.ECONNABORTED)
