"""Records of files go with their partitions to other shards: as stories, and by a machine with links in which messages stay for any time.

In the machine nodes join and partitions move, each node and the submitter hear of it when it comes to them, and no node is lost. Then
nothing may be lost, either: whoever asks for a file is told of it once it is made, it is dropped where it is after its last reader and
never before, and the submitter never hears that a file is missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from recorder import Recorder, over_the_wire

from amfs.engine.fls import FileRecord, FlsShard
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged, Received, Send
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import LookupState

RUN = 7
CLIENT = m.CLIENT_ID_MIN + 5
INFO = m.RunInfo("7/", "/base", ())
PARTS = 8
NAMES = tuple(f"7/{letter}" for letter in "abcdefgh")


def view(epoch: int, owners: Sequence[int], *dead: int, members: Sequence[int] = (0, 1, 2, 3), new: bool = False) -> MembersChanged:
    return MembersChanged(PartitionTable(owners, epoch), dict.fromkeys(set(members) - set(dead), 1), set(dead), new=new)


def left(epoch: int, owners: Sequence[int], node: int, *runs: int) -> MembersChanged:
    """The node has left in order."""
    return msgspec.structs.replace(view(epoch, owners, node), in_order={node: frozenset(runs)})


def begin(epoch: int = 1, since: int = 1) -> m.RunBegin:
    return m.RunBegin(RUN, CLIENT, INFO, epoch, since)


def publish(name: str = "7/a", readers: int = 1) -> m.Publish:
    return m.Publish(RUN, (m.Published(name, 5, m.retention(readers)),))


def shard(node: int = 0, owner: int = 0) -> Recorder[FlsShard]:
    """One that knows the run. All partitions are those of ``owner``, in epoch 1."""
    return Recorder(FlsShard(node)).feed(view(1, [owner] * PARTS)).tell(CLIENT, begin()).nothing_left()


def handed(fls: Recorder[FlsShard], to: int) -> list[m.HandOver]:
    return [message for _, message in fls.take_all(m.HandOver, to)]


# ── stories ────────────────────────────────────────────────────────────────────────────────────────


def test_the_new_owner_knows_all_that_the_old_one_knew_and_drops_the_file_after_its_last_reader() -> None:
    old, new = shard(), shard(1)
    old.tell(2, publish(readers=2), m.Release(RUN, ("7/a",))).tell(3, m.Replica(RUN, ("7/a",)), m.Locate(RUN, ("7/b",)))
    old.feed(view(2, [1] * PARTS))
    new.feed(view(2, [1] * PARTS)).tell(0, *handed(old, 1)).nothing_left()
    assert old.nothing_left().machine.runs == {RUN: {}}
    record = new.machine.runs[RUN]["7/a"]
    assert (record.state, record.holders, record.readers, record.released) == (LookupState.VALID, [2, 3], 2, 1)
    new.tell(2, m.Release(RUN, ("7/a",)), publish("7/b"))
    assert new.take(m.Drop, 2) == new.take(m.Drop, 3) == m.Drop(RUN, ("7/a",))
    assert new.take(m.Located, 3) == m.Located(RUN, (m.FileAt("7/b", 5, (2,)),))
    new.nothing_left()


def test_every_fact_of_a_record_is_handed_over() -> None:
    """A further field of a record must be handed over, too."""
    record = FileRecord("7/a")
    for number, field in enumerate(FileRecord.__slots__):
        kind = type(getattr(record, field))
        if kind in (int, bool):
            setattr(record, field, kind(number + 1))
    record.state, record.holders, record.waiters, record.cause = LookupState.FAILED, [3], {4: None}, "why"
    facts = record.facts()
    assert {*facts.__struct_fields__} == {*FileRecord.__slots__}
    for field in FileRecord.__slots__:
        known = getattr(record, field)
        assert getattr(facts, field) == (tuple(known) if field in ("holders", "waiters") else known), field


def test_what_is_said_to_the_new_owner_waits_for_the_records() -> None:
    """A copy of a file that was not known yet would have been dropped, and files that are let go would have been kept."""
    new = shard(1).feed(view(2, [1] * PARTS)).tell(2, m.Locate(RUN, ("7/a",)), m.Replica(RUN, ("7/a",)), m.Release(RUN, ("7/a",)))
    new.tell(CLIENT, m.FinalizeFiles(RUN, (), ("7/b",))).nothing_left()
    new.tell(0, *handed(shard().tell(3, publish(), publish("7/b", m.KEEP)).feed(view(2, [1] * PARTS)), 1))
    assert new.take(m.Located, 2) == m.Located(RUN, (m.FileAt("7/a", 5, (3,)),))
    assert {name for _, drop in new.take_all(m.Drop, 3) for name in drop.names} == {"7/a", "7/b"}
    assert new.take(m.Drop, 2) == m.Drop(RUN, ("7/a",))
    new.nothing_left()


def test_what_is_said_to_the_old_owner_is_sent_on_in_the_name_of_its_sender() -> None:
    old = shard().feed(view(2, [1] * PARTS))
    new = shard(1).feed(view(2, [1] * PARTS)).tell(0, *handed(old, 1))
    old.tell(3, publish()).tell(CLIENT, m.FinalizeFiles(RUN, ("7/b",), ("7/c",)))
    for to, message in old.take_all(m.Astray):
        assert to == 1
        new.tell(0, message)
    assert new.machine.runs[RUN]["7/a"].holders == [3] and new.machine.runs[RUN]["7/b"].settler == CLIENT


def test_only_the_files_of_other_shards_are_sent_on() -> None:
    table = PartitionTable([0, 1] * 4, 2)
    fls = shard().feed(view(2, table.owners, members=(0, 1))).forget()
    mine, others = ([name for name in NAMES if table.node_of(name) == node] for node in (0, 1))
    assert mine and others
    fls.tell(2, m.Publish(RUN, tuple(m.Published(name, 5) for name in NAMES)))
    assert [file.name for file in fls.take(m.Astray, 1).message.files] == others  # type: ignore[union-attr]
    assert list(fls.machine.runs[RUN]) == mine


def test_a_node_that_is_new_waits_for_whoever_had_its_partitions() -> None:
    new = Recorder(FlsShard(1)).feed(view(2, [1] * PARTS, new=True)).tell(CLIENT, begin(2)).tell(2, m.Locate(RUN, NAMES)).nothing_left()
    new.tell(0, m.HandOver(2, tuple(range(PARTS)), (m.RunFacts(RUN, CLIENT, False),))).nothing_left()
    assert all(record.waiters for record in new.machine.runs[RUN].values())


def test_nothing_is_waited_for_of_a_run_that_began_later() -> None:
    new = Recorder(FlsShard(1)).feed(view(2, [1] * PARTS, new=True)).tell(2, m.Locate(RUN, ("7/a",)), publish()).nothing_left()
    new.tell(CLIENT, begin(2, since=2))
    assert new.take(m.Located, 2).files[0].holders == (2,)


def test_a_shard_without_runs_has_nothing_to_say_until_it_hears_of_one_that_is_older() -> None:
    old = Recorder(FlsShard(0)).feed(view(4, [0] * PARTS)).feed(view(5, [1] * PARTS)).nothing_left()
    old.tell(CLIENT, m.RunBegin(8, CLIENT, m.RunInfo("8/", "/base", ()), 5, 5)).nothing_left()
    old.tell(CLIENT, begin(5, since=4))
    assert set(old.take(m.HandOver, 1).partitions) == set(range(PARTS))


def test_a_partition_that_comes_back_before_anybody_was_told_is_not_waited_for() -> None:
    """Each of the two waited for the other: one had said nothing when it gave the partition away, since it had not heard of the run yet."""
    old = Recorder(FlsShard(0)).feed(view(1, [0] * PARTS)).feed(view(2, [1] * PARTS)).feed(view(3, [0] * PARTS)).tell(CLIENT, begin(3))
    old.tell(3, publish()).tell(2, m.Locate(RUN, ("7/a",)))
    assert old.take(m.Located, 2).files[0].holders == (3,)
    new = shard(1).feed(view(2, [1] * PARTS)).feed(view(3, [0] * PARTS)).tell(2, m.Locate(RUN, ("7/a",)))
    assert new.take(m.Astray, 0).message == m.Locate(RUN, ("7/a",))


def test_if_the_old_owner_dies_nothing_is_waited_for_and_nothing_dropped() -> None:
    new = shard(1).feed(view(2, [1] * PARTS)).tell(2, m.Locate(RUN, ("7/a",))).nothing_left()
    new.feed(view(3, [1] * PARTS, 0))
    assert new.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)
    new.tell(3, publish(readers=0))
    assert new.take(m.Located, 2).files[0].holders == (3,)
    new.nothing_left()


def test_that_nodes_were_lost_is_handed_over_with_the_records() -> None:
    old = shard().tell(2, publish()).feed(view(2, [0] * PARTS, 3)).feed(view(3, [1] * PARTS))
    new = Recorder(FlsShard(1)).feed(view(3, [1] * PARTS, new=True)).tell(CLIENT, begin(3)).tell(0, *handed(old, 1))
    new.tell(2, m.Release(RUN, ("7/a",))).tell(2, m.Locate(RUN, ("7/c",)))
    assert new.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/c",), -1), "it may have been made, and lost"
    new.nothing_left()


def test_who_is_dead_by_now_neither_holds_a_file_nor_waits_for_one() -> None:
    old = shard().tell(3, publish(), m.Locate(RUN, ("7/b",))).feed(view(2, [1] * PARTS))
    new = shard(1).feed(view(2, [1] * PARTS)).feed(view(3, [1] * PARTS, 3)).tell(0, *handed(old, 1))
    new.tell(2, m.Locate(RUN, ("7/a",)), publish("7/b"))
    assert new.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)
    new.nothing_left()
    new.tell(0, m.Astray(2, 3, publish("7/c")), m.Astray(2, 3, m.Locate(RUN, ("7/b",)))).nothing_left()
    record = new.machine.runs[RUN]["7/c"]
    assert (record.state, record.made, record.lost) == (LookupState.INVALID, True, True), "whoever asks is to have it made again"


def test_when_a_node_has_left_in_order_files_are_dropped_as_before() -> None:
    mine = [0] * PARTS
    fls = shard().tell(2, publish(readers=2), m.Release(RUN, ("7/a",))).tell(3, m.Replica(RUN, ("7/a",)))
    fls.tell(1, m.Locate(RUN, ("7/b",))).feed(left(2, mine, 2, RUN)).nothing_left()
    fls.tell(3, m.Release(RUN, ("7/a",)))
    assert fls.take(m.Drop, 3) == m.Drop(RUN, ("7/a",))
    fls.nothing_left()


def test_of_a_run_that_the_node_did_not_know_nothing_is_dropped_after_it_has_left() -> None:
    """Something that its submitter has said to that node may be lost."""
    mine = [0] * PARTS
    fls = shard().feed(left(2, mine, 3, RUN + 1)).tell(2, publish(), m.Release(RUN, ("7/a",))).nothing_left()
    assert fls.machine.keeping == {RUN}
    for runs, since, keeping in (((RUN,), 1, set()), ((RUN + 1,), 1, {RUN}), ((RUN + 1,), 2, set())):
        new = Recorder(FlsShard(0)).feed(view(1, mine)).feed(left(2, mine, 3, *runs))
        assert new.tell(CLIENT, begin(since, since)).machine.keeping == keeping, "the run is heard of later"


def test_whoever_is_lost_together_with_a_node_that_leaves_in_order_is_lost() -> None:
    both = msgspec.structs.replace(view(2, [0] * PARTS, 2, 3), in_order={3: frozenset({RUN})})
    assert shard().feed(both).machine.keeping == {RUN}


def test_the_last_word_of_a_node_that_has_left_in_order_counts_though_it_comes_late() -> None:
    """Another shard had sent it on. Its copy is gone; but the file was made, and had one reader, which has ended."""
    fls = shard().feed(left(2, [0] * PARTS, 3, RUN))
    fls.tell(1, m.Astray(2, 3, publish("7/c")), m.Astray(2, 3, m.Locate(RUN, ("7/b",)))).nothing_left()
    fls.tell(2, m.Locate(RUN, ("7/c",)))
    assert fls.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/c",), -1)
    fls.tell(1, m.Astray(2, 3, m.Release(RUN, ("7/c",)))).tell(2, publish("7/c"))
    assert fls.take(m.Located, 2).files[0].holders == (2,)
    assert fls.take(m.Drop, 2) == m.Drop(RUN, ("7/c",))
    fls.nothing_left()


def test_a_copy_of_which_the_shard_hears_after_its_last_holder_has_left_counts() -> None:
    """It was dropped as the copy of a file that nobody wants any more, and the file was made again."""
    fls = shard().tell(3, publish()).feed(left(2, [0] * PARTS, 3, RUN)).tell(1, m.Replica(RUN, ("7/a",))).nothing_left()
    fls.tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 2).files[0] == m.FileAt("7/a", 5, (1,))


def test_what_was_sent_on_to_a_node_that_has_left_in_order_is_not_said_twice() -> None:
    """It has heard that, and sent it on."""
    late = shard(1, owner=0).tell(2, m.Release(RUN, ("7/a",)))
    assert late.take(m.Astray, 0)
    late.feed(view(2, [1] * PARTS)).tell(0, m.HandOver(2, tuple(range(PARTS)), (), False)).feed(left(3, [1] * PARTS, 0, RUN))
    assert not late.machine.runs.get(RUN)


def test_a_shard_is_cleared_when_others_have_all_that_it_knew() -> None:
    old = shard().tell(2, publish())
    assert not old.machine.is_cleared()
    old.feed(view(2, [1] * PARTS))
    assert handed(old, 1) and old.machine.is_cleared()


def test_a_message_that_was_sent_on_to_a_node_that_died_is_not_lost() -> None:
    """Seed 99: a shard that did not know the view yet sent a question back to the shard that had just handed over, and that left before it
    could answer. A node that joins may have asked, which never knew that shard: nobody would have asked again."""
    late = shard(1, owner=0).tell(2, m.Locate(RUN, ("7/a",)))
    assert late.take(m.Astray, 0) == m.Astray(1, 2, m.Locate(RUN, ("7/a",)))
    late.feed(view(2, [1] * PARTS)).nothing_left().feed(view(3, [1] * PARTS, 0))
    assert late.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)


def test_records_of_a_view_that_has_not_come_yet_wait_for_it() -> None:
    new = shard(1, owner=0).tell(0, *handed(shard().tell(3, publish()).feed(view(2, [1] * PARTS)), 1))
    new.tell(0, m.Astray(2, 2, m.Locate(RUN, ("7/a",)))).nothing_left().feed(view(2, [1] * PARTS))
    assert new.take(m.Located, 2).files[0].holders == (3,)


def test_records_of_a_partition_that_has_moved_on_are_passed_on() -> None:
    first = shard().tell(3, publish()).feed(view(2, [1] * PARTS))
    second = shard(1, owner=0).feed(view(2, [1] * PARTS)).tell(2, m.Locate(RUN, ("7/a",))).feed(view(3, [2] * PARTS))
    third = shard(2, owner=0).feed(view(2, [1] * PARTS)).feed(view(3, [2] * PARTS))
    for _, astray in second.take_all(m.Astray, 2):
        third.tell(1, astray)
    second.nothing_left().tell(0, *handed(first, 1))
    third.nothing_left().tell(1, *handed(second, 2))
    assert third.take(m.Located, 2).files[0].holders == (3,)
    assert second.machine.runs == {RUN: {}}


def test_records_that_came_before_the_last_word_are_passed_on_with_their_partition() -> None:
    """They stayed where they had come to, since that shard still waited for the rest."""
    second = shard(1, owner=0).feed(view(2, [1] * PARTS)).tell(0, *handed(shard().tell(3, publish()).feed(view(2, [1] * PARTS)), 1)[:1])
    second.feed(view(3, [2] * PARTS))
    told = handed(second, 2)
    assert [file.name for part in told for run in part.runs for file in run.files] == ["7/a"]
    assert not any(part.partitions for part in told)
    assert second.machine.runs == {RUN: {}}


def test_a_shard_that_has_missed_a_view_tells_all_not_to_wait_for_it() -> None:
    fls = shard().tell(3, publish()).feed(view(3, [1] * PARTS))
    assert {to for to, message in fls.take_all(m.HandOver) if message.all_said} == {1, 2, 3}
    other = shard(1, owner=0).feed(view(2, [1] * PARTS)).tell(2, m.Locate(RUN, ("7/a",)))
    other.tell(0, m.HandOver(2, (), (), True))
    assert other.take(m.Lost, CLIENT) == m.Lost(RUN, ("7/a",), -1)


def test_the_end_of_a_run_follows_its_records() -> None:
    """The submitter may have ended before it heard of a node that has just joined."""
    old = shard().tell(3, publish()).feed(view(2, [1] * PARTS))
    new = Recorder(FlsShard(1)).feed(view(2, [1] * PARTS, new=True)).tell(0, *handed(old, 1))
    old.tell(CLIENT, m.RunEnd(RUN))
    new.tell(0, old.take(m.RunEnd, 1)).nothing_left()
    assert new.machine.runs == {} and new.machine.clients == {} and RUN in new.machine.gone


def test_many_records_are_handed_over_in_parts() -> None:
    fls = shard().tell(3, m.Publish(RUN, tuple(m.Published(f"7/{number}", 5) for number in range(2500)))).feed(view(2, [1] * PARTS))
    told = handed(fls, 1)
    assert [sum(len(run.files) for run in part.runs) for part in told] == [1000, 1000, 500, 0]
    assert [bool(part.partitions) for part in told] == [False, False, False, True]


# ── a network ──────────────────────────────────────────────────────────────────────────────────────

READERS = 2


class Network(RuleBasedStateMachine):
    """Shards, the workers of their nodes, and a submitter; each file has READERS readers, on nodes that are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.shards: dict[int, FlsShard] = {}
        self.views: list[tuple[PartitionTable, list[int]]] = [(PartitionTable([0, 1] * 4, 1), [0, 1])]
        self.known: dict[int, int] = {}  # node or submitter -> views that it has heard of
        self.links: dict[tuple[int, int], deque[object]] = {}
        self.made: dict[str, int] = {}  # file -> node that has made it
        self.asked: dict[str, list[int]] = {}  # file -> nodes that have asked for it
        self.told: set[tuple[int, str]] = set()
        self.released: dict[str, int] = {}
        self.dropped: list[tuple[int, str]] = []
        for node in (0, 1):
            self.start(node, new=False)
        self.known[CLIENT] = 1
        self.told_of_run = {0, 1}
        for node in (0, 1):
            self.send(CLIENT, node, begin())

    names = st.sampled_from(NAMES)

    def start(self, node: int, *, new: bool) -> None:
        self.shards[node] = FlsShard(node)
        self.known[node] = len(self.views)
        self.turn(node, self.event(len(self.views), new=new))

    def event(self, epoch: int, *, new: bool = False) -> MembersChanged:
        table, members = self.views[epoch - 1]
        return MembersChanged(table, dict.fromkeys(members, 1), set(), new=new)

    def send(self, sender: int, to: int, message: object) -> None:
        self.links.setdefault((sender, to), deque()).append(message)

    def turn(self, node: int, event: object) -> None:
        machine = self.shards[node]
        for effect in machine.handle(event, 0.0):  # type: ignore[arg-type]
            assert isinstance(effect, Send)
            assert effect.to != node or not isinstance(effect.message, (m.HandOver, m.Astray)), "to itself"
            self.send(node, effect.to, over_the_wire(effect.message))
        machine.check_invariants()

    def says(self, who: int, name: str, message: m.Message) -> None:
        """To the shard that has the file, as far as the sender knows."""
        self.send(who, self.views[self.known[who] - 1][0].node_of(name), message)

    def node(self, draw: int) -> int:
        return sorted(self.shards)[draw % len(self.shards)]

    @rule(name=names, draw=st.integers(0, 9))
    def makes(self, name: str, draw: int) -> None:
        if name not in self.made:
            self.made[name] = self.node(draw)
            self.says(self.made[name], name, publish(name, READERS))

    @rule(name=names, draw=st.integers(0, 9))
    def asks(self, name: str, draw: int) -> None:
        node, asked = self.node(draw), self.asked.setdefault(name, [])
        if len(asked) < READERS and node not in asked:
            asked.append(node)
            self.says(node, name, m.Locate(RUN, (name,)))

    @rule(name=names, draw=st.integers(0, 9))
    def reads(self, name: str, draw: int) -> None:
        readers = [node for node in self.asked.get(name, ()) if (node, name) in self.told]
        if readers:
            node = readers[draw % len(readers)]
            self.told.discard((node, name))
            self.released[name] = self.released.get(name, 0) + 1
            self.says(node, name, m.Replica(RUN, (name,)))
            self.says(node, name, m.Release(RUN, (name,)))

    @rule(part=st.integers(0, PARTS - 1), draw=st.integers(0, 9), joins=st.booleans())
    def moves(self, part: int, draw: int, joins: bool) -> None:
        table, members = self.views[-1]
        epoch = len(self.views) + 1
        if joins and len(members) < 5:
            self.views.append((PartitionTable(table.with_nodes([len(members)]).owners, epoch), [*members, len(members)]))
            self.start(len(members), new=True)
        else:
            owners = list(table.owners)
            owners[part] = members[draw % len(members)]
            self.views.append((PartitionTable(owners, epoch), members))
        for who in (*members, CLIENT):
            self.send(-1, who, epoch)

    @rule(draw=st.integers(0, 99), many=st.integers(1, 5))
    def arrives(self, draw: int, many: int) -> None:
        for _ in range(many):
            links = [link for link, messages in sorted(self.links.items()) if messages]
            if links:
                self.deliver(*links[draw % len(links)])

    def deliver(self, sender: int, to: int) -> None:
        message = self.links[sender, to].popleft()
        if isinstance(message, int):
            self.known[to] = message
            if to != CLIENT:
                self.turn(to, self.event(message))
            else:
                for node in self.views[message - 1][1]:
                    if node not in self.told_of_run:
                        self.told_of_run.add(node)
                        self.send(CLIENT, node, begin(message))
        elif isinstance(message, m.Located):
            for at in message.files:
                assert self.made[at.name] in at.holders, "holders are never forgotten"
                self.told.add((to, at.name))
        elif isinstance(message, m.Drop):
            for name in message.names:
                assert self.released[name] == READERS, f"{name} is dropped, and has readers left"
                self.dropped.append((to, name))
        else:
            assert to != CLIENT, f"the submitter hears {message}"
            assert isinstance(message, m.Message)
            self.turn(to, Received(sender, message))

    def teardown(self) -> None:
        self.all_arrives()
        for name, asked in self.asked.items():
            if name in self.made:
                for node in list(asked):
                    if (node, name) in self.told:
                        self.reads(name, 0)
        self.all_arrives()
        for name, maker in self.made.items():
            readers = self.asked.get(name, [])
            assert self.released.get(name, 0) == len(readers), f"somebody was never told where {name} is"
            assert {node for node, other in self.dropped if other == name} == ({maker, *readers} if len(readers) == READERS else set())
        for node in self.shards:
            assert not self.shards[node].moves.waiting
            self.send(CLIENT, node, m.RunEnd(RUN))
        self.all_arrives()
        for shard in self.shards.values():
            assert not (shard.runs or shard.clients or shard.given or shard.dropped or shard.moves.sent_on or shard.moves.early)

    def all_arrives(self) -> None:
        while any(self.links.values()):
            for link in sorted(link for link, messages in self.links.items() if messages):
                self.deliver(*link)


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
