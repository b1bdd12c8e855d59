"""Load directories into a session and dump them out of it (AMFS Shell §3.4).

Where all nodes see the place outside, a plan says which node copies which files, and all copy at the same time; else the files go through
this process. Every copy is read back and compared by its digest, and gets its name when it is whole. A file that is there with the same
size and digest is not copied again, so a load or dump that broke off goes on where it was.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from amfs.client.connection import Call, failure
from amfs.client.files import Files, StrPath
from amfs.client.paths import clean, join
from amfs.client.tree import has_magic
from amfs.client.verifying import LATE_MAX
from amfs.engine.spreading import Job, distribute, orders
from amfs.errors import UsageError
from amfs.host.digests import of_file
from amfs.host.replacing import put_in_place
from amfs.operations.loading_common import (
    AUTO,
    CLIENT,
    NODES,
    WAYS,
    Item,
    Progress,
    Transferred,
    Work,
    digest_at,
    digests,
    gone,
    inside_items,
    mode_of_directory,
    with_places,
)
from amfs.operations.loading_urls import dump_urls, load_urls
from amfs.remote import settings
from amfs.remote.opening import Storages, is_url
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import LOST, Attr

PASSES = 3  # over what nodes that died had to do
_TOGETHER = 2  # orders on their way to one node

# ── load ───────────────────────────────────────────────────────────────────────────────────────────


def load(
    files: Files,
    sources: str | Sequence[str],
    target: StrPath,
    *,
    way: str = AUTO,
    storage: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Transferred:
    """Copy local files into the session. Of a directory its content goes to ``target``; files, and matches of a pattern, go into
    ``target`` if that is a directory, if they are several, or if it ends with a slash, else to that name. Sources may be URLs: then
    all are, and ``storage`` is the file that says how their storages are reached.

    ``way``: "nodes" (each node copies its share), "client" (this process does), "auto" (nodes if all see the place). Raises UsageError,
    OSError; faults of single files are in the result.
    """
    _check_way(way)
    given = [sources] if isinstance(sources, str) else list(sources)
    if any(map(is_url, given)):
        if not all(map(is_url, given)):
            raise UsageError("load: URLs and local files go by commands of their own")
        return load_urls(files, given, target, Storages(settings.load(storage)), way=way, progress=progress)
    work = Work(progress)
    directories: dict[bytes, int] = {}
    items = _local_items(work, files, given, os.fspath(target), directories)
    for directory, mode in directories.items():
        files.makedirs(directory, mode, exist_ok=True)
    tops = {item.outside for item in items[:1]} | {source for source in given if os.path.exists(source)}
    chosen = _way(files, way, sorted(map(os.path.abspath, tops)))
    if chosen == NODES:
        before = {member.node for member in files.connection.members()}
        for _ in range(PASSES):
            _by_nodes(files, work, items, "load", _load_order)
            dead = before - {member.node for member in files.connection.members()}
            items = _lost(files, work, items, dead)
            if not items:
                break
        for item in items:
            work.fail(item.outside, "it went with a node that died; say it again to go on")
        if dead:
            _remove_halves(files, directories)
    else:
        nodes = [member.node for member in files.connection.members()]
        for node, jobs in distribute([Job(at, item.size) for at, item in enumerate(items)], nodes).items():
            for job in jobs:
                _load_here(files, work, items[job.number], node)
    return work.result(chosen)


def _remove_halves(files: Files, directories: Iterable[bytes]) -> None:
    """Remove halves that nodes began before they died: nobody finds them by name, and a reader of the whole directory gets an error."""
    for directory in directories:
        names = [join(directory, name) for name in files.listdir(directory) if name.startswith(b".amfs-load-")]
        found = files.info_many(names)
        lost = [name for name, attr in zip(names, found, strict=True) if isinstance(attr, Attr) and attr.finished == LOST]
        files.call_many([Call(q.UnlinkPath(name)) for name in lost])


def _check_way(way: str) -> None:
    if way not in WAYS:
        raise UsageError(f"files go by {', '.join(WAYS)}; not by {way}")


def _local_items(work: Work, files: Files, sources: Sequence[str], target: str | bytes, directories: dict[bytes, int]) -> list[Item]:
    """The files to load, and the directories that must be there, with their modes."""
    chosen: list[str] = []
    for source in sources:
        found = sorted(glob.glob(source)) if has_magic(os.fsencode(source)) and not os.path.lexists(source) else [source]
        if not found:
            raise failure(errno.ENOENT, (source,), "nothing matches")
        chosen += found
    to = clean(target)
    into = len(chosen) > 1 or os.fsencode(target).endswith(b"/") or files.isdir(to)
    directories[to if into or os.path.isdir(chosen[0]) else to.rpartition(b"/")[0] or b"/"] = mode_of_directory(0o777)
    items: list[Item] = []
    for source in chosen:
        if os.path.isdir(source):
            below = join(to, os.fsencode(os.path.basename(os.path.abspath(source)))) if len(chosen) > 1 else to
            _local_tree(work, source, below, items, directories)
        else:
            _local_file(work, source, join(to, os.fsencode(os.path.basename(source))) if into else to, items)
    return items


def _local_tree(work: Work, top: str, to: bytes, items: list[Item], directories: dict[bytes, int]) -> None:
    def report(error: OSError) -> None:
        work.fail(error.filename or top, error)

    for above, names, found in os.walk(top, onerror=report):
        part = os.fsencode(os.path.relpath(above, top))
        here = to if part == b"." else join(to, part)
        directories[here] = mode_of_directory(os.stat(above).st_mode)
        for name in sorted(names):
            if os.path.islink(os.path.join(above, name)):
                work.fail(os.path.join(above, name), "is a symbolic link to a directory; left out")
        for name in sorted(found):
            _local_file(work, os.path.join(above, name), join(here, os.fsencode(name)), items)


def _local_file(work: Work, path: str, inside: bytes, items: list[Item]) -> None:
    try:
        facts = os.stat(path)
    except OSError as error:
        work.fail(path, error)
        return
    if not stat.S_ISREG(facts.st_mode):
        work.fail(path, "not a regular file; left out")
    else:
        from amfs.host.umask import umask

        items.append(Item(inside, path, facts.st_size, stat.S_IMODE(facts.st_mode) & 0o777 & ~umask()))


def _load_here(files: Files, work: Work, item: Item, node: int) -> None:
    """Through this process."""
    temporary = files.beside(item.inside)
    try:
        theirs, size = of_file(item.outside)
        if digest_at(files, item.inside) == (size, theirs):
            work.done(size, True)
            return
        try:
            files.put_file(item.outside, temporary, rank=node, exclusive=True)
            if digest_at(files, temporary) != (size, theirs):
                raise OSError(errno.EILSEQ, "its digest differs")
            files.chmod(temporary, item.mode)
            files.rename(temporary, item.inside)
        except BaseException:
            files.call_many([Call(q.UnlinkPath(temporary))])
            raise
        work.done(size, False)
    except OSError as error:
        work.fail(item.outside, error)


# ── dump ───────────────────────────────────────────────────────────────────────────────────────────


def dump(
    files: Files,
    sources: StrPath | Sequence[StrPath],
    target: str,
    *,
    way: str = AUTO,
    storage: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Transferred:
    """Copy files of the session out; names, ``way``, ``storage`` and errors as for ``load``."""
    _check_way(way)
    given = [clean(source) for source in ([sources] if isinstance(sources, (str, bytes, os.PathLike)) else sources)]
    if is_url(target):
        return dump_urls(files, given, target, Storages(settings.load(storage)), way=way, progress=progress)
    work = Work(progress)
    directories: dict[str, int] = {}
    items = inside_items(files, given, target, directories, os.path.isdir(target))
    for directory, mode in directories.items():
        os.makedirs(directory or ".", mode, exist_ok=True)
    probe = _Probe(os.path.abspath(next(iter(directories)) or "."))
    try:
        chosen = _way(files, way, [probe.path])
    finally:
        probe.remove()
    if chosen == NODES:
        _by_nodes(files, work, items, "dump", _dump_order)
    else:
        for item in items:
            _dump_here(files, work, item)
    return work.result(chosen)


def _dump_here(files: Files, work: Work, item: Item) -> None:
    """Through this process."""
    above, name = os.path.split(item.outside)
    temporary = os.path.join(above, f".amfs-{os.urandom(6).hex()}-{name[:100]}")
    try:
        [mine] = digests(files, [item.ino])
        if isinstance(mine, OSError):
            raise mine
        if os.path.isfile(item.outside) and os.path.getsize(item.outside) == mine[0] and of_file(item.outside) == (mine[1], mine[0]):
            work.done(mine[0], True)
            return
        try:
            files.get_file(item.inside, temporary, exclusive=True)
            if of_file(temporary) != (mine[1], mine[0]):
                raise OSError(errno.EILSEQ, "its digest differs")
            os.chmod(temporary, item.mode)
            put_in_place(temporary, item.outside)
        except BaseException:
            if os.path.lexists(temporary):
                os.unlink(temporary)
            raise
        work.done(mine[0], False)
    except OSError as error:
        work.fail(item.inside, error)


def _lost(files: Files, work: Work, items: Sequence[Item], dead: Collection[int]) -> list[Item]:
    """Loaded files that are not there any more: they went with a node that has died since."""
    lost = gone(files, [item.inside for item in items], dead)
    return [item for item, is_gone in zip(items, lost, strict=True) if is_gone and item.outside not in work.failed]


# ── by all nodes ───────────────────────────────────────────────────────────────────────────────────


class _Probe:
    """A new file with a name that nobody can have seen, to find out who sees a directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, f".amfs-{os.urandom(8).hex()}-probe")
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def remove(self) -> None:
        os.unlink(self.path)


