"""Files that a program keeps open on one node while others on other nodes write them: whoever opens them afterwards sees, and writes to,
what they contain by then, whatever the kernel still has of them for the one who kept them open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import mounting
import pytest


@pytest.fixture(scope="module", params=["", "--no-passthrough", "--cache open"], ids=["passed", "copied", "cached"])
def two(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Path]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mounting.OPTIONS, request.param)
        patch.delenv(mounting.BY_HAND, raising=False)
        with mounting.mounted(2) as (here, there):
            yield here, there


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def places(request: pytest.FixtureRequest, two: tuple[Path, Path]) -> tuple[Path, Path]:
    """Who keeps the file open, and who writes it: the node that has its record is either."""
    return two if request.param else (two[1], two[0])


@pytest.fixture
def held(request: pytest.FixtureRequest, places: tuple[Path, Path]) -> Iterator[tuple[Path, Path, int]]:
    """A file with the content ``old``, its path here and there, and a descriptor on which it was read and is kept open here."""
    here, there = (place / request.node.name for place in places)
    there.write_bytes(b"old")
    fd = os.open(here, os.O_RDONLY)
    assert os.read(fd, 10) == b"old"
    yield here, there, fd
    os.close(fd)
    here.unlink()


def append(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    assert os.write(fd, data) == len(data)
    os.close(fd)


def test_who_opens_it_after_a_close_sees_all_of_it(held: tuple[Path, Path, int]) -> None:
    here, there, fd = held
    for n in range(4):
        append(there, b" and %d" % n)
        wanted = b"old" + b"".join(b" and %d" % m for m in range(n + 1))
        assert here.read_bytes() == wanted
        assert here.stat().st_size == len(wanted)
        assert wanted.startswith(os.pread(fd, 100, 0)), "what it was, or what it is"
    there.write_bytes(b"anew")
    assert here.read_bytes() == b"anew"


def test_several_who_came_at_different_times_each_read_on(held: tuple[Path, Path, int]) -> None:
    here, there, fd = held
    followers = [(fd, 3)]
    for n in range(1, 4):
        append(there, b"%d" % n)
        follower = os.open(here, os.O_RDONLY)
        assert os.pread(follower, 100, 0) == b"old123"[: 3 + n]
        followers.append((follower, 3 + n))
    for follower, seen in followers:
        assert os.pread(follower, 100, 0)[:seen] == b"old123"[:seen]
    for follower, _ in followers[1:]:
        os.close(follower)
    assert here.read_bytes() == b"old123"


def test_what_is_written_here_while_another_writes_it_there_is_kept(held: tuple[Path, Path, int]) -> None:
    here, there, _ = held
    writer = os.open(there, os.O_WRONLY | os.O_APPEND)
    os.write(writer, b" there")
    append(here, b" here")
    os.write(writer, b" again")
    os.close(writer)
    for path in (here, there):
        assert path.read_bytes() == b"old there here again"


def test_what_is_written_here_afterwards_is_kept(held: tuple[Path, Path, int]) -> None:
    here, there, _ = held
    append(there, b" there")
    append(here, b" here")
    append(there, b" again")
    for path in (here, there):
        assert path.read_bytes() == b"old there here again"


def test_what_is_written_after_it_was_laid_in_stripes_is_kept(held: tuple[Path, Path, int]) -> None:
    here, there, _ = held
    os.setxattr(there, "user.amfs.layout", b"striped:4096")
    append(here, b" here")
    append(there, b"-" * 10000)
    for path in (here, there):
        assert path.read_bytes() == b"old here" + b"-" * 10000


def test_it_is_one_file_all_the_same(held: tuple[Path, Path, int], tmp_path: Path) -> None:
    here, there, fd = held
    append(there, b" new")
    reader = os.open(here, os.O_RDONLY)
    try:
        assert os.path.sameopenfile(fd, reader)
        os.fchmod(fd, 0o640)
        assert here.stat().st_mode & 0o777 == os.fstat(reader).st_mode & 0o777 == 0o640
        os.chmod(here, 0o604)
        assert os.fstat(fd).st_mode & 0o777 == os.fstat(reader).st_mode & 0o777 == 0o604
        other = here.with_name(f"{here.name}-other")
        os.link(here, other)
        assert other.samefile(here)
        assert os.fstat(fd).st_nlink == os.fstat(reader).st_nlink == there.stat().st_nlink == 2
        other.unlink()
        copy = here.with_name(f"{here.name}-copy")
        with copy.open("wb") as target:
            assert os.copy_file_range(reader, target.fileno(), 100, 0) == 7
        assert copy.read_bytes() == b"old new"
        copy.unlink()
        os.truncate(here, 5)
        assert there.read_bytes() == here.read_bytes() == b"old n"
    finally:
        os.close(reader)
