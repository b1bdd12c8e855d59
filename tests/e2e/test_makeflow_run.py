"""Makeflows through the command: directories as outputs, rules without targets, files that are no lists of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import commands
import pytest

Amfs = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def amfs(tmp_path: Path) -> Amfs:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AMFS_")}
    environment["XDG_STATE_HOME"] = str(tmp_path.parent / f"{tmp_path.name}-state")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run(*words, cwd=tmp_path, environment=environment)

    return run


def tree(top: Path) -> dict[str, str]:
    return {str(path.relative_to(top)): path.read_text() for path in sorted(top.rglob("*")) if path.is_file()}


DIRECTORY = """\
d/:
    mkdir -p d/e; echo x > d/x; echo y > d/e/y; ln -s ../x d/e/l
d/z: d
    cat d/x > d/z; echo z >> d/z
out: d/z d
    cat d/x d/e/l d/z > out; ls d >> out
all: out d
    cat out > all; cat d/e/y >> all
"""


def test_a_directory_as_output(amfs: Amfs, tmp_path: Path) -> None:
    """Only when the task has ended it is known to be one. Other tasks find it whole, under its name, and so does the user."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine").write_text("stays\n")
    (tmp_path / "Makeflow").write_text(DIRECTORY)
    done = amfs("run", "--local", "-q", "Makeflow")
    assert done.returncode == 0, done.stderr
    found = tree(tmp_path)
    del found["Makeflow"]
    all_ = "x\nx\nx\nz\ne\nmine\nx\nz\ny\n"
    assert found == {"all": all_, "d/x": "x\n", "d/e/y": "y\n", "d/e/l": "x\n", "d/z": "x\nz\n", "d/mine": "stays\n"}
    assert os.readlink(tmp_path / "d" / "e" / "l") == "../x"


def test_a_directory_and_what_is_in_it_are_outputs_of_one_rule(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "m").write_text(
        "MAKEFLOW_OUTPUTS=d/1 d\nd d/1 d/e d/e/2 o: in\n\tmkdir -p d/e; cp in d/1; cp in d/e/2; cp in d/3; cp in o\n"
        "last: d/e/2 d\n\tls -R d > last\n"
    )
    (tmp_path / "in").write_text("in\n")
    done = amfs("run", "--local", "-q", "--format", "makeflow", "m")
    assert done.returncode == 0, done.stderr
    assert set(tree(tmp_path)) == {"in", "m", "o", "last", "d/1", "d/3", "d/e/2"}
    assert (tmp_path / "last").read_text() == "d:\n1\n3\ne\n\nd/e:\n2\n"


def test_directories_that_cannot_be_outputs(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_text("")
    (tmp_path / "d" / "y").write_text("")
    for options, text, says in [
        (("--hashed-outputs", "4"), "a -b mkdir -o new -a new\n", "output new is a directory, not a regular file"),
        ((), "a -b sh -o new -a -c 'mkdir new; mkfifo new/f'\n", "cannot copy the directory 'new'"),
        ((), "a -b ls -i d/x d -a d\n", "cannot stage input 'd'"),
    ]:
        (tmp_path / "list").write_text(text)
        done = amfs("run", "--local", "-q", *options, "list")
        assert (done.returncode, says in done.stderr) == (1, True), done.stderr


def test_nothing_of_a_makeflow_is_executed_as_a_command(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "Makeflow").write_text("V=1\ntouch here; echo\n")
    done = amfs("run", "--local", "Makeflow")
    assert done.returncode == 2
    assert "Makeflow:2: neither a rule" in done.stderr
    command = [sys.executable, "-m", "amfs", "run", "--local"]
    piped = subprocess.run(
        command, input="V=1\nV2=a b\nout: in; touch here\n\ttouch here; false\n", cwd=tmp_path, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert piped.returncode == 2
    assert not (tmp_path / "here").exists()


def test_a_growing_list_counts_faults_of_one_kind(amfs: Amfs, tmp_path: Path) -> None:
    lines = "true\n" + "".join(f"key{n}: value\n" for n in range(100))
    command = [sys.executable, "-m", "amfs", "run", "--local", "-q"]
    done = subprocess.run(command, input=lines, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) < 10


def test_a_replay_of_absolute_names(amfs: Amfs, tmp_path: Path) -> None:
    tasks = ", ".join(
        f'{{"id": "t{n}", "inputFiles": ["/in/{n}"], "outputFiles": ["/in/{n + 1}"], "parents": [], "children": []}}' for n in range(20)
    )
    (tmp_path / "w.json").write_text(f'{{"schemaVersion": "1.5", "workflow": {{"specification": {{"tasks": [{tasks}]}}}}}}')
    for words in (("info", "w.json"), ("graph", "w.json", "-o", "w.svg"), ("translate", "w.json", "--to", "jsonl", "-o", "w.jsonl")):
        assert amfs(*words).returncode == 0
    done = amfs("run", "--local", "--synthetic", "-C", "place", "w.json")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "place" / "abs" / "in").iterdir()) == ["0", "20"]
    done = amfs("run", "--local", "w.json")
    assert done.returncode == 2
    assert done.stderr.count("\n") <= 13
    assert "15 more like this: job t0: output '/in/1' lies outside" in done.stderr
