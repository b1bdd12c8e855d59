"""Files of sessions that are several times larger than memory: right bytes by every way, and what a disk that fails does to them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
from fs_session import running
from test_fs_replicas_session import MIB, amfs, mounted
from waiting import until

from amfs.client.files import Files

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]
COUNT = 20  # of a megabyte each


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


def spilled(disk: Path) -> list[Path]:
    """Those that are whole: their names end in a digest."""
    return [path for path in disk.rglob("part-*-*-*") if path.is_file()]


def status() -> dict[int, dict[str, int]]:
    shown = json.loads(amfs("status", "--output", "json").stdout)
    return {node["node"]: node for node in shown["sessions"][0]["nodes"]}


def test_one_node_holds_five_times_its_limit(tmp_path: Path, disk: Path) -> None:
    data = {f"f{number}": os.urandom(MIB + 77 * number) for number in range(COUNT)}
    with running(1, "--store-limit", "4M", "--spill", str(disk)), mounted(tmp_path, 1) as (place,), Files(node=0) as files:
        for name, content in data.items():
            (place / name).write_bytes(content)
        until(lambda: status()[0]["fs_spilled"] > 15 * MIB, "what was spilled is not shown")
        assert "amfs:/ spilled" in amfs("status").stdout
        for name, content in data.items():
            assert (place / name).read_bytes() == content, f"{name}, by a mount"
            assert files.read_bytes(f"/{name}") == content, f"{name}, by a client"
        assert amfs("get", "/f0", str(tmp_path / "f0")).returncode == 0
        assert (tmp_path / "f0").read_bytes() == data["f0"]
        times = os.stat(place / "f0")
        os.utime(place / "f0", ns=(1, 2))
        assert os.stat(place / "f0").st_mtime_ns == 2 and times.st_size == len(data["f0"])
        # It comes back, also for who reads it already.
        with (place / "f0").open("rb", buffering=0) as reader, (place / "f0").open("r+b", buffering=0) as writer:
            assert reader.read(10) == data["f0"][:10]
            writer.seek(20)
            writer.write(b"anew")
            reader.seek(20)
            assert reader.read(4) == b"anew"
        data["f0"] = data["f0"][:20] + b"anew" + data["f0"][24:]
        with (place / "f1").open("ab") as writer:
            writer.write(b"more")
        data["f1"] += b"more"
        (place / "f2").write_bytes(b"other")
        data["f2"] = b"other"
        os.truncate(place / "f3", 1000)
        data["f3"] = data["f3"][:1000]
        files.write_bytes("/f4", data["f5"])
        data["f4"] = data["f5"]
        os.rename(place / "f6", place / "f7")
        data["f7"] = data.pop("f6")
        for name, content in data.items():
            assert (place / name).read_bytes() == content, f"{name} after changes"
        assert amfs("scrub").returncode == 0
        for name in data:
            (place / name).unlink()
        until(lambda: not spilled(disk), "deleted files are left on the disk")
        until(lambda: status()[0]["fs_spilled"] == 0, "deleted files are counted")
    assert not list(disk.iterdir()), "the spill directory is removed with the session"


def test_nodes_serve_what_they_have_spilled_and_copies_go_first(tmp_path: Path, disk: Path) -> None:
    data = {f"f{number}": os.urandom(MIB) for number in range(12)}
    with running(2, "--store-limit", "4M", "--spill", str(disk)), mounted(tmp_path, 2) as places:
        (places[1] / "copy").write_bytes(b"c" * 2 * MIB)
        assert (places[0] / "copy").read_bytes() == b"c" * 2 * MIB  # is on both nodes now
        for name in ("f0", "f1"):
            (places[0] / name).write_bytes(data[name])
        until(lambda: os.getxattr(places[0] / "copy", "user.amfs.location") == b"1", "the copy has not gone")
        assert not spilled(disk), "single files go after copies"
        for number, (name, content) in enumerate(data.items()):
            (places[number % 2] / name).write_bytes(content)
        assert (places[0] / "copy").read_bytes() == b"c" * 2 * MIB
        assert spilled(disk)
        for name, content in data.items():
            for place in places:
                assert (place / name).read_bytes() == content, f"{name} at {place.name}"


def test_a_disk_without_room_is_enospc_and_loses_nothing(tmp_path: Path, disk: Path) -> None:
    small = disk / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(small)], check=True)
    try:
        data = {f"f{number}": os.urandom(MIB) for number in range(COUNT)}
        with running(1, "--store-limit", "4M", "--spill", str(small)) as session, mounted(tmp_path, 1) as (place,):
            written = {}
            with pytest.raises(OSError) as failed:
                for name, content in data.items():
                    (place / name).write_bytes(content)
                    written[name] = content
            assert failed.value.errno == errno.ENOSPC and 5 <= len(written) <= 7
            for name, content in written.items():
                assert (place / name).read_bytes() == content
            assert sum(path.stat().st_size for path in spilled(small)) % MIB == 0, "nothing half-written"
            assert any("cannot be spilled: No space left on device" in log.read_text() for log in Path(session.directory).rglob("*.log"))
            (place / "f0").unlink()
            (place / "f1").unlink()
            (place / "last").write_bytes(data["f9"])
            assert (place / "last").read_bytes() == data["f9"]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_what_the_disk_has_lost_is_eio(tmp_path: Path, disk: Path) -> None:
    with running(1, "--store-limit", "4M", "--spill", str(disk)), Files(node=0) as files:
        data = {f"/f{number}": os.urandom(MIB) for number in range(8)}
        for name, content in data.items():
            files.write_bytes(name, content)
        until(lambda: status()[0]["fs_spilled"] == len(spilled(disk)) * MIB >= 4 * MIB, "what is beyond the limit is not spilled")
        gone = spilled(disk)[0]
        gone.unlink()
        cut = spilled(disk)[0]
        os.truncate(cut, MIB - 1)
        for name, content in data.items():
            ino = files.stat(name).st_ino
            if ino == int(gone.name.split("-")[1], 16):
                with pytest.raises(OSError) as failed:
                    files.read_bytes(name)
                assert failed.value.errno == errno.EIO, "not zeros, not empty"
            elif ino == int(cut.name.split("-")[1], 16):
                with pytest.raises(OSError) as failed, files.open(name, "r+b") as file:
                    file.write(b"written on what is damaged")
                assert failed.value.errno == errno.EIO
            else:
                assert files.read_bytes(name) == content
