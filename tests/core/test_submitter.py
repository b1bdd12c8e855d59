"""The submitter, as stories and under random orders: what it gives to whom and when, what it has done again, and how a run ends."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Self

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from parts import BASE, CLIENT, RUN, info, key, keys, result
from recorder import Recorder

from amfs.config import SubmitterLimits
from amfs.engine.fls import SHARED_RETENTION
from amfs.engine.submitter import Submitter
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import AddTasks, CloseList, Ended, FilesFlushed, PeerDown, RunOver, RunSkipped, StopRun
from amfs.vocabulary.records import unpack_body
from amfs.vocabulary.states import FAILED, FINISHED, Outcome, RunNodeState, RunState
from amfs.workflow.checks import AnyPlace, StreamChecker, check
from amfs.workflow.specs import SpecMaker
from amfs.workflow.workflow import Task, Workflow


def task(name: str, inputs: str = "", outputs: str = "", keep: str = "") -> Task:
    return Task(name, ("run", name), tuple(inputs.split()), tuple(outputs.split()), keep=tuple(keep.split()))


#: Without heartbeats, which have tests of their own.
SILENT = SubmitterLimits(heartbeat_s=math.inf)


class Client(Recorder[Submitter]):
    """A submitter with a run. The records of all files are kept by the first node of the view."""

    def __init__(
        self, *tasks: Task, open_ended: bool = False, limits: SubmitterLimits | None = None, keep_all: bool = False, **more: Any
    ) -> None:
        self.tasks = list(tasks)
        self.checker = StreamChecker(AnyPlace(BASE))
        if open_ended:
            plan = self.checker.plan
        else:
            workflow = Workflow(self.tasks)
            plan = check(workflow, AnyPlace(BASE))
        maker = SpecMaker("7/", plan, open_ended=open_ended, keep_all=keep_all)
        limits = limits or SILENT
        super().__init__(Submitter(CLIENT, RUN, info(), self.tasks, plan, maker=maker, open_ended=open_ended, limits=limits, **more))
        self.epoch = 0
        self.manager = 0

    def view(self, *nodes: int, unit_size: int = 0, shard: int = -1) -> Self:
        """The manager says who is there; ``unit_size`` 1 makes every node a dispatcher; ``shard``: another node keeps the records."""
        self.epoch += 1
        members = tuple(m.Member(node, 1, (), 2) for node in nodes)
        owners = (shard,) if shard >= 0 else nodes[:1]
        manager = self.manager if self.manager in nodes else min(nodes, default=self.manager)
        return self.tell(manager, m.View(self.epoch, manager, members, owners, unit_size))

    def begun(self, *nodes: int, unit_size: int = 0, shard: int = -1) -> Self:
        """The first view, with the announcement of the run to its nodes."""
        self.view(*nodes, unit_size=unit_size, shard=shard)
        assert self.take_all(m.RunBegin) == [(node, m.RunBegin(RUN, CLIENT, info(), self.epoch)) for node in nodes]
        return self

    def submitted(self) -> dict[int, list[int]]:
        """dispatcher -> tasks given to it since last asked."""
        given: dict[int, list[int]] = {}
        for dispatcher, submit in self.take_all(m.Submit):
            for spec in submit.tasks:
                assert spec.origin == dispatcher
                given.setdefault(dispatcher, []).append(spec.tid)
        return given

    def ends(self, dispatcher: int, *results: m.Result, parked: int = 0) -> Self:
        return self.tell(dispatcher, m.Results(RUN, results, parked))

    def add(self, *tasks: Task) -> Self:
        """An open list grows."""
        for one in tasks:
            assert self.checker.add(one) == []
            self.tasks.append(one)
        return self.feed(AddTasks(len(self.tasks)))

    def run_ended(self, *nodes: int, reason: str = "") -> None:
        """The nodes are told to forget the run, they do, and it is over."""
        told = self.take_all(m.RunEnd)
        assert [(node, end.kill) for node, end in told] == [(node, bool(reason)) for node in nodes]
        for node in nodes:
            assert not self.effects_of(RunOver)
            self.tell(node, m.RunGone(RUN, node, {"fetched_bytes": 3}))
        assert self.effect(RunOver) == RunOver(reason, {"fetched_bytes": 3 * len(nodes)})
        assert not self.timers
        self.effects_of(Ended)
        self.nothing_left()


CHAIN = (task("a", "", "x"), task("b", "x", "y"), task("c", "y", "z"))


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

SMALL = SubmitterLimits(heartbeat_s=math.inf, window=8, window_per_slot=1, batch=4)
MANY = [task(f"t{i}") for i in range(100)]


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


# ── nodes come and go ──────────────────────────────────────────────────────────────────────────────


def test_old_views_are_ignored() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.tell(1, m.View(1, 1, (m.Member(1, 1, (), 2),), (1,), 0)).nothing_left()
    client.view(0, 1)
    client.epoch -= 1
    client.view(0).nothing_left()
    assert list(client.machine.members) == [0, 1]


def test_of_two_sides_the_submitter_goes_with_the_larger_and_tells_the_other() -> None:
    client = Client(*CHAIN).begun(1, 2)
    client.submitted()
    larger = client.machine.view
    assert larger is not None
    alone = m.View(larger.epoch + 5, 0, (m.Member(0, 1, (), 2),), (0,), 0)
    assert client.tell(0, alone).take(m.View, 0) == larger
    client.nothing_left()
    assert list(client.machine.members) == [1, 2]


def test_a_submitter_that_was_with_the_smaller_side_goes_over() -> None:
    client = Client(*CHAIN)
    alone = m.View(7, 0, (m.Member(0, 1, (), 2),), (0,), 0)
    client.tell(0, alone)
    client.take(m.RunBegin, 0)
    client.submitted()
    larger = m.View(5, 1, (m.Member(1, 1, (), 2), m.Member(2, 1, (), 2)), (1, 2), 0)
    assert client.tell(1, larger).take(m.View, 0) == larger
    assert client.take(m.RunBegin, 1).epoch < larger.epoch, "some records of the run were elsewhere before"
    assert client.submitted() and list(client.machine.members) == [1, 2]


def test_a_new_node_is_told_of_the_run_and_since_when_it_runs() -> None:
    client = Client(*MANY, limits=SMALL).begun(0, unit_size=1)
    client.submitted()
    client.view(0, 1, unit_size=1)
    assert client.take(m.RunBegin, 1) == m.RunBegin(RUN, CLIENT, info(), 1)
    assert {dispatcher: len(tids) for dispatcher, tids in client.submitted().items()} == {1: 8}


def test_tasks_of_a_dead_dispatcher_go_to_the_others_whether_they_have_credit_or_not() -> None:
    client = Client(*MANY, limits=SMALL).begun(0, 1, unit_size=1)
    given = client.submitted()
    client.view(0, unit_size=1)
    again = client.take(m.Submit, 0).tasks
    assert [spec.tid for spec in again] == given[1]
    assert {spec.attempt for spec in again} == {1}, "they have had their turn: urgent"
    client.ends(1, *(result(tid, node=1) for tid in given[1])).nothing_left()
    assert client.machine.finished == 0, "what a dispatcher that was given up says counts no more"


def test_files_that_died_and_are_missed_are_made_again() -> None:
    client = Client(task("a", "", "x"), task("b", "", "y"), task("c", "x y", "z")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1), result(1, node=0)).effects_of(Ended)
    client.view(0).tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.submitted() == {0: [0]}
    assert client.machine.redone_times == {0: 1}
    client.ends(0, result(0, node=0), result(2, node=0))
    client.run_ended(0)


def test_who_keeps_the_record_of_a_file_hears_once_that_a_task_reads_it_again() -> None:
    """Seed 700929: the task releases it once more, and was counted as two readers."""
    client = Client(task("a", "", "x"), task("b", "x", "y"), task("c", "x y")).begun(0, 1, unit_size=1)
    client.submitted()
    client.ends(0, result(0), result(1)).effects_of(Ended)
    client.tell(0, m.Lost(RUN, keys("y"), -1))
    assert client.take(m.ReadAgain, 0) == m.ReadAgain(RUN, keys("x"))
    (given,) = client.submitted()
    client.view(1 - given, unit_size=1, shard=1 - given)
    assert client.submitted()[1 - given].count(1) == 1
    client.nothing_left()


def test_files_that_died_and_nobody_misses_are_not_made_again() -> None:
    """Whoever reads them may have them already, and go on reading for long."""
    client = Client(*CHAIN, task("d")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).nothing_left()
    client.ends(0, result(3, node=1)).effects_of(Ended)
    client.nothing_left()


def test_finals_that_died_are_on_shared_storage_and_the_shard_that_misses_them_is_told() -> None:
    client = Client(task("a", "", "x", keep="x"), task("b", "x")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).nothing_left()
    client.tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.take(m.Publish, 0) == m.Publish(RUN, (m.Published(key("x"), 0, SHARED_RETENTION),))
    client.nothing_left()


def test_outputs_of_tasks_without_a_sandbox_are_on_shared_storage() -> None:
    """Their writers have put them there themselves: to run them again would write on what others read."""
    loose = Task("a", ("run", "a"), outputs=("x",), staged=False)
    client = Client(loose, task("b", "x")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.take(m.Publish, 0) == m.Publish(RUN, (m.Published(key("x"), 0, SHARED_RETENTION),))
    client.nothing_left()


def test_a_second_making_leaves_alone_what_the_first_has_put_on_shared_storage() -> None:
    """Somebody may be reading it there. Whether the end of the first was heard of makes no difference."""
    final, scratch = m.retention(1, True), m.retention(1)
    writer = task("a", "", "x y", keep="x y")
    client = Client(writer, task("b", "x y"), task("c", "", "z"), task("d", "z")).begun(0, 1)
    client.submitted()
    client.tell(1, m.Flushed(RUN, (("x", 5, ""), ("y", 0, "no space left on device"))))
    client.effects_of(FilesFlushed)
    client.view(1)
    again = {spec.tid: spec.retentions for _, submit in client.take_all(m.Submit) for spec in submit.tasks}
    assert again[0] == (scratch, final), "of y nothing is there"

    client = Client(task("a", "", "x y", keep="x"), task("b", "x y")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.tell(0, m.Lost(RUN, keys("y"), -1))
    (spec,) = [spec for _, submit in client.take_all(m.Submit) for spec in submit.tasks]
    assert (spec.tid, spec.retentions) == (0, (scratch, scratch))


def test_a_shard_that_asked_too_early_is_answered_when_the_task_has_ended() -> None:
    """It asks while the task runs; the news of the end may then go to the shard that had the partition before."""
    client = Client(task("a", "", "x"), task("b", "x"), task("f", "", "y"), task("c", "y")).begun(0, 1)
    client.submitted()
    client.tell(1, m.Lost(RUN, keys("x y"), -1)).nothing_left()
    client.ends(0, result(0), result(2, Outcome.EXIT)).effects_of(Ended)
    assert client.take(m.Locate, 0) == m.Locate(RUN, keys("x"))
    assert client.take(m.Poison, 0) == m.Poison(RUN, keys("y"), "task #2 failed")
    client.view(0, 1, shard=1)
    assert client.take(m.Locate, 1) == m.Locate(RUN, keys("x"))
    assert client.take(m.Poison, 1) == m.Poison(RUN, keys("y"), "task #2 failed")
    client.nothing_left()


def test_what_a_shard_misses_is_made_again_once() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.tell(1, m.Lost(RUN, keys("x"), -1))
    assert client.submitted() == {0: [0]}
    client.tell(0, m.Lost(RUN, keys("x y"), -1)).nothing_left()


def test_a_shard_that_forgot_that_a_file_was_poisoned_is_told_again() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, Outcome.EXIT), result(1, Outcome.UPSTREAM_FAILED, detail="task #0 failed")).effects_of(Ended)
    client.tell(1, m.Lost(RUN, keys("x"), -1)).tell(1, m.Lost(RUN, keys("y"), -1))
    poisons = [poison for _, poison in client.take_all(m.Poison, 0)]
    assert poisons == [m.Poison(RUN, keys("x"), "task #0 failed"), m.Poison(RUN, keys("y"), "task #0 failed")]
    client.nothing_left()


def test_a_partial_result_that_is_lost_is_told_to_the_dispatcher_of_its_reduction() -> None:
    client = Client(*CHAIN).begun(0, 1)
    ((dispatcher, _), *_) = [item for item in client.submitted().items() if 0 in item[1]]
    client.tell(1, m.Lost(RUN, keys(".amfs-reduce/0/3"), -1))
    assert client.take_all(m.PartLost) == [(dispatcher, m.PartLost(RUN, 0, -3))]
    client.ends(dispatcher, result(0)).effects_of(Ended)
    client.tell(1, m.Lost(RUN, keys(".amfs-reduce/0/3"), -1))
    assert client.take_all(m.PartLost) == []


def test_a_file_that_is_lost_again_and_again_ends_the_run() -> None:
    client = Client(*CHAIN, limits=SubmitterLimits(heartbeat_s=math.inf, redo_max=2)).begun(0)
    client.submitted()
    for _ in range(2):
        client.ends(0, result(0)).tell(0, m.Lost(RUN, keys("x"), -1))
        assert client.submitted() == {0: [0]}
    client.ends(0, result(0)).tell(0, m.Lost(RUN, keys("x"), -1))
    client.run_ended(0, reason="what task a makes was lost 3 times")


def test_the_last_node_that_is_lost_ends_the_run() -> None:
    client = Client(*CHAIN).begun(0)
    client.submitted()
    client.tell(0, m.View(9, 0, (), (0,), 0))
    assert client.effect(RunOver).reason == "all nodes are lost, or were shut down"
    client.nothing_left()


def test_nodes_that_cannot_be_reached_all_together_end_the_run() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.feed(PeerDown(0))
    assert not client.machine.ending
    client.feed(PeerDown(1))
    assert client.effect(RunOver).reason == "all nodes are lost, or were shut down"


def test_a_node_that_cannot_be_reached_is_waited_for_until_the_manager_has_spoken() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.feed(PeerDown(1)).advance(SubmitterLimits().unreachable_s / 2)
    client.view(0).advance(60).nothing_left()


def test_a_node_that_only_we_cannot_reach_ends_the_run() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.feed(PeerDown(1)).advance(SubmitterLimits().unreachable_s + 1)
    client.run_ended(0, 1, reason="node 1 does not answer, although it is there for the others")


def test_a_node_that_has_ended_the_run_by_itself_ends_it() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.tell(1, m.RunGone(RUN, 1, {}))
    assert [node for node, _ in client.take_all(m.RunEnd)] == [0, 1]
    reason = client.machine.course.reason
    assert reason == "node 1 has ended the run: it had not heard from here for too long, or the run was resumed elsewhere"


# ── what keeps a run alive ─────────────────────────────────────────────────────────────────────────


BEAT_S = SubmitterLimits().heartbeat_s


def beating(*nodes: int, unit_size: int = 0) -> Client:
    client = Client(*CHAIN, limits=SubmitterLimits()).begun(*nodes, unit_size=unit_size)
    client.submitted()
    return client.nothing_left()


def test_the_manager_and_the_dispatchers_hear_that_the_submitter_lives() -> None:
    client = beating(0, 1, 2, 3, unit_size=2).advance(BEAT_S)
    assert client.take_all(m.Heartbeat) == [(0, m.Heartbeat(1)), (2, m.Heartbeat(1))], "node 0 manages, 0 and 2 dispatch"
    client.advance(3 * BEAT_S)
    assert len(client.take_all(m.Heartbeat, 2)) == 3


def test_once_a_node_has_fallen_silent_all_are_told() -> None:
    client = beating(0, 1, 2).feed(PeerDown(1)).advance(BEAT_S)
    assert [node for node, _ in client.take_all(m.Heartbeat)] == [0, 1, 2]
    client.view(0, 2).advance(BEAT_S)
    assert client.take_all(m.Heartbeat) == [(0, m.Heartbeat(2)), (2, m.Heartbeat(2))]


def test_heartbeats_go_on_while_the_nodes_end_the_run_and_not_after() -> None:
    client = beating(0).feed(StopRun("interrupted")).advance(BEAT_S)
    client.take(m.Heartbeat, 0)
    client.run_ended(0, reason="interrupted")
    client.advance(10 * BEAT_S).nothing_left()


# ── lists that grow ────────────────────────────────────────────────────────────────────────────────


def test_an_open_list_runs_as_it_grows_and_does_not_end_by_itself() -> None:
    client = Client(open_ended=True).begun(0).nothing_left()
    client.add(task("a", "", "x"))
    ((_, submit),) = client.take_all(m.Submit)
    assert submit.tasks[0].retentions == (m.retention(m.KEEP),), "nobody knows yet how often it will be read"
    client.ends(0, result(0)).effects_of(Ended)
    client.nothing_left()
    client.add(task("b", "x", "y"), task("c", "y"))
    assert client.submitted() == {0: [1, 2]}
    client.ends(0, result(1), result(2)).effects_of(Ended)
    client.nothing_left()
    client.feed(CloseList())
    assert client.take(m.FinalizeFiles, 0) == m.FinalizeFiles(RUN, (), keys("x y")), "all files have been read"
    client.run_ended(0)


def closed(*tasks: Task) -> Client:
    """An open list with these tasks, all finished on node 1, and about to be closed."""
    client = Client(open_ended=True).begun(0, 1).add(*tasks)
    client.submitted()
    client.ends(0, *(result(tid, node=1) for tid in range(len(tasks)))).effects_of(Ended)
    return client.nothing_left()


def test_a_closed_list_is_settled_before_the_run_ends() -> None:
    client = closed(task("a", "", "x"), task("b", "x", "y z", keep="z")).feed(CloseList())
    assert client.take(m.FinalizeFiles, 0) == m.FinalizeFiles(RUN, keys("y"), keys("x")), "z is there already, and b has read x"
    client.nothing_left()
    client.tell(1, m.Flushed(RUN, (("y", 5, ""),)))
    client.effect(FilesFlushed)
    client.run_ended(0, 1)


def test_what_a_task_declares_as_scratch_is_dropped_with_the_list() -> None:
    client = closed(msgspec.structs.replace(task("a", "", "x y"), scratch=("y",))).feed(CloseList())
    assert client.take(m.FinalizeFiles, 0) == m.FinalizeFiles(RUN, keys("x"), keys("y"))


def test_a_final_that_cannot_be_written_ends_the_waiting_too() -> None:
    client = closed(task("a", "", "x")).feed(CloseList())
    client.take(m.FinalizeFiles, 0)
    client.tell(1, m.Flushed(RUN, (("x", 0, "disk full"),)))
    assert client.effect(FilesFlushed).files == [("x", 0, "disk full")]
    client.run_ended(0, 1)


def test_finals_of_an_open_list_that_died_are_made_again_before_it_is_settled() -> None:
    client = closed(task("a", "", "x"), task("b", "", "y"))
    client.view(0).feed(CloseList())
    assert client.submitted() == {0: [0, 1]}
    client.ends(0, result(0), result(1))
    assert sorted(client.take(m.FinalizeFiles, 0).finals) == sorted(keys("x y"))


def test_a_node_that_dies_while_its_finals_are_copied_has_them_made_again() -> None:
    client = closed(task("a", "", "x"), task("b", "", "y")).feed(CloseList())
    client.take(m.FinalizeFiles)
    client.tell(1, m.Flushed(RUN, (("x", 5, ""),))).effect(FilesFlushed)
    client.view(0)
    assert client.submitted() == {0: [1]}, "x has arrived"
    client.ends(0, result(1, node=0))
    assert client.take(m.FinalizeFiles, 0).finals == keys("y")
    client.tell(0, m.Flushed(RUN, (("y", 5, ""),))).effect(FilesFlushed)
    client.run_ended(0)


def test_what_tasks_wait_for_in_vain_is_poisoned() -> None:
    client = Client(open_ended=True).begun(0)
    client.checker.states["never"] = client.checker.states.get("never")  # type: ignore[assignment]
    client.add(task("a", "never"))
    client.submitted()
    client.feed(CloseList(orphans=("never",)))
    assert client.take(m.Poison, 0) == m.Poison(RUN, keys("never"), "no task makes never")
    client.ends(0, result(0, Outcome.UPSTREAM_FAILED))
    client.run_ended(0)


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


def test_a_task_of_an_open_list_may_be_skipped_and_wanted_after_all() -> None:
    client = Client(open_ended=True).begun(0)
    client.tasks.extend([task("a", "", "x"), task("b", "x")])
    for one in client.tasks:
        client.checker.add(one)
    client.feed(AddTasks(2, skip=(0,)))
    assert client.submitted() == {0: [1]}
    assert client.machine.skipped == 1
    client.feed(RunSkipped((0,)))
    assert client.submitted() == {0: [0]}
    client.feed(RunSkipped((0,))).nothing_left()
    assert client.machine.skipped == 0


def test_a_final_that_an_earlier_run_left_in_the_store_is_copied_out_when_the_list_is_closed() -> None:
    client = Client(open_ended=True).begun(0)
    client.tasks.extend([task("a", "", "x y"), task("b", "", "z", keep="z")])
    for one in client.tasks:
        client.checker.add(one)
    client.feed(AddTasks(2, skip=(0, 1), unsaved=("x", "z"))).nothing_left()
    client.feed(CloseList())
    assert client.take(m.FinalizeFiles, 0).finals == keys("x z"), "y is nowhere, or on shared storage"


def test_files_that_an_earlier_run_left_on_shared_storage_are_read_from_there() -> None:
    client = Client(open_ended=True).begun(0)
    client.tasks.extend([task("a", "", "x", keep="x"), task("b", "x")])
    for one in client.tasks:
        client.checker.add(one)
    client.feed(AddTasks(2, skip=(0,), ready=("x",)))
    ((_, submit),) = client.take_all(m.Submit)
    assert [(spec.tid, spec.inputs, spec.shared) for spec in submit.tasks] == [(1, (), keys("x"))]


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


# ── under random orders ────────────────────────────────────────────────────────────────────────────

some = st.integers(0, 1 << 16)


class RandomOrders(RuleBasedStateMachine):
    """A layered workflow over dispatchers that die and come: the run always ends, with every task finished or failed."""

    def __init__(self) -> None:
        super().__init__()
        tasks = [
            task(f"t{i}", f"f{i - 7} f{i // 2 - 5}" if i >= 12 else "", f"f{i}", keep="" if i % 5 else f"f{i}") for i in range(40)
        ]
        self.client = Client(*tasks, limits=SMALL)
        self.nodes = [0, 1, 2]
        self.next_node = 3
        self.out: dict[int, list[int]] = {0: [], 1: [], 2: []}
        self.told: Counter[int] = Counter()
        self.client.view(*self.nodes, unit_size=1)
        self.listen()

    def listen(self) -> None:
        for to, message in self.client.sent:
            match message:
                case m.Submit(tasks=specs):
                    assert to in self.nodes
                    for spec in specs:
                        held = [dispatcher for dispatcher, tids in self.out.items() if spec.tid in tids]
                        assert not held, f"task {spec.tid} is with dispatcher {held} already"
                        assert not self.client.machine.state[spec.tid], "it has ended"
                        self.out[to].append(spec.tid)
                    assert len(self.out[to]) <= SMALL.window + 2 or specs[0].attempt
                case m.RunBegin() | m.Publish() | m.RunEnd() | m.Poison() | m.Locate() | m.ReadAgain():
                    assert to in self.nodes
                case _:
                    raise AssertionError(f"a submitter does not say {message}")
        self.client.sent.clear()
        for ended in self.client.effects_of(Ended):
            self.told.update(one.tid for one in ended.results)

    @property
    def going(self) -> bool:
        return not self.client.machine.ending

    @rule(which=some, count=st.integers(1, 8), failed=st.sampled_from([False, False, False, True]))
    def tasks_end(self, which: int, count: int, failed: bool) -> None:
        dispatcher = self.nodes[which % len(self.nodes)]
        ended, self.out[dispatcher] = self.out[dispatcher][:count], self.out[dispatcher][count:]
        outcome = Outcome.EXIT if failed else Outcome.OK
        self.client.ends(dispatcher, *(result(tid, outcome, node=dispatcher) for tid in ended), parked=which % 3)
        self.listen()

    @precondition(lambda self: len(self.nodes) > 1 and self.going)
    @rule(which=some)
    def node_dies(self, which: int) -> None:
        node = self.nodes.pop(which % len(self.nodes))
        del self.out[node]
        self.client.view(*self.nodes, unit_size=1)
        self.listen()

    @precondition(lambda self: len(self.nodes) < 4 and self.going)
    @rule()
    def node_joins(self) -> None:
        self.nodes.append(self.next_node)
        self.out[self.next_node] = []
        self.next_node += 1
        self.client.view(*self.nodes, unit_size=1)
        self.listen()

    @rule(which=some)
    def files_are_missed(self, which: int) -> None:
        names = {which % 40, which // 40 % 40}
        self.client.tell(self.nodes[0], m.Lost(RUN, tuple(key(f"f{i}") for i in sorted(names)), -1))
        self.listen()

    def teardown(self) -> None:
        machine = self.client.machine
        for _ in range(1000):
            if machine.ending:
                break
            for which in range(len(self.nodes)):
                self.tasks_end(which, 8, False)
        assert machine.ending, "the run does not end"
        for node in machine.course.nodes(RunNodeState.ENDING):
            self.client.tell(node, m.RunGone(RUN, node, {}))
        over = self.client.effect(RunOver)
        assert over.reason == "" or "was lost" in over.reason
        if not over.reason:
            assert set(machine.state) <= {FINISHED, FAILED}
            assert set(self.told) == set(range(40))
            assert sum(self.told.values()) == 40 + sum(machine.redone_times.values())


TestRandomOrders = RandomOrders.TestCase
TestRandomOrders.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("nodes", [(0,), (0, 1, 2)])
def test_a_thousand_tasks_are_each_submitted_once(nodes: tuple[int, ...]) -> None:
    client = Client(*(task(f"t{i}", f"f{i - 1}" if i % 10 else "", f"f{i}") for i in range(1000)), limits=SMALL)
    client.view(*nodes, unit_size=1).take_all(m.RunBegin)
    seen: list[int] = []
    while not client.machine.ending:
        given = client.submitted()
        assert given, "it waits although nothing is out"
        seen += [tid for tids in given.values() for tid in tids]
        for dispatcher, tids in given.items():
            client.ends(dispatcher, *(result(tid, node=dispatcher) for tid in tids))
    assert sorted(seen) == list(range(1000))


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
