"""The metadata shard, story by story, as a file system over several nodes needs it. Every call in any order: test_meta_model.py."""

from __future__ import annotations

import errno
import stat

import pytest
from meta_making import EXCHANGE, FILE, NEW, add_dir, alone, made, names, refused

from amfs._native import Meta
from amfs.vocabulary.attr import (
    LOST,
    META_BUSY,
    META_NOT_MINE,
    META_SET_CTIME,
    META_SET_GID,
    META_SET_LAYOUT,
    META_SET_MODE,
    META_SET_MTIME,
    META_SET_SIZE,
    META_SET_UID,
    ROOT,
    STRIPED,
    WHOLE,
    Attr,
)

# ── places ─────────────────────────────────────────────────────────────────────────────────────────


def test_before_there_is_a_table_nothing_is_anywhere() -> None:
    meta = Meta(0)
    with refused(META_NOT_MINE):
        meta.lookup(ROOT, b"x", 0)
    with refused(META_NOT_MINE):
        meta.getattr(5, 0)
    assert meta.owner(0) == -1
    with refused(errno.EINVAL):
        meta.export_dirs()
    meta.check()


def test_the_table_keeps_its_size_and_grows_in_version() -> None:
    meta = alone(4)
    with refused(errno.EINVAL):
        meta.set_table([0] * 5, 2)
    meta.set_table([0, 0, 1, 1], 3)
    with refused(errno.ESTALE):
        meta.set_table([0] * 4, 2)
    assert [meta.owner(p) for p in range(5)] == [0, 0, 1, 1, -1]


def test_a_record_lies_where_its_number_says() -> None:
    meta = alone()
    attr = made(meta, b"x")
    assert meta.ino_partition(attr.ino) == meta.name_partition(ROOT, b"x") == attr.ino >> 40
    assert [meta.stripe_partition(attr.ino, i) for i in (0, 1, 15, 16)] == [
        (meta.stripe_partition(attr.ino, 0) + i) % 16 for i in (0, 1, 15, 0)
    ]


def test_the_heir_of_a_dead_node_gives_out_other_numbers() -> None:
    dead, heir = Meta(1), Meta(0)
    for meta in (dead, heir):
        meta.set_table([1] * 4, 1)
    lost = {made(dead, b"%d" % i, asker=1).ino for i in range(100)}
    heir.set_table([0] * 4, 2)
    assert not lost & {made(heir, b"%d" % i).ino for i in range(100)}


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "number"), [(b"", 22), (b".", 22), (b"..", 22), (b"a/b", 22), (b"a\0b", 22), (b"n" * 256, errno.ENAMETOOLONG)]
)
def test_names_that_cannot_be(name: bytes, number: int) -> None:
    meta = alone()
    with refused(number):
        made(meta, name)
    with refused(number):
        meta.insert(ROOT, name, 0, 5, stat.S_IFREG, False)
    assert meta.counts()["entries"] == 0


def test_hard_links_are_one_file() -> None:
    meta = alone()
    ino = made(meta, b"a", 1).ino
    linked, gone, tell = meta.link(ino, 1, 5, -1)
    assert (Attr(*linked).nlink, Attr(*linked).ctime, gone, tell) == (2, 5, False, ())
    meta.insert(ROOT, b"b", 0, ino, stat.S_IFREG, False)
    left, gone, _ = meta.unlink(ROOT, b"a", 6)
    assert (Attr(*left).nlink, Attr(*left).ctime, gone) == (1, 6, False)
    assert meta.lookup(ROOT, b"b", 0)[2] == left
    left, gone, _ = meta.unlink(ROOT, b"b", 7)
    assert gone
    assert meta.counts()["inodes"] == 0
    with refused(errno.ENOENT):
        meta.link(ino, 1, 8, -1)


def test_an_orphan_stays_until_its_last_user_goes() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    meta.open_here(ino, False)
    meta.open(ino, 3, False)
    with refused(META_BUSY):  # node 3 watches it, and a rename tells nobody
        meta.rename(ROOT, b"x", ROOT, b"y", 0, 2)
    _, gone, tell = meta.unlink(ROOT, b"x", 2)
    assert (gone, tell) == (False, (3,))
    assert Attr(*meta.getattr(ino, -1)).nlink == 0
    with refused(errno.ENOENT):  # no way back to a name
        meta.link(ino, 1, 3, -1)
    assert meta.unused(ino, 0) is False
    assert meta.unused(ino, 3) is True
    with refused(errno.ENOENT):
        meta.getattr(ino, -1)


