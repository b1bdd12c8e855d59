"""The submitter of one run (AME §3.4, first tier): walks the workflow, gives tasks to the dispatchers within credits, counts. Pure.

It keeps a byte for each task (ended or not) and the ids of tasks that are out; credits bound their number. It makes everything else about a
task when it sends it, and forgets it then. That is enough to give tasks of a dead dispatcher to another, and to run those again whose files
were lost. ``parking`` sees to blind tasks that lack files."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from amfs.config import SubmitterLimits
from amfs.engine.closing import Closing
from amfs.engine.course import Course, too_many
from amfs.engine.credits import Credits
from amfs.engine.fls import SHARED_RETENTION
from amfs.engine.heartbeats import HEARTBEAT, receivers
from amfs.engine.hierarchy import Hierarchy
from amfs.engine.lost_parts import LostParts
from amfs.engine.machine import Machine
from amfs.engine.parking import Parking
from amfs.engine.remaking import Remaking
from amfs.engine.units import units
from amfs.engine.views import are_rivals, overtakes
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AddTasks,
    CloseList,
    Ended,
    Expand,
    Expanded,
    FilesFlushed,
    FilesLost,
    FilesSeen,
    ForgetFiles,
    NotExpanded,
    PeerDown,
    RunOver,
    RunSkipped,
    Send,
    StopRun,
    TimerFired,
)
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import FAILED, FINISHED, PENDING, SKIPPED, Outcome, RunEvent, RunNodeEvent, RunNodeState, RunState
from amfs.workflow import reduction
from amfs.workflow.checks import Plan
from amfs.workflow.specs import SpecMaker
from amfs.workflow.tokens import is_token, task_of, token
from amfs.workflow.workflow import Task


class Submitter(Machine):
    """One run. ``tasks`` and ``plan`` are shared with the shell, which may append to ``tasks`` (and then says ``AddTasks``)."""

    def __init__(
        self,
        client: int,
        run: int,
        info: m.RunInfo,
        tasks: Sequence[Task],
        plan: Plan,
        *,
        maker: SpecMaker,
        skip: frozenset[int] = frozenset(),
        open_ended: bool = False,
        fail_fast: int = 0,
        limits: SubmitterLimits | None = None,
    ) -> None:
        super().__init__(client)
        self.run, self.info = run, info
        self.tasks, self.plan, self.maker = tasks, plan, maker
        self.fail_fast, self.limits = fail_fast, limits or SubmitterLimits()
        self.state = maker.state = bytearray(len(tasks))
        self.where: array[int] | None = None  # node on which each task finished; None while there is one node
        for tid in skip:
            self.state[tid] = SKIPPED
        self.skipped, self.finished, self.failed = len(skip), 0, 0
        self.parking = Parking()
        self.hierarchy: Hierarchy | None = None
        self.order: Iterator[int] | None = iter(plan.walk())  # None: it has ended
        self.again: deque[int] = deque()  # had their turn before: submitted before anything new, credits or not
        self.added: deque[int] = deque()  # of a list that grows
        self.credits = Credits(self.limits)
        self.course = Course(run, waits=bool(info.journal))
        self.table = PartitionTable.even([0])
        self.view: m.View | None = None
        self.manager = self.epoch = 0
        self.closing = Closing(open_ended)
        self.counters: dict[str, int] = {}
        self.redone_times: dict[int, int] = {}
        self.remaking, self.lost_parts = Remaking(), LostParts()
        self.missed: dict[int, dict[str, None]] = {}  # task -> files of it that a shard has missed
        self.flushed: dict[int, set[str]] = {}  # task of whose end we have not heard -> outputs of it that are on shared storage
        self.causes: dict[int, str] = {}  # of tasks that failed because of others
        self.passed: list[str] = []  # tokens of tasks that have ended well, to be published
        self.ended_log: list[m.Result] = []
        self.flush_log: list[tuple[str, int, str]] = []
        self.on_message = {
            m.View: self.on_view, m.Results: self.on_results, m.RunReady: self.on_run_ready, m.Flushed: self.on_flushed,
            m.Lost: self.on_lost, m.RunGone: self.on_run_gone, m.Farewell: self.on_farewell,
        }  # fmt: skip
        self.on_event = {
            AddTasks: self.on_add, RunSkipped: self.on_run_skipped, CloseList: self.on_close, ForgetFiles: self.on_forget,
            Expanded: self.on_expanded, NotExpanded: self.on_not_expanded, StopRun: self.on_stop, TimerFired: self.on_timer,
            PeerDown: self.on_peer_down, FilesSeen: lambda event: self.parking.seen(event.serial, event.names),
            FilesLost: self.on_files_lost,
        }  # fmt: skip
        if plan.later:
            self.hierarchy = Hierarchy(tasks, plan)
            over = self.hierarchy.begin(self.state)
            back = frozenset(self.hierarchy.held.keys() | plan.later.keys())
            self.order = iter([tid for tid in plan.walk() if tid not in back])
            self.hierarchy.released.clear()  # they are in the order
            self._stands_over(over)

    # ── the cluster ────────────────────────────────────────────────────────────────────────────────

    def on_view(self, peer: int, message: m.View) -> None:
        old = self.view
        if old is not None and old.members:
            won = overtakes(message, old)
            if are_rivals(message, old):  # they do not talk to each other any more: only we can tell the one side of the other
                self.send(*((old.manager, message) if won else (message.manager, old)))
            if not won:
                return
        self.view, self.epoch, self.manager = message, message.epoch, message.manager
        if old is None:
            self.set_timer(HEARTBEAT, self.limits.heartbeat_s)
        before, now = self.members, message.slots()
        in_order = {node for node, runs in message.in_order if self.run in runs}
        lost, gone = self.course.follow(self.epoch, now, in_order), before.keys() - now.keys()
        told, self.table = self.table, PartitionTable(message.table, message.epoch)
        parts = self.lost_parts.after(told, self.table, gone - in_order)
        dispatchers = units(now, message.unit_size)
        if len(now) > 1 and self.where is None:
            self.where = array("i", [next(iter(before or now))]) * len(self.state)
        for node in now:
            if self.course.node(node).state == RunNodeState.NEW:
                self._tell_of_run(node)
        self.again.extend(self.credits.set_dispatchers(dispatchers, now))
        self.remaking.losses += lost
        if self.ending and gone:
            self._all_gone()
        if not dispatchers:
            self._over("no node of the session has slots for tasks" if now else "all nodes are lost, or were shut down")
        elif before and (lost or gone) and not self.ending:
            self._tell_heirs(parts)

    def _tell_of_run(self, node: int) -> None:
        if self.ending:
            self.send(node, m.RunEnd(self.run, True))  # others may have told it of the run
            return
        self.send(node, m.RunBegin(self.run, self.node, self.info, self.course.whole, self.course.began))
        if self.course.state == RunState.WAITING:
            self.course.move_node(node, RunNodeEvent.TOLD_TO_WAIT)
            self.set_timer("run ready", self.limits.ready_s)
        else:
            self.course.move_node(node, RunNodeEvent.TOLD)

    def _tell_heirs(self, parts: Set[int]) -> None:
        """Nodes are lost. The submitter repeats to the shards that have ``parts`` now all that it told those before. Nothing is to be
        done about files: a worker that still needs one asks a shard, which names it to us (``on_lost``). A task that has its
        inputs already needs nothing, so their writers need not run again."""
        state, asked, passed = self.state, list(self.maker.asked), list[str]()
        keys = [self.info.scope + token(tid) for tid in asked]
        for tid, key, part in zip(asked, keys, self.table.parts(keys), strict=True):
            if part not in parts:
                continue
            if state[tid] == FINISHED:
                passed.append(key)
            elif state[tid] == FAILED:
                self._poison([key], tid)
        self._tell_shared(passed)
        for tid in self.missed:
            self._tell_of_missed(tid)
        if self.closing.begun:
            self.closing.again()

    def on_run_ready(self, peer: int, message: m.RunReady) -> None:
        """Our messages follow the RunBegin on the same link, so there is nothing to wait for, but for the end of an earlier run."""
        if self.course.node(message.node).state == RunNodeState.UNREADY:
            self.course.move_node(message.node, RunNodeEvent.READY)

    # ── tasks out ──────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> int:
        """The next new task to submit, or -1."""
        if self.order is not None:
            for tid in self.order:
                if not self.state[tid]:
                    return tid
            self.order = None
        return self.added.popleft() if self.added else -1

    def _submit_again(self) -> None:
        """Submit what had its turn before, at once: the credits may be taken by tasks that wait for just these."""
        batches: dict[int, list[m.TaskSpec]] = {}
        while self.again:
            tid = self.again.popleft()
            if self.state[tid]:
                continue
            dispatcher = self.credits.next()
            self.credits.out[dispatcher].add(tid)
            spec = self.maker.make(tid, self.tasks[tid], dispatcher)
            for shard, names in self.table.group(self.remaking.reread(spec)).items():
                self.send(shard, m.ReadAgain(self.run, tuple(names)))
            kept = self.remaking.renewed(spec, spec.outputs if tid in self.redone_times else self.flushed.get(tid, ()))
            batches.setdefault(dispatcher, []).append(self.parking.renewed(msgspec.structs.replace(spec, retentions=kept)))
        for dispatcher, specs in batches.items():
            self.parking.sent(specs)
            self.send(dispatcher, m.Submit(self.run, tuple(specs)))

    def _submit(self) -> None:
        dispatchers, full = len(self.credits.out), 0
        batch_size = max(1, min(self.limits.batch, len(self.state) // (4 * dispatchers or 1)))
        while full < dispatchers:
            dispatcher = self.credits.next()
            room = self.credits.room(dispatcher)
            if not room:
                full += 1
                continue
            full = 0
            specs: list[m.TaskSpec] = []
            for _ in range(min(room, batch_size)):
                tid = self._next()
                if tid < 0:
                    break
                if self.state[tid]:
                    continue
                self.credits.out[dispatcher].add(tid)
                specs.append(self.maker.make(tid, self.tasks[tid], dispatcher))
            if specs:
                self.parking.sent(specs)
                self.send(dispatcher, m.Submit(self.run, tuple(specs)))
            if self.order is None and not self.added:
                return

    def on_add(self, event: AddTasks) -> None:
        old = len(self.state)
        if event.total <= old:
            return
        self._grow(event.total - old)
        for tid in event.skip:
            self.state[tid] = SKIPPED
        self.skipped += len(event.skip)
        self.maker.ready.update(event.ready)
        self.closing.unsaved.update(event.unsaved)
        self.added.extend(tid for tid in range(old, event.total) if not self.state[tid])

    def _grow(self, count: int) -> None:
        """There are ``count`` more tasks."""
        self.state.extend(bytes(count))
        if self.where is not None:
            self.where.extend([0] * count)

    def on_run_skipped(self, event: RunSkipped) -> None:
        for tid in event.tids:
            if self.state[tid] == SKIPPED:
                self.state[tid] = PENDING
                self.skipped -= 1
                self.again.append(tid)

    # ── workflows within ───────────────────────────────────────────────────────────────────────────

    def on_expanded(self, event: Expanded) -> None:
        assert self.hierarchy is not None
        self._grow(len(self.tasks) - len(self.state))
        over = self.hierarchy.opened(event.tid, event.tids, self.state)
        held, later = self.hierarchy.held, self.plan.later
        self.added.extend(tid for tid in event.tids if tid not in held and tid not in later)
        self._stands_over(over)

    def on_not_expanded(self, event: NotExpanded) -> None:
        assert self.hierarchy is not None
        over = self.hierarchy.refused(event.tid, m.failure_of(event.tid))
        self._stand_over(event.tid, event.why, Outcome.SETUP)
        self._stands_over(over)
        if self.failed >= self.fail_fast > 0 and not self.ending:
            self._end(too_many(self.fail_fast))

    def _stands_over(self, over: Sequence[tuple[int, str]]) -> None:
        """Tasks that stand for others have ended, and by that others need not be held back any longer."""
        assert self.hierarchy is not None
        for tid, cause in over:
            self._stand_over(tid, cause, Outcome.UPSTREAM_FAILED)
        self.added.extend(self.hierarchy.released)
        self.hierarchy.released = []

    def _stand_over(self, tid: int, cause: str, outcome: Outcome) -> None:
        unmade = self.maker.unmade(tid, self.tasks[tid]) if cause else ()
        self._note_end(m.Result(tid, outcome=outcome if cause else Outcome.OK, detail=cause), unmade)

    # ── results in ─────────────────────────────────────────────────────────────────────────────────

    def on_results(self, peer: int, message: m.Results) -> None:
        if message.run != self.run:
            return
        if (out := self.credits.report(peer, message.parked)) is None:
            return
        out.difference_update([result.tid for result in message.results])
        for result in self.parking.sift(message.results, self.state, self.tasks):
            self._take(result)

    def _take(self, result: m.Result) -> None:
        """A task has ended for good."""
        tid = result.tid
        if result.outcome == Outcome.OK:
            self.flushed.pop(tid, None)
            self.remaking.made(self.info.scope + self.plan.aliases.get(name, name) for name in self.tasks[tid].outputs)
            if self.where is not None:
                self.where[tid] = result.node
        self._note_end(result)
        if result.outcome and self.failed >= self.fail_fast > 0 and not self.ending:
            self._end(too_many(self.fail_fast))
        if self.hierarchy is not None:
            failed = self.causes.get(tid, m.failure_of(tid)) if result.outcome else ""
            self._stands_over(self.hierarchy.ended(tid, failed))

    def _note_end(self, result: m.Result, unmade: Sequence[str] = ()) -> None:
        """Count the task, and tell the shards. ``unmade``: keys that will never be made, beside its token."""
        tid = result.tid
        asked = [self.info.scope + token(tid)] if tid in self.maker.asked else []
        if result.outcome == Outcome.OK:
            self.state[tid] = FINISHED
            self.finished += 1
            self.passed += asked
        else:
            self.state[tid] = FAILED
            self.failed += 1
            if result.outcome == Outcome.UPSTREAM_FAILED:
                self.causes[tid] = result.detail
            self._poison([*unmade, *asked], tid)
        if tid in self.missed:
            self._tell_of_missed(tid)
        self.ended_log.append(result)

    def on_lost(self, peer: int, message: m.Lost) -> None:
        """Files that tasks wait for are nowhere, as far as their shard knows. If their writers have finished, they must do it again; of a
        task that has not ended the shard is told when it has."""
        if message.run != self.run or self.ending:
            return
        for key in message.names:
            short = key[len(self.info.scope) :]
            if is_token(short):
                if self.state[task_of(short)] == FAILED:
                    self._poison([key], task_of(short))
                elif self.state[task_of(short)] != PENDING:
                    self.passed.append(key)
                continue
            if (writer := self.plan.writers.get(short)) is None:
                self.out.extend(Send(*told) for told in reduction.lost(self.run, short, self.credits.out))
                continue
            if message.holder == m.ON_SHARED:
                self.remaking.lost(key)
                self.maker.ready.discard(short)
            if self.state[writer] == FINISHED and (self.remaking.is_lost(key) or not self.maker.is_final(self.tasks[writer], short)):
                self._redo(writer)
            elif self.state[writer] == SKIPPED and short not in self.maker.ready:
                if not self.remaking.losses:  # then no shard names what it has never heard of, and the task could wait for ever
                    self._end(f"{short}, which an earlier run has made, is lost; run again with --resume")
                    return
                self._redo(writer)
            else:
                self.missed.setdefault(writer, {})[key] = None
                self._tell_of_missed(writer)

    def _tell_of_missed(self, tid: int) -> None:
        """Let the shards of its missed files know how a task has ended. Where nothing is known of a file, its shard is asked once
        more: if it is still missing, it says so."""
        keys = list(self.missed[tid])
        if self.state[tid] == FAILED:
            self._poison(keys, tid)
        elif self.state[tid] != PENDING:
            parts: tuple[list[str], list[str]] = ([], [])  # to be asked for, on shared storage
            for key in keys:
                name = key[len(self.info.scope) :]
                parts[self.state[tid] == SKIPPED or self.maker.is_final(self.tasks[tid], name)].append(key)
            self._tell_shared(parts[1])
            for shard, names in self.table.group(parts[0]).items():
                self.send(shard, m.Locate(self.run, tuple(names)))

    def _poison(self, keys: list[str], tid: int) -> None:
        """Nobody will ever make these files, or this token, of a task that has failed."""
        cause = self.causes.get(tid, m.failure_of(tid))
        for shard, names in self.table.group(keys).items():
            self.send(shard, m.Poison(self.run, tuple(names), cause))

    def _redo(self, tid: int) -> None:
        times = self.redone_times[tid] = self.redone_times.get(tid, 0) + 1
        if times > self.limits.redo_max:
            if not self.ending:
                self._end(f"what task {self.tasks[tid].id} makes was lost {times} times")
            return
        if self.state[tid] == SKIPPED:
            self.remaking.revived.add(tid)
            self.skipped -= 1
        else:
            self.finished -= 1
        self.state[tid] = PENDING
        self.remaking.rereads.add(tid)
        self.again.append(tid)

    def on_files_lost(self, event: FilesLost) -> None:
        """The session has lost files of the run; told when all its tasks have ended."""
        self.remaking.looking = False
        self.on_lost(self.node, m.Lost(self.run, tuple([self.info.scope + name for name in event.names]), m.ON_SHARED))

    def _tell_shared(self, keys: list[str]) -> None:
        """Shards that lost their memory learn from us what is on shared storage."""
        for shard, names in self.table.group(keys).items():
            self.send(shard, m.Publish(self.run, tuple([m.Published(name, 0, SHARED_RETENTION) for name in names])))

    def on_flushed(self, peer: int, message: m.Flushed) -> None:
        self.flush_log.extend(message.files)
        for name, _, error in message.files:
            self.closing.flushed(name, error)
            writer = self.plan.writers.get(name, -1)
            if writer >= 0 and self.state[writer] == PENDING and not error:  # the news that the task has ended may be lost with a node
                self.flushed.setdefault(writer, set()).add(self.info.scope + name)

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def on_close(self, event: CloseList) -> None:
        scope = self.info.scope
        for shard, names in self.table.group([scope + name for name in event.orphans]).items():
            self.send(shard, m.Poison(self.run, tuple(names), "no task makes " + ", ".join(name[len(scope):] for name in names)))
        self.closing.close(self.tasks, self.plan)

    def on_forget(self, event: ForgetFiles) -> None:
        for shard, keys in self.table.group([self.info.scope + name for name in event.names]).items():
            self.send(shard, m.FinalizeFiles(self.run, (), tuple(keys)))

    def _settle(self) -> None:
        """All tasks of an open list have ended: files that nobody reads go to shared storage."""
        writers, closing = self.plan.writers, self.closing
        finals: list[str] = []
        for name in closing.finals:
            writer = writers[name]
            made = self.state[writer] == FINISHED and not self.maker.is_final(self.tasks[writer], name)
            if name in closing.on_shared or not (made or (self.state[writer] == SKIPPED and name in closing.unsaved)):
                continue
            if made and self.where is not None and self.course.node(self.where[writer]).state == RunNodeState.LOST:
                self._redo(writer)  # nobody read it, so nobody has missed it yet
            else:
                finals.append(name)
        if not self.again:
            self.out.extend(Send(*told) for told in self.closing.begin(self.run, self.info.scope, finals, self.table))

    def on_stop(self, event: StopRun) -> None:
        if not self.ending:
            self._end(event.reason)

    def _end(self, reason: str) -> None:
        self.course.move(RunEvent.END, reason)
        course, relay = self.course, bool(self.course.down)
        for node in sorted(self.members, key=lambda node: (course.node(node).down, node)):
            course.move_node(node, RunNodeEvent.END)
            self.send(node, m.RunEnd(self.run, bool(reason), relay))
            relay = False
        self.set_timer("run gone", 15.0)
        self._all_gone()

    def on_run_gone(self, peer: int, message: m.RunGone) -> None:
        if message.run != self.run:
            return
        for name, count in message.counters.items():
            self.counters[name] = self.counters.get(name, 0) + count
        self._gone(message.node)
        if not self.ending and message.node in self.members:
            self._end(f"node {message.node} has ended the run: it had not heard from here for too long, or the run was resumed elsewhere")

    def on_farewell(self, peer: int, message: m.Farewell) -> None:
        if self.members.get(peer, 0) < 0:  # else the view in which it drains has not come yet, and it asks again
            self.send(peer, m.Farewell(message.number, heard=True))

    def on_peer_down(self, event: PeerDown) -> None:
        """We cannot reach a node. The manager, old or new, will say what has become of it; if it says nothing, we cannot go on."""
        self.course.node(event.peer).down = True
        if self.ending:
            self._gone(event.peer)
        elif self.members and all(self.course.node(node).down for node in self.members):
            self._over("all nodes are lost, or were shut down")
        elif event.peer in self.members:
            self.set_timer(("down", event.peer), self.limits.unreachable_s)

    def _gone(self, node: int) -> None:
        if self.course.node(node).state == RunNodeState.ENDING:
            self.course.move_node(node, RunNodeEvent.CONFIRMED)
        self._all_gone()

    def _all_gone(self) -> None:
        if self.ending and not self.course.nodes(RunNodeState.ENDING):
            self._over(self.course.reason)

    def _over(self, reason: str) -> None:
        if self.course.state == RunState.OVER:
            return
        self.course.move(RunEvent.CONFIRMED, reason)
        for key in ("run gone", "run ready", "parked", HEARTBEAT):
            self.cancel_timer(key)
        self.out.append(RunOver(reason, self.counters))

    def on_timer(self, event: TimerFired) -> None:
        if isinstance(event.key, tuple):
            node = event.key[1]
            if node in self.members and not self.ending:
                self._end(f"node {node} does not answer, although it is there for the others")
        elif event.key == HEARTBEAT:
            for node in receivers(self.manager, self.credits.out, self.members, self.course.down):
                self.send(node, m.Heartbeat(self.epoch))
            self.set_timer(HEARTBEAT, self.limits.heartbeat_s)
        elif event.key == "run ready" and not self.ending:
            if unready := self.course.nodes(RunNodeState.UNREADY):
                self._end(f"nodes {unready} have not ended the earlier run with this journal")
        elif event.key == "run gone":
            self._over(self.course.reason or f"nodes {self.course.nodes(RunNodeState.ENDING)} did not confirm the end of the run")

    @property
    def ending(self) -> bool:
        """The run ends, or is over."""
        return self.course.ending

    @property
    def members(self) -> Mapping[int, int]:
        """Slots of the live nodes; another mapping when they change."""
        return self.course.members

    @property
    def total(self) -> int:
        return len(self.state)

    @property
    def outstanding(self) -> int:
        """Tasks out that, as far as we know, do not wait for input."""
        return self.credits.outstanding

    @property
    def ended(self) -> int:
        return self.finished + self.failed + self.skipped

    def flush(self) -> None:
        if self.parking.parked or self.parking.due:
            left = -1 if self.ending else self.total - self.ended
            again, looks, given_up = self.parking.turn(left, now=self.now, grows=self.closing.open)
            if self.parking.wake_s:
                self.set_timer("parked", self.parking.wake_s)
            self.again.extend(again)
            self.out.extend(looks)
            for result in given_up:
                self._take(result)
        if self.ended_log:
            self.out.append(Ended(self.ended_log))
            self.ended_log = []
        if self.flush_log:
            self.out.append(FilesFlushed(self.flush_log))
            self.flush_log = []
        if self.ending or not self.members or self.course.nodes(RunNodeState.UNREADY):
            return
        if self.course.state == RunState.WAITING:
            self.course.move(RunEvent.READY)
            self.cancel_timer("run ready")
        if self.passed:
            self._tell_shared(self.passed)
            self.passed = []
        self._submit_again()
        if self.order is not None or self.added:
            self._submit()
        if self.hierarchy is not None and self.hierarchy.due:
            self.out.extend(map(Expand, self.hierarchy.due))
            self.hierarchy.due = []
        while self.maker.unheard:
            tid = self.maker.unheard.pop()
            self._poison([self.info.scope + token(tid)], tid)
        if not self.closing.open and self.ended == self.total:
            if self.maker.open_ended and not self.closing.begun:
                self._settle()
                if self.again:
                    self._submit_again()
                    return
            if not self.closing.awaited and not self.ending:
                self.out.extend(self.remaking.look(self.tasks, self.state, self.plan.aliases))
                if not self.remaking.looking:
                    self._end("")

    def check_invariants(self) -> None:
        self.parking.check_invariants()
        self.course.check_invariants()
        assert [self.finished, self.failed, self.skipped] == [self.state.count(how) for how in (FINISHED, FAILED, SKIPPED)]
        seen: set[int] = set()
        for tids in self.credits.out.values():
            assert not (seen & tids), f"tasks {seen & tids} are with two dispatchers"
            seen |= tids
        if self.hierarchy is not None:
            back = self.hierarchy.held.keys() | self.plan.later.keys()
            assert not seen & back, f"tasks {seen & back} are out, and are to be held back"
            assert all(self.state[tid] == PENDING for tid in (*self.hierarchy.standing, *self.hierarchy.held))
