"""Membership of the session: joining, heartbeats, the manager (MemFS: Central Manager) and its succession. Pure.

One node is the manager. It numbers the nodes that join, notices nodes that fall silent, and announces every change: to members as a
``ViewChange``, to new ones as a ``View``, with a higher epoch. Nodes that ask to join while others do are let in together, so that N nodes
that start at once cost a few messages each. When the manager itself falls silent, the live node with the lowest id takes its place; the
others wait longer the higher their id is, so that normally only one node does so. If two nodes do (a cut network), ``views.overtakes`` says
which view counts, and a node that is not in it leaves the session. The manager sends every view to the clients (submitters), too, and ends
the runs of a silent client.

Silence may be a death or a cut network. So no node is taken for dead unless those who are heard are the majority (``Majority``): of two
sides of a cut at most one goes on, and the other ends after ``cut_off_s``. A process that has ended, as its host says (``PeerGone``), is no
side of a cut: it is not counted, and not waited for.
"""

from __future__ import annotations

import logging
import math

from amfs.config import MemberLimits
from amfs.engine.balance import Balance, admitted
from amfs.engine.machine import Machine
from amfs.engine.majority import Majority
from amfs.engine.views import follow, follows, overtakes
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Leaving, PeerDown, PeerGone, PeersHeard, Probe, Started, Stop, TimerFired
from amfs.vocabulary.partition import enough_for
from amfs.vocabulary.states import PEER_NEXT, PeerEvent, PeerState, illegal

WITHDRAW_S = 0.1  # the manager gathers for so long who drains
_TOLD = 64  # possible successors of the manager hear from a node that it leaves; with more, connections would take longer than the leave


class Peer:
    """A node as the manager sees it."""

    __slots__ = ("heard", "state")

    def __init__(self, now: float) -> None:
        self.state = PeerState.JOINING
        self.heard = now


