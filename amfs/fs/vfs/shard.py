"""The shard of this node as other nodes ask it: entries of directories, and records of inodes. Pure: the shard itself is ``_native.Meta``.

Each change is answered when the nodes that may have the old state have heard of it.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress

from amfs._native import Meta
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.calls import PAUSE_FIRST_S, Calls, Operation, Sleep, ask, failure, together
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import (
    LOST,
    META_BUSY,
    META_NOT_MINE,
    META_SET_ATIME,
    META_SET_CTIME,
    META_SET_LAYOUT,
    META_SET_MTIME,
    STRIPED,
    WHOLE,
    Attr,
    Entry,
    Facts,
    Listed,
    Names,
)
from amfs.workflow.origin import ATTRIBUTE

UNSTRIPED = -1  # in place of a size of stripes: a striped file was made whole
LISTED_MAX = 4096
OPEN_S = 10.0  # a file that keeps changing under an opening is EIO after so long
RECALL_S = 1.0  # an opening waits so long for a closing of which the shard has not heard yet


class Shard:
    """Answers for the partitions of this node."""

    def __init__(
        self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches, in_motion: Callable[[], bool]
    ) -> None:
        """``in_motion``: are partitions on their way from or to this node?"""
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._in_motion = in_motion
        self._drops: dict[int, list[int]] = {}  # node -> inodes whose data it shall drop
        calls.serve(
            p.Lookup.by(lambda peer, call: _entry(*meta.lookup(call.dir, call.name, peer))),
            p.Create.by(self._create),
            p.Insert.by(self._insert),
            p.Remove.by(self._remove),
            p.Unlink.by(self._unlink),
            p.Lock.by(self._lock),
            p.Unlock.by(lambda peer, call: meta.unlock(call.dir, call.name, call.owner)),
            p.ReserveDirectory.by(self._reserve_directory),
            p.List.by(self._list),
            p.Getattr.by(lambda peer, call: Attr(*meta.getattr(call.ino, peer))),
            p.Setattr.by(self._setattr),
            p.Link.by(self._link),
            p.Open.by(self._open),
            p.OpenExclusively.by(self._open_exclusively),
            p.ResumeWriting.by(self._resume_writing),
            p.AbortWriteOpen.by(self._abort_write_open),
            p.Closed.by(self._closed),
            p.Unused.by(lambda peer, call: self._unused(peer, call.ino)),
            p.Hold.by(self._hold),
            p.Holders.by(lambda peer, call: meta.holders(call.ino)),
            p.Readlink.by(lambda peer, call: meta.readlink(call.ino)),
            p.SetXattr.by(lambda peer, call: meta.set_xattr(call.ino, call.name, call.value, call.flags, call.now)),
            p.GetXattr.by(lambda peer, call: meta.get_xattr(call.ino, call.name)),
            p.ListXattr.by(lambda peer, call: meta.list_xattr(call.ino)),
            p.RemoveXattr.by(lambda peer, call: meta.remove_xattr(call.ino, call.name, call.now)),
            p.SetPending.by(self._set_pending),
            p.Publish.by(self._publish),
            p.Touch.by(self._touch),
        )

    def _record(self, ino: int) -> Attr:
        return Attr(*self._meta.getattr(ino, self._members.node))

    # ── data that nobody needs ─────────────────────────────────────────────────────────────────────

    def _drop_data(self, attr: Attr, holders: Iterable[int]) -> None:
        if not stat.S_ISREG(attr.mode):
            return
        live = self._members.live
        for node in live if attr.layout == STRIPED else {*holders, attr.writer} & live:
            self._drops.setdefault(node, []).append(attr.ino)

    def flush(self) -> None:
        """Tell each node at once of all that it shall drop."""
        if not self._drops:
            return
        drops, self._drops = self._drops, {}
        for node, inodes in drops.items():
            if node == self._members.node:
                self._calls.order(w.Drop(tuple(inodes)))
            else:
                self._calls.tell(node, p.Drop(tuple(inodes)))

    # ── entries ────────────────────────────────────────────────────────────────────────────────────

    def _create(self, peer: int, call: p.Create) -> Attr:
        return Attr(*self._meta.create(call.dir, call.name, call.now, peer, call.target, call.attr, call.although_lost))

    def _lock(self, peer: int, call: p.Lock) -> Entry:
        self._meta.lock(call.dir, call.name, call.owner)
        try:
            return _entry(*self._meta.lookup(call.dir, call.name, self._members.node))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return Entry(0, 0)
            self._meta.unlock(call.dir, call.name, call.owner)
            raise

    def _insert(self, peer: int, call: p.Insert) -> Operation[Entry]:
        asker = peer if call.asker < 0 else call.asker
        dir, name = call.dir, call.name
        old, old_type, tell = self._meta.insert(dir, name, call.owner, call.ino, call.type, call.replace)
        self._meta.lookup(dir, name, asker)  # a node that makes an entry has it in its cache, too, and must be told of later changes
        yield from self._caches.notify(asker, tell, (), ((dir, name),))
        return Entry(old, old_type)

    def _remove(self, peer: int, call: p.Remove) -> Operation[Entry]:
        was, type, tell = self._meta.remove(call.dir, call.name, call.owner, call.ino)
        if type != stat.S_IFDIR:  # of a directory's name the kernels of all nodes are told by the manager
            yield from self._caches.notify(peer if call.asker < 0 else call.asker, tell, (), ((call.dir, call.name),))
        return Entry(was, type)

    def _unlink(self, peer: int, call: p.Unlink) -> Operation[Attr]:
        meta = self._meta
        name = call.dir, call.name
        ino, type, _ = meta.lookup(*name, self._members.node)
        if type == stat.S_IFDIR:
            raise failure(errno.EISDIR)
        if self._owners.is_here(ino):
            holders: tuple[int, ...] = ()
            with suppress(OSError):  # the record may have been lost with a node; then only the entry goes
                yield from self._hear_users(ino)
                holders = meta.holders(ino)
            try:
                left, gone, tell = meta.unlink(*name, call.now)
            finally:
                meta.closed(ino)
            if gone:
                self._drop_data(Attr(*left), holders)
            yield from self._caches.notify(peer, tell, (ino,), (name,))
            return Attr(*left)
        _, _, tell = meta.remove(*name, 0, ino)
        yield from self._caches.notify(peer, tell, (), (name,))
        try:
            rest = yield from self._owners.ask(p.Link(ino, -1, call.now))
            if peer != self._members.node:  # it was this node that asked, and is not told
                yield from self._caches.forget_here((ino,))
            return rest
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return Attr(ino=ino)  # lost with its node

    def _hear_users(self, ino: int) -> Operation[None]:
        """Before the last name of a file goes: nodes open copies without a word, and are users only if they are asked. ``meta.closed`` must
        follow: until then nobody opens a copy so."""
        attr = self._record(ino)
        self._meta.closing(ino)
        if attr.nlink > 1 or not stat.S_ISREG(attr.mode):
            return
        nodes = list(set(self._meta.concerned(ino)) & self._members.live - {self._members.node, attr.writer})
        for node in nodes:
            self._meta.open(ino, node, False)  # until it says that it is none, which it may say later, too
        for node, answer in zip(nodes, (yield from together([ask(node, p.Keep(ino)) for node in nodes])), strict=True):
            if isinstance(answer, OSError):
                self._meta.unused(ino, node)

    def _list(self, peer: int, call: p.List) -> Names:
        if call.version != self._members.version or self._in_motion():
            raise failure(META_NOT_MINE)  # an entry could be on its way from a shard that was not asked yet to one that was
        entries = [
            Listed(name, ino, type, cursor, None if attr is None else Attr(*attr))
            for name, ino, type, cursor, attr in self._meta.list(call.dir, call.cursor, min(call.limit, LISTED_MAX))
        ]
        return Names(entries, self._meta.count_backups()[2] > 0)

    def _reserve_directory(self, peer: int, call: p.ReserveDirectory) -> int:
        ino = self._meta.new_number(self._meta.name_partition(call.dir, call.name))
        try:
            self._meta.insert(call.dir, call.name, 0, ino, stat.S_IFDIR, False)
        except OSError as error:
            if error.errno != errno.EEXIST or not call.again:
                raise
            ino, type, attr = self._meta.lookup(call.dir, call.name, self._members.node)
            if type != stat.S_IFDIR or attr is not None:
                raise
        return ino

    def _touch(self, peer: int, call: p.Touch) -> Operation[None]:
        tell = self._meta.dir_touch(call.dir, call.now)
        yield from self._caches.notify(peer, tell, (call.dir,))

    # ── inodes ─────────────────────────────────────────────────────────────────────────────────────

    def _setattr(self, peer: int, call: p.Setattr) -> Operation[Attr]:
        ino, mask, now = call.ino, call.mask, call.now
        before = self._record(ino)
        if mask & (META_SET_ATIME | META_SET_MTIME) and stat.S_ISREG(before.mode):
            now = (yield from self._set_times_of_parts(ino, before.writer, mask, call.attr)) or now
        out, tell = self._meta.setattr(ino, mask, call.attr, now, peer)
        yield from self._caches.notify(peer, tell, (ino,))
        return self._latest(peer, Attr(*out))

    def _set_times_of_parts(self, ino: int, writer: int, mask: int, attr: Attr) -> Operation[int]:
        """Where it is written it is looked up what they are now, and a node that opens a copy to write begins with the times of that.
        Answers when that was by the clock of the writer, 0: nobody can say."""
        order = p.SetTimes(ino, attr.atime if mask & META_SET_ATIME else None, attr.mtime if mask & META_SET_MTIME else None)
        nodes = list({*self._meta.holders(ino), writer} & self._members.live)
        answers = yield from together([ask(node, order) for node in nodes])
        return next((answer for node, answer in zip(nodes, answers, strict=True) if node == writer and isinstance(answer, int)), 0)

    def _latest(self, peer: int, out: Attr) -> Attr:
        """The record as it is now: while others were told of a change, the next one may have been made and answered."""
        with suppress(OSError):
            return Attr(*self._meta.getattr(out.ino, peer))
        return out

    def _link(self, peer: int, call: p.Link) -> Operation[Attr]:
        ino, asker = call.ino, peer if call.asker < 0 else call.asker
        holders: tuple[int, ...] = ()
        if call.delta < 0:
            yield from self._hear_users(ino)
            holders = self._meta.holders(ino)
        try:
            out, gone, tell = self._meta.link(ino, call.delta, call.now, asker)
        finally:
            if call.delta < 0:
                self._meta.closed(ino)
        if gone:
            self._drop_data(Attr(*out), holders)
        yield from self._caches.notify(asker, tell, (ino,))
        return Attr(*out)

    def _set_pending(self, peer: int, call: p.SetPending) -> Operation[None]:
        _, tell = self._meta.set_pending(call.ino, call.was, call.pending, peer)
        yield from self._caches.notify(peer, tell, (call.ino,))

    def _publish(self, peer: int, call: p.Publish) -> Operation[p.Published]:
        found = p.Published([], [])
        tell: set[int] = set()
        for ino in call.inodes:
            try:
                out, nodes = self._meta.set_pending(ino, call.pending, 0, peer)
                tell.update(nodes)
                if call.origin and stat.S_ISREG(Attr(*out).mode):
                    self._meta.set_xattr(ino, ATTRIBUTE, call.origin, 0, Attr(*out).ctime)
            except OSError as error:
                if error.errno in (META_NOT_MINE, META_BUSY):
                    found.elsewhere.append(ino)
                elif error.errno == errno.EAGAIN and not self._record(ino).pending:
                    found.there.append(ino)
                continue
            found.there.append(ino)
        yield from self._caches.notify(peer, tell, found.there)
        return found

    # ── opening ────────────────────────────────────────────────────────────────────────────────────

    def _open(self, peer: int, call: p.Open) -> Operation[p.OpenGrant]:
        ino, writing, live = call.ino, call.writing, self._members.live
        if writing:
            attr = self._record(ino)
            if attr.rank not in (-1, peer) and attr.rank in live and attr.writer < 0 and not attr.size and attr.finished != LOST:
                yield from ask(attr.rank, p.Proxy(ino))  # pinned by set_rank: all write through that node
        now = self._calls.now
        end, recalled = now + OPEN_S, now + RECALL_S
        while True:
            grant = yield from self._record_open(peer, ino, writing)
            writer = grant.attr.writer
            if writer in (-1, peer) or writer not in self._members.live:
                return grant
            if (yield from ask(writer, p.Recall(ino))) and self._calls.now < recalled:
                with suppress(OSError):
                    yield from ask(writer, p.Live(grant.attr))  # if it does not know that it writes it, it says so before it answers
                yield Sleep(PAUSE_FIRST_S)  # that it has closed it is on its way
                continue
            if not writing:
                return grant
            # The writer may be closing it at this moment, and later writes through it would never be recorded.
            if (yield from ask(writer, p.Proxy(ino))):
                return grant
            if self._calls.now >= end:
                raise failure(META_BUSY)
            yield Sleep(PAUSE_FIRST_S)

    def _record_open(self, peer: int, ino: int, writing: bool) -> Operation[p.OpenGrant]:
        was, number = self._record(ino), self._meta.grant(ino)  # before: a mount of this node may be let in at any moment
        if not writing:
            self._meta.getattr(ino, peer)  # it is told if another is let in to write: it may fetch the content first, to write it itself
        out, holders, tell = self._meta.open(ino, peer, writing)
        attr, losses = Attr(*out), self._members.losses
        if writing and peer != self._members.node:
            self._caches.uncache((ino,))  # likewise this node
        yield from self._caches.notify(peer, tell, (ino,))
        granted = writing and attr.writer == peer != was.writer
        if granted and {*holders} - {peer}:
            yield from self._calls.settled()  # a backup that did not know of the writer would take the old content for the file's
        return p.OpenGrant(attr, holders, granted, was.finished == LOST, losses, number)

    def _open_exclusively(self, peer: int, call: p.OpenExclusively) -> Operation[p.OpenGrant | None]:
        attr = self._record(call.ino)
        if attr.finished == LOST:
            raise failure(errno.EIO)
        if attr.writer >= 0:
            return None
        return (yield from self._record_open(peer, call.ino, True))

    def _resume_writing(self, peer: int, call: p.ResumeWriting) -> Operation[p.OpenGrant | None]:
        attr = self._record(call.ino)
        if attr.finished == LOST or attr.writer not in (-1, peer):
            return None
        if attr.writer < 0 and attr.layout == WHOLE and attr.size and peer not in self._meta.holders(call.ino):
            return None
        grant = yield from self._record_open(peer, call.ino, True)
        return grant if grant.attr.writer == peer else None

    def _abort_write_open(self, peer: int, call: p.AbortWriteOpen) -> None:
        attr = self._record(call.ino)
        if attr.writer == peer and attr.nlink:
            self._meta.unused(call.ino, peer)
            self._meta.open(call.ino, peer, False)

    # ── closing ────────────────────────────────────────────────────────────────────────────────────

    def _closed(self, peer: int, call: p.Closed) -> Operation[Attr | None]:
        if call.facts is not None and call.losses != self._members.losses:
            raise failure(errno.EAGAIN)  # one of the two has not heard yet what was lost: it could be some of what was written
        ino = call.ino
        out: Attr | None = None
        tell: tuple[int, ...] = ()
        replaced = False  # content that other nodes have
        if call.facts is not None:
            attr = self._record(ino)
            if attr.writer == peer:
                replaced = bool({*self._meta.holders(ino)} - {peer})
                out, tell = self._record_end(peer, attr, call.facts, call)
        if not call.used:
            self._unused(peer, ino)  # before anything else can happen: it may open it again at once
        if out is None:
            return None
        yield from self._caches.notify(peer, tell, (ino,))
        if replaced:
            yield from self._calls.settled()  # a backup that did not know of this would take the old content for what the file contains
        return self._latest(peer, out)

    def _record_end(self, peer: int, attr: Attr, facts: Facts, call: p.Closed) -> tuple[Attr, tuple[int, ...]]:
        """``peer`` is done writing it; the record, and the nodes that must be told."""
        ino, stripe = attr.ino, call.stripe
        if call.same and not (stripe or call.lost) and peer in self._meta.holders(ino):
            out, tell = self._meta.wrote_same(ino, peer, call.origin)
            return Attr(*out), tell
        laid = attr
        if stripe:
            laid = attr._replace(layout=WHOLE if stripe == UNSTRIPED else STRIPED, stripe=max(stripe, 0))
            for node in set(self._meta.holders(ino)) - {peer}:  # an earlier content
                self._calls.tell(node, p.DropWhole(ino))
            self._meta.setattr(ino, META_SET_LAYOUT | META_SET_CTIME, laid, facts.mtime, peer)
        done = attr._replace(**facts._asdict(), ctime=max(attr.ctime, facts.mtime), finished=LOST if call.lost else 1)
        before = self._meta.holders(ino)
        out, tell = self._meta.wrote(ino, peer, done, call.origin)
        for node in set(before) - {peer}:
            self._calls.tell(node, p.DropWhole(ino))  # not stripes: it may lie in some by the time that node hears of this
        return Attr(*out), tell

    def _unused(self, peer: int, ino: int) -> None:
        attr = self._record(ino)
        holders = self._meta.holders(ino)
        if self._meta.unused(ino, peer):
            self._drop_data(attr, holders)

    def _hold(self, peer: int, call: p.Hold) -> Attr:
        self._meta.add_holder(call.ino, peer, call.grant)
        return Attr(*self._meta.getattr(call.ino, peer))


def _entry(ino: int, type: int, attr: tuple[int, ...] | None) -> Entry:
    return Entry(ino, type, None if attr is None else Attr(*attr))
