"""New files that are finished from the start: a record with size and times, the content, and then the entry. Pure.

A file that a program makes has a name before it has content. A loaded file has its content first, so nobody need see it before it is
whole, and it takes one step of the shard and one of the store in place of a name that is made, filled and renamed.
"""

from __future__ import annotations

import errno
import stat
from contextlib import suppress

from amfs._native import Meta
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Calls, Operation, ask, failure, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.owners import Owners
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE, WHOLE, Attr, Facts


class WholeFiles:
    """Makes files of which the content lies in a scratch file of this node."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners, files: OpenFiles, namespace: Namespace) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._files = files
        self._namespace = namespace

    def create(
        self, caller: Caller, dir: int, name: bytes, temporary: bytes, mode: int, scratch: bytes, facts: Facts
    ) -> Operation[bytes | None]:
        """The name that the new file has: ``name``, or ``temporary`` if the first cannot simply be made (mostly there is a file of that
        name). None: not so; nothing was done."""
        wanted = self._namespace.new_file(caller, dir, mode)
        if wanted.layout != WHOLE or self._meta.copies_wanted():
            return None  # it goes to other nodes while it is written
        yield from self._files.await_stay()
        with self._files.making():  # until there is an entry, nobody but this operation knows of the record
            try:
                partition = self._partition_of_mine(dir, name)
                done = wanted._replace(writer=-1, finished=1, **facts._asdict())
                ino = Attr(*self._meta.create_unnamed(dir, partition, caller.now, done)).ino
            except OSError as error:
                if error.errno in (META_NOT_MINE, META_BUSY):
                    return None
                raise
            try:
                yield from work(w.Adopt(0, scratch, ino))
                if not (yield from self._name(dir, name, ino)):
                    name = temporary
                    yield from self._owners.ask(p.Insert(dir, name, ino, stat.S_IFREG, False, 0))
            except _MaybeNamed:
                raise failure(errno.EIO) from None  # the record stays: it may be in use
            except OSError:
                with suppress(OSError):
                    yield from self._owners.ask(p.Link(ino, -1, caller.now))
                raise
            yield from self._calls.settled()  # the entry, which another shard may have, is not to outlive the record
        self._namespace.changed(caller, dir, name)
        return name

    def _partition_of_mine(self, dir: int, name: bytes) -> int:
        """That of the entry if it is here, as then one shard has both; else another one of this node. META_NOT_MINE: it has none."""
        first, owners = self._meta.name_partition(dir, name), self._members.owners
        for step in range(len(owners)):
            partition = (first + step) % len(owners)
            if owners[partition] == self._members.node:
                return partition
        raise failure(META_NOT_MINE)

    def _name(self, dir: int, name: bytes, ino: int) -> Operation[bool]:
        """Make the entry. False: there is none, for whatever reason."""
        owner = self._meta.owner(self._meta.name_partition(dir, name))
        try:
            yield from ask(owner, p.Insert(dir, name, ino, stat.S_IFREG, False, 0))
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise _MaybeNamed from None
            if error.errno != errno.EHOSTDOWN:
                return False
        else:
            return True
        try:  # it died: its heir has the entry, or nobody will ever have it
            found = yield from self._owners.ask(p.Lookup(dir, name))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise _MaybeNamed from None
        return found.ino == ino


class _MaybeNamed(Exception):
    """Nobody knows whether the entry was made."""