def test_a_dead_node_takes_its_orphans_and_last_copies_along() -> None:
    meta = alone()
    orphan, only, copied, writing = (made(meta, name, asker=-1).ino for name in (b"orphan", b"only", b"copied", b"writing"))
    for ino in (only, copied, writing, orphan):
        meta.open(ino, 2, True)
    for ino in (only, copied):
        meta.wrote(ino, 2, Attr(size=100))
        meta.unused(ino, 2)
    meta.open(copied, 0, False)
    meta.add_holder(copied, 0, meta.grant(copied))
    meta.unlink(ROOT, b"orphan", 3)
    assert sorted(meta.forget_node(2)) == sorted([orphan, only, writing])
    with refused(errno.ENOENT):
        meta.getattr(orphan, -1)
    assert meta.holders(copied) == (0,)
    assert Attr(*meta.getattr(writing, -1)).writer == -1


def test_content_that_went_before_the_next_writer_had_it_is_lost() -> None:
    meta = alone()
    ino = made(meta, b"x", asker=-1).ino
    meta.open(ino, 2, True)
    meta.wrote(ino, 2, Attr(size=100))
    meta.unused(ino, 2)
    meta.open(ino, 3, True)  # and fetches the content
    meta.forget_node(2)
    meta.unused(ino, 3)  # in vain
    assert Attr(*meta.getattr(ino, -1)).finished == LOST
    assert meta.holders(ino) == ()
    meta.check()


def test_rename_replaces_and_exchanges() -> None:
    meta = alone()
    a, b = made(meta, b"a").ino, made(meta, b"b").ino
    moved, other, gone = meta.rename(ROOT, b"a", ROOT, b"b", EXCHANGE, 5)
    assert other is not None
    assert (moved[0], other[0], gone) == (a, b, False)
    assert (meta.lookup(ROOT, b"a", 0)[0], meta.lookup(ROOT, b"b", 0)[0]) == (b, a)
    moved, other, gone = meta.rename(ROOT, b"a", ROOT, b"b", 0, 6)
    assert other is not None
    assert (moved[0], other[0], gone) == (b, a, True)
    assert names(meta) == [b"b"]
    meta.check()


def test_a_lock_keeps_others_out_and_lets_its_owner_in() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    meta.lock(ROOT, b"x", 7)
    meta.lock(ROOT, b"x", 7)
    assert meta.lookup(ROOT, b"x", 0)[0] == ino
    for change in (
        lambda: meta.lock(ROOT, b"x", 8),
        lambda: meta.unlink(ROOT, b"x", 2),
        lambda: meta.rename(ROOT, b"x", ROOT, b"y", 0, 2),
        lambda: meta.remove(ROOT, b"x", 0, 0),
        lambda: meta.remove(ROOT, b"x", 8, 0),
        lambda: meta.insert(ROOT, b"x", 0, ino, stat.S_IFREG, True),
    ):
        with refused(META_BUSY):
            change()
    assert meta.remove(ROOT, b"x", 7, 0)[0] == ino
    with refused(META_BUSY):  # of a name that is not there
        made(meta, b"x")
    meta.unlock(ROOT, b"x", 7)
    made(meta, b"x")
    meta.lock(ROOT, b"z", (3 << 40) + 5)
    meta.unlock_node(1)
    with refused(META_BUSY):
        meta.lock(ROOT, b"z", 1)
    meta.unlock_node(2)
    meta.lock(ROOT, b"z", 1)


# ── who is told ────────────────────────────────────────────────────────────────────────────────────


def test_what_an_attempt_has_made_is_its_own() -> None:
    meta = alone()
    attr = Attr(*meta.create(ROOT, b"x", 1, 0, None, tuple(NEW._replace(pending=7))))
    assert attr.pending == 7
    meta.lookup(ROOT, b"x", 3)
    with refused(errno.EAGAIN):
        meta.set_pending(attr.ino, 8, 0, 0)  # not that attempt's
    taken, tell = meta.set_pending(attr.ino, 0, 9, 0)
    assert (Attr(*taken).pending, tell) == (9, (3,))
    other = Meta(1)
    other.set_table([1] * 16, 2)
    other.import_(meta.export_partition(attr.ino >> 40))  # wherever it goes
    assert Attr(*other.getattr(attr.ino, 1)).pending == 9
    done, _ = meta.set_pending(attr.ino, 9, 0, 0)
    assert Attr(*done) == attr._replace(pending=0), "nothing else changes"
    with refused(errno.EAGAIN):
        meta.set_pending(attr.ino, 0, 5, 0)  # it is everybody's
    with refused(errno.ENOENT):
        meta.set_pending(attr.ino + 1, 0, 5, 0)


def test_watchers_are_told_once() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    for asker in (5, 3, 0, -1, 5):
        meta.lookup(ROOT, b"x", asker)
    with refused(META_BUSY):
        meta.setattr_here(ino, META_SET_MODE, Attr(mode=0o600), 2)
    assert sorted(meta.setattr(ino, META_SET_MODE, Attr(mode=0o600), 2, 3)[1]) == [5]
    assert meta.setattr(ino, META_SET_MODE, Attr(mode=0o644), 3, 0)[1] == (3,)
    meta.setattr_here(ino, META_SET_MODE, Attr(mode=0o600), 4)
    assert sorted(meta.unlink(ROOT, b"x", 5)[2]) == [3, 5]  # of the entry, still


