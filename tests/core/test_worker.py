"""The worker, as stories: words and acts of one node about its tasks and files, and nothing else.

The node under test is 0; the records of all files are kept by node 5, tasks come from the dispatcher on node 4, nodes 1 to 3 are
neighbours in the unit.
"""

from __future__ import annotations

import msgspec
import pytest
from parts import BASE, CLIENT, RUN, begin, key, keys, spec
from worker_node import BIG, DISPATCHER, SHARD, Node, members, mine, tid_of

from amfs.config import WorkerLimits
from amfs.engine.fls import SHARED_RETENTION
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import CopyOut, Delete, FetchData, JobDone, MoveAway, ReadStore, StageIn, StoreInline
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import Outcome

# ── tasks that run ─────────────────────────────────────────────────────────────────────────────────


def test_a_task_without_inputs_runs_at_once_and_is_reported() -> None:
    node = Node().assign(mine(1, outputs="out"))
    (record,) = node.launched()
    assert tid_of(record) == 1
    assert record.outputs == (("out", "/store/7/out"),)
    node.nothing_left()
    node.exits(1, 12)
    assert node.take(m.Publish, SHARD) == m.Publish(RUN, (m.Published(key("out"), 12, m.retention(1)),))
    (told,) = node.done()
    assert (told.tid, told.outcome, told.sizes, told.bytes_out, told.node, told.end_us - told.start_us) == (1, 0, (12,), 12, 0, 1000)
    node.nothing_left()


def test_slots_are_filled_first_come_first_run() -> None:
    node = Node(slots=2).assign(*(mine(tid) for tid in range(1, 5)))
    assert node.running() == [1, 2]
    node.exits(2)
    assert node.running() == [3]
    node.exits(1)
    assert node.running() == [4]


def test_short_tasks_are_queued_at_the_launcher_beyond_its_slots() -> None:
    node = Node(slots=1).assign(*(mine(tid) for tid in range(1, 100)))
    assert node.running() == [1]
    for tid in range(1, 80):
        node.exits(tid, took_us=10)
    backlog = len(node.machine.inflight)
    assert 1 < backlog <= 1 + WorkerLimits().backlog_max, "tasks of 10 us must not wait for a turn of the loop each"


def test_a_node_without_neighbours_has_a_short_task_ready_at_the_launcher() -> None:
    node = Node(slots=2, neighbours=()).assign(*(mine(tid) for tid in range(1, 8)))
    assert node.running() == [1, 2], "nobody knows how long they take"
    node.exits(1, took_us=50_000)
    assert node.running() == [3, 4], "the second of these begins when a slot is free, without a turn of the loop"
    node.exits(2, took_us=50_000)
    assert node.running() == [5]


def test_behind_long_tasks_nothing_waits_at_the_launcher() -> None:
    node = Node(slots=2, neighbours=()).assign(*(mine(tid) for tid in range(1, 8)))
    node.running()
    node.exits(1, took_us=60_000_000)
    assert node.running() == [3], "a node may join that could begin the next one sooner"


def test_nothing_waits_at_the_launcher_of_a_node_whose_job_has_an_end() -> None:
    node = Node(slots=2, neighbours=())
    node.feed(msgspec.structs.replace(members(PartitionTable([SHARD] * 8), (), set()), ends={0: 1e6}))
    node.assign(*(mine(tid) for tid in range(1, 8)))
    node.running()
    node.exits(1, took_us=50_000)
    assert node.running() == [3], "whether there is time for a task is asked when it begins"


def test_a_node_that_drains_begins_nothing_ahead() -> None:
    node = Node(slots=2, neighbours=()).assign(*(mine(tid) for tid in range(1, 8)))
    node.running()
    node.exits(1, took_us=50_000)
    assert node.running() == [3, 4]
    node.feed(msgspec.structs.replace(members(PartitionTable([SHARD] * 8), (), set()), draining={0}))
    node.exits(2, took_us=50_000).exits(3, took_us=50_000).exits(4, took_us=50_000)
    assert node.running() == []


