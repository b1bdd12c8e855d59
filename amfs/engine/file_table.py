"""The worker half of the File Availability Protocol (AME §3.2, Fig. 4): where files are, and how they come here and go. Pure.

Owns the moves of files between INVALID, LOCAL, REMOTE and SHARED on one node: locating, fetching once however many tasks want a
file, waking the tasks parked under it, serving others, dropping, copying out to shared storage. Bytes move in the shell (``FetchData``,
``StageIn``, ``CopyOut``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Set

import msgspec

from amfs.engine.fls import SHARED_RETENTION
from amfs.engine.lost_parts import LostParts
from amfs.engine.worker_records import File, Run, TaskEntry
from amfs.engine.worker_state import WorkerState
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AdoptFiles,
    CopyOut,
    Evict,
    FetchData,
    FileDamaged,
    JobDone,
    ReadStore,
    StageIn,
    StoreFailed,
    StoreInline,
)
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.paths import destination_at_url, in_namespace, is_brought, shared_path
from amfs.vocabulary.records import unpack_body
from amfs.vocabulary.states import FileEvent, FileState, Outcome, PlaceEvent, TaskEvent, TaskState
from amfs.workflow import origin as origins

SMALL_BYTES = 1 << 16  # files of this size are fetched whatever the state of memory: they come with the answer that says where they are


class FileTable:
    """The files of one node's worker."""

    def __init__(self, state: WorkerState) -> None:
        self.state = state
        self.outbox = state.outbox
        self.memory = state.memory
        self.node = state.node
        self.limits = state.limits
        self.runs = state.runs
        self.sources: dict[int, int] = {}  # serial of a fetch -> holder it comes from
        self.fetches: deque[tuple[Run, File]] = deque()  # REMOTE files that wait for room
        self.to_disk: set[str] = set()  # files that are to be fetched into the spill directory: too large for memory
        self.disk_jobs: set[int] = set()  # fetches that do so
        self.lost_parts = LostParts()

    def stage(self, run: Run, entry: TaskEntry, name: str) -> None:
        """A shared input that is to be read from the store: copied there once, however many tasks want it."""
        file = run.files.get(name)
        if file is None:
            file = run.files[name] = File(name)
            file.staged = True
            self.state.move_file(file, FileEvent.LOCATED)
            self._stage_file(run, file)
        if file.state == FileState.LOCAL or file.state == FileState.SHARED:
            return
        file.waiting.append(entry)
        entry.missing += 1
        entry.staging += file.staged

    def _stage_file(self, run: Run, file: File) -> None:
        file.fetching = True
        short = file.name[len(run.info.scope):]
        path = run.paths.get(short) or shared_path(run.info.base, short)
        self.outbox.act(StageIn(self.state.job("stage", run, file.name, None), file.name, path, file.listing, run.versions.get(short)))

    def on_adopt(self, event: AdoptFiles) -> None:
        run = self.runs[event.run]
        for name, size, mtime_ns, retention in event.files:
            file = run.files.get(name) or run.files.setdefault(name, File(name))
            fresh = file.state == FileState.INVALID
            file.size, file.mtime_ns = size, mtime_ns
            self.state.move_file(file, FileEvent.PRODUCED)
            self.outbox.publish(run.id, name, size, retention)
            self.there(run, file, fresh)

    # ── files become available ─────────────────────────────────────────────────────────────────────

    def _wanted(self, file: File) -> bool:
        """Does any task still wait for it? Those that failed or went elsewhere meanwhile are struck off."""
        file.waiting = [entry for entry in file.waiting if entry.state == TaskState.INVALID]
        return bool(file.waiting)

    def on_located(self, peer: int, message: m.Located) -> None:
        run = self.state.run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        at: m.FileAt | None
        for at in message.files:
            file = run.files.get(at.name)
            if file is None or file.state != FileState.INVALID:
                continue
            if not self._wanted(file):
                del run.files[at.name]
                continue
            file.size = at.size
            if at.holders and not self.state.alive >= set(at.holders):
                at = self._without_dead(run, file, at)
                if at is None:
                    continue
            brought = not at.holders and is_brought(at.name[len(run.info.scope):], run.paths)
            if not at.holders and not brought:
                self.state.move_file(file, FileEvent.ON_SHARED)
                self.there(run, file, fresh=True)
                continue
            file.holders, file.listing = at.holders, at.listing
            self.state.move_file(file, FileEvent.LOCATED)
            decided: list[TaskEntry] = []
            for entry in file.waiting:
                entry.unlocated -= 1
                if not entry.unlocated and entry.state == TaskState.INVALID:
                    decided.append(entry)
            if brought:  # from a URL, or from the file system, which has it on some node or other and links it, or brings it here
                self._stage_file(run, file)
            elif not run.info.data_aware or at.size < self.limits.forward_bytes_min:
                self.fetch(run, file)
            for entry in decided:
                self.all_located(entry)

    def _without_dead(self, run: Run, file: File, at: m.FileAt) -> m.FileAt | None:
        """The shard has not heard yet that some holders died. Tell it, and if nobody else holds the file, ask again."""
        shard = self.state.table.node_of(file.name)
        for holder in at.holders:
            if holder not in self.state.alive:
                self.outbox.send(shard, m.Lost(run.id, (file.name,), holder))
        live = tuple(holder for holder in at.holders if holder in self.state.alive)
        if live:
            return m.FileAt(at.name, at.size, live)
        self.outbox.locate(run.id, file.name)
        return None

    def all_located(self, entry: TaskEntry) -> None:
        """Every input of a parked task is somewhere: go where most of it is, or have it brought here."""
        run, spec = entry.run, entry.spec
        options = spec.options
        if options is not None and options.reduce:
            self.state.report_plan(entry)
            return
        files = [run.files[name] for name in spec.inputs]
        if run.info.data_aware and not entry.moved and not (options is not None and options.pin >= 0):
            here = 0
            held: dict[int, int] = {}
            for file in files:
                if file.state == FileState.REMOTE:
                    for holder in file.holders:
                        held[holder] = held.get(holder, 0) + file.size
                else:
                    here += file.size
            best = max(held, key=lambda node: (held[node], -node), default=self.node)
            if best != self.node and best in self.state.peers and held[best] >= here + self.limits.forward_bytes_min:
                self._forward(entry, best)
                return
        for file in files:
            if file.state == FileState.REMOTE and not file.fetching:
                self.fetch(run, file)

    def _forward(self, entry: TaskEntry, to: int) -> None:
        run = entry.run
        self.state.unpark(entry)
        self.state.forget(entry)
        run.counters["forwarded"] += 1
        self.outbox.send(to, m.Assign(run.id, (entry.spec,), moved=True))
        self.outbox.moved(entry.run.id, entry.spec, to)

    def fetch(self, run: Run, file: File) -> None:
        """Have a REMOTE file brought here."""
        if file.fetching or file.state != FileState.REMOTE:
            return
        file.fetching = True
        if not self._may_fetch(run, file):
            return
        self.ask_for(run, file)

    def _may_fetch(self, run: Run, file: File) -> bool:
        memory = self.memory
        if not memory.limit:
            return True
        if file.size <= SMALL_BYTES:
            memory.promise(file, file.size)
            return True
        if not self.fetches and file.size <= memory.room() - (memory.limit - memory.mark):
            memory.promise(file, file.size)
            return True
        file.source = -1
        self.fetches.append((run, file))
        return False

    def ask_for(self, run: Run, file: File) -> None:
        # Different readers start with different holders, so that one producer does not serve the whole machine.
        file.source = holder = file.holders[self.node % len(file.holders)]
        self.outbox.fetch(run.id, holder, file.name)

    def there(self, run: Run, file: File, fresh: bool = False) -> None:
        """The file has become LOCAL or SHARED: wake the tasks parked under it. ``fresh``: it was INVALID a moment ago."""
        waiting = file.waiting
        if not waiting:
            return
        file.waiting = []
        for entry in waiting:
            entry.missing -= 1
            entry.staging -= file.staged
            entry.bytes_in += file.size
            if fresh:
                entry.unlocated -= 1
            if entry.state != TaskState.INVALID:
                continue
            if not entry.missing:
                self.state.unpark(entry)
                self.state.become_ready(entry)
                continue
            if entry.missing == entry.staging:
                self.state.unpark(entry)
            if fresh and not entry.unlocated:
                self.all_located(entry)

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
                self.outbox.act(StoreInline(blob.name, blob.data, blob.mode, blob.mtime_ns))
                self._fetched(run, file, blob.size, peer)
            else:
                serial = self.state.job("fetch", run, blob.name, None)
                self.sources[serial] = peer
                if blob.name in self.to_disk:
                    self.to_disk.discard(blob.name)
                    self.disk_jobs.add(serial)
                self.outbox.act(FetchData(serial, peer, blob.name, blob.size, blob.mode, serial in self.disk_jobs, blob.mtime_ns))

    def _fetched(self, run: Run, file: File, size: int, source: int) -> None:
        file.size = size
        self.state.fetched_from[source] = self.state.fetched_from.get(source, 0) + size
        file.mtime_ns = 0
        file.fetching = False
        self.state.move_file(file, FileEvent.COPIED)
        file.spare = file.leaver < 0
        if file.leaver >= 0:
            self.outbox.send(file.leaver, m.FilesTaken(run.id, (file.name,)))
            file.leaver = -1
        run.counters["fetched_bytes"] += size
        if file.waiting:
            file.waiting[0].bytes_fetched += size
        run.counters["fetched_files"] += 1
        self.outbox.replica(run.id, file.name)
        self.there(run, file)

    def _fetch_failed(self, run: Run, file: File, holder: int) -> None:
        """Tell the FLS that ``holder`` has it no more, and ask anew: another holder, or word that it is lost."""
        file.fetching = False
        self.state.move_file(file, FileEvent.HOLDER_LOST)
        self.outbox.send(self.state.table.node_of(file.name), m.Lost(run.id, (file.name,), holder))
        self._seek_anew(run, file)

    def _gone_from_session(self, run: Run, file: File) -> None:
        """A task of this run had made it, and the session has lost its content: it is made again for those who wait."""
        file.fetching = False
        self.state.move_file(file, FileEvent.HOLDER_LOST)
        self.outbox.send(self.state.table.node_of(file.name), m.Lost(run.id, (file.name,), m.ON_SHARED))
        self._seek_anew(run, file)

    def _seek_anew(self, run: Run, file: File) -> None:
        """Nobody is known to have it any more: ask where it is, if somebody here still wants it."""
        if not self._wanted(file):
            del run.files[file.name]
            return
        for entry in file.waiting:
            entry.unlocated += 1
        self.outbox.locate(run.id, file.name)

    def on_file_failed(self, peer: int, message: m.FileFailed) -> None:
        run = self.state.run_for(message.run, peer, message)
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
                    self.state.unpark(entry)
                    self.state.move(entry, TaskEvent.INPUT_FAILED)
                    self.state.end(entry, m.Result(
                        entry.spec.tid, entry.spec.attempt, Outcome.UPSTREAM_FAILED, 0, self.node, detail=cause,
                    ))  # fmt: skip

    # ── serving others ─────────────────────────────────────────────────────────────────────────────

    def on_fetch(self, peer: int, message: m.Fetch) -> None:
        self.outbox.act(ReadStore(peer, message.run, message.names))

    def on_drop(self, peer: int, message: m.Drop) -> None:
        run = self.runs.get(message.run)
        if run is None:
            return
        for name in message.names:
            file = run.files.get(name)
            if file is None or file.fetching:
                continue
            if file.users:
                file.dropped = file.state == FileState.LOCAL
                continue
            del run.files[name]
            self.state.removed(file)
            self.outbox.delete(name)

    def on_flush(self, peer: int, message: m.Flush) -> None:
        run = self.runs.get(message.run)
        if run is None:
            return
        for name in message.names:
            self.copy_out(run, name, None)

    def origin(self, entry: TaskEntry) -> bytes:
        """The origin of files that this task has made, for their records."""
        options = entry.spec.options
        return origins.pack(entry.run.info, options.name if options is not None else "", self.node, unpack_body(entry.spec.body)[1])

    def copy_out(self, run: Run, name: str, entry: TaskEntry | None) -> None:
        file = run.files.get(name)
        if file is not None:
            file.users += 1
        short = name[len(run.info.scope):]
        path = destination_at_url(short, run.paths) or shared_path(run.info.base, short, run.info.hashed_outputs)
        origin = b""
        if entry is not None and in_namespace(short):
            origin = self.origin(entry)
        self.outbox.act(CopyOut(self.state.job("flush", run, name, entry), name, path, origin))

    def job_done(self, kind: str, run: Run, name: str, entry: TaskEntry | None, event: JobDone) -> None:
        """A job that brought a file here, or took it to shared storage, has ended."""
        source = self.sources.pop(event.serial, -1)
        on_disk = event.serial in self.disk_jobs
        if on_disk:
            self.disk_jobs.discard(event.serial)
            self.outbox.drop_copy(event.serial)  # unless somebody wants it
        if run.closing:
            return
        file = run.files.get(name)
        if kind == "flush":
            self._flush_done(run, name, file, entry, event)
            if event.damaged:
                self.on_file_damaged(FileDamaged(name))
        elif file is None or file.state != FileState.REMOTE:
            return
        elif kind == "fetch":
            if event.error:
                self.outbox.log(f"fetch of {name} failed: {event.error}", logging.WARNING)
                if event.own:
                    self.unreadable(run, file, event.error)
                elif source in self.state.alive:  # else another holder has been asked since, and is not to blame
                    self._fetch_failed(run, file, source)
            else:
                if on_disk:
                    self.outbox.keep_copy(event.serial)
                    file.size, file.copy = event.size, event.serial
                    self.memory.move(file, PlaceEvent.STORED_ON_DISK)
                    self.outbox.act(Evict(name, event.serial))
                self._fetched(run, file, event.size, source)
        elif event.lost_of and event.lost_of == origins.run_mark(run.info):
            self._gone_from_session(run, file)
        elif event.error:  # stage
            self.unreadable(run, file, event.error)
        else:
            file.fetching = False
            file.size, file.fixed, file.shared = event.size, event.directory, True
            self.state.move_file(file, FileEvent.COPIED)
            run.counters["staged_bytes"] += event.size
            run.counters["staged_files"] += 1
            if file.listing or not file.staged:  # a task has made it
                self.outbox.replica(run.id, name)  # so that it is dropped after its last reader, as on the node that made it
            self.there(run, file)

    def on_file_damaged(self, event: FileDamaged) -> None:
        run = next((run for run in self.runs.values() if event.name.startswith(run.info.scope)), None)
        file = run.files.get(event.name) if run is not None else None
        if run is not None and not run.closing and file is not None and file.state == FileState.LOCAL:
            self.say_damaged(file, "its content is not what was written")
            self.give_up(run, file)

    def say_damaged(self, file: File, why: str) -> None:
        self.outbox.log(f"{file.name} is damaged on node {self.node} and given up, so that another copy is used or it is made again: {why}",
                 logging.ERROR)

    def give_up(self, run: Run, file: File) -> None:
        """This node's content of it is worthless, or cannot be read. Tasks that were to read it wait for another: a holder has one, or the
        submitter has it made again."""
        name = file.name
        self.state.move_file(file, FileEvent.DROPPED)
        self.outbox.delete(name)
        staged = False
        for entry in run.tasks.values():
            if entry.state not in (TaskState.INVALID, TaskState.READY) or name not in (*entry.spec.inputs, *entry.spec.shared):
                continue
            if entry.state == TaskState.READY:
                self.state.move(entry, TaskEvent.INPUT_GONE)
            entry.missing += 1
            entry.staging += file.staged
            if not file.staged:
                self.state.park(entry)
            file.waiting.append(entry)
            if name in entry.spec.inputs:
                entry.unlocated += 1
            else:
                staged = True
        if staged:  # it is on shared storage
            self.state.move_file(file, FileEvent.LOCATED)
            self._stage_file(run, file)
            return
        if file.staged:  # and now somebody makes it
            file.staged = False
            for entry in file.waiting:
                entry.staging -= 1
                self.state.park(entry)
        self.outbox.send(self.state.table.node_of(name), m.Lost(run.id, (name,), self.node))
        if file.waiting:
            self.outbox.locate(run.id, file.name)
        else:
            del run.files[name]

    def on_store_failed(self, event: StoreFailed) -> None:
        """A file that was counted as here is not. Tasks that are with the launcher by now find that out themselves."""
        run = next((run for run in self.runs.values() if event.name.startswith(run.info.scope)), None)
        file = run.files.get(event.name) if run is not None else None
        if run is None or run.closing or file is None or file.state != FileState.LOCAL:
            return
        run.unstored[event.name] = event.error
        self.state.move_file(file, FileEvent.DROPPED)
        for entry in list(run.tasks.values()):
            if event.name in entry.spec.inputs and entry.state == TaskState.READY:
                self.state.move(entry, TaskEvent.INPUT_GONE)
                self.state.park(entry)
                file.waiting.append(entry)
        self.outbox.send(self.state.table.node_of(event.name), m.Lost(run.id, (event.name,), self.node))
        self.unreadable(run, file, event.error)

    def unreadable(self, run: Run, file: File, error: str) -> None:
        """It cannot be brought here: tasks that wait for it fail."""
        file.fetching = False
        if file.leaver >= 0:
            self.outbox.send(file.leaver, m.FilesTaken(run.id, (file.name,), refused=True))
        waiting, file.waiting = file.waiting, []
        del run.files[file.name]
        self.state.removed(file)
        for parked in waiting:
            if parked.state == TaskState.INVALID:
                self.state.unpark(parked)
                self.state.move(parked, TaskEvent.INPUT_FAILED)
                self.state.end(parked, m.Result(
                    parked.spec.tid, parked.spec.attempt, Outcome.SETUP, 0, self.node, detail=f"cannot read its input: {error}",
                ))  # fmt: skip

    def _flush_done(self, run: Run, name: str, file: File | None, entry: TaskEntry | None, event: JobDone) -> None:
        short = name[len(run.info.scope):]
        if entry is not None and file is not None and (in_namespace(short) or file.listing):
            self._taken_out(run, file, entry, bool(event.error))
        if not event.error:
            run.counters["copied_out_bytes"] += event.size
            run.counters["copied_out_files"] += 1
            if file is not None and file.state == FileState.LOCAL:
                self.outbox.publish(run.id, name, event.size, SHARED_RETENTION)
                file.shared = True
        if file is not None:
            self.state.leave(run, file)
        self.outbox.flushed(run.id, short, event.size, event.error)
        if entry is None:
            return
        entry.flushing -= 1
        if event.error and entry.result is not None and entry.result.outcome == Outcome.OK:
            detail = f"cannot write its output: {event.error}"
            entry.result = msgspec.structs.replace(entry.result, outcome=Outcome.OUTPUT_LOST, detail=detail)
        if not entry.flushing:
            assert entry.result is not None
            good = entry.result.outcome == Outcome.OK
            self.state.move(entry, TaskEvent.FLUSHED if good else TaskEvent.WENT_WRONG)
            self.state.end(entry, entry.result)

    def _taken_out(self, run: Run, file: File, entry: TaskEntry, failed: bool) -> None:
        """An output has become a file of the session's file system, or a directory at a URL, or not: then it is no output, and those who
        wait for it go on waiting until it is made again or given up."""
        if not failed:
            fresh = file.state == FileState.INVALID
            self.state.move_file(file, FileEvent.PRODUCED)
            retention = dict(zip(entry.spec.outputs, entry.spec.retentions, strict=True))[file.name]
            self.outbox.publish(run.id, file.name, file.size, retention, file.listing)
            self.there(run, file, fresh)
        elif file.state == FileState.INVALID:
            self.outbox.delete(file.name)
            if self._wanted(file):
                self.outbox.locate(run.id, file.name)  # those that came while it was being written have not asked
            elif file.users == 1:
                del run.files[file.name]

    # ── the machine's surroundings change ──────────────────────────────────────────────────────────

    def members_changed(self, before: PartitionTable, dead: Set[int], in_order: Mapping[int, Set[int]]) -> None:
        """Publish and ask again what a shard knew that died; forget what the dead held. A shard that has left ``in_order`` has handed
        over all that it knew of some runs."""
        parts = self.lost_parts.after(before, self.state.table, dead - in_order.keys())
        given = [(runs, self.lost_parts.given_by((node,))) for node, runs in in_order.items()]
        for run in self.runs.values():
            again = self._named_in(run, {*parts, *[part for runs, more in given if run.id not in runs for part in more]})
            for file in list(run.files.values()):
                if file.state == FileState.REMOTE and any(holder in dead for holder in file.holders):
                    file.holders = tuple(holder for holder in file.holders if holder not in dead)
                    if file.holders and not (file.fetching and file.source in dead):
                        continue  # it is still to be had, or on its way, from another
                    self.state.move_file(file, FileEvent.HOLDER_LOST)
                    file.fetching = False
                    self._seek_anew(run, file)
                    continue
                if file.spare and any(holder in dead for holder in file.holders):
                    file.spare = False
                if file.name in again:
                    if file.state == FileState.LOCAL:
                        # Readers can no longer be counted by a shard that starts from nothing: keep to the end of the run.
                        self.outbox.publish(run.id, file.name, file.size, m.retention(m.KEEP), file.listing)
                    elif file.state == FileState.INVALID:
                        self.outbox.locate(run.id, file.name)

    def _named_in(self, run: Run, parts: Set[int]) -> Set[str]:
        """The files of the run whose records are in these partitions."""
        if not parts:
            return frozenset()
        names = list(run.files)
        return {name for name, part in zip(names, self.state.table.parts(names), strict=True) if part in parts}

    def check_invariants(self) -> None:
        for run in self.runs.values():
            for file in run.files.values():
                if file.state in (FileState.LOCAL, FileState.SHARED):
                    assert not [e for e in file.waiting if e.state == TaskState.INVALID], f"{file.name} is there, and tasks wait for it"