def test_who_links_goes_on_being_told() -> None:
    """Its kernel keeps its pages, as nobody tells it to forget them, and must hear of the next change (a rename links, too)."""
    meta = alone()
    ino = made(meta, b"x", asker=-1).ino
    meta.open(ino, 3, False)
    meta.open(ino, 5, False)
    assert meta.link(ino, 1, 2, 3)[2] == (5,)
    assert meta.link(ino, -1, 3, 3)[2] == ()
    assert meta.open(ino, 4, True)[2] == (3,)


def test_a_copy_made_while_the_file_changed_is_worth_nothing() -> None:
    meta = alone()
    ino = made(meta, b"x", asker=-1).ino
    meta.open(ino, 1, True)
    assert meta.wrote(ino, 1, Attr(size=10))[1] == ()
    meta.open(ino, 2, False)  # begins to copy it
    meta.open(ino, 0, False)
    _, holders, tell = meta.open(ino, 1, True)
    assert (holders, sorted(tell)) == ((1,), [2])
    for node in (2, 0):
        with refused(errno.EAGAIN):
            meta.add_holder(ino, node, meta.grant(ino))
    meta.wrote(ino, 1, Attr(size=11))
    for node in (2, 0):
        with refused(errno.EAGAIN):
            meta.add_holder(ino, node, meta.grant(ino))
    meta.open(ino, 2, False)
    meta.add_holder(ino, 2, meta.grant(ino))
    assert meta.holders(ino) == (1, 2)
    for node in (1, 2):
        meta.unused(ino, node)
    meta.give_up(ino, 1)
    with refused(errno.EBUSY):
        meta.give_up(ino, 2)


def test_who_holds_what_a_file_contained_before_is_no_holder_though_it_watches_again() -> None:
    """Another node has written it between the opening and its end; a look has made the reader a watcher once more."""
    meta = alone()
    ino = made(meta, b"x", asker=-1).ino
    meta.open(ino, 0, True)
    meta.wrote(ino, 0, Attr(size=10))
    grant = meta.grant(ino)
    meta.open(ino, 2, False)
    meta.open(ino, 0, True)
    meta.wrote(ino, 0, Attr(size=11))
    meta.getattr(ino, 2)
    with refused(errno.EAGAIN):
        meta.add_holder(ino, 2, grant)
    assert meta.holders(ino) == (0,)
    meta.add_holder(ino, 2, meta.grant(ino))
    assert meta.holders(ino) == (0, 2) and meta.grant(0xDEAD01) == 0


def test_cutting_a_file_leaves_one_good_copy() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    meta.open_here(ino, True)
    meta.wrote(ino, 0, Attr(size=10))
    meta.open(ino, 2, False)
    meta.add_holder(ino, 2, meta.grant(ino))
    assert meta.setattr(ino, META_SET_SIZE, Attr(size=10), 2, 2)[1] == ()
    assert meta.holders(ino) == (0, 2)
    with refused(META_BUSY):  # node 2 has it, too
        meta.setattr_here(ino, META_SET_SIZE, Attr(size=4), 3)
    assert meta.setattr(ino, META_SET_SIZE, Attr(size=4), 3, 2)[1] == ()
    assert meta.holders(ino) == (2,)
    assert Attr(*meta.setattr(ino, META_SET_LAYOUT, Attr(layout=STRIPED, stripe=512), 4, 2)[0]).layout == STRIPED
    assert meta.holders(ino) == ()
    meta.setattr(ino, META_SET_LAYOUT, Attr(layout=WHOLE), 5, 0)
    assert meta.holders(ino) == (0,)


def test_a_second_writer_goes_through_the_first() -> None:
    meta = alone()
    ino = made(meta, b"x", attr=NEW._replace(writer=1), asker=1).ino
    attr, _, tell = meta.open(ino, 2, True)
    assert (Attr(*attr).writer, Attr(*attr).finished, tell) == (1, 0, ())
    with refused(META_BUSY):
        meta.open_here(ino, True)
    with refused(errno.EPERM):
        meta.wrote(ino, 2, Attr(size=1))
    done, tell = meta.wrote(ino, 1, Attr(size=7, blocks=8, mtime=50, atime=49, ctime=51))
    assert Attr(*done)._replace(ino=0) == NEW._replace(nlink=1, finished=1, size=7, blocks=8, mtime=50, atime=49, ctime=51)
    assert (tell, meta.holders(ino)) == ((2,), (1,))


