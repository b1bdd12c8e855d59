"""Backups of partitions: a shard that is told of another's changes in batches has all that was answered when it inherits them."""

from __future__ import annotations

import errno
import random
import struct
from contextlib import suppress

import pytest
from meta_making import FILE, made, names, refused

from amfs._native import Meta
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE, META_SET_MODE, META_SET_SIZE, ROOT, Attr

PARTITIONS = 8
NONE, SYNCING, IN_STEP = range(3)


def pair(version: int = 2) -> tuple[Meta, Meta]:
    """Node 0 owns everything, node 1 is its backup."""
    owner, backup = Meta(0), Meta(1)
    for meta in (owner, backup):
        meta.set_table([0] * PARTITIONS, version)
    owner.set_backups([1] * PARTITIONS, [1])
    backup.set_backups([-1] * PARTITIONS, [0])
    return owner, backup


def deliver(source: Meta, target: Meta, number: int = 1, of: int = 0, most: int = 1000) -> int:
    """Batches, until there are none; how many there were."""
    for count in range(most):
        batch = source.backup_next(number)
        if batch is None:
            return count
        source.backup_answered(number, 0, target.backup_take(of, batch))
    return most


def inherit(meta: Meta, node: int = 1, version: int = 3) -> None:
    meta.forget_node(0)
    meta.set_table([node] * PARTITIONS, version)
    for part in range(PARTITIONS):
        meta.promote(part)
    meta.check()


def records(meta: Meta, node: int) -> dict[bytes, tuple[int, Attr, list[bytes]]]:
    return {name: (ino, Attr(*meta.getattr(ino, node)), meta.list_xattr(ino)) for name, ino, *_ in meta.list(ROOT, 0, 4000)}


def test_what_was_there_and_what_changed_since_is_inherited() -> None:
    owner, backup = pair()
    before = made(owner, b"before")
    assert deliver(owner, backup) == 1
    assert [backup.shadow_state(part) for part in range(PARTITIONS)] == [IN_STEP] * PARTITIONS
    after = made(owner, b"after")
    owner.setattr(before.ino, META_SET_MODE, Attr(mode=0o600), 5, 0)
    owner.set_xattr(after.ino, b"user.a", b"value", 0, 6)
    gone = made(owner, b"gone")
    owner.unlink(ROOT, b"gone", 7)
    assert owner.backed_up() < owner.ticket()
    deliver(owner, backup)
    assert owner.backed_up() == owner.ticket()
    assert names(backup) == [] and backup.counts()["inodes"] == 0 and backup.count(ROOT) == 0, "a backup is not served"
    with refused(META_NOT_MINE):
        backup.getattr(before.ino, 1)
    backup.check()
    inherit(backup)
    assert sorted(names(backup)) == [b"after", b"before"]
    assert Attr(*backup.getattr(before.ino, 1)).mode == FILE & ~0o777 | 0o600
    assert backup.get_xattr(after.ino, b"user.a") == b"value"
    with refused(errno.ENOENT):
        backup.getattr(gone.ino, 1)


@pytest.mark.parametrize("seed", range(8))
def test_any_changes_in_batches_that_are_repeated_leave_the_same(seed: int) -> None:
    rng = random.Random(seed)
    owner, backup = pair()
    for step in range(600):
        name, other = (b"f%d" % rng.randrange(20) for _ in range(2))
        with suppress(OSError):
            ino = owner.lookup(ROOT, name, 0)[0] if step % 6 else 0
            match step % 6:
                case 0:
                    owner.create(ROOT, name, step, 0, None, Attr(mode=FILE, writer=rng.choice((-1, 0))))
                case 1:
                    owner.unlink(ROOT, name, step)
                case 2:
                    owner.rename(ROOT, name, ROOT, other, rng.choice((0, 2)), step)
                case 3:
                    owner.setattr(ino, META_SET_SIZE | META_SET_MODE, Attr(size=step, mode=0o600), step, 0)
                case 4:
                    owner.open(ino, rng.choice((0, 1, 2)), True)
                case 5:
                    owner.unused(ino, rng.choice((0, 1, 2)))
        if rng.random() < 0.1 and (early := owner.backup_for_asker(1, owner.ticket())):
            assert backup.backup_take(0, early) == b""
            if rng.random() < 0.5:
                owner.backup_heard(1, backup.backup_has(0))
                assert owner.backed_up() == owner.ticket()
        if rng.random() < 0.2 and (batch := owner.backup_next(1)) is not None:
            answer = backup.backup_take(0, batch)
            lost = rng.random() < 0.4
            owner.backup_answered(1, errno.EIO if lost else 0, b"" if lost else answer)
    deliver(owner, backup)
    known = {name: (ino, attr, xattrs) for name, (ino, attr, xattrs) in records(owner, 0).items()}
    backup.set_table([1] * PARTITIONS, 3)
    for part in range(PARTITIONS):
        backup.promote(part)
    backup.check()
    owner.check()
    assert records(backup, 1) == known


