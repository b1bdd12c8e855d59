"""Which side of a cut goes on: the membership of several nodes, and which of the others count for a manager."""

from __future__ import annotations

from itertools import combinations

import pytest
from membership_nodes import BEAT, LIMITS, late, manager_of, member, node_in, view_of
from recorder import Recorder

from amfs.engine.membership import WITHDRAW_S, Membership
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import PeerDown, PeerGone, PeersHeard, Probe, Started, Stop

# ── several nodes ──────────────────────────────────────────────────────────────────────────────────


class Session:
    """Nodes over an instant network. Where it is cut messages wait, as links send them again."""

    def __init__(self, nodes: int) -> None:
        first = Recorder(Membership(member(0), 0))
        self.nodes = {0: first.feed(Started())}
        self.side: dict[int, int] = {}  # node -> side of the cut
        self.held: list[tuple[int, int, m.Message]] = []
        self.stopped: dict[int, str] = {}
        self.hosts_gone: set[int] = set()  # nodes that died with their hosts: nobody says that they have ended
        for node in range(1, nodes):
            self.join(node)

    def join(self, node: int, hint: int = 0) -> None:
        new = Recorder(Membership(member(node), hint), now=next(iter(self.nodes.values())).now)
        self.nodes[node] = new.feed(Started())
        self.settle()
        self.run(0.25)  # others may have been let in a moment ago

    def settle(self) -> None:
        """Deliver until nobody has anything to say."""
        for _ in range(1000):
            said = [(sender, to, message) for sender, node in self.nodes.items() for to, message in node.sent]
            for sender, node in list(self.nodes.items()):
                node.sent.clear()
                for probe in node.effects_of(Probe):
                    ended = probe.peer not in self.nodes and probe.peer not in self.hosts_gone
                    if ended and self.side.get(sender) == self.side.get(probe.peer):
                        node.feed(PeerGone(probe.peer))
                for stop in node.effects_of(Stop):
                    self.stopped[sender] = stop.reason
                    del self.nodes[sender]
            if not said:
                return
            for sender, to, message in said:
                if self.side.get(sender) != self.side.get(to):
                    self.held.append((sender, to, message))
                elif to in self.nodes:
                    self.nodes[to].tell(sender, message)
        raise AssertionError("they talk for ever")

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            for node in list(self.nodes.values()):
                node.advance(0.25)
            self.settle()

    def heal(self) -> None:
        self.side.clear()
        held, self.held = self.held, []
        for sender, to, message in held:
            if to in self.nodes:
                self.nodes[to].tell(sender, message)
            self.settle()

    def views(self) -> set[m.View | None]:
        return {node.machine.view for node in self.nodes.values()}

    def agree(self) -> m.View:
        """All who are there have one and the same view, which has just them."""
        (view,) = self.views()
        assert view is not None
        assert [one.node for one in view.members] == sorted(self.nodes)
        assert set(view.table) == set(self.nodes)
        return view


def test_nodes_that_join_one_after_the_other_agree() -> None:
    session = Session(5)
    view = session.agree()
    assert (view.manager, view.epoch) == (0, 5)
    session.run(30)
    assert session.agree() == view, "nothing happens as long as nothing happens"


def test_a_session_survives_one_node_after_the_other() -> None:
    session = Session(5)
    for dead in (3, 0, 1):
        session.hosts_gone.add(dead)
        del session.nodes[dead]
        session.run(LIMITS.dead_s + 2 * BEAT)
        assert session.agree().manager == min(session.nodes)
    assert session.stopped == {}


@pytest.mark.parametrize("dead", [(0, 1), (0, 1, 2), (0, 4), (3, 4)])
def test_a_session_survives_several_at_once(dead: tuple[int, ...]) -> None:
    session = Session(5)
    for node in dead:
        del session.nodes[node]
    session.run(10 * LIMITS.dead_s)
    assert session.agree().manager == min(session.nodes)
    assert session.stopped == {}


def test_a_member_that_ended_behind_a_cut_is_counted_by_those_before_it() -> None:
    """It may have left them out before. Here node 0 went on alone beside node 2 (python -m fuzz --seeds 601259)."""
    session = Session(3)
    session.side = {0: 1}
    session.run(LIMITS.dead_s + 2 * BEAT)
    view = session.nodes[2].machine.view
    assert view is not None and [one.node for one in view.members] == [1, 2]
    del session.nodes[1]
    session.run(2.5 * BEAT)
    session.side[1] = 1  # its host is there for node 0, and says that it has ended; node 2 still is not
    session.run(LIMITS.cut_off_s)
    assert list(session.nodes) == [2] and session.stopped == {0: "cut off from the majority of the session"}


