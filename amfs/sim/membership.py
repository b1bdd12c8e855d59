"""The cost of nodes that come and go: a session is founded by one node, the others join it, and some die. Nothing runs in it.

Messages always arrive, and heartbeats are sent. The numbers of messages and bytes are those of the real machines; times are virtual, but
for those in CPU seconds of this machine.
"""

from __future__ import annotations

import time

import msgspec

from amfs.sim.cluster import Cluster
from amfs.sim.settings import Costs, Limits
from amfs.sim.workload import bag
from amfs.sim.world import World

LOOK_S = 0.05  # virtual; between two looks whether all agree
PATIENCE_S = 600.0  # virtual


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the members. Messages are those of all nodes, heartbeats included."""

    what: str
    nodes: int  # afterwards
    messages: int
    bytes: int
    agreed_s: float  # virtual, until all nodes had the same view, and all partitions their owner
    cpu_s: float  # of all nodes together, on this machine


def simulate_membership(nodes: int, *, deaths: int, gap_s: float = 0.0, files: bool = False, costs: Costs | None = None) -> list[Change]:
    """Node 0 founds a session, ``nodes`` - 1 ask to join, ``gap_s`` apart; then ``deaths`` nodes die, one after the other, the manager
    last. ``files``: with the file system, whose partitions move. Raises Stuck."""
    world = World(0, costs=costs, watched=False)
    silent, limits = Limits.silent(), Limits()
    limits = Limits(silent.worker, limits.dispatcher, silent.submitter, limits.member)
    cluster = Cluster(world, bag(1, 1, 1.0), nodes=1, expected=nodes, slots=1, limits=limits, files=files)
    for number in range(1, nodes):
        world.at(world.now + number * gap_s, cluster.add, 1)
    out = [_follow(cluster, f"{nodes - 1} nodes join", nodes)]
    for number in range(deaths):
        living = sorted(node.id for node in cluster.alive())
        last = number == deaths - 1
        cluster.crash(living[0] if last else living[-1])
        out.append(_follow(cluster, "the manager dies" if last else "a node dies", len(living) - 1))
    return out


def _follow(cluster: Cluster, what: str, count: int) -> Change:
    world = cluster.world
    begun, started = world.now, time.process_time()
    messages, sent = _sent(cluster)
    look_at = world.now

    def agreed() -> bool:
        nonlocal look_at
        if world.now < look_at:
            return False
        look_at = world.now + LOOK_S
        views = [node.core.membership.view for node in cluster.alive()]
        if len(views) != count or any(view is None or len(view.members) != count or view.epoch != views[0].epoch for view in views):  # type: ignore[union-attr]
            return False
        return not any(node.core.fs is not None and node.core.fs.mover.in_motion() for node in cluster.alive())

    world.run(agreed, world.now + PATIENCE_S)
    now = _sent(cluster)
    return Change(
        what=what, nodes=count, messages=now[0] - messages, bytes=now[1] - sent, agreed_s=world.now - begun,
        cpu_s=time.process_time() - started,
    )  # fmt: skip


def _sent(cluster: Cluster) -> tuple[int, int]:
    transports = [process.transport for process in cluster.world.processes.values()]
    return sum(one.messages_sent for one in transports), sum(one.bytes_sent for one in transports)
