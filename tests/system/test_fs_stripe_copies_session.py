"""Striped files with copies, in real sessions whose nodes are killed: read byte for byte, written on, and copied again."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from fs_session import PATIENCE_S, kill, running
from test_fs_replicas_session import MIB, amfs, await_copies, await_members, mounted

from amfs.client.files import Files

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]
STRIPE = 64 << 10
LAYOUT = b"striped:%d" % STRIPE


def striped_directory(place: Path) -> None:
    (place / "s").mkdir()
    os.setxattr(place / "s", "user.amfs.layout", LAYOUT)


def check(place: Path, files: Files, written: dict[str, bytes]) -> None:
    for name, data in written.items():
        assert (place / "s" / name).read_bytes() == data, f"{name}, by a mount"
        assert files.read_bytes(f"/s/{name}") == data, f"{name}, by a client"


def test_striped_files_survive_one_node_after_the_other(tmp_path: Path) -> None:
    with running(4, "--replicas", "2") as session, mounted(tmp_path, 4) as places, Files(node=3) as files:
        striped_directory(places[0])
        written = {f"f{node}": os.urandom(3 * MIB + 1000 * node) for node in range(4)}
        for node in range(4):
            (places[node] / "s" / f"f{node}").write_bytes(written[f"f{node}"])
        with (places[1] / "s" / "holes").open("wb") as holes:  # bytes that were never written are zeros, before and after
            holes.seek(40 * STRIPE + 100)
            holes.write(b"end")
        written["holes"] = bytes(40 * STRIPE + 100) + b"end"
        with (places[2] / "s" / "f2").open("r+b") as again:  # cut, and written over
            again.truncate(5 * STRIPE + 7)
            again.seek(STRIPE // 2)
            again.write(b"middle")
        half = STRIPE // 2
        written["f2"] = written["f2"][:half] + b"middle" + written["f2"][half + 6 : 5 * STRIPE + 7]
        check(places[3], files, written)
        blocks = os.urandom(8 * MIB)
        began, failed = threading.Event(), list[BaseException]()

        def write_slowly() -> None:
            try:
                with (places[3] / "s" / "during").open("wb", buffering=0) as file:
                    for at in range(0, len(blocks), 3 * STRIPE // 2):
                        file.write(blocks[at : at + 3 * STRIPE // 2])
                        began.set()
                        time.sleep(0.01)
                    os.fsync(file.fileno())
            except BaseException as error:
                failed.append(error)

        writer = threading.Thread(target=write_slowly)
        writer.start()
        began.wait(PATIENCE_S)
        kill(session, 0)  # the manager
        await_members(files, 3)
        check(places[3], files, written)
        writer.join(PATIENCE_S)
        assert not failed, failed
        written["during"] = blocks
        check(places[2], files, written)
        await_copies()
        kill(session, 1)
        await_members(files, 2)
        check(places[2], files, written)
        (places[2] / "s" / "f3").write_bytes(b"short by now")
        written["f3"] = b"short by now"
        await_copies()
        kill(session, 2)
        await_members(files, 1)
        check(places[3], files, written)
        assert "!" not in amfs("ls", "-l", "amfs:/s").stdout


@pytest.mark.soak
def test_files_get_copies_of_their_stripes_afterwards(tmp_path: Path) -> None:
    with running(3) as session, mounted(tmp_path, 3) as places, Files(node=2) as files:
        striped_directory(places[0])
        written = {name: os.urandom(2 * MIB + 5) for name in ("later", "whole", "once")}
        for name in ("later", "once"):
            (places[0] / "s" / name).write_bytes(written[name])
        os.setxattr(places[1] / "s" / "later", "user.amfs.replicas", b"2")
        files.write_bytes("/whole", written["whole"])
        os.rename(places[0] / "whole", places[0] / "s" / "whole")
        os.setxattr(places[1] / "s" / "whole", "user.amfs.replicas", b"2")
        os.setxattr(places[2] / "s" / "whole", "user.amfs.layout", LAYOUT)
        for copies in (b"1", b"3"):
            with pytest.raises(OSError, match="not supported") as refused:
                os.setxattr(places[1] / "s" / "later", "user.amfs.replicas", copies)
            assert refused.value.errno == errno.EOPNOTSUPP
        kill(session, 1)
        await_members(files, 2)
        with pytest.raises(OSError, match="Input/output"):
            (places[0] / "s" / "once").read_bytes()
        del written["once"]
        check(places[0], files, written)


@pytest.mark.soak
def test_a_file_with_copies_that_outgrows_its_node_has_copies_of_its_stripes(tmp_path: Path) -> None:
    options = ("--replicas", "2", "--store-limit", "12M", "--spill", "none")
    with running(4, *options) as session, mounted(tmp_path, 4) as places, Files(node=2) as files:
        data = os.urandom(15 * MIB)
        with (places[1] / "large").open("wb", buffering=0) as file:
            for at in range(0, len(data), MIB):
                file.write(data[at : at + MIB])
        end = time.monotonic() + PATIENCE_S
        while os.getxattr(places[0] / "large", "user.amfs.layout") == b"whole":  # that it is closed may be on its way
            assert time.monotonic() < end
            time.sleep(0.01)
        kill(session, 3)
        await_members(files, 3)
        assert files.read_bytes("/large") == data
        assert (places[0] / "large").read_bytes() == data


@pytest.mark.soak
def test_nodes_that_join_take_stripes_and_copies_along(tmp_path: Path) -> None:
    with running(2, "--replicas", "2") as session, mounted(tmp_path, 2) as places, Files(node=0) as files:
        striped_directory(places[0])
        written = {f"f{number}": os.urandom(MIB + number) for number in range(6)}
        for name, data in written.items():
            (places[1] / "s" / name).write_bytes(data)
        joined = amfs("node", "--join", session.name, "--detach")
        assert joined.returncode == 0, joined.stderr
        end = time.monotonic() + PATIENCE_S
        while len(files.df()) < 3:
            assert time.monotonic() < end
            time.sleep(0.05)
        (places[0] / "s" / "f0").write_bytes(b"new")
        written["f0"] = b"new"
        check(places[0], files, written)
        kill(session, 1)  # at once: stripes may be on their way still
        await_members(files, 2)
        check(places[0], files, written)
        await_copies()
        with Files(node=2) as third:
            pid = next(entry.pid for entry in session.nodes if entry.node == 0)
            os.kill(pid, signal.SIGKILL)
            await_members(third, 1)
            assert {name: third.read_bytes(f"/s/{name}") for name in written} == written
