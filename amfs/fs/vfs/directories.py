"""Directories are on every node. Pure.

Changes of them are serialised by the manager and spread down a tree over all nodes, answered up it (AMFS Shell §3): O(log N) steps. A
node that finds one below it dead asks those below that one; so a node may be asked twice, and applies a change once. The entry of a
directory's name lies with the entries of files, so that one name is never both; the node that has its partition keeps it in step with the
directory.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from amfs._native import Meta
from amfs.fs.attr import Attr
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.shard import PATIENCE_S, PAUSE_LAST_S, Shard, attr_of

BRANCHES = 2
LOCK = "directories"
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


class Directories(Shard):
    """The manager's part of changing directories, and everybody's of knowing them."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self._spreads = 0  # changes that this node has spread as the manager
        self._applied: tuple[int, int, int] = (-1, 0, 0)  # the last change applied: its manager, its number there, what came of it here
        self._forgotten: list[tuple[tuple[int, ...], tuple[tuple[int, bytes], ...]]] = []  # what the change being applied makes old

    def s_mkdir(self, peer: int, dir: int, name: bytes, attr: Any, now: int) -> Operation:
        yield Acquire(LOCK)
        try:
            above, _ = self.meta.dir_get(dir)
            made = attr_of(attr)
            if above[1] & stat.S_ISGID:
                made = made._replace(mode=made.mode | stat.S_ISGID, gid=above[4])
            ino = yield from self.at_name("number", dir, name)
            made = made._replace(ino=ino, mode=stat.S_IFDIR | stat.S_IMODE(made.mode), nlink=2, atime=now, mtime=now, ctime=now)
            yield from self.spread(peer, ("add", ino, dir, name, made))
            self._touch(dir, now)
            return made
        finally:
            self.release(LOCK)

    def s_rmdir(self, peer: int, dir: int, name: bytes, now: int) -> Operation:
        yield Acquire(LOCK)
        try:
            ino, type, _ = yield from self.at_name("lookup", dir, name)
            if type != stat.S_IFDIR:
                raise failure(errno.ENOTDIR)
            yield from self._remove_directory(peer, ino, dir, name, 0)
            self._touch(dir, now)
        finally:
            self.release(LOCK)

    def _remove_directory(self, peer: int, ino: int, dir: int, name: bytes, keep_entry: int) -> Operation:
        """Take it out everywhere if it is empty everywhere. ``keep_entry``: its entry is another's already."""
        try:
            counts = yield from self.spread(peer, ("freeze", ino, True))
            if sum(counts):
                raise failure(errno.ENOTEMPTY)
            if not keep_entry:
                yield from self.at_name("remove", dir, name, ino, 0, peer)
            yield from self.spread(peer, ("remove", ino, dir, name, bool(keep_entry)))
        except OSError:
            yield from self.spread(peer, ("freeze", ino, False))
            raise

    def s_rename(self, peer: int, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int, now: int) -> Operation:
        """Rename where at least one of the two is a directory."""
        yield Acquire(LOCK)
        names = (dir, name), (to_dir, to_name)
        owner = 0
        try:
            owner = yield from self.lock_names(*names)
            ino, type, _ = yield from self.at_name("lookup", dir, name)
            other, other_type = yield from self.entry(to_dir, to_name, bool(flags & RENAME_EXCHANGE))
            if other and flags & RENAME_NOREPLACE:
                raise failure(errno.EEXIST)
            if ino == other:
                return
            self._refuse_loop(ino, type, to_dir)
            if flags & RENAME_EXCHANGE:
                self._refuse_loop(other, other_type, dir)
                yield from self.at_name("insert", dir, name, other, other_type, True, owner, peer)
                yield from self.at_name("insert", to_dir, to_name, ino, type, True, owner, peer)
                if type == other_type == stat.S_IFDIR:
                    yield from self.spread(peer, ("exchange", ino, other, now))
                else:
                    for moved, moved_type, to, named in ((ino, type, to_dir, to_name), (other, other_type, dir, name)):
                        yield from self._moved(peer, moved, moved_type, to, named, now)
            else:
                if other and other_type == stat.S_IFDIR and type != stat.S_IFDIR:
                    raise failure(errno.EISDIR)
                if other and other_type != stat.S_IFDIR and type == stat.S_IFDIR:
                    raise failure(errno.ENOTDIR)
                if other and type != stat.S_IFDIR:
                    raise failure(errno.EBUSY)  # both were directories when this was asked for
                if other:
                    yield from self._remove_directory(peer, other, to_dir, to_name, ino)
                yield from self.at_name("insert", to_dir, to_name, ino, type, True, owner, peer)
                try:
                    yield from self.at_name("remove", dir, name, ino, owner, peer)
                except OSError as error:
                    if error.errno not in (errno.EIO, errno.ENOENT):
                        raise
                    # Its node has died: the entry has gone with it, or goes when its heir hears that the directory has another name.
                yield from self._moved(peer, ino, type, to_dir, to_name, now)
                yield from self.spread(peer, ("forget", dir, name))
            self._touch(dir, now)
            if to_dir != dir:
                self._touch(to_dir, now)
        finally:
            if owner:
                self.unlock_names(owner, *names)
            self.release(LOCK)

    def entry(self, dir: int, name: bytes, must: bool) -> Operation:
        """(inode, type) of an entry; (0, 0) if there is none, unless it ``must`` be there."""
        try:
            ino, type, _ = yield from self.at_name("lookup", dir, name)
        except OSError as error:
            if error.errno != errno.ENOENT or must:
                raise
            return 0, 0
        return ino, type

    def _refuse_loop(self, ino: int, type: int, to_dir: int) -> None:
        if type == stat.S_IFDIR and self.meta.dir_below(to_dir, ino):
            raise failure(errno.EINVAL)

    def _moved(self, peer: int, ino: int, type: int, to_dir: int, to_name: bytes, now: int) -> Operation:
        if type == stat.S_IFDIR:
            yield from self.spread(peer, ("move", ino, to_dir, to_name, now))
        else:
            yield from self.at_ino("setattr", ino, 0, Attr(), now)

    def s_dirset(self, peer: int, ino: int, mask: int, attr: Any, now: int) -> Operation:
        yield Acquire(LOCK)
        try:
            yield from self.spread(peer, ("set", ino, mask, attr, now))
            return self.meta.dir_get(ino)[0]
        finally:
            self.release(LOCK)

    def s_dirchange(self, peer: int, change: Any) -> Operation:
        """Extended attributes and layout rules of directories."""
        yield Acquire(LOCK)
        try:
            yield from self.spread(peer, tuple(change))
        finally:
            self.release(LOCK)

    # ── the tree ───────────────────────────────────────────────────────────────────────────────────

    def spread(self, asker: int, change: tuple[Any, ...]) -> Operation:
        """Apply ``change``, which node ``asker`` wants, on every node, this one first; the answers of all."""
        order = [self.node, *sorted(self.live - {self.node})]
        self._spreads += 1
        return (yield from self.s_spread(self.node, change, order, 0, asker, self._spreads))

    def s_spread(self, peer: int, change: Any, order: list[int], place: int, asker: int, number: int) -> Operation:
        end = self.now + PATIENCE_S
        while self.manager != order[0]:
            if order[0] not in self.live or self.now >= end:
                raise failure(errno.EIO)  # of a manager before this one, who has told us what there is, or is about to
            yield Sleep(PAUSE_LAST_S)
        key = ("spread", order[0])
        yield Acquire(key)  # who is asked twice answers twice when it is done, and so are those below it
        try:
            return (yield from self._spread(change, order, place, asker, number))
        finally:
            self.release(key)

    def _spread(self, change: Any, order: list[int], place: int, asker: int, number: int) -> Operation:
        if self._applied[:2] != (order[0], number):
            self._applied = (order[0], number, self.apply(change))
        mine = self._applied[2]
        forgotten, self._forgotten = self._forgotten, []
        if self.node == asker:
            # The kernel that asked changes its own names, and holds the directory until it is answered. Other mounts here are told by the
            # operation.
            for inodes, _ in forgotten:
                self.tell(Work("invalidate", (inodes, ())))
        elif forgotten:
            yield All([Work("invalidate", names) for names in forgotten])
        return (yield from self._relay(change, order, place, asker, number, mine))

    def _relay(self, change: Any, order: list[int], place: int, asker: int, number: int, mine: int) -> Operation:
        """Pass a change on down the tree; the answers from below and ``mine``."""
        answers = [mine]
        failed: OSError | None = None
        below = _below(place, order)
        while below:
            asked = yield All([Ask(order[child], "spread", (change, order, child, asker, number)) for child in below])
            dead: list[int] = []
            for child, answer in zip(below, asked, strict=True):
                if not isinstance(answer, OSError):
                    answers += answer
                elif answer.errno == errno.EHOSTDOWN:
                    dead += _below(child, order)  # it is no member any more, and has no say; those below it have
                else:
                    failed = answer
            below = dead
        if failed is not None:
            raise failed
        return answers

    def apply(self, change: Any) -> int:
        """Make a change here."""
        return int(getattr(self, f"apply_{change[0]}")(*change[1:]) or 0)

    def apply_add(self, ino: int, dir: int, name: bytes, attr: Any) -> None:
        self.meta.dir_add(ino, dir, name, tuple(attr))
        self._enter(dir, name, ino)
        self._forget_names((dir,), ())  # no kernel remembers a name that is not there

    def apply_remove(self, ino: int, dir: int, name: bytes, keep_entry: bool) -> None:
        self.meta.dir_remove(ino)
        if not keep_entry:
            self._strike(dir, name, ino)
        self._forget_names((dir, ino), ((dir, name),))

    def apply_forget(self, dir: int, name: bytes) -> None:
        self._forget_names((dir,), ((dir, name),))

    def apply_freeze(self, ino: int, frozen: bool) -> int:
        self.meta.dir_freeze(ino, frozen)
        return self.meta.count(ino)

    def apply_move(self, ino: int, to_dir: int, to_name: bytes, now: int) -> None:
        _, parent = self.meta.dir_get(ino)
        name = self.meta.dir_name(ino)
        self.meta.dir_move(ino, to_dir, to_name, now)
        self._strike(parent, name, ino)
        self._enter(to_dir, to_name, ino)
        self._forget_names((ino, parent, to_dir), ((parent, name), (to_dir, to_name)))

    def apply_exchange(self, ino: int, other: int, now: int) -> None:
        (_, parent), (_, other_parent) = self.meta.dir_get(ino), self.meta.dir_get(other)
        name, other_name = self.meta.dir_name(ino), self.meta.dir_name(other)
        self.meta.dir_move(ino, parent, b".amfs-%x" % ino, now)  # two cannot have one name, not even for a moment
        self.meta.dir_move(other, parent, name, now)
        self.meta.dir_move(ino, other_parent, other_name, now)
        self._forget_names((ino, other, parent, other_parent), ((parent, name), (other_parent, other_name)))

    def apply_set(self, ino: int, mask: int, attr: Any, now: int) -> None:
        self.meta.dir_set(ino, mask, tuple(attr), now)
        self._forget_names((ino,), ())

    def apply_set_xattr(self, ino: int, name: bytes, value: bytes, flags: int, now: int) -> None:
        self.meta.set_xattr(ino, name, value, flags, now)

    def apply_remove_xattr(self, ino: int, name: bytes, now: int) -> None:
        self.meta.remove_xattr(ino, name, now)

    def apply_layout(self, ino: int, layout: int, stripe: int) -> None:
        self.meta.dir_set_layout(ino, layout, stripe)

    def _enter(self, dir: int, name: bytes, ino: int) -> None:
        """The entry was made before the directory; unless its partition came here without it, since the node that had it died."""
        with suppress(OSError):  # there it is, or elsewhere
            self.meta.insert(dir, name, 0, ino, stat.S_IFDIR, False)

    def _strike(self, dir: int, name: bytes, ino: int) -> None:
        """Likewise it was removed before, unless it was made again from what we knew."""
        with suppress(OSError):
            self.meta.remove(dir, name, 0, ino)

    def _forget_names(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...]) -> None:
        self._forgotten.append((inodes, entries))

    # ── times and attributes ───────────────────────────────────────────────────────────────────────

    def _touch(self, dir: int, now: int) -> None:
        """Say at its home that entries of ``dir`` changed. Not waited for: the times of a directory seen from another node may be as old as
        the messages that are under way."""
        home = self.meta.owner(self.meta.ino_partition(dir))
        self.remember_touch(dir, now)
        if home in self.live:
            self.tell(Ask(home, "touch", (dir, now)))

    def remember_touch(self, *dirs_and_now: int) -> None:
        """What this node has changed itself it sees at once, whatever the homes of the directories have heard by then."""
        *dirs, now = dirs_and_now
        for dir in dirs:
            if self.meta.owner(self.meta.ino_partition(dir)) != self.node:
                with suppress(OSError):  # META_NOT_MINE: remembered is all it is
                    self.meta.dir_touch(dir, now)

    def dir_attr(self, ino: int) -> Operation:
        """Attributes of a directory, with the times that its home knows."""
        attr, _ = self.meta.dir_get(ino)
        home = self.meta.owner(self.meta.ino_partition(ino))
        if home != self.node and home in self.live:
            try:
                return attr_of((yield Ask(home, "getattr", (ino,))))
            except OSError as error:
                if error.errno not in (errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENOENT) and (error.errno or 0) < 1000:
                    raise
        return attr_of(attr)


def _below(place: int, order: list[int]) -> list[int]:
    """The places below one in the tree."""
    return [child for child in range(BRANCHES * place + 1, BRANCHES * place + BRANCHES + 1) if child < len(order)]
