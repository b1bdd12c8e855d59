"""A large file from one process's store to another's, as two nodes do it. ``python -m amfs.bench.transfer DIRECTORY BYTES`` is the holder.

Only the data server and its client, without a workflow or control messages: the data path is compared with raw TCP. The key comes on
standard input.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amfs._native import Io
from amfs.bench.process import Failed, Partner

_HANG_SECONDS = 60.0
_FILE = "amfs-bench-large"
_MOUNT_BYTES = 1 << 30


@contextmanager
def huge_pages(directory: Path) -> Iterator[bool]:
    """Mount a tmpfs with huge pages on ``directory`` for the time being. False: this system or user may not."""
    options = f"huge=within_size,mode=0700,size={_MOUNT_BYTES}"
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "amfs-bench", str(directory)]
        mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], capture_output=True, check=False)


def serve(directory: str, size: int) -> None:
    """The holder: makes the file and serves it until standard input ends."""
    key = bytes.fromhex(sys.stdin.readline())
    path = Path(directory) / _FILE
    block = bytes(range(256)) * 4096
    with path.open("wb") as file:
        for start in range(0, size, len(block)):
            file.write(block[: min(len(block), size - start)])
    with _parts(directory) as parts:
        io = Io(0, parts, "127.0.0.1", key=key, store=directory)
        try:
            io.set_peer(1, "", 0)
            print(io.port, flush=True)
            sys.stdin.read()
        finally:
            io.stop()
            path.unlink()


@contextmanager
def _parts(directory: str) -> Iterator[str]:
    """A place for what a data server has beside the store."""
    place = tempfile.mkdtemp(prefix="parts-", dir=directory)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def fetch_seconds(directory: str, size: int, times: int) -> list[float]:
    """Seconds for each of ``times`` fetches of ``size`` bytes, from the request to the finished file. Raises Failed."""
    command = [sys.executable, "-m", "amfs.bench.transfer", directory, str(size)]
    key = os.urandom(32)
    destination = Path(directory) / f"{_FILE}-fetched"
    seconds = []
    with _parts(directory) as parts, Partner("the process that holds the file", command) as holder:
        io = Io(1, parts, "", key=key)
        try:
            holder.say(key.hex())
            io.set_peer(0, "127.0.0.1", int(holder.hear()))
            for serial in range(times):
                started = time.perf_counter()
                io.fetch_stored(serial, 0, _FILE, size, str(destination), 0o444)
                if not select.select([io.fd], [], [], _HANG_SECONDS)[0]:
                    raise Failed(f"a transfer of {size} bytes did not end within {_HANG_SECONDS:.0f} s")
                seconds.append(time.perf_counter() - started)
                ((_kind, _serial, _ino, _size, error),) = io.take()
                if error:
                    raise Failed(os.strerror(error))
                destination.unlink()
            return seconds
        finally:
            io.stop()
            destination.unlink(missing_ok=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
