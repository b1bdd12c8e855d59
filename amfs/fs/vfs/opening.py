"""How the content of a file that is opened here comes within reach: where it lies, who may write it, and fetching it. Pure.

- A file is written through one node at a time, its ``writer``. A process that opens it there writes into that node's store; one that opens
  it elsewhere meanwhile reads and writes through the writer's node and sees every byte at once. When the last handle closes, the file is
  finished.
- A finished ``whole`` file lies complete on its holders. Opening it elsewhere fetches a replica; opening it to write makes that node the
  only holder. A finished ``striped`` file is read and written stripe by stripe wherever it is opened.
- So between nodes: an opening after a close sees all of it (close-to-open). A handle that was open before another node began to write
  a finished file may go on seeing the old content.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from typing import TypeVar

from amfs._native import Meta
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import PAUSE_FIRST_S, PAUSE_LAST_S, Acquire, Calls, Operation, Sleep, ask, failure, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_file import OpenFile
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.shard import OPEN_S
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOCAL, REMOTE, STRIPED, STRIPES, WHOLE, Attr, Opened, stripe_of
from amfs.vocabulary.states import OpenEvent

STRIPE_BYTES = 512 << 10  # default, MemFS §III

T = TypeVar("T")


def _part(ino: int) -> object:
    return "part", ino


class Opener:
    """Finds, or fetches, the content for one opening of a file at a time."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        #: How often an opening to write has begun or ended on this node, or a replica has come: a node that drains looks again. Of those in
        #: mounts only the ones that the poll loop decides.
        self.changes = 0

    def holding_part(self, ino: int, change: Callable[[], Operation[T]]) -> Operation[T]:
        """Do what brings or removes the whole content here while nothing else does. It must not wait for a node that writes the file."""
        yield Acquire(_part(ino))
        try:
            return (yield from change())
        finally:
            self._calls.release(_part(ino))

    def open(self, file: OpenFile, writing: bool, truncate: bool, put: bool = False) -> Operation[Opened]:
        """Nobody else opens the file here meanwhile. ``put``: a file is put in its place, if all of it is to lie here. Then it is not cut:
        the part here may be that very file."""
        calls, me, ino = self._calls, self._members.node, file.ino
        looked: Attr | None = None  # the record that a writer saw at its first look
        brought: Attr | None = None  # the record of the content that it has fetched
        fetched = 0  # the moment before that
        became = False  # the writer, by this opening: then the part here is not the file's content, unless the record says so
        end, pause = calls.now + OPEN_S, PAUSE_FIRST_S
        yield from self.await_told(ino)
        while True:
            opened: Opened | None = None  # stays so if the file changed under our hands: then all of it again
            first_look = writing and not truncate and looked is None
            since = self._meta.moment()
            if writing and not first_look and (looked is None or looked.writer != me):
                file.move(OpenEvent.BECOMES_WRITER)
            losses, seen = self._members.losses, self._members.losses_seen
            grant = yield from self._owners.ask(p.Open(ino, writing and not first_look))
            attr, holders, granted, lost, heard, _ = grant
            became = became or granted or (looked is not None and looked.writer != me == attr.writer)  # by a node that has died since
            # Not by size and time alone: a store through a mapping moves no time. But each writer that is let in is told to this node.
            good = brought is not None and (brought.size, brought.mtime) == (attr.size, attr.mtime) and self._meta.is_fresh(fetched, ino)
            if writing and attr.copies > 1:
                self._meta.expect_copies()
            if writing and not first_look:
                self._caches.uncache((ino,))  # its attributes as a finished file; the shard tells others
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.EINVAL)
            if lost and not truncate:
                raise failure(errno.EIO)
            mine = me in holders or (attr.writer == me and not attr.finished and not became)
            if heard != losses:
                pass  # its shard has not heard yet of what was lost, or this node has not: it may be some of this
            elif first_look:
                elsewhere = attr.writer < 0 and attr.layout == WHOLE and attr.size and holders and not mine
                if not elsewhere or (yield from self._replicate(file, grant, True)):
                    looked, brought, fetched = attr, attr if elsewhere else None, since
                    continue
            elif attr.writer not in (-1, me):
                return Opened(REMOTE, attr.writer, attr.stripe, attr.size, seen)
            elif attr.layout == STRIPED:
                opened = Opened(STRIPES, me, stripe_of(attr), attr.size, seen)
            elif not attr.size or truncate:
                if not (yield from self._make(grant, looked or attr, mine, writing, truncate)):
                    continue
                opened = Opened(LOCAL, me, stripe_of(attr), attr.size, seen)
            elif mine or good:
                opened = Opened(LOCAL, me, stripe_of(attr), attr.size, seen)
                if not writing and attr.finished and not self._owners.is_here(ino):
                    self._meta.cache(attr, True, since)  # so that the mount opens it by itself the next time
            elif not holders:
                raise failure(errno.EIO)  # they are all gone
            elif writing:
                # Another has written between our look and our opening. We are the writer now, and get its content.
                fetched = self._meta.moment()
                if (yield from self._replicate(file, grant, True)):
                    brought = attr
                    continue
                looked = brought = None
            else:
                try:
                    if (yield from self._replicate(file, grant, False)):
                        return Opened(LOCAL, me, 0, attr.size, seen)
                except _NoRoom as found:
                    # It is read where it lies: at the node that has just offered it. A copy of a node asked before may be damaged.
                    return Opened(REMOTE, found.holder, 0, attr.size, seen)
            if opened is None:
                if calls.now >= end:
                    raise failure(errno.EIO)
                yield Sleep(pause)
                pause = min(2 * pause, PAUSE_LAST_S)
                continue
            if truncate and (attr.size or not attr.finished):
                if not (put and opened.kind == LOCAL):
                    yield from work(w.Truncate(ino, opened, 0))
                opened = opened._replace(size=0)
            return opened

    def await_told(self, ino: int) -> Operation[None]:
        """That a mount has closed it may be on its way: not to be overtaken."""
        end = self._calls.now + OPEN_S
        while self._meta.direct_uses(ino)[2] and self._calls.now < end:
            yield Sleep(PAUSE_FIRST_S)

    def _make(self, grant: p.OpenGrant, was: Attr, mine: bool, writing: bool, truncate: bool) -> Operation[bool]:
        """An empty part. False: the file has changed meanwhile."""
        attr = grant.attr
        ino = attr.ino
        if not mine and not truncate:
            self._calls.order(w.Drop((ino,)))  # the part here has the content from before
        yield from work(w.MakePart(ino, (was.atime, was.mtime) if was.finished and not truncate else None))
        if not writing and attr.finished and not mine:
            try:
                yield from self._owners.ask(p.Hold(ino, grant.number))  # so that the empty part goes when the file does
            except OSError as error:
                self._calls.order(w.DropWhole(ino))
                if error.errno != errno.EAGAIN:
                    raise
                return False
        return True

    def _replicate(self, file: OpenFile, grant: p.OpenGrant, writing: bool) -> Operation[bool]:
        """The whole content to this node. False: it changed meanwhile, or was laid in stripes because this node has no room: look again."""
        try:
            return (yield from self.holding_part(grant.attr.ino, lambda: self._fetch(file, grant, writing)))
        except _NoRoom as found:
            no_room = found
        yield from self._find_room(grant.attr, no_room, writing)
        return False

    def _fetch(self, file: OpenFile, grant: p.OpenGrant, writing: bool) -> Operation[bool]:
        attr, holders = grant.attr, grant.holders
        for node in holders:
            if node not in self._members.live:
                continue
            try:
                yield from work(w.Fetch(attr.ino, node, attr.size, attr.atime, attr.mtime))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise _NoRoom(node) from None
                continue
            if writing:
                file.brought = True
                return True
            try:
                yield from self.hold(attr.ino, grant.number)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return False
                raise
            return True
        if not self._members.live.intersection(holders):
            raise failure(errno.EIO)
        return False

    def hold(self, ino: int, number: int) -> Operation[None]:
        """The whole content lies here: say so. ``number``: of the grant of its opening. If the file has changed since (EAGAIN), or that
        fails, the content goes again."""
        since = self._meta.moment()
        try:
            attr = yield from self._owners.ask(p.Hold(ino, number))
        except OSError:
            self._calls.order(w.DropWhole(ino))
            raise
        self.changes += 1
        if not self._owners.is_here(ino):
            self._meta.cache(attr, True, since)

    def _find_room(self, attr: Attr, no_room: _NoRoom, writing: bool) -> Operation[None]:
        """This node has no room for the content: lay it in stripes, or else have it written where it lies. ``no_room``: neither can be."""
        me = self._members.node
        if attr.writer == me:  # without the content: nobody could lay it in stripes
            yield from self._owners.ask(p.AbortWriteOpen(attr.ino))
        try:
            yield from ask(no_room.holder, p.Restripe(attr.ino, STRIPE_BYTES))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            if not writing or attr.writer not in (-1, me):
                raise no_room from None
            yield from ask(no_room.holder, p.Proxy(attr.ino))


class _NoRoom(OSError):
    """This node has none for what ``holder`` has."""

    def __init__(self, holder: int) -> None:
        super().__init__(errno.ENOSPC, f"no room for what node {holder} has")
        self.holder = holder