def test_what_is_here_and_nobody_elses_opens_at_once() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    assert Attr(*meta.open_here(ino, True)).writer == 0
    meta.wrote(ino, 0, Attr(size=4))
    assert meta.unused(ino, 0) is False
    meta.open_here(ino, False)
    away = made(meta, b"y", asker=-1).ino
    meta.open(away, 1, True)
    meta.wrote(away, 1, Attr(size=4))
    with refused(META_BUSY):  # the content is at node 1
        meta.open_here(away, False)
    striped = made(meta, b"z", attr=NEW._replace(layout=STRIPED, stripe=512)).ino
    with refused(META_BUSY):
        meta.open_here(striped, False)


def test_a_replica_of_a_foreign_file_opens_at_once() -> None:
    meta = Meta(0)
    meta.set_table([1] * 4, 1)
    attr = Attr(ino=2 << 40 | 9, mode=FILE, finished=1, size=5, mtime=3)
    meta.cache(attr, False)
    with refused(META_NOT_MINE):
        meta.open_here(attr.ino, False)
    meta.cache(attr, True)
    meta.cache(attr._replace(mode=stat.S_IFREG | 0o600), False)  # its content is the same
    assert meta.open_here(attr.ino, False) == attr._replace(mode=stat.S_IFREG | 0o600)
    with refused(META_NOT_MINE):
        meta.open_here(attr.ino, True)
    meta.cache(attr._replace(size=6), False)
    assert meta.cached(attr.ino) == (attr._replace(size=6), False)
    assert meta.uncache(attr.ino) is False
    with refused(errno.ENOENT):
        meta.cached(attr.ino)


# ── attributes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", [0o6644, 0o6755, 0o6745, 0o6670, 0o6600, 0o6611, 0o4644, 0o2755])
def test_chown_clears_what_tmpfs_clears(mode: int) -> None:
    meta = alone()
    ino = made(meta, b"x", attr=NEW._replace(mode=stat.S_IFREG | mode)).ino
    after = Attr(*meta.setattr(ino, META_SET_UID | META_SET_GID, Attr(uid=1, gid=2), 9, 0)[0])
    kept = mode & ~0o4000 & ~(0o2000 if mode & 0o010 else 0)
    assert (after.mode, after.uid, after.gid, after.ctime) == (stat.S_IFREG | kept, 1, 2, 9)
    both = Attr(*meta.setattr(ino, META_SET_UID | META_SET_MODE, Attr(uid=3, mode=mode), 10, 0)[0])
    assert both.mode == stat.S_IFREG | mode


def test_times_change_as_on_tmpfs() -> None:
    meta = alone()
    ino = made(meta, b"x", now=10).ino
    cut = Attr(*meta.setattr(ino, META_SET_SIZE, Attr(size=5), 20, 0)[0])
    assert (cut.mtime, cut.ctime, cut.atime) == (20, 20, 10)
    same = Attr(*meta.setattr(ino, META_SET_SIZE, Attr(size=5), 30, 0)[0])
    assert (same.mtime, same.ctime) == (20, 30)
    given = Attr(*meta.setattr(ino, META_SET_MTIME | META_SET_CTIME, Attr(mtime=-3, ctime=4), 40, 0)[0])
    assert (given.mtime, given.ctime) == (-3, 4)
    meta.rename(ROOT, b"x", ROOT, b"y", 0, 50)
    assert Attr(*meta.getattr(ino, 0)).ctime == 50
    meta.set_xattr(ino, b"user.a", b"1", 0, 60)
    assert Attr(*meta.getattr(ino, 0)).ctime == 60


def test_a_setgid_directory_gives_its_group() -> None:
    meta = alone()
    shared = add_dir(meta, b"shared", mode=0o2775, gid=77)
    assert made(meta, b"x", dir=shared).gid == 77
    assert made(meta, b"x").gid == NEW.gid


def test_extended_attributes_have_limits() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    meta.set_xattr(ino, b"user.a", b"one", 1, 2)
    with refused(errno.EEXIST):
        meta.set_xattr(ino, b"user.a", b"two", 1, 2)
    with refused(errno.ENODATA):
        meta.set_xattr(ino, b"user.b", b"two", 2, 2)
    with refused(errno.E2BIG):
        meta.set_xattr(ino, b"user.b", b"v" * 65537, 0, 2)
    with refused(errno.ENOSPC):
        meta.set_xattr(ino, b"user.b", b"v" * 65536, 0, 2)
    meta.set_xattr(ino, b"user.b", b"", 0, 2)
    assert (meta.list_xattr(ino), meta.get_xattr(ino, b"user.a"), meta.get_xattr(ino, b"user.b")) == ([b"user.a", b"user.b"], b"one", b"")
    meta.remove_xattr(ino, b"user.a", 3)
    with refused(errno.ENODATA):
        meta.get_xattr(ino, b"user.a")
