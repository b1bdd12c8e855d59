"""Digests of the content of files. Pure.

A digest is taken by a node that holds the file, and remembered there until the file changes. Digests of many files may take longer than
the time limit of a question: then the asker is told ETIMEDOUT, asks again, and waits for the digest that is under way.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from amfs.fs.openflags import O_RDONLY
from amfs.fs.vfs.calls import Acquire, Calls, Operation, ask, failure, number_of, together, work
from amfs.fs.vfs.copies import FILES_MAX, Copies
from amfs.fs.vfs.damage import Damage
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.stripe_damage import StripeDamage
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import STRIPED, WHOLE, Opened

REMEMBERED = 100_000  # digests
AGAIN = 3  # attempts at a file that changes while it is read

T = TypeVar("T")


class Digests:
    """Takes digests, here and by other nodes."""

    def __init__(
        self, calls: Calls, members: Members, owners: Owners, files: OpenFiles, copies: Copies, damage: Damage, stripes: StripeDamage
    ) -> None:
        self._calls = calls
        self._members = members
        self._owners = owners
        self._files = files
        self._copies = copies
        self._damage = damage
        self._stripes = stripes
        #: inode -> size, times and content (as the node knows it) when it was taken, and the digest; oldest first
        self._known: dict[int, tuple[tuple[int, int, int, bytes], bytes]] = {}
        calls.serve(p.Digests.by(self._take_all))

    def of(self, inodes: Sequence[int]) -> Operation[list[q.Digested]]:
        """(size, digest) of each file, or an errno; EBUSY: it is being written."""
        found: dict[int, q.Digested] = {}
        asked: dict[int, list[int]] = {}
        for ino in inodes[:FILES_MAX]:
            try:
                asked.setdefault((yield from self._reader_of(ino)), []).append(ino)
            except OSError as error:
                found[ino] = number_of(error)
        answers = yield from together([ask(node, p.Digests(tuple(inodes))) for node, inodes in asked.items()])
        for some, answer in zip(asked.values(), answers, strict=True):
            found.update(zip(some, [number_of(answer)] * len(some) if isinstance(answer, OSError) else answer, strict=True))
        return [found[ino] for ino in inodes[:FILES_MAX]]

    def _reader_of(self, ino: int) -> Operation[int]:
        """The node that is to read the file: one that holds it; of one in stripes the first stripe's."""
        attr = yield from self._copies.finished(ino)
        if attr.layout == STRIPED:
            return self._owners.of_stripe(ino, 0)
        holders = yield from self._owners.ask(p.Holders(ino))
        return next((node for node in holders if node in self._members.live), self._members.node)

    def _take_all(self, peer: int, call: p.Digests) -> Operation[list[q.Digested]]:
        answers = yield from together([self._take(ino) for ino in call.inodes])
        return [number_of(answer) if isinstance(answer, OSError) else answer for answer in answers]

    def _take(self, ino: int) -> Operation[tuple[int, bytes]]:
        key = ("digest", ino)
        yield Acquire(key)
        try:
            for _ in range(AGAIN):
                attr = yield from self._owners.ask(p.Getattr(ino))
                if not attr.finished:
                    raise failure(errno.EBUSY)
                part = (yield from work(w.PartDigest(ino))) if attr.layout == WHOLE else b""  # a mapping moves no time
                mark = (attr.size, attr.mtime, attr.ctime, part)
                known = self._known.get(ino)
                if known is not None and known[0] == mark:
                    return attr.size, known[1]
                if attr.layout == STRIPED and any(said == q.DAMAGED_LAST for _, said in (yield from self._stripes.check(ino))):
                    raise failure(errno.EBADMSG)
                found, size = yield from self.read_whole(ino, key, lambda opened: w.Digest(ino, opened))
                self._known.pop(ino, None)
                if size == attr.size:
                    self._known[ino] = (mark, found)
                if len(self._known) > REMEMBERED:
                    del self._known[next(iter(self._known))]
            raise failure(errno.EBUSY)  # the look after taking it has never found it unchanged
        finally:
            self._calls.release(key)

    def read_whole(self, ino: int, endpoint: object, how: Callable[[Opened], w.WorkOrder[T]]) -> Operation[T]:
        """Do a work with the file open to be read; once more if the content here was damaged. EBADMSG: there is no other."""
        try:
            return (yield from self._read_open(ino, endpoint, how))
        except OSError as error:
            if error.errno != errno.EBADMSG:
                raise
        yield from self._damage.drop(ino)
        try:
            return (yield from self._read_open(ino, endpoint, how))
        except OSError as error:
            raise failure(errno.EBADMSG) if error.errno == errno.EIO else error from None

    def _read_open(self, ino: int, endpoint: object, how: Callable[[Opened], w.WorkOrder[T]]) -> Operation[T]:
        opened = yield from self._files.open(endpoint, ino, O_RDONLY)
        try:
            return (yield from work(how(opened)))
        finally:
            self._calls.spawn(self._files.close(endpoint, ino, False))
