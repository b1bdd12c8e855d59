"""One shard of the File Location Service (AME §3.3) with the FLS half of the File Availability Protocol (§3.2). Pure.

Owns, for the keys of the partitions this node has: state, size, holders, waiters, how many readers are left. Knows nothing of tasks or of
where bytes lie on a node. It is soft state: a lost shard is rebuilt from what the surviving workers publish and ask again. Files that were
made, are wanted and are nowhere any more are named to the submitter, which has them made again.

Every message may be repeated: publishing adds a holder once, waiters are a set, a name is dropped once.
"""

from __future__ import annotations

from collections.abc import Iterable

from amfs.engine.machine import GoneRuns, Machine
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.paths import scope_of
from amfs.vocabulary.states import LOOKUP_NEXT, LookupEvent, LookupState, illegal

_INVALID, _VALID, _FAILED = LookupState.INVALID, LookupState.VALID, LookupState.FAILED
_KEEP = m.KEEP
SHARED_RETENTION = -1  # ``retention`` of a file that is on shared storage: no node need hold it


class FileRecord:
    """What the shard knows of one file."""

    __slots__ = (
        "cause", "final", "gone", "holders", "listing", "lost", "made", "name", "readers", "released", "settler", "shared", "size", "state",
        "waiters",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = LookupState.INVALID
        self.made = False  # was VALID before
        self.size = 0
        self.holders: list[int] = []  # first producer first
        self.waiters: dict[int, None] = {}  # ordered set of nodes that asked while INVALID
        self.readers = _KEEP  # how many releases it takes until it may be dropped; KEEP: never by counting
        self.released = 0
        self.final = False
        self.listing = 0  # of a directory that is at a URL: it is shared when it is told
        self.shared = False
        self.lost = False  # it was VALID, and its last holder died
        self.gone = False  # it was shared, as a file of the session, whose content is lost
        self.settler = -1  # submitter to tell when it is on shared storage: it settled the file before the publication came here
        self.cause = ""


class FlsShard(Machine):
    """The records of one node's partitions, for all runs. ``runs[run][key]`` is a FileRecord."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.runs: dict[int, dict[str, FileRecord]] = {}
        self.dropped: dict[int, set[str]] = {}  # run -> files that its submitter let go, and of which nothing else is kept
        self.epoch = 0
        #: runs during which nodes came or went: records were lost or moved, so readers can no longer be counted and nothing is dropped;
        #: a file that is not known may have been made
        self.keeping: set[int] = set()
        self.gone = GoneRuns()
        self.clients: dict[int, int] = {}  # run -> its submitter
        self._missing: dict[tuple[int, int], list[str]] = {}  # (run, -1 or ON_SHARED)
        self._located: dict[tuple[int, int], list[m.FileAt]] = {}  # (run, to)
        self._drops: dict[tuple[int, int], list[str]] = {}
        self._flushes: dict[tuple[int, int], list[str]] = {}
        self._settled: dict[tuple[int, int], list[tuple[str, int, str]]] = {}
        self.on_message = {
            m.Publish: self.on_publish,
            m.Replica: self.on_replica,
            m.Locate: self.on_locate,
            m.Release: self.on_release,
            m.ReadAgain: self.on_read_again,
            m.Poison: self.on_poison,
            m.FinalizeFiles: self.on_finalize,
            m.Lost: self.on_lost,
            m.RunBegin: self.on_run_begin,
            m.RunEnd: self.on_run_end,
        }
        self.on_event = {MembersChanged: self.on_members_changed}

    def _record(self, run: int, name: str) -> FileRecord:
        records = self.runs.get(run)
        if records is None:
            records = self.runs[run] = {}
        record = records.get(name)
        if record is None:
            record = records[name] = FileRecord(name)
            record.made = run in self.dropped and name in self.dropped[run]
        return record

    def _move(self, record: FileRecord, event: LookupEvent) -> None:
        state = LOOKUP_NEXT[record.state][event]
        if state is None:
            raise illegal("FLS file", record.name, record.state, event)
        record.state = state

    # ── workers tell ───────────────────────────────────────────────────────────────────────────────

    def on_publish(self, peer: int, message: m.Publish) -> None:
        run = message.run
        if run in self.gone:
            return
        for file in message.files:
            record = self._record(run, file.name)
            first = record.state != _VALID
            self._move(record, LookupEvent.PUBLISHED)
            record.made = True
            if first:
                record.size = file.size
            if file.listing:
                record.listing, record.shared = file.listing, True
            if file.retention == SHARED_RETENTION:
                record.shared = True
                record.gone = False
            elif peer not in record.holders:
                record.holders.append(peer)
            if file.retention >= 0:
                record.readers = file.retention >> 1
                record.final = bool(file.retention & m.FINAL)
            record.lost = False
            if record.settler >= 0:
                self._finalize(run, record, record.settler)
            if record.waiters:
                at = self._at(record)
                for waiter in record.waiters:
                    self._located.setdefault((run, waiter), []).append(at)
                record.waiters.clear()
            if record.released >= record.readers:
                self._drop_if_done(run, record)

    def on_replica(self, peer: int, message: m.Replica) -> None:
        records = self.runs.get(message.run)
        for name in message.names:
            record = records.get(name) if records else None
            if record is None or record.state != _VALID:
                # Dropped while the copy was on its way: the copy must go too, or it would stay to the end of the run.
                self._drops.setdefault((message.run, peer), []).append(name)
                continue
            if peer not in record.holders:
                record.holders.append(peer)
            if record.released >= record.readers:  # it is on shared storage, and its last reader ended while the copy was on its way
                self._drop_if_done(message.run, record)

    def on_locate(self, peer: int, message: m.Locate) -> None:
        if message.run in self.gone:
            return
        failed: list[FileRecord] = []
        for name in message.names:
            record = self._record(message.run, name)
            if record.state == _VALID:
                self._located.setdefault((message.run, peer), []).append(self._at(record))
            elif record.state == _FAILED:
                failed.append(record)
            else:
                record.waiters[peer] = None
                if record.made or message.run in self.keeping:
                    self._miss(message.run, record)
        if failed:
            self.send(
                peer, m.FileFailed(message.run, tuple(r.name for r in failed), tuple(r.cause for r in failed))
            )

    def on_release(self, peer: int, message: m.Release) -> None:
        run = message.run
        if run in self.gone:
            return
        records, dropped = self.runs.get(run, {}), self.dropped.get(run, ())
        for name in message.names:
            record = records.get(name)
            if record is None:
                if name in dropped:
                    continue
                # A reader can end before the shard hears of the file: it failed by another input, or its dispatcher gave it up.
                record = self._record(run, name)
            record.released += 1
            if record.released >= record.readers:
                self._drop_if_done(run, record)

    def on_lost(self, peer: int, message: m.Lost) -> None:
        if message.run in self.gone:
            return
        records = self.runs.get(message.run, {})
        for name in message.names:
            record = records.get(name)
            if message.holder == m.ON_SHARED:
                self._lose_shared(message.run, record or self._record(message.run, name))
            elif record is not None:
                self._lose_holder(message.run, record, message.holder)

    # ── submitter and dispatchers tell ─────────────────────────────────────────────────────────────

    def on_read_again(self, peer: int, message: m.ReadAgain) -> None:
        records = self.runs.get(message.run, {})
        for name in message.names:
            if name in records:  # else no release of it was counted here, or the submitter has let it go
                records[name].released -= 1

    def on_poison(self, peer: int, message: m.Poison) -> None:
        if message.run in self.gone:
            return
        told: dict[int, list[str]] = {}
        for name in message.names:
            record = self._record(message.run, name)
            if record.state == _VALID:
                continue  # somebody made it after all
            self._move(record, LookupEvent.POISONED)
            record.cause = record.cause or message.cause
            for waiter in record.waiters:
                told.setdefault(waiter, []).append(name)
            record.waiters.clear()
        for waiter, names in told.items():
            self.send(waiter, m.FileFailed(message.run, tuple(names), (message.cause,) * len(names)))

    def on_finalize(self, peer: int, message: m.FinalizeFiles) -> None:
        if message.run in self.gone:
            return
        for name in message.finals:
            self._finalize(message.run, self._record(message.run, name), peer)
        records = self.runs.get(message.run, {})
        for name in message.drops:
            record = records.get(name)
            if record is not None:
                was_valid = record.state == _VALID
                record.readers = 0
                self._drop_if_done(message.run, record)
                if was_valid and record.state != _VALID:
                    del records[name]
                    self.dropped.setdefault(message.run, set()).add(name)

    def on_run_begin(self, peer: int, message: m.RunBegin) -> None:
        if message.run not in self.gone:
            self.clients[message.run] = message.client
            if message.epoch < self.epoch:
                self.keeping.add(message.run)  # some of its records were elsewhere before
                for record in self.runs.get(message.run, {}).values():
                    if record.waiters:
                        self._miss(message.run, record)

    def on_run_end(self, peer: int, message: m.RunEnd) -> None:
        self.clients.pop(message.run, None)
        self.runs.pop(message.run, None)
        self.dropped.pop(message.run, None)
        self.keeping.discard(message.run)
        self.gone.add(message.run)

    def on_members_changed(self, event: MembersChanged) -> None:
        """Partitions may have moved. From now on no file of the running runs is dropped."""
        if self.epoch:
            self.keeping.update(self.clients, self.runs)
        self.epoch = event.table.version
        for node in sorted(event.dead):
            self._forget_node(node)

    def _forget_node(self, node: int) -> None:
        """``node`` died: it holds nothing and waits for nothing any more."""
        for run, records in self.runs.items():
            for record in records.values():
                record.waiters.pop(node, None)
                self._lose_holder(run, record, node)
                if record.waiters:  # word that it was made may have died with the node
                    self._miss(run, record)
                if record.settler >= 0:
                    # The publication may have died with it. Nobody can tell, and the run must end.
                    record.lost = True
                    self._finalize(run, record, record.settler)

    def _finalize(self, run: int, record: FileRecord, submitter: int) -> None:
        """Send a final on its way to shared storage. The submitter waits for each: say at once what needs no copy, or can have none."""
        record.settler = -1
        if record.state == _VALID and not record.shared:
            record.final = True
            self._flushes.setdefault((run, record.holders[0]), []).append(record.name)
        elif record.state == _INVALID and not record.lost:
            # That its writer has finished came round by the submitter faster than the publication came here.
            record.settler = submitter
        else:
            error = "" if record.state == _VALID else "it was lost with its node"
            self._settled.setdefault((run, submitter), []).append((record.name[len(scope_of(run)) :], record.size, error))

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────

    def _at(self, record: FileRecord) -> m.FileAt:
        """Where it is; no holders: on shared storage. A copy in memory is preferred, because nothing can change it while it is read; but
        a directory comes from its URL."""
        return m.FileAt(record.name, record.size, () if record.listing else tuple(record.holders), record.listing)

    def _lose_holder(self, run: int, record: FileRecord, node: int) -> None:
        if node in record.holders:
            record.holders.remove(node)
            if not record.holders and not record.shared and record.state == _VALID:
                self._move(record, LookupEvent.LAST_HOLDER_LOST)
                record.lost = True

    def _lose_shared(self, run: int, record: FileRecord) -> None:
        record.made = record.gone = True
        record.shared = False
        if record.state == _VALID and not record.holders:
            self._move(record, LookupEvent.LAST_HOLDER_LOST)
            record.lost = True

    def _miss(self, run: int, record: FileRecord) -> None:
        """Somebody wants it, and nobody has it: its submitter is told."""
        self._missing.setdefault((run, m.ON_SHARED if record.gone else -1), []).append(record.name)

    def _drop_if_done(self, run: int, record: FileRecord) -> None:
        """All readers have finished: tell the holders to delete it, unless it must reach shared storage first."""
        if record.state != _VALID or run in self.keeping or (record.final and not record.shared):
            return
        for holder in record.holders:
            self._drops.setdefault((run, holder), []).append(record.name)
        record.holders.clear()
        if not record.shared:
            self._move(record, LookupEvent.DROPPED)

    def flush(self) -> None:
        if self._located:
            for (run, to), files in self._located.items():
                self.send(to, m.Located(run, tuple(files)))
            self._located = {}
        if self._missing:
            for (run, where), names in self._missing.items():
                if run in self.clients:
                    self.send(self.clients[run], m.Lost(run, tuple(names), where))
            self._missing = {}
        if self._drops:
            for (run, to), names in self._drops.items():
                self.send(to, m.Drop(run, tuple(names)))
            self._drops = {}
        if self._flushes:
            for (run, to), names in self._flushes.items():
                self.send(to, m.Flush(run, tuple(names)))
            self._flushes = {}
        if self._settled:
            for (run, to), settled in self._settled.items():
                self.send(to, m.Flushed(run, tuple(settled)))
            self._settled = {}

    def records(self) -> Iterable[tuple[int, FileRecord]]:
        for run, records in self.runs.items():
            for record in records.values():
                yield run, record

    def check_invariants(self) -> None:
        for _, record in self.records():
            assert len(set(record.holders)) == len(record.holders), f"{record.name}: a holder twice"
            if record.state == _VALID:
                assert not record.waiters, f"{record.name}: VALID, and somebody still waits"
                assert record.holders or record.shared, f"{record.name}: VALID, and nowhere"
            else:
                assert not record.holders, f"{record.name}: {record.state.name}, and held by {record.holders}"
            if record.state == _FAILED:
                assert not record.waiters, f"{record.name}: FAILED, and somebody still waits"