def test_a_session_ends_when_most_of_its_hosts_are_gone_at_once() -> None:
    session = Session(5)
    for node in (0, 1, 2):
        session.hosts_gone.add(node)
        del session.nodes[node]
    session.run(5 * LIMITS.dead_s)
    assert session.stopped == dict.fromkeys((3, 4), "cut off from the majority of the session")


def test_a_node_may_join_under_the_next_manager() -> None:
    session = Session(3)
    del session.nodes[0]
    session.run(2 * LIMITS.dead_s)
    session.join(7, hint=2)
    assert session.agree().manager == 1


def test_a_short_cut_does_no_harm() -> None:
    session = Session(4)
    view = session.agree()
    session.side = {0: 1, 3: 1}
    session.run(LIMITS.suspect_s + BEAT)
    session.heal()
    session.run(30)
    assert session.agree() == view


SPLITS = [side for size in (1, 2) for side in combinations(range(4), size)]


@pytest.mark.parametrize("side", SPLITS, ids=str)
@pytest.mark.parametrize("seconds", [LIMITS.dead_s + 2, LIMITS.dead_s + 5, 14, 40])
def test_of_two_sides_of_a_cut_the_majority_goes_on_and_the_other_ends(side: tuple[int, ...], seconds: float) -> None:
    """Four nodes, of which these cannot be reached by the others for so long. At no time are there two sessions."""
    session = Session(4)
    session.run(BEAT)  # the manager knows that all know each other
    session.side = dict.fromkeys(side, 1)
    for _ in range(round(seconds)):
        session.run(1)
        smaller = [set(node.machine.nodes()) for node in session.nodes.values() if len(node.machine.nodes()) < 4]
        assert all(one == smaller[0] for one in smaller)
    session.heal()
    session.run(40)
    stays = (set(range(4)) - set(side)) if len(side) == 1 or 0 not in side else set(side)
    assert {one.node for one in session.agree().members} == stays == set(session.nodes)
    assert set(session.stopped.values()) <= {"the others took this node for dead", "cut off from the majority of the session", "shut down"}


# ── which of the others count ──────────────────────────────────────────────────────────────────────


def test_a_manager_that_is_heard_by_fewer_than_half_takes_nobody_for_dead() -> None:
    """Seed 1010741, a cut in one direction: it heard the others, which had another manager, and gave up links that nobody answered."""
    manager = manager_of(1, 2, 3, 4)
    for node in (2, 3, 4):
        manager.tell(node, m.Heartbeat(1, True))
    manager.feed(PeerDown(3)).feed(PeerDown(4))
    assert manager.machine.nodes() == [0, 1, 2, 3, 4]
    manager.tell(2, m.Heartbeat(1)).feed(PeerDown(3))
    assert manager.machine.nodes() == [0, 1, 2, 4], "one of them hears it again"


def test_a_node_that_was_silent_for_long_counts_when_it_says_that_it_hears_its_manager() -> None:
    """Seed 1005972: the network was whole again the moment before the manager looked. One that it heard had agreed to another manager."""
    manager = manager_of(1, 2, 3)
    now = manager.now
    for at in (4.0, 6.9):
        manager.advance(now + at - manager.now)
    manager.feed(PeersHeard({2: manager.now}))
    manager.advance(1.0)
    assert manager.machine.nodes() == [0, 1, 2, 3]
    manager.tell(2, m.Heartbeat(1, True)).advance(1.0)
    assert manager.machine.nodes() == [0, 1, 2, 3]
    manager.tell(2, m.Heartbeat(1)).advance(1.0)
    assert manager.machine.nodes() == [0, 2]


def test_a_node_that_has_agreed_to_another_manager_does_not_count_for_its_own_for_a_while() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 2)
    node.advance(5.0).tell(1, m.Heartbeat(1)).forget()  # node 1 does not hear the manager, nor does this one: it says so
    said: list[bool] = []
    for _ in range(10):
        node.tell(0, m.Heartbeat(1)).advance(1.0)
        said += [message.deaf for to, message in node.take_all(m.Heartbeat) if to == 0]
    assert said == sorted(said, reverse=True) and said[0] and not said[-1] and 5 <= sum(said) <= 7


