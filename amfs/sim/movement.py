"""Collective file movement on a virtual clock: the machine of ``engine.movement`` drives modelled nodes, with seeded faults if asked for.

Three things of a node are modelled: which files it has whole, whether it lives, when a transfer ends. A transfer takes
the latency and its bytes over the slower of the two ends; each end has one interface, which its transfers share one after the other.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from amfs.engine.collectives import GATHER, MST, SCATTER, goals
from amfs.engine.movement import (
    Bring,
    Brought,
    Effect,
    Ended,
    Event,
    Held,
    Look,
    Looked,
    Movement,
    Phase,
    Spare,
    Spared,
)

STEPS_MAX = 200_000
ANSWER_S = 30.0  # an order that takes longer is answered with ETIMEDOUT, and goes on
NOTICED_S = 6.0  # a dead node is known to be dead so much later


class Network(NamedTuple):
    """``latency_s`` of one order with its transfer; ``bandwidth_bytes_s`` of one node, each way; ``file_s`` of each file, at its target."""

    latency_s: float = 500e-6
    bandwidth_bytes_s: float = 1.5e9
    file_s: float = 50e-6


class Troubles(NamedTuple):
    """The faults. Probabilities are per file brought, or per node."""

    deaths: float = 0.0
    errors: float = 0.0  # a transfer fails for no reason
    slow: float = 0.0  # a transfer takes longer than an order may
    full: float = 0.0  # a node has no room for a file
    removed: float = 0.0  # a file is removed meanwhile
    within_s: float = 0.01  # deaths and removals happen so soon


class Outcome(NamedTuple):
    """``seconds``: virtual, from the first effect to the end."""

    movement: Movement
    seconds: float
    held: dict[int, set[int]]  # of the files that were not removed: living nodes that have them
    live: frozenset[int]


class World:
    """One collective among ``nodes`` nodes. ``sizes``: bytes of each file; ``holders``: the nodes that have it at first."""

    def __init__(
        self, movement: Movement, nodes: int, sizes: Mapping[int, int], holders: Mapping[int, set[int]], *, network: Network | None = None,
        troubles: Troubles | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.movement = movement
        self.now = 0.0
        self.network = network or Network()
        self.troubles = troubles or Troubles()
        self.random = random.Random(seed)
        self.sizes = dict(sizes)
        self.held = {file: set(there) for file, there in holders.items()}
        self.live = set(range(nodes))
        self.known = set(self.live)  # the nodes that are thought to live
        self.removed: set[int] = set()
        self.ended_at: float | None = None
        self.full = {(file, node) for file in sizes for node in range(nodes) if self._happens(self.troubles.full)}
        self._free_in = dict.fromkeys(range(nodes), 0.0)
        self._free_out = dict.fromkeys(range(nodes), 0.0)
        self._under_way: dict[tuple[int, int], float] = {}  # (file, node) -> when it is there
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        doomed = [node for node in range(nodes) if self._happens(self.troubles.deaths)]
        for node in doomed[: nodes - 1]:
            self._at(self.random.uniform(0, self.troubles.within_s), lambda node=node: self._die(node))  # type: ignore[misc]
        for file in sizes:
            if self._happens(self.troubles.removed):
                self._at(self.random.uniform(0, self.troubles.within_s), lambda file=file: self.removed.add(file))  # type: ignore[misc]

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._numbers), what))

    def run(self) -> Outcome:
        """To the end. AssertionError: it stands still, goes on for ever, or ends with something else than it should."""
        self._act(self.movement.start())
        for _ in range(STEPS_MAX):
            if self.ended_at is not None:
                break
            assert self._queue, f"it stands still while {self.movement.phase.value}"
            self.now, _, what = heapq.heappop(self._queue)
            what()
        assert self.ended_at is not None, "it goes on for ever"
        held = {file: nodes & self.live for file, nodes in self.held.items() if file not in self.removed}
        return Outcome(self.movement, self.ended_at, held, frozenset(self.live))

    def _die(self, node: int) -> None:
        self.live.discard(node)
        self._at(self.now + NOTICED_S * self.random.random(), lambda: self.known.discard(node))

    def _tell(self, event: Event) -> None:
        effects = self.movement.handle(event)
        self.movement.check_invariants()
        self._act(effects)

    def _act(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Look):
                self._at(self.now + effect.pause_s + self.network.latency_s, lambda effect=effect: self._look(effect))  # type: ignore[misc]
            elif isinstance(effect, Bring):
                self._bring(effect)
            elif isinstance(effect, Spare):
                self._at(self.now + self.network.latency_s, lambda effect=effect: self._spare(effect))  # type: ignore[misc]
            else:
                assert isinstance(effect, Ended) and self.movement.phase is Phase.ENDED
                self.ended_at = self.now

    def _look(self, look: Look) -> None:
        found = {}
        for file in look.files:
            gone = file in self.removed
            found[file] = Held(self.sizes[file], frozenset(self.held[file]), "was removed meanwhile" if gone else "")
        self._tell(Looked(frozenset(self.known), found))

    def _bring(self, order: Bring) -> None:
        """Its transfers begin as soon as both ends are free."""
        begun, net = self.now, self.network
        ends, errors = begun + net.latency_s, []
        for file in order.files:
            error, end = self._transfer(file, order, begun + net.latency_s)
            errors.append(error)
            ends = max(ends, end)
        if order.target not in self.live:  # nobody answers: it is known when it is known to be dead
            self._at(begun + NOTICED_S, lambda: self._tell(Brought(order.serial, (), errno.EHOSTDOWN)))
        elif ends > begun + ANSWER_S:
            self._at(begun + ANSWER_S, lambda: self._tell(Brought(order.serial, (), errno.ETIMEDOUT)))
        else:
            self._at(ends, lambda: self._arrive(order, errors))

    def _transfer(self, file: int, order: Bring, begin: float) -> tuple[int, float]:
        source, target = order.source, order.target
        if file in self.removed:
            return errno.ENOENT, begin
        if target in self.held[file]:
            return 0, begin
        if (file, target) in self._under_way:  # asked again: it waits for what it has begun
            return 0, self._under_way[file, target]
        if source not in self.live or source not in self.held[file] or self._happens(self.troubles.errors):
            return (errno.EIO if source not in self.live else errno.ESTALE), begin
        if (file, target) in self.full:
            return errno.ENOSPC, begin
        begin = max(begin, self._free_out[source], self._free_in[target])
        end = begin + self.sizes[file] / self.network.bandwidth_bytes_s + self.network.file_s
        self._free_out[source] = self._free_in[target] = end
        if self._happens(self.troubles.slow):
            end += self.random.uniform(1, 3) * ANSWER_S
        self._under_way[file, target] = end
        return 0, end

    def _arrive(self, order: Bring, errors: list[int]) -> None:
        answers = []
        for file, error in zip(order.files, errors, strict=True):
            if not error and order.source not in self.live and order.target not in self.held[file]:
                error = errno.EIO  # it died on the way
            if not error and file in self.removed:
                error = errno.ENOENT
            if not error and order.target in self.live:
                self.held[file].add(order.target)
            self._under_way.pop((file, order.target), None)
            answers.append(error)
        if order.target in self.live:
            self._tell(Brought(order.serial, answers))
        else:
            self._at(self.now + NOTICED_S, lambda: self._tell(Brought(order.serial, (), errno.EHOSTDOWN)))

    def _spare(self, order: Spare) -> None:
        for file in order.files:
            if order.node in self.live and (self.held[file] & self.live) - {order.node}:
                self.held[file].discard(order.node)
        self._tell(Spared(order.serial))


def check(outcome: Outcome, kind: str, before: Mapping[int, set[int]], troubles: Troubles, full: set[tuple[int, int]]) -> None:
    """Raise AssertionError if a file is not where it should be without a reason, or is where it should not be."""
    movement, live = outcome.movement, outcome.live
    took_part = frozenset(movement.nodes)
    for file, there in before.items():
        if file in movement.failed:
            lost = not there & live
            root_gone = movement.root not in live
            no_room = any(other == file for other, _ in full)
            removed = file not in outcome.held
            assert lost or root_gone or no_room or removed or troubles.errors, f"file {file} was given up: {movement.failed[file]}"
            continue
        if file not in outcome.held:
            continue  # removed after it had been moved
        wanted = goals(kind, took_part, movement.root, movement.places)(file) & live
        assert wanted <= outcome.held[file], f"file {file} is on {outcome.held[file]}, and should be on {wanted}"
        if not troubles.deaths and kind in (GATHER, SCATTER):
            allowed = wanted if kind == SCATTER else wanted | there
            assert outcome.held[file] <= allowed, f"file {file} is on {outcome.held[file]}, and should only be on {allowed}"


def fuzz(kind: str, algorithm: str, seed: int) -> Outcome:
    """One seeded collective with whatever may go wrong, checked. Raises AssertionError."""
    draw = random.Random(f"{kind} {algorithm} {seed}")
    nodes = draw.choice((1, 2, 3, 4, 5, 7, 8, 13, 16))
    sizes = {file: draw.choice((0, 1, 1000, 10**6, 3 * 10**8)) for file in range(draw.choice((0, 1, 1, 2, 5, 20, 100)))}
    one_place = draw.random() < 0.5
    first = draw.randrange(nodes)
    before = {file: {first} if one_place else set(draw.sample(range(nodes), draw.randint(1, min(3, nodes)))) for file in sizes}
    clean = draw.random() < 0.3
    troubles = Troubles() if clean else Troubles(
        draw.choice((0.0, 0.1, 0.4)), draw.choice((0.0, 0.0, 0.05)), draw.choice((0.0, 0.02)), draw.choice((0.0, 0.0, 0.05)),
        draw.choice((0.0, 0.0, 0.05)), 10 ** draw.uniform(-3.5, 1),
    )  # fmt: skip
    root = draw.randrange(nodes) if draw.random() < 0.5 else -1
    movement = Movement(kind, sizes, root=root if kind != "multicast" else -1, algorithm=algorithm)
    world = World(movement, nodes, sizes, before, troubles=troubles, seed=draw.randrange(1 << 30))
    outcome = world.run()
    check(outcome, kind, before, troubles, world.full)
    return outcome


def predict(kind: str, nodes: int, size: int, *, files: int = 1, algorithm: str = MST, network: Network | None = None) -> float:
    """Seconds of one collective without faults: ``files`` files of ``size`` bytes each, on node 0 (of a gather: on the nodes in turn)."""
    holders = {file: {file % nodes} if kind in (GATHER, "allgather") else {0} for file in range(files)}
    movement = Movement(kind, range(files), root=0 if kind != "multicast" else -1, algorithm=algorithm)
    return World(movement, nodes, dict.fromkeys(range(files), size), holders, network=network).run().seconds
