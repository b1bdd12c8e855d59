"""Workers that fail what others can do (black holes), and tasks that take nodes with them, as stories of a dispatcher."""

from __future__ import annotations

import msgspec
import pytest
from dispatcher_unit import Unit
from parts import CLIENT, RUN, result, spec

from amfs.config import DispatcherLimits
from amfs.vocabulary import messages as m
from amfs.vocabulary.states import Outcome

LIMITS = DispatcherLimits()


def once(unit: Unit) -> tuple[int, m.TaskSpec]:
    """The one task that was given out, and its worker."""
    ((worker, assign),) = unit.take_all(m.Assign)
    (task,) = assign.tasks
    return worker, task


def fail(unit: Unit, worker: int, task: m.TaskSpec) -> None:
    unit.done(worker, result(task.tid, Outcome.EXIT, attempt=task.attempt, detail="exit status 1"))


def test_the_first_failure_on_a_worker_without_success_costs_no_retry() -> None:
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1))
    worker, task = once(unit)
    fail(unit, worker, task)
    assert not unit.results()
    unit.advance(LIMITS.backoff_last_s)
    other, again = once(unit)
    assert other != worker
    assert again.options is not None and (again.options.pin, again.options.pin_hard) == (other, False), "nobody gives it back"
    fail(unit, other, again)
    assert unit.results() == [(1, Outcome.EXIT)], "it fails everywhere"


def test_a_failure_on_a_worker_that_does_well_is_the_tasks_own() -> None:
    unit = Unit([0, 1], data_aware=False).submit(spec(0))
    worker, _ = once(unit)
    unit.done(worker, result(0)).results()
    unit.submit(spec(1), spec(2))
    where = {tid: to for to, tids in unit.assigned().items() for tid in tids}
    own = next(tid for tid, to in where.items() if to == worker)
    unit.done(worker, result(own, Outcome.EXIT))
    assert unit.results() == [(own, Outcome.EXIT)]


def test_a_retry_runs_on_another_worker() -> None:
    unit = Unit([0, 1, 2], data_aware=False).submit(spec(1, retries=4))
    last = -1
    for _ in range(4):
        worker, task = once(unit)
        assert worker != last
        last = worker
        fail(unit, worker, task)
        unit.advance(LIMITS.backoff_last_s)


def test_a_bound_task_stays_where_it_must() -> None:
    unit = Unit([0, 1], data_aware=False).submit(spec(1, pin=1, pin_hard=True))
    worker, task = once(unit)
    fail(unit, worker, task)
    assert unit.results() == [(1, Outcome.EXIT)]


def test_a_black_hole_gets_no_more_tasks() -> None:
    unit = Unit([0, 1, 2], data_aware=False)
    bad = 1
    for tid in range(3, 300, 3):
        unit.submit(spec(tid), spec(tid + 1), spec(tid + 2))
        for worker, assign in unit.take_all(m.Assign):
            for task in assign.tasks:
                if worker == bad:
                    fail(unit, worker, task)
                else:
                    unit.done(worker, result(task.tid, attempt=task.attempt))
        unit.advance(LIMITS.backoff_last_s)
        for worker, assign in unit.take_all(m.Assign):
            assert worker != bad
            unit.done(worker, *(result(task.tid, attempt=task.attempt) for task in assign.tasks))
    assert {outcome for _, outcome in unit.results()} == {Outcome.OK}, "no task has failed"
    told = unit.take_all(m.OutOfService)
    assert sorted(to for to, _ in told) == [bad, CLIENT]
    assert {message.node for _, message in told} == {bad}


def test_the_last_worker_stays_in_service() -> None:
    unit = Unit([0, 1], data_aware=False)
    health = next(iter(unit.machine.runs.values())).health
    for _ in range(10):
        for worker in (0, 1):
            health.failed(worker)
            health.blame(worker, 2)
    assert len(health.out) == 1


def test_workers_are_in_service_again_when_the_last_other_one_has_died() -> None:
    """An urgent task found no worker at all, and that ended the node."""
    unit = Unit([0, 1, 2], data_aware=False)
    health = next(iter(unit.machine.runs.values())).health
    for _ in range(10):
        for worker in (0, 1):
            health.failed(worker)
            health.blame(worker, 3)
    assert health.out == {0, 1}
    unit.submit(spec(1))
    worker, _task = once(unit)
    assert worker == 2
    unit.view(0, 1)
    worker, _task = once(unit)
    assert worker in (0, 1) and not health.out


def test_a_task_that_takes_nodes_with_it_is_given_up() -> None:
    everyone = list(range(LIMITS.deaths_max + 1))
    unit = Unit(everyone, data_aware=False).submit(spec(1, pin=1, pin_hard=False))
    for _ in range(LIMITS.deaths_max):
        worker, _task = once(unit)
        everyone = [node for node in everyone if node != worker]
        unit.view(*everyone)
    assert unit.results() == [(1, Outcome.SETUP)]


@pytest.mark.parametrize("member", [True, False])
def test_a_task_that_one_node_outside_takes_again_and_again_is_not_given_up(member: bool) -> None:
    """Seed 726561: a manager let a node in, and died before the others had heard of it. That node stole a task from a member again and
    again. Each time the task's dispatcher counted a node that was lost with the task, so the task failed after five times. A node that was
    taken for dead can do the same: it is one lost node, however often it takes the task."""
    outside = 3
    unit = Unit([0, 1, 2, outside] if member else [0, 1, 2], data_aware=False).view(0, 1, 2).submit(spec(1))
    for _ in range(LIMITS.deaths_max + 1):
        worker, task = once(unit)
        unit.tell(worker, m.TaskMoved(RUN, ((1, task.attempt),), outside))
    assert not unit.results()
    worker, task = once(unit)
    unit.done(worker, result(1, attempt=task.attempt))
    assert unit.results() == [(1, Outcome.OK)]


def test_others_are_not_blamed_for_it() -> None:
    unit = Unit([0, 1, 2, 3], data_aware=False).submit(spec(1))
    for _ in range(3):
        worker, _task = once(unit)
        unit.view(*({0, 1, 2, 3} & set(unit.machine.workers) - {worker}))
    worker, task = once(unit)
    unit.done(worker, result(1, attempt=task.attempt))
    assert unit.results() == [(1, 0)]


def test_a_blind_task_that_waits_for_files_blames_nobody() -> None:
    unit = Unit([0, 1, 2], data_aware=False)
    health = next(iter(unit.machine.runs.values())).health
    unit.submit(spec(1))
    worker, task = once(unit)
    unit.done(worker, msgspec.structs.replace(result(1, Outcome.EXIT, attempt=task.attempt), missing=("late",)))
    assert (health.streak, unit.results()) == ({}, [(1, Outcome.EXIT)])