def test_a_backup_that_asks_is_told_with_the_answer() -> None:
    owner, backup = pair()
    deliver(owner, backup)
    made(owner, b"one")
    early = owner.backup_for_asker(1, owner.ticket())
    assert early
    made(owner, b"two")
    both = owner.backup_next(1)
    assert both is not None
    assert backup.backup_take(0, both) == b"" == backup.backup_take(0, early), "it has all of that already"
    owner.backup_heard(1, backup.backup_has(0) + 1000)
    assert owner.backed_up() == owner.ticket(), "no more than was told"
    owner.backup_answered(1, 0, b"")
    made(owner, b"three")
    assert owner.backed_up() < owner.ticket(), "and what comes after that is not passed over"
    assert owner.backup_for_asker(2, owner.ticket()) is None, "another node waits for the backup"
    deliver(owner, backup)
    inherit(backup)
    assert sorted(names(backup)) == [b"one", b"three", b"two"]


def test_a_batch_after_one_that_is_missing_is_not_taken() -> None:
    owner, backup = pair()
    deliver(owner, backup)
    made(owner, b"missing")
    assert owner.backup_next(1) is not None
    owner.backup_answered(1, 0, b"")  # which nobody has said
    made(owner, b"next")
    batch = owner.backup_next(1)
    assert batch is not None
    with refused(errno.EPROTO):
        backup.backup_take(0, batch)


def test_a_node_that_refuses_to_begin_is_not_asked_again_at_once() -> None:
    """Two sessions had tables of one version: batches and refusals went to and fro without a pause (simulator seed 1682)."""
    owner, backup = pair()
    backup.set_table([1] * PARTITIONS, 2)
    backup.set_backups([-1] * PARTITIONS, [0])
    for kind in "SR" * 2:
        batch = owner.backup_next(1)
        assert batch is not None and chr(batch[28]) == kind
        assert owner.backup_answered(1, 0, backup.backup_take(0, batch)) == (kind == "R")
    assert owner.count_backups()[1] == 0 and not owner.backup_answered(1, errno.EIO, b"")
    for meta in (owner, backup):
        meta.set_table([0] * PARTITIONS, 3)
    owner.set_backups([1] * PARTITIONS, [1])
    backup.set_backups([-1] * PARTITIONS, [0])
    deliver(owner, backup)
    assert owner.count_backups()[1] == PARTITIONS


def test_nothing_of_a_node_that_was_taken_for_dead_is_taken() -> None:
    """A manager had stopped for a while and was left out. It went on and made a view of its own, so two tables had one version. Its
    next news was taken for a damaged batch, since its numbers had been forgotten with it (simulator seed 726348)."""
    owner, backup = pair()
    unheard = owner.backup_next(1)
    assert unheard is not None
    owner.backup_answered(1, errno.EIO, b"")
    deliver(owner, backup)
    inherit(backup, version=3)
    owner.set_table([0] * PARTITIONS, 3)
    owner.set_backups([1] * PARTITIONS, [1])
    backup.set_backups([-1] * PARTITIONS, [])
    made(owner, b"late")
    batch = owner.backup_next(1)
    assert batch is not None
    for late in (batch, unheard):
        with refused(META_NOT_MINE):
            backup.backup_take(0, late)
    backup.check()
    assert names(backup) == [], "it has nothing of that"


