"""All faces show the same files at the same time: a mount, the commands, Python, keys and values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fs_session import running

from amfs.client.files import Files

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]


def command(*arguments: str, input: bytes = b"") -> bytes:
    done = subprocess.run([sys.executable, "-m", "amfs", *arguments], input=input, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running(1):
        place = tmp_path_factory.mktemp("mount")
        command("mount", str(place))
        try:
            yield place
        finally:
            command("umount", str(place))


@pytest.fixture
def files(mounted: Path) -> Iterator[Files]:
    with Files() as files:
        yield files


def test_what_the_mount_makes_the_others_have(mounted: Path, files: Files) -> None:
    (mounted / "dir").mkdir(mode=0o750)
    (mounted / "dir" / "file").write_bytes(b"from the mount")
    os.symlink("file", mounted / "dir" / "link")
    os.setxattr(mounted / "dir" / "file", "user.note", b"seen")
    assert files.read_bytes("/dir/link") == b"from the mount" and files.getxattr("/dir/file", "user.note") == b"seen"
    assert command("cat", "amfs:/dir/file") == b"from the mount" and command("ls", "/dir") == b"file\nlink\n"
    theirs, ours = os.stat(mounted / "dir" / "file"), files.stat("/dir/file")
    names = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ctime_ns", "st_blocks")
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    os.rename(mounted / "dir", mounted / "moved")
    assert not files.exists("/dir") and files.exists("/moved/file")
    (mounted / "moved" / "file").unlink()
    assert files.listdir("/moved") == ["link"]


def test_what_the_others_make_the_mount_has(mounted: Path, files: Files, tmp_path: Path) -> None:
    command("put", "-", "amfs:/put", input=b"first")
    assert (mounted / "put").read_bytes() == b"first"
    command("put", "-", "amfs:/put", input=b"second, longer")
    assert (mounted / "put").read_bytes() == b"second, longer", "the kernel's copy of the old content is forgotten"
    (tmp_path / "local").write_bytes(os.urandom(3_000_000))
    command("put", str(tmp_path / "local"), "amfs:/put")
    assert (mounted / "put").read_bytes() == (tmp_path / "local").read_bytes()
    files.chmod("/put", 0o600)
    assert (mounted / "put").stat().st_mode & 0o777 == 0o600
    files.rename("/put", "/renamed")
    assert not (mounted / "put").exists() and (mounted / "renamed").exists()
    files.unlink("/renamed")
    assert not (mounted / "renamed").exists()
    files.kv.put("a/key", b"value")
    assert (mounted / ".kv" / "a%2Fkey").read_bytes() == b"value"
    (mounted / ".kv" / "a%2Fkey").write_bytes(b"changed")
    assert files.kv.get("a/key") == b"changed"


def test_who_writes_and_who_reads_may_meet(mounted: Path, files: Files) -> None:
    with open(mounted / "growing", "wb", buffering=0) as writer, files.open("/growing", "rb", buffering=0) as reader:
        for number in range(5):
            writer.write(b"%d" % number)
            assert reader.read(10) == b"%d" % number
        assert command("ls", "-l", "/growing").startswith(b"-rw-r--r--~ ")
    with files.open("/growing", "r+b", buffering=0) as writer, open(mounted / "growing", "rb", buffering=0) as reader:
        writer.write(b"ABC")
        writer.flush()
        assert reader.read() == b"ABC34"
    assert not command("ls", "-l", "/growing").startswith(b"-rw-r--r--~")
