"""``amfs up --on command``: a batch system that is known only by the commands that a user gives; here three scripts and processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from fs_session import about
from waiting import until

from amfs.net import records
from amfs.provision import ledger, submission, systems
from amfs.provision.ledger import Ledger
from amfs.provision.provisioner import NodeOptions

pytestmark = pytest.mark.slow

Amfs = Callable[..., subprocess.CompletedProcess[str]]

SCRIPTS = {
    "submit": '{ test "$1" != refuse && test ! -e refuses; } || { echo "no such project" >&2; exit 3; }\n'
    "test ! -e slow || { touch submitting; while test ! -e go; do sleep 0.05; done; }\n"
    'setsid "$1" >"$2" 2>&1 </dev/null &\necho $! >>jobs; echo "your job is $!"',
    "queue": 'while read -r job; do kill -0 "$job" 2>/dev/null && echo "$job active" || echo "$job over finished"; done <jobs',
    "delete": 'kill "$@"',
}


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amfs: Amfs) -> Iterator[list[str]]:
    """The words after "--"."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    yield [
        f"submit={tmp_path}/submit {{script}} {{log}}", f"state={tmp_path}/queue", f"cancel={tmp_path}/delete {{jobs}}",
        r"job_id=your job is (\d+)", "running=active",
    ]  # fmt: skip
    amfs("down", "ours")
    until(lambda: not alive(tmp_path), "a job is left")
    assert not (tmp_path / ".amfs/sessions/ours").exists()


