"""Partitions that move when nodes come or go (MemFS §II): only those whose owner changed, each with its records and its stripes. Pure.

At any time one node has the records of a partition. When it learns of a table that gives the partition to another it stops serving it and
sends the records, until that one has said that they are there; a node that is asked twice for the same answers so again. Both must have the
same table, so nothing that is older than what the owner has can come to it. The owner serves the records from then on, and brings the
stripes one after the other. A partition whose records no living node has is taken over as it is: empty but for what every node knows, the
directories.

A node that is new waits for the directories as well, from the manager.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from amfs._native import Meta
from amfs.fs.attr import META_BUSY, META_NOT_MINE
from amfs.fs.vfs.bulk import Bulk
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.directories import LOCK
from amfs.fs.vfs.shard import EVERY_NAME, PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S

RECORD_BYTES = 4 << 20  # in one message, or those of one partition
PARTITIONS_AT_ONCE = 64  # whose stripes are brought before any of them is served
STRIPES_LISTED = 10_000
STRIPES_AT_ONCE = 64
BRING_PAUSE_S = 1.0  # at most, before what could not be brought is tried again


class Moving(Bulk):
    """Sends and takes in partitions."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self.leaving: dict[int, int] = {}  # partitions whose records are here and that are not ours -> version of the table since which
        self.arriving: set[int] = set()  # partitions that are ours, and whose records are not here
        self.fetching: set[int] = set()  # partitions that are ours and here, but for stripes that have not come yet
        self._inherited: set[int] = set()  # those arriving whose owner has died
        self._doubtful: dict[int, int] = {}  # partitions leaving -> node that was sent them, and may have them or not
        self._took: dict[int, tuple[int, int]] = {}  # partition -> (who sent it, its version in ``leaving`` there)
        self._senders: set[int] = set()  # nodes to which partitions are being sent
        self._asking = False
        self.knows_directories = False

    def move(self, owners: tuple[int, ...], dead: set[int]) -> None:
        """The table is ``owners`` from now on (``meta`` knows it already)."""
        before, self.owners = self.owners, owners
        founded = not before and set(owners) == {self.node}
        if founded:
            self.knows_directories = True
        mine = {part for part, owner in enumerate(owners) if owner == self.node}
        had = {part for part, owner in enumerate(before) if owner == self.node}
        self.leaving.update((part, self.version) for part in had - mine - self.arriving)
        gained = mine - had if not founded else set()
        self.arriving = (self.arriving | gained) & mine
        self._inherited = (self._inherited | {part for part in gained if before and before[part] in dead}) & self.arriving
        for part in [part for part, node in self._doubtful.items() if node in dead]:
            del self._doubtful[part]  # if it had it, that is gone with it
        self._keep_ours()
        self._freeze()
        self._wake_senders()
        if self.arriving and not self._asking:
            self.spawn(self._find_orphans())

    def _keep_ours(self) -> None:
        """What was to leave, and did not, is ours again."""
        for part in [part for part in self.leaving if self.owners[part] == self.node and part not in self._doubtful]:
            del self.leaving[part]
            self.arriving.discard(part)

    def in_motion(self) -> bool:
        return bool(self.arriving or self.leaving)

    def _freeze(self) -> None:
        away = self.arriving | set(self.leaving)
        every = range(len(self.owners))
        self.meta.set_moving([part for part in every if part not in away], False)
        if away:
            self.meta.set_moving(sorted(away), True)
        self.tell(Work("moving", (len(self.owners), sorted(away | self.fetching))))

    # ── sending ────────────────────────────────────────────────────────────────────────────────────

    def _wake_senders(self) -> None:
        for node in {self._target(part) for part in self.leaving} & self.live - self._senders - {self.node}:
            self._senders.add(node)
            self.spawn(self._send(node))

    def _target(self, part: int) -> int:
        return self._doubtful.get(part, self.owners[part])

    def _send(self, node: int) -> Operation:
        """All that is to go to ``node``, until it is there, or goes to another."""
        try:
            while node in self.live and (parts := [part for part in sorted(self.leaving) if self._target(part) == node]):
                if not (yield from self._send_some(node, parts)):
                    yield Sleep(PAUSE_LAST_S)
        finally:
            self._senders.discard(node)
        self._wake_senders()

    def _send_some(self, node: int, parts: list[int]) -> Operation:
        """One message. False: ``node`` has another table, or does not answer."""
        records: list[tuple[int, int, bytes]] = []
        size = 0
        while parts and size < RECORD_BYTES:
            part = parts.pop(0)
            records.append((part, self.leaving[part], self.meta.export_partition(part)))
            size += len(records[-1][2])
            self._doubtful[part] = node
        try:
            taken = set((yield Ask(node, "arrive", (self.version, records))))
        except OSError as error:
            if error.errno != errno.EHOSTDOWN:
                return False  # it may have them, and is asked again
            taken = set()
        for part, since, _ in records:
            self._doubtful.pop(part, None)
            if part in taken and self.leaving.get(part) == since:
                del self.leaving[part]
                self.meta.drop(part)
        self._keep_ours()
        self._freeze()
        return bool(taken)

    def s_stripes_of(self, peer: int, parts: Sequence[int]) -> Operation:
        """Stripes of these partitions, which are the asker's now, that lie here still. META_BUSY: others are on their way here."""
        wanted = {part for part in parts if self.owners[part] != self.node}
        if wanted & self.fetching:
            raise failure(META_BUSY)
        partition = self.meta.stripe_partition
        found = [(ino, index) for ino, index in (yield Work("stripes")) if partition(ino, index) in wanted]
        return found[:STRIPES_LISTED]

    # ── taking in ──────────────────────────────────────────────────────────────────────────────────

    def s_arrive(self, peer: int, version: int, records: Sequence[Any]) -> Operation:
        """Partitions with their records come from ``peer``, which has the table of ``version``. Answers which of them are here, or are
        known better here; the others are not, and may be sent again."""
        yield from self._tabled()
        taken, new = [], []
        for part, since, data in records:
            if self._took.get(part) == (peer, since):
                taken.append(part)
            elif version == self.version and self.owners[part] == self.node:
                taken.append(part)
                if part in self.arriving:
                    self.meta.import_(data)
                    self._took[part] = peer, since
                    self.arriving.discard(part)
                    self._inherited.discard(part)
                    new.append(part)
        self.fetching.update(new)
        if new:
            self._freeze()
            self.spawn(self._bring_stripes(peer, new))
        return taken

    def _bring_stripes(self, peer: int, parts: list[int]) -> Operation:
        for at in range(0, len(parts), PARTITIONS_AT_ONCE):
            some = parts[at : at + PARTITIONS_AT_ONCE]
            if not (yield from self._bring_some(peer, some)):
                yield from self._lose(some)
            self.fetching.difference_update(some)
            self._freeze()

    def _bring_some(self, peer: int, parts: list[int]) -> Operation:
        """The stripes of some partitions. False: ``peer`` died before all of them were here."""
        pause = PAUSE_FIRST_S
        while peer in self.live:
            left: Sequence[tuple[int, int]] = ()
            failed = False
            try:
                left = yield Ask(peer, "stripes_of", (parts,))
            except OSError:
                failed = True
            if not left and not failed:
                return True
            for at in range(0, len(left), STRIPES_AT_ONCE):
                calls = [Work("fetch_part", (ino, index, peer)) for ino, index in left[at : at + STRIPES_AT_ONCE]]
                for result in (yield All(calls)):
                    failed = failed or (isinstance(result, OSError) and result.errno != errno.ENOENT)  # else it was deleted meanwhile
            if failed:
                yield Sleep(pause)  # the connection, or the room, may be there in a moment
                pause = min(2 * pause, BRING_PAUSE_S)
        return False

    def _find_orphans(self) -> Operation:
        """Does anybody have the records of what is to arrive? Asked of all when nodes have come or gone, and who answers knows of that."""
        self._asking = True
        try:
            asked = -1
            while self.arriving and asked != self.version:
                version, parts = self.version, sorted(self.arriving)
                answers = yield All([Ask(node, "have", (version, parts)) for node in sorted(self.live - {self.node})])
                if any(isinstance(answer, OSError) for answer in answers):
                    yield Sleep(PAUSE_LAST_S)
                    continue
                asked = version
                if version == self.version:
                    held = {part for answer in answers for part in answer}
                    yield from self._take_over([part for part in parts if part not in held and part in self.arriving])
        finally:
            self._asking = False

    def _take_over(self, parts: list[int]) -> Operation:
        """Nobody has the records of these: those of directories are known to all, and the rest is lost."""
        version = self.version
        if early := [part for part in parts if part not in self._inherited]:
            # This node owned them already when the node that had their stripes died: the others count only a dead owner's as lost.
            yield from self._lose(early)
        if version != self.version:
            return
        self.arriving.difference_update(parts)
        self._inherited.difference_update(parts)
        self._freeze()
        self.meta.mend_dirs(False)

    def s_have(self, peer: int, version: int, parts: Sequence[int]) -> list[int]:
        """Which of these have their records here."""
        if version > self.version:
            raise failure(META_NOT_MINE)
        return [part for part in parts if part in self.leaving]

    # ── what is lost ───────────────────────────────────────────────────────────────────────────────

    def _lose(self, parts: list[int]) -> Operation:
        """Stripes of these were lost on their way here. Nobody is served with them until all know."""
        told: set[int] = set()
        while nodes := sorted(self.live - told):
            answers = yield All([Ask(node, "lose", (parts,)) for node in nodes])
            told.update(node for node, answer in zip(nodes, answers, strict=True) if not isinstance(answer, OSError))
            if self.live - told:
                yield Sleep(PAUSE_LAST_S)

    def s_lose(self, peer: int, parts: Sequence[int]) -> Operation:
        self.losses += 1
        self.lost.update((part, self.known) for part in parts)
        self.meta.lose(parts)
        yield Work("lose", (tuple(parts), self.known))

    # ── directories for a new node ─────────────────────────────────────────────────────────────────

    def introduce(self, node: int) -> Operation:
        """The manager gives a new node all directories."""
        yield Acquire(LOCK)
        try:
            while node in self.live and self.manager == self.node:
                try:
                    yield Ask(node, "directories", (self.meta.export_dirs(),))
                    break
                except OSError as error:
                    if error.errno not in (errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN):
                        raise
                    yield Sleep(PAUSE_LAST_S)  # it has not heard yet that we are the manager
        finally:
            self.release(LOCK)

    def s_directories(self, peer: int, data: bytes) -> Operation:
        yield from self._tabled()
        yield from self._until(lambda: self.manager == peer)  # changes of the one before it are refused from then on
        self.meta.import_(data)
        self.knows_directories = True
        self.meta.mend_dirs(True)
        yield Work("invalidate", ((), (EVERY_NAME,)))  # a change that not all had heard of is made here by now, or taken back

    def apply(self, change: Any) -> int:
        # Whoever introduces us has applied it already, so it is in what we are going to get.
        return super().apply(change) if self.knows_directories else 0

    def _tabled(self) -> Operation:
        """Wait for this node's first table: others may have learnt earlier than itself that it is a member."""
        yield from self._until(lambda: bool(self.owners))

    def introduced(self) -> Operation:
        """Wait until this node knows the directories."""
        yield from self._until(lambda: self.knows_directories)

    def _until(self, condition: Callable[[], bool]) -> Operation:
        end = self.now + PATIENCE_S
        while not condition():
            if self.now >= end:
                raise failure(errno.EIO)
            yield Sleep(0.01)
