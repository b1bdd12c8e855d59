"""Runs and sessions that may not have as much memory as the machine has: memory cgroups, and a small /dev/shm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cgroups import Cgroup, limited
from waiting import until

from amfs.host import orphans

MIB = 1 << 20
SIZE = 16 * MIB
COUNT = 20


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    with limited(300 * MIB) as cgroup:
        yield cgroup


def amfs(*args: str, cwd: Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "amfs", *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert code is None or done.returncode == code, done.stderr
    return done


@pytest.fixture
def memory(cgroup: Cgroup) -> Iterator[Path]:
    """A directory of our own in memory; before the cgroup goes, which has its pages."""
    place = Path(tempfile.mkdtemp(prefix="amfs-test-", dir=orphans.SHM))
    yield place
    shutil.rmtree(place)


def workflow(cwd: Path) -> None:
    """COUNT files that all live when the last task begins, and are more than the cgroup has."""
    parts = [f"part{number}" for number in range(COUNT)]
    lines = [f"make{part} -b sh -o {part} -a -c 'yes {part} | head -c {SIZE} > {part}'" for part in parts]
    lines.append(f"all -b sh -i {' '.join(parts)} -o all -a -c 'cat part* | wc -c > all'")
    (cwd / "list").write_text("\n".join(lines) + "\n")


# ── memory cgroups ──────────────────────────────────────────────────────────────────────────────────


def test_a_run_whose_files_are_more_than_the_cgroup_has(tmp_path: Path, cgroup: Cgroup) -> None:
    workflow(tmp_path)
    ran = cgroup.amfs("run", "--local", "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "all").read_text().strip() == str(COUNT * SIZE)
    assert "spilled" in ran.stderr


def test_with_too_little_memory_for_a_store_files_are_on_the_disk(tmp_path: Path) -> None:
    workflow(tmp_path)
    with limited(120 * MIB) as cgroup:
        ran = cgroup.amfs("run", "--local", "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "files are kept in" in ran.stderr and "(memory cgroup /" in ran.stderr and cgroup.name in ran.stderr


TOO_MUCH = {"file": f"head -c {400 * MIB} /dev/zero > x", "program": "dd if=/dev/zero of=/dev/null bs=400M count=1 && : > x"}


@pytest.mark.parametrize("command", TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_task_that_takes_more_than_there_is_fails_and_says_why(tmp_path: Path, cgroup: Cgroup, memory: Path, command: str) -> None:
    (tmp_path / "list").write_text(f"big -b sh -o x -a -c '{command}'\nsmall -b sh -o y -a -c 'echo > y'\n")
    ran = cgroup.amfs("run", "--local", "--store", str(memory), "list", cwd=tmp_path)
    if ran.returncode == -signal.SIGKILL and command == TOO_MUCH["file"]:
        # The pages of a file outlive the task that wrote them, until its sandbox is removed: the kernel may take amfs itself before.
        assert "is gone, and the kernel has killed processes because memory had run out: memory cgroup" in ran.stderr
        amfs("clean", str(memory), cwd=tmp_path)
        assert not list(memory.iterdir())
        return
    assert ran.returncode == 1, ran.stderr
    assert "memory had run out, and the kernel killed processes: memory cgroup" in ran.stderr and cgroup.name in ran.stderr
    assert (tmp_path / "y").exists()
    assert not list(memory.iterdir())


def test_when_amfs_itself_is_killed_that_is_said(tmp_path: Path, cgroup: Cgroup, memory: Path) -> None:
    task = f"until test -e {tmp_path}/go; do sleep 0.1; done; head -c {400 * MIB} /dev/zero > x"
    (tmp_path / "list").write_text(f"big -b sh -o x -a -c '{task}'\n")
    words = cgroup.command(sys.executable, "-m", "amfs", "run", "--local", "--store", str(memory), "list")
    run = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE)
    errors: list[bytes] = []
    assert run.stderr is not None
    reader = threading.Thread(target=lambda: errors.append(run.stderr.read()))  # type: ignore[union-attr]
    reader.start()
    until(lambda: len((cgroup.directory / "cgroup.procs").read_text().split()) > 2)
    Path(f"/proc/{run.pid}/oom_score_adj").write_text("1000")
    (tmp_path / "go").touch()
    assert run.wait(60) == -signal.SIGKILL
    reader.join(60)
    run.stderr.close()
    assert b"is gone, and the kernel has killed processes because memory had run out: memory cgroup" in errors[0]
    assert b"amfs clean" in errors[0]
    assert f"would remove {memory}" in amfs("clean", "--dry-run", str(memory), cwd=tmp_path).stdout


def test_a_session_keeps_within_its_cgroup(tmp_path: Path, cgroup: Cgroup) -> None:
    """Files of amfs:/ too; and ``amfs status`` says where the limit comes from."""
    names = [f"f{number}" for number in range(5)]
    for name in names:
        (tmp_path / name).write_bytes(os.urandom(MIB) * 60)
    assert cgroup.amfs("up", "--nodes", "2", "--name", "cg", cwd=tmp_path).returncode == 0
    try:
        assert f"{cgroup.name}, shared by 2 nodes" in amfs("status", "cg", cwd=tmp_path).stdout
        amfs("put", "--session", "cg", *names, "/", cwd=tmp_path)
        (tmp_path / "back").mkdir()
        amfs("get", "--session", "cg", *(f"/{name}" for name in names), "back", cwd=tmp_path)
        for name in names:
            assert (tmp_path / "back" / name).read_bytes() == (tmp_path / name).read_bytes()
    finally:
        amfs("down", "cg", cwd=tmp_path)


# ── a small /dev/shm ────────────────────────────────────────────────────────────────────────────────


def test_a_small_shm_is_no_place_for_a_store(tmp_path: Path) -> None:
    """As in a Docker container."""
    workflow(tmp_path)
    script = 'mount -t tmpfs -o size=64m shm /dev/shm && exec "$0" -m amfs run --local list'
    ran = subprocess.run(["unshare", "-m", "sh", "-c", script, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False)
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip("no mounts here")
    assert ran.returncode == 0, ran.stderr
    assert "files are kept in " in ran.stderr and "in /dev/shm they would have 67.1 MB only" in ran.stderr
