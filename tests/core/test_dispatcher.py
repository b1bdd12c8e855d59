"""The dispatcher, as stories and under random orders: who gets which task, what is tried again, how every task ends once.

The node under test is 0. Its unit is nodes 0 to 3 (the stories say when it is smaller), node 8 belongs to another unit, node 9 keeps the
records of all files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from parts import CLIENT, RUN, SCOPE, begin, key, keys, result, spec
from recorder import Recorder

from amfs.config import DispatcherLimits
from amfs.engine.dispatcher import EXCUSED_MAX, Dispatcher
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.records import unpack_body
from amfs.vocabulary.states import Outcome, RecordState

SHARD, ELSEWHERE = 9, 8
LIMITS = DispatcherLimits()


class Unit(Recorder[Dispatcher]):
    """A dispatcher with its workers."""

    def __init__(self, workers: Sequence[int] = (0, 1, 2, 3), *, slots: int = 2, begun: bool = True, **of_run: Any) -> None:
        super().__init__(Dispatcher(0))
        self.slots = slots
        self.view(*workers)
        if begun:
            self.tell(CLIENT, begin(**of_run)).nothing_left()

    def view(self, *workers: int) -> Self:
        """From now on these are the nodes of the unit."""
        unit = dict.fromkeys(workers, self.slots)
        return self.feed(MembersChanged(PartitionTable([SHARD] * 4), {**unit, ELSEWHERE: 1, SHARD: 1}, set(), (), unit))

    def submit(self, *specs: m.TaskSpec) -> Self:
        return self.tell(CLIENT, m.Submit(RUN, specs))

    def assigned(self) -> dict[int, list[int]]:
        """worker -> tasks it was given since last asked, in order."""
        given: dict[int, list[int]] = {}
        for worker, message in self.take_all(m.Assign):
            given.setdefault(worker, []).extend(task.tid for task in message.tasks)
        return given

    def done(self, worker: int, *results: m.Result, parked: int = 0) -> Self:
        return self.tell(worker, m.Done(RUN, results, parked))

    def results(self) -> list[tuple[int, int]]:
        """(task, outcome) as the submitter was told since last asked."""
        return [(one.tid, one.outcome) for _, told in self.take_all(m.Results, CLIENT) for one in told.results]


# ── who gets what ──────────────────────────────────────────────────────────────────────────────────


def test_a_short_list_is_dealt_evenly() -> None:
    unit = Unit(data_aware=False).submit(*(spec(tid) for tid in range(8)))
    assert unit.assigned() == {0: [0, 4], 1: [1, 5], 2: [2, 6], 3: [3, 7]}
    unit.nothing_left()


def test_a_long_list_is_dealt_evenly_in_few_messages() -> None:
    unit = Unit(data_aware=False).submit(*(spec(tid) for tid in range(400)))
    assert len(unit.sent) == 4
    given = unit.assigned()
    shares = [len(tids) for tids in given.values()]
    assert sum(shares) == 400
    assert max(shares) - min(shares) <= 32, "at most a hand more than the others"
    assert all(tids == sorted(tids) for tids in given.values())


def test_tasks_follow_the_producers_of_their_inputs() -> None:
    unit = Unit().submit(*(spec(tid, outputs=f"f{tid}") for tid in range(4)))
    made = {tids[0]: worker for worker, tids in unit.assigned().items()}
    unit.submit(spec(10, "f3"), spec(11, "f3"), spec(12, "f1 f2 f2b"), spec(13, "f0 f1"))
    where = {tid: worker for worker, tids in unit.assigned().items() for tid in tids}
    assert where[10] == where[11] == made[3]
    assert where[12] in (made[1], made[2])
    assert where[13] in (made[0], made[1])


def test_the_majority_of_the_inputs_decides() -> None:
    unit = Unit([0, 1]).submit(*(spec(tid, outputs=f"f{tid}") for tid in range(6)))
    where = {tid: worker for worker, tids in unit.assigned().items() for tid in tids}
    one = next(tid for tid in where if where[tid] == 0)
    two = [tid for tid in where if where[tid] == 1][:2]
    unit.submit(spec(10, f"f{one} f{two[0]} f{two[1]}"))
    assert unit.assigned() == {1: [10]}


def test_producers_on_lost_nodes_do_not_count() -> None:
    unit = Unit([0, 1], data_aware=True).submit(spec(0, outputs="f0"), spec(1, outputs="f1"))
    unit.assigned()
    unit.done(0, result(0)).done(1, result(1)).results()
    unit.view(0, 2).submit(spec(2, "f1"), spec(3, "f1"))
    assert sorted(unit.assigned()) == [0, 2]


def test_a_worker_has_no_more_than_a_window_and_gets_more_as_it_ends_some() -> None:
    unit = Unit([0, 1], data_aware=False).submit(*(spec(tid) for tid in range(1000)))
    given = unit.assigned()
    assert [len(tids) for tids in given.values()] == [LIMITS.window_min] * 2
    first = given[0][:10]
    unit.done(0, *(result(tid) for tid in first))
    assert unit.results() == [(tid, 0) for tid in first]
    assert {worker: len(tids) for worker, tids in unit.assigned().items()} == {0: 10}
    unit.nothing_left()


def test_the_window_grows_with_the_slots() -> None:
    unit = Unit([0], slots=100).submit(*(spec(tid) for tid in range(1000)))
    assert len(unit.assigned()[0]) == 100 * LIMITS.window_per_slot


def test_tasks_that_wait_for_input_take_no_room() -> None:
    unit = Unit([0, 1], data_aware=False).submit(*(spec(tid, "late") for tid in range(1000)))
    given = unit.assigned()
    unit.done(1, parked=50)
    assert {worker: len(tids) for worker, tids in unit.assigned().items()} == {1: 50}
    told = unit.take(m.Results, CLIENT)
    assert (told.results, told.parked) == ((), 50), "the submitter lends a credit for each"
    unit.done(1, *(result(tid) for tid in given[1][:50]), parked=0)
    assert unit.assigned() == {}, "they are not parked any more, and take room"


def test_what_had_its_turn_before_is_given_out_although_there_is_no_room() -> None:
    """The room may be full of tasks that wait for just this one."""
    unit = Unit([0]).submit(*(spec(tid) for tid in range(LIMITS.window_min)))
    assert len(unit.assigned()[0]) == LIMITS.window_min
    unit.submit(spec(900)).nothing_left()
    unit.submit(spec(901, attempt=1))
    assert unit.assigned() == {0: [901]}


def test_what_had_its_turn_before_takes_no_room() -> None:
    """A dispatcher dies, and this one gets its tasks. They wait for a task that this one has had in its queue all the time: if they
    used up the workers' room, that task would never be given out (simulator seed 500566)."""
    unit = Unit([0, 1], data_aware=False).submit(*(spec(900 + tid, "late", attempt=1) for tid in range(2 * LIMITS.window_min)))
    assert [len(tids) for tids in unit.assigned().values()] == [LIMITS.window_min] * 2, "and they are spread"
    unit.submit(*(spec(tid, outputs=f"f{tid}") for tid in range(2 * LIMITS.window_min + 1)))
    assert [len(tids) for tids in unit.assigned().values()] == [LIMITS.window_min] * 2