def test_a_node_that_drains_gives_away_what_has_not_begun_and_what_comes_late() -> None:
    node = Node(slots=1, neighbours=(1,)).assign(mine(1), mine(2), mine(3, priority=5), mine(4, "a"), mine(5, pin=0))
    (running,) = node.running()
    drains = msgspec.structs.replace(members(PartitionTable([SHARD] * 8), (1,), set()), draining={0})
    given = [task.tid for _, message in node.feed(drains).take_all(m.Assign) for task in message.tasks]
    assert sorted(given) == [tid for tid in (1, 2, 3, 4) if tid != running], "but for the one that must run here"
    node.assign(mine(6, "a")).feed(MoveAway())
    assert [task.tid for task in node.take(m.Assign, 1).tasks] == [6]


def test_with_neighbours_the_rest_stays_where_it_can_be_stolen() -> None:
    node = Node(slots=2, neighbours=(1,)).assign(*(mine(tid) for tid in range(1, 6)))
    assert node.running() == [1, 2]
    node.exits(1, took_us=10_000_000)
    assert node.running() == [3]


def test_higher_priority_runs_first() -> None:
    node = Node(slots=1).assign(mine(1), mine(2), mine(3, priority=5), mine(4, priority=9), mine(5, priority=-1))
    order = node.running()
    while order[-1] != 5:
        node.exits(order[-1])
        order += node.running()
    assert order == [4, 3, 1, 2, 5]


def test_a_failed_task_keeps_its_inputs_for_the_next_attempt() -> None:
    node = Node().assign(mine(1, "a", "b")).located("a", 2).inline("a", 2).forget()
    node.exits(1, outcome=Outcome.EXIT, detail="status 1")
    (told,) = node.done()
    assert (told.outcome, told.code, told.detail) == (Outcome.EXIT, 1, "status 1")
    node.nothing_left()  # neither Release nor Publish: the dispatcher decides


def test_a_repeated_assignment_is_one_task() -> None:
    node = Node().assign(mine(1)).assign(mine(1))
    assert node.running() == [1]
    node.exits(1)
    assert [told.tid for told in node.done()] == [1]
    node.nothing_left()


def test_a_new_attempt_at_a_running_task_is_answered_by_the_old_one() -> None:
    """Its dispatcher was lost, the next one assigns it again: the work is kept. The first may live on the other side of a cut network."""
    node = Node().assign(mine(1))
    node.running()
    node.assign(spec(1, attempt=1, origin=3), by=3).exits(1)
    assert node.running() == []
    assert [(told.tid, told.attempt) for told in node.take(m.Done, 3).results] == [(1, 1)]
    assert [(told.tid, told.attempt) for told in node.done()] == [(1, 0)]
    node.nothing_left()


def test_a_task_of_two_dispatchers_is_done_for_the_one_that_is_left() -> None:
    """Both sides of a cut network gave it to this node before it could begin; then this node learns which side it is on."""
    node = Node(slots=1).assign(mine(1)).assign(mine(2))
    node.running()
    node.assign(spec(2, attempt=3, origin=3), by=3)
    node.feed(members(PartitionTable([SHARD] * 8), [1, 2], {3}))
    node.exits(1)
    assert node.running() == [2]
    node.exits(2)
    assert [(told.tid, told.attempt) for told in node.done()] == [(1, 0), (2, 0)]


def test_outputs_that_nobody_reads_or_wants_are_deleted() -> None:
    node = Node().assign(mine(1, outputs="scratch", readers=0)).forget()
    node.exits(1, 12)
    assert node.effect(Delete) == Delete([key("scratch")])
    assert len(node.done()) == 1
    node.nothing_left()


