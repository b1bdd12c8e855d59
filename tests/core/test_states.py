"""The tables of states: complete, reachable, and the only moves there are.

Every pair of state and event of every table is tried on the machine that owns the thing: a listed one moves it, any other raises
InvalidTransition and leaves it where it was.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

import pytest

from amfs._native import Meta
from amfs.engine.course import Course
from amfs.engine.dispatcher import Dispatcher, Record
from amfs.engine.drain import Drain
from amfs.engine.fls import FileRecord, FlsShard
from amfs.engine.jobs import Job, Jobs
from amfs.engine.membership import Membership, Peer
from amfs.engine.memory import IN_MEMORY, Content, Memory
from amfs.engine.worker import Worker
from amfs.engine.worker_records import File, Run, TaskEntry
from amfs.errors import InvalidTransition, ProtocolError
from amfs.fs.vfs.open_file import OpenFile
from amfs.fs.vfs.stripe_copies import move_keeper
from amfs.vocabulary import job_states, states
from amfs.vocabulary import messages as m
from amfs.vocabulary.attr import LOST, ROOT, Attr
from amfs.vocabulary.events import PeerDown, Received

SPEC = m.TaskSpec(5, b"")


class Owned(NamedTuple):
    """A table, its compiled form, and how its machine moves a thing of it."""

    table: Mapping[Any, Any]
    compiled: list[list[Any]]
    states: type[IntEnum]
    events: type[IntEnum]
    thing: Callable[[], Any]  # anew, in its first state
    move: Callable[[Any, Any], object]
    key: str  # an error must name it


def peer_of(membership: Membership) -> Owned:
    return Owned(
        states.PEER_TABLE, states.PEER_NEXT, states.PeerState, states.PeerEvent,
        lambda: Peer(0.0), lambda peer, event: membership._move(3, peer, event), "node 3",
    )  # fmt: skip


class Inode:
    """A file at a shard of its own, brought into whatever state is set, and moved by what nodes 1 and 2 do, or by their death."""

    def __init__(self) -> None:
        self.meta = Meta(0)
        self.meta.set_table([0] * 4, 1)
        self.ino, self.alone = 0, False
        self.state = states.InodeState.FINISHED

    @property
    def state(self) -> states.InodeState:
        try:
            attr = Attr(*self.meta.getattr(self.ino, 0))
        except OSError as error:
            assert error.errno == errno.ENOENT
            return states.InodeState.GONE
        return states.InodeState.LOST if attr.finished == LOST else states.InodeState(not attr.finished)

    @state.setter
    def state(self, wanted: states.InodeState) -> None:
        if self.ino:
            with suppress(OSError):
                self.meta.unlink(ROOT, b"f", 0)
            for node in (1, 2):
                with suppress(OSError):
                    self.meta.unused(self.ino, node)
        self.ino = self.meta.create(ROOT, b"f", 0, 1, None, Attr(mode=stat.S_IFREG | 0o644, writer=1))[0]
        self.meta.wrote(self.ino, 1, Attr(size=5, finished=1))
        self.meta.unused(self.ino, 1)
        if wanted is states.InodeState.WRITTEN:
            self.meta.open(self.ino, 2, True)
        elif wanted is states.InodeState.LOST:
            self.meta.forget_node(1)
        elif wanted is states.InodeState.GONE:
            self.meta.unlink(ROOT, b"f", 0)
        self.meta.check()

    def move(self, event: states.InodeEvent) -> None:
        """A call that the shard refuses, or does not take for a change, is no move."""
        before, meta, ino, events = self.state, self.meta, self.ino, states.InodeEvent
        with suppress(OSError):
            match event:
                case events.OPENED_TO_WRITE:
                    meta.open(ino, 2, True)
                case events.CLOSED | events.CLOSED_WITH_LOSSES:
                    meta.wrote(ino, 2, Attr(size=7, finished=1 if event is events.CLOSED else LOST))
                case events.WRITER_GONE:
                    meta.unused(ino, 2)
                case events.LOST_WITH_WRITER if before is states.InodeState.WRITTEN:
                    meta.forget_node(1)
                    assert self.state is before, "the writer may have the content"
                    meta.forget_node(2)
                case events.HOLDERS_DIED if before is not states.InodeState.WRITTEN:
                    meta.forget_node(1)
                case events.REMOVED:
                    meta.unlink(ROOT, b"f", 0)
        meta.check()
        if (before, event) not in states.INODE_TABLE:
            assert self.state is before, "a move that no table lists"
            raise states.illegal("inode", "f", before, event)


class BackupOfPartition:
    """As the shard moves it."""

    def __init__(self) -> None:
        self.state = states.BackupState.NONE

    def move(self, event: states.BackupEvent) -> None:
        after = Meta(0).backup_move(self.state, event)
        if after < 0:
            raise states.illegal("backup", "b", self.state, event)
        self.state = states.BackupState(after)


class Keeper:
    """Node 3, which may keep copies of the stripes of a partition."""

    def __init__(self) -> None:
        self.nodes: dict[int, states.KeeperState] = {}

    @property
    def state(self) -> states.KeeperState:
        return self.nodes.get(3, states.KeeperState.NONE)

    @state.setter
    def state(self, wanted: states.KeeperState) -> None:
        self.nodes = {3: wanted} if wanted else {}

    def move(self, event: states.KeeperEvent) -> None:
        move_keeper(self.nodes, 3, event)


class StoredFile:
    """The content of a file on a node, brought into whatever state is set."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.content = Content("7/a")

    @property
    def state(self) -> states.Place:
        return self.content.place

    @state.setter
    def state(self, place: states.Place) -> None:
        self.content.place = place
        if place in IN_MEMORY:
            self.memory.files["7/a"] = self.content

    def move(self, event: states.PlaceEvent) -> None:
        self.memory.move(self.content, event)


