"""The dispatcher and reductions: the tree that each becomes, and what is planned anew when partial results are lost."""

from __future__ import annotations

from dispatcher_unit import SHARD, Unit, plan_for, reduction
from parts import CLIENT, RUN, SCOPE, key, keys, result, spec

from amfs.vocabulary import messages as m
from amfs.vocabulary.records import unpack_body
from amfs.vocabulary.states import Outcome


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
    unit.forget().tell(CLIENT, m.PartLost(RUN, 1, parts[0])).tell(CLIENT, m.PartLost(RUN, 7, parts[1])).nothing_left()
    unit.tell(worker, plan_for(task))
    again = [task.tid for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0]
    assert not set(again) & set(parts)
    unit.tell(CLIENT, m.PartLost(RUN, 1, parts[1])).nothing_left()  # it is a part of the tree before
    unit.done(1, result(again[0])).done(2, result(again[1])).done(0, result(1))
    assert unit.results() == [(1, 0)]


def test_shards_hear_that_a_tree_reads_again_and_what_nobody_reads_any_more() -> None:
    """Seed 9608138: they counted two readers of the inputs of a tree that was planned anew, and had what was made again dropped at once."""
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b c d e f g h"))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0]))
    parts = {task.inputs: task for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0}
    first, second, third, late = (parts[keys(names)] for names in ("a b", "c d", "e f", "g h"))
    above, other = (parts[(*left.outputs, *right.outputs)] for left, right in ((first, second), (third, late)))
    unit.done(1, result(first.tid), result(second.tid), result(above.tid)).done(2, result(third.tid)).nothing_left()
    unit.tell(CLIENT, m.PartLost(RUN, 1, above.tid))
    # Of the inputs those that were read; a worker has the part that reads g and h, and the part that reads what the third has made.
    assert sorted(name for _, told in unit.take_all(m.ReadAgain, SHARD) for name in told.names) == sorted(keys("a b c d e f"))
    assert unit.take_all(m.Release, SHARD) == [(SHARD, m.Release(RUN, above.outputs))]
    unit.forget().done(2, result(late.tid)).done(2, result(late.tid))
    assert unit.take_all(m.ReadAgain) == [(SHARD, m.ReadAgain(RUN, keys("g h")))]
    unit.nothing_left().done(1, result(other.tid))
    assert unit.take_all(m.Release) == [(SHARD, m.Release(RUN, other.outputs))]
    unit.nothing_left()
    assert unit.machine.runs[RUN].uprooted == {}


def test_what_was_to_read_a_lost_part_ends_and_lets_go_of_the_other_parts() -> None:
    """It stayed at its worker to the end of the run, and what it was to read in the node's memory."""
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b c d e f g h"))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0]))
    parts = {task.inputs: task for _, message in unit.take_all(m.Assign) for task in message.tasks if task.tid < 0}
    first, second = parts[keys("a b")], parts[keys("c d")]
    above = parts[(*first.outputs, *second.outputs)]
    unit.done(1, result(first.tid), result(second.tid)).tell(CLIENT, m.PartLost(RUN, 1, first.tid))
    assert [(to, poison.names) for to, poison in unit.take_all(m.Poison)] == [(SHARD, first.outputs)]
    assert unit.take_all(m.Release) == [], "a worker still has the task that reads it"
    unit.forget().done(1, result(above.tid, Outcome.UPSTREAM_FAILED))
    assert unit.take_all(m.Release) == [(SHARD, m.Release(RUN, above.inputs))]
    assert [(to, poison.names) for to, poison in unit.take_all(m.Poison)] == [(SHARD, above.outputs)]
    unit.nothing_left()


def test_a_reduction_of_few_inputs_is_one_task() -> None:
    unit = Unit([0, 1, 2]).submit(reduction(1, "a b", arity=4))
    ((worker, assign),) = unit.take_all(m.Assign)
    unit.tell(worker, plan_for(assign.tasks[0], (2,)))
    ((worker, assign),) = unit.take_all(m.Assign)
    assert (worker, [task.tid for task in assign.tasks]) == (2, [1])
