"""Questions to the shards of other nodes past their poll loops, in the simulator. The counterpart of ``node.asking`` and
csrc/metadata/peer_meta_dirs.c, on a network that loses some of them, and brings some too late."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from amfs._native import Meta
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE
from amfs.vocabulary.directory_changes import made_old, numbered
from amfs.vocabulary.events import FsWorked


class There(Protocol):
    """A node that is asked."""

    number: int
    meta: Meta

    def forget(self, order: w.Invalidate) -> None: ...
    @property
    def send_backups(self) -> Callable[[], None]: ...


class Network(Protocol):
    """The things that the nodes of a session share."""

    random: random.Random
    late: list[Callable[[], None]]

    def there(self, number: int) -> There | None: ...
    @property
    def reachable(self) -> Callable[[int, int], bool]: ...


#: How likely there is no connection; or it breaks: before the question is heard, after that, or while it waits there.
UNASKED, LOST = 0.1, 0.2
KINDS = (w.SpreadTo, w.ReserveAt, w.StrikeAt, w.MakeAt, w.RemoveAt, w.TouchAt)


Changed = list[tuple[There, int]]
T = TypeVar("T")


class SimAsking:
    """The questions of one node."""

    def __init__(self, contents: Network, number: int) -> None:
        self._contents = contents
        self._number = number
        self._changed: Changed = []  # where the work that is done now has changed something, and the ticket of that
        self._rest: list[tuple[object, Callable[[], Any]]] = []  # the result of a work so far -> its next step
        self._so_far: dict[int, Any] = {}  # serial -> of works that have begun another step

    def works(self) -> tuple[w.WorkHandler, ...]:
        me = self._number
        return (
            w.SpreadTo.by(self._spread_to),
            w.ReserveAt.by(self._reserve),
            w.StrikeAt.by(self._strike),
            w.MakeAt.by(self._make),
            w.RemoveAt.by(self._remove),
            w.TouchAt.by(lambda o: self._ask(o.node, lambda there: there.meta.dir_touch_for(o.dir, o.now, me))),
        )

    def _reserve(self, o: w.ReserveAt) -> int:
        ino: int = self._ask(o.node, lambda there: there.meta.reserve_for(self._number, o.number, o.dir, o.name))
        return ino

    def _strike(self, o: w.StrikeAt) -> None:
        self._ask(o.node, lambda there: there.meta.strike_for(self._number, o.number, o.dir, o.name, o.ino))

    def _spread_to(self, o: w.SpreadTo) -> list[list[int] | None]:
        return [self._spread(node, o) for node in o.nodes]

    def _make(self, o: w.MakeAt) -> w.Made:
        try:
            ino = self._reserve(o.reserve)
        except OSError as error:
            return w.Made(error.errno or errno.EIO, 0, None)
        add = msgspec.structs.replace(o.add, changes=numbered(o.add.changes, ino))
        return self._go_on(w.Made(0, ino, None), lambda: w.Made(0, ino, self._spread_to(add)))

    def _remove(self, o: w.RemoveAt) -> w.Removed:
        counts = self._spread_to(o.freeze)
        frozen = w.Removed(counts, None, None)
        return frozen if any(count != [0] for count in counts) else self._go_on(frozen, lambda: self._remove_frozen(o, counts))

    def _remove_frozen(self, o: w.RemoveAt, counts: list[list[int] | None]) -> w.Removed:
        try:
            self._strike(o.strike)
        except OSError as error:
            return w.Removed(counts, error.errno or errno.EIO, None)
        return self._go_on(w.Removed(counts, 0, None), lambda: w.Removed(counts, 0, self._spread_to(o.drop)))

    def _go_on(self, so_far: T, step: Callable[[], Any]) -> T:
        """With a step, when the backups know what was changed so far."""
        self._rest.append((so_far, step))
        return so_far

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
        """The news of a work. None: nothing yet, since backups do not know what it changed."""
        said = self._so_far.pop(event.serial, event.value)
        step = next((step for so_far, step in self._rest if so_far is said), None)
        self._rest = [one for one in self._rest if one[0] is not said]
        if any(self._contents.there(there.number) is not there for there, _ in changed):
            return _unheard(FsWorked(event.serial, event.error, said))
        if not all(there.meta.backed_up() >= ticket for there, ticket in changed):
            self._so_far[event.serial] = said
            self._rest += [] if step is None else [(said, step)]
            return None
        if step is None:
            return FsWorked(event.serial, event.error, said)
        self._so_far[event.serial] = step()
        changed[:] = self.take_changed()  # the caller asks again with this list
        return self.answer(event, changed)

    def give_up(self, event: FsWorked) -> FsWorked:
        """Nobody waits for what backups know."""
        said = self._so_far.pop(event.serial, event.value)
        self._rest = [one for one in self._rest if one[0] is not said]
        return _unheard(FsWorked(event.serial, event.error, said))

    def _try(self, there: There, act: Callable[[There], Any]) -> None:
        if self._contents.there(there.number) is not there:
            return
        try:
            act(there)
            there.send_backups()
        except OSError as refused:
            assert refused.errno in (META_BUSY, META_NOT_MINE, errno.EEXIST, errno.EIO), refused


def _unheard(event: FsWorked) -> FsWorked:
    """Of the last step nothing is known: a node that was asked has died before its backups knew what it had changed."""
    match event.value:
        case w.Made(answers=None):
            return FsWorked(event.serial, 0, w.Made(errno.ECONNABORTED, 0, None))
        case w.Made(answers=list() as answers) | w.Removed(answers=list() as answers):
            return FsWorked(event.serial, 0, msgspec.structs.replace(event.value, answers=[None] * len(answers)))
        case w.Removed(struck=None):
            return FsWorked(event.serial, 0, w.Removed([None] * len(event.value.counts), None, None))
        case w.Removed(answers=None):
            return FsWorked(event.serial, 0, msgspec.structs.replace(event.value, struck=errno.ECONNABORTED))
        case _:
            return FsWorked(event.serial, errno.ECONNABORTED, None)
