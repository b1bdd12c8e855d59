"""Which kind of file system a directory is on. I/O."""

from __future__ import annotations

import os

_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")
#: Of this machine alone: a lock there is seen by everybody who can see the file.
_LOCAL = (*_IN_MEMORY, "ext2", "ext3", "ext4", "xfs", "btrfs", "overlay", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs")


def kind(path: str) -> str:
    """Its name in the mount table; "" where that cannot be known. Raises OSError if the directory is not there."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields, _, rest = line.partition(" - ")
                if fields.split(" ")[2] == wanted:
                    return rest.split(" ")[0]
    except OSError:
        pass
    return ""


def is_in_memory(path: str) -> bool:
    """Whether the files in a directory take memory. False where that cannot be known. Raises OSError if the directory is not there."""
    return kind(path) in _IN_MEMORY


def is_local(path: str) -> bool:
    """Whether no other machine can have the files in a directory. False where that cannot be known. Raises OSError likewise."""
    return kind(path) in _LOCAL