class Membership(Machine):
    """``view`` is the current one (None until admitted). ``manager_hint``: the node to ask to join; own id for the first manager.
    ``expected``: how many nodes the session is to have; of use to its founder."""

    def __init__(
        self, me: m.Member, manager_hint: int, *, unit_size: int = 0, expected: int = 1, limits: MemberLimits | None = None,
        view: m.View | None = None,
    ) -> None:  # fmt: skip
        super().__init__(me.node)
        self.me = me
        self.limits = limits or MemberLimits()
        self.unit_size = unit_size
        self.expected = expected
        self.view: m.View | None = view
        self._checked: m.View | None = None  # the view whose table was looked at last
        self.hint = manager_hint
        self.peers: dict[int, Peer] = {}
        self.joining: dict[int, m.Member] = {}  # that are let in together with the next
        self.withdrawing: set[int] = set()  # that drain, and are to be taken out of the table together
        self.announced_at = -math.inf  # when this node, as manager, told the members of a change last
        self.let_in_at = -math.inf  # when nodes were let in last
        self.balance = Balance(self.limits.balance_s)
        self.clients: dict[int, float] = {}  # client -> when it was heard
        self.client_runs: dict[int, set[int]] = {}
        self.journals: dict[str, tuple[int, int]] = {}  # mark of a journal -> the latest run that goes on with it, as (life, run)
        self.manager_heard = 0.0
        self.next_id = 0  # the highest id given out so far
        self.left: set[int] = set()  # ids of nodes that were members
        self.in_order: dict[int, tuple[int, ...]] = {}  # nodes that have said that they leave so -> runs
        self.unreachable: set[int] = set()  # members to which our link is down
        self.majority = Majority(me.node, self.limits)
        self.answered: set[int] = set()  # nodes that asked since our last beat whether we live
        self.voted_at = -math.inf  # when this node last told others that it does not hear the manager; they count on it for a while
        self.cut_off_at: float | None = None  # since when this node, as manager, lacks the majority
        self.beat_due = 0.0
        self.changed = False  # set when the view changed while handling; the node core reads and clears it
        self.on_message = {
            m.View: self.on_view,
            m.ViewChange: self.on_view_change,
            m.Join: self.on_join,
            m.IdAssigned: self.on_id_assigned,
            m.Heartbeat: self.on_heartbeat,
            m.Leave: self.on_leave,
            m.Withdraw: self.on_withdraw,
            m.Shutdown: self.on_shutdown,
            m.ClientHello: self.on_client_hello,
            m.RunBegin: self.on_run_begin,
            m.RunEnd: self.on_run_end,
        }
        self.on_event = {
            Started: self.on_started, TimerFired: self.on_timer, PeerDown: self.on_peer_down, PeersHeard: self.on_peers_heard,
            PeerGone: self.on_peer_gone, Leaving: self.on_leaving,
        }  # fmt: skip

    @property
    def is_manager(self) -> bool:
        return self.view is not None and self.view.manager == self.node

    def nodes(self) -> list[int]:
        """Ids of the live nodes, ascending."""
        return sorted(member.node for member in self.view.members) if self.view else []

    # ── getting in ─────────────────────────────────────────────────────────────────────────────────

    def on_started(self, event: Started) -> None:
        """Found the session, or ask to join it."""
        self.manager_heard = self.now
        if self.view is not None:
            self.majority.follow(self.nodes(), self.view.epoch, self.is_manager, self.now)
            self._watch()
            self.changed = True
        elif self.hint == self.node:
            self._adopt(m.View(1, self.node, (self.me,), (self.node,) * enough_for(self.expected), self.unit_size))
        else:
            self.send(self.hint, m.Join(self.me))
        self._set_beat()

    def _set_beat(self) -> None:
        self.beat_due = self.now + self.limits.heartbeat_s
        self.set_timer("beat", self.limits.heartbeat_s)

    def _allow_for_pause(self) -> None:
        """A late timer shows that this process was stopped for so long. That is no silence of the others."""
        if (late := self.now - self.beat_due) <= self.limits.heartbeat_s:
            return
        self.majority.wake(self.now, late)
        self.manager_heard = min(self.manager_heard + late, self.now)
        self.cut_off_at = None
        for peer in self.peers.values():
            peer.heard = min(peer.heard + late, self.now)
        self.clients = {client: min(heard + late, self.now) for client, heard in self.clients.items()}

    def _admit(self, node: int) -> None:
        peer = self.peers[node] = Peer(self.now)
        self.majority.hear(node, self.now)
        self._move(node, peer, PeerEvent.ADMITTED)

    def on_join(self, peer: int, message: m.Join) -> None:
        view = self.view
        if peer >= m.CLIENT_ID_MIN and message.member.node >= 0:  # it would be a member that nobody hears, and count among the silent
            self.log(f"refused Join from client {peer}: node {message.member.node} has to ask for itself", logging.WARNING)
            return
        if view is None or not self.is_manager:
            if view is not None and view.manager != self.node:
                self.send(view.manager, message)
            return
        new = message.member
        if new.node < 0:
            self.next_id = max((self.next_id, *self.left, *self.nodes())) + 1
            self.send(peer, m.IdAssigned(self.next_id))
            return
        known = {member.node: member for member in view.members}
        if new.node in known and known[new.node].incarnation == new.incarnation:
            self.send(new.node, view)  # repeated
            return
        if new.node in self.left or new.node in known or self.joining.get(new.node, new) != new:
            # Ids are never used twice: messages still on their way from an earlier life would be taken for the new one's.
            self.next_id = max((self.next_id, *self.left, *self.nodes(), *self.joining)) + 1
            self.send(new.node, m.IdAssigned(self.next_id))
            return
        self.joining[new.node] = new
        self._let_in()

    def _let_in(self) -> None:
        """Those that asked to join. Each view costs a message to each member. So one follows the other after a while that grows with the
        session, or when as many nodes wait as there are."""
        view = self.view
        if not self.joining or view is None or not self.is_manager:
            self.joining.clear()
            return
        due = self.let_in_at + len(view.members) * self.limits.join_s
        if self.now < due and len(self.joining) < len(view.members):
            self.set_timer("join", due - self.now)
            return
        if not self.majority.without((), self.now):
            # The network may be cut. Nodes that join here would make this side a majority, and the other side is one already.
            self.set_timer("join", self.limits.heartbeat_s)
            return
        self.let_in_at = self.now
        joined, self.joining = self.joining, {}
        self._announce(joined=admitted([joined[node] for node in sorted(joined)], view.members))

    def on_id_assigned(self, peer: int, message: m.IdAssigned) -> None:
        """Our own number was somebody's before."""
        if self.view is None:
            self.out.append(Stop(f"node {self.node} was in this session before; join it as node {message.node}"))

    def _announce(
        self, *, joined: tuple[m.Member, ...] = (), left: tuple[int, ...] = (), draining: tuple[int, ...] = (), moves: int = 0
    ) -> None:  # fmt: skip
        """As manager, or as the one that takes its place: the next view for everybody."""
        old = self.view
        assert old is not None
        in_order = tuple([(node, self.in_order[node]) for node in left if node in self.in_order])
        change = m.ViewChange(old.epoch, old.manager, self.node, joined, left, draining, moves, in_order)
        view = follow(old, change)
        self._adopt(view)
        self.announced_at = self.now
        new = {member.node for member in joined}
        for member in view.members:
            if member.node != self.node:
                self.send(member.node, view if member.node in new else change)
        for client in self.clients:
            self.send(client, view)

    def on_view_change(self, peer: int, message: m.ViewChange) -> None:
        if (view := self.view) is None:
            return  # the manager sends the whole view to new nodes
        if follows(message, view):
            self.on_view(peer, follow(view, message))
        elif message.manager != view.manager or message.base_epoch >= view.epoch:
            self.send(peer, m.Heartbeat(0))  # this node has missed a view: the answer is the whole one

    def on_view(self, peer: int, message: m.View) -> None:
        old = self.view
        if old is not None and not overtakes(message, old):
            return
        mine = next((member for member in message.members if member.node == self.node), None)
        if mine is not None and mine.incarnation < self.me.incarnation:
            if old is None:
                return  # an earlier life of this node is in it, not this one: go on asking to join
            mine = None
        if old is not None and (mine is None or mine.incarnation > self.me.incarnation):
            self.log(f"left out of the session at epoch {message.epoch}: taken for dead by node {message.manager}", logging.ERROR)
            self.out.append(Stop("the others took this node for dead"))
            return
        if mine is None or (old is not None and message.epoch < old.epoch):
            return  # a node never goes back: partitions have moved since
        self.unit_size = message.unit_size
        for client in self.clients if old is None else ():  # they greeted this node before it had a view
            self.send(client, message)
        self._adopt(message)

    def _adopt(self, view: m.View) -> None:
        if self.view is None or self.view.manager != view.manager:
            self.voted_at = -math.inf
        if self.view is not None:
            self.left.update({member.node for member in self.view.members} - {member.node for member in view.members})
        self.view = view
        self.changed = True
        self.manager_heard = self.now
        self.majority.follow(self.nodes(), view.epoch, self.is_manager, self.now)
        self.majority.hear(view.manager, self.now)
        self._watch()

    def _watch(self) -> None:
        """The manager hears all the others; everybody else hears only the manager."""
        live = set(self.nodes()) if self.is_manager else set()
        for node in [node for node in self.peers if node not in live]:
            del self.peers[node]
        for node in sorted(live - self.peers.keys() - {self.node}):
            self._admit(node)

    # ── staying in ─────────────────────────────────────────────────────────────────────────────────

    def on_timer(self, event: TimerFired) -> None:
        if event.key == "join":
            self._let_in()
        if event.key == "withdraw":
            self._withdraw()
        if event.key != "beat":
            return
        self._allow_for_pause()
        self._set_beat()
        self.answered.clear()
        view = self.view
        if view is None:
            self.send(self.hint, m.Join(self.me))
            if self.now - self.manager_heard > 10 * self.limits.dead_s:
                self.out.append(Stop("nobody answered the request to join"))
            return
        beat = m.Heartbeat(view.epoch)
        if self.is_manager:
            for node in self.peers:
                self.send(node, beat)
            for client in self.clients:
                self.send(client, beat)
            self._look_for_the_silent()
            self._even_out()
        else:
            self.send(view.manager, m.Heartbeat(view.epoch, self._is_deaf()))
            self._look_after_the_manager()
            self._follow_the_gone()
            if self.unreachable:  # the manager that was told may have died since
                self.unreachable.intersection_update(self.nodes())
                for node in sorted(self.unreachable - {view.manager}):
                    self.send(view.manager, m.Leave(node))
            # The manager may not know of a submitter, or may not reach it: a node that works for it asks for a sign of life now and then.
            for client in [c for c, heard in self.clients.items() if self.now - heard > self.limits.client_dead_s]:
                self.clients[client] = self.now
                self.send(client, beat)

    def _is_deaf(self) -> bool:
        """Does it not hear the manager, or may others count on that? They do for suspect_s, and its word may take as long to reach them."""
        return self.now - self.manager_heard > self.limits.suspect_s or self.now - self.voted_at <= 2 * self.limits.suspect_s

    def on_heartbeat(self, peer: int, message: m.Heartbeat) -> None:
        if peer in self.clients or peer >= m.CLIENT_ID_MIN:
            self.clients[peer] = self.now
            if self.view is not None and message.epoch < self.view.epoch:
                self.send(peer, self.view)
            return
        self.majority.hear(peer, self.now, message.deaf)
        self.majority.knows(peer, message.epoch)
        if (known := self.peers.get(peer)) is not None:
            known.heard = self.now
            self._move(peer, known, PeerEvent.HEARD)
        if (view := self.view) is None:
            return
        if peer == view.manager:
            self.manager_heard = self.now
        elif not self.is_manager:
            # Only who does not hear the manager sends heartbeats to others, and only who does not, either, answers.
            self.majority.vote(peer, self.now)
            silent = view.manager in self.majority.gone or self.now - self.manager_heard > self.limits.probe_s
            if silent and peer not in self.answered:
                self.answered.add(peer)  # or we would answer each other for ever
                self.voted_at = self.now
                self.send(peer, m.Heartbeat(view.epoch))
            if self._is_first_after_the_gone():
                self._take_over()
        on_its_way = message.epoch == view.epoch - 1 and peer in self.peers and self.now - self.announced_at < self.limits.heartbeat_s
        if message.epoch < view.epoch and not on_its_way:
            self.send(peer, view)  # it missed something, or belongs to the losing side of a split

    def on_peers_heard(self, event: PeersHeard) -> None:
        """Whatever arrived is a sign of life. Heartbeats alone are not enough: a batch that was lost holds up those behind it."""
        view = self.view
        for node, at in event.at.items():
            self.majority.hear(node, at)
            peer = self.peers.get(node)
            if peer is not None and at > peer.heard:
                peer.heard = at
                self._move(node, peer, PeerEvent.HEARD)
            elif view is not None and node == view.manager:
                self.manager_heard = max(self.manager_heard, at)
            elif node in self.clients:
                self.clients[node] = max(self.clients[node], at)

    def _move(self, node: int, peer: Peer, event: PeerEvent) -> None:
        state = PEER_NEXT[peer.state][event]
        if state is None:
            raise illegal("node", node, peer.state, event)
        peer.state = state

    def _look_for_the_silent(self) -> None:
        late: list[int] = []
        for node, peer in self.peers.items():
            silent = self.now - peer.heard
            if silent > self.limits.dead_s and peer.state == PeerState.SUSPECT:
                late.append(node)
            elif silent > self.limits.suspect_s:
                self._move(node, peer, PeerEvent.SILENT)
            if silent > self.limits.probe_s:
                self.out.append(Probe(node))
        self._take_for_dead(late, PeerEvent.TIMED_OUT)
        self._are_we_cut_off()
        for client in [c for c, heard in self.clients.items() if self.now - heard > self.limits.client_dead_s]:
            self._client_gone(client)

    def _take_for_dead(self, nodes: list[int], why: PeerEvent) -> None:
        """As manager: take these out, if the others are the majority. If not they are asked again with every heartbeat."""
        if nodes and self.majority.without(nodes, self.now):
            for node in nodes:
                self._move(node, self.peers[node], why)
            self._bury(nodes)

    def _are_we_cut_off(self) -> None:
        """As manager: end this side of a cut, if the other may go on without it."""
        if self.majority.hears(self.now):
            self.cut_off_at = None
            return
        if self.cut_off_at is None:
            self.cut_off_at = self.now - self.limits.suspect_s
            self.log("more than half of the nodes are silent: nobody is taken for dead until they are heard again", logging.WARNING)
        elif self.now - self.cut_off_at > self.limits.cut_off_s:
            for node in self.nodes():
                if node != self.node and self.majority.heard(node, self.now):
                    self.send(node, m.Shutdown(False))
            self._end_cut_off()

    def _end_cut_off(self) -> None:
        self.log("cut off from the majority of the session, which may go on without this node: it ends", logging.ERROR)
        self.out.append(Stop("cut off from the majority of the session"))

    def _bury(self, dead: list[int]) -> None:
        view = self.view
        if not dead or view is None:
            return
        self.log(f"node{'s' if len(dead) > 1 else ''} {', '.join(map(str, dead))} lost", logging.WARNING)
        for node in dead:
            self.peers.pop(node, None)
        self._announce(left=tuple(dead))

    def _look_after_the_manager(self) -> None:
        """Take over if the manager is silent, the majority is heard, and nobody of lower id has spoken up in time."""
        view = self.view
        assert view is not None
        silent = self.now - self.manager_heard
        if silent > self.limits.probe_s:
            self.out.append(Probe(view.manager))
        successors = self.majority.successors(view.manager)
        patience = self.limits.dead_s * (1 + successors.index(self.node) / 2)
        if silent > patience - self.limits.suspect_s:
            self._ask_who_lives()
        if silent > patience:
            self._take_over()
        if silent > patience - self.limits.dead_s + self.limits.cut_off_s and self.view is view:
            self._end_cut_off()

    def _ask_who_lives(self) -> None:
        """A node hears nobody but the manager. To follow that, it asks the others, which answer if they do not hear the manager, either."""
        view = self.view
        assert view is not None
        for node in self.majority.successors(view.manager):
            if node != self.node:
                self.voted_at = self.now
                self.send(node, m.Heartbeat(view.epoch))
                if not self.majority.heard(node, self.now):
                    self.out.append(Probe(node))

    def _is_first_after_the_gone(self) -> bool:
        """If the manager's process has ended its first successor need not wait, but for the majority to answer."""
        manager = self.view.manager if self.view is not None else self.node
        return manager in self.majority.gone and self.majority.successors(manager)[0] == self.node

    def _follow_the_gone(self) -> None:
        if self._is_first_after_the_gone():
            self._take_over()
            if not self.is_manager:
                self._ask_who_lives()
        elif self.view is not None and self.view.manager in self.majority.gone:
            self.out.append(Probe(self.majority.successors(self.view.manager)[0]))  # it may have ended at the same time

    def _take_over(self) -> None:
        assert self.view is not None
        lost = self.view.manager
        if not self.majority.agrees(self.now):
            return
        self.log(f"manager node {lost} lost; node {self.node} takes over", logging.WARNING)
        for client in self.clients:
            self.clients[client] = self.now
        self._announce(left=tuple(sorted({lost, *self.majority.gone})))

    def on_peer_gone(self, event: PeerGone, said: bool = False) -> None:
        """Its process has ended: no need to wait for the time-out. If this node has been cut off for longer than that, or was stopped, it
        may have been one of a majority that left this node out, and whose others live: then it still counts."""
        if self.view is None or event.peer not in self.nodes() or event.peer == self.node:
            return
        sure = self.majority.end(event.peer, event.peer if self.is_manager else self.view.manager, self.now, said)
        if self.is_manager and not self._end_if_left_out():
            self._take_for_dead([event.peer], PeerEvent.TIMED_OUT)
        elif sure and not self.is_manager:
            self._follow_the_gone()

    def _end_if_left_out(self, by_manager: bool = False) -> bool:
        if left_out := by_manager or (self.is_manager and self.majority.is_given_up()):
            self.log("others have given up on this node: it was taken for dead", logging.ERROR)
            self.out.append(Stop("the others took this node for dead"))
        return left_out

    def on_peer_down(self, event: PeerDown) -> None:
        """The transport gave up on it: no need to wait for the time-out. If it gave up on us, the session may have gone on without us."""
        if event.refused and event.peer >= m.CLIENT_ID_MIN:
            return  # it lives, and ends its run itself if this node stays a member
        if event.refused and self.view is not None and event.peer in self.nodes():
            self.majority.refuse(event.peer, self.now)
            if self._end_if_left_out(event.peer == self.view.manager) or self.is_manager:
                return  # if it is the only one, its silence will tell; until the others have spoken we may be the one who is out
        if event.peer >= m.CLIENT_ID_MIN:
            if event.peer in self.clients:
                self._client_gone(event.peer)
        elif self.is_manager and event.peer in self.peers:
            self._take_for_dead([event.peer], PeerEvent.TIMED_OUT)
        elif self.view is not None and event.peer == self.view.manager:
            if self.majority.successors(event.peer)[0] == self.node:
                self._take_over()
        elif self.view is not None and not self.is_manager and event.peer in self.nodes():
            # Two members that cannot talk to each other would wait for each other for ever: one of them has to go.
            self.unreachable.add(event.peer)
            self.send(self.view.manager, m.Leave(event.peer))

    def on_leave(self, peer: int, message: m.Leave) -> None:
        if peer in self.clients and not self.client_runs.get(peer):
            del self.clients[peer]  # a client with runs is heard out: it may only be reconnecting
            self.client_runs.pop(peer, None)
        if self.is_manager and message.node in self.peers:
            if peer == message.node:
                self.majority.end(peer, peer, self.now, True)
                self.in_order.update({peer: message.runs} if message.runs else {})
            self._take_for_dead([message.node], PeerEvent.GOODBYE)
        elif not self.is_manager and peer == message.node:
            self.on_peer_gone(PeerGone(peer), True)

    def on_withdraw(self, peer: int, message: m.Withdraw) -> None:
        """As manager: ``peer`` drains, unless no other node would be left to take what it has."""
        if self.is_manager:
            self.withdrawing.add(peer)
            self.set_timer("withdraw", WITHDRAW_S)

    def _withdraw(self) -> None:
        """Those that were told together drain in one view: no partition goes to a node that gives it away at once. They ask again if this
        node may have been left out: then no view of it is to be newer than those of the others."""
        asked, self.withdrawing = self.withdrawing, set()
        if self.view is None or not self.is_manager or not self.majority.without((), self.now):
            return
        staying = {member.node for member in self.view.members if not member.draining}
        if asked >= staying:
            asked.discard(min(staying))
        if draining := tuple(sorted(asked & staying)):
            self.log(f"node{'s' if len(draining) > 1 else ''} {', '.join(map(str, draining))} to drain")
            self._announce(draining=draining)

    def _even_out(self) -> None:
        """As manager: bring the loads back, if no other change is near. On one side of a cut nothing moves."""
        quiet = not self.joining and not self.withdrawing and self.majority.without((), self.now)
        if self.view is not None and quiet and (moves := self.balance.moves(self.view, self.now - self.announced_at)):
            self.log(f"the loads of the nodes differ: up to {moves} of {len(self.view.table)} partitions move")
            self._announce(moves=moves)

    def on_leaving(self, event: Leaving) -> None:
        """Say so, that nobody waits for this node, nor counts it among those who may have gone on without him: the manager may be leaving
        as well, and so may the first of its successors."""
        if (view := self.view) is not None:
            if not self.is_manager and self._is_deaf():
                self.send(view.manager, m.Heartbeat(view.epoch, True))  # else its last word would count for the manager
            for node in dict.fromkeys([view.manager, *self.majority.successors(view.manager)[:_TOLD]]):
                if node != self.node:
                    self.send(node, m.Leave(self.node, event.runs))
        self.out.append(Stop(event.reason))

    def on_shutdown(self, peer: int, message: m.Shutdown) -> None:
        if peer >= m.CLIENT_ID_MIN or (self.view is not None and peer == self.view.manager):
            if self.is_manager or self.view is None or peer >= m.CLIENT_ID_MIN:
                for node in self.nodes():
                    if node != self.node:
                        self.send(node, m.Shutdown())
                if self.view is not None:
                    nobody = m.View(self.view.epoch + 1, self.node, (), (self.node,), self.unit_size)
                    for client in self.clients:
                        self.send(client, nobody)  # so that a submitter need not find out by waiting
            self.out.append(Stop("shut down", message.ordered))

    # ── clients ────────────────────────────────────────────────────────────────────────────────────

    def on_client_hello(self, peer: int, message: m.ClientHello) -> None:
        self.clients[peer] = self.now
        if self.view is not None:
            self.send(peer, self.view)

    def on_run_begin(self, peer: int, message: m.RunBegin) -> None:
        # Every node knows the clients, so that the next manager can tell them.
        self.clients[message.client] = self.now
        self.client_runs.setdefault(message.client, set()).add(message.run)
        if message.info.journal:
            self._one_run_a_journal(message)

    def _one_run_a_journal(self, message: m.RunBegin) -> None:
        """A run that was resumed takes the place of the one before, whose submitter may have died a moment ago. Every node decides it for
        itself, whatever the order in which it hears of the two; the submitter of the new run waits until all have (``RunReady``)."""
        mine = (message.info.life, message.run)
        known = self.journals.get(message.info.journal, mine)
        self.journals[message.info.journal] = max(known, mine)
        if known != mine:
            _, run = min(known, mine)
            self.log(f"run {run} is ended: run {max(known, mine)[1]} goes on with its journal", logging.WARNING)
            # A node that joined since has records of a run of which its dead submitter has not told it: the manager tells all.
            for node in self.nodes() if self.is_manager else [self.node]:
                self.send(node, m.RunEnd(run, True))

    def on_run_end(self, peer: int, message: m.RunEnd) -> None:
        for runs in self.client_runs.values():
            runs.discard(message.run)
        for journal in [journal for journal, (_, run) in self.journals.items() if run == message.run]:
            del self.journals[journal]
        if message.relay:
            for node in self.nodes():
                self.send(node, m.RunEnd(message.run, message.kill))

    def _client_gone(self, client: int) -> None:
        """End the runs of a submitter that is no more."""
        del self.clients[client]
        for run in sorted(self.client_runs.pop(client, ())):
            self.log(f"the submitter of run {run} is gone; ending the run", logging.WARNING)
            for node in self.nodes():
                self.send(node, m.RunEnd(run, True))

    def check_invariants(self) -> None:
        if self.view is None:
            return
        nodes = self.nodes()
        assert self.node in nodes
        assert self.view.manager in nodes
        if self.view is not self._checked:
            assert set(self.view.table) <= set(nodes), "a partition belongs to nobody"
            self._checked = self.view
        assert set(self.peers) == (set(nodes) - {self.node} if self.is_manager else set())
