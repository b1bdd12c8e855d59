"""Files of the file system as inputs and outputs of staged tasks: the same bytes under another name. Pure.

A task's input is linked from the part that lies here (brought first, if need be) into the store of its run; a task's output becomes a
file by a link of the run's store. Only what is striped, or written elsewhere at the moment, is copied. An output's record keeps which task
made it (``workflow.origin``), and an input whose content was lost says so: its run may have that task make it again.
"""

from __future__ import annotations

import errno
import stat

from amfs.fs.openflags import O_CREAT, O_TRUNC, O_WRONLY
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Calls, Operation, Sleep, failure, work
from amfs.fs.vfs.digests import Digests
from amfs.fs.vfs.handles import Handles
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.paths import Paths
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, Attr, maker
from amfs.vocabulary.events import MoveForTask
from amfs.workflow.origin import ATTRIBUTE, unpack

UNFINISHED_S = 60.0  # an input that somebody still writes is waited for
BROKEN_S = 10.0  # an unreadable or unwritable file is tried again for so long: a node may have died, which is known only later
PAUSE_S = 0.05
BROKEN = (errno.EIO, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ESTALE)


class ContentLost(OSError):
    """The content of a file was lost with a node. ``run``: which run's task had made it; '' if that is not known."""

    def __init__(self, words: str, run: str) -> None:
        super().__init__(errno.EIO, words)
        self.run = run


class TaskFiles:
    """Moves files between the file system and the runs of this node."""

    def __init__(self, calls: Calls, members: Members, owners: Owners, paths: Paths, handles: Handles, digests: Digests) -> None:
        self._calls = calls
        self._members = members
        self._owners = owners
        self._paths = paths
        self._handles = handles
        self._digests = digests

    def move(self, event: MoveForTask) -> Operation[int]:
        """Have the content in the run's store, or in the file system. The size."""
        yield from self._calls.introduced()
        return (yield from self._stage_in(event.path, event.key) if event.inward else self._take_out(event.path, event.key, event.origin))

    def _stage_in(self, path: bytes, key: str) -> Operation[int]:
        end = self._calls.now + UNFINISHED_S
        give_up = 0.0
        while True:
            attr = yield from self._paths.walk(path, True)
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.EISDIR if stat.S_ISDIR(attr.mode) else errno.EINVAL)
            if attr.pending and maker(attr.pending) not in self._members.live:
                raise failure(errno.ENOENT)  # left by a task that died with its node
            if attr.finished == LOST:
                raise (yield from self._lost(attr.ino))
            if attr.finished and not attr.pending:
                try:
                    return (yield from self._link(attr, key))
                except OSError as error:
                    give_up = give_up or self._calls.now + BROKEN_S
                    if error.errno not in BROKEN or self._calls.now >= give_up:
                        raise
                yield Sleep(PAUSE_S)
                continue
            if self._calls.now >= end:
                node = maker(attr.pending) if attr.pending else attr.writer
                raise OSError(errno.EBUSY, f"is still being written on node {node} after {UNFINISHED_S:g} s")
            yield Sleep(PAUSE_S)

    def _link(self, attr: Attr, key: str) -> Operation[int]:
        ino, mode = attr.ino, attr.mode
        return (yield from self._digests.read_whole(ino, ("task", key), lambda opened: w.ToStore(ino, opened, mode, key)))

    def _lost(self, ino: int) -> Operation[ContentLost]:
        words = f"its content was lost with {self._members.who_died()}"
        try:
            origin = unpack((yield from self._owners.ask(p.GetXattr(ino, ATTRIBUTE))))
        except OSError:
            origin = None
        if origin is None:
            return ContentLost(words, "")
        return ContentLost(f"{words} ('amfs explain' says how it was made)", origin.run)

    def _take_out(self, path: bytes, key: str, origin: bytes) -> Operation[int]:
        """To do it twice is to do it once: the node that has the name, or the record, may die meanwhile; and a directory that another node
        makes at this moment may not have come here (ENOENT)."""
        give_up = 0.0
        while True:
            try:
                return (yield from self._fill(path, key, origin))
            except OSError as error:
                give_up = give_up or self._calls.now + BROKEN_S
                if error.errno not in (*BROKEN, errno.ENOENT) or self._calls.now >= give_up:
                    raise
            yield Sleep(PAUSE_S)

    def _fill(self, path: bytes, key: str, origin: bytes) -> Operation[int]:
        uid, gid, mode, above_mode = yield from work(w.OwnerOfStored(key))
        caller = Caller(("task", key), uid, gid, self._calls.wall)
        above = path.rpartition(b"/")[0]
        if above:
            yield from self._paths.mkdir(caller, above, above_mode, True)
        handle, attr = yield from self._handles.open(caller, path, O_WRONLY | O_CREAT | O_TRUNC, mode, put=True)
        here = attr.writer in (-1, self._members.node) and self._handles.is_local(handle)
        return (yield from self._handles.fill(caller, handle, path, w.FromStore(handle, key, attr.ino if here else 0), origin))
