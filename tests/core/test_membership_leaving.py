"""Members that leave because they are told to: one alone, several at once, and the whole session."""

from __future__ import annotations

import pytest
from membership_nodes import BEAT, LIMITS, beating, late, manager_of, node_in, told, view_of
from parts import CLIENT

from amfs.engine.membership import WITHDRAW_S
from amfs.engine.views import follow
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Leaving, Stop

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


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_last_node_goes_on_though_it_was_stopped_while_the_others_left(order: tuple[int, ...]) -> None:
    """It ended 12 s later: it took them for nodes that may have left it out. Their words on leaving tell that they have not."""
    last = late(node_in(view_of(1, 0, 0, 1, 2, 3), 3).advance(BEAT), 4.5)
    for node in order:
        last.tell(node, m.Leave(node))
    assert last.machine.is_manager
    beating(last, round(LIMITS.cut_off_s / BEAT) + 2)
    assert last.machine.nodes() == [3] and not last.effects_of(Stop)


def test_the_last_node_goes_on_when_each_of_the_others_leaves_as_manager() -> None:
    """It ended 12 s later: it had not heard of node 1 for long, as members hear the manager only, and did not count that it left."""
    members = {node: node_in(view_of(1, 0, 0, 1, 2), node) for node in (0, 1, 2)}
    for _ in range(5):
        for node in (1, 2):
            members[node].advance(BEAT).tell(0, m.Heartbeat(1))
    for node in (0, 1):
        for to, message in members[node].feed(Leaving("signal 15")).sent:
            if to > node and isinstance(message, m.Leave | m.ViewChange):
                members[to].tell(node, message)
    last = members[2]
    assert last.machine.is_manager
    beating(last, round(LIMITS.cut_off_s / BEAT) + 2)
    assert last.machine.nodes() == [2] and not last.effects_of(Stop)


def test_a_manager_that_was_stopped_while_the_others_left_goes_on() -> None:
    manager = late(manager_of(1, 2).advance(BEAT), 4.5)
    for node in (1, 2):
        manager.tell(node, m.Heartbeat(1)).tell(node, m.Leave(node))
    assert manager.machine.nodes() == [0] and not manager.effects_of(Stop)


def test_the_last_word_of_a_node_that_does_not_hear_the_manager_says_so() -> None:
    """It has told node 2, which may lead the others by now: the manager must not go on because it has left."""
    leaving = node_in(view_of(1, 0, 0, 1, 2), 1).advance(LIMITS.suspect_s + 0.5).tell(2, m.Heartbeat(1)).forget().feed(Leaving("signal 15"))
    manager = manager_of(1, 2).tell(2, m.Heartbeat(1, True))
    said = [message for to, message in leaving.sent if to == 0]
    assert said == [m.Heartbeat(1, True), m.Leave(1)]
    for message in said:
        manager.tell(1, message)
    assert manager.machine.nodes() == [0, 1, 2]


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


def test_the_manager_tells_all_of_which_runs_a_node_has_said_its_last_word() -> None:
    manager = manager_of(1, 2).tell(CLIENT, m.ClientHello(CLIENT)).forget()
    leaving = node_in(view_of(1, 0, 0, 1, 2), 2).feed(Leaving("SIGTERM", (7, 8)))
    manager.tell(2, leaving.take(m.Leave, 0))
    assert told(manager, 1).in_order == ((2, (7, 8)),)
    assert manager.take(m.View, CLIENT).in_order == ((2, (7, 8)),)
    assert manager.machine.view is not None
    assert follow(manager.machine.view, m.ViewChange(2, 0, 0, left=(1,))).in_order == (), "a view speaks of its own change only"


def test_the_word_of_another_is_no_farewell() -> None:
    manager = manager_of(1, 2).tell(1, m.Leave(2, (7,)))
    assert told(manager, 1).in_order == ()
