"""Questions and news to the shard of a file that is written here: copies of its content by now, whether they still are all of it,
and its closing. Pure.

Only ``open_files`` knows who writes, and calls while nothing is closed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from msgspec.structs import replace

from amfs._native import Meta
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, failure, number_of, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.shard import UNSTRIPED
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOCAL, STRIPED, Attr, Facts, Opened


class Checkpoints:
    """Has other nodes copy files that are written here, and tells when their writing has ended."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._flushed: dict[int, bytes] = {}  # of what others have copied while it is written here: the digest

    def flush(self, ino: int, facts: Facts) -> Operation[int]:
        """It may be written on meanwhile, also without a word (by a mapping). Answers as ``Checkpoint``."""
        digest = yield from self._digest(ino, facts)  # before the copies: later writes must show
        error = yield from self._take(ino, facts)
        if not error and digest is not None:
            self._flushed[ino] = digest
        return error

    def finish(self, ino: int, facts: Facts) -> Operation[tuple[int, bool]]:
        """Nobody writes it any more: why there are fewer copies than asked for, and does the record know of them?"""
        digest = self._flushed.pop(ino, None)
        if digest is not None and digest == (yield from self._digest(ino, facts)):
            return 0, True
        try:
            return (yield from self._take(ino, facts)), True
        except OSError as error:
            return number_of(error), False

    def _take(self, ino: int, facts: Facts) -> Operation[int]:
        return (yield from self._owners.ask(p.Checkpoint(ino, facts, self._calls.number())))

    def _digest(self, ino: int, facts: Facts) -> Operation[bytes | None]:
        try:
            taken, size = yield from work(w.Digest(ino, Opened(LOCAL, self._members.node, 0, facts.size, self._members.losses_seen)))
        except OSError:
            return None
        return taken if size == facts.size else None

    def tell_closed(self, call: p.Closed, laid_lost: Callable[[], bool] | None = None) -> Operation[Attr | None]:
        """Tell the shard of it when the shard and this node have heard of the same losses. ``laid_lost``: was some of it lost, if no handle
        of this node knows?"""
        end, pause = self._calls.now + PATIENCE_S, PAUSE_FIRST_S
        while True:
            losses, lost = self._members.losses, False
            if laid_lost is not None:
                lost = laid_lost()
            elif call.facts is not None and self._members.losses_seen:
                lost = yield from work(w.IsLost(call.ino))
            try:
                return (yield from self._owners.ask(replace(call, losses=losses, lost=lost)))
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                if self._calls.now >= end:
                    raise failure(errno.EIO) from None
            yield Sleep(pause)
            pause = min(2 * pause, PAUSE_LAST_S)

    def has_some(self, attr: Attr) -> Operation[bool]:
        """Is anything here that was written to a file of this node, and is not recorded?"""
        try:
            yield from work(w.LiveFacts(attr))
        except OSError as error:
            return error.errno != errno.ENOENT or (yield from work(w.End(attr.ino))) is not None
        return True

    def is_laid_lost(self, attr: Attr, stripe: int, since: int) -> bool:
        """Some of what was laid in stripes of so many bytes (as ``Closed.stripe``), or lay in its own, since ``losses_seen`` was that."""
        bytes_each = stripe or (attr.stripe if attr.layout == STRIPED else UNSTRIPED)
        if bytes_each == UNSTRIPED:
            return False
        count = min(-(-attr.size // bytes_each), len(self._members.owners))
        parts = [self._meta.stripe_partition(attr.ino, index) for index in range(count)]
        return self._members.was_lost(parts, attr.copies > 1, since)
