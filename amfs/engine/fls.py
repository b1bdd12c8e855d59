"""One shard of the File Location Service (AME §3.3) with the FLS half of the File Availability Protocol (§3.2). Pure.

Owns, for the keys of the partitions this node has: state, size, holders, waiters, how many readers are left. Knows nothing of tasks or of
where bytes lie on a node. It is soft state: a lost shard is rebuilt from what the surviving workers publish and ask again. Files that were
made, are wanted and are nowhere any more are named to the submitter, which has them made again. When a partition goes to another node
that lives, its records go with it (``shard_moves``).

Every message may be repeated: publishing adds a holder once, waiters are a set, a name is dropped once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from amfs.engine.machine import GoneRuns, Machine
from amfs.engine.shard_moves import ByName, ShardMoves, keys_of, only
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.file_parts import FileFacts, RunFacts
from amfs.vocabulary.paths import scope_of
from amfs.vocabulary.states import LOOKUP_NEXT, LookupEvent, LookupState, illegal

_INVALID, _VALID, _FAILED = LookupState.INVALID, LookupState.VALID, LookupState.FAILED
_KEEP = m.KEEP
SHARED_RETENTION = -1  # ``retention`` of a file that is on shared storage: no node need hold it
_FILES = 1000  # of which one message tells that hands records over


class FileRecord:
    """One file, as its shard knows it."""

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

    def facts(self) -> FileFacts:
        """All of it, for another shard."""
        return FileFacts(
            self.name, self.state, self.size, tuple(self.holders), tuple(self.waiters), self.readers, self.released, self.settler,
            self.listing, self.made, self.final, self.shared, self.lost, self.gone, self.cause,
        )  # fmt: skip


class FlsShard(Machine):
    """The records of one node's partitions, for all runs. ``runs[run][key]`` is a FileRecord."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.runs: dict[int, dict[str, FileRecord]] = {}
        self.dropped: dict[int, set[str]] = {}  # run -> files that its submitter let go, and of which nothing else is kept
        self.moves = ShardMoves(node)
        self.given: dict[int, set[int]] = {}  # run -> shards that have heard of it from this one
        #: runs during which nodes were lost, and records with them: readers can no longer be counted and nothing is dropped; a file that is
        #: not known may have been made
        self.keeping: set[int] = set()
        self.gone = GoneRuns()
        self.clients: dict[int, int] = {}  # run -> its submitter
        self._missing: dict[tuple[int, int], list[str]] = {}  # (run, -1 or ON_SHARED)
        self._located: dict[tuple[int, int], list[m.FileAt]] = {}  # (run, to)
        self._drops: dict[tuple[int, int], list[str]] = {}
        self._flushes: dict[tuple[int, int], list[str]] = {}
        self._settled: dict[tuple[int, int], list[tuple[str, int, str]]] = {}
        self._by_name: dict[type, Callable[[int, Any], None]] = {
            m.Publish: self.on_publish,
            m.Replica: self.on_replica,
            m.Locate: self.on_locate,
            m.Release: self.on_release,
            m.ReadAgain: self.on_read_again,
            m.Poison: self.on_poison,
            m.FinalizeFiles: self.on_finalize,
            m.Lost: self.on_lost,
        }
        self.on_message = {
            **dict.fromkeys(self._by_name, self.receive),
            m.RunBegin: self.on_run_begin,
            m.RunEnd: self.on_run_end,
            m.HandOver: self.on_hand_over,
            m.Astray: self.on_astray,
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

    # ── partitions move ────────────────────────────────────────────────────────────────────────────

    def receive(self, peer: int, message: ByName) -> None:
        """Hear the news of files of this shard, or keep them until the records come; send the rest on."""
        hear = self._by_name[type(message)]
        found = self.moves.sort(message.run, keys_of(message)) if message.run not in self.gone else None
        if found is None:
            hear(peer, message)
            return
        if found.mine:
            hear(peer, only(message, found.mine))
        for part, keys in found.waiting.items():
            self.moves.waiting.setdefault(part, []).append((peer, only(message, keys)))
        for node, keys in found.away.items():
            theirs = only(message, keys)
            self.send(node, m.Astray(self.moves.epoch, peer, theirs))
            self.moves.sent_on.append((node, peer, theirs))

    def on_astray(self, peer: int, message: m.Astray) -> None:
        if peer >= m.CLIENT_ID_MIN:
            return
        if message.epoch > self.moves.epoch:
            self.moves.early.append((peer, message))
        else:
            self._receive_late(message.peer, message.message)

    def _receive_late(self, peer: int, message: ByName) -> None:
        """Its sender may be gone meanwhile: then it holds nothing, and waits for nothing."""
        if peer not in self.moves.dead or not isinstance(message, (m.Replica, m.Locate)):
            self.receive(peer, message)

    def _go_on(self) -> None:
        """Hear what need not wait any longer."""
        if self.moves.waiting:
            for peer, message in self.moves.ready():
                self._receive_late(peer, message)

    def _known(self) -> set[int]:
        return {*self.clients, *self.runs}

    def _hand_over(self, left: Sequence[int], others: Iterable[int] = ()) -> None:
        """Tell other shards what is known of files that are theirs, and that nothing is left to say of the partitions ``left``. ``others``:
        all nodes that may wait for word from this one, which has missed a view."""
        moves, known = self.moves, sorted(self._known())
        if not known and not others:
            moves.unsaid.update(dict.fromkeys(left, moves.epoch))
            return
        about: dict[int, dict[int, tuple[list[FileFacts], list[str]]]] = {}
        for run in known:
            for node, names in self._elsewhere(list(self.runs.get(run, ()))):
                about.setdefault(node, {}).setdefault(run, ([], []))[0].extend([self.runs[run].pop(name).facts() for name in names])
            for node, names in self._elsewhere(list(self.dropped.get(run, ()))):
                about.setdefault(node, {}).setdefault(run, ([], []))[1].extend(names)
                self.dropped[run].difference_update(names)
        parts: dict[int, list[int]] = {}
        for part in left:
            if not moves.has(part):
                parts.setdefault(moves.owner(part), []).append(part)
        for node in sorted({*about, *parts, *others}):
            for run, (files, dropped) in about.get(node, {}).items():
                for first in range(0, max(len(files), len(dropped)), _FILES):
                    some = self._run_facts(run, files[first : first + _FILES], dropped[first : first + _FILES])
                    self.send(node, m.HandOver(moves.epoch, (), (some,)))
            last = tuple([self._run_facts(run) for run in known])
            self.send(node, m.HandOver(moves.epoch, tuple(parts.get(node, ())), last, node in others))
            for run in known:
                self.given.setdefault(run, set()).add(node)

    def _elsewhere(self, names: list[str]) -> Iterable[tuple[int, list[str]]]:
        """Those of other shards, by shard."""
        found: dict[int, list[str]] = {}
        for name, part in zip(names, self.moves.parts(names), strict=True):
            if (owner := self.moves.owner(part)) != self.node:
                found.setdefault(owner, []).append(name)
        return found.items()

    def _run_facts(self, run: int, files: Sequence[FileFacts] = (), dropped: Sequence[str] = ()) -> RunFacts:
        return RunFacts(run, self.clients.get(run, -1), run in self.keeping, tuple(files), tuple(dropped))

    def on_hand_over(self, peer: int, message: m.HandOver) -> None:
        """Another shard hands over records. Those of partitions that have moved on meanwhile are passed on."""
        moves = self.moves
        if peer >= m.CLIENT_ID_MIN:
            return
        if message.epoch > moves.epoch:
            moves.early.append((peer, message))
            return
        for facts in message.runs:
            run = facts.run
            if run in self.gone:
                continue
            if facts.client >= 0:
                self.clients.setdefault(run, facts.client)
            if facts.keeping and run not in self.keeping:
                self.keeping.add(run)
                self._miss_all(run)
            if facts.dropped:
                self.dropped.setdefault(run, set()).update(facts.dropped)
            for file in facts.files:
                self._merge(run, file)
        names = [name for facts in message.runs for name in (*[file.name for file in facts.files], *facts.dropped)]
        left = list(message.partitions)
        if message.all_said:
            self.keeping.update(self._known())
            left += moves.all_said(peer)
        moves.came(left)
        if not all(moves.has(part) for part in (*left, *moves.parts(names))):
            self._hand_over(left)
        self._go_on()

    def _merge(self, run: int, facts: FileFacts) -> None:
        """Take in another shard's record of a file, of which something may be known here as well."""
        record, dead = self._record(run, facts.name), self.moves.dead
        waited = bool(record.waiters)
        record.made |= facts.made
        record.final |= facts.final
        record.released += facts.released
        record.cause = record.cause or facts.cause
        if record.readers == _KEEP:
            record.readers = facts.readers
        holders = [node for node in facts.holders if node not in dead]
        if facts.state == _VALID and (holders or facts.shared):
            if record.state != _VALID:
                record.size = facts.size
            self._move(record, LookupEvent.PUBLISHED)
            record.holders += [node for node in holders if node not in record.holders]
            record.shared |= facts.shared
            record.listing = record.listing or facts.listing
            record.lost = record.gone = False
        elif record.state == _INVALID:
            record.lost |= facts.lost or facts.state == _VALID
            record.size = record.size or facts.size
            record.gone |= facts.gone
            if facts.state == _FAILED:
                self._move(record, LookupEvent.POISONED)
        record.waiters.update(dict.fromkeys([node for node in facts.waiters if node not in dead]))
        if record.waiters and record.state == _INVALID:
            if run in self.keeping or (record.made and waited):
                self._miss(run, record)
        elif record.waiters:
            self._tell_waiters(run, record)
        settler = max(record.settler, facts.settler)
        if settler >= 0:
            self._finalize(run, record, settler)
        if record.released >= record.readers:
            self._drop_if_done(run, record)

    def _tell_waiters(self, run: int, record: FileRecord) -> None:
        """It is VALID, or FAILED."""
        for waiter in record.waiters:
            if record.state == _VALID:
                self._located.setdefault((run, waiter), []).append(self._at(record))
            else:
                self.send(waiter, m.FileFailed(run, (record.name,), (record.cause,)))
        record.waiters.clear()

    # ── workers tell ───────────────────────────────────────────────────────────────────────────────

    def on_publish(self, peer: int, message: m.Publish) -> None:
        run = message.run
        if run in self.gone:
            return
        for file in message.files:
            record = self._record(run, file.name)
            first = record.state != _VALID
            if peer in self.moves.dead and not (file.listing or file.retention == SHARED_RETENTION):
                self._was_made(run, record, file)
                continue
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
                self._tell_waiters(run, record)
            if record.released >= record.readers:
                self._drop_if_done(run, record)

    def _was_made(self, run: int, record: FileRecord, file: m.Published) -> None:
        """The node that has made it is gone, and says so late. Had this come before, its record would be as it is now."""
        if file.retention >= 0:
            record.readers, record.final = file.retention >> 1, bool(file.retention & m.FINAL)
        if record.state != _INVALID:
            return
        record.lost |= not record.made
        record.made, record.size = True, file.size
        if record.waiters:
            self._miss(run, record)
        if record.settler >= 0:
            self._finalize(run, record, record.settler)

    def on_replica(self, peer: int, message: m.Replica) -> None:
        records = self.runs.get(message.run)
        for name in message.names:
            record = records.get(name) if records else None
            if record is not None and record.lost and record.made and record.state == _INVALID and peer not in self.moves.dead:
                self._move(record, LookupEvent.PUBLISHED)  # its last holder went while word of this copy was on its way
                record.lost, record.holders = False, [peer]
                self._tell_waiters(message.run, record)
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
        run = message.run
        if run in self.gone:
            return
        self.clients[run] = message.client
        if not self.moves.is_whole(run, message.epoch):
            self.keeping.add(run)  # some of its records were elsewhere before
            self._miss_all(run)
        if run not in self.moves.since:
            if left := self.moves.begins(run, message.since):
                self._hand_over(left)
            self._go_on()

    def on_run_end(self, peer: int, message: m.RunEnd) -> None:
        self.clients.pop(message.run, None)
        self.runs.pop(message.run, None)
        self.dropped.pop(message.run, None)
        self.keeping.discard(message.run)
        self.gone.add(message.run)
        for node in sorted(self.given.pop(message.run, ())):  # it may have joined too late for the submitter to tell it
            if node not in self.moves.dead:
                self.send(node, m.RunEnd(message.run, message.kill))
        self.moves.ends(message.run)
        if left := self.moves.passed(self._known()):
            self._hand_over(left)

    def on_members_changed(self, event: MembersChanged) -> None:
        """Records of partitions that moved go to their new shards. If nodes were lost no file of these runs is dropped from now on. With a
        node that has left in order only the copies are gone that it had."""
        turn = self.moves.follow(event, self._known())
        self.keeping.update(self._known() if turn.lost else turn.unheard)
        for node in sorted(event.dead):
            self._forget_node(node, event.in_order.get(node, frozenset()))
        for nodes in self.given.values():
            nodes -= event.dead
        if turn.jumped:
            for run in self.runs:
                self._miss_all(run)
        if turn.left or turn.gave:
            self._hand_over(turn.left, event.slots.keys() - {self.node} if turn.jumped else ())
        self._go_on()
        for sender, message in self.moves.lost_on_the_way() if event.dead or turn.lost else ():
            self._receive_late(sender, message)
        for sender, early in self.moves.due():
            self.on_message[type(early)](sender, early)

    def _forget_node(self, node: int, heard: Set[int]) -> None:
        """``node`` is gone: it holds nothing and waits for nothing any more. ``heard``: runs of which all is known that it said."""
        for run, records in self.runs.items():
            for record in records.values():
                record.waiters.pop(node, None)
                self._lose_holder(run, record, node)
                if run in heard:
                    continue
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

    def _miss_all(self, run: int) -> None:
        """Likewise for all that is waited for."""
        for record in self.runs.get(run, {}).values():
            if record.waiters:
                self._miss(run, record)

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

    def is_cleared(self) -> bool:
        """Has this shard nothing that another one is to have?"""
        moves = self.moves
        return not (any(self.runs.values()) or any(self.dropped.values()) or moves.expected or moves.waiting or moves.early)

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
