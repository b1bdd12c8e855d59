"""Pegasus 5 workflows: each construct, the corpus with its known counts, sub-workflows. Catalogs: test_pegasus_catalogs.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from pegasus_documents import job, only, place, read, remarks, replica, workflow
from workflow_strategies import damaged

from amfs.translate.document import FAULTS_MAX
from amfs.translate.pegasus import PegasusReader
from amfs.translate.pegasus_profiles import apply, merge
from amfs.translate.shape import Graph, shape_of

CORPUS = Path(__file__).parent.parent / "data" / "corpus" / "pegasus5"

# ── the corpus ─────────────────────────────────────────────────────────────────────────────────────

#: jobs, files, all edges, edges by order only, as counted independently of our code (hierarchy: with its sub-workflows).
COUNTS = {
    "diamond-full": (4, 7, 4, 0),
    "diamond-junit": (4, 6, 4, 0),
    "diamond-profiles": (4, 6, 4, 0),
    "diamond-unicode-name": (4, 6, 4, 0),
    "diamond-inline-catalogs": (4, 6, 4, 0),
    "hierarchy": (7, 7, 7, 2),
    "checkpoint": (1, 2, 0, 0),
    "hello-world": (1, 1, 0, 0),
    "synthetic-80": (80, 161, 70, 0),
    "wfbench-blast-43": (43, 44, 120, 0),
    "montage-v3-79": (79, 134, 193, 0),
}


def test_every_file_of_the_corpus_is_counted() -> None:
    assert {path.stem for path in CORPUS.glob("*.yml")} == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_the_corpus(name: str) -> None:
    from amfs.translate.detect import load

    shape = shape_of(load(CORPUS / f"{name}.yml"))
    assert (shape.tasks, shape.files, shape.edges, shape.edges_by_order) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_stated_edges_of_the_corpus_are_all_there(name: str) -> None:
    """Against PyYAML's own loader: each edge of jobDependencies lies between the tasks of its two jobs, or of their sub-workflows."""
    from amfs.translate.detect import load

    document = yaml.safe_load((CORPUS / f"{name}.yml").read_text(encoding="utf-8"))
    graph = Graph(load(CORPUS / f"{name}.yml"))
    jobs = [task.id.partition(".")[0] for task in graph.tasks]
    pairs = {(jobs[parent], jobs[child]) for child, parents in enumerate(graph.parents) for parent in parents}
    stated = [(each["id"], child) for each in document.get("jobDependencies") or () for child in each["children"]]
    assert set(stated) <= pairs


def test_names_and_program_of_a_generated_workflow() -> None:
    reader = PegasusReader(str(CORPUS / "wfbench-blast-43.yml"))
    reader.feed((CORPUS / "wfbench-blast-43.yml").read_bytes())
    reader.finish()
    first = reader.tasks[0]
    assert first.argv[:3] == ("/data/wfbench/bin/wfbench", "--name", "split_fasta_00000001")
    assert first.argv[-4:] == (
        "--output-files", '{"split_fasta_00000001_outfile_0001":45455}', "--input-files", '["workflow_infile_0001"]',
    )  # fmt: skip
    assert first.env == ("PATH=/usr/bin:/bin:.",)
    assert first.scratch == ("split_fasta_00000001_outfile_0001",)
    assert reader.paths == {"workflow_infile_0001": "/data/wfbench/data/workflow_infile_0001"}
    assert reader.name == "Blast-Benchmark"


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], []),
        (["-a", 1, 1.5, "4.0"], ["-a", "1", "1.5", "4.0"]),
        (["-T 10 -i"], ["-T", "10", "-i"]),
        (["-s 'a b'", '"c d"', "it\\'s"], ["-s", "a b", "c d", "it's"]),
        (["*.txt", "$HOME", "a|b", ">", "x"], ["*.txt", "$HOME", "a|b", ">", "x"]),
        (["two\nlines"], ["two", "lines"]),
        (['{"f": 1}'], ["{f:", "1}"]),
        (["don't"], ["don't"]),
        ([""], []),
    ],
)
def test_arguments_are_joined_and_split(arguments: list[Any], words: list[str]) -> None:
    assert list(only(read(workflow(job(arguments=arguments)))).argv[1:]) == words


def test_quotes_that_do_not_match_are_told() -> None:
    assert "they are split at blanks" in remarks(read(workflow(job(arguments=["don't"]))))


