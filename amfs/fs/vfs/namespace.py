"""The operations of POSIX on numbers of directories and inodes, as a kernel asks for them. Pure."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from amfs._native import Meta
from amfs.fs.openflags import O_APPEND, O_EXCL, O_TRUNC, O_WRONLY
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import PATIENCE_S, PAUSE_FIRST_S, PAUSE_LAST_S, Calls, Operation, Sleep, ask, failure, number_of, together, work
from amfs.fs.vfs.directories import RENAME_EXCHANGE, RENAME_NOREPLACE, Directories
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
    META_BUSY,
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
        calls.serve(p.ReportUsage.by(self._report_usage), p.RenameFile.by(self._rename_file))

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
        """What its writer knows of a file that is being written."""
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
        side_by_side = 1  # what lies in the first shards is often all that fits, or all that there is
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
        self._changed(caller, dir, name)
        return attr

    def _changed(self, caller: Caller, dir: int, name: bytes) -> None:
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
        with self._files.making():
            attr = yield from self.make(caller, dir, name, wanted, although_lost=although_lost)
            return attr, (yield from self._files.create(caller.endpoint, attr, part))

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
        successor sees to, nowhere. So the manager is asked again, and what is there is ours if it has the time that we gave it."""
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
        self._changed(caller, dir, name)
        caller.inodes.append(ino)
        return (yield from self.getattr(ino))

    # ── removing ───────────────────────────────────────────────────────────────────────────────────

    def unlink(self, caller: Caller, dir: int, name: bytes) -> Operation[None]:
        left = yield from self._owners.ask(p.Unlink(dir, name, caller.now))
        self._caches.uncache((left.ino,))
        self._changed(caller, dir, name)
        caller.inodes.append(left.ino)
        if left.nlink:
            caller.own.append(left.ino)

    def remove_name(self, caller: Caller, dir: int, name: bytes, ino: int) -> Operation[None]:
        """Unlink it if it still names that inode."""
        yield from self._owners.ask(p.Remove(dir, name, ino, 0))
        self._changed(caller, dir, name)
        caller.inodes.append(ino)
        yield from self._owners.ask(p.Link(ino, -1, caller.now))

    def rmdir(self, caller: Caller, dir: int, name: bytes) -> Operation[None]:
        ino = self._directory(dir, name)
        yield from self._change_tree(p.Rmdir(dir, name, caller.now), lambda: ino != self._directory(dir, name) if ino else None)
        self._directories.remember_touch(caller.now, dir)
        caller.changed((dir, name))

    def _change_tree(self, call: p.PeerCall[None], is_done: Callable[[], bool | None]) -> Operation[None]:
        """The next manager is asked again when the one that was asked left or died, unless ``is_done`` says that it had done it (None: that
        cannot be seen; then nobody is asked again)."""
        again, end = False, self._calls.now + PATIENCE_S
        while not (again and is_done()):
            try:
                return (yield from ask(self._members.manager, call))
            except OSError as error:
                if error.errno == errno.EHOSTDOWN and self._calls.now < end and is_done() is not None:
                    again = True
                elif error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT):
                    raise failure(errno.EIO) from None
                elif error.errno not in (errno.ENOENT, errno.EBUSY) or not again or self._calls.now >= end:
                    raise  # ENOENT: done, and this node is about to hear of it. EBUSY: half done, and about to be taken back
            yield Sleep(PAUSE_LAST_S)

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

    # ── renaming ───────────────────────────────────────────────────────────────────────────────────

    def rename(self, caller: Caller, dir: int, name: bytes, to_dir: int, to_name: bytes, flags: int) -> Operation[None]:
        if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE) or flags == RENAME_NOREPLACE | RENAME_EXCHANGE:
            raise failure(errno.EINVAL)
        names = (dir, name), (to_dir, to_name)
        if any(self._directory(*one) for one in names):
            found = yield from together([self._owners.ask(p.Lookup(*one)) for one in names])
            ino = self._directory(dir, name) if not flags & RENAME_EXCHANGE else 0  # to exchange twice is to do nothing
            call = p.Rename(dir, name, to_dir, to_name, flags, caller.now)
            yield from self._change_tree(call, lambda: ino == self._directory(to_dir, to_name) if ino else None)
            self._directories.remember_touch(caller.now, dir, to_dir)
            caller.inodes += [one.ino for one in found if not isinstance(one, OSError)]
        else:
            move = p.RenameFile(dir, name, to_dir, to_name, flags, caller.now)
            ino, replaced = yield from self._owners.ask(move)
            caller.inodes += [ino, replaced] if replaced else [ino]
            if replaced:
                self._caches.uncache((replaced,))
            self._directories.touch(dir, caller.now)
            if to_dir != dir:
                self._directories.touch(to_dir, caller.now)
        caller.changed(*names)

    def _directory(self, dir: int, name: bytes) -> int:
        """The number of the directory of this name; 0: this node knows none. ENOTDIR, ENAMETOOLONG."""
        try:
            return self._meta.dir_find(dir, name)[0]
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return 0

    def _rename_file(self, peer: int, call: p.RenameFile) -> Operation[p.Moved]:
        """At the owner of the name. Nearly always the record is here, and nobody has the other name: one question to its owner will do."""
        if not call.flags & RENAME_EXCHANGE and (ino := (yield from self._rename_to_new(peer, call))):
            return p.Moved(ino, 0)
        return (yield from self._rename_under_locks(peer, call))

    def _rename_to_new(self, peer: int, call: p.RenameFile) -> Operation[int]:
        """The inode, or 0: this is not the case. Then nothing has been changed."""
        dir, name, ask_owner, owner = call.dir, call.name, self._owners.ask, self._owners.lock_owner()
        to_node = self._meta.owner(self._meta.name_partition(call.to_dir, call.to_name))
        ino, type, attr = yield from ask_owner(p.Lock(dir, name, owner))
        try:
            if attr is None or stat.S_ISDIR(type):
                return 0
            # For a while it has two names, and counts two: if a node dies then, none of them takes the file along when it is removed.
            yield from ask_owner(p.Link(ino, 1, call.now, peer))
            try:
                yield from ask(to_node, p.Insert(call.to_dir, call.to_name, ino, type, False, 0, peer))
            except OSError as error:
                if error.errno in (errno.EEXIST, META_BUSY, META_NOT_MINE):
                    yield from ask_owner(p.Link(ino, -1, call.now, peer))
                    return 0
                raise failure(errno.EIO if error.errno in (errno.EHOSTDOWN, errno.ETIMEDOUT) else number_of(error)) from None
            yield from ask_owner(p.Remove(dir, name, ino, owner, peer))
            yield from ask_owner(p.Link(ino, -1, call.now, peer))
            return ino
        finally:
            self._owners.unlock(owner, (dir, name))

    def _rename_under_locks(self, peer: int, call: p.RenameFile) -> Operation[p.Moved]:
        """Between two shards, under locks on both names."""
        dir, name, to_dir, to_name, now = call.dir, call.name, call.to_dir, call.to_name, call.now
        ask_owner, exchange = self._owners.ask, bool(call.flags & RENAME_EXCHANGE)
        names = (dir, name), (to_dir, to_name)
        owner, (source, target) = yield from self._owners.lock(*names)
        ino, was = source.ino, target.ino
        try:
            if not ino or (exchange and not was):
                raise failure(errno.ENOENT)
            if was and call.flags & RENAME_NOREPLACE:
                raise failure(errno.EEXIST)
            if stat.S_IFDIR in (source.type, target.type):
                raise failure(errno.EBUSY)  # became one meanwhile
            if was == ino:
                return p.Moved(ino, was)
            moved = (ino, was) if exchange else (ino,)
            for one in moved:  # as of ``_rename_to_new``; if the record is lost no name changes
                yield from ask_owner(p.Link(one, 1, now, peer))
            last: list[Operation[Any]] = []  # that may be done at the same time
            yield from ask_owner(p.Insert(to_dir, to_name, ino, source.type, True, owner, peer))
            if exchange:
                last.append(ask_owner(p.Insert(dir, name, was, target.type, True, owner, peer)))
            else:
                last.append(ask_owner(p.Remove(dir, name, ino, owner, peer)))
                if was:
                    last.append(self._replaced(peer, was, now))
            for answer in (yield from together(last)):
                if isinstance(answer, OSError):
                    raise answer
            for one in moved:
                yield from ask_owner(p.Link(one, -1, now, peer))
            return p.Moved(ino, was)
        finally:
            self._owners.unlock(owner, *names)

    def _replaced(self, peer: int, ino: int, now: int) -> Operation[None]:
        """A name of this file is that of another now."""
        yield from self._owners.ask(p.Link(ino, -1, now))
        if peer != self._members.node:  # it was this node that asked, and is not told
            yield from self._caches.forget_here((ino,))

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

    def renaming(self, caller: Caller, call: q.Renaming) -> Operation[None]:
        """What is left of it."""
        name, ino, ask_owner = (call.dir, call.name), call.ino, self._owners.ask
        names = name, (call.to_dir, call.to_name)
        try:
            if call.how_far == q.RENAMING_UNKNOWN:  # it has one name or two, and the record counts two
                self._calls.order(w.Invalidate((ino,), names))  # a kernel that is told of an error keeps what it knew
                raise failure(errno.EIO)
            yield from self._calls.settled()
            if call.how_far == q.RENAMING_MADE:
                yield from ask_owner(p.Remove(*name, ino, call.owner))
            yield from ask_owner(p.Link(ino, -1, caller.now))
        finally:
            self._owners.unlock(call.owner, name)
        if call.how_far == q.RENAMING_NOT_MADE:
            yield from self.rename(caller, *name, *names[1], call.flags)
            return
        if call.old:
            yield from self._replaced(self._members.node, call.old, caller.now)
        for dir in {dir for dir, _ in names}:
            self._directories.touch(dir, caller.now)
        caller.inodes += [ino, call.old] if call.old else [ino]
        caller.changed(*names)

    def unnamed(self, caller: Caller, dir: int, name: bytes, ino: int) -> Operation[None]:
        """A name of this file has gone already."""
        self._caches.uncache((ino,))
        self._changed(caller, dir, name)
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
