"""Directory trees: listings in pages, walks, removal. Used by ``amfs.client.files``.

Calls for many entries travel together, so a tree costs one round trip for each level, not for each entry.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from amfs.client.connection import Call, NodeConnection, Pending
from amfs.client.paths import join
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

PAGE = 4096  # entries in one answer
_NAMES_LOST = "may have had more entries: names were lost with nodes (to go on without them: amfs scrub --accept-lost-names)"
_AHEAD = 32  # directories whose first page is asked for before it is wanted


class NamesLost(OSError):
    """A directory has been listed, and may have had more entries: their names were lost with nodes."""

    def __init__(self, path: bytes) -> None:
        super().__init__(errno.EIO, _NAMES_LOST, os.fsdecode(path))


class Entry:
    """One entry of a directory, much like ``os.DirEntry``; its attributes are known already and cost nothing."""

    __slots__ = ("attr", "name", "path")

    def __init__(self, directory: bytes, name: bytes, attr: Attr) -> None:
        self.name = name
        self.path = join(directory, name)
        self.attr = attr

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.attr.mode)

    def is_file(self) -> bool:
        return stat.S_ISREG(self.attr.mode)

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.attr.mode)

    def __repr__(self) -> str:
        return f"<Entry {os.fsdecode(self.path)!r}>"


def _page_call(path: bytes, cursor: int = 0) -> Call[q.Page]:
    return Call(q.ListPath(path, cursor, PAGE), (path,))


def pages(connection: NodeConnection, path: bytes, first: Pending | None = None) -> Iterator[list[Entry]]:
    """The entries of a directory, page by page. Entries that are made or removed meanwhile may or may not be in it; no other is missed.

    After the last page ``NamesLost`` (EIO) if names were lost with their nodes.
    """
    pending = first or connection.submit(_page_call(path))
    names_lost = False
    while True:
        entries, cursor, lost = connection.wait(pending)
        names_lost |= lost
        if cursor:
            pending = connection.submit(_page_call(path, cursor))
        yield [Entry(path, name, attr) for name, attr in entries]
        if not cursor:
            break
    if names_lost:
        raise NamesLost(path)


def walk(connection: NodeConnection, top: bytes, on_error: Callable[[OSError], None]) -> Iterator[tuple[bytes, list[Entry]]]:
    """Every directory from ``top`` down, depth first, with its entries; symbolic links are not followed.

    The caller may sort the list and take entries out before it goes on: the order and the choice of what comes next follow from it.
    """
    stack = [top]
    ahead: dict[bytes, Pending] = {}
    while stack:
        for path in reversed(stack[-_AHEAD:]):
            if path not in ahead:
                ahead[path] = connection.submit(_page_call(path))
        path = stack.pop()
        entries: list[Entry] = []
        try:
            for page in pages(connection, path, ahead.pop(path)):
                entries += page
        except OSError as error:
            on_error(error)
            if not entries:
                continue
        yield path, entries
        stack.extend(entry.path for entry in reversed(entries) if entry.is_dir())


def remove_tree(
    connection: NodeConnection, top: bytes, on_error: Callable[[OSError], None], on_removed: Callable[[bytes, bool], None] | None = None
) -> None:
    """Remove the directory ``top`` with all that is in it; ``on_error`` is told what cannot be removed, and the rest goes on.

    ``on_removed`` is told each path, and whether it was a directory.
    """
    directories = [top]
    for path in directories:  # grows
        try:
            for page in pages(connection, path):
                directories += [entry.path for entry in page if entry.is_dir()]
                _each(connection, q.UnlinkPath, [entry.path for entry in page if not entry.is_dir()], on_error, on_removed)
        except OSError as error:
            on_error(error)
    # A directory's parent comes before it in the list; those of one depth do not concern each other.
    by_depth: dict[int, list[bytes]] = {}
    for path in directories:
        by_depth.setdefault(path.count(b"/") if path != b"/" else 0, []).append(path)
    for depth in sorted(by_depth, reverse=True):
        _each(connection, q.RmdirPath, [path for path in by_depth[depth] if path != b"/"], on_error, on_removed)


def _each(
    connection: NodeConnection, request: Callable[[bytes], q.Request[None]], paths: Sequence[bytes], on_error: Callable[[OSError], None],
    on_removed: Callable[[bytes, bool], None] | None,
) -> None:  # fmt: skip
    results = connection.call_many(Call(request(path), (path,)) for path in paths)
    for path, result in zip(paths, results, strict=True):
        if isinstance(result, FileNotFoundError):
            continue  # somebody else was faster
        if isinstance(result, OSError):
            on_error(result)
        elif on_removed is not None:
            on_removed(path, request is q.RmdirPath)


# ── patterns ───────────────────────────────────────────────────────────────────────────────────────

_MAGIC = re.compile(rb"[*?[]")


def has_magic(path: bytes) -> bool:
    return _MAGIC.search(path) is not None


def expand(connection: NodeConnection, pattern: bytes) -> list[bytes]:
    """The paths that match, sorted: ``*``, ``?`` and ``[…]`` within a name (not a leading dot), ``**`` for any depth of directories.

    A path that exists as it is written, special characters and all, is itself. Nothing that matches: an empty list.
    """
    if not has_magic(pattern):
        return [pattern] if lookup(connection, pattern) is not None else []
    if lookup(connection, pattern) is not None:
        return [pattern]
    found: list[tuple[bytes, bool]] = [(b"/", True)]
    parts = pattern.strip(b"/").split(b"/")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == b"**":
            found = _any_depth(connection, [path for path, directory in found if directory], last)
        elif has_magic(part):
            found = _matching(connection, [path for path, directory in found if directory], part)
        else:
            paths = [join(path, part) for path, directory in found if directory]
            calls = (Call(q.Walk(path, not last), (path,)) for path in paths)
            answers = connection.call_many(calls)
            found = [(path, _is_dir(answer)) for path, answer in zip(paths, answers, strict=True) if not isinstance(answer, OSError)]
    return sorted(dict(found))


def lookup(connection: NodeConnection, path: bytes, follow: bool = False) -> Attr | None:
    """The attributes of ``path``; None if nothing is there."""
    try:
        return connection.call(q.Walk(path, follow), about=(path,)).attr
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_dir(answer: q.Walked) -> bool:
    return stat.S_ISDIR(answer.attr.mode)


def _matching(connection: NodeConnection, directories: Sequence[bytes], part: bytes) -> list[tuple[bytes, bool]]:
    match = re.compile(fnmatch.translate(os.fsdecode(part))).match
    hidden = part.startswith(b".")
    found = []
    links = []
    for entry in _listed(connection, directories):
        if match(os.fsdecode(entry.name)) and (hidden or not entry.name.startswith(b".")):
            if entry.is_symlink():
                links.append(entry.path)
            found.append((entry.path, entry.is_dir()))
    if links:  # a link to a directory is one for what stands after it
        answers = connection.call_many(Call(q.Walk(path, True), (path,)) for path in links)
        found += [(path, True) for path, answer in zip(links, answers, strict=True) if not isinstance(answer, OSError) and _is_dir(answer)]
    return list(dict(found).items())


def _listed(connection: NodeConnection, directories: Sequence[bytes]) -> Iterator[Entry]:
    first = [connection.submit(_page_call(path)) for path in directories[:_AHEAD]]
    for number, path in enumerate(directories):
        if number + _AHEAD < len(directories):
            first.append(connection.submit(_page_call(directories[number + _AHEAD])))
        try:
            for page in pages(connection, path, first[number]):
                yield from page
        except OSError:
            continue  # as a shell does: an unreadable directory matches nothing


def _any_depth(connection: NodeConnection, directories: Sequence[bytes], last: bool) -> list[tuple[bytes, bool]]:
    found: dict[bytes, bool] = {}
    for top in directories:
        found.setdefault(top, True)
        for _, entries in walk(connection, top, lambda error: None):
            entries[:] = [entry for entry in entries if not entry.name.startswith(b".")]
            found.update({entry.path: entry.is_dir() for entry in entries if last or entry.is_dir()})
    return list(found.items())