def test_files_and_where_they_go() -> None:
    uses = [
        {"lfn": "in", "type": "input"},
        {"lfn": "mid", "type": "output", "stageOut": False, "registerReplica": False},
        {"lfn": "out", "type": "output", "stageOut": True, "size": "77"},
        {"lfn": "implied", "type": "output", "metadata": {"size": "5"}},
    ]
    reader = read(workflow(job(uses=uses, stdin="in", stdout="out", stderr="err")))
    task = only(reader)
    assert (task.inputs, task.outputs) == (("in",), ("mid", "out", "implied"))
    assert (task.keep, task.scratch) == (("out", "implied"), ("mid",))
    assert (task.stdin, task.stdout, task.stderr) == ("in", "out", "err")
    assert reader.sizes == {"out": 77, "implied": 5}


def test_optional_outputs_and_checkpoints_may_be_missing() -> None:
    uses = [{"lfn": "maybe", "type": "output", "optional": True}, {"lfn": "state", "type": "checkpoint"}, {"lfn": "sure", "type": "output"}]
    catalog = {"transformations": [{"name": "prog", "sites": [{"name": "local", "pfn": "/opt/prog"}]}]}
    task = only(read(workflow(job(uses=uses, arguments=["-x"]), transformationCatalog=catalog)))
    assert task.argv[:2] == ("/bin/sh", "-c")
    assert task.argv[3:] == ("/opt/prog", "-x")
    assert "maybe" in task.argv[2]
    assert "state" in task.argv[2]
    assert "sure" not in task.argv[2]


def test_a_tolerant_task_does_not_change_others_of_its_kind() -> None:
    uses = [{"lfn": "maybe", "type": "output", "optional": True}]
    tasks = read(workflow(job("A", uses=uses), job("B"))).tasks
    assert tasks[0].argv[3:] == ("prog",)
    assert tasks[1].argv == ("prog",)


def test_inout_is_read_and_written() -> None:
    task = only(read(workflow(job(uses=[{"lfn": "f", "type": "inout"}]))))
    assert (task.inputs, task.outputs) == (("f",), ("f",))


def test_a_file_named_as_input_and_as_output_stays_as_it_is() -> None:
    uses = [{"lfn": "f", "type": "input"}, {"lfn": "f", "type": "output"}]
    reader = read(workflow(job(uses=uses)))
    assert (only(reader).inputs, only(reader).outputs, only(reader).keep) == (("f",), (), ())
    assert "stays as it is" in remarks(reader)


def test_names_that_lead_out_are_refused(tmp_path: Path) -> None:
    from amfs.errors import WorkflowError
    from amfs.translate.detect import load_checked
    from amfs.workflow.any_place import AnyPlace

    for name in ("../x", "a/../../x", "/etc/x"):
        (tmp_path / "w.yml").write_text(yaml.safe_dump(workflow(job(uses=[{"lfn": name, "type": "output"}]))))
        with pytest.raises(WorkflowError, match="lies outside of the directory of the run"):
            load_checked(tmp_path / "w.yml", AnyPlace())


def test_stated_and_implied_edges_are_united() -> None:
    jobs = [
        job("A", uses=[{"lfn": "x", "type": "output"}]),
        job("B", uses=[{"lfn": "x", "type": "input"}]),
        job("C"),
    ]
    reader = read(workflow(*jobs, jobDependencies=[{"id": "A", "children": ["B", "C"]}, {"id": "B", "children": ["C", "C"]}]))
    assert [task.after for task in reader.tasks] == [(), (), ("A", "B")]


def test_dependencies_may_stand_before_the_jobs() -> None:
    text = "pegasus: '5.0'\nname: w\njobDependencies:\n- {id: A, children: [B]}\njobs:\n- {name: p, id: A}\n- {name: p, id: B}\n"
    assert [task.after for task in read(text).tasks] == [(), ("A",)]