# ── files come ─────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_parked_under_a_missing_file_and_woken_by_it() -> None:
    node = Node().assign(mine(1, "a", "b"))
    assert node.take(m.Locate, SHARD) == m.Locate(RUN, keys("a"))
    node.nothing_left()
    node.located("a", 2)
    assert node.take(m.Fetch, 2) == m.Fetch(RUN, keys("a"))
    node.nothing_left()
    node.inline("a", 2)
    assert node.effect(StoreInline) == StoreInline(key("a"), b"hello", 0o444)
    assert node.take(m.Replica, SHARD) == m.Replica(RUN, keys("a"))
    (record,) = node.launched()
    assert record.inputs == (("/store/7/a", "a"),)
    assert record.stamps == ((5, 0),)
    node.nothing_left()
    node.exits(1, 7)
    assert node.take(m.Release, SHARD) == m.Release(RUN, keys("a"))
    (told,) = node.done()
    assert (told.bytes_in, told.bytes_fetched) == (5, 5)
    assert node.take(m.Publish, SHARD).files[0].name == key("b")
    node.nothing_left()


def test_one_fetch_serves_all_tasks_that_wait() -> None:
    node = Node(slots=3).assign(mine(1, "a"), mine(2, "a")).assign(mine(3, "a"))
    assert node.take(m.Locate).names == keys("a")
    node.located("a", 2)
    node.take(m.Fetch, 2)
    node.assign(mine(4, "a")).located("a", 2)
    node.nothing_left()
    node.inline("a", 2)
    assert node.running() == [1, 2, 3]
    node.take(m.Replica)
    node.effect(StoreInline)
    node.exits(1)
    assert node.running() == [4]


def test_a_task_waits_for_all_its_inputs() -> None:
    node = Node().assign(mine(1, "a b")).forget().located("a", 2).inline("a", 2)
    assert node.running() == []
    node.located("b", 3).inline("b", 3)
    assert node.running() == [1]


def test_locations_are_asked_for_in_one_message_per_shard() -> None:
    node = Node(begun=False)
    owners = [SHARD, 4]
    node.feed(members(PartitionTable(owners), [1], set())).tell(CLIENT, begin()).forget()
    names = " ".join(f"f{i}" for i in range(20))
    node.assign(mine(1, names))
    asked = dict(node.take_all(m.Locate))
    assert asked.keys() == {SHARD, 4}
    assert sorted(asked[SHARD].names + asked[4].names) == sorted(keys(names))
    for shard, locate in asked.items():
        assert all(node.machine.state.table.node_of(name) == shard for name in locate.names)
    node.nothing_left()


def test_large_content_comes_through_the_data_port() -> None:
    node = Node().assign(mine(1, "a")).located("a", 2, size=BIG - 1).forget()
    node.tell(2, m.Content(RUN, (m.Blob(key("a"), BIG - 1, mode=0o555),)))
    job = node.effect(FetchData)
    assert (job.peer, job.name, job.size, job.mode) == (2, key("a"), BIG - 1, 0o555)
    node.nothing_left()
    node.feed(JobDone(job.serial, "", BIG - 1))
    assert node.running() == [1]
    node.take(m.Replica, SHARD)
    node.nothing_left()


def test_when_a_holder_has_it_no_more_another_is_asked() -> None:
    node = Node().assign(mine(1, "a")).located("a", 2).forget()
    node.tell(2, m.Content(RUN, (m.Blob(key("a"), 0, missing=True),)))
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys("a"), 2)
    assert node.take(m.Locate, SHARD) == m.Locate(RUN, keys("a"))
    node.nothing_left()
    node.located("a", 3)
    assert node.take(m.Fetch, 3) == m.Fetch(RUN, keys("a"))
    node.inline("a", 3)
    assert node.running() == [1]


def test_a_broken_fetch_is_blamed_on_the_holder_that_broke_it() -> None:
    node = Node().assign(mine(1, "a")).located("a", 3, 2, size=BIG - 1).forget()
    node.tell(3, m.Content(RUN, (m.Blob(key("a"), BIG - 1),)))
    first = node.effect(FetchData)
    node.feed(JobDone(first.serial, "connection reset", 0))
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys("a"), 3)
    assert node.take(m.Locate, SHARD).names == keys("a")
    assert "connection reset" in node.logs[-1]
    node.nothing_left()


