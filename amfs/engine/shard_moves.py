"""Partitions of the File Location Service that move while runs go on: which of them a shard has, and for which it waits. Pure.

Owns, for one shard: the table, the partitions whose records another shard is still to hand over, the messages that wait for these, and the
partitions of which no other shard has been told that nothing more is to come. Must not know: records, states of files.

A shard that gets a partition from a node that lives waits for what that node knows (``HandOver``), since only then can it answer: a file of
which it knows nothing may have been made, and readers may have been counted. If that node dies first, nothing is waited for: the workers
say again what they have. A shard that has missed a view does not know from whom it gets what, waits for nobody, and tells the others not to
wait for it. A message for a partition of another shard, whose sender had another view, is sent on to that shard (``Astray``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import NamedTuple

import msgspec

from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.partition import PartitionTable, moves_between

ByName = m.Publish | m.Replica | m.Locate | m.Release | m.ReadAgain | m.Poison | m.FinalizeFiles | m.Lost

NOBODY_KNOWS = -1  # in place of the node that had a partition before


def keys_of(message: ByName) -> Sequence[str]:
    """The files of which a message speaks."""
    if isinstance(message, m.Publish):
        return [file.name for file in message.files]
    if isinstance(message, m.FinalizeFiles):
        return (*message.finals, *message.drops)
    return message.names


def only(message: ByName, keys: Iterable[str]) -> ByName:
    """The message, of these files only."""
    kept = set(keys)
    if isinstance(message, m.Publish):
        return m.Publish(message.run, tuple([file for file in message.files if file.name in kept]))
    if isinstance(message, m.FinalizeFiles):
        finals, drops = (tuple([name for name in names if name in kept]) for names in (message.finals, message.drops))
        return m.FinalizeFiles(message.run, finals, drops)
    return msgspec.structs.replace(message, names=tuple([name for name in message.names if name in kept]))


class Turn(NamedTuple):
    """A new view's meaning for a shard."""

    lost: bool  # nodes were lost, or may have been: records may be gone
    unheard: Set[int]  # runs of which nodes that have left in order had not heard all
    jumped: bool  # the view before it was missed
    gave: bool  # partitions have gone to others
    left: list[int]  # partitions that others have now, of which this shard has all that there is


class Sorted(NamedTuple):
    """The files of one message: of this shard, of partitions that are waited for, of other shards."""

    mine: list[str]
    waiting: dict[int, list[str]]
    away: dict[int, list[str]]


