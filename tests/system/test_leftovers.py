"""Remains of killed runs, and commands that free them. In a mount namespace with a /dev/shm of its own: the remains are nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from amfs.host import orphans
from amfs.runs.journal import read

MIB = 1 << 20
SIZE = 16 * MIB


class Place:
    """A directory to work in, and the namespace."""

    def __init__(self, cwd: Path, pid: int) -> None:
        self.cwd = cwd
        self.pid = pid
        self.shm = Path(f"/proc/{pid}/root/dev/shm")

    def words(self, *args: str) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-m", f"--wd={self.cwd}", sys.executable, "-m", "amfs", *args]

    def amfs(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.words(*args), capture_output=True, text=True, timeout=120, check=False)
        assert code is None or done.returncode == code, done.stderr
        return done

    def stores(self) -> list[Path]:
        return list(self.shm.glob(f"amfs-{os.getuid()}-{orphans.EMBEDDED}-*"))

    def inside(self, path: Path) -> Path:
        """Its name in the namespace."""
        return Path("/dev/shm") / path.name

    def killed(self, *options: str) -> Path:
        """Run a list whose second task waits, and kill amfs when its journal has the first. Its store."""
        options = options or ("--journal", "journal")
        task = f"a -b sh -o a -a -c 'head -c {SIZE} /dev/zero > a'\nb -b sh -i a -o b -a -c 'sleep 500; : > b'\n"
        (self.cwd / "killed").write_text(task)
        run = subprocess.Popen(self.words("run", "--local", *options, "killed"), stderr=subprocess.DEVNULL)
        if "--journal" in options:
            until(lambda: (past := read(self.cwd / "journal")) is not None and bool(past.done), "the journal has no task")
        until(lambda: any(list(one.glob("work/sandboxes/*/a")) for one in self.stores()), "no second task")
        (store,) = self.stores()
        run.send_signal(signal.SIGKILL)
        run.wait(60)
        until(lambda: orphans.is_orphan(store, None))
        return store


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = "mount -t tmpfs -o size=2g shm /dev/shm && echo there && exec sleep 1000"
    with subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != b"there\n":
                pytest.skip("no mounts here")
            yield Place(tmp_path, holder.pid)
        finally:
            holder.kill()


def test_clean_frees_what_a_killed_run_left(place: Place) -> None:
    store = place.killed()
    told = place.amfs("status", code=4).stderr
    assert "a killed run of" in told and "killed has left 16.8 MB in /dev/shm" in told
    assert "has left 16.8 MB" in place.amfs("down", "--all").stderr
    assert f"would remove {place.inside(store)}" in place.amfs("clean", "--dry-run").stdout
    assert store.exists()
    cleaned = place.amfs("clean").stdout
    assert f"removed {place.inside(store)}, 16.8 MB, of a killed run of" in cleaned
    assert not store.exists()


def test_clean_leaves_alone_what_lives(place: Place) -> None:
    (place.cwd / "list").write_text(f"a -b sh -a -c 'until test -e {place.cwd}/go; do sleep 0.1; done'\n")
    run = subprocess.Popen(place.words("run", "--local", "list"))
    until(lambda: any(list(one.glob("work/sandboxes")) for one in place.stores()))
    (store,) = place.stores()
    assert place.amfs("clean").stdout == "nothing was left behind\n"
    words = place.words("clean")  # a lock holds in every namespace
    cut = words.index(sys.executable)
    apart = [*words[:cut], "unshare", "-p", "-f", "--mount-proc", *words[cut:]]
    assert store.name not in subprocess.run(apart, capture_output=True, text=True, timeout=60, check=True).stdout
    assert store.exists()
    (place.cwd / "go").touch()
    assert run.wait(60) == 0


def test_another_run_keeps_what_can_be_resumed_and_says_so(place: Place) -> None:
    store = place.killed()
    (place.cwd / "other").write_text("true\n")
    ran = place.amfs("run", "--local", "other")
    assert f"amfs run --resume {place.cwd}/killed" in ran.stderr
    assert list(store.glob("files/*/a")) and not (store / "work").exists()
    (place.cwd / "killed").write_text((place.cwd / "killed").read_text().replace("sleep 500; ", ""))
    place.amfs("run", "--local", "--journal", "journal", "--resume", "killed")
    assert not store.exists()


def test_the_same_list_from_the_beginning_frees_it_at_once(place: Place) -> None:
    store = place.killed()
    (place.cwd / "killed").write_text("true\n")
    place.amfs("run", "--local", "--journal", "journal", "killed")
    assert not store.exists()


def test_without_a_journal_every_run_frees_it(place: Place) -> None:
    store = place.killed("--no-journal")
    (place.cwd / "other").write_text("true\n")
    ran = place.amfs("run", "--local", "other")
    assert not store.exists() and "has left" not in ran.stderr


def test_a_store_and_a_spill_directory_elsewhere_are_found_when_named(place: Place) -> None:
    places = [place.cwd / "disk", place.cwd / "spill"]
    for directory in places:
        directory.mkdir()
    left = orphans.make(orphans.EMBEDDED, "n0", places[0])
    spilled = orphans.make(orphans.EMBEDDED, "n0", places[1])
    (left.path / orphans.SPILL).write_text(str(spilled.path))
    (spilled.path / orphans.STORE).write_text(str(left.path))
    (spilled.path / "1").write_bytes(bytes(MIB))
    assert str(left.path) not in place.amfs("clean", str(places[0])).stdout, "its owner lives: it is this process"
    for one in (left, spilled):
        one.release()
    cleaned = place.amfs("clean", *map(str, places)).stdout
    assert f"removed {left.path}, 1.1 MB" in cleaned
    assert not left.path.exists() and not spilled.path.exists()
