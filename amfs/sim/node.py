"""One simulated node: the real NodeCore between simulated I/O and a simulated transport."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from amfs._native import Meta
from amfs.engine.dispatch_records import Record
from amfs.engine.drain import CLEARED
from amfs.engine.views import are_rivals
from amfs.fs.vfs.machine import FileSystem
from amfs.net.link import Limits as LinkLimits
from amfs.node.core import HEARTBEAT, NodeCore
from amfs.sim import drains, session_files
from amfs.sim.asking import Changed
from amfs.sim.backups import BackupSender
from amfs.sim.file_backend import SLOW, Contents, SimFileBackend
from amfs.sim.node_io import NodeIO
from amfs.sim.process import Process
from amfs.sim.settings import Costs, Limits
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    CancelTimer,
    ClockRead,
    Effect,
    Event,
    FsWork,
    FsWorked,
    Log,
    PeerGone,
    PeersHeard,
    Probe,
    Received,
    Send,
    SetTimer,
    Stop,
    TasksExited,
    TimerFired,
    ViewChanged,
)
from amfs.vocabulary.fs_works import AwaitBackup

if TYPE_CHECKING:
    from amfs.sim.workload import Workload

BACKUPS_S = 0.001  # between two looks whether backups know what was changed past a poll loop


class PricedCore(NodeCore):
    """A NodeCore that keeps the bill: the time that its machines would have cost a real loop, in microseconds."""

    costs = Costs()
    bill_us = 0.0
    watched = False

    def _deliver(self, peer: int, message: m.Message, now: float, out: list[Effect], local: deque[m.Message]) -> None:
        kind = type(message)
        costs = self.costs
        if kind is m.Assign:
            self.bill_us += len(message.tasks) * costs.task_us_worker / 2  # type: ignore[attr-defined]
        elif kind is m.Submit:
            self.bill_us += len(message.tasks) * costs.task_us_dispatcher / 2  # type: ignore[attr-defined]
        elif kind is m.Done:
            self.bill_us += len(message.results) * costs.task_us_dispatcher / 2  # type: ignore[attr-defined]
        elif kind is m.Publish:
            self.bill_us += len(message.files) * costs.task_us_fls / 2  # type: ignore[attr-defined]
        elif kind is m.Locate or kind is m.Release or kind is m.Replica:
            self.bill_us += len(message.names) * costs.task_us_fls / 4  # type: ignore[attr-defined]
        if self.watched and kind is m.Done:
            before = self._not_concerned(message)  # type: ignore[arg-type]
            super()._deliver(peer, message, now, out, local)
            for record, failures in before:
                assert record.failures == failures, f"task {record.spec.tid}: an attempt that nobody waits for counts as a failure"
            return
        super()._deliver(peer, message, now, out, local)

    def _not_concerned(self, message: m.Done) -> list[tuple[Record, int]]:
        """Tasks of which this tells the failure of an attempt that is none of theirs any more, with their failures so far."""
        run = self.dispatcher.runs.get(message.run)
        found = []
        for result in message.results:
            record = run.records.get(result.tid) if run is not None else None
            if record is not None and result.outcome and result.attempt != record.spec.attempt:
                found.append((record, record.failures))
        return found


def items_in(message: m.Message) -> int:
    """How many tasks or results a message carries: the cost of encoding."""
    kind = type(message)
    if kind is m.Assign or kind is m.Submit:
        return len(message.tasks)  # type: ignore[attr-defined]
    if kind is m.Done or kind is m.Results:
        return len(message.results)  # type: ignore[attr-defined]
    return 1


class SimNode(Process):
    """A node of the simulated cluster."""

    def __init__(
        self,
        world: World,
        me: m.Member,
        workload: Workload,
        *,
        memory: int = 0,
        manager_hint: int = 0,
        unit_size: int = 0,
        view: m.View | None = None,
        limits: Limits | None = None,
        links: LinkLimits | None = None,
        contents: Contents | None = None,
    ) -> None:
        """``contents``: of the session's file system; None: there is none."""
        super().__init__(world, me.node, me.incarnation, links=links)
        fs: FileSystem | None = None
        if contents is not None:
            self.files = SimFileBackend(contents, me.node, Meta(me.node))
            fs = FileSystem(me.node, self.files.meta, copies=contents.copies)
            self.backups = BackupSender(self, contents, self.files)
            self.files.send_backups = self._send_backups
        limits = limits or Limits()
        memory_limits = limits.memory
        if memory_limits.spill:
            memory_limits = msgspec.structs.replace(memory_limits, spill=f"{memory_limits.spill}/n{me.node}")
        self.core = PricedCore(
            me, f"/n{me.node}", manager_hint=manager_hint, unit_size=unit_size, view=view,
            worker_limits=limits.worker, dispatcher_limits=limits.dispatcher, member_limits=limits.member, fs=fs,
            memory_limits=memory_limits,
        )  # fmt: skip
        self.core.costs = world.costs
        self.core.watched = world.watched
        self.node_io = NodeIO(self, me.slots, memory, workload)
        if fs is not None:
            self.node_io.acts[FsWork] = self._work
            session_files.serve(self.files, self.node_io)
        self.known: set[int] = set()  # members of the view that the transport was told of
        self.stopped = ""
        self.seen: m.View | None = None  # the view that was looked at last

    def _send_backups(self) -> None:
        if self.core.fs is not None:
            self.backups.look(self.core.fs.members.live)

    def start(self) -> None:
        """Found or join the session."""
        self.act(self.core.start(self.world.now))
        self.transport.flush(self.world.now)

    def found(self, partitions: int) -> None:
        """This node is the first of the session: it knows all directories, of which there is one, and gives them to the others."""
        assert self.core.fs is not None
        self.act(self.core.fs.handle(ViewChanged((self.id,) * partitions, 1, self.id, frozenset((self.id,))), self.world.now))

    def _work(self, effect: FsWork) -> None:
        """A work of the file system: most are done when they are begun, and end in the loop's next turn."""
        world = self.world
        if type(effect.order) is AwaitBackup:
            self.backups.wait(effect)
        elif type(effect.order) in SLOW:
            world.at(world.now + world.costs.latency_s * 4 * world.rng.random(), self._done, effect)
        else:
            self._done(effect)

    def _done(self, effect: FsWork) -> None:
        if self.alive:
            self._settle(self.files.do(effect), self.files.asking.take_changed())

    def _settle(self, event: FsWorked, changed: Changed) -> None:
        """The end of a work is heard when the backups of nodes that it has changed something on know that."""
        heard = self.files.asking.answer(event, changed) if self.alive else None
        if heard is not None and event.serial:
            self.arrive(("event", heard))
        elif heard is None and self.alive:
            self.world.at(self.world.now + BACKUPS_S, self._settle, event, changed)

    def die(self) -> None:
        super().die()
        if self.core.fs is not None:
            if self.id not in self.files.contents.cleared:
                self.files.contents.look_at_names(len(self.core.fs.members.owners))
            self.files.contents.leave(self.files)

    def tell(self, event: Event) -> None:
        core, world = self.core, self.world
        if core.fs is not None:
            self.act(core.handle(ClockRead(self.files.contents.clock()), world.now))
        core.bill_us = 0.0
        if type(event) is TasksExited:
            core.bill_us = len(event.completions) * world.costs.task_us_worker / 2
            if world.watched:
                world.note(self.id, "tasks exited", event.completions)
        elif type(event) is TimerFired and event.key == HEARTBEAT:
            self.act(core.handle(PeersHeard(self.transport.heard()), world.now))
        effects = core.handle(event, world.now)
        if world.watched:
            if type(event) is Received and type(event.message) is m.Heartbeat:
                core.membership.check_invariants()  # the only machine that hears it; and most of what is said are heartbeats
            else:
                core.check_invariants()
            if core.membership.view is not self.seen:
                self._look_at_view()
        self.cost_us += core.bill_us
        self.act(effects)
        if core.fs is not None:
            self.backups.look(core.fs.members.live)

    def act(self, effects: list[Effect]) -> None:
        node_io = self.node_io
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(effect.to, effect.message)  # type: ignore[union-attr]
            elif kind is SetTimer:
                self.set_timer(effect.key, effect.at)  # type: ignore[union-attr]
            elif kind is CancelTimer:
                self.cancel_timer(effect.key)  # type: ignore[union-attr]
            elif kind in node_io.acts:
                answer = node_io.acts[kind](effect)
                if answer is not None:
                    self._send(effect.to, answer)  # type: ignore[union-attr]
            elif kind is Log:
                self.world.note(self.id, "says", effect.text)  # type: ignore[union-attr]
            elif kind is Probe:
                self._probe(effect.peer)  # type: ignore[union-attr]
            elif kind is Stop:
                self.world.note(self.id, "stops", effect.reason)  # type: ignore[union-attr]
                self.stopped = effect.reason  # type: ignore[union-attr]
            else:
                self.unknown(effect)
        if self.core.view_changed:
            self.core.view_changed = False
            self._view()
        if self.stopped:
            if self.core.fs is not None and self.stopped.endswith(CLEARED):
                drains.check_handed_over(self.world, self.files)
                self.files.contents.cleared.add(self.id)
            self.end()

    def _probe(self, peer: int) -> None:
        """The host of a process that has ended says so, where the network lets both speak."""
        world = self.world
        process = world.processes.get(peer)
        cut = world.cut is not None and (world.cut(self.id, peer) or world.cut(peer, self.id))
        if process is not None and not process.listens and not cut:
            world.at(world.now + 2 * world.costs.latency_s, self._hear_gone, peer)

    def _hear_gone(self, peer: int) -> None:
        if self.alive:
            self.arrive(("event", PeerGone(peer)))

    def _look_at_view(self) -> None:
        """A node never goes back to a view that was overtaken, and no two nodes are in sessions that have left each other out."""
        old, view = self.seen, self.core.membership.view
        assert view is not None
        assert old is None or (view.epoch, -view.manager) > (old.epoch, -old.manager), (
            f"node {self.id} goes back from epoch {old.epoch} of manager {old.manager} to {view.epoch} of {view.manager}"
        )
        if old is not None and self.core.fs is not None:
            self.files.contents.note_gone({each.node for each in old.members} - {each.node for each in view.members})
        for process in self.world.processes.values():
            if isinstance(process, SimNode) and process.alive and (other := process.core.membership.view) is not None:
                # A node that follows one that has ended decides nothing: it hears of another, or ends.
                assert not are_rivals(view, other) or not (self._lives(view.manager) and self._lives(other.manager)), (
                    f"two sessions: node {self.id} follows node {view.manager}, node {process.id} follows node {other.manager}"
                )
        self.seen = view

    def _lives(self, node: int) -> bool:
        process = self.world.processes.get(node)
        return process is not None and process.alive

    def _view(self) -> None:
        view = self.core.membership.view
        assert view is not None
        self.transport.set_members(view.members)
        current = {member.node for member in view.members}
        for gone in sorted(self.known - current):
            self.transport.close_peer(gone)
        self.known = current

    def _send(self, to: int, message: m.Message) -> None:
        if to == self.id:
            # An answer of our I/O to ourselves: the loop would deliver it in this turn.
            self.tell_later(to, message)
            return
        self.cost_us += items_in(message) * self.world.costs.message_us
        self.transport.queue(to, message)

    def tell_later(self, peer: int, message: m.Message) -> None:
        self.arrive(("batch", peer, [message]))
