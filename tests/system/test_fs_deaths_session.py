"""A node of a real session is killed: directories stay, and what is lost is an error by name."""

from __future__ import annotations

import errno
import subprocess
import sys
import time

from fs_session import PATIENCE_S, kill, running

from amfs.client.files import Files

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
                assert read(files, name) in (DATA, errno.EIO, errno.ENOENT)
            assert time.monotonic() < end
        seen = {name: read(files, name) for name in striped}
        assert set(seen.values()) <= {errno.EIO, errno.ENOENT}, "six stripes over three nodes, and nothing lost"
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
