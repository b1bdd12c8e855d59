"""Whole files between nodes and places outside that every node sees (load and dump). Pure."""

from __future__ import annotations

import errno
import stat
from contextlib import suppress

from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Acquire, Calls, Operation, ask, failure, number_of, together, work
from amfs.fs.vfs.copies import FILES_MAX
from amfs.fs.vfs.digests import Digests
from amfs.fs.vfs.handles import Handles
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.paths import Paths
from amfs.fs.vfs.renames import Renames
from amfs.fs.vfs.whole_files import WholeFiles
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, Attr, Facts


class Outside:
    """Loads and dumps."""

    def __init__(
        self, calls: Calls, members: Members, owners: Owners, namespace: Namespace, renames: Renames, paths: Paths, handles: Handles,
        digests: Digests, whole: WholeFiles,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._members = members
        self._owners = owners
        self._namespace = namespace
        self._renames = renames
        self._paths = paths
        self._handles = handles
        self._digests = digests
        self._whole = whole
        calls.serve(
            p.SeenOutside.by(lambda peer, call: work(w.SeenOutside(call.path))),
            p.Load.by(self._load_all),
            p.Dump.by(self._dump_all),
        )

    # ── for clients ────────────────────────────────────────────────────────────────────────────────

    def seen(self, path: bytes) -> Operation[list[tuple[int, q.Seen]]]:
        nodes = sorted(self._members.live)
        answers = yield from together([ask(node, p.SeenOutside(path)) for node in nodes])
        return [(node, number_of(answer) if isinstance(answer, OSError) else answer) for node, answer in zip(nodes, answers, strict=True)]

    def load(self, caller: Caller, node: int, files: tuple[tuple[bytes, bytes, int], ...]) -> Operation[list[q.Copied]]:
        return (yield from ask(node, p.Load(files[:FILES_MAX], caller.uid, caller.gid)))

    def dump(self, node: int, files: tuple[tuple[int, bytes, int], ...]) -> Operation[list[q.Copied]]:
        return (yield from ask(node, p.Dump(files[:FILES_MAX])))

    # ── in ─────────────────────────────────────────────────────────────────────────────────────────

    def _load_all(self, peer: int, call: p.Load) -> Operation[list[q.Copied]]:
        answers = yield from together([self._load(source, path, mode, call.uid, call.gid) for source, path, mode in call.files])
        return [number_of(answer) if isinstance(answer, OSError) else answer for answer in answers]

    def _load(self, source: bytes, path: bytes, mode: int, uid: int, gid: int) -> Operation[tuple[int, bool]]:
        key = ("load", path)
        caller = Caller(key, uid, gid, self._calls.wall)
        yield Acquire(key)
        try:
            if (size := (yield from self._size_if_there(source, path))) is not None:
                return size, True
            scratch = (yield from work(w.Scratch())).encode(errors="surrogateescape")
            try:
                facts = yield from work(w.ImportFile(source, scratch))
                yield from self.take_in(caller, scratch, *(yield from self._paths.parent(path)), mode, facts=facts)
            except OSError:
                self._calls.order(w.DropScratch(scratch))
                raise
            return facts.size, False
        finally:
            self._calls.release(key)

    def _size_if_there(self, source: bytes, path: bytes) -> Operation[int | None]:
        """The size of the file at ``path`` if it has the content of ``source``, else None."""
        try:
            attr = yield from self._paths.walk(path, True)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EISDIR)
        _, size, _ = yield from work(w.SeenOutside(source))
        if not attr.finished or attr.finished == LOST or attr.size != size:
            return None
        return size if (yield from self._is_same(attr, source)) else None

    def _is_same(self, attr: Attr, path: bytes) -> Operation[bool]:
        """Has a file the content of one outside?"""
        [mine] = yield from self._digests.of((attr.ino,))
        theirs, _ = yield from work(w.DigestOutside(path))
        return not isinstance(mine, int) and mine[1] == theirs

    def take_in(
        self, caller: Caller, scratch: bytes, dir: int, name: bytes, mode: int, mark: bytes = b"", facts: Facts | None = None
    ) -> Operation[None]:
        """A scratch file becomes the file of that name. An older file stays until then, and the new one may have another name, in which
        ``mark`` is. ``facts``: of the scratch file."""
        temporary = b".amfs-load-%s%d-%x" % (mark, self._members.node, self._calls.number())
        named = None
        if facts is not None:
            named = yield from self._whole.create(caller, dir, name, temporary, mode, scratch, facts)
        if named is None:
            yield from self._handles.put_new(caller, scratch, dir, temporary, mode)
        try:
            if named != name:
                yield from self._renames.rename(caller, dir, temporary, dir, name, 0)
        except OSError:
            with suppress(OSError):
                yield from self._namespace.unlink(caller, dir, temporary)
            raise

    # ── out ────────────────────────────────────────────────────────────────────────────────────────

    def _dump_all(self, peer: int, call: p.Dump) -> Operation[list[q.Copied]]:
        answers = yield from together([self._dump(ino, target, mode) for ino, target, mode in call.files])
        return [number_of(answer) if isinstance(answer, OSError) else answer for answer in answers]

    def _dump(self, ino: int, target: bytes, mode: int) -> Operation[tuple[int, bool]]:
        key = ("dump", target)
        yield Acquire(key)
        try:
            attr = yield from self._owners.ask(p.Getattr(ino))
            if not attr.finished:
                raise failure(errno.EBUSY)
            with suppress(OSError):
                if (yield from work(w.SeenOutside(target)))[1] == attr.size and (yield from self._is_same(attr, target)):
                    return attr.size, True
            size, _ = yield from self._digests.read_whole(ino, key, lambda opened: w.ExportFile(ino, opened, target, mode, attr.mtime))
            if size != attr.size:
                raise failure(errno.EBUSY)  # it was written meanwhile
            return size, False
        finally:
            self._calls.release(key)
