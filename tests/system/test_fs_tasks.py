"""Staged tasks and the session's file system have the same files: names that begin with ``amfs:/``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIST = """
sorted -b sort -i amfs:/data/in.txt -stdout amfs:/out/sorted.txt -a -rn amfs:/data/in.txt
top -b sh -i amfs:/out/sorted.txt -o amfs:/out/top.txt -a -c -a 'head -n 3 amfs:/out/sorted.txt > amfs:/out/top.txt'
here -b cp -i amfs:/out/top.txt -o top.txt -a amfs:/out/top.txt top.txt
"""


def amfs(*args: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "amfs", *args], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("up")
    up = amfs("up", "--nodes", "3", "--slots", "1", cwd=place)
    assert up.returncode == 0, up.stderr
    name = up.stdout.strip()
    yield name
    assert amfs("down", name, cwd=place).returncode == 0


def test_inputs_and_outputs_lie_in_the_file_system(session: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{i}\n" for i in range(1000)))
    assert amfs("mkdir", "-p", "amfs:/data", "--session", session, cwd=tmp_path).returncode == 0
    assert amfs("put", "in.txt", "amfs:/data/in.txt", "--session", session, cwd=tmp_path).returncode == 0
    (tmp_path / "list").write_text(LIST)
    before = os.umask(0o027)
    try:
        ran = amfs("run", "list", "--session", session, cwd=tmp_path)
    finally:
        os.umask(before)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "top.txt").read_text() == "999\n998\n997\n"
    # A file in the file system stays there, although other tasks read it; nothing of it is on shared storage.
    assert amfs("cat", "amfs:/out/top.txt", "--session", session, cwd=tmp_path).stdout == "999\n998\n997\n"
    assert amfs("cat", "amfs:/out/sorted.txt", "--session", session, cwd=tmp_path).stdout.count("\n") == 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "list", "top.txt"]
    # Modes are what the user's umask says, not wider.
    listed = amfs("ls", "-l", "-d", "amfs:/out", "amfs:/out/top.txt", "--session", session, cwd=tmp_path).stdout.split("\n")
    assert [line[:10] for line in listed if line] == ["drwxr-x---", "-rw-r-----"]
    # A second run finds the inputs where the first left them, and overwrites what it makes again.
    (tmp_path / "again").write_text("again -b wc -i amfs:/out/sorted.txt -stdout amfs:/out/top.txt -a -l amfs:/out/sorted.txt\n")
    ran = amfs("run", "again", "--session", session, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert amfs("cat", "amfs:/out/top.txt", "--session", session, cwd=tmp_path).stdout.split()[0] == "1000"


def test_what_is_striped_is_staged_too(session: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192
    (tmp_path / "big").write_bytes(data)
    put = amfs("put", "--layout", "striped", "--stripe", "64K", "big", "amfs:/striped", "--session", session, cwd=tmp_path)
    assert put.returncode == 0, put.stderr
    ran = amfs("run", "-", "--session", session, cwd=tmp_path, stdin="c -b cp -i amfs:/striped -o copy -a amfs:/striped copy\n")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "copy").read_bytes() == data


def test_mistakes_are_said_clearly(session: str, tmp_path: Path) -> None:
    line = "x -b cat -i amfs:/nowhere -stdout y -a amfs:/nowhere\n"
    ran = amfs("run", "-", "--session", session, cwd=tmp_path, stdin=line)
    assert ran.returncode != 0 and "'amfs:/nowhere' does not exist" in ran.stderr
    ran = amfs("run", "-", "--local", cwd=tmp_path, stdin=line)
    assert ran.returncode == 2 and "amfs:/nowhere is a file of a session, and this run has none; start one with 'amfs up'" in ran.stderr


def test_an_output_for_which_there_is_no_room_is_no_file_and_its_readers_fail(tmp_path: Path) -> None:
    up = amfs("up", "--nodes", "2", "--slots", "2", "--store-limit", "4M", cwd=tmp_path)
    assert up.returncode == 0, up.stderr
    session = up.stdout.strip()
    try:
        (tmp_path / "list").write_text(
            "big -b sh -o amfs:/out/big -a -c -a 'head -c 20000000 /dev/urandom > amfs:/out/big'\n"
            "read -b wc -i amfs:/out/big -stdout count -a -c amfs:/out/big\n"
            "small -b sh -o amfs:/out/small -a -c -a 'echo 1 > amfs:/out/small'\n"
        )
        ran = amfs("run", "list", "--session", session, cwd=tmp_path)
        assert ran.returncode == 1, ran.stderr
        assert "cannot write its output: amfs:/out/big: No space left on device" in ran.stderr
        assert not (tmp_path / "count").exists()
        assert amfs("ls", "amfs:/out", "--session", session, cwd=tmp_path).stdout == "small\n"
        ran = amfs("run", "-", "--session", session, cwd=tmp_path, stdin="again -b cat -i amfs:/out/big -stdout got -a amfs:/out/big\n")
        assert ran.returncode == 1 and "'amfs:/out/big' does not exist" in ran.stderr
        (tmp_path / "local").write_bytes(os.urandom(20_000_000))
        put = amfs("put", "--layout", "whole", "local", "amfs:/local", "--session", session, cwd=tmp_path)
        assert put.returncode != 0
        assert amfs("cat", "amfs:/local", "--session", session, cwd=tmp_path).returncode != 0
    finally:
        assert amfs("down", session, cwd=tmp_path).returncode == 0
