"""The worker of one node (AME §3.5) with the worker half of the File Availability Protocol (§3.2). Pure.

Owns: the tasks this node has, parked under the files they wait for, the ready queue, the backlog handed to the launcher, the file table
(INVALID / LOCAL / REMOTE / SHARED), fetches under way, results to report. It does not know how processes start or bytes move: that is
said in effects (``Launch``, ``FetchData``, ``StageIn``, ``CopyOut``) and comes back as events.

AME's threads are methods here: fetcher = ``on_assign``, task mover = ``_admit``/``_there``, receiver = ``on_located``, committer = ``flush``.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque

import msgspec

from amfs.config import WorkerLimits
from amfs.engine import messages as m
from amfs.engine.events import (
    CloseRun,
    CopyOut,
    Delete,
    FetchData,
    JobDone,
    Kill,
    Launch,
    OpenRun,
    ReadStore,
    StageIn,
    StoreInline,
    TasksExited,
)
from amfs.engine.fls import SHARED_FATE
from amfs.engine.machine import Machine
from amfs.engine.records import KEEP_FAILED, STAGED, WANT_OUTPUT, pack_record
from amfs.engine.states import FILE_NEXT, TASK_NEXT, FileEvent, FileState, Outcome, TaskEvent, TaskState, illegal
from amfs.fs.partition import PartitionTable
from amfs.fs.paths import sandbox_name, shared_path, store_path

_DEFAULTS = m.Options()


class File:
    """One file as this node sees it."""

    __slots__ = ("fetching", "holders", "mtime_ns", "name", "size", "state", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = FileState.INVALID
        self.size = 0
        self.mtime_ns = 0  # of the copy in the store; 0: unknown
        self.holders: tuple[int, ...] = ()
        self.fetching = False  # REMOTE: a Fetch, FetchData or StageIn is out
        self.waiting: list[TaskEntry] = []  # tasks parked under this file


class TaskEntry:
    """One task that this node has."""

    __slots__ = ("bytes_fetched", "bytes_in", "flushing", "missing", "result", "run", "serial", "spec", "state", "unlocated")

    def __init__(self, run: Run, spec: m.TaskSpec) -> None:
        self.run = run
        self.spec = spec
        self.state = TaskState.INVALID
        self.missing = 0  # inputs that are not there
        self.unlocated = 0  # inputs of which not even a holder is known
        self.serial = 0  # of the launcher, while RUNNING
        self.bytes_in = 0
        self.bytes_fetched = 0
        self.flushing = 0  # finals still on their way to shared storage
        self.result: m.Result | None = None


class Run:
    """What this node has of one run."""

    __slots__ = ("closing", "counters", "ended", "files", "flags", "id", "in_launcher", "info", "parked", "reported", "submitter", "tasks")

    def __init__(self, run: int, submitter: int, info: m.RunInfo) -> None:
        self.id = run
        self.submitter = submitter
        self.info = info
        self.tasks: dict[int, TaskEntry] = {}
        self.files: dict[str, File] = {}
        self.parked: dict[int, int] = {}  # origin dispatcher -> tasks of its that wait for input here
        self.reported: dict[int, int] = {}  # the same as last told to the dispatcher
        self.in_launcher = 0
        self.ended = 0  # tasks that ended here
        self.closing = False
        self.flags = (KEEP_FAILED if info.keep_sandbox else 0) | (WANT_OUTPUT if info.want_output else 0)
        self.counters = {
            "fetched_bytes": 0, "fetched_files": 0, "staged_bytes": 0, "staged_files": 0,
            "copied_out_bytes": 0, "copied_out_files": 0, "stolen": 0, "forwarded": 0,
        }  # fmt: skip


class ReadyQueue:
    """First READY, first run; higher priority before that. A plain deque until somebody uses priorities."""

    __slots__ = ("_fifo", "_heap", "_seq")

    def __init__(self) -> None:
        self._fifo: deque[TaskEntry] = deque()
        self._heap: list[tuple[int, int, TaskEntry]] = []
        self._seq = 0

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

    def take_back(self, want: int) -> list[TaskEntry]:
        """Up to ``want`` unpinned READY tasks from the end, for somebody else."""
        taken: list[TaskEntry] = []
        kept: list[TaskEntry] = []
        while self._fifo and len(taken) < want:
            entry = self._fifo.pop()
            options = entry.spec.options
            if entry.state != TaskState.READY:
                continue
            (kept if options is not None and options.pin >= 0 else taken).append(entry)
        self._fifo.extend(reversed(kept))
        return taken

    def __len__(self) -> int:
        return len(self._fifo) + len(self._heap)


class Worker(Machine):
    """One node's worker. ``table`` and ``peers`` are kept current by the node (``set_view``)."""

    def __init__(self, node: int, slots: int, store: str, limits: WorkerLimits | None = None) -> None:
        super().__init__(node)
        self.slots = slots
        self.store = store
        self.limits = limits or WorkerLimits()
        self.table = PartitionTable.even([node])
        self.peers: list[int] = []  # other nodes of the unit, in ring order from here
        self.runs: dict[int, Run] = {}
        self.early: dict[int, list[tuple[int, m.Message]]] = {}  # for runs whose RunBegin is still on its way
        self.gone: dict[int, None] = {}  # runs that ended, newest last
        self.ready = ReadyQueue()
        self.inflight: dict[int, TaskEntry] = {}  # launcher serial -> task
        self.jobs: dict[int, tuple[str, Run, str, TaskEntry | None]] = {}  # mover serial -> (kind, run, key, task)
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
        self._took: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._flushed: dict[int, list[tuple[str, int, str]]] = {}
        self._delete: list[str] = []
        self._touched: dict[int, None] = {}  # runs with something gathered
        self.on_message = {
            m.RunBegin: self.on_run_begin,
            m.RunEnd: self.on_run_end,
            m.Assign: self.on_assign,
            m.Located: self.on_located,
            m.FileFailed: self.on_file_failed,
            m.Fetch: self.on_fetch,
            m.Content: self.on_content,
            m.Drop: self.on_drop,
            m.Flush: self.on_flush,
            m.StealAsk: self.on_steal_ask,
            m.StealNone: self.on_steal_none,
        }
        self.on_event = {TasksExited: self.on_exited, JobDone: self.on_job_done}

    # ── runs ───────────────────────────────────────────────────────────────────────────────────────

    def on_run_begin(self, peer: int, message: m.RunBegin) -> None:
        if message.run not in self.runs and message.run not in self.gone:
            self.runs[message.run] = Run(message.run, message.client, message.info)
            self.out.append(OpenRun(message.run, message.info))
            for sender, early in self.early.pop(message.run, []):
                self.on_message[type(early)](sender, early)
        self.send(message.client, m.RunReady(message.run, self.node, self.slots))

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
        del self.runs[run.id]
        self._remember_gone(run.id)
        self.out.append(CloseRun(run.id, run.info.scope))
        self.send(run.submitter, m.RunGone(run.id, self.node, run.counters))

    def _remember_gone(self, run: int) -> None:
        self.gone[run] = None
        while len(self.gone) > 1000:
            del self.gone[next(iter(self.gone))]

    def adopt(self, number: int, files: list[tuple[str, int, int, int]]) -> None:
        """Files (key, size, mtime_ns, fate) that an earlier life of this node left in the store are there again."""
        run = self.runs[number]
        for name, size, mtime_ns, fate in files:
            file = run.files.get(name) or run.files.setdefault(name, File(name))
            fresh = file.state == FileState.INVALID
            file.size, file.mtime_ns = size, mtime_ns
            self._move_file(file, FileEvent.PRODUCED)
            self._publish_file(run, name, size, fate)
            self._there(run, file, fresh)

    # ── tasks come in ──────────────────────────────────────────────────────────────────────────────

    def on_assign(self, peer: int, message: m.Assign) -> None:
        run = self._run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        for spec in message.tasks:
            if peer != spec.origin:
                self._took.setdefault((run.id, spec.origin), []).append((spec.tid, spec.attempt))
                self._touched[run.id] = None
            known = run.tasks.get(spec.tid)
            if known is not None:
                # Repeated, or its dispatcher was rebuilt elsewhere: keep the work, report to whoever asks now.
                if (known.spec.origin, known.spec.attempt) != (spec.origin, spec.attempt):
                    known.spec = spec
                continue
            self._admit(run, spec)

    def _admit(self, run: Run, spec: m.TaskSpec) -> None:
        entry = TaskEntry(run, spec)
        run.tasks[spec.tid] = entry
        files = run.files
        for name in spec.inputs:
            file = files.get(name)
            if file is None:
                file = files[name] = File(name)
                self._locate_file(run, file)
            state = file.state
            if state == FileState.LOCAL or state == FileState.SHARED:
                entry.bytes_in += file.size
                continue
            file.waiting.append(entry)
            entry.missing += 1
            if state == FileState.INVALID:
                entry.unlocated += 1
        if run.info.stage_shared:
            for name in spec.shared:
                self._stage(run, entry, name)
        if not entry.missing:
            self._become_ready(entry)
            return
        parked = run.parked
        parked[spec.origin] = parked.get(spec.origin, 0) + 1
        self._touched[run.id] = None
        if not entry.unlocated:
            self._all_located(entry)

    def _stage(self, run: Run, entry: TaskEntry, name: str) -> None:
        """A shared input that is to be read from the store: copied there once, however many tasks want it."""
        file = run.files.get(name)
        if file is None:
            file = run.files[name] = File(name)
            self._move_file(file, FileEvent.LOCATED)
            file.fetching = True
            path = shared_path(run.info.base, name[len(run.info.scope):])
            self.out.append(StageIn(self._job("stage", run, name, None), name, path))
        if file.state == FileState.LOCAL or file.state == FileState.SHARED:
            return
        file.waiting.append(entry)
        entry.missing += 1

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
        file.state = state

    # ── files become available ─────────────────────────────────────────────────────────────────────

    def _locate_file(self, run: Run, file: File) -> None:
        self._locate.setdefault(run.id, []).append(file.name)
        self._touched[run.id] = None

    def on_located(self, peer: int, message: m.Located) -> None:
        run = self._run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        for at in message.files:
            file = run.files.get(at.name)
            if file is None or file.state != FileState.INVALID:
                continue
            file.size = at.size
            if not at.holders:
                self._move_file(file, FileEvent.ON_SHARED)
                self._there(run, file, fresh=True)
                continue
            file.holders = at.holders
            self._move_file(file, FileEvent.LOCATED)
            decided: list[TaskEntry] = []
            for entry in file.waiting:
                entry.unlocated -= 1
                if not entry.unlocated and entry.state == TaskState.INVALID:
                    decided.append(entry)
            if not run.info.data_aware or at.size < self.limits.forward_bytes_min:
                self._fetch_file(run, file)
            for entry in decided:
                self._all_located(entry)

    def _all_located(self, entry: TaskEntry) -> None:
        """Every input of a parked task is somewhere: go where most of it is, or have it brought here."""
        run, spec = entry.run, entry.spec
        options = spec.options
        if options is not None and options.reduce:
            self._report_plan(entry)
            return
        files = [run.files[name] for name in spec.inputs]
        if run.info.data_aware and not (options is not None and options.pin >= 0):
            here = 0
            held: dict[int, int] = {}
            for file in files:
                if file.state == FileState.REMOTE:
                    for holder in file.holders:
                        held[holder] = held.get(holder, 0) + file.size
                else:
                    here += file.size
            best = max(held, key=lambda node: (held[node], -node), default=self.node)
            if best != self.node and best in self.peers and held[best] >= here + self.limits.forward_bytes_min:
                self._forward(entry, best)
                return
        for file in files:
            if file.state == FileState.REMOTE and not file.fetching:
                self._fetch_file(run, file)

    def _forward(self, entry: TaskEntry, to: int) -> None:
        run = entry.run
        self._unpark(entry)
        self._forget(entry)
        run.counters["forwarded"] += 1
        self.send(to, m.Assign(run.id, (entry.spec,)))

    def _report_plan(self, entry: TaskEntry) -> None:
        """All inputs of a reduction are somewhere: its dispatcher makes the tree."""
        run, spec = entry.run, entry.spec
        at = tuple(
            m.FileAt(f.name, f.size, (self.node,) if f.state == FileState.LOCAL else f.holders)
            for f in (run.files[name] for name in spec.inputs)
        )
        if entry.missing:
            self._unpark(entry)
        self._forget(entry)
        self.send(spec.origin, m.ReducePlan(run.id, spec.tid, spec.attempt, at))

    def _forget(self, entry: TaskEntry) -> None:
        """The task goes elsewhere."""
        for name in entry.spec.inputs:
            file = entry.run.files.get(name)
            if file is not None and entry in file.waiting:
                file.waiting.remove(entry)
        if entry.state in (TaskState.INVALID, TaskState.READY):
            self._move(entry, TaskEvent.GIVEN_AWAY)
        del entry.run.tasks[entry.spec.tid]

    def _unpark(self, entry: TaskEntry) -> None:
        entry.run.parked[entry.spec.origin] -= 1
        self._touched[entry.run.id] = None

    def _fetch_file(self, run: Run, file: File) -> None:
        if file.fetching or file.state != FileState.REMOTE:
            return
        file.fetching = True
        # Different readers start with different holders, so that one producer does not serve the whole machine.
        holder = file.holders[self.node % len(file.holders)]
        self._fetch.setdefault((run.id, holder), []).append(file.name)
        self._touched[run.id] = None

    def _there(self, run: Run, file: File, fresh: bool = False) -> None:
        """The file has become LOCAL or SHARED: wake the tasks parked under it. ``fresh``: it was INVALID a moment ago."""
        waiting = file.waiting
        if not waiting:
            return
        file.waiting = []
        for entry in waiting:
            entry.missing -= 1
            entry.bytes_in += file.size
            if fresh:
                entry.unlocated -= 1
            if entry.state != TaskState.INVALID:
                continue
            if not entry.missing:
                self._unpark(entry)
                self._become_ready(entry)
            elif fresh and not entry.unlocated:
                self._all_located(entry)

    def on_content(self, peer: int, message: m.Content) -> None:
        run = self.runs.get(message.run)
        if run is None or run.closing:
            return
        for blob in message.blobs:
            file = run.files.get(blob.name)
            if file is None or file.state != FileState.REMOTE:
                continue
            if blob.missing:
                self._fetch_failed(run, file, peer)
            elif blob.data is not None:
                self.out.append(StoreInline(blob.name, blob.data, blob.mode))
                self._fetched(run, file, blob.size)
            else:
                serial = self._job("fetch", run, blob.name, None)
                self.out.append(
                    FetchData(serial, peer, blob.port, blob.ticket, blob.name, blob.size, blob.mode)
                )

    def _fetched(self, run: Run, file: File, size: int) -> None:
        file.size = size
        file.mtime_ns = 0
        file.fetching = False
        self._move_file(file, FileEvent.COPIED)
        run.counters["fetched_bytes"] += size
        if file.waiting:
            file.waiting[0].bytes_fetched += size
        run.counters["fetched_files"] += 1
        self._replica.setdefault(run.id, []).append(file.name)
        self._touched[run.id] = None
        self._there(run, file)

    def _fetch_failed(self, run: Run, file: File, holder: int) -> None:
        """Tell the FLS that ``holder`` has it no more, and ask anew: another holder, or word that it is lost."""
        file.fetching = False
        self._move_file(file, FileEvent.HOLDER_LOST)
        for entry in file.waiting:
            entry.unlocated += 1
        self.send(self.table.node_of(file.name), m.Lost(run.id, (file.name,), holder))
        self._locate_file(run, file)

    def on_file_failed(self, peer: int, message: m.FileFailed) -> None:
        run = self._run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        for name, cause in zip(message.names, message.causes, strict=True):
            file = run.files.get(name)
            if file is None:
                continue
            waiting, file.waiting = file.waiting, []
            if file.state == FileState.INVALID:
                del run.files[name]  # ask again should it ever be wanted again
            for entry in waiting:
                if entry.state == TaskState.INVALID:
                    self._unpark(entry)
                    self._move(entry, TaskEvent.INPUT_FAILED)
                    self._end(entry, m.Result(
                        entry.spec.tid, entry.spec.attempt, Outcome.UPSTREAM_FAILED, 0, self.node, detail=cause,
                    ))  # fmt: skip

    # ── serving others ─────────────────────────────────────────────────────────────────────────────

    def on_fetch(self, peer: int, message: m.Fetch) -> None:
        self.out.append(ReadStore(peer, message.run, message.names))

    def on_drop(self, peer: int, message: m.Drop) -> None:
        run = self.runs.get(message.run)
        if run is None:
            return
        for name in message.names:
            file = run.files.get(name)
            if file is None or file.waiting or file.fetching:
                continue
            del run.files[name]
            self._delete.append(name)

    def on_flush(self, peer: int, message: m.Flush) -> None:
        run = self.runs.get(message.run)
        if run is None:
            return
        for name in message.names:
            self._copy_out(run, name, None)

    def _copy_out(self, run: Run, name: str, entry: TaskEntry | None) -> None:
        path = shared_path(run.info.base, name[len(run.info.scope):], run.info.hashed_outputs)
        self.out.append(CopyOut(self._job("flush", run, name, entry), name, path))

    def _job(self, kind: str, run: Run, name: str, entry: TaskEntry | None) -> int:
        self.serial += 1
        self.jobs[self.serial] = (kind, run, name, entry)
        return self.serial

    def on_job_done(self, event: JobDone) -> None:
        job = self.jobs.pop(event.serial, None)
        if job is None:
            return
        kind, run, name, entry = job
        if run.closing:
            self._close_if_empty(run)
            return
        file = run.files.get(name)
        if kind == "flush":
            self._flush_done(run, name, file, entry, event)
        elif file is None or file.state != FileState.REMOTE:
            return
        elif kind == "fetch":
            if event.error:
                self.log(f"fetch of {name} failed: {event.error}", logging.WARNING)
                self._fetch_failed(run, file, file.holders[self.node % len(file.holders)])
            else:
                self._fetched(run, file, event.size)
        elif event.error:  # stage
            file.fetching = False
            waiting, file.waiting = file.waiting, []
            del run.files[name]
            for parked in waiting:
                if parked.state == TaskState.INVALID:
                    self._unpark(parked)
                    self._move(parked, TaskEvent.INPUT_FAILED)
                    self._end(parked, m.Result(
                        parked.spec.tid, parked.spec.attempt, Outcome.SETUP, 0, self.node, detail=f"cannot read its input: {event.error}",
                    ))  # fmt: skip
        else:
            file.fetching = False
            file.size = event.size
            self._move_file(file, FileEvent.COPIED)
            run.counters["staged_bytes"] += event.size
            run.counters["staged_files"] += 1
            self._there(run, file)

    def _flush_done(self, run: Run, name: str, file: File | None, entry: TaskEntry | None, event: JobDone) -> None:
        short = name[len(run.info.scope):]
        if not event.error:
            run.counters["copied_out_bytes"] += event.size
            run.counters["copied_out_files"] += 1
            if file is not None and file.state == FileState.LOCAL:
                self._publish_file(run, name, event.size, SHARED_FATE)
        self._flushed.setdefault(run.id, []).append((short, event.size, event.error))
        self._touched[run.id] = None
        if entry is None:
            return
        entry.flushing -= 1
        if event.error and entry.result is not None and entry.result.outcome == Outcome.OK:
            detail = f"cannot write its output: {event.error}"
            entry.result = msgspec.structs.replace(entry.result, outcome=Outcome.OUTPUT_LOST, detail=detail)
        if not entry.flushing:
            assert entry.result is not None
            good = entry.result.outcome == Outcome.OK
            self._move(entry, TaskEvent.FLUSHED if good else TaskEvent.WENT_WRONG)
            self._end(entry, entry.result)

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    def _pump(self) -> None:
        """Keep the launcher's slots full, and a little more in its queue, so that it never has to ask."""
        ready = self.ready
        if not ready:
            return
        ahead = min(self.limits.backlog_max, int(self.slots * self.limits.backlog_s / self.mean_s))
        target = self.slots + ahead
        inflight = self.inflight
        if len(inflight) >= target:
            return
        records: list[bytes] = []
        while len(inflight) < target and ready:
            entry = ready.pop()
            if entry.state != TaskState.READY:
                continue
            self.serial += 1
            record = self._record(self.serial, entry)
            self._move(entry, TaskEvent.LAUNCHED)
            entry.serial = self.serial
            inflight[self.serial] = entry
            entry.run.in_launcher += 1
            records.append(record)
        if records:
            self.out.append(Launch(records))

    def _record(self, serial: int, entry: TaskEntry) -> bytes:
        spec = entry.spec
        run = entry.run
        info = run.info
        scope = info.scope
        cut = len(scope)
        options = spec.options or _DEFAULTS
        root = self.store
        inputs: list[tuple[str, str]] = []
        stamps: list[tuple[int, int]] = []
        outputs: list[tuple[str, str]] = []
        if options.unstaged:
            outputs = [(name[cut:], "") for name in spec.outputs]
        else:
            deep = options.depth > 0
            for name in spec.inputs or ():
                file = run.files[name]
                short = name[cut:]
                if file.state == FileState.SHARED:
                    if short[0] != "/" or deep:
                        inputs.append(("@" + shared_path(info.base, short, info.hashed_outputs), sandbox_name(short, info.base)))
                        stamps.append((0, 0))
                else:
                    inputs.append((store_path(root, scope, name), sandbox_name(short, info.base) if deep else short))
                    stamps.append((file.size, file.mtime_ns))
            for name in spec.shared:
                short = name[cut:]
                if info.stage_shared and not (short[0] == "/" and not deep):
                    inputs.append((store_path(root, scope, name), sandbox_name(short, info.base)))
                elif short[0] != "/" or deep:
                    inputs.append(("@" + shared_path(info.base, short), sandbox_name(short, info.base)))
                else:
                    continue
                stamps.append((0, 0))
            for name in spec.outputs:
                short = name[cut:]
                if short[0] == "/" and not deep:
                    outputs.append((short, ""))
                else:
                    outputs.append((sandbox_name(short, info.base) if deep else short, store_path(root, scope, name)))
        return pack_record(
            serial,
            spec.body,
            flags=run.flags if options.unstaged else run.flags | STAGED,
            context=run.id,
            cores=options.cores,
            memory=options.memory,
            time_limit_ms=options.time_limit_ms,
            depth=options.depth,
            capture=info.capture_bytes,
            inputs=inputs,
            stamps=stamps,
            outputs=outputs,
        )

    def on_exited(self, event: TasksExited) -> None:
        node = self.node
        for serial, outcome, code, slot, start_us, end_us, cpu_us, maxrss, made, stdout, stderr, detail in event.completions:
            entry = self.inflight.pop(serial, None)
            if entry is None:
                continue
            run = entry.run
            run.in_launcher -= 1
            if run.closing:
                self._close_if_empty(run)
                continue
            spec = entry.spec
            self.mean_s += ((end_us - start_us) * 1e-6 - self.mean_s) * 0.1
            if self.mean_s < 1e-5:
                self.mean_s = 1e-5
            result = m.Result(
                spec.tid, spec.attempt, outcome, code, node, slot, start_us, end_us, cpu_us, maxrss, entry.bytes_in,
                sum([size for size, _ in made]) if made else 0, detail, stdout, stderr, tuple([size for size, _ in made]) if made else (),
                entry.bytes_fetched,
            )  # fmt: skip
            if outcome:
                if outcome == Outcome.INPUT_CHANGED:
                    self._spoiled(run, spec, detail)
                self._move(entry, TaskEvent.WENT_WRONG)
                self._end(entry, result)
                continue
            if spec.outputs:
                self._outputs_made(entry, made)
            if spec.inputs:
                self._release.setdefault(run.id, []).extend(spec.inputs)
                self._touched[run.id] = None
            if entry.flushing:
                entry.result = result
                self._move(entry, TaskEvent.WROTE_FINALS)
            else:
                self._move(entry, TaskEvent.SUCCEEDED)
                self._end(entry, result)

    def _outputs_made(self, entry: TaskEntry, made: tuple[tuple[int, int], ...]) -> None:
        """The launcher has published the outputs into the store: LOCAL here, VALID at the FLS, finals on their way out."""
        run, spec = entry.run, entry.spec
        options = spec.options
        in_place = options is not None and options.unstaged
        deep = options is not None and options.depth > 0
        cut = len(run.info.scope)
        for name, fate, (size, mtime_ns) in zip(spec.outputs, spec.fates, made, strict=True):
            file = run.files.get(name)
            if in_place or (name[cut] == "/" and not deep):  # written straight to shared storage
                if file is None:
                    file = run.files[name] = File(name)
                file.size = size
                fresh = file.state == FileState.INVALID
                if fresh:
                    self._move_file(file, FileEvent.ON_SHARED)
                self._publish_file(run, name, size, SHARED_FATE)
                self._there(run, file, fresh)
                continue
            if fate & m.FINAL:
                entry.flushing += 1
                self._copy_out(run, name, entry)
            elif not fate >> 1:  # nobody reads it, nobody wants it
                if file is None:
                    self._delete.append(name)
                    continue
            if file is None:
                file = run.files[name] = File(name)
            file.size = size
            file.mtime_ns = mtime_ns
            file.fetching = False
            fresh = file.state == FileState.INVALID
            self._move_file(file, FileEvent.PRODUCED)
            self._publish_file(run, name, size, fate)
            if file.waiting:
                self._there(run, file, fresh)

    def _publish_file(self, run: Run, name: str, size: int, fate: int) -> None:
        self._publish.setdefault(run.id, []).append(m.Published(name, size, fate))
        self._touched[run.id] = None

    def _spoiled(self, run: Run, spec: m.TaskSpec, detail: str) -> None:
        """A task wrote on its input: this node's copy is worthless. Where it was the only one, the file is lost for good."""
        for name in spec.inputs:
            file = run.files.get(name)
            short = name[len(run.info.scope):]
            if file is not None and file.state == FileState.LOCAL and short in detail:
                del run.files[name]
                self._delete.append(name)
                shard = self.table.node_of(name)
                self.send(shard, m.Lost(run.id, (name,), self.node))
                self.send(shard, m.Poison(run.id, (name,), f"{short} was written on by a task that reads it"))

    def _end(self, entry: TaskEntry, result: m.Result) -> None:
        run, spec = entry.run, entry.spec
        del run.tasks[spec.tid]
        run.ended += 1
        if result.attempt != spec.attempt:
            result = msgspec.structs.replace(result, attempt=spec.attempt)
        key = (run.id, spec.origin)
        results = self._results.get(key)
        if results is None:
            self._results[key] = [result]
            self._touched[run.id] = None
        else:
            results.append(result)

    # ── stealing ───────────────────────────────────────────────────────────────────────────────────

    def _idle(self) -> bool:
        return len(self.inflight) < self.slots and not self.ready and bool(self.runs) and bool(self.peers)

    def on_steal_ask(self, peer: int, message: m.StealAsk) -> None:
        want = min(message.want, (len(self.ready) + 1) // 2)
        taken = self.ready.take_back(want) if want and len(self.inflight) >= self.slots else []
        by_run: dict[int, list[m.TaskSpec]] = {}
        for entry in reversed(taken):
            self._forget(entry)
            entry.run.counters["stolen"] += 1
            by_run.setdefault(entry.run.id, []).append(entry.spec)
        for run, specs in by_run.items():
            self.send(peer, m.Assign(run, tuple(specs)))
        if not taken:
            self.send(peer, m.StealNone())

    def on_steal_none(self, peer: int, message: m.StealNone) -> None:
        pass  # the timer asks the next neighbour

    def on_steal_timer(self) -> None:
        """Ask the next neighbour in the ring, ever more rarely while nobody has anything."""
        self.steal_wait_s = min(max(self.steal_wait_s * 2, self.limits.steal_first_s), self.limits.steal_last_s)
        if not self._idle():
            self.steal_wait_s = 0.0
            return
        self.victim = (self.victim + 1) % len(self.peers)
        self.send(self.peers[self.victim], m.StealAsk(2 * self.slots))
        self.set_timer("steal", self.steal_wait_s)

    # ── the machine's surroundings change ──────────────────────────────────────────────────────────

    def set_view(self, table: PartitionTable, peers: list[int], dead: set[int]) -> None:
        """Membership changed: publish and ask again what moved to another shard; forget what the dead held."""
        moved = self.table.moved(table) if len(self.table.owners) == len(table.owners) else None
        changed = self.table.owners != table.owners
        self.table = table
        self.peers = peers
        for run in self.runs.values():
            for file in list(run.files.values()):
                if file.state == FileState.REMOTE and any(holder in dead for holder in file.holders):
                    left = tuple(holder for holder in file.holders if holder not in dead)
                    self._move_file(file, FileEvent.HOLDER_LOST)
                    file.holders = left
                    file.fetching = False
                    for entry in file.waiting:
                        entry.unlocated += 1
                    self._locate_file(run, file)
                elif changed and (moved is None or self._moved(file.name, moved)):
                    if file.state == FileState.LOCAL:
                        # Readers can no longer be counted by a shard that starts from nothing: keep to the end of the run.
                        self._publish_file(run, file.name, file.size, m.fate(m.KEEP))
                    elif file.state == FileState.INVALID:
                        self._locate_file(run, file)
            for entry in list(run.tasks.values()):
                if entry.spec.origin in dead and entry.state in (TaskState.INVALID, TaskState.READY):
                    if entry.state == TaskState.INVALID:
                        self._unpark(entry)
                    self._forget(entry)  # the submitter gives it to another dispatcher, which will assign it anew

    def _moved(self, name: str, moved: set[int]) -> bool:
        from amfs._native import xxh64

        return xxh64(name) % len(self.table.owners) in moved

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
        if self.peers and not self.steal_wait_s and self._idle():
            self.steal_wait_s = self.limits.steal_first_s
            self.set_timer("steal", self.steal_wait_s)

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
        for key in [key for key in self._took if key[0] == run]:
            self.send(key[1], m.Took(run, tuple(self._took.pop(key))))
        known = self.runs.get(run)
        if known is None:
            return
        if flushed := self._flushed.pop(run, None):
            self.send(known.submitter, m.Flushed(run, tuple(flushed)))
        running = len(self.inflight)
        for key in [key for key in self._results if key[0] == run]:
            origin = key[1]
            known.reported[origin] = known.parked.get(origin, 0)
            self.send(origin, m.Done(run, tuple(self._results.pop(key)), known.reported[origin], running))
        for origin, parked in known.parked.items():
            if abs(parked - known.reported.get(origin, 0)) >= self.limits.parked_step:
                known.reported[origin] = parked
                self.send(origin, m.Done(run, (), parked, running))

    def explain(self, run: int, tid: int) -> list[str]:
        """Why is it not running? In words."""
        known = self.runs.get(run)
        entry = known.tasks.get(tid) if known else None
        if known is None or entry is None:
            return []
        if entry.state == TaskState.INVALID:
            waits = [f for f in (known.files.get(n) for n in entry.spec.inputs) if f is not None and entry in f.waiting]
            cut = len(known.info.scope)
            return [
                f"node {self.node}: waits for {f.name[cut:]}: "
                + ("nobody has made it yet" if f.state == FileState.INVALID else f"on its way from node {f.holders[:1]}")
                for f in waits
            ]
        if entry.state == TaskState.READY:
            return [f"node {self.node}: READY, {len(self.ready)} in the queue for {self.slots} slots"]
        if entry.state == TaskState.RUNNING:
            return [f"node {self.node}: given to the launcher, {len(self.inflight)} tasks there for {self.slots} slots"]
        return [f"node {self.node}: {entry.state.name}"]

    def check_invariants(self) -> None:
        for run in self.runs.values():
            counted: dict[int, int] = {}
            for entry in run.tasks.values():
                assert entry.state in (TaskState.INVALID, TaskState.READY, TaskState.RUNNING, TaskState.FLUSHING, TaskState.MOVED)
                if entry.state == TaskState.INVALID:
                    assert entry.missing > 0, f"task {entry.spec.tid} waits for nothing"
                    counted[entry.spec.origin] = counted.get(entry.spec.origin, 0) + 1
                elif entry.state == TaskState.RUNNING:
                    assert self.inflight[entry.serial] is entry
                elif entry.state == TaskState.READY and not run.closing:
                    assert entry.missing == 0, f"task {entry.spec.tid} READY with {entry.missing} inputs missing"
            if not run.closing:
                assert counted == {k: v for k, v in run.parked.items() if v}, (counted, run.parked)
            for file in run.files.values():
                if file.state in (FileState.LOCAL, FileState.SHARED):
                    assert not [e for e in file.waiting if e.state == TaskState.INVALID], f"{file.name} is there, and tasks wait for it"
