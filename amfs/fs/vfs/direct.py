"""Changes of directories that go from C to C of two nodes, past the poll loop of the one that is asked. Pure.

Whatever is not answered so is asked of that poll loop. Each is done once, whichever way it came, so it does not matter if nobody knows
whether the first question was heard.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import NamedTuple

from amfs._native import Meta
from amfs.fs.vfs.calls import Calls, Operation, ask, failure, number_of, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import Attr
from amfs.vocabulary.directory_changes import pack

_LOST = errno.ECONNABORTED  # nobody knows whether it was done
MOST_BYTES = 4096  # of changes that go so
MOST_NODES = 17  # of a session in which C asks all others itself, without a tree


class Wish:
    """To make a directory, or to remove one."""

    __slots__ = ("dir", "done", "error", "made", "name", "now", "peer", "touched")

    def __init__(self, peer: int, dir: int, name: bytes, now: int, made: Attr | None = None) -> None:
        self.peer = peer
        self.dir = dir
        self.name = name
        self.now = now
        self.made = made
        self.done = False
        self.error: OSError | None = failure(errno.EIO)  # unless something better comes of it
        self.touched = False  # the home of the directory has seen to its times

    def ended(self, answer: int | OSError) -> None:
        self.error = answer if isinstance(answer, OSError) else None
        self.touched = not isinstance(answer, OSError) and answer > 0


def latest(wishes: list[Wish]) -> dict[int, int]:
    """When directories were changed whose homes have not seen to their times."""
    times: dict[int, int] = {}
    for one in wishes:
        if one.error is None and not one.touched:
            times[one.dir] = max(one.now, times.get(one.dir, 0))
    return times


class Tried(NamedTuple):
    """The outcome of a question about the entry of a directory."""

    node: int
    number: int
    error: int


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

    def node_of_name(self, dir: int, name: bytes) -> int:
        """-1: it is this one, or none."""
        node = self._meta.owner(self._meta.name_partition(dir, name))
        return node if self._is_other(node) else -1

    def node_ahead(self, dir: int, name: bytes) -> int:
        """Likewise, if C may be told several steps at once, to be done one after the other; else -1."""
        members = self._members
        known = members.introduced and members.manager == members.node and len(members.live) <= MOST_NODES
        return self.node_of_name(dir, name) if known else -1

    def make(self, node: int, wish: Wish, add: p.Spread) -> Operation[tuple[Tried, w.Made]]:
        """By the manager, which holds all directories: reserve the name at its node, and then have all others make the directory."""
        number = self._next()
        try:
            made = yield from work(w.MakeAt(w.ReserveAt(node, number, wish.dir, wish.name), _to_others(add)))
        except OSError as error:
            made = w.Made(number_of(error), 0, None)
        return Tried(node, number, made.error), made

    def remove(self, node: int, wish: Wish, ino: int, freeze: p.Spread, drop: p.Spread) -> Operation[tuple[Tried | None, w.Removed]]:
        """Likewise: freeze a directory, strike its entry if it is empty everywhere, and then drop it."""
        number = self._next()
        try:
            strike = w.StrikeAt(node, number, wish.dir, wish.name, ino)
            removed = yield from work(w.RemoveAt(_to_others(freeze), strike, _to_others(drop)))
        except OSError:
            removed = w.Removed([], None, None)
        return None if removed.struck is None else Tried(node, number, removed.struck), removed

    def reserve(self, dir: int, name: bytes, tried: Tried | None = None) -> Operation[int]:
        """By the manager, of the shard of a name. ``tried``: it was asked already, in vain."""
        lost = False
        node = self.node_of_name(dir, name)
        if tried is not None:
            lost = yield from self._is_lost(*tried)
        elif node >= 0:
            number = self._next()
            try:
                return (yield from work(w.ReserveAt(node, number, dir, name)))
            except OSError as error:
                lost = yield from self._is_lost(node, number, number_of(error))
        return (yield from self._owners.ask(p.ReserveDirectory(dir, name, lost)))

    def strike(self, dir: int, name: bytes, ino: int, asker: int, tried: Tried | None = None) -> Operation[None]:
        """Likewise: the entry of a directory goes. ``tried``: it was asked already, and perhaps done."""
        lost = False
        node = self.node_of_name(dir, name)
        if tried is not None and not tried.error:
            return
        if tried is not None:
            lost = yield from self._is_lost(*tried)
        elif node >= 0:
            number = self._next()
            try:
                yield from work(w.StrikeAt(node, number, dir, name, ino))
                return
            except OSError as error:
                lost = yield from self._is_lost(node, number, number_of(error))
        try:
            yield from self._owners.ask(p.Remove(dir, name, ino, 0, asker))
        except OSError as error:
            if not lost or error.errno != errno.ENOENT:
                raise

    def _next(self) -> int:
        self._asked += 1
        return self._asked

    def _is_lost(self, node: int, number: int, error: int) -> Operation[bool]:
        """Was a question perhaps heard? A node that has not heard it by now refuses it later: by then the answer would be wrong."""
        if error == _LOST:
            with suppress(OSError):  # of a node that has died nothing comes
                yield from ask(node, p.Refuse(number))
        return error == _LOST

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


def _to_others(call: p.Spread) -> w.SpreadTo:
    changes = pack(call.changes, call.askers)
    assert changes is not None
    return w.SpreadTo(call.order[1:], call.order[0], call.number, changes)