def test_a_pinned_task_goes_to_its_node_even_in_another_unit() -> None:
    unit = Unit().submit(spec(1, pin=3), spec(2, pin=ELSEWHERE), spec(3, pin=3, pin_hard=False))
    assert unit.assigned() == {3: [1, 3], ELSEWHERE: [2]}
    unit.done(ELSEWHERE, result(2))
    assert unit.results() == [(2, 0)]


def test_a_demand_for_a_node_that_is_not_there_fails_the_task() -> None:
    unit = Unit().submit(spec(1, "in", "out", pin=77))
    told = unit.take(m.Results, CLIENT)
    assert [(one.outcome, one.detail) for one in told.results] == [(Outcome.SETUP, "must run on node 77, which is not there")]
    assert unit.take(m.Poison, SHARD) == m.Poison(RUN, keys("out"), "task #1 failed")
    assert unit.take(m.Release, SHARD) == m.Release(RUN, keys("in"))
    unit.nothing_left()


def test_a_wish_for_a_node_that_is_not_there_is_only_a_wish() -> None:
    unit = Unit([0]).submit(spec(1, pin=77, pin_hard=False), spec(2))
    assert unit.assigned() == {0: [1, 2]}


def test_pinned_tasks_do_not_stop_the_others() -> None:
    unit = Unit([0, 1], data_aware=False).submit(spec(1), spec(2, pin=1), spec(3), spec(4, pin=0), spec(5))
    given = unit.assigned()
    assert sorted(given[0] + given[1]) == [1, 2, 3, 4, 5]
    assert 2 in given[1]
    assert 4 in given[0]


