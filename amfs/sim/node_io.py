"""The simulated I/O of a node: launcher, copier, data server and store only take virtual time. The counterpart of ``node.node_io``.

They are strict where the real ones would fail: a task that is launched without its inputs in place, or a file that appears after its run
was closed, is an error of the machines and ends the simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from amfs.sim.workload import LOOKS_AT
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    BringBack,
    CloseRun,
    CopyOut,
    Delete,
    DropSpilled,
    Evict,
    FetchData,
    JobDone,
    Kill,
    Launch,
    OpenRun,
    ReadRoom,
    ReadStore,
    Restore,
    RoomRead,
    RoomTaken,
    SpillOut,
    StageIn,
    StoreInline,
    TasksExited,
)
from amfs.vocabulary.paths import is_brought, store_path
from amfs.vocabulary.records import unpack_record
from amfs.vocabulary.states import Outcome

if TYPE_CHECKING:
    from amfs.node.core import NodeCore
    from amfs.sim.workload import Workload

INLINE_BYTES_MAX = 1 << 16
FETCH_PATIENCE_S = 30.0
DISK_BYTES_S = 5e8  # of the disk with the spill directory
DISK_FULL = 2  # how often a disk is full: less often than the nodes try it (engine.room)
DISK_ERRORS = 3  # how often one that fails does so
URLS_AT_ONCE = 16  # copies from and to URLs that a node has under way: ``node.url_threads.THREADS``


class Started(NamedTuple):
    """A task that the launcher has."""

    serial: int
    tid: int
    attempt: int
    cores: int
    memory: int
    outputs: tuple[tuple[str, str], ...]  # name, destination
    files: int
    base: str
    run: int
    inputs: tuple[tuple[str, int], ...] = ()  # source, stamp that the record gives it (0: none); only when watched


def _root_of(part: Started) -> int:
    """The reduction that a partial task belongs to: its output's name says it (workflow.reduction)."""
    return int(part.outputs[0][0].split("/")[1])


class Node(Protocol):
    """The simulated node whose I/O this is."""

    id: int
    alive: bool
    world: World

    @property
    def core(self) -> NodeCore: ...
    def arrive(self, item: tuple[Any, ...]) -> None: ...


