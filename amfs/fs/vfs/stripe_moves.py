"""Stripes of partitions that have moved to this node, brought from the nodes that had them (MemFS §II). Pure.

Owns which of them still lack stripes, and what the I/O of this node may serve meanwhile. Must not know how their records move
(``mover.py``).

Nobody reads or writes stripes of a partition before all of them are here. So partitions are brought one by one, and each is served as soon
as it is here; those for which somebody waits come first. The node that had them says once what there is of a partition: it takes no writes
any more, and those that had begun have been made when it answers. Of a partition that it waits for itself it says that, and tells of the
others: two nodes may each wait for some partitions of the other.

A partition may move on, or back, before its stripes have come. The versions of the tables with which nodes took its records tell the
order of these moves. A node that is asked waits for what was to come to it before the asker took the records, and not for what came back
to it later: of that it gives nothing away, and the asker has nothing to wait for.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Sequence

from amfs._native import Meta
from amfs.fs.vfs.calls import PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, together, work
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.stripe_copies import Stripe, StripeCopies
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_NOT_MINE
from amfs.vocabulary.events import FsAwaited

STRIPES_LISTED = 10_000
STRIPES_AT_ONCE = 64
PARTITIONS_AT_ONCE = 4  # are brought from one node: a reader of another one waits for these at most
COPIED_AT_ONCE = 16  # partitions whose copies are brought before any of them is served
BRING_PAUSE_S = 1.0  # at most, before what could not be brought is tried again


class _Load:
    """Partitions from one node. ``left``: neither here nor being brought. ``listed``: those of it whose stripes there are known, and
    whether these are all. ``asked``: of whose stripes the node was asked out of turn. ``lacking``: those of whose copies this node has
    none yet. ``here``: not served yet."""

    def __init__(self, peer: int, parts: Iterable[int], lacking: set[int], since: int) -> None:
        self.peer, self.lacking, self.since = peer, lacking, since
        self.left = dict.fromkeys(parts)
        self.listed: dict[int, tuple[list[Stripe], bool]] = {}
        self.asked: set[int] = set()
        self.coming: set[int] = set()
        self.here: list[int] = []


class StripeMoves:
    """Brings stripes to this node, and says which partitions are served with them."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, stripes: StripeCopies) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._stripes = stripes
        #: Partitions that are ours and here, but for stripes that have not come yet -> the tables with which they came here (a partition
        #: may leave, and come back meanwhile).
        self._fetching: dict[int, list[int]] = {}
        self._away: set[int] = set()  # partitions whose records are on their way from or to here
        self._moving: set[int] = set()  # partitions that the I/O of this node was told not to serve
        self._awaited: dict[int, None] = {}  # those of it for which somebody waits, in that order
        stripes.incomplete = self._fetching.keys
        calls.serve(p.StripesOf.by(self._stripes_of), p.Lose.by(self._lost))

    def is_fetching(self) -> bool:
        """Are stripes on their way to this node?"""
        return bool(self._fetching)

    def on_awaited(self, event: FsAwaited) -> None:
        if event.partition in self._moving:
            self._awaited[event.partition] = None

    # ── what is served ─────────────────────────────────────────────────────────────────────────────

    def expect(self, parts: set[int]) -> tuple[int, ...]:
        """By the next table these move, too. All that do."""
        self._moving |= parts
        return tuple(sorted(self._moving))

    def freeze(self, away: set[int]) -> None:
        """The records of these are on their way."""
        self._away = away
        moving = away | self._fetching.keys()
        more, fewer = moving - self._moving, self._moving - moving
        self._moving = moving
        self._awaited = {part: None for part in self._awaited if part in moving}
        if more:
            self._calls.order(w.SetMoving(tuple(sorted(more)), True))
        if fewer:
            self._calls.order(w.SetMoving(tuple(sorted(fewer)), False))

    def begin(self, parts: Iterable[int]) -> None:
        """These are ours, and are to be brought by one of the operations below, which begins with the same table."""
        for part in parts:
            self._fetching.setdefault(part, []).append(self._members.version)

    def _serve(self, parts: list[int], since: int) -> None:
        """All of these that is not lost is here; they came with that table."""
        for part in parts:
            self._fetching[part].remove(since)
            if not self._fetching[part]:
                del self._fetching[part]
        served = [part for part in parts if part in self._moving and part not in self._fetching and part not in self._away]
        self._moving.difference_update(served)
        for part in served:
            self._awaited.pop(part, None)
        self._stripes.choose()
        if served:
            self._calls.order(w.SetMoving(tuple(served), False))

    # ── bringing ───────────────────────────────────────────────────────────────────────────────────

    def bring(self, peer: int, parts: Sequence[int], lacking: set[int]) -> Operation[None]:
        """``peer`` has sent the records of these. ``lacking``: those of which this node has no copies yet."""
        load, pause = _Load(peer, parts, lacking, self._members.version), PAUSE_FIRST_S
        while load.left and peer in self._members.live:
            load.asked.clear()
            load.coming.clear()
            first = [part for part in self._awaited if part in load.left]
            fine = yield from self._list(load, list(dict.fromkeys([*first, *load.left])))
            if fine:
                ends = yield from together([self._bring_listed(load) for _ in range(PARTITIONS_AT_ONCE)])
                fine = all(end is True for end in ends)
            load.listed.clear()
            waits = fine and load.coming.issuperset(load.left)
            if load.left and (waits or not fine):
                yield Sleep(pause)  # the connection, the room, or the awaited stripes, may be there in a moment
            pause = min(2 * pause, PAUSE_LAST_S if waits else BRING_PAUSE_S) if waits or not fine else PAUSE_FIRST_S
        if load.left:
            yield from self.lose(list(load.left), False)  # ``peer`` has died
            load.here += load.left
        yield from self._complete(load)

    def _list(self, load: _Load, parts: list[int]) -> Operation[bool]:
        """List the stripes of these there. False: the node does not answer. A list that is full ends amid a partition, as a rule."""
        try:
            found, coming = yield from ask(load.peer, p.StripesOf(tuple(parts), False, load.since))
        except OSError:
            return False
        load.coming.update(coming)
        parts = [part for part in parts if part not in load.coming]
        stripes: dict[int, list[Stripe]] = {part: [] for part in parts}
        for stripe in found:
            stripes.setdefault(self._meta.stripe_partition(*stripe), []).append(stripe)
        last = self._meta.stripe_partition(*found[-1]) if len(found) >= STRIPES_LISTED else None
        for part in parts:
            if stripes[part]:
                load.listed[part] = stripes[part], part != last
            elif part != last:
                del load.left[part]
                load.here.append(part)
            if part == last:
                break
        yield from self._complete(load)
        return True

    def _bring_listed(self, load: _Load) -> Operation[bool]:
        """One partition after the other. False: something could not be brought."""
        while load.peer in self._members.live:
            unknown = [part for part in self._awaited if part in load.left and part not in load.listed and part not in load.asked]
            if unknown:
                load.asked.update(unknown)
                if not (yield from self._list(load, unknown)):
                    return False
                continue
            part = next((part for part in self._awaited if part in load.listed), next(iter(load.listed), None))
            if part is None:
                return True
            (stripes, all_), awaited = load.listed.pop(part), part in self._awaited
            del load.left[part]
            fine = yield from self._fetch(load.peer, stripes)
            if not fine or not all_:
                load.left[part] = None
                if not fine:
                    return False
                continue
            load.here.append(part)
            if awaited or not self._meta.copies_wanted() or len(load.here) >= COPIED_AT_ONCE:
                yield from self._complete(load)
        return False

    def _fetch(self, peer: int, stripes: list[Stripe]) -> Operation[bool]:
        for at in range(0, len(stripes), STRIPES_AT_ONCE):
            works = [work(w.FetchStripe(ino, index, peer)) for ino, index in stripes[at : at + STRIPES_AT_ONCE]]
            for result in (yield from together(works)):
                if isinstance(result, OSError) and result.errno != errno.ENOENT:  # else it was deleted meanwhile
                    return False
        return True

    def _complete(self, load: _Load) -> Operation[None]:
        parts, load.here = load.here, []
        if parts:
            yield from self._bring_copies([part for part in parts if part in load.lacking], load.since)
            self._serve(parts, load.since)

    def _bring_copies(self, parts: list[int], since: int) -> Operation[None]:
        if parts and (lost := (yield from self._stripes.bring(parts, since))):
            what = f"stripes of {len(lost)} of {len(self._members.owners)} partitions are lost: all nodes that had them died together"
            self._calls.log(f"{what}. Files that had copies there are EIO", logging.ERROR)
            yield from self.lose(lost, True)

    def reclaim(self, parts: list[int]) -> Operation[None]:
        """They were sent to a node that has died since, and may have changed stripes there: all others are asked for their stripes."""
        since = self._members.version
        keepers: dict[int, set[int]] = {part: set() for part in parts}
        told: set[int] = {self._members.node}
        while nodes := sorted(self._members.live - told):
            answers = yield from together([ask(node, p.Have(self._members.version, tuple(parts))) for node in nodes])
            for node, answer in zip(nodes, answers, strict=True):
                if isinstance(answer, OSError):
                    continue
                told.add(node)
                for part in (part for part, how in answer if how == p.STRIPES):
                    keepers[part].add(node)
            if self._members.live - told:
                yield Sleep(PAUSE_LAST_S)
        lacking = [part for part in parts if self._stripes.returned(part, keepers[part])]
        yield from self._bring_copies(lacking, since)
        self._serve(parts, since)

    def inherit(self, parts: list[int]) -> Operation[None]:
        """Their owner has died, and this node was not in step with it."""
        since = self._members.version
        for at in range(0, len(parts), COPIED_AT_ONCE):
            yield from self._bring_copies(parts[at : at + COPIED_AT_ONCE], since)
            self._serve(parts[at : at + COPIED_AT_ONCE], since)

    def _stripes_of(self, peer: int, call: p.StripesOf) -> Operation[p.StripesThere]:
        """Those without copies in the order of the partitions that were asked for; those with, in their own."""
        wanted = {part: place for place, part in enumerate(call.partitions) if self._members.owners[part] != self._members.node}
        coming: list[int] = []
        for part in sorted(wanted.keys() & self._fetching.keys()):
            del wanted[part]
            if call.copied or min(self._fetching[part]) < call.since:  # copies that come back are not those that were here
                coming.append(part)
        if not wanted:
            return p.StripesThere([], coming)
        partition = self._meta.stripe_partition
        if call.copied:
            here = sorted((ino, index) for ino, index, _ in (yield from work(w.ListCopied())) if (ino, index) > call.after)
        else:
            here = yield from work(w.ListStripes())
        found = [stripe for stripe in here if partition(*stripe) in wanted]
        if not call.copied:
            found.sort(key=lambda stripe: wanted[partition(*stripe)])
        return p.StripesThere(found[:STRIPES_LISTED], coming)

    # ── what is lost ───────────────────────────────────────────────────────────────────────────────

    def lose(self, parts: list[int], copies: bool) -> Operation[None]:
        """Stripes of these were lost on their way here; ``copies``: of files that have copies, else of the others. Nobody is served with
        them until all know. A node that closes a file may have heard of it with the table before, and its shard not yet: so all are told
        again with a new table."""
        number, version = self._calls.number(), -1
        told: set[int] = set()
        while True:
            if version != self._members.version:
                told, version = set(), self._members.version
            nodes = sorted(self._members.live - told)
            if not nodes:
                return
            answers = yield from together([ask(node, p.Lose(version, number, tuple(parts), copies)) for node in nodes])
            told.update(node for node, answer in zip(nodes, answers, strict=True) if not isinstance(answer, OSError))
            if self._members.live - told:
                yield Sleep(PAUSE_LAST_S)

    def _lost(self, peer: int, call: p.Lose) -> Operation[None]:
        if call.version != self._members.version:
            raise failure(META_NOT_MINE)
        if (peer, call.number) in self._members.told:
            return
        self._members.told.add((peer, call.number))
        self._members.note_lost(call.partitions, call.copies)
        self._meta.lose(call.partitions, call.copies)
        yield from work(w.Lose(call.partitions, self._members.losses_seen, call.copies))
