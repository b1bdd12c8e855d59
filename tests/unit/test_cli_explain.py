"""``amfs explain``: the answer from the list, the journal and what lies on shared storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from amfs.cli.explain import reasons
from amfs.cli.main import main
from amfs.host import orphans
from amfs.runs.journal import Header, Journal, default_path
from amfs.workflow.derivation import key_of
from amfs.workflow.workflow import Task

CHAIN = [
    Task("gen", ("gen",), outputs=("g",), line=1),
    Task("mid", ("mid",), inputs=("g", "here"), outputs=("m",), line=2),
    Task("fin", ("fin",), inputs=("m",), outputs=("f",), line=3),
]


def done(*tasks: Task) -> set[int]:
    return {key_of(task) for task in tasks}


def test_it_follows_the_chain_to_who_is_to_blame(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    assert reasons(CHAIN, 2, str(tmp_path), set()) == [
        "fin (line 3) waits for:",
        "  m from task mid (line 2)",
        "    which waits for g from task gen (line 1)",
        "      which waits for no file ('amfs explain gen' says more)",
    ]
    assert reasons(CHAIN, 2, str(tmp_path), done(CHAIN[0])) == [
        "fin (line 3) waits for:",
        "  m from task mid (line 2)",
        "    which waits for no file ('amfs explain mid' says more)",
    ]


def test_it_names_files_that_nobody_makes(tmp_path: Path) -> None:
    lines = reasons(CHAIN, 1, str(tmp_path), done(CHAIN[0]))
    assert lines[1] == f"  here, which is not in {tmp_path} and which no task makes"


def test_it_knows_what_is_done_and_what_is_ready(tmp_path: Path) -> None:
    assert "has finished" in reasons(CHAIN, 0, str(tmp_path), done(CHAIN[0]))[0]
    assert "waits for no file" in reasons(CHAIN, 0, str(tmp_path), set())[0]


def test_a_cycle_ends(tmp_path: Path) -> None:
    tasks = [
        Task("a", ("a",), inputs=("c",), outputs=("a",)),
        Task("b", ("b",), inputs=("a",), outputs=("b",)),
        Task("c", ("c",), inputs=("b",), outputs=("c",)),
    ]
    assert reasons(tasks, 0, str(tmp_path), set())[-1].strip() == "which waits for a: a cycle"


def test_long_lists_of_inputs_are_cut(tmp_path: Path) -> None:
    names = [f"o{i}" for i in range(50)]
    tasks = [*(Task(f"w{name}", ("w",), outputs=(name,)) for name in names), Task("all", ("all",), inputs=tuple(names))]
    lines = reasons(tasks, 50, str(tmp_path), set())
    assert lines[-1] == "  and 45 more"
    assert len(lines) == 12


def test_a_wrong_name_gets_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "none"))
    path = tmp_path / "list"
    path.write_text("first -b true\nsecond -b true -stdout x\nthird -b cat -stdin x -stdout y\n")
    assert main(["explain", "secund", str(path)]) == 2
    assert capsys.readouterr().err == f"amfs: there is no task 'secund' in {path}; did you mean second?\n"
    assert main(["explain", "third", str(path), "-C", str(tmp_path), "--journal", str(tmp_path / "j")]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["third (line 3) waits for:", "  x from task second (line 2)"]


def test_it_knows_whether_a_run_inside_a_command_is_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    (tmp_path / "list").write_text("a -b sleep -a 60\n")
    assert main(["explain", "a", "list"]) == 0
    assert "there is no journal of a run of this list here" in capsys.readouterr().out
    store = orphans.make(orphans.EMBEDDED, "n0", tmp_path)
    journal = Journal(default_path("list", str(tmp_path)), Header("list", str(tmp_path), str(store.path)))
    assert main(["explain", "a", "list"]) == 0
    assert "the run is going on inside its own command" in capsys.readouterr().out
    journal.close()
    store.remove()
    assert main(["explain", "a", "list"]) == 0
    assert "no run of this list is going on" in capsys.readouterr().out
