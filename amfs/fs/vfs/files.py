"""Requests of mounts: the operations of POSIX on numbers of directories and inodes (``op_...``). Pure."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from typing import Any

from amfs._native import Meta
from amfs.engine.events import FsReplied, FsRequested
from amfs.fs.attr import (
    LOST,
    META_NOT_MINE,
    META_SET_SIZE,
    ROOT,
    SETATTR_BY_NAME,
    STRIPED,
    WHOLE,
    Attr,
)
from amfs.fs.openflags import O_EXCL, O_TRUNC, O_WRONLY
from amfs.fs.vfs.calls import Acquire, All, Ask, Operation, Sleep, Work, failure
from amfs.fs.vfs.contents import LOCAL, REMOTE, STRIPE_BYTES, STRIPES, Opened, Request
from amfs.fs.vfs.directories import RENAME_EXCHANGE, RENAME_NOREPLACE
from amfs.fs.vfs.room import Room
from amfs.fs.vfs.shard import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, attr_of

_CURSOR_BITS = 48
_NOTHING = Attr()


class Files(Room):
    """Runs the operations of this node's faces."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self.on_event[FsRequested] = self._on_requested

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
            old = Work("invalidate", (tuple(request.inodes), tuple(request.entries), face))
            if isinstance(face, tuple) and face[0] == "client" and (request.inodes or request.entries):
                self._call(old, lambda *_: answer(error, value))  # no kernel waits for this one, so it can wait for the kernels
                return
            if request.inodes or request.entries:
                self.tell(old)
            answer(error, value)
            if request.own:
                self.tell(Work("invalidate", (tuple(request.own), ())))

        self.spawn(operation, answered)

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def find(self, dir: int, name: bytes) -> Operation:
        """The attributes of an entry. ENOENT, ENOTDIR."""
        end = self.now + PATIENCE_S
        without = 0  # an inode that has no record
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
                    if error.errno != errno.ENOENT:
                        raise
                    if ino == without:
                        raise failure(errno.EIO) from None  # it is named still: the record was lost with its node
                    without = ino
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
        """What its writer knows of a file that is being written."""
        end = self.now + PATIENCE_S
        while not attr.finished and attr.writer >= 0 and stat.S_ISREG(attr.mode):
            try:
                size, blocks, atime, mtime = yield Ask(attr.writer, "live", (tuple(attr),))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise failure(errno.EIO) from None
            else:
                changed = max(attr.ctime, min(mtime, self.clock()))  # a time to come was set by hand, and that is on record
                return attr._replace(size=size, blocks=blocks, atime=atime or attr.atime, mtime=mtime or attr.mtime, ctime=changed)
            asked = attr  # just closed, or not begun
            attr = attr_of((yield from self.at_ino("getattr", attr.ino)))
            if attr == asked or self.now >= end:
                break
        return attr

    def s_live(self, peer: int, attr: Any) -> Operation:
        try:
            return (yield Work("live", (tuple(attr),)))
        except OSError as error:
            if error.errno == errno.ENOENT:  # just closed: who asked looks at the record again, which must know of that by then
                key = ("closing", attr_of(attr).ino)
                yield Acquire(key)
                self.release(key)
            raise

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

    def op_create(self, r: Request, dir: int, name: bytes, mode: int, flags: int, pending: int = 0) -> Operation:
        """``pending``: the mark of the blind attempt that makes it."""
        wanted = self._new(r, dir, stat.S_IFREG | stat.S_IMODE(mode), writer=self.node, finished=0, pending=pending)
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
        self._begin_opening(attr.ino, True)
        try:
            if attr.layout == WHOLE:
                yield Work("make", (attr.ino,))
            self._opened(r, attr.ino, True)
        finally:
            self._end_opening(attr.ino, True)
        kind = STRIPES if attr.layout == STRIPED else LOCAL
        return attr, Opened(kind, self.node, attr.stripe, 0, self.known)

    def op_mknod(self, r: Request, dir: int, name: bytes, mode: int, rdev: int, pending: int = 0) -> Operation:
        wanted = self._new(r, dir, mode, rdev=rdev, pending=pending)
        attr = attr_of((yield from self.at_name("create", dir, name, r.now, None, tuple(wanted))))
        self._made(r, dir, name)
        return attr, True

    def op_symlink(self, r: Request, dir: int, name: bytes, target: bytes, pending: int = 0) -> Operation:
        wanted = self._new(r, dir, stat.S_IFLNK | 0o777, size=len(target), pending=pending)
        attr = attr_of((yield from self.at_name("create", dir, name, r.now, target, tuple(wanted))))
        self._made(r, dir, name)
        return attr, True

    def op_mkdir(self, r: Request, dir: int, name: bytes, mode: int) -> Operation:
        wanted = _NOTHING._replace(mode=stat.S_IFDIR | stat.S_IMODE(mode), uid=r.uid, gid=r.gid, finished=1, writer=-1, rank=-1)
        attr = attr_of((yield from self._manager("mkdir", dir, name, tuple(wanted), r.now)))
        self.remember_touch(dir, r.now)
        r.inodes.append(dir)
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
        if left.nlink:
            r.own.append(left.ino)

    def op_rmdir(self, r: Request, dir: int, name: bytes) -> Operation:
        yield from self._manager("rmdir", dir, name, r.now)
        self.remember_touch(dir, r.now)
        r.inodes.append(dir)
        r.entries.append((dir, name))

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
            self.remember_touch(dir, to_dir, r.now)
        else:
            yield from self._rename_file(r, dir, name, to_dir, to_name, flags)
        for at, named in ((dir, name), (to_dir, to_name)):
            r.entries.append((at, named))
            r.inodes.append(at)
        r.inodes.append(source.ino)
        if target is not None:
            r.inodes.append(target.ino)
            if target.nlink > 1 and not stat.S_ISDIR(target.mode):
                r.own.append(target.ino)

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
            if ino != ROOT:
                r.entries.append((self.meta.dir_get(ino)[1], self.meta.dir_name(ino)))  # whether it is sticky kernels learn by its name
            return attr_of((yield from self._manager("dirset", ino, mask, tuple(wanted), r.now))), True
        if mask & META_SET_SIZE:
            yield from self._truncate(r, ino, wanted.size, bool(mask & SETATTR_BY_NAME))
            mask &= ~(META_SET_SIZE | SETATTR_BY_NAME)
            if not mask:
                return (yield from self.op_getattr(r, ino))
        out = attr_of((yield from self.at_ino("setattr", ino, mask, tuple(wanted), r.now)))
        out = yield from self.live_attr(out)
        return out, self._may_cache(out)

    def _truncate(self, r: Request, ino: int, size: int, by_name: bool) -> Operation:
        """A short writing of its own. As on tmpfs ``by_name`` a file without data that has that size already is left as it is."""
        attr = yield from self.inode(ino)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        if by_name and attr.size == size and not attr.blocks and attr.finished != LOST:
            return
        if attr.finished == 1 and attr.size == size and not attr.blocks:
            return  # nothing to cut, and no change: as on tmpfs
        mine = Request(("truncate", ino), r.uid, r.gid, r.now)
        end = self.now + PATIENCE_S
        while True:
            opened = yield from self.op_open(mine, ino, O_WRONLY | (O_TRUNC if not size else 0))
            failed: OSError | None = None
            facts = None
            try:
                facts = yield Work("truncate", (ino, *opened, size))  # of stripes: nothing but the handle that cut them knows their end
            except OSError as error:
                failed = error
            yield from self._close(mine, ino, True, facts)
            if failed is None:
                return
            if failed.errno != errno.ESTALE or opened.kind != REMOTE or self.now >= end:
                raise failed  # else the node that was to let us in has closed it by now

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