def test_lines_are_those_of_the_jobs() -> None:
    assert [task.line for task in read(workflow(job("A"), job("B"))).tasks] == [4, 8]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (workflow({"type": "job", "name": "p"}), "a job without an id"),
        (workflow({"type": "job", "id": "A"}), "job A: a job needs a name"),
        (workflow({"type": "pegasusWorkflow", "id": "A"}), "job A: a pegasusWorkflow needs a file"),
        (workflow(job(type="dance")), "the type must be one of job, pegasusWorkflow, condorWorkflow, not 'dance'"),
        (workflow(job(uses=[{"type": "input"}])), "a use without an lfn"),
        (workflow(job(uses=[{"lfn": "f", "type": "sideways"}])), "not 'sideways'"),
        (workflow(job(uses="f")), "'uses' must be a list"),
        (workflow(job(uses=["f"])), "each of its uses must be a mapping"),
        (workflow(job(arguments={"a": 1})), "'arguments' must be a list"),
        (workflow(job(arguments=[["a"]])), "arguments must be words and numbers"),
        (workflow(job(id=["A"])), "'id' must be a word"),  # type: ignore[arg-type]
        (workflow(job(profiles=["x"])), "profiles must be a mapping"),
        (workflow(job(profiles={"env": {"A": ["b"]}})), "the profile env 'A' must be a word or a number"),
        (workflow(job(uses=[{"lfn": "f", "type": "output", "stageOut": "perhaps"}])), "'stageOut' must be true or false"),
        (workflow(job(), jobDependencies=[{"id": "Z", "children": ["A"]}]), "a job 'Z', which there is not"),
        (workflow(job(), jobDependencies=[{"id": "A", "children": ["Z"]}]), "a child 'Z' of job 'A', which there is not"),
        (workflow(job(), jobDependencies=[{"id": "A", "children": ["A"]}]), "job A is said to depend on itself"),
        (workflow(job(), jobDependencies=["A"]), "a dependency must be a mapping"),
        (workflow(job(), jobDependencies=[{"children": ["A"]}]), "a dependency without an id"),
        (workflow(job(), replicaCatalog=["x"]), "replicaCatalog must be a mapping"),
        (workflow(job(), replicaCatalog={"replicas": [{"pfns": []}]}), "a replica without an lfn"),
        (workflow(job(), transformationCatalog={"transformations": [{"namespace": "x"}]}), "a transformation without a name"),
        (workflow("not a job"), "a job must be a mapping"),  # type: ignore[arg-type]
        ({"pegasus": "5.0", "name": "w"}, "there are no jobs"),
    ],
)
def test_faults_have_words_and_lines(document: dict[str, Any], words: str) -> None:
    reader = read(document)
    assert words in "\n".join(fault.message for fault in reader.faults)
    assert all(fault.line for fault in reader.faults) or "no jobs" in words


def test_what_has_no_meaning_here_is_told_once() -> None:
    uses = [{"lfn": f"f{n}", "type": "output", "registerReplica": True, "bypass": False} for n in range(3)]
    document = workflow(
        job(
            uses=uses,
            hooks={"shell": [{"_on": "error", "cmd": "mail"}]},
            metadata={"k": "v"},
            unheard="x",
            profiles={"condor": {"universe": "local", "odd": 1}},
        ),
        hooks={"shell": [{"_on": "end", "cmd": "mail"}]},
        elsewhere=1,
        **{"x-pegasus": {"apiLang": "python"}, "x-mine": [1, {"a": "b"}]},
    )
    text = remarks(read(document))
    assert text.count("hooks have no meaning here") == 1
    assert "registerReplica has no meaning here: there is no replica catalog to write to (2 more like this)" in text
    assert "'unheard' is not known in a job" in text
    assert "'elsewhere' is not known in a workflow" in text
    assert "the profile condor 'odd' has no meaning here" in text
    assert "x-" not in text
    assert "universe" not in text


# ── profiles ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("profiles", "fields"),
    [
        ({"pegasus": {"cores": 4, "memory": 512, "runtime": "12.5"}}, {"cores": 4, "memory": 512 << 20, "runtime": 12.5}),
        ({"condor": {"request_cpus": "2", "request_memory": "1 GB"}}, {"cores": 2, "memory": 10**9}),
        ({"condor": {"request_memory": "2 GiB"}}, {"memory": 2 << 30}),
        ({"dagman": {"RETRY": 3, "PRIORITY": -5}}, {"retries": 3, "priority": -5}),
        ({"dagman": {"retry": "0"}}, {"retries": 0}),
        ({"pegasus": {"maxwalltime": 2}}, {"time_limit": 120.0}),
        ({"globus": {"maxwalltime": "1:30"}}, {"time_limit": 5400.0}),
        ({"condor": {"priority": 7}, "dagman": {"priority": 9}}, {"priority": 9}),
        ({"pegasus": {"cores": 3}, "condor": {"request_cpus": 5}}, {"cores": 3}),
        ({"env": {"B": "2", "A": "x=y", "E": ""}}, {"env": ("B=2", "A=x=y", "E=")}),
    ],
)
def test_profiles_become_fields(profiles: dict[str, Any], fields: dict[str, Any]) -> None:
    task = only(read(workflow(job(profiles=profiles))))
    assert {name: getattr(task, name) for name in fields} == fields


