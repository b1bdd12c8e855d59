"""``amfs scale`` on this host: processes come and go, and no file is lost."""

from __future__ import annotations

import subprocess
import sys

from fs_session import running

from amfs.client.files import Files


def scale(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "amfs", "scale", *arguments], capture_output=True, text=True, timeout=100, check=False)


def test_a_session_grows_is_used_and_shrinks() -> None:
    with running(1), Files() as files:
        files.write_bytes("/first", b"1" * 100_000)
        done = scale("3", "--slots", "1")
        assert done.returncode == 0 and done.stderr.count("joined") == 2, done.stderr
        for number in range(9):
            files.write_bytes(f"/{number}", b"x" * 50_000, rank=number % 3)
        done = scale("3")
        assert done.returncode == 0 and "has 3 nodes" in done.stderr, done.stderr
        done = scale("1")
        assert done.returncode == 0 and "to drain" in done.stderr and "has 1 node;" in done.stderr, done.stderr
        assert files.read_bytes("/first") == b"1" * 100_000
        assert all(files.read_bytes(f"/{number}") == b"x" * 50_000 for number in range(9))
        assert scale("0").returncode == 2
