"""Which nodes have the content of the files that are recorded here: copies when a file is closed, and again after a death. Pure.

A file says how many copies it wants (``Attr.copies``). Which nodes get them follows from its number (``places``), so that no node decides
twice differently. While a file is written its writer's node asks for copies of what was written so far (``Checkpoint``): when a program has
closed it, and when it is finished. Of a finished file this shard has copies made (``Secure``), by itself when a death has left too few.

Copies of stripes are seen to by ``stripe_copies``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xxhash import xxh64_intdigest

from amfs._native import Meta
from amfs.fs.vfs.batches import bounded
from amfs.fs.vfs.calls import Acquire, Calls, Operation, Sleep, ask, failure, number_of, together
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.stripe_copies import StripeCopies
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, WHOLE, Attr, Facts

T = TypeVar("T")

BYTES_IN_FLIGHT = 64 << 20  # of copies that one shard has made again after a death at a time; a larger file goes alone
FILES_IN_FLIGHT = 64  # likewise
SETTLE_S = 0.2  # after a change of the members, so that nodes that die together are seen together
AGAIN_S = 5.0  # after copies could not be made
ATTEMPTS = 3  # at a file that changes hands meanwhile
MOUNT_S = 0.001  # between two looks whether a mount has its answer, which comes in a round trip, or when the node that is asked has died
SLOW_S = 5.0  # a work that took longer may be asked for again by a node that has not heard its end
REMEMBERED = 1000
#: Of several reasons why there are no more copies these are said: it is written again, no room, it has changed.
_TELLING = (errno.EBUSY, errno.ENOSPC, errno.ESTALE, errno.EAGAIN)


def places(ino: int, nodes: Sequence[int] | frozenset[int]) -> list[int]:
    """In the order in which nodes are to have copies of a file: by rendezvous hashing, so that a node that goes or comes changes little."""
    return sorted(nodes, key=lambda node: (xxh64_intdigest(b"%d %d" % (ino, node)), node), reverse=True)


class Once:
    """A work that took long and is asked for again has been done already. Keeps the answers by the asker's number."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._answers: dict[tuple[int, int], Any] = {}

    def run(self, key: object, asked: tuple[int, int], operation: Callable[[], Operation[T]]) -> Operation[T]:
        """One at a time of those with the same ``key``; ``asked``: by whom, and which number."""
        yield Acquire(key)
        try:
            if asked in self._answers:
                known: T = self._answers[asked]
                return known
            begun = self._calls.now
            answer = yield from operation()
            if self._calls.now - begun > SLOW_S:
                self._answers[asked] = answer
                if len(self._answers) > REMEMBERED:
                    del self._answers[next(iter(self._answers))]
            return answer
        finally:
            self._calls.release(key)


