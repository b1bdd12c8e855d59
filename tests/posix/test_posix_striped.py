"""Files in stripes over two nodes: their times while they are open, random calls against tmpfs, and a limit."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsx
import mounting
import pytest
import torture
from waiting import until

LIMIT = 5 << 20
BY_HAND = (1_000_000_000_000_000_000, 1_100_000_000_000_000_000)
LATER = (4_000_000_000_000_000_000, 4_100_000_000_000_000_000)


@contextlib.contextmanager
def kind(nodes: int, layout: str, session: str = "") -> Iterator[list[Path]]:
    """Mounts of a session of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mounting.LAYOUT, f"--layout {layout}")
        patch.setenv(mounting.SESSION_OPTIONS, session)
        patch.delenv(mounting.BY_HAND, raising=False)
        try:
            with mounting.mounted(nodes) as directories:
                yield directories
        except mounting.NotHere as missing:
            pytest.fail(f"{missing} (or set {mounting.NO_FUSE}=1 to leave this out)", pytrace=False)


@pytest.fixture(scope="module")
def striped() -> Iterator[list[Path]]:
    with kind(2, "striped") as mounts:
        yield mounts


@pytest.fixture
def limited() -> Iterator[list[Path]]:
    with kind(2, "whole", f"--store-limit {LIMIT} --spill none") as mounts:
        yield mounts


