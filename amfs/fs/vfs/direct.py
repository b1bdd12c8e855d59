"""Changes of directories that go from C to C of two nodes, past the poll loop of the one that is asked. Pure.

Whatever is not answered so is asked of that poll loop. Each is done once, whichever way it came, so it does not matter if nobody knows
whether the first question was heard.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from amfs._native import Meta
from amfs.fs.vfs.calls import Calls, Operation, ask, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.directory_changes import pack

_LOST = errno.ECONNABORTED  # nobody knows whether it was done
MOST_BYTES = 4096  # of changes that go so


class Direct:
    """Asks C first."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._asked = 0  # questions of this node as the manager
        calls.serve(p.Refuse.by(lambda peer, call: meta.refuse(peer, call.number)))

    def _is_other(self, node: int) -> bool:
        return node != self._members.node and node in self._members.live

    def spread(self, nodes: list[int], call: p.Spread) -> Operation[list[list[int] | None]]:
        """To nodes that pass it on to nobody. None: to be asked of its poll loop."""
        changes = pack(call.changes, call.askers) if nodes else None
        if changes is None or len(changes) > MOST_BYTES or not all(map(self._is_other, nodes)):
            return [None] * len(nodes)
        try:
            return (yield from work(w.SpreadTo(tuple(nodes), call.order[0], call.number, changes)))
        except OSError:
            return [None] * len(nodes)

    def reserve(self, dir: int, name: bytes) -> Operation[int]:
        """By the manager, of the shard of a name."""
        lost = False
        node = self._meta.owner(self._meta.name_partition(dir, name))
        if self._is_other(node):
            number = self._next()
            try:
                return (yield from work(w.ReserveAt(node, number, dir, name)))
            except OSError as error:
                lost = yield from self._is_lost(node, number, error)
        return (yield from self._owners.ask(p.ReserveDirectory(dir, name, lost)))

    def strike(self, dir: int, name: bytes, ino: int, asker: int) -> Operation[None]:
        """Likewise: the entry of a directory goes."""
        lost = False
        node = self._meta.owner(self._meta.name_partition(dir, name))
        if self._is_other(node):
            number = self._next()
            try:
                yield from work(w.StrikeAt(node, number, dir, name, ino))
                return
            except OSError as error:
                lost = yield from self._is_lost(node, number, error)
        try:
            yield from self._owners.ask(p.Remove(dir, name, ino, 0, asker))
        except OSError as error:
            if not lost or error.errno != errno.ENOENT:
                raise

    def _next(self) -> int:
        self._asked += 1
        return self._asked

    def _is_lost(self, node: int, number: int, error: OSError) -> Operation[bool]:
        """Was a question perhaps heard? A node that has not heard it by now refuses it later: by then the answer would be wrong."""
        if error.errno == _LOST:
            with suppress(OSError):  # of a node that has died nothing comes
                yield from ask(node, p.Refuse(number))
        return error.errno == _LOST

    def touch(self, home: int, dir: int, now: int) -> None:
        """Entries of a directory have changed. Not waited for."""
        if self._is_other(home):
            self._calls.spawn(self._touch(home, dir, now))
        elif home in self._members.live:
            self._calls.tell(home, p.Touch(dir, now))

    def _touch(self, home: int, dir: int, now: int) -> Operation[None]:
        try:
            yield from work(w.TouchAt(home, dir, now))
        except OSError:
            if home in self._members.live:
                self._calls.tell(home, p.Touch(dir, now))
