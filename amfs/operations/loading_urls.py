"""Load from, and dump to, storage at URLs: by all nodes, or through this process.

Owns which objects become which files of the session and the other way round. Through this process small ones go in batches, and a large
one goes piece by piece.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import md5
from typing import NamedTuple

from amfs.client import transfer
from amfs.client.connection import Call
from amfs.client.files import Files, StrPath
from amfs.client.paths import clean, join
from amfs.client.verifying import drop_damaged
from amfs.errors import UsageError
from amfs.host.digests import Digest
from amfs.host.umask import umask
from amfs.operations.loading_common import (
    CLIENT,
    NODES,
    Item,
    Progress,
    Transferred,
    Work,
    digest_at,
    digests,
    gone,
    inside_items,
    with_places,
)
from amfs.operations.url_moves import PASSES, Portion, UrlMover
from amfs.remote.opening import Matched, Storages
from amfs.remote.place import Found, Kind, Remote, RemoteError
from amfs.remote.transfers import GoneError, Transfers
from amfs.remote.uploads import OLD_S, older
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.url_moves import DUMP, GONE, LOAD, NUMBER, UrlEnd, UrlFile

_PIECE = 4 << 20
_IN_MEMORY_MAX = 64 << 20  # a larger object is written into the session as it comes
_AHEAD = 64 << 20  # bytes of small objects that one batch of the session gets
_OF_USE = frozenset((Kind.NO_PLACE, Kind.DENIED, Kind.UNREACHABLE, Kind.UNTRUSTED, Kind.UNSUPPORTED))  # of the first question


class _Wanted(NamedTuple):
    """An object, and the file that it becomes."""

    remote: Remote
    found: Found
    inside: bytes
    source: int  # which of the URLs that were given named it


def load_urls(
    files: Files, sources: Sequence[str], target: StrPath, storages: Storages, *, way: str, progress: Progress | None = None
) -> Transferred:
    """As ``loading.load``; "auto" is by the nodes."""
    work = Work(progress)
    transfers = Transfers(min(storages.place(source).remote.at_once for source in sources))
    wanted: list[_Wanted] = []
    directories: set[bytes] = set()
    to = clean(target)
    into = len(sources) > 1 or os.fsencode(os.fspath(target)).endswith(b"/") or files.isdir(to)
    for number, source in enumerate(sources):
        remote, key = storages.place(source)
        matched = _first(partial(storages.matching, source), transfers)
        alone = [one.found.key for one in matched] == [key]  # else it names a directory, or is a pattern
        for one in matched:
            inside = join(to, os.fsencode(one.name.rstrip("/"))) if into or not alone else to
            if one.name.endswith("/") or not one.name:
                directories.add(inside if one.name else to)
            else:
                wanted.append(_Wanted(remote, one.found, inside, number))
    directories |= {one.inside.rpartition(b"/")[0] or b"/" for one in wanted}
    for directory in sorted(directories):
        files.makedirs(directory, exist_ok=True)
    if way != CLIENT:
        _load_by_nodes(files, work, storages, sources, wanted, transfers)
        return work.result(NODES)
    _load_small(files, work, transfers, [each for each in wanted if each.found.size <= _IN_MEMORY_MAX])
    for each in wanted:
        if each.found.size > _IN_MEMORY_MAX:
            _load_large(files, work, transfers, each)
    return work.result(CLIENT)


def _first(ask: partial[list[Matched]], transfers: Transfers) -> list[Matched]:
    """The first question to a storage. Raises UsageError where the person must change something; else RemoteError."""
    try:
        return transfers.patiently(ask)
    except RemoteError as error:
        if error.kind in _OF_USE:
            raise UsageError(f"{error.filename}: {error.strerror}") from None
        raise


def _failed(work: Work, url: str, error: OSError, gone: bool) -> bool:
    """Note it; a storage that is gone is told once. Whether it is."""
    if not isinstance(error, GoneError):
        work.fail(url, error)
        return gone
    if not gone:
        work.fail(url, f"{error.kind.value} any more; say it again to go on")
    return True


def _tell(work: Work, url: str, inside: bytes, node: int, end: UrlEnd) -> None:
    """The outcome of a file that a node had to move."""
    if end.kind == GONE:
        work.fail(url, f"{end.words} from node {node} any more; say it again to go on, or --by client")
    elif end.kind == NUMBER:
        work.fail(inside, end.error)
    elif end.kind:
        work.fail(url, end.words)
    else:
        work.done(end.size, end.same, told=True)


# ── load ───────────────────────────────────────────────────────────────────────────────────────────


def _load_by_nodes(
    files: Files, work: Work, storages: Storages, sources: Sequence[str], wanted: Sequence[_Wanted], transfers: Transfers
) -> None:
    def ended(node: int, end: UrlEnd) -> None:
        one = wanted[end.number]
        if not one.found.size and (end.kind == Kind.MISSING.name or end.error == errno.EISDIR):
            markers.append(one)
        else:
            _tell(work, one.remote.url(one.found.key), one.inside, node, end)

    markers: list[_Wanted] = []
    mode = 0o666 & ~umask()
    mover = UrlMover(files, LOAD, storages, sources, ended, work.moved)
    left = list(range(len(wanted)))
    first = before = {member.node for member in files.connection.members()}
    for _ in range(PASSES):
        chosen = [
            UrlFile(at, one.source, one.found.key, one.inside, 0, one.found.size, one.found.identity, one.found.mtime, mode)
            for at, one in ((at, wanted[at]) for at in left)
        ]
        for file in mover.run(Portion(file, file.size) for file in chosen):
            work.fail(wanted[file.number].inside, "the nodes that were to copy it died")
        now = {member.node for member in files.connection.members()}
        if not mover.died and not before - now:  # one that had done its share may have died, too
            break
        before = now
        for directory in {one.inside.rpartition(b"/")[0] or b"/" for one in wanted}:
            names = [name for name in files.listdir(directory) if name.startswith(b".amfs-load-%s-" % mover.name.encode())]
            files.call_many([Call(q.UnlinkPath(join(directory, name))) for name in names])
        left = _lost(files, work, wanted, first - now)  # files that had come to a node that has died since
        mover.died = False
    else:
        for at in left:
            work.fail(wanted[at].inside, "it went with a node that died; say it again to go on")
    for one in markers:
        try:
            transfers.patiently(partial(one.remote.stat, one.found.key))
            work.fail(one.inside, errno.EISDIR)
        except RemoteError as error:
            if error.kind is not Kind.MISSING:
                raise
            files.makedirs(one.inside, exist_ok=True)  # the key ends with a slash: consoles make directories so


def _lost(files: Files, work: Work, wanted: Sequence[_Wanted], dead: Collection[int]) -> list[int]:
    lost = gone(files, [one.inside for one in wanted], dead)
    return [
        at
        for at, one in enumerate(wanted)
        if lost[at] and not {one.remote.url(one.found.key), os.fsdecode(one.inside)} & work.failed.keys()
    ]


def _load_small(files: Files, work: Work, transfers: Transfers, wanted: Sequence[_Wanted]) -> None:
    there = _sizes(files, [one.inside for one in wanted])
    gone = False
    with ExitStack() as batch:
        ready: list[tuple[_Wanted, int]] = []
        size = 0
        for one, content in transfers.run(wanted, _in_memory):
            url = one.remote.url(one.found.key)
            if isinstance(content, OSError):
                if isinstance(content, RemoteError) and content.kind is Kind.MISSING and not one.found.size:
                    files.makedirs(one.inside, exist_ok=True)  # the key ends with a slash: consoles make directories so
                    continue
                gone = _failed(work, url, content, gone)
                continue
            batch.callback(os.close, content)
            ready.append((one, content))
            size += one.found.size
            if size >= _AHEAD or len(ready) >= transfer.BATCH:
                _put(files, work, ready, there)
                batch.close()
                ready, size = [], 0
        _put(files, work, ready, there)


def _sizes(files: Files, paths: Sequence[bytes]) -> dict[bytes, int]:
    """Of the files that are there already."""
    found = files.info_many(list(paths))
    return {path: attr.size for path, attr in zip(paths, found, strict=True) if not isinstance(attr, OSError)}


def _in_memory(one: _Wanted) -> int:
    """A descriptor of the object's content."""
    descriptor = os.memfd_create("amfs-object", os.MFD_CLOEXEC)
    try:
        for piece in one.remote.read(one.found):
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _put(files: Files, work: Work, ready: Sequence[tuple[_Wanted, int]], there: dict[bytes, int]) -> None:
    """Into the session, under names of their own first."""
    mine = [_digest_of(descriptor) for _, descriptor in ready]
    new: list[int] = []
    for at, (one, _) in enumerate(ready):
        if there.get(one.inside) == one.found.size and digest_at(files, one.inside) == mine[at]:
            work.done(one.found.size, True)
        else:
            new.append(at)
    mode = 0o666 & ~umask()
    names = {at: files.beside(ready[at][0].inside) for at in new}
    sources = [
        transfer.Source(f"/proc/self/fd/{ready[at][1]}", names[at], mode, ready[at][0].found.size, ready[at][0].found.mtime or _now())
        for at in new
    ]
    put = transfer.put_many(files.connection, sources, transfer.Layout(), exclusive=True)
    made = [(at, attr.ino) for at, attr in zip(new, put, strict=True) if not isinstance(attr, OSError)]
    taken = dict(zip([at for at, _ in made], digests(files, [ino for _, ino in made]), strict=True))
    moves: list[int] = []
    wrong: list[int] = []
    for at, attr in zip(new, put, strict=True):
        if isinstance(attr, OSError):
            work.fail(ready[at][0].inside, attr)
        elif taken[at] != mine[at]:
            work.fail(ready[at][0].inside, errno.EILSEQ)
            wrong.append(at)
        else:
            moves.append(at)
    moved = files.call_many([Call(q.RenamePath(names[at], ready[at][0].inside, 0), (ready[at][0].inside,)) for at in moves])
    for at, answer in zip(moves, moved, strict=True):
        if isinstance(answer, OSError):
            work.fail(ready[at][0].inside, answer)
            wrong.append(at)
        else:
            work.done(ready[at][0].found.size, False)
    files.call_many([Call(q.UnlinkPath(names[at])) for at in wrong])


