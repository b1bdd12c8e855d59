"""Jobs that are to become nodes: what is concluded of them, and what is not."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from amfs.engine.jobs import (
    OPEN,
    OVER,
    RUNS,
    WAITS,
    Effect,
    GiveUp,
    Jobs,
    Members,
    QueueSays,
    QueueSilent,
    Row,
    Say,
    Submit,
    Submitted,
    Target,
)
from amfs.vocabulary.job_states import JobState

ROWS = st.builds(Row, st.sampled_from((WAITS, RUNS, OVER)), st.sampled_from(("", "x")), st.booleans())


def one() -> Jobs:
    jobs = Jobs(60.0)
    jobs.handle(Submitted(1, "a"), 0.0)
    return jobs


def test_a_job_waits_runs_joins_and_ends_with_its_reason() -> None:
    jobs = one()
    assert jobs.handle(QueueSays({"a": Row(WAITS, "Resources")}), 1.0) == [Say("job a waits for Resources")]
    assert jobs.handle(QueueSays({"a": Row(WAITS, "Resources")}), 2.0) == []
    assert jobs.handle(QueueSays({"a": Row(RUNS)}), 3.0) == []
    assert jobs.handle(Members(frozenset({0, 4}), {1: 4}), 4.0) == [Say("job a is node 4")]
    assert jobs.handle(QueueSays({"a": Row(OVER, "TIMEOUT")}), 5.0) == [] and jobs.jobs[1].state is JobState.JOINED
    jobs.handle(Members(frozenset({0}), {}), 6.0)
    assert jobs.jobs[1].state is JobState.ENDED
    assert jobs.handle(QueueSays({"a": Row(OVER, "TIMEOUT")}), 7.0) == [Say("job a, node 4, ended: TIMEOUT")]
    assert jobs.handle(QueueSays({"a": Row(OVER, "TIMEOUT")}), 8.0) == []


def test_what_will_never_pass_is_given_up_at_once() -> None:
    assert one().handle(QueueSays({"a": Row(WAITS, "PartitionConfig", never=True)}), 1.0) == [GiveUp(1, "a", "PartitionConfig")]


def test_a_job_that_is_over_before_it_joined_is_given_up() -> None:
    assert one().handle(QueueSays({"a": Row(OVER, "FAILED")}), 1.0) == [GiveUp(1, "a", "FAILED")]


def test_a_job_that_runs_and_does_not_join_is_given_up_after_a_while() -> None:
    jobs = one()
    running = QueueSays({"a": Row(RUNS)})
    assert jobs.handle(running, 100.0) == jobs.handle(running, 159.0) == []
    assert jobs.handle(running, 160.0) == [GiveUp(1, "a", "it is no node after 60 s")]
    assert jobs.handle(Members(frozenset({4}), {1: 4}), 161.0) == []


def test_no_answer_concludes_nothing_and_is_said_once() -> None:
    jobs = one()
    assert jobs.handle(QueueSilent("no controller"), 1.0) == [Say("the batch system does not answer: no controller; jobs go on")]
    assert jobs.handle(QueueSilent("no controller"), 1e6) == []
    assert jobs.handle(QueueSays({}), 1e6) == [Say("the batch system answers again")]
    assert jobs.jobs[1].state is JobState.SUBMITTED


def test_an_order_for_more_nodes_counts_those_that_are_on_their_way() -> None:
    jobs = one()
    jobs.handle(Submitted(2, "b"), 0.0)
    jobs.handle(Members(frozenset({4}), {1: 4}), 1.0)
    assert jobs.handle(Target(5), 2.0) == [Submit(3)]
    assert jobs.handle(Target(2), 3.0) == []
    assert jobs.handle(Target(1), 4.0) == [GiveUp(2, "b", "fewer nodes are wanted")]
    assert jobs.handle(Target(1), 5.0) == [] and jobs.jobs[1].state is JobState.JOINED  # nodes drain, they are not cancelled


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: no illegal move, no job is given up twice, silence changes nothing."""

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.jobs, self.now, self.given_up = Jobs(60.0), 0.0, set[int]()
        for number in range(count):
            self.jobs.handle(Submitted(number, str(number)), 0.0)

    @rule(rows=st.dictionaries(st.sampled_from("01234"), ROWS))
    def queue_says(self, rows: dict[str, Row]) -> None:
        before = {number: job.state for number, job in self.jobs.jobs.items()}
        self.note(self.jobs.handle(QueueSays(rows), self.now))
        assert all(job.state is before[number] for number, job in self.jobs.jobs.items() if job.job not in rows)
        assert all(self.jobs.jobs[number].state is state for number, state in before.items() if state not in OPEN)

    @rule()
    def queue_is_silent(self) -> None:
        before = {number: job.state for number, job in self.jobs.jobs.items()}
        self.note(self.jobs.handle(QueueSilent("away"), self.now))
        assert before == {number: job.state for number, job in self.jobs.jobs.items()}

    @rule(nodes=st.frozensets(st.integers(10, 14)), joining=st.dictionaries(st.integers(0, 3), st.integers(10, 14)))
    def members(self, nodes: frozenset[int], joining: dict[int, int]) -> None:
        self.note(self.jobs.handle(Members(nodes, joining), self.now))
        assert all(job.node in nodes for job in self.jobs.in_state(JobState.JOINED))

    @rule(nodes=st.integers(1, 6))
    def order(self, nodes: int) -> None:
        effects = self.jobs.handle(Target(nodes), self.now)
        self.note(effects)
        there, waiting = len(self.jobs.in_state(JobState.JOINED)), len(self.jobs.in_state(*OPEN))
        more = sum(effect.count for effect in effects if isinstance(effect, Submit))
        assert there + waiting + more == max(nodes, there)
        for number in range(10, 10 + more):
            self.jobs.handle(Submitted(max(self.jobs.jobs) + 1, str(number)), self.now)

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    def note(self, effects: list[Effect]) -> None:
        new = {effect.number for effect in effects if isinstance(effect, GiveUp)}
        assert not new & self.given_up
        self.given_up |= new

    @invariant()
    def holds(self) -> None:
        self.jobs.check_invariants()
        assert self.given_up == {job.number for job in self.jobs.in_state(JobState.GIVEN_UP)}


TestAnyOrder = AnyOrder.TestCase
