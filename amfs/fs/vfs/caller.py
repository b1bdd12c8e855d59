"""The process on whose behalf an operation runs, and what that makes old in the caches of this node's kernel. Pure."""

from __future__ import annotations

from amfs.fs.vfs.caches import Name


class Caller:
    """Made for one operation."""

    __slots__ = ("endpoint", "entries", "gid", "inodes", "now", "own", "uid")

    def __init__(self, endpoint: object, uid: int, gid: int, now: int, own: list[int] | None = None) -> None:
        """``now``: nanoseconds since 1970."""
        self.endpoint = endpoint  # of this node: a mount, a client, or a task
        self.uid = uid
        self.gid = gid
        self.now = now
        self.inodes: list[int] = []
        self.entries: list[Name] = []
        #: Of the endpoint that asked, too, once it is answered: it counts links by itself, and is not told of the next change.
        self.own: list[int] = own if own is not None else []

    def changed(self, *names: Name) -> None:
        """These entries of their directories."""
        self.inodes += [dir for dir, _ in names]
        self.entries += names
