"""Sub-workflows of Pegasus documents: whose file a name means, which catalogs are seen, and documents that jobs make."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from amfs.errors import WorkflowError
from amfs.translate.detect import load, load_checked
from amfs.translate.place import HostPlace
from amfs.workflow.checks import check
from amfs.workflow.workflow import Task, Workflow

Amfs = Callable[..., subprocess.CompletedProcess[str]]


def job(id: str, reads: str = "", writes: str = "", name: str = "cat", scratch: bool = False, **more: Any) -> dict[str, Any]:
    uses: list[dict[str, Any]] = [{"lfn": each, "type": "input"} for each in reads.split()]
    uses += [{"lfn": each, "type": "output", "stageOut": not scratch} for each in writes.split()]
    return {"type": "job", "name": name, "id": id, "uses": uses, "arguments": reads.split(), **more}


def sub(id: str, file: str, reads: str = "", writes: str = "", arguments: str = "") -> dict[str, Any]:
    return {**job(id, reads, writes), "type": "pegasusWorkflow", "file": file, "arguments": arguments.split()}


def write(path: Path, *jobs: dict[str, Any], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"pegasus": "5.0.4", "name": path.stem, **more, "jobs": list(jobs)}, sort_keys=False))
    return path


def replicas(**places: str) -> dict[str, Any]:
    return {"replicas": [{"lfn": name, "pfns": [{"site": "local", "pfn": path}]} for name, path in places.items()]}


def by_id(workflow: Workflow) -> dict[str, Task]:
    return {task.id: task for task in workflow.tasks}


def said(workflow: Workflow) -> str:
    return "\n".join(map(str, workflow.remarks))


def dax(path: Path, body: str) -> Path:
    path.write_text(f'<adag name="{path.stem}">{body}</adag>')
    return path


# ── whose file a name means ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("turned", [False, True])
def test_an_input_that_is_not_declared_is_not_a_file_of_another_sub_workflow(tmp_path: Path, turned: bool) -> None:
    write(tmp_path / "one.yml", job("p", "", "f", name="date", scratch=True))
    write(tmp_path / "two.yml", job("p", "f", "o"), replicaCatalog=replicas(f="/own/f"))
    both = [sub("S", "one.yml"), sub("T", "two.yml")]
    workflow = load(write(tmp_path / "outer.yml", *(both[::-1] if turned else both)))
    tasks = by_id(workflow)
    (made,), (read,) = tasks["S.p"].outputs, tasks["T.p"].inputs
    assert made != read
    assert workflow.paths == {read: "/own/f"}
    assert tasks["T.p"].argv == ("cat", read), "the program is told the name by which it finds the file"


def test_an_input_that_is_not_declared_is_not_a_file_of_the_outer_workflow(tmp_path: Path) -> None:
    write(tmp_path / "two.yml", job("p", "f", "o"), replicaCatalog=replicas(f="/own/f"))
    workflow = load(write(tmp_path / "outer.yml", job("A", "", "f"), sub("T", "two.yml")))
    (read,) = by_id(workflow)["T.p"].inputs
    assert read != "f"
    assert workflow.paths == {read: "/own/f"}


def test_the_same_in_a_dax(tmp_path: Path) -> None:
    dax(
        tmp_path / "two.dax",
        '<file name="f"><pfn url="/own/f" site="local"/></file><job id="p" name="cat"><uses name="f" link="input"/></job>',
    )
    outer = dax(tmp_path / "outer.dax", '<job id="A" name="date"><uses name="f" link="output"/></job><dax id="T" file="two.dax"/>')
    workflow = load(outer)
    (read,) = by_id(workflow)["T.p"].inputs
    assert read != "f"
    assert workflow.paths == {read: "/own/f"}


def test_a_declared_input_is_the_outer_file_wherever_the_inner_catalog_has_it(tmp_path: Path) -> None:
    write(tmp_path / "two.yml", job("p", "f", "o"), replicaCatalog=replicas(f="/own/f"))
    workflow = load(write(tmp_path / "outer.yml", job("A", "", "f"), sub("T", "two.yml", "f")))
    assert by_id(workflow)["T.p"].inputs == ("f",)
    assert workflow.paths == {}


def test_two_inputs_of_one_name_with_places_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.yml", job("p", "f", f"o.{name}"), replicaCatalog=replicas(f=f"/{name}/f"))
    workflow = load(write(tmp_path / "outer.yml", sub("S", "one.yml"), sub("T", "two.yml"), sub("U", "two.yml", "f")))
    tasks = by_id(workflow)
    places = {each: workflow.paths.get(tasks[f"{each}.p"].inputs[0]) for each in "STU"}
    assert places == {"S": "/one/f", "T": "/two/f", "U": "/two/f"}
    assert len({tasks[f"{each}.p"].inputs for each in "STU"}) == 3, "a declared name is the outer workflow's, which others do not take"


def test_declared_farther_out_only_is_not_declared(tmp_path: Path) -> None:
    write(tmp_path / "c.yml", job("p", "f", "o"), replicaCatalog=replicas(f="/own/f"))
    write(tmp_path / "b.yml", sub("T", "c.yml"))
    workflow = load(write(tmp_path / "a.yml", job("A", "", "f"), sub("S", "b.yml", "f")))
    (read,) = by_id(workflow)["S.T.p"].inputs
    assert read != "f"
    assert workflow.paths == {read: "/own/f"}


def test_declared_at_every_level_is_the_outermost_file(tmp_path: Path) -> None:
    write(tmp_path / "c.yml", job("p", "f", "g"))
    write(tmp_path / "b.yml", sub("T", "c.yml", "f", "g"))
    workflow = load(write(tmp_path / "a.yml", job("A", "", "f"), sub("S", "b.yml", "f", "g"), job("B", "g", "o")))
    assert by_id(workflow)["S.T.p"].inputs == ("f",)
    assert by_id(workflow)["S.T.p"].outputs == by_id(workflow)["B"].inputs == ("g",)


def test_another_spelling_of_a_name_is_the_same_name(tmp_path: Path) -> None:
    write(tmp_path / "two.yml", job("p", "./d//f", "o"), replicaCatalog=replicas(**{"./d//f": "/own/f"}))
    workflow = load(write(tmp_path / "outer.yml", job("A", "", "d/f"), sub("T", "two.yml")))
    (read,) = by_id(workflow)["T.p"].inputs
    assert os.path.normpath(read) != "d/f"


def test_absolute_names_are_the_same_files_everywhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.yml", job("p", "/data/f", f"o.{name}"))
    workflow = load(write(tmp_path / "outer.yml", sub("S", "one.yml"), sub("T", "two.yml")))
    assert {task.inputs for task in workflow.tasks} == {("/data/f",)}


def test_an_input_of_which_nothing_says_where_it_lies_is_told(tmp_path: Path) -> None:
    write(tmp_path / "two.yml", job("p", "f", "o"))
    workflow = load(write(tmp_path / "outer.yml", job("A", "", "f"), sub("T", "two.yml")))
    assert by_id(workflow)["T.p"].inputs == ("two.f",)
    assert "'f', which the uses of job T do not declare: so it is not the file of that name of another workflow" in said(workflow)
    with pytest.raises(WorkflowError, match=r"input 'two\.f' of task T.p does not exist"):
        check(workflow, HostPlace(tmp_path))


def test_a_place_on_which_an_output_lands_is_no_place_of_an_input(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old\n")
    write(tmp_path / "two.yml", job("p", "f", "o"), replicaCatalog=replicas(f="f"))
    with pytest.raises(WorkflowError, match="where task A puts its output 'f'"):
        load_checked(write(tmp_path / "outer.yml", job("A", "", "f", name="date"), sub("T", "two.yml")), HostPlace(tmp_path))


def test_programs_that_are_not_told_a_new_name_find_the_file_under_the_old_one(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "f").write_text("mine\n")
    hidden = job("p", "f", "g", name="sh", arguments=["-c", "'cat f > g; echo $0' name"], stdout="h")
    write(tmp_path / "two.yml", hidden, job("q", "g", "o", stdout="o"), replicaCatalog=replicas(f="own/f"))
    makes: dict[str, Any] = {"name": "sh", "arguments": ["-c", "'echo other | tee f > g'"], "scratch": True}
    write(tmp_path / "outer.yml", job("A", "", "f g", **makes), sub("T", "two.yml", "", "o h"))
    done = amfs("run", "--local", "-q", "--no-journal", "outer.yml")
    assert done.returncode == 0, done.stderr
    assert ((tmp_path / "o").read_text(), (tmp_path / "h").read_text()) == ("mine\n", "name\n")


def test_words_in_which_a_name_only_happens_to_occur_stay_and_need_no_shell(tmp_path: Path) -> None:
    write(tmp_path / "two.yml", job("p", "f", "o", arguments=["of", "f", "g.f.x", "./b-f"]), replicaCatalog=replicas(f="/own/f"))
    workflow = load(write(tmp_path / "outer.yml", job("A", "", "f"), sub("T", "two.yml")))
    assert by_id(workflow)["T.p"].argv == ("cat", "of", "two.f", "g.f.x", "./b-f")


# ── catalogs ───────────────────────────────────────────────────────────────────────────────────────

TOOL = {"transformations": [{"name": "tool", "sites": [{"name": "local", "pfn": "bin/tool", "type": "installed"}]}]}


def test_a_sub_workflow_sees_the_catalogs_of_the_workflow_around_it(tmp_path: Path) -> None:
    (tmp_path / "transformations.yml").write_text(yaml.safe_dump(TOOL))
    write(tmp_path / "inner" / "one.yml", job("p", "f g", "o", name="tool"), replicaCatalog=replicas(g="/own/g"))
    outer = write(tmp_path / "outer.yml", sub("S", "inner/one.yml"), replicaCatalog=replicas(f="data/f", g="/outer/g"))
    workflow = load(outer)
    assert workflow.tasks[0].argv[0] == str(tmp_path / "bin" / "tool"), "relative to the directory of the catalog"
    assert workflow.paths == {"f": str(tmp_path / "data" / "f"), "g": "/own/g"}


@pytest.mark.parametrize("option", ["--conf conf/inner.properties", "--conf=conf/inner.properties"])
def test_a_sub_workflow_sees_the_catalogs_that_its_planner_is_told(tmp_path: Path, option: str) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "inner.properties").write_text("pegasus.catalog.replica.file = rc.yml\n")
    (conf / "rc.yml").write_text(yaml.safe_dump(replicas(f="/conf/f")))
    (conf / "transformations.yml").write_text(yaml.safe_dump(TOOL))
    (tmp_path / "replicas.yml").write_text(yaml.safe_dump(replicas(f="/outer/f")))
    write(tmp_path / "one.yml", job("p", "f", "o", name="tool"))
    workflow = load(write(tmp_path / "outer.yml", sub("S", "one.yml", arguments=option)))
    assert workflow.paths == {"f": "/conf/f"}
    assert workflow.tasks[0].argv[0].endswith("bin/tool")
    assert "no meaning here: --conf" not in said(workflow)


def test_a_single_property_that_the_planner_is_told_counts_most(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(replicas(f="/mine/f")))
    (tmp_path / "replicas.yml").write_text(yaml.safe_dump(replicas(f="/outer/f")))
    write(tmp_path / "one.yml", job("p", "f", "o"))
    outer = write(tmp_path / "outer.yml", sub("S", "one.yml", arguments="-Dpegasus.catalog.replica.file=mine.yml"))
    assert load(outer).paths == {"f": "/mine/f"}


def test_a_missing_catalog_fails_only_those_who_need_it(amfs: Amfs, tmp_path: Path) -> None:
    names = {"replica": "rc.yml", "transformation": "tc.yml", "site": "sites.yml"}
    lines = [f"pegasus.catalog.{kind}.file={name}\n" for kind, name in names.items()]
    (tmp_path / "pegasus.properties").write_text("".join(lines))
    write(tmp_path / "fine.yml", job("A", "", "o", name="echo", stdout="o"))
    for command in (("info", "fine.yml"), ("graph", "fine.yml"), ("translate", "fine.yml"), ("run", "--local", "--no-journal", "fine.yml")):
        done = amfs(*command)
        assert done.returncode == 0, done.stderr
        assert f"the replica catalog {tmp_path}/rc.yml does not exist" in done.stderr
    write(tmp_path / "needy.yml", job("A", "f", "o", name="no-such-tool"))
    done = amfs("run", "--local", "--no-journal", "needy.yml")
    assert done.returncode == 2
    assert f"input 'f' of task A does not exist in {tmp_path}, and no task makes it; the replica catalog {tmp_path}/rc.yml" in done.stderr
    assert f"was not found in {tmp_path} nor on PATH; the transformation catalog {tmp_path}/tc.yml does not exist" in done.stderr


def test_stageable_executables_need_no_x_bit(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text('#!/bin/sh\n./helper "$1" > o\n')
    (tmp_path / "helper.sh").write_text("#!/bin/sh\necho $1\n")
    sites = [{"name": "local", "pfn": str(tmp_path / "tool"), "type": "stageable"}]
    helper = [{"name": "local", "pfn": str(tmp_path / "helper.sh"), "type": "stageable"}]
    catalog = {
        "transformations": [
            {"namespace": "n", "name": "tool", "version": "1.0", "sites": sites, "requires": ["helper"]},
            {"name": "helper", "sites": helper},
        ]
    }
    tool: dict[str, Any] = {"name": "tool", "namespace": "n", "version": "1.0", "arguments": ["word"]}
    write(tmp_path / "w.yml", job("A", "", "o", **tool), transformationCatalog=catalog)
    done = amfs("run", "--local", "-q", "--no-journal", "w.yml")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o").read_text() == "word\n"
    assert not os.access(tmp_path / "tool", os.X_OK), "the user's own file stays as it is"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["helper.sh", "o", "tool", "w.yml"]
    write(tmp_path / "outer.yml", sub("S", "w.yml"), sub("T", "w.yml"))
    assert {"S.A", "T.A"} < by_id(load(tmp_path / "outer.yml")).keys()


# ── documents that jobs make ───────────────────────────────────────────────────────────────────────


def test_a_document_that_a_job_makes_is_not_read_before(tmp_path: Path) -> None:
    write(tmp_path / "made.yml", job("ancient"))
    maker = job("M", "", "made.yml", scratch=True)
    reader = job("R", "o", "r")
    edges = [{"id": "S", "children": ["after"]}]
    jobs = [maker, sub("S", "made.yml", "", "o"), reader, job("after")]
    workflow = load(write(tmp_path / "outer.yml", *jobs, jobDependencies=edges))
    tasks = by_id(workflow)
    assert list(tasks) == ["M", "S", "R", "after"]
    assert (tasks["M"].keep, tasks["M"].scratch) == (("made.yml",), ()), "the run reads it on shared storage"
    assert tasks["S"].inputs == ("made.yml",)
    assert tasks["R"].after == tasks["after"].after == ("S",), "all of the sub-workflow is waited for"
    assert list(workflow.later) == ["S"]


def test_the_same_in_a_dax_and_with_another_spelling(tmp_path: Path) -> None:
    dax(tmp_path / "made.dax", '<job id="ancient" name="date"/>')
    maker = '<job id="M" name="date"><uses name="./made.dax" link="output"/></job>'
    workflow = load(dax(tmp_path / "outer.dax", f'{maker}<dax id="S" file="made.dax"/>'))
    assert list(by_id(workflow)) == ["M", "S"]
    assert by_id(workflow)["S"].inputs == ("./made.dax",)


def test_a_document_that_comes_from_farther_out(tmp_path: Path) -> None:
    write(tmp_path / "made.yml", job("ancient"))
    write(tmp_path / "inner.yml", sub("T", "made.yml", "made.yml", "o"))
    workflow = load(write(tmp_path / "outer.yml", job("M", "", "made.yml"), sub("S", "inner.yml", "made.yml", "o"), job("R", "o", "r")))
    tasks = by_id(workflow)
    assert list(tasks) == ["M", "S.T", "R"]
    assert tasks["R"].after == ("S.T",)
    assert workflow.later["S.T"].document == "made.yml"


def test_a_document_that_another_sub_workflow_makes(tmp_path: Path) -> None:
    write(tmp_path / "made.yml", job("ancient"))
    write(tmp_path / "inner.yml", job("m", "", "made.yml", scratch=True))
    workflow = load(write(tmp_path / "outer.yml", sub("S", "inner.yml", "", "made.yml"), sub("T", "made.yml", "made.yml")))
    tasks = by_id(workflow)
    assert list(tasks) == ["S.m", "T"]
    assert tasks["S.m"].keep == ("made.yml",)


@pytest.mark.parametrize("outer_makes", [False, True])
def test_an_old_document_is_not_taken_for_one_that_is_made_and_not_declared(tmp_path: Path, outer_makes: bool) -> None:
    write(tmp_path / "made.yml", job("ancient"))
    if outer_makes:
        write(tmp_path / "inner.yml", sub("T", "made.yml"))
        jobs = [job("M", "", "made.yml"), sub("S", "inner.yml")]
    else:
        write(tmp_path / "inner.yml", job("m", "", "made.yml"))
        jobs = [sub("T", "made.yml"), sub("S", "inner.yml")]
    with pytest.raises(WorkflowError, match=r"job T: sub-workflow made\.yml is there, but job (M|S\.m) makes a file of that name"):
        load(write(tmp_path / "outer.yml", *jobs))


def test_commands_say_what_they_do_not_know(amfs: Amfs, tmp_path: Path) -> None:
    write(tmp_path / "made.yml", job("ancient"))
    write(tmp_path / "outer.yml", job("M", "", "made.yml", name="date"), sub("S", "made.yml"))
    sentence = "sub-workflow made.yml of job S is made by job M while the workflow runs: its tasks are not known before"
    for command in (("info",), ("graph",), ("translate",), ("translate", "--to", "dot")):
        done = amfs(command[0], "outer.yml", *command[1:])
        assert done.returncode == 0, done.stderr
        assert sentence in done.stderr
        assert "ancient" not in done.stdout
    for form in ("jsonl", "tasklist", "wfformat", "filelist"):
        done = amfs("translate", "outer.yml", "--to", form)
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"{sentence}, so they cannot be written down here; 'amfs run' adds them then" in done.stderr