# ── how tasks end ──────────────────────────────────────────────────────────────────────────────────


def test_a_failed_task_poisons_its_outputs_and_releases_its_inputs() -> None:
    unit = Unit([0]).submit(spec(1, "a b", "c d")).forget()
    unit.done(0, result(1, Outcome.EXIT, detail="exit status 1"))
    assert unit.results() == [(1, Outcome.EXIT)]
    assert unit.take(m.Poison, SHARD) == m.Poison(RUN, keys("c d"), "task #1 failed")
    assert unit.take(m.Release, SHARD) == m.Release(RUN, keys("a b"))
    unit.nothing_left()


def test_those_downstream_are_told_the_first_cause() -> None:
    unit = Unit([0]).submit(spec(2, "c", "e")).forget()
    unit.done(0, result(2, Outcome.UPSTREAM_FAILED, detail="task #1 failed"))
    assert unit.take(m.Poison, SHARD).cause == "task #1 failed"


def test_retries_wait_ever_longer_and_then_the_task_fails() -> None:
    unit = Unit([0]).submit(spec(1, outputs="out", retries=3))
    waits = []
    for attempt in range(4):
        (task,) = unit.take(m.Assign, 0).tasks
        assert (task.tid, task.attempt) == (1, attempt)
        unit.nothing_left()
        unit.done(0, result(1, Outcome.SIGNAL, attempt=attempt))
        if attempt < 3:
            (at,) = unit.timers.values()
            waits.append(at - unit.now)
            unit.advance(waits[-1] * 0.99).nothing_left()
            unit.advance(waits[-1] * 0.02)
    assert waits == pytest.approx([LIMITS.backoff_first_s * 2**i for i in range(3)])
    assert unit.results() == [(1, Outcome.SIGNAL)]
    unit.take(m.Poison)
    assert not unit.timers
    unit.nothing_left()


def test_the_wait_is_bounded() -> None:
    unit = Unit([0]).submit(spec(1, retries=50)).forget()
    for attempt in range(12):
        unit.done(0, result(1, Outcome.EXIT, attempt=attempt)).advance(LIMITS.backoff_last_s)
        assert unit.take(m.Assign, 0).tasks[0].attempt == attempt + 1


@pytest.mark.parametrize("outcome", [Outcome.UPSTREAM_FAILED, Outcome.CANCELLED])
def test_some_failures_would_only_repeat(outcome: Outcome) -> None:
    unit = Unit([0]).submit(spec(1, retries=5)).forget()
    unit.done(0, result(1, outcome))
    assert unit.results() == [(1, outcome)]
    unit.nothing_left()


def test_a_task_without_retries_fails_at_once() -> None:
    unit = Unit([0]).submit(spec(1)).forget()
    unit.done(0, result(1, Outcome.TIME_LIMIT))
    assert unit.results() == [(1, Outcome.TIME_LIMIT)]


def test_the_first_success_wins_and_what_comes_later_is_ignored() -> None:
    unit = Unit([0]).submit(spec(1, retries=1)).forget()
    unit.done(0, result(1, Outcome.EXIT)).advance(1).forget()
    unit.done(0, result(1, attempt=0))  # the old attempt: thought failed, but here it is
    assert unit.results() == [(1, 0)]
    unit.done(0, result(1, Outcome.EXIT, attempt=1)).done(0, result(1, attempt=1)).nothing_left()


def test_a_success_during_the_wait_for_the_next_attempt_ends_the_wait() -> None:
    unit = Unit([0]).submit(spec(1, retries=1)).forget()
    unit.done(0, result(1, Outcome.EXIT))
    assert unit.timers
    unit.done(0, result(1))
    assert unit.results() == [(1, 0)]
    assert not unit.timers
    unit.advance(60).nothing_left()


