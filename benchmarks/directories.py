"""Directories in which file systems are measured: the file system of a path, a directory in memory and one on a disk, and warm memory.

Knows nothing of the measurements.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amfs.errors import SystemSetupError, UsageError
from amfs.host import folders

SHM = Path("/dev/shm")
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_CHUNK = 1 << 20


def file_system(path: str | Path) -> str:
    """The type of the file system that ``path`` is on ("tmpfs", "ext4", "fuse.amfs"), "" if the system does not say."""
    where = os.path.realpath(path)
    best, kind = -1, ""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), left.split()[4])
        if len(point) >= best and (where == point or where.startswith(point.rstrip("/") + "/")):  # a later mount hides an earlier
            best, kind = len(point), right.split()[0]
    return kind


def in_memory(path: str | Path) -> bool:
    return file_system(path) in _IN_MEMORY


def memory_directory() -> Path:
    """A plain tmpfs that we may write to. Raises SystemSetupError."""
    if os.access(SHM, os.W_OK | os.X_OK) and file_system(SHM) == "tmpfs":
        return SHM
    raise SystemSetupError("there is no tmpfs at /dev/shm that we may write to, and nothing to compare with")


def disk_directory() -> Path:
    """A directory that is not in memory: that for temporary files, else the user's own, else the current. Raises SystemSetupError."""
    for place in (tempfile.gettempdir(), "/var/tmp", str(folders.home()), os.getcwd()):
        if os.access(place, os.W_OK | os.X_OK) and not in_memory(place) and not file_system(place).startswith("fuse"):
            return Path(place)
    raise SystemSetupError("no directory on a disk found; name one with --disk")


@contextmanager
def workplace(parent: str | Path) -> Iterator[Path]:
    """A new directory below ``parent``, removed with all that is in it afterwards. Raises UsageError."""
    try:
        place = Path(tempfile.mkdtemp(prefix="amfs-bench-", dir=Path(parent).absolute()))
    except OSError as error:
        raise UsageError(f"cannot write to {parent}: {error.strerror}") from None
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def warm_up(parent: Path, size: int) -> None:
    """Write ``size`` bytes to tmpfs and let them go: on a virtual machine, memory that was never touched is slow the first time."""
    facts = os.statvfs(parent)
    size = min(size, facts.f_bavail * facts.f_frsize // 2)
    block = b"w" * _CHUNK
    with tempfile.TemporaryFile(dir=parent, prefix="amfs-bench-", buffering=0) as file:
        for _ in range(size // _CHUNK):
            file.write(block)
