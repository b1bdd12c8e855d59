"""Shared by all readers of whole documents, and how a document is told from a list of lines."""

from __future__ import annotations

import io

import pytest

from amfs.translate.detect import peek
from amfs.translate.document import FAULTS_MAX, DocumentReader, local_path, with_after
from amfs.translate.sniff import sniff_document
from amfs.workflow.workflow import Task


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('<?xml version="1.0"?>\n<!-- x --><adag name="a">', "dax"),
        ('\ufeff<adag xmlns="x">', "dax"),
        ("<p:adag>", "dax"),
        ("<html><body/>", ""),
        ('{"name": "x", "schemaVersion": "1.5", "workflow": {', "wfformat"),
        ('{\n  "workflow" : {\n', "wfformat"),
        ('{"type": "task", "id": "1", "argv": ["x"]}\n', ""),
        ('{"id": "1", "argv": ["workflow"], "type": "task"}\n', ""),
        ('{"pegasus": "5.0", "jobs": []}', "pegasus"),
        ('{"rules": [{"command": "x"}]}', "makeflow"),
        ('# made by x\nx-pegasus:\n  apiLang: python\npegasus: "5.0"\n', "pegasus"),
        ("---\njobs:\n- id: a\n", "pegasus"),
        ("---\na: b\n", ""),
        ("X=1\nout: in\n\tcp in out\n", "makeflow"),
        ("# c\nout:\n\n\techo > out\n", "makeflow"),
        ("cp a b\n\techo c:d\n", ""),
        ("1 -b echo -a x:\n2 -b y\n", ""),
        ("", ""),
    ],
)
def test_documents_are_known_by_content(text: str, format: str) -> None:
    assert sniff_document(text.encode()) == format
    found, rest = peek(io.BytesIO(text.encode()))  # type: ignore[arg-type]
    assert found == format
    assert rest.read() == text.encode()


class Slow(io.RawIOBase):
    """A pipe that brings one piece at a time; reading more than there is would wait for ever."""

    def __init__(self, *pieces: str) -> None:
        super().__init__()
        self.pieces = [piece.encode() for piece in pieces]

    def read(self, size: int = -1) -> bytes:
        assert self.pieces, "it waits for what may not come for a long time"
        return self.pieces.pop(0)


@pytest.mark.parametrize(
    ("pieces", "format", "left"),
    [
        (['{"type": "task", "id": "1", "argv": ["x"]}\n', "never"], "", 1),
        (["1 -b ec", "ho\n", "never"], "", 1),
        (["# tasks\n", "\n", "echo a\n", "never"], "", 1),
        (["'a b' -b x\n", "never"], "", 1),
        (["X=1 cmd\n", "never"], "", 1),
        (["<", "adag>", "never"], "dax", 1),
        (["# made\n", "name: x\n", "jobs:\n", "never"], "pegasus", 1),
        (["out: in\n", "\tcp in out\n", "never"], "makeflow", 1),
        (["{\n", ' "name": "x",\n', ' "workflow": {\n', "never"], "wfformat", 1),
        (["a: b\n", "c\n", ""], "", 0),
    ],
)
def test_a_pipe_is_read_no_further_than_needed(pieces: list[str], format: str, left: int) -> None:
    slow = Slow(*pieces)
    assert peek(slow)[0] == format  # type: ignore[arg-type]
    assert len(slow.pieces) == left


def test_remarks_are_told_once_a_kind() -> None:
    reader = DocumentReader("x")
    for line in range(3):
        reader.remark("a", line + 1, f"message {line}")
    reader.remark("b", 9, "other\nline")
    assert [str(remark) for remark in reader.remarks] == ["x:1: message 0 (2 more like this)", "x:9: other\\nline"]


def test_faults_are_bounded() -> None:
    reader = DocumentReader("x")
    for line in range(10 * FAULTS_MAX):
        reader.fault(line, "bad")
    faults = reader.all_faults()
    assert len(faults) == FAULTS_MAX + 1
    assert faults[-1].message == f"{9 * FAULTS_MAX} more faults are not shown"


def test_of_several_sizes_the_largest_is_believed() -> None:
    reader = DocumentReader("x")
    for size in (5, 7, -3, 6):
        reader.set_size("f", size, 1)
    assert reader.sizes == {"f": 7}
    assert len(reader.remarks) == 2


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b", "a/b"), ("/x", "/x"), ("file:///x%20y", "/x y"), ("file://localhost/x", "/x"), ("file://other/x", ""), ("file:/x", "/x"),
        ("http://h/x", ""), ("gsiftp://h/x", ""), ("file://[/x", ""),
    ],
)  # fmt: skip
def test_physical_names(name: str, path: str) -> None:
    assert local_path(name) == path


def test_only_order_that_files_do_not_imply_is_kept() -> None:
    tasks = [Task("a", ("x",), outputs=("f",)), Task("b", ("x",), outputs=("f",)), Task("c", ("x",), inputs=("f",))]
    assert [task.after for task in with_after(tasks, {"c": ["a", "b", "a"], "b": ["a"]})] == [(), ("a",), ("a",)]