def test_a_fetch_that_breaks_after_its_holder_died_is_not_blamed_on_the_next() -> None:
    node = Node().assign(mine(1, "a")).located("a", 3, size=BIG - 1).forget()
    node.tell(3, m.Content(RUN, (m.Blob(key("a"), BIG - 1),)))
    old = node.effect(FetchData)
    node.feed(members(node.machine.state.table, [1, 2], {3}))
    assert node.take(m.Locate, SHARD).names == keys("a")
    node.located("a", 2, size=BIG - 1)
    node.take(m.Fetch, 2)
    node.feed(JobDone(old.serial, "connection timed out", 0)).nothing_left()
    node.inline("a", 2)
    assert node.running() == [1]


def test_holders_known_to_be_dead_are_not_asked() -> None:
    node = Node()
    node.feed(members(node.machine.state.table, [1, 2], {3})).assign(mine(1, "a b")).forget()
    node.tell(SHARD, m.Located(RUN, (m.FileAt(key("a"), 5, (3, 1)), m.FileAt(key("b"), 5, (3,)))))
    assert [message for _, message in node.take_all(m.Lost, SHARD)] == [m.Lost(RUN, keys("a"), 3), m.Lost(RUN, keys("b"), 3)]
    assert node.take(m.Fetch, 1).names == keys("a")
    assert node.take(m.Locate, SHARD).names == keys("b")
    node.nothing_left()


def test_a_file_on_shared_storage_is_read_in_place() -> None:
    node = Node().assign(mine(1, "a")).forget().located("a")
    (record,) = node.launched()
    assert record.inputs == ((f"@{BASE}/a", "a"),)
    node.nothing_left()


def test_shared_inputs_are_staged_once_when_the_run_wants_it() -> None:
    node = Node(stage_shared=True).assign(mine(1, shared="in"), mine(2, shared="in"))
    job = node.effect(StageIn)
    assert (job.name, job.path) == (key("in"), f"{BASE}/in")
    node.nothing_left()
    node.feed(JobDone(job.serial, "", 3))
    records = node.launched()
    assert [tid_of(record) for record in records] == [1, 2]
    assert records[0].inputs == (("/store/7/in", "in"),)
    node.nothing_left()


def test_shared_inputs_that_cannot_be_staged_fail_their_tasks() -> None:
    node = Node(stage_shared=True).assign(mine(1, shared="in"), mine(2, shared="in"))
    node.feed(JobDone(node.effect(StageIn).serial, "no such file", 0))
    assert [(told.tid, told.outcome, told.detail) for told in node.done()] == [
        (tid, Outcome.SETUP, "cannot read its input: no such file") for tid in (1, 2)
    ]
    node.nothing_left()


def test_what_a_task_made_and_no_node_has_any_more_is_held_here_once_it_has_been_brought() -> None:
    """Else nobody would have it dropped after its last reader."""
    node = Node().assign(mine(1, "amfs:/a", "b"))
    node.located("amfs:/a")
    node.feed(JobDone(node.effect(StageIn).serial, "", 5))
    assert node.take(m.Replica, SHARD) == m.Replica(RUN, (key("amfs:/a"),))
    assert node.running() == [1]


def test_a_file_that_will_never_be_fails_its_tasks() -> None:
    node = Node().assign(mine(1, "a b", "c"), mine(2, "b")).forget()
    node.tell(SHARD, m.FileFailed(RUN, keys("a"), ("task #0 failed",)))
    (told,) = node.done()
    assert (told.tid, told.outcome, told.detail) == (1, Outcome.UPSTREAM_FAILED, "task #0 failed")
    node.nothing_left()
    node.located("b", 2).inline("b", 2)
    assert node.running() == [2]


