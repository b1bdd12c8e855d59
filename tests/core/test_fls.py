"""The shard of the File Location Service against a model made of plain dicts and sets.

The model says for every message exactly which answers must follow: waiters are told once, a file is dropped when its readers are used
up and never after a node was lost, repetitions do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from recorder import Recorder

from amfs.engine.fls import SHARED_RETENTION, FlsShard
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import LookupState

RUN = 7
CLIENT = m.CLIENT_ID_MIN + 5
NAMES = ("7/a", "7/b", "7/c")
NODES = (1, 2, 3, 4)
BEGIN = m.RunBegin(RUN, CLIENT, m.RunInfo("7/", "/base", ()), 1)


def view(epoch: int, *dead: int) -> MembersChanged:
    return MembersChanged(PartitionTable([0], epoch), {}, set(dead))


def shard() -> Recorder[FlsShard]:
    """A shard in a session at epoch 1 that knows the run."""
    machine = FlsShard(0)
    recorder = Recorder(machine)
    recorder.feed(view(1))
    return recorder.tell(CLIENT, BEGIN).nothing_left()


def publish(name: str, size: int = 5, readers: int = 1, final: bool = False) -> m.Publish:
    return m.Publish(RUN, (m.Published(name, size, m.retention(readers, final)),))


# ── stories ────────────────────────────────────────────────────────────────────────────────────────


def test_who_asks_before_the_file_is_made_is_told_once_when_it_is() -> None:
    fls = shard()
    fls.tell(2, m.Locate(RUN, ("7/a", "7/b"))).tell(3, m.Locate(RUN, ("7/a",))).tell(2, m.Locate(RUN, ("7/a",))).nothing_left()
    fls.tell(1, publish("7/a"))
    assert fls.take(m.Located, 2) == fls.take(m.Located, 3) == m.Located(RUN, (m.FileAt("7/a", 5, (1,)),))
    fls.nothing_left()
    fls.tell(1, publish("7/a")).nothing_left()


def test_a_directory_at_a_url_is_read_there_and_dropped_where_it_was_made() -> None:
    fls = shard().tell(2, m.Locate(RUN, ("7/a",)))
    fls.tell(1, m.Publish(RUN, (m.Published("7/a", 5, m.retention(2), 99),)))
    assert fls.take(m.Located, 2) == m.Located(RUN, (m.FileAt("7/a", 5, (), 99),))
    fls.tell(2, m.Replica(RUN, ("7/a",))).tell(3, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 3) == m.Located(RUN, (m.FileAt("7/a", 5, (), 99),)), "no node sends it"
    fls.nothing_left()
    fls.tell(2, m.Release(RUN, ("7/a", "7/a")))
    assert fls.take(m.Drop, 1) == fls.take(m.Drop, 2) == m.Drop(RUN, ("7/a",))
    fls.feed(view(2, 1, 2)).tell(3, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 3) == m.Located(RUN, (m.FileAt("7/a", 5, (), 99),)), "its URL has it when all who held it are gone"


def test_answers_to_one_batch_travel_together() -> None:
    fls = shard().tell(2, m.Locate(RUN, NAMES))
    fls.tell(1, m.Publish(RUN, tuple(m.Published(name, 5) for name in NAMES)))
    assert [at.name for at in fls.take(m.Located, 2).files] == list(NAMES)
    fls.nothing_left()


def test_a_file_is_dropped_everywhere_after_its_last_reader() -> None:
    fls = shard().tell(1, publish("7/a", readers=2)).tell(2, m.Replica(RUN, ("7/a",)))
    fls.tell(2, m.Release(RUN, ("7/a",))).nothing_left()
    fls.tell(1, m.Release(RUN, ("7/a",)))
    assert fls.take(m.Drop, 1) == fls.take(m.Drop, 2) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_a_file_stays_for_its_other_readers_when_one_reads_it_again() -> None:
    """Seed 700929: a task that had ended well ran again, since what it made was lost. It was counted as two readers of its input, which
    was dropped although a task was still to read it."""
    fls = shard().tell(1, publish("7/a", readers=2)).tell(2, m.Release(RUN, ("7/a",)), m.ReadAgain(RUN, ("7/a",)))
    fls.tell(2, m.Release(RUN, ("7/a",))).nothing_left()
    fls.tell(3, m.Release(RUN, ("7/a",)))
    assert fls.take(m.Drop, 1) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_a_file_that_was_dropped_stays_for_its_reader_when_it_is_made_again() -> None:
    """Its readers were used up before: it was dropped at once, while the task for which it had been made again was fetching it."""
    fls = shard().tell(1, publish("7/a", readers=1)).tell(2, m.Release(RUN, ("7/a",))).forget()
    fls.tell(CLIENT, m.ReadAgain(RUN, ("7/a", "7/unknown"))).tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)
    fls.tell(3, publish("7/a", readers=1))
    assert fls.take(m.Located, 2).files[0].holders == (3,)
    fls.nothing_left()
    fls.tell(2, m.Release(RUN, ("7/a",)))
    assert fls.take(m.Drop, 3) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_releases_may_overtake_the_publication() -> None:
    fls = shard().tell(2, m.Locate(RUN, ("7/a",)), m.Release(RUN, ("7/a",))).nothing_left()
    fls.tell(1, publish("7/a", readers=1))
    fls.take(m.Located, 2)
    assert fls.take(m.Drop, 1) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_a_release_counts_although_nobody_has_named_the_file_yet() -> None:
    """Seed 800889: a reader waited on the node that was still writing its input to amfs:, so that nobody asked the shard for that input.
    The reader failed by another input, its release was forgotten, and the file stayed in memory after it had been published."""
    shared = m.Published("7/a", 5, SHARED_RETENTION)
    fls = shard().tell(0, m.Release(RUN, ("7/a",))).nothing_left()
    fls.tell(1, m.Publish(RUN, (m.Published("7/a", 5, m.retention(1, True)), shared)))
    assert fls.take(m.Drop, 1) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_a_release_of_what_the_submitter_let_go_is_not_kept() -> None:
    """Its last readers are counted by the submitter, whose word can come here before theirs."""
    fls = shard().tell(1, publish("7/a", readers=m.KEEP)).tell(CLIENT, m.FinalizeFiles(RUN, (), ("7/a",))).forget()
    fls.tell(2, m.Release(RUN, ("7/a",))).nothing_left()
    assert fls.machine.runs == {RUN: {}}


def test_a_copy_that_was_on_its_way_while_the_file_was_dropped_is_dropped_too() -> None:
    fls = shard().tell(1, publish("7/a", readers=1)).tell(2, m.Release(RUN, ("7/a",))).forget()
    fls.tell(2, m.Replica(RUN, ("7/a",)))
    assert fls.take(m.Drop, 2) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_a_copy_that_comes_after_the_last_reader_of_a_file_on_shared_storage_is_dropped() -> None:
    shared = m.Publish(RUN, (m.Published("7/a", 5, SHARED_RETENTION),))
    fls = shard().tell(1, publish("7/a", readers=1, final=True), shared).tell(2, m.Release(RUN, ("7/a",))).forget()
    fls.tell(2, m.Replica(RUN, ("7/a",)))
    assert fls.take(m.Drop, 2) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_a_final_stays_until_it_is_on_shared_storage() -> None:
    fls = shard().tell(1, publish("7/a", readers=1, final=True)).tell(2, m.Release(RUN, ("7/a",))).nothing_left()
    fls.tell(1, m.Publish(RUN, (m.Published("7/a", 5, SHARED_RETENTION),)))
    assert fls.take(m.Drop, 1) == m.Drop(RUN, ("7/a",))
    fls.tell(3, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 3) == m.Located(RUN, (m.FileAt("7/a", 5, ()),)), "no holders: on shared storage"
    fls.nothing_left()


def test_a_final_that_is_in_memory_as_well_is_read_from_there() -> None:
    """On shared storage it may be written again, under the eyes of a task that reads it."""
    fls = shard().tell(1, publish("7/a", readers=2, final=True), m.Publish(RUN, (m.Published("7/a", 5, SHARED_RETENTION),)))
    fls.tell(3, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 3) == m.Located(RUN, (m.FileAt("7/a", 5, (1,)),))
    fls.nothing_left()


def test_poison_reaches_who_waits_and_who_asks_later_with_the_first_cause() -> None:
    fls = shard().tell(2, m.Locate(RUN, ("7/a",)))
    fls.tell(0, m.Poison(RUN, ("7/a",), "task #1 failed"), m.Poison(RUN, ("7/a",), "task #2 failed"))
    fls.tell(3, m.Locate(RUN, ("7/a",)))
    failed = m.FileFailed(RUN, ("7/a",), ("task #1 failed",))
    assert fls.take(m.FileFailed, 2) == fls.take(m.FileFailed, 3) == failed
    fls.nothing_left()


def test_a_node_that_was_thought_dead_may_make_a_failed_file_after_all() -> None:
    fls = shard().tell(0, m.Poison(RUN, ("7/a",), "why")).tell(1, publish("7/a")).tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 2).files[0].holders == (1,)
    fls.tell(0, m.Poison(RUN, ("7/a",), "why")).nothing_left()


def test_a_file_that_died_with_its_node_is_named_to_the_submitter() -> None:
    fls = shard().tell(1, publish("7/a"))
    fls.feed(view(2, 1)).nothing_left()
    fls.tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)
    fls.nothing_left()
    fls.tell(3, publish("7/a"))
    assert fls.take(m.Located, 2).files[0].holders == (3,)
    fls.nothing_left()


def test_what_is_waited_for_when_a_node_dies_may_have_died_with_it() -> None:
    fls = shard().tell(2, m.Locate(RUN, ("7/a",))).tell(1, m.Locate(RUN, ("7/b",)))
    fls.feed(view(2, 1))
    assert fls.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1), "what only the dead waited for is not wanted"
    fls.nothing_left()


def test_nothing_of_an_ended_run_comes_back() -> None:
    fls = shard().tell(1, publish("7/a")).tell(CLIENT, m.RunEnd(RUN))
    fls.tell(1, publish("7/b")).tell(2, m.Locate(RUN, ("7/a",))).tell(2, m.Release(RUN, ("7/a",)), m.Poison(RUN, ("7/c",), "x"))
    fls.tell(CLIENT, m.RunEnd(RUN), BEGIN, m.FinalizeFiles(RUN, ("7/a",), ()))
    assert fls.machine.runs == {}
    fls.nothing_left()


# ── against the model ──────────────────────────────────────────────────────────────────────────────


@dataclass
class Known:
    """Notes of a reader of the protocol on one file."""

    holders: list[int] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    size: int = 0
    readers: int = m.KEEP
    released: int = 0
    final: bool = False
    shared: bool = False
    made: bool = False
    lost: bool = False  # its last holder died
    failed: bool = False  # poisoned, and not made since
    cause: str = ""  # of the first poisoning
    asked_by_submitter: bool = False  # settled before it was made

    @property
    def valid(self) -> bool:
        return bool(self.holders) or self.shared


class AgainstModel(RuleBasedStateMachine):
    """Random messages from random nodes; every answer is predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.fls = shard()
        self.files: dict[str, Known] = {}
        self.let_go: set[str] = set()  # nothing is known of them but that they were made
        self.dead: set[int] = set()
        self.epoch = 1
        self.expected: list[tuple[object, ...]] = []

    names = st.sampled_from(NAMES)
    nodes = st.sampled_from(NODES)

    def file(self, name: str) -> Known:
        return self.files.setdefault(name, Known(made=name in self.let_go))

    def say(self, peer: int, message: m.Message) -> None:
        self.fls.tell(peer, message)
        self.compare()

    def compare(self) -> None:
        """The messages, taken apart into single statements, are those that the model expected; and both know the same."""
        said: list[tuple[object, ...]] = []
        for to, message in self.fls.sent:
            match message:
                case m.Located(files=files):
                    said += [("located", to, at.name, at.size, at.holders) for at in files]
                case m.FileFailed(names=names, causes=causes):
                    said += [("failed", to, name, cause) for name, cause in zip(names, causes, strict=True)]
                case m.Drop(names=names):
                    said += [("drop", to, name) for name in names]
                case m.Flush(names=names):
                    said += [("flush", to, name) for name in names]
                case m.Flushed(files=files):
                    said += [("flushed", to, *file) for file in files]
                case m.Lost(names=names, holder=-1):
                    said += [("wanted", to, name) for name in names]
                case _:
                    raise AssertionError(f"a shard does not say {message}")
        assert sorted(said) == sorted(self.expected), f"expected {self.expected}"
        self.expected.clear()
        self.fls.forget()
        records = self.fls.machine.runs.get(RUN, {})
        for name, known in self.files.items():
            record = records.get(name)
            if record is None:
                assert known == Known(made=True), "only what the submitter let go is forgotten"
                continue
            state = LookupState.VALID if known.valid else LookupState.FAILED if known.failed else LookupState.INVALID
            assert (record.state, record.holders, set(record.waiters)) == (state, known.holders, known.waiting)

    def alive(self, node: int) -> bool:
        return node not in self.dead

    def drop_if_used_up(self, name: str, known: Known) -> None:
        if known.released >= known.readers:
            self.drop(name, known)

    def drop(self, name: str, known: Known) -> None:
        if known.valid and not self.dead and (known.shared or not known.final):
            self.expected += [("drop", holder, name) for holder in known.holders]
            known.holders = []

    # ── what nodes say ─────────────────────────────────────────────────────────────────────────────

    @rule(
        name=names, node=nodes, size=st.integers(0, 9), readers=st.sampled_from([0, 1, 2, m.KEEP]), final=st.booleans(),
        shared=st.booleans(), repeated=st.integers(1, 2),
    )  # fmt: skip
    def publish(self, name: str, node: int, size: int, readers: int, final: bool, shared: bool, repeated: int) -> None:
        if not self.alive(node):
            return
        known = self.file(name)
        for _ in range(repeated):
            if not known.valid:
                known.size = size
            if shared:
                known.shared = True
            else:
                known.readers, known.final = readers, final  # each publication says what is to become of the file
                if node not in known.holders:
                    known.holders.append(node)
            known.made, known.lost, known.failed = True, False, False
            holders = tuple(known.holders)
            if known.asked_by_submitter:
                self.settled(name, known)
            self.expected += [("located", waiter, name, known.size, holders) for waiter in known.waiting]
            known.waiting.clear()
            self.drop_if_used_up(name, known)
            self.say(node, m.Publish(RUN, (m.Published(name, size, SHARED_RETENTION if shared else m.retention(readers, final)),)))

    @rule(name=names, node=nodes, repeated=st.integers(1, 2))
    def locate(self, name: str, node: int, repeated: int) -> None:
        if not self.alive(node):
            return
        for _ in range(repeated):
            known = self.file(name)
            if known.valid:
                self.expected.append(("located", node, name, known.size, tuple(known.holders)))
            elif known.failed:
                self.expected.append(("failed", node, name, known.cause))
            else:
                known.waiting.add(node)
                if known.made or self.dead:
                    self.expected.append(("wanted", CLIENT, name))
            self.say(node, m.Locate(RUN, (name,)))

    @rule(name=names, node=nodes)
    def release(self, name: str, node: int) -> None:
        if name in self.files or name not in self.let_go:  # of what was let go no readers are counted
            known = self.file(name)
            known.released += 1
            self.drop_if_used_up(name, known)
        self.say(node, m.Release(RUN, (name,)))

    @rule(name=names)
    def read_again(self, name: str) -> None:
        if name in self.files:
            self.files[name].released -= 1
        self.say(CLIENT, m.ReadAgain(RUN, (name,)))

    @rule(name=names, node=nodes, repeated=st.integers(1, 2))
    def replica(self, name: str, node: int, repeated: int) -> None:
        if not self.alive(node):
            return
        for _ in range(repeated):
            known = self.files.get(name)
            if known is None or not known.valid:
                self.expected.append(("drop", node, name))
            else:
                if node not in known.holders:
                    known.holders.append(node)
                self.drop_if_used_up(name, known)
            self.say(node, m.Replica(RUN, (name,)))

    @rule(name=names, node=nodes, holder=nodes, repeated=st.integers(1, 2))
    def lost(self, name: str, node: int, holder: int, repeated: int) -> None:
        for _ in range(repeated):
            if name in self.files:
                self.loses(self.files[name], holder)
            self.say(node, m.Lost(RUN, (name,), holder))

    def loses(self, known: Known, holder: int) -> None:
        if holder in known.holders:
            known.holders.remove(holder)
            known.lost = known.lost or not known.valid

    # ── what dispatchers and the submitter say ─────────────────────────────────────────────────────

    @rule(name=names, cause=st.sampled_from(["x", "y"]), repeated=st.integers(1, 2))
    def poison(self, name: str, cause: str, repeated: int) -> None:
        for _ in range(repeated):
            known = self.file(name)
            if not known.valid:
                known.failed = True
                known.cause = known.cause or cause
                self.expected += [("failed", waiter, name, cause) for waiter in known.waiting]
                known.waiting.clear()
            self.say(0, m.Poison(RUN, (name,), cause))

    @rule(name=names, final=st.booleans())
    def settle(self, name: str, final: bool) -> None:
        if final:
            self.settled(name, self.file(name))
        elif name in self.files:
            known = self.files[name]
            known.readers, valid = 0, known.valid
            self.drop(name, known)
            if valid and not known.valid:
                del self.files[name]
                self.let_go.add(name)
        self.say(CLIENT, m.FinalizeFiles(RUN, (name,) if final else (), () if final else (name,)))

    def settled(self, name: str, known: Known) -> None:
        known.asked_by_submitter = False
        if known.shared:
            self.expected.append(("flushed", CLIENT, name[2:], known.size, ""))
        elif known.holders:
            known.final = True
            self.expected.append(("flush", known.holders[0], name))
        elif known.failed or known.lost:
            self.expected.append(("flushed", CLIENT, name[2:], known.size, "it was lost with its node"))
        else:
            known.asked_by_submitter = True

    @rule(node=nodes)
    def node_dies(self, node: int) -> None:
        if not self.alive(node):
            return
        self.dead.add(node)
        self.epoch += 1
        for name, known in self.files.items():
            known.waiting.discard(node)
            self.loses(known, node)
            if known.waiting:
                self.expected.append(("wanted", CLIENT, name))
            if known.asked_by_submitter:
                known.lost = True
                self.settled(name, known)
        self.fls.feed(view(self.epoch, node))
        self.compare()

    @rule()
    def run_begins_again(self) -> None:
        if not self.dead:
            self.say(CLIENT, BEGIN)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_run_that_began_before_the_view_changed_has_records_that_were_elsewhere() -> None:
    """The shard is new here, the run is not: files may have been made of which it knows nothing."""
    machine = FlsShard(0)
    fls = Recorder(machine)
    fls.feed(view(3)).tell(2, m.Locate(RUN, ("7/a",))).nothing_left()
    fls.tell(CLIENT, BEGIN)
    assert fls.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)
    fls.tell(1, publish("7/b", readers=0)).nothing_left()


@pytest.mark.parametrize("asked_first", [True, False])
def test_runs_do_not_meet(asked_first: bool) -> None:
    other = m.Publish(8, (m.Published("8/a", 5),))
    fls = shard()
    for message in (m.Locate(RUN, ("7/a",)), other) if asked_first else (other, m.Locate(RUN, ("7/a",))):
        fls.tell(2, message).nothing_left()
