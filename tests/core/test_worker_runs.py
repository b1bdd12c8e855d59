"""The worker, as stories: tasks that others take, runs that begin and end, nodes that come and go."""

from __future__ import annotations

from itertools import pairwise

from parts import CLIENT, RUN, begin, key, keys
from worker_node import DISPATCHER, SHARD, Node, members, mine

from amfs.config import WorkerLimits
from amfs.node.core import NodeCore
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import AdoptFiles, CloseRun, CopyOut, JobDone, Kill, OpenRun, Received, Send, TasksExited
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import Outcome

# ── stealing ───────────────────────────────────────────────────────────────────────────────────────


def test_half_of_what_waits_for_a_slot_is_given_to_who_asks() -> None:
    node = Node(slots=1).assign(*(mine(tid) for tid in range(1, 6))).forget()
    node.tell(2, m.StealAsk(10))
    assert [task.tid for task in node.take(m.Assign, 2).tasks] == [4, 5]
    assert node.take(m.TaskMoved, DISPATCHER) == m.TaskMoved(RUN, ((4, 0), (5, 0)), 2)
    node.nothing_left()
    node.tell(3, m.StealAsk(1))
    assert [task.tid for task in node.take(m.Assign, 3).tasks] == [3]


def test_pinned_tasks_and_those_that_have_a_slot_are_not_given() -> None:
    node = Node(slots=2).assign(mine(1), mine(2), mine(3, pin=0, pin_hard=False), mine(4)).forget()
    node.tell(2, m.StealAsk(10))
    assert [task.tid for task in node.take(m.Assign, 2).tasks] == [4]
    node.take(m.TaskMoved)
    node.tell(2, m.StealAsk(10)).take(m.StealNone, 2)
    node.nothing_left().exits(1)
    assert node.running() == [3]


def test_an_idle_node_asks_round_the_ring_ever_more_rarely() -> None:
    node = Node(slots=4)
    limits = WorkerLimits()
    asked: list[tuple[float, int]] = []
    for _ in range(6):
        start = node.now
        while not node.sent:
            node.advance(0.0005)
            assert node.now - start < 1, "it has given up asking"
        ((peer, ask),) = node.take_all(m.StealAsk)
        assert ask.want == 8
        asked.append((node.now, peer))
    assert {peer for _, peer in asked} == {1, 2, 3}
    gaps = [later[0] - sooner[0] for sooner, later in pairwise(asked)]
    assert gaps == sorted(gaps)
    assert gaps[-1] <= limits.steal_last_s + 0.001


def test_a_busy_node_does_not_ask() -> None:
    node = Node(slots=1).assign(mine(1)).forget()
    node.advance(5).nothing_left()


def test_a_stolen_task_is_told_to_its_dispatcher() -> None:
    node = Node().assign(mine(1), by=3)
    assert node.take(m.TaskMoved, DISPATCHER) == m.TaskMoved(RUN, ((1, 0),), -1)
    assert node.running() == [1]
    node.exits(1)
    assert [told.tid for told in node.done()] == [1]


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_overtakes_the_begin_of_its_run_is_kept_for_it() -> None:
    node = Node(begun=False).assign(mine(1), mine(2, "a"))
    node.nothing_left().tell(CLIENT, begin())
    assert node.running() == [1]
    node.take(m.Locate, SHARD)
    node.take(m.RunReady, CLIENT)
    node.effect(OpenRun)
    node.nothing_left()


def test_a_run_that_begins_twice_is_answered_twice() -> None:
    node = Node().tell(CLIENT, begin())
    node.take(m.RunReady, CLIENT)
    node.nothing_left()


def test_the_end_of_a_run_kills_its_tasks_and_then_removes_all_of_it() -> None:
    node = Node(slots=1).assign(mine(1), mine(2), mine(3, "a")).forget()
    node.tell(CLIENT, m.RunEnd(RUN, True))
    (serial,) = node.effect(Kill).serials
    node.nothing_left()
    node.assign(mine(9)).located("a", 2).inline("a", 2).tell(SHARD, m.FileFailed(RUN, keys("a"), ("x",))).nothing_left()
    node.feed(TasksExited([(serial, Outcome.CANCELLED, 15, 0, 0, 0, 0, 0, (), b"", b"", "", None)]))
    assert node.effect(CloseRun) == CloseRun(RUN, "7/")
    assert node.take(m.RunGone, CLIENT).node == 0
    assert node.machine.runs == {}
    node.nothing_left()
    node.assign(mine(1)).nothing_left()
    node.tell(CLIENT, m.RunEnd(RUN))
    node.take(m.RunGone, CLIENT)
    node.tell(CLIENT, begin())
    node.take(m.RunGone, CLIENT)
    node.nothing_left()


