"""No message quotes more of a user's text than anybody reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amfs.errors import AmfsError, Fault, UsageError, WorkflowError, brief
from amfs.runs.tally import told
from amfs.translate.detect import load_checked
from amfs.translate.place import HostPlace
from amfs.vocabulary.messages import Result, failure_of, task_that_failed

BIG = "x" * 300_000
LISTS = {
    "program": f"{BIG}\n",
    "option": f"a -b true -bad {BIG}\n",
    "input": f"a -b true -i {BIG}\n",
    "number": f"a -b true -cores {BIG} -memory {BIG} -time-limit {BIG}\n",
    "environment": f"a -b true -env {BIG}\n",
    "stray": f"a -b true {BIG}\n",
    "after": f"a -b true -after {BIG}\n",
    "id twice": f"{BIG} -b true\n{BIG} -b true\n",
    "quote": f"echo '{BIG}\n",
    "pragma": f"#amfs {BIG}\n",
    "blanks": "a -b true '" + "y " * 100_000 + "'\n",
    "json value": json.dumps({"type": BIG, "id": "a", "argv": ["a"]}),
    "json field": json.dumps({"type": "task", "id": "a", "argv": ["a"], BIG: 1}),
    "yaml": f"pegasus: '5.0'\nname: x\njobs: [{{type: {BIG}}}]\n",
    "dax": f'<adag name="x"><job id="{BIG}" name="a"><uses file="{BIG}" link="foo"/></job></adag>',
    "makeflow": f"x: {BIG}\n\techo > x\n",
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_fault_is_short_whatever_it_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text(LISTS[kind])
    with pytest.raises(AmfsError) as caught:
        load_checked("list", HostPlace())
    assert len(str(caught.value)) < 20_000
    assert len(str(caught.value).split(": ")[0]) < 100


def test_errors_results_and_faults_are_short() -> None:
    fault = Fault("s", 1, BIG)
    for text in (str(UsageError(f"no {BIG}")), str(fault), str(WorkflowError([fault])), told(Result(0, detail=BIG))):
        assert len(text) < 1000 and "300,0" in text


def test_what_is_read_is_left_whole() -> None:
    text = f"cannot read {'/d' * 500}: no such file\nand then {'some words ' * 500}"
    assert brief(text) == text
    assert len(brief("w " * 10_000)) < 5000


def test_bytes_outside_of_utf8_are_told_as_bytes() -> None:
    name = "f\udcff\udc80é"
    assert brief(name) == "f\\xff\\x80é" and brief(f"{name!r} is gone") == "'f\\xff\\x80é' is gone"
    assert brief(repr("a \\udcff in the name")) == "'a \\\\udcff in the name'"
    assert str(Fault("list", 1, f"input {name!r}")) == "list:1: input 'f\\xff\\x80é'"


def test_a_task_that_failed_is_known_by_the_whole_cause_only() -> None:
    assert task_that_failed(failure_of(17)) == 17
    for cause in ("cannot read task #17 failed", "task #17 failed: no", "task #17", "", "task #17 failed\n"):
        assert task_that_failed(cause) is None


def test_an_import_with_a_nul_in_its_name_is_a_fault() -> None:
    from amfs.translate.swift_host import loader

    assert loader("")("a\0b") is None
