"""Finding the shard that has an entry or a record, and asking it until it answers. Pure."""

from __future__ import annotations

import errno
from typing import TypeVar

from amfs._native import Meta
from amfs.fs.vfs.caches import Name
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure
from amfs.fs.vfs.members import Members
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE, Entry

T = TypeVar("T")


class Owners:
    """Asks the owner of a partition, whichever node that is by then."""

    def __init__(self, calls: Calls, meta: Meta, members: Members) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members

    def ask(self, call: p.NameCall[T] | p.InodeCall[T]) -> Operation[T]:
        """Ask the shard of an entry, or of a record."""
        meta = self._meta
        partition = meta.name_partition(call.dir, call.name) if isinstance(call, p.NameCall) else meta.ino_partition(call.ino)
        end = self._calls.now + PATIENCE_S
        pause = PAUSE_FIRST_S
        while True:
            try:
                return (yield from ask(meta.owner(partition), call))
            except OSError as error:
                # A node that died is replaced in the table; it may have done what it was asked. So a change is EIO, unless it may be done
                # twice: nobody knows whether it was made, and its caller is told so.
                if type(call) in p.LONG and error.errno == errno.ETIMEDOUT:
                    end = self._calls.now + PATIENCE_S  # it is under way
                    continue
                dead = error.errno == errno.EHOSTDOWN
                again = error.errno in (META_NOT_MINE, META_BUSY) or (dead and type(call) in p.REPEATABLE)
                if not again:
                    raise failure(errno.EIO if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT) else error.errno or errno.EIO) from None
                if self._calls.now >= end:
                    raise failure(errno.EIO) from None
            yield Sleep(pause)
            pause = min(2 * pause, PAUSE_LAST_S)

    def ask_manager(self, call: p.PeerCall[T], twice: bool = False) -> Operation[T]:
        """``twice``: to do it twice is to do it once. Then the next manager is asked when this one leaves, or dies."""
        end = self._calls.now + PATIENCE_S
        while True:
            try:
                return (yield from ask(self._members.manager, call))
            except OSError as error:
                if error.errno not in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                    raise
                if not twice or error.errno == errno.ETIMEDOUT or self._calls.now >= end:
                    raise failure(errno.EIO) from None
            yield Sleep(PAUSE_LAST_S)

    def of_inode(self, ino: int) -> int:
        return self._meta.owner(self._meta.ino_partition(ino))

    def is_here(self, ino: int) -> bool:
        """Is its record on this node?"""
        return self.of_inode(ino) == self._members.node

    def of_stripe(self, ino: int, index: int) -> int:
        return self._meta.owner(self._meta.stripe_partition(ino, index))

    # ── locks on names ─────────────────────────────────────────────────────────────────────────────

    def lock_owner(self) -> int:
        """A number for one operation that locks names."""
        return (self._members.node + 1) << 40 | self._calls.number()

    def lock(self, *names: Name) -> Operation[tuple[int, list[Entry]]]:
        """Lock these entries, in the order that all take, for an operation of several steps. Answers the owner for ``unlock``, and the
        entries as they are from now on (number 0: there is none)."""
        owner = self.lock_owner()
        partition = self._meta.name_partition
        entries: dict[Name, Entry] = {}
        try:
            for dir, name in sorted(set(names), key=lambda key: (partition(*key), *key)):
                entries[dir, name] = yield from self.ask(p.Lock(dir, name, owner))
        except OSError:
            self.unlock(owner, *entries)
            raise
        return owner, [entries[name] for name in names]

    def unlock(self, owner: int, *names: Name) -> None:
        for dir, name in set(names):
            self._calls.spawn(self.ask(p.Unlock(dir, name, owner)))
