"""A command that is forked is what a new Python would be."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import commands
import pytest
from commands import Command

from amfs.net import records

PROBE = """
import atexit, json, os, resource, signal, sys, threading
def stream(it):
    how = [it.encoding, it.errors, it.newlines, it.line_buffering, it.write_through]
    return [*how, it.mode, it.name, it.fileno(), type(it.buffer).__name__]
found = {
    "arguments": sys.argv, "cwd": os.getcwd(), "environment": dict(os.environ), "path": sys.path,
    "descriptors": [(fd, os.get_inheritable(int(fd))) for fd in sorted(os.listdir("/proc/self/fd"), key=int)[:-1]],
    "handlers": {str(number): str(signal.getsignal(number)).partition(" at ")[0] for number in signal.valid_signals()},
    "blocked": sorted(map(str, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "threads": os.listdir("/proc/self/task") == [str(os.getpid())],
    "arguments_now": list(sys.argv), "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "same": sys.stdout is sys.__stdout__,
    "group": os.getpgrp(), "session": os.getsid(0), "name": __name__, "main": sys.modules["__main__"].__file__, "file": __file__,
    "limits": [resource.getrlimit(number) for number in range(16)], "priority": os.getpriority(os.PRIO_PROCESS, 0),
    "input": sys.stdin.read(), "inside": threading.current_thread() is threading.main_thread(),
}
atexit.register(lambda: print("the end of Python", flush=False))
sys.stderr.write("before ")
threading.Timer(0.05, lambda: print(json.dumps(found))).start()
"""


def both(place: Path, program: str, *arguments: str, input: bytes | None = None, **more: str) -> list[subprocess.CompletedProcess[bytes]]:
    (place / "probe_of_ready.py").write_text(program)
    environment = {**os.environ, **more}
    command = Command("probe_of_ready", arguments, str(place), environment, input)
    forked, new = command.in_fork(), command.in_new_python()
    # the frames of a traceback that are of runpy, and those of ready.py, are not told apart here
    assert (forked.returncode, forked.stdout, forked.stderr[-20:]) == (new.returncode, new.stdout, new.stderr[-20:])
    return [forked, new]


@pytest.mark.parametrize("input", [None, b"", "grüße\r\n".encode() * 50_000])
def test_it_finds_what_a_new_python_finds(tmp_path: Path, input: bytes | None) -> None:
    done, _ = both(tmp_path, PROBE, "one", "tw\udcff o", "", input=input, MORE="x=y", BYTES="\udcfe")
    assert done.returncode == 0 and done.stderr == b"before " and done.stdout.endswith(b"}\nthe end of Python\n")


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(7)", "sys.exit()", "sys.exit('why')", "sys.exit(300)", "os._exit(9)", "os.kill(os.getpid(), 9)",
        "signal.raise_signal(15)", "signal.raise_signal(2)", "os.close(1); print('lost')", "sys.stdout.close(); sys.exit(3)",
    ],
)  # fmt: skip
def test_it_ends_as_a_new_python_does(tmp_path: Path, end: str) -> None:
    both(tmp_path, f"import os, signal, sys\nprint('said')\ntry:\n    {end}\nexcept KeyboardInterrupt:\n    sys.exit(130)\n")


def test_a_suite_in_the_background_hands_on_that_it_ignores_interrupts(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        for disposition in (signal.SIG_IGN, signal.default_int_handler):
            signal.signal(signal.SIGINT, disposition)
            forked, _ = both(tmp_path, "import signal\ntry:\n    signal.raise_signal(2)\nexcept KeyboardInterrupt:\n    print('heard')\n")
            assert (forked.stdout == b"heard\n") is (disposition is not signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)


def test_each_knows_no_other_and_several_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "wait_of_ready.py").write_text("import os\nprint(len(os.listdir('/proc/self/fd')), flush=True)\nos.read(0, 1)\n")
    results: list[subprocess.CompletedProcess[bytes]] = []
    command = Command("wait_of_ready", (), str(tmp_path), dict(os.environ), b"go")
    threads = [threading.Thread(target=lambda: results.append(command.in_fork())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(done.returncode, done.stdout) for done in results] == [(0, b"4\n")] * 4


def test_one_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    (tmp_path / "long_of_ready.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    with pytest.raises(subprocess.TimeoutExpired) as told:
        Command("long_of_ready", (), str(tmp_path), dict(os.environ), timeout=1.0).in_fork()
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.value.stdout or b""), 0)


def test_where_a_fork_would_inherit_something_else_there_is_a_new_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forks() -> bool:
        with monkeypatch.context() as patch:
            told: list[str] = []
            done = subprocess.CompletedProcess([], 0, b"", b"")
            patch.setattr(Command, "in_fork", lambda command: told.append("fork") or done)
            patch.setattr(Command, "in_new_python", lambda command: done)
            commands.run("--version", env=more)
            return bool(told)

    more: dict[str, str] = {}
    monkeypatch.delenv(commands.NEW_PYTHON, raising=False)
    assert forks()
    for name in ("PYTHONHASHSEED", "LC_ALL", "TZ"):
        more = {name: "1"}
        assert not forks()
    more = {}
    before = os.umask(0o077)
    try:
        assert not forks()
    finally:
        os.umask(before)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert not forks()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    monkeypatch.setenv(commands.NEW_PYTHON, "1")
    assert not forks()


def descriptors_of(proc: Path, name: str) -> set[str]:
    found = set()
    time.sleep(0.02)
    for one in (proc / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found.add(re.sub(f"{name}(-n[0-9]-[^/]*)?|[0-9]+", "", os.readlink(one)))
    return found


def seen_of_nodes(place: Path, name: str) -> list[object]:
    """Two nodes as the kernel knows them, and the surroundings of a task there."""
    task = "umask; ulimit -a; env | grep -v ^AMFS_ | sort; ps -o ppid= -p $PPID | tr -d ' '; ls /proc/self/fd"
    (place / "list").write_text(f'a -b sh -stdout out -a -c "{task}"\n')
    up = commands.run("up", "--nodes", "2", "--slots", "1", "--name", name, env={"MORE": "x=y"})
    assert up.returncode == 0, up.stderr
    try:
        kept: list[object] = []
        for entry in records.load(records.base_dir() / name / "session.json").nodes:
            proc = Path(f"/proc/{entry.pid}")
            wanted = ("Umask", "PPid", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs")
            status = [line for line in (proc / "status").read_text().splitlines() if line.startswith(wanted)]
            kinds = set.intersection(*[descriptors_of(proc, name) for _ in range(10)])  # it opens one more for a moment now and then
            kept += [status, kinds, os.readlink(proc / "cwd"), (proc / "limits").read_text(), os.getsid(entry.pid) != entry.pid]
            kept.append(os.getsid(entry.pid) != os.getsid(0))
        ran = commands.run("run", "--session", name, "-q", "list", cwd=place)
        assert ran.returncode == 0, ran.stderr
        return [*kept, re.sub(f"{name}(-n[0-9]-[^/]*)?", "", (place / "out").read_text())]
    finally:
        assert commands.run("down", name).returncode == 0


def test_nodes_that_are_forked_are_as_those_of_a_new_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(commands.NEW_PYTHON, raising=False)
    forked = seen_of_nodes(tmp_path, "ready-forked")
    monkeypatch.setenv(commands.NEW_PYTHON, "1")
    new = seen_of_nodes(tmp_path, "ready-new")
    assert forked == new


def test_forked_nodes_are_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new Python: a start that fails is told with the words of the node, and nothing of it stays."""
    monkeypatch.delenv(commands.NEW_PYTHON, raising=False)
    told = []
    for new in ("0", "1"):
        monkeypatch.setenv(commands.NEW_PYTHON, new)
        done = commands.run("up", "--name", "ready-fails", "--store", str(tmp_path / "nowhere" / "x"))
        told.append((done.returncode, done.stdout, done.stderr))
    assert told[0] == told[1] and told[0][0] != 0
