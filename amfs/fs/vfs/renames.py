"""Renaming: files between the shards of their names, directories by the manager. Pure.

A mount renames a file by itself where it can (csrc/fuse/fuse_rename.c), and leaves the rest to this.
"""

from __future__ import annotations

import errno
import stat
from typing import Any

from amfs._native import Meta
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, number_of, together
from amfs.fs.vfs.directories import RENAME_EXCHANGE, RENAME_NOREPLACE, Directories
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE


class Renames:
    """Gives files and directories other names."""

    def __init__(
        self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches, directories: Directories
    ) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._directories = directories
        calls.serve(p.RenameFile.by(self._rename_file))

    def rename(self, caller: Caller, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int) -> Operation[None]:
        if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE) or flags == RENAME_NOREPLACE | RENAME_EXCHANGE:
            raise failure(errno.EINVAL)
        names = (dir, name), (to_dir, to_name)
        in_tree = any(self._directories.number_of(*one) for one in names)
        end, pause = self._calls.now + PATIENCE_S, PAUSE_FIRST_S
        while True:
            try:
                yield from (self._rename_in_tree if in_tree else self._rename_files)(caller, dir, name, to_dir, to_name, flags)
                return caller.changed(*names)
            except OSError as error:
                # A name has just become a directory's, or is one no more, and this node has not heard. Or the directory is being made.
                if error.errno != errno.EBUSY or self._calls.now >= end:
                    raise
            in_tree = not in_tree
            yield Sleep(pause)
            pause = min(2 * pause, PAUSE_LAST_S)

    def _rename_in_tree(self, caller: Caller, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int) -> Operation[None]:
        found = yield from together([self._owners.ask(p.Lookup(*one)) for one in ((dir, name), (to_dir, to_name))])
        ino = self._directories.number_of(dir, name) if not flags & RENAME_EXCHANGE else 0  # to exchange twice is to do nothing
        call = p.Rename(dir, name, to_dir, to_name, flags, caller.now)
        yield from self._directories.ask_manager(call, lambda: ino == self._directories.number_of(to_dir, to_name) if ino else None)
        self._directories.remember_touch(caller.now, dir, to_dir)
        caller.inodes += [one.ino for one in found if not isinstance(one, OSError)]

    def _rename_files(self, caller: Caller, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int) -> Operation[None]:
        ino, replaced = yield from self._owners.ask(p.RenameFile(dir, name, to_dir, to_name, flags, caller.now))
        caller.inodes += [ino, replaced] if replaced else [ino]
        if replaced:
            self._caches.uncache((replaced,))
        self._directories.touch(dir, caller.now)
        if to_dir != dir:
            self._directories.touch(to_dir, caller.now)

    def _rename_file(self, peer: int, call: p.RenameFile) -> Operation[p.Moved]:
        """At the owner of the name. Nearly always the record is here, and nobody has the other name: one question to its owner will do."""
        if not call.flags & RENAME_EXCHANGE and (ino := (yield from self._rename_to_new(peer, call))):
            return p.Moved(ino, 0)
        return (yield from self._rename_under_locks(peer, call))

    def _rename_to_new(self, peer: int, call: p.RenameFile) -> Operation[int]:
        """The inode, or 0: this is not the case. Then nothing has been changed."""
        dir, name, ask_owner, owner = call.dir, call.name, self._owners.ask, self._owners.lock_owner()
        to_node = self._meta.owner(self._meta.name_partition(call.to_dir, call.to_name))
        ino, type, attr = yield from ask_owner(p.Lock(dir, name, owner))
        try:
            if attr is None or stat.S_ISDIR(type):
                return 0
            # For a while it has two names, and counts two: if a node dies then, none of them takes the file along when it is removed.
            yield from ask_owner(p.Link(ino, 1, call.now, peer))
            try:
                yield from ask(to_node, p.Insert(call.to_dir, call.to_name, ino, type, False, 0, peer))
            except OSError as error:
                if error.errno in (errno.EEXIST, META_BUSY, META_NOT_MINE):
                    yield from ask_owner(p.Link(ino, -1, call.now, peer))
                    return 0
                raise failure(errno.EIO if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT) else number_of(error)) from None
            yield from ask_owner(p.Remove(dir, name, ino, owner, peer))
            yield from ask_owner(p.Link(ino, -1, call.now, peer))
            return ino
        finally:
            self._owners.unlock(owner, (dir, name))

    def _rename_under_locks(self, peer: int, call: p.RenameFile) -> Operation[p.Moved]:
        """Between two shards, under locks on both names."""
        dir, name, to_dir, to_name, now = call.dir, call.name, call.to_dir, call.to_name, call.now
        ask_owner, exchange = self._owners.ask, bool(call.flags & RENAME_EXCHANGE)
        names = (dir, name), (to_dir, to_name)
        owner, (source, target) = yield from self._owners.lock(*names)
        ino, was = source.ino, target.ino
        try:
            if not ino or (exchange and not was):
                raise failure(errno.ENOENT)
            if was and call.flags & RENAME_NOREPLACE:
                raise failure(errno.EEXIST)
            if stat.S_IFDIR in (source.type, target.type):
                raise failure(errno.EBUSY)  # became one meanwhile
            if was == ino:
                return p.Moved(ino, was)
            moved = (ino, was) if exchange else (ino,)
            for one in moved:  # as of ``_rename_to_new``; if the record is lost no name changes
                yield from ask_owner(p.Link(one, 1, now, peer))
            last: list[Operation[Any]] = []  # that may be done at the same time
            yield from ask_owner(p.Insert(to_dir, to_name, ino, source.type, True, owner, peer))
            if exchange:
                last.append(ask_owner(p.Insert(dir, name, was, target.type, True, owner, peer)))
            else:
                last.append(ask_owner(p.Remove(dir, name, ino, owner, peer)))
                if was:
                    last.append(self._replaced(peer, was, now))
            for answer in (yield from together(last)):
                if isinstance(answer, OSError):
                    raise answer
            for one in moved:
                yield from ask_owner(p.Link(one, -1, now, peer))
            return p.Moved(ino, was)
        finally:
            self._owners.unlock(owner, *names)

    def _replaced(self, peer: int, ino: int, now: int) -> Operation[None]:
        """A name of this file is that of another now."""
        yield from self._owners.ask(p.Link(ino, -1, now))
        if peer != self._members.node:  # it was this node that asked, and is not told
            yield from self._caches.forget_here((ino,))

    def go_on(self, caller: Caller, call: q.Renaming) -> Operation[None]:
        """The remaining steps of a rename that a mount has begun."""
        name, ino, ask_owner = (call.dir, call.name), call.ino, self._owners.ask
        names = name, (call.to_dir, call.to_name)
        try:
            if call.how_far == q.RENAMING_UNKNOWN:  # it has one name or two, and the record counts two
                self._calls.order(w.Invalidate((ino,), names))  # a kernel that is told of an error keeps what it knew
                raise failure(errno.EIO)
            yield from self._calls.settled()
            if call.how_far == q.RENAMING_MADE:
                yield from ask_owner(p.Remove(*name, ino, call.owner))
            yield from ask_owner(p.Link(ino, -1, caller.now))
        finally:
            self._owners.unlock(call.owner, name)
        if call.how_far == q.RENAMING_NOT_MADE:
            yield from self.rename(caller, *name, *names[1], call.flags)
            return
        if call.old:
            yield from self._replaced(self._members.node, call.old, caller.now)
        for dir in {dir for dir, _ in names}:
            self._directories.touch(dir, caller.now)
        caller.inodes += [ino, call.old] if call.old else [ino]
        caller.changed(*names)