def alive(tmp_path: Path) -> list[int]:
    def lives(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    jobs = tmp_path / "jobs"
    return [pid for pid in map(int, jobs.read_text().split() if jobs.exists() else ()) if lives(pid)]


def test_jobs_of_commands_become_nodes_are_replaced_and_end(tmp_path: Path, amfs: Amfs, words: list[str]) -> None:
    done = amfs("up", "--on", "command", "--nodes", "2", "--name", "ours", "--slots", "1", "--tcp", "127.0.0.1", "--", *words)
    assert done.returncode == 0 and "2 jobs submitted to command" in done.stderr, done.stderr
    first, _ = alive(tmp_path)
    (tmp_path / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'sleep 0.1; echo x > o{k}'\n" for k in range(4)))
    assert amfs("run", "--session", "ours", "list").returncode == 0
    subprocess.run([tmp_path / "delete", str(first)], check=True)

    def book() -> Ledger:
        return msgspec.json.decode((tmp_path / ".amfs/sessions/ours/jobs.json").read_bytes(), type=Ledger)

    def states() -> list[str]:
        return [job.state.name for job in book().jobs.values()]

    until(lambda: states() == ["ENDED", "JOINED", "JOINED"], "the job is not replaced")
    (tmp_path / "refuses").touch()
    subprocess.run([tmp_path / "delete", book().jobs[2].job], check=True)
    until(lambda: "no such project; 'amfs scale 2 --session ours' tries again at once" in book().paused(), "it does not pause")
    keeper = book().keeper
    assert states() == ["ENDED", "ENDED", "JOINED"] and book().unkept() == "" and keeper is not None
    os.kill(keeper[1], signal.SIGKILL)
    until(lambda: "the process that keeps the jobs has ended" in book().unkept())
    (session,) = json.loads(amfs("status", "ours", "--output", "json").stdout)["sessions"]
    assert session["wanted"] == 2 and session["paused"] == f"{book().unkept()}; {book().paused()}", session
    (tmp_path / "refuses").unlink()
    done = amfs("scale", "2", "--session", "ours")
    assert done.returncode == 0 and "another one was started\n1 more job is submitted" in done.stderr, done.stderr
    until(lambda: states() == ["ENDED", "ENDED", "JOINED", "JOINED"], "the pause is not ended")
    assert book().paused() == book().unkept() == ""
    node = str(book().jobs[3].node)
    left = amfs("node", "--drain", node, "--session", "ours")
    assert left.returncode == 0 and left.stderr == f"node {node} has left ours; its log says what could not be moved, if anything\n"
    until(lambda: states() == ["ENDED", "ENDED", "ENDED", "JOINED"])
    assert book().wish.nodes == 1
    log = (tmp_path / ".amfs/sessions/ours/keeper.log").read_text()
    assert "no such project" in log and "Traceback" not in log, log
    down = amfs("down", "ours")
    assert (down.stdout, about("ours", down.stderr)) == ("ours is down\n", "")


def test_a_job_that_is_just_submitted_when_another_host_takes_the_session_down_is_cancelled(
    tmp_path: Path, amfs: Amfs, words: list[str]
) -> None:
    done = amfs("up", "--on", "command", "--nodes", "1", "--name", "ours", "--slots", "1", "--tcp", "127.0.0.1", "--", *words)
    assert done.returncode == 0, done.stderr
    place = tmp_path / ".amfs/sessions/ours"
    (tmp_path / "slow").touch()
    subprocess.run([tmp_path / "delete", *map(str, alive(tmp_path))], check=True)
    until((tmp_path / "submitting").exists, "the job is not replaced")
    session = records.load(place / "session.json")
    book = ledger.load(session)
    assert book is not None and book.keeper is not None
    book.keeper = ("elsewhere/0-1", *book.keeper[1:])
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(submission.end, session, book)
        until(lambda: ended.done() or list(place.glob("order-*-down")))
        assert not ended.done()
        (tmp_path / "go").touch()
        assert ended.result(60.0) == []
    assert len((tmp_path / "jobs").read_text().split()) == 2
    until(lambda: not alive(tmp_path), "the job goes on")
    assert not place.exists()


def test_jobs_that_may_be_left_are_no_success(tmp_path: Path, amfs: Amfs, words: list[str]) -> None:
    done = amfs("up", "--on", "command", "--nodes", "1", "--name", "ours", "--slots", "1", "--tcp", "127.0.0.1", "--", *words)
    assert done.returncode == 0, done.stderr
    (tmp_path / "queue").rename(tmp_path / "away")
    down = amfs("down", "ours")
    assert down.returncode == 1 and "ours is down, but jobs of it may be left; 'amfs down ours' tries again" in down.stdout, down
    assert "jobs that may still be in the queue of command" in down.stderr
    (tmp_path / "away").rename(tmp_path / "queue")
    again = amfs("down", "ours")
    assert (again.returncode, again.stdout) == (0, "ours is down\n")


def test_an_end_whose_words_nobody_reads_cancels_the_jobs_too(tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C ends "tee", too, which reads what is said."""
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path))
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            raise KeyboardInterrupt
        raise BrokenPipeError

    begun = submission.Submission(systems.of_words(words), submission.Wanted(most=2), tell)
    with pytest.raises(KeyboardInterrupt):
        begun.start("ours", NodeOptions(slots=1, tcp="127.0.0.1"))
    assert said[0] == "2 jobs submitted to command" and "cancels the jobs" in said[1]
    assert len((tmp_path / "jobs").read_text().split()) == 2 and not alive(tmp_path)
    assert not (tmp_path / ".amfs/sessions/ours").exists() and not (tmp_path / "ours").exists()


def test_what_the_commands_say_is_told(tmp_path: Path, amfs: Amfs, words: list[str]) -> None:
    refused = [words[0].replace("{script}", "refuse {script}"), *words[1:]]
    done = amfs("up", "--on", "command", "--name", "ours", "--", *refused)
    assert done.returncode == 4 and "failed: no such project" in done.stderr, done.stderr
    ends = [words[0].replace("{script}", "/bin/false {script}").replace("{log}", "/dev/null"), *words[1:]]
    done = amfs("up", "--on", "command", "--name", "ours", "--", *[word.replace("/dev/null", str(tmp_path / "log")) for word in ends])
    assert done.returncode == 4 and "command gives no node: over" in done.stderr, done.stderr
    shown = amfs("up", "--on", "command", "--nodes", "3", "--dry-run", "--", *words)
    assert "# 3 times" in shown.stdout and f"{tmp_path}/submit " in shown.stdout
