"""Jobs that are to become nodes: how their states follow from queue and members, and which of those that end are replaced."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from amfs.engine.jobs import (
    OPEN,
    OVER,
    PAUSES_S,
    ROUNDS,
    RUNS,
    STAYED_S,
    WAITS,
    Effect,
    GiveUp,
    Jobs,
    Members,
    Paused,
    QueueSays,
    QueueSilent,
    Refused,
    Row,
    Say,
    Submit,
    Submitted,
    TakenDown,
    Target,
    Told,
    Wish,
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


def members(*nodes: int, joining: dict[int, int] | None = None, draining: frozenset[int] = frozenset()) -> Members:
    """Node 0 founded the session, and has no slots."""
    return Members(frozenset({0, *nodes}), joining or {}, frozenset(nodes), draining)


def standing(count: int, wanted: int | None = None) -> Jobs:
    """A session of so many jobs, each of which has been a node for long: job k is node k."""
    jobs = Jobs(60.0)
    for number in range(1, count + 1):
        jobs.handle(Submitted(number, str(number)), 0.0)
    every = range(1, count + 1)
    jobs.handle(members(*every, joining={number: number for number in every}), 10.0)
    assert jobs.handle(Target(count if wanted is None else wanted), 20.0) == []
    return jobs


def submit(jobs: Jobs, effects: list[Effect], now: float) -> list[int]:
    """Carry out what was asked for: the numbers of the new jobs."""
    new = []
    for _ in range(asked(effects)):
        new.append(max(jobs.jobs) + 1)
        jobs.handle(Submitted(new[-1], str(new[-1])), now)
    return new


def asked(effects: list[Effect]) -> int:
    return sum(effect.count for effect in effects if isinstance(effect, Submit))


def test_nodes_that_end_by_themselves_are_replaced_once_also_several_at_a_time() -> None:
    jobs = standing(3)
    effects = jobs.handle(members(3), 100.0)
    assert effects == [Submit(2, "of 3 nodes 1 stays")]
    new = submit(jobs, effects, 100.0)
    assert jobs.handle(members(3), 101.0) == [] and jobs.handle(QueueSays({"1": Row(OVER, "TIMEOUT")}), 102.0) != []
    assert asked(jobs.handle(members(3, 8, joining={new[0]: 8}), 103.0)) == 0
    assert asked(jobs.handle(members(8), 200.0)) == 1  # one of the two is still on its way


def test_a_node_that_drains_by_itself_is_replaced_when_that_begins_and_not_again_when_it_has_left() -> None:
    jobs = standing(2)
    submit(jobs, effects := jobs.handle(members(1, 2, draining=frozenset({2})), 100.0), 100.0)
    assert asked(effects) == 1
    assert asked(jobs.handle(members(1), 130.0)) == 0


def test_what_was_told_to_leave_is_not_replaced_and_what_ends_meanwhile_is() -> None:
    jobs = standing(4)
    assert jobs.handle(Told((1,)), 100.0) == jobs.handle(members(1, 2, 3, 4), 100.1) == []  # it has not heard of it yet
    assert jobs.handle(Told((2,)), 100.2) == [] and jobs.wish.nodes == 2
    assert jobs.handle(members(2, 3, 4, draining=frozenset({2})), 101.0) == []
    assert asked(jobs.handle(members(4), 102.0)) == 1  # 3 was not told


def test_more_nodes_than_are_wanted_may_leave_or_end_and_the_least_number_stays_as_it_is() -> None:
    jobs = standing(4, wanted=4)
    jobs.handle(Target(2), 30.0)  # as with "amfs up --nodes 2..4"
    jobs.handle(Told((1,)), 100.0)
    assert jobs.wish.nodes == 2 and jobs.handle(members(2, 3, 4), 101.0) == jobs.handle(members(3, 4), 102.0) == []
    assert asked(jobs.handle(members(4), 103.0)) == 1


def test_a_node_that_joined_by_hand_counts() -> None:
    jobs = standing(1)
    jobs.handle(members(1, 9), 50.0)
    assert jobs.handle(Target(2), 60.0) == [] and asked(jobs.handle(members(1), 70.0)) == 1


def test_jobs_that_come_to_nothing_again_and_again_are_paused_for_longer_and_longer() -> None:
    jobs, now = standing(3), 100.0
    times = [submitted_at := now]
    submit(jobs, jobs.handle(members(), now), now)
    while len(times) < 8:
        now += 1.0
        effects = jobs.handle(QueueSays({job.job: Row(OVER, "FAILED") for job in jobs.in_state(*OPEN)}), now)
        assert (Paused() in effects) == (now - submitted_at == 1.0 and len(times) >= ROUNDS), now
        effects = jobs.handle(members(), now)
        assert asked(effects) in (0, 3)
        if submit(jobs, effects, now):
            submitted_at = now
            times.append(now)
    gaps = [after - before - 1.0 for before, after in pairwise(times)]
    assert gaps == [0.0] * (ROUNDS - 1) + [*PAUSES_S, PAUSES_S[-1]]
    assert "job " in jobs.wish.why and "FAILED" in jobs.wish.why


def test_what_was_submitted_before_a_pause_does_not_make_it_longer() -> None:
    jobs = standing(ROUNDS + 1)
    for left in range(ROUNDS, -1, -1):
        assert len(submit(jobs, jobs.handle(members(*range(1, left + 1)), 100.0 - left), 100.0)) == 1
    *others, last, after = [QueueSays({job.job: Row(OVER, "FAILED")}) for job in jobs.in_state(*OPEN)]
    assert [len(jobs.handle(one, 103.0)) for one in others] == [1] * (ROUNDS - 1)
    assert jobs.handle(last, 104.0)[1:] == [Paused()]
    assert len(jobs.handle(after, 105.0)) == 1 and jobs.wish.until == 104.0 + PAUSES_S[0]


def test_nodes_that_soon_end_are_counted_and_one_that_stays_ends_the_count() -> None:
    jobs, now = Jobs(60.0, wish=Wish(1)), 0.0
    jobs.handle(Submitted(1, "1"), 0.0)
    for number in range(1, ROUNDS + 1):
        jobs.handle(members(number, joining={number: number}), now)
        now += 5.0
        effects = jobs.handle(members(), now)
        assert (effects == [Paused()]) == (number == ROUNDS)
        submit(jobs, effects, now)
    assert jobs.wish.until == now + PAUSES_S[0] and "node 3 of job 3 ended after 5 s" in jobs.wish.why
    now = jobs.wish.until
    (last,) = submit(jobs, jobs.handle(members(), now), now)
    jobs.handle(members(9, joining={last: 9}), now)
    jobs.handle(members(9), now + STAYED_S)
    assert jobs.wish.failed == 0 and jobs.wish.until == 0.0
    assert asked(jobs.handle(members(), now + STAYED_S + 1.0)) == 1


def test_a_refusal_pauses_at_once_a_policy_waits_and_a_person_ends_the_pause() -> None:
    jobs = standing(2)
    assert asked(jobs.handle(members(1), 100.0)) == 1
    assert jobs.handle(Refused("no such project"), 100.0) == [Paused()] and jobs.wish.why == "no such project"
    assert jobs.handle(members(1), 159.0) == jobs.handle(Target(3, again=False), 159.0) == []
    assert asked(jobs.handle(Target(3), 159.0)) == 2
    assert jobs.handle(Refused("no such project"), 159.0) == [Paused()] and jobs.wish.until == 159.0 + PAUSES_S[0]
    assert jobs.handle(members(1), 218.0) == [] and asked(jobs.handle(members(1), 219.0)) == 2


def test_what_will_never_start_pauses_at_once() -> None:
    jobs = standing(1)
    submit(jobs, jobs.handle(members(), 100.0), 100.0)
    effects = jobs.handle(QueueSays({"2": Row(WAITS, "PartitionTimeLimit", never=True)}), 101.0)
    assert effects == [GiveUp(2, "2", "PartitionTimeLimit"), Paused()]


def test_a_node_whose_limit_nears_gets_a_successor_before_and_that_is_no_failure() -> None:
    jobs = Jobs(60.0)
    jobs.handle(Submitted(1, "1"), 0.0)
    jobs.handle(Members(frozenset({0, 1}), {1: 1}, frozenset({1}), ends={1: 3640.0}), 40.0)  # it has waited for 40 s, and has an hour
    jobs.handle(Target(1), 50.0)
    ahead = 3640.0 - 60.0 - 40.0  # the drain, and the wait of the successor
    assert jobs.handle(members(1), ahead - 1.0) == []
    assert len(submit(jobs, jobs.handle(members(1), ahead), ahead)) == 1
    assert asked(jobs.handle(members(1, 2, joining={2: 2}), 3590.0)) == asked(jobs.handle(members(2), 3630.0)) == 0
    assert jobs.wish.failed == 0


@pytest.mark.parametrize(("lived", "failed"), [(9.0, 1), (25.0, 1), (35.0, 0), (50.0, 0)])
def test_a_job_of_a_minute_that_was_a_node_for_half_of_it_is_no_failure(lived: float, failed: int) -> None:
    jobs = Jobs(60.0, wish=Wish(1))
    jobs.handle(Submitted(1, "1"), 0.0)
    jobs.handle(Members(frozenset({0, 1}), {1: 1}, frozenset({1}), ends={1: 60.0}), 0.0)
    assert asked(jobs.handle(members(), lived)) == 1 and jobs.wish.failed == failed


def test_nothing_is_submitted_while_the_queue_is_silent_nor_when_the_session_is_taken_down() -> None:
    jobs = standing(2)
    jobs.handle(QueueSilent("no controller"), 90.0)
    assert jobs.handle(members(1), 100.0) == []
    jobs.handle(QueueSays({}), 110.0)
    assert asked(jobs.handle(members(1), 111.0)) == 1
    jobs.handle(TakenDown(), 112.0)
    assert jobs.handle(members(), 113.0) == jobs.handle(Target(3), 114.0) == []


def test_another_process_goes_on_with_what_was_written_down() -> None:
    jobs = standing(2)
    jobs.handle(Refused("no"), 100.0)
    again = Jobs(60.0, jobs.jobs, jobs.wish)
    assert asked(again.handle(members(1), 200.0)) == 1


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: no illegal move, no job is given up twice, silence changes nothing. Each end that nobody ordered
    has at most one job submitted; while nothing is paused there are as many nodes as are wanted, or jobs on their way."""

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.jobs, self.now, self.given_up, self.refuses = Jobs(60.0), 0.0, set[int](), False
        self.nodes: set[int] = set()  # members
        self.draining: set[int] = set()
        self.told: set[int] = set()
        self.joining: dict[int, int] = {}
        self.last = 0  # node
        self.owed = 0  # jobs that may be submitted
        for number in range(count):
            self.jobs.handle(Submitted(number, str(number)), 0.0)

    # ── what happens in the session ──

    @rule(data=st.data())
    def job_becomes_node(self, data: st.DataObject) -> None:
        if able := sorted({job.number for job in self.jobs.in_state(*OPEN)} - self.joining.keys()):
            self.last += 1
            self.joining[data.draw(st.sampled_from(able))] = self.last
            self.nodes.add(self.last)

    @rule()
    def node_joins_by_hand(self) -> None:
        self.last += 1
        self.nodes.add(self.last)

    @rule(data=st.data(), drains=st.booleans())
    def node_ends(self, data: st.DataObject, drains: bool) -> None:
        if self.nodes:
            node = data.draw(st.sampled_from(sorted(self.nodes)))
            self.owed += node not in self.told and node not in self.draining
            (self.draining.add if drains else self.nodes.discard)(node)
            self.draining &= self.nodes

    @rule(data=st.data())
    def person_tells_nodes_to_leave(self, data: st.DataObject) -> None:
        if able := sorted(self.nodes - self.draining):
            chosen = data.draw(st.lists(st.sampled_from(able), max_size=2, unique=True))
            seen = self.jobs.stay & set(chosen)
            self.note(self.jobs.handle(Told(tuple(chosen)), self.now))
            self.told |= seen  # of one that nobody has seen yet it cannot be known

    @rule(refuses=st.booleans())
    def look(self, refuses: bool) -> None:
        self.refuses = refuses
        self.note(self.jobs.handle(members(*self.nodes, joining=self.joining, draining=frozenset(self.draining)), self.now))
        assert all(job.node in self.nodes for job in self.jobs.in_state(JobState.JOINED))
        wish = self.jobs.wish
        assert self.jobs.expected >= wish.nodes or self.now < wish.until or self.jobs.silent_since is not None

    @rule(nodes=st.integers(1, 6), again=st.booleans(), refuses=st.booleans())
    def order(self, nodes: int, again: bool, refuses: bool) -> None:
        self.refuses = refuses
        self.owed = max(0, nodes - self.jobs.expected) + len(self.jobs.stay - self.nodes) + len(self.jobs.stay & self.draining)
        self.note(self.jobs.handle(Target(nodes, again), self.now))
        assert self.jobs.wish.nodes == nodes
        assert not again or self.refuses or self.jobs.expected >= nodes

    # ── what the queue says ──

    @rule(rows=st.dictionaries(st.sampled_from("0123456789"), ROWS))
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

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    def note(self, effects: list[Effect]) -> None:
        new = [effect for effect in effects if isinstance(effect, GiveUp)]
        assert not {effect.number for effect in new} & self.given_up
        self.given_up |= {effect.number for effect in new}
        self.owed += sum(effect.why != "fewer nodes are wanted" and effect.number not in self.joining for effect in new)
        for effect in effects:
            if isinstance(effect, Submit):
                assert effect.count == self.jobs.wish.nodes - self.jobs.expected > 0, "never more than are wanted"
                assert self.now >= self.jobs.wish.until and self.jobs.silent_since is None
                assert effect.count <= self.owed, "nothing has ended that this would replace"
                for _ in range(effect.count - self.refuses):
                    self.jobs.handle(Submitted(max(self.jobs.jobs) + 1, str(max(self.jobs.jobs) + 1)), self.now)
                    self.owed -= 1
                if self.refuses:
                    assert self.jobs.handle(Refused("no"), self.now) == [Paused()] and self.jobs.wish.until > self.now

    @invariant()
    def holds(self) -> None:
        self.jobs.check_invariants()
        assert self.given_up == {job.number for job in self.jobs.in_state(JobState.GIVEN_UP)}


TestAnyOrder = AnyOrder.TestCase
