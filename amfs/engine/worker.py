"""The worker of one node (AME §3.5): its tasks. Pure.

Owns the life of tasks on this node: they arrive, are parked under the files that they wait for, become READY, go to the launcher with a
small backlog, end, are reported, are stolen. Files are in ``availability``. It does not know how processes start: it sends ``Launch`` and
receives ``TasksExited``.

AME's threads are methods here: fetcher = ``on_assign``, task mover = ``_admit`` and ``_there``, receiver = ``on_located``,
committer = ``flush``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from amfs.config import MemoryLimits, WorkerLimits
from amfs.engine.fls import SHARED_RETENTION
from amfs.engine.spilling import Spilling
from amfs.engine.worker_state import File, Run, TaskEntry
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AdoptFiles,
    FileDamaged,
    JobDone,
    Launch,
    MembersChanged,
    ReadRoom,
    RoomRead,
    StoreFailed,
    TasksExited,
    TimerFired,
)
from amfs.vocabulary.paths import NamedFiles, in_namespace, sandbox_name, shared_path, store_path
from amfs.vocabulary.records import BLIND, DIRECTORIES, IS_DIRECTORY, STAGED, pack_record, unpack_body
from amfs.vocabulary.states import FileEvent, FileState, Outcome, Place, TaskEvent, TaskState
from amfs.workflow.tokens import is_token, task_of
from amfs.workflow.workflow import some

_DEFAULTS = m.Options()
READ_IN_PLACE = (Place.SPILLED, Place.RETURNING)


class Worker(Spilling):
    """One node's worker: the tasks' side, and the table of what it listens to."""

    def __init__(
        self, node: int, slots: int, store: str, limits: WorkerLimits | None = None, memory: MemoryLimits | None = None
    ) -> None:
        super().__init__(node, slots, store, limits, memory)
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
            m.OutOfService: self.on_out_of_service,
            m.StealAsk: self.on_steal_ask,
            m.StealNone: self.on_steal_none,
        }
        self.on_event = {
            TasksExited: self.on_exited, JobDone: self.on_job_done, StoreFailed: self.on_store_failed, FileDamaged: self.on_file_damaged,
            AdoptFiles: self.on_adopt, TimerFired: self.on_timer, MembersChanged: self.on_view,
            RoomRead: self.on_room_read,
        }  # fmt: skip

    # ── tasks come in ──────────────────────────────────────────────────────────────────────────────

    def on_assign(self, peer: int, message: m.Assign) -> None:
        run = self._run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        for spec in message.tasks:
            if peer != spec.origin:
                self._moved_tasks.setdefault((run.id, spec.origin, -1), []).append((spec.tid, spec.attempt))
                self._touched[run.id] = None
            known = run.tasks.get(spec.tid)
            if known is not None:
                # Repeated, or its dispatcher was rebuilt elsewhere, or there are two: keep the work, report to each that asks.
                if (known.spec.origin, known.spec.attempt) == (spec.origin, spec.attempt):
                    continue
                earlier, askers = known.spec, known.askers
                if known.state in (TaskState.RUNNING, TaskState.FLUSHING):
                    known.spec = spec
                    known.also_for(earlier, askers)
                    continue
                self._take_back(known)
                self._admit(run, spec, message.moved)
                if spec.tid in run.tasks:
                    run.tasks[spec.tid].also_for(earlier, askers)
                continue
            self._admit(run, spec, message.moved)

    def _take_back(self, entry: TaskEntry) -> None:
        """The task is given up here, not begun."""
        if entry.state == TaskState.INVALID:
            self._unpark(entry)
        self._forget(entry)

    def _admit(self, run: Run, spec: m.TaskSpec, moved: bool) -> None:
        entry = TaskEntry(run, spec, moved)
        run.tasks[spec.tid] = entry
        if spec.options is not None and spec.options.paths:
            run.paths.update(spec.options.paths)
        files = run.files
        for name in spec.inputs:
            file = files.get(name)
            if file is None:
                file = files[name] = File(name)
                self._locate_file(run, file)
            file.users += 1
            state = file.state
            if state == FileState.LOCAL or state == FileState.SHARED:
                entry.bytes_in += file.size
                continue
            file.waiting.append(entry)
            entry.missing += 1
            if state == FileState.INVALID:
                entry.unlocated += 1
        for name in spec.shared:
            if run.info.stage_shared or in_namespace(name, len(run.info.scope)):
                self._stage(run, entry, name)
        if not entry.missing:
            self._become_ready(entry)
            return
        parked = run.parked
        parked[spec.origin] = parked.get(spec.origin, 0) + 1
        self._touched[run.id] = None
        if not entry.unlocated:
            self._all_located(entry)

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    def _pump(self) -> None:
        """Keep the launcher's slots full, and a little more in its queue, so that it never has to ask."""
        ready, memory = self.ready, self.memory
        hard = memory.limit and (memory.used + memory.coming > memory.easy or self.granted or self.fetches or self.wanted)
        if not (ready or hard):
            return
        ahead = min(self.limits.backlog_max, int(self.slots * self.limits.backlog_s / self.mean_s))
        target = self.slots + ahead
        if hard and not self.plenty(target):
            self.pump_within_memory(target)
            return
        if not ready:
            return
        inflight = self.inflight
        if len(inflight) >= target:
            return
        entries: list[TaskEntry] = []
        while len(inflight) + len(entries) < target and ready:
            entry = ready.pop()
            if entry.state == TaskState.READY:
                entries.append(entry)
        self.launch(entries)

    def launch(self, entries: Sequence[TaskEntry]) -> None:
        """Give them to the launcher."""
        records: list[bytes] = []
        blind = False
        for entry in entries:
            self.serial += 1
            record = self._record(self.serial, entry)
            self._move(entry, TaskEvent.LAUNCHED)
            entry.serial = self.serial
            self.inflight[self.serial] = entry
            entry.run.in_launcher += 1
            records.append(record)
            blind = blind or (entry.spec.options is not None and bool(entry.spec.options.blind))
        if records:
            self.out.append(Launch(records, blind))

    def _record(self, serial: int, entry: TaskEntry) -> bytes:
        spec = entry.spec
        run = entry.run
        info = run.info
        if spec.options is None and not (spec.inputs or spec.outputs or spec.shared):
            return pack_record(serial, spec.body, flags=run.flags | STAGED, context=run.id, capture=info.capture_bytes)
        scope = info.scope
        cut = len(scope)
        options = spec.options or _DEFAULTS
        root = self.store
        inputs: list[tuple[str, str]] = []
        given = entry.given = []
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
                    if is_token(short):
                        continue
                    if short[0] != "/" or deep:
                        given.append(name)
                        inputs.append(("@" + shared_path(info.base, short, info.hashed_outputs), sandbox_name(short, info.base)))
                        stamps.append((0, 1) if short in options.filled else (0, 0))
                else:
                    source = f"@{self.copy_path(file)}" if file.place in READ_IN_PLACE else store_path(root, scope, name)
                    given.append(name)
                    inputs.append((source, sandbox_name(short, info.base) if deep else short))
                    stamps.append((file.size, file.mtime_ns))
            for name in spec.shared:
                short = name[cut:]
                if in_namespace(short) or (info.stage_shared and not (short[0] == "/" and not deep)):
                    staged = run.files.get(name)
                    spilled = staged is not None and staged.place in READ_IN_PLACE
                    source = f"@{self.copy_path(staged)}" if staged is not None and spilled else store_path(root, scope, name)
                    inputs.append((source, sandbox_name(short, info.base)))
                elif short[0] != "/" or deep:
                    path = run.paths.get(short) or shared_path(info.base, short)
                    inputs.append(("@" + path, sandbox_name(short, info.base)))
                else:
                    inputs.append(("@" + short, short))  # read where it is, and compared like the others
                given.append(name)
                stamps.append((0, 1) if short in options.filled else (0, 0))  # a time that is known: none is taken, and it is not compared
            for name in spec.outputs:
                short = name[cut:]
                if short[0] == "/" and not deep:
                    outputs.append((short, ""))
                else:
                    outputs.append((sandbox_name(short, info.base) if deep else short, store_path(root, scope, name)))
        flags = run.flags
        if options.blind:
            flags |= BLIND
        elif not options.unstaged:
            flags |= STAGED if options.depth or options.reduce or info.hashed_outputs else STAGED | DIRECTORIES
        return pack_record(
            serial,
            spec.body,
            flags=flags,
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

    def needs(self, serial: int) -> Callable[[str], bool] | None:
        """Says of a path whether a blind task that ended well is to be doubted if it looked for it in vain; None: never.

        A pipeline hides that its first program found no file. So what the command line names has to be there, unless the task was sent to
        do without.
        """
        entry = self.inflight.get(serial)
        options = entry.spec.options if entry is not None else None
        if entry is None or options is None or options.lenient:
            return None
        return NamedFiles(unpack_body(entry.spec.body)[1][1:], options.blind).has

    def origin_of(self, serial: int) -> bytes:
        """What the records of files are to keep of the task that made them."""
        entry = self.inflight.get(serial)
        return self.origin(entry) if entry is not None else b""

    def on_exited(self, event: TasksExited) -> None:
        node = self.node
        self.memory.changed()
        for serial, outcome, code, slot, start_us, end_us, cpu_us, maxrss, made, stdout, stderr, detail, facts in event.completions:
            entry = self.inflight.pop(serial, None)
            if entry is None:
                continue
            run = entry.run
            run.in_launcher -= 1
            if run.closing:
                del run.tasks[entry.spec.tid]
                self._close_if_empty(run)
                continue
            spec = entry.spec
            self.mean_s += ((end_us - start_us) * 1e-6 - self.mean_s) * 0.1
            if self.mean_s < 1e-5:
                self.mean_s = 1e-5
            result = m.Result(
                spec.tid, spec.attempt, outcome, code, node, slot, start_us, end_us, cpu_us, maxrss, entry.bytes_in,
                sum([stamp[0] for stamp in made]) if made else 0, detail, stdout, stderr,
                tuple([stamp[0] for stamp in made]) if made else (), entry.bytes_fetched,
                times=tuple([stamp[1] for stamp in made]) if made else (),
            )  # fmt: skip
            changed: Sequence[int] = ()
            if facts is not None:
                changed, whole, stdout_bytes, sandbox, left = facts
                result = msgspec.structs.replace(result, whole=whole, stdout_bytes=stdout_bytes, sandbox=sandbox, left=left)
            if serial in event.traces:
                missing, new = event.traces[serial]
                vain = f"{detail}; looked in vain for {some(missing[::-1])}" if missing else detail
                result = msgspec.structs.replace(result, missing=missing, made=new, detail=vain)
            if outcome:
                if outcome == Outcome.SETUP and run.unstored:
                    why = next((error for name, error in run.unstored.items() if name in spec.inputs), "")
                    result = msgspec.structs.replace(result, detail=f"{detail} ({why})" if why else detail)
                if outcome == Outcome.INPUT_CHANGED:
                    keys = [entry.given[place] for place in changed]
                    result = msgspec.structs.replace(result, suspects=self._suspects(run, result, keys))
                    self._spoiled(run, keys)
                self._move(entry, TaskEvent.WENT_WRONG)
                self._end(entry, result)
                continue
            if spec.outputs:
                if self.memory.limit:
                    self.memory.made(result.bytes_out - sum([stamp[2] for stamp in made if len(stamp) > 2]))
                self._outputs_made(entry, made)
            if entry.flushing:
                entry.result = result
                self._move(entry, TaskEvent.WROTE_FINALS)
            else:
                self._move(entry, TaskEvent.SUCCEEDED)
                self._end(entry, result)

    def _outputs_made(self, entry: TaskEntry, made: tuple[tuple[int, ...], ...]) -> None:
        """The launcher has published the outputs into the store: LOCAL here, VALID at the FLS, finals on their way out."""
        run, spec = entry.run, entry.spec
        options = spec.options
        in_place = options is not None and options.unstaged
        deep = options is not None and options.depth > 0
        cut = len(run.info.scope)
        for name, retention, (size, mtime_ns, *holes) in zip(spec.outputs, spec.retentions, made, strict=True):
            file = run.files.get(name)
            if in_place or (name[cut] == "/" and not deep) or mtime_ns == IS_DIRECTORY:  # written straight to shared storage
                if file is None:
                    file = run.files[name] = File(name)
                file.size = size
                fresh = file.state == FileState.INVALID
                if fresh:
                    self._move_file(file, FileEvent.ON_SHARED)
                self._publish_file(run, name, size, SHARED_RETENTION)
                self._there(run, file, fresh)
                continue
            if not retention and file is None:  # nobody reads it, nobody wants it
                self._delete.append(name)
                continue
            if file is None:
                file = run.files[name] = File(name)
            if file.state != FileState.LOCAL:  # else it was made, or fetched, before: the store has kept that one
                file.size = size
                file.holes = holes[0] if holes else 0
                file.mtime_ns = mtime_ns
            file.fetching = False
            file.dropped = False
            if retention & m.FINAL:
                entry.flushing += 1
                self._copy_out(run, name, entry)
                if in_namespace(name, cut):
                    continue  # whether it becomes a file is known when it has been taken out: nobody reads it before
            fresh = file.state == FileState.INVALID
            self._move_file(file, FileEvent.PRODUCED)
            self._publish_file(run, name, size, retention)
            if file.waiting:
                self._there(run, file, fresh)

    def _suspects(self, run: Run, result: m.Result, changed: Sequence[str]) -> tuple[int, ...]:
        """Inputs were changed while a task read them, which need not have been this task. The others that had them at that time."""
        others = set()
        for name in changed:
            had = run.spoilers.setdefault(name, [])
            others |= {tid for tid, end_us in had if end_us >= result.start_us}
            had.append((result.tid, result.end_us))
            # The launcher starts them in order, so the first ones are those that run.
            for entry in islice(self.inflight.values(), self.slots):
                if entry.run is run and (name in entry.spec.inputs or name in entry.spec.shared):
                    others.add(entry.spec.tid)
        others.discard(result.tid)
        return tuple(sorted(others))

    def _spoiled(self, run: Run, changed: Sequence[str]) -> None:
        """A task wrote on its inputs: this node's copies are worthless. Tasks that were to read them wait for others, which a holder has
        or which the submitter has made again."""
        for name in changed:
            file = run.files.get(name)
            if file is not None and file.state == FileState.LOCAL:
                self._give_up(run, file)

    # ── stealing ───────────────────────────────────────────────────────────────────────────────────

    def on_out_of_service(self, peer: int, message: m.OutOfService) -> None:
        if message.run in self.runs:
            self.runs[message.run].in_service = False

    def _idle(self) -> bool:
        free = len(self.inflight) < self.slots and not self.ready and bool(self.runs) and bool(self.peers)
        return free and all(run.in_service for run in self.runs.values())

    def on_steal_ask(self, peer: int, message: m.StealAsk) -> None:
        want = min(message.want, (len(self.ready) + 1) // 2)
        taken = self.ready.take_back(want) if want and (len(self.inflight) >= self.slots or self.wanted) else []
        self._give(peer, taken)
        if not taken:
            self.send(peer, m.StealNone())

    def _give(self, peer: int, taken: Sequence[TaskEntry]) -> None:
        by_run: dict[int, list[m.TaskSpec]] = {}
        for entry in reversed(taken):
            self._forget(entry)
            entry.run.counters["stolen"] += 1
            self._gave(entry, peer)
            by_run.setdefault(entry.run.id, []).append(entry.spec)
        for run, specs in by_run.items():
            self.send(peer, m.Assign(run, tuple(specs), moved=True))

    def on_view(self, event: MembersChanged) -> None:
        """If this node drains it begins nothing more, and gives away what it has not begun."""
        self.on_members_changed(event)
        if self.node in event.draining:
            self.slots = 0
            if self.peers and (taken := self.ready.take_back(len(self.ready))):
                for number, peer in enumerate(self.peers):
                    self._give(peer, taken[number :: len(self.peers)])

    def on_steal_none(self, peer: int, message: m.StealNone) -> None:
        pass  # the timer asks the next neighbour

    def on_timer(self, event: TimerFired) -> None:
        """Ask the next neighbour in the ring, ever more rarely while nobody has anything."""
        if event.key != "steal":
            self.on_memory_timer(event.key)
            return
        self.steal_wait_s = min(max(self.steal_wait_s * 2, self.limits.steal_first_s), self.limits.steal_last_s)
        if not self._idle():
            self.steal_wait_s = 0.0
            return
        if self.memory.may_take():
            self.victim = (self.victim + 1) % len(self.peers)
            self.send(self.peers[self.victim], m.StealAsk(2 * self.slots))
        else:  # a task would wait here as it does there, and two full nodes would pass it to and fro and never say that they have no room
            self.out.append(ReadRoom())
        self.set_timer("steal", self.steal_wait_s)

    def _look_around(self) -> None:
        if self.peers and not self.steal_wait_s and self._idle():
            self.steal_wait_s = self.limits.steal_first_s
            self.set_timer("steal", self.steal_wait_s)

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
                f"node {self.node}: waits for task #{task_of(f.name[cut:])} to finish"
                if is_token(f.name[cut:])
                else f"node {self.node}: waits for {f.name[cut:]}: "
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
        self.check_memory()
