"""A worker whose memory is full, as stories: files that leave memory and come back, tasks that wait, and the message when nothing helps.

The account is compared with the files after every event of every story (``check_invariants``), and by itself with random moves.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import RUN, key, keys
from recorder import Recorder
from worker_node import SHARD, Node, members, mine

from amfs.config import MemoryLimits
from amfs.engine.memory import Content, Memory
from amfs.engine.worker import Worker
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    BringBack,
    Delete,
    DropSpilled,
    Evict,
    FetchData,
    GaveWay,
    GiveWay,
    JobDone,
    ReadRoom,
    Restore,
    RoomGiven,
    RoomRead,
    RoomTaken,
    RoomWanted,
    SpillOut,
)
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import PLACE_NEXT, Outcome, Place, PlaceEvent

KIB = 1 << 10
LIMIT = 1000 * KIB
FULL = MemoryLimits(limit=LIMIT, high_water=0.8, spill="/disk")


class Small(Node):
    """A node with room for LIMIT. ``alone``: there is no other node."""

    def __init__(self, memory: MemoryLimits = FULL, slots: int = 2, alone: bool = False) -> None:
        Recorder.__init__(self, Worker(0, slots, "/store", memory=memory))
        if alone:
            self.feed(members(PartitionTable([SHARD] * 8), [], frozenset(range(1, 6))))
        else:
            self.feed(members(PartitionTable([SHARD] * 8), [1, 2, 3], set()))
        self.tell(m.CLIENT_ID_MIN + 5, m.RunBegin(RUN, m.CLIENT_ID_MIN + 5, m.RunInfo("7/", "/home/u", (), data_aware=False), 1)).forget()

    def makes(self, tid: int, name: str, size: int, readers: int = 1) -> Small:
        self.assign(mine(tid, outputs=name, readers=readers))
        running = self.running()
        for effect in self.effects_of(SpillOut) if not running else ():
            self.feed(JobDone(effect.serial, "", self.machine.memory.files[effect.name].size))
            running = self.running()
        assert running == [tid]
        self.exits(tid, size)
        return self

    def place(self, name: str) -> Place:
        return self.machine.runs[RUN].files[key(name)].place

    def spilled(self, *names: str, size: int) -> Small:
        """These are being copied to the disk, and now they are there."""
        begun = self.effects_of(SpillOut)
        assert [effect.name for effect in begun] == [key(name) for name in names]
        for effect in begun:
            self.feed(JobDone(effect.serial, "", size))
        return self


def test_what_is_above_the_mark_is_spilled_and_comes_back_before_its_reader_starts() -> None:
    node = Small().makes(1, "a", 300 * KIB).makes(2, "b", 300 * KIB)
    assert not node.effects_of(SpillOut)
    node.makes(3, "c", 300 * KIB).forget_messages()
    node.spilled("a", size=300 * KIB)  # nobody reads any of them yet: that which came first
    assert node.effect(Evict).name == key("a")
    assert (node.place("a"), node.machine.memory.used, node.machine.memory.on_disk) == (Place.SPILLED, 600 * KIB, 300 * KIB)
    node.assign(mine(4, "b c"))
    assert node.running() == [4]
    node.assign(mine(5, "a"))
    back = node.effect(BringBack)
    assert not node.running(), "its input is on the disk"
    node.feed(JobDone(back.serial, "", 300 * KIB))
    assert node.effect(Restore) == Restore(key("a"), back.serial)
    (record,) = node.launched()
    assert record.inputs == (("/store/7/a", "a"),) and record.stamps == ((300 * KIB, 1000 + 300 * KIB),)
    assert node.place("a") == Place.BOTH, "another time it leaves memory without being copied"


def test_the_submitter_hears_now_and_then_what_was_spilled() -> None:
    node = Small().makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB).spilled("a", size=500 * KIB)
    assert node.take(m.Spilled) == m.Spilled(RUN, 0, 500 * KIB, 500 * KIB, 0)
    node.assign(mine(3, "a"))
    back = node.effect(BringBack)
    node.feed(JobDone(back.serial, "", 500 * KIB))
    assert not node.take_all(m.Spilled), "so soon after"


def test_what_is_needed_last_goes_first() -> None:
    """Files that nobody reads here, then those whose readers wait for more, then the last of the queue; never those of running tasks."""
    node = Small(MemoryLimits(limit=LIMIT, high_water=0.5, spill="/disk"), slots=1)
    for tid, name in enumerate("abcde", 1):
        node.makes(tid, name, 100 * KIB).forget()
    node.assign(mine(10, "a"), mine(11, "b"), mine(12, "c"), mine(13, "d missing"))
    assert node.running() == [10]
    node.forget()
    assert not node.machine.memory.over()
    node.exits(10)  # b is being read from now on, c is ready, d waits, e has no reader
    assert node.running() == [11]
    node.feed(RoomRead(0, 0))  # somebody else has filled the memory
    assert [effect.name for effect in node.effects_of(SpillOut)] == [key("a"), key("e"), key("d")], "c is read by the task that is next"


def test_a_copy_that_another_node_has_goes_before_anything_is_spilled() -> None:
    node = Small()
    node.assign(mine(1, "x")).located("x", 2, size=300 * KIB).tell(2, m.Content(RUN, (m.Blob(key("x"), 300 * KIB),)))
    fetch = node.effect(FetchData)
    node.feed(JobDone(fetch.serial, "", 300 * KIB))
    assert node.running() == [1]
    node.exits(1).makes(2, "a", 300 * KIB).forget()
    node.makes(3, "b", 300 * KIB)
    assert node.effect(Delete) == Delete([key("x")])
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys("x"), 0)
    assert not node.effects_of(SpillOut)


def test_a_task_that_makes_files_waits_for_room_and_others_do_not() -> None:
    node = Small(slots=1).makes(1, "a", 400 * KIB).makes(2, "b", 400 * KIB).forget()
    node.assign(mine(3, outputs="c"), mine(4, "a"))
    assert node.running() == [4], "it makes nothing"
    begun = node.effects_of(SpillOut)
    assert [effect.name for effect in begun] == [key("b")], "a is being read"
    node.exits(4)
    assert not node.running()
    node.feed(JobDone(begun[0].serial, "", 400 * KIB))
    assert node.effect(Evict) and node.running() == [3]


def test_inputs_that_are_larger_than_memory_are_read_from_the_disk() -> None:
    node = Small(slots=1)
    for tid, name in enumerate("abc", 1):
        node.makes(tid, name, 350 * KIB)
    away = [name for name in "abc" if node.place(name) == Place.SPILLED]
    assert away
    node.forget().assign(mine(4, "a b c"))
    (record,) = node.launched()
    sources = {name: source for source, name in record.inputs}
    for name in "abc":
        copy = node.machine.runs[RUN].files[key(name)].copy
        assert sources[name] == (f"@@/disk/{copy:x}" if name in away else f"/store/7/{name}")
    assert record.stamps == ((350 * KIB, 1000 + 350 * KIB),) * 3, "they are compared after the task like any input"


def test_a_file_that_is_larger_than_memory_is_fetched_to_the_disk() -> None:
    node = Small().assign(mine(1, "x")).located("x", 2, size=2 * LIMIT).tell(2, m.Content(RUN, (m.Blob(key("x"), 2 * LIMIT),)))
    fetch = node.effect(FetchData)
    assert fetch.spill
    node.feed(JobDone(fetch.serial, "", 2 * LIMIT))
    assert node.effect(Evict) == Evict(key("x"), fetch.serial)
    (record,) = node.launched()
    assert record.inputs == ((f"@@/disk/{fetch.serial:x}", "x"),)
    node.exits(1).tell(SHARD, m.Drop(RUN, keys("x")))
    assert node.effect(DropSpilled) == DropSpilled([fetch.serial])


def test_fetches_wait_while_the_node_has_other_work() -> None:
    node = Small(slots=1).makes(1, "a", 700 * KIB).forget()
    node.assign(mine(2, "a"), mine(3, "x"))
    assert node.running() == [2]
    node.located("x", 2, size=200 * KIB)
    assert not node.take_all(m.Fetch, 2), "above the mark with it"
    node.exits(2).tell(SHARD, m.Drop(RUN, keys("a")))
    assert node.take(m.Fetch, 2) == m.Fetch(RUN, keys("x"))


def test_while_a_slot_is_empty_one_input_more_is_fetched_into_what_running_tasks_leave() -> None:
    """Slots stood empty until the last task that ran had ended."""
    node = Small(slots=2).makes(1, "a", 700 * KIB).forget()
    node.assign(mine(2, "a"), mine(3, "x"), mine(4, "y"))
    assert node.running() == [2]
    node.located("x", 2, size=200 * KIB).located("y", 2, size=80 * KIB)
    assert node.take(m.Fetch, 2) == m.Fetch(RUN, keys("x")), "one at a time"
    node.tell(2, m.Content(RUN, (m.Blob(key("x"), 200 * KIB),)))
    node.feed(JobDone(node.effect(FetchData).serial, "", 200 * KIB))
    assert node.running() == [3]
    assert not node.take_all(m.Fetch, 2), "no slot is empty"


def test_no_input_is_fetched_into_the_room_for_what_running_tasks_make() -> None:
    node = Small(slots=2).makes(1, "a", 400 * KIB).forget()
    node.assign(mine(2, outputs="b"), mine(3, "x"))
    node.located("x", 2, size=450 * KIB)
    assert not node.take_all(m.Fetch, 2)
    node.exits(2, 10 * KIB)
    assert node.take(m.Fetch, 2) == m.Fetch(RUN, keys("x"))


def test_without_a_spill_directory_it_is_said_what_is_full_and_what_helps() -> None:
    node = Small(MemoryLimits(limit=LIMIT, why_no_spill="there is no spill directory"), slots=1, alone=True)
    for tid, name in enumerate("abcd", 1):
        node.makes(tid, name, 250 * KIB)
    node.forget().assign(mine(5, outputs="e")).advance(5.0)
    assert not node.running()
    (told,) = node.done()
    assert told.outcome == Outcome.SETUP
    assert told.detail == (
        "node 0 has no room for e: 1.0 MB of 1.0 MB (--store-limit) are taken by files that are still needed, and there is no spill "
        "directory. Give a larger --store-limit, more nodes, or with --spill a directory on a disk"
    )


def test_with_other_nodes_a_task_waits_longer_since_they_may_take_files_away() -> None:
    node = Small(MemoryLimits(limit=LIMIT), slots=1)
    for tid, name in enumerate("abcd", 1):
        node.makes(tid, name, 250 * KIB)
    node.forget().assign(mine(5, outputs="e")).advance(5.0)
    assert not node.running() and not node.done()
    assert node.effects_of(ReadRoom), "and looks again and again whether there is room"
    node.tell(SHARD, m.Drop(RUN, keys("a")))
    assert node.running() == [5]


def test_one_that_could_go_on_elsewhere_may_be_stolen_from_a_node_that_is_full() -> None:
    node = Small(MemoryLimits(limit=LIMIT), slots=2)
    for tid, name in enumerate("abcd", 1):
        node.makes(tid, name, 250 * KIB)
    node.forget().assign(mine(5, outputs="e")).tell(1, m.StealAsk(1))
    assert [spec.tid for spec in node.take(m.Assign, 1).tasks] == [5]


def test_a_node_that_is_full_does_not_ask_for_tasks_until_there_is_room() -> None:
    """Seed 721729: two nodes were full and their disks had failed. Each took the same task from the other again and again, and began to
    wait for room anew each time. So neither waited long enough to say that there was no room, and the run did not end."""
    node = Small(MemoryLimits(limit=LIMIT), slots=1)
    for tid, name in enumerate("abcd", 1):
        node.makes(tid, name, 250 * KIB)
    node.forget().advance(5.0)
    assert not node.take_all(m.StealAsk)
    node.effects_of(ReadRoom)
    node.tell(SHARD, m.Drop(RUN, keys("a"))).advance(1.0)
    assert node.take_all(m.StealAsk)
    node.feed(RoomRead(0, 0)).forget().advance(1.0)
    assert not node.take_all(m.StealAsk), "somebody else has filled the memory"
    assert node.effects_of(ReadRoom), "which nobody tells this node, nor that it is free again"
    node.feed(RoomRead(LIMIT, 0)).advance(1.0)
    assert node.take_all(m.StealAsk)


def test_a_node_that_is_full_asks_for_tasks_if_it_can_spill() -> None:
    node = Small(MemoryLimits(limit=LIMIT, high_water=1.0, spill="/disk"), slots=1)
    for tid, name in enumerate("abcd", 1):
        node.makes(tid, name, 250 * KIB)
    node.forget().advance(1.0)
    assert node.machine.memory.room() <= 0 and node.take_all(m.StealAsk)


def test_what_files_take_is_told_where_others_have_the_same_limit() -> None:
    node = Small(MemoryLimits(limit=LIMIT, firm=True)).makes(1, "a", 100 * KIB)
    assert node.effect(RoomTaken) == RoomTaken(100 * KIB, 0)
    node.makes(2, "b", 50 * KIB)
    assert node.effect(RoomTaken) == RoomTaken(150 * KIB, 0)
    node.tell(SHARD, m.Drop(RUN, (key("a"),)))
    assert node.effect(RoomTaken) == RoomTaken(50 * KIB, 0)
    assert not Small().makes(1, "a", 100 * KIB).effects_of(RoomTaken)


def test_spare_copies_give_way_to_files_of_the_session() -> None:
    """Files that only this node has stay, and so do inputs of tasks here."""
    node = Small(MemoryLimits(limit=LIMIT, firm=True), slots=1).makes(1, "a", 100 * KIB)
    node.assign(mine(2, "x", outputs="b"), mine(3, "y z"))
    node.located("x", 2, size=250 * KIB).located("y", 2, size=250 * KIB)
    for name in "xy":
        node.tell(2, m.Content(RUN, (m.Blob(key(name), 250 * KIB),)))
        node.feed(JobDone(node.effect(FetchData).serial, "", 250 * KIB))
    node.exits(2, 50 * KIB).forget()
    node.feed(GiveWay(1, 400 * KIB, math.inf))
    assert node.effect(GaveWay) == GaveWay(1, 250 * KIB)
    assert node.effect(Delete) == Delete([key("x")])
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, (key("x"),), 0)
    assert node.effect(RoomTaken) == RoomTaken(400 * KIB, 0)
    node.feed(GiveWay(2, 400 * KIB, math.inf))
    assert node.effect(GaveWay) == GaveWay(2, 0) and not node.effects_of(Delete)


def test_files_of_runs_go_by_need_and_by_age_when_files_of_the_session_want_room() -> None:
    """The answer waits for the disk. The input of a task goes only where a write would be refused."""
    node = Small(MemoryLimits(limit=4 * LIMIT, spill="/disk"), slots=2).makes(1, "old", 100 * KIB)
    node.advance(10.0)
    node.makes(2, "new", 100 * KIB).makes(3, "read", 100 * KIB)
    node.assign(mine(4, "read later", outputs="d")).forget()
    node.feed(GiveWay(1, LIMIT, 5.0))
    (copy,) = node.effects_of(SpillOut)
    assert copy.name == key("old") and not node.effects_of(GaveWay)
    node.feed(JobDone(copy.serial, "", 100 * KIB))
    assert node.effect(Evict).name == key("old") and node.effect(GaveWay) == GaveWay(1, 100 * KIB)
    node.feed(GiveWay(2, LIMIT, -1.0))
    first, second = node.effects_of(SpillOut)
    assert [first.name, second.name] == [key("new"), key("read")], "what is needed last goes first"
    node.feed(JobDone(first.serial, "", 100 * KIB))
    assert not node.effects_of(GaveWay)
    node.feed(JobDone(second.serial, "no space left on device", 0, True))
    assert node.effect(GaveWay) == GaveWay(2, 100 * KIB)
    node.effect(Evict)


def test_files_of_the_session_that_were_used_longer_ago_go_before_files_of_runs() -> None:
    """And they are asked once, and not again at once if they had less than was wanted."""
    node = Small(MemoryLimits(limit=LIMIT, firm=True, spill="/disk"), slots=1).makes(1, "a", 300 * KIB)
    node.advance(3.0)
    node.feed(RoomRead(1 << 40, 700 * KIB, 0, True))
    asked = node.effect(RoomWanted)
    assert asked.wanted == 1000 * KIB - int(LIMIT * 0.8) and asked.idle_s == pytest.approx(3.0) and not node.effects_of(SpillOut)
    node.feed(RoomRead(1 << 40, 700 * KIB, 0, True))
    assert not node.effects_of(RoomWanted) and not node.effects_of(SpillOut), "the answer is awaited"
    node.feed(RoomGiven(100 * KIB))
    assert node.effect(SpillOut).name == key("a") and not node.effects_of(RoomWanted)


def test_what_others_spilled_counts_for_the_spill_limit() -> None:
    node = Small(MemoryLimits(limit=LIMIT, firm=True, spill="/disk", spill_limit=500 * KIB))
    node.feed(RoomRead(1 << 40, 0, 300 * KIB)).makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB)
    assert not node.effects_of(SpillOut)
    node.feed(RoomRead(1 << 40, 0, 0))
    assert [effect.name for effect in node.effects_of(SpillOut)] == [key("a")]
    assert node.effects_of(RoomTaken)[-1] == RoomTaken(900 * KIB, 500 * KIB)


def test_a_copy_whose_reader_went_to_another_node_makes_room() -> None:
    """A node looked in vain for a file that could go, then gave away the task that was to read a copy of another node's file. It did not
    look again, so the copy stayed, the node remained full, and did not ask for tasks."""
    node = Small(MemoryLimits(limit=LIMIT), slots=1).makes(1, "a", 400 * KIB)
    node.assign(mine(2, outputs="b"), mine(5, "x", outputs="e"))
    node.located("x", 2, size=250 * KIB).tell(2, m.Content(RUN, (m.Blob(key("x"), 250 * KIB),)))
    node.feed(JobDone(node.effect(FetchData).serial, "", 250 * KIB))
    node.exits(2, 400 * KIB).forget()
    assert node.machine.memory.room() < 0 and not node.effects_of(Delete)
    node.tell(1, m.StealAsk(1))
    assert [spec.tid for spec in node.take(m.Assign, 1).tasks] == [5]
    assert node.effect(Delete) == Delete([key("x")])
    node.advance(1.0)
    assert node.take_all(m.StealAsk)


def test_a_disk_that_is_full_is_tried_again() -> None:
    node = Small(slots=1, alone=True).makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB).forget_messages()
    (begun,) = node.effects_of(SpillOut)
    node.feed(JobDone(begun.serial, "no space left on device", 0, True)).assign(mine(3, outputs="c"))
    assert not node.running() and node.logs == ["the spill directory is full: no space left on device"]
    node.advance(0.9)
    assert not node.effects_of(SpillOut) and not node.done()
    node.advance(0.2)
    (again,) = node.effects_of(SpillOut)
    node.feed(JobDone(again.serial, "", 500 * KIB))
    assert node.running() == [3]


def test_a_disk_that_stays_full_fails_the_tasks_that_need_it() -> None:
    node = Small(slots=1, alone=True).makes(1, "a", 500 * KIB).makes(2, "b", 600 * KIB).forget_messages().assign(mine(3, outputs="c"))
    for _ in range(4):
        for begun in node.effects_of(SpillOut):
            node.feed(JobDone(begun.serial, "no space left on device", 0, True))
        node.advance(6.0)
    (told,) = node.done()
    assert told.outcome == Outcome.SETUP and "and the spill directory failed: no space left on device" in told.detail


def test_what_cannot_be_read_back_is_lost_and_made_again() -> None:
    node = Small().makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB).forget_messages().spilled("a", size=500 * KIB)
    node.forget().assign(mine(3, "a"))
    back = node.effect(BringBack)
    copy = back.copy
    node.feed(JobDone(back.serial, "input/output error", 0))
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys("a"), 0)
    assert node.take(m.Locate, SHARD) == m.Locate(RUN, keys("a"))
    assert node.effect(Delete) == Delete([key("a")])
    assert copy in node.effect(DropSpilled).copies
    node.located("a", 0).forget_messages()
    assert node.machine.memory.failed, "and nothing more is spilled to it"


def test_a_file_that_was_dropped_while_it_was_copied_leaves_nothing() -> None:
    node = Small().makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB).forget_messages()
    (begun,) = node.effects_of(SpillOut)
    node.tell(SHARD, m.Drop(RUN, keys("a")))
    assert node.effect(Delete) == Delete([key("a")])
    node.feed(JobDone(begun.serial, "", 500 * KIB))
    assert node.effect(DropSpilled) == DropSpilled([begun.serial])
    assert (node.machine.memory.used, node.machine.memory.on_disk) == (400 * KIB, 0)


def test_a_file_that_a_task_began_to_read_while_it_was_copied_stays() -> None:
    node = Small().makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB).forget_messages()
    (begun,) = node.effects_of(SpillOut)
    node.assign(mine(3, "a b"))
    assert node.running() == [3]
    node.feed(JobDone(begun.serial, "", 500 * KIB))
    assert not node.effects_of(Evict) and node.place("a") == Place.BOTH
    node.exits(3)
    assert node.effect(Evict) == Evict(key("a"), begun.serial), "now it may go, and is on the disk already"


def test_the_end_of_a_run_leaves_nothing_on_the_disk() -> None:
    node = Small().makes(1, "a", 500 * KIB).makes(2, "b", 400 * KIB).forget_messages().spilled("a", size=500 * KIB)
    copy = node.machine.runs[RUN].files[key("a")].copy
    node.forget().tell(m.CLIENT_ID_MIN + 5, m.RunEnd(RUN))
    assert node.effect(DropSpilled) == DropSpilled([copy])
    assert (node.machine.memory.used, node.machine.memory.on_disk, node.machine.memory.away) == (0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(PlaceEvent)), max_size=60), st.integers(0, 10))
def test_the_account_is_that_of_the_files(moves: list[tuple[int, PlaceEvent]], spill_limit: int) -> None:
    memory = Memory(MemoryLimits(limit=20, spill="/disk", spill_limit=spill_limit))
    files = [Content(f"7/{number}") for number in range(6)]
    for number, file in enumerate(files):
        file.size = number
    for count, (number, event) in enumerate(moves, 1):
        file = files[number]
        if PLACE_NEXT[file.place][event] is None:
            continue
        if event in (PlaceEvent.SPILL, PlaceEvent.STORED_ON_DISK):
            if not memory.may_spill(file.size):
                continue
            file.copy = count
        if event in (PlaceEvent.NOT_COPIED, PlaceEvent.REMOVED):
            file.copy = 0
        memory.move(file, event)
        memory.check(files)
        assert not spill_limit or memory.on_disk <= spill_limit
        went = memory.victim(lambda: lambda one: one.size, (), 0.0)
        assert went is None or (went.size and went.place in (Place.HELD, Place.BOTH))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_room_is_what_limit_and_kernel_leave(share: float) -> None:
    memory = Memory(MemoryLimits(limit=100, high_water=share, spill="/disk"))
    file = Content("7/a")
    file.size = 60
    assert memory.room() == 100 and memory.over() <= 0
    memory.move(file, PlaceEvent.STORED)
    assert memory.room(10) == 30 and memory.over() == 60 - 100 * share
    assert memory.over(wanted=50) == max(10, 60 - 100 * share)
    memory.read(free=20, others=10)
    assert memory.room() == 20
