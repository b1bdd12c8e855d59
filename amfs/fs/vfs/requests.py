"""Requests of mounts and clients of this node: the table of the operations, and what each makes old in the caches of kernels. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from amfs.fs.openflags import O_RDONLY, O_RDWR
from amfs.fs.vfs.caches import Caches
from amfs.fs.vfs.caller import Caller
from amfs.fs.vfs.calls import Answer, Calls, Operation, ask, work
from amfs.fs.vfs.copies import Copies
from amfs.fs.vfs.damage import Damage
from amfs.fs.vfs.digests import Digests
from amfs.fs.vfs.handles import Handles
from amfs.fs.vfs.namespace import Namespace
from amfs.fs.vfs.open_files import OpenFiles
from amfs.fs.vfs.outside import Outside
from amfs.fs.vfs.paths import Paths
from amfs.fs.vfs.renames import Renames
from amfs.fs.vfs.url_moves import UrlMoves
from amfs.fs.vfs.xattrs import Xattrs
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p

#: They have just put into the cache what is so now.
_LEAVE_CACHED = (q.Closed, q.Close, q.Secure)

Table = tuple[q.RequestHandler, ...]


class Requests:
    """Runs the operations of this node's mounts and clients."""

    def __init__(
        self, calls: Calls, caches: Caches, files: OpenFiles, namespace: Namespace, renames: Renames, xattrs: Xattrs,
        paths: Paths, handles: Handles, copies: Copies, digests: Digests, outside: Outside, damage: Damage, moves: UrlMoves,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._caches = caches
        self._handlers: dict[type, Callable[[Caller, Any], Any]] = dict((
            *of_mounts(namespace, renames, files, xattrs),
            *of_paths(paths, xattrs),
            *of_handles(paths, handles),
            *of_many(namespace, copies, digests, outside, damage, moves),
        ))  # fmt: skip

    def run(self, endpoint: object, request: q.Request[Any], uid: int, gid: int, answer: Answer) -> None:
        """One operation for ``endpoint``: a mount of this node, or a client."""
        own: list[int] = []

        def answered(error: OSError | None, value: Any) -> None:
            answer(error, value)
            if own:
                self._calls.order(w.Invalidate(tuple(own)))

        self._calls.spawn(self._run(endpoint, request, uid, gid, own), answered)

    def _run(self, endpoint: object, request: q.Request[Any], uid: int, gid: int, own: list[int]) -> Operation[Any]:
        yield from self._calls.introduced()
        caller = Caller(endpoint, uid, gid, self._calls.wall, own)
        failed: OSError | None = None
        value: Any = None
        try:
            value = self._handlers[type(request)](caller, request)
            if isinstance(value, Generator):
                value = yield from value
        except OSError as error:
            failed = error
        if not isinstance(request, _LEAVE_CACHED):
            self._caches.uncache(caller.inodes)
        if caller.inodes or caller.entries:
            old = w.Invalidate(tuple(caller.inodes), tuple(caller.entries), endpoint)
            if isinstance(endpoint, tuple) and endpoint[0] == "client":
                with suppress(OSError):
                    yield from work(old)  # no kernel waits for this one, so it can wait for the kernels
            else:
                self._calls.order(old)
        if failed is not None:
            raise failed
        return value


def of_mounts(namespace: Namespace, renames: Renames, files: OpenFiles, xattrs: Xattrs) -> Table:
    """By numbers of directories and inodes."""
    return (
        q.Lookup.by(lambda c, r: namespace.lookup(r.dir, r.name)),
        q.Getattr.by(lambda c, r: namespace.getattr(r.ino)),
        q.Readlink.by(lambda c, r: namespace.readlink(r.ino)),
        q.List.by(lambda c, r: namespace.page(r.dir, r.cursor, r.limit)),
        q.Create.by(lambda c, r: namespace.create(c, r.dir, r.name, r.mode, r.flags, r.pending)),
        q.Mknod.by(lambda c, r: namespace.mknod(c, r.dir, r.name, r.mode, r.rdev, r.pending)),
        q.Symlink.by(lambda c, r: namespace.symlink(c, r.dir, r.name, r.target, r.pending)),
        q.Mkdir.by(lambda c, r: namespace.mkdir(c, r.dir, r.name, r.mode)),
        q.Link.by(lambda c, r: namespace.link(c, r.ino, r.dir, r.name)),
        q.Unlink.by(lambda c, r: namespace.unlink(c, r.dir, r.name)),
        q.Rmdir.by(lambda c, r: namespace.rmdir(c, r.dir, r.name)),
        q.Rename.by(lambda c, r: renames.rename(c, r.dir, r.name, r.to_dir, r.to_name, r.flags)),
        q.Setattr.by(lambda c, r: namespace.setattr(c, r.ino, r.mask, r.attr)),
        q.SetXattr.by(lambda c, r: xattrs.set(c, r.ino, r.name, r.value, r.flags)),
        q.GetXattr.by(lambda c, r: xattrs.get(r.ino, r.name)),
        q.ListXattr.by(lambda c, r: xattrs.list(r.ino)),
        q.RemoveXattr.by(lambda c, r: xattrs.remove(c, r.ino, r.name)),
        q.Statfs.by(lambda c, r: namespace.statfs()),
        q.Open.by(lambda c, r: files.open(c.endpoint, r.ino, r.flags)),
        q.Ensure.by(lambda c, r: files.open(c.endpoint, r.ino, O_RDWR if r.writing else O_RDONLY)),
        q.Closed.by(lambda c, r: namespace.closed(c, r.ino, r.wrote, r.last, r.attr)),
        q.Secure.by(lambda c, r: files.secure(r.ino)),
        q.Renaming.by(renames.go_on),
        q.PerhapsMade.by(lambda c, r: namespace.perhaps_made(r.dir, r.name)),
        q.Unnamed.by(lambda c, r: namespace.unnamed(c, r.dir, r.name, r.ino)),
        q.Touched.by(lambda c, r: namespace.touched(c, r.dir)),
    )


def of_paths(paths: Paths, xattrs: Xattrs) -> Table:
    """By path."""

    def at(path: bytes, then: Callable[[int], Operation[Any]]) -> Operation[Any]:
        attr = yield from paths.walk(path, True)
        return (yield from then(attr.ino))

    return (
        q.Walk.by(lambda c, r: paths.look(r.path, r.follow)),
        q.ListPath.by(lambda c, r: paths.page(r.path, r.cursor, r.limit)),
        q.MkdirPath.by(lambda c, r: paths.mkdir(c, r.path, r.mode, r.parents)),
        q.RmdirPath.by(lambda c, r: paths.rmdir(c, r.path)),
        q.UnlinkPath.by(lambda c, r: paths.unlink(c, r.path)),
        q.RenamePath.by(lambda c, r: paths.rename(c, r.path, r.to, r.flags)),
        q.LinkPath.by(lambda c, r: paths.link(c, r.path, r.to)),
        q.SymlinkPath.by(lambda c, r: paths.symlink(c, r.target, r.path)),
        q.ReadlinkPath.by(lambda c, r: paths.readlink(r.path)),
        q.SetattrPath.by(lambda c, r: paths.setattr(c, r.path, r.mask, r.attr, r.follow)),
        q.GetXattrPath.by(lambda c, r: at(r.path, lambda ino: xattrs.get(ino, r.name))),
        q.SetXattrPath.by(lambda c, r: at(r.path, lambda ino: xattrs.set(c, ino, r.name, r.value, r.flags))),
        q.ListXattrPath.by(lambda c, r: at(r.path, xattrs.list)),
        q.RemoveXattrPath.by(lambda c, r: at(r.path, lambda ino: xattrs.remove(c, ino, r.name))),
        q.SetRank.by(lambda c, r: paths.set_rank(c, r.path, r.node)),
        q.GetRank.by(lambda c, r: paths.get_rank(r.path)),
        q.Locate.by(lambda c, r: paths.locate(r.path)),
        q.Du.by(lambda c, r: paths.du(r.path)),
    )


def of_handles(paths: Paths, handles: Handles) -> Table:
    """Content, by handles of this node, and as whole files of its store."""
    return (
        q.OpenPath.by(lambda c, r: handles.open(c, r.path, r.flags, r.mode, r.layout, r.stripe, r.rank)),
        q.Read.by(lambda c, r: handles.read(c, r.handle, r.offset, r.count)),
        q.Seek.by(lambda c, r: handles.seek(c, r.handle, r.offset)),
        q.Write.by(lambda c, r: handles.write(c, r.handle, r.offset, r.data)),
        q.Truncate.by(lambda c, r: handles.truncate(c, r.handle, r.size)),
        q.Flush.by(lambda c, r: handles.flush(c, r.handle)),
        q.Stat.by(lambda c, r: handles.stat(c, r.handle)),
        q.Close.by(lambda c, r: handles.close(c, r.handle)),
        q.Export.by(lambda c, r: handles.export(r.path)),
        q.Scratch.by(lambda c, r: work(w.Scratch())),
        q.Adopt.by(lambda c, r: handles.adopt(c, r.scratch, r.path, r.mode, r.exclusive)),
    )


def of_many(namespace: Namespace, copies: Copies, digests: Digests, outside: Outside, damage: Damage, moves: UrlMoves) -> Table:
    """About many files, or all nodes."""

    def df() -> Operation[list[tuple[int, int, int, int]]]:
        return [(node, usage.limit, usage.used, usage.files) for node, usage in (yield from namespace.usages())]

    return (
        q.Df.by(lambda c, r: df()),
        q.Where.by(lambda c, r: copies.where(r.inodes)),
        q.Bring.by(lambda c, r: copies.bring(r.node, r.source, r.inodes)),
        q.Spare.by(lambda c, r: copies.spare(r.node, r.inodes)),
        q.Digests.by(lambda c, r: digests.of(r.inodes)),
        q.Check.by(lambda c, r: damage.check(r.inodes)),
        q.CheckStore.by(lambda c, r: ask(r.node, p.CheckStore(r.after))),
        q.SeenOutside.by(lambda c, r: outside.seen(r.path)),
        q.Load.by(lambda c, r: outside.load(c, r.node, r.files)),
        q.Dump.by(lambda c, r: outside.dump(r.node, r.files)),
        q.MoveUrls.by(moves.move),
    )