def _digest_of(descriptor: int) -> tuple[int, bytes]:
    taken = Digest()
    at = 0
    while data := os.pread(descriptor, _PIECE, at):
        taken.add(data)
        at += len(data)
    return taken.size, taken.value()


def _now() -> int:
    return time.time_ns()


def _load_large(files: Files, work: Work, transfers: Transfers, one: _Wanted) -> None:
    try:
        transfers.patiently(partial(_load_one, files, work, one))
    except OSError as error:
        _failed(work, one.remote.url(one.found.key), error, False)


def _load_one(files: Files, work: Work, one: _Wanted) -> None:
    if files.isfile(one.inside) and files.info(one.inside).size == one.found.size:
        found = _read(one.remote, one.found)
        if digest_at(files, one.inside) == (found.size, found.value()):
            work.done(found.size, True)
            return
    temporary = files.beside(one.inside)
    try:
        taken = Digest()
        with files.open(temporary, "xb", buffering=0) as file:
            for data in one.remote.read(one.found):
                taken.add(data)
                file.write(data)
        if digest_at(files, temporary) != (taken.size, taken.value()):
            raise OSError(errno.EILSEQ, "its digest differs")
        files.rename(temporary, one.inside)
    except BaseException:
        files.call_many([Call(q.UnlinkPath(temporary))])
        raise
    work.done(taken.size, False)


