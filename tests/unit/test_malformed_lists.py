"""A hundred malformed lists, and any number of mutated ones: one clear line a fault, exit code 2, and never anything else."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tasklist import FIGURE_3
from workflow_strategies import tasks

from amfs.errors import AmfsError, WorkflowError
from amfs.translate import jsonl, tasklist
from amfs.translate.detect import load_checked
from amfs.translate.place import HostPlace
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.workflow import Task, Workflow

_OK = "ok -b true\n"
_J = '{"type": "task", "id": "%s", "argv": ["true"]%s}\n'


def _task(rest: str) -> str:
    return f"{_OK}t -b true {rest}\n"


#: Each has exactly one fault, on the line given (0: the whole text), that is described with the words given.
LISTS: list[tuple[str | bytes, int, str]] = [
    # lines that are no task
    (_OK + "t\n", 2, "no program"),
    (_OK + "t true\n", 2, "no program"),
    (_OK + "t -i a -o b\n", 2, "no program"),
    (_OK + "t -a true\n", 2, "no program"),
    (_OK + "t -- true\n", 2, "no program"),
    (_OK + "t -b\n", 2, "-b needs a value"),
    (_OK + "t -b -o out\n", 2, "-b needs a value"),
    (_OK + "t -b ''\n", 2, "no program to run"),
    (_OK + "'' -b true\n", 2, "the task id is empty"),
    (_OK + "-b true\n", 2, "no program"),
    (_task("stray"), 2, "'stray' after true belongs to no option"),
    (_task("-stdin"), 2, "-stdin needs a value"),
    (_task("-stdout -i x"), 2, "-stdout needs a value"),
    (_task("-stderr"), 2, "-stderr needs a value"),
    (_task("-cwd"), 2, "-cwd needs a value"),
    (_task("-label"), 2, "-label needs a value"),
    (_task("-b false"), 2, "-b is given twice"),
    (_task("-cwd a -cwd b"), 2, "-cwd is given twice"),
    (_task("-unstaged yes"), 2, "'yes' after -unstaged belongs to no option"),
    # options that are not ours
    (_task("-x"), 2, "unknown option -x"),
    (_task("--stdin f"), 2, "did you mean -stdin?"),
    (_task("-output f"), 2, "did you mean -o?"),
    (_task("-input f g"), 2, "did you mean -i?"),
    (_task("-core 2"), 2, "did you mean -cores?"),
    (_task("-timelimit 5"), 2, "did you mean -time-limit?"),
    (_task("-o -f"), 2, "unknown option -f"),
    (_task("-I f"), 2, "unknown option -I"),
    (_task("—a x"), 2, "belongs to no option"),
    # values
    (_task("-cores many"), 2, "-cores needs a whole number"),
    (_task("-cores 1.5"), 2, "-cores needs a whole number"),
    (_task("-cores 0"), 2, "cores must be at least 1"),
    (_task("-cores -2"), 2, "cores must be at least 1"),
    (_task("-cores 99999999999"), 2, "cores must be at least 1"),
    (_task("-memory much"), 2, "-memory needs a size"),
    (_task("-memory 5X"), 2, "-memory needs a size"),
    (_task("-memory -1"), 2, "-memory needs a size"),
    (_task("-memory 99999999P"), 2, "memory must not be"),
    (_task("-time-limit later"), 2, "-time-limit needs a duration"),
    (_task("-time-limit 1e400"), 2, "the time limit must lie"),
    (_task("-time-limit -5"), 2, "-time-limit needs a duration"),
    (_task("-retries some"), 2, "-retries needs a whole number"),
    (_task("-retries -3"), 2, "-retries needs a whole number from 0 on"),
    (_task("-priority high"), 2, "-priority needs a whole number"),
    (_task("-priority 99999999999"), 2, "the priority must fit"),
    (_task("-node here"), 2, "-node needs a whole number"),
    (_task("-node -2"), 2, "-node needs a whole number from 0 on"),
    (_task("-node 1 -node-soft 1"), 2, "more than one -node"),
    (_task("-env PATH"), 2, "environment entry 'PATH' is not of the form NAME=VALUE"),
    (_task("-env =x"), 2, "environment entry '=x'"),
    (_task("-keep f"), 2, "keeps 'f', which is not among its outputs"),
    (_task("-cwd /tmp"), 2, "lies outside the sandbox"),
    (_task("-cwd ../x"), 2, "lies outside the sandbox"),
    (_task("-reduce two -i in -o s -a {in} {out}"), 2, "-reduce needs a whole number"),
    (_task("-reduce 1 -i in -o s -a {in} {out}"), 2, "at least 2 files at a time"),
    (_task("-reduce 2 -i in -o s -a {in}"), 2, "needs {out}"),
    (_task("-reduce 2 -i in -o s -a {out}"), 2, "needs {in}"),
    (_task("-reduce 2 -i in -o s t -a {in} {out}"), 2, "exactly one output"),
    (_task("-reduce 2 -o s -a {in} {out}"), 2, "a reduction needs inputs"),
    # quotes
    (_task("-a 'open"), 2, "the quote ' in column 14 is not closed"),
    (_task('-a "open'), 2, 'the quote " in column 14 is not closed'),
    (_task("-a $'open"), 2, "the quote ' in column 15 is not closed"),
    (_task("-a it's"), 2, "is not closed"),
    (_task("\\"), 2, "a backslash ends the line"),
    (_task("-a $'\\0'"), 2, "NUL"),
    (_task("-a $'\\U00110000'"), 2, "there is no character"),
    (_OK + "'t -b true\n", 2, "is not closed"),
    # names
    (_task("-i ''"), 2, "a file name is empty"),
    (_task("-o ''"), 2, "a file name is empty"),
    (_task("-o dir/"), 2, "names a directory"),
    (_task("-o ."), 2, "names a directory"),
    (_task("-o .."), 2, "names a directory"),
    (_task("-o d\nu -b true -o d/f"), 2, "is a file, but other names lie below it"),
    # tasks together
    (_task("-a x\nt -b true -a y"), 3, "task id 't' is already taken (line 2)"),
    ("a -b true -o f\nb -b true -o f\n", 2, "already written by task a (line 1)"),
    ("a -b true -o f\nb -b true -o ./f\n", 2, "already written by task a (line 1)"),
    ("a -b true -stdout f\nb -b true -stderr f\n", 2, "already written by task a (line 1)"),
    (_task("-i f -o f"), 2, "reads 'f', which it writes itself"),
    (_task("-stdin f -stdout f"), 2, "reads 'f', which it writes itself"),
    ("a -b true -i y -o x\nb -b true -i x -o y\n", 1, "a -> b -> a"),
    ("a -b true -i z -o x\nb -b true -i x -o y\nc -b true -i y -o z\n", 1, "a -> b -> c -> a"),
    (_task("-i nowhere"), 2, "input 'nowhere' of task t does not exist"),
    (_task("-i /nowhere/at/all"), 2, "input '/nowhere/at/all' of task t does not exist"),
    (_task("-stdin nowhere"), 2, "input 'nowhere' of task t does not exist"),
    (_task("-i temp1\nu -b true -o temp0"), 2, "did you mean the output 'temp0'?"),
    (_task("-o in/below"), 2, "in is not a directory"),
    (_OK + "t -b no-such-program\n", 2, "program 'no-such-program' of task t was not found"),
    (_OK + "t -b ./no-such-program\n", 2, "program './no-such-program' of task t does not exist"),
    (_OK + "t -b ./in\n", 2, "is not executable"),
    (_OK + "t -b true -o p\nu -b ./p\n", 3, "must be among the inputs"),
    # the text as a whole
    ("#amfs name x\n" + _OK, 1, "a comment that starts with #amfs"),
    ("#amfs file in Shared\nt -b true -o in\n", 2, "which the file list says is Shared already"),
    ("#amfs file in Invalid\nt -b true -i in\n", 2, "is Invalid in the file list, but no task makes it"),
    ("".join(f"t{at} -b true\n" for at in range(100)).encode() + b"t -b tr\0ue\n", 101, "the line contains a NUL byte"),
    (b"\0\1\2\3", 0, "binary file"),
    (_OK.encode("utf-16"), 1, "UTF-16"),
    ("#!/bin/bash\necho a\n", 0, "this is a script"),
    ("<?xml version='1.0'?>\n<html/>\n", 0, "this looks like XML"),
    ("---\nthings:\n", 0, "this looks like YAML"),
    ('{\n  "tasks": []\n}\n', 0, "one JSON document over several lines"),
    ("0 in Shared\n1 out Invalid\n", 0, "this is a file list"),
    # JSON Lines
    (_J % ("a", "") + '{"type": "task"\n', 2, "not valid JSON"),
    (_J % ("a", "") + "t -b true\n", 2, "not valid JSON"),
    (_J % ("a", "") + "[]\n", 2, "a line must be one JSON object"),
    (_J % ("a", "") + '{"type": "tusk", "id": "b"}\n', 2, "must be task, file or workflow"),
    (_J % ("a", "") + '{"type": "task", "id": "b"}\n', 2, "field 'argv' is missing"),
    (_J % ("a", "") + '{"type": "task", "id": "b", "argv": []}\n', 2, "no program to run"),
    (_J % ("a", "") + _J % ("b", ', "inputs": "in"'), 2, "field 'inputs': expected array, got str"),
    (_J % ("a", "") + _J % ("b", ', "imputs": ["in"]'), 2, "unknown field 'imputs'; did you mean 'inputs'?"),
    (_J % ("a", "") + _J % ("b", ', "cores": 0'), 2, "cores must be at least 1"),
    (_J % ("a", "") + _J % ("b", ', "node_soft": true'), 2, "node_soft without a node"),
    (_J % ("a", "") + _J % ("a", ""), 2, "already taken (line 1)"),
    # command lines
    ("true\necho 'a\n", 2, "is not closed"),
    ("true\nno-such-program a\n", 2, "was not found on PATH"),
    ("true\ncp a b -if nowhere -of b\n", 2, "input 'nowhere' of task 2 does not exist"),
    ("true\n-if a -of b\n", 2, "there is no command"),
]


def test_there_are_enough() -> None:
    assert len(LISTS) >= 100


@pytest.fixture
def place(tmp_path: Path) -> HostPlace:
    (tmp_path / "in").write_text("")
    return HostPlace(tmp_path, "/usr/bin:/bin")


@pytest.mark.parametrize(("text", "line", "says"), LISTS, ids=range(len(LISTS)))
def test_one_clear_line_a_fault(text: str | bytes, line: int, says: str, place: HostPlace) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(WorkflowError) as caught:
        load_checked(io.BytesIO(data), place)
    [fault] = caught.value.faults
    assert fault.line == line
    assert says in fault.message
    assert str(fault).count("\n") == 0
    assert caught.value.exit_code == 2


def test_many_faults_are_all_told() -> None:
    """A mistake that breaks a line in one list breaks it in a list of all of them."""
    broken = [text.removeprefix(_OK) for text, line, _ in LISTS[:66] if isinstance(text, str) and line == 2 and text.startswith(_OK)]
    text = "".join(f"{line}" for line in broken)
    with pytest.raises(WorkflowError) as caught:
        load_checked(io.BytesIO(text.encode()), AnyPlace("/x"), format="tasklist")
    assert {fault.line for fault in caught.value.faults} >= set(range(1, len(broken) + 1))


def _mutate(draw: st.DrawFn, text: str) -> str:
    """A few cuts, repetitions and foreign characters."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        how = draw(st.sampled_from(["cut", "repeat", "insert"]))
        if how == "cut":
            text = text[:at] + text[end:]
        elif how == "repeat":
            text = text[:end] + text[at:end] + text[end:]
        else:
            text = (
                text[:at]
                + draw(st.sampled_from([" ", "\n", "'", '"', "\\", " -x ", " -i", "\0", "{", "}", "#", "\t", "é", " -a "]))
                + text[at:]
            )
    return text


