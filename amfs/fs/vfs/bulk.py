"""Digests of the content of files, and whole files between nodes and places outside that every node sees (load and dump). Pure.

A digest is taken by a node that holds the file, and remembered there until the file changes. What is asked of a node in bulk may take
longer than a question may: who asks is told ETIMEDOUT and asks again, and waits for what is under way.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from amfs._native import Meta
from amfs.fs.attr import LOST, STRIPED, Attr
from amfs.fs.openflags import O_CREAT, O_EXCL, O_RDONLY, O_WRONLY
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Work, failure
from amfs.fs.vfs.contents import LOCAL, Request
from amfs.fs.vfs.copies import FILES_MAX, Copies
from amfs.fs.vfs.shard import attr_of

REMEMBERED = 100_000  # digests
AGAIN = 3  # attempts at a file that changes while it is read


def _one(answer: Any) -> Any:
    """The errno, or the value."""
    return (answer.errno or errno.EIO) if isinstance(answer, OSError) else answer


class Bulk(Copies):
    """Takes digests, loads and dumps."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        #: inode -> (size, mtime, ctime) when it was taken, and the digest; oldest first
        self._digests: dict[int, tuple[tuple[int, int, int], bytes]] = {}

    # ── digests ────────────────────────────────────────────────────────────────────────────────────

    def op_digests(self, r: Request, inodes: Sequence[int]) -> Operation:
        """(size, digest) of each file, or an errno; EBUSY: it is being written."""
        found: dict[int, Any] = {}
        asked: dict[int, list[int]] = {}
        for ino in inodes[:FILES_MAX]:
            try:
                asked.setdefault((yield from self._reader_of(ino)), []).append(ino)
            except OSError as error:
                found[ino] = error.errno or errno.EIO
        nodes = list(asked)
        for node, answer in zip(nodes, (yield All([Ask(node, "digests", (tuple(asked[node]),)) for node in nodes])), strict=True):
            failed = isinstance(answer, OSError)
            found.update(zip(asked[node], [_one(answer)] * len(asked[node]) if failed else answer, strict=True))
        return [found[ino] for ino in inodes[:FILES_MAX]]

    def _reader_of(self, ino: int) -> Operation:
        """The node that is to read the file: one that holds it; of one in stripes the first stripe's."""
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        if not attr.finished:
            raise failure(errno.EBUSY)
        if attr.finished == LOST:
            raise failure(errno.EIO)
        if attr.layout == STRIPED:
            return self.meta.owner(self.meta.stripe_partition(ino, 0))
        holders = yield from self.at_ino("holders", ino)
        return next((int(node) for node in holders if node in self.live), self.node)

    def s_digests(self, peer: int, inodes: Sequence[int]) -> Operation:
        return [_one(answer) for answer in (yield All([Ask(self.node, "digest", (ino,)) for ino in inodes]))]

    def s_digest(self, peer: int, ino: int) -> Operation:
        key = ("digest", ino)
        yield Acquire(key)
        try:
            for _ in range(AGAIN):
                attr = attr_of((yield from self.at_ino("getattr", ino)))
                if not attr.finished:
                    raise failure(errno.EBUSY)
                mark = (attr.size, attr.mtime, attr.ctime)
                known = self._digests.get(ino)
                if known is not None and known[0] == mark:
                    return attr.size, known[1]
                found, size = yield from self._reading(ino, key, "digest")
                self._digests.pop(ino, None)
                if size == attr.size:
                    self._digests[ino] = (mark, found)
                if len(self._digests) > REMEMBERED:
                    del self._digests[next(iter(self._digests))]
            raise failure(errno.EBUSY)  # the look after taking it has never found it unchanged
        finally:
            self.release(key)

    def _reading(self, ino: int, face: object, what: str, *more: Any) -> Operation:
        """Do a work with the file open to be read."""
        r = Request(face, 0, 0, self.clock())
        opened = yield from self.op_open(r, ino, O_RDONLY)
        try:
            return (yield Work(what, (ino, *opened, *more)))
        finally:
            self.spawn(self._close(r, ino, False, None))

    # ── places outside ─────────────────────────────────────────────────────────────────────────────

    def op_seen_outside(self, r: Request, path: bytes) -> Operation:
        """What every node sees at a path outside: [(node, errno or (inode, size, modification time))]."""
        nodes = sorted(self.live)
        answers = yield All([Ask(node, "seen_outside", (bytes(path),)) for node in nodes])
        return [(node, _one(answer)) for node, answer in zip(nodes, answers, strict=True)]

    def s_seen_outside(self, peer: int, path: bytes) -> Operation:
        return (yield Work("seen_outside", (bytes(path),)))

    def op_load(self, r: Request, node: int, files: Sequence[Any]) -> Operation:
        """Have ``node`` copy files in: (path outside, path here, mode) each. An errno of each, or (size, was there already)."""
        return (yield Ask(node, "load", (tuple(files)[:FILES_MAX], r.uid, r.gid)))

    def s_load(self, peer: int, files: Sequence[Any], uid: int, gid: int) -> Operation:
        return [_one(answer) for answer in (yield All([Ask(self.node, "load_one", (*each, uid, gid)) for each in files]))]

    def s_load_one(self, peer: int, source: bytes, path: bytes, mode: int, uid: int, gid: int) -> Operation:
        source, path = bytes(source), bytes(path)
        key = ("load", path)
        r = Request(key, uid, gid, self.clock())
        yield Acquire(key)
        try:
            if (size := (yield from self._is_there(r, source, path))) is not None:
                return size, True
            scratch = (yield Work("scratch", (b"",))).encode(errors="surrogateescape")
            try:
                size, _ = yield Work("copy_in", (source, scratch))
                yield from self._take_in(r, scratch, path, mode)
            except OSError:
                self.tell(Work("drop_scratch", (scratch,)))
                raise
            return size, False
        finally:
            self.release(key)

    def _is_there(self, r: Request, source: bytes, path: bytes) -> Operation:
        """The size of the file at ``path`` if it has the content of ``source``, else None."""
        try:
            attr: Attr = yield from self._walk(r, path, True)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EISDIR)
        _, size, _ = yield Work("seen_outside", (source,))
        if not attr.finished or attr.finished == LOST or attr.size != size:
            return None
        [mine] = yield from self.op_digests(r, (attr.ino,))
        theirs, _ = yield Work("digest_outside", (source,))
        return size if not isinstance(mine, int) and bytes(mine[1]) == bytes(theirs) else None

    def _take_in(self, r: Request, scratch: bytes, path: bytes, mode: int) -> Operation:
        """A scratch file becomes the file at ``path``, which until then stays as it was."""
        self._serial += 1
        temporary = path.rpartition(b"/")[0] + b"/.amfs-load-%d-%x" % (self.node, self._serial)
        number, attr = yield from self.op_open_path(r, temporary, O_WRONLY | O_CREAT | O_EXCL, mode, -1, 0, -1)
        here = self._of(r, number).kind == LOCAL
        failed: OSError | None = None
        try:
            yield Work("adopt", (number, scratch, attr.ino)) if here else Work("pour", (number, scratch))
        except OSError as error:
            failed = error
        yield from self._closed_whole(r, number, temporary, failed)
        try:
            yield from self.op_rename_path(r, temporary, path, 0)
        except OSError:
            with suppress(OSError):
                yield from self.op_unlink_path(r, temporary)
            raise

    def op_dump(self, r: Request, node: int, files: Sequence[Any]) -> Operation:
        """Have ``node`` copy files out: (inode, path outside, mode) each. An errno of each, or (size, was there already)."""
        return (yield Ask(node, "dump", (tuple(files)[:FILES_MAX],)))

    def s_dump(self, peer: int, files: Sequence[Any]) -> Operation:
        return [_one(answer) for answer in (yield All([Ask(self.node, "dump_one", tuple(each)) for each in files]))]

    def s_dump_one(self, peer: int, ino: int, target: bytes, mode: int) -> Operation:
        key = ("dump", bytes(target))
        yield Acquire(key)
        try:
            attr = attr_of((yield from self.at_ino("getattr", ino)))
            if not attr.finished:
                raise failure(errno.EBUSY)
            with suppress(OSError):
                if (yield Work("seen_outside", (bytes(target),)))[1] == attr.size:
                    theirs, _ = yield Work("digest_outside", (bytes(target),))
                    [mine] = yield from self.op_digests(Request(key, 0, 0, self.clock()), (ino,))
                    if not isinstance(mine, int) and bytes(mine[1]) == bytes(theirs):
                        return attr.size, True
            size, _ = yield from self._reading(ino, key, "copy_out", bytes(target), mode)
            if size != attr.size:
                raise failure(errno.EBUSY)  # it was written meanwhile
            return size, False
        finally:
            self.release(key)
