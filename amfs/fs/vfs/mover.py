"""Partitions that move when nodes come or go (MemFS §II): only those whose owner changed, each with its records. Pure.

Owns who serves the records of a partition. Its stripes follow (``stripe_moves.py``).

At any time one node has the records of a partition. When it learns of a table that gives the partition to another it stops serving it and
sends the records, until that one has said that they are there; a node that is asked twice for the same answers so again. Both must have the
same table, so nothing that is older than what the owner has can come to it. The owner serves the records from then on, and has the
stripes brought. The node that sent them stays a backup, like those that it had, until the owner has one that is in step.

The backup of a partition inherits it: when all live nodes know of the death, and none has it on its way, the heir serves its copy. If
there are several backups (one was taking the place of another) the heir has the others forget first. If the heir is not in step another one
sends it. So every node that believes to be in step has all that was answered. A partition that no living node has is lost: but for
the directories, which every node knows, it is empty, and a name that is not there may have been.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import suppress

from amfs._native import Meta
from amfs.fs.vfs.backups import Backups
from amfs.fs.vfs.calls import PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, together
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.stripe_copies import StripeCopies
from amfs.fs.vfs.stripe_moves import StripeMoves
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import META_NOT_MINE

RECORD_BYTES = 4 << 20  # in one message, or those of one partition
INHERITED_AT_ONCE = 64  # partitions, in one turn of the loop
IN_STEP = 2  # of Meta.shadow_state
JOIN_S = 0.5  # a new node waits so long for what is sent to it, before it asks all others


def batched(ours: list[int], lost: list[int], most: int) -> Iterator[tuple[list[int], list[int]]]:
    """Both, ``most`` of each at once."""
    for at in range(0, max(len(ours), len(lost)), most):
        yield ours[at : at + most], lost[at : at + most]


class PartitionMover:
    """Sends and takes in partitions."""

    def __init__(self, calls: Calls, meta: Meta, members: Members, backups: Backups, stripes: StripeCopies, moves: StripeMoves) -> None:
        self._backups = backups
        self._calls = calls
        self._meta = meta
        self._members = members
        self._stripes = stripes
        self._moves = moves
        stripes.away = lambda: self._arriving | self._leaving.keys()
        self._keepers: dict[int, set[int]] = {}  # partitions that are to be inherited -> who has all their stripes that have copies
        self._leaving: dict[int, int] = {}  # partitions whose records are here and that are not ours -> version of the table since which
        self._arriving: set[int] = set()  # partitions that are ours, and whose records are not here
        self._frozen: set[int] = set()  # partitions that ``meta`` does not serve
        self._inherited: set[int] = set()  # those arriving whose owner has died
        self._handed_over: set[int] = set()  # partitions arriving that a backup of their dead owner sends
        self._handing: dict[int, tuple[int, ...]] = {}  # partitions leaving that are here as a backup -> who has their stripes
        self._doubtful: dict[int, int] = {}  # partitions leaving -> node that was sent them, and may have them or not
        self._copies: dict[int, tuple[int, ...]] = {}  # partitions that were sent -> who has all of it, too
        self._took: dict[int, tuple[int, int]] = {}  # partition -> (who sent it, its version in ``_leaving`` there)
        self._senders: set[int] = set()  # nodes to which partitions are being sent
        self._asking = False
        calls.serve(
            p.Arrive.by(self._arrive),
            p.Have.by(self._have),
            p.HandOver.by(self._hand_over),
            p.ForgetBackup.by(self._forget_backup),
            p.StillComing.by(lambda peer, call: self.in_motion() or moves.is_fetching() or members.version < call.version),
        )

    def in_motion(self) -> bool:
        """Are records on their way from or to this node?"""
        return bool(self._arriving or self._leaving)

    def is_fetching(self) -> bool:
        """Are stripes on their way to this node?"""
        return self._moves.is_fetching()

    def expect(self, owners: tuple[int, ...]) -> tuple[int, ...]:
        """Before ``meta`` knows the table: partitions that come by it are not here yet. Answers those of which no stripe may be served."""
        before, me = self._members.owners, self._members.node
        coming = {part for part, owner in enumerate(owners) if owner == me and (not before or before[part] != me)}
        going = {part for part, owner in enumerate(before) if owner == me != owners[part]}
        if not before:  # the shard has no table yet, and nobody asks it before its first view is over
            return self._moves.expect(coming if set(owners) != {me} else set())
        self._meta.set_moving(sorted(coming), True)
        self._frozen |= coming
        return self._moves.expect(coming | going)

    def move(self, owners: tuple[int, ...], dead: set[int]) -> None:
        """The table is ``owners`` from now on (``meta`` knows it already)."""
        members = self._members
        before, members.owners = members.owners, owners
        founded = not before and set(owners) == {members.node}
        if founded:
            members.introduced = True
        mine = {part for part, owner in enumerate(owners) if owner == members.node}
        had = {part for part, owner in enumerate(before) if owner == members.node}
        self._leaving.update((part, members.version) for part in had - mine - self._arriving)
        gained = mine - had if not founded else set()
        self._arriving = (self._arriving | gained) & mine
        self._handed_over &= self._arriving
        self._inherited = (self._inherited | {part for part in gained if before and before[part] in dead}) & self._arriving
        returned: list[int] = []
        for part in [part for part, node in self._doubtful.items() if node in dead]:
            del self._doubtful[part]  # if it had it, that is gone with it
            returned.append(part)
        self._keep_ours()
        if returned and self._meta.copies_wanted():
            returned = [part for part in returned if owners[part] == members.node and part not in self._arriving]
            self._moves.begin(returned)
            self._calls.spawn(self._moves.reclaim(returned))
        self._freeze()
        self._wake_senders()
        if self._arriving and not self._asking:
            self._calls.spawn(self._find_orphans(JOIN_S if not before and not dead else 0.0))

    def _keep_ours(self) -> None:
        """Partitions that were to leave, and did not, are ours again."""
        owners, me = self._members.owners, self._members.node
        self._prune()
        for part in [part for part in self._leaving if owners[part] == me and part not in self._doubtful]:
            del self._leaving[part]
            copies = self._copies.pop(part, ())
            if self._handing.pop(part, None) is not None:
                continue  # this node never owned it, and inherits it: all are asked first
            self._meta.promote(part)
            self._meta.inherit_backups(part, [node for node in copies if node in self._members.live])
            self._arriving.discard(part)

    def _prune(self) -> None:
        """The receiver has told us, as its backup, that we need not know these any more: so it had them."""
        for part in [part for part in self._copies if not self._meta.shadow_state(part)]:
            del self._copies[part]
            self._left(part)
            self._doubtful.pop(part, None)

    def _left(self, part: int) -> None:
        self._handing.pop(part, None)
        if self._leaving.pop(part, None) is not None:
            self._stripes.left(part)

    def _freeze(self) -> None:
        away = self._arriving | self._leaving.keys()
        self._meta.set_moving(sorted(self._frozen - away), False)
        self._meta.set_moving(sorted(away - self._frozen), True)
        self._frozen = away
        self._moves.freeze(away)

    # ── sending ────────────────────────────────────────────────────────────────────────────────────

    def _wake_senders(self) -> None:
        targets = {self._target(part) for part in self._leaving}
        for node in targets & self._members.live - self._senders - {self._members.node}:
            self._senders.add(node)
            self._calls.spawn(self._send(node))

    def _target(self, part: int) -> int:
        return self._doubtful.get(part, self._members.owners[part])

    def _send(self, node: int) -> Operation[None]:
        """All that is to go to ``node``, until it is there, or goes to another."""
        try:
            while node in self._members.live and (parts := [part for part in sorted(self._leaving) if self._target(part) == node]):
                try:
                    yield from self._calls.settled()  # then all that know it know the same
                except OSError:
                    yield Sleep(PAUSE_LAST_S)
                    continue
                if not (yield from self._send_some(node, [part for part in parts if part in self._leaving and self._target(part) == node])):
                    yield Sleep(PAUSE_LAST_S)
        finally:
            self._senders.discard(node)
        self._wake_senders()

    def _send_some(self, node: int, parts: list[int]) -> Operation[bool]:
        """One message. False: ``node`` has another table, or does not answer."""
        records: list[tuple[int, int, bytes, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        size = 0
        while parts and size < RECORD_BYTES:
            part = parts.pop(0)
            if part not in self._copies:
                self._copies[part] = self._meta.backups_of(part)
                self._meta.drop_backups(part)
            elif not self._meta.shadow_state(part):
                continue
            copies = tuple({self._members.node, *self._copies[part]} - {node})
            keepers, doubtful = self._stripes.keepers(part)
            keepers += self._handing.get(part, ())
            records.append((part, self._leaving[part], self._meta.export_partition(part), copies, keepers, doubtful))
            self._meta.demote(part, node)
            size += len(records[-1][2])
            self._doubtful[part] = node
        taken: set[int] = set()
        try:
            taken.update((yield from ask(node, p.Arrive(self._members.version, tuple(records), self._meta.copies_wanted()))))
        except OSError as error:
            if error.errno != errno.EHOSTDOWN:
                return False  # it may have them, and is asked again
        for part, since, *_ in records:
            self._doubtful.pop(part, None)
            if part in taken and self._leaving.get(part) == since:
                self._left(part)
                self._copies.pop(part, None)
        self._keep_ours()
        self._freeze()
        return bool(taken)

    # ── taking in ──────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, peer: int, call: p.Arrive) -> Operation[list[int]]:
        members = self._members
        yield from self._calls.until(lambda: bool(members.owners))  # others may have learnt earlier that this node is a member
        taken: list[int] = []
        new: list[int] = []
        lacking: list[int] = []
        unknown: list[tuple[int, bytes, int]] = []
        if call.copies_wanted:
            self._meta.expect_copies()
        for part, since, data, copies, keepers, doubtful in call.records:
            if self._took.get(part) == (peer, since):
                taken.append(part)
            elif call.version == members.version and members.owners[part] == members.node:
                taken.append(part)
                if part in self._arriving:
                    self._meta.drop(part)  # the copy that was here as a backup
                    self._meta.import_(data)
                    if part in self._handed_over:
                        self._handed_over.discard(part)
                        unknown += self._meta.unknown_dirs(part)
                    self._meta.inherit_backups(part, [node for node in copies if node in members.live])
                    self._took[part] = peer, since
                    self._arriving.discard(part)
                    self._inherited.discard(part)
                    if self._stripes.came(part, keepers, doubtful):
                        lacking.append(part)
                    new.append(part)
        self._moves.begin(new)
        if new:
            self._freeze()
            self._backups.choose()
            self._stripes.choose()
            self._calls.spawn(self._moves.bring(peer, new, set(lacking)))
        if unknown:
            self._calls.spawn(self._strike(unknown))
        return taken

    def _find_orphans(self, patience_s: float) -> Operation[None]:
        """Does any node have the records of what is to arrive? Asked of all when nodes have gone; an answer knows of that. A node that has
        just been let in does not know whether nodes have gone before: it asks if not all has come after ``patience_s``."""
        members = self._members
        self._asking = True
        try:
            if patience_s:
                yield Sleep(patience_s)
            asked = -1
            while self._arriving and asked != members.version:
                version, parts = members.version, sorted(self._arriving)
                others = sorted(members.live - {members.node})
                yield from self._backups.forgotten()
                answers = yield from together([ask(node, p.Have(version, tuple(parts))) for node in others])
                leaving: set[int] = set()
                backups: dict[int, list[int]] = {}
                self._keepers = {part: set() for part in parts}
                failed = False
                for node, answer in zip(others, answers, strict=True):
                    if isinstance(answer, OSError):
                        failed = True
                        continue
                    leaving.update(part for part, how in answer if how == p.LEAVES)
                    for part in (part for part, how in answer if how == p.BACKUP):
                        backups.setdefault(part, []).append(node)
                    for part in (part for part, how in answer if how == p.STRIPES):
                        self._keepers[part].add(node)
                orphans = [part for part in parts if part not in leaving and part in self._arriving]
                if failed or (version == members.version and not (yield from self._inherit(orphans, backups))):
                    yield Sleep(PAUSE_LAST_S)
                    continue
                asked = version
        finally:
            self._asking = False

    def _inherit(self, parts: list[int], backups: dict[int, list[int]]) -> Operation[bool]:
        """Their owners have died; these nodes were in step. False: it is to be tried again."""
        version = self._members.version
        if early := [part for part in parts if part not in self._inherited]:
            # This node owned them already when the node that had their stripes died: the others count only a dead owner's as lost.
            yield from self._moves.lose(early, False)
        if version != self._members.version:
            return False
        ours = [part for part in parts if self._meta.shadow_state(part) == IN_STEP]
        senders: dict[int, list[int]] = {}
        forget: dict[int, list[int]] = {}
        for part in parts:
            there = backups.get(part, [])
            if there and part not in ours:
                senders.setdefault(there[0], []).append(part)
                there = there[1:]
            for node in there:
                forget.setdefault(node, []).append(part)
        questions: list[Operation[None]] = [ask(node, p.ForgetBackup(version, tuple(some))) for node, some in forget.items()]
        if any(isinstance(answer, OSError) for answer in (yield from together(questions))) or version != self._members.version:
            return False
        self._handed_over.update(part for some in senders.values() for part in some)
        questions = [
            ask(node, p.HandOver(version, tuple(some), tuple(tuple(self._keepers[part]) for part in some)))
            for node, some in senders.items()
        ]  # fmt: skip
        if any(isinstance(answer, OSError) for answer in (yield from together(questions))) or version != self._members.version:
            return False
        lost = [part for part in parts if part not in ours and not backups.get(part)]
        if lost:
            what = f"the names of {len(lost)} of {len(self._members.owners)} partitions are lost: their node and its backup died together"
            self._calls.log(f"{what}. A name that is not there is EIO in them, as nobody can say that it never was", logging.ERROR)
        for some, none in batched(ours, lost, INHERITED_AT_ONCE):
            if version != self._members.version:
                return False
            self._take_over(some, none)
            yield Sleep(0.0)  # a million records take a tenth of a second: others have their turn
        return True

    def _take_over(self, ours: list[int], lost: list[int]) -> None:
        """Serve these: of the first there is everything here. Of the second nobody has the records: those of directories are known to all,
        and the rest is lost."""
        unknown: list[tuple[int, bytes, int]] = []
        for part in ours:
            self._meta.promote(part)
            unknown += self._meta.unknown_dirs(part)
        if unknown:
            self._calls.spawn(self._strike(unknown))
        for part in lost:
            self._meta.drop(part)
        self._meta.set_unsure(lost, True)
        self._arriving.difference_update(ours, lost)
        self._inherited.difference_update(ours, lost)
        lacking = [part for part in (*ours, *lost) if self._stripes.came(part, self._keepers.pop(part, set()))]
        self._moves.begin(lacking)
        if lacking:
            self._calls.spawn(self._moves.inherit(lacking))
        self._stripes.choose()
        self._freeze()
        self._meta.mend_dirs(False)
        self._backups.choose()

    def _strike(self, entries: list[tuple[int, bytes, int]]) -> Operation[None]:
        """Names of directories that were about to be made, or had just been moved or removed, when the node died that had the names."""
        version = -1
        while version != self._members.version:
            version = self._members.version
            try:
                yield from ask(self._members.manager, p.SettleDirectories())
            except OSError:
                version = -1
                yield Sleep(PAUSE_LAST_S)
        for dir, name, ino in entries:
            with suppress(OSError):  # ENOENT: that is what is looked for
                if self._meta.dir_find(dir, name)[0] == ino:
                    continue
            with suppress(OSError):
                self._meta.remove(dir, name, 0, ino)
        self._meta.mend_dirs(False)  # where two directories were about to exchange their names

    def _have(self, peer: int, call: p.Have) -> Operation[list[tuple[int, int]]]:
        if call.version > self._members.version:
            raise failure(META_NOT_MINE)
        yield from self._backups.forgotten()
        self._prune()
        leaving = [(part, p.LEAVES) for part in call.partitions if part in self._leaving]
        in_step = [part for part in call.partitions if part not in self._leaving and self._meta.shadow_state(part) == IN_STEP]
        kept = [part for part in call.partitions if self._stripes.is_kept(part)]
        return leaving + [(part, p.BACKUP) for part in in_step] + [(part, p.STRIPES) for part in kept]

    def _hand_over(self, peer: int, call: p.HandOver) -> None:
        if call.version != self._members.version:
            raise failure(META_NOT_MINE)
        for part, keepers in zip(call.partitions, call.keepers, strict=True):
            if part not in self._leaving and self._meta.shadow_state(part) == IN_STEP:
                self._leaving[part] = call.version
                self._copies[part] = ()
                self._handing[part] = keepers
        self._freeze()
        self._wake_senders()

    def _forget_backup(self, peer: int, call: p.ForgetBackup) -> None:
        if call.version != self._members.version:
            raise failure(META_NOT_MINE)
        for part in call.partitions:
            if part not in self._leaving and self._members.owners[part] == peer:
                self._meta.drop(part)
