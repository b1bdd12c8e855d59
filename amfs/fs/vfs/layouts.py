"""Moving a file's bytes without changing them: whole to stripes and back, and to another node. Pure.

The node that moves the bytes is the only writer of the file meanwhile; other nodes that open it to write wait until it is done.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable

from amfs.fs.attr import META_SET_RANK, STRIPED, WHOLE, Attr
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Work, failure
from amfs.fs.vfs.contents import Request
from amfs.fs.vfs.files import Files
from amfs.fs.vfs.shard import UNSTRIPED, attr_of

#: What is done: with the record and the holders; answers as ``stripe`` of ``s_closed``.
Change = Callable[[Attr, list[int]], Operation]


class Layouts(Files):
    """Changes where the content of files lies."""

    def _as_writer(self, ino: int, change: Change) -> Operation:
        """Do it while nobody else writes the file. False: somebody does."""
        closing, bringing = ("closing", ino), ("bringing", ino)
        self._begin_opening(ino, True)
        try:
            yield from self._await_told(ino)
            yield Acquire(bringing)
            yield Acquire(closing)  # who is to be let in as this node waits for this
            self.meta.closing(ino)
            try:
                answer = yield from self.at_ino("open_alone", ino)
                if answer is None:
                    return False
                attr, holders, known = attr_of(answer[0]), answer[1], answer[2]
                self._uncache((ino,))
                try:
                    if self.is_behind(known):
                        raise failure(errno.EBUSY)  # its shard has not heard yet which node has died
                    stripe = yield from change(attr, [int(node) for node in holders])
                except OSError:
                    yield from self.at_ino("step_back", ino)
                    raise
                yield from self.at_ino("closed", ino, (attr.size, attr.blocks, 0, 0), stripe, True, known, False)
                self.tell(Work("end_recorded", (ino,)))
            finally:
                self.meta.closed(ino)
                self.release(closing)
                self.release(bringing)
        finally:
            self._end_opening(ino, True)
        return True

    # ── stripes ────────────────────────────────────────────────────────────────────────────────────

    def _set_layout(self, r: Request, ino: int, layout: int, stripe: int) -> Operation:
        """EBUSY: it is being written."""
        if self._is_directory(ino):
            yield from self._manager("dirchange", ("layout", ino, layout, stripe))
            return
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        if attr.writer >= 0:
            raise failure(errno.EBUSY)
        if attr.layout == layout and (layout == WHOLE or attr.stripe == stripe):
            return
        r.inodes.append(ino)
        if attr.layout == WHOLE and attr.size:
            holders = yield from self.at_ino("holders", ino)
            living = [node for node in holders if node in self.live]
            if holders and not living:
                raise failure(errno.EIO)
            done = bool(living) and (yield Ask(living[0], "restripe", (ino, stripe)))
        else:
            done = yield from self._as_writer(ino, lambda attr, holders: self._lay(attr, layout, stripe))
        if not done:
            raise failure(errno.EBUSY)

    def _lay(self, attr: Attr, layout: int, stripe: int) -> Operation:
        """A file that is empty, or lies in stripes."""
        if attr.size and attr.layout == WHOLE:
            raise failure(errno.EBUSY)  # written since we looked
        if attr.size and layout == STRIPED:
            raise failure(errno.EOPNOTSUPP)  # one stripe size to another: make it whole first
        if attr.size:
            yield Work("gather", (attr.ino, attr.stripe, attr.size))
            yield All([Ask(node, "drop_stripes", (attr.ino,)) for node in self.live])
        if layout == WHOLE:
            return UNSTRIPED
        yield Work("drop_whole", (attr.ino,))  # an empty one
        return stripe

    def s_restripe(self, peer: int, ino: int, stripe: int) -> Operation:
        """Lay a whole file of this node in stripes. False: it is being written, or does not lie here any more."""

        def lay(attr: Attr, holders: list[int]) -> Operation:
            if attr.layout == WHOLE and self.node not in holders:
                raise failure(errno.EAGAIN)
            if attr.layout == WHOLE:
                yield Work("restripe", (ino, stripe))
                return stripe
            return 0

        try:
            return (yield from self._as_writer(ino, lay))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            return False

    def s_drop_stripes(self, peer: int, ino: int) -> Operation:
        yield Work("drop_stripes", (ino,))

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def _place(self, r: Request, ino: int, node: int) -> Operation:
        """Pin a file to ``node`` (-1: nowhere); content that it has goes there."""
        if node != -1 and node not in self.live:
            raise failure(errno.ENXIO)
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        r.inodes.append(ino)
        yield from self.at_ino("setattr", ino, META_SET_RANK, tuple(attr._replace(rank=node)), r.now)
        if node >= 0 and attr.size and attr.layout == WHOLE and attr.writer < 0:
            yield Ask(node, "take", (ino,))

    def s_take(self, peer: int, ino: int) -> Operation:
        """Become the only holder of a whole file. EBUSY: it is being written (EAGAIN would be ENOTSUP to who sets an attribute)."""
        if not (yield from self._as_writer(ino, self._fetch)):
            raise failure(errno.EBUSY)

    def _fetch(self, attr: Attr, holders: list[int]) -> Operation:
        if attr.layout == STRIPED or not attr.size or self.node in holders:
            return 0
        for node in holders:
            if node not in self.live:
                continue
            try:
                yield Work("fetch", (attr.ino, node, attr.size, attr.atime, attr.mtime))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise
                continue
            return 0
        raise failure(errno.EIO if not self.live.intersection(holders) else errno.EBUSY)