def test_failures_of_attempts_that_nobody_waits_for_are_ignored() -> None:
    unit = Unit([0, 1]).submit(spec(1, retries=5)).forget()
    worker = unit.machine.runs[RUN].records[1].worker
    unit.view(1 - worker)
    assert unit.take(m.Assign, 1 - worker).tasks[0].attempt == 1
    unit.done(worker, result(1, Outcome.EXIT, attempt=0)).nothing_left()
    assert not unit.timers
    unit.done(1 - worker, result(1, attempt=1))
    assert unit.results() == [(1, 0)]


# ── workers and runs come and go ───────────────────────────────────────────────────────────────────


def test_tasks_of_a_lost_worker_are_given_to_others_first_of_all() -> None:
    unit = Unit([0, 1], data_aware=False).submit(*(spec(tid) for tid in range(300)))
    given = unit.assigned()
    unit.view(0)
    assert unit.assigned() == {0: given[1]}, "although its window is full"
    unit.done(0, *(result(tid, attempt=1) for tid in given[1]), *(result(tid) for tid in given[0]))
    assert sorted(unit.results()) == [(tid, 0) for tid in range(256)]
    assert unit.assigned() == {0: list(range(256, 300))}


def test_a_new_worker_gets_its_share() -> None:
    unit = Unit([0], data_aware=False).submit(*(spec(tid) for tid in range(1000))).forget()
    unit.view(0, 1)
    assert {worker: len(tids) for worker, tids in unit.assigned().items()} == {1: LIMITS.window_min}


def test_a_stolen_task_is_lost_with_who_took_it() -> None:
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1)).forget()
    unit.tell(2, m.TaskMoved(RUN, ((1, 0),)))
    assert unit.machine.runs[RUN].records[1].worker == 2
    unit.view(0, 1)
    (task,) = [task for _, assign in unit.take_all(m.Assign) for task in assign.tasks]
    assert (task.tid, task.attempt) == (1, 1)


@pytest.mark.parametrize("giver_first", [True, False])
def test_giver_and_taker_both_tell(giver_first: bool) -> None:
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1))
    ((giver, _),) = unit.assigned().items()
    taker = (giver + 1) % 3
    gave, took = (giver, m.TaskMoved(RUN, ((1, 0),), taker)), (taker, m.TaskMoved(RUN, ((1, 0),)))
    for peer, message in (gave, took) if giver_first else (took, gave):
        unit.tell(peer, message)
        assert unit.machine.runs[RUN].records[1].worker == taker
    unit.nothing_left()


@pytest.mark.parametrize("arrived", [True, False])
def test_a_task_on_its_way_between_two_workers_is_lost_with_the_one_that_gave_it(arrived: bool) -> None:
    """Seed 200897: the path between the two was cut, and the giver taken out; its dispatcher waited for the other for ever."""
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1))
    ((giver, _),) = unit.assigned().items()
    taker = (giver + 1) % 3
    unit.tell(giver, m.TaskMoved(RUN, ((1, 0),), taker))
    if arrived:
        unit.tell(taker, m.TaskMoved(RUN, ((1, 0),)))
    unit.view(*({0, 1, 2} - {giver}))
    assert [(task.tid, task.attempt) for _, assign in unit.take_all(m.Assign) for task in assign.tasks] == ([] if arrived else [(1, 1)])


@pytest.mark.parametrize("lossy", [True, False])
def test_a_reader_of_what_was_made_twice_runs_again(lossy: bool) -> None:
    """Seed 201558: a lost node's task was done again, and wrote its output to shared storage over the one that another read."""
    unit = Unit([0, 1], data_aware=False).submit(spec(1))
    if lossy:
        unit.view(0)
    attempts = []
    for _ in range(EXCUSED_MAX + 1):
        found = [(worker, task) for worker, assign in unit.take_all(m.Assign) for task in assign.tasks]
        attempts.append(found[-1][1].attempt)
        unit.done(found[-1][0], result(1, Outcome.INPUT_CHANGED, attempt=attempts[-1]))
        if unit.results():
            break
        unit.advance(60.0)
    assert len(attempts) == (EXCUSED_MAX + 1 if lossy else 1)


def test_late_word_of_a_gift_does_not_bring_the_task_back_from_further_on() -> None:
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1))
    ((giver, _),) = unit.assigned().items()
    taker, last = (giver + 1) % 3, (giver + 2) % 3
    unit.tell(last, m.TaskMoved(RUN, ((1, 0),)))
    unit.tell(giver, m.TaskMoved(RUN, ((1, 0),), taker))
    assert unit.machine.runs[RUN].records[1].worker == last


