"""Questions to the shards of other nodes past their poll loops, in the simulator. The counterpart of ``node.asking`` and
csrc/metadata/peer_meta_dirs.c, on a network that loses some of them, and brings some too late."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any, Protocol

from amfs._native import Meta
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE
from amfs.vocabulary.directory_changes import made_old
from amfs.vocabulary.events import FsWorked


class There(Protocol):
    """A node that is asked."""

    number: int
    meta: Meta

    def forget(self, order: w.Invalidate) -> None: ...
    @property
    def send_backups(self) -> Callable[[], None]: ...


class Network(Protocol):
    """What the nodes of a session have together."""

    random: random.Random
    late: list[Callable[[], None]]

    def there(self, number: int) -> There | None: ...
    @property
    def reachable(self) -> Callable[[int, int], bool]: ...


#: How likely there is no connection; or it breaks: before the question is heard, after that, or while it waits there.
UNASKED, LOST = 0.1, 0.2
KINDS = (w.SpreadTo, w.ReserveAt, w.StrikeAt, w.TouchAt)


Changed = list[tuple[There, int]]


class SimAsking:
    """The questions of one node."""

    def __init__(self, contents: Network, number: int) -> None:
        self._contents = contents
        self._number = number
        self._changed: Changed = []  # where the work that is done now has changed something, and the ticket of that

    def works(self) -> tuple[w.WorkHandler, ...]:
        me = self._number
        return (
            w.SpreadTo.by(lambda o: [self._spread(node, o) for node in o.nodes]),
            w.ReserveAt.by(lambda o: self._ask(o.node, lambda there: there.meta.reserve_for(me, o.number, o.dir, o.name))),
            w.StrikeAt.by(lambda o: self._ask(o.node, lambda there: there.meta.strike_for(me, o.number, o.dir, o.name, o.ino))),
            w.TouchAt.by(lambda o: self._ask(o.node, lambda there: there.meta.dir_touch_for(o.dir, o.now, me))),
        )

    def _spread(self, node: int, o: w.SpreadTo) -> list[int] | None:
        def make(there: There) -> list[int]:
            answers = there.meta.spread(o.manager, o.number, o.changes, True)
            for asker, ino, dir, name, gone in made_old(o.changes):
                inodes = (dir, ino) if gone else (dir,)
                there.forget(w.Invalidate(inodes, ((dir, name),) if gone and asker != node else (), None, ino if gone else 0))
            return answers

        try:
            answers: list[int] = self._ask(node, make)
        except OSError:
            return None
        return answers

    def _ask(self, node: int, act: Callable[[There], Any]) -> Any:
        contents = self._contents
        for late in [each for each in contents.late if contents.random.random() < 0.3]:
            contents.late.remove(late)
            late()
        there = contents.there(node)
        chance = contents.random.random()
        if there is None or not contents.reachable(self._number, node) or chance < UNASKED:
            raise OSError(errno.ENOTCONN, "not connected")
        if chance < LOST:
            fate = contents.random.randrange(3)
            if fate == 1:
                contents.late.append(lambda: self._try(there, act))
            elif fate == 2:
                self._try(there, act)
            raise OSError(errno.ECONNABORTED, "the connection broke")
        before = there.meta.ticket()
        answer = act(there)
        if there.meta.ticket() != before:
            self._changed.append((there, there.meta.ticket()))
            there.send_backups()
        return answer

    def take_changed(self) -> Changed:
        changed, self._changed = self._changed, []
        return changed

    def answer(self, event: FsWorked, changed: Changed) -> FsWorked | None:
        """What is heard of a work. None: nothing yet, since backups do not know what it changed."""
        if any(self._contents.there(there.number) is not there for there, _ in changed):
            return FsWorked(event.serial, errno.ECONNABORTED, None)
        return event if all(there.meta.backed_up() >= ticket for there, ticket in changed) else None

    def _try(self, there: There, act: Callable[[There], Any]) -> None:
        if self._contents.there(there.number) is not there:
            return
        try:
            act(there)
            there.send_backups()
        except OSError as refused:
            assert refused.errno in (META_BUSY, META_NOT_MINE, errno.EEXIST, errno.EIO), refused