class NodeOfRun:
    def __init__(self) -> None:
        self.course = Course(7, waits=True)

    @property
    def state(self) -> states.RunNodeState:
        return self.course.node(3).state

    @state.setter
    def state(self, wanted: states.RunNodeState) -> None:
        self.course.node(3).state = wanted

    def move(self, event: states.RunNodeEvent) -> None:
        self.course.move_node(3, event)


OWNED = {
    "file on its worker": Owned(
        states.FILE_TABLE, states.FILE_NEXT, states.FileState, states.FileEvent,
        lambda: File("7/a"), Worker(0, 1, "/store").state.move_file, "file 7/a",
    ),
    "content on its node": Owned(
        states.PLACE_TABLE, states.PLACE_NEXT, states.Place, states.PlaceEvent,
        StoredFile, StoredFile.move, "content 7/a",
    ),
    "file on its shard": Owned(
        states.LOOKUP_TABLE, states.LOOKUP_NEXT, states.LookupState, states.LookupEvent,
        lambda: FileRecord("7/a"), FlsShard(0)._move, "FLS file 7/a",
    ),
    "task on its worker": Owned(
        states.TASK_TABLE, states.TASK_NEXT, states.TaskState, states.TaskEvent,
        lambda: TaskEntry(Run(7, 9, m.RunInfo("7/", "/base", ())), SPEC), Worker(0, 1, "/store").state.move, "task 5",
    ),
    "task on its dispatcher": Owned(
        states.RECORD_TABLE, states.RECORD_NEXT, states.RecordState, states.RecordEvent,
        lambda: Record(SPEC), Dispatcher(0)._move, "record of task 5",
    ),
    "file on a node that has it open": Owned(
        states.OPEN_TABLE, states.OPEN_NEXT, states.OpenState, states.OpenEvent,
        lambda: OpenFile(0x7), OpenFile.move, "open file 0x7",
    ),
    "file on its metadata shard": Owned(
        states.INODE_TABLE, states.INODE_NEXT, states.InodeState, states.InodeEvent,
        Inode, Inode.move, "inode f",
    ),
    "node on the owner of a partition": Owned(
        states.BACKUP_TABLE, states.BACKUP_NEXT, states.BackupState, states.BackupEvent,
        BackupOfPartition, BackupOfPartition.move, "backup b",
    ),
    "keeper of stripes": Owned(
        states.KEEPER_TABLE, states.KEEPER_NEXT, states.KeeperState, states.KeeperEvent, Keeper, Keeper.move, "keeper 3",
    ),
    "run on its submitter": Owned(
        states.RUN_TABLE, states.RUN_NEXT, states.RunState, states.RunEvent,
        lambda: Course(7, waits=True), Course.move, "run 7",
    ),
    "node on the submitter": Owned(
        states.RUN_NODE_TABLE, states.RUN_NODE_NEXT, states.RunNodeState, states.RunNodeEvent,
        NodeOfRun, NodeOfRun.move, "node of a run 3",
    ),
    "node that is told to end": Owned(
        states.DRAIN_TABLE, states.DRAIN_NEXT, states.DrainState, states.DrainEvent,
        lambda: Drain(3, lambda: 0), Drain.move, "drain of node 3",
    ),
    "job that is to become a node": Owned(
        job_states.JOB_TABLE, states.JOB_NEXT, job_states.JobState, job_states.JobEvent,
        lambda: Job(3, "4711"), lambda job, event: Jobs(60.0)._move(job, event, 0.0), "job 3",
    ),
    "node on the manager": peer_of(Membership(m.Member(0, 1, (), 1), 0)),
}  # fmt: skip