def test_a_node_tells_its_manager_that_it_does_not_hear_it() -> None:
    node = node_in(view_of(1, 0, 0, 1, 2), 1)
    said = []
    for _ in range(8):
        node.advance(1.0)
        said += [message.deaf for to, message in node.take_all(m.Heartbeat) if to == 0]
    assert said == sorted(said) and said[0] is False and said[-1] is True


def test_a_manager_that_was_stopped_counts_nobody_before_it_hears_them_again() -> None:
    """Those whom it heard before it was stopped may have gone on without it; so it takes nobody for dead, not even one that has ended."""
    manager = late(manager_of(1, 2, 3), 30.0).feed(PeerGone(1))
    assert manager.machine.nodes() == [0, 1, 2, 3]
    manager.tell(2, m.Heartbeat(1)).feed(PeerGone(1))
    assert manager.machine.nodes() == [0, 2, 3]


def stopped_manager() -> Recorder[Membership]:
    """It was stopped for 13 s, and then gets what the others sent it meanwhile. At last they did not hear it any more."""
    manager = late(manager_of(1, 2), 13.0)
    for deaf in (False, True):
        manager.tell(1, m.Heartbeat(1, deaf)).tell(2, m.Heartbeat(1, deaf))
    return manager


def test_a_manager_that_was_left_out_ends_when_one_of_the_others_has_ended_and_one_refuses_it() -> None:
    """python -m fuzz --blind --seeds 7206524: node 1 had left, node 2 goes on; node 0 went on alone, half of these two."""
    refused_first = stopped_manager().feed(PeerDown(2, refused=True))
    refused_last = stopped_manager().feed(PeerGone(1))
    for manager in (refused_first, refused_last):
        assert manager.machine.nodes() == [0, 1, 2] and not manager.effects_of(Stop)
    for manager in (refused_first.feed(PeerGone(1)), refused_last.feed(PeerDown(2, refused=True))):
        assert manager.machine.nodes() == [0, 1, 2]
        assert manager.effect(Stop) == Stop("the others took this node for dead")


def test_what_a_node_heard_just_after_it_was_stopped_may_be_old() -> None:
    """Node 1 may have said later that it does not hear this manager, and that was lost with it."""
    manager = late(manager_of(1, 2), 13.0).tell(1, m.Heartbeat(1)).feed(PeerGone(1))
    assert manager.machine.nodes() == [0, 1, 2]
    manager = late(manager_of(1, 2), 13.0).advance(2 * BEAT).tell(1, m.Heartbeat(1)).feed(PeerGone(1))
    assert manager.machine.nodes() == [0, 2], "this was sent after the stop"


def test_a_node_that_agreed_to_another_manager_counts_though_it_has_ended() -> None:
    """The other manager may be there, with a third."""
    for event in (PeerGone(1), m.Leave(1)):
        manager = manager_of(1, 2).tell(1, m.Heartbeat(1, True)).tell(2, m.Heartbeat(1, True))
        manager = manager.tell(1, event) if isinstance(event, m.Leave) else manager.feed(event)
        assert manager.machine.nodes() == [0, 1, 2]


def test_a_node_that_was_stopped_does_not_follow_a_manager_that_has_ended_meanwhile() -> None:
    """That may have taken it for dead before, and node 2 has all of the session."""
    node = late(node_in(view_of(1, 0, 0, 1, 2), 1), 13.0).feed(PeerGone(0))
    assert not node.machine.is_manager
    short = late(node_in(view_of(1, 0, 0, 1, 2), 1), LIMITS.suspect_s).feed(PeerGone(0))
    assert short.machine.is_manager, "a short stop does no harm"


def test_a_manager_without_the_majority_has_nobody_drain() -> None:
    """Submitters would take its view for a newer one than that of the others."""
    manager = manager_of(1, 2)
    manager.advance(LIMITS.suspect_s + BEAT).forget().tell(1, m.Withdraw()).advance(WITHDRAW_S)
    assert not manager.take_all(m.ViewChange)
    manager.tell(1, m.Heartbeat(1)).tell(2, m.Heartbeat(1)).tell(1, m.Withdraw()).advance(WITHDRAW_S)
    assert manager.take(m.ViewChange, 2).draining == (1,)


def test_a_client_does_not_make_members() -> None:
    """Members that nobody ever hears would be the majority, and the only node would end as one that was cut off."""
    manager = manager_of(1)
    for node in (77, 78):
        manager.tell(m.CLIENT_ID_MIN + 5, m.Join(member(node)))
    assert manager.machine.nodes() == [0, 1]
