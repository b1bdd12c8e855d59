"""Tasks that need not run again (``workflow.resume``), against a definition that tries until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import Plan, StreamChecker, check
from amfs.workflow.resume import Adopted, Remains, ResumedList, Step, resume_whole, to_skip
from amfs.workflow.workflow import Task, Workflow


class Past(NamedTuple):
    """A workflow, and what an earlier run of it left."""

    tasks: list[Task]
    done: set[int]
    there: set[str]  # outputs that are still there
    finals: set[str]  # outputs that belong on shared storage

    def skip(self) -> tuple[frozenset[int], set[str], Plan]:
        workflow = Workflow(list(self.tasks))
        plan = check(workflow, AnyPlace("/home/u"))
        there, final = self.answers()
        skip, used = to_skip(workflow.tasks, plan, self.done, there, final)
        return skip, used, plan

    def answers(self) -> tuple[Callable[[int, str], bool], Callable[[Task, str], bool]]:
        return (lambda tid, name: name in self.there), (lambda task, name: name in self.finals)

    def must_run(self) -> set[int]:
        """By definition: tasks that did not finish, lost a final, or made a missing file that one that must run reads. To the least
        fixed point."""
        writer = {name: tid for tid, task in enumerate(self.tasks) for name in task.outputs}
        must = set(range(len(self.tasks))) - self.done
        must |= {writer[name] for name in self.finals - self.there}
        while True:
            more = {
                writer[name]
                for tid in must
                for name in self.tasks[tid].inputs
                if name in writer and name not in self.there and writer[name] not in must
            }
            if not more:
                return must
            must |= more


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    count = draw(st.integers(0, 12))
    tasks: list[Task] = []
    made: list[str] = []
    for tid in range(count):
        inputs = draw(st.lists(st.sampled_from([*made, "in"]), max_size=3, unique=True))
        outputs = [f"f{tid}.{i}" for i in range(draw(st.integers(0, 2)))]
        tasks.append(Task(f"t{tid}", ("x",), tuple(inputs), tuple(outputs)))
        made += outputs
    tasks = draw(st.permutations(tasks))
    subset = st.sets(st.sampled_from(made)) if made else st.just(set[str]())
    read = {name for task in tasks for name in task.inputs}
    finals = (set(made) - read) | draw(subset)  # a file that nobody reads always is one
    done = draw(st.sets(st.integers(0, count - 1))) if count else set[int]()
    return Past(tasks, done, draw(subset), finals)


quickly = settings(max_examples=120, deadline=None)


@quickly
@given(pasts())
def test_what_is_skipped_is_what_by_definition_need_not_run(past: Past) -> None:
    skip, _, _ = past.skip()
    assert skip == set(range(len(past.tasks))) - past.must_run()


@quickly
@given(pasts())
def test_what_runs_finds_all_that_it_reads(past: Past) -> None:
    skip, used, plan = past.skip()
    needed = {name for tid, task in enumerate(past.tasks) if tid not in skip for name in task.inputs if name in plan.writers}
    assert used == {name for name in needed if plan.writers[name] in skip}
    assert used <= past.there, "what is not made again is there"
    assert past.finals <= past.there | {name for tid, task in enumerate(past.tasks) if tid not in skip for name in task.outputs}


def chain() -> list[Task]:
    names = ["in", "a", "b", "c", "out"]
    return [Task(f"t{i}", ("x",), (names[i],), (names[i + 1],)) for i in range(4)]


@pytest.mark.parametrize(
    ("done", "there", "skipped"),
    [
        ({0, 1, 2, 3}, {"out"}, {0, 1, 2, 3}),  # intermediate files were in memory, and nobody needs them
        ({0, 1, 2, 3}, {"a", "b", "c"}, {0, 1, 2}),  # somebody deleted the result
        ({0, 1, 2, 3}, {"a"}, {0}),
        ({0, 1, 2}, {"c"}, {0, 1, 2}),
        ({0, 1, 2}, {"b"}, {0, 1}),
        ({0, 1, 2}, set(), set()),
        ({0, 2}, {"a", "c"}, {0, 2}),  # an edited task in the middle
        (set(), {"a", "b", "c", "out"}, set()),  # files that are there prove nothing
    ],
)
def test_a_chain(done: set[int], there: set[str], skipped: set[int]) -> None:
    skip, used, _ = Past(chain(), done, there, {"out"}).skip()
    assert skip == skipped
    assert used <= there


def test_names_are_compared_in_their_one_spelling() -> None:
    tasks = [Task("a", ("x",), (), ("./d/../f",)), Task("b", ("x",), ("f",), ("out",))]
    skip, used, _ = Past(tasks, {0}, {"f"}, {"out"}).skip()
    assert (set(skip), used) == ({0}, {"f"})


def test_a_long_chain_is_no_problem() -> None:
    tasks = [Task(f"t{i}", ("x",), (f"f{i}",), (f"f{i + 1}",)) for i in range(50_000)]
    past = Past(tasks, set(range(49_999)), set(), {"f50000"})
    assert past.skip()[0] == frozenset()


# ── the whole of it ────────────────────────────────────────────────────────────────────────────────


def remains(
    tasks: Sequence[Task], done: dict[str, tuple[int, ...]], shared: dict[str, int], memory: dict[str, tuple[int, int]]
) -> Remains:
    return Remains(lambda tid: done.get(tasks[tid].id), lambda name: shared.get(name, -1), memory)


def test_files_are_used_from_where_they_are() -> None:
    tasks = [
        Task("a", ("x",), (), ("f", "g", "h"), keep=("f",)), Task("b", ("x",), ("f", "g"), ("out",)), Task("c", ("x",), ("f",), ("more",)),
    ]  # fmt: skip
    plan = check(Workflow(tasks), AnyPlace("/home/u"))
    tasks = list(tasks)
    left = remains(tasks, {"a": (1, 2, 3)}, {"f": 1}, {"f": (1, 77), "g": (2, 78), "h": (3, 79), "old": (4, 80)})
    found = resume_whole(tasks, plan, left, lambda task, name: name in (*task.keep, "out", "more"))
    assert found.skip == {0}
    assert found.ready == {"f"}
    assert found.adopt == [Adopted("g", 2, 78, 1)]
    assert sorted(found.discard) == ["f", "h", "old"]
    assert found.readers == {"f": 2, "g": 1}
    hashed = resume_whole(tasks, plan, left, lambda task, name: name in (*task.keep, "out", "more"), prefer_memory=True)
    assert (sorted(hashed.adopt), hashed.ready) == ([Adopted("f", 1, 77, 2), Adopted("g", 2, 78, 1)], set())


def test_a_file_of_another_size_is_not_the_one_that_was_made() -> None:
    tasks = [Task("a", ("x",), (), ("f",)), Task("b", ("x",), ("f",), ("out",))]
    plan = check(Workflow(tasks), AnyPlace("/home/u"))
    found = resume_whole(tasks, plan, remains(tasks, {"a": (1,)}, {}, {"f": (2, 77)}), lambda task, name: name == "out")
    assert (found.skip, found.adopt, found.discard) == (frozenset(), [], ["f"])


# ── lists that grow ────────────────────────────────────────────────────────────────────────────────


class EmptyPlace(AnyPlace):
    """Where there is one input file."""

    def missing(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if not name.endswith("in")}


class List:
    """A list that grows by these steps, and what runs of it."""

    def __init__(self, left: tuple[dict[str, tuple[int, ...]], dict[str, int], dict[str, tuple[int, int]]]) -> None:
        self.checker = StreamChecker(EmptyPlace("/home/u"))
        self.tasks: list[Task] = []
        self.list = ResumedList(self.tasks, self.checker.plan, remains(self.tasks, *left))
        self.running: set[int] = set()
        self.there: set[str] = set()
        self.discarded: set[str] = set()

    def add(self, *tasks: Task) -> Step:
        first = len(self.tasks)
        for task in tasks:
            assert self.checker.add(task) == []
            self.tasks.append(task)
        step = self.list.add(first)
        self.running.update(set(range(first, len(self.tasks))) - set(step.skip))
        return self.take(step)

    def take(self, step: Step) -> Step:
        assert not self.running & set(step.again), "it runs already"
        assert len(set(step.again)) == len(step.again)
        self.running.update(step.again)
        self.there.update(step.ready)
        self.there.update(at.name for at in step.adopt)
        self.discarded.update(step.discard)
        return step


def test_what_is_done_is_skipped_and_made_again_only_when_somebody_reads_it() -> None:
    tasks = [Task("a", ("x",), (), ("f",)), Task("b", ("x",), ("f",), ("g",)), Task("c", ("x",), ("g",), ("h",))]
    grown = List(({"a": (1,), "b": (2,), "c": (3,)}, {"h": 3}, {}))
    assert grown.add(*tasks) == Step(skip=(0, 1, 2))
    assert grown.list.want("h") == Step(), "it is on shared storage"
    assert grown.add(Task("new", ("x",), ("g",), ("i",))) == Step(again=(1, 0))
    assert grown.list.close() == Step()


def test_a_final_that_has_vanished_is_made_again_when_the_list_is_closed() -> None:
    grown = List(({"a": (1,), "b": (2,)}, {}, {}))
    assert grown.add(Task("a", ("x",), (), ("f",)), Task("b", ("x",), ("f",), ("g",))).skip == (0, 1)
    assert grown.take(grown.list.close()).again == (1, 0)


def test_the_writer_may_come_after_its_reader() -> None:
    grown = List(({"a": (1,)}, {}, {}))
    assert grown.add(Task("new", ("x",), ("f",), ("g",))) == Step()
    assert grown.add(Task("a", ("x",), (), ("f",))) == Step(), "new waits for what it makes"


def test_what_lies_in_the_store_under_the_name_of_what_is_made_again_must_go() -> None:
    grown = List(({"a": (1, 2)}, {}, {"f": (1, 77), "e": (9, 78)}))
    assert grown.add(Task("a", ("x",), (), ("f", "g"))).skip == (0,), "g is gone"
    assert grown.add(Task("edited", ("x",), (), ("e",))).discard == ("e",)
    assert grown.take(grown.list.want("g")) == Step(again=(0,), discard=("f",))


@quickly
@given(pasts(), st.randoms(use_true_random=False), st.booleans())
def test_what_runs_of_a_list_that_grows_has_all_that_it_reads(past: Past, random: Random, together: bool) -> None:
    """Whatever the order of the list and however it comes; files that are there are in the store or on shared storage."""
    tasks = [msgspec.structs.replace(task, keep=tuple(name for name in task.outputs if name in past.finals)) for task in past.tasks]
    stored = {name for name in past.there if random.random() < 0.5}
    done = {tasks[tid].id: (1,) * len(tasks[tid].outputs) for tid in past.done}
    grown = List((done, dict.fromkeys(past.there - stored, 1), dict.fromkeys(stored, (1, 77))))
    if together:
        grown.add(*tasks)
    else:
        for task in tasks:
            grown.add(task)
    grown.take(grown.list.close())
    writers = {name: tid for tid, task in enumerate(tasks) for name in task.outputs}
    assert {tid for tid, task in enumerate(tasks) if task.id not in done} <= grown.running
    for tid in grown.running:
        for name in tasks[tid].inputs:
            assert name == "in" or writers[name] in grown.running or name in grown.there
    for tid, task in enumerate(tasks):
        if tid not in grown.running:
            unread = {name for name in task.outputs if not any(name in other.inputs for other in tasks)}
            assert unread | set(task.keep) <= past.there, "what belongs on shared storage is there, or in the store as its final"
    made = {name for tid in grown.running for name in tasks[tid].outputs}
    assert made & stored == grown.discarded, "the store would keep the old ones"
