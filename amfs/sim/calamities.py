"""The large faults of a simulation: nodes that die and return, cut networks, submitters that die. Drawn from the seed."""

from __future__ import annotations

import random

from amfs.sim.client import SimClient
from amfs.sim.cluster import Cluster
from amfs.sim.settings import Faults


def schedule(cluster: Cluster, client: SimClient, faults: Faults, rng: random.Random, within_s: float) -> set[int]:
    """Let the faults happen at random times in the first ``within_s`` seconds. Returns the nodes that may be lost by it."""
    world = cluster.world
    nodes = sorted(cluster.nodes)
    lost: set[int] = set()
    for number in rng.sample(nodes, min(faults.crashes, len(nodes) - 1)):
        lost.add(number)
        when = rng.uniform(0, within_s)
        world.at(when, cluster.crash, number)
        if faults.restarts:
            world.at(when + rng.choice((0.01, 1.0, 5.0, 20.0)) * rng.random(), cluster.restart, number)
    if faults.partition_s and len(nodes) > 1:
        side = set(rng.sample(nodes, rng.randint(1, len(nodes) - 1)))
        lost.update(nodes)
        if rng.random() < 0.5:
            side.add(client.id)
        begin = rng.uniform(0, within_s)

        def cut(sides: set[int] | None) -> None:
            world.note("network", "cut", sorted(sides) if sides else "healed")
            world.cut = sides

        world.at(begin, cut, side)
        if not faults.partition_for_good:
            world.at(begin + faults.partition_s, cut, None)
    if faults.client_dies:
        world.at(rng.uniform(0, within_s), client.die)
    if faults.client_stops:
        world.at(rng.uniform(0, within_s), client.stop, "interrupted")
    return lost
