"""What mounts ask: the operations of POSIX on numbers of directories and inodes (``op_...``). Pure.

Where a file's bytes are, and who may write them:

- A file is written through one node at a time, its ``writer``. Who opens it there writes into that node's store; who opens it elsewhere
  meanwhile reads and writes through the writer's node and sees every byte at once. When the last handle closes, the file is finished.
- A finished ``whole`` file lies complete on its holders. Opening it elsewhere fetches a replica; opening it to write makes that node the
  only holder. A finished ``striped`` file is read and written stripe by stripe wherever it is opened.
- So between nodes: who opens after a close sees all of it (close-to-open). A handle that was open before another node began to write
  a finished file may go on seeing the old content.
"""

from __future__ import annotations

import errno
import logging
import stat
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from amfs._native import Meta
from amfs.engine.events import FsHandlesClosed, FsReplied, FsRequested, FsStriped
from amfs.fs.attr import (
    META_NOT_MINE,
    META_SET_CTIME,
    META_SET_LAYOUT,
    META_SET_SIZE,
    STRIPED,
    WHOLE,
    Attr,
)
from amfs.fs.openflags import O_ACCMODE, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.directories import RENAME_EXCHANGE, RENAME_NOREPLACE, Directories
from amfs.fs.vfs.shard import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, attr_of

STRIPE_BYTES = 512 << 10  # default, MemFS §III
LOCAL, REMOTE, STRIPES = 0, 1, 2  # kinds of handles, as csrc/fsio.h
OPEN_S = 10.0  # a file that keeps changing under who wants to open it is EIO after so long
HOSTED_S = 10.0  # a file that is held open for other nodes is closed if none of them has used it for so long
_CURSOR_BITS = 48
_NOTHING = Attr()


class Opened(NamedTuple):
    """How to reach a file's bytes from this node."""

    kind: int
    node: int
    stripe: int
    size: int


class Request:
    """Who asks, and what of this node's kernel caches is old afterwards."""

    __slots__ = ("entries", "face", "gid", "inodes", "now", "uid")

    def __init__(self, face: object, uid: int, gid: int, now: int) -> None:
        self.face = face  # of this node: a mount, or a client
        self.uid = uid
        self.gid = gid
        self.now = now
        self.inodes: list[int] = []
        self.entries: list[tuple[int, bytes]] = []


