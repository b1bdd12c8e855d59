"""Programs on mounts whose files are recorded on other nodes, while nodes come and go: nothing is wrong, lost or stuck."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import commands
import pytest
from fs_session import PATIENCE_S, kill, running

from amfs.net.records import SessionRecord

pytestmark = [
    pytest.mark.soak,
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]
WORKERS = 3


def amfs(*arguments: object) -> None:
    done = commands.run(*map(str, arguments), timeout=PATIENCE_S)
    assert done.returncode == 0, (arguments, done.stderr)


@contextmanager
def mounted(session: SessionRecord, place: Path, nodes: list[int]) -> Iterator[list[Path]]:
    mounts = [place / f"m{node}" for node in nodes]
    for node, mount in zip(nodes, mounts, strict=True):
        mount.mkdir()
        amfs("mount", mount, "--session", session.name, "--node", node)
    try:
        yield mounts
    finally:
        for mount in mounts:
            amfs("umount", mount)


class Workers:
    """Threads that call ``act(worker, round)`` again and again until told to stop."""

    def __init__(self, act: Callable[[int, int], None]) -> None:
        self.rounds = [0] * WORKERS
        self.failures: list[BaseException] = []
        self._stop = False
        self._threads = [threading.Thread(target=self._run, args=(act, worker), daemon=True) for worker in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def _run(self, act: Callable[[int, int], None], worker: int) -> None:
        try:
            while not self._stop:
                act(worker, self.rounds[worker])
                self.rounds[worker] += 1
        except BaseException as failure:
            self.failures.append(failure)

    def until(self, rounds: int) -> None:
        """Wait until each has done so many more."""
        wanted = [now + rounds for now in self.rounds]
        end = time.monotonic() + PATIENCE_S
        while any(now < then for now, then in zip(self.rounds, wanted, strict=True)) and not self.failures:
            assert time.monotonic() < end, f"only {self.rounds} of {wanted} rounds: a call hangs"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a call hangs"
        assert not self.failures, self.failures


def one_life(own: Path, other: Path, name: str) -> None:
    """Of a file, through two mounts; raises what is wrong."""
    data = name.encode() * 3
    with open(own / name, "xb", buffering=0) as file:
        file.write(data)
        assert os.fstat(file.fileno()).st_size == len(data)
    assert os.stat(own / name).st_size == len(data)
    assert (other / name).read_bytes() == data
    with pytest.raises(FileExistsError):
        os.open(other / name, os.O_CREAT | os.O_EXCL)
    os.symlink(name, own / f"{name}.link")
    assert os.readlink(other / f"{name}.link") == name
    os.rename(other / name, own / f"{name}.moved") if own == other else os.rename(own / name, own / f"{name}.moved")
    assert (other / f"{name}.link").is_symlink() and not (other / f"{name}.link").exists()
    os.unlink(own / f"{name}.link")
    assert (own / f"{name}.moved").read_bytes() == data
    os.unlink(other / f"{name}.moved")
    assert not (own / f"{name}.moved").exists() and not (other / name).exists()


def test_nodes_join_while_programs_work(tmp_path: Path) -> None:
    with running(2) as session, mounted(session, tmp_path, [0, 1]) as mounts:
        for worker in range(WORKERS):
            (mounts[0] / f"w{worker}").mkdir()
        workers = Workers(
            lambda worker, i: one_life(mounts[i % 2] / f"w{worker}", mounts[(i + worker) % 2] / f"w{worker}", f"f{worker}.{i}")
        )
        workers.until(20)
        for _ in range(2):
            amfs("node", "--join", session.name, "--detach", "--slots", "1")
            workers.until(20)
        workers.stop()
        for worker in range(WORKERS):
            assert os.listdir(mounts[1] / f"w{worker}") == []
            (mounts[1] / f"w{worker}").rmdir()


def test_nobody_waits_for_a_node_that_is_killed(tmp_path: Path) -> None:
    """Its files are lost; questions to it end, and its heirs answer soon."""
    with running(3) as session, mounted(session, tmp_path, [0]) as mounts:
        place = mounts[0] / "d"
        place.mkdir()
        lost: list[int] = []

        def act(worker: int, i: int) -> None:
            name = place / f"f{worker}.{i}"
            try:
                name.write_bytes(b"x")
                assert name.stat().st_size == 1
                name.unlink()
            except OSError as error:
                assert error.errno in (errno.EIO, errno.ESTALE, errno.ENOENT, errno.EEXIST), error
                lost.append(i)

        workers = Workers(act)
        workers.until(100)
        assert not lost
        kill(session, 2)
        end = time.monotonic() + PATIENCE_S
        while True:  # until it goes on as before
            before = len(lost)
            workers.until(30)
            if len(lost) == before:
                break
            assert time.monotonic() < end, f"after a node has died {len(lost)} calls failed"
        workers.stop()
