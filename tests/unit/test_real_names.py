"""One file under two names, because a directory is a link, or because the directory of the run is reached by one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amfs.errors import WorkflowError
from amfs.translate.place import HostPlace
from amfs.workflow.checks import StreamChecker, check
from amfs.workflow.workflow import Task, Workflow


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """``d``, which ``ld``, ``l2/sub`` and ``../by`` lead to; ``far`` leads out."""
    here = tmp_path / "here"
    for name in ("d/sub", "own"):
        (here / name).mkdir(parents=True)
    (tmp_path / "other" / "x").mkdir(parents=True)
    (here / "ld").symlink_to("d")
    (here / "l2").symlink_to("ld")
    (here / "far").symlink_to("../other/x")
    (tmp_path / "by").symlink_to("here")
    for name in ("d/in", "in", "o"):
        (here / name).touch()
    (tmp_path / "other" / "o").touch()
    return here


def faults(base: Path, *tasks: tuple[str, str], at: str = "") -> list[str]:
    """Faults of tasks with these inputs and outputs; a list that grows finds the same, or says so in its own words."""
    made = [
        Task(f"t{number}", ("true",), tuple(inputs.split()), tuple(outputs.split()), line=number)
        for number, (inputs, outputs) in enumerate(tasks, 1)
    ]
    place = HostPlace(at or base)
    try:
        check(Workflow(list(made), source="list"), place)
        found = []
    except WorkflowError as error:
        found = [fault.message for fault in error.faults]
    stream = StreamChecker(place)
    assert bool([fault for task in made for fault in stream.add(task)]) == bool(found)
    return found


@pytest.mark.parametrize("other", ["ld/o", "l2/o", "./ld//o", "l2/./o", "ABS/d/o", "ABS/ld/o", "BY/d/o", "BY/l2/o", "../by/d/o"])
def test_two_writers(base: Path, other: str) -> None:
    other = other.replace("ABS", str(base)).replace("BY", str(base.parent / "by"))
    [words] = faults(base, ("", "d/o"), ("", other))
    assert words.startswith("the same file is named ") and words.endswith("; use one name") and "'d/o' by task t1" in words


@pytest.mark.parametrize("tasks", [[("", "d/o"), ("ld/o", "p")], [("ld/o", "p"), ("", "d/o")], [("d/in", "ld/in")], [("", "d/o ld/o")]])
def test_writer_and_reader(base: Path, tasks: list[tuple[str, str]]) -> None:
    (base / "d" / "o").touch()
    assert any("use one name" in words or "same file" in words for words in faults(base, *tasks))


def test_below_a_directory_that_is_still_to_be_made(base: Path) -> None:
    assert faults(base, ("", "d/new/deep/o"), ("", "ld/new/deep/o"))
    assert faults(base, ("", "ld/new/o"), ("", "l2/new/o"))


def test_what_is_no_fault(base: Path) -> None:
    assert faults(base, ("", "ld/o"), ("", "ld/p"), ("", "d/q"), ("ld/o", "own/o")) == []
    assert faults(base, ("d/in", "a"), ("ld/in", "b")) == [], "both read it"
    assert faults(base, ("", "far/o"), ("", "own/o")) == []
    (base / "own" / "f").symlink_to("../d/in")
    assert faults(base, ("", "d/in"), ("", "own/f")) == [], "a file that is a link is replaced by an output, and leads nowhere then"


def test_the_directory_of_the_run_is_reached_by_a_link(base: Path) -> None:
    by = str(base.parent / "by")
    assert faults(base, ("", "d/o"), ("", f"{base}/d/o"), at=by)
    assert faults(base, ("", "d/o"), ("", f"{by}/d/o"), at=by)
    assert faults(base, ("", "d/o"), ("", f"{by}/d/p"), at=by) == []


def test_dots_behind_a_link_lead_elsewhere(base: Path) -> None:
    for name in ("far/../o", f"{base}/far/../o"):
        [words] = faults(base, (name, "p"))
        assert "leads through a link to another directory" in words
    assert faults(base, ("own/../o", "p")) == []
    assert faults(base, ("ld/../o", "p")) == [], "there it is the same"
    [words] = faults(base, ("far/..", "p"))
    assert "is the directory of the run, or one above it" in words


def test_each_directory_is_looked_at_once(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    real = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: looked.append(str(path)) or real(path))
    assert faults(base, *[("", f"d/sub/o{number}") for number in range(50)]) == []
    assert len(looked) == len(set(looked))