def test_a_task_given_to_a_node_that_died_meanwhile_is_given_out_again() -> None:
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1))
    ((giver, _),) = unit.assigned().items()
    taker = (giver + 1) % 3
    unit.view(*({0, 1, 2} - {taker})).nothing_left()
    unit.tell(giver, m.TaskMoved(RUN, ((1, 0),), taker))
    (task,) = [task for _, assign in unit.take_all(m.Assign) for task in assign.tasks]
    assert (task.tid, task.attempt) == (1, 1)
    unit.tell(taker, m.TaskMoved(RUN, ((1, 0),))).nothing_left()


def test_what_overtakes_the_begin_of_its_run_is_kept_for_it() -> None:
    unit = Unit([0], begun=False).submit(spec(1)).nothing_left()
    unit.tell(CLIENT, begin())
    assert unit.assigned() == {0: [1]}


def test_a_task_submitted_twice_is_one_task() -> None:
    unit = Unit([0]).submit(spec(1)).submit(spec(1), spec(2))
    assert unit.assigned() == {0: [1, 2]}


def test_nothing_of_an_ended_run_comes_back() -> None:
    unit = Unit([0]).submit(spec(1), spec(2, retries=1)).forget()
    unit.done(0, result(2, Outcome.EXIT))
    unit.tell(CLIENT, m.RunEnd(RUN))
    assert not unit.timers
    unit.submit(spec(3)).done(0, result(1)).tell(CLIENT, begin()).tell(1, m.TaskMoved(RUN, ((1, 0),))).nothing_left()
    assert unit.machine.runs == {}


def test_it_can_say_where_a_task_is() -> None:
    unit = Unit([0]).submit(spec(1, retries=1), *(spec(tid) for tid in range(2, 200)))
    assert unit.machine.explain(RUN, 1) == ["given to node 0"]
    assert unit.machine.explain(RUN, 199)[0].startswith("waits for a node: each has as many tasks as it takes; ")
    unit.done(0, result(1, Outcome.EXIT))
    assert unit.machine.explain(RUN, 1) == ["has failed, and waits for its next attempt (2)"]
    assert unit.machine.explain(RUN, 999) == unit.machine.explain(99, 1) == []


# ── reductions ─────────────────────────────────────────────────────────────────────────────────────


def reduction(tid: int, inputs: str, arity: int = 2, **options: Any) -> m.TaskSpec:
    return spec(tid, inputs, f"out{tid}", argv=("cat", "{in}", "-o", "{out}"), reduce=arity, **options)


