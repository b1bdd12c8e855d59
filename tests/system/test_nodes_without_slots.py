"""A node without slots keeps files and names but runs no tasks: a login host, or the manager of a session that grows and shrinks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

Run = Callable[..., subprocess.CompletedProcess[str]]
TASKS = "".join(f"t{k} -b sh -o o{k} -a -c 'echo x > o{k}'\n" for k in range(8))


@pytest.fixture
def session(amfs: Run) -> Iterator[str]:
    name = f"noslots-{os.getpid()}"
    assert amfs("up", "--slots", "none", "--name", name).returncode == 0
    yield name
    amfs("down", name)


def test_tasks_go_to_the_nodes_that_have_slots(session: str, amfs: Run, tmp_path: Path) -> None:
    assert amfs("node", "--join", session, "--slots", "2", "--detach").returncode == 0
    (tmp_path / "list").write_text(TASKS + "a -b cat -i o0 o1 -stdout both -a o0 o1\n")
    ran = amfs("run", "--session", session, "--trace", "trace", "list")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "both").read_text() == "x\nx\n"
    report = amfs("status", session).stdout
    assert "2 nodes" in report
    assert amfs("put", "--session", session, "list", "/list").returncode == 0
    assert amfs("cat", "--session", session, "/list").stdout == (tmp_path / "list").read_text()


def test_a_task_that_must_run_on_such_a_node_fails_and_says_why(session: str, amfs: Run, tmp_path: Path) -> None:
    assert amfs("node", "--join", session, "--slots", "1", "--detach").returncode == 0
    (tmp_path / "list").write_text("a -b true -node 0\nb -b true -node 1\nc -b true\n")
    ran = amfs("run", "--session", session, "list")
    assert ran.returncode == 1
    assert "must run on node 0, which has no slots" in ran.stderr and "1 failed" in ran.stderr, ran.stderr


def test_a_run_that_finds_no_slot_at_all_ends_and_says_so(session: str, amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a -b true\n")
    ran = amfs("run", "--session", session, "list")
    assert ran.returncode == 3 and "no node of the session has slots for tasks" in ran.stderr, (ran.returncode, ran.stderr)


@pytest.mark.parametrize("text", ["-1", "many", "100000"])
def test_what_is_no_number_of_slots_is_refused(text: str, amfs: Run) -> None:
    ran = amfs("up", "--slots", text)
    assert ran.returncode == 2 and "neither a number of tasks nor 'none'" in ran.stderr


def test_a_node_that_is_ended_while_it_starts_leaves_nothing(session: str) -> None:
    def stores() -> set[str]:
        return {path.name for path in Path("/dev/shm").iterdir() if f"-{session}-" in path.name}

    before = stores()
    for later_s in (0, 0.01, 0.02, 0.04, 0.08):  # while its store, its files, its launcher are made
        with subprocess.Popen([sys.executable, "-m", "amfs", "node", "--join", session], stderr=subprocess.PIPE) as node:
            until(lambda: stores() - before)
            time.sleep(later_s)
            node.terminate()
            assert node.wait(60) in (0, 128 + signal.SIGTERM)
        assert stores() == before
