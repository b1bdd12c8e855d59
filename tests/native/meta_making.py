"""Short ways in which tests of the table of records make and ask."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from amfs._native import Meta
from amfs.vocabulary.attr import ROOT, Attr

FILE = stat.S_IFREG | 0o644
NEW = Attr(mode=FILE, uid=10, gid=20, copies=1)
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
