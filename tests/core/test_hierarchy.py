"""Tasks that stand for workflows whose documents other tasks make, as the submitter sees them: when each goes out, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from parts import BASE, CLIENT, RUN, info, result
from recorder import Recorder

from amfs.engine.hierarchy import Within, join
from amfs.engine.submitter import Submitter
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Ended, Expand, Expanded, NotExpanded
from amfs.vocabulary.states import FAILED, FINISHED, PENDING, Outcome
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import check
from amfs.workflow.specs import SpecMaker
from amfs.workflow.workflow import Task, Workflow


class Later:
    """A document; here it is only known that there is one."""

    document = "doc"

    def expand(self, *args: Any) -> Workflow:
        raise AssertionError("the machine does not read")


def task(name: str, inputs: str = "", outputs: str = "", after: str = "") -> Task:
    return Task(name, ("run", name), tuple(inputs.split()), tuple(outputs.split()), after=tuple(after.split()))


class Run(Recorder[Submitter]):
    """A run in which the tasks named in ``later`` stand for others; their documents are given with ``expand``."""

    def __init__(self, *tasks: Task, later: str = "S", known: dict[str, tuple[range, int]] | None = None, skip: str = "") -> None:
        self.tasks = list(tasks)
        workflow = Workflow(self.tasks, later={name: Later() for name in later.split()}, known_later=known or {})
        self.plan = check(workflow, AnyPlace(BASE))
        maker = SpecMaker("7/", self.plan)
        skipped = frozenset(self.tid(name) for name in skip.split())
        super().__init__(Submitter(CLIENT, RUN, info(), self.tasks, self.plan, maker=maker, skip=skipped))
        self.tell(0, m.View(1, 0, (m.Member(0, 1, (), 2),), (0,), 0))
        self.take_all(m.RunBegin)

    def tid(self, name: str) -> int:
        return [task.id for task in self.tasks].index(name)

    def went(self) -> str:
        """The tasks that were sent out since last asked."""
        return " ".join(self.tasks[spec.tid].id for _, submit in self.take_all(m.Submit) for spec in submit.tasks)

    def wanted(self) -> str:
        return " ".join(self.tasks[effect.tid].id for effect in self.effects_of(Expand))

    def ends(self, *names: str, outcome: Outcome = Outcome.OK) -> None:
        self.tell(0, m.Results(RUN, tuple(result(self.tid(name), outcome) for name in names)))
        self.effects_of(Ended)

    def expand(self, name: str, *tasks: Task, later: str = "") -> None:
        first = len(self.tasks)
        found = Workflow(list(tasks), later={each: Later() for each in later.split()})
        more = check(found, Within(AnyPlace(BASE), self.plan))
        self.tasks += tasks
        self.feed(Expanded(self.tid(name), join(self.plan, more, first)))

    def state(self, name: str) -> int:
        return self.machine.state[self.tid(name)]


ORDINARY = (task("R", "out", after="S"), task("T", after="R"), task("S", "doc a", "out"), task("M", "", "doc a"), task("X"))


def test_a_document_is_wanted_when_all_has_finished_and_nothing_behind_it_goes_out_before() -> None:
    run = Run(*ORDINARY)
    assert run.went() == "M X"
    assert run.wanted() == ""
    run.ends("M")
    assert (run.wanted(), run.went()) == ("S", "")
    run.expand("S", task("S.q", "mid", "out"), task("S.p", "a", "mid"))
    assert run.went() == "S.p S.q", "each after those for which it waits"
    run.ends("S.p")
    assert run.state("S") == PENDING
    run.ends("S.q")
    assert run.state("S") == FINISHED
    assert run.went() == "R T"
    run.ends("R", "T")
    assert not run.take_all(m.RunEnd)
    run.ends("X")
    assert run.take_all(m.RunEnd)


def test_files_that_its_tasks_may_read_are_not_counted() -> None:
    run = Run(*ORDINARY)
    (made,) = [spec for _, submit in run.take_all(m.Submit) for spec in submit.tasks if spec.tid == run.tid("M")]
    assert {retention >> 1 for retention in made.retentions} == {m.KEEP}
    run.ends("M")
    run.expand("S", task("S.p", "a", "mid"), task("S.q", "mid", "out"))
    retentions = {run.tasks[spec.tid].id: spec.retentions for _, submit in run.take_all(m.Submit) for spec in submit.tasks}
    assert retentions["S.p"] == (m.retention(1),)
    assert retentions["S.q"] == (m.retention(1),), "read by a task of the workflow around it"


def test_a_task_that_fails_inside_fails_what_comes_after() -> None:
    run = Run(*ORDINARY)
    run.went()
    run.ends("M")
    run.expand("S", task("S.p", "", "out"), task("S.q"))
    run.went()
    run.ends("S.p", outcome=Outcome.EXIT)
    assert run.state("S") == PENDING, "the others in it still run"
    run.ends("S.q")
    assert run.state("S") == FAILED
    assert run.machine.causes[run.tid("S")] == f"task #{run.tid('S.p')} failed"
    assert run.went() == "R T"
    token = f"7/./{run.tid('S')}"
    assert any(token in poison.names for _, poison in run.take_all(m.Poison))


@pytest.mark.parametrize("how", ["refused", "upstream"])
def test_what_is_never_known_fails_what_comes_after(how: str) -> None:
    run = Run(*ORDINARY)
    run.went()
    if how == "refused":
        run.ends("M")
        assert run.wanted() == "S"
        run.feed(NotExpanded(run.tid("S"), "it is no workflow"))
        (ended,) = run.effect(Ended).results
        assert (ended.outcome, ended.detail) == (Outcome.SETUP, "it is no workflow")
    else:
        run.ends("M", outcome=Outcome.EXIT)
        assert run.wanted() == ""
    assert run.state("S") == FAILED
    assert run.went() == "R T"
    poisoned = {name for _, poison in run.take_all(m.Poison) for name in poison.names}
    assert {"7/out", f"7/./{run.tid('S')}"} <= poisoned


def test_one_within_another_and_one_after_another() -> None:
    run = Run(task("M", "", "doc"), task("S", "doc", "d2"), task("S2", "d2"), task("Z", after="S2"), later="S S2")
    run.went()
    run.ends("M")
    assert run.wanted() == "S"
    run.expand("S", task("S.m", "", "x"), task("S.T", "x", "d2"), task("S.n", "d2", after="S.T"), later="S.T")
    assert run.went() == "S.m"
    run.ends("S.m")
    assert run.wanted() == "S.T"
    run.expand("S.T", task("S.T.w", "", "d2"))
    assert run.went() == "S.T.w"
    run.ends("S.T.w")
    assert run.went() == "S.n"
    assert run.wanted() == "", "S has not ended"
    run.ends("S.n")
    assert run.wanted() == "S2"
    run.expand("S2")
    assert run.went() == "Z", "there was nothing in it"


def test_a_long_chain_of_them_ends_at_once_when_its_beginning_fails() -> None:
    count = 3000
    chain = [task(f"S{i}", f"d{i}", f"d{i + 1}") for i in range(count)]
    run = Run(task("M", "", "d0"), *chain, task("Z", f"d{count}"), later=" ".join(each.id for each in chain))
    run.went()
    run.ends("M", outcome=Outcome.EXIT)
    assert run.machine.failed == count + 1
    assert run.went() == "Z"


def test_of_an_earlier_run_it_is_known_already() -> None:
    tasks = (task("M", "", "doc"), task("S", "doc"), task("R", after="S"), task("S.p", "", "o"), task("S.q", "o"))
    run = Run(*tasks, known={"S": (range(3, 5), 0)}, skip="M S.p")
    assert run.wanted() == ""
    assert run.went() == "S.q"
    run.ends("S.q")
    assert run.went() == "R"
    done = Run(*tasks, known={"S": (range(3, 5), 0)}, skip="M S.p S.q")
    assert done.state("S") == FINISHED
    assert done.went() == "R"


def test_of_an_earlier_run_and_made_again_it_is_compared() -> None:
    tasks = (task("M", "", "doc"), task("S", "doc"), task("R", after="S"), task("S.p", "", "o"))
    run = Run(*tasks, known={"S": (range(3, 4), 0)}, skip="S.p")
    assert run.went() == "M"
    run.ends("M")
    assert (run.wanted(), run.went()) == ("S", "")
    run.feed(Expanded(run.tid("S"), ()))
    assert run.went() == "R"
