"""Who is in the session: stories of one node, and of several over a network that holds messages back where it is cut."""

from __future__ import annotations

import pytest
from parts import CLIENT, RUN, begin
from recorder import Recorder

from amfs.config import MemberLimits
from amfs.engine.membership import WITHDRAW_S, Membership
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Leaving, PeerDown, PeerGone, PeersHeard, Probe, Started, Stop, TimerFired
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import PeerState

LIMITS = MemberLimits()
BEAT = LIMITS.heartbeat_s


def member(node: int, incarnation: int = 1) -> m.Member:
    return m.Member(node, incarnation, (f"tcp://{node}",), 2, f"host{node}")


def view_of(epoch: int, manager: int, *nodes: int) -> m.View:
    return m.View(epoch, manager, tuple(member(node) for node in nodes), PartitionTable.even(nodes, 8).owners, 0)


def node_in(view: m.View, node: int) -> Recorder[Membership]:
    """A node that was started together with the others of the view."""
    recorder = Recorder(Membership(member(node), view.manager, view=view)).feed(Started())
    recorder.machine.changed = False  # the node has seen its view
    return recorder


def manager_of(*nodes: int) -> Recorder[Membership]:
    return node_in(view_of(1, 0, 0, *nodes), 0)


def told(manager: Recorder[Membership], node: int) -> m.View:
    """The view that this member makes of the change that it was told."""
    change = manager.take(m.ViewChange, node)
    view = manager.machine.view
    assert view is not None
    assert (change.base_epoch, change.manager) == (view.epoch - 1, view.manager)
    assert set(change.left).isdisjoint(member.node for member in view.members)
    assert set(change.joined) <= set(view.members)
    return view


# ── getting in ─────────────────────────────────────────────────────────────────────────────────────


def test_the_founder_is_alone_and_manager() -> None:
    node = Recorder(Membership(member(0), 0))
    node.feed(Started()).nothing_left()
    view = node.machine.view
    assert view is not None
    assert (view.epoch, view.manager, view.members, set(view.table)) == (1, 0, (member(0),), {0})
    assert node.machine.changed


def test_who_joins_is_announced_to_all_and_gets_its_share_of_the_records() -> None:
    manager = manager_of(1).tell(2, m.Join(member(2)))
    view = manager.take(m.View, 2)
    assert view == told(manager, 1)
    assert (view.epoch, [one.node for one in view.members]) == (2, [0, 1, 2])
    assert view.table.count(2) == len(view.table) // 3
    manager.nothing_left()


def test_nodes_that_ask_together_are_let_in_together() -> None:
    manager = manager_of(1, 2)
    for node in (3, 4, 5):
        manager.tell(node, m.Join(member(node)))
    assert told(manager, 1).members[-1].node == 3, "the first one at once"
    assert manager.machine.joining.keys() == {4, 5}
    manager.forget().advance(3 * LIMITS.join_s)
    assert not manager.take_all(m.ViewChange), "too early for four members"
    manager.advance(LIMITS.join_s)
    view = told(manager, 1)
    assert ([one.node for one in view.members], view.epoch) == ([0, 1, 2, 3, 4, 5], 3)


def test_members_work_out_the_view_that_the_manager_has() -> None:
    base = view_of(1, 0, 0, 1, 2)
    manager, other = node_in(base, 0), node_in(base, 1)
    manager.tell(3, m.Join(member(3))).feed(PeerDown(2))
    for _, change in manager.take_all(m.ViewChange, 1):
        other.tell(0, change)
    assert other.machine.view == manager.machine.view != base


def test_a_node_that_missed_a_change_asks_for_the_whole_view() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1)
    node.tell(0, m.ViewChange(2, 0, 0, (member(4),)))
    assert node.machine.view == view_of(1, 0, 0, 1, 2)
    assert node.take(m.Heartbeat, 0) == m.Heartbeat(0)
    node.tell(0, m.ViewChange(0, 0, 0, (member(4),))).nothing_left()  # an older one
    manager = manager_of(1)
    assert manager.tell(1, m.Heartbeat(0)).take(m.View, 1) == manager.machine.view


