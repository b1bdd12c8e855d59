"""Which share of the partitions each node gets when capacities differ, and how the manager evens the loads out."""

from __future__ import annotations

from membership_nodes import BEAT, LIMITS, node_in
from recorder import Recorder

from amfs.engine.membership import WITHDRAW_S, Membership
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import PeerDown, Started
from amfs.vocabulary.partition import PartitionTable

GB = 1 << 30


def sized(node: int, capacity: int, host: str = "", measured: bool = False) -> m.Member:
    return m.Member(node, 1, (), 2, host, capacity=capacity, measured=measured)


def sized_manager(*capacities: int, owners: tuple[int, ...] = ()) -> Recorder[Membership]:
    """A manager with other nodes, and 200 partitions."""
    members = tuple(sized(node, capacity) for node, capacity in enumerate(capacities))
    table = owners or PartitionTable.dealt(dict(enumerate(capacities)), 200).owners
    return Recorder(Membership(members[0], 0, view=m.View(1, 0, members, table, 0))).feed(Started())


def loads(manager: Recorder[Membership]) -> list[int]:
    view = manager.machine.view
    assert view is not None
    return [view.table.count(member.node) for member in view.members]


def alive_for(manager: Recorder[Membership], seconds: float) -> list[m.ViewChange]:
    """The changes that the manager tells node 1 while all nodes are heard."""
    changes: list[m.ViewChange] = []
    for _ in range(int(seconds / BEAT)):
        view = manager.machine.view
        assert view is not None
        for node in manager.machine.nodes():
            if node != 0:
                manager.tell(node, m.Heartbeat(view.epoch))
        manager.advance(BEAT)
        changes += [change for _, change in manager.take_all(m.ViewChange, 1)]
        manager.forget()
    return changes


def test_a_node_gets_partitions_by_its_capacity_when_it_joins() -> None:
    manager = sized_manager(GB, GB).tell(2, m.Join(sized(2, 2 * GB)))
    assert loads(manager) == [50, 50, 100]


def test_what_a_node_that_drains_has_goes_to_others_by_their_capacity() -> None:
    manager = sized_manager(GB, 3 * GB, 4 * GB).tell(2, m.Withdraw()).advance(WITHDRAW_S).forget()
    assert loads(manager) == [50, 150, 0]
    assert alive_for(manager, 3 * LIMITS.balance_s) == [], "nothing more is to move"


def test_after_a_death_the_backups_take_over_and_the_manager_brings_the_loads_back_slowly() -> None:
    manager = sized_manager(GB, GB, GB, 7 * GB, 10 * GB).feed(PeerDown(4)).forget()
    view = manager.machine.view
    assert view is not None
    before = loads(manager)
    assert max(before[:3]) > 25, "each of the small ones inherits as much as the large one"
    assert alive_for(manager, LIMITS.balance_s - 2) == []
    changes = alive_for(manager, 20 * LIMITS.balance_s)
    assert len(changes) > 3
    assert all(change.moves == len(view.table) // 32 and not (change.joined or change.left) for change in changes)
    assert [20 - 1 <= load <= 21 for load in loads(manager)[:3]] == [True] * 3
    after = manager.machine.view
    assert after is not None
    moved = PartitionTable(view.table).moved(PartitionTable(after.table))
    assert len(moved) == sum(max(0, load - 21) for load in before[:3]), "no more than must"
    assert alive_for(manager, 3 * LIMITS.balance_s) == []


def test_members_work_out_the_moves_that_the_manager_has_announced() -> None:
    owners = tuple(0 if part < 150 else 1 for part in range(200))
    manager = sized_manager(GB, GB, GB, owners=owners).forget()
    base = manager.machine.view
    assert base is not None
    other = node_in(base, 1)
    for change in alive_for(manager, 20 * LIMITS.balance_s):
        other.tell(0, change)
    assert other.machine.view == manager.machine.view
    assert max(loads(manager)) <= 70


def test_nothing_moves_for_balance_while_the_network_may_be_cut() -> None:
    owners = tuple(0 if part < 150 else 1 for part in range(200))
    manager = sized_manager(GB, GB, GB, owners=owners).forget()
    for _ in range(int(LIMITS.cut_off_s) - 2):
        manager.advance(BEAT)
    manager.forget()
    assert not manager.machine.majority.without((), manager.machine.now)
    manager.advance(BEAT)
    assert not manager.take_all(m.ViewChange)


def test_equal_nodes_stay_as_they_are() -> None:
    manager = sized_manager(GB, GB, GB)
    manager.tell(3, m.Join(sized(3, GB))).forget()
    assert alive_for(manager, 3 * LIMITS.balance_s) == []


def test_capacities_that_were_measured_on_one_host_or_hardly_differ_are_one() -> None:
    manager = sized_manager(GB, GB)
    for new in (sized(2, 4 * GB, "a", True), sized(3, GB // 2, "a", True), sized(4, 2 * GB, "a"), sized(5, GB + GB // 50, "b", True)):
        manager.advance(1.0).tell(new.node, m.Join(new))
    view = manager.machine.view
    assert view is not None
    assert [member.capacity // (GB // 2) for member in view.members] == [2, 2, 8, 8, 4, 2]
