"""The operations of POSIX on numbers of directories and inodes, as a kernel asks for them. Pure."""

from __future__ import annotations

import errno
import os
import stat

from amfs._native import Meta
from amfs.fs.openflags import O_APPEND, O_EXCL, O_TRUNC, O_WRONLY
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, together, work
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.opening import STRIPE_BYTES
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.shard import LISTED_MAX
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import (
    LOST,
    META_NOT_MINE,
    META_SET_SIZE,
    REMOTE,
    ROOT,
    SETATTR_BY_NAME,
    STRIPED,
    WHOLE,
    Attr,
    Facts,
    Listed,
    Names,
    Opened,
    maker,
)

_CURSOR_BITS = 48
_SIDE_BY_SIDE_MAX = 8  # shards that are asked at the same time for one page
_NOTHING = Attr()


class RecordLost(OSError):
    """There is such a name, and its record was lost with its nodes."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, os.strerror(errno.EIO))


class Namespace:
    """Names, and the attributes of what they stand for."""

    def __init__(
        self, calls: Calls, meta: Meta, members: Members, owners: Owners, caches: Caches, directories: Directories, files: OpenFiles
    ) -> None:
        self._calls = calls
        self._meta = meta
        self._members = members
        self._owners = owners
        self._caches = caches
        self._directories = directories
        self._files = files
        calls.serve(p.ReportUsage.by(self._report_usage))

    # ── looking ────────────────────────────────────────────────────────────────────────────────────

    def find(self, dir: int, name: bytes) -> Operation[Attr]:
        """The attributes of an entry. ENOENT, ENOTDIR."""
        end = self._calls.now + PATIENCE_S
        without = 0  # an inode that has no record
        while True:
            try:
                known = self._meta.dir_find(dir, name)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
            else:
                return (yield from self._directories.attr(known[0]))
            ino, type, attr = yield from self._owners.ask(p.Lookup(dir, name))
            if attr is not None:
                return (yield from self.live_attr(attr))
            if type != stat.S_IFDIR:
                try:
                    return (yield from self.inode(ino))
                except OSError as error:  # replaced by a rename since we looked: look again
                    if error.errno != errno.ENOENT:
                        raise
                    if ino == without:
                        raise RecordLost from None  # it is named still
                    without = ino
            elif self._directories.is_directory(ino):
                return (yield from self._directories.attr(ino))
            elif self._calls.now >= end:
                raise failure(errno.EIO)
            yield Sleep(PAUSE_FIRST_S)  # it is being made, or removed, and the news of that is on its way

    def inode(self, ino: int) -> Operation[Attr]:
        """The attributes of an inode, as its writer knows them."""
        if self._directories.is_directory(ino):
            return (yield from self._directories.attr(ino))
        attr = yield from self._owners.ask(p.Getattr(ino))
        return (yield from self.live_attr(attr))

    def live_attr(self, attr: Attr) -> Operation[Attr]:
        """The attributes of a file that is being written, as its writer knows them."""
        end = self._calls.now + PATIENCE_S
        while not attr.finished and attr.writer >= 0 and stat.S_ISREG(attr.mode):
            try:
                size, blocks, atime, mtime = yield from ask(attr.writer, p.Live(attr))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise failure(errno.EIO) from None
            else:
                changed = max(attr.ctime, min(mtime, self._calls.wall))  # a time to come was set by hand, and that is on record
                return attr._replace(size=size, blocks=blocks, atime=atime or attr.atime, mtime=mtime or attr.mtime, ctime=changed)
            asked = attr  # just closed, or not begun
            attr = yield from self._owners.ask(p.Getattr(attr.ino))
            if attr == asked or self._calls.now >= end:
                break
        return attr

    def lookup(self, dir: int, name: bytes) -> Operation[q.Looked]:
        return _looked((yield from self.find(dir, name)))

    def getattr(self, ino: int) -> Operation[q.Looked]:
        return _looked((yield from self.inode(ino)))

    def readlink(self, ino: int) -> Operation[bytes]:
        return (yield from self._owners.ask(p.Readlink(ino)))

    # ── listing ────────────────────────────────────────────────────────────────────────────────────

    def page(self, dir: int, cursor: int, limit: int) -> Operation[list[Listed]]:
        """A page for a mount. Attributes only where no other node changes anything: the kernel keeps them, and no shard knows it."""
        page, _ = yield from self.listing(dir, cursor, limit)
        return page if len(self._members.live) == 1 else [entry._replace(attr=None) for entry in page]

    def listing(self, dir: int, cursor: int, limit: int) -> Operation[Names]:
        """A page of entries, in the order of the shards; again from its start if partitions moved meanwhile."""
        self._meta.dir_get(dir)
        end = self._calls.now + PATIENCE_S
        while True:
            try:
                return (yield from self._gather(dir, cursor, limit))
            except OSError as error:
                # Of a page that goes on: its cursor counts the shards before a node of them died.
                if error.errno == errno.ETIMEDOUT or (error.errno == errno.EHOSTDOWN and cursor) or self._calls.now >= end:
                    raise failure(errno.EIO) from None
                if error.errno not in (META_NOT_MINE, errno.EHOSTDOWN):
                    raise
            yield Sleep(PAUSE_LAST_S)

    def _gather(self, dir: int, cursor: int, limit: int) -> Operation[Names]:
        order, version = self._meta.shards(), self._members.version
        place, inside = cursor >> _CURSOR_BITS, cursor & ((1 << _CURSOR_BITS) - 1)
        page: list[Listed] = []
        lost = False
        side_by_side = 1  # the names in the first shards are often all that fit, or all that there are
        while place < len(order) and len(page) < limit:
            wanted = min(limit - len(page), LISTED_MAX)
            asked = order[place : place + side_by_side]
            answers = yield from together([
                ask(node, p.List(dir, inside if node == asked[0] else 0, wanted, version)) for node in asked
            ])  # fmt: skip
            for answer in answers:
                if isinstance(answer, OSError):
                    raise answer
                entries = answer.entries
                lost |= answer.lost
                taken = entries[: limit - len(page)]
                page += [entry._replace(cursor=place << _CURSOR_BITS | entry.cursor) for entry in taken]
                if len(taken) == wanted or len(taken) < len(entries):  # there may be more; those behind are asked again
                    inside = taken[-1].cursor if taken else 0
                    break
                place, inside = place + 1, 0
            side_by_side = min(2 * side_by_side, _SIDE_BY_SIDE_MAX)
        return Names(page, lost)

    # ── making ─────────────────────────────────────────────────────────────────────────────────────

    def new(self, caller: Caller, dir: int, mode: int) -> Attr:
        """The attributes of what is about to be made in a directory."""
        layout, stripe = self._meta.dir_layout(dir)
        if layout not in (WHOLE, STRIPED) or not stat.S_ISREG(mode):
            layout, stripe = WHOLE, 0
        if layout == STRIPED and not stripe:
            stripe = STRIPE_BYTES
        return Attr(mode=mode, uid=caller.uid, gid=caller.gid, layout=layout, stripe=stripe, finished=1)

    def new_file(self, caller: Caller, dir: int, mode: int) -> Attr:
        """Of a file that this node is about to write."""
        return self.new(caller, dir, stat.S_IFREG | stat.S_IMODE(mode))._replace(writer=self._members.node, finished=0)

    def make(
        self, caller: Caller, dir: int, name: bytes, wanted: Attr, target: bytes | None = None, although_lost: bool = False
    ) -> Operation[Attr]:
        """Anything but a directory. EEXIST. EIO: the name may have been lost with nodes, unless it is made ``although_lost``."""
        attr = yield from self._owners.ask(p.Create(dir, name, caller.now, target, wanted, although_lost))
        self.changed(caller, dir, name)
        return attr

    def changed(self, caller: Caller, dir: int, name: bytes) -> None:
        """An entry."""
        self._directories.touch(dir, caller.now)
        caller.changed((dir, name))

    def create(self, caller: Caller, dir: int, name: bytes, mode: int, flags: int, pending: int = 0) -> Operation[q.Created]:
        if pending:
            yield from self._take_over(caller, dir, name, flags, pending)
        wanted = self.new_file(caller, dir, mode)._replace(pending=pending)
        try:
            attr, opened = yield from self.create_new(caller, dir, name, wanted)
        except OSError as error:
            if error.errno != errno.EEXIST or flags & O_EXCL:
                raise
            attr = yield from self.find(dir, name)
            if stat.S_ISDIR(attr.mode):
                raise failure(errno.EISDIR) from None
            if stat.S_ISLNK(attr.mode):
                raise failure(errno.ELOOP) from None
            opened = yield from self._files.open(caller.endpoint, attr.ino, flags)
            attr = yield from self.inode(attr.ino)
        return q.Created(attr, *opened)

    def create_new(
        self, caller: Caller, dir: int, name: bytes, wanted: Attr, although_lost: bool = False, part: bool = True
    ) -> Operation[tuple[Attr, Opened]]:
        """A new file, opened to be written. EEXIST, and EIO as of ``make``. ``part``: as ``OpenFiles.create`` has it."""
        yield from self._files.await_stay()
        try:
            with self._files.making():
                attr = yield from self.make(caller, dir, name, wanted, although_lost=although_lost)
                return attr, (yield from self._files.create(caller.endpoint, attr, part))
        except OSError as error:
            if error.errno == errno.EIO:
                self._calls.spawn(self.perhaps_made(dir, name))
            raise

    def perhaps_made(self, dir: int, name: bytes) -> Operation[None]:
        """Nobody knows whether a file was made that was to be written here. If it was, its record says that this node writes it."""
        ino = (yield from self._owners.ask(p.Lookup(dir, name))).ino
        yield from self._files.disown(ino)

    def mknod(self, caller: Caller, dir: int, name: bytes, mode: int, rdev: int, pending: int = 0) -> Operation[q.Looked]:
        wanted = self.new(caller, dir, mode)._replace(rdev=rdev, pending=pending)
        return q.Looked((yield from self.make(caller, dir, name, wanted)), True)

    def symlink(self, caller: Caller, dir: int, name: bytes, target: bytes, pending: int = 0) -> Operation[q.Looked]:
        wanted = self.new(caller, dir, stat.S_IFLNK | 0o777)._replace(size=len(target), pending=pending)
        return q.Looked((yield from self.make(caller, dir, name, wanted, target)), True)

    def mkdir(self, caller: Caller, dir: int, name: bytes, mode: int) -> Operation[q.Looked]:
        wanted = _NOTHING._replace(mode=stat.S_IFDIR | stat.S_IMODE(mode), uid=caller.uid, gid=caller.gid, finished=1)
        attr = yield from self._make_directory(p.Mkdir(dir, name, wanted, caller.now))
        self._directories.remember_touch(caller.now, dir)
        caller.inodes.append(dir)
        return q.Looked(attr, True)

    def _make_directory(self, call: p.Mkdir) -> Operation[Attr]:
        """The manager that was asked, or a node that it told, may have left or died: it is made everywhere then or, as the manager or its
        successor sees to, nowhere. So the manager is asked again, and a directory there is ours if it has the time that we gave it."""
        again, end = False, self._calls.now + PATIENCE_S
        while True:
            try:
                return (yield from ask(self._members.manager, call))
            except OSError as error:
                if error.errno == errno.EHOSTDOWN and self._calls.now < end:
                    again = True
                    yield Sleep(PAUSE_LAST_S)
                    continue
                if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                    raise failure(errno.EIO) from None
                if error.errno != errno.EEXIST or not again:
                    raise
                try:
                    found = Attr(*self._meta.dir_find(call.dir, call.name))
                except OSError:  # its name was reserved by that manager, and its shard has not heard that nothing came of it
                    if self._calls.now >= end or not (yield from self._is_reserved(call.dir, call.name)):
                        raise error from None
                else:
                    if (found.atime, found.uid, found.gid) != (call.now, call.attr.uid, call.attr.gid):
                        raise
                    return found
            yield Sleep(PAUSE_LAST_S)

    def _is_reserved(self, dir: int, name: bytes) -> Operation[bool]:
        """Is it the name of a directory? No: a file's, or nobody's."""
        try:
            return (yield from self._owners.ask(p.Lookup(dir, name))).type == stat.S_IFDIR
        except OSError as error:
            return error.errno == errno.ENOENT

    def link(self, caller: Caller, ino: int, dir: int, name: bytes) -> Operation[q.Looked]:
        attr = yield from self.inode(ino)
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EPERM)
        yield from self._owners.ask(p.Link(ino, 1, caller.now))
        try:
            yield from self._owners.ask(p.Insert(dir, name, ino, stat.S_IFMT(attr.mode), False, 0))
        except OSError:
            yield from self._owners.ask(p.Link(ino, -1, caller.now))
            raise
        self.changed(caller, dir, name)
        caller.inodes.append(ino)
        return (yield from self.getattr(ino))

    # ── removing ───────────────────────────────────────────────────────────────────────────────────

    def unlink(self, caller: Caller, dir: int, name: bytes) -> Operation[None]:
        left = yield from self._owners.ask(p.Unlink(dir, name, caller.now))
        self._caches.uncache((left.ino,))
        self.changed(caller, dir, name)
        caller.inodes.append(left.ino)
        if left.nlink:
            caller.own.append(left.ino)

    def remove_name(self, caller: Caller, dir: int, name: bytes, ino: int) -> Operation[None]:
        """Unlink it if it still names that inode."""
        yield from self._owners.ask(p.Remove(dir, name, ino, 0))
        self.changed(caller, dir, name)
        caller.inodes.append(ino)
        yield from self._owners.ask(p.Link(ino, -1, caller.now))

    def rmdir(self, caller: Caller, dir: int, name: bytes) -> Operation[None]:
        tree = self._directories
        ino = tree.number_of(dir, name)
        yield from tree.ask_manager(p.Rmdir(dir, name, caller.now), lambda: ino != tree.number_of(dir, name) if ino else None)
        tree.remember_touch(caller.now, dir)
        caller.changed((dir, name))

    # ── what an attempt at a blind task left, and another makes ────────────────────────────────────

    def _take_over(self, caller: Caller, dir: int, name: bytes, flags: int, pending: int) -> Operation[None]:
        """If the name is of a file that another attempt has made and not published, the file belongs to this one from now on. But to append
        to it is to share it with others who do, and so it is everybody's. Of what is to be new (O_EXCL) only an attempt that died with its
        node loses its file."""
        try:
            attr = yield from self.find(dir, name)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        if attr.pending in (0, pending):
            return
        alive = maker(attr.pending) in self._members.live
        if flags & O_EXCL:
            if not alive:
                yield from self.remove_name(caller, dir, name, attr.ino)
            return
        shares = alive and flags & O_APPEND and not flags & O_TRUNC
        try:
            yield from self._owners.ask(p.SetPending(attr.ino, attr.pending, 0 if shares else pending))
        except OSError as error:
            if error.errno != errno.EAGAIN:  # else it was published meanwhile
                raise
        self._caches.uncache((attr.ino,))

    # ── attributes ─────────────────────────────────────────────────────────────────────────────────

    def setattr(self, caller: Caller, ino: int, mask: int, wanted: Attr) -> Operation[q.Looked]:
        caller.inodes.append(ino)
        if self._directories.is_directory(ino):
            if mask & META_SET_SIZE:
                raise failure(errno.EISDIR)
            if ino != ROOT:
                # Whether it is sticky kernels learn by its name.
                caller.entries.append((self._meta.dir_get(ino)[1], self._meta.dir_name(ino)))
            change = p.SetDirectoryAttr(ino, mask, wanted, caller.now)
            return q.Looked((yield from self._owners.ask_manager(p.ChangeDirectory(change), twice=True)), True)
        if mask & META_SET_SIZE:
            yield from self._truncate(caller, ino, wanted.size, bool(mask & SETATTR_BY_NAME))
            mask &= ~(META_SET_SIZE | SETATTR_BY_NAME)
            if not mask:
                return (yield from self.getattr(ino))
        out = yield from self._owners.ask(p.Setattr(ino, mask, wanted, caller.now))
        return _looked((yield from self.live_attr(out)))

    def _truncate(self, caller: Caller, ino: int, size: int, by_name: bool) -> Operation[None]:
        """A short writing of its own. As on tmpfs ``by_name`` a file without data that has that size already is left as it is."""
        attr = yield from self.inode(ino)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EINVAL)
        if by_name and attr.size == size and not attr.blocks and attr.finished != LOST:
            return
        if attr.finished == 1 and attr.size == size and not attr.blocks:
            return  # nothing to cut, and no change: as on tmpfs
        endpoint = "truncate", ino
        end = self._calls.now + PATIENCE_S
        while True:
            opened = yield from self._files.open(endpoint, ino, O_WRONLY | (O_TRUNC if not size else 0))
            failed: OSError | None = None
            facts: Facts | None = None
            try:
                facts = yield from work(w.Truncate(ino, opened, size))  # of stripes: only the handle that cut them knows their end
            except OSError as error:
                failed = error
            yield from self._files.close(endpoint, ino, True, facts)
            if failed is None:
                return
            if failed.errno != errno.ESTALE or opened.kind != REMOTE or self._calls.now >= end:
                raise failed  # else the node that was to let us in has closed it by now

    # ── mounts that have done something themselves ─────────────────────────────────────────────────

    def closed(self, caller: Caller, ino: int, wrote: bool, last: bool, attr: Attr | None) -> Operation[None]:
        """The mounts of this node have closed their last writing handle (``wrote``), their last handle (``last``), or one that was both."""
        if wrote:
            caller.inodes.append(ino)
        facts = Facts(attr.size, attr.blocks, attr.atime, attr.mtime) if attr is not None else None
        yield from self._files.close_all(caller.endpoint, ino, wrote, last, facts)

    def unnamed(self, caller: Caller, dir: int, name: bytes, ino: int) -> Operation[None]:
        """A name of this file has gone already."""
        self._caches.uncache((ino,))
        self.changed(caller, dir, name)
        caller.inodes.append(ino)
        yield from self._calls.settled()  # nobody is to inherit a name that the record does not count
        try:
            left = yield from self._owners.ask(p.Link(ino, -1, caller.now))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return  # its record was lost with a node
        if left.nlink:
            caller.own.append(ino)

    def touched(self, caller: Caller, dir: int) -> None:
        if now := self._meta.dir_touched(dir):  # 0: its times were set since
            self._directories.touch(dir, now, refused=True)
        caller.inodes.append(dir)

    # ── room ───────────────────────────────────────────────────────────────────────────────────────

    def statfs(self) -> Operation[tuple[int, int, int, int, int, int]]:
        """Of all nodes together: block size, blocks, free, available, files, free files."""
        usages = [usage for _, usage in (yield from self.usages())]
        capacity, used, files = (sum(each) for each in ([u.limit for u in usages], [u.used for u in usages], [u.files for u in usages]))
        free = max(capacity - used, 0) >> 12
        return 4096, capacity >> 12, free, free, files + (free << 2), free << 2

    def usages(self) -> Operation[list[tuple[int, p.Usage]]]:
        """Of each node that answers."""
        nodes = sorted(self._members.live)
        answers = yield from together([ask(node, p.ReportUsage()) for node in nodes])
        return [(node, answer) for node, answer in zip(nodes, answers, strict=True) if not isinstance(answer, OSError)]

    def _report_usage(self, peer: int, call: p.ReportUsage) -> Operation[p.Usage]:
        usage = yield from work(w.ReportUsage())
        return p.Usage(usage.used, usage.limit, self._meta.counts()["inodes"])


def _looked(attr: Attr) -> q.Looked:
    return q.Looked(attr, bool(attr.finished) or not stat.S_ISREG(attr.mode))
