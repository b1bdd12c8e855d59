"""State of a reference of the metadata shard: its records, where partitions are, and how its parts look things up."""

from __future__ import annotations

import errno
import stat
from dataclasses import dataclass, field

import xxhash

from amfs.vocabulary.attr import (
    META_BUSY,
    META_NOT_MINE,
    META_SET_ATIME,
    META_SET_CTIME,
    META_SET_GID,
    META_SET_MODE,
    META_SET_MTIME,
    META_SET_RANK,
    META_SET_UID,
    NO_LAYOUT,
    ROOT,
    STRIPED,
    WHOLE,
    Attr,
)

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
    secured: bool = False  # in stripes, or empty: the record has the writes before a program closed it
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
    """setattr on any inode."""
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


class State:
    """State of one shard, used by all parts of the reference."""

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

    def dir_copies(self, ino: int) -> int:
        while ino in self.dirs:
            if self.dirs[ino].copies or ino == ROOT:
                return self.dirs[ino].copies or 1
            ino = self.dirs[ino].parent
        return 1

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