def test_the_founder_makes_partitions_for_as_many_nodes_as_are_expected() -> None:
    node = Recorder(Membership(member(0), 0, expected=1000)).feed(Started())
    assert node.machine.view is not None and len(node.machine.view.table) == 16384


def test_a_repeated_request_gets_the_same_answer() -> None:
    manager = manager_of(1).tell(2, m.Join(member(2))).forget()
    manager.tell(2, m.Join(member(2)))
    assert manager.take(m.View, 2) == manager.machine.view
    manager.nothing_left()


def test_a_request_to_another_node_is_passed_on_to_the_manager() -> None:
    other = node_in(view_of(1, 0, 0, 1), 1)
    other.tell(2, m.Join(member(2)))
    assert other.take(m.Join, 0) == m.Join(member(2))
    other.nothing_left()


def test_who_asks_without_a_number_gets_one_that_nobody_had() -> None:
    manager = manager_of(1, 2)
    manager.feed(PeerDown(2)).forget()
    for asker, number in ((CLIENT, 3), (CLIENT + 1, 4)):
        manager.tell(asker, m.Join(member(-1)))
        assert manager.take(m.IdAssigned, asker) == m.IdAssigned(number)
    manager.nothing_left()


@pytest.mark.parametrize("dead", [True, False])
def test_a_number_is_never_used_twice(dead: bool) -> None:
    manager = manager_of(1, 2)
    if dead:
        manager.feed(PeerDown(2))
    manager.forget().tell(2, m.Join(member(2, incarnation=2)))
    assert manager.take(m.IdAssigned, 2) == m.IdAssigned(3)
    manager.nothing_left()


def test_who_comes_with_a_used_number_leaves_and_says_which_is_free() -> None:
    node = Recorder(Membership(member(2, incarnation=2), 0))
    node.feed(Started())
    assert node.take(m.Join, 0) == m.Join(member(2, incarnation=2))
    node.tell(0, m.IdAssigned(3))
    assert "join it as node 3" in node.effect(Stop).reason


def test_a_node_asks_again_and_gives_up_when_nobody_answers() -> None:
    node = Recorder(Membership(member(2), 0))
    node.feed(Started()).advance(10 * BEAT)
    assert 9 <= len(node.take_all(m.Join, 0)) <= 12
    assert not node.effects
    node.advance(11 * LIMITS.dead_s)
    assert node.effects_of(Stop)[0].reason == "nobody answered the request to join"


def test_a_view_with_an_earlier_life_of_this_node_is_not_for_this_one() -> None:
    node = Recorder(Membership(member(2, incarnation=5), 0))
    node.feed(Started()).forget()
    node.tell(0, view_of(4, 0, 0, 2)).nothing_left()
    assert node.machine.view is None


# ── staying in ─────────────────────────────────────────────────────────────────────────────────────


def beating(manager: Recorder[Membership], beats: int, *nodes: int) -> None:
    """Time passes in which these nodes are heard."""
    for _ in range(beats):
        manager.advance(BEAT)
        assert manager.machine.view is not None
        for node in nodes:
            manager.tell(node, m.Heartbeat(manager.machine.view.epoch))


def state_of(manager: Recorder[Membership], node: int) -> PeerState:
    return manager.machine.peers[node].state


def test_a_silent_node_is_suspected_and_then_dead() -> None:
    manager = manager_of(1, 2)
    beating(manager, 4, 1)
    assert (state_of(manager, 1), state_of(manager, 2)) == (PeerState.ALIVE, PeerState.SUSPECT)
    assert not manager.take_all(m.ViewChange)
    beating(manager, 4, 1)
    view = told(manager, 1)
    assert ([one.node for one in view.members], set(view.table)) == ([0, 1], {0, 1})
    assert "node 2 lost" in manager.logs


def test_a_suspect_that_speaks_is_alive() -> None:
    manager = manager_of(1)
    for _ in range(5):
        manager.advance(LIMITS.suspect_s + BEAT)
        assert state_of(manager, 1) == PeerState.SUSPECT
        manager.tell(1, m.Heartbeat(1))
        assert state_of(manager, 1) == PeerState.ALIVE
    assert not manager.take_all(m.View)


