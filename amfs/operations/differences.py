"""Whether two directories of a session have the same contents, whatever the files are called (AMFS Shell §3.4).

No content moves: the nodes that hold the files take their digests."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from amfs.client.files import Files, StrPath
from amfs.client.paths import clean
from amfs.client.selected import Selected, files_at
from amfs.operations.loading_common import digests

Content = tuple[int, bytes]  # size, digest


class Difference(NamedTuple):
    """Paths whose content the other side has not, or not as often."""

    only_first: list[bytes]
    only_second: list[bytes]
    files: tuple[int, int]  # on each side

    @property
    def same(self) -> bool:
        return not (self.only_first or self.only_second)


def diff(files: Files, first: StrPath, second: StrPath) -> Difference:
    """Compare the contents of the files at and below two paths, as multisets. Raises OSError: a file cannot be looked at, is being written,
    or was lost."""
    one, other = (files_at(files.connection, clean(path)) for path in (first, second))
    sizes = Counter(each.attr.size for each in one), Counter(each.attr.size for each in other)
    wanted = [each for each in (*one, *other) if each.attr.size and sizes[0][each.attr.size] and sizes[1][each.attr.size]]
    known: dict[int, Content] = {}
    for each, answer in zip(wanted, digests(files, [each.attr.ino for each in wanted]), strict=True):
        if isinstance(answer, OSError):
            raise OSError(answer.errno, answer.strerror, each.path)
        known[each.attr.ino] = answer
    return Difference(_beyond(one, other, known), _beyond(other, one, known), (len(one), len(other)))


def _content(each: Selected, known: dict[int, Content]) -> Content:
    return known.get(each.attr.ino, (each.attr.size, b""))


def _beyond(mine: list[Selected], theirs: list[Selected], known: dict[int, Content]) -> list[bytes]:
    """The files of one side whose contents the other has fewer of: of those with one content the last ones."""
    there = Counter(_content(each, known) for each in theirs)
    only = []
    for each in mine:
        content = _content(each, known)
        if there[content]:
            there[content] -= 1
        else:
            only.append(each.path)
    return only
