"""The origin of a file in its record: kept with what a task made, gone with the first change of its content, known to an heir."""

from __future__ import annotations

import errno

from meta_making import alone, made, refused

from amfs._native import Meta
from amfs.vocabulary.attr import META_SET_MODE, META_SET_MTIME, META_SET_SIZE, ROOT, Attr
from amfs.workflow.origin import ATTRIBUTE

DONE = Attr(size=10, mtime=50, ctime=50)


def with_origin() -> tuple[Meta, int]:
    meta = alone()
    ino = made(meta, b"x").ino
    meta.open(ino, 0, True)
    meta.wrote(ino, 0, DONE, b"by a task")
    return meta, ino


def has_origin(meta: Meta, ino: int) -> bool:
    try:
        return meta.get_xattr(ino, ATTRIBUTE) == b"by a task"
    except OSError as error:
        assert error.errno == errno.ENODATA
        return False


def test_it_stays_when_the_file_is_renamed_linked_touched_or_read() -> None:
    meta, ino = with_origin()
    meta.link(ino, 1, 60, -1)
    meta.insert(ROOT, b"y", 0, ino, 0o100000, False)
    meta.setattr(ino, META_SET_MODE | META_SET_MTIME, Attr(mode=0o600, mtime=70), 70, 0)
    meta.open(ino, 0, False)
    meta.setattr(ino, META_SET_SIZE, Attr(size=10), 80, 0)
    assert has_origin(meta, ino)
    meta.check()


def test_it_goes_when_somebody_writes_the_file_even_with_the_same_size_and_time() -> None:
    meta, ino = with_origin()
    meta.open(ino, 0, True)
    assert has_origin(meta, ino)
    meta.wrote(ino, 0, DONE)
    assert not has_origin(meta, ino)
    meta.open(ino, 0, True)
    meta.wrote(ino, 0, DONE, b"by a task")
    assert has_origin(meta, ino), "a task has made it anew"


def test_it_goes_when_the_file_is_cut_or_its_writer_has_it_copied() -> None:
    meta, ino = with_origin()
    meta.setattr(ino, META_SET_SIZE, Attr(size=9), 60, 0)
    assert not has_origin(meta, ino)
    meta, ino = with_origin()
    meta.open(ino, 0, True)
    meta.checkpoint(ino, 0, DONE, (1,))
    assert not has_origin(meta, ino)
    meta.wrote_same(ino, 0, b"by a task")
    assert has_origin(meta, ino)


def test_moving_the_bytes_changes_nothing() -> None:
    """To stripes and back, to another node: the node that does it says no times."""
    meta, ino = with_origin()
    meta.open(ino, 0, True)
    meta.wrote(ino, 0, Attr(size=10))
    assert has_origin(meta, ino)


def test_it_is_not_listed_and_moves_with_the_record() -> None:
    meta, ino = with_origin()
    meta.set_xattr(ino, b"user.mine", b"1", 0, 60)
    assert meta.list_xattr(ino) == [b"user.mine"]
    partition = meta.ino_partition(ino)
    other = Meta(1)
    other.set_table([1] * 16, 1)
    other.import_(meta.export_partition(partition))
    assert has_origin(other, ino)
    with refused(errno.ENODATA):
        other.get_xattr(ino, b"user.theirs")
