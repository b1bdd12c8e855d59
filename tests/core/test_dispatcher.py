"""The dispatcher, as stories: which worker gets which task, and which tasks are tried again or given to others when a worker is lost."""

from __future__ import annotations

import pytest
from dispatcher_unit import ELSEWHERE, LIMITS, SHARD, Unit
from parts import CLIENT, RUN, begin, keys, result, spec

from amfs.engine.dispatcher import EXCUSED_MAX
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import Outcome

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


@pytest.mark.parametrize(("outcome", "lossy"), [(Outcome.INPUT_CHANGED, True), (Outcome.INPUT_CHANGED, False), (Outcome.INPUT_LOST, False)])
def test_a_reader_of_what_others_changed_runs_again(outcome: Outcome, lossy: bool) -> None:
    """Seed 201558: a lost node's task was done again, and wrote its output to shared storage over the one that another read. A loss
    of the spill directory is never the fault of the task."""
    unit = Unit([0, 1], data_aware=False).submit(spec(1))
    if lossy:
        unit.view(0)
    attempts = []
    for _ in range(EXCUSED_MAX + 1):
        found = [(worker, task) for worker, assign in unit.take_all(m.Assign) for task in assign.tasks]
        attempts.append(found[-1][1].attempt)
        unit.done(found[-1][0], result(1, outcome, attempt=attempts[-1]))
        if unit.results():
            break
        unit.advance(60.0)
    assert len(attempts) == (EXCUSED_MAX + 1 if lossy or outcome == Outcome.INPUT_LOST else 1)


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


def test_a_node_that_drains_is_told_that_all_is_heard_when_no_task_is_there_any_more() -> None:
    unit = Unit((0, 1)).submit(spec(1, pin=1))
    assert unit.assigned() == {1: [1]}
    question, answer = m.Farewell(4), m.Farewell(4, heard=True)
    assert not unit.tell(1, question).take_all(m.Farewell), "the view in which it drains has not come"
    unit.feed(MembersChanged(PartitionTable([SHARD] * 4), {0: 2, 1: -2, SHARD: 1}, set(), (), {0: 2}))
    assert not unit.tell(1, question).take_all(m.Farewell), "it has a task"
    unit.tell(1, m.TaskMoved(RUN, ((1, 0),), 0))
    assert not unit.tell(1, question).take_all(m.Farewell), "nobody knows whether the other has the task that it has given away"
    unit.tell(0, m.TaskMoved(RUN, ((1, 0),), -1)).tell(1, question)
    assert unit.take(m.Farewell, 1) == answer
    unit.tell(1, answer).nothing_left()
