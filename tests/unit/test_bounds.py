"""Bounds of one element, and of text that is no workflow: every reader refuses or forgets it."""

from __future__ import annotations

import contextlib
import io
import tracemalloc

import pytest

from amfs.errors import WorkflowError
from amfs.translate.detect import Parser, load
from amfs.translate.reader import FAULTS_MAX
from amfs.translate.shape import shape_of

SMALL = 1 << 16

_YAML = b'pegasus: "5.0"\nname: x\njobs:\n- {id: a, type: job, name: p}\n'
_WF = b'{"name":"x","schemaVersion":"1.5","workflow":{"specification":{"tasks":[{"id":"a"%s}]}}}'
_DAX = b'<adag name="x"><job id="a" name="p">%s</job></adag>'

#: (format, document, the message about it), with one element that is larger than SMALL.
LARGE: list[tuple[str, bytes, str]] = [
    ("tasklist", b"1 -b p\n2 -b p -a " + b"a" * 4 * SMALL + b"\n", "line"),
    ("commands", b"a " * 4 * SMALL, "line"),
    ("jsonl", b'{"type":"task","id":"1","argv":["' + b"a" * 4 * SMALL + b'"]}', "line"),
    ("filelist", b"0 " + b"a" * 4 * SMALL + b" Shared\n", "line"),
    ("makeflow", b"a: b\n\tc " + b"x \\\n" * SMALL + b"\n", "line"),
    ("pegasus", _YAML + b"x-a: " + b"a" * 4 * SMALL + b"\n", "text"),
    ("pegasus", _YAML + b'x-a: "' + b"a " * 4 * SMALL + b'"\n', "text"),
    ("pegasus", _YAML + b"- {id: b, type: job, name: p, arguments: [" + b"a," * 4 * SMALL + b"]}\n", "element"),
    ("wfformat", _WF % (b',"inputFiles":["a"' + b',"a"' * SMALL + b"]"), "element"),
    ("dax", _DAX % (b"<argument>" + b"a " * SMALL + b"</argument>"), "element"),
    ("dax", _DAX % (b'<uses name="a"/>' * SMALL), "element"),
]


