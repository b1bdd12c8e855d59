"""A second run does only what is not done: after Ctrl-C, kill -9, a damaged journal, an edited list."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import commands
import pytest

from amfs.runs.journal import Header, Journal, read

WIDTH = 12


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a two-stage list whose tasks write into ``log`` that they ran."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "store").mkdir()
    log = here / "log"
    lines = [f"p{i} -b sh -o t{i} -a -c 'sleep 0.1; echo {i} > t{i}; echo p{i} >> {log}'" for i in range(WIDTH)]
    lines += [f"c{i} -b sh -i t{i} -o o{i} -a -c 'sleep 0.1; cat t{i} > o{i}; echo c{i} >> {log}'" for i in range(WIDTH)]
    lines.append(f"s -b sh -i {' '.join(f'o{i}' for i in range(WIDTH))} -o sum -a -c 'cat o? o?? > sum; echo s >> {log}'")
    (here / "list.tasks").write_text("\n".join(lines) + "\n")
    return here


def start(place: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "amfs", "run", "--local", "-q", "--store", "../store", "list.tasks"]
    return subprocess.Popen(command, cwd=place, stderr=subprocess.DEVNULL, start_new_session=True)


def ran(place: Path) -> Counter[str]:
    log = place / "log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def wait_for(place: Path, tasks: int) -> None:
    end = time.monotonic() + 60
    while sum(ran(place).values()) < tasks:
        assert time.monotonic() < end, "the run makes no progress"
        time.sleep(0.02)


def resume(place: Path, *options: str) -> str:
    done = commands.run("run", "--local", "--resume", "--store", "../store", *options, "list.tasks", cwd=place)
    assert done.returncode == 0, done.stderr
    assert (place / "sum").read_text() == "".join(f"{i}\n" for i in range(WIDTH))
    return done.stderr


def stores(place: Path) -> list[Path]:
    return list((place.parent / "store").iterdir())


def test_after_kill_9_the_files_in_memory_are_taken_over(place: Path) -> None:
    run = start(place)
    wait_for(place, WIDTH + 3)
    run.kill()
    run.wait()
    said = resume(place)
    counts = ran(place)
    twice = [task for task, times in counts.items() if times > 1]
    assert len(twice) <= 4, f"only what was running or not yet in the journal may run twice, not {twice}"
    assert "done before" in said
    assert not stores(place)


def test_after_kill_9_with_the_memory_lost_only_what_is_needed_is_made_again(place: Path) -> None:
    run = start(place)
    wait_for(place, WIDTH + 3)
    run.kill()
    run.wait()
    for store in stores(place):
        shutil.rmtree(store)
    resume(place)
    assert ran(place)["s"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_runs_leave_nothing_behind_and_lose_nothing(place: Path, number: signal.Signals) -> None:
    run = start(place)
    wait_for(place, WIDTH + 3)
    run.send_signal(number)
    assert run.wait(timeout=30) == 128 + number
    assert not stores(place)
    assert not subprocess.run(["pgrep", "-g", str(run.pid)], capture_output=True, check=False).stdout
    resume(place)
    assert max(ran(place).values()) <= 2
    assert sum(times > 1 for times in ran(place).values()) <= 4


def test_a_finished_run_has_nothing_left_to_do(place: Path) -> None:
    assert start(place).wait(timeout=60) == 0
    counts = ran(place)
    said = resume(place)
    assert ran(place) == counts
    assert f"{2 * WIDTH + 1} done before" in said


def test_a_vanished_output_is_made_again(place: Path) -> None:
    assert start(place).wait(timeout=60) == 0
    (place / "sum").unlink()
    resume(place)
    assert ran(place)["s"] == 2


def test_an_edited_task_runs_again_and_the_others_do_not(place: Path) -> None:
    assert start(place).wait(timeout=60) == 0
    text = (place / "list.tasks").read_text()
    (place / "list.tasks").write_text(text + f"new -b sh -o extra -a -c 'echo new > extra; echo new >> {place / 'log'}'\n")
    resume(place)
    assert ran(place)["new"] == 1
    assert ran(place)["p0"] == 1


def test_a_torn_tail_of_the_journal_costs_only_its_tail(place: Path, tmp_path: Path) -> None:
    assert start(place).wait(timeout=60) == 0
    (journal,) = (tmp_path / "state" / "amfs").glob("*.journal")
    data = journal.read_bytes()
    journal.write_bytes(data[:-3])
    resume(place)
    assert ran(place)["p0"] >= 1


def test_a_file_that_is_no_journal_is_refused_in_one_line(place: Path) -> None:
    (place / "notes").write_bytes(b"these are my notes, do not touch")
    command = [sys.executable, "-m", "amfs", "run", "--local", "--resume", "--journal", "notes", "list.tasks"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "is not a journal" in done.stderr
    assert (place / "notes").read_bytes() == b"these are my notes, do not touch"


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_every_prefix_of_a_journal_can_be_read(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    journal = Journal(path, Header("list", "/base", "/store"))
    for key in range(5):
        journal.add([(key, (key, key + 1), key + 2, (3, 4))])
    journal.close()
    data = path.read_bytes()
    whole = read(path)
    assert whole is not None
    assert whole.done == {key: ((key, key + 1), key + 2, (3, 4)) for key in range(5)}
    path.write_bytes(data[: len(data) - cut])
    left = read(path)
    assert left is not None
    assert set(left.done.items()) <= set(whole.done.items())
    flipped = bytearray(data)
    flipped[-1 - cut] ^= 0x40
    path.write_bytes(flipped)
    damaged = read(path)
    assert damaged is not None
    assert set(damaged.done.items()) <= set(whole.done.items())


def test_what_a_killed_run_left_is_removed_once_no_journal_leads_to_it(place: Path) -> None:
    run = start(place)
    wait_for(place, WIDTH)  # some of them are in the journal by then
    run.kill()
    run.wait()
    assert len(stores(place)) == 1
    (place / "other.tasks").write_text("a -b true\n")
    command = [sys.executable, "-m", "amfs", "run", "--local", "-q", "--store", "../store"]
    assert subprocess.run([*command, "other.tasks"], cwd=place, timeout=60, check=False).returncode == 0
    assert len(stores(place)) == 1, "the killed run can still be resumed"
    assert start(place).wait(timeout=60) == 0  # a new run of the list: the old journal is gone
    assert subprocess.run([*command, "other.tasks"], cwd=place, timeout=60, check=False).returncode == 0
    assert not stores(place)


def test_a_list_that_comes_by_a_pipe_is_resumed_too(place: Path) -> None:
    def piped(*options: str) -> None:
        command = [sys.executable, "-m", "amfs", "run", "--local", "-q", "--journal", "../j", "--store", "../store", *options, "-"]
        with open(place / "list.tasks", "rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
            subprocess.run(command, cwd=place, stdin=cat.stdout, check=True, timeout=100)
        assert (place / "sum").read_text() == "".join(f"{i}\n" for i in range(WIDTH))

    piped()
    before = ran(place)
    piped("--resume")
    assert ran(place) == before
    (place / "sum").unlink()
    piped("--resume")
    assert ran(place)["s"] == 2, "what has vanished is made again, with what it reads"
