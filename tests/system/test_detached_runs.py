"""``amfs run --detach`` and ``amfs attach``: runs that outlive their terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from amfs.runs import detached

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def heeds_hangups() -> None:
    """The tests themselves may run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def slow(here: Path) -> None:
    """A list that ends when the file ``go`` is there."""
    text = "a -b sh -o made -a -c 'while ! test -e %s; do sleep 0.05; done; echo done > made'\n"
    (here / "list").write_text(text % (here / "go") + "b -b cat -i made -a made\n")


def test_a_run_goes_on_and_is_followed(amfs: Run, tmp_path: Path) -> None:
    slow(tmp_path)
    done = amfs("run", "--local", "--detach", "list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "run 1 goes on in the background; amfs attach 1 shows it\n")
    assert "running" in amfs("attach", "--list").stdout
    (tmp_path / "go").touch()
    done = amfs("attach", cwd=tmp_path)
    assert done.returncode == 0 and "2 tasks finished" in done.stdout and "done" in done.stdout
    assert "ended with status 0" in amfs("attach", "--list").stdout
    assert amfs("attach", "1").stdout == done.stdout, "it can be looked at again"


def test_a_faulty_list_is_refused_as_without(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a -b nowhere-such-program\n")
    done = amfs("run", "--local", "--detach", "list", cwd=tmp_path)
    if done.returncode == 0:  # this machine is too busy to find the fault in a moment
        done = amfs("attach", cwd=tmp_path)
    assert done.returncode == 2 and "nowhere-such-program" in done.stdout
    assert amfs("attach").returncode == 2


def test_its_terminal_may_end(tmp_path: Path) -> None:
    """The whole process group that started it is killed."""
    slow(tmp_path)
    command = f"{sys.executable} -m amfs run --local --detach list; sleep 60"
    shell = subprocess.Popen(
        ["sh", "-c", command], cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL, preexec_fn=heeds_hangups
    )
    until(lambda: detached.every() and detached.find(None).goes_on())
    time.sleep(0.2)
    os.killpg(shell.pid, signal.SIGHUP)
    shell.wait()
    run = detached.find(None)
    assert run.goes_on()
    (tmp_path / "go").touch()
    assert b"2 tasks finished" in b"".join(run.follow()) and run.status() == 0


def test_stop_interrupts_it_and_it_can_be_resumed(amfs: Run, tmp_path: Path) -> None:
    slow(tmp_path)
    amfs("run", "--local", "--detach", "list", cwd=tmp_path)
    done = amfs("attach", "--stop", cwd=tmp_path)
    assert done.returncode == 130 and "interrupted" in done.stdout
    (tmp_path / "go").touch()
    assert amfs("run", "--local", "--resume", "list", cwd=tmp_path).returncode == 0


def test_one_that_was_killed_is_said_to_be(amfs: Run, tmp_path: Path) -> None:
    slow(tmp_path)
    amfs("run", "--local", "--detach", "list", cwd=tmp_path)
    os.killpg(detached.find(None).record.pid, signal.SIGKILL)
    done = amfs("attach", cwd=tmp_path)
    assert done.returncode == 1 and "run 1 was killed" in done.stderr and "--resume" in done.stderr


def test_a_scripts_own_argument_of_that_name_stays(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "x.swift").write_text('app f() { "sleep" "2" } f();\n')
    amfs("run", "--local", "--detach", "x.swift", "--", "--detach", cwd=tmp_path)
    assert detached.find(None).record.words == ("run", "--local", "x.swift", "--", "--detach")
    assert amfs("attach", cwd=tmp_path).returncode == 0


@pytest.mark.filterwarnings("ignore:.*subprocess")  # nobody waits for what is detached
def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "KEPT", 2)
    for _ in range(4):
        detached.start(["--version"], os.environ)
        until(lambda: not detached.find(None).goes_on())
    assert [one.record.number for one in detached.every()] == [2, 3, 4], "the one that was started, and two before it"


def test_what_cannot_be(amfs: Run, tmp_path: Path) -> None:
    assert "nobody feeds a pipe" in amfs("run", "--detach", "-", cwd=tmp_path).stderr
    assert "no run was started with --detach" in amfs("attach").stderr
    assert "there is no run 7" in amfs("attach", "7").stderr
