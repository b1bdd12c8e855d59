"""Backups of partitions: which node is told of the changes of which, and answers that wait until it has been told. Pure.

The shard itself keeps what is to be told (csrc/metadata/fsmeta_backup.c), since threads of C change it, too. Decided here is which node is
the backup of a partition, by the table, and what every node must forget when a partition is inherited.
"""

from __future__ import annotations

import logging

from amfs._native import Meta
from amfs.fs.vfs.caches import EVERY_NAME
from amfs.fs.vfs.calls import Calls, Operation, ask, together, work
from amfs.fs.vfs.members import Members
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.partition import PartitionTable

COMPLAINT_S = 60.0  # between two


class Backups:
    """Names the backups of this node's partitions."""

    def __init__(self, calls: Calls, meta: Meta, members: Members) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        calls.serve(p.Losses.by(self._losses))
        self._quiet_until = 0.0
        self._chosen_for: tuple[int, ...] = ()  # the table by which ``_chosen`` was worked out
        self._chosen: list[int] = []  # partition -> its backup, of those of this node; else -1
        self._forgetting = 0  # losses of nodes of which kernels are being told
        calls.unsettled = self._unsettled

    def choose(self) -> None:
        """By the table, for what is served here by now."""
        members = self._members
        if members.owners is not self._chosen_for:
            self._chosen_for = members.owners
            table = PartitionTable(members.owners, members.version)
            self._chosen = [-1] * len(members.owners)
            for part, owner in enumerate(members.owners):
                if owner == members.node and (backup := table.backup_of(part)) is not None:
                    self._chosen[part] = backup
        backups = [node if node in members.live else -1 for node in self._chosen]
        self._meta.set_backups(backups, sorted(members.live - {members.node}))
        self._calls.order(w.SendBackups())

    # ── answers ────────────────────────────────────────────────────────────────────────────────────

    def _unsettled(self) -> Operation[None] | None:
        ticket = self._meta.ticket()
        return None if self._meta.backed_up() >= ticket else self._await(ticket)

    def _await(self, ticket: int) -> Operation[None]:
        """Not for ever: a node that lives, and whose data port is dead, is not taken out by anybody."""
        try:
            yield from work(w.AwaitBackup(ticket))
        except OSError:
            if self._calls.now >= self._quiet_until:
                self._quiet_until = self._calls.now + COMPLAINT_S
                what = "a backup does not say that it knows what was changed here: can its data port be reached? Changes are EIO"
                self._calls.log(what, logging.ERROR)
            raise

    # ── who watches what ───────────────────────────────────────────────────────────────────────────

    def forget(self, parts: list[int]) -> None:
        """The owners of these have died, and with them the knowledge of who must be told of changes. So all that is known of them here is
        forgotten."""
        self._meta.uncache_partitions(parts)
        self._forgetting += 1
        self._calls.spawn(work(w.Invalidate((0,), (EVERY_NAME,))), lambda error, _: self._forgotten())

    def _forgotten(self) -> None:
        self._forgetting -= 1

    def forgotten(self) -> Operation[None]:
        """Until the kernels of this node have forgotten what they knew of partitions of dead nodes."""
        yield from self._calls.until(lambda: not self._forgetting)

    # ── what is lost all the same ──────────────────────────────────────────────────────────────────

    def losses(self, accept: bool) -> Operation[int]:
        """Of how many partitions names were lost. ``accept``: from now on a name that is not there never was."""
        answers = yield from together([ask(node, p.Losses(accept)) for node in sorted(self._members.live)])
        for answer in answers:
            if isinstance(answer, OSError):
                raise answer
        return sum(answer for answer in answers if not isinstance(answer, OSError))

    def _losses(self, peer: int, call: p.Losses) -> int:
        if call.accept:
            self._meta.set_unsure(range(len(self._members.owners)), False)
        return self.counts()[2]

    def counts(self) -> tuple[int, int, int]:
        """Partitions of this node; those of them whose backup is in step; those of which names were lost."""
        return self._meta.count_backups()
