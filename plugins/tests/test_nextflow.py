"""Nextflow itself with amfs as its executor. Java and Maven are needed: ``make plugs`` has Maven make the plugin and fetch Nextflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import amfs
from amfs.live.reader import Reader

PLUGIN = Path(__file__).parents[1] / "nextflow"
NEXTFLOW = str(PLUGIN / "nextflow")
SUM = str(2 * sum(i * i for i in range(1, 100)))

pytestmark = pytest.mark.skipif(not (PLUGIN / "target/nextflow").exists(), reason="the plugin is not made: java and mvn, then make plugs")


def environment() -> dict[str, str]:
    return {**os.environ, "AMFS_PYTHON": sys.executable, "NXF_ANSI_LOG": "false"}


def nextflow(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    return subprocess.run(
        [NEXTFLOW, "run", "main.nf", *words], cwd=place, env=environment(), text=True, stdout=pipe, stderr=both, timeout=200
    )


def write(place: Path, script: str, settings: str = "") -> None:
    (place / "main.nf").write_text(script.replace("HERE", str(place)))
    (place / "nextflow.config").write_text((PLUGIN / "example/nextflow.config").read_text() + settings)


def example(place: Path, settings: str = "") -> None:
    write(place, (PLUGIN / "example/main.nf").read_text(), settings)


def until(what: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        assert process is None or process.poll() is None
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_200_tasks_here_and_resumed(tmp_path: Path) -> None:
    example(tmp_path, "amfs.slots = 2\n")
    done = nextflow(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"up to 99: {SUM}" in done.stdout and "tasks run on this machine" in done.stdout
    assert done.stdout.count("Submitted process") == 200
    again = nextflow(tmp_path, "-resume")
    assert again.returncode == 0 and f"up to 99: {SUM}" in again.stdout
    assert again.stdout.count("Cached process") == 200 and "Submitted process" not in again.stdout


def test_200_tasks_in_a_session(tmp_path: Path, session: str) -> None:
    example(tmp_path, f"amfs.session = '{session}'\n")
    done = nextflow(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"up to 99: {SUM}" in done.stdout and f"in session {session} (2 nodes)" in done.stdout


CHAIN = """
process first { output: path 'a'; script: "echo 20 > a" }
process second { input: path a; output: path 'b'; script: "read n < a; echo \\$(( n + 1 )) > b" }
process third { input: path b; script: "cp b HERE/answer" }
workflow { first | second | third }
"""


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no FUSE")
def test_files_between_the_tasks_stay_in_node_memory(tmp_path: Path, session: str) -> None:
    write(tmp_path, CHAIN, f"amfs.session = '{session}'\n")
    mount = tmp_path / "mount"
    mount.mkdir()
    command = [sys.executable, "-m", "amfs"]
    subprocess.run([*command, "mount", str(mount), "--session", session], check=True)
    try:
        done = nextflow(tmp_path, "-w", f"{mount}/work")
        assert done.returncode == 0, done.stdout
        assert (tmp_path / "answer").read_text() == "21\n"
        assert len(list(mount.glob("work/*/*/.exitcode"))) == 3
    finally:
        subprocess.run([*command, "umount", str(mount)], check=True)


FAILING = """
process good {
    output: path 'made'
    script: "echo x >> HERE/count; echo 1 > made"
}
process bad {
    input: path made
    script: "if [ ! -e HERE/mended ]; then echo my reason >&2; exit 7; fi"
}
workflow { good | bad }
"""


def test_a_failure_is_told_and_mended(tmp_path: Path) -> None:
    write(tmp_path, FAILING)
    failed = nextflow(tmp_path)
    assert failed.returncode == 1
    assert "exit status (7)" in failed.stdout and "my reason" in failed.stdout
    (tmp_path / "mended").touch()
    done = nextflow(tmp_path, "-resume")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "count").read_text() == "x\n"  # the finished task did not run again


KINDS = """
process tried {
    errorStrategy 'retry'
    maxRetries 2
    script: "echo x >> HERE/tries; [ ${task.attempt} = 2 ]"
}
process killed { errorStrategy 'ignore'; script: "kill -9 0" }
process late { time '1s'; errorStrategy 'ignore'; script: "sleep 300" }
process wide { cpus 2; memory '64 MB'; script: "touch HERE/wide" }
process huge { cpus 4000; script: "touch HERE/huge" }
workflow { tried(); killed(); late(); wide(); huge() }
"""


def test_retries_signals_limits_and_resources(tmp_path: Path) -> None:
    write(tmp_path, KINDS, "amfs.slots = 2\n")
    done = nextflow(tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "tries").read_text() == "x\nx\n"
    assert (tmp_path / "wide").exists() and (tmp_path / "huge").exists()
    log = (tmp_path / ".nextflow.log").read_text()
    assert "amfs: exceeded its time limit of 1 s" in log
    assert "name: killed; status: COMPLETED; exit: 137" in log


TWO_FOR_ONE_SLOT = """
process held {
    maxSubmitAwait '5s'
    errorStrategy 'ignore'
    input: val i
    output: path 'made'
    script: "echo x >> HERE/ran; until [ -e HERE/go ]; do sleep 0.1; done; touch made"
}
process after {
    input: path made
    script: "touch HERE/after"
}
workflow { Channel.of(1, 2) | held | after }
"""


def test_a_task_that_waits_too_long_never_starts(tmp_path: Path) -> None:
    process = start(tmp_path, TWO_FOR_ONE_SLOT, "amfs.slots = 1\n")
    log = tmp_path / ".nextflow.log"
    until(lambda: log.exists() and "Error is ignored" in log.read_text(), process)
    (tmp_path / "go").touch()
    assert process.wait(100) == 0
    assert (tmp_path / "after").exists()  # it had to wait for the slot behind the one that was withdrawn
    assert (tmp_path / "ran").read_text() == "x\n"


def start(place: Path, script: str, settings: str) -> subprocess.Popen[bytes]:
    write(place, script, settings)
    null = subprocess.DEVNULL
    return subprocess.Popen([NEXTFLOW, "run", "main.nf"], cwd=place, env=environment(), stdout=null, stderr=null, start_new_session=True)


def begun(place: Path, script: str, settings: str) -> tuple[subprocess.Popen[bytes], int]:
    """Nextflow, and the process of its one task, which sleeps."""
    process = start(place, script, settings)
    pid = place / "pid"
    until(lambda: pid.exists() and pid.read_text().endswith("\n"), process)
    return process, int(pid.read_text())


SLEEPS = """
process sleeps { tag 'deep'; script: "echo \\$\\$ > HERE/pid; exec sleep 300" }
workflow { sleeps() }
"""


def test_an_interrupt_ends_the_tasks_and_status_names_them(tmp_path: Path, session: str) -> None:
    process, pid = begun(tmp_path, SLEEPS, f"amfs.session = '{session}'\n")
    with Reader(session) as reader:
        assert [run.source.split()[0] for run in reader.frame().runs if run.place == session] == ["nextflow"]
        assert [(task.task, task.label) for task in reader.page().at_work] == [("sleeps (deep)", "sleeps")]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    process.wait(60)
    assert process.returncode != 0
    until(lambda: not lives(pid))
    with Reader(session) as reader:
        until(lambda: not [run for run in reader.frame().runs if not run.over and run.place == session])


def test_nothing_is_left_when_nextflow_is_killed(tmp_path: Path) -> None:
    process, pid = begun(tmp_path, SLEEPS, "amfs.slots = 1\n")
    process.kill()
    process.wait(60)
    until(lambda: not lives(pid))


def test_a_session_that_ends_is_told(tmp_path: Path) -> None:
    with amfs.Cluster(nodes=1, slots=1) as cluster:
        process, pid = begun(tmp_path, SLEEPS, f"amfs.session = '{cluster.name}'\n")
    process.wait(100)
    assert process.returncode == 1
    assert "amfs: " in (tmp_path / ".nextflow.log").read_text()
    until(lambda: not lives(pid))


@pytest.mark.parametrize(
    ("settings", "python", "words"),
    [
        ("amfs.session = 'no-such-session'", sys.executable, "amfs: no session named no-such-session"),
        ("amfs.slots = 0", sys.executable, "amfs: amfs.slots is a number from 1"),
        ("amfs.slotz = 2", sys.executable, "amfs: no such setting: amfs.slotz; there are: python, session, slots"),
        ("", "no-such-python", "amfs.python names the Python that has amfs"),
    ],
)
def test_what_is_refused(tmp_path: Path, settings: str, python: str, words: str) -> None:
    example(tmp_path, f"amfs.python = '{python}'\n{settings}\n")
    refused = nextflow(tmp_path)
    assert refused.returncode == 1
    assert words in refused.stdout and "Exception" not in refused.stdout


