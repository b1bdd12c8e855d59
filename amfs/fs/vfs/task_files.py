"""Files of the file system as inputs and outputs of staged tasks: the same bytes under another name. Pure.

A task's input is linked from the part that lies here (brought first, if need be) into the store of its run; a task's output becomes a
file by a link of the run's store. Only what is striped, or written elsewhere at the moment, is copied.
"""

from __future__ import annotations

import errno
import stat

from amfs.engine import fs_works as w
from amfs.engine.attr import LOST, maker
from amfs.engine.events import MoveForTask
from amfs.fs.openflags import O_CREAT, O_TRUNC, O_WRONLY
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Calls, Operation, Sleep, failure, work
from amfs.fs.vfs.digests import Digests
from amfs.fs.vfs.handles import Handles
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.paths import Paths

UNFINISHED_S = 60.0  # an input that somebody still writes is waited for
PAUSE_S = 0.05


class TaskFiles:
    """Moves files between the file system and the runs of this node."""

    def __init__(self, calls: Calls, members: Members, paths: Paths, handles: Handles, digests: Digests) -> None:
        self._calls = calls
        self._members = members
        self._paths = paths
        self._handles = handles
        self._digests = digests

    def move(self, event: MoveForTask) -> Operation[int]:
        """Have the content in the run's store, or in the file system. The size."""
        yield from self._calls.introduced()
        return (yield from self._stage_in(event.path, event.key) if event.inward else self._take_out(event.path, event.key))

    def _stage_in(self, path: bytes, key: str) -> Operation[int]:
        end = self._calls.now + UNFINISHED_S
        while True:
            attr = yield from self._paths.walk(path, True)
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.EISDIR if stat.S_ISDIR(attr.mode) else errno.EINVAL)
            if attr.pending and maker(attr.pending) not in self._members.live:
                raise failure(errno.ENOENT)  # left by a task that died with its node
            if attr.finished == LOST:
                raise OSError(errno.EIO, f"its content was lost with {self._members.who_died()}")
            if attr.finished and not attr.pending:
                break
            if self._calls.now >= end:
                node = maker(attr.pending) if attr.pending else attr.writer
                raise OSError(errno.EBUSY, f"is still being written on node {node} after {UNFINISHED_S:g} s")
            yield Sleep(PAUSE_S)
        ino, mode = attr.ino, attr.mode
        return (yield from self._digests.read_whole(ino, ("task", key), lambda opened: w.ToStore(ino, opened, mode, key)))

    def _take_out(self, path: bytes, key: str) -> Operation[int]:
        uid, gid, mode, above_mode = yield from work(w.OwnerOfStored(key))
        caller = Caller(("task", key), uid, gid, self._calls.wall)
        above = path.rpartition(b"/")[0]
        if above:
            yield from self._paths.mkdir(caller, above, above_mode, True)
        handle, attr = yield from self._handles.open(caller, path, O_WRONLY | O_CREAT | O_TRUNC, mode)
        here = attr.writer in (-1, self._members.node) and self._handles.is_local(handle)
        return (yield from self._handles.fill(caller, handle, path, w.FromStore(handle, key, attr.ino if here else 0)))