def times(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_atime_ns, found.st_mtime_ns


@pytest.mark.parametrize("by", [0, 1], ids=["where-it-is-written", "on-the-other-node"])
def test_times_set_while_a_file_is_open_show_at_once_until_it_is_written(striped: list[Path], by: int) -> None:
    here, there = (mount / f"times-{by}" for mount in striped)
    with open(here, "w+b", buffering=0) as file:
        file.write(b"x" * 1_200_000)
        for wanted in (BY_HAND, LATER, (0, 0)):
            os.utime((here, there)[by], ns=wanted)
            found = os.fstat(file.fileno())
            assert (found.st_atime_ns, found.st_mtime_ns) == times(here) == times(there) == wanted
        os.utime((here, there)[by], ns=LATER)
        before = time.time_ns() - 10**9
        file.write(b"y")
        os.fsync(file.fileno())
        for path in (here, there):
            assert before < times(path)[1] < time.time_ns() + 10**9 and times(path)[0] == LATER[0]
            assert before < os.stat(path).st_ctime_ns < time.time_ns() + 10**9
        os.utime((here, there)[by], ns=BY_HAND)
    for path in (here, there):
        until(lambda path=path: (times(path), os.stat(path).st_size) == (BY_HAND, 1_200_001))  # type: ignore[misc]


@pytest.mark.parametrize("by", [0, 1])
def test_who_looks_right_after_it_was_closed_sees_when_it_was_written(striped: list[Path], by: int) -> None:
    """Its record has not heard of it yet; its last writer knows. A time that is set then stands."""
    here, there = (mount / f"right-after-{by}" for mount in (striped[by], striped[1 - by]))
    here.write_bytes(b"x" * 600_000)
    for n in range(40):
        os.utime(here, ns=(BY_HAND, LATER)[n % 2])
        with open(there, "ab") as file:
            file.write(b"y")
        before = time.time_ns() - 10**9
        assert os.stat(here).st_size == 600_001 + n and before < times(here)[1] < before + 3 * 10**9
        if n % 4 > 1:
            os.utime(here, ns=(LATER, BY_HAND)[n % 2])
            assert times(here) == times(there) == (LATER, BY_HAND)[n % 2]


def test_opening_and_reading_do_not_change_when_a_file_was_written(striped: list[Path]) -> None:
    here, there = (mount / "looked-at" for mount in striped)
    here.write_bytes(b"x" * 700_000)
    os.utime(here, ns=BY_HAND)
    for path in (here, there):
        with open(path, "r+b") as file:
            assert times(here)[1] == times(there)[1] == BY_HAND[1]
            file.read()
        assert times(here)[1] == times(there)[1] == BY_HAND[1]


def test_a_file_that_was_just_closed_has_its_new_size_whoever_asks(striped: list[Path]) -> None:
    """By another name, too, of which the kernel has not been told the size before."""
    path, link = striped[0] / "closed", striped[0] / "closed-too"
    path.touch()
    os.link(path, link)
    for size in range(1, 60):
        with open(path if size % 2 else link, "wb") as file:
            file.write(b"x" * size)
        os.chmod(link, 0o600 + size % 8)
        assert (os.stat(link).st_size, os.stat(path).st_size) == (size, size)


def test_random_calls_agree_with_tmpfs(oracle: Path) -> None:
    with kind(1, "striped") as mounts:
        turns, differ = torture.explore(oracle, mounts, random.Random("striped"), 2000)
        if differ:
            short, told = torture.shortest(oracle, mounts, turns, limit_s=30)
            pytest.fail(f"shortened to {len(short)}:\n{torture.as_lines(short)}\n  {told}", pytrace=False)


@pytest.mark.parametrize("number", range(4))
def test_who_reads_through_the_writers_node_and_then_writes_himself_sees_how_large_it_is(striped: list[Path], number: int) -> None:
    """Where the record lies is chance."""
    here, there = (mount / f"read-and-written-{number}" for mount in striped)
    there.write_bytes(b"x" * 700_000)
    with open(there, "ab", buffering=0) as writer, open(here, "rb") as reader:
        writer.write(b"y")
        assert reader.read() == b"x" * 700_000 + b"y"
        writer.close()
        time.sleep(0.2)  # the news of that has arrived by then; if not, the rest goes through the other node, and is right as well
        with open(here, "r+b", buffering=0) as file:
            for size in (700_000, 1_400_000, 2_100_000):
                os.pwrite(file.fileno(), b"z" * 600_000, size)
                assert os.stat(here).st_size == os.fstat(reader.fileno()).st_size == size + 600_000


@pytest.mark.parametrize("stripe", [4096, 65_536, 1 << 19, 1 << 21])
def test_every_byte_is_where_it_was_written_however_it_is_read(striped: list[Path], stripe: int) -> None:
    """In few pieces, in many, at odd places, by several at once, and what was changed since."""
    here, there = (mount / f"stripes-of-{stripe}" for mount in striped)
    os.mknod(here)  # not opened: that it is closed again would be known a moment later
    os.setxattr(here, "user.amfs.layout", f"striped:{stripe}".encode())
    data = random.Random(stripe).randbytes(5_000_011)
    here.write_bytes(data)

    def read(size: int) -> bool:
        with open(there, "rb", buffering=0) as file:
            found = b"".join(iter(lambda: file.read(size), b""))
            places = range(0, len(data), 777_777)
            return found == data and all(os.pread(file.fileno(), size, at) == data[at : at + size] for at in reversed(places))

    for _ in range(2):
        with ThreadPoolExecutor() as pool:
            assert all(pool.map(read, (4096, 65_536, 131_072, 1 << 20, 3_000_000)))
        with open(there, "r+b") as file:
            file.seek(stripe - 5)
            file.write(b"0123456789" * 20_000)
        data = data[: stripe - 5] + b"0123456789" * 20_000 + data[stripe - 5 + 200_000 :]
        assert here.read_bytes() == data


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_no_byte_is_wrong_where_the_kernel_opens_without_telling(layout: str) -> None:
    """Two mounts that take turns: each sees the writes of the other when it opens the file, of which nobody is told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mounting.OPTIONS, "--cache open")
        with kind(2, layout) as mounts, contextlib.closing(fsx.Exerciser(mounts, "cached", files=2, size_max=5_000_000)) as it:
            assert it.run(500, 60) >= 200


# ── a limit ────────────────────────────────────────────────────────────────────────────────────────


def test_copies_give_way_to_what_has_no_other_place(limited: list[Path]) -> None:
    """Three files of 2 MB, read on both nodes, are 12 MB; the nodes have room for 10, and for another 3.5 of their own."""
    for name in "abc":
        (limited[0] / name).write_bytes(name.encode() * 2_000_000)
    for name in "abc":
        assert (limited[1] / name).read_bytes() == name.encode() * 2_000_000
    (limited[1] / "new").write_bytes(b"n" * 3_500_000)
    for mount in limited:
        for name, size in (("a", 2_000_000), ("b", 2_000_000), ("c", 2_000_000), ("new", 3_500_000)):
            assert (mount / name).read_bytes() == name[0].encode() * size


def test_what_a_file_contained_before_gives_way_to_what_is_written(limited: list[Path]) -> None:
    """A file that another node rewrites and that outgrows it: the old content of it is in the way of its own stripes."""
    here, there = (mount / "file" for mount in limited)
    for round in range(4):
        here.write_bytes(b"a" * 4_500_000)
        with open(there, "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(b"b" * 4_000_000)
        for path in (here, there):
            assert path.read_bytes() == b"a" * 4_500_000 + b"b" * 4_000_000, round
        here.unlink()


def test_a_file_that_outgrew_its_node_and_is_cut_by_another_handle_before_its_record_knows(limited: list[Path]) -> None:
    path = limited[0] / "grown"
    with open(path, "w+b", buffering=0) as file:
        for _ in range(8):
            file.write(b"x" * (1 << 20))
        os.utime(path, ns=BY_HAND)
        with open(path, "rb"):  # its record says still that it is whole and empty: that says nothing of when it was written
            assert times(path) == BY_HAND
        os.truncate(path, 0)
        assert os.fstat(file.fileno()).st_size == 0 and os.pread(file.fileno(), 10, 0) == b""
        file.seek(8 << 20)
        file.write(b"x")
        with open(path, "r+b") as again:
            again.truncate(0)
        path.write_bytes(b"short")
        for each in limited:
            assert os.stat(each / "grown").st_size == 5
        assert os.pread(file.fileno(), 10, 1) == b"hort"
    assert (limited[1] / "grown").read_bytes() == b"short"


def test_a_file_can_be_opened_where_there_is_no_room_for_it(limited: list[Path]) -> None:
    """Node 0 is full of files that nobody else has; files on node 1 are read and written where they lie."""
    (limited[1] / "theirs").write_bytes(b"t" * 3_000_000)
    (limited[0] / "ours").write_bytes(b"o" * 5_000_000)
    with open(limited[0] / "theirs", "r+b") as file:
        assert file.read() == b"t" * 3_000_000
        file.write(b"more")
    for mount in limited:
        assert (mount / "theirs").read_bytes() == b"t" * 3_000_000 + b"more"
        assert (mount / "ours").read_bytes() == b"o" * 5_000_000


@pytest.mark.parametrize("options", ["", "--cache open"])
def test_who_closes_a_file_that_grew_is_told_that_another_node_has_refused_a_stripe(options: str) -> None:
    """The first megabyte finds no room as a whole, half of it does as a stripe; the other half belongs on a node that is full. Where
    closing is not told, the write says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mounting.OPTIONS, options)
        with kind(2, "whole", f"--store-limit {LIMIT} --spill none") as (here, there):
            (here / "ours").write_bytes(b"o" * 4_550_000)
            (there / "theirs").write_bytes(b"t" * 5_000_000)
            for _ in range(3):
                with pytest.raises(OSError) as refused:
                    (here / "grows").write_bytes(b"g" * (1 << 20))
                assert refused.value.errno == errno.ENOSPC
                (here / "grows").unlink()
            assert (there / "ours").read_bytes() == b"o" * 4_550_000
            assert (here / "theirs").read_bytes() == b"t" * 5_000_000


def test_all_nodes_full_is_no_space_and_room_comes_back(limited: list[Path]) -> None:
    data = os.urandom(1 << 20)
    with pytest.raises(OSError) as refused, open(limited[0] / "large", "wb", buffering=0) as file:
        for _ in range(3 * LIMIT >> 20):
            file.write(data)
            os.fsync(file.fileno())
    assert refused.value.errno == errno.ENOSPC
    assert os.stat(limited[0] / "large").st_size >= 1.6 * LIMIT, "there was room for more"
    (limited[0] / "large").unlink()
    for mount in limited:
        until(lambda mount=mount: os.statvfs(mount).f_bavail * 4096 > 1.9 * LIMIT)  # type: ignore[misc]
        (mount / "again").write_bytes(data * 7)
        assert (mount / "again").read_bytes() == data * 7
        (mount / "again").unlink()


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_random_writes_of_what_fits_into_all_nodes_together(layout: str) -> None:
    with kind(2, layout, f"--store-limit {LIMIT} --spill none") as mounts:
        it = fsx.Exerciser(mounts, "limit", files=1, size_max=8_000_000)
        try:
            it.run(250, None)
        finally:
            it.close()
