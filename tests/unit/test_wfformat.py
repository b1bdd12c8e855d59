"""WfFormat in and out: both layouts, the corpus against counts of its own JSON, the schema, and no loss on the way out and back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_strategies import damaged, tasks, words

from amfs.errors import WorkflowError
from amfs.translate.detect import load, load_checked
from amfs.translate.document import FAULTS_MAX, with_after
from amfs.translate.shape import shape_of
from amfs.translate.synthetic import replay
from amfs.translate.wfformat import WfFormatReader, kind_of
from amfs.translate.wfformat_out import write
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import check
from amfs.workflow.workflow import DeclaredState, Task, Workflow, complete

CORPUS = Path(__file__).parent.parent / "data" / "corpus" / "wfformat"
SCHEMA = jsonschema.Draft7Validator(json.loads((CORPUS.parent.parent / "schemas" / "wfcommons-schema-1.5.json").read_text()))
INSTANCES = sorted(path.name for path in CORPUS.glob("*.json"))


def read(document: str | bytes | dict[str, Any]) -> WfFormatReader:
    reader = WfFormatReader("instance.json")
    data = json.dumps(document) if isinstance(document, dict) else document
    reader.feed(data.encode() if isinstance(data, str) else data)
    reader.finish()
    return reader


def as_workflow(reader: WfFormatReader) -> Workflow:
    assert reader.faults == []
    return Workflow(reader.tasks, name=reader.name, files=reader.files, sizes=reader.sizes, paths=reader.paths)


def remarks(reader: WfFormatReader) -> str:
    return "\n".join(str(remark) for remark in reader.remarks)


def new(*tasks: dict[str, Any], runs: list[dict[str, Any]] | None = None, files: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    specification: dict[str, Any] = {"tasks": [{"name": task["id"], "parents": [], "children": [], **task} for task in tasks]}
    if files is not None:
        specification["files"] = files
    body: dict[str, Any] = {"specification": specification}
    if runs is not None:
        body["execution"] = {"makespanInSeconds": 1, "executedAt": "now", "tasks": runs}
    return {"name": "w", "schemaVersion": "1.5", "workflow": body}


# ── the corpus ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", INSTANCES)
def test_counts_of_the_corpus(name: str) -> None:
    document = json.loads((CORPUS / name).read_text())
    specification = document["workflow"]["specification"]
    listed = specification["tasks"]
    edges = {(task["id"], child) for task in listed for child in task["children"]}
    edges |= {(parent, task["id"]) for task in listed for parent in task["parents"]}
    reader = read((CORPUS / name).read_bytes())
    shape = shape_of(as_workflow(reader))
    assert shape.tasks == len(listed)
    assert shape.edges == len(edges)
    assert shape.files == len({file for task in listed for file in (*task.get("inputFiles", ()), *task.get("outputFiles", ()))})
    assert reader.sizes == {file["id"]: file["sizeInBytes"] for file in specification["files"]}
    assert shape.runtime == pytest.approx(sum(run["runtimeInSeconds"] for run in document["workflow"]["execution"]["tasks"]))
    for task in reader.tasks:
        line = (CORPUS / name).read_text().split("\n")[task.line - 1 : task.line + 3]
        assert any(f'"id": "{task.id}"' in each for each in line)


def test_there_is_a_corpus() -> None:
    assert len(INSTANCES) == 4


def test_generated_benchmarks_have_commands_that_run() -> None:
    first = read((CORPUS / "wfbench-blast-43-v1.6.json").read_bytes()).tasks[0]
    assert first.argv[0] == "wfbench"
    assert first.label == "split_fasta"
    values = dict(zip(first.argv[1::2], first.argv[2::2], strict=True))
    assert json.loads(values["--output-files"]) == {"split_fasta_00000001_outfile_0001": 45455}
    assert json.loads(values["--input-files"]) == ["workflow_infile_0001"]
    assert values["--percent-cpu"] == "0.6"


def test_a_recorded_execution() -> None:
    tasks = {task.id: task for task in read((CORPUS / "helloworld-forkjoin-10.json").read_bytes()).tasks}
    first = tasks["cpuhog_forkjoin_00000001"]
    assert (first.runtime, first.memory, first.priority, first.label) == (100.187, 74628, 20, "cpuhog_forkjoin")
    assert '{"forkjoin_00000001_output.txt":9090910}' in first.argv


# ── constructs ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "b c"], ["a", "b", "c"]),
        (["'a b' \"c d\""], ["a b", "c d"]),
        (["--x {'a': 1, 'b': [2]}"], ["--x", '{"a": 1, "b": [2]}']),
        (["--x ['a']"], ["--x", '["a"]']),
        (["don't do"], ["don't do"]),
        (["''"], [""]),
        (None, []),
    ],
)
def test_arguments(arguments: list[str] | None, expected: list[str]) -> None:
    command = {"program": "p", "arguments": arguments}
    reader = read(new({"id": "a"}, runs=[{"id": "a", "runtimeInSeconds": 1, "command": command}]))
    assert list(as_workflow(reader).tasks[0].argv) == ["p", *expected]


def test_without_a_command_the_kind_is_the_program() -> None:
    reader = read(new({"id": "blast_00000001"}))
    assert as_workflow(reader).tasks[0].argv == ("blast",)
    assert "has no command" in remarks(reader)


@pytest.mark.parametrize(
    ("name", "kind"), [("a_00001", "a"), ("a_ID0000001", "a"), ("a_b", "a_b"), ("_1", "_1"), ("a1", "a1"), ("m_2_3", "m_2")]
)
def test_kinds_from_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind


OLD = {
    "name": "old",
    "schemaVersion": "1.3",
    "workflow": {
        "makespan": 3,
        "tasks": [
            {
                "name": "one_ID1",
                "id": "ID1",
                "category": "one",
                "type": "compute",
                "command": {"program": "p", "arguments": ["-x 1"]},
                "parents": [],
                "children": ["two_ID2"],
                "files": [{"link": "input", "name": "in", "size": 10}, {"link": "output", "name": "mid", "size": 20}],
                "runtime": 1.5,
                "cores": 2,
                "memory": 3,
                "machine": "m",
                "avgCPU": 4.5,
            },
            {"name": "two_ID2", "parents": ["one_ID1"], "children": [], "files": [{"link": "output", "name": "out", "sizeInBytes": 30}]},
        ],
        "machines": [{"nodeName": "m"}],
    },
}


@pytest.mark.parametrize("key", ["tasks", "jobs"])
def test_the_old_layout(key: str) -> None:
    document = copy.deepcopy(OLD)
    document["workflow"][key] = document["workflow"].pop("tasks")  # type: ignore[index, attr-defined]
    reader = read(document)
    one, two = as_workflow(reader).tasks
    assert (one.id, one.label, one.argv, one.runtime, one.cores, one.memory) == ("ID1", "one", ("p", "-x", "1"), 1.5, 2, 3072)
    assert (one.inputs, one.outputs) == (("in",), ("mid",))
    assert (two.id, two.after) == ("two_ID2", ("ID1",))
    assert reader.sizes == {"in": 10, "mid": 20, "out": 30}
    assert "machines" in remarks(reader)
    assert "what a run measured" in remarks(reader)


def test_a_file_read_and_written_by_one_task_is_told() -> None:
    reader = read(new({"id": "a", "inputFiles": ["f", "g"], "outputFiles": ["f"]}))
    task = as_workflow(reader).tasks[0]
    assert (task.inputs, task.outputs) == (("g",), ("f",))
    assert "here it only writes it" in remarks(reader)


def test_the_execution_may_stand_before_the_specification() -> None:
    document = new({"id": "a"}, runs=[{"id": "a", "runtimeInSeconds": 2, "command": {"program": "p"}}])
    body = document["workflow"]
    document["workflow"] = {"execution": body["execution"], "specification": body["specification"]}
    reader = read(json.dumps(document, indent=1))
    assert as_workflow(reader).tasks[0].runtime == 2
    assert reader.tasks[0].line > 10


def test_values_out_of_range_are_told() -> None:
    run = {"id": "a", "runtimeInSeconds": -5, "coreCount": 0, "memoryInBytes": -1, "priority": 1e30}
    reader = read(new({"id": "a"}, runs=[run], files=[{"id": "f", "sizeInBytes": -7}]))
    task = as_workflow(reader).tasks[0]
    assert (task.runtime, task.cores, task.memory, task.priority) == (0, 1, 0, 0)
    assert reader.sizes == {"f": 0}
    for told in ("run time of -5", "cores cannot be 0", "memory cannot be -1", "priority cannot be 1e+30", "the size -7"):
        assert told in remarks(reader)


def test_another_version_is_told() -> None:
    assert "WfFormat 2.0" in remarks(read({**new({"id": "a"}), "schemaVersion": "2.0"}))


@pytest.mark.parametrize(
    ("document", "line", "words"),
    [
        ("", 0, "not valid JSON"),
        ('{"workflow": {"tasks": [\n{"id": "a",}]}}', 2, "not valid JSON"),
        ("[]", 0, "expected 'object', got 'array'"),
        ('{"name": "x"}', 0, "missing required field 'workflow'"),
        ('{"workflow": []}', 0, "workflow: expected 'object', got 'array'"),
        ('{"workflow": {}}', 0, "neither a specification nor a list of tasks"),
        ('{"workflow": {"tasks": [\n{"id": 5}]}}', 2, "id: expected 'str | null', got 'int'"),
        ('{"workflow": {"tasks": [\n{"id": "a"},\n{"id": "b", "files": [{"name": "f",\n"size": "big"}]}]}}', 3, "files[0].size: expected"),
        ('{"workflow": {"tasks": [\n{}]}}', 2, "a task without an id"),
        ('{"workflow": {"tasks": [\n{"id": "a", "parents": ["z"]}]}}', 2, "task a names a task 'z', which there is not"),
        ('{"workflow": {"tasks": [\n{"id": "a", "files": [{"name": "f", "link": "both"}]}]}}', 2, "must be input or output, not 'both'"),
        ('{"workflow": {"tasks": [\n{"id": "a", "amfs": {"stdinn": "x"}}]}}', 2, "unknown field 'stdinn'"),
        ('{"workflow": {"specification": {"tasks": [], "files": [\n{}]}}}', 2, "a file without an id"),
        ('{"workflow": {"specification": {"tasks": []}, "execution": {"tasks": [{"id": "q"}]}}}', 0, "names a task 'q'"),
        ('{"workflow": {"tasks": [' + "[" * 100_000 + "]}}", 0, "not valid JSON"),
        ('{"workflow": {"tasks": [{"id": "a", "machines": ' + "[" * 5000 + "]" * 5000 + "}]}}", 0, "nested too deeply"),
    ],
)
def test_faults_have_words_and_lines(document: str, line: int, words: str) -> None:
    reader = read(document)
    assert words in reader.faults[0].message
    assert "\n" not in reader.faults[0].message
    if line:
        assert reader.faults[0].line == line


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.wfformat.VALUES_MAX", 100)
    assert "more than 100 values" in read('{"workflow": {"tasks": [' + "0," * 101 + "0]}}").faults[0].message


def test_bytes_that_are_no_text_are_refused() -> None:
    assert "not valid JSON" in read(b'{"workflow": \xff}').faults[0].message


# ── out and back ───────────────────────────────────────────────────────────────────────────────────

names = st.from_regex(r"[0-9a-zA-Z\-_./:#]{1,8}", fullmatch=True)
ids = st.from_regex(r"[0-9a-zA-Z\-_.#]{1,6}", fullmatch=True)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """What WfFormat can hold: names of its characters, every file written once, tasks that wait for earlier ones only."""
    found: list[Task] = []
    made: list[str] = []
    after: dict[str, list[str]] = {}
    for number, task_id in enumerate(draw(st.lists(ids, min_size=1, max_size=5, unique=True))):
        task = draw(tasks(names))
        fresh = {name: f"{number}/{name}" for name in (*task.outputs, task.stdout, task.stderr) if name}
        earlier = draw(st.lists(st.sampled_from(made), max_size=2, unique=True)) if made and not task.blind else []
        inputs = tuple(dict.fromkeys([*earlier, *(f"in/{name}" for name in task.inputs)]))
        outputs = tuple(fresh[name] for name in task.outputs)
        changes: dict[str, Any] = {"id": task_id, "inputs": inputs, "outputs": outputs, "runtime": draw(st.none() | st.floats(0, 1e6))}
        changes |= {"stdin": task.stdin and f"in/{task.stdin}", "stdout": fresh.get(task.stdout, ""), "stderr": fresh.get(task.stderr, "")}
        changes["keep"] = tuple(fresh[name] for name in task.keep)
        changes["scratch"] = tuple(name for name in outputs if name not in changes["keep"]) if draw(st.booleans()) else ()
        if found:
            after[task_id] = draw(st.lists(st.sampled_from([other.id for other in found]), max_size=3, unique=True))
        found.append(complete(msgspec.structs.replace(task, after=(), **changes)))
        made += found[-1].outputs
    return Workflow(
        with_after(found, after),
        name=draw(words),
        files=draw(st.dictionaries(names, st.sampled_from(DeclaredState), max_size=3)),
        sizes=draw(st.dictionaries(names, st.integers(0, 1 << 60), max_size=3)),
        paths=draw(st.dictionaries(names, st.just("/data/x") | words, max_size=2)),
    )


def _is_unicode(workflow: Workflow) -> bool:
    try:
        msgspec.json.encode(workflow)
    except UnicodeEncodeError:
        return False
    return True


@given(workflows())
def test_nothing_is_lost_out_and_back(workflow: Workflow) -> None:
    if not _is_unicode(workflow):
        with pytest.raises(ValueError, match="bytes that are not UTF-8"):
            write(workflow)
        return
    text = write(workflow)
    back = as_workflow(read(text))
    assert [msgspec.structs.replace(task, line=0) for task in back.tasks] == workflow.tasks
    assert (back.name, back.files, back.sizes, back.paths) == (workflow.name, workflow.files, workflow.sizes, workflow.paths)
    SCHEMA.validate(json.loads(text))


@pytest.mark.parametrize("name", INSTANCES)
def test_the_corpus_survives_out_and_back(name: str) -> None:
    workflow = as_workflow(read((CORPUS / name).read_bytes()))
    text = write(workflow)
    back = as_workflow(read(text))
    for before, after in zip(workflow.tasks, back.tasks, strict=True):
        assert msgspec.structs.replace(after, line=before.line) == before
    assert back.sizes == workflow.sizes
    SCHEMA.validate(json.loads(text))


@pytest.mark.parametrize(
    ("workflow", "words"),
    [
        (Workflow([]), "no workflow without tasks"),
        (Workflow([Task("a", ("p",))], name=""), "without a name"),
        (Workflow([Task("a", ("p",), ("in put",))]), "task a: file name 'in put' has characters"),
        (Workflow([Task("ä", ("p",), (), ("x",)), Task("b", ("p",), ("x",))]), "task id 'ä' has characters"),
        (Workflow([Task("a", ("p", "\0"))]), "task a: "),
        (Workflow([Task("a", ())]), "task a: no program to run"),
        (Workflow([Task("a", ("p",))], sizes={"in put": 1}), "the sizes: file name"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(workflow: Workflow, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write(workflow)


def test_cycles_are_refused() -> None:
    with pytest.raises(WorkflowError, match="each waiting for the one before it: a -> b -> a"):
        write(Workflow([Task("a", ("p",), ("y",), ("x",)), Task("b", ("p",), ("x",), ("y",))]))


def test_an_id_with_other_letters_is_allowed_where_nothing_refers_to_it() -> None:
    SCHEMA.validate(json.loads(write(Workflow([Task("ä ö", ("p",))]))))


@given(st.data())
def test_documents_of_any_form_end_in_tasks_or_faults(data: st.DataObject) -> None:
    run = {"id": "a", "runtimeInSeconds": 1, "command": {"program": "p", "arguments": ["x"]}, "machines": ["m"], "coreCount": 1}
    modern = new({"id": "a", "inputFiles": ["i"], "outputFiles": ["o"]}, runs=[run], files=[{"id": "i", "sizeInBytes": 1}])
    reader = read(data.draw(st.sampled_from([OLD, modern]).flatmap(lambda document: damaged(document, 1e400))))
    assert all("\n" not in fault.message for fault in reader.faults)
    assert all(task.id and task.argv for task in reader.tasks)


def test_a_document_of_nothing_but_faults_is_given_up() -> None:
    reader = read('{"workflow": {"tasks": [' + "0," * 100_000 + "0]}}")
    assert reader.dead
    assert len(reader.all_faults()) == FAULTS_MAX + 1


# ── absolute names, as in all instances of Nextflow ────────────────────────────────────────────────


def nextflow(tasks: int) -> dict[str, Any]:
    """As WfCommons has them: every name is where the file once was."""
    listed = [
        {"id": f"A.B:{n}", "inputFiles": ["/home/u/in.fa", f"/work/{n:02}/x"][n > 0:], "outputFiles": [f"/work/{n + 1:02}/x"]}
        for n in range(tasks)
    ]
    return new(*listed, files=[{"id": f"/work/{n + 1:02}/x", "sizeInBytes": 1000 + n} for n in range(tasks)])


def test_absolute_names_are_read_and_replayed_but_not_run(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(nextflow(40)))
    workflow = load(tmp_path / "w.json")
    assert (shape_of(workflow).tasks, shape_of(workflow).edges) == (40, 39)
    (told,) = [str(remark) for remark in workflow.remarks if "outside" in remark.message]
    assert "no run of it is possible, only a replay" in told
    assert "(39 more like this)" in told
    with pytest.raises(WorkflowError, match="lies outside of the directory of the run") as caught:
        load_checked(tmp_path / "w.json", AnyPlace())
    assert len(str(caught.value).splitlines()) <= 6
    replayed = replay(workflow, "p")
    check(replayed.workflow, AnyPlace())
    names = {name for task in replayed.workflow.tasks for name in (*task.inputs, *task.outputs)}
    assert all(name.startswith("abs/") for name in names)
    assert replayed.workflow.sizes["abs/work/01/x"] == 1000


def test_a_replay_keeps_absolute_names_and_a_directory_abs_apart() -> None:
    workflow = Workflow([Task("a", ("p",), ("abs/x",), ("/x",)), Task("b", ("p",), ("/x", "./abs/x"), ("y",))])
    one, two = replay(workflow, "p").workflow.tasks
    assert (one.inputs, one.outputs, two.inputs) == (("abs/x",), ("abs_/x",), ("abs_/x", "abs/x"))
