"""Eviction: when this node is full, copies that it keeps only to be near are removed, for data that has no other place. Pure.

Such copies are those of finished files that other nodes hold (as many as shall), and old content of a file that another node writes. The
shard of the file decides whether a copy may go. A file that is open on this node stays.
"""

from __future__ import annotations

from amfs.engine import fs_works as w
from amfs.engine import peer_requests as p
from amfs.engine.events import FsFull
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import Calls, Operation, work
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.owners import Owners


class Evictor:
    """Makes room when a write finds none."""

    def __init__(self, calls: Calls, owners: Owners, caches: Caches, opener: Opener, files: OpenFiles) -> None:
        self._calls = calls
        self._owners = owners
        self._caches = caches
        self._opener = opener
        self._files = files

    def on_full(self, event: FsFull) -> None:
        self._calls.spawn(self._make_room(event.serial, event.wanted))

    def _make_room(self, serial: int, wanted: int) -> Operation[None]:
        freed = 0
        try:
            evictable = yield from work(w.ListEvictable())
            for ino, size in evictable if sum(size for _, size in evictable) >= wanted else ():  # else nothing is won
                if freed >= wanted:
                    break
                if (yield from self.evict(ino)):
                    freed += size
        finally:
            self._calls.order(w.RoomMade(serial, freed))

    def evict(self, ino: int) -> Operation[bool]:
        """Delete what lies here of a file, if others have it. False: it stays."""
        return (yield from self._files.spare(ino, lambda: self._opener.holding_part(ino, lambda: self._evict(ino))))

    def _evict(self, ino: int) -> Operation[bool]:
        self._caches.uncache((ino,))  # from now on a mount does not open it without asking its shard
        try:
            yield from self._owners.ask(p.GiveUp(ino))
        except OSError:
            return False
        self._caches.uncache((ino,))
        if (yield from self._files.is_in_use(ino)):  # opened between these two: its opener may read what lies here, and nobody else
            return False
        yield from work(w.DropWhole(ino))
        return True
