"""Requests of nodes to the shard of this node, and the nodes that must hear of the changes. Pure: the shard itself is ``_native.Meta``.

Methods ``s_...(peer, ...)`` are what ``Ask`` names. They answer META_NOT_MINE if the asker has an old table, META_BUSY if it shall try
again; ``at_name`` and ``at_ino`` do that.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from amfs._native import Meta
from amfs.fs.attr import (
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
)
from amfs.fs.vfs.calls import All, Ask, Calls, Operation, Sleep, Work, failure

#: Among names that are old: all that a kernel knows.
EVERY_NAME = (0, b"")

UNSTRIPED = -1  # in place of a size of stripes: a striped file was made whole
PATIENCE_S = 30.0  # for a partition to arrive, a lock to be given up, a dead owner to be replaced
PAUSE_FIRST_S, PAUSE_LAST_S = 0.001, 0.05
LOSSES_BITS = 16


def attr_of(value: Any) -> Attr:
    """An attribute tuple that came over the wire (as a list)."""
    return Attr(*value)


class Shard(Calls):
    """The shard's side of every operation."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        """``clock``: nanoseconds since 1970."""
        super().__init__(node)
        self.meta = meta
        self.clock = clock
        self.manager = node
        self.version = 0  # of the partition table
        self.owners: tuple[int, ...] = ()
        self.losses = 0  # how often stripes were lost since that was set, on their way from a node that died
        self.lost: dict[int, int] = {}  # partition -> what was ``known`` when its stripes were lost
        self._drops: dict[int, list[int]] = {}  # node -> inodes whose data it shall drop

    @property
    def known(self) -> int:
        """Of which losses this node has heard: grows with each. Those with a version of the table are the same everywhere."""
        return self.version << LOSSES_BITS | self.losses

    def is_behind(self, known: int) -> bool:
        """Does a node that has ``known`` this have an older table? Then it has not heard of the nodes that have died since."""
        return known >> LOSSES_BITS < self.version

    def was_lost(self, ino: int, stripe: int, size: int, since: int) -> bool:
        """Was a stripe of so many bytes lost since that was ``known``?"""
        if not any(version > since for version in self.lost.values()):
            return False
        stripes = min(-(-size // stripe), len(self.owners))
        return any(self.lost.get(self.meta.stripe_partition(ino, index), 0) > since for index in range(stripes))

    # ── finding the shard ──────────────────────────────────────────────────────────────────────────

    def at_name(self, op: str, dir: int, name: bytes, *args: Any) -> Operation:
        """Ask the shard of an entry."""
        return (yield from self._at(self.meta.name_partition(dir, name), op, (dir, name, *args)))

    def at_ino(self, op: str, ino: int, *args: Any) -> Operation:
        """Ask the shard of an inode."""
        return (yield from self._at(self.meta.ino_partition(ino), op, (ino, *args)))

    def _at(self, partition: int, op: str, args: tuple[Any, ...]) -> Operation:
        end = self.now + PATIENCE_S
        pause = PAUSE_FIRST_S
        while True:
            try:
                return (yield Ask(self.meta.owner(partition), op, args))
            except OSError as error:
                # A node that died is replaced in the table; what it was asked may have been done, so only questions are asked again.
                again = error.errno in (META_NOT_MINE, META_BUSY) or (error.errno == errno.EHOSTDOWN and op in _QUESTIONS)
                if not again:
                    raise failure(errno.EIO if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT) else error.errno or errno.EIO) from None
                if self.now >= end:
                    raise failure(errno.EIO) from None
            yield Sleep(pause)
            pause = min(2 * pause, PAUSE_LAST_S)

    def lock_names(self, *names: tuple[int, bytes]) -> Operation:
        """Lock these entries, in the order that all take, for an operation of several steps; answers the owner for ``unlock_names``."""
        self._serial += 1
        owner = (self.node + 1) << 40 | self._serial
        partition = self.meta.name_partition
        done: list[tuple[int, bytes]] = []
        try:
            for dir, name in sorted(set(names), key=lambda key: (partition(*key), *key)):
                yield from self.at_name("lock", dir, name, owner)
                done.append((dir, name))
        except OSError:
            self.unlock_names(owner, *done)
            raise
        return owner

    def unlock_names(self, owner: int, *names: tuple[int, bytes]) -> None:
        for dir, name in set(names):
            self.spawn(self.at_name("unlock", dir, name, owner))

    # ── telling others ─────────────────────────────────────────────────────────────────────────────

    def told(self, peer: int, nodes: Iterable[int], inodes: Iterable[int] = (), entries: Iterable[tuple[int, bytes]] = ()) -> Operation:
        """Have the caches of ``nodes`` and of this node's mounts forget these, but not those of ``peer``, who changes it: a kernel that
        asked for a change makes it in its own cache, and keeps the directory's lock until it is answered."""
        inodes, entries = tuple(inodes), tuple(entries)
        calls: list[Ask | Work] = [
            Ask(node, "stale", (inodes, entries)) for node in nodes if node not in (self.node, peer) and node in self.live
        ]
        if peer != self.node:
            calls.append(Work("invalidate", (inodes, entries)))
        if calls:
            yield All(calls)

    def s_stale(self, peer: int, inodes: tuple[int, ...], entries: Any) -> Operation:
        """Copies of these are old."""
        self._uncache(inodes)
        yield Work("invalidate", (tuple(inodes), tuple((dir, name) for dir, name in entries)))

    def _uncache(self, inodes: Iterable[int]) -> None:
        """Forget what is known of these. Content that lies here stays: whoever changes content tells its holders to ``drop`` it."""
        for ino in inodes:
            with suppress(OSError):
                self.meta.uncache(ino)

    def drop_data(self, attr: Attr, holders: Iterable[int]) -> None:
        """Nobody needs the content any more."""
        if not stat.S_ISREG(attr.mode):
            return
        nodes = self.live if attr.layout == STRIPED else {*holders, attr.writer} & self.live
        for node in nodes:
            self._drops.setdefault(node, []).append(attr.ino)

    def flush(self) -> None:
        if self._drops:
            drops, self._drops = self._drops, {}
            for node, inodes in drops.items():
                self.tell(Work("drop", (tuple(inodes),)) if node == self.node else Ask(node, "drop", (tuple(inodes),)))

    def s_drop(self, peer: int, inodes: tuple[int, ...]) -> None:
        self._uncache(inodes)
        self.tell(Work("drop", (tuple(inodes),)))

    # ── entries ────────────────────────────────────────────────────────────────────────────────────

    def s_lookup(self, peer: int, dir: int, name: bytes) -> Any:
        return self.meta.lookup(dir, name, peer)

    def s_create(self, peer: int, dir: int, name: bytes, now: int, target: bytes | None, attr: Any) -> Any:
        return self.meta.create(dir, name, now, peer, target, tuple(attr))  # no kernel remembers what is not there

    def s_insert(self, peer: int, dir: int, name: bytes, ino: int, type: int, replace: bool, owner: int, asker: int = -1) -> Operation:
        """``asker``: the node that has this done, if it is not ``peer``."""
        asker = peer if asker < 0 else asker
        old, old_type, tell = self.meta.insert(dir, name, owner, ino, type, replace)
        self.meta.lookup(dir, name, asker)  # whoever makes an entry has it in its cache, too, and must be told of later changes
        yield from self.told(asker, tell, (), ((dir, name),))
        return old, old_type

    def s_remove(self, peer: int, dir: int, name: bytes, ino: int, owner: int, asker: int = -1) -> Operation:
        was, type, tell = self.meta.remove(dir, name, owner, ino)
        yield from self.told(peer if asker < 0 else asker, tell, (), ((dir, name),))
        return was, type

    def s_unlink(self, peer: int, dir: int, name: bytes, now: int) -> Operation:
        meta = self.meta
        ino, type, _ = meta.lookup(dir, name, self.node)
        if type == stat.S_IFDIR:
            raise failure(errno.EISDIR)
        if meta.owner(meta.ino_partition(ino)) == self.node:
            holders: tuple[int, ...] = ()
            with suppress(OSError):  # the record may have been lost with a node; then only the entry goes
                yield from self._hear_users(ino)
                holders = meta.holders(ino)
            try:
                left, gone, tell = meta.unlink(dir, name, now)
            finally:
                meta.closed(ino)
            if gone:
                self.drop_data(attr_of(left), holders)
            yield from self.told(peer, tell, (ino,), ((dir, name),))
            return left
        _, _, tell = meta.remove(dir, name, 0, ino)
        yield from self.told(peer, tell, (), ((dir, name),))
        try:
            left = yield from self.at_ino("link", ino, -1, now)
            if peer != self.node:  # it was we who asked, and are not told
                self._uncache((ino,))
                yield Work("invalidate", ((ino,), ()))
            return left
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return tuple(Attr(ino=ino))  # lost with its node

    def _hear_users(self, ino: int) -> Operation:
        """Before the last name of a file goes: nodes open copies without a word, and are users only if we ask. ``meta.closed`` must
        follow: until then nobody opens a copy so."""
        attr = attr_of(self.meta.getattr(ino, self.node))
        self.meta.closing(ino)
        if attr.nlink > 1 or not stat.S_ISREG(attr.mode):
            return
        nodes = list(set(self.meta.concerned(ino)) & self.live - {self.node, attr.writer})
        for node in nodes:
            self.meta.open(ino, node, False)  # until it says that it is none, which it may say later, too
        for node, answer in zip(nodes, (yield All([Ask(node, "keep", (ino,)) for node in nodes])), strict=True):
            if isinstance(answer, OSError):
                self.meta.unused(ino, node)

    def s_lock(self, peer: int, dir: int, name: bytes, owner: int) -> None:
        self.meta.lock(dir, name, owner)

    def s_unlock(self, peer: int, dir: int, name: bytes, owner: int) -> None:
        self.meta.unlock(dir, name, owner)

    def s_list(self, peer: int, dir: int, cursor: int, limit: int, version: int) -> Any:
        if version != self.version or self.in_motion():
            raise failure(META_NOT_MINE)  # an entry could be on its way from a shard that was not asked yet to one that was
        return self.meta.list(dir, cursor, min(limit, 4096))

    def in_motion(self) -> bool:
        """Are partitions on their way from or to this node?"""
        return False

    def s_number(self, peer: int, dir: int, name: bytes) -> int:
        """Make room for a directory: its entry, and a number. Answers the number."""
        ino = self.meta.new_number(self.meta.name_partition(dir, name))
        self.meta.insert(dir, name, 0, ino, stat.S_IFDIR, False)
        return ino

    # ── inodes ─────────────────────────────────────────────────────────────────────────────────────

    def s_getattr(self, peer: int, ino: int) -> Any:
        return self.meta.getattr(ino, peer)

    def s_setattr(self, peer: int, ino: int, mask: int, attr: Any, now: int) -> Operation:
        before = attr_of(self.meta.getattr(ino, self.node))
        if mask & (META_SET_ATIME | META_SET_MTIME) and stat.S_ISREG(before.mode):
            now = (yield from self._set_times_of_parts(ino, before.writer, mask, attr_of(attr))) or now
        out, tell = self.meta.setattr(ino, mask, tuple(attr), now, peer)
        yield from self.told(peer, tell, (ino,))
        return self._now(ino, peer, out)

    def _set_times_of_parts(self, ino: int, writer: int, mask: int, attr: Attr) -> Operation:
        """Where it is written it is looked up what they are now, and who opens a copy to write begins with the times of that. Answers when
        that was by the clock of the writer, 0: nobody can say."""
        times = attr.atime if mask & META_SET_ATIME else None, attr.mtime if mask & META_SET_MTIME else None
        nodes = list({*self.meta.holders(ino), writer} & self.live)
        answers = yield All([Ask(node, "set_times", (ino, *times)) for node in nodes])
        return next((answer for node, answer in zip(nodes, answers, strict=True) if node == writer and isinstance(answer, int)), 0)

    def s_set_times(self, peer: int, ino: int, atime: int | None, mtime: int | None) -> Operation:
        return (yield Work("set_times", (ino, atime, mtime)))

    def s_link(self, peer: int, ino: int, delta: int, now: int) -> Operation:
        holders: tuple[int, ...] = ()
        if delta < 0:
            yield from self._hear_users(ino)
            holders = self.meta.holders(ino)
        try:
            out, gone, tell = self.meta.link(ino, delta, now)
        finally:
            if delta < 0:
                self.meta.closed(ino)
        if gone:
            self.drop_data(attr_of(out), holders)
        yield from self.told(peer, tell, (ino,))
        return out

    def s_open(self, peer: int, ino: int, writing: bool) -> Operation:
        """The record, the holders, whether ``peer`` has become the writer by this (else, if it is, it was before), whether the content is
        lost, and of which losses this shard has heard."""
        was = attr_of(self.meta.getattr(ino, self.node))
        out, holders, tell = self.meta.open(ino, peer, writing)
        known = self.known
        yield from self.told(peer, tell, (ino,))
        return out, holders, writing and out[9] == peer != was.writer, was.finished == LOST, known

    def s_step_back(self, peer: int, ino: int) -> None:
        """``peer`` has opened it to write, and has nothing of it: it is a reader only, and what the file contained stays what it is."""
        attr = attr_of(self.meta.getattr(ino, self.node))
        if attr.writer == peer and attr.nlink:
            self.meta.unused(ino, peer)
            self.meta.open(ino, peer, False)

    def s_closed(self, peer: int, ino: int, facts: Any, stripe: int, used: bool, known: int, lost: bool) -> Operation:
        """``peer`` has closed it. ``facts``: (size, blocks, atime, mtime) of what it wrote (times 0: as they are), None: it did not write;
        ``stripe``: it was laid in stripes of so many bytes meanwhile, 0: no, UNSTRIPED: made whole; ``used``: it still has it open;
        ``lost``: some of that was lost, as far as ``peer`` has ``known``. Answers the record if it was written."""
        if known >> LOSSES_BITS > self.version:
            raise failure(META_NOT_MINE)  # when we hear of these losses we look only at what was written before
        out: Any = None
        tell: tuple[int, ...] = ()
        if facts is not None:
            attr = attr_of(self.meta.getattr(ino, self.node))
            if attr.writer == peer:
                size, blocks, atime, mtime = facts
                if stripe:
                    wanted = attr._replace(layout=WHOLE if stripe == UNSTRIPED else STRIPED, stripe=max(stripe, 0))
                    for node in set(self.meta.holders(ino)) - {peer}:  # what it contained before
                        self.tell(Ask(node, "drop_whole", (ino,)))
                    self.meta.setattr(ino, META_SET_LAYOUT | META_SET_CTIME, tuple(wanted), mtime, peer)
                laid = wanted if stripe else attr
                lost = lost or (laid.layout == STRIPED and self.was_lost(ino, laid.stripe, size, known))
                done = attr._replace(size=size, blocks=blocks, atime=atime, mtime=mtime, ctime=max(attr.ctime, mtime))
                done = done._replace(finished=LOST if lost else 1)
                out, tell = self._finish(peer, ino, done)
        if not used:
            self.s_unused(peer, ino)  # before anything else can happen: it may open it again at once
        if out is not None:
            yield from self.told(peer, tell, (ino,))
        return self._now(ino, peer, out)

    def _now(self, ino: int, peer: int, out: Any) -> Any:
        """The record as it is now: while others were told of a change, the next one may have been made and answered."""
        with suppress(OSError):
            return self.meta.getattr(ino, peer) if out is not None else None
        return out

    def _finish(self, peer: int, ino: int, attr: Any) -> tuple[Any, tuple[int, ...]]:
        """``peer`` is done writing it; the record, and who must be told."""
        before = self.meta.holders(ino)
        out, tell = self.meta.wrote(ino, peer, tuple(attr))
        for node in set(before) - {peer}:
            self.tell(Ask(node, "drop_whole", (ino,)))  # not stripes: it may lie in some by the time that node hears of this
        return out, tell

    def s_unused(self, peer: int, ino: int) -> None:
        attr = attr_of(self.meta.getattr(ino, self.node))
        holders = self.meta.holders(ino)
        if self.meta.unused(ino, peer):
            self.drop_data(attr, holders)

    def s_hold(self, peer: int, ino: int) -> Any:
        """``peer`` has all of it now. EAGAIN: it has changed since."""
        self.meta.add_holder(ino, peer)
        return self.meta.getattr(ino, peer)

    def s_give_up(self, peer: int, ino: int) -> None:
        """``peer`` needs the room. EBUSY: nobody else has what it holds."""
        self.meta.give_up(ino, peer)

    def s_holders(self, peer: int, ino: int) -> Any:
        return self.meta.holders(ino)

    def s_readlink(self, peer: int, ino: int) -> bytes:
        return self.meta.readlink(ino)

    def s_set_xattr(self, peer: int, ino: int, name: bytes, value: bytes, flags: int, now: int) -> None:
        self.meta.set_xattr(ino, name, value, flags, now)

    def s_get_xattr(self, peer: int, ino: int, name: bytes) -> bytes:
        return self.meta.get_xattr(ino, name)

    def s_list_xattr(self, peer: int, ino: int) -> list[bytes]:
        return self.meta.list_xattr(ino)

    def s_remove_xattr(self, peer: int, ino: int, name: bytes, now: int) -> None:
        self.meta.remove_xattr(ino, name, now)

    def s_touch(self, peer: int, dir: int, now: int) -> Operation:
        """Entries of a directory whose home is here have changed."""
        tell = self.meta.dir_touch(dir, now)
        yield from self.told(peer, tell, (dir,))


_QUESTIONS = frozenset(("lookup", "list", "getattr", "holders", "readlink", "get_xattr", "list_xattr"))

