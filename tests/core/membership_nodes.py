"""Members of a session and short ways to tell them things, for the stories that are told of membership."""

from __future__ import annotations

from recorder import Recorder

from amfs.config import MemberLimits
from amfs.engine.membership import Membership
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Started, TimerFired
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


def beating(manager: Recorder[Membership], beats: int, *nodes: int) -> None:
    """Time passes in which these nodes are heard."""
    for _ in range(beats):
        manager.advance(BEAT)
        assert manager.machine.view is not None
        for node in nodes:
            manager.tell(node, m.Heartbeat(manager.machine.view.epoch))


def state_of(manager: Recorder[Membership], node: int) -> PeerState:
    return manager.machine.peers[node].state


def late(node: Recorder[Membership], seconds: float) -> Recorder[Membership]:
    """The node is stopped for so long, and its timer fires afterwards."""
    node.now += seconds
    node.timers.pop("beat")
    return node.feed(TimerFired("beat"))
