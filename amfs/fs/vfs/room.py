"""Eviction: when this node is full, copies that it keeps only to be near are removed, for data that has no other place. Pure.

Such copies are those of finished files that other nodes hold, and old content of a file that another node writes. The shard of the file
decides whether a copy may go. A file that is open on this node stays.
"""

from __future__ import annotations

from collections.abc import Callable

from amfs._native import Meta
from amfs.engine.events import FsFull
from amfs.fs.vfs.calls import Operation, Work
from amfs.fs.vfs.contents import Contents


class Room(Contents):
    """Makes room when a write finds none."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self.on_event[FsFull] = self._on_full

    def _on_full(self, event: FsFull) -> None:
        self.spawn(self._make_room(event.serial, event.wanted))

    def _make_room(self, serial: int, wanted: int) -> Operation:
        freed = 0
        try:
            spare = yield Work("spare")
            for ino, size in spare if sum(size for _, size in spare) >= wanted else ():  # else nothing is won
                if freed >= wanted:
                    break
                if (yield from self._give_up(ino)):
                    freed += size
        finally:
            self.tell(Work("room_made", (serial, freed)))

    def _give_up(self, ino: int) -> Operation:
        """Delete what lies here of a file, if others have it. False: it stays."""
        if (yield from self._in_use(ino)):
            return False
        self._uncache((ino,))  # from now on a mount does not open it without asking its shard
        try:
            yield from self.at_ino("give_up", ino)
        except OSError:
            return False
        self._uncache((ino,))
        if (yield from self._in_use(ino)):  # opened between these two: it is what its opener found, and is looked for again
            try:
                yield from self.at_ino("hold", ino)
            except OSError:
                return False
            return False
        yield Work("drop_whole", (ino,))
        return True

    def _in_use(self, ino: int) -> Operation:
        return ino in self.opening or ino in self.hosted or (yield from self._handles(ino))
