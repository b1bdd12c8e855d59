"""An output of a staged task becomes a file of the session, by the real I/O of a node."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs._native import Meta
from amfs.fs.vfs.calls import Operation
from amfs.fs.vfs.machine import FileSystem
from amfs.host import orphans
from amfs.node.core import NodeCore
from amfs.node.file_backend import FileBackend
from amfs.node.loop import Loop
from amfs.node.node_io import NodeIO
from amfs.node.store import Store
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import ClockRead, MoveForTask

KEY = "1/amfs:/out"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Loop, FileSystem, FileBackend]]:
    store = Store(orphans.EMBEDDED, 0, str(tmp_path))
    meta = Meta(0)
    files = FileBackend(0, meta, store.inside)
    files.store_path = store.path_of
    node_io = NodeIO(store, 1, files=files)
    fs = FileSystem(0, meta)
    loop = Loop(NodeCore(m.Member(0, 1, (), 1), store.root, fs=fs), node_io)
    try:
        loop.start()
        yield loop, fs, files
    finally:
        node_io.close()
        store.close()
        loop.close()


def test_an_output_that_was_made_twice_on_a_node_is_whole(node: tuple[Loop, FileSystem, FileBackend]) -> None:
    """The first output stays in the store of the run, and what lies in the session is a link to it: to cut that would cut both."""
    loop, fs, files = node
    source = Path(files.store_path(KEY))
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(b"made by the task")
    sizes: list[int | OSError] = []

    def take_out() -> Operation[None]:
        for serial in (1, 2):
            sizes.append((yield from fs._task_files.move(MoveForTask(serial, False, b"/out", KEY))))

    core = loop.core
    assert core is not None
    loop.post(lambda: fs.calls.spawn(take_out()))
    loop.post(lambda: loop.act(0, core.handle(ClockRead(time.time_ns()), time.monotonic())))
    end = time.monotonic() + 20
    while len(sizes) < 2:
        assert time.monotonic() < end, sizes
        loop.turn(0.01)
    assert sizes == [16, 16]
    assert source.read_bytes() == b"made by the task"
    [part] = [path for path in Path(files.root).rglob("*") if path.is_file() and os.path.samefile(path, source)]
    assert part.read_bytes() == b"made by the task"
