"""The native mount over one node: open files, kept ones, news for the kernel, with each way of getting at the bytes."""

from __future__ import annotations

import contextlib
import errno
import mmap
import multiprocessing
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import until

WAYS: dict[str, dict[str, Any]] = {"passed": {}, "copied": {"passthrough": False}, "opened by the kernel": {"no_open": True}}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


def test_what_the_kernel_grants_is_said(serve: Any) -> None:
    active = serve().mount()[1].active()
    assert active["started"] and active["passthrough"] and active["max_write"] == 1 << 20 and not active["no_open"]


def test_bytes(serve: Any, way: dict[str, Any]) -> None:
    path, _ = serve().mount(**way)
    data = os.urandom(3_000_000)
    (path / "f").write_bytes(data)
    assert (path / "f").read_bytes() == data
    with open(path / "f", "r+b", buffering=0) as file:
        file.seek(4_000_000)
        file.write(b"end")
        assert os.fstat(file.fileno()).st_size == 4_000_003
        with mmap.mmap(file.fileno(), 0) as view:
            assert view[2_999_999:3_000_002] == data[-1:] + b"\0\0"
            view[10:14] = b"mmap"
        os.ftruncate(file.fileno(), 20)
    assert (path / "f").read_bytes() == data[:10] + b"mmap" + data[14:20]
    with open(path / "f", "ab") as file:
        file.write(b"more")
    assert (path / "f").stat().st_size == 24
    open(path / "f", "wb").close()
    assert (path / "f").stat().st_size == 0


def test_sizes_and_times_are_those_of_the_data_while_it_is_written(serve: Any, way: dict[str, Any]) -> None:
    path, _ = serve().mount(**way)
    with open(path / "f", "wb", buffering=0) as file:
        for size in (1, 5000, 5001):
            file.write(b"x" * (size - os.fstat(file.fileno()).st_size))
            assert (path / "f").stat().st_size == os.fstat(file.fileno()).st_size == size
        os.utime(file.fileno(), ns=(10**18, 10**18 + 1))
        assert (path / "f").stat().st_mtime_ns == 10**18 + 1
    assert ((path / "f").stat().st_atime_ns, (path / "f").stat().st_mtime_ns) == (10**18, 10**18 + 1)


def test_a_removed_file_lives_as_long_as_it_is_open(serve: Any, way: dict[str, Any]) -> None:
    served = serve()
    path, _ = served.mount(**way)
    (path / "f").write_bytes(b"old")
    with open(path / "f", "r+b", buffering=0) as file:
        (path / "f").unlink()
        file.write(b"new")
        assert os.pread(file.fileno(), 9, 0) == b"new" and os.fstat(file.fileno()).st_nlink == 0
    (path / "g").write_bytes(b"1")
    with open(path / "g", "rb") as file:
        (path / "h").write_bytes(b"2")
        (path / "h").rename(path / "g")
        assert file.read() == b"1"
    (path / "g").unlink()
    until(lambda: not served.node.io.list_parts())
    assert served.node.meta.counts()["inodes"] == 0


def test_nothing_is_left_open(serve: Any, way: dict[str, Any]) -> None:
    served = serve()
    path, _ = served.mount(**way)
    before = len(os.listdir("/proc/self/fd"))
    inodes = []
    for number in range(200):
        (path / str(number)).write_bytes(b"x")
        inodes.append((path / str(number)).stat().st_ino)
        (path / str(number)).read_bytes()
    until(lambda: all(served.node.meta.getattr(ino, 0)[8] for ino in inodes))  # finished
    until(lambda: not any(any(served.node.meta.uses(ino)) for ino in inodes))
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    served.node.meta.check()


def test_a_file_has_a_digest_soon_after_it_was_closed(serve: Any, way: dict[str, Any]) -> None:
    """Nobody has to send it or to ask: a single question has it taken, so each file is asked about once."""
    served = serve()
    path, _ = served.mount(**way)
    for number in range(8):
        (path / str(number)).write_bytes(os.urandom(100_000))
        ino = (path / str(number)).stat().st_ino
        time.sleep(0.05 * 2**number)
        if served.node.io.check_part(ino)[0] == 1:
            return
    pytest.fail("no digest was taken")