def _way(files: Files, way: str, paths: Iterable[str]) -> str:
    """By whom: the nodes if all of them see the same at ``paths`` as this process. Raises UsageError if they must and do not."""
    if way == CLIENT:
        return CLIENT
    for path in paths:
        facts = os.stat(path)
        mine = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        for node, answer in files.connection.call(q.SeenOutside(os.fsencode(path)), about=(path,)):
            if isinstance(answer, int) or tuple(answer) != mine:
                if way == NODES:
                    why = os.strerror(answer) if isinstance(answer, int) else "something else is there"
                    raise UsageError(f"node {node} does not see {path} as this process does: {why}")
                return CLIENT
    return NODES


Order = Callable[[int, Sequence[Item]], q.Request[list[q.Copied]]]


def _load_order(node: int, items: Sequence[Item]) -> q.Request[list[q.Copied]]:
    return q.Load(node, tuple((os.fsencode(os.path.abspath(item.outside)), item.inside, item.mode) for item in items))


def _dump_order(node: int, items: Sequence[Item]) -> q.Request[list[q.Copied]]:
    return q.Dump(node, tuple((item.ino, os.fsencode(os.path.abspath(item.outside)), item.mode) for item in items))


def _by_nodes(files: Files, work: Work, items: Sequence[Item], op: str, order: Order) -> None:
    """Every node its share, all at the same time; others do the rest of a node that dies."""
    left = list(range(len(items)))
    if op == "dump":
        items = with_places(files, items)
    for _ in range(PASSES):
        nodes = [int(usage[0]) for usage in files.connection.call(q.Df(), about=(files.session,))]
        plan = distribute([Job(at, items[at].size, items[at].near) for at in left], nodes)
        if not plan:
            return
        with ThreadPoolExecutor(min(64, len(plan)), "amfs-bulk") as threads:
            shares = [threads.submit(_share, files, work, items, op, order, node, jobs) for node, jobs in plan.items()]
            left = [at for share in shares for at in share.result()]
    for at in left:
        work.fail(items[at].outside if op == "load" else items[at].inside, "the nodes that were to copy it died")


def _share(files: Files, work: Work, items: Sequence[Item], op: str, order: Order, node: int, jobs: Sequence[Job]) -> list[int]:
    """Have one node do its jobs; returns those that it could not because it has died."""
    left: list[int] = []
    waiting = [[job.number for job in portion] for portion in orders(jobs)]
    late = 0
    while waiting:
        now, waiting = waiting[:_TOGETHER], waiting[_TOGETHER:]
        calls = [Call(order(node, [items[at] for at in portion]), (items[portion[0]].outside,)) for portion in now]
        answers = files.call_many(calls)
        for portion, answer in zip(now, answers, strict=True):
            number = answer.errno or errno.EIO if isinstance(answer, OSError) else 0
            if number == errno.EHOSTDOWN:
                left += portion
                continue
            if number == errno.ETIMEDOUT and late < LATE_MAX:
                late += 1
                waiting.insert(0, portion)
                continue
            values = [number] * len(portion) if isinstance(answer, OSError) else answer
            for at, value in zip(portion, values, strict=True):
                if isinstance(value, int):
                    work.fail(items[at].outside if op == "load" else items[at].inside, value)
                else:
                    work.done(value[0], bool(value[1]))
    return left