def test_several_deaths_at_once_are_one_view() -> None:
    manager = manager_of(1, 2, 3)
    beating(manager, round(LIMITS.dead_s / BEAT) + 2, 2)
    view = told(manager, 2)
    assert ([one.node for one in view.members], view.epoch) == ([0, 2], 2)


def test_a_manager_without_the_majority_takes_nobody_for_dead_and_ends_its_side() -> None:
    """The others may have been cut off, and go on. Here both sides of a cut went on, and what the smaller one had acknowledged was gone
    when it was noticed (make chaos SEED=108 LOAD=fs KIND=cut)."""
    manager = manager_of(1, 2, 3, 4)
    beating(manager, round(LIMITS.cut_off_s / BEAT) - 1, 1)
    assert not manager.take_all(m.View) and not manager.effects_of(Stop)
    beating(manager, 3, 1)
    assert manager.effect(Stop) == Stop("cut off from the majority of the session")
    assert [to for to, message in manager.sent if isinstance(message, m.Shutdown)] == [1]
    assert not manager.take_all(m.View)


def test_a_manager_without_the_majority_lets_nobody_in() -> None:
    """Seed 702611: nodes joined a manager that was cut off, one after the other, until they and it were more than half, and there were two
    sessions."""
    manager = manager_of(1, 2, 3, 4)
    beating(manager, 4)
    manager.forget().tell(5, m.Join(member(5)))
    beating(manager, 2)
    assert not manager.take_all(m.ViewChange) and not manager.take_all(m.View)
    beating(manager, 2, 1, 2, 3, 4)
    assert 5 in [one.node for one in told(manager, 1).members], "it is let in when the majority is heard again"


def test_a_node_that_joined_counts_when_the_majority_knows_it() -> None:
    """Seed 706409: of five nodes three were cut off, and a node joined the other two before they had noticed. Both sides went on."""
    manager = manager_of(1, 2, 3, 4)
    beating(manager, 1, 1, 2, 3, 4)
    manager.tell(5, m.Join(member(5)))
    beating(manager, 10, 3, 5)
    assert not any(change.left for _, change in manager.take_all(m.ViewChange)), "two of five"
    beating(manager, 1, 1, 2, 3, 5)
    beating(manager, 10, 2, 3, 5)
    assert manager.machine.nodes() == [0, 2, 3, 5], "four of six"


def test_a_manager_that_is_heard_again_in_time_goes_on() -> None:
    manager = manager_of(1, 2, 3, 4)
    beating(manager, round(LIMITS.cut_off_s / BEAT) - 2, 1)
    beating(manager, 30, 1, 2, 3, 4)
    assert not manager.take_all(m.View) and not manager.effects_of(Stop)


def test_processes_that_have_ended_are_not_counted_and_not_waited_for() -> None:
    manager = manager_of(1, 2, 3, 4)
    beating(manager, 2, 1)
    assert {probe.peer for probe in manager.effects_of(Probe)} == {2, 3, 4}
    for node in (2, 3, 4):
        manager.feed(PeerGone(node))
    assert [change.left for _, change in manager.take_all(m.ViewChange, 1)] == [(2,), (3,), (4,)]
    view = manager.machine.view
    assert view is not None
    assert [one.node for one in view.members] == [0, 1]


def test_of_two_halves_that_with_the_lowest_node_goes_on() -> None:
    first, last = manager_of(1), node_in(view_of(1, 0, 0, 1), 1)
    first.advance(LIMITS.cut_off_s + 2 * BEAT)
    last.advance(LIMITS.cut_off_s + 2 * BEAT)
    view = first.machine.view
    assert view is not None and [one.node for one in view.members] == [0]
    assert last.effects_of(Stop)[0] == Stop("cut off from the majority of the session")


def test_a_refused_connection_needs_no_waiting() -> None:
    manager = manager_of(1, 2).feed(PeerDown(2))
    assert [one.node for one in told(manager, 1).members] == [0, 1]
    manager.feed(PeerDown(2)).nothing_left()