def test_a_file_made_here_wakes_its_readers_without_a_word() -> None:
    node = Node(slots=1).assign(mine(1, outputs="a"), mine(2, "a"))
    assert node.running() == [1]
    node.take(m.Locate)
    node.exits(1, 9)
    assert node.running() == [2]
    assert node.take(m.Publish).files == (m.Published(key("a"), 9, m.retention(1)),)
    assert [told.tid for told in node.done()] == [1]
    node.nothing_left()


# ── tasks go to their data ─────────────────────────────────────────────────────────────────────────


def test_a_task_goes_to_the_node_that_holds_most_of_its_input() -> None:
    node = Node().assign(mine(1, "a b")).forget().located("b", 3)
    assert node.take(m.Fetch, 3).names == keys("b"), "small files are fetched as soon as they are located"
    node.located("a", 2, size=2 * BIG)
    assert node.take(m.Assign, 2) == m.Assign(RUN, (mine(1, "a b"),), moved=True)
    assert node.take(m.TaskMoved, DISPATCHER) == m.TaskMoved(RUN, ((1, 0),), 2)
    node.nothing_left()
    node.inline("b", 3)
    assert node.running() == []


@pytest.mark.parametrize("why", ["came from a neighbour", "is pinned", "the run is not data-aware"])
def test_a_task_stays_when_it(why: str) -> None:
    node = Node(data_aware=why != "the run is not data-aware")
    task = mine(1, "a", pin=0) if why == "is pinned" else mine(1, "a")
    node.assign(task, by=1 if why == "came from a neighbour" else DISPATCHER)
    if why == "came from a neighbour":
        assert node.take(m.TaskMoved, DISPATCHER) == m.TaskMoved(RUN, ((1, 0),), -1)
    node.take(m.Locate)
    node.located("a", 2, size=2 * BIG)
    node.take(m.Fetch, 2)
    node.nothing_left()


def test_a_task_stays_that_the_worker_on_its_dispatchers_node_gave_away() -> None:
    """Seed 701317: a node without room let others steal its tasks. Their dispatcher was on that node, so each thief took them for assigned
    by the dispatcher, and sent them back to their data, for ever."""
    dispatcher = 1
    node = Node().tell(dispatcher, m.Assign(RUN, (spec(1, "a", origin=dispatcher),), moved=True)).forget()
    node.located("a", dispatcher, size=2 * BIG)
    assert node.take(m.Fetch, dispatcher).names == keys("a")
    node.nothing_left()


def test_a_reduction_tells_its_dispatcher_where_the_inputs_are() -> None:
    node = Node().assign(mine(1, "a b", "out", reduce=2)).forget()
    node.located("a", 2, size=7).located("b", 3, 1, size=8)
    at = (m.FileAt(key("a"), 7, (2,)), m.FileAt(key("b"), 8, (3, 1)))
    assert node.take(m.ReducePlan, DISPATCHER) == m.ReducePlan(RUN, 1, 0, at)
    assert node.machine.runs[RUN].tasks == {}
    assert node.running() == []


# ── files go ───────────────────────────────────────────────────────────────────────────────────────


def test_finals_are_on_shared_storage_before_their_task_is_reported() -> None:
    node = Node().assign(mine(1, outputs="out", readers=0, final=True)).forget().exits(1, 12)
    job = node.effect(CopyOut)
    assert (job.name, job.path) == (key("out"), f"{BASE}/out")
    assert node.take(m.Publish).files == (m.Published(key("out"), 12, m.retention(0, True)),)
    assert node.done() == []
    node.feed(JobDone(job.serial, "", 12))
    assert node.take(m.Publish).files == (m.Published(key("out"), 12, SHARED_RETENTION),)
    assert node.take(m.Flushed, CLIENT) == m.Flushed(RUN, (("out", 12, ""),))
    assert [told.outcome for told in node.done()] == [0]
    node.nothing_left()


