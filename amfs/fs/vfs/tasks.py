"""Files of the file system as inputs and outputs of staged tasks: the same bytes under another name. Pure.

A task's input is linked from the part that lies here (brought first, if need be) into the store of its run; a task's output becomes a
file by a link of the run's store. Only what is striped, or written elsewhere at the moment, is copied.
"""

from __future__ import annotations

import errno
import stat

from amfs.fs.attr import maker
from amfs.fs.openflags import O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from amfs.fs.vfs.calls import Answer, Operation, Sleep, Work, failure
from amfs.fs.vfs.contents import LOCAL, Opened, Request
from amfs.fs.vfs.moving import Moving

UNFINISHED_S = 60.0  # an input that somebody still writes is waited for
PAUSE_S = 0.05


class Tasks(Moving):
    """Moves files between the file system and the runs of this node."""

    def move_for_task(self, inward: bool, path: bytes, key: str, answer: Answer) -> None:
        """``inward``: have the content of ``path`` in the run's store as ``key``; else the other way round. Answers the size."""
        request = Request(("task", key), 0, 0, self.clock())
        self.spawn(self._stage_in(request, path, key) if inward else self._take_out(request, path, key), answer)

    def _stage_in(self, r: Request, path: bytes, key: str) -> Operation:
        yield from self.introduced()
        end = self.now + UNFINISHED_S
        while True:
            attr = yield from self._walk(r, path, True)
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.EISDIR if stat.S_ISDIR(attr.mode) else errno.EINVAL)
            if attr.pending and maker(attr.pending) not in self.live:
                raise failure(errno.ENOENT)  # left by a task that died with its node
            if attr.finished and not attr.pending:
                break
            if self.now >= end:
                node = maker(attr.pending) if attr.pending else attr.writer
                raise OSError(errno.EBUSY, f"is still being written on node {node} after {UNFINISHED_S:g} s")
            yield Sleep(PAUSE_S)
        opened: Opened = yield from self.op_open(r, attr.ino, O_RDONLY)
        try:
            size = yield Work("to_store", (attr.ino, *opened, attr.mode, key))
        finally:
            self.spawn(self._close(r, attr.ino, False, None))
        return size

    def _take_out(self, r: Request, path: bytes, key: str) -> Operation:
        yield from self.introduced()
        uid, gid, mode, above_mode = yield Work("owner_of_store", (key,))
        r = Request(r.face, uid, gid, r.now)
        above = path.rpartition(b"/")[0]
        if above:
            yield from self.op_mkdir_path(r, above, above_mode, True)
        number, attr = yield from self.op_open_path(r, path, O_WRONLY | O_CREAT | O_TRUNC, mode, -1, 0, -1)
        here = attr.writer in (-1, self.node) and self._of(r, number).kind == LOCAL
        failed: OSError | None = None
        size = 0
        try:
            size = yield Work("from_store", (number, key, attr.ino if here else 0))
        except OSError as error:
            failed = error
        yield from self._closed_whole(r, number, path, failed)
        return size
