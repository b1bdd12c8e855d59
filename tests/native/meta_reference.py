"""The metadata shard once more, in plain dictionaries and as slow as it likes: fsmeta.h, for test_meta_model.py to compare."""

from __future__ import annotations

import errno
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash

from amfs.vocabulary.attr import (
    COPIES_MAX,
    LOST,
    META_BUSY,
    META_NOT_MINE,
    META_SET_ATIME,
    META_SET_BLOCKS,
    META_SET_COPIES,
    META_SET_CTIME,
    META_SET_GID,
    META_SET_LAYOUT,
    META_SET_MODE,
    META_SET_MTIME,
    META_SET_RANK,
    META_SET_SIZE,
    META_SET_UID,
    NO_LAYOUT,
    ROOT,
    STRIPED,
    WHOLE,
    Attr,
)

NOREPLACE, EXCHANGE = 1, 2
SHIFT = 40
Key = tuple[int, bytes]
Nodes = tuple[int, ...]


class Refused(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def refuse_if(condition: object, number: int) -> None:
    if condition:
        raise Refused(number)


@dataclass
class Entry:
    ino: int
    type: int
    watchers: set[int] = field(default_factory=set)


@dataclass
class Inode:
    attr: Attr
    holders: set[int] = field(default_factory=set)
    users: set[int] = field(default_factory=set)
    watchers: set[int] = field(default_factory=set)
    target: bytes | None = None
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    timed: int = 0  # when somebody set mtime while it was being written
    atimed: int = 0  # likewise atime
    secured: bool = False  # in stripes, or empty: what its writer had written when a program closed it is recorded
    lost: bool = False  # its content was, with a node; shown when nobody writes it

    @property
    def regular(self) -> bool:
        return stat.S_ISREG(self.attr.mode)


@dataclass
class Dir:
    attr: Attr
    parent: int
    name: bytes
    frozen: bool = False
    copies: int = 0  # of the rule; 0: none
    timed: int = 0
    touched: int = 0
    by_hand: bool = False  # mtime was set, and nothing has changed since
    watchers: set[int] = field(default_factory=set)
    xattrs: dict[bytes, bytes] = field(default_factory=dict)


def without_setid(mode: int) -> int:
    return mode & ~(stat.S_ISUID | stat.S_ISGID if mode & stat.S_IXGRP else stat.S_ISUID)


def owned(attr: Attr, mask: int, new: Attr, now: int) -> Attr:
    """What setattr does to any inode."""
    mode = attr.mode
    if mask & META_SET_MODE:
        mode = stat.S_IFMT(mode) | stat.S_IMODE(new.mode)
    elif mask & (META_SET_UID | META_SET_GID) and not stat.S_ISDIR(mode):
        mode = without_setid(mode)
    return attr._replace(
        mode=mode,
        uid=new.uid if mask & META_SET_UID else attr.uid,
        gid=new.gid if mask & META_SET_GID else attr.gid,
        atime=new.atime if mask & META_SET_ATIME else attr.atime,
        mtime=new.mtime if mask & META_SET_MTIME else attr.mtime,
        ctime=new.ctime if mask & META_SET_CTIME else now,
        rank=new.rank if mask & META_SET_RANK else attr.rank,
    )


def striped_wrongly(layout: int, stripe: int) -> bool:
    return layout not in (WHOLE, STRIPED) or (layout == STRIPED and stripe == 0)


def first_serial(version: int) -> int:
    """Where the numbers begin that a node gives out in partitions that came to it with this version of the table, without records."""
    return 1 if version <= 1 else min(version - 1 << 24, (1 << SHIFT) - 1)


class Reference:
    """One shard. Methods and answers are those of amfs._native.Meta; refusals are Refused."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.owners: list[int] = []
        self.serials: list[int] = []
        self.moving: set[int] = set()
        self.entries: dict[Key, Entry] = {}
        self.inodes: dict[int, Inode] = {}
        self.copies: dict[int, tuple[Attr, bool]] = {}
        self.locks: dict[Key, int] = {}
        self.dirs: dict[int, Dir] = {}

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def set_table(self, owners: list[int], version: int) -> None:
        if not self.owners:
            self.owners, self.serials = [-1] * len(owners), [0] * len(owners)
            self.dirs[ROOT] = Dir(Attr(ino=ROOT, mode=stat.S_IFDIR | 0o755, layout=NO_LAYOUT, finished=1, copies=1), ROOT, b"")
        for p, owner in enumerate(owners):
            if owner == self.node and self.owners[p] != self.node:
                self.serials[p] = max(self.serials[p], first_serial(version))
        self.owners = list(owners)

    def set_moving(self, partitions: list[int], moving: bool) -> None:
        self.moving = self.moving | set(partitions) if moving else self.moving - set(partitions)

    def name_partition(self, dir: int, name: bytes) -> int:
        return xxhash.xxh64_intdigest(name, seed=dir) % len(self.owners)

    def ino_partition(self, ino: int) -> int:
        return (ino >> SHIFT) % len(self.owners)

    def stripe_partition(self, ino: int, index: int) -> int:
        return (xxhash.xxh64_intdigest(ino.to_bytes(8, "little")) + index) % len(self.owners)

    def mine(self, partition: int) -> bool:
        return self.owners[partition] == self.node and partition not in self.moving

    def new_number(self, partition: int) -> int:
        refuse_if(not self.mine(partition), META_NOT_MINE)
        self.serials[partition] += 1
        return partition << SHIFT | self.serials[partition]

    def used_number(self, ino: int) -> None:
        partition = ino >> SHIFT
        if partition < len(self.serials):
            self.serials[partition] = max(self.serials[partition], ino & (1 << SHIFT) - 1)

    # ── helpers ────────────────────────────────────────────────────────────────────────────────────

    def check_name(self, name: bytes) -> None:
        refuse_if(len(name) > 255, errno.ENAMETOOLONG)
        refuse_if(name in (b"", b".", b"..") or b"/" in name or b"\0" in name, errno.EINVAL)

    def here(self, dir: int, name: bytes) -> Entry | None:
        refuse_if(not self.mine(self.name_partition(dir, name)), META_NOT_MINE)
        return self.entries.get((dir, name))

    def free(self, dir: int, name: bytes) -> Entry:
        """The entry of something that is no directory and that nobody else is at; its record is here, too."""
        entry = self.here(dir, name)
        refuse_if((dir, name) in self.locks, META_BUSY)
        refuse_if(entry is None, errno.ENOENT)
        assert entry is not None
        refuse_if(entry.type == stat.S_IFDIR, errno.EISDIR)
        refuse_if(not self.mine(self.ino_partition(entry.ino)), META_NOT_MINE)
        return entry

    def room_in(self, dir: int) -> None:
        refuse_if(dir not in self.dirs, errno.ENOTDIR if dir in self.inodes else errno.ENOENT)
        refuse_if(self.dirs[dir].frozen, META_BUSY)

    def file_here(self, ino: int, content: bool = False) -> Inode:
        refuse_if(not self.mine(self.ino_partition(ino)), META_NOT_MINE)
        refuse_if(ino not in self.inodes, errno.EISDIR if ino in self.dirs else errno.ENOENT)
        refuse_if(content and not self.inodes[ino].regular, errno.EINVAL)
        return self.inodes[ino]

    def dir_value(self, ino: int) -> Attr:
        children = sum(1 for number, dir in self.dirs.items() if dir.parent == ino and number != ROOT)
        return self.dirs[ino].attr._replace(nlink=2 + children, copies=self.dir_copies(ino))

    def attr_of(self, ino: int) -> tuple[Attr, set[int]] | None:
        if not self.mine(self.ino_partition(ino)):
            return None
        if ino in self.inodes:
            return self.inodes[ino].attr, self.inodes[ino].watchers
        return (self.dir_value(ino), self.dirs[ino].watchers) if ino in self.dirs else None

    def watch(self, watchers: set[int], asker: int) -> None:
        if asker not in (-1, self.node):
            watchers.add(asker)

    def told(self, watchers: set[int], but: int = -1) -> Nodes:
        tell = tuple(sorted(watchers - {self.node, but}))
        watchers &= {but}
        return tell

    def alone(self, *sets: set[int]) -> bool:
        return all(nodes <= {self.node} for nodes in sets)

    def gone(self, ino: int) -> bool:
        inode = self.inodes[ino]
        if inode.attr.nlink > 0 or inode.users:
            return False
        del self.inodes[ino]
        return True

    # ── entries ────────────────────────────────────────────────────────────────────────────────────

    def lookup(self, dir: int, name: bytes, asker: int) -> Any:
        refuse_if(len(name) > 255, errno.ENAMETOOLONG)
        entry = self.here(dir, name)
        refuse_if(entry is None, errno.ENOENT)
        assert entry is not None
        self.watch(entry.watchers, asker)
        known = self.attr_of(entry.ino)
        if known is not None:
            self.watch(known[1], asker)
        return entry.ino, entry.type, known and known[0]

    def create(self, dir: int, name: bytes, now: int, asker: int, target: bytes | None, attr: Attr) -> Attr:
        self.check_name(name)
        type = stat.S_IFMT(attr.mode)
        regular = type == stat.S_IFREG
        if type == stat.S_IFLNK:
            refuse_if(target is None, errno.EINVAL)
            refuse_if(target == b"", errno.ENOENT)
            refuse_if(len(target or b"") > 4095, errno.ENAMETOOLONG)
        else:
            refuse_if(type == stat.S_IFDIR or target is not None, errno.EINVAL)
            refuse_if(regular and striped_wrongly(attr.layout, attr.stripe), errno.EINVAL)
            refuse_if(not regular and attr.writer >= 0, errno.EINVAL)
        there = self.here(dir, name)
        refuse_if((dir, name) in self.locks, META_BUSY)
        refuse_if(dir not in self.dirs, errno.ENOTDIR if dir in self.inodes else errno.ENOENT)
        refuse_if(there is not None, errno.EEXIST)
        self.room_in(dir)
        above = self.dirs[dir].attr
        ino = self.new_number(self.name_partition(dir, name))
        writer = attr.writer if regular else -1
        made = Attr(
            ino=ino,
            mode=attr.mode,
            nlink=1,
            uid=attr.uid,
            gid=above.gid if above.mode & stat.S_ISGID else attr.gid,
            rdev=attr.rdev,
            stripe=attr.stripe if regular else 0,
            layout=attr.layout if regular else WHOLE,
            finished=int(writer < 0),
            writer=writer,
            rank=attr.rank,
            size=len(target or b""),
            atime=now,
            mtime=now,
            ctime=now,
            copies=(attr.copies or self.dir_copies(dir)) if regular else 1,
        )
        inode = self.inodes[ino] = Inode(made, target=target)
        entry = self.entries[dir, name] = Entry(ino, type)
        self.watch(inode.watchers, asker)
        self.watch(entry.watchers, asker)
        if writer >= 0:
            inode.users.add(writer)
            inode.watchers.add(writer)
        elif regular and made.layout == WHOLE and asker >= 0:
            inode.holders.add(asker)
        return made

    def insert(self, dir: int, name: bytes, owner: int, ino: int, type: int, replace: bool) -> Any:
        self.check_name(name)
        refuse_if(ino == 0, errno.EINVAL)
        entry = self.here(dir, name)
        refuse_if(self.locks.get((dir, name), owner) != owner, META_BUSY)
        refuse_if(ino in self.inodes and stat.S_IFMT(self.inodes[ino].attr.mode) != type, errno.EINVAL)
        refuse_if(entry is not None and not replace, errno.EEXIST)
        self.room_in(dir)
        if entry is None:
            self.entries[dir, name] = Entry(ino, type)
            return 0, 0, ()
        old, old_type, tell = entry.ino, entry.type, self.told(entry.watchers)
        entry.ino, entry.type = ino, type
        return old, old_type, tell

    def remove(self, dir: int, name: bytes, owner: int, ino: int) -> Any:
        refuse_if(len(name) > 255, errno.ENAMETOOLONG)
        entry = self.here(dir, name)
        refuse_if(self.locks.get((dir, name), owner) != owner, META_BUSY)
        refuse_if(entry is None or ino not in (0, entry.ino), errno.ENOENT)
        assert entry is not None
        del self.entries[dir, name]
        return entry.ino, entry.type, self.told(entry.watchers)

    def unlink(self, dir: int, name: bytes, now: int) -> Any:
        entry = self.free(dir, name)
        del self.entries[dir, name]
        if entry.ino not in self.inodes:
            return Attr(ino=entry.ino, mode=entry.type), False, self.told(entry.watchers)
        inode = self.inodes[entry.ino]
        tell = {*self.told(entry.watchers), *self.told(inode.watchers)}
        inode.attr = inode.attr._replace(nlink=max(0, inode.attr.nlink - 1), ctime=now)
        return inode.attr, self.gone(entry.ino), tuple(sorted(tell))

    def _side(self, dir: int, name: bytes) -> tuple[Entry, Inode]:
        entry = self.free(dir, name)
        inode = self.inodes.get(entry.ino)
        refuse_if(inode is None or not self.alone(entry.watchers, inode.watchers), META_BUSY)
        assert inode is not None
        return entry, inode

    def rename(self, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int, now: int) -> Any:
        refuse_if(flags not in (0, NOREPLACE, EXCHANGE), errno.EINVAL)
        self.check_name(name)
        self.check_name(to_name)
        try:
            entry, moved = self._side(dir, name)
        except Refused as error:
            refuse_if(error.number == errno.EISDIR, META_BUSY)
            raise
        old: Inode | None = None
        try:
            to, old = self._side(to_dir, to_name)
        except Refused as error:
            here = self.mine(self.name_partition(to_dir, to_name)) and (to_dir, to_name) not in self.locks
            refuse_if(flags == NOREPLACE and here and (to_dir, to_name) in self.entries, errno.EEXIST)
            refuse_if(error.number == errno.EISDIR and flags == EXCHANGE, META_BUSY)
            if error.number != errno.ENOENT or flags == EXCHANGE:
                raise
            self.room_in(to_dir)
        refuse_if(old is not None and flags == NOREPLACE, errno.EEXIST)
        if old is moved:
            return moved.attr, None, False
        refuse_if(old is not None and flags != EXCHANGE and not self.alone(old.holders), META_BUSY)
        moved.attr = moved.attr._replace(ctime=now)
        if old is None:
            self.entries[to_dir, to_name] = Entry(entry.ino, entry.type)
            del self.entries[dir, name]
            return moved.attr, None, False
        if flags == EXCHANGE:
            entry.ino, entry.type, to.ino, to.type = to.ino, to.type, entry.ino, entry.type
            old.attr = old.attr._replace(ctime=now)
            return moved.attr, old.attr, self.gone(old.attr.ino)
        to.ino, to.type = entry.ino, entry.type
        del self.entries[dir, name]
        old.attr = old.attr._replace(ctime=now, nlink=max(0, old.attr.nlink - 1))
        return moved.attr, old.attr, self.gone(old.attr.ino)

    def lock(self, dir: int, name: bytes, owner: int) -> None:
        self.check_name(name)
        refuse_if(owner == 0, errno.EINVAL)
        self.here(dir, name)
        refuse_if(self.locks.setdefault((dir, name), owner) != owner, META_BUSY)

    def unlock(self, dir: int, name: bytes, owner: int) -> None:
        refuse_if(not self.mine(self.name_partition(dir, name)), META_NOT_MINE)
        refuse_if((dir, name) not in self.locks, errno.ENOENT)
        refuse_if(self.locks[dir, name] != owner, META_BUSY)
        del self.locks[dir, name]

    def unlock_node(self, node: int) -> None:
        self.locks = {key: owner for key, owner in self.locks.items() if owner >> SHIFT != node + 1}

    def list_all(self, dir: int) -> set[tuple[bytes, int, int, Attr | None]]:
        """The entries of a directory, without their cursors."""
        found = set()
        for (d, name), entry in self.entries.items():
            if d == dir and self.owners[self.name_partition(d, name)] == self.node:
                known = self.attr_of(entry.ino)
                found.add((name, entry.ino, entry.type, known and known[0]))
        return found

    # ── inodes ─────────────────────────────────────────────────────────────────────────────────────

    def getattr(self, ino: int, asker: int) -> Attr:
        refuse_if(not self.mine(self.ino_partition(ino)), META_NOT_MINE)
        known = self.attr_of(ino)
        refuse_if(known is None, errno.ENOENT)
        assert known is not None
        self.watch(known[1], asker)
        return known[0]

    def _check_set(self, inode: Inode, mask: int, new: Attr) -> None:
        refuse_if(mask & META_SET_LAYOUT and (not inode.regular or striped_wrongly(new.layout, new.stripe)), errno.EINVAL)
        refuse_if(mask & META_SET_COPIES and not (inode.regular and 0 < new.copies <= COPIES_MAX), errno.EINVAL)
        refuse_if(mask & META_SET_SIZE and not inode.regular, errno.EINVAL)

    def _set(self, inode: Inode, mask: int, new: Attr, now: int, asker: int) -> None:
        if mask & META_SET_ATIME and inode.attr.writer >= 0:
            inode.atimed = now
        if mask & META_SET_MTIME and inode.attr.writer >= 0:
            inode.timed = now
        attr = owned(inode.attr, mask, new, now)
        if mask & META_SET_SIZE and attr.size != new.size:
            attr = attr._replace(size=new.size, blocks=attr.blocks if new.size else 0, mtime=attr.mtime if mask & META_SET_MTIME else now)
            if attr.finished and asker in inode.holders:
                inode.holders = {asker}
        if mask & META_SET_BLOCKS:
            attr = attr._replace(blocks=new.blocks)
        if mask & META_SET_COPIES:
            attr = attr._replace(copies=new.copies)
        if mask & META_SET_LAYOUT and (attr.layout, attr.stripe) != (new.layout, new.stripe):
            attr = attr._replace(layout=new.layout, stripe=new.stripe)
            inode.holders = {asker} if attr.finished and attr.layout == WHOLE and asker >= 0 else set()
        inode.attr = attr

    def setattr(self, ino: int, mask: int, new: Attr, now: int, asker: int) -> Any:
        inode = self.file_here(ino)
        self._check_set(inode, mask, new)
        self.watch(inode.watchers, asker)
        self._set(inode, mask, new, now, asker)
        return inode.attr, self.told(inode.watchers, asker)

    def link(self, ino: int, delta: int, now: int, asker: int) -> Any:
        inode = self.file_here(ino)
        refuse_if(inode.attr.nlink + delta < 0, errno.EINVAL)
        refuse_if(delta > 0 and inode.attr.nlink == 0, errno.ENOENT)
        inode.attr = inode.attr._replace(nlink=inode.attr.nlink + delta, ctime=now)
        self.watch(inode.watchers, asker)
        tell = self.told(inode.watchers, asker)
        return inode.attr, self.gone(ino), tell

    def open(self, ino: int, node: int, writing: bool) -> Any:
        inode = self.file_here(ino, content=True)
        holders = tuple(sorted(inode.holders))
        inode.users.add(node)
        inode.watchers.add(node)
        tell: Nodes = ()
        if writing and node != self.node:
            inode.attr = inode.attr._replace(mode=without_setid(inode.attr.mode))
        if writing and inode.attr.writer < 0:
            tell = self.told(inode.watchers, node)
            inode.attr = inode.attr._replace(writer=node, finished=0)
            inode.secured = False
            inode.timed = inode.atimed = 0
        return inode.attr, holders, tell

    def wrote(self, ino: int, node: int, new: Attr) -> Any:
        inode = self.file_here(ino, content=True)
        old = inode.attr
        refuse_if(node < 0 or old.writer != node, errno.EPERM)
        timed, atimed = (not new.mtime) or inode.timed > new.mtime, not (new.mtime and new.atime) or inode.atimed > new.mtime
        if timed:
            new = new._replace(mtime=old.mtime)
        if atimed:
            new = new._replace(atime=old.atime)
        inode.timed = inode.atimed = 0
        changed = (old.size, old.mtime) != (new.size, new.mtime)
        inode.attr = old._replace(
            size=new.size,
            blocks=new.blocks,
            mtime=new.mtime,
            atime=new.atime,
            ctime=max(old.ctime, new.ctime) if changed else old.ctime,
            finished=LOST if new.finished == LOST else 1,
            writer=-1,
        )
        inode.lost = new.finished == LOST
        inode.holders = {node} if old.layout == WHOLE else set()
        return inode.attr, self.told(inode.watchers, node)

    def unused(self, ino: int, node: int) -> bool:
        inode = self.file_here(ino)
        if node >= 0 and inode.attr.writer == node:
            inode.lost = inode.lost or (inode.attr.layout == WHOLE and not inode.holders and inode.attr.size > 0)
            inode.attr = inode.attr._replace(writer=-1, finished=LOST if inode.lost else 1)
            if not inode.holders and inode.attr.layout == WHOLE and not inode.lost:
                inode.holders = {node}
        inode.users.discard(node)
        return self.gone(ino)

    def add_holder(self, ino: int, node: int) -> None:
        inode = self.file_here(ino, content=True)
        refuse_if(inode.attr.finished != 1 or inode.attr.layout != WHOLE or node not in inode.watchers, errno.EAGAIN)
        inode.holders.add(node)

    def give_up(self, ino: int, node: int) -> None:
        inode = self.file_here(ino, content=True)
        attr = inode.attr
        old = attr.layout != WHOLE or (attr.writer >= 0 and attr.copies <= 1)
        needed = not old and attr.size > 0 and (node in inode.holders or not inode.holders)
        refuse_if((needed and len(inode.holders) <= attr.copies) or attr.writer == node or node in inode.users, errno.EBUSY)
        inode.holders.discard(node)

    def checkpoint(self, ino: int, node: int, new: Attr, copies: Sequence[int]) -> Nodes:
        inode = self.file_here(ino, content=True)
        refuse_if(node < 0 or inode.attr.writer != node, errno.EPERM)
        striped = inode.attr.layout != WHOLE
        old = set() if striped else inode.holders - {node, *copies}
        holders, lost = (set(inode.holders), inode.lost) if striped else ({node, *copies}, False)
        timed, atimed = inode.timed, inode.atimed
        writer, finished = inode.attr.writer, inode.attr.finished
        watchers = set(inode.watchers)
        self.wrote(ino, node, new)
        inode.watchers |= watchers
        inode.attr = inode.attr._replace(writer=writer, finished=finished)
        inode.timed, inode.atimed, inode.lost = timed, atimed, lost
        inode.holders = holders
        inode.secured = striped or not new.size
        return tuple(sorted(old))

    def wrote_same(self, ino: int, node: int) -> Any:
        inode = self.file_here(ino, content=True)
        refuse_if(node < 0 or inode.attr.writer != node, errno.EPERM)
        refuse_if(node not in inode.holders, errno.EAGAIN)
        inode.attr = inode.attr._replace(writer=-1, finished=1)
        inode.timed = inode.atimed = 0
        inode.lost = False
        return inode.attr, self.told(inode.watchers, node)

    def short_of_copies(self, most: int) -> set[tuple[int, int, bool]]:
        found = set()
        for ino, inode in self.inodes.items():
            attr, striped = inode.attr, inode.attr.layout == STRIPED
            there = 2 if striped else len(inode.holders)
            alone = attr.copies <= 1 or not (attr.size and attr.nlink)
            if attr.finished == 1 and not alone and there < min(attr.copies, most) and self.mine(self.ino_partition(ino)):
                found.add((ino, attr.size, striped))
        return found

    def dir_set_copies(self, ino: int, copies: int) -> None:
        refuse_if(copies > COPIES_MAX, errno.EINVAL)
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        self.dirs[ino].copies = copies

    def dir_copies(self, ino: int) -> int:
        while ino in self.dirs:
            if self.dirs[ino].copies or ino == ROOT:
                return self.dirs[ino].copies or 1
            ino = self.dirs[ino].parent
        return 1

    def holders(self, ino: int) -> Nodes:
        return tuple(sorted(self.file_here(ino).holders))

    def readlink(self, ino: int) -> bytes:
        try:
            target = self.file_here(ino).target
        except Refused as error:
            refuse_if(error.number == errno.EISDIR, errno.EINVAL)
            raise
        refuse_if(target is None, errno.EINVAL)
        assert target is not None
        return target

    # ── extended attributes ────────────────────────────────────────────────────────────────────────

    def _xattrs(self, ino: int) -> Inode | Dir:
        if ino in self.dirs:
            return self.dirs[ino]
        refuse_if(not self.mine(self.ino_partition(ino)), META_NOT_MINE)
        refuse_if(ino not in self.inodes, errno.ENOENT)
        return self.inodes[ino]

    def set_xattr(self, ino: int, name: bytes, value: bytes, flags: int, now: int) -> None:
        it = self._xattrs(ino)
        refuse_if(not 0 < len(name) < 256, errno.ERANGE)
        refuse_if(len(value) > 65536, errno.E2BIG)
        refuse_if(flags & 1 and name in it.xattrs, errno.EEXIST)
        refuse_if(flags & 2 and name not in it.xattrs, errno.ENODATA)
        after = {**it.xattrs, name: value}
        refuse_if(sum(len(n) + 1 + len(v) for n, v in after.items()) > 65536, errno.ENOSPC)
        it.xattrs[name] = value
        it.attr = it.attr._replace(ctime=now)

    def get_xattr(self, ino: int, name: bytes) -> bytes:
        it = self._xattrs(ino)
        refuse_if(name not in it.xattrs, errno.ENODATA)
        return it.xattrs[name]

    def list_xattr(self, ino: int) -> list[bytes]:
        return list(self._xattrs(ino).xattrs)

    def remove_xattr(self, ino: int, name: bytes, now: int) -> None:
        it = self._xattrs(ino)
        refuse_if(name not in it.xattrs, errno.ENODATA)
        del it.xattrs[name]
        it.attr = it.attr._replace(ctime=now)

    # ── copies ─────────────────────────────────────────────────────────────────────────────────────

    def cache(self, attr: Attr, replica: bool) -> None:
        refuse_if(attr.ino == 0, errno.EINVAL)
        old, had = self.copies.get(attr.ino, (attr, False))
        same = (old.size, old.mtime, old.layout) == (attr.size, attr.mtime, attr.layout) and attr.finished
        self.copies[attr.ino] = attr, bool(replica or (had and same))
        self.used_number(attr.ino)

    def cached(self, ino: int) -> tuple[Attr, bool]:
        refuse_if(ino not in self.copies, errno.ENOENT)
        return self.copies[ino]

    def uncache(self, ino: int) -> bool:
        refuse_if(ino not in self.copies, errno.ENOENT)
        return self.copies.pop(ino)[1]

    # ── directories ────────────────────────────────────────────────────────────────────────────────

    def _child(self, parent: int, name: bytes) -> int | None:
        return next((ino for ino, dir in self.dirs.items() if ino != ROOT and (dir.parent, dir.name) == (parent, name)), None)

    def dir_add(self, ino: int, parent: int, name: bytes, attr: Attr) -> None:
        self.check_name(name)
        refuse_if(ino == 0, errno.EINVAL)
        refuse_if(self._child(parent, name) is not None, errno.EEXIST)
        refuse_if(parent not in self.dirs, errno.ENOENT)
        refuse_if(ino in self.dirs or ino in self.inodes, errno.EEXIST)
        mode = stat.S_IFDIR | stat.S_IMODE(attr.mode)
        fixed = {"ino": ino, "mode": mode, "rdev": 0, "stripe": 0, "layout": NO_LAYOUT, "finished": 1, "writer": -1}
        self.dirs[ino] = Dir(attr._replace(**fixed, copies=1), parent, name)
        self.used_number(ino)

    def dir_remove(self, ino: int) -> None:
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        refuse_if(ino == ROOT, errno.EBUSY)
        refuse_if(self.dir_value(ino).nlink > 2, errno.ENOTEMPTY)
        del self.dirs[ino]

    def dir_below(self, ino: int, ancestor: int) -> bool:
        if ino not in self.dirs or ancestor not in self.dirs:
            return False
        while ino not in (ancestor, ROOT):
            ino = self.dirs[ino].parent
        return ino == ancestor

    def dir_move(self, ino: int, parent: int, name: bytes, now: int) -> None:
        self.check_name(name)
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        refuse_if(parent not in self.dirs, errno.ENOENT)
        refuse_if(ino == ROOT, errno.EBUSY)
        refuse_if(self.dir_below(parent, ino), errno.EINVAL)
        refuse_if(self._child(parent, name) not in (None, ino), errno.EEXIST)
        dir = self.dirs[ino]
        dir.parent, dir.name, dir.attr = parent, name, dir.attr._replace(ctime=now)

    def dir_set(self, ino: int, mask: int, new: Attr, now: int) -> None:
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        refuse_if(mask & (META_SET_SIZE | META_SET_BLOCKS | META_SET_LAYOUT | META_SET_COPIES), errno.EISDIR)
        dir = self.dirs[ino]
        dir.attr = owned(dir.attr, mask, new, now)
        if mask & META_SET_MTIME:
            dir.timed, dir.touched, dir.by_hand = max(dir.timed, now), 0, now > 0

    def dir_get(self, ino: int) -> tuple[Attr, int]:
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        return self.dir_value(ino), self.dirs[ino].parent

    def dir_find(self, parent: int, name: bytes) -> Attr:
        found = self._child(parent, name)
        refuse_if(found is None, errno.ENOENT)
        assert found is not None
        return self.dir_value(found)

    def dir_name(self, ino: int) -> bytes:
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        return self.dirs[ino].name

    def dir_freeze(self, ino: int, frozen: bool) -> None:
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        self.dirs[ino].frozen = frozen

    def dir_touched(self, ino: int) -> int:
        return self.dirs[ino].touched if ino in self.dirs else 0

    def dir_touch(self, ino: int, now: int) -> Nodes:
        if ino in self.dirs and self.dirs[ino].timed <= now:
            self.dirs[ino].touched = max(self.dirs[ino].touched, now)
        refuse_if(not self.mine(self.ino_partition(ino)), META_NOT_MINE)
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        dir = self.dirs[ino]
        if dir.timed <= now:
            dir.attr = dir.attr._replace(mtime=now if dir.by_hand else max(dir.attr.mtime, now))
            dir.by_hand = False
        dir.attr = dir.attr._replace(ctime=max(dir.attr.ctime, now))
        return self.told(dir.watchers)

    def dir_set_layout(self, ino: int, layout: int, stripe: int) -> None:
        refuse_if(layout != NO_LAYOUT and striped_wrongly(layout, stripe), errno.EINVAL)
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        self.dirs[ino].attr = self.dirs[ino].attr._replace(layout=layout, stripe=0 if layout == NO_LAYOUT else stripe)

    def dir_layout(self, ino: int) -> tuple[int, int]:
        while ino in self.dirs:
            attr = self.dirs[ino].attr
            if attr.layout != NO_LAYOUT or ino == ROOT:
                return attr.layout, attr.stripe
            ino = self.dirs[ino].parent
        return NO_LAYOUT, 0

    # ── moving ─────────────────────────────────────────────────────────────────────────────────────

    def export_partition(self, p: int) -> Any:
        also = {self.node}
        return (
            p,
            self.serials[p],
            {k: replace(e, watchers=e.watchers | also) for k, e in self.entries.items() if self.name_partition(*k) == p},
            {
                i: replace(
                    n,
                    watchers=n.watchers | also,
                    users=set(n.users),
                    holders=set(n.holders),
                    xattrs=dict(n.xattrs),
                    timed=0,
                    atimed=0,
                )
                for i, n in self.inodes.items()
                if self.ino_partition(i) == p
            },
            {k: owner for k, owner in self.locks.items() if self.name_partition(*k) == p},
        )

    def import_(self, exported: Any) -> None:
        p, serial, entries, inodes, locks = exported
        self.serials[p] = max(self.serials[p], serial)
        for record in (*entries.values(), *inodes.values()):
            record.watchers.discard(self.node)
        self.entries |= entries
        self.inodes |= inodes
        self.locks = locks | self.locks

    def drop(self, p: int) -> None:
        self.entries = {k: e for k, e in self.entries.items() if self.name_partition(*k) != p}
        self.inodes = {i: n for i, n in self.inodes.items() if self.ino_partition(i) != p}
        self.locks = {k: owner for k, owner in self.locks.items() if self.name_partition(*k) != p}

    def forget_node(self, node: int) -> set[int]:
        for entry in self.entries.values():
            entry.watchers.discard(node)
        for dir in self.dirs.values():
            dir.watchers.discard(node)
        lost = set()
        for ino, inode in list(self.inodes.items()):
            wrote, held = inode.attr.writer == node, node in inode.holders
            for nodes in (inode.watchers, inode.users, inode.holders):
                nodes.discard(node)
            if wrote:
                inode.attr = inode.attr._replace(writer=-1, finished=1)
            attr = inode.attr
            if attr.layout == WHOLE:
                closed_empty = inode.secured and attr.copies > 1 and not attr.size
                now_lost = not inode.holders and attr.writer < 0 and ((wrote and not closed_empty) or (held and attr.size > 0))
            else:
                owners = {self.owners[self.stripe_partition(ino, i)] for i in range(min(-(-attr.size // attr.stripe), len(self.owners)))}
                now_lost = (wrote and not (inode.secured and attr.copies > 1)) or (attr.copies <= 1 and node in owners)
            inode.lost = inode.lost or now_lost
            if inode.lost and attr.finished:
                inode.attr = attr._replace(finished=LOST)
            if self.gone(ino) or now_lost:
                lost.add(ino)
        return lost

    # ── at once ────────────────────────────────────────────────────────────────────────────────────

    def _may_open(self, inode: Inode, writing: bool) -> None:
        attr = inode.attr
        refuse_if(inode.lost or attr.layout != WHOLE or attr.writer not in (-1, self.node), META_BUSY)
        refuse_if(self.node not in inode.holders and (inode.holders or (attr.writer < 0 and attr.size)), META_BUSY)
        refuse_if(writing and attr.writer < 0 and not self.alone(inode.watchers), META_BUSY)

    def open_here(self, ino: int, writing: bool) -> Attr:
        if not self.mine(self.ino_partition(ino)) and not writing:
            attr, replica = self.copies.get(ino, (Attr(), False))
            refuse_if(not (replica and attr.finished), META_NOT_MINE)
            return attr
        inode = self.file_here(ino, content=True)
        self._may_open(inode, writing)
        inode.users.add(self.node)
        inode.watchers.add(self.node)
        if writing and inode.attr.writer < 0:
            inode.attr = inode.attr._replace(writer=self.node, finished=0)
            inode.secured = False
            inode.timed = inode.atimed = 0
        return inode.attr

    def setattr_here(self, ino: int, mask: int, new: Attr, now: int) -> Attr:
        if ino in self.dirs and self.mine(self.ino_partition(ino)):
            refuse_if(mask & (META_SET_SIZE | META_SET_BLOCKS | META_SET_LAYOUT | META_SET_COPIES), errno.EISDIR)
            everything = all(owner == self.node for owner in self.owners) and not self.moving
            refuse_if(not everything or not self.alone(self.dirs[ino].watchers), META_BUSY)
            self.dir_set(ino, mask, new, now)
            return self.dir_value(ino)
        inode = self.file_here(ino)
        self._check_set(inode, mask, new)
        refuse_if(mask & (META_SET_LAYOUT | META_SET_RANK | META_SET_COPIES) or not self.alone(inode.watchers), META_BUSY)
        refuse_if(mask & (META_SET_ATIME | META_SET_MTIME) and not self.alone(inode.holders), META_BUSY)
        if mask & META_SET_SIZE:
            self._may_open(inode, True)
            refuse_if(inode.attr.writer < 0 and (inode.attr.copies > 1 or not self.alone(inode.holders)), META_BUSY)
        self._set(inode, mask, new, now, self.node)
        return inode.attr
