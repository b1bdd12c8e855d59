"""What need not run again (``engine.resume``), against a definition that tries until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.engine.checks import AnyPlace, Plan, check
from amfs.engine.resume import to_skip
from amfs.engine.workflow import Task, Workflow


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
        """By definition: what did not finish, has lost a final, or made what one that must run reads and is not there. To the least
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
    finals = (set(made) - read) | draw(subset)  # what nobody reads always is one
    done = draw(st.sets(st.integers(0, count - 1))) if count else set[int]()
    return Past(tasks, done, draw(subset), finals)


quickly = settings(max_examples=300, deadline=None)


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
