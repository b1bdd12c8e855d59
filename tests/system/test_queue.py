"""The queue of a session with real nodes: queued tasks are run, whichever process is killed; mistakes are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import pytest
from fs_session import PATIENCE_S, running

from amfs.client.files import Files
from amfs.cluster import Cluster
from amfs.host.processes import is_running
from amfs.net.records import QUEUE_LOCK, SessionRecord
from amfs.queueing import spool
from amfs.queueing.client import Queue

COMMAND = [sys.executable, "-m", "amfs"]


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(2, "--slots", "2") as record:
        yield record


@pytest.fixture
def files(session: SessionRecord) -> Iterator[Files]:
    with Files(session.name) as files:
        yield files
        for name in files.listdir("/"):
            if files.isdir(f"/{name}"):
                files.rmtree(f"/{name}")
            else:
                files.unlink(f"/{name}")


def add(*added: tuple[str, ...]) -> None:
    Queue().add([("-C", "amfs:/", *words) for words in added], "/")


def amfs(*words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return commands.run(*words, timeout=timeout)


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.02)


def server(session: SessionRecord) -> tuple[int, int]:
    pid, started = (session.directory / QUEUE_LOCK).read_text().split()
    return int(pid), int(started)


def copies(count: int, *, seconds: float = 0.0) -> None:
    add(*[("sh", "-c", f"sleep {seconds}; cat in >out{i}", "-if", "in", "-of", f"out{i}") for i in range(count)])


def test_tasks_run_when_they_are_executed_and_not_before(session: SessionRecord, files: Files) -> None:
    files.write_bytes("/in", b"x")
    copies(20)
    add(("sort", "-o", "sorted", "out3", "-if", "out3", "-of", "sorted"), ("-C", "amfs:/", "echo", "said", "-if", "in"))
    assert files.listdir("/") == ["in"]
    assert amfs("queue", "--status").stdout == "22 queued, 0 being executed\n"
    done = amfs("execute")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "said\n" and "22 tasks finished" in done.stderr
    assert set(files.listdir("/")) == {"in", "sorted", *(f"out{i}" for i in range(20))}
    again = amfs("execute")
    assert again.returncode == 0 and "nothing is queued" in again.stderr


def test_what_is_wrong_fails_by_itself_and_is_named(session: SessionRecord, files: Files, tmp_path: Path) -> None:
    files.write_bytes("/in", b"x")
    add(("nosuchprogram",), ("cat", "nothing", "-if", "nothing"), ("sh", "-c", "exit 3", "-if", "in"))
    add(("cp", "in", "well", "-if", "in", "-of", "well"))
    done = amfs("execute")
    assert done.returncode == 1
    for words in ("no program 'nosuchprogram' on its PATH", "input 'amfs:/nothing'", "exit status 3", "2 of the queued tasks could"):
        assert words in done.stderr, done.stderr
    assert files.exists("/well")
    for line, why in [(("queue",), "no program to run"), (("queue", "-x"), "no such option"), (("queue", "cat", "x"), "is in no mount"),
                       (("execute", "--session", "nosuch"), "no session named nosuch")]:  # fmt: skip
        refused = subprocess.run([*COMMAND, *line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert refused.returncode and why in refused.stderr and "Traceback" not in refused.stderr, refused.stderr


def test_outputs_go_to_persistent_storage(session: SessionRecord, files: Files, tmp_path: Path) -> None:
    files.write_bytes("/in", b"x")
    add(("--to", str(tmp_path / "kept"), "cp", "in", "out", "-if", "in", "-of", "out"))
    assert amfs("execute").returncode == 0
    assert (tmp_path / "kept" / "out").read_bytes() == b"x" and os.listdir(tmp_path / "kept") == ["out"]
    assert not files.exists("/out")


def test_the_environment_is_that_of_the_call(session: SessionRecord, files: Files) -> None:
    files.write_bytes("/in", b"")
    for value in ("one", "two"):
        Queue().add([("-C", "amfs:/", "sh", "-c", "echo $OWN ${ONLY-not}", "-if", "in")], "/", env={**os.environ, "OWN": value})
    Queue().add([("-C", "amfs:/", "sh", "-c", "echo $OWN $ONLY", "-if", "in")], "/", env={**os.environ, "OWN": "", "ONLY": "yes"})
    assert sorted(amfs("execute").stdout.splitlines()) == ["one not", "two not", "yes"]


def test_ctrl_c_ends_the_tasks_and_a_killed_execute_does_not(session: SessionRecord, files: Files) -> None:
    files.write_bytes("/in", b"x")
    copies(8, seconds=1.0)
    process = subprocess.Popen([*COMMAND, "execute"], stderr=subprocess.PIPE, text=True)
    until(lambda: files.exists("/out0") or files.exists("/out1"), "the first task has ended")
    process.kill()
    process.communicate()
    done = amfs("execute")
    assert done.returncode == 0, done.stderr
    assert len(files.listdir("/")) == 9
    copies_before = set(files.listdir("/"))
    add(*[("sh", "-c", f"sleep 60; touch late{i}", "-if", "in", "-of", f"late{i}") for i in range(6)])
    process = subprocess.Popen([*COMMAND, "execute"], stderr=subprocess.PIPE, text=True)
    until(lambda: "1 being executed" in amfs("queue", "--status").stdout, "it is under way")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and "Traceback" not in said, said
    assert set(files.listdir("/")) == copies_before
    assert "nothing is queued" in amfs("execute").stderr, "what was cancelled is not run later"


def test_another_server_goes_on_when_it_is_killed(session: SessionRecord, files: Files) -> None:
    files.write_bytes("/in", b"x")
    copies(10, seconds=0.5)
    process = subprocess.Popen([*COMMAND, "execute"], stderr=subprocess.PIPE, text=True)
    until(lambda: files.exists("/out0") or files.exists("/out1"), "the first task has ended")
    first = server(session)
    os.kill(first[0], signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert "another one goes on" in said
    assert len(files.listdir("/")) == 11
    assert server(session) != first and is_running(*server(session))


def test_a_torn_record_is_left_out(session: SessionRecord, files: Files) -> None:
    files.write_bytes("/in", b"x")
    copies(1)
    record = spool.encode(spool.Record("/", "", "e", ("-C", "amfs:/", "touch", "torn", "-if", "in", "-of", "torn")))
    with open(session.directory / "spool" / spool.PROGRAM, "ab") as stream:
        stream.write(record[:-9])
    add(("cp", "in", "after", "-if", "in", "-of", "after"))
    assert amfs("execute").returncode == 0
    assert set(files.listdir("/")) == {"in", "out0", "after"}


def test_shells_without_a_mount_use_the_program(session: SessionRecord, files: Files, tmp_path: Path) -> None:
    files.write_bytes("/in", b"x")
    script = 'eval "$(amfs shell-init bash)"; for i in 1 2 3; do AMFS_queue -C amfs:/ cp in o$i -if in -of o$i; done; AMFS_execute'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert set(files.listdir("/")) == {"in", "o1", "o2", "o3"}


def test_the_server_ends_with_its_session() -> None:
    with running(1) as session:
        with Files(session.name) as files:
            files.write_bytes("/in", b"x")
        copies(1)
        assert amfs("execute").returncode == 0
        process = server(session)
        assert is_running(*process)
    assert not is_running(*process)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_twenty_thousand(session: SessionRecord, files: Files) -> None:
    files.write_bytes("/in", b"x")
    add(*[("cp", "in", f"o{i}", "-if", "in", "-of", f"o{i}") for i in range(20_000)])
    assert amfs("execute", "-q", timeout=1000).returncode == 0
    assert len(files.listdir("/")) == 20_001


def test_a_python_program_queues_and_executes(session: SessionRecord, files: Files) -> None:
    with Cluster(session.name) as cluster:
        assert cluster.execute() is None
        cluster.files.mkdir("/d")
        env = {"WHAT": "made", "PATH": os.environ["PATH"]}
        late, first = ["sh", "-c", "cat out | wc -l >lines"], ["sh", "-c", "sleep 0.2; echo $WHAT >out"]
        assert cluster.queue(late, first, directory="/d", env=env) == 2
        summary = cluster.execute()
        assert summary is not None and summary.exit_code == 0, summary
        assert cluster.get("/d/out") == b"made\n"
        assert cluster.get("/d/lines").strip() == b"1", "a pipeline that had no file at first is not believed"
        cluster.queue(["cat", "nowhere"])
        summary = cluster.execute()
        assert summary is not None and summary.exit_code == 1 and "nowhere" in summary.failures[0].what


def test_what_is_named_and_nobody_makes_may_be_missing(session: SessionRecord, files: Files) -> None:
    with Cluster(session.name) as cluster:
        cluster.queue(["sh", "-c", "test -e flag || echo none >made"])
        summary = cluster.execute()
        assert summary is not None and summary.exit_code == 0, summary
        assert cluster.get("/made") == b"none\n"
