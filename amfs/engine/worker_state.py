"""The state that the parts of a worker share: its tasks and runs, and the moves that change tasks and files together. Pure.

Owns the tables of runs, tasks and jobs of one node, and the moves of their states. It does not know where files come from
(``file_table``), which files leave memory (``room``), or which task starts when (``worker``, ``launches``).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from amfs.config import MemoryLimits, WorkerLimits
from amfs.engine.machine import GoneRuns
from amfs.engine.memory import Memory
from amfs.engine.outbox import Outbox
from amfs.engine.time_left import TimeLeft
from amfs.engine.worker_records import File, ReadyQueue, Run, TaskEntry
from amfs.vocabulary import messages as m
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import FILE_NEXT, TASK_NEXT, FileEvent, FileState, Outcome, Place, PlaceEvent, TaskEvent, TaskState, illegal
from amfs.workflow.tokens import is_token


class WorkerState:
    """The tables of one node's worker. ``table``, ``peers`` and ``alive`` are kept current by the worker (``MembersChanged``)."""

    def __init__(self, node: int, slots: int, store: str, limits: WorkerLimits | None, memory: MemoryLimits | None) -> None:
        self.node = node
        self.slots = slots
        self.store = store
        self.limits = limits or WorkerLimits()
        self.memory = Memory(memory)
        self.outbox = Outbox()
        self.table = PartitionTable.even([node])
        self.peers: Sequence[int] = ()  # other nodes of the unit, in ring order from here
        self.alive: Set[int] = {node}
        self.runs: dict[int, Run] = {}
        self.early: dict[int, list[tuple[int, m.Message]]] = {}  # for runs whose RunBegin is still on its way
        self.gone = GoneRuns()
        self.ready = ReadyQueue()
        self.time_left = TimeLeft()
        self.too_long: list[TaskEntry] = []  # READY tasks that would not end before the job of this node does,
        self.stranded: list[TaskEntry] = []  # and those of them for which no other node has the time either
        self.inflight: dict[int, TaskEntry] = {}  # launcher serial -> task
        self.jobs: dict[int, tuple[str, Run, str, TaskEntry | None]] = {}  # serial of a copy or fetch -> (kind, run, key, task)
        self.ended = 0  # tasks that ended here since the node began,
        self.fetched_from: dict[int, int] = {}  # and bytes that came from other nodes
        self.serial = 0  # the last, of a job or of a task at the launcher

    def run_for(self, run: int, peer: int, message: m.Message) -> Run | None:
        """The run, or None; a message that overtook its RunBegin is kept for it."""
        known = self.runs.get(run)
        if known is None and run not in self.gone:
            self.early.setdefault(run, []).append((peer, message))
        return known

    def become_ready(self, entry: TaskEntry) -> None:
        options = entry.spec.options
        if options is not None and options.reduce:
            self.report_plan(entry)
            return
        self.move(entry, TaskEvent.INPUTS_THERE)
        self.ready.push(entry)

    def may_begin(self, entry: TaskEntry) -> bool:
        """Of an entry that was taken from ``ready``. If it would not end in time it waits among those that are ``too_long``."""
        enough = self.time_left.is_enough(self.node, entry.spec, self.outbox.now)
        if not enough:
            self.too_long.append(entry)
        return enough

    def move(self, entry: TaskEntry, event: TaskEvent) -> None:
        state = TASK_NEXT[entry.state][event]
        if state is None:
            raise illegal("task", entry.spec.tid, entry.state, event)
        entry.state = state

    def move_file(self, file: File, event: FileEvent) -> None:
        state = FILE_NEXT[file.state][event]
        if state is None:
            raise illegal("file", file.name, file.state, event)
        old, file.state = file.state, state
        if not self.memory.limit:
            return
        if file.room and state != FileState.REMOTE:
            self.memory.promise(file, 0)
        if state == FileState.LOCAL:
            if file.place == Place.NOWHERE:
                file.used_at = self.outbox.now
                self.memory.move(file, PlaceEvent.STORED)
        elif old == FileState.LOCAL:
            self.removed(file)

    def removed(self, file: File) -> None:
        """This node has no use for its content any more, nor for the room that was promised to it."""
        if file.room:
            self.memory.promise(file, 0)
        if file.place == Place.NOWHERE:
            return
        if file.place != Place.SPILLING and file.copy:  # else the job that copies it finds itself unwanted when it ends
            self.outbox.drop_copy(file.copy)
        self.memory.move(file, PlaceEvent.REMOVED)
        file.copy = 0
        file.spare = False

    def report_plan(self, entry: TaskEntry) -> None:
        """All inputs of a reduction are somewhere: its dispatcher makes the tree."""
        run, spec = entry.run, entry.spec
        at = tuple(
            m.FileAt(f.name, f.size, (self.node,) if f.state == FileState.LOCAL else f.holders)
            for f in (run.files[name] for name in spec.inputs if not is_token(name[len(run.info.scope) :]))
        )
        if entry.missing:
            self.unpark(entry)
        self.forget(entry)
        self.outbox.send(spec.origin, m.ReducePlan(run.id, spec.tid, spec.attempt, at))

    def forget(self, entry: TaskEntry) -> None:
        """The task goes elsewhere."""
        for name in entry.inputs:
            file = entry.run.files.get(name)
            if file is not None and entry in file.waiting:
                file.waiting.remove(entry)
        self.stop_using(entry)
        if entry.state in (TaskState.INVALID, TaskState.READY):
            self.move(entry, TaskEvent.GIVEN_AWAY)
        del entry.run.tasks[entry.spec.tid]

    def stop_using(self, entry: TaskEntry) -> None:
        files = entry.run.files
        for name in entry.inputs:
            file = files.get(name)
            if file is not None:
                self.leave(entry.run, file)

    def leave(self, run: Run, file: File) -> None:
        """One that uses the file is done with it."""
        file.users -= 1
        file.used_at = self.outbox.now
        if file.dropped and not file.users:
            del run.files[file.name]
            self.removed(file)
            self.outbox.delete(file.name)
        elif file.spare and not file.users:
            self.memory.changed()  # another node has it, and nobody here reads it any more: it may go

    def park(self, entry: TaskEntry) -> None:
        """It waits for what other tasks make: it takes no room from those."""
        if not entry.parked:
            entry.parked = True
            parked = entry.run.parked
            parked[entry.spec.origin] = parked.get(entry.spec.origin, 0) + 1

    def unpark(self, entry: TaskEntry) -> None:
        if entry.parked:
            entry.parked = False
            entry.run.parked[entry.spec.origin] -= 1
            self.outbox.touch(entry.run.id)

    def job(self, kind: str, run: Run, name: str, entry: TaskEntry | None) -> int:
        self.serial += 1
        self.jobs[self.serial] = (kind, run, name, entry)
        return self.serial

    def end(self, entry: TaskEntry, result: m.Result) -> None:
        run, spec = entry.run, entry.spec
        del run.tasks[spec.tid]
        run.ended += 1
        self.ended += 1
        if entry.inputs:
            if result.outcome == Outcome.OK:
                self.outbox.release(run.id, entry.inputs)
            self.stop_using(entry)
        self.outbox.report(run.id, spec.origin, spec.attempt, result)
        for origin, attempt in entry.askers:
            self.outbox.report(run.id, origin, attempt, result)