def plan_for(task: m.TaskSpec, holders: Sequence[int] = (1, 2)) -> m.ReducePlan:
    """All its inputs are there, dealt over the holders in runs of neighbours."""
    at = [m.FileAt(name, 10, (holders[i * len(holders) // len(task.inputs)],)) for i, name in enumerate(task.inputs)]
    return m.ReducePlan(RUN, task.tid, task.attempt, tuple(at))


def test_a_reduction_becomes_a_tree_on_the_nodes_that_hold_its_inputs() -> None:
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b c d"))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0]))
    given = {task.tid: (worker, task) for worker, message in unit.take_all(m.Assign) for task in message.tasks}
    root = given.pop(1)[1]
    left, right = (given[tid] for tid in sorted(given, reverse=True))
    assert (left[0], left[1].inputs) == (1, keys("a b"))
    assert (right[0], right[1].inputs) == (2, keys("c d"))
    assert root.inputs == (*left[1].outputs, *right[1].outputs)
    cut = len(SCOPE)
    assert unpack_body(root.body)[1] == ["cat", *(name[cut:] for name in root.inputs), "-o", "out1"]
    unit.done(1, result(left[1].tid)).done(2, result(right[1].tid)).nothing_left()
    unit.done(0, result(1)).done(1, result(1))
    assert unit.results() == [(1, 0)]
    assert unit.machine.runs[RUN].trees == {}


def test_a_reduction_fails_once_as_its_part_did() -> None:
    unit = Unit([0, 1, 2]).submit(spec(9)).done(1, result(9)).forget()  # so worker 1 is trusted
    unit.submit(reduction(1, "a b c d"))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0]))
    parts = [task for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0]
    unit.done(1, result(parts[0].tid, Outcome.EXIT, detail="exit status 3"))
    ((outcome_of, outcome),) = unit.results()
    assert (outcome_of, outcome) == (1, Outcome.EXIT)
    poisoned = [name for _, poison in unit.take_all(m.Poison) for name in poison.names]
    assert sorted(poisoned) == sorted([key("out1"), *parts[0].outputs])
    unit.forget().done(2, result(parts[1].tid)).done(1, result(1, Outcome.UPSTREAM_FAILED)).nothing_left()


def test_a_tree_is_planned_anew_when_partial_results_may_have_died() -> None:
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b c d"))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0]))
    parts = [task.tid for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0]
    unit.done(1, result(parts[0])).view(0, 2)
    ((worker, assign),) = unit.take_all(m.Assign)
    (task,) = assign.tasks
    assert (task.tid, task.inputs, task.attempt > 0) == (1, keys("a b c d"), True)
    assert task.options is not None
    assert task.options.reduce == 2, "to be planned again"
    unit.done(2, result(parts[1])).nothing_left()
    unit.tell(worker, plan_for(task, (2, 0)))
    again = [task.tid for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0]
    assert len(again) == 2
    assert not set(again) & set(parts), "partial results of the lost tree have other names"


def test_a_tree_is_planned_anew_when_a_partial_result_is_lost_and_no_node_is() -> None:
    """Seed 902319: a partial result could not be fetched from its only holder. Nobody made it again, and the run did not end."""
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b c d"))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0]))
    parts = [task.tid for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0]
    unit.tell(CLIENT, m.PartLost(RUN, 1, parts[0])).nothing_left()  # an heir has not heard of it: it is not made yet
    unit.done(1, result(parts[0])).tell(CLIENT, m.PartLost(RUN, 1, parts[0]))
    ((worker, assign),) = unit.take_all(m.Assign)
    (task,) = assign.tasks
    assert (task.tid, task.inputs, task.attempt > 0) == (1, keys("a b c d"), True)
    unit.tell(CLIENT, m.PartLost(RUN, 1, parts[0])).tell(CLIENT, m.PartLost(RUN, 7, parts[1])).nothing_left()
    unit.tell(worker, plan_for(task))
    again = [task.tid for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0]
    assert not set(again) & set(parts)
    unit.tell(CLIENT, m.PartLost(RUN, 1, parts[1])).nothing_left()  # it is a part of the tree before
    unit.done(1, result(again[0])).done(2, result(again[1])).done(0, result(1))
    assert unit.results() == [(1, 0)]


def test_a_reduction_of_few_inputs_is_one_task() -> None:
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b", arity=4))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0], (2,)))
    ((worker, assign),) = unit.take_all(m.Assign)
    assert (worker, [task.tid for task in assign.tasks]) == (2, [1])


# ── under random orders ────────────────────────────────────────────────────────────────────────────

some = st.integers(0, 1 << 16)


class RandomOrders(RuleBasedStateMachine):
    """Workers that finish, fail, steal, die and come, in any order: every task that was submitted is reported exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = Unit([0, 1, 2])
        self.nodes = [0, 1, 2]
        self.has: dict[int, dict[int, m.TaskSpec]] = {0: {}, 1: {}, 2: {}}
        self.submitted: list[int] = []
        self.told: Counter[int] = Counter()
        self.succeeded: set[int] = set()
        self.old: list[tuple[int, m.Result]] = []  # what was reported before, to be repeated
        self.next_node = 10

    def listen(self) -> None:
        for to, message in self.unit.sent:
            match message:
                case m.Assign(tasks=tasks):
                    assert to in self.nodes, "a task for a node that is not there"
                    self.has[to].update((task.tid, task) for task in tasks)
                case m.Results(results=results):
                    for one in results:
                        self.told[one.tid] += 1
                        assert self.told[one.tid] == 1, f"task {one.tid} ended twice"
                        assert one.tid in self.submitted, f"nobody submitted {one.tid}"
                        assert not one.outcome or one.tid not in self.succeeded, "a success was reported as a failure"
                case m.Poison() | m.Release():
                    assert to == SHARD
                case _:
                    raise AssertionError(f"a dispatcher does not say {message}")
        self.unit.forget()

    @rule(
        count=st.integers(1, 6), retries=st.integers(0, 2), pin=st.sampled_from([-1, 0, 2, 5]), hard=st.booleans(), reduce=st.booleans()
    )  # fmt: skip
    def submit(self, count: int, retries: int, pin: int, hard: bool, reduce: bool) -> None:
        first = len(self.submitted)
        self.submitted += range(first, first + count)
        more: dict[str, Any] = {"retries": retries, "pin": pin, "pin_hard": hard}
        tids = range(first, first + count)
        self.unit.submit(*(reduction(tid, "a b c d e", **more) if reduce else spec(tid, "a", f"o{tid}", **more) for tid in tids))
        self.listen()

    def pick(self, which: int) -> tuple[int, m.TaskSpec] | None:
        all_of_them = [(worker, task) for worker in self.nodes for task in self.has[worker].values()]
        return all_of_them[which % len(all_of_them)] if all_of_them else None

    @rule(which=some, outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.EXIT, Outcome.UPSTREAM_FAILED]))
    def task_ends(self, which: int, outcome: Outcome) -> None:
        picked = self.pick(which)
        if picked is None:
            return
        worker, task = picked
        del self.has[worker][task.tid]
        if task.options is not None and task.options.reduce and outcome != Outcome.UPSTREAM_FAILED:
            self.unit.tell(worker, plan_for(task, self.nodes))
        else:
            ended = result(task.tid, outcome, attempt=task.attempt, node=worker)
            if outcome == Outcome.OK and not self.told[task.tid]:
                self.succeeded.add(task.tid)
            self.old.append((worker, ended))
            self.unit.done(worker, ended)
        self.listen()

    @precondition(lambda self: self.old)
    @rule(which=some)
    def a_result_is_repeated(self, which: int) -> None:
        worker, ended = self.old[which % len(self.old)]
        if worker in self.nodes and (ended.tid >= 0 or ended.outcome):
            self.unit.done(worker, ended)
            self.listen()

    @rule(which=some, taker=some, giver_tells=st.booleans(), taker_tells=st.booleans())
    def task_moves(self, which: int, taker: int, giver_tells: bool, taker_tells: bool) -> None:
        picked = self.pick(which)
        to = self.nodes[taker % len(self.nodes)]
        if picked is None or picked[0] == to or not (giver_tells or taker_tells):
            return
        worker, task = picked
        del self.has[worker][task.tid]
        self.has[to][task.tid] = task
        if giver_tells:
            self.unit.tell(worker, m.TaskMoved(RUN, ((task.tid, task.attempt),), to))
        if taker_tells:
            self.unit.tell(to, m.TaskMoved(RUN, ((task.tid, task.attempt),)))
        self.listen()

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(which=some)
    def node_dies(self, which: int) -> None:
        node = self.nodes.pop(1 + which % (len(self.nodes) - 1))  # never the dispatcher's own
        del self.has[node]
        self.unit.view(*self.nodes)
        self.listen()

    @precondition(lambda self: len(self.nodes) < 4)
    @rule()
    def node_joins(self) -> None:
        self.nodes.append(self.next_node)
        self.has[self.next_node] = {}
        self.next_node += 1
        self.unit.view(*self.nodes)
        self.listen()

    @rule(seconds=st.sampled_from([0.1, 1.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.unit.advance(seconds)
        self.listen()

    @invariant()
    def assigned_tasks_are_with_somebody(self) -> None:
        for tid, record in self.unit.machine.runs[RUN].records.items():
            if record.state == RecordState.ASSIGNED:
                assert any(tid in tasks for tasks in self.has.values()), f"task {tid} is said to be on node {record.worker}"

    def teardown(self) -> None:
        for _ in range(10_000):
            if not self.unit.machine.runs[RUN].records:
                break
            self.task_ends(0, Outcome.OK)
            self.unit.advance(1.0)
            self.listen()
        assert self.told == Counter(self.submitted), "every task ends exactly once"
        assert not self.unit.timers
        assert self.unit.machine.runs[RUN].trees == {}
        assert not any(self.unit.machine.runs[RUN].out.values())


TestRandomOrders = RandomOrders.TestCase
TestRandomOrders.settings = settings(max_examples=75, stateful_step_count=30, deadline=None)
