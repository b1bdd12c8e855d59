"""Where a file's bytes are, who may write them, and the handles of this node. Pure.

- A file is written through one node at a time, its ``writer``. Who opens it there writes into that node's store; who opens it elsewhere
  meanwhile reads and writes through the writer's node and sees every byte at once. When the last handle closes, the file is finished.
- A finished ``whole`` file lies complete on its holders. Opening it elsewhere fetches a replica; opening it to write makes that node the
  only holder. A finished ``striped`` file is read and written stripe by stripe wherever it is opened.
- So between nodes: who opens after a close sees all of it (close-to-open). A handle that was open before another node began to write
  a finished file may go on seeing the old content.
"""

from __future__ import annotations

import errno
import logging
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from amfs._native import Meta
from amfs.engine.events import FsHandlesClosed, FsStriped
from amfs.fs.attr import (
    LOST,
    META_BUSY,
    STRIPED,
    WHOLE,
    Attr,
)
from amfs.fs.openflags import O_ACCMODE, O_RDONLY, O_RDWR, O_TRUNC
from amfs.fs.vfs.calls import Acquire, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.shard import PAUSE_FIRST_S, PAUSE_LAST_S, attr_of

STRIPE_BYTES = 512 << 10  # default, MemFS §III
LOCAL, REMOTE, STRIPES = 0, 1, 2  # kinds of handles, as csrc/data/fsio.h
OPEN_S = 10.0  # a file that keeps changing under who wants to open it is EIO after so long
LEAVE_S = 1.0  # who opens a file waits so long for a closing of which the shard has not heard yet
HOSTED_S = 10.0  # a file that is held open for other nodes is closed if none of them has used it for so long


class Opened(NamedTuple):
    """How to reach a file's bytes from this node."""

    kind: int
    node: int
    stripe: int
    size: int
    known: int  # the losses that were known when that was so


class Uses(NamedTuple):
    """Of a file on this node: handles in the store, and does anybody write it."""

    handles: int
    writing: bool


class Request:
    """Who asks, and what of this node's kernel caches is old afterwards."""

    __slots__ = ("entries", "face", "gid", "inodes", "now", "own", "uid")

    def __init__(self, face: object, uid: int, gid: int, now: int) -> None:
        self.face = face  # of this node: a mount, or a client
        self.uid = uid
        self.gid = gid
        self.now = now
        self.inodes: list[int] = []
        self.entries: list[tuple[int, bytes]] = []
        self.own: list[int] = []  # of the face that asked, too: it counts links by itself, and is not told of the next change