class ShardMoves:
    """Of one node's shard."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.table: PartitionTable | None = None
        self.epoch = 0
        self.lost_at = 0  # the epoch since which this shard knows that no node was lost
        self.left: list[tuple[int, Set[int]]] = []  # the epochs since then in which nodes left in order, and the runs of which these spoke
        self.dead: set[int] = set()  # nodes that were lost, or have left; a number is never given twice
        self.since: dict[int, int] = {}  # run -> epoch in which it began, as its submitter has said
        #: partition -> the node that is to hand it over, and the epoch in which it moved. It may have moved on since: then the records are
        #: passed on.
        self.expected: dict[int, tuple[int, int]] = {}
        self.waiting: dict[int, list[tuple[int, ByName]]] = {}  # partition -> messages, with their senders
        self.unsaid: dict[int, int] = {}  # partition that left in this epoch, when no run was known -> nobody was told that nothing comes
        self.sent_on: list[tuple[int, int, ByName]] = []  # shard to which a message was sent on, its sender: said again if that shard dies
        self.early: list[tuple[int, m.HandOver | m.Astray]] = []  # of views that this shard has not heard of yet

    def follow(self, event: MembersChanged, runs: Collection[int]) -> Turn:
        """There is a new view. ``runs``: those that are known."""
        before, self.table = self.table, event.table
        jumped = before is not None and (
            event.table.version != self.epoch + 1 or len(before.owners) != len(event.table.owners)
        )
        self.epoch = epoch = event.table.version
        self.dead |= event.dead
        if before is None:
            self.lost_at = epoch
            if event.new:
                owners = event.table.owners
                self.expected = {part: (NOBODY_KNOWS, epoch) for part, owner in enumerate(owners) if owner == self.node}
            return Turn(False, frozenset(), False, False, [])
        lost = jumped or not event.dead <= event.in_order.keys()
        if lost:
            self.lost_at, self.left = epoch, []
        if jumped:
            self.expected.clear()
            self.unsaid.clear()
            return Turn(True, frozenset(), True, True, [])
        free = self._expect_nothing_of(event.dead) if event.dead else []
        for node, heard in event.in_order.items():
            self.left.append((epoch, heard))
            # It has sent on all that was sent on to it.
            self.sent_on = [each for each in self.sent_on if each[0] != node or each[2].run not in heard]
        moves = moves_between(before, event.table)
        gave = moves.left.get(self.node, ())
        left = [part for part in gave if part not in self.expected]
        left += self.passed(runs)
        for part in moves.came.get(self.node, ()):
            was_told = self.unsaid.pop(part, None) is None  # else it comes back, and the node that had it still waits for word from here
            if was_told and (old := before.owners[part]) not in event.dead:
                self.expected[part] = (old, epoch)
            else:
                self.expected.pop(part, None)
        left += [part for part in free if not self.has(part) and part not in left]
        unheard = {run for run in runs if any(run not in heard for heard in event.in_order.values())}
        return Turn(lost, unheard, False, bool(gave), left)

    def is_whole(self, run: int, epoch: int) -> bool:
        """Was nothing of the run lost with a node? Its submitter knows that of the time until ``epoch``."""
        return epoch >= self.lost_at and all(epoch >= left or run in heard for left, heard in self.left)

    def _expect_nothing_of(self, nodes: Iterable[int]) -> list[int]:
        """These nodes have nothing more to hand over, nor have those that nobody knows. Returns the partitions."""
        gone = {NOBODY_KNOWS, *nodes}
        free = [part for part, (source, _) in self.expected.items() if source in gone]
        for part in free:
            del self.expected[part]
        return free

    def passed(self, runs: Collection[int]) -> list[int]:
        """Partitions of others that this shard was to pass on when they come, and which none of these runs waits for."""
        free = [part for part in self.expected if not self.has(part) and not any(self.waits(run, part) for run in runs)]
        self.came(free)
        return free

    def has(self, part: int) -> bool:
        """Whether the partition is this shard's."""
        assert self.table is not None
        return self.table.owners[part] == self.node

    def owner(self, part: int) -> int:
        assert self.table is not None
        return self.table.owners[part]

    def parts(self, keys: Sequence[str]) -> list[int]:
        """The partitions of files."""
        assert self.table is not None
        return self.table.parts(keys)

    def waits(self, run: int, part: int) -> bool:
        """Whether records of the run may be on their way here. None are of a run that began after the partition had moved."""
        expected = self.expected.get(part)
        return expected is not None and self.since.get(run, -1) < expected[1]

    def sort(self, run: int, keys: Sequence[str]) -> Sorted | None:
        """Where these belong; None: all here."""
        table = self.table
        if table is None or (table.single == self.node and not self.expected):
            return None
        node, owners, parts = self.node, table.owners, table.parts(keys)
        if not self.expected and {*map(owners.__getitem__, parts)} <= {node}:
            return None
        found = Sorted([], {}, {})
        for key, part in zip(keys, parts, strict=True):
            if owners[part] != node:
                found.away.setdefault(owners[part], []).append(key)
            elif self.waits(run, part):
                found.waiting.setdefault(part, []).append(key)
            else:
                found.mine.append(key)
        return found

    def came(self, parts: Iterable[int]) -> None:
        """All that others knew of these is here."""
        for part in parts:
            self.expected.pop(part, None)

    def all_said(self, peer: int) -> list[int]:
        """This node has missed a view: it does not know what it is to hand over. Returns partitions for which nobody waits any more."""
        return self._expect_nothing_of([peer])

    def begins(self, run: int, since: int) -> list[int]:
        """A run is known that began in this epoch. Returns partitions whose new owners wait for word because of it."""
        self.since[run] = since
        due = [part for part, epoch in self.unsaid.items() if epoch > since]
        for part in due:
            del self.unsaid[part]
        return due

    def ends(self, run: int) -> None:
        """Nothing waits for a run that has ended."""
        self.since.pop(run, None)
        self.sent_on = [each for each in self.sent_on if each[2].run != run]
        for part, messages in list(self.waiting.items()):
            messages[:] = [each for each in messages if each[1].run != run]
            if not messages:
                del self.waiting[part]

    def ready(self) -> list[tuple[int, ByName]]:
        """Messages that need not wait any longer, in the order in which they came for each file."""
        found: list[tuple[int, ByName]] = []
        for part in list(self.waiting):
            here, messages = self.has(part), self.waiting.pop(part)
            still = [each for each in messages if here and self.waits(each[1].run, part)]
            found += [each for each in messages if not (here and self.waits(each[1].run, part))]
            if still:
                self.waiting[part] = still
        return found

    def lost_on_the_way(self) -> list[tuple[int, ByName]]:
        """Messages that were sent on to shards that have died since. Those may have passed them on before: after a loss nothing depends on
        how often a message is heard."""
        lost = [(peer, message) for node, peer, message in self.sent_on if node in self.dead]
        self.sent_on = [each for each in self.sent_on if each[0] not in self.dead]
        return lost

    def due(self) -> list[tuple[int, m.HandOver | m.Astray]]:
        """Messages that came too early, and are of views that this shard knows by now."""
        early, self.early = self.early, []
        self.early = [each for each in early if each[1].epoch > self.epoch and each[0] not in self.dead]
        return [each for each in early if each[1].epoch <= self.epoch]