def test_a_final_that_cannot_be_written_fails_its_task() -> None:
    node = Node().assign(mine(1, "a", "out", readers=0, final=True)).located("a", 2).inline("a", 2).forget().exits(1, 12)
    job = node.effect(CopyOut)
    node.forget().feed(JobDone(job.serial, "disk full", 0))
    assert node.take(m.Flushed, CLIENT).files == (("out", 0, "disk full"),)
    (told,) = node.done()
    assert (told.outcome, told.detail) == (Outcome.OUTPUT_LOST, "cannot write its output: disk full")
    node.nothing_left()


def test_a_final_that_is_damaged_fails_its_task_and_is_given_up_for_its_readers() -> None:
    node = Node().assign(mine(1, outputs="out", readers=1, final=True)).forget().exits(1, 12)
    job = node.effect(CopyOut)
    node.forget().feed(JobDone(job.serial, "out is damaged: its content is not what was written", 12, damaged=True))
    assert node.take(m.Flushed, CLIENT).files[0][2]
    assert [told.outcome for told in node.done()] == [Outcome.OUTPUT_LOST]
    assert node.take(m.Lost) == m.Lost(RUN, keys("out"), 0)
    assert [list(effect.names) for effect in node.effects if isinstance(effect, Delete)] == [[key("out")]]


def test_a_file_of_the_session_is_published_when_it_has_been_taken_out_and_not_before() -> None:
    node = Node().assign(mine(1, outputs="amfs:/out", readers=1, final=True), mine(2, "amfs:/out")).forget().exits(1, 12)
    job = node.effect(CopyOut)
    assert not node.take_all(m.Publish) and node.running() == [] and node.done() == []
    node.feed(JobDone(job.serial, "", 12))
    published = [(file.size, file.retention) for _, message in node.take_all(m.Publish) for file in message.files]
    assert published == [(12, m.retention(1, True)), (12, SHARED_RETENTION)]
    assert node.running() == [2] and [told.outcome for told in node.done()] == [0]


def test_a_file_of_the_session_that_could_not_be_made_is_read_by_nobody() -> None:
    node = Node().assign(mine(1, outputs="amfs:/out", readers=1, final=True), mine(2, "amfs:/out")).forget().exits(1, 12)
    node.feed(JobDone(node.effect(CopyOut).serial, "no space", 0))
    assert not node.take_all(m.Publish) and node.running() == []
    assert [told.outcome for told in node.done()] == [Outcome.OUTPUT_LOST]
    assert [list(effect.names) for effect in node.effects if isinstance(effect, Delete)] == [[key("amfs:/out")]]


def test_a_reader_that_came_while_a_file_of_the_session_was_made_asks_where_it_is_if_it_was_not() -> None:
    """So it hears when the maker is given up, or that another node has made it."""
    node = Node().assign(mine(1, outputs="amfs:/out", readers=1, final=True)).forget().exits(1, 12)
    job = node.effect(CopyOut)
    node.assign(mine(2, "amfs:/out"))
    assert not node.take_all(m.Locate)
    node.feed(JobDone(job.serial, "no space", 0))
    assert node.take(m.Locate).names == keys("amfs:/out")
    node.forget().tell(SHARD, m.FileFailed(RUN, keys("amfs:/out"), ("task #1 failed",)))
    assert [told.outcome for told in node.done()] == [Outcome.UPSTREAM_FAILED]


def test_outputs_written_in_place_are_shared_at_once() -> None:
    node = Node().assign(mine(1, outputs="out", unstaged=True), mine(2, "out"))
    (record,) = node.launched()
    assert record.outputs == (("out", ""),)
    node.take(m.Locate)
    node.exits(1, 3)
    assert node.take(m.Publish).files == (m.Published(key("out"), 3, SHARED_RETENTION),)
    assert node.running() == [2]


def test_a_dropped_file_is_deleted() -> None:
    node = Node().assign(mine(1, outputs="a")).exits(1, 12).forget()
    node.tell(SHARD, m.Drop(RUN, keys("a")))
    assert node.effect(Delete) == Delete([key("a")])
    node.tell(SHARD, m.Drop(RUN, keys("a"))).nothing_left()