class Contents(Directories):
    """Opens and closes files for the faces of this node."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        #: inode -> face -> [readers, writers]: handles given out here
        self.users: dict[int, dict[object, list[int]]] = {}
        self.opening: Counter[int] = Counter()  # inode -> openings of it under way here
        self._opening_to_write: Counter[int] = Counter()  # those of them that may write
        self.hosted: dict[int, int] = {}  # inode -> handle that this node holds open because others write through it
        #: files that were written here, and of whose end the shard was not told; what the handle closed last has said
        self._unfinished: dict[int, Any] = {}
        self._lacking: set[int] = set()  # files whose writer this node may be by now, and whose content is not here yet for all we know
        self._brought: set[int] = set()  # files whose content lies here for an opening that is under way
        self._striped: dict[int, int] = {}  # files that outgrew this node, and are not closed yet: inode -> stripe
        self.on_event[FsStriped] = self._on_striped
        self.on_event[FsHandlesClosed] = self._on_handles_closed

    # ── content ────────────────────────────────────────────────────────────────────────────────────

    def op_open(self, r: Request, ino: int, flags: int) -> Operation:
        writing = bool(flags & O_ACCMODE) or bool(flags & O_TRUNC)
        self._begin_opening(ino, writing)
        try:
            yield Acquire(("closing", ino))  # who closed it before must not be taken for us
            self.release(("closing", ino))
            opened = yield from self._open(ino, writing, bool(flags & O_TRUNC))
            self._opened(r, ino, writing)
        finally:
            self._end_opening(ino, writing)
        return opened

    def _begin_opening(self, ino: int, writing: bool) -> None:
        self.opening[ino] += 1
        self._opening_to_write[ino] += writing
        self.meta.claim(ino, True)  # who has opened it directly leaves the word that it is closed to us

    def _end_opening(self, ino: int, writing: bool) -> None:
        """The shard is told when no face of this node has it open, nor is about to; and of what was written while this was under way."""
        for counter, ended in ((self.opening, 1), (self._opening_to_write, writing)):
            counter[ino] -= ended
            if not counter[ino]:
                del counter[ino]
        if ino in self.opening:
            return
        unused = not self.users.get(ino)
        if unused:
            self.users.pop(ino, None)
            self.meta.claim(ino, False)
            unused = not self.meta.direct_uses(ino)[0]  # a mount that opened it by itself says when it has closed it
        if unused or ino in self._unfinished:
            self.spawn(self._closed(ino, False, None))

    def op_ensure(self, r: Request, ino: int, writing: bool) -> Operation:
        return (yield from self.op_open(r, ino, O_RDWR if writing else O_RDONLY))

    def _open(self, ino: int, writing: bool, truncate: bool) -> Operation:
        """One opening after the other: what one has brought is not to be brought again, least of all over what was written to it since."""
        key = ("bringing", ino)
        yield Acquire(key)
        opened: Opened | None = None
        try:
            opened = yield from self._open_alone(ino, writing, truncate)
        except OSError:
            # Whoever comes next must not believe that what a writer has is here.
            if writing and ino not in self._unfinished and not (yield from self._uses(ino)).writing:
                with suppress(OSError):
                    yield from self.at_ino("step_back", ino)
            raise
        finally:
            if ino in self._brought and (opened is None or opened.kind != LOCAL):
                self.tell(Work("drop_whole", (ino,)))  # another was faster, or has laid it in stripes
            self._brought.discard(ino)
            self._lacking.discard(ino)
            self.release(key)
        return opened

    def _open_alone(self, ino: int, writing: bool, truncate: bool) -> Operation:
        looked: Attr | None = None  # what a writer saw at its first look
        brought: Attr | None = None  # the record of the content that it has fetched
        became = False  # the writer, by this opening: then what lies here is not what the file contains, unless the record says so
        end, pause = self.now + OPEN_S, PAUSE_FIRST_S
        yield from self._await_told(ino)
        while True:
            opened: Opened | None = None  # stays so if the file changed under our hands: then all of it again
            first_look = writing and not truncate and looked is None
            since = self.meta.moment()
            if writing and not first_look and (looked is None or looked.writer != self.node):
                self._lacking.add(ino)
            answer, answered, granted, lost, known = yield from self.at_ino("open", ino, writing and not first_look)
            attr, holders, became = attr_of(answer), [int(node) for node in answered], became or granted
            if writing and not first_look:
                self._uncache((ino,))  # what we knew of it as a finished file; others are told by the shard
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.EINVAL)
            if lost and not truncate:
                raise failure(errno.EIO)
            mine = self.node in holders or (attr.writer == self.node and not attr.finished and not became)
            if self.is_behind(known):
                pass  # its shard has not heard yet which node has died, and perhaps taken some of it along
            elif first_look:
                elsewhere = attr.writer < 0 and attr.layout == WHOLE and attr.size and holders and not mine
                if not elsewhere or (yield from self._replicate(attr, holders, True)):
                    looked, brought = attr, attr if elsewhere else None
                    continue
            elif attr.writer not in (-1, self.node):
                return Opened(REMOTE, attr.writer, attr.stripe, attr.size, known)
            elif attr.layout == STRIPED:
                opened = Opened(STRIPES, self.node, attr.stripe, attr.size, known)
            elif not attr.size or truncate:
                was = looked or attr
                if not mine and not truncate:
                    self.tell(Work("drop", ((ino,),)))  # what lies here is what it contained before
                yield Work("make", (ino, was.atime, was.mtime) if was.finished and not truncate else (ino,))
                if not writing and attr.finished and not mine:
                    try:
                        yield from self.at_ino("hold", ino)  # so that the empty part goes when the file does
                    except OSError as error:
                        self.tell(Work("drop_whole", (ino,)))
                        if error.errno != errno.EAGAIN:
                            raise
                        continue
                opened = Opened(LOCAL, self.node, 0, attr.size, known)
            elif mine or (brought is not None and (brought.size, brought.mtime) == (attr.size, attr.mtime)):
                opened = Opened(LOCAL, self.node, 0, attr.size, known)
                if not writing and attr.finished and self.meta.owner(self.meta.ino_partition(ino)) != self.node:
                    self.meta.cache(tuple(attr), True, since)  # so that the mount opens it by itself the next time
            elif not holders:
                raise failure(errno.EIO)  # they are all gone
            elif writing:
                # Another has written between our look and our opening. We are the writer now, and get its content.
                if (yield from self._replicate(attr, holders, True)):
                    brought = attr
                    continue
                looked = brought = None
            else:
                try:
                    if (yield from self._replicate(attr, holders, False)):
                        return Opened(LOCAL, self.node, 0, attr.size, known)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # It is read where it lies.
                    return Opened(REMOTE, next(node for node in holders if node in self.live), 0, attr.size, known)
            if opened is None:
                if self.now >= end:
                    raise failure(errno.EIO)
                yield Sleep(pause)
                pause = min(2 * pause, PAUSE_LAST_S)
                continue
            if truncate and (attr.size or not attr.finished):
                yield Work("truncate", (ino, *opened, 0))
                opened = opened._replace(size=0)
            return opened

    def _await_told(self, ino: int) -> Operation:
        """That a mount has closed it may be on its way: not to be overtaken."""
        end = self.now + OPEN_S
        while self.meta.direct_uses(ino)[2] and self.now < end:
            yield Sleep(PAUSE_FIRST_S)

    def _replicate(self, attr: Attr, holders: list[int], writing: bool) -> Operation:
        """The whole content to this node. False: it changed meanwhile, or was laid in stripes because this node has no room: look again."""
        ino = attr.ino
        for node in holders:
            if node not in self.live:
                continue
            try:
                yield Work("fetch", (ino, node, attr.size, attr.atime, attr.mtime))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    yield from self._find_room(attr, node, writing)
                    return False
                continue
            if writing:
                self._brought.add(ino)
                return True
            since = self.meta.moment()
            try:
                now = yield from self.at_ino("hold", ino)
            except OSError as error:
                self.tell(Work("drop_whole", (ino,)))
                if error.errno == errno.EAGAIN:
                    return False
                raise
            if self.meta.owner(self.meta.ino_partition(ino)) != self.node:
                self.meta.cache(tuple(now), True, since)
            return True
        if not self.live.intersection(holders):
            raise failure(errno.EIO)
        return False

    def _find_room(self, attr: Attr, holder: int, writing: bool) -> Operation:
        """This node has no room for the content: lay it in stripes, or else have it written where it lies. ENOSPC."""
        if attr.writer == self.node:  # without the content: nobody could lay it in stripes
            yield from self.at_ino("step_back", attr.ino)
        try:
            yield Ask(holder, "restripe", (attr.ino, STRIPE_BYTES))
        except OSError as error:
            if error.errno != errno.ENOSPC or not writing or attr.writer not in (-1, self.node):
                raise
            yield Ask(holder, "host", (attr.ino,))

    def s_drop_whole(self, peer: int, ino: int) -> None:
        self._uncache((ino,))
        self.tell(Work("drop_whole", (ino,)))

    def s_open(self, peer: int, ino: int, writing: bool) -> Operation:
        if writing:
            attr = attr_of(self.meta.getattr(ino, self.node))
            if attr.rank not in (-1, peer) and attr.rank in self.live and attr.writer < 0 and not attr.size and attr.finished != LOST:
                yield Ask(attr.rank, "host", (ino,))  # pinned by set_rank: all write through that node
        end, leaving = self.now + OPEN_S, self.now + LEAVE_S
        while True:
            answer = yield from super().s_open(peer, ino, writing)
            writer = answer[0][9]
            if writer in (-1, peer) or writer not in self.live:
                return answer
            if (yield Ask(writer, "leave", (ino,))) and self.now < leaving:
                yield Sleep(PAUSE_FIRST_S)  # that it has closed it is on its way
                continue
            if not writing:
                return answer
            # The writer may be closing it at this moment, and what is written through it afterwards would never be recorded.
            if (yield Ask(writer, "host", (ino,))):
                return answer
            if self.now >= end:
                raise failure(META_BUSY)
            yield Sleep(PAUSE_FIRST_S)

    def s_leave(self, peer: int, ino: int) -> Operation:
        """Others want it: what this node's kernel keeps is not all there is any more, and handles that no open stands for are closed.
        Answers whether nobody writes it here by now."""
        yield from self.s_stale(peer, (ino,), ())
        return not ((yield from self._uses(ino)).writing or ino in self._opening_to_write)

    def s_open_alone(self, peer: int, ino: int) -> Operation:
        """For writing, wherever the file is pinned to. None: it is written already. EIO: its content is lost."""
        attr = attr_of(self.meta.getattr(ino, self.node))
        if attr.finished == LOST:
            raise failure(errno.EIO)
        if attr.writer >= 0:
            return None
        out, holders, _, _, known = yield from super().s_open(peer, ino, True)
        return out, holders, known

    def s_host(self, peer: int, ino: int) -> Operation:
        """Open a file here for writing, so that others write through this node; closed when the last of them has. False: another node
        writes it, or its content is still on its way here."""
        key = ("closing", ino)
        self._begin_opening(ino, True)  # from here on a mount leaves it to us to say that it is closed
        try:
            yield from self._await_told(ino)
            yield Acquire(key)
            try:
                if ino not in self.hosted:
                    answer = None if ino in self._lacking else (yield from self.at_ino("resume", ino))
                    if answer is None or ino in self._lacking:
                        return False
                    attr, known = attr_of(answer[0]), answer[1]
                    self._uncache((ino,))
                    if attr.layout == WHOLE and not attr.size:
                        yield Work("make", (ino,))
                    kind = STRIPES if attr.layout == STRIPED else LOCAL
                    create = kind == STRIPES or not attr.size
                    self.hosted[ino] = yield Work("handle", (ino, kind, self.node, attr.stripe, attr.size, known, True, create))
                    self.spawn(self._watch_hosted(ino))
            finally:
                self.release(key)
            yield Work("invalidate", ((ino,), ()))  # what its kernel keeps is not all there is any more
        finally:
            self._end_opening(ino, True)
        return True

    def s_resume(self, peer: int, ino: int) -> Operation:
        """``peer`` is to be, or to stay, the node that a file is written through. Answers the record and what is known of losses; None: it
        is another node, or was when the file was written last, or the content is lost."""
        attr = attr_of(self.meta.getattr(ino, self.node))
        if attr.finished == LOST:
            return None
        if attr.writer not in (-1, peer) or (attr.writer < 0 and attr.layout == WHOLE and attr.size and peer not in self.meta.holders(ino)):
            return None
        out, _, _, _, known = yield from super().s_open(peer, ino, True)
        return (out, known) if out[9] == peer else None

    def _handles(self, ino: int) -> Operation:
        """Is it open here?"""
        return bool(self.users.get(ino) or self.meta.direct_uses(ino)[0]) or any((yield Work("uses", (ino,))))

    def _watch_hosted(self, ino: int) -> Operation:
        """Who asked for it may have died before it opened anything."""
        while ino in self.hosted:
            yield Sleep(HOSTED_S)
            if ino in self.hosted and not (yield Work("handles_of_others", (ino,))) and ino in self.hosted:
                self._unfinished.setdefault(ino)
                yield from self._unhost(ino, self.hosted.pop(ino))

    def _on_handles_closed(self, event: FsHandlesClosed) -> None:
        self.tell(Work("invalidate", ((event.ino,), ())))  # others have written here; this node's kernel has not seen that
        handle = self.hosted.pop(event.ino, None)
        if handle is not None:
            self._unfinished.setdefault(event.ino)  # whoever is closed first says what was written
        self.spawn(self._left(event.ino) if handle is None else self._unhost(event.ino, handle))

    def _left(self, ino: int) -> Operation:
        """No other node uses it through this one any more: the last of all may have been the writer."""
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        yield from self._closed(ino, attr.writer == self.node, None)

    def _unhost(self, ino: int, handle: int) -> Operation:
        facts = yield Work("close", (handle,))
        yield from self._closed(ino, True, facts)

    def s_keep(self, peer: int, ino: int) -> Operation:
        """The shard takes this node for a user, and hears when it is none: at once if it is not in use here."""
        self._uncache((ino,))  # from now on it is not opened without asking
        kept = yield Work("keep", (ino,))
        if not (kept or ino in self.opening or self.users.get(ino) or ino in self.hosted):
            self.tell(Ask(peer, "unused", (ino,)))  # before the answer, and before it may be opened again

    # ── handles of this node ───────────────────────────────────────────────────────────────────────

    def _opened(self, r: Request, ino: int, writing: bool) -> None:
        self.users.setdefault(ino, {}).setdefault(r.face, [0, 0])[writing] += 1

    def op_closed(self, r: Request, ino: int, wrote: bool, attr: Any) -> Operation:
        """A mount has closed its last handle (``wrote``: its last writing one)."""
        facts = (attr[11], attr[12], attr[13], attr[14]) if attr is not None else None
        faces = self.users.get(ino, {})
        counts = faces.get(r.face)
        if counts is not None:
            counts[True] = 0
            if not wrote:  # else handles for reading may be left, of which only the mount knows; it says when they are gone
                del faces[r.face]
        if wrote:
            r.inodes.append(ino)
        try:
            yield from self._closed(ino, wrote, facts)
        finally:
            self.meta.closed(ino)

    def _close(self, r: Request, ino: int, writing: bool, facts: Any) -> Operation:
        """One handle of a client is closed."""
        faces = self.users.get(ino, {})
        counts = faces.get(r.face)
        if counts is not None:
            counts[writing] -= 1
            if counts == [0, 0]:
                del faces[r.face]
        yield from self._closed(ino, writing, facts)

    def _closed(self, ino: int, wrote: bool, facts: Any) -> Operation:
        """Tell the shard, one closing of a file after the other: what was written, and whether anybody here still uses it."""
        key = ("closing", ino)
        if wrote:  # before our turn has come: who is before us may find that nobody writes it any more
            self._unfinished[ino] = facts or self._unfinished.get(ino)
        yield Acquire(key)
        self.meta.closing(ino)  # if its record is here: no mount opens it between our look and what is told
        try:
            facts = None
            opening = ino in self._opening_to_write  # was let in as this node, which writes already
            uses = yield from self._uses(ino)
            files = self.meta.direct_uses(ino)[0]
            last = ino in self._unfinished and not (uses.writing or opening or ino in self._opening_to_write)
            if last:
                facts = yield from self._written(ino, self._unfinished.pop(ino))
            used = bool(ino in self.opening or self.users.get(ino) or uses.handles or uses.writing or ino in self._unfinished)
            if not used:
                self.users.pop(ino, None)
                self.meta.claim(ino, False)
            if last or not (used or files):
                yield from self._tell_closed(ino, facts, used or files > 0)
        finally:
            self.meta.closed(ino)
            self.release(key)

    def _uses(self, ino: int) -> Operation:
        """Who has it open here."""
        writing = self._is_written(ino)  # a mount that is answered now has its handle only after we have looked, and may say meanwhile
        readers, writers = yield Work("uses", (ino,))  # that another of its handles was its last
        return Uses(readers + writers, bool(writers or writing or self._is_written(ino)))

    def _is_written(self, ino: int) -> bool:
        counted = any(counts[True] for counts in self.users.get(ino, {}).values())
        return bool(counted or ino in self.hosted or self.meta.direct_uses(ino)[1])

    def _tell_closed(self, ino: int, facts: Any, used: bool) -> Operation:
        stripe = self._striped.pop(ino, 0) if facts is not None else 0
        since, known = self.meta.moment(), self.known
        try:
            lost = facts is not None and bool(self.lost) and (yield Work("lost", (ino,)))
            answer = yield from self.at_ino("closed", ino, facts, stripe, used, known, lost)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return
        finally:
            if facts is not None:
                self.tell(Work("end_recorded", (ino,)))
        if answer is not None:
            out = attr_of(answer)
            if out.layout == WHOLE and out.nlink and self.meta.owner(self.meta.ino_partition(ino)) != self.node:
                self.meta.cache(tuple(out), True, since)

    def _written(self, ino: int, facts: Any) -> Operation:
        """(size, blocks, atime, mtime) of what was written here. ``facts``: what a face said when it closed its handle; the handle of
        another may have written, and been closed, after that. Of stripes nobody else knows."""
        try:
            attr = attr_of((yield from self.at_ino("getattr", ino)))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return facts  # it has gone, and nobody wants to know
        if facts is not None and (attr.layout == STRIPED or ino in self._striped):
            _, blocks, atime, mtime = facts
            end = yield Work("end", (ino,))  # a handle may have been closed since, and the news of that be on its way
            return facts if end is None else (end[0], blocks, atime, max(mtime, end[1]))
        try:
            return (yield Work("live", (tuple(attr),)))
        except OSError as error:
            if attr.writer == self.node and not attr.finished:
                self.log(f"inode {ino:#x}: what was written is not to be found: {error}", logging.ERROR)
            return None  # the record, and those who hold the content that it tells of, stay as they are

    def _on_striped(self, event: FsStriped) -> None:
        self._striped[event.ino] = event.stripe

    def op_touched(self, r: Request, dir: int) -> Operation:
        if now := self.meta.dir_touched(dir):  # 0: its times were set since
            self._touch(dir, now)
        r.inodes.append(dir)
        yield from ()
