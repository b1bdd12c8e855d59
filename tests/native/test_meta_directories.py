"""Directories in the table of records, and much of it: crowds, listing while all changes, partitions that move, threads."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest
from meta_making import NEW, add_dir, alone, made, names, refused

from amfs._native import Meta
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE, META_SET_MODE, META_SET_MTIME, NO_LAYOUT, ROOT, STRIPED, WHOLE, Attr
from amfs.vocabulary.directory_changes import pack
from amfs.vocabulary.peer_requests import AddDirectory

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


@pytest.mark.parametrize(("asker", "told"), [(0, ()), (1, (1,))])
def test_the_node_that_made_a_directory_is_told_when_its_times_change(asker: int, told: tuple[int, ...]) -> None:
    meta = Meta(0)
    meta.set_table([0, 1], 1)
    here = 0 << 40 | 50
    attr = Attr(mode=stat.S_IFDIR | 0o755, atime=5, mtime=5, ctime=5)
    packed = pack([AddDirectory(here, ROOT, b"here", attr)], [asker])
    assert packed is not None and meta.spread(1, 1, packed)[0] >= 0
    assert meta.dir_touch(here, 9) == told
    assert meta.dir_touch(here, 10) == (), "once, until it asks again"


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
    assert meta.dir_touch(here, 10) == ()  # of an earlier time
    assert (Attr(*meta.getattr(here, 0)).mtime, meta.dir_touched(here)) == (4, 0)
    meta.dir_set(here, META_SET_MTIME, Attr(mtime=1000), 20)  # a time to come, until something changes
    for now, mtime in ((19, 1000), (21, 21), (20, 21), (22, 22)):
        meta.dir_touch(here, now)
        assert Attr(*meta.getattr(here, 0)).mtime == mtime
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
    two.dir_add(3 << 40 | 99, ROOT, b"d", Attr())  # and what is not among them goes, also if another has its name
    two.dir_add(3 << 40 | 98, 3 << 40 | 99, b"below", Attr())
    two.dir_move(c, 3 << 40 | 99, b"moved", 1)
    add_dir(one, b"d")
    two.import_(one.export_dirs())
    two.check()
    assert [two.dir_name(dir) for dir in (a, b, c)] == [b"b", b"a", b"c"]
    assert two.dir_find(ROOT, b"d") == one.dir_find(ROOT, b"d")
    assert two.counts()["dirs"] == one.counts()["dirs"] == 5


def test_entries_of_directories_that_went_with_a_node_are_made_again() -> None:
    one = Meta(0)
    one.set_table([0, 1, 0, 1], 1)
    made = [3 << 40 | 100 + i for i in range(20)]
    for i, ino in enumerate(made):
        one.dir_add(ino, ROOT, b"d%d" % i, Attr(mode=stat.S_IFDIR | 0o755))
    assert one.count(ROOT) == 0  # the maker of a directory makes its entry elsewhere
    one.forget_node(1)
    one.set_table([0] * 4, 2)
    one.mend_dirs(False)
    one.mend_dirs(False)
    assert sorted(ino for _, ino, type, *_ in one.list(ROOT, 0, 100) if type == stat.S_IFDIR) == sorted(made)
    one.insert(ROOT, b"half made", 0, 3 << 40 | 77, stat.S_IFDIR, False)
    one.dir_freeze(made[0], True)
    one.mend_dirs(True)
    assert one.count(ROOT) == 20
    one.create(made[0], b"x", 1, 0, None, NEW)
    one.check()


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
    """Objects that other tests leave to be collected would be counted, too."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(crowd, count).result()


def test_a_crowded_directory() -> None:
    in_a_process_of_its_own(100_000)


@pytest.mark.soak
def test_a_million_files_in_a_directory() -> None:
    in_a_process_of_its_own(1_000_000)


def test_listing_goes_on_whatever_happens_meanwhile() -> None:
    """An entry that stays is seen once; one that comes or goes may be seen or not, but never twice."""
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
    with pytest.raises(TypeError, match="16 to 18 numbers"):
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
