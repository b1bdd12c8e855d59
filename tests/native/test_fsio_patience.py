"""How long a program waits for stripes of a node that does not let this one in: as when this node was taken for dead."""

from __future__ import annotations

import errno
import socket
import threading
import time
from pathlib import Path

import pytest
from fsio_nodes import PARTITIONS, STRIPED, Nodes

COPIED = 1 << 31  # csrc/data/fsio.h: its stripes have copies, so a node that cannot be reached may be replaced by the next table
SLOW_S = 0.3


def test_tries_that_take_long_count_as_waiting(tmp_path: Path) -> None:
    """Only the pauses between the tries counted: a node that was fenced in the middle of a write did not end (chaos seed 5018)."""
    nodes = Nodes(tmp_path, 1, stall_ms=500)
    door = socket.create_server(("127.0.0.1", 0))
    calls = 0

    def turn_away() -> None:
        nonlocal calls
        while True:
            try:
                line, _ = door.accept()
            except OSError:
                return
            calls += 1
            time.sleep(SLOW_S)
            line.close()

    threading.Thread(target=turn_away, daemon=True).start()
    io = nodes.io[0]
    io.set_peer(1, "127.0.0.1", door.getsockname()[1])
    io.set_table([1] * PARTITIONS)
    try:
        handle = io.open(nodes.new(), STRIPED, stripe=4096 | COPIED, writing=True, create=True)
        with pytest.raises(OSError) as caught:
            handle.write(b"x" * 100, 0)
            handle.flush()
        assert caught.value.errno == errno.EIO
        assert 0 < calls < 12, "each took longer than half of the patience"
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()
        nodes.stop()
