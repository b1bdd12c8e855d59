"""A directory that is an input is compared as a file is: whoever reads it while it changes fails, and says so."""

from __future__ import annotations

from pathlib import Path

import commands
import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here" / "d" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "d" / "deep" / "f").write_text("old\n")
    (tmp_path / "here" / "d" / "g").write_text("old\n")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def run(text: str, *options: str) -> tuple[int, str]:
    Path("list").write_text(text)
    done = commands.run("run", "--local", "-j", "4", *options, "list")
    return done.returncode, done.stderr


@pytest.mark.parametrize("change", ["echo new > d/deep/f", "rm d/g", "mv d/g d/h", "echo more >> d/g", "rm -r d/deep"])
@pytest.mark.parametrize("name", ["d", "ABS/d"])
def test_a_task_that_changes_its_input_directory_fails(here: Path, change: str, name: str) -> None:
    code, said = run(f"t -b sh -i {name.replace('ABS', str(here))} -o o -a -c 'cd {here}; {change}; cd -; echo > o'\n")
    assert code == 1
    assert "changed its input: " in said


def test_whoever_reads_it_meanwhile_fails_too(here: Path) -> None:
    code, said = run(
        "reader -b sh -i d -o r -a -c 'cat d/g > r; while ! [ -e stop ] && grep -q old d/g; do sleep 0.02; done'\n"
        "writer -b sh -i d -o w -a -c 'sleep 0.2; echo new > d/g; echo > w'\n"
    )
    assert code == 1
    assert "task reader" in said and "task writer" in said and said.count("changed its input: d") >= 2


@pytest.mark.parametrize("text", ["t -b sh -i d -o o -a -c 'cat d/g > o; echo > d/cache'\n", "t -b sh -i d -o d/o -a -c 'echo > d/o'\n"])
def test_new_files_and_outputs_are_no_change(here: Path, text: str) -> None:
    """Programs put caches beside what they read; and where tasks of the run write, others may read."""
    for _ in range(2):
        code, said = run(text + "u -b sh -i d -o d/p -a -c 'sleep 0.2; echo > d/p'\n")
        assert code == 0, said


@pytest.mark.parametrize("name", [".", "./.", "..", "../here", "d/.."])
def test_the_directory_of_the_run_cannot_be_an_input(here: Path, name: str) -> None:
    code, said = run(f"t -b ls -i {name} -stdout o\n")
    assert code == 2
    assert f"input {name!r} is the directory of the run, or one above it" in said
