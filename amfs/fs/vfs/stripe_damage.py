"""Stripes that are not what was written: the node that has one replaces it by a copy, or the file is lost. Pure.

The owner of the stripe's partition brings it anew from a node that keeps a copy; a node that keeps a copy has the owner send it. A damaged
stripe stays where it is until then: without it that place would read as zeros. Reading it is an error. If there is no good copy the owner
says that the file is lost. No other node does: its copy may be old. While a file is being written its shard does not
say so; it is asked again until the file is finished, or gone.
"""

from __future__ import annotations

import errno
import logging

from amfs._native import Meta
from amfs.fs.vfs.calls import PAUSE_LAST_S, Acquire, Calls, Operation, Sleep, ask, together, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.stripe_copies import StripeCopies
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.events import FsDamaged

TRIES = 20  # to reach a node that may have a copy, PAUSE_LAST_S apart
REMEMBERED = 10_000  # stripes without a good copy
NO_COPY = (errno.EBADMSG, errno.ENOENT)  # answers of a node with a damaged copy, or with none


class StripeDamage:
    """Looks at the stripes of this node, and mends them."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, owners: Owners, copies: StripeCopies) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._copies = copies
        self._hopeless: dict[tuple[int, int], int] = {}  # stripes without a good copy -> their owner then; the oldest first
        calls.serve(p.CheckStripes.by(self._check), p.SendStripe.by(self._send))

    def on_damaged(self, event: FsDamaged) -> None:
        self._calls.spawn(self._mend(event.ino, event.index))

    def check(self, ino: int) -> Operation[list[tuple[int, int]]]:
        """Have all nodes look, for any may have some stripes: (node, UNKNOWN, …) of those that have."""
        nodes = sorted(self._members.live)
        said: list[tuple[int, int]] = []
        for node, answer in zip(nodes, (yield from together([ask(node, p.CheckStripes(ino)) for node in nodes])), strict=True):
            if isinstance(answer, OSError):
                raise answer
            count, verdict = answer
            if count:
                said.append((node, verdict))
        return said

    def _check(self, peer: int, call: p.CheckStripes) -> Operation[tuple[int, int]]:
        count, unknown, after = 0, 0, 0
        said: set[int] = set()
        while after >= 0:
            found = yield from work(w.CheckStripes(call.ino, after))
            count, unknown, after = count + found.stripes, unknown + found.unknown, found.next
            if found.bad >= 0:
                said.add(q.DAMAGED_LAST if (yield from self._mend(call.ino, found.bad)) else q.DROPPED)
        return count, max(said, default=q.UNKNOWN if unknown else q.FINE)

    def _mend(self, ino: int, index: int) -> Operation[bool]:
        """True: there is no good copy. Raises OSError if a node that may have one cannot be reached: the next look tries again."""
        key = ("mend", ino, index)
        yield Acquire(key)
        try:
            for left in reversed(range(TRIES)):
                if not (yield from self._is_damaged(ino, index)):
                    self._hopeless.pop((ino, index), None)
                    return False  # another has mended it, or it was written anew
                if self._hopeless.get((ino, index)) == self._owner_of(ino, index):
                    return True  # two nodes with damaged copies would ask each other for ever
                try:
                    yield from self._replace(ino, index)
                except OSError as error:
                    if error.errno in NO_COPY:
                        break
                    if not left:
                        self._calls.log(f"{self._named(ino, index)} is damaged, and cannot be mended now: {error}", logging.ERROR)
                        raise
                    yield Sleep(PAUSE_LAST_S)
            self._remember(ino, index)
            if self._owner_of(ino, index) != self._members.node:
                return True  # the owner has found its own damaged, and sees to the file
            return (yield from self._lose(ino, index))
        finally:
            self._calls.release(key)

    def _owner_of(self, ino: int, index: int) -> int:
        return self._members.owners[self._meta.stripe_partition(ino, index)]

    def _remember(self, ino: int, index: int) -> None:
        self._hopeless[ino, index] = self._owner_of(ino, index)
        if len(self._hopeless) > REMEMBERED:
            del self._hopeless[next(iter(self._hopeless))]

    def _is_damaged(self, ino: int, index: int) -> Operation[bool]:
        verdict, _ = yield from work(w.CheckPart(ino, index))
        return verdict == w.PART_DAMAGED

    def _replace(self, ino: int, index: int) -> Operation[None]:
        """Raises OSError: ENOENT, EBADMSG if no node has a good copy."""
        owner = self._owner_of(ino, index)
        if owner != self._members.node:
            yield from ask(owner, p.SendStripe(ino, index))
            if (yield from self._is_damaged(ino, index)):
                raise OSError(errno.EBADMSG, "it is damaged there, too")
            self._tell(ino, index, owner)
            return
        why = OSError(errno.ENOENT, "no copy")
        for node in self._copies.complete(self._meta.stripe_partition(ino, index)):
            try:
                yield from work(w.MendStripe(ino, index, node))
            except OSError as error:
                why = why if error.errno in NO_COPY else error
                continue
            self._tell(ino, index, node)
            return
        raise why

    def _named(self, ino: int, index: int) -> str:
        return f"stripe {index} of inode {ino:#x} on node {self._members.node}"

    def _tell(self, ino: int, index: int, node: int) -> None:
        self._calls.log(f"{self._named(ino, index)} was damaged, and is as on node {node} again", logging.ERROR)

    def _send(self, peer: int, call: p.SendStripe) -> Operation[None]:
        yield from work(w.PushStripe(call.ino, call.index, peer))

    def _lose(self, ino: int, index: int) -> Operation[bool]:
        while True:
            try:
                lost = yield from self._owners.ask(p.Damaged(ino, True))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ESTALE):
                    return True  # it was removed
                if error.errno != errno.EAGAIN:
                    raise
                yield Sleep(PAUSE_LAST_S)
                if not (yield from self._is_damaged(ino, index)):
                    return False
                continue
            self._calls.log(f"{self._named(ino, index)} is damaged, and there is no good copy: the file is lost", logging.ERROR)
            return lost
