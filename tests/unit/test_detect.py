"""Finding the format by content, reading from files and pipes, and faults of whole texts."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tasklist import FIGURE_3, FIGURE_3_FILES
from workflow_strategies import without_lines, workflows

from amfs.errors import Fault, UsageError, WorkflowError
from amfs.translate import jsonl, tasklist
from amfs.translate.detect import Parser, load, load_checked, read_stream
from amfs.translate.sniff import Undetected, sniff
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.workflow import DeclaredState, Task, Workflow


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (FIGURE_3, "tasklist"),
        ("a -b x\n", "tasklist"),
        ("# comment\n\na -b x\nb -b y -i z\n", "tasklist"),
        ("a /bin/x -i y\nb -b x\nc -b x\n", "tasklist"),
        ("0 -i x -o y -a z\n", "tasklist"),
        ("#amfs workflow w\n", "tasklist"),
        (FIGURE_3_FILES, "filelist"),
        ("0 a Shared\n1 b invalid\n", "filelist"),
        ('{"type": "task", "id": "a", "argv": ["x"]}\n', "jsonl"),
        ('\n{ "type": "workflow", "name": "a"}', "jsonl"),
        ('{"type": "task", "id"', "jsonl"),
        ("gzip a\ngzip b\n", "commands"),
        ("du -b x\ndu -b y\ndu -b z\n", "commands"),
        ("{ echo a; }\n", "commands"),
        ("p a b -if a -of b\n", "commands"),
        ("", "commands"),
        ("# nothing\n\n", "commands"),
        ("< in sort\n", "commands"),
        ("[ -e x ]\n", "commands"),
    ],
)
def test_sniff(text: str, format: str) -> None:
    assert sniff(text) == format


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\necho a\n", "this is a script"),
        ('<?xml version="1.0"?>\n<html/>', "looks like XML"),
        ('{\n "type": "task"\n}\n', "looks like one JSON document over several lines"),
        ('[{"type": "task"}]', "looks like a JSON array"),
        ("---\na: b\n", "looks like YAML"),
        ("things:\n- a\n", "looks like YAML"),
    ],
)
def test_undetected(text: str, says: str) -> None:
    with pytest.raises(Undetected, match=says):
        sniff(text)
    with pytest.raises(WorkflowError) as caught:
        load(io.BytesIO(text.encode()))
    assert len(caught.value.faults) == 1


def test_unsure_lists_what_was_tried() -> None:
    with pytest.raises(WorkflowError, match=r"a task list .* JSON Lines .* command lines .*--format"):
        load(io.BytesIO(b"<?xml?>"))


def test_load_from_a_path_with_a_file_list(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(FIGURE_3)
    (tmp_path / "files").write_text(FIGURE_3_FILES)
    workflow = load(tmp_path / "list", files=tmp_path / "files", name="figure 3")
    assert len(workflow.tasks) == 4
    assert workflow.files["files0"] is DeclaredState.SHARED
    assert workflow.source == str(tmp_path / "list")
    assert workflow.name == "figure 3"


@given(workflows, st.sampled_from([tasklist, jsonl]), st.integers(1, 40))
def test_pieces_of_any_size_give_the_same(workflow: Workflow, format: object, size: int) -> None:
    lines = format.write(workflow)  # type: ignore[attr-defined]
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    parser = Parser("pipe", "tasklist" if format is tasklist else "jsonl")
    tasks: list[Task] = []
    for at in range(0, len(data), size):
        parser.feed(data[at : at + size])
        tasks += parser.take()
    parser.finish()
    tasks += parser.take()
    assert parser.faults == []
    reader = parser.reader
    found = Workflow(tasks, name=reader.name or "workflow", files=reader.files, sizes=reader.sizes, paths=reader.paths)
    assert without_lines(found) == without_lines(workflow)
    assert [task.line for task in tasks] == sorted({task.line for task in tasks})


def test_a_growing_pipe_gives_tasks_as_lines_arrive() -> None:
    """Every task is handed over before the next line is written; the pipe stays open all the while."""
    reading, writing = os.pipe()
    arrived = threading.Semaphore(0)
    seen: list[str] = []

    def consume() -> None:
        with open(reading, "rb") as file:
            for task in read_stream(file, source="pipe"):
                seen.append(task.id)
                arrived.release()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        for at in range(20):
            os.write(writing, f"# next\n{at} -b x -o f{at}".encode())
            os.write(writing, b"\n")
            assert arrived.acquire(timeout=60)
            assert seen == [str(done) for done in range(at + 1)]
        os.write(writing, b"last -b x")
    finally:
        os.close(writing)
        thread.join(60)
    assert seen[-1] == "last"


def test_streams_give_complete_tasks() -> None:
    [task] = read_stream(io.BytesIO(b"a -b x -stdin i -stdout o\n"))
    assert (task.inputs, task.outputs) == (("i",), ("o",))


def test_stream_faults_are_given_or_raised() -> None:
    data = b"a -b x\nb -c\nc -b y\n"
    faults: list[Fault] = []
    assert [task.id for task in read_stream(io.BytesIO(data), on_fault=faults.append)] == ["a", "c"]
    assert [fault.line for fault in faults] == [2]
    with pytest.raises(WorkflowError):
        list(read_stream(io.BytesIO(data)))


def test_stream_of_text_files_uses_their_bytes() -> None:
    text = io.TextIOWrapper(io.BytesIO(b"a -b x\xff\n"), encoding="ascii")
    assert [task.argv for task in read_stream(text)] == [("x\udcff",)]  # type: ignore[arg-type]


def test_binary_files_and_nul_bytes() -> None:
    with pytest.raises(WorkflowError, match="binary file"):
        load(io.BytesIO(b"\x7fELF\x02\x01\0\0\0\0\n\0\n\0\n"))
    with pytest.raises(WorkflowError) as caught:
        load(io.BytesIO(b"a -b x\n" * 200 + b"b -b \0\n" + b"c\n"), format="tasklist")
    assert [(fault.line, "NUL" in fault.message) for fault in caught.value.faults] == [(201, True), (202, False)]


def test_of_a_file_in_no_format_only_that_is_told() -> None:
    with pytest.raises(WorkflowError) as caught:
        load(io.BytesIO(b"3.5 7\n" * 100 + b"\0\n" * 20))
    [fault] = caught.value.faults
    assert fault.line == 0 and "looks like data" in fault.message


def test_utf16_is_named() -> None:
    with pytest.raises(WorkflowError, match="UTF-16"):
        load(io.BytesIO("a -b x\n".encode("utf-16")))


def test_very_long_lines() -> None:
    names = [f"f{at}" for at in range(200_000)]
    data = ("a -b x -i " + " ".join(names) + "\nb -b y -a '" + "z" * 5_000_000 + "'\n").encode()
    workflow = load(io.BytesIO(data))
    assert workflow.tasks[0].inputs == tuple(names)
    assert len(workflow.tasks[1].argv[1]) == 5_000_000


def test_all_faults_come_at_once_with_those_of_the_checks(tmp_path: Path) -> None:
    text = "a -b x -o o\nb -c -o p\nc -b x -o o\nd -b x -i p -o q\na -b x\ne -b 'x\n"
    with pytest.raises(WorkflowError) as caught:
        load_checked(io.BytesIO(text.encode()), AnyPlace("/x"))
    assert [fault.line for fault in caught.value.faults] == [2, 3, 5, 6]


def test_inputs_that_a_faulty_line_may_have_made_are_not_called_missing(tmp_path: Path) -> None:
    class Empty(AnyPlace):
        def missing(self, names: object) -> set[str]:
            return set(names)  # type: ignore[call-overload,no-any-return]

    text = b"b -b x -cores no -o p\nd -b x -i p\ne -b x -i gone\n"
    with pytest.raises(WorkflowError) as caught:
        load_checked(io.BytesIO(text), Empty())
    assert [fault.line for fault in caught.value.faults] == [1, 3]


def test_a_file_list_is_no_workflow() -> None:
    with pytest.raises(WorkflowError, match="give the task list, and this beside it with --files"):
        load(io.BytesIO(FIGURE_3_FILES.encode()))


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nope: No such file"):
        load(tmp_path / "nope")
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        load(tmp_path)
    with pytest.raises(UsageError, match="unknown format 'x'"):
        load(io.BytesIO(b""), format="x")


def test_empty_is_an_empty_workflow() -> None:
    assert load(io.BytesIO(b"")).tasks == []
    assert load(io.BytesIO(b"# nothing\n\n")).tasks == []


def test_lines_before_the_format_is_known_are_counted() -> None:
    data = b"\xef\xbb\xbf# one\n\n# three\n"
    parser = Parser("pipe")
    parser.feed(data)
    assert parser.take() == []
    parser.feed(b"a -b x\n")
    assert [(task.id, task.line) for task in parser.take()] == [("a", 4)]


@given(st.binary(max_size=60))
def test_any_bytes_end_well(data: bytes) -> None:
    """Whatever comes in: tasks, or faults in one line each; no other exception."""
    try:
        workflow = load(io.BytesIO(data))
    except WorkflowError as error:
        assert error.faults
        assert all("\n" not in str(fault) for fault in error.faults)
    else:
        assert all(task.argv for task in workflow.tasks)
