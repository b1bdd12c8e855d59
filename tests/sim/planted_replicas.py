"""Faults planted into the copies of files on purpose, each named for what it does. Used as those of ``planted``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from amfs.fs.vfs.calls import Operation, together, work
from amfs.fs.vfs.checkpoints import Checkpoints
from amfs.fs.vfs.damage import Damage
from amfs.fs.vfs.evictor import Evictor
from amfs.fs.vfs.replicas import Replicas
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import Attr, Facts


def closing_is_answered_before_copies_exist(patch: pytest.MonkeyPatch) -> None:
    def copy(self: Replicas, peer: int, attr: Attr, facts: Facts) -> Operation[tuple[list[int], int]]:
        yield from ()
        return sorted(self._members.live - {peer})[: attr.copies - 1], 0

    patch.setattr(Replicas, "_copy_to_others", copy)


def flushing_is_answered_before_copies_exist(patch: pytest.MonkeyPatch) -> None:
    """And the last closing believes that what has not changed since was copied."""

    def flush(self: Checkpoints, ino: int, facts: Facts) -> Operation[int]:
        digest = yield from self._digest(ino, facts)
        if digest is not None:
            self._flushed[ino] = digest
        return 0

    patch.setattr(Checkpoints, "flush", flush)


def a_copy_that_failed_is_counted(patch: pytest.MonkeyPatch) -> None:
    def spread(
        self: Replicas, nodes: Sequence[int], count: int, copy: Callable[[int], Operation[None]]
    ) -> Operation[tuple[list[int], int]]:
        chosen = list(nodes[:count])
        yield from together([copy(node) for node in chosen])
        return chosen, 0

    patch.setattr(Replicas, "_spread", spread)


def the_evictor_does_not_ask(patch: pytest.MonkeyPatch) -> None:
    def evict(self: Evictor, ino: int) -> Operation[bool]:
        yield from work(w.DropWhole(ino))
        return True

    patch.setattr(Evictor, "_evict", evict)


def a_damaged_copy_stays_recorded(patch: pytest.MonkeyPatch) -> None:
    def drop(self: Damage, ino: int) -> Operation[None]:
        yield from work(w.DropWhole(ino))

    patch.setattr(Damage, "_drop", drop)


def a_damaged_copy_is_only_logged(patch: pytest.MonkeyPatch) -> None:
    def drop(self: Damage, ino: int) -> Operation[None]:
        yield from ()

    patch.setattr(Damage, "_drop", drop)


def copies_are_not_made_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicas, "look", lambda self: None)


def who_had_the_old_content_counts_as_having_the_new(patch: pytest.MonkeyPatch) -> None:
    def record(self: Replicas, peer: int, attr: Attr, facts: Facts, kept: list[int]) -> None:
        done = attr._replace(**facts._asdict(), ctime=max(attr.ctime, facts.mtime))
        self._meta.checkpoint(attr.ino, peer, done, sorted({*kept, *self._meta.holders(attr.ino)} - {peer}))

    patch.setattr(Replicas, "_record_copies", record)


def what_was_flushed_is_believed_to_be_all(patch: pytest.MonkeyPatch) -> None:
    """Without a look whether something was written since."""
    real = Checkpoints.finish

    def finish(self: Checkpoints, ino: int, facts: Facts) -> Operation[tuple[int, bool]]:
        if self._flushed.pop(ino, None) is not None:
            return 0, True
        return (yield from real(self, ino, facts))

    patch.setattr(Checkpoints, "finish", finish)
