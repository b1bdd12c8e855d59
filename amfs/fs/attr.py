"""The attributes of an inode, as in csrc/metadata/fsmeta.h, and their constants. Pure."""

from __future__ import annotations

from typing import NamedTuple

ROOT = 1  # number of the root directory
NAME_MAX = 255

META_NOT_MINE = 1001  # errno of an OSError: the partition belongs to another node, or is moving
META_BUSY = 1002  # likewise: locked, or somebody else must be told first

#: What setattr sets.
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
SETATTR_BY_NAME = 1 << 16  # of a mount's request, as csrc/fuse/fuse.h

#: Layouts.
WHOLE = 0
STRIPED = 1
NO_LAYOUT = 255  # of a directory: no rule of its own

XATTR_CREATE = 1
XATTR_REPLACE = 2


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