class Files(Directories):
    """Runs the operations of this node's faces."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        #: inode -> face -> [readers, writers]: handles given out here
        self.users: dict[int, dict[object, list[int]]] = {}
        self.opening: Counter[int] = Counter()  # inode -> openings of it under way here
        self.hosted: dict[int, int] = {}  # inode -> handle that this node holds open because others write through it
        self._striped: dict[int, int] = {}  # files that outgrew this node, and are not closed yet: inode -> stripe
        self.on_event[FsRequested] = self._on_requested
        self.on_event[FsStriped] = self._on_striped
        self.on_event[FsHandlesClosed] = self._on_handles_closed

    def _on_requested(self, event: FsRequested) -> None:
        token = event.token
        face = token[:2] if isinstance(token, tuple) else token

        def answer(error: OSError | None, value: Any) -> None:
            self.out.append(FsReplied(token, (error.errno or errno.EIO) if error is not None else 0, value))

        self.request(face, event.op, event.args, event.uid, event.gid, answer)

    def request(
        self, face: object, op: str, args: tuple[Any, ...], uid: int, gid: int, answer: Callable[[OSError | None, Any], None]
    ) -> None:
        """Run one operation for ``face``."""
        method = getattr(self, f"op_{op}", None)
        if method is None:
            answer(failure(errno.ENOSYS), None)
            return
        request = Request(face, uid, gid, self.clock())
        try:
            operation = method(request, *args)
        except TypeError:  # not the arguments it takes
            answer(failure(errno.EINVAL), None)
            return

        def answered(error: OSError | None, value: Any) -> None:
            if op not in ("closed", "close"):  # these have just put into the cache what is so now
                self._uncache(request.inodes)
            if request.inodes or request.entries:
                self.tell(Work("invalidate", (tuple(request.inodes), tuple(request.entries), face)))
            answer(error, value)

        self.spawn(operation, answered)

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def find(self, dir: int, name: bytes) -> Operation:
        """The attributes of an entry. ENOENT, ENOTDIR."""
        end = self.now + PATIENCE_S
        while True:
            try:
                known = self.meta.dir_find(dir, name)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
            else:
                return (yield from self.dir_attr(known[0]))
            ino, type, attr = yield from self.at_name("lookup", dir, name)
            if attr is not None:
                return (yield from self.live_attr(attr_of(attr)))
            if type != stat.S_IFDIR:
                try:
                    return (yield from self.inode(ino))
                except OSError as error:  # replaced by a rename since we looked: look again
                    if error.errno != errno.ENOENT or self.now >= end:
                        raise
            elif self._is_directory(ino):
                return (yield from self.dir_attr(ino))
            elif self.now >= end:
                raise failure(errno.EIO)
            yield Sleep(PAUSE_FIRST_S)  # it is being made, or removed, and the news of that is on its way

    def inode(self, ino: int) -> Operation:
        """The attributes of an inode, as its writer knows them."""
        try:
            self.meta.dir_get(ino)
        except OSError:
            return (yield from self.live_attr(attr_of((yield from self.at_ino("getattr", ino)))))
        return (yield from self.dir_attr(ino))

    def live_attr(self, attr: Attr) -> Operation:
        if attr.finished or attr.writer < 0 or not stat.S_ISREG(attr.mode):
            return attr
        try:
            size, blocks, atime, mtime = yield Ask(attr.writer, "live", (tuple(attr),))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return attr  # just closed, or not begun
            raise failure(errno.EIO) from None
        times = {"atime": max(atime, attr.atime), "mtime": max(mtime, attr.mtime), "ctime": max(mtime, attr.ctime)}
        return attr._replace(size=size, blocks=blocks, **times)

    def s_live(self, peer: int, attr: Any) -> Operation:
        return (yield Work("live", (tuple(attr),)))

    def op_lookup(self, r: Request, dir: int, name: bytes) -> Operation:
        attr = yield from self.find(dir, name)
        return attr, self._may_cache(attr)

    def op_getattr(self, r: Request, ino: int) -> Operation:
        attr = yield from self.inode(ino)
        return attr, self._may_cache(attr)

    @staticmethod
    def _may_cache(attr: Attr) -> bool:
        return bool(attr.finished) or not stat.S_ISREG(attr.mode)

    def op_readlink(self, r: Request, ino: int) -> Operation:
        return (yield from self.at_ino("readlink", ino))

    def op_list(self, r: Request, dir: int, cursor: int, limit: int) -> Operation:
        """A page for a mount. Attributes only where no other node changes anything: the kernel keeps them, and no shard knows it."""
        page = yield from self.listing(dir, cursor, limit)
        return page if len(self.live) == 1 else [(*entry[:4], None) for entry in page]

    def listing(self, dir: int, cursor: int, limit: int) -> Operation:
        """A page of entries, from the shards one after the other; again from its start if partitions moved meanwhile."""
        self.meta.dir_get(dir)
        end = self.now + PATIENCE_S
        while True:
            try:
                return (yield from self._page(dir, cursor, limit))
            except OSError as error:
                if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT) or self.now >= end:
                    raise failure(errno.EIO) from None
                if error.errno != META_NOT_MINE:
                    raise
            yield Sleep(PAUSE_LAST_S)

    def _page(self, dir: int, cursor: int, limit: int) -> Operation:
        order, version = sorted(self.live), self.version
        place, inside = cursor >> _CURSOR_BITS, cursor & ((1 << _CURSOR_BITS) - 1)
        page: list[Any] = []
        while place < len(order) and len(page) < limit:
            wanted = limit - len(page)
            entries = yield Ask(order[place], "list", (dir, inside, wanted, version))
            for name, ino, type, at, attr in entries:
                page.append((bytes(name), ino, type, place << _CURSOR_BITS | at, attr))
            if len(entries) < min(wanted, 4096):
                place, inside = place + 1, 0
            else:
                inside = entries[-1][3]
        return page

    # ── making and removing ────────────────────────────────────────────────────────────────────────

    def _new(self, r: Request, dir: int, mode: int, **more: int) -> Attr:
        layout, stripe = self.meta.dir_layout(dir)
        if layout not in (WHOLE, STRIPED):
            layout, stripe = WHOLE, 0
        if layout == STRIPED and not stripe:
            stripe = STRIPE_BYTES
        if not stat.S_ISREG(mode):
            layout = stripe = 0
        base = _NOTHING._replace(mode=mode, uid=r.uid, gid=r.gid, layout=layout, stripe=stripe, writer=-1, rank=-1, finished=1)
        return base._replace(**more)

    def _made(self, r: Request, dir: int, name: bytes) -> None:
        self._touch(dir, r.now)
        r.inodes.append(dir)
        r.entries.append((dir, name))

    def op_create(self, r: Request, dir: int, name: bytes, mode: int, flags: int) -> Operation:
        wanted = self._new(r, dir, stat.S_IFREG | stat.S_IMODE(mode), writer=self.node, finished=0)
        try:
            attr, opened = yield from self._create(r, dir, name, wanted)
        except OSError as error:
            if error.errno != errno.EEXIST or flags & O_EXCL:
                raise
            attr = yield from self.find(dir, name)
            if stat.S_ISDIR(attr.mode):
                raise failure(errno.EISDIR) from None
            if stat.S_ISLNK(attr.mode):
                raise failure(errno.ELOOP) from None
            opened = yield from self.op_open(r, attr.ino, flags)
            attr = yield from self.inode(attr.ino)
        return (attr, *opened)

    def _create(self, r: Request, dir: int, name: bytes, wanted: Attr) -> Operation:
        attr = attr_of((yield from self.at_name("create", dir, name, r.now, None, tuple(wanted))))
        self._made(r, dir, name)
        if attr.layout == WHOLE:
            yield Work("make", (attr.ino,))
        self._opened(r, attr.ino, True)
        kind = STRIPES if attr.layout == STRIPED else LOCAL
        return attr, Opened(kind, self.node, attr.stripe, 0)

    def op_mknod(self, r: Request, dir: int, name: bytes, mode: int, rdev: int) -> Operation:
        attr = attr_of((yield from self.at_name("create", dir, name, r.now, None, tuple(self._new(r, dir, mode, rdev=rdev)))))
        self._made(r, dir, name)
        return attr, True

    def op_symlink(self, r: Request, dir: int, name: bytes, target: bytes) -> Operation:
        wanted = self._new(r, dir, stat.S_IFLNK | 0o777, size=len(target))
        attr = attr_of((yield from self.at_name("create", dir, name, r.now, target, tuple(wanted))))
        self._made(r, dir, name)
        return attr, True

    def op_mkdir(self, r: Request, dir: int, name: bytes, mode: int) -> Operation:
        wanted = _NOTHING._replace(mode=stat.S_IFDIR | stat.S_IMODE(mode), uid=r.uid, gid=r.gid, finished=1, writer=-1, rank=-1)
        attr = attr_of((yield from self._manager("mkdir", dir, name, tuple(wanted), r.now)))
        return attr, True

    def _manager(self, op: str, *args: Any) -> Operation:
        try:
            return (yield Ask(self.manager, op, args))
        except OSError as error:
            if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                raise failure(errno.EIO) from None
            raise

    def op_link(self, r: Request, ino: int, dir: int, name: bytes) -> Operation:
        attr = yield from self.inode(ino)
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EPERM)
        yield from self.at_ino("link", ino, 1, r.now)
        try:
            yield from self.at_name("insert", dir, name, ino, stat.S_IFMT(attr.mode), False, 0)
        except OSError:
            yield from self.at_ino("link", ino, -1, r.now)
            raise
        self._made(r, dir, name)
        r.inodes.append(ino)
        return (yield from self.op_getattr(r, ino))

    def op_unlink(self, r: Request, dir: int, name: bytes) -> Operation:
        left = attr_of((yield from self.at_name("unlink", dir, name, r.now)))
        self._uncache((left.ino,))
        self._made(r, dir, name)
        r.inodes.append(left.ino)

    def op_rmdir(self, r: Request, dir: int, name: bytes) -> Operation:
        yield from self._manager("rmdir", dir, name, r.now)

    def op_rename(self, r: Request, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int) -> Operation:
        if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE) or flags == RENAME_NOREPLACE | RENAME_EXCHANGE:
            raise failure(errno.EINVAL)
        source = yield from self.find(dir, name)
        try:
            target = yield from self.find(to_dir, to_name)
        except OSError as error:
            if error.errno != errno.ENOENT or flags & RENAME_EXCHANGE:
                raise
            target = None
        if stat.S_ISDIR(source.mode) or (target is not None and stat.S_ISDIR(target.mode)):
            yield from self._manager("rename", dir, name, to_dir, to_name, flags, r.now)
        else:
            yield from self._rename_file(r, dir, name, to_dir, to_name, flags)
        for at, named in ((dir, name), (to_dir, to_name)):
            r.entries.append((at, named))
            r.inodes.append(at)
        r.inodes.append(source.ino)
        if target is not None:
            r.inodes.append(target.ino)

    def _rename_file(self, r: Request, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int) -> Operation:
        """Between two shards, under locks on both names."""
        names = (dir, name), (to_dir, to_name)
        owner = yield from self.lock_names(*names)
        try:
            ino, type, _ = yield from self.at_name("lookup", dir, name)
            other, other_type = yield from self.entry(to_dir, to_name, bool(flags & RENAME_EXCHANGE))
            if other and flags & RENAME_NOREPLACE:
                raise failure(errno.EEXIST)
            if stat.S_IFDIR in (type, other_type):
                raise failure(errno.EBUSY)  # became one meanwhile
            if other == ino:
                return
            was, _ = yield from self.at_name("insert", to_dir, to_name, ino, type, True, owner)
            if flags & RENAME_EXCHANGE:
                yield from self.at_name("insert", dir, name, was, other_type, True, owner)
                yield from self.at_ino("setattr", was, 0, tuple(_NOTHING), r.now)
            else:
                yield from self.at_name("remove", dir, name, ino, owner)
                if was:
                    self._uncache((was,))
                    yield from self.at_ino("link", was, -1, r.now)
            yield from self.at_ino("setattr", ino, 0, tuple(_NOTHING), r.now)
        finally:
            self.unlock_names(owner, *names)
        self._touch(dir, r.now)
        if to_dir != dir:
            self._touch(to_dir, r.now)

    # ── attributes ─────────────────────────────────────────────────────────────────────────────────

    def op_setattr(self, r: Request, ino: int, mask: int, attr: Any) -> Operation:
        wanted = attr_of(attr)
        r.inodes.append(ino)
        try:
            self.meta.dir_get(ino)
        except OSError:
            pass
        else:
            if mask & META_SET_SIZE:
                raise failure(errno.EISDIR)
            return attr_of((yield from self._manager("dirset", ino, mask, tuple(wanted), r.now))), True
        if mask & META_SET_SIZE:
            yield from self._truncate(r, ino, wanted.size)
            mask &= ~META_SET_SIZE
            if not mask:
                return (yield from self.op_getattr(r, ino))
        out = attr_of((yield from self.at_ino("setattr", ino, mask, tuple(wanted), r.now)))
        out = yield from self.live_attr(out)
        return out, self._may_cache(out)

    def _truncate(self, r: Request, ino: int, size: int) -> Operation:
        """By path: a short writing of its own."""
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        mine = Request(("truncate", ino), r.uid, r.gid, r.now)
        opened = yield from self.op_open(mine, ino, O_WRONLY | (O_TRUNC if not size else 0))
        failed: OSError | None = None
        try:
            yield Work("truncate", (ino, *opened, size))
        except OSError as error:
            failed = error
        yield from self._close(mine, ino, True, None)
        if failed is not None:
            raise failed

    def op_set_xattr(self, r: Request, ino: int, name: bytes, value: bytes, flags: int) -> Operation:
        r.inodes.append(ino)
        if self._is_directory(ino):
            yield from self._manager("dirchange", ("set_xattr", ino, name, value, flags, r.now))
        else:
            yield from self.at_ino("set_xattr", ino, name, value, flags, r.now)

    def op_get_xattr(self, r: Request, ino: int, name: bytes) -> Operation:
        if self._is_directory(ino):
            return self.meta.get_xattr(ino, name)
        return (yield from self.at_ino("get_xattr", ino, name))

    def op_list_xattr(self, r: Request, ino: int) -> Operation:
        names = self.meta.list_xattr(ino) if self._is_directory(ino) else (yield from self.at_ino("list_xattr", ino))
        return b"".join(bytes(name) + b"\0" for name in names)

    def op_remove_xattr(self, r: Request, ino: int, name: bytes) -> Operation:
        r.inodes.append(ino)
        if self._is_directory(ino):
            yield from self._manager("dirchange", ("remove_xattr", ino, name, r.now))
        else:
            yield from self.at_ino("remove_xattr", ino, name, r.now)

    def _is_directory(self, ino: int) -> bool:
        try:
            self.meta.dir_get(ino)
        except OSError:
            return False
        return True

    def op_statfs(self, r: Request) -> Operation:
        """Of all nodes together: block size, blocks, free, available, files, free files."""
        capacity = used = files = 0
        for answer in (yield All([Ask(node, "usage") for node in self.live])):
            if not isinstance(answer, OSError):
                capacity, used, files = capacity + answer[1], used + answer[0], files + answer[2]
        free = max(capacity - used, 0) >> 12
        return 4096, capacity >> 12, free, free, files + (free << 2), free << 2

    def s_usage(self, peer: int) -> Operation:
        used, limit, _ = yield Work("usage")
        return used, limit, self.meta.counts()["inodes"]

    # ── content ────────────────────────────────────────────────────────────────────────────────────

    def op_open(self, r: Request, ino: int, flags: int) -> Operation:
        writing = bool(flags & O_ACCMODE) or bool(flags & O_TRUNC)
        self.opening[ino] += 1
        try:
            opened = yield from self._open(ino, writing, bool(flags & O_TRUNC))
            self._opened(r, ino, writing)
        finally:
            self.opening[ino] -= 1
            self._forget_if_unused(ino)
        return opened

    def op_ensure(self, r: Request, ino: int, writing: bool) -> Operation:
        return (yield from self.op_open(r, ino, O_RDWR if writing else O_RDONLY))

    def _open(self, ino: int, writing: bool, truncate: bool) -> Operation:
        fetched: Attr | None = None  # the record of the content that lies here since, for a writer
        end, pause = self.now + OPEN_S, PAUSE_FIRST_S
        while True:
            opened: Opened | None = None  # stays so if the file changed under our hands: then all of it again
            first_look = writing and not truncate and fetched is None
            answer, answered = yield from self.at_ino("open", ino, writing and not first_look)
            attr, holders = attr_of(answer), [int(node) for node in answered]
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.EINVAL)
            # Opened to write, the record names us as writer whether or not we were: what counts is who it was at the first look.
            was = attr if not writing or first_look else fetched
            mine = self.node in holders or (was is not None and was.writer == self.node and not was.finished)
            if first_look:
                elsewhere = attr.writer < 0 and attr.layout == WHOLE and attr.size and holders and not mine
                if not elsewhere or (yield from self._bring(attr, holders, True)):
                    fetched = attr
                    continue
            elif attr.writer not in (-1, self.node):
                return Opened(REMOTE, attr.writer, attr.stripe, attr.size)
            elif attr.layout == STRIPED:
                opened = Opened(STRIPES, self.node, attr.stripe, attr.size)
            elif not attr.size or truncate:
                yield Work("make", (ino,))
                if not writing and attr.finished and not mine:
                    try:
                        yield from self.at_ino("hold", ino)  # so that the empty part goes when the file does
                    except OSError as error:
                        self.tell(Work("drop", ((ino,),)))
                        if error.errno != errno.EAGAIN:
                            raise
                        continue
                opened = Opened(LOCAL, self.node, 0, attr.size)
            elif mine or (fetched is not None and (fetched.size, fetched.mtime) == (attr.size, attr.mtime)):
                opened = Opened(LOCAL, self.node, 0, attr.size)
                if not writing and attr.finished and self.meta.owner(self.meta.ino_partition(ino)) != self.node:
                    self.meta.cache(tuple(attr), True)  # so that the mount opens it by itself the next time
            elif not holders:
                raise failure(errno.EIO)  # they are all gone
            elif writing:
                # Another has written between our look and our opening. We are the writer now, and get its content.
                if (yield from self._bring(attr, holders, True)):
                    fetched = attr
                    continue
            elif (yield from self._bring(attr, holders, False)):
                return Opened(LOCAL, self.node, 0, attr.size)
            if opened is None:
                if self.now >= end:
                    raise failure(errno.EIO)
                yield Sleep(pause)
                pause = min(2 * pause, PAUSE_LAST_S)
                continue
            if truncate and (attr.size or not attr.finished):
                yield Work("truncate", (ino, *opened, 0))
                opened = opened._replace(size=0)
            return opened

    def _bring(self, attr: Attr, holders: list[int], writing: bool) -> Operation:
        """The whole content to this node. False: it changed meanwhile, or was laid in stripes because this node has no room: look again."""
        ino = attr.ino
        for node in holders:
            if node not in self.live:
                continue
            try:
                yield Work("fetch", (ino, node, attr.size, attr.atime, attr.mtime))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    yield Ask(node, "restripe", (ino, STRIPE_BYTES))
                    return False
                continue
            if writing:
                return True
            try:
                now = yield from self.at_ino("hold", ino)
            except OSError as error:
                self.tell(Work("drop", ((ino,),)))
                if error.errno == errno.EAGAIN:
                    return False
                raise
            if self.meta.owner(self.meta.ino_partition(ino)) != self.node:
                self.meta.cache(tuple(now), True)
            return True
        if not self.live.intersection(holders):
            raise failure(errno.EIO)
        return False

    def s_restripe(self, peer: int, ino: int, stripe: int) -> Operation:
        """Lay a whole file of this node in stripes."""
        yield Acquire(("restripe", ino))
        try:
            attr = attr_of((yield from self.at_ino("getattr", ino)))
            if attr.layout == STRIPED or attr.writer >= 0:
                return
            yield Work("restripe", (ino, stripe))
            others = yield from self.at_ino("holders", ino)
            striped = attr._replace(layout=STRIPED, stripe=stripe)
            yield from self.at_ino("setattr", ino, META_SET_LAYOUT | META_SET_CTIME, tuple(striped), self.clock())
            for node in others:
                if node in self.live:
                    self.tell(Ask(node, "drop_whole", (ino,)))
        finally:
            self.release(("restripe", ino))

    def s_drop_whole(self, peer: int, ino: int) -> None:
        self.tell(Work("drop_whole", (ino,)))

    def s_open(self, peer: int, ino: int, writing: bool) -> Operation:
        if writing:
            attr = attr_of(self.meta.getattr(ino, self.node))
            if attr.rank not in (-1, peer) and attr.rank in self.live and attr.writer < 0 and not attr.size:
                yield Ask(attr.rank, "host", (ino,))  # pinned by set_rank: all write through that node
        out, holders = yield from super().s_open(peer, ino, writing)
        if out[9] not in (-1, peer) and out[9] in self.live:
            yield Ask(out[9], "stale", ((ino,), ()))  # what its kernel keeps is not all there is any more
        return out, holders

    def s_host(self, peer: int, ino: int) -> Operation:
        """Open a file here for writing, so that others write through this node; closed when the last of them has."""
        if ino in self.hosted:
            return
        answer, _ = yield from self.at_ino("open", ino, True)
        attr = attr_of(answer)
        if attr.writer != self.node:
            return
        yield Work("make", (ino,))
        kind = STRIPES if attr.layout == STRIPED else LOCAL
        self.hosted[ino] = yield Work("handle", (ino, kind, self.node, attr.stripe, attr.size, True, True))
        self.spawn(self._watch_hosted(ino))

    def _watch_hosted(self, ino: int) -> Operation:
        """Who asked for it may have died before it opened anything."""
        while ino in self.hosted:
            yield Sleep(HOSTED_S)
            if ino in self.hosted and not (yield Work("handles_of_others", (ino,))) and ino in self.hosted:
                yield from self._unhost(ino, self.hosted.pop(ino))

    def _on_handles_closed(self, event: FsHandlesClosed) -> None:
        self.tell(Work("invalidate", ((event.ino,), ())))  # others have written here; this node's kernel has not seen that
        handle = self.hosted.pop(event.ino, None)
        if handle is not None:
            self.spawn(self._unhost(event.ino, handle))

    def _unhost(self, ino: int, handle: int) -> Operation:
        facts = yield Work("close", (handle,))
        yield from self._closed(ino, True, facts)

    # ── handles of this node ───────────────────────────────────────────────────────────────────────

    def _opened(self, r: Request, ino: int, writing: bool) -> None:
        self.users.setdefault(ino, {}).setdefault(r.face, [0, 0])[writing] += 1

    def op_closed(self, r: Request, ino: int, wrote: bool, attr: Any) -> Operation:
        """A mount has closed its last handle (``wrote``: its last writing one)."""
        facts = (attr[11], attr[12], attr[13], attr[14]) if attr is not None else None
        faces = self.users.get(ino, {})
        counts = faces.get(r.face)
        if counts is not None:
            counts[True] = 0
            if not wrote:  # else handles for reading may be left, of which only the mount knows; it says when they are gone
                del faces[r.face]
        if wrote:
            r.inodes.append(ino)
        yield from self._closed(ino, wrote, facts)

    def _close(self, r: Request, ino: int, writing: bool, facts: Any) -> Operation:
        """One handle of a client is closed."""
        faces = self.users.get(ino, {})
        counts = faces.get(r.face)
        if counts is not None:
            counts[writing] -= 1
            if counts == [0, 0]:
                del faces[r.face]
        yield from self._closed(ino, writing, facts)

    def _closed(self, ino: int, wrote: bool, facts: Any) -> Operation:
        """Tell the shard, one closing of a file after the other: what was written, and whether anybody here still uses it."""
        key = ("closing", ino)
        yield Acquire(key)
        try:
            last = wrote and ino not in self.hosted and not any(counts[True] for counts in self.users.get(ino, {}).values())
            if last and facts is None:
                facts = yield from self._written(ino)
            used = bool(self.opening[ino] or self.users.get(ino))
            if not self.opening[ino]:
                del self.opening[ino]
            if not used:
                self.users.pop(ino, None)
            if last or not used:
                yield from self._tell_closed(ino, facts if last else None, used)
        finally:
            self.release(key)

    def _tell_closed(self, ino: int, facts: Any, used: bool) -> Operation:
        stripe = self._striped.pop(ino, 0) if facts is not None else 0
        try:
            answer = yield from self.at_ino("closed", ino, facts, stripe, used)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return
        if answer is not None:
            out = attr_of(answer)
            if out.layout == WHOLE and out.nlink and self.meta.owner(self.meta.ino_partition(ino)) != self.node:
                self.meta.cache(tuple(out), True)

    def _written(self, ino: int) -> Operation:
        """(size, blocks, atime, mtime) of what was written here, of which the face has said nothing."""
        attr = attr_of((yield from self.at_ino("getattr", ino)))
        try:
            return (yield Work("live", (tuple(attr),)))
        except OSError as error:
            self.log(f"inode {ino:#x}: what was written is not to be found: {error}", logging.ERROR)
            return attr.size, attr.blocks, attr.atime, attr.mtime

    def _forget_if_unused(self, ino: int) -> None:
        """Tell the shard when no face of this node has it open, nor is about to."""
        if not self.opening[ino]:
            del self.opening[ino]
            if not self.users.get(ino):
                self.users.pop(ino, None)
                self.spawn(self._unused(ino))

    def _unused(self, ino: int) -> Operation:
        try:
            yield from self.at_ino("unused", ino)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def _on_striped(self, event: FsStriped) -> None:
        self._striped[event.ino] = event.stripe

    def op_touched(self, r: Request, dir: int) -> Operation:
        self._touch(dir, r.now)
        r.inodes.append(dir)
        yield from ()
