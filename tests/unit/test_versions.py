"""Files with several writers: the writer and the readers of each version."""

from __future__ import annotations

import io
from collections.abc import Callable
from subprocess import CompletedProcess

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from amfs.errors import WorkflowError
from amfs.translate import tasklist
from amfs.translate.detect import load
from amfs.translate.shape import Graph
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import check
from amfs.workflow.versions import versioned
from amfs.workflow.workflow import Task, Workflow


def task(name: str, inputs: str = "", outputs: str = "", after: str = "", **more: object) -> Task:
    argv = ("p", *inputs.split(), *outputs.split())
    return Task(name, argv, tuple(inputs.split()), tuple(outputs.split()), after=tuple(after.split()), line=1, **more)  # type: ignore[arg-type]


def files(*tasks: Task) -> dict[str, tuple[str, str]]:
    workflow = versioned(Workflow(list(tasks), sizes={"f": 7}))
    check(workflow, AnyPlace())
    return {each.id: (" ".join(each.inputs), " ".join(each.outputs)) for each in workflow.tasks}


def test_one_writer_each_changes_nothing() -> None:
    workflow = Workflow([task("a", "", "f"), task("b", "f")])
    assert versioned(workflow) is workflow


def test_readers_get_the_last_version_wherever_they_stand() -> None:
    found = files(task("r", "f"), task("a", "", "f x"), task("b", "", "f"), task("s", "f"))
    assert found == {"r": ("f", ""), "a": ("", "f.v1 x"), "b": ("", "f"), "s": ("f", "")}


def test_unless_that_closes_a_circle() -> None:
    found = files(task("a", "", "f"), task("r", "f", "g"), task("b", "g", "f"), task("s", "f"))
    assert found == {"a": ("", "f.v1"), "r": ("f.v1", "g"), "b": ("g", "f"), "s": ("f", "")}


def test_a_file_that_is_changed_in_place() -> None:
    found = files(task("a", "", "f"), task("b", "f", "f"), task("c", "f", "f"), task("r", "f"))
    assert found == {"a": ("", "f.v1"), "b": ("f.v1", "f.v2"), "c": ("f.v2", "f"), "r": ("f", "")}


def test_a_shared_file_that_is_changed_in_place_keeps_its_name() -> None:
    found = files(task("b", "f", "f"), task("r", "f"), task("t", "f.v1 f"))
    assert found["b"] == ("f", "f.v1_")
    assert found["r"] == ("f.v1_", "")


def test_names_follow_everywhere_but_in_words_that_may_mean_either() -> None:
    first = task("a", "", "f", keep=("f",), stdout="f")
    both = task("b", "f", "f", scratch=("f",))
    workflow = versioned(Workflow([first, both], sizes={"f": 7}, source="x"))
    one, two = workflow.tasks
    assert (one.keep, one.stdout, one.argv) == (("f.v1",), "f.v1", ("p", "f.v1"))
    assert (two.scratch, two.argv) == (("f",), ("p", "f", "f"))
    assert workflow.sizes == {"f": 7, "f.v1": 7}
    [remark] = workflow.remarks
    assert str(remark) == "x:1: file 'f' is written by tasks a and b; each gets a version of its own here, and a real run refuses it"


def test_a_remark_names_its_writers_or_counts_them() -> None:
    many = [task(f"t{n}", "", f"f{n % 3}") for n in range(30)]
    [remark] = versioned(Workflow(many)).remarks
    assert "'f0' is written by tasks t0, t3, t6 and 7 more;" in remark.message
    assert remark.message.endswith(" (2 more like this)")


def test_two_spellings_are_one_file() -> None:
    found = files(task("a", "", "./f"), task("b", "", "d/../f"), task("r", "d//../f"))
    assert found == {"a": ("", "f.v1"), "b": ("", "d/../f"), "r": ("d//../f", "")}


@st.composite
def entangled(draw: st.DrawFn) -> Workflow:
    """Few names, several writers of each, spelled in several ways."""
    names = st.lists(st.sampled_from(["f", "./f", "g", "d/../g", "h"]), max_size=2, unique=True)
    return Workflow([Task(f"t{n}", ("p",), tuple(draw(names)), tuple(draw(names))) for n in range(draw(st.integers(1, 6)))])


@given(entangled())
def test_everybody_sees_the_same_edges_and_cycles(workflow: Workflow) -> None:
    """Info and pictures (Graph), translations (versioned, written and read again), and the checks of a run."""

    def edges(of: Workflow) -> list[tuple[int, ...]] | None:
        try:
            return [tuple(sorted(each)) for each in Graph(of).parents]
        except WorkflowError:
            return None

    told = edges(workflow)
    text = "".join(f"{line}\n" for line in tasklist.write(versioned(workflow))).encode()
    assert edges(load(io.BytesIO(text))) == told
    try:
        plan = check(msgspec.structs.replace(versioned(workflow), remarks=[]), AnyPlace())
    except WorkflowError as error:
        assert told is None
        assert all("cycle of tasks" in str(fault) for fault in error.faults)
    else:
        assert told is not None
        assert len(plan.walk()) == len(workflow.tasks)
    try:
        check(Workflow(list(workflow.tasks)), AnyPlace())
    except WorkflowError as error:
        assert ("cycle of tasks" in str(error)) == (told is None)


def test_translating_a_cycle_is_refused_as_info_refuses_it(amfs: Callable[..., CompletedProcess[str]]) -> None:
    text = "1 -b p -i a -o b\n2 -b p -i b -o a\n"
    said = {amfs(*words, input=text).stderr for words in (("info", "-"), ("graph", "-"), ("translate", "-", "--to", "jsonl"))}
    assert len(said) == 1
    assert "1 -> 2 -> 1" in said.pop()


def test_info_tells_of_several_writers(amfs: Callable[..., CompletedProcess[str]]) -> None:
    done = amfs("info", "-", input="1 -b p -o a\n2 -b p -i a -o ./a\n3 -b p -i a\n")
    assert done.returncode == 0
    assert "edges         2: 2 by files" in done.stdout
    assert "file 'a' is written by tasks 1 and 2" in done.stderr
