"""``amfs.run`` and ``amfs.Session`` as a script or a notebook uses them, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import amfs
from amfs.runs.context import RunOptions
from amfs.runs.keywords import RunKeywords, SessionKeywords, TaskKeywords


@pytest.fixture
def session(tmp_path: Path) -> Iterator[amfs.Session]:
    with amfs.Session(slots=2, base=tmp_path) as opened:
        yield opened


def test_run_takes_tasks_a_workflow_or_a_path(tmp_path: Path) -> None:
    tasks = [amfs.Task("a", ("sh", "-c", "echo 1 > x"), outputs=("x",)), amfs.Task("b", ("cp", "x", "y"), inputs=("x",), outputs=("y",))]
    assert amfs.run(tasks, base=str(tmp_path)).ok
    assert (tmp_path / "y").read_text() == "1\n"
    (tmp_path / "list").write_text("a -b sh -o z -a -c 'echo 2 > z'\n")
    result = amfs.run(tmp_path / "list", base=str(tmp_path), slots=1)
    assert result.exit_code == 0
    assert "1 task finished" in str(result)


def test_run_reports_failures_and_raises_only_faults(tmp_path: Path) -> None:
    result = amfs.run([amfs.Task("bad", ("sh", "-c", "echo why >&2; exit 3"))], base=str(tmp_path))
    assert not result.ok
    assert [(failure.id, failure.what, failure.stderr) for failure in result.failures] == [("bad", "exit status 3", "why\n")]
    with pytest.raises(amfs.WorkflowError, match="no task makes it"):
        amfs.run([amfs.Task("a", ("cat", "nothing"), inputs=("nothing",))], base=str(tmp_path))
    with pytest.raises(amfs.UsageError, match="unknown option solts"):
        amfs.run([], solts=3)  # type: ignore[call-arg]  # type checkers find it, too


def test_a_text_where_several_belong_is_refused(session: amfs.Session) -> None:
    """It would be taken for its letters."""
    for faulty in (amfs.Task("a", "false"), amfs.Task("a", ("cat",), inputs="abc"), ["a", "b"]):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="and this is "):
            amfs.run([faulty])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="and this is "):
            session.submit_tasks([faulty])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="outputs must be a tuple or list of texts"):
        session.submit(["touch", "ab"], outputs="ab")


def test_the_keywords_that_type_checkers_know_are_those_that_there_are() -> None:
    run_keywords, session_keywords = RunKeywords.__annotations__.keys(), SessionKeywords.__annotations__.keys()
    assert run_keywords == session_keywords == {*RunOptions.__struct_fields__, "progress"}
    submitted = {"id", "argv", "inputs", "outputs", "keep"}  # its own parameters
    assert TaskKeywords.__annotations__.keys() == set(amfs.Task.__struct_fields__) - submitted


def test_tasks_may_depend_on_what_earlier_ones_said(session: amfs.Session, tmp_path: Path) -> None:
    listing = session.submit("seq 5 > list", outputs=["list"])
    session.wait([listing])
    squares = [session.submit(f"echo $(({n}*{n})) > s{n}", outputs=[f"s{n}"]) for n in session.read("list").decode().split()]
    total = session.submit("cat s? > all", inputs=[f"s{n}" for n in range(1, 6)], outputs=["all"])
    session.wait([*squares, total])
    assert total.ok
    assert session.read("all") == b"1\n4\n9\n16\n25\n"
    session.close()
    assert (tmp_path / "all").exists()
    assert not (tmp_path / "s1").exists(), "read by another task: it stays in memory"


def test_a_consumer_may_be_submitted_before_its_producer(session: amfs.Session) -> None:
    late = session.submit(["cp", "made", "copy"], inputs=["made"], outputs=["copy"])
    assert not late.done
    session.submit("echo here > made", outputs=["made"])
    session.wait()
    assert session.read("copy") == b"here\n"


def test_a_failed_task_is_raised_by_wait_and_names_itself(session: amfs.Session) -> None:
    bad = session.submit("echo because >&2; exit 9", id="culprit", outputs=["x"])
    after = session.submit(["cat", "x"], inputs=["x"], id="victim")
    with pytest.raises(amfs.TaskFailed, match=r"culprit: exit status 9\n.*because") as caught:
        session.wait([bad])
    assert caught.value.handle is bad
    with pytest.raises(amfs.TaskFailed, match="task culprit failed"):
        session.wait([after])


def test_a_faulty_task_is_refused_and_the_session_goes_on(session: amfs.Session) -> None:
    session.submit("echo > x", id="a", outputs=["x"])
    with pytest.raises(amfs.WorkflowError, match="already taken"):
        session.submit("echo > y", id="a", outputs=["y"])
    with pytest.raises(amfs.WorkflowError, match="not found"):
        session.submit(["no-such-program-anywhere"])
    session.submit("echo > z", outputs=["z"])
    session.wait()


def test_what_nobody_makes_fails_when_the_session_is_closed(tmp_path: Path) -> None:
    session = amfs.Session(slots=1, base=tmp_path)
    waits = session.submit(["cat", "never"], inputs=["never"])
    with pytest.raises(TimeoutError):
        session.wait([waits], timeout=0.3)
    session.close()
    assert waits.done
    assert not waits.ok


def test_waiting_for_what_nobody_makes_ends_with_its_name(tmp_path: Path) -> None:
    words = "task second waits for 'never', which no task of this session makes"
    with pytest.raises(amfs.AmfsError, match=words), amfs.Session(slots=1, base=tmp_path) as session:
        session.submit("cat never > x", id="first", inputs=["never"], outputs=["x"])
        session.wait([session.submit(["cat", "x"], id="second", inputs=["x"])])


def test_kept_files_are_on_disk_before_the_end(session: amfs.Session, tmp_path: Path) -> None:
    made = session.submit("echo early > x", outputs=["x"], keep=True)
    session.wait([made])
    assert (tmp_path / "x").read_text() == "early\n"


def test_an_error_in_the_script_ends_the_run_and_keeps_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with pytest.raises(ZeroDivisionError), amfs.Session(slots=1, base=tmp_path, journal=journal) as session:
        session.wait([session.submit(f"echo . >> {tmp_path}/ran; echo > a", id="a", outputs=["a"], keep=True)])
        session.submit("sleep 60", id="long")
        raise ZeroDivisionError
    with amfs.Session(slots=1, base=tmp_path, journal=journal, resume=True) as session:
        again = session.submit(f"echo . >> {tmp_path}/ran; echo > a", id="a", outputs=["a"], keep=True)
        assert again.done
        assert again.ok
    assert (tmp_path / "ran").read_text() == ".\n"


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    session = amfs.Session(slots=1, base=tmp_path)
    session.close()
    session.close()
    with pytest.raises(amfs.UsageError, match="closed"):
        session.submit(["true"])


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    with amfs.Session(slots=1, base=tmp_path) as session:
        session.submit(["true"])
    assert threading.active_count() == before


def test_a_program_that_forgets_to_close_leaves_nothing_behind(tmp_path: Path) -> None:
    script = (
        "import amfs, os, sys, time\n"
        "session = amfs.Session(slots=1, store=sys.argv[1])\n"
        "session.submit('echo $$ > pid; exec sleep 60', staged=False)\n"
        "while not (os.path.exists('pid') and open('pid').read()): time.sleep(0.02)\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait()\n"
        "print(len(os.listdir(sys.argv[1])))\n"
    )
    (tmp_path / "store").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store")], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert list((tmp_path / "store").iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_reading_what_is_not_there(session: amfs.Session) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        session.read("nowhere")


KILLED = """
import os, sys, amfs
session = amfs.Session(slots=1, base=sys.argv[1], store=sys.argv[2], journal=sys.argv[3])
session.wait([session.submit("echo old > x", id="a", outputs=["x"])])
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_session_left_does_not_stand_for_what_an_edited_task_makes(tmp_path: Path) -> None:
    """The store keeps the first file of a name; files that another life left there are none of this one's."""
    place, store, journal = str(tmp_path), str(tmp_path / "store"), str(tmp_path / "j")
    os.mkdir(store)
    subprocess.run([sys.executable, "-c", KILLED, place, store, journal], check=False)
    assert list(Path(store).glob("*/files/**/x"))
    with amfs.Session(slots=1, base=place, store=store, journal=journal, resume=True) as session:
        session.submit("echo new > x", id="a", outputs=["x"])
        session.submit("cat x > y", id="b", inputs=["x"], outputs=["y"])
    assert (tmp_path / "y").read_text() == "new\n"


def test_a_final_that_a_killed_session_left_in_memory_reaches_shared_storage(tmp_path: Path) -> None:
    place, store, journal = str(tmp_path), str(tmp_path / "store"), str(tmp_path / "j")
    os.mkdir(store)
    # The journal has a task when the next one has ended.
    first = KILLED.replace("os.kill", 'session.wait([session.submit("true", id="b")])\nos.kill')
    subprocess.run([sys.executable, "-c", first, place, store, journal], check=False)
    with amfs.Session(slots=1, base=place, store=store, journal=journal, resume=True) as session:
        assert session.submit("echo old > x", id="a", outputs=["x"]).skipped
    assert (tmp_path / "x").read_text() == "old\n"


def test_a_resumed_session_runs_again_what_a_task_before_it_in_the_list_reads(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with amfs.Session(slots=1, base=tmp_path, journal=journal) as session:
        session.submit("echo > x", id="a", outputs=["x"])
        session.submit("cat x", id="b", inputs=["x"])
    with amfs.Session(slots=1, base=tmp_path, journal=journal, resume=True) as session:
        new = session.submit("cat x > y", id="new", inputs=["x"], outputs=["y"])
        session.submit("echo > x", id="a", outputs=["x"])
        session.wait([new], timeout=20)
