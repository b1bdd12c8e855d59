"""Requests of clients (the commands, fsspec, Python): the operations by path, handles of this node, and questions about many files. Pure.

Paths are absolute in the namespace of the file system. Clients hold the session's keys: they are its owner and may do everything.
"""

from __future__ import annotations

import errno
import posixpath
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from amfs._native import Meta
from amfs.fs.attr import LOST, STRIPED, WHOLE, Attr
from amfs.fs.openflags import O_ACCMODE, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_TRUNC, O_WRONLY
from amfs.fs.vfs.calls import All, Ask, Operation, Work, failure
from amfs.fs.vfs.contents import LOCAL, REMOTE, STRIPE_BYTES, STRIPES, Opened, Request
from amfs.fs.vfs.layouts import Layouts
from amfs.fs.vfs.shard import attr_of

ROOT = 1
LINKS_MAX = 40
PAGE = 1000
LOCATION, LAYOUT, PLACEMENT = b"user.amfs.location", b"user.amfs.layout", b"user.amfs.placement"
STRIPE_MIN, STRIPE_MAX = 4096, 1 << 30


class _Handle:
    __slots__ = ("face", "ino", "kind", "number", "writing")

    def __init__(self, face: object, ino: int, number: int, kind: int, writing: bool) -> None:
        self.face, self.ino, self.number, self.kind, self.writing = face, ino, number, kind, writing