def _read(remote: Remote, found: Found) -> Digest:
    taken = Digest()
    for data in remote.read(found):
        taken.add(data)
    return taken


# ── dump ───────────────────────────────────────────────────────────────────────────────────────────


def dump_urls(
    files: Files, sources: Sequence[bytes], url: str, storages: Storages, *, way: str, progress: Progress | None = None
) -> Transferred:
    """As ``loading.dump``; "auto" is by the nodes. An object is seen when it is whole, and is what the nodes say that the file is: digests
    are compared before the last piece is given away."""
    if url.startswith(("http:", "https:")):
        raise UsageError(f"{url}: amfs writes to no web server")
    place = storages.place(url)
    work = Work(progress)
    transfers = Transfers(place.remote.at_once)
    there = _first_listing(place.remote, place.key, transfers)
    items = inside_items(files, sources, place.key, {}, place.remote.is_directory(place.key))
    sizes = {found.key: found for found in there}
    _remove_parts(storages, url, place.key, {item.outside for item in items})
    if way != CLIENT:
        _dump_by_nodes(files, work, storages, place.remote, url, items, sizes)
        return work.result(NODES)
    gone = False
    for item, done in transfers.run(_with_digests(files, work, items), partial(_dump_one, files, place.remote, sizes)):
        if isinstance(done, OSError):
            gone = _failed(work, place.remote.url(item[0].outside), done, gone)
        else:
            work.done(item[0].size, done)
    return work.result(CLIENT)


