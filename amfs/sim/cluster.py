"""A simulated cluster: nodes and a submitter in one world, built whole."""

from __future__ import annotations

import random
from collections.abc import Iterator

from amfs.engine.views import weigh_all
from amfs.net.link import Limits as LinkLimits
from amfs.sim.client import SimClient
from amfs.sim.file_backend import Contents
from amfs.sim.node import SimNode
from amfs.sim.process import Process
from amfs.sim.settings import Limits
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import DrainOrdered, Event, Leaving, PeerDown, Received
from amfs.vocabulary.partition import PartitionTable, enough_for

WALL_NS = 1_600_000_000_000_000_000  # the time on wall clocks in the beginning


class Cluster:
    """``nodes`` are those alive; all know each other from the beginning."""

    def __init__(
        self,
        world: World,
        workload: Workload,
        *,
        nodes: int,
        expected: int = 0,
        slots: int | list[int],
        unit_size: int = 0,
        limits: Limits | None = None,
        links: LinkLimits | None = None,
        files: bool = False,
        copies: int = 1,
        capacities: tuple[int, ...] = (),
    ) -> None:
        """``expected``: nodes that there will be; 0: these. ``files``: they have a file system, whose files have so many
        ``copies``. ``capacities``: of the nodes, over and over; none: not known."""
        self.world = world
        self.workload = workload
        self.limits = limits or Limits()
        self.links = links
        self.unit_size = unit_size
        self.incarnation = 1
        self.slots = [slots] * nodes if isinstance(slots, int) else list(slots)
        self.capacities = capacities
        members = tuple([self._member(node, self.slots[node]) for node in range(nodes)])
        self.files = files
        self.contents = Contents(random.Random(world.rng.random()), self._clock, self._befalls, world.reachable, copies) if files else None
        self._ticks = 0
        table = PartitionTable.dealt(weigh_all(members), enough_for(max(nodes, expected)))
        self.view = m.View(1 + files, 0, members, table.owners, unit_size)
        self.nodes: dict[int, SimNode] = {}
        self.draining: dict[int, float] = {}  # nodes that were told to end -> when their time is over
        for member in members:
            self.nodes[member.node] = SimNode(
                world, member, workload, unit_size=unit_size, view=self.view, limits=self.limits, links=links, contents=self.contents
            )
        if files:
            self.nodes[0].found(len(self.view.table))
        for node in self.nodes.values():
            node.start()

    def _clock(self) -> int:
        """Nanoseconds since 1970: never twice the same."""
        self._ticks += 1
        return WALL_NS + int(self.world.now * 1e9) + self._ticks

    def _befalls(self, number: int, event: Event) -> None:
        """Something has happened to the files of a node."""
        node = self.nodes[number]
        if node.alive:
            node.arrive(("event", event))

    def alive(self) -> Iterator[SimNode]:
        """Nodes that run, in order of their ids."""
        for number in sorted(self.nodes):
            if self.nodes[number].alive:
                yield self.nodes[number]

    def is_fenced(self, number: int) -> bool:
        """Was this node taken for dead, though it lives and may not know it yet?"""
        core = self.nodes[number].core
        return any(number not in other.core.live for other in self.alive() if other.id in core.live)

    def crash(self, number: int) -> None:
        """The node dies without a word."""
        node = self.nodes[number]
        if node.alive:
            self.world.note(number, "crashes", "")
            node.die()

    def leave(self, number: int) -> None:
        """The host of the node has it end (SIGTERM)."""
        if self.nodes[number].alive:
            self.world.note(number, "leaves", "")
            self.nodes[number].arrive(("event", Leaving("signal 15")))

    def staying(self) -> set[int]:
        """Nodes that run, and were not told to end."""
        return {node.id for node in self.alive()} - self.draining.keys()

    def drain(self, number: int, limit_s: float) -> None:
        """The node is told to end, and to hand over what only it has (SIGTERM)."""
        if self.nodes[number].alive and number not in self.draining:
            self.world.note(number, "is to drain", limit_s)
            self.draining[number] = self.world.now + limit_s
            self.nodes[number].arrive(("event", DrainOrdered("SIGTERM", limit_s, again=False)))

    def restart(self, number: int) -> None:
        """The machine of a node that died is back: a new process asks the manager for a number, then to be let in under it."""
        hint = next((node for node in self.alive() if node.core.membership.view is not None), None)
        if self.nodes[number].alive or hint is None:
            return
        view = hint.core.membership.view
        assert view is not None
        self._ask_for_a_number(self.slots[number], view.manager)

    def add(self, slots: int) -> None:
        """A machine that was never here asks to be let in."""
        hint = next((node for node in self.alive() if node.core.membership.view is not None), None)
        if hint is not None:
            assert hint.core.membership.view is not None
            self._ask_for_a_number(slots, hint.core.membership.view.manager)

    def _ask_for_a_number(self, slots: int, manager: int) -> None:
        self.incarnation += 1
        Joiner(self, m.CLIENT_ID_MIN + 1000 + self.incarnation, slots, manager).start()

    def join(self, number: int, slots: int, hint: int) -> None:
        """A node with this number starts and asks ``hint`` to let it in."""
        self.world.note(number, "starts", f"incarnation {self.incarnation}")
        me = self._member(number, slots)
        self.slots.extend([slots] * (number + 1 - len(self.slots)))
        node = SimNode(
            self.world, me, self.workload, manager_hint=hint, unit_size=self.unit_size, limits=self.limits, links=self.links,
            contents=self.contents,
        )  # fmt: skip
        self.nodes[number] = node
        node.start()

    def _member(self, number: int, slots: int) -> m.Member:
        capacity = self.capacities[number % len(self.capacities)] if self.capacities else 0
        return m.Member(number, self.incarnation, (), slots, capacity=capacity)

    def client(self, **given: object) -> SimClient:
        """The submitter, ready to start."""
        return SimClient(
            self.world, self.workload, sorted(self.nodes), limits=self.limits, links=self.links, **given  # type: ignore[arg-type]
        )


class Joiner(Process):
    """A process that starts a node: asks for its number first, as ``amfs node`` does."""

    def __init__(self, cluster: Cluster, number: int, slots: int, manager: int) -> None:
        super().__init__(cluster.world, number, 1, links=cluster.links)
        self.cluster = cluster
        self.slots = slots
        self.manager = manager

    def start(self) -> None:
        self.transport.queue(self.manager, m.Join(m.Member(-1, 0, (), self.slots)))
        self.transport.flush(self.world.now)

    def tell(self, event: Event) -> None:
        if type(event) is Received and type(event.message) is m.IdAssigned:
            self.transport.flush(self.world.now)
            self.die()
            self.cluster.join(event.message.node, self.slots, self.manager)
        elif type(event) is PeerDown:
            self.die()
