"""Files with several writers: who writes and who reads which version."""

from __future__ import annotations

from amfs.engine.checks import AnyPlace, check
from amfs.engine.workflow import Task, Workflow
from amfs.translate.versions import versioned


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
    assert [str(remark) for remark in workflow.remarks] == ["x:1: file 'f' is written by tasks a and b; each gets a version of its own"]