def test_a_run_ends_when_its_copies_have_ended() -> None:
    node = Node().assign(mine(1, outputs="out", final=True)).exits(1, 12)
    job = node.effect(CopyOut)
    node.forget().tell(CLIENT, m.RunEnd(RUN)).nothing_left()
    node.feed(JobDone(job.serial, "", 12))
    node.effect(CloseRun)
    counters = node.take(m.RunGone, CLIENT).counters
    assert set(counters) >= {"fetched_bytes", "copied_out_files", "stolen", "forwarded"}
    node.nothing_left()


def test_traffic_is_counted() -> None:
    node = Node().assign(mine(1, "a", "out", final=True)).located("a", 2).inline("a", 2).exits(1, 12)
    node.feed(JobDone(node.effect(CopyOut).serial, "", 12)).forget().tell(CLIENT, m.RunEnd(RUN))
    counters = node.take(m.RunGone, CLIENT).counters
    counted = {name: count for name, count in counters.items() if count}
    assert counted == {"fetched_bytes": 5, "fetched_files": 1, "copied_out_bytes": 12, "copied_out_files": 1}


def test_files_of_an_earlier_life_are_adopted() -> None:
    node = Node().assign(mine(1, "a")).forget()
    node.feed(AdoptFiles(RUN, ((key("a"), 5, 77, m.retention(1)), (key("b"), 6, 78, m.retention(2)))))
    assert node.take(m.Publish).files == (m.Published(key("a"), 5, m.retention(1)), m.Published(key("b"), 6, m.retention(2)))
    (record,) = node.launched()
    assert record.stamps == ((5, 77),)
    node.nothing_left()


# ── nodes come and go ──────────────────────────────────────────────────────────────────────────────


def told_anew(node: Node, shard: int) -> None:
    assert node.take(m.Publish, shard).files == (m.Published(key("a"), 12, m.retention(m.KEEP)),), "readers can be counted no more"
    assert node.take(m.Locate, shard) == m.Locate(RUN, keys("b"))
    node.nothing_left()


def test_the_heir_of_a_shard_that_died_is_told_and_asked() -> None:
    node = Node().assign(mine(1, outputs="a"), mine(2, "b")).exits(1, 12).forget()
    node.feed(members(PartitionTable([3] * 8, 2), [1, 2, 3], {SHARD}))
    told_anew(node, 3)


def test_a_shard_that_lives_hands_over_by_itself() -> None:
    """If it dies later, it may not have done so, and who has the partition by then is told."""
    node = Node().assign(mine(1, outputs="a"), mine(2, "b")).exits(1, 12).forget()
    node.feed(members(PartitionTable([3] * 8, 2), [1, 2, 3])).nothing_left()
    node.feed(members(PartitionTable([2] * 8, 3), [1, 2, 3])).nothing_left()
    node.feed(members(PartitionTable([2] * 8, 4), [1, 2, 3], {1})).nothing_left()
    node.feed(members(PartitionTable([2] * 8, 5), [1, 2, 3], {SHARD}))
    told_anew(node, 2)
    node.feed(members(PartitionTable([2] * 8, 6), [1, 2, 3], {SHARD, 3}))
    told_anew(node, 2)


def test_after_views_that_were_missed_all_is_told_and_asked() -> None:
    node = Node().assign(mine(1, outputs="a"), mine(2, "b")).exits(1, 12).forget()
    node.feed(members(PartitionTable([SHARD] * 8, 3), [1, 2, 3]))
    told_anew(node, SHARD)


def test_a_fetch_from_a_dead_holder_is_begun_anew() -> None:
    node = Node().assign(mine(1, "a")).located("a", 2).forget()
    node.feed(members(node.machine.state.table, [1, 3], {2}))
    assert node.take(m.Locate, SHARD).names == keys("a")
    node.located("a", 3)
    assert node.take(m.Fetch, 3).names == keys("a")
    node.nothing_left()


