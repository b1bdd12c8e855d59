"""The metadata shard, story by story: what a file system over several nodes needs of it. Every call in any order: test_meta_model.py."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import pytest

from amfs._native import Meta
from amfs.fs.attr import (
    META_BUSY,
    META_NOT_MINE,
    META_SET_CTIME,
    META_SET_GID,
    META_SET_LAYOUT,
    META_SET_MODE,
    META_SET_MTIME,
    META_SET_SIZE,
    META_SET_UID,
    NO_LAYOUT,
    ROOT,
    STRIPED,
    WHOLE,
    Attr,
)

FILE = stat.S_IFREG | 0o644
NEW = Attr(mode=FILE, uid=10, gid=20)
EXCHANGE = 2


@contextmanager
def refused(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == number


def alone(partitions: int = 16) -> Meta:
    meta = Meta(0)
    meta.set_table([0] * partitions, 1)
    return meta


def made(meta: Meta, name: bytes, now: int = 1, attr: Attr = NEW, dir: int = ROOT, asker: int = 0) -> Attr:
    return Attr(*meta.create(dir, name, now, asker, None, attr))


def add_dir(meta: Meta, name: bytes, parent: int = ROOT, mode: int = 0o755, gid: int = 0) -> int:
    number = meta.new_number(meta.name_partition(parent, name))
    meta.dir_add(number, parent, name, Attr(mode=mode, gid=gid))
    return number


def names(meta: Meta, dir: int = ROOT, page: int = 100) -> list[bytes]:
    found: list[bytes] = []
    cursor = 0
    while entries := meta.list(dir, cursor, page):
        found += [entry[0] for entry in entries]
        cursor = entries[-1][3]
    return found


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
    linked, gone, tell = meta.link(ino, 1, 5)
    assert (Attr(*linked).nlink, Attr(*linked).ctime, gone, tell) == (2, 5, False, ())
    meta.insert(ROOT, b"b", 0, ino, stat.S_IFREG, False)
    left, gone, _ = meta.unlink(ROOT, b"a", 6)
    assert (Attr(*left).nlink, Attr(*left).ctime, gone) == (1, 6, False)
    assert meta.lookup(ROOT, b"b", 0)[2] == left
    left, gone, _ = meta.unlink(ROOT, b"b", 7)
    assert gone
    assert meta.counts()["inodes"] == 0
    with refused(errno.ENOENT):
        meta.link(ino, 1, 8)


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
        meta.link(ino, 1, 3)
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
    meta.add_holder(copied, 0)
    meta.unlink(ROOT, b"orphan", 3)
    assert sorted(meta.forget_node(2)) == sorted([orphan, only, writing])
    with refused(errno.ENOENT):
        meta.getattr(orphan, -1)
    assert meta.holders(copied) == (0,)
    assert Attr(*meta.getattr(writing, -1)).writer == -1


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
            meta.add_holder(ino, node)
    meta.wrote(ino, 1, Attr(size=11))
    for node in (2, 0):
        with refused(errno.EAGAIN):
            meta.add_holder(ino, node)
    meta.open(ino, 2, False)
    meta.add_holder(ino, 2)
    assert meta.holders(ino) == (1, 2)
    for node in (1, 2):
        meta.unused(ino, node)
    meta.give_up(ino, 1)
    with refused(errno.EBUSY):
        meta.give_up(ino, 2)


def test_cutting_a_file_leaves_one_good_copy() -> None:
    meta = alone()
    ino = made(meta, b"x").ino
    meta.open_here(ino, True)
    meta.wrote(ino, 0, Attr(size=10))
    meta.open(ino, 2, False)
    meta.add_holder(ino, 2)
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
    meta.cache(attr._replace(mode=stat.S_IFREG | 0o600), False)  # what it contains is the same
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


# ── directories ────────────────────────────────────────────────────────────────────────────────────


def test_directories_know_their_tree() -> None:
    meta = alone()
    a = add_dir(meta, b"a")
    b = add_dir(meta, b"b", a)
    c = add_dir(meta, b"c", b)
    assert [Attr(*meta.dir_get(dir)[0]).nlink for dir in (ROOT, a, b, c)] == [3, 3, 3, 2]
    with refused(errno.EINVAL):
        meta.dir_move(a, c, b"loop", 1)
    with refused(errno.ENOTEMPTY):
        meta.dir_remove(b)
    with refused(errno.EBUSY):
        meta.dir_remove(ROOT)
    meta.dir_move(b, ROOT, b"moved", 9)
    assert (meta.dir_get(b)[1], meta.dir_name(b), Attr(*meta.dir_get(b)[0]).ctime) == (ROOT, b"moved", 9)
    assert (meta.dir_below(c, b), meta.dir_below(c, a), meta.dir_below(b, b)) == (True, False, True)
    assert Attr(*meta.dir_find(ROOT, b"moved")).ino == b
    with refused(errno.ENOENT):
        meta.dir_find(a, b"b")
    meta.check()


def test_layout_rules_hold_below_where_they_stand() -> None:
    meta = alone()
    a = add_dir(meta, b"a")
    b = add_dir(meta, b"b", a)
    assert meta.dir_layout(b) == (NO_LAYOUT, 0)
    meta.dir_set_layout(ROOT, WHOLE, 0)
    meta.dir_set_layout(a, STRIPED, 4096)
    assert (meta.dir_layout(ROOT), meta.dir_layout(b)) == ((WHOLE, 0), (STRIPED, 4096))
    meta.dir_set_layout(a, NO_LAYOUT, 0)
    assert meta.dir_layout(b) == (WHOLE, 0)
    with refused(errno.EINVAL):
        meta.dir_set_layout(a, STRIPED, 0)


def test_touching_a_directory_is_for_its_home() -> None:
    meta = Meta(0)
    meta.set_table([0, 1], 1)
    here, there = 0 << 40 | 50, 1 << 40 | 50
    meta.dir_add(here, ROOT, b"here", Attr(ctime=5, mtime=5))
    meta.dir_add(there, ROOT, b"there", Attr())
    meta.getattr(here, 1)
    assert meta.dir_touch(here, 9) == (1,)
    assert meta.dir_touch(here, 3) == ()
    assert (Attr(*meta.getattr(here, 0)).mtime, Attr(*meta.getattr(here, 0)).ctime, meta.dir_touched(here)) == (9, 9, 9)
    meta.dir_set(here, META_SET_MTIME, Attr(mtime=4), 11)
    assert meta.dir_touched(here) == 0
    assert meta.dir_touch(here, 10) == ()  # what came before
    assert (Attr(*meta.getattr(here, 0)).mtime, meta.dir_touched(here)) == (4, 0)
    with refused(META_NOT_MINE):
        meta.dir_touch(there, 9)
    with refused(META_BUSY):  # every node has a record of it
        meta.setattr_here(here, META_SET_MODE, Attr(mode=0o700), 1)
    alone_here = alone()
    assert Attr(*alone_here.setattr_here(ROOT, META_SET_MODE, Attr(mode=0o1777), 1)).mode == stat.S_IFDIR | 0o1777


def test_an_import_of_directories_renames_and_adds() -> None:
    one, two = alone(), alone()
    a, b = add_dir(one, b"a"), add_dir(one, b"b")
    two.import_(one.export_dirs())
    one.dir_move(a, ROOT, b"x", 1)
    one.dir_move(b, ROOT, b"a", 1)
    one.dir_move(a, ROOT, b"b", 1)  # they have changed names
    c = add_dir(one, b"c", a)
    two.import_(one.export_dirs())
    two.check()
    assert [two.dir_name(dir) for dir in (a, b, c)] == [b"b", b"a", b"c"]
    two.dir_add(3 << 40 | 99, ROOT, b"d", Attr())
    add_dir(one, b"d")
    before = two.export_dirs()
    with refused(errno.EEXIST):
        two.import_(one.export_dirs())
    assert two.export_dirs() == before


# ── much of it ─────────────────────────────────────────────────────────────────────────────────────


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def crowd(count: int) -> None:
    """So many files in one directory: little memory, listed in pages while they are removed, and the memory comes back."""
    meta = alone(1024)
    attr, unlink = tuple(NEW), meta.unlink
    before, counted = resident(), meta.counts()["bytes"]
    for i in range(count):
        meta.create(ROOT, b"file-%08d.dat" % i, i, 0, None, attr)
    grown, said = resident() - before, meta.counts()["bytes"] - counted
    assert meta.counts()["entries"] == meta.counts()["inodes"] == meta.count(ROOT) == count
    overhead = 3 << 20  # what 1024 partitions cost, and pages that Python took meanwhile
    assert grown < 300 * count + overhead
    assert abs(said - grown) < 0.25 * grown + overhead
    seen = cursor = 0
    while entries := meta.list(ROOT, cursor, 1000):
        assert [entry[0] for entry in entries] == [b"file-%08d.dat" % i for i in range(seen, seen + len(entries))]
        cursor, seen = entries[-1][3], seen + len(entries)
        for entry in entries:
            unlink(ROOT, entry[0], 1)
    assert seen == count
    assert meta.counts() | {"bytes": 0} == {"inodes": 0, "entries": 0, "dirs": 1, "cached": 0, "bytes": 0}
    assert meta.counts()["bytes"] - counted < overhead
    assert resident() - before < overhead + 0.02 * grown
    meta.check()


def in_a_process_of_its_own(count: int) -> None:
    """What other tests leave to be collected would be counted, too."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(crowd, count).result()