def test_a_goodbye_needs_no_waiting() -> None:
    manager = manager_of(1, 2).tell(2, m.Leave(2))
    assert [one.node for one in told(manager, 1).members] == [0, 1]
    manager.tell(2, m.Leave(2)).nothing_left()


def test_of_two_nodes_that_cannot_reach_each_other_one_has_to_go() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1).feed(PeerDown(2))
    assert node.take(m.Leave, 0) == m.Leave(2)
    node.nothing_left()


def test_everybody_else_hears_only_the_manager() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1).advance(BEAT)
    assert node.take(m.Heartbeat, 0) == m.Heartbeat(1)
    node.nothing_left()
    assert node.machine.peers == {}


def test_who_missed_a_view_is_given_it() -> None:
    manager = manager_of(1, 2).feed(PeerDown(2)).forget()
    manager.tell(1, m.Heartbeat(1))
    assert not manager.take_all(m.View), "it is still on its way"
    manager.advance(BEAT)
    manager.forget().tell(1, m.Heartbeat(1))
    assert manager.take(m.View, 1) == manager.machine.view


@pytest.mark.parametrize(
    ("view", "adopted"),
    [
        (view_of(3, 0, 0, 1), True),
        (view_of(2, 1, 0, 1), False),  # known
        (view_of(2, 0, 0, 1), True),  # equal epoch: the lower manager wins
        (view_of(1, 0, 0, 1), False),
    ],
)
def test_the_higher_epoch_wins_then_the_lower_manager(view: m.View, adopted: bool) -> None:
    node = node_in(view_of(2, 1, 0, 1, 2), 1).tell(0, view)
    assert (node.machine.view == view) is adopted
    assert node.machine.changed is adopted


def test_a_node_that_is_left_out_leaves() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 2).tell(0, view_of(2, 0, 0, 1))
    assert node.effect(Stop) == Stop("the others took this node for dead")


def test_of_two_sides_that_have_given_each_other_up_the_larger_counts_whatever_its_epoch() -> None:
    alone = node_in(view_of(7, 0, 0), 0).tell(CLIENT, view_of(5, 1, 1, 2))
    assert alone.effect(Stop) == Stop("the others took this node for dead")
    several = node_in(view_of(5, 1, 1, 2), 1).tell(CLIENT, view_of(7, 0, 0))
    assert several.machine.view == view_of(5, 1, 1, 2)
    assert not several.effects_of(Stop)


def test_a_node_of_both_sides_stays_where_its_partitions_are() -> None:
    node = node_in(view_of(7, 0, 0, 3), 3).tell(CLIENT, view_of(5, 1, 1, 2, 3))
    assert node.machine.view == view_of(7, 0, 0, 3)
    assert not node.effects_of(Stop)


# ── succession ─────────────────────────────────────────────────────────────────────────────────────


def test_the_lowest_node_takes_the_place_of_a_silent_manager() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1)
    beating(node, round(LIMITS.dead_s / BEAT) - 1, 2)
    assert not node.machine.is_manager
    beating(node, 2, 2)
    view = told(node, 2)
    assert (view.epoch, view.manager, [one.node for one in view.members], set(view.table)) == (2, 1, [1, 2], {1, 2})


def test_the_others_wait_longer_so_that_only_one_speaks_up() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 2)
    beating(node, round(LIMITS.dead_s / BEAT) + 2, 1)
    assert not node.machine.is_manager
    beating(node, round(LIMITS.dead_s / BEAT), 1)
    assert node.machine.is_manager


def test_a_manager_whose_process_has_ended_is_followed_as_soon_as_the_majority_answers() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2, 3), 1).advance(2 * BEAT)
    assert node.effect(Probe) == Probe(0)
    node.forget().feed(PeerGone(0))
    assert not node.machine.is_manager
    assert node.take(m.Heartbeat, 2) == node.take(m.Heartbeat, 3) == m.Heartbeat(1)
    node.tell(3, m.Heartbeat(1))
    view = told(node, 3)
    assert (view.manager, [one.node for one in view.members]) == (1, [1, 2, 3])


