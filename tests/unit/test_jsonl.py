"""JSON Lines: the same workflows as task lists can say, both ways without loss, and faults that name line and field."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from test_tasklist import FIGURE_3, faults_of, read
from workflow_strategies import without_lines, workflows

from amfs.translate import jsonl, tasklist
from amfs.workflow.workflow import DeclaredState, Task, Workflow


def test_an_example() -> None:
    text = """\
{"type": "workflow", "name": "demo"}
{"type": "file", "name": "in", "state": "Shared"}

{"type": "task", "id": "a", "argv": ["cat", "in"], "inputs": ["in"], "stdout": "out", "time_limit": 5, "env": ["A=1"]}\r
"""
    workflow = read(text, "jsonl")
    assert workflow.name == "demo"
    assert workflow.files == {"in": DeclaredState.SHARED}
    assert workflow.tasks == [Task("a", ("cat", "in"), ("in",), stdout="out", time_limit=5.0, env=("A=1",), line=4)]
    assert workflow.tasks[0].argv[1] is workflow.tasks[0].inputs[0]


def test_defaults_are_left_out() -> None:
    assert list(jsonl.write(Workflow([Task("a", ("x",), line=9)]))) == ['{"type":"task","id":"a","argv":["x"]}']


@given(workflows)
def test_workflows_come_back(workflow: Workflow) -> None:
    text = "".join(f"{line}\n" for line in jsonl.write(workflow))
    assert without_lines(read(text, "jsonl")) == without_lines(workflow)
    for line in text.split("\n")[:-1]:
        json.loads(line)


@given(workflows)
def test_no_loss_from_one_format_to_the_other(workflow: Workflow) -> None:
    first = "".join(f"{line}\n" for line in tasklist.write(workflow))
    second = "".join(f"{line}\n" for line in jsonl.write(read(first)))
    third = "".join(f"{line}\n" for line in tasklist.write(read(second, "jsonl")))
    assert without_lines(read(third)) == without_lines(read(first))


def test_the_papers_list_goes_round() -> None:
    lines = list(jsonl.write(read(FIGURE_3)))
    again = list(tasklist.write(read("\n".join(lines), "jsonl")))
    assert again == [" ".join(line.split()) for line in FIGURE_3.splitlines()[1:]]


def test_lone_surrogates_and_raw_bytes_mean_the_same() -> None:
    escaped = read(b'{"type":"task","id":"a","argv":["x","\\udcff"]}\n', "jsonl")
    raw = read(b'{"type":"task","id":"a","argv":["x","\xff"]}\n', "jsonl")
    assert escaped.tasks[0].argv == raw.tasks[0].argv == ("x", "\udcff")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "not valid JSON"),
        ('{"type": "task", "id": "a", "argv": ["x"]', "not valid JSON"),
        ('{"type": ' + "[" * 100_000, "not valid JSON"),
        ("[]", "a line must be one JSON object"),
        ("3", "a line must be one JSON object"),
        ("{}", "field 'type' is missing"),
        ('{"type": "job", "id": "a"}', "field 'type': must be task, file or workflow"),
        ('{"type": "task", "argv": ["x"]}', "field 'id' is missing"),
        ('{"type": "task", "id": "a"}', "field 'argv' is missing"),
        ('{"type": "task", "id": 5, "argv": ["x"]}', "field 'id': expected str, got int"),
        ('{"type": "task", "id": "a", "argv": "x y"}', "field 'argv': expected array, got str"),
        ('{"type": "task", "id": "a", "argv": ["x", 5]}', "field 'argv[1]': expected str, got int"),
        ('{"type": "task", "id": "a", "argv": ["x"], "cores": 1.5}', "field 'cores': expected int, got float"),
        ('{"type": "task", "id": "a", "argv": ["x"], "input": ["f"]}', "unknown field 'input'; did you mean 'inputs'?"),
        ('{"type": "task", "id": "a", "argv": ["x"], "line": 5}', "unknown field 'line'"),
        ('{"type": "file", "name": "f", "state": "Maybe"}', "field 'state': invalid enum value 'Maybe'"),
        ('{"type": "file", "state": "Shared"}', "field 'name' is missing"),
        ('{"type": "file", "name": "f", "size": -1}', "field 'size'"),
        ('{"type": "workflow", "nam": "f"}', "unknown field 'nam'; did you mean 'name'?"),
        ('{"type": "task", "id": "a", "argv": ["x\\u0000"]}', "field 'argv': contains a NUL character"),
        ('{"type": "task", "id": "a", "argv": ["\\udcff"], "cores": "2"}', "field 'cores': expected int, got str"),
    ],
)
def test_faults(line: str, says: str) -> None:
    good = '{"type": "task", "id": "%s", "argv": ["x"]}'
    [fault] = faults_of(f"{good % 'p'}\n{line}\n{good % 'q'}\n", "jsonl")
    assert fault.line == 2
    assert says in fault.message
    assert "\n" not in str(fault)
    assert len(fault.message) < 400
