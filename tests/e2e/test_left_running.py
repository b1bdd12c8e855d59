"""Processes that tasks leave running in the background are ended, and told; and a task's facts are not looked for in sentences."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import amfs

Amfs = Callable[..., subprocess.CompletedProcess[str]]
PACKAGE = Path(amfs.__file__).parent


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))


@pytest.mark.parametrize("line", ["sleep 1000 > f &", "nohup sleep 1000 > f &", "( sleep 1000 > f & )", "setsid sleep 1000 > f &"])
def test_a_background_process_is_told(amfs: Amfs, tmp_path: Path, line: str) -> None:
    (tmp_path / "cmds").write_text(f"{line}\ntrue\n")
    done = amfs("run", "--trace", "t.json", "cmds")
    assert done.returncode == 0
    assert "task 1 left 1 process running, which was ended" in done.stderr
    assert "task 2 left" not in done.stderr
    bars = [event["args"] for event in json.loads((tmp_path / "t.json").read_text()) if event.get("cat") == "task"]
    assert {args["id"]: args.get("left_processes", 0) for args in bars} == {"1": 1, "2": 0}
    done = amfs("run", "--output", "json", "cmds")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["left_processes"] == 1
    assert "task 1 left 1 process running, which was ended" in summary["notes"]


def test_many_are_told_in_few_lines(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "cmds").write_text("sleep 1000 &\n" * 12)
    done = amfs("run", "cmds")
    assert done.stderr.count("left 1 process running") == 5
    assert "7 more tasks left processes running, which were ended" in done.stderr


def test_a_declared_output_that_is_still_written_is_a_failure(amfs: Amfs, tmp_path: Path) -> None:
    script = "(sleep 1000 > out & ) ; until [ -e out ]; do sleep 0.01; done"
    (tmp_path / "list").write_text(f"a -b sh -o out -a -c '{script}'\nb -b cat -i out -a out\n")
    done = amfs("run", "list")
    assert done.returncode == 1
    assert "did not finish: out (a process that it left running" in done.stderr
    assert "left 1 process running, which was ended" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("language", ["t", "k"])
def test_an_app_of_a_script_that_leaves_a_process(amfs: Amfs, tmp_path: Path, language: str) -> None:
    body = '"sh" "-c" "sleep 1000 > x & echo > $0"' if language == "t" else 'sh "-c" "sleep 1000 > x & echo > $0"'
    (tmp_path / "s.swift").write_text(
        f"type file;\napp (file o) f() {{ {body} @o; }}\nfile o <\"out\">;\no = f();\n" if language == "k"
        else f"app (file o) f() {{ {body} o; }}\nfile o <\"out\"> = f();\n"
    )  # fmt: skip
    done = amfs("run", "--format", f"swift-{language}", "s.swift")
    assert done.returncode == 0, done.stderr
    assert "left 1 process running, which was ended" in done.stderr


def test_a_line_that_only_bash_reads_rightly_is_a_fault(amfs: Amfs, tmp_path: Path) -> None:
    if os.path.basename(os.path.realpath("/bin/sh")) == "bash":
        pytest.skip("/bin/sh is bash")
    (tmp_path / "cmds").write_text("echo done &> log\n")
    done = amfs("run", "cmds")
    assert done.returncode == 2
    assert done.stderr.startswith("amfs: cmds:1: ") and "--shell bash" in done.stderr
    assert not (tmp_path / "log").exists()
    assert amfs("run", "--shell", "bash", "cmds").returncode == 0
    assert (tmp_path / "log").read_text() == "done\n"
    assert amfs("run", "--shell", "bash", "-", input="echo piped &> log\n").returncode == 0
    assert (tmp_path / "log").read_text() == "piped\n"


def test_only_the_maker_of_a_changed_file_runs_again(amfs: Amfs, tmp_path: Path) -> None:
    """img1 is a part of the name img10, which a task has changed."""
    log = tmp_path / "log"
    (tmp_path / "list").write_text(
        f"make1  -b sh -o img1  -a -c 'echo made img1 >> {log}; echo 1 > img1'\n"
        f"make10 -b sh -o img10 -a -c 'echo made img10 >> {log}; echo 2 > img10'\n"
        "spoil  -b sh -i img1 img10 -o x -a -c 'sleep 0.2; chmod u+w img10; echo 3 >> img10; echo x > x'\n"
        "later  -b sh -i img1 x2 -o y -a -c 'cat img1 > y'\n"
        "x2     -b sh -o x2 -a -c 'sleep 0.6; echo > x2'\n"
    )
    done = amfs("run", "-j", "2", "list")
    assert "task spoil failed: changed its input: img10" in done.stderr
    assert sorted(log.read_text().splitlines()) == ["made img1", "made img10"]


def test_names_of_files_in_reasons_are_not_taken_for_tasks(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(
        "a -b sh -i 'task #1' -o x -a -c 'chmod u+w task*; echo >> \"task #1\"; echo > x'\n"
        "b -b sh -o 'task #1' -a -c 'echo > task\\ \\#1'\n"
    )
    done = amfs("run", "list")
    assert "task a failed: changed its input: task #1" in done.stderr


#: Where facts were once looked for in sentences: programs may not search words for people.
FACTS = ("cli/run_driver.py", "node/node_io.py", "runs/tally.py", "engine/worker.py", "cli/explain.py",
         "engine/file_table.py", "engine/room.py")  # fmt: skip
SEARCHED = re.compile(
    r"\bin (\w+\.)?(detail|error|why)\b(?!\.)|(detail|error|why)\.(endswith|startswith|find|index|split|partition)\("
    r"|re\.\w+\(.*(detail|why)\b|strerror\(number\)"
)


@pytest.mark.parametrize("module", FACTS)
def test_no_decision_is_taken_by_words(module: str) -> None:
    lines = (PACKAGE / module).read_text().splitlines()
    assert [line for line in lines if SEARCHED.search(line) and "flush_errors" not in line] == []