def _remove_parts(storages: Storages, url: str, prefix: str, keys: set[str]) -> None:
    """Remove parts that killed dumps of these keys have left. A storage that tells nothing of them is no fault."""
    with suppress(RemoteError):
        uploads = storages.uploads(url)
        for one in older(uploads.of(keys, prefix), time.time(), OLD_S):
            uploads.remove(one)


def _dump_by_nodes(
    files: Files, work: Work, storages: Storages, remote: Remote, url: str, items: Sequence[Item], there: dict[str, Found]
) -> None:
    def ended(node: int, end: UrlEnd) -> None:
        _tell(work, remote.url(items[end.number].outside), items[end.number].inside, node, end)

    portions: list[Portion] = []
    for at, item in enumerate(with_places(files, items)):
        old = there.get(item.outside, Found("", -1, ""))
        portions.append(Portion(UrlFile(at, 0, item.outside, item.inside, item.ino, old.size, old.identity), item.size, item.near))
    for file in UrlMover(files, DUMP, storages, [url], ended, work.moved).run(portions):
        work.fail(items[file.number].inside, "the nodes that were to copy it died")


def _first_listing(remote: Remote, key: str, transfers: Transfers) -> list[Found]:
    """The objects there: the one of this name, and those below it."""
    above = key.rstrip("/")

    def ask() -> list[Found]:
        found = list(remote.list(above + "/" if above else ""))
        if above and not key.endswith("/"):
            try:
                found.append(remote.stat(key))
            except RemoteError as error:
                if error.kind is not Kind.MISSING:
                    raise
        return found

    try:
        return transfers.patiently(ask)
    except RemoteError as error:
        if error.kind is Kind.MISSING:
            return []
        if error.kind in _OF_USE:
            raise UsageError(f"{remote.url(key)}: {error.strerror}") from None
        raise


def _with_digests(files: Files, work: Work, items: Sequence[Item]) -> Iterator[tuple[Item, tuple[int, bytes]]]:
    for start in range(0, len(items), transfer.BATCH):
        some = items[start : start + transfer.BATCH]
        for item, found in zip(some, digests(files, [item.ino for item in some]), strict=True):
            if isinstance(found, OSError):
                work.fail(item.inside, found)
            else:
                yield item, found


def _dump_one(files: Files, remote: Remote, there: dict[str, Found], job: tuple[Item, tuple[int, bytes]]) -> bool:
    """Whether it was there already."""
    item, mine = job
    old = there.get(item.outside)
    if old is not None and old.size == mine[0] and _is_content(files, remote, old, item, mine):
        return True
    try:
        remote.write(item.outside, _pieces(files, item, mine, remote.whole_max))
    except OSError as error:
        if error.errno != errno.EILSEQ:
            raise
        drop_damaged(files.connection, item.ino)  # if it was a copy that is damaged, another one is read now
        remote.write(item.outside, _pieces(files, item, mine, remote.whole_max))
    return False


def _is_content(files: Files, remote: Remote, old: Found, item: Item, mine: tuple[int, bytes]) -> bool:
    sum = old.identity.strip('"')
    if len(sum) == 32 and old.size <= remote.whole_max:  # as object stores say of what came in one piece
        return md5(b"".join(_pieces(files, item, mine, old.size or 1)), usedforsecurity=False).hexdigest() == sum
    try:
        found = _read(remote, old)
    except RemoteError as error:
        if error.kind in (Kind.CHANGED, Kind.MISSING):  # a dump that was killed may end what it had begun
            return False
        raise
    return (found.size, found.value()) == mine


def _pieces(files: Files, item: Item, mine: tuple[int, bytes], whole_max: int) -> Iterator[bytes]:
    """The file. The last piece comes when the digest of all of them is right: EILSEQ."""
    taken = Digest()
    piece = max(item.size, 1) if item.size <= whole_max else _PIECE
    with files.open(item.inside, "rb", buffering=0) as source:
        held = b""
        while data := bytes(source.read(piece)):
            taken.add(data)
            if held:
                yield held
            held = data
    if (taken.size, taken.value()) != mine:
        raise OSError(errno.EILSEQ, "its digest differs")
    yield held
