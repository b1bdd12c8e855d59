"""The copier through Python: real files and threads. For the sanitisers: csrc/tests/test_copier.c."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from descriptors import open_descriptors
from waiting import until

from amfs._native import Copier
from amfs.node.spill_directory import EXACT

GUARD_SECONDS = 30.0
LARGE = 24 * 1024 * 1024 + 13


def collect(copier: Copier, count: int = 1) -> dict[int, tuple[str, int]]:
    """The next ``count`` completions as {serial: (error, bytes)}; fails instead of hanging."""
    found: dict[int, tuple[str, int]] = {}
    deadline = time.monotonic() + GUARD_SECONDS
    while len(found) < count:
        ready, _, _ = select.select([copier.fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"only {len(found)} of {count} completions"
        for serial, error, size, _ in copier.completions():
            assert serial not in found
            found[serial] = (error, size)
    assert len(found) == count
    return found


def parts_in(path: Path) -> list[str]:
    return [name for _, _, names in os.walk(path) for name in names if name.startswith(".amfs-part-")]


@pytest.fixture
def copier() -> Iterator[Copier]:
    it = Copier(2)
    yield it
    it.stop()


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, (2 << 20) - 1, LARGE])
def test_a_copy_between_memory_and_disk_has_the_mode_and_the_times_of_its_source(copier: Copier, tmp_path: Path, size: int) -> None:
    """There and back, past the page cache where the file systems allow it: pieces and their ends are not always whole blocks."""
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    source, away, back = memory / f"amfs-test-{os.getpid()}", tmp_path / "away", memory / f"amfs-test-{os.getpid()}-back"
    try:
        source.write_bytes(content(size))
        source.chmod(0o550)
        os.utime(source, ns=(1_000_000_007, 1_234_567_890_123_456_789))
        copier.copy(1, str(source), str(away), EXACT, directories=False)
        assert collect(copier) == {1: ("", size)}
        copier.copy(2, str(away), str(back), EXACT, directories=False)
        assert collect(copier) == {2: ("", size)}
        for copy in (away, back):
            assert copy.read_bytes() == content(size)
            facts = copy.stat()
            assert (facts.st_mode & 0o7777, facts.st_mtime_ns) == (0o550, 1_234_567_890_123_456_789)
    finally:
        source.unlink(missing_ok=True)
        back.unlink(missing_ok=True)


# ── copies ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20, LARGE])
def test_copy_gives_content_mode_and_parents(copier: Copier, tmp_path: Path, size: int) -> None:
    source, destination = tmp_path / "source", tmp_path / "deep" / "er" / "copy"
    source.write_bytes(content(size))
    copier.copy(7, str(source), str(destination), 0o640)
    assert collect(copier) == {7: ("", size)}
    assert destination.read_bytes() == content(size)
    assert destination.stat().st_mode & 0o7777 == 0o640
    assert os.listdir(destination.parent) == ["copy"]


def test_copy_across_file_systems(copier: Copier, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(content(3_000_001))
    shared = Path("/dev/shm") / f"amfs-test-copier-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK):
        shared = tmp_path / "same"  # then it is the same file system, and still a copy
    try:
        copier.copy(1, str(source), str(shared / "there"), 0o600)
        assert collect(copier)[1] == ("", 3_000_001)
        assert (shared / "there").read_bytes() == content(3_000_001)
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def test_copy_replaces_atomically_and_readers_of_the_old_keep_it(copier: Copier, tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "destination"
    source.write_bytes(b"new")
    destination.write_bytes(b"old")
    with destination.open("rb") as old:
        copier.copy(1, str(source), str(destination), 0o644)
        assert collect(copier)[1] == ("", 3)
        assert old.read() == b"old"
    assert destination.read_bytes() == b"new"


def test_copy_of_names_that_are_not_text(copier: Copier, tmp_path: Path) -> None:
    source = os.fsdecode(bytes(tmp_path) + b"/s\xff \n")
    with open(source, "wb") as file:
        file.write(b"here")
    copier.copy(1, source, source + "\udcfe", 0o644)
    assert collect(copier)[1] == ("", 4)
    assert os.path.exists(source + "\udcfe")
    copier.copy(2, source + "absent", str(tmp_path / "x"), 0o644)
    error, _ = collect(copier)[2]
    error.encode()  # can be printed
    assert "\\xff" in error


@pytest.mark.parametrize(
    ("source", "destination", "directories", "words"),
    [
        ("absent", "x", True, ["absent", "No such file"]),
        (".", "x", True, ["directory"]),
        ("/dev/zero", "x", True, ["/dev/zero", "not a regular file"]),
        ("file", "nodir/x", False, ["nodir/x", "No such file"]),
        ("file", "file/x", True, ["file", "Not a directory"]),
        ("file", "dir", True, ["rename", "dir", "directory"]),
        ("file", "/proc/self/x", True, ["/proc/self/x"]),
        ("file", "n" * 300, True, ["n" * 300, "name too long"]),
    ],
)
def test_copy_errors_name_path_and_reason(
    copier: Copier, tmp_path: Path, source: str, destination: str, directories: bool, words: list[str]
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "full").touch()
    copier.copy(1, str(tmp_path / source), str(tmp_path / destination), 0o644, directories=directories)
    error, _ = collect(copier)[1]
    for word in words:
        assert word in error
    assert parts_in(tmp_path) == []


def test_many_copies_all_complete(copier: Copier, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * 100)
    for serial in range(500):
        copier.copy(serial, str(tmp_path / "source"), str(tmp_path / f"d{serial % 7}" / str(serial)), 0o444)
    assert collect(copier, 500) == dict.fromkeys(range(500), ("", 100))
    assert sum(len(names) for _, _, names in os.walk(tmp_path)) == 501


@contextlib.contextmanager
def small_tmpfs(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "amfs-test", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs")
def test_full_destination(copier: Copier, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(content(LARGE))
    with small_tmpfs(tmp_path / "small", "4m") as small:
        copier.copy(1, str(source), str(small / "copy"), 0o644)
        done = collect(copier)
        assert "No space left" in done[1][0]
        assert f"{small}/copy" in done[1][0]
        assert parts_in(small) == []
        copier.copy(3, str(source), str(tmp_path / "elsewhere"), 0o644)
        assert collect(copier)[3] == ("", LARGE)


def test_stop_in_the_middle(tmp_path: Path) -> None:
    """Copies under way and queued: all complete as stopped, at once, and nothing is left."""
    before = open_descriptors(), len(os.listdir("/proc/self/task"))
    source = tmp_path / "source"
    with source.open("wb") as file:
        for _ in range(512):
            file.write(b"x" * (1 << 20))  # a hole would be copied at once
    copier = Copier(3)
    for serial in range(20):
        copier.copy(serial, str(source), str(tmp_path / "place" / "copy"), 0o444)
    while len(parts_in(tmp_path)) < 3:
        time.sleep(0.001)
    copier.stop()
    copier.copy(20, str(source), str(tmp_path / "place" / "copy"), 0o444)
    done = collect(copier, 21)
    assert {error for error, _ in done.values()} == {"stopped"}
    assert os.listdir(tmp_path / "place") == []
    copier.stop()
    del copier
    assert open_descriptors() <= before[0]
    until(lambda: len(os.listdir("/proc/self/task")) <= before[1])


# ── the contract ───────────────────────────────────────────────────────────────────────────────────


def test_arguments(copier: Copier) -> None:
    with pytest.raises(ValueError, match="1 to 64 threads"):
        Copier(0)
    with pytest.raises(ValueError, match="NUL"):
        copier.copy(1, "a\0b", "/x", 0)
    assert copier.completions() == []
