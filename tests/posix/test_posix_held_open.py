"""Files that a program keeps open on one node while others on other nodes write them: later openers see, and write to, the
content by then, whatever the kernel still has of them for the program that kept them open."""

from __future__ import annotations

import errno
import fcntl
import os
import random
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
    """The node that keeps the file open, and the one that writes it: either may have its record."""
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
        assert here.stat().st_nlink == there.stat().st_nlink == 2
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


@pytest.mark.parametrize("two", [""], ids=["passed"], indirect=True)
def test_what_holds_for_one_number_alone(held: tuple[Path, Path, int]) -> None:
    """As the documents say: locks, and opening a descriptor once more."""
    here, there, fd = held
    append(there, b" new")
    fcntl.flock(fd, fcntl.LOCK_EX)
    with here.open("rb") as later:
        fcntl.flock(later, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(OSError) as refused:
        os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    assert refused.value.errno == errno.ESTALE


def test_what_others_write_through_this_node_is_seen_here_at_once(places: tuple[Path, Path], request: pytest.FixtureRequest) -> None:
    here, there = (place / request.node.name for place in places)
    wanted = bytearray(b"-" * 10000)
    mine = os.open(here, os.O_RDWR | os.O_CREAT)
    os.write(mine, wanted)
    theirs = os.open(there, os.O_RDWR | os.O_APPEND)
    for n in range(5):
        assert here.read_bytes() == os.pread(mine, 20000, 0) == wanted
        os.write(theirs, b"end %d" % n)
        wanted += b"end %d" % n
        assert here.read_bytes() == os.pread(mine, 20000, 0) == wanted
        if n % 2:
            os.ftruncate(theirs, 5000)
            del wanted[5000:]
    os.close(mine)
    assert here.read_bytes() == wanted
    os.close(theirs)
    here.unlink()


class Walker:
    """One process that opens, writes, reads and closes a few files at random on several nodes, one call after the other."""

    OPENINGS = (os.O_RDONLY, os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND)
    LENGTHS = (1, 7, 100, 5000, 70000)

    def __init__(self, mounts: tuple[Path, ...], seed: int) -> None:
        self.mounts, self.random = mounts, random.Random(seed)
        self.content = {f"walked-{seed}-{n}": bytearray() for n in range(3)}
        self.open: dict[str, list[tuple[int, int]]] = {name: [] for name in self.content}  # descriptors and their flags
        self.done: list[str] = []
        for name in self.content:
            self.path(name).touch()

    def path(self, name: str) -> Path:
        return self.random.choice(self.mounts) / name

    def step(self) -> None:
        name = self.random.choice(sorted(self.content))
        what = self.random.choice(("open", "open", "open", "write", "write", "write", "close", "close", "read", "read", "cut", "lay"))
        self.done.append(f"{what} {name}")
        getattr(self, f"do_{what}")(name)

    def writers(self, name: str) -> list[tuple[int, int]]:
        return [each for each in self.open[name] if each[1] != os.O_RDONLY]

    def do_open(self, name: str) -> None:
        flags = self.random.choice(self.OPENINGS)
        if len(self.open[name]) < 7:
            self.open[name].append((os.open(self.path(name), flags), flags))

    def do_write(self, name: str) -> None:
        if not self.writers(name):
            return
        content = self.content[name]
        (fd, flags), data = self.random.choice(self.writers(name)), self.random.randbytes(1) * self.random.choice(self.LENGTHS)
        offset = len(content) if flags & os.O_APPEND else self.random.randrange(len(content) + 1)
        assert (os.write(fd, data) if flags & os.O_APPEND else os.pwrite(fd, data, offset)) == len(data)
        content[offset : offset + len(data)] = data
        assert os.pread(fd, 1 << 20, 0) == content
        if len(content) > 300_000:
            os.ftruncate(fd, 1000)
            del content[1000:]

    def do_close(self, name: str) -> None:
        if self.open[name]:
            os.close(self.open[name].pop(self.random.randrange(len(self.open[name])))[0])

    def do_read(self, name: str) -> None:
        path = self.path(name)
        assert path.read_bytes() == self.content[name]
        assert path.stat().st_size == len(self.content[name])

    def do_cut(self, name: str) -> None:
        content = self.content[name]
        size = self.random.randrange(len(content) + 100)
        if self.random.random() < 0.3:
            os.truncate(self.path(name), size)
            content[size:] = bytes(max(0, size - len(content)))

    def do_lay(self, name: str) -> None:
        if self.random.random() < 0.5 and not self.writers(name):
            try:
                os.setxattr(self.path(name), "user.amfs.layout", self.random.choice((b"striped:4096", b"striped:65536", b"whole")))
            except OSError as error:
                assert error.errno in (errno.EBUSY, errno.EOPNOTSUPP)  # a closing is on its way, or it would have to become whole before

    def end(self) -> None:
        for name in self.content:
            while self.open[name]:
                self.do_close(name)
            for mount in self.mounts:
                assert (mount / name).read_bytes() == self.content[name]
            self.path(name).unlink()


# With cached opens what is kept open need not show what others write before they close it.
@pytest.mark.parametrize("two", ["", "--no-passthrough"], ids=["passed", "copied"], indirect=True)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_whatever_is_kept_open_where(two: tuple[Path, Path], seed: int) -> None:
    walker = Walker(two, seed)
    try:
        for _ in range(1500):
            walker.step()
    finally:
        print("\n".join(walker.done[-40:]))
        walker.end()