@pytest.mark.parametrize(("format", "document", "words"), LARGE, ids=range(len(LARGE)))
def test_one_element_is_bounded(format: str, document: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("detect", "yaml_stream", "wfformat", "dax", "makeflow"):
        __import__(f"amfs.translate.{module}")
        monkeypatch.setattr(f"amfs.translate.{module}.ELEMENT_BYTES_MAX", SMALL)
    monkeypatch.setattr("amfs.translate.detect._CHUNK", SMALL // 4)
    with pytest.raises(WorkflowError) as caught:
        load(io.BytesIO(document), format=format)
    found = str(caught.value)
    assert words in found
    assert "than 0 MiB" in found
    assert len(found) < 300


def test_many_lines_in_one_piece_are_no_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.detect.ELEMENT_BYTES_MAX", SMALL)
    parser = Parser("x", "tasklist")
    parser.feed(b"1 -b p\n" * SMALL)  # seven times as much
    parser.finish()
    assert parser.faults == []


#: Text that is no workflow, many times: comments, blank lines, keys and elements that nobody knows.
NOTHING: list[tuple[str, bytes]] = [
    ("tasklist", b"1 -b p\n" + b"# a comment\n" * SMALL),
    ("commands", b"true\n" + b"\n" * 4 * SMALL),
    ("jsonl", b'{"type":"task","id":"1","argv":["p"]}\n' + b" \n" * 4 * SMALL),
    ("makeflow", b"a: b\n\tc\n" + b"# a comment\n" * SMALL),
    ("pegasus", _YAML + b"x-a:\n" + b"- {a: [b, c], d: e}\n" * (SMALL // 8)),
    ("pegasus", _YAML + b"metadata:\n" + b"".join(b"  k%d: v\n" % n for n in range(SMALL // 8))),
    ("pegasus", _YAML + b"unknown:\n" + b"- [[[]]]\n" * (SMALL // 8)),
    ("wfformat", _WF % (b',"machines":[[]' + b",[]" * SMALL + b"]")),
    ("wfformat", (_WF % b"")[:-1] + b',"unknown":[{}' + b",{}" * SMALL + b"]}"),
    ("dax", _DAX % b"" + b"<!-- a comment -->" * SMALL),
    ("dax", b'<adag name="x">' + b"<unknown/>" * SMALL + b'<job id="a" name="p"/></adag>'),
    ("dax", b'<adag name="x"><job id="a" name="p"/>' + b"text " * SMALL + b"</adag>"),
]


@pytest.mark.parametrize(("format", "document"), NOTHING, ids=range(len(NOTHING)))
def test_what_is_no_workflow_takes_four_times_its_bytes_at_most(format: str, document: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.detect._CHUNK", SMALL // 4)
    file = io.BytesIO(document)
    load(io.BytesIO(document), format=format)  # imported modules do not count
    tracemalloc.start()
    try:
        workflow = load(file, format=format)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(workflow.tasks) == 1
    assert peak < 4 * len(document) + SMALL * 4


@pytest.mark.parametrize(
    ("format", "document"),
    [
        ("tasklist", b"1 -b p\n" + b"a\n" * 30_000),
        ("commands", b"true\n" + b"'\n" * 30_000),
        ("jsonl", b"{}\n" * 30_000),
        ("tasklist", b"1 -b p\n" + b"a\0\n" * 30_000),
        ("filelist", b"a\n" * 30_000),
        ("tasklist", b"1 -b p -o ''\n" * 30_000),
    ],
)
def test_faults_are_counted_when_they_are_many(format: str, document: bytes) -> None:
    with pytest.raises(WorkflowError) as caught:
        load(io.BytesIO(document), format=format)
    assert len(caught.value.faults) < 100 * FAULTS_MAX


def test_equal_words_of_a_line_are_kept_once() -> None:
    [task] = load(io.BytesIO(b"1 -b p -a " + b"'' 'a b' " * 1000), format="tasklist").tasks
    assert len(set(map(id, task.argv))) == 3


#: (format, text before the tasks, one task of about 200 bytes, text between two, text after them)
TASKS: list[tuple[str, str, str, str, str]] = [
    (
        "tasklist", "", "ID{0} -b mProject -i region.hdr raw/image-{0}.fits -o projected/tile-{0}.fits -cores 1 -label project "
        "-a -X raw/image-{0}.fits projected/tile-{0}.fits region.hdr -x 0.95", "\n", "",
    ),
    (
        "commands", "", "mProject -X raw/image-{0}.fits projected/tile-{0}.fits region.hdr -x 0.95 -y 0.95 --verbose --log none "
        "-if region.hdr raw/image-{0}.fits -of projected/tile-{0}.fits", "\n", "",
    ),
    (
        "jsonl", "", '{{"type":"task","id":"ID{0}","argv":["mProject","-X","raw/image-{0}.fits","projected/tile-{0}.fits","region.hdr"],'
        '"inputs":["region.hdr","raw/image-{0}.fits"],"outputs":["projected/tile-{0}.fits"]}}', "\n", "",
    ),
    (
        "dax", '<adag name="x">', '<job id="ID{0}" name="mProject"><argument>-X <file name="raw/image-{0}.fits"/></argument>'
        '<uses name="region.hdr" link="input"/><uses name="raw/image-{0}.fits" link="input"/>'
        '<uses name="projected/tile-{0}.fits" link="output"/></job>', "\n", "</adag>",
    ),
    (
        "pegasus", 'pegasus: "5.0"\nname: x\njobs:\n', "- type: job\n  name: mProject\n  id: ID{0}\n  arguments: [-X, raw/image-{0}.fits]\n"
        "  uses:\n  - lfn: region.hdr\n    type: input\n  - lfn: raw/image-{0}.fits\n    type: input\n"
        "  - lfn: projected/tile-{0}.fits\n    type: output\n", "", "",
    ),
    (
        "wfformat", '{"name":"x","schemaVersion":"1.4","workflow":{"tasks":[',
        '{{"id":"ID{0}","name":"mProject","command":{{"program":"mProject","arguments":["-X raw/image-{0}.fits"]}},"files":['
        '{{"name":"raw/image-{0}.fits","link":"input"}},{{"name":"projected/tile-{0}.fits","link":"output"}}]}}', ",", "]}}",
    ),
    (
        "makeflow", "", "projected/tile-{0}.fits: mProject region.hdr raw/image-{0}.fits\n"
        "\tmProject -X raw/image-{0}.fits projected/tile-{0}.fits region.hdr -x 0.95 -y 0.95 --verbose --log none\n", "\n", "",
    ),
    (
        "makeflow", '{"rules":[', '{{"command":"mProject -X raw/image-{0}.fits projected/tile-{0}.fits region.hdr -x 0.95",'
        '"inputs":["mProject","region.hdr","raw/image-{0}.fits"],"outputs":["projected/tile-{0}.fits"]}}', ",\n", "]}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format", "head", "task", "between", "tail"), TASKS, ids=[f"{kind[0]}{at}" for at, kind in enumerate(TASKS)])
def test_tasks_as_people_have_them_take_few_times_their_bytes(
    format: str, head: str, task: str, between: str, tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(count: int) -> bytes:
        return (head + between.join(task.format(f"{number:06}") for number in range(count)) + tail).encode()

    count = 2000
    document = text(count)
    monkeypatch.setattr("amfs.translate.detect._CHUNK", SMALL // 4)  # the part looked at together is small beside a large document
    monkeypatch.setattr("amfs.translate.makeflow._PIECE", SMALL // 4)
    monkeypatch.setattr("amfs.workflow.check_texts._PART", 64)
    shape_of(load(io.BytesIO(text(10)), format=format))  # imported modules do not count
    tracemalloc.start()
    try:
        workflow = load(io.BytesIO(document), format=format)
        read = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        shape_of(workflow)
        counted = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(workflow.tasks) == count
    print(f"{format} {len(document) / count:.0f} B/task: read {read / len(document):.2f}, counted {counted / len(document):.2f}")
    assert read < 5 * len(document)
    assert counted < 5 * len(document)


def test_a_name_in_a_json_makeflow_is_kept_once() -> None:
    rule = b'{"command":"cat a > b%d","inputs":["a"],"outputs":["b%d"]}'
    workflow = load(io.BytesIO(b'{"rules":[%s,%s]}' % (rule % (1, 1), rule % (2, 2))), format="makeflow")
    assert len({id(name) for task in workflow.tasks for name in task.inputs}) == 1


#: Texts in which there is no task, in no format that is named: the reader looks for a task to the end.
NO_TASK: list[tuple[bytes, bytes]] = [
    (b"", b"# c\n"),
    (b"<html>", b"<p>a</p>\n"),
    (b"", b"# c\n" * 40_000 + b"1 -b p\n"),
]


@pytest.mark.parametrize(("head", "piece"), NO_TASK, ids=range(len(NO_TASK)))
def test_a_text_without_tasks_takes_four_times_its_bytes_at_most(head: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.detect._CHUNK", SMALL // 4)
    document = head + piece * max(1, 3 * SMALL // len(piece))
    tracemalloc.start()
    try:
        with contextlib.suppress(WorkflowError):
            load(io.BytesIO(document))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(document) + SMALL * 8
