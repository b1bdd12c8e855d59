"""Copies of stripes: which nodes keep those of a partition, and bringing them in step. Pure.

The owner of a partition has its stripes, and the backup of the partition, which is its heir, a copy of those whose files ask for copies.
The owner passes each change of them on (csrc/data/striped/copies.c) to the nodes that are named here. A new backup gets all that there is
while it is told of changes, and then is *in step*; until it has said that it knows, the nodes that were in step stay so. All nodes that
believe to be in step are told of changes, so when an owner dies any of them has what was answered: the heir, or one from which the heir
brings it. If none has it, the copies are lost, too.

A node that is told to drop them may believe to be in step until it has answered. Until then it is told of changes, and nobody counts on it;
the next owner hears of it as doubtful.

Nothing of this goes on in a session where nobody has asked for copies.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Sequence

from amfs._native import Meta
from amfs.fs.vfs.batches import bounded
from amfs.fs.vfs.calls import PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, number_of, together, work
from amfs.fs.vfs.members import Members
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import KEEPER_NEXT, KeeperEvent, KeeperState, illegal

KEEPERS_MAX = 6  # nodes that have copies of a partition while backups change
BYTES_AT_ONCE = 16 << 20  # of copies that are under way to one node
STRIPES_AT_ONCE = 64  # likewise
AGAIN_S = 5.0  # after there was no room for copies

Stripe = tuple[int, int]
COUNTED = (KeeperState.COMPLETE, KeeperState.IN_STEP)  # these have all that was answered


def move_keeper(nodes: dict[int, KeeperState], node: int, event: KeeperEvent) -> None:
    """``nodes``: of one partition, those that are told of changes. Raises InvalidTransition."""
    before = nodes.get(node, KeeperState.NONE)
    after = KEEPER_NEXT[before][event]
    if after is None:
        raise illegal("keeper", node, before, event)
    if after is KeeperState.NONE:
        del nodes[node]
    else:
        nodes[node] = after


class StripeCopies:
    """Sees to the copies of the stripes of this node's partitions, and keeps those of others."""

    def __init__(self, calls: Calls, meta: Meta, members: Members) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._nodes: dict[int, dict[int, KeeperState]] = {}  # partition of here -> node that is told of changes
        self._kept: set[int] = set()  # partitions of others with which this node is in step
        self._offered: set[int] = set()  # partitions of whose next owner this node has been said to be a keeper
        self._targets_of: tuple[int, ...] = ()  # the table by which ``_targets`` was worked out
        self._targets: list[int | None] = []  # partition -> its backup, of those of this node
        self._founded = False  # has every backup been in step once?
        self._busy: set[int] = set()  # nodes that are being brought in step, or released
        self._dropping = False
        self._left: dict[int, dict[Stripe, int]] = {}  # node -> what is to be copied there still, with its bytes
        #: Of the mover: partitions whose records are on their way, and those of which stripes are on their way here.
        self.away: Callable[[], set[int]] = set
        self.incomplete: Callable[[], Collection[int]] = set
        calls.serve(
            p.DropCopies.by(self._drop),
            p.KeepCopies.by(self._keep),
            p.CopyStripes.by(self._copy_stripes),
            p.ExpectCopies.by(lambda peer, call: self._expect()),
        )

    def counts(self) -> tuple[int, int]:
        """Files of which stripes of here are to be copied, and the bytes of these; one, where it is not known how many. None: whichever
        node dies next, all stripes that have copies are there. So a backup counts from the table on that names it, until it knows."""
        left = [item for stripes in self._left.values() for item in stripes.items()]
        return len({ino for (ino, _), _ in left}) or int(not self._are_in_step()), sum(size for _, size in left)

    def _are_in_step(self) -> bool:
        """The backups of all partitions of this node, those that are still on their way here among them."""
        if not self._meta.copies_wanted() or self._targets_of is not self._members.owners:
            return True
        unserved = self.away() | set(self.incomplete())
        for part, target in enumerate(self._targets):
            if target is not None and (part in unserved or self._nodes.get(part, {}).get(target) is not KeeperState.IN_STEP):
                return False
        return True

    def _expect(self) -> Operation[None]:
        if not self._founded:
            self._meta.expect_copies()
            self.choose()
            yield from self._calls.until(self._is_founded)

    def _is_founded(self) -> bool:
        """Nobody has a copy yet, so this takes no longer than the questions. Later a backup is brought in step in the background."""
        if not self._founded and self._targets and self._targets_of is self._members.owners:
            backups = [(part, node) for part, node in enumerate(self._targets) if node is not None]
            self._founded = all(self._nodes.get(part, {}).get(node) is KeeperState.IN_STEP for part, node in backups)
        return self._founded

    def expect(self) -> Operation[None]:
        """Somebody asks for copies: every node is to know before there are any."""
        for answer in (yield from together([self._calls.ask_patiently(node, p.ExpectCopies()) for node in sorted(self._members.live)])):
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
        if self._targets_of is not members.owners:
            table = PartitionTable(members.owners, members.version)
            self._targets_of = members.owners
            self._targets = [table.backup_of(part) if owner == me else None for part, owner in enumerate(members.owners)]
        away = self.away()
        self._review([part for part, owner in enumerate(members.owners) if owner == me and part not in away])

    def _review(self, parts: Iterable[int]) -> None:
        live = self._members.live
        for part in parts:
            target = self._targets[part]
            nodes = self._nodes.setdefault(part, {})
            for node in [node for node in nodes if node not in live]:
                del nodes[node]
            if target is not None and target in live and target not in nodes:
                move_keeper(self._nodes[part], target, KeeperEvent.CHOSEN)
            spare = {KeeperState.FILLING}
            if target is not None and nodes.get(target) is KeeperState.IN_STEP:
                spare |= {KeeperState.COMPLETE, KeeperState.IN_STEP}
            for node in [node for node, state in nodes.items() if node != target and state in spare]:
                move_keeper(self._nodes[part], node, KeeperEvent.REPLACED)
        self._order()
        self._wake()

    def _order(self) -> None:
        served = {
            part: tuple((node, state in COUNTED) for node, state in nodes.items())
            for part, nodes in self._nodes.items() if self._members.owners[part] == self._members.node
        }  # fmt: skip
        self._calls.order(w.SetStripeCopies(len(self._members.owners), served))

    def _wake(self) -> None:
        waiting = {node for part, nodes in self._nodes.items() for node, state in nodes.items() if self._is_due(part, node, state)}
        for node in waiting - self._busy:
            self._busy.add(node)
            self._calls.spawn(self._see_to(node))

    def _is_due(self, part: int, node: int, state: KeeperState | None) -> bool:
        """Is the node to be asked for anything? A source that is complete, and not the backup, is not."""
        due = state in (KeeperState.FILLING, KeeperState.RELEASING) or (state is KeeperState.COMPLETE and self._targets[part] == node)
        return due and self._is_served(part)

    # ── bringing a node in step, and releasing it ──────────────────────────────────────────────────

    def _see_to(self, node: int) -> Operation[None]:
        try:
            while node in self._members.live:
                due = [part for part, nodes in self._nodes.items() if self._is_due(part, node, nodes.get(node))]
                if not due:
                    return
                try:
                    yield from self._advance(node, {part: self._nodes[part] for part in due})
                except OSError:
                    yield Sleep(PAUSE_LAST_S)
        finally:
            self._busy.discard(node)
            self._left.pop(node, None)

    def _advance(self, node: int, due: dict[int, dict[int, KeeperState]]) -> Operation[None]:
        """``due``: of each partition the nodes of now. When it has left and come back there are others in their place, of which answers to
        earlier questions say nothing."""

        def those(state: KeeperState) -> list[int]:
            return [part for part, nodes in due.items() if self._nodes.get(part) is nodes and nodes.get(node) is state]

        version = self._members.version
        filling, releasing = those(KeeperState.FILLING), those(KeeperState.RELEASING)
        if filling or releasing:
            yield from ask(node, p.DropCopies(version, (*filling, *releasing)))  # a backup to be has nothing old then
        released = set(releasing).intersection(those(KeeperState.RELEASING)) if version == self._members.version else set()
        for part in released:
            move_keeper(self._nodes[part], node, KeeperEvent.ANSWERED)
        self._review(sorted(released))
        if filling:
            yield from self._push_all(node, {part for part in filling if part in those(KeeperState.FILLING)})
        for part in set(filling).intersection(those(KeeperState.FILLING)):
            if self._is_served(part):
                move_keeper(self._nodes[part], node, KeeperEvent.COPIED)
        self._order()  # this node believes it first: so all that are in step are told of changes
        said = [part for part in those(KeeperState.COMPLETE) if self._is_due(part, node, KeeperState.COMPLETE)]
        if said:
            yield from ask(node, p.KeepCopies(self._members.version, tuple(said)))
            known = [part for part in said if part in those(KeeperState.COMPLETE)]
            for part in known:
                move_keeper(self._nodes[part], node, KeeperEvent.ANSWERED)
            self._review([part for part in known if self._is_served(part)])

    def _lacks(self, part: int, node: int) -> bool:
        """Is it to be brought in step with this partition?"""
        return self._nodes.get(part, {}).get(node) is KeeperState.FILLING and self._is_served(part)

    def _push_all(self, node: int, parts: Collection[int]) -> Operation[None]:
        partition = self._meta.stripe_partition
        found = yield from work(w.ListCopied())
        left = self._left[node] = {(ino, index): size for ino, index, size in found if partition(ino, index) in parts}
        if left:
            self._calls.log(f"{len(left)} stripes ({sum(left.values())} bytes) are copied to node {node}")
        while left and node in self._members.live:
            full = failed = False
            for some in bounded(left.copy().items(), BYTES_AT_ONCE, STRIPES_AT_ONCE):
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

    # ── what this node keeps for others ────────────────────────────────────────────────────────────

    def _check(self, peer: int, version: int, parts: Sequence[int]) -> None:
        owners = self._members.owners
        if version != self._members.version or any(owners[part] != peer for part in parts):
            raise failure(META_NOT_MINE)

    def _drop(self, peer: int, call: p.DropCopies) -> Operation[None]:
        self._check(peer, call.version, call.partitions)
        self._kept.difference_update(call.partitions)
        self._offered.difference_update(call.partitions)
        yield from self._discard(call.partitions)

    def _discard(self, parts: tuple[int, ...]) -> Operation[None]:
        """One after the other: an earlier one, not done yet, would drop what comes after a later one."""
        while self._dropping:
            yield Sleep(PAUSE_FIRST_S)
        self._dropping = True
        try:
            yield from work(w.DropCopied(parts))
        finally:
            self._dropping = False

    def _keep(self, peer: int, call: p.KeepCopies) -> None:
        self._check(peer, call.version, call.partitions)
        self._kept.update(call.partitions)

    def is_kept(self, part: int) -> bool:
        """Has this node all that another one answered for?"""
        return part in self._kept

    def complete(self, part: int) -> list[int]:
        """Living nodes that have all stripes of this partition of here."""
        return [node for node, state in self._nodes.get(part, {}).items() if state in COUNTED and node in self._members.live]

    # ── partitions that come and go ────────────────────────────────────────────────────────────────

    def keepers(self, part: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The nodes that have all stripes of a partition that is about to leave, and the doubtful: the next owner tells both of changes."""
        nodes = self._nodes.get(part, {})
        counted = [node for node, state in nodes.items() if state in COUNTED]
        doubtful = tuple(nodes.keys() - set(counted))
        if not self._meta.copies_wanted() or not (part in self._nodes or part in self._kept):
            return (), ()
        if part in self.incomplete():
            self._offered.discard(part)
            return tuple(counted), doubtful
        self._offered.add(part)
        return (*counted, self._members.node), doubtful

    def left(self, part: int) -> None:
        """It has another owner now, which tells this node of changes if it was named as a keeper."""
        self._nodes.pop(part, None)
        if part in self._offered:
            self._offered.discard(part)
            self._kept.add(part)

    def came(self, part: int, keepers: Iterable[int], doubtful: Iterable[int] = ()) -> bool:
        """Its records are here, and nothing is served yet. Are stripes missing?"""
        others = self._members.live - {self._members.node}
        self._nodes[part] = {}
        for node in sorted(set(keepers).difference(doubtful) & others):
            move_keeper(self._nodes[part], node, KeeperEvent.NAMED)
        for node in sorted(set(doubtful) & others):
            move_keeper(self._nodes[part], node, KeeperEvent.DOUBTED)
        missing = self._meta.copies_wanted() and part not in self._kept
        self._kept.discard(part)
        self._offered.discard(part)
        return missing

    def returned(self, part: int, keepers: Iterable[int]) -> bool:
        """Likewise, of one that was sent to a node that has died. Nobody has released this node since it was named as a keeper?"""
        if part in self._offered:
            self._kept.add(part)
        return self.came(part, keepers)

    def bring(self, parts: Sequence[int], since: int) -> Operation[list[int]]:
        """Bring the stripes that this node lacks of these, which came with that table; returns those that no living node has."""
        yield from self._discard(tuple(parts))  # from an earlier time
        left, lost = list(parts), list[int]()
        while left:
            sources: dict[int, list[int]] = {}
            for part in [part for part in left if part in self._nodes]:  # the others have left again
                nodes = self.complete(part)
                if nodes:
                    sources.setdefault(nodes[0], []).append(part)
                else:
                    lost.append(part)
            left = []
            for node, some in sources.items():
                if not (yield from self._bring_from(node, some, since)):
                    left += some
        yield from self._let_go(parts)
        return lost

    def _bring_from(self, node: int, parts: list[int], since: int) -> Operation[bool]:
        """False: it died before all was here."""
        pause, after, coming = PAUSE_FIRST_S, (0, -1), set[int]()
        while node in self._members.live:
            try:
                some, waits = yield from ask(node, p.StripesOf(tuple(parts), True, since, after))
                coming.update(waits)
                parts = [part for part in parts if part not in coming]
                if not some and not coming:
                    return True
                if not some:
                    parts, after = sorted(coming), (0, -1)  # from the beginning, when they have come there
                    coming.clear()
                    raise failure(META_BUSY)
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
                while node in self._members.live and node in self._nodes.get(part, {}):
                    try:
                        yield from ask(node, p.DropCopies(self._members.version, (part,)))
                        break
                    except OSError:
                        yield Sleep(PAUSE_LAST_S)
                self._nodes.get(part, {}).pop(node, None)

    # ── files that get copies afterwards ───────────────────────────────────────────────────────────

    def protect(self, ino: int) -> Operation[int]:
        """Copies of all stripes of a file that may have been written without. Why there are fewer, or 0."""
        live = sorted(self._members.live)
        for push in (False, True):  # first all know, so that stripes written meanwhile have copies
            answers = yield from together([self._calls.ask_patiently(node, p.CopyStripes(ino, push)) for node in live])
            errors = [number_of(answer) for answer in answers if isinstance(answer, OSError)]
            if errors:
                return errno.ENOSPC if errno.ENOSPC in errors else errno.EIO
        return 0

    def _copy_stripes(self, peer: int, call: p.CopyStripes) -> Operation[None]:
        yield from self._expect()
        yield from work(w.MarkCopied(call.ino))
        if not call.push:
            return
        yield from self._calls.until(lambda: not (self.away() or self.incomplete()))
        partition = self._meta.stripe_partition
        found = [((ino, index), size) for ino, index, size in (yield from work(w.ListCopied())) if ino == call.ino]
        served = [item for item in found if self._is_served(partition(*item[0]))]
        for some in bounded(served, BYTES_AT_ONCE, STRIPES_AT_ONCE):
            pushes = [work(w.PushStripe(*stripe, node)) for stripe in some for node in self._nodes.get(partition(*stripe), {})]
            for result in (yield from together(pushes)):
                if isinstance(result, OSError) and result.errno != errno.ENOENT:
                    raise failure(errno.ENOSPC if result.errno == errno.ENOSPC else errno.EIO)
