"""Whether two directories of a session, or objects at URLs, have the same contents, whatever the files are called (AMFS Shell §3.4).

No content comes here: the nodes that hold the files take their digests, and the nodes read the objects, each a share of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from amfs.client.files import Files, StrPath
from amfs.client.paths import clean
from amfs.client.selected import files_at
from amfs.operations.loading_common import digests
from amfs.operations.url_moves import Portion, UrlMover
from amfs.remote import settings
from amfs.remote.opening import Storages, is_url
from amfs.remote.place import Found, Kind, RemoteError
from amfs.remote.transfers import Transfers
from amfs.vocabulary.url_moves import DIGEST, NUMBER, UrlEnd, UrlFile

Content = tuple[int, bytes]  # size, digest


class Difference(NamedTuple):
    """Paths whose content the other side has not, or not as often."""

    only_first: list[bytes]
    only_second: list[bytes]
    files: tuple[int, int]  # on each side

    @property
    def same(self) -> bool:
        return not (self.only_first or self.only_second)


class _File(NamedTuple):
    """Of a session, or (``found``) an object."""

    name: bytes
    size: int
    ino: int = 0
    found: Found | None = None


def diff(files: Files, first: StrPath, second: StrPath, *, storage: StrPath | None = None) -> Difference:
    """Compare the contents of the files at and below two places, as multisets. Each is a path of the session or a URL; ``storage`` is the
    file that says how the storages of URLs are reached. Raises UsageError, OSError: a file cannot be looked at, is being written, or was
    lost."""
    storages = Storages(settings.load(os.fsdecode(storage) if storage else None)) if _url(first) or _url(second) else None
    sides = [_objects(storages, url) if storages and (url := _url(place)) else _files(files, place) for place in (first, second)]
    sizes = [Counter(each.size for each in side) for side in sides]
    wanted = [[each for each in side if each.size and sizes[0][each.size] and sizes[1][each.size]] for side in sides]
    known: list[dict[bytes, Content]] = [
        _read(files, storages, url, some) if storages and (url := _url(place)) else _taken(files, some)
        for place, some in zip((first, second), wanted, strict=True)
    ]
    one, other = ([(each.name, known[at].get(each.name, (each.size, b""))) for each in side] for at, side in enumerate(sides))
    return Difference(_beyond(one, other), _beyond(other, one), (len(one), len(other)))


def _url(place: StrPath) -> str:
    """It, if it is one."""
    text = os.fsdecode(place)
    return text if is_url(text) else ""


def _files(files: Files, path: StrPath) -> list[_File]:
    return [_File(each.path, each.attr.size, each.attr.ino) for each in files_at(files.connection, clean(path))]


def _taken(files: Files, some: Sequence[_File]) -> dict[bytes, Content]:
    known: dict[bytes, Content] = {}
    for each, answer in zip(some, digests(files, [each.ino for each in some]), strict=True):
        if isinstance(answer, OSError):
            raise OSError(answer.errno, answer.strerror, each.name)
        known[each.name] = answer
    return known


def _objects(storages: Storages, url: str) -> list[_File]:
    remote = storages.place(url).remote
    transfers = Transfers(remote.at_once)
    matched = [one.found for one in transfers.patiently(lambda: storages.matching(url)) if not one.name.endswith("/")]
    markers: set[str] = set()  # keys that end with a slash, as consoles make directories
    for found, answer in transfers.run([one for one in matched if not one.size], lambda one: remote.stat(one.key)):
        if isinstance(answer, RemoteError) and answer.kind is Kind.MISSING:
            markers.add(found.key)
        elif isinstance(answer, OSError):
            raise answer
    return [_File(os.fsencode(remote.url(one.key)), one.size, found=one) for one in matched if one.key not in markers]


def _read(files: Files, storages: Storages, url: str, some: Sequence[_File]) -> dict[bytes, Content]:
    known: dict[bytes, Content] = {}
    faults: list[OSError] = []

    def ended(node: int, end: UrlEnd) -> None:
        name = some[end.number].name
        if end.kind == NUMBER:
            faults.append(OSError(end.error, os.strerror(end.error), name))
        elif end.kind:
            faults.append(RemoteError(Kind.OTHER, os.fsdecode(name), end.words))
        else:
            known[name] = (end.size, end.digest)

    chosen = [UrlFile(at, 0, one.found.key, size=one.size, identity=one.found.identity) for at, one in enumerate(some) if one.found]
    left = UrlMover(files, DIGEST, storages, [url], ended, lambda count: None).run(Portion(file, file.size) for file in chosen)
    if left:
        raise RemoteError(Kind.OTHER, os.fsdecode(some[left[0].number].name), "the nodes that were to read it died")
    if faults:
        raise faults[0]
    return known


def _beyond(mine: Sequence[tuple[bytes, Content]], theirs: Sequence[tuple[bytes, Content]]) -> list[bytes]:
    """The files of one side whose contents the other has fewer of: of those with one content the last ones."""
    there = Counter(content for _, content in theirs)
    only = []
    for name, content in mine:
        if there[content]:
            there[content] -= 1
        else:
            only.append(name)
    return only
