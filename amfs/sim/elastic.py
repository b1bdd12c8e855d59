"""A policy applied to a simulated cluster, by the machine that applies it to a real one.

Owns the nodes that are on their way, what was decided, and how long nodes were there. Must not know: what rules mean (``engine.policy``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from amfs.engine.elasticity import Done, Elasticity, HaveNodes, Looked
from amfs.engine.policy import Policy
from amfs.engine.scaling import Standing, plan, to_drain
from amfs.provision.autoscale import TURN_S, facts_of
from amfs.provision.resizing import UNHURRIED_S, Nodes, held
from amfs.sim.cluster import Cluster

NODES_A_TURN = 64  # so many a second are looked at: the nodes of larger clusters more rarely than each second


class Decision(msgspec.Struct, frozen=True):
    """``nodes``: that there are to be from then on; 0: nothing is done, and why."""

    at_s: float
    nodes: int
    reason: str


class Elastic:
    """``comes_s``: from the decision until a node is there, as a job has to be started."""

    def __init__(self, cluster: Cluster, policy: Policy, slots: int, comes_s: float) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.slots = slots
        self.comes_s = comes_s
        self.machine = Elasticity(policy)
        self.decisions: list[Decision] = []
        self.node_s = 0.0  # seconds that nodes were there, all together
        self.most = len(cluster.nodes)
        self._known = set(cluster.nodes)
        self._asked_for = len(cluster.nodes)
        self._since = 0.0
        self._turn()

    def _turn(self) -> None:
        nodes = self._look()
        for effect in self.machine.handle(Looked(facts_of(nodes)), self.world.now):
            wanted, reason = (effect.nodes, effect.reason) if isinstance(effect, HaveNodes) else (0, effect.text)
            self.decisions.append(Decision(self.world.now, wanted, reason))
            if wanted:
                self._have(wanted, nodes)
                self.machine.handle(Done(), self.world.now)
        self.world.at(self.world.now + max(TURN_S, len(self._known) / NODES_A_TURN), self._turn)

    def _look(self) -> Nodes:
        self.count()
        alive = {node.id: node for node in self.cluster.alive()}
        views = [node.core.membership.view for node in alive.values()]
        view = max((view for view in views if view is not None), key=lambda view: view.epoch)
        self._known.update(member.node for member in view.members)
        members = [member for member in view.members if member.slots > 0 and not member.draining and member.node in alive]
        says: dict[int, dict[str, Any]] = {member.node: alive[member.node].core.status() for member in members}
        return Nodes(view, members, says, self._asked_for - len(self._known), None)

    def count(self) -> None:
        """Until now so many nodes were there."""
        there = sum(1 for _ in self.cluster.alive())
        self.most = max(self.most, there)
        self.node_s += there * (self.world.now - self._since)
        self._since = self.world.now

    def _have(self, wanted: int, nodes: Nodes) -> None:
        start, _, drain = plan(wanted, len(nodes.members), nodes.waiting)
        self._asked_for += start
        for _ in range(start):
            self.world.at(self.world.now + self.comes_s, self.cluster.add, self.slots)
        manager = nodes.view.manager
        standing = [Standing(node, held(says), says.get("running", 0), node == manager) for node, says in nodes.says.items()]
        for node in to_drain(standing, drain):
            self.cluster.drain(node, UNHURRIED_S)
