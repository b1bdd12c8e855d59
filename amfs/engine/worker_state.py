"""The data of ``worker.Worker`` without its decisions, and the batching of its messages. Pure.

Owns: the records of files, tasks and runs on one node, the ready queue, and the collection of news into one message for each peer and kind.
The files' side of the worker is in ``availability``, the tasks' side in ``worker``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence, Set

import msgspec

from amfs.config import MemoryLimits, WorkerLimits
from amfs.engine.machine import Machine
from amfs.engine.memory import Content, Memory
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import CloseRun, Delete, DropSpilled, Kill, OpenRun, RoomTaken
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.records import KEEP_FAILED, WANT_OUTPUT
from amfs.vocabulary.states import FILE_NEXT, TASK_NEXT, FileEvent, FileState, Outcome, Place, PlaceEvent, TaskEvent, TaskState, illegal
from amfs.workflow.tokens import is_token


class File(Content):
    """One file as this node sees it."""

    __slots__ = ("dropped", "fetching", "holders", "mtime_ns", "source", "state", "waiting")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.state = FileState.INVALID
        self.mtime_ns = 0  # of the copy in the store; 0: unknown
        self.holders: tuple[int, ...] = ()
        self.fetching = False  # REMOTE: a Fetch, FetchData or StageIn is out
        self.source = -1  # the holder that was last asked for it
        self.waiting: list[TaskEntry] = []  # tasks parked under this file
        self.dropped = False  # the FLS wants it gone: as soon as it has no users


class TaskEntry:
    """One task that this node has."""

    __slots__ = (
        "askers", "bytes_fetched", "bytes_in", "flushing", "given", "inputs", "missing", "moved", "result", "run", "serial", "spec",
        "state", "unlocated",
    )  # fmt: skip

    def __init__(self, run: Run, spec: m.TaskSpec, moved: bool = False) -> None:
        self.run = run
        self.spec = spec
        self.given: list[str] = []  # keys of the inputs as its record has them, while RUNNING
        self.inputs = spec.inputs  # a newer spec may name others when a reduction is planned anew
        self.moved = moved  # stolen, or forwarded to its data: stays here, or two nodes would pass it to and fro
        self.state = TaskState.INVALID
        self.missing = 0  # inputs that are not there
        self.unlocated = 0  # inputs of which not even a holder is known
        self.serial = 0  # of the launcher, while RUNNING
        self.bytes_in = 0
        self.bytes_fetched = 0
        self.flushing = 0  # finals still on their way to shared storage
        self.result: m.Result | None = None
        self.askers: tuple[tuple[int, int], ...] = ()  # other dispatchers that gave it to this node -> their attempts

    def also_for(self, earlier: m.TaskSpec, askers: tuple[tuple[int, int], ...]) -> None:
        """Another dispatcher has given this node the task, too (each side of a cut network has one). Each is told of its end; it stays."""
        both = {**dict(askers), earlier.origin: earlier.attempt}
        both.pop(self.spec.origin, None)
        self.askers = tuple(both.items())
        self.moved = self.moved or bool(both)


class Run:
    """What this node has of one run."""

    __slots__ = (
        "closing", "counters", "ended", "files", "flags", "id", "in_launcher", "in_service", "info",
        "parked", "paths", "reported", "spilled_told_at", "spoilers", "submitter", "tasks", "unstored",
    )  # fmt: skip

    def __init__(self, run: int, submitter: int, info: m.RunInfo) -> None:
        self.id = run
        self.submitter = submitter
        self.info = info
        self.paths = dict(info.paths)  # grows with tasks that join the run later
        self.tasks: dict[int, TaskEntry] = {}
        self.files: dict[str, File] = {}
        self.parked: dict[int, int] = {}  # origin dispatcher -> tasks of its that wait for input here
        self.reported: dict[int, int] = {}  # the same as last told to the dispatcher
        self.in_launcher = 0
        self.spoilers: dict[str, list[tuple[int, int]]] = {}  # file -> tasks under whom it changed, and when each ended
        self.unstored: dict[str, str] = {}  # file that could not be written here -> why, in words
        self.ended = 0  # tasks that ended here
        self.spilled_told_at = 0.0  # when the submitter was told last what was spilled
        self.closing = False
        self.in_service = True  # else its tasks fail here, and this node asks nobody for more
        self.flags = (KEEP_FAILED if info.keep_sandbox else 0) | (WANT_OUTPUT if info.want_output else 0)
        self.counters = {
            "fetched_bytes": 0, "fetched_files": 0, "staged_bytes": 0, "staged_files": 0,
            "copied_out_bytes": 0, "copied_out_files": 0, "stolen": 0, "forwarded": 0,
            "spilled_bytes": 0, "spilled_files": 0, "returned_bytes": 0, "returned_files": 0,
        }  # fmt: skip


class ReadyQueue:
    """First READY, first run; higher priority before that. A plain deque until somebody uses priorities."""

    __slots__ = ("_fifo", "_front", "_heap", "_seq")

    def __init__(self) -> None:
        self._fifo: deque[TaskEntry] = deque()
        self._heap: list[tuple[int, int, TaskEntry]] = []
        self._seq = 0
        self._front = 0

    def push(self, entry: TaskEntry) -> None:
        options = entry.spec.options
        if options is not None and options.priority:
            self._seq += 1
            heapq.heappush(self._heap, (-options.priority, self._seq, entry))
        else:
            self._fifo.append(entry)

    def pop(self) -> TaskEntry:
        if self._heap and (self._heap[0][0] < 0 or not self._fifo):
            return heapq.heappop(self._heap)[2]
        return self._fifo.popleft()

    def put_back(self, entries: Sequence[TaskEntry]) -> None:
        """They were taken, in this order, and go before all others again."""
        for entry in reversed(entries):
            options = entry.spec.options
            if options is not None and options.priority:
                self._front -= 1
                heapq.heappush(self._heap, (-options.priority, self._front, entry))
            else:
                self._fifo.appendleft(entry)

    def __iter__(self) -> Iterator[TaskEntry]:
        """About in the order in which they are taken."""
        for _, _, entry in sorted(self._heap, key=lambda one: one[:2]):
            yield entry
        yield from self._fifo

    def take_back(self, want: int) -> list[TaskEntry]:
        """Up to ``want`` unpinned READY tasks from the end, for somebody else."""
        taken: list[TaskEntry] = []
        kept: list[TaskEntry] = []
        while self._fifo and len(taken) < want:
            entry = self._fifo.pop()
            options = entry.spec.options
            if entry.state != TaskState.READY:
                continue
            (kept if entry.askers or (options is not None and options.pin >= 0) else taken).append(entry)
        self._fifo.extend(reversed(kept))
        return taken

    def __len__(self) -> int:
        return len(self._fifo) + len(self._heap)


class WorkerState(Machine):
    """The state of one node's worker. ``table`` and ``peers`` are kept current by the node (``MembersChanged``)."""

    def __init__(
        self, node: int, slots: int, store: str, limits: WorkerLimits | None = None, memory: MemoryLimits | None = None
    ) -> None:
        super().__init__(node)
        self.memory = Memory(memory)
        self.slots = slots
        self.store = store
        self.limits = limits or WorkerLimits()
        self.table = PartitionTable.even([node])
        self.peers: Sequence[int] = ()  # other nodes of the unit, in ring order from here
        self.alive: Set[int] = {node}
        self.runs: dict[int, Run] = {}
        self.early: dict[int, list[tuple[int, m.Message]]] = {}  # for runs whose RunBegin is still on its way
        self.gone: dict[int, None] = {}  # runs that ended, newest last
        self.ready = ReadyQueue()
        self.inflight: dict[int, TaskEntry] = {}  # launcher serial -> task
        self.jobs: dict[int, tuple[str, Run, str, TaskEntry | None]] = {}  # serial of a copy or fetch -> (kind, run, key, task)
        self.sources: dict[int, int] = {}  # serial of a fetch -> holder it comes from
        self.serial = 0
        self.mean_s = 0.05  # running mean of how long a task takes, for the size of the backlog
        self.steal_wait_s = 0.0  # 0: no steal under way
        self.victim = 0
        self._locate: dict[int, list[str]] = {}
        self._fetch: dict[tuple[int, int], list[str]] = {}
        self._publish: dict[int, list[m.Published]] = {}
        self._release: dict[int, list[str]] = {}
        self._replica: dict[int, list[str]] = {}
        self._results: dict[tuple[int, int], list[m.Result]] = {}
        self._moved_tasks: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # (run, dispatcher, to whom they were given, -1: us)
        self._flushed: dict[int, list[tuple[str, int, str]]] = {}
        self._delete: list[str] = []
        self._drop_spilled: list[int] = []
        self.to_disk: set[str] = set()  # files that are to be fetched into the spill directory: too large for memory
        self.disk_jobs: set[int] = set()  # fetches that do so
        self._touched: dict[int, None] = {}  # runs with something gathered

    # ── runs ───────────────────────────────────────────────────────────────────────────────────────

    def on_run_begin(self, peer: int, message: m.RunBegin) -> None:
        if message.run not in self.runs and message.run not in self.gone:
            self.runs[message.run] = Run(message.run, message.client, message.info)
            self.out.append(OpenRun(message.run, message.info))
            for sender, early in self.early.pop(message.run, []):
                self.on_message[type(early)](sender, early)
        if message.run in self.gone:
            self.send(message.client, m.RunGone(message.run, self.node, {}))
        else:
            self._say_ready(self.runs[message.run])

    def _say_ready(self, run: Run) -> None:
        """Tell the submitter that the run may begin here, unless tasks of another one with the same journal are still about."""
        journal = run.info.journal
        if not journal or not any(other is not run and other.info.journal == journal for other in self.runs.values()):
            self.send(run.submitter, m.RunReady(run.id, self.node))

    def _run_for(self, run: int, peer: int, message: m.Message) -> Run | None:
        """The run, or None; a message that overtook its RunBegin is kept for it."""
        known = self.runs.get(run)
        if known is None and run not in self.gone:
            self.early.setdefault(run, []).append((peer, message))
        return known

    def on_run_end(self, peer: int, message: m.RunEnd) -> None:
        run = self.runs.get(message.run)
        if run is None:
            self.early.pop(message.run, None)
            self._remember_gone(message.run)
            if peer >= m.CLIENT_ID_MIN:
                self.send(peer, m.RunGone(message.run, self.node, {}))
            return
        run.closing = True
        for entry in run.tasks.values():
            if entry.state in (TaskState.INVALID, TaskState.READY):
                entry.state = TaskState.MOVED  # whoever still has it in a queue skips it
        serials = [serial for serial, entry in self.inflight.items() if entry.run is run]
        if serials:
            self.out.append(Kill(serials))
        self._close_if_empty(run)

    def _close_if_empty(self, run: Run) -> None:
        if run.in_launcher or any(job[1] is run for job in self.jobs.values()):
            return
        for file in run.files.values():
            self._removed(file)
        del self.runs[run.id]
        self._remember_gone(run.id)
        self.out.append(CloseRun(run.id, run.info.scope))
        self.send(run.submitter, m.RunGone(run.id, self.node, run.counters))
        for other in self.runs.values():
            if run.info.journal and other.info.journal == run.info.journal and not other.closing:
                self._say_ready(other)

    def _remember_gone(self, run: int) -> None:
        self.gone[run] = None
        while len(self.gone) > 1000:
            del self.gone[next(iter(self.gone))]

    # ── tasks and files ────────────────────────────────────────────────────────────────────────────

    def _become_ready(self, entry: TaskEntry) -> None:
        options = entry.spec.options
        if options is not None and options.reduce:
            self._report_plan(entry)
            return
        self._move(entry, TaskEvent.INPUTS_THERE)
        self.ready.push(entry)

    def _move(self, entry: TaskEntry, event: TaskEvent) -> None:
        state = TASK_NEXT[entry.state][event]
        if state is None:
            raise illegal("task", entry.spec.tid, entry.state, event)
        entry.state = state

    def _move_file(self, file: File, event: FileEvent) -> None:
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
                self.memory.move(file, PlaceEvent.STORED)
        elif old == FileState.LOCAL:
            self._removed(file)

    def _removed(self, file: File) -> None:
        """This node has no use for its content any more, nor for the room that was promised to it."""
        if file.room:
            self.memory.promise(file, 0)
        if file.place == Place.NOWHERE:
            return
        if file.place != Place.SPILLING and file.copy:  # else the job that copies it finds itself unwanted when it ends
            self._drop_spilled.append(file.copy)
        self.memory.move(file, PlaceEvent.REMOVED)
        file.copy = 0
        file.spare = False

    def _report_plan(self, entry: TaskEntry) -> None:
        """All inputs of a reduction are somewhere: its dispatcher makes the tree."""
        run, spec = entry.run, entry.spec
        at = tuple(
            m.FileAt(f.name, f.size, (self.node,) if f.state == FileState.LOCAL else f.holders)
            for f in (run.files[name] for name in spec.inputs if not is_token(name[len(run.info.scope) :]))
        )
        if entry.missing:
            self._unpark(entry)
        self._forget(entry)
        self.send(spec.origin, m.ReducePlan(run.id, spec.tid, spec.attempt, at))

    def _forget(self, entry: TaskEntry) -> None:
        """The task goes elsewhere."""
        for name in entry.inputs:
            file = entry.run.files.get(name)
            if file is not None and entry in file.waiting:
                file.waiting.remove(entry)
        self._stop_using(entry)
        if entry.state in (TaskState.INVALID, TaskState.READY):
            self._move(entry, TaskEvent.GIVEN_AWAY)
        del entry.run.tasks[entry.spec.tid]

    def _gave(self, entry: TaskEntry, to: int) -> None:
        spec = entry.spec
        self._moved_tasks.setdefault((entry.run.id, spec.origin, to), []).append((spec.tid, spec.attempt))
        self._touched[entry.run.id] = None

    def _stop_using(self, entry: TaskEntry) -> None:
        files = entry.run.files
        for name in entry.inputs:
            file = files.get(name)
            if file is not None:
                self._leave(entry.run, file)

    def _leave(self, run: Run, file: File) -> None:
        """One that uses the file is done with it."""
        file.users -= 1
        if file.dropped and not file.users:
            del run.files[file.name]
            self._removed(file)
            self._delete.append(file.name)
        elif file.spare and not file.users:
            self.memory.changed()  # another node has it, and nobody here reads it any more: it may go

    def _unpark(self, entry: TaskEntry) -> None:
        entry.run.parked[entry.spec.origin] -= 1
        self._touched[entry.run.id] = None

    def _job(self, kind: str, run: Run, name: str, entry: TaskEntry | None) -> int:
        self.serial += 1
        self.jobs[self.serial] = (kind, run, name, entry)
        return self.serial

    def _publish_file(self, run: Run, name: str, size: int, retention: int) -> None:
        self._publish.setdefault(run.id, []).append(m.Published(name, size, retention))
        self._touched[run.id] = None

    def _end(self, entry: TaskEntry, result: m.Result) -> None:
        run, spec = entry.run, entry.spec
        del run.tasks[spec.tid]
        run.ended += 1
        if entry.inputs:
            if result.outcome == Outcome.OK:
                self._release.setdefault(run.id, []).extend(entry.inputs)
                self._touched[run.id] = None
            self._stop_using(entry)
        self._report(run.id, spec.origin, spec.attempt, result)
        for origin, attempt in entry.askers:
            self._report(run.id, origin, attempt, result)

    def _report(self, run: int, origin: int, attempt: int, result: m.Result) -> None:
        if result.attempt != attempt:
            result = msgspec.structs.replace(result, attempt=attempt)
        results = self._results.get((run, origin))
        if results is None:
            self._results[run, origin] = [result]
            self._touched[run] = None
        else:
            results.append(result)

    def _pump(self) -> None:
        """Overridden by the tasks' side: give the launcher what is ready."""

    def _look_around(self) -> None:
        """Overridden by the tasks' side: ask for work if there is none."""

    # ── out ────────────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        self._pump()
        if self._touched:
            touched, self._touched = self._touched, {}
            for run in touched:
                self._flush_run(run)
        if self._delete:
            self.out.append(Delete(self._delete))
            self._delete = []
        if self._drop_spilled:
            self.out.append(DropSpilled(self._drop_spilled))
            self._drop_spilled = []
        memory = self.memory
        if memory.limits.firm and memory.used + memory.coming != memory.told:
            memory.told = memory.used + memory.coming
            self.out.append(RoomTaken(memory.told))
        self._look_around()

    def _flush_run(self, run: int) -> None:
        group = self.table.group
        if publish := self._publish.pop(run, None):
            single = self.table.single
            if single is not None:
                self.send(single, m.Publish(run, tuple(publish)))
            else:
                by_shard: dict[int, list[m.Published]] = {}
                for file in publish:
                    by_shard.setdefault(self.table.node_of(file.name), []).append(file)
                for shard, files in by_shard.items():
                    self.send(shard, m.Publish(run, tuple(files)))
        if names := self._replica.pop(run, None):
            for shard, part in group(names).items():
                self.send(shard, m.Replica(run, tuple(part)))
        if names := self._locate.pop(run, None):
            for shard, part in group(names).items():
                self.send(shard, m.Locate(run, tuple(part)))
        if names := self._release.pop(run, None):
            for shard, part in group(names).items():
                self.send(shard, m.Release(run, tuple(part)))
        for key in [key for key in self._fetch if key[0] == run]:
            self.send(key[1], m.Fetch(run, tuple(self._fetch.pop(key))))
        for took in [key for key in self._moved_tasks if key[0] == run]:
            self.send(took[1], m.TaskMoved(run, tuple(self._moved_tasks.pop(took)), took[2]))
        known = self.runs.get(run)
        if known is None:
            return
        if flushed := self._flushed.pop(run, None):
            self.send(known.submitter, m.Flushed(run, tuple(flushed)))
        for key in [key for key in self._results if key[0] == run]:
            origin = key[1]
            known.reported[origin] = known.parked.get(origin, 0)
            self.send(origin, m.Done(run, tuple(self._results.pop(key)), known.reported[origin]))
        for origin, parked in known.parked.items():
            if abs(parked - known.reported.get(origin, 0)) >= self.limits.parked_step:
                known.reported[origin] = parked
                self.send(origin, m.Done(run, (), parked))
