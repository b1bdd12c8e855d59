"""Membership and clients: news for them, the end of their runs by the manager, and that a journal has one run at a time."""

from __future__ import annotations

from membership_nodes import BEAT, LIMITS, beating, manager_of, member, node_in, view_of
from parts import CLIENT, RUN, begin
from recorder import Recorder

from amfs.engine.membership import Membership
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import PeerDown, PeerGone, Started

# ── clients ────────────────────────────────────────────────────────────────────────────────────────


def test_clients_are_told_who_is_there_and_of_every_change() -> None:
    manager = manager_of(1, 2).tell(CLIENT, m.ClientHello(CLIENT))
    assert manager.take(m.View, CLIENT) == manager.machine.view
    manager.feed(PeerDown(2))
    assert manager.take(m.View, CLIENT) == manager.machine.view
    manager.tell(CLIENT, m.Heartbeat(1))
    assert manager.take(m.View, CLIENT) == manager.machine.view, "it missed that"
    manager.forget().tell(CLIENT, m.Heartbeat(2)).nothing_left()


def test_a_client_that_greets_a_node_before_it_is_let_in_is_answered_when_it_is() -> None:
    """`amfs up` returns when the manager has let all nodes in, which one of them may not have heard yet."""
    node = Recorder(Membership(member(2), 0)).feed(Started()).tell(CLIENT, m.ClientHello(CLIENT))
    assert not node.take_all(m.View)
    node.tell(0, view_of(1, 0, 0, 1, 2))
    assert node.take(m.View, CLIENT) == node.machine.view
    node.forget().tell(0, view_of(2, 0, 0, 2))
    assert not node.take_all(m.View), "from then on the manager tells it"


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
