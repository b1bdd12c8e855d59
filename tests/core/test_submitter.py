"""The submitter, as stories: the ordinary course of a run, its orders to each node, and how a run ends."""

from __future__ import annotations

import math

import msgspec
from parts import RUN, keys, result
from submitter_client import CHAIN, MANY, SMALL, Client, task

from amfs.config import SubmitterLimits
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Ended, FilesFlushed, RunOver, StopRun
from amfs.vocabulary.records import unpack_body
from amfs.vocabulary.states import Outcome, RunState

# ── the ordinary course of a run ───────────────────────────────────────────────────────────────────


def test_a_run_from_beginning_to_end() -> None:
    client = Client(*CHAIN).begun(0, 1)
    assert client.submitted() == {0: [0, 1, 2]}
    client.tell(0, m.RunReady(RUN, 0)).tell(1, m.RunReady(RUN, 1)).nothing_left()
    client.ends(0, result(0), result(1))
    assert [one.tid for one in client.effect(Ended).results] == [0, 1]
    client.nothing_left()
    client.ends(0, result(2))
    client.run_ended(0, 1)
    assert (client.machine.finished, client.machine.failed, client.machine.total) == (3, 0, 3)


def test_tasks_go_out_in_an_order_in_which_none_waits_for_a_later_one() -> None:
    client = Client(*reversed(CHAIN)).begun(0)
    assert client.submitted() == {0: [2, 1, 0]}


def test_specs_say_what_becomes_of_outputs() -> None:
    client = Client(task("a", "in", "x y z", keep="y"), task("b", "x y"), task("c", "x")).begun(0)
    specs = [spec for _, submit in client.take_all(m.Submit) for spec in submit.tasks]
    assert (specs[0].shared, specs[0].inputs, specs[0].outputs) == (keys("in"), (), keys("x y z"))
    read_by_two, kept_and_read_by_one, read_by_nobody = m.retention(2), m.retention(1, True), m.retention(0, True)
    assert specs[0].retentions == (read_by_two, kept_and_read_by_one, read_by_nobody)
    assert specs[1].inputs == keys("x y")
    assert unpack_body(specs[0].body)[1] == ["run", "a"]


def test_a_workflow_without_tasks_ends_at_once() -> None:
    client = Client().view(0)
    client.take(m.RunBegin, 0)
    client.run_ended(0)


def test_failed_tasks_do_not_end_the_run() -> None:
    client = Client(task("a"), task("b")).begun(0)
    client.submitted()
    client.ends(0, result(0, Outcome.EXIT)).ends(0, result(1))
    assert (client.machine.finished, client.machine.failed) == (1, 1)
    client.run_ended(0)


def test_flushed_files_are_passed_on() -> None:
    client = Client(*CHAIN).begun(0)
    client.submitted()
    client.tell(0, m.Flushed(RUN, (("z", 5, ""),)))
    assert client.effect(FilesFlushed) == FilesFlushed([("z", 5, "")])


# ── credits ────────────────────────────────────────────────────────────────────────────────────────


def test_a_dispatcher_has_no_more_than_its_credit() -> None:
    client = Client(*MANY, limits=SMALL).begun(0)
    assert client.submitted() == {0: list(range(8))}
    client.ends(0, result(0))
    assert client.submitted() == {}, "a refill of one would cost a message"
    client.ends(0, result(1))
    assert client.submitted() == {0: [8, 9]}


def test_credits_grow_with_the_slots_of_the_unit() -> None:
    client = Client(*MANY, limits=SubmitterLimits(heartbeat_s=math.inf, window=8, window_per_slot=10)).begun(0, 1)
    assert client.submitted() == {0: list(range(40))}


def test_tasks_that_wait_for_input_are_lent_a_credit_each() -> None:
    client = Client(*MANY, limits=SMALL).begun(0)
    client.submitted()
    client.ends(0, parked=6)
    assert client.submitted() == {0: list(range(8, 14))}
    assert client.machine.outstanding == 8
    client.ends(0, *(result(tid) for tid in range(6)), parked=0)
    assert client.submitted() == {}, "14 out, 6 of them ended, none parked any more: the window is full"


def test_several_dispatchers_get_even_shares() -> None:
    client = Client(*MANY).begun(0, 1, 2, 3, unit_size=1)
    given = client.submitted()
    shares = [len(tids) for tids in given.values()]
    assert len(shares) == 4
    assert max(shares) - min(shares) <= 100 // 16, "dealt in hands of a quarter of a share"
    assert sorted(tid for tids in given.values() for tid in tids) == list(range(100))


