"""A large file from one process's store to another's, as two nodes do it. ``python -m amfs.bench.transfer DIRECTORY BYTES`` is the holder.

Only the movers, without a workflow or control messages: the data path is compared with raw TCP.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amfs._native import Mover
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
    """The holder: makes the file, then gives a ticket for each line on standard input."""
    path = Path(directory) / _FILE
    block = bytes(range(256)) * 4096
    with path.open("wb") as file:
        for start in range(0, size, len(block)):
            file.write(block[: min(len(block), size - start)])
    mover = Mover(1, listen="127.0.0.1")
    try:
        print(mover.port, flush=True)
        for _line in sys.stdin:
            print(mover.offer(str(path)).hex(), flush=True)
    finally:
        mover.stop()
        path.unlink()


def fetch_seconds(directory: str, size: int, times: int) -> list[float]:
    """Seconds for each of ``times`` fetches of ``size`` bytes, from the request to the finished file. Raises Failed."""
    command = [sys.executable, "-m", "amfs.bench.transfer", directory, str(size)]
    mover = Mover(1)
    destination = Path(directory) / f"{_FILE}-fetched"
    seconds = []
    with Partner("the process that holds the file", command) as holder:
        try:
            port = int(holder.hear())
            for serial in range(times):
                holder.say("another")
                ticket = bytes.fromhex(holder.hear())
                started = time.perf_counter()
                mover.fetch(serial, "127.0.0.1", port, ticket, size, str(destination), 0o444)
                if not select.select([mover.fd], [], [], _HANG_SECONDS)[0]:
                    raise Failed(f"a transfer of {size} bytes did not end within {_HANG_SECONDS:.0f} s")
                seconds.append(time.perf_counter() - started)
                ((_, error, _moved),) = mover.completions()
                if error:
                    raise Failed(error)
                destination.unlink()
            return seconds
        finally:
            mover.stop()
            destination.unlink(missing_ok=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
