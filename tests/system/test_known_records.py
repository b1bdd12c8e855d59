"""Copies that a node keeps of records of other nodes: it answers from that while it is good, and hears when it is old.

A node that is stopped answers nothing, so the calls meanwhile ask it nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from fs_session import fine, running
from waiting import until

from amfs.net.records import SessionRecord

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]

T = TypeVar("T")

FILES = 16  # enough that the other node has some of their records
HANG_S = 4.0  # a question to a stopped node has no answer; the session does without it after six seconds


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(2) as made:
        yield made


@pytest.fixture(scope="module")
def mounts(session: SessionRecord, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    places = [tmp_path_factory.mktemp(f"m{node}") for node in range(2)]
    with ExitStack() as stack:
        for node, place in enumerate(places):
            fine("mount", str(place), "--node", str(node))
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False, capture_output=True)
        for number in range(FILES):  # a file that is made before threads have connections to the other node is made through Python
            (places[0] / str(number)).write_bytes(b"")
            (places[0] / str(number)).unlink()
        yield places


@pytest.fixture
def written(mounts: list[Path]) -> Iterator[list[int]]:
    """Descriptors of files that node 0 makes and writes."""
    fds = [os.open(mounts[0] / str(number), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644) for number in range(FILES)]
    try:
        for fd in fds:
            os.write(fd, b"x" * 100)
        yield fds
    finally:
        for number, fd in enumerate(fds):
            os.close(fd)
            (mounts[0] / str(number)).unlink()


@pytest.fixture
def closed(mounts: list[Path]) -> Iterator[list[Path]]:
    """Files that node 0 has made, and whose times it has set then."""
    paths = [mounts[0] / str(number) for number in range(FILES)]
    for path in paths:
        path.write_bytes(b"x" * 100)
        os.utime(path, (1, 2))
    yield paths
    for path in paths:
        path.unlink()


@contextmanager
def stopped(session: SessionRecord, node: int) -> Iterator[None]:
    (pid,) = (entry.pid for entry in session.nodes if entry.node == node)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def while_stopped(session: SessionRecord, call: Callable[[], list[T]]) -> list[T]:
    with ThreadPoolExecutor(1) as pool, stopped(session, 1):
        return pool.submit(call).result(HANG_S)


def test_who_writes_a_file_that_it_has_made_knows_what_it_is(session: SessionRecord, written: list[int]) -> None:
    found = while_stopped(session, lambda: [os.fstat(fd) for fd in written])
    assert {(each.st_size, each.st_mode & 0o777, each.st_nlink) for each in found} == {(100, 0o644, 1)}


def test_changes_by_another_node_are_seen_while_it_is_written(mounts: list[Path], written: list[int]) -> None:
    for round_, mode in enumerate((0o600, 0o640)):
        for number, fd in enumerate(written):
            os.fstat(fd)
            (mounts[1] / str(number)).chmod(mode)
            assert os.fstat(fd).st_mode & 0o777 == mode
            os.link(mounts[1] / str(number), mounts[1] / f"{number}-{round_}")
            assert os.fstat(fd).st_nlink == 2
            (mounts[1] / f"{number}-{round_}").unlink()
            assert os.fstat(fd).st_nlink == 1


def test_changes_of_its_own_are_seen_while_it_is_written(mounts: list[Path], written: list[int]) -> None:
    for number, fd in enumerate(written):
        os.fchmod(fd, 0o600)
        os.write(fd, b"more")
        os.utime(mounts[0] / str(number), (1, 2))
        for place in mounts:
            found = (place / str(number)).stat()
            assert (found.st_mode & 0o777, found.st_size, found.st_atime, found.st_mtime) == (0o600, 104, 1, 2)


def test_a_file_whose_times_were_set_is_opened_as_one_that_was_just_written(session: SessionRecord, closed: list[Path]) -> None:
    assert set(while_stopped(session, lambda: [path.read_bytes() for path in closed])) == {b"x" * 100}


def test_what_another_node_writes_then_is_read(mounts: list[Path], closed: list[Path]) -> None:
    for path in closed:
        assert path.read_bytes() == b"x" * 100
        (mounts[1] / path.name).write_bytes(b"newer")
        assert path.read_bytes() == b"newer"
        os.utime(path, (3, 4))
        for place in mounts:
            found = (place / path.name).stat()
            assert (found.st_size, found.st_mtime) == (5, 4)
        assert path.read_bytes() == b"newer"


def test_changes_at_the_same_time_leave_nothing_old(mounts: list[Path], closed: list[Path]) -> None:
    """Answers to this node's own questions may come in another order than they were given in."""

    def change(which: int) -> None:
        for turn in range(5):
            for path in closed:
                (mounts[which % 2] / path.name).chmod(0o600 + which * 8 + turn)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(4)))

    def modes() -> list[set[int]]:
        return [{(place / path.name).stat().st_mode for place in mounts} for path in closed]

    until(lambda: all(len(seen) == 1 for seen in modes()), "two nodes see two modes")
