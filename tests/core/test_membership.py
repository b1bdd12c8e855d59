"""Members of the session: stories of one node, of how it gets in, stays in, and becomes manager. Several nodes: test_membership_cuts.py."""

from __future__ import annotations

import pytest
from membership_nodes import BEAT, LIMITS, beating, late, manager_of, member, node_in, state_of, told, view_of
from parts import CLIENT, begin
from recorder import Recorder

from amfs.engine.membership import Membership
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import PeerDown, PeerGone, PeersHeard, Probe, Started, Stop
from amfs.vocabulary.states import PeerState

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