def test_a_crowded_directory() -> None:
    in_a_process_of_its_own(100_000)


@pytest.mark.soak
def test_a_million_files_in_a_directory() -> None:
    in_a_process_of_its_own(1_000_000)


def test_listing_goes_on_whatever_happens_meanwhile() -> None:
    """Who stays is seen once; who comes or goes may be seen or not, but never twice."""
    meta = alone()
    for i in range(2000):
        made(meta, b"%d" % i)
    found: list[bytes] = []
    cursor, new = 0, 2000
    while entries := meta.list(ROOT, cursor, 7):
        found += [entry[0] for entry in entries]
        cursor = entries[-1][3]
        for entry in entries:
            if int(entry[0]) % 3:
                meta.unlink(ROOT, entry[0], 1)
        if new < 2100:
            made(meta, b"%d" % new)
            new += 1
        last = int(entries[-1][0])
        if last % 5 == 0 and last + 1 < 2000 and (last + 1) % 3:  # one that would have come next
            meta.unlink(ROOT, b"%d" % (last + 1), 1)
    assert len(set(found)) == len(found)
    assert {b"%d" % i for i in range(0, 2000, 3)} <= set(found)
    assert set(names(meta)) <= set(found)
    meta.check()


def test_a_partition_that_moves_takes_all_of_it_along() -> None:
    old, new = Meta(0), Meta(1)
    for meta in (old, new):
        meta.set_table([0, 0], 1)
    kept = {}
    for i in range(300):
        name = b"%d" % i
        attr = Attr(*old.create(ROOT, name, i, 0, b"to %d" % i, Attr(mode=stat.S_IFLNK))) if i % 3 == 0 else made(old, name, i)
        old.set_xattr(attr.ino, b"user.i", b"%d" % i, 0, i)
        kept[name] = Attr(*old.getattr(attr.ino, -1))
    old.lookup(ROOT, b"1", 4)
    old.lock(ROOT, b"2", 9)
    for partition in (0, 1):
        new.import_(old.export_partition(partition))
    new.set_table([1, 1], 2)
    new.check()
    for i, (name, attr) in enumerate(kept.items()):
        assert new.lookup(ROOT, name, -1) == (attr.ino, stat.S_IFMT(attr.mode), attr)
        assert new.get_xattr(attr.ino, b"user.i") == b"%d" % i
        if i % 3 == 0:
            assert new.readlink(attr.ino) == b"to %d" % i
    assert sorted(new.remove(ROOT, b"1", 0, 0)[2]) == [0, 4]  # whoever gave it away may have it in a cache
    with refused(META_BUSY):
        new.unlink(ROOT, b"2", 1)
    assert made(new, b"another", asker=1).ino not in {attr.ino for attr in kept.values()}
    for partition in (0, 1):
        old.drop(partition)
    assert (old.counts()["inodes"], old.counts()["entries"]) == (0, 0)


