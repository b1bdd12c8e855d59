"""The poll loop with a real node in it: a work that ends at once leads to the next, however long that goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs._native import Meta
from amfs.fs.vfs.calls import Operation, work
from amfs.fs.vfs.machine import FileSystem
from amfs.host import orphans
from amfs.node.core import NodeCore
from amfs.node.file_backend import FileBackend
from amfs.node.loop import Loop
from amfs.node.node_io import NodeIO
from amfs.node.store import Store
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import ClockRead, Event
from amfs.vocabulary.fs_works import ReportUsage

LONG = 5000  # more steps than Python nests calls


class Busy:
    """An operation of many steps, each of which ends at once."""

    steps = 0

    def long(self, count: int) -> Operation[None]:
        for _ in range(count):
            yield from work(ReportUsage())
            self.steps += 1


class Collecting(NodeIO):
    """Counts how often it is looked what came from outside."""

    looks = 0

    def collect(self) -> list[Event]:
        self.looks += 1
        return super().collect()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Loop, Collecting]]:
    store = Store(orphans.EMBEDDED, 0, str(tmp_path))
    meta = Meta(0)
    node_io = Collecting(store, 1, files=FileBackend(0, meta, store.inside))
    fs = FileSystem(0, meta)
    loop = Loop(NodeCore(m.Member(0, 1, (), 1), store.root, fs=fs), node_io)
    try:
        loop.start()
        yield loop, node_io
    finally:
        node_io.close()
        store.close()
        loop.close()


def test_operation_of_many_immediate_steps_ends(node: tuple[Loop, Collecting]) -> None:
    loop, node_io = node
    core, busy = loop.core, Busy()
    assert core is not None and core.fs is not None
    calls = core.fs.calls
    loop.post(lambda: calls.spawn(busy.long(LONG)))
    loop.post(lambda: loop.act(0, core.handle(ClockRead(time.time_ns()), time.monotonic())))
    looks = node_io.looks
    loop.turn(0.01)
    assert busy.steps == LONG
    # Questions of others meanwhile wait for the loop's next turn: else one that never stops asking keeps it from its timers and peers.
    assert node_io.looks - looks <= loop.turns


def test_a_call_for_a_closed_loop_writes_to_no_other_file() -> None:
    """A thread that reads a document may end later than its run. The number of the closed loop's descriptor is another file's by then."""
    loop = Loop()
    number = loop.wake_fd
    loop.close()
    other = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        assert other == number, "the number is not taken again: the test proves nothing"
        loop.post(lambda: None)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    finally:
        os.close(other)
