"""The room of a node: which tasks and fetches get it, which files leave memory, and which come back. Pure.

Owns the moves of files between memory and the spill directory, and the READY tasks whose inputs are on their way back. The account is in
``memory``. Room is made in this order: copies that other nodes have go; single files go to the spill directory, those first that are needed
last, and of those that nobody needs the one that was used last longest ago; tasks that make files wait. Files of ``amfs:/`` have the same
memory and one order with these: those that come earlier in it are asked for (``RoomWanted``), and ask in their turn (``GiveWay``). Nothing
waits for ever: a task waits only as long as something can still make room, then it reads its inputs from the spill directory, or fails with
a message that names the remedies.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import islice
from typing import Any

from amfs.engine.file_table import FileTable
from amfs.engine.launches import Launches
from amfs.engine.worker_records import File, Run, TaskEntry
from amfs.engine.worker_state import WorkerState
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import BringBack, Evict, GaveWay, GiveWay, JobDone, ReadRoom, Restore, RoomGiven, RoomWanted, SpillOut
from amfs.vocabulary.states import FileState, Outcome, Place, PlaceEvent, TaskEvent, TaskState

LOOK_S = 0.05  # how often something that waits for room is looked at although nothing has happened
FULL_TIMES = 3  # how often in a row the spill directory may be full before nothing is expected of it any more
TELL_S = 0.25  # between two news of what is spilled
ALONE_S = 0.5  # how long it waits if there is no other node that might take something away
LOOK_AHEAD = 64  # READY tasks that are looked at when the first of them has to wait
ASK_AGAIN_S = 0.5  # files of amfs:/ that made less room than was wanted are not asked for so long


class Giving:
    """Files of runs that are on their way to the spill directory for files of ``amfs:/``."""

    __slots__ = ("freed", "jobs", "serial")

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.freed = 0
        self.jobs: set[int] = set()


class Room:
    """Divides the memory of one node among tasks and files."""

    def __init__(self, state: WorkerState, files: FileTable, launches: Launches) -> None:
        self.state = state
        self.outbox = state.outbox
        self.memory = state.memory
        self.node = state.node
        self.slots = state.slots
        self.runs = state.runs
        self.ready = state.ready
        self.inflight = state.inflight
        self.jobs = state.jobs
        self.files = files
        self.launches = launches
        self.granted: dict[TaskEntry, None] = {}  # READY, their room is taken, their inputs are on their way back; the first first
        self.wanted = 0.0  # bytes for which the first READY task, or the first fetch, waits
        self.blocked_at = -1.0  # since when nothing on this node can make room; -1: something can
        self._hopeless = math.inf  # with so many bytes in memory another one waited in vain
        self._full = 0  # how often in a row the spill directory was full
        self._retries = False  # it was full, and is going to be tried again
        self._broken = False  # it gave another error, and is not used for anything new
        self._looking = False  # the time to look for room again is set
        self._giving: list[Giving] = []
        self._asked = 0  # bytes that files of amfs:/ are to free; 0: no answer is awaited
        self._ask_at = 0.0  # not before that are they asked again

    def on_timer(self, key: object) -> None:
        """The time to try the spill directory again has come, or to look for room, since deleted files may go later."""
        if key == "room":
            self._looking = False
            if self.wanted:
                self.outbox.act(ReadRoom())
        elif key == "spill" and not self._broken:
            self._retries = False
            self.memory.failed = False
            self.memory.fault = ""
            self.memory.changed()

    # ── tasks and room ─────────────────────────────────────────────────────────────────────────────

    def plenty(self, target: int) -> bool:
        """Whether ``target`` tasks may be with the launcher without a thought for memory."""
        if self.granted or self.files.fetches or not self.memory.ample(target):
            return False
        self.wanted = 0.0
        self.blocked_at = -1.0
        return True

    def pump(self, target: int) -> None:
        """Start what may start, make room, and again as long as that helps."""
        for _ in range(LOOK_AHEAD):
            self.wanted = 0.0
            before = self.state.serial
            self._start(target)
            self._next_fetches()
            if not self._make_room() and self.state.serial == before:
                break
        if not self.wanted:
            self.blocked_at = -1.0
            return
        if not self._looking:
            self._looking = True
            self.outbox.set_timer("room", LOOK_S)
        others = len(self.state.alive) > 1 and self.memory.used > 0  # nodes that may take something away
        patience = self.memory.limits.patience_s if others else ALONE_S
        if not self._is_stuck() or self._let_one_go(target):
            self.blocked_at = -1.0
        elif self.memory.used >= self._hopeless or 0 <= self.blocked_at <= self.outbox.now - patience:
            self.blocked_at = -1.0
            self._fail_one()
        elif self.blocked_at < 0:
            self.blocked_at = self.outbox.now

    def _start(self, target: int) -> None:
        ready, inflight = self.ready, self.inflight
        entries: list[TaskEntry] = []
        for entry in list(self.granted):
            if entry.state != TaskState.READY:
                del self.granted[entry]
            elif len(inflight) + len(entries) < target and not any(file.place == Place.RETURNING for file in self._inputs(entry)):
                del self.granted[entry]
                entries.append(entry)
        self.launches.launch(entries)
        held: list[TaskEntry] = []
        while ready and len(inflight) + len(self.granted) < target + self.slots and len(held) < LOOK_AHEAD:
            entry = ready.pop()
            if entry.state != TaskState.READY or entry in self.granted or not self.state.may_begin(entry):
                continue
            if not (not held or self._frees(entry)) or not self._grant(entry):
                held.append(entry)
            elif len(inflight) < target and not any(file.place == Place.RETURNING for file in self._inputs(entry)):
                self.launches.launch((entry,))
            else:
                self.granted[entry] = None
        ready.put_back(held)

    def _inputs(self, entry: TaskEntry) -> list[File]:
        """Those that have content on this node."""
        files = entry.run.files
        found = [files.get(name) for name in (*entry.spec.inputs, *entry.spec.shared)]
        return [file for file in found if file is not None and file.place != Place.NOWHERE]

    @staticmethod
    def _makes_files(entry: TaskEntry) -> bool:
        options = entry.spec.options
        return bool(entry.spec.outputs) and not (options is not None and options.unstaged)

    def _reserved(self) -> int:
        """Bytes that the tasks with the launcher, and those that are about to be there, will make."""
        makers = sum(map(self._makes_files, self.inflight.values())) + sum(map(self._makes_files, self.granted))
        return int(self.memory.made_mean * makers)

    def _frees(self, entry: TaskEntry) -> int:
        """Bytes in memory that nobody else on this node reads."""
        return sum(file.taken for file in self._inputs(entry) if file.users <= 1 and file.place in (Place.HELD, Place.BOTH))

    def _grant(self, entry: TaskEntry) -> bool:
        """Take the room that the task needs, and begin to bring its inputs back. All at once or not at all: no task waits for another with
        some of its room taken. Inputs that are too large for memory together are read from the spill directory."""
        memory, inputs = self.memory, self._inputs(entry)
        back = [file for file in inputs if file.place == Place.SPILLED]
        if sum(file.taken for file in inputs) > memory.mark:
            back = []
        need = sum(file.taken for file in back) + (memory.made_mean if self._makes_files(entry) else 0.0)
        if need and need > memory.room(self._reserved()):
            self.wanted = self.wanted or need
            return False
        for file in back:
            self._bring_back(entry.run, file)
        return True

    # ── files that leave, files that come back ─────────────────────────────────────────────────────

    def _in_use(self) -> set[str]:
        """Files that tasks have, or are about to."""
        names: set[str] = set()
        for entry in (*self.inflight.values(), *self.granted):
            names.update(entry.spec.inputs)
            names.update(entry.spec.shared)
        return names

    def _rank(self) -> Callable[[File], tuple[int, float]]:
        """Files that are needed last go first, in this order: files that other nodes have, or that are on the disk already; files that no
        task here reads (used last longest ago first); files that only tasks read that wait for more (last in the list first); files that
        READY tasks read (last in the queue first)."""
        ready: dict[str, int] = {}
        for position, entry in enumerate(self.ready):
            for name in (*entry.spec.inputs, *entry.spec.shared):
                ready.setdefault(name, position)
        parked: dict[str, int] = {}
        for run in self.runs.values():
            for entry in run.tasks.values():
                if entry.state == TaskState.INVALID:
                    for name in entry.spec.inputs:
                        parked[name] = min(entry.spec.tid, parked.get(name, entry.spec.tid))

        def rank(file: File) -> tuple[int, float]:
            if file.name in ready:
                return (3, -ready[file.name])
            if file.place == Place.BOTH or (file.spare and not file.users):
                return (0, 0)
            if file.name in parked:
                return (2, -parked[file.name])
            return (1, file.used_at)

        return rank

    def _make_room(self) -> bool:
        """Whether some was made at once. A file that must be copied first leaves later."""
        memory, freed = self.memory, False
        over = memory.over(self.wanted, self._reserved())
        if over <= 0:
            return False
        stay = self._in_use()
        while over > 0:
            file: Any = memory.victim(self._rank, stay, self.outbox.now)
            if file is not None and self._leaves_at_once(file):
                over -= file.taken
                freed = True
                continue
            if self._others_go_first(over, file):
                if file is not None:
                    memory.put_back(file)
                break
            if file is None:
                break
            over -= file.taken
            self._spill(file)
        return freed

    def _others_go_first(self, over: float, file: File | None) -> bool:
        """Files of ``amfs:/`` are asked to go before this one, and have not answered yet."""
        if not self._asked and self.memory.shared and self.outbox.now >= self._ask_at:
            idle_s = 0.0 if file is None or file.users else self.outbox.now - file.used_at
            self._asked = math.ceil(over)
            self.outbox.act(RoomWanted(self._asked, idle_s))
        return self._asked > 0

    def on_given(self, event: RoomGiven) -> None:
        """Files of ``amfs:/`` have made so much room."""
        memory = self.memory
        if event.freed < self._asked:
            self._ask_at = self.outbox.now + ASK_AGAIN_S
        self._asked = 0
        if event.freed:  # until it is read again
            memory.read(memory.free + event.freed, max(0, memory.others - event.freed), memory.others_on_disk, memory.shared)
            self.outbox.act(ReadRoom())

    def _spill(self, file: File) -> None:
        file.copy = self.state.job("spill", self._run_of(file), file.name, None)
        self.memory.move(file, PlaceEvent.SPILL)
        self.outbox.act(SpillOut(file.copy, file.name))

    def _run_of(self, file: File) -> Run:
        return self.runs[int(file.name[: file.name.index("/")])]

    def _leaves_at_once(self, file: File) -> bool:
        """It goes, if it is on the disk already, or other nodes have it and no task here is to read it."""
        if file.place == Place.BOTH:
            self._evict(file)
        elif file.spare and not file.users:
            run = self._run_of(file)
            del run.files[file.name]
            self.state.removed(file)
            self.outbox.delete(file.name)
            self.outbox.send(self.state.table.node_of(file.name), m.Lost(run.id, (file.name,), self.node))
        else:
            return False
        return True

    def give_way(self, event: GiveWay) -> None:
        """Files of ``amfs:/``, which have the same limit, need room. It is answered when the files that go to the disk are there."""
        giving, stay, memory = Giving(event.serial), self._in_use(), self.memory
        going = 0
        for file in sorted((file for file in memory.files.values() if memory.may_go(file) and file.name not in stay), key=self._rank()):
            if giving.freed + going >= event.wanted:
                break
            taken = file.taken
            if self._leaves_at_once(file):
                giving.freed += taken
            elif event.idle_s < 0 or (not file.users and self.outbox.now - file.used_at >= event.idle_s):
                self._spill(file)
                giving.jobs.add(file.copy)
                going += taken
        self._giving.append(giving)
        self._answer(0)

    def _answer(self, job: int) -> None:
        """A copy to the spill directory has ended. Those that wait for no other hear how much it was."""
        for giving in list(self._giving):
            giving.jobs.discard(job)
            if not giving.jobs:
                self._giving.remove(giving)
                self.outbox.act(GaveWay(giving.serial, giving.freed))

    def _evict(self, file: File) -> None:
        self.memory.move(file, PlaceEvent.EVICTED)
        self.outbox.act(Evict(file.name, file.copy))

    def _bring_back(self, run: Run, file: File) -> None:
        self.memory.move(file, PlaceEvent.RETURN)
        file.job = self.state.job("back", run, file.name, None)
        self.outbox.act(BringBack(file.job, file.name, file.copy))

    def job_done(self, kind: str, run: Run, name: str, event: JobDone) -> None:
        """A copy to or from the spill directory has ended."""
        self.outbox.drop_copy(event.serial)  # unless somebody wants it
        file = run.files.get(name)
        if run.closing or file is None:
            pass  # dropped meanwhile
        elif kind == "spill" and file.place == Place.SPILLING and file.copy == event.serial:
            self._spilled(run, file, event)
        elif kind == "back" and file.place == Place.RETURNING and file.job == event.serial:
            self._returned(run, file, event)
        self._answer(event.serial)

    def _spilled(self, run: Run, file: File, event: JobDone) -> None:
        memory = self.memory
        if event.damaged:
            memory.move(file, PlaceEvent.NOT_COPIED)
            file.copy = 0
            self.files.say_damaged(file, event.error)
            self.files.give_up(run, file)
            return
        if event.error or event.size != file.size:
            self._disk_failed(event.error or f"{file.name} was copied in part", event.own)
            memory.move(file, PlaceEvent.NOT_COPIED)
            file.copy = 0
            return
        self.outbox.keep_copy(event.serial)
        self._full = 0
        memory.move(file, PlaceEvent.COPIED)
        run.counters["spilled_bytes"] += file.size
        run.counters["spilled_files"] += 1
        self._tell_spilled(run)
        asked = [giving for giving in self._giving if event.serial in giving.jobs]
        if (asked or memory.over(self.wanted, self._reserved()) > 0) and file.name not in self._in_use():
            self._evict(file)
            for giving in asked:
                giving.freed += file.taken

    def _returned(self, run: Run, file: File, event: JobDone) -> None:
        if event.damaged:
            self.files.say_damaged(file, event.error)
            self.files.give_up(run, file)
            return
        if event.error or event.size != file.size:
            error = event.error or f"it has {event.size} bytes there instead of {file.size}"
            self._disk_failed(error, event.own)
            if event.own:  # there is no room for it after all: its tasks read it where it is
                self.memory.move(file, PlaceEvent.NOT_RETURNED)
            else:
                self.files.give_up(run, file)
            return
        self.outbox.keep_copy(event.serial)
        self.outbox.act(Restore(file.name, event.serial))
        self.memory.move(file, PlaceEvent.RETURNED)
        run.counters["returned_bytes"] += file.size
        run.counters["returned_files"] += 1
        self._tell_spilled(run)

    def _tell_spilled(self, run: Run) -> None:
        if self.outbox.now >= run.spilled_told_at + TELL_S:
            run.spilled_told_at = self.outbox.now
            counters = run.counters
            told = m.Spilled(run.id, self.node, self.memory.on_disk, counters["spilled_bytes"], counters["returned_bytes"])
            self.outbox.send(run.submitter, told)

    def _disk_failed(self, error: str, full: bool) -> None:
        """A disk that is full is tried again; one that fails is not used for anything new."""
        memory = self.memory
        if not memory.failed:
            self.outbox.log(f"the spill directory is {'full' if full else 'not used any more'}: {error}", logging.WARNING)
        memory.failed = True
        memory.fault = f"the spill directory failed: {error}"
        if not full:
            self._broken = True
        elif not self._retries:
            self._full += 1
            self._retries = True
            self.outbox.set_timer("spill", memory.limits.retry_s)

    # ── files from other nodes ─────────────────────────────────────────────────────────────────────

    def _next_fetches(self) -> None:
        """Fetch what there is room for below the mark. While a slot is empty and nothing is on its way, one more is fetched into the room
        above it that running tasks leave. More is made when the node has nothing else to do: the tasks at hand go first, and use up what
        they have."""
        memory = self.memory
        while self.files.fetches:
            run, file = self.files.fetches[0]
            waits = file.state == FileState.REMOTE and file.fetching and file.source < 0 and run.files.get(file.name) is file
            if waits and not run.closing:
                if file.size > memory.mark and memory.may_spill(file.size):
                    self.files.to_disk.add(file.name)
                elif file.size > memory.room() - (memory.limit - memory.mark):
                    idle = not (self.granted or self.ready or memory.coming) and len(self.inflight) < self.slots
                    if self.inflight and idle:
                        idle = file.size <= memory.room(self._reserved())
                    if not idle and file.leaver < 0:  # files of a node that leaves cannot wait
                        return
                    if file.size > memory.room():
                        self.wanted = self.wanted or file.size
                        return
                    memory.promise(file, file.size)
                else:
                    memory.promise(file, file.size)
                self.files.ask_for(run, file)
            self.files.fetches.popleft()

    # ── nothing makes room ─────────────────────────────────────────────────────────────────────────

    def _is_stuck(self) -> bool:
        """Something waits for room, and nothing on this node will make any."""
        if not self.wanted or self.inflight or self.granted or self.jobs or self.memory.coming or self._asked:
            return False
        return self._broken or not self._retries or self._full >= FULL_TIMES

    def _let_one_go(self, target: int) -> bool:
        """A task reads in place what cannot be brought back, and may run alone while there is any room, or when it makes room for about as
        much as tasks make."""
        memory = self.memory
        for entry in islice(self.ready, LOOK_AHEAD):
            if entry.state != TaskState.READY:
                continue
            if not self._makes_files(entry) or memory.room() > 0 or self._frees(entry) >= memory.made_mean:
                self.granted[entry] = None  # the queue skips it from now on
                self._start(target)
                return True
        return False

    def _fail_one(self) -> None:
        """A task for which there is no room, or those that wait for a file that cannot be fetched."""
        why = self.memory.why_full()
        self._hopeless = self.memory.used
        for entry in self.ready:
            if entry.state == TaskState.READY:
                self.state.move(entry, TaskEvent.NO_ROOM)
                name = entry.spec.outputs[0][len(entry.run.info.scope):]
                detail = f"node {self.node} has no room for {name}: {why}"
                self.state.end(entry, m.Result(entry.spec.tid, entry.spec.attempt, Outcome.SETUP, 0, self.node, detail=detail))
                return
        if self.files.fetches:
            run, file = self.files.fetches.popleft()
            self.files.unreadable(run, file, f"node {self.node} has no room for {file.name[len(run.info.scope):]}: {why}")

    def check_invariants(self) -> None:
        memory = self.memory
        if not memory.limit:
            return
        memory.check([file for run in self.runs.values() for file in run.files.values()])
        for run in self.runs.values():
            for file in run.files.values():
                here = file.place != Place.NOWHERE
                assert here == (file.state == FileState.LOCAL), f"{file.name} is {file.state.name}, {file.place.name}"
                assert not file.room or file.state == FileState.REMOTE, f"{file.name}: room for what does not come"
        for entry in self.granted:
            assert entry.state != TaskState.READY or entry.run.tasks.get(entry.spec.tid) is entry, f"task {entry.spec.tid} was given away"
