"""A file system in a dict behind fusepy: as little as a Python file system can do. What amfs's fusepy adapter is compared with.

``python -m amfs.bench.fusepy_memory MOUNTPOINT`` mounts it, in the foreground, until it is unmounted or gets SIGTERM. Files, directories
and what the envelope client does with them; no links, no permissions, no attributes of its own.
"""

from __future__ import annotations

import errno
import itertools
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

import fuse


class Node:
    """A file or directory. Directories know their names only for readdir."""

    __slots__ = ("data", "facts", "names")

    def __init__(self, mode: int) -> None:
        now = time.time()
        self.data = bytearray()
        self.names: dict[str, None] = {}
        self.facts: dict[str, float] = {
            "st_mode": mode, "st_nlink": 2 if stat.S_ISDIR(mode) else 1, "st_size": 0, "st_atime": now, "st_mtime": now, "st_ctime": now
        }  # fmt: skip


class Memory(fuse.Operations):  # type: ignore[misc]
    """Nodes by their path. One thread: nothing is locked."""

    def __init__(self) -> None:
        self._nodes = {"/": Node(stat.S_IFDIR | 0o755)}
        self._handles = itertools.count(1)

    def _node(self, path: str) -> Node:
        try:
            return self._nodes[path]
        except KeyError:
            raise fuse.FuseOSError(errno.ENOENT) from None

    def _add(self, path: str, mode: int) -> None:
        parent, _, name = path.rpartition("/")
        self._node(parent or "/").names[name] = None
        self._nodes[path] = Node(mode)

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        parent, _, name = path.rpartition("/")
        del self._nodes[parent or "/"].names[name]

    def getattr(self, path: str, fh: int | None = None) -> dict[str, float]:
        return self._node(path).facts

    def readdir(self, path: str, fh: int) -> Iterator[str]:
        return iter((".", "..", *self._node(path).names))

    def mkdir(self, path: str, mode: int) -> None:
        self._add(path, stat.S_IFDIR | mode)

    def rmdir(self, path: str) -> None:
        if self._node(path).names:
            raise fuse.FuseOSError(errno.ENOTEMPTY)
        self._remove(path)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        self._add(path, stat.S_IFREG | mode)
        return next(self._handles)

    def open(self, path: str, flags: int) -> int:
        self._node(path)
        return next(self._handles)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(memoryview(self._node(path).data)[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        node = self._node(path)
        if offset > len(node.data):
            node.data.extend(bytes(offset - len(node.data)))
        node.data[offset : offset + len(data)] = data
        node.facts["st_size"] = len(node.data)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        node = self._node(path)
        del node.data[length:]
        node.data.extend(bytes(length - len(node.data)))
        node.facts["st_size"] = length

    def unlink(self, path: str) -> None:
        self._node(path)
        self._remove(path)

    def rename(self, old: str, new: str) -> None:
        node = self._node(old)
        if stat.S_ISDIR(int(node.facts["st_mode"])):
            raise fuse.FuseOSError(errno.EOPNOTSUPP)
        if new in self._nodes:
            self._remove(new)
        self._add(new, int(node.facts["st_mode"]))
        self._nodes[new] = node
        self._remove(old)

    def chmod(self, path: str, mode: int) -> None:
        facts = self._node(path).facts
        facts["st_mode"] = stat.S_IFMT(int(facts["st_mode"])) | mode

    def chown(self, path: str, uid: int, gid: int) -> None:
        self._node(path)

    def utimens(self, path: str, times: tuple[float, float] | None = None) -> None:
        facts = self._node(path).facts
        facts["st_atime"], facts["st_mtime"] = times or (time.time(), time.time())


def serve(mountpoint: str) -> None:
    """Mount and serve until it is over. The options are the fast ones: no threads, large writes."""
    fuse.FUSE(Memory(), mountpoint, foreground=True, nothreads=True, big_writes=True, fsname="amfs-bench-memory")


if __name__ == "__main__":
    serve(sys.argv[1])
