"""The files that are open on this node, and what their shards are told of that: openings, closings, and writing for other nodes. Pure.

One closing of a file after the other (the lock CLOSING), and one opening after the other that the poll loop decides (BRINGING): content
that one opening has brought is not to be brought again, least of all over what was written to it since.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

from amfs._native import Meta
from amfs.fs.openflags import O_ACCMODE, O_TRUNC
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, Acquire, Calls, Operation, Sleep, ask, failure, number_of, work
from amfs.fs.vfs.checkpoints import Checkpoints
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_file import OpenFile
from amfs.fs.vfs.opening import Opener
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.replicas import Once
from amfs.fs.vfs.shard import OPEN_S
from amfs.fs.vfs.stripe_copies import StripeCopies
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOCAL, STRIPE_COPIES, STRIPED, STRIPES, WHOLE, Attr, Facts, Opened, stripe_of
from amfs.vocabulary.events import FsHandlesClosed, FsStriped
from amfs.vocabulary.states import OpenState

PROXIED_S = 10.0  # a file that is held open for other nodes is closed if none of them has used it for so long

#: A change of a file that nobody else writes: with the record and the holders; answers as ``Closed.stripe``.
ExclusiveChange = Callable[[Attr, tuple[int, ...]], Operation[int]]


T = TypeVar("T")


class _Uses(NamedTuple):
    """Of a file on this node, as of ``Meta.uses``: by anybody; by other nodes; by mounts that have opened it at its shard."""

    readers: int
    writers: int
    others: int
    direct: int


def _closing(ino: int) -> object:
    return "closing", ino


_LEAVING = "leaving"  # held for good by the node as it is about to leave


def _bringing(ino: int) -> object:
    return "bringing", ino


class OpenFiles:
    """Opens and closes files for the mounts and clients of this node, and for other nodes that write through it."""

    def __init__(
        self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches, opener: Opener, stripes: StripeCopies
    ) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._opener = opener
        self._stripes = stripes
        self._files: dict[int, OpenFile] = {}
        self._leaves = False
        self._making = 0
        self._untold: set[int] = set()  # files whose writes are still to be told, or could not be
        self._checkpoints = Checkpoints(calls, meta, members, owners)
        self._once = Once(calls)
        calls.serve(
            p.Recall.by(self._recall),
            p.Proxy.by(self._open_proxy),
            p.Keep.by(self._keep),
            p.HasContent.by(self._has_content),
            p.Live.by(self._live),
            p.Flush.by(self._flush),
            p.SetTimes.by(lambda peer, call: work(w.SetTimes(call.ino, call.atime, call.mtime))),
        )

    def _of(self, ino: int) -> OpenFile:
        file = self._files.get(ino)
        if file is None:
            file = self._files[ino] = OpenFile(ino)
        return file

    def _forget(self, ino: int) -> None:
        """Unless there is something to know of it."""
        file = self._files.get(ino)
        if file is not None and file.is_forgettable:
            del self._files[ino]

    def check_invariants(self) -> None:
        for file in self._files.values():
            file.check_invariants()

    def written(self) -> list[int]:
        """Files that are open to be written through this node or another, or about to be. Of mounts those that the poll loop has opened."""
        return [ino for ino, file in self._files.items() if file.opening_to_write or file.has_writer or file.unreported]

    @contextmanager
    def making(self) -> Iterator[None]:
        """A file is being made to be opened here: its record may be there before it is known here."""
        self._making += 1
        try:
            yield
        finally:
            self._making -= 1
            self._opener.changes += 1

    @property
    def is_making(self) -> bool:
        return self._making > 0 or self._meta.making() > 0

    def begin_no_more(self) -> Operation[None]:
        """This node is about to leave. A program that would begin to write here waits, and is told that the node has gone; no further
        node begins to write through this one."""
        if not self._leaves:
            self._leaves = True
            yield Acquire(_LEAVING)

    def await_stay(self) -> Operation[None]:
        """Before anything is done to open a file to write."""
        if self._leaves:
            yield from self._calls.wait(_LEAVING)

    # ── opening ────────────────────────────────────────────────────────────────────────────────────

    def open(self, endpoint: object, ino: int, flags: int, put: bool = False) -> Operation[Opened]:
        """A handle for ``endpoint`` (a mount, a client, or a task of this node). ``put``: as ``Opener.open`` has it."""
        truncate = bool(flags & O_TRUNC)
        writing = bool(flags & O_ACCMODE) or truncate
        if writing:
            yield from self.await_stay()
        file = self._begin(ino, writing)
        try:
            yield from self._calls.wait(_closing(ino))  # the closing of an earlier handle must not be taken for this one's
            opened = yield from self._open(file, writing, truncate, put)
            file.use(endpoint, writing)
        finally:
            self._end(file, writing)
        return opened

    def create(self, endpoint: object, attr: Attr, part: bool = True) -> Operation[Opened]:
        """A handle on a file that this node has just made. ``part``: make the empty part, too; else the caller puts one there."""
        file = self._begin(attr.ino, True)
        try:
            if attr.layout == WHOLE and part:
                yield from work(w.MakePart(attr.ino))
            file.use(endpoint, True)
        finally:
            self._end(file, True)
        return Opened(STRIPES if attr.layout == STRIPED else LOCAL, self._members.node, stripe_of(attr), 0, self._members.losses_seen)

    def _begin(self, ino: int, writing: bool) -> OpenFile:
        file = self._of(ino)
        file.opening += 1
        file.opening_to_write += writing
        self._opener.changes += writing
        self._meta.claim(ino, True)  # a mount that has opened it directly leaves the word that it is closed to us
        return file

    def _end(self, file: OpenFile, writing: bool) -> None:
        """The shard is told when nobody on this node has it open, nor is about to; and of what was written while this was under way."""
        file.opening -= 1
        file.opening_to_write -= writing
        self._opener.changes += writing  # its part here was not there before
        if file.opening:
            return
        ino = file.ino
        unused = not file.users
        if unused:
            self._meta.claim(ino, False)
            unused = not self._meta.direct_uses(ino)[0]  # a mount that opened it by itself says when it has closed it
        if unused or file.unreported:
            self._calls.spawn(self._closed(ino, False, None))
        self._forget(ino)

    def _open(self, file: OpenFile, writing: bool, truncate: bool, put: bool) -> Operation[Opened]:
        ino = file.ino
        yield Acquire(_bringing(ino))
        opened: Opened | None = None
        try:
            opened = yield from self._opener.open(file, writing, truncate, put)
        except OSError:
            # The next opening must not believe that the content of a writer is here.
            if writing and not file.unreported and not self._has_writer(ino, self._uses(ino)):
                with suppress(OSError):
                    yield from self._owners.ask(p.AbortWriteOpen(ino))
            raise
        finally:
            if file.brought and (opened is None or opened.kind != LOCAL):
                self._calls.order(w.DropWhole(ino))  # another was faster, or has laid it in stripes
            file.brought = False
            file.end_fetch()
            self._calls.release(_bringing(ino))
        return opened

    # ── uses ───────────────────────────────────────────────────────────────────────────────────────

    def is_in_use(self, ino: int) -> bool:
        """Is it open here, or about to be?"""
        return any(self._uses(ino)) or self._counts(ino)

    def _counts(self, ino: int) -> bool:
        """Handles that were given out here and may not be open yet, and openings under way."""
        file = self._files.get(ino)
        return file is not None and bool(file.opening or file.proxy or file.users)

    def _uses(self, ino: int) -> _Uses:
        return _Uses(*self._meta.uses(ino))

    def _has_writer(self, ino: int, uses: _Uses) -> bool:
        return bool(uses.writers) or self._is_written(ino)

    def _is_written(self, ino: int) -> bool:
        file = self._files.get(ino)
        return (file is not None and file.has_writer) or bool(self._meta.direct_uses(ino)[1])

    def _recall(self, peer: int, call: p.Recall) -> Operation[bool]:
        yield from self._caches.forget_here((call.ino,))
        file = self._files.get(call.ino)
        return not (self._has_writer(call.ino, self._uses(call.ino)) or (file is not None and file.opening_to_write))

    def _keep(self, peer: int, call: p.Keep) -> Operation[None]:
        ino = call.ino
        self._caches.uncache((ino,))  # from now on it is not opened without asking
        kept = yield from work(w.Keep(ino))
        if not (kept or self._counts(ino)):
            self._calls.tell(peer, p.Unused(ino))  # before the answer, and before it may be opened again

    def _has_content(self, peer: int, call: p.HasContent) -> bool:
        file = self._files.get(call.ino)
        return file is None or file.state is not OpenState.FETCHING

    def _live(self, peer: int, call: p.Live) -> Operation[Facts]:
        try:
            return (yield from work(w.LiveFacts(call.attr)))
        except OSError as error:
            if error.errno == errno.ENOENT:  # just closed, or not ours: the asker looks at the record again, which must know by then
                yield from self._calls.wait(_closing(call.attr.ino))
                if not self.is_making:
                    with suppress(OSError):
                        yield from self._try_to_disown(call.attr.ino)
            raise

    # ── other nodes that write through this one ────────────────────────────────────────────────────

    def _open_proxy(self, peer: int, call: p.Proxy) -> Operation[bool]:
        ino = call.ino
        file = self._begin(ino, True)  # from here on a mount leaves it to us to say that it is closed
        try:
            yield from self._opener.await_told(ino)
            yield Acquire(_closing(ino))
            try:
                if not file.proxy and (self._leaves or not (yield from self._become_proxy(file))):
                    return False
            finally:
                self._calls.release(_closing(ino))
            yield from work(w.Invalidate((ino,)))  # its kernel's cache is not all there is any more
        finally:
            self._end(file, True)
        return True

    def _become_proxy(self, file: OpenFile) -> Operation[bool]:
        ino = file.ino
        end, granted = self._calls.now + OPEN_S, False
        while True:
            losses, seen = self._members.losses, self._members.losses_seen
            grant = None if file.state is OpenState.FETCHING else (yield from self._owners.ask(p.ResumeWriting(ino)))
            if grant is None or file.state is OpenState.FETCHING:
                return False
            granted = granted or grant.granted
            if grant.losses == losses:
                break
            if self._calls.now >= end:
                if granted:
                    yield from self._owners.ask(p.AbortWriteOpen(ino))
                return False
            yield Sleep(PAUSE_FIRST_S)  # the shard has not heard yet of what was lost, or this node has not
        attr = grant.attr
        self._caches.uncache((ino,))
        if attr.layout == WHOLE and not attr.size:
            yield from work(w.MakePart(ino))
        kind = STRIPES if attr.layout == STRIPED else LOCAL
        create = kind == STRIPES or not attr.size
        opened = Opened(kind, self._members.node, stripe_of(attr), attr.size, seen)
        file.open_proxy((yield from work(w.OpenHandle(ino, opened, True, create))))
        self._calls.spawn(self._watch_proxy(ino))
        return True

    def _watch_proxy(self, ino: int) -> Operation[None]:
        """The node that asked for it may have died before it opened anything."""
        while self._has_proxy(ino):
            yield Sleep(PROXIED_S)
            if self._has_proxy(ino) and not self._uses(ino).others:
                yield from self._close_proxy(ino, self._of(ino).close_proxy())

    def _has_proxy(self, ino: int) -> bool:
        file = self._files.get(ino)
        return file is not None and bool(file.proxy)

    def _close_proxy(self, ino: int, handle: int) -> Operation[None]:
        facts = yield from work(w.CloseHandle(handle))
        yield from self._closed(ino, True, facts)

    def on_handles_closed(self, event: FsHandlesClosed) -> None:
        """No other node uses it through this one any more: the last of all may have been the writer."""
        ino = event.ino
        self._calls.order(w.Invalidate((ino,)))  # others have written here; this node's kernel has not seen that
        if self._has_proxy(ino):
            self._calls.spawn(self._close_proxy(ino, self._of(ino).close_proxy()))
        else:
            self._calls.spawn(self._closed_by_others(ino))

    def _closed_by_others(self, ino: int) -> Operation[None]:
        attr = yield from self._owners.ask(p.Getattr(ino))
        yield from self._closed(ino, attr.writer == self._members.node, None)

    # ── closing ────────────────────────────────────────────────────────────────────────────────────

    def close(self, endpoint: object, ino: int, writing: bool, facts: Facts | None = None, origin: bytes = b"") -> Operation[None]:
        """One handle of a client is closed. ``origin``: as ``Closed`` has it; not told if others write the file, too."""
        file = self._files.get(ino)
        if file is not None:
            file.end_use(endpoint, writing)
        secured = yield from self._closed(ino, writing, facts, origin)
        if writing and not secured and self._meta.copies_wanted():
            yield from self.secure(ino)

    def close_all(self, endpoint: object, ino: int, wrote: bool, last: bool, facts: Facts | None) -> Operation[None]:
        """The mounts have closed their last handle (``last``), or their last writing one (``wrote``): they may have others for reading
        then, and say when they are gone. ``endpoint``: one of them."""
        file = self._files.get(ino)
        if file is not None:
            file.end_uses(endpoint, wrote, last)
        try:
            yield from self._closed(ino, wrote, facts)
        finally:
            self._meta.closed(ino)

    def _closed(self, ino: int, wrote: bool, facts: Facts | None, origin: bytes = b"") -> Operation[bool]:
        """Tell the shard what was written, and whether anybody here still uses it. True: it is finished, and has its copies."""
        if wrote:  # before our turn has come: the closing before us may find that nobody writes it any more
            self._of(ino).close_writer(facts)
        elif ino in self._files:
            self._files[ino].settle()
        yield Acquire(_closing(ino))
        self._meta.closing(ino)  # if its record is here: no mount opens it between our look and our news
        try:
            written: Facts | None = None
            error, same = 0, False
            file, uses = self._of(ino), self._uses(ino)
            last = file.unreported and not (self._has_writer(ino, uses) or file.opening_to_write)
            if last:
                self._untold.add(ino)
                written = yield from self._written(ino, file.report())
                file = self._of(ino)
                if written is not None and file.copies > 1:
                    if file.stripe:
                        error = yield from self._copy_grown(ino, file.copies)
                    else:
                        error, same = yield from self._checkpoints.finish(ino, written)
            made = not last and (yield from self._is_being_made(ino))
            file, uses = self._of(ino), self._uses(ino)
            used = bool(made or file.opening or file.users or uses.readers or self._has_writer(ino, uses) or file.unreported)
            if not used:
                self._meta.claim(ino, False)
            if last or not (used or uses.direct):
                yield from self._tell_closed(ino, written, used or uses.direct > 0, same, origin)
                self._untold.discard(ino)
            if made:
                self._calls.spawn(self.disown(ino))  # unless it has come to be open here by then
            if error:
                self._calls.spawn(self._owners.ask(p.Secure(ino)))  # the shard goes on trying
                raise failure(error)
            return written is not None
        finally:
            self._meta.closed(ino)
            self._calls.release(_closing(ino))
            self._forget(ino)

    def _is_being_made(self, ino: int) -> Operation[bool]:
        """Has another process of this node made it, and been told nothing yet? Its record is there, and waits for a backup. The
        shard would take a closing for the end of the writing that is to begin."""
        if self.is_making and not self._counts(ino):
            with suppress(FileNotFoundError):
                attr = yield from self._owners.ask(p.Getattr(ino))
                return attr.writer == self._members.node and not attr.finished
        return False

    def disown(self, ino: int) -> Operation[None]:
        """Its record may say that this node writes it, and nobody here does: its making was not answered. Then the shard is told."""
        end = self._calls.now + PATIENCE_S
        while (yield from self._try_to_disown(ino)) and self._calls.now < end:
            yield Sleep(PAUSE_LAST_S)

    def _try_to_disown(self, ino: int) -> Operation[bool]:
        """Only if nothing of it is here: the shard takes this for the end of its writing. True: it may be being made."""
        yield Acquire(_closing(ino))
        self._meta.closing(ino)
        try:
            attr = yield from self._owners.ask(p.Getattr(ino))
            ours = attr.writer == self._members.node and not attr.finished and ino not in self._untold
            if ours and self.is_making:
                return True  # a making that began before we looked at the record; a later one makes another file
            file = self._files.get(ino)
            known = (file is not None and not file.is_forgettable) or self.is_in_use(ino) or any(self._meta.direct_uses(ino))
            if ours and not known and not (yield from self._checkpoints.has_some(attr)):  # else that it was closed is on its way
                self._meta.claim(ino, False)
                yield from self._tell_closed(ino, None, False, False, b"")
            return False
        finally:
            self._meta.closed(ino)
            self._calls.release(_closing(ino))

    def _tell_closed(self, ino: int, facts: Facts | None, used: bool, same: bool, origin: bytes) -> Operation[None]:
        stripe = 0
        if facts is not None:
            file = self._of(ino)
            stripe, file.stripe = file.stripe, 0
        since = self._meta.moment()
        try:
            call = p.Closed(ino, facts, stripe, used, (), False, same, origin)
            out = yield from self._checkpoints.tell_closed(call)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return
        finally:
            if facts is not None:
                self._calls.order(w.EndRecorded(ino))
        if out is not None and out.layout == WHOLE and out.nlink and not self._owners.is_here(ino):
            self._meta.cache(out, True, since)

    def _written(self, ino: int, said: Facts | None) -> Operation[Facts | None]:
        """The facts of writes here. ``said``: by an endpoint when it closed its handle; the handle of another may have written, and been
        closed, after that. Of stripes nobody else knows."""
        try:
            attr = yield from self._owners.ask(p.Getattr(ino))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return said  # it has gone, and nobody wants to know
        if attr.writer != self._members.node and (said is None or (said.size, said.mtime) == (attr.size, attr.mtime)):
            return None  # the closing before this one has told it, or the node through which we wrote does
        self._of(ino).copies = attr.copies if attr.nlink and attr.layout == WHOLE else 1
        if said is not None and (attr.layout == STRIPED or self._of(ino).stripe):
            end = yield from work(w.End(ino))  # a handle may have been closed since, and the news of that be on its way
            return said if end is None else said._replace(size=end[0], mtime=max(said.mtime, end[1]))
        try:
            return (yield from work(w.LiveFacts(attr)))
        except OSError as error:
            if attr.writer == self._members.node and not attr.finished:
                self._calls.log(f"inode {ino:#x}: what was written is not to be found: {error}", logging.ERROR)
            return None  # the record, and the nodes that hold the content that it tells of, stay as they are

    def on_striped(self, event: FsStriped) -> None:
        self._of(event.ino).stripe = event.stripe

    # ── copies of what is written ──────────────────────────────────────────────────────────────────

    def secure(self, ino: int) -> Operation[None]:
        """A program here has closed a descriptor through which it wrote: its writes are to survive. ENOSPC: no room for copies."""
        if error := (yield from self._secure(ino)):
            raise failure(error)

    def _secure(self, ino: int) -> Operation[int]:
        number = self._calls.number()
        try:
            if self._is_written(ino):  # most likely by this node alone: its shard need not be asked who writes it
                error = yield from self._flush_once(ino, self._members.node, number)
                if error is not None:
                    return error
            attr = yield from self._owners.ask(p.Getattr(ino))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return 0  # it has gone
        if attr.copies <= 1 or not attr.nlink or (attr.layout != WHOLE and attr.writer < 0):
            return 0
        if attr.writer < 0:
            return (yield from self._owners.ask(p.Secure(ino)))
        while True:
            try:
                return (yield from ask(attr.writer, p.Flush(ino, number)))
            except OSError as error:
                if error.errno != errno.ETIMEDOUT or attr.writer not in self._members.live:
                    return errno.EIO if error.errno == errno.EHOSTDOWN else number_of(error)

    def _flush(self, peer: int, call: p.Flush) -> Operation[int]:
        error = yield from self._flush_once(call.ino, peer, call.number)
        return 0 if error is None else error

    def _flush_once(self, ino: int, peer: int, number: int) -> Operation[int | None]:
        return (yield from self._once.run(("flush", ino), (peer, number), lambda: self._flush_here(ino)))

    def _flush_here(self, ino: int) -> Operation[int | None]:
        """Have other nodes copy what is written here. None: another node writes it."""
        yield Acquire(_closing(ino))
        try:
            attr = yield from self._owners.ask(p.Getattr(ino))
            if attr.copies <= 1 or not attr.nlink:
                return 0
            if attr.writer == self._members.node and self._of(ino).stripe:
                error = yield from self._copy_grown(ino, attr.copies)
                try:
                    facts = yield from work(w.LiveFacts(attr))
                except OSError:  # ENOENT: its last handle is closed by now, and its closing waits for us
                    return error
                return (yield from self._owners.ask(p.Checkpoint(ino, facts, self._calls.number(), True))) or error
            if attr.writer == self._members.node:
                facts = yield from work(w.LiveFacts(attr))
                if attr.layout != WHOLE:
                    return (yield from self._owners.ask(p.Checkpoint(ino, facts, self._calls.number())))
                return (yield from self._checkpoints.flush(ino, facts))
        finally:
            self._calls.release(_closing(ino))
            self._forget(ino)
        return (yield from self._owners.ask(p.Secure(ino))) if attr.writer < 0 else None

    def _copy_grown(self, ino: int, copies: int) -> Operation[int]:
        """It has outgrown this node, and lies in stripes: perhaps since before somebody asked for copies."""
        error = yield from self._stripes.protect(ino)
        return error or (errno.ENOSPC if copies > STRIPE_COPIES else 0)

    def keep_brought(self, ino: int) -> None:
        """The part here is a copy that stays, whatever becomes of an opening under way."""
        if ino in self._files:
            self._files[ino].brought = False

    # ── changes by a node that is the only writer meanwhile ────────────────────────────────────────

    def exclusively(self, ino: int, change: ExclusiveChange) -> Operation[bool]:
        """Do it while nobody else writes the file. False: somebody does."""
        file = self._begin(ino, True)
        try:
            yield from self._opener.await_told(ino)
            yield Acquire(_bringing(ino))
            yield Acquire(_closing(ino))  # an opening that is to be let in as this node waits for this
            self._meta.closing(ino)
            try:
                losses, seen = self._members.losses, self._members.losses_seen
                grant = yield from self._owners.ask(p.OpenExclusively(ino))
                if grant is None:
                    return False
                attr = grant.attr
                self._caches.uncache((ino,))
                try:
                    if grant.losses != losses:
                        raise failure(errno.EBUSY)  # its shard has not heard yet of what was lost, or this node has not
                    stripe = yield from change(attr, grant.holders)
                except OSError:
                    yield from self._owners.ask(p.AbortWriteOpen(ino))
                    raise
                call = p.Closed(ino, Facts(attr.size, attr.blocks, 0, 0), stripe, True, (), False)
                yield from self._checkpoints.tell_closed(call, lambda: self._checkpoints.is_laid_lost(attr, stripe, seen))
                self._calls.order(w.EndRecorded(ino))
            finally:
                self._meta.closed(ino)
                self._calls.release(_closing(ino))
                self._calls.release(_bringing(ino))
        finally:
            self._end(file, True)
        return True

    # ── whole copies ───────────────────────────────────────────────────────────────────────────────

    def spare(self, ino: int, drop: Callable[[], Operation[T]], used: T) -> Operation[T]:
        """Have ``drop`` remove the part here, while nothing is brought; returns the answer of ``drop``. ``used``: it is in use."""
        if self.is_in_use(ino):
            return used
        yield Acquire(_bringing(ino))  # no opening has it, which might itself wait for room
        try:
            return (yield from drop())
        finally:
            self._calls.release(_bringing(ino))

    def bring(self, ino: int, copy: Callable[[], Operation[None]]) -> Operation[None]:
        """Have ``copy`` bring the content here, in its turn among the openings."""
        file = self._begin(ino, False)
        try:
            yield from self._opener.await_told(ino)
            yield Acquire(_bringing(ino))
            try:
                yield from copy()
            finally:
                self._calls.release(_bringing(ino))
        finally:
            self._end(file, False)
