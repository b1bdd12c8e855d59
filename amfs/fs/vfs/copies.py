"""Whole copies of finished files, brought to a node or deleted there because somebody says so: the steps of collective movements. Pure.

Such a copy is what a node gets that opens a file to read it: recorded as a holder, forgotten when the file changes.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Sequence
from typing import Any

from amfs.fs.attr import LOST, STRIPED
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Work, failure
from amfs.fs.vfs.contents import Request
from amfs.fs.vfs.paths import Paths
from amfs.fs.vfs.shard import attr_of

FILES_MAX = 1024  # in one request


class Copies(Paths):
    """Brings and deletes whole copies."""

    def op_where(self, r: Request, inodes: Sequence[int]) -> Operation:
        """Who lives, and of each file an errno or (size, striped, holders). EBUSY: it is being written; EIO: its content is lost."""
        found: list[Any] = []
        for ino in inodes[:FILES_MAX]:
            try:
                found.append((yield from self._where(int(ino))))
            except OSError as error:
                found.append(error.errno or errno.EIO)
        return sorted(self.live), found

    def _where(self, ino: int) -> Operation:
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        if attr.finished == LOST:
            raise failure(errno.EIO)
        if not attr.finished:
            raise failure(errno.EBUSY)
        holders = () if attr.layout == STRIPED else (yield from self.at_ino("holders", ino))
        return attr.size, attr.layout == STRIPED, [int(node) for node in holders]

    def op_bring(self, r: Request, node: int, source: int, inodes: Sequence[int]) -> Operation:
        """Have ``node`` fetch whole copies from ``source``; an errno for each, 0: it has it. Repeatable. An answer that takes longer than a
        question may is ETIMEDOUT: the node goes on meanwhile, and who asks again waits for that."""
        return (yield Ask(node, "bring", (source, tuple(inodes)[:FILES_MAX])))

    def s_bring(self, peer: int, source: int, inodes: Sequence[int]) -> Operation:
        answers = yield All([Ask(self.node, "bring_one", (source, ino)) for ino in inodes])
        return [(answer.errno or errno.EIO) if isinstance(answer, OSError) else 0 for answer in answers]

    def s_bring_one(self, peer: int, source: int, ino: int) -> Operation:
        key = ("bringing", ino)
        self._begin_opening(ino, False)
        try:
            yield from self._await_told(ino)
            yield Acquire(key)
            try:
                yield from self._bring(ino, source)
            finally:
                self.release(key)
        finally:
            self._end_opening(ino, False)

    def _bring(self, ino: int, source: int) -> Operation:
        answer, answered, _, lost, known = yield from self.at_ino("open", ino, False)
        attr, holders = attr_of(answer), [int(node) for node in answered]
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        if lost:
            raise failure(errno.EIO)
        if attr.writer >= 0 or not attr.finished:
            raise failure(errno.EBUSY)
        if self.node in holders or attr.layout == STRIPED:
            return
        if self.is_behind(known) or (attr.size and source not in holders):
            raise failure(errno.ESTALE)  # who asks has an old picture
        if attr.size:
            yield Work("fetch", (ino, source, attr.size, attr.atime, attr.mtime))
        else:
            yield Work("make", (ino, attr.atime, attr.mtime))
        since = self.meta.moment()
        try:
            now = yield from self.at_ino("hold", ino)
        except OSError:
            self.tell(Work("drop_whole", (ino,)))
            raise
        if self.meta.owner(self.meta.ino_partition(ino)) != self.node:
            self.meta.cache(tuple(now), True, since)

    def op_spare(self, r: Request, node: int, inodes: Sequence[int]) -> Operation:
        """Have ``node`` delete its copies, of each only if others have it and nobody uses it there. Answers how many it has deleted."""
        return (yield Ask(node, "spare_copies", (tuple(inodes)[:FILES_MAX],)))

    def s_spare_copies(self, peer: int, inodes: Sequence[int]) -> Operation:
        count = 0
        for ino in inodes:
            count += bool((yield from self._give_up(ino)))
        return count
