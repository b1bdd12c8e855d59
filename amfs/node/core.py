"""All machines of one node, composed. Pure: the real node and the simulator drive the same class.

Routes messages to the machines by type, delivers messages of a node to itself at once, names the timers by machine, and tells the machines
about changes of membership.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from amfs.config import DispatcherLimits, MemberLimits, MemoryLimits, WorkerLimits
from amfs.engine.dispatcher import Dispatcher
from amfs.engine.drain import Drain
from amfs.engine.farewell import Rest
from amfs.engine.fls import FlsShard
from amfs.engine.machine import Machine
from amfs.engine.membership import Membership
from amfs.engine.units import ring, units
from amfs.engine.worker import Worker
from amfs.errors import in_words
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AdoptFiles,
    AttemptEnded,
    AttemptSettled,
    CancelTimer,
    ClientGone,
    ClockRead,
    CopyOut,
    DrainOrdered,
    Effect,
    EndAttempt,
    Event,
    FileDamaged,
    FsAwaited,
    FsDamaged,
    FsFull,
    FsHandlesClosed,
    FsRequested,
    FsSpilled,
    FsStriped,
    FsWork,
    FsWorked,
    GaveWay,
    GiveWay,
    JobDone,
    Leaving,
    MembersChanged,
    MoveAway,
    MovedAway,
    MovedForTask,
    MoveForTask,
    PeerDown,
    PeerGone,
    PeersHeard,
    Received,
    RoomGiven,
    RoomRead,
    RoomWanted,
    Send,
    SetTimer,
    StageIn,
    Started,
    StoreFailed,
    TasksExited,
    TellAtWork,
    TimerFired,
    ViewChanged,
)
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.paths import in_namespace, namespace_path
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import printable

if TYPE_CHECKING:
    from amfs.fs.vfs.machine import FileSystem
    from amfs.vocabulary.fs_works import RunsGiveWay


#: Messages that a node takes before it has been let in. All else speaks of partitions, of which it knows nothing yet.
WITHOUT_VIEW = frozenset((
    m.View, m.ViewChange, m.Join, m.IdAssigned, m.Heartbeat, m.Leave, m.Shutdown, m.ClientHello, m.StatusAsk, m.ExplainAsk,
))  # fmt: skip

_OF_RUNS = frozenset(("fls", "worker", "dispatcher"))
#: Of what a node says of runs: that it need not ask about before it leaves, since nobody goes by it when it has gone.
UNCOUNTED = frozenset((m.Content, m.FilesTaken, m.StealAsk, m.StealNone, m.RunReady, m.RunGone, m.Farewell))

SENDERS_TOLD = 16  # nodes from which most came: what people look at must not grow with the square of the nodes

#: The timer before which the shell tells who was heard (``PeersHeard``).
HEARTBEAT = ("member", "beat")


class Facts(NamedTuple):
    """Facts that follow from a view. Shared between the nodes of one process, of which a simulation has thousands: not to be changed."""

    view: m.View
    slots: dict[int, int]
    live: frozenset[int]
    table: PartitionTable
    dispatchers: frozenset[int]
    unit_of: dict[int, list[int]]


_latest: list[Facts] = []


def facts_of(view: m.View) -> Facts:
    """The facts of a view; kept for the latest one."""
    if not _latest or _latest[0].view is not view:
        slots = view.slots()
        by_dispatcher = units(slots, view.unit_size)
        unit_of = {node: workers for workers in by_dispatcher.values() for node in workers}
        size = view.unit_size
        for node in [node for node in slots if slots[node] < 0]:
            unit_of[node] = next(by_dispatcher[each] for each in by_dispatcher if not size or each // size == node // size)
        facts = Facts(view, slots, frozenset(slots), PartitionTable(view.table, view.epoch), frozenset(by_dispatcher), unit_of)
        _latest[:] = [facts]
    return _latest[0]


_FOR_FS = frozenset((FsRequested, FsWorked, FsStriped, FsHandlesClosed, FsAwaited, FsFull, FsDamaged, FsSpilled, ClockRead))
#: Of what the machines of a node have for each other: which one hears it.
_HEARS = {MovedAway: "drain", Leaving: "member", RoomWanted: "fs", FsWorked: "fs"}


def _gives_way(order: object) -> RunsGiveWay | None:
    from amfs.vocabulary.fs_works import RunsGiveWay  # loaded by the file system, which a run without a session has not

    return order if isinstance(order, RunsGiveWay) else None


class NodeCore:
    """``handle(event, now) -> effects`` for a whole node. ``Send`` effects are always for somebody else."""

    def __init__(
        self,
        me: m.Member,
        store: str,
        *,
        manager_hint: int = 0,
        unit_size: int = 0,
        expected: int = 1,
        view: m.View | None = None,
        worker_limits: WorkerLimits | None = None,
        memory_limits: MemoryLimits | None = None,
        dispatcher_limits: DispatcherLimits | None = None,
        member_limits: MemberLimits | None = None,
        fs: FileSystem | None = None,
        wall_offset: float = 0.0,
    ) -> None:
        """``wall_offset``: seconds since 1970, less the time that ``handle`` is told."""
        self.me = me
        self.node = me.node
        self.fls = FlsShard(me.node)
        self.worker = Worker(me.node, me.slots, store, worker_limits, memory_limits)
        self.dispatcher = Dispatcher(me.node, dispatcher_limits)
        self.membership = Membership(me, manager_hint, unit_size=unit_size, expected=expected, limits=member_limits, view=view)
        self.drain = Drain(me.node, lambda: len(self.worker.inflight), Rest(self._runs, self._at_rest, lambda: self.said))
        self.said = 0  # messages about runs to others, since this node drains
        self.followed = 0  # the epoch of the view that the machines go by
        self.machines: dict[str, Machine] = {
            "fls": self.fls, "worker": self.worker, "dispatcher": self.dispatcher, "member": self.membership,
            "drain": self.drain,
        }  # fmt: skip
        self.wall_offset = wall_offset
        self.joins = view is None and manager_hint != me.node
        self.fs = fs
        if fs is not None:
            self.machines["fs"] = fs
        routes: dict[type, list[tuple[str, Machine]]] = {}
        for name, machine in self.machines.items():
            for kind in machine.on_message:
                routes.setdefault(kind, []).append((name, machine))
        self.routes = routes
        self.local: deque[m.Message] = deque()  # from this node to itself
        self.early: list[tuple[int, m.Message]] = []  # messages that overtook the first view
        self.live: frozenset[int] = frozenset()
        #: Events of what the file system has brought, taken or published for tasks; and of a drain.
        self.staged: deque[JobDone | TasksExited | MovedAway | Leaving | GiveWay | RoomGiven | RoomWanted | FsWorked] = deque()
        self.moving: dict[int, str] = {}  # serials of what it is moving for tasks -> paths
        self.view_changed = False  # for the shell: connections must follow; it clears it

    def start(self, now: float) -> list[Effect]:
        """Found or join the session."""
        out: list[Effect] = []
        local: deque[m.Message] = deque()
        self._collect("member", self.membership.handle(Started(), now), out, local)
        self._run(local, now, out)
        return out

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event. Raises ProtocolError when a peer says what no node understands."""
        out = self.first(event, now)
        if self.local or self.staged or self.membership.changed:
            out += self.rest(now)
        return out

    def first(self, event: Event, now: float) -> list[Effect]:
        """Take one event, and return what the machines concerned say at once: above all which tasks to start. ``rest`` must follow
        before the next event, and may follow when these effects have been acted on."""
        out: list[Effect] = []
        local = self.local
        if type(event) in _FOR_FS:
            assert self.fs is not None
            self._collect("fs", self.fs.handle(event, now), out, local)
        elif isinstance(event, Received):
            if self.membership.view is None and type(event.message) not in WITHOUT_VIEW:
                self.early.append((event.peer, event.message))
            else:
                self._deliver(event.peer, event.message, now, out, local)
        elif isinstance(event, (TasksExited, JobDone, StoreFailed, FileDamaged, AdoptFiles, RoomRead)):
            self._collect("worker", self.worker.handle(event, now), out, local)
        elif isinstance(event, TimerFired):
            assert isinstance(event.key, tuple)
            name, key = event.key
            self._collect(name, self.machines[name].handle(TimerFired(key), now), out, local)
        elif isinstance(event, PeerDown):
            if self.fs is not None:
                self._collect("fs", self.fs.handle(event, now), out, local)
            self._collect("member", self.membership.handle(event, now), out, local)
        elif isinstance(event, (PeersHeard, PeerGone, Leaving)):
            self._collect("member", self.membership.handle(event, now), out, local)
        elif isinstance(event, DrainOrdered):
            self._collect("drain", self.drain.handle(event, now), out, local)
        elif isinstance(event, AttemptEnded):
            self._end_attempt(event, now, out, local)
        return out

    def rest(self, now: float) -> list[Effect]:
        """Deliver what the node said to itself."""
        out: list[Effect] = []
        self._run(self.local, now, out)
        return out

    def _run(self, local: deque[m.Message], now: float, out: list[Effect]) -> None:
        """Deliver what the node said to itself, until it has nothing more to say."""
        while True:
            if self.membership.changed:
                self.membership.changed = False
                self._new_view(now, out, local)
            if self.staged:
                event = self.staged.popleft()
                name = _HEARS.get(type(event), "worker")
                self._collect(name, self.machines[name].handle(event, now), out, local)
                continue
            if not local:
                return
            self._deliver(self.node, local.popleft(), now, out, local)

    def _deliver(self, peer: int, message: m.Message, now: float, out: list[Effect], local: deque[m.Message]) -> None:
        if isinstance(message, m.StatusAsk):
            status = m.Status(self.node, self._epoch(), self.status())
            if message.at_work:
                out.append(TellAtWork(peer, status, self.at_work(), message.at_work))
            else:
                out.append(Send(peer, status))
        elif isinstance(message, m.ExplainAsk):
            lines = self.dispatcher.explain(message.run, message.tid) + self.worker.explain(message.run, message.tid)
            out.append(Send(peer, m.Explain(self.node, tuple(lines))))
        else:
            event = Received(peer, message)
            for name, machine in self.routes.get(type(message), ()):
                self._collect(name, machine.handle(event, now), out, local)
            if self.fs is not None and isinstance(message, m.Leave) and message.node == -1:
                self._collect("fs", self.fs.handle(ClientGone(peer), now), out, local)

    def _collect(self, name: str, effects: Sequence[Effect], out: list[Effect], local: deque[m.Message]) -> None:
        node = self.node
        for effect in effects:
            if type(effect) is FsWork:  # by far the most
                if (order := _gives_way(effect.order)) is None:
                    out.append(effect)
                else:
                    self.staged.append(GiveWay(effect.serial, order.wanted, order.idle_s))
                continue
            if isinstance(effect, Send):
                if effect.to == node:
                    local.append(effect.message)
                    continue
                if self.drain.state and name in _OF_RUNS and type(effect.message) not in UNCOUNTED:
                    self.said += 1
            elif isinstance(effect, SetTimer):
                effect = SetTimer((name, effect.key), effect.at)
            elif isinstance(effect, CancelTimer):
                effect = CancelTimer((name, effect.key))
            elif isinstance(effect, (StageIn, CopyOut)) and in_namespace(effect.path):
                self._move_for_task(effect, out, local)
                continue
            elif isinstance(effect, MovedForTask):
                path = self.moving.pop(effect.serial)
                error = f"{path}: {in_words(effect.error)}" if effect.error is not None else ""
                self.staged.append(JobDone(effect.serial, error, effect.size, lost_of=effect.lost_of))
                continue
            elif isinstance(effect, MoveAway):
                self._collect("worker", self.worker.handle(effect, self.drain.now), out, local)
                if self.fs is not None:
                    self._collect("fs", self.fs.handle(effect, self.drain.now), out, local)
                else:
                    self.staged.append(MovedAway(tuple(self.worker.handing_over.kept()), len(self.live) - 1))
                continue
            elif isinstance(effect, MovedAway) and (kept := self.worker.handing_over.kept()):
                self.staged.append(MovedAway((*effect.kept, *kept), effect.takers))
                continue
            elif isinstance(effect, (MovedAway, Leaving, RoomGiven, RoomWanted)):
                self.staged.append(effect)
                continue
            elif isinstance(effect, GaveWay):
                self.staged.append(FsWorked(effect.serial, 0, effect.freed))
                continue
            elif isinstance(effect, AttemptSettled):
                self._settle_attempt(effect)
                continue
            out.append(effect)

    def _move_for_task(self, effect: StageIn | CopyOut, out: list[Effect], local: deque[m.Message]) -> None:
        """A task's input or output is a file of the session's file system: no copy, but a link where that is possible."""
        if self.fs is None:
            why = f"{effect.path}: there is no file system without a session: start one with 'amfs up'"
            self.staged.append(JobDone(effect.serial, why, 0))
            return
        self.moving[effect.serial] = effect.path
        origin = effect.origin if isinstance(effect, CopyOut) else b""
        event = MoveForTask(effect.serial, isinstance(effect, StageIn), namespace_path(effect.path), effect.name, origin)
        self._collect("fs", self.fs.handle(event, self.worker.now), out, local)

    def _end_attempt(self, event: AttemptEnded, now: float, out: list[Effect], local: deque[m.Message]) -> None:
        """A blind task has ended. Publish its files before anybody hears of its end."""
        assert self.fs is not None
        serial, outcome = event.completion[:2]
        end = EndAttempt(event, outcome == Outcome.OK, self.worker.needs(serial), self.worker.origin_of(serial))
        self._collect("fs", self.fs.handle(end, now), out, local)

    def _settle_attempt(self, effect: AttemptSettled) -> None:
        """The files of a blind task are there, or gone: the worker may hear of its end."""
        completion, traces = effect.ended.completion, effect.traces
        serial, outcome = completion[:2]
        if effect.error is not None:
            why = f"what it made could not be published: {in_words(effect.error)}"
            why = "; ".join(filter(None, (completion[11], why)))
            completion = (serial, int(outcome or Outcome.SETUP), *completion[2:11], why, *completion[12:])
            self.staged.append(TasksExited([completion]))
            return
        if traces.doubted:
            why = f"exit status 0, but a file that its command line names was not there: {printable(traces.missing[0])}"
            completion = (serial, int(Outcome.EXIT), *completion[2:11], why, *completion[12:])
        self.staged.append(TasksExited([completion], {serial: (traces.missing, traces.made)}))

    def _new_view(self, now: float, out: list[Effect], local: deque[m.Message]) -> None:
        view = self.membership.view
        assert view is not None
        self.view_changed = True
        facts = facts_of(view)
        dead, new = set(self.live - facts.live), self.joins and not self.live
        self.live = facts.live
        mine = facts.unit_of.get(self.node, [self.node])
        unit = {node: facts.slots[node] for node in mine} if self.node in facts.dispatchers else {}
        others = ring(self.node, mine) if facts.slots[self.node] else []
        draining = {member.node for member in view.members if member.draining}
        ends = {member.node: member.ends - self.wall_offset for member in view.members if member.ends}
        next_one, self.followed = view.epoch == self.followed + 1, view.epoch
        in_order = {node: frozenset(runs) for node, runs in view.in_order if node in dead and next_one}
        event = MembersChanged(facts.table, facts.slots, dead, others, unit, draining, view.manager, ends, new, in_order)
        for name in ("fls", "worker", "dispatcher", "drain"):
            self._collect(name, self.machines[name].handle(event, now), out, local)
        if self.fs is not None:
            self._collect("fs", self.fs.handle(ViewChanged(view.table, view.epoch, view.manager, facts.live), now), out, local)
        early, self.early = self.early, []
        for peer, message in early:
            self._deliver(peer, message, now, out, local)

    def _runs(self) -> dict[int, int]:
        """The runs that this node knows, with their submitters."""
        return {**self.fls.clients, **{run: known.submitter for run, known in self.worker.runs.items()}}

    def _at_rest(self) -> bool:
        """Is nothing of runs left here that others need, or are to hear of?"""
        worker, idle = self.worker, not any(run.records or run.results for run in self.dispatcher.runs.values())
        tasks = worker.inflight or worker.jobs or any(run.tasks for run in worker.runs.values()) or worker.handing_over.kept()
        return idle and not tasks and not self.local and self.fls.is_cleared()

    def _epoch(self) -> int:
        return self.membership.view.epoch if self.membership.view else 0

    def status(self) -> dict[str, object]:
        """Facts of this node for ``amfs status``."""
        worker = self.worker
        return {
            "node": self.node,
            "host": self.me.host,
            "slots": self.me.slots,
            "drain": self.drain.status(),
            "manager": self.membership.view.manager if self.membership.view else -1,
            "nodes": len(self.live),
            "running": min(len(worker.inflight), worker.slots),
            "ready": max(0, len(worker.inflight) - worker.slots) + len(worker.ready),
            "parked": sum(sum(run.parked.values()) for run in worker.runs.values()),
            "runs": sorted(worker.runs),
            "files": sum(len(run.files) for run in worker.runs.values()),
            "memory": worker.memory.used + worker.memory.coming,  # bytes of runs' files
            "memory_spare": worker.memory.spare(),  # files that other nodes have, too, and nobody here reads, and those spilled, too
            "ended": worker.state.ended,
            "fetched": sum(worker.state.fetched_from.values()),
            "fetched_from": dict(nlargest(SENDERS_TOLD, worker.state.fetched_from.items(), key=lambda each: each[1])),
            "memory_limit": worker.memory.limit,
            "why_limit": worker.memory.limits.why_limit,
            "spilled": worker.memory.on_disk,
            "fs_spilled": self.fs.spilled if self.fs is not None else 0,  # bytes of files of amfs:/
            "copies": self.fs.default_copies if self.fs is not None else 1,
            "records": sum(len(records) for records in self.fls.runs.values()),
            "dispatching": sum(len(run.records) for run in self.dispatcher.runs.values()),
            **dict(zip(("partitions", "backed_up", "names_lost"), self.fs.backups() if self.fs is not None else (0, 0, 0), strict=True)),
            **dict(zip(("few_copies", "few_copies_bytes"), self.fs.short_of_copies() if self.fs is not None else (0, 0), strict=True)),
            "fs_asked": self.fs.asked if self.fs is not None else 0,  # questions to other nodes about files so far
        }

    def at_work(self) -> dict[int, tuple[int, int]]:
        """The tasks that the launcher has, by serial: run and number."""
        return {serial: (entry.run.id, entry.spec.tid) for serial, entry in self.worker.inflight.items()}

    def check_invariants(self) -> None:
        for machine in self.machines.values():
            machine.check_invariants()
