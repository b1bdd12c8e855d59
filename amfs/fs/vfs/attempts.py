"""What attempts at blind tasks have made and have looked for in vain: published when they end well, else taken back. Pure.

A blind task declares no files. The mount of its node writes down what it does (csrc/fuse/fuse_tasks.c). What it makes bears the mark of the
attempt (``Attr.pending``), and is not there for other blind tasks until the attempt has ended well. Shards compare the marks, so an attempt
publishes and removes nothing that another has taken over meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from amfs.fs.attr import META_BUSY, META_NOT_MINE, PENDING_NODE_SHIFT, ROOT, Attr, maker
from amfs.fs.openflags import O_APPEND, O_EXCL, O_TRUNC
from amfs.fs.vfs.calls import All, Answer, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.contents import Request
from amfs.fs.vfs.shard import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, attr_of
from amfs.fs.vfs.tasks import Tasks

#: ``Made.kind``, as csrc/launcher/attempts.h. RENAMED: another name for what was there before the attempt; it stays.
FILE, LINK, DIRECTORY, RENAMED = 1, 2, 3, 4

NAMES_MAX = 1024  # paths of new files that one result carries; whoever waits for another finds it by looking


#: Is an attempt that ended well to be doubted if it looked for this path in vain?
Needs = Callable[[str], bool]


class Made(NamedTuple):
    """Something that an attempt made and has not removed itself."""

    kind: int
    dir: int
    name: bytes
    ino: int


class Traces(NamedTuple):
    """What one attempt did, as paths."""

    missing: tuple[str, ...] = ()  # what it looked for in vain, if it failed; last what it looked for last
    made: tuple[str, ...] = ()  # what is there now, if it ended well
    doubted: bool = False  # it ended well, and is taken to have failed: it should have had what is missing


class Attempts(Tasks):
    """Ends attempts, and lets one take over what another has left."""

    def end_attempt(
        self, number: int, good: bool, made: Sequence[Any], missed: Sequence[Any], answer: Answer, needs: Needs | None = None
    ) -> None:
        """An attempt of this node has ended, and has no process any more. ``made``: as ``Made``; ``missed``: (directory, name). Answers
        ``Traces`` when what it made is there for all, or gone."""
        self.spawn(self._end_attempt(number, good, [Made(*one) for one in made], missed, needs), answer)

    def _end_attempt(self, number: int, good: bool, made: list[Made], missed: Sequence[Any], needs: Needs | None) -> Operation:
        pending = (self.node + 1) << PENDING_NODE_SHIFT | number
        missing = [path for dir, name in missed if (path := self._path_of(dir, bytes(name)))]  # before directories go
        if good:
            missing = [path for path in missing if needs(path)] if needs is not None else []
        if not good or missing:
            yield from self._take_back(pending, made)
            return Traces(missing=tuple(missing), doubted=good)
        # By a link, too: a program may link a file to its name and remove the name by which it made it.
        there = yield from self._publish(pending, list(dict.fromkeys(one.ino for one in made if one.kind in (FILE, LINK))))
        paths = [self._path_of(one.dir, one.name) for one in made if one.kind not in (FILE, LINK) or one.ino in there]
        return Traces(made=tuple([path for path in paths if path][:NAMES_MAX]))

    def _path_of(self, dir: int, name: bytes) -> str:
        """The path of an entry; '' if its directory is no more."""
        parts = [name]
        try:
            while dir != ROOT:
                parts.append(bytes(self.meta.dir_name(dir)))
                dir = self.meta.dir_get(dir)[1]
        except OSError:
            return ""
        return "/" + b"/".join(reversed(parts)).decode("utf-8", "surrogateescape")

    # ── it ended well ──────────────────────────────────────────────────────────────────────────────

    def _publish(self, pending: int, inodes: list[int]) -> Operation:
        """Those of ``inodes`` that are everybody's now; the others have gone, or another attempt has taken them over."""
        there: set[int] = set()
        end, pause = self.now + PATIENCE_S, PAUSE_FIRST_S
        while inodes:
            by_owner: dict[int, list[int]] = {}
            for ino in inodes:
                by_owner.setdefault(self.meta.owner(self.meta.ino_partition(ino)), []).append(ino)
            answers = yield All([Ask(node, "publish", (pending, tuple(some))) for node, some in by_owner.items()])
            later: list[int] = []
            for some, answer in zip(by_owner.values(), answers, strict=True):
                if isinstance(answer, OSError):
                    if answer.errno not in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                        raise answer
                    later += some  # to do it twice is to do it once
                else:
                    there.update(answer[0])
                    later += answer[1]
            self._uncache(set(inodes) - set(later))
            if later and self.now >= end:
                raise failure(errno.EIO)
            inodes = later
            if inodes:
                yield Sleep(pause)
                pause = min(2 * pause, PAUSE_LAST_S)
        return there

    def s_publish(self, peer: int, pending: int, inodes: Sequence[int]) -> Operation:
        """(those that are there for all now, those that another node has)."""
        there: list[int] = []
        elsewhere: list[int] = []
        tell: set[int] = set()
        for ino in inodes:
            try:
                tell.update(self.meta.set_pending(ino, pending, 0, peer)[1])
            except OSError as error:
                if error.errno in (META_NOT_MINE, META_BUSY):
                    elsewhere.append(ino)
                elif error.errno == errno.EAGAIN and not attr_of(self.meta.getattr(ino, self.node)).pending:
                    there.append(ino)
                continue
            there.append(ino)
        yield from self.told(peer, tell, there)
        return there, elsewhere

    # ── it failed ──────────────────────────────────────────────────────────────────────────────────

    def _take_back(self, pending: int, made: list[Made]) -> Operation:
        """Remove what an attempt made, the last first. What cannot be removed stays: a directory into which others have put something; a
        file that another attempt has taken over."""
        r = Request(("attempt", pending), 0, 0, self.clock())
        for one in reversed(made):
            try:
                if one.kind == DIRECTORY:
                    if self.meta.dir_find(one.dir, one.name)[0] == one.ino:
                        yield from self.op_rmdir(r, one.dir, one.name)
                elif one.kind == LINK or (one.kind == FILE and (yield from self._pending_of(one.ino)) == pending):
                    yield from self._remove_name(r, one.dir, one.name, one.ino)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY):
                    self.log(f"cannot remove {self._path_of(one.dir, one.name)}, which a task that failed has made: {error.strerror}")
        if r.inodes or r.entries:
            self._uncache(r.inodes)
            yield Work("invalidate", (tuple(r.inodes), tuple(r.entries)))

    def _pending_of(self, ino: int) -> Operation:
        return attr_of((yield from self.at_ino("getattr", ino))).pending

    def _remove_name(self, r: Request, dir: int, name: bytes, ino: int) -> Operation:
        """Unlink it if it still names that inode."""
        yield from self.at_name("remove", dir, name, ino, 0)
        self._made(r, dir, name)
        r.inodes.append(ino)
        yield from self.at_ino("link", ino, -1, r.now)

    # ── what an attempt left, and another makes ────────────────────────────────────────────────────

    def op_create(self, r: Request, dir: int, name: bytes, mode: int, flags: int, pending: int = 0) -> Operation:
        if pending:
            yield from self._take_file_over(r, dir, name, flags, pending)
        return (yield from super().op_create(r, dir, name, mode, flags, pending))

    def _take_file_over(self, r: Request, dir: int, name: bytes, flags: int, pending: int) -> Operation:
        """If the name is of a file that another attempt has made and not published, the file belongs to this one from now on. But to append
        to it is to share it with others who do, and so it is everybody's. Of what is to be new (O_EXCL) only an attempt that died with its
        node loses its file."""
        try:
            attr: Attr = yield from self.find(dir, name)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        if attr.pending in (0, pending):
            return
        alive = maker(attr.pending) in self.live
        if flags & O_EXCL:
            if not alive:
                yield from self._remove_name(r, dir, name, attr.ino)
            return
        shares = alive and flags & O_APPEND and not flags & O_TRUNC
        try:
            yield from self.at_ino("set_pending", attr.ino, attr.pending, 0 if shares else pending)
        except OSError as error:
            if error.errno != errno.EAGAIN:  # else it was published meanwhile
                raise
        self._uncache((attr.ino,))

    def s_set_pending(self, peer: int, ino: int, was: int, pending: int) -> Operation:
        _, tell = self.meta.set_pending(ino, was, pending, peer)
        yield from self.told(peer, tell, (ino,))
