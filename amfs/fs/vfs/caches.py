"""The caches of nodes and their kernels, of names and inodes: nodes and kernels hear when an entry is old. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from amfs._native import Meta
from amfs.fs.vfs.calls import Calls, Operation, ask, together, work
from amfs.fs.vfs.members import Members
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p

Name = tuple[int, bytes]

#: Among names that are old: all that a kernel knows.
EVERY_NAME: Name = (0, b"")


class Caches:
    """Has caches forget, here and on other nodes."""

    def __init__(self, calls: Calls, meta: Meta, members: Members) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        calls.serve(p.Stale.by(self._stale), p.Drop.by(self._drop), p.DropWhole.by(self._drop_whole))

    def uncache(self, inodes: Iterable[int]) -> None:
        """Forget what is known of these. Content that lies here stays: a node that changes content tells its holders to ``Drop`` it."""
        for ino in inodes:
            with suppress(OSError):
                self._meta.uncache(ino)

    def notify(self, peer: int, nodes: Iterable[int], inodes: Iterable[int] = (), entries: Iterable[Name] = ()) -> Operation[None]:
        """Have the caches of ``nodes`` and of this node's mounts forget these, but not those of ``peer``, which changes it: a kernel that
        asked for a change makes it in its own cache, and keeps the directory's lock until it is answered."""
        inodes, entries = tuple(inodes), tuple(entries)
        me = self._members.node
        told: list[Operation[None]] = [
            ask(node, p.Stale(inodes, entries)) for node in nodes if node not in (me, peer) and node in self._members.live
        ]
        if peer != me:
            told.append(work(w.Invalidate(inodes, entries)))
        if told:
            yield from together(told)

    def forget_here(self, inodes: tuple[int, ...], entries: tuple[Name, ...] = ()) -> Operation[None]:
        """Copies of these are old."""
        self.uncache(inodes)
        yield from work(w.Invalidate(inodes, entries))

    def _stale(self, peer: int, call: p.Stale) -> Operation[None]:
        yield from self.forget_here(call.inodes, call.entries)

    def _drop(self, peer: int, call: p.Drop) -> None:
        self.uncache(call.inodes)
        self._calls.order(w.Drop(call.inodes))

    def _drop_whole(self, peer: int, call: p.DropWhole) -> None:
        self.uncache((call.ino,))
        self._calls.order(w.DropWhole(call.ino))