class Paths(Layouts):
    """Operations by path, and by handle."""

    def __init__(self, node: int, meta: Meta, clock: Callable[[], int]) -> None:
        super().__init__(node, meta, clock)
        self.handles: dict[int, _Handle] = {}

    # ── walking ────────────────────────────────────────────────────────────────────────────────────

    def _parent(self, r: Request, path: bytes) -> Operation:
        """(directory, last name) of a path whose last component need not exist."""
        if not path.startswith(b"/"):
            raise failure(errno.EINVAL)
        head, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):
            raise failure(errno.EBUSY if name == b"" else errno.EINVAL)
        attr = yield from self._walk(r, head or b"/", True)
        if not stat.S_ISDIR(attr.mode):
            raise failure(errno.ENOTDIR)
        return attr.ino, name

    def _walk(self, r: Request, path: bytes, follow: bool) -> Operation:
        """The attributes at the end of a path; symbolic links on the way are followed, the last one if ``follow``."""
        if not path.startswith(b"/"):
            raise failure(errno.EINVAL)
        names = [name for name in reversed(path.split(b"/")) if name not in (b"", b".")]
        attr = yield from self.dir_attr(ROOT)
        above = [ROOT]
        links = 0
        while names:
            name = names.pop()
            if not stat.S_ISDIR(attr.mode):
                raise failure(errno.ENOTDIR)
            if name == b"..":
                _, parent = self.meta.dir_get(attr.ino)
                attr = yield from self.dir_attr(parent)
                continue
            above.append(attr.ino)
            attr = yield from self.find(attr.ino, name)
            if stat.S_ISLNK(attr.mode) and (names or follow):
                links += 1
                if links > LINKS_MAX:
                    raise failure(errno.ELOOP)
                target = bytes((yield from self.at_ino("readlink", attr.ino)))
                names += [part for part in reversed(target.split(b"/")) if part not in (b"", b".")]
                attr = yield from self.dir_attr(ROOT if target.startswith(b"/") else above[-1])
        if path.endswith(b"/") and not stat.S_ISDIR(attr.mode):
            raise failure(errno.ENOTDIR)
        return attr

    def op_walk(self, r: Request, path: bytes, follow: bool) -> Operation:
        attr = yield from self._walk(r, path, follow)
        target = bytes((yield from self.at_ino("readlink", attr.ino))) if stat.S_ISLNK(attr.mode) else None
        return attr, target

    def op_list_path(self, r: Request, path: bytes, cursor: int, limit: int) -> Operation:
        """A page of a directory: [(name, attr)], and where it goes on; 0: that was all."""
        attr = yield from self._walk(r, path, True)
        if not stat.S_ISDIR(attr.mode):
            raise failure(errno.ENOTDIR)
        limit = max(1, min(limit, PAGE))
        page = yield from self.listing(attr.ino, cursor, limit)
        return (yield from self._with_attrs(attr.ino, page)), page[-1][3] if len(page) == limit else 0

    def _with_attrs(self, dir: int, page: list[Any]) -> Operation:
        listed: list[tuple[bytes, Attr]] = []
        for name, ino, type, _, known in page:
            try:
                if type == stat.S_IFDIR:
                    attr = yield from self.dir_attr(ino)
                elif known is None:
                    attr = yield from self.inode(ino)
                else:
                    attr = yield from self.live_attr(attr_of(known))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                try:
                    attr = yield from self.find(dir, name)
                except OSError as failed:
                    if failed.errno in (errno.ENOENT, errno.ENOTDIR):
                        continue  # gone meanwhile
                    if failed.errno != errno.EIO:
                        raise
                    attr = Attr(ino=ino, mode=type, nlink=1, finished=LOST)  # its record was lost with a node
            listed.append((name, attr))
        return listed

    # ── one path ───────────────────────────────────────────────────────────────────────────────────

    def op_mkdir_path(self, r: Request, path: bytes, mode: int, parents: bool) -> Operation:
        if not parents:
            dir, name = yield from self._parent(r, path)
            return (yield from self.op_mkdir(r, dir, name, mode))[0]
        attr = yield from self.dir_attr(ROOT)
        done = b""
        for name in [part for part in path.split(b"/") if part not in (b"", b".")]:
            done += b"/" + name
            try:
                attr = yield from self._walk(r, done, True)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                try:
                    attr = (yield from self.op_mkdir(r, attr.ino, name, mode))[0]
                except OSError as lost:
                    if lost.errno != errno.EEXIST:
                        raise
                    # Another makes it at the same time.
                    attr = yield from self._walk(r, done, True)
            if not stat.S_ISDIR(attr.mode):
                raise failure(errno.ENOTDIR if done != path else errno.EEXIST)
        return attr

    def op_rmdir_path(self, r: Request, path: bytes) -> Operation:
        dir, name = yield from self._parent(r, path)
        yield from self.op_rmdir(r, dir, name)

    def op_unlink_path(self, r: Request, path: bytes) -> Operation:
        dir, name = yield from self._parent(r, path)
        yield from self.op_unlink(r, dir, name)

    def op_rename_path(self, r: Request, path: bytes, to: bytes, flags: int) -> Operation:
        dir, name = yield from self._parent(r, path)
        to_dir, to_name = yield from self._parent(r, to)
        yield from self.op_rename(r, dir, name, to_dir, to_name, flags)

    def op_link_path(self, r: Request, path: bytes, to: bytes) -> Operation:
        attr = yield from self._walk(r, path, False)
        dir, name = yield from self._parent(r, to)
        return (yield from self.op_link(r, attr.ino, dir, name))[0]

    def op_symlink_path(self, r: Request, target: bytes, path: bytes) -> Operation:
        dir, name = yield from self._parent(r, path)
        return (yield from self.op_symlink(r, dir, name, target))[0]

    def op_readlink_path(self, r: Request, path: bytes) -> Operation:
        attr = yield from self._walk(r, path, False)
        if not stat.S_ISLNK(attr.mode):
            raise failure(errno.EINVAL)
        return bytes((yield from self.at_ino("readlink", attr.ino)))

    def op_setattr_path(self, r: Request, path: bytes, mask: int, attr: Any, follow: bool) -> Operation:
        found = yield from self._walk(r, path, follow)
        return (yield from self.op_setattr(r, found.ino, mask, attr))[0]

    # ── extended attributes and placement ──────────────────────────────────────────────────────────

    def op_get_xattr_path(self, r: Request, path: bytes, name: bytes) -> Operation:
        attr = yield from self._walk(r, path, True)
        return (yield from self.op_get_xattr(r, attr.ino, name))

    def op_set_xattr_path(self, r: Request, path: bytes, name: bytes, value: bytes, flags: int) -> Operation:
        attr = yield from self._walk(r, path, True)
        yield from self.op_set_xattr(r, attr.ino, name, value, flags)

    def op_list_xattr_path(self, r: Request, path: bytes) -> Operation:
        attr = yield from self._walk(r, path, True)
        return (yield from self.op_list_xattr(r, attr.ino))

    def op_remove_xattr_path(self, r: Request, path: bytes, name: bytes) -> Operation:
        attr = yield from self._walk(r, path, True)
        yield from self.op_remove_xattr(r, attr.ino, name)

    def op_get_xattr(self, r: Request, ino: int, name: bytes) -> Operation:
        if name not in (LOCATION, LAYOUT, PLACEMENT):
            return (yield from super().op_get_xattr(r, ino, name))
        if self._is_directory(ino):
            if name != LAYOUT:
                raise failure(errno.ENODATA)
            layout, stripe = self.meta.dir_layout(ino)
            if layout not in (WHOLE, STRIPED):
                raise failure(errno.ENODATA)
            return _layout_text(layout, stripe)
        attr = yield from self.inode(ino)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.ENODATA)
        if name == LAYOUT:
            return _layout_text(attr.layout, attr.stripe)
        if name == PLACEMENT:
            if attr.rank < 0:
                raise failure(errno.ENODATA)
            return str(attr.rank).encode()
        return b",".join(str(node).encode() for node in (yield from self._nodes(attr)))

    def op_set_xattr(self, r: Request, ino: int, name: bytes, value: bytes, flags: int) -> Operation:
        if name == LOCATION:
            raise failure(errno.EPERM)
        if name == LAYOUT:
            layout, stripe = _parse_layout(value)
            yield from self._set_layout(r, ino, layout, stripe)
        elif name == PLACEMENT:
            if not value.strip().lstrip(b"-").isdigit():
                raise failure(errno.EINVAL)
            yield from self._place(r, ino, int(value))
        else:
            yield from super().op_set_xattr(r, ino, name, value, flags)

    def op_remove_xattr(self, r: Request, ino: int, name: bytes) -> Operation:
        if name == LAYOUT and self._is_directory(ino):
            yield from self._manager("dirchange", ("layout", ino, 255, 0))
        elif name == PLACEMENT:
            yield from self._place(r, ino, -1)
        elif name in (LOCATION, LAYOUT):
            raise failure(errno.EPERM)
        else:
            yield from super().op_remove_xattr(r, ino, name)

    def _nodes(self, attr: Attr) -> Operation:
        """The nodes that hold bytes of a file, the one with the first byte first."""
        if attr.layout == STRIPED:
            owners: dict[int, None] = {}
            for index in range(min(-(-attr.size // max(attr.stripe, 1)), 4 * len(self.live) + 1024)):
                owners[self.meta.owner(self.meta.stripe_partition(attr.ino, index))] = None
            return list(owners)
        if attr.writer >= 0:
            return [attr.writer]
        return [int(node) for node in (yield from self.at_ino("holders", attr.ino))]

    def op_set_rank(self, r: Request, path: bytes, node: int) -> Operation:
        """Pin a file to a node (Hercules): one that does not exist is made, empty, and is written there whoever writes it."""
        try:
            attr = yield from self._walk(r, path, True)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            if node not in self.live:
                raise failure(errno.ENXIO) from None
            dir, name = yield from self._parent(r, path)
            wanted = self._new(r, dir, stat.S_IFREG | 0o666, rank=node, layout=WHOLE, stripe=0)
            yield from self.at_name("create", dir, name, r.now, None, tuple(wanted))
            self._made(r, dir, name)
            return
        yield from self._place(r, attr.ino, node)

    def op_get_rank(self, r: Request, path: bytes) -> Operation:
        """The node where a file is, or will be."""
        attr = yield from self._walk(r, path, True)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        nodes = (yield from self._nodes(attr)) if attr.size or attr.rank < 0 else ()
        return nodes[0] if nodes else attr.rank

    def op_locate(self, r: Request, path: bytes) -> Operation:
        """Where the bytes are: [(offset, length, nodes)]."""
        attr = yield from self._walk(r, path, True)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        if attr.layout != STRIPED:
            return [(0, attr.size, (yield from self._nodes(attr)))]
        owner, part = self.meta.owner, self.meta.stripe_partition
        return [
            (offset, min(attr.stripe, attr.size - offset), [owner(part(attr.ino, offset // attr.stripe))])
            for offset in range(0, attr.size, attr.stripe)
        ]

    # ── content ────────────────────────────────────────────────────────────────────────────────────

    def op_open_path(
        self, r: Request, path: bytes, flags: int, mode: int, layout: int, stripe: int, rank: int, attempts: int = 20
    ) -> Operation:
        """A handle of this node, and the attributes."""
        writing = bool(flags & O_ACCMODE) or bool(flags & O_TRUNC)
        try:
            attr = yield from self._walk(r, path, not flags & O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ENOENT or not flags & O_CREAT:
                raise
            dir, name = yield from self._parent(r, path)
            wanted = self._new(r, dir, stat.S_IFREG | stat.S_IMODE(mode), writer=self.node, finished=0)
            if layout in (WHOLE, STRIPED):
                wanted = wanted._replace(layout=layout, stripe=(stripe or STRIPE_BYTES) if layout == STRIPED else 0)
            if rank >= 0 and rank != self.node:
                yield from self.op_set_rank(r, path, rank)
                attr = yield from self._walk(r, path, True)
                opened = yield from self.op_open(r, attr.ino, flags & ~O_TRUNC)
            else:
                try:
                    attr, opened = yield from self._create(r, dir, name, wanted._replace(rank=rank))
                except OSError as error:
                    if error.errno != errno.EEXIST or flags & O_EXCL or attempts <= 0:
                        raise
                    # Made by another since we looked.
                    return (yield from self.op_open_path(r, path, flags, mode, layout, stripe, rank, attempts - 1))
        else:
            if flags & O_CREAT and flags & O_EXCL:
                raise failure(errno.EEXIST)
            if stat.S_ISDIR(attr.mode):
                raise failure(errno.EISDIR)
            if stat.S_ISLNK(attr.mode):
                raise failure(errno.ELOOP)
            if not stat.S_ISREG(attr.mode):
                raise failure(errno.ENXIO)
            try:
                opened = yield from self.op_open(r, attr.ino, flags)
            except OSError as error:
                if error.errno != errno.ENOENT or attempts <= 0:
                    raise
                # Replaced by a rename since we looked.
                return (yield from self.op_open_path(r, path, flags, mode, layout, stripe, rank, attempts - 1))
            attr = attr._replace(size=opened.size)
        try:
            number = yield from self._handle(r, attr.ino, opened, writing)
        except OSError as error:
            if error.errno != errno.ESTALE or opened.kind != REMOTE or attempts <= 0:
                raise
            # The node that was to let us in has closed it by now.
            return (yield from self.op_open_path(r, path, flags & ~O_EXCL, mode, layout, stripe, rank, attempts - 1))
        if flags & O_TRUNC and opened.kind == REMOTE:  # it is cut where it is written
            try:
                yield from self.op_truncate(r, number, 0)
            except OSError:
                yield from self.op_close(r, number)
                raise
            attr = attr._replace(size=0)
        return number, attr

    def _handle(self, r: Request, ino: int, opened: Opened, writing: bool) -> Operation:
        try:
            number = yield Work("handle", (ino, *opened, writing, writing))
        except OSError:
            yield from self._close(r, ino, writing, None)
            raise
        self.handles[number] = _Handle(r.face, ino, number, opened.kind, writing)
        return number

    def _of(self, r: Request, number: int) -> _Handle:
        handle = self.handles.get(number)
        if handle is None or handle.face != r.face:
            raise failure(errno.EBADF)
        return handle

    def op_read(self, r: Request, number: int, offset: int, count: int) -> Operation:
        return (yield Work("read", (self._of(r, number).number, offset, min(count, 1 << 20))))

    def op_write(self, r: Request, number: int, offset: int, data: bytes) -> Operation:
        if not self._of(r, number).writing:
            raise failure(errno.EBADF)
        return (yield Work("write", (number, offset, data)))

    def op_truncate(self, r: Request, number: int, size: int) -> Operation:
        if not self._of(r, number).writing:
            raise failure(errno.EBADF)
        yield Work("handle_truncate", (number, size))

    def op_flush(self, r: Request, number: int) -> Operation:
        yield Work("flush", (self._of(r, number).number,))

    def op_stat(self, r: Request, number: int) -> Operation:
        return (yield from self.inode(self._of(r, number).ino))

    def op_close(self, r: Request, number: int) -> Operation:
        handle = self._of(r, number)
        del self.handles[number]
        failed: OSError | None = None
        facts = None
        try:
            facts = yield Work("close", (number,))
        except OSError as error:
            failed = error
        if handle.writing:
            r.inodes.append(handle.ino)
        yield from self._close(r, handle.ino, handle.writing, facts)
        if failed is not None:
            raise failed

    def close_face(self, face: object) -> None:
        """A client is gone: close what it had open."""
        for number in [handle.number for handle in self.handles.values() if handle.face == face]:
            self.spawn(self.op_close(Request(face, 0, 0, self.clock()), number))

    def op_export(self, r: Request, path: bytes, attempts: int = 20) -> Operation:
        """(file of this node's store that has the whole content, attributes)."""
        attr = yield from self._walk(r, path, True)
        if stat.S_ISDIR(attr.mode):
            raise failure(errno.EISDIR)
        try:
            opened = yield from self.op_open(Request(("export", attr.ino), r.uid, r.gid, r.now), attr.ino, O_RDONLY)
        except OSError as error:
            if error.errno != errno.ENOENT or attempts <= 0:
                raise
            return (yield from self.op_export(r, path, attempts - 1))
        yield from self._close(Request(("export", attr.ino), r.uid, r.gid, r.now), attr.ino, False, None)
        if opened.kind in (REMOTE, STRIPES):
            raise failure(errno.EFBIG)
        return (yield Work("path", (attr.ino,))), attr

    def op_scratch(self, r: Request, name: bytes) -> Operation:
        return (yield Work("scratch", (name,)))

    def op_adopt(self, r: Request, scratch: bytes, path: bytes, mode: int, excl: bool) -> Operation:
        """Make a scratch file of this node's store the content of ``path``."""
        number, attr = yield from self.op_open_path(r, path, O_WRONLY | O_CREAT | O_TRUNC | (O_EXCL if excl else 0), mode, WHOLE, 0, -1)
        here = self._of(r, number).kind == LOCAL
        failed: OSError | None = None
        try:
            yield Work("adopt", (number, bytes(scratch), attr.ino)) if here else Work("pour", (number, bytes(scratch)))
        except OSError as error:
            failed = error
        yield from self._closed_whole(r, number, path, failed)
        return (yield from self.inode(attr.ino))

    def _closed_whole(self, r: Request, number: int, path: bytes, failed: OSError | None) -> Operation:
        """Close what was to become a file as a whole. If that has failed there is none: an empty one, or half of it, would pass for it."""
        try:
            yield from self.op_close(r, number)
        except OSError as error:
            failed = failed or error
        if failed is not None:
            with suppress(OSError):
                yield from self.op_unlink_path(r, path)
            raise failed

    # ── many files ─────────────────────────────────────────────────────────────────────────────────

    def op_df(self, r: Request) -> Operation:
        """[(node, capacity, used, files)]."""
        nodes = sorted(self.live)
        answers = yield All([Ask(node, "usage") for node in nodes])
        return [(node, a[1], a[0], a[2]) for node, a in zip(nodes, answers, strict=True) if not isinstance(a, OSError)]

    def _tree(self, r: Request, path: bytes) -> Operation:
        """Everything at and below ``path``: [(path, attr)]."""
        top = yield from self._walk(r, path, False)
        found = [(path.rstrip(b"/") or b"/", top)]
        ahead = [found[0]] if stat.S_ISDIR(top.mode) else []
        while ahead:
            above, attr = ahead.pop()
            cursor = 0
            while True:
                try:
                    page = yield from self.listing(attr.ino, cursor, PAGE)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ENOTDIR):
                        break  # removed meanwhile
                    raise
                for name, below in (yield from self._with_attrs(attr.ino, page)):
                    found.append((posixpath.join(above, name), below))
                    if stat.S_ISDIR(below.mode):
                        ahead.append(found[-1])
                if len(page) < PAGE:
                    break
                cursor = page[-1][3]
        return found

    def op_du(self, r: Request, path: bytes) -> Operation:
        """[(path, bytes, files)] of each directory at and below, with what is below it; a hard link counts once."""
        totals: dict[bytes, list[int]] = {}
        seen: set[int] = set()
        for found, attr in (yield from self._tree(r, path)):
            if stat.S_ISDIR(attr.mode) or found == path:
                totals.setdefault(found, [0, 0])
            if stat.S_ISDIR(attr.mode) or attr.ino in seen:
                continue
            seen.add(attr.ino)
            above = found
            while True:
                if above in totals:
                    totals[above][0] += attr.size
                    totals[above][1] += 1
                if above == path or above == b"/":
                    break
                above = posixpath.dirname(above)
        return [(name, size, files) for name, (size, files) in totals.items()]


def _layout_text(layout: int, stripe: int) -> bytes:
    return b"striped:%d" % stripe if layout == STRIPED else b"whole"


def _parse_layout(value: bytes) -> tuple[int, int]:
    """"whole", "striped", "striped:BYTES". EINVAL."""
    word, _, size = value.strip().partition(b":")
    if word == b"whole" and not size:
        return WHOLE, 0
    if word == b"striped" and (not size or size.isdigit()):
        stripe = int(size or STRIPE_BYTES)
        if STRIPE_MIN <= stripe <= STRIPE_MAX and not stripe & (stripe - 1):
            return STRIPED, stripe
    raise failure(errno.EINVAL)
