"""Operations by path, as clients ask for them (the commands, fsspec, Python). Pure.

Paths are absolute in the namespace of the file system. Clients hold the session's keys: they are its owner and may do everything.
"""

from __future__ import annotations

import errno
import posixpath
import stat

from amfs._native import Meta
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Operation, failure
from amfs.fs.vfs.directories import Directories
from amfs.fs.vfs.layouts import Layouts
from amfs.fs.vfs.members import Members
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.owners import Owners
from amfs.fs.vfs.renames import Renames
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import LOST, ROOT, STRIPED, WHOLE, Attr, Listed

LINKS_MAX = 40
PAGE = 1000

LOCATED_MAX = 1 << 17  # stripes that one answer tells of


class Paths:
    """Walks paths, and does what is asked at their ends."""

    def __init__(
        self, meta: Meta, members: Members, owners: Owners, directories: Directories, namespace: Namespace, renames: Renames,
        layouts: Layouts,
    ) -> None:  # fmt: skip
        self._meta = meta
        self._members = members
        self._owners = owners
        self._directories = directories
        self._namespace = namespace
        self._renames = renames
        self._layouts = layouts

    # ── walking ────────────────────────────────────────────────────────────────────────────────────

    def parent(self, path: bytes) -> Operation[tuple[int, bytes]]:
        """(directory, last name) of a path whose last component need not exist."""
        if not path.startswith(b"/"):
            raise failure(errno.EINVAL)
        head, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):
            raise failure(errno.EBUSY if name == b"" else errno.EINVAL)
        attr = yield from self.walk(head or b"/", True)
        if not stat.S_ISDIR(attr.mode):
            raise failure(errno.ENOTDIR)
        return attr.ino, name

    def walk(self, path: bytes, follow: bool) -> Operation[Attr]:
        """The attributes at the end of a path; symbolic links on the way are followed, the last one if ``follow``."""
        if not path.startswith(b"/"):
            raise failure(errno.EINVAL)
        names = [name for name in reversed(path.split(b"/")) if name not in (b"", b".")]
        attr = yield from self._directories.attr(ROOT)
        links = 0
        while names:
            name = names.pop()
            if not stat.S_ISDIR(attr.mode):
                raise failure(errno.ENOTDIR)
            above = attr.ino
            if name == b"..":
                attr = yield from self._directories.attr(self._meta.dir_get(above)[1])
                continue
            attr = yield from self._namespace.find(above, name)
            if stat.S_ISLNK(attr.mode) and (names or follow):
                links += 1
                if links > LINKS_MAX:
                    raise failure(errno.ELOOP)
                target = yield from self._namespace.readlink(attr.ino)
                names += [part for part in reversed(target.split(b"/")) if part not in (b"", b".")]
                attr = yield from self._directories.attr(ROOT if target.startswith(b"/") else above)
        if path.endswith(b"/") and not stat.S_ISDIR(attr.mode):
            raise failure(errno.ENOTDIR)
        return attr

    def _file(self, path: bytes) -> Operation[Attr]:
        attr = yield from self.walk(path, True)
        if not stat.S_ISREG(attr.mode):
            raise failure(errno.EISDIR)
        return attr

    def look(self, path: bytes, follow: bool) -> Operation[q.Walked]:
        attr = yield from self.walk(path, follow)
        return q.Walked(attr, (yield from self._namespace.readlink(attr.ino)) if stat.S_ISLNK(attr.mode) else None)

    # ── listing ────────────────────────────────────────────────────────────────────────────────────

    def page(self, path: bytes, cursor: int, limit: int) -> Operation[q.Page]:
        attr = yield from self.walk(path, True)
        if not stat.S_ISDIR(attr.mode):
            raise failure(errno.ENOTDIR)
        limit = max(1, min(limit, PAGE))
        page, lost = yield from self._namespace.listing(attr.ino, cursor, limit)
        return q.Page((yield from self._with_attrs(attr.ino, page)), page[-1].cursor if len(page) == limit else 0, lost)

    def _with_attrs(self, dir: int, page: list[Listed]) -> Operation[list[tuple[bytes, Attr]]]:
        listed: list[tuple[bytes, Attr]] = []
        for entry in page:
            try:
                if entry.type == stat.S_IFDIR:
                    attr = yield from self._directories.attr(entry.ino)
                elif entry.attr is None:
                    attr = yield from self._namespace.inode(entry.ino)
                else:
                    attr = yield from self._namespace.live_attr(entry.attr)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                try:
                    attr = yield from self._namespace.find(dir, entry.name)
                except OSError as failed:
                    if failed.errno in (errno.ENOENT, errno.ENOTDIR):
                        continue  # gone meanwhile
                    if failed.errno != errno.EIO:
                        raise
                    attr = Attr(ino=entry.ino, mode=entry.type, nlink=1, finished=LOST)  # its record was lost with a node
            listed.append((entry.name, attr))
        return listed

    def _tree(self, path: bytes) -> Operation[list[tuple[bytes, Attr]]]:
        """Everything at and below ``path``."""
        top = yield from self.walk(path, False)
        found = [(path.rstrip(b"/") or b"/", top)]
        ahead = [found[0]] if stat.S_ISDIR(top.mode) else []
        while ahead:
            above, attr = ahead.pop()
            cursor = 0
            while True:
                try:
                    page, _ = yield from self._namespace.listing(attr.ino, cursor, PAGE)
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
                cursor = page[-1].cursor
        return found

    def du(self, path: bytes) -> Operation[list[tuple[bytes, int, int]]]:
        totals: dict[bytes, tuple[int, int]] = {}
        seen: set[int] = set()
        for found, attr in (yield from self._tree(path)):
            if stat.S_ISDIR(attr.mode) or found == path:
                totals.setdefault(found, (0, 0))
            if stat.S_ISDIR(attr.mode) or attr.ino in seen:
                continue
            seen.add(attr.ino)
            above = found
            while True:
                if above in totals:
                    size, files = totals[above]
                    totals[above] = size + attr.size, files + 1
                if above == path or above == b"/":
                    break
                above = posixpath.dirname(above)
        return [(name, size, files) for name, (size, files) in totals.items()]

    # ── one path ───────────────────────────────────────────────────────────────────────────────────

    def mkdir(self, caller: Caller, path: bytes, mode: int, parents: bool) -> Operation[Attr]:
        if not parents:
            dir, name = yield from self.parent(path)
            return (yield from self._namespace.mkdir(caller, dir, name, mode)).attr
        attr = yield from self._directories.attr(ROOT)
        done = b""
        for name in [part for part in path.split(b"/") if part not in (b"", b".")]:
            done += b"/" + name
            try:
                attr = yield from self.walk(done, True)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                try:
                    attr = (yield from self._namespace.mkdir(caller, attr.ino, name, mode)).attr
                except OSError as lost:
                    if lost.errno != errno.EEXIST:
                        raise
                    # Another makes it at the same time.
                    attr = yield from self.walk(done, True)
            if not stat.S_ISDIR(attr.mode):
                raise failure(errno.ENOTDIR if done != path else errno.EEXIST)
        return attr

    def rmdir(self, caller: Caller, path: bytes) -> Operation[None]:
        yield from self._namespace.rmdir(caller, *(yield from self.parent(path)))

    def unlink(self, caller: Caller, path: bytes) -> Operation[None]:
        yield from self._namespace.unlink(caller, *(yield from self.parent(path)))

    def rename(self, caller: Caller, path: bytes, to: bytes, flags: int) -> Operation[None]:
        source = yield from self.parent(path)
        target = yield from self.parent(to)
        yield from self._renames.rename(caller, *source, *target, flags)

    def link(self, caller: Caller, path: bytes, to: bytes) -> Operation[Attr]:
        attr = yield from self.walk(path, False)
        dir, name = yield from self.parent(to)
        return (yield from self._namespace.link(caller, attr.ino, dir, name)).attr

    def symlink(self, caller: Caller, target: bytes, path: bytes) -> Operation[Attr]:
        dir, name = yield from self.parent(path)
        return (yield from self._namespace.symlink(caller, dir, name, target)).attr

    def readlink(self, path: bytes) -> Operation[bytes]:
        attr = yield from self.walk(path, False)
        if not stat.S_ISLNK(attr.mode):
            raise failure(errno.EINVAL)
        return (yield from self._namespace.readlink(attr.ino))

    def setattr(self, caller: Caller, path: bytes, mask: int, attr: Attr, follow: bool) -> Operation[Attr]:
        found = yield from self.walk(path, follow)
        return (yield from self._namespace.setattr(caller, found.ino, mask, attr)).attr

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def set_rank(self, caller: Caller, path: bytes, node: int) -> Operation[None]:
        try:
            attr = yield from self.walk(path, True)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            if node not in self._members.live:
                raise failure(errno.ENXIO) from None
            dir, name = yield from self.parent(path)
            wanted = self._namespace.new(caller, dir, stat.S_IFREG | 0o666)._replace(rank=node, layout=WHOLE, stripe=0)
            yield from self._namespace.make(caller, dir, name, wanted)
            return
        yield from self._layouts.place(caller, attr.ino, node)

    def get_rank(self, path: bytes) -> Operation[int]:
        attr = yield from self._file(path)
        nodes = (yield from self._layouts.nodes(attr)) if attr.size or attr.rank < 0 else ()
        return nodes[0] if nodes else attr.rank

    def locate(self, path: bytes) -> Operation[list[tuple[int, int, list[int]]]]:
        attr = yield from self._file(path)
        if attr.layout != STRIPED:
            return [(0, attr.size, (yield from self._layouts.nodes(attr)))]
        end = min(attr.size, LOCATED_MAX * attr.stripe)  # of a file of holes there is no end
        return [
            (offset, min(attr.stripe, end - offset), [self._owners.of_stripe(attr.ino, offset // attr.stripe)])
            for offset in range(0, end, attr.stripe)
        ]
