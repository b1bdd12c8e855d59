"""What ``--store-limit`` promises of all that a node keeps in memory together: files of runs and files of the session."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fs_session import PATIENCE_S, running
from waiting import until

from amfs.client.files import Files

MIB = 1 << 20


def taken(store: Path) -> int:
    """Bytes, each file once under whatever names; on a disk directories take some, too, which is not meant."""
    every = (path.lstat() for path in store.rglob("*"))
    found = {(status.st_dev, status.st_ino): status.st_blocks * 512 for status in every if stat.S_ISREG(status.st_mode)}
    return sum(found.values())


def test_files_of_runs_and_of_the_session_have_one_limit(tmp_path: Path) -> None:
    store, go = tmp_path / "store", tmp_path / "go"
    store.mkdir()
    (tmp_path / "list").write_text(
        f"make -b sh -o made -a -c 'head -c {12 * MIB} /dev/urandom > made'\n"
        f"use -b sh -i made -o used -a -c 'echo > {tmp_path}/reads; until [ -e {go} ]; do sleep 0.05; done; echo > used'\n"
    )
    with running(1, "--store", str(store), "--store-limit", "16M", "--spill", "none") as session, Files() as files:
        command = [sys.executable, "-m", "amfs", "run", "--session", session.name, "-q", "list"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
            try:
                until((tmp_path / "reads").exists, "the task does not run")
                with pytest.raises(OSError, match="No space left"):
                    files.write_bytes("/put", b"x" * (12 * MIB))
                assert taken(store) <= 17 * MIB
            finally:
                go.touch()
                _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, said


def test_what_a_task_reads_later_is_spilled_for_a_write(tmp_path: Path) -> None:
    """Rather than that the write is refused: the file comes back before the task starts."""
    store, disk, go = tmp_path / "store", tmp_path / "disk", tmp_path / "go"
    store.mkdir()
    disk.mkdir()
    (tmp_path / "list").write_text(
        f"make -b sh -o made small -a -c 'head -c {24 * MIB} /dev/urandom > made; echo > small'\n"
        f"hold -b sh -i small -o held -a -c 'echo > {tmp_path}/holds; until [ -e {go} ]; do sleep 0.05; done; echo > held'\n"
        "use -b sh -i made held -o used -a -c 'wc -c < made > used'\n"
    )
    with running(1, "--store", str(store), "--store-limit", "64M", "--spill", str(disk)) as session, Files() as files:
        command = [sys.executable, "-m", "amfs", "run", "--session", session.name, "-q", "list"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
            try:
                until((tmp_path / "holds").exists, "the task does not run")
                until(lambda: taken(store) >= 24 * MIB, "the file is not made")
                files.write_bytes("/put", b"y" * (44 * MIB))
                assert taken(store) <= 65 * MIB and taken(disk) >= 24 * MIB
            finally:
                go.touch()
                _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, said
        assert files.read_bytes("/put") == b"y" * (44 * MIB)
    assert (tmp_path / "used").read_text().strip() == str(24 * MIB)


def test_what_is_of_a_run_and_of_the_session_counts_once(tmp_path: Path) -> None:
    """A task's input and output in ``amfs:/`` have a name on either side, and one content."""
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "list").write_text(
        f"copy -b sh -i amfs:/in -o amfs:/out small -a -c 'head -c {5 * MIB} amfs:/in > amfs:/out; echo > small'\n"
        "then -b sh -i amfs:/out -o amfs:/more -a -c 'head -c 3000000 amfs:/out > amfs:/more'\n"
    )
    with running(1, "--store", str(store), "--store-limit", "16M", "--spill", "none") as session, Files() as files:
        files.write_bytes("/in", b"x" * (7 * MIB))
        command = [sys.executable, "-m", "amfs", "run", "--session", session.name, "-q", "list"]
        done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        assert files.stat("/more").st_size == 3000000
        assert taken(store) <= 16 * MIB