PAIRS = [(name, state, event) for name, owned in OWNED.items() for state in owned.states for event in owned.events]


@pytest.mark.parametrize(("name", "state", "event"), PAIRS, ids=[f"{n}: {s.name} on {e.name}" for n, s, e in PAIRS])
def test_the_machine_makes_the_listed_moves_and_no_others(name: str, state: IntEnum, event: IntEnum) -> None:
    owned = OWNED[name]
    thing = owned.thing()
    thing.state = state
    after = owned.table.get((state, event))
    if after is not None:
        owned.move(thing, event)
        assert thing.state is after
        return
    with pytest.raises(InvalidTransition) as caught:
        owned.move(thing, event)
    assert thing.state is state, "an illegal move must change nothing"
    assert (caught.value.state, caught.value.event) == (state.name, event.name)
    assert str(caught.value) == f"{owned.key}: no move from {state.name} on {event.name}"
    assert isinstance(caught.value, ProtocolError)
    assert caught.value.exit_code == 70


@pytest.mark.parametrize("name", OWNED)
def test_things_begin_in_the_first_state_and_every_other_can_be_reached(name: str) -> None:
    owned = OWNED[name]
    first = owned.thing().state
    assert first is next(iter(owned.states))
    reached = {first}
    while more := {after for (state, _), after in owned.table.items() if state in reached} - reached:
        reached |= more
    assert reached == set(owned.states)


@pytest.mark.parametrize("name", OWNED)
def test_every_event_moves_something(name: str) -> None:
    owned = OWNED[name]
    assert {event for _, event in owned.table} == set(owned.events)


@pytest.mark.parametrize("name", OWNED)
def test_the_compiled_table_is_the_table(name: str) -> None:
    owned = OWNED[name]
    assert [len(row) for row in owned.compiled] == [len(owned.events)] * len(owned.states)
    for state in owned.states:
        for event in owned.events:
            assert owned.compiled[state][event] is owned.table.get((state, event))


def test_all_tables_are_drawn() -> None:
    """``docs/states.md`` is made of TABLES: a table that is not in it would not be seen."""
    tables = [value for name, value in vars(states).items() if name.endswith("_TABLE")]
    assert len(tables) == len(states.TABLES) == len(OWNED)
    for table in tables:
        assert any(table is drawn for drawn in states.TABLES.values())
        assert any(table is owned.table for owned in OWNED.values())


def test_what_ended_stays_so() -> None:
    """No table has a way out of a task's or a node's last states."""
    last: list[IntEnum] = [
        states.TaskState.FINISHED, states.TaskState.FAILED, states.TaskState.MOVED, states.RecordState.ENDED, states.PeerState.DEAD,
        states.PeerState.LEFT,
    ]  # fmt: skip
    for state in last:
        assert not [pair for owned in OWNED.values() for pair in owned.table if pair[0] is state]


def test_a_machine_refuses_what_is_not_for_it() -> None:
    with pytest.raises(ProtocolError, match="FlsShard got StealNone, which is not for it"):
        FlsShard(0).handle(Received(1, m.StealNone()), 0.0)
    with pytest.raises(ProtocolError, match="FlsShard got PeerDown, which is not for it"):
        FlsShard(0).handle(PeerDown(1), 0.0)