def test_a_dropped_file_stays_until_the_tasks_here_have_read_it() -> None:
    node = Node().assign(mine(1, outputs="a")).exits(1, 12).assign(mine(2, "a")).forget()
    node.tell(SHARD, m.Drop(RUN, keys("a"))).nothing_left()
    node.exits(2)
    assert node.effect(Delete) == Delete([key("a")])


def test_a_file_that_was_to_be_dropped_and_is_made_again_stays() -> None:
    node = Node(slots=2).assign(mine(1, outputs="a")).exits(1, 12).assign(mine(2, "a")).tell(SHARD, m.Drop(RUN, keys("a")))
    node.assign(mine(1, outputs="a", attempt=1)).exits(1, 12).forget()
    node.exits(2)
    assert not node.effects_of(Delete)


def test_files_are_served_from_the_store() -> None:
    node = Node().tell(3, m.Fetch(RUN, keys("a b")))
    assert node.effect(ReadStore) == ReadStore(3, RUN, keys("a b"))
    node.nothing_left()


def test_a_file_that_a_settled_run_wants_is_copied_out() -> None:
    node = Node().assign(mine(1, outputs="a", readers=m.KEEP)).exits(1, 12).forget()
    node.tell(SHARD, m.Flush(RUN, keys("a")))
    node.feed(JobDone(node.effect(CopyOut).serial, "", 12))
    assert node.take(m.Flushed, CLIENT).files == (("a", 12, ""),)
    assert node.take(m.Publish).files[0].retention == SHARED_RETENTION
    node.nothing_left()


@pytest.mark.parametrize("outcome", [Outcome.INPUT_CHANGED, Outcome.INPUT_LOST])
def test_a_spoiled_input_is_had_again_for_those_who_wait_for_it(outcome: Outcome) -> None:
    node = Node(slots=1).assign(mine(1, "a"), mine(2, "a"), mine(3)).located("a", 2).inline("a", 2).forget()
    assert sorted(entry.spec.tid for entry in node.machine.inflight.values()) == [3]
    node.exits(3)
    assert node.running() == [1]
    node.forget().exits(1, outcome=outcome, changed="a")
    assert node.effect(Delete) == Delete([key("a")])
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys("a"), 0)
    assert node.take(m.Locate, SHARD) == m.Locate(RUN, keys("a"))
    assert [told.outcome for told in node.done()] == [outcome]
    node.nothing_left()
    node.located("a", 3).inline("a", 3)
    assert node.running() == [2]


def test_a_second_making_of_a_file_that_is_here_changes_nothing_of_it() -> None:
    """The store keeps the first, with which tasks may have begun; they are launched with its size and time, not with the second's."""
    node = Node()
    node.assign(mine(1, outputs="x")).forget().exits(1, 5).forget()
    node.assign(mine(1, outputs="x", attempt=1)).forget().exits(1, 9).forget()
    node.assign(mine(2, "x"))
    (record,) = node.launched()
    assert record.stamps == ((5, 1005),)


def test_a_second_making_of_a_file_that_was_fetched_changes_nothing_of_it() -> None:
    node = Node()
    node.assign(mine(1, outputs="x")).assign(mine(2, "x")).located("x", 3).inline("x", 3)
    node.forget().exits(1, 9)
    node.assign(mine(3, "x"))
    assert {record.stamps for record in node.launched()} == {((5, 0),)}


def test_only_the_input_that_a_task_has_changed_is_given_up() -> None:
    """Not one whose name is a part of that of the other, or occurs in the sentence."""
    node = Node(slots=1).assign(mine(1, "img1 img10 e")).located("img1", 2).located("img10", 2).located("e", 2)
    node.inline("img1", 2).inline("img10", 2).inline("e", 2)
    assert node.running() == [1]
    node.forget().exits(1, outcome=Outcome.INPUT_CHANGED, detail="changed its input: img10", changed="img10")
    assert node.effect(Delete) == Delete([key("img10")])
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys("img10"), 0)
