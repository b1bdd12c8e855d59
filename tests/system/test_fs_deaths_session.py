"""A node of a real session is killed: directories stay, and what is lost is an error by name."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fs_session import PATIENCE_S, kill, running

from amfs.client.control import Client
from amfs.client.files import Files
from amfs.vocabulary.messages import View

MIB = 1 << 20
DATA = bytes(range(1, 251)) * (3 * MIB // 250)


def amfs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "amfs", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def read(files: Files, name: str) -> bytes | int:
    """The content, or why not."""
    try:
        return files.read_bytes(name)
    except OSError as error:
        return error.errno or errno.EIO


def test_a_killed_node_takes_no_directory_along_and_leaves_no_zeros() -> None:
    with running(3) as session, Files(node=0) as files:
        directories = [f"d{number:02}" for number in range(30)]
        for name in directories:
            files.mkdir(f"/{name}")
        files.set_layout("/d00", "striped")
        striped = [f"/d00/{number}" for number in range(10)]
        for name in striped:
            files.write_bytes(name, DATA)
        reader = files.open(striped[0], "rb", buffering=0)
        kill(session, 2)
        end = time.monotonic() + PATIENCE_S
        while len(files.df()) > 2:
            for name in striped:
                assert read(files, name) in (DATA, errno.EIO)
            assert time.monotonic() < end
        seen = {name: read(files, name) for name in striped}
        assert set(seen.values()) == {errno.EIO}, "six stripes over three nodes, and nothing lost"
        lost = sorted(name for name, what in seen.items() if what == errno.EIO)
        assert lost
        try:
            assert reader.read(MIB) == DATA[:MIB]
        except OSError as error:
            assert error.errno == errno.EIO
        for node in (0, 1):
            with Files(node=node) as others:
                assert sorted(others.listdir("/")) == directories
        assert amfs("mkdir", "amfs:/d07").returncode != 0
        assert "content lost with a node that died" in amfs("stat", f"amfs:{lost[0]}").stdout
        assert "-rw-r--r--!" in amfs("ls", "-l", "amfs:/d00").stdout
        cat = amfs("cat", f"amfs:{lost[0]}")
        assert cat.returncode != 0 and cat.stdout == "" and lost[0] in cat.stderr
        files.write_bytes(lost[0], DATA)
        with Files(node=1) as others:
            assert others.read_bytes(lost[0]) == DATA
        for name in directories[1:]:
            files.rmdir(f"/{name}")
        assert files.listdir("/") == ["d00"]


def make_until(stop: threading.Event, place: Path, made: list[str]) -> None:
    """Files, one after the other; ``made``: those that were acknowledged."""
    for number in range(1_000_000):
        if stop.is_set():
            return
        with suppress(OSError):
            descriptor = os.open(place / f"{place.name}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            made.append(f"{place.name}-{number}")
            with suppress(OSError):
                os.write(descriptor, made[-1].encode())
            with suppress(OSError):
                os.close(descriptor)


@pytest.mark.root
@pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set")
def test_every_acknowledged_name_is_there_after_a_node_was_killed_in_the_middle_of_making_them(tmp_path: Path) -> None:
    with running(3) as session, Files(node=0) as files:
        places = [tmp_path / f"m{node}" for node in range(3)]
        for node, place in enumerate(places):
            place.mkdir()
            assert amfs("mount", str(place), "--node", str(node)).returncode == 0
        made: list[list[str]] = [[], [], []]
        stop = threading.Event()
        makers = [threading.Thread(target=make_until, args=(stop, places[node], made[node])) for node in range(2)]
        try:
            for number in range(300):
                (places[2] / f"m2-{number}").write_bytes(b"on node 2")
                made[2].append(f"m2-{number}")
            for maker in makers:
                maker.start()
            time.sleep(1)
            kill(session, 2)
            end = time.monotonic() + PATIENCE_S
            while len(files.df()) > 2:
                assert time.monotonic() < end
                time.sleep(0.05)
            time.sleep(0.5)
            stop.set()
            for maker in makers:
                maker.join(PATIENCE_S)
                assert not maker.is_alive(), "a maker hangs"
            expected = set().union(*made)
            assert len(expected) > 1000
            for node in range(2):
                there = set(os.listdir(places[node]))
                assert expected <= there, sorted(expected - there)[:5]
            lost = 0
            for name in sorted(expected)[::5]:
                content = read(files, f"/{name}")
                lost += content == errno.EIO
                assert content in (errno.EIO, b"on node 2" if name in made[2] else name.encode()), (name, content)
                if name not in made[2] and content == errno.EIO:
                    assert name in (made[0][-1], made[1][-1]) or files.stat(f"/{name}").st_size >= 0
            assert lost
            name = made[2][0]
            assert "content lost with a node that died" in amfs("stat", f"amfs:/{name}").stdout
            with pytest.raises(FileNotFoundError):
                files.stat("/never-made")
            (places[0] / "new").write_bytes(b"new")
            assert (places[1] / "new").read_bytes() == b"new"
        finally:
            stop.set()
            for place in places:
                subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


@pytest.mark.root
@pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set")
def test_the_mount_of_a_node_that_was_left_out_is_dead_and_no_empty_directory(tmp_path: Path) -> None:
    """It was unmounted, so files that programs had written were ENOENT to them (make chaos LOAD=fs KIND=hang SEED=2)."""
    with running(2) as session, Client(session) as client:
        place = tmp_path / "m"
        place.mkdir()
        assert amfs("mount", str(place), "--node", "1").returncode == 0
        try:
            (place / "file").write_bytes(b"here")
            view = client.view(PATIENCE_S)
            (first,) = (member for member in view.members if member.node == 0)
            client.tell([1], View(view.epoch + 1, 0, (first,), (0,) * len(view.table), 0), PATIENCE_S)
            end = time.monotonic() + PATIENCE_S
            seen = 0
            while seen != errno.ENOTCONN:
                try:
                    assert (place / "file").read_bytes() == b"here"
                except OSError as error:
                    seen = error.errno or 0
                    assert seen != errno.ENOENT
                assert time.monotonic() < end
                time.sleep(0.01)
            with pytest.raises(OSError, match="not connected"):
                (place / "new").write_bytes(b"lost in a local directory")
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
