"""Eviction: when this node is full, copies that it keeps only to be near are removed, and other files go to the disk. Pure.

Such copies are those of finished files that other nodes hold (as many as shall), and old content of a file that another node writes. The
shard of the file decides whether a copy may go. A file that is open on this node stays. Where the node has a spill directory, files that
lie nowhere else go there next, those first that were used last longest ago; the node stays a holder of them. Files of runs have the same
memory and one order with these: before each step those that come earlier in it are asked for (``RunsGiveWay``), and the worker asks in its
turn when it is files of runs that need room (``RoomWanted``).
"""

from __future__ import annotations

import errno
import logging
import math
import os

from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import Calls, Operation, Sleep, number_of, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.events import FsFull, FsSpilled, RoomGiven, RoomWanted

TRIES, PAUSE_S = 20, 0.1  # for a write that would be refused
SINGLE_S = 30.0  # a file that was no copy is not asked about again for so long, when there are many
FULL = (errno.ENOSPC, errno.EDQUOT)
UNFIT = (  # this file, or this moment; not the disk
    errno.EBUSY, errno.EAGAIN, errno.ENOENT, errno.EALREADY, errno.EBADMSG, errno.ECANCELED, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
)  # fmt: skip


class Evictor:
    """Makes room when a write finds none, or when more than the high-water mark is taken."""

    def __init__(self, calls: Calls, members: Members, owners: Owners, caches: Caches, opener: Opener, files: OpenFiles) -> None:
        self._calls = calls
        self._members = members
        self._owners = owners
        self._caches = caches
        self._opener = opener
        self._files = files
        self._asked: dict[FsFull | RoomWanted, int] = {}  # and not answered yet -> how much was free before
        self._running = False
        self._freed = 0  # so far
        self._singles: dict[int, float] = {}  # files that were no copies, and when
        self._spills: bool | None = None  # not known yet
        self._full = False  # the spill directory, when it was last tried
        self.spilled = 0  # bytes there

    def on_full(self, event: FsFull | RoomWanted) -> None:
        self._asked[event] = self._freed
        if not self._running:
            self._running = True
            self._calls.spawn(self._run())

    def on_spilled(self, event: FsSpilled) -> None:
        self.spilled = event.size

    def _run(self) -> Operation[None]:
        try:
            while self._asked:
                asked = tuple(self._asked)
                try:
                    yield from self._make_room()
                    tries = TRIES if self._spills and not self._full else 0
                    while tries and self._is_in_need(asked):  # files open a moment ago may be closed by now
                        tries -= 1
                        yield Sleep(PAUSE_S)
                        yield from self._make_room()
                finally:
                    self._answer(asked)
        finally:
            self._running = False

    def _make_room(self) -> Operation[None]:
        if self._spills is None:
            self._spills = (yield from self._tried(0)) != errno.EOPNOTSUPP
        if (yield from self._runs_give_way(math.inf)):
            return
        evictable = yield from work(w.ListEvictable())
        if not self._spills and sum(size for _, size, _ in evictable) < min(event.wanted for event in self._asked):  # nothing is won
            return
        for ino, size, _ in evictable if len(self._members.live) > 1 else ():
            if self._answer():
                return
            if self._singles.get(ino, -SINGLE_S) + SINGLE_S < self._calls.now or not self._spills:
                if (yield from self.evict(ino)):
                    self._freed += size
                elif self._spills:
                    self._singles[ino] = self._calls.now
        self._singles = {ino: self._singles[ino] for ino, *_ in evictable if ino in self._singles}
        for ino, size, idle_s in evictable if self._spills else ():
            if (yield from self._runs_give_way(idle_s)):
                return
            if not any(idle_s >= event.idle_s if isinstance(event, RoomWanted) else True for event in self._asked):
                break
            error = yield from self._spill(ino)
            if error == 0:
                self._freed += size
            if self._is_disk(error):
                break
        yield from self._runs_give_way(-1.0)

    def _runs_give_way(self, idle_s: float) -> Operation[bool]:
        """Whether all have what they want. Files of runs go first that were used last longer ago; for a write that would be refused, and
        only for that, those that are needed go at the end."""
        if self._answer():
            return True
        full = [event for event in self._asked if isinstance(event, FsFull) and (event.serial or idle_s >= 0)]
        if full:
            missing = max(event.wanted - self._freed + self._asked[event] for event in full)
            self._freed += yield from work(w.RunsGiveWay(missing, idle_s))
        return self._answer()

    def _spill(self, ino: int) -> Operation[int]:
        return (yield from self._files.spare(ino, lambda: self._opener.holding_part(ino, lambda: self._tried(ino)), errno.EBUSY))

    def _tried(self, ino: int) -> Operation[int]:
        """Spill it: 0 or an errno."""
        try:
            yield from work(w.Spill(ino))
        except OSError as error:
            return number_of(error)
        return 0

    def _is_disk(self, error: int) -> bool:
        """Is it the disk that cannot take anything? It is tried again when the next write finds no room."""
        full = error in FULL
        if full and not self._full:
            self._calls.log(f"files of amfs:/ cannot be spilled: {os.strerror(error)}: writes are refused", logging.WARNING)
        if full or error == 0:
            self._full = full
        if error in UNFIT or full or error == 0:
            return full
        self._calls.log(f"the spill directory is not used any more for files of amfs:/: {os.strerror(error)}", logging.ERROR)
        self._spills = False
        return True

    def _is_in_need(self, asked: tuple[FsFull | RoomWanted, ...]) -> bool:
        """Has one of them, which waits for that, got nothing yet?"""
        return any(isinstance(event, FsFull) and event.serial and self._asked.get(event) == self._freed for event in asked)

    def _answer(self, at_last: tuple[FsFull | RoomWanted, ...] = ()) -> bool:
        """Tell those that have what they want, and ``at_last`` whatever they have. True: there are no others."""
        for event, before in list(self._asked.items()):
            freed = self._freed - before
            if freed >= event.wanted or event in at_last:
                del self._asked[event]
                if isinstance(event, RoomWanted):
                    self._calls.give(RoomGiven(freed))
                else:
                    self._calls.order(w.RoomMade(event.serial, freed))
        return not self._asked

    def evict(self, ino: int) -> Operation[bool]:
        """Delete what lies here of a file, if others have it. False: it stays."""
        return (yield from self._files.spare(ino, lambda: self._opener.holding_part(ino, lambda: self._evict(ino)), False))

    def _evict(self, ino: int) -> Operation[bool]:
        self._caches.uncache((ino,))  # from now on a mount does not open it without asking its shard
        try:
            yield from self._owners.ask(p.GiveUp(ino))
        except OSError:
            return False
        self._caches.uncache((ino,))
        if self._files.is_in_use(ino):  # opened between these two: its opener may read what lies here, and nobody else
            return False
        yield from work(w.DropWhole(ino))
        return True