class NodeIO:
    """Launcher, copier, data server and store of one simulated node."""

    def __init__(self, node: Node, slots: int, memory: int, workload: Workload) -> None:
        self.node = node
        self.world: World = node.world
        self.slots = slots
        self.memory = memory
        self.workload = workload
        self.files: dict[str, tuple[int, int]] = {}  # path in the store -> bytes, stamp (of no two makings the same)
        self.links: dict[str, int] = {}  # path in the store that leads into the spill directory -> what it leads to
        self.disk: dict[int, tuple[int, int]] = {}  # the spill directory
        self.back: dict[int, tuple[int, int]] = {}  # files copied back into memory, before they have their places
        self.disk_free_at = 0.0
        self.disk_faults = 0
        self.contexts: dict[int, m.RunInfo] = {}
        self.queue: deque[Started] = deque()
        self.running: dict[int, tuple[Started, float, int]] = {}  # serial -> task, begin, slot
        self.given: dict[int, dict[str, int]] = {}  # serial -> stamps of its inputs when it began
        self.free_slots = list(range(slots - 1, -1, -1))
        self.free_cores = slots
        self.free_memory = memory
        self.spawner_free_at = 0.0
        self.fetch_free_at = 0.0
        self.serve_free_at = 0.0
        self.bytes_fetched = 0
        self.task_s = 0.0  # time that tasks of which something came were running, times the slots that they had
        self.jobs = 0  # copies and fetches under way
        self.at_urls = 0  # of those, copies from and to URLs that have begun
        self.to_begin: deque[tuple[int, bool, Callable[..., None], tuple[Any, ...]]] = deque()  # others, which wait for them
        self.acts: dict[type, Callable[[Any], m.Content | None]] = {
            Launch: self.launch, Kill: self.kill, OpenRun: self.open_run, CloseRun: self.close_run, Delete: self.delete,
            StoreInline: self.store_inline, ReadStore: self.read_store, FetchData: self.fetch_data, StageIn: self.stage_in,
            CopyOut: self.copy_out, SpillOut: self.spill_out, BringBack: self.bring_back, Evict: self.evict, Restore: self.restore,
            DropSpilled: self.drop_spilled, ReadRoom: self.read_room,
            RoomTaken: lambda effect: None,
        }  # fmt: skip

    def path_of(self, key: str) -> str:
        return store_path(self.node.core.worker.store, key[: key.index("/") + 1], key)

    def _later(self, when: float, item: tuple[Any, ...]) -> None:
        """Give the node something at ``when``, if it still lives then."""
        node = self.node
        self.world.at(when, lambda: node.arrive(item) if node.alive else None)

    # ── runs and store ─────────────────────────────────────────────────────────────────────────────

    def open_run(self, effect: OpenRun) -> None:
        self.contexts[effect.run] = effect.info

    def close_run(self, effect: CloseRun) -> None:
        del self.contexts[effect.run]
        top = f"{self.node.core.worker.store}/{effect.scope}"
        for path in [path for path in (*self.files, *self.links) if path.startswith(top)]:
            self._remove(path)

    def delete(self, effect: Delete) -> None:
        for name in effect.names:
            self._remove(self.path_of(name))

    def _remove(self, path: str) -> None:
        self.files.pop(path, None)
        self.links.pop(path, None)

    def _content(self, path: str) -> tuple[int, int] | None:
        """Of a path in the store, wherever it lies."""
        return self.disk.get(self.links[path]) if path in self.links else self.files.get(path)

    def keep(self, path: str, size: int, stamp: int) -> tuple[int, int]:
        """A file appears in the store, unless there is one of that name already: then that one stays. Returns the one there now."""
        if self.world.watched:
            scope = path[len(self.node.core.worker.store) + 1 :].split("/", 1)[0]
            assert int(scope) in self.contexts, f"node {self.node.id} stores {path} of a run that it does not have"
        there = self._content(path)
        if there is None:
            there = self.files[path] = (size, stamp)
        return there

    def has(self, key: str) -> bool:
        """Is it in the store, wherever it lies?"""
        return self._content(self.path_of(key)) is not None

    def store_inline(self, effect: StoreInline) -> None:
        size = len(effect.data) if self.world.watched else self.workload.size_of(effect.name)
        self.keep(self.path_of(effect.name), size, self.world.stamp())

    def read_store(self, effect: ReadStore) -> m.Content:
        return m.Content(effect.run, tuple([self._blob(name) for name in effect.names]))

    def _blob(self, name: str) -> m.Blob:
        path = self.path_of(name)
        content = self._content(path)
        if content is None:
            return m.Blob(name, 0, missing=True)
        size, _ = content
        if size <= INLINE_BYTES_MAX and path not in self.links:
            return m.Blob(name, size, bytes(size))
        return m.Blob(name, size)

    # ── the launcher ───────────────────────────────────────────────────────────────────────────────

    def launch(self, effect: Launch) -> None:
        inflight = self.node.core.worker.inflight
        world = self.world
        for record in effect.records:
            if world.watched:
                task = unpack_record(record)
                entry = inflight[task.serial]
                self._check_inputs(entry.spec.tid, task.inputs)
                self._check_order(entry.run.id, entry.spec.tid)
                pin = entry.spec.options
                assert pin is None or not pin.pin_hard or pin.pin in (-1, self.node.id), (
                    f"task {entry.spec.tid} begins on node {self.node.id} and is bound to node {pin.pin}"
                )
                outputs, files, serial = task.outputs, len(task.inputs) + len(task.outputs), task.serial
                inputs = tuple([(source, stamp) for (source, _), (_, stamp) in zip(task.inputs, task.stamps, strict=True)])
            else:
                # The facts of the record, without the work of unpacking it: all that a simulation for numbers needs.
                serial = int.from_bytes(record[8:16], "little")
                entry = inflight[serial]
                store, scope = self.node.core.worker.store, entry.run.info.scope
                outputs = tuple([(key[len(scope) :], store_path(store, scope, key)) for key in entry.spec.outputs])
                files = len(entry.spec.inputs) + len(entry.spec.shared) + len(outputs)
                inputs = ()
            if entry.spec.shared and not entry.run.info.stage_shared:
                for key in entry.spec.shared:
                    if not is_brought(key[len(entry.run.info.scope) :], entry.run.paths):  # else the node has it in its store
                        world.use_storage(self.workload.size_of(key), write=False)
            options = entry.spec.options
            cores, memory = (options.cores, options.memory) if options is not None else (1, 0)
            spec, base = entry.spec, entry.run.info.base
            self.queue.append(Started(serial, spec.tid, spec.attempt, cores, memory, outputs, files, base, entry.run.id, inputs))
            if world.watched:
                world.note(self.node.id, "launches", (entry.spec.tid, entry.spec.attempt))
        self._fill()

    def _stamp_of(self, source: str) -> int | None:
        """Which making of an input is there now."""
        if source.startswith("@"):
            copy = self._spilled(source)
            if copy is not None:
                return self.disk[copy][1] if copy in self.disk else None
            return self.world.stamps.get(source[1:])
        return self.files[source][1] if source in self.files else None

    def _spilled(self, source: str) -> int | None:
        """The number in the spill directory, if it is there that the source lies."""
        top = f"@@{self.node.core.worker.memory.limits.spill}/"
        return int(source[len(top) :], 16) if len(top) > 3 and source.startswith(top) else None

    def _give(self, task: Started) -> None:
        """The task begins: it has the files that are there now, which must be those that its worker meant; and on no node that is
        in does another run go on, if they still count this node as one of theirs."""
        for number in self.node.core.live:
            process = self.world.processes[number]
            if process.alive and self.node.id in process.core.live:  # type: ignore[attr-defined]
                beside = [(other.run, other.tid) for other, _, _ in process.node_io.running.values() if other.run != task.run]  # type: ignore[attr-defined]
                assert not beside, f"task {task.tid} of run {task.run} begins beside {beside} on node {number}"
        for source, expected in task.inputs:
            self._check_inputs(task.tid, ((source, ""),))
            stamp = self._stamp_of(source)
            assert expected in (0, stamp), f"task {task.tid} is to begin on node {self.node.id} with another {source} than is there"
            if stamp is not None:
                self.given.setdefault(task.serial, {})[source] = stamp

    def _take_back(self, task: Started) -> list[int]:
        """The task has ended: places of its inputs that are others by now on shared storage, or are gone from the spill directory. In the
        store that must never happen."""
        changed: list[int] = []
        given = self.given.pop(task.serial, {})
        for place, (source, _) in enumerate(task.inputs):
            now = self._stamp_of(source)
            if source in given and now != given[source] and (now is not None or self._spilled(source) is not None):
                assert source.startswith("@"), f"{source} was made again on node {self.node.id} over the one that a task reads"
                changed.append(place)
        return changed

    def _check_inputs(self, tid: int, inputs: tuple[tuple[str, str], ...]) -> None:
        for source, _ in inputs:
            copy = self._spilled(source)
            if copy is not None:
                assert copy in self.disk, f"task {tid} begins on node {self.node.id} without {source}"
            elif source.startswith("@"):
                assert self.world.shared.get(source[1:]) is not None or source[1:] in self.workload.given, (
                    f"task {tid} begins on node {self.node.id} and {source[1:]} is not on shared storage"
                )
            else:
                assert source in self.files, f"task {tid} begins on node {self.node.id} without {source}"

    def _check_order(self, run: int, tid: int) -> None:
        if tid >= 0:  # a part of a reduction begins when its root was admitted
            for name in self.workload.tasks[tid].after:
                before = self.workload.plan.after[name]
                done = (run, before) in self.workload.succeeded
                assert done, f"task {tid} of run {run} begins on node {self.node.id} before task {before} has finished"

    def _fits(self, task: Started) -> bool:
        if not self.running:
            return True  # larger than the whole: alone
        return task.cores <= self.free_cores and (not self.memory or task.memory <= self.free_memory)

    def _fill(self) -> None:
        costs, world = self.world.costs, self.world
        while self.queue and self._fits(self.queue[0]):
            task = self.queue.popleft()
            self.free_cores -= task.cores
            self.free_memory -= task.memory
            slot = self.free_slots.pop() if self.free_slots else 0
            begin = max(world.now, self.spawner_free_at) + (costs.spawn_us + costs.file_us * task.files) * 1e-6
            self.spawner_free_at = begin
            self.running[task.serial] = (task, begin, slot)
            if world.watched:
                self._give(task)
            outcome, code, seconds = self.workload.what_happens(
                task.tid, task.tid if task.tid >= 0 else _root_of(task), self.node.id
            )
            if task.tid in self.workload.blind:
                world.at(begin + seconds * LOOKS_AT, self._look_for_files, task.serial)
            world.at(begin + seconds, self._exit, task.serial, outcome, code)

    def _look_for_files(self, serial: int) -> None:
        """A blind task looks for its files; it fails at once if one is missing."""
        if self.node.alive and serial in self.running:
            tid = self.running[serial][0].tid
            missing = self.workload.misses(tid, self.world.names)
            hides = self.workload.blind[tid].hides
            if hides:
                self.workload.lacked[tid] = missing
                options = self.node.core.worker.inflight[serial].spec.options
                if options is not None and options.lenient:
                    return
            if missing:
                self._exit(serial, int(Outcome.EXIT), int(not hides), missing)

    def _exit(self, serial: int, outcome: int, code: int, missing: tuple[str, ...] = ()) -> None:
        if not self.node.alive or serial not in self.running:
            return
        task, begin, slot = self.running.pop(serial)
        self.free_cores += task.cores
        self.free_memory += task.memory
        if len(self.free_slots) < self.slots:
            self.free_slots.append(slot)
        now = self.world.now
        made: tuple[tuple[int, int], ...] = ()
        changed = self._take_back(task)
        if changed:
            lost = all(self._spilled(task.inputs[place][0]) is not None for place in changed)
            outcome, code = int(Outcome.INPUT_LOST if lost else Outcome.INPUT_CHANGED), 0
        if outcome == Outcome.OK:
            self.workload.succeeded.add((task.run, task.tid))
            self.task_s += (now - begin) * min(task.cores, self.slots)
            if task.outputs:
                made = self._publish(task)
            if task.tid in self.workload.blind:
                self.workload.went_well[task.tid] = self.workload.went_well.get(task.tid, 0) + 1
                self.world.names.update(dict.fromkeys(self.workload.blind[task.tid].makes))
        names = ", ".join(task.inputs[place][0][1:] for place in changed)
        detail = f"changed its input: {names}" if changed else f"exit status {code}" if outcome else ""
        facts = (tuple(changed), "", 0, "", 0) if changed else None
        times = (int(begin * 1e6), int(now * 1e6))
        blind = self.workload.blind.get(task.tid)
        traces = {serial: (missing, () if outcome else blind.makes)} if blind is not None else {}
        self.node.arrive(("event", TasksExited([(serial, outcome, code, slot, *times, 0, 0, made, b"", b"", detail, facts)], traces)))
        self._fill()

    def _publish(self, task: Started) -> tuple[tuple[int, int], ...]:
        made = []
        for name, destination in task.outputs:
            size, stamp = self.workload.size_of(name), self.world.stamp()
            if destination:
                size, stamp = self.keep(destination, size, stamp)
            else:
                self.world.put_shared(name if name.startswith("/") else f"{task.base}/{name}", size, stamp)
            made.append((size, stamp))
        return tuple(made)

    def kill(self, effect: Kill) -> None:
        serials = set(effect.serials)
        cancelled = [task for task in self.queue if task.serial in serials]
        if cancelled:
            self.queue = deque(task for task in self.queue if task.serial not in serials)
            now_us = int(self.world.now * 1e6)
            facts = (int(Outcome.CANCELLED), 0, 0, now_us, now_us, 0, 0, (), b"", b"", "withdrawn", None)
            done = [(task.serial, *facts) for task in cancelled]
            self._later(self.world.now, ("event", TasksExited(done)))
        for serial in effect.serials:
            if serial in self.running:
                self.world.at(self.world.now + 0.001, self._exit, serial, int(Outcome.CANCELLED), 15)

    # ── copies, fetches ──────────────────────────────────────────────────────────────────────────────────

    def fetch_data(self, effect: FetchData) -> None:
        """A transfer occupies the serving node's interface and ours, first come, first served."""
        world = self.world
        peer = world.processes.get(effect.peer)
        self.jobs += 1
        if peer is None or not world.reachable(self.node.id, effect.peer):
            world.at(world.now + min(1.0, FETCH_PATIENCE_S), self._fetched, effect, False)
            return
        server: NodeIO = peer.node_io  # type: ignore[attr-defined]
        begin = max(world.now, server.serve_free_at, self.fetch_free_at)
        end = begin + effect.size / world.costs.bandwidth_bytes_s
        server.serve_free_at = self.fetch_free_at = end
        held = server._content(server.path_of(effect.name))
        good = held is not None and held[0] == effect.size
        if world.faults.transfer_errors and world.rng.random() < world.faults.transfer_errors:
            good = False
        world.at(end + world.costs.latency_s, self._fetched, effect, good)

    def _fetched(self, effect: FetchData, good: bool) -> None:
        self.jobs -= 1
        if not self.node.alive:
            return
        if good and self.world.reachable(self.node.id, effect.peer):
            if effect.spill:
                self.disk[effect.serial] = (effect.size, self.world.stamp())
            else:
                self.keep(self.path_of(effect.name), effect.size, self.world.stamp())
            self.bytes_fetched += effect.size
            self.node.arrive(("event", JobDone(effect.serial, "", effect.size)))
        else:
            self.node.arrive(("event", JobDone(effect.serial, "the other side is gone", 0)))

    def stage_in(self, effect: StageIn) -> None:
        size = self.world.shared.get(effect.path, self.workload.given.get(effect.path))
        self.jobs += 1
        self._copy(effect.path, size or 0, False, self._staged, effect, size)

    def _copy(self, path: str, size: int, write: bool, ended: Callable[..., None], *arguments: Any) -> None:
        """Use shared storage. A node has only so many copies from and to URLs under way, so that all nodes get part of the storage."""
        if "://" not in path:
            self.world.at(self.world.use_storage(size, write=write), ended, *arguments)
            return
        self.to_begin.append((size, write, ended, arguments))
        self._begin_copies()

    def _begin_copies(self) -> None:
        while self.to_begin and self.at_urls < URLS_AT_ONCE:
            size, write, ended, arguments = self.to_begin.popleft()
            self.at_urls += 1
            self.world.at(self.world.use_storage(size, write=write), self._at_url, ended, arguments)

    def _at_url(self, ended: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.at_urls -= 1
        if self.node.alive:
            self._begin_copies()
        ended(*arguments)

    def _staged(self, effect: StageIn, size: int | None) -> None:
        self.jobs -= 1
        if not self.node.alive:
            return
        if size is None:
            self.node.arrive(("event", JobDone(effect.serial, f"{effect.path}: no such file", 0)))
            return
        self.keep(self.path_of(effect.name), size, self.world.stamp())
        self.node.arrive(("event", JobDone(effect.serial, "", size)))

    def copy_out(self, effect: CopyOut) -> None:
        content = self._content(self.path_of(effect.name))
        if content is None:
            self._later(self.world.now, ("event", JobDone(effect.serial, f"{effect.name}: no such file", 0)))
            return
        size, _ = content
        self.jobs += 1
        self._copy(effect.path, size, True, self._copied, effect, size)

    def _copied(self, effect: CopyOut, size: int) -> None:
        self.jobs -= 1
        if not self.node.alive:
            return
        faults = self.world.faults
        if faults.storage_errors and self.world.rng.random() < faults.storage_errors:
            self.node.arrive(("event", JobDone(effect.serial, f"{effect.path}: no space left on device", 0)))
            return
        if self.world.watched:
            there = self._content(self.path_of(effect.name)) is not None
            assert there, f"node {self.node.id} dropped {effect.name} before it was on shared storage"
        self.world.put_shared(effect.path, size, self.world.stamp())
        self.node.arrive(("event", JobDone(effect.serial, "", size)))

    # ── the spill directory ────────────────────────────────────────────────────────────────────────

    def spill_out(self, effect: SpillOut) -> None:
        self._on_disk(effect.serial, self._content(self.path_of(effect.name)), self.disk)

    def bring_back(self, effect: BringBack) -> None:
        self._on_disk(effect.serial, self.disk.get(effect.copy), self.back)

    def _on_disk(self, serial: int, content: tuple[int, int] | None, into: dict[int, tuple[int, int]]) -> None:
        """The disk does one thing after the other."""
        world, faults = self.world, self.world.faults
        error, own = ("", False) if content is not None else ("no such file", False)
        often = DISK_FULL if faults.disk_full else DISK_ERRORS
        if not error and self.disk_faults < often and world.rng.random() < (faults.disk_full or faults.disk_errors):
            self.disk_faults += 1
            error, own = ("no space left on device", True) if faults.disk_full else ("input/output error", False)
        size, stamp = content or (0, 0)
        self.jobs += 1
        self.disk_free_at = max(world.now, self.disk_free_at) + size / DISK_BYTES_S
        world.at(self.disk_free_at, self._disk_done, serial, (size, stamp), into, error, own)

    def _disk_done(self, serial: int, content: tuple[int, int], into: dict[int, tuple[int, int]], error: str, own: bool) -> None:
        self.jobs -= 1
        if not self.node.alive:
            return
        if not error:
            into[serial] = content
        self.node.arrive(("event", JobDone(serial, error, 0 if error else content[0], own)))

    def evict(self, effect: Evict) -> None:
        assert effect.copy in self.disk, f"{effect.name} is evicted, and its copy {effect.copy} is not there"
        path = self.path_of(effect.name)
        for serial, given in self.given.items():
            assert path not in given, f"{effect.name} leaves memory, and task {self.running[serial][0].tid} has it"
        self.files.pop(path, None)
        self.links[path] = effect.copy

    def restore(self, effect: Restore) -> None:
        path = self.path_of(effect.name)
        assert path in self.links, f"{effect.name} comes back, and was not away"
        del self.links[path]
        self.files[path] = self.back.pop(effect.back)

    def drop_spilled(self, effect: DropSpilled) -> None:
        for number in effect.copies:
            assert number not in self.links.values(), f"copy {number} is dropped, and a file of the store leads to it"
            self.disk.pop(number, None)
            self.back.pop(number, None)

    def read_room(self, effect: ReadRoom) -> None:
        self._later(self.world.now, ("event", RoomRead(1 << 62, 0)))
