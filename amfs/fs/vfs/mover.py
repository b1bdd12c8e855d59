"""Partitions that move when nodes come or go (MemFS §II): only those whose owner changed, each with its records and its stripes. Pure.

At any time one node has the records of a partition. When it learns of a table that gives the partition to another it stops serving it and
sends the records, until that one has said that they are there; a node that is asked twice for the same answers so again. Both must have the
same table, so nothing that is older than what the owner has can come to it. The owner serves the records from then on, and brings the
stripes one after the other. A partition whose records no living node has is taken over as it is: empty but for what every node knows, the
directories.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from amfs._native import Meta
from amfs.engine import fs_works as w
from amfs.engine import peer_requests as p
from amfs.engine.attr import META_BUSY, META_NOT_MINE
from amfs.fs.vfs.calls import PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, together, work
from amfs.fs.vfs.members import Members

RECORD_BYTES = 4 << 20  # in one message, or those of one partition
PARTITIONS_AT_ONCE = 64  # whose stripes are brought before any of them is served
STRIPES_LISTED = 10_000
STRIPES_AT_ONCE = 64
BRING_PAUSE_S = 1.0  # at most, before what could not be brought is tried again


class PartitionMover:
    """Sends and takes in partitions."""

    def __init__(self, calls: Calls, meta: Meta, members: Members) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._leaving: dict[int, int] = {}  # partitions whose records are here and that are not ours -> version of the table since which
        self._arriving: set[int] = set()  # partitions that are ours, and whose records are not here
        self._fetching: set[int] = set()  # partitions that are ours and here, but for stripes that have not come yet
        self._inherited: set[int] = set()  # those arriving whose owner has died
        self._doubtful: dict[int, int] = {}  # partitions leaving -> node that was sent them, and may have them or not
        self._took: dict[int, tuple[int, int]] = {}  # partition -> (who sent it, its version in ``_leaving`` there)
        self._senders: set[int] = set()  # nodes to which partitions are being sent
        self._asking = False
        calls.serve(
            p.StripesOf.by(self._stripes_of),
            p.Arrive.by(self._arrive),
            p.Have.by(self._have),
            p.Lose.by(self._lost),
        )

    def in_motion(self) -> bool:
        """Are records on their way from or to this node?"""
        return bool(self._arriving or self._leaving)

    def is_fetching(self) -> bool:
        """Are stripes on their way to this node?"""
        return bool(self._fetching)

    def move(self, owners: tuple[int, ...], dead: set[int]) -> None:
        """The table is ``owners`` from now on (``meta`` knows it already)."""
        members = self._members
        before, members.owners = members.owners, owners
        founded = not before and set(owners) == {members.node}
        if founded:
            members.introduced = True
        mine = {part for part, owner in enumerate(owners) if owner == members.node}
        had = {part for part, owner in enumerate(before) if owner == members.node}
        self._leaving.update((part, members.version) for part in had - mine - self._arriving)
        gained = mine - had if not founded else set()
        self._arriving = (self._arriving | gained) & mine
        self._inherited = (self._inherited | {part for part in gained if before and before[part] in dead}) & self._arriving
        for part in [part for part, node in self._doubtful.items() if node in dead]:
            del self._doubtful[part]  # if it had it, that is gone with it
        self._keep_ours()
        self._freeze()
        self._wake_senders()
        if self._arriving and not self._asking:
            self._calls.spawn(self._find_orphans())

    def _keep_ours(self) -> None:
        """What was to leave, and did not, is ours again."""
        owners, me = self._members.owners, self._members.node
        for part in [part for part in self._leaving if owners[part] == me and part not in self._doubtful]:
            del self._leaving[part]
            self._arriving.discard(part)

    def _freeze(self) -> None:
        away = self._arriving | set(self._leaving)
        count = len(self._members.owners)
        self._meta.set_moving([part for part in range(count) if part not in away], False)
        if away:
            self._meta.set_moving(sorted(away), True)
        self._calls.order(w.SetMoving(count, sorted(away | self._fetching)))

    # ── sending ────────────────────────────────────────────────────────────────────────────────────

    def _wake_senders(self) -> None:
        targets = {self._target(part) for part in self._leaving}
        for node in targets & self._members.live - self._senders - {self._members.node}:
            self._senders.add(node)
            self._calls.spawn(self._send(node))

    def _target(self, part: int) -> int:
        return self._doubtful.get(part, self._members.owners[part])

    def _send(self, node: int) -> Operation[None]:
        """All that is to go to ``node``, until it is there, or goes to another."""
        try:
            while node in self._members.live and (parts := [part for part in sorted(self._leaving) if self._target(part) == node]):
                if not (yield from self._send_some(node, parts)):
                    yield Sleep(PAUSE_LAST_S)
        finally:
            self._senders.discard(node)
        self._wake_senders()

    def _send_some(self, node: int, parts: list[int]) -> Operation[bool]:
        """One message. False: ``node`` has another table, or does not answer."""
        records: list[tuple[int, int, bytes]] = []
        size = 0
        while parts and size < RECORD_BYTES:
            part = parts.pop(0)
            records.append((part, self._leaving[part], self._meta.export_partition(part)))
            size += len(records[-1][2])
            self._doubtful[part] = node
        taken: set[int] = set()
        try:
            taken.update((yield from ask(node, p.Arrive(self._members.version, tuple(records)))))
        except OSError as error:
            if error.errno != errno.EHOSTDOWN:
                return False  # it may have them, and is asked again
        for part, since, _ in records:
            self._doubtful.pop(part, None)
            if part in taken and self._leaving.get(part) == since:
                del self._leaving[part]
                self._meta.drop(part)
        self._keep_ours()
        self._freeze()
        return bool(taken)

    def _stripes_of(self, peer: int, call: p.StripesOf) -> Operation[list[tuple[int, int]]]:
        wanted = {part for part in call.partitions if self._members.owners[part] != self._members.node}
        if wanted & self._fetching:
            raise failure(META_BUSY)
        partition = self._meta.stripe_partition
        found = [(ino, index) for ino, index in (yield from work(w.ListStripes())) if partition(ino, index) in wanted]
        return found[:STRIPES_LISTED]

    # ── taking in ──────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, peer: int, call: p.Arrive) -> Operation[list[int]]:
        members = self._members
        yield from self._calls.until(lambda: bool(members.owners))  # others may have learnt earlier that this node is a member
        taken: list[int] = []
        new: list[int] = []
        for part, since, data in call.records:
            if self._took.get(part) == (peer, since):
                taken.append(part)
            elif call.version == members.version and members.owners[part] == members.node:
                taken.append(part)
                if part in self._arriving:
                    self._meta.import_(data)
                    self._took[part] = peer, since
                    self._arriving.discard(part)
                    self._inherited.discard(part)
                    new.append(part)
        self._fetching.update(new)
        if new:
            self._freeze()
            self._calls.spawn(self._bring_stripes(peer, new))
        return taken

    def _bring_stripes(self, peer: int, parts: list[int]) -> Operation[None]:
        for at in range(0, len(parts), PARTITIONS_AT_ONCE):
            some = parts[at : at + PARTITIONS_AT_ONCE]
            if not (yield from self._bring_some(peer, some)):
                yield from self._lose(some)
            self._fetching.difference_update(some)
            self._freeze()

    def _bring_some(self, peer: int, parts: list[int]) -> Operation[bool]:
        """The stripes of some partitions. False: ``peer`` died before all of them were here."""
        pause = PAUSE_FIRST_S
        while peer in self._members.live:
            left: Sequence[tuple[int, int]] = ()
            failed = False
            try:
                left = yield from ask(peer, p.StripesOf(tuple(parts)))
            except OSError:
                failed = True
            if not left and not failed:
                return True
            for at in range(0, len(left), STRIPES_AT_ONCE):
                works = [work(w.FetchStripe(ino, index, peer)) for ino, index in left[at : at + STRIPES_AT_ONCE]]
                for result in (yield from together(works)):
                    failed = failed or (isinstance(result, OSError) and result.errno != errno.ENOENT)  # else it was deleted meanwhile
            if failed:
                yield Sleep(pause)  # the connection, or the room, may be there in a moment
                pause = min(2 * pause, BRING_PAUSE_S)
        return False

    def _find_orphans(self) -> Operation[None]:
        """Does any node have the records of what is to arrive? Asked of all when nodes have come or gone; an answer knows of that."""
        members = self._members
        self._asking = True
        try:
            asked = -1
            while self._arriving and asked != members.version:
                version, parts = members.version, sorted(self._arriving)
                others = sorted(members.live - {members.node})
                answers = yield from together([ask(node, p.Have(version, tuple(parts))) for node in others])
                held: set[int] = set()
                failed = False
                for answer in answers:
                    if isinstance(answer, OSError):
                        failed = True
                    else:
                        held.update(answer)
                if failed:
                    yield Sleep(PAUSE_LAST_S)
                    continue
                asked = version
                if version == members.version:
                    yield from self._take_over([part for part in parts if part not in held and part in self._arriving])
        finally:
            self._asking = False

    def _take_over(self, parts: list[int]) -> Operation[None]:
        """Nobody has the records of these: those of directories are known to all, and the rest is lost."""
        version = self._members.version
        if early := [part for part in parts if part not in self._inherited]:
            # This node owned them already when the node that had their stripes died: the others count only a dead owner's as lost.
            yield from self._lose(early)
        if version != self._members.version:
            return
        self._arriving.difference_update(parts)
        self._inherited.difference_update(parts)
        self._freeze()
        self._meta.mend_dirs(False)

    def _have(self, peer: int, call: p.Have) -> list[int]:
        if call.version > self._members.version:
            raise failure(META_NOT_MINE)
        return [part for part in call.partitions if part in self._leaving]

    # ── what is lost ───────────────────────────────────────────────────────────────────────────────

    def _lose(self, parts: list[int]) -> Operation[None]:
        """Stripes of these were lost on their way here. Nobody is served with them until all know."""
        told: set[int] = set()
        while nodes := sorted(self._members.live - told):
            answers = yield from together([ask(node, p.Lose(tuple(parts))) for node in nodes])
            told.update(node for node, answer in zip(nodes, answers, strict=True) if not isinstance(answer, OSError))
            if self._members.live - told:
                yield Sleep(PAUSE_LAST_S)

    def _lost(self, peer: int, call: p.Lose) -> Operation[None]:
        self._members.losses += 1
        self._members.note_lost(list(call.partitions))
        self._meta.lose(call.partitions)
        yield from work(w.Lose(call.partitions, self._members.known))