def test_the_lowest_node_of_a_unit_dispatches_for_it() -> None:
    client = Client(*MANY).begun(1, 2, 3, 5, unit_size=2)
    assert sorted(client.submitted()) == [1, 2, 5]


def test_a_full_dispatcher_does_not_hold_up_the_others() -> None:
    client = Client(*MANY, limits=SMALL).begun(0, 1, unit_size=1)
    given = client.submitted()
    client.ends(1, *(result(tid, node=1) for tid in given[1]))
    assert {dispatcher: len(tids) for dispatcher, tids in client.submitted().items()} == {1: 8}


# ── resumption, and other ends ─────────────────────────────────────────────────────────────────────


def test_skipped_tasks_are_not_submitted() -> None:
    client = Client(*CHAIN, skip=frozenset([0, 1])).begun(0)
    assert client.submitted() == {0: [2]}
    assert client.machine.ended == 2
    client.ends(0, result(2))
    client.run_ended(0)


def test_a_run_with_nothing_left_to_do_ends_at_once() -> None:
    client = Client(*CHAIN, skip=frozenset([0, 1, 2])).begun(0)
    client.run_ended(0)


def test_fail_fast_ends_the_run_with_the_first_failure() -> None:
    client = Client(*MANY, fail_fast=True).begun(0, 1)
    client.submitted()
    client.ends(0, result(5), result(3, Outcome.EXIT))
    client.run_ended(0, 1, reason="a task failed, and --fail-fast was asked for")


def test_a_run_that_is_stopped_gives_out_nothing_more() -> None:
    client = Client(*MANY, limits=SMALL).begun(0)
    client.submitted()
    client.feed(StopRun("interrupted")).feed(StopRun("again"))
    client.ends(0, *(result(tid, Outcome.CANCELLED) for tid in range(8)))
    client.run_ended(0, reason="interrupted")


def test_nodes_that_do_not_confirm_the_end_are_not_waited_for_for_ever() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.forget().ends(0, result(0), result(1), result(2)).tell(0, m.RunGone(RUN, 0, {})).forget()
    client.advance(14).nothing_left()
    client.advance(2)
    assert client.effect(RunOver).reason == "nodes [1] did not confirm the end of the run"
    client.nothing_left()


def test_nodes_that_die_while_the_run_ends_are_not_waited_for() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.forget().feed(StopRun("interrupted")).tell(0, m.RunGone(RUN, 0, {})).forget()
    client.view(0)
    assert client.effect(RunOver).reason == "interrupted"


def test_a_node_that_joins_while_the_run_ends_is_told_so() -> None:
    client = Client(*CHAIN).begun(0)
    client.forget().feed(StopRun("interrupted")).forget()
    client.view(0, 1)
    assert client.take(m.RunEnd, 1) == m.RunEnd(RUN, True)
    client.nothing_left()


def test_messages_of_another_run_are_not_for_it() -> None:
    client = Client(*CHAIN).begun(0)
    client.submitted()
    client.tell(0, m.Results(8, (result(0),)), m.RunGone(8, 0, {}), m.Lost(8, ("8/x",), -1)).nothing_left()
    assert client.machine.ended == 0


# ── one run a journal ──────────────────────────────────────────────────────────────────────────────


def with_journal(*nodes: int) -> Client:
    """A run that keeps a journal: an earlier one with it may still go on."""
    client = Client(*CHAIN)
    client.machine.info = msgspec.structs.replace(client.machine.info, journal="j", life=2)
    client.machine.course.state = RunState.WAITING
    client.view(*nodes)
    assert [node for node, _ in client.take_all(m.RunBegin)] == list(nodes)
    return client


def test_nothing_is_submitted_before_all_nodes_have_ended_the_earlier_run() -> None:
    client = with_journal(0, 1, 2).tell(0, m.RunReady(RUN, 0)).tell(1, m.RunReady(RUN, 1))
    client.nothing_left()
    client.view(0, 1)
    assert client.submitted() == {0: [0, 1, 2]}, "node 2 is no more"
    client.view(0, 1, 3).take(m.RunBegin, 3)
    client.advance(100).nothing_left()


def test_a_node_that_does_not_end_the_earlier_run_ends_the_wait() -> None:
    client = with_journal(0, 1).tell(0, m.RunReady(RUN, 0)).advance(SubmitterLimits().ready_s)
    client.run_ended(0, 1, reason="nodes [1] have not ended the earlier run with this journal")