@pytest.mark.parametrize("value", ["many", "-1", "1e99", "nan", "inf", "ifThenElse(x, 1, 2)", ""])
def test_values_of_profiles_that_mean_nothing_are_told(value: str) -> None:
    told: list[str] = []
    assert apply({("pegasus", "cores"): value}, lambda kind, line, message: told.append(message), 1) == {}
    assert "of which nothing can be made here" in told[0]


def test_precedence_of_profiles() -> None:
    catalog = {
        "transformations": [
            {
                "name": "prog",
                "profiles": {"env": {"A": "transformation", "B": "transformation"}},
                "sites": [{"name": "local", "pfn": "/p", "profiles": {"env": {"A": "place"}}}],
            }
        ]
    }
    sites = {"sites": [{"name": "local", "profiles": {"env": {"B": "site", "C": "site"}}}]}
    document = workflow(
        job(profiles={"env": {"C": "job", "D": "job"}}),
        transformationCatalog=catalog,
        siteCatalog=sites,
        profiles={"env": {"D": "workflow", "E": "workflow"}},
    )
    assert sorted(only(read(document)).env) == ["A=place", "B=transformation", "C=site", "D=job", "E=workflow"]
    assert merge([{("dagman", "RETRY"): "1"}, {("dagman", "retry"): "2"}]) == {("dagman", "RETRY"): "1"}


# ── sub-workflows ──────────────────────────────────────────────────────────────────────────────────


def sub(id: str, file: str, **more: Any) -> dict[str, Any]:
    return {"type": "pegasusWorkflow", "file": file, "id": id, **more}


def chain(*names: str, scratch: bool = False) -> dict[str, Any]:
    """p reads in, writes mid; q reads mid, writes out."""
    first, middle, last = names
    return workflow(
        job("p", uses=[{"lfn": first, "type": "input"}, {"lfn": middle, "type": "output", "stageOut": False}], arguments=[first, middle]),
        job("q", uses=[{"lfn": middle, "type": "input"}, {"lfn": last, "type": "output", "stageOut": not scratch}], arguments=[middle]),
    )


def write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def test_a_sub_workflow_is_expanded_in_its_place(tmp_path: Path) -> None:
    write(tmp_path / "inner.yml", chain("in", "mid", "out", scratch=True))
    outer = workflow(
        job("A", uses=[{"lfn": "in", "type": "output"}]),
        sub(
            "S",
            "inner.yml",
            uses=[{"lfn": name, "type": "input"} for name in ("inner.yml", "in")] + [{"lfn": "out", "type": "output", "stageOut": True}],
        ),
        job("B", uses=[{"lfn": "out", "type": "input"}]),
        job("C"),
        jobDependencies=[{"id": "A", "children": ["S"]}, {"id": "S", "children": ["B", "C"]}],
    )
    reader = read(outer, str(tmp_path / "outer.yml"))
    assert reader.faults == []
    by_id = {task.id: task for task in reader.tasks}
    assert list(by_id) == ["A", "S.p", "S.q", "B", "C"]
    assert by_id["S.q"].keep == ("out",)
    assert by_id["S.q"].scratch == ()
    assert by_id["C"].after == ("S.q",)
    assert by_id["S.p"].after == by_id["B"].after == ()
    text = yaml.safe_dump(outer, sort_keys=False).splitlines()
    assert by_id["S.p"].line == by_id["S.q"].line == text.index("- type: pegasusWorkflow") + 1


