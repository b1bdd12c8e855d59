"""Writing by a mapping that outlives its descriptor, as databases and numpy do it: no node ever calls the file damaged or lost, and all see
the bytes written when the mapping has gone."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from daily import daily
from fs_session import PATIENCE_S, running
from waiting import until

from amfs.client.files import Files
from amfs.host import orphans
from amfs.net.records import SessionRecord

NODES = 3
SIZES = {"whole": 300_001, "striped": (1 << 20) + 100}
MODES = {"passthrough": (), "no-passthrough": ("--no-passthrough",), "cache-open": ("--cache", "open")}
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapped:
    """A file, mapped to be written, whose descriptor is closed: the mmap of Python keeps one."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR)
        self.size = os.fstat(fd).st_size
        self.at = libc.mmap(None, self.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        assert self.at != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
        os.close(fd)
        ctypes.string_at(self.at, self.size)  # a store to a page that was read makes no fault on tmpfs, and moves no time

    def store(self, data: bytes) -> None:
        for place in (0, self.size - len(data)):
            ctypes.memmove(self.at + place, data, len(data))

    def sync(self) -> None:
        assert libc.msync(self.at, self.size, 4) == 0  # MS_SYNC

    def unmap(self) -> None:
        assert libc.munmap(self.at, self.size) == 0


class Served(NamedTuple):
    session: SessionRecord
    places: list[Path]
    files: Files
    numbers: Iterator[int]


def amfs(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "amfs", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=MODES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    places = [tmp_path_factory.mktemp(f"m{node}") for node in range(NODES)]
    with running(NODES) as session, Files(node=0) as files:
        try:
            for node, place in enumerate(places):
                amfs("mount", str(place), "--node", str(node), *MODES[request.param])
            for layout, copies in itertools.product(SIZES, (1, 2)):
                files.makedirs(f"/{layout}{copies}")
                files.setxattr(f"/{layout}{copies}", "user.amfs.layout", layout.encode())
                files.setxattr(f"/{layout}{copies}", "user.amfs.replicas", b"%d" % copies)
            yield Served(session, places, files, itertools.count())
            said = amfs("scrub")
            assert "0 damaged, 0 lost" in said, said
            assert "!" not in amfs("ls", "-lR", "amfs:/")
        finally:
            for place in places:
                subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def parts(session: SessionRecord, ino: int) -> list[bytes]:
    """The whole content, as nodes have it."""
    found = [path for store in orphans.SHM.glob(f"amfs-{os.getuid()}-{session.name}-n*") for path in store.rglob(f"{ino:016x}")]
    return [path.read_bytes() for path in found if path.is_file()]


@pytest.mark.parametrize("layout", SIZES)
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("writer", [0, 1], ids=["maker", "other"])
@pytest.mark.parametrize("syncs", daily([False, True], True), ids=["", "msync"])
def test_what_is_written_by_a_mapping_after_its_descriptor_was_closed(
    served: Served, layout: str, copies: int, writer: int, syncs: bool
) -> None:
    name = f"{layout}{copies}/{next(served.numbers)}"
    data = os.urandom(SIZES[layout])

    def written(piece: bytes) -> bytes:
        return piece + data[len(piece) : -len(piece)] + piece

    def read_everywhere() -> list[bytes]:
        return [(place / name).read_bytes() for place in served.places]

    (served.places[0] / name).write_bytes(data)
    assert (served.places[2] / name).read_bytes() == data
    mapped = Mapped(served.places[writer] / name)
    assert read_everywhere() == [data] * NODES
    mapped.store(b"first")
    if syncs:
        mapped.sync()
    seen = read_everywhere()
    assert seen == [written(b"first")] * NODES if syncs else set(seen) <= {data, written(b"first")}
    mapped.store(b"second")
    mapped.unmap()
    assert read_everywhere() == [written(b"second")] * NODES
    assert served.files.read_bytes(f"/{name}") == written(b"second"), "by a client"
    ino = served.files.stat(f"/{name}").st_ino
    if layout == "whole":
        until(lambda: len(parts(served.session, ino)) >= copies, "there are fewer copies than asked for")
        assert set(parts(served.session, ino)) == {written(b"second")}, "some copy is another"


def test_a_digest_that_was_asked_for_before_counts_no_more(served: Served, tmp_path: Path) -> None:
    (served.places[0] / "whole1" / "asked").write_bytes(b"0" * 50_000)
    for piece in (b"first", b"second"):
        mapped = Mapped(served.places[0] / "whole1" / "asked")
        mapped.store(piece)
        mapped.unmap()
        amfs("get", "amfs:/whole1/asked", str(tmp_path / "got"))
        assert (tmp_path / "got").read_bytes()[:10].startswith(piece)
        amfs("scrub", "amfs:/whole1/asked")


def test_a_program_ends_and_with_it_its_mapping(served: Served) -> None:
    path = served.places[1] / "whole1" / "ended"
    path.write_bytes(b"0" * 50_000)
    child = os.fork()
    if child == 0:
        mapped = Mapped(path)
        mapped.store(b"first")
        os._exit(0)
    os.waitpid(child, 0)
    assert [(place / "whole1" / "ended").read_bytes()[:5] for place in served.places] == [b"first"] * NODES
    until(lambda: "written" not in amfs("stat", "amfs:/whole1/ended"), "it counts as being written")
