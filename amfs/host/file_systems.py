"""Which kind of file system a directory is on. I/O."""

from __future__ import annotations

import os

_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def is_in_memory(path: str) -> bool:
    """Whether the files in a directory take memory. False where that cannot be known. Raises OSError if the directory is not there."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields, _, kind = line.partition(" - ")
                if fields.split(" ")[2] == wanted:
                    return kind.split(" ")[0] in _IN_MEMORY
    except OSError:
        pass
    return False