def test_a_fetch_goes_on_when_another_holder_dies() -> None:
    node = Node().assign(mine(1, "a")).located("a", 3, 2).forget()
    node.feed(members(node.machine.state.table, [1, 3], {2})).nothing_left()
    node.tell(3, m.Content(RUN, (m.Blob(key("a"), 5, b"hello"),)))
    assert node.running() == [1]


def test_tasks_of_a_dead_dispatcher_are_given_up_unless_they_run() -> None:
    node = Node(slots=1).assign(mine(1), mine(2), mine(3, "a")).forget()
    node.feed(members(node.machine.state.table, [1, 2, 3], {DISPATCHER}))
    assert set(node.machine.runs[RUN].tasks) == {1}
    node.located("a", 2).exits(1).forget()
    assert node.machine.runs[RUN].tasks == {}


def test_it_can_say_why_a_task_does_not_run() -> None:
    node = Node(slots=1).assign(mine(1), mine(2), mine(3, "a b")).located("b", 2)
    worker = node.machine
    assert worker.explain(RUN, 1) == ["node 0: runs, or is among the next for a slot: 1 such tasks for 1 slots"]
    assert worker.explain(RUN, 2) == ["node 0: waits for a slot: 1 tasks are before it, and 1 wait with it"]
    assert worker.explain(RUN, 3) == ["node 0: waits for a: nobody has made it yet", "node 0: waits for b: on its way from node (2,)"]
    assert worker.explain(RUN, 99) == worker.explain(99, 1) == []


def test_parked_tasks_are_told_to_their_dispatcher_in_steps() -> None:
    step = WorkerLimits().parked_step
    node = Node().assign(*(mine(tid, "a") for tid in range(step)))
    assert node.take(m.Done, DISPATCHER) == m.Done(RUN, (), step)
    node.forget().tell(SHARD, m.FileFailed(RUN, keys("a"), ("x",)))
    done = node.take(m.Done, DISPATCHER)
    assert (len(done.results), done.parked) == (step, 0)


def test_results_of_several_tasks_travel_together() -> None:
    node = Node(slots=2).assign(mine(1), mine(2))
    exits = [(serial, 0, 0, 0, 0, 1, 0, 0, (), b"", b"", "", None) for serial in node.machine.inflight]
    node.forget().feed(TasksExited(exits))
    assert node.take(m.Done).results == (m.Result(1, end_us=1), m.Result(2, end_us=1))


def test_a_resumed_run_may_begin_when_nothing_is_left_of_the_one_before() -> None:
    node = Node(journal="j", life=1)
    node.assign(mine(1)).forget()
    later = m.RunBegin(RUN + 1, CLIENT + 1, m.RunInfo("8/", "/home/u", (), journal="j", life=2), 1)
    node.tell(CLIENT + 1, later)
    node.effect(OpenRun)
    node.nothing_left()
    node.tell(0, m.RunEnd(RUN, True))
    node.effect(Kill)
    node.nothing_left()
    node.exits(1, outcome=Outcome.CANCELLED)
    node.effect(CloseRun)
    node.take(m.RunGone, CLIENT)
    assert node.take(m.RunReady, CLIENT + 1) == m.RunReady(RUN + 1, 0)
    node.nothing_left()


def test_what_overtakes_the_first_view_of_a_node_waits_for_it() -> None:
    """A node that took up a run before it knew its partitions believed that it had kept their records from the beginning, and never named
    to the submitter what others waited for: tasks that were to come after others waited for ever."""
    me = m.Member(2, 1, (), 1)
    core = NodeCore(me, "/store", manager_hint=0)
    core.start(0.0)
    asked = m.Locate(RUN, ("7/./0",))
    for peer, message in ((CLIENT, begin()), (1, asked)):
        assert core.handle(Received(peer, message), 0.1) == []
    members = tuple(m.Member(node, 1, (), 1) for node in range(3))
    out = core.handle(Received(0, m.View(2, 0, members, (2,) * 8)), 0.2)
    said = [(effect.to, effect.message) for effect in out if isinstance(effect, Send)]
    assert (CLIENT, m.RunReady(RUN, 2)) in said
    missed = (CLIENT, m.Lost(RUN, ("7/./0",), -1))
    assert missed not in said, "it waits for what the others have known"
    out = core.handle(Received(0, m.HandOver(2, tuple(range(8)), ())), 0.3)
    said = [(effect.to, effect.message) for effect in out if isinstance(effect, Send)]
    assert missed in said, "it began in a view that nobody here knows"
