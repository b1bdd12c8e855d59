"""A mount that ends while something of it waits for another node: the poll loop does not wait with it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any

from peer_meta_nodes import Cluster, Kernel
from waiting import until

from amfs.host import fusemounts
from amfs.host.fusemounts import Serve
from amfs.node.mounts import Mounts
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.events import Event, FsReplied, FsRequested

REMOTE = 1  # kind of a handle, as csrc/data/fsio.h


def test_the_loop_goes_on_while_a_mount_ends_that_waits_for_a_node(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, stall_ms=5000)
    silent = socket.create_server(("127.0.0.1", 0))
    here, ino = cluster.nodes[0], 1 << 40
    here.io.set_peer(1, "127.0.0.1", silent.getsockname()[1])
    mounts = Mounts(0, here.meta, here.io, str(tmp_path), "test")
    events: list[Event] = []

    def served() -> bool:
        events.extend(mounts.collect())
        return bool(mounts.facts())

    def serve(fd: int) -> Any:
        order = Serve("/nowhere", "0:0", passthrough=False)
        threading.Thread(target=fusemounts.ask, args=(str(tmp_path), 0, order, fd)).start()
        until(served, "nobody serves it")
        os.close(fd)

    kernel = Kernel(serve)
    kernel.send(14, ino, struct.pack("<II", os.O_WRONLY, 0))

    def asked() -> list[FsRequested]:
        events.extend(mounts.collect())
        return [event for event in events if isinstance(event, FsRequested) and isinstance(event.request, q.Open)]

    until(asked, "the loop is not asked")
    mounts.reply(FsReplied(asked()[0].token, 0, (REMOTE, 1, 0, 1, 0)))
    kernel.socket.close()
    until(lambda: not served(), "the end is not seen")
    assert here.meta.uses(ino)[1], "the loop waited until that node was heard of"
    here.io.forget_peer(1)
    until(lambda: served() or not any(here.meta.uses(ino)), "it does not end")

    def closed() -> bool:
        return served() or any(isinstance(event, FsRequested) and isinstance(event.request, q.Closed) for event in events)

    until(closed, "nobody says that it is closed")
    mounts.stop()
    with contextlib.suppress(OSError):
        silent.close()
    cluster.stop()
