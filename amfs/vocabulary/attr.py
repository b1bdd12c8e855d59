"""The attributes of an inode, as in csrc/metadata/fsmeta.h, with their constants, and other facts of files that travel. Pure."""

from __future__ import annotations

from typing import NamedTuple

ROOT = 1  # number of the root directory
NAME_MAX = 255

META_NOT_MINE = 1001  # errno of an OSError: the partition belongs to another node, or is moving
META_BUSY = 1002  # likewise: locked, or somebody else must be told first

#: Fields that setattr sets.
META_SET_MODE = 1
META_SET_UID = 2
META_SET_GID = 4
META_SET_SIZE = 8
META_SET_ATIME = 16
META_SET_MTIME = 32
META_SET_CTIME = 64
META_SET_LAYOUT = 128
META_SET_RANK = 256
META_SET_BLOCKS = 512
META_SET_COPIES = 1024
SETATTR_BY_NAME = 1 << 16  # of a mount's request, as csrc/fuse/fuse.h

#: Layouts.
WHOLE = 0
STRIPED = 1
NO_LAYOUT = 255  # of a directory: no rule of its own

XATTR_CREATE = 1
XATTR_REPLACE = 2

COPIES_MAX = 16  # of one file

LOSSES = b"user.amfs.losses"  # attribute of the topmost directory: of how many partitions nobody has the names any more

PENDING_NODE_SHIFT = 40  # ``Attr.pending`` is the number of the node plus one, then that of the attempt there (csrc/launcher/attempts.h)


def maker(pending: int) -> int:
    """The node on which the attempt runs, or ran, that makes a pending file."""
    return (pending >> PENDING_NODE_SHIFT) - 1


LOST = 2  # of ``finished``: some of the content was lost with a node, and is not to be read


class Attr(NamedTuple):
    """Of a file or directory. Times in nanoseconds since 1970. ``Attr(*value)`` of what Meta gives; Meta takes it as it is."""

    ino: int = 0
    mode: int = 0  # with the type
    nlink: int = 0
    uid: int = 0
    gid: int = 0
    rdev: int = 0
    stripe: int = 0  # bytes, of striped files; of a directory: of its rule
    layout: int = WHOLE  # of a directory: its rule for new files, or NO_LAYOUT
    finished: int = 0  # 0: being written; size may be old. LOST
    writer: int = -1  # node that has it open for writing, or -1
    rank: int = -1  # node it was pinned to, or -1
    size: int = 0
    blocks: int = 0
    atime: int = 0
    mtime: int = 0
    ctime: int = 0
    pending: int = 0  # the attempt at a blind task that made it and has not ended well yet; 0: it is everybody's
    copies: int = 0  # how many nodes shall have its content; of what is about to be made, 0: as its directory says


class Entry(NamedTuple):
    """The inode that a name stands for."""

    ino: int
    type: int
    attr: Attr | None = None  # None: its record is on another node


class Listed(NamedTuple):
    """One entry of a directory; the listing goes on behind ``cursor``."""

    name: bytes
    ino: int
    type: int
    cursor: int
    attr: Attr | None


class Names(NamedTuple):
    """Entries of a directory. ``lost``: names were lost with their nodes, and some may have been in it."""

    entries: list[Listed]
    lost: bool


class Facts(NamedTuple):
    """Facts about content where it lies. Times in nanoseconds since 1970, 0: as they were."""

    size: int
    blocks: int
    atime: int
    mtime: int


LOCAL, REMOTE, STRIPES = 0, 1, 2  # kinds of handles, as csrc/data/fsio.h


STRIPE_COPIES = 2  # of a file in stripes, at most
COPIED = 1 << 31  # of the length of a stripe: its stripes have copies (csrc/data/fsio.h)


def stripe_of(attr: Attr) -> int:
    """As ``Opened.stripe``."""
    return attr.stripe | (COPIED if attr.copies > 1 else 0)


class Opened(NamedTuple):
    """How to reach a file's bytes from this node."""

    kind: int
    node: int
    stripe: int  # its length; with COPIED if each has a copy
    size: int
    losses_seen: int  # by this node when that was so
