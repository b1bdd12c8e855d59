"""``amfs run`` as people and scripts use it: places of its output, exit statuses, traces, Ctrl-C."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from amfs.runs.trace import read_trace

Amfs = Callable[..., subprocess.CompletedProcess[str]]

CHAIN = """\
count -b wc -stdin all.txt -stdout count.txt -a -l
all   -b sort -i a.txt b.txt -o all.txt -a a.txt b.txt -o all.txt
a     -b seq -stdout a.txt -a 5
b     -b seq -stdout b.txt -a 7
"""


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))


def write(place: Path, text: str, name: str = "tasks.txt") -> str:
    (place / name).write_text(text)
    return name


def test_a_chain_runs_and_only_results_are_left(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("run", write(tmp_path, CHAIN))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert (tmp_path / "count.txt").read_text() == "12\n"
    assert not (tmp_path / "all.txt").exists()
    assert "4 tasks finished" in done.stderr


def test_output_of_tasks_comes_in_one_piece_each(amfs: Amfs, tmp_path: Path) -> None:
    lines = "\n".join(f"t{i} -b sh -a -c 'for x in 1 2 3; do echo {i}; sleep 0.01; done'" for i in range(12))
    done = amfs("run", "-j", "4", "-q", write(tmp_path, lines))
    assert done.returncode == 0
    assert done.stderr == ""
    said = done.stdout.split()
    assert [said[i : i + 3] for i in range(0, 36, 3)] == [[said[i]] * 3 for i in range(0, 36, 3)]
    assert sorted(set(said), key=int) == [str(i) for i in range(12)]


@pytest.mark.parametrize("nodes", [0, 1])
def test_what_tasks_print_is_passed_on_whole_whether_they_fail_or_not(amfs: Amfs, tmp_path: Path, nodes: int) -> None:
    """A megabyte is more than fits into a message; the output of a command before it fails (diff, grep) is wanted as well."""
    if nodes:
        assert amfs("up", "--name", "one", "--slots", "1").returncode == 0
    try:
        done = amfs("run", write(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo why >&2; exit 3\nseq 200000\n"))
    finally:
        if nodes:
            amfs("down", "one")
    long, _, rest = done.stdout.replace("\n" + "x" * 1000000, "", 1).partition("x" * 1000000 + "\n")
    assert sorted((long + rest).split(), key=int) == [str(i) for i in range(1, 200001)]
    assert done.returncode == 1
    assert "task 1 failed: exit status 3\n" in done.stderr
    assert done.stderr.count("why") == 1
    assert "bytes of stdout" not in done.stderr


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_task_prints_without_an_end_is_cut_and_that_is_said(amfs: Amfs, tmp_path: Path, form: str) -> None:
    done = amfs("run", "--output", form, write(tmp_path, "head -c 40000000 /dev/zero | tr '\\0' x\n"))
    assert done.returncode == 0
    assert done.stdout.count("x" * 1024) == 16 << 10
    remark = "task 1 printed 40000000 bytes; only the first 16777216 are passed on (declare a file to have more)"
    assert remark in (done.stdout if form == "json" else done.stderr)


def test_a_kept_sandbox_is_where_the_message_says(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("run", "--keep-sandbox", write(tmp_path, "a -b sh -a -c 'echo left > here; exit 1'\n"), env={"TMPDIR": str(tmp_path)})
    places = {line.rpartition("sandbox kept: ")[2] for line in done.stderr.splitlines() if "sandbox kept" in line}
    assert len(places) == 1
    assert (Path(places.pop()) / "here").read_text() == "left\n"
    amfs("run", "--keep-sandbox", write(tmp_path, "a -b true\n"), env={"TMPDIR": str(tmp_path)})
    assert len(list(tmp_path.glob("amfs-sandboxes-*"))) == 1


def test_many_failures_are_counted_rather_than_listed(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("run", write(tmp_path, "".join(f"t{i} -b false\n" for i in range(300))))
    assert "and 200 more failed tasks" in done.stderr
    assert done.stderr.count("failed:") == 20
    assert "300 failed in" in done.stderr


def test_faults_of_a_growing_list_are_told_even_quietly(amfs: Amfs) -> None:
    done = amfs("run", "-q", "--format", "tasklist", input="a -b echo -a fine\nb -b\n")
    assert (done.returncode, done.stdout) == (2, "fine\n")
    assert "amfs: standard input:2: -b needs a value" in done.stderr


def test_a_place_that_keeps_no_journal_does_not_keep_the_run_away(amfs: Amfs, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": "/proc/nothing"}
    done = amfs("run", write(tmp_path, "a -b echo -a hi\n"), env=env)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "no journal is kept, so this run cannot be resumed" in done.stderr
    assert amfs("run", "--resume", "tasks.txt", env=env).returncode == 2


def test_a_journal_is_not_written_over_another_file(amfs: Amfs, tmp_path: Path) -> None:
    write(tmp_path, "data\n", "precious")
    done = amfs("run", "--journal", "precious", write(tmp_path, "a -b true\n"))
    assert (done.returncode, (tmp_path / "precious").read_text()) == (2, "data\n")
    assert "precious is there and is no journal of amfs" in done.stderr
    assert amfs("run", "--journal", "new", "tasks.txt").returncode == 0
    assert amfs("run", "--journal", "new", "tasks.txt").returncode == 0


@pytest.mark.parametrize(
    ("redirection", "status", "words"),
    [
        (">/dev/full", 5, "amfs: cannot write the output: No space left on device"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("- <&-", 2, "amfs: cannot read the list: standard input is closed"),
    ],
)
def test_closed_and_full_streams(tmp_path: Path, redirection: str, status: int, words: str) -> None:
    write(tmp_path, "echo one\n")
    given = "" if redirection.startswith("-") else "tasks.txt"
    script = f"'{sys.executable}' -m amfs run -q {given} {redirection}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (status, words)
    assert done.stdout == ("one\n" if status == 0 else "")


def test_a_full_journal_ends_the_run_before_its_end(tmp_path: Path) -> None:
    """The journal so far serves the next run."""
    (tmp_path / "list").write_text("".join(f"t{i} -b sh -a -c 'echo >> {tmp_path}/ran'\n" for i in range(600)))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))

    command = [sys.executable, "-m", "amfs", "run", "-j", "2", "--journal", "j.journal", "list"]
    done = subprocess.run(command, cwd=tmp_path, preexec_fn=limit, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 3, done.stderr
    assert "stopped: cannot write the journal j.journal: " in done.stderr
    assert "Traceback" not in done.stderr
    before = (tmp_path / "ran").read_text().count("\n")
    again = subprocess.run([*command[:4], "--resume", *command[4:]], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert again.returncode == 0, again.stderr
    assert 600 <= (tmp_path / "ran").read_text().count("\n") < 600 + before


@pytest.mark.parametrize("command", ["run", "translate"])
def test_a_directory_that_is_gone(tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "list").write_text("a -b true\n")
    script = f"cd gone && rmdir ../gone && exec {sys.executable} -m amfs {command} {tmp_path}/list"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (2, "amfs: the current directory does not exist any more; change to one that does\n")


@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize(("command", "processes"), [("run", 1), ("run", 2), ("run", 3), ("up", 1), ("up", 6)])
def test_too_few_processes_are_allowed(tmp_path: Path, command: str, processes: int) -> None:
    """Only an ordinary user meets that limit. It is one of a number that nobody has, which may read everything."""
    tmp_path.chmod(0o777)
    (tmp_path / "list").write_text("a -b true\n")
    rights = "+dac_override,+dac_read_search"
    becoming = ["setpriv", "--reuid", str(60000 + os.getpid() % 5000), "--regid", "60000", "--clear-groups", "--inh-caps", rights]
    what = f"run -j 1 --no-journal {tmp_path}/list" if command == "run" else "up"
    script = f"ulimit -u {processes}; exec {sys.executable} -m amfs {what}"
    with tempfile.TemporaryDirectory(prefix="amfs-n-", dir="/tmp") as home:
        os.chmod(home, 0o777)
        done = subprocess.run(
            [*becoming, "--ambient-caps", rights, "bash", "-c", script], cwd=home, env={**os.environ, "AMFS_RUN_DIR": f"{home}/run"},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode in {"run": (1, 5), "up": (4, 5)}[command], done.stderr
    assert "raise the limit" in done.stderr
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr


def test_json_tells_all(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("run", "--output", "json", write(tmp_path, CHAIN + "bad -b sh -a -c 'echo why >&2; exit 3'\n"))
    assert done.returncode == 1
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "start"
    failed = next(event for event in events if event["event"] == "task_failed")
    assert (failed["task"], failed["stderr"]) == ("bad", "why\n")
    ended = {event["task"]: event for event in events if event["event"] == "task"}
    assert len(ended) == 5 and [name for name, event in ended.items() if event["outcome"] != "ok"] == ["bad"]
    assert (ended["bad"]["outcome"], ended["bad"]["code"]) == ("exit", 3)
    assert all(0 < event["begun"] <= event["ended"] for event in ended.values())
    summary = events[-1]
    assert summary["event"] == "summary"
    assert summary["exit_code"] == 1
    assert (summary["totals"]["ok"], summary["totals"]["failed"]) == (4, 1)
    assert summary["failures"] == [{"id": "bad", "what": "exit status 3", "stderr": "why\n", "where": "tasks.txt:5", "node": 0}]


@pytest.mark.parametrize("label", ["x/", "/", "a/b"])
def test_a_label_may_look_like_a_directory(amfs: Amfs, tmp_path: Path, label: str) -> None:
    (tmp_path / "in.txt").write_text("in\n")
    tasks = [
        {"type": "task", "id": "a", "argv": ["cat", "in.txt"], "inputs": ["in.txt"], "stdout": "out", "label": label},
        {"type": "task", "id": "b", "argv": ["false"], "inputs": ["out"], "label": label},
        {"type": "task", "id": "c", "argv": ["cat", "in.txt"], "inputs": ["in.txt"], "after": ["b"], "label": label},
    ]
    done = amfs("run", "--output", "json", write(tmp_path, "".join(json.dumps(task) + "\n" for task in tasks), "tasks.jsonl"))
    assert done.returncode == 1, done.stderr
    (stage,) = json.loads(done.stdout.splitlines()[-1])["stages"]
    assert stage["label"] == label.removeprefix("a/")
    assert (stage["ok"], stage["failed"], stage["upstream_failed"]) == (1, 1, 1)


def test_a_failure_takes_its_dependants_and_nobody_else(amfs: Amfs, tmp_path: Path) -> None:
    done = amfs("run", "-q", write(tmp_path, CHAIN.replace("b seq -stdout b.txt -a 7", "b seq -stdout b.txt -a x") + "c -b true\n"))
    assert done.returncode == 1
    assert "b (tasks.txt:4) failed on node 0: exit status 1" in done.stderr
    assert "2 tasks finished, 1 failed, 2 could not run because of that" in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        ("a -b true\n", (), 0),
        ("a -b false\n", (), 1),
        ("a -b nosuchprogram\n", (), 2),
        ("a -b false\nb -b sleep -a 30\n", ("--fail-fast", "-j", "2"), 3),
    ],
)
def test_exit_statuses(amfs: Amfs, tmp_path: Path, text: str, options: tuple[str, ...], status: int) -> None:
    done = amfs("run", *options, write(tmp_path, text))
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


def test_the_trace_and_its_page(amfs: Amfs, tmp_path: Path) -> None:
    text = CHAIN + "bad -b false\nafter -b cat -i never -a never\nnever -b false -o never\n"
    assert amfs("run", "--trace", "run.json", write(tmp_path, text)).returncode == 1
    trace = read_trace(tmp_path / "run.json")
    assert trace.complete
    assert sorted(trace.task) == ["a", "all", "b", "bad", "count", "never"]
    assert trace.never_ran == {"cat": {"UPSTREAM_FAILED": 1}}
    assert trace.summary is not None
    by_task = dict(zip(trace.task, zip(trace.start, trace.end, strict=True), strict=True))
    assert by_task["a"][1] <= by_task["all"][0] <= by_task["all"][1] <= by_task["count"][0]
    assert amfs("report", "run.json").stdout == "run.html\n"
    assert "Slots over time" in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ctrl_c_stops_the_tasks_and_keeps_what_is_done(amfs: Amfs, tmp_path: Path, number: signal.Signals, status: int) -> None:
    (tmp_path / "tasks.txt").write_text(
        f"quick -b sh -keep done.txt -o done.txt -a -c 'echo 1 > done.txt'\n"
        f"slow -b sh -i done.txt -a -c 'echo $$ > {tmp_path}/pid; exec sleep 60'\n"
    )
    default = lambda: signal.signal(number, signal.SIG_DFL)  # noqa: E731  (the tests themselves may run under nohup)
    command = [sys.executable, "-m", "amfs", "run", "--joblog", "jobs", "tasks.txt"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=default)
    pid, jobs = tmp_path / "pid", tmp_path / "jobs"  # its result may come after the next task has begun
    try:
        for _ in range(600):
            if pid.exists() and pid.read_text().strip() and jobs.exists() and jobs.read_text().count("\n") > 1:
                break
            time.sleep(0.05)
        run.send_signal(number)
        _, err = run.communicate(timeout=60)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == status, err
    assert "interrupted: 1 task finished, 1 not run" in err
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    (tmp_path / "pid").unlink()
    text = (tmp_path / "tasks.txt").read_text().replace("exec sleep 60", "true")
    again = amfs("run", "--resume", write(tmp_path, text))
    assert again.returncode == 0, again.stderr
    assert "1 task finished, 1 done before" in again.stderr


def test_a_run_may_end_before_its_list(tmp_path: Path) -> None:
    """Somebody still waits for the next line then."""
    command = [sys.executable, "-m", "amfs", "run", "--local", "--fail-fast"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stderr is not None
        run.stdin.write("false\n")
        run.stdin.flush()
        told = run.stderr.read()
        assert run.wait(60) == 3 and "--fail-fast was asked for" in told.splitlines()[-1], (run.returncode, told)


def test_a_list_that_grows(tmp_path: Path) -> None:
    """A task runs while its list is still open; the run ends when the list does."""
    command = [sys.executable, "-m", "amfs", "run", "-q"]
    run = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin is not None
    assert run.stdout is not None
    try:
        run.stdin.write("echo first\n")
        run.stdin.flush()
        assert run.stdout.readline() == "first\n"
        run.stdin.write("echo second\n")
        run.stdin.close()
        assert run.stdout.read() == "second\n"
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.wait()
        run.stdout.close()


def test_a_reader_who_leaves_early_is_not_our_fault(tmp_path: Path) -> None:
    lines = "".join(f"echo {i} {'x' * 2000}\n" for i in range(500))
    script = f"'{sys.executable}' -m amfs run -q cmds | head -n 1"
    write(tmp_path, lines, "cmds")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_python_writes_traces_too(tmp_path: Path) -> None:
    import amfs as library

    tasks = [library.Task("a", ("sh", "-c", "echo 1 > x"), outputs=("x",))]
    assert library.run(tasks, base=str(tmp_path), trace=str(tmp_path / "one.json")).ok
    with library.Session(base=tmp_path, trace=str(tmp_path / "two.json")) as session:
        kept = session.submit("echo 2 > y", outputs=["y"], keep=True)
        session.wait([kept])
        assert (tmp_path / "y").read_text() == "2\n"
    for name in ("one.json", "two.json"):
        trace = read_trace(tmp_path / name)
        assert trace.complete
        assert len(trace) == 1
        assert trace.summary is not None