def test_a_refusal_is_said_until_it_was_heard() -> None:
    owner, backup = pair()
    deliver(owner, backup)
    made(owner, b"name")
    part = owner.name_partition(ROOT, b"name")
    backup.drop(part)
    early = owner.backup_for_asker(1, owner.ticket())
    assert early and struct.pack("<H", part) in backup.backup_take(0, early)
    owner.backup_heard(1, backup.backup_has(0))
    assert owner.backed_up() < owner.ticket(), "it has not said so with a question"
    for lost in (True, False):
        batch = owner.backup_next(1)
        assert batch is not None
        answer = backup.backup_take(0, batch)
        assert answer == struct.pack("<H", part)
        owner.backup_answered(1, errno.EIO if lost else 0, answer)
    deliver(owner, backup)
    assert backup.shadow_state(part) == IN_STEP
    inherit(backup)
    assert names(backup) == [b"name"]


def test_a_backup_may_refuse_every_partition_of_a_large_table() -> None:
    """An answer has room for 2,048 of them. One with more was an error, and the same batch would have been told again for ever."""
    count = 8192
    owner, backup = Meta(0), Meta(1)
    for meta in (owner, backup):
        meta.set_table([0] * count, 2)
    for part in range(count):
        owner.inherit_backups(part, [1])  # so it was told, and the backup knows nothing of it
    owner.set_backups([1] * count, [1])
    backup.set_backups([-1] * count, [0])
    answers: list[bytes] = []
    while len(answers) < 100 and (batch := owner.backup_next(1)) is not None:
        answers.append(backup.backup_take(0, batch))
        owner.backup_answered(1, 0, answers[-1])
    assert sum(map(len, answers)) >= 2 * count, "it has refused them all"
    assert owner.count_backups()[1] == count, "and then been told from the beginning"


def test_nothing_is_told_across_tables() -> None:
    owner, backup = pair()
    made(owner, b"name")
    batch = owner.backup_next(1)
    assert batch is not None and owner.backup_next(1) is None, "one batch at a time"
    backup.set_table([0] * PARTITIONS, 3)
    with refused(META_NOT_MINE):
        backup.backup_take(0, batch)
    owner.backup_answered(1, META_NOT_MINE, b"")
    owner.set_table([0] * PARTITIONS, 3)
    assert owner.backup_next(1) is None, "before it is known what follows from the table"
    owner.set_backups([1] * PARTITIONS, [1])
    again = owner.backup_next(1)
    assert again is not None
    with refused(META_BUSY):
        backup.backup_take(0, again)
    backup.set_backups([-1] * PARTITIONS, [0])
    assert backup.backup_take(0, again) == b""


def test_a_backup_that_takes_the_place_of_another_is_in_step_before_that_is_released() -> None:
    owner, first = pair()
    made(owner, b"one")
    deliver(owner, first)
    second = Meta(2)
    for meta, backups, live in ((owner, [2] * PARTITIONS, [1, 2]), (first, [-1] * PARTITIONS, [0, 2]), (second, [-1] * PARTITIONS, [0, 1])):
        meta.set_table([0] * PARTITIONS, 3)
        meta.set_backups(backups, live)
    made(owner, b"two")
    batch = owner.backup_next(2)
    made(owner, b"three")
    assert batch is not None
    assert owner.backup_next(1) is not None, "the one that is still in step is told, too"
    owner.backup_answered(1, errno.EIO, b"")
    owner.backup_answered(2, 0, second.backup_take(0, batch))
    deliver(owner, second, 2)
    assert second.shadow_state(0) == IN_STEP == first.shadow_state(0)
    assert owner.backed_up() < owner.ticket(), "the first may believe that it is in step"
    deliver(owner, first)
    assert owner.backed_up() == owner.ticket()
    assert [first.shadow_state(part) for part in range(PARTITIONS)] == [NONE] * PARTITIONS
    assert owner.count_backups() == (PARTITIONS, PARTITIONS, 0)
    inherit(second, 2, 4)
    assert sorted(names(second)) == [b"one", b"three", b"two"]


