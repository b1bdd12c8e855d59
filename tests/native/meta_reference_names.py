"""The reference of the metadata shard: entries of directories, with their locks, and the directories, which all nodes have."""

from __future__ import annotations

import errno
import stat
from typing import Any

from meta_reference_state import SHIFT, Dir, Entry, Inode, Nodes, Refused, State, owned, refuse_if, striped_wrongly

from amfs.vocabulary.attr import (
    COPIES_MAX,
    META_BUSY,
    META_NOT_MINE,
    META_SET_BLOCKS,
    META_SET_COPIES,
    META_SET_LAYOUT,
    META_SET_MTIME,
    META_SET_SIZE,
    NO_LAYOUT,
    ROOT,
    WHOLE,
    Attr,
)

NOREPLACE, EXCHANGE = 1, 2


class Names(State):
    """Names and directories of one shard."""

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

    def dir_set_copies(self, ino: int, copies: int) -> None:
        refuse_if(copies > COPIES_MAX, errno.EINVAL)
        refuse_if(ino not in self.dirs, errno.ENOTDIR)
        self.dirs[ino].copies = copies

    def dir_layout(self, ino: int) -> tuple[int, int]:
        while ino in self.dirs:
            attr = self.dirs[ino].attr
            if attr.layout != NO_LAYOUT or ino == ROOT:
                return attr.layout, attr.stripe
            ino = self.dirs[ino].parent
        return NO_LAYOUT, 0
