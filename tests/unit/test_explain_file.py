"""The story of a file of a run: from its list, its journal and what lies there. (Files of sessions: tests/system/test_lineage.py.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amfs.cli.main import main
from amfs.runs.journal import Header, Journal, default_path
from amfs.runs.lineage import of_journal
from amfs.workflow.derivation import key_of
from amfs.workflow.workflow import Task

LIST = """
sort -b sort -i words -stdout sorted -a words
count -b uniq -i sorted -stdout counts -a -c sorted
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text(LIST)
    (tmp_path / "words").write_text("b\na\nb\n")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["explain", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_file_that_a_run_left(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--local", "list"]) == 0
    capsys.readouterr()
    assert told(capsys, "./counts", "list") == [
        "counts", "  20 bytes, on shared storage", "  made by task count, which has finished", f"  of {place}/list (line 3)",
        "  its command: uniq -c sorted", "  it read:", "    sorted (kept only between tasks, made by task sort)",
    ]  # fmt: skip
    assert "kept in memory while tasks want it" in told(capsys, "sorted", "list")[1]
    assert told(capsys, "words", "list") == [
        "words", "  6 bytes, on shared storage", "  no task makes it", "  read by:", "    task sort (finished)",
    ]  # fmt: skip
    (place / "counts").unlink()
    lines = told(capsys, "counts", "list")
    assert (lines[1], lines[-1]) == ("  not there", f"  to have it again: amfs run --resume {place}/list")
    story = json.loads("\n".join(told(capsys, "counts", "list", "--output", "json")))
    assert (story["state"], story["task"]["id"], story["task"]["inputs"][0]["state"]) == ("not there", "count", "between tasks")
    assert "--journal" not in story["again"] and "-C" not in story["again"]


def test_a_run_that_is_not_known_any_more_is_said_to_be(place: Path) -> None:
    assert of_journal("/nowhere/x.journal").why == "its journal /nowhere/x.journal is not there any more"
    Journal(place / "a.journal", Header("standard input", str(place))).close()
    assert of_journal(str(place / "a.journal")).why == "its tasks did not come from a file (standard input)"
    Journal(place / "b.journal", Header("gone", str(place), file=str(place / "gone"))).close()
    assert "gone" in of_journal(str(place / "b.journal")).why
    (place / "c.journal").write_text("nonsense")
    assert "is not a journal" in of_journal(str(place / "c.journal")).why


def test_the_command_says_what_is_not_as_usual(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("sort", ("sort", "words"), inputs=("words",), outputs=("sorted",), stdout="sorted", line=2)
    for journal in (place / "mine.journal", default_path(str(place / "list"), str(place))):
        kept = Journal(journal, Header("list", str(place), file=str(place / "list")))
        kept.add([(key_of(task), (6,), 0, (7,))])
        kept.close()
    run = of_journal(str(place / "mine.journal"))
    maker = run.maker("sorted")
    assert maker is not None and run.has_finished(maker) and [each.id for each in run.readers("sorted")] == ["count"]
    (place / "else").mkdir()
    monkeypatch.chdir(place / "else")
    assert run.again("lab") == f"amfs run --resume --session lab -C {place} --journal {place}/mine.journal {place}/list"
    usual = of_journal(str(default_path(str(place / "list"), str(place))))
    assert usual.again("") == f"amfs run --resume -C {place} {place}/list"


def test_what_is_meant_must_be_clear(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "sorted"]) == 2
    assert "name the list of its run, too" in capsys.readouterr().err
    assert main(["explain", "sorte", "list"]) == 2
    assert "there is no task 'sorte' in list" in capsys.readouterr().err
