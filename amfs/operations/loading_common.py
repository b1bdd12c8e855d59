"""Loads and dumps share these, whichever way the files go: items, results, digests, and the files of the session that a dump is about."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from amfs.client import verifying
from amfs.client.connection import Call, failure
from amfs.client.files import Files
from amfs.client.selected import CLOSING_S, files_at, places
from amfs.client.tree import has_magic, walk
from amfs.host.umask import umask
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import LOST, WHOLE, Attr

_ASKED = 64  # files of one question
#: Names of files of the session that are not whole: as nodes (``fs/vfs/outside.py``) and clients (``Files.beside``) give them.
_NOT_WHOLE = re.compile(rb"\.amfs-(load-([0-9a-f]{16}-)?[0-9]+-[0-9a-f]+|[0-9a-f]+-[0-9]+)")
AUTO, NODES, CLIENT = WAYS = ("auto", "nodes", "client")

Progress = Callable[[int], None]  # told the bytes that are done


class Item(NamedTuple):
    """One file to be copied, inside and outside. ``mode`` of the copy."""

    inside: bytes
    outside: str
    size: int
    mode: int
    ino: int = 0
    near: tuple[int, ...] = ()


class Transferred(NamedTuple):
    """How it went. ``failed``: name -> why. ``bytes`` were copied; ``same`` files were there already. ``way``: "nodes" or "client"."""

    failed: dict[str, str]
    files: int
    same: int
    bytes: int
    seconds: float
    way: str

    @property
    def ok(self) -> bool:
        return not self.failed


class Work:
    """The outcome of each file."""

    def __init__(self, progress: Progress | None) -> None:
        self.failed: dict[str, str] = {}
        self.files = self.same = self.bytes = 0
        self.began = time.monotonic()
        self._progress = progress

    def moved(self, size: int) -> None:
        """Bytes of a file that is not done yet."""
        if self._progress is not None:
            self._progress(size)

    def done(self, size: int, same: bool, told: bool = False) -> None:
        """``told``: its bytes were, by ``moved``."""
        self.files += not same
        self.same += same
        self.bytes += 0 if same else size
        if not told:
            self.moved(size)

    def fail(self, name: str | bytes, why: OSError | str | int) -> None:
        words = os.strerror(why) if isinstance(why, int) else why if isinstance(why, str) else why.strerror or str(why)
        number = why.errno if isinstance(why, OSError) else why
        self.failed[os.fsdecode(name)] = verifying.WORDS.get(number, words) if isinstance(number, int) else words

    def result(self, way: str) -> Transferred:
        return Transferred(self.failed, self.files, self.same, self.bytes, time.monotonic() - self.began, way)


def with_places(files: Files, items: Sequence[Item]) -> list[Item]:
    held = places(files.connection, [item.inside for item in items])
    return [item._replace(near=nodes) for item, nodes in zip(items, held, strict=True)]


def digest_at(files: Files, path: bytes) -> tuple[int, bytes] | None:
    """(size, digest) of a file of the session; None: there is none, or it is being written."""
    try:
        [found] = digests(files, [files.info(path).ino])
    except FileNotFoundError:
        return None
    return None if isinstance(found, OSError) else found


def digests(files: Files, inodes: Sequence[int]) -> list[tuple[int, bytes] | OSError]:
    return verifying.digests(files.connection, inodes, CLOSING_S)


def mode_of_directory(mode: int) -> int:
    """Of the copy of a directory, into which the copies of its files can be written. The umask is for those that make it."""
    return mode & 0o777 | 0o700


def inside_items(files: Files, sources: Sequence[bytes], target: str, directories: dict[str, int], is_directory: bool) -> list[Item]:
    """The files to dump, and the directories that must be there, with their modes."""
    chosen: list[bytes] = []
    for source in sources:
        found = files.glob(source) if has_magic(source) and not files.lexists(source) else [source]
        if not found:
            raise failure(errno.ENOENT, (source,), "nothing matches")
        chosen += found
    into = len(chosen) > 1 or target.endswith("/") or is_directory
    first_is_directory = files.isdir(chosen[0])
    directories[target if into or first_is_directory else os.path.dirname(target)] = 0o777
    items: list[Item] = []
    for source in chosen:
        name = os.fsdecode(source.rpartition(b"/")[2])
        if files.isdir(source):
            below = os.path.join(target, name) if len(chosen) > 1 else target
            _inside_directories(files, source, below, directories)
        else:
            below = os.path.join(target, name) if into else target
        for path, attr in files_at(files.connection, source):
            rest = os.fsdecode(path[len(source) :].strip(b"/"))
            if rest and _NOT_WHOLE.fullmatch(path.rpartition(b"/")[2]):
                continue  # somebody is just loading it, or was killed meanwhile
            outside = os.path.join(below, rest) if rest else below
            items.append(Item(path, outside, attr.size, stat.S_IMODE(attr.mode) & 0o777 & ~umask(), attr.ino))
    return items


def _inside_directories(files: Files, top: bytes, below: str, directories: dict[str, int]) -> None:
    def stop(error: OSError) -> None:
        raise error

    directories[below] = mode_of_directory(files.info(top).mode)
    for _, entries in walk(files.connection, top, stop):
        for each in entries:
            if each.is_dir():
                directories[os.path.join(below, os.fsdecode(each.path[len(top) :].strip(b"/")))] = mode_of_directory(each.attr.mode)


def gone(files: Files, paths: Sequence[bytes], dead: Collection[int]) -> list[bool]:
    """Of files that were loaded: did their content go with a node that has died since?

    Their records say so once their shards have heard of the death. Those that have not yet say which nodes have the content, and all
    of these are ``dead``.
    """
    found = files.info_many(paths)
    lost = [isinstance(attr, FileNotFoundError) or (isinstance(attr, Attr) and attr.finished == LOST) for attr in found]
    whole = [
        (at, attr.ino)
        for at, attr in enumerate(found)
        if dead and isinstance(attr, Attr) and attr.finished == 1 and attr.layout == WHOLE and attr.size
    ]
    portions = [whole[at : at + _ASKED] for at in range(0, len(whole), _ASKED)]
    answers = files.call_many([Call(q.Where(tuple(ino for _, ino in portion))) for portion in portions])
    for portion, answer in zip(portions, answers, strict=True):
        if isinstance(answer, OSError):
            raise answer
        for (at, _), holding in zip(portion, answer[1], strict=True):
            lost[at] = holding == errno.EIO if isinstance(holding, int) else bool(holding.holders) and {*holding.holders} <= {*dead}
    return lost
