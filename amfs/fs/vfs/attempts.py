"""Files that attempts at blind tasks have made, or have looked for in vain: published when they end well, else taken back. Pure.

A blind task declares no files. The mount of its node writes down what it does (csrc/fuse/fuse_tasks.c). Its files bear the mark of the
attempt (``Attr.pending``), and is not there for other blind tasks until the attempt has ended well. Shards compare the marks, so an attempt
publishes and removes nothing that another has taken over meanwhile.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from amfs._native import Meta
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import (
    PATIENCE_S,
    PAUSE_FIRST_S,
    PAUSE_LAST_S,
    Calls,
    Operation,
    Sleep,
    ask,
    failure,
    together,
    work,
)
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import PENDING_NODE_SHIFT, ROOT
from amfs.vocabulary.events import EndAttempt, Traces

#: ``Made.kind``, as csrc/launcher/attempts.h. RENAMED: another name for what was there before the attempt; it stays.
FILE, LINK, DIRECTORY, RENAMED = 1, 2, 3, 4

NAMES_MAX = 1024  # paths of new files that one result carries; a task that waits for another file finds it by looking


class Made(NamedTuple):
    """Something that an attempt made and has not removed itself."""

    kind: int
    dir: int
    name: bytes
    ino: int


class Attempts:
    """Ends attempts."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches, namespace: Namespace) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._namespace = namespace

    def end(self, event: EndAttempt) -> Operation[Traces]:
        """An attempt of this node has ended, and has no process any more. Answers when its files are there for all, or gone."""
        good, needs = event.good, event.needs
        number = event.ended.number
        made = [Made(*one) for one in event.ended.made]
        pending = (self._members.node + 1) << PENDING_NODE_SHIFT | number
        missing = [path for dir, name in event.ended.missed if (path := self._path_of(dir, name))]  # before directories go
        if good:
            missing = [path for path in missing if needs(path)] if needs is not None else []
        if not good or missing:
            yield from self._take_back(pending, made)
            return Traces(missing=tuple(missing), doubted=good)
        # By a link, too: a program may link a file to its name and remove the name by which it made it.
        inodes = list(dict.fromkeys(one.ino for one in made if one.kind in (FILE, LINK)))
        there = yield from self._publish(pending, inodes, event.origin)
        paths = [self._path_of(one.dir, one.name) for one in made if one.kind not in (FILE, LINK) or one.ino in there]
        return Traces(made=tuple([path for path in paths if path][:NAMES_MAX]))

    def _path_of(self, dir: int, name: bytes) -> str:
        """The path of an entry; '' if its directory is no more."""
        parts = [name]
        try:
            while dir != ROOT:
                parts.append(self._meta.dir_name(dir))
                dir = self._meta.dir_get(dir)[1]
        except OSError:
            return ""
        return "/" + b"/".join(reversed(parts)).decode("utf-8", "surrogateescape")

    # ── it ended well ──────────────────────────────────────────────────────────────────────────────

    def _publish(self, pending: int, inodes: list[int], origin: bytes) -> Operation[set[int]]:
        """Those of ``inodes`` that are everybody's now; the others have gone, or another attempt has taken them over."""
        there: set[int] = set()
        end, pause = self._calls.now + PATIENCE_S, PAUSE_FIRST_S
        while inodes:
            by_owner: dict[int, list[int]] = {}
            for ino in inodes:
                by_owner.setdefault(self._owners.of_inode(ino), []).append(ino)
            answers = yield from together([ask(node, p.Publish(pending, tuple(some), origin)) for node, some in by_owner.items()])
            later: list[int] = []
            for some, answer in zip(by_owner.values(), answers, strict=True):
                if isinstance(answer, OSError):
                    if answer.errno not in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                        raise answer
                    later += some  # to do it twice is to do it once
                else:
                    there.update(answer.there)
                    later += answer.elsewhere
            self._caches.uncache(set(inodes) - set(later))
            if later and self._calls.now >= end:
                raise failure(errno.EIO)
            inodes = later
            if inodes:
                yield Sleep(pause)
                pause = min(2 * pause, PAUSE_LAST_S)
        return there

    # ── it failed ──────────────────────────────────────────────────────────────────────────────────

    def _take_back(self, pending: int, made: list[Made]) -> Operation[None]:
        """Remove what an attempt made, the last first. A directory stays into which others have put something, and a
        file that another attempt has taken over."""
        caller = Caller(("attempt", pending), 0, 0, self._calls.wall)
        for one in reversed(made):
            try:
                if one.kind == DIRECTORY:
                    if self._meta.dir_find(one.dir, one.name)[0] == one.ino:
                        yield from self._namespace.rmdir(caller, one.dir, one.name)
                elif one.kind == LINK or (one.kind == FILE and (yield from self._owners.ask(p.Getattr(one.ino))).pending == pending):
                    yield from self._namespace.remove_name(caller, one.dir, one.name, one.ino)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY):
                    path = self._path_of(one.dir, one.name)
                    self._calls.log(f"cannot remove {path}, which a task that failed has made: {error.strerror}")
        if caller.inodes or caller.entries:
            self._caches.uncache(caller.inodes)
            yield from work(w.Invalidate(tuple(caller.inodes), tuple(caller.entries)))
