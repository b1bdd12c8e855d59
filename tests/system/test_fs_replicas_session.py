"""Files of a real session that survive its nodes, and those that do not and say so, by every way that leads to them."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest
from fs_session import PATIENCE_S, kill, running

from amfs.client.files import Files

MIB = 1 << 20
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]


def amfs(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "amfs", *arguments], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S)


@contextmanager
def mounted(place: Path, nodes: int) -> Iterator[list[Path]]:
    places = [place / f"m{node}" for node in range(nodes)]
    try:
        for node, where in enumerate(places):
            where.mkdir()
            said = amfs("mount", str(where), "--node", str(node))
            assert said.returncode == 0, said.stderr
        yield places
    finally:
        for where in places:
            subprocess.run(["umount", "-l", str(where)], check=False, capture_output=True)


def sums(read: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in read.items()}


def await_members(files: Files, count: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while len(files.df()) > count:
        assert time.monotonic() < end, "the death is not noticed"
        time.sleep(0.05)


def await_location(path: Path, nodes: bytes) -> None:
    """That a handle is closed may be on its way."""
    end = time.monotonic() + PATIENCE_S
    while (found := os.getxattr(path, "user.amfs.location")) != nodes:
        assert time.monotonic() < end, found
        time.sleep(0.01)


def await_copies() -> None:
    """Until status says that whichever node dies next, all names and all files with copies are there."""
    end = time.monotonic() + PATIENCE_S
    while True:
        said = amfs("status")
        if not said.returncode and not any(words in said.stdout for words in ("fewer copies than asked for", "no backup in step")):
            return
        assert time.monotonic() < end, said
        time.sleep(0.1)


def test_every_file_that_was_closed_survives_one_node_after_the_other(tmp_path: Path) -> None:
    written: dict[str, bytes] = {}
    nodes = 3
    with running(nodes, "--replicas", "2") as session, mounted(tmp_path, nodes) as places, Files(node=nodes - 1) as files:
        written["big"] = os.urandom(9 * MIB)
        (places[1] / "big").write_bytes(written["big"])
        written["client"] = os.urandom(3 * MIB)
        with Files(node=0) as others:
            others.write_bytes("/client", written["client"])
        (tmp_path / "list").write_text("".join(f"t{i} -b sh -o amfs:/out{i} -a -c -a 'echo task {i} > amfs:/out{i}'\n" for i in range(4)))
        ran = amfs("run", "list", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        written |= {f"out{i}": f"task {i}\n".encode() for i in range(4)}
        for dying in range(nodes - 1):  # the manager first
            small = {f"{dying}-{number}": os.urandom(1 + 1000 * number) for number in range(20)}
            for name, data in small.items():
                (places[dying] / name).write_bytes(data)
            with (places[dying] / "log").open("ab") as log:  # written over, after all
                log.write(b"%d\n" % dying)
            kill(session, dying)
            written |= small
            written["log"] = written.get("log", b"") + b"%d\n" % dying
            await_members(files, nodes - 1 - dying)
            assert sums({name: files.read_bytes(f"/{name}") for name in written}) == sums(written), f"by a client, after node {dying} died"
            mount = places[nodes - 1]
            assert sums({name: (mount / name).read_bytes() for name in written}) == sums(written), f"by a mount, after node {dying} died"
            if dying < nodes - 2:
                await_copies()
        status = amfs("status").stdout
        assert f"{len(written)} files of amfs:/" in status and "have fewer copies than asked for" in status, "one node is left"


def write_until(place: Path, stop: threading.Event, closed: dict[str, bytes], begun: threading.Event) -> None:
    """Small files, some with an fsync, or renamed as editors do it. Those that were closed without an error are in ``closed``."""
    for number in itertools.count():
        if stop.is_set():
            return
        name, data = f"s{number}", os.urandom(1 + number * 37 % 4096)
        try:
            with (place / name).open("wb") as file:
                file.write(data)
                if number % 5 == 0:
                    file.flush()
                    os.fsync(file)
            closed[name] = data
            if number % 7 == 0:
                os.rename(place / name, place / f"r{number}")
                closed[f"r{number}"] = closed.pop(name)
        except OSError as error:
            closed.pop(name, None)  # a rename that meets the death
            if error.errno == errno.ENOTCONN:
                return
        if number == 100:
            begun.set()


@pytest.mark.parametrize("dying", [0, 1, 2])
def test_small_files_that_were_closed_survive_a_node_that_dies_among_them(tmp_path: Path, dying: int) -> None:
    """The manager, the node of some of the records and copies, or the node that writes them."""
    nodes, writer = 4, 2
    with running(nodes, "--replicas", "2") as session, mounted(tmp_path, nodes) as places, Files(node=3) as files:
        closed: dict[str, bytes] = {}
        stop, begun = threading.Event(), threading.Event()
        thread = threading.Thread(target=write_until, args=(places[writer], stop, closed, begun))
        thread.start()
        try:
            assert begun.wait(PATIENCE_S)
            kill(session, dying)
            await_members(files, nodes - 1)
        finally:
            stop.set()
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert len(closed) >= 100
        for place in (places[3], places[2 if dying == 1 else 1]):
            if place != places[dying]:
                assert sums({name: (place / name).read_bytes() for name in closed}) == sums(closed)
        await_copies()


def test_what_is_asked_for_is_shown(tmp_path: Path) -> None:
    with running(2), mounted(tmp_path, 2) as places, Files(node=0) as files:
        (places[0] / "once").write_bytes(b"once")
        (places[0] / "d").mkdir()
        os.setxattr(places[0] / "d", "user.amfs.replicas", b"2")
        (places[1] / "d" / "twice").write_bytes(b"twice")
        assert os.getxattr(places[0] / "d" / "twice", "user.amfs.replicas") == b"2"
        await_location(places[0] / "d" / "twice", b"0,1")
        assert "on nodes 0, 1; 2 copies asked for" in amfs("stat", "amfs:/d/twice").stdout
        assert "new files are kept on 2 nodes" in amfs("stat", "amfs:/d").stdout
        assert "copies" not in amfs("stat", "amfs:/once").stdout
        assert amfs("ls", "-l", "amfs:/d").stdout.splitlines()[-1].split()[1] == "x2"
        assert amfs("ls", "-l", "amfs:/once").stdout.split()[1] == "1"
        os.setxattr(places[1] / "once", "user.amfs.replicas", b"2")
        await_location(places[0] / "once", b"0,1")
        with pytest.raises(OSError, match="Invalid argument"):
            os.setxattr(places[0] / "once", "user.amfs.replicas", b"many")
        assert "fewer copies" not in amfs("status").stdout
        portable = tmp_path / "portable"
        portable.mkdir()
        assert amfs("mount", str(portable), "--node", "1", "--fuse", "fusepy").returncode == 0
        try:
            with (portable / "d" / "late").open("wb", buffering=0) as late:
                late.write(b"by libfuse")
                os.close(os.dup(late.fileno()))  # as each close does
                assert os.getxattr(places[0] / "d" / "late", "user.amfs.location") == b"1,0"
        finally:
            subprocess.run(["umount", "-l", str(portable)], check=False, capture_output=True)
        for target in (places[1] / "d" / "twice", places[0] / "d" / "twice"):  # cut, and written over, by either node
            os.truncate(target, 3)
            await_location(target, b"0,1")
            with target.open("r+b") as again:
                again.write(b"THR")
            await_location(target, b"0,1")
            assert {mount.read_bytes() for mount in (places[0] / "d" / "twice", places[1] / "d" / "twice")} == {b"THR"}
        assert files.read_bytes("/d/twice") == b"THR"


def test_without_room_for_copies_closing_says_so(tmp_path: Path) -> None:
    with running(2, "--replicas", "2", "--store-limit", "8M", "--spill", "none"), mounted(tmp_path, 2) as places, Files(node=0) as files:
        files.write_bytes("/fills", b"x" * (3 * MIB))
        with pytest.raises(OSError, match="No space") as failed, (places[0] / "more").open("wb", buffering=0) as more:
            for _ in range(6):
                more.write(b"y" * MIB)
        assert failed.value.errno == errno.ENOSPC
        assert files.read_bytes("/fills") == b"x" * (3 * MIB)


def test_a_lost_file_is_an_error_by_every_way_and_says_its_name(tmp_path: Path) -> None:
    with running(2) as session, mounted(tmp_path, 2) as places, Files(node=0) as files:
        (places[1] / "gone").write_bytes(b"was on node 1")
        await_location(places[0] / "gone", b"1")
        kill(session, 1)
        await_members(files, 1)
        for way in (
            lambda: (places[0] / "gone").read_bytes(),
            lambda: (places[0] / "gone").open("ab"),
            lambda: files.read_bytes("/gone"),
            lambda: files.get_file("/gone", tmp_path / "got"),
            lambda: fsspec.filesystem("amfs", session=session.name).cat_file("/gone"),
        ):
            with pytest.raises(OSError) as failed:
                way()
            assert failed.value.errno == errno.EIO, way
        assert not (tmp_path / "got").exists()
        assert "gone" in os.listdir(places[0]) and (places[0] / "gone").stat().st_nlink == 1
        assert amfs("ls", "-l", "amfs:/gone").stdout.startswith("-rw-r--r--!")
        assert "content lost with a node that died" in amfs("stat", "amfs:/gone").stdout
        got = amfs("get", "amfs:/gone", str(tmp_path / "got"))
        assert got.returncode != 0 and "gone" in got.stderr and not (tmp_path / "got").exists()
        (tmp_path / "list").write_text("reads -b cp -i amfs:/gone -o amfs:/copy -a amfs:/gone amfs:/copy\n")
        ran = amfs("run", "list", cwd=tmp_path)
        assert ran.returncode == 1, ran.stderr
        assert "amfs:/gone" in ran.stderr and "its content was lost with node 1" in ran.stderr, ran.stderr
        assert not (places[0] / "copy").exists()


@pytest.mark.soak
def test_a_node_that_was_taken_for_dead_and_comes_back_is_fenced(tmp_path: Path) -> None:
    """It was stopped for so long that the others went on without it. Its writes are refused, and its mount is as that of a dead node."""
    with running(3, "--replicas", "2") as session, mounted(tmp_path, 3) as places, Files(node=0) as files:
        for number in range(6):
            (places[2] / f"f{number}").write_bytes(b"old")
        entry = next(entry for entry in session.nodes if entry.node == 2)
        os.kill(entry.pid, signal.SIGSTOP)
        try:
            await_members(files, 2)
            for number in range(6):
                files.write_bytes(f"/f{number}", b"newer")
        finally:
            os.kill(entry.pid, signal.SIGCONT)
        made: list[str] = []
        end = time.monotonic() + PATIENCE_S
        for number in range(1_000_000):
            assert time.monotonic() < end, "its mount goes on"
            try:
                (places[2] / f"made-{number}").write_bytes(b"too late")
                made.append(f"made-{number}")
            except OSError as error:
                if error.errno == errno.ENOTCONN:
                    break
        with pytest.raises(OSError, match="not connected"):  # it stays, and nobody writes below it
            os.listdir(places[2])
        assert set(files.listdir("/")) == {f"f{number}" for number in range(6)} and not made
        for where in places[:2]:
            assert {(where / f"f{number}").read_bytes() for number in range(6)} == {b"newer"}
        joined = amfs("node", "--join", session.name, "--detach")
        assert joined.returncode == 0, joined.stderr
        with Files(node=3) as others:
            assert {others.read_bytes(f"/f{number}") for number in range(6)} == {b"newer"}


def test_status_names_a_node_that_does_not_say_what_it_lacks() -> None:
    with running(3, "--replicas", "2") as session:
        await_copies()
        pid = next(entry.pid for entry in session.nodes if entry.node == 2)
        os.kill(pid, signal.SIGSTOP)
        try:
            said = amfs("status", "--timeout", "1")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "node 2: no answer since the nodes last changed, so files may have fewer copies than asked for" in said.stdout
        await_copies()


def test_names_that_may_have_been_lost_are_told_until_that_is_accepted(tmp_path: Path) -> None:
    """Two nodes die at once: half of the partitions that either had were backed up by the other."""
    source = tmp_path / "source"
    source.mkdir()
    names = [f"f{number}" for number in range(60)]
    for name in names:
        (source / name).write_text(name)
    with running(4) as session, Files(node=0) as files:
        assert amfs("put", "-r", str(source), "amfs:/d").returncode == 0
        kill(session, 3)
        kill(session, 2)
        await_members(files, 2)
        said = amfs("ls", "amfs:/d")
        left = said.stdout.split()[1:]  # after the name of the directory
        assert said.returncode == 2 and "may have had more entries" in said.stderr
        assert 20 < len(left) < 60
        gone = next(name for name in names if name not in left)
        with pytest.raises(OSError, match="Input/output error"):
            files.read_bytes(f"/d/{gone}")
        said = amfs("get", "-r", "amfs:/d", str(tmp_path / "got"))
        assert said.returncode == 1 and "may have had more entries" in said.stderr
        assert sorted(os.listdir(tmp_path / "got")) == sorted(left)
        assert amfs("put", str(source / gone), f"amfs:/d/{gone}").returncode == 0, "a name that may have been lost is not made again"
        assert files.read_bytes(f"/d/{gone}") == gone.encode()
        said = amfs("scrub")
        assert said.returncode == 1 and "partitions were lost with nodes, and may be missing" in said.stdout
        said = amfs("scrub", "--accept-lost-names")
        assert "count as never there from now on" in said.stdout
        said = amfs("ls", "amfs:/d")
        assert (said.returncode, sorted(said.stdout.split())) == (0, sorted([*left, gone]))