def test_a_listing_is_whole_while_it_is_emptied(serve: Any) -> None:
    path, _ = serve().mount()
    for number in range(3000):
        (path / f"name-{number}").touch()
    assert sorted(os.listdir(path)) == sorted(f"name-{number}" for number in range(3000))
    with os.scandir(path) as listing:
        for entry in listing:
            assert entry.stat(follow_symlinks=False).st_size == 0
            os.unlink(entry.path)
    assert os.listdir(path) == []


def test_names_that_are_not_there_are_known(serve: Any) -> None:
    """Once asked, never again: until somebody makes one."""
    served = serve()
    path, fuse = served.mount()
    other, _ = served.mount()
    assert not (path / "f").exists()
    before = fuse.active()["requests"]
    assert not any((path / "f").exists() for _ in range(50))
    assert fuse.active()["requests"] == before
    (other / "f").write_bytes(b"x")
    until(lambda: (path / "f").exists())


def test_mounts_of_one_node_agree(serve: Any, way: dict[str, Any]) -> None:
    served = serve()
    a, _ = served.mount(**way)
    b, _ = served.mount(**way)
    (a / "d").mkdir()
    for number in range(10):
        (a / "d" / "f").write_bytes(b"%d" % number)
        until(lambda number=number: (b / "d" / "f").exists() and (b / "d" / "f").read_bytes() == b"%d" % number)  # type: ignore[misc]
        (b / "d" / "f").chmod(0o600 + number)
        until(lambda number=number: (a / "d" / "f").stat().st_mode & 0o777 == 0o600 + number)  # type: ignore[misc]
    (b / "d" / "f").rename(b / "g")
    until(lambda: not (a / "d" / "f").exists() and (a / "g").exists())


def test_a_limit_holds(serve: Any) -> None:
    path, _ = serve(limit=4 << 20).mount()
    with pytest.raises(OSError) as refused, open(path / "f", "wb", buffering=0) as file:
        for _ in range(16):
            file.write(bytes(1 << 20))
    assert refused.value.errno == errno.ENOSPC


def test_what_is_not_this_nodes_business_goes_the_long_way(serve: Any) -> None:
    served = serve()
    path, fuse = served.mount()
    (path / "d").mkdir()
    (path / "d").rename(path / "e")
    (path / "e" / "f").write_bytes(b"")
    with pytest.raises(OSError) as refused:
        (path / "e").rmdir()
    assert refused.value.errno == errno.ENOTEMPTY
    (path / "e" / "f").unlink()
    (path / "e").rmdir()
    assert served.node.slow == ["mkdir", "rename", "rmdir", "rmdir"] and fuse.active()["slow"] == 4
    with pytest.raises(LookupError):
        fuse.reply_error(12345678, 0)


def test_waiting_requests_end_with_the_mount(serve: Any) -> None:
    served = serve()
    path, fuse = served.mount()
    served.node.do_mkdir = lambda *args: None  # never answered
    waiting = subprocess.Popen(["mkdir", str(path / "d")], stderr=subprocess.DEVNULL)
    until(lambda: "mkdir" in served.node.slow)
    assert waiting.poll() is None
    fuse.stop()
    assert waiting.wait(20) == 1


def _remove_by_another_node(served: Any, directory: int, name: bytes) -> None:
    ino, _, _ = served.node.meta.lookup(directory, name, 0)
    served.node.meta.remove(directory, name, 0, ino)