def test_a_successor_that_alone_does_not_hear_the_manager_does_not_take_over() -> None:
    """Only the path between the two was cut: each took the other for dead, with the same majority (simulator seed 1037)."""
    node = node_in(view_of(1, 0, 0, 1, 2, 3), 1)
    for _ in range(round(LIMITS.cut_off_s / BEAT) - 1):
        node.advance(BEAT).feed(PeersHeard({2: node.now, 3: node.now}))
    assert not node.machine.is_manager and not node.effects_of(Stop)


def test_nodes_that_ask_each_other_who_lives_do_not_do_so_for_ever() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 2)
    node.tell(1, m.Heartbeat(1)).nothing_left()  # it hears the manager itself
    node.advance(2 * BEAT).forget()
    node.tell(1, m.Heartbeat(1), m.Heartbeat(1))
    assert node.take(m.Heartbeat, 1) == m.Heartbeat(1)
    node.nothing_left()


def test_a_manager_that_is_heard_stays() -> None:
    node = node_in(view_of(1, 0, 0, 1), 1)
    for _ in range(30):
        node.advance(BEAT).tell(0, m.Heartbeat(1))
    assert not node.machine.is_manager


def test_whatever_arrives_is_a_sign_of_life() -> None:
    """One lost batch holds up the heartbeats behind it. On a network that loses every seventh packet that lasted for six seconds now and
    then, and the cluster fell apart (simulator seed 7001323)."""
    node = node_in(view_of(1, 0, 0, 1), 1)
    manager = manager_of(1).tell(CLIENT, m.ClientHello(CLIENT), begin())
    manager.take_all(m.View)
    for _ in range(30):
        node.advance(BEAT).feed(PeersHeard({0: node.now}))
        manager.advance(BEAT).feed(PeersHeard({1: manager.now, CLIENT: manager.now}))
    assert not node.machine.is_manager
    assert state_of(manager, 1) == PeerState.ALIVE
    assert not manager.take_all(m.View) and not manager.take_all(m.RunEnd)
    node.feed(PeersHeard({0: node.now - 5})).advance(BEAT)
    assert not node.effects_of(Probe), "what was heard before counts from then"
    node.advance(BEAT)
    assert node.effect(Probe) == Probe(0)


def test_a_manager_whose_process_has_ended_is_followed_at_once_by_the_first_heir_only() -> None:
    assert node_in(view_of(1, 0, 0, 1, 2), 1).feed(PeerGone(0)).machine.is_manager
    assert not node_in(view_of(1, 0, 0, 1, 2), 2).feed(PeerGone(0)).machine.is_manager


def test_a_manager_to_which_the_link_is_down_is_followed_at_once_if_the_others_are_heard() -> None:
    heard = node_in(view_of(1, 0, 0, 1, 2), 1).tell(2, m.Heartbeat(1)).feed(PeerDown(0))
    assert heard.machine.is_manager
    assert not node_in(view_of(1, 0, 0, 1, 2), 1).feed(PeerDown(0)).machine.is_manager


# ── clients ────────────────────────────────────────────────────────────────────────────────────────


def test_clients_are_told_who_is_there_and_of_every_change() -> None:
    manager = manager_of(1, 2).tell(CLIENT, m.ClientHello(CLIENT))
    assert manager.take(m.View, CLIENT) == manager.machine.view
    manager.feed(PeerDown(2))
    assert manager.take(m.View, CLIENT) == manager.machine.view
    manager.tell(CLIENT, m.Heartbeat(1))
    assert manager.take(m.View, CLIENT) == manager.machine.view, "it missed that"
    manager.forget().tell(CLIENT, m.Heartbeat(2)).nothing_left()


def test_the_runs_of_a_silent_client_are_ended() -> None:
    manager = manager_of(1).tell(CLIENT, begin()).tell(CLIENT, m.ClientHello(CLIENT)).forget()
    beating(manager, round(LIMITS.client_dead_s / BEAT) + 1, 1)
    assert dict(manager.take_all(m.RunEnd)) == {0: m.RunEnd(RUN, True), 1: m.RunEnd(RUN, True)}
    assert manager.machine.clients == {}


