"""Runs and sessions are watched by other processes: their totals, tasks at work, failures; on a terminal and in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

from amfs.live.reader import Reader, ask_run, run_sockets
from amfs.vocabulary.live import Ask

pytestmark = pytest.mark.slow

AMFS = (sys.executable, "-m", "amfs")
LIST = """\
long -b /bin/sh -a -c "sleep 600 & sleep 600"
bad -b /bin/sh -a -c "echo broken >&2; exit 3"
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(path))
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def going(home: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run with its own node, of which one task runs and another has failed."""
    (tmp_path / "list.txt").write_text(LIST)
    with subprocess.Popen([*AMFS, "run", "--local", "--slots", "1", "list.txt"], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            with Reader() as reader:
                until(lambda: [run.running for run in reader.frame().runs] == [1])
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """It does not outlive a failure."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def test_a_run_alone_is_found_and_its_tasks_are_named(going: subprocess.Popen[bytes], amfs: Run, home: Path, tmp_path: Path) -> None:
    with Reader() as reader:
        frame, page = reader.frame(), reader.page()
        (run,) = frame.runs
        assert (run.pid, run.source, run.total, run.place) == (going.pid, "list.txt", 2, run.id)
        assert {stage.label: stage.tasks for stage in run.stages} == {"sh": 2}
        (task,) = page.at_work
        assert (task.task, task.label, task.node, page.at_work_total) == ("long", "sh", 0, 1)
        assert abs(time.time() - task.since) < 60 and task.memory > 0
        assert Path(f"/proc/{task.pid}").exists()
        told = amfs("explain", "long", "list.txt", "-C", str(tmp_path)).stdout
        assert "node 0: runs since " in told and f"in slot 0 as process {task.pid}" in told
        assert "waits for a slot" in amfs("explain", "bad", "list.txt", "-C", str(tmp_path)).stdout or run.failed
        table = amfs("status").stdout
        assert "run of list.txt" in table and "long" in table and "at work: 1 task" in table
        once = amfs("top", "--once").stdout
        assert "list.txt" in once and "q quit" not in once, "nobody can press keys"
        assert run.total - run.finished - run.failed == run.waiting + run.running
        os.kill(task.pid, signal.SIGTERM)
        until(lambda: not run_sockets())
        until(lambda: [run.over for run in reader.frame().runs] == ["ended"])
        assert reader.frame().runs[0].failed == 2  # how it stood at its very end
        page = reader.page()
        assert (page.failed_total, {failed.task for failed in page.failed}) == (2, {"long", "bad"})
        assert page.at_work == []
    assert not list(home.glob(".runs/*.sock"))


def test_the_socket_of_a_run_that_was_killed_is_removed(going: subprocess.Popen[bytes], home: Path) -> None:
    with Reader() as reader:
        assert reader.frame().runs[0].over == ""
        going.kill()
        going.wait()
        assert reader.frame().runs[0].over == "gone"
        assert not run_sockets()


def test_bad_questions_are_refused_and_harm_nothing(going: subprocess.Popen[bytes]) -> None:
    (socket,) = run_sockets()
    assert ask_run(socket.path, Ask("what?")).error == "no such question: what?"
    assert ask_run(socket.path, Ask("failed", start=-5, count=10**9)).failed == []
    names = ask_run(socket.path, Ask("names", numbers=(0, 99, -1))).names
    assert names == [("long", "sh"), ("part of a reduction", ""), ("part of a reduction", "")]
    assert ask_run(socket.path, Ask("totals")).run is not None


def test_a_session_is_watched(home: Path, amfs: Run, tmp_path: Path) -> None:
    name = f"watch-{os.getpid()}"
    assert amfs("up", "--nodes", "2", "--slots", "1", "--name", name).returncode == 0
    (tmp_path / "list.txt").write_text("".join(f"t{number} -b sleep -a 600\n" for number in range(5)))
    try:
        command = (*AMFS, "run", "--session", name, "list.txt")
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process, ended(process):
            with Reader(name) as reader:
                until(lambda: bool(reader.frame().runs) and reader.page().at_work_total == 2)
                frame, page = reader.frame(), reader.page(at_work=1)
                assert sum(node.running for node in frame.nodes) == 2 and sum(node.ready for node in frame.nodes) == 3
                assert [len(page.at_work), page.at_work_total] == [1, 2] and page.at_work[0].task.startswith("t")
                assert (frame.runs[0].place, frame.runs[0].running, frame.runs[0].waiting) == (name, 2, 3)
                assert [session.epoch > 0 for session in frame.sessions] == [True]
            lines = amfs("explain", "t4", "list.txt", "-C", str(tmp_path), "--session", name).stdout.splitlines()
            assert any("waits for a slot" in line or "next for a slot" in line for line in lines), lines
            with subprocess.Popen([*AMFS, "status", "--watch", "--every", "0.2", "--output", "json"], stdout=subprocess.PIPE) as watch:
                assert watch.stdout is not None
                told = [json.loads(watch.stdout.readline()) for _ in range(3)]
                watch.terminate()
            assert {frame["version"] for frame in told} == {1} and told[2]["sessions"][0]["name"] == name
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
    finally:
        assert amfs("down", name).returncode == 0


def test_top_obeys_its_keys_and_leaves_the_terminal_as_it_was(going: subprocess.Popen[bytes]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*AMFS, "top", "--every", "0.2"], stdin=theirs, stdout=theirs, stderr=theirs) as top:
        os.close(theirs)
        seen = b""

        def screen(word: bytes) -> bool:
            nonlocal seen
            seen += os.read(ours, 65536)
            return word in seen

        until(lambda: screen(b"list.txt"))
        os.write(ours, b"n")
        until(lambda: screen(b"wait for"))
        os.write(ours, b" ")
        until(lambda: screen(b"PAUSED"))
        os.write(ours, b"q")
        until(lambda: screen(b"\x1b[?1049l"))
        assert top.wait(30) == 0
    os.close(ours)


def test_without_runs_and_sessions_that_is_said(home: Path, amfs: Run) -> None:
    once = amfs("top", "--once").stdout
    assert "no run is going on, and there is no session" in once and "q ends" not in once
    assert amfs("status").returncode == 4
    done = amfs("top")
    assert (done.returncode, "needs a terminal" in done.stderr) == (2, True)
