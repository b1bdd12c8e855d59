"""The reference of the metadata shard: records of files with their extended attributes, and copies of other shards' records."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from meta_reference_state import Dir, Inode, Nodes, Refused, State, owned, refuse_if, striped_wrongly, without_setid

from amfs.vocabulary.attr import (
    COPIES_MAX,
    LOST,
    META_NOT_MINE,
    META_SET_ATIME,
    META_SET_BLOCKS,
    META_SET_COPIES,
    META_SET_LAYOUT,
    META_SET_MTIME,
    META_SET_SIZE,
    STRIPED,
    WHOLE,
    Attr,
)


class Inodes(State):
    """Records of files of one shard."""

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

    def add_holder(self, ino: int, node: int, grant: int) -> None:
        """``grant``: asked just now."""
        inode = self.file_here(ino, content=True)
        known = node in inode.watchers or node in inode.holders
        refuse_if(inode.attr.finished != 1 or inode.attr.layout != WHOLE or not known, errno.EAGAIN)
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
        self.copies[attr.ino] = attr, bool(replica or (had and same)) and attr.finished != LOST
        self.used_number(attr.ino)

    def cached(self, ino: int) -> tuple[Attr, bool]:
        refuse_if(ino not in self.copies, errno.ENOENT)
        return self.copies[ino]

    def uncache(self, ino: int) -> bool:
        refuse_if(ino not in self.copies, errno.ENOENT)
        return self.copies.pop(ino)[1]