def test_a_new_manager_waits_for_the_clients_to_find_it() -> None:
    node = node_in(view_of(1, 0, 0, 1), 1).tell(CLIENT, begin())
    for _ in range(round(LIMITS.client_dead_s / BEAT) - 1):
        node.advance(BEAT).tell(0, m.Heartbeat(1))
    node.feed(PeerGone(0)).advance(3 * BEAT)
    assert node.machine.is_manager
    assert not node.take_all(m.RunEnd), "so far the client spoke to the old one"
    node.advance(LIMITS.client_dead_s)
    assert node.take(m.RunEnd, 1) == m.RunEnd(RUN, True)


def test_a_client_that_is_heard_keeps_its_runs() -> None:
    manager = manager_of(1).tell(CLIENT, begin())
    beating(manager, 40, 1, CLIENT)
    assert not manager.take_all(m.RunEnd)


def test_a_run_that_ended_is_not_ended_again() -> None:
    manager = manager_of(1).tell(CLIENT, begin(), m.RunEnd(RUN)).feed(PeerDown(CLIENT))
    assert not manager.take_all(m.RunEnd)


def test_a_client_that_says_goodbye_is_forgotten_unless_it_has_runs() -> None:
    manager = manager_of(1).tell(CLIENT, m.ClientHello(CLIENT)).tell(CLIENT + 1, m.RunBegin(8, CLIENT + 1, begin().info))
    manager.tell(CLIENT, m.Leave(-1)).tell(CLIENT + 1, m.Leave(-1))
    assert list(manager.machine.clients) == [CLIENT + 1]


def test_an_end_that_the_submitter_cannot_bring_to_all_is_passed_on() -> None:
    manager = manager_of(1, 2).tell(CLIENT, begin()).tell(CLIENT, m.RunEnd(RUN, True, relay=True))
    assert dict(manager.take_all(m.RunEnd)) == {node: m.RunEnd(RUN, True) for node in (0, 1, 2)}


# ── shutdown ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_any_node_takes_the_order_to_shut_down_to_all(asked: int) -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), asked).tell(CLIENT + 1, m.ClientHello(CLIENT + 1)).forget()
    node.tell(CLIENT, m.Shutdown())
    assert sorted(to for to, _ in node.take_all(m.Shutdown)) == [other for other in (0, 1, 2) if other != asked]
    last = node.take(m.View, CLIENT + 1)
    assert (last.members, last.epoch) == ((), 2), "so that a submitter need not find out by waiting"
    assert node.effect(Stop) == Stop("shut down", True)
    node.nothing_left()


def test_nodes_take_the_order_from_the_manager_and_not_from_each_other() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1).tell(2, m.Shutdown()).nothing_left()
    node.tell(0, m.Shutdown())
    node.effect(Stop)
    node.nothing_left()


# ── one run a journal ──────────────────────────────────────────────────────────────────────────────


def kept(run: int, life: int, journal: str = "j") -> m.RunBegin:
    return m.RunBegin(run, CLIENT + run, begin(journal=journal, life=life).info, 1)


def test_a_run_that_is_resumed_ends_the_one_before_on_every_node() -> None:
    """Its submitter was killed a moment ago, and nobody has missed it yet."""
    node = node_in(view_of(1, 0, 0, 1), 1)
    node.tell(CLIENT, kept(3, 1)).tell(CLIENT, kept(4, 1, "other")).tell(CLIENT, begin()).nothing_left()
    node.tell(CLIENT, kept(5, 2))
    assert node.take(m.RunEnd, 1) == m.RunEnd(3, True)
    node.tell(1, m.RunEnd(3, True)).tell(CLIENT, kept(5, 2)).nothing_left()
    node.tell(CLIENT, kept(3, 1))
    assert node.take(m.RunEnd, 1) == m.RunEnd(3, True), "word of the earlier run may come late"
    node.tell(1, m.RunEnd(3, True)).tell(1, m.RunEnd(5)).tell(CLIENT, kept(6, 1)).nothing_left()