@st.composite
def mutated(draw: st.DrawFn) -> str:
    some = draw(st.lists(tasks(st.sampled_from(["in", "t0", "t1", "./t0", "d/x"])), min_size=1, max_size=3))
    workflow = Workflow([Task(f"{at}{task.id}", task.argv, task.inputs, task.outputs, task.stdin) for at, task in enumerate(some)])
    texts = [
        FIGURE_3,
        "\n".join(tasklist.write(workflow)),
        "\n".join(jsonl.write(workflow)),
        "p a b -if a -of b\nq b 'c d' -if b -of 'c d'\n",
    ]
    return _mutate(draw, draw(st.sampled_from(texts)))


@given(mutated(), st.sampled_from(["auto", "tasklist", "jsonl", "commands", "usage", "filelist"]))
def test_mutated_lists_end_in_a_plan_or_in_clear_faults(text: str, format: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    try:
        workflow, plan = load_checked(io.BytesIO(data), HostPlace("/", "/usr/bin:/bin"), format=format)
    except AmfsError as error:
        assert isinstance(error, WorkflowError)
        assert error.exit_code == 2
        faults = error.faults
        assert str(error).count("\n") == len(faults) - 1
        assert len(set(faults)) == len(faults)
        lines = text.count("\n") + 1
        assert all(0 <= fault.line <= lines and fault.message.isprintable() for fault in faults)
    else:
        assert len(plan.walk()) == len(workflow.tasks)


@pytest.mark.parametrize("text", ["a -b true -cores x\nb -b true -i gone\n"])
def test_the_command_exits_with_2(text: str, amfs: Callable[..., CompletedProcess[str]]) -> None:
    done = amfs("translate", "-", input=text)
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["standard input:1", "standard input:2"]
