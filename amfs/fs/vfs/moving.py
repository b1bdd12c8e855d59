"""Partitions that move when nodes come or go (MemFS §II): only those whose owner changed, each with its records and its stripes. Pure.

The old owner stops serving a partition when it learns of the new table, and sends it; the new owner serves it when it has all of it. In
between whoever asks is told to ask again. A node that is new waits for the directories as well, from the manager.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from amfs._native import Meta
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.directories import LOCK
from amfs.fs.vfs.paths import Paths
from amfs.fs.vfs.shard import PATIENCE_S

ORPHAN_S = 10.0  # a partition that nobody has sent by then is asked for


class Moving(Paths):
    """Sends and takes in partitions."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self.leaving: set[int] = set()  # partitions that are not ours any more and have not arrived yet where they belong
        self.arriving: set[int] = set()  # partitions that are ours and have not arrived
        self.early: set[int] = set()  # partitions that arrived before the table that gives them to us
        self.knows_directories = False

    def move(self, owners: tuple[int, ...], dead: set[int]) -> None:
        """The table is ``owners`` from now on (``meta`` knows it already)."""
        before, self.owners = self.owners, owners
        founded = not before and set(owners) == {self.node}
        if founded:
            self.knows_directories = True
        mine = {part for part, owner in enumerate(owners) if owner == self.node}
        had = {part for part, owner in enumerate(before) if owner == self.node}
        gained = mine - had if not founded else set()
        arriving = {part for part in gained if not before or before[part] not in dead} - self.early - self.leaving
        # What a node sent before it died has arrived; what it had not sent never will.
        self.arriving = {part for part in (self.arriving | arriving) & mine if not before or before[part] not in dead}
        self.early -= mine
        lost = (had | self.leaving) - mine
        self.leaving = lost
        self._freeze()
        if self.arriving:
            self.set_timer("orphans", ORPHAN_S)
        targets: dict[int, list[int]] = {}
        for part in sorted(lost):
            targets.setdefault(owners[part], []).append(part)
        for node, parts in targets.items():
            self.spawn(self._send(node, parts))

    def in_motion(self) -> bool:
        return bool(self.arriving or self.leaving or self.early)

    def _freeze(self) -> None:
        away = self.arriving | self.leaving
        every = range(len(self.owners))
        self.meta.set_moving([part for part in every if part not in away], False)
        if away:
            self.meta.set_moving(sorted(away), True)
        self.tell(Work("moving", (len(self.owners), sorted(away))))

    def _send(self, node: int, parts: list[int]) -> Operation:
        stripes: list[tuple[int, int]] = []
        wanted = set(parts)
        for ino, index in (yield Work("stripes")):
            if self.meta.stripe_partition(ino, index) in wanted:
                stripes.append((ino, index))
        records = [(part, self.meta.export_partition(part)) for part in parts]
        try:
            yield Ask(node, "arrive", (records, stripes))
        except OSError:
            return  # it died: the next table says where they go instead
        for part in parts:
            if part in self.leaving and self.owners[part] == node:
                self.leaving.discard(part)
                self.meta.drop(part)
        self._freeze()

    def s_arrive(self, peer: int, records: Sequence[Any], stripes: Sequence[Any]) -> Operation:
        """Partitions with their records come from ``peer``; it keeps their stripes until they have been fetched."""
        yield from self._tabled()
        for _, data in records:
            self.meta.import_(data)
        if stripes:
            for result in (yield All([Work("fetch_part", (ino, index, peer)) for ino, index in stripes])):
                if isinstance(result, OSError) and result.errno not in (errno.ENOENT, errno.EIO):
                    raise result
        parts = {part for part, _ in records}
        self.arriving -= parts
        self.early |= {part for part in parts if self.owners[part] != self.node}
        self._freeze()
        stray = {part for part in self.early if self.owners[part] not in (self.node, peer)}
        for part in sorted(stray):  # moved on while it was on its way
            self.early.discard(part)
            self.leaving.add(part)
            self.spawn(self._send(self.owners[part], [part]))

    def _on_timer(self, event: Any) -> None:
        if event.key == "orphans":
            if self.arriving:
                self.spawn(self._find_orphans(sorted(self.arriving)))
        else:
            super()._on_timer(event)

    def _find_orphans(self, parts: list[int]) -> Operation:
        """Nobody has sent these: does anybody have them?"""
        answers = yield All([Ask(node, "have", (parts,)) for node in sorted(self.live - {self.node})])
        held = {part for answer in answers if not isinstance(answer, OSError) for part in answer}
        self.arriving -= set(parts) - held
        self._freeze()
        if self.arriving:
            self.set_timer("orphans", ORPHAN_S)

    def s_have(self, peer: int, parts: Sequence[int]) -> list[int]:
        """Which of these are on their way from here."""
        return [part for part in parts if part in self.leaving]

    # ── directories for a new node ─────────────────────────────────────────────────────────────────

    def introduce(self, node: int) -> Operation:
        """The manager gives a new node all directories."""
        yield Acquire(LOCK)
        try:
            yield Ask(node, "directories", (self.meta.export_dirs(),))
        except OSError as error:
            if error.errno != errno.EHOSTDOWN:
                raise
        finally:
            self.release(LOCK)

    def s_directories(self, peer: int, data: bytes) -> Operation:
        yield from self._tabled()
        self.meta.import_(data)
        self.knows_directories = True

    def s_spread(self, peer: int, change: Any, order: list[int], place: int, asker: int) -> Operation:
        if not self.knows_directories:
            # Whoever introduces us has applied it already, so it is in what we are going to get.
            return (yield from self.relay(change, order, place, asker, 0))
        return (yield from super().s_spread(peer, change, order, place, asker))

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