def test_files_of_sub_workflows_with_the_same_names_are_kept_apart(tmp_path: Path) -> None:
    write(tmp_path / "one.yml", chain("in", "mid", "out1"))
    write(tmp_path / "two.yml", chain("in", "mid", "out2"))
    reader = read(workflow(sub("S", "one.yml"), sub("T", "two.yml")), str(tmp_path / "outer.yml"))
    assert reader.faults == []
    by_id = {task.id: task for task in reader.tasks}
    assert by_id["S.p"].outputs == ("mid",)
    assert by_id["T.p"].outputs == by_id["T.q"].inputs == ("two.mid",)
    assert by_id["T.p"].argv == ("prog", "in", "two.mid")
    assert "its file 'mid' has the name of another workflow's" in remarks(reader)


def test_order_between_two_sub_workflows(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.yml", workflow(job("x"), job("y"), jobDependencies=[{"id": "x", "children": ["y"]}]))
    outer = workflow(sub("S", "one.yml"), sub("T", "two.yml"), jobDependencies=[{"id": "S", "children": ["T"]}])
    after = {task.id: task.after for task in read(outer, str(tmp_path / "outer.yml")).tasks}
    assert after == {"S.x": (), "S.y": ("S.x",), "T.x": ("S.y",), "T.y": ("T.x",)}


def test_input_directories_of_the_planner(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in").write_text("x")
    write(tmp_path / "inner.yml", chain("in", "mid", "out"))
    reader = read(workflow(sub("S", "inner.yml", arguments=["--input-dir", "data", "--force"])), str(tmp_path / "outer.yml"))
    assert reader.paths == {"in": str(tmp_path / "data" / "in")}
    assert "options of the planner have no meaning here: --force" in remarks(reader)


def test_a_sub_workflow_that_is_not_there_stays_a_job() -> None:
    reader = read(workflow(sub("S", "gone.yml")))
    assert only(reader).argv == ("pegasus-plan", "gone.yml")
    assert "is not there, and no job makes it" in remarks(reader)


def test_a_condor_workflow_stays_a_job() -> None:
    document = workflow({"type": "condorWorkflow", "file": "x.dag", "id": "D"})
    assert only(read(document)).argv == ("condor_dagman", "x.dag")
    assert "workflow of HTCondor" in remarks(read(document))


def test_sub_workflows_that_contain_themselves_end(tmp_path: Path) -> None:
    write(tmp_path / "a.yml", workflow(sub("S", "b.yml")))
    write(tmp_path / "b.yml", workflow(sub("S", "a.yml")))
    reader = read(workflow(sub("S", "b.yml")), str(tmp_path / "a.yml"))
    assert "contains itself" in reader.faults[0].message


def test_faults_of_a_sub_workflow_name_it(tmp_path: Path) -> None:
    (tmp_path / "inner.yml").write_text("pegasus: '5.0'\nname: x\njobs:\n- {id: A}\n")
    reader = read(workflow(sub("S", "inner.yml")), str(tmp_path / "outer.yml"))
    assert f"sub-workflow {tmp_path}/inner.yml:4: job A: a job needs a name" in reader.faults[0].message


def test_a_sub_workflow_that_is_no_file_is_not_opened() -> None:
    assert "is not there" in remarks(read(workflow(sub("S", "/dev/zero"))))


# ── anything else ──────────────────────────────────────────────────────────────────────────────────

_BASE = workflow(
    job(
        "A",
        arguments=["-i", "a"],
        uses=[{"lfn": "a", "type": "input"}, {"lfn": "b", "type": "output", "stageOut": True}],
        profiles={"env": {"X": 1}},
    ),
    sub("B", "gone.yml", uses=[{"lfn": "b", "type": "input"}]),
    jobDependencies=[{"id": "A", "children": ["B"]}],
    replicaCatalog={"replicas": [replica("a", ("local", "/a"))]},
    transformationCatalog={"transformations": [{"name": "prog", "requires": [], "sites": [place("s", "/p")]}], "containers": []},
    siteCatalog={"sites": [{"name": "s", "profiles": {}}]},
    hooks={"shell": []},
    metadata={"a": "b"},
)


@given(damaged(_BASE))
def test_documents_of_any_form_end_in_tasks_or_faults(document: Any) -> None:
    reader = read(document)
    assert all("\n" not in fault.message for fault in reader.faults)
    assert all(task.id and task.argv for task in reader.tasks)


def test_a_document_of_nothing_but_faults_is_given_up() -> None:
    reader = read("pegasus: '5.0'\nname: w\njobs:\n" + "- {}\n" * 10_000)
    assert reader.dead
    assert len(reader.all_faults()) == FAULTS_MAX + 1