def test_a_partition_on_its_way_is_nobodys_but_listed_once() -> None:
    old, new = Meta(0), Meta(1)
    for meta in (old, new):
        meta.set_table([0], 1)
        meta.set_moving([0], True)
    old.set_moving([0], False)
    ino = made(old, b"x").ino
    old.set_moving([0], True)
    new.import_(old.export_partition(0))
    for meta in (old, new):
        with refused(META_NOT_MINE):
            meta.lookup(ROOT, b"x", 0)
        with refused(META_NOT_MINE):
            meta.getattr(ino, 0)
        with refused(META_NOT_MINE):
            meta.unlink(ROOT, b"x", 1)
    assert (names(old), names(new), old.count(ROOT), new.count(ROOT)) == ([b"x"], [], 1, 1)  # counted wherever it may be: nothing is lost
    for meta in (old, new):
        meta.set_table([1], 2)
    assert (names(old), names(new)) == ([], [b"x"])


def test_threads_of_python_share_it() -> None:
    meta = alone()
    failures: list[BaseException] = []

    def work(me: int) -> None:
        try:
            for i in range(2000):
                ino = made(meta, b"%d-%d" % (me, i)).ino
                meta.list(ROOT, 0, 10)
                if i % 2:
                    assert meta.unlink(ROOT, b"%d-%d" % (me, i), i)[0][0] == ino
                if i % 500 == 0:
                    meta.export_partition(me)
                    meta.check()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert meta.counts()["entries"] == 4000


def test_nonsense_is_refused_in_words() -> None:
    meta = alone()
    with pytest.raises(ValueError, match="no node number"):
        Meta(-1)
    with pytest.raises(TypeError, match="16 numbers"):
        meta.create(ROOT, b"x", 1, 0, None, (1, 2))
    with pytest.raises(TypeError, match="an attr is a tuple"):
        meta.create(ROOT, b"x", 1, 0, None, [0] * 16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NUL"):
        meta.create(ROOT, b"x", 1, 0, b"a\0b", Attr(mode=stat.S_IFLNK))
    with pytest.raises(OverflowError):
        meta.set_table([1 << 40], 2)
    with pytest.raises(OSError, match="another operation or node is concerned"):
        meta.dir_freeze(ROOT, True)
        made(meta, b"x")
