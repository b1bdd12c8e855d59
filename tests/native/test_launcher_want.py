"""Lacks of the launcher are its own: tasks wait for it, and none of them fails by it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from amfs.vocabulary.states import Outcome

#: A process of its own, since its limits count for all of it.
DRIVER = """
import json, os, resource, select, sys, time
sys.path[:0] = [{here!r}]
from pathlib import Path
from launching import World
which, soft, hard, slots, count = sys.argv[2], *map(int, sys.argv[3:7])
limit = getattr(resource, f"RLIMIT_{{which}}")
if which == "NOFILE":
    resource.setrlimit(limit, (soft, hard))
world = World(Path(sys.argv[1]), slots=slots)
if which == "NPROC":  # it does not count for root
    user = 100_000 + os.getpid() % 100_000
    for place in (sys.argv[1], *(world.sandboxes, world.store, world.base)):
        os.chown(place, user, user)
    os.setgid(user), os.setuid(user)
    resource.setrlimit(limit, (soft, hard))
script = sys.argv[7]
world.launcher.submit([world.shell(script, flags=4) for _ in range(count)])
done = world.wait(count)
print(json.dumps([(each.outcome, each.code, each.detail, each.stdout.decode(), each.facts and each.facts[4]) for each in done]), flush=True)
os._exit(0)  # by another user than that of the watcher, which ends by itself
"""


def run(which: str, soft: int, hard: int, slots: int, count: int, script: str) -> list[tuple[int, int, str, str, int | None]]:
    driver = DRIVER.format(here=str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as root:  # where other users may go
        words = [sys.executable, "-c", driver, root, which, *map(str, (soft, hard, slots, count)), script]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout)]


def test_the_limit_of_open_files_is_raised_and_tasks_have_the_usual_one() -> None:
    done = run("NOFILE", 200, 4096, 300, 600, "ulimit -n; ulimit -H -n; sleep 0.2")
    assert {each[:2] for each in done} == {(Outcome.OK, 0)}
    assert {each[3] for each in done} == {"200\n4096\n"}


def test_all_that_tasks_left_is_told_and_ended_where_no_more_open_files_are_allowed() -> None:
    """Each process takes a descriptor while it is looked at, and tasks that run have all of them but a few."""
    each = "setsid sleep 1000 < /dev/null > /dev/null 2>&1 &"
    done = run("NOFILE", 60, 60, 300, 60, f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {each} done; sleep 0.05")
    assert {each[:2] for each in done} == {(Outcome.OK, 0)}
    assert {each[4] for each in done} == {12}


def test_tasks_wait_for_open_files_where_no_more_are_allowed() -> None:
    done = run("NOFILE", 100, 100, 300, 600, "sleep 0.05")
    assert {each[:3] for each in done} == {(Outcome.OK, 0, "")}


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit of another user is set")
def test_tasks_wait_for_processes() -> None:
    done = run("NPROC", 12, 12, 64, 200, "exec sleep 0.02")
    assert {each[:3] for each in done} == {(Outcome.OK, 0, "")}


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit of another user is set")
def test_a_want_that_nothing_ends_fails_with_one_clear_message() -> None:
    done = run("NPROC", 1, 1, 4, 5, "exec sleep 0")
    assert {each[:2] for each in done} == {(Outcome.SETUP, errno.EAGAIN)}
    (words,) = {each[2] for each in done}
    assert words.startswith("cannot start a process for '/bin/sh': Resource temporarily unavailable: tried for 10 s")
    assert "ulimit -u" in words