@pytest.mark.parametrize("epochs", [True, False])
def test_name_in_a_busy_directory_is_forgotten_when_that_is_acknowledged(serve: Any, epochs: bool) -> None:
    """To forget an entry takes its directory's lock, which a process may hold that waits for us."""
    served = serve()
    path, fuse = served.mount(epochs=epochs)
    for name in ("f", "g"):
        (path / name).touch()
    os.stat(path / "f")
    asked: list[int] = []
    served.node.do_mkdir = lambda mount, unique, *args: asked.append(unique)
    waiting = subprocess.Popen(["mkdir", str(path / "d")], stderr=subprocess.DEVNULL)
    until(lambda: bool(asked))
    _remove_by_another_node(served, 1, b"f")
    fuse.await_invalidated(fuse.invalidate_entry(1, b"f"))
    looking = subprocess.Popen(["stat", str(path / "f")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        looking.wait(0.1)  # it finds the name in the kernel, or waits for the lock, too
    fuse.reply_error(asked[0], errno.EIO)
    assert looking.wait(20) == 1 and waiting.wait(20) == 1


def _stat_twice(path: Path, count: int, cpu: int, line: Any) -> None:
    """Look at the mode of each file, and once more when told; on a processor that another process has most of the time."""
    os.sched_setaffinity(0, {cpu})
    os.nice(19)
    for number in range(count):
        line.recv()
        os.stat(path / f"f{number}")
        line.send(None)
        line.recv()
        line.send(stat.S_IMODE(os.stat(path / f"f{number}").st_mode))


def test_change_before_who_looked_a_file_up_runs_again(serve: Any) -> None:
    """Only then the kernel has the inode, and the answer about it: earlier news is lost on it."""
    count = 8
    served = serve()
    path, fuse = served.mount()
    meta = served.node.meta
    fork = multiprocessing.get_context("fork")
    line, far_end = fork.Pipe()
    cpu = max(os.sched_getaffinity(0))
    looking = fork.Process(target=_stat_twice, args=(path, count, cpu, far_end))
    looking.start()
    hog = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    try:
        for number in range(count):
            attr = (0, stat.S_IFREG | 0o644, 1, 0, 0, 0, 0, 0, 1, -1, -1, 0, 0, 0, 0, 0)
            ino = meta.create(1, f"f{number}".encode(), time.time_ns(), 0, None, attr)[0]
            before = fuse.active()["requests"]
            line.send(None)
            until(lambda before=before: fuse.active()["requests"] > before)  # type: ignore[misc]
            meta.setattr(ino, 1, (ino, 0o600, *attr[2:]), time.time_ns(), 1)
            fuse.await_invalidated(fuse.stale(ino))
            line.recv()
            line.send(None)
            assert line.recv() == 0o600, f"of file {number} the kernel was told, and says what was so before"
    finally:
        for process in (hog, looking):
            process.kill()
        hog.wait()
        looking.join()


def test_busy_directory_holds_up_nothing_else(serve: Any) -> None:
    """Neither names elsewhere nor attributes; and what is said of it is not taken for what is said of others."""
    served = serve()
    path, fuse = served.mount()
    for name in ("busy", "other"):
        (path / name).mkdir()
    for name in ("busy/f", "other/f", "other/g"):
        (path / name).touch()
        os.stat(path / name)
    busy, other = (os.stat(path / name).st_ino for name in ("busy", "other"))
    asked: list[int] = []
    served.node.do_mkdir = lambda mount, unique, *args: asked.append(unique)
    waiting = subprocess.Popen(["mkdir", str(path / "busy" / "d")], stderr=subprocess.DEVNULL)
    until(lambda: bool(asked))
    fuse.invalidate_entry(busy, b"f")  # nobody waits for this one
    time.sleep(0.06)
    for _ in range(200):  # more than once, for it may be told in time by chance
        _remove_by_another_node(served, other, b"f")
        fuse.await_invalidated(fuse.invalidate_entry(other, b"f"))
        assert not (path / "other" / "f").exists()
        (path / "other" / "f").touch()
    fuse.reply_error(asked[0], errno.EIO)
    assert waiting.wait(20) == 1


def test_bad_arguments(serve: Any, tmp_path: Path) -> None:
    served = serve()
    from amfs._native import Fuse, fuse_mount, fuse_unmount

    with pytest.raises(TypeError):
        Fuse(os.open("/dev/null", os.O_RDWR), served.node.meta, served.node.meta)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="time-outs"):
        Fuse(os.open("/dev/null", os.O_RDWR), served.node.meta, served.node.io, attr_s=-1)
    with pytest.raises(FileNotFoundError):
        fuse_mount(str(tmp_path / "none"), "amfs:x", True)
    with pytest.raises(OSError):
        fuse_unmount(str(tmp_path), 0)
