"""The worker of one node (AME §3.5): its tasks. Pure.

Owns the life of tasks on this node: they arrive, are parked under the files that they wait for, become READY, go to the launcher with a
small backlog, end, are reported, are stolen. It has a ``FileTable``, a ``Room`` and an ``Outbox``, which share ``WorkerState``. It does not
know how processes start: it sends ``Launch`` and receives ``TasksExited``.

AME's threads are methods: fetcher = ``on_assign``, task mover = ``_admit`` and ``FileTable.there``, receiver = ``FileTable.on_located``,
committer = ``flush``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from amfs.config import MemoryLimits, WorkerLimits
from amfs.engine.file_table import FileTable
from amfs.engine.fls import SHARED_RETENTION
from amfs.engine.handing_over import HandingOver
from amfs.engine.launches import Launches
from amfs.engine.machine import Machine
from amfs.engine.room import Room
from amfs.engine.worker_records import File, Run, TaskEntry
from amfs.engine.worker_state import WorkerState
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AdoptFiles,
    CloseRun,
    Effect,
    Event,
    FileDamaged,
    GiveWay,
    JobDone,
    Kill,
    MembersChanged,
    MoveAway,
    OpenRun,
    ReadRoom,
    RoomGiven,
    RoomRead,
    RoomTaken,
    StoreFailed,
    TasksExited,
    TimerFired,
)
from amfs.vocabulary.paths import NamedFiles, in_namespace, is_brought
from amfs.vocabulary.records import IS_DIRECTORY, listing_of, unpack_body
from amfs.vocabulary.states import FileEvent, FileState, Outcome, TaskEvent, TaskState
from amfs.workflow.tokens import is_token, task_of
from amfs.workflow.workflow import some

DISK_JOBS = ("spill", "back")


class Worker(Machine):
    """One node's worker: the table of what it listens to, and the life of its tasks."""

    def __init__(
        self, node: int, slots: int, store: str, limits: WorkerLimits | None = None, memory: MemoryLimits | None = None
    ) -> None:
        super().__init__(node)
        self.state = state = WorkerState(node, slots, store, limits, memory)
        self.outbox = state.outbox
        self.memory = state.memory
        self.slots = slots
        self.store = store
        self.limits = state.limits
        self.runs = state.runs
        self.ready = state.ready
        self.inflight = state.inflight
        self.jobs = state.jobs
        self.files = files = FileTable(state)
        self.launches = Launches(state)
        self.handing_over = handing_over = HandingOver(state, files)
        self.room = Room(state, files, self.launches)
        self.mean_s = 0.05  # running mean of how long a task takes, for the size of the backlog
        self.measured = False  # some task has ended here, so there is such a mean
        self.steal_wait_s = 0.0  # 0: no steal under way
        self.victim = 0
        self.on_message = {
            m.RunBegin: self.on_run_begin,
            m.RunEnd: self.on_run_end,
            m.Assign: self.on_assign,
            m.Located: files.on_located,
            m.FileFailed: files.on_file_failed,
            m.Fetch: files.on_fetch,
            m.Content: files.on_content,
            m.Drop: files.on_drop,
            m.Flush: files.on_flush,
            m.TakeFiles: handing_over.on_take,
            m.FilesTaken: handing_over.on_taken,
            m.OutOfService: self.on_out_of_service,
            m.StealAsk: self.on_steal_ask,
            m.StealNone: self.on_steal_none,
        }
        self.on_event = {
            TasksExited: self.on_exited, JobDone: self.on_job_done, StoreFailed: files.on_store_failed, FileDamaged: files.on_file_damaged,
            AdoptFiles: files.on_adopt, TimerFired: self.on_timer, MembersChanged: self.on_view,
            MoveAway: self.on_move_away, GiveWay: self.room.give_way, RoomGiven: self.room.on_given,
            RoomRead: lambda event: state.memory.read(event.free, event.others, event.spilled, event.parts),
        }  # fmt: skip

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.outbox.now = now
        self.outbox.out = self.out
        return super().handle(event, now)

    def flush(self) -> None:
        self._pump()
        if self.state.too_long:
            self._pass_on()
        self.outbox.flush(self.state.table, self.runs, self.limits.parked_step)
        memory = self.memory
        if memory.limits.firm and memory.told != (taken := (memory.used + memory.coming, memory.on_disk)):
            memory.told = taken
            self.outbox.act(RoomTaken(*taken))
        self._look_around()

    # ── runs, and the nodes around ─────────────────────────────────────────────────────────────────

    def on_run_begin(self, peer: int, message: m.RunBegin) -> None:
        if message.run not in self.runs and message.run not in self.state.gone:
            self.runs[message.run] = Run(message.run, message.client, message.info)
            self.outbox.act(OpenRun(message.run, message.info))
            for sender, early in self.state.early.pop(message.run, []):
                self.on_message[type(early)](sender, early)
        if message.run in self.state.gone:
            self.outbox.send(message.client, m.RunGone(message.run, self.node, {}))
        else:
            self._say_ready(self.runs[message.run])

    def _say_ready(self, run: Run) -> None:
        """Tell the submitter that the run may begin here, unless tasks of another one with the same journal are still about."""
        journal = run.info.journal
        if not journal or not any(other is not run and other.info.journal == journal for other in self.runs.values()):
            self.outbox.send(run.submitter, m.RunReady(run.id, self.node))

    def on_run_end(self, peer: int, message: m.RunEnd) -> None:
        run = self.runs.get(message.run)
        if run is None:
            self.state.early.pop(message.run, None)
            self.state.gone.add(message.run)
            if peer >= m.CLIENT_ID_MIN:
                self.outbox.send(peer, m.RunGone(message.run, self.node, {}))
            return
        run.closing = True
        for entry in run.tasks.values():
            if entry.state in (TaskState.INVALID, TaskState.READY):
                entry.state = TaskState.MOVED  # a queue that still has it skips it
        serials = [serial for serial, entry in self.inflight.items() if entry.run is run]
        if serials:
            self.outbox.act(Kill(serials))
        self._close_if_empty(run)

    def _close_if_empty(self, run: Run) -> None:
        if run.in_launcher or any(job[1] is run for job in self.jobs.values()):
            return
        for file in run.files.values():
            self.state.removed(file)
        del self.runs[run.id]
        self.state.gone.add(run.id)
        self.outbox.act(CloseRun(run.id, run.info.scope))
        self.outbox.send(run.submitter, m.RunGone(run.id, self.node, run.counters))
        for other in self.runs.values():
            if run.info.journal and other.info.journal == run.info.journal and not other.closing:
                self._say_ready(other)

    def on_members_changed(self, event: MembersChanged) -> None:
        """Files see to what was lost or moved; tasks of dispatchers that died are forgotten, or reported to another that gave them."""
        state, dead = self.state, event.dead
        before, state.table = state.table, event.table
        state.peers = event.ring
        state.alive = event.slots.keys()
        self.files.members_changed(before, dead, event.in_order)
        for run in self.runs.values():
            for entry in list(run.tasks.values()):
                if entry.spec.origin in dead and entry.state in (TaskState.INVALID, TaskState.READY):
                    parked = entry.parked
                    self.state.unpark(entry)
                    asker = next((asker for asker in entry.askers if asker[0] not in dead), None)
                    if asker is None:
                        self.state.forget(entry)  # the submitter gives it to another dispatcher, which will assign it anew
                        continue
                    entry.spec = msgspec.structs.replace(entry.spec, origin=asker[0], attempt=asker[1])
                    entry.askers = tuple(other for other in entry.askers if other != asker)
                    if parked:
                        self.state.park(entry)

    def on_job_done(self, event: JobDone) -> None:
        job = self.jobs.pop(event.serial, None)
        if job is None:
            return
        kind, run, name, entry = job
        if kind in DISK_JOBS:
            self.room.job_done(kind, run, name, event)
        else:
            self.files.job_done(kind, run, name, entry, event)
        if run.closing:
            self._close_if_empty(run)

    # ── tasks come in ──────────────────────────────────────────────────────────────────────────────

    def on_assign(self, peer: int, message: m.Assign) -> None:
        run = self.state.run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        for spec in message.tasks:
            if peer != spec.origin:
                self.outbox.moved(run.id, spec, -1)
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
            self.state.unpark(entry)
        self.state.forget(entry)

    def _admit(self, run: Run, spec: m.TaskSpec, moved: bool) -> None:
        entry = TaskEntry(run, spec, moved)
        run.tasks[spec.tid] = entry
        if spec.options is not None:
            run.paths.update(spec.options.paths)
            run.versions.update(spec.options.versions)
        files = run.files
        for name in spec.inputs:
            file = files.get(name)
            if file is None:
                file = files[name] = File(name)
                self.outbox.locate(run.id, name)
            file.users += 1
            state = file.state
            if state == FileState.LOCAL or state == FileState.SHARED:
                entry.bytes_in += file.size
                continue
            file.waiting.append(entry)
            entry.missing += 1
            entry.staging += file.staged
            if state == FileState.INVALID:
                entry.unlocated += 1
        for name in spec.shared:
            if run.info.stage_shared or is_brought(name[len(run.info.scope):], run.paths):
                self.files.stage(run, entry, name)
        if not entry.missing:
            self.state.become_ready(entry)
            return
        if entry.missing > entry.staging:
            self.state.park(entry)
        self.outbox.touch(run.id)
        if not entry.unlocated:
            self.files.all_located(entry)

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    def _pump(self) -> None:
        """Keep the launcher's slots full, and a little more in its queue, so that it never has to ask."""
        ready, memory = self.ready, self.memory
        hard = memory.limit and (memory.used + memory.coming > memory.easy or self.room.granted or self.files.fetches or self.room.wanted)
        if not (ready or hard):
            return
        ahead = min(self.limits.backlog_max, int(self.slots * self.limits.backlog_s / self.mean_s))
        target = self.slots + ahead
        if hard and not self.room.plenty(target):
            self.room.pump(target)
            return
        if not ready:
            return
        if self._is_alone():
            target = self.slots + max(ahead, self.limits.backlog_alone)
        inflight = self.inflight
        if len(inflight) >= target:
            return
        entries: list[TaskEntry] = []
        while len(inflight) + len(entries) < target and ready:
            entry = ready.pop()
            if entry.state == TaskState.READY and self.state.may_begin(entry):
                entries.append(entry)
        self.launches.launch(entries)

    def _is_alone(self) -> bool:
        """Could nobody else begin a task sooner that waits at the launcher, and does it not wait long there? Not if this node drains."""
        state, short = self.state, self.measured and self.mean_s <= self.limits.alone_s
        # A file on the disk may be changed there, so a task begins right after the node has looked at its inputs.
        return self.slots > 0 and short and not state.peers and not self.memory.on_disk and not state.time_left.has_end(self.node)

    def needs(self, serial: int) -> Callable[[str], bool] | None:
        """Says of a path whether a blind task that ended well is to be doubted if it looked for it in vain; None: never.

        A pipeline hides that its first program found no file. So files on the command line have to be there, unless the task was sent to
        do without.
        """
        entry = self.inflight.get(serial)
        options = entry.spec.options if entry is not None else None
        if entry is None or options is None or options.lenient:
            return None
        return NamedFiles(unpack_body(entry.spec.body)[1][1:], options.blind).has

    def origin_of(self, serial: int) -> bytes:
        """The origin for the records of files that this task made."""
        entry = self.inflight.get(serial)
        return self.files.origin(entry) if entry is not None else b""

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
            self.measured = True
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
                if changed:
                    keys = [entry.given[place] for place in changed]
                    if outcome == Outcome.INPUT_CHANGED:
                        result = msgspec.structs.replace(result, suspects=self._suspects(run, result, keys))
                    self._spoiled(run, keys)
                self.state.move(entry, TaskEvent.WENT_WRONG)
                self.state.end(entry, result)
                continue
            if spec.outputs:
                if self.memory.limit:
                    self.memory.made(result.bytes_out - sum([stamp[2] for stamp in made if len(stamp) > 2]))
                self._outputs_made(entry, made)
            if entry.flushing:
                entry.result = result
                self.state.move(entry, TaskEvent.WROTE_FINALS)
            else:
                self.state.move(entry, TaskEvent.SUCCEEDED)
                self.state.end(entry, result)

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
                    self.state.move_file(file, FileEvent.ON_SHARED)
                self.outbox.publish(run.id, name, size, SHARED_RETENTION)
                self.files.there(run, file, fresh)
                continue
            if not retention and file is None:  # nobody reads it, nobody wants it
                self.outbox.delete(name)
                continue
            if file is None:
                file = run.files[name] = File(name)
            if file.state != FileState.LOCAL:  # else it was made, or fetched, before: the store has kept that one
                file.size = size
                file.holes = holes[0] if holes else 0
                file.mtime_ns = mtime_ns
            file.fetching = False
            file.dropped = False
            file.listing = listing = listing_of(mtime_ns)
            file.fixed = bool(listing)
            if listing:  # a directory: wherever tasks read it, it goes to its URL
                file.mtime_ns = 0
            if retention & m.FINAL or listing:
                entry.flushing += 1
                self.files.copy_out(run, name, entry)
                if in_namespace(name, cut) or listing:
                    continue  # whether it becomes a file is known when it has been taken out: nobody reads it before
            fresh = file.state == FileState.INVALID
            self.state.move_file(file, FileEvent.PRODUCED)
            self.outbox.publish(run.id, name, size, retention)
            if file.waiting:
                self.files.there(run, file, fresh)

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
        """A task wrote on its inputs, or the disk lost them: this node's copies are worthless. Tasks that were to read them wait
        for others, which a holder has or which the submitter has made again."""
        for name in changed:
            file = run.files.get(name)
            if file is not None and file.state == FileState.LOCAL:
                self.files.give_up(run, file)

    # ── stealing ───────────────────────────────────────────────────────────────────────────────────

    def on_out_of_service(self, peer: int, message: m.OutOfService) -> None:
        if message.run in self.runs:
            self.runs[message.run].in_service = False

    def _idle(self) -> bool:
        free = len(self.inflight) < self.slots and not self.ready and bool(self.runs) and bool(self.state.peers)
        return free and all(run.in_service for run in self.runs.values())

    def on_steal_ask(self, peer: int, message: m.StealAsk) -> None:
        want = min(message.want, (len(self.ready) + 1) // 2)
        taken = self.ready.take_back(want) if want and (len(self.inflight) >= self.slots or self.room.wanted) else []
        time_left, now = self.state.time_left, self.outbox.now
        for entry in [entry for entry in taken if not time_left.is_enough(peer, entry.spec, now)]:
            taken.remove(entry)
            self.ready.push(entry)
        self._give(peer, taken)
        if not taken:
            self.outbox.send(peer, m.StealNone())

    def _pass_on(self) -> None:
        """Tasks that would not end before the job of this node does go to nodes that have the time. If there is none they wait for one."""
        waiting, self.state.too_long = self.state.too_long, []
        given: dict[int, list[TaskEntry]] = {}
        for entry in waiting:
            options = entry.spec.options
            if entry.state != TaskState.READY:
                continue
            fixed = entry.askers or options is None or options.pin >= 0
            able = [] if fixed else self.state.time_left.enough(self.state.peers, entry.spec, self.outbox.now)
            if able:
                given.setdefault(able[entry.spec.tid % len(able)], []).append(entry)
            else:
                self.state.stranded.append(entry)
        for peer, entries in given.items():
            self._give(peer, entries)

    def _give(self, peer: int, taken: Sequence[TaskEntry]) -> None:
        by_run: dict[int, list[m.TaskSpec]] = {}
        for entry in reversed(taken):
            self.state.forget(entry)
            entry.run.counters["stolen"] += 1
            self.outbox.moved(entry.run.id, entry.spec, peer)
            by_run.setdefault(entry.run.id, []).append(entry.spec)
        for run, specs in by_run.items():
            self.outbox.send(peer, m.Assign(run, tuple(specs), moved=True))

    def on_view(self, event: MembersChanged) -> None:
        """If this node drains it begins nothing more, and gives away what it has not begun."""
        self.state.time_left.learn(event.ends)
        self.on_members_changed(event)
        self.handing_over.on_members_changed(event)
        waiting, self.state.stranded = self.state.stranded, []
        for entry in waiting:
            self.ready.push(entry)
        if self.node in event.draining:
            self.slots = 0
            self._give_away()

    def on_move_away(self, event: MoveAway) -> None:
        """This node drains. Tasks that were on their way to it have come meanwhile."""
        self._give_away()
        self.handing_over.on_move_away(event)

    def _give_away(self) -> None:
        """All that has not begun and need not run here, also what waits for inputs."""
        taken = [
            entry for run in self.runs.values() if not run.closing and self.state.peers for entry in run.tasks.values()
            if entry.state in (TaskState.INVALID, TaskState.READY) and not entry.askers
            and (entry.spec.options is None or entry.spec.options.pin < 0 or not entry.spec.options.pin_hard)
        ]  # fmt: skip
        for entry in taken:
            self.state.unpark(entry)
        for number, peer in enumerate(self.state.peers if taken else ()):
            self._give(peer, taken[number :: len(self.state.peers)])
        self.ready.take_back(len(self.ready))  # forgets those

    def on_steal_none(self, peer: int, message: m.StealNone) -> None:
        pass  # the timer asks the next neighbour

    def on_timer(self, event: TimerFired) -> None:
        """Ask the next neighbour in the ring, ever more rarely while nobody has anything."""
        if event.key != "steal":
            self.room.on_timer(event.key)
            return
        self.steal_wait_s = min(max(self.steal_wait_s * 2, self.limits.steal_first_s), self.limits.steal_last_s)
        if not self._idle():
            self.steal_wait_s = 0.0
            return
        if self.memory.may_take():
            self.victim = (self.victim + 1) % len(self.state.peers)
            self.outbox.send(self.state.peers[self.victim], m.StealAsk(2 * self.slots))
        else:  # a task would wait here as it does there, and two full nodes would pass it to and fro and never say that they have no room
            self.outbox.act(ReadRoom())
        self.outbox.set_timer("steal", self.steal_wait_s)

    def _look_around(self) -> None:
        if self.state.peers and not self.steal_wait_s and self._idle():
            self.steal_wait_s = self.limits.steal_first_s
            self.outbox.set_timer("steal", self.steal_wait_s)

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
            if entry in self.state.stranded:
                return [f"node {self.node}: waits for a node with more time: its time limit is longer than the job of this node has left"]
            if self.room.wanted:
                return [f"node {self.node}: waits for memory: files of other tasks take what its own need"]
            return [f"node {self.node}: waits for a slot: {len(self.inflight)} tasks are before it, and {len(self.ready)} wait with it"]
        if entry.state == TaskState.RUNNING:
            return [f"node {self.node}: runs, or is among the next for a slot: {len(self.inflight)} such tasks for {self.slots} slots"]
        if entry.state == TaskState.FLUSHING:
            return [f"node {self.node}: has run; its files are on their way to shared storage"]
        return [f"node {self.node}: was given to another node"]

    def check_invariants(self) -> None:
        for run in self.runs.values():
            counted: dict[int, int] = {}
            for entry in run.tasks.values():
                assert entry.state in (TaskState.INVALID, TaskState.READY, TaskState.RUNNING, TaskState.FLUSHING, TaskState.MOVED)
                if entry.state == TaskState.INVALID:
                    assert entry.missing > 0, f"task {entry.spec.tid} waits for nothing"
                    assert entry.parked == (entry.missing > entry.staging >= 0), f"task {entry.spec.tid}: {entry.missing} {entry.staging}"
                    counted[entry.spec.origin] = counted.get(entry.spec.origin, 0) + entry.parked
                elif entry.state == TaskState.RUNNING:
                    assert self.inflight[entry.serial] is entry
                elif entry.state == TaskState.READY and not run.closing:
                    assert entry.missing == 0, f"task {entry.spec.tid} READY with {entry.missing} inputs missing"
            if not run.closing:
                assert {k: v for k, v in counted.items() if v} == {k: v for k, v in run.parked.items() if v}, (counted, run.parked)
        self.files.check_invariants()
        self.room.check_invariants()
        self.outbox.check_invariants()
