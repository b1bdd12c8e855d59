"""The large faults of a simulation: nodes that die and return, drain, join or stop for a while, cut networks, submitters that die."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from amfs.sim.client import SimClient
from amfs.sim.cluster import Cluster
from amfs.sim.scenario import FaultEvent
from amfs.sim.settings import Faults
from amfs.sim.world import World
from amfs.vocabulary import messages as m

#: Events at which a process may be hit, so that it is hit in the middle of something: messages that arrive, and tasks that begin.
EVENTS = (
    "launches", "launches", "Publish", "Locate", "Located", "Fetch", "Content", "Replica", "Release", "Drop", "Submit", "Done", "Results",
    "Assign", "TaskMoved", "StealAsk", "Poison", "FileFailed", "Lost", "FinalizeFiles", "Flush", "Flushed", "ReducePlan", "ViewChange",
    "RunBegin", "RunEnd",
)  # fmt: skip


def draw(
    rng: random.Random,
    faults: Faults,
    nodes: int,
    within_s: float,
    events: Sequence[str] = (),
    cut: tuple[str, tuple[int, ...]] | None = None,
    delays: tuple[float, ...] = (0.0, 1e-5, 1e-3, 0.1),
) -> tuple[FaultEvent, ...]:
    """The fault_events that ``faults`` speak of, in the first ``within_s`` seconds or so long (``delays``) after such ``events``. ``cut``:
    how the network breaks."""
    half = 0.5 if events is EVENTS else 0.9

    def when() -> dict[str, object]:
        if events and rng.random() < half:
            return {"on": rng.choice(events), "count": rng.choice((1, 1, 2, 3, 5, 8, 13)), "at": rng.choice(delays)}
        return {"at": rng.uniform(0, within_s)}

    def where(mine: dict[str, object], node: int) -> int:
        return -1 if "on" in mine and rng.random() < 0.7 else node

    found: list[FaultEvent] = []
    for number in rng.sample(range(nodes), min(faults.crashes, nodes - 1)):
        mine = when()
        back_s = rng.choice((0.01, 1.0, 5.0, 20.0)) * rng.random() if faults.restarts else 0.0
        found.append(FaultEvent("crash", node=where(mine, number), seconds=back_s, **mine))  # type: ignore[arg-type]
    for _ in range(faults.joins):
        found.append(FaultEvent("join", slots=rng.randint(1, 3), **when()))  # type: ignore[arg-type]
    for _ in range(faults.stalls):
        mine = when()
        seconds = faults.stall_s * rng.random()
        found.append(FaultEvent("stall", node=where(mine, rng.randrange(nodes)), seconds=seconds, **mine))  # type: ignore[arg-type]
    if faults.partition_s and nodes > 1:
        kind, side = cut or _break(rng, nodes)
        seconds = 0.0 if faults.partition_for_good else faults.partition_s
        found.append(FaultEvent("cut", cut=kind, side=side, seconds=seconds, **when()))  # type: ignore[arg-type]
    if faults.client_dies:
        found.append(FaultEvent("client dies", **when()))  # type: ignore[arg-type]
    if faults.client_stops:
        found.append(FaultEvent("client stops", **when()))  # type: ignore[arg-type]
    return tuple(found)


def draw_drains(rng: random.Random, nodes: int, within_s: float) -> tuple[FaultEvent, ...]:
    """One node is told to end, or two that do so one soon after the other."""
    chosen = rng.sample(range(nodes), 2 if nodes > 2 and rng.random() < 0.4 else 1)
    limit_s, gap_s = rng.choice((0.02, 1.0, 30.0, 30.0, 30.0)), rng.choice((0.0, 0.001, 0.1, 1.0)) * rng.random()
    if rng.random() < 0.5:
        on, count, delay = rng.choice(EVENTS), rng.choice((1, 1, 2, 3, 5, 8, 13)), rng.choice((0.0, 1e-5, 1e-3, 0.1))
        return tuple([FaultEvent("drain", delay + i * gap_s, on, count, node, limit_s) for i, node in enumerate(chosen)])
    at = rng.uniform(0, within_s)
    return tuple([FaultEvent("drain", at + i * gap_s, node=node, seconds=limit_s) for i, node in enumerate(chosen)])


def _break(rng: random.Random, nodes: int) -> tuple[str, tuple[int, ...]]:
    """How the network breaks: in two, in two in one direction only, or between just two processes."""
    kind = rng.choice(("around", "around", "out of", "pair"))
    client = m.CLIENT_ID_MIN
    if kind == "pair":
        return kind, tuple(rng.sample([*range(nodes), client], 2))
    side = sorted(rng.sample(range(nodes), rng.randint(1, nodes - 1)))
    return kind, (*side, client) if rng.random() < 0.5 else tuple(side)


def is_cut(kind: str, side: Sequence[int]) -> Callable[[int, int], bool]:
    """Whether nothing gets from one process to another."""
    inside = set(side)
    if kind == "pair":
        return lambda a, b: {a, b} == inside
    if kind == "out of":
        return lambda a, b: a in inside and b not in inside
    return lambda a, b: (a in inside) != (b in inside)


class Schedule:
    """Lets fault_events happen. ``lost``: the nodes that may be taken for dead by them."""

    def __init__(self, cluster: Cluster, client: SimClient, fault_events: Sequence[FaultEvent]) -> None:
        self.cluster = cluster
        self.client = client
        self.world: World = cluster.world
        self.lost: set[int] = set()
        self.counts: dict[str, int] = {}
        self.awaited = [one for one in fault_events if one.on]
        if self.awaited:
            self.world.hear = self._heard
        for one in fault_events:
            if not one.on:
                self.world.at(one.at, self._happen, one, one.node)

    def _heard(self, when: float, who: object, kind: str, what: object) -> None:
        name = type(what).__name__ if kind.startswith("from ") else kind
        self.counts[name] = count = self.counts.get(name, 0) + 1
        for one in self.awaited:
            if one.on == name and one.count == count:
                assert isinstance(who, int)
                self.world.at(when + one.at, self._happen, one, one.node if one.node >= 0 else who)

    def _happen(self, one: FaultEvent, who: int) -> None:
        cluster, client, world = self.cluster, self.client, self.world
        node = cluster.nodes.get(who)
        if one.what in ("crash", "leave") and node is not None and len(list(cluster.alive())) > 1:
            self.lost.add(who)
            (cluster.crash if one.what == "crash" else cluster.leave)(who)
            if one.seconds:
                world.at(world.now + one.seconds, cluster.restart, who)
        elif one.what == "drain" and node is not None and len(cluster.staying()) > 1:
            self.lost.add(who)
            cluster.drain(who, one.seconds)
        elif one.what == "join":
            cluster.add(one.slots)
        elif one.what == "stall" and (node or client).alive:
            self.lost.add(who)
            (node or client).stall(one.seconds)
        elif one.what == "cut":
            self.lost.update(cluster.nodes)
            words = f"{one.cut} {list(one.side)}"
            world.note("network", "cut", words)
            world.cut = is_cut(one.cut, one.side)
            if one.seconds:
                world.at(world.now + one.seconds, self._heal, words)
        elif one.what == "client dies":
            client.die()
        elif one.what == "client stops":
            client.stop("interrupted")

    def _heal(self, words: str) -> None:
        self.world.note("network", "healed", words)
        self.world.cut = None
