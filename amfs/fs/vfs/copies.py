"""Whole copies of finished files, brought to a node or deleted there because somebody says so: the steps of collective movements. Pure.

Such a copy is what a node gets that opens a file to read it: recorded as a holder, forgotten when the file changes.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Sequence

from amfs.fs.vfs.calls import Calls, Operation, ask, failure, number_of, together, work
from amfs.fs.vfs.evictor import Evictor
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.replicas import Once
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, STRIPED, Attr

FILES_MAX = 1024  # in one request


class Copies:
    """Brings and deletes whole copies."""

    def __init__(
        self, calls: Calls, members: Members, owners: Owners, opener: Opener, files: OpenFiles, evictor: Evictor
    ) -> None:
        self._members = members
        self._owners = owners
        self._opener = opener
        self._files = files
        self._evictor = evictor
        self._once = Once(calls)
        calls.serve(p.Bring.by(self._bring_all), p.SpareCopies.by(self._spare), p.KeepCopy.by(self._keep_copy))

    def finished(self, ino: int) -> Operation[Attr]:
        """The record of a file that is written by nobody, and whole."""
        attr = yield from self._owners.ask(p.Getattr(ino))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        if attr.finished == LOST:
            raise failure(errno.EIO)
        if not attr.finished:
            raise failure(errno.EBUSY)
        return attr

    # ── for clients ────────────────────────────────────────────────────────────────────────────────

    def where(self, inodes: Sequence[int]) -> Operation[tuple[list[int], list[q.Holding | int]]]:
        found: list[q.Holding | int] = []
        for ino in inodes[:FILES_MAX]:
            try:
                attr = yield from self.finished(ino)
                holders = [] if attr.layout == STRIPED else list((yield from self._owners.ask(p.Holders(ino))))
                found.append(q.Holding(attr.size, attr.layout == STRIPED, holders))
            except OSError as error:
                found.append(number_of(error))
        return sorted(self._members.live), found

    def bring(self, node: int, source: int, inodes: tuple[int, ...]) -> Operation[list[int]]:
        return (yield from ask(node, p.Bring(source, inodes[:FILES_MAX])))

    def spare(self, node: int, inodes: tuple[int, ...]) -> Operation[int]:
        return (yield from ask(node, p.SpareCopies(inodes[:FILES_MAX])))

    # ── on the node that is to have them, or not ───────────────────────────────────────────────────

    def _bring_all(self, peer: int, call: p.Bring) -> Operation[list[int]]:
        answers = yield from together([self._files.bring(ino, lambda ino=ino: self._bring(ino, call.source)) for ino in call.inodes])  # type: ignore[misc]
        return [number_of(answer) if isinstance(answer, OSError) else 0 for answer in answers]

    def _bring(self, ino: int, source: int) -> Operation[None]:
        losses = self._members.losses
        attr, holders, _, lost, heard, number = yield from self._owners.ask(p.Open(ino, False))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        if lost:
            raise failure(errno.EIO)
        if attr.writer >= 0 or not attr.finished:
            raise failure(errno.EBUSY)
        if self._members.node in holders or attr.layout == STRIPED:
            return
        if heard != losses or (attr.size and source not in holders):
            raise failure(errno.ESTALE)  # the client has an old picture
        yield from self._opener.holding_part(ino, lambda: self._fetch(attr, source, number))

    def _fetch(self, attr: Attr, source: int, number: int) -> Operation[None]:
        if attr.size:
            yield from work(w.Fetch(attr.ino, source, attr.size, attr.atime, attr.mtime))
        else:
            yield from work(w.MakePart(attr.ino, (attr.atime, attr.mtime)))
        yield from self._opener.hold(attr.ino, number)

    def _keep(self, call: p.KeepCopy) -> Operation[int]:
        """The node that writes it goes on: an opening here that has fetched the content before this must not remove this."""
        facts = call.facts
        yield from work(w.Fetch(call.ino, call.source, facts.size, facts.atime, facts.mtime))
        self._files.keep_brought(call.ino)
        return 0

    def _keep_copy(self, peer: int, call: p.KeepCopy) -> Operation[None]:
        keep = lambda: self._opener.holding_part(call.ino, lambda: self._keep(call))  # noqa: E731
        yield from self._once.run(("keep", call.ino), (peer, call.number), keep)

    def _spare(self, peer: int, call: p.SpareCopies) -> Operation[int]:
        count = 0
        for ino in call.inodes:
            count += yield from self._evictor.evict(ino)
        return count
