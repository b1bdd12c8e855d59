"""Whatever ``amfs translate`` writes, amfs knows for what it is, reads, and understands as the same; it refuses what it cannot write."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from workflow_strategies import OPTION_WORDS, tasks, without_lines, words

from amfs.errors import WorkflowError
from amfs.translate import filelist, jsonl, tasklist, wfformat_out
from amfs.translate.detect import load
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.check_texts import ID_BYTES_MAX, LIST_MAX, whole_faults
from amfs.workflow.checks import StreamChecker, check
from amfs.workflow.versions import versioned
from amfs.workflow.workflow import Task, Workflow, complete

Amfs = Callable[..., CompletedProcess[str]]


def written(workflow: Workflow, to: str) -> bytes:
    """As ``amfs translate`` writes it."""
    if to == "wfformat":
        return wfformat_out.write(workflow).encode()
    lines = {"tasklist": tasklist.write, "jsonl": jsonl.write}[to](workflow)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def same(workflow: Workflow, to: str) -> None:
    try:
        data = written(workflow, to)
    except ValueError as error:
        assert to == "wfformat"
        assert any(words in str(error) for words in ("does not allow", "not UTF-8", "without tasks"))
        return
    back = load(io.BytesIO(data))
    if to == "wfformat":  # says what a task reads and writes in one place
        workflow = msgspec.structs.replace(workflow, tasks=[complete(task) for task in workflow.tasks])
    assert without_lines(back) == without_lines(workflow)
    if to != "wfformat":
        states = filelist.states(workflow)
        listing = "".join(f"{line}\n" for line in filelist.write(states)).encode("utf-8", "surrogateescape")
        assert load(io.BytesIO(data), files=io.BytesIO(listing)).files == states


#: Ids that begin a line, and look like something else there.
_LIKE_OTHERS = ["a b", "{", '{"a": "b"}', "[", "<adag", "jobs:", "pegasus:", "a: b", "#!", "---", "\ufeffa"]
_IDS = st.one_of(words, st.sampled_from([*OPTION_WORDS, *_LIKE_OTHERS]))


@given(st.lists(st.tuples(tasks(), _IDS), max_size=3, unique_by=lambda pair: pair[1]), st.sampled_from(["tasklist", "jsonl", "wfformat"]))
def test_any_workflow_is_known_again(some: list[tuple[Task, str]], to: str) -> None:
    """Also without a name and without anything known of its files."""
    plain = [msgspec.structs.replace(task, id=id, after=()) for task, id in some]
    workflow = versioned(Workflow(plain))
    workflow.remarks = []
    if not whole_faults(workflow):
        try:
            same(workflow, to)
        except WorkflowError as error:
            assert "cycle" in str(error)


_ODD = st.text(st.sampled_from("ab\u00e9\u00a0\u2028\U0001f600'\"\\$#{}[]:,->!&* \t"), min_size=1, max_size=6).filter(str.strip)


@given(st.lists(st.tuples(_ODD, _ODD), min_size=1, max_size=3, unique=True), _ODD)
def test_documents_with_odd_names(files: list[tuple[str, str]], word: str) -> None:
    """Pegasus in YAML and WfFormat to the two formats that hold everything."""
    yml = {
        "pegasus": "5.0", "name": "w",
        "jobs": [{"type": "job", "id": f"j{n}", "name": "p", "arguments": [word], "uses": [
            {"lfn": f"in/{a}", "type": "input"}, {"lfn": f"out{n}/{b}", "type": "output"}]} for n, (a, b) in enumerate(files)],
    }  # fmt: skip
    wf_tasks = [{"id": f"j{n}", "name": "p", "inputFiles": [f"in/{a}"], "outputFiles": [f"out{n}/{b}"]} for n, (a, b) in enumerate(files)]
    wf = {"name": "w", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": wf_tasks}}}
    for data in (yaml.safe_dump(yml), json.dumps(wf)):
        workflow = versioned(load(io.BytesIO(data.encode())))
        for to in ("tasklist", "jsonl"):
            same(workflow, to)


LATIN1 = b"A=\xc3\nB=\xa9\nexport A\n# caf\xe9\nout\xe9 x$A$B: in\xe9\n\tcat \"in\xe9\" > out\xe9; echo \xe9 > x$A$B\n"


def test_latin_1_in_a_makeflow() -> None:
    workflow = load(io.BytesIO(LATIN1))
    [task] = workflow.tasks
    assert task.outputs == ("out\udce9", "x\u00e9")  # two bytes of one character, from two variables
    for to in ("tasklist", "jsonl"):
        same(workflow, to)
    with pytest.raises(ValueError, match="task 0: file name"):
        wfformat_out.write(workflow)
    plain = Workflow([Task("a", ("cat", "caf\udce9"))])
    with pytest.raises(ValueError, match="task a: it has bytes that are not UTF-8"):
        wfformat_out.write(plain)


def test_bytes_of_one_character_in_two_pieces() -> None:
    one, two = load(io.BytesIO(b"a -b p -o $'\\xc3'$'\\xa9'\nb -b p -i \xc3\xa9\n")).tasks
    assert one.outputs == two.inputs == ("\u00e9",)
    [three] = load(io.BytesIO(b'{"type":"task","id":"a","argv":["p","\\udcc3\\udca9"]}\n')).tasks
    assert three.argv == ("p", "\u00e9")


def _yaml(word: str) -> str:
    return f'pegasus: "5.0"\nname: x\njobs:\n- {{id: a, type: job, name: p, arguments: ["{word}"]}}\n'


def _wf(word: str, field: str = "id") -> str:
    return f'{{"name":"x","schemaVersion":"1.5","workflow":{{"specification":{{"tasks":[{{"id":"a","{field}":{word}}}]}}}}}}'


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (_yaml("x\\0y"), "4: a text contains a NUL character"),
        (_yaml("x") + '"a\\0": 1\n', "5: a text contains a NUL character"),
        (_wf('"x\\u0000"', "name"), "task a: its label contains a NUL character"),
        (_wf('["x\\u0000"]', "inputFiles"), "contains a NUL character"),
        ('{"type":"task","id":"a","argv":["\\ud800"]}\n', "a text contains half a character"),
        ('{"type":"task","id":"\\udbff","argv":["x"]}\n', "a text contains half a character"),
        ('{"type":"file","name":"\\ud800"}\n', "a text contains half a character"),
        (_wf('[""]', "inputFiles"), "task a: a file name is empty"),
        ("a -b p -o ''\n", "task a: a file name is empty"),
    ],
)
def test_what_cannot_be_written_down_is_refused_when_read(document: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        load(io.BytesIO(document.encode()))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"a -b p\nb -b p\na -b p\n",
        b'{"type":"task","id":"a","argv":["p"]}\n{"type":"task","id":"a","argv":["p"]}\n',
        b'<adag name="x"><job id="a" name="p"/><job id="a" name="p"/></adag>',
        b'pegasus: "5.0"\nname: x\njobs:\n- {id: a, type: job, name: p}\n- {id: a, type: job, name: q}\n',
        b'{"name":"x","schemaVersion":"1.5","workflow":{"specification":{"tasks":[{"id":"a"},{"id":"a"}]}}}',
        b'{"name":"x","schemaVersion":"1.3","workflow":{"tasks":[{"name":"a","files":[]},{"name":"a","files":[]}]}}',
        b"0 f Shared\n1 f Shared\n",
    ],
)
def test_no_reader_takes_an_id_twice(data: bytes) -> None:
    with pytest.raises(WorkflowError, match=r"id 'a' is already taken|'f' is already listed") as caught:
        load(io.BytesIO(data))
    assert sum("already" in fault.message for fault in caught.value.faults) == 1


def test_ids_of_a_sub_workflow_that_are_taken(tmp_path: Path) -> None:
    inner = 'pegasus: "5.0"\nname: i\njobs:\n- {id: b, type: job, name: p}\n'
    (tmp_path / "inner.yml").write_text(inner)
    outer = inner.replace("id: b", "id: a.b") + "- {id: a, type: pegasusWorkflow, file: inner.yml}\n"
    (tmp_path / "outer.yml").write_text(outer)
    with pytest.raises(WorkflowError, match=r"id 'a\.b' is already taken"):
        load(tmp_path / "outer.yml")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Task("a", ("p",), ("x" * 256,)), "task a: file name '" + "x" * 59 + "…' has 256 bytes between two slashes"),
        (Task("a", ("p",), (), ("d/" + "é" * 128,)), "has 256 bytes between two slashes"),
        (Task("a", ("p",), (), ("d/" * 2100 + "x",)), "has 4,201 bytes; no file system takes more than 4,095"),
        (Task("a", ("p",), stdout="x" * 300), "has 300 bytes"),
        (Task("i" * 5000, ("p",)), f"its id has 5,000 characters; {ID_BYTES_MAX:,} bytes are enough"),
        (Task("a", ("p", "w" * (17 << 20))), "a word of its command has 17 MiB; 16 MiB are enough"),
        (Task("a", ("p",) * (LIST_MAX + 1)), "1,048,577 entries in its command are more than 1,048,576"),
        (Task("a", ("p",), env=("X=\0",)), "an environment entry contains a NUL character"),
        (Task("a", ("p",), label="\ud800"), "its label contains half a character"),
    ],
)
def test_texts_that_cannot_be(task: Task, words: str) -> None:
    for found in (whole_faults(Workflow([task])), StreamChecker(AnyPlace()).add(task)):
        assert len(found) == 1
        assert words in found[0].message
        assert len(found[0].message) < 200
    with pytest.raises(WorkflowError):
        check(Workflow([task]), AnyPlace())


def test_the_longest_names_are_taken() -> None:
    tasks = [Task("a", ("p",), ("x" * 255, "é" * 127), ("/".join(["d" * 255] * 15) + "/" + "y" * 255,))]
    assert whole_faults(Workflow(tasks)) == []
    assert whole_faults(Workflow([Task("i" * 4096, ("p", "w" * 200_000))])) == []


@pytest.mark.parametrize("name", ["", ".", "/", "d/", "x" * 300, "..", "amfs:/x"])
@pytest.mark.parametrize("field", ["inputs", "outputs", "stdin", "stdout"])
def test_no_name_ends_a_replay_in_a_crash(name: str, field: str, amfs: Amfs) -> None:
    task = {"type": "task", "id": "a", "argv": ["p"], field: [name] if field.endswith("puts") else name}
    done = amfs("run", "--local", "-q", "--synthetic", "-", input=json.dumps(task) + "\n")
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 400
