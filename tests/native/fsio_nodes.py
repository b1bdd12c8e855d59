"""Several data planes in one process, as the nodes of a session; they reach each other over 127.0.0.1."""

from __future__ import annotations

import itertools
import os
import random
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

from data_handshake import KEY

from amfs._native import Io, IoHandle

LOCAL, REMOTE, STRIPED = 0, 1, 2
DONE, GREW, REMOTE_CLOSED = 0, 1, 2
WHOLE = -1
PARTITIONS = 64
GUARD_SECONDS = 30.0
APPEND = 2**64 - 1


class Nodes:
    def __init__(self, root: Path, count: int, limits: Sequence[int] = (), stall_ms: int = 10000, mounts: bool = False) -> None:
        self.root = root
        self.io: list[Io] = []
        self._numbers = itertools.count(2)
        for i in range(count):
            (root / str(i)).mkdir()
            if mounts:
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,huge=within_size", "tmpfs", str(root / str(i))], check=True)
            self.io.append(Io(i, str(root / str(i)), "127.0.0.1", 2, limits[i] if limits else 0, key=KEY))
            self.io[i].set_stall_ms(stall_ms)
        for i in range(count):
            for j in range(count):
                if i != j:
                    self.io[j].set_peer(i, "127.0.0.1", self.io[i].port)
        self.set_table([p % count for p in range(PARTITIONS)])

    def set_table(self, owners: Sequence[int]) -> None:
        for io in self.io:
            io.set_table(owners)

    def new(self) -> int:
        return next(self._numbers) * 0x101 | 1 << 40

    def write(self, node: int, data: bytes, *, stripe: int = 0) -> int:
        """A finished file of these bytes: whole at the node, or striped by it."""
        ino = self.new()
        kind = STRIPED if stripe else LOCAL
        handle = self.io[node].open(ino, kind, stripe=stripe, writing=True, create=True)
        handle.write(data, 0)
        handle.close()
        return ino

    def read(self, node: int, ino: int, kind: int, size: int, *, stripe: int = 0, of: int = -1) -> bytes:
        handle = self.io[node].open(ino, kind, of, stripe, size)
        try:
            return handle.read(size + 10, 0)
        finally:
            handle.close()

    def done(self, node: int) -> tuple[int, int, int, int, int]:
        """The next event of a node."""
        ready, _, _ = select.select([self.io[node].fd], [], [], GUARD_SECONDS)
        assert ready, "nothing happened"
        (event,) = self.io[node].take()
        return event

    def parts(self, node: int, ino: int) -> dict[int, int]:
        """Index -> size of what is there of a file."""
        return {index: size for number, index, size, _ in self.io[node].list_parts() if number == ino}

    def bytes_on_disk(self, node: int) -> int:
        """Of parts: those on their way, or deleted in the background, have names that begin with a dot."""
        entries = [entry for path in (self.root / str(node)).iterdir() for entry in os.scandir(path)]
        return sum(entry.stat().st_blocks * 512 for entry in entries if not entry.name.startswith("."))

    def stop(self) -> None:
        for io in self.io:
            io.stop()


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def close_all(handles: Sequence[IoHandle]) -> None:
    for handle in handles:
        handle.close()
