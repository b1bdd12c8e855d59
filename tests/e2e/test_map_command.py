"""``amfs map`` as people use it: real runs, alone and in a session."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Amfs = Callable[..., subprocess.CompletedProcess[str]]

#: Names that a careless command line would break.
NAMES = ["a b.fa", "it's.fa", "$HOME.fa", "x\ny.fa", "-n.fa", '"q".fa', "größe.fa", "a;b&c.fa"]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))


def test_a_command_for_each_file(amfs: Amfs, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text(name)
    done = amfs("map", "gzip -c -- {} > {.}.gz", ":::", *NAMES)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "8 tasks finished" in done.stderr
    assert {name: gzip.decompress((tmp_path / f"{name[:-3]}.gz").read_bytes()).decode() for name in NAMES} == {name: name for name in NAMES}


@pytest.mark.parametrize("nodes", [0, 2])
def test_declared_files_on_any_node(amfs: Amfs, tmp_path: Path, nodes: int) -> None:
    for name in NAMES:
        (tmp_path / name).write_text(name)
    if nodes:
        assert amfs("up", "--name", "two", "--nodes", str(nodes), "--slots", "1").returncode == 0
    try:
        done = amfs("map", "--joblog", "log", "--out", "{.}.gz", "gzip -c -- '{}' > \"{.}\".gz", ":::", *NAMES)
    finally:
        if nodes:
            amfs("down", "two")
    assert done.returncode == 0, done.stderr
    assert {name: gzip.decompress((tmp_path / f"{name[:-3]}.gz").read_bytes()).decode() for name in NAMES} == {name: name for name in NAMES}
    hosts = {line.split("\t")[1] for line in (tmp_path / "log").read_text().splitlines()[1:]}
    assert hosts == ({os.uname().nodename} if nodes else {":"})


def test_output_in_the_order_of_the_arguments(amfs: Amfs) -> None:
    command = "sleep 0.{}; echo {}; echo {} >&2; test {} != 3"
    done = amfs("map", "-k", "-j", "0", "-q", command, ":::", "4", "3", "2", "1")
    assert done.returncode == 1
    assert done.stdout.split() == ["4", "3", "2", "1"]
    assert done.stderr.splitlines()[:3] == ["4", "2", "1"]


@pytest.mark.parametrize("nodes", [0, 1])
def test_long_output_in_order(amfs: Amfs, nodes: int) -> None:
    """More than fits into a message waits in a file of the node."""
    if nodes:
        assert amfs("up", "--name", "one", "--slots", "2").returncode == 0
    try:
        done = amfs("map", "-k", "-q", "sleep 0.{}; seq {}00001 {}99999", ":::", "4", "3", "2", "1")
    finally:
        if nodes:
            amfs("down", "one")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [f"{job}{number:05}" for job in (4, 3, 2, 1) for number in range(1, 100000)]


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "amfs", "map", "-k", "-q", "-j", "2", "echo {}; sleep {}", ":::", "0", "60"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "0\n"
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130


def test_in_a_session_the_slots_are_those_of_its_nodes(amfs: Amfs) -> None:
    assert amfs("up", "--name", "one", "--slots", "1").returncode == 0
    try:
        done = amfs("map", "-j", "2", "echo", ":::", "a")
    finally:
        amfs("down", "one")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--slots is for runs without a session" in done.stderr


def test_a_session_for_one_run(amfs: Amfs) -> None:
    done = amfs("map", "-k", "-q", "--on", "local", "--nodes", "2", "-j", "1", "echo", ":::", "a", "b")
    assert (done.returncode, done.stdout) == (0, "a\nb\n"), done.stderr


def test_output_that_waits_for_a_job_comes_when_the_run_stops(amfs: Amfs) -> None:
    done = amfs("map", "-k", "-j", "2", "-q", "--fail-fast", "echo {}; sleep {}; false", ":::", "60", "0")
    assert done.returncode == 3
    assert done.stdout.split()[-1:] == ["0"]


def test_arguments_of_files_and_columns(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("a\t1\nb b\t2\n\t\n")
    done = amfs("map", "-k", "-q", "--colsep", r"\t", "-a", "pairs", "echo {2}={1}/{#}")
    assert (done.returncode, done.stdout) == (0, "1=a/1\n2=b b/2\n=/3\n")
    (tmp_path / "nul").write_bytes(b"x\ny\0z\0")
    done = amfs("map", "-k", "-0", "-q", "printf '<%s>'", "::::", "nul", ":::+", "1", "2")
    assert (done.returncode, done.stdout) == (0, "<x\ny><1><z><2>")


def test_arguments_on_standard_input_run_as_they_come(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "amfs", "map", "-q", "echo got"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stdout is not None
        for word in ("first one", "second"):
            run.stdin.write(word + "\n")
            run.stdin.flush()
            assert run.stdout.readline() == f"got {word}\n"  # before the next is written
        run.stdin.close()
        assert run.wait(60) == 0


def test_a_faulty_line_of_standard_input_is_told_and_the_others_run(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("map", "-q", "--colsep", ",", "--joblog", "log", "echo {2}", input="a,b\nc\nd,e\n")
    assert done.returncode == 2
    assert sorted(row[0] for row in fields(tmp_path / "log")) == ["1", "3", "Seq"]
    assert sorted(done.stdout.split()) == ["b", "e"]
    assert done.stderr.splitlines()[0] == "amfs: standard input:2: job 2: {2} is asked for, but there is 1 argument"


def test_command_lines_as_arguments(amfs: Amfs) -> None:
    assert amfs("map", "-k", "-q", ":::", "echo a  b", "echo c | tr c d").stdout == "a b\nd\n"
    assert amfs("map", "-k", "-q", input="echo $((1 + 1))\n\necho x\n").stdout == "2\nx\n"


def test_no_arguments_are_no_jobs(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for words in ([":::"], ["::::", "empty"], [":::", "a", ":::"]):
        assert amfs("map", "echo", *words).returncode == 0


def test_dry_run_prints_what_would_run(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("map", "--dry-run", "--joblog", "log", "touch", "{}.x", ":::", "a", "b c")
    assert (done.returncode, done.stdout, done.stderr) == (0, "touch a.x\ntouch 'b c'.x\n", "")
    assert os.listdir(tmp_path) == []


def fields(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_the_job_log_has_the_columns_of_gnu_parallel(amfs: Amfs, tmp_path: Path) -> None:
    before = time.time()
    done = amfs("map", "-q", "-j", "1", "--joblog", "log", "printf '%s\\n' {}; sleep 0.1; exit {}", ":::", "0", "7")
    assert done.returncode == 1
    head, *rows = fields(tmp_path / "log")
    assert head == ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"]
    assert [(row[0], row[1], *row[4:8]) for row in rows] == [("1", ":", "0", "2", "0", "0"), ("2", ":", "0", "2", "7", "0")]
    assert rows[1][8] == "printf '%s\\n' 7; sleep 0.1; exit 7"
    assert all(before <= float(row[2]) <= time.time() and 0.1 <= float(row[3]) < 60 for row in rows)


def test_the_job_log_of_a_list(amfs: Amfs, tmp_path: Path) -> None:
    lines = ("one -b echo -a 'a b'", "two -b sh -a -c 'kill -9 $$'", "three -b cat -i gone -a gone", "gone -b true -o gone")
    (tmp_path / "tasks.txt").write_text("\n".join(lines))
    assert amfs("run", "-q", "--joblog", "log", "tasks.txt").returncode == 1
    rows = {row[0]: row[6:] for row in fields(tmp_path / "log")[1:]}
    assert rows == {"1": ["0", "0", "echo 'a b'"], "2": ["0", "9", "kill -9 $$"], "4": ["-1", "0", "true"]}


def test_what_an_earlier_run_has_done_is_not_done_again(amfs: Amfs, tmp_path: Path) -> None:
    command = ("map", "-q", "-k", "-j", "1", "--journal", "j", "--joblog", "log", "echo {}; test -e {}.go", ":::", "a", "b", "c")
    for name in ("a.go", "c.go"):
        (tmp_path / name).touch()
    assert amfs(*command).returncode == 1
    (tmp_path / "b.go").touch()
    done = amfs("map", "--resume", *command[1:])
    assert (done.returncode, done.stdout) == (0, "b\n"), done.stderr
    assert [row[0] for row in fields(tmp_path / "log")] == ["Seq", "1", "2", "3", "2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-j", "x", "echo", ":::", "a"], "-j x: write a number"),
        (["-j", "-x", "echo", ":::", "a"], "-j -x: write a number"),
        (["--on", "local", "-j", "50%", "echo", ":::", "a"], "-j 50%: with --on it is the number of jobs at a time on each node"),
        (["--colsep", "(", "echo", ":::", "a"], "'(' is no regular expression"),
        (["echo {2}", ":::", "a"], "{2} is asked for, but there is 1 argument"),
        (["--out", "{2}", "echo", ":::", "a"], "{2} is asked for, but there is 1 argument"),
        (["echo `{}`", ":::", "a"], "within `…`"),
        (["echo '{}", ":::", "a"], "the quote ' in column 6 is not closed"),
        (["echo", ":::+", "a"], ":::+ is linked with the source before it, and there is none"),
        (["echo", "::::", "gone"], "cannot read gone: No such file or directory"),
        (["-a", "gone", "echo"], "cannot read gone: No such file or directory"),
        (["--joblog", "no/log", "echo", ":::", "a"], "cannot write the job log to no/log: No such file or directory"),
        (["--resume", "echo", ":::", "a"], "--resume needs a journal: name one with --journal"),
        (["--session", "s", "--local", "echo", ":::", "a"], "--session and --local exclude each other"),
        (["--no-such", "echo", ":::", "a"], "No such option"),
        (["no-such-program", ":::", "a"], "no-such-program"),
        (["-C", "gone", "echo", ":::", "a"], "no such directory"),
        (["--dry-run", "echo {2}", ":::", "a"], "{2} is asked for"),
    ],
)
def test_what_cannot_be_meant_is_told_in_a_line(amfs: Amfs, words: list[str], told: str) -> None:
    done = amfs("map", *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    last = done.stderr.splitlines()[-1]
    assert told in last and last.startswith(("amfs: ", "Error: ")), done.stderr
    assert last.startswith("Error: ") or done.stderr.count("\n") == 1


def test_options_behind_the_command_are_the_command_s(amfs: Amfs) -> None:
    assert amfs("map", "-q", "printf", "%s-", "-q", "--dry-run", ":::", "--resume=trust").stdout == "-q---dry-run---resume=trust-"


@pytest.mark.parametrize(("halt", "ended"), [(("--halt", "now,fail=3"), 3), (("--halt", "now,fail=20%"), 2), (("--fail-fast",), 1)])
def test_so_many_failures_end_the_run(amfs: Amfs, halt: tuple[str, ...], ended: int) -> None:
    """One at a time, so that what has failed can be counted; the jobs behind would not end by themselves."""
    numbers = [str(number) for number in range(10)]
    done = amfs("map", "-j", "1", *halt, f"test {{}} -ge {ended} && sleep 1000; exit 7", ":::", *numbers)
    assert done.returncode == 3, done.stderr
    assert f"{ended} failed" in done.stderr and ("--halt" if ended > 1 else "--fail-fast") in done.stderr, done.stderr


def test_fewer_failures_than_that_do_not_end_the_run(amfs: Amfs) -> None:
    done = amfs("map", "--halt", "now,fail=3", "test {} -gt 2", ":::", "1", "2", "3", "4", "5")
    assert done.returncode == 1 and "3 tasks finished" in done.stderr, done.stderr


def test_what_halt_does_not_know_is_refused_before_anything_runs(amfs: Amfs, tmp_path: Path) -> None:
    for words in (("--halt", "soon,fail=1"), ("--halt", "now,fail=1", "--fail-fast")):
        done = amfs("map", *words, "touch ran{}", ":::", "1")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    piped = amfs("map", "--halt", "now,fail=5%", "touch ran{}", input="1\n")
    assert piped.returncode == 2 and "how many jobs come on standard input" in piped.stderr
    assert not list(tmp_path.glob("ran*"))