class Replicas:
    """Sees to the copies of the files whose records are here."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, in_motion: Callable[[], bool], stripes: StripeCopies) -> None:
        """``in_motion``: are partitions on their way from or to this node?"""
        self._calls = calls
        self._meta = meta
        self._members = members
        self._in_motion = in_motion
        self._stripes = stripes
        self._once = Once(calls)
        self._copying: set[int] = set()  # files of which nodes are being told to keep what they have got
        self._repairing = False
        self._changed = False  # since the search that is under way has begun
        calls.serve(
            p.Checkpoint.by(self._checkpoint),
            p.Secure.by(self._secure),
            p.GiveUp.by(self._give_up),
        )

    def _record(self, ino: int) -> Attr:
        return Attr(*self._meta.getattr(ino, self._members.node))

    def _places(self, ino: int, nodes: frozenset[int]) -> list[int]:
        """As ``places``, but those that drain come last."""
        staying = self._members.staying
        return places(ino, nodes & staying) + places(ino, nodes - staying)

    def _wanted(self, copies: int) -> int:
        """Of so many copies there can be so many now. A node that joins while copies are made gets its own afterwards (``notice``)."""
        return min(copies, len(self._members.live))

    def _give_up(self, peer: int, call: p.GiveUp) -> Operation[None]:
        """An earlier content of a file may go when its writer has the content, or a new one; its node may be fetching it from ``peer``.
        Copies on nodes that drain do not count: those nodes may have counted on ``peer`` when they chose what to hand over."""
        attr = self._record(call.ino)
        if attr.writer >= 0 and attr.writer != peer and attr.layout == WHOLE:
            fetched = yield from ask(attr.writer, p.HasContent(call.ino))
            if not fetched or self._record(call.ino) != attr:
                raise failure(errno.EBUSY)
        if call.ino in self._copying:
            raise failure(errno.EBUSY)
        holders = set(self._meta.holders(call.ino))
        counts = peer in holders and attr.layout == WHOLE and attr.size > 0 and (attr.writer < 0 or attr.copies > 1)
        if counts and holders - self._members.staying and len(holders & self._members.staying - {peer}) < max(1, attr.copies):
            raise failure(errno.EBUSY)
        self._meta.give_up(call.ino, peer)

    def counts(self) -> tuple[int, int]:
        """Files of here that fewer nodes hold than shall, and their bytes; of those in stripes the ones whose stripes here are being
        copied."""
        short = self._meta.short_of_copies(max(2, len(self._members.live)))
        files, size = self._stripes.counts()
        return len(short) + files, sum(size for _, size, _ in short) + size

    # ── copying to several nodes ───────────────────────────────────────────────────────────────────

    def _spread(self, nodes: Sequence[int], count: int, copy: Callable[[int], Operation[None]]) -> Operation[tuple[list[int], int]]:
        """To ``count`` of these, the first ones that can take it: the nodes that have it now, and why not more."""
        kept: list[int] = []
        error = 0
        while count > len(kept) and nodes:
            chosen, nodes = nodes[: count - len(kept)], nodes[count - len(kept) :]
            answers = yield from together([copy(node) for node in chosen])
            kept += [node for node, answer in zip(chosen, answers, strict=True) if not isinstance(answer, OSError)]
            numbers = {number_of(answer) for answer in answers if isinstance(answer, OSError)}
            error = next((number for number in _TELLING if number in numbers or number == error), error or (errno.EIO if numbers else 0))
        return kept, error

    # ── what is being written ──────────────────────────────────────────────────────────────────────

    def _checkpoint(self, peer: int, call: p.Checkpoint) -> Operation[int]:
        return (yield from self._once.run(_copying(call.ino), (peer, call.number), lambda: self._copy_written(peer, call)))

    def _copy_written(self, peer: int, call: p.Checkpoint) -> Operation[int]:
        ino, facts = call.ino, call.facts
        while not self._meta.begin_copies(ino):
            yield Sleep(MOUNT_S)
        attr = self._record(ino)
        if attr.writer != peer:
            raise failure(errno.EIO)  # taken for dead meanwhile
        if attr.layout != WHOLE or call.grown:
            self._record_copies(peer, attr, facts, [])
            return 0
        self._copying.add(ino)
        wanted = self._wanted(attr.copies)
        try:
            kept, error = yield from self._copy_to_others(peer, attr, facts)
            self._record_copies(peer, attr, facts, kept)
        finally:
            self._copying.discard(ino)
        return 0 if not facts.size or len(kept) + 1 >= min(wanted, self._wanted(attr.copies)) else error or errno.EIO

    def _copy_to_others(self, peer: int, attr: Attr, facts: Facts) -> Operation[tuple[list[int], int]]:
        """Nodes that have what the file contained before come last: their copies may be all that there is if the writer dies now."""
        if not facts.size:
            return [], 0
        count = self._wanted(attr.copies) - 1
        number = self._calls.number()
        others = self._places(attr.ino, self._members.live - {peer})
        holders = self._meta.holders(attr.ino)

        def keep(node: int) -> Operation[None]:
            yield from self._calls.ask_patiently(node, p.KeepCopy(attr.ino, peer, facts, number))

        kept, error = yield from self._spread([node for node in others if node not in holders], count, keep)
        if len(kept) < count:
            self._record_copies(peer, attr, facts, kept)
            more, again = yield from self._spread([node for node in others if node in holders], count - len(kept), keep)
            kept += more
            error = again or error
        return kept, error

    def _record_copies(self, peer: int, attr: Attr, facts: Facts, kept: list[int]) -> None:
        done = attr._replace(**facts._asdict(), ctime=max(attr.ctime, facts.mtime))
        live = self._members.live
        for node in self._meta.checkpoint(attr.ino, peer, done, [node for node in kept if node in live]):
            if node in live:
                self._calls.tell(node, p.DropWhole(attr.ino))

    # ── what is finished ───────────────────────────────────────────────────────────────────────────

    def _secure(self, peer: int, call: p.Secure) -> Operation[int]:
        error = yield from self._complete(call.ino)
        if error:
            self.look()
        return error

    def _complete(self, ino: int) -> Operation[int]:
        key = _copying(ino)
        yield Acquire(key)
        try:
            error = 0
            for _ in range(ATTEMPTS):
                error = yield from self._add_copies(ino)
                if error not in (errno.ESTALE, errno.EAGAIN):
                    break
            return 0 if error == errno.EBUSY else error  # it is written again: its closing sees to it
        finally:
            self._calls.release(key)

    def _add_copies(self, ino: int) -> Operation[int]:
        try:
            attr = self._record(ino)
        except OSError as missing_record:
            if missing_record.errno != errno.ENOENT:
                raise
            return 0
        if attr.copies <= 1 or attr.layout != WHOLE or attr.finished in (0, LOST) or not (attr.size and attr.nlink):
            return 0
        live = self._members.live
        holders = places(ino, live.intersection(self._meta.holders(ino)))
        wanted = self._wanted(attr.copies)
        missing = wanted - len(holders)
        if missing <= 0:
            return 0
        if not holders:
            return errno.EIO

        def bring(node: int) -> Operation[None]:
            [number] = yield from self._calls.ask_patiently(node, p.Bring(holders[node % len(holders)], (ino,)))
            if number:
                raise failure(number)

        kept, error = yield from self._spread(self._places(ino, live - set(holders)), missing, bring)
        return 0 if len(kept) + len(holders) >= min(wanted, self._wanted(attr.copies)) else error or errno.EIO

    # ── what is short of copies ────────────────────────────────────────────────────────────────────

    def notice(self) -> None:
        """After each event: threads of C change records, too, and some change may have forgotten the copies."""
        if self._meta.fell_short(len(self._members.live)):
            self.look()

    def look(self) -> None:
        """Members have come or gone, or copies could not be made: search for files that have too few."""
        self._changed = True
        if not self._repairing and (self._meta.copies_wanted() or self._in_motion()):  # records that come may want some
            self._repairing = True
            self._calls.spawn(self._repair())

    def _repair(self) -> Operation[None]:
        said = 0
        try:
            while self._changed:
                self._changed = False
                yield Sleep(SETTLE_S)
                # Before the search: records that come after it need another one, even if all have come when its copies are there.
                moving = self._in_motion()
                short = [(ino, size) for ino, size, striped in self._meta.short_of_copies(len(self._members.live)) if not striped]
                if short and len(short) != said:
                    said = len(short)
                    few = f"{len(short)} files of amfs:/ ({sum(size for _, size in short)} bytes) have fewer copies than asked for"
                    self._calls.log(f"{few}: making them")
                failed = False
                for batch in bounded(short, BYTES_IN_FLIGHT, FILES_IN_FLIGHT):
                    answers = yield from together([self._complete(ino) for ino in batch])
                    failed = failed or any(answers)
                if failed or moving:
                    self._changed = True
                    yield Sleep(AGAIN_S if failed else SETTLE_S)
        finally:
            self._repairing = False


def _copying(ino: int) -> object:
    return "copying", ino
