"""Copies of stripes: which nodes keep those of a partition, and bringing them in step. Pure.

The owner of a partition has its stripes, and the backup of the partition, which is its heir, a copy of those whose files ask for copies.
The owner passes each change of them on (csrc/data/fsio_copies.c) to the nodes that are named here. A new backup gets all that there is
while it is told of changes, and then is *in step*; until then the nodes that were in step stay so. All nodes that believe to be in step
are told of changes, so when an owner dies any of them has what was answered: the heir, or one from which the heir brings it. If none has
it, the copies are lost, too.

Nothing of this goes on in a session where nobody has asked for copies.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence

from amfs._native import Meta
from amfs.engine import fs_works as w
from amfs.engine import peer_requests as p
from amfs.engine.attr import META_NOT_MINE
from amfs.engine.partition import PartitionTable
from amfs.fs.vfs.calls import PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, number_of, together, work
from amfs.fs.vfs.members import Members

STRIPE_COPIES = 2  # of a file in stripes, at most
KEEPERS_MAX = 6  # nodes that have copies of a partition while backups change
BYTES_AT_ONCE = 16 << 20  # of copies that are under way to one node
STRIPES_AT_ONCE = 64  # likewise
AGAIN_S = 5.0  # after there was no room for copies

Stripe = tuple[int, int]


def bounded(stripes: Iterable[tuple[Stripe, int]]) -> Iterator[list[Stripe]]:
    """What is copied side by side: so many bytes at most, or one larger stripe."""
    some: list[Stripe] = []
    total = 0
    for stripe, size in stripes:
        if some and (total + size > BYTES_AT_ONCE or len(some) == STRIPES_AT_ONCE):
            yield some
            some, total = [], 0
        some.append(stripe)
        total += size
    if some:
        yield some


class StripeCopies:
    """Sees to the copies of the stripes of this node's partitions, and keeps those of others."""

    def __init__(self, calls: Calls, meta: Meta, members: Members) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._nodes: dict[int, dict[int, bool]] = {}  # partition of here -> node that is told of changes -> is it in step?
        self._kept: set[int] = set()  # partitions of others with which this node is in step
        self._offered: set[int] = set()  # partitions of whose next owner this node has been said to be a keeper
        self._chosen = False  # have nodes been named for copies?
        self._filling: set[int] = set()  # nodes that are being brought in step
        self._releasing = False
        self._left: dict[int, dict[Stripe, int]] = {}  # node -> what is to be copied there still, with its bytes
        #: Of the mover: partitions whose records are on their way, and those of which stripes are on their way here.
        self.away: Callable[[], set[int]] = set
        self.incomplete: Callable[[], set[int]] = set
        calls.serve(
            p.DropCopies.by(self._drop),
            p.KeepCopies.by(self._keep),
            p.CopyStripes.by(self._copy_stripes),
            p.ExpectCopies.by(lambda peer, call: self._expect()),
        )

    def counts(self) -> tuple[int, int]:
        """Files of which stripes of here are to be copied, and the bytes of these; one, where it is not known yet how many."""
        left = [item for stripes in self._left.values() for item in stripes.items()]
        return len({ino for (ino, _), _ in left}) or int(bool(self._filling)), sum(size for _, size in left)

    def _expect(self) -> None:
        self._meta.expect_copies()
        if not self._chosen:
            self.choose()

    def expect(self) -> Operation[None]:
        """Somebody asks for copies: every node is to know before there are any."""
        for answer in (yield from together([ask(node, p.ExpectCopies()) for node in sorted(self._members.live)])):
            if isinstance(answer, OSError) and answer.errno != errno.EHOSTDOWN:
                raise answer

    # ── which nodes ────────────────────────────────────────────────────────────────────────────────

    def _is_served(self, part: int) -> bool:
        """With all its stripes."""
        return self._members.owners[part] == self._members.node and part not in self.away() and part not in self.incomplete()

    def choose(self) -> None:
        """By the table, for what is served here by now."""
        members, me = self._members, self._members.node
        if not self._meta.copies_wanted() or not members.owners:
            return
        self._chosen = True
        table = PartitionTable(members.owners, members.version)
        away = self.away()
        dropped: dict[int, list[int]] = {}
        for part, owner in enumerate(members.owners):
            if owner != me or part in away:
                continue
            target = table.backup_of(part)
            nodes = self._nodes.setdefault(part, {})
            for node in [node for node in nodes if node not in members.live]:
                del nodes[node]
            for node in [node for node, in_step in nodes.items() if not in_step and node != target]:
                del nodes[node]
                dropped.setdefault(node, []).append(part)
            if target is not None and target in members.live:
                nodes.setdefault(target, False)
        self._order()
        for node, parts in dropped.items():
            self._calls.spawn(ask(node, p.DropCopies(members.version, tuple(parts))))
        for node in {node for nodes in self._nodes.values() for node, in_step in nodes.items() if not in_step} - self._filling:
            self._filling.add(node)
            self._calls.spawn(self._fill(node))
        if not self._releasing:
            self._releasing = True
            self._calls.spawn(self._release())

    def _order(self) -> None:
        served = {part: tuple(nodes.items()) for part, nodes in self._nodes.items() if self._members.owners[part] == self._members.node}
        self._calls.order(w.SetStripeCopies(len(self._members.owners), served))

    def _lacks(self, part: int, node: int) -> bool:
        """Is it to be brought in step with this partition?"""
        return self._nodes.get(part, {}).get(node) is False and self._is_served(part)

    # ── bringing a node in step ────────────────────────────────────────────────────────────────────

    def _fill(self, node: int) -> Operation[None]:
        try:
            while node in self._members.live and (parts := [part for part in self._nodes if self._lacks(part, node)]):
                try:
                    yield from ask(node, p.DropCopies(self._members.version, tuple(parts)))  # what it has of them may be old
                except OSError:
                    yield Sleep(PAUSE_LAST_S)
                    continue
                yield from self._push_all(node, set(parts))
                yield from self._say_in_step(node, parts)
        finally:
            self._filling.discard(node)
            self._left.pop(node, None)
        if not self._releasing:
            self._releasing = True
            self._calls.spawn(self._release())

    def _push_all(self, node: int, parts: set[int]) -> Operation[None]:
        partition = self._meta.stripe_partition
        found = yield from work(w.ListCopied())
        left = self._left[node] = {(ino, index): size for ino, index, size in found if partition(ino, index) in parts}
        if left:
            self._calls.log(f"{len(left)} stripes ({sum(left.values())} bytes) are copied to node {node}")
        while left and node in self._members.live:
            full = failed = False
            for some in bounded(list(left.items())):
                wanted = [stripe for stripe in some if self._lacks(partition(*stripe), node)]
                results = yield from together([work(w.PushStripe(*stripe, node)) for stripe in wanted])
                answers = dict(zip(wanted, results, strict=True))
                for stripe in some:
                    answer = answers.get(stripe)
                    if isinstance(answer, OSError) and answer.errno != errno.ENOENT:  # else it has been deleted
                        failed = True
                        full = full or answer.errno == errno.ENOSPC
                    else:
                        left.pop(stripe, None)
            if failed:
                yield Sleep(AGAIN_S if full else PAUSE_LAST_S)

    def _say_in_step(self, node: int, parts: list[int]) -> Operation[None]:
        """This node believes it first: so whoever is in step is told of changes."""
        said = [part for part in parts if self._lacks(part, node)]
        for part in said:
            self._nodes[part][node] = True
        self._order()
        while node in self._members.live and (still := [part for part in said if self._is_in_step(part, node)]):
            try:
                yield from ask(node, p.KeepCopies(self._members.version, tuple(still)))
                return
            except OSError:
                yield Sleep(PAUSE_LAST_S)

    def _is_in_step(self, part: int, node: int) -> bool:
        return self._is_served(part) and self._nodes.get(part, {}).get(node) is True

    def _spare(self) -> dict[int, list[int]]:
        """Nodes that need not keep copies of these any more: their backups are in step."""
        table = PartitionTable(self._members.owners, self._members.version)
        spare: dict[int, list[int]] = {}
        for part, nodes in self._nodes.items():
            if len(nodes) > 1 and self._is_served(part) and nodes.get(target := table.backup_of(part) or 0):
                for node in nodes.keys() - {target}:
                    spare.setdefault(node, []).append(part)
        return spare

    def _release(self) -> Operation[None]:
        """Told of changes until it has answered that it keeps nothing: so nobody believes to be in step that is not."""
        try:
            while spare := self._spare():
                version = self._members.version
                nodes = sorted(spare)
                answers = yield from together([ask(node, p.DropCopies(version, tuple(spare[node]))) for node in nodes])
                for node, answer in zip(nodes, answers, strict=True):
                    for part in spare[node] if not isinstance(answer, OSError) else ():
                        self._nodes.get(part, {}).pop(node, None)
                self._order()
                if any(isinstance(answer, OSError) for answer in answers):
                    yield Sleep(PAUSE_LAST_S)
        finally:
            self._releasing = False

    # ── what this node keeps for others ────────────────────────────────────────────────────────────

    def _check(self, peer: int, version: int, parts: Sequence[int]) -> None:
        owners = self._members.owners
        if version != self._members.version or any(owners[part] != peer for part in parts):
            raise failure(META_NOT_MINE)

    def _drop(self, peer: int, call: p.DropCopies) -> Operation[None]:
        self._check(peer, call.version, call.partitions)
        self._kept.difference_update(call.partitions)
        self._offered.difference_update(call.partitions)
        yield from work(w.DropCopied(call.partitions))

    def _keep(self, peer: int, call: p.KeepCopies) -> None:
        self._check(peer, call.version, call.partitions)
        self._kept.update(call.partitions)

    def is_kept(self, part: int) -> bool:
        """Has this node all that another one answered for?"""
        return part in self._kept

    # ── partitions that come and go ────────────────────────────────────────────────────────────────

    def keepers(self, part: int) -> tuple[int, ...]:
        """Who has all stripes of a partition that is about to leave: the next owner tells them of changes."""
        in_step = [node for node, is_so in self._nodes.get(part, {}).items() if is_so]
        if not self._meta.copies_wanted() or not (part in self._nodes or part in self._kept):
            return ()
        if part in self.incomplete():
            self._offered.discard(part)
            return tuple(in_step)
        self._offered.add(part)
        return (*in_step, self._members.node)

    def left(self, part: int) -> None:
        """It has another owner now, which tells this node of changes if it was named as a keeper."""
        self._nodes.pop(part, None)
        if part in self._offered:
            self._offered.discard(part)
            self._kept.add(part)

    def came(self, part: int, keepers: Iterable[int]) -> bool:
        """Its records are here, and nothing is served yet. Are stripes missing?"""
        others = sorted(set(keepers) & self._members.live - {self._members.node})
        self._nodes[part] = dict.fromkeys(others, True)
        missing = self._meta.copies_wanted() and part not in self._kept
        self._kept.discard(part)
        self._offered.discard(part)
        return missing

    def returned(self, part: int, keepers: Iterable[int]) -> bool:
        """Likewise, of one that was sent to a node that has died. Nobody has released this node since it was named as a keeper?"""
        if part in self._offered:
            self._kept.add(part)
        return self.came(part, keepers)

    def bring(self, parts: Sequence[int]) -> Operation[list[int]]:
        """What this node lacks of these; those that no living node has."""
        yield from work(w.DropCopied(tuple(parts)))  # from an earlier time
        left, lost = list(parts), list[int]()
        while left:
            sources: dict[int, list[int]] = {}
            for part in left:
                nodes = [node for node, in_step in self._nodes.get(part, {}).items() if in_step and node in self._members.live]
                if nodes:
                    sources.setdefault(nodes[0], []).append(part)
                else:
                    lost.append(part)
            left = []
            for node, some in sources.items():
                if not (yield from self._bring_from(node, some)):
                    left += some
        yield from self._let_go(parts)
        return lost

    def _bring_from(self, node: int, parts: list[int]) -> Operation[bool]:
        """False: it died before all was here."""
        pause, after = PAUSE_FIRST_S, (0, -1)
        while node in self._members.live:
            try:
                some = yield from ask(node, p.StripesOf(tuple(parts), True, after))
                if not some:
                    return True
                for at in range(0, len(some), STRIPES_AT_ONCE):
                    works = [work(w.FetchStripe(ino, index, node, True)) for ino, index in some[at : at + STRIPES_AT_ONCE]]
                    for result in (yield from together(works)):
                        if isinstance(result, OSError) and result.errno != errno.ENOENT:  # else it was deleted meanwhile
                            raise result
                after = some[-1]
            except OSError:
                yield Sleep(pause)
                pause = min(2 * pause, 1.0)
        return False

    def _let_go(self, parts: Sequence[int]) -> Operation[None]:
        """More keepers than changes can be passed on to, after many nodes have come and gone."""
        for part in parts:
            for node in list(self._nodes.get(part, {}))[KEEPERS_MAX:]:
                while node in self._members.live:
                    try:
                        yield from ask(node, p.DropCopies(self._members.version, (part,)))
                        break
                    except OSError:
                        yield Sleep(PAUSE_LAST_S)
                self._nodes[part].pop(node, None)

    # ── files that get copies afterwards ───────────────────────────────────────────────────────────

    def protect(self, ino: int) -> Operation[int]:
        """Copies of all stripes of a file that may have been written without. Why there are fewer, or 0."""
        live = sorted(self._members.live)
        for push in (False, True):  # first all know, so that what is written meanwhile has copies
            answers = yield from together([self._patiently(node, p.CopyStripes(ino, push)) for node in live])
            errors = [number_of(answer) for answer in answers if isinstance(answer, OSError)]
            if errors:
                return errno.ENOSPC if errno.ENOSPC in errors else errno.EIO
        return 0

    def _patiently(self, node: int, call: p.CopyStripes) -> Operation[None]:
        while True:
            try:
                return (yield from ask(node, call))
            except OSError as error:
                if error.errno != errno.ETIMEDOUT or node not in self._members.live:
                    raise

    def _copy_stripes(self, peer: int, call: p.CopyStripes) -> Operation[None]:
        self._expect()
        yield from work(w.MarkCopied(call.ino))
        if not call.push:
            return
        yield from self._calls.until(lambda: not (self.away() or self.incomplete()))
        partition = self._meta.stripe_partition
        found = [((ino, index), size) for ino, index, size in (yield from work(w.ListCopied())) if ino == call.ino]
        for some in bounded([item for item in found if self._is_served(partition(*item[0]))]):
            pushes = [work(w.PushStripe(*stripe, node)) for stripe in some for node in self._nodes.get(partition(*stripe), {})]
            for result in (yield from together(pushes)):
                if isinstance(result, OSError) and result.errno != errno.ENOENT:
                    raise failure(errno.ENOSPC if result.errno == errno.ENOSPC else errno.EIO)