def test_who_is_refused_is_released_and_told_everything_again() -> None:
    owner, backup = pair()
    ino = made(owner, b"name").ino
    deliver(owner, backup)
    for part in range(PARTITIONS):
        backup.drop(part)
    made(owner, b"other")
    owner.setattr(ino, META_SET_MODE, Attr(mode=0o600), 5, 0)
    assert deliver(owner, backup) >= 2
    assert owner.count_backups()[1] == PARTITIONS
    for name in (b"name", b"other"):
        assert backup.shadow_state(owner.name_partition(ROOT, name)) == IN_STEP
    inherit(backup)
    assert sorted(names(backup)) == [b"name", b"other"]


def test_a_backup_that_is_gone_is_waited_for_no_more() -> None:
    owner, _ = pair()
    assert owner.backup_next(1) is not None
    made(owner, b"name")
    assert owner.backed_up() < owner.ticket()
    owner.set_table([0] * PARTITIONS, 3)
    owner.set_backups([-1] * PARTITIONS, [])
    assert owner.backed_up() == owner.ticket() and owner.count_backups() == (PARTITIONS, 0, 0)


def test_content_of_the_dead_owner_is_lost_and_a_copy_elsewhere_is_not() -> None:
    owner, backup = pair()
    lost, kept = (made(owner, name, attr=Attr(mode=FILE, writer=0)) for name in (b"lost", b"kept"))
    for attr in (lost, kept):
        owner.wrote(attr.ino, 0, attr._replace(size=7, mtime=9, finished=1))
    owner.open(kept.ino, 2, False)
    owner.add_holder(kept.ino, 2, owner.grant(kept.ino))
    deliver(owner, backup)
    inherit(backup)
    assert Attr(*backup.getattr(lost.ino, 1)).finished == 2
    assert Attr(*backup.getattr(kept.ino, 1)).finished == 1 and backup.holders(kept.ino) == (2,)


def test_a_name_that_may_have_been_there_is_no_absent_one() -> None:
    meta = Meta(1)
    meta.set_table([1] * PARTITIONS, 1)
    there = made(meta, b"there")
    meta.set_unsure(range(PARTITIONS), True)
    assert meta.lookup(ROOT, b"there", 1)[0] == there.ino
    for change in (lambda: meta.lookup(ROOT, b"x", 1), lambda: made(meta, b"x"), lambda: meta.unlink(ROOT, b"x", 1)):
        with refused(errno.EIO):
            change()
    moved = Meta(2)
    moved.set_table([2] * PARTITIONS, 1)
    for part in range(PARTITIONS):
        moved.import_(meta.export_partition(part))
    with refused(errno.EIO):
        moved.lookup(ROOT, b"x", 2)
    moved.set_unsure(range(PARTITIONS), False)
    made(moved, b"x")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_batches_are_refused_or_forgotten(seed: int) -> None:
    rng = random.Random(seed)
    owner, backup = pair()
    for number in range(30):
        made(owner, b"name%d" % number)
    batch = bytearray(owner.backup_next(1) or b"")
    for _ in range(rng.randrange(1, 8)):
        batch[rng.randrange(24, len(batch))] = rng.randrange(256)
    if rng.random() < 0.3:
        del batch[rng.randrange(len(batch)) :]
    with suppress(OSError):
        refusals = backup.backup_take(0, bytes(batch))
        assert len(refusals) % 2 == 0 and all(part < PARTITIONS for (part,) in struct.iter_unpack("<H", refusals))
    backup.check()


def test_no_batch_of_a_dead_node_comes_after_it_was_forgotten() -> None:
    owner, backup = pair()
    deliver(owner, backup)
    made(owner, b"late", attr=Attr(mode=FILE, writer=0))
    batch = owner.backup_next(1)
    assert batch is not None
    backup.forget_node(0)
    with refused(META_BUSY):
        backup.backup_take(0, batch)
    backup.set_table([1] * PARTITIONS, 3)
    backup.set_backups([-1] * PARTITIONS, [])
    with refused(META_NOT_MINE):
        backup.backup_take(0, batch)
