"""The large faults of a simulation: nodes that die and return, cut networks, submitters that die. Drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable

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
        lost.update(nodes)
        begin = rng.uniform(0, within_s)
        words, broken = _break(rng, nodes, client.id)

        def cut(now: Callable[[int, int], bool] | None) -> None:
            world.note("network", "cut" if now else "healed", words)
            world.cut = now

        world.at(begin, cut, broken)
        if not faults.partition_for_good:
            world.at(begin + faults.partition_s, cut, None)
    if faults.client_dies:
        world.at(rng.uniform(0, within_s), client.die)
    if faults.client_stops:
        world.at(rng.uniform(0, within_s), client.stop, "interrupted")
    return lost


def _break(rng: random.Random, nodes: list[int], client: int) -> tuple[str, Callable[[int, int], bool]]:
    """How the network breaks: in two, in two in one direction only, or between just two processes."""
    kind = rng.choice(("halves", "halves", "one way", "pair"))
    if kind == "pair":
        one, other = rng.sample([*nodes, client], 2)
        return f"between {one} and {other}", lambda a, b: {a, b} == {one, other}
    side = set(rng.sample(nodes, rng.randint(1, len(nodes) - 1)))
    if rng.random() < 0.5:
        side.add(client)
    if kind == "one way":
        return f"out of {sorted(side)}", lambda a, b: a in side and b not in side
    return f"around {sorted(side)}", lambda a, b: (a in side) != (b in side)