def test_the_manager_ends_the_earlier_run_on_nodes_that_joined_too() -> None:
    """They may have records of it, and its submitter did not live to tell them of it."""
    node = manager_of(1).tell(CLIENT, kept(3, 1)).tell(CLIENT, kept(5, 2))
    assert node.take_all(m.RunEnd) == [(0, m.RunEnd(3, True)), (1, m.RunEnd(3, True))]


def late(node: Recorder[Membership], seconds: float) -> Recorder[Membership]:
    """The node is stopped for so long, and its timer fires afterwards."""
    node.now += seconds
    node.timers.pop("beat")
    return node.feed(TimerFired("beat"))


def test_who_was_stopped_hears_the_others_out_before_it_takes_them_for_dead() -> None:
    heir = node_in(view_of(1, 0, 0, 1, 2), 1)
    late(heir, 30.0)
    assert heir.machine.view == view_of(1, 0, 0, 1, 2)
    manager = late(manager_of(1, 2), 30.0)
    assert manager.machine.nodes() == [0, 1, 2]


def test_a_node_that_its_manager_has_given_up_leaves() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 2)
    node.feed(PeerDown(1, refused=True))
    assert not node.effects
    node.feed(PeerDown(0, refused=True))
    assert node.effect(Stop) == Stop("the others took this node for dead")


def test_a_manager_leaves_when_half_of_its_nodes_have_given_it_up() -> None:
    manager = manager_of(1, 2, 3)
    manager.feed(PeerDown(3, refused=True))
    assert not manager.effects and manager.machine.nodes() == [0, 1, 2, 3]
    manager.feed(PeerDown(2, refused=True))
    assert manager.effect(Stop) == Stop("the others took this node for dead")


# ── nodes that are told to end ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_last_node_goes_on_when_all_the_others_leave_at_once(order: tuple[int, ...]) -> None:
    """It ended 18 s later: only the manager was told, and that left, too."""
    last = node_in(view_of(1, 0, 0, 1, 2, 3), 3).advance(BEAT)
    for node in order:
        leaving = node_in(view_of(1, 0, 0, 1, 2, 3), node).feed(Leaving("signal 15"))
        assert leaving.effect(Stop) == Stop("signal 15")
        last.tell(node, leaving.take(m.Leave, 3))
    assert last.machine.is_manager
    beating(last, round(LIMITS.dead_s / BEAT) + 2)
    assert last.machine.nodes() == [3] and not last.effects_of(Stop)


def test_a_node_that_leaves_does_not_count_for_those_who_stay() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2, 3), 1).advance(BEAT)
    for gone in (0, 2):
        node.tell(gone, m.Leave(gone))
    node.forget().tell(3, m.Heartbeat(1))
    assert node.machine.nodes() == [1, 3], "two of four would be no majority"


def test_the_word_of_another_ends_nobody() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2, 3), 1).tell(2, m.Leave(3))
    assert not node.machine.majority.gone


def test_who_was_cut_off_does_not_believe_that_the_others_have_left_for_good() -> None:
    """They may have left a session that goes on without this node."""
    node = node_in(view_of(1, 0, 0, 1, 2), 2)
    beating(node, round(LIMITS.dead_s / BEAT) + 1)
    node.tell(0, m.Leave(0)).tell(1, m.Leave(1))
    assert not node.machine.is_manager


def test_a_side_that_is_cut_off_ends_without_an_order() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1).tell(0, m.Shutdown(False))
    assert node.effect(Stop) == Stop("shut down", False)


def test_nodes_that_drain_together_leave_the_table_together_but_for_one_that_stays() -> None:
    manager = node_in(view_of(1, 0, 0, 1, 2), 0)
    manager.tell(0, m.Withdraw()).tell(1, m.Withdraw()).tell(2, m.Withdraw()).advance(WITHDRAW_S)
    assert manager.take(m.ViewChange, 2).draining == (1, 2)
    assert manager.machine.view is not None and set(manager.machine.view.table) == {0}
    manager.forget().tell(1, m.Withdraw()).tell(0, m.Withdraw()).advance(WITHDRAW_S)
    assert not manager.take_all(m.ViewChange), "nobody else could take what node 0 has"


# ── nodes of unequal capacity ──────────────────────────────────────────────────────────────────────

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
