"""Locks that prove that somebody lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from amfs.host import life, processes
from amfs.host.file_systems import is_local


def test_held_as_long_as_its_owner_lives(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert life.is_held(path) is None
    program = "import sys; from pathlib import Path; from amfs.host import life; life.hold(Path(sys.argv[1]), 'me'); print(); input()"
    owner = subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdout.readline() == b"\n"
    assert (life.is_held(path), life.text(path)) == (True, "me")
    owner.kill()
    owner.communicate()
    assert (life.is_held(path), life.text(path)) == (False, "me")


def test_an_owner_says_that_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not life.is_ending(path)
    lock = life.hold(path, "me")
    assert not life.is_ending(path)
    life.say_end(lock)
    assert life.is_ending(path) and (life.is_held(path), life.text(path)) == (True, "me")
    os.close(lock)
    assert life.is_held(path) is False


def test_held_again_after_a_death(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    os.close(life.hold(path))
    with os.fdopen(life.hold(path)):
        assert life.is_held(path)
    assert os.listdir(tmp_path) == ["lock"]


def test_a_lock_of_before_the_restart_of_the_machine_is_free_on_a_disk_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("me\nanother boot\n")
    assert life.is_held(tmp_path / "lock") is (False if is_local(str(tmp_path)) else None)


def test_where_locks_may_not_reach_other_machines_only_this_boot_is_judged() -> None:
    for path in (Path("/proc/self/comm"), Path("/proc/version")):  # of no file system that is known to be local
        assert not is_local(str(path)) and life.is_held(path) is None


def test_names_of_one_machine() -> None:
    here = processes.host_id()
    name, _, rest = here.rpartition("/")
    boot, _, space = rest.partition("-")
    assert boot == processes.boot() and processes.same_machine(here, here)
    assert processes.same_machine(here, f"contained/{boot}-{int(space) + 1}")
    assert not processes.same_machine(here, f"{name}/{'0' * 8}-{space}")
    assert not processes.same_machine("a", "b") and not processes.same_machine("a", here)
