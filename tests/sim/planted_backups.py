"""Faults planted into the backups of names on purpose, each named for what it does. Used as those of ``planted``."""

from __future__ import annotations

from typing import Any

import pytest

from amfs.fs.vfs.backups import Backups
from amfs.fs.vfs.calls import Operation
from amfs.fs.vfs.mover import PartitionMover
from amfs.sim.backups import BackupSender
from amfs.vocabulary import peer_requests as p


class Without:
    """A shard of which one method does nothing."""

    def __init__(self, meta: object, name: str) -> None:
        self._meta = meta
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return (lambda *given: None) if name == self._name else getattr(self._meta, name)


def _moved_without(patch: pytest.MonkeyPatch, name: str) -> None:
    real = PartitionMover.__init__

    def init(self: PartitionMover, *given: Any) -> None:
        real(self, *given)
        self._meta = Without(self._meta, name)  # type: ignore[assignment]

    patch.setattr(PartitionMover, "__init__", init)


def heirs_forget_what_they_were_told(patch: pytest.MonkeyPatch) -> None:
    """They serve what they inherit, and begin with nothing."""
    real = PartitionMover._take_over

    def take_over(self: PartitionMover, ours: list[int], lost: list[int]) -> None:
        for part in ours:
            self._meta.drop(part)
        real(self, ours, lost)

    patch.setattr(PartitionMover, "_take_over", take_over)


def a_batch_is_answered_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    """And then it comes after the next one, or never."""

    def arrives(self: BackupSender, node: int, batch: bytes) -> None:
        self._answered(node, 0, b"")

    patch.setattr(BackupSender, "_arrives", arrives)


def a_new_table_brings_no_new_backups(patch: pytest.MonkeyPatch) -> None:
    """Only of the first table each partition has a backup."""
    real = Backups.choose

    def choose(self: Backups) -> None:
        if self._members.version <= 2:
            real(self)
            return
        self._meta.set_backups([-1] * len(self._members.owners), sorted(self._members.live - {self._members.node}))

    patch.setattr(Backups, "choose", choose)


def a_partition_that_comes_is_told_to_nobody_at_first(patch: pytest.MonkeyPatch) -> None:
    """The node that sent it, which is its backup until the next one is in step, is told nothing more."""
    _moved_without(patch, "inherit_backups")


def heirs_ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """The heir does not ask which nodes have a partition of a dead node: it takes the one it has."""

    def have(self: PartitionMover, peer: int, call: p.Have) -> Operation[list[tuple[int, int]]]:
        yield from ()
        return []

    patch.setattr(PartitionMover, "_have", have)


def a_sender_keeps_the_backups_of_what_it_sent(patch: pytest.MonkeyPatch) -> None:
    """It goes on telling them, and the new owner does, too."""
    _moved_without(patch, "drop_backups")
