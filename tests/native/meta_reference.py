"""The metadata shard once more, in plain dictionaries and as slow as it likes: fsmeta.h, for test_meta_model.py to compare."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

from meta_reference_inodes import Inodes
from meta_reference_spreads import Spreads
from meta_reference_state import Inode, refuse_if

from amfs.vocabulary.attr import (
    LOST,
    META_BUSY,
    META_NOT_MINE,
    META_SET_ATIME,
    META_SET_BLOCKS,
    META_SET_COPIES,
    META_SET_LAYOUT,
    META_SET_MTIME,
    META_SET_RANK,
    META_SET_SIZE,
    WHOLE,
    Attr,
)


class Reference(Spreads, Inodes):
    """One shard. Methods and answers are those of amfs._native.Meta; refusals are Refused."""

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
                copied = attr.copies > 1
                closed_empty = inode.secured and copied and not attr.size
                alone = not inode.holders and ((wrote and not closed_empty) or (held and attr.size > 0))
                now_lost = attr.writer < 0 and ((wrote and not copied) or alone)
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
        refuse_if(writing and attr.writer < 0 and not (self.alone(inode.watchers) and self.alone(inode.holders)), META_BUSY)

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
