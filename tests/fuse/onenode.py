"""One node's metadata and data behind mounts, without a session. Requests that go the long way are answered here in the simplest right way.

The poll loop of a real node does more (other nodes); of one node alone it does the same.
"""

from __future__ import annotations

import contextlib
import errno
import select
import stat
import time
from collections.abc import Callable
from typing import Any

from amfs._native import Fuse, Io, Meta

PARTITIONS = 16
MODE, UID, GID = 1, 2, 4
LOCAL = 0


class OneNode:
    """Meta and Io of node 0 with a store in ``store``, and the mounts that it serves."""

    def __init__(self, store: str, limit: int = 0) -> None:
        self.meta = Meta(0)
        self.meta.set_table([0] * PARTITIONS, 1)
        self.io = Io(0, store, "", 1, limit, key=bytes(32), meta=self.meta)  # so that it takes digests
        self.io.set_table([0] * PARTITIONS)
        self.mounts: list[Fuse] = []
        self.poll = select.epoll()
        self.slow: list[str] = []  # requests that came the long way
        self.told: list[tuple[Any, ...]] = []  # requests that wanted no answer
        attr = (1, stat.S_IFDIR | 0o755, 2, 0, 0, 0, 0, 0, 1, -1, -1, 0, 0, 0, 0, 0)
        self.meta.dir_set(1, MODE | UID | GID, attr, time.time_ns())

    def mount(self, fd: int, **options: Any) -> Fuse:
        mount = Fuse(fd, self.meta, self.io, 0, **options)
        mount.set_alone(True)
        self.mounts.append(mount)
        self.poll.register(mount.fd, select.EPOLLIN)
        return mount

    def turn(self, longest_s: float = 0.1) -> None:
        """Answer what has come within ``longest_s`` seconds."""
        for fd, _ in self.poll.poll(longest_s):
            for mount in self.mounts:
                if mount.fd == fd:
                    self.serve(mount)

    def serve(self, mount: Fuse) -> None:
        for unique, op, args, uid, gid, _ in mount.requests():
            if not unique:
                self.told.append((op, *args))
                continue
            if op == "get_xattr":  # a session that begins elsewhere on this machine looks whether this mount is dead
                mount.reply_error(unique, errno.ENOTSUP)
                continue
            self.slow.append(op)
            try:
                act: Callable[..., None] = getattr(self, "do_" + op)
                act(mount, unique, uid, gid, *args)
            except OSError as error:
                mount.reply_error(unique, error.errno if error.errno and error.errno < 1000 else errno.EIO)

    def stop(self) -> None:
        for mount in self.mounts:
            mount.stop()
            with contextlib.suppress(OSError):
                self.serve(mount)
        self.poll.close()
        self.io.stop()

    # ── what goes the long way even on one node ────────────────────────────────────────────────────

    def do_mkdir(self, mount: Fuse, unique: int, uid: int, gid: int, parent: int, name: bytes, mode: int) -> None:
        now = time.time_ns()
        above = self.meta.dir_get(parent)[0]
        if above[1] & stat.S_ISGID:
            mode, gid = mode | stat.S_ISGID, above[4]
        ino = self.meta.new_number(self.meta.name_partition(parent, name))
        self.meta.insert(parent, name, 0, ino, stat.S_IFDIR, False)
        attr = (ino, mode, 2, uid, gid, 0, 0, 0, 1, -1, -1, 0, 0, now, now, now)
        self.meta.dir_add(ino, parent, name, attr)
        self.meta.dir_touch(parent, now)
        mount.reply_entry(unique, self.meta.dir_get(ino)[0], True)

    def do_rmdir(self, mount: Fuse, unique: int, uid: int, gid: int, parent: int, name: bytes) -> None:
        ino, kind, _ = self.meta.lookup(parent, name, 0)
        if kind != stat.S_IFDIR:
            raise OSError(errno.ENOTDIR, "no directory")
        if self.meta.count(ino):
            raise OSError(errno.ENOTEMPTY, "not empty")
        self.meta.remove(parent, name, 0, 0)
        self.meta.dir_remove(ino)
        self.meta.dir_touch(parent, time.time_ns())
        mount.reply_error(unique, 0)

    def do_rename(
        self, mount: Fuse, unique: int, uid: int, gid: int, parent: int, name: bytes, to: int, to_name: bytes, flags: int
    ) -> None:
        now = time.time_ns()
        ino, kind, _ = self.meta.lookup(parent, name, 0)
        with contextlib.suppress(FileNotFoundError):
            old, old_kind, _ = self.meta.lookup(to, to_name, 0)
            if flags & 2:
                return self._exchange(mount, unique, (parent, name, ino, kind), (to, to_name, old, old_kind))
            if flags & 1:
                raise OSError(errno.EEXIST, "there")
            if kind == stat.S_IFDIR and old_kind != stat.S_IFDIR:
                raise OSError(errno.ENOTDIR, "no directory")
            if kind != stat.S_IFDIR and old_kind == stat.S_IFDIR:
                raise OSError(errno.EISDIR, "a directory")
            if old_kind == stat.S_IFDIR:
                if self.meta.count(old):
                    raise OSError(errno.ENOTEMPTY, "not empty")
                self.meta.dir_remove(old)
        if kind == stat.S_IFDIR and self.meta.dir_below(to, ino):
            raise OSError(errno.EINVAL, "below itself")
        self.meta.remove(parent, name, 0, ino)
        self.meta.insert(to, to_name, 0, ino, kind, True)
        if kind == stat.S_IFDIR:
            self.meta.dir_move(ino, to, to_name, now)
        self.meta.dir_touch(parent, now)
        self.meta.dir_touch(to, now)
        return mount.reply_error(unique, 0)

    def _exchange(self, mount: Fuse, unique: int, a: tuple[int, bytes, int, int], b: tuple[int, bytes, int, int]) -> None:
        now = time.time_ns()
        for one, other in ((a, b), (b, a)):
            if one[3] == stat.S_IFDIR and self.meta.dir_below(other[0], one[2]):
                raise OSError(errno.EINVAL, "below itself")
        for (parent, name, _, _), (_, _, ino, kind) in ((a, b), (b, a)):
            self.meta.insert(parent, name, 0, ino, kind, True)
            if kind == stat.S_IFDIR:
                self.meta.dir_move(ino, parent, name, now)
            self.meta.dir_touch(parent, now)
        mount.reply_error(unique, 0)

    def do_create(self, mount: Fuse, unique: int, uid: int, gid: int, parent: int, name: bytes, mode: int, flags: int) -> None:
        ino, kind, _ = self.meta.lookup(parent, name, 0)  # it is there already, or the short way would have made it
        if kind != stat.S_IFREG:
            raise OSError(errno.EEXIST, "no file")
        attr = self.meta.open(ino, 0, True)[0]
        mount.reply_created(unique, attr, LOCAL, 0, 0, attr[11], 0)
