"""Moves content that only this node has to others, as it is to leave: whole files here, by copies. Pure.

Partitions, with their records and stripes, move by themselves when the table says so (``mover``). Which nodes take files: those that have
partitions, as a node that drains has none. Knows nothing of why or when the node leaves.
"""

from __future__ import annotations

import errno
import os

from amfs.fs.vfs.batches import bounded
from amfs.fs.vfs.calls import Calls, Operation, ask, failure, number_of, together, work
from amfs.fs.vfs.directories import LOCK as DIRECTORIES
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.mover import PartitionMover
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.replicas import BYTES_IN_FLIGHT, FILES_IN_FLIGHT, places
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, STRIPED
from amfs.vocabulary.events import Kept, MovedAway

_WHY = {errno.EBUSY: "it is being written", errno.ENOSPC: "no other node has room for it"}


class Drainer:
    """Has other nodes take what lies here."""

    def __init__(
        self, calls: Calls, members: Members, owners: Owners, opener: Opener, files: OpenFiles, mover: PartitionMover
    ) -> None:
        self._calls = calls
        self._members = members
        self._owners = owners
        self._opener = opener
        self._files = files
        self._mover = mover

    def _takers(self) -> set[int]:
        return set(self._members.staying) - {self._members.node}

    def move_away(self, last: bool) -> Operation[MovedAway]:
        """Try once to move everything. Returns the content that no other node has yet. Files without another copy go first. ``last``: as
        ``MoveAway`` has it."""
        if last:
            yield from self._files.begin_no_more()
        kept: list[Kept] = []
        takers = sorted(self._takers())
        version = self._members.version
        # Before the copies are looked for: a shard that knows of the drain does not count on copies here (``Replicas._give_up``).
        behind = yield from together([ask(node, p.StillComing(version)) for node in takers])
        changes = self._opener.changes
        # Files that a mount has opened before, or is making, have their parts by the next round at the latest; we decide on later openings.
        open_in_mounts = yield from work(w.DeferOpenings())
        here = yield from work(w.ListWhole())
        here += [(ino, 0) for ino in set(self._files.written()).difference(ino for ino, _ in here)]  # in stripes, or through another node
        for one in (True, False):
            kept.clear()
            for batch in bounded([(each, each[1]) for each in here], BYTES_IN_FLIGHT, FILES_IN_FLIGHT):
                answers = yield from together([self._copy(ino, one) for ino, _ in batch])
                for (ino, size), answer in zip(batch, answers, strict=True):
                    if isinstance(answer, OSError):
                        number = number_of(answer)
                        kept.append(Kept(f"inode {ino:#x} of amfs:/", size, _WHY.get(number, os.strerror(number))))
        stripes = yield from work(w.ListStripes())
        kept += [Kept(f"stripe {index} of inode {ino:#x} of amfs:/", 0, "there was no time") for ino, index in stripes]
        coming = yield from together([ask(node, p.StillComing(version)) for node in takers])
        if self._mover.in_motion() or any(behind) or any(coming):  # an error counts: nobody knows
            kept.append(Kept("records of amfs:/", 0, "they are on their way"))
        if self._calls.is_held(DIRECTORIES):
            kept.append(Kept("directories of amfs:/", 0, "they are being changed"))
        if open_in_mounts and not kept:
            kept.append(Kept("files of amfs:/", 0, _WHY[errno.EBUSY]))
        changed = self._files.is_making or self._opener.changes != changes
        if changed and not kept:
            # Such a file was not in the list, or its other copies do not count any more. So this node must not leave before another round.
            why = "some were opened to write, or came, while the others were moved"
            return MovedAway((Kept("files of amfs:/", 0, why),), len(takers), True)
        return MovedAway(tuple(kept), len(takers))

    def _copy(self, ino: int, one: bool) -> Operation[None]:
        """To as many nodes as shall have it when this one has left, or to one of them. Raises OSError if it cannot be done now."""
        try:
            attr = yield from self._owners.ask(p.Getattr(ino))
            if attr.writer == self._members.node:
                raise failure(errno.EBUSY)
            if attr.finished == LOST or attr.layout == STRIPED or (not attr.size and attr.writer < 0):
                return
            holders = yield from self._owners.ask(p.Holders(ino))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        me = self._members.node
        if me not in holders:
            return  # an earlier content of the file
        if attr.writer >= 0:
            raise failure(errno.EBUSY)
        takers = self._takers()
        missing = min(1 if one else max(1, attr.copies), len(takers)) - len(takers.intersection(holders))
        number = 0
        for node in places(ino, frozenset(takers.difference(holders))):
            if missing <= 0:
                return
            [number] = yield from ask(node, p.Bring(me, (ino,)))
            missing -= not number
        if missing > 0:
            raise failure(number or errno.EAGAIN)
